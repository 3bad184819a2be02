// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accesses that are remembered as rows of a block of memory (`rt/rows.h`): races are found whatever the shape of the
//! rows is, and whatever is left out because enough is remembered.

use super::harness::{Arg, Grid, Kernel, value};
use super::races::{World, in_widths, pair, try_pairs_in};

/// Rows are what vectors access, so two widths of optimised kernels show them.
fn in_rows(text: &str, run: impl Fn(&mut World, &Kernel, u32)) {
    in_widths(text, &["-O2"], |lanes| lanes == 8 || lanes == 32, run);
}

fn try_pairs(body: &str, grid: Grid, is_pair: impl Fn(u32, u32) -> bool) {
    try_pairs_in(body, grid, is_pair, |text, run| in_rows(text, run));
}

fn is_next(a: u32, b: u32) -> bool {
    b - a == 1 || b - a == 63
}

/// Items in one row, of numbers of each size.
#[test]
fn races_of_numbers_of_each_size_are_told() {
    let (local, global) = (("local", "s"), ("global", "a + 4096 + get_group_id(0) * 256"));
    for (ty, (memory, base)) in
        [("uchar", local), ("ushort", global), ("ulong", local), ("uint4", global)]
    {
        let part = if ty == "uint4" { ".x" } else { "" };
        let body = format!(
            "{memory} {ty} *t = ({memory} {ty} *)({base});
            t[i] = ({ty})g; BARRIER a[g] = (int)t[(i + 1) % 64]{part};"
        );
        try_pairs(&body, Grid::line(256, 64), is_next);
    }
}

/// Words with a step, and columns: an item writes what another one reads. Or the addresses go on elsewhere.
#[test]
fn races_of_words_with_a_step_are_told() {
    for step in [2, 5] {
        let body = format!("s[i * {step}] = g; BARRIER a[g] = s[(i + 1) % 64 * {step}];");
        try_pairs(&body, Grid::line(256, 64), is_next);
    }
    let body = "int x = i % 8, y = i / 8; s[y * 9 + x] = g; BARRIER a[g] = s[x * 9 + y];";
    try_pairs(body, Grid::line(256, 64), |a, b| b == a % 8 * 8 + a / 8);
}

/// Items of which the last ones access what lies at the beginning.
#[test]
fn races_of_rows_in_pieces_are_told() {
    let body = "local uchar *t = (local uchar *)s; t[(i + 5) & 63] = g; BARRIER a[g] = t[i];";
    try_pairs(body, Grid::line(256, 64), |a, b| b - a == 5 || b - a == 59);
}

/// Of many reads of a byte two are remembered. A write by one of the two items races with the other.
#[test]
fn writes_race_with_reads_of_which_enough_is_remembered() {
    for ty in ["uchar", "uint"] {
        let body = format!(
            "local {ty} *t = (local {ty} *)s;
            t[i] = ({ty})g; barrier(CLK_LOCAL_MEM_FENCE);
            int sum = t[i] + t[(i + 1) % 64] + t[(i + 2) % 64] + t[(i + 3) % 64];
            BARRIER t[i] = ({ty})sum; a[g] = t[i];"
        );
        try_pairs(&body, Grid::line(256, 64), |a, b| b - a <= 3 || b - a >= 61);
    }
    // Items that read one address, and one that writes it; an atomic looks at the word by itself.
    for writes in ["s[7] = sum", "atomic_inc(s + 7)"] {
        for writer in [0, 1, 63] {
            let body = format!(
                "s[i] = g; barrier(CLK_LOCAL_MEM_FENCE); int sum = s[7] + s[8];
                BARRIER if (i == {writer}) {writes}; a[g] = sum;"
            );
            try_pairs(&body, Grid::line(256, 64), |a, b| a == writer || b == writer);
        }
    }
}

