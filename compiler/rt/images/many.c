// SPDX-License-Identifier: MIT OR Apache-2.0
// Reads, samples and writes images for a vector of work-items: what one.c does for each, with the same bits.
//
// Images are plain if their texels are words of 1, 2, 4, 8 or 16 bytes, and their offsets have 32 bits. For all others,
// and for writes of what takes many steps, one.c is called item by item. The compiler calls these functions with
// all that differs between items in memory, so that code for all processors passes it in the same way.

#include "names.h"

#define COLD static __attribute__((noinline, cold))

typedef int32_t ints_t __attribute__((ext_vector_type(LANES)));
typedef uint32_t words_t __attribute__((ext_vector_type(LANES)));
typedef float floats_t __attribute__((ext_vector_type(LANES)));
typedef double doubles_t __attribute__((ext_vector_type(LANES)));
typedef uint8_t bytes_t __attribute__((ext_vector_type(LANES)));
typedef uint16_t shorts_t __attribute__((ext_vector_type(LANES)));
typedef _Float16 halves_t __attribute__((ext_vector_type(LANES)));
typedef bool bools_t __attribute__((ext_vector_type(LANES)));

// A list of what a macro makes of the number of each item, and of each fourth one.
#if LANES == 16
typedef uint16_t mask_t;
#define EACH(m) m(0), m(1), m(2), m(3), m(4), m(5), m(6), m(7), m(8), m(9), m(10), m(11), m(12), m(13), m(14), m(15)
#define FOURTH(m) m(0), m(4), m(8), m(12)
#else
typedef uint8_t mask_t;
#define EACH(m) m(0), m(1), m(2), m(3), m(4), m(5), m(6), m(7)
#define FOURTH(m) m(0), m(4)
#endif

#define ALL ((mask_t)-1)
#define ITSELF(i) i
static const ints_t STEPS = {EACH(ITSELF)};

#define CONVERT(x, ty) __builtin_convertvector(x, ty)
#define BITS(x, ty) __builtin_bit_cast(ty, x)

// What a call is about: coordinates and, of a write, the texels; behind them there is room for the texels of a read.
struct items {
  words_t at[3], texel[4], result[4];
};

// The items for which a comparison holds, one bit each, and back.
INLINE mask_t mask_of(ints_t holds) { return BITS(CONVERT(holds, bools_t), mask_t); }
INLINE ints_t of_mask(mask_t mask) { return -CONVERT(BITS(mask, bools_t), ints_t); }

// Whether the texels are packed, or those of sRGB.
INLINE bool is_odd(const struct image *image) { return image->layout > B32 || image->channel == SRGB; }

INLINE bool is_plain(const struct image *image, bool odd) {
#ifndef __SSE4_1__
  // Vectors without rounding, minima and choices gain nothing.
  return false;
#endif
  uint32_t bytes = image->texel_bytes, align = bytes < 4 ? bytes : 4;
  if (is_odd(image) != odd || (bytes & (bytes - 1)))
    return false;
  if (image->layout <= B32 && bytes != (uint32_t)image->components << image->layout)
    return false;
  // Numbers of 32 bits that are parts of a whole are not exact as floats, and there are no floats of 8 bits.
  bool is_part = image->channel == UNORM || image->channel == SNORM;
  if (image->layout == B32 ? is_part : image->layout == B8 && image->channel == FLOAT)
    return false;
  uint64_t pitches = image->row_pitch | image->slice_pitch;
  uint32_t extents = image->width | image->height | image->depth;
  if ((pitches | image->base) & (align - 1) || pitches >> 30 || extents >> 30)
    return false;
  return image->width && image->height && image->depth &&
         image->width * (uint64_t)bytes + image->height * image->row_pitch + image->depth * image->slice_pitch <
             1u << 31;
}

// Offsets of texels, and the items whose texel is inside of the image. Others have any offset.
struct where {
  ints_t offset;
  mask_t inside;
};

INLINE ints_t clamp_all(ints_t i, uint32_t n) {
  ints_t last = (int32_t)n - 1;
  i = __builtin_elementwise_max(i, (ints_t)0);
  return __builtin_elementwise_min(i, last);
}

