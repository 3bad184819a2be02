// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue's ring as the device reads it, and its control page.

use std::sync::atomic::{AtomicU32, Ordering};

use tally_uapi::packet::{Header, Packet};
use tally_uapi::queue::QueueControl;

use crate::guard::{Guard, Trap, word};
use crate::sched::Spin;

mod ahead;

pub(crate) use ahead::Ahead;

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
    /// The index that the producer was told last.
    told: u64,
    /// Header of the packet after the next, if that was known to be published when the next was fetched.
    follower: Option<Header>,
}

/// After so many packets the producer is told, if the ring is not smaller than four times that. It reads
/// `asleep` in the same line with each packet, so to tell it each time would cost both sides a line that
/// is elsewhere.
const TOLD_EVERY: u64 = 16;
/// Pauses between two close looks at an empty ring, about 0.2 µs: each look takes the line of `tail` from the
/// producer, who has written more than one packet by the next.
const PAUSES: u32 = 16;
/// Looks at an empty ring before the producer is told what is done with.
const LOOKS_BEFORE_TOLD: u32 = 32;

impl Ring {
    pub(crate) fn new(base: u64, packets: u32, control: u64) -> Self {
        let mask = u64::from(packets) - 1;
        Self { base, mask, control, next: 0, tail: 0, told: 0, follower: None }
    }

    /// Index of the next packet.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// The packets from the next one on that are known to be published.
    fn known(&self) -> Ahead {
        Ahead { base: self.base, mask: self.mask, next: self.next, end: self.tail }
    }

    /// The same behind the one that was fetched last.
    pub(crate) fn ahead(&self) -> Ahead {
        Ahead { next: self.next + 1, ..self.known() }
    }

    /// How many packets may be done with before the producer is to be told.
    pub(crate) fn before_telling(&self) -> u64 {
        let every = TOLD_EVERY.min(self.mask / 4 + 1);
        (self.told + every).saturating_sub(self.next)
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
        let (next, control, mut known) = (self.next, self.control(), self.known());
        let mut header = None;
        let mut found = false;
        let tells = self.before_telling() == 0;
        guard.run(|| {
            // SAFETY: in a guarded call. The control page and the ring were
            // checked for alignment when the queue was created or linked.
            unsafe {
                if tells {
                    word(control + HEAD).store(next, Ordering::Release);
                }
                if next == known.end {
                    known.end = word(control + TAIL).load(Ordering::Acquire);
                    for _ in 0..looks {
                        if next != known.end {
                            break;
                        }
                        (0..PAUSES).for_each(|_| std::hint::spin_loop());
                        known.end = word(control + TAIL).load(Ordering::Acquire);
                    }
                }
                found = known.take(packet);
                header = known.header();
            }
        })?;
        if tells {
            self.told = next;
        }
        self.tail = known.end;
        self.follower = header;
        Ok(found)
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
        self.ahead().peek(guard)
    }

    /// The packet that was fetched, or so many from it on, are done with.
    pub(crate) fn advance(&mut self, packets: u64) {
        self.next += packets;
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
