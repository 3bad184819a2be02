// SPDX-License-Identifier: MIT OR Apache-2.0
//! Macros that turn a C declaration into a Rust type. The generated files call these macros.
//!
//! The rule behind all of them: a caller may pass any bits, so every bit pattern is a valid value
//! of every type here. For this reason no C enumeration becomes a Rust `enum`.

/// An opaque handle: a pointer-sized token that is `Copy` and carries no rights to dereference.
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(pub *mut core::ffi::c_void);

        impl $name {
            /// The null handle.
            pub const NULL: Self = Self(core::ptr::null_mut());

            /// Whether this is the null handle.
            pub const fn is_null(self) -> bool {
                self.0.is_null()
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::NULL
            }
        }

        impl $crate::call::Word for $name {
            fn put(self, words: &mut $crate::call::Words) {
                self.0.put(words);
            }
            fn take(words: &mut impl Iterator<Item = u64>) -> Self {
                Self($crate::call::Word::take(words))
            }
        }

        // SAFETY: to its holder a handle is only a number; code that turns it into a reference is
        // responsible for the object's thread safety.
        unsafe impl Send for $name {}
        // SAFETY: as for Send; nothing can be reached through a shared handle without unsafe code.
        unsafe impl Sync for $name {}
    };
}

/// A C enumeration: a transparent integer with associated constants. Any value may arrive.
macro_rules! enumeration {
    ($(#[$doc:meta])* $name:ident { $($const:ident = $value:expr,)* }) => {
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub u32);

        impl $name {
            $(
                #[doc = concat!("Spec: `", stringify!($const), "`.")]
                pub const $const: Self = Self($value);
            )*

            /// Every enumerator of the specification with its name, aliases included.
            pub const NAMES: &'static [(&'static str, Self)] =
                &[$((stringify!($const), Self::$const),)*];

            /// The name in the specification; the first one, if a value has several.
            pub fn name(self) -> Option<&'static str> {
                Self::NAMES.iter().find(|(_, value)| *value == self).map(|(name, _)| *name)
            }

            /// Whether the specification defines the value.
            pub fn is_known(self) -> bool {
                self.name().is_some()
            }
        }

        impl $crate::call::Word for $name {
            fn put(self, words: &mut $crate::call::Words) {
                self.0.put(words);
            }
            fn take(words: &mut impl Iterator<Item = u64>) -> Self {
                Self($crate::call::Word::take(words))
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, concat!(stringify!($name), "({:#x})"), self.0),
                }
            }
        }
    };
}

/// A set of flag bits. `bitflags` keeps unknown bits that arrive over the ABI, tells them apart
/// (`flags.difference(T::all())`) and prints names, which a plain integer would not.
macro_rules! flags {
    ($(#[$doc:meta])* $name:ident: $repr:ty { $($const:ident = $value:expr,)* }) => {
        bitflags::bitflags! {
            $(#[$doc])*
            #[repr(transparent)]
            #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
            pub struct $name: $repr {
                $(
                    #[doc = concat!("Spec: `", stringify!($const), "`.")]
                    const $const = $value;
                )*
            }
        }

        impl $name {
            /// Whether any bit is set that the specification does not name.
            pub const fn has_unknown(self) -> bool {
                self.bits() & !Self::all().bits() != 0
            }
        }

        impl $crate::call::Word for $name {
            fn put(self, words: &mut $crate::call::Words) {
                self.bits().put(words);
            }
            fn take(words: &mut impl Iterator<Item = u64>) -> Self {
                Self::from_bits_retain($crate::call::Word::take(words))
            }
        }
    };
}

/// `Default` as C's `= {0}`.
macro_rules! zeroed_default {
    ($name:ident) => {
        impl Default for $name {
            fn default() -> Self {
                // SAFETY: the fields are integers, floats, raw pointers, nullable function pointers
                // and arrays and structures of these; all zero is a value of each.
                unsafe { core::mem::zeroed() }
            }
        }
    };
}

/// A structure that begins with `stype` and `pNext`, and the type constant that marks it, with its
/// enumeration if that is not the core's.
macro_rules! chained {
    ($name:ident, $stype:ident) => {
        chained!($name, ze_structure_type_t, $stype);
    };
    ($name:ident, $kind:ident, $stype:ident) => {
        impl Default for $name {
            fn default() -> Self {
                // SAFETY: the fields are integers, floats, raw pointers, nullable function pointers
                // and arrays and structures of these; all zero is a value of each.
                let mut this: Self = unsafe { core::mem::zeroed() };
                this.stype = $crate::$kind::$stype;
                this
            }
        }

        const _: () = assert!(core::mem::offset_of!($name, stype) == 0);
        const _: () =
            assert!(core::mem::offset_of!($name, pNext) == core::mem::size_of::<*const ()>());

        // SAFETY: the structure is repr(C), and the two asserts above place stype and pNext.
        unsafe impl $crate::Chained for $name {
            const STYPE: $crate::ze_structure_type_t =
                $crate::ze_structure_type_t($crate::$kind::$stype.0);
        }
    };
}

pub(crate) use {chained, enumeration, flags, handle, zeroed_default};
