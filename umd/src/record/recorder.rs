// SPDX-License-Identifier: MIT OR Apache-2.0
//! The recorder: what happens around each call, and what it keeps in mind between calls.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use tally_ze::call::Words;
use tally_ze::*;

use super::arguments::{Encoded, object};
use super::file::{open, program};
use super::functions::{self, Around};
use super::host::Host;
use super::memory::{self, Masked, Memory};
use super::settle::{LEAST_PATIENCE, PATIENCE, Settled, settle};
use super::threads::Places;
use super::touches::{Kernels, Touches};
use crate::api::{graph, runtime};
use crate::backend::embedded::gate;
use crate::handle::RawHandle;
use crate::recording::calls::{Class, ROWS, Row};
use crate::recording::{Begin, Bytes, Call, Record, SETTINGS, Value, Writer, hash};
use crate::submit::activity::{self, Standing};
use crate::vm::Vm;
use crate::{process, settings, space};

/// The most bytes of which it is left open whether the host or the device has changed them, if the device has nothing
/// left to run, and if a command runs.
const EITHER: usize = 64 << 10;
const LATE: usize = 4096;
/// How often the end of the process asks for the recorder, with a millisecond in between.
const TRIES: u32 = 500;
/// The lane on which the device is in this process.
const EMBEDDED: &str = "embedded";

/// A list or a queue.
#[derive(Clone, Default)]
pub(super) struct Target {
    pub(super) immediate: bool,
    /// It waits for each command. The driver's object does not: the recorder waits, so that no other thread's
    /// calls wait for that.
    pub(super) synchronous: bool,
    /// The program's own memory of commands of a regular list.
    pub(super) reads: Vec<(u64, u64)>,
    pub(super) writes: Vec<(u64, u64)>,
    pub(super) touches: Touches,
}

/// See the module's description.
pub struct Recorder {
    pub(super) file: Option<Writer<File>>,
    /// Numbers of objects, by their handles.
    pub(super) objects: HashMap<u64, u32>,
    /// Handles of images and samplers.
    pub(super) images: HashSet<u64>,
    pub(super) targets: HashMap<u32, Target>,
    pub(super) made: u32,
    pub(super) memory: Memory,
    pub(super) vm: Weak<Vm>,
    pub(super) settled: Settled,
    /// What queues did then.
    standing: Option<Standing>,
    reservation: (u64, u64),
    /// The program's memory as it was recorded last.
    host: Host,
    /// The program's memory that commands read which are not complete.
    reads: BTreeSet<(u64, u64)>,
    /// The program's memory that commands have written since all work was complete.
    written: Vec<(u64, u64)>,
    /// Memory of commands that were captured, which any graph may run.
    captured: Target,
    pub(super) kernels: Kernels,
    /// Lists and queues with work that is not complete, by their numbers.
    busy: Touches,
    /// The number of host functions that run, of those that have ended, and of calls that wait for some.
    pub(super) running: u32,
    pub(super) ended: u64,
    pub(super) turns: u32,
    /// How long the device may run before a call ends, and how long at most.
    patience: Duration,
    most_patience: Duration,
    /// How often the device was let go on.
    pub(super) sections: u64,
    /// Where the program's other threads were when the device was let go on.
    pub(super) places: Option<Places>,
    /// Whether the device has a gate.
    has_gate: bool,
    /// Called around host functions.
    around: Around,
    /// The number of host functions that were appended.
    pub(super) functions: u32,
    counters: HashSet<u64>,
    /// Whether there are any, wherever they lie.
    has_words: bool,
    threads: HashMap<ThreadId, u32>,
    calls: u64,
    noted: HashSet<String>,
}

static RECORDER: Mutex<Option<Recorder>> = Mutex::new(None);

pub(super) type Guard = MutexGuard<'static, Option<Recorder>>;

