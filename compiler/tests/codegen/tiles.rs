// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels that also have a function for tiles of several rows, since items access memory side by side in two dimensions.

use tally_compiler::ir::Module;
use tally_compiler::widen::{lanes, widen, widen_twice};
use tally_compiler_protocol::Form;

use crate::diff::{Input, Random, Run, compare_with, same_in_all};
use crate::harness::{Grid, Kernel, buffer, clang, module, targets, value};
use crate::programs::seeds;
use crate::widen::{int, wide};

/// The rows of a kernel's tiles.
fn heights(module: &Module) -> Vec<u32> {
    let kernel = &module.kernels[0];
    let widened = widen(module, kernel, lanes(kernel)).expect("a plain kernel");
    widened.tiles.into_iter().map(|(_, height)| height).collect()
}

/// Groups with room for tiles of either height, with and without rows and items that are left over, and some that join.
const GROUPS: [[u32; 3]; 8] = [
    [16, 16, 1],
    [32, 8, 1],
    [16, 29, 1],
    [20, 17, 1],
    [8, 16, 1],
    [10, 9, 1],
    [4, 32, 1],
    [64, 4, 1],
];

/// Launches of a matrix with `w` columns and `h` rows, all of whose items have a place with an offset.
const SIZES: [[i32; 2]; 2] = [[33, 40], [19, 24]];

fn grids() -> impl Iterator<Item = (Grid, [i32; 2])> {
    SIZES.into_iter().flat_map(|size| {
        GROUPS.into_iter().flat_map(move |group| {
            let all = |d: usize| (size[d] as u64).next_multiple_of(group[d].into());
            let global = [all(0), all(1), 1];
            [
                (Grid { offset: [0; 3], global, group }, size),
                (Grid { offset: [3, 5, 0], global, group }, size),
            ]
        })
    })
}

/// A kernel agrees with the interpreter in all launches and forms. The matrix has room for offsets, and for all items
/// where no test keeps them away.
fn same(text: &str, bytes: usize) {
    let module = wide(text);
    let runs: Vec<Run> = grids()
        .map(|(grid, [w, h])| {
            let room = 80 * 64;
            let matrix = |seed: usize| {
                Input::bytes((0..room * bytes).map(|i| (i * 37 % 251 + seed) as u8).collect())
            };
            (grid, vec![matrix(0), matrix(3), int(w), int(h)])
        })
        .collect();
    same_in_all(&module, "k", &runs);
    for target in targets() {
        for form in [Form::Usual, Form::Uneven] {
            let kernel = Kernel::in_form(&module, "k", &target, form).expect("it has both forms");
            compare_with(&kernel, &module, "k", &runs)
                .unwrap_or_else(|how| panic!("{how}\n{text}"));
        }
    }
}

fn kernel(ty: &str, body: &str) -> String {
    format!(
        "kernel void k(global {ty} *o, global const {ty} *a, int w, int h) {{
           int x = get_global_id(0), y = get_global_id(1);
           {body}
         }}"
    )
}

/// Elements of all sizes, and indices of all types.
#[test]
fn matrices_of_all_types_are_transposed() {
    for (ty, bytes) in [("uchar", 1), ("short", 2), ("float", 4), ("double", 8)] {
        let text = kernel(ty, "if (x < w && y < h) o[x * h + y] = a[y * w + x];");
        let module = wide(&text);
        assert_eq!(heights(&module), [16, 8], "{ty}");
        same(&text, bytes);
    }
    for id in ["size_t", "uint", "long"] {
        let text = kernel("int", "").replace("int x =", &format!("{id} x ="));
        let text = text.replace("}", "if (x < w && y < h) o[x * h + y] = a[y * w + x]; }");
        same(&text, 4);
    }
}

/// Tests of all kinds in front of the accesses, and none: some or all rows of a tile pass them.
#[test]
fn rows_that_fail_tests_do_nothing() {
    for body in [
        "o[x * 64 + y] = a[y * 64 + x];",
        "if (x >= w) return; if (y >= h) return; o[x * h + y] = a[y * w + x];",
        "if (x >= w || y >= h) return; o[x * h + y] = a[y * w + x];",
        "if (y < h) { if (x < w) { if (x + y != 40) o[x * h + y] = a[y * w + x]; } }",
        "if (y >= 3 && y < h - 2 && x < w) o[x * h + y] = a[(y - 3) * w + x] + a[(y + 1) * w + x];",
        "if ((y & 7) == 2 && x < w && y < h) o[x * h + y] = a[y * w + x];",
        "if (w > 0 && x < 1000 / w && y < h) o[x * h + y] = a[y * w + x];",
        "if (x > y || x >= w || y >= h) return; o[x * h + y] = a[y * w + x];",
    ] {
        same(&kernel("int", body), 4);
    }
}

