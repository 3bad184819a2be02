// SPDX-License-Identifier: MIT OR Apache-2.0
//! Types, their interning, and their layout in memory.
//!
//! Pointers are opaque: a pointer type has only an address space, and every access names the type that
//! it moves. Layout is OpenCL C's: little-endian, naturally aligned, a vector of three has the size and
//! alignment of a vector of four, and a packed structure has no padding at all.

use std::collections::HashMap;

use super::arena::{Arena, id};

id! {
    /// Names an interned [`Type`] of a module. Equal types have equal ids.
    TypeId, "t"
}

/// The floating-point formats of IEEE 754.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Float {
    /// binary16
    F16,
    /// binary32
    F32,
    /// binary64
    F64,
}

impl Float {
    /// The width in bits.
    pub fn bits(self) -> u32 {
        match self {
            Float::F16 => 16,
            Float::F32 => 32,
            Float::F64 => 64,
        }
    }
}

/// The address spaces of a kernel. All are ranges of one flat 64-bit space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressSpace {
    /// Memory of one work-item (SPIR-V `Function`, `Private`).
    Private,
    /// Memory of one work-group (SPIR-V `Workgroup`).
    Local,
    /// Memory that all work-items see (SPIR-V `CrossWorkgroup`).
    Global,
    /// Memory that no work-item writes (SPIR-V `UniformConstant`).
    Constant,
    /// Private, local or global, known only at run time (SPIR-V `Generic`).
    Generic,
}

impl AddressSpace {
    /// The name in the textual form.
    pub fn name(self) -> &'static str {
        match self {
            AddressSpace::Private => "private",
            AddressSpace::Local => "local",
            AddressSpace::Global => "global",
            AddressSpace::Constant => "constant",
            AddressSpace::Generic => "generic",
        }
    }
}

/// A type. Integers carry no sign: operations do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// No value.
    Void,
    /// A boolean; in memory one byte, 0 or 1.
    Bool,
    /// An integer of 8, 16, 32 or 64 bits.
    Int(u32),
    /// A floating-point number.
    Float(Float),
    /// A pointer of 64 bits.
    Pointer(AddressSpace),
    /// 2, 3, 4, 8 or 16 components of `Bool`, `Int`, `Float` or `Pointer` type.
    Vector(TypeId, u32),
    /// A fixed number of elements.
    Array(TypeId, u64),
    /// Members one after the other.
    Struct {
        /// The members' types.
        members: Vec<TypeId>,
        /// Without padding and with an alignment of one byte.
        packed: bool,
    },
    /// A type that the compiler knows by name only (images, samplers, events, ...). Unreachable code
    /// may have values of such types; `check` refuses them everywhere else.
    Opaque(String),
}

/// The size and the alignment of a type in memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Size in bytes, a multiple of the alignment.
    pub size: u64,
    /// Alignment in bytes, a power of two.
    pub align: u64,
}

/// The largest object that a module may declare. Keeps offset arithmetic far from overflow.
pub const MAX_OBJECT_BYTES: u64 = 1 << 40;

/// The interned types of a module.
#[derive(Clone, Debug, Default)]
pub struct Types {
    types: Arena<TypeId, Type>,
    layouts: Vec<Option<Layout>>,
    offsets: HashMap<TypeId, Vec<u64>>,
    ids: HashMap<Type, TypeId>,
}

impl Types {
    /// The id of `ty`, which is added if it is new. `None` if the type would be larger than
    /// [`MAX_OBJECT_BYTES`].
    pub fn intern(&mut self, ty: Type) -> Option<TypeId> {
        if let Some(&id) = self.ids.get(&ty) {
            return Some(id);
        }
        let layout = self.compute_layout(&ty)?;
        self.layouts.push(layout.as_ref().map(|(layout, _)| *layout));
        let id = self.types.push(ty.clone());
        if let Some((_, offsets)) = layout
            && matches!(ty, Type::Struct { .. })
        {
            self.offsets.insert(id, offsets);
        }
        self.ids.insert(ty, id);
        Some(id)
    }

    /// The id of a scalar type, which always fits.
    fn scalar(&mut self, ty: Type) -> TypeId {
        self.intern(ty).expect("a scalar is smaller than any limit")
    }

    /// The id of the `void` type.
    pub fn void(&mut self) -> TypeId {
        self.scalar(Type::Void)
    }

    /// The id of the `bool` type.
    pub fn bool(&mut self) -> TypeId {
        self.scalar(Type::Bool)
    }

    /// The id of the integer type of `bits` bits.
    pub fn int(&mut self, bits: u32) -> TypeId {
        self.scalar(Type::Int(bits))
    }

    /// The id of a floating-point type.
    pub fn float(&mut self, float: Float) -> TypeId {
        self.scalar(Type::Float(float))
    }

    /// The id of the pointer type of `space`.
    pub fn pointer(&mut self, space: AddressSpace) -> TypeId {
        self.scalar(Type::Pointer(space))
    }

