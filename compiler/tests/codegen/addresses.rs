// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random kernels whose items find their data as those of applications do: in rows, columns, tiles and tables, behind
//! tests of their ids, by ids taken apart and put together. Buffers end, or begin, at inaccessible pages: code that
//! accesses more than its items do shows.

use std::fmt::Write;

use tally_compiler::ir::{Module, Op};
use tally_compiler::widen::widen;

use crate::diff::{Elements, Input, Random, Run, compare_at};
use crate::harness::{Grid, clang, module, widths};
use crate::programs::seeds;

/// An array that kernels only read.
struct Array {
    name: char,
    /// The type of an element, the number of its components, and the size of one in bytes.
    ty: (&'static str, u64, u64),
    /// Elements. Without them there are as many as the kernel's items read: `row` for each item.
    len: Option<u64>,
    row: u64,
}

const TYPES: [(&str, u64, u64); 18] = [
    ("int", 1, 4),
    ("int", 1, 4),
    ("float", 1, 4),
    ("float", 1, 4),
    ("uchar", 1, 1),
    ("char", 1, 1),
    ("short", 1, 2),
    ("long", 1, 8),
    ("double", 1, 8),
    ("int2", 2, 4),
    ("float2", 2, 4),
    ("float4", 4, 4),
    ("uchar4", 4, 1),
    ("uchar3", 4, 1),
    ("short4", 4, 2),
    ("ushort8", 8, 2),
    ("double2", 2, 8),
    ("uchar16", 16, 1),
];

/// The types of rows that items write.
const WRITTEN: [(&str, u64); 6] =
    [("int", 4), ("uint", 4), ("float", 4), ("uchar", 1), ("short", 2), ("double", 8)];

/// The elements of an item's row behind those that it walks along.
const SPARE: u64 = 3;

/// The types of pixels, and the size of a component in bytes.
const PIXELS: [(&str, u64); 6] =
    [("uchar", 1), ("char", 1), ("ushort", 2), ("int", 4), ("float", 4), ("long", 8)];

/// Structures without padding: their members, and the size of one in bytes.
const RECORDS: [(&str, u64); 5] = [
    ("uchar a; ushort b; uchar c;", 4),
    ("int a; short b; char c; uchar d;", 8),
    ("short a, b; int c;", 8),
    ("uchar a, b, c;", 3),
    ("int a; uchar b; ushort c; long d; uchar e;", 16),
];

/// The elements of a table that items find by numbers of any size.
const WINDOW: u64 = 256;

/// Where such numbers begin: some wrap around 32 bits within a launch, or within a vector.
const FAR: [i32; 8] =
    [9, -200, 1 << 20, i32::MAX - 5, i32::MAX - 40, i32::MAX - 700, i32::MIN + 3, i32::MIN + 33];

/// `len` numbers of a type whose size is `size` bytes.
fn numbers(ty: &str, size: u64, len: u64, first: u64) -> Input {
    let number = |i: u64| (i * 37 + i / 7 + first) % 101;
    let bytes = (0..len).flat_map(|i| match ty.as_bytes()[0] {
        b'f' => (number(i) as f32).to_le_bytes().to_vec(),
        b'd' => (number(i) as f64).to_le_bytes().to_vec(),
        _ => number(i).to_le_bytes()[..size as usize].to_vec(),
    });
    Input::bytes(bytes.collect())
}

/// Where an item's own data are, by the number of dimensions: its neighbours in one dimension are its neighbours
/// in memory. `w`, `h` and `d` are the sizes of the three dimensions.
const PLACES: [&[&str]; 3] = [
    &["i", "i", "(w - 1 - i)", "(get_group_id(0) * get_local_size(0) + get_local_id(0))"],
    &["(j * w + i)", "(i * h + j)", "((h - 1 - j) * w + i)"],
    &["((z * h + j) * w + i)", "((i * h + j) * d + z)", "((j * d + z) * w + i)"],
];

struct Program {
    random: Random,
    text: String,
    dimensions: usize,
    arrays: Vec<Array>,
    /// The place of the item's own data.
    own: &'static str,
    /// Whether the code is reached by all items that have not left, and there is local memory.
    together: bool,
    /// Loops and branches around the statement.
    depth: u32,
    /// The loops around the statement: their counters, and whether all items run them together.
    loops: Vec<(String, bool)>,
    /// The greatest values of `m` and `s`, by which kernels walk their rows.
    row: u64,
    /// The type of the rows that items write, and the size of an element in bytes.
    written: (&'static str, u64),
    /// The type of pixels, the size of a component in bytes, and the components from one to the next.
    pixel: (&'static str, u64, u64),
    /// The members of structures, and the size of one.
    record: (&'static str, u64),
}

impl Program {
    fn below(&mut self, n: u64) -> u64 {
        self.random.below(n)
    }

    fn of<'a, T: ?Sized>(&mut self, list: &[&'a T]) -> &'a T {
        list[self.below(list.len() as u64) as usize]
    }

