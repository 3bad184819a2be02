// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rarely used features: conversions that LLVM leaves as calls, dot products, masks of sub-groups, and
//! instructions of extensions, at every width.

use crate::diff::{Input, same};
use crate::harness::clang::Assembly;
use crate::harness::{Grid, Kernel, buffer, clang, module, widths};

/// Options of clang for `coverage.cl`.
const OPTIONS: [&str; 4] = ["-O2", "-cl-ext=+all", "-mllvm", "--spirv-ext=all"];

fn each(name: &str, check: impl Fn(&Kernel)) {
    let module = module(&clang::compile("coverage.cl", &OPTIONS));
    for (target, lanes) in widths() {
        check(&Kernel::with_lanes(&module, name, &target, lanes));
    }
}

#[test]
fn conversions_to_half_and_double_round_as_their_names_say() {
    let input = [1.0f32, 0.1, -0.1, 2049.0, 65519.0, -3.75, 1e-7, 1.001].repeat(4);
    // Nearest even, towards zero, up.
    let halves: [[u16; 3]; 8] = [
        [0x3c00, 0x3c00, 0x3c00],
        [0x2e66, 0x2e66, 0x2e67],
        [0xae66, 0xae66, 0xae66],
        [0x6800, 0x6800, 0x6801],
        [0x7bff, 0x7bff, 0x7c00],
        [0xc380, 0xc380, 0xc380],
        [0x0002, 0x0001, 0x0002],
        [0x3c01, 0x3c01, 0x3c02],
    ];
    let values = [1.0, 0.0999755859375, -0.0999755859375, 2048.0, 65504.0, -3.75];
    let integers: [u16; 8] = [0x3c00, 0, 0, 0x6800, 0xbc00, 0xc200, 0, 0x3c00];
    let longs: Vec<u64> = (0..32).map(|i| (i << 40) + 8 * i + 8).collect();
    each("conversions", |kernel| {
        let mut longs = longs.clone();
        let (mut input, mut out, mut doubles) = (input.clone(), [0u16; 128], [0f64; 96]);
        let args =
            vec![buffer(&mut input), buffer(&mut out), buffer(&mut doubles), buffer(&mut longs)];
        kernel.run(Grid::line(32, 32), args);
        for i in 0..32 {
            assert_eq!(out[4 * i..4 * i + 3], halves[i % 8], "{}", input[i]);
            // 65519 does not fit a short, so the result is not compared.
            assert!(out[4 * i + 3] == integers[i % 8] || i % 8 == 4, "{}", input[i]);
            assert_eq!(doubles[3 * i], longs[i] as f64 + (longs[i] >> 3) as f64);
            if let Some(&value) = values.get(i % 8) {
                assert_eq!(doubles[3 * i + 1], value);
            }
            assert_eq!(doubles[3 * i + 2], f64::from(input[i] as i32));
        }
    });
}

#[test]
fn any_and_all_ask_for_the_top_bits() {
    // OpenCL C: "any: Returns 1 if the most significant bit of any component of x is set; otherwise
    // returns 0."
    let cases = [[1, 2, 3, 4], [-1, 0, 0, 0], [-1, -2, -3, i32::MIN], [0; 4]];
    let expected = [0, 1, 3, 0];
    each("votes", |kernel| {
        let mut input = cases.repeat(8);
        let mut out = vec![-1; 32];
        kernel.run(Grid::line(32, 16), vec![buffer(&mut input), buffer(&mut out)]);
        assert_eq!(out, expected.repeat(8));
    });
}

