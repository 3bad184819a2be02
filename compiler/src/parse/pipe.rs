// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pipes: queues of packets of one size in global memory ([pipes](../../docs/pipes.md)).
//!
//! A pipe is a pointer to its header. Behind the header lies a *turn* for each slot, then the packets:
//!
//! | offset | content |
//! |---|---|
//! | 0 | number of slots, 32 bits |
//! | 4 | size of a packet in bytes, 32 bits |
//! | 8 | number of packets that writers have reserved since the start, 64 bits |
//! | 16 | number of packets that readers have reserved, 64 bits |
//! | 64 | turns, 32 bits each |
//! | the next multiple of 128 behind the turns | packets, one behind the other |
//!
//! Packet `p` lies in slot `p % slots`, in round `p / slots`. The slot's turn is `2 * round` while a writer may
//! take it, and `2 * round + 1` while a reader may. A commit adds one to the turns of its slots. So no item
//! waits: a read or a write succeeds or fails at once. Memory of zeros behind the first eight bytes is an
//! empty pipe. An id of a reservation is its first slot and, in the upper 32
//! bits, its number of packets; 0 is none.

use rspirv::spirv::Op as Spv;

use super::body::Body;
use super::builder::{Builder, Def};
use super::error::Result;
use super::memory::{plain_access, scope};
use super::words::Instruction;
use crate::ir::{
    AddressSpace, BinaryOp, BlockId, CompareOp, ConstKind, Global, Op, Operand, Ordering, Scope,
    Terminator, Type, TypeId, WorkItemQuery,
};

const SIZE: i64 = 4;
const TURNS: i64 = 64;
/// The packets begin at a multiple of this, the largest alignment of a type of OpenCL C.
const PACKETS_ALIGN: u64 = 128;

/// Defines an `OpConstantPipeStorage`: a variable with an empty pipe.
pub(super) fn storage(builder: &mut Builder<'_>, inst: &Instruction<'_>) -> Result<()> {
    let type_id = inst.result_type().unwrap_or_default();
    let ty = builder.ty(inst, type_id)?;
    if builder.module.types[ty] != Type::Pointer(AddressSpace::Global) {
        return Err(inst.error("has a type that is no storage of a pipe".into()));
    }
    let [size, slots] = [inst.arg(0)?, inst.arg(2)?];
    let turns_end = TURNS as u64 + 4 * u64::from(slots);
    let packets = u64::from(size) * u64::from(slots);
    let bytes = turns_end.next_multiple_of(PACKETS_ALIGN).saturating_add(packets);
    let module = &mut builder.module;
    let (i8, i32) = (module.types.int(8), module.types.int(32));
    let object = module.types.intern(Type::Array(i8, bytes - 8)).and_then(|rest| {
        let members = vec![i32, i32, rest];
        module.types.intern(Type::Struct { members, packed: true }).map(|whole| (rest, whole))
    });
    let (rest, whole) = object.ok_or_else(|| inst.error("is larger than 1 TiB".into()))?;
    let parts = vec![
        module.const_int(i32, slots.into()),
        module.const_int(i32, size.into()),
        module.constant(rest, ConstKind::Null),
    ];
    let init = Some(module.constant(whole, ConstKind::Composite(parts)));
    let name = builder.name(inst.result().unwrap_or_default());
    let loc = builder.loc(inst, None);
    let global = builder.module.globals.push(Global {
        name,
        space: AddressSpace::Global,
        ty: whole,
        size: bytes,
        align: PACKETS_ALIGN,
        init,
        exported: false,
        imported: false,
        loc,
    });
    let address = builder.module.constant(ty, ConstKind::Address(global, 0));
    builder.define(inst, Def::Const(address, type_id))
}

