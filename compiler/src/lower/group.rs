// SPDX-License-Identifier: MIT OR Apache-2.0
//! What work-items exchange: operations of groups and sub-groups, and the loop that runs the items
//! of a kernel that has them.
//!
//! Such an operation is a place where items stop, like a barrier. Each leaves its value in an
//! *offer* of its frame and returns; when all items of the scope have stopped, they are resumed, and
//! each takes its result from the offers. (Of a sub-group only those at the first such place are
//! resumed, so that items which have parted meet again. The others take their offers along.) No second stop is needed before the next operation: there
//! are two offers, written in turn. An item writes offer `n mod 2` when it stops for the `n`th time,
//! and the results of that stop are read between stops `n` and `n + 1`. The next write to the same
//! offer is stop `n + 2`. No item gets there before all have come to stop `n + 1`, so all have read.
//!
//! Work-group and sub-group count their stops by themselves, so each has its own pair of offers: a
//! sub-group takes any number of turns while an offer to the work-group lies waiting.
//!
//! Which items take part is in their *states*, which are kept in pairs too: those at the same
//! barrier when the scope had stopped. In uniform code that is all of them; where control flow
//! differs it is the active ones.
//!
//! The first item that collects a reduction or scan walks over all offers and gives each
//! participant its result; the others find theirs *ready*. A result is taken before the item's next
//! stop, and no item writes one before all have come to that, so one place for it is enough.

use std::fmt::Write;

use super::entry::private_init;
use super::function::{Body, Frame};
use super::types::{is_bool, memory_type, scalar, suffix, zero};
use super::{LowerError, MAX_ALIGN, Unit, align_up};
use crate::ir::Scalar;
use crate::ir::group::identity;
use crate::ir::{BinaryOp, GroupOp, Module, Op, Operand, Scope, TypeId};
use crate::regions::Regions;

/// States from here on are barriers of a sub-group. They are positive as signed numbers.
pub(super) const SUBGROUP_STATES: u32 = 1 << 30;

/// The parameters that a resumable item takes if items exchange values: the frames of its sub-group
/// and of its group, how many there are, and which of each pair is written now.
pub(super) const EXCHANGE_PARAMS: &str =
    ", ptr %peers, i64 %peer.count, i64 %turn, ptr %frames, i64 %items, i64 %phase";

/// Offset of the item's local ids: three 32-bit numbers.
const LOCAL_IDS: u64 = 24;

/// The part of a frame that items exchange through, which comes first.
pub(super) struct Exchange {
    group: Slots,
    subgroup: Slots,
    /// Whether the items of a sub-group wait for each other.
    turns: bool,
    /// Where it ends.
    pub(super) end: u64,
}

/// The places for one scope. Offsets within the frame.
#[derive(Clone, Copy)]
struct Slots {
    /// Two states, 32 bits each.
    states: u64,
    /// Whether the result has been made, 32 bits.
    ready: u64,
    /// Two offers.
    offers: u64,
    /// Bytes from one offer to the other.
    offer_size: u64,
    /// The result.
    result: u64,
}

impl Exchange {
    /// The places that a kernel needs; `None` if it has nothing but barriers of the work-group.
    pub(super) fn new(module: &Module, regions: &Regions) -> Option<Self> {
        let function = &regions.function;
        let turns = regions.barriers.iter().any(|barrier| barrier.scope == Scope::Subgroup);
        let mut sizes = [(0, 1); 2];
        let mut offers = false;
        for (_, block) in function.blocks.iter() {
            for inst in &block.insts {
                let Op::Offer(scope, value) = inst.op else { continue };
                let ty = module.operand_type(function, value);
                let (size, align) = &mut sizes[usize::from(scope == Scope::Subgroup)];
                *size = module.types.size(ty).max(*size);
                *align = module.types.align(ty).min(MAX_ALIGN).max(*align);
                offers = true;
            }
        }
        if !turns && !offers {
            return None;
        }
        let mut end = LOCAL_IDS + 12;
        let mut place = |states, ready, (size, align): (u64, u64)| {
            let offer_size = align_up(size, align);
            let offers = align_up(end, align);
            let result = offers + 2 * offer_size;
            end = result + offer_size;
            Slots { states, ready, offers, offer_size, result }
        };
        let group = place(0, 16, sizes[0]);
        let subgroup = place(8, 20, sizes[1]);
        Some(Self { group, subgroup, turns, end })
    }

