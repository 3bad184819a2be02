// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes a kernel tell its accesses to memory that others may access, and what orders them: barriers,
//! atomics and fences. The run-time library (`rt/races.c`) remembers the accesses and finds those that
//! nothing orders, and barriers that not all items of a group reach.
//!
//! ```text
//!                              access 4 value %7
//!                              access 5 write 4 bytes at %6
//!   store %6, %7        ──▶    store %6, %7
//!                              access 6 arrive
//!   control_barrier            control_barrier
//!                              access 7 depart workgroup
//! ```
//!
//! Each of these is an [`Op::Report`] that always reports; its size says what it is
//! ([`tally_compiler_protocol::checks::access`]). A read is left out if the item has accessed the same
//! bytes before in the same block, and nothing has ordered anything since.

use std::collections::HashMap;

use tally_compiler_protocol::checks::{Checks, SiteKind, Space, access};

use super::follow::space_of;
use super::roots::Roots;
use super::sites::{About, Table, space};
use crate::ir::{
    AddressSpace, ConvertOp, Flags, Function, Inst, Kernel, Loc, Module, Op, Operand, Ordering,
    Scope, Terminator, Type, TypeId,
};

/// What `__tally_group` is told about a kernel; `rt/races.c` has it too.
const RACES: u32 = 1;
const SYNC: u32 = 2;
const SUBGROUPS: u32 = 4;
const WAITS_FOR_GROUPS: u32 = 8;
const ATOMICS_ORDER: u32 = 16;

/// The longest copy whose length is told as a constant.
const MOST_COPIED: u64 = 1 << 20;

/// Makes a kernel tell its accesses and barriers. Returns what the run-time library is told of it.
pub(super) fn add(
    module: &mut Module,
    function: &mut Function,
    kernel: &Kernel,
    table: &mut Table,
    checks: Checks,
) -> u32 {
    let source = function.clone();
    let insts = || source.blocks.iter().flat_map(|(_, block)| &block.insts);
    let of_group = |inst: &Inst| barrier_scope(&inst.op) == Some(Scope::Workgroup);
    let races = checks.races;
    let sync = checks.sync && insts().any(of_group);
    // The library of the checks knows barriers of whole work-groups and sub-groups alone.
    let named = insts().any(|inst| matches!(inst.op, Op::NamedBarrier(..)));
    if (!races && !sync) || named {
        return 0;
    }
    let subgroups = insts().any(|inst| barrier_scope(&inst.op) == Some(Scope::Subgroup));
    let grid = insts().any(|inst| matches!(inst.op, Op::GridBarrier));
    let orders = insts().any(|inst| orders(&inst.op));
    let roots = Roots::new(&source);
    let mut teller = Teller {
        module,
        source: &source,
        function,
        kernel,
        table,
        roots,
        races,
        sync,
        orders,
        out: Vec::new(),
    };
    for (id, block) in source.blocks.iter() {
        teller.block(&block.insts, block.loc, &block.terminator);
        teller.function.blocks[id].insts = std::mem::take(&mut teller.out);
    }
    let flag = |set: bool, flag: u32| if set { flag } else { 0 };
    flag(races, RACES)
        | flag(sync, SYNC)
        | flag(subgroups, SUBGROUPS)
        | flag(grid, WAITS_FOR_GROUPS)
        | flag(orders, ATOMICS_ORDER)
}

/// The scope of the items that wait for each other at an operation.
fn barrier_scope(op: &Op) -> Option<Scope> {
    match op {
        Op::ControlBarrier { execution: Scope::Subgroup, .. } | Op::Offer(Scope::Subgroup, _) => {
            Some(Scope::Subgroup)
        }
        Op::ControlBarrier { execution: Scope::WorkItem, .. } => None,
        Op::ControlBarrier { .. } | Op::Offer(..) => Some(Scope::Workgroup),
        _ => None,
    }
}

/// Whether an operation other than a barrier orders others.
fn orders(op: &Op) -> bool {
    match op {
        Op::Fence(..) => true,
        Op::AtomicLoad(_, ordering, _)
        | Op::AtomicStore(_, _, ordering, _)
        | Op::AtomicRmw(_, _, _, ordering, _)
        | Op::AtomicCompareExchange { success: ordering, .. } => *ordering != Ordering::Relaxed,
        _ => false,
    }
}

fn acquires(ordering: Ordering) -> bool {
    matches!(ordering, Ordering::Acquire | Ordering::AcqRel | Ordering::SeqCst)
}

