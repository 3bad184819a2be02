// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interpreter compared with plain Rust, on clang's output for OpenCL C with and without
//! optimisation.

use launch::{Run, front_end};
use tally_compiler::interp::{InterpError, Launch};
use tally_compiler::ir::Module;

#[path = "support/clang.rs"]
mod clang;
#[path = "support/launch.rs"]
mod launch;

/// The module of a file of `tests/kernels`, without optimisation and with.
fn both(file: &str) -> [Module; 2] {
    ["-O0", "-O2"].map(|level| front_end(&clang::compile(file, &[level])))
}

/// A partial last group computes its elements, and nothing is written past the wanted ones.
#[test]
fn saxpy_with_a_partial_last_group() {
    for module in both("saxpy.cl") {
        let mut run = Run::new(&module, "saxpy");
        let x: Vec<f32> = (0..100).map(|i| i as f32).collect();
        run.value(2.0f32);
        run.buffer(&x);
        let y = run.buffer(&vec![1.0f32; 100]);
        run.value(90u32);
        run.line(95, 16);
        let expected: Vec<f32> =
            (0..100).map(|i| if i < 90 { 2.0 * i as f32 + 1.0 } else { 1.0 }).collect();
        assert_eq!(run.read::<f32>(y), expected);
    }
}

/// Barriers in a loop order the phases of a tiled product.
#[test]
fn matmul_with_tiles_and_barriers() {
    const N: usize = 16;
    for module in both("matmul.cl") {
        let a: Vec<f32> = (0..N * N).map(|i| (i % 7) as f32 - 3.0).collect();
        let b: Vec<f32> = (0..N * N).map(|i| (i % 5) as f32 * 0.5).collect();
        let mut run = Run::new(&module, "matmul");
        run.buffer(&a);
        run.buffer(&b);
        let c = run.buffer(&[0f32; N * N]);
        run.value(N as u32);
        let n = N as u64;
        run.launch(&Launch {
            global_size: [n, n, 1],
            group_size: [8, 8, 1],
            work_dim: 2,
            ..Launch::linear(n, 8)
        });
        let mut expected = vec![0f32; N * N];
        for (i, cell) in expected.iter_mut().enumerate() {
            *cell = (0..N).map(|k| a[i / N * N + k] * b[k * N + i % N]).sum();
        }
        assert_eq!(run.read::<f32>(c), expected);
    }
}

/// Local variables and local arguments are apart from each other and belong to one group.
#[test]
fn reduction_in_local_memory() {
    for module in both("memory.cl") {
        let input: Vec<i32> = (0..64).map(|i| i * i % 17).collect();
        let mut run = Run::new(&module, "reduce");
        run.buffer(&input);
        let out = run.buffer(&[0i32; 4]);
        run.local(16 * 4);
        run.line(64, 16);
        let expected: Vec<i32> =
            input.chunks(16).map(|part| part.iter().sum::<i32>() * 1000 + part[0]).collect();
        assert_eq!(run.read::<i32>(out), expected);
    }
}

/// Structures have C's layout, and a function's changes to one passed by value stay its own.
#[test]
fn structures_by_value_and_in_memory() {
    let weights = [3i32, 1, 4, 1, 5];
    for module in both("memory.cl") {
        let mut things = Vec::new();
        for i in 0..4u8 {
            let mut thing = vec![0u8; 48];
            thing[0] = 40 + i;
            thing[24..28].copy_from_slice(&(f32::from(i) + 2.5).to_le_bytes());
            for c in 0..3 {
                thing[32 + 2 * c] = i + c as u8;
            }
            things.extend(thing);
        }
        let mut run = Run::new(&module, "structs");
        let mut pair = 77i32.to_le_bytes().to_vec();
        pair.extend([0; 4]);
        pair.extend(1000i64.to_le_bytes());
        run.bytes(pair);
        let things = run.buffer(&things);
        let out = run.buffer(&[0i64; 4]);
        run.line(4, 4);
        let expected: Vec<i64> = (0..4).map(|i| (1000 + i) * 1_000_000 + 77).collect();
        assert_eq!(run.read::<i64>(out), expected);
        let things = run.read::<u8>(things);
        for i in 0..4i32 {
            let mut counts = [i, i + 1, i + 2];
            counts[i as usize % 3] += weights[i as usize];
            let weight =
                40 + i + (i as f32 + 2.5) as i32 + counts[0] + 10 * counts[1] + 100 * counts[2];
            let at = i as usize * 48 + 36;
            assert_eq!(i16::from_le_bytes([things[at], things[at + 1]]), weight as i16);
        }
    }
}

