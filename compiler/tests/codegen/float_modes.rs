// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels with modes of floats (SPV_KHR_float_controls, SPV_INTEL_float_controls2): the interpreter and the
//! code at all widths agree with each other, and with what the processor computes in that mode.

use std::arch::asm;

use tally_compiler::parse::parse;

use crate::diff::{Elements, Input, interpreted, same};
use crate::harness::clang::{Assembly, assemble};
use crate::harness::{Grid, module};

/// The results of an item.
const RESULTS: usize = 9;

/// A direction: the mode's name and the bits of the processor's control register.
const DIRECTIONS: [(&str, u32); 3] =
    [("RoundingModeRTZ", 3), ("RoundingModeRTPINTEL", 2), ("RoundingModeRTNINTEL", 1)];

const CAPABILITIES: &str = "OpCapability Float16
    OpCapability Float64
    OpCapability Vector16
    OpCapability RoundingModeRTZ
    OpCapability RoundToInfinityINTEL
    OpCapability FloatingPointModeINTEL
    OpCapability DenormFlushToZero
    OpExtension \"SPV_KHR_float_controls\"
    OpExtension \"SPV_INTEL_float_controls2\"
    %cl = OpExtInstImport \"OpenCL.std\"";

/// A kernel that computes on three numbers of each item, and converts a double and a 64-bit integer.
fn arithmetic(bits: u32, modes: &str) -> Vec<u8> {
    let mut declarations = format!(
        "%f = OpTypeFloat {bits}
         %f2 = OpTypeVector %f 2
         %pf = OpTypePointer CrossWorkgroup %f
         %pl = OpTypePointer CrossWorkgroup %i64\n"
    );
    if bits != 64 {
        declarations += "%double = OpTypeFloat 64\n";
    }
    declarations += "%pd = OpTypePointer CrossWorkgroup %double\n";
    let declarations = match bits {
        64 => declarations.replace("%double", "%f"),
        _ => declarations,
    };
    let (double, convert) = match bits {
        64 => ("f", "%r8 = OpFAdd %f %d %d"),
        _ => ("double", "%r8 = OpFConvert %f %d"),
    };
    let constants: String =
        (0..RESULTS).map(|n| format!("%n{n} = OpConstant %i64 {n}\n")).collect();
    let declarations = format!("{declarations}{constants}%count = OpConstant %i64 {RESULTS}\n");
    let mut body = format!(
        "%pa = OpInBoundsPtrAccessChain %pf %a %i
         %pb = OpInBoundsPtrAccessChain %pf %b %i
         %pc = OpInBoundsPtrAccessChain %pf %c %i
         %pdd = OpInBoundsPtrAccessChain %pd %doubles %i
         %pll = OpInBoundsPtrAccessChain %pl %longs %i
         %x = OpLoad %f %pa
         %y = OpLoad %f %pb
         %z = OpLoad %f %pc
         %d = OpLoad %{double} %pdd
         %l = OpLoad %i64 %pll
         %r0 = OpFAdd %f %x %y
         %r1 = OpFSub %f %x %y
         %xy = OpCompositeConstruct %f2 %x %y
         %yy = OpCompositeConstruct %f2 %y %y
         %products = OpFMul %f2 %xy %yy
         %r2 = OpCompositeExtract %f %products 0
         %r3 = OpFDiv %f %x %y
         %r4 = OpExtInst %f %cl fma %x %y %z
         %r5 = OpExtInst %f %cl sqrt %x
         %r6 = OpConvertUToF %f %l
         %r7 = OpConvertSToF %f %l
         {convert}
         %at = OpIMul %i64 %i %count\n"
    );
    for n in 0..RESULTS {
        body += &format!(
            "%at{n} = OpIAdd %i64 %at %n{n}
             %to{n} = OpInBoundsPtrAccessChain %pf %out %at{n}
             OpStore %to{n} %r{n}\n"
        );
    }
    let parameters =
        &[("out", "pf"), ("a", "pf"), ("b", "pf"), ("c", "pf"), ("doubles", "pd"), ("longs", "pl")];
    let (head, notes) = (CAPABILITIES, modes);
    Assembly {
        head,
        notes,
        declarations: &declarations,
        parameters,
        body: &body,
        ..Assembly::default()
    }
    .module()
}

