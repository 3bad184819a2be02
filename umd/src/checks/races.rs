// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes reports of accesses in kernels that nothing orders, and of barriers that not all items reach.

use tally_compiler_protocol::checks::{Site, SiteKind, cell};

use super::cells::{InKernel, Who};
use super::commands::missing;
use super::describe::{bytes, place};
use super::history::Found;
use super::kernels::Record;
use super::names::demangled;
use super::report::{Item, Memory, Report, Rule, Second};
use super::{Checks, log};

/// How an access is named in a sentence.
fn verb(writes: bool, atomic: bool) -> &'static str {
    match (writes, atomic) {
        (true, true) => "updates atomically",
        (true, false) => "writes",
        (false, true) => "reads atomically",
        (false, false) => "reads",
    }
}

impl Checks {
    /// The report of an access that races with another one. `None`: the other one is not known any more.
    pub(super) fn describe_race(&self, record: &Record, site: &Site) -> Option<Report> {
        let SiteKind::Touch { writes, atomic } = site.kind else { return None };
        let other = self.cells.as_ref()?.who(record.other)?;
        let mine = self.cells.as_ref()?.who(u64::from(record.run) << cell::RUN)?;
        let mine = Who {
            writes,
            atomic,
            kernel: mine.kernel.map(|it| InKernel { site: Some(record.site), ..it }),
            ..mine
        };
        if self.is_host_race(other.execution, &mine, (record.address, record.epoch)) {
            return None;
        }
        let kernel = demangled(&record.watched.kernel);
        let size = u64::from(site.size);
        let found = self.history.find(record.address, record.epoch);
        let is_local = !matches!(found, Found::Inside(..));
        let (memory, place_in) = self.place(record.address, size, record.epoch);
        let (memory, where_it_is) = match is_local {
            true => {
                let (address, object) = (record.address, site.object.clone());
                let memory = Memory { address, size, object, allocation: None };
                (Some(memory), "of local memory".to_owned())
            }
            false => {
                let memory = memory.map(|memory| Memory { object: site.object.clone(), ..memory });
                (memory, place_in)
            }
        };
        let same_execution = mine.execution == other.execution
            && mine.kernel.as_ref().map(|it| it.launch)
                == other.kernel.as_ref().map(|it| it.launch);
        let same_group = same_execution
            && mine.kernel.as_ref().map(|it| it.group) == other.kernel.as_ref().map(|it| it.group);
        let rule = match (record.same_value, same_execution) {
            (_, false) => Rule::CommandRace,
            (true, true) => Rule::SameValueRace,
            (false, true) => Rule::Race,
        };
        let by = match (same_execution, same_group) {
            (true, true) => "another work-item of the group",
            (true, false) => "a work-item of another group",
            (false, _) => "another command",
        };
        let (mine_is, other_is) = (verb(writes, atomic), verb(other.writes, other.atomic));
        let message = format!(
            "kernel '{kernel}' {mine_is} {} {where_it_is} that {by} {other_is}, and nothing orders the two",
            bytes(size)
        );
        let mut notes = Vec::new();
        let (mut call, mut first) = (self.launches.get(record.launch).map(|(call, _)| call), None);
        let named = |execution| self.order.as_ref().and_then(|order| order.named(execution));
        match (named(other.execution), named(mine.execution)) {
            (Some(earlier), Some(later)) if !same_execution => {
                log::race(earlier.number, later.number);
                notes.push(missing(&earlier, &later));
                (call, first) = (Some(later.call), Some(earlier.call));
            }
            _ => notes.push(advice(same_execution, same_group, is_local).to_owned()),
        }
        if atomic != other.atomic {
            notes.push("one of the two is atomic, and the other one is not".to_owned());
        }
        let second = self.second(record, &other, other_is, same_execution);
        let here = place(&record.watched, site);
        let is_same_line = second
            .place
            .as_ref()
            .is_some_and(|it| it.line == here.line && it.file == here.file && here.line != 0);
        if same_execution && is_same_line && !(atomic && other.atomic) {
            notes.push("or an atomic operation, if the items are to update one place".to_owned());
        }
        Some(Report {
            check: rule.check(),
            rule,
            message,
            kernel: Some(kernel),
            place: Some(here),
            item: Some(Item::of(record)),
            second: Some(second),
            memory,
            call,
            other: first,
            notes,
            ..Report::of_call(rule, String::new())
        })
    }

