// SPDX-License-Identifier: MIT OR Apache-2.0
//! Widened kernels have the results of the same kernels in scalar form. The interpreter gives these
//! results; [`same`] runs each kernel with 1, 8, 16 and 32 items to a vector.

use std::fmt::Write;

use tally_compiler::ir::{Inst, Op};
use tally_compiler::widen::widen;

use crate::diff::{Elements, Input, same};
use crate::golden::golden;
use crate::guarded::Guarded;
use crate::harness::clang::Assembly;
use crate::harness::{Arg, Grid, Kernel, clang, module, value, widths};

/// Compiles text, checks that every kernel is widened with 8, 16 and 32 items, and returns the module.
pub fn wide(text: &str) -> tally_compiler::ir::Module {
    let module = module(&clang::compile_text(text, &["-O2", "-w"]));
    for kernel in &module.kernels {
        for lanes in [8, 16, 32] {
            if let Err(why) = widen(&module, kernel, lanes) {
                panic!("{} is not widened to {lanes} items: {why}", kernel.name);
            }
        }
    }
    module
}

pub fn ints(n: i32, f: impl Fn(i32) -> i32) -> Input {
    Input::Buffer(Elements::Bytes, (0..n).flat_map(|i| f(i).to_le_bytes()).collect())
}

pub fn int(x: i32) -> Input {
    Input::Value(x.to_le_bytes().to_vec())
}

/// Both ways of a branch are run for the items that take them, and loops until no item is left.
#[test]
fn items_part_and_meet_again() {
    let module = wide(
        "kernel void part(global int *p, int n) {
           int i = get_global_id(0), x = p[i], sum = 0;
           for (int k = 0; k < (x & 15); k++) {
             if ((k + x) % 3 == 0) continue;
             if (k > 9 && x > n) break;
             for (int j = k; j < (x & 7); j++) {
               sum += j * k;
               if (sum > 40) { sum -= 7; break; }
             }
             switch ((x ^ k) & 3) { case 0: sum += 5; case 1: sum ^= x; break; case 3: sum--; }
           }
           if (x & 1) { if (x & 2) sum *= 3; else return; }
           p[i] = sum + x;
         }",
    );
    let p = ints(150, |i| i.wrapping_mul(0x9e37_79b9_u32 as i32) >> 20);
    same(&module, "part", Grid::line(150, 64), &[p, int(100)], "");
}

/// Behind a loop, each item has the value with which it left the loop.
#[test]
fn items_keep_what_they_leave_a_loop_with() {
    let module = wide(
        "kernel void leave(global int *p) {
           int i = get_global_id(0), x = p[i], k = 0, last;
           do { last = k * 7; k++; } while (k * k < (x & 255));
           p[i] = last * 1000 + k;
         }",
    );
    same(&module, "leave", Grid::line(128, 64), &[ints(128, |i| i * 37 % 300)], "");
}

/// A 32-bit index that wraps around within a vector indexes the right places.
#[test]
fn indices_that_wrap_around_are_followed() {
    let module = wide(
        "kernel void wrap(global int *out, global const int *in, uint by) {
           uint i = get_global_id(0);
           uint from = i - by;
           if (i >= by) out[i] = in[from];
           int j = (int)i + 0x7ffffff0;
           if (j < 0) out[i] += in[(long)(uint)j - 0x80000000l];
         }",
    );
    for by in [0, 3, 16, 21] {
        let inputs = [ints(96, |i| i), ints(96, |i| i * i), int(by)];
        same(&module, "wrap", Grid::line(96, 32), &inputs, &format!("by {by}"));
    }
}

/// Items of one vector find elements in front of which others have none: the first one's index wraps around.
#[test]
fn indices_of_some_items_are_below_zero() {
    let module = wide(
        "kernel void below(global int *out, global const ushort8 *in, global const char *bytes) {
           uint i = get_global_id(0);
           int x = 9;
           if (i >= 5 && i < 60) x = in[i - 5].s0 + 3 * in[i - 5].s5;
           if (i >= 7 && i < 60) x += bytes[3 * (i - 7)] + 5 * bytes[i - 7];
           out[i] = x;
         }",
    );
    let numbers = |n, factor| ints(n, move |i| i * factor % 10007);
    let inputs = [ints(64, |_| 0), numbers(55 * 4, 77), numbers(40, 29)];
    same(&module, "below", Grid::line(64, 32), &inputs, "");
}