// `wrap` and `to_int` of places.h. Numbers beyond 2^31 - 128 are outside of every plain image.
INLINE ints_t wrap_all(ints_t i, uint32_t n, uint32_t sampler) {
  ints_t size = (int32_t)n;
  switch (sampler & ADDRESS) {
  case REPEAT:
    return i < 0 ? i + size : i >= size ? i - size : i;
  case CLAMP_TO_EDGE:
  case MIRROR:
    return clamp_all(i, n);
  default:
    return i;
  }
}

INLINE ints_t to_ints(floats_t x) {
  x = x == x ? x : 0.0f;
  x = x < -0x1p31f ? -0x1p31f : x;
  x = x > 0x1.fffffep30f ? 0x1.fffffep30f : x;
  return CONVERT(x, ints_t);
}

INLINE floats_t unwrap_all(floats_t c, uint32_t n, uint32_t sampler) {
  float size = (float)n;
  switch (sampler & ADDRESS) {
  case REPEAT:
    c = sampler & NORMALIZED ? c : c / size;
    return (c - __builtin_elementwise_floor(c)) * size;
  case MIRROR: {
    c = sampler & NORMALIZED ? c : c / size;
    floats_t nearest = 2.0f * __builtin_elementwise_rint(0.5f * c);
    return __builtin_elementwise_abs(c - nearest) * size;
  }
  default:
    return sampler & NORMALIZED ? c * size : c;
  }
}

// Adds a coordinate, of which `pitch` bytes are one, to offsets.
INLINE void add(struct where *to, ints_t i, uint32_t n, uint64_t pitch) {
  to->offset += i * (int32_t)pitch;
  to->inside &= mask_of((words_t)i < (words_t)n);
}

INLINE struct where where_of(const struct image *image, ints_t x, ints_t y, ints_t z, int count, mask_t mask) {
  struct where to = {x << __builtin_ctz(image->texel_bytes), mask & mask_of((words_t)x < (words_t)image->width)};
  if (count > 1)
    add(&to, y, image->height, image->row_pitch);
  if (count > 2 || layer_of(image) < 3)
    add(&to, z, image->depth, image->slice_pitch);
  return to;
}

// The components of all pairs of vectors, as pairs one behind the other, and back.
#define EVEN(i) 2 * (i)
#define ODD(i) 2 * (i) + 1
#define LOWER(i) (i) / 2 + (i) % 2 * LANES
#define UPPER(i) (i) / 2 + (i) % 2 * LANES + LANES / 2

// Exchanges rows and columns of each fours of items and their four words: texel i + 4 k is the part k of vector i.
typedef uint32_t quad_t __attribute__((ext_vector_type(4)));
#define LOWS(i) i, i + LANES, i + 1, i + 1 + LANES
#define HIGHS(i) i + 2, i + 2 + LANES, i + 3, i + 3 + LANES
#define FIRSTS(i) i, i + 1, i + LANES, i + 1 + LANES
#define SECONDS(i) i + 2, i + 3, i + 2 + LANES, i + 3 + LANES

INLINE void transpose(words_t v[4]) {
  words_t a = __builtin_shufflevector(v[0], v[1], FOURTH(LOWS)), b = __builtin_shufflevector(v[0], v[1], FOURTH(HIGHS));
  words_t c = __builtin_shufflevector(v[2], v[3], FOURTH(LOWS)), d = __builtin_shufflevector(v[2], v[3], FOURTH(HIGHS));
  v[0] = __builtin_shufflevector(a, c, FOURTH(FIRSTS));
  v[1] = __builtin_shufflevector(a, c, FOURTH(SECONDS));
  v[2] = __builtin_shufflevector(b, d, FOURTH(FIRSTS));
  v[3] = __builtin_shufflevector(b, d, FOURTH(SECONDS));
}

INLINE quad_t quad(const uint8_t *base, const int32_t *offset) {
  quad_t texel;
  __builtin_memcpy(&texel, base + *offset, sizeof texel);
  return texel;
}

// The texels of each fourth item.
INLINE words_t quads(const uint8_t *base, const int32_t *offset) {
  typedef uint32_t eight_t __attribute__((ext_vector_type(8)));
  eight_t low = __builtin_shufflevector(quad(base, offset), quad(base, offset + 4), 0, 1, 2, 3, 4, 5, 6, 7);
#if LANES == 16
  eight_t high = __builtin_shufflevector(quad(base, offset + 8), quad(base, offset + 12), 0, 1, 2, 3, 4, 5, 6, 7);
  return __builtin_shufflevector(low, high, EACH(ITSELF));
#else
  return low;
#endif
}

