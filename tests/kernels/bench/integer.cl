// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Integers and hashes.

kernel void sort_step(global uint *x, uint distance, uint stretch)
{
    uint i = get_global_id(0);
    uint low = 2 * i - (i & (distance - 1)), high = low + distance;
    uint a = x[low], b = x[high];
    int up = (low & stretch) == 0;
    if ((a > b) == up) {
        x[low] = b;
        x[high] = a;
    }
}

// Ten rounds of the counter-based generator Philox.
kernel void philox(global uint4 *out, uint key)
{
    uint4 c = (uint4)(get_global_id(0), 1, 2, 3);
    uint2 k = (uint2)(key, ~key);
    for (int round = 0; round < 10; round++) {
        uint high0 = mul_hi(0xd2511f53u, c.x), low0 = 0xd2511f53u * c.x;
        uint high1 = mul_hi(0xcd9e8d57u, c.z), low1 = 0xcd9e8d57u * c.z;
        c = (uint4)(high1 ^ c.y ^ k.x, low1, high0 ^ c.w ^ k.y, low0);
        k += (uint2)(0x9e3779b9, 0xbb67ae85);
    }
    out[get_global_id(0)] = c;
}

kernel void crc32(global uint *out, global const uint *in)
{
    size_t i = get_global_id(0);
    uint crc = ~in[i];
    for (int bit = 0; bit < 32; bit++)
        crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    out[i] = ~crc;
}

kernel void murmur(global uint *out, global const uint *in)
{
    size_t i = get_global_id(0), n = get_global_size(0);
    uint h = 42;
    for (int k = 0; k < 8; k++) {
        h ^= rotate(in[(i + k * 1024) & (n - 1)] * 0xcc9e2d51, 15u) * 0x1b873593;
        h = rotate(h, 13u) * 5 + 0xe6546b64;
    }
    h = (h ^ h >> 16) * 0x85ebca6b;
    h = (h ^ h >> 13) * 0xc2b2ae35;
    out[i] = h ^ h >> 16;
}

kernel void bits(global uint *out, global const uint *in)
{
    size_t i = get_global_id(0);
    uint x = in[i];
    ulong wide = (ulong)x * 0x9e3779b97f4a7c15;
    out[i] = popcount(x) + clz(x | 1) + (uint)(wide >> 40) % 1000 + x / 7;
}
