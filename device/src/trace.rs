// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traces: records of what a queue has run, in a buffer of its own VM (SPEC.md, chapter 11).

use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

use tally_uapi::fault::FaultKind;
use tally_uapi::trace::{TRACE_RECORD_SIZE, TraceBuffer, TraceRecord};

use crate::guard::{Guard, Trap, word};

/// The number of times that other writers may disturb a claim of a place before the record is dropped.
/// Workers that claim at the same time disturb each other a few times; only a client that writes the word, too,
/// never stops.
const TRIES: u32 = 1000;

const CLAIMED: u64 = offset_of!(TraceBuffer, claimed) as u64;
const DROPPED: u64 = offset_of!(TraceBuffer, dropped) as u64;
const TAKEN: u64 = offset_of!(TraceBuffer, taken) as u64;
const RECORDS: u64 = offset_of!(TraceBuffer, records) as u64;

/// The destination of a queue's records.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// VA of the buffer, aligned to records; 0: no records are wanted.
    buffer: AtomicU64,
    tag: AtomicU64,
}

impl Trace {
    /// Takes over the settings of the control page: VA of the buffer, or 0, and the tag.
    pub(crate) fn set(&self, [buffer, tag]: [u64; 2]) -> Result<(), Trap> {
        if !buffer.is_multiple_of(TRACE_RECORD_SIZE) {
            return Err(Trap::new(FaultKind::BadAlignment, buffer));
        }
        self.buffer.store(buffer, Ordering::Relaxed);
        self.tag.store(tag, Ordering::Relaxed);
        Ok(())
    }

    /// Whether commands are recorded.
    pub(crate) fn is_wanted(&self) -> bool {
        self.buffer.load(Ordering::Relaxed) != 0
    }

    /// Writes a record, without its number and tag, if there is room for it.
    pub(crate) fn write(&self, guard: &mut Guard, mut record: TraceRecord) -> Result<(), Trap> {
        let buffer = self.buffer.load(Ordering::Relaxed);
        record.tag = self.tag.load(Ordering::Relaxed);
        let words: [u64; TRACE_RECORD_SIZE as usize / 8] = zerocopy::transmute!(record);
        guard.run(|| {
            // SAFETY: in a guarded call; the buffer's alignment was checked.
            unsafe { write(buffer, &words) };
        })
    }
}

/// # Safety
/// `buffer` is aligned to [`TRACE_RECORD_SIZE`], and the caller is in a guarded call.
unsafe fn write(buffer: u64, words: &[u64]) {
    let at = |offset: u64| buffer.wrapping_add(offset);
    // SAFETY: aligned, as the buffer is.
    let [claimed, dropped, taken, records] =
        unsafe { [CLAIMED, DROPPED, TAKEN, RECORDS].map(|offset| word(at(offset))) };
    let records = records.load(Ordering::Relaxed);
    let mut number = claimed.load(Ordering::Relaxed);
    for _ in 0..TRIES {
        // Acquire: the reader has finished reading the place's previous record.
        if number.wrapping_sub(taken.load(Ordering::Acquire)) >= records {
            break;
        }
        let next = number.wrapping_add(1);
        if let Err(now) =
            claimed.compare_exchange_weak(number, next, Ordering::Relaxed, Ordering::Relaxed)
        {
            number = now;
            continue;
        }
        let place = size_of::<TraceBuffer>() as u64;
        let place = at(place.wrapping_add((number % records).wrapping_mul(TRACE_RECORD_SIZE)));
        for (i, &value) in words.iter().enumerate().skip(1) {
            // SAFETY: a multiple of eight from the buffer's start.
            unsafe { word(place.wrapping_add(i as u64 * 8)) }.store(value, Ordering::Relaxed);
        }
        // SAFETY: as above.
        unsafe { word(place) }.store(next, Ordering::Release);
        return;
    }
    dropped.fetch_add(1, Ordering::Relaxed);
}
