// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs whose kernels access texels that do not exist, or that nothing has written.
#include "wrong.h"

enum { SIDE = 16 };

#define SQUARE ((struct size){{1, SIDE, 1}, {SIDE, 1, 1}})

static ze_image_handle_t new_image(uint32_t width, uint32_t height)
{
    ze_image_desc_t desc = {
        .stype = ZE_STRUCTURE_TYPE_IMAGE_DESC,
        .flags = ZE_IMAGE_FLAG_KERNEL_WRITE,
        .type = ZE_IMAGE_TYPE_2D,
        .format = {.layout = ZE_IMAGE_FORMAT_LAYOUT_32,
                   .type = ZE_IMAGE_FORMAT_TYPE_FLOAT,
                   .x = ZE_IMAGE_FORMAT_SWIZZLE_R,
                   .y = ZE_IMAGE_FORMAT_SWIZZLE_0,
                   .z = ZE_IMAGE_FORMAT_SWIZZLE_0,
                   .w = ZE_IMAGE_FORMAT_SWIZZLE_1},
        .width = width,
        .height = height,
        .depth = 1,
    };
    ze_image_handle_t image;

    must(zeImageCreate(context, device, &desc, &image));
    return image;
}

static void destroy(ze_image_handle_t image)
{
    must(zeImageDestroy(image));
}

WRONG(beyond_the_last_column)
{
    ze_image_handle_t image = new_image(SIDE - 1, SIDE);

    launch(synchronous, "beyond_the_last_column", SQUARE, ARG(image)); //! launched
    destroy(image);
}

WRONG(difference_to_the_left)
{
    float *out = shared_memory(SIDE * SIDE * sizeof(float));
    ze_image_handle_t image = new_image(SIDE, SIDE);

    launch(synchronous, "draw_everywhere", SQUARE, ARG(image));
    launch(synchronous, "difference_to_the_left", SQUARE, ARG(image), ARG(out)); //! launched
    destroy(image);
    release(out);
}

WRONG(read_without_a_sampler)
{
    float *out = shared_memory(SIDE * SIDE * sizeof(float));
    ze_image_handle_t image = new_image(SIDE, SIDE);

    launch(synchronous, "draw_everywhere", SQUARE, ARG(image));
    launch(synchronous, "read_without_a_sampler", SQUARE, ARG(image), ARG(out)); //! launched
    destroy(image);
    release(out);
}

WRONG(border_never_drawn)
{
    float *out = shared_memory(SIDE * SIDE * sizeof(float));
    ze_image_handle_t image = new_image(SIDE, SIDE); //! made

    launch(synchronous, "draw_the_middle", SQUARE, ARG(image));
    launch(synchronous, "sum_of_neighbours", SQUARE, ARG(image), ARG(out)); //! launched
    destroy(image);
    release(out);
}

WRONG(copied_too_little)
{
    float *out = shared_memory(SIDE * SIDE * sizeof(float)), *in = shared_memory(SIDE * SIDE * sizeof(float));
    ze_image_handle_t image = new_image(SIDE, SIDE); //! made
    ze_image_region_t region = {.width = TWIN(SIDE - 4, SIDE), .height = SIDE, .depth = 1};

    memset(in, 0, SIDE * SIDE * sizeof(float));
    must(zeCommandListAppendImageCopyFromMemory(synchronous, image, in, &region, NULL, 0, NULL));
    launch(synchronous, "sum_of_neighbours", SQUARE, ARG(image), ARG(out)); //! launched
    destroy(image);
    release(in);
    release(out);
}

// What is copied from an image that nothing has written is not written.
WRONG(image_never_written)
{
    float *out = shared_memory(SIDE * SIDE * sizeof(float));
    ze_image_handle_t first = new_image(SIDE, SIDE);
    ze_image_handle_t second = new_image(SIDE, SIDE); //! made

#ifdef MENDED
    launch(synchronous, "draw_everywhere", SQUARE, ARG(first));
#endif
    must(zeCommandListAppendImageCopy(synchronous, second, first, NULL, 0, NULL));
    launch(synchronous, "sum_of_neighbours", SQUARE, ARG(second), ARG(out)); //! launched
    destroy(first);
    destroy(second);
    release(out);
}

// A filter reads more texels than one, unless a place is the middle of a texel.
WRONG(between_texels)
{
    float *out = shared_memory(SIDE * SIDE * sizeof(float));
    ze_image_handle_t image = new_image(SIDE + 1, SIDE + 1); //! made
    float *in = shared_memory(SIDE * SIDE * sizeof(float));
    ze_image_region_t region = {.width = SIDE, .height = SIDE, .depth = 1};

    memset(in, 0, SIDE * SIDE * sizeof(float));
    must(zeCommandListAppendImageCopyFromMemory(synchronous, image, in, &region, NULL, 0, NULL));
    launch(synchronous, "between_texels", SQUARE, ARG(image), ARG(out)); //! launched
    destroy(image);
    release(in);
    release(out);
}
