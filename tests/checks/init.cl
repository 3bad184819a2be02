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

kernel void local_never_written(global int *out)
{
    local int tile[32];
    int l = get_local_id(0);
    if (TWIN(l % 2, 1))
        tile[l] = l;
    barrier(CLK_LOCAL_MEM_FENCE);
    out[get_global_id(0)] = tile[31 - l] + 1; //! uninitialised-read
}

kernel void local_sum_without_a_start(global int *out)
{
    local int sum;
#ifdef MENDED
    if (get_local_id(0) == 0)
        sum = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    atomic_add(&sum, 1); //! uninitialised-read
    barrier(CLK_LOCAL_MEM_FENCE);
    out[get_group_id(0)] = sum;
}

kernel void local_argument_half_written(global float *out, local float *half_of_it)
{
    int l = get_local_id(0), n = get_local_size(0);
    if (l < TWIN(n / 2, n))
        half_of_it[l] = l;
    barrier(CLK_LOCAL_MEM_FENCE);
    out[l] = half_of_it[n - 1 - l] * 0.5f; //! uninitialised-read
}

kernel void local_copy_of_nothing(global const int *in, global int *out)
{
    local int tile[64];
    int l = get_local_id(0);
    tile[l] = in[l];
    barrier(CLK_LOCAL_MEM_FENCE);
    out[l] = tile[l ^ 1] * 3; //! uninitialised-read
}

static int twice(const int *at)
{
    return *at * 2; //! local_through_a_generic_pointer: uninitialised-read
}

kernel void local_through_a_generic_pointer(global int *out)
{
    local int here[16];
    int l = get_local_id(0);
    if (l != TWIN(3, 99))
        here[l] = l;
    barrier(CLK_LOCAL_MEM_FENCE);
    out[l] = twice(l < 8 ? (int *)&here[l] : (int *)&out[l]);
}

kernel void any_bit(global const int *in, global int *out, int n)
{
    int bits = 0;
    for (int k = 0; k < n; k++)
        bits |= in[k]; //! read_behind_the_end: out-of-bounds
    out[0] = bits;
}

kernel void double_it(global int *a)
{
    a[0] *= 2;
}

kernel void bins_without_a_start(global const int *in, global int *out, int n)
{
    int bins[8];
#ifdef MENDED
    for (int k = 0; k < 8; k++)
        bins[k] = 0;
#endif
    for (int k = 0; k < n; k++)
        bins[in[k] & 7]++; //! uninitialised-read
    for (int k = 0; k < 8; k++)
        out[8 * get_global_id(0) + k] = bins[k];
}

kernel void window_not_filled(global const float *in, global float *out, int n)
{
    int i = get_global_id(0);
    float window[16];
    int kept = 0;
    for (int k = 0; k < 16; k++)
        if (in[16 * i + k] > TWIN(0.0f, -1.0f))
            window[kept++] = in[16 * i + k];
    float sum = 0;
    for (int k = 0; k < n; k++)
        sum += window[k]; //! uninitialised-read
    out[i] = sum;
}

struct state {
    int steps;
    int last[24];
};

static void start(struct state *state, int i)
{
    state->steps = i;
    for (int k = 0; k < TWIN(20, 24); k++)
        state->last[k] = k;
}

__attribute__((noinline)) static int step(const struct state *state, int k)
{
    return state->last[k] + state->steps; //! private_structure: uninitialised-read
}

kernel void private_structure(global int *out, int which)
{
    int i = get_global_id(0);
    struct state state;
    start(&state, i);
    out[i] = step(&state, which);
}

__attribute__((optnone, noinline)) kernel void left_out_on_a_way(global int *a, int n)
{
    int i = get_global_id(0);
    int value;
    if (i < TWIN(n, 64))
        value = i;
    a[i] = value * 2; //! left_out_on_a_way: uninitialised-read
}

kernel void prints_what_was_never_written(global const int *a)
{
    printf("%d\n", a[0]); //! uninitialised-read
}
