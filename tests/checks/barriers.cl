// SPDX-License-Identifier: MIT OR Apache-2.0
// Kernels of barriers.c.

#ifdef MENDED
#define TWIN(wrong, right) (right)
#else
#define TWIN(wrong, right) (wrong)
#endif

kernel void barrier_in_a_branch(global int *a, local int *s)
{
    int i = get_local_id(0);

    s[i] = i;
    if (i < 32) {
        s[i] += 1;
#ifndef MENDED
        barrier(CLK_LOCAL_MEM_FENCE); //! divergent-barrier
#endif
    }
#ifdef MENDED
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    a[get_global_id(0)] = s[i ^ 1];
} //! with

kernel void early_return(global int *a, local int *s, int n)
{
    int i = get_local_id(0), at = get_global_id(0);

    if (TWIN(at >= n, false))
        return;
    s[i] = at < n ? a[at] : 0;
    barrier(CLK_LOCAL_MEM_FENCE); //! divergent-barrier
    if (at < n)
        a[at] = s[i ^ 1];
}

kernel void a_barrier_in_each_branch(global int *a, local int *s)
{
    int i = get_local_id(0);

    s[i] = i;
#ifdef MENDED
    barrier(CLK_LOCAL_MEM_FENCE);
#else
    if (i % 2 == 0) {
        s[i] *= 2;
        barrier(CLK_LOCAL_MEM_FENCE); //! divergent-barrier
    } else {
        barrier(CLK_LOCAL_MEM_FENCE); //! with
    }
#endif
    a[get_global_id(0)] = s[i ^ 1];
}

kernel void rounds_differ(global int *a, local int *s, int n)
{
    int i = get_local_id(0);

    for (int k = 0; k < TWIN(n + i % 2, n); k++) {
        s[i] = k + i;
        barrier(CLK_LOCAL_MEM_FENCE); //! divergent-barrier
    }
    a[get_global_id(0)] = s[i];
}

kernel void leaves_the_loop(global int *a, local int *s, int n)
{
    int i = get_local_id(0);

    for (int k = 0; k < n; k++) {
        s[i] = k;
        if (TWIN(k == i, false))
            break;
        barrier(CLK_LOCAL_MEM_FENCE); //! divergent-barrier
    }
    a[get_global_id(0)] = s[i];
}

kernel void sum_of_some(global int *a)
{
    int i = get_local_id(0);
    int mine = a[get_global_id(0)], sum = 0;

    if (TWIN(i < 40, true))
        sum = work_group_reduce_add(mine); //! divergent-barrier
    a[get_global_id(0)] = sum;
}
