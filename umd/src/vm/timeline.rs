// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of the commands that the device runs for a VM, for the timeline of `TALLY_TRACE`.
//!
//! The device writes a record of each command into a buffer of the VM (`device/SPEC.md`, chapter 11),
//! and a thread here moves the records to the file, so neither waits for the other. The buffer exists only
//! if a timeline is recorded.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use tally_uapi::ioctl::{ClockPair, Query, bind_flag, query};
use tally_uapi::packet::{PostOp, opcode};
use tally_uapi::queue::QueueControl;
use tally_uapi::trace::{TRACE_RECORD_SIZE, TraceBuffer, TraceRecord};

use super::bindings::{Bindings, Mapping};
use crate::space::HUGE_PAGE;
use crate::trace::QueueWait;
use crate::{process, trace};

/// Number of commands that the device may run between two reads of the buffer of 2 MiB.
const RECORDS: u64 = (HUGE_PAGE - size_of::<TraceBuffer>() as u64) / TRACE_RECORD_SIZE;
/// The period at which the records are read. At a million commands a second the buffer is full after
/// 32 ms.
const PERIOD: Duration = Duration::from_millis(5);
/// The period at which the relation of the clocks is measured again: those of a virtual machine and its
/// host drift apart by up to a hundred microseconds a second.
const CLOCK_PERIOD: Duration = Duration::from_millis(100);

/// The records of a VM. The remaining ones are written on drop.
pub(super) struct Timeline {
    mapping: Mapping,
    reader: Mutex<Reader>,
}

/// The host's own state of the buffer, whatever kernels do to the memory.
#[derive(Default)]
struct Reader {
    taken: u64,
    dropped: u64,
    /// The time at which the relation of the clocks was last measured.
    related: Option<Instant>,
}

impl Timeline {
    /// Starts the timeline of a VM, if one is recorded. Without memory or a thread for it, the timeline
    /// contains no commands of the VM.
    pub(super) fn start(bindings: &Arc<Bindings>) -> Option<Arc<Self>> {
        if !trace::enabled() {
            return None;
        }
        // Memory of a new buffer is all zeros.
        let mapped = bindings.map(HUGE_PAGE, HUGE_PAGE, bind_flag::READ | bind_flag::WRITE);
        let mapping = mapped.inspect_err(|error| log::warn!("TALLY_TRACE: {error}")).ok()?;
        let timeline = Arc::new(Self { mapping, reader: Mutex::default() });
        timeline.header().records.store(RECORDS, Ordering::Relaxed);
        let source: Weak<Self> = Arc::downgrade(&timeline);
        trace::add_source(source.clone());
        let thread = thread::Builder::new().name("tally-trace".into());
        let started = process::without_signals(|| thread.spawn(move || keep_taking(&source)));
        if let Err(error) = started {
            log::warn!("TALLY_TRACE: no thread for what the device runs: {error}");
        }
        Some(timeline)
    }

    /// Makes the device record the commands of a queue of which nothing is published yet. `engine`: class
    /// and index.
    pub(super) fn add_queue(&self, control: &QueueControl, queue: u32, engine: (u32, u32)) {
        control.trace_tag.store(tag(queue, engine), Ordering::Relaxed);
        // Publishing the first packet makes both visible.
        control.trace.store(self.mapping.va(), Ordering::Relaxed);
    }

    fn header(&self) -> &TraceBuffer {
        // SAFETY: the buffer is mapped for the host as long as `self.mapping` lives, is larger than the header
        // and aligned for it; all fields that are read are atomic.
        unsafe { self.mapping.ptr().cast().as_ref() }
    }

    /// The record with this number, if it has been written.
    fn record(&self, number: u64) -> Option<TraceRecord> {
        let place = size_of::<TraceBuffer>() as u64 + number % RECORDS * TRACE_RECORD_SIZE;
        let word = |offset: usize| {
            // SAFETY: the place lies within the buffer, which is mapped as long as `self.mapping` lives;
            // offsets are below the record's size and multiples of eight; all accesses to these
            // words are atomic.
            unsafe {
                let at = self.mapping.ptr().byte_add(place as usize + offset);
                at.cast::<AtomicU64>().as_ref()
            }
        };
        // Acquire: the rest of the record was written before its number.
        if word(offset_of!(TraceRecord, sequence)).load(Ordering::Acquire) != number + 1 {
            return None;
        }
        let words: [u64; TRACE_RECORD_SIZE as usize / 8] =
            std::array::from_fn(|i| word(i * 8).load(Ordering::Relaxed));
        Some(zerocopy::transmute!(words))
    }

    /// Reads both clocks, if the last reading is old enough.
    fn relate_clocks(&self, reader: &mut Reader) {
        if reader.related.is_some_and(|related| related.elapsed() < CLOCK_PERIOD) {
            return;
        }
        let mut pair = ClockPair::default();
        let data = (&raw mut pair).addr() as u64;
        let size = size_of::<ClockPair>() as u32;
        let mut arg = Query { what: query::CLOCK, size, data, ..Default::default() };
        // SAFETY: `size` bytes may be written to the pair.
        if unsafe { self.mapping.bo.bindings.backend.query(&mut arg) }.is_ok() {
            trace::set_clock(pair.host_ns, pair.device_ticks);
            reader.related = Some(Instant::now());
        }
    }
}

impl trace::Source for Timeline {
    fn drain(&self) {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let header = self.header();
        while let Some(record) = self.record(reader.taken) {
            self.relate_clocks(&mut reader);
            reader.taken += 1;
            header.taken.store(reader.taken, Ordering::Release);
            show(&record);
        }
        let dropped = header.dropped.load(Ordering::Relaxed);
        if dropped != reader.dropped {
            let more = dropped.wrapping_sub(reader.dropped);
            log::warn!("TALLY_TRACE: {more} commands came too fast and are not on the timeline");
            reader.dropped = dropped;
        }
        trace::draw_arrows();
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        trace::Source::drain(self);
    }
}

/// Takes records periodically until the timeline is dropped.
fn keep_taking(timeline: &Weak<Timeline>) {
    while let Some(timeline) = timeline.upgrade() {
        trace::Source::drain(&*timeline);
        drop(timeline);
        thread::sleep(PERIOD);
    }
}

/// The tag of a queue's records: its id and its engine.
fn tag(queue: u32, (class, index): (u32, u32)) -> u64 {
    u64::from(queue) | u64::from(class as u16) << 32 | u64::from(index as u16) << 48
}

fn show(record: &TraceRecord) {
    let (queue, ticks) = (record.tag as u32, (record.start, record.end));
    let TraceRecord { cell, value, .. } = *record;
    let kind = match record.opcode {
        opcode::WAIT => return trace::queue_wait(QueueWait { queue, cell, value, ticks }),
        opcode::NOP => "nop",
        opcode::CALL => "call",
        opcode::DISPATCH => "dispatch",
        opcode::COPY => "copy",
        opcode::COPY_REGION => "copy_region",
        opcode::FILL => "fill",
        _ => "unknown",
    };
    let stored = PostOp::from_raw(record.post_op) == Some(PostOp::Store);
    trace::command(trace::Command {
        engine: ((record.tag >> 32) as u32 & 0xffff, (record.tag >> 48) as u32),
        queue,
        kind,
        entry: record.entry,
        ticks,
        signal: (cell != 0).then_some((cell, stored.then_some(value))),
    });
}