/// Rows that run backwards, rows that are read or written in either order, and more than one of each.
#[test]
fn rows_of_all_directions() {
    for body in [
        "if (x < w && y < h) o[x * h + (h - 1 - y)] = a[y * w + x];",
        "if (x < w && y < h) o[(w - 1 - x) * h + y] = a[y * w + x];",
        "if (x < w && y < h) o[y * w + x] = a[x * h + y];",
        "if (x < w && y < h) o[y * w + x] = a[y * w + x] + a[x * h + y];",
        "if (x < w && y < h) o[y * w + x] = a[y * w + x] - 3 * o[x * 64 + y + 1500];",
        "if (x < w && y < h) { int at = x * h + y; o[at] = a[y * w + x]; o[at + 2000] = a[y * w + x] * 5; }",
        "if (x < w && y < h) o[x * h + y] = a[y * w + x] * (int)get_local_id(1) + (int)get_group_id(1);",
        "if (x < w && y < h) o[x * h + y] = a[y * w + x] + a[y] * a[x] + (int)get_local_size(1);",
    ] {
        same(&kernel("int", body), 4);
    }
}

/// An item's own accesses keep their order.
#[test]
fn an_item_sees_what_it_wrote() {
    for body in [
        "if (x < w && y < h) { o[x * h + y] = a[y * w + x]; o[x * h + y] += 2 * o[x * h + y]; }",
        "if (x < w && y < h) { o[x * h + y] = 1; o[x * h + y + (h & 1)] = a[y * w + x]; }",
        "if (x < w && y < h) { int at = x * h + y; o[at] = 1; o[at * w / w] = a[y * w + x]; }",
    ] {
        same(&kernel("int", body), 4);
    }
}

/// All items of a tile read before the first one writes. (In a program that is a race; here it tells that a group was a
/// tile.)
#[test]
fn a_group_is_a_tile() {
    let text = kernel("int", "if (x < w && y < h) o[x * h + y] = a[y * w + x];");
    let module = module(&clang::compile_text(&text, &["-O2", "-w"]));
    for target in targets() {
        for (w, h, group, form) in [
            (16, 16, [16, 16, 1], Form::Usual),
            (16, 8, [16, 8, 1], Form::Usual),
            (16, 16, [16, 16, 1], Form::Uneven),
        ] {
            let mut at: Vec<i32> = (0..w * h).collect();
            let mut same = at.clone();
            let kernel = Kernel::in_form(&module, "k", &target, form).expect("it has both forms");
            let grid = Grid { offset: [0; 3], global: [w as u64, h as u64, 1], group };
            let place = at.as_mut_ptr();
            // Both arguments are the same matrix.
            kernel.run(grid, vec![value(place), value(place), value(w), value(h)]);
            for (i, it) in same.iter_mut().enumerate() {
                let (x, y) = (i as i32 / h, i as i32 % h);
                *it = y * w + x;
            }
            assert_eq!(at, same, "{} {group:?}", target.name);
        }
    }
}

/// A kernel that would also run vectors of twice as many items, since its functions wait for each other, has tiles alone.
#[test]
fn chains_of_functions_run_in_tiles() {
    let text = kernel(
        "float",
        "if (x < w && y < h) o[x * h + y] = exp(sin(cos(exp2(a[y * w + x] * 0.25f))));",
    );
    let module = wide(&text);
    let kernel = &module.kernels[0];
    let widened = widen_twice(&module, kernel, lanes(kernel)).expect("a plain kernel");
    assert!(!widened.tiles.is_empty() && widened.double.is_none());
    for target in targets() {
        let kernel = Kernel::new(&module, "k", &target);
        let grid = Grid { offset: [0; 3], global: [64, 32, 1], group: [64, 16, 1] };
        let mut to = vec![-1f32; 64 * 64];
        let mut from: Vec<f32> = (0..64 * 64).map(|i| i as f32 / 4096.0).collect();
        kernel.run(grid, vec![buffer(&mut to), buffer(&mut from), value(64i32), value(32i32)]);
        for (i, &got) in to[..64 * 32].iter().enumerate() {
            let is = from[i % 32 * 64 + i / 32] * 0.25;
            let wanted = is.exp2().cos().sin().exp();
            assert!((got - wanted).abs() < 1e-5 * wanted, "{} {i}: {got}, {wanted}", target.name);
        }
    }
}

/// A function for tiles is only built where that gains something, and can be told not to change an item's accesses.
#[test]
fn other_kernels_have_no_tiles() {
    let heights = |ty: &str, body: &str| {
        heights(&module(&clang::compile_text(&kernel(ty, body), &["-O2", "-w"])))
    };
    assert_eq!(heights("int", "o[x * h + y] = a[y * w + x];"), [16, 8]);
    for (ty, body) in [
        ("int", "o[y * w + x] = a[y * w + x];"),
        ("int", "o[x * h + y] = a[x * h + y];"),
        ("int", "o[a[x] + y * w] = a[y * w + x];"),
        ("int4", "o[x * h + y] = a[y * w + x];"),
        ("int", "for (int k = 0; k < w; k++) o[x * h + y] += a[k * w + x];"),
        ("int", "o[x * h + y] = a[y * w + x]; o[y] += o[x];"),
        ("int", "if (w != 0 && x / w < 3) o[x * h + y] = a[y * w + x];"),
        ("int", "barrier(1); o[x * h + y] = a[y * w + x];"),
        ("int", "o[x * h + y] = a[y * w + x] + (int)get_global_linear_id();"),
        ("int", "*(volatile global int *)&o[x * h + y] = a[y * w + x];"),
    ] {
        assert_eq!(heights(ty, body), [0; 0], "{body}");
    }
}

