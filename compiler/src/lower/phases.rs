// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loops that run a work-group whose items wait at barriers, but exchange nothing
//! ([`super::group`] has those that do).
//!
//! An item's frame begins with its state: 0 at first, the number of the barrier where it stopped,
//! or -1 when it has ended. A vector of items is like an item here.
//!
//! Barriers are uniform as a rule, so vectors go *together*: each region has a loop of its own over
//! all vectors, with the code of that region alone, and no state is kept. LLVM sees ordinary loops,
//! out of which it takes what all vectors share. Where the code does not show that vectors stop at the
//! same barriers ([`crate::regions::uniform`]), those that do not have their states written down, and
//! the group goes on *apart*: a loop over phases resumes each from its own state. The form for uneven
//! rows then goes apart from the start, so that there is not one more copy of the kernel to compile.
//!
//! ```text
//!   region 0: all vectors ──▶ region 1: all vectors ──▶ … ──▶ done
//!        │                         │                           ▲
//!        └──── stopped apart ──────┴──▶ phases, by states ─────┘
//! ```

use std::fmt::Write;

use super::frame::Frame;
use super::loops::{loops, private_init};
use super::unit::Unit;
use crate::regions::Ends;
use crate::widen::Rows;

/// The state of what has ended.
const ENDED: i32 = -1;

/// The symbol of the function that writes down the states of vectors that have parted, up to the size
/// of their frames.
const PART: &str = "tally.part";

/// The code that runs items between their barriers.
struct Phases<'a> {
    symbol: &'a str,
    /// The kernel's arguments, as the end of a call's list.
    args: &'a str,
    frame: &'a Frame,
    lanes: u32,
}

/// All phases of a group, up to a branch to `done`. The block before is `entry`.
pub(super) fn phases(
    unit: &mut Unit<'_>,
    symbol: &str,
    args: &str,
    frame: &Frame,
    lanes: u32,
    rows: Rows,
) -> String {
    let phases = Phases { symbol, args, frame, lanes };
    let mut text = format!(
        "  %frames = getelementptr i8, ptr %scratch, i64 {}
  %waiting = alloca i1
  %items.xy = mul i64 %nx, %ny
  %items.all = mul i64 %items.xy, %nz
  %items = lshr i64 %items.all, {}
",
        unit.scratch_fixed(),
        lanes.trailing_zeros()
    );
    let bounded = frame.ends.iter().all(|ends| !ends.is_empty());
    let alike = frame.stops_alike || rows == Rows::Whole;
    let together = lanes > 1 && bounded && !frame.ends.is_empty() && alike;
    if together {
        text += "  %expected = alloca i32\n  %parted = alloca i1\n";
        text += "  store i1 false, ptr %parted, align 1\n  br label %r0\n";
        for (region, ends) in frame.ends.iter().enumerate() {
            text += &phases.together(region, ends);
        }
        if frame.stops_alike {
            return text;
        }
        unit.helpers.insert(format!("{PART}.{}", frame.size), part(frame.size));
    } else {
        text += &phases.initialise(unit);
    }
    text + &phases.apart(if together { " noinline" } else { "" })
}

