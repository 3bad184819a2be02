// SPDX-License-Identifier: MIT OR Apache-2.0
// Printing in divergent code, from callees and between barriers.

void tell(int who, constant char *text) { printf("%d says %s\n", who, text); }

kernel void divergent(global int *out, constant char *text) {
  int i = (int)get_global_id(0);
  int calls = 0;
  for (int k = 0; k < i % 3; k++) {
    if ((i ^ k) & 1)
      calls += 1 + printf("loop %d %d\n", i, k);
  }
  if (i % 5 == 0)
    tell(i, text);
  out[i] = calls;
}

kernel void with_barriers(global int *out, local int *cells) {
  int i = (int)get_local_id(0);
  cells[i] = i * i;
  printf("before %d\n", i);
  barrier(CLK_LOCAL_MEM_FENCE);
  int other = cells[get_local_size(0) - 1 - i];
  out[get_global_id(0)] = printf("after %d %d\n", i, other);
}

kernel void many(global int *out, int calls) {
  int refused = 0;
  for (int k = 0; k < calls; k++)
    refused -= printf("%d %d\n", (int)get_global_id(0), k);
  out[get_global_id(0)] = refused;
}
