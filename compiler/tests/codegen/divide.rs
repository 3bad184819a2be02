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
const CONSTANTS: [u64; 38] = [
    1,
    3,
    5,
    6,
    7,
    10,
    28,
    641,
    1000,
    (1 << 14) - 1,
    (1 << 14) + 1,
    (1 << 15) - 1,
    (1 << 15) + 1,
    48_271,
    65_537,
    86_400,
    (1 << 18) - 2,
    (1 << 18) - 1,
    1 << 18,
    (1 << 18) + 1,
    1_000_000,
    998_244_353,
    1_000_000_007,
    (1 << 31) - 1,
    (1 << 31) + 1,
    (1 << 31) + (1 << 29) + 1,
    (1 << 31) + (1 << 30) + 3,
    (1 << 32) - 5,
    (1 << 32) - 1,
    (1 << 32) + 1,
    (1 << 50) - 1,
    (1 << 50) + 1,
    (1 << 51) - 1,
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

/// Quotients and rests by constants of numbers that are known to be below a power of two, at the edges.
#[test]
fn longs_with_bounds_are_divided_by_constants() {
    // Those around the limits, and others.
    let some = [
        3,
        7,
        1000,
        65_537,
        1_000_003,
        (1 << 31) - 1,
        (1 << 31) + 1,
        (1 << 32) - 5,
        (1 << 32) + 1,
        (1u64 << 49) - 1,
        (1 << 50) + 1,
    ];
    for bits in [30, 40, 49, 50, 51, 53] {
        for name in ["long", "ulong"] {
            let mask = u64::MAX >> (64 - bits);
            let kernels = some.iter().enumerate().map(|(number, by)| {
                let by = format!("({name}){by}ul");
                format!(
                    "kernel void by{number}(global {name} *out, global const {name} *a) {{
                       size_t i = get_global_id(0);
                       {name} x = a[i] & {mask}, y = (a[i] * 3) & {mask};
                       out[3 * i] = x / {by};
                       out[3 * i + 1] = x % {by};
                       out[3 * i + 2] = y % {by};
                     }}"
                )
            });
            let module = wide(&kernels.collect::<String>());
            for (number, &by) in some.iter().enumerate() {
                let times = [1, 2, 3, mask / by / 2, mask / by].map(|times| times.wrapping_mul(by));
                let near =
                    times.into_iter().flat_map(|it| [it.wrapping_sub(1), it, it.wrapping_add(1)]);
                let ends = [0, 1, mask / 2, mask / 2 + 1, mask - 1, mask];
                let mut all: Vec<i64> = near.chain(ends).map(|it| it as i64).collect();
                all.resize(32, mask as i64);
                let out = Input::Buffer(Elements::Bytes, vec![0; 24 * all.len()]);
                let a = Input::Buffer(Elements::Bytes, bytes(all.iter().copied(), 8));
                let what = format!("{name} of {bits} bits by {by}");
                same(&module, &format!("by{number}"), Grid::line(32, 16), &[out, a], &what);
            }
        }
    }
}

/// Powers modulo a prime, and other numbers that a loop keeps below a bound or lets grow above one.
#[test]
fn numbers_that_loops_carry_have_right_bounds() {
    let module = wide(
        "kernel void bounded(global ulong *out, global const uint *a) {
           size_t i = get_global_id(0);
           ulong r = 1, b = a[i] % 1000003;
           for (uint e = 65537; e; e >>= 1) { if (e & 1) r = r * b % 1000003; b = b * b % 1000003; }
           out[8 * i] = r;
           r = 1, b = a[i] % 4294967291u;
           for (uint e = a[i]; e; e >>= 1) { if (e & 1) r = r * b % 4294967291u; b = b * b % 4294967291u; }
           out[8 * i + 1] = r;
           ulong x = a[i] % 1000, y = 1;
           for (int k = 0; k < 70; k++) { ulong t = (x * 3 + y) % 1000000007; x = y; y = t * y % 998244353; }
           out[8 * i + 2] = x + y;
           x = a[i] & 15, y = 3;
           for (uint k = 0; k < (a[i] & 63); k++) { ulong t = x; x = y; y = t + (y << 1); }
           out[8 * i + 3] = x * y;
           out[8 * i + 4] = x * y % 1000003;
           x = 1; y = a[i] & 7;
           for (uint k = 0; k < (a[i] & 31); k++) {
             ulong z = 0;
             for (uint n = 0; n < (a[i] >> 5 & 3); n++) { if (n & a[i]) z += x; else x = x * 3; }
             y = y > 100 ? z : y + x;
           }
           out[8 * i + 5] = x * y;
           out[8 * i + 6] = y / 1000003 + y % 86400;
           long p = a[i] & 255, q = (int)a[i];
           for (uint k = 0; k < (a[i] & 7); k++) { p = p * q % 10007; q = q / 3 - p; }
           out[8 * i + 7] = p * 11 + q % (p + 20011);
         }",
    );
    let mut random = Random::new(1000003);
    let ends = [0, 1, 2, 1_000_002, 1_000_003, 1 << 31, u32::MAX - 5, u32::MAX - 4, u32::MAX];
    let numbers = ends.into_iter().chain((0..119).map(|_| random.next() as u32));
    let a: Vec<u8> = numbers.flat_map(|number: u32| number.to_le_bytes()).collect();
    let out = Input::Buffer(Elements::Bytes, vec![0; 64 * 128]);
    let a = Input::Buffer(Elements::Bytes, a);
    same(&module, "bounded", Grid::line(128, 32), &[out, a], "");
}