/// Ids that do not fit 32 bits are right, truncated to 32 bits and whole.
#[test]
fn large_ids_are_right() {
    let module = wide(
        "kernel void large(global long *out) {
           size_t i = get_global_id(0);
           int cut = i;
           out[2 * get_local_id(0)] = i;
           out[2 * get_local_id(0) + 1] = cut;
         }",
    );
    for first in [0, (1u64 << 31) - 24, 1 << 40] {
        let grid = Grid { offset: [first, 0, 0], global: [64, 1, 1], group: [64, 1, 1] };
        let out = Input::Buffer(Elements::Bytes, vec![0; 64 * 16]);
        same(&module, "large", grid, &[out], &format!("from {first}"));
    }
}

/// Vectors of 2, 3 and 4 components, structures and private arrays keep their layout in memory.
#[test]
fn values_of_several_parts_keep_their_places() {
    let module = wide(
        "typedef struct { char c; float f; short s[3]; } thing;
         kernel void parts(global float4 *v, global float2 *w, global float *u, global thing *t) {
           size_t i = get_global_id(0);
           float4 a = v[i];
           float2 b = w[i];
           float3 c = vload3(i, u);
           float p[8];
           for (int k = 0; k < 8; k++) p[k] = a.x * k + b.y;
           thing x = t[i];
           x.f += p[(int)x.c & 7];
           x.s[(int)x.c & 1] += 3;
           t[i] = x;
           v[i] = a.wzyx + (float4)(p[3], b, c.z);
           if (i & 1) w[i] = b.yx * 2;
           vstore3(c.zxy + p[(int)a.y & 7], i, u);
         }",
    );
    let floats = |n: i32| {
        let bytes = (0..n).flat_map(|i| ((i * 29 % 64) as f32 / 4.0).to_le_bytes()).collect();
        Input::Buffer(Elements::Floats, bytes)
    };
    let things = Input::Buffer(Elements::Bytes, (0..70 * 16).map(|i| (i * 5 % 16) as u8).collect());
    let inputs = [floats(70 * 4), floats(70 * 2), floats(70 * 3), things];
    same(&module, "parts", Grid::line(70, 32), &inputs, "");
}

/// Steps of extended numbers that wrap around 2^64 are handled: `(3 * i - by) / 3`.
#[test]
fn multiples_that_wrap_around_are_right() {
    let module = wide(
        "kernel void wrap(global ulong *out, uint by) {
           uint i = get_global_id(0);
           out[i] = (ulong)(3 * i - by) * 0xaaaaaaaaaaaaaaabul;
         }",
    );
    for by in [0, 30] {
        let out = Input::Buffer(Elements::Bytes, vec![0; 64 * 8]);
        same(&module, "wrap", Grid::line(64, 32), &[out, int(by)], &format!("by {by}"));
    }
}

/// Structures of two, three and four floats that are loaded and stored as a whole.
#[test]
fn structures_are_stored_whole() {
    for floats in 2..5 {
        let module = module(&clang::assemble(&format!(
            "OpCapability Kernel
OpCapability Addresses
OpCapability Int64
OpMemoryModel Physical64 OpenCL
OpEntryPoint Kernel %k \"k\" %id
OpDecorate %id BuiltIn GlobalInvocationId
%void = OpTypeVoid
%i64 = OpTypeInt 64 0
%f32 = OpTypeFloat 32
%v3 = OpTypeVector %i64 3
%p3 = OpTypePointer Input %v3
%s = OpTypeStruct{}
%p = OpTypePointer CrossWorkgroup %s
%fn = OpTypeFunction %void %p %p
%id = OpVariable %p3 Input
%k = OpFunction %void None %fn
%in = OpFunctionParameter %p
%out = OpFunctionParameter %p
%entry = OpLabel
%ids = OpLoad %v3 %id
%i = OpCompositeExtract %i64 %ids 0
%from = OpPtrAccessChain %p %in %i
%to = OpPtrAccessChain %p %out %i
%x = OpLoad %s %from Aligned 4
OpStore %to %x Aligned 4
OpReturn
OpFunctionEnd
",
            " %f32".repeat(floats)
        )));
        let count = 64 * floats as i32;
        let inputs = [ints(count, |i| i), ints(count, |_| -1)];
        same(&module, "k", Grid::line(64, 32), &inputs, &format!("{floats} floats"));
    }
}

