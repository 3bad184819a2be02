// SPDX-License-Identifier: MIT OR Apache-2.0
//! Private variables of module scope: each item has its own, also in vectors of items.

use tally_compiler::ir::{AddressSpace, Op};
use tally_compiler::widen;

use crate::diff::{interpreted, same};
use crate::harness::clang::Assembly;
use crate::harness::{Grid, module};
use crate::widen::ints;

/// A table that is only read, a table that items change, and a number without initial contents.
const DECLARATIONS: &str = "
    %two = OpConstant %i64 2
    %one = OpConstant %i32 1
    %three = OpConstant %i64 3
    %four = OpConstant %i64 4
    %a = OpConstant %i32 10
    %b = OpConstant %i32 4294967276
    %c = OpConstant %i32 300
    %d = OpConstant %i32 4000
    %all = OpTypeArray %i32 %four
    %start = OpConstantComposite %all %a %b %c %d
    %pall = OpTypePointer Private %all
    %pi = OpTypePointer Private %i32
    %table = OpVariable %pall Private %start
    %memory = OpVariable %pall Private %start
    %sum = OpVariable %pi Private
    %pair = OpTypeArray %pall %two
    %aliases = OpConstantComposite %pair %memory %memory";

fn assembled(body: &str) -> tally_compiler::ir::Module {
    let parameters = &[("x", "p"), ("y", "p")];
    let assembly = Assembly { declarations: DECLARATIONS, parameters, body, ..Assembly::default() };
    module(&assembly.module())
}

const BODY: &str = "
    %low = OpBitwiseAnd %i64 %i %three
    %from = OpInBoundsPtrAccessChain %p %y %i
    %in = OpLoad %i32 %from Aligned 4
    %at = OpInBoundsAccessChain %pi %table %low
    %read = OpLoad %i32 %at Aligned 4
    %second = OpInBoundsAccessChain %pi %table %two
    %fixed = OpLoad %i32 %second Aligned 4
    %slot = OpInBoundsAccessChain %pi %memory %low
    %old = OpLoad %i32 %slot Aligned 4
    %new = OpIAdd %i32 %old %in
    OpStore %slot %new Aligned 4
    %third = OpInBoundsAccessChain %pi %memory %three
    %other = OpLoad %i32 %third Aligned 4
    %none = OpLoad %i32 %sum Aligned 4
    %some = OpIAdd %i32 %none %in
    OpStore %sum %some Aligned 4
    %more = OpLoad %i32 %sum Aligned 4
    %s1 = OpIAdd %i32 %read %fixed
    %s2 = OpIMul %i32 %s1 %other
    %s3 = OpIAdd %i32 %s2 %more
    %to = OpInBoundsPtrAccessChain %p %x %i
    OpStore %to %s3 Aligned 4";

#[test]
fn every_item_has_its_own() {
    let module = assembled(BODY);
    let run = (Grid::line(101, 50), vec![ints(101, |_| 0), ints(101, |i| i * 7 - 90)]);
    same(&module, "k", run.0, &run.1, "");
    let table = [10i32, -20, 300, 4000];
    let want = (0..101i32).flat_map(|i| {
        let (low, input) = (i as usize & 3, i * 7 - 90);
        let third = table[3] + if low == 3 { input } else { 0 };
        ((table[low] + table[2]).wrapping_mul(third) + input).to_le_bytes()
    });
    assert_eq!(interpreted(&module, "k", &run).unwrap()[0], want.collect::<Vec<u8>>());
}

/// Such kernels run in vectors, and a table that is never written is constant memory.
#[test]
fn they_are_widened() {
    let module = assembled(BODY);
    for lanes in [8, 16, 32] {
        let widened = widen::widen(&module, &module.kernels[0], lanes).unwrap();
        let tables = widened.module.globals.iter();
        let tables = tables.filter(|(_, global)| global.space == AddressSpace::Constant);
        assert_eq!(tables.count(), 1);
        assert!(widened.source.variables.len() <= 1, "the number is a value");
        let function = &widened.module.functions[widened.function];
        let mut insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
        assert!(insts.any(|inst| matches!(inst.op, Op::Gather(..))), "the table is gathered from");
    }
}