    fn write(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let dimensions = [1, 1, 2, 2, 3][random.below(5) as usize];
        let own = PLACES[dimensions - 1];
        let mut program = Self {
            own: own[random.below(own.len() as u64) as usize],
            together: random.below(2) == 0,
            row: [1, 3, 4, 7, 8, 12, 16, 20, 37][random.below(9) as usize],
            written: WRITTEN[random.below(WRITTEN.len() as u64) as usize],
            pixel: {
                let (ty, size) = PIXELS[random.below(PIXELS.len() as u64) as usize];
                (ty, size, [3, 3, 3, 2, 4, 5, 6, 8][random.below(8) as usize])
            },
            record: RECORDS[random.below(RECORDS.len() as u64) as usize],
            random,
            text: String::new(),
            dimensions,
            arrays: Vec::new(),
            depth: 0,
            loops: Vec::new(),
        };
        for name in ['a', 'b', 'c', 'q'] {
            let ty = TYPES[program.below(TYPES.len() as u64) as usize];
            let len = [None, None, Some(256), Some(1024)][program.below(4) as usize];
            let row = match len {
                None if program.below(2) == 0 => program.row,
                _ => 1,
            };
            program.arrays.push(Array { name, ty, len, row });
        }
        program.kernel();
        program
    }

    fn kernel(&mut self) {
        let mut head = format!(
            "#pragma OPENCL EXTENSION cl_khr_fp16 : enable
             struct __attribute__((packed)) record {{ {} }};
             kernel void random(",
            self.record.0
        );
        for array in &self.arrays {
            let _ = write!(head, "global const {} *{}, ", array.ty.0, array.name);
        }
        head += "global uint *out, global float *sums, global uchar4 *parts, global uint *counts, local int *t,\n\
             global WRITTEN *rows, global PIXEL *pixels, global const struct record *records,\n\
             global const int *window, int n, int m, uint s, int w, int h, int d, int far) {\n";
        self.text = head.replace("WRITTEN", self.written.0).replace("PIXEL", self.pixel.0);
        let id = self.of(&["int", "int", "uint", "size_t", "long"]);
        for (name, dimension) in [("i", 0), ("j", 1), ("z", 2)] {
            let _ = match self.below(4) {
                0 if dimension == 0 => writeln!(
                    self.text,
                    "{id} {name} = get_group_id(0) * get_local_size(0) + get_local_id(0) + get_global_offset(0);"
                ),
                _ => writeln!(self.text, "{id} {name} = get_global_id({dimension});"),
            };
        }
        let id = self.of(&["int", "uint", "size_t"]);
        let _ = writeln!(
            self.text,
            "{id} l = get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) * get_local_id(2));\n\
             {id} size = get_local_size(0) * get_local_size(1) * get_local_size(2);\n\
             int x = i, y = j; uint u = n, v = 7; float f = 0, g = 1; half o = 1;\n\
             int p[4] = {{3, 1, 4, 1}};"
        );
        if self.together {
            self.text += "t[l] = (int)l * 3;\n";
        }
        // The item's own row of numbers that it writes, and the same one element further.
        let (ty, own) = (self.written.0, self.own);
        let stride = match self.below(2) {
            0 => format!("{}", self.row + SPARE),
            _ => format!("(s + {SPARE})"),
        };
        let _ =
            writeln!(self.text, "global {ty} *r0 = rows + {own} * {stride}, *r1 = r0 + (m & 1);");
        match self.below(5) {
            0 => self.text += "x = (int)i % w; y = (int)i / w;\n",
            1 => self.text += "x = (uint)i % s; y = (uint)i / s;\n",
            2 => self.text += "x = i & 15; y = (int)i >> 4;\n",
            3 => self.text += "x = (int)(i / (w + 1)) + j; y = i % 3;\n",
            _ => {}
        }
        match self.below(8) {
            0 | 1 => self.text += "if (i >= n) return;\n",
            2 => self.text += "if (i >= n || j >= m + 20) return;\n",
            3 => self.text += "if (x < 1 || x >= w - 1) return;\n",
            4 if !self.together => self.text += "if (y & 1) return;\n",
            _ => {}
        }
        for _ in 0..4 + self.below(4) {
            self.statement();
        }
        let own = self.own;
        let _ = writeln!(
            self.text,
            "out[{own}] += u ^ v ^ p[x & 3];\nsums[{own}] = f + g + (float)o;\n}}"
        );
    }

    /// A number that is the same for all items.
    fn shared(&mut self) -> &'static str {
        self.of(&[
            "1",
            "2",
            "3",
            "n",
            "m",
            "(int)s",
            "w",
            "h",
            "16",
            "5",
            "(m + 1)",
            "(int)get_group_id(0)",
        ])
    }

