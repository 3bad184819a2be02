// SPDX-License-Identifier: MIT OR Apache-2.0
//! One work-item: a stack of calls that runs until a barrier or its end.

use super::group::{self, Offers};
use super::image;
use super::launch::{Arguments, Group, InterpError, Launch, LocalLayout};
use super::memory::{Memory, MemoryError};
use super::trace::{Access, Event};
use super::value::{self, AccessError, Value};
use super::{ops, printf};
use crate::ir::{
    AtomicOp, BinaryOp, BlockId, ENTRY, Function, FunctionId, Id, Inst, Kernel, Loc, Module, Op,
    Operand, Ordering, Scalar, Scope, Terminator, Type, TypeId, ValueId, WorkItemQuery, eval,
};
use crate::regions;

/// The maximum depth of calls. Checked modules have no recursion and stay far below.
const MAX_CALLS: usize = 1024;

/// Whether a work-item can continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It can continue.
    Ready,
    /// It waits for the items of a scope.
    Waits(Scope),
    /// It waits at a named barrier, by its address.
    WaitsAt(u64),
    /// It has returned.
    Finished,
}

/// The identity of a work-item.
#[derive(Clone, Copy)]
pub struct Place<'m> {
    /// The launch.
    pub launch: &'m Launch,
    /// The group.
    pub group: Group,
    /// The id within the group.
    pub local: [u64; 3],
    /// Work-items of a full sub-group.
    pub subgroup_size: u32,
}

/// One call of a function.
struct Frame<'m> {
    function: &'m Function,
    values: Vec<Option<Value>>,
    block: BlockId,
    /// The block before, for phis.
    from: BlockId,
    /// The next instruction of the block.
    next: usize,
    /// The private stack before the call.
    mark: usize,
    /// The value of the caller that takes the result.
    result: Option<ValueId>,
}

/// A work-item.
pub struct Item<'m> {
    /// Whether it can continue.
    pub status: Status,
    module: &'m Module,
    place: Place<'m>,
    locals: &'m LocalLayout,
    /// Its number within the group, by which its private memory is found.
    number: usize,
    frames: Vec<Frame<'m>>,
    /// Its offer to the items that it waits for.
    pub offer: Option<Value>,
    /// Its place in the scope for which it has just waited, and the offers made there.
    pub offers: Option<(usize, Offers)>,
}

/// The outcome of an instruction.
enum Step {
    /// The next instruction.
    Next,
    /// A place to wait for the items of a scope.
    Wait(Scope),
    /// The item waits at a named barrier.
    WaitAt(u64),
    /// A call, whose frame is on the stack now.
    Call,
}

/// The reason why an instruction failed, without its place.
enum Fault {
    Access(AccessError),
    StepLimit,
}

impl From<AccessError> for Fault {
    fn from(error: AccessError) -> Self {
        Fault::Access(error)
    }
}

impl From<MemoryError> for Fault {
    fn from(error: MemoryError) -> Self {
        Fault::Access(AccessError::Memory(error))
    }
}

impl From<String> for Fault {
    fn from(what: String) -> Self {
        Fault::Access(AccessError::Value(what))
    }
}

impl<'m> Item<'m> {
    /// A work-item at the start of a kernel.
    pub fn new(
        module: &'m Module,
        kernel: &'m Kernel,
        place: Place<'m>,
        locals: &'m LocalLayout,
        number: usize,
        arguments: &Arguments,
        memory: &mut Memory,
    ) -> Result<Self, InterpError> {
        let mut item = Self {
            status: Status::Ready,
            module,
            place,
            locals,
            number,
            frames: Vec::new(),
            offer: None,
            offers: None,
        };
        let mut args = Vec::with_capacity(kernel.args.len());
        memory.enter(number);
        let start = |item: &mut Self, memory: &mut Memory, args: &mut Vec<Value>| {
            memory.new_item()?;
            for (arg, bytes) in kernel.args.iter().zip(&arguments.values) {
                args.push(if arg.by_reference {
                    let address = memory.push_private(number, arg.size, arg.align)?;
                    memory.write(address, bytes)?;
                    Value::Bits(address)
                } else {
                    value::from_bytes(module, arg.ty, bytes)?
                });
            }
            item.call(kernel.function, std::mem::take(args), None, memory)
        };
        start(&mut item, memory, &mut args)
            .map_err(|fault| located(fault, &kernel.name, kernel.loc))?;
        Ok(item)
    }

