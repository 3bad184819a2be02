// SPDX-License-Identifier: MIT OR Apache-2.0
//! Instructions on memory: variables, addresses, loads and stores, atomics, barriers, built-ins.

use rspirv::spirv::{BuiltIn, MemoryAccess, MemorySemantics, Op as Spv, StorageClass};

use super::annotations::alignment;
use super::body::{Body, Val};
use super::error::Result;
use super::words::Instruction;
use crate::ir::{
    Access, AddressSpace, AtomicOp, BinaryOp, CompareOp, ConstKind, ConvertOp, Global, Op, Operand,
    Ordering, Scope, Terminator, Type, TypeId, WorkItemQuery,
};

/// An access of known alignment without further properties.
pub fn plain_access(align: u64) -> Access {
    Access { align: u32::try_from(align).unwrap_or(1), volatile: false, nontemporal: false }
}

/// Translates an instruction on memory. `false` if it is another one.
pub fn translate(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<bool> {
    match inst.op() {
        Spv::Variable | Spv::UntypedVariableKHR => variable(body, inst)?,
        Spv::Load => load(body, inst)?,
        Spv::Store => {
            let (ptr, value) = (body.arg(inst, 0)?, body.arg(inst, 1)?);
            let ty = body.type_of(value);
            let access = access(body, inst, 2, ty)?;
            body.emit_void(Op::Store(ptr, value, access));
        }
        Spv::CopyMemory => {
            let (to, from) = (body.arg(inst, 0)?, body.arg(inst, 1)?);
            let ty = copied_type(body, inst)?;
            let access = access(body, inst, 2, ty)?;
            let i64 = body.b.module.types.int(64);
            let size = body.b.module.types.size(ty);
            let size = body.int(i64, size);
            body.emit_void(Op::Copy(to, from, size, access));
        }
        Spv::CopyMemorySized => {
            let (to, from) = (body.arg(inst, 0)?, body.arg(inst, 1)?);
            let i8 = body.b.module.types.int(8);
            let size = body.arg(inst, 2)?;
            let access = access(body, inst, 3, i8)?;
            body.emit_void(Op::Copy(to, from, size, access));
        }
        // Hints that the compiler ignores.
        Spv::LifetimeStart | Spv::LifetimeStop | Spv::SubgroupBlockPrefetchINTEL => {}
        Spv::UntypedPrefetchKHR => {
            let types = &body.b.module.types;
            let (pointer, bytes) = (body.arg(inst, 0)?, body.arg(inst, 1)?);
            if types[body.type_of(pointer)] != Type::Pointer(AddressSpace::Global) {
                return Err(inst.error("has a pointer that is not to global memory".into()));
            }
            if !matches!(types[body.type_of(bytes)], Type::Int(_)) {
                return Err(inst.error("has a number of bytes that is not an integer".into()));
            }
        }
        Spv::AccessChain
        | Spv::InBoundsAccessChain
        | Spv::UntypedAccessChainKHR
        | Spv::UntypedInBoundsAccessChainKHR => access_chain(body, inst, false)?,
        Spv::PtrAccessChain
        | Spv::InBoundsPtrAccessChain
        | Spv::UntypedPtrAccessChainKHR
        | Spv::UntypedInBoundsPtrAccessChainKHR => access_chain(body, inst, true)?,
        _ => {
            return Ok(pointer(body, inst)? || atomic(body, inst)? || barrier(body, inst)?);
        }
    }
    Ok(true)
}

fn variable(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<()> {
    let class = StorageClass::from_u32(inst.arg(0)?);
    if class != Some(StorageClass::Function) {
        return Err(inst.error("of a module stands in a function".into()));
    }
    if !body.in_entry() {
        return Err(inst.error("stands outside of the function's first block".into()));
    }
    let (ty, init) = body.b.variable_object(inst)?;
    let init = init.map(|init| body.b.constant(inst, init)).transpose()?;
    if body.b.module.types.layout(ty).is_none() {
        let what = format!("{} of type {}", inst.grammar.name, body.b.module.types.text(ty));
        return body.unsupported(inst, &what);
    }
    let align = body.decorations(inst).alignment.unwrap_or(1);
    let address = body.new_variable(ty, u64::from(align), init)?;
    body.set_result(inst, address)
}

/// The type that `OpCopyMemory` copies: what one of its pointers points to, as untyped ones do not say it.
fn copied_type(body: &Body<'_, '_>, inst: &Instruction<'_>) -> Result<TypeId> {
    for index in [0, 1] {
        let (_, type_id) = body.value(inst, inst.arg(index)?)?;
        if let Some(ty) = body.known_pointee(inst, type_id)? {
            return Ok(ty);
        }
    }
    Err(inst.error("has two untyped pointers, so the number of bytes is not known".into()))
}

/// The memory operands from word `index` on, for a value of type `ty`.
pub fn access(
    body: &Body<'_, '_>,
    inst: &Instruction<'_>,
    index: usize,
    ty: TypeId,
) -> Result<Access> {
    let mut access = plain_access(body.b.module.types.align(ty));
    if let Some(&mask) = inst.rest().get(index) {
        let mask = MemoryAccess::from_bits_retain(mask);
        access.volatile = mask.contains(MemoryAccess::VOLATILE);
        access.nontemporal = mask.contains(MemoryAccess::NONTEMPORAL);
        if mask.contains(MemoryAccess::ALIGNED) {
            access.align = alignment(inst, inst.arg(index + 1)?)?;
        }
    }
    Ok(access)
}

fn load(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<()> {
    let ty = body.result_type(inst)?;
    let (val, _) = body.value(inst, inst.arg(0)?)?;
    match val {
        Val::Operand(ptr) => {
            let access = access(body, inst, 1, ty)?;
            let operand = body.emit(ty, Op::Load(ptr, access));
            body.set_result(inst, operand)
        }
        Val::BuiltIn(builtin, offset) => load_builtin(body, inst, ty, builtin, offset),
    }
}

/// The query that a built-in variable stands for; `None` if a kernel has no such built-in.
fn query_of(builtin: u32) -> Option<WorkItemQuery> {
    Some(match BuiltIn::from_u32(builtin)? {
        BuiltIn::GlobalInvocationId => WorkItemQuery::GlobalId,
        BuiltIn::GlobalSize => WorkItemQuery::GlobalSize,
        BuiltIn::GlobalOffset => WorkItemQuery::GlobalOffset,
        BuiltIn::WorkgroupId => WorkItemQuery::GroupId,
        BuiltIn::NumWorkgroups => WorkItemQuery::NumGroups,
        BuiltIn::LocalInvocationId => WorkItemQuery::LocalId,
        BuiltIn::WorkgroupSize => WorkItemQuery::LocalSize,
        BuiltIn::EnqueuedWorkgroupSize => WorkItemQuery::EnqueuedLocalSize,
        BuiltIn::WorkDim => WorkItemQuery::WorkDim,
        BuiltIn::GlobalLinearId => WorkItemQuery::GlobalLinearId,
        BuiltIn::LocalInvocationIndex => WorkItemQuery::LocalLinearId,
        BuiltIn::SubgroupSize => WorkItemQuery::SubgroupSize,
        BuiltIn::SubgroupMaxSize => WorkItemQuery::SubgroupMaxSize,
        BuiltIn::NumSubgroups => WorkItemQuery::NumSubgroups,
        BuiltIn::NumEnqueuedSubgroups => WorkItemQuery::NumEnqueuedSubgroups,
        BuiltIn::SubgroupId => WorkItemQuery::SubgroupId,
        BuiltIn::SubgroupLocalInvocationId => WorkItemQuery::SubgroupLocalId,
        _ => return None,
    })
}

/// The set of lanes that a built-in variable holds; `None` if it is another one.
fn lane_mask(builtin: u32) -> Option<CompareOp> {
    Some(match BuiltIn::from_u32(builtin)? {
        BuiltIn::SubgroupEqMask => CompareOp::Eq,
        BuiltIn::SubgroupGeMask => CompareOp::UGe,
        BuiltIn::SubgroupGtMask => CompareOp::UGt,
        BuiltIn::SubgroupLeMask => CompareOp::ULe,
        BuiltIn::SubgroupLtMask => CompareOp::ULt,
        _ => return None,
    })
}

fn load_builtin(
    body: &mut Body<'_, '_>,
    inst: &Instruction<'_>,
    ty: TypeId,
    builtin: u32,
    offset: u64,
) -> Result<()> {
    let element = body.b.module.types.element(ty);
    let bytes = body.b.module.types.size(element).max(1);
    let lanes = body.b.module.types.lanes(ty);
    let first = offset / bytes;
    let is_int = matches!(body.b.module.types[element], Type::Int(_));
    let query = query_of(builtin).filter(|query| {
        let dimensions = if query.has_dimension() { 3 } else { 1 };
        is_int && offset.is_multiple_of(bytes) && first + u64::from(lanes) <= dimensions
    });
    if let Some(mask) = lane_mask(builtin).filter(|_| offset == 0 && lanes == 4) {
        let operand = body.lane_mask(ty, mask);
        return body.set_result(inst, operand);
    }
    let Some(query) = query else {
        let name = BuiltIn::from_u32(builtin)
            .map_or_else(|| builtin.to_string(), |builtin| format!("{builtin:?}"));
        return body.unsupported(inst, &format!("OpLoad of the built-in {name}"));
    };
    let answer = body.b.module.types.int(query.bits());
    let mut parts = Vec::new();
    for lane in 0..u64::from(lanes) {
        let part = body.emit(answer, Op::WorkItem(query, (first + lane) as u8));
        parts.push(body.resize_int(part, element, false));
    }
    let operand = match parts.as_slice() {
        [part] => *part,
        _ => body.emit(ty, Op::Construct(parts)),
    };
    body.set_result(inst, operand)
}

fn access_chain(body: &mut Body<'_, '_>, inst: &Instruction<'_>, element: bool) -> Result<()> {
    // Chains of untyped pointers name the type that they lead through first.
    let named = is_untyped_chain(inst.op());
    let at = usize::from(named);
    let (base, base_type) = body.value(inst, inst.arg(at)?)?;
    let known = body.known_pointee(inst, base_type)?;
    let pointee = if named {
        let result = inst.result_type().unwrap_or_default();
        if body.known_pointee(inst, result)?.is_some() {
            return Err(inst.error("has a result that is not an untyped pointer".into()));
        }
        body.b.ty(inst, inst.arg(0)?)?
    } else {
        known.ok_or_else(|| inst.error("has a base that is an untyped pointer".into()))?
    };
    if named && body.b.module.types.layout(pointee).is_none() {
        let text = body.b.module.types.text(pointee);
        let what = format!("{} through the type {text}", inst.grammar.name);
        return body.unsupported(inst, &what);
    }
    let result_ty = body.result_type(inst)?;
    let mut indices = Vec::with_capacity(inst.rest().len());
    for &id in &inst.rest()[at + 1..] {
        indices.push(body.operand(inst, id)?);
    }
    let lanes = body.b.module.types.lanes(result_ty);
    if lanes == 1 {
        let place = place(body, inst, element, (base, pointee), &indices)?;
        if let Val::Operand(operand) = place
            && body.type_of(operand) != result_ty
        {
            return Err(inst.error("changes the address space".into()));
        }
        return body.set_result_val(inst, place);
    }
    // A vector of pointers: each component's place, where what is no vector is the same for all.
    let component = |body: &mut Body<'_, '_>, operand: Operand, lane: u32| -> Result<Operand> {
        let ty = body.type_of(operand);
        match body.b.module.types.lanes(ty) {
            1 => Ok(operand),
            n if n == lanes => {
                let element = body.b.module.types.element(ty);
                Ok(body.extract(operand, element, vec![lane]))
            }
            n => {
                Err(inst.error(format!("has {n} components in an operand, {lanes} in its result")))
            }
        }
    };
    let Val::Operand(base) = base else {
        return body.unsupported(inst, &format!("{} of a built-in", inst.grammar.name));
    };
    let mut parts = Vec::with_capacity(lanes as usize);
    for lane in 0..lanes {
        let base = Val::Operand(component(body, base, lane)?);
        let mut own = Vec::with_capacity(indices.len());
        for &index in &indices {
            own.push(component(body, index, lane)?);
        }
        if let Val::Operand(part) = place(body, inst, element, (base, pointee), &own)? {
            parts.push(part);
        }
    }
    let wanted = body.b.module.types.element(result_ty);
    if parts.iter().any(|&part| body.type_of(part) != wanted) {
        return Err(inst.error("changes the address space".into()));
    }
    let whole = body.emit(result_ty, Op::Construct(parts));
    body.set_result(inst, whole)
}

fn is_untyped_chain(op: Spv) -> bool {
    matches!(
        op,
        Spv::UntypedAccessChainKHR
            | Spv::UntypedInBoundsAccessChainKHR
            | Spv::UntypedPtrAccessChainKHR
            | Spv::UntypedInBoundsPtrAccessChainKHR
    )
}

/// The place in a composite that an address and indices lead to.
fn place(
    body: &mut Body<'_, '_>,
    inst: &Instruction<'_>,
    element: bool,
    (base, mut ty): (Val, TypeId),
    indices: &[Operand],
) -> Result<Val> {
    let mut offset = 0i64;
    let mut terms: Vec<(Operand, i64)> = Vec::new();
    for (i, &index) in indices.iter().enumerate() {
        let constant = body.signed_constant(index);
        let inner = if element && i == 0 {
            ty
        } else {
            match &body.b.module.types[ty] {
                Type::Array(inner, _) | Type::Vector(inner, _) => *inner,
                Type::Struct { members, .. } => {
                    let member = constant.and_then(|n| u32::try_from(n).ok());
                    let found = member.and_then(|n| {
                        let inner = *members.get(n as usize)?;
                        Some((inner, body.b.module.types.member_offset(ty, n)?))
                    });
                    let Some((inner, within)) = found else {
                        return Err(inst.error(format!("has no member to go to at index {i}")));
                    };
                    offset = offset.wrapping_add(within as i64);
                    ty = inner;
                    continue;
                }
                _ => {
                    let text = body.b.module.types.text(ty).to_string();
                    return Err(inst.error(format!("goes into a value of type {text}")));
                }
            }
        };
        let stride = body.b.module.types.stride(inner) as i64;
        match constant {
            Some(n) => offset = offset.wrapping_add(n.wrapping_mul(stride)),
            None => terms.push((index, stride)),
        }
        ty = inner;
    }
    Ok(Val::Operand(match base {
        Val::BuiltIn(builtin, start) if terms.is_empty() => {
            return Ok(Val::BuiltIn(builtin, start.wrapping_add(offset as u64)));
        }
        Val::BuiltIn(..) => {
            let what = format!("{} of a built-in", inst.grammar.name);
            let ty = body.result_type(inst)?;
            body.emit(ty, Op::Unsupported(what))
        }
        Val::Operand(base) if terms.is_empty() && offset == 0 => base,
        Val::Operand(base) => {
            let inbounds = matches!(
                inst.op(),
                Spv::InBoundsAccessChain
                    | Spv::InBoundsPtrAccessChain
                    | Spv::UntypedInBoundsAccessChainKHR
                    | Spv::UntypedInBoundsPtrAccessChainKHR
            );
            body.address(base, offset, terms, inbounds)
        }
    }))
}

/// Casts and comparisons of pointers.
fn pointer(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<bool> {
    if !matches!(
        inst.op(),
        Spv::PtrCastToGeneric
            | Spv::GenericCastToPtr
            | Spv::GenericCastToPtrExplicit
            | Spv::Bitcast
            | Spv::ConvertPtrToU
            | Spv::ConvertUToPtr
            | Spv::PtrCastToCrossWorkgroupINTEL
            | Spv::CrossWorkgroupCastToPtrINTEL
            | Spv::PtrDiff
    ) {
        return Ok(false);
    }
    let ty = body.result_type(inst)?;
    let (val, type_id) = body.value(inst, inst.arg(0)?)?;
    let a = match val {
        Val::Operand(operand) => operand,
        // The address of a built-in stays one when it is cast.
        Val::BuiltIn(..) => return body.set_result_val(inst, val).map(|()| true),
    };
    let from = body.type_of(a);
    let i64 = body.b.module.types.int(64);
    let is_pointer = |body: &Body<'_, '_>, ty| {
        let types = &body.b.module.types;
        matches!(types[types.element(ty)], Type::Pointer(_))
    };
    let result = match inst.op() {
        Spv::PtrDiff => {
            let b = body.arg(inst, 1)?;
            let size = body.pointer_step(inst, type_id)?;
            let [a, b] = [a, b].map(|p| body.emit(i64, Op::Convert(ConvertOp::PtrToInt, p)));
            let bytes = body.emit(i64, Op::Binary(BinaryOp::Sub, a, b));
            let size = body.int(i64, size);
            let count = body.emit(i64, Op::Binary(BinaryOp::SDiv, bytes, size));
            body.resize_int(count, ty, true)
        }
        _ if from == ty => a,
        _ => match (is_pointer(body, from), is_pointer(body, ty)) {
            (true, true) => body.pointer_cast(a, ty),
            (true, false) => {
                let wide = body.b.module.types.with_element(from, i64);
                let bits = body.emit(wide, Op::Convert(ConvertOp::PtrToInt, a));
                match inst.op() {
                    Spv::Bitcast => body.bitcast(bits, ty),
                    _ => body.resize_int(bits, ty, false),
                }
            }
            (false, true) => {
                let wide = body.b.module.types.with_element(ty, i64);
                let bits = match inst.op() {
                    Spv::Bitcast => body.bitcast(a, wide),
                    _ => body.resize_int(a, wide, false),
                };
                body.emit(ty, Op::Convert(ConvertOp::IntToPtr, bits))
            }
            (false, false) => body.bitcast(a, ty),
        },
    };
    body.set_result(inst, result)?;
    Ok(true)
}

/// Decodes a scope given as a constant.
pub fn scope(body: &Body<'_, '_>, inst: &Instruction<'_>, index: usize) -> Result<Scope> {
    let value = body.b.int(inst, inst.arg(index)?)?;
    Ok(match value {
        0 => Scope::System,
        1 | 5 => Scope::Device,
        2 => Scope::Workgroup,
        3 => Scope::Subgroup,
        4 => Scope::WorkItem,
        _ => return Err(inst.error(format!("has scope {value}, which does not exist"))),
    })
}

/// Decodes memory semantics given as a constant.
pub fn memory_ordering(
    body: &Body<'_, '_>,
    inst: &Instruction<'_>,
    index: usize,
) -> Result<Ordering> {
    let value = body.b.int(inst, inst.arg(index)?)?;
    let semantics = MemorySemantics::from_bits_truncate(value as u32);
    let (acquire, release) = (
        semantics.contains(MemorySemantics::ACQUIRE),
        semantics.contains(MemorySemantics::RELEASE),
    );
    Ok(if semantics.contains(MemorySemantics::SEQUENTIALLY_CONSISTENT) {
        Ordering::SeqCst
    } else if semantics.contains(MemorySemantics::ACQUIRE_RELEASE) || (acquire && release) {
        Ordering::AcqRel
    } else if acquire {
        Ordering::Acquire
    } else if release {
        Ordering::Release
    } else {
        Ordering::Relaxed
    })
}

/// The ordering that a load may have.
fn for_load(ordering: Ordering) -> Ordering {
    match ordering {
        Ordering::Release => Ordering::Relaxed,
        Ordering::AcqRel => Ordering::Acquire,
        other => other,
    }
}

/// The ordering that a store may have.
fn for_store(ordering: Ordering) -> Ordering {
    match ordering {
        Ordering::Acquire => Ordering::Relaxed,
        Ordering::AcqRel => Ordering::Release,
        other => other,
    }
}

fn atomic(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<bool> {
    let op = match inst.op() {
        Spv::AtomicLoad => {
            let ptr = body.arg(inst, 0)?;
            let (scope, ordering) = (scope(body, inst, 1)?, memory_ordering(body, inst, 2)?);
            Op::AtomicLoad(ptr, for_load(ordering), scope)
        }
        Spv::AtomicStore => {
            let (ptr, value) = (body.arg(inst, 0)?, body.arg(inst, 3)?);
            let (scope, ordering) = (scope(body, inst, 1)?, memory_ordering(body, inst, 2)?);
            body.emit_void(Op::AtomicStore(ptr, value, for_store(ordering), scope));
            return Ok(true);
        }
        Spv::AtomicCompareExchange | Spv::AtomicCompareExchangeWeak => Op::AtomicCompareExchange {
            ptr: body.arg(inst, 0)?,
            scope: scope(body, inst, 1)?,
            success: memory_ordering(body, inst, 2)?,
            failure: for_load(memory_ordering(body, inst, 3)?),
            value: body.arg(inst, 4)?,
            expected: body.arg(inst, 5)?,
        },
        Spv::AtomicFlagTestAndSet => {
            let i32 = body.b.module.types.int(32);
            let (ptr, one) = (body.arg(inst, 0)?, body.int(i32, 1));
            let (scope, ordering) = (scope(body, inst, 1)?, memory_ordering(body, inst, 2)?);
            let swap = Op::AtomicRmw(AtomicOp::Exchange, ptr, one, ordering, scope);
            let old = body.emit(i32, swap);
            let zero = body.int(i32, 0);
            Op::Compare(CompareOp::Ne, old, zero)
        }
        Spv::AtomicFlagClear => {
            let i32 = body.b.module.types.int(32);
            let (ptr, zero) = (body.arg(inst, 0)?, body.int(i32, 0));
            let (scope, ordering) = (scope(body, inst, 1)?, memory_ordering(body, inst, 2)?);
            body.emit_void(Op::AtomicStore(ptr, zero, for_store(ordering), scope));
            return Ok(true);
        }
        spv => {
            let Some(op) = atomic_op(spv) else { return Ok(false) };
            let ty = body.result_type(inst)?;
            let ptr = body.arg(inst, 0)?;
            let (scope, ordering) = (scope(body, inst, 1)?, memory_ordering(body, inst, 2)?);
            let value = match spv {
                Spv::AtomicIIncrement | Spv::AtomicIDecrement => body.int(ty, 1),
                _ => body.arg(inst, 3)?,
            };
            Op::AtomicRmw(op, ptr, value, ordering, scope)
        }
    };
    let ty = body.result_type(inst)?;
    let operand = body.emit(ty, op);
    body.set_result(inst, operand)?;
    Ok(true)
}

fn atomic_op(op: Spv) -> Option<AtomicOp> {
    Some(match op {
        Spv::AtomicExchange => AtomicOp::Exchange,
        Spv::AtomicIIncrement | Spv::AtomicIAdd => AtomicOp::Add,
        Spv::AtomicIDecrement | Spv::AtomicISub => AtomicOp::Sub,
        Spv::AtomicSMin => AtomicOp::SMin,
        Spv::AtomicUMin => AtomicOp::UMin,
        Spv::AtomicSMax => AtomicOp::SMax,
        Spv::AtomicUMax => AtomicOp::UMax,
        Spv::AtomicAnd => AtomicOp::And,
        Spv::AtomicOr => AtomicOp::Or,
        Spv::AtomicXor => AtomicOp::Xor,
        Spv::AtomicFAddEXT => AtomicOp::FAdd,
        Spv::AtomicFMinEXT => AtomicOp::FMin,
        Spv::AtomicFMaxEXT => AtomicOp::FMax,
        _ => return None,
    })
}

fn barrier(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<bool> {
    match inst.op() {
        Spv::ControlBarrier => {
            let execution = scope(body, inst, 0)?;
            let memory = scope(body, inst, 1)?;
            let ordering = memory_ordering(body, inst, 2)?;
            match execution {
                Scope::Device | Scope::System => grid_barrier(body, memory, ordering),
                _ => body.emit_void(Op::ControlBarrier { execution, memory, ordering }),
            }
        }
        Spv::MemoryBarrier => {
            let scope = scope(body, inst, 0)?;
            let ordering = memory_ordering(body, inst, 1)?;
            if ordering != Ordering::Relaxed {
                body.emit_void(Op::Fence(scope, ordering));
            }
        }
        Spv::NamedBarrierInitialize => {
            let (ty, count) = (body.result_type(inst)?, body.arg(inst, 0)?);
            let i32 = body.b.module.types.int(32);
            if body.type_of(count) != i32 {
                return Err(inst.error("has a number of sub-groups that has not 32 bits".into()));
            }
            if body.b.module.types[ty] != Type::Pointer(AddressSpace::Local) {
                return Err(inst.error("has a type that is no named barrier".into()));
            }
            // All items call it; the code is the barrier's identity.
            let loc = body.loc;
            let barrier = body.b.module.globals.push(Global {
                name: format!("named barrier {}", inst.result().unwrap_or_default()),
                space: AddressSpace::Local,
                ty: i32,
                size: 4,
                align: 4,
                init: None,
                exported: false,
                imported: false,
                loc,
            });
            let barrier = body.b.const_operand(ty, ConstKind::Address(barrier, 0));
            first_item(body, |body| body.emit_void(Op::Store(barrier, count, plain_access(4))));
            body.set_result(inst, barrier)?;
        }
        Spv::MemoryNamedBarrier => {
            let (barrier, scope) = (body.arg(inst, 0)?, scope(body, inst, 1)?);
            let ordering = memory_ordering(body, inst, 2)?;
            if body.b.module.types[body.type_of(barrier)] != Type::Pointer(AddressSpace::Local) {
                return Err(inst.error("waits at what is no named barrier".into()));
            }
            body.emit_void(Op::NamedBarrier(barrier, scope, ordering));
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// The first item of a work-group does something, between two barriers of the work-group.
fn first_item(body: &mut Body<'_, '_>, what: impl FnOnce(&mut Body<'_, '_>)) {
    let (execution, memory, ordering) = (Scope::Workgroup, Scope::Workgroup, Ordering::AcqRel);
    one_item(body, Op::ControlBarrier { execution, memory, ordering }, what);
}

/// All work-items of the launch wait for each other: those of each group, then one of each, then
/// those of each group.
fn grid_barrier(body: &mut Body<'_, '_>, memory: Scope, ordering: Ordering) {
    let barrier = Op::ControlBarrier { execution: Scope::Workgroup, memory, ordering };
    one_item(body, barrier, |body| body.emit_void(Op::GridBarrier));
}

fn one_item(body: &mut Body<'_, '_>, barrier: Op, what: impl FnOnce(&mut Body<'_, '_>)) {
    let (i64, bool) = (body.b.module.types.int(64), body.b.module.types.bool());
    body.emit_void(barrier.clone());
    let item = body.emit(i64, Op::WorkItem(WorkItemQuery::LocalLinearId, 0));
    let zero = body.int(i64, 0);
    let first = body.emit(bool, Op::Compare(CompareOp::Eq, item, zero));
    let [wait, next] = [body.new_block(), body.new_block()];
    body.go_on(Terminator::CondBranch(first, wait, next), wait);
    what(body);
    body.go_on(Terminator::Branch(next), next);
    body.emit_void(barrier);
}

impl Body<'_, '_> {
    /// The value of an integer constant, sign-extended.
    pub fn signed_constant(&self, operand: Operand) -> Option<i64> {
        let Operand::Const(id) = operand else { return None };
        let ty = self.b.module.constants[id].ty;
        let Type::Int(width) = self.b.module.types[ty] else { return None };
        let unused = 64 - width;
        self.b.module.const_bits(id).map(|bits| ((bits << unused) as i64) >> unused)
    }

    /// An address some bytes away from another. Within a global variable it stays a constant.
    pub fn address(
        &mut self,
        base: Operand,
        offset: i64,
        terms: Vec<(Operand, i64)>,
        inbounds: bool,
    ) -> Operand {
        let ty = self.type_of(base);
        if let (Operand::Const(id), true) = (base, terms.is_empty())
            && let ConstKind::Address(global, start) = self.b.module.constants[id].kind
        {
            let kind = ConstKind::Address(global, start.wrapping_add(offset));
            return self.b.const_operand(ty, kind);
        }
        self.emit(ty, Op::Address { base, offset, terms, inbounds })
    }

    /// A pointer as one into another address space.
    pub fn pointer_cast(&mut self, a: Operand, ty: TypeId) -> Operand {
        if let Operand::Const(id) = a {
            let kind = self.b.module.constants[id].kind.clone();
            if matches!(kind, ConstKind::Address(..) | ConstKind::Null) {
                return self.b.const_operand(ty, kind);
            }
        }
        self.emit(ty, Op::Convert(ConvertOp::PtrCast, a))
    }
}
