// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matrices that are spread over sub-groups, in compiled code and in the interpreter, against plain loops.

use std::fmt::Write;

use crate::diff::{Input, Random, interpreted, same};
use crate::golden::golden;
use crate::harness::clang::Assembly;
use crate::harness::{Grid, Kernel, module};
use crate::spirv;
use tally_compiler::{check, parse, widen};

/// A type of elements.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Num {
    Int(u32),
    Float(u32),
    /// SPIR-V's own type of brain floats.
    Brain,
    /// Integers that an instruction takes as brain floats.
    BrainBits,
}

impl Num {
    fn bytes(self) -> usize {
        match self {
            Num::Int(bits) | Num::Float(bits) => bits as usize / 8,
            Num::Brain | Num::BrainBits => 2,
        }
    }

    /// The declaration of its type, `%name`, but for `%i32` and `%i64`.
    fn declare(self, name: &str) -> String {
        match self {
            Num::Int(32) => format!("%{name} = OpTypeInt 32 1\n"),
            Num::Int(bits) => format!("%{name} = OpTypeInt {bits} 0\n"),
            Num::Float(bits) => format!("%{name} = OpTypeFloat {bits}\n"),
            Num::Brain => format!("%{name} = OpTypeFloat 16 0\n"),
            Num::BrainBits => format!("%{name} = OpTypeInt 16 0\n"),
        }
    }

    /// The bytes of a small integer; others are rounded to nearest, ties to even.
    fn encode(self, x: i64) -> Vec<u8> {
        match self {
            Num::Int(bits) => x.to_le_bytes()[..bits as usize / 8].to_vec(),
            Num::Float(16) => half(x).to_le_bytes().to_vec(),
            Num::Float(32) => (x as f32).to_le_bytes().to_vec(),
            Num::Float(_) => (x as f64).to_le_bytes().to_vec(),
            Num::Brain | Num::BrainBits => {
                let bits = (x as f32).to_bits();
                let rounded = bits + 0x7fff + (bits >> 16 & 1);
                ((rounded >> 16) as u16).to_le_bytes().to_vec()
            }
        }
    }
}

/// The half of an integer up to 2048.
fn half(x: i64) -> u16 {
    let sign = if x < 0 { 0x8000 } else { 0 };
    let bits = (x.unsigned_abs() as f32).to_bits();
    assert!(x.unsigned_abs() <= 2048, "{x} as a half");
    if x == 0 { 0 } else { sign | (((bits >> 23) - 127 + 15) << 10 | bits >> 13 & 0x3ff) as u16 }
}

const HEAD: &str = "OpCapability Int8
    OpCapability Int16
    OpCapability Float16
    OpCapability Float64
    OpCapability Groups
    OpCapability SubgroupDispatch
    OpCapability CooperativeMatrixKHR
    OpCapability BFloat16TypeKHR
    OpCapability BFloat16CooperativeMatrixKHR
    OpExtension \"SPV_KHR_cooperative_matrix\"
    OpExtension \"SPV_KHR_bfloat16\"";

/// The layouts in memory.
const ROWS: u32 = 0;
const COLUMNS: u32 = 1;
const PACKED: u32 = 2;

/// Where an element lies, in elements.
fn place(layout: u32, stride: usize, num: Num, (row, column): (usize, usize)) -> usize {
    match layout {
        ROWS => row * stride + column,
        COLUMNS => column * stride + row,
        _ => {
            let side = (4 / num.bytes()).max(1);
            row / side * stride + column * side + row % side
        }
    }
}

/// A product: each sub-group of two groups of two computes `out = a * b + c`.
#[derive(Clone, Copy, Debug)]
struct Case {
    lanes: u32,
    /// Types of both factors, of what is added, and of the result.
    types: [Num; 4],
    /// Rows and columns of the result, columns of the first factor.
    sizes: (usize, usize, usize),
    layouts: [u32; 3],
    flags: u32,
    /// The factors are copied to local memory first.
    local: bool,
    /// Pointers to global memory are untyped.
    untyped: bool,
}

impl Case {
    fn new(lanes: u32, types: [Num; 4], sizes: (usize, usize, usize)) -> Self {
        Self { lanes, types, sizes, layouts: [ROWS; 3], flags: 0, local: false, untyped: false }
    }

    fn shapes(&self) -> [(usize, usize); 4] {
        let (m, n, k) = self.sizes;
        [(m, k), (k, n), (m, n), (m, n)]
    }

