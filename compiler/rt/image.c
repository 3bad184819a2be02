// SPDX-License-Identifier: MIT OR Apache-2.0
// Reads, samples and writes images, one work-item a call.
//
// Addressing and filtering follow OpenCL C's chapter of that name, in float arithmetic as written
// there. Where it leaves the result undefined, this code returns the border: no coordinate reaches
// memory outside of the image, since each place is compared with the descriptor's extents where it is
// used.

#include "image.h"

enum sampler {
  NONE,
  CLAMP_TO_EDGE,
  CLAMP_TO_BORDER,
  REPEAT,
  MIRROR,
  ADDRESS = 7,
  NORMALIZED = 1 << 3,
  LINEAR = 1 << 4
};

// The functions are large and called once for each item: inlining them would gain nothing.
#define FUNCTION __attribute__((noinline))

// Never traps, and returns a value for every input.
static int64_t to_int(float x) {
  if (x != x)
    return 0;
  return x >= 0x1p31f ? 0x7fffffff : x <= -0x1p31f ? -0x80000000ll : (int64_t)x;
}

static int64_t clamp(int64_t i, uint32_t n) {
  int64_t last = (int64_t)n - 1;
  return i < 0 ? 0 : i > last ? last : i;
}

// The address of the texel; null if it is outside of the image.
static uint8_t *place(const struct image *image, const int64_t at[3]) {
  if ((uint64_t)at[0] >= image->width || (uint64_t)at[1] >= image->height ||
      (uint64_t)at[2] >= image->depth)
    return 0;
  return (uint8_t *)image->base + (uint64_t)at[0] * image->texel_bytes +
         (uint64_t)at[1] * image->row_pitch + (uint64_t)at[2] * image->slice_pitch;
}

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

// The number of coordinates that are filtered or wrapped, and the index of the layer; 3 if there is
// none.
static int dimensions(const struct image *image) {
  switch (image->kind) {
  case D2:
  case D2_ARRAY:
    return 2;
  case D3:
    return 3;
  default:
    return 1;
  }
}

static int layer_of(const struct image *image) {
  return image->kind == D1_ARRAY ? 1 : image->kind == D2_ARRAY ? 2 : 3;
}

static uint32_t extent(const struct image *image, int dimension) {
  return dimension == 0 ? image->width : dimension == 1 ? image->height : image->depth;
}

// A coordinate in texels, from 0 to the extent inside of the image, for all modes.
static float unwrap(float c, uint32_t n, uint32_t sampler) {
  float size = (float)n;
  switch (sampler & ADDRESS) {
  case REPEAT:
    c = sampler & NORMALIZED ? c : c / size;
    return (c - __builtin_floorf(c)) * size;
  case MIRROR: {
    c = sampler & NORMALIZED ? c : c / size;
    float nearest = 2.0f * __builtin_rintf(0.5f * c);
    return __builtin_fabsf(c - nearest) * size;
  }
  default:
    return sampler & NORMALIZED ? c * size : c;
  }
}

// The texel that an index addresses, also beyond the edges.
static int64_t wrap(int64_t i, uint32_t n, uint32_t sampler) {
  switch (sampler & ADDRESS) {
  case REPEAT:
    return i < 0 ? i + n : i >= n ? i - n : i;
  case CLAMP_TO_EDGE:
  case MIRROR:
    return clamp(i, n);
  default:
    return i;
  }
}

// Coordinates that are integers: no filter, and the layer is used as it is, if there is one.
FUNCTION texel_t __tally_image_fetch(const struct image *image, uint64_t sampler, int32_t x,
                                     int32_t y, int32_t z) {
  int32_t given[3] = {x, y, z};
  int64_t at[3] = {0, 0, 0};
  int count = dimensions(image), layer = layer_of(image);
  for (int i = 0; i < count; i++)
    at[i] = wrap(given[i], extent(image, i), (uint32_t)sampler);
  if (layer < 3)
    at[2] = clamp(given[layer], image->depth);
  return fetch(image, at);
}

// Weights the two, four or eight neighbours of a place.
static texel_t filter(const struct image *image, const float given[3], int64_t at[3], int count,
                      uint32_t sampler) {
  int64_t low[3], high[3];
  float weight[3];
  for (int i = 0; i < count; i++) {
    uint32_t n = extent(image, i);
    float u = unwrap(given[i], n, sampler) - 0.5f;
    float below = __builtin_floorf(u);
    int64_t index = to_int(below);
    weight[i] = u - below;
    low[i] = wrap(index, n, sampler);
    high[i] = wrap(index + 1, n, sampler);
  }
  float sum[4] = {0, 0, 0, 0};
  for (int corner = 0; corner < 1 << count; corner++) {
    float share = 1;
    for (int i = 0; i < count; i++) {
      bool upper = corner >> i & 1;
      at[i] = upper ? high[i] : low[i];
      share *= upper ? weight[i] : 1.0f - weight[i];
    }
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
  int64_t at[3] = {0, 0, 0};
  int count = dimensions(image), layer = layer_of(image);
  if (layer < 3)
    at[2] = clamp(to_int(__builtin_rintf(given[layer])), image->depth);
  // Integer texels cannot be interpolated.
  if (sampler & LINEAR && is_float(image))
    return filter(image, given, at, count, sampler);
  for (int i = 0; i < count; i++) {
    uint32_t n = extent(image, i);
    at[i] = wrap(to_int(__builtin_floorf(unwrap(given[i], n, sampler))), n, sampler);
  }
  return fetch(image, at);
}

FUNCTION void __tally_image_write(const struct image *image, int32_t x, int32_t y, int32_t z,
                                  texel_t texel) {
  int32_t given[3] = {x, y, z};
  int64_t at[3] = {0, 0, 0};
  int count = dimensions(image), layer = layer_of(image);
  for (int i = 0; i < count; i++)
    at[i] = given[i];
  if (layer < 3)
    at[2] = given[layer];
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
