// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Kernels that are limited by arithmetic.

kernel void gemm_naive(global const float *a, global const float *b, global float *c, int n)
{
    int x = get_global_id(0), y = get_global_id(1);
    float sum = 0;
    for (int k = 0; k < n; k++)
        sum += a[y * n + k] * b[k * n + x];
    c[y * n + x] = sum;
}

kernel void nbody(global const float4 *bodies, global float4 *out, int n)
{
    size_t i = get_global_id(0);
    float4 here = bodies[i], sum = 0;
    for (int j = 0; j < n; j++) {
        float4 other = bodies[j];
        float4 d = other - here;
        float square = d.x * d.x + d.y * d.y + d.z * d.z + 0.01f;
        float inverse = rsqrt(square);
        sum += d * (other.w * inverse * inverse * inverse);
    }
    out[i] = sum;
}

kernel void maths(global float *out, global const float *x)
{
    size_t i = get_global_id(0);
    out[i] = exp(x[i]) + log(x[i] + 1) + sin(x[i] * 8);
}

static float normal_below(float x)
{
    float k = 1 / (1 + 0.2316419f * fabs(x));
    float tail = ((((1.330274429f * k - 1.821255978f) * k + 1.781477937f) * k - 0.356563782f) * k +
                  0.319381530f) *
                 k * 0.3989422804f * exp(-0.5f * x * x);
    return x > 0 ? 1 - tail : tail;
}

// Black and Scholes: the price of a call option.
kernel void pricing(global float *price, global const float *x)
{
    size_t i = get_global_id(0);
    float stock = 10 + 90 * x[i], strike = 50, years = 0.5f + x[i], rate = 0.02f, spread = 0.3f;
    float root = spread * sqrt(years);
    float d1 = (log(stock / strike) + (rate + 0.5f * spread * spread) * years) / root;
    price[i] = stock * normal_below(d1) - strike * exp(-rate * years) * normal_below(d1 - root);
}

kernel void polynomial(global float *out, global const float *x)
{
    size_t i = get_global_id(0);
    float v = x[i], sum = 1;
    for (int k = 0; k < 64; k++)
        sum = fma(sum, v, 0.25f);
    out[i] = sum;
}