#[test]
fn dot_products_are_exact_and_saturate_once() {
    let word = |i: u32| i.wrapping_mul(0x9e37_79b9) ^ (i << 7);
    let a: Vec<u32> = (0..32).map(|i| if i == 3 { 0x8080_8080 } else { word(i) }).collect();
    let b: Vec<u32> = (0..32).map(|i| if i == 3 { 0x8080_8080 } else { word(i + 99) }).collect();
    let signed = |x: u32| x.to_le_bytes().map(|byte| i64::from(byte as i8));
    let unsigned = |x: u32| x.to_le_bytes().map(i64::from);
    let dot = |a: [i64; 4], b: [i64; 4]| a.iter().zip(b).map(|(a, b)| a * b).sum::<i64>();
    let clamp = |x: i64| x.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    each("dots", |kernel| {
        let (mut a, mut b, mut out) = (a.clone(), b.clone(), vec![0i32; 256]);
        kernel.run(Grid::line(32, 32), vec![buffer(&mut a), buffer(&mut b), buffer(&mut out)]);
        for i in 0..32 {
            let (sa, sb, ua, ub) = (signed(a[i]), signed(b[i]), unsigned(a[i]), unsigned(b[i]));
            let unsigned_sum = (dot(ua, ub) + 0xffff_ff00).min(u32::MAX.into()) as u32 as i32;
            let expected = [
                dot(sa, sb) as i32,
                dot(ua, ub) as i32,
                dot(sa, ub) as i32,
                clamp(dot(sa, sb) + 0x7fff_ff00),
                unsigned_sum,
                dot(sa, sb) as i32,
                clamp(dot(sa, ub) - 0x7fff_fff0),
                dot(ua, ub) as i32,
            ];
            assert_eq!(out[8 * i..8 * i + 8], expected, "item {i}");
        }
    });
}

#[test]
fn masks_name_the_lanes_around_the_item() {
    each("masks", |kernel| {
        let mut out = vec![0u32; 160];
        kernel.run(Grid::line(32, 32), vec![buffer(&mut out)]);
        for i in 0..32 {
            let lane = i % 16;
            let all = 0xffffu32;
            let (eq, lt) = (1 << lane, (1 << lane) - 1);
            let expected = [eq, all & !lt, all & !lt & !eq, lt | eq, lt];
            assert_eq!(out[5 * i..5 * i + 5], expected, "item {i}");
        }
    });
}

#[test]
fn floats_of_every_width_are_updated_atomically() {
    each("float_atomics", |kernel| {
        let (mut f, mut d, mut h) = ([0f32; 2], [0f64; 2], [0u16; 4]);
        let args = vec![buffer(&mut f), buffer(&mut d), buffer(&mut h)];
        kernel.run(Grid::line(32, 32), args);
        assert_eq!((f, d), ([31.0, 16.0], [-31.0, 31.0]));
        // 32, 31, -31 and 64.
        assert_eq!(h, [0x5000, 0x4fc0, 0xcfc0, 0x5400]);
    });
}

/// Instructions that no available compiler writes, as assembly: `in` and `out` are of 32-bit words.
fn assembled(more_head: &str, body: &str) -> Vec<u8> {
    Assembly {
        head: &format!("OpCapability Int8\nOpCapability Int16\n{more_head}"),
        declarations: "%i16 = OpTypeInt 16 0
            %f32 = OpTypeFloat 32
            %c2 = OpConstant %i32 2
            %c3 = OpConstant %i32 3
            %c16 = OpConstant %i32 16",
        parameters: &[("in", "p"), ("out", "p")],
        body: &format!(
            "%from = OpPtrAccessChain %p %in %i
             %to = OpPtrAccessChain %p %out %i
             %x = OpLoad %i32 %from Aligned 4
             {body}
             OpStore %to %y Aligned 4"
        ),
        ..Default::default()
    }
    .module()
}

/// Runs such an instruction on some words, at every width.
fn words(more_head: &str, body: &str, expected: impl Fn(u32) -> u32) {
    let module = module(&assembled(more_head, body));
    let input: Vec<u32> = (0..32u32)
        .map(|i| match i {
            0 => 0,
            1 => u32::MAX,
            2 => 0x8000_0000,
            3 => 0x7fff_ffff,
            4 => 0x7fc0_0001,
            5 => 0x3f80_8000,
            6 => 0x3f81_8000,
            i => i.wrapping_mul(0x9e37_79b9),
        })
        .collect();
    for (target, lanes) in widths() {
        let kernel = Kernel::with_lanes(&module, "k", &target, lanes);
        let (mut from, mut out) = (input.clone(), vec![0u32; 32]);
        kernel.run(Grid::line(32, 16), vec![buffer(&mut from), buffer(&mut out)]);
        for (&x, &y) in input.iter().zip(&out) {
            assert_eq!(y, expected(x), "{x:#x} at {lanes} lanes: {body}");
        }
    }
}

