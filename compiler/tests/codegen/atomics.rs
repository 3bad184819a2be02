// SPDX-License-Identifier: MIT OR Apache-2.0
//! Atomic updates that the items of a vector do together: with and without results, of one place and of
//! several, by all items and by some.

use tally_compiler::ir::{Module, Op};
use tally_compiler::{lower, widen};

use crate::diff::{compare_at, same_at};
use crate::harness::{Grid, Kernel, targets, widths};
use crate::widen::{int, ints, wide};

/// Each operation on one place of global and of local memory. What comes before an item's update is that of
/// the items before it, as in the interpreter.
#[test]
fn updates_of_one_place_by_all_or_some() {
    let operations = ["add", "sub", "min", "max", "and", "or", "xor"];
    let updates: String = operations
        .iter()
        .enumerate()
        .map(|(n, op)| {
            // A place for each, since the interpreter's items run one after the other.
            let (p, t) = (format!("p[{n} * 3"), format!("t[{n} * 2"));
            format!(
                "x ^= atomic_{op}(&{p}], x) * 3;
                 if (x & 4) x += (int)atomic_{op}((global uint *)&{p} + 1], (uint)x >> 3);
                 atomic_{op}(&{p} + 2], x | 1); if (x & 2) atomic_{op}(&{t}], 5);
                 x ^= atomic_{op}(&{t} + 1], (x >> {n}) + 2);\n"
            )
        })
        .collect();
    let module = wide(&format!(
        "kernel void one(global int *p, global int *io, local int *t) {{
           int i = get_global_id(0), x = io[i];
           if (get_local_id(0) < 14) t[get_local_id(0)] = i;
           barrier(CLK_LOCAL_MEM_FENCE);
           {updates}
           barrier(CLK_LOCAL_MEM_FENCE);
           io[i] = x ^ t[i % 14];
         }}"
    ));
    let args =
        [ints(21, |i| i.wrapping_mul(0x1234_5671)), ints(80, |i| i.wrapping_mul(0x3c6e_f35f)), {
            crate::diff::Input::Local(56)
        }];
    for group in [16, 20, 40] {
        compare_at(&widths(), &module, "one", &[(Grid::line(80, group), args.to_vec())])
            .unwrap_or_else(|how| panic!("groups of {group}: {how}"));
    }
}

/// Addresses that differ, that turn out to be the same, and both among the items that run.
#[test]
fn updates_of_places_that_may_be_the_same() {
    let module = wide(
        "kernel void places(global int *p, global const int *at, global const int *x, int n) {
           int i = get_global_id(0);
           atomic_add(&p[at[i]], x[i]);
           atomic_xor(&p[at[i] + 40], x[i] + i);
           atomic_max(&p[80 + at[i]], x[i]);
           atomic_max((global uint *)&p[320 + at[i]], (uint)x[i] * 0x9e3779b9u);
           if (x[i] > n) {
             atomic_sub(&p[120 + at[i]], x[i]);
             atomic_min((global uint *)&p[160 + at[i]], (uint)x[i]);
             atomic_min(&p[200 + (i & 15)], x[i]);
             atomic_max(&p[220 + i], i);
           }
         }",
    );
    type Places = fn(i32) -> i32;
    let places: [Places; 4] = [|_| 7, |i| i % 40, |i| i / 16, |i| (i % 7 == 3).into()];
    for at in places {
        for n in [-100, 0, 90, 200] {
            let args =
                [ints(360, |i| i * 5 - 30), ints(96, at), ints(96, |i| i * 37 % 211 - 100), int(n)];
            same_at(&widths(), &module, "places", Grid::line(96, 24), &args, "");
        }
    }
}

/// Exchanges that compare with a value that all items share: most fail, all fail, none fails; several at one place.
#[test]
fn exchanges_that_compare_with_one_value() {
    let module = wide(
        "kernel void attempts(global int *p, global const int *at, global int *x, int n) {
           int i = get_global_id(0), v = x[i];
           v += atomic_cmpxchg(&p[at[i]], n, i) * 3;
           if (v & 1) v ^= atomic_cmpxchg((global uint *)&p[at[i] + 40], 7u, (uint)v) + 1;
           if (atomic_cmpxchg(&p[80 + i], 5, v) == 5) v += 100;
           atomic_cmpxchg(&p[180], n, v);
           for (int k = 0; k < 3 && atomic_cmpxchg(&p[200 + i * 3 + k], 0, v) != 0; k++) v++;
           x[i] = v;
         }",
    );
    let wide = widen::widen(&module, &module.kernels[0], 16).expect("a plain kernel");
    let blocks = wide.module.functions[wide.function].blocks.iter();
    let reads = |op: &Op| matches!(op, Op::Gather(_, _, access) if access.volatile);
    let all = blocks.flat_map(|(_, block)| &block.insts).filter(|inst| reads(&inst.op)).count();
    assert!(all >= 2, "places are read first");
    type Places = fn(i32) -> i32;
    let places: [Places; 4] = [|_| 7, |i| i % 40, |i| i / 16, |i| (i % 7 == 3).into()];
    let held: [Places; 4] = [|_| 0, |i| i % 9, |_| 5, |i| (i % 3) * 5];
    for (at, held) in places.into_iter().zip(held) {
        for n in [0, 5, 9] {
            let args = [ints(490, held), ints(96, at), ints(96, |i| i * 37 % 211 - 100), int(n)];
            same_at(&widths(), &module, "attempts", Grid::line(96, 24), &args, "");
        }
    }
}

