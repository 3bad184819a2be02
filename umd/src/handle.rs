// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handles: pointers to slots of type-stable slabs.
//!
//! Each kind of object has a slab, a reserved range of addresses that is only used for slots of that kind. A
//! handle is the address of a slot:
//!
//! ```text
//!  0   tables   function tables for the loader (`ddi::dispatch`); they never change
//! 32   tag      kind and state: live or free
//! 40   uses     number of objects that were made here
//! 48   value    the object, stored inline
//! ```
//!
//! The distance between slots is a power of two, so that an address inside of a slot is recognised by its low
//! bits.
//!
//! A lookup compares the address with the slab's range and reads the tag: ten instructions, no lock, no memory
//! access outside the slab. So null, a wild pointer, a pointer into the middle of an object, a handle of another
//! kind and a destroyed handle are all recognised and refused.
//!
//! Two mistakes cannot be recognised. One is a destroyed handle whose slot contains a new object of the same
//! kind. Slots are reused in the order in which they were freed and not before [`REST`] others were freed, which
//! makes this rare, not impossible: a pointer has no room for a generation. (Events are made and freed most, so
//! each thread keeps some of their slots, and this order, for itself.) The other is a handle that one thread
//! destroys while another uses it: Level Zero forbids that, and a check would cost every call a lock.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use strum::VariantArray as _;
use tally_ze::ze_result_t;

use crate::error::{Error, Result};

pub mod local;

/// Kinds of objects that have handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[repr(u8)]
#[allow(missing_docs)] // each is the Level Zero object of that name
pub enum Kind {
    #[strum(serialize = "a driver")]
    Driver,
    #[strum(serialize = "a device")]
    Device,
    #[strum(serialize = "a context")]
    Context,
    #[strum(serialize = "a module")]
    Module,
    #[strum(serialize = "a build log")]
    BuildLog,
    #[strum(serialize = "a kernel")]
    Kernel,
    #[strum(serialize = "a command queue")]
    Queue,
    #[strum(serialize = "a command list")]
    List,
    #[strum(serialize = "a fence")]
    Fence,
    #[strum(serialize = "an event pool")]
    EventPool,
    #[strum(serialize = "an event")]
    Event,
    #[strum(serialize = "a physical memory object")]
    PhysicalMemory,
    #[strum(serialize = "an image")]
    Image,
    #[strum(serialize = "a sampler")]
    Sampler,
    #[strum(serialize = "an engine group")]
    Engines,
    #[strum(serialize = "a memory module")]
    Memory,
    #[strum(serialize = "an external semaphore")]
    Semaphore,
    #[strum(serialize = "a graph")]
    Graph,
    #[strum(serialize = "an executable graph")]
    ExecutableGraph,
}

impl Kind {
    /// The object's name in descriptions, with its article.
    pub fn name(self) -> &'static str {
        self.into()
    }

    fn slab(self) -> &'static Slab {
        static SLABS: [Slab; Kind::VARIANTS.len()] = [const { Slab::new() }; Kind::VARIANTS.len()];
        &SLABS[self as usize]
    }

    /// Bytes of address space to reserve for slots: room for more objects than any known program has.
    const fn span(self) -> usize {
        match self {
            Self::Driver | Self::Device | Self::Engines | Self::Memory => 1 << 20,
            Self::Context | Self::Module | Self::BuildLog | Self::Kernel => 64 << 20,
            Self::Queue | Self::Fence | Self::EventPool | Self::PhysicalMemory => 64 << 20,
            Self::Image | Self::Sampler | Self::Graph | Self::ExecutableGraph => 64 << 20,
            Self::Semaphore => 64 << 20,
            Self::List | Self::Event => 1 << 30,
        }
    }

    const fn live(self) -> u32 {
        LIVE | self as u32
    }

    /// Calls `visit` for the slots that hold an object, among the first `most`, each with the number of objects
    /// that it has held.
    pub fn each_live(self, most: usize, mut visit: impl FnMut(usize, u64)) {
        let slab = self.slab();
        let (base, used, slots) = {
            let growth = slab.growth();
            let slots = slab.slots.load(Ordering::Relaxed);
            (slab.base.load(Ordering::Relaxed), growth.used, slots)
        };
        for slot in 0..slots.min(most) {
            let address = base + slot * (used / slots);
            let head = ptr::with_exposed_provenance::<Slot<()>>(address);
            // SAFETY: slots that have been used stay accessible, and all kinds of slots begin with the same words.
            let head = unsafe { &*head };
            if head.tag.load(Ordering::Acquire) == self.live() {
                visit(slot, head.uses.load(Ordering::Relaxed));
            }
        }
    }
}

