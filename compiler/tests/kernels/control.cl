// SPDX-License-Identifier: MIT OR Apache-2.0
// Control flow, calls, structures, work-item functions.

kernel void switches(global const int *in, global int *out) {
  size_t i = get_global_id(0);
  int x = in[i], r;
  switch (x) {
  case 0: r = 10; break;
  case 1: case 7: r = 20;
  case 2: r = x + 5; break;
  case -3: r = -1; break;
  case 100: for (r = 0; r < x; r += 7) if (r % 5 == 3) goto out; break;
  default: r = x * x;
  }
out:
  out[i] = r;
}

struct pair { int a; float b; char c[3]; double d; };

__attribute__((noinline)) struct pair step(struct pair p, int n) {
  p.a += n;
  p.b *= 2;
  p.c[n & 1] += 1;
  p.d -= p.a;
  return p;
}

kernel void structs(global struct pair *p, struct pair by_value) {
  size_t i = get_global_id(0);
  struct pair q = p[i];
  for (int n = 0; n < 5; n++)
    q = step(q, n);
  q.a += by_value.a;
  q.c[2] = by_value.c[1];
  p[i] = q;
}

kernel void places(global ulong *out) {
  size_t i = get_global_linear_id();
  global ulong *o = out + i * 24;
  for (int d = 0; d < 3; d++) {
    *o++ = get_global_id(d);
    *o++ = get_local_id(d);
    *o++ = get_group_id(d);
    *o++ = get_local_size(d);
    *o++ = get_enqueued_local_size(d);
    *o++ = get_num_groups(d);
    *o++ = get_global_offset(d);
  }
  *o++ = get_work_dim();
  *o++ = get_local_linear_id();
  *o++ = get_global_size(0);
}

constant int table[8] = {3, 1, 4, 1, 5, 9, 2, 6};
global int counter = 5;
global int *global_pointer = &counter;

kernel void globals(global int *out) {
  size_t i = get_global_id(0);
  out[i] = table[i & 7] + *global_pointer;
}

kernel void sum_local(global const int *in, global int *out, local int *tmp) {
  size_t l = get_local_id(0), n = get_local_size(0);
  tmp[l] = in[get_global_id(0)];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (size_t s = 1; s < n; s *= 2) {
    int other = l >= s ? tmp[l - s] : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    tmp[l] += other;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (l == n - 1)
    out[get_group_id(0)] = tmp[l];
}

__attribute__((noinline)) int exchange(local int *tmp, int value) {
  size_t l = get_local_id(0), n = get_local_size(0);
  tmp[l] = value;
  barrier(CLK_LOCAL_MEM_FENCE);
  int got = tmp[(l + 1) % n];
  barrier(CLK_LOCAL_MEM_FENCE);
  return got;
}

kernel void barrier_in_call(global int *io) {
  local int tmp[64];
  int keep[4] = {1, 2, 3, 4};
  int v = io[get_global_id(0)];
  for (int i = 0; i < 3; i++) {
    v = exchange(tmp, v);
    keep[i] += v;
  }
  io[get_global_id(0)] = v + keep[0] + 10 * keep[1] + 100 * keep[2] + keep[3];
}

kernel void divergent(global int *out) {
  size_t i = get_local_id(0);
  int n = 0;
  for (size_t k = 0; k < i % 5; k++) {
    n += 1;
    barrier(CLK_LOCAL_MEM_FENCE);
    n += 10;
  }
  if (i == 3)
    return;
  barrier(CLK_LOCAL_MEM_FENCE);
  out[get_global_id(0)] = n;
}

kernel void reverse(global int *io, local int *t) {
  size_t g = get_global_linear_id(), l = get_local_linear_id();
  size_t n = get_local_size(0) * get_local_size(1) * get_local_size(2);
  int kept = io[g] * 2;
  t[l] = io[g];
  barrier(CLK_LOCAL_MEM_FENCE);
  io[g] = t[n - 1 - l] + kept;
}

kernel void histogram(global const uchar *in, global uint *bins, local uint *mine) {
  size_t l = get_local_id(0), n = get_local_size(0);
  for (size_t b = l; b < 16; b += n)
    mine[b] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  atomic_add(&mine[in[get_global_id(0)] & 15], 1);
  barrier(CLK_LOCAL_MEM_FENCE);
  for (size_t b = l; b < 16; b += n)
    atomic_add(&bins[b], mine[b]);
}

#define GLOBAL(p) ((volatile global atomic_int *)(p))
#define GLOBALU(p) ((volatile global atomic_uint *)(p))
#define LOCAL(p) ((volatile local atomic_int *)(p))
#define HOW memory_order_relaxed, memory_scope_device
#define MINE memory_order_acq_rel, memory_scope_work_group

kernel void atomics(global int *c, global uint *u, local int *l) {
  int i = (int)get_global_id(0);
  __opencl_atomic_fetch_sub(GLOBAL(c), i, HOW);
  __opencl_atomic_fetch_min(GLOBAL(c + 1), -i, HOW);
  __opencl_atomic_fetch_max(GLOBAL(c + 2), i, HOW);
  __opencl_atomic_fetch_or(GLOBAL(c + 3), 1 << (i & 31), HOW);
  __opencl_atomic_fetch_and(GLOBAL(c + 4), ~(1 << (i & 15)), HOW);
  __opencl_atomic_fetch_xor(GLOBAL(c + 5), i, HOW);
  __opencl_atomic_fetch_max(GLOBALU(u), (uint)-i, HOW);
  __opencl_atomic_fetch_min(GLOBALU(u + 1), (uint)i + 7, HOW);
  int old = c[6];
  while (!__opencl_atomic_compare_exchange_strong(GLOBAL(c + 6), &old, old + i, memory_order_seq_cst,
                                                  memory_order_relaxed, memory_scope_device))
    ;
  __opencl_atomic_fetch_add(GLOBAL(c + 7), 2, memory_order_seq_cst, memory_scope_device);
  __opencl_atomic_store(GLOBAL(c + 8), 77, memory_order_release, memory_scope_device);
  c[9] = __opencl_atomic_load(GLOBAL(c + 8), memory_order_acquire, memory_scope_device);
  if (get_local_id(0) == 0) {
    l[0] = 0;
    l[1] = 100;
    l[2] = -100;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  __opencl_atomic_fetch_add(LOCAL(l), i, MINE);
  __opencl_atomic_fetch_min(LOCAL(l + 1), i, MINE);
  __opencl_atomic_fetch_max(LOCAL(l + 2), i, MINE);
  __opencl_atomic_exchange(LOCAL(l + 3), 5, MINE);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (get_local_id(0) == 0)
    for (int k = 0; k < 4; k++)
      c[10 + k] = l[k];
}

kernel void big_private(global uint *out, uint seed) {
  uint state[20000];
  uint x = seed + (uint)get_global_id(0);
  for (uint i = 0; i < 20000; i++) { x = x * 1664525u + 1013904223u; state[i] = x; }
  uint sum = 0;
  for (uint i = 0; i < 20000; i += 97) sum += state[(x + i) % 20000];
  out[get_global_id(0)] = sum;
}
