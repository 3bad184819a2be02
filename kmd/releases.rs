// SPDX-License-Identifier: GPL-2.0
//! Threads that wait for room. Closed objects count until the device has answered, which may be after their
//! client has ended: the user's next client waits for that, instead of being refused.

use kernel::prelude::*;
use kernel::sync::{new_mutex, Arc, Mutex};

use crate::raw::wait::{Interrupted, Sleep, Waiter};

/// See the module.
#[pin_data]
pub(crate) struct Releases {
    #[pin]
    inner: Mutex<Inner>,
}

struct Inner {
    /// Number of releases so far.
    done: u64,
    /// The threads that wait for the next release.
    waiting: KVec<Arc<Waiter>>,
}

impl Releases {
    /// No releases so far.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self { inner <- new_mutex!(Inner { done: 0, waiting: KVec::new() }) })
    }

    /// Number of releases so far, for [`Self::wait`].
    pub(crate) fn done(&self) -> u64 {
        self.inner.lock().done
    }

    /// Notes that something was released, or that the device has gone: waiting threads look again.
    pub(crate) fn note(&self) {
        let mut inner = self.inner.lock();
        inner.done += 1;
        let waiting = core::mem::take(&mut inner.waiting);
        drop(inner);
        for waiter in &waiting {
            waiter.wake();
        }
    }

    /// Waits for a release since `done` was read. The caller holds no lock.
    ///
    /// # Errors
    /// ENOSPC: `deadline_ns` has passed. EINTR: killed. ENOMEM.
    pub(crate) fn wait(&self, done: u64, deadline_ns: i64) -> Result {
        let waiter = Arc::pin_init(Waiter::new(), GFP_KERNEL_ACCOUNT)?;
        let mut inner = self.inner.lock();
        if inner.done != done {
            return Ok(());
        }
        inner.waiting.push(waiter.clone(), GFP_KERNEL_ACCOUNT)?;
        drop(inner);
        let slept = waiter.sleep(deadline_ns, Sleep::KillableFreezable);
        if slept.is_err() {
            self.inner
                .lock()
                .waiting
                .retain(|other| !Arc::ptr_eq(other, &waiter));
        }
        slept.map_err(|why| match why {
            Interrupted::Late => ENOSPC,
            Interrupted::Signal => EINTR,
        })
    }
}