// Words from 32-bit places, which are `offset` bytes behind `base`; both are multiples of four.
INLINE words_t gather(const uint8_t *base, ints_t offset) {
  const uint32_t *words = (const uint32_t *)base;
  return __builtin_masked_gather(BITS(ALL, bools_t), offset >> 2, words, (words_t)0);
}

// Whether texels lie one behind the other.
INLINE bool in_line(ints_t offset, uint32_t bytes) {
  ints_t line = offset[0] + STEPS * (int32_t)bytes;
  return mask_of(offset == line) == ALL;
}

// The words of texels; those of texels that are outside are zeros.
INLINE void load(const struct image *image, struct where where, words_t word[4]) {
  const uint8_t *base = (const uint8_t *)image->base;
  ints_t offset = where.offset;
  uint32_t bytes = image->texel_bytes;
  word[0] = word[1] = word[2] = word[3] = 0;
  if (where.inside != ALL) {
    if (where.inside == 0)
      return;
    // An address that some item reads.
    ints_t any = offset[__builtin_ctz(where.inside)];
    offset = of_mask(where.inside) ? offset : any;
  }
  if (bytes == 16) {
    int32_t to[LANES];
    __builtin_memcpy(to, &offset, sizeof to);
    for (int i = 0; i < 4; i++)
      word[i] = quads(base, to + i);
    transpose(word);
  } else if (in_line(offset, bytes)) {
    const uint8_t *from = base + offset[0];
    bytes_t few;
    shorts_t more;
    switch (bytes) {
    case 1:
      __builtin_memcpy(&few, from, sizeof few);
      word[0] = CONVERT(few, words_t);
      break;
    case 2:
      __builtin_memcpy(&more, from, sizeof more);
      word[0] = CONVERT(more, words_t);
      break;
    case 4:
      __builtin_memcpy(&word[0], from, sizeof word[0]);
      break;
    default: {
      words_t pair[2];
      __builtin_memcpy(pair, from, sizeof pair);
      word[0] = __builtin_shufflevector(pair[0], pair[1], EACH(EVEN));
      word[1] = __builtin_shufflevector(pair[0], pair[1], EACH(ODD));
    }
    }
  } else if (bytes >= 4) {
    word[0] = gather(base, offset);
    if (bytes == 8)
      word[1] = gather(base + 4, offset);
  } else {
    // The aligned word around a texel lies in the texel's page.
    uint64_t odd = image->base & 3;
    offset += (int32_t)odd;
    words_t around = gather(base - odd, offset);
    around >>= (words_t)(offset & 3) * 8;
    word[0] = around & (bytes == 1 ? 0xffu : 0xffffu);
  }
  if (where.inside != ALL) {
    words_t inside = (words_t)of_mask(where.inside);
    for (int i = 0; i < 4; i++)
      word[i] &= inside;
  }
}

// Quotients of integers of 16 bits and a float, 2^n - 1, rounded to nearest. The reciprocal has two parts; no quotient
// is so close to the middle between two floats that the parts' rounding matters.
#ifdef __FMA__
#define QUOTIENT(x, by) __builtin_elementwise_fma(x, (floats_t)(1 / by), x *(float)(1.0 / by - (double)(1 / by)))
#else
#define QUOTIENT(x, by) (x / by)
#endif

// `small_float` of image.h.
INLINE floats_t small_floats(words_t raw, uint32_t mantissa) {
  words_t exponent = raw >> mantissa, fraction = raw & ((1u << mantissa) - 1);
  words_t biased = exponent == 31 ? (words_t)255 : exponent + 112;
  floats_t tiny = CONVERT((ints_t)fraction, floats_t) * (mantissa == 6 ? 0x1p-20f : 0x1p-19f);
  floats_t normal = BITS(biased << 23 | fraction << (23 - mantissa), floats_t);
  return exponent == 0 ? tiny : normal;
}

