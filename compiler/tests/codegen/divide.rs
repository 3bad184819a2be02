// SPDX-License-Identifier: MIT OR Apache-2.0
//! Quotients and remainders of numbers that differ between the items equal the scalar results: for
//! every integer type, and for divisors that differ, that are uniform, and that are constant. The
//! interpreter gives the expected results.

use crate::diff::{Elements, Input, same, same_in_all};
use crate::harness::Grid;
use crate::widen::wide;

/// Numbers around powers of two, where roundings of quotients would show, and products of primes.
fn numbers() -> Vec<i64> {
    let mut all = vec![0, 3, 5, 6, 7, 10, 11, 100, 641, 999, 1000, 65_521, 6_700_417];
    for power in [0, 1, 2, 4, 7, 8, 12, 15, 16, 23, 24, 31, 32, 49, 50, 52, 53, 62, 63] {
        let power = 1_i64.wrapping_shl(power);
        all.extend([power.wrapping_sub(1), power, power.wrapping_add(1)]);
    }
    all.extend([641 * 6_700_417, 999 * 1000 * 1000, i64::MAX / 3]);
    all.iter().flat_map(|&x| [x, x.wrapping_neg()]).collect()
}

/// The low bytes of numbers.
fn bytes(numbers: impl Iterator<Item = i64>, size: usize) -> Vec<u8> {
    numbers.flat_map(|number| number.to_le_bytes()[..size].to_vec()).collect()
}

/// Whether a number truncated to the type's size is zero, and so no divisor.
fn is_zero(number: i64, size: usize) -> bool {
    number.to_le_bytes()[..size].iter().all(|&byte| byte == 0)
}

fn check(name: &str, size: usize) {
    let module = wide(&format!(
        "kernel void divide(global {name} *out, global const {name} *a, global const {name} *b, {name} n) {{
           size_t i = get_global_id(0);
           {name} x = a[i], y = b[i];
           out[6 * i] = x / y;
           out[6 * i + 1] = x % y;
           out[6 * i + 2] = x / n;
           out[6 * i + 3] = x % n;
           out[6 * i + 4] = x / ({name})97;
           out[6 * i + 5] = (x & 8) ? x / n : x % y;
         }}"
    ));
    let mut all = numbers();
    // The quotient of the minimum and -1 is undefined.
    all.retain(|&n| n != i64::MIN);
    let divisors: Vec<i64> = all.iter().copied().filter(|&n| !is_zero(n, size)).collect();
    let pairs: Vec<(i64, i64)> =
        all.iter().flat_map(|&a| divisors.iter().map(move |&b| (a, b))).collect();
    // Each launch has a divisor of its own, and all pairs are in some launch.
    let launches = 13;
    let runs: Vec<_> = (0..launches)
        .map(|launch| {
            let own: Vec<_> = pairs.iter().skip(launch).step_by(launches).copied().collect();
            let count = own.len() / 32 * 32;
            let a =
                Input::Buffer(Elements::Bytes, bytes(own.iter().take(count).map(|p| p.0), size));
            let b =
                Input::Buffer(Elements::Bytes, bytes(own.iter().take(count).map(|p| p.1), size));
            let out = Input::Buffer(Elements::Bytes, vec![0; 6 * size * count]);
            let n = divisors[launch * divisors.len() / launches];
            let n = Input::Value(n.to_le_bytes()[..size].to_vec());
            (Grid::line(count as u64, 32), vec![out, a, b, n])
        })
        .collect();
    same_in_all(&module, "divide", &runs);
}

#[test]
fn bytes_and_shorts_are_divided_exactly() {
    for (name, size) in [("char", 1), ("uchar", 1), ("short", 2), ("ushort", 2)] {
        check(name, size);
    }
}

#[test]
fn integers_are_divided_exactly() {
    for (name, size) in [("int", 4), ("uint", 4)] {
        check(name, size);
    }
}

#[test]
fn longs_are_divided_exactly() {
    for (name, size) in [("long", 8), ("ulong", 8)] {
        check(name, size);
    }
}

/// An id of 32 bits plus a constant indexes the right places, although widened code relies on ids that
/// do not wrap around.
#[test]
fn neighbours_of_ids_are_where_they_should_be() {
    let module = wide(
        "kernel void neighbours(global long *out, global int *p) {
           int i = get_global_id(0);
           global long *to = out + 4 * get_local_id(0);
           to[0] = (long)&p[i - 1] - (long)p;
           to[1] = (long)&p[i + 1] - (long)p;
           to[2] = (long)&p[i + 0x3fffffff] - (long)p;
           to[3] = (long)&p[i + 0x40000001] - (long)p;
         }",
    );
    for first in [0, (1u64 << 30) - 64, (1 << 30) - 32, (1 << 31) - 32] {
        let grid = Grid { offset: [first, 0, 0], global: [64, 1, 1], group: [64, 1, 1] };
        let out = Input::Buffer(Elements::Bytes, vec![0; 64 * 32]);
        let p = Input::Buffer(Elements::Bytes, vec![0; 64]);
        same(&module, "neighbours", grid, &[out, p], &format!("from {first}"));
    }
}