/// Translates an instruction on pipes. `false` if it is another one.
pub fn translate(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<bool> {
    let i64 = body.b.module.types.int(64);
    let result = match inst.op() {
        Spv::ReadPipe | Spv::WritePipe => {
            let pipe = Pipe::read(body, inst, 0, 2)?;
            let ours = packet(body, inst, 1)?;
            pipe.one(body, side(inst), ours)
        }
        Spv::ReservedReadPipe | Spv::ReservedWritePipe => {
            let pipe = Pipe::read(body, inst, 0, 4)?;
            let id = reserve_id(body, inst, 1)?;
            let index = number(body, inst, 2)?;
            let ours = packet(body, inst, 3)?;
            pipe.reserved(body, side(inst), id, index, ours)
        }
        Spv::ReserveReadPipePackets | Spv::ReserveWritePipePackets => {
            let pipe = Pipe::read(body, inst, 0, 2)?;
            let count = number(body, inst, 1)?;
            pipe.reserve(body, side(inst), count).1
        }
        Spv::GroupReserveReadPipePackets | Spv::GroupReserveWritePipePackets => {
            let scope = group_scope(body, inst)?;
            let pipe = Pipe::read(body, inst, 1, 3)?;
            let count = number(body, inst, 2)?;
            let before = body.current_block();
            let next = first_item(body, scope);
            let (_, id) = pipe.reserve(body, side(inst), count);
            let end = body.current_block();
            body.go_on(Terminator::Branch(next), next);
            let none = body.int(i64, 0);
            let id = body.emit(i64, Op::Phi(vec![(before, none), (end, id)]));
            let i32 = body.b.module.types.int(32);
            let zero = body.int(i32, 0);
            body.shuffle(scope, id, zero)
        }
        Spv::CommitReadPipe | Spv::CommitWritePipe => {
            let pipe = Pipe::read(body, inst, 0, 2)?;
            let id = reserve_id(body, inst, 1)?;
            pipe.commit(body, id);
            return Ok(true);
        }
        Spv::GroupCommitReadPipe | Spv::GroupCommitWritePipe => {
            let execution = group_scope(body, inst)?;
            let pipe = Pipe::read(body, inst, 1, 3)?;
            let id = reserve_id(body, inst, 2)?;
            // All items have read or written their packets.
            let ordering = Ordering::AcqRel;
            body.emit_void(Op::ControlBarrier { execution, memory: execution, ordering });
            let next = first_item(body, execution);
            pipe.commit(body, id);
            body.go_on(Terminator::Branch(next), next);
            return Ok(true);
        }
        Spv::IsValidReserveId => {
            let id = reserve_id(body, inst, 0)?;
            let (bool, none) = (body.b.module.types.bool(), body.int(i64, 0));
            body.emit(bool, Op::Compare(CompareOp::Ne, id, none))
        }
        Spv::GetNumPipePackets => {
            let pipe = Pipe::read(body, inst, 0, 1)?;
            let [written, read] = [Side::Write, Side::Read].map(|side| pipe.count(body, side));
            let held = body.emit(i64, Op::Binary(BinaryOp::Sub, written, read));
            let held = body.emit(i64, Op::Binary(BinaryOp::UMin, held, pipe.slots));
            resized(body, inst, held)?
        }
        Spv::GetMaxPipePackets => {
            let pipe = Pipe::read(body, inst, 0, 1)?;
            resized(body, inst, pipe.slots)?
        }
        Spv::CreatePipeFromPipeStorage => global_pointer(body, inst, 0)?,
        _ => return Ok(false),
    };
    if body.type_of(result) != body.result_type(inst)? {
        let found = body.b.module.types.text(body.result_type(inst)?).to_string();
        return Err(inst.error(format!("has a result of type {found}")));
    }
    body.set_result(inst, result)?;
    Ok(true)
}

/// Who reserves packets: a reader or a writer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Write,
    Read,
}

impl Side {
    /// The offset of the number of packets that this side has reserved.
    fn count(self) -> i64 {
        match self {
            Side::Write => 8,
            Side::Read => 16,
        }
    }
}

fn side(inst: &Instruction<'_>) -> Side {
    match inst.op() {
        Spv::ReadPipe
        | Spv::ReservedReadPipe
        | Spv::ReserveReadPipePackets
        | Spv::GroupReserveReadPipePackets => Side::Read,
        _ => Side::Write,
    }
}

fn resized(body: &mut Body<'_, '_>, inst: &Instruction<'_>, number: Operand) -> Result<Operand> {
    let ty = body.result_type(inst)?;
    match body.b.module.types[ty] {
        Type::Int(_) => Ok(body.resize_int(number, ty, false)),
        _ => Err(inst.error("has a result that is no integer".into())),
    }
}

/// An operand that is an integer, with 64 bits.
fn number(body: &mut Body<'_, '_>, inst: &Instruction<'_>, index: usize) -> Result<Operand> {
    let number = body.arg(inst, index)?;
    if !matches!(body.b.module.types[body.type_of(number)], Type::Int(_)) {
        return Err(inst.error(format!("has an operand {index} that is no integer")));
    }
    let i64 = body.b.module.types.int(64);
    Ok(body.resize_int(number, i64, false))
}

