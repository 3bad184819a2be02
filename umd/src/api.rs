// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C interface: thin functions over `core`, one file a group of the specification.
//!
//! This module holds what they share. The macro [`api!`] makes an entry point: it refuses calls that cannot
//! work (in a forked child, after exit, before zeInit), turns panics into errors, keeps the
//! description of the last error, and hands the body a [`Call`], through which every pointer and
//! handle of the caller is checked and read. Its lifetime is that of the call, so nothing of the
//! caller's can be kept by accident. Bodies need no unsafe code of their own.
//!
//! A comment over a check that begins with a result is the specification's: the condition that the header of
//! version 1.17 gives for this result, in its words.

// C names are the names.
#![allow(non_snake_case)]

use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::panic::{self, AssertUnwindSafe};

use tally_ze::{Chained, ze_event_handle_t, ze_result_t, ze_structure_type_t};

use crate::error::{self, Error, Result};
use crate::handle::{self, RawHandle};
use crate::log::warn_once;
use crate::process::{self, Gate};
use crate::sync::event::Event;
use crate::trace::Span;

pub mod context;
pub mod device;
pub mod driver;
pub mod event;
pub mod fence;
pub mod graph;
pub mod graph_experimental;
pub mod image;
pub mod ipc;
pub mod kernel;
pub mod list;
pub mod memory;
pub mod module;
pub mod queue;
pub mod runtime;
pub mod sampler;
pub mod semaphore;
pub mod sysman;
pub mod virtual_memory;

