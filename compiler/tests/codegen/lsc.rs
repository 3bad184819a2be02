// SPDX-License-Identifier: MIT OR Apache-2.0
//! Intel's functions for the load/store cache mean what plain loads and stores mean.

use tally_compiler::ir::{Module, Op};
use tally_compiler::{check, parse};

use crate::diff::{Random, interpreted, same};
use crate::harness::{Grid, clang};
use crate::widen::{ints, wide};

/// As kernels declare them; some give the functions C++'s names.
const DECLARATIONS: &str = "
    #define OVER __attribute__((overloadable))
    uint __builtin_IB_lsc_load_global_uchar_to_uint(const global uchar *, int, int);
    uint __builtin_IB_lsc_load_global_ushort_to_uint(const global ushort *, int, int);
    uint OVER __builtin_IB_lsc_load_global_uint(const global uint *, int, int);
    uint3 __builtin_IB_lsc_load_global_uint3(const global uint3 *, int, int);
    ulong2 __builtin_IB_lsc_load_global_ulong2(const global ulong2 *, int, int);
    uint __builtin_IB_lsc_load_local_uint(const local uint *, int);
    void __builtin_IB_lsc_store_global_uchar_from_uint(global uchar *, int, uint, int);
    void __builtin_IB_lsc_store_global_ushort_from_uint(global ushort *, int, uint, int);
    void OVER __builtin_IB_lsc_store_global_uint(global uint *, int, uint, int);
    void __builtin_IB_lsc_store_global_uint3(global uint3 *, int, uint3, int);
    void __builtin_IB_lsc_store_global_ulong2(global ulong2 *, int, ulong2, int);
    void __builtin_IB_lsc_store_local_uint(local uint *, int, uint);
    void __builtin_IB_lsc_prefetch_global_uchar(const global uchar *, int, int);
    void __builtin_IB_lsc_fence_global_untyped(int, int);
    void __builtin_IB_lsc_fence_local(void);
    #define L(name) __builtin_IB_lsc_load_##name
    #define S(name) __builtin_IB_lsc_store_##name
";

/// A kernel with the functions, one with plain accesses, 128 bytes an item.
const ACCESSES: &str = "
    kernel void cached(global uchar *to, const global uchar *from) {
      size_t i = get_global_id(0);
      local uint words[64];
      const global uchar *p = from + (i + 1) * 128;
      global uchar *q = to + i * 128;
      __builtin_IB_lsc_prefetch_global_uchar(p + 64, 0, 4);
      S(global_uchar_from_uint)(q, 1, 0x100 + L(global_uchar_to_uint)(p, 3, 0), 0);
      S(global_ushort_from_uint)((global ushort *)q, 1, 0x10000 + L(global_ushort_to_uint)((const global ushort *)p, 2, 2), 1);
      S(global_uint)((global uint *)q, 1, L(global_uint)((const global uint *)p, 2, 1), 1);
      S(global_uint3)((global uint3 *)(q + 8), 1, L(global_uint3)((const global uint3 *)p, -1 + (int)(i & 3), 4), 7);
      S(global_ulong2)((global ulong2 *)q, 3, L(global_ulong2)((const global ulong2 *)(p + 8), 5, 1), 2);
      uint l = get_local_id(0);
      S(local_uint)(words + l, 0, L(global_uint)((const global uint *)p, 30, 0));
      __builtin_IB_lsc_fence_local();
      barrier(CLK_LOCAL_MEM_FENCE);
      S(global_uint)((global uint *)q, 31, L(local_uint)(words + (l ^ 1), 0), 0);
      __builtin_IB_lsc_fence_global_untyped(3, 0);
    }
    kernel void plain(global uchar *to, const global uchar *from) {
      size_t i = get_global_id(0);
      local uint words[64];
      const global uchar *p = from + (i + 1) * 128;
      global uchar *q = to + i * 128;
      q[1] = p[3];
      ((global ushort *)q)[1] = ((const global ushort *)p)[2];
      ((global uint *)q)[1] = ((const global uint *)p)[2];
      vstore3(vload3(-1 + (int)(i & 3), (const global uint *)p), 1, (global uint *)(q + 8));
      vstore2(vload2(5, (const global ulong *)(p + 8)), 3, (global ulong *)q);
      uint l = get_local_id(0);
      words[l] = ((const global uint *)p)[30];
      barrier(CLK_LOCAL_MEM_FENCE);
      ((global uint *)q)[31] = words[l ^ 1];
    }";

/// All types, offsets forwards, backwards and that are known late, in all widths.
#[test]
fn loads_and_stores_reach_their_elements() {
    let module = wide(&format!("{DECLARATIONS}{ACCESSES}"));
    let mut random = Random::new(3);
    // The first item reads three words in front of its own.
    let run = (Grid::line(96, 32), vec![ints(32 * 96, |_| 7), random.bytes(128 * 97)]);
    same(&module, "cached", run.0, &run.1, "");
    let [cached, plain] = ["cached", "plain"].map(|name| interpreted(&module, name, &run).unwrap());
    assert_eq!(cached[0], plain[0]);
}

/// Whether each access of the kernel is volatile. Clang writes an entry point and a function with the same body.
fn volatiles(module: &Module) -> Vec<bool> {
    let function = &module.functions[module.kernels[0].function];
    let insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
    let volatile = insts.filter_map(|inst| match inst.op {
        Op::Load(_, access) | Op::Store(_, _, access) => Some(access.volatile),
        _ => None,
    });
    volatile.collect()
}

/// A kernel that polls what the host writes asks for a load past the caches; no pass may move it.
#[test]
fn accesses_past_the_first_cache_stay_in_loops() {
    let text = "kernel void poll(global uint *x) {
      while (L(global_uint)(x, 0, 1) == 0) ;
      S(global_uint)(x, 1, L(global_uint)(x, 2, 3), 1);
    }";
    let module = wide(&format!("{DECLARATIONS}{text}"));
    assert_eq!(volatiles(&module), [true, false, true]);
}

/// Functions that Intel's compiler does not have, and types that do not fit the name, stay imports.
#[test]
fn others_stay_imports() {
    for declared in ["uint __builtin_IB_lsc_load_global_uint5(global uint *, int, int);
                      kernel void k(global uint *x) { x[0] = __builtin_IB_lsc_load_global_uint5(x, 0, 0); }",
                     "ulong __builtin_IB_lsc_load_global_uint(global uint *, int, int);
                      kernel void k(global uint *x) { x[0] = __builtin_IB_lsc_load_global_uint(x, 0, 0); }",
                     "void __builtin_IB_lsc_store_global_uchar_from_uint(global uchar *, int, ulong, int);
                      kernel void k(global uchar *x) { __builtin_IB_lsc_store_global_uchar_from_uint(x, 0, 1, 0); }",
                     "uint __builtin_IB_lsc_load_private_uint(uint *, int);
                      kernel void k(global uint *x) { uint y; x[0] = __builtin_IB_lsc_load_private_uint(&y, 0); }"] {
        let spirv = clang::compile_text(declared, &["-O2", "-w"]);
        let mut module = parse::parse(&spirv, &[]).unwrap_or_else(|error| panic!("{error}"));
        let why = check::check(&mut module).expect_err(declared).to_string();
        assert!(why.contains("which the module only imports"), "{why}");
    }
}