/// "integer division cannot raise SIGFPE": not of the same numbers for all items where no item is,
/// though a product there is promised not to wrap around, and does.
#[test]
fn no_item_divides_by_nothing() {
    for divide in ["UDiv", "SDiv", "UMod", "SRem", "SMod"] {
        let body = format!(
            "%at = OpInBoundsPtrAccessChain %p %x %i
             %mine = OpLoad %i32 %at Aligned 4
             %some = OpSGreaterThan %bool %mine %none
             OpBranchConditional %some %yes %join
             %yes = OpLabel
             %width = OpExtInst %i32 %cl s_max %w %one
             %height = OpExtInst %i32 %cl s_max %h %one
             %product = OpIMul %i32 %width %height
             %q = Op{divide} %i32 %n %product
             OpBranch %join
             %join = OpLabel
             %r = OpPhi %i32 %q %yes %seven %entry
             OpStore %at %r Aligned 4"
        );
        let assembly = Assembly {
            variables: "",
            head: "%cl = OpExtInstImport \"OpenCL.std\"",
            notes: "OpDecorate %product NoSignedWrap
                OpDecorate %product NoUnsignedWrap",
            declarations: "%one = OpConstant %i32 1
                %seven = OpConstant %i32 7
                %none = OpConstantNull %i32",
            parameters: &[("x", "p"), ("n", "i32"), ("w", "i32"), ("h", "i32")],
            body: &body,
        };
        let module = module(&assembly.module());
        let nobody = [ints(64, |i| -i), int(100), int(1 << 16), int(1 << 16)];
        same(&module, "k", Grid::line(64, 32), &nobody, divide);
        let some = [ints(64, |i| i % 3 - 1), int(100), int(2), int(3)];
        same(&module, "k", Grid::line(64, 32), &some, divide);
    }
}

/// One item at a time go "groups with sub-groups that have several such rows: sub-groups are numbered
/// through the group, and one may begin within a row" (README.md).
#[test]
fn items_of_uneven_rows_know_their_sub_group() {
    let module = module(&clang::compile_text(
        "kernel void ids(global uint *out) {
           size_t i = get_local_linear_id();
           out[3 * i] = get_sub_group_id();
           out[3 * i + 1] = get_sub_group_local_id();
           out[3 * i + 2] = get_sub_group_size();
         }",
        &["-O2"],
    ));
    assert!(widen(&module, &module.kernels[0], 16).is_ok());
    for row in [20, 32] {
        let grid = Grid { offset: [0; 3], global: [row, 2, 1], group: [row as u32, 2, 1] };
        same(&module, "ids", grid, &[ints(64 * 3, |_| -1)], &format!("{row} items a row"));
    }
}

/// Each active item executes an atomic once.
#[test]
fn atomics_are_done_once_by_each_active_item() {
    let module = wide(
        "kernel void count(global int *counts, global int *p) {
           size_t i = get_global_id(0);
           if (p[i] & 1) atomic_add(&counts[p[i] & 14], (int)i);
           atomic_inc(&counts[16]);
           p[i] = atomic_max(&counts[17], p[i]) >= 0;
         }",
    );
    same(&module, "count", Grid::line(100, 32), &[ints(18, |_| 0), ints(100, |i| i * 11)], "");
}

/// The scalar loads and all instructions of a kernel, widened to 16 items.
fn scalar_loads(module: &tally_compiler::ir::Module) -> (usize, usize) {
    let wide = widen(module, &module.kernels[0], 16).expect("it is widened");
    let function = &wide.module.functions[wide.function];
    let insts: Vec<&Inst> = function.blocks.iter().flat_map(|(_, block)| &block.insts).collect();
    let scalar = |inst: &&&Inst| {
        let ty = inst.result.map(|result| function.values[result].ty);
        matches!(inst.op, Op::Load(..)) && ty.is_some_and(|ty| wide.module.types.lanes(ty) == 1)
    };
    (insts.iter().filter(scalar).count(), insts.len())
}