fn releases(ordering: Ordering) -> bool {
    matches!(ordering, Ordering::Release | Ordering::AcqRel | Ordering::SeqCst)
}

fn scope_bits(scope: Scope) -> u32 {
    match scope {
        Scope::WorkItem => 0,
        Scope::Subgroup => access::SUBGROUP,
        Scope::Workgroup => access::WORKGROUP,
        Scope::Device | Scope::System => access::DEVICE,
    }
}

struct Teller<'a> {
    module: &'a mut Module,
    source: &'a Function,
    function: &'a mut Function,
    kernel: &'a Kernel,
    table: &'a mut Table,
    roots: Roots,
    races: bool,
    sync: bool,
    /// Whether atomics or fences order accesses.
    orders: bool,
    out: Vec<Inst>,
}

/// The bytes at an address that an item has accessed.
type Told = HashMap<Operand, u64>;

impl Teller<'_> {
    fn block(&mut self, insts: &[Inst], loc: Loc, terminator: &Terminator) {
        let mut told = Told::new();
        let mut departs = None;
        for (index, inst) in insts.iter().enumerate() {
            let scope = barrier_scope(&inst.op);
            if scope.is_some() || orders(&inst.op) {
                told.clear();
            }
            if scope == Some(Scope::Workgroup) && self.sync {
                self.mark(access::ARRIVE, 0, SiteKind::Barrier, inst.loc);
            }
            if self.races {
                self.before(inst, &mut told);
            }
            self.out.push(inst.clone());
            if !self.races {
                continue;
            }
            self.after(inst);
            departs = scope.or(departs);
            // An operation that collects what items have shown follows at once.
            let collects = matches!(insts.get(index + 1), Some(Inst { op: Op::Collect(..), .. }));
            if let Some(scope) = departs.take_if(|_| !collects) {
                self.mark(access::DEPART, scope_bits(scope), SiteKind::Barrier, inst.loc);
            }
        }
        if self.sync && matches!(terminator, Terminator::Return(_)) {
            self.mark(access::END, 0, SiteKind::End, loc);
        }
    }

    /// Tells what an instruction is about to access.
    fn before(&mut self, inst: &Inst, told: &mut Told) {
        let loc = inst.loc;
        match &inst.op {
            Op::Load(at, _) => {
                let Some(result) = inst.result else { return };
                let bytes = self.accessed(self.function.values[result].ty);
                if told.get(at).is_some_and(|&before| before >= bytes) {
                    return;
                }
                if self.touch(access::TOUCH, *at, bytes, loc) {
                    told.insert(*at, bytes);
                }
            }
            Op::Store(at, value, _) => {
                let bytes = self.accessed(self.type_of(*value));
                if !self.is_shared(*at) {
                    return;
                }
                self.value(*value, loc);
                self.touch(access::WRITES, *at, bytes, loc);
                told.insert(*at, bytes);
            }
            Op::Copy(to, from, size, _) => {
                let constant = self.module.operand_bits(*size);
                let constant = constant.filter(|&bytes| bytes <= MOST_COPIED);
                for (kind, at) in [(access::TOUCH, *from), (access::WRITES, *to)] {
                    if constant.is_none() && self.is_shared(at) {
                        self.value(*size, loc);
                    }
                    self.touch(kind, at, constant.unwrap_or(access::ANY_SIZE.into()), loc);
                }
            }
            Op::AtomicLoad(at, ..) => {
                let Some(result) = inst.result else { return };
                let bytes = self.accessed(self.function.values[result].ty);
                self.touch(access::ATOMIC, *at, bytes, loc);
            }
            Op::AtomicStore(at, value, ordering, scope)
            | Op::AtomicRmw(_, at, value, ordering, scope)
            | Op::AtomicCompareExchange { ptr: at, value, success: ordering, scope, .. } => {
                let bytes = self.accessed(self.type_of(*value));
                self.touch(access::ATOMIC | access::WRITES, *at, bytes, loc);
                self.order(access::RELEASE, *at, releases(*ordering), *scope, loc);
            }
            Op::Fence(scope, ordering) => {
                let how = if acquires(*ordering) { access::ACQUIRES } else { 0 }
                    | if releases(*ordering) { access::RELEASES } else { 0 };
                self.mark(access::FENCE, how | scope_bits(*scope), SiteKind::Barrier, loc);
            }
            _ => {}
        }
    }

    /// Tells what an instruction has acquired.
    fn after(&mut self, inst: &Inst) {
        match &inst.op {
            Op::AtomicLoad(at, ordering, scope)
            | Op::AtomicRmw(_, at, _, ordering, scope)
            | Op::AtomicCompareExchange { ptr: at, success: ordering, scope, .. } => {
                self.order(access::ACQUIRE, *at, acquires(*ordering), *scope, inst.loc);
            }
            _ => {}
        }
    }

    /// Tells an access, if others may access the memory; returns whether it did.
    fn touch(&mut self, kind: u32, at: Operand, bytes: u64, loc: Loc) -> bool {
        if !self.is_shared(at) || bytes == 0 {
            return false;
        }
        let site = SiteKind::Touch {
            writes: kind & access::WRITES != 0,
            atomic: kind & access::ATOMIC != 0,
        };
        let in_space = match space_of(self.module, self.source, at) {
            Some(of) => space(of),
            None => Space::Generic,
        };
        let root = self.roots.of(self.module, self.source, at);
        let object = root.base.text(self.module, self.source, self.kernel);
        let about = About { kind: site, size: bytes, space: in_space, object };
        let site = self.table.add(self.module, loc, about);
        self.tell(site, kind, u32::try_from(bytes).unwrap_or(u32::MAX), at, loc);
        true
    }

    /// Tells what an atomic orders.
    fn order(&mut self, kind: u32, at: Operand, orders: bool, scope: Scope, loc: Loc) {
        if !self.orders || !self.is_shared(at) {
            return;
        }
        let orders = if orders { access::ORDERS } else { 0 };
        self.tell(0, kind, orders | scope_bits(scope), at, loc);
    }

    /// Tells the value of the store that follows, if it fits into 64 bits.
    fn value(&mut self, value: Operand, loc: Loc) {
        let ty = self.type_of(value);
        let i64 = self.module.types.int(64);
        let mut number = value;
        let bits = match self.module.types[ty] {
            Type::Int(bits) => bits,
            Type::Float(_) => {
                let bits = self.module.types.scalar_bits(ty);
                let int = self.module.types.int(bits);
                number = self.make(Op::Convert(ConvertOp::Bitcast, value), int, loc);
                bits
            }
            Type::Pointer(_) => {
                number = self.make(Op::Convert(ConvertOp::PtrToInt, value), i64, loc);
                64
            }
            _ => return,
        };
        if bits < 64 {
            number = self.make(Op::Convert(ConvertOp::ZExt, number), i64, loc);
        }
        self.tell(0, access::VALUE, 0, number, loc);
    }

    /// Tells something that has no address.
    fn mark(&mut self, kind: u32, rest: u32, site: SiteKind, loc: Loc) {
        let about = About { kind: site, size: 0, space: Space::Local, object: String::new() };
        let site = self.table.add(self.module, loc, about);
        let i64 = self.module.types.int(64);
        let none = Operand::Const(self.module.const_int(i64, 0));
        self.tell(site, kind, rest, none, loc);
    }

    fn tell(&mut self, site: u32, kind: u32, rest: u32, at: Operand, loc: Loc) {
        let bool = self.module.types.bool();
        let mistake = Operand::Const(self.module.const_int(bool, 1));
        let size = access::ACCESS | kind << access::KIND | rest;
        let op = Op::Report { site, size, at, step: 0, mistake, items: None };
        self.out.push(Inst { result: None, op, flags: Flags::empty(), loc });
    }

    fn make(&mut self, op: Op, ty: TypeId, loc: Loc) -> Operand {
        let result = self.function.new_value(ty);
        self.out.push(Inst { result: Some(result), op, flags: Flags::empty(), loc });
        Operand::Value(result)
    }

    /// Whether other items may access the memory at an address.
    fn is_shared(&self, at: Operand) -> bool {
        let space = space_of(self.module, self.source, at);
        !matches!(space, Some(AddressSpace::Private | AddressSpace::Constant) | None)
    }

    /// The bytes that an access of a type touches: a vector of three has three components.
    fn accessed(&self, ty: TypeId) -> u64 {
        match self.module.types[ty] {
            Type::Vector(element, n) => self.module.types.size(element) * u64::from(n),
            _ => self.module.types.size(ty),
        }
    }

    fn type_of(&self, operand: Operand) -> TypeId {
        self.module.operand_type(self.function, operand)
    }
}