/// Computes in another rounding mode of the processor: the instruction's second operand is the result's.
macro_rules! in_mode {
    ($mode:expr, $instruction:literal, $x:expr, $y:expr) => {{
        let (mut x, y, mode) = ($x, $y, 0x1f80u32 | $mode << 13);
        let old = 0x1f80u32;
        // SAFETY: computes on registers; the mode is what it was before when the block ends.
        unsafe {
            asm!("ldmxcsr [{mode}]", $instruction, "ldmxcsr [{old}]", x = inout(xmm_reg) x,
                y = in(xmm_reg) y, mode = in(reg) &raw const mode, old = in(reg) &raw const old);
        }
        x
    }};
}

fn fused(mode: u32, x: f64, y: f64, z: f64) -> f64 {
    let (mut x, mode, old) = (x, 0x1f80u32 | mode << 13, 0x1f80u32);
    // SAFETY: as above; the caller has looked for the instruction.
    unsafe {
        asm!("ldmxcsr [{mode}]", "vfmadd213sd {x}, {y}, {z}", "ldmxcsr [{old}]", x = inout(xmm_reg) x,
            y = in(xmm_reg) y, z = in(xmm_reg) z, mode = in(reg) &raw const mode,
            old = in(reg) &raw const old);
    }
    x
}

fn fused_single(mode: u32, x: f32, y: f32, z: f32) -> f32 {
    let (mut x, mode, old) = (x, 0x1f80u32 | mode << 13, 0x1f80u32);
    // SAFETY: as above.
    unsafe {
        asm!("ldmxcsr [{mode}]", "vfmadd213ss {x}, {y}, {z}", "ldmxcsr [{old}]", x = inout(xmm_reg) x,
            y = in(xmm_reg) y, z = in(xmm_reg) z, mode = in(reg) &raw const mode,
            old = in(reg) &raw const old);
    }
    x
}

/// The bits of what the processor computes of three doubles, a double and an integer.
fn doubles(mode: u32, [x, y, z]: [f64; 3], d: f64, l: i64) -> [u64; RESULTS] {
    // 64 bits without a sign are not converted by old processors: both halves are exact.
    let high = (l as u64 >> 32) as f64 * 4_294_967_296.0;
    [
        in_mode!(mode, "addsd {x}, {y}", x, y),
        in_mode!(mode, "subsd {x}, {y}", x, y),
        in_mode!(mode, "mulsd {x}, {y}", x, y),
        in_mode!(mode, "divsd {x}, {y}", x, y),
        fused(mode, x, y, z),
        in_mode!(mode, "sqrtsd {x}, {y}", x, x),
        in_mode!(mode, "addsd {x}, {y}", high, (l as u32) as f64),
        in_mode!(mode, "addsd {x}, {y}", (l >> 32) as f64 * 4_294_967_296.0, (l as u32) as f64),
        in_mode!(mode, "addsd {x}, {y}", d, d),
    ]
    .map(f64::to_bits)
}

