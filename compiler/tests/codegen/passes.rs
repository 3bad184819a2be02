// SPDX-License-Identifier: MIT OR Apache-2.0
//! The passes before widening: the interpreter gets the same results after each of them, and golden
//! texts show readers the effect of each on a small kernel.

use std::collections::BTreeSet;
use std::fmt::Write;

use tally_compiler::check;
use tally_compiler::ir::{Dominators, ENTRY, Function, Inst, Loops, Module, Op};
use tally_compiler::optimise::{self, ORDER, Pass};
use tally_compiler::widen;

use crate::diff::{Input, Run, interpreted, same};
use crate::golden::golden;
use crate::harness::clang::Assembly;
use crate::harness::{Grid, clang, module};
use crate::programs::{Groups, difference_of};
use crate::widen::{int, ints};

/// A limit above the weight of all kernels of the tests.
const LIMIT: usize = 1 << 20;

/// The module with its kernel's function replaced, which must pass the checks.
fn with_function(module: &Module, name: &str, function: &Function) -> Result<Module, String> {
    let mut module = module.clone();
    let id = module.kernel(name).expect("the kernel is there").1.function;
    module.functions[id] = function.clone();
    check::check(&mut module).map_err(|failure| failure.to_string())?;
    Ok(module)
}

/// Compares the interpreter's results of a kernel before the passes and after each of them.
pub fn agree_after_each(module: &Module, name: &str, runs: &[Run]) -> Result<(), String> {
    let (_, kernel) = module.kernel(name).expect("the kernel is there");
    let Some((part, mut function)) = optimise::inlined(module, kernel, LIMIT) else {
        return Ok(());
    };
    let all = |module: &Module| -> Result<Vec<_>, String> {
        runs.iter().map(|run| interpreted(module, name, run)).collect()
    };
    let before = all(module)?;
    let kernels = vec![kernel.clone()];
    let mut module = part;
    module.kernels = kernels;
    for (number, pass) in ORDER.into_iter().enumerate() {
        let last = function.clone();
        pass.run(&mut module, &mut function);
        if function == last {
            continue;
        }
        let after = with_function(&module, name, &function).and_then(|module| all(&module));
        let place = format!("after pass {number}, {:?}", pass.name());
        let after = after.map_err(|how| format!("{place}: {how}"))?;
        if after != before {
            return Err(format!("{place} the buffers differ:\n{}", text(&module, name, &function)));
        }
    }
    Ok(())
}

/// The text of a kernel with this function as its body.
fn text(module: &Module, name: &str, function: &Function) -> String {
    let mut module = module.clone();
    let id = module.kernel(name).expect("the kernel is there").1.function;
    module.functions[id] = function.clone();
    module.function_text(id).to_string()
}

/// A kernel of OpenCL C at one of clang's levels before a pass, after the earlier passes, and after it.
fn golden_of(pass: Pass, source: &str, level: &str) {
    let mut module = module(&clang::compile_text(source, &[level]));
    let kernel = module.kernels[0].clone();
    let (_, mut function) = optimise::inlined(&module, &kernel, LIMIT).expect("it is small");
    let mut out = String::new();
    for other in ORDER.into_iter().take_while(|&other| other != pass) {
        other.run(&mut module, &mut function);
    }
    let _ = writeln!(out, "before:\n{}", text(&module, &kernel.name, &function));
    pass.run(&mut module, &mut function);
    let _ = write!(out, "after:\n{}", text(&module, &kernel.name, &function));
    golden(&format!("pass-{}.txt", pass.name()), &out);
}

#[test]
fn copies_of_structures_are_loads_and_stores() {
    let source = "typedef struct { float a; char b; int c; } parts;
        kernel void assign(global parts *p) {
          parts own = p[0];
          parts other = own;
          p[1] = other;
        }";
    golden_of(Pass::Copies, source, "-O0");
}

#[test]
fn private_variables_are_values() {
    let source = "kernel void norm(global float *p, int n) {
          float4 v = 0.0f;
          union { uint whole; uchar bytes[4]; } u;
          u.whole = n;
          for (int i = 0; i < n; i++)
            v.y += p[i];
          u.bytes[2] = 7;
          p[0] = v.y + u.whole;
        }";
    golden_of(Pass::Registers, source, "-O0");
}

#[test]
fn what_is_known_is_not_computed() {
    let source = "kernel void known(global int *p, int n) {
          int4 v = (int4)(n, n + 1, 2, 3);
          int k = 3;
          if (k == 3)
            p[get_global_id(0)] = v.y + (n + 1) + v.z * 1 + (p[get_global_id(0)] & -1);
          else
            p[0] = 0;
        }";
    golden_of(Pass::Simplify, source, "-O0");
}

