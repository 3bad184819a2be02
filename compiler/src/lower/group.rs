// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exchange of values between work-items: operations of groups and sub-groups. The loops that run the
//! items are in `rt/phases.c`.
//!
//! Such an operation is a place where items stop, like a barrier. Each stores its value in an *offer*
//! of its frame and returns; when all items of the scope have stopped, they are resumed, and each
//! computes its result from the offers. (Of a sub-group only those at the first such place are resumed,
//! so that items that have diverged reconverge. The others carry their offers over.)
//!
//! No second stop is needed before the next operation: there are two offers, written in turn. An item
//! writes offer `n mod 2` when it stops for the `n`th time, and the results of that stop are read
//! between stops `n` and `n + 1`. The next write to the same offer is at stop `n + 2`. No item gets
//! there before all have reached stop `n + 1`, so all have read.
//!
//! Work-group and sub-group count their stops separately, so each has its own pair of offers: a
//! sub-group can take any number of turns while an offer to the work-group is pending.
//!
//! The items' *states*, which are kept in pairs too, determine which items take part: those at the same
//! barrier when the scope had stopped. In uniform code that is all of them; where control flow differs
//! it is the active ones.
//!
//! Vectors that surely stop at the same places have a shorter way for reductions and scans ([`super::sums`]).
//!
//! The first item that collects a reduction or scan iterates over all offers and stores each
//! participant's result; the others find theirs *ready*. A result is read before the item's next stop,
//! and no item writes one before all have reached that stop, so one place for it is enough.

use std::fmt::Write;

use super::body::Body;
use super::frame::{Exchange, Frame, SHARED, Slots};
use super::types::{is_bool, memory_type, scalar, suffix, zero};
use super::unit::{LowerError, Unit};
use crate::ir::Scalar;
use crate::ir::group::identity;
use crate::ir::{BinaryOp, BlockId, GroupOp, Inst, Module, Operand, Scope, TypeId};

/// The frames of a scope, their number, and which of each pair is written now.
pub(super) fn scope_values(scope: Scope) -> [&'static str; 3] {
    match scope {
        Scope::Subgroup => ["%peers", "%peer.count", "%turn"],
        _ => ["%frames", "%items", "%phase"],
    }
}

impl Body<'_, '_> {
    pub(super) fn exchange(&self) -> Result<(u64, &Exchange), LowerError> {
        let frame = self.frame.and_then(|frame| Some((frame.size, frame.exchange.as_ref()?)));
        frame.ok_or(LowerError::Unsupported("a group operation out of place".into()))
    }

    /// Stores a value in the item's offer.
    pub(super) fn offer(&mut self, scope: Scope, value: Operand) -> Result<(), LowerError> {
        let slots = self.exchange()?.1.slots(scope);
        let [_, _, now] = scope_values(scope);
        let ty = self.type_of(value);
        let value = self.operand(value);
        let which = self.def(&format!("mul i64 {now}, {}", slots.offer_size));
        let offers = self.def(&format!("getelementptr i8, ptr %frame, i64 {}", slots.offers));
        let at = self.def(&format!("getelementptr i8, ptr {offers}, i64 {which}"));
        self.store(ty, &value, &at, self.plain_access(ty));
        Ok(())
    }

    /// Leaves the address of the named barrier at which the item stops in its frame.
    pub(super) fn wait_at(&mut self, barrier: Operand) -> Result<(), LowerError> {
        let Some(offset) = self.exchange()?.1.named else {
            return Err(LowerError::Unsupported("a named barrier out of place".into()));
        };
        let barrier = self.operand(barrier);
        let at = self.def(&format!("getelementptr i8, ptr %frame, i64 {offset}"));
        self.line(&format!("store ptr {barrier}, ptr {at}, align 8"));
        Ok(())
    }