    fn second(&self, record: &Record, other: &Who, what: &str, same: bool) -> Second {
        let Some(InKernel { watched, group, item, site, .. }) = &other.kernel else {
            let what = format!("a command {what} it");
            return Second { what, place: None, item: None };
        };
        let found = site.and_then(|site| watched.sites.sites.get(site as usize));
        let item = same.then(|| {
            let group = three((*group).into(), record.groups);
            item_of(record, group, three((*item).into(), record.size))
        });
        let kernel =
            if same { String::new() } else { format!("kernel '{}' ", demangled(&watched.kernel)) };
        let place = found.map(|site| place(watched, site));
        Second { what: format!("{kernel}{what} it"), place, item }
    }

    /// The report of a barrier that not all items of a group reach.
    pub(super) fn describe_barrier(&self, record: &Record, site: &Site) -> Report {
        let kernel = demangled(&record.watched.kernel);
        let rule = Rule::DivergentBarrier;
        let other = record.watched.sites.sites.get(record.address as usize);
        let ends = other.is_some_and(|it| it.kind == SiteKind::End);
        let what = if ends { "another one has ended" } else { "another one waits" };
        let item = item_of(record, record.group, three(record.other, record.size));
        let second = Second {
            what: what.to_owned(),
            place: other.map(|site| place(&record.watched, site)),
            item: Some(item),
        };
        Report {
            check: rule.check(),
            rule,
            message: format!(
                "kernel '{kernel}' waits at a barrier that not all work-items of the group reach"
            ),
            kernel: Some(kernel),
            place: Some(place(&record.watched, site)),
            item: Some(Item::of(record)),
            second: Some(second),
            call: self.launches.get(record.launch).map(|(call, _)| call),
            notes: vec![
                "all items of a group have to reach a barrier equally often, or none".to_owned(),
            ],
            ..Report::of_call(rule, String::new())
        }
    }
}

/// What would order two accesses.
fn advice(same_execution: bool, same_group: bool, is_local: bool) -> &'static str {
    match (same_execution, same_group, is_local) {
        (true, true, true) => "a barrier(CLK_LOCAL_MEM_FENCE) between them would order them",
        (true, true, false) => "a barrier(CLK_GLOBAL_MEM_FENCE) between them would order them",
        (true, false, _) => {
            "no barrier orders groups: two launches would, or atomics that release and acquire in the device's scope"
        }
        (false, ..) => "a wait of one command for the other one would order them",
    }
}

/// Numbers in three dimensions of a linear one.
fn three(linear: u64, sizes: [u64; 3]) -> [u64; 3] {
    let (x, y) = (sizes[0].max(1), sizes[1].max(1));
    [linear % x, linear / x % y, linear / x / y]
}

/// An item of the same launch as a record's.
fn item_of(record: &Record, group: [u64; 3], local: [u64; 3]) -> Item {
    let global = [0, 1, 2].map(|d| {
        let offset = record.global[d]
            .wrapping_sub(record.group[d].wrapping_mul(record.size[d]))
            .wrapping_sub(record.local[d]);
        offset.wrapping_add(group[d].wrapping_mul(record.size[d])).wrapping_add(local[d])
    });
    Item { global, local, group, together: 1 }
}

#[cfg(test)]
mod tests {
    use super::three;

    #[test]
    fn linear_numbers_have_three_dimensions() {
        assert_eq!(three(0, [4, 2, 3]), [0, 0, 0]);
        assert_eq!(three(23, [4, 2, 3]), [3, 1, 2]);
        assert_eq!(three(5, [0, 0, 0]), [0, 0, 5]);
    }
}