#[test]
fn components_of_places_are_computed_one_by_one() {
    let source = "kernel void walk(global int *p, int w, int n, int2 by) {
          int2 at = (int2)(get_global_id(0), get_global_id(1));
          int2 to = at + (int2)(1, -1);
          int sum = p[to.y * w + to.x];
          for (int i = 0; i < n; i++) {
            at += by;
            sum += p[at.y * w + at.x];
          }
          p[0] = sum;
        }";
    golden_of(Pass::Components, source, "-O2");
}

/// Vectors of 2, 3 and 4 numbers of 32 and 64 bits: chosen, compared, shortened, shuffled, kept by loops that exchange their
/// components, and used whole besides.
#[test]
fn components_are_those_of_the_vectors() {
    let bodies = [
        "int2 b = a + (int2)(1, -1), c = b.yx * a; s += c.x - 3 * c.y;",
        "int3 b = (int3)(a, i) << 2, c = b.zxy ^ (int3)(7, i, 9); s += c.x * 3 + c.y * 5 + c.z;",
        "int4 b = (int4)(a, -a), c = b > b.wzyx ? b - 5 : b * 3; s += c.x ^ c.y ^ (c.z + c.w);",
        "long4 b = convert_long4((int4)(a, a.yx)) * 77777L; int4 c = convert_int4(b >> 3); s += c.x + c.y - c.w;",
        "int2 b = i > 20 ? a : a.yx; s += b.x * 2 - b.y;",
        "for (int k = 0; k < 5; k++) { a = a.yx + (int2)(k, 2); s += a.x * k; } s += a.y;",
        "int4 b = (int4)(a, 1, 2); for (int k = 0; k < i % 7; k++) b = b.wxyz + k; s += b.x + 2 * b.z;",
        "int2 b = max(min(a + i, 40), -3); out4[i] = (int4)(b, ~b); s += b.x * b.y;",
        "uint4 b = as_uint4((int4)(a, a)) % (uint4)(7, 9, 11, 13); s += b.x + b.y * 16 + b.w * 256;",
    ];
    let kernels = bodies.iter().enumerate().map(|(number, body)| {
        format!(
            "kernel void k{number}(global int *out, global int4 *out4, global const int2 *in) {{
               int i = get_global_id(0), s = i; int2 a = in[i];
               {body}
               out[i] = s;
             }}"
        )
    });
    let text: String = kernels.collect();
    for level in ["-O0", "-O2"] {
        let module = module(&clang::compile_text(&text, &[level, "-w"]));
        for (number, body) in bodies.iter().enumerate() {
            let args =
                [ints(64, |_| 0), ints(64 * 4, |_| 0), ints(64 * 2, |i| i * 7_919 % 97 - 40)];
            let grid = Grid::line(64, 32);
            agree_after_each(&module, &format!("k{number}"), &[(grid, args.to_vec())])
                .unwrap_or_else(|how| panic!("{body} at {level}: {how}"));
            same(&module, &format!("k{number}"), grid, &args, body);
        }
    }
}

/// Products in twice as many bits, of which one half is used: of numbers with and without signs, and of constants that
/// fit half of the bits and that do not.
#[test]
fn halves_of_wide_products_are_products() {
    let products = [
        ("(uint)((ulong)(uint)a * (uint)b >> 32)", "umul_hi"),
        ("(uint)((ulong)(uint)a * 0xd2511f53u >> 32)", "umul_hi"),
        ("(int)((long)a * b >> 32)", "smul_hi"),
        ("(int)((long)a * -77 >> 32)", "smul_hi"),
        ("(uint)((ulong)((long)a * b) >> 32)", "smul_hi"),
        ("(int)((long)a * b)", "mul"),
        ("(uint)((ulong)(uint)a * 0xffffffffu)", "mul"),
        ("(int)((long)a * (uint)b >> 32)", ""),
        ("(uint)((ulong)(uint)a * 0x1d2511f53ul >> 32)", ""),
        ("(uint)((ulong)(uint)a * (uint)b >> 31)", ""),
        ("(int)((long)a * 0x80000000l >> 32)", ""),
    ];
    for (product, name) in products {
        let source = format!(
            "kernel void k(global int *out, global const int *in) {{
               int i = get_global_id(0), a = in[i], b = in[i ^ 1];
               out[i] = {product};
             }}"
        );
        let module = module(&clang::compile_text(&source, &["-O0"]));
        let kernel = &module.kernels[0];
        let (mut part, mut function) =
            optimise::inlined(&module, kernel, LIMIT).expect("it is small");
        part.kernels = vec![kernel.clone()];
        for pass in ORDER {
            pass.run(&mut part, &mut function);
        }
        let text = text(&part, "k", &function);
        let wide = text.lines().any(|it| it.contains(": i64 = mul"));
        assert_eq!(wide, name.is_empty(), "{product}:\n{text}");
        if !name.is_empty() {
            assert!(text.contains(&format!(": i32 = {name} ")), "{product}:\n{text}");
        }
        let numbers = [0, 1, -1, 3, i32::MAX, i32::MIN, 0x5555_5555, -77, 1 << 16, 0x1234_5678];
        let pairs = |i: i32| numbers[if i % 2 == 0 { i / 20 } else { i / 2 % 10 } as usize];
        let args = [ints(200, |_| 0), ints(200, pairs)];
        same(&module, "k", Grid::line(200, 32), &args, product);
    }
}