/// "What was loaded from a line and went through few operations is loaded once more by itself": also
/// where another line is loaded, and asked for ahead, before the items take turns.
#[test]
fn lines_of_a_loop_are_loaded_by_items_that_take_turns() {
    let module = wide(
        "kernel void count(global const int *x, global int *y, global int *bins, int n) {
           size_t i = get_global_id(0);
           int sum = 0;
           for (size_t k = 0; k < n; k++) {
             size_t j = i + 64 * k;
             int v = x[j], w = y[j];
             atomic_inc(&bins[v & 15]);
             sum += w;
           }
           y[i] = sum;
         }",
    );
    let (loads, _) = scalar_loads(&module);
    assert!(loads >= 16, "{loads} scalar loads");
    let inputs = [ints(256, |i| i * 7), ints(256, |i| i), ints(16, |_| 0), int(4)];
    same(&module, "count", Grid::line(64, 64), &inputs, "");
}

/// A kernel in which each item's address is `steps` computations away from a buffer, and is used by
/// `atomics` atomics.
fn far_atomics(steps: usize, atomics: usize) -> tally_compiler::ir::Module {
    let mut body = "%at = OpInBoundsPtrAccessChain %p %in %i
        %x = OpLoad %i32 %at Aligned 4
        %q0 = OpPtrAccessChain %p %out %x
"
    .to_owned();
    for step in 0..steps {
        let _ = writeln!(body, "%q{} = OpPtrAccessChain %p %q{step} %x", step + 1);
    }
    for atomic in 0..atomics {
        let _ = writeln!(body, "%t{atomic} = OpAtomicIAdd %i32 %q{steps} %one %zero %one");
    }
    let assembly = Assembly {
        declarations: "%zero = OpConstant %i32 0
            %one = OpConstant %i32 1",
        parameters: &[("in", "p"), ("out", "p")],
        body: &body,
        ..Default::default()
    };
    module(&assembly.module())
}

/// Items that take turns compute their own addresses, but do not repeat long chains of computations.
#[test]
fn chains_of_addresses_are_not_repeated() {
    let (steps, atomics) = (60, 20);
    let module = far_atomics(steps, atomics);
    let (_, insts) = scalar_loads(&module);
    assert!(insts < 3 * steps + 16 * 8 * atomics, "{insts} instructions");
    same(&module, "k", Grid::line(64, 64), &[ints(64, |i| i % 5), ints(256, |i| i)], "");
}

/// Ciphers and hashes with all their functions inlined.
#[test]
fn kernels_of_many_instructions_are_widened() {
    let text = "
        #define ROUND x = (x ^ y) * 77 + z; y = rotate(y + x, 7u); z += y ^ 0x5bd1e995;
        #define EIGHT(a) a a a a a a a a
        kernel void k(global uint *out) {
          uint x = get_global_id(0), y = x * 3, z = ~x;
          EIGHT(EIGHT(EIGHT(EIGHT(ROUND))))
          out[get_global_id(0)] = x + y + z; }";
    let module = module(&clang::compile_text(text, &["-O2", "-w"]));
    let function = &module.functions[module.kernels[0].function];
    let size: usize = function.blocks.iter().map(|(_, block)| block.insts.len()).sum();
    assert!((20_000..65_536).contains(&size), "{size} instructions");
    widen(&module, &module.kernels[0], 16).expect("it is widened");
}

/// "Not widened: [...] 524,288 values once widened" (README.md)
#[test]
fn what_grows_too_much_is_refused() {
    let module = far_atomics(0, 9_000);
    let refusal = widen(&module, &module.kernels[0], 32).expect_err("each has 32 turns");
    assert_eq!(refusal.to_string(), "too many instructions once widened");
}

/// Masked items never access memory: what they would read and write is not mapped.
#[test]
fn masked_off_items_touch_no_memory() {
    let text =
        "kernel void guard(global int *out, global const int *in, global const short *s, int n) {
           int i = get_global_id(0);
           if (i < n) {
             int x = in[i] + s[i];
             for (int k = 0; k < 3; k++) x += in[(x + k) % n];
             out[i] = x;
           }
         }";
    let module = wide(text);
    for (target, lanes) in widths() {
        let kernel = Kernel::with_lanes(&module, "guard", &target, lanes);
        for n in [1usize, 15, 33, 50] {
            let (mut out, mut input, mut shorts) =
                (Guarded::new(4096), Guarded::new(4096), Guarded::new(4096));
            input.last(n * 4).chunks_mut(4).for_each(|x| x.copy_from_slice(&7i32.to_le_bytes()));
            shorts.last(n * 2).fill(0);
            let args = vec![
                Arg::Buffer(out.last(n * 4)),
                Arg::Buffer(input.last(n * 4)),
                Arg::Buffer(shorts.last(n * 2)),
                value(n as i32),
            ];
            kernel.run(Grid::line(64, 64), args);
            assert!(out.last(n * 4).chunks(4).all(|x| x == 28i32.to_le_bytes()), "{n} of {lanes}");
        }
    }
}

