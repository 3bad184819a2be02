// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every function of the maths library links and computes: compiled code is compared with the
//! interpreter, which calls other libraries. The library's own test covers accuracy.

use tally_compiler::interp::{self, Launch, Memory};
use tally_compiler::ir::{MathOp, Module, Op};

use crate::harness::{Grid, Kernel, buffer, clang, module, targets};

/// The functions in the order of the kernel's results.
const RESULTS: [&str; 56] = [
    "acos",
    "acosh",
    "acospi",
    "asin",
    "asinh",
    "asinpi",
    "atan",
    "atan2",
    "atanh",
    "atanpi",
    "atan2pi",
    "cbrt",
    "cos",
    "cosh",
    "cospi",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "exp10",
    "expm1",
    "fmod",
    "fract",
    "fract floor",
    "frexp",
    "frexp exponent",
    "hypot",
    "ilogb",
    "ldexp",
    "lgamma",
    "lgamma_r",
    "lgamma_r sign",
    "log",
    "log2",
    "log10",
    "log1p",
    "logb",
    "modf",
    "modf integer",
    "nextafter",
    "pow",
    "pown",
    "powr",
    "remainder",
    "remquo",
    "rootn",
    "rsqrt",
    "sin",
    "sincos",
    "sincos cosine",
    "sinh",
    "sinpi",
    "tan",
    "tanh",
    "tanpi",
    "tgamma",
];

/// A float of either width, in whose units errors are measured.
trait Number: Copy + Default {
    const NAME: &str;
    const BYTES: usize;
    /// Errors up to this number of units in the last place are accepted here.
    const LIMIT: f64;
    fn new(value: f64) -> Self;
    fn bytes(self) -> Vec<u8>;
    fn read(bytes: &[u8]) -> Self;
    fn value(self) -> f64;
    /// The distance between this number and the next.
    fn ulp(self) -> f64;
}

macro_rules! number {
    ($t:ty, $name:literal, $limit:literal) => {
        impl Number for $t {
            const NAME: &str = $name;
            const BYTES: usize = size_of::<$t>();
            const LIMIT: f64 = $limit;
            fn new(value: f64) -> Self {
                value as $t
            }
            fn bytes(self) -> Vec<u8> {
                self.to_le_bytes().to_vec()
            }
            fn read(bytes: &[u8]) -> Self {
                <$t>::from_le_bytes(bytes.try_into().expect("the size of a number"))
            }
            fn value(self) -> f64 {
                self.into()
            }
            fn ulp(self) -> f64 {
                let up = self.abs().next_up();
                if up.is_finite() { (up - self.abs()).into() } else { f64::MAX }
            }
        }
    };
}

number!(f32, "float", 16.0);
number!(f64, "double", 64.0);

/// Arguments: ordinary and special ones in all pairs.
fn arguments() -> Vec<(f64, f64)> {
    let mut values = vec![0.0, 0.1, 0.5, 0.9, 1.0, 1.3, 2.0, 2.5, 3.0, 5.0, 7.7, 20.0, 100.0];
    values.extend([1e-3, 1e-8, 1e4, 12345.6, f64::INFINITY, f64::NAN]);
    let negative: Vec<f64> = values.iter().map(|v: &f64| -v).collect();
    values.extend(negative);
    values.iter().flat_map(|&a| values.iter().map(move |&b| (a, b))).collect()
}

fn interpreted<T: Number>(module: &Module, name: &str, x: &[T], y: &[T]) -> Vec<T> {
    let mut memory = Memory::new();
    let bytes = |values: &[T]| values.iter().flat_map(|v| v.bytes()).collect::<Vec<u8>>();
    let out = 0x30_0000_0000;
    let buffers = [
        (0x10_0000_0000, bytes(x)),
        (0x20_0000_0000, bytes(y)),
        (out, vec![0; x.len() * RESULTS.len() * T::BYTES]),
    ];
    let mut args = Vec::new();
    for (address, bytes) in buffers {
        memory.map(address, bytes).expect("buffers do not overlap");
        args.push(interp::Arg::pointer(address));
    }
    let (index, _) = module.kernel(name).expect("the kernel is there");
    let launch = Launch::linear(x.len() as u64, 64);
    interp::run(module, index, &launch, &args, &mut memory).expect("the interpreter runs it");
    memory.buffer(out).expect("mapped").chunks(T::BYTES).map(T::read).collect()
}

fn agree<T: Number>() {
    let module = module(&clang::compile("maths.cl", &["-O2"]));
    let name = format!("maths_{}", T::NAME);
    let (mut x, mut y): (Vec<T>, Vec<T>) =
        arguments().iter().map(|&(x, y)| (T::new(x), T::new(y))).unzip();
    let n = x.len();
    let expected = interpreted(&module, &name, &x, &y);
    for target in targets() {
        let kernel = Kernel::new(&module, &name, &target);
        let mut out = vec![T::default(); n * RESULTS.len()];
        let args = vec![buffer(&mut x), buffer(&mut y), buffer(&mut out)];
        kernel.run(Grid::line(n as u64, 64), args);
        let mut wrong = Vec::new();
        for (k, (got, want)) in out.iter().zip(&expected).enumerate() {
            let (function, i) = (RESULTS[k / n], k % n);
            let (g, w) = (got.value(), want.value());
            let error = (g - w).abs() / want.ulp();
            let close = g == w || (g.is_nan() && w.is_nan()) || error <= T::LIMIT;
            if !close {
                wrong.push(format!(
                    "{function}({:e}, {:e}) = {g:e}, not {w:e}",
                    x[i].value(),
                    y[i].value()
                ));
            }
        }
        assert!(wrong.is_empty(), "{} for {}:\n{}", wrong.len(), target.name, wrong.join("\n"));
    }
}

