// SPDX-License-Identifier: MIT OR Apache-2.0
// Reads, samples and writes images, one work-item a call.
//
// Addressing and filtering follow OpenCL C's chapter of that name, in float arithmetic as written
// there. Where it leaves the result undefined, this code returns the border: no coordinate reaches
// memory outside of the image, since each place is compared with the descriptor's extents where it is
// used.

#include "names.h"

#define FUNCTION __attribute__((noinline))

typedef float floats_t __attribute__((ext_vector_type(4)));

static inline texel_t bits_of_floats(floats_t x) {
  return __builtin_bit_cast(texel_t, x);
}

// The components of a texel whose components have all 8, 16 or 32 bits, each in its word.
static inline texel_t load_components(const struct image *image, const uint8_t *from) {
  texel_t word = 0;
  switch (image->texel_bytes) {
#define OF_BYTES(n)                                                                                \
  case n:                                                                                          \
    __builtin_memcpy(&word, from, n);                                                              \
    break
    OF_BYTES(1);
    OF_BYTES(2);
    OF_BYTES(3);
    OF_BYTES(4);
    OF_BYTES(6);
    OF_BYTES(8);
    OF_BYTES(12);
    OF_BYTES(16);
#undef OF_BYTES
  }
  typedef uint8_t bytes_t __attribute__((ext_vector_type(16)));
  typedef uint16_t shorts_t __attribute__((ext_vector_type(8)));
  if (image->layout == B8)
    return __builtin_convertvector(__builtin_bit_cast(bytes_t, word).xyzw, texel_t);
  if (image->layout == B16)
    return __builtin_convertvector(__builtin_bit_cast(shorts_t, word).xyzw, texel_t);
  return word;
}

// Decodes the components of a texel of any format. Those that it does not have are zeros.
FUNCTION static texel_t decode_components(const struct image *image, const uint8_t *from) {
  texel_t components = 0;
  for (uint32_t i = 0; i < image->components; i++) {
    uint32_t bits, raw = load_component(image, from, i, &bits);
    components[i] = decode(image, i, raw, bits);
  }
  return components;
}

// The same, all components of the formats of most images at a time. A quotient of floats is that of `decode`: rounding
// one of doubles again changes nothing.
INLINE texel_t components_of(const struct image *image, const uint8_t *from) {
  if (image->layout > B32 || image->texel_bytes != image->components << image->layout)
    return decode_components(image, from);
  texel_t raw = load_components(image, from);
  if (image->channel == UINT || (image->channel == FLOAT && image->layout == B32))
    return raw;
  if (image->channel == UNORM && image->layout < B32) {
    float most = image->layout == B8 ? 255.0f : 65535.0f;
    return bits_of_floats(__builtin_convertvector(raw, floats_t) / most);
  }
  return decode_components(image, from);
}

// The channels that components are, where a missing one is `zero`, and one that is 1 inside of the image `inside`.
static inline texel_t channels_of(const struct image *image, texel_t components, uint32_t zero,
                                  uint32_t one, uint32_t inside) {
  uint32_t order;
  __builtin_memcpy(&order, image->swizzle, 4);
  // All four, and red alone.
  if (order == 0x03020100)
    return components;
  if (order == (0 | ZERO << 8 | ZERO << 16 | ONE << 24))
    return (texel_t){components[0], zero, zero, one};
  uint32_t all[8] = {[ZERO] = zero, [ONE] = one, [ONE_INSIDE] = inside};
  __builtin_memcpy(all, &components, sizeof components);
  texel_t channels;
  for (int i = 0; i < 4; i++)
    channels[i] = all[image->swizzle[i] & 7];
  return channels;
}

// The channels of the texel at a place, or of the border.
static inline texel_t fetch(const struct image *image, const int64_t at[3]) {
  uint32_t one = is_float(image) ? bits_of_float(1.0f) : 1;
  const uint8_t *from = place(image, at);
  texel_t components = from ? components_of(image, from) : 0;
  return channels_of(image, components, 0, one, from ? one : 0);
}

// Coordinates that are integers: no filter, and the layer is used as it is, if there is one.
FUNCTION texel_t NAME(__tally_image_fetch)(const struct image *image, uint64_t sampler, int32_t x,
                                     int32_t y, int32_t z) {
  int64_t at[3];
  int32_t given[3] = {x, y, z};
  int count = dimensions(image);
  if (count == 2)
    place_of_integers(image, (uint32_t)sampler, given, 2, at);
  else
    place_of_integers(image, (uint32_t)sampler, given, count, at);
  return fetch(image, at);
}

// Weights the two, four or eight neighbours of a place in an image of so many dimensions.
INLINE texel_t filter_in(const struct image *image, const float given[3], uint32_t sampler, int count) {
  struct neighbours near;
  neighbours_of(image, sampler, given, count, &near);
  // Sums of the components, of zeros, which are NaN if a weight is, and of ones inside of the image.
  floats_t sum = 0;
  float zero = 0, inside = 0;
  for (int corner = 0; corner < 1 << count; corner++) {
    int64_t at[3];
    float share = corner_of(&near, corner, at);
    const uint8_t *from = place(image, at);
    texel_t components = from ? components_of(image, from) : 0;
    sum += share * __builtin_bit_cast(floats_t, components);
    zero += share * 0.0f;
    inside += share * (from ? 1.0f : 0.0f);
  }
  return channels_of(image, bits_of_floats(sum), bits_of_float(zero), bits_of_float(1.0f),
                     bits_of_float(inside));
}

FUNCTION static texel_t filter_1d(const struct image *image, uint32_t sampler, float x, float y, float z) {
  return filter_in(image, (float[3]){x, y, z}, sampler, 1);
}

FUNCTION static texel_t filter_2d(const struct image *image, uint32_t sampler, float x, float y, float z) {
  return filter_in(image, (float[3]){x, y, z}, sampler, 2);
}

FUNCTION static texel_t filter_3d(const struct image *image, uint32_t sampler, float x, float y, float z) {
  return filter_in(image, (float[3]){x, y, z}, sampler, 3);
}

FUNCTION texel_t NAME(__tally_image_sample)(const struct image *image, uint64_t word, float x, float y,
                                      float z) {
  uint32_t sampler = (uint32_t)word;
  int count = dimensions(image);
  if (is_filtered(image, sampler))
    return count == 2   ? filter_2d(image, sampler, x, y, z)
           : count == 1 ? filter_1d(image, sampler, x, y, z)
                        : filter_3d(image, sampler, x, y, z);
  float given[3] = {x, y, z};
  int64_t at[3];
  if (count == 2)
    place_of_floats(image, sampler, given, 2, at);
  else
    place_of_floats(image, sampler, given, count, at);
  return fetch(image, at);
}

FUNCTION void NAME(__tally_image_write)(const struct image *image, int32_t x, int32_t y, int32_t z,
                                  texel_t texel) {
  int64_t at[3];
  place_of_write(image, (int32_t[3]){x, y, z}, at);
  uint8_t *to = place(image, at);
  if (!to)
    return;
  // The components are channels as they are.
  uint32_t order, words = image->components;
  __builtin_memcpy(&order, image->swizzle, 4);
  bool in_order = words == 4 ? order == 0x03020100 : words == 1 && image->swizzle[0] == 0;
  if (in_order && image->layout == B32 && image->channel != UNORM && image->channel != SNORM) {
    if (words == 1)
      __builtin_memcpy(to, &texel, 4);
    else
      __builtin_memcpy(to, &texel, 16);
    return;
  }
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