/// A private array is indexed by data and fresh for each work-item.
#[test]
fn private_arrays() {
    for module in both("memory.cl") {
        let input: Vec<u8> = (0..80u32).map(|i| (i * i / 3) as u8).collect();
        let mut run = Run::new(&module, "bins");
        run.buffer(&input);
        let out = run.buffer(&[0u32; 8]);
        run.value(10u32);
        run.line(8, 8);
        let expected: Vec<u32> = input
            .chunks(10)
            .map(|part| {
                let mut count = [0u32; 16];
                part.iter().for_each(|&x| count[usize::from(x & 15)] += 1);
                let best = (0..16).rev().max_by_key(|&k| count[k]).unwrap();
                (best as u32) << 16 | count[best]
            })
            .collect();
        assert_eq!(run.read::<u32>(out), expected);
    }
}

/// `vloadn` and `vstoren` touch exactly their components, and halves round to nearest.
#[test]
fn vectors_and_halves() {
    for module in both("memory.cl") {
        let input: Vec<f32> = (0..12).map(|i| i as f32 * 1.25).collect();
        for pick in 0..4 {
            let mut run = Run::new(&module, "vectors");
            run.buffer(&input);
            let out = run.buffer(&[0f32; 16]);
            let halves = run.buffer(&[0u16; 12]);
            run.value(pick);
            run.line(4, 4);
            let (out, halves) = (run.read::<f32>(out), run.read::<u16>(halves));
            for i in 0..4 {
                let v = &input[3 * i..3 * i + 3];
                let mut w = [v[2], v[1], v[0], v[pick as usize % 3]];
                w[(pick as usize + 1) % 4] += 0.5;
                w.reverse();
                assert_eq!(out[4 * i..4 * i + 4], w);
                for k in 0..3 {
                    let exact = f64::from(v[k] * 0.1);
                    let bits = halves[3 * i + k];
                    let value = f64::from(bits & 0x3ff) / 1024.0 + f64::from(bits >> 10 != 0);
                    let value = value * 2f64.powi(i32::from(bits >> 10).max(1) - 15);
                    assert!((value - exact).abs() <= exact / 2048.0, "{value} for {exact}");
                }
            }
        }
    }
}

/// Generic pointers reach the address space of the pointer that they were cast from.
#[test]
fn generic_pointers() {
    for module in both("memory.cl") {
        let mut run = Run::new(&module, "generic_pointers");
        let out = run.buffer(&[0i32; 6]);
        run.line(3, 1);
        assert_eq!(run.read::<i32>(out), [30, 11, 30, 21, 31, 31]);
    }
}

/// Local and global atomics count every element once.
#[test]
fn histogram() {
    for module in both("atomics.cl") {
        let input: Vec<u32> = (0..60).map(|i| i * i + 3 * i).collect();
        let mut run = Run::new(&module, "histogram");
        run.buffer(&input);
        let bins = run.buffer(&[0u32; 8]);
        run.value(55u32);
        run.line(60, 16);
        let mut expected = [0u32; 8];
        input[..55].iter().for_each(|x| expected[*x as usize % 8] += 1);
        assert_eq!(run.read::<u32>(bins), expected);
    }
}

/// Each atomic operation does what its name says.
#[test]
fn every_atomic_operation() {
    for module in both("atomics.cl") {
        let mut run = Run::new(&module, "every");
        let cells = run.buffer(&[100, 0, 0, -1, 0, 0, 50, 1 << 20, 1]);
        let orders = run.buffer(&[0, 0, -5]);
        let flags = run.buffer(&[0, 37]);
        run.line(4, 4);
        let xored = 3 ^ 6 ^ 12 ^ 24;
        assert_eq!(run.read::<i32>(cells), [94, -3, 3, !15, 15, xored, 46, 97, 121]);
        assert_eq!(run.read::<i32>(orders), [8, 8, 3]);
        assert_eq!(run.read::<i32>(flags), [42, 37]);
    }
}