// The numbers of a component, from its bits.
// The numbers of a component of packed texels or of sRGB, from its bits.
INLINE words_t decode_odd(const struct image *image, uint32_t component, words_t raw, uint32_t bits) {
  if (is_srgb(image, component)) {
    bools_t all = BITS(ALL, bools_t);
    return BITS(__builtin_masked_gather(all, (ints_t)raw * 2, srgb_curve, (floats_t)0), words_t);
  }
  uint32_t unused = 32 - bits, most = 0xffffffffu >> unused;
  ints_t value = (ints_t)(raw << unused) >> (int32_t)unused;
  switch (image->channel) {
  case UINT:
    return raw;
  case SINT:
    return (words_t)value;
  case SNORM: {
    floats_t quotient = CONVERT(value, floats_t) / (float)(most >> 1);
    return BITS(quotient < -1.0f ? -1.0f : quotient, words_t);
  }
  case FLOAT:
    if (bits > 2)
      return BITS(small_floats(raw, bits - 5), words_t);
  }
  return BITS(CONVERT((ints_t)raw, floats_t) / (float)most, words_t);
}

// The same for all components, which are in one word.
INLINE void odd_components(const struct image *image, const words_t *word, words_t to[4]) {
  for (uint32_t i = 0; i < 4; i++) {
    struct field field = {(uint8_t)(8 * i), 8};
    if (image->layout > B32)
      field = field_of(image->layout, i);
    to[i] = 0;
    if (i < image->components)
      to[i] = decode_odd(image, i, *word >> field.shift & ((1u << field.bits) - 1), field.bits);
  }
}

// The numbers of components, from their bits.
INLINE words_t decode_all(const struct image *image, words_t raw) {
  uint32_t bits = 8u << image->layout, unused = 32 - bits;
  if (image->channel == UNORM) {
    floats_t x = CONVERT((ints_t)raw, floats_t);
    return BITS(bits == 8 ? QUOTIENT(x, 255.0f) : QUOTIENT(x, 65535.0f), words_t);
  }
  if (image->channel == FLOAT)
    return BITS(CONVERT(BITS(CONVERT(raw, shorts_t), halves_t), floats_t), words_t);
  ints_t value = (ints_t)(raw << unused) >> (int32_t)unused;
  if (image->channel == SINT)
    return (words_t)value;
  floats_t x = CONVERT(value, floats_t), quotient = bits == 8 ? QUOTIENT(x, 127.0f) : QUOTIENT(x, 32767.0f);
  return BITS(quotient < -1.0f ? -1.0f : quotient, words_t);
}

INLINE void components_of(const struct image *image, bool odd, const words_t word[4], words_t to[4]) {
  bool one = image->components == 1, raw = image->channel == UINT || image->layout == B32;
  if (odd) {
    odd_components(image, word, to);
    return;
  }
  to[0] = word[0], to[1] = word[1], to[2] = word[2], to[3] = word[3];
  if (one) {
    if (!raw)
      to[0] = decode_all(image, to[0]);
    return;
  }
  if (image->layout == B8) {
    to[0] = word[0] & 0xff;
    to[1] = word[0] >> 8 & 0xff;
    to[2] = word[0] >> 16 & 0xff;
    to[3] = word[0] >> 24;
  } else if (image->layout == B16) {
    to[0] = word[0] & 0xffff;
    to[1] = word[0] >> 16;
    to[2] = word[1] & 0xffff;
    to[3] = word[1] >> 16;
  }
  if (!raw)
    for (int i = 0; i < 4; i++)
      to[i] = decode_all(image, to[i]);
}

INLINE void channels_of(const struct image *image, const words_t components[4], words_t zero, uint32_t one,
                        words_t inside, words_t to[4]) {
  uint32_t order;
  __builtin_memcpy(&order, image->swizzle, 4);
  if (order == 0x03020100) {
    for (int i = 0; i < 4; i++)
      to[i] = components[i];
  } else if (order == (0 | ZERO << 8 | ZERO << 16 | ONE << 24)) {
    to[0] = components[0], to[1] = to[2] = zero, to[3] = one;
  } else {
    words_t all[8] = {components[0], components[1], components[2], components[3], zero, one, inside};
    for (int i = 0; i < 4; i++)
      to[i] = all[image->swizzle[i] & 7];
  }
}

// The channels of texels, or of the border.
INLINE void fetch(const struct image *image, bool odd, struct where where, words_t to[4]) {
  words_t word[4], components[4];
  uint32_t one = is_float(image) ? bits_of_float(1.0f) : 1;
  load(image, where, word);
  components_of(image, odd, word, components);
  channels_of(image, components, 0, one, (words_t)of_mask(where.inside) & one, to);
}

