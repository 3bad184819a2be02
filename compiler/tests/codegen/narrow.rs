// SPDX-License-Identifier: MIT OR Apache-2.0
//! Integers of 24 and 48 bits (SPV_INTEL_arbitrary_precision_integers).

use tally_compiler::check::check;
use tally_compiler::parse::parse;

use crate::diff::{interpreted, same};
use crate::harness::clang::Assembly;
use crate::harness::{Grid, module};
use crate::spirv;
use crate::widen::ints;

const DECLARATIONS: &str = "
    %i8 = OpTypeInt 8 0
    %i24 = OpTypeInt 24 0
    %i48 = OpTypeInt 48 0
    %b3 = OpTypeVector %i8 3
    %p24 = OpTypePointer CrossWorkgroup %i24
    %p48 = OpTypePointer CrossWorkgroup %i48
    %pair48 = OpTypeStruct %i48 %i48
    %p64 = OpTypePointer CrossWorkgroup %i64
    %l2 = OpConstant %i64 2
    %l4 = OpConstant %i64 4
    %l6 = OpConstant %i64 6
    %l7 = OpConstant %i64 7
    %l8 = OpConstant %i64 8
    %scope = OpConstant %i32 1
    %relaxed = OpConstant %i32 0
    %five = OpConstant %i48 5
    %seven = OpConstant %i48 281474976710649";

fn spirv(body: &str) -> Vec<u8> {
    let head = "OpCapability Int8";
    let parameters = &[("x", "p"), ("y", "p")];
    let text =
        Assembly { head, declarations: DECLARATIONS, parameters, body, ..Assembly::default() };
    spirv::assemble(&text.text())
}

/// LLVM makes one integer of three neighbouring shorts or bytes. Results wrap at its width, signed operations
/// see its sign, and in memory it takes six bytes or three.
#[test]
fn integers_of_odd_widths_wrap_and_have_signs() {
    let kernel = module(&spirv(
        "%i4 = OpIMul %i64 %i %l4
         %i8th = OpIMul %i64 %i %l8
         %ya = OpInBoundsPtrAccessChain %p %y %i4
         %yb = OpInBoundsPtrAccessChain %p %ya %l2
         %ya48 = OpBitcast %p48 %ya
         %yb48 = OpBitcast %p48 %yb
         %a = OpLoad %i48 %ya48 2 4
         %b = OpLoad %i48 %yb48 2 4
         %sum = OpIAdd %i48 %a %b
         %product = OpIMul %i48 %a %b
         %quotient = OpSDiv %i48 %a %seven
         %shifted = OpShiftRightArithmetic %i48 %product %five
         %less = OpSLessThan %bool %a %b
         %chosen = OpSelect %i48 %less %sum %quotient
         %wide = OpSConvert %i64 %shifted
         %unsigned = OpUConvert %i64 %sum
         %low = OpUConvert %i24 %product
         %bytes = OpBitcast %b3 %low
         %turned = OpVectorShuffle %b3 %bytes %bytes 2 1 0
         %back = OpBitcast %i24 %turned
         %signed = OpSConvert %i32 %back
         %x0 = OpInBoundsPtrAccessChain %p %x %i8th
         %x0at = OpBitcast %p48 %x0
         OpStore %x0at %chosen 2 4
         %x2 = OpInBoundsPtrAccessChain %p %x0 %l2
         %x2at = OpBitcast %p64 %x2
         OpStore %x2at %wide
         %x4 = OpInBoundsPtrAccessChain %p %x0 %l4
         %x4at = OpBitcast %p64 %x4
         OpStore %x4at %unsigned
         %x6 = OpInBoundsPtrAccessChain %p %x0 %l6
         %x6at = OpBitcast %p24 %x6
         OpStore %x6at %back 2 4
         %x7 = OpInBoundsPtrAccessChain %p %x0 %l7
         OpStore %x7 %signed",
    ));
    let y = |n: i32| n.wrapping_mul(0x9e37_79b9_u32 as i32) ^ (n << 9);
    let (grid, inputs) = (Grid::line(40, 20), [ints(320, |_| -1), ints(160, y)]);
    let at = |i: i64| {
        let two = (i64::from(y(i as i32 + 1)) << 32) | i64::from(y(i as i32) as u32);
        two << 16 >> 16
    };
    let low = |n: i64| n as u64 & 0xffff_ffff_ffff;
    let mut want = Vec::new();
    for i in 0..40 {
        let (a, b) = (at(4 * i), at(4 * i + 2));
        let chosen = if a < b { a + b } else { a / -7 };
        want.extend(&low(chosen).to_le_bytes()[..6]);
        want.extend([0xff; 2]);
        let product = a.wrapping_mul(b);
        want.extend((product << 16 >> 16 >> 5).to_le_bytes());
        want.extend(low(a + b).to_le_bytes());
        let [first, second, third, ..] = product.to_le_bytes();
        want.extend([third, second, first, 0xff]);
        want.extend((i32::from_le_bytes([0, third, second, first]) >> 8).to_le_bytes());
    }
    let got = interpreted(&kernel, "k", &(grid, inputs.to_vec())).unwrap();
    assert_eq!(got[0], want);
    same(&kernel, "k", grid, &inputs, "");
}

/// What is not done for them says so.
#[test]
fn other_operations_on_integers_of_odd_widths_are_refused() {
    for (code, what) in [
        ("%n = OpBitReverse %i48 %a", "OpBitReverse"),
        ("%n = OpIAddCarry %pair48 %a %a", "OpIAddCarry"),
        ("%n = OpInBoundsPtrAccessChain %p %y %a", "OpInBoundsPtrAccessChain"),
        ("OpAtomicStore %y48 %scope %relaxed %a", "OpAtomicStore"),
    ] {
        let bytes = spirv(&format!(
            "%y48 = OpBitcast %p48 %y
             %a = OpLoad %i48 %y48 2 4
             {code}"
        ));
        let mut module = parse(&bytes, &[]).unwrap();
        let why = check(&mut module).unwrap_err().to_string();
        assert!(why.contains(&format!("{what} with an integer of 48 bits")), "{why}");
    }
}
