// SPDX-License-Identifier: MIT OR Apache-2.0
//! Barriers in nested loops, as in networks for sorting, scans and transforms: random kernels are
//! compared with the interpreter. Values that all items share are kept once for the group, the others
//! in each vector's frame, and a kernel that mixes both up has wrong results.

use std::fmt::Write;

use tally_compiler::ir::{CompareOp, Module, Op};

use crate::diff::{Input, Random, Run, compare_at, compare_with, same_in_all};
use crate::harness::{Grid, Kernel, clang, module, targets, widths};
use crate::programs::seeds;
use crate::widen::{int, ints, wide};

/// Writes a kernel: loops with the same number of iterations in all items, shared and other values, and
/// exchanges through local memory at places that depend on both.
struct Nest {
    random: Random,
    text: String,
    /// The number of loops and branches around the statement.
    depth: u32,
    loops: u32,
}

/// The variables that items share, unless one is changed where items have diverged.
const SHARED: [(&str, &str); 6] =
    [("int", "s"), ("uint", "u"), ("long", "w"), ("uchar", "b"), ("float", "f"), ("int2", "p")];

impl Nest {
    fn write(seed: u64) -> String {
        let mut nest = Self { random: Random::new(seed), text: String::new(), depth: 0, loops: 0 };
        // Signed numbers must not overflow.
        nest.text += "#define ADD(a, b) (int)((uint)(a) + (uint)(b))\n\
             kernel void nest(global int *out, local int *t, int n, int m) {\n\
             uint l = get_local_id(0) + get_local_id(1) * get_local_size(0);\n\
             uint size = get_local_size(0) * get_local_size(1);\n\
             uint i = get_group_id(0) * size + l;\n\
             int x = out[i], y = (int)l;\n\
             int s = n; uint u = m; long w = n - m; uchar b = n; float f = m; int2 p = (int2)(n, m);\n";
        for _ in 0..3 {
            nest.statement();
        }
        nest.text += "out[i] ^= x ^ y ^ s ^ (int)u ^ (int)w ^ b ^ (int)f ^ p.x ^ p.y;\n}\n";
        nest.text
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.below(n)
    }

    /// A number that all items share, as long as no item has changed its inputs.
    fn shared(&mut self) -> String {
        let counter = 1 + self.random.below(u64::from(self.loops.max(1)));
        match self.below(9) {
            0 if self.loops > 0 => format!("(int)k{counter}"),
            1 if self.loops > 0 => format!("(n << (k{counter} & 3))"),
            0 | 1 => "n".into(),
            2 => "ADD(s, m)".into(),
            3 => "(int)(u >> 1)".into(),
            4 => "(int)(w & 0xffff)".into(),
            5 => "(b * 3)".into(),
            6 => "(int)f".into(),
            7 => "ADD(p.x, ~p.y)".into(),
            _ => format!("{}", self.below(40)),
        }
    }

    /// A number that differs between the items.
    fn own(&mut self) -> String {
        let shared = self.shared();
        match self.below(5) {
            0 => format!("(x ^ {shared})"),
            1 => format!("ADD(y, {shared})"),
            2 => format!("((int)(l & 0xffffff) * {shared})"),
            3 => format!("(x > y ? {shared} : y)"),
            _ => format!("((l & (uint){shared}) == 0 ? x : {shared})"),
        }
    }

    fn change_shared(&mut self) {
        let value = self.shared();
        let text = match self.below(8) {
            // Floats stay small integers, which are exact.
            0 => format!("f = (float)(({value}) & 1023);"),
            1 => format!("p = as_int2(as_uint2(p.yx) + (uint2)((uint)({value})));"),
            2 => "{ int a = p.x; p.x = s; s = a; }".into(),
            3 => "{ uint a = u; u = (uint)w; w = a; }".into(),
            _ => {
                let (ty, name) = SHARED[self.below(4) as usize];
                format!("{name} = ({ty})((ulong)({value}) + (ulong){name} * 3);")
            }
        };
        self.text += &text;
        self.text.push('\n');
    }

    fn exchange(&mut self) {
        let (value, distance) = (self.own(), self.shared());
        let place = match self.below(3) {
            0 => format!("(l ^ (uint){distance}) % size"),
            1 => format!("(l + (uint){distance}) % size"),
            _ => format!("l >= ((uint){distance} & 31) ? l - ((uint){distance} & 31) : l"),
        };
        let _ = writeln!(
            self.text,
            "t[l] = {value}; barrier(CLK_LOCAL_MEM_FENCE);\nx = ADD(x, t[{place}]); barrier(CLK_LOCAL_MEM_FENCE);"
        );
    }

    fn statements(&mut self) {
        self.depth += 1;
        for _ in 0..2 + self.below(2) {
            self.statement();
        }
        self.depth -= 1;
    }