/// A variable whose address a constant holds has one place: a write through that pointer is seen by name.
#[test]
fn an_address_in_a_constant_keeps_its_meaning() {
    let body = "
    %low = OpBitwiseAnd %i64 %i %three
    %from = OpInBoundsPtrAccessChain %p %y %i
    %in = OpLoad %i32 %from Aligned 4
    %pointer = OpCompositeExtract %pall %aliases 1
    %slot = OpInBoundsAccessChain %pi %pointer %low
    OpStore %slot %in Aligned 4
    %third = OpInBoundsAccessChain %pi %memory %three
    %last = OpLoad %i32 %third Aligned 4
    %to = OpInBoundsPtrAccessChain %p %x %i
    OpStore %to %last Aligned 4";
    let module = assembled(body);
    let run = (Grid::line(101, 50), vec![ints(101, |_| 0), ints(101, |i| i * 7 - 90)]);
    same(&module, "k", run.0, &run.1, "");
    for lanes in [8, 16, 32] {
        assert!(widen::widen(&module, &module.kernels[0], lanes).is_ok());
    }
    let want = (0..101i32).flat_map(|i| if i & 3 == 3 { i * 7 - 90 } else { 4000 }.to_le_bytes());
    assert_eq!(interpreted(&module, "k", &run).unwrap()[0], want.collect::<Vec<u8>>());
}

/// Addresses within an initialiser, in a structure and a vector of pointers: each item follows them to its own
/// variables.
#[test]
fn addresses_in_initialisers_lead_to_the_items_own() {
    let declarations = "
    %one = OpConstant %i32 1
    %two = OpConstant %i32 2
    %zero = OpConstant %i32 0
    %seven = OpConstant %i32 7
    %nine = OpConstant %i32 9
    %pi = OpTypePointer Private %i32
    %v2 = OpTypeVector %pi 2
    %node = OpTypeStruct %i32 %pi %v2
    %first = OpVariable %pi Private %seven
    %second = OpVariable %pi Private %nine
    %both = OpConstantComposite %v2 %first %second
    %value = OpConstantComposite %node %two %first %both
    %fnode = OpTypePointer Function %node
    %fpi = OpTypePointer Function %pi
    %fv2 = OpTypePointer Function %v2";
    let body = "
    %from = OpInBoundsPtrAccessChain %p %y %i
    %in = OpLoad %i32 %from Aligned 4
    %to_number = OpInBoundsAccessChain %fpi %own %one
    %number = OpLoad %pi %to_number Aligned 8
    OpStore %number %in Aligned 4
    %to_pair = OpInBoundsAccessChain %fv2 %own %two
    %pair = OpLoad %v2 %to_pair Aligned 16
    %last = OpCompositeExtract %pi %pair 1
    %nine_there = OpLoad %i32 %last Aligned 4
    OpStore %last %in Aligned 4
    %to_two = OpInBoundsAccessChain %pf %own %zero
    %two_there = OpLoad %i32 %to_two Aligned 4
    %a = OpLoad %i32 %first Aligned 4
    %b = OpLoad %i32 %second Aligned 4
    %s1 = OpIAdd %i32 %a %b
    %s2 = OpIAdd %i32 %s1 %nine_there
    %s3 = OpIMul %i32 %s2 %two_there
    %to = OpInBoundsPtrAccessChain %p %x %i
    OpStore %to %s3 Aligned 4";
    let declarations = &format!("{declarations}\n%pf = OpTypePointer Function %i32");
    let variables = "%own = OpVariable %fnode Function %value";
    let parameters = &[("x", "p"), ("y", "p")];
    let assembly = Assembly { declarations, parameters, variables, body, ..Assembly::default() };
    let module = module(&assembly.module());
    let run = (Grid::line(101, 50), vec![ints(101, |_| 0), ints(101, |i| i * 7 - 90)]);
    for lanes in [8, 16, 32] {
        assert!(widen::widen(&module, &module.kernels[0], lanes).is_ok());
    }
    same(&module, "k", run.0, &run.1, "");
    let want = (0..101i32).flat_map(|i| (4 * (i * 7 - 90) + 18).to_le_bytes());
    assert_eq!(interpreted(&module, "k", &run).unwrap()[0], want.collect::<Vec<u8>>());
}
