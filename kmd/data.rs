// SPDX-License-Identifier: GPL-2.0
//! The data of a DRM device until its last file is closed: the state that files share, and the work items
//! that look after the hardware. `driver.rs` defines what the work items do.

use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::workqueue::{
    impl_has_delayed_work, impl_has_work, new_delayed_work, new_work, DelayedWork, Work,
};

use crate::device::TallyDevice;
use crate::raw::work;
use crate::state::State;

/// The work that frees the resources of commands without a waiting thread.
pub(crate) const REAPER: u64 = 1;

/// See the module.
#[pin_data]
pub(crate) struct Data {
    /// The state that files share.
    pub(crate) state: Arc<State>,
    #[pin]
    watchdog: DelayedWork<TallyDevice>,
    #[pin]
    reaper: Work<TallyDevice, REAPER>,
}

impl_has_work! {
    impl HasWork<TallyDevice, REAPER> for Data { self.reaper }
}

impl_has_delayed_work! {
    impl HasDelayedWork<TallyDevice> for Data { self.watchdog }
}

impl Data {
    /// Data whose work items are not queued.
    pub(crate) fn new(state: Arc<State>) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            state,
            watchdog <- new_delayed_work!("tally_watchdog"),
            reaper <- new_work!("tally_reaper"),
        }? Error)
    }
}

/// Ends pending and running work of `dev`: no code of it runs afterwards.
pub(crate) fn cancel_work(dev: &TallyDevice) {
    // SAFETY: the data of a device is pinned: it is part of the C allocation.
    let watchdog = work::delayed(unsafe { Pin::new_unchecked(&dev.watchdog) });
    let reaper = work::plain(&dev.reaper);
    // SAFETY: both are part of the device's data, and are queued with a reference to the device.
    unsafe { work::cancel(dev, &watchdog, &reaper) };
}