    /// A small number that may differ between the items: an id, a counter, or a number from memory.
    fn position(&mut self) -> String {
        match self.below(12) {
            0 | 1 => "i".into(),
            2 => "j".into(),
            3 => "(int)l".into(),
            4 => "x".into(),
            5 => "y".into(),
            6 => self.own.into(),
            7 => "(int)(u & 63)".into(),
            8 => "(int)get_local_id(0)".into(),
            _ => match self.loops.last() {
                Some((counter, _)) => counter.clone(),
                None => "i".into(),
            },
        }
    }

    /// Any index: sums of multiples, parts of bits. It may be out of range.
    fn index(&mut self) -> String {
        let position = self.position();
        match self.below(9) {
            0 => {
                let (times, other) = (self.shared(), self.position());
                format!("({position} * {times} + {other})")
            }
            1 => format!("({position} + {})", self.shared()),
            2 => format!("({position} - {})", self.shared()),
            3 => format!("({} - {position})", self.shared()),
            4 => format!("({position} * {})", self.shared()),
            5 => format!("({position} ^ {})", self.below(64)),
            6 => format!("({position} / {})", self.of(&["2", "3", "4", "16", "(w + 0)"])),
            7 => format!("((uint){position} % (uint){})", self.of(&["3", "16", "w", "(s + 1)"])),
            _ => position,
        }
    }

    /// An element of an array, as an expression, and a condition under which it exists.
    fn element(&mut self) -> (String, Option<String>) {
        let which = self.below(self.arrays.len() as u64) as usize;
        let (name, len, row) = {
            let array = &self.arrays[which];
            (array.name, array.len, array.row)
        };
        let Some(len) = len else {
            // One of the item's own elements, in the order of all items' rows or in that of the elements.
            let within = match self.loops.last() {
                // Counters are below `row`.
                Some((counter, _)) if row == self.row => counter.clone(),
                _ => format!("{}", self.below(row)),
            };
            let stride = if row == 1 { "1" } else { self.of(&["ROW", "(int)s"]) };
            let (stride, own) = (stride.replace("ROW", &row.to_string()), self.own);
            return match self.below(4) {
                _ if row == 1 => (format!("{name}[{own}]"), None),
                0 => (format!("{name}[{within} * (w * h * d) + {own}]"), None),
                _ => (format!("{name}[{own} * {stride} + {within}]"), None),
            };
        };
        let index = self.index();
        match self.below(6) {
            0 => (format!("{name}[{index} & {}]", len - 1), None),
            1 => (format!("{name}[{index} & (w * h * 0 + {})]", len - 1), None),
            2 => (format!("{name}[(uint)({index}) % {len}u]"), None),
            3 => (format!("{name}[clamp((int)({index}), 0, {})]", len - 1), None),
            4 => (format!("{name}[min((uint)({index}), {}u)]", len - 1), None),
            _ => {
                let test = format!("(int)({index}) >= 0 && (int)({index}) < {len}");
                (format!("{name}[{index}]"), Some(test))
            }
        }
    }