#[test]
fn short_branches_are_choices() {
    let source = "kernel void depth(global int *out, global const uchar *text) {
          size_t i = get_global_id(0);
          int d = 0, most = 0;
          for (int k = 0; k < 64; k++) {
            uchar c = text[i * 64 + k];
            if (c == '(')
              d++;
            else if (c == ')')
              d--;
            most = max(most, d);
          }
          out[i] = most;
        }";
    golden_of(Pass::Selects, source, "-O2");
}

/// Branches of all forms: of one way, two and several, within each other, behind each other, at the end of a loop; with
/// more in them than is computed always, and with what must not be.
#[test]
fn choices_are_those_of_the_branches() {
    let bodies = [
        "if (x > 3) s += x; else s -= 2 * x;",
        "if (x > 3) s += x;",
        "if (x > 3) { if (x > 9) s += 7; else s ^= x; } else s -= 2;",
        "switch (x & 7) { case 0: s += 3; break; case 3: s ^= x; break; case 6: s = x; break; default: s--; }",
        "switch (x & 7) { case 0: case 5: s += 3; break; case 3: s ^= x; break; }",
        "switch (x & 7) { case 1: s += 3; case 2: s *= 5; break; case 4: s = -s; }",
        "if (x > 3 || s < 5) { s += x; t ^= s; } else t -= x;",
        "if (x) s = s / x;",
        "if (x > 5) s += in[x & 15];",
        "if (x > 5) s = s * 3 + x * 5 - (s ^ x) + (s << 2) - (x >> 1) + (s & x) * 7 + t;",
        "for (int j = 0; j < (x & 3); j++) { if (s & 1) s = s * 3 + 1; else s >>= 1; }",
        "if (x > 20) break; if (s & 1) t++;",
        "if (n > 4) s += x; else t += x;",
        "float f = x; if (f > 3.5f) f = f * f; else f = -f; s += (int)f;",
    ];
    let kernels = bodies.iter().enumerate().map(|(number, body)| {
        format!(
            "kernel void k{number}(global int *out, global const int *in, int n) {{
               int i = get_global_id(0), s = i, t = 1;
               for (int k = 0; k < 8; k++) {{ int x = in[i * 8 + k] - 4; {body} }}
               out[i] = s * 31 + t;
             }}"
        )
    });
    let text: String = kernels.collect();
    for level in ["-O0", "-O1", "-O2"] {
        let module = module(&clang::compile_text(&text, &[level, "-w"]));
        for (number, body) in bodies.iter().enumerate() {
            let args = [ints(64, |_| 0), ints(64 * 8, |i| i * 37 % 29), int(number as i32)];
            same(&module, &format!("k{number}"), Grid::line(64, 32), &args, body);
        }
    }
}

#[test]
fn counted_loops_over_private_arrays_are_their_turns() {
    let source = "constant int weights[3] = {2, 3, 5};
        kernel void turns(global int *p) {
          int a[3];
          for (int i = 0; i < 3; i++)
            a[i] = p[i] * weights[i];
          p[0] = a[2] - a[0];
        }";
    golden_of(Pass::Unroll, source, "-O0");
}

/// Loops over a private array with each form of end, and loops that the pass leaves.
const LOOPS: &str = "
kernel void loops(global int *io, int n) {
  int i = get_global_id(0), x = io[i], a[8], s = 0, k;
  for (k = 0; k < 8; k++)
    a[k] = x >> k;
  s += k;
  for (k = 7; k >= 0; k -= 3)
    a[k] += k;
  s = s * 31 + k;
  k = 1;
  do {
    a[k] ^= x + k;
    k = k * 2;
  } while (k != 8);
  for (uchar b = 250; b != 2; b++)
    s += a[b & 7];
  for (ulong c = 0; c < 8; c++) {
    if ((a[c] & 1) == 0)
      continue;
    s = s * 31 + a[c];
  }
  for (int r = 0; r < 4; r++)
    for (int c = 0; c <= r; c++)
      a[r + c] += a[c] * r;
  int before = 1, now = 1;
  for (int j = 0; j < 6; j++) {
    int next = before + now + a[j];
    before = now;
    now = next;
  }
  s = s * 31 + now - before;
  for (int j = 0; j < 8; j++) {
    if (a[j] == x)
      break;
    s += a[j] * j;
  }
  for (int j = 0; j < n; j++)
    s = s * 31 + a[j & 7];
  for (int j = 0; j < 8; j++) {
    for (int m = 0; m < (x & 3); m++)
      a[j] += m * s;
    s -= a[j];
  }
  for (int j = 0; j < 0; j++)
    a[j] = 0;
  for (int j = 0; j < 8; j++)
    s = s * 31 + a[j];
  int y = i, at = s, turns = 0;
  for (; turns < 1; turns++)
    if (y < n) {
      s ^= at;
      y++;
      at += x;
    }
  do {
    s = s * 31 + y;
    at ^= y;
  } while (++turns < 1);
  s = s * 31 + at + turns;
  io[i] = s;
}";

