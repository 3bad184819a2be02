// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations of groups and sub-groups, in compiled code and in the interpreter, against plain Rust.

use tally_compiler_protocol::TargetCpu;

use crate::diff::{Elements, Input, interpreted, same, same_at};
use crate::harness::{Grid, Kernel, buffer, clang, module, targets, widths};

/// A scalar type of SPIR-V, and the conversion of numbers to its elements and back.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ty {
    Bool,
    Int(u32),
    Float(u32),
}

impl Ty {
    /// The size in a buffer; a `bool` is an `int` there.
    fn size(self) -> usize {
        match self {
            Ty::Bool => 4,
            Ty::Int(bits) | Ty::Float(bits) => bits as usize / 8,
        }
    }

    fn name(self) -> String {
        match self {
            Ty::Bool => "bool".into(),
            Ty::Int(bits) => format!("int{bits}"),
            Ty::Float(bits) => format!("float{bits}"),
        }
    }

    fn elements(self) -> Elements {
        match self {
            Ty::Float(16) => Elements::Halves,
            Ty::Float(32) => Elements::Floats,
            Ty::Float(_) => Elements::Doubles,
            _ => Elements::Bytes,
        }
    }

    /// The bytes of a number. Halves are small integers here, which they represent exactly.
    fn encode(self, x: f64) -> Vec<u8> {
        match self {
            Ty::Float(16) => half(x).to_le_bytes().to_vec(),
            Ty::Float(32) => (x as f32).to_le_bytes().to_vec(),
            Ty::Float(_) => x.to_le_bytes().to_vec(),
            _ => unreachable!("only floats"),
        }
    }
}

/// The half of an integer below 2048, or of an infinity.
fn half(x: f64) -> u16 {
    let sign = u16::from(x.is_sign_negative()) << 15;
    let x = x.abs();
    if x == 0.0 {
        return sign;
    }
    if x.is_infinite() {
        return sign | 0x7c00;
    }
    let bits = x.to_bits();
    let exponent = ((bits >> 52) as i32 - 1023 + 15) as u16;
    sign | exponent << 10 | (bits >> 42 & 0x3ff) as u16
}

/// An operation that combines numbers: the end of its opcode, the types, and the plain function with
/// its start value.
struct Combine {
    opcode: &'static str,
    /// Whether the uniform form has the suffix of its extension.
    khr: bool,
    ints: Option<fn(i128, i128, u32) -> i128>,
    floats: Option<fn(f64, f64) -> f64>,
    start: f64,
}

fn signed(x: i128, bits: u32) -> i128 {
    x << (128 - bits) >> (128 - bits)
}

fn unsigned(x: i128, bits: u32) -> i128 {
    x & ((1 << bits) - 1)
}

const COMBINES: [Combine; 16] = {
    const fn int(
        opcode: &'static str,
        khr: bool,
        start: f64,
        op: fn(i128, i128, u32) -> i128,
    ) -> Combine {
        Combine { opcode, khr, ints: Some(op), floats: None, start }
    }
    const fn float(
        opcode: &'static str,
        khr: bool,
        start: f64,
        op: fn(f64, f64) -> f64,
    ) -> Combine {
        Combine { opcode, khr, ints: None, floats: Some(op), start }
    }
    // For minima and maxima the start value is an extreme: every number is on the other side.
    [
        int("IAdd", false, 0.0, |a, b, _| a + b),
        int("IMul", true, 1.0, |a, b, n| signed(signed(a, n) * signed(b, n), n)),
        int("SMin", false, f64::MAX, |a, b, n| signed(a, n).min(signed(b, n))),
        int("SMax", false, f64::MIN, |a, b, n| signed(a, n).max(signed(b, n))),
        int("UMin", false, -1.0, |a, b, n| unsigned(a, n).min(unsigned(b, n))),
        int("UMax", false, 0.0, |a, b, n| unsigned(a, n).max(unsigned(b, n))),
        int("BitwiseAnd", true, -1.0, |a, b, _| a & b),
        int("BitwiseOr", true, 0.0, |a, b, _| a | b),
        int("BitwiseXor", true, 0.0, |a, b, _| a ^ b),
        int("LogicalAnd", true, 1.0, |a, b, _| a & b),
        int("LogicalOr", true, 0.0, |a, b, _| a | b),
        int("LogicalXor", true, 0.0, |a, b, _| a ^ b),
        float("FAdd", false, 0.0, |a, b| a + b),
        float("FMul", true, 1.0, |a, b| a * b),
        float("FMin", false, f64::INFINITY, f64::min),
        float("FMax", false, f64::NEG_INFINITY, f64::max),
    ]
};

