// SPDX-License-Identifier: MIT OR Apache-2.0
//! `TALLY_CHECK`: finds mistakes of the program and reports where they are (`docs/checks.md`).
//!
//! ```text
//!  allocations, frees ──► history ◄── which allocation is at an address? ──┐
//!         └────► shadow ◄── states of bytes ── checked kernels ─► ring ────┴─► kernels ─┐
//!  calls ── numbers, stacks ─────────────────────────────────────────────► report ◄─────┤
//!  appends, waits ──► order ◄── who comes before whom? ── commands, cells ──────────────┤
//!  API calls that are mistakes themselves, leaks ───────────────────────────────────────┤
//!                              text at once, JSON and SARIF at the end ◄── collector ◄──┘
//! ```
//!
//! Without checks none of this runs, and other code has no additional instructions: it reaches this module
//! through places that are tested anyway, such as the gate of entry points.
//!
//! Kernels are checked by instrumentation of their code ([`tally_compiler_protocol::checks`]), on the
//! embedded lane only: an engine process has other addresses.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tally_compiler_protocol::checks::{
    Checks as KernelChecks, DEFINED, NO_MEMORY, Sites, UNDEFINED, hidden, ordered, watch,
};
use tally_uapi::PAGE_SIZE;
use tally_uapi::fault::{Fault, FaultKind};

use crate::settings;
use crate::space::Space;

pub mod calls;
pub mod cells;
mod collector;
mod commands;
mod copies;
mod describe;
mod guarded;
mod handles;
mod history;
mod host_races;
mod in_use;
mod kernels;
pub mod keys;
mod launches;
mod log;
mod names;
pub mod order;
mod portable;
mod races;
pub mod report;
mod rows;
mod sarif;
mod shadow;
mod suppressions;
mod transfers;
mod uses;

use cells::Cells;
pub use commands::never_signalled;
pub use copies::{CopiedLaunch, Copies};
use guarded::Guarded;
use handles::{Handles, Left, Making};
pub use history::Kind;
use history::{Found, History};
use host_races::{HostRaces, Rights};
pub use host_races::{InFunction, in_function};
use kernels::Kernels;
pub use kernels::Watched;
use launches::Launches;
pub use launches::Words;
use order::Order;
pub use portable::Launching;
use portable::Program;
use report::{Report, Rule};
pub use rows::{Rows, Transfer};
use shadow::{Addresses, Shadow};
pub use transfers::Move;
pub use uses::State;
use uses::Uses;

/// The checks of this process.
pub struct Checks {
    /// The checks of kernels; none where kernels do not run in this process.
    kernels: KernelChecks,
    space: Arc<Space>,
    shadow: Option<Shadow>,
    /// The last accesses to memory, for `races`.
    cells: Option<Cells>,
    history: History,
    watched: Kernels,
    launches: Launches,
    uses: Uses,
    handles: Handles,
    /// What orders commands, for `races` and `sync`.
    order: Option<Order>,
    /// Races of the program's own accesses with commands, for `races`.
    host_races: Option<HostRaces>,
    /// Whether the check for other devices (`portable`) is on.
    portable: bool,
    /// Whether memory that the host may not touch is closed to it.
    guards: bool,
    guarded: Guarded,
    program: Program,
    faults: Mutex<Vec<Fault>>,
    /// Whether all memory counts as written.
    all_defined: AtomicBool,
}

static CHECKS: OnceLock<Checks> = OnceLock::new();

/// The checks, if any are requested and the driver is initialised.
pub fn get() -> Option<&'static Checks> {
    CHECKS.get()
}

/// The checks that kernels are to make.
pub fn of_kernels() -> KernelChecks {
    get().map_or(KernelChecks::default(), |checks| checks.kernels)
}

