// SPDX-License-Identifier: MIT OR Apache-2.0
//! Vectors of pointers, and gathers and scatters through them (SPV_INTEL_masked_gather_scatter).

use tally_compiler::check::check;
use tally_compiler::ir::Module;
use tally_compiler::parse::parse;

use crate::diff::{Input, interpreted, same};
use crate::harness::clang::Assembly;
use crate::harness::{Grid, module};
use crate::widen::ints;

/// `OpMaskedGatherINTEL %v4 ...` and `OpMaskedScatterINTEL`, which the assembler may not know: their first
/// words. An instruction with a fixed number of operands has to precede them.
const GATHER: &str = "OpNop
    !465180";
const SCATTER: &str = "OpNop
    !334109";

const HEAD: &str = "OpCapability Vector16
    OpCapability GenericPointer
    OpCapability Int8
    OpExtension \"SPV_INTEL_masked_gather_scatter\"";

const DECLARATIONS: &str = "
    %v4 = OpTypeVector %i32 4
    %l4 = OpTypeVector %i64 4
    %b4 = OpTypeVector %bool 4
    %b2 = OpTypeVector %bool 2
    %p4 = OpTypeVector %p 4
    %g = OpTypePointer Generic %i32
    %g4 = OpTypeVector %g 4
    %pp4 = OpTypePointer Function %p4
    %yes = OpConstantTrue %bool
    %no = OpConstantFalse %bool
    %zero = OpConstant %i32 0
    %one = OpConstant %i32 1
    %two = OpConstant %i32 2
    %four = OpConstant %i32 4
    %eight = OpConstant %i32 8
    %l0 = OpConstant %i64 0
    %l1 = OpConstant %i64 1
    %l2 = OpConstant %i64 2
    %l3 = OpConstant %i64 3
    %l4c = OpConstant %i64 4
    %l5 = OpConstant %i64 5
    %l101 = OpConstant %i64 101
    %zeros = OpConstantComposite %v4 %zero %zero %zero %zero
    %bits = OpConstantComposite %v4 %one %two %four %eight
    %steps = OpConstantComposite %l4 %l0 %l1 %l2 %l3
    %fixed = OpConstantComposite %b4 %yes %no %yes %yes
    %short = OpConstantComposite %b2 %yes %no
    %null = OpConstantNull %p";

const PARAMETERS: &[(&str, &str)] = &[("x", "p"), ("y", "p")];

fn spirv(variables: &str, body: &str) -> Vec<u8> {
    let (head, declarations, parameters) = (HEAD, DECLARATIONS, PARAMETERS);
    Assembly { head, declarations, parameters, variables, body, ..Assembly::default() }.module()
}

/// Four neighbours of places in `y`, some of which are null where the mask is false, and `%mask`, the lowest bits
/// of the item's number.
const POINTERS: &str = "
    %item = OpUConvert %i32 %i
    %items = OpCompositeConstruct %v4 %item %item %item %item
    %set = OpBitwiseAnd %v4 %items %bits
    %mask = OpINotEqual %b4 %set %zeros
    %i3 = OpIMul %i64 %i %l3
    %i5 = OpIMul %i64 %i %l5
    %k1 = OpUMod %i64 %i3 %l101
    %k2 = OpUMod %i64 %i5 %l101
    %from1 = OpInBoundsPtrAccessChain %p %y %k1
    %from2 = OpInBoundsPtrAccessChain %p %y %k2
    %m0 = OpCompositeExtract %bool %mask 0
    %maybe = OpSelect %p %m0 %from1 %null
    %bases = OpCompositeConstruct %p4 %maybe %from1 %from2 %from2
    %at4 = OpIMul %i64 %i %l4c
    %to = OpInBoundsPtrAccessChain %p %x %at4
    %tos = OpInBoundsPtrAccessChain %p4 %to %steps
    %low = OpInBoundsPtrAccessChain %p %y %l0
    %lows = OpCompositeConstruct %p4 %low %low %low %low";

fn run() -> (Grid, Vec<Input>) {
    (Grid::line(101, 50), vec![ints(404, |n| n + 1_000_000), ints(101, |n| n * 11 - 300)])
}

/// Compares a kernel's first buffer, four numbers for each item, at all widths.
fn gives(module: &Module, want: impl Fn(i32) -> [i32; 4]) {
    let (grid, inputs) = run();
    let want: Vec<i32> = (0..101).flat_map(want).collect();
    let got = &interpreted(module, "k", &(grid, inputs.clone())).unwrap()[0];
    let got: Vec<i32> =
        got.chunks_exact(4).map(|it| i32::from_le_bytes(it.try_into().unwrap())).collect();
    assert_eq!(got, want);
    same(module, "k", grid, &inputs, "");
}

