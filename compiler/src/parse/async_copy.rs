// SPDX-License-Identifier: MIT OR Apache-2.0
//! Asynchronous copies between global and local memory.
//!
//! They need not be asynchronous: a copy is executed where it is called, and waiting for it is a
//! barrier of the work-group. All items call a copy with the same arguments. The first item executes a
//! plain copy; of a copy with a stride each item executes its share. An event carries no information.

use rspirv::spirv::Op as Spv;

use super::body::Body;
use super::error::Result;
use super::memory::{plain_access, scope};
use super::words::Instruction;
use crate::ir::{
    AddressSpace, BinaryOp, CompareOp, Op, Operand, Ordering, Scope, Terminator, Type, TypeId,
    WorkItemQuery,
};

/// Translates a copy or a wait. `false` if it is another instruction.
pub fn translate(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<bool> {
    match inst.op() {
        Spv::GroupAsyncCopy | Spv::UntypedGroupAsyncCopyKHR => {
            if scope(body, inst, 0)? != Scope::Workgroup {
                let what = format!("{} beside the work-group", inst.grammar.name);
                return body.unsupported(inst, &what).map(|()| true);
            }
            let (copy, event) = match inst.op() {
                Spv::GroupAsyncCopy => (Copy::read(body, inst)?, body.arg(inst, 5)?),
                _ => (Copy::read_untyped(body, inst)?, body.arg(inst, 6)?),
            };
            if copy.is_dense(body) {
                copy.whole(body)
            } else {
                copy.strided(body)
            }
            body.set_result(inst, event)?;
        }
        Spv::GroupWaitEvents => {
            let execution = scope(body, inst, 0)?;
            let ordering = Ordering::SeqCst;
            body.emit_void(Op::ControlBarrier { execution, memory: execution, ordering });
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// The operands of a copy.
struct Copy {
    to: Operand,
    from: Operand,
    /// The number of elements, as a 64-bit integer.
    count: Operand,
    /// The distance between elements on the side of global memory, as a 64-bit integer: in elements, or in bytes
    /// if their type is not known.
    stride: Operand,
    element: Element,
    /// Whether the stride is the destination's.
    spreads: bool,
}

/// What is copied.
#[derive(Clone, Copy)]
enum Element {
    /// A value of a type.
    Typed(TypeId),
    /// So many bytes, a 64-bit integer.
    Bytes(Operand),
}

impl Copy {
    fn read(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<Self> {
        let i64 = body.b.module.types.int(64);
        let (to, from) = (body.arg(inst, 1)?, body.arg(inst, 2)?);
        let (_, pointer) = body.value(inst, inst.arg(1)?)?;
        let element = body.pointee(inst, pointer)?;
        if body.b.module.types.layout(element).is_none() {
            let ty = body.b.module.types.text(element);
            return Err(inst.error(format!("copies elements of type {ty}")));
        }
        let (count, stride) = (body.arg(inst, 3)?, body.arg(inst, 4)?);
        let [count, stride] = [count, stride].map(|n| body.resize_int(n, i64, false));
        let spreads = body.b.module.types[body.type_of(to)] != Type::Pointer(AddressSpace::Local);
        let element = Element::Typed(element);
        Ok(Self { to, from, count, stride, element, spreads })
    }

    /// The copy of SPV_KHR_untyped_pointers, which counts bytes.
    fn read_untyped(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<Self> {
        let i64 = body.b.module.types.int(64);
        let mut spaces = Vec::new();
        for index in [1, 2] {
            let (_, pointer) = body.value(inst, inst.arg(index)?)?;
            if body.known_pointee(inst, pointer)?.is_some() {
                return Err(inst.error("has a pointer that is not untyped".into()));
            }
            spaces.push(body.b.module.types[body.type_of(body.arg(inst, index)?)].clone());
        }
        let [local, global] = [AddressSpace::Local, AddressSpace::Global].map(Type::Pointer);
        let spreads = match spaces.as_slice() {
            [to, from] if (to, from) == (&global, &local) => true,
            [to, from] if (to, from) == (&local, &global) => false,
            _ => return Err(inst.error("is not between global and local memory".into())),
        };
        let mut numbers = Vec::new();
        for index in [3, 4, 5] {
            let number = body.arg(inst, index)?;
            if !matches!(body.b.module.types[body.type_of(number)], Type::Int(_)) {
                return Err(inst.error(format!("has an operand {index} that is not an integer")));
            }
            numbers.push(body.resize_int(number, i64, false));
        }
        Ok(Self {
            to: body.arg(inst, 1)?,
            from: body.arg(inst, 2)?,
            count: numbers[1],
            stride: numbers[2],
            element: Element::Bytes(numbers[0]),
            spreads,
        })
    }

    /// Whether the elements are known to lie side by side.
    fn is_dense(&self, body: &Body<'_, '_>) -> bool {
        let stride = body.signed_constant(self.stride);
        match self.element {
            Element::Typed(_) => stride == Some(1),
            Element::Bytes(size) => stride.is_some() && stride == body.signed_constant(size),
        }
    }

    /// Size of an element, as a 64-bit integer, and its alignment, both in bytes.
    fn layout(&self, body: &mut Body<'_, '_>) -> (Operand, u64) {
        match self.element {
            Element::Typed(ty) => {
                let types = &mut body.b.module.types;
                let (i64, size, align) = (types.int(64), types.size(ty), types.align(ty));
                (body.int(i64, size), align)
            }
            Element::Bytes(size) => (size, 1),
        }
    }

    /// The first item copies all bytes.
    fn whole(&self, body: &mut Body<'_, '_>) {
        let (i64, bool) = (body.b.module.types.int(64), body.b.module.types.bool());
        let (size, align) = self.layout(body);
        let zero = body.int(i64, 0);
        let bytes = body.emit(i64, Op::Binary(BinaryOp::Mul, self.count, size));
        let item = body.emit(i64, Op::WorkItem(WorkItemQuery::LocalLinearId, 0));
        let first = body.emit(bool, Op::Compare(CompareOp::Eq, item, zero));
        let [copy, next] = [body.new_block(), body.new_block()];
        body.go_on(Terminator::CondBranch(first, copy, next), copy);
        body.emit_void(Op::Copy(self.to, self.from, bytes, plain_access(align)));
        body.go_on(Terminator::Branch(next), next);
    }

    /// Each item copies the elements from its number on, with as many between as the group has items.
    fn strided(&self, body: &mut Body<'_, '_>) {
        let (i64, bool) = (body.b.module.types.int(64), body.b.module.types.bool());
        let (size, align) = self.layout(body);
        let start = body.emit(i64, Op::WorkItem(WorkItemQuery::LocalLinearId, 0));
        let sizes = [0, 1, 2].map(|d| body.emit(i64, Op::WorkItem(WorkItemQuery::LocalSize, d)));
        let plane = body.emit(i64, Op::Binary(BinaryOp::Mul, sizes[0], sizes[1]));
        let items = body.emit(i64, Op::Binary(BinaryOp::Mul, plane, sizes[2]));
        let before = body.current_block();
        let [head, copy, next] = std::array::from_fn(|_| body.new_block());
        body.go_on(Terminator::Branch(head), head);
        let index = body.f.new_value(i64);
        let after = body.f.new_value(i64);
        let arms = vec![(before, start), (copy, Operand::Value(after))];
        body.emit_to(index, Op::Phi(arms));
        let index = Operand::Value(index);
        let more = body.emit(bool, Op::Compare(CompareOp::ULt, index, self.count));
        body.go_on(Terminator::CondBranch(more, copy, next), copy);
        let far = body.emit(i64, Op::Binary(BinaryOp::Mul, index, self.stride));
        let (near, unit) = match self.element {
            Element::Typed(ty) => (index, body.b.module.types.size(ty) as i64),
            Element::Bytes(_) => (body.emit(i64, Op::Binary(BinaryOp::Mul, index, size)), 1),
        };
        let (from, to) = if self.spreads { (near, far) } else { (far, near) };
        let from = body.address(self.from, 0, vec![(from, unit)], false);
        let to = body.address(self.to, 0, vec![(to, unit)], false);
        let access = plain_access(align);
        match self.element {
            Element::Typed(ty) => {
                let value = body.emit(ty, Op::Load(from, access));
                body.emit_void(Op::Store(to, value, access));
            }
            Element::Bytes(_) => body.emit_void(Op::Copy(to, from, size, access)),
        }
        body.emit_to(after, Op::Binary(BinaryOp::Add, index, items));
        body.go_on(Terminator::Branch(head), next);
    }
}