    /// A number made of the components of an element.
    fn read(&mut self) -> String {
        let (element, test) = self.element();
        let name = element.chars().next().expect("it begins with the name");
        let parts = self.arrays.iter().find(|array| array.name == name).expect("one of them").ty.1;
        let value = match parts {
            1 => format!("(int){element}"),
            8 | 16 => format!("((int){element}.s0 + 3 * (int){element}.s5)"),
            _ => format!("((int){element}.x - (int){element}.y)"),
        };
        match test {
            Some(test) => format!("({test} ? {value} : 9)"),
            None => value,
        }
    }

    fn condition(&mut self) -> String {
        match self.below(10) {
            0 => "i < n".into(),
            1 => "x > 0 && x < w - 1".into(),
            2 => "(u & 3) != 1".into(),
            3 => "m > 3".into(),
            4 => "l == 0".into(),
            5 => "i > 0 && j > 0 && i < w - 1 && j < h - 1".into(),
            6 => format!("({}) % 3 == 0", self.position()),
            7 => format!("{} < {}", self.position(), self.shared()),
            8 => format!("({}) & 1", self.read()),
            _ => "(i | j) & 1".into(),
        }
    }

    fn statement(&mut self) {
        self.depth += 1;
        let shallow = self.depth < 4;
        let walks = shallow && self.loops.len() < 2;
        match self.below(22) {
            0 | 1 if shallow => {
                let condition = self.condition();
                let _ = writeln!(self.text, "if ({condition}) {{");
                let together = std::mem::take(&mut self.together);
                self.statement();
                self.statement();
                if self.below(2) == 0 {
                    self.text += "} else {\n";
                    self.statement();
                }
                self.together = together;
                self.text += "}\n";
            }
            2..=4 if walks => self.walk(),
            5 if self.together => {
                let value = self.read();
                let other = self.of(&[
                    "(l + 1) % size",
                    "size - 1 - l",
                    "l ^ (size > (l ^ 1))",
                    "l / 2",
                    "0",
                ]);
                let _ = writeln!(
                    self.text,
                    "barrier(CLK_LOCAL_MEM_FENCE); t[l] += {value};\n\
                     barrier(CLK_LOCAL_MEM_FENCE); v += 5 * t[{other}];"
                );
            }
            6 => {
                let (value, at) = (self.read(), self.below(3));
                let name = ["add", "max", "xor"][at as usize];
                let place = self.of(&["0", "0", "(i & 3)", "(x & 1)"]);
                let _ = writeln!(
                    self.text,
                    "atomic_{name}(&counts[{at} * 4 + {place}], (uint)({value}) & 255);"
                );
            }
            7 => {
                let (value, index) = (self.read(), self.index());
                let _ = writeln!(self.text, "p[({index}) & 3] += {value};");
            }
            8 => {
                let (value, own) = (self.read(), self.own);
                let _ = match self.below(3) {
                    0 => writeln!(
                        self.text,
                        "parts[{own}] = (uchar4)((uchar)u, (uchar)({value}), 3, 4);"
                    ),
                    1 => writeln!(self.text, "parts[{own}].y = (uchar)({value});"),
                    _ => writeln!(self.text, "out[{own}] ^= (uint)({value});"),
                };
            }
            9 | 10 => {
                let value = self.read();
                let _ = match self.below(3) {
                    0 => writeln!(self.text, "g = max(g, (float)({value}));"),
                    1 => writeln!(self.text, "f += 0.5f * ({value});"),
                    _ => writeln!(self.text, "f += {value};"),
                };
            }
            11 => {
                let value = self.read();
                let _ = writeln!(self.text, "v = v * 31 + (uint)({value});");
            }
            // Items that run a loop together leave it together.
            12 if self.loops.last().is_some_and(|&(_, together)| together == self.together) => {
                let way = if self.together { "break" } else { self.of(&["break", "continue"]) };
                let condition = if self.together { "m == 5".into() } else { self.condition() };
                let _ = writeln!(self.text, "if ({condition}) {way};");
            }
            13 | 14 => {
                let (to, from, value) = (self.written(), self.written(), self.read());
                let ty = self.written.0;
                let _ = match self.below(3) {
                    0 => writeln!(self.text, "{to} = ({ty})({value});"),
                    1 => writeln!(self.text, "{to} = ({ty})((int){from} + {value});"),
                    _ => writeln!(self.text, "{to} = {from}; u += (uint)(int){from};"),
                };
            }
            16 | 17 => self.pixels(),
            18 => {
                let (first, second) = (self.member(), self.member());
                let _ = writeln!(self.text, "u += 5 * {first} - (uint)({second} * (int)v);");
            }
            19 | 20 => self.far(),
            21 => {
                let (a, b) = (self.read(), self.read());
                let _ = writeln!(self.text, "o = fma((half)(({a}) & 63), 0.37h, o * 0.5h);");
                let _ = writeln!(self.text, "o = fma(o, 0.25h, (half)(({b}) & 255));");
            }
            _ => {
                let value = self.read();
                let _ = writeln!(self.text, "u ^= (uint)({value}) + p[{}];", self.depth & 3);
            }
        }
        self.depth -= 1;
    }