    /// Computes the item's result from the offers.
    pub(super) fn collect(
        &mut self,
        op: GroupOp,
        scope: Scope,
        index: Option<Operand>,
        ty: TypeId,
    ) -> Result<String, LowerError> {
        if let (GroupOp::MulAdd(product), Some(added)) = (op, index) {
            return self.product(product, added, ty);
        }
        let (stride, exchange) = self.exchange()?;
        let slots = exchange.slots(scope);
        let [first, count, now] = scope_values(scope);
        let before = self.def(&format!("xor i64 {now}, 1"));
        // Items that stopped at the same barrier have the state with which this one is resumed.
        let who = format!("ptr %frame, ptr {first}, i64 {count}, i64 {before}, i32 %resume");
        let (kind, last) = match (op, index) {
            (GroupOp::Shuffle, Some(index)) => ("shuffle", self.operand(index)),
            (GroupOp::Shuffle, None) | (GroupOp::MulAdd(_), _) => {
                return Err(LowerError::Unsupported("a group operation without an operand".into()));
            }
            (GroupOp::Reduce(_, Some(cluster)), _) => ("reduce", cluster.to_string()),
            (GroupOp::Reduce(..), _) => ("reduce", self.def(&format!("trunc i64 {count} to i32"))),
            (GroupOp::InclusiveScan(_), _) => ("inclusive", "0".into()),
            (GroupOp::ExclusiveScan(_), _) => ("exclusive", "0".into()),
        };
        let module = self.unit.module;
        let memory = memory_type(module, ty);
        let helper = Helper { ty, memory: memory.clone(), stride, slots };
        let combined = op.combines();
        // Items and vectors of items have frames of their own.
        let name = format!(
            "tally.{}.{kind}.{}.{}.{stride}.{}.{}",
            scope.name(),
            combined.map_or("any", BinaryOp::name),
            type_name(&memory),
            slots.offers,
            slots.result
        );
        if !self.unit.helpers.contains_key(&name) {
            let text = match combined {
                None => helper.shuffle(&name),
                Some(op) => helper.combine(self.unit, &name, kind, op)?,
            };
            self.unit.helpers.insert(name.clone(), text);
        }
        let call = format!("call {memory} @{name}({who}, i32 {last})");
        if !is_bool(module, ty) {
            return Ok(call);
        }
        let byte = self.def(&call);
        Ok(format!("icmp ne {memory} {byte}, {}", zero(module, ty)))
    }
}

impl Body<'_, '_> {
    /// Combines a vector's value with those of the vectors before it.
    pub(super) fn add_to_sum(&mut self, frame: &Frame, block: BlockId) -> Result<(), LowerError> {
        let Some(sum) = frame.sums.iter().find(|sum| sum.block == block) else { return Ok(()) };
        let module = self.unit.module;
        let memory = memory_type(module, sum.ty);
        let name = format!("tally.sum.{}.{}", sum.op.name(), type_name(&memory));
        if !self.unit.helpers.contains_key(&name) {
            let combined = apply(self.unit, sum.ty, sum.op)?;
            let text = format!(
                "\ndefine internal {memory} @{name}({memory} %acc, {memory} %x) alwaysinline #0 {{
entry:
  %sum = {combined}
  ret {memory} %sum
}}
"
            );
            self.unit.helpers.insert(name.clone(), text);
        }
        let value = self.operand(sum.value);
        let value = self.in_memory_form(sum.ty, &value);
        let align = self.plain_access(sum.ty).align;
        let at = self.def(&format!("getelementptr i8, ptr {}, i64 {}", SHARED[1], sum.shared));
        let before = self.def(&format!("load {memory}, ptr {at}, align {align}"));
        let first = self.def("or i64 %lx, %ly");
        let first = self.def(&format!("or i64 {first}, %lz"));
        let first = self.def(&format!("icmp eq i64 {first}, 0"));
        let start = start(module, sum.ty, sum.op)?;
        let before = self.def(&format!("select i1 {first}, {memory} {start}, {memory} {before}"));
        let all = self.def(&format!("call {memory} @{name}({memory} {before}, {memory} {value})"));
        self.line(&format!("store {memory} {all}, ptr {at}, align {align}"));
        if !sum.of_all {
            let own = self.def(&format!("getelementptr i8, ptr %frame, i64 {}", sum.own));
            self.line(&format!("store {memory} {before}, ptr {own}, align {align}"));
        }
        Ok(())
    }

    /// The sum behind a barrier, if that is how it was made.
    pub(super) fn sum(&mut self, inst: &Inst) -> Option<String> {
        let frame = self.frame?;
        let sum = frame.sums.iter().find(|sum| Some(sum.result) == inst.result)?;
        let (base, offset) = if sum.of_all { (SHARED[0], sum.shared) } else { ("%frame", sum.own) };
        let at = self.def(&format!("getelementptr i8, ptr {base}, i64 {offset}"));
        let module = self.unit.module;
        let memory = memory_type(module, sum.ty);
        let align = self.plain_access(sum.ty).align;
        let load = format!("load {memory}, ptr {at}, align {align}");
        if !is_bool(module, sum.ty) {
            return Some(load);
        }
        let byte = self.def(&load);
        Some(format!("icmp ne {memory} {byte}, {}", zero(module, sum.ty)))
    }
}

