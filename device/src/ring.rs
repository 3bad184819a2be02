// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue's ring as the device reads it, and its control page.

use std::arch::x86_64::{__m128i, _MM_HINT_T0, _mm_prefetch, _mm_set_epi64x};
use std::sync::atomic::{AtomicU32, Ordering};

use tally_uapi::packet::{Header, PACKET_SIZE, Packet};
use tally_uapi::queue::QueueControl;

use crate::guard::{Guard, Trap, word};
use crate::sched::Spin;

/// The device's place in a ring.
#[derive(Debug)]
pub(crate) struct Ring {
    /// VA of the current ring.
    base: u64,
    /// Packets in it, less one: they are a power of two.
    mask: u64,
    /// VA of the control page.
    control: u64,
    /// Index of the next packet.
    next: u64,
    /// Packets published, as last seen.
    tail: u64,
    /// Header of the packet after the next, if that was known to be published when the next was fetched.
    follower: Option<Header>,
}

/// After so many packets the producer is told, if the ring is not smaller than four times that. It reads
/// `asleep` in the same line with each packet, so to tell it each time would cost both sides a line that
/// is elsewhere.
const TOLD_EVERY: u64 = 16;
/// So many packets ahead of the next one are fetched from the producer's cache: to get a line from there takes
/// longer than a short command or two.
const AHEAD: u64 = 8;
/// Pauses between two close looks at an empty ring, about 0.2 µs: each look takes the line of `tail` from the
/// producer, who has written more than one packet by the next.
const PAUSES: u32 = 16;
/// Looks at an empty ring before the producer is told what is done with.
const LOOKS_BEFORE_TOLD: u32 = 32;

impl Ring {
    pub(crate) fn new(base: u64, packets: u32, control: u64) -> Self {
        let mask = u64::from(packets) - 1;
        Self { base, mask, control, next: 0, tail: 0, follower: None }
    }

    /// Index of the next packet.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    fn slot(&self, index: u64) -> u64 {
        self.base.wrapping_add((index & self.mask) * PACKET_SIZE)
    }

    /// Copies the next packet, once. False if nothing is published after so many looks more.
    ///
    /// Writes `head` on the way, now and then: one guarded call a packet.
    #[inline]
    pub(crate) fn fetch(
        &mut self,
        guard: &mut Guard,
        packet: &mut Packet,
        looks: u32,
    ) -> Result<bool, Trap> {
        let (slot, next, control) = (self.slot(self.next), self.next, self.control());
        let mut tail = self.tail;
        let to = std::ptr::from_mut(packet).cast::<__m128i>();
        let (follower, later) = (self.slot(next + 1), self.slot(next + AHEAD));
        let mut header = None;
        let tells = next & (TOLD_EVERY - 1).min(self.mask / 4) == 0;
        guard.run(|| {
            // SAFETY: in a guarded call. The control page and the ring were
            // checked for alignment when the queue was created or linked; `to`
            // has the eight words of a packet, and its alignment.
            unsafe {
                if tells {
                    word(control + HEAD).store(next, Ordering::Release);
                }
                if next == tail {
                    tail = word(control + TAIL).load(Ordering::Acquire);
                    for _ in 0..looks {
                        if next != tail {
                            break;
                        }
                        (0..PAUSES).for_each(|_| std::hint::spin_loop());
                        tail = word(control + TAIL).load(Ordering::Acquire);
                    }
                }
                if next != tail {
                    for i in 0..4 {
                        let from = slot + i as u64 * 16;
                        let [low, high] =
                            [from, from + 8].map(|at| word(at).load(Ordering::Relaxed));
                        // By two: they are read so next, and a read of two stores waits for both.
                        to.add(i).write(_mm_set_epi64x(high as i64, low as i64));
                    }
                    if next + 1 < tail {
                        header = Some(word(follower).load(Ordering::Relaxed));
                    }
                    // While this one is run others may come from the producer's cache: not one that the
                    // producer is still at, who would have to fetch it back.
                    if next + AHEAD < tail {
                        _mm_prefetch::<_MM_HINT_T0>(later as *const i8);
                    }
                }
            }
        })?;
        self.tail = tail;
        self.follower = header.map(|word| zerocopy::transmute!(word));
        Ok(next != tail)
    }

    /// The header of the packet after the one that was fetched last, if it is known to be published.
    pub(crate) fn follower(&self) -> Option<Header> {
        self.follower
    }

    /// Tells the producer which packets are done with.
    pub(crate) fn tell(&self, guard: &mut Guard) {
        let (control, next) = (self.control(), self.next);
        // SAFETY: as in `fetch`.
        let told = guard.run(|| unsafe { word(control + HEAD) }.store(next, Ordering::Release));
        // A trap is met again by whoever looks next.
        let _ = told;
    }

    /// Reads the packet after the next, if it is known to be published.
    pub(crate) fn peek(&self, guard: &mut Guard) -> Option<Packet> {
        let index = self.next + 1;
        if index >= self.tail {
            return None;
        }
        guard.read(self.slot(index)).ok()
    }

    /// The packet that was fetched is done with.
    pub(crate) fn advance(&mut self) {
        self.next += 1;
    }

    /// The packets from the next one on are in another ring.
    pub(crate) fn link(&mut self, base: u64, packets: u32) {
        self.base = base;
        self.mask = u64::from(packets) - 1;
    }

    /// Tells the producer that a KICK is not needed, and reads where it wants a trace: VA of the
    /// buffer, or 0, and the tag.
    pub(crate) fn wake(&self, guard: &mut Guard) -> Result<[u64; 2], Trap> {
        let control = self.control();
        let mut trace = [0; 2];
        guard.run(|| {
            // SAFETY: as in `fetch`; all three are words of the control page.
            unsafe {
                asleep(control).store(0, Ordering::Relaxed);
                trace = [TRACE, TRACE_TAG].map(|at| word(control + at).load(Ordering::Relaxed));
            }
        })?;
        Ok(trace)
    }

    /// The place where the next packet will show.
    pub(crate) fn lookout(&self) -> Lookout {
        Lookout { control: self.control, next: self.next }
    }

    /// The device's half of the sleep handshake. False if more was published.
    pub(crate) fn may_sleep(&self, guard: &mut Guard) -> Result<bool, Trap> {
        let (control, next) = (self.control(), self.next);
        let mut sleeps = false;
        guard.run(|| {
            // SAFETY: in a guarded call; the control page is page-aligned and
            // QueueControl is all atomics, so any content is valid.
            let control = unsafe { &*(control as *const QueueControl) };
            control.head.store(next, Ordering::Release);
            sleeps = control.device_may_sleep(next);
        })?;
        Ok(sleeps)
    }

    fn control(&self) -> u64 {
        self.control
    }
}

