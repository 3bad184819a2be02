// SPDX-License-Identifier: GPL-2.0
//! A command and its sender.
//!
//! What a command has set free is freed by the thread that waits for it, at that thread's expense.
//! What no thread waits for any more is freed from a workqueue.
//!
//! What commands keep until they are answered is of no concern here: see [`Kept`].

use kernel::prelude::*;
use kernel::rbtree::{RBTree, RBTreeNodeReservation};
use kernel::sync::{new_spinlock, Arc, SpinLock};
use tally_uapi::firmware::{answer_status, Answer, Command};

use crate::raw::wait::{Interrupted, Sleep, Waiter};

/// What has to stay until a command is answered, and is freed then.
pub(crate) trait Kept: Sized + Unpin {
    /// Where it came from.
    type Owner;
    /// What a command that keeps nothing has.
    const NOTHING: Self;

    /// Takes from the answer what is of interest for this. Whether the device touches nothing of it
    /// any more.
    fn answered(&self, owner: &Self::Owner, answer: &Answer) -> bool;
    /// Whether the command sets something free, and so must always be taken.
    fn sets_free(&self) -> bool;
    /// Frees it. `quiet`: the device is known to touch nothing of it any more; otherwise what it may touch
    /// is never freed.
    fn settle(self, owner: &Self::Owner, quiet: bool);
}

/// A command on its way to its answer.
pub(crate) struct Sent<K> {
    /// Its sender's side.
    pub(crate) call: Arc<Call<K>>,
    /// The command.
    pub(crate) command: Command,
    /// What goes with it.
    pub(crate) keep: K,
    /// Whether the device touches nothing of `keep`; known with the answer.
    pub(crate) quiet: bool,
}

/// Commands by a number that no two have.
pub(crate) type Commands<K> = RBTree<u64, Sent<K>>;
/// A place for one.
pub(crate) type Place<K> = RBTreeNodeReservation<u64, Sent<K>>;

/// All memory that a command needs. Made first, so that nothing is begun that memory is then missing for.
pub(crate) struct Order<K> {
    /// The sender's side.
    pub(crate) call: Arc<Call<K>>,
    /// Where the command will be kept.
    pub(crate) place: Place<K>,
}

impl<K: Kept> Order<K> {
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { call: Call::new()?, place: Place::new(GFP_KERNEL_ACCOUNT)? })
    }
}

/// What has become of a command.
enum Outcome<K> {
    /// Nothing yet; its sender waits, or will.
    Pending,
    /// Nothing yet, or it was told; its sender does not wait any more.
    Left,
    /// It has ended. What it has set free, and whether the device is done with that.
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

    /// Waits for the answer until a fatal signal, or until `deadline_ns`, and frees what it set free. The
    /// caller may hold locks.
    ///
    /// # Errors
    /// EINTR: killed; the command is carried out all the same. EIO: the device was reset, or its VM is
    /// lost. ENODEV: the device is gone. ETIME: the deadline, where there is one.
    pub(crate) fn wait_until(&self, owner: &K::Owner, deadline_ns: i64) -> Result<Answer> {
        let slept = self.waiter.sleep(deadline_ns, Sleep::Killable);
        self.take(owner, slept)
    }

    /// As [`Self::wait_until`] without a deadline, for a caller that holds no lock: it may be frozen.
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
    /// As [`Self::wait_until`], and what the answer's status means.
    pub(crate) fn wait(&self, owner: &K::Owner) -> Result<Answer> {
        let answer = self.wait_freezably(owner)?;
        status(&answer)?;
        Ok(answer)
    }

    /// Waits until something has ended: whether by the answer or because the device was reset, it is gone.
    /// The caller holds no lock.
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
/// EIO: lost. ENOENT, EINVAL, ENOSPC as the device says. EXISTS would be a mistake
/// of this driver, and is EIO.
pub(crate) fn status(answer: &Answer) -> Result {
    match answer.status {
        answer_status::OK => Ok(()),
        answer_status::INVALID => Err(EINVAL),
        answer_status::NO_ENTRY => Err(ENOENT),
        answer_status::NO_SPACE => Err(ENOSPC),
        _ => Err(EIO),
    }
}