/// Tag of a slot that holds an object; the low byte is the kind. Any other tag means a free slot.
const LIVE: u32 = 0x7a11_7a00;
const FREE: u32 = 0;

/// Slots become accessible in steps of this many bytes.
const STEP: usize = 64 << 10;
/// Number of freed slots that rest before the first of them is used again.
pub const REST: usize = 64;

/// A C handle type, and the object behind it.
pub trait RawHandle: Copy {
    /// The object in the slot.
    type Object: Send + Sync + 'static;
    /// The slab.
    const KIND: Kind;
    /// The handle from a slot's address.
    fn from_ptr(ptr: *mut c_void) -> Self;
    /// The address that the caller passed.
    fn as_ptr(self) -> *mut c_void;
}

/// Defines the object of a C handle type: `object! { ze_event_handle_t => Event, Kind::Event }`.
macro_rules! object {
    ($raw:ident => $object:ty, $kind:expr) => {
        impl $crate::handle::RawHandle for tally_ze::$raw {
            type Object = $object;
            const KIND: $crate::handle::Kind = $kind;
            fn from_ptr(ptr: *mut std::ffi::c_void) -> Self {
                Self(ptr)
            }
            fn as_ptr(self) -> *mut std::ffi::c_void {
                self.0
            }
        }
    };
}
pub(crate) use object;

/// The number of pointers to tables with which every handle begins.
const TABLES: usize = 4;

static HANDLE_TABLES: [AtomicPtr<c_void>; TABLES] =
    [const { AtomicPtr::new(ptr::null_mut()) }; TABLES];

/// Sets the tables with which handles begin, before the first handle is made.
pub fn set_tables(tables: [*const c_void; TABLES]) {
    for (word, table) in HANDLE_TABLES.iter().zip(tables) {
        word.store(table.cast_mut(), Ordering::Relaxed);
    }
}

#[repr(C, align(16))]
struct Slot<T> {
    tables: [AtomicPtr<c_void>; TABLES],
    tag: AtomicU32,
    uses: AtomicU64,
    value: UnsafeCell<MaybeUninit<T>>,
}

impl<T> Slot<T> {
    /// Bytes from one slot to the next.
    const STRIDE: usize = size_of::<Self>().next_power_of_two();
}

/// The address range of one kind.
struct Slab {
    /// First address, 0 before the first object.
    base: AtomicUsize,
    /// Number of slots from `base` on that have been used at least once.
    slots: AtomicUsize,
    growth: Mutex<Growth>,
}

struct Growth {
    /// Reserved bytes.
    span: usize,
    /// Accessible bytes.
    open: usize,
    /// Bytes of slots that have been used at least once.
    used: usize,
    /// Addresses of free slots, in the order in which they were freed.
    free: VecDeque<usize>,
}

impl Slab {
    const fn new() -> Self {
        Self {
            base: AtomicUsize::new(0),
            slots: AtomicUsize::new(0),
            growth: Mutex::new(Growth { span: 0, open: 0, used: 0, free: VecDeque::new() }),
        }
    }

    /// Whether `address` is the start of a slot that has been used; slots are `stride` bytes apart, a
    /// power of two.
    #[inline(always)]
    fn has_slot(&self, address: usize, stride: usize) -> bool {
        // `slots` is published after `base`, so a caller that sees `slots` sees `base`, too.
        let slots = self.slots.load(Ordering::Acquire);
        let offset = address.wrapping_sub(self.base.load(Ordering::Relaxed));
        // The rotation moves the remainder of the division to the high bits, so one comparison checks both.
        offset.rotate_right(stride.trailing_zeros()) < slots
    }

