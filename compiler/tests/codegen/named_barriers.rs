// SPDX-License-Identifier: MIT OR Apache-2.0
//! Named barriers, at which some of a work-group's sub-groups wait for each other.

use tally_compiler::check::check;
use tally_compiler::ir::Module;
use tally_compiler::parse::parse;
use tally_compiler::widen;

use crate::diff::{interpreted, same};
use crate::harness::clang::Assembly;
use crate::harness::{Grid, module};
use crate::widen::ints;

/// A kernel for groups of `items`, in sub-groups of `size`.
fn spirv(size: u32, items: u32, body: &str) -> Vec<u8> {
    let head = "OpCapability Groups
        OpCapability NamedBarrier
        OpCapability SubgroupDispatch";
    let notes = format!(
        "OpExecutionMode %k SubgroupSize {size}
         OpDecorate %subgroup BuiltIn SubgroupId
         OpDecorate %index BuiltIn LocalInvocationIndex"
    );
    let declarations = format!(
        "%nb = OpTypeNamedBarrier
         %n0 = OpConstant %i32 0
         %n1 = OpConstant %i32 1
         %n2 = OpConstant %i32 2
         %n3 = OpConstant %i32 3
         %n7 = OpConstant %i32 7
         %n9 = OpConstant %i32 9
         %order = OpConstant %i32 264
         %size = OpConstant %i64 {size}
         %last = OpConstant %i64 {}
         %count = OpConstant %i32 {items}
         %array = OpTypeArray %i32 %count
         %parray = OpTypePointer Workgroup %array
         %pw = OpTypePointer Workgroup %i32
         %pin = OpTypePointer Input %i32
         %pin64 = OpTypePointer Input %i64
         %subgroup = OpVariable %pin Input
         %index = OpVariable %pin64 Input
         %one = OpVariable %parray Workgroup
         %two = OpVariable %parray Workgroup",
        items - 1
    );
    let body = format!(
        "%sg = OpLoad %i32 %subgroup
         %l = OpLoad %i64 %index
         %from = OpInBoundsPtrAccessChain %p %y %i
         %in = OpLoad %i32 %from Aligned 4
         %mine = OpInBoundsAccessChain %pw %one %l
         %mine2 = OpInBoundsAccessChain %pw %two %l
         %other_l = OpBitwiseXor %i64 %l %size
         %there = OpULessThan %bool %other_l %last
         %partner = OpSelect %i64 %there %other_l %last
         %theirs = OpInBoundsAccessChain %pw %one %partner
         %mirror_l = OpISub %i64 %last %l
         %mirror = OpInBoundsAccessChain %pw %two %mirror_l
         {body}
         %to = OpInBoundsPtrAccessChain %p %x %i
         OpStore %to %result Aligned 4"
    );
    let parameters = &[("x", "p"), ("y", "p")];
    let (notes, declarations, body) = (notes.as_str(), declarations.as_str(), body.as_str());
    Assembly { head, notes, declarations, parameters, body, ..Assembly::default() }.module()
}

/// Pairs of sub-groups exchange numbers at a barrier of each pair: the first pair three times, the others once.
/// Then all wait for each other.
const PAIRS: &str = "
    %a = OpNamedBarrierInitialize %nb %n2
    %b = OpNamedBarrierInitialize %nb %n2
    %low = OpULessThan %bool %sg %n2
    OpBranchConditional %low %first %second
    %first = OpLabel
    OpBranch %go
    %second = OpLabel
    OpBranch %go
    %go = OpLabel
    %pair = OpPhi %nb %a %first %b %second
    %rounds = OpSelect %i32 %low %n3 %n1
    OpBranch %head
    %head = OpLabel
    %r = OpPhi %i32 %n0 %go %r1 %head
    %v = OpPhi %i32 %in %go %next %head
    OpStore %mine %v Aligned 4
    OpMemoryNamedBarrier %pair %n2 %order
    %t = OpLoad %i32 %theirs Aligned 4
    OpMemoryNamedBarrier %pair %n2 %order
    %t3 = OpIMul %i32 %t %n3
    %next = OpIAdd %i32 %t3 %n1
    %r1 = OpIAdd %i32 %r %n1
    %more = OpULessThan %bool %r1 %rounds
    OpBranchConditional %more %head %after
    %after = OpLabel
    OpStore %mine2 %next Aligned 4
    OpControlBarrier %n2 %n2 %order
    %m = OpLoad %i32 %mirror Aligned 4
    %m7 = OpIMul %i32 %m %n7
    %result = OpIAdd %i32 %m7 %next";

/// A kernel with these pairs.
pub fn pairs(size: u32, items: u32) -> Module {
    module(&spirv(size, items, PAIRS))
}

