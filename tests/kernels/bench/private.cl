// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Private arrays of an item.

// The rounds of SHA-256 over one block for each item, with other constants.
kernel void block_hash(global uint *out, global const uint *words)
{
    size_t i = get_global_id(0);
    uint w[16], h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    for (int t = 0; t < 16; t++)
        w[t] = words[i] * (2 * t + 1) + t;
    for (int t = 0; t < 64; t++) {
        uint s1 = rotate(h[4], 26u) ^ rotate(h[4], 21u) ^ rotate(h[4], 7u);
        uint t1 = h[7] + s1 + ((h[4] & h[5]) ^ (~h[4] & h[6])) + w[t & 15] + 0x428a2f98u * (t + 1);
        uint s0 = rotate(h[0], 30u) ^ rotate(h[0], 19u) ^ rotate(h[0], 10u);
        uint t2 = s0 + ((h[0] & h[1]) ^ (h[0] & h[2]) ^ (h[1] & h[2]));
        uint a = w[(t + 1) & 15], b = w[(t + 14) & 15];
        w[t & 15] += w[(t + 9) & 15] + (rotate(a, 25u) ^ rotate(a, 14u) ^ (a >> 3)) +
                     (rotate(b, 15u) ^ rotate(b, 13u) ^ (b >> 10));
        for (int k = 7; k > 0; k--)
            h[k] = h[k - 1];
        h[4] += t1;
        h[0] = t1 + t2;
    }
    out[i] = h[0] ^ h[4];
}

constant int direction_x[9] = {0, 1, 0, -1, 0, 1, -1, -1, 1}, direction_y[9] = {0, 0, 1, 0, -1, 1, 1, -1, -1};
constant float weight[9] = {4 / 9.f,  1 / 9.f,  1 / 9.f,  1 / 9.f, 1 / 9.f,
                            1 / 36.f, 1 / 36.f, 1 / 36.f, 1 / 36.f};

// A step of a lattice Boltzmann method, collision only.
kernel void lattice(global float *out, global const float *in)
{
    size_t i = get_global_id(0), n = get_global_size(0);
    float f[9], density = 0, ux = 0, uy = 0;
    for (int k = 0; k < 9; k++) {
        f[k] = in[(i + k * 64) & (n - 1)] + 0.1f;
        density += f[k];
        ux += f[k] * direction_x[k];
        uy += f[k] * direction_y[k];
    }
    ux /= density;
    uy /= density;
    float square = 1.5f * (ux * ux + uy * uy), sum = 0;
    for (int k = 0; k < 9; k++) {
        float along = 3 * (direction_x[k] * ux + direction_y[k] * uy);
        float rest = weight[k] * density * (1 + along + 0.5f * along * along - square);
        f[k] += (rest - f[k]) * 0.6f;
        sum += f[k] * (k + 1);
    }
    out[i] = sum;
}

// One row of attention for each item, over 32 keys.
kernel void attention(global float *out, global const float *q, global const float *keys)
{
    size_t i = get_global_id(0);
    float own[32], score[32], top = -1e30f, total = 0, sum = 0;
    for (int d = 0; d < 32; d++)
        own[d] = q[i * 32 + d];
    for (int k = 0; k < 32; k++) {
        float s = 0;
        for (int d = 0; d < 32; d++)
            s += own[d] * keys[k * 32 + d];
        score[k] = s * 0.17677669f;
        top = max(top, score[k]);
    }
    for (int k = 0; k < 32; k++) {
        score[k] = exp(score[k] - top);
        total += score[k];
    }
    for (int k = 0; k < 32; k++)
        sum += score[k] * keys[k * 32];
    out[i] = sum / total;
}

kernel void matrix4(global float *out, global const float *in)
{
    size_t i = get_global_id(0);
    float a[4][4], b[4][4], c[4][4] = {{0}}, sum = 0;
    for (int r = 0; r < 4; r++)
        for (int k = 0; k < 4; k++) {
            a[r][k] = in[i * 16 + r * 4 + k];
            b[k][r] = a[r][k] + (r == k);
        }
    for (int r = 0; r < 4; r++)
        for (int k = 0; k < 4; k++)
            for (int m = 0; m < 4; m++)
                c[r][k] += a[r][m] * b[m][k];
    for (int r = 0; r < 4; r++)
        for (int k = 0; k < 4; k++)
            sum += c[r][k] * (r + 2 * k);
    out[i] = sum;
}

// The eight largest of 64, in order.
kernel void top8(global float *out, global const float *in)
{
    size_t i = get_global_id(0), n = get_global_size(0);
    float best[8];
    for (int k = 0; k < 8; k++)
        best[k] = -1;
    for (int j = 0; j < 64; j++) {
        float x = in[i + j * n];
        for (int k = 0; k < 8; k++) {
            float low = min(best[k], x);
            best[k] = max(best[k], x);
            x = low;
        }
    }
    float sum = 0;
    for (int k = 0; k < 8; k++)
        sum += best[k] * (k + 1);
    out[i] = sum;
}

// The cosine transform of eight neighbours, directly by its definition.
kernel void dct8(global float *out, global const float *in)
{
    size_t i = get_global_id(0);
    float x[8];
    for (int k = 0; k < 8; k++)
        x[k] = in[i * 8 + k];
    for (int u = 0; u < 8; u++) {
        float sum = 0;
        for (int k = 0; k < 8; k++)
            sum += x[k] * cospi((2 * k + 1) * u / 16.0f);
        out[i * 8 + u] = sum;
    }
}
