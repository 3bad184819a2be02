// SPDX-License-Identifier: MIT OR Apache-2.0
// Printing: every kind of argument. In a file of its own, because clang 22 refuses it beside others.

#pragma OPENCL EXTENSION cl_khr_fp16 : enable

kernel void kinds(global int *out, int n, float f, double d, long l, global char *p, float4 v,
                  uchar3 b) {
  int i = (int)get_global_id(0);
  out[i] = printf("%d of %d: %.2f %g %ld %c %s %%\n", i, n, f * i, d, l - i, 'a' + i % 26,
                  i & 1 ? "odd" : "even");
  out[i] += printf("%p %v4hlf %#v3hhx|%8.3v4hle\n", p, v + i, b, v);
  out[i] += printf("plain\n");
  short8 s = (short8)(1, 2, 3, 4, 5, 6, 7, 8) * (short)i;
  ulong2 q = (ulong2)(l, i);
  half2 h = (half2)((half)i, (half)f);
  out[i] += printf("%v8hd %v2lx %v2hg\n", s, q, h);
}
