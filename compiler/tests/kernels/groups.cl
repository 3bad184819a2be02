// SPDX-License-Identifier: MIT OR Apache-2.0
// Groups and sub-groups in typical use.

#pragma OPENCL EXTENSION cl_khr_fp16 : enable

#define SUB(n) __attribute__((intel_reqd_sub_group_size(n)))

// The place of an item: seven queries each.
kernel SUB(8) void places(global uint *out) {
    size_t i = (get_global_id(2) * get_global_size(1) + get_global_id(1)) * get_global_size(0)
               + get_global_id(0);
    global uint *to = out + i * 7;
    to[0] = get_sub_group_size();
    to[1] = get_max_sub_group_size();
    to[2] = get_num_sub_groups();
    to[3] = get_enqueued_num_sub_groups();
    to[4] = get_sub_group_id();
    to[5] = get_sub_group_local_id();
    to[6] = (uint)get_local_linear_id();
}

// Ballots and their queries, with the sub-group's default size.
kernel void ballots(global uint *out, global const int *in) {
    size_t i = get_global_id(0);
    global uint *to = out + i * 10;
    uint4 votes = sub_group_ballot(in[i] & 1);
    to[0] = votes.x;
    to[1] = votes.y | votes.z | votes.w;
    to[2] = sub_group_ballot_bit_count(votes);
    to[3] = sub_group_ballot_inclusive_scan(votes);
    to[4] = sub_group_ballot_exclusive_scan(votes);
    to[5] = votes.x ? sub_group_ballot_find_lsb(votes) : 99;
    to[6] = votes.x ? sub_group_ballot_find_msb(votes) : 99;
    to[7] = sub_group_inverse_ballot(votes) != 0;
    to[8] = sub_group_ballot_bit_extract(votes, 2) != 0;
    to[9] = sub_group_elect() != 0;
}

// Values of other items, of every kind of type.
kernel SUB(16) void shuffles(global long *out, global const long *in) {
    size_t i = get_global_id(0);
    uint lane = get_sub_group_local_id();
    long x = in[i];
    global long *to = out + i * 12;
    to[0] = sub_group_shuffle(x, (lane + 3) % get_sub_group_size());
    to[1] = sub_group_shuffle_xor((int)x, 1u);
    to[2] = lane >= 2 ? 0 : 1;
    long up = sub_group_shuffle_up(x, 2u);
    to[2] = lane >= 2 ? up : -7;
    long down = sub_group_shuffle_down(x, 2u);
    to[3] = lane + 2 < get_sub_group_size() ? down : -7;
    to[4] = sub_group_broadcast((char)x, 1u);
    to[5] = (long)sub_group_broadcast((double)(x & 0xffff), 2u);
    to[6] = (long)sub_group_broadcast((half)(float)(x & 0xff), 0u);
    to[7] = sub_group_broadcast_first((short)x);
    float4 v = (float4)((float)(x & 0xff), 2.0f, 3.0f, 4.0f);
    float4 other = sub_group_non_uniform_broadcast(v, 1u);
    to[8] = (long)(other.x + other.w);
    to[9] = work_group_broadcast(x, 5);
    to[10] = sub_group_all(x > -3) + 2 * sub_group_any(x > 900) + 4 * work_group_all(x > -3)
             + 8 * work_group_any(x > 900);
    to[11] = sub_group_non_uniform_all_equal((int)(x > -100)) + 2 * sub_group_non_uniform_all_equal((int)x);
}

// Divergent code: each branch is a group of its own, and items leave loops at different times.
kernel SUB(8) void divergent(global uint *out) {
    uint i = get_global_id(0), lane = get_sub_group_local_id();
    uint r = 0;
    if (lane % 3 == 0) {
        r = sub_group_ballot(1).x;
        r += 1000 * sub_group_non_uniform_reduce_add(lane);
    } else {
        r = sub_group_non_uniform_scan_inclusive_add(1u);
    }
    for (uint k = 0; k <= lane; k++)
        r += 100000 * sub_group_non_uniform_reduce_add(1u);
    out[i] = r;
}

// Divergent sub-groups, with any number of iterations, between barriers of the work-group.
kernel SUB(8) void turns(global int *out, local int *t) {
    uint l = get_local_id(0), sub = get_sub_group_id(), lane = get_sub_group_local_id();
    int x = (int)l;
    for (uint round = 0; round < 3; round++) {
        t[l] = x;
        barrier(CLK_LOCAL_MEM_FENCE);
        x += t[(l + 9) % get_local_size(0)];
        for (uint k = 0; k < sub; k++)
            x = sub_group_shuffle_xor(x, 1u) + (int)k;
        if (sub & 1)
            x += sub_group_reduce_max(x);
        x += work_group_reduce_add(x & 3);
        x ^= work_group_scan_exclusive_add(1);
    }
    out[get_global_id(0)] = x;
}

// Consecutive operations do not see each other's values.
kernel SUB(16) void in_a_row(global int *out) {
    int x = (int)get_local_id(0);
    for (int k = 0; k < 5; k++) {
        x = work_group_reduce_max(x + k) - x;
        x = work_group_scan_inclusive_add(x) & 0xff;
        x = sub_group_shuffle_xor(x, 1u) + work_group_broadcast(x, 2);
        x = sub_group_scan_exclusive_max(x) > 0 ? sub_group_reduce_min(x) + (int)get_local_id(0) : x + 1;
    }
    out[get_global_id(0)] = x;
}

int sum_of(int x, local int *t) {
    uint lane = get_sub_group_local_id(), first = get_sub_group_id() * get_max_sub_group_size();
    t[first + lane] = x;
    sub_group_barrier(CLK_LOCAL_MEM_FENCE);
    int sum = 0;
    for (uint k = 0; k < get_sub_group_size(); k++)
        sum += t[first + k];
    sub_group_barrier(CLK_LOCAL_MEM_FENCE);
    return sum;
}

// Local memory between the items of a sub-group, in a function.
kernel SUB(16) void by_barrier(global int *out, local int *t) {
    int a = sum_of((int)get_global_id(0), t);
    int b = sum_of(a + (int)get_sub_group_local_id(), t);
    out[get_global_id(0)] = b;
}

// Items that have returned take no part.
kernel SUB(8) void early(global uint *out) {
    uint i = get_global_id(0);
    if (i % 4 == 1)
        return;
    out[i] = sub_group_ballot(1).x;
    if (i % 4 == 2)
        return;
    out[i] += 1000 * sub_group_non_uniform_reduce_add(1u);
}
