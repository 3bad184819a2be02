// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a work-group whose items wait at barriers. The loops are C (`rt/phases.c`); this emits their
//! parameters: the layout of the frames, and functions that call the kernel's code.
//!
//! Barriers are usually uniform, so vectors run *together*: each region is run in all vectors before
//! the next one, by a loop of its own with the code of that region alone, and no state is kept. LLVM
//! hoists the computations that all vectors share out of that loop. If the code does not prove that
//! vectors stop at the same barriers ([`crate::regions::uniform`]), the states of vectors that stop
//! elsewhere are stored, and the group continues *apart*: each vector is resumed from its own state.
//! The form for uneven rows runs apart from the start, to save the compile time of another copy of the
//! kernel.
//!
//! ```text
//!   region 0: all vectors ──▶ region 1: all vectors ──▶ … ──▶ done
//!        │                         │                           ▲
//!        └──── stopped apart ──────┴──▶ vectors, by states ────┘
//! ```
//!
//! Items that exchange values ([`super::group`]) have a loop of their own.

use std::fmt::Write;

use super::entry::{Argument, private_init};
use super::frame::{EXCHANGE_PARAMS, Frame, SHARED};
use super::unit::Unit;
use crate::regions::Ends;
use crate::widen::Rows;

/// The state of an item that has ended, and one that no item has: `ENDED` and `NONE` of `rt/phases.c`.
const ENDED: i32 = -1;
const NONE: i32 = -2;

/// The function that initialises the private variables of module scope.
const BEGIN: &str = "tally.begin";

/// LLVM's type of `struct group`.
const GROUP: &str = "{ ptr, ptr, ptr, i64, i64, i64 }";

/// The function that runs items between their barriers.
pub(super) struct Resumable<'a> {
    /// Its symbol.
    pub(super) symbol: &'a str,
    pub(super) args: &'a [Argument],
    pub(super) frame: &'a Frame,
    pub(super) lanes: u32,
    pub(super) rows: Rows,
}