    fn statement(&mut self) {
        match self.below(12) {
            0..=2 if self.depth < 3 => {
                self.loops += 1;
                let k = format!("k{}", self.loops);
                let (from, bound) = (1 + self.below(3), 3 + self.below(9));
                let step = match self.below(3) {
                    0 => format!("{k} *= 2"),
                    1 => format!("{k} += (uint)(n & 1) + 1"),
                    _ => format!("{k}++"),
                };
                let _ = writeln!(
                    self.text,
                    "for (uint {k} = {from}; {k} < (uint)(n & 3) + {bound}; {step}) {{"
                );
                self.statements();
                self.text += "}\n";
                self.loops -= 1;
            }
            3 if self.depth < 3 => {
                let condition = ["n > m", "n & 1", "m < 9"][self.below(3) as usize];
                let _ = writeln!(self.text, "if ({condition}) {{");
                self.statements();
                self.text += "}\n";
            }
            4 => {
                let condition = self.own();
                let _ = writeln!(self.text, "if ({condition} & 1) {{");
                // Now and then shared values differ from here on.
                if self.below(4) == 0 {
                    self.change_shared();
                }
                let value = self.own();
                let _ = writeln!(self.text, "y = {value}; }}");
            }
            5 => {
                let value = self.own();
                let _ = writeln!(
                    self.text,
                    "for (int q = 0; q < (y & 3); q++) x = ADD(x, {value} >> q);"
                );
            }
            6 | 7 => self.change_shared(),
            8 => {
                let (condition, value) = (self.own(), self.own());
                let _ = writeln!(self.text, "if ({condition} & 2) out[i] = ADD(out[i], {value});");
            }
            9 if self.loops > 0 => {
                let counter = 1 + self.below(u64::from(self.loops));
                let _ = writeln!(self.text, "if (k{counter} == (uint)(m & 7)) break;");
            }
            _ => self.exchange(),
        }
    }
}

/// Not every kernel is widened: items may diverge where clang has merged branches.
fn compile(text: &str) -> Module {
    module(&clang::compile_text(text, &["-O2", "-w"]))
}

/// Groups of one and of two rows, of whole vectors and not, with several values of the shared numbers.
fn runs(seed: u64) -> Vec<Run> {
    let mut random = Random::new(seed);
    let sizes: [[u32; 3]; 3] = [[64, 1, 1], [32, 2, 1], [20, 3, 1]];
    let run = |group: [u32; 3]| {
        let items = group.iter().product::<u32>() as usize;
        let global = [2 * u64::from(group[0]), u64::from(group[1]), 1];
        let (n, m) = (random.below(20) as i32, random.below(20) as i32);
        let out = ints(2 * items as i32, |i| i * 37 % 211 - 100);
        (Grid { offset: [0; 3], global, group }, vec![out, Input::Local(4 * items), int(n), int(m)])
    };
    sizes.map(run).into()
}

#[test]
fn loops_with_barriers_keep_what_items_share_and_what_each_has() {
    let widths = widths();
    for seed in seeds(12) {
        let text = Nest::write(seed);
        let module = compile(&text);
        let at = [widths[seed as usize % widths.len()].clone()];
        compare_at(&at, &module, "nest", &runs(seed)).unwrap_or_else(|how| panic!("{how}\n{text}"));
    }
}

/// All items leave the loop together, in its middle, and part behind it.
#[test]
fn items_that_part_behind_a_loop_with_barriers_run_in_vectors() {
    let text = "kernel void nest(global int *out, local int *t, int n, int m) {
           uint l = get_local_id(0) + get_local_id(1) * get_local_size(0);
           uint size = get_local_size(0) * get_local_size(1);
           uint i = get_group_id(0) * size + l;
           bool changed = false;
           t[l] = out[i];
           barrier(CLK_LOCAL_MEM_FENCE);
           for (int k = 0; k < n; k++) {
               changed = false;
               int x = t[(l + k) % size];
               barrier(CLK_LOCAL_MEM_FENCE);
               if (l > k && x > m) {
                   changed = true;
                   t[l] += x;
               }
               barrier(CLK_LOCAL_MEM_FENCE);
               if (k == n - 3)
                   break;
               if (changed)
                   t[l] ^= k;
               barrier(CLK_LOCAL_MEM_FENCE);
           }
           if (changed)
               out[i] = t[l];
         }";
    let module = compile(text);
    for target in targets() {
        assert!(Kernel::with_text(&module, "nest", &target, 16, &|text| text).is_some());
    }
    for seed in 1..=4 {
        compare_at(&widths(), &module, "nest", &runs(seed)).unwrap_or_else(|how| panic!("{how}"));
    }
}

