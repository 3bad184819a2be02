// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Each function of OpenCL's mathematics twice: once for each number, to measure its accuracy, and many
// times in a loop, to measure its speed.

#define ONE(name, type, bits)                                                                                \
    kernel void name##bits(global type *out, global const type *x, global const type *y)                     \
    {                                                                                                        \
        (void)y;                                                                                             \
        size_t i = get_global_id(0);                                                                         \
        out[i] = name(x[i]);                                                                                 \
    }                                                                                                        \
    kernel void many_##name##bits(global type *out, global const type *x, global const type *y, type step)   \
    {                                                                                                        \
        (void)y;                                                                                             \
        size_t i = get_global_id(0);                                                                         \
        type v = x[i], sum = 0;                                                                              \
        for (int k = 0; k < 64; k++) {                                                                       \
            sum += name(v);                                                                                  \
            v += step;                                                                                       \
        }                                                                                                    \
        out[i] = sum;                                                                                        \
    }

#define TWO(name, type, bits)                                                                                \
    kernel void name##bits(global type *out, global const type *x, global const type *y)                     \
    {                                                                                                        \
        size_t i = get_global_id(0);                                                                         \
        out[i] = name(x[i], y[i]);                                                                           \
    }                                                                                                        \
    kernel void many_##name##bits(global type *out, global const type *x, global const type *y, type step)   \
    {                                                                                                        \
        size_t i = get_global_id(0);                                                                         \
        type v = x[i], w = y[i], sum = 0;                                                                    \
        for (int k = 0; k < 64; k++) {                                                                       \
            sum += name(v, w);                                                                               \
            v += step;                                                                                       \
        }                                                                                                    \
        out[i] = sum;                                                                                        \
    }

#define BOTH(kind, name) kind(name, float, 32) kind(name, double, 64)

static __attribute__((overloadable)) float sine_and_cosine(float x)
{
    float cosine, sine = sincos(x, &cosine);
    return sine + cosine;
}

static __attribute__((overloadable)) double sine_and_cosine(double x)
{
    double cosine, sine = sincos(x, &cosine);
    return sine + cosine;
}

BOTH(ONE, exp)
BOTH(ONE, exp2)
BOTH(ONE, exp10)
BOTH(ONE, expm1)
BOTH(ONE, log)
BOTH(ONE, log2)
BOTH(ONE, log10)
BOTH(ONE, log1p)
BOTH(ONE, sqrt)
BOTH(ONE, rsqrt)
BOTH(ONE, cbrt)
BOTH(TWO, pow)
BOTH(TWO, powr)
BOTH(TWO, hypot)
BOTH(ONE, sin)
BOTH(ONE, cos)
BOTH(ONE, tan)
BOTH(ONE, sine_and_cosine)
BOTH(ONE, sinpi)
BOTH(ONE, cospi)
BOTH(ONE, asin)
BOTH(ONE, acos)
BOTH(ONE, atan)
BOTH(TWO, atan2)
BOTH(ONE, sinh)
BOTH(ONE, cosh)
BOTH(ONE, tanh)
BOTH(ONE, asinh)
BOTH(ONE, acosh)
BOTH(ONE, atanh)
BOTH(ONE, erf)
BOTH(ONE, erfc)
BOTH(ONE, tgamma)
BOTH(ONE, lgamma)
BOTH(TWO, fmod)