    /// Whether `address` is inside a slot that has been used.
    fn holds(&self, address: usize) -> bool {
        let growth = self.growth();
        address.wrapping_sub(self.base.load(Ordering::Relaxed)) < growth.used
    }

    /// Address of a free slot of `size` bytes; the first call reserves `span` bytes.
    fn reserve(&self, size: usize, span: usize) -> Result<usize> {
        self.reserve_in(&mut self.growth(), size, span)
    }

    fn reserve_in(&self, growth: &mut Growth, size: usize, span: usize) -> Result<usize> {
        if growth.free.len() > REST
            && let Some(address) = growth.free.pop_front()
        {
            return Ok(address);
        }
        match self.grow(growth, size, span) {
            Ok(address) => Ok(address),
            // A slot that has not rested is better than none.
            Err(error) => growth.free.pop_front().ok_or(error),
        }
    }

    fn grow(&self, growth: &mut Growth, size: usize, span: usize) -> Result<usize> {
        if growth.span == 0 {
            let (base, span) = reserve_range(span).ok_or_else(out_of_memory)?;
            self.base.store(base, Ordering::Relaxed);
            growth.span = span;
        }
        let base = self.base.load(Ordering::Relaxed);
        let used = growth.used;
        if used + size > growth.open {
            let step = STEP.max(size.next_multiple_of(STEP));
            if growth.open + step > growth.span {
                return Err(out_of_memory());
            }
            let at = (base + growth.open) as *mut c_void;
            // SAFETY: the range is the part of our own reservation after the accessible bytes.
            let done = unsafe { libc::mprotect(at, step, libc::PROT_READ | libc::PROT_WRITE) };
            if done != 0 {
                return Err(out_of_memory());
            }
            growth.open += step;
        }
        growth.used += size;
        write_tables(base + used);
        self.slots.store(growth.used / size, Ordering::Release);
        Ok(base + used)
    }

    fn growth(&self) -> MutexGuard<'_, Growth> {
        self.growth.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes the tables with which a handle begins, once, since they never change.
fn write_tables(address: usize) {
    let words = ptr::with_exposed_provenance::<[AtomicPtr<c_void>; TABLES]>(address);
    // SAFETY: the address is that of a slot, accessible from here on, which begins with these words.
    let words = unsafe { &*words };
    for (word, table) in words.iter().zip(&HANDLE_TABLES) {
        word.store(table.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[cold]
fn out_of_memory() -> Error {
    Error::new(
        ze_result_t::ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY,
        "no memory for another object's handle",
    )
}

/// Reserves an inaccessible range of `span` bytes, or less if the process's address space is limited. Returns
/// its base and its size.
fn reserve_range(mut span: usize) -> Option<(usize, usize)> {
    let limit = usize::try_from(crate::space::address_limit() / 64).unwrap_or(usize::MAX);
    while span > STEP && span > limit {
        span /= 2;
    }
    while span >= STEP {
        // SAFETY: a new mapping at an address that the system chooses touches no existing memory.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                span,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base != libc::MAP_FAILED {
            return Some((base as usize, span));
        }
        span /= 2;
    }
    None
}

/// A new handle for `object`.
///
/// # Errors
/// OUT_OF_HOST_MEMORY; the object is dropped.
pub fn create<R: RawHandle>(object: R::Object) -> Result<R> {
    Ok(Vacant::take()?.fill(object))
}

/// A slot for an object that will be made in place.
pub struct Vacant<R: RawHandle>(*mut Slot<R::Object>);

impl<R: RawHandle> Vacant<R> {
    /// A free slot.
    ///
    /// # Errors
    /// OUT_OF_HOST_MEMORY.
    pub fn take() -> Result<Self> {
        let size = Slot::<R::Object>::STRIDE;
        let address = match R::KIND {
            Kind::Event => local::take(size)?,
            kind => kind.slab().reserve(size, kind.span())?,
        };
        Ok(Self(ptr::with_exposed_provenance_mut(address)))
    }

    /// Moves `object` into the slot, and returns its handle.
    #[inline(always)]
    pub fn fill(self, object: R::Object) -> R {
        // SAFETY: `reserve` gives each address, aligned since slots are a multiple of 16 from a page
        // boundary, to one caller at a time; the memory is accessible and zero or a freed slot, and
        // every field is valid as such.
        let slot = unsafe { &*self.0 };
        // SAFETY: the slot is free, so no reference to its value exists.
        unsafe { (*slot.value.get()).write(object) };
        slot.uses.store(slot.uses.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        slot.tag.store(R::KIND.live(), Ordering::Release);
        let raw = R::from_ptr(self.0.cast());
        std::mem::forget(self);
        raw
    }
}

impl<R: RawHandle> Drop for Vacant<R> {
    /// Frees the slot, since no object was made.
    #[cold]
    fn drop(&mut self) {
        R::KIND.slab().growth().free.push_back(self.0.expose_provenance());
    }
}

/// The object behind `raw`. `name` is the argument's name, for the description.
///
/// # Safety
/// The handle is not destroyed while the reference is in use, which Level Zero requires of applications.
///
/// # Errors
/// INVALID_NULL_HANDLE: null, not a handle, of another kind, or destroyed.
#[inline]
pub unsafe fn get<'a, R: RawHandle>(raw: R, name: &'static str) -> Result<&'a R::Object> {
    match find(raw) {
        // SAFETY: the tag says that the slot holds a value; the caller keeps it alive.
        Some(slot) => Ok(unsafe { (*slot.value.get()).assume_init_ref() }),
        None => Err(explain(raw, name)),
    }
}

/// A handle together with the generation of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted<R> {
    raw: R,
    uses: u64,
}

impl<R: RawHandle> Counted<R> {
    /// The handle of no object.
    pub fn none() -> Self {
        Self { raw: R::from_ptr(ptr::null_mut()), uses: 0 }
    }

