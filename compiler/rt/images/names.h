// SPDX-License-Identifier: MIT OR Apache-2.0
// The functions for images, whose names end with the form of processor that they are compiled for: 0 for any,
// 1 with SSE4.1, 2 with AVX2 and fused multiply-add, 3 with registers of 512 bits (`build.rs`).

#ifndef TALLY_IMAGES_NAMES_H
#define TALLY_IMAGES_NAMES_H

#include "../places.h"

#define JOIN_AGAIN(a, b) a##_##b
#define JOIN(a, b) JOIN_AGAIN(a, b)
#define NAME(name) JOIN(name, FORM)

// One work-item.
texel_t NAME(__tally_image_fetch)(const struct image *, uint64_t sampler, int32_t x, int32_t y, int32_t z);
texel_t NAME(__tally_image_sample)(const struct image *, uint64_t sampler, float x, float y, float z);
void NAME(__tally_image_write)(const struct image *, int32_t x, int32_t y, int32_t z, texel_t texel);

#endif