// The channels of texels that were read one by one. Loads of vectors would wait for stores of words.
INLINE void gather_texels(const texel_t texel[LANES], words_t to[4]) {
  int32_t offset[LANES];
  for (int i = 0; i < LANES; i++)
    offset[i] = i * (int32_t)sizeof *texel;
  for (int i = 0; i < 4; i++)
    to[i] = quads((const uint8_t *)texel, offset + i);
  transpose(to);
}

COLD void fetch_each(const struct image *image, uint64_t sampler, struct items *items, uint32_t mask) {
  texel_t texel[LANES];
  for (; mask; mask &= mask - 1) {
    int i = __builtin_ctz(mask);
    texel[i] = NAME(__tally_image_fetch)(image, sampler, (int32_t)items->at[0][i], (int32_t)items->at[1][i],
                                         (int32_t)items->at[2][i]);
  }
  gather_texels(texel, items->result);
}

COLD void sample_each(const struct image *image, uint64_t sampler, struct items *items, uint32_t mask) {
  texel_t texel[LANES];
  for (; mask; mask &= mask - 1) {
    int i = __builtin_ctz(mask);
    texel[i] = NAME(__tally_image_sample)(image, sampler, float_of_bits(items->at[0][i]),
                                          float_of_bits(items->at[1][i]), float_of_bits(items->at[2][i]));
  }
  gather_texels(texel, items->result);
}

COLD void write_each(const struct image *image, const struct items *items, uint32_t mask) {
  for (; mask; mask &= mask - 1) {
    int i = __builtin_ctz(mask);
    texel_t texel = {items->texel[0][i], items->texel[1][i], items->texel[2][i], items->texel[3][i]};
    NAME(__tally_image_write)(image, (int32_t)items->at[0][i], (int32_t)items->at[1][i], (int32_t)items->at[2][i],
                              texel);
  }
}

INLINE void fetch_items(const struct image *image, bool odd, uint32_t sampler, struct items *items, mask_t mask) {
  int count = dimensions(image), layer = layer_of(image);
  ints_t x = wrap_all((ints_t)items->at[0], image->width, sampler), y = (ints_t)items->at[1], z = (ints_t)items->at[2];
  if (layer < 3)
    z = clamp_all(layer == 1 ? y : z, image->depth);
  if (count > 1)
    y = wrap_all(y, image->height, sampler);
  if (count > 2)
    z = wrap_all(z, image->depth, sampler);
  fetch(image, odd, where_of(image, x, y, z, count, mask), items->result);
}

// Odd texels have code of their own: in one function with the others they would slow these down.
COLD void fetch_others(const struct image *image, uint64_t sampler, struct items *items, uint32_t mask) {
  if (is_plain(image, true))
    fetch_items(image, true, (uint32_t)sampler, items, (mask_t)mask);
  else
    fetch_each(image, sampler, items, mask);
}

void NAME(JOIN(__tally_images_fetch, LANES))(const struct image *image, uint64_t sampler, struct items *items,
                                            uint32_t mask) {
  if (mask == 0)
    return;
  if (is_plain(image, false))
    fetch_items(image, false, (uint32_t)sampler, items, (mask_t)mask);
  else
    fetch_others(image, sampler, items, mask);
}

// The two texels of a filter in one dimension: their offsets, whether they are inside, and their weights.
struct pair {
  struct where where[2];
  floats_t weight[2];
};

INLINE struct pair pair_of(floats_t given, uint32_t n, uint64_t pitch, uint32_t sampler, mask_t mask) {
  floats_t u = unwrap_all(given, n, sampler) - 0.5f, below = __builtin_elementwise_floor(u);
  ints_t index = to_ints(below);
  struct pair pair = {{{0, mask}, {0, mask}}, {1.0f - (u - below), u - below}};
  for (int i = 0; i < 2; i++)
    add(&pair.where[i], wrap_all(index + i, n, sampler), n, pitch);
  return pair;
}