/// The way in which values of a scope are combined, in the order of the kernel's results.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Reduce,
    Inclusive,
    Exclusive,
    /// Four items at a time.
    Clustered,
}

/// A kernel that executes several operations one after the other and stores each result.
fn kernel_text(ty: Ty, subgroup: u32, operations: &[String]) -> String {
    let value = match ty {
        Ty::Bool => "%x = OpINotEqual %bool %loaded %n0\n",
        _ => "%x = OpCopyObject %t %loaded\n",
    };
    let (t, memory) = match ty {
        Ty::Bool => ("%bool".into(), "%int32".into()),
        other => (format!("%{}", other.name()), format!("%{}", other.name())),
    };
    let size = ty.size();
    let mut body = String::new();
    for (k, operation) in operations.iter().enumerate() {
        body += &operation.replace("%r", &format!("%r{k}")).replace("%t", &t);
        body += "\n";
        let stored = match ty {
            Ty::Bool => {
                body += &format!("%s{k} = OpSelect %int32 %r{k} %n1 %n0\n");
                format!("%s{k}")
            }
            _ => format!("%r{k}"),
        };
        body += &format!(
            "%j{k} = OpIAdd %int64 %base %c{k}\n%o{k} = OpInBoundsPtrAccessChain %p %out %j{k}\nOpStore %o{k} {stored} Aligned {size}\n"
        );
    }
    // The numbers of results are constants of the module.
    let mut constants = String::new();
    for k in 0..operations.len() {
        constants += &format!("%c{k} = OpConstant %int64 {k}\n");
    }
    let count = operations.len();
    format!(
        "OpCapability Addresses\nOpCapability Linkage\nOpCapability Kernel\nOpCapability Int8\nOpCapability Int16
OpCapability Int64\nOpCapability Float16\nOpCapability Float64\nOpCapability Groups
OpCapability GroupUniformArithmeticKHR\nOpCapability GroupNonUniformArithmetic
OpCapability GroupNonUniformClustered\nOpCapability SubgroupDispatch
OpCapability SubgroupShuffleINTEL\nOpCapability SubgroupBufferBlockIOINTEL
OpExtension \"SPV_KHR_uniform_group_instructions\"\nOpExtension \"SPV_INTEL_subgroups\"
OpMemoryModel Physical64 OpenCL
OpEntryPoint Kernel %k \"k\" %gid
OpExecutionMode %k SubgroupSize {subgroup}
OpDecorate %gid BuiltIn GlobalInvocationId
%void = OpTypeVoid\n%bool = OpTypeBool
%int8 = OpTypeInt 8 0\n%int16 = OpTypeInt 16 0\n%int32 = OpTypeInt 32 0\n%int64 = OpTypeInt 64 0
%float16 = OpTypeFloat 16\n%float32 = OpTypeFloat 32\n%float64 = OpTypeFloat 64
%v3 = OpTypeVector %int64 3
%n0 = OpConstant %int32 0\n%n1 = OpConstant %int32 1\n%n2 = OpConstant %int32 2\n%n3 = OpConstant %int32 3
%n4 = OpConstant %int32 4\n%count = OpConstant %int64 {count}
{constants}%pv3 = OpTypePointer Input %v3\n%p = OpTypePointer CrossWorkgroup {memory}
%f = OpTypeFunction %void %p %p
%gid = OpVariable %pv3 Input
%k = OpFunction %void None %f
%out = OpFunctionParameter %p\n%in = OpFunctionParameter %p
%l = OpLabel
%g = OpLoad %v3 %gid Aligned 32\n%i = OpCompositeExtract %int64 %g 0
%base = OpIMul %int64 %i %count
%at = OpInBoundsPtrAccessChain %p %in %i\n%loaded = OpLoad {memory} %at Aligned {size}
{}{body}OpReturn\nOpFunctionEnd\n",
        value.replace("%t", &t)
    )
}

