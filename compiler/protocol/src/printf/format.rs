// SPDX-License-Identifier: MIT OR Apache-2.0
//! Format strings of OpenCL C: those of C, with vectors and without `n`.

use super::argument::{Argument, Kind};
use super::number::{self, Pad};
use crate::half::half_value;

/// The widest field and the highest precision that are printed; a format may ask for more.
const MAX_FIELD: u32 = 1 << 15;

/// A part of a format string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Printed literally.
    Text(&'a [u8]),
    /// Replaced by arguments; with its source text.
    Conversion(Conversion, &'a [u8]),
}

/// A width or a precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// A number.
    Number(u32),
    /// `*`: an argument in front of the value. C has it, OpenCL C does not; it is accepted.
    Argument,
}

/// The width of an integer, as its length modifier gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// The width of the argument: no modifier, `hl`, `l` or `ll`.
    Whole,
    /// `hh`: 8 bits.
    Byte,
    /// `h`: 16 bits.
    Half,
}

/// A conversion specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conversion {
    /// `-`: align to the left.
    pub left: bool,
    /// `+`: always print a sign.
    pub plus: bool,
    /// A blank where `+` would print a plus.
    pub space: bool,
    /// `#`: the alternative form.
    pub alternative: bool,
    /// `0`: leading zeros.
    pub zero: bool,
    /// The minimum number of characters.
    pub width: Option<Count>,
    /// The number of digits, or the maximum number of characters of a string.
    pub precision: Option<Count>,
    /// Components of the vector; 1 for a scalar.
    pub components: u32,
    /// The integer's width.
    pub length: Length,
    /// The conversion's letter.
    pub letter: u8,
}

impl Conversion {
    /// The number of arguments that it takes.
    pub fn arguments(&self) -> usize {
        let counts = [self.width, self.precision];
        1 + counts.iter().filter(|count| **count == Some(Count::Argument)).count()
    }
}

/// Splits a format string into pieces. It ends at a NUL. Everything that is no conversion is text.
pub fn pieces(format: &[u8]) -> Vec<Piece<'_>> {
    let end = format.iter().position(|&byte| byte == 0).unwrap_or(format.len());
    let mut rest = &format[..end];
    let mut pieces = Vec::new();
    while let Some(at) = rest.iter().position(|&byte| byte == b'%') {
        if at > 0 {
            pieces.push(Piece::Text(&rest[..at]));
        }
        rest = &rest[at..];
        let size = match conversion(&rest[1..]) {
            _ if rest.get(1) == Some(&b'%') => {
                pieces.push(Piece::Text(b"%"));
                2
            }
            Some((found, size)) => {
                pieces.push(Piece::Conversion(found, &rest[..=size]));
                1 + size
            }
            None => {
                pieces.push(Piece::Text(b"%"));
                1
            }
        };
        rest = &rest[size..];
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    pieces
}

/// The conversion behind a `%`, and the number of its characters.
fn conversion(text: &[u8]) -> Option<(Conversion, usize)> {
    let mut at = 0;
    let mut found = Conversion {
        left: false,
        plus: false,
        space: false,
        alternative: false,
        zero: false,
        width: None,
        precision: None,
        components: 1,
        length: Length::Whole,
        letter: 0,
    };
    while let Some(flag) = text.get(at) {
        match flag {
            b'-' => found.left = true,
            b'+' => found.plus = true,
            b' ' => found.space = true,
            b'#' => found.alternative = true,
            b'0' => found.zero = true,
            _ => break,
        }
        at += 1;
    }
    found.width = count(text, &mut at);
    if text.get(at) == Some(&b'.') {
        at += 1;
        found.precision = count(text, &mut at).or(Some(Count::Number(0)));
    }
    if text.get(at) == Some(&b'v') {
        at += 1;
        let Some(Count::Number(n @ (2 | 3 | 4 | 8 | 16))) = count(text, &mut at) else {
            return None;
        };
        found.components = n;
    }
    let modifiers = text[at..].iter().take_while(|byte| matches!(byte, b'h' | b'l')).count();
    found.length = match &text[at..at + modifiers] {
        b"hh" => Length::Byte,
        b"h" => Length::Half,
        b"" | b"hl" | b"l" | b"ll" => Length::Whole,
        _ => return None,
    };
    at += modifiers;
    found.letter = *text.get(at)?;
    let known = b"diouxXfFeEgGaAcsp".contains(&found.letter);
    known.then_some((found, at + 1))
}

