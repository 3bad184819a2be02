// SPDX-License-Identifier: MIT OR Apache-2.0
//! Volatile accesses and relaxed atomic loads and stores of a vector of items: each item does each of them, once, where
//! it stands in the program.

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use tally_compiler::ir::Module;

use crate::diff::{Input, same};
use crate::harness::{Grid, Kernel, buffer, targets, widths};
use crate::widen::{ints, wide};
use crate::work::optimised_module;

/// All arrangements of addresses, with and without masks, of numbers of all sizes, vectors and structures.
#[test]
fn items_access_what_they_would_alone() {
    for ty in [
        "char",
        "ushort",
        "int",
        "long",
        "float",
        "double",
        "int2",
        "float4",
        "short4",
        "struct two",
    ] {
        let module = wide(&format!(
            "struct two {{ int a; short b; }};
             typedef {ty} value;
             kernel void k(volatile global value *p, global const int *at, volatile global value *out,
                           volatile local value *t) {{
               int i = get_global_id(0), l = get_local_id(0), j = at[i];
               value x = p[i], y = p[j];
               t[l] = x;
               t[40 + l] = p[i + 1];
               barrier(CLK_LOCAL_MEM_FENCE);
               out[4 * i] = p[2 * i + 1];
               out[4 * i + 1] = t[l];
               if (j % 3) {{
                 out[4 * i + 2] = y;
                 t[40 + (l ^ 5)] = p[79 - i];
                 y = p[get_group_id(0)];
                 out[4 * (j ^ 1) + 3] = y;
               }}
               if (i < 55)
                 p[160 + i] = x;
               barrier(CLK_LOCAL_MEM_FENCE);
               p[240 + 3 * i] = t[40 + l];
             }}"
        ));
        let bytes = |n: i32| {
            // No bit pattern that is no number as a float.
            let one = |i: i32| (i.wrapping_mul(0x9e37_79b9_u32 as i32) & 0x3f7f_3f7f).to_le_bytes();
            Input::bytes((0..n).flat_map(one).collect())
        };
        let at = ints(80, |i| (i * 37 + 11) % 80);
        let args = [bytes(480 * 4), at, bytes(4 * 80 * 4), Input::Local(80 * 16)];
        for group in [40, 16] {
            same(&module, "k", Grid::line(80, group), &args, ty);
        }
    }
}

/// Items that write to one place after another, and read what they wrote.
#[test]
fn accesses_of_an_item_keep_their_order() {
    let module = wide(
        "kernel void k(volatile global int *p, global const int *at) {
           int i = get_global_id(0), j = at[i], sum = 0;
           for (int n = 0; n < (i & 7) + 2; n++) {
             p[j] = n * n;
             sum = 3 * sum + p[j];
             p[j + 80] = p[j] + sum;
             atomic_store_explicit((volatile global atomic_int *)&p[j], sum, memory_order_relaxed, memory_scope_device);
             sum ^= atomic_load_explicit((volatile global atomic_int *)&p[j + 80], memory_order_relaxed,
                                         memory_scope_device);
             sum += atomic_load_explicit((volatile global atomic_int *)&p[j], memory_order_relaxed, memory_scope_device);
           }
           p[160 + i] = sum;
         }",
    );
    same(
        &module,
        "k",
        Grid::line(80, 40),
        &[ints(240, |i| i), ints(80, |i| (i * 37 + 11) % 80)],
        "",
    );
}

/// What LLVM makes of a kernel for 16 items.
fn optimised(module: &Module) -> String {
    optimised_module(module, "x86-64-v4", 16).0
}

/// None is removed, though nothing uses what it loads or what it stores is overwritten, and none is taken for another one.
#[test]
fn there_are_as_many_accesses_as_in_the_program() {
    let count = |qualifier: &str| {
        let module = wide(&format!(
            "kernel void k({qualifier} global int *p, global const int *at, global int *out) {{
               int i = get_global_id(0), j = at[i];
               p[j];
               int a = p[j], b = p[j];
               p[j + 64] = 1;
               p[j + 64] = 2;
               if (a > 3) {{ p[i]; b += p[i] * p[i]; p[i] = 7; p[i] = 8; }}
               out[i] = a + b;
             }}"
        ));
        let text = optimised(&module);
        ["masked.gather.", "masked.scatter.", "masked.load.", "masked.store."].map(|name| {
            let calls = |line: &&str| line.contains("call ") && line.contains(name);
            text.lines().filter(calls).count()
        })
    };
    // Loads that nothing uses are those of single items.
    assert_eq!(count("volatile"), [2, 2, 2, 2]);
    assert_eq!(count(""), [1, 1, 1, 1]);
}

/// An update that never changes anything reads what is there, as a program may that waits for other items.
#[test]
fn updates_that_change_nothing_read_each_time() {
    let module = wide(
        "kernel void k(global uint *p, global const int *at, global uint *out) {
           int i = get_global_id(0), j = at[i];
           uint seen = atomic_max(&p[j], 0u);
           out[i] = seen + atomic_max(&p[j], 0u);
         }",
    );
    let text = optimised(&module);
    let gathers =
        text.lines().filter(|line| line.contains("call ") && line.contains("masked.gather."));
    assert_eq!(gathers.count(), 2);
}

/// A loop sees what another thread writes meanwhile. It ends after some seconds if it does not.
#[test]
fn loops_see_what_others_write() {
    let explicit = "atomic_load_explicit((volatile global atomic_int *)&p[j], memory_order_relaxed, memory_scope_device)";
    for read in ["p[j]", explicit] {
        let module = wide(&format!(
            "kernel void k(volatile global int *p, global const int *at, global int *out) {{
               int i = get_global_id(0), j = at[i], seen = 0, n = 0, last;
               do {{
                 last = p[16];
                 seen |= {read};
               }} while (!last && ++n < 50000000);
               out[i] = seen;
             }}"
        ));
        let target = targets().pop().expect("the oldest is always there");
        let mut all = vec![target.clone()];
        all.extend(
            widths().into_iter().map(|(target, _)| target).find(|it| it.name == "x86-64-v4"),
        );
        for target in all {
            let kernel = Kernel::with_lanes(&module, "k", &target, 16);
            let places: Vec<AtomicI32> = (0..17).map(|_| AtomicI32::new(0)).collect();
            let mut at: Vec<i32> = (0..16).map(|i| i * 5 % 16).collect();
            let mut out = vec![0i32; 16];
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(50));
                    places.iter().for_each(|place| place.store(7, Ordering::Relaxed));
                });
                // SAFETY: the kernel reads the numbers as other threads do, and lives no longer than they.
                let shared = unsafe {
                    std::slice::from_raw_parts_mut(places.as_ptr().cast::<u8>().cast_mut(), 68)
                };
                let args =
                    vec![crate::harness::Arg::Buffer(shared), buffer(&mut at), buffer(&mut out)];
                kernel.run(Grid::line(16, 16), args);
            });
            assert_eq!(out, [7; 16], "{read} for {}", target.name);
        }
    }
}
