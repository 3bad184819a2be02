// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The page that a queue's producer and the device share, and the two halves
//! of the handshake by which the device goes to sleep.
//!
//! `device/SPEC.md`, chapter "Rings".

use crate::sync::{fence, AtomicU32, AtomicU64, Ordering};

/// Minimum number of packets in a ring. The number is always a power of two.
pub const RING_MIN_PACKETS: u32 = 16;
/// Maximum number of packets in a ring.
pub const RING_MAX_PACKETS: u32 = 1 << 20;

/// The start of a queue's control page. Producer and device write different
/// cache lines.
///
/// `tail` and `head` count packets since the queue was created and never wrap;
/// packet `i` is in slot `i % packets` of the ring that was current when it
/// was written (`LINK` packets change the ring).
#[repr(C, align(64))]
#[derive(Debug)]
pub struct QueueControl {
    /// Packets published. Written by the producer.
    pub tail: AtomicU64,
    pad0: [u64; 7],
    /// Packets whose slot the device no longer needs. Written by the device. While the device is awake, the
    /// value may lag behind by 15 packets, but by no more than a quarter of the ring.
    pub head: AtomicU64,
    /// 1 while the device will not look at `tail` before a KICK. Written by the device.
    pub asleep: AtomicU32,
    pad1: u32,
    /// VA of a [`TraceBuffer`](crate::trace::TraceBuffer) for the queue's commands, or 0. Written by the
    /// producer, while nothing is published; read by the device when it wakes.
    pub trace: AtomicU64,
    /// The tag of the queue's records. Written and read like `trace`.
    pub trace_tag: AtomicU64,
    pad2: [u64; 4],
}

#[cfg(not(any(loom, shuttle)))]
const _: () = {
    assert!(core::mem::size_of::<QueueControl>() == 128);
    assert!(core::mem::offset_of!(QueueControl, tail) == 0);
    assert!(core::mem::offset_of!(QueueControl, head) == 64);
    assert!(core::mem::offset_of!(QueueControl, asleep) == 72);
    assert!(core::mem::offset_of!(QueueControl, trace) == 80);
    assert!(core::mem::offset_of!(QueueControl, trace_tag) == 88);
};

impl Default for QueueControl {
    fn default() -> Self {
        Self::new()
    }
}

impl QueueControl {
    /// A control block as the device expects it at QUEUE_CREATE: empty, asleep, without a trace.
    pub fn new() -> Self {
        Self {
            tail: AtomicU64::new(0),
            pad0: [0; 7],
            head: AtomicU64::new(0),
            asleep: AtomicU32::new(1),
            pad1: 0,
            trace: AtomicU64::new(0),
            trace_tag: AtomicU64::new(0),
            pad2: [0; 4],
        }
    }

    /// Producer: publishes all packets below `tail`, which are written already.
    ///
    /// Returns whether the device sleeps and needs a KICK. The fence orders the
    /// store of `tail` before the load of `asleep`; [`Self::device_may_sleep`]
    /// orders them the other way round, so at least one side sees the other.
    #[inline]
    pub fn publish(&self, tail: u64) -> bool {
        self.tail.store(tail, Ordering::Release);
        fence(Ordering::SeqCst);
        self.asleep.load(Ordering::Relaxed) != 0
    }

    /// Producer, when [`Self::publish`] has found that the device sleeps: whether the device still has to
    /// react to the KICK that was issued when `tail` was `rung`. Until then it needs no other.
    ///
    /// The device publishes `head` before it sleeps, and sleeps only when it has consumed all packets for
    /// which it got a KICK. So while `head` is below `rung`, it has not slept since that KICK.
    #[inline]
    pub fn owes_wake(&self, rung: u64) -> bool {
        self.head.load(Ordering::Acquire) < rung
    }

    /// Device: announces sleep after it has consumed `seen` packets.
    ///
    /// Returns false, with `asleep` reset, if more packets have been published.
    #[inline]
    pub fn device_may_sleep(&self, seen: u64) -> bool {
        self.asleep.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.tail.load(Ordering::Acquire) == seen {
            return true;
        }
        self.asleep.store(0, Ordering::Relaxed);
        false
    }

    /// Device: wakes on a KICK.
    #[inline]
    pub fn device_wakes(&self) {
        self.asleep.store(0, Ordering::Relaxed);
    }
}