/// The range of items whose values item `i` of `n` combines, in groups of `group` items with sub-groups
/// of `scope_size`.
fn range(kind: Kind, scope_size: usize, group: usize, n: usize, i: usize) -> (usize, usize) {
    let group_start = i / group * group;
    let group_end = (group_start + group).min(n);
    let start = group_start + (i - group_start) / scope_size * scope_size;
    let end = (start + scope_size).min(group_end);
    match kind {
        Kind::Reduce => (start, end),
        Kind::Inclusive => (start, i + 1),
        Kind::Exclusive => (start, i),
        Kind::Clustered => {
            let cluster = start + (i - start) / 4 * 4;
            (cluster, (cluster + 4).min(end))
        }
    }
}

/// Checks one operation on one type: all kinds one after the other, in both scopes, with a partial last
/// group, and with partial sub-groups if the groups do not consist of whole ones.
fn check_combine(combine: &Combine, ty: Ty, subgroup: u32, group: usize, at: &[(TargetCpu, u32)]) {
    const N: usize = 61;
    let khr = if combine.khr { "KHR" } else { "" };
    let op = combine.opcode;
    let mut operations = Vec::new();
    let mut wanted = Vec::new();
    for (name, kind) in [
        ("Reduce", Kind::Reduce),
        ("InclusiveScan", Kind::Inclusive),
        ("ExclusiveScan", Kind::Exclusive),
    ] {
        operations.push(format!("%r = OpGroup{op}{khr} %t %n2 {name} %x"));
        wanted.push((kind, group));
        operations.push(format!("%r = OpGroup{op}{khr} %t %n3 {name} %x"));
        wanted.push((kind, subgroup as usize));
        operations.push(format!("%r = OpGroupNonUniform{op} %t %n3 {name} %x"));
        wanted.push((kind, subgroup as usize));
    }
    operations.push(format!("%r = OpGroupNonUniform{op} %t %n3 ClusteredReduce %x %n4"));
    wanted.push((Kind::Clustered, subgroup as usize));
    let text = kernel_text(ty, subgroup, &operations);
    let context = format!("{op} of {ty:?}");
    let module = module(&clang::assemble(&text));

    let size = ty.size();
    let numbers: Vec<i64> = (0..N as i64)
        .map(|i| match (op, ty) {
            (_, Ty::Bool) => i64::from(i % 5 != 3 || i > 40),
            ("FMul", _) => [1, -1, 1, 1, -1][i as usize % 5],
            (_, Ty::Float(_)) => i * 37 % 23 - 11,
            _ => (i + 3).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64) >> 3,
        })
        .collect();
    let encode_int = |x: i128| x.to_le_bytes()[..size].to_vec();
    let input: Vec<u8> = numbers
        .iter()
        .flat_map(|&x| match ty {
            Ty::Float(_) => ty.encode(x as f64),
            _ => encode_int(x.into()),
        })
        .collect();
    let mut expected = Vec::new();
    for i in 0..N {
        for &(kind, scope) in &wanted {
            let (from, to) = range(kind, scope, group, N, i);
            let values = numbers[from..to].iter();
            match (ty, combine.ints, combine.floats) {
                (Ty::Float(_), _, Some(f)) => {
                    let sum = values.fold(combine.start, |sum, &x| f(sum, x as f64));
                    expected.extend(ty.encode(sum));
                }
                (_, Some(f), _) => {
                    let bits = if ty == Ty::Bool { 1 } else { size as u32 * 8 };
                    let start = match combine.start {
                        f64::MAX => (1 << (bits - 1)) - 1,
                        f64::MIN => -(1 << (bits - 1)),
                        start => start as i128,
                    };
                    let sum = values.fold(start, |sum, &x| f(sum, x.into(), bits));
                    expected.extend(encode_int(if bits == 1 { sum & 1 } else { sum }));
                }
                _ => unreachable!("the types fit"),
            }
        }
    }
    let grid = Grid::line(N as u64, group as u32);
    let out = vec![0u8; expected.len()];
    let inputs =
        [Input::Buffer(ty.elements(), out.clone()), Input::Buffer(ty.elements(), input.clone())];
    same_at(at, &module, "k", grid, &inputs, &context);
    let got = interpreted(&module, "k", &(grid, inputs.to_vec())).expect("it ran above").remove(0);
    let wrong = (0..expected.len() / size)
        .find(|&at| got[at * size..][..size] != expected[at * size..][..size]);
    if let Some(at) = wrong {
        let (item, which) = (at / wanted.len(), at % wanted.len());
        panic!(
            "{context}: item {item}, {}: {:x?}, not {:x?}",
            operations[which],
            &got[at * size..][..size],
            &expected[at * size..][..size]
        );
    }
}

