// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arguments of a record.

/// The size that stands for a string argument that is a null pointer.
pub const NULL_STRING: u32 = u32::MAX;

/// The type of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Integers.
    Int = 1,
    /// Floats.
    Float = 2,
    /// An address.
    Pointer = 3,
    /// Characters.
    String = 4,
}

/// Encodes the first word of an argument.
pub fn argument_header(kind: Kind, component_bytes: u8, components: u8, bytes: u32) -> u64 {
    u64::from(bytes) << 32
        | u64::from(components) << 16
        | u64::from(component_bytes) << 8
        | kind as u64
}

/// An argument in a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Argument<'a> {
    pub(crate) kind: Kind,
    /// Bytes of a component.
    pub(crate) width: usize,
    /// The value; `None` for a string that is a null pointer.
    pub(crate) value: Option<&'a [u8]>,
}

impl<'a> Argument<'a> {
    /// Reads the argument at the start of `bytes`. Returns the bytes behind it too.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (header, rest) = bytes.split_first_chunk::<8>()?;
        let [kind, width, components, _, length @ ..] = *header;
        let length = u32::from_le_bytes(length);
        let kind = match kind {
            1 => Kind::Int,
            2 => Kind::Float,
            3 => Kind::Pointer,
            4 => Kind::String,
            _ => return None,
        };
        if kind == Kind::String && length == NULL_STRING {
            return Some((Self { kind, width: 1, value: None }, rest));
        }
        let length = usize::try_from(length).ok()?;
        let fits = match kind {
            Kind::String => true,
            Kind::Pointer => (width, components, length) == (8, 1, 8),
            Kind::Int | Kind::Float => {
                matches!(width, 1 | 2 | 4 | 8)
                    && (kind, width) != (Kind::Float, 1)
                    && components > 0
                    && length == usize::from(width) * usize::from(components)
            }
        };
        let value = rest.get(..length).filter(|_| fits)?;
        let rest = rest.get(length.next_multiple_of(8)..)?;
        // A string has bytes, even if the record claims another width: a conversion may read it as a
        // number.
        let width = if kind == Kind::String { 1 } else { usize::from(width) };
        Some((Self { kind, width, value: Some(value) }, rest))
    }
}
