// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the recorded calls.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tally_cli::replay::Arguments;
use tally_ze::ze_result_t;
use ze_tally::recording::calls::{Arg, Class, ROWS, Row};
use ze_tally::recording::{Call, Record, Value, Written};

use crate::Result;
use crate::arguments::{Context, Decoded};
use crate::driver::Driver;
use crate::functions::{self, Functions};
use crate::memory::Memory;
use crate::scan::{Scan, Write, open};

/// The most differences that are printed.
const TOLD: u64 = 20;
/// How long the device may run before a replay goes on, and if a kernel is known to have waited for the host, in ms.
const PATIENCE: u64 = 1000;
const SHORT: u64 = 30;
/// `ZE_MEMORY_ACCESS_ATTRIBUTE_NONE`.
const NO_ACCESS: u64 = 0;

/// Handles.
#[derive(Default)]
pub struct Objects {
    /// Of the driver.
    pub driver: u64,
    /// Of devices, by their identifiers.
    pub devices: Vec<u64>,
    /// Of the driver's default context.
    pub default_context: u64,
    /// Of recorded objects.
    pub made: HashMap<u32, u64>,
}

/// What a replay has come to.
#[derive(Default)]
pub struct Outcome {
    calls: u64,
    /// Calls that failed in the recorded run, or whose objects do not exist here.
    left_out: u64,
    /// Calls with another result than in the recorded run.
    other_results: u64,
    compared: u64,
    bytes: u64,
    different: u64,
    unfinished: bool,
}

impl Outcome {
    /// Whether it differs from the recorded run.
    pub fn differs(&self) -> bool {
        self.different != 0 || self.other_results != 0
    }

    /// Says so.
    pub fn tell(&self, verified: bool) {
        let mut text = format!("{} calls replayed", self.calls);
        if self.left_out != 0 {
            text += &format!(", {} left out that had failed", self.left_out);
        }
        if verified {
            let (compared, bytes) = (self.compared, self.bytes);
            text += &format!("; {compared} ranges of memory compared, {bytes} bytes: ");
            text += &match self.different {
                0 => "all as recorded".to_owned(),
                different => format!("{different} DIFFER"),
            };
        }
        if self.unfinished {
            text += "; work is left that had not ended in the recorded run either";
        }
        println!("{text}");
    }
}

/// Whether a recorded call has all events that the program passed.
fn has_all_events(row: &Row, call: &Call) -> bool {
    row.args.iter().zip(&call.args).all(|(arg, value)| match (arg, value) {
        (&Arg::Events(of), Value::List(list)) => {
            matches!(call.args.get(of), Some(&Value::Word(count)) if count as u32 as usize == list.len())
        }
        _ => true,
    })
}

/// A replay.
pub struct Player<'a> {
    arguments: &'a Arguments,
    scan: &'a Scan,
    driver: Driver,
    objects: Objects,
    memory: Arc<Mutex<Memory>>,
    /// Rows by the numbers of calls in the recording.
    rows: Vec<Option<&'static Row>>,
    /// Immediate lists and queues.
    lists: BTreeSet<u32>,
    queues: BTreeSet<u32>,
    /// Whether all work had ended in the recorded run.
    idle: bool,
    outcome: Outcome,
}

impl<'a> Player<'a> {
    /// Opens the driver.
    pub fn new(
        arguments: &'a Arguments,
        scan: &'a Scan,
        writes: HashMap<(u32, u32), Vec<Write>>,
    ) -> Result<Self> {
        let driver = Driver::open()?;
        let devices = (0..).map_while(|i| driver.device(i)).collect();
        let objects = Objects { driver: driver.handle(), devices, ..Objects::default() };
        let memory = Arc::new(Mutex::new(Memory::new(scan)?));
        functions::set(Functions { writes, memory: Arc::clone(&memory) });
        let find = |name: &String| ROWS.iter().find(|row| row.name == name);
        Ok(Self {
            memory,
            rows: scan.begin.names.iter().map(find).collect(),
            arguments,
            scan,
            driver,
            objects,
            lists: BTreeSet::new(),
            queues: BTreeSet::new(),
            idle: true,
            outcome: Outcome::default(),
        })
    }

