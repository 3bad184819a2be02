// SPDX-License-Identifier: GPL-2.0
//! What an open file has asked to be done once fences of the kernel have signalled, of whatever driver.
//!
//! A fence calls back with its lock held, in any context. So the callback only marks the entry and queues the work
//! item of its follower, which does what is due; `driver.rs` gives it the device for that.

use kernel::drm;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::atomic::{Atomic, Full};
use kernel::sync::{new_mutex, Arc, Mutex};
use kernel::workqueue::{self, impl_has_work, new_work, Work};

use crate::device::TallyDevice;
use crate::raw::fence::{Fence, Signalled, Watch};
use crate::raw::work;

/// What is done once fences have signalled.
pub(crate) trait Due: Send {
    /// Does it. `status` is 0, or the negative error of a fence. The caller holds no lock.
    fn carry_out(&mut self, status: i32, dev: &TallyDevice<drm::Ioctl>);

    /// The file is closed, so it will not be done.
    fn forget(&mut self) {}
}

/// The entries of an open file that wait for fences.
#[pin_data]
pub(crate) struct Follower {
    #[pin]
    armed: Mutex<KVec<KBox<Armed>>>,
    #[pin]
    work: Work<Follower>,
    dev: ARef<TallyDevice>,
}

impl_has_work! {
    impl HasWork<Self> for Follower { self.work }
}

/// An entry some of whose fences had not signalled when they were last asked.
struct Armed {
    watches: KVec<Watch<Mark>>,
    mark: Arc<Mark>,
    due: KBox<dyn Due>,
}

impl Armed {
    /// 0 or the error of a fence, once all have signalled.
    fn status(&self) -> Option<i32> {
        status(self.watches.iter().map(Watch::fence))
    }
}

/// 0, or the negative error of the last of `fences` that ended with one, once all have signalled.
pub(crate) fn status<'a>(mut fences: impl Iterator<Item = &'a Fence>) -> Option<i32> {
    fences.try_fold(0, |before, fence| {
        Some(fence.ended()?).map(|it| if it == 0 { before } else { it })
    })
}

/// What a fence tells. It refers to the follower, which owns the entry; closing the file breaks this cycle.
struct Mark {
    /// Whether a fence has signalled since they were last asked.
    signalled: Atomic<bool>,
    follower: Arc<Follower>,
}

impl Signalled for Mark {
    fn signalled(&self) {
        self.signalled.xchg(true, Full);
        // If the work item is queued already, it will see the mark.
        let _ = workqueue::system_long().enqueue(self.follower.clone());
    }
}

impl Follower {
    /// A follower without entries.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new(dev: ARef<TallyDevice>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                armed <- new_mutex!(KVec::new()),
                work <- new_work!("tally_follower"),
                dev,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// The device.
    pub(crate) fn device(&self) -> &TallyDevice {
        &self.dev
    }

    /// Carries `due` out once all `fences` have signalled, which may be before this returns.
    ///
    /// # Errors
    /// After an error it is never carried out. ENOMEM.
    pub(crate) fn arm(
        self: &Arc<Self>,
        fences: KVec<Fence>,
        due: KBox<dyn Due>,
        dev: &TallyDevice<drm::Ioctl>,
    ) -> Result {
        let mark = Mark {
            signalled: Atomic::new(false),
            follower: self.clone(),
        };
        let mark = Arc::new(mark, GFP_KERNEL_ACCOUNT)?;
        let mut watches = KVec::with_capacity(fences.len(), GFP_KERNEL_ACCOUNT)?;
        for fence in fences {
            watches.push(Watch::new(fence, mark.clone())?, GFP_KERNEL_ACCOUNT)?;
        }
        let mut armed = KBox::new(Armed { watches, mark, due }, GFP_KERNEL_ACCOUNT)?;
        let mut all = self.armed.lock();
        // A work item that a fence queues from now on waits for the lock, and then finds the entry in the list.
        if let Some(status) = armed.status() {
            drop(all);
            armed.due.carry_out(status, dev);
            return Ok(());
        }
        Ok(all.push(armed, GFP_KERNEL_ACCOUNT)?)
    }

    /// Does what is due.
    pub(crate) fn carry_out_due(&self, dev: &TallyDevice<drm::Ioctl>) {
        let mut from = 0;
        while let Some((armed, status)) = self.next_due(&mut from) {
            let Armed {
                watches, mut due, ..
            } = KBox::into_inner(armed);
            drop(watches);
            due.carry_out(status, dev);
        }
    }

    /// Removes the next entry, from index `from` on, whose fences have signalled. Returns their status, too.
    fn next_due(&self, from: &mut usize) -> Option<(KBox<Armed>, i32)> {
        let mut all = self.armed.lock();
        while let Some(armed) = all.get(*from) {
            if armed.mark.signalled.xchg(false, Full) {
                if let Some(status) = armed.status() {
                    return all.remove(*from).ok().map(|armed| (armed, status));
                }
            }
            *from += 1;
        }
        None
    }

    /// Forgets all entries, because the file is closed. No code of the follower runs afterwards, and no fence tells
    /// it anything. Waits for what is being carried out, not for fences.
    pub(crate) fn close(self: &Arc<Self>) {
        let rest = core::mem::take(&mut *self.armed.lock());
        for armed in rest {
            let Armed {
                watches, mut due, ..
            } = KBox::into_inner(armed);
            drop(watches);
            due.forget();
        }
        // No fence is watched any more, so nothing queues the work item.
        work::cancel_shared(self);
    }
}
