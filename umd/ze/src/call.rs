// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls as lists of 64-bit words, for code that stands between a caller and a function without knowing the
//! function's arguments: it sees the words before the call and can make the same call again.
//!
//! [`Function`] is implemented by the types of all [`functions`](crate::functions) that return a result.

use core::ffi::c_void;

use crate::{
    ze_group_count_t, ze_group_size_t, ze_ipc_event_counter_based_handle_t,
    ze_ipc_event_pool_handle_t, ze_ipc_mem_handle_t, ze_result_t,
};

/// The most words of a call.
const MOST: usize = 24;

/// The arguments of a call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Words {
    list: [u64; MOST],
    count: usize,
}

impl Words {
    /// Adds one; what is too many is dropped.
    pub fn push(&mut self, word: u64) {
        if let Some(place) = self.list.get_mut(self.count) {
            *place = word;
            self.count += 1;
        }
    }

    /// All of them.
    pub fn as_slice(&self) -> &[u64] {
        &self.list[..self.count]
    }

    /// All of them, to change.
    pub fn as_mut_slice(&mut self) -> &mut [u64] {
        &mut self.list[..self.count]
    }
}

/// An argument of a function.
pub trait Word: Copy {
    /// Adds the argument's words.
    fn put(self, words: &mut Words);
    /// The argument from its words. Zeros stand for missing ones.
    fn take(words: &mut impl Iterator<Item = u64>) -> Self;
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Word for $type {
            fn put(self, words: &mut Words) {
                words.push(self as u64);
            }
            fn take(words: &mut impl Iterator<Item = u64>) -> Self {
                words.next().unwrap_or_default() as $type
            }
        }
    )*};
}

integers!(u8, u32, u64, usize);

impl<T> Word for *mut T {
    fn put(self, words: &mut Words) {
        words.push(self.expose_provenance() as u64);
    }
    fn take(words: &mut impl Iterator<Item = u64>) -> Self {
        core::ptr::with_exposed_provenance_mut(words.next().unwrap_or_default() as usize)
    }
}

impl<T> Word for *const T {
    fn put(self, words: &mut Words) {
        words.push(self.expose_provenance() as u64);
    }
    fn take(words: &mut impl Iterator<Item = u64>) -> Self {
        core::ptr::with_exposed_provenance(words.next().unwrap_or_default() as usize)
    }
}

/// A callback.
impl Word for Option<unsafe extern "C" fn(*mut c_void)> {
    fn put(self, words: &mut Words) {
        let pointer = self.map_or(core::ptr::null(), |it| it as *const c_void);
        words.push(pointer.expose_provenance() as u64);
    }
    fn take(words: &mut impl Iterator<Item = u64>) -> Self {
        let pointer = <*const c_void>::take(words);
        // SAFETY: null is None, and other words are those of a function of this type.
        unsafe { core::mem::transmute(pointer) }
    }
}

macro_rules! triples {
    ($($type:ident { $x:ident, $y:ident, $z:ident })*) => {$(
        impl Word for $type {
            fn put(self, words: &mut Words) {
                [self.$x, self.$y, self.$z].into_iter().for_each(|it| words.push(it.into()));
            }
            fn take(words: &mut impl Iterator<Item = u64>) -> Self {
                let [x, y, z] = [(); 3].map(|()| u32::take(words));
                Self { $x: x, $y: y, $z: z }
            }
        }
    )*};
}

triples! {
    ze_group_count_t { groupCountX, groupCountY, groupCountZ }
    ze_group_size_t { groupSizeX, groupSizeY, groupSizeZ }
}

macro_rules! ipc_handles {
    ($($type:ty),*) => {$(
        impl $crate::call::Word for $type {
            fn put(self, words: &mut $crate::call::Words) {
                // SAFETY: both are 64 bytes without padding, any of which are values of both.
                let parts: [u64; 8] = unsafe { core::mem::transmute(self) };
                parts.into_iter().for_each(|it| words.push(it));
            }
            fn take(words: &mut impl Iterator<Item = u64>) -> Self {
                let parts = [(); 8].map(|()| <u64 as $crate::call::Word>::take(words));
                // SAFETY: as above.
                unsafe { core::mem::transmute::<[u64; 8], Self>(parts) }
            }
        }
    )*};
}

pub(crate) use ipc_handles;

