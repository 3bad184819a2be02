// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portable`: finds code that runs here, but not on all devices for which Level Zero programs are meant.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tally_compiler_protocol::checks::{SiteKind, Space, hidden};
use tally_ze::ze_kernel_indirect_access_flags_t as Indirect;

use super::calls::{self, Call};
use super::guarded::{Reason, Touch};
use super::history::{Allocation, Found, Kind};
use super::kernels::{Record, Watched};
use super::launches::{Reach, Words};
use super::report::{Item, Report, Rule};
use super::{Checks, collector, describe, names};

/// The largest work-group that all of Intel's GPUs since 2020 support, in work-items.
const COMMON_GROUP: u64 = 512;

/// A launch that the current call appends.
pub struct Launching<'a> {
    /// The kernel's name.
    pub kernel: &'a str,
    /// The checked places of its code.
    pub watched: Option<&'a Arc<Watched>>,
    /// The kinds of memory that it may reach through pointers in memory.
    pub indirect: Indirect,
    /// Whether all device memory is resident when it runs.
    pub forces_residency: bool,
    /// Its pointers, by the index of the argument.
    pub pointers: &'a [(usize, u64)],
    /// Work-items of a group.
    pub group_items: u64,
    /// Whether groups may wait for each other, or there is only one.
    pub may_wait: bool,
    /// The place of the kernel's words for checks in its argument block.
    pub words: Option<Words>,
    /// The number of the launch that it replaces, in a mutable list, or 0.
    pub of: u64,
}

/// The queries by which a program learns the capabilities of a device.
mod asked {
    pub const GROUPS: u8 = 1;
    pub const SUBGROUPS: u8 = 2;
    pub const DOUBLES: u8 = 4;
}

/// The declarations and queries that the program has made so far.
#[derive(Default)]
pub struct Program {
    asked: AtomicU8,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Allocations that are made resident, by their starts.
    resident: BTreeSet<u64>,
    /// Event pools that are not visible to the host, by their handles.
    invisible: BTreeSet<usize>,
    /// Memory that commands write and that nothing has made visible to the host, with the call of the first.
    unseen: BTreeMap<u64, Call>,
}

impl Program {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the program calls a function.
    pub fn calls(&self, function: &str) {
        use asked::{DOUBLES, GROUPS, SUBGROUPS};
        let answers = match function {
            "zeDeviceGetComputeProperties" => GROUPS | SUBGROUPS,
            "zeKernelGetProperties" => SUBGROUPS,
            "zeKernelSuggestGroupSize" => GROUPS,
            "zeDeviceGetModuleProperties" => DOUBLES,
            _ => return,
        };
        self.asked.fetch_or(answers, Ordering::Relaxed);
    }

    fn has_asked(&self, question: u8) -> bool {
        self.asked.load(Ordering::Relaxed) & question != 0
    }
}

impl Checks {
    /// Checks a launch; returns the word by which the kernel names it.
    pub fn launching(&self, launching: &Launching<'_>) -> u64 {
        let mut reach = Reach::default();
        let mut flags = launching.indirect;
        if self.portable {
            if launching.forces_residency {
                flags |= Indirect::ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE;
            }
            let pointers = launching.pointers.iter().map(|it| it.1).collect();
            reach = Reach { indirect: flags, pointers };
            if launching.of == 0 {
                self.check_launch(launching);
            }
            self.note_writes(launching);
        }
        let all = Indirect::ZE_KERNEL_INDIRECT_ACCESS_FLAG_HOST
            | Indirect::ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE
            | Indirect::ZE_KERNEL_INDIRECT_ACCESS_FLAG_SHARED;
        let reaches_all = if flags.contains(all) { hidden::REACHES_ALL } else { 0 };
        let replaced = self.launches.get(launching.of).map(|it| it.0);
        let call = replaced.unwrap_or_else(calls::current);
        let number = self.launches.add(call, reach, launching.words);
        self.launch_uses(number, launching);
        number | reaches_all
    }