/// Reductions and scans of each operation and type, of groups and sub-groups, equal those of a loop.
#[test]
fn everything_that_combines_is_a_plain_loop() {
    for (number, combine) in COMBINES.iter().enumerate() {
        let subgroup = [8, 16, 32][number % 3];
        let types: Vec<Ty> = if combine.floats.is_some() {
            [16, 32, 64].map(Ty::Float).into()
        } else if combine.opcode.starts_with("Logical") {
            vec![Ty::Bool]
        } else {
            [8, 16, 32, 64].map(Ty::Int).into()
        };
        for (turn, ty) in types.into_iter().enumerate() {
            // Groups of 32 are widened, groups of 28 are not.
            let group = [28, 32][(number / 3 + turn) % 2];
            // Two of the widths: every type and every operation is tested with all of them over time.
            let all = widths();
            let at = [number + turn, number + turn + 2].map(|n| all[n % all.len()].clone());
            check_combine(combine, ty, subgroup, group, &at);
        }
    }
}

/// The file of kernels at each of clang's levels.
fn kernels() -> Vec<tally_compiler::ir::Module> {
    ["-O0", "-O2"]
        .map(|level| module(&clang::compile("groups.cl", &[level, "-Xclang", "-cl-ext=+all"])))
        .into()
}

/// Runs a kernel of [`kernels`], compiled for each processor and interpreted, and returns the first
/// buffer.
fn results<T: Copy + Default + PartialEq + std::fmt::Debug>(
    name: &str,
    grid: Grid,
    outputs: usize,
    rest: &[Input],
) -> Vec<Vec<T>> {
    let mut all = Vec::new();
    for module in kernels() {
        let size = outputs * size_of::<T>();
        let mut inputs = vec![Input::bytes(vec![0; size])];
        inputs.extend_from_slice(rest);
        same(&module, name, grid, &inputs, "");
        let mut out = vec![T::default(); outputs];
        let mut copies: Vec<Vec<u64>> = Vec::new();
        for input in rest {
            if let Input::Buffer(_, bytes) = input {
                let word = |c: &[u8]| c.iter().rev().fold(0, |w, &b| w << 8 | u64::from(b));
                copies.push(bytes.chunks(8).map(word).collect());
            }
        }
        let mut args = vec![buffer(&mut out)];
        let mut copies = copies.iter_mut();
        for input in rest {
            args.push(match input {
                Input::Local(len) => crate::harness::Arg::Local(*len),
                Input::Value(bytes) => crate::harness::Arg::Bytes(bytes.clone()),
                Input::Buffer(..) => buffer(copies.next().expect("one for each").as_mut_slice()),
            });
        }
        Kernel::new(&module, name, &targets()[0]).run(grid, args);
        all.push(out);
    }
    all
}