    /// The layout of each matrix, its stride and its number of elements in memory.
    fn memory(&self) -> [(u32, usize, usize); 4] {
        let layouts = [self.layouts[0], self.layouts[1], self.layouts[2], self.layouts[2]];
        std::array::from_fn(|i| {
            let ((rows, columns), layout) = (self.shapes()[i], layouts[i]);
            let (side, lines) = match layout {
                ROWS => (columns, rows),
                COLUMNS => (rows, columns),
                _ => {
                    let side = (4 / self.types[i].bytes()).max(1);
                    (columns * side, rows.div_ceil(side))
                }
            };
            // Rows have a gap between them, and matrices too.
            (layout, side + 3, (side + 3) * lines)
        })
    }

    fn module(&self) -> Vec<u8> {
        spirv::assemble(&self.text())
    }

    fn text(&self) -> String {
        let names = ["ta", "tb", "tc", "td"];
        let mut declarations = String::new();
        let mut given: Vec<(Num, &str)> = Vec::new();
        let mut types = Vec::new();
        for (num, name) in self.types.into_iter().zip(names) {
            let known = given
                .iter()
                .find(|(known, _)| known == &num || known.declare("x") == num.declare("x"));
            let known = known.map(|(_, name)| *name);
            if known.is_none() {
                declarations += &num.declare(name);
                given.push((num, name));
            }
            types.push(known.unwrap_or(name));
        }
        for (i, ty) in types.iter().enumerate() {
            if !declarations.contains(&format!("%p_{ty} =")) {
                let pointer = match self.untyped {
                    true => "OpTypeUntypedPointerKHR CrossWorkgroup".to_owned(),
                    false => format!("OpTypePointer CrossWorkgroup %{ty}"),
                };
                let _ = writeln!(declarations, "%p_{ty} = {pointer}");
            }
            if self.local && i < 2 {
                let _ = writeln!(declarations, "%l{i} = OpTypePointer Workgroup %{ty}");
            }
        }
        let mut number = |n: usize| {
            let name = format!("%n{n}");
            if !declarations.contains(&format!("{name} =")) {
                let _ = writeln!(declarations, "{name} = OpConstant %i32 {n}");
            }
            name
        };
        let (mut matrices, mut body) = (String::new(), String::new());
        let uses = [0, 1, 2, 2];
        let scope = number(3);
        for (i, (rows, columns)) in self.shapes().into_iter().enumerate() {
            let [rows, columns, used] = [rows, columns, uses[i]].map(&mut number);
            let line =
                format!("OpTypeCooperativeMatrixKHR %{} {scope} {rows} {columns} {used}", types[i]);
            if i == 3 && self.types[2] == self.types[3] {
                continue;
            }
            let _ = writeln!(matrices, "%m{i} = {line}");
        }
        let result = if self.types[2] == self.types[3] { 2 } else { 3 };
        let _ = writeln!(
            body,
            "%wg3 = OpLoad %v3 %group
             %wg = OpCompositeExtract %i64 %wg3 0
             %sg32 = OpLoad %i32 %sub
             %sg = OpUConvert %i64 %sg32
             %wg2 = OpIAdd %i64 %wg %wg
             %w = OpIAdd %i64 %wg2 %sg"
        );
        let mut constants = String::new();
        for (i, (layout, stride, count)) in self.memory().into_iter().enumerate() {
            let layout = number(layout as usize);
            let name = ["a", "b", "c", "out"][i];
            let (chain, stride) = match self.untyped {
                true => {
                    let chain = format!("OpUntypedInBoundsPtrAccessChainKHR %p_{0} %{0}", types[i]);
                    (chain, stride * self.types[i].bytes())
                }
                false => (format!("OpInBoundsPtrAccessChain %p_{}", types[i]), stride),
            };
            let _ = writeln!(
                constants,
                "%s{i} = OpConstant %i64 {stride}
                 %c{i} = OpConstant %i64 {count}"
            );
            let _ = writeln!(
                body,
                "%far{i} = OpIMul %i64 %w %c{i}
                 %at{i} = {chain} %{name} %far{i}"
            );
            if i == 3 {
                let flags = if self.flags == 0 { String::new() } else { self.flags.to_string() };
                let _ = writeln!(
                    body,
                    "%r = OpCooperativeMatrixMulAddKHR %m{result} %x0 %x1 %x2 {flags}
                     OpCooperativeMatrixStoreKHR %at3 %r {layout} %s3"
                );
                continue;
            }
            let mut from = format!("%at{i}");
            if self.local && i < 2 {
                let [two, semantics] = [number(2), number(0x110)];
                let _ = writeln!(
                    body,
                    "%event{i} = OpGroupAsyncCopy %event {two} %local{i} %{name} %c{i}x4 %one64 %noevent
                     OpControlBarrier {two} {two} {semantics}
                     %lat{i} = OpInBoundsPtrAccessChain %l{i} %local{i} %far{i}"
                );
                from = format!("%lat{i}");
            }
            let _ =
                writeln!(body, "%x{i} = OpCooperativeMatrixLoadKHR %m{i} {from} {layout} %s{i}");
        }
        let pointers: Vec<String> = types.iter().map(|ty| format!("p_{ty}")).collect();
        let mut parameters = vec![
            ("a", pointers[0].as_str()),
            ("b", pointers[1].as_str()),
            ("c", pointers[2].as_str()),
            ("out", pointers[3].as_str()),
        ];
        if self.local {
            parameters.extend([("local0", "l0"), ("local1", "l1")]);
            for i in 0..2 {
                let _ = writeln!(constants, "%c{i}x4 = OpConstant %i64 {}", self.memory()[i].2 * 4);
            }
            constants += "%event = OpTypeEvent\n%noevent = OpConstantNull %event\n\
                          %one64 = OpConstant %i64 1\n";
        }
        let notes = format!(
            "OpExecutionMode %k SubgroupSize {}
             OpDecorate %group BuiltIn WorkgroupId
             OpDecorate %group Constant
             OpDecorate %sub BuiltIn SubgroupId
             OpDecorate %sub Constant",
            self.lanes
        );
        // The signed type of 32 bits would be a second one of the name.
        let declarations = format!(
            "%pi32 = OpTypePointer Input %i32
             %group = OpVariable %p3 Input
             %sub = OpVariable %pi32 Input
             {declarations}
             {matrices}
             {constants}"
        );
        let assembly = Assembly {
            head: HEAD,
            notes: &notes,
            declarations: &declarations,
            parameters: &parameters,
            variables: "",
            body: &body,
        };
        assembly.text()
    }