/// A type as part of a symbol.
pub(super) fn type_name(llvm: &str) -> String {
    llvm.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// A function that computes results from offers.
struct Helper {
    ty: TypeId,
    /// LLVM's type of the values in memory.
    memory: String,
    /// Bytes from one frame to the next.
    stride: u64,
    slots: Slots,
}

impl Helper {
    fn head(&self, name: &str) -> String {
        format!(
            "\ndefine internal {} @{name}(ptr %frame, ptr %first, i64 %count, i64 %before, i32 %state, i32 %last) #0 {{
entry:
  %which.state = mul i64 %before, 4
  %state.off = add i64 %which.state, {}
  %which.offer = mul i64 %before, {}
  %offer.off = add i64 %which.offer, {}
",
            self.memory, self.slots.states, self.slots.offer_size, self.slots.offers
        )
    }

    /// Code that finds the frame of item `%{i}` and tests whether it takes part.
    fn look(&self, i: &str) -> String {
        format!(
            "  %{i}.at = mul i64 %{i}, {}
  %{i}.frame = getelementptr i8, ptr %first, i64 %{i}.at
  %{i}.state.at = getelementptr i8, ptr %{i}.frame, i64 %state.off
  %{i}.state = load i32, ptr %{i}.state.at, align 4
  %{i}.active = icmp eq i32 %{i}.state, %state
",
            self.stride
        )
    }

    /// Code that marks item `%{i}` as having its result, which is `value`.
    fn give(&self, i: &str, value: &str) -> String {
        let Slots { ready, result, .. } = self.slots;
        let memory = &self.memory;
        format!(
            "  %{i}.result = getelementptr i8, ptr %{i}.frame, i64 {result}
  store {memory} {value}, ptr %{i}.result, align 1
  %{i}.ready = getelementptr i8, ptr %{i}.frame, i64 {ready}
  store i32 1, ptr %{i}.ready, align 4
"
        )
    }

    /// The offer of the item with an index; the item's own one if no active item has that index.
    fn shuffle(&self, name: &str) -> String {
        let memory = &self.memory;
        let mut text = self.head(name);
        text += "  %wanted = zext i32 %last to i64
  %there = icmp ult i64 %wanted, %count
  %i = select i1 %there, i64 %wanted, i64 0
";
        text += &self.look("i");
        let _ = write!(
            text,
            "  %takes = and i1 %there, %i.active
  %from = select i1 %takes, ptr %i.frame, ptr %frame
  %offer = getelementptr i8, ptr %from, i64 %offer.off
  %value = load {memory}, ptr %offer, align 1
  ret {memory} %value
}}
"
        );
        text
    }

    /// A scan, or reductions of `%last` items at a time.
    fn combine(
        &self,
        unit: &mut Unit<'_>,
        name: &str,
        kind: &str,
        op: BinaryOp,
    ) -> Result<String, LowerError> {
        let memory = &self.memory;
        let start = start(unit.module, self.ty, op)?;
        let sum = apply(unit, self.ty, op)?;
        let Slots { ready, result, .. } = self.slots;
        let mut text = self.head(name);
        let _ = write!(
            text,
            "  %own.ready = getelementptr i8, ptr %frame, i64 {ready}
  %own.result = getelementptr i8, ptr %frame, i64 {result}
  %made = load i32, ptr %own.ready, align 4
  %have = icmp ne i32 %made, 0
  br i1 %have, label %done, label %make
make:
"
        );
        text += match kind {
            "reduce" => {
                "  %step = zext i32 %last to i64
  br label %cluster
cluster:
  %begin = phi i64 [ 0, %make ], [ %end, %gave ]
  %end = add i64 %begin, %step
  br label %walk
walk:
"
            }
            _ => {
                "  br label %walk
walk:
"
            }
        };
        let (from, begin, end, out) = match kind {
            "reduce" => ("cluster", "%begin", "%end", "give"),
            _ => ("make", "0", "%count", "done"),
        };
        let _ = write!(
            text,
            "  %i = phi i64 [ {begin}, %{from} ], [ %i.next, %walked ]
  %acc = phi {memory} [ {start}, %{from} ], [ %acc.next, %walked ]
  %i.below = icmp ult i64 %i, {end}
  %i.there = icmp ult i64 %i, %count
  %i.more = and i1 %i.below, %i.there
  br i1 %i.more, label %look, label %{out}
look:
{}  br i1 %i.active, label %take, label %walked
take:
  %offer = getelementptr i8, ptr %i.frame, i64 %offer.off
  %x = load {memory}, ptr %offer, align 1
  %sum = {sum}
{}  br label %walked
walked:
  %acc.next = phi {memory} [ %acc, %look ], [ %sum, %take ]
  %i.next = add i64 %i, 1
  br label %walk
",
            self.look("i"),
            match kind {
                "inclusive" => self.give("i", "%sum"),
                "exclusive" => self.give("i", "%acc"),
                _ => String::new(),
            }
        );
        if kind == "reduce" {
            let _ = write!(
                text,
                "give:
  %k = phi i64 [ %begin, %walk ], [ %k.next, %given ]
  %k.below = icmp ult i64 %k, %end
  %k.there = icmp ult i64 %k, %count
  %k.more = and i1 %k.below, %k.there
  br i1 %k.more, label %look.again, label %gave
look.again:
{}  br i1 %k.active, label %put, label %given
put:
{}  br label %given
given:
  %k.next = add i64 %k, 1
  br label %give
gave:
  %more = icmp ult i64 %end, %count
  br i1 %more, label %cluster, label %done
",
                self.look("k"),
                self.give("k", "%acc")
            );
        }
        let _ = write!(
            text,
            "done:
  store i32 0, ptr %own.ready, align 4
  %value = load {memory}, ptr %own.result, align 1
  ret {memory} %value
}}
"
        );
        Ok(text)
    }
}

