// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Items that take different branches, or run loops for different numbers of iterations.

kernel void mandelbrot(global int *out, int width, int limit)
{
    int x = get_global_id(0), y = get_global_id(1);
    float cr = x * (3.0f / width) - 2, ci = y * (2.0f / width) - 1;
    float zr = 0, zi = 0;
    int k = 0;
    while (k < limit && zr * zr + zi * zi < 4) {
        float next = zr * zr - zi * zi + cr;
        zi = 2 * zr * zi + ci;
        zr = next;
        k++;
    }
    out[y * width + x] = k;
}

kernel void collatz(global int *out, global const uint *in)
{
    size_t i = get_global_id(0);
    uint n = (in[i] & 0xffff) + 1;
    int steps = 0;
    while (n != 1 && steps < 200) {
        n = n & 1 ? 3 * n + 1 : n / 2;
        steps++;
    }
    out[i] = steps;
}

// The first sphere that a ray hits.
kernel void spheres(global float *out, global const float4 *all, int count, int width)
{
    int x = get_global_id(0), y = get_global_id(1);
    float3 way = normalize((float3)(x - width / 2, y - width / 2, width));
    float nearest = 1e30f, shade = 0;
    for (int k = 0; k < count; k++) {
        float3 to = all[k].xyz * 4 + (float3)(-2, -2, 4);
        float along = dot(to, way), square = dot(to, to) - along * along, radius = 0.2f + 0.1f * all[k].w;
        if (along < 0 || square > radius * radius)
            continue;
        float distance = along - sqrt(radius * radius - square);
        if (distance < nearest) {
            nearest = distance;
            float3 surface = normalize(way * distance - to);
            shade = fmax(-dot(surface, way), 0.f);
        }
    }
    out[y * width + x] = shade;
}

kernel void cube_root(global float *out, global const float *in)
{
    size_t i = get_global_id(0);
    float a = in[i] * 1000 + 0.01f, x = a;
    for (int k = 0; k < 100; k++) {
        float next = x - (x * x * x - a) / (3 * x * x);
        if (fabs(next - x) < 1e-5f * fabs(x))
            break;
        x = next;
    }
    out[i] = x;
}