/// Ids, sizes and offsets in three dimensions, with partial groups at every edge.
#[test]
fn places_in_three_dimensions() {
    for module in both("ids.cl") {
        let (global, group, offset) = ([5u64, 3, 4], [2u32, 2, 3], [10u64, 0, 7]);
        for d in 0..3 {
            let mut run = Run::new(&module, "ids");
            let out = run.buffer(&vec![0u64; 60 * 16]);
            run.value(d as i32);
            run.launch(&Launch {
                global_size: global,
                group_size: group,
                global_offset: offset,
                work_dim: 3,
                step_limit: 1 << 20,
            });
            let out = run.read::<u64>(out);
            for z in 0..4 {
                for y in 0..3 {
                    for x in 0..5 {
                        let id = [x, y, z];
                        let at = ((z * 3 + y) * 5 + x) as usize * 16;
                        let full = group.map(u64::from);
                        let local: [u64; 3] = std::array::from_fn(|d| id[d] % full[d]);
                        let groups: [u64; 3] = std::array::from_fn(|d| id[d] / full[d]);
                        let size: [u64; 3] =
                            std::array::from_fn(|d| full[d].min(global[d] - groups[d] * full[d]));
                        let mut expected = Vec::new();
                        expected.extend((0..3).map(|d| id[d] + offset[d]));
                        expected.extend(local);
                        expected.extend(groups);
                        expected.extend([size[d], full[d], global[d]]);
                        expected.extend([global[d].div_ceil(full[d]), offset[d]]);
                        expected.push((local[2] * size[1] + local[1]) * size[0] + local[0]);
                        expected.push(3);
                        assert_eq!(out[at..at + 16], expected, "work-item {id:?}");
                    }
                }
            }
        }
    }
}

/// Conversions round in the requested direction for every kind of number.
#[test]
fn conversions_round_as_asked() {
    let source = "
        kernel void convert(global const ulong *u, global const double *d, global float *out) {
            size_t i = get_global_id(0);
            ulong x = u[i];
            long s = -(long)(x >> 1);
            out[i * 12 + 0] = convert_float_rtz(x);
            out[i * 12 + 1] = convert_float_rtp(x);
            out[i * 12 + 2] = convert_float_rtn(x);
            out[i * 12 + 3] = convert_float_rte(x);
            out[i * 12 + 4] = convert_float_rtz(s);
            out[i * 12 + 5] = convert_float_rtp(s);
            out[i * 12 + 6] = convert_float_rtn(s);
            out[i * 12 + 7] = convert_float_rte(s);
            out[i * 12 + 8] = convert_float_rtz(d[i]);
            out[i * 12 + 9] = convert_float_rtp(d[i]);
            out[i * 12 + 10] = convert_float_rtn(d[i]);
            out[i * 12 + 11] = convert_float_rte(d[i]);
        }";
    let ints = [0, 1, 0x0100_0001, u64::MAX, 1 << 63, 0x8000_0080_0000_0001, (1 << 40) + 3];
    let floats = [0.0, -0.0, 1e-50, -1e-50, 0.1, -0.1, 1e300];
    let module = front_end(&clang::compile_text(source, &["-O0"]));
    let mut run = Run::new(&module, "convert");
    run.buffer(&ints);
    run.buffer(&floats);
    let out = run.buffer(&[0f32; 7 * 12]);
    run.line(7, 7);
    let out = run.read::<f32>(out);
    // Neighbours of the nearest float that bound the exact value, compared as integers.
    let check_int = |exact: i128, got: &[f32]| {
        let (zero, up, down, nearest) = (got[0], got[1], got[2], got[3]);
        assert_eq!(nearest, exact as f32, "nearest {exact}");
        assert!(up as i128 >= exact && down as i128 <= exact, "bounds of {exact}: {up} {down}");
        assert!(down == up || down.next_up() == up, "closest bounds of {exact}: {up} {down}");
        assert_eq!(zero, if exact < 0 { up } else { down }, "towards zero {exact}");
    };
    for (i, x) in ints.into_iter().enumerate() {
        check_int(i128::from(x), &out[i * 12..]);
        check_int(-i128::from(x >> 1), &out[i * 12 + 4..]);
    }
    for (i, x) in floats.into_iter().enumerate() {
        let [zero, up, down, nearest] = *out[i * 12 + 8..].first_chunk().unwrap();
        assert_eq!(nearest.to_bits(), (x as f32).to_bits());
        assert!(f64::from(up) >= x && f64::from(down) <= x, "bounds of {x}: {up} {down}");
        assert!(down == up || down.next_up() == up, "closest bounds of {x}: {up} {down}");
        assert_eq!(zero, if x < 0.0 { up } else { down }, "towards zero {x}");
    }
}

