// SPDX-License-Identifier: MIT OR Apache-2.0
//! Enums with a name for each variant.

/// Declares a field-less enum with the lower-case name of each variant for the textual form.
macro_rules! named_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant),* }

        impl $name {
            /// The name in the textual form.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text),* }
            }
        }
    };
}

pub(crate) use named_enum;
