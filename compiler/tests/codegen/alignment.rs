// SPDX-License-Identifier: MIT OR Apache-2.0
//! Variables that are less aligned than accesses to them say.

use tally_compiler::ir::AddressSpace;

use crate::diff::{interpreted, same};
use crate::harness::clang::{self, Assembly};
use crate::harness::{Grid, module};
use crate::widen::ints;

const HEAD: &str = "OpCapability Int8";

/// AdaptiveCpp makes variables anew, with the alignment of their type, after LLVM has computed that of
/// the accesses.
const NOTES: &str = "
    OpDecorate %v Alignment 4
    OpDecorate %w Alignment 4
    OpDecorate %one Alignment 1";

/// `%s` is `struct { int a[4]; }`; `%table` holds 3, 5, 7 and 9, of one byte each, with three zeros between them.
const DECLARATIONS: &str = "
    %i8 = OpTypeInt 8 0
    %v4 = OpTypeVector %i32 4
    %zero = OpConstant %i64 0
    %l4 = OpConstant %i64 4
    %l16 = OpConstant %i64 16
    %b0 = OpConstant %i8 0
    %b3 = OpConstant %i8 3
    %b5 = OpConstant %i8 5
    %b7 = OpConstant %i8 7
    %b9 = OpConstant %i8 9
    %a4 = OpTypeArray %i32 %l4
    %s = OpTypeStruct %a4
    %bytes = OpTypeArray %i8 %l16
    %contents = OpConstantComposite %bytes %b3 %b0 %b0 %b0 %b5 %b0 %b0 %b0 %b7 %b0 %b0 %b0 %b9 %b0 %b0 %b0
    %pc = OpTypePointer UniformConstant %bytes
    %table = OpVariable %pc UniformConstant %contents
    %p4 = OpTypePointer CrossWorkgroup %v4
    %ps = OpTypePointer Function %s
    %pb = OpTypePointer Function %i8
    %pi = OpTypePointer Function %i32
    %pv = OpTypePointer Function %v4
    %takes = OpTypeFunction %void %pv %v4";

/// Sets its first argument to the second one.
const SET: &str = "
    %set = OpFunction %void DontInline %takes
    %to = OpFunctionParameter %pv
    %what = OpFunctionParameter %v4
    %begin = OpLabel
    OpStore %to %what Aligned 16
    OpReturn
    OpFunctionEnd";

/// "Aligned: the memory access has a known alignment": a processor traps if it does not, so the variable must have it,
/// also one that only a called function accesses, and one of module scope.
#[test]
fn variables_are_as_aligned_as_accesses_to_them_claim() {
    let text = Assembly {
        head: HEAD,
        notes: NOTES,
        declarations: DECLARATIONS,
        parameters: &[("x", "p"), ("y", "p")],
        variables: "%one = OpVariable %pb Function
             %v = OpVariable %ps Function
             %w = OpVariable %ps Function",
        body: "OpStore %one %b3
             %m = OpUMod %i64 %i %l4
             %first = OpIMul %i64 %i %l4
             %at = OpInBoundsPtrAccessChain %p %y %first
             %at4 = OpBitcast %p4 %at
             %n = OpLoad %v4 %at4 Aligned 4
             %to4 = OpBitcast %pv %v
             %call = OpFunctionCall %void %set %to4 %n
             OpCopyMemorySized %w %table %l16 Aligned 16
             %pa = OpInBoundsAccessChain %pi %v %zero %m
             %a = OpLoad %i32 %pa
             %pw = OpInBoundsAccessChain %pi %w %zero %m
             %b = OpLoad %i32 %pw
             %sum = OpIAdd %i32 %a %b
             %out = OpInBoundsPtrAccessChain %p %x %i
             OpStore %out %sum",
    };
    let kernel = module(&crate::harness::clang::assemble(&(text.text() + SET)));
    let aligns = |size| {
        let all = kernel.functions.iter().flat_map(|(_, it)| &it.variables);
        let of_size: Vec<u64> = all.filter(|it| it.size == size).map(|it| it.align).collect();
        of_size
    };
    assert_eq!(aligns(16), [16, 16]);
    assert_eq!(aligns(1), [1]);
    let (_, table) =
        kernel.globals.iter().find(|(_, it)| it.space == AddressSpace::Constant).unwrap();
    assert_eq!(table.align, 16);
    let (grid, inputs) = (Grid::line(64, 32), [ints(64, |n| n), ints(256, |n| n * 11 - 300)]);
    let want: Vec<u8> = (0..64)
        .flat_map(|i: i32| {
            (11 * (4 * i + i % 4) - 300 + [3, 5, 7, 9][i as usize % 4]).to_le_bytes()
        })
        .collect();
    let got = interpreted(&kernel, "k", &(grid, inputs.to_vec())).unwrap();
    assert_eq!(got[0], want);
    same(&kernel, "k", grid, &inputs, "");
}

/// LLVM 22's back end writes the alignment of a private variable as a byte with a sign.
#[test]
fn variables_of_the_largest_types_have_their_alignment() {
    let text = "kernel void k(global const long16 *in, global long16 *out) {
           size_t i = get_global_id(0);
           long16 v[3];
           for (int n = 0; n < 3; n++) v[n] = in[i + n];
           out[i] = v[i % 3];
         }";
    let spirv = clang::compile_text(text, &["-O1"]);
    let words: Vec<&[u8]> = spirv.chunks_exact(4).collect();
    assert!(words.contains(&&(-128_i32).to_le_bytes()[..]), "this LLVM writes it otherwise");
    let module = module(&spirv);
    let (_, kernel) = module.kernel("k").expect("it is there");
    let aligns = module.functions[kernel.function].variables.iter().map(|v| v.align);
    assert!(aligns.into_iter().any(|align| align == 128));
}