/// Loops with any form of counting are unrolled.
#[test]
fn unrolled_loops_do_the_same() {
    let bytes = (0..100).flat_map(|i: i32| (i.wrapping_mul(0x3c6e_f35f) >> (i % 29)).to_le_bytes());
    let count = Input::Value(11i32.to_le_bytes().to_vec());
    let run = (Grid::line(100, 20), vec![Input::bytes(bytes.collect()), count]);
    for level in ["-O0", "-O1", "-O2"] {
        let module = module(&clang::compile_text(LOOPS, &[level]));
        agree_after_each(&module, "loops", std::slice::from_ref(&run)).expect(level);
        same(&module, "loops", run.0, &run.1, level);
    }
}

/// A cosine transform, and functions of one and two results, of floats, doubles and vectors.
const CONSTANTS: &str = "
kernel void constants(global float *io, global double *wide) {
  int i = get_global_id(0);
  float x[8], sum = 0;
  for (int k = 0; k < 8; k++)
    x[k] = io[i] * k;
  for (int u = 0; u < 4; u++)
    for (int k = 0; k < 8; k++)
      sum += x[k] * cospi((2 * k + 1) * u / 16.0f);
  for (int k = 1; k < 5; k++)
    sum += io[i] * exp(-k * k / 8.0f) / tgamma((float)k);
  float c, s = sincos(0.25f, &c), w;
  int e;
  float2 v = pow((float2)(2, 3), (float2)(0.5f, 4));
  sum += s * c + fract(2.75f, &w) * w + frexp(40.0f, &e) * e + v.x * v.y + ilogb(77.0f);
  io[i] = sum;
  wide[i] = log(3.0) * sqrt(2.0) + fmod(7.5, 2.0) + hypot(3.0, 4.0) + pown(1.5, 3);
}";

/// Functions of constants that OpenCL C compilers do not fold, since they do not know the device's functions.
#[test]
fn functions_of_constants_are_numbers() {
    let doubles = (0..32u64).flat_map(u64::to_le_bytes).collect();
    let floats = (0..32).flat_map(|i: i32| (i as f32 / 8.0).to_le_bytes()).collect();
    let run = (Grid::line(32, 16), vec![Input::bytes(floats), Input::bytes(doubles)]);
    for level in ["-O0", "-O2"] {
        let mut module = module(&clang::compile_text(CONSTANTS, &[level]));
        agree_after_each(&module, "constants", std::slice::from_ref(&run)).expect(level);
        let kernel = module.kernels[0].clone();
        let (_, mut function) = optimise::inlined(&module, &kernel, LIMIT).expect("it is small");
        ORDER.into_iter().for_each(|pass| pass.run(&mut module, &mut function));
        let insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
        let left: Vec<&Op> =
            insts.map(|inst| &inst.op).filter(|op| matches!(op, Op::Math(..))).collect();
        assert!(left.is_empty(), "{level}: {left:?}");
    }
}

