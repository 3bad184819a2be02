// SPDX-License-Identifier: MIT OR Apache-2.0
//! The toy's device: counters, event cells and rings of packets, run by a seeded scheduler.
//!
//! A packet starts when its waits are met, and completes some time later; it reads memory when it
//! starts and writes when it completes. Between two calls of the host the scheduler picks any possible
//! start or completion, so unordered packets soon run in another order.

use crate::faults::Fault;
use crate::model::memory;
use crate::program::backend::Times;
use crate::program::{Cell, ListOrder, Op, PLACES};

/// A counter slot.
pub type Slot = usize;

/// One condition of a packet.
#[derive(Clone, Copy, Debug)]
pub enum Condition {
    /// `counter >= value`.
    Counter(Slot, u64),
    /// The event cell is 1.
    Cell(usize),
    /// All packets of the stream are complete.
    Stream(usize),
    /// The packet of the stream is complete.
    Packet(usize, usize),
}

/// The change that a packet makes to a word of the user's, which is a counter that no list owns.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// It adds to it.
    Add(u64),
    /// It replaces it.
    Set(u64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    Queued,
    Running { result: Option<(Cell, u32)> },
    Done,
}

/// A command in a ring.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Its operation.
    pub op: Op,
    /// Its wait list.
    pub waits: Vec<Condition>,
    /// Whether the command had a wait list, even if all its waits are met.
    pub waits_for_events: bool,
    /// The counter of its list and the value that it writes.
    pub counter: Option<(Slot, u64)>,
    /// Event cells that it writes, and the values.
    pub cells: Vec<(usize, bool)>,
    /// The user's word that it changes.
    pub word: Option<(Slot, Change)>,
    /// Set by the fault that reads too early.
    pub early: Option<u32>,
    /// The slot for its times.
    pub timestamp: Option<usize>,
    /// The slot whose times it copies, and the place.
    pub reads: Option<(usize, usize)>,
    progress: Progress,
}

impl Packet {
    /// A packet that was not started.
    #[must_use]
    pub fn new(op: Op, waits: Vec<Condition>, waits_for_events: bool) -> Self {
        Packet {
            op,
            waits,
            waits_for_events,
            counter: None,
            cells: Vec::new(),
            word: None,
            early: None,
            timestamp: None,
            reads: None,
            progress: Progress::Queued,
        }
    }
}

/// Packets with one order among them: an immediate list, or one execution of a regular list.
#[derive(Debug)]
pub struct Stream {
    /// The order of the list.
    pub order: ListOrder,
    /// The conditions for the whole stream to start.
    pub entry: Vec<Condition>,
    /// The packets in the order of submission.
    pub packets: Vec<Packet>,
    /// The fence at its end waits for all earlier streams of its ring.
    pub fence: bool,
    favour: u32,
}

/// The scheduler's policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Policy {
    /// Any possible action, evenly.
    Even,
    /// The stream with the highest random priority first, which delays the others for long.
    Favourites,
}

/// The whole device.
#[derive(Debug)]
pub struct Device {
    /// Memory.
    pub memory: Vec<u32>,
    /// Values of the counter slots.
    pub counters: Vec<u64>,
    /// Event cells.
    pub cells: Vec<bool>,
    /// All streams that were ever created, by number.
    pub streams: Vec<Stream>,
    /// The streams of each ring.
    pub rings: Vec<Vec<usize>>,
    /// Slots for the times of packets.
    pub times: Vec<Times>,
    /// The places to which packets copy times.
    pub places: [Times; PLACES],
    clock: u64,
    fault: Option<Fault>,
    random: u64,
    policy: Policy,
}

#[derive(Clone, Copy)]
enum Step {
    Start(usize, usize),
    Complete(usize, usize),
}

impl Device {
    /// An idle device.
    #[must_use]
    pub fn new(seed: u64, fault: Option<Fault>) -> Self {
        let mut device = Device {
            memory: memory::initial(),
            counters: Vec::new(),
            cells: Vec::new(),
            streams: Vec::new(),
            rings: Vec::new(),
            times: Vec::new(),
            places: [Times { start: 0, end: 0 }; PLACES],
            clock: 0,
            fault,
            random: seed,
            policy: Policy::Even,
        };
        if device.below(2) == 1 {
            device.policy = Policy::Favourites;
        }
        device
    }