INLINE void filter_in(const struct image *image, bool odd, uint32_t sampler, struct items *items, int count,
                      mask_t mask) {
  int layer = layer_of(image);
  struct where common = {0, mask};
  uint32_t depth = image->depth;
  floats_t at[3] = {BITS(items->at[0], floats_t), BITS(items->at[1], floats_t), BITS(items->at[2], floats_t)};
  if (layer < 3)
    add(&common, clamp_all(to_ints(__builtin_elementwise_rint(at[layer])), depth), depth, image->slice_pitch);
  struct pair of[3];
  of[0] = pair_of(at[0], image->width, image->texel_bytes, sampler, mask);
  if (count > 1)
    of[1] = pair_of(at[1], image->height, image->row_pitch, sampler, mask);
  if (count > 2)
    of[2] = pair_of(at[2], depth, image->slice_pitch, sampler, mask);
  // Sums as in one.c.
  floats_t sum[4] = {0, 0, 0, 0}, zero = 0, inside = 0;
#pragma clang loop unroll(disable)
  for (int corner = 0; corner < 1 << count; corner++) {
    struct where where = common;
    floats_t share = 1;
    for (int i = 0; i < count; i++) {
      int upper = corner >> i & 1;
      where.offset += of[i].where[upper].offset;
      where.inside &= of[i].where[upper].inside;
      share *= of[i].weight[upper];
    }
    words_t word[4], components[4];
    load(image, where, word);
    components_of(image, odd, word, components);
    zero += share * 0.0f;
    inside += share * (of_mask(where.inside) ? (floats_t)1.0f : (floats_t)0.0f);
    sum[0] += share * BITS(components[0], floats_t);
    if (image->components > 1)
      for (int i = 1; i < 4; i++)
        sum[i] += share * BITS(components[i], floats_t);
  }
  if (image->components == 1)
    sum[1] = sum[2] = sum[3] = zero;
  words_t components[4];
  for (int i = 0; i < 4; i++)
    components[i] = BITS(sum[i], words_t);
  channels_of(image, components, BITS(zero, words_t), bits_of_float(1.0f), BITS(inside, words_t), items->result);
}

INLINE void sample_items(const struct image *image, bool odd, uint32_t sampler, struct items *items, mask_t mask) {
  int count = dimensions(image), layer = layer_of(image);
  if (is_filtered(image, sampler)) {
    if (count == 2 && !odd)
      filter_in(image, odd, sampler, items, 2, mask);
    else
      filter_in(image, odd, sampler, items, count, mask);
    return;
  }
  floats_t at[3] = {BITS(items->at[0], floats_t), BITS(items->at[1], floats_t), BITS(items->at[2], floats_t)};
  ints_t place[3] = {0, 0, 0};
  for (int i = 0; i < count; i++) {
    uint32_t n = extent(image, i);
    place[i] = wrap_all(to_ints(__builtin_elementwise_floor(unwrap_all(at[i], n, sampler))), n, sampler);
  }
  if (layer < 3)
    place[2] = clamp_all(to_ints(__builtin_elementwise_rint(at[layer])), image->depth);
  fetch(image, odd, where_of(image, place[0], place[1], place[2], count, mask), items->result);
}

COLD void sample_others(const struct image *image, uint64_t sampler, struct items *items, uint32_t mask) {
  if (is_plain(image, true))
    sample_items(image, true, (uint32_t)sampler, items, (mask_t)mask);
  else
    sample_each(image, sampler, items, mask);
}

void NAME(JOIN(__tally_images_sample, LANES))(const struct image *image, uint64_t sampler, struct items *items,
                                             uint32_t mask) {
  if (mask == 0)
    return;
  if (is_plain(image, false))
    sample_items(image, false, (uint32_t)sampler, items, (mask_t)mask);
  else
    sample_others(image, sampler, items, mask);
}

// Stores the texels of items, of a type and one behind the other in `from`, in the order of the items: of several for
// one place the last one stays.
#define STORE(type, from)                                                                                              \
  do {                                                                                                                 \
    const uint8_t *each = (const uint8_t *)&from;                                                                      \
    _Static_assert(sizeof from == LANES * sizeof(type), "a texel for each item");                                      \
    if (line && sizeof from <= 128) {                                                                                  \
      __builtin_memcpy(base + offset[0], each, sizeof from);                                                           \
    } else if (where.inside == ALL) {                                                                                  \
      for (size_t i = 0; i < LANES; i++)                                                                               \
        __builtin_memcpy(base + offset[i], each + i * sizeof(type), sizeof(type));                                     \
    } else {                                                                                                           \
      for (uint32_t left = where.inside; left; left &= left - 1) {                                                     \
        size_t i = (size_t)__builtin_ctz(left);                                                                        \
        __builtin_memcpy(base + offset[i], each + i * sizeof(type), sizeof(type));                                     \
      }                                                                                                                \
    }                                                                                                                  \
  } while (0)