    fn check_launch(&self, launching: &Launching<'_>) {
        let kernel = names::demangled(launching.kernel);
        let report = |rule, message: String| Report {
            kernel: Some(kernel.clone()),
            ..Report::of_call(rule, format!("kernel '{kernel}' {message}"))
        };
        let tell = |rule, message: String| collector::add(report(rule, message), None);
        for &(index, address) in launching.pointers {
            if address != 0 && self.is_of_the_system(address) {
                let (memory, _) = self.place(address, 0, self.history.epoch());
                let report = report(
                    Rule::SystemMemory,
                    format!("gets memory of the system's as argument {index}"),
                );
                collector::add(Report { memory, ..report }, None);
            }
        }
        if launching.group_items > COMMON_GROUP && !self.program.has_asked(asked::GROUPS) {
            let items = launching.group_items;
            tell(
                Rule::GroupSize,
                format!(
                    "is launched with groups of {items} work-items, and the program has not asked how many a device has"
                ),
            );
        }
        let Some(watched) = launching.watched else { return };
        for site in &watched.sites.sites {
            let (rule, message) = match site.kind {
                SiteKind::Doubles if !self.program.has_asked(asked::DOUBLES) => (
                    Rule::Doubles,
                    "computes with doubles, and the program has not asked whether a device can",
                ),
                SiteKind::Exchanges if !self.program.has_asked(asked::SUBGROUPS) => (
                    Rule::SubGroupSize,
                    "exchanges values in sub-groups, and neither requires nor asks for their size",
                ),
                SiteKind::Waits if !launching.may_wait => (
                    Rule::WaitsForGroups,
                    "waits in a loop for other work-groups, and is not launched as a cooperative one",
                ),
                _ => continue,
            };
            let place = describe::place(watched, site);
            collector::add(Report { place: Some(place), ..report(rule, message.to_owned()) }, None);
        }
    }

    /// Notes the memory to which a launch writes and which the host can read.
    fn note_writes(&self, launching: &Launching<'_>) {
        let Some(watched) = launching.watched else { return };
        let is_written = |index: usize| watched.sites.written.contains(&(index as u32));
        for &(_, address) in launching.pointers.iter().filter(|it| is_written(it.0)) {
            self.writes(address);
        }
    }

    /// Notes that the current call has appended a command that writes at an address.
    pub(super) fn writes(&self, address: u64) {
        if !self.portable {
            return;
        }
        let Found::Inside(it, _) = self.history.find(address, self.history.epoch()) else { return };
        if it.kind.is_for_host() {
            self.program.state().unseen.entry(it.base).or_insert_with(calls::current);
        }
    }

    /// Notes that the writes of commands are visible to the host.
    pub fn host_sees(&self) {
        self.program.state().unseen.clear();
        if self.guards {
            self.guarded.forget_all(Reason::Unseen);
            self.guarded.waited();
        }
    }

    /// Notes that the host has waited for an event of the address space with this number, which does not make the
    /// writes of commands visible to it.
    pub fn host_is_behind(&self, owner: usize) {
        if !self.guards {
            return;
        }
        self.guarded.waited();
        let state = self.program.state();
        for &base in state.unseen.keys() {
            if let Found::Inside(it, 0) = self.history.find(base, self.history.epoch()) {
                self.guarded.close(base, it.size, Reason::Unseen, owner);
            }
        }
    }

    /// Notes a new event pool with this handle; `visible`: whether its events are visible to the host.
    pub fn event_pool(&self, handle: usize, visible: bool) {
        let mut state = self.program.state();
        match visible {
            true => state.invisible.remove(&handle),
            false => state.invisible.insert(handle),
        };
    }

    /// Notes that the host waits for, queries or signals an event of this pool, if it belongs to one.
    /// `visible`: an event without a pool was created for that.
    pub fn host_uses_event(&self, pool: usize, visible: bool) {
        let visible = match pool {
            0 => visible,
            pool => !self.program.state().invisible.contains(&pool),
        };
        if self.portable && !visible {
            let message = "the host uses an event that is not visible to the host".to_owned();
            collector::add(Report::of_call(Rule::HostVisible, message), None);
        }
    }

    /// Notes that the program makes memory resident, or evicts it.
    pub fn resident(&self, address: u64, is: bool) {
        let Found::Inside(it, _) = self.history.find(address, self.history.epoch()) else { return };
        let mut state = self.program.state();
        match is {
            true => state.resident.insert(it.base),
            false => state.resident.remove(&it.base),
        };
    }

