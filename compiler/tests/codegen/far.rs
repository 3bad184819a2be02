// SPDX-License-Identifier: MIT OR Apache-2.0
//! Items that read rows at computed places. The buffers begin and end at inaccessible pages.

use tally_compiler::widen::widen;

use crate::diff::same;
use crate::harness::Grid;
use crate::widen::{int, ints, wide};

const ITEMS: i32 = 96;

/// A sum of a row's elements at a place, if a test holds.
fn kernel(place: &str, turns: usize, test: &str) -> String {
    format!(
        "kernel void k(global int *out, global const int *in, int w, int h) {{
           uint i = get_global_id(0); int s = 0;
           if ({test}) {{
             for (int k = 0; k < {turns}; k++) s += in[{place}] * (k + 1);
             out[i] = s; }} }}"
    )
}

/// Whether each element is read behind a test of its own.
fn is_tested(place: &str, turns: usize) -> bool {
    let module = wide(&kernel(place, turns, "true"));
    let widened = widen(&module, &module.kernels[0], 16).expect("a plain kernel");
    widened.module.function_text(widened.function).to_string().contains("in_line")
}

#[test]
fn rows_at_quotients_are_read_as_rows() {
    for place in [
        "i / 2 + k",
        "i * 147 / 160 + k",
        "(size_t)(i / w) * h + k",
        "5 + (size_t)(i >> 3) * 9 + k",
        "i / 3 * 2 + k",
    ] {
        assert!(!is_tested(place, 8), "{place}");
    }
    // Few elements, and what may be in line.
    assert!(is_tested("i / 2 + k", 3));
    for place in ["i / w * h + i % w + k", "i / 1000 * 1016 + i % 1000 + k"] {
        assert!(is_tested(place, 8), "{place}");
    }
}

#[test]
fn rows_at_multiples_are_read_as_rows() {
    for place in
        ["i * 147 % 160 * 16 + k", "(i % w) * 8 + k", "((i ^ 5) % 7 << 3) + 8 * (i / 9) + k"]
    {
        assert!(!is_tested(place, 8), "{place}");
        assert!(!is_tested(place, 4), "{place}");
    }
    for place in ["i * 147 % 160 * 4 + k", "(i % w) * h + k", "((i ^ 5) % 7 << 3) + i % 5 + k"] {
        assert!(is_tested(place, 4), "{place}");
    }
}

/// Rows that end where memory does.
#[test]
fn rows_at_computed_places_are_what_they_were() {
    for (place, count) in [
        ("i / 2 + k", 48 + 8),
        ("(size_t)(i / w) * h + k", 31 * 5 + 9),
        ("i * 147 / 160 + k", 88 + 8),
        ("i * 147 % 160 * 16 + k", 159 * 16 + 9),
        ("(i % w) * 8 + k", 3 * 8),
    ] {
        for test in ["true", "i % 3 == 1", "i / 7 % 2 == 0", "i < h"] {
            let module = wide(&kernel(place, 8, test));
            let inputs = [ints(ITEMS, |_| 7), ints(count, |i| i % 61), int(3), int(5)];
            same(
                &module,
                "k",
                Grid::line(ITEMS as u64, 48),
                &inputs,
                &format!("{place} if {test}"),
            );
        }
    }
}