/// Starts the checks, if any are requested. `kernels`: whether kernels run in this process.
pub fn start(space: &Arc<Space>, kernels: bool) {
    /// Not on the kernel lane, where nothing resolves a refused access.
    const CANNOT_GUARD: &str = "what the host does with device memory, and what kernels reach through pointers, is not looked at: kernels do not run in this process";
    let asked = &settings::get().checks;
    if !asked.any() || CHECKS.get().is_some() {
        return;
    }
    let portable = asked.portable;
    let mut wanted = KernelChecks {
        memory: asked.memory,
        init: asked.init,
        portable,
        reach: portable && kernels,
        races: asked.races && kernels,
        sync: asked.sync && kernels,
    };
    let accesses = wanted.memory || wanted.init;
    let mut shadow = None;
    if accesses && kernels {
        shadow = Shadow::new(space);
        if shadow.is_none() {
            collector::note(
                "kernels are not checked: there are no addresses for the states of memory",
            );
        }
    } else if accesses {
        collector::note("kernels are not checked: they do not run in this process");
    }
    if portable && !kernels {
        collector::note(CANNOT_GUARD);
    }
    let cells = if wanted.races { Cells::new(Addresses::of(space)) } else { None };
    wanted.races = cells.is_some();
    if asked.races && cells.is_none() {
        collector::note(match kernels {
            true => {
                "races are not looked for: there are no addresses for what is remembered of accesses"
            }
            false => "races are not looked for: kernels do not run in this process",
        });
    }
    let host_races = cells.as_ref().and_then(|_| HostRaces::wanted());
    if shadow.is_none() {
        wanted = KernelChecks { memory: false, init: false, ..wanted };
    }
    if shadow.is_some() || cells.is_some() {
        space.open(given_out);
    }
    let checks = Checks {
        kernels: wanted,
        space: Arc::clone(space),
        shadow,
        cells,
        history: History::default(),
        watched: Kernels::default(),
        launches: Launches::default(),
        uses: Uses::default(),
        handles: Handles::default(),
        order: (asked.races || asked.sync)
            .then(|| Order::with(host_races.as_ref().map(|it| Arc::clone(&it.in_use)))),
        host_races,
        portable,
        guards: portable && kernels,
        guarded: Guarded::default(),
        program: Program::default(),
        faults: Mutex::default(),
        all_defined: AtomicBool::new(false),
    };
    if CHECKS.set(checks).is_ok() {
        collector::start();
        if let Some(races) = get().and_then(Checks::host_races)
            && !races.start()
        {
            collector::note(
                "races with the host's accesses are not looked for: there is no thread",
            );
        }
        crate::process::set_checked(finish);
    }
}

/// A call of an entry point, until this is dropped.
pub struct Inside {
    _making: Option<Making<'static>>,
    _inside: calls::Inside,
    _rights: Option<Rights>,
}

/// Notes that this thread is in the entry point of this name, until the returned value is dropped.
#[cold]
pub fn enter(function: &'static str) -> Inside {
    let is_outermost = !calls::is_inside();
    let inside = calls::enter(function);
    let rights = get().and_then(Checks::host_races).map(|_| Rights::take(is_outermost));
    let making = get().and_then(|checks| {
        if checks.portable {
            checks.program.calls(function);
            checks.tell_touches();
        }
        if settings::get().checks.leaks { checks.handles.begin(function) } else { None }
    });
    Inside { _making: making, _inside: inside, _rights: rights }
}

/// An access of this process was refused, at an address that `by_device` or the host has accessed: whether it is to
/// be tried again. Called in a handler of signals.
pub fn refused(address: u64, writes: bool, by_device: bool) -> bool {
    let Some(checks) = get().filter(|checks| checks.guards) else { return false };
    let by_host = !by_device && !calls::is_inside();
    let epoch = if by_host { checks.history.epoch() } else { 0 };
    checks.guarded.refused(address, writes, by_host, epoch)
}

/// An access of this process was refused since its thread has no right to it: whether it is to be tried again. Called in
/// a handler of signals.
pub fn refused_by_key(address: u64, writes: bool, by_device: bool) -> bool {
    let Some(races) = get().and_then(Checks::host_races) else { return false };
    races.refused(address, writes, !by_device && !calls::is_inside())
}

/// Reports the latest findings and writes the files. Called when the process ends.
fn finish() -> Option<i32> {
    if let Some(checks) = get() {
        if let Some(races) = &checks.host_races {
            races.settle();
        }
        checks.drain();
        checks.tell_touches();
        if let Some(order) = &checks.order {
            order.tell_what_still_waits();
        }
        if checks.watched.has_dropped() {
            collector::note(collector::DROPPED);
        }
        if settings::get().checks.leaks {
            checks.tell_leaks();
        }
    }
    collector::finish()
}

/// Reports the latest findings of kernels.
#[cold]
pub fn drain() {
    if let Some(checks) = get() {
        checks.drain();
    }
}

/// Notes that addresses are allocated or freed. The driver's own memory, and memory that the application maps,
/// counts as written; the application's allocations get their states when they are made.
fn given_out(start: u64, size: u64, given: bool) {
    if let Some(shadow) = get().and_then(|checks| checks.shadow.as_ref()) {
        shadow.set(start, size, if given { DEFINED } else { NO_MEMORY });
    }
}

/// The device starts the command with this number, in the execution of a regular list with this base.
pub fn started(command: u32, base: u64) {
    if let Some(checks) = get() {
        checks.command_starts(command, base);
    }
}

/// Memory of a work-group, which kernels also reach through generic pointers, so like other memory it has
/// states. Null if no kernels are checked.
pub fn take_group_memory(bytes: usize) -> *mut u8 {
    let memory = get().and_then(|checks| checks.take_group_memory(bytes as u64));
    memory.map_or(std::ptr::null_mut(), crate::space::pointer)
}

