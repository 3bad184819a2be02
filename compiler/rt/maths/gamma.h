// SPDX-License-Identifier: MIT OR Apache-2.0
// The gamma function of positive numbers: a Lanczos approximation with 13 terms and g = 6.0246..., from the
// Boost libraries (lanczos.hpp). gamma(x) = ratio(x) e^t with t = (x - 1/2) log(x + shift) - (x + shift).

#ifndef GAMMA_H
#define GAMMA_H

// Half a unit less than the Lanczos parameter g.
#define LANCZOS_SHIFT 5.524680040776729583740234375
static const double LANCZOS_NUM[] = {
    0x1.5ea5143c1a49ep34, 0x1.3fc7075f54c57p35, 0x1.0a132818ab61ap35, 0x1.0b0b522e8261ap34,
    0x1.67fc1b3a5a1e8p32, 0x1.57418f5d3f33fp30, 0x1.dab0c7bb95f2ap27, 0x1.df876f95dcc98p24,
    0x1.5f1e95080f44cp21, 0x1.6b6421f8787ebp17, 0x1.f87ac0858d804p12, 0x1.a5a607bbc3b52p7,
    0x1.40d931ff62705p1,
};
static const double LANCZOS_DEN[] = {
    0x0p0, 0x1.308a8p25, 0x1.cbd698p26, 0x1.1fda6bp27, 0x1.918717p26, 0x1.5eeb69p25,
    0x1.97171ep23, 0x1.41f7bp21, 0x1.5d0bcp18, 0x1.fe78p14, 0x1.e14p10, 0x1.08p6, 0x1p0,
};

#endif