    fn slots(&self, scope: Scope) -> Slots {
        match scope {
            Scope::Subgroup => self.subgroup,
            _ => self.group,
        }
    }
}

/// The frames of a scope, their number, and which of each pair is written now.
fn scope_values(scope: Scope) -> [&'static str; 3] {
    match scope {
        Scope::Subgroup => ["%peers", "%peer.count", "%turn"],
        _ => ["%frames", "%items", "%phase"],
    }
}

impl Body<'_, '_> {
    fn exchange(&self) -> Result<(u64, &Exchange), LowerError> {
        let frame = self.frame.and_then(|frame| Some((frame.size, frame.exchange.as_ref()?)));
        frame.ok_or(LowerError::Unsupported("a group operation out of place".into()))
    }

    /// Leaves a value in the item's offer.
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

    /// Takes the item's result from the offers.
    pub(super) fn collect(
        &mut self,
        op: GroupOp,
        scope: Scope,
        index: Option<Operand>,
        ty: TypeId,
    ) -> Result<String, LowerError> {
        let (stride, exchange) = self.exchange()?;
        let slots = exchange.slots(scope);
        let [first, count, now] = scope_values(scope);
        let before = self.def(&format!("xor i64 {now}, 1"));
        // Items that stopped at the same barrier have the state that this one is resumed with.
        let who = format!("ptr %frame, ptr {first}, i64 {count}, i64 {before}, i32 %resume");
        let (kind, last) = match (op, index) {
            (GroupOp::Shuffle, Some(index)) => ("shuffle", self.operand(index)),
            (GroupOp::Shuffle, None) => {
                return Err(LowerError::Unsupported("a shuffle without an index".into()));
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

/// A type as part of a symbol.
fn type_name(llvm: &str) -> String {
    llvm.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// A function that makes results out of offers.
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

    /// Code that finds the frame of item `%{i}` and whether it takes part.
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

    /// The offer of the item with an index; the own one if no active item has it.
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
        let start = self.start(unit.module, op)?;
        let sum = self.apply(unit, op)?;
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

    /// What combining begins with.
    fn start(&self, module: &Module, op: BinaryOp) -> Result<String, LowerError> {
        let element = module.types.element(self.ty);
        let bits = Scalar::of(&module.types[element]).and_then(|ty| identity(op, ty));
        let bits = bits.ok_or_else(|| LowerError::Unsupported(op.name().into()))?;
        let bits = if module.types.scalar_bits(element) == 1 { bits & 1 } else { bits };
        let one = match bits {
            0 => zero(module, element).into(),
            bits => scalar(module, element, bits, true),
        };
        Ok(match module.types.lanes(self.ty) {
            1 => one,
            _ if bits == 0 => "zeroinitializer".into(),
            _ => format!("splat ({} {one})", memory_type(module, element)),
        })
    }

    /// `%acc` and `%x` combined.
    fn apply(&self, unit: &mut Unit<'_>, op: BinaryOp) -> Result<String, LowerError> {
        let memory = &self.memory;
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
        let name = format!("llvm.{name}.{}", suffix(unit.module, self.ty));
        unit.declare(memory, &name, &format!("{memory}, {memory}"));
        Ok(format!("call {memory} @{name}({memory} %acc, {memory} %x)"))
    }
}

/// The loop over the phases of a kernel whose items exchange values, and within a phase over the
/// turns of each sub-group. Without barriers of sub-groups all items together take one turn.
///
/// States are pairs per scope, see above. A phase begins with the states that the one before has
/// left for the group, a turn after the first with those of the turn before. Every item writes its
/// state in every turn, so that none in a pair is ever old. A vector of `lanes` items is like an
/// item here.
pub(super) fn phases(
    unit: &mut Unit<'_>,
    symbol: &str,
    args: &str,
    frame: &Frame,
    exchange: &Exchange,
    lanes: u32,
) -> String {
    let stride = frame.size;
    let fixed = unit.scratch_fixed();
    let private = frame.private_offset;
    let init = private_init(unit, "%init.priv", "init");
    let size = match exchange.turns {
        true => unit.subgroup_size.to_string(),
        false => "%items".into(),
    };
    let (ready, subgroup_ready) = (exchange.group.ready, exchange.subgroup.ready);
    let (states, turn_states) = (exchange.group.states, exchange.subgroup.states);
    let Slots { offers, offer_size, .. } = exchange.subgroup;
    let i32_max = i32::MAX;
    unit.declare("void", "llvm.memcpy.p0.p0.i64", "ptr, ptr, i64, i1");
    let [x, y, z] = [0, 4, 8].map(|offset| LOCAL_IDS + offset);
    let mut text = format!(
        "  %frames = getelementptr i8, ptr %scratch, i64 {fixed}
  %row = udiv i64 %nx, {lanes}
  %items.xy = mul i64 %row, %ny
  %items = mul i64 %items.xy, %nz
  br label %init
init:
  %init.i = phi i64 [ 0, %entry ], [ %init.next, %init ]
  %init.offset = mul i64 %init.i, {stride}
  %init.frame = getelementptr i8, ptr %frames, i64 %init.offset
  %init.state = getelementptr i8, ptr %init.frame, i64 {states}
  store i64 0, ptr %init.state, align 4
  %init.ready = getelementptr i8, ptr %init.frame, i64 {ready}
  store i32 0, ptr %init.ready, align 4
  %init.turn.ready = getelementptr i8, ptr %init.frame, i64 {subgroup_ready}
  store i32 0, ptr %init.turn.ready, align 4
  %init.column = urem i64 %init.i, %row
  %init.x = mul i64 %init.column, {lanes}
  %init.row = udiv i64 %init.i, %row
  %init.y = urem i64 %init.row, %ny
  %init.z = udiv i64 %init.row, %ny
"
    );
    for (name, offset) in [("x", x), ("y", y), ("z", z)] {
        let _ = write!(
            text,
            "  %init.{name}.at = getelementptr i8, ptr %init.frame, i64 {offset}
  %init.{name}.id = trunc i64 %init.{name} to i32
  store i32 %init.{name}.id, ptr %init.{name}.at, align 4
"
        );
    }
    let _ = write!(
        text,
        "  %init.priv = getelementptr i8, ptr %init.frame, i64 {private}
{init}  %init.next = add nuw nsw i64 %init.i, 1
  %init.last = icmp eq i64 %init.next, %items
  br i1 %init.last, label %phase.start, label %init
phase.start:
  %phase = phi i64 [ 0, %init ], [ %phase.next, %phase.done ]
  %phase.next = xor i64 %phase, 1
  br label %peers.start
peers.start:
  %first = phi i64 [ 0, %phase.start ], [ %first.next, %peers.done ]
  %group.waits = phi i1 [ false, %phase.start ], [ %waits.so.far, %peers.done ]
  %first.at = mul i64 %first, {stride}
  %peers = getelementptr i8, ptr %frames, i64 %first.at
  %left = sub i64 %items, %first
  %peer.count = call i64 @llvm.umin.i64(i64 %left, i64 {size})
  br label %turn.start
turn.start:
  %turn = phi i64 [ 0, %peers.start ], [ %turn.next, %turn.done ]
  %begins = phi i1 [ true, %peers.start ], [ false, %turn.done ]
  %chosen = phi i32 [ -2, %peers.start ], [ %least.now, %turn.done ]
  %turn.next = xor i64 %turn, 1
  %old.of.phase = mul i64 %phase.next, 4
  %old.of.turn = mul i64 %turn.next, 4
  %old.phase = add i64 %old.of.phase, {states}
  %old.turn = add i64 %old.of.turn, {turn_states}
  %old = select i1 %begins, i64 %old.phase, i64 %old.turn
  %new.of.phase = mul i64 %phase, 4
  %new.of.turn = mul i64 %turn, 4
  %new.phase = add i64 %new.of.phase, {states}
  %new.turn = add i64 %new.of.turn, {turn_states}
  br label %item
item:
  %i = phi i64 [ 0, %turn.start ], [ %i.next, %item.done ]
  %waits = phi i1 [ false, %turn.start ], [ %waits.now, %item.done ]
  %least = phi i32 [ {i32_max}, %turn.start ], [ %least.now, %item.done ]
  %frame.at = mul i64 %i, {stride}
  %frame = getelementptr i8, ptr %peers, i64 %frame.at
  %state.at = getelementptr i8, ptr %frame, i64 %old
  %state = load i32, ptr %state.at, align 4
  %lives = icmp ne i32 %state, -1
  %starts = and i1 %begins, %lives
  %first.of.all = icmp eq i32 %state, %chosen
  %runs = or i1 %starts, %first.of.all
  br i1 %runs, label %run, label %stay
stay:
  %offers = getelementptr i8, ptr %frame, i64 {offers}
  %offer.old.off = mul i64 %turn.next, {offer_size}
  %offer.new.off = mul i64 %turn, {offer_size}
  %offer.old = getelementptr i8, ptr %offers, i64 %offer.old.off
  %offer.new = getelementptr i8, ptr %offers, i64 %offer.new.off
  call void @llvm.memcpy.p0.p0.i64(ptr %offer.new, ptr %offer.old, i64 {offer_size}, i1 false)
  br label %item.done
run:
  %x.at = getelementptr i8, ptr %frame, i64 {x}
  %x.id = load i32, ptr %x.at, align 4
  %x = zext i32 %x.id to i64
  %y.at = getelementptr i8, ptr %frame, i64 {y}
  %y.id = load i32, ptr %y.at, align 4
  %y = zext i32 %y.id to i64
  %z.at = getelementptr i8, ptr %frame, i64 {z}
  %z.id = load i32, ptr %z.at, align 4
  %z = zext i32 %z.id to i64
  %priv = getelementptr i8, ptr %frame, i64 {private}
  %stop = call i32 {symbol}(ptr %ctx, i64 %x, i64 %y, i64 %z, ptr %priv, ptr %frame, i32 %state{EXCHANGE_PARAMS}{args})
  br label %item.done
item.done:
  %state.now = phi i32 [ %state, %stay ], [ %stop, %run ]
  %phase.at = getelementptr i8, ptr %frame, i64 %new.phase
  store i32 %state.now, ptr %phase.at, align 4
  %turn.at = getelementptr i8, ptr %frame, i64 %new.turn
  store i32 %state.now, ptr %turn.at, align 4
  %moves = icmp sge i32 %state.now, {SUBGROUP_STATES}
  %less = icmp slt i32 %state.now, %least
  %leads = and i1 %moves, %less
  %least.now = select i1 %leads, i32 %state.now, i32 %least
  %waits.too = icmp ult i32 %state.now, {SUBGROUP_STATES}
  %waits.now = or i1 %waits, %waits.too
  %i.next = add nuw nsw i64 %i, 1
  %i.last = icmp eq i64 %i.next, %peer.count
  br i1 %i.last, label %turn.done, label %item
turn.done:
  %moves.any = icmp ne i32 %least.now, {i32_max}
  br i1 %moves.any, label %turn.start, label %peers.done
peers.done:
  %waits.so.far = or i1 %group.waits, %waits.now
  %first.next = add i64 %first, {size}
  %peers.last = icmp uge i64 %first.next, %items
  br i1 %peers.last, label %phase.done, label %peers.start
phase.done:
  br i1 %waits.so.far, label %phase.start, label %done
"
    );
    text
}
