// SPDX-License-Identifier: MIT OR Apache-2.0
// Kernels of source.c, as clang 15 and llvm-spirv 15 compile them with OpenCL.DebugInfo.100:
//
//   clang-15 --target=spir64 -cl-std=CL2.0 -Xclang -finclude-default-header -g -O0 -emit-llvm -c source.cl -o source.bc
//   llvm-spirv-15 --spirv-debug-info-version=ocl-100 source.bc -o source.spv && spirv-dis source.spv -o source.spvasm
//
// tests/tests/debugger.rs finds lines by their comments.

enum state { RESTING = 3, MOVING };

struct point {
    int x;
    float place[2];
    enum state state;
};

typedef unsigned int count_t;

__attribute__((always_inline)) float square(float x)
{
    float result = x * x; // in square
    return result;
}

__attribute__((always_inline)) float length_of(struct point *p)
{
    return sqrt(square(p->place[0]) + square(p->place[1]));
}

kernel void lengths(global float *a, uint n, global struct point *points)
{
    count_t i = get_global_id(0);
    struct point p = points[i];
    uchar letter = 'A' + i;
    float4 row = (float4)(p.place[0], p.place[1], i, 1);
    float v = length_of(&p);
    if (i < n)
        a[i] = v + row.w; // all are known
}