    /// Small numbers for the matrices of four sub-groups; unsigned ones where the flags say so.
    fn inputs(&self, random: &mut Random) -> [Vec<i64>; 3] {
        std::array::from_fn(|i| {
            let signed = !matches!(self.types[i], Num::Int(_)) || self.flags & 1 << i != 0;
            let small = self.types[3] == Num::Brain || self.types[3] == F16;
            let count = self.memory()[i].2 * 4;
            (0..count)
                .map(|_| {
                    let x = random.below(if small { 3 } else { 7 }) as i64;
                    let big = self.types[i] == Num::Int(8) && random.below(4) == 0;
                    let x = if big { x + if signed { 115 } else { 240 } } else { x };
                    if signed { x - 3 } else { x }
                })
                .collect()
        })
    }

    fn expected(&self, inputs: &[Vec<i64>; 3]) -> Vec<u8> {
        let (m, n, k) = self.sizes;
        let memory = self.memory();
        let bytes = self.types[3].bytes();
        let mut out = vec![0; memory[3].2 * 4 * bytes];
        let at = |w: usize, i: usize, place_of: (usize, usize)| {
            w * memory[i].2 + place(memory[i].0, memory[i].1, self.types[i], place_of)
        };
        for w in 0..4 {
            for row in 0..m {
                for column in 0..n {
                    let mut sum = inputs[2][at(w, 2, (row, column))];
                    for k in 0..k {
                        let (a, b) = (at(w, 0, (row, k)), at(w, 1, (k, column)));
                        sum += inputs[0][a] * inputs[1][b];
                    }
                    let at = at(w, 3, (row, column)) * bytes;
                    out[at..at + bytes].copy_from_slice(&self.types[3].encode(sum));
                }
            }
        }
        out
    }

    fn run(&self, random: &mut Random) {
        let module = module(&self.module());
        let inputs = self.inputs(random);
        let mut arguments: Vec<Input> = inputs
            .iter()
            .zip(self.types)
            .map(|(numbers, num)| {
                Input::bytes(numbers.iter().flat_map(|&x| num.encode(x)).collect())
            })
            .collect();
        arguments.push(Input::bytes(vec![0; self.memory()[3].2 * 4 * self.types[3].bytes()]));
        if self.local {
            for i in 0..2 {
                arguments.push(Input::Local(self.memory()[i].2 * 4 * self.types[i].bytes()));
            }
        }
        let grid = Grid::line(u64::from(self.lanes) * 4, self.lanes * 2);
        assert!(Kernel::is_widened(&module, "k", self.lanes), "{self:?}");
        let run = (grid, arguments.clone());
        let got = interpreted(&module, "k", &run).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(got[3], self.expected(&inputs), "{self:?}");
        same(&module, "k", grid, &arguments, &format!("{self:?}"));
    }
}

