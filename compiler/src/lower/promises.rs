// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the numbers of a group fit 32 bits, where vectors rely on that ([`Promises`]).

use super::context::{ARGS, GLOBAL_OFFSET, GLOBAL_SIZE, GROUP, GROUP_SIZE, NUM_GROUPS, local_size};
use crate::ir::{Kernel, WorkItemQuery};
use crate::widen::{Holds, Number, Promises};

/// The items that a vector may have behind the last one of its row.
const BEHIND: u32 = 63;
/// The most items of a group, and those behind them.
const MOST_ITEMS: u32 = 1024 + BEHIND;

/// The least and the greatest number that a number may be in a group, as LLVM's operands.
type Bounds = (String, String);

/// Computes in `%promised` whether they hold in the group; `%launch` is loaded. It is empty if there are none.
pub(super) fn hold(promises: &Promises, kernel: &Kernel) -> String {
    if promises.conditions.is_empty() {
        return String::new();
    }
    let mut writer = Writer { kernel, text: String::new(), names: 0 };
    writer.text += &format!(
        "  %p.args.at = getelementptr inbounds i8, ptr %ctx, i64 {ARGS}
  %p.args = load ptr, ptr %p.args.at, align 8, !invariant.load !0
"
    );
    let mut bounds: Vec<Bounds> = Vec::new();
    for number in &promises.numbers {
        bounds.push(writer.bounds(*number, &bounds));
    }
    let mut all = "true".to_owned();
    for &(number, holds) in &promises.conditions {
        let (least, most) = &bounds[number];
        match promises.numbers[number] {
            Number::Constant(_) | Number::Argument(_, 32) if holds == Holds::Fits => continue,
            _ => {}
        }
        for side in [least, most].into_iter().take(if least == most { 1 } else { 2 }) {
            let fits = match holds {
                Holds::Fits => {
                    let moved = writer.def(&format!("add i64 {side}, {}", 1u64 << 31));
                    writer.def(&format!("icmp ult i64 {moved}, {}", 1u64 << 32))
                }
                Holds::Positive => writer.def(&format!("icmp ult i64 {side}, {}", 1u64 << 31)),
            };
            all = writer.def(&format!("and i1 {all}, {fits}"));
        }
    }
    writer.text + &format!("  %promised = and i1 {all}, true\n")
}

struct Writer<'k> {
    kernel: &'k Kernel,
    text: String,
    names: u32,
}

