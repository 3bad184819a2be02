// SPDX-License-Identifier: MIT OR Apache-2.0
// Built-in functions that LLVM leaves as calls or writes in a form of its own, dot products, and
// masks of sub-groups.

#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#pragma OPENCL EXTENSION cl_khr_fp64 : enable

kernel void conversions(global const float *in, global ushort *halves, global double *doubles,
                        global const ulong *longs) {
  int i = (int)get_global_id(0);
  global half *h = (global half *)halves;
  h[4 * i] = convert_half(in[i]);
  h[4 * i + 1] = convert_half_rtz(in[i]);
  h[4 * i + 2] = convert_half_rtp(in[i]);
  h[4 * i + 3] = convert_half((short)in[i]);
  double2 pair = convert_double2((ulong2)(longs[i], longs[i] >> 3));
  doubles[3 * i] = pair.x + pair.y;
  doubles[3 * i + 1] = convert_double(h[4 * i]);
  doubles[3 * i + 2] = convert_double((int)in[i]);
}

kernel void votes(global const int4 *in, global int *out) {
  int i = (int)get_global_id(0);
  mem_fence(CLK_GLOBAL_MEM_FENCE);
  out[i] = any(in[i]) + 2 * all(in[i]);
  read_mem_fence(CLK_LOCAL_MEM_FENCE);
}

kernel void dots(global const int *a, global const int *b, global int *out) {
  int i = (int)get_global_id(0);
  global const char4 *sa = (global const char4 *)a, *sb = (global const char4 *)b;
  global const uchar4 *ua = (global const uchar4 *)a, *ub = (global const uchar4 *)b;
  out[8 * i] = dot(sa[i], sb[i]);
  out[8 * i + 1] = (int)dot(ua[i], ub[i]);
  out[8 * i + 2] = dot(sa[i], ub[i]);
  out[8 * i + 3] = dot_acc_sat(sa[i], sb[i], 0x7fffff00);
  out[8 * i + 4] = (int)dot_acc_sat(ua[i], ub[i], 0xffffff00u);
  out[8 * i + 5] = dot_4x8packed_ss_int((uint)a[i], (uint)b[i]);
  out[8 * i + 6] = dot_acc_sat_4x8packed_su_int((uint)a[i], (uint)b[i], (int)0x80000010);
  out[8 * i + 7] = (int)dot_4x8packed_uu_uint((uint)a[i], (uint)b[i]);
}

kernel void masks(global uint *out) {
  int i = (int)get_global_id(0);
  out[5 * i] = get_sub_group_eq_mask().x;
  out[5 * i + 1] = get_sub_group_ge_mask().x;
  out[5 * i + 2] = get_sub_group_gt_mask().x;
  out[5 * i + 3] = get_sub_group_le_mask().x;
  out[5 * i + 4] = get_sub_group_lt_mask().x;
}

kernel void float_atomics(global float *f, global double *d, global half *h) {
  local float lf;
  local double ld;
  local half lh;
  int i = (int)get_global_id(0);
  if (get_local_id(0) == 0) {
    lf = 0;
    ld = 0;
    lh = 0;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  atomic_fetch_add((global atomic_half *)h, (half)1);
  atomic_fetch_max((global atomic_half *)(h + 1), (half)i);
  atomic_fetch_min((global atomic_half *)(h + 2), (half)-i);
  atomic_fetch_add((local atomic_half *)&lh, (half)2);
  atomic_fetch_max((local atomic_double *)&ld, (double)i);
  atomic_fetch_add((local atomic_float *)&lf, 0.5f);
  atomic_fetch_min((global atomic_double *)d, (double)-i);
  atomic_fetch_max((global atomic_float *)f, (float)i);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (get_local_id(0) == 0) {
    atomic_store((global atomic_half *)(h + 3), atomic_load((local atomic_half *)&lh));
    f[1] = lf;
    d[1] = ld;
  }
}
