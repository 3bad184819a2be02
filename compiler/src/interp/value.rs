// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values of the interpreter, and their conversion to memory and back.

use super::launch::LocalLayout;
use super::memory::{Memory, MemoryError};
use crate::ir::{ConstId, ConstKind, Module, Type, TypeId};

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// The bits of a scalar, the rest zero.
    Bits(u64),
    /// The components of a vector, array or structure.
    Parts(Vec<Value>),
}

/// The maximum number of components of a composite that is handled as one value.
const MAX_PARTS: u64 = 1 << 20;

impl Value {
    /// The bits of a scalar; 0 for composites, for which well-typed code does not call this.
    pub fn bits(&self) -> u64 {
        match self {
            Value::Bits(bits) => *bits,
            Value::Parts(_) => 0,
        }
    }

    /// The component at an index; a scalar has itself as its only component.
    pub fn part(&self, index: usize) -> Value {
        match self {
            Value::Bits(_) => self.clone(),
            Value::Parts(parts) => parts.get(index).cloned().unwrap_or(Value::Bits(0)),
        }
    }
}

/// The types of a composite's components; `None` for scalars. `Err` if there are too many.
fn parts(module: &Module, ty: TypeId) -> Result<Option<Vec<(TypeId, u64)>>, String> {
    let types = &module.types;
    let (element, count) = match &types[ty] {
        Type::Vector(element, n) => (*element, u64::from(*n)),
        Type::Array(element, n) => (*element, *n),
        Type::Struct { members, .. } => {
            let offset = |i: usize| types.member_offset(ty, i as u32).unwrap_or(0);
            return Ok(Some(members.iter().enumerate().map(|(i, &m)| (m, offset(i))).collect()));
        }
        _ => return Ok(None),
    };
    if count > MAX_PARTS {
        return Err(format!("a value of type {}", types.text(ty)));
    }
    let stride = types.stride(element);
    Ok(Some((0..count).map(|i| (element, i * stride)).collect()))
}

/// The value of a type with all bits zero. `Err` names a part that is too large.
pub fn zero(module: &Module, ty: TypeId) -> Result<Value, String> {
    match parts(module, ty)? {
        None => Ok(Value::Bits(0)),
        Some(parts) => parts
            .iter()
            .map(|&(ty, _)| zero(module, ty))
            .collect::<Result<_, _>>()
            .map(Value::Parts),
    }
}

/// The value of a constant. `Err` names a part that has no value.
pub(super) fn constant(
    module: &Module,
    id: ConstId,
    locals: &LocalLayout,
    memory: &Memory,
) -> Result<Value, String> {
    let constant_value = &module.constants[id];
    match &constant_value.kind {
        ConstKind::Undef | ConstKind::Null => zero(module, constant_value.ty),
        ConstKind::Bits(bits) => Ok(Value::Bits(*bits)),
        ConstKind::Composite(parts) => parts
            .iter()
            .map(|&part| constant(module, part, locals, memory))
            .collect::<Result<_, _>>()
            .map(Value::Parts),
        ConstKind::Address(global, offset) => locals
            .address(*global)
            .or_else(|| memory.global(*global))
            .map(|address| Value::Bits(address.wrapping_add(*offset as u64)))
            .ok_or_else(|| format!("the address of {:?}", module.globals[*global].name)),
    }
}

/// A failed access or a value that is too large.
pub enum AccessError {
    /// The access.
    Memory(MemoryError),
    /// The value.
    Value(String),
}

impl From<MemoryError> for AccessError {
    fn from(error: MemoryError) -> Self {
        AccessError::Memory(error)
    }
}

impl From<String> for AccessError {
    fn from(what: String) -> Self {
        AccessError::Value(what)
    }
}

/// Reads a value of a type.
pub fn load(
    module: &Module,
    memory: &Memory,
    ty: TypeId,
    address: u64,
) -> Result<Value, AccessError> {
    match parts(module, ty)? {
        Some(parts) => parts
            .iter()
            .map(|&(ty, offset)| load(module, memory, ty, address.wrapping_add(offset)))
            .collect::<Result<_, _>>()
            .map(Value::Parts),
        None => {
            let mut bytes = [0; 8];
            let size = module.types.size(ty) as usize;
            memory.read(address, &mut bytes[..size.min(8)])?;
            let mut bits = u64::from_le_bytes(bytes);
            if module.types[ty] == Type::Bool {
                bits &= 1;
            }
            Ok(Value::Bits(bits))
        }
    }
}

/// Writes a value of a type.
pub fn store(
    module: &Module,
    memory: &mut Memory,
    ty: TypeId,
    address: u64,
    value: &Value,
) -> Result<(), AccessError> {
    match (parts(module, ty)?, value) {
        (Some(parts), Value::Parts(values)) => {
            for ((ty, offset), value) in parts.into_iter().zip(values) {
                store(module, memory, ty, address.wrapping_add(offset), value)?;
            }
            Ok(())
        }
        _ => {
            let bytes = value.bits().to_le_bytes();
            let size = module.types.size(ty) as usize;
            Ok(memory.write(address, &bytes[..size.min(8)])?)
        }
    }
}

/// A value of a type from its bytes in an argument block.
pub fn from_bytes(module: &Module, ty: TypeId, bytes: &[u8]) -> Result<Value, AccessError> {
    let mut memory = Memory::new();
    memory.map(0, bytes.to_vec())?;
    load(module, &memory, ty, 0)
}
