// SPDX-License-Identifier: MIT OR Apache-2.0
//! Halves: the only decoder for all code that prints or computes with them.
//!
//! The crate `half` is not used: of its two directions only this one is exact, its conversion from
//! doubles rounds twice on processors with F16C (its issue 116) and misses ties without (151).

/// A half as a double, which has all its values. A NaN keeps its sign.
pub fn half_value(bits: u16) -> f64 {
    let fraction = f64::from(bits & 0x3ff);
    let magnitude = match (bits >> 10) & 0x1f {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        exponent => (1024.0 + fraction) * 2f64.powi(i32::from(exponent) - 25),
    };
    if bits & 0x8000 != 0 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::half_value;

    #[test]
    fn every_kind_of_half_has_its_value() {
        for (bits, value) in [
            (0x0001, 2f64.powi(-24)),
            (0x03ff, 1023.0 * 2f64.powi(-24)),
            (0x0400, 2f64.powi(-14)),
            (0x3c00, 1.0),
            (0x7bff, 65504.0),
            (0x7c00, f64::INFINITY),
        ] {
            assert_eq!(half_value(bits), value);
            assert_eq!(half_value(bits | 0x8000), -value);
        }
        assert!(half_value(0x8000).is_sign_negative());
        assert!(half_value(0x7e00).is_nan() && half_value(0x7e00).is_sign_positive());
        assert!(half_value(0xfe00).is_nan() && half_value(0xfe00).is_sign_negative());
    }
}