fn count(text: &[u8], at: &mut usize) -> Option<Count> {
    if text.get(*at) == Some(&b'*') {
        *at += 1;
        return Some(Count::Argument);
    }
    let digits = text[*at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 {
        return None;
    }
    let number = text[*at..*at + digits]
        .iter()
        .fold(0_u32, |sum, digit| sum.saturating_mul(10).saturating_add(u32::from(digit - b'0')));
    *at += digits;
    Some(Count::Number(number.min(MAX_FIELD)))
}

/// Prints arguments by a format.
pub(super) fn print(format: &[u8], arguments: &[Argument<'_>]) -> Vec<u8> {
    let mut out = Vec::with_capacity(format.len() + 16);
    let mut next = arguments.iter();
    for piece in pieces(format) {
        let (conversion, text) = match piece {
            Piece::Text(text) => {
                out.extend_from_slice(text);
                continue;
            }
            Piece::Conversion(conversion, text) => (conversion, text),
        };
        let mut left = conversion.left;
        let mut taken = |count: Option<Count>| match count? {
            Count::Number(number) => Some(i64::from(number)),
            Count::Argument => Some(next.next().map_or(0, |it| integer(it, 0, true))),
        };
        let width = taken(conversion.width).unwrap_or(0);
        // A negative width means the `-` flag and a width; a negative precision counts as omitted.
        left |= width < 0;
        let limit = u64::from(MAX_FIELD);
        let width = width.unsigned_abs().min(limit) as usize;
        let precision = taken(conversion.precision).and_then(|it| u64::try_from(it).ok());
        let precision = precision.map(|it| it.min(limit) as usize);
        let Some(argument) = next.next() else {
            out.extend_from_slice(text);
            continue;
        };
        let pad = Pad { left, zero: conversion.zero, width, precision };
        value(&mut out, &conversion, &pad, argument);
    }
    out
}

/// Prints one argument, a vector with commas between its components.
fn value(out: &mut Vec<u8>, conversion: &Conversion, pad: &Pad, argument: &Argument<'_>) {
    let Some(bytes) = argument.value else {
        return number::characters(out, pad, b"(null)");
    };
    if argument.kind == Kind::String {
        return number::characters(out, pad, bytes);
    }
    let count = (bytes.len() / argument.width.max(1)).min(conversion.components as usize);
    for index in 0..count {
        if index > 0 {
            out.push(b',');
        }
        match conversion.letter {
            b'f' | b'F' | b'e' | b'E' | b'g' | b'G' | b'a' | b'A' => {
                number::float(out, conversion, pad, float(argument, index));
            }
            b'c' => {
                let pad = Pad { precision: None, ..*pad };
                number::characters(out, &pad, &[integer(argument, index, false) as u8]);
            }
            b'd' | b'i' => {
                let value = narrow(conversion, integer(argument, index, true), true);
                number::integer(out, conversion, pad, value.unsigned_abs(), value < 0);
            }
            b'p' | b's' => {
                let hexadecimal = Conversion { letter: b'p', ..*conversion };
                let value = integer(argument, index, false) as u64;
                number::integer(out, &hexadecimal, pad, value, false);
            }
            _ => {
                let value = narrow(conversion, integer(argument, index, false), false);
                number::integer(out, conversion, pad, value as u64, false);
            }
        }
    }
}

/// An integer truncated to the width of the length modifier.
fn narrow(conversion: &Conversion, value: i64, signed: bool) -> i64 {
    match (conversion.length, signed) {
        (Length::Whole, _) => value,
        (Length::Byte, true) => i64::from(value as i8),
        (Length::Byte, false) => i64::from(value as u8),
        (Length::Half, true) => i64::from(value as i16),
        (Length::Half, false) => i64::from(value as u16),
    }
}

/// The bits of a component.
fn bits(argument: &Argument<'_>, index: usize) -> u64 {
    let mut word = [0; 8];
    let start = index * argument.width;
    let part = argument.value.and_then(|value| value.get(start..start + argument.width));
    if let Some(part) = part {
        word[..part.len()].copy_from_slice(part);
    }
    u64::from_le_bytes(word)
}

/// A component as an integer; the argument may be of another type.
fn integer(argument: &Argument<'_>, index: usize, signed: bool) -> i64 {
    let bits = bits(argument, index);
    match argument.kind {
        Kind::Float => float(argument, index) as i64,
        Kind::Int if signed => {
            let unused = 64 - 8 * argument.width as u32;
            ((bits << unused) as i64) >> unused
        }
        _ => bits as i64,
    }
}

/// A component as a float; the argument may be of another type.
fn float(argument: &Argument<'_>, index: usize) -> f64 {
    let bits = bits(argument, index);
    match (argument.kind, argument.width) {
        (Kind::Float, 8) => f64::from_bits(bits),
        (Kind::Float, 4) => f64::from(f32::from_bits(bits as u32)),
        (Kind::Float, _) => half_value(bits as u16),
        _ => integer(argument, index, true) as f64,
    }
}