pub(super) fn lock() -> Guard {
    RECORDER.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorder {
    /// Whether the driver would refuse a call since the list is synchronous, which its own object is not.
    pub(super) fn refuses(&self, row: &Row, words: &Words) -> bool {
        let raw = words.as_slice().first();
        let target = raw.and_then(|raw| self.targets.get(self.objects.get(raw)?));
        let graphs = row.name.contains("BeginGraph") || row.name.contains("AppendGraph");
        graphs && target.is_some_and(|it| it.synchronous)
    }

    /// Opens the file, once there is a device.
    pub(super) fn begin(around: Around) -> Option<Self> {
        // SAFETY: takes a number.
        let device = unsafe { runtime::zerTranslateIdentifierToDeviceHandle(0) };
        // SAFETY: devices live as long as the process.
        let device =
            unsafe { object::<ze_device_handle_t>(device.as_ptr().expose_provenance() as u64) }?;
        let reservation = (device.gpu().space().start(), device.gpu().space().size());
        let begin = Begin {
            driver: env!("CARGO_PKG_VERSION").to_owned(),
            program: format!("{} {}", program(), std::process::id()),
            lane: device.gpu().backend().lane().to_owned(),
            settings: SETTINGS
                .iter()
                .filter_map(|&name| Some((name.to_owned(), std::env::var(name).ok()?)))
                .collect(),
            reservation,
            names: ROWS.iter().map(|row| row.name.to_owned()).collect(),
        };
        let path = settings::get().record.clone()?;
        let opened = open(&path).and_then(|file| {
            let mut file = Writer::new(file)?;
            file.add(&Record::Begin(begin))?;
            file.flush()?;
            Ok(file)
        });
        let file = opened.inspect_err(|error| {
            log::error!("TALLY_RECORD: {}: {error}; nothing is recorded", path.display());
        });
        process::set_recorded(finish);
        let most_patience = settings::get().record_ms.map_or(PATIENCE, Duration::from_millis);
        Some(Self {
            file: file.ok(),
            objects: HashMap::new(),
            images: HashSet::new(),
            targets: HashMap::new(),
            made: 0,
            memory: Memory::default(),
            vm: Weak::new(),
            settled: Settled::Idle,
            standing: None,
            reservation,
            host: Host::default(),
            reads: BTreeSet::new(),
            written: Vec::new(),
            captured: Target::default(),
            kernels: Kernels::default(),
            busy: Touches::default(),
            running: 0,
            ended: 0,
            turns: 0,
            sections: 0,
            patience: most_patience,
            most_patience,
            places: None,
            has_gate: device.gpu().backend().lane() == EMBEDDED,
            around,
            functions: 0,
            counters: HashSet::new(),
            has_words: false,
            threads: HashMap::new(),
            calls: 0,
            noted: HashSet::new(),
        })
    }

    fn add(&mut self, record: &Record) {
        if let Some(file) = &mut self.file
            && let Err(error) = file.add(record)
        {
            self.failed(&error);
        }
    }

    /// Writes what was added, so that it is there if the program is killed.
    pub(super) fn flush(&mut self) {
        if let Some(Err(error)) = self.file.as_mut().map(Writer::flush) {
            self.failed(&error);
        }
    }

    fn failed(&mut self, error: &std::io::Error) {
        log::error!("TALLY_RECORD: {error}; nothing more is recorded");
        self.file = None;
    }

    /// Says once what is not kept.
    pub(super) fn not_kept(&mut self, what: String) {
        if self.noted.insert(what.clone()) {
            self.add(&Record::NotKept(what));
        }
    }

    /// Whether an address is one of the driver's, so that a replay can have it, too.
    pub(super) fn is_reserved(&self, address: u64) -> bool {
        address.wrapping_sub(self.reservation.0) < self.reservation.1
    }

    pub(super) fn keep(&mut self, call: usize, result: ze_result_t, args: Vec<Value>) {
        self.calls += 1;
        let threads = self.threads.len() as u32;
        let thread = *self.threads.entry(thread::current().id()).or_insert(threads + 1);
        let call = Call { number: self.calls, thread, call: call as u16, result: result.0, args };
        self.add(&Record::Call(call));
    }

    /// Whether a function of the host runs.
    pub(super) fn is_in_function(&self) -> bool {
        self.running != 0
    }

    /// Whether a function of the host runs, or a call waits for one.
    pub(super) fn is_at_work(&self) -> bool {
        self.running != 0 || self.turns != 0
    }

    /// Makes a call that does not wait, and records it; whether the device may go on behind it.
    ///
    /// # Safety
    /// The words are arguments as the specification wants them.
    pub(super) unsafe fn made(
        &mut self,
        call: usize,
        row: &Row,
        words: &Words,
        real: &dyn Fn(&Words) -> ze_result_t,
        mut encoded: Encoded,
    ) -> (ze_result_t, bool) {
        let raw = |i: usize| words.as_slice().get(i).copied().unwrap_or_default();
        let subject = self.objects.get(&raw(0)).copied().unwrap_or_default();
        let submits = match row.class {
            Class::Submits => true,
            Class::Appends => self.appends(row, subject, raw(0), &encoded),
            // It may wait for the device.
            _ if self.settled != Settled::Idle && may_wait(row) => {
                self.before();
                gate::open();
                true
            }
            _ => false,
        };
        for &(address, bytes) in &encoded.clocks {
            self.memory.is_clock(address, bytes);
        }
        self.has_words |= !encoded.counters.is_empty();
        for &word in &encoded.counters {
            self.memory.is_word(word, encoded.raised.contains(&word));
        }
        let counters = encoded.counters.iter().filter(|&&it| it != 0 && !self.is_reserved(it));
        let counters: Vec<u64> = counters.copied().collect();
        self.counters.extend(&counters);
        // A replay finds from these where the words are.
        let counters = counters.into_iter().map(|it| Value::Memory(it, size_of::<u64>() as u64));
        if submits && !may_wait(row) {
            let work = self.work(row, &encoded);
            self.reads.extend(work.reads);
            self.before();
            self.written.extend(work.writes);
            self.busy.extend(&work.touches);
        }
        // SAFETY: as the caller promises.
        let (mut words_of_call, _kept) = unsafe { asynchronous(row, words, &mut encoded) };
        if let ("zeCommandListAppendHostFunction", Some(&Value::Word(function))) =
            (row.name, encoded.values.get(1))
        {
            let mut changed = *words;
            functions::replace(&mut changed, function as u32, self.around);
            words_of_call = Some(changed);
        }
        let result = real(words_of_call.as_ref().unwrap_or(words));
        if result == ze_result_t::ZE_RESULT_SUCCESS {
            // SAFETY: as the caller promises; the call has written what it returns.
            unsafe { self.done(row, words, subject, &mut encoded.values) };
            for (value, &word) in encoded.values.iter().rev().zip(&encoded.raised) {
                if let Value::New(event) = *value {
                    self.kernels.has_counter(event, word);
                }
            }
        }
        encoded.values.extend(counters);
        self.keep(call, result, encoded.values);
        (result, submits && result != ze_result_t::ZE_RESULT_NOT_READY)
    }

    /// Notes memory of a command that is added to a list; whether the device gets it now.
    fn appends(&mut self, row: &Row, subject: u32, raw: u64, encoded: &Encoded) -> bool {
        let immediate = self.targets.get(&subject).is_some_and(|it| it.immediate);
        let raw = ze_command_list_handle_t::from_ptr(space::pointer(raw).cast());
        // SAFETY: the caller's handle.
        let capturing = || unsafe { graph::zeCommandListIsGraphCaptureEnabledExt(raw) };
        if immediate && capturing() != ze_result_t::ZE_RESULT_QUERY_TRUE {
            return true;
        }
        let touches = self.kernels.of_command(row, &encoded.values, &self.memory);
        let target = match immediate {
            true => Some(&mut self.captured),
            false => self.targets.get_mut(&subject),
        };
        if let Some(target) = target {
            target.reads.extend(&encoded.reads);
            target.writes.extend(&encoded.writes);
            target.touches.extend(&touches);
        }
        false
    }

    /// What a submission reads and writes.
    fn work(&self, row: &Row, encoded: &Encoded) -> Target {
        let mut work = Target {
            reads: encoded.reads.clone(),
            writes: encoded.writes.clone(),
            touches: self.kernels.of_command(row, &encoded.values, &self.memory),
            ..Target::default()
        };
        let mut take = |target: &Target| {
            work.reads.extend(&target.reads);
            work.writes.extend(&target.writes);
            work.touches.extend(&target.touches);
        };
        if row.name.contains("AppendGraph") {
            take(&self.captured);
        }
        for list in encoded.values.iter().filter_map(|value| match value {
            Value::List(list) => Some(list),
            _ => None,
        }) {
            let numbers = list.iter().filter_map(|it| match it {
                Value::Object(number) => Some(number),
                _ => None,
            });
            numbers.filter_map(|number| self.targets.get(number)).for_each(&mut take);
        }
        work
    }

    /// Records what the host has written.
    pub(super) fn before(&mut self) {
        self.places.get_or_insert_with(Places::now);
        if self.settled == Settled::Runs {
            self.before_end();
            self.late_writes();
            return;
        }
        if self.has_gate {
            self.host_writes(None);
            return;
        }
        let standing = self.vm.upgrade().map(|vm| activity::standing(&vm));
        if self.settled == Settled::Waits && standing != self.standing {
            // Work has gone on since, so what changed of its memory is taken for its own.
            self.settle();
        }
        self.host_writes(None);
    }

    /// Records what a host function has written.
    pub(super) fn function_writes(&mut self, function: u32, before: u32) {
        let mut records = Vec::new();
        self.memory.by_function(|record| records.push(record));
        for range in self.reads.clone() {
            let Some(bytes) = memory::read(range.0, range.1) else { continue };
            for (address, part) in self.host.changed(range.0, &bytes) {
                records.push(Record::Host { address, data: Bytes(part.to_vec()) });
            }
        }
        let mut words = Vec::new();
        for record in records {
            let (address, mask, data) = match record {
                Record::Memory { address, mask, data } => (address, mask, data),
                Record::Host { address, data } => (address, Bytes::default(), data),
                word => {
                    words.push(word);
                    continue;
                }
            };
            self.add(&Record::Function { function, before, address, mask, data });
        }
        // That it was called is told all the same.
        let (address, mask, data) = (0, Bytes::default(), Bytes::default());
        self.add(&Record::Function { function, before, address, mask, data });
        words.iter().for_each(|word| self.add(word));
    }

    /// Records what the host has written outside of memory that commands touch.
    pub(super) fn host_writes(&mut self, touches: Option<&Touches>) {
        let Some(file) = &mut self.file else { return };
        let mut failed = None;
        self.memory.by_host(touches, |record| {
            if let Err(error) = file.add(&record) {
                failed = Some(error);
            }
        });
        if let Some(error) = failed {
            self.failed(&error);
        }
        let counters = self.counters.iter().map(|&at| (at, size_of::<u64>() as u64));
        let all: Vec<(u64, u64)> = self.reads.iter().copied().chain(counters).collect();
        for range in all {
            let Some(bytes) = memory::read(range.0, range.1) else {
                self.not_kept("memory of the program that could not be read".into());
                continue;
            };
            for (address, part) in self.host.changed(range.0, &bytes) {
                self.add(&Record::Host { address, data: Bytes(part.to_vec()) });
            }
        }
    }

    /// Records what another thread has written while this one was in a call: work may have waited for it.
    fn before_end(&mut self) {
        let touches = self.busy.clone();
        self.memory.take_ranges(&touches);
        if self.settled != Settled::Idle && !touches.all {
            self.host_writes(Some(&touches));
        }
    }

    /// Records what another thread has written while this one waited: it may have waited for a word.
    pub(super) fn after_wait(&mut self) {
        let is_quiet = self.has_gate && self.settled != Settled::Runs;
        if !is_quiet {
            self.before_end();
        }
        if self.settled == Settled::Runs {
            self.late_writes();
        }
        if self.has_words && (is_quiet || self.settled == Settled::Idle) {
            self.host_writes(None);
        }
    }

    /// Whether another thread may have written memory since the device was let go on.
    fn host_has_run(&self) -> bool {
        self.places.as_ref().is_none_or(Places::have_run)
    }

    /// Takes note of what the device has written, or the host if another thread runs.
    fn device_writes(&mut self, most: usize, settled: bool) {
        let mut either = Vec::new();
        let host_runs = self.host_has_run() || !settled;
        self.memory.by_device(&self.busy, host_runs.then_some(&mut either));
        if either.iter().map(Masked::bytes).sum::<usize>() <= most {
            either.into_iter().for_each(|it| self.add(&it.by_either(settled)));
        } else {
            self.not_kept("what threads wrote while others' commands ran, where that was more than 64 KiB at a time: it counts as the commands'".into());
        }
    }

    /// Records what has changed of a command's memory that runs for long.
    fn late_writes(&mut self) {
        self.not_kept("who wrote into memory of commands that went on running behind a call: few bytes count as the host's".into());
        self.device_writes(LATE, false);
    }

    /// Waits for the device, and records what it has written.
    pub(super) fn settle(&mut self) {
        let Some(vm) = self.vm.upgrade() else { return };
        self.settled = Settled::Waits;
        self.sections += 1;
        let begun = Instant::now();
        self.places.get_or_insert_with(Places::now);
        let mut standing;
        let settled = loop {
            gate::open();
            let settled = settle(&vm, self.patience);
            standing = activity::standing(&vm);
            if !self.has_gate || matches!(settled, Settled::Idle | Settled::Runs) {
                break settled;
            }
            gate::close();
            // What was about to go on has gone on, or waits at the gate.
            if activity::standing(&vm) == standing && !standing.runs {
                break settled;
            }
        };
        if self.host_has_run() {
            // A replay has to know before it waits for the same.
            self.memory.changed_words().iter().for_each(|word| self.add(word));
        }
        // A program whose kernels wait for the host may well have many of them.
        self.patience = match settled {
            Settled::Runs => (self.patience / 2).max(LEAST_PATIENCE.min(self.most_patience)),
            _ if begun.elapsed() > self.patience / 2 => self.most_patience,
            _ => self.patience,
        };
        self.before_end();
        self.settled = settled;
        let same = self.standing.replace(standing) == self.standing;
        if vm.is_lost() {
            return;
        }
        // A kernel may have waited for what another thread has written, so a replay gets that before it waits.
        self.device_writes(EITHER, true);
        if matches!(settled, Settled::Waits | Settled::Calls) && !same {
            self.add(&Record::Waits);
        }
        if settled == Settled::Idle {
            self.add(&Record::Idle);
        }
        if self.settled != Settled::Idle {
            return;
        }
        self.busy = Touches::default();
        self.reads.clear();
        let mut records = Vec::new();
        self.memory.expected(|record| records.push(record));
        for (address, size) in std::mem::take(&mut self.written) {
            self.host.forget(address, size);
            if let Some(bytes) = memory::read(address, size) {
                records.push(Record::Expect { address, size, hash: hash(&bytes) });
            }
        }
        records.iter().for_each(|record| self.add(record));
    }
}

/// The words of a call that makes a queue, if it is synchronous, and the description that they point to.
///
/// # Safety
/// The words are arguments as the specification wants them.
unsafe fn asynchronous(
    row: &Row,
    words: &Words,
    encoded: &mut Encoded,
) -> (Option<Words>, Option<Box<ze_command_queue_desc_t>>) {
    let makes = matches!(row.name, "zeCommandListCreateImmediate" | "zeCommandQueueCreate");
    let desc = words.as_slice().get(2).copied().filter(|&desc| makes && desc != 0);
    let Some(desc) = desc else { return (None, None) };
    // SAFETY: as the caller promises.
    let mut desc =
        unsafe { space::pointer(desc).cast::<ze_command_queue_desc_t>().read_unaligned() };
    if desc.mode != ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS {
        return (None, None);
    }
    desc.mode = ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
    if let Value::Chain(links) = &mut encoded.values[2]
        && let Some(link) = links.first_mut()
    {
        let at = std::mem::offset_of!(ze_command_queue_desc_t, mode);
        link.0[at..at + 4].copy_from_slice(&desc.mode.0.to_le_bytes());
    }
    let desc = Box::new(desc);
    let mut changed = *words;
    changed.as_mut_slice()[2] = (&raw const *desc).expose_provenance() as u64;
    (Some(changed), Some(desc))
}

/// Whether a call that hands over nothing may wait for the device.
fn may_wait(row: &Row) -> bool {
    row.class == Class::Ends || row.name.contains("Free") || row.name == "zeCommandListReset"
}

/// Ends the recording.
fn finish() {
    gate::open();
    // A thread that still runs may hold the lock; then what it does is not part of the recording.
    let Some(mut recorder) = (0..TRIES).find_map(|_| {
        RECORDER.try_lock().inspect_err(|_| thread::sleep(Duration::from_millis(1))).ok()
    }) else {
        return;
    };
    if let Some(recorder) = recorder.as_mut() {
        recorder.add(&Record::End);
        recorder.flush();
        recorder.file = None;
    }
}
