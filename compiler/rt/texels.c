// SPDX-License-Identifier: MIT OR Apache-2.0
// Checks of accesses to images: which texels an access in images/ touches, and their states.
//
// Each function returns 0 if there is no mistake; the address of a texel that nothing has written; or, with
// the highest bit set, the coordinates of a texel that is outside of the image (protocol/src/checks.rs).

#include "places.h"
#include "states.h"

#define FUNCTION __attribute__((noinline))

static uint64_t outside(const int64_t at[3]) {
  uint64_t packed = 1ull << 63;
  for (int i = 0; i < 3; i++) {
    int64_t c = at[i] < -(1 << 20) ? -(1 << 20) : at[i] >= 1 << 20 ? (1 << 20) - 1 : at[i];
    packed |= ((uint64_t)c & 0x1fffff) << 21 * i;
  }
  return packed;
}

// Whether all of a texel is written. What is found not to be counts as written afterwards.
static bool is_written(const struct Watch *watch, const struct image *image, const uint8_t *texel) {
  uint64_t count = at_most(watch, (uint64_t)texel, image->texel_bytes);
  unsigned char *states = watch->shadow + ((uint64_t)texel & watch->mask);
  bool written = true;
  for (uint64_t i = 0; i < count; i++)
    if (states[i] != DEFINED && states[i] & ACCESSIBLE) {
      states[i] = DEFINED;
      written = false;
    }
  return written;
}

// A read at a place, beyond the border of which `sampler` says what there is.
static uint64_t look(const struct Watch *watch, const struct image *image, uint32_t sampler,
                     const int64_t at[3]) {
  const uint8_t *texel = place(image, at);
  if (!texel)
    return (sampler & ADDRESS) == NONE ? outside(at) : 0;
  return is_written(watch, image, texel) ? 0 : (uint64_t)texel;
}

FUNCTION uint64_t __tally_texels_fetch(const struct Watch *watch, const struct image *image,
                                       uint64_t sampler, int32_t x, int32_t y, int32_t z) {
  int64_t at[3];
  place_of_integers(image, (uint32_t)sampler, (int32_t[3]){x, y, z}, dimensions(image), at);
  return look(watch, image, (uint32_t)sampler, at);
}

FUNCTION uint64_t __tally_texels_sample(const struct Watch *watch, const struct image *image,
                                        uint64_t word, float x, float y, float z) {
  uint32_t sampler = (uint32_t)word;
  int64_t at[3];
  if (!is_filtered(image, sampler)) {
    place_of_floats(image, sampler, (float[3]){x, y, z}, dimensions(image), at);
    return look(watch, image, sampler, at);
  }
  struct neighbours near;
  neighbours_of(image, sampler, (float[3]){x, y, z}, dimensions(image), &near);
  uint64_t mistake = 0;
  for (int corner = 0; corner < 1 << near.count && mistake == 0; corner++)
    if (corner_of(&near, corner, at) != 0)
      mistake = look(watch, image, sampler, at);
  return mistake;
}

FUNCTION uint64_t __tally_texels_write(const struct Watch *watch, const struct image *image, int32_t x,
                                       int32_t y, int32_t z) {
  int64_t at[3];
  place_of_write(image, (int32_t[3]){x, y, z}, at);
  const uint8_t *texel = place(image, at);
  if (!texel)
    return outside(at);
  is_written(watch, image, texel);
  return 0;
}
