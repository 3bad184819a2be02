// SPDX-License-Identifier: GPL-2.0
//! Register writes that the process has not read yet. Each is a level: a register that is written twice before
//! it is read is reported once, so nothing here grows.

use kernel::prelude::*;
use kernel::sync::{new_spinlock, Arc, SpinLock};
use tally_uapi::cell::WAITERS;
use tally_uapi::firmware::MAX_QUEUES;
use tally_uapi::host::Write;
use tally_uapi::regs;

use crate::raw::wait::{Interrupted, Sleep, Waiter};

/// See the module.
#[pin_data]
pub(super) struct Doorbells {
    #[pin]
    pending: SpinLock<Pending>,
    #[pin]
    reader: Waiter,
}

/// The writes that were not read yet.
struct Pending {
    tail: Option<u32>,
    /// Whether foreign cells were written.
    foreign: bool,
    /// The kicked queues.
    kicks: Bits<{ MAX_QUEUES as usize / 64 + 1 }>,
    /// The buckets whose cells were written.
    wakes: Bits<{ WAITERS / 64 }>,
    /// The driver has stopped using the device.
    ended: bool,
}

/// A set of numbers.
struct Bits<const WORDS: usize>([u64; WORDS]);

impl<const WORDS: usize> Bits<WORDS> {
    /// Adds a number, unless it is too large.
    fn set(&mut self, number: u32) {
        if let Some(word) = self.0.get_mut(number as usize / 64) {
            *word |= 1 << (number % 64);
        }
    }

    /// Takes the smallest number out.
    fn take(&mut self) -> Option<u32> {
        let (index, word) = self
            .0
            .iter_mut()
            .enumerate()
            .find(|(_, word)| **word != 0)?;
        let bit = word.trailing_zeros();
        *word &= *word - 1;
        Some(index as u32 * 64 + bit)
    }
}

impl Pending {
    const NONE: Self = Self {
        tail: None,
        foreign: false,
        kicks: Bits([0; MAX_QUEUES as usize / 64 + 1]),
        wakes: Bits([0; WAITERS / 64]),
        ended: false,
    };

    fn take(&mut self) -> Option<Write> {
        let write = |register: u64, value| Write {
            register: register as u32,
            value,
        };
        if let Some(tail) = self.tail.take() {
            return Some(write(regs::ADMIN_TAIL, tail));
        }
        if let Some(queue) = self.kicks.take() {
            return Some(write(regs::KICK, queue));
        }
        if let Some(bucket) = self.wakes.take() {
            return Some(write(regs::WAKE, bucket));
        }
        core::mem::take(&mut self.foreign).then(|| write(regs::WAKE, regs::WAKE_FOREIGN))
    }
}

impl Doorbells {
    /// Doorbells without a write.
    ///
    /// # Errors
    /// ENOMEM.
    pub(super) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                pending <- new_spinlock!(Pending::NONE),
                reader <- Waiter::new(),
            }),
            GFP_KERNEL,
        )
    }

    fn ring(&self, what: impl FnOnce(&mut Pending)) {
        what(&mut self.pending.lock());
        self.reader.wake();
    }

    /// ADMIN_TAIL.
    pub(super) fn admin_tail(&self, tail: u32) {
        self.ring(|pending| pending.tail = Some(tail));
    }

    /// KICK.
    pub(super) fn kick(&self, queue: u32) {
        self.ring(|pending| pending.kicks.set(queue));
    }

    /// WAKE.
    pub(super) fn wake(&self, bucket: u32) {
        self.ring(|pending| match bucket {
            regs::WAKE_FOREIGN => pending.foreign = true,
            bucket => pending.wakes.set(bucket),
        });
    }

    /// Notes that the driver has stopped using the device.
    pub(super) fn end(&self) {
        self.ring(|pending| pending.ended = true);
    }

    /// Whether [`Self::end`] was called.
    pub(super) fn ended(&self) -> bool {
        self.pending.lock().ended
    }

    /// Waits until a register was written, and takes as many writes as `out` has room for.
    ///
    /// # Errors
    /// ENODEV: the driver has stopped using the device. EINTR.
    pub(super) fn take(&self, out: &mut [Write]) -> Result<usize> {
        loop {
            // Rearmed before the look, so that a later write wakes the sleeper.
            self.reader.rearm();
            let mut pending = self.pending.lock();
            if pending.ended {
                return Err(ENODEV);
            }
            let mut count = 0;
            for slot in out.iter_mut() {
                let Some(write) = pending.take() else { break };
                *slot = write;
                count += 1;
            }
            drop(pending);
            if count != 0 {
                return Ok(count);
            }
            match self.reader.sleep(i64::MAX, Sleep::Interruptible) {
                Err(Interrupted::Signal) => return Err(EINTR),
                Ok(()) | Err(Interrupted::Late) => {}
            }
        }
    }
}

#[kernel::macros::kunit_tests(tally_doorbells)]
mod tests {
    use super::*;

    /// "a register that is written twice before it is read is reported once"
    #[test]
    fn writes_are_levels() -> Result {
        let bells = Doorbells::new()?;
        for queue in [4095, 7, 7, 4096] {
            bells.kick(queue);
        }
        bells.wake(511);
        bells.wake(regs::WAKE_FOREIGN);
        bells.admin_tail(1);
        bells.admin_tail(2);
        let write = |register: u64, value| Write {
            register: register as u32,
            value,
        };
        let all = [
            write(regs::ADMIN_TAIL, 2),
            write(regs::KICK, 7),
            write(regs::KICK, 4095),
            write(regs::WAKE, 511),
            write(regs::WAKE, regs::WAKE_FOREIGN),
        ];
        // Writes without room in the slice stay.
        let mut out = [Write::default(); 8];
        assert_eq!(bells.take(&mut out[..2])?, 2);
        assert_eq!(bells.take(&mut out[2..])?, 3);
        assert_eq!(out[..5], all);
        bells.kick(1);
        bells.end();
        assert_eq!(bells.take(&mut out).err(), Some(ENODEV));
        Ok(())
    }
}