impl Writer<'_> {
    fn def(&mut self, instruction: &str) -> String {
        let name = format!("%p{}", self.names);
        self.names += 1;
        self.text += &format!("  {name} = {instruction}\n");
        name
    }

    fn load(&mut self, base: &str, offset: impl Into<u64>, ty: &str, align: u64) -> String {
        let offset = offset.into();
        let at = self.def(&format!("getelementptr inbounds i8, ptr {base}, i64 {offset}"));
        self.def(&format!("load {ty}, ptr {at}, align {align}, !invariant.load !0"))
    }

    /// A number of 32 bits without a sign.
    fn word(&mut self, base: &str, offset: u32) -> String {
        let word = self.load(base, offset, "i32", 4);
        self.def(&format!("zext i32 {word} to i64"))
    }

    fn bounds(&mut self, number: Number, of: &[Bounds]) -> Bounds {
        let one = |value: String| (value.clone(), value);
        match number {
            Number::Constant(value) => one(value.to_string()),
            Number::Query(query, dimension) => self.query(query, u32::from(dimension)),
            Number::Argument(index, bits) => {
                let arg = &self.kernel.args[index];
                let (ty, offset, align) = (format!("i{bits}"), arg.offset, arg.align.clamp(1, 8));
                let value = self.load("%p.args", offset, &ty, align);
                one(if bits == 64 { value } else { self.def(&format!("sext i32 {value} to i64")) })
            }
            Number::Sum(a, b) => self.both("add", [&of[a].0, &of[b].0], [&of[a].1, &of[b].1]),
            Number::Difference(a, b) => {
                self.both("sub", [&of[a].0, &of[b].1], [&of[a].1, &of[b].0])
            }
            Number::Least(a, b) => {
                let sides = [(&of[a].0, &of[b].0), (&of[a].1, &of[b].1)];
                let [least, most] = sides.map(|(a, b)| self.pick("slt", a, b));
                (least, most)
            }
            Number::Most(a, b) => {
                let sides = [(&of[a].0, &of[b].0), (&of[a].1, &of[b].1)];
                let [least, most] = sides.map(|(a, b)| self.pick("sgt", a, b));
                (least, most)
            }
            Number::Either(a, b) => {
                (self.pick("slt", &of[a].0, &of[b].0), self.pick("sgt", &of[a].1, &of[b].1))
            }
            Number::Quotient(a, b) => {
                let [least, most] = [&of[b].1, &of[b].0].map(|b| self.pick("sgt", b, "1"));
                let least = self.def(&format!("udiv i64 {}, {least}", of[a].0));
                (least, self.def(&format!("udiv i64 {}, {most}", of[a].1)))
            }
            Number::Rest(a, b) => {
                let below = self.def(&format!("sub i64 {}, 1", of[b].1));
                let below = self.pick("sgt", &below, "0");
                ("0".into(), self.pick("slt", &below, &of[a].1))
            }
            Number::Product(a, b) => {
                let (mut least, mut most): (Option<String>, Option<String>) = (None, None);
                let sides = |it: &Bounds| match it.0 == it.1 {
                    true => vec![it.0.clone()],
                    false => vec![it.0.clone(), it.1.clone()],
                };
                for x in sides(&of[a]) {
                    for y in sides(&of[b]) {
                        let product = self.def(&format!("mul i64 {x}, {y}"));
                        let least_so_far = least.as_deref().unwrap_or(&product);
                        least = Some(self.pick("slt", &product, least_so_far));
                        let most_so_far = most.as_deref().unwrap_or(&product);
                        most = Some(self.pick("sgt", &product, most_so_far));
                    }
                }
                (least.unwrap_or_default(), most.unwrap_or_default())
            }
        }
    }

    /// The number of two of which a comparison with the other one holds.
    fn pick(&mut self, test: &str, a: &str, b: &str) -> String {
        if a == b {
            return a.to_owned();
        }
        let is = self.def(&format!("icmp {test} i64 {a}, {b}"));
        self.def(&format!("select i1 {is}, i64 {a}, i64 {b}"))
    }

    fn both(&mut self, op: &str, least: [&str; 2], most: [&str; 2]) -> Bounds {
        let [a, b] = least;
        let first = self.def(&format!("{op} i64 {a}, {b}"));
        if least == most {
            return (first.clone(), first);
        }
        let [a, b] = most;
        (first, self.def(&format!("{op} i64 {a}, {b}")))
    }

    fn query(&mut self, query: WorkItemQuery, d: u32) -> Bounds {
        use WorkItemQuery as Q;
        let one = |value: String| (value.clone(), value);
        match query {
            Q::GlobalId => {
                let offset = self.load("%launch", GLOBAL_OFFSET + 8 * d, "i64", 8);
                let group = self.word("%ctx", GROUP + 4 * d);
                let size = self.word("%launch", GROUP_SIZE + 4 * d);
                let before = self.def(&format!("mul i64 {group}, {size}"));
                let first = self.def(&format!("add i64 {offset}, {before}"));
                let behind = self.def(&format!("add i64 {size}, {BEHIND}"));
                let last = self.def(&format!("add i64 {first}, {behind}"));
                (first, last)
            }
            Q::LocalId => {
                let size = self.word("%launch", GROUP_SIZE + 4 * d);
                ("0".into(), self.def(&format!("add i64 {size}, {BEHIND}")))
            }
            Q::LocalLinearId => ("0".into(), MOST_ITEMS.to_string()),
            Q::GroupId => one(self.word("%ctx", GROUP + 4 * d)),
            // The last group of a row may have fewer items. Bounds that span from 0 to all of them would make a halo,
            // `(get_local_size(0) - 2 * border) * get_group_id(0)`, seem to begin below 0 in each group.
            Q::LocalSize => {
                let size = format!("%p.items{d}");
                self.text += &local_size(&size, d as u8, None);
                one(size)
            }
            Q::EnqueuedLocalSize => one(self.word("%launch", GROUP_SIZE + 4 * d)),
            Q::NumGroups => one(self.word("%launch", NUM_GROUPS + 4 * d)),
            Q::GlobalSize => one(self.load("%launch", GLOBAL_SIZE + 8 * d, "i64", 8)),
            _ => one(self.load("%launch", GLOBAL_OFFSET + 8 * d, "i64", 8)),
        }
    }
}
