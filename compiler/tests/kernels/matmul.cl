// SPDX-License-Identifier: MIT OR Apache-2.0
// A tiled matrix product: barriers in a loop, tiles in local memory.
#define TILE 8

kernel void matmul(global const float *a, global const float *b, global float *c, uint n) {
  local float ta[TILE][TILE], tb[TILE][TILE];
  uint x = get_global_id(0), y = get_global_id(1);
  uint lx = get_local_id(0), ly = get_local_id(1);
  float sum = 0;
  for (uint t = 0; t < n; t += TILE) {
    ta[ly][lx] = a[y * n + t + lx];
    tb[ly][lx] = b[(t + ly) * n + x];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint k = 0; k < TILE; k++)
      sum += ta[ly][k] * tb[k][lx];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  c[y * n + x] = sum;
}
