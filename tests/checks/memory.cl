// SPDX-License-Identifier: MIT OR Apache-2.0
// Kernels of memory.c.

#ifdef MENDED
#define TWIN(wrong, right) (right)
#else
#define TWIN(wrong, right) (wrong)
#endif

kernel void past_the_end(global int *a, int n)
{
    int i = get_global_id(0);
    if (TWIN(i <= n, i < n))
        a[i] = i; //! out-of-bounds
}

kernel void before_the_start(global int *a)
{
    int i = get_global_id(0);
    if (i > 0 || TWIN(true, false))
        a[i] = a[i - 1] + 1; //! out-of-bounds
}

kernel void one_row_too_many(global const float *in, global float *out, int width)
{
    int x = get_global_id(0), y = get_global_id(1);
    int below = TWIN(y + 1, min(y + 1, (int)get_global_size(1) - 1));
    out[y * width + x] = in[below * width + x]; //! out-of-bounds
}

struct particle {
    float place[3];
    float mass;
};

kernel void field_of_a_short_array(global struct particle *all, int n)
{
    int i = get_global_id(0);
    if (TWIN(i <= n, i < n))
        all[i].mass *= 2; //! out-of-bounds
}

kernel void fill_after_free(global int *a)
{
    a[get_global_id(0)] = 1; //! use-after-free
}

kernel void vector_at_the_edge(global float *a, int n)
{
    int i = get_global_id(0);
    if (TWIN(4 * i < n, 4 * i + 3 < n)) {
        float4 v = vload4(i, a); //! out-of-bounds
        vstore4(v + 1, i, a);
    }
}

kernel void misaligned_atomic(global uchar *bytes)
{
    volatile global atomic_uint *count = (volatile global atomic_uint *)(bytes + TWIN(2, 4));
    atomic_fetch_add_explicit(count, 1, memory_order_relaxed, memory_scope_device); //! misaligned-atomic
}

kernel void count_past_the_end(global atomic_uint *counts, global const uint *keys, int n)
{
    uint key = keys[get_global_id(0)];
    if (key < n || TWIN(true, false))
        atomic_fetch_add_explicit(&counts[key], 1, memory_order_relaxed, memory_scope_device); //! out-of-bounds
}

static void helper(global int *a, int i, int value)
{
    a[i] = value; //! through_a_function: out-of-bounds
}

kernel void through_a_function(global int *a, int n)
{
    int i = get_global_id(0);
    helper(a, min(i, TWIN(n, n - 1)), i);
}

kernel void through_a_generic_pointer(global int *a, int n)
{
    local int here[64];
    int l = get_local_id(0);
    int *to = l < 32 ? &here[l] : (int *)&a[get_global_id(0)];
    if (TWIN(true, l < 32 || get_global_id(0) < n))
        *to = l; //! out-of-bounds
    barrier(CLK_LOCAL_MEM_FENCE);
    if (l < 32)
        a[l] = here[l];
}

kernel void masked_items(global int *a, int n)
{
    int i = get_global_id(0);
    // Most items of the last vector run, and access nothing.
    int value = i < TWIN(n + 1, n) ? a[i] : 0; //! out-of-bounds
    if (i < n)
        a[i] = value + 1;
}

kernel void signed_index(global int *a, global const int *index)
{
    int i = get_global_id(0);
    a[TWIN(index[i], abs(index[i]))] = i; //! out-of-bounds
}

kernel void through_a_null_pointer(global int *a)
{
    if (TWIN(true, a != 0))
        a[get_global_id(0)] = 1; //! null-pointer
}

kernel void wild_pointer(global ulong *a)
{
    global int *to = (global int *)(TWIN(a[0] ^ (1ul << 30), a[0]));
    *to = 1; //! no-memory
}

kernel void pointer_in_memory(global int *global *all, int n)
{
    int i = get_global_id(0);
    if (TWIN(true, all[1] != 0))
        all[1][i] = n; //! use-after-free
}

