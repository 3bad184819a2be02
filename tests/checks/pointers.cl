// SPDX-License-Identifier: MIT OR Apache-2.0
// Kernels of pointers.c, which call functions through pointers.
#pragma OPENCL EXTENSION __cl_clang_function_pointers : enable

#ifdef MENDED
#define TWIN(wrong, right) (right)
#else
#define TWIN(wrong, right) (wrong)
#endif

typedef void (*step)(global int *a, int i);

__attribute__((noinline)) void set(global int *a, int i)
{
    a[i] = i; //! chosen_function: out-of-bounds
}

__attribute__((noinline)) void set_the_next(global int *a, int i)
{
    a[TWIN(i + 1, i)] = i; //! chosen_function: out-of-bounds
}

__attribute__((noinline)) void add(global int *a, int i)
{
    a[i] += i; //! given_function: uninitialised-read
}

kernel void chosen_function(global int *a, int which)
{
    int i = get_global_id(0);
    step one = (i + which) & 1 ? set_the_next : set;
    one(a, i);
}

kernel void given_function(global int *a, ulong which)
{
    ((step)which)(a, get_global_id(0));
}