/// Barriers, local memory and collectives work in widened kernels.
#[test]
fn groups_of_vectors_work_together() {
    let module = wide(
        "kernel void sum(global int *p, local int *t) {
           size_t l = get_local_id(0), n = get_local_size(0);
           t[l] = p[get_global_id(0)];
           barrier(CLK_LOCAL_MEM_FENCE);
           for (size_t half = n / 2; half > 0; half /= 2) {
             if (l < half) t[l] += t[l + half];
             barrier(CLK_LOCAL_MEM_FENCE);
           }
           p[get_global_id(0)] += t[0];
         }"
        .replace("half", "stride")
        .as_str(),
    );
    let p = || ints(128, |i| i * 3 - 50);
    for group in [64, 32, 4] {
        same(&module, "sum", Grid::line(128, group), &[p(), Input::Local(256)], "");
    }
    let grid = Grid { offset: [0; 3], global: [32, 4, 1], group: [32, 2, 1] };
    let rows = wide(
        "kernel void rows(global int *p, local int *t) {
           size_t x = get_local_id(0), y = get_local_id(1), n = get_local_size(0);
           t[y * n + x] = p[get_global_id(1) * n + x];
           barrier(CLK_LOCAL_MEM_FENCE);
           p[get_global_id(1) * n + x] = t[(1 - y) * n + (n - 1 - x)];
         }",
    );
    same(&rows, "rows", grid, &[p(), Input::Local(256)], "");
}

/// The bits of several components as one, and of one as several. A kernel that is not widened for it
/// runs item by item; kernels of oneMKL, whose items exchange values without a barrier, are wrong then.
#[test]
fn bits_become_more_or_fewer_components() {
    let module = wide(
        "kernel void bits(global uint *p, global ulong *q) {
           size_t i = get_global_id(0);
           uint2 x = vload2(i, p);
           ulong y = as_ulong(x) * 0x9e3779b97f4a7c15ul;
           ushort4 h = as_ushort4(y ^ y >> 7);
           h = h.wxzy + (ushort4)(1, 2, 3, 4);
           uchar8 b = as_uchar8(h);
           b = b.s70615243 ^ (uchar)i;
           uint2 z = as_uint2(b);
           ushort2 v = as_ushort2(z.x) * (ushort)3;
           q[i] = as_ulong(z) + as_uint(v) + as_ulong(as_float2(y));
         }",
    );
    let p = ints(300, |i| i.wrapping_mul(0x9e37_79b9_u32 as i32));
    same(&module, "bits", Grid::line(150, 64), &[p, ints(300, |_| 0)], "");
}

/// No item sees the order in which others access their own variables: if all access the same place,
/// volatile accesses stay vectors, and volatile. oneMKL rounds in such variables; item by item, one
/// kernel of 860 instructions became 39,000.
#[test]
fn volatile_private_variables_are_vectors() {
    let module = wide(
        "kernel void exact(global const float *x, global float *y) {
           size_t i = get_global_id(0);
           volatile float sum = x[i] + x[i + 1], error;
           volatile struct { float part[3]; } all;
           for (int k = 0; k < 3; k++)
             all.part[k] = sum * (k + 1);
           if (i % 3) {
             error = sum - x[i];
             sum = error - x[i + 1];
             all.part[1] = sum;
           }
           y[i] = sum + all.part[0] + all.part[1] + all.part[2];
         }",
    );
    let wide = widen(&module, &module.kernels[0], 16).expect("it is widened");
    let function = &wide.module.functions[wide.function];
    let (mut vectors, mut others) = (0, 0);
    for inst in function.blocks.iter().flat_map(|(_, block)| &block.insts) {
        let (ty, access) = match (&inst.op, inst.result) {
            (Op::Load(_, access), Some(result)) => (function.values[result].ty, access),
            (Op::Store(_, value, access), _) => {
                (wide.module.operand_type(function, *value), access)
            }
            _ => continue,
        };
        let is_wide = wide.module.types.lanes(ty) == 16;
        vectors += usize::from(access.volatile && is_wide);
        others += usize::from(access.volatile && !is_wide);
    }
    assert_eq!(others, 0, "{vectors} volatile vectors");
    assert!(vectors >= 12, "{vectors}");
    let x = Input::bytes((0..101).flat_map(|i| (0.1 * i as f32).to_le_bytes()).collect());
    same(&module, "exact", Grid::line(100, 32), &[x, ints(100, |_| 0)], "");
}