fn reserve_id(body: &Body<'_, '_>, inst: &Instruction<'_>, index: usize) -> Result<Operand> {
    let id = body.arg(inst, index)?;
    match body.b.module.types[body.type_of(id)] {
        Type::Int(64) => Ok(id),
        _ => Err(inst.error(format!("has an operand {index} that is no id of a reservation"))),
    }
}

/// A pipe, or its storage.
fn global_pointer(body: &Body<'_, '_>, inst: &Instruction<'_>, index: usize) -> Result<Operand> {
    let pipe = body.arg(inst, index)?;
    match body.b.module.types[body.type_of(pipe)] {
        Type::Pointer(AddressSpace::Global) => Ok(pipe),
        _ => Err(inst.error(format!("has an operand {index} that is no pipe"))),
    }
}

/// The application's packet.
fn packet(body: &Body<'_, '_>, inst: &Instruction<'_>, index: usize) -> Result<Operand> {
    let packet = body.arg(inst, index)?;
    match body.b.module.types[body.type_of(packet)] {
        Type::Pointer(_) => Ok(packet),
        _ => Err(inst.error(format!("has an operand {index} that is no pointer"))),
    }
}

fn group_scope(body: &Body<'_, '_>, inst: &Instruction<'_>) -> Result<Scope> {
    match scope(body, inst, 0)? {
        scope @ (Scope::Workgroup | Scope::Subgroup) => Ok(scope),
        scope => Err(inst.error(format!("is of the scope {}", scope.name()))),
    }
}

/// What follows is for the first item of a group alone. Returns the block for all behind it.
fn first_item(body: &mut Body<'_, '_>, scope: Scope) -> BlockId {
    let (i32, i64) = (body.b.module.types.int(32), body.b.module.types.int(64));
    let bool = body.b.module.types.bool();
    let (query, ty) = match scope {
        Scope::Subgroup => (WorkItemQuery::SubgroupLocalId, i32),
        _ => (WorkItemQuery::LocalLinearId, i64),
    };
    let item = body.emit(ty, Op::WorkItem(query, 0));
    let zero = body.int(ty, 0);
    let first = body.emit(bool, Op::Compare(CompareOp::Eq, item, zero));
    let [alone, next] = [body.new_block(), body.new_block()];
    body.go_on(Terminator::CondBranch(first, alone, next), alone);
    next
}

/// A pipe that an instruction works on.
struct Pipe {
    /// The address of its header.
    header: Operand,
    /// The number of its slots, of 64 bits: 0 if its packets have another size than the instruction's.
    slots: Operand,
    /// The size of a packet in bytes.
    size: u64,
    /// The address of its packets.
    packets: Operand,
}

impl Pipe {
    /// The pipe that is an instruction's operand `pipe`; operand `size` is the size of its packets.
    fn read(
        body: &mut Body<'_, '_>,
        inst: &Instruction<'_>,
        pipe: usize,
        size: usize,
    ) -> Result<Self> {
        let header = global_pointer(body, inst, pipe)?;
        let size = body.b.int(inst, inst.arg(size)?)?;
        let (i32, i64) = (body.b.module.types.int(32), body.b.module.types.int(64));
        let bool = body.b.module.types.bool();
        let slots = body.emit(i32, Op::Load(header, plain_access(4)));
        let at = body.address(header, SIZE, Vec::new(), false);
        let found = body.emit(i32, Op::Load(at, plain_access(4)));
        let wanted = body.int(i32, size);
        let fits = body.emit(bool, Op::Compare(CompareOp::Eq, found, wanted));
        let none = body.int(i32, 0);
        let slots = body.emit(i32, Op::Select(fits, slots, none));
        let slots = body.resize_int(slots, i64, false);
        let four = body.int(i64, 4);
        let turns = body.emit(i64, Op::Binary(BinaryOp::Mul, slots, four));
        let up = body.int(i64, TURNS as u64 + PACKETS_ALIGN - 1);
        let end = body.emit(i64, Op::Binary(BinaryOp::Add, turns, up));
        let mask = body.int(i64, !(PACKETS_ALIGN - 1));
        let start = body.emit(i64, Op::Binary(BinaryOp::And, end, mask));
        let packets = body.address(header, 0, vec![(start, 1)], false);
        Ok(Self { header, slots, size, packets })
    }