/// Ids and sizes of sub-groups follow the linear ids, also in partial groups of three dimensions.
#[test]
fn items_know_their_places_in_sub_groups() {
    let grid = Grid { offset: [0; 3], global: [7, 5, 3], group: [4, 3, 2] };
    let mut expected = vec![0u32; 7 * 5 * 3 * 7];
    for z in 0..3 {
        for y in 0..5 {
            for x in 0..7 {
                let size = [(7 - x / 4 * 4).min(4), (5 - y / 3 * 3).min(3), (3 - z / 2 * 2).min(2)];
                let items: usize = size[0] * size[1] * size[2];
                let linear = ((z % 2) * size[1] + y % 3) * size[0] + x % 4;
                let own = (items - linear / 8 * 8).min(8);
                let answers = [own, 8, items.div_ceil(8), 3, linear / 8, linear % 8, linear];
                let at = ((z * 5 + y) * 7 + x) * 7;
                for (k, answer) in answers.into_iter().enumerate() {
                    expected[at + k] = answer as u32;
                }
            }
        }
    }
    for got in results::<u32>("places", grid, expected.len(), &[]) {
        assert_eq!(got, expected);
    }
}

/// A ballot has the bits of the items that exist, and its queries count these.
#[test]
fn ballots_and_their_queries_are_right() {
    const N: usize = 75;
    let input: Vec<i32> = (0..N as i32).map(|i| i * i / 3).collect();
    let bytes = input.iter().flat_map(|x| x.to_le_bytes()).collect();
    let mut expected = Vec::new();
    for i in 0..N {
        // Groups of 40: sub-groups of 16, 16 and 8, then 16, 16 and 3.
        let group = i / 40 * 40;
        let start = group + (i - group) / 16 * 16;
        let end = (start + 16).min(group + 40).min(N);
        let lane = i - start;
        let votes = (start..end).fold(0u32, |v, k| v | ((input[k] & 1) as u32) << (k - start));
        let below = (1u32 << lane) - 1;
        let (lowest, highest) = match votes {
            0 => (99, 99),
            votes => (votes.trailing_zeros(), 31 - votes.leading_zeros()),
        };
        expected.extend([
            votes,
            0,
            votes.count_ones(),
            (votes & (below << 1 | 1)).count_ones(),
            (votes & below).count_ones(),
            lowest,
            highest,
            votes >> lane & 1,
            votes >> 2 & 1,
            u32::from(lane == 0),
        ]);
    }
    for got in results::<u32>("ballots", Grid::line(N as u64, 40), N * 10, &[Input::bytes(bytes)]) {
        assert_eq!(got, expected);
    }
}

/// Shuffles and broadcasts return the named item's value, for all kinds of types.
#[test]
fn shuffles_take_the_value_of_another_item() {
    const N: usize = 64 + 24;
    let input: Vec<i64> = (0..N as i64).map(|i| i * 31 % 1009 - 5).collect();
    let bytes = input.iter().flat_map(|x| x.to_le_bytes()).collect();
    let mut expected = Vec::new();
    for i in 0..N {
        let group = i / 64 * 64;
        let end = (group + 64).min(N);
        let start = group + (i - group) / 16 * 16;
        let peers = &input[start..(start + 16).min(end)];
        let (lane, size, x) = (i - start, peers.len(), |k: usize| peers[k]);
        let all = |values: &[i64]| i64::from(values.iter().all(|&x| x > -3));
        let any = |values: &[i64]| i64::from(values.iter().any(|&x| x > 900));
        let equal = peers.iter().all(|&x| x == peers[0]);
        expected.extend([
            x((lane + 3) % size),
            x(lane ^ 1),
            if lane >= 2 { x(lane - 2) } else { -7 },
            if lane + 2 < size { x(lane + 2) } else { -7 },
            i64::from(x(1) as i8),
            x(2) & 0xffff,
            x(0) & 0xff,
            i64::from(x(0) as i16),
            (x(1) & 0xff) + 4,
            input[group + 5],
            all(peers) + 2 * any(peers) + 4 * all(&input[group..end]) + 8 * any(&input[group..end]),
            1 + 2 * i64::from(equal),
        ]);
    }
    for got in results::<i64>("shuffles", Grid::line(N as u64, 64), N * 12, &[Input::bytes(bytes)])
    {
        for (at, (got, expected)) in got.iter().zip(&expected).enumerate() {
            assert_eq!(got, expected, "item {}, result {}", at / 12, at % 12);
        }
    }
}

