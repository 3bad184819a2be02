// SPDX-License-Identifier: MIT OR Apache-2.0
// The places of texels, by coordinates and samplers. No coordinate reaches memory outside of the image,
// since each place is compared with the descriptor's extents.

#ifndef TALLY_PLACES_H
#define TALLY_PLACES_H

#include "image.h"

#define INLINE static inline __attribute__((always_inline))

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

// Never traps, and returns a value for every input.
static inline int64_t to_int(float x) {
  if (x != x)
    return 0;
  return x >= 0x1p31f ? 0x7fffffff : x <= -0x1p31f ? -0x80000000ll : (int64_t)x;
}

static inline int64_t clamp(int64_t i, uint32_t n) {
  int64_t last = (int64_t)n - 1;
  return i < 0 ? 0 : i > last ? last : i;
}

// The address of the texel; null if it is outside of the image.
static inline uint8_t *place(const struct image *image, const int64_t at[3]) {
  if ((uint64_t)at[0] >= image->width || (uint64_t)at[1] >= image->height ||
      (uint64_t)at[2] >= image->depth)
    return 0;
  return (uint8_t *)image->base + (uint64_t)at[0] * image->texel_bytes +
         (uint64_t)at[1] * image->row_pitch + (uint64_t)at[2] * image->slice_pitch;
}

// The number of coordinates that are filtered or wrapped, and the index of the layer; 3 if there is
// none.
static inline int dimensions(const struct image *image) {
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

static inline int layer_of(const struct image *image) {
  return image->kind == D1_ARRAY ? 1 : image->kind == D2_ARRAY ? 2 : 3;
}

static inline uint32_t extent(const struct image *image, int dimension) {
  return dimension == 0 ? image->width : dimension == 1 ? image->height : image->depth;
}

// A coordinate in texels, from 0 to the extent inside of the image, for all modes.
static inline float unwrap(float c, uint32_t n, uint32_t sampler) {
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
static inline int64_t wrap(int64_t i, uint32_t n, uint32_t sampler) {
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

// The place that integers give a read: the layer is used as it is, if there is one. `count` is the number of
// dimensions, here and below; where it is constant, there are no loops.
INLINE void place_of_integers(const struct image *image, uint32_t sampler, const int32_t given[3],
                              int count, int64_t at[3]) {
  int layer = layer_of(image);
  at[0] = at[1] = at[2] = 0;
  for (int i = 0; i < count; i++)
    at[i] = wrap(given[i], extent(image, i), sampler);
  if (layer < 3)
    at[2] = clamp(given[layer], image->depth);
}

// The place that floats give a read that does not filter.
INLINE void place_of_floats(const struct image *image, uint32_t sampler, const float given[3],
                            int count, int64_t at[3]) {
  int layer = layer_of(image);
  at[0] = at[1] = at[2] = 0;
  if (layer < 3)
    at[2] = clamp(to_int(__builtin_rintf(given[layer])), image->depth);
  for (int i = 0; i < count; i++) {
    uint32_t n = extent(image, i);
    at[i] = wrap(to_int(__builtin_floorf(unwrap(given[i], n, sampler))), n, sampler);
  }
}

// Each coordinate by itself: as a loop over as many as there are, clang makes vectors that it stores, and what is
// loaded from these in parts waits until they are in the cache.
static inline void place_of_write(const struct image *image, const int32_t given[3], int64_t at[3]) {
  int count = dimensions(image), layer = layer_of(image);
  at[0] = given[0];
  at[1] = count >= 2 ? given[1] : 0;
  at[2] = count == 3 || layer == 2 ? given[2] : layer == 1 ? given[1] : 0;
}

// Integer texels cannot be interpolated.
static inline bool is_filtered(const struct image *image, uint32_t sampler) {
  return sampler & LINEAR && is_float(image);
}

// The two, four or eight texels that a filter weights.
struct neighbours {
  int count;
  int64_t low[3], high[3];
  float weight[3];
};

INLINE void neighbours_of(const struct image *image, uint32_t sampler, const float given[3],
                          int count, struct neighbours *near) {
  int layer = layer_of(image);
  near->count = count;
  near->low[1] = near->low[2] = 0;
  if (layer < 3)
    near->low[2] = clamp(to_int(__builtin_rintf(given[layer])), image->depth);
  for (int i = 0; i < near->count; i++) {
    uint32_t n = extent(image, i);
    float u = unwrap(given[i], n, sampler) - 0.5f;
    float below = __builtin_floorf(u);
    int64_t index = to_int(below);
    near->weight[i] = u - below;
    near->low[i] = wrap(index, n, sampler);
    near->high[i] = wrap(index + 1, n, sampler);
  }
}

// The place of one of them, and its weight.
static inline float corner_of(const struct neighbours *near, int corner, int64_t at[3]) {
  float share = 1;
  for (int i = 0; i < 3; i++)
    at[i] = near->low[i];
  for (int i = 0; i < near->count; i++) {
    bool upper = corner >> i & 1;
    at[i] = upper ? near->high[i] : near->low[i];
    share *= upper ? near->weight[i] : 1.0f - near->weight[i];
  }
  return share;
}

#endif