    /// A component of the item's own pixel.
    fn component(&mut self) -> String {
        let (step, own) = (self.pixel.2, self.own);
        let counts = self.below(4) == 0;
        let number = match self.loops.last().filter(|_| counts) {
            Some((counter, _)) => format!("{counter} % {step}"),
            None => self.below(step).to_string(),
        };
        format!("pixels[{own} * {step} + {number}]")
    }

    /// Some of the item's pixel, read and written in any order.
    fn pixels(&mut self) {
        let (ty, _, step) = self.pixel;
        let own = self.own;
        match self.below(3) {
            0 => {
                // Neighbours from any one on, in any order.
                let first = self.below(step.saturating_sub(2).max(1));
                let turn = self.below(3);
                let (value, whole) = (self.read(), format!("c{}", self.text.len()));
                let _ = writeln!(self.text, "int {whole} = {value};");
                for number in 0..step.min(3) {
                    let component = first + (number + turn) % step.min(3);
                    let _ = writeln!(
                        self.text,
                        "pixels[{own} * {step} + {component}] = ({ty})(({whole} * {number} + (int)u) & 999);"
                    );
                }
            }
            1 => {
                let all: Vec<_> = (0..2 + self.below(3)).map(|_| self.component()).collect();
                let terms = all.iter().map(|it| format!("(uint)(int){it} * 3"));
                let _ = writeln!(self.text, "u += {};", terms.collect::<Vec<_>>().join(" ^ "));
            }
            _ => {
                for _ in 0..2 + self.below(3) {
                    let (to, from) = (self.component(), self.component());
                    let _ = match self.below(3) {
                        0 => writeln!(self.text, "{to} = {from}; v ^= (uint)(int){from};"),
                        1 => writeln!(self.text, "{to} = ({ty})((int){from} + (int)(v & 63));"),
                        _ => writeln!(self.text, "u += (uint)(int){from}; {to} = ({ty})(u & 99);"),
                    };
                }
            }
        }
    }

    /// A member of a structure, of the item's own one or of another's.
    fn member(&mut self) -> String {
        let count = self.record.0.matches([',', ';']).count() as u64;
        let member = ["a", "b", "c", "d", "e"][self.below(count) as usize];
        let place = match self.below(3) {
            0 => format!("min((uint){}, (uint)(w * h * d - 1))", self.index()),
            _ => self.own.to_owned(),
        };
        format!("(int)records[{place}].{member}")
    }

