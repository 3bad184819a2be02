// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handles. Each points to an object that begins with the loader's table of functions and counts references.

use std::ffi::c_void;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use opencl_sys::cl_icd::cl_icd_dispatch;
use opencl_sys::{cl_int, cl_uint};

use super::{Code, Result};

static TABLE: OnceLock<&cl_icd_dispatch> = OnceLock::new();

/// Sets the table that objects begin with. Each function that a loader can call first does so.
pub fn use_table(table: &'static cl_icd_dispatch) {
    TABLE.get_or_init(|| table);
}

/// What a handle is of.
pub trait Kind: Send + Sync + 'static {
    /// A number that objects of this kind carry and no others.
    const TAG: u32;
    /// The error for handles that are not of this kind.
    const INVALID: cl_int;
}

/// The object behind a handle.
#[repr(C)]
pub struct Object<T> {
    // Spec: "The structure of the object must begin with the dispatch table" of the loader.
    table: &'static cl_icd_dispatch,
    tag: AtomicU32,
    count: AtomicU32,
    value: T,
}

impl<T: Kind> Object<T> {
    /// An object with one reference.
    pub fn new(value: T) -> Self {
        let table = *TABLE.get().expect("it is set before the first object");
        Self { table, tag: AtomicU32::new(T::TAG), count: AtomicU32::new(1), value }
    }

    /// The handle.
    pub fn handle(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// The number of references.
    pub fn count(&self) -> cl_uint {
        self.count.load(Ordering::Relaxed)
    }
}

impl<T> Deref for Object<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// The object behind a handle.
///
/// # Errors
/// The kind's code for null, and for what is not of this kind.
///
/// # Safety
/// The handle is null or was made by this library, and stays alive for `'a`.
pub unsafe fn get<'a, T: Kind>(handle: *mut c_void) -> Result<&'a Object<T>> {
    // SAFETY: the caller promises that the place is an object; all begin with the same three fields.
    let object = unsafe { handle.cast::<Object<T>>().as_ref() };
    object.filter(|it| it.tag.load(Ordering::Acquire) == T::TAG).ok_or(Code(T::INVALID))
}

/// A reference that is counted.
pub struct Ref<T: Kind>(NonNull<Object<T>>);

// SAFETY: an object of this kind may be used by any thread, and its count is atomic.
unsafe impl<T: Kind> Send for Ref<T> {}
// SAFETY: as above.
unsafe impl<T: Kind> Sync for Ref<T> {}

impl<T: Kind> Ref<T> {
    /// A new object.
    pub fn new(value: T) -> Self {
        Self(NonNull::from(Box::leak(Box::new(Object::new(value)))))
    }

    /// One more reference to an object that was made with [`Ref::new`].
    pub fn more(object: &Object<T>) -> Self {
        object.count.fetch_add(1, Ordering::Relaxed);
        Self(NonNull::from(object))
    }

    /// One more reference that the program holds.
    pub fn retain(object: &Object<T>) {
        Self::more(object).into_handle();
    }

    /// Hands the reference to the program, which releases it.
    pub fn into_handle(self) -> *mut c_void {
        let handle = self.0.as_ptr().cast();
        std::mem::forget(self);
        handle
    }

    /// Takes back a reference that the program held.
    ///
    /// # Errors
    /// Those of [`get`].
    ///
    /// # Safety
    /// As for [`get`], and the program holds a reference, which it gives up.
    pub unsafe fn from_handle(handle: *mut c_void) -> Result<Self> {
        // SAFETY: as the caller promises.
        let object: &Object<T> = unsafe { get(handle)? };
        Ok(Self(NonNull::from(object)))
    }
}

impl<T: Kind> Deref for Ref<T> {
    type Target = Object<T>;

    fn deref(&self) -> &Object<T> {
        // SAFETY: this reference keeps the object alive.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Kind> Drop for Ref<T> {
    fn drop(&mut self) {
        if self.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            // A handle that is released too often is refused as long as nothing else takes its memory.
            self.tag.store(0, Ordering::Release);
            // SAFETY: that was the last reference, and the object is from a box.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}
