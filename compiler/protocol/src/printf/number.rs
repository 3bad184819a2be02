// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prints numbers as C does in the "C" locale, whichever locale the process has set.

use super::format::Conversion;

/// The padding of a field.
#[derive(Clone, Copy)]
pub(super) struct Pad {
    /// Align to the left.
    pub(super) left: bool,
    /// Pad with zeros, where that is possible.
    pub(super) zero: bool,
    /// The minimum number of characters.
    pub(super) width: usize,
    /// The number of digits, or the maximum number of characters of a string.
    pub(super) precision: Option<usize>,
}

impl Pad {
    /// Prints a number, padded with zeros between its prefix and its digits or with blanks.
    fn number(&self, out: &mut Vec<u8>, prefix: &[u8], digits: &[u8], zeros: bool) {
        let missing = self.width.saturating_sub(prefix.len() + digits.len());
        let (blanks, zeros) = match (self.left, self.zero && zeros) {
            (true, _) => (0, 0),
            (false, true) => (0, missing),
            (false, false) => (missing, 0),
        };
        out.resize(out.len() + blanks, b' ');
        out.extend_from_slice(prefix);
        out.resize(out.len() + zeros, b'0');
        out.extend_from_slice(digits);
        if self.left {
            out.resize(out.len() + missing, b' ');
        }
    }
}

/// Prints characters, as many as the precision allows.
pub(super) fn characters(out: &mut Vec<u8>, pad: &Pad, text: &[u8]) {
    let count = pad.precision.unwrap_or(text.len()).min(text.len());
    pad.number(out, b"", &text[..count], false);
}

/// The sign, or the blank in place of one, in front of a number.
fn sign(conversion: &Conversion, negative: bool) -> Vec<u8> {
    match (negative, conversion.plus, conversion.space) {
        (true, ..) => b"-".to_vec(),
        (_, true, _) => b"+".to_vec(),
        (_, _, true) => b" ".to_vec(),
        _ => Vec::new(),
    }
}

/// Prints an integer given by its magnitude.
pub(super) fn integer(
    out: &mut Vec<u8>,
    conversion: &Conversion,
    pad: &Pad,
    magnitude: u64,
    negative: bool,
) {
    let mut digits = match conversion.letter {
        b'o' => format!("{magnitude:o}"),
        b'x' | b'p' => format!("{magnitude:x}"),
        b'X' => format!("{magnitude:X}"),
        _ => magnitude.to_string(),
    };
    if magnitude == 0 && pad.precision == Some(0) {
        digits.clear();
    }
    if let Some(precision) = pad.precision {
        let missing = precision.saturating_sub(digits.len());
        digits.insert_str(0, &"0".repeat(missing));
    }
    let mut prefix = Vec::new();
    match conversion.letter {
        b'd' | b'i' => prefix = sign(conversion, negative),
        b'p' => prefix.extend_from_slice(b"0x"),
        b'o' if conversion.alternative && !digits.starts_with('0') => digits.insert(0, '0'),
        b'x' if conversion.alternative && magnitude != 0 => prefix.extend_from_slice(b"0x"),
        b'X' if conversion.alternative && magnitude != 0 => prefix.extend_from_slice(b"0X"),
        _ => {}
    }
    pad.number(out, &prefix, digits.as_bytes(), pad.precision.is_none());
}

/// Prints a float.
pub(super) fn float(out: &mut Vec<u8>, conversion: &Conversion, pad: &Pad, value: f64) {
    let upper = conversion.letter.is_ascii_uppercase();
    let cased = |text: String| if upper { text.to_ascii_uppercase() } else { text };
    let mut prefix = sign(conversion, value.is_sign_negative());
    let magnitude = value.abs();
    if !magnitude.is_finite() {
        let text = cased(if magnitude.is_nan() { "nan".into() } else { "inf".into() });
        return pad.number(out, &prefix, text.as_bytes(), false);
    }
    let point = conversion.alternative;
    let text = match conversion.letter.to_ascii_lowercase() {
        b'f' => fixed(magnitude, pad.precision.unwrap_or(6), point),
        b'e' => exponential(magnitude, pad.precision.unwrap_or(6), point),
        b'g' => general(magnitude, pad.precision.unwrap_or(6).max(1), point),
        _ => {
            prefix.extend_from_slice(if upper { b"0X" } else { b"0x" });
            hexadecimal(magnitude, pad.precision, point)
        }
    };
    pad.number(out, &prefix, cased(text).as_bytes(), true);
}

fn fixed(value: f64, precision: usize, point: bool) -> String {
    let mut text = format!("{value:.precision$}");
    if point && precision == 0 {
        text.push('.');
    }
    text
}

/// The digits and the exponent of a number with `precision` digits after the decimal point.
fn decimal(value: f64, precision: usize) -> (String, i32) {
    let text = format!("{value:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    (digits.to_owned(), exponent.parse().unwrap_or(0))
}

fn with_exponent(mut digits: String, letter: char, exponent: i32, least: usize) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    digits.push(letter);
    digits.push(sign);
    let number = exponent.unsigned_abs().to_string();
    digits.push_str(&"0".repeat(least.saturating_sub(number.len())));
    digits + &number
}

fn exponential(value: f64, precision: usize, point: bool) -> String {
    let (mut digits, exponent) = decimal(value, precision);
    if point && precision == 0 {
        digits.push('.');
    }
    with_exponent(digits, 'e', exponent, 2)
}

fn general(value: f64, precision: usize, point: bool) -> String {
    let (mut digits, exponent) = decimal(value, precision - 1);
    let trim = |text: &mut String| {
        if !point && text.contains('.') {
            text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
        }
    };
    // It is not negative, and so below the precision, which is at most a few thousand.
    let places = usize::try_from(exponent).ok();
    if exponent < -4 || places.is_some_and(|places| places >= precision) {
        trim(&mut digits);
        if point && precision == 1 {
            digits.push('.');
        }
        return with_exponent(digits, 'e', exponent, 2);
    }
    let behind = match places {
        Some(places) => precision - 1 - places,
        None => precision - 1 + exponent.unsigned_abs() as usize,
    };
    let mut text = fixed(value, behind, point);
    trim(&mut text);
    text
}

/// Writes the number without `0x`. A normal number begins with 1, a subnormal one with 0 and the
/// smallest exponent.
fn hexadecimal(value: f64, precision: Option<usize>, point: bool) -> String {
    const FRACTION: u32 = 52;
    let bits = value.to_bits();
    let biased = (bits >> FRACTION) as i32;
    let fraction = bits & ((1 << FRACTION) - 1);
    let (mut whole, exponent) = match (biased, fraction) {
        (0, 0) => (0, 0),
        (0, _) => (fraction, -1022),
        _ => (fraction | 1 << FRACTION, biased - 1023),
    };
    if let Some(digits) = precision.filter(|&digits| digits < 13) {
        let dropped = FRACTION - 4 * digits as u32;
        let (unit, rest) = (1 << dropped, whole & ((1 << dropped) - 1));
        whole -= rest;
        let half = unit / 2;
        if rest > half || (rest == half && whole & unit != 0) {
            whole += unit;
        }
    }
    let digits = format!("{:013x}", whole & ((1 << FRACTION) - 1));
    let digits = match precision {
        None => digits.trim_end_matches('0').to_owned(),
        Some(precision) => format!("{digits:0<precision$}")[..precision].to_owned(),
    };
    let dot = if point || !digits.is_empty() { "." } else { "" };
    with_exponent(format!("{:x}{dot}{digits}", whole >> FRACTION), 'p', exponent, 1)
}