    /// The number of packets that one side has reserved since the start.
    fn count(&self, body: &mut Body<'_, '_>, side: Side) -> Operand {
        let i64 = body.b.module.types.int(64);
        let at = body.address(self.header, side.count(), Vec::new(), false);
        body.emit(i64, Op::AtomicLoad(at, Ordering::Relaxed, Scope::Device))
    }

    fn turn(&self, body: &mut Body<'_, '_>, slot: Operand) -> Operand {
        body.address(self.header, TURNS, vec![(slot, 4)], false)
    }

    /// The slot so many behind another one.
    fn slot(&self, body: &mut Body<'_, '_>, first: Operand, index: Operand) -> Operand {
        let i64 = body.b.module.types.int(64);
        let at = body.emit(i64, Op::Binary(BinaryOp::Add, first, index));
        body.emit(i64, Op::Binary(BinaryOp::URem, at, self.slots))
    }

    /// Reserves packets. Returns the first slot, and the id of the reservation: 0 if there are not so many.
    fn reserve(&self, body: &mut Body<'_, '_>, side: Side, count: Operand) -> (Operand, Operand) {
        use BinaryOp::{Add, Mul, Or, Shl, Sub, UDiv, URem};
        let (i32, i64) = (body.b.module.types.int(32), body.b.module.types.int(64));
        let bool = body.b.module.types.bool();
        let [zero, one, two] = [0, 1, 2].map(|number| body.int(i64, number));
        let [again, look, step, take, moved, done] = std::array::from_fn(|_| body.new_block());

        let last = body.emit(i64, Op::Binary(Sub, count, one));
        let fits = body.emit(bool, Op::Compare(CompareOp::ULt, last, self.slots));
        let before = body.current_block();
        body.go_on(Terminator::CondBranch(fits, again, done), again);

        let start = self.count(body, side);
        body.go_on(Terminator::Branch(look), look);

        // All of these slots have to be this side's in their round.
        let (index, next) = (body.f.new_value(i64), body.f.new_value(i64));
        body.emit_to(index, Op::Phi(vec![(again, zero), (step, Operand::Value(next))]));
        let index = Operand::Value(index);
        let at = body.emit(i64, Op::Binary(Add, start, index));
        let slot = body.emit(i64, Op::Binary(URem, at, self.slots));
        let round = body.emit(i64, Op::Binary(UDiv, at, self.slots));
        let turn = self.turn(body, slot);
        let found = body.emit(i32, Op::AtomicLoad(turn, Ordering::Acquire, Scope::Device));
        let wanted = body.emit(i64, Op::Binary(Mul, round, two));
        let wanted = match side {
            Side::Write => wanted,
            Side::Read => body.emit(i64, Op::Binary(Add, wanted, one)),
        };
        let wanted = body.resize_int(wanted, i32, false);
        let ready = body.emit(bool, Op::Compare(CompareOp::Eq, found, wanted));
        body.go_on(Terminator::CondBranch(ready, step, moved), step);

        body.emit_to(next, Op::Binary(Add, index, one));
        let more = Op::Compare(CompareOp::ULt, Operand::Value(next), count);
        let more = body.emit(bool, more);
        body.go_on(Terminator::CondBranch(more, look, take), take);

        let after = body.emit(i64, Op::Binary(Add, start, count));
        let at = body.address(self.header, side.count(), Vec::new(), false);
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        let old = body.emit(
            i64,
            Op::AtomicCompareExchange {
                ptr: at,
                expected: start,
                value: after,
                success,
                failure,
                scope: Scope::Device,
            },
        );
        let won = body.emit(bool, Op::Compare(CompareOp::Eq, old, start));
        let first = body.emit(i64, Op::Binary(URem, start, self.slots));
        let shift = body.int(i64, 32);
        let length = body.emit(i64, Op::Binary(Shl, count, shift));
        let id = body.emit(i64, Op::Binary(Or, length, first));
        body.go_on(Terminator::CondBranch(won, done, again), moved);

        // If others have reserved packets meanwhile, the slots were those of another place.
        let now = self.count(body, side);
        let other = body.emit(bool, Op::Compare(CompareOp::Ne, now, start));
        body.go_on(Terminator::CondBranch(other, again, done), done);

        let arms = |taken| vec![(before, zero), (take, taken), (moved, zero)];
        let first = body.emit(i64, Op::Phi(arms(first)));
        (first, body.emit(i64, Op::Phi(arms(id))))
    }

