// SPDX-License-Identifier: MIT OR Apache-2.0
// Kernels of races.c.

#ifdef MENDED
#define TWIN(wrong, right) (right)
#define MISSING(statement) statement
#else
#define TWIN(wrong, right) (wrong)
#define MISSING(statement)
#endif

kernel void sum_without_a_barrier(global const int *in, global int *sums, local int *s)
{
    int i = get_local_id(0);

    s[i] = in[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int n = get_local_size(0) / 2; n > 0; n /= 2) {
        if (i < n)
            s[i] += s[i + n]; //! race, with
        MISSING(barrier(CLK_LOCAL_MEM_FENCE);)
    }
    if (i == 0)
        sums[get_group_id(0)] = s[0];
}

kernel void scan_with_one_barrier(global int *a, local int *s)
{
    int i = get_local_id(0);

    s[i] = a[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int n = 1; n < (int)get_local_size(0); n *= 2) {
        int before = i >= n ? s[i - n] : 0; //! race, with
        MISSING(barrier(CLK_LOCAL_MEM_FENCE);)
        s[i] += before; //! race, with
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    a[get_global_id(0)] = s[i];
}

kernel void tile_without_a_barrier(global const float *in, global float *out, int width)
{
    local float tile[16][17];
    int x = get_local_id(0), y = get_local_id(1);
    int left = get_group_id(0) * 16, top = get_group_id(1) * 16;

    tile[y][x] = in[(top + y) * width + left + x]; //! race, with
    MISSING(barrier(CLK_LOCAL_MEM_FENCE);)
    out[(left + y) * width + top + x] = tile[x][y]; //! race, with
}

kernel void counts_without_atomics(global const uchar *in, global uint *counts)
{
    int i = get_global_id(0);

#ifdef MENDED
    atomic_inc(&counts[in[i] & 7]);
#else
    counts[in[i] & 7]++; //! race, with
#endif
}

kernel void local_counts_without_atomics(global const uchar *in, global uint *counts)
{
    local uint own[8];
    int i = get_local_id(0);

    if (i < 8)
        own[i] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
#ifdef MENDED
    atomic_inc(&own[in[get_global_id(0)] & 7]);
#else
    own[in[get_global_id(0)] & 7]++; //! race, with
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
    if (i < 8)
        atomic_add(&counts[i], own[i]);
}

kernel void border_of_the_neighbour(global int *a, global int *out)
{
    int i = get_global_id(0), n = get_global_size(0);
    int right = a[i + 1 < n ? i + 1 : 0]; //! race, with

    barrier(CLK_GLOBAL_MEM_FENCE);
    TWIN(a, out)[i] = right; //! race, with
}

// The last group to come adds what all have written.
kernel void flag_without_release(global int *sums, global atomic_uint *count, global int *total)
{
    local int last;

    if (get_local_id(0) == 0) {
        sums[get_group_id(0)] = get_group_id(0); //! with
        memory_order order = TWIN(memory_order_relaxed, memory_order_acq_rel);
        uint before = atomic_fetch_add_explicit(count, 1, order, memory_scope_device);
        last = before + 1 == get_num_groups(0);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (last && get_local_id(0) == 0) {
        int sum = 0;
        for (size_t i = 0; i < get_num_groups(0); i++)
            sum += sums[i]; //! race
        *total = sum;
    }
}

kernel void tile_used_again(global const int *in, global int *out, local int *tile, int tiles)
{
    int i = get_local_id(0), n = get_local_size(0), sum = 0;

    for (int t = 0; t < tiles; t++) {
        tile[i] = in[t * n + i]; //! race, with
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < n; k++)
            sum += tile[k] * (k + i); //! race, with
        MISSING(barrier(CLK_LOCAL_MEM_FENCE);)
    }
    out[get_global_id(0)] = sum;
}

kernel void value_of_the_first_item(global const int *in, global int *out)
{
    local int first;

    if (get_local_id(0) == 0)
        first = in[get_group_id(0)]; //! with
    MISSING(barrier(CLK_LOCAL_MEM_FENCE);)
    out[get_global_id(0)] = first; //! race
}

// A barrier orders no groups.
kernel void barrier_for_groups(global int *a, global int *out)
{
    int i = get_global_id(0), n = get_global_size(0), size = get_local_size(0);

    a[i] = i; //! race, with
    barrier(CLK_GLOBAL_MEM_FENCE);
    out[i] = a[TWIN((i + size) % n, i / size * size + (i + 1) % size)]; //! race, with
}

kernel void two_items_for_a_byte(global uchar *marks)
{
    int i = get_global_id(0);

    marks[TWIN(i / 2, i)] = i; //! race, with
}

struct particle {
    float place[3];
    int kind;
};

kernel void turned_round_in_place(global struct particle *all, global struct particle *out)
{
    int i = get_global_id(0), n = get_global_size(0);
    struct particle other = all[n - 1 - i]; //! race, with

    other.kind++;
    TWIN(all, out)[i] = other; //! race, with
}

kernel void atomic_and_plain(global int *count, global int *out)
{
    int i = get_global_id(0);

    atomic_inc(count); //! with
#ifdef MENDED
    out[i] = atomic_add(count, 0);
#else
    out[i] = *count; //! race
#endif
}

// Items of a sub-group do not go in step.
kernel void sub_group_in_step(global int *a, local int *s)
{
    int i = get_local_id(0);

    s[i] = a[get_global_id(0)];
    sub_group_barrier(CLK_LOCAL_MEM_FENCE);
    for (int n = 8; n > 0; n /= 2) {
        if (i % 16 < n)
            s[i] += s[i + n]; //! race, with
        MISSING(sub_group_barrier(CLK_LOCAL_MEM_FENCE);)
    }
    a[get_global_id(0)] = s[i / 16 * 16]; //! race
}

kernel void all_write_the_result(global int *out)
{
    int i = get_global_id(0);

    if (TWIN(true, i == 0))
        *out = i; //! race, with
}

static int next_to(const int *s, int i)
{
    return s[i ^ 1]; //! through_a_function: race
}

kernel void through_a_function(global int *out, local int *s)
{
    int i = get_local_id(0);

    s[i] = i; //! with
    MISSING(barrier(CLK_LOCAL_MEM_FENCE);)
    out[get_global_id(0)] = next_to(s, i);
}

kernel void copy_without_a_wait(global const int *in, global int *out, local int *s)
{
    event_t copied = async_work_group_copy(s, in, get_local_size(0), 0); //! with
#ifdef MENDED
    wait_group_events(1, &copied);
#endif
    out[get_global_id(0)] = s[get_local_id(0)]; //! race
#ifndef MENDED
    wait_group_events(1, &copied);
#endif
}

// Each group reads what all have written.
kernel void groups_that_wait_for_all(global int *parts, global atomic_uint *arrived, global int *out)
{
    uint groups = get_num_groups(0);

    if (get_local_id(0) == 0) {
        parts[get_group_id(0)] = get_group_id(0); //! with
        atomic_fetch_add_explicit(arrived, 1, memory_order_acq_rel, memory_scope_device);
        // No atomic load: LLVM gives those another order and scope than the source.
        memory_order order = TWIN(memory_order_relaxed, memory_order_acquire);
        while (atomic_fetch_or_explicit(arrived, 0, order, memory_scope_device) < groups)
            ;
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
    int all = 0;
    for (uint g = 0; g < groups; g++)
        all += parts[g]; //! race
    out[get_global_id(0)] = all;
}
