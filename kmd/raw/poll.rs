// SPDX-License-Identifier: GPL-2.0
//! Files that can only be polled. The kernel crate has neither anonymous files nor a table of file operations
//! with `poll`; its `PollCondVar` is for queues that end before their files.

use core::ffi::{c_int, c_void};
use core::marker::PhantomData;
use core::ptr::NonNull;

use kernel::bindings;
use kernel::error::from_err_ptr;
use kernel::ffi::c_char;
use kernel::fs::File;
use kernel::prelude::*;
use kernel::sync::aref::ARef;

use super::wait::Waiter;

// The empty structs that bindgen makes inside kernel structs depend on the configuration only.
#[allow(improper_ctypes)]
extern "C" {
    // Exported by the kernel; bindgen does not see its header.
    fn anon_inode_getfile(
        name: *const c_char,
        fops: *const bindings::file_operations,
        data: *mut c_void,
        flags: c_int,
    ) -> *mut bindings::file;
    /// The module that contains this code. Its files hold a reference to it. The linker makes it.
    static __this_module: bindings::module;
}

/// The subject of a file that is polled.
pub(crate) trait Polled: Send + Sync + 'static {
    /// The waiter that is woken whenever [`Self::state`] may have changed.
    fn waiter(&self) -> &Waiter;
    /// The current state. May sleep.
    fn state(&self) -> Readiness;
}

/// The result of polling a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// No event yet.
    Waiting,
    /// POLLIN, for good.
    Ready,
    /// POLLERR: it will never be ready.
    Failed,
    /// POLLERR and POLLHUP: the subject is gone.
    Gone,
}

// The values of the kernel's uapi, whose macros bindgen does not understand.
const EPOLLERR: bindings::__poll_t = 0x8;
const EPOLLHUP: bindings::__poll_t = 0x10;
const EPOLLRDNORM: bindings::__poll_t = 0x40;
const EPOLLIN: bindings::__poll_t = 0x1;

impl Readiness {
    fn events(self) -> bindings::__poll_t {
        match self {
            Self::Waiting => 0,
            Self::Ready => EPOLLIN | EPOLLRDNORM,
            Self::Failed => EPOLLERR,
            Self::Gone => EPOLLERR | EPOLLHUP,
        }
    }
}

/// The operations of the files of one type.
struct Operations<P>(PhantomData<P>);

impl<P: Polled> Operations<P> {
    const FILE: bindings::file_operations = bindings::file_operations {
        owner: (&raw const __this_module).cast_mut(),
        poll: Some(poll::<P>),
        release: Some(release::<P>),
        ..pin_init::zeroed()
    };
}

/// A new file, which owns `about` and keeps the module loaded.
///
/// # Errors
/// ENOMEM, ENFILE.
pub(crate) fn file<P: Polled>(about: Pin<KBox<P>>) -> Result<ARef<File>> {
    // SAFETY: it stays where it is until `release`.
    let about = KBox::into_raw(unsafe { Pin::into_inner_unchecked(about) });
    let name = c"[tally-wait]".as_char_ptr();
    // SAFETY: name and table are static. The file owns `about`, which `release` frees.
    let file = from_err_ptr(unsafe {
        anon_inode_getfile(
            name,
            &Operations::<P>::FILE,
            about.cast(),
            bindings::O_RDONLY as c_int,
        )
    })
    .inspect_err(|_| {
        // SAFETY: no file was made, so `about` is still ours.
        drop(unsafe { KBox::from_raw(about) });
    })?;
    let file = NonNull::new(file).ok_or(ENOMEM)?;
    // SAFETY: a new file with one reference, which is ours; no call on it is in progress.
    Ok(unsafe { ARef::from_raw(file.cast()) })
}

/// # Safety
/// Only the kernel may call this, to poll a file of [`file`].
unsafe extern "C" fn poll<P: Polled>(
    file: *mut bindings::file,
    table: *mut bindings::poll_table_struct,
) -> bindings::__poll_t {
    // SAFETY: the file owns its data as long as it lives.
    let about = unsafe { &*(*file).private_data.cast::<P>() };
    // SAFETY: the arguments are the kernel's; the file owns the waiter, and pollers hold the file or leave when it
    // is released.
    unsafe { about.waiter().register(file, table) };
    about.state().events()
}

/// # Safety
/// Only the kernel may call this, when the last reference to a file of [`file`] is dropped.
unsafe extern "C" fn release<P: Polled>(
    _inode: *mut bindings::inode,
    file: *mut bindings::file,
) -> c_int {
    // SAFETY: `file` has put it there, and only this function takes it out.
    drop(unsafe { KBox::from_raw((*file).private_data.cast::<P>()) });
    0
}
