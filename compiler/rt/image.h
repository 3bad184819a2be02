// SPDX-License-Identifier: MIT OR Apache-2.0
// Images as kernels see them: the descriptor, and the conversion of texels to numbers and back.
//
// See device/SPEC.md, chapter "Images and samplers". A kernel sees a texel as four channels of 32 bits:
// floats or integers, depending on the format.

#ifndef TALLY_IMAGE_H
#define TALLY_IMAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "bits.h"
#include "srgb.h"

struct image {
  uint64_t base, row_pitch, slice_pitch;
  uint32_t width, height, depth;
  uint8_t kind, layout, components, channel;
  uint8_t swizzle[4];
  uint8_t texel_bytes, order, data_type, reserved;
  uint32_t sampler, zero[3];
};

_Static_assert(sizeof(struct image) == 64, "an image's descriptor has 64 bytes");
_Static_assert(offsetof(struct image, swizzle) == 40, "of a fixed layout");
_Static_assert(offsetof(struct image, sampler) == 48, "of a fixed layout");

enum kind { D1, D1_ARRAY, D2, D2_ARRAY, D3, BUFFER };
enum layout { B8, B16, B32, B10_10_10_2, B11_11_10, B5_6_5, B5_5_5_1, B4_4_4_4 };
enum channel { UINT, SINT, UNORM, SNORM, FLOAT, SRGB };
enum swizzle { ZERO = 4, ONE, ONE_INSIDE };

// The bits of four channels.
typedef uint32_t texel_t __attribute__((ext_vector_type(4)));

static inline bool is_float(const struct image *image) { return image->channel >= UNORM; }

// Position of a component in the word of a packed texel: its lowest bit and its width in bits.
struct field {
  uint8_t shift, bits;
};

static inline struct field field_of(uint8_t layout, uint32_t component) {
  static const struct field fields[][4] = {
      [B10_10_10_2] = {{0, 10}, {10, 10}, {20, 10}, {30, 2}},
      [B11_11_10] = {{0, 11}, {11, 11}, {22, 10}, {0, 0}},
      [B5_6_5] = {{11, 5}, {5, 6}, {0, 5}, {0, 0}},
      [B5_5_5_1] = {{10, 5}, {5, 5}, {0, 5}, {15, 1}},
      [B4_4_4_4] = {{8, 4}, {4, 4}, {0, 4}, {12, 4}},
  };
  return fields[layout][component];
}

// The bits of a component, and their number. Texels need no alignment.
static inline uint32_t load_component(const struct image *image, const uint8_t *at, uint32_t i,
                                      uint32_t *bits) {
  uint16_t half;
  uint32_t word;
  switch (image->layout) {
  case B8:
    *bits = 8;
    return at[i];
  case B16:
    *bits = 16;
    __builtin_memcpy(&half, at + 2 * i, 2);
    return half;
  case B32:
    *bits = 32;
    __builtin_memcpy(&word, at + 4 * i, 4);
    return word;
  default: {
    struct field field = field_of(image->layout, i);
    *bits = field.bits;
    word = 0;
    __builtin_memcpy(&half, at, 2);
    if (image->texel_bytes == 4)
      __builtin_memcpy(&word, at, 4);
    else
      word = half;
    return word >> field.shift & ((1u << field.bits) - 1);
  }
  }
}

// A float of 5 bits of exponent and `mantissa` bits behind them, without a sign.
static inline float small_float(uint32_t raw, uint32_t mantissa) {
  uint32_t exponent = raw >> mantissa, fraction = raw & ((1u << mantissa) - 1);
  if (exponent == 0)
    return (float)fraction * (mantissa == 6 ? 0x1p-20f : 0x1p-19f);
  uint32_t biased = exponent == 31 ? 255 : exponent + 112;
  return float_of_bits(biased << 23 | fraction << (23 - mantissa));
}