    /// Notes that the memory at an address contains words that host and device change; it is not checked further.
    pub fn is_for_both(&self, address: u64) {
        if let Found::Inside(it, _) = self.history.find(address, self.history.epoch()) {
            self.guarded.forget(it.base);
            if let Some(order) = &self.order {
                order.host_has_words();
            }
        }
    }

    /// Begins to guard an allocation in the address space with this number.
    pub fn guard(&self, base: u64, size: u64, kind: &Kind, owner: usize) {
        if self.guards && *kind == Kind::Device {
            self.guarded.close(base, size, Reason::Device, owner);
        }
    }

    /// Notes that an address space has ended, with all its mappings.
    pub fn unguard_all(&self, owner: usize) {
        self.guarded.end(owner);
    }

    /// Ends the guard of an allocation.
    pub(super) fn unguard(&self, base: u64) {
        if self.portable {
            self.guarded.forget(base);
            let mut state = self.program.state();
            state.resident.remove(&base);
            state.unseen.remove(&base);
        }
    }

    /// Whether an address is neither in the driver's memory nor null.
    fn is_of_the_system(&self, address: u64) -> bool {
        address >= describe::NULL_END && !self.space.contains(address)
    }

    /// The report for a place that a kernel has reached; `None`: the kernel may reach it.
    pub(super) fn describe_reach(&self, record: &Record) -> Option<Report> {
        let site = record.place();
        let found = self.history.find(record.address, record.epoch);
        let (rule, message) = match &found {
            Found::Inside(it, _) if !self.may_reach(record, it) => (
                Rule::IndirectAccess,
                format!(
                    "reaches {} through a pointer that it has read, which it is not allowed to",
                    describe::name(&it.kind)
                ),
            ),
            // Generic pointers may also refer to private and local memory.
            Found::Nowhere
                if site.space != Space::Generic && self.is_of_the_system(record.address) =>
            {
                let what = "reaches memory of the system's through a pointer that it has read";
                (Rule::SystemMemory, what.to_owned())
            }
            _ => return None,
        };
        let kernel = names::demangled(&record.watched.kernel);
        let (memory, _) = self.place(record.address, site.size.into(), record.epoch);
        Some(Report {
            kernel: Some(kernel.clone()),
            place: Some(describe::place(&record.watched, site)),
            item: Some(Item::of(record)),
            memory,
            call: self.launches.get(record.launch).map(|(call, _)| call),
            ..Report::of_call(rule, format!("kernel '{kernel}' {message}"))
        })
    }

    fn may_reach(&self, record: &Record, it: &Allocation) -> bool {
        let Some((_, reach)) = self.launches.get(record.launch) else { return true };
        let flag = match it.kind {
            Kind::Device => Indirect::ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE,
            Kind::Host => Indirect::ZE_KERNEL_INDIRECT_ACCESS_FLAG_HOST,
            Kind::Shared => Indirect::ZE_KERNEL_INDIRECT_ACCESS_FLAG_SHARED,
            Kind::Mapped | Kind::Image | Kind::Variable(_) => return true,
        };
        reach.indirect.contains(flag)
            || reach.pointers.iter().any(|address| it.contains(*address))
            || self.program.state().resident.contains(&it.base)
    }

    /// Reports the host's accesses.
    pub(super) fn tell_touches(&self) {
        for Touch { reason, address, writes, host, epoch } in self.guarded.take() {
            let (memory, place) = self.place(address, 1, epoch);
            let verb = if writes { "writes to" } else { "reads" };
            let (rule, message) = match reason {
                Reason::Device => {
                    (Rule::DeviceMemoryOnHost, format!("the host {verb} device memory, {place}"))
                }
                Reason::Unseen => (
                    Rule::NoHostScope,
                    format!(
                        "the host reads what a command writes, {place}, and nothing has made that visible to it"
                    ),
                ),
            };
            let caller = host.caller;
            let report =
                Report { memory, host: Some(host), call: None, ..Report::of_call(rule, message) };
            collector::add_of_caller(caller, report);
        }
    }
}