#[test]
fn integer_functions_of_intel_are_those_of_opencl() {
    let head =
        "OpCapability IntegerFunctions2INTEL\nOpExtension \"SPV_INTEL_shader_integer_functions2\"";
    words(head, "%y = OpUCountLeadingZerosINTEL %i32 %x", u32::leading_zeros);
    words(head, "%y = OpUCountTrailingZerosINTEL %i32 %x", u32::trailing_zeros);
    words(head, "%y = OpIAddSatINTEL %i32 %x %c3", |x| (x as i32).saturating_add(3) as u32);
    words(head, "%y = OpUSubSatINTEL %i32 %x %c3", |x| x.saturating_sub(3));
    words(head, "%y = OpAbsISubINTEL %i32 %x %c3", |x| (x as i32).abs_diff(3));
    words(head, "%y = OpUAverageRoundedINTEL %i32 %x %c3", |x| ((u64::from(x) + 4) / 2) as u32);
    words(head, "%y = OpIAverageINTEL %i32 %x %c3", |x| ((i64::from(x as i32) + 3) >> 1) as u32);
}

#[test]
fn brain_floats_round_to_nearest_even_and_keep_nan() {
    // OpConvertFToBF16INTEL and OpConvertBF16ToFINTEL as words: Debian 12's assembler is older.
    let body = "%f = OpBitcast %f32 %x
!0x417e4 %i16 %b %f
%y = OpUConvert %i32 %b";
    words("", body, |x| {
        if f32::from_bits(x).is_nan() {
            return (x | 0x40_0000) >> 16;
        }
        (x + 0x7fff + (x >> 16 & 1)) >> 16
    });
    let back = "%h = OpUConvert %i16 %x
!0x417e5 %f32 %f %h
%y = OpBitcast %i32 %f";
    words("", back, |x| x << 16);
}

#[test]
fn a_split_barrier_is_a_barrier_where_it_waits() {
    let head = "OpCapability SplitBarrierINTEL\nOpExtension \"SPV_INTEL_split_barrier\"";
    let body = "OpControlBarrierArriveINTEL %c2 %c2 %c16
%y = OpIAdd %i32 %x %c3
OpControlBarrierWaitINTEL %c2 %c2 %c16";
    words(head, body, |x| x.wrapping_add(3));
}

/// Relaxed minima and maxima read before they write (`rt/atomic.c`): in the order of each type.
#[test]
fn relaxed_extremes_follow_the_order_of_their_type() {
    let source = "
        #define BOTH(type, at, value) \\
            atomic_fetch_min_explicit((volatile global atomic_##type *)(at), value, memory_order_relaxed, memory_scope_device); \\
            atomic_fetch_max_explicit((volatile global atomic_##type *)(at) + 1, value, memory_order_relaxed, memory_scope_device);
        kernel void extremes(global long *cells) {
            long x = ((long)get_global_id(0) - 20) * 0x300000001;
            BOTH(int, cells, (int)x)
            BOTH(uint, cells + 2, (uint)x)
            BOTH(long, cells + 4, x)
            BOTH(ulong, cells + 6, (ulong)x)
        }";
    let module = module(&clang::compile_text(source, &["-O1", "-Xclang", "-cl-ext=+all"]));
    let cells: Vec<u8> = [1_u64 << 32 | 5; 8].iter().flat_map(|it| it.to_le_bytes()).collect();
    same(&module, "extremes", Grid::line(64, 16), &[Input::bytes(cells)], "extremes");
}