/// Functions of what all items of a row share move in front of tests of ids, but not of others.
#[test]
fn functions_of_shared_numbers_are_in_front_of_tests() {
    let bodies = [
        (true, "if (x >= n) return; out[x] = in[x] * pow(2.0f, f);"),
        (true, "if (x < n && y < n) out[x] = exp(f * f / 3) * x;"),
        (true, "if (x >= n) return; out[x] = in[x] * exp(-f * y);"),
        (true, "if (x >= n) return; out[x] = sin(cos(f)) + x;"),
        (false, "if (n == 3) out[x] = exp(f);"),
        (false, "if (x == n) out[x] = exp(f);"),
        (false, "if (x < n) out[x] = exp(f * x);"),
        (false, "if (x < n) out[x] = exp(in[n]);"),
        (false, "if (x < n) out[x] = 1; barrier(CLK_GLOBAL_MEM_FENCE); if (x < n) in[x] = exp(f);"),
    ];
    for (moves, body) in bodies {
        let text = format!(
            "kernel void k(global float *out, global float *in, float f, int n) {{
               int x = get_global_id(0), y = get_global_id(1); {body} }}"
        );
        let mut module = module(&clang::compile_text(&text, &["-O2", "-w"]));
        let runs: Vec<Run> = [0, 3, 21, 40]
            .map(|n| {
                let floats =
                    |by: i32| (0..64).flat_map(|i| (i as f32 / by as f32).to_le_bytes()).collect();
                let f = Input::Value(1.5f32.to_le_bytes().to_vec());
                let args = vec![Input::bytes(floats(3)), Input::bytes(floats(7)), f, int(n)];
                (Grid::line(32, 16), args)
            })
            .into();
        agree_after_each(&module, "k", &runs).expect(body);
        let kernel = module.kernels[0].clone();
        let (_, mut function) = optimise::inlined(&module, &kernel, LIMIT).expect("it is small");
        ORDER.into_iter().for_each(|pass| pass.run(&mut module, &mut function));
        let maths = |insts: &[Inst]| insts.iter().any(|inst| matches!(inst.op, Op::Math(..)));
        assert!(function.blocks.iter().any(|(_, block)| maths(&block.insts)), "{body}");
        assert_eq!(maths(&function.blocks[ENTRY].insts), moves, "{body}");
    }
}

/// The number of loops left in a kernel.
fn loops_left(body: &str) -> usize {
    let source = format!(
        "constant int table[4] = {{3, 1, 4, 1}};
         kernel void k(global int *p, int n) {{ int a[300]; local int l[4]; {body} p[0] = a[n & 3]; }}"
    );
    let mut module = module(&clang::compile_text(&source, &["-O0"]));
    let kernel = module.kernels[0].clone();
    let (_, mut function) = optimise::inlined(&module, &kernel, LIMIT).expect("it is small");
    ORDER.into_iter().for_each(|pass| pass.run(&mut module, &mut function));
    let predecessors = function.predecessors();
    Loops::of(&Dominators::of(&function, &predecessors), &predecessors).all.len()
}

#[test]
fn loops_without_gain_or_bound_are_left() {
    // `a` is too large for values; `b` is not.
    assert_eq!(loops_left("for (int i = 0; i < 60; i++) a[i] = n * i ^ n;"), 1);
    assert_eq!(loops_left("int b[4]; for (int i = 0; i < 4; i++) b[i] = i; p[2] = b[1];"), 0);
    assert_eq!(loops_left("int b[4]; for (int i = 0; i < n; i++) b[i] = i; p[2] = b[1];"), 1);
    assert_eq!(loops_left("for (int i = 0; i < 4; i++) p[i] += table[i];"), 0);
    assert_eq!(loops_left("for (int i = 0; i < 60; i++) p[i] += i;"), 1);
    // Short ones are their turns, but for those that others are in.
    assert_eq!(loops_left("for (int i = 0; i < 4; i++) p[i] += i;"), 0);
    let inner = "for (int i = 0; i < 4; i++) for (int k = 0; k < n; k++) p[k] += i;";
    assert_eq!(loops_left(inner), 2);
    assert_eq!(loops_left("for (int i = 0; i < 4; i++) atomic_add(p + i, n);"), 1);
    assert_eq!(loops_left("for (int i = 0; i < 1; i++) p[n] += 1;"), 0);
    assert_eq!(loops_left("for (int i = 0; i < 60; i++) p[n] += 1;"), 1);
    assert_eq!(loops_left("int i = 0; do p[n] += 1; while (++i < 1);"), 0);
    assert_eq!(loops_left("int i = 0; do p[n] += 1; while (++i < 60);"), 1);
    assert_eq!(loops_left("for (int i = 0; i < 1; i++) { barrier(1); p[n] += 1; }"), 1);
    assert_eq!(loops_left("for (int i = 0; i < 4; i++) p[i] += exp(i / 3.0f);"), 0);
    assert_eq!(loops_left("for (int i = 0; i < 4; i++) p[i] += exp(i / (float)n);"), 0);
    assert_eq!(loops_left("for (int i = 0; i < 60; i++) p[i] += exp(p[i] / (float)n);"), 1);
    assert_eq!(loops_left("for (int i = 0; i < 4; i++) { l[i] = table[i]; barrier(1); }"), 1);
    assert_eq!(loops_left("int b[99]; for (int i = 0; i < 99; i++) b[i] = i; p[2] = b[n & 1];"), 1);
    assert_eq!(
        loops_left(
            "int b[9]; for (int i = 0; i < 3; i++) for (int j = 0; j < 3; j++) b[i * 3 + j] = p[j]; p[2] = b[1];"
        ),
        0
    );
    assert_eq!(
        loops_left("for (int i = 0; i < 4; i++) { if (p[i] == n) break; p[i] = table[i]; }"),
        1
    );
}