/// Functions with a second result return both, and halves are computed in a wider format.
#[test]
fn library_functions() {
    let source = "
        #pragma OPENCL EXTENSION cl_khr_fp16 : enable
        kernel void lib(global const float *in, global float *out, global half *halves) {
            int i = get_global_id(0);
            float x = in[i], whole;
            int e;
            global float *o = out + 20 * i;
            o[0] = modf(x, &whole);
            o[1] = whole;
            o[2] = frexp(x, &e);
            o[3] = e;
            o[4] = sincos(x, &whole);
            o[5] = whole;
            o[6] = ldexp(x, 3);
            o[7] = pown(x, 3);
            o[8] = length((float3)(x, x * 2, 2 * x));
            float3 n = normalize((float3)(3 * x, 0, 4 * x));
            o[9] = n.x;
            o[10] = n.z;
            o[11] = sign(x);
            o[12] = smoothstep(0.0f, 4.0f, x);
            o[13] = mix(x, 10.0f, 0.5f);
            o[14] = fdim(x, 1.0f);
            o[15] = remquo(x, 0.75f, &e);
            o[16] = e;
            o[17] = maxmag(x, -2.0f);
            o[18] = cross((float3)(x, 0, 0), (float3)(0, x, 0)).z;
            o[19] = native_exp(x);
            half h = (half)x;
            halves[2 * i] = exp(h);
            halves[2 * i + 1] = nextafter(h, (half)100);
        }";
    let module = front_end(&clang::compile_text(source, &["-O2"]));
    let input = [2.5f32, -1.75];
    let mut run = Run::new(&module, "lib");
    run.buffer(&input);
    let out = run.buffer(&[0f32; 40]);
    let halves = run.buffer(&[0u16; 4]);
    run.line(2, 2);
    let out = run.read::<f32>(out);
    let expected = |x: f32| {
        let t = (x / 4.0).clamp(0.0, 1.0);
        let (rest, quotient) = libm::remquof(x, 0.75);
        [
            x.fract(),
            x.trunc(),
            libm::frexpf(x).0,
            libm::frexpf(x).1 as f32,
            f64::from(x).sin() as f32,
            f64::from(x).cos() as f32,
            x * 8.0,
            x * x * x,
            x.abs() * 3.0,
            0.6f32.copysign(x),
            0.8f32.copysign(x),
            x.signum(),
            t * t * (3.0 - 2.0 * t),
            x + (10.0 - x) * 0.5,
            (x - 1.0).max(0.0),
            rest,
            quotient as f32,
            if x.abs() > 2.0 { x } else { -2.0 },
            x * x,
            f64::from(x).exp() as f32,
        ]
    };
    assert_eq!(out[..20], expected(2.5));
    assert_eq!(out[20..], expected(-1.75));
    // exp(2.5) = 12.18, exp(-1.75) = 0.1738, and the halves after 2.5 and -1.75.
    assert_eq!(run.read::<u16>(halves), [0x4a17, 0x4101, 0x3190, 0xbeff]);
}

/// A barrier that only some work-items reach ends, in some order.
#[test]
fn a_divergent_barrier_ends() {
    for module in both("control.cl") {
        let mut run = Run::new(&module, "divergent");
        run.buffer(&[0i32; 16]);
        run.line(16, 16);
    }
}

