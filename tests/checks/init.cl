// SPDX-License-Identifier: MIT OR Apache-2.0
// Kernels of init.c.

#ifdef MENDED
#define TWIN(wrong, right) (right)
#else
#define TWIN(wrong, right) (wrong)
#endif

kernel void sums_without_a_start(global int *sums, global const int *in, int n)
{
    int i = get_global_id(0);
    if (TWIN(false, true))
        sums[i] = 0;
    for (int k = 0; k < n; k++)
        sums[i] += in[k]; //! uninitialised-read
}

kernel void every_second(global int *a)
{
    int i = get_global_id(0);
    if (TWIN(i % 2 == 0, true))
        a[i] = i;
}

kernel void add_all(global const int *a, global int *out, int n)
{
    int sum = 0;
    for (int k = 0; k < n; k++)
        sum += a[k]; //! half_written: uninitialised-read, fill_too_short: uninitialised-read, copy_of_nothing: uninitialised-read, read_before_it_is_written: uninitialised-read, column_left_out: uninitialised-read
    out[get_global_id(0)] = sum;
}

kernel void branch(global const int *flags, global int *out)
{
    int i = get_global_id(0);
    if (flags[i] > 0) //! branch: uninitialised-read
        out[i] = 1;
}

kernel void gather(global const int *index, global const float *in, global float *out)
{
    int i = get_global_id(0);
    out[i] = in[index[i] & 63]; //! uninitialised-read
}

struct pair {
    char tag;
    int value;
};

kernel void make_pairs(global struct pair *pairs)
{
    int i = get_global_id(0);
    pairs[i].tag = 'x';
    if (TWIN(false, true))
        pairs[i].value = i;
}

kernel void move_pairs(global struct pair *to, global const struct pair *from)
{
    int i = get_global_id(0);
    // Moving padding is no mistake, and moving what was never written is none yet.
    to[i] = from[i];
}

kernel void use_pairs(global const struct pair *pairs, global int *out)
{
    int i = get_global_id(0);
    out[i] = pairs[i].value * 2; //! field_never_written: uninitialised-read
}

kernel void count(global atomic_uint *counts)
{
    atomic_fetch_add_explicit(&counts[get_global_id(0) % 4], 1, memory_order_relaxed, memory_scope_device); //! uninitialised-read
}

kernel void three_of_four(global float4 *v)
{
    int i = get_global_id(0);
    vstore3((float3)(i), 0, (global float *)&v[i]);
    if (TWIN(false, true))
        v[i].w = 1;
}

kernel void length_of_all(global const float4 *v, global float *out)
{
    int i = get_global_id(0);
    float4 it = v[i]; //! three_of_four: uninitialised-read
    out[i] = it.x + it.y + it.z + it.w;
}
