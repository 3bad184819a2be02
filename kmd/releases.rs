// SPDX-License-Identifier: GPL-2.0
//! Threads that wait for room. What a client has closed counts until the device has answered, which may
//! be after the client has ended: the next one waits for that, instead of being refused.

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
    /// Releases so far.
    done: u64,
    /// Who waits for the next one.
    waiting: KVec<Arc<Waiter>>,
}

impl Releases {
    /// None so far.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self { inner <- new_mutex!(Inner { done: 0, waiting: KVec::new() }) })
    }

    /// How many there were, for [`Self::wait`].
    pub(crate) fn done(&self) -> u64 {
        self.inner.lock().done
    }

    /// Something was released, or the device has gone: those who wait look again.
    pub(crate) fn note(&self) {
        let mut inner = self.inner.lock();
        inner.done += 1;
        let waiting = core::mem::take(&mut inner.waiting);
        drop(inner);
        for waiter in &waiting {
            waiter.wake();
        }
    }

    /// Waits until there was one since `done` was read. The caller holds no lock.
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
            self.inner.lock().waiting.retain(|other| !Arc::ptr_eq(other, &waiter));
        }
        slept.map_err(|why| match why {
            Interrupted::Late => ENOSPC,
            Interrupted::Signal => EINTR,
        })
    }
}