/// Each pass preserves the meaning of the random programs, alone.
#[test]
fn random_programs_mean_the_same_after_each_pass() {
    let with = |module: &Module, runs: &[Run]| agree_after_each(module, "random", runs);
    for seed in 100..108 {
        let groups = if seed % 2 == 0 { Groups::Rows } else { Groups::Uneven };
        if let Some(how) = difference_of(seed, groups, &BTreeSet::new(), &with) {
            panic!("seed {seed}: {how}");
        }
    }
}

/// Operations that are similar but not the same, and operations that change nothing.
const ALIKE: &str = "
kernel void alike(global int *io) {
  int i = get_global_id(0), x = io[i], y = io[i + 64], s = 0;
  s = s * 31 + (x - y);
  s = s * 31 + (y - x);
  s = s * 31 + (x << (y & 7));
  s = s * 31 + (y << (x & 7));
  s = s * 31 + (x < y) + 2 * (y < x);
  s = s * 31 + x / ((y & 15) + 1);
  s = s * 31 + (int)((uint)x / ((y & 15) + 1));
  s = s * 31 + (x + 0) + (x ^ 0) + (x | 0) * 1 + (x & -1) + (0 + x);
  s = s * 31 + (x - x) + (x ^ x) + (x & x) + (x * 0);
  s = s * 31 + (int)(char)x + (int)(uchar)x + (int)(short)(long)x;
  int2 v = (int2)(x, y), w = v.yx;
  s = s * 31 + w.x - v.x;
  bool less = x < y;
  s = s * 31 + (less != 0) + 2 * (less == 0) + 4 * !!less;
  for (int k = 0; k < 3; k++) {
    if (k == 1) continue;
    int t = x * k + y;
    s = s * 31 + (less ? t : x * k - y);
  }
  io[i] = s;
}";

#[test]
fn what_is_alike_is_not_taken_for_the_same() {
    let bytes = (0..128).flat_map(|i: i32| (i.wrapping_mul(0x3c6e_f35f) >> (i % 29)).to_le_bytes());
    let run = (Grid::line(64, 16), vec![Input::bytes(bytes.collect())]);
    for level in ["-O0", "-O1"] {
        let module = module(&clang::compile_text(ALIKE, &[level]));
        agree_after_each(&module, "alike", std::slice::from_ref(&run)).expect(level);
    }
}

/// Clang computes the place of `t[y]` in both arms of the branch. It is one for all items of a row, unless the arms
/// only look alike.
#[test]
fn what_both_arms_compute_is_computed_behind_them() {
    let source = "kernel void both(global int *out, global const int *in, local int *t) {
           int x = get_local_id(0), y = get_local_id(1);
           if (x == 0) t[y] = in[y + 1];
           barrier(CLK_LOCAL_MEM_FENCE);
           out[get_global_linear_id()] = 3 * t[y] + x;
         }
         kernel void other(global int *out, global const int *in, local int *t) {
           int x = get_local_id(0), y = get_local_id(1);
           long at;
           if (x == 0) {
             t[y] = in[y + 1];
             at = (long)y << 2;
           } else
             at = (long)y << 1;
           barrier(CLK_LOCAL_MEM_FENCE);
           out[get_global_linear_id()] = 3 * t[y] + (int)at;
         }";
    let module = module(&clang::compile_text(source, &["-O2"]));
    for (kernel, phis) in module.kernels.iter().zip([0, 1]) {
        let (mut part, mut function) =
            optimise::inlined(&module, kernel, LIMIT).expect("it is small");
        ORDER.into_iter().for_each(|pass| pass.run(&mut part, &mut function));
        let insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
        let found = insts.filter(|inst| matches!(inst.op, Op::Phi(_))).count();
        assert_eq!(found, phis, "{}", kernel.name);
        let ints = |n: i32| Input::bytes((0..n).flat_map(|i| (i * 7919).to_le_bytes()).collect());
        let grid = Grid { offset: [0; 3], global: [32, 16, 1], group: [16, 8, 1] };
        same(&module, &kernel.name, grid, &[ints(512), ints(17), Input::Local(32)], "");
    }
}

/// A varying index, a volatile access, or an address that is stored keeps a variable in memory.
#[test]
fn some_variables_stay_in_memory() {
    let stays = |body: &str| {
        let source = format!("kernel void k(global int *p, int n) {{ {body} }}");
        let mut module = module(&clang::compile_text(&source, &["-O0"]));
        let kernel = module.kernels[0].clone();
        let (_, mut function) = optimise::inlined(&module, &kernel, LIMIT).expect("it is small");
        ORDER.into_iter().for_each(|pass| pass.run(&mut module, &mut function));
        function.variables.len()
    };
    assert_eq!(stays("int a[4] = {1, 2, 3, 4}; p[0] = a[n & 3];"), 1);
    assert_eq!(stays("volatile int a = n; p[0] = a;"), 1);
    assert_eq!(stays("int a = n; int *b[2] = {&a, &a}; p[0] = *b[n & 1];"), 2);
    assert_eq!(stays("int a[4] = {1, 2, 3, 4}; p[0] = a[2] + a[n - n];"), 0);
    assert_eq!(stays("struct { int a; float b[3]; } s; s.b[1] = n; s.a = 1; p[0] = s.b[1];"), 0);
}

