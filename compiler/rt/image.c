// SPDX-License-Identifier: MIT OR Apache-2.0
// Reads, samples and writes images, one work-item a call.
//
// Addressing and filtering follow OpenCL C's chapter of that name, in float arithmetic as written
// there. Where it leaves the result undefined, this code returns the border: no coordinate reaches
// memory outside of the image, since each place is compared with the descriptor's extents where it is
// used.

#include "places.h"

// The functions are large and called once for each item: inlining them would gain nothing.
#define FUNCTION __attribute__((noinline))

// The channels of the texel at a place, or of the border.
static texel_t fetch(const struct image *image, const int64_t at[3]) {
  uint32_t one = is_float(image) ? bits_of_float(1.0f) : 1;
  uint32_t components[4] = {0, 0, 0, 0};
  const uint8_t *from = place(image, at);
  if (from)
    for (uint32_t i = 0; i < image->components; i++) {
      uint32_t bits, raw = load_component(image, from, i, &bits);
      components[i] = decode(image, i, raw, bits);
    }
  texel_t texel;
  for (int i = 0; i < 4; i++) {
    uint8_t from_where = image->swizzle[i];
    if (from_where < ZERO)
      texel[i] = components[from_where];
    else
      texel[i] = from_where == ONE || (from_where == ONE_INSIDE && from) ? one : 0;
  }
  return texel;
}

// Coordinates that are integers: no filter, and the layer is used as it is, if there is one.
FUNCTION texel_t __tally_image_fetch(const struct image *image, uint64_t sampler, int32_t x,
                                     int32_t y, int32_t z) {
  int64_t at[3];
  place_of_integers(image, (uint32_t)sampler, (int32_t[3]){x, y, z}, at);
  return fetch(image, at);
}

// Weights the two, four or eight neighbours of a place.
static texel_t filter(const struct image *image, const float given[3], uint32_t sampler) {
  struct neighbours near;
  neighbours_of(image, sampler, given, &near);
  float sum[4] = {0, 0, 0, 0};
  for (int corner = 0; corner < 1 << near.count; corner++) {
    int64_t at[3];
    float share = corner_of(&near, corner, at);
    texel_t texel = fetch(image, at);
    for (int i = 0; i < 4; i++)
      sum[i] += share * float_of_bits(texel[i]);
  }
  texel_t result;
  for (int i = 0; i < 4; i++)
    result[i] = bits_of_float(image->swizzle[i] == ONE ? 1.0f : sum[i]);
  return result;
}

FUNCTION texel_t __tally_image_sample(const struct image *image, uint64_t word, float x, float y,
                                      float z) {
  uint32_t sampler = (uint32_t)word;
  float given[3] = {x, y, z};
  if (is_filtered(image, sampler))
    return filter(image, given, sampler);
  int64_t at[3];
  place_of_floats(image, sampler, given, at);
  return fetch(image, at);
}

FUNCTION void __tally_image_write(const struct image *image, int32_t x, int32_t y, int32_t z,
                                  texel_t texel) {
  int64_t at[3];
  place_of_write(image, (int32_t[3]){x, y, z}, at);
  uint8_t *to = place(image, at);
  if (!to)
    return;
  uint32_t word = 0;
  for (uint32_t i = 0; i < image->components; i++) {
    uint32_t channel = 0;
    for (int c = 3; c >= 0; c--)
      channel = image->swizzle[c] == i ? texel[c] : channel;
    switch (image->layout) {
    case B8:
      to[i] = (uint8_t)encode(image, i, channel, 8);
      break;
    case B16: {
      uint16_t half = (uint16_t)encode(image, i, channel, 16);
      __builtin_memcpy(to + 2 * i, &half, 2);
      break;
    }
    case B32: {
      uint32_t whole = encode(image, i, channel, 32);
      __builtin_memcpy(to + 4 * i, &whole, 4);
      break;
    }
    default: {
      struct field field = field_of(image->layout, i);
      word |= encode(image, i, channel, field.bits) << field.shift;
    }
    }
  }
  if (image->layout >= B10_10_10_2)
    __builtin_memcpy(to, &word, image->texel_bytes == 4 ? 4 : 2);
}