/// An access past a buffer's end stops the run and names the place.
#[test]
fn an_access_out_of_bounds_is_an_error() {
    let source = "kernel void stray(global int *out) { out[get_global_id(0) * 2] = 1; }";
    let module = front_end(&clang::compile_text(source, &["-O2"]));
    let mut run = Run::new(&module, "stray");
    let out = run.buffer(&[0i32; 4]);
    let error = run.try_launch(&Launch::linear(3, 1)).unwrap_err();
    assert!(matches!(error, InterpError::Memory { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("\"stray\"") && text.contains("4 bytes at 0x10010"), "{text}");
    assert_eq!(run.read::<i32>(out), [1, 0, 1, 0]);
}

/// A kernel that does not end runs into the limit.
#[test]
fn an_endless_loop_meets_the_step_limit() {
    let source = "kernel void spin(volatile global int *flag) { while (*flag == 0); }";
    let module = front_end(&clang::compile_text(source, &["-O2"]));
    let mut run = Run::new(&module, "spin");
    run.buffer(&[0i32]);
    let launch = Launch { step_limit: 10_000, ..Launch::linear(1, 1) };
    assert_eq!(run.try_launch(&launch), Err(InterpError::StepLimit));
}

/// Arguments of another number or size than the kernel's are refused.
#[test]
fn wrong_arguments_are_refused() {
    let module = &both("saxpy.cl")[1];
    let mut run = Run::new(module, "saxpy");
    let error = run.try_launch(&Launch::linear(1, 1)).unwrap_err();
    assert_eq!(error.to_string(), "the kernel takes 4 arguments, not 0");
    run.value(1.0f64);
    run.buffer(&[0f32]);
    run.buffer(&[0f32]);
    run.value(1u32);
    let error = run.try_launch(&Launch::linear(1, 1)).unwrap_err();
    assert!(error.to_string().starts_with("argument 0 is value of 4 bytes"), "{error}");
}

/// Integers of all sizes as floats and half floats, rounded in each direction.
#[test]
fn integers_round_as_asked() {
    let half = |bits: u32| {
        let (exponent, mantissa) = ((bits >> 10 & 31) as i32, f64::from(bits & 0x3ff));
        let size = match exponent {
            0 => mantissa * 2f64.powi(-24),
            31 => f64::INFINITY,
            _ => (mantissa + 1024.0) * 2f64.powi(exponent - 25),
        };
        if bits >> 15 == 1 { -size } else { size }
    };
    let integers: Vec<i128> =
        [0, 1, 2047, 2048, 2049, 4095, 32767, 65503, 65519, 65520, 65535, 65536]
            .into_iter()
            .chain([1 << 20, (1 << 24) - 1, (1 << 24) + 1, (1 << 25) + 3, (1 << 31) - 1, 1 << 31])
            .chain([(1 << 32) - 1, (1 << 53) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
            .flat_map(|n| [n, -n])
            .collect();
    for (from, bits, signed) in [
        ("char", 8, true),
        ("uchar", 8, false),
        ("short", 16, true),
        ("ushort", 16, false),
        ("int", 32, true),
        ("uint", 32, false),
        ("long", 64, true),
        ("ulong", 64, false),
    ] {
        let limits =
            if signed { -(1i128 << (bits - 1))..1 << (bits - 1) } else { 0..1i128 << bits };
        let here: Vec<i128> = integers.iter().copied().filter(|n| limits.contains(n)).collect();
        let n = here.len();
        for (to, width) in [("half", 2), ("float", 4)] {
            let module = front_end(&clang::compile_text(
                &format!(
                    "#pragma OPENCL EXTENSION cl_khr_fp16 : enable
                     kernel void convert(global const {from} *in, global {to} *out) {{
                       size_t i = get_global_id(0);
                       out[i * 4] = convert_{to}_rtz(in[i]); out[i * 4 + 1] = convert_{to}_rtp(in[i]);
                       out[i * 4 + 2] = convert_{to}_rtn(in[i]); out[i * 4 + 3] = convert_{to}(in[i]);
                     }}"
                ),
                &["-O1"],
            ));
            let mut run = Run::new(&module, "convert");
            let bytes = here.iter().flat_map(|n| n.to_le_bytes().into_iter().take(bits / 8));
            run.buffer(&bytes.collect::<Vec<u8>>());
            let out = run.buffer(&vec![0u8; 4 * n * width]);
            run.line(n as u64, n as u32);
            let out = run.read::<u8>(out);
            let value = |at: usize| {
                let bytes = &out[at * width..(at + 1) * width];
                let bits = bytes.iter().rev().fold(0, |bits, &byte| bits << 8 | u32::from(byte));
                (bits, if width == 2 { half(bits) } else { f32::from_bits(bits).into() })
            };
            for (i, &exact) in here.iter().enumerate() {
                let [zero, up, down, near] = [0, 1, 2, 3].map(|k| value(4 * i + k));
                let what = format!("{from} {exact} as {to}: {zero:?} {up:?} {down:?} {near:?}");
                // An infinity is above, or below, all integers as an `i128` too.
                assert!(down.1 as i128 <= exact && up.1 as i128 >= exact, "{what}");
                assert!(down == up || down.0.abs_diff(up.0) == 1, "{what}");
                assert_eq!(zero, if exact < 0 { up } else { down }, "{what}");
                assert!(near == up || near == down, "{what}");
            }
        }
    }
}
