// SPDX-License-Identifier: MIT OR Apache-2.0
//! A product of matrices in tiles, each of which a sub-group computes (SPV_KHR_cooperative_matrix), as LLVM's
//! code generator writes it.

use std::ptr;

use tally_tests::lists::NONE;
use tally_tests::ze::{self, Gpu};
use tally_tests::{check, refused};
use tally_ze::*;

/// c = a b, of n x n; a and b are halves, c floats. A group of 16 items has a tile of 8 x 16.
const SOURCE: &str = r#"
target triple = "spirv64-unknown-unknown"


declare spir_func i64 @_Z12get_group_idj(i32)
declare spir_func target("spirv.CooperativeMatrixKHR", float, 3, 8, 16, 2) @_Z26__spirv_CompositeConstructf(float)
declare spir_func target("spirv.CooperativeMatrixKHR", half, 3, 8, 16, 0) @_Z32__spirv_CooperativeMatrixLoadKHR_a(ptr addrspace(1), i32, i64, i32)
declare spir_func target("spirv.CooperativeMatrixKHR", half, 3, 16, 16, 1) @_Z32__spirv_CooperativeMatrixLoadKHR_b(ptr addrspace(1), i32, i64, i32)
declare spir_func target("spirv.CooperativeMatrixKHR", float, 3, 8, 16, 2) @_Z34__spirv_CooperativeMatrixMulAddKHR(target("spirv.CooperativeMatrixKHR", half, 3, 8, 16, 0), target("spirv.CooperativeMatrixKHR", half, 3, 16, 16, 1), target("spirv.CooperativeMatrixKHR", float, 3, 8, 16, 2))
declare spir_func void @_Z33__spirv_CooperativeMatrixStoreKHR(ptr addrspace(1), target("spirv.CooperativeMatrixKHR", float, 3, 8, 16, 2), i32, i64, i32)

define spir_kernel void @product(ptr addrspace(1) %a, ptr addrspace(1) %b, ptr addrspace(1) %c, i64 %n) !intel_reqd_sub_group_size !1 {
entry:
  %gx = call spir_func i64 @_Z12get_group_idj(i32 0)
  %gy = call spir_func i64 @_Z12get_group_idj(i32 1)
  %row = mul i64 %gy, 8
  %col = mul i64 %gx, 16
  %row.at = mul i64 %row, %n
  %a.row = getelementptr half, ptr addrspace(1) %a, i64 %row.at
  %b.col = getelementptr half, ptr addrspace(1) %b, i64 %col
  %c.row = getelementptr float, ptr addrspace(1) %c, i64 %row.at
  %c.at = getelementptr float, ptr addrspace(1) %c.row, i64 %col
  %zero = call spir_func target("spirv.CooperativeMatrixKHR", float, 3, 8, 16, 2) @_Z26__spirv_CompositeConstructf(float 0.0)
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k.next, %loop ]
  %sum = phi target("spirv.CooperativeMatrixKHR", float, 3, 8, 16, 2) [ %zero, %entry ], [ %sum.next, %loop ]
  %a.at = getelementptr half, ptr addrspace(1) %a.row, i64 %k
  %k.row = mul i64 %k, %n
  %b.at = getelementptr half, ptr addrspace(1) %b.col, i64 %k.row
  %x = call spir_func target("spirv.CooperativeMatrixKHR", half, 3, 8, 16, 0) @_Z32__spirv_CooperativeMatrixLoadKHR_a(ptr addrspace(1) %a.at, i32 0, i64 %n, i32 0)
  %y = call spir_func target("spirv.CooperativeMatrixKHR", half, 3, 16, 16, 1) @_Z32__spirv_CooperativeMatrixLoadKHR_b(ptr addrspace(1) %b.at, i32 0, i64 %n, i32 0)
  %sum.next = call spir_func target("spirv.CooperativeMatrixKHR", float, 3, 8, 16, 2) @_Z34__spirv_CooperativeMatrixMulAddKHR(target("spirv.CooperativeMatrixKHR", half, 3, 8, 16, 0) %x, target("spirv.CooperativeMatrixKHR", half, 3, 16, 16, 1) %y, target("spirv.CooperativeMatrixKHR", float, 3, 8, 16, 2) %sum)
  %k.next = add i64 %k, 16
  %more = icmp ult i64 %k.next, %n
  br i1 %more, label %loop, label %done
