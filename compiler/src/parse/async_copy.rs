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
        Spv::GroupAsyncCopy => {
            if scope(body, inst, 0)? != Scope::Workgroup {
                return body
                    .unsupported(inst, "OpGroupAsyncCopy beside the work-group")
                    .map(|()| true);
            }
            let copy = Copy::read(body, inst)?;
            match body.signed_constant(copy.stride) {
                Some(1) => copy.whole(body),
                _ => copy.strided(body),
            }
            let event = body.arg(inst, 5)?;
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
    /// The distance between elements on the side of global memory, in elements, as a 64-bit integer.
    stride: Operand,
    /// The type as which an element is copied.
    element: TypeId,
    /// Whether the stride is the destination's.
    spreads: bool,
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
        Ok(Self { to, from, count, stride, element, spreads })
    }

    /// Size and alignment of an element, in bytes.
    fn layout(&self, body: &Body<'_, '_>) -> (u64, u64) {
        let types = &body.b.module.types;
        (types.size(self.element), types.align(self.element))
    }

    /// The first item copies all bytes.
    fn whole(&self, body: &mut Body<'_, '_>) {
        let (i64, bool) = (body.b.module.types.int(64), body.b.module.types.bool());
        let (size, align) = self.layout(body);
        let (size, zero) = (body.int(i64, size), body.int(i64, 0));
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
        let size = size as i64;
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
        let (from, to) = if self.spreads { (index, far) } else { (far, index) };
        let from = body.address(self.from, 0, vec![(from, size)], false);
        let to = body.address(self.to, 0, vec![(to, size)], false);
        let access = plain_access(align);
        let value = body.emit(self.element, Op::Load(from, access));
        body.emit_void(Op::Store(to, value, access));
        body.emit_to(after, Op::Binary(BinaryOp::Add, index, items));
        body.go_on(Terminator::Branch(head), next);
    }
}
