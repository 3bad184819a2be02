// SPDX-License-Identifier: MIT OR Apache-2.0
// Memory of every kind: local variables and arguments, structures by value and by pointer, arrays
// of a work-item's own, constants, vectors at odd addresses, copies.

// Sums each group's part of `in`. One local array is the kernel's own, one is an argument.
kernel void reduce(global const int *in, global int *out, local int *scratch) {
    local int first;
    size_t lid = get_local_id(0), size = get_local_size(0);
    scratch[lid] = in[get_global_id(0)];
    if (lid == 0) first = scratch[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (size_t step = 1; step < size; step *= 2) {
        int other = lid + step < size ? scratch[lid + step] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lid % (2 * step) == 0) scratch[lid] += other;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (lid == 0) out[get_group_id(0)] = scratch[0] * 1000 + first;
}

typedef struct {
    char tag;
    float3 place;
    short counts[3];
} Thing;

typedef struct {
    int a;
    long b;
} Pair;

constant int weights[5] = {3, 1, 4, 1, 5};

int weigh(Thing thing, int i) {
    thing.counts[i % 3] += weights[i % 5];
    return thing.tag + (int)thing.place.z + thing.counts[0] + 10 * thing.counts[1] +
           100 * thing.counts[2];
}

// A structure as an argument, one in memory, and one passed to a function that changes its copy.
kernel void structs(Pair pair, global Thing *things, global long *out) {
    int i = get_global_id(0);
    Thing mine = things[i];
    int before = weigh(mine, i);
    int after = weigh(mine, i);
    pair.b += before == after ? i : -1;
    things[i].counts[2] = (short)before;
    out[i] = pair.b * 1000000 + pair.a;
}

// An array of the work-item's own, indexed by data.
kernel void bins(global const uchar *in, global uint *out, uint n) {
    uint count[16];
    for (int k = 0; k < 16; k++) count[k] = 0;
    size_t i = get_global_id(0);
    for (uint k = 0; k < n; k++) count[in[i * n + k] & 15]++;
    uint best = 0;
    for (uint k = 1; k < 16; k++)
        if (count[k] > count[best]) best = k;
    out[i] = best << 16 | count[best];
}

// Vectors of three at addresses of one, dynamic components, halves.
kernel void vectors(global const float *in, global float *out, global half *halves, int pick) {
    size_t i = get_global_id(0);
    float3 v = vload3(i, in);
    float4 w = (float4)(v.zyx, v[pick % 3]);
    w[(pick + 1) % 4] += 0.5f;
    vstore4(w.wzyx, i, out);
    vstore_half3(v * 0.1f, i, halves);
}

int follow(int *p, local int *q, global int *r, int which) {
    int *any = which == 0 ? p : (which == 1 ? (int *)q : (int *)r);
    *any += 1;
    return *any;
}

// One function through pointers into three address spaces.
kernel void generic_pointers(global int *out) {
    local int shared_value;
    int own = 10;
    int i = get_global_id(0);
    shared_value = 20;
    out[2 * i] = 30;
    out[2 * i + 1] = follow(&own, &shared_value, out + 2 * i, i % 3);
}