/// The same of floats. A double rounded in a direction, and then to a float in that direction, is the same as
/// rounded once.
fn floats(mode: u32, [x, y, z]: [f32; 3], d: f64, l: i64) -> [u64; RESULTS] {
    let narrow = |x: f64| -> f32 {
        let (mut out, mode, old) = (0f32, 0x1f80u32 | mode << 13, 0x1f80u32);
        // SAFETY: as above.
        unsafe {
            asm!("ldmxcsr [{mode}]", "cvtsd2ss {out}, {x}", "ldmxcsr [{old}]",
                out = inout(xmm_reg) out, x = in(xmm_reg) x, mode = in(reg) &raw const mode,
                old = in(reg) &raw const old);
        }
        out
    };
    let wide = doubles(mode, [0.0; 3], 0.0, l).map(f64::from_bits);
    [
        in_mode!(mode, "addss {x}, {y}", x, y),
        in_mode!(mode, "subss {x}, {y}", x, y),
        in_mode!(mode, "mulss {x}, {y}", x, y),
        in_mode!(mode, "divss {x}, {y}", x, y),
        fused_single(mode, x, y, z),
        in_mode!(mode, "sqrtss {x}, {y}", x, x),
        narrow(wide[6]),
        narrow(wide[7]),
        narrow(d),
    ]
    .map(|x| u64::from(x.to_bits()))
}

/// A half as a double.
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 0x3ff));
    let size = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -size } else { size }
}

/// The half that a double is rounded to in a direction: the last one that is not beyond it.
fn to_half(mode: u32, x: f64) -> u16 {
    if x.is_nan() {
        return 0x7e00;
    }
    let size = x.abs();
    let below = (0..=0x7c00u16).collect::<Vec<_>>().partition_point(|&bits| half(bits) <= size) - 1;
    let exact = half(below as u16) == size;
    let outward = match mode {
        2 => x > 0.0,
        1 => x < 0.0,
        _ => false,
    };
    let bits = below as u16 + u16::from(!exact && outward);
    bits | u16::from(x.is_sign_negative()) << 15
}

fn halves(mode: u32, numbers: [u16; 3], d: f64, l: i64) -> [u64; RESULTS] {
    let mut wide = doubles(mode, numbers.map(half), d, l).map(f64::from_bits);
    wide[8] = d;
    wide.map(|x| u64::from(to_half(mode, x)))
}

/// Numbers that need not be random.
fn special(bits: u32) -> Vec<u64> {
    let (fraction, exponents) = match bits {
        16 => (10, 31),
        32 => (23, 255),
        _ => (52, 2047u64),
    };
    let mut all = vec![0, 1, 2, (1 << fraction) - 1, 1 << fraction, (1 << fraction) + 1];
    for exponent in [exponents / 2, exponents / 2 + 1, exponents - 1, exponents] {
        all.extend([
            exponent << fraction,
            (exponent << fraction) + 1,
            ((exponent + 1) << fraction) - 1,
        ]);
    }
    let sign = 1 << (bits - 1);
    all.iter().flat_map(|&x| [x & (sign - 1), x | sign]).collect()
}

/// Triples of numbers: pairs of the special ones, and random ones whose exponents are often near each other.
fn triples(bits: u32, random: usize) -> Vec<[u64; 3]> {
    let special = special(bits);
    let mut all = Vec::new();
    for (i, &a) in special.iter().enumerate() {
        for (j, &b) in special.iter().enumerate() {
            all.push([a, b, special[(i * 7 + j * 5) % special.len()]]);
        }
    }
    let mut state = 0x1234_5678_9abc_def1u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    };
    let mask = u64::MAX >> (64 - bits);
    let fraction = match bits {
        16 => 10,
        32 => 23,
        _ => 52,
    };
    for n in 0..random {
        let [a, b] = [next() & mask, next() & mask];
        let shift = fraction - 3 * (n % 2);
        let c = match n % 4 {
            // Near the product, so that most of a sum with it vanishes.
            0 if bits == 64 => (-(f64::from_bits(a) * f64::from_bits(b))).to_bits() ^ (next() & 3),
            1 => (a ^ (next() & ((4 << shift) - 1))) & mask,
            2 => (b ^ (1 << (bits - 1))) ^ (next() & 7),
            _ => next() & mask,
        };
        let b = if n % 3 == 0 { (a ^ (next() & ((2 << fraction) - 1))) & mask } else { b };
        all.push([a, b, c]);
    }
    all
}