/// In divergent code, only the items of a sub-group that reach an operation together take part in it.
#[test]
fn operations_in_divergent_code_are_of_the_active_items() {
    const N: usize = 29;
    let mut expected = Vec::new();
    for i in 0..N {
        let start = i / 20 * 20 + (i % 20) / 8 * 8;
        let end = (start + 8).min(if i < 20 { 20 } else { N });
        let lanes = 0..end - start;
        let lane = i - start;
        let thirds: Vec<usize> = lanes.clone().filter(|lane| lane % 3 == 0).collect();
        let mut r = if lane % 3 == 0 {
            let votes = thirds.iter().fold(0, |votes, lane| votes | 1 << lane);
            votes + 1000 * thirds.iter().sum::<usize>()
        } else {
            lanes.clone().filter(|&other| other % 3 != 0 && other <= lane).count()
        };
        for k in 0..=lane {
            r += 100_000 * lanes.clone().filter(|&other| other >= k).count();
        }
        expected.push(r as u32);
    }
    for got in results::<u32>("divergent", Grid::line(N as u64, 20), N, &[]) {
        assert_eq!(got, expected);
    }
    let mut expected = Vec::new();
    for i in 0..N {
        let start = i / 8 * 8;
        let lanes = || (start..N.min(start + 8)).filter(|i| i % 4 != 1);
        let votes = lanes().fold(0, |votes, i| votes | 1 << (i - start));
        let rest = lanes().filter(|i| i % 4 != 2).count() as u32;
        expected.push(match i % 4 {
            1 => 0,
            2 => votes,
            _ => votes + 1000 * rest,
        });
    }
    for got in results::<u32>("early", Grid::line(N as u64, 16), N, &[]) {
        assert_eq!(got, expected);
    }
}

/// Sub-groups take different numbers of turns between barriers of the work-group, in loops.
#[test]
fn sub_groups_go_their_own_ways_between_barriers() {
    const GROUP: usize = 30;
    let group = |items: usize| {
        let mut x: Vec<i32> = (0..items as i32).collect();
        for _ in 0..3 {
            let t = x.clone();
            for l in 0..items {
                x[l] += t[(l + 9) % items];
            }
            for (sub, start) in (0..items).step_by(8).enumerate() {
                let end = (start + 8).min(items);
                for k in 0..sub {
                    let before = x.clone();
                    for l in start..end {
                        let other = start + ((l - start) ^ 1);
                        x[l] = before[if other < end { other } else { l }] + k as i32;
                    }
                }
                if sub & 1 != 0 {
                    let most = x[start..end].iter().copied().max().unwrap_or(0);
                    x[start..end].iter_mut().for_each(|x| *x += most);
                }
            }
            let sum: i32 = x.iter().map(|x| x & 3).sum();
            for (l, x) in x.iter_mut().enumerate() {
                *x = (*x + sum) ^ l as i32;
            }
        }
        x
    };
    let expected: Vec<i32> = [GROUP, GROUP, 13].into_iter().flat_map(group).collect();
    let grid = Grid::line(expected.len() as u64, GROUP as u32);
    for got in results::<i32>("turns", grid, expected.len(), &[Input::Local(GROUP * 4)]) {
        assert_eq!(got, expected);
    }
}