/// Takes back memory of [`take_group_memory`].
pub fn give_group_memory(memory: *mut u8, bytes: usize) {
    if let Some(checks) = get() {
        checks.give_group_memory(memory as u64, bytes as u64);
    }
}

/// The first run of an execution of a launch: its first group asks ([`watch::BEGIN`]).
///
/// [`watch::BEGIN`]: tally_compiler_protocol::checks::watch::BEGIN
pub extern "C" fn begin(block: u64, launch: u64, groups: u32) -> u32 {
    get().and_then(|checks| checks.begins(block, launch, groups)).unwrap_or(0)
}

/// Whether an execution is ordered before another one: kernels ask ([`watch::ORDERED`]).
///
/// [`watch::ORDERED`]: tally_compiler_protocol::checks::watch::ORDERED
pub extern "C" fn is_ordered(run: u32, mine: u32) -> u64 {
    let Some(checks) = get() else { return ordered::YES };
    let (Some(cells), Some(order)) = (&checks.cells, &checks.order) else { return ordered::YES };
    cells.is_ordered(run, mine, |earlier, later| order.ordered(earlier, later))
}

impl Checks {
    /// Whether the check for other devices (`portable`) is on.
    pub fn is_portable(&self) -> bool {
        self.portable
    }

    /// Whether the host's waits matter.
    pub fn attends(&self) -> bool {
        self.portable || self.order.is_some()
    }

    /// What orders commands, if anything needs to know.
    pub fn order(&self) -> Option<&Order> {
        self.order.as_ref()
    }

    /// Notes an allocation. `defined`: the memory may hold data that the program has written.
    pub fn allocated(&self, base: u64, size: u64, kind: Kind, defined: bool) {
        if let Some(races) = self.host_races.as_ref().filter(|_| kind.is_for_host()) {
            races.in_use.add(base, size);
        }
        self.history.made(base, size, kind);
        self.watched.set_epoch(self.history.epoch());
        if let Some(cells) = &self.cells {
            cells.forget(base, size);
        }
        if let Some(shadow) = &self.shadow {
            // The other addresses that were allocated for it do not belong to it.
            if let Some((start, all)) =
                self.space.range_of(base).filter(|&(start, _)| start == base)
            {
                shadow.set(start, all, NO_MEMORY);
            }
            let defined = defined || !self.kernels.init || self.all_defined.load(Ordering::Relaxed);
            shadow.set(base, size, if defined { DEFINED } else { UNDEFINED });
        }
    }

    /// Notes that an allocation consists of variables, given by address, size and name.
    pub fn divided(
        &self,
        base: u64,
        size: u64,
        variables: impl Iterator<Item = (u64, u64, String)>,
    ) {
        if let Some(shadow) = &self.shadow {
            shadow.set(base, size, NO_MEMORY);
        }
        for (address, size, name) in variables {
            self.history.part(base, address, size, Kind::Variable(name));
            if let Some(shadow) = &self.shadow {
                shadow.set(address, size, DEFINED);
            }
        }
        self.watched.set_epoch(self.history.epoch());
    }

    /// Notes that an allocation was freed.
    pub fn freed(&self, base: u64) {
        self.check_unused(base);
        self.unguard(base);
        if let Some(races) = &self.host_races {
            races.in_use.forget(base);
        }
        if let (Some(size), Some(shadow)) = (self.history.freed(base), &self.shadow) {
            shadow.set(base, size, NO_MEMORY);
        }
        self.watched.set_epoch(self.history.epoch());
    }

    /// The memory of an image's texels was freed.
    pub fn image_freed(&self, base: u64) {
        if let (Some(size), Some(shadow)) = (self.history.freed(base), &self.shadow) {
            shadow.set(base, size, NO_MEMORY);
        }
        self.watched.set_epoch(self.history.epoch());
    }

    /// Begins to watch a kernel's code. Code without `sites` checks nothing, and its writes are unknown, so all
    /// memory counts as written from then on.
    pub fn watch(&self, kernel: &str, sites: Option<&Sites>) -> Option<Arc<Watched>> {
        if !self.kernels.any() {
            return None;
        }
        if let Some(sites) = sites {
            let states = self.shadow.as_ref().map_or(0, Shadow::states);
            let addresses = Addresses::of(&self.space);
            return Some(self.watched.add(addresses, states, &self.cell_fields(), kernel, sites));
        }
        let kernel = names::demangled(kernel);
        collector::note(&format!(
            "kernel '{kernel}' is not checked: its code comes from elsewhere, or it is too large"
        ));
        if let Some(shadow) = self.shadow.as_ref().filter(|_| self.kernels.init)
            && !self.all_defined.swap(true, Ordering::Relaxed)
        {
            collector::note("from now on all memory counts as written");
            self.history
                .pieces()
                .into_iter()
                .for_each(|(base, size)| shadow.set(base, size, DEFINED));
        }
        None
    }

