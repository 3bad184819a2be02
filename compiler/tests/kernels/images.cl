// SPDX-License-Identifier: MIT OR Apache-2.0
// Reads, samples and writes images of every kind at given places. Components behind the coordinates of
// an image's kind are ignored.

#define SAMPLE(kind, coordinate)                                                                    \
  kernel void sample_##kind(read_only image##kind##_t image, sampler_t s, global const float4 *at, \
                            global float4 *out) {                                                   \
    size_t i = get_global_id(0);                                                                    \
    float4 p = at[i];                                                                               \
    out[i] = read_imagef(image, s, coordinate);                                                     \
  }                                                                                                 \
  kernel void sample_int_##kind(read_only image##kind##_t image, sampler_t s,                       \
                                global const float4 *at, global int4 *out) {                        \
    size_t i = get_global_id(0);                                                                    \
    float4 p = at[i];                                                                               \
    out[i] = read_imagei(image, s, coordinate);                                                     \
  }

#define FETCH(kind, coordinate)                                                                     \
  kernel void fetch_##kind(read_only image##kind##_t image, global const int4 *at,                 \
                           global uint4 *out) {                                                     \
    size_t i = get_global_id(0);                                                                    \
    int4 p = at[i];                                                                                 \
    if (p.w != 7)                                                                                   \
      out[i] = read_imageui(image, coordinate);                                                     \
  }                                                                                                 \
  kernel void write_##kind(write_only image##kind##_t image, global const int4 *at,                \
                           global const float4 *in) {                                               \
    size_t i = get_global_id(0);                                                                    \
    int4 p = at[i];                                                                                 \
    if (p.w != 7)                                                                                   \
      write_imagef(image, coordinate, in[i]);                                                       \
  }                                                                                                 \
  kernel void write_int_##kind(write_only image##kind##_t image, global const int4 *at,            \
                               global const int4 *in) {                                             \
    size_t i = get_global_id(0);                                                                    \
    int4 p = at[i];                                                                                 \
    if (p.w != 7)                                                                                   \
      write_imagei(image, coordinate, in[i]);                                                       \
  }

SAMPLE(1d, p.x)
SAMPLE(1d_array, p.xy)
SAMPLE(2d, p.xy)
SAMPLE(2d_array, p)
SAMPLE(3d, p)

FETCH(1d, p.x)
FETCH(1d_array, p.xy)
FETCH(2d, p.xy)
FETCH(2d_array, p)
FETCH(3d, p)
FETCH(1d_buffer, p.x)