fn is_nan(bits: u32, x: u64) -> bool {
    match bits {
        16 => x & 0x7fff > 0x7c00,
        32 => f32::from_bits(x as u32).is_nan(),
        _ => f64::from_bits(x).is_nan(),
    }
}

/// Compares kernels in all directions with the processor.
fn directions(bits: u32, want: impl Fn(u32, [u64; 3], f64, i64) -> [u64; RESULTS]) {
    if !is_x86_feature_detected!("fma") {
        return;
    }
    let triples = triples(bits, 700);
    let size = bits as usize / 8;
    let doubles: Vec<f64> = (0..triples.len())
        .map(|n| {
            let [a, b, c] = triples[n];
            let scale = 2f64.powi((n % 300) as i32 - 160);
            (1.0 + (a ^ b.rotate_left(17)) as f64 / u64::MAX as f64)
                * scale
                * if c & 1 == 0 { 1.0 } else { -1.0 }
        })
        .collect();
    let longs: Vec<i64> = triples
        .iter()
        .enumerate()
        .map(|(n, [a, b, _])| (a.rotate_left(40) ^ b) as i64 >> (n % 63))
        .collect();
    let column = |at: usize| -> Vec<u8> {
        triples.iter().flat_map(|triple| triple[at].to_le_bytes()[..size].to_vec()).collect()
    };
    for (name, mode) in DIRECTIONS {
        let spirv = arithmetic(bits, &format!("OpExecutionMode %k {name} {bits}"));
        let module = module(&spirv);
        let kind = match bits {
            16 => Elements::Halves,
            32 => Elements::Floats,
            _ => Elements::Doubles,
        };
        let inputs = vec![
            Input::Buffer(kind, vec![0; triples.len() * RESULTS * size]),
            Input::Buffer(kind, column(0)),
            Input::Buffer(kind, column(1)),
            Input::Buffer(kind, column(2)),
            Input::Buffer(
                Elements::Doubles,
                doubles.iter().flat_map(|d| d.to_le_bytes()).collect(),
            ),
            Input::Buffer(Elements::Bytes, longs.iter().flat_map(|l| l.to_le_bytes()).collect()),
        ];
        let run = (Grid::line(triples.len() as u64, 50), inputs);
        let got = &interpreted(&module, "k", &run).unwrap()[0];
        for (n, &triple) in triples.iter().enumerate() {
            let want = want(mode, triple, doubles[n], longs[n]);
            for (at, &want) in want.iter().enumerate() {
                let mut bytes = [0; 8];
                let from = (n * RESULTS + at) * size;
                bytes[..size].copy_from_slice(&got[from..from + size]);
                let got = u64::from_le_bytes(bytes);
                let same = got == want || is_nan(bits, got) && is_nan(bits, want);
                assert!(same, "{name} {bits}: result {at} of {triple:x?}: {got:x}, not {want:x}");
            }
        }
        // Compiled code does the same with each item, so some of them are enough.
        let inputs = run.1.iter().map(|input| match input {
            Input::Buffer(kind, bytes) => {
                let item = bytes.len() / triples.len();
                Input::Buffer(
                    *kind,
                    bytes.chunks_exact(item).step_by(9).flatten().copied().collect(),
                )
            }
            other => other.clone(),
        });
        let (inputs, items): (Vec<Input>, _) = (inputs.collect(), triples.len().div_ceil(9));
        same(&module, "k", Grid::line(items as u64, 50), &inputs, name);
    }
}

#[test]
fn halves_are_rounded_in_all_directions() {
    directions(16, |mode, triple, d, l| halves(mode, triple.map(|x| x as u16), d, l));
}

#[test]
fn floats_are_rounded_in_all_directions() {
    directions(32, |mode, triple, d, l| {
        floats(mode, triple.map(|x| f32::from_bits(x as u32)), d, l)
    });
}