/// Variables whose initial value has other parts than the reads: Intel's SYCL compiler makes them of
/// `memset` and of copies of tables.
#[test]
fn initial_values_are_read_in_other_parts() {
    let spirv = Assembly {
        head: "OpCapability Int8\nOpCapability Int16\nOpCapability Float64",
        declarations: "%i8 = OpTypeInt 8 0
            %i16 = OpTypeInt 16 0
            %f64 = OpTypeFloat 64
            %c4 = OpConstant %i32 4
            %c8 = OpConstant %i32 8
            %at2 = OpConstant %i64 2
            %size = OpConstant %i64 8
            %c32 = OpConstant %i64 32
            %b1 = OpConstant %i8 1
            %b2 = OpConstant %i8 2
            %b250 = OpConstant %i8 250
            %bytes = OpTypeArray %i8 %c8
            %halves = OpTypeArray %i16 %c4
            %nothing = OpConstantNull %bytes
            %table = OpConstantComposite %bytes %b1 %b2 %b250 %b1 %b1 %b2 %b2 %b250
            %pbytes = OpTypePointer Function %bytes
            %phalves = OpTypePointer Function %halves
            %phalf = OpTypePointer Function %i16
            %pf64 = OpTypePointer Function %f64
            %pbyte = OpTypePointer Function %i8",
        variables: "%zeros = OpVariable %pbytes Function %nothing
            %words = OpVariable %pbytes Function %table
            %short = OpVariable %pbytes Function %table
            %own = OpVariable %phalves Function",
        parameters: &[("out", "p")],
        body: "%pz = OpBitcast %pf64 %zeros
            %pw = OpBitcast %pf64 %words
            %ps = OpBitcast %pbyte %short
            %po = OpBitcast %pbyte %own
            OpCopyMemorySized %po %ps %size Aligned 2
            %z = OpLoad %f64 %pz Aligned 8
            %w = OpLoad %f64 %pw Aligned 8
            %first = OpBitcast %phalf %own
            %third = OpPtrAccessChain %phalf %first %at2
            %h = OpLoad %i16 %third Aligned 2
            %zi = OpBitcast %i64 %z
            %wi = OpBitcast %i64 %w
            %hi = OpUConvert %i64 %h
            %a = OpIAdd %i64 %wi %hi
            %b = OpBitwiseXor %i64 %a %zi
            %y = OpUConvert %i32 %b
            %top = OpShiftRightLogical %i64 %b %c32
            %y1 = OpUConvert %i32 %top
            %to = OpPtrAccessChain %p %out %i
            %sum = OpIAdd %i32 %y %y1
            OpStore %to %sum Aligned 4",
        ..Default::default()
    }
    .module();
    let run = (Grid::line(32, 16), vec![Input::bytes(vec![0; 128])]);
    let module = module(&spirv);
    agree_after_each(&module, "k", std::slice::from_ref(&run)).expect("the same");
    same(&module, "k", run.0, &run.1, "as it is");
    let table = u64::from_le_bytes([1, 2, 250, 1, 1, 2, 2, 250]).wrapping_add(0x201);
    let sum = (table as u32).wrapping_add((table >> 32) as u32);
    let after = interpreted(&module, "k", &run).expect("it is valid");
    assert_eq!(after[0], sum.to_le_bytes().repeat(32));
}

/// Arrays whose elements move by one: clang turns such loops into copies of overlapping ranges.
const SHIFTS: &str = "
kernel void shifts(global int *io) {
  int i = get_global_id(0), up[8], down[8], far[70];
  for (int k = 0; k < 8; k++)
    up[k] = down[k] = io[(i + k) % 64];
  for (int k = 0; k < 70; k++)
    far[k] = i * k;
  for (int turn = 0; turn < 5; turn++) {
    for (int k = 7; k > 0; k--)
      up[k] = up[k - 1];
    up[0] = down[3] + turn;
    for (int k = 0; k < 7; k++)
      down[k] = down[k + 1];
    down[7] = up[5] * turn;
    for (int k = 69; k > 0; k--)
      far[k] = far[k - 1];
    far[0] = up[2];
  }
  int s = 0;
  for (int k = 0; k < 8; k++)
    s = s * 31 + up[k] - down[k] + far[k * 9 + (up[0] & 1)];
  io[64 + i] = s;
}";