ipc_handles!(ze_ipc_mem_handle_t, ze_ipc_event_pool_handle_t, ze_ipc_event_counter_based_handle_t);

/// What stands between callers and functions.
pub trait Hook {
    /// Called in place of the function with the number `call`; `real` calls the function.
    ///
    /// # Safety
    /// The words are arguments as the specification wants them.
    unsafe fn called(
        call: usize,
        words: &Words,
        real: &dyn Fn(&Words) -> ze_result_t,
    ) -> ze_result_t;

    /// The address of the function with this number.
    fn real(call: usize) -> *const c_void;
}

/// The type of a function that returns a result.
pub trait Function: Copy {
    /// A function of this type that calls the hook with this number.
    fn hooked<H: Hook, const CALL: usize>() -> *const c_void;

    /// Calls the function at an address.
    ///
    /// # Safety
    /// The address is that of a function of this type, and the words are arguments that it accepts.
    unsafe fn call(address: *const c_void, words: &Words) -> ze_result_t;
}

macro_rules! functions {
    ($($($arg:ident)*;)*) => {$(
        impl<$($arg: Word),*> Function for unsafe extern "C" fn($($arg),*) -> ze_result_t {
            fn hooked<HOOK: Hook, const CALL: usize>() -> *const c_void {
                #[allow(non_snake_case)] // arguments have their types' names
                unsafe extern "C" fn hook<HOOK: Hook, const CALL: usize, $($arg: Word),*>(
                    $($arg: $arg),*
                ) -> ze_result_t {
                    let mut words = Words::default();
                    $($arg.put(&mut words);)*
                    let real = |words: &Words| {
                        // SAFETY: the hook knows the function of this number, and the words are the
                        // caller's, or what the hook has put in their place.
                        unsafe {
                            <unsafe extern "C" fn($($arg),*) -> ze_result_t as Function>::call(
                                HOOK::real(CALL),
                                words,
                            )
                        }
                    };
                    // SAFETY: the caller makes that promise to the function itself.
                    unsafe { HOOK::called(CALL, &words, &real) }
                }
                let function: Self = hook::<HOOK, CALL, $($arg),*>;
                function as *const c_void
            }

            #[allow(non_snake_case)]
            unsafe fn call(address: *const c_void, words: &Words) -> ze_result_t {
                // SAFETY: the caller says that it is such a function.
                let function: Self = unsafe { core::mem::transmute(address) };
                let mut words = words.as_slice().iter().copied();
                $(let $arg = $arg::take(&mut words);)*
                // SAFETY: as the caller promises.
                unsafe { function($($arg),*) }
            }
        }
    )*};
}

functions! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
    A B C D E F G H I;
    A B C D E F G H I J;
    A B C D E F G H I J K;
    A B C D E F G H I J K L;
}

#[cfg(test)]
mod tests {
    use super::*;

    type Three = unsafe extern "C" fn(u32, *const u64, ze_group_count_t) -> ze_result_t;

    unsafe extern "C" fn three(a: u32, b: *const u64, c: ze_group_count_t) -> ze_result_t {
        // SAFETY: the test passes a good pointer.
        let b = unsafe { *b } as u32;
        ze_result_t(a + b + c.groupCountX * c.groupCountY * c.groupCountZ)
    }

    struct Twice;

    impl Hook for Twice {
        unsafe fn called(
            call: usize,
            words: &Words,
            real: &dyn Fn(&Words) -> ze_result_t,
        ) -> ze_result_t {
            assert_eq!((call, words.as_slice().len()), (7, 5));
            let first = real(words);
            let mut words = *words;
            words.as_mut_slice()[0] += 1000;
            ze_result_t(first.0 + real(&words).0)
        }

        fn real(_: usize) -> *const c_void {
            let function: Three = three;
            function as *const c_void
        }
    }

    #[test]
    fn a_hook_sees_the_arguments_and_may_change_them() {
        let address = Three::hooked::<Twice, 7>();
        // SAFETY: it is a function of this type.
        let hooked: Three = unsafe { core::mem::transmute(address) };
        let count = ze_group_count_t { groupCountX: 2, groupCountY: 3, groupCountZ: 4 };
        // SAFETY: the pointer is good for the call.
        let sum = unsafe { hooked(1, &100, count) };
        assert_eq!(sum.0, 2 * (1 + 100 + 24) + 1000);
    }
}