    /// Runs the recording.
    pub fn play(mut self, file: &Path) -> Result<Outcome> {
        let mut reader = open(file)?;
        let mut last = 0;
        while let Some(record) = reader.read()? {
            match record {
                Record::Call(call) => {
                    let alone = self.arguments.only == Some(call.number);
                    if self.arguments.only.is_some_and(|only| call.number > only) {
                        break;
                    }
                    if alone {
                        self.wait_for_all()?;
                    }
                    last = call.number;
                    let name = &self.scan.begin.names[usize::from(call.call)];
                    self.call(&call).map_err(|error| format!("call {last}, {name}: {error}"))?;
                }
                Record::Memory { address, mask, data } => {
                    let written = self.memory().write(address, &mask.0, &data.0);
                    written.map_err(|error| format!("behind call {last}, {error}"))?;
                }
                Record::Host { address, data } => {
                    let written = self.memory().write(address, &[], &data.0);
                    written.map_err(|error| format!("behind call {last}, {error}"))?;
                }
                Record::Word { address, value, how } => {
                    if how == Written::Left {
                        self.settle(PATIENCE)?;
                    }
                    let adds = how == Written::Added;
                    let written = self.memory().write_word(address, value, adds);
                    written.map_err(|error| format!("behind call {last}, {error}"))?;
                }
                Record::Either { settled, address, mask, old, data } => {
                    self.settle(if settled { PATIENCE } else { SHORT })?;
                    let differ = self.memory().write_if(address, &mask.0, &old.0, &data.0);
                    let differ = differ.map_err(|error| format!("behind call {last}, {error}"))?;
                    if settled && self.arguments.verify && differ != 0 {
                        self.differs(last, differ, address);
                    }
                }
                Record::Function { function, before, data, .. } if data.0.is_empty() => {
                    let limit = Duration::from_secs(self.arguments.timeout.into());
                    if !functions::meet((function, before), limit) {
                        return Err(format!(
                            "behind call {last}, host function {function} is not called"
                        )
                        .into());
                    }
                }
                Record::Waits if self.arguments.verify => self.settle(PATIENCE)?,
                Record::Idle => {
                    self.idle = true;
                    if self.arguments.verify {
                        let ended = self.wait_for_all();
                        ended.map_err(|error| format!("behind call {last}, {error}"))?;
                    }
                }
                Record::Expect { address, size, hash } if self.arguments.verify => {
                    self.compare(last, address, size, hash)?;
                }
                _ => {}
            }
        }
        if let Some(only) = self.arguments.only.filter(|&only| only != last) {
            return Err(format!("there is no call {only}; --list shows all").into());
        }
        if self.idle || self.arguments.only.is_some() {
            self.wait_for_all()?;
        } else {
            // The recorded run ended with work that waited, so this one need not end either.
            self.settle(PATIENCE)?;
            self.outcome.unfinished = self.wait_for(0).is_err();
        }
        Ok(self.outcome)
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn compare(&mut self, last: u64, address: u64, size: u64, hash: u64) -> Result<()> {
        self.outcome.compared += 1;
        self.outcome.bytes += size;
        if self.memory().hash(address, size)? != hash {
            self.differs(last, size, address);
        }
        Ok(())
    }

    fn differs(&mut self, last: u64, size: u64, address: u64) {
        self.outcome.different += 1;
        if self.outcome.different <= TOLD {
            eprintln!("tally-replay: behind call {last}, {size} bytes at {address:#x} differ");
        }
    }

    /// Waits until nothing is left that the device could run.
    fn settle(&mut self, patience: u64) -> Result<()> {
        let limit = Instant::now() + Duration::from_secs(self.arguments.timeout.into());
        // A function that does not wait for the replay is about to be called, or has ended.
        while self.driver.settle(patience)? && !functions::waits() && Instant::now() < limit {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Waits until all submitted work is complete.
    fn wait_for_all(&mut self) -> Result<()> {
        functions::set_free(true);
        let waited = self.wait_for(u64::from(self.arguments.timeout) * 1_000_000_000);
        // Also for the work of lists and queues that were destroyed.
        self.settle(PATIENCE)?;
        functions::set_free(false);
        waited
    }

    fn wait_for(&mut self, limit: u64) -> Result<()> {
        let lists = self.lists.iter().map(|number| ("zeCommandListHostSynchronize", *number));
        let queues = self.queues.iter().map(|number| ("zeCommandQueueSynchronize", *number));
        for (name, number) in lists.chain(queues).collect::<Vec<_>>() {
            let Some(&handle) = self.objects.made.get(&number) else { continue };
            // SAFETY: a handle that the driver has made, and a time.
            let result = unsafe { self.driver.call(name, &[handle, limit])? };
            if result == ze_result_t::ZE_RESULT_NOT_READY {
                return Err(format!("work has not ended after {} s", self.arguments.timeout).into());
            }
        }
        Ok(())
    }

    fn call(&mut self, call: &Call) -> Result<()> {
        let Some(row) = self.rows[usize::from(call.call)] else {
            return Err("this version does not know the call".into());
        };
        let recorded = ze_result_t(call.result);
        let failed = recorded != ze_result_t::ZE_RESULT_SUCCESS;
        let lost = recorded == ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST;
        // A call that failed has changed nothing, but checks tell wrong frees and copies, a capture
        // ends all the same, and a wait may go on.
        let again = row.name.starts_with("zeMemFree")
            || row.name.contains("EndGraphCapture")
                && recorded != ze_result_t::ZE_RESULT_ERROR_INVALID_NULL_POINTER
            || recorded == ze_result_t::ZE_RESULT_ERROR_INVALID_ARGUMENT
                && row.class == Class::Appends
                && has_all_events(row, call)
            || lost && row.class == Class::Waits;
        if failed && !again {
            self.outcome.left_out += 1;
            return Ok(());
        }
        if call.args.contains(&Value::DefaultContext) {
            self.find_default_context()?;
        }
        let decoded = Context { objects: &self.objects, memory: &self.memory() }.decode(row, call);
        let decoded = match decoded {
            Err(_) if failed => {
                self.outcome.left_out += 1;
                return Ok(());
            }
            decoded => decoded?,
        };
        self.outcome.calls += 1;
        let result = self.make(row, call, &decoded)?;
        for &(number, place) in
            decoded.new.iter().filter(|_| result == ze_result_t::ZE_RESULT_SUCCESS)
        {
            self.objects.made.insert(number, decoded.returned(place));
        }
        if let Some((address, size, place)) =
            decoded.address.filter(|_| result == ze_result_t::ZE_RESULT_SUCCESS)
        {
            if decoded.returned(place) != address {
                return Err(format!(
                    "memory lies at {:#x}, in the recorded run at {address:#x}: this address is taken here, or the driver has reserved other addresses",
                    decoded.returned(place)
                )
                .into());
            }
            if row.name != "zeVirtualMemReserve" {
                self.memory().add(address, size);
            }
        }
        self.note(row, call, &decoded, result);
        if result != recorded && !lost {
            if matches!(row.class, Class::Plain)
                && !failed
                && call.args.iter().any(|it| matches!(it, Value::Address(..)))
            {
                return Err(format!(
                    "{result:?}: memory has to lie where it lay in the recorded run, and that address is not free here"
                )
                .into());
            }
            self.outcome.other_results += 1;
            eprintln!(
                "tally-replay: call {}, {}: {result:?}, in the recorded run {recorded:?}",
                call.number, row.name
            );
        }
        Ok(())
    }

    /// Makes a call, or what stands for it.
    fn make(&mut self, row: &Row, call: &Call, decoded: &Decoded) -> Result<ze_result_t> {
        let words = &decoded.words;
        let limit = u64::from(self.arguments.timeout) * 1_000_000_000;
        if let Some((address, ..)) = decoded.address.filter(|_| row.name != "zeVirtualMemReserve") {
            self.driver.place_next(address)?;
        }
        let variables = match (row.name, call.args.last()) {
            ("zeModuleCreate", Some(&Value::Address(base, size))) => Some((base, size)),
            _ => None,
        };
        if let Some((base, _)) = variables {
            self.driver.place_next(base)?;
        }
        // SAFETY: the words were made as the function wants them; handles are live or refused by the driver.
        let result = unsafe {
            match row.name {
                "zeEventHostSynchronize" | "zeEventQueryStatus" => {
                    self.driver.call("zeEventHostSynchronize", &[words[0], limit])?
                }
                "zeFenceHostSynchronize" | "zeFenceQueryStatus" => {
                    self.driver.call("zeFenceHostSynchronize", &[words[0], limit])?
                }
                "zeCommandQueueSynchronize" | "zeCommandListHostSynchronize" => {
                    self.driver.call(row.name, &[words[0], limit])?
                }
                "zeDeviceSynchronize" | "zeContextSystemBarrier" => {
                    // It has no time limit of its own.
                    self.wait_for_all()?;
                    self.driver.call(row.name, words)?
                }
                // At the address that the recorded one had.
                "zeVirtualMemReserve" => {
                    let address = decoded.address.map_or(0, |it| it.0);
                    self.driver.call(row.name, &[words[0], address, words[2], words[3]])?
                }
                // Memory of another process is memory of this one here.
                "zeMemOpenIpcHandle" => {
                    let size = decoded.address.map_or(0, |it| it.1);
                    let desc = tally_ze::ze_device_mem_alloc_desc_t::default();
                    let desc = (&raw const desc).expose_provenance() as u64;
                    let words = [words[0], desc, size, 0, words[1], words[11]];
                    self.driver.call("zeMemAllocDevice", &words)?
                }
                "zeMemCloseIpcHandle" => self.driver.call("zeMemFree", words)?,
                name => self.driver.call(name, words)?,
            }
        };
        if result == ze_result_t::ZE_RESULT_NOT_READY && row.class == Class::Waits {
            let seconds = self.arguments.timeout;
            return Err(format!(
                "the wait has not ended after {seconds} s; in the recorded run it had"
            )
            .into());
        }
        if let Some((base, size)) = variables.filter(|_| result == ze_result_t::ZE_RESULT_SUCCESS) {
            self.memory().add(base, size);
        }
        Ok(result)
    }

    /// Takes note of what a call has changed.
    fn note(&mut self, row: &Row, call: &Call, decoded: &Decoded, result: ze_result_t) {
        if matches!(row.class, Class::Submits | Class::Appends) {
            self.idle = false;
        }
        if result != ze_result_t::ZE_RESULT_SUCCESS {
            return;
        }
        let words = &decoded.words;
        match row.name {
            "zeMemFree" | "zeMemCloseIpcHandle" => self.memory().remove(words[1], 1),
            "zeMemFreeExt" => self.memory().remove(words[2], 1),
            "zeVirtualMemMap" => self.memory().add(words[1], words[2]),
            "zeVirtualMemUnmap" | "zeVirtualMemFree" => self.memory().remove(words[1], words[2]),
            "zeVirtualMemSetAccessAttribute" if words[3] as u32 as u64 == NO_ACCESS => {
                self.memory().remove(words[1], words[2]);
            }
            "zeCommandListCreateImmediate" => self.lists.extend(decoded.new.iter().map(|it| it.0)),
            "zeCommandQueueCreate" => self.queues.extend(decoded.new.iter().map(|it| it.0)),
            _ if row.class == Class::Ends => {
                let of = if row.name == "zePhysicalMemDestroy" { 1 } else { 0 };
                if call.args.get(of) == Some(&Value::DefaultContext) {
                    self.objects.default_context = 0;
                }
                if let Some(Value::Object(number)) = call.args.get(of) {
                    self.objects.made.remove(number);
                    self.lists.remove(number);
                    self.queues.remove(number);
                }
            }
            _ => {}
        }
    }

    fn find_default_context(&mut self) -> Result<()> {
        if self.objects.default_context == 0 {
            self.objects.default_context = self.driver.default_context()?;
        }
        Ok(())
    }
}
