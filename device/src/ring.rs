// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device's view of a queue's ring and control page.

use crate::sync::Ordering;

use tally_uapi::packet::{Header, Packet};
use tally_uapi::queue::QueueControl;

use crate::guard::{Guard, Trap};
use crate::spin::Spin;
use crate::tuning::TOLD_EVERY;

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
    /// The `head` that the producer was last told.
    told: u64,
    /// Header of the command or wait after the packet that was fetched, prefixes skipped, if that was known to
    /// be published then.
    follower: Option<Header>,
}

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

    /// The packets after the one that was fetched last that are known to be published.
    pub(crate) fn ahead(&self) -> Ahead {
        Ahead { next: self.next + 1, ..self.known() }
    }

    /// The number of packets that may be finished before the producer is told.
    pub(crate) fn before_telling(&self) -> u64 {
        let every = TOLD_EVERY.min(self.mask / 4 + 1);
        (self.told + every).saturating_sub(self.next)
    }

    /// Copies the next packet, once. False if none is published.
    ///
    /// Now and then it also writes `head`, so that each packet takes one guarded call.
    #[inline]
    pub(crate) fn fetch(&mut self, guard: &mut Guard, packet: &mut Packet) -> Result<bool, Trap> {
        let (next, control, mut known) = (self.next, self.control(), self.known());
        let mut header = None;
        let mut found = false;
        let tells = self.before_telling() == 0;
        guard.run(|| {
            // SAFETY: in a guarded call, and the page is page-aligned.
            let page = unsafe { page(control) };
            if tells {
                page.head.store(next, Ordering::Release);
            }
            if next == known.end {
                known.end = page.tail.load(Ordering::Acquire);
            }
            // SAFETY: in a guarded call. The ring was checked for alignment when the queue was created or
            // linked.
            unsafe {
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

    /// The header of the command or wait after the packet that was fetched last, if it is known to be
    /// published.
    pub(crate) fn follower(&self) -> Option<Header> {
        self.follower
    }

    /// Tells the producer which packets are finished.
    pub(crate) fn tell(&self, guard: &mut Guard) {
        let (control, next) = (self.control(), self.next);
        // SAFETY: as in `fetch`.
        let told = guard.run(|| unsafe { page(control) }.head.store(next, Ordering::Release));
        // A trap is ignored here: the next thread that looks gets it again.
        let _ = told;
    }

    /// Reads the command or wait after the next packet, if it is known to be published.
    pub(crate) fn peek(&self, guard: &mut Guard) -> Option<Packet> {
        self.ahead().peek(guard)
    }

    /// Notes that `packets` packets, from the fetched one on, are finished.
    pub(crate) fn advance(&mut self, packets: u64) {
        self.next += packets;
    }

    /// Continues in another ring from the next packet on.
    pub(crate) fn link(&mut self, base: u64, packets: u32) {
        self.base = base;
        self.mask = u64::from(packets) - 1;
    }

    /// Tells the producer that a KICK is not needed, and reads its trace settings: VA of the buffer, or 0, and
    /// the tag.
    pub(crate) fn wake(&self, guard: &mut Guard) -> Result<[u64; 2], Trap> {
        let control = self.control();
        let mut trace = [0; 2];
        guard.run(|| {
            // SAFETY: as in `fetch`.
            let page = unsafe { page(control) };
            page.device_wakes();
            trace = [&page.trace, &page.trace_tag].map(|word| word.load(Ordering::Relaxed));
        })?;
        Ok(trace)
    }

    /// The place at which the next packet will appear.
    pub(crate) fn lookout(&self) -> Lookout {
        Lookout { control: self.control, next: self.next }
    }

    /// The device's half of the sleep handshake. False if more was published.
    pub(crate) fn may_sleep(&self, guard: &mut Guard) -> Result<bool, Trap> {
        // A client may write anything into its page; the value that is told here only grows.
        debug_assert!(self.told <= self.next, "head goes back");
        let (control, next) = (self.control(), self.next);
        let mut sleeps = false;
        guard.run(|| {
            // SAFETY: as in `fetch`.
            let page = unsafe { page(control) };
            page.head.store(next, Ordering::Release);
            sleeps = page.device_may_sleep(next);
        })?;
        Ok(sleeps)
    }

    fn control(&self) -> u64 {
        self.control
    }
}

/// The part of a ring that is needed to see a new packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lookout {
    control: u64,
    next: u64,
}

impl Lookout {
    /// Whether there is a new tail. A control page that cannot be read counts as news, too.
    pub(crate) fn has_news(self, guard: &mut Guard) -> bool {
        let Self { control, next } = self;
        let mut tail = 0;
        // SAFETY: as in `fetch`.
        let looked = guard.run(|| tail = unsafe { page(control) }.tail.load(Ordering::Acquire));
        looked.is_err() || tail != next
    }

    /// Polls for a new tail until `give_up` returns true.
    ///
    /// It only reads: another thread may own the stream by now and write the control page. A `head` stored here
    /// could set that thread's `head` back, and the producer would then omit a KICK that is needed.
    pub(crate) fn linger(
        self,
        guard: &mut Guard,
        mut give_up: impl FnMut() -> bool,
    ) -> Result<bool, Trap> {
        let Self { control, next } = self;
        let mut found = false;
        let mut spin = Spin::default();
        guard.run(|| {
            loop {
                // SAFETY: as in `fetch`.
                found = unsafe { page(control) }.tail.load(Ordering::Acquire) != next;
                if found || give_up() {
                    break;
                }
                spin.turn();
            }
        })?;
        Ok(found)
    }
}

/// The control page at a VA.
///
/// # Safety
/// In a guarded call, where accesses trap if there is no memory; the VA is aligned, which the creation of the
/// queue checks. The page consists of atomics, so any content is valid.
unsafe fn page<'a>(control: u64) -> &'a QueueControl {
    // SAFETY: as the caller promises.
    unsafe { &*(control as *const QueueControl) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Seat;

    /// A worker that loses the stream while it polls must not overwrite what the new owner has told.
    #[test]
    fn a_look_at_an_empty_ring_writes_nothing() {
        let control = QueueControl::new();
        control.tail.store(3, Ordering::Relaxed);
        control.head.store(5, Ordering::Relaxed);
        let lookout = Lookout { control: std::ptr::from_ref(&control) as u64, next: 3 };
        let mut guard = Guard::attach(Seat::new().unwrap()).unwrap();
        let mut looks = 0;
        let found = lookout.linger(&mut guard, || {
            looks += 1;
            looks == 1000
        });
        assert_eq!(found, Ok(false));
        assert_eq!(control.head.load(Ordering::Relaxed), 5);
        assert_eq!(control.asleep.load(Ordering::Relaxed), 1);
    }
}