/// What one group writes, all have read; they remember it together.
#[test]
fn groups_race_with_reads_of_which_enough_is_remembered() {
    for ty in ["uchar", "uint"] {
        let text = format!(
            "kernel void k(global {ty} *a, global int *o, int writer) {{
                int i = get_local_id(0), g = get_global_id(0), w = get_group_id(0);
                int sum = a[i] + a[(i + 1) % 64] + a[3];
                barrier(CLK_GLOBAL_MEM_FENCE);
                sum += a[i];
                if (w == writer) a[i] = ({ty})sum;
                o[g] = sum;
            }}"
        );
        in_rows(&text, |world, kernel, lanes| {
            let grid = Grid::line(256, 64);
            for writer in [3, 0, -1, 1] {
                let args = vec![world.at(4096), world.at(8192), value(writer)];
                let (races, _) = world.run(kernel, grid, args);
                assert_eq!(!races.is_empty(), writer >= 0, "{ty} {lanes}: {races:?}");
                for race in races {
                    let mine = |group: u32| group == writer as u32;
                    assert!(mine(race.later.group) != mine(race.earlier.group), "{race:?}");
                    assert!((4096..4096 + 256).contains(&race.at));
                }
                assert!(!world.has_dropped());
            }
        });
    }
}

/// Memory that is looked at word by word, because of atomics or of too many rows, and in rows again.
#[test]
fn races_between_rows_and_words_are_told() {
    for before in [
        "atomic_inc(s + i / 2);",
        "s[(i * 13 + 5) % 64] += 1; barrier(CLK_LOCAL_MEM_FENCE); s[(i * 7) % 64] += 1;",
    ] {
        let body = format!(
            "s[i] = 0; barrier(CLK_LOCAL_MEM_FENCE); {before} barrier(CLK_LOCAL_MEM_FENCE);
            s[i] = g; BARRIER a[g] = s[(i + 1) % 64];"
        );
        try_pairs(&body, Grid::line(256, 64), is_next);
    }
    let body = "s[i] = 0; BARRIER if (i < 32) atomic_inc(s + 63 - i); a[g] = 0;";
    try_pairs(body, Grid::line(256, 64), |a, b| a + b == 63);
    // Any order of items: no rows.
    let body = "s[i] = 0; BARRIER a[g] = s[(i * 13 + 5) % 64];";
    try_pairs(body, Grid::line(256, 64), |a, b| b == (a * 13 + 5) % 64 || a == (b * 13 + 5) % 64);
}

/// Stores of equal values by rows.
#[test]
fn rows_of_equal_values_are_not_told() {
    let text = "kernel void k(global int *a, int each) {
        int i = get_local_id(0), w = get_group_id(0);
        a[i] = 7 + i + w * each;
    }";
    in_rows(text, |world, kernel, lanes| {
        let grid = Grid::line(256, 64);
        let args = |world: &World, each: i32| vec![world.at(4096), value(each)];
        assert_eq!(world.run(kernel, grid, args(world, 0)).0, [], "{lanes}");
        let (races, _) = world.run(kernel, grid, args(world, 1));
        assert!(!races.is_empty(), "{lanes}");
        for race in races {
            assert_eq!(race.at, 4096 + 4 * u64::from(race.later.item), "{lanes}");
            assert_eq!(pair(&race).0, pair(&race).1, "{lanes}");
        }
    });
}

/// Of many reads of one word two items are remembered, and both stay when the word's accesses are remembered one by
/// one: the first one's write races with the second one's read alone.
#[test]
fn the_second_item_that_has_read_a_word_is_remembered() {
    let text = "kernel void k(global int *a, local int *s) {
        int i = get_local_id(0);
        a[i] = s[3];
        if (i == 0)
            s[3] = 1;
    }";
    in_widths(
        text,
        &["-O2"],
        |lanes| lanes > 1,
        |world, kernel, lanes| {
            let args = vec![world.at(4096), Arg::Local(4096)];
            let (races, _) = world.run(kernel, Grid::line(lanes.into(), lanes), args);
            let items: Vec<_> = races.iter().map(|it| (it.later.item, it.earlier.item)).collect();
            assert_eq!(items, [(0, 1)], "{lanes}");
        },
    );
}