/// Makes an entry point of the C interface.
///
/// ```text
/// api! {
///     /// Spec: zeFenceDestroy.
///     fn zeFenceDestroy(call, hFence: ze_fence_handle_t) {
///         call.take(hFence, "hFence")?.destroy()
///     }
/// }
/// ```
///
/// The body has the type `Result<()>`. With `always` before `fn` it also runs before zeInit. Two kinds of
/// arguments are more than a name and a type:
///
/// ```text
/// list @ hCommandList: ze_command_list_handle_t    opens the handle: `list` is its object
/// events: Events                                   hSignalEvent, numWaitEvents and phWaitEvents
/// ```
macro_rules! api {
    ($($(#[$meta:meta])* fn $name:ident($call:ident $(, $($args:tt)*)?) $body:block)*) => {
        $($crate::api::api!(@ ($(#[$meta])*) entered $name $call [] [] ($($($args)*)?) $body);)*
    };
    (always $($(#[$meta:meta])* fn $name:ident($call:ident $(, $($args:tt)*)?) $body:block)*) => {
        $($crate::api::api!(@ ($(#[$meta])*) always $name $call [] [] ($($($args)*)?) $body);)*
    };
    (@ $meta:tt $gate:ident $name:ident $call:ident [$($params:tt)*] [$($opened:tt)*]
        ($object:ident @ $arg:ident: $ty:ty $(, $($rest:tt)*)?) $body:block) => {
        $crate::api::api!(@ $meta $gate $name $call [$($params)* $arg: $ty,]
            [$($opened)* let $object = $call.handle($arg, stringify!($arg))?;] ($($($rest)*)?) $body);
    };
    (@ $meta:tt $gate:ident $name:ident $call:ident [$($params:tt)*] [$($opened:tt)*]
        ($events:ident: Events $(, $($rest:tt)*)?) $body:block) => {
        $crate::api::api!(@ $meta $gate $name $call
            [$($params)* hSignalEvent: tally_ze::ze_event_handle_t, numWaitEvents: u32,
                phWaitEvents: *mut tally_ze::ze_event_handle_t,]
            [$($opened)* let $events = Events {
                signal: hSignalEvent, count: numWaitEvents, waits: phWaitEvents
            };] ($($($rest)*)?) $body);
    };
    (@ $meta:tt $gate:ident $name:ident $call:ident [$($params:tt)*] $opened:tt
        ($arg:ident: $ty:ty $(, $($rest:tt)*)?) $body:block) => {
        $crate::api::api!(@ $meta $gate $name $call [$($params)* $arg: $ty,] $opened
            ($($($rest)*)?) $body);
    };
    (@ ($($meta:tt)*) $gate:ident $name:ident $call:ident [$($params:tt)*] [$($opened:tt)*]
        () $body:block) => {
        $($meta)*
        ///
        /// # Safety
        /// Level Zero's rules: pointers are null or good for what the specification says, handles
        /// are not destroyed during the call, and external synchronisation is kept where asked for.
        pub unsafe extern "C" fn $name($($params)*) -> tally_ze::ze_result_t {
            // SAFETY: exactly the promise that the caller makes to this function.
            let $call = unsafe { $crate::api::Call::new() };
            $crate::api::$gate(stringify!($name), move || {
                $($opened)*
                $body
            })
        }
    };
}
pub(crate) use api;

/// Runs the body of an entry point that needs the driver to be initialised.
#[inline(always)]
pub fn entered(function: &'static str, body: impl FnOnce() -> Result) -> ze_result_t {
    let mut watched = None;
    if process::gate() != Gate::OPEN {
        match admitted(function, false) {
            Ok(span) => watched = Some(span),
            Err(code) => return code,
        }
    }
    let code = guarded(function, body);
    drop(watched);
    code
}

/// Runs the body of an entry point that works before zeInit.
pub fn always(function: &'static str, body: impl FnOnce() -> Result) -> ze_result_t {
    match admitted(function, true) {
        Ok(_span) => guarded(function, body),
        Err(code) => code,
    }
}

// The one place that runs a body, so that it can be inlined.
#[inline(always)]
fn guarded(function: &'static str, body: impl FnOnce() -> Result) -> ze_result_t {
    match panic::catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => ze_result_t::ZE_RESULT_SUCCESS,
        Ok(Err(error)) => {
            error::set_last(function, &error);
            error.code()
        }
        Err(payload) => panicked(function, &*payload),
    }
}

#[cold]
fn panicked(function: &'static str, payload: &(dyn std::any::Any + Send)) -> ze_result_t {
    let why = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    let error = Error::new(
        ze_result_t::ZE_RESULT_ERROR_UNKNOWN,
        format!("the driver broke a rule of its own; please report it: {why}"),
    );
    error::set_last(function, &error);
    error.code()
}

/// The guards that watch a call until it returns.
struct Admitted {
    _checked: Option<crate::checks::Inside>,
    _span: Span,
}

/// The way through a gate that is not simply open.
#[cold]
fn admitted(function: &'static str, early: bool) -> std::result::Result<Admitted, ze_result_t> {
    if let Some(refusal) = process::gate().refuses(early) {
        let error = Error::from(refusal);
        error::set_last(function, &error);
        return Err(error.code());
    }
    crate::host_waits::enter(function);
    let checked = process::is_checked().then(|| crate::checks::enter(function));
    Ok(Admitted { _checked: checked, _span: crate::trace::span(function) })
}

/// The guarantees of an entry point's caller, and the only access to its pointers and handles.
///
/// `name` arguments are those of the specification; they end up in descriptions.
#[derive(Clone, Copy)]
pub struct Call<'c>(PhantomData<&'c mut &'c ()>);

// Pointers may be followed since the caller of `Call::new` has promised what they are.
#[allow(clippy::not_unsafe_ptr_arg_deref)]
impl<'c> Call<'c> {
    /// Takes the caller's promise.
    ///
    /// # Safety
    /// For `'c`, pointers that the caller passes are null or good for what the specification says of
    /// them, and handles are not destroyed by other threads.
    #[inline]
    pub unsafe fn new() -> Self {
        Self(PhantomData)
    }

    /// The object behind a handle.
    ///
    /// # Errors
    /// INVALID_NULL_HANDLE for everything that is not a live handle of this kind.
    #[inline]
    pub fn handle<R: RawHandle>(self, raw: R, name: &'static str) -> Result<&'c R::Object> {
        // SAFETY: `'c` ends with the call, for which the caller keeps the object.
        unsafe { handle::get(raw, name) }
    }

    /// The object behind a handle that may be null.
    ///
    /// # Errors
    /// Those of [`Call::handle`].
    #[inline]
    pub fn optional<R: RawHandle>(
        self,
        raw: R,
        name: &'static str,
    ) -> Result<Option<&'c R::Object>> {
        if raw.as_ptr().is_null() { Ok(None) } else { self.handle(raw, name).map(Some) }
    }

    /// Moves the object out of its handle, which is dead from here on.
    ///
    /// # Errors
    /// Those of [`Call::handle`].
    pub fn take<R: RawHandle>(self, raw: R, name: &'static str) -> Result<R::Object> {
        // SAFETY: an entry point that destroys a handle holds no other reference to it, and the
        // caller promises the same for other threads.
        unsafe { handle::take(raw, name) }
    }

    /// Drops the object behind a handle, which is dead from here on.
    ///
    /// # Errors
    /// Those of [`Call::handle`].
    #[inline]
    pub fn destroy<R: RawHandle>(self, raw: R, name: &'static str) -> Result {
        // SAFETY: as for `take`.
        unsafe { handle::destroy(raw, name) }
    }

    /// Does the same as [`Call::destroy`] for an event, the object that is created and destroyed
    /// most.
    ///
    /// # Errors
    /// Those of [`Call::handle`].
    #[inline(always)]
    pub fn destroy_event(self, raw: ze_event_handle_t, name: &'static str) -> Result {
        // SAFETY: as for `take`.
        unsafe { Event::destroy(raw, name) }
    }

    /// The value behind a pointer.
    ///
    /// # Errors
    /// INVALID_NULL_POINTER.
    #[inline]
    pub fn read<T: Copy>(self, ptr: *const T, name: &'static str) -> Result<&'c T> {
        // SAFETY: the caller promises a good pointer for the call, or null, which `as_ref` tells.
        unsafe { ptr.as_ref() }.ok_or_else(|| null(name))
    }

    /// A place to write one value to.
    ///
    /// # Errors
    /// INVALID_NULL_POINTER.
    #[inline]
    pub fn out<T>(self, ptr: *mut T, name: &'static str) -> Result<Out<'c, T>> {
        if ptr.is_null() { Err(null(name)) } else { Ok(Out { ptr, call: PhantomData }) }
    }

    /// A place to write to, if the caller wants the value.
    pub fn optional_out<T>(self, ptr: *mut T) -> Option<Out<'c, T>> {
        (!ptr.is_null()).then_some(Out { ptr, call: PhantomData })
    }

    /// A value that the caller gives and gets back changed, such as a count.
    ///
    /// # Errors
    /// INVALID_NULL_POINTER.
    pub fn in_out<T: Copy>(self, ptr: *mut T, name: &'static str) -> Result<&'c mut T> {
        // SAFETY: as for `read`; nothing else refers to the place during the call.
        unsafe { ptr.as_mut() }.ok_or_else(|| null(name))
    }

    /// An array that the caller gives.
    ///
    /// # Errors
    /// INVALID_NULL_POINTER if it is null and not empty.
    #[inline]
    pub fn slice<T: Copy>(self, ptr: *const T, len: usize, name: &'static str) -> Result<&'c [T]> {
        if len == 0 {
            return Ok(&[]);
        }
        if ptr.is_null() {
            return Err(null(name));
        }
        // SAFETY: the caller promises `len` elements for the call.
        Ok(unsafe { std::slice::from_raw_parts(ptr, len) })
    }

    /// An array that the caller gives and gets back changed.
    ///
    /// # Errors
    /// Those of [`Call::slice`].
    pub fn slice_mut<T: Copy>(
        self,
        ptr: *mut T,
        len: usize,
        name: &'static str,
    ) -> Result<&'c mut [T]> {
        if len == 0 {
            return Ok(&mut []);
        }
        if ptr.is_null() {
            return Err(null(name));
        }
        // SAFETY: the caller promises `len` initialised elements that nothing else uses now.
        Ok(unsafe { std::slice::from_raw_parts_mut(ptr, len) })
    }

    /// A string.
    ///
    /// # Errors
    /// INVALID_NULL_POINTER.
    pub fn c_str(self, ptr: *const c_char, name: &'static str) -> Result<&'c CStr> {
        if ptr.is_null() {
            return Err(null(name));
        }
        // SAFETY: the caller promises a terminated string for the call.
        Ok(unsafe { CStr::from_ptr(ptr) })
    }

    /// A structure that describes what to do, and must say so itself or leave its `stype` zero.
    ///
    /// # Errors
    /// INVALID_NULL_POINTER, or INVALID_ARGUMENT if `stype` is neither zero nor the structure's.
    #[inline]
    pub fn desc<T: Chained + Copy>(self, ptr: *const T, name: &'static str) -> Result<&'c T> {
        let desc = self.read(ptr, name)?;
        check_stype::<T>(ptr.cast(), name, &[])?;
        Ok(desc)
    }

    /// Does the same as [`Call::desc`], but null means the defaults.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if `stype` is another structure's.
    pub fn optional_desc<T: Chained + Copy>(
        self,
        ptr: *const T,
        name: &'static str,
    ) -> Result<Option<&'c T>> {
        if ptr.is_null() { Ok(None) } else { self.desc(ptr, name).map(Some) }
    }

    /// A structure to fill.
    ///
    /// # Errors
    /// Those of [`Call::desc`].
    pub fn properties<T: Chained>(self, ptr: *mut T, name: &'static str) -> Result<&'c mut T> {
        self.properties_or(ptr, name, &[])
    }

    /// A structure to fill that may also come with another `stype`.
    ///
    /// # Errors
    /// Those of [`Call::desc`].
    pub fn properties_or<T: Chained>(
        self,
        ptr: *mut T,
        name: &'static str,
        others: &[ze_structure_type_t],
    ) -> Result<&'c mut T> {
        if ptr.is_null() {
            return Err(null(name));
        }
        check_stype::<T>(ptr.cast(), name, others)?;
        // SAFETY: not null, so good to read and write for the call, and the caller's alone.
        Ok(unsafe { &mut *ptr })
    }

    /// A structure to fill that programs are known to hand over uninitialised, or with the `stype` of another
    /// one, and what extends it. Intel's driver does not look at the `stype` there. Any does here, too, but
    /// only with the structure's own, one of `others` or zero is its `pNext` looked at. (hwloc, AdaptiveCpp
    /// and chipStar ask so for what they need of a device and of memory.)
    ///
    /// # Errors
    /// INVALID_NULL_POINTER.
    pub fn raw_properties<T: Chained>(
        self,
        ptr: *mut T,
        name: &'static str,
        others: &[ze_structure_type_t],
    ) -> Result<(&'c mut T, Chain<'c>)> {
        if ptr.is_null() {
            return Err(null(name));
        }
        // SAFETY: not null, so good to read and write for the call, and the caller's alone. Every bit
        // pattern is a value of the structures of the interface.
        let (Head { stype, next }, out) = unsafe { (ptr.cast::<Head>().read(), &mut *ptr) };
        if stype == UNSET || check_stype::<T>(ptr.cast(), name, others).is_ok() {
            return Ok((out, self.chain(next.cast())));
        }
        warn_once!("{name}->stype: {stype:?}, taken for {:?}; its pNext is ignored", T::STYPE);
        Ok((out, self.chain(std::ptr::null())))
    }

    /// Does the same as [`Call::raw_properties`], but zero is no `stype` with which `pNext` is looked at: Intel's driver
    /// does not follow it then for drivers and devices (`DriverHandle::getProperties`, `Device::getProperties`), and
    /// VkFFT hands over what lay on its stack.
    ///
    /// # Errors
    /// INVALID_NULL_POINTER.
    pub fn named_properties<T: Chained>(
        self,
        ptr: *mut T,
        name: &'static str,
        others: &[ze_structure_type_t],
    ) -> Result<(&'c mut T, Chain<'c>)> {
        let (out, chain) = self.raw_properties(ptr, name, others)?;
        // SAFETY: not null, so good to read for the call.
        let is_unset = unsafe { (*ptr.cast::<Head>()).stype } == UNSET;
        Ok((out, if is_unset { self.chain(std::ptr::null()) } else { chain }))
    }

    /// The structures that extend another one.
    pub fn chain(self, next: *const c_void) -> Chain<'c> {
        Chain {
            next: next.cast_mut().cast(),
            met: std::ptr::null_mut(),
            left: 1,
            lap: 1,
            call: PhantomData,
        }
    }

    /// Answers a list in the two-call way: with a count of 0, how many there are; else as many as
    /// there is room for.
    ///
    /// # Errors
    /// INVALID_NULL_POINTER if the count's place is null. Without an array only the count is answered.
    pub fn list<T, I>(self, count: *mut u32, out: *mut T, name: &'static str, items: I) -> Result
    where
        I: IntoIterator<Item = T>,
        I::IntoIter: ExactSizeIterator,
    {
        let items = items.into_iter();
        let all = u32::try_from(items.len()).unwrap_or(u32::MAX);
        let count = self.in_out(count, name)?;
        if *count == 0 || out.is_null() {
            *count = all;
            return Ok(());
        }
        *count = (*count).min(all);
        for (i, item) in items.take(*count as usize).enumerate() {
            // SAFETY: the caller promises an array of as many elements as it counted.
            unsafe { out.add(i).write(item) };
        }
        Ok(())
    }

    /// Answers bytes, such as a string with its NUL, in the two-call way.
    ///
    /// # Errors
    /// INVALID_NULL_POINTER if the size's place is null.
    pub fn bytes(self, size: *mut usize, out: *mut u8, name: &'static str, bytes: &[u8]) -> Result {
        let size = self.in_out(size, name)?;
        if *size == 0 || out.is_null() {
            *size = bytes.len();
            return Ok(());
        }
        *size = (*size).min(bytes.len());
        // SAFETY: the caller promises an array of the size that it passed.
        unsafe { out.copy_from_nonoverlapping(bytes.as_ptr(), *size) };
        Ok(())
    }

    /// Refuses flags that the specification does not name.
    ///
    /// # Errors
    /// INVALID_ENUMERATION.
    #[inline]
    pub fn flags(self, unknown: bool, name: &'static str) -> Result {
        if unknown { Err(unknown_flags(name)) } else { Ok(()) }
    }
}

/// A place of the caller's to write one value to.
pub struct Out<'c, T> {
    ptr: *mut T,
    call: PhantomData<Call<'c>>,
}

impl<T> Out<'_, T> {
    /// Writes the value.
    pub fn set(self, value: T) {
        // SAFETY: not null, so good to write during the call, in which this exists. What was there
        // before may be uninitialised and is not dropped.
        unsafe { self.ptr.write(value) };
    }
}

/// The head that all chained structures share.
#[repr(C)]
struct Head {
    stype: ze_structure_type_t,
    next: *mut Head,
}

/// The `stype` of a structure whose author wrote zeroes.
const UNSET: ze_structure_type_t = ze_structure_type_t(0);

/// Walks a `pNext` chain, however long it is: a call that changes mutable commands has structures for each. A chain
/// that leads back into itself ends, too, after a few rounds.
pub struct Chain<'c> {
    next: *mut Head,
    /// A structure that was met; meeting it again shows that the chain has no end (Brent's algorithm).
    met: *mut Head,
    /// Structures until the next one is remembered in its place, and how many it was for this one.
    left: usize,
    lap: usize,
    call: PhantomData<Call<'c>>,
}

impl<'c> Iterator for Chain<'c> {
    type Item = Link<'c>;

    fn next(&mut self) -> Option<Link<'c>> {
        let ptr = self.next;
        if ptr.is_null() || ptr == self.met {
            return None;
        }
        if self.left == 0 {
            (self.met, self.lap) = (ptr, self.lap * 2);
            self.left = self.lap;
        }
        self.left -= 1;
        // SAFETY: the caller promises that a chain consists of structures with this head.
        let Head { stype, next } = unsafe { ptr.read() };
        self.next = next;
        Some(Link { ptr, stype, call: PhantomData })
    }
}

/// One structure of a chain.
pub struct Link<'c> {
    ptr: *mut Head,
    stype: ze_structure_type_t,
    call: PhantomData<Call<'c>>,
}

impl<'c> Link<'c> {
    /// The type that it names itself.
    pub fn stype(&self) -> ze_structure_type_t {
        self.stype
    }

    /// The structure, if it is a `T`.
    pub fn get<T: Chained>(&self) -> Option<&'c T> {
        // SAFETY: the caller promises that a structure is what its stype says, for the call.
        (self.stype == T::STYPE).then(|| unsafe { &*self.ptr.cast::<T>() })
    }

    /// The structure to fill, if it is a `T`.
    pub fn get_mut<T: Chained>(self) -> Option<&'c mut T> {
        // SAFETY: as for `get`; the link is used up, and the structure is the caller's alone.
        (self.stype == T::STYPE).then(|| unsafe { &mut *self.ptr.cast::<T>() })
    }
}

#[cold]
fn unknown_flags(name: &'static str) -> Error {
    Error::new(
        ze_result_t::ZE_RESULT_ERROR_INVALID_ENUMERATION,
        format!("{name}: a bit is set that has no meaning"),
    )
}

#[cold]
fn null(name: &'static str) -> Error {
    Error::new(
        ze_result_t::ZE_RESULT_ERROR_INVALID_NULL_POINTER,
        format!("{name}: the pointer is null"),
    )
}

#[inline]
fn check_stype<T: Chained>(
    ptr: *const Head,
    name: &'static str,
    others: &[ze_structure_type_t],
) -> Result {
    // SAFETY: the caller has checked for null; the rest is the promise of `Call`.
    let stype = unsafe { (*ptr).stype };
    if stype == T::STYPE || others.contains(&stype) {
        return Ok(());
    }
    other_stype(stype, T::STYPE, name)
}

/// The base structure of a call can only be one, so zero does for its `stype`, as it does for Intel's
/// driver. What a chain holds is known by the `stype` alone, so there zero names nothing.
#[cold]
fn other_stype(is: ze_structure_type_t, must: ze_structure_type_t, name: &'static str) -> Result {
    if is == UNSET {
        warn_once!("{name}->stype: 0, taken for {must:?}");
        return Ok(());
    }
    Err(Error::invalid(format!("{name}->stype: {is:?} where {must:?} must stand")))
}
