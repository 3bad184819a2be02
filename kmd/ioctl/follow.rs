// SPDX-License-Identifier: GPL-2.0
//! SEM_FOLLOW: cells that take a value once a fence of the kernel has signalled.

use core::sync::atomic::{fence as barrier, Ordering};

use kernel::drm;
use kernel::prelude::*;
use tally_uapi::cell::waiters_index;
use tally_uapi::ioctl::SemFollow;

use super::caller::Caller;
use crate::account::{Charge, WAIT};
use crate::buffer::BoRef;
use crate::device::TallyDevice;
use crate::follower::{status, Due};
use crate::raw::fence::Fence;
use crate::raw::pages::PinnedWord;
use crate::request::{FenceSource, Follow};

/// The value that a cell takes, and where its fence's status goes.
struct Store {
    cell: PinnedWord,
    status: Option<PinnedWord>,
    bucket: usize,
    value: u64,
    /// Keeps the memory alive.
    _bo: BoRef,
    charge: Option<Charge>,
}

/// IOCTL: SEM_FOLLOW: arms a cell that takes a value once a fence has signalled.
pub(super) fn follow(caller: &Caller<'_>, arg: &SemFollow) -> Result {
    let Follow {
        handle,
        offset,
        value,
        status: place,
        source,
    } = Follow::try_from(arg)?;
    let file = caller.file();
    let bo = caller.lookup()(handle)?;
    if !bo.may_write(Some(file.id())) {
        return Err(EACCES);
    }
    let place = place
        .map(|offset| PinnedWord::new(&bo, offset))
        .transpose()?;
    let cell = PinnedWord::new(&bo, offset)?;
    let fence = match source {
        FenceSource::SyncFile(number) => Fence::of_sync_file(number)?,
        FenceSource::Point(handle, point) => Fence::of_point(caller.drm_file, handle, point)?,
    };
    if file.state().gone() {
        return Err(ENODEV);
    }
    let charge = Some(Charge::take(file.account(), WAIT)?);
    let bucket = waiters_index(offset);
    let mut store = Store {
        cell,
        status: place,
        bucket,
        value,
        _bo: bo,
        charge,
    };
    if let Some(status) = status(core::iter::once(&fence)) {
        store.carry_out(status, caller.dev);
        return Ok(());
    }
    let mut fences = KVec::with_capacity(1, GFP_KERNEL_ACCOUNT)?;
    fences.push(fence, GFP_KERNEL_ACCOUNT)?;
    file.follower()
        .arm(fences, KBox::new(store, GFP_KERNEL_ACCOUNT)?, caller.dev)
}

impl Due for Store {
    /// Stores the status and then the value, and wakes who waits for the cell.
    fn carry_out(&mut self, status: i32, dev: &TallyDevice<drm::Ioctl>) {
        if let Some(word) = &self.status {
            word.store(i64::from(status) as u64);
        }
        // Given back before anyone sees the value.
        self.charge = None;
        self.cell.raise(self.value);
        // Orders the store before the look at the lists and before the device's look.
        barrier(Ordering::SeqCst);
        if !dev.state.sleepers.wake_for_host(self.bucket) {
            return;
        }
        // Unbound: there is no device that could wait.
        if let Some(guard) = dev.registration_guard() {
            guard.registration_data_with(|registered| registered.gpu.wake(self.bucket as u32));
        }
    }
}