#[test]
fn overlapping_copies_read_before_they_write() {
    let bytes: Vec<u8> = (0..128_i32).flat_map(|i| (i * i - 700).to_le_bytes()).collect();
    let run = (Grid::line(64, 32), vec![Input::bytes(bytes)]);
    let module = module(&clang::compile_text(SHIFTS, &["-O2"]));
    let copies = |insts: &[Inst]| insts.iter().any(|inst| matches!(inst.op, Op::Copy(..)));
    let function = &module.functions[module.kernels[0].function];
    assert!(
        function.blocks.iter().any(|(_, block)| copies(&block.insts)),
        "clang writes no copies"
    );
    agree_after_each(&module, "shifts", std::slice::from_ref(&run)).expect("they agree");
    same(&module, "shifts", run.0, &run.1, "shifts");
}

/// Private arrays of scalars of one size, whose elements items read and write, uniformly and
/// divergently.
const ARRAYS: &str = "
typedef struct { int a; float b; } pair;
kernel void arrays(global int *io, int n) {
  int i = get_global_id(0), x = io[i];
  int table[6] = {3, -1, 4, 1, -5, 9};
  int4 rows[4];
  pair pairs[5];
  long wide[3] = {1, 2, 3};
  for (int k = 0; k < 4; k++)
    rows[k] = (int4)(x, k, x * k, n);
  for (int k = 0; k < 5; k++) {
    pairs[k].a = x + k;
    pairs[k].b = (x & 15) * k;
  }
  if (x & 1) {
    for (int k = 0; k < n; k++) {
      table[k] += rows[k & 3].z;
      wide[k % 3] -= table[k];
    }
  } else {
    table[x & 3] = rows[(x >> 4) & 3].y;
    pair p = pairs[n - 2];
    pairs[0] = p;
  }
  for (int *p = table; p != table + n; p++)
    *p ^= x;
  int sum = rows[1].x + (int)wide[0] + (int)wide[2];
  for (int k = 0; k < 5; k++)
    sum += table[k] * (k + 1) + pairs[k].a + (int)pairs[k].b;
  io[i] = sum;
}";

/// Arrays that are laid out element by element give the same results, at all widths.
#[test]
fn private_arrays_laid_out_by_element_hold_the_same() {
    let input = |n: i32| Input::bytes((0..n).flat_map(|i| (i * 37 - 500).to_le_bytes()).collect());
    let count = Input::Value(5i32.to_le_bytes().to_vec());
    for level in ["-O0", "-O1", "-O2"] {
        let module = module(&clang::compile_text(ARRAYS, &[level]));
        let inputs = [input(100), count.clone()];
        same(&module, "arrays", Grid::line(100, 32), &inputs, level);
    }
}

/// An integer may lie across two elements of an array, which then stays as it is.
#[test]
fn private_integers_lie_anywhere() {
    let source = "struct __attribute__((packed)) far { int it; };
        kernel void across(global int *io) {
          int i = get_global_id(0), x = io[i], table[9];
          for (int k = 0; k < 9; k++)
            table[k] = x * (k + 3);
          for (int k = 0; k < 8; k++)
            ((struct far *)((char *)table + (k * 4 | x & 3)))->it ^= x * k;
          for (int k = 0; k < 8; k++)
            x += ((struct far *)((char *)table + (k << 2 ^ x & 3)))->it;
          io[i] = x;
        }";
    for level in ["-O0", "-O2"] {
        let module = module(&clang::compile_text(source, &[level]));
        let input =
            Input::bytes((0..100).flat_map(|i: i32| (i * 37 - 500).to_le_bytes()).collect());
        same(&module, "across", Grid::line(100, 20), &[input], level);
    }
}

/// Loads and stores of all items at one index are no gathers and no scatters.
#[test]
fn elements_at_one_index_are_vectors() {
    let source = "kernel void k(global float *io, int n, int m) {
          float own[32];
          size_t i = get_global_id(0);
          for (int k = 0; k < m; k++)
            own[k] = io[i + k * n];
          for (int k = 1; k < m; k++)
            own[k] += own[k - 1] * 0.5f;
          for (int k = 0; k < m; k++)
            io[i + k * n] = own[k];
        }";
    for level in ["-O0", "-O2"] {
        let module = module(&clang::compile_text(source, &[level]));
        let widened = widen::widen(&module, &module.kernels[0], 16).expect("it is simple");
        let function = &widened.module.functions[widened.function];
        let mut insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
        let apart = insts.find(|inst| matches!(inst.op, Op::Gather(..) | Op::Scatter(..)));
        assert!(apart.is_none(), "{level}: {apart:?}");
        assert_eq!(function.variables.len(), 1);
    }
}