const F32: Num = Num::Float(32);
const F16: Num = Num::Float(16);
const F64: Num = Num::Float(64);
const BITS: Num = Num::BrainBits;
const I8: Num = Num::Int(8);
const I32: Num = Num::Int(32);

/// Sizes that Intel's matrix engines have.
#[test]
fn products_of_all_types_are_right() {
    let mut random = Random::new(1);
    let signed = |signs, types, sizes| Case { flags: signs, ..Case::new(16, types, sizes) };
    let cases = [
        Case::new(16, [F32; 4], (8, 16, 16)),
        Case::new(16, [F64; 4], (8, 16, 4)),
        Case::new(16, [F16, F16, F32, F32], (8, 16, 16)),
        Case::new(16, [F16, F16, F32, F16], (8, 16, 16)),
        Case::new(8, [F16; 4], (8, 8, 16)),
        Case::new(16, [Num::Brain, Num::Brain, F32, F32], (8, 16, 16)),
        Case::new(16, [Num::Brain; 4], (8, 16, 16)),
        Case { flags: 0x40, ..Case::new(16, [BITS, BITS, F32, F32], (8, 16, 16)) },
        Case { flags: 0x1c0, ..Case::new(16, [BITS; 4], (8, 16, 16)) },
        Case { flags: 0x20, ..Case::new(16, [F32; 4], (8, 16, 8)) },
        signed(15, [I8, I8, I32, I32], (8, 16, 32)),
        signed(12, [I8, I8, I32, I32], (8, 16, 32)),
        signed(13, [I8, I8, I32, I32], (8, 16, 32)),
        signed(14, [I8, I8, I32, I32], (8, 16, 32)),
        signed(0, [I8, I8, I32, I32], (8, 16, 32)),
        signed(15, [Num::Int(16), I8, Num::Int(64), Num::Int(64)], (4, 16, 4)),
        signed(15, [I8, I8, I8, I32], (8, 16, 16)),
        // Results are the low bits.
        signed(15, [I8; 4], (8, 16, 16)),
    ];
    for case in cases {
        case.run(&mut random);
    }
}

/// Sizes with fewer columns than items, with more, and with elements that fill no component; sub-groups of
/// all sizes.
#[test]
fn products_of_all_sizes_are_right() {
    let mut random = Random::new(2);
    for lanes in [8, 16, 32] {
        for sizes in [(1, 16, 16), (8, 16, 8), (16, 16, 32), (4, 64, 16), (2, 3, 5), (7, 12, 9)] {
            Case::new(lanes, [F32; 4], sizes).run(&mut random);
        }
        // Bytes are multiplied in pairs, where there are pairs.
        for sizes in [(4, 8, 4), (4, 32, 5)] {
            let types = [I8, I8, I32, I32];
            Case { flags: 15, ..Case::new(lanes, types, sizes) }.run(&mut random);
        }
    }
}

/// "When the type of Pointer is OpTypeUntypedPointerKHR, Stride is specified in bytes."
#[test]
fn untyped_pointers_have_strides_in_bytes() {
    let case = Case::new(16, [I8, I8, I32, I32], (8, 16, 32));
    Case { flags: 15, untyped: true, ..case }.run(&mut Random::new(4));
}

/// Rows, columns, and rows side by side, with gaps between them, in global and in local memory.
#[test]
fn all_layouts_are_right() {
    let mut random = Random::new(3);
    for layouts in [[ROWS, COLUMNS, ROWS], [COLUMNS, ROWS, COLUMNS], [ROWS, PACKED, ROWS]] {
        for types in [[F16, F16, F32, F32], [I8, I8, I32, I32], [F32; 4]] {
            for sizes in [(8, 16, 32), (4, 8, 8)] {
                let case = Case { layouts, flags: 15, ..Case::new(16, types, sizes) };
                case.run(&mut random);
            }
        }
    }
    for types in [[F16, F16, F32, F32], [F32; 4]] {
        Case { local: true, ..Case::new(16, types, (8, 16, 16)) }.run(&mut random);
    }
}