// The nearest float of that kind; negative numbers become 0, numbers above the largest one become the
// largest. A NaN keeps the bits of its fraction that fit, so that a copy by a kernel changes nothing.
static inline uint32_t to_small_float(float x, uint32_t mantissa) {
  uint32_t raw = bits_of_float(x), infinity = 31u << mantissa;
  if (x != x) {
    uint32_t fits = (raw & 0x7fffff) >> (23 - mantissa);
    return infinity | (fits ? fits : 1);
  }
  if (!(x > 0))
    return 0;
  if (raw == 0x7f800000)
    return infinity;
  int32_t exponent = (int32_t)(raw >> 23) - 112;
  uint32_t fraction = (raw & 0x7fffff) | 0x800000, drop = 23 - mantissa;
  // Below the normal numbers the exponent stays, and the fraction loses more bits.
  if (exponent < 1)
    drop += (uint32_t)(1 - exponent), exponent = 1;
  if (drop > 24)
    return 0;
  uint32_t kept = fraction >> drop, rest = fraction & ((1u << drop) - 1), half = 1u << (drop - 1);
  kept += rest > half || (rest == half && (kept & 1));
  // A carry out of the fraction is one more in the exponent.
  uint32_t result = ((uint32_t)(exponent - 1) << mantissa) + kept;
  return result >= infinity ? infinity - 1 : result;
}

static inline float half_to_float(uint32_t raw) {
  uint16_t bits = (uint16_t)raw;
  _Float16 half;
  __builtin_memcpy(&half, &bits, sizeof half);
  return (float)half;
}

static inline uint32_t to_half(float x) {
  _Float16 half = (_Float16)x;
  uint16_t bits;
  __builtin_memcpy(&bits, &half, sizeof bits);
  return bits;
}

// Whether a component is encoded with sRGB's curve; the fourth, alpha, is not.
static inline bool is_srgb(const struct image *image, uint32_t component) {
  return image->channel == SRGB && component < 3;
}

// Decodes the bits of a component to the bits of a channel.
static inline uint32_t decode(const struct image *image, uint32_t component, uint32_t raw,
                              uint32_t bits) {
  if (is_srgb(image, component))
    return bits_of_float(from_srgb(raw));
  uint32_t unused = 32 - bits;
  int32_t value = (int32_t)(raw << unused) >> unused;
  uint32_t most = 0xffffffffu >> unused;
  switch (image->channel) {
  case UINT:
    return raw;
  case SINT:
    return (uint32_t)value;
  case UNORM:
  case SRGB:
    break;
  case SNORM: {
    double least = -1, quotient = (double)value / (double)(most >> 1);
    return bits_of_float((float)(quotient < least ? least : quotient));
  }
  default:
    if (bits == 32)
      return raw;
    if (bits == 16)
      return bits_of_float(half_to_float(raw));
    if (bits > 2)
      return bits_of_float(small_float(raw, bits - 5));
  }
  return bits_of_float((float)((double)raw / (double)most));
}

// Encodes the bits of a channel as those of a component, clamped to its range.
static inline uint32_t encode(const struct image *image, uint32_t component, uint32_t channel,
                              uint32_t bits) {
  uint32_t unused = 32 - bits, most = 0xffffffffu >> unused;
  float x = float_of_bits(channel);
  if (is_srgb(image, component))
    return to_srgb(x);
  switch (image->channel) {
  case UINT:
    return channel < most ? channel : most;
  case SINT: {
    int32_t value = (int32_t)channel, high = (int32_t)(most >> 1), low = -high - 1;
    value = value < low ? low : value > high ? high : value;
    return (uint32_t)value & most;
  }
  case UNORM:
  case SRGB:
    break;
  case SNORM: {
    double high = (double)(most >> 1), scaled = (double)x * high;
    scaled = x != x ? 0 : scaled < -high ? -high : scaled > high ? high : scaled;
    return (uint32_t)(int32_t)__builtin_rint(scaled) & most;
  }
  default:
    if (bits == 32)
      return channel;
    if (bits == 16)
      return to_half(x);
    if (bits > 2)
      return to_small_float(x, bits - 5);
  }
  double scaled = (double)x * (double)most;
  scaled = !(scaled > 0) ? 0 : scaled > (double)most ? (double)most : scaled;
  return (uint32_t)(int64_t)__builtin_rint(scaled);
}

#endif