/// Products of numbers of up to 32 bits, and of numbers that have one bit more.
#[test]
fn products_of_short_longs_are_exact() {
    for name in ["long", "ulong"] {
        let module = wide(&format!(
            "kernel void products(global {name} *out, global const {name} *a, global const {name} *b) {{
               size_t i = get_global_id(0);
               {name} x = a[i] & 0xffffffff, y = b[i] & 0xffffffff, z = a[i] & 0x1ffffffff;
               {name} r = x * y, s = y * z, t = x * 4294967295u, u = x * 4294967297u, v = x * -3l;
               for (int k = 0; k < (int)(b[i] & 3); k++) {{
                 r += x * y; s ^= z * z; x = r & 0xffffffff; z = s & 0x1ffffffff;
               }}
               out[5 * i] = r; out[5 * i + 1] = s; out[5 * i + 2] = t; out[5 * i + 3] = u; out[5 * i + 4] = v;
             }}"
        ));
        let pairs: Vec<(i64, i64)> =
            numbers().iter().flat_map(|&a| numbers().into_iter().map(move |b| (a, b))).collect();
        let count = pairs.len() / 16 * 16;
        let buffer = |pick: fn(&(i64, i64)) -> i64| {
            Input::Buffer(Elements::Bytes, bytes(pairs.iter().take(count).map(pick), 8))
        };
        let out = Input::Buffer(Elements::Bytes, vec![0; 40 * count]);
        let inputs = [out, buffer(|pair| pair.0), buffer(|pair| pair.1)];
        same(&module, "products", Grid::line(count as u64, 16), &inputs, name);
    }
}

/// Divisors that differ, where both numbers are known to be below 2^50, or only one.
#[test]
fn longs_with_bounds_are_divided_by_others() {
    let module = wide(
        "kernel void others(global ulong *out, global const ulong *a, global const ulong *b, ulong n) {
           size_t i = get_global_id(0);
           ulong x = a[i] & 0x3ffffffffffff, y = (b[i] & 0x3fffffffffffe) + 1, z = b[i] | 1;
           uint w = (uint)a[i], v = (uint)b[i] | 1;
           out[8 * i] = x / y;
           out[8 * i + 1] = x % y;
           out[8 * i + 2] = x / z;
           out[8 * i + 3] = a[i] % y;
           out[8 * i + 4] = x % ((n & 0x3fffffffffffe) + 1);
           out[8 * i + 5] = x / (n | 1) + a[i] / (n | 1);
           out[8 * i + 6] = (ulong)w % ((ulong)v + 2) + (long)x % (long)((z >> 1) + 1);
           out[8 * i + 7] = (long)x % -(long)y;
         }",
    );
    let all = numbers();
    let pairs: Vec<(i64, i64)> =
        all.iter().flat_map(|&a| all.iter().map(move |&b| (a, b))).collect();
    let count = pairs.len() / 16 * 16;
    let buffer = |pick: fn(&(i64, i64)) -> i64| {
        Input::Buffer(Elements::Bytes, bytes(pairs.iter().take(count).map(pick), 8))
    };
    let runs: Vec<_> = [3, 10_007, 1 << 50, i64::MAX]
        .map(|n: i64| {
            let out = Input::Buffer(Elements::Bytes, vec![0; 64 * count]);
            let n = Input::Value(n.to_le_bytes().to_vec());
            let inputs = vec![out, buffer(|pair| pair.0), buffer(|pair| pair.1), n];
            (Grid::line(count as u64, 16), inputs)
        })
        .into();
    same_in_all(&module, "others", &runs);
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