/// For readers: a product as it is parsed, and for a vector of items. No element is gathered, and those of the
/// first factor are loaded one by one.
#[test]
fn products_become_vectors() {
    let widened = |case: &Case| {
        let module = module(&case.module());
        let text = module.function_text(module.kernels[0].function);
        let widened = widen::widen(&module, &module.kernels[0], case.lanes).expect("it is widened");
        let vectors = widened.module.function_text(widened.function).to_string();
        assert!(!vectors.contains("gather") && !vectors.contains("scatter"), "{vectors}");
        format!("{text}\n{vectors}")
    };
    golden("matrix-product.txt", &widened(&Case::new(8, [F32; 4], (1, 8, 8))));
    let bytes = Case { flags: 15, ..Case::new(16, [I8, I8, I32, I32], (4, 16, 16)) };
    let text = widened(&bytes);
    assert_eq!(text.matches("pair_dot").count(), 4 * 8, "{text}");
    widened(&Case::new(16, [F32; 4], (8, 16, 8)));
}

/// The addition of a product saturates, as the numbers of the result.
#[test]
fn additions_saturate() {
    let types = [I8, I8, I32, I32];
    for (flags, c, expected) in [
        (0x1f, i32::MAX - 10, i32::MAX),
        (0x0f, i32::MAX - 10, i32::MIN + 9),
        (0x10, -10, -1),
        (0x00, -10, 10),
    ] {
        let case = Case { flags, ..Case::new(16, types, (8, 16, 20)) };
        let module = module(&case.module());
        let count = |i: usize| case.memory()[i].2 * 4;
        let bytes: Vec<u8> = (0..count(2)).flat_map(|_| c.to_le_bytes()).collect();
        let inputs = vec![
            Input::bytes(vec![1; count(0)]),
            Input::bytes(vec![1; count(1)]),
            Input::bytes(bytes),
            Input::bytes(vec![0; count(3) * 4]),
        ];
        let run = (Grid::line(64, 32), inputs);
        let got = interpreted(&module, "k", &run).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(got[3][..4], expected.to_le_bytes(), "{flags:#x}");
        same(&module, "k", run.0, &run.1, "");
    }
}

/// A module of one kernel, whose matrices are of 8 x 16 floats unless they say otherwise.
fn text(lanes: u32, declarations: &str, body: &str, functions: &str) -> String {
    let notes = format!(
        "OpExecutionMode %k SubgroupSize {lanes}
         OpDecorate %lane BuiltIn SubgroupLocalInvocationId"
    );
    let declarations = format!(
        "%pi32 = OpTypePointer Input %i32
         %lane = OpVariable %pi32 Input
         %f32 = OpTypeFloat 32
         %f16 = OpTypeFloat 16
         %pf = OpTypePointer CrossWorkgroup %f32
         %own = OpTypePointer Function %f32
         %pgeneric = OpTypePointer Generic %f32
         %n0 = OpConstant %i32 0
         %n1 = OpConstant %i32 1
         %n2 = OpConstant %i32 2
         %n3 = OpConstant %i32 3
         %n4 = OpConstant %i32 4
         %n8 = OpConstant %i32 8
         %n16 = OpConstant %i32 16
         %l0 = OpConstant %i64 0
         %l1 = OpConstant %i64 1
         %l16 = OpConstant %i64 16
         %two = OpConstant %f32 0x40000000
         %ten = OpConstant %f32 0x41200000
         %a = OpTypeCooperativeMatrixKHR %f32 %n3 %n8 %n16 %n0
         %b = OpTypeCooperativeMatrixKHR %f32 %n3 %n16 %n16 %n1
         %c = OpTypeCooperativeMatrixKHR %f32 %n3 %n8 %n16 %n2
         {declarations}"
    );
    let assembly = Assembly {
        head: HEAD,
        notes: &notes,
        declarations: &declarations,
        parameters: &[("in", "pf"), ("out", "pf")],
        variables: "",
        body,
    };
    format!("{}\n{functions}", assembly.text())
}