    /// Reports that the current call frees an address at which no allocation begins.
    pub fn freed_badly(&self, address: u64) {
        let epoch = self.history.epoch();
        let (rule, message) = match self.history.find(address, epoch) {
            Found::Freed(it, 0) => {
                (Rule::DoubleFree, format!("{} is freed a second time", describe::name(&it.kind)))
            }
            _ => (Rule::BadFree, "an address is freed at which no allocation begins".to_owned()),
        };
        let (memory, _) = self.place(address, 0, epoch);
        collector::add(Report { memory, ..Report::of_call(rule, message) }, None);
    }

    /// Reports that the device has stopped because a command faulted. Called on a thread of the device.
    pub fn faulted(&self, fault: Fault) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
    }

    fn tell_leaks(&self) {
        for it in self.history.left() {
            let (caller, size) = (it.maker, it.size);
            let (kind, bytes) = (describe::name(&it.kind), describe::bytes(size));
            let message = format!("{kind} of {bytes} is never freed");
            let memory = describe::memory_of(it.clone(), it.base, size, "all of it".to_owned());
            let report = Report {
                memory: Some(memory),
                call: None,
                ..Report::of_call(Rule::NotFreed, message)
            };
            collector::add_of_caller(caller, report);
        }
        for Left { kind, made, maker } in self.handles.left() {
            let message = format!("{} is never destroyed", kind.name());
            let report =
                Report { call: Some(made), ..Report::of_call(Rule::NotDestroyed, message) };
            collector::add_of_caller(maker, report);
        }
    }

    fn tell_fault(&self, fault: Fault) {
        let found = (fault.kind == FaultKind::PageFault)
            .then(|| self.watched.outside(fault.address))
            .flatten();
        let report = match found {
            Some(record) => self.describe_fault(&record, fault.address),
            None => {
                let what = fault.kind.name();
                let mut report = Report::of_call(
                    Rule::DeviceFault,
                    format!("a command has stopped the device: {what} at {:#x}", fault.address),
                );
                report.call = None;
                report
            }
        };
        collector::add(report, None);
    }

    /// What a kernel's block says of the cells.
    fn cell_fields(&self) -> Vec<(u32, u64)> {
        let Some(cells) = &self.cells else { return Vec::new() };
        vec![
            (watch::CELLS, cells.cells()),
            (watch::BEGIN, begin as *const () as u64),
            (watch::ORDERED, is_ordered as *const () as u64),
            (watch::RELEASES, cells.releases()),
            (watch::FLAGS, settings::get().checks.same_values.into()),
        ]
    }

    /// What is remembered of accesses, if races are looked for.
    pub fn cells(&self) -> Option<&Cells> {
        self.cells.as_ref()
    }

    /// The first run of an execution of a launch that begins; 0 if nothing is remembered of it.
    fn begins(&self, block: u64, launch: u64, groups: u32) -> Option<u32> {
        let (cells, order) = (self.cells.as_ref()?, self.order.as_ref()?);
        let launch = launch & !hidden::REACHES_ALL;
        let watched = self.watched.find(block)?;
        Some(cells.begin(watched, launch, groups, order.of_launch(launch)))
    }

    fn take_group_memory(&self, bytes: u64) -> Option<u64> {
        if self.shadow.is_none() && self.cells.is_none() {
            return None;
        }
        let memory = self.space.alloc(bytes, PAGE_SIZE)?;
        if !self.space.fill(memory, bytes) {
            self.space.free(memory, bytes);
            return None;
        }
        Some(memory)
    }

    fn give_group_memory(&self, base: u64, bytes: u64) {
        if self.shadow.is_some() || self.cells.is_some() {
            // SAFETY: the memory was taken from there, and the thread that used it ends.
            unsafe { self.space.close(base, bytes) };
            self.space.free(base, bytes);
        }
    }

    fn drain(&self) {
        let found = self.watched.take();
        for record in found {
            if log::is_on() {
                record.watched.tell_again(record.site);
            }
            if let Some(report) = self.describe(&record) {
                collector::add(report, Some((record.watched, record.site)));
            }
        }
        let faults =
            std::mem::take(&mut *self.faults.lock().unwrap_or_else(PoisonError::into_inner));
        faults.into_iter().for_each(|fault| self.tell_fault(fault));
        let lost = self.watched.lost();
        if lost != 0 {
            collector::note(
                "kernels made mistakes faster than they could be told: some are missing",
            );
        }
    }
}