/// Operations that follow one another do not see each other's values.
#[test]
fn operations_in_a_row_keep_apart() {
    let group = |items: usize| {
        let mut x: Vec<i32> = (0..items as i32).collect();
        for k in 0..5 {
            let most = x.iter().map(|x| x + k).max().unwrap_or(0);
            x.iter_mut().for_each(|x| *x = most - *x);
            let mut sum = 0;
            for x in &mut x {
                sum += *x;
                *x = sum & 0xff;
            }
            let before = x.clone();
            for start in (0..items).step_by(16) {
                let end = (start + 16).min(items);
                for l in start..end {
                    let other = start + ((l - start) ^ 1);
                    x[l] = before[if other < end { other } else { l }] + before[2];
                }
                let before = x[start..end].to_vec();
                let least = before.iter().copied().min().unwrap_or(0);
                for l in start..end {
                    let most = before[..l - start].iter().copied().fold(i32::MIN, i32::max);
                    // The items below diverge from the others here.
                    x[l] = if most > 0 { i32::MIN } else { before[l - start] + 1 };
                }
                let active: Vec<usize> = (start..end).filter(|&l| x[l] == i32::MIN).collect();
                let of_active = active.iter().map(|l| before[l - start]).min().unwrap_or(least);
                active.into_iter().for_each(|l| x[l] = of_active + l as i32);
            }
        }
        x
    };
    let expected: Vec<i32> = [40, 40, 21].into_iter().flat_map(group).collect();
    for got in results::<i32>("in_a_row", Grid::line(101, 40), 101, &[]) {
        assert_eq!(got, expected);
    }
    let mut expected = Vec::new();
    for i in 0..101 {
        let start = i / 40 * 40 + (i % 40) / 16 * 16;
        let end = (start + 16).min((i / 40 + 1) * 40).min(101);
        let a: usize = (start..end).sum();
        expected.push((0..end - start).map(|lane| (a + lane) as i32).sum());
    }
    for got in results::<i32>("by_barrier", Grid::line(101, 40), 101, &[Input::Local(200)]) {
        assert_eq!(got, expected);
    }
}

/// The instructions of SPV_INTEL_subgroups: shuffles over one value and two, blocks of memory.
#[test]
fn shuffles_and_blocks_of_intel_are_right() {
    let operations = [
        "%z = OpIAdd %t %x %n1\n%r = OpSubgroupShuffleINTEL %t %x %n3",
        "%r = OpSubgroupShuffleDownINTEL %t %x %z %n3",
        "%r = OpSubgroupShuffleUpINTEL %t %z %x %n3",
        "%r = OpSubgroupShuffleXorINTEL %t %x %n2",
        "%r = OpSubgroupBlockReadINTEL %t %in",
    ];
    let operations: Vec<String> = operations.iter().map(|&text| text.to_owned()).collect();
    let module = module(&clang::assemble(&kernel_text(Ty::Int(32), 8, &operations)));
    let mut input: Vec<u32> = (0..32).map(|i| i * 10).collect();
    let mut expected = Vec::new();
    for i in 0..32 {
        let (start, lane) = (i / 8 * 8, i % 8);
        let x = |lane: u32| (start + lane) * 10;
        expected.extend([
            x(3),
            if lane + 3 < 8 { x(lane + 3) } else { x(lane + 3 - 8) + 1 },
            if lane >= 3 { x(lane - 3) } else { x(lane + 8 - 3) + 1 },
            x(lane ^ 2),
            lane * 10,
        ]);
    }
    let grid = Grid::line(32, 16);
    let bytes = input.iter().flat_map(|x| x.to_le_bytes()).collect();
    same(&module, "k", grid, &[Input::bytes(vec![0; 32 * 20]), Input::bytes(bytes)], "");
    let mut out = vec![0u32; 32 * 5];
    Kernel::new(&module, "k", &targets()[0]).run(grid, vec![buffer(&mut out), buffer(&mut input)]);
    // The value shifted up comes from the previous value in the lanes below.
    assert_eq!(out, expected);
}