    /// Gives the slots of a reservation to the other side.
    fn commit(&self, body: &mut Body<'_, '_>, id: Operand) {
        let i64 = body.b.module.types.int(64);
        let bool = body.b.module.types.bool();
        let (first, count) = parts(body, id);
        let zero = body.int(i64, 0);
        let before = body.current_block();
        let [head, step, next] = std::array::from_fn(|_| body.new_block());
        body.go_on(Terminator::Branch(head), head);
        let (index, after) = (body.f.new_value(i64), body.f.new_value(i64));
        body.emit_to(index, Op::Phi(vec![(before, zero), (step, Operand::Value(after))]));
        let index = Operand::Value(index);
        let more = body.emit(bool, Op::Compare(CompareOp::ULt, index, count));
        body.go_on(Terminator::CondBranch(more, step, next), step);
        let slot = self.slot(body, first, index);
        self.pass_on(body, slot);
        let one = body.int(i64, 1);
        body.emit_to(after, Op::Binary(BinaryOp::Add, index, one));
        body.go_on(Terminator::Branch(head), next);
    }

    /// Gives one slot to the other side.
    fn pass_on(&self, body: &mut Body<'_, '_>, slot: Operand) {
        let i32 = body.b.module.types.int(32);
        let one = body.int(i32, 1);
        let turn = self.turn(body, slot);
        // Only the item with the reservation writes this turn.
        let old = body.emit(i32, Op::AtomicLoad(turn, Ordering::Relaxed, Scope::Device));
        let new = body.emit(i32, Op::Binary(BinaryOp::Add, old, one));
        body.emit_void(Op::AtomicStore(turn, new, Ordering::Release, Scope::Device));
    }

    /// Copies a packet between a slot and the application's memory.
    fn copy(&self, body: &mut Body<'_, '_>, side: Side, slot: Operand, ours: Operand) {
        let i64 = body.b.module.types.int(64);
        let theirs = body.address(self.packets, 0, vec![(slot, self.size as i64)], false);
        let size = body.int(i64, self.size);
        let (to, from) = match side {
            Side::Write => (theirs, ours),
            Side::Read => (ours, theirs),
        };
        body.emit_void(Op::Copy(to, from, size, plain_access(1)));
    }

    /// Reads or writes one packet. The result is 0, or -1 if there is none.
    fn one(&self, body: &mut Body<'_, '_>, side: Side, ours: Operand) -> Operand {
        let i64 = body.b.module.types.int(64);
        let [zero, one] = [0, 1].map(|number| body.int(i64, number));
        let bool = body.b.module.types.bool();
        let (slot, id) = self.reserve(body, side, one);
        let got = body.emit(bool, Op::Compare(CompareOp::Ne, id, zero));
        self.if_so(body, got, |body| {
            self.copy(body, side, slot, ours);
            self.pass_on(body, slot);
        })
    }

    /// Reads or writes packet `index` of a reservation. The result is 0, or -1 if it has no such packet.
    fn reserved(
        &self,
        body: &mut Body<'_, '_>,
        side: Side,
        id: Operand,
        index: Operand,
        ours: Operand,
    ) -> Operand {
        let bool = body.b.module.types.bool();
        let (first, count) = parts(body, id);
        let within = body.emit(bool, Op::Compare(CompareOp::ULt, index, count));
        self.if_so(body, within, |body| {
            let slot = self.slot(body, first, index);
            self.copy(body, side, slot, ours);
        })
    }

    /// Does something under a condition. The result is 0 if it holds, else -1, as 32 bits.
    fn if_so(
        &self,
        body: &mut Body<'_, '_>,
        condition: Operand,
        what: impl FnOnce(&mut Body<'_, '_>),
    ) -> Operand {
        let i32 = body.b.module.types.int(32);
        let [good, bad] = [0, u64::from(u32::MAX)].map(|number| body.int(i32, number));
        let [work, next] = [body.new_block(), body.new_block()];
        body.go_on(Terminator::CondBranch(condition, work, next), work);
        what(body);
        body.go_on(Terminator::Branch(next), next);
        body.emit(i32, Op::Select(condition, good, bad))
    }
}

/// The first slot and the number of packets of a reservation.
fn parts(body: &mut Body<'_, '_>, id: Operand) -> (Operand, Operand) {
    let i64: TypeId = body.b.module.types.int(64);
    let (mask, shift) = (body.int(i64, u64::from(u32::MAX)), body.int(i64, 32));
    let first = body.emit(i64, Op::Binary(BinaryOp::And, id, mask));
    (first, body.emit(i64, Op::Binary(BinaryOp::LShr, id, shift)))
}