/// Places of an item's own in a matrix of 64 x 64: no two items have the same one.
const PLACES: [&str; 6] = [
    "x * 64 + y",
    "y * 64 + x",
    "x * 64 + (63 - y)",
    "(63 - x) * 64 + y",
    "y * 64 + (63 - x)",
    "63 * 64 - x * 64 + y",
];

/// What a random kernel reads besides these.
const OTHERS: [&str; 6] = ["x", "y", "x + y", "(x * 64 + y) / 2", "x * n + y", "y * n + x + 7"];

const TESTS: [&str; 8] = [
    "x < w",
    "y < h",
    "x > 2",
    "y >= 3",
    "x + y < w + h / 2",
    "(x ^ y) % 3 != 0",
    "h - 1 > y",
    "!(y == 5 || x == 17)",
];

fn random_kernel(random: &mut Random) -> (String, usize) {
    let mut of = |list: &[&'static str]| list[random.below(list.len() as u64) as usize];
    let (ty, bytes) = match of(&["uchar", "ushort", "uint", "ulong"]) {
        "uchar" => ("uchar", 1),
        "ushort" => ("ushort", 2),
        "uint" => ("uint", 4),
        _ => ("ulong", 8),
    };
    let id = of(&["int", "uint", "long", "ulong"]);
    let order = of(&["0 1", "1 0"]);
    let mut text = format!(
        "kernel void k(global {ty} *o, global {ty} *p, global const {ty} *a, global const {ty} *b,
                       {id} w, {id} h, {id} n) {{
           {id} x = get_global_id({}), y = get_global_id({});\n",
        &order[..1],
        &order[2..]
    );
    for _ in 0..random.below(4) {
        let test = TESTS[random.below(8) as usize];
        text += &match random.below(2) {
            0 => format!("if (!({test})) return;\n"),
            _ => format!("if ({test}) {{}} else return;\n"),
        };
    }
    let place = |random: &mut Random| PLACES[random.below(6) as usize];
    let mut value = String::from("(uint)(x + 3 * y)");
    for _ in 0..=random.below(3) {
        let array = ["a", "b"][random.below(2) as usize];
        let at = match random.below(3) {
            0 => OTHERS[random.below(6) as usize],
            _ => place(random),
        };
        value += &format!(" {} {array}[{at}]", ["+", "-", "^", "*"][random.below(4) as usize]);
    }
    text += &format!("{ty} v = {value};\n");
    let first = place(random);
    text += &format!("o[{first}] = v;\n");
    match random.below(6) {
        0 => text += &format!("p[{}] = v * 3;\n", place(random)),
        1 => text += &format!("o[{first}] += v;\n"),
        2 => text += &format!("o[{first}] = o[{first}] ^ 85;\n"),
        _ => {}
    }
    (text + "}", bytes)
}

/// Random kernels with places of all kinds, of which `TALLY_SEED` chooses others, in random groups.
#[test]
fn random_kernels_with_tiles_agree() {
    for seed in seeds(12) {
        let mut random = Random::new(seed);
        let (text, bytes) = random_kernel(&mut random);
        let module = wide(&text);
        let runs: Vec<Run> = (0..3)
            .map(|_| {
                let group = GROUPS[random.below(GROUPS.len() as u64) as usize];
                let mut size = |d: usize| {
                    let least = 1 + random.below(56);
                    let whole = least.next_multiple_of(group[d].into());
                    if random.below(2) == 0 { whole.min(58) } else { least }
                };
                let global = [size(0), size(1), 1];
                let offset = [random.below(6), random.below(6), 0];
                let matrix = |random: &mut Random| random.bytes(64 * 64 * bytes);
                let mut inputs: Vec<Input> = (0..4).map(|_| matrix(&mut random)).collect();
                let wide_ids = text.contains("long w");
                for most in [60, 60, 62] {
                    let number = random.below(most);
                    let bytes = number.to_le_bytes();
                    inputs.push(Input::Value(bytes[..if wide_ids { 8 } else { 4 }].to_vec()));
                }
                (Grid { offset, global, group }, inputs)
            })
            .collect();
        same_in_all(&module, "k", &runs);
        for target in targets() {
            let kernel =
                Kernel::in_form(&module, "k", &target, Form::Uneven).expect("it has that form");
            compare_with(&kernel, &module, "k", &runs)
                .unwrap_or_else(|how| panic!("{how}, seed {seed}\n{text}"));
        }
    }
}