impl Resumable<'_> {
    /// Runs a group, up to a branch to `done`.
    pub(super) fn run_group(&self, unit: &mut Unit<'_>) -> String {
        let layout = self.layout(unit);
        let mut text = self.group(unit.scratch_fixed());
        let given = format!("ptr @{layout}, ptr %group");
        if self.frame.exchange.is_some() {
            let begin = begin(unit);
            let run = self.caller(unit, "run", "");
            let mut name = "__tally_run_exchanging";
            let (mut types, mut list) = ("ptr, ptr", given);
            if let Some(naming) = self.naming(unit) {
                name = "__tally_run_naming";
                (types, list) = ("ptr, ptr, ptr", format!("{list}, ptr @{naming}"));
            }
            unit.declare("void", name, &format!("{types}, ptr, ptr"));
            text += &format!(
                "  call void @{name}({list}, ptr @{begin}, ptr @{run})\n  br label %done\n"
            );
            return text;
        }
        let ends = &self.frame.ends;
        let bounded = ends.iter().all(|ends| !ends.is_empty());
        let alike = self.frame.stops_alike || self.rows == Rows::Whole;
        let together = self.lanes > 1 && bounded && !ends.is_empty() && alike;
        if together {
            let run = self.caller(unit, "run", " alwaysinline");
            unit.declare("i32", "__tally_run_region", "ptr, ptr, ptr, i32, i32, i1 zeroext");
            text += "  br label %r0\n";
            for (region, ends) in ends.iter().enumerate() {
                text += &self.region(region, ends, &format!("{given}, ptr @{run}"));
            }
            if self.frame.stops_alike {
                return text;
            }
            text += "apart:\n";
        } else {
            let begin = begin(unit);
            unit.declare("void", "__tally_begin_items", "ptr, ptr, ptr");
            text += &format!("  call void @__tally_begin_items({given}, ptr @{begin})\n");
        }
        let resume = self.caller(unit, "resume", if together { " noinline" } else { "" });
        unit.declare("void", "__tally_run_items", "ptr, ptr, ptr");
        text + &format!(
            "  call void @__tally_run_items({given}, ptr @{resume})\n  br label %done\n"
        )
    }

    /// The layout of the frames as a constant, `struct layout`; its symbol.
    fn layout(&self, unit: &mut Unit<'_>) -> String {
        let Frame { size, private_offset, exchange, .. } = self.frame;
        let slots = exchange.as_ref().map(|exchange| exchange.subgroup);
        let (offers, offer_size) = slots.map_or((0, 0), |slots| (slots.offers, slots.offer_size));
        let turns = exchange.as_ref().is_some_and(|exchange| exchange.turns);
        let named = exchange.as_ref().is_some_and(|exchange| exchange.named.is_some());
        let peers = match () {
            // A vector is a sub-group.
            () if named => unit.subgroup_size / self.lanes.max(1),
            () if turns => unit.subgroup_size,
            () => 0,
        };
        let name = format!("tally.layout.{}", self.symbol.trim_start_matches('@'));
        let fields = [self.lanes.into(), *size, *private_offset, offers, offer_size, peers.into()];
        let fields = fields.map(|field| format!("i64 {field}")).join(", ");
        let ty = "{ i64, i64, i64, i64, i64, i64 }";
        unit.helpers
            .insert(name.clone(), format!("\n@{name} = internal constant {ty} {{ {fields} }}\n"));
        name
    }

    /// What named barriers need besides as a constant, `struct naming`, if the kernel has such; its symbol.
    fn naming(&self, unit: &mut Unit<'_>) -> Option<String> {
        let exchange = self.frame.exchange.as_ref()?;
        let fields = [exchange.named?, exchange.group.offers, exchange.group.offer_size];
        let fields = fields.map(|field| format!("i64 {field}")).join(", ");
        let name = format!("tally.naming.{}", self.symbol.trim_start_matches('@'));
        let text = format!("\n@{name} = internal constant {{ i64, i64, i64 }} {{ {fields} }}\n");
        unit.helpers.insert(name.clone(), text);
        Some(name)
    }

    /// Emits `struct group`, with the arguments in a structure of their own and the frames behind the
    /// first `fixed` bytes of scratch memory.
    fn group(&self, fixed: u64) -> String {
        let arguments = self.arguments();
        let mut text = format!("  %arguments = alloca {arguments}\n");
        for (index, arg) in self.args.iter().enumerate() {
            let _ = write!(
                text,
                "  %arguments.{index} = getelementptr {arguments}, ptr %arguments, i32 0, i32 {index}
  store {arg}, ptr %arguments.{index}
"
            );
        }
        let _ = write!(
            text,
            "  %frames = getelementptr i8, ptr %scratch, i64 {fixed}
  %group = alloca {GROUP}
"
        );
        let fields = ["ptr %ctx", "ptr %arguments", "ptr %frames", "i64 %nx", "i64 %ny", "i64 %nz"];
        for (index, value) in fields.iter().enumerate() {
            let _ = write!(
                text,
                "  %group.{index} = getelementptr {GROUP}, ptr %group, i32 0, i32 {index}
  store {value}, ptr %group.{index}
"
            );
        }
        text
    }

    /// LLVM's type of the structure of arguments.
    fn arguments(&self) -> String {
        let types: Vec<&str> = self.args.iter().map(|arg| arg.ty.as_str()).collect();
        format!("{{ {} }}", types.join(", "))
    }

    /// The function through which the loops call the kernel's code: `run` or `run_exchanging`. Its
    /// symbol begins with `tally.` and `name`; `attribute` is that of the call.
    fn caller(&self, unit: &mut Unit<'_>, name: &str, attribute: &str) -> String {
        let function = self.symbol;
        let symbol = format!("tally.{name}.{}", function.trim_start_matches('@'));
        let arguments = self.arguments();
        let exchanges = self.frame.exchange.is_some();
        let turn = if exchanges { ", ptr %now" } else { "" };
        let mut text = format!(
            "
define internal i32 @{symbol}(ptr %ctx, ptr %arguments, i64 %x, i64 %y, i64 %z, ptr %priv, ptr %frame, i32 %state{turn}) alwaysinline #0 {{
entry:
"
        );
        if exchanges {
            text += &load_turn();
        }
        let mut list = String::new();
        for (index, arg) in self.args.iter().enumerate() {
            let ty = &arg.ty;
            let _ = write!(
                text,
                "  %arg{index}.at = getelementptr {arguments}, ptr %arguments, i32 0, i32 {index}
  %arg{index} = load {ty}, ptr %arg{index}.at
"
            );
            let _ = write!(list, ", {ty} %arg{index}");
        }
        let turn = if exchanges { EXCHANGE_PARAMS } else { "" };
        let _ = write!(
            text,
            "  %stop = call i32 {function}(ptr %ctx, i64 %x, i64 %y, i64 %z, ptr %priv, ptr %frame, i32 %state{turn}{list}){attribute}
  ret i32 %stop
}}
"
        );
        unit.helpers.insert(symbol.clone(), text);
        symbol
    }

    /// Runs a region in all vectors and continues where they have stopped; `given` begins the call.
    fn region(&self, region: usize, ends: &Ends, given: &str) -> String {
        let states: Vec<i32> = ends.iter().map(|&end| state(end)).collect();
        let alike = self.frame.stops_alike;
        let (last, others) = states.split_last().unwrap_or((&ENDED, &[]));
        // If a region has one end, LLVM sees that no vector stops elsewhere.
        let common = if others.is_empty() { *last } else { NONE };
        let (otherwise, listed) =
            if alike { (block(*last), others) } else { ("apart".into(), &states[..]) };
        let cases: String =
            listed.iter().map(|&s| format!(" i32 {s}, label %{}", block(s))).collect();
        format!(
            "r{region}:
{}  %r{region}.stop = call i32 @__tally_run_region({given}, i32 {region}, i32 {common}, i1 zeroext {alike})
  switch i32 %r{region}.stop, label %{otherwise} [{cases} ]
",
            self.hand_on(region)
        )
    }

    /// Makes the shared values of the previous region available to a region.
    fn hand_on(&self, region: usize) -> String {
        let barrier =
            region.checked_sub(1).and_then(|number| self.frame.shared.changed.get(number));
        let mut text = String::new();
        for (number, (offset, ty)) in barrier.into_iter().flatten().enumerate() {
            let name = format!("%r{region}.shared{number}");
            let [now, next] = SHARED;
            let _ = write!(
                text,
                "  {name}.from = getelementptr i8, ptr {next}, i64 {offset}
  {name} = load {ty}, ptr {name}.from
  {name}.to = getelementptr i8, ptr {now}, i64 {offset}
  store {ty} {name}, ptr {name}.to
"
            );
        }
        text
    }
}