/// What it takes to see a new packet, without the ring itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lookout {
    control: u64,
    next: u64,
}

impl Lookout {
    /// Whether there is a new tail. A control page that is gone is news, too.
    pub(crate) fn has_news(self, guard: &mut Guard) -> bool {
        guard.load(self.control + TAIL) != Ok(self.next)
    }

    /// Looks for a new tail until `give_up` says so.
    pub(crate) fn linger(
        self,
        guard: &mut Guard,
        mut give_up: impl FnMut() -> bool,
    ) -> Result<bool, Trap> {
        let Self { control, next } = self;
        let mut found = false;
        let mut spin = Spin::default();
        let mut looks = 0_u32;
        guard.run(|| {
            loop {
                // SAFETY: as in `fetch`.
                found = unsafe { word(control + TAIL) }.load(Ordering::Acquire) != next;
                if found || give_up() {
                    break;
                }
                looks = looks.saturating_add(1);
                if looks == LOOKS_BEFORE_TOLD {
                    // SAFETY: as in `fetch`.
                    unsafe { word(control + HEAD) }.store(next, Ordering::Release);
                }
                spin.turn();
            }
        })?;
        Ok(found)
    }
}

const TAIL: u64 = std::mem::offset_of!(QueueControl, tail) as u64;
const HEAD: u64 = std::mem::offset_of!(QueueControl, head) as u64;
const ASLEEP: u64 = std::mem::offset_of!(QueueControl, asleep) as u64;
const TRACE: u64 = std::mem::offset_of!(QueueControl, trace) as u64;
const TRACE_TAG: u64 = std::mem::offset_of!(QueueControl, trace_tag) as u64;

/// # Safety
/// In a guarded call; `control` is a queue's control page.
unsafe fn asleep<'a>(control: u64) -> &'a AtomicU32 {
    // SAFETY: aligned, as the page is; the access traps if there is no memory.
    unsafe { AtomicU32::from_ptr((control + ASLEEP) as *mut u32) }
}