/// The places come from memory that the items write before they update them.
#[test]
fn places_are_those_from_before_a_write() {
    let module = wide(
        "kernel void places(global int *p, global int *at, global const int *x) {
           int i = get_global_id(0), place = at[i];
           at[i] = place ^ 31;
           atomic_add(&p[place], x[i]);
           atomic_max(&p[32 + place + 1], x[i]);
         }",
    );
    let places: [fn(i32) -> i32; 3] = [|i| i % 32, |i| i * 5 % 32, |i| i / 16];
    for at in places {
        let args = [ints(72, |i| i * 5 - 30), ints(96, at), ints(96, |i| i * 37 % 211 - 100)];
        same_at(&widths(), &module, "places", Grid::line(96, 24), &args, "");
    }
}

/// An update that no item does leaves alone even memory that is not there.
#[test]
fn updates_that_no_item_does_touch_nothing() {
    let module = wide(
        "kernel void none(global int *p, global const int *x, ulong far) {
           int i = get_global_id(0);
           if (x[i] == 12345) {
             atomic_add(p + far, x[i]);
             atomic_max(p + far + x[i], i);
             atomic_or(p + far * x[i], i);
           }
         }",
    );
    let far = crate::diff::Input::Value((1u64 << 44).to_le_bytes().to_vec());
    let args = [ints(4, |i| i), ints(64, |i| i), far];
    same_at(&widths(), &module, "none", Grid::line(64, 32), &args, "");
}

/// Places that are found in front of a loop, and updates that only some vectors' items do in it. The number of the
/// last item that does one is made even where none does, and has to be one of a vector's.
#[test]
fn updates_of_places_that_a_loop_does_not_change() {
    let module = wide(
        "kernel void turns(global int *p, global const int *x, local int *t, int n) {
           int i = get_global_id(0), l = get_local_id(0), sum = 0;
           t[l] = 3 * l;
           int at = i / (n + 1) & 1;
           for (int k = 0; k < 12; k++) {
             sum += x[min(k, n)];
             if (l == 0) atomic_add(&p[at], x[12 * i + k] & 255);
           }
           p[2 + i] = sum;
         }",
    );
    for n in [1, 8, 40] {
        let args = [
            ints(130, |_| 0),
            ints(12 * 128, |i| i * 29 % 1000),
            crate::diff::Input::Local(256),
            int(n),
        ];
        same_at(&widths(), &module, "turns", Grid::line(128, 64), &args, "");
    }
    let kernel = &module.kernels[0];
    let widened = widen::widen(&module, kernel, 32).expect("it is widened");
    let text = lower::lower_widened(&widened, kernel).expect("it is small").text;
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("declare")).collect();
    let asks = |line: &&str| line.contains("llvm.ctlz.i32(i32 ");
    assert!(lines.iter().any(asks));
    for at in (0..lines.len()).filter(|&at| asks(&lines[at])) {
        // The mask with its first bit set, which is made right in front of that.
        let (mask, made) = lines[at - 1].trim_start().split_once(" = ").expect("a value");
        assert!(lines[at].contains(&format!("(i32 {mask}, ")), "{}", lines[at]);
        assert!(made.starts_with("or i32 ") && made.ends_with(", 1"), "{made}");
    }
}