/// Emits [`BEGIN`] and returns its symbol.
fn begin(unit: &mut Unit<'_>) -> &'static str {
    let init = private_init(unit, "%priv");
    let text = format!(
        "\ndefine internal void @{BEGIN}(ptr %priv) alwaysinline #0 {{\nentry:\n{init}  ret void\n}}\n"
    );
    unit.helpers.insert(BEGIN.into(), text);
    BEGIN
}

/// Loads the fields of `struct turn` under the names of [`EXCHANGE_PARAMS`].
fn load_turn() -> String {
    let fields = [
        ("ptr", "peers"),
        ("ptr", "frames"),
        ("i64", "peer.count"),
        ("i64", "items"),
        ("i64", "turn"),
        ("i64", "phase"),
    ];
    let mut text = String::new();
    for (index, (ty, name)) in fields.into_iter().enumerate() {
        let _ = write!(
            text,
            "  %{name}.at = getelementptr i8, ptr %now, i64 {}
  %{name} = load {ty}, ptr %{name}.at
",
            8 * index
        );
    }
    text
}

/// The state of items that have reached the end of a region.
fn state(end: Option<usize>) -> i32 {
    end.map_or(ENDED, |barrier| barrier as i32 + 1)
}

/// The block that continues in a state that all items share.
fn block(state: i32) -> String {
    match state {
        ENDED => "done".into(),
        state => format!("r{state}"),
    }
}