/// The random kernels find a missing copy of shared values behind a barrier in some kernel.
#[test]
fn a_value_that_is_not_handed_on_shows() {
    let target = targets().pop().expect("the oldest is always there");
    let build = |module: &Module, change: &dyn Fn(String) -> String| {
        Kernel::with_text(module, "nest", &target, 16, change)
    };
    // Only floats, on which no loop depends: an endless loop would show nothing.
    let stale = |text: String| {
        let lines: Vec<&str> = text.lines().collect();
        let line = |(number, line): (usize, &&str)| match lines.get(number + 1) {
            Some(next) if next.contains("= load float, ptr %r") => {
                line.replace("ptr %shared.next,", "ptr %shared,") + "\n"
            }
            _ => format!("{line}\n"),
        };
        lines.iter().enumerate().map(line).collect()
    };
    let shows = |seed| {
        let module = compile(&Nest::write(seed));
        let agrees = |kernel: Option<Kernel>| {
            kernel.is_none_or(|kernel| compare_with(&kernel, &module, "nest", &runs(seed)).is_ok())
        };
        assert!(agrees(build(&module, &|text| text)), "seed {seed} without a fault");
        !agrees(build(&module, &stale))
    };
    assert!((1..=40).any(shows), "no kernel shows it");
}

/// A kernel that uses masked ids as indices, and launches in which they overflow within a vector.
fn masked() -> (Module, Vec<Run>) {
    let module = wide(
        "kernel void masked(global int *out, global const int *in, local int *t) {
           uint l = get_local_id(0);
           size_t i = get_global_id(0);
           t[l] = (int)i * 3;
           barrier(CLK_LOCAL_MEM_FENCE);
           int v = t[l] + in[i & 0xff] + in[i & 0x1ff] * 5 + in[i & 0xfffffff7 & 0x3ff];
           v += in[(i & 0x3fffffff) % 512] + in[(uint)(i & 0x7ffffffe) & 0x3ff];
           v += in[(i + 100) & (get_global_size(0) * 4 - 1)] * 7;
           out[get_local_id(0) + get_group_id(0) * get_local_size(0)] = v;
         }",
    );
    let run = |first| {
        let grid = Grid { offset: [first, 0, 0], global: [96, 1, 1], group: [48, 1, 1] };
        (grid, vec![ints(96, |_| 0), ints(1024, |i| i * 31 % 997), Input::Local(192)])
    };
    (module, [0, 120, 250, 505, 1020].map(run).into())
}

/// Ids that are truncated to fewer bits index the right places, whether truncation changes them or not.
#[test]
fn masked_ids_are_where_they_should_be() {
    let (module, runs) = masked();
    compare_at(&widths(), &module, "masked", &runs).unwrap_or_else(|how| panic!("{how}"));
}

/// The launches of the test above would show a wrong test of masks.
#[test]
fn a_wrong_test_of_masks_shows() {
    let target = targets().pop().expect("the oldest is always there");
    let (module, runs) = masked();
    let agrees = |fault: &dyn Fn(&mut Op)| {
        let kernel =
            Kernel::with_fault(&module, "masked", &target, 16, fault).expect("it is widened");
        compare_with(&kernel, &module, "masked", &runs).is_ok()
    };
    assert!(agrees(&|_| {}));
    let wrong = |op: &mut Op| {
        if let Op::Compare(compare @ CompareOp::UGe, ..) = op {
            *compare = CompareOp::ULe;
        }
    };
    assert!(!agrees(&wrong));
}

/// An address of a private variable that a barrier keeps, in a frame or in a variable, leads to the same memory as
/// those that are computed behind it.
#[test]
fn addresses_that_barriers_keep_lead_to_the_items_variables() {
    let text = "kernel void kept(global int *out, local int *t, int n) {
           uint l = get_local_id(0), size = get_local_size(0), i = get_global_id(0);
           int p[8] = {3, 1, 4, 1, 5, 9, 2, 6}, k = out[i] & 7;
           int *first = p + (out[i] / 3 & 7), *second = n > 5 ? p + k : first;
           t[l] = out[i];
           barrier(CLK_LOCAL_MEM_FENCE);
           int x = t[(l + 1) % size];
           barrier(CLK_LOCAL_MEM_FENCE);
           int before = p[k];
           *first = x;
           int between = p[k];
           *second += 7;
           out[i] = before + 10 * between + 100 * p[k];
         }";
    for level in ["-O0", "-O2"] {
        let module = module(&clang::compile_text(text, &[level, "-w"]));
        let run = |n| {
            let out = ints(128, |i| i * 37 % 211);
            (Grid::line(128, 32), vec![out, Input::Local(128), int(n)])
        };
        same_in_all(&module, "kept", &[run(3), run(9)]);
    }
}