    /// A number of 32 bits that may have wrapped around, and what is found by it.
    fn far(&mut self) {
        let position = self.position();
        let sum = match self.below(10) {
            0 => "(int)j * w + (int)i + far".into(),
            1 => "far - (int)i + (int)j * 2".into(),
            2 => "far + (int)j - (int)i * 3".into(),
            3 => {
                "(int)get_group_id(0) * (int)get_local_size(0) + (int)get_local_id(0) + far".into()
            }
            4 => "((int)i + n) * (m + 1) + far".into(),
            5 => "((int)i << 2) + far + ((int)z << 4)".into(),
            6 => "(int)i * far + (int)j".into(),
            7 => "(int)((uint)far + (uint)i * 2) - 1".into(),
            8 => format!("(int)({position} + far)"),
            _ => "(int)i + far".into(),
        };
        let (q, most) = (format!("q{}", self.text.len()), WINDOW - 1);
        let _ = writeln!(self.text, "long {q} = {sum}; u ^= (uint)({q} >> 3) ^ (uint)({q} >> 32);");
        let from = match self.below(3) {
            0 => "(long)far",
            1 => "((long)far - 200)",
            _ => "((long)far - (1L << 32) - 7)",
        };
        let _ = writeln!(
            self.text,
            "if ({q} >= {from} && {q} - {from} <= {most}) v += window[{q} - {from}];"
        );
        if self.below(2) == 0 {
            let _ = writeln!(self.text, "v += 3 * window[({q} - {from}) & {most}];");
        }
    }

    /// An element of the item's own row.
    fn written(&mut self) -> String {
        let (pointer, most) = [("r0", SPARE), ("r1", SPARE - 1)][self.below(2) as usize];
        let place = match self.loops.last() {
            Some((counter, _)) => counter.clone(),
            None => format!("{}", self.below(self.row)),
        };
        match self.below(4) {
            0 => format!("{pointer}[{place} + (n & 1)]"),
            1 => format!("{pointer}[{place}]"),
            _ => format!("{pointer}[{place} + {}]", self.below(most + 1)),
        }
    }

    /// A loop along a row, with constant bounds, with those of the launch, or with the item's own.
    fn walk(&mut self) {
        let (k, row) = (format!("k{}", self.depth), self.row);
        let ty = self.of(&["int", "int", "uint", "size_t"]);
        let own = !self.together;
        let head = match self.below(6) {
            0 | 1 => format!("{ty} {k} = 0; {k} < {row}; {k}++"),
            2 | 3 => format!("{ty} {k} = 0; {k} < ({ty})m; {k}++"),
            4 if own => format!("{ty} {k} = u % {row}; {k} < {row}; {k}++"),
            4 => format!("{ty} {k} = 1; {k} < ({ty})s; {k} += 2"),
            _ if own => format!("{ty} {k} = 0; {k} < min(({ty})m, ({ty})(v & 7)); {k}++"),
            _ => format!("{ty} {k} = m; {k}-- > 0;"),
        };
        let _ = writeln!(self.text, "for ({head}) {{");
        self.loops.push((k, self.together));
        self.statement();
        self.statement();
        self.loops.pop();
        self.text += "}\n";
    }