#[test]
fn float_functions_agree_with_the_interpreter() {
    agree::<f32>();
}

#[test]
fn double_functions_agree_with_the_interpreter() {
    agree::<f64>();
}

#[test]
fn functions_of_vectors_compute_each_component() {
    let module = module(&clang::compile("maths.cl", &["-O0"]));
    for target in targets() {
        let mut x: Vec<f32> = (0..32).map(|i| i as f32 / 4.0 - 3.0).collect();
        let mut out = vec![0f32; 128];
        let kernel = Kernel::new(&module, "vector_maths", &target);
        kernel.run(Grid::line(8, 8), vec![buffer(&mut x), buffer(&mut out)]);
        for (i, &x) in x.iter().enumerate() {
            let got = |part: usize| out[i / 4 * 16 + part * 4 + i % 4];
            let power = x.powi(i as i32 % 4) + x.exp() + x.abs().sqrt();
            let exponent = if x == 0.0 { 0.0 } else { x.abs().log2().floor() + 1.0 };
            let fraction = x / exponent.exp2() * exponent;
            for (part, want) in [x.sin(), x.cos(), fraction, power].into_iter().enumerate() {
                let error = (got(part) - want).abs();
                assert!(
                    error <= 1e-5 * want.abs().max(1.0),
                    "{part} of {x}: {}, not {want}",
                    got(part)
                );
            }
        }
    }
}

/// A function in double precision.
type Reference = fn(f64) -> f64;

/// The tests of accuracy use single numbers; this one uses vectors. Roots have no form of their own.
#[test]
fn native_functions_are_as_good_in_vectors() {
    let module = module(&clang::compile("maths.cl", &["-O2"]));
    let numbers = [0.0, 1.0, f32::INFINITY, f32::NAN, -1.0, f32::NEG_INFINITY];
    let mut x: Vec<f32> = (1..=506).map(|i| (i as f32).powi(3) * 2e-7).chain(numbers).collect();
    let n = x.len();
    let functions: [(&str, Reference); 11] = [
        ("cos", f64::cos),
        ("exp", f64::exp),
        ("exp2", f64::exp2),
        ("exp10", |x| 10f64.powf(x)),
        ("log", f64::ln),
        ("log2", f64::log2),
        ("log10", f64::log10),
        ("powr", |x| x.powf(1.5)),
        ("rsqrt", |x| 1.0 / x.sqrt()),
        ("sin", f64::sin),
        ("tan", f64::tan),
    ];
    for target in targets() {
        let mut out = vec![0f32; n * functions.len()];
        let kernel = Kernel::new(&module, "native_maths", &target);
        kernel.run(Grid::line(n as u64, 64), vec![buffer(&mut x), buffer(&mut out)]);
        for ((name, function), got) in functions.iter().zip(out.chunks(n)) {
            for (&x, &got) in x.iter().zip(got) {
                // Rust defines a power of a negative infinity.
                let undefined = *name == "powr" && x < 0.0;
                let want = if undefined { f32::NAN } else { function(x.into()) as f32 };
                let close = (got - want).abs() <= want.abs() * 2f32.powi(-13);
                let same = got == want || (got.is_nan() && want.is_nan());
                let flushed = want.abs() < f32::MIN_POSITIVE && got == 0.0;
                assert!(
                    close || same || flushed,
                    "{name}({x:e}) = {got:e}, not {want:e}, for {}",
                    target.name
                );
            }
        }
    }
}

/// The sine and the cosine of one number are computed together, unless they are approximate.
#[test]
fn a_sine_and_a_cosine_are_one_operation() {
    let module = crate::widen::wide(
        "kernel void turn(global float *x, global double *y) {
           int i = get_global_id(0);
           float a = x[i], b = a * 2;
           x[i] = sin(a) + cos(a) * cos(b) + native_sin(b) + native_cos(b);
           y[i] = cos(y[i] * 3) + sin(y[i] * 3);
         }",
    );
    let blocks = module.functions[module.kernels[0].function].blocks.iter();
    let operations: Vec<MathOp> = blocks
        .flat_map(|(_, block)| &block.insts)
        .filter_map(|inst| match inst.op {
            Op::Math(op, _) => Some(op),
            _ => None,
        })
        .collect();
    let count = |op| operations.iter().filter(|&&other| other == op).count();
    assert_eq!([MathOp::Sincos, MathOp::Sin, MathOp::Cos].map(count), [2, 1, 2], "{operations:?}");
}