    /// Runs until a barrier or the end.
    pub fn run(&mut self, memory: &mut Memory, steps: &mut u64) -> Result<(), InterpError> {
        memory.enter(self.number);
        while self.status == Status::Ready {
            let Some(frame) = self.frames.last() else {
                self.status = Status::Finished;
                break;
            };
            let block = &frame.function.blocks[frame.block];
            let (name, inst) = (&frame.function.name, block.insts.get(frame.next));
            let loc = inst.map_or(block.loc, |inst| inst.loc);
            let stepped = self.step(inst, &block.terminator, memory, steps);
            match stepped.map_err(|fault| located(fault, name, loc))? {
                Step::Next | Step::Call => {}
                Step::Wait(scope) => self.status = Status::Waits(scope),
                Step::WaitAt(barrier) => self.status = Status::WaitsAt(barrier),
            }
        }
        Ok(())
    }

    fn step(
        &mut self,
        inst: Option<&'m Inst>,
        terminator: &'m Terminator,
        memory: &mut Memory,
        steps: &mut u64,
    ) -> Result<Step, Fault> {
        *steps = steps.checked_sub(1).ok_or(Fault::StepLimit)?;
        let Some(inst) = inst else {
            self.terminate(terminator, memory)?;
            return Ok(Step::Next);
        };
        if let Op::Phi(_) = inst.op {
            self.phis(memory)?;
            return Ok(Step::Next);
        }
        if let Some(frame) = self.frames.last_mut() {
            frame.next += 1;
        }
        self.instruction(inst, memory)
    }

    /// Its position: the function, block and instruction of each open call.
    pub fn position(&self) -> impl Iterator<Item = (&'m Function, BlockId, usize)> {
        self.frames.iter().map(|frame| (frame.function, frame.block, frame.next))
    }

