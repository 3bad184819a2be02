// SPDX-License-Identifier: MIT OR Apache-2.0
// Kernels of portable.c.

#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable

#ifdef MENDED
#define TWIN(wrong, right) (right)
#else
#define TWIN(wrong, right) (wrong)
#endif

kernel void numbers(global int *a)
{
    a[get_global_id(0)] = get_global_id(0);
}

kernel void sums_of_rows(global int *sums, global int *global *rows, int width)
{
    int i = get_global_id(0), sum = 0;
    for (int k = 0; k < width; k++)
        sum += rows[i][k]; //! table_of_pointers: indirect-access, flag_for_another_kind: indirect-access, only_the_first_rows: indirect-access, evicted_too_early: indirect-access, rows_of_malloc: system-memory
    sums[i] = sum;
}

struct node {
    global struct node *next;
    int value;
};

kernel void length_of_list(global int *length, global struct node *first)
{
    int n = 0;
    for (global struct node *it = first; it; it = it->next) //! linked_list: indirect-access
        n++;
    *length = n;
}

struct span {
    global int *start;
    int count;
};

kernel void clear(struct span span)
{
    int i = get_global_id(0);
    if (i < span.count)
        span.start[i] = 0; //! pointer_in_a_structure: indirect-access
}

// One pointer that moves along an argument is allowed everything.
kernel void walk(global const int *a, global int *sum, int n)
{
    int all = 0;
    for (global const int *it = a; it != a + n; it++)
        all += *it;
    *sum = all;
}

kernel void butterfly(global int *a)
{
    int v = a[get_global_id(0)];
    for (uint step = TWIN(8, get_max_sub_group_size() / 2); step; step /= 2)
        v += sub_group_shuffle_xor(v, step); //! sub-group-size
    a[get_global_id(0)] = v;
}

kernel void halves(global float *a)
{
    int i = get_global_id(0);
    a[i] = TWIN(a[i] * 0.5, a[i] * 0.5f) + 1; //! doubles
}

kernel void one_after_another(global atomic_uint *turn, global int *log)
{
    uint me = get_group_id(0);
#ifndef MENDED
    while (atomic_load_explicit(turn, memory_order_acquire, memory_scope_device) != me) //! waits-for-groups
        ;
#endif
    log[me] = me;
    atomic_fetch_add_explicit(turn, 1, memory_order_release, memory_scope_device);
}

kernel void locked(global atomic_uint *lock, global int *sum)
{
    if (get_local_id(0) != 0)
        return;
#ifndef MENDED
    uint open = 0;
    while (!atomic_compare_exchange_strong_explicit(lock, &open, 1, memory_order_acquire, memory_order_relaxed, memory_scope_device)) //! waits-for-groups
        open = 0;
    *sum += 1;
    atomic_store_explicit(lock, 0, memory_order_release, memory_scope_device);
#else
    atomic_inc(sum);
#endif
}

// These loops go on whatever others do.
kernel void progress(global atomic_uint *next, global atomic_uint *largest, global int *done, uint count)
{
    uint i;
    while ((i = atomic_fetch_add_explicit(next, 1, memory_order_relaxed, memory_scope_device)) < count)
        done[i] = 1;
    uint old = atomic_load_explicit(largest, memory_order_relaxed, memory_scope_device), me = get_global_id(0);
    while (old < me && !atomic_compare_exchange_strong_explicit(largest, &old, me, memory_order_relaxed, memory_order_relaxed, memory_scope_device))
        ;
}