/// The value with which combining begins.
fn start(module: &Module, ty: TypeId, op: BinaryOp) -> Result<String, LowerError> {
    let element = module.types.element(ty);
    let bits = Scalar::of(&module.types[element]).and_then(|scalar| identity(op, scalar));
    let bits = bits.ok_or_else(|| LowerError::Unsupported(op.name().into()))?;
    let bits = if module.types.scalar_bits(element) == 1 { bits & 1 } else { bits };
    let one = match bits {
        0 => zero(module, element).into(),
        bits => scalar(module, element, bits, true),
    };
    Ok(match module.types.lanes(ty) {
        1 => one,
        _ if bits == 0 => "zeroinitializer".into(),
        _ => format!("splat ({} {one})", memory_type(module, element)),
    })
}

/// `%acc` and `%x` combined.
fn apply(unit: &mut Unit<'_>, ty: TypeId, op: BinaryOp) -> Result<String, LowerError> {
    let memory = memory_type(unit.module, ty);
    let (name, intrinsic) = match op {
        BinaryOp::Add => ("add", false),
        BinaryOp::Mul => ("mul", false),
        BinaryOp::And => ("and", false),
        BinaryOp::Or => ("or", false),
        BinaryOp::Xor => ("xor", false),
        BinaryOp::FAdd => ("fadd", false),
        BinaryOp::FMul => ("fmul", false),
        BinaryOp::SMin => ("smin", true),
        BinaryOp::UMin => ("umin", true),
        BinaryOp::SMax => ("smax", true),
        BinaryOp::UMax => ("umax", true),
        BinaryOp::FMin => ("minnum", true),
        BinaryOp::FMax => ("maxnum", true),
        op => return Err(LowerError::Unsupported(op.name().into())),
    };
    if !intrinsic {
        return Ok(format!("{name} {memory} %acc, %x"));
    }
    let name = format!("llvm.{name}.{}", suffix(unit.module, ty));
    unit.declare(&memory, &name, &format!("{memory}, {memory}"));
    Ok(format!("call {memory} @{name}({memory} %acc, {memory} %x)"))
}