done:
  call spir_func void @_Z33__spirv_CooperativeMatrixStoreKHR(ptr addrspace(1) %c.at, target("spirv.CooperativeMatrixKHR", float, 3, 8, 16, 2) %sum.next, i32 0, i64 %n, i32 0)
  ret void
}
!1 = !{i32 16}
"#;

/// The matrices have so many rows and columns.
const N: usize = 64;

/// The half of a small integer.
fn half(x: i32) -> u16 {
    let bits = (x.unsigned_abs() as f32).to_bits();
    let sign = if x < 0 { 0x8000 } else { 0 };
    if x == 0 { 0 } else { sign | (((bits >> 23) - 127 + 15) << 10 | bits >> 13 & 0x3ff) as u16 }
}

fn number(i: usize, by: usize) -> i32 {
    (i * by % 11) as i32 - 5
}

#[test]
fn a_tiled_product_of_matrices_is_right() {
    let gpu = Gpu::new();
    let spirv = ze::spirv_from_llvm(SOURCE, "SPV_KHR_cooperative_matrix");
    let module = gpu.module(&spirv, "").expect("it is valid");
    let kernel = gpu.kernel(module, "product");
    let (a, b) = (gpu.host::<u16>(N * N), gpu.host::<u16>(N * N));
    let c = gpu.host::<f32>(N * N);
    a.fill_with(|i| half(number(i, 7)));
    b.fill_with(|i| half(number(i, 3)));
    check!(zeKernelSetGroupSize(kernel, 16, 1, 1));
    for (index, address) in [a.address(), b.address(), c.address(), N as u64].iter().enumerate() {
        let value: *const u64 = address;
        check!(zeKernelSetArgumentValue(kernel, index as u32, 8, value.cast()));
    }
    let list = gpu.immediate(0, true);
    let groups =
        ze_group_count_t { groupCountX: N as u32 / 16, groupCountY: N as u32 / 8, groupCountZ: 1 };
    let none = ptr::null_mut();
    check!(zeCommandListAppendLaunchKernel(list.0, kernel, &raw const groups, NONE, 0, none));
    list.synchronize();
    for (i, got) in c.to_vec().into_iter().enumerate() {
        let (row, column) = (i / N * N, i % N);
        let products = (0..N).map(|k| number(row + k, 7) * number(k * N + column, 3));
        assert_eq!(got, products.sum::<i32>() as f32, "row {}, column {column}", i / N);
    }
    check!(zeKernelDestroy(kernel));
    check!(zeModuleDestroy(module));
}

/// A matrix needs all items of its sub-group: groups of other sizes are refused, not computed wrong.
#[test]
fn groups_of_matrices_are_whole_sub_groups() {
    let gpu = Gpu::new();
    let spirv = ze::spirv_from_llvm(SOURCE, "SPV_KHR_cooperative_matrix");
    let module = gpu.module(&spirv, "").expect("it is valid");
    let kernel = gpu.kernel(module, "product");
    for [x, y] in [[1, 1], [15, 1], [24, 1], [4, 3]] {
        let text = refused!(
            ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION,
            zeKernelSetGroupSize(kernel, x, y, 1)
        );
        assert!(text.contains("no whole sub-groups of 16"), "{x} x {y}: {text}");
    }
    for [x, y] in [[16, 1], [32, 1], [8, 4], [1, 16]] {
        check!(zeKernelSetGroupSize(kernel, x, y, 1));
    }
    let (mut x, mut y, mut z) = (0, 0, 0);
    check!(zeKernelSuggestGroupSize(kernel, 64, 8, 1, &raw mut x, &raw mut y, &raw mut z));
    assert_eq!(x * y * z % 16, 0, "{x} x {y} x {z}");
    check!(zeKernelDestroy(kernel));
    check!(zeModuleDestroy(module));
}

/// What cannot be spread over a sub-group is refused by the build, with the reason in its log.
#[test]
fn a_matrix_of_a_work_group_is_refused_with_the_reason() {
    let gpu = Gpu::new();
    let source = SOURCE.replace("half, 3, 8, 16, 0", "half, 2, 8, 16, 0");
    let spirv = ze::spirv_from_llvm(&source, "SPV_KHR_cooperative_matrix");
    let log = gpu.module(&spirv, "").expect_err("it is refused");
    assert!(log.contains("cooperative matrix of 8x16 in scope 2"), "{log}");
    assert!(log.contains("kernel \"product\""), "{log}");
}
