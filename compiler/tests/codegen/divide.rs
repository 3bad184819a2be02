// SPDX-License-Identifier: MIT OR Apache-2.0
//! Quotients and remainders of numbers that differ between the items equal the scalar results: for
//! every integer type, and for divisors that differ, that are uniform, and that are constant. The
//! interpreter gives the expected results.

use crate::diff::{Elements, Input, Random, same, same_in_all};
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

/// Constants on both sides of the limits between the ways of dividing, with and without factors of two.
const CONSTANTS: [u64; 26] = [
    1,
    3,
    5,
    6,
    7,
    10,
    28,
    641,
    1000,
    86_400,
    (1 << 18) - 2,
    (1 << 18) - 1,
    1 << 18,
    (1 << 18) + 1,
    1_000_000,
    998_244_353,
    1_000_000_007,
    (1 << 32) - 1,
    (1 << 32) + 1,
    (1 << 50) - 1,
    (1 << 50) + 1,
    (1 << 53) + 1,
    (1 << 62) - 1,
    (1 << 62) + 1,
    u64::MAX - 1,
    u64::MAX,
];

/// Quotients and rests of any 64 bits by constants, also where items leave the loop in which they are divided.
#[test]
fn longs_are_divided_by_constants() {
    let mut random = Random::new(641);
    for name in ["long", "ulong"] {
        let kernels = CONSTANTS.iter().enumerate().map(|(number, by)| {
            let by = format!("({name}){by}ul");
            format!(
                "kernel void by{number}(global {name} *out, global const {name} *a) {{
                   size_t i = get_global_id(0);
                   {name} x = a[i], sum = 0;
                   out[4 * i] = x / {by};
                   out[4 * i + 1] = x % {by};
                   for (int k = 0; x > 3 && k < 8; k++) {{ sum = sum * 3 + x % {by}; x = x / {by} * 5 + k; }}
                   out[4 * i + 2] = sum;
                   out[4 * i + 3] = x;
                 }}"
            )
        });
        let module = wide(&kernels.collect::<String>());
        for (number, &by) in CONSTANTS.iter().enumerate() {
            let mut all: Vec<i64> = numbers();
            // The quotient of the minimum and -1 is undefined.
            all.retain(|&n| n != i64::MIN || by < u64::MAX - 1);
            // Where quotients change, and anywhere.
            for _ in 0..32 {
                let near = (random.next() % (u64::MAX / by).max(1)).wrapping_mul(by) as i64;
                all.extend([
                    near.wrapping_sub(1),
                    near,
                    near.wrapping_add(1),
                    random.next() as i64,
                ]);
            }
            all.resize(all.len() / 16 * 16, 0);
            let out = Input::Buffer(Elements::Bytes, vec![0; 32 * all.len()]);
            let a = Input::Buffer(Elements::Bytes, bytes(all.iter().copied(), 8));
            let grid = Grid::line(all.len() as u64, 16);
            same(&module, &format!("by{number}"), grid, &[out, a], &format!("{name} by {by}"));
        }
    }
}

/// The upper halves of products of 64 bits, by which such quotients are computed.
#[test]
fn products_of_longs_have_upper_halves() {
    let all = numbers();
    let pairs: Vec<(i64, i64)> = all
        .iter()
        .flat_map(|&a| all.iter().map(move |&b| (a.wrapping_mul(3), b.wrapping_mul(5))))
        .collect();
    let count = pairs.len() / 16 * 16;
    let buffer = |pick: fn(&(i64, i64)) -> i64| {
        Input::Buffer(Elements::Bytes, bytes(pairs.iter().take(count).map(pick), 8))
    };
    for name in ["long", "ulong"] {
        let module = wide(&format!(
            "kernel void high(global {name} *out, global const {name} *a, global const {name} *b) {{
               size_t i = get_global_id(0);
               out[i] = mul_hi(a[i], b[i]);
             }}"
        ));
        let out = Input::Buffer(Elements::Bytes, vec![0; 8 * count]);
        let inputs = [out, buffer(|pair| pair.0), buffer(|pair| pair.1)];
        same(&module, "high", Grid::line(count as u64, 16), &inputs, name);
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