    fn frame(&self) -> Result<&Frame<'m>, Fault> {
        self.frames.last().ok_or_else(|| "an instruction outside of a call".to_owned().into())
    }

    fn get(&self, operand: Operand, memory: &Memory) -> Result<Value, Fault> {
        match operand {
            Operand::Value(id) => {
                let value = self.frame()?.values.get(id.index()).and_then(Option::clone);
                value.ok_or_else(|| format!("a use of {id}, which has no value yet").into())
            }
            Operand::Const(id) => Ok(value::constant(self.module, id, self.locals, memory)?),
        }
    }

    fn type_of(&self, operand: Operand) -> Result<TypeId, Fault> {
        Ok(self.module.operand_type(self.frame()?.function, operand))
    }

    fn set(&mut self, id: Option<ValueId>, value: Value) {
        if let (Some(frame), Some(id)) = (self.frames.last_mut(), id)
            && let Some(slot) = frame.values.get_mut(id.index())
        {
            *slot = Some(value);
        }
    }

    fn call(
        &mut self,
        callee: FunctionId,
        args: Vec<Value>,
        result: Option<ValueId>,
        memory: &mut Memory,
    ) -> Result<(), Fault> {
        let function = self
            .module
            .functions
            .get(callee)
            .filter(|function| !function.blocks.is_empty())
            .ok_or_else(|| "a call of a function without a body".to_owned())?;
        if self.frames.len() >= MAX_CALLS {
            return Err("more calls within each other".to_owned().into());
        }
        let mark = memory.private_mark(self.number);
        let mut values = vec![None; function.values.len()];
        for (&param, arg) in function.params.iter().zip(args) {
            values[param.index()] = Some(arg);
        }
        for variable in &function.variables {
            let address = memory.push_private(self.number, variable.size, variable.align)?;
            if let Some(init) = variable.init {
                let init = value::constant(self.module, init, self.locals, memory)?;
                value::store(self.module, memory, variable.ty, address, &init)?;
            }
            values[variable.address.index()] = Some(Value::Bits(address));
        }
        let frame = Frame { function, values, block: ENTRY, from: ENTRY, next: 0, mark, result };
        self.frames.push(frame);
        Ok(())
    }

    /// Evaluates all phis of the block at once, so that none sees the new value of another.
    fn phis(&mut self, memory: &Memory) -> Result<(), Fault> {
        let frame = self.frame()?;
        let from = frame.from;
        let block = &frame.function.blocks[frame.block];
        let mut values = Vec::new();
        for inst in block.phis() {
            let Op::Phi(incoming) = &inst.op else { continue };
            let arm = incoming.iter().find(|(block, _)| *block == from);
            let (_, operand) =
                arm.ok_or_else(|| format!("a phi that says nothing about {from}"))?;
            values.push((inst.result, self.get(*operand, memory)?));
        }
        let count = values.len();
        for (result, value) in values {
            self.set(result, value);
        }
        if let Some(frame) = self.frames.last_mut() {
            frame.next = count;
        }
        Ok(())
    }

    fn go_to(&mut self, block: BlockId) {
        if let Some(frame) = self.frames.last_mut() {
            frame.from = frame.block;
            frame.block = block;
            frame.next = 0;
        }
    }

    fn terminate(&mut self, terminator: &Terminator, memory: &mut Memory) -> Result<(), Fault> {
        match terminator {
            Terminator::Branch(next) => self.go_to(*next),
            Terminator::CondBranch(condition, yes, no) => {
                let taken = self.get(*condition, memory)?.bits() != 0;
                self.go_to(if taken { *yes } else { *no });
            }
            Terminator::Switch { value, default, cases } => {
                let value = self.get(*value, memory)?.bits();
                let case = cases.iter().find(|(case, _)| *case == value);
                self.go_to(case.map_or(*default, |&(_, block)| block));
            }
            Terminator::Return(operand) => {
                let value = match operand {
                    Some(operand) => Some(self.get(*operand, memory)?),
                    None => None,
                };
                if let Some(frame) = self.frames.pop() {
                    memory.pop_private(self.number, frame.mark);
                    if let Some(value) = value {
                        self.set(frame.result, value);
                    }
                }
                if self.frames.is_empty() {
                    self.status = Status::Finished;
                }
            }
            Terminator::Unreachable => return Err("OpUnreachable".to_owned().into()),
        }
        Ok(())
    }

    /// Its number within the group.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Notes what an instruction is about to do with memory that others share.
    fn trace(&self, inst: &Inst, memory: &mut Memory) -> Result<(), Fault> {
        let word = inst.loc.word;
        let of = |ty| match &self.module.types[ty] {
            Type::Vector(element, n) => self.module.types.size(*element) * u64::from(*n),
            _ => self.module.types.size(ty),
        };
        let result = match inst.result {
            Some(id) => of(self.frame()?.function.values[id].ty),
            None => 0,
        };
        let size = |operand| self.type_of(operand).map(of);
        type Order = Option<(Ordering, Scope)>;
        let mut all: Vec<(Operand, u64, bool, bool, Order)> = Vec::new();
        match &inst.op {
            Op::Load(at, _) => {
                all.push((*at, result, true, false, None));
            }
            Op::AtomicLoad(at, ordering, scope) => {
                let order = Some((*ordering, *scope));
                all.push((*at, result, true, false, order));
            }
            Op::Store(at, value, _) => all.push((*at, size(*value)?, false, true, None)),
            Op::AtomicStore(at, value, ordering, scope) => {
                all.push((*at, size(*value)?, false, true, Some((*ordering, *scope))));
            }
            Op::AtomicRmw(_, at, value, ordering, scope)
            | Op::AtomicCompareExchange { ptr: at, value, success: ordering, scope, .. } => {
                all.push((*at, size(*value)?, true, true, Some((*ordering, *scope))));
            }
            Op::Copy(to, from, bytes, _) => {
                let bytes = self.get(*bytes, memory)?.bits();
                all.push((*from, bytes, true, false, None));
                all.push((*to, bytes, false, true, None));
            }
            &Op::Fence(scope, ordering) => {
                let item = self.number as u32;
                memory.note(|group| Event::Fence { group, item, scope, ordering });
            }
            _ => {}
        }
        for (at, size, reads, writes, atomic) in all {
            let (address, item) = (self.get(at, memory)?.bits(), self.number as u32);
            let (private, local) = Memory::is_private_or_local(address);
            if !private {
                memory.note(|group| {
                    let it =
                        Access { group, item, address, local, size, reads, writes, atomic, word };
                    Event::Access(it)
                });
            }
        }
        Ok(())
    }

    fn instruction(&mut self, inst: &Inst, memory: &mut Memory) -> Result<Step, Fault> {
        let module = self.module;
        if memory.is_traced() {
            self.trace(inst, memory)?;
        }
        let result_ty = match inst.result {
            Some(id) => Some(self.frame()?.function.values[id].ty),
            None => None,
        };
        let ty = || result_ty.ok_or_else(|| "an instruction without its result".to_owned());
        let address = |item: &Self, operand: &Operand, memory: &Memory| {
            item.get(*operand, memory).map(|value| value.bits())
        };
        let value = match &inst.op {
            Op::Load(ptr, _) | Op::AtomicLoad(ptr, ..) => {
                value::load(module, memory, ty()?, address(self, ptr, memory)?)?
            }
            Op::Store(ptr, value, _) | Op::AtomicStore(ptr, value, ..) => {
                let (at, ty) = (address(self, ptr, memory)?, self.type_of(*value)?);
                let value = self.get(*value, memory)?;
                value::store(module, memory, ty, at, &value)?;
                return Ok(Step::Next);
            }
            Op::Copy(to, from, size, _) => {
                let (to, from) = (address(self, to, memory)?, address(self, from, memory)?);
                memory.copy(to, from, self.get(*size, memory)?.bits())?;
                return Ok(Step::Next);
            }
            Op::AtomicRmw(op, ptr, operand, ..) => {
                let (at, ty) = (address(self, ptr, memory)?, ty()?);
                let old = value::load(module, memory, ty, at)?;
                let operand = self.get(*operand, memory)?;
                let new = rmw(module, *op, ty, old.bits(), operand.bits())?;
                value::store(module, memory, ty, at, &Value::Bits(new))?;
                old
            }
            Op::AtomicCompareExchange { ptr, expected, value, .. } => {
                let (at, ty) = (address(self, ptr, memory)?, ty()?);
                let old = value::load(module, memory, ty, at)?;
                if old == self.get(*expected, memory)? {
                    let new = self.get(*value, memory)?;
                    value::store(module, memory, ty, at, &new)?;
                }
                old
            }
            Op::Address { base, offset, terms, .. } => {
                let mut at = address(self, base, memory)?.wrapping_add(*offset as u64);
                for &(index, stride) in terms {
                    let bits = module.types.scalar_bits(self.type_of(index)?).clamp(1, 64);
                    let index = self.get(index, memory)?.bits();
                    let index = ((index << (64 - bits)) as i64) >> (64 - bits);
                    at = at.wrapping_add(index.wrapping_mul(stride) as u64);
                }
                Value::Bits(at)
            }
            Op::Printf(format, args, bytes) => {
                let (format, args) = (address(self, format, memory)?, address(self, args, memory)?);
                printf::print(memory, format, args, *bytes)?;
                Value::Bits(0)
            }
            Op::WorkItem(query, dimension) => {
                Value::Bits(self.place.answer(*query, usize::from(*dimension).min(2)))
            }
            Op::ControlBarrier { .. } => return Ok(stop(&inst.op)),
            Op::NamedBarrier(at, ..) => return Ok(Step::WaitAt(address(self, at, memory)?)),
            Op::GridBarrier if self.place.launch.num_groups() == [1; 3] => return Ok(Step::Next),
            Op::GridBarrier => return Err("a barrier of several groups".to_owned().into()),
            Op::Offer(_, value) => {
                self.offer = Some(self.get(*value, memory)?);
                return Ok(stop(&inst.op));
            }
            Op::Collect(op, _, index) => {
                let index = match index {
                    Some(index) => Some(self.get(*index, memory)?),
                    None => None,
                };
                let missing = || "a group operation that nothing was offered to".to_owned();
                let (own, offers) = self.offers.take().ok_or_else(missing)?;
                group::collect(module, *op, ty()?, own, &offers, index)?
            }
            Op::Image(op, args) => {
                let mut values = Vec::with_capacity(args.len());
                for &arg in args {
                    values.push(self.get(arg, memory)?);
                }
                image::apply(*op, &values, memory)?
            }
            Op::Fence(..) | Op::Assume(_) => return Ok(Step::Next),
            Op::Call(callee, args) => {
                let mut values = Vec::with_capacity(args.len());
                for &arg in args {
                    values.push(self.get(arg, memory)?);
                }
                self.call(*callee, values, inst.result, memory)?;
                return Ok(Step::Call);
            }
            op => {
                let mut args = Vec::new();
                let mut missing = None;
                op.for_each_operand(|operand| {
                    let arg = self
                        .get(operand, memory)
                        .and_then(|value| self.type_of(operand).map(|ty| (ty, value)));
                    match arg {
                        Ok(arg) => args.push(arg),
                        Err(fault) => missing = Some(fault),
                    }
                });
                if let Some(fault) = missing {
                    return Err(fault);
                }
                ops::apply(module, op, ty()?, &args)?
            }
        };
        self.set(inst.result, value);
        Ok(Step::Next)
    }
}

