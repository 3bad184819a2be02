// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses, accesses, atomics and fences.

use super::body::{Body, modifiers};
use super::context::{GRID_WAIT, LAUNCH};
use super::types::splat_int;
use super::unit::{LowerError, MAX_ALIGN};
use crate::ir::{AddressSpace, AtomicOp, Op, Operand, Ordering, Scope, Type, TypeId};

impl Body<'_, '_> {
    /// Text of the instruction for a memory operation; `None` if there is no instruction, or it is
    /// emitted already. `ty` is the result's type.
    pub(super) fn memory(
        &mut self,
        op: &Op,
        ty: Option<TypeId>,
    ) -> Result<Option<String>, LowerError> {
        let result = || ty.ok_or(LowerError::Unsupported("an access without a result".into()));
        Ok(Some(match op {
            Op::Address { base, offset, terms, inbounds } => {
                self.address_of(*base, *offset, terms, *inbounds)
            }
            Op::Load(at, access) => {
                let at = self.operand(*at);
                self.load(result()?, &at, *access)
            }
            Op::Store(to, value, access) => {
                if self.forgets(*to, *value) {
                    return Ok(None);
                }
                let ty = self.type_of(*value);
                let (at, value) = (self.operand(*to), self.operand(*value));
                self.store(ty, &value, &at, *access);
                self.tell(*to);
                return Ok(None);
            }
            Op::Copy(to, from, len, access) => {
                let len_ty = self.value_type(self.type_of(*len));
                let (to, from, len) = (self.operand(*to), self.operand(*from), self.operand(*len));
                let name = format!("llvm.memmove.p0.p0.{len_ty}");
                self.unit.declare("void", &name, &format!("ptr, ptr, {len_ty}, i1"));
                let align = u64::from(access.align).clamp(1, MAX_ALIGN);
                let volatile = access.volatile;
                format!(
                    "call void @{name}(ptr align {align} {to}, ptr align {align} {from}, {len_ty} {len}, i1 {volatile})"
                )
            }
            Op::AtomicLoad(at, ordering, _) => {
                let (ty, align) = self.atomic_type(result()?);
                let ordering = load_ordering(*ordering);
                format!("load atomic {ty}, ptr {} {ordering}, align {align}", self.operand(*at))
            }
            Op::AtomicStore(at, value, ordering, _) => {
                let (_, align) = self.atomic_type(self.type_of(*value));
                let ordering = match ordering {
                    Ordering::Relaxed | Ordering::Acquire => "monotonic",
                    Ordering::Release | Ordering::AcqRel => "release",
                    Ordering::SeqCst => "seq_cst",
                };
                let value = self.typed(*value);
                format!("store atomic {value}, ptr {} {ordering}, align {align}", self.operand(*at))
            }
            Op::AtomicRmw(op, at, value, ordering, _) => {
                self.atomic_rmw(*op, *at, *value, *ordering)
            }
            Op::AtomicCompareExchange { ptr, expected, value, .. } if self.is_own(*ptr) => {
                self.local_exchange(*ptr, *expected, *value)
            }
            Op::AtomicCompareExchange { ptr, expected, value, success, failure, .. } => {
                let (_, align) = self.atomic_type(result()?);
                let at = self.operand(*ptr);
                let (expected, value) = (self.typed(*expected), self.typed(*value));
                let success = rmw_ordering(*success);
                let failure = load_ordering(*failure);
                let pair = self.def(&format!(
                    "cmpxchg ptr {at}, {expected}, {value} {success} {failure}, align {align}"
                ));
                let ty = self.value_type(result()?);
                format!("extractvalue {{ {ty}, i1 }} {pair}, 0")
            }
            Op::GridBarrier => {
                let launch = self.base(LAUNCH);
                let at =
                    self.def(&format!("getelementptr inbounds i8, ptr {launch}, i64 {GRID_WAIT}"));
                let wait = self.def(&format!("load ptr, ptr {at}, align 8, !invariant.load !0"));
                format!("call void {wait}(ptr %ctx)")
            }
            &Op::Fence(scope, ordering) => return Ok(fence(scope, ordering)),
            // A barrier ends its block.
            &Op::ControlBarrier { memory, ordering, .. } => return Ok(fence(memory, ordering)),
            &Op::NamedBarrier(at, memory, ordering) => {
                self.wait_at(at)?;
                return Ok(fence(memory, ordering));
            }
            _ => return Err(LowerError::Unsupported("a memory operation".into())),
        }))
    }

    /// LLVM's type of an atomic access and its natural alignment.
    fn atomic_type(&self, ty: TypeId) -> (String, u64) {
        (self.value_type(ty), self.unit.module.types.align(ty))
    }