/// Runs two groups and compares their results at all widths.
fn gives(module: &Module, items: u32, want: impl Fn(&[i32]) -> Vec<i32>) {
    let n = 2 * items as i32;
    let input = |i: i32| i * 13 - 77;
    let run = (Grid::line(n as u64, items), vec![ints(n, |_| 0), ints(n, input)]);
    let numbers: Vec<i32> = (0..n).map(input).collect();
    let want: Vec<u8> = numbers
        .chunks_exact(items as usize)
        .flat_map(&want)
        .flat_map(|number| number.to_le_bytes())
        .collect();
    assert_eq!(interpreted(module, "k", &run).unwrap()[0], want);
    same(module, "k", run.0, &run.1, "");
}

#[test]
fn some_subgroups_wait_for_each_other() {
    for (size, items) in [(8, 32), (16, 64), (16, 56), (32, 128)] {
        let module = pairs(size, items);
        assert!(widen::widen(&module, &module.kernels[0], size).is_ok());
        gives(&module, items, |numbers| {
            let mut v = numbers.to_vec();
            for round in 0..3 {
                let old = v.clone();
                for l in 0..v.len() {
                    if round == 0 || l < 2 * size as usize {
                        let partner = (l ^ size as usize).min(v.len() - 1);
                        v[l] = old[partner].wrapping_mul(3).wrapping_add(1);
                    }
                }
            }
            (0..v.len()).map(|l| v[v.len() - 1 - l].wrapping_mul(7).wrapping_add(v[l])).collect()
        });
    }
}

/// A barrier of one sub-group is none, and one that too few reach lets all go on in the end, as other
/// barriers do.
#[test]
fn waiting_ends() {
    let body = "
    %alone = OpNamedBarrierInitialize %nb %n1
    %never = OpNamedBarrierInitialize %nb %n9
    OpMemoryNamedBarrier %alone %n2 %order
    OpMemoryNamedBarrier %alone %n2 %order
    %low = OpULessThan %bool %sg %n2
    OpBranchConditional %low %first %second
    %first = OpLabel
    OpMemoryNamedBarrier %never %n2 %order
    OpBranch %go
    %second = OpLabel
    OpControlBarrier %n2 %n2 %order
    OpBranch %go
    %go = OpLabel
    OpStore %mine2 %in Aligned 4
    OpControlBarrier %n2 %n2 %order
    %m = OpLoad %i32 %mirror Aligned 4
    %result = OpIAdd %i32 %m %sg";
    for (size, items) in [(8, 32), (16, 64), (32, 128)] {
        let module = module(&spirv(size, items, body));
        gives(&module, items, |numbers| {
            let of = |l: usize| numbers[numbers.len() - 1 - l] + (l / size as usize) as i32;
            (0..numbers.len()).map(of).collect()
        });
    }
}

/// Operations of the work-group keep what they are about while sub-groups wait at named barriers.
#[test]
fn group_operations_stay_whole() {
    let body = "
    %pair = OpNamedBarrierInitialize %nb %n2
    %low = OpULessThan %bool %sg %n2
    OpBranchConditional %low %first %go
    %first = OpLabel
    OpMemoryNamedBarrier %pair %n2 %order
    OpMemoryNamedBarrier %pair %n2 %order
    OpBranch %go
    %go = OpLabel
    %result = OpGroupIAdd %i32 %n2 Reduce %in";
    for (size, items) in [(8, 32), (16, 64), (16, 56), (32, 128)] {
        let module = module(&spirv(size, items, body));
        gives(&module, items, |numbers| vec![numbers.iter().sum(); numbers.len()]);
    }
}

#[test]
fn wrong_named_barriers_are_refused() {
    let refusal = |body: &str| {
        let body = format!("{body}\n%result = OpCopyObject %i32 %in");
        match parse(&spirv(16, 64, &body), &[]) {
            Ok(mut module) => check(&mut module).expect_err("it is wrong").to_string(),
            Err(error) => error.to_string(),
        }
    };
    for (body, what) in [
        (
            "%a = OpNamedBarrierInitialize %nb %last",
            "OpNamedBarrierInitialize has a number of sub-groups",
        ),
        (
            "%a = OpNamedBarrierInitialize %i32 %n2",
            "OpNamedBarrierInitialize has a type that is no named",
        ),
        (
            "OpMemoryNamedBarrier %in %n2 %order",
            "OpMemoryNamedBarrier waits at what is no named barrier",
        ),
        (
            "%a = OpNamedBarrierInitialize %nb %n2
          OpMemoryNamedBarrier %a %n9 %order",
            "OpMemoryNamedBarrier has scope 9",
        ),
    ] {
        let found = refusal(body);
        assert!(found.contains(what), "{body}: {found}");
    }
}
