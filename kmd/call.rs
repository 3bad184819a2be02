// SPDX-License-Identifier: GPL-2.0
//! A command and its sender.
//!
//! The thread that waits for a command frees the resources that the command released, at that thread's
//! expense. A workqueue frees them if no thread waits any more.
//!
//! This module does not know which resources those are: see [`Kept`].

use kernel::prelude::*;
use kernel::rbtree::{RBTree, RBTreeNodeReservation};
use kernel::sync::{new_spinlock, Arc, SpinLock};
use tally_uapi::firmware::{answer_status, Answer, Command};

use crate::raw::wait::{Interrupted, Sleep, Waiter};

/// The resources that a command keeps until it is answered, and that are freed then.
pub(crate) trait Kept: Sized + Unpin {
    /// The owner of the resources.
    type Owner;
    /// The value for a command that keeps nothing.
    const NOTHING: Self;

    /// Notes the parts of the answer that concern these resources. Returns whether the device has stopped
    /// touching them.
    fn answered(&self, owner: &Self::Owner, answer: &Answer) -> bool;
    /// Whether the command releases resources, and so must always be accepted.
    fn sets_free(&self) -> bool;
    /// Frees the resources. `quiet`: the device is known to touch none of them any more; otherwise memory that
    /// it may touch is never freed.
    fn settle(self, owner: &Self::Owner, quiet: bool);
}

/// A command on its way to its answer.
pub(crate) struct Sent<K> {
    /// The sender's side of it.
    pub(crate) call: Arc<Call<K>>,
    /// The command.
    pub(crate) command: Command,
    /// The resources that it keeps.
    pub(crate) keep: K,
    /// Whether the device has stopped touching `keep`; known once the answer is here.
    pub(crate) quiet: bool,
}

/// Commands by a unique number.
pub(crate) type Commands<K> = RBTree<u64, Sent<K>>;
/// Memory for one entry of [`Commands`].
pub(crate) type Place<K> = RBTreeNodeReservation<u64, Sent<K>>;

/// All memory that a command needs. It is allocated first, so that no operation fails for lack of memory after
/// it has begun.
pub(crate) struct Order<K> {
    /// The sender's side.
    pub(crate) call: Arc<Call<K>>,
    /// The place at which the command will be kept.
    pub(crate) place: Place<K>,
}

impl<K: Kept> Order<K> {
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            call: Call::new()?,
            place: Place::new(GFP_KERNEL_ACCOUNT)?,
        })
    }
}

/// The outcome of a command so far.
enum Outcome<K> {
    /// It has not ended; its sender waits, or will.
    Pending,
    /// Its sender does not wait, or has taken the result.
    Left,
    /// It has ended: the result, the resources that it released, and whether the device is done with them.
    Ended(Result<Answer>, K, bool),
}

/// See the module.
#[pin_data]
pub(crate) struct Call<K> {
    #[pin]
    waiter: Waiter,
    #[pin]
    outcome: SpinLock<Outcome<K>>,
}

impl<K: Kept> Call<K> {
    fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                waiter <- Waiter::new(),
                outcome <- new_spinlock!(Outcome::Pending),
            }? Error),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Says that no thread will wait for the command. Called before it is sent, or if it releases no
    /// resources.
    pub(crate) fn leave(&self) {
        *self.outcome.lock() = Outcome::Left;
    }

    /// Ends the command. Returns the resources that it released if no thread waits for it.
    #[must_use]
    pub(crate) fn end(&self, answer: Result<Answer>, keep: K, quiet: bool) -> Option<K> {
        let mut outcome = self.outcome.lock();
        if !matches!(*outcome, Outcome::Pending) {
            return Some(keep);
        }
        *outcome = Outcome::Ended(answer, keep, quiet);
        drop(outcome);
        self.waiter.wake();
        None
    }

    /// Waits for the answer until a fatal signal, or until `deadline_ns`, and frees the released resources.
    /// The caller may hold locks.
    ///
    /// # Errors
    /// EINTR: killed; the command is carried out all the same. EIO: the device was reset, or its VM is
    /// lost. ENODEV: the device is gone. ETIME: the deadline, where there is one.
    pub(crate) fn wait_until(&self, owner: &K::Owner, deadline_ns: i64) -> Result<Answer> {
        let slept = self.waiter.sleep(deadline_ns, Sleep::Killable);
        self.take(owner, slept)
    }

    /// Like [`Self::wait_until`] without a deadline, for a caller that holds no lock, since it may be frozen.
    fn wait_freezably(&self, owner: &K::Owner) -> Result<Answer> {
        let slept = self.waiter.sleep(i64::MAX, Sleep::KillableFreezable);
        self.take(owner, slept)
    }

    fn take(&self, owner: &K::Owner, slept: Result<(), Interrupted>) -> Result<Answer> {
        let outcome = core::mem::replace(&mut *self.outcome.lock(), Outcome::Left);
        match (outcome, slept) {
            (Outcome::Ended(answer, keep, quiet), _) => {
                keep.settle(owner, quiet);
                answer
            }
            (_, Err(Interrupted::Late)) => Err(ETIME),
            (_, _) => Err(EINTR),
        }
    }

    /// Waits for the answer until a fatal signal. The caller holds no lock.
    ///
    /// # Errors
    /// Those of [`Self::wait_until`], and of [`status`].
    pub(crate) fn wait(&self, owner: &K::Owner) -> Result<Answer> {
        let answer = self.wait_freezably(owner)?;
        status(&answer)?;
        Ok(answer)
    }

    /// Waits until an object has ended, by the answer or by a reset of the device. The caller holds no lock.
    ///
    /// # Errors
    /// EINTR: killed.
    pub(crate) fn wait_for_end(&self, owner: &K::Owner) -> Result {
        match self.wait_freezably(owner) {
            Err(error) if error == EINTR => Err(error),
            _ => Ok(()),
        }
    }
}

/// An answer's status as an error of the uapi.
///
/// # Errors
/// EIO: the VM is lost. ENOENT, EINVAL, ENOSPC: as the device answered. EXISTS would be
/// a bug of this driver, and becomes EIO.
pub(crate) fn status(answer: &Answer) -> Result {
    match answer.status {
        answer_status::OK => Ok(()),
        answer_status::INVALID => Err(EINVAL),
        answer_status::NO_ENTRY => Err(ENOENT),
        answer_status::NO_SPACE => Err(ENOSPC),
        _ => Err(EIO),
    }
}
