// SPDX-License-Identifier: MIT OR Apache-2.0
//! Races between the program's own accesses and commands.
//!
//! Memory that commands use is closed to the program until it knows that they are complete ([`super::in_use`]). An
//! access to it raises a signal, and takes its place among the accesses that the memory's cells remember, as one of an
//! execution of its own ([`super::order::Order::host_accesses`]). So a command that has accessed the memory before is
//! found at once, and one that does so later finds the program's access.
//!
//! The program may learn that something is complete from memory, too: kernels tell it by atomics, and it tells them. So
//! an access of the program's is no race with commands that were submitted before it looked at any page in which a
//! kernel has accessed anything atomically. Nor is it while a kernel runs of whose atomics it is not known where
//! they are.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use tally_compiler_protocol::checks::{SiteKind, Space};
use tally_uapi::PAGE_SIZE;

use super::calls::{self, Host};
use super::cells::{InKernel, Who};
use super::in_use::{ANYWHERE, InUse};
use super::order::{Execution, Named, Use};
use super::report::{Report, Rule, Second};
use super::{Checks, Launching, collector, describe, keys, names};
use crate::settings;

/// Number of accesses, and of pages, that are remembered.
const REMEMBERED: usize = 1 << 14;
const LIMITS: &str = "of memory that commands use, the host's first access to each page is looked at, until it submits or waits again";

/// See the module's description.
pub struct HostRaces {
    pub in_use: Arc<InUse>,
    accesses: Mutex<Accesses>,
    clerk: OnceLock<Clerk>,
}

#[derive(Default)]
struct Accesses {
    by_execution: BTreeMap<Execution, Access>,
    /// Pages that the program has accessed.
    pages: VecDeque<(u64, Execution)>,
}

#[derive(Clone)]
struct Access {
    host: Host,
    writes: bool,
    /// Whether a kernel ran of whose atomics it is not known where they are.
    is_blind: bool,
}

/// An access that was refused.
struct Touch {
    address: u64,
    writes: bool,
    host: Host,
    /// Whether the access may go on.
    done: Mutex<bool>,
    is_done: Condvar,
}

/// A thread that does what takes more room than a handler has on a stack for signals.
struct Clerk {
    queue: Arc<Queue>,
    /// The process. A copy of it has no such thread.
    process: u32,
}

#[derive(Default)]
struct Queue {
    touches: Mutex<VecDeque<Arc<Touch>>>,
    changed: Condvar,
    /// Whether the clerk has something to do.
    is_busy: AtomicBool,
}

fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Clerk {
    fn start() -> Option<Self> {
        let queue = Arc::<Queue>::default();
        let mine = Arc::clone(&queue);
        let name = "tally-host-races".to_owned();
        thread::Builder::new().name(name).spawn(move || mine.serve()).ok()?;
        Some(Self { queue, process: std::process::id() })
    }

    /// Has an access looked at; returns when it may go on.
    fn ask(&self, touch: Touch) {
        let touch = Arc::new(touch);
        lock(&self.queue.touches).push_back(Arc::clone(&touch));
        self.queue.changed.notify_all();
        let mut done = lock(&touch.done);
        while !*done {
            done = touch.is_done.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until all accesses so far are reported.
    fn settle(&self) {
        let mut touches = lock(&self.queue.touches);
        while !touches.is_empty() || self.queue.is_busy.load(Ordering::Relaxed) {
            touches = self.queue.changed.wait(touches).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Queue {
    fn serve(&self) {
        keys::allow();
        let mut touches = lock(&self.touches);
        loop {
            while let Some(touch) = touches.pop_front() {
                self.is_busy.store(true, Ordering::Relaxed);
                drop(touches);
                if let Some(checks) = super::get() {
                    checks.host_touched(&touch);
                }
                touches = lock(&self.touches);
            }
            self.is_busy.store(false, Ordering::Relaxed);
            self.changed.notify_all();
            touches = self.changed.wait(touches).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Touch {
    fn go_on(&self) {
        *lock(&self.done) = true;
        self.is_done.notify_all();
    }
}

/// A host function that runs, until this is dropped.
pub struct InFunction {
    cell: u64,
}

/// Notes that this thread of the driver calls the host function with this cell, which has no rights that the program
/// does not have.
pub fn in_function(cell: u64) -> Option<InFunction> {
    super::get()?.order()?;
    keys::deny();
    Some(InFunction { cell })
}

impl Drop for InFunction {
    fn drop(&mut self) {
        keys::allow();
        if let Some(order) = super::get().and_then(Checks::order) {
            order.function_returns(self.cell);
        }
    }
}

/// The rights of a thread that is in an entry point, until this is dropped.
pub struct Rights {
    is_outermost: bool,
}

impl Rights {
    /// Gives them to this thread, which has just entered.
    pub fn take(is_outermost: bool) -> Self {
        keys::allow();
        Self { is_outermost }
    }
}

impl Drop for Rights {
    fn drop(&mut self) {
        if self.is_outermost {
            keys::deny();
        }
    }
}

/// Whether this handler of a signal runs on the thread's own stack, which is larger than those for signals.
fn has_room() -> bool {
    let mut now = MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: the call writes to memory that is ours; all zeros are a valid value, too.
    let now = unsafe {
        libc::sigaltstack(std::ptr::null(), now.as_mut_ptr());
        now.assume_init()
    };
    now.ss_flags & libc::SS_ONSTACK == 0
}

impl HostRaces {
    /// Begins to look for such races, if that is possible.
    pub fn wanted() -> Option<Self> {
        let settings = settings::get();
        let why_not = match () {
            () if settings.record.is_some() || settings.replay => {
                "the driver reads memory for a recording, or writes it for a replay"
            }
            () if !keys::prepare() => "this machine has no protection keys",
            () => {
                let in_use = Arc::new(InUse::new(keys::protect));
                return Some(Self { in_use, accesses: Mutex::default(), clerk: OnceLock::new() });
            }
        };
        collector::note(&format!("races with the host's accesses are not looked for: {why_not}"));
        None
    }

    /// Starts the thread that looks at accesses. False: there is none.
    pub fn start(&self) -> bool {
        match Clerk::start() {
            Some(clerk) => self.clerk.set(clerk).is_ok(),
            None => false,
        }
    }

    /// An access was refused: whether it is to be tried again. Called in the handler of the signal.
    pub fn refused(&self, address: u64, writes: bool, by_host: bool) -> bool {
        let clerk = self.clerk.get().filter(|it| by_host && it.process == std::process::id());
        if let Some(clerk) = clerk.filter(|_| self.in_use.is_used(address)) {
            let (host, done, is_done) = (calls::host(), Mutex::new(false), Condvar::new());
            let touch = Touch { address, writes, host, done, is_done };
            match super::get().filter(|_| has_room()) {
                Some(checks) => checks.host_touched(&touch),
                None => clerk.ask(touch),
            }
        }
        self.in_use.open(address)
    }

    /// Waits until all accesses so far are reported.
    pub fn settle(&self) {
        if let Some(clerk) = self.clerk.get().filter(|it| it.process == std::process::id()) {
            clerk.settle();
        }
    }
}

impl Accesses {
    fn add(&mut self, execution: Execution, address: u64, access: Access) {
        while self.by_execution.len() >= REMEMBERED {
            self.by_execution.pop_first();
        }
        self.by_execution.insert(execution, access);
        if self.pages.len() == REMEMBERED {
            self.pages.pop_front();
        }
        self.pages.push_back((address / PAGE_SIZE * PAGE_SIZE, execution));
    }
}

impl Checks {
    /// Races of the program's own accesses, if they are looked for.
    pub fn host_races(&self) -> Option<&HostRaces> {
        self.host_races.as_ref()
    }

    /// Notes the memory that a launch with this number will use.
    pub(super) fn launch_uses(&self, number: u64, launching: &Launching<'_>) {
        let (Some(order), Some(watched), Some(_)) =
            (&self.order, launching.watched, &self.host_races)
        else {
            return;
        };
        let sites = &watched.sites;
        let is_written = |index: usize| sites.written.contains(&(index as u32));
        let pointers = launching.pointers.iter().filter(|it| it.1 != ANYWHERE);
        let uses = pointers.map(|&(at, address)| Use { address, writes: is_written(at) });
        let mut uses: Vec<Use> = uses.collect();
        let mut atomics = sites.sites.iter().filter(|it| {
            matches!(it.kind, SiteKind::Touch { atomic: true, .. }) && it.space != Space::Local
        });
        let elsewhere = launching.pointers.iter().any(|it| !self.space.contains(it.1));
        if atomics.any(|it| elsewhere || it.object.is_empty()) {
            uses.push(Use { address: ANYWHERE, writes: false });
        }
        order.launch_uses(number, uses);
    }

    /// The program accesses memory that commands use. Called by the clerk, while the program's thread waits.
    fn host_touched(&self, touch: &Touch) {
        let &Touch { address, writes, ref host, .. } = touch;
        let (Some(order), Some(cells), Some(races)) = (&self.order, &self.cells, &self.host_races)
        else {
            return touch.go_on();
        };
        let is_word = order.words_in(address & !7, 8).iter().any(|it| address - it.0 < 8);
        if is_word || !races.in_use.is_used(address) {
            return touch.go_on();
        }
        let execution = order.host_accesses(host.caller);
        let is_blind = races.in_use.is_used(ANYWHERE);
        let access = Access { host: host.clone(), writes, is_blind };
        lock(&races.accesses).add(execution, address, access.clone());
        let ask = |earlier, later| order.ordered(earlier, later);
        let raced = cells.access_by_host(address, writes, execution, ask);
        let epoch = self.history.epoch();
        touch.go_on();
        collector::note(LIMITS);
        for it in raced {
            self.tell_host_race(execution, &access, &it.other, (it.address, epoch));
        }
    }

    /// Reports that a command races with the program's access, if `execution` is one. `other`: what has accessed the
    /// memory at the address, too, as it was at an epoch. Whether it is one.
    pub(super) fn is_host_race(&self, execution: Execution, other: &Who, at: (u64, u64)) -> bool {
        let Some(races) = &self.host_races else { return false };
        let access = lock(&races.accesses).by_execution.get(&execution).cloned();
        let Some(access) = access else { return false };
        self.tell_host_race(execution, &access, other, at);
        true
    }

    fn tell_host_race(&self, access: Execution, it: &Access, other: &Who, at: (u64, u64)) {
        let Some(order) = &self.order else { return };
        if it.is_blind || self.may_know(access, other.execution) {
            return;
        }
        let Some(command) = order.named(other.execution) else { return };
        let (memory, place) = self.place(at.0, 1, at.1);
        let verb = |writes| if writes { "writes" } else { "reads" };
        let kernel = other.kernel.as_ref().map(|it| names::demangled(&it.watched.kernel));
        let who = kernel.map_or("a command".to_owned(), |name| format!("kernel '{name}'"));
        let message = format!(
            "the host {} {place} what {who} {}, and nothing orders the two",
            verb(it.writes),
            verb(other.writes)
        );
        let second = other.kernel.as_ref().map(|it| second(it, verb(other.writes)));
        let report = Report {
            memory,
            second,
            call: Some(command.call.clone()),
            host: Some(it.host.clone()),
            notes: vec![missing(&command)],
            ..Report::of_call(Rule::HostRace, message)
        };
        let mut hasher = DefaultHasher::new();
        let site = other.kernel.as_ref().and_then(|it| it.site);
        (it.host.caller, command.caller, site).hash(&mut hasher);
        collector::add_of_caller(hasher.finish(), report);
    }

    /// Whether program and command may know of each other by memory that kernels access atomically.
    fn may_know(&self, access: Execution, command: Execution) -> bool {
        let (Some(order), Some(cells), Some(races)) = (&self.order, &self.cells, &self.host_races)
        else {
            return true;
        };
        let pages = lock(&races.accesses).pages.clone();
        let mut pages: Vec<u64> =
            pages.into_iter().filter(|it| it.1 > command).map(|it| it.0).collect();
        pages.sort_unstable();
        pages.dedup();
        let counts = |execution| !order.ordered(execution, access);
        pages.into_iter().any(|page| cells.has_atomics(page, PAGE_SIZE, counts))
    }
}

/// The place in a kernel that accesses what the program does.
fn second(it: &InKernel, verb: &str) -> Second {
    let site = it.site.and_then(|site| it.watched.sites.sites.get(site as usize));
    let place = site.map(|site| describe::place(&it.watched, site));
    let what = format!("kernel '{}' {verb} it", names::demangled(&it.watched.kernel));
    Second { what, place, item: None }
}

/// What would order the program and a command.
fn missing(command: &Named) -> String {
    let call = command.call.number;
    let signals = if command.signals { "signals" } else { "would have to signal" };
    format!(
        "the host needs a wait before: for an event that call {call} {signals}, or for the list that call {} made; or call {call} has to come later",
        command.list
    )
}
