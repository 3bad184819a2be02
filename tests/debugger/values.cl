// SPDX-License-Identifier: MIT OR Apache-2.0
// Kernels of values.c, optimised by clang 22, which keeps most of their variables in no memory. llvm-spirv 22
// writes NonSemantic.Shader.DebugInfo.200, as DPC++ does:
//
//   clang-22 --target=spir64 -cl-std=CL2.0 -Xclang -finclude-default-header -g -fdebug-compilation-dir=. -O2 \
//       -emit-llvm -c ./values.cl -o values.bc
//   llvm-spirv-22 --spirv-debug-info-version=nonsemantic-shader-200 --spirv-ext=+SPV_KHR_non_semantic_info \
//       values.bc -o values.spv
//   spirv-dis --raw-id values.spv -o values.spvasm
//
// tests/tests/debugger/values.rs finds lines by their comments.

struct pair {
    float low, high;
};

float mean(struct pair p)
{
    float sum = p.low + p.high;
    return sum / 2; // in mean
}

kernel void means(global float *a, local float *tile, uint rounds)
{
    int l = get_local_id(0);
    int dropped = 3 * l;
    float own = a[get_global_id(0)];
    tile[l] = own; // own is known
    barrier(CLK_LOCAL_MEM_FENCE);
    uint next = (l + 1) % get_local_size(0);
    struct pair p = {own, tile[next]}; // behind the barrier
    float m = mean(p);
    struct pair q = {m, own};
    for (uint k = 0; k < rounds; k++) {
        q.low = q.low / 2 + tile[k];
        q.high += q.low; // in the loop
    }
    a[get_global_id(0)] = q.high - q.low; // behind the loop
}