/// Results of updates that some items do, of places that differ, with values and places of each form: the same for all,
/// a step apart, computed, and loaded.
#[test]
fn items_that_update_get_what_was_there() {
    for (space, ty) in [("global", "int"), ("local", "int"), ("global", "long"), ("local", "ulong")]
    {
        let name = if ty.contains("long") { "atom" } else { "atomic" };
        let module = wide(&format!(
            "#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
             #pragma OPENCL EXTENSION cl_khr_int64_extended_atomics : enable
             kernel void k(global {ty} *p, global const int *at, global {ty} *out, local {ty} *t) {{
               int i = get_global_id(0), l = get_local_id(0), j = at[i];
               for (int k = 0; k < 8; k++) t[k * get_local_size(0) + l] = p[k * 80 + i];
               barrier(CLK_LOCAL_MEM_FENCE);
               {space} {ty} *q = {};
               int own = {}, n = {};
               {ty} x = out[i], sum = 0;
               if (j % 3) sum = {name}_xchg(&q[own], x);
               if (x > 50) {{
                 sum += {name}_add(&q[n + l], 3 * i) + {name}_cmpxchg(&q[2 * n + own], ({ty})own, x);
                 sum ^= {name}_min(&q[3 * n + own], x - 20) * 3;
               }}
               sum += {name}_max(&q[4 * n + own], x) + {name}_max(&q[5 * n + own], ({ty})(i + 30));
               if (j & 1) sum -= {name}_or(&q[6 * n + own], x) ^ {name}_xchg(&q[7 * n + 0], x);
               out[i] = sum;
               barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
               for (int k = 0; k < 8; k++) if (\"{space}\"[0] == 'l') p[k * 80 + i] = t[k * get_local_size(0) + l];
             }}",
            if space == "global" { "p" } else { "t" },
            if space == "global" { "j" } else { "j % get_local_size(0)" },
            if space == "global" { "80" } else { "get_local_size(0)" },
        ));
        let size = if ty.contains("long") { 2 } else { 1 };
        let numbers =
            |n: i32| ints(n * size, |i| if i % size == 0 { i / size * 29 % 101 } else { 0 });
        for group in [16, 40, 20] {
            // Places of their own in each group.
            let at = ints(80, |i| i / group * group + (i * 7 + 3) % group);
            let args = [
                numbers(640),
                at,
                numbers(80),
                crate::diff::Input::Local((8 * group * 4 * size) as usize),
            ];
            compare_at(&widths(), &module, "k", &[(Grid::line(80, group as u32), args.to_vec())])
                .unwrap_or_else(|how| panic!("{space} {ty}, groups of {group}: {how}"));
        }
    }
}

/// The updates in a kernel that is widened to 16 items.
fn updates(module: &Module) -> usize {
    let widened = widen::widen(module, &module.kernels[0], 16).expect("it is widened");
    let function = &widened.module.functions[widened.function];
    let insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
    insts.filter(|inst| matches!(inst.op, Op::AtomicRmw(..))).count()
}

#[test]
fn one_update_serves_all_items_of_a_vector() {
    let of = |update: &str| {
        updates(&wide(&format!(
            "kernel void k(global int *p, global float *f, global int *x) {{
               int i = get_global_id(0); {update} }}"
        )))
    };
    assert_eq!(of("atomic_add(p, x[i]);"), 1);
    assert_eq!(of("if (x[i] > 3) x[i] = atomic_inc(p);"), 1);
    assert_eq!(of("atomic_max(&p[get_group_id(0)], x[i]);"), 1);
    // One for all, and one for each.
    assert_eq!(of("atomic_add(&p[x[i]], 1);"), 17);
    assert_eq!(of("atomic_add(&p[i], 1);"), 16);
    assert_eq!(of("x[i] = atomic_add(&p[x[i]], 1);"), 16);
    // Each item has an old value of its own.
    assert_eq!(of("x[i] = atomic_xchg(p, x[i]);"), 16);
}

/// Updates of local memory are no atomic instructions, and processors mispredict many of them behind each other.
#[test]
fn items_update_local_memory_in_a_loop() {
    let of = |update: &str| {
        updates(&wide(&format!(
            "kernel void k(global int *x, local int *p, int n) {{
               for (int k = 0; k < n; k++) {{ int i = 64 * k + get_local_id(0); {update} }} }}"
        )))
    };
    // The loop may have copies.
    assert!(of("atomic_inc(&p[x[i]]);") <= 3);
    assert!(of("atomic_inc(&p[x[i] & 255]); atomic_max(&p[256 + (x[i] >> 8)], i);") <= 6);
    assert!(of("x[i] = atomic_inc(&p[x[i]]);") <= 3);
    // Kernels without loops have one update of many others.
    let once = |update: &str| {
        let text = "kernel void k(global int *x, local int *p) { int i = get_global_id(0);";
        updates(&wide(&format!("{text} {update} }}")))
    };
    assert_eq!(once("atomic_inc(&p[x[i]]);"), 16);
}

/// The comparison of the first test detects values that are combined wrongly.
#[test]
fn a_wrong_combination_shows() {
    let module = wide(
        "kernel void k(global int *p, global int *io) {
           int i = get_global_id(0);
           io[i] = atomic_add(p, io[i]);
         }",
    );
    let target = targets().pop().expect("the oldest is always there");
    let args = vec![ints(1, |_| 3), ints(32, |i| i * i + 1)];
    let agrees = |fault: &dyn Fn(&mut Op)| {
        let kernel = Kernel::with_fault(&module, "k", &target, 16, fault).expect("it is widened");
        crate::diff::compare_with(&kernel, &module, "k", &[(Grid::line(32, 32), args.clone())])
            .is_ok()
    };
    assert!(agrees(&|_| {}));
    let wrong = |op: &mut Op| {
        if let Op::Shuffle(_, _, pick) = op {
            pick.rotate_left(1);
        }
    };
    assert!(!agrees(&wrong));
}