    fn atomic_rmw(
        &mut self,
        op: AtomicOp,
        at: Operand,
        value: Operand,
        ordering: Ordering,
    ) -> String {
        let ty = self.type_of(value);
        let local = self.is_own(at);
        let at = self.operand(at);
        let value = self.operand(value);
        if local {
            return self.local_rmw(op, &at, &value, ty);
        }
        let (ty, align) = self.atomic_type(ty);
        let op = match op {
            AtomicOp::Exchange => "xchg",
            AtomicOp::Add => "add",
            AtomicOp::Sub => "sub",
            AtomicOp::SMin => "min",
            AtomicOp::UMin => "umin",
            AtomicOp::SMax => "max",
            AtomicOp::UMax => "umax",
            AtomicOp::And => "and",
            AtomicOp::Or => "or",
            AtomicOp::Xor => "xor",
            AtomicOp::FAdd => "fadd",
            AtomicOp::FMin => "fmin",
            AtomicOp::FMax => "fmax",
        };
        let extreme =
            matches!(op, "min" | "umin" | "max" | "umax") && matches!(&*ty, "i32" | "i64");
        if extreme && ordering == Ordering::Relaxed {
            let function = format!("__tally_atomic_{op}_{ty}");
            self.unit.declare(&ty, &function, &format!("ptr, {ty}"));
            return format!("call {ty} @{function}(ptr {at}, {ty} {value})");
        }
        let ordering = rmw_ordering(ordering);
        format!("atomicrmw {op} ptr {at}, {ty} {value} {ordering}, align {align}")
    }

    /// Whether one thread alone accesses memory: it runs all items of a group.
    fn is_own(&self, at: Operand) -> bool {
        matches!(
            self.unit.module.types[self.type_of(at)],
            Type::Pointer(AddressSpace::Local | AddressSpace::Private)
        )
    }

    /// A comparison and exchange in local memory. It always writes, so that there is no branch.
    fn local_exchange(&mut self, at: Operand, expected: Operand, value: Operand) -> String {
        let ty = self.type_of(value);
        let (at, access) = (self.operand(at), self.plain_access(ty));
        let load = self.load(ty, &at, access);
        let old = self.def(&load);
        let llvm = self.value_type(ty);
        let (expected, value) = (self.operand(expected), self.operand(value));
        let same = self.def(&format!("icmp eq {llvm} {old}, {expected}"));
        let new = self.def(&format!("select i1 {same}, {llvm} {value}, {llvm} {old}"));
        let (_, rest) = modifiers(access);
        self.line(&format!("store {llvm} {new}, ptr {at}, {rest}"));
        format!("select i1 true, {llvm} {old}, {llvm} {old}")
    }

    /// An update of local memory: no other access can intervene.
    fn local_rmw(&mut self, op: AtomicOp, at: &str, value: &str, ty: TypeId) -> String {
        let access = self.plain_access(ty);
        let load = self.load(ty, at, access);
        let old = self.def(&load);
        let llvm = self.value_type(ty);
        let pair = format!("{llvm} {old}, {llvm} {value}");
        let instruction = |name: &str| format!("{name} {llvm} {old}, {value}");
        let new = match op {
            AtomicOp::Exchange => format!("select i1 true, {llvm} {value}, {llvm} {value}"),
            AtomicOp::Add => instruction("add"),
            AtomicOp::Sub => instruction("sub"),
            AtomicOp::And => instruction("and"),
            AtomicOp::Or => instruction("or"),
            AtomicOp::Xor => instruction("xor"),
            AtomicOp::FAdd => instruction("fadd"),
            AtomicOp::SMin => self.intrinsic("smin", ty, &pair, 2),
            AtomicOp::UMin => self.intrinsic("umin", ty, &pair, 2),
            AtomicOp::SMax => self.intrinsic("smax", ty, &pair, 2),
            AtomicOp::UMax => self.intrinsic("umax", ty, &pair, 2),
            AtomicOp::FMin => self.intrinsic("minnum", ty, &pair, 2),
            AtomicOp::FMax => self.intrinsic("maxnum", ty, &pair, 2),
        };
        let new = self.def(&new);
        let (_, rest) = modifiers(access);
        self.line(&format!("store {llvm} {new}, ptr {at}, {rest}"));
        format!("select i1 true, {llvm} {old}, {llvm} {old}")
    }

    /// An integer constant in every component.
    pub(super) fn splat(&self, ty: TypeId, value: i64) -> String {
        splat_int(self.unit.module, ty, value)
    }
}

/// A fence. One thread runs all items of a group, so up to that scope only the compiler must keep the
/// order.
fn fence(scope: Scope, ordering: Ordering) -> Option<String> {
    let ordering = match ordering {
        Ordering::Relaxed => return None,
        Ordering::Acquire => "acquire",
        Ordering::Release => "release",
        Ordering::AcqRel => "acq_rel",
        Ordering::SeqCst => "seq_cst",
    };
    Some(match scope {
        Scope::WorkItem => return None,
        Scope::Subgroup | Scope::Workgroup => {
            format!("fence syncscope(\"singlethread\") {ordering}")
        }
        Scope::Device | Scope::System => format!("fence {ordering}"),
    })
}

/// The ordering of an access that only reads.
fn load_ordering(ordering: Ordering) -> &'static str {
    match ordering {
        Ordering::Relaxed | Ordering::Release => "monotonic",
        Ordering::Acquire | Ordering::AcqRel => "acquire",
        Ordering::SeqCst => "seq_cst",
    }
}

fn rmw_ordering(ordering: Ordering) -> &'static str {
    match ordering {
        Ordering::Relaxed => "monotonic",
        Ordering::Acquire => "acquire",
        Ordering::Release => "release",
        Ordering::AcqRel => "acq_rel",
        Ordering::SeqCst => "seq_cst",
    }
}
