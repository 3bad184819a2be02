// SPDX-License-Identifier: MIT OR Apache-2.0
// Kernels of images.c.

#ifdef MENDED
#define TWIN(wrong, right) (right)
#else
#define TWIN(wrong, right) (wrong)
#endif

constant sampler_t exact = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_NONE | CLK_FILTER_NEAREST;
constant sampler_t clamped = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_NEAREST;
constant sampler_t smooth = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_LINEAR;

kernel void draw_everywhere(write_only image2d_t image)
{
    int2 at = (int2)(get_global_id(0), get_global_id(1));
    write_imagef(image, at, (float4)(at.x, at.y, 0, 1));
}

kernel void beyond_the_last_column(write_only image2d_t image)
{
    int2 at = (int2)(get_global_id(0), get_global_id(1));
    if (at.x <= TWIN(get_image_width(image), get_image_width(image) - 1))
        write_imagef(image, at, (float4)(1)); //! out-of-bounds
}

kernel void difference_to_the_left(read_only image2d_t in, global float *out)
{
    int2 at = (int2)(get_global_id(0), get_global_id(1));
    float here = read_imagef(in, exact, at).x;
    float left = read_imagef(in, TWIN(exact, clamped), at - (int2)(1, 0)).x; //! out-of-bounds
    out[at.y * get_global_size(0) + at.x] = here - left;
}

kernel void read_without_a_sampler(read_only image2d_t in, global float *out)
{
    int2 at = (int2)(get_global_id(0), get_global_id(1));
    out[at.y * get_global_size(0) + at.x] = read_imagef(in, TWIN(at.yx * 2, at.yx)).x; //! out-of-bounds
}

kernel void draw_the_middle(write_only image2d_t image)
{
    int2 at = (int2)(get_global_id(0), get_global_id(1));
    int2 size = get_image_dim(image);
    if (TWIN(all(at > 0 && at < size - 1), 1))
        write_imagef(image, at, (float4)(1));
}

kernel void sum_of_neighbours(read_only image2d_t in, global float *out)
{
    int2 at = (int2)(get_global_id(0), get_global_id(1));
    float sum = 0;
    for (int y = -1; y <= 1; y++)
        for (int x = -1; x <= 1; x++)
            sum += read_imagef(in, clamped, at + (int2)(x, y)).x; //! border_never_drawn: uninitialised-read, copied_too_little: uninitialised-read, image_never_written: uninitialised-read
    out[at.y * get_global_size(0) + at.x] = sum;
}

kernel void between_texels(read_only image2d_t in, global float *out)
{
    float2 at = (float2)(get_global_id(0), get_global_id(1));
    float2 place = at + TWIN(1.0f, 0.5f);
    out[(int)(at.y * get_global_size(0) + at.x)] = read_imagef(in, smooth, place).x; //! uninitialised-read
}