impl Place<'_> {
    fn answer(&self, query: WorkItemQuery, d: usize) -> u64 {
        let Place { launch, group, local, subgroup_size } = self;
        let full_subgroup = u64::from(*subgroup_size);
        let full = launch.group_size.map(u64::from);
        let global = |d: usize| group.id[d].wrapping_mul(full[d]).wrapping_add(local[d]);
        let linear =
            |place: [u64; 3], size: [u64; 3]| (place[2] * size[1] + place[1]) * size[0] + place[0];
        match query {
            WorkItemQuery::GlobalId => launch.global_offset[d].wrapping_add(global(d)),
            WorkItemQuery::GlobalSize => launch.global_size[d],
            WorkItemQuery::GlobalOffset => launch.global_offset[d],
            WorkItemQuery::GroupId => group.id[d],
            WorkItemQuery::NumGroups => launch.num_groups()[d],
            WorkItemQuery::LocalId => local[d],
            WorkItemQuery::LocalSize => group.size[d],
            WorkItemQuery::EnqueuedLocalSize => full[d],
            WorkItemQuery::WorkDim => u64::from(launch.work_dim),
            WorkItemQuery::GlobalLinearId => {
                linear([global(0), global(1), global(2)], launch.global_size)
            }
            WorkItemQuery::LocalLinearId => linear(*local, group.size),
            WorkItemQuery::SubgroupMaxSize => full_subgroup,
            WorkItemQuery::SubgroupId => linear(*local, group.size) / full_subgroup,
            WorkItemQuery::SubgroupLocalId => linear(*local, group.size) % full_subgroup,
            WorkItemQuery::SubgroupSize => {
                let first = linear(*local, group.size) / full_subgroup * full_subgroup;
                (group.size.iter().product::<u64>() - first).min(full_subgroup)
            }
            WorkItemQuery::NumSubgroups => {
                group.size.iter().product::<u64>().div_ceil(full_subgroup)
            }
            WorkItemQuery::NumEnqueuedSubgroups => {
                full.iter().product::<u64>().div_ceil(full_subgroup)
            }
        }
    }
}