fn input(n: i32) -> i32 {
    n * 11 - 300
}

#[test]
fn gathers_and_scatters_touch_what_the_mask_names() {
    let body = format!(
        "{POINTERS}
         {GATHER} %v4 %got %bases !4 %mask %items
         {SCATTER} %got %tos !4 %mask"
    );
    gives(&module(&spirv("", &body)), |n| {
        let from = [n * 3 % 101, n * 3 % 101, n * 5 % 101, n * 5 % 101];
        std::array::from_fn(|lane| match n >> lane & 1 {
            1 => input(from[lane]),
            _ => n * 4 + lane as i32 + 1_000_000,
        })
    });
}

/// The same through generic pointers, with a mask that is a constant, the alignment that is no promise, and
/// pointers that were in a variable.
#[test]
fn pointers_are_values_as_others_are() {
    let body = format!(
        "{POINTERS}
         %safe = OpCompositeInsert %p4 %from1 %bases 0
         OpStore %kept %safe Aligned 32
         %again = OpLoad %p4 %kept Aligned 32
         %generic = OpPtrCastToGeneric %g4 %again
         {GATHER} %v4 %got %generic !0 %fixed %items
         %away = OpPtrDiff %l4 %again %lows
         %away32 = OpUConvert %v4 %away
         %sum = OpIAdd %v4 %got %away32
         %same = OpPtrEqual %b4 %again %safe
         %other = OpPtrNotEqual %b4 %again %lows
         %both = OpLogicalAnd %b4 %same %other
         %words = OpConvertPtrToU %l4 %tos
         %back = OpConvertUToPtr %p4 %words
         {SCATTER} %sum %back !0 %both"
    );
    let kernel = spirv("%kept = OpVariable %pp4 Function", &body);
    gives(&module(&kernel), |n| {
        let from = [n * 3 % 101, n * 3 % 101, n * 5 % 101, n * 5 % 101];
        std::array::from_fn(|lane| {
            let got = if lane == 1 { n } else { input(from[lane]) };
            match from[lane] {
                0 => n * 4 + lane as i32 + 1_000_000,
                at => got + at,
            }
        })
    });
}

/// Where two components go to one place, the later one stays.
#[test]
fn later_components_win() {
    let body = format!(
        "{POINTERS}
         %one_place = OpCompositeConstruct %p4 %to %to %to %to
         %numbers = OpIMul %v4 %items %bits
         {SCATTER} %numbers %one_place !4 %mask"
    );
    gives(&module(&spirv("", &body)), |n| {
        let last = (0..4).rev().find(|lane| n >> lane & 1 == 1);
        let mut all = std::array::from_fn(|lane| n * 4 + lane as i32 + 1_000_000);
        if let Some(last) = last {
            all[0] = n << last;
        }
        all
    });
}

/// A kernel whose gather reads past the end of what it was given, for the checks.
pub fn reads_beyond() -> Module {
    let body = format!(
        "{POINTERS}
         %next = OpIAdd %i64 %i %l1
         %end = OpInBoundsPtrAccessChain %p %y %next
         %mine = OpInBoundsPtrAccessChain %p %y %i
         %pair = OpCompositeConstruct %p4 %mine %end %null %mine
         %odd = OpCompositeExtract %bool %mask 0
         %some = OpCompositeConstruct %b4 %odd %yes %no %yes
         {GATHER} %v4 %got %pair !4 %some %items
         {SCATTER} %got %tos !4 %some"
    );
    module(&spirv("", &body))
}

#[test]
fn wrong_gathers_are_refused() {
    let refusal = |body: String| {
        let body = format!("{POINTERS}\n{body}");
        match parse(&spirv("", &body), &[]) {
            Ok(mut module) => check(&mut module).expect_err("it is wrong").to_string(),
            Err(error) => error.to_string(),
        }
    };
    for (body, what) in [
        (
            format!("{GATHER} %v4 %got %bases !4 %short %items"),
            "mask of type boolx2 for 4 components",
        ),
        (
            format!("{GATHER} %v4 %got %from1 !4 %mask %items"),
            "through pointers of type ptr<global>",
        ),
        (format!("{GATHER} %v4 %got %bases !3 %mask %items"), "alignment of 3 bytes"),
        (format!("{GATHER} %v4 %got %bases !4 %mask %l0"), "fills with values of another type"),
        (format!("{SCATTER} %items %from1 !4 %mask"), "through pointers of type ptr<global>"),
        (format!("{SCATTER} %item %bases !4 %mask"), "accesses i32 through pointers"),
    ] {
        let found = refusal(body.clone());
        assert!(found.contains(what) && found.contains("INTEL"), "{body}: {found}");
    }
}