    /// The type `like` with its component type replaced: a scalar stays a scalar, a vector keeps its
    /// number of components. An `element` that vectors cannot have is returned unchanged.
    pub fn with_element(&mut self, like: TypeId, element: TypeId) -> TypeId {
        let scalar = self.scalar_bits(element) != 0 && self.lanes(element) == 1;
        match self[like] {
            Type::Vector(_, n) if scalar => {
                self.intern(Type::Vector(element, n)).unwrap_or(element)
            }
            _ => element,
        }
    }

    /// The component type of a vector, or the type itself.
    pub fn element(&self, ty: TypeId) -> TypeId {
        match self[ty] {
            Type::Vector(element, _) => element,
            _ => ty,
        }
    }

    /// The number of components of a vector, or 1.
    pub fn lanes(&self, ty: TypeId) -> u32 {
        match self[ty] {
            Type::Vector(_, n) => n,
            _ => 1,
        }
    }

    /// The width in bits of an integer, float or pointer, or of a vector's components; 1 for
    /// `bool`; 0 for everything else.
    pub fn scalar_bits(&self, ty: TypeId) -> u32 {
        match self[self.element(ty)] {
            Type::Bool => 1,
            Type::Int(bits) => bits,
            Type::Float(float) => float.bits(),
            Type::Pointer(_) => 64,
            _ => 0,
        }
    }

    /// The size and alignment of a value of this type in memory; `None` for `void` and opaque
    /// types.
    pub fn layout(&self, ty: TypeId) -> Option<Layout> {
        self.layouts.get(ty.0 as usize).copied().flatten()
    }

    /// The size in bytes, 0 for types that have no layout.
    pub fn size(&self, ty: TypeId) -> u64 {
        self.layout(ty).map_or(0, |layout| layout.size)
    }

    /// The alignment in bytes, 1 for types that have no layout.
    pub fn align(&self, ty: TypeId) -> u64 {
        self.layout(ty).map_or(1, |layout| layout.align)
    }

    /// The byte distance between two elements of this type in an array, or between two components
    /// of a vector if `ty` is the component type.
    pub fn stride(&self, ty: TypeId) -> u64 {
        self.size(ty)
    }

    /// The byte offset of member `index` of a structure; `None` if there is no such member.
    pub fn member_offset(&self, ty: TypeId, index: u32) -> Option<u64> {
        self.offsets.get(&ty)?.get(index as usize).copied()
    }

    /// All types in the order they were interned; a type follows the types that it consists of.
    pub fn iter(&self) -> impl Iterator<Item = (TypeId, &Type)> {
        self.types.iter()
    }

    /// The layout and, for structures, the members' offsets. `Some(None)`: a type without layout;
    /// `None`: too large.
    fn compute_layout(&self, ty: &Type) -> Option<Option<(Layout, Vec<u64>)>> {
        let mut offsets = Vec::new();
        let natural = |size: u64| Layout { size, align: size };
        let layout = match ty {
            Type::Void | Type::Opaque(_) => return Some(None),
            Type::Bool => natural(1),
            Type::Int(bits) => natural(u64::from(*bits) / 8),
            Type::Float(float) => natural(u64::from(float.bits()) / 8),
            Type::Pointer(_) => natural(8),
            Type::Vector(element, n) => {
                let Some(element) = self.layout(*element) else { return Some(None) };
                natural(element.size * u64::from(if *n == 3 { 4 } else { *n }))
            }
            Type::Array(element, len) => {
                let Some(element) = self.layout(*element) else { return Some(None) };
                Layout { size: element.size.checked_mul(*len)?, align: element.align }
            }
            Type::Struct { members, packed } => {
                let mut layout = Layout { size: 0, align: 1 };
                for &member in members {
                    let Some(member) = self.layout(member) else { return Some(None) };
                    if !packed {
                        layout.align = layout.align.max(member.align);
                        layout.size = layout.size.next_multiple_of(member.align);
                    }
                    offsets.push(layout.size);
                    layout.size = layout.size.checked_add(member.size)?;
                    if layout.size > MAX_OBJECT_BYTES {
                        return None;
                    }
                }
                layout.size = layout.size.next_multiple_of(layout.align);
                layout
            }
        };
        (layout.size <= MAX_OBJECT_BYTES).then_some(Some((layout, offsets)))
    }
}

impl std::ops::Index<TypeId> for Types {
    type Output = Type;
    fn index(&self, id: TypeId) -> &Type {
        &self.types[id]
    }
}

/// A scalar type, as far as operations distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// A truth value, 0 or 1.
    Bool,
    /// An integer of this many bits; also a pointer.
    Int(u32),
    /// A float.
    Float(Float),
}

impl Scalar {
    /// The scalar type; `None` for other types.
    pub fn of(ty: &Type) -> Option<Self> {
        Some(match ty {
            Type::Bool => Scalar::Bool,
            Type::Int(bits) => Scalar::Int(*bits),
            Type::Float(float) => Scalar::Float(*float),
            Type::Pointer(_) => Scalar::Int(64),
            _ => return None,
        })
    }

    /// The width in bits.
    pub fn bits(self) -> u32 {
        match self {
            Scalar::Bool => 1,
            Scalar::Int(bits) => bits,
            Scalar::Float(float) => float.bits(),
        }
    }

    /// The low bits that a value may have.
    pub fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits().clamp(1, 64))
    }
}