    /// A random number below `limit` (SplitMix64).
    pub fn below(&mut self, limit: usize) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % limit.max(1) as u64) as usize
    }

    /// A new stream at the end of a ring.
    pub fn stream(&mut self, ring: usize, order: ListOrder, entry: Vec<Condition>) -> usize {
        let favour = self.below(1 << 16) as u32;
        self.streams.push(Stream { order, entry, packets: Vec::new(), fence: false, favour });
        let stream = self.streams.len() - 1;
        self.rings[ring].push(stream);
        stream
    }

    /// Whether all packets of some streams are complete.
    #[must_use]
    pub fn is_done(&self, streams: &[usize]) -> bool {
        let packets = streams.iter().flat_map(|&stream| &self.streams[stream].packets);
        packets.into_iter().all(|packet| packet.progress == Progress::Done)
    }

    /// Whether one packet is complete.
    #[must_use]
    pub fn is_packet_done(&self, stream: usize, packet: usize) -> bool {
        self.streams[stream].packets[packet].progress == Progress::Done
    }

    /// Whether a condition holds now.
    #[must_use]
    pub fn holds(&self, condition: Condition) -> bool {
        match condition {
            Condition::Counter(slot, value) => self.counters[slot] >= value,
            Condition::Cell(cell) => self.cells[cell],
            Condition::Stream(stream) => self.is_done(&[stream]),
            Condition::Packet(stream, packet) => self.is_packet_done(stream, packet),
        }
    }

    /// Takes one step, if any is possible.
    pub fn advance(&mut self) -> bool {
        let mut steps = Vec::new();
        for ring in &self.rings {
            self.collect(ring, &mut steps);
        }
        if steps.is_empty() {
            return false;
        }
        let chosen = match self.policy {
            Policy::Even => steps[self.below(steps.len())],
            Policy::Favourites => {
                let favour = |step: &Step| match *step {
                    Step::Start(stream, _) | Step::Complete(stream, _) => {
                        self.streams[stream].favour
                    }
                };
                let best = steps.iter().map(favour).max();
                let best: Vec<Step> =
                    steps.iter().copied().filter(|step| Some(favour(step)) == best).collect();
                best[self.below(best.len())]
            }
        };
        self.clock += 1;
        match chosen {
            Step::Start(stream, packet) => self.start(stream, packet),
            Step::Complete(stream, packet) => self.complete(stream, packet),
        }
        true
    }

    /// Packets start in the order of the ring; a packet that waits blocks those behind it, and
    /// nothing in any other ring.
    fn collect(&self, ring: &[usize], steps: &mut Vec<Step>) {
        let mut blocked = false;
        for (at, &stream) in ring.iter().enumerate() {
            for (number, packet) in self.streams[stream].packets.iter().enumerate() {
                match packet.progress {
                    Progress::Done => {}
                    Progress::Running { .. } => steps.push(Step::Complete(stream, number)),
                    Progress::Queued if blocked => {}
                    Progress::Queued => {
                        if self.may_start(stream, number, &ring[..at]) {
                            steps.push(Step::Start(stream, number));
                        }
                        blocked = true;
                    }
                }
            }
        }
    }

    fn may_start(&self, stream: usize, number: usize, ahead: &[usize]) -> bool {
        let Stream { order, ref entry, ref packets, fence, .. } = self.streams[stream];
        let packet = &packets[number];
        if fence {
            return self.is_done(ahead);
        }
        if !entry.iter().all(|&entry| self.holds(entry)) {
            return false;
        }
        let done = |packet: &Packet| packet.progress == Progress::Done;
        let in_order = match order {
            ListOrder::InOrder => {
                self.fault == Some(Fault::InOrderIgnored)
                    || packets[..number].last().is_none_or(done)
            }
            ListOrder::OutOfOrder => {
                let everything = |packet: &Packet| {
                    packet.op == Op::Barrier
                        && !packet.waits_for_events
                        && self.fault != Some(Fault::BarrierIgnored)
                };
                let gate = |packet: &&Packet| match packet.op {
                    Op::Barrier => packet.waits_for_events || everything(packet),
                    op => op == Op::WaitOnEvents,
                };
                packets[..number].iter().filter(gate).all(done)
                    && (!everything(packet) || packets[..number].iter().all(done))
            }
        };
        in_order && packet.waits.iter().all(|&wait| self.holds(wait))
    }

    fn start(&mut self, stream: usize, number: usize) {
        let packet = &self.streams[stream].packets[number];
        let result = memory::result(packet.op, |cell| self.memory[cell.0]);
        let result = match (packet.early, result) {
            (Some(value), Some((cell, _))) => Some((cell, value)),
            (_, result) => result,
        };
        self.streams[stream].packets[number].progress = Progress::Running { result };
        if let Some(timestamp) = self.streams[stream].packets[number].timestamp {
            self.times[timestamp].start = self.clock;
        }
        let is_call = matches!(self.streams[stream].packets[number].op, Op::HostCall { .. });
        let unawaited = is_call && self.fault == Some(Fault::HostFunctionNotAwaited);
        if unawaited || self.fault == Some(Fault::SignalBeforeWork) {
            self.signal(stream, number);
        }
    }

    fn complete(&mut self, stream: usize, number: usize) {
        let packet = &mut self.streams[stream].packets[number];
        let progress = std::mem::replace(&mut packet.progress, Progress::Done);
        if let (Op::Add { dst, add }, _) = (packet.op, progress) {
            self.memory[dst.0] = self.memory[dst.0].wrapping_add(add);
        } else if let Progress::Running { result: Some((cell, value)) } = progress {
            self.memory[cell.0] = value;
        }
        let Packet { timestamp, reads, .. } = self.streams[stream].packets[number];
        if let Some(timestamp) = timestamp {
            self.times[timestamp].end = self.clock;
        }
        if let Some((slot, place)) = reads {
            self.places[place] = self.times[slot];
        }
        self.signal(stream, number);
    }

    /// "A counter which is incremented every time a task has completed in the device."
    fn signal(&mut self, stream: usize, number: usize) {
        let packet = &self.streams[stream].packets[number];
        if let Some((slot, value)) = packet.counter {
            self.counters[slot] = value;
        }
        match packet.word {
            Some((slot, Change::Add(add))) if self.fault != Some(Fault::IncrementStored) => {
                self.counters[slot] += add;
            }
            Some((slot, Change::Add(value) | Change::Set(value))) => self.counters[slot] = value,
            None => {}
        }
        for (cell, value) in packet.cells.clone() {
            self.cells[cell] = value;
        }
    }
}