// Encodes channels as components, whose other bits are zeros.
INLINE words_t encode_all(const struct image *image, words_t channel, uint32_t bits) {
  uint32_t most = 0xffffffffu >> (32 - bits);
  floats_t x = BITS(channel, floats_t);
  int32_t high = (int32_t)(most >> 1);
  switch (image->channel) {
  case UINT:
    return __builtin_elementwise_min(channel, (words_t)most);
  case SINT: {
    ints_t value = __builtin_elementwise_max((ints_t)channel, (ints_t)(-high - 1));
    return (words_t)__builtin_elementwise_min(value, (ints_t)high) & most;
  }
  case FLOAT:
    if (bits == 32)
      return channel;
    return CONVERT(BITS(CONVERT(x, halves_t), shorts_t), words_t);
  }
  // Products of doubles are exact.
  bool is_unsigned = image->channel == UNORM;
  double limit = is_unsigned ? (double)most : (double)high, least = is_unsigned ? 0 : -limit;
  x = x == x ? x : 0.0f;
  doubles_t scaled = CONVERT(x, doubles_t) * limit;
  scaled = scaled < least ? least : scaled;
  scaled = scaled > limit ? limit : scaled;
  return (words_t)CONVERT(__builtin_elementwise_rint(scaled), ints_t) & most;
}

void NAME(JOIN(__tally_images_write, LANES))(const struct image *image, struct items *items, uint32_t mask) {
  if (mask == 0)
    return;
  bool is_slow = image->channel == SRGB || (image->channel == FLOAT && image->layout > B32);
  if (is_slow || !is_plain(image, is_odd(image))) {
    write_each(image, items, mask);
    return;
  }
  int count = dimensions(image), layer = layer_of(image);
  ints_t x = (ints_t)items->at[0], y = (ints_t)items->at[1], z = layer == 1 ? y : (ints_t)items->at[2];
  struct where where = where_of(image, x, y, z, count, (mask_t)mask);
  uint32_t components = image->components, bytes = image->texel_bytes;
  words_t word[4] = {0, 0, 0, 0};
  for (uint32_t i = 0; i < components; i++) {
    int c = 0;
    while (c < 4 && image->swizzle[c] != i)
      c++;
    words_t part = c < 4 ? items->texel[c] : 0;
    if (image->layout > B32) {
      struct field field = field_of(image->layout, i);
      word[0] |= encode_all(image, part, field.bits) << field.shift;
      continue;
    }
    part = encode_all(image, part, 8u << image->layout);
    if (image->layout == B8)
      word[0] |= part << 8 * i;
    else if (image->layout == B16)
      word[i / 2] |= part << 16 * (i & 1);
    else
      word[i] = part;
  }
  uint8_t *base = (uint8_t *)image->base;
  int32_t offset[LANES];
  __builtin_memcpy(offset, &where.offset, sizeof offset);
  // Texels of 16 bytes are stored one by one anyway.
  bool line = where.inside == ALL && bytes < 16 && in_line(where.offset, bytes);
  switch (bytes) {
  case 1: {
    bytes_t all = CONVERT(word[0], bytes_t);
    STORE(uint8_t, all);
    break;
  }
  case 2: {
    shorts_t all = CONVERT(word[0], shorts_t);
    STORE(uint16_t, all);
    break;
  }
  case 4:
    STORE(uint32_t, word[0]);
    break;
  case 8: {
    words_t all[2] = {__builtin_shufflevector(word[0], word[1], EACH(LOWER)),
                      __builtin_shufflevector(word[0], word[1], EACH(UPPER))};
    STORE(uint64_t, all);
    break;
  }
  default: {
    quad_t all[LANES];
    transpose(word);
    for (int i = 0; i < LANES; i++)
      __builtin_memcpy(&all[i], (const uint8_t *)&word[i % 4] + i / 4 * sizeof all[i], sizeof all[i]);
    STORE(quad_t, all);
  }
  }
}