impl Phases<'_> {
    /// Finds the frame of the items from `x`, `y`, `z` on. `tag` begins all names.
    fn frame(&self, tag: &str) -> String {
        format!(
            "  %{tag}row = mul i64 %{tag}z, %ny
  %{tag}row.y = add i64 %{tag}row, %{tag}y
  %{tag}column = mul i64 %{tag}row.y, %nx
  %{tag}item = add i64 %{tag}column, %{tag}x
  %{tag}index = lshr i64 %{tag}item, {}
  %{tag}offset = mul i64 %{tag}index, {}
  %{tag}frame = getelementptr i8, ptr %frames, i64 %{tag}offset
  %{tag}priv = getelementptr i8, ptr %{tag}frame, i64 {}
",
            self.lanes.trailing_zeros(),
            self.frame.size,
            self.frame.private_offset
        )
    }

    /// Runs these items from a state to where they stop.
    fn call(&self, tag: &str, state: &str, attribute: &str) -> String {
        let Self { symbol, args, .. } = self;
        format!(
            "  %{tag}stop = call i32 {symbol}(ptr %ctx, i64 %{tag}x, i64 %{tag}y, i64 %{tag}z, ptr %{tag}priv, ptr %{tag}frame, i32 {state}{args}){attribute}\n"
        )
    }

    /// A region that all vectors run before any runs the next one.
    fn together(&self, region: usize, ends: &Ends) -> String {
        let tag = format!("r{region}.");
        let states: Vec<i32> = ends.iter().map(|&end| state(end)).collect();
        let mut body = self.frame(&tag);
        body += &self.call(&tag, &region.to_string(), " alwaysinline");
        let mut text = format!("r{region}:\n");
        let next = Self::goes_on(&tag, &states);
        if self.frame.stops_alike {
            let _ = writeln!(body, "  store i32 %{tag}stop, ptr %expected, align 4");
            let from = format!("r{region}");
            text += &loops(&tag, &from, &format!("{tag}done"), "", &body, self.lanes);
            return text + &format!("{tag}done:\n{next}");
        }
        let common = if let [state] = states[..] {
            // LLVM finds the comparison below to be false.
            state.to_string()
        } else {
            // 0 is where nothing stops: what the first vector does is what all are to do.
            text += "  store i32 0, ptr %expected, align 4\n";
            let _ = write!(
                body,
                "  %{tag}before = load i32, ptr %expected, align 4
  %{tag}first = icmp eq i32 %{tag}before, 0
  %{tag}expected = select i1 %{tag}first, i32 %{tag}stop, i32 %{tag}before
  store i32 %{tag}expected, ptr %expected, align 4
"
            );
            format!("%{tag}expected")
        };
        let _ = write!(
            body,
            "  %{tag}parts = icmp ne i32 %{tag}stop, {common}
  br i1 %{tag}parts, label %{tag}part, label %{tag}next
{tag}part:
  call void @{PART}.{}(ptr %frames, i64 %items, i32 {common}, ptr %{tag}frame, i32 %{tag}stop, ptr %parted)
  br label %{tag}next
{tag}next:
",
            self.frame.size
        );
        let end = format!("{tag}next");
        text += &loops(&tag, &format!("r{region}"), &format!("{tag}done"), &end, &body, self.lanes);
        text + &format!(
            "{tag}done:
  %{tag}parted = load i1, ptr %parted, align 1
  br i1 %{tag}parted, label %phase, label %{tag}whole
{tag}whole:
{next}"
        )
    }

    /// Goes on at the state in which a region has left all vectors, one of these.
    fn goes_on(tag: &str, states: &[i32]) -> String {
        let (last, others) = states.split_last().unwrap_or((&ENDED, &[]));
        let cases: String =
            others.iter().map(|&s| format!(" i32 {s}, label %{}", block(s))).collect();
        if cases.is_empty() {
            return format!("  br label %{}\n", block(*last));
        }
        format!(
            "  %{tag}to = load i32, ptr %expected, align 4
  switch i32 %{tag}to, label %{} [{cases} ]
",
            block(*last)
        )
    }

    /// Gives all items the first state and their private variables of module scope.
    fn initialise(&self, unit: &mut Unit<'_>) -> String {
        format!(
            "  br label %init
init:
  %init.i = phi i64 [ 0, %entry ], [ %init.next, %init ]
  %init.offset = mul i64 %init.i, {}
  %init.frame = getelementptr i8, ptr %frames, i64 %init.offset
  store i32 0, ptr %init.frame, align 4
  %init.priv = getelementptr i8, ptr %init.frame, i64 {}
{}  %init.next = add nuw nsw i64 %init.i, 1
  %init.last = icmp eq i64 %init.next, %items
  br i1 %init.last, label %phase, label %init
",
            self.frame.size,
            self.frame.private_offset,
            private_init(unit, "%init.priv", "init")
        )
    }

    /// The loop over phases, each of which resumes all items that have not ended. `attribute` is of
    /// the call that does so.
    fn apart(&self, attribute: &str) -> String {
        let body = format!(
            "{}  %state = load i32, ptr %frame, align 4
  %ended = icmp eq i32 %state, {ENDED}
  br i1 %ended, label %next, label %run
run:
{}  store i32 %stop, ptr %frame, align 4
  %waits = icmp ne i32 %stop, {ENDED}
  %waits.before = load i1, ptr %waiting, align 1
  %waits.any = or i1 %waits.before, %waits
  store i1 %waits.any, ptr %waiting, align 1
  br label %next
next:
",
            self.frame(""),
            self.call("", "%state", attribute)
        );
        format!(
            "phase:
  store i1 false, ptr %waiting, align 1
{}phase.done:
  %again = load i1, ptr %waiting, align 1
  br i1 %again, label %phase, label %done
",
            loops("", "phase", "phase.done", "next", &body, self.lanes)
        )
    }
}

/// The state of items that have come to the end of a region.
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

/// A function that writes the states of all vectors when one is first found to be elsewhere: that
/// one its own, the others the one that they have, or will have, in common.
fn part(frame_size: u64) -> String {
    format!(
        "
define internal void @{PART}.{frame_size}(ptr %frames, i64 %items, i32 %common, ptr %frame, i32 %own, ptr %parted) noinline cold #0 {{
entry:
  %before = load i1, ptr %parted, align 1
  br i1 %before, label %one, label %all
all:
  %i = phi i64 [ 0, %entry ], [ %i.next, %all ]
  %offset = mul i64 %i, {frame_size}
  %each = getelementptr i8, ptr %frames, i64 %offset
  store i32 %common, ptr %each, align 4
  %i.next = add nuw nsw i64 %i, 1
  %i.last = icmp eq i64 %i.next, %items
  br i1 %i.last, label %one, label %all
one:
  store i32 %own, ptr %frame, align 4
  store i1 true, ptr %parted, align 1
  ret void
}}
"
    )
}