/// DPC++ aligns halves to 8 bytes. Kernels with such variables that stay in memory, as dpnp's `nan_to_num` of halves,
/// ran one item at a time.
#[test]
fn private_variables_may_be_aligned_to_more_than_their_size() {
    let module = wide(
        "kernel void choose(global short *out, short most) {
           size_t i = get_global_id(0);
           volatile short own __attribute__((aligned(8))) = out[i];
           volatile short other __attribute__((aligned(32))) = most;
           volatile char last __attribute__((aligned(4))) = 3;
           volatile short *p = own % 3 ? &own : &other;
           *p += 5;
           if (own & 1) last = (char)(last + own);
           out[i] = own + 100 * other + last;
         }",
    );
    widen(&module, &module.kernels[0], 16).expect("it is widened");
    let out = Input::bytes((0..100i16).flat_map(|i| (i * 7).to_le_bytes()).collect());
    let most = Input::Value(9i16.to_le_bytes().to_vec());
    same(&module, "choose", Grid::line(100, 32), &[out, most], "");
}

/// The view for readers: the uniform values, the divergent branches, the gathers, and the code.
#[test]
fn the_view_of_a_widened_kernel_is_readable() {
    let module = module(&clang::compile_text(
        "kernel void steps(global int *out, global const int *in, int n) {
           size_t i = get_global_id(0);
           int x = in[i], k = 0;
           while (x != 1 && k < n) {
             x = x & 1 ? 3 * x + 1 : x / 2;
             k++;
           }
           if (k < n) out[in[i]] = k;
         }",
        &["-O1"],
    ));
    let widened = widen(&module, &module.kernels[0], 8).expect("a plain kernel");
    golden("widen-steps.txt", &widened.to_string());
}

/// A kernel that cannot be widened is built in scalar form, and the reason is given.
#[test]
fn what_is_refused_has_a_reason() {
    let module = module(&clang::compile_text(
        "kernel void parted(global int *p) {
           size_t i = get_global_id(0);
           if (p[i] > 3) p[i] = work_group_reduce_add(p[i]);
         }",
        &["-O2"],
    ));
    let refusal =
        widen(&module, &module.kernels[0], 16).expect_err("the items that exchange values part");
    assert_eq!(refusal.to_string(), "a barrier where the items of a vector may have parted");
}

/// A module of a thousand kernels is not copied a thousand times: only the functions that a kernel
/// reaches are copied with it.
#[test]
fn a_widened_kernel_brings_only_its_own_functions() {
    let module = module(&clang::compile_text(
        "__attribute__((noinline)) int twice(int x) { return x + x; }
         kernel void one(global int *p) { p[get_global_id(0)] = twice(p[get_global_id(0)]); }
         kernel void other(global int *p) { p[get_global_id(0)] += 3; }",
        &["-O1"],
    ));
    for kernel in &module.kernels {
        let widened = widen(&module, kernel, 16).expect("it can be widened");
        let bodies = widened.module.functions.iter().filter(|(_, it)| !it.is_declared());
        let mut reached = kernel.facts.functions.clone();
        reached.push(widened.function);
        reached.sort();
        assert_eq!(bodies.map(|(id, _)| id).collect::<Vec<_>>(), reached, "{}", kernel.name);
        assert_eq!(widened.module.functions.len(), module.functions.len() + 1);
    }
}

