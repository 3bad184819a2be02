// SPDX-License-Identifier: MIT OR Apache-2.0
// c = a * b for square row-major matrices whose side n is a multiple of TILE. Each work-group computes
// one tile of c; it walks along a row of tiles of a and a column of tiles of b, and holds one of each
// in local memory.

#define TILE 16

kernel __attribute__((reqd_work_group_size(TILE, TILE, 1)))
void matmul(global const float *a, global const float *b, global float *c, uint n)
{
    local float tile_a[TILE][TILE];
    local float tile_b[TILE][TILE];
    size_t x = get_local_id(0), y = get_local_id(1);
    size_t column = get_global_id(0), row = get_global_id(1);
    float sum = 0.0f;

    for (uint first = 0; first < n; first += TILE) {
        tile_a[y][x] = a[row * n + first + x];
        tile_b[y][x] = b[(first + y) * n + column];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint k = 0; k < TILE; k++)
            sum += tile_a[y][k] * tile_b[k][x];
        // All neighbours must have read these tiles before the next ones are loaded.
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    c[row * n + column] = sum;
}