#[test]
fn doubles_are_rounded_in_all_directions() {
    directions(64, |mode, triple, d, l| doubles(mode, triple.map(f64::from_bits), d, l));
}

/// Subnormal floats count as zeros, in what is read and in what is written; other instructions than those
/// that compute do not change them.
#[test]
fn subnormal_numbers_are_flushed() {
    let declarations = "
        %f = OpTypeFloat 32
        %pf = OpTypePointer CrossWorkgroup %f
        %zero = OpConstant %f 0
        %one = OpConstant %f 1
        %n1 = OpConstant %i64 1
        %n2 = OpConstant %i64 2
        %n3 = OpConstant %i64 3
        %n4 = OpConstant %i64 4
        %count = OpConstant %i64 5";
    let mut body = String::from(
        "%pa = OpInBoundsPtrAccessChain %pf %a %i
         %pb = OpInBoundsPtrAccessChain %pf %b %i
         %x = OpLoad %f %pa
         %y = OpLoad %f %pb
         %r0 = OpFMul %f %x %y
         %r1 = OpFSub %f %x %y
         %less = OpFOrdLessThan %bool %zero %x
         %r2 = OpSelect %f %less %one %zero
         %r3 = OpExtInst %f %cl ceil %y
         %r4 = OpFNegate %f %x
         %at = OpIMul %i64 %i %count
         %at0 = OpCopyObject %i64 %at
         %at1 = OpIAdd %i64 %at %n1
         %at2 = OpIAdd %i64 %at %n2
         %at3 = OpIAdd %i64 %at %n3
         %at4 = OpIAdd %i64 %at %n4\n",
    );
    for n in 0..5 {
        body += &format!(
            "%to{n} = OpInBoundsPtrAccessChain %pf %out %at{n}
             OpStore %to{n} %r{n}\n"
        );
    }
    let spirv = |notes| {
        let parameters = &[("out", "pf"), ("a", "pf"), ("b", "pf")];
        let (head, body) = (CAPABILITIES, body.as_str());
        Assembly { head, notes, declarations, parameters, body, ..Assembly::default() }.module()
    };
    let flush = |x: f32| if x.is_subnormal() { 0f32.copysign(x) } else { x };
    let keep = |x: f32| x;
    let tiny = f32::from_bits(3);
    let numbers = [1.0, -1.0, 0.0, tiny, -tiny, f32::MIN_POSITIVE, -f32::MIN_POSITIVE * 1.5, 0.25];
    let pairs: Vec<(f32, f32)> =
        numbers.iter().flat_map(|&a| numbers.iter().map(move |&b| (a, b))).collect();
    let modes: [(&str, &dyn Fn(f32) -> f32); 3] = [
        ("OpExecutionMode %k DenormFlushToZero 32", &flush),
        ("OpExecutionMode %k DenormPreserve 32", &keep),
        ("OpExecutionMode %k DenormFlushToZero 64", &keep),
    ];
    for (mode, f) in modes {
        let module = module(&spirv(mode));
        let bytes = |numbers: Vec<f32>| {
            Input::Buffer(Elements::Floats, numbers.iter().flat_map(|x| x.to_le_bytes()).collect())
        };
        let inputs = vec![
            bytes(vec![0.0; pairs.len() * 5]),
            bytes(pairs.iter().map(|pair| pair.0).collect()),
            bytes(pairs.iter().map(|pair| pair.1).collect()),
        ];
        let run = (Grid::line(pairs.len() as u64, 50), inputs);
        let want: Vec<u8> = pairs
            .iter()
            .flat_map(|&(a, b)| {
                let above = if f(a) > 0.0 { 1.0 } else { 0.0 };
                [f(f(a) * f(b)), f(f(a) - f(b)), above, f(b).ceil(), -a]
            })
            .flat_map(|x: f32| x.to_le_bytes())
            .collect();
        assert_eq!(interpreted(&module, "k", &run).unwrap()[0], want, "{mode}");
        same(&module, "k", run.0, &run.1, mode);
    }
}