    /// The launches: groups of several shapes, whole ones and parts, with and without an offset.
    fn runs(&mut self) -> Vec<Run> {
        let groups: &[[u64; 3]] = match self.dimensions {
            1 => &[[32, 1, 1], [48, 1, 1], [13, 1, 1], [1, 1, 1]],
            2 => &[
                [16, 4, 1],
                [8, 8, 1],
                [4, 16, 1],
                [1, 33, 1],
                [20, 3, 1],
                [32, 2, 1],
                [10, 10, 1],
                [1, 100, 1],
            ],
            _ => &[[16, 2, 2], [4, 4, 4], [5, 3, 2], [2, 2, 17]],
        };
        let first = self.below(groups.len() as u64) as usize;
        // Programs that count so have groups of one size and no offset.
        let counted = self.text.contains("get_group_id(0) * get_local_size(0)");
        let run = |turn: usize| {
            let group = groups[(first + turn) % groups.len()];
            let global = [0, 1, 2].map(|d| match d < self.dimensions {
                true if turn == 1 && !counted => 2 * group[d] - self.random.below(group[d]),
                true => 2 * group[d],
                false => 1,
            });
            let offset = if turn == 1 && !counted { [5, 0, 0] } else { [0; 3] };
            let [w, h, d] = [0, 1, 2].map(|it| global[it] + offset[it]);
            let items = w * h * d;
            let mut inputs: Vec<Input> = Vec::new();
            for array in &self.arrays {
                let (name, parts, size) = array.ty;
                let len = array.len.unwrap_or(items * array.row) * parts;
                inputs.push(numbers(name, size, len, u64::from(array.name as u32)));
            }
            let local = group.iter().product::<u64>() as usize;
            inputs.push(Input::bytes(vec![1; 4 * items as usize]));
            inputs.push(Input::Buffer(Elements::Floats, vec![0; 4 * items as usize]));
            inputs.push(Input::bytes(vec![2; 4 * items as usize]));
            inputs.push(Input::bytes(vec![0; 48]));
            inputs.push(Input::Local(4 * local));
            let (name, size) = self.written;
            let len = items * (self.row + SPARE);
            inputs.push(numbers(name, size, len, 3));
            let (name, size, step) = self.pixel;
            inputs.push(numbers(name, size, items * step, 5));
            inputs.push(numbers("uchar", 1, items * self.record.1, 17));
            inputs.push(numbers("int", 4, WINDOW, 11));
            let far = FAR[self.random.below(FAR.len() as u64) as usize];
            let n = match self.random.below(3) {
                0 => w,
                1 => offset[0] + group[0],
                _ => self.random.below(w + 2),
            };
            let m = self.random.below(self.row + 1);
            let values = [n, m, self.row, w, h, d];
            inputs.extend(values.map(|value| Input::Value((value as u32).to_le_bytes().into())));
            inputs.push(Input::Value(far.to_le_bytes().into()));
            (Grid { offset, global, group: group.map(|size| size as u32) }, inputs)
        };
        (0..3).map(run).collect()
    }
}

/// Clang's level for a seed.
fn level(seed: u64) -> &'static str {
    ["-O2", "-O0"][usize::from(seed.is_multiple_of(8))]
}

/// LLVM 22 makes wrong SPIR-V of some loops whose counters' strength it reduces: numbers of fewer than 8 bits become bytes.
fn compile(text: &str, level: &str) -> Module {
    // Numbers that are far away may wrap around, which C leaves undefined.
    let wraps = if text.contains("window[") { "-fwrapv" } else { "-fno-wrapv" };
    module(&clang::compile_text(text, &[level, "-w", "-mllvm", "-disable-lsr", wraps]))
}

#[test]
fn random_kernels_find_their_data() {
    let widths = widths();
    for seed in seeds(24) {
        let mut program = Program::write(seed);
        let runs = program.runs();
        let module = compile(&program.text, level(seed));
        let at = [widths[seed as usize % widths.len()].clone()];
        compare_at(&at, &module, "random", &runs)
            .unwrap_or_else(|how| panic!("seed {seed}: {how}\n{}", program.text));
    }
}

/// Kernels that were not widened would show little.
#[test]
fn nearly_all_of_the_random_kernels_are_widened() {
    let refused = (1..=24).filter_map(|seed| {
        let module = compile(&Program::write(seed).text, "-O2");
        let refusal = widen(&module, &module.kernels[0], 16).err()?;
        Some(format!("seed {seed}: {refusal}"))
    });
    let refused: Vec<_> = refused.collect();
    assert!(refused.len() <= 2, "{refused:?}");
}

/// They have what they are for: numbers that are promised not to wrap around, and lines with gaps.
#[test]
fn random_kernels_have_promises_and_lines() {
    let (mut promises, mut lines) = (0, 0);
    for seed in 1..=24 {
        let module = compile(&Program::write(seed).text, level(seed));
        let Ok(widened) = widen(&module, &module.kernels[0], 16) else { continue };
        promises += usize::from(!widened.promises.conditions.is_empty());
        let blocks = widened.module.functions[widened.function].blocks.iter();
        let mut insts = blocks.flat_map(|(_, block)| &block.insts);
        lines += usize::from(insts.any(|inst| picks_every_other(&inst.op)));
    }
    assert!(promises >= 12 && lines >= 8, "{promises} with promises, {lines} with lines");
}

/// Whether an operation picks elements that are apart out of what was loaded.
fn picks_every_other(op: &Op) -> bool {
    let Op::Shuffle(_, _, pick) = op else { return false };
    let [Some(a), Some(b), Some(c), ..] = pick[..] else { return false };
    b > a + 1 && c == b + (b - a)
}