    /// The object, if it still has the handle.
    ///
    /// # Safety
    /// The rules of [`get`] hold.
    pub unsafe fn get<'a>(self) -> Option<&'a R::Object> {
        let slot = find(self.raw).filter(|slot| slot.uses.load(Ordering::Relaxed) == self.uses)?;
        // SAFETY: as in `get`.
        Some(unsafe { (*slot.value.get()).assume_init_ref() })
    }
}

/// The handle in the form that finds its object again; that of no object if it is not live.
pub fn counted<R: RawHandle>(raw: R) -> Counted<R> {
    let uses = |slot: &Slot<R::Object>| slot.uses.load(Ordering::Relaxed);
    find(raw).map_or_else(Counted::none, |slot| Counted { raw, uses: uses(slot) })
}

/// Like [`counted`], for an object that has a handle.
pub fn counted_of<R: RawHandle>(object: &R::Object) -> Counted<R> {
    let offset = std::mem::offset_of!(Slot<R::Object>, value);
    let slot = ptr::from_ref(object).cast::<u8>().wrapping_sub(offset);
    counted(R::from_ptr(slot.cast_mut().cast()))
}

/// Moves the object out of its slot, which destroys the handle.
///
/// # Safety
/// No reference from [`get`] is in use.
///
/// # Errors
/// Those of [`get`]. Of two threads that destroy the same handle one gets the error.
pub unsafe fn take<R: RawHandle>(raw: R, name: &'static str) -> Result<R::Object> {
    // SAFETY: the caller's promise.
    let slot = unsafe { Claimed::<R>::claim(raw, name) }?;
    // SAFETY: the value was live, and the claim lets only this thread move it out, once.
    Ok(unsafe { (*slot.0.value.get()).assume_init_read() })
}

/// Drops the object in place, which destroys the handle.
///
/// # Safety
/// No reference from [`get`] is in use.
///
/// # Errors
/// Those of [`take`].
#[inline]
pub unsafe fn destroy<R: RawHandle>(raw: R, name: &'static str) -> Result {
    // SAFETY: the caller's promise.
    unsafe { Claimed::claim(raw, name) }?.end();
    Ok(())
}

/// A slot whose object only this thread can reach. Dropping it frees the slot, so the object has to be moved
/// out or dropped before.
pub struct Claimed<R: RawHandle>(&'static Slot<R::Object>);

impl<R: RawHandle> Claimed<R> {
    /// Claims the object of a handle, which destroys the handle.
    ///
    /// # Safety
    /// The rules of [`take`] hold.
    ///
    /// # Errors
    /// Those of [`take`].
    #[inline(always)]
    pub unsafe fn claim(raw: R, name: &'static str) -> Result<Self> {
        let free = |slot: &&Slot<R::Object>| {
            let (live, order) = (R::KIND.live(), Ordering::Acquire);
            slot.tag.compare_exchange(live, FREE, order, Ordering::Relaxed).is_ok()
        };
        match find(raw).filter(free) {
            Some(slot) => Ok(Self(slot)),
            None => Err(explain(raw, name)),
        }
    }

    /// The object.
    #[inline(always)]
    pub fn object(&mut self) -> &mut R::Object {
        // SAFETY: the value was live, and after the claim only this thread can reach it.
        unsafe { (*self.0.value.get()).assume_init_mut() }
    }

    /// Drops the object in place and frees the slot.
    pub fn end(mut self) {
        // SAFETY: as in `object`; no other thread can find the value any more.
        unsafe { ptr::drop_in_place(self.object()) };
    }
}

impl<R: RawHandle> Drop for Claimed<R> {
    #[inline]
    fn drop(&mut self) {
        let address = ptr::from_ref(self.0).expose_provenance();
        match R::KIND {
            Kind::Event => local::give(address),
            kind => kind.slab().growth().free.push_back(address),
        }
    }
}

#[inline(always)]
fn find<R: RawHandle>(raw: R) -> Option<&'static Slot<R::Object>> {
    let address = raw.as_ptr() as usize;
    if !R::KIND.slab().has_slot(address, Slot::<R::Object>::STRIDE) {
        return None;
    }
    // SAFETY: the address is the start of a slot in the used part of the slab: it stays accessible, and
    // always is a slot of this type.
    let slot = unsafe { &*ptr::with_exposed_provenance::<Slot<R::Object>>(address) };
    (slot.tag.load(Ordering::Acquire) == R::KIND.live()).then_some(slot)
}

/// Names the rule that `raw` breaks. One function for each kind of handle costs lookups the least.
#[cold]
fn explain<R: RawHandle>(raw: R, name: &'static str) -> Error {
    explain_address(raw.as_ptr(), R::KIND, name)
}

fn explain_address(ptr: *mut c_void, wanted: Kind, name: &'static str) -> Error {
    let code = ze_result_t::ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    let want = wanted.name();
    if ptr.is_null() {
        return Error::new(code, format!("{name}: the handle is null; it must name {want}"));
    }
    let owner = Kind::VARIANTS.iter().find(|kind| kind.slab().holds(ptr as usize));
    let what = match owner {
        None => "is no handle of this driver".to_owned(),
        Some(&kind) if kind != wanted => format!("names {}, or did", kind.name()),
        Some(_) => "has been destroyed, or points into an object".to_owned(),
    };
    Error::new(code, format!("{name}: {ptr:p} {what}; it must name {want}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Handle types for tests: the C types belong to the real objects, and a slab whose slots are all reused
    /// repeatedly must belong to one test.
    macro_rules! stand_in {
        ($name:ident => $object:ty, $kind:expr) => {
            #[derive(Clone, Copy)]
            struct $name(*mut c_void);
            impl RawHandle for $name {
                type Object = $object;
                const KIND: Kind = $kind;
                fn from_ptr(ptr: *mut c_void) -> Self {
                    Self(ptr)
                }
                fn as_ptr(self) -> *mut c_void {
                    self.0
                }
            }
        };
    }
    stand_in!(Log => Arc<String>, Kind::BuildLog);
    stand_in!(Other => [u64; 7], Kind::Fence);
    stand_in!(Resting => [u64; 7], Kind::EventPool);
    stand_in!(Cached => Arc<String>, Kind::Event);
    stand_in!(Shared => Arc<String>, Kind::Sampler);

    fn text(raw: Log) -> String {
        // SAFETY: the reference is dropped at once.
        let error = unsafe { get(raw, "hLog") }.expect_err("the handle is wrong");
        assert_eq!(error.code(), ze_result_t::ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
        error.text().to_owned()
    }

    #[test]
    fn a_handle_finds_its_object_until_it_is_taken() {
        let object = Arc::new("log".to_owned());
        let raw: Log = create(object.clone()).expect("there is memory");
        // SAFETY: no other thread has the handle.
        assert_eq!(unsafe { get(raw, "hLog") }.expect("live").as_str(), "log");
        // SAFETY: as above.
        drop(unsafe { take(raw, "hLog") }.expect("live"));
        assert_eq!(Arc::strong_count(&object), 1, "taking moves the object out");
        assert!(text(raw).contains("has been destroyed"), "{}", text(raw));
        // SAFETY: as above.
        assert!(unsafe { take(raw, "hLog") }.is_err(), "a second destroy is refused");
    }

    #[test]
    fn garbage_is_refused_and_explained() {
        let raw: Log = create(Arc::default()).expect("there is memory");
        let other: Other = create([0; 7]).expect("there is memory");
        let inside = Log((raw.0 as usize + 8) as *mut c_void);
        assert!(text(Log(ptr::null_mut())).contains("is null"));
        assert!(text(Log(0x10 as *mut c_void)).contains("is no handle of this driver"));
        assert!(text(Log(usize::MAX as *mut c_void)).contains("is no handle of this driver"));
        assert!(text(Log(other.0)).contains("names a fence"));
        assert!(text(inside).contains("points into an object"));
        // SAFETY: no other thread has the handles.
        unsafe {
            drop(take(raw, "hLog"));
            drop(take(other, "hOther"));
        }
    }

    #[test]
    fn a_freed_slot_rests_before_it_is_used_again() {
        let first: Resting = create([1; 7]).expect("there is memory");
        // SAFETY: no other thread has the handle.
        unsafe { take(first, "h") }.expect("live");
        for _ in 0..REST - 1 {
            let next: Resting = create([2; 7]).expect("there is memory");
            assert_ne!(next.0, first.0);
            // SAFETY: no other thread has the handle.
            unsafe { take(next, "h") }.expect("live");
        }
    }

    /// Held by tests that use the slots of events, since other tests' events would shorten the rest of a slot.
    static EVENTS: Mutex<()> = Mutex::new(());

    #[test]
    fn an_event_of_one_thread_rests_too_and_is_dead_for_all() {
        let _alone = EVENTS.lock().unwrap_or_else(PoisonError::into_inner);
        let first: Cached = create(Arc::default()).expect("there is memory");
        // SAFETY: no other thread has the handle.
        unsafe { destroy(first, "h") }.expect("live");
        for _ in 0..REST - 1 {
            let next: Cached = create(Arc::default()).expect("there is memory");
            assert_ne!(next.0, first.0);
            let address = next.0 as usize;
            let elsewhere = std::thread::spawn(move || {
                // SAFETY: only this thread uses the handle now.
                unsafe { destroy(Cached(address as *mut c_void), "h") }
            });
            elsewhere.join().expect("no panic").expect("live");
            // SAFETY: as above.
            assert!(unsafe { destroy(next, "h") }.is_err(), "a second destroy is refused");
        }
    }

    fn destroy_all(events: &mut Vec<Cached>) {
        for event in events.drain(..) {
            // SAFETY: the tests pass events that no other thread has.
            unsafe { destroy(event, "h") }.expect("live");
        }
    }

    #[test]
    fn many_threads_create_and_take_without_losing_objects() {
        let _alone = EVENTS.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = Arc::new(String::new());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut kept = Vec::new();
                    for i in 0..2000 {
                        let raw: Shared = create(counter.clone()).expect("there is memory");
                        let event: Cached = create(counter.clone()).expect("there is memory");
                        // SAFETY: no other thread has the handles.
                        unsafe {
                            assert!(Arc::ptr_eq(get(raw, "h").expect("live"), &counter));
                            drop(take(raw, "h").expect("live"));
                            assert!(Arc::ptr_eq(get(event, "h").expect("live"), &counter));
                        }
                        kept.push(event);
                        if i % 700 == 699 {
                            destroy_all(&mut kept);
                        }
                    }
                    destroy_all(&mut kept);
                });
            }
        });
        assert_eq!(Arc::strong_count(&counter), 1);
    }
}