/// A function that kernels with different modes call does in each what its modes ask for.
#[test]
fn a_function_has_the_modes_of_its_kernel() {
    let kernel = |name: &str| {
        format!(
            "%{name} = OpFunction %void None %fn
             %out{name} = OpFunctionParameter %pf
             %entry{name} = OpLabel
             %sum{name} = OpFunctionCall %f %outer %three
             OpStore %out{name} %sum{name} Aligned 4
             OpReturn
             OpFunctionEnd\n"
        )
    };
    let spirv = assemble(&format!(
        "OpCapability Kernel
         OpCapability Addresses
         OpCapability Int64
         {CAPABILITIES}
         OpMemoryModel Physical64 OpenCL
         OpEntryPoint Kernel %plain \"plain\"
         OpEntryPoint Kernel %up \"up\"
         OpEntryPoint Kernel %down \"down\"
         OpEntryPoint Kernel %zero \"zero\"
         OpExecutionMode %up RoundingModeRTPINTEL 32
         OpExecutionMode %down RoundingModeRTNINTEL 32
         OpExecutionMode %zero RoundingModeRTZ 32
         OpExecutionMode %zero RoundingModeRTE 64
         OpExecutionMode %zero SignedZeroInfNanPreserve 32
         OpExecutionMode %zero FloatingPointModeIEEEINTEL 32
         %void = OpTypeVoid
         %f = OpTypeFloat 32
         %pf = OpTypePointer CrossWorkgroup %f
         %one = OpConstant %f 1
         %three = OpConstant %f 3
         %fn = OpTypeFunction %void %pf
         %ff = OpTypeFunction %f %f
         %outer = OpFunction %f None %ff
         %a = OpFunctionParameter %f
         %first = OpLabel
         %q = OpFunctionCall %f %inner %a
         OpReturnValue %q
         OpFunctionEnd
         %inner = OpFunction %f None %ff
         %b = OpFunctionParameter %f
         %second = OpLabel
         %third = OpFDiv %f %one %b
         OpReturnValue %third
         OpFunctionEnd
         {}{}{}{}",
        kernel("plain"),
        kernel("up"),
        kernel("down"),
        kernel("zero")
    ));
    let module = module(&spirv);
    // A third is 0x3eaaaaaa and two thirds of the last place.
    for (name, want) in [
        ("plain", 0x3eaa_aaabu32),
        ("up", 0x3eaa_aaab),
        ("down", 0x3eaa_aaaa),
        ("zero", 0x3eaa_aaaa),
    ] {
        let run = (Grid::line(1, 1), vec![Input::Buffer(Elements::Floats, vec![0; 4])]);
        let got = &interpreted(&module, name, &run).unwrap()[0];
        assert_eq!(*got, want.to_le_bytes(), "{name}");
        same(&module, name, run.0, &run.1, name);
    }
}

/// What cannot be done is refused, by the name of what is asked for.
#[test]
fn modes_that_cannot_be_had_are_refused() {
    for (modes, what) in [
        ("OpExecutionMode %k FloatingPointModeALTINTEL 32", "alternative mode of floats"),
        ("OpExecutionMode %k RoundingModeRTZ 48", "floats of 48 bits, which do not exist"),
        (
            "OpExecutionMode %k RoundingModeRTZ 32
             OpExecutionMode %k RoundingModeRTE 32",
            "gives floats of 32 bits a second, different rounding mode",
        ),
        (
            "OpExecutionMode %k DenormPreserve 64
             OpExecutionMode %k DenormFlushToZero 64",
            "gives floats of 64 bits a second, different mode for subnormal numbers",
        ),
    ] {
        let error = parse(&arithmetic(32, modes), &[]).expect_err(modes).to_string();
        assert!(error.contains(what) && error.contains("OpExecutionMode"), "{error}");
    }
}
