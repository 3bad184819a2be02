// SPDX-License-Identifier: MIT OR Apache-2.0
//! A session, from ENABLE to RESET: the admin ring and its commands.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use tally_device::Clock;
use tally_uapi::PAGE_SIZE;
use tally_uapi::firmware::{
    ANSWERS, Answer, Command, MAX_VMS, RING_MAX, RING_MIN, answer_status, op,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::Settings;
use crate::identity::identity;
use crate::lane::Lane;
use crate::links::Links;
use crate::machine::{Machine, View};
use crate::registers::Registers;
use crate::status::Status;
use crate::waiters::Waiters;

/// The state that outlives sessions.
#[derive(Debug)]
pub struct Host {
    pub settings: Settings,
    pub clock: Clock,
    pub machine: Arc<dyn Machine>,
    /// The end of the windows of VMs.
    pub va_end: u64,
}

/// Words of a command, and of an answer.
const WORDS: usize = size_of::<Command>() / 8;

/// The rings, as they were at ENABLE.
struct Rings {
    commands: View<[AtomicU64]>,
    answers: View<[AtomicU64]>,
    entries: u32,
}

/// The destination of answers.
pub struct Answers {
    rings: Rings,
    /// For each slot of the answers: whether a command whose answer belongs there is outstanding.
    out: [AtomicBool; ANSWERS as usize],
    pub status: Arc<Status>,
}

/// The slot for the answer to a command.
fn slot(command: &Command) -> usize {
    if command.vm <= MAX_VMS { command.vm as usize } else { 0 }
}

impl Answers {
    /// Copies command `number` out of its slot, once.
    fn command(&self, number: u32) -> Command {
        let first = (number % self.rings.entries) as usize * WORDS;
        let mut words = [0u64; WORDS];
        for (word, shared) in words.iter_mut().zip(&self.rings.commands[first..]) {
            *word = shared.load(Ordering::Acquire);
        }
        Command::read_from_bytes(words.as_bytes()).unwrap_or_default()
    }

    /// Notes that a command will be answered in `slot`. False if the previous one there is not answered yet.
    fn begin(&self, slot: usize) -> bool {
        !self.out[slot].swap(true, Ordering::Acquire)
    }

    /// Answers command `number` in `slot`.
    pub fn answer(&self, slot: usize, number: u32, status: u32, values: [u64; 7]) {
        let answer = Answer { values, status, sequence: number.wrapping_add(1) };
        let words: [u64; WORDS] = zerocopy::transmute!(answer);
        // Cleared before the answer is visible, since the driver may then give the next command at once.
        self.out[slot].store(false, Ordering::Release);
        let slot = &self.rings.answers[slot * WORDS..(slot + 1) * WORDS];
        for (word, shared) in words.iter().zip(slot) {
            // Status and sequence are one word, written last: when the driver
            // sees it, it sees the whole answer.
            shared.store(*word, Ordering::Release);
        }
        self.status.answered();
    }
}

/// The admin thread's orders.
#[derive(Debug, Default)]
struct Orders {
    tail: u32,
    stop: bool,
}

/// A session.
pub struct Session {
    host: Arc<Host>,
    answers: Arc<Answers>,
    links: Arc<Links>,
    /// Address of the waiters page.
    waiters_page: u64,
    orders: Mutex<Orders>,
    bell: Condvar,
    failed: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("failed", &self.failed()).finish_non_exhaustive()
    }
}