/// What one sub-group makes of the numbers 0 to 127, as floats, in `out`.
fn results(lanes: u32, text: &str, items: u32) -> Vec<f32> {
    let module = module(&spirv::assemble(text));
    let numbers = |count: u32| (0..count).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let inputs = [Input::bytes(numbers(512)), Input::bytes(numbers(512))];
    let grid = Grid::line(items.into(), items);
    assert!(Kernel::is_widened(&module, "k", lanes), "{text}");
    let run = (grid, inputs.to_vec());
    let got = interpreted(&module, "k", &run).unwrap_or_else(|error| panic!("{error}"));
    same(&module, "k", grid, &inputs, text);
    got[1].chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Arithmetic and conversions, of all elements; fills and constants; functions, selections and phis.
#[test]
fn elements_are_computed_one_by_one() {
    let text = text(
        16,
        "%tens = OpConstantComposite %c %ten
         %none = OpConstantNull %c
         %half = OpTypeCooperativeMatrixKHR %f16 %n3 %n8 %n16 %n2
         %ints = OpTypeCooperativeMatrixKHR %i32 %n3 %n8 %n16 %n2
         %longs = OpTypeCooperativeMatrixKHR %i64 %n3 %n8 %n16 %n2
         %of = OpTypeFunction %c %c %f32",
        "%x = OpCooperativeMatrixLoadKHR %c %in %n0 %l16
         %twos = OpCompositeConstruct %c %two
         %x2 = OpFMul %c %x %twos
         %x4 = OpFunctionCall %c %scaled %x2 %two
         %plus = OpFAdd %c %x4 %tens
         %minus = OpFNegate %c %plus
         %h = OpFConvert %half %minus
         %back = OpFConvert %c %h
         %i = OpConvertFToS %ints %back
         %ineg = OpSNegate %ints %i
         %itwice = OpIAdd %ints %ineg %ineg
         %ihalf = OpISub %ints %itwice %ineg
         %iless = OpSDiv %ints %ihalf %ihalf
         %iall = OpIMul %ints %ihalf %iless
         %l = OpSConvert %longs %iall
         %short = OpUConvert %ints %l
         %f = OpConvertSToF %c %short
         %d = OpFDiv %c %f %twos
         %s = OpFSub %c %d %none
         %some = OpINotEqual %bool %n1 %n0
         %chosen = OpSelect %c %some %s %none
         OpBranch %head
         %head = OpLabel
         %turn = OpPhi %i32 %n0 %entry %next %head
         %sum = OpPhi %c %chosen %entry %more %head
         %more = OpFAdd %c %sum %twos
         %next = OpIAdd %i32 %turn %n1
         %again = OpULessThan %bool %next %n4
         OpBranchConditional %again %head %end
         %end = OpLabel
         OpCooperativeMatrixStoreKHR %out %more %n0 %l16",
        "%scaled = OpFunction %c None %of
         %given = OpFunctionParameter %c
         %by = OpFunctionParameter %f32
         %inside = OpLabel
         %r = OpMatrixTimesScalar %c %given %by
         OpReturnValue %r
         OpFunctionEnd",
    )
    .replace("%i = OpComposite", "%id0 = OpComposite");
    let got = results(16, &text, 16);
    for (i, got) in got.into_iter().take(128).enumerate() {
        assert_eq!(got, (4 * i + 10) as f32 / 2.0 + 8.0, "element {i}");
    }
}

/// Components of an item: their number, their places, in variables and in values.
#[test]
fn items_have_their_own_components() {
    for (lanes, length) in [(8, 16), (16, 8), (32, 4)] {
        let text = text(
            lanes,
            "%pm = OpTypePointer Function %c
             %pany = OpTypePointer Generic %c
             %v2 = OpTypeVector %i32 2",
            "%length = OpCooperativeMatrixLengthKHR %i32 %c
             %x = OpCooperativeMatrixLoadKHR %c %in %n0 %l16
             OpStore %var %x
             %any = OpPtrCastToGeneric %pany %var
             OpBranch %head
             %head = OpLabel
             %turn = OpPhi %i32 %n0 %entry %next %head
             %place = OpAccessChain %own %base %turn
             %old = OpLoad %f32 %place
             %at = OpCooperativeMatrixGetElementCoordINTEL %v2 %x %turn
             %row = OpCompositeExtract %i32 %at 0
             %column = OpCompositeExtract %i32 %at 1
             %rows = OpIMul %i32 %row %n16
             %number = OpIAdd %i32 %rows %column
             %new = OpConvertUToF %f32 %number
             %both = OpFAdd %f32 %old %new
             OpStore %place %both
             %next = OpIAdd %i32 %turn %n1
             %again = OpULessThan %bool %next %length
             OpBranchConditional %again %head %end
             %end = OpLabel
             %y = OpLoad %c %var
             %first = OpCompositeExtract %f32 %y 0
             %more = OpFAdd %f32 %first %ten
             %z = OpCompositeInsert %c %more %y 0
             OpCooperativeMatrixPrefetchINTEL %in %n0 %n0 %n8 %n16 0 %n0 %l16
             OpCooperativeMatrixStoreKHR %out %z %n0 %l16
             %count = OpConvertUToF %f32 %length
             %far = OpInBoundsPtrAccessChain %pf %out %l128
             OpStore %far %count",
            "",
        )
        .replace("%entry = OpLabel", "%entry = OpLabel\n%var = OpVariable %pm Function")
        // DPC++ goes into a variable through a generic pointer.
        .replace("%own %base", if lanes == 8 { "%own %var" } else { "%pgeneric %any" })
        .replace("%l16 = ", "%l128 = OpConstant %i64 128\n%l16 = ");
        let got = results(lanes, &text, lanes);
        assert_eq!(got[128], length as f32);
        for (i, &got) in got.iter().take(128).enumerate() {
            // The first component of all items together is the first elements.
            let more = if i < lanes as usize { 10 } else { 0 };
            assert_eq!(got, (2 * i + more) as f32, "element {i} of {lanes}");
        }
    }
}

/// Parts of a larger matrix, of 6 x 20 elements here, that reach beyond it are zero there, and are not stored.
#[test]
fn what_lies_outside_of_a_larger_matrix_is_zero() {
    for (lanes, layout) in [(8, 0), (16, 0), (32, 0), (16, 1)] {
        let text = text(
            lanes,
            "%n6 = OpConstant %i32 6
             %n20 = OpConstant %i32 20
             %l20 = OpConstant %i64 20",
            "%x = OpCooperativeMatrixLoadCheckedINTEL %c %in %n2 %n8 %layout %n6 %n20 %l20
             %one = OpCooperativeMatrixConstructCheckedINTEL %c %n4 %n8 %n6 %n20 %two
             %y = OpFAdd %c %x %one
             OpCooperativeMatrixStoreCheckedINTEL %out %n3 %n4 %y %layout %n6 %n20 %l20",
            "",
        )
        .replace("%layout", if layout == 0 { "%n0" } else { "%n1" });
        let got = results(lanes, &text, lanes);
        let mut expected: Vec<f32> = (0..512).map(|i| i as f32).collect();
        for row in 0..8 {
            for column in 0..16 {
                let (line, within) = if layout == 0 { (row, column) } else { (column, row) };
                let (from, at) = ((line + 2, within + 8), (line + 3, within + 4));
                let inside = |(line, within): (usize, usize)| line < 6 && within < 20;
                let mut x = if inside(from) { (from.0 * 20 + from.1) as f32 } else { 0.0 };
                // Without a layout the coordinates are row and column.
                x += if inside((row + 4, column + 8)) { 2.0 } else { 0.0 };
                if inside(at) {
                    expected[at.0 * 20 + at.1] = x;
                }
            }
        }
        assert_eq!(got, expected, "{lanes} lanes, layout {layout}");
    }
}

/// Products behind a branch that all items of a sub-group take together, though the compiler cannot know it; and
/// in sub-groups with fewer items, where what the others have counts as zeros.
#[test]
fn sub_groups_multiply_alone_and_when_they_are_partial() {
    let mut random = Random::new(5);
    for case in [
        Case::new(16, [F32; 4], (8, 16, 8)),
        Case::new(8, [F32; 4], (4, 4, 4)),
        Case { flags: 15, ..Case::new(16, [I8, I8, I32, I32], (2, 16, 32)) },
    ] {
        let inputs = case.inputs(&mut random);
        let bytes = |numbers: &[i64], num: Num| {
            Input::bytes(numbers.iter().flat_map(|&x| num.encode(x)).collect())
        };
        let mut arguments: Vec<Input> =
            inputs.iter().zip(case.types).map(|(numbers, num)| bytes(numbers, num)).collect();
        let size = case.memory()[3].2 * case.types[3].bytes();
        arguments.push(Input::bytes(vec![0; size * 4]));
        let whole = module(&case.module());
        let partial = Grid::line(u64::from(case.lanes) * 3 / 2, case.lanes * 3 / 2);
        same(&whole, "k", partial, &arguments, &format!("{case:?}, partial"));
        // The second of each two sub-groups writes nothing.
        let text = case.text();
        let at = text.find("%r = OpCooperativeMatrixMulAddKHR").expect("a product");
        let end = text[at..].find("OpReturn").expect("an end") + at;
        let (product, rest) = (&text[at..end], &text[end..]);
        let text = format!(
            "{}%odd = OpBitwiseAnd %i64 %i %n_lanes
             %first = OpIEqual %bool %odd %n_zero
             OpBranchConditional %first %then %end
             %then = OpLabel
             {product}OpBranch %end
             %end = OpLabel
             {rest}",
            &text[..at],
        );
        let numbers = format!(
            "%n_lanes = OpConstant %i64 {}\n%n_zero = OpConstant %i64 0\n%fn = ",
            case.lanes
        );
        let behind = module(&spirv::assemble(&text.replacen("%fn = ", &numbers, 1)));
        let grid = Grid::line(u64::from(case.lanes) * 4, case.lanes * 2);
        let run = (grid, arguments.clone());
        let got = interpreted(&behind, "k", &run).unwrap_or_else(|error| panic!("{error}"));
        let mut expected = case.expected(&inputs);
        expected[size..2 * size].fill(0);
        expected[3 * size..].fill(0);
        assert_eq!(got[3], expected, "{case:?}, behind a branch");
        same(&behind, "k", grid, &arguments, &format!("{case:?}, behind a branch"));
    }
}

/// What a module is refused for, with the reason.
#[test]
fn wrong_matrices_are_refused_with_the_reason() {
    let product = "%x = OpCooperativeMatrixLoadKHR %a %in %n0 %l16
         %y = OpCooperativeMatrixLoadKHR %b %in %n0 %l16
         %z = OpCooperativeMatrixLoadKHR %c %in %n0 %l16
         %r = OpCooperativeMatrixMulAddKHR %c %x %y %z
         OpCooperativeMatrixStoreKHR %out %r %n0 %l16";
    let right = text(16, "", product, "");
    let log = |text: &str| {
        let bytes = spirv::assemble(text);
        let mut module = match parse::parse(&bytes, &[]) {
            Ok(module) => module,
            Err(error) => return error.to_string(),
        };
        check::check(&mut module).err().map_or(String::new(), |failure| failure.to_string())
    };
    assert_eq!(log(&right), "");
    // A function of another module may have been built for other sub-groups.
    let mut other = parse::parse(&spirv::assemble(&right), &[]).expect("it is right");
    other.kernels[0].required_subgroup_size = Some(8);
    let failure = check::check(&mut other).expect_err("the sizes differ").to_string();
    assert!(failure.contains("multiplies matrices that are spread over 16"), "{failure}");
    let mut other = parse::parse(&spirv::assemble(&right), &[]).expect("it is right");
    other.kernels[0].required_group_size = Some([8, 3, 1]);
    let failure = check::check(&mut other).expect_err("a sub-group is partial").to_string();
    assert!(failure.contains("no whole sub-groups of 16"), "{failure}");
    let wide = "%n64 = OpConstant %i32 64\n%n16 = ";
    let two = "OpEntryPoint Kernel %other \"other\"
        OpExecutionMode %other SubgroupSize 8
        OpExecutionMode %k SubgroupSize";
    let other = "OpFunctionEnd
        %other = OpFunction %void None %nothing
        %only = OpLabel
        OpReturn
        OpFunctionEnd";
    let cases: [(&[(&str, &str)], &str); 11] = [
        (&[("%f32 %n3 %n16 %n16 %n1", "%f32 %n3 %n8 %n16 %n1")], "multiplies 8x16 by 8x16"),
        (&[("%f32 %n3 %n8 %n16 %n0", "%f32 %n3 %n8 %n16 %n2")], "not A, B and accumulator"),
        (&[("%f32 %n3 %n8 %n16 %n0", "%f32 %n3 %n8 %n16 %n3")], "has use 3"),
        (&[("%f32 %n3 %n8 %n16 %n0", "%f32 %n2 %n8 %n16 %n0")], "of 8x16 in scope 2"),
        (&[("%f32 %n3 %n8 %n16 %n0", "%f32 %n3 %n8 %n0 %n0")], "a matrix of 8x0"),
        (
            &[("%n16 = ", wide), ("%f32 %n3 %n8 %n16 %n0", "%f32 %n3 %n64 %n64 %n0")],
            "of 64x64, the limit is 2048 elements",
        ),
        (&[("%a %in %n0", "%a %in %n4")], "with the layout 4, which is not known"),
        (&[("%a %in %n0 %l16", "%a %in %n0")], "has no stride"),
        (&[("%x %y %z", "%x %y %z 512")], "with the operands 0x200"),
        (&[("%x %y %z", "%x %y %z 64")], "other than 16-bit integers as brain floats"),
        (
            &[
                ("OpExecutionMode %k SubgroupSize", two),
                ("%fn =", "%nothing = OpTypeFunction %void\n%fn ="),
                ("OpFunctionEnd", other),
            ],
            "several sizes",
        ),
    ];
    for (changes, reason) in cases {
        let text = changes.iter().fold(right.clone(), |text, (from, to)| {
            assert!(text.contains(from), "{from}");
            text.replacen(from, to, 1)
        });
        let log = log(&text);
        assert!(log.contains(reason), "{reason:?} is not in {log:?}");
    }
}