kernel void copy_of_a_structure(global struct particle *to, global const struct particle *from)
{
    int i = get_global_id(0);
    to[i] = from[i]; //! out-of-bounds
}

kernel void constant_table(global int *out, constant int *table, int n)
{
    int i = get_global_id(0);
    out[i] = table[TWIN(i % (n + 1), i % n)]; //! out-of-bounds
}

kernel void ends_in_a_loop(global float *sums, global const float *in, int n)
{
    int i = get_global_id(0);
    float sum = 0;
    for (int k = 0; TWIN(k <= n, k < n); k++)
        sum += in[i * n + k]; //! out-of-bounds
    sums[i] = sum;
}

kernel void wider_than_its_array(global char *a, int n)
{
    int i = get_global_id(0);
    if (i < TWIN(n, n / 8))
        ((global long *)a)[i] = i; //! out-of-bounds
}

constant int primes[4] = {2, 3, 5, 7};

kernel void table_of_the_module(global int *out)
{
    int i = get_global_id(0);
    out[i] = primes[TWIN(i % 5, i % 4)]; //! out-of-bounds
}

kernel void private_array(global int *out, int far)
{
    int i = get_global_id(0);
    int here[8];
    for (int k = 0; k < 8; k++)
        here[k] = i + k;
    out[i] = here[(i + far) % TWIN(9, 8)]; //! out-of-bounds
}

kernel void private_array_before_its_start(global const int *in, global int *out)
{
    int counts[4] = {0, 0, 0, 0}, i = get_global_id(0);
    for (int k = 0; k < 16; k++)
        counts[in[k] - TWIN(1, 0)]++; //! out-of-bounds
    out[i] = counts[i % 4];
}

kernel void local_array(global int *out)
{
    local int tile[64];
    int l = get_local_id(0);
    tile[l] = l;
    barrier(CLK_LOCAL_MEM_FENCE);
    out[get_global_id(0)] = tile[TWIN(l + 1, (l + 1) % 64)]; //! out-of-bounds
}

kernel void local_tile_without_its_border(global int *out)
{
    local int tile[16][16];
    int x = get_local_id(0), y = get_local_id(1);
    tile[TWIN(y + 1, y)][x] = x; //! out-of-bounds
    barrier(CLK_LOCAL_MEM_FENCE);
    out[16 * y + x] = tile[y][15 - x];
}

kernel void local_argument(global int *out, local int *tile)
{
    int l = get_local_id(0);
    tile[l] = l; //! local_argument: out-of-bounds
    barrier(CLK_LOCAL_MEM_FENCE);
    out[get_global_id(0)] = tile[63 - l]; //! local_argument: out-of-bounds
}

kernel void second_local_argument(global int *out, local char *first, local int *second)
{
    int l = get_local_id(0);
    first[l] = l;
    second[TWIN(l - 1, l)] = l; //! out-of-bounds
    barrier(CLK_LOCAL_MEM_FENCE);
    out[get_global_id(0)] = first[l] + second[l / 2];
}

kernel void through_a_native_binary(global int *a, int n)
{
    int i = get_global_id(0);
    a[min(i, TWIN(n, n - 1))] = i; //! out-of-bounds
}

kernel void prints_without_an_end(global const char *text)
{
    if (get_global_id(0) == 0)
        printf("%s\n", text); //! prints_without_an_end: out-of-bounds
}

struct window {
    int items[6];
    int count;
};

__attribute__((noinline)) static int last_of(const struct window *window, int which)
{
    return window->items[which]; //! private_structure: out-of-bounds
}

kernel void private_structure(global int *out, int which)
{
    struct window window[2];
    int i = get_global_id(0);
    for (int k = 0; k < 12; k++)
        window[k / 6].items[k % 6] = i * k;
    window[0].count = window[1].count = 6;
    out[i] = last_of(&window[i & 1], which) + window[1 - (i & 1)].count;
}