impl Session {
    /// Begins to serve the rings that the registers name. None if they are not
    /// memory of the driver, or no thread can be started.
    pub fn start(host: &Arc<Host>, registers: &Registers) -> Option<Arc<Self>> {
        let entries = registers.admin_entries;
        if !entries.is_power_of_two() || !(RING_MIN..=RING_MAX).contains(&entries) {
            return None;
        }
        let machine = &host.machine;
        let words = entries as usize * WORDS;
        let rings = Rings {
            commands: machine.words(registers.admin_ring, words)?,
            answers: machine.words(registers.admin_answers, ANSWERS as usize * WORDS)?,
            entries,
        };
        // Clears the answers of an earlier session.
        rings.answers.iter().for_each(|word| word.store(0, Ordering::SeqCst));
        let page = |address| machine.words(address, PAGE_SIZE as usize / 8);
        let status = Status::new(page(registers.status_page)?.page()?, Arc::clone(machine));
        let status = Arc::new(status);
        let waiters = Waiters::new(page(registers.waiters_page)?.page()?);
        let session = Arc::new(Self {
            host: Arc::clone(host),
            answers: Arc::new(Answers {
                rings,
                out: [const { AtomicBool::new(false) }; ANSWERS as usize],
                status: Arc::clone(&status),
            }),
            links: Arc::new(Links::new(status, waiters)),
            waiters_page: registers.waiters_page,
            orders: Mutex::default(),
            bell: Condvar::new(),
            failed: AtomicBool::new(false),
            thread: Mutex::default(),
        });
        let own = Arc::clone(&session);
        let thread = std::thread::Builder::new().name("admin".into()).spawn(move || own.serve());
        *session.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread.ok()?);
        Some(session)
    }

    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the rings cannot be served any more.
    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    /// Handles a write to ADMIN_TAIL.
    pub fn publish(&self, tail: u32) {
        self.orders().tail = tail;
        self.bell.notify_one();
    }

    /// Handles a write to KICK.
    pub fn kick(&self, queue: u32) {
        self.links.kick(queue);
    }

    /// Handles a write to WAKE.
    pub fn wake(&self, bucket: u32) {
        self.links.wake(bucket);
    }

    /// Ends the session: when this returns, the device does not touch the driver's memory any more.
    pub fn stop(&self) {
        self.orders().stop = true;
        self.bell.notify_one();
        self.links.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A thread that panicked has ended, too.
            let _ = thread.join();
        }
    }

    /// The admin thread: takes commands in order.
    fn serve(&self) {
        let mut lanes = Lanes { session: self, lanes: HashMap::new() };
        let mut next = 0u32;
        while let Some(tail) = self.await_tail(next) {
            if tail.wrapping_sub(next) > self.answers.rings.entries {
                // More commands than the ring holds: the driver has lost count.
                self.failed.store(true, Ordering::SeqCst);
                return;
            }
            while next != tail {
                let command = self.answers.command(next);
                let slot = slot(&command);
                if !self.answers.begin(slot) {
                    // Otherwise the previous command's answer would be lost, and commands would pile up here.
                    self.failed.store(true, Ordering::SeqCst);
                    return;
                }
                self.take(&mut lanes, slot, next, &command);
                next = next.wrapping_add(1);
            }
        }
    }

    /// Waits for commands beyond `next`. None at the end.
    fn await_tail(&self, next: u32) -> Option<u32> {
        let mut orders = self.orders();
        while !orders.stop && orders.tail == next {
            orders = self.bell.wait(orders).unwrap_or_else(PoisonError::into_inner);
        }
        (!orders.stop).then_some(orders.tail)
    }

    fn take(&self, lanes: &mut Lanes, slot: usize, number: u32, command: &Command) {
        let plain = command.flags == 0 && command.vm == 0 && command.queue == 0;
        let args = command.args.iter().skip(1).all(|&arg| arg == 0);
        let status = match command.opcode {
            op::NOP if plain && args && command.args[0] == 0 => answer_status::OK,
            op::IDENTIFY if plain && args => self.identify(command),
            op::VM_CREATE..=op::VM_ORPHAN if (1..=MAX_VMS).contains(&command.vm) => {
                match lanes.hand(number, command) {
                    Ok(()) => return,
                    Err(status) => status,
                }
            }
            _ => answer_status::INVALID,
        };
        self.answers.answer(slot, number, status, [0; 7]);
    }

    fn identify(&self, command: &Command) -> u32 {
        let identity = identity(&self.host.settings, self.host.va_end);
        let bytes = identity.as_bytes();
        let Some(page) = self.host.machine.words(command.args[0], bytes.len() / 8) else {
            return answer_status::INVALID;
        };
        for (word, shared) in bytes.chunks_exact(8).zip(page.iter()) {
            let word = word.try_into().map_or(0, u64::from_le_bytes);
            shared.store(word, Ordering::Relaxed);
        }
        answer_status::OK
    }
}

/// A command and its number.
type Numbered = (u32, Command);

/// The lanes of a session, by VM. Dropping them ends all VMs.
struct Lanes<'a> {
    session: &'a Session,
    lanes: HashMap<u32, (Sender<Numbered>, JoinHandle<()>)>,
}

impl Lanes<'_> {
    /// Gives a command to the lane of its VM. The error is the status to answer.
    fn hand(&mut self, number: u32, command: &Command) -> Result<(), u32> {
        let id = command.vm;
        if !self.lanes.contains_key(&id) {
            if command.opcode != op::VM_CREATE {
                return Err(answer_status::NO_ENTRY);
            }
            self.open(id).map_err(|_| answer_status::NO_SPACE)?;
        }
        let lane = self.lanes.get(&id).ok_or(answer_status::NO_SPACE)?;
        // A lane runs until its channel of commands closes.
        lane.0.send((number, *command)).map_err(|_| answer_status::NO_SPACE)
    }

    fn open(&mut self, id: u32) -> std::io::Result<()> {
        let Session { host, links, answers, waiters_page, .. } = self.session;
        let (host, links) = (Arc::clone(host), Arc::clone(links));
        let lane = Lane::new(id, host, links, Arc::clone(answers), *waiters_page);
        let (sender, commands) = channel();
        let thread = std::thread::Builder::new().name(format!("vm{id}"));
        let thread = thread.spawn(move || lane.run(&commands))?;
        self.lanes.insert(id, (sender, thread));
        Ok(())
    }
}

impl Drop for Lanes<'_> {
    fn drop(&mut self) {
        let threads: Vec<_> = self.lanes.drain().map(|(_, (_, thread))| thread).collect();
        for thread in threads {
            // A thread that panicked has ended, too.
            let _ = thread.join();
        }
    }
}
