// SPDX-License-Identifier: MIT OR Apache-2.0
//! Places that wrap around: the low bits of an `int` or a `uint` that grows from item to item.

use tally_compiler::widen::widen;

use crate::diff::{Input, same};
use crate::harness::Grid;
use crate::widen::{int, ints, wide};

/// Reads and writes in vectors that wrap around and in others, at places in front of the buffer's middle and behind it.
#[test]
fn rings_of_elements_wrap_around_in_the_midst_of_a_vector() {
    let kinds = [("int", "int"), ("int", "uchar"), ("uint", "long"), ("uint", "float")];
    for (number, ty) in kinds {
        let module = wide(&format!(
            "kernel void k(global int *out, global int *to, int m, int from, local {ty} *t) {{
               int g = get_global_id(0), l = get_local_id(0);
               for (int i = l; i < 512; i += 64) t[i] = i * 37 % 101;
               barrier(CLK_LOCAL_MEM_FENCE);
               local {ty} *mid = t + 256; global int *there = to + 256;
               int s = 1; {number} at = ({number})l + from;
               for (int k = 0; k < 9; k++, at += 5) s = s * 3 + (int)mid[at & m];
               if (g % 5 != 3) s = s * 3 + (int)mid[(2 * ({number})l + from) & m];
               if (g % 5 < 3) s = s * 3 + (int)t[(({number})l + from) & 127];
               // Items that share a place write the same.
               if (g < 64 && g % 5 != 2) there[(({number})l + from) & m] = m + 7;
               out[g] = s;
             }}"
        ));
        for (m, from) in [(255, 50), (127, -100), (0x5f, 9), (31, i32::MAX - 20), (7, 1)] {
            let local = Input::Local(512 * 8);
            let inputs = [ints(128, |_| 0), ints(512, |i| -i), int(m), int(from), local];
            let context = format!("{number}, {ty}, & {m:#x} from {from}");
            same(&module, "k", Grid::line(128, 64), &inputs, &context);
        }
        // All bits, or all but a few: of an `int`, numbers below 0 stay such ones.
        if ty == "int" {
            for (m, from) in [(-1, -8), (-33, 0), (-33, -90)] {
                let local = Input::Local(512 * 8);
                let inputs = [ints(128, |_| 0), ints(512, |i| -i), int(m), int(from), local];
                let context = format!("{number}, {ty}, & {m:#x} from {from}");
                same(&module, "k", Grid::line(128, 64), &inputs, &context);
            }
        }
    }
}

/// Masked numbers that are extended in two ways, or that are more than places.
#[test]
fn masked_numbers_are_more_than_places() {
    let module = wide(
        "kernel void k(global int *out, global const int *in, int m, int from) {
           int g = get_global_id(0), p = (g + from) & m; global const int *mid = in + 128;
           int s = mid[p];
           if (g % 3 == 1) s = s * 3 + mid[(uint)p & 127];
           out[g] = s * 5 + p;
         }",
    );
    let both = wide(
        "kernel void k(global int *out, global const int *in, int m, int from) {
           int g = get_global_id(0), p = (g + from) & m;
           ulong far = (uint)p; long near = p; global const int *mid = in + 128;
           out[g] = mid[near] * 3 + mid[far];
         }",
    );
    for (m, from) in [(63, 3), (127, 50), (31, 9), (0, 4), (0x5f, 9)] {
        for module in [&module, &both] {
            let inputs = [ints(128, |_| 0), ints(512, |i| i * 37 % 101), int(m), int(from)];
            same(module, "k", Grid::line(128, 64), &inputs, &format!("& {m:#x} from {from}"));
        }
    }
}

/// Scalars tell whether a vector wraps around, unless a constant mask has room for hardly more than one vector; those
/// that wrap around may be close.
#[test]
fn scalars_tell_whether_places_wrap_around() {
    let has = |place: &str| {
        let module = wide(&format!(
            "kernel void k(global int *out, global const int *in, int m) {{
               int i = get_local_id(0); uint u = i;
               out[get_global_id(0)] = in[{place}]; }}"
        ));
        let widened = widen(&module, &module.kernels[0], 16).expect("a plain kernel");
        let text = widened.module.function_text(widened.function).to_string();
        ["uge", "in_line", "gather_close"].map(|it| text.contains(it))
    };
    for place in ["(i + m) & 2047", "(u + m) & 2047", "(i + 3) & m", "(u + m) & (m - 1)"] {
        assert_eq!(has(place), [true, false, true], "{place}");
    }
    assert_eq!(has("(i + m) & 15"), [false, true, true]);
    assert_eq!(has("(i + m) & 31"), [true, false, true]);
    assert_eq!(has("(in[i] + m) & 2047"), [false, false, false]);
}