/// Stops at operations at which items wait.
fn stop(op: &Op) -> Step {
    regions::stop_scope(op).map_or(Step::Next, Step::Wait)
}

/// The new value of an atomic update.
fn rmw(module: &Module, op: AtomicOp, ty: TypeId, old: u64, value: u64) -> Result<u64, Fault> {
    let binary = match op {
        AtomicOp::Exchange => return Ok(value),
        AtomicOp::Add => BinaryOp::Add,
        AtomicOp::Sub => BinaryOp::Sub,
        AtomicOp::SMin => BinaryOp::SMin,
        AtomicOp::UMin => BinaryOp::UMin,
        AtomicOp::SMax => BinaryOp::SMax,
        AtomicOp::UMax => BinaryOp::UMax,
        AtomicOp::And => BinaryOp::And,
        AtomicOp::Or => BinaryOp::Or,
        AtomicOp::Xor => BinaryOp::Xor,
        AtomicOp::FAdd => BinaryOp::FAdd,
        AtomicOp::FMin => BinaryOp::FMin,
        AtomicOp::FMax => BinaryOp::FMax,
    };
    let unfit = || format!("atomic {} of {}", op.name(), module.types.text(ty));
    let scalar = Scalar::of(&module.types[ty] as &Type).ok_or_else(unfit)?;
    Ok(eval::binary(binary, scalar, old, value).ok_or_else(unfit)?)
}

/// A fault with its place.
fn located(fault: Fault, function: &str, loc: Loc) -> InterpError {
    let (function, word) = (function.to_owned(), loc.word);
    match fault {
        Fault::Access(AccessError::Memory(error)) => InterpError::Memory { error, function, word },
        Fault::Access(AccessError::Value(what)) => {
            InterpError::Unsupported { what, function, word }
        }
        Fault::StepLimit => InterpError::StepLimit,
    }
}
