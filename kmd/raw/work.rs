// SPDX-License-Identifier: GPL-2.0
//! The end of work items: those of the kernel crate cannot be cancelled, and ours must
//! not outlive the module.

use core::pin::Pin;
use core::ptr::NonNull;

use kernel::bindings;
use kernel::drm;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;
use kernel::workqueue::{DelayedWork, HasWork, Work, WorkItem};

/// A work item as C sees it.
pub(crate) struct RawWork(*mut bindings::work_struct);

/// The C work item of a work.
pub(crate) fn plain<T: ?Sized, const ID: u64>(work: &Work<T, ID>) -> RawWork {
    // SAFETY: a live object; the pointer is only computed.
    RawWork(unsafe { Work::raw_get(work) })
}

/// The C work item of a delayed work, which its type keeps private.
pub(crate) fn delayed<T: ?Sized, const ID: u64>(work: Pin<&DelayedWork<T, ID>>) -> RawWork {
    // SAFETY: a live object; the pointers are only computed.
    RawWork(unsafe {
        Work::raw_get(DelayedWork::raw_as_work(core::ptr::from_ref(
            work.get_ref(),
        )))
    })
}

/// Ends pending and running work of `dev`: no code of it runs afterwards.
///
/// # Safety
/// Both are part of `dev` and own a reference to it while they are pending; `delayed` comes
/// from [`delayed`], and `plain` from [`plain`].
pub(crate) unsafe fn cancel<D: drm::Driver>(
    dev: &drm::Device<D>,
    delayed: &RawWork,
    plain: &RawWork,
) {
    // SAFETY: the work is part of the live device; `delayed_work` begins with it.
    let pending = unsafe {
        [
            bindings::cancel_delayed_work_sync(delayed.0.cast()),
            bindings::cancel_work_sync(plain.0),
        ]
    };
    for _ in pending.into_iter().filter(|&pending| pending) {
        // SAFETY: a pending work owns a reference to its device, which is ours now.
        drop(unsafe { ARef::<drm::Device<D>>::from_raw(NonNull::from(dev)) });
    }
}

/// Ends the pending or running work of `owner`: no code of it runs afterwards, unless it is queued again.
/// Waits for it.
pub(crate) fn cancel_shared<T, const ID: u64>(owner: &Arc<T>)
where
    T: HasWork<T, ID> + WorkItem<ID, Pointer = Arc<T>>,
{
    let place = Arc::as_ptr(owner).cast_mut();
    // SAFETY: a live object; the pointers are only computed.
    let work = unsafe { Work::raw_get(T::raw_get_work(place)) };
    // SAFETY: the work is part of the live object.
    if unsafe { bindings::cancel_work_sync(work) } {
        // SAFETY: a pending work owns a reference to its object, made by `Arc::into_raw`, which is ours now.
        drop(unsafe { Arc::from_raw(place) });
    }
}
