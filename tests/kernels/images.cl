// SPDX-License-Identifier: MIT OR Apache-2.0
// Kernels that read, sample, write and query images.

constant sampler_t SMPL_PREF =
    CLK_NORMALIZED_COORDS_TRUE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_LINEAR;

// The guide's kernel.
kernel void image_scaling(read_only image2d_t src_img, write_only image2d_t dest_img, uint width,
                          uint height) {
  int2 coor = (int2)(get_global_id(0), get_global_id(1));
  float2 normCoor = convert_float2(coor) / (float2)(width, height);
  float4 color = read_imagef(src_img, SMPL_PREF, normCoor);
  write_imagef(dest_img, coor, color);
}

kernel void sample(read_only image2d_t image, sampler_t s, global const float2 *at,
                   global float4 *out) {
  size_t i = get_global_id(0);
  out[i] = read_imagef(image, s, at[i]);
}

kernel void copy_2d(read_only image2d_t from, write_only image2d_t to) {
  int2 at = (int2)(get_global_id(0), get_global_id(1));
  write_imageui(to, at, read_imageui(from, at));
}

kernel void copy_float(read_only image2d_t from, write_only image2d_t to) {
  int2 at = (int2)(get_global_id(0), get_global_id(1));
  write_imagef(to, at, read_imagef(from, at));
}

kernel void copy_1d(read_only image1d_t from, write_only image1d_t to) {
  int at = get_global_id(0);
  write_imageui(to, at, read_imageui(from, at));
}

kernel void copy_1d_array(read_only image1d_array_t from, write_only image1d_array_t to) {
  int2 at = (int2)(get_global_id(0), get_global_id(1));
  write_imageui(to, at, read_imageui(from, at));
}

kernel void copy_2d_array(read_only image2d_array_t from, write_only image2d_array_t to) {
  int4 at = (int4)(get_global_id(0), get_global_id(1), get_global_id(2), 0);
  write_imageui(to, at, read_imageui(from, at));
}

kernel void copy_3d(read_only image3d_t from, write_only image3d_t to) {
  int4 at = (int4)(get_global_id(0), get_global_id(1), get_global_id(2), 0);
  write_imageui(to, at, read_imageui(from, at));
}

kernel void copy_buffer(read_only image1d_buffer_t from, write_only image1d_buffer_t to) {
  int at = get_global_id(0);
  write_imageui(to, at, read_imageui(from, at));
}

// Adds one to every texel, in place.
kernel void increment(read_write image2d_t image) {
  int2 at = (int2)(get_global_id(0), get_global_id(1));
  write_imageui(image, at, read_imageui(image, at) + 1);
}

// A texel as the kernel sees it, of each kind of numbers.
kernel void look(read_only image2d_t image, global float4 *out) {
  out[get_global_id(0)] = read_imagef(image, (int2)(get_global_id(0), 0));
}

kernel void look_int(read_only image2d_t image, global int4 *out) {
  out[get_global_id(0)] = read_imagei(image, (int2)(get_global_id(0), 0));
}

kernel void ask(read_only image2d_array_t array, read_only image3d_t volume,
                read_only image1d_buffer_t line, global int *out) {
  out[0] = get_image_width(array);
  out[1] = get_image_height(array);
  out[2] = get_image_array_size(array);
  out[3] = get_image_width(volume);
  out[4] = get_image_height(volume);
  out[5] = get_image_depth(volume);
  out[6] = get_image_width(line);
  out[7] = get_image_channel_order(array);
}