/// Loads of the next vectors of a row are prefetched where a vector takes long, and in loops of few turns; not where it
/// is short or consists of loads.
#[test]
fn long_vectors_prefetch_what_the_next_ones_load() {
    let prefetches = |value: &str| {
        let module = wide(&format!(
            "kernel void row(global float *out, global const float *x, int n) {{
               size_t i = get_global_id(0);
               out[i] = {value};
             }}"
        ));
        let widened = widen(&module, &module.kernels[0], 16).expect("it is widened");
        let function = &widened.module.functions[widened.function];
        let insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
        insts.filter(|inst| matches!(inst.op, Op::Prefetch(_))).count()
    };
    assert_eq!(prefetches("x[i] + 1"), 0);
    assert_eq!(prefetches("exp(x[i])"), 0);
    assert_eq!(prefetches("exp(x[i]) + log(x[i] + 1) + sin(x[i])"), 1);
    let rows: Vec<String> = (0..40).map(|row| format!("x[i + {row} * 4096]")).collect();
    assert_eq!(prefetches(&rows.join(" + ")), 0);
    assert_eq!(prefetches("exp(x[i]) + exp(x[i + 4096]) + exp(x[i + 8192])"), 3);
    let in_loop =
        |head: &str| prefetches(&format!("0; for ({head}; j++) out[i] += x[j * n + i]")) != 0;
    assert!(in_loop("int j = 0; j < 64"));
    assert!(in_loop("long j = 8; j < 72"));
    assert!(!in_loop("int j = 0; j < 65"));
    assert!(!in_loop("int j = 0; j < n"));
    assert!(in_loop("int k = 0; k < 2; k++) for (int j = 0; j < 32"));
    assert!(!in_loop("int k = 0; k < 40; k++) for (int j = 0; j < 32"));
    assert!(!in_loop("int k = 0; k < n; k++) for (int j = 0; j < 32"));
}

/// Where the turns of a loop are long, all cache lines of the next vector but one are prefetched; not where a turn is
/// short, where it has a loop of its own, where all items load the same, or where each turn does.
#[test]
fn long_turns_prefetch_what_the_next_vectors_load() {
    let prefetches = |ty: &str, lanes: u32, load: &str, steps: usize, inner: &str| {
        let step = "p = fma(p, v, sum);".repeat(steps);
        let module = wide(&format!(
            "kernel void columns(global {ty} *out, global const {ty} *x, int n, int h) {{
               size_t i = get_global_id(0);
               {ty} sum = 0;
               for (int r = 0; r < h; r++) {{
                 {ty} v = {load}, p = v;
                 {inner} {{ {step} }}
                 sum += p;
               }}
               out[i] = sum;
             }}"
        ));
        let widened = widen(&module, &module.kernels[0], lanes).expect("it is widened");
        let function = &widened.module.functions[widened.function];
        let insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
        insts.filter(|inst| matches!(inst.op, Op::Prefetch(_))).count()
    };
    let column = "x[(size_t)r * n + i]";
    assert_eq!(prefetches("float", 16, column, 16, ""), 1);
    assert_eq!(prefetches("float", 8, column, 16, ""), 1);
    assert_eq!(prefetches("float", 32, column, 16, ""), 2);
    assert_eq!(prefetches("double", 16, column, 16, ""), 2);
    assert_eq!(prefetches("float", 16, column, 8, ""), 0);
    assert_eq!(prefetches("float", 16, "x[(size_t)r * n + i] + x[(size_t)r * h + i]", 16, ""), 0);
    assert_eq!(prefetches("float", 16, column, 16, "for (int k = 0; k < n; k++)"), 0);
    assert_eq!(prefetches("float", 16, "x[r]", 16, ""), 0);
    assert_eq!(prefetches("float", 16, "x[i] + (out[i] = sum)", 16, ""), 0);
}

/// A loop that items leave at different times, right into the next turn of the loop around it: each item takes along
/// the value with which it has left, not the one of the last turn.
#[test]
fn items_leave_a_loop_for_the_next_turn_of_another() {
    let module = wide(
        "kernel void nested(global int *p, global const int *a, int n, int m) {
           int i = get_global_id(0);
           uint u = p[i];
           if (i % 3 == 0)
             for (int k = 0; k < min(n, m); k++) {
               p[i] = k + 1;
               for (uint j = u % 12; j < 12; j++) u ^= a[u & 63] + 3;
             }
           p[i] = u;
         }",
    );
    let p = ints(128, |i| i * 37 % 300);
    let inputs = [p, ints(64, |i| i * 29 % 101), int(5), int(9)];
    same(&module, "nested", Grid::line(128, 64), &inputs, "");
}
