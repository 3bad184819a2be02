// SPDX-License-Identifier: MIT OR Apache-2.0
// The error function on intervals (pieces.h).

#ifndef ERF_PIECES_H
#define ERF_PIECES_H

#include "pieces.h"

#ifdef TALLY_AVX512
// erf(c + t), where c is a multiple of the length; around 0 erf(t) - t, so that the rounding of its coefficients counts less.
#define ERF_LENGTH32 (1 / 8.0f)
static const float ERF_PIECES32[6][32] = {
    {0x0p0f, 0x1.1f5e1ap-3f, 0x1.1af54ep-2f, 0x1.9dd0d2p-2f, 0x1.0a7ef6p-1f, 0x1.3f196ep-1f, 0x1.6c1c98p-1f,
     0x1.91724ap-1f, 0x1.af767ap-1f, 0x1.c6dad2p-1f, 0x1.d8865ep-1f, 0x1.e5768cp-1f, 0x1.eea556p-1f,
     0x1.f4f694p-1f, 0x1.f92d08p-1f, 0x1.fbe61ep-1f, 0x1.fd9ae2p-1f, 0x1.fea422p-1f, 0x1.ff4048p-1f,
     0x1.ff996p-1f, 0x1.ffcaa8p-1f, 0x1.ffe514p-1f, 0x1.fff2dp-1f, 0x1.fff9bap-1f, 0x1.fffd1ap-1f,
     0x1.fffeb4p-1f, 0x1.ffff7p-1f, 0x1.ffffc4p-1f, 0x1.ffffe8p-1f, 0x1.fffff6p-1f, 0x1.fffffcp-1f,
     0x1.fffffep-1f},
    {0x1.06eba8p-3f, 0x1.1c62fap0f, 0x1.0f5d16p0f, 0x1.f5f0cep-1f, 0x1.c1efcap-1f, 0x1.86e96ap-1f,
     0x1.492e42p-1f, 0x1.0cab62p-1f, 0x1.a911f2p-2f, 0x1.45e99cp-2f, 0x1.e4653p-3f, 0x1.5ce596p-3f,
     0x1.e72372p-4f, 0x1.499d48p-4f, 0x1.b05532p-5f, 0x1.12cebp-5f, 0x1.529bcep-6f, 0x1.94624ap-7f,
     0x1.d41438p-8f, 0x1.06918ap-8f, 0x1.1d831p-9f, 0x1.2ce886p-10f, 0x1.3360e2p-11f, 0x1.305368p-12f,
     0x1.2407d6p-13f, 0x1.0f9e5cp-14f, 0x1.e9bb1cp-16f, 0x1.abfbcp-17f, 0x1.6a952p-18f, 0x1.295d4ap-19f,
     0x1.d8cd1cp-21f, 0x1.6a2882p-22f},
    {0x1.c5c0dp-23f, -0x1.1c621p-3f, -0x1.0f5c78p-2f, -0x1.7871a8p-2f, -0x1.c1f1a6p-2f, -0x1.e8a548p-2f,
     -0x1.edca88p-2f, -0x1.d63156p-2f, -0x1.a90e52p-2f, -0x1.6ea2c4p-2f, -0x1.2ec28p-2f, -0x1.dfb81p-3f,
     -0x1.6d639p-3f, -0x1.0bd46ep-3f, -0x1.7a5aap-4f, -0x1.0183f4p-4f, -0x1.52cb36p-5f, -0x1.ade198p-6f,
     -0x1.079b0cp-6f, -0x1.36d938p-7f, -0x1.62faf2p-8f, -0x1.8802d4p-9f, -0x1.a920ecp-10f, -0x1.b1584cp-11f,
     -0x1.9d962ap-12f, -0x1.ad7636p-13f, -0x1.be1528p-14f, -0x1.28d8ccp-14f, -0x1.8d357p-15f,
     -0x1.5553bap-18f, 0x1.344d7p-19f, 0x1.0eee6p-16f},
    {-0x1.812a92p-2f, -0x1.6f539cp-2f, -0x1.3c9716p-2f, -0x1.e10acep-3f, -0x1.2bf18ep-3f, -0x1.c836cep-5f,
     0x1.b73bcep-6f, 0x1.7c9a6p-4f, 0x1.1b573p-3f, 0x1.4cb24ap-3f, 0x1.571cp-3f, 0x1.43741ep-3f,
     0x1.1c2aa2p-3f, 0x1.d66198p-4f, 0x1.714594p-4f, 0x1.1443f6p-4f, 0x1.8aaa48p-5f, 0x1.0ea918p-5f,
     0x1.63f22p-6f, 0x1.c1ee94p-7f, 0x1.11a4ccp-7f, 0x1.40923p-8f, 0x1.69ba0ap-9f, 0x1.8a0908p-10f,
     0x1.9eca2ap-11f, 0x1.a33276p-12f, 0x1.980baep-13f, 0x1.76c7d2p-14f, 0x1.450486p-15f, 0x1.3fda3ap-16f,
     0x1.25dc86p-17f, 0x1.8a9fe2p-18f},
    {0x1.281a46p-12f, 0x1.1795cap-4f, 0x1.02bb66p-3f, 0x1.5008eap-3f, 0x1.797e24p-3f, 0x1.6b7736p-3f,
     0x1.3c9728p-3f, 0x1.dd7fc2p-4f, 0x1.0fe2ecp-4f, 0x1.97b65p-6f, -0x1.cee83p-9f, -0x1.04a962p-5f,
     -0x1.50076ap-5f, -0x1.87fcd8p-5f, -0x1.701148p-5f, -0x1.89b09ap-5f, -0x1.e8133cp-6f, -0x1.826458p-6f,
     -0x1.f27ef8p-7f, -0x1.38a326p-6f, -0x1.de179p-7f, -0x1.478296p-7f, -0x1.5c3cc4p-10f, -0x1.ca00dap-9f,
     -0x1.7d2dd8p-8f, -0x1.164f7ap-14f, 0x1.0e1cfep-9f, 0x1.6a310ap-8f, 0x1.78aa3ep-8f, -0x1.4c2cacp-11f,
     -0x1.2fd278p-10f, -0x1.d4ada4p-9f},
    {0x1.c51d8cp-4f, 0x1.a5d436p-4f, 0x1.47179ep-4f, 0x1.7fe038p-5f, 0x1.8eab8cp-8f, -0x1.891c6p-6f,
     -0x1.d0d32ap-5f, -0x1.1030fap-4f, -0x1.0bcf4ep-4f, -0x1.f16272p-5f, -0x1.7f9028p-5f, -0x1.f170a8p-6f,
     -0x1.ee72a8p-7f, -0x1.edd0a4p-10f, 0x1.d72d7p-8f, 0x1.4ba85cp-7f, 0x1.721e72p-6f, 0x1.8a341ep-7f,
     0x1.58af2p-7f, 0x1.0ff2fp-7f, 0x1.858064p-8f, 0x1.05db36p-8f, 0x1.7a7f1p-9f, 0x1.a21274p-10f,
     0x1.3a556p-11f, 0x1.4906cep-11f, 0x1.299748p-11f, 0x1.b005b2p-11f, 0x1.a7a1f8p-11f, -0x1.5111aep-15f,
     -0x1.2b288ep-13f, -0x1.116c7p-11f},
};

// e^(x^2) erfc(x) on intervals of erfc_whole.h.
static const float ERFC_PIECES32[6][32] = {
    {0x1.bf16fp-1f, 0x1.5f28aep-1f, 0x1.1d16b6p-1f, 0x1.db747ep-2f, 0x1.9531ep-2f, 0x1.5f88f6p-2f,
     0x1.3583f6p-2f, 0x1.13e574p-2f, 0x1.d94448p-3f, 0x1.8c9eb6p-3f, 0x1.54a7ap-3f, 0x1.2a2af2p-3f,
     0x1.08e62cp-3f, 0x1.dc603ap-4f, 0x1.b096fap-4f, 0x1.8c1404p-4f, 0x1.5f75c4p-4f, 0x1.31743p-4f,
     0x1.0e078p-4f, 0x1.e3db9cp-5f, 0x1.b634a6p-5f, 0x1.90658cp-5f, 0x1.709346p-5f, 0x1.556d4ep-5f, 0x0p0f,
     0x0p0f, 0x0p0f, 0x0p0f, 0x0p0f, 0x0p0f, 0x0p0f, 0x0p0f},
    {-0x1.d1f53p-1f, -0x1.3a5c68p-1f, -0x1.babd0ep-2f, -0x1.4369f6p-2f, -0x1.e78b36p-3f, -0x1.797a64p-3f,
     -0x1.2b11e6p-3f, -0x1.e3658p-4f, -0x1.6a70d4p-4f, -0x1.030578p-4f, -0x1.82a852p-5f, -0x1.2aa65p-5f,
     -0x1.da3954p-6f, -0x1.81149cp-6f, -0x1.3e981cp-6f, -0x1.0bc46cp-6f, -0x1.a6e2dp-7f, -0x1.404456p-7f,
     -0x1.f57caep-8f, -0x1.93108cp-8f, -0x1.4ae8bcp-8f, -0x1.14782cp-8f, -0x1.d4cddep-9f, -0x1.9276b6p-9f,
     0x0p0f, 0x0p0f, 0x0p0f, 0x0p0f, 0x0p0f, 0x0p0f, 0x0p0f, 0x0p0f},
    {0x1.84d5ccp-1f, 0x1.d28a8ap-2f, 0x1.2575aep-2f, 0x1.80f0c8p-3f, 0x1.05e814p-3f, 0x1.700fb8p-4f,
     0x1.0a1714p-4f, 0x1.8a70acp-5f, 0x1.0612fap-5f, 0x1.43b9b8p-6f, 0x1.a7ef48p-7f, 0x1.22ee7cp-7f,
     0x1.9efe02p-8f, 0x1.317cep-8f, 0x1.cdf11ep-9f, 0x1.6539ccp-9f, 0x1.f75e1ep-10f, 0x1.4d0454p-10f,
     0x1.cea432p-11f, 0x1.4dfbe2p-11f, 0x1.f18ef4p-12f, 0x1.7c6922p-12f, 0x1.29314p-12f, 0x1.d92148p-13f,
     0x0p0f, 0x0p0f, 0x0p0f, 0x0p0f, 0x0p0f, 0x0p0f, 0x0p0f, 0x0p0f},
    {-0x1.1639b8p-1f, -0x1.2e816ep-2f, -0x1.59c33p-3f, -0x1.9d57c2p-4f, -0x1.0132f4p-4f, -0x1.4bcc4ap-5f,
     -0x1.ba04eep-6f, -0x1.2efb7cp-6f, -0x1.687ffap-7f, -0x1.84e882p-8f, -0x1.c24abep-9f, -0x1.14350ap-9f,
     -0x1.63700ap-10f, -0x1.dc1918p-11f, -0x1.49cf58p-11f, -0x1.d66d96p-12f, -0x1.2875ecp-12f,
     -0x1.578206p-13f, -0x1.a80b82p-14f, -0x1.13518ap-14f, -0x1.7480a6p-15f, -0x1.04be9ap-15f,
     -0x1.77ba1p-16f, -0x1.15608ep-16f, 0x0p0f, 0x0p0f, 0x0p0f, 0x0p0f, 0x0p0f, 0x0p0f, 0x0p0f, 0x0p0f},
    {0x1.64ddbp-2f, 0x1.6343p-3f, 0x1.757ec4p-4f, 0x1.988eb6p-5f, 0x1.d4bf2cp-6f, 0x1.1b7148p-6f,
     0x1.58964p-7f, 0x1.b7c02ep-8f, 0x1.df4e56p-9f, 0x1.c4e914p-10f, 0x1.d14512p-11f, 0x1.0258cep-11f,
     0x1.25b138p-12f, 0x1.6c536cp-13f, 0x1.c732dp-14f, 0x1.2abf74p-14f, 0x1.5bec04p-15f, 0x1.63be76p-16f,
     0x1.81f3a6p-17f, 0x1.c6e60ep-18f, 0x1.1ce22ep-18f, 0x1.613162p-19f, 0x1.ee469ep-20f, 0x1.498b6ap-20f,
     0x0p0f, 0x0p0f, 0x0p0f, 0x0p0f, 0x0p0f, 0x0p0f, 0x0p0f, 0x0p0f},
    {-0x1.9d6fe2p-3f, -0x1.7cb204p-4f, -0x1.714472p-5f, -0x1.794f52p-6f, -0x1.9403b2p-7f, -0x1.c10904p-8f,
     -0x1.fefd7ep-9f, -0x1.307de4p-9f, -0x1.2f317p-10f, -0x1.fd1a5ep-12f, -0x1.d4c454p-13f, -0x1.d0dfe2p-14f,
     -0x1.f18be8p-15f, -0x1.14fa1ap-15f, -0x1.4a714ep-16f, -0x1.7ac838p-17f, -0x1.935442p-18f,
     -0x1.67ba34p-19f, -0x1.6191eap-20f, -0x1.6f4412p-21f, -0x1.9e15p-22f, -0x1.edf21ap-23f, -0x1.210b9ep-23f,
     -0x1.7a8c4cp-24f, 0x0p0f, 0x0p0f, 0x0p0f, 0x0p0f, 0x0p0f, 0x0p0f, 0x0p0f, 0x0p0f},
};

#endif

#if LANES != 16
// The same for doubles; around 0 erf(t).
#define ERF_LENGTH64 (25 / 64.0)
#define ERF_ROWS64(ROW)                                                                                      \
  ROW(0x0p0, 0x1.20dd750429b6dp0, 0x1.f432a2f22c29ap-48, -0x1.812746b03bb4ep-2, 0x1.f9fff7ab0365cp-35,       \
      0x1.ce2f21180b12bp-4, 0x1.6783c926f8fcdp-25, -0x1.b82f471ba7987p-6, 0x1.57d93cb88c732p-18,             \
      0x1.545e107bc41c8p-8, 0x1.e5332065a4994p-14, -0x1.255b5cb9c5c8ep-10, 0x1.4526e55872a54p-12)            \
  ROW(0x1.ad68966569a87p-2, 0x1.eff8c4b1375dfp-1, -0x1.837a59aa73539p-2, -0x1.cb7bf78e307e5p-3,              \
      0x1.5c0fc7762cbb5p-3, 0x1.4dd7b2d64f738p-5, -0x1.9ebc1e08218b8p-5, -0x1.09978efceae7ap-8,              \
      0x1.7074a0ca519f5p-7, -0x1.89e42bb1bedfcp-13, -0x1.04176c30c77d4p-9, 0x1.5d5c75b864064p-13,            \
      0x1.2ced6faa269eap-12)                                                                                 \
  ROW(0x1.762870f720c6fp-1, 0x1.39ccc1b136d6p-1, -0x1.ea4feea4e5968p-2, 0x1.715e59533277bp-5,                \
      0x1.22cdbdb4a903bp-3, -0x1.da50ae46f882p-5, -0x1.75578ee1e5441p-6, 0x1.353311dc1490bp-6,               \
      0x1.39c713d375229p-10, -0x1.fc2a21ea95853p-9, 0x1.9c53b0cfb8dfbp-12, 0x1.2b249b3cc5fdbp-11,            \
      -0x1.19ea4a6124986p-13)                                                                                \
  ROW(0x1.ce1962c0e0d8bp-1, 0x1.24a55399ea23p-2, -0x1.56f1bdf85e48dp-2, 0x1.54c0d66d7abbp-3,                 \
      0x1.cf82babf2c461p-7, -0x1.cf38b9a454c09p-5, 0x1.2c172776f9a23p-6, 0x1.e06ba357ee4f1p-8,               \
      -0x1.8df834018de2ep-8, 0x1.46747cb4d4ab5p-13, 0x1.118170222f125p-10, -0x1.f980ddedf6d21p-13,           \
      -0x1.d5a94d0fe9a17p-14)                                                                                \
  ROW(0x1.f21c9f12f0677p-1, 0x1.92470a61b6961p-4, -0x1.3a47801c56adp-3, 0x1.0453f90d3c396p-3,                \
      -0x1.8a7c6a237d89cp-5, -0x1.075c08856b1f4p-7, 0x1.16f9c9b6c66cp-6, -0x1.74c2f8f2fe082p-8,              \
      -0x1.760c475daaf4bp-10, 0x1.a3cb3974e425bp-10, -0x1.02bc213354a1cp-12, -0x1.90eb43e8f5d48p-13,         \
      0x1.695ac96118066p-14)                                                                                 \
  ROW(0x1.fd0f5317f582fp-1, 0x1.978ae8b55ce4fp-6, -0x1.8dfda7411dfc5p-5, 0x1.c24b2053de8e3p-5,               \
      -0x1.33137b25d507dp-5, 0x1.a342ba1dc2389p-7, 0x1.b4bbb9309b6bfp-10, -0x1.04938936f0a7cp-8,             \
      0x1.9f5c2949841b8p-10, 0x1.66cb615e7a429p-14, -0x1.4b083e9df9e06p-12, 0x1.9100be038bff9p-14,           \
      0x1.65642b6b073cbp-16)                                                                                 \
  ROW(0x1.ff87b1913e853p-1, 0x1.30499b5039567p-8, -0x1.6496420204feep-7, 0x1.fa73d7eb1d9bap-7,               \
      -0x1.daa3005ab08ccp-7, 0x1.250942c14b19ap-7, -0x1.99757ae641383p-9, -0x1.39033b4044b47p-15,            \
      0x1.6a6ef6ed989c4p-11, -0x1.71ef3d07516d7p-12, 0x1.624ecac4d0179p-15, 0x1.4ec117ca5c32p-15,            \
      -0x1.4cccb2741531p-16)                                                                                 \
  ROW(0x1.fff18ebe2b0e1p-1, 0x1.4ee1429bf7bb9p-11, -0x1.c9d7f91145df7p-10, 0x1.856614216d304p-9,             \
      -0x1.c812e5ff1177fp-9, 0x1.7e02d8b29648fp-9, -0x1.c5229630a7961p-10, 0x1.58342127ad4b2p-11,            \
      -0x1.48babe28c557dp-14, -0x1.4fbbeda85dbedp-14, 0x1.e2e9b9584e5f4p-15, -0x1.ff1ab8ff73b76p-17,         \
      -0x1.597dce5fb195cp-21)                                                                                \
  ROW(0x1.fffeb3ebb267bp-1, 0x1.0f9e1b4dd37f6p-14, -0x1.a8670aa943677p-13, 0x1.a3737e2a22884p-12,            \
      -0x1.24544f14a5fb6p-11, 0x1.2e7e76426ba76p-11, -0x1.da4961cc84ea2p-12, 0x1.176cf2b3438cap-12,          \
      -0x1.d2b4fc332c3d6p-14, 0x1.ab07e3fcc2311p-16, 0x1.0f32ecc2b34d6p-18, -0x1.ae8b3b35917acp-18,          \
      0x1.6e2b7ff65fd82p-20)                                                                                 \
  ROW(0x1.ffffe9bf4098cp-1, 0x1.44ba86467155dp-18, -0x1.1d67f00b59a0cp-16, 0x1.40ee07ac069ap-15,             \
      -0x1.024889e341388p-14, 0x1.3b124fcfa25acp-14, -0x1.2c59d8c678a4p-14, 0x1.c558561478189p-15,           \
      -0x1.0d8b9a01a35f5p-15, 0x1.ea5a00210806p-17, -0x1.505628aaad40fp-18, 0x1.0596afaf2fccep-21,           \
      0x1.0f9adc025c3p-18)                                                                                   \
  ROW(0x1.fffffee3cc32cp-1, 0x1.1e1e8579e45d3p-22, -0x1.1769cdfbdae81p-20, 0x1.5fe5d4baa4bap-19,             \
      -0x1.405db4e949317p-18, 0x1.bfc955528ad2fp-18, -0x1.f1984bc2592e2p-18, 0x1.c0ca1b07875a8p-18,          \
      -0x1.4cfd368908b4ap-18, 0x1.901466b39b808p-19, -0x1.0f35afdb5aa74p-20, 0x1.515b017e3f13dp-21,          \
      -0x1.032b8e2de36ep-18)                                                                                 \
  ROW(0x1.fffffff57632dp-1, 0x1.7397c5a65824ep-27, -0x1.8f2c083136bdp-25, 0x1.161fb53d0ac59p-23,             \
      -0x1.1a2257737757ep-22, 0x1.bb32dd35d1a6p-22, -0x1.17c1c3a519ea9p-21, 0x1.22b736f844d79p-21,           \
      -0x1.fa706e2672abdp-22, 0x1.70becc265dedp-22, -0x1.7cbcd0bfc3347p-23, 0x1.dcc8befd55254p-24,           \
      -0x1.5ab10e7cedc02p-22)                                                                                \
  ROW(0x1.ffffffffb5be5p-1, 0x1.63ac6b4e4f7f9p-32, -0x1.a0cf16fd6242bp-30, 0x1.3e380df024d1p-28,             \
      -0x1.6370a79e92812p-27, 0x1.357535d3926p-26, -0x1.b8df92287561ap-26, 0x1.fe6b0aa1c4ca1p-26,            \
      -0x1.29770dfbc6c99p-26, 0x1.aa2c1eab80105p-26, -0x1.227bdd7862691p-22, 0x1.9126d39bd0f8ep-27,          \
      0x1.0fff9b0b848aap-19)                                                                                 \
  ROW(0x1.fffffffffe7cp-1, 0x1.f5cc771294dd8p-38, -0x1.3e99d8ce4c7e4p-35, 0x1.085b86ce531c3p-33,             \
      -0x1.4056a67a1174dp-32, 0x1.338c35ba407ffp-31, -0x1.1baa791d5d9fep-30, 0x1.35e15d29ad6ffp-30,          \
      0x1.939a87d8b3924p-28, 0x1.457006f1af384p-30, -0x1.421e48a3af12dp-23, 0x1.9b2bf241e6978p-31,           \
      0x1.41f08f0140036p-20)                                                                                 \
  ROW(0x1.fffffffffffa2p-1, 0x1.04e15f4610b77p-43, -0x1.5f7a03e37d019p-41, 0x1.3fa821069cafdp-39,            \
      -0x1.17177449bb116p-37, 0x1.b5c832fa124f9p-37, 0x1.4f13e3db73c04p-33, 0x1.0790d6f01527bp-35,           \
      -0x1.0539890dcc17bp-27, 0x1.554f6d194398dp-35, 0x1.54191d6c7740ap-23, 0x1.dc499c0e8a6d7p-36,           \
      -0x1.566376e064f43p-20)                                                                                \
  ROW(0x1.fffffffffffffp-1, 0x1.8fd4b757e669ap-50, -0x1.bb61ff8d231e8p-47, 0x1.19d3b7cbcc2efp-45,            \
      0x1.ba984c312eb3dp-41, 0x1.bff6f25b85c75p-43, -0x1.5b0f60ca58ccbp-34, 0x1.42fdf61ba87dbp-41,           \
      0x1.d6d6b16b6a56p-29, 0x1.54a97b6e3b933p-41, -0x1.3424a0250b648p-24, 0x1.cefde50bb58fbp-39,            \
      0x1.3628de61a421dp-21)
TABLE64(ERF_PIECES64, 13, ERF_ROWS64)

#define ERFC_ROWS64(ROW)                                                                                     \
  ROW(0x1.8a6adcda2ea92p-1, -0x1.7c857b9b3c192p-1, 0x1.2b497df35f901p-1, -0x1.97997ad330036p-2,              \
      0x1.f0ac9d3244e68p-3, -0x1.146985bddc932p-3, 0x1.1d0c2797c8d8p-4, -0x1.132db7628174bp-5,               \
      0x1.f54d3d85152d4p-7, -0x1.b1820366f71fep-8, 0x1.658ea51c710c1p-9, -0x1.1aa3da07b14f6p-10,             \
      0x1.ba2206a9446efp-12, -0x1.449273c3a06b9p-13)                                                         \
  ROW(0x1.038d54ea3d834p-1, -0x1.78cdd551ee51ap-2, 0x1.d90093ae10576p-3, -0x1.09e77d40e0147p-3,              \
      0x1.1192f5bdaaf5dp-4, -0x1.054d68297c15ap-5, 0x1.d43a7bf55d96p-7, -0x1.8c97dd0c19658p-8,               \
      0x1.3f81ce249b0f8p-9, -0x1.ec0d3beea43e2p-11, 0x1.6b7225ec72449p-12, -0x1.029caf0a292eap-13,           \
      0x1.6e26b6f586cap-15, -0x1.e526db15ed7d7p-17)                                                          \
  ROW(0x1.78a692138767ap-2, -0x1.abaacdbfa8b07p-3, 0x1.b56f45eef7e4ap-4, -0x1.9b635ac624884p-5,              \
      0x1.68a25a6646d0ep-6, -0x1.299636d70471fp-7, 0x1.d1b6959a49f7p-9, -0x1.5b8bc8e84df7ep-10,              \
      0x1.f0fe889e46246p-12, -0x1.55c0d058cc8d9p-13, 0x1.c55d5256818e9p-15, -0x1.22d7b12b19e5bp-16,          \
      0x1.71199bbcf3a4cp-18, -0x1.c543b9f3f788bp-20)                                                         \
  ROW(0x1.23cfc2f1dc7ep-2, -0x1.0c3d538446447p-3, 0x1.c8d0cef0f832fp-5, -0x1.6cb52fe4898e1p-6,               \
      0x1.13648a11bc8f2p-7, -0x1.8bf716a805fb4p-9, 0x1.106bd6316f5ffp-10, -0x1.6838899884107p-12,            \
      0x1.cb4bb1f250b2ep-14, -0x1.1b281d85d4d0bp-15, 0x1.52b845759d2aep-17, -0x1.89aa0430b4484p-19,          \
      0x1.ab4443f034f91p-21, -0x1.bb7a4ae7a7555p-23)                                                         \
  ROW(0x1.afbb3f3b7343cp-3, -0x1.3086d7f01ac8cp-4, 0x1.98958a7a8d6eap-6, -0x1.0632076808156p-7,              \
      0x1.435c04e3b7455p-9, -0x1.809ce8afae0bbp-11, 0x1.ba8a654efeb9ep-13, -0x1.edd41ee286242p-15,           \
      0x1.0bcc8614bc5e2p-16, -0x1.1ad25f746fda7p-18, 0x1.22fd73de33d4cp-20, -0x1.24aecb2ae49afp-22,          \
      0x1.2f2b20b4d50adp-24, -0x1.2573b61e43d42p-26)                                                         \
  ROW(0x1.3e0a99a0ee914p-3, -0x1.5285d2eb1ef74p-5, 0x1.5d581133377d3p-7, -0x1.5e5d7e9898dd2p-9,              \
      0x1.5632136dd1e83p-11, -0x1.460abd6bb7ee3p-13, 0x1.2f839dedbe681p-15, -0x1.146bc3664e6d9p-17,          \
      0x1.ed2b27a64cdf6p-20, -0x1.af5e1a13e77aap-22, 0x1.721ac6f118f6dp-24, -0x1.380e1b76f94e2p-26,          \
      0x1.0c5c81abb6633p-28, -0x1.b746c12d95c43p-31)                                                         \
  ROW(0x1.f5b2a049cf4c6p-4, -0x1.aa3eb6a946f7ep-6, 0x1.62c12cb5f71e7p-8, -0x1.218ed930b24f4p-10,             \
      0x1.d00785f3d94f4p-13, -0x1.6d54b1339eaedp-15, 0x1.1ad6a25920bfap-17, -0x1.aef8ea88ce975p-20,          \
      0x1.4355bb33e65ebp-22, -0x1.de093e72b76ebp-25, 0x1.5c0bfeab1daadp-27, -0x1.f4de5fb28918bp-30,          \
      0x1.767ee5866bd8ep-32, -0x1.fb47d33f272dcp-35)                                                         \
  ROW(0x1.9d8a8f2284f2cp-4, -0x1.238ca71b93fc3p-6, 0x1.95252b932eb22p-9, -0x1.15976ddda3fd5p-11,             \
      0x1.774f48280d9d2p-14, -0x1.f4e46d1653d43p-17, 0x1.4a17df8e0f1cap-19, -0x1.add7ae840222bp-22,          \
      0x1.149e9261e2551p-24, -0x1.5ffeb66efb7fp-27, 0x1.b99f6bec617a9p-30, -0x1.14599975b2792p-32,           \
      0x1.8f96a08405f84p-35, -0x1.7eb6e8f9f8b73p-38)                                                         \
  ROW(0x1.46dc6bf900f68p-4, -0x1.6e4b45246f925p-7, 0x1.96a3de47d52e7p-10, -0x1.bf5070ee16457p-13,            \
      0x1.e7af6ef229f88p-16, -0x1.078bfe384e9c9p-18, 0x1.1a6f69c7ded62p-21, -0x1.2c2db62ca43d4p-24,          \
      0x1.3c77c73d51235p-27, -0x1.4b01f1eee5bebp-30, 0x1.5714e8d3b2aadp-33, -0x1.613b167829832p-36,          \
      0x1.7ea2320f5145ap-39, -0x1.874f85c713cc9p-42)                                                         \
  ROW(0x1.fe6cc4a0f9538p-5, -0x1.c046699d77d52p-8, 0x1.876373f4a11e6p-11, -0x1.53c131b5cae7fp-14,            \
      0x1.254381034b621p-17, -0x1.f773505d4ab4ap-21, 0x1.adc5f82e6fddap-24, -0x1.6ce6620bea935p-27,          \
      0x1.342c91ef48c88p-30, -0x1.02e842bafecfap-33, 0x1.b0a85aef1eecp-37, -0x1.679446e96a643p-40,           \
      0x1.32b83654c2bep-43, -0x1.005dad4837787p-46)                                                          \
  ROW(0x1.a273c57e476cep-5, -0x1.2ddd3d589bfbp-8, 0x1.b1c892387988p-12, -0x1.3672f098124b2p-15,              \
      0x1.baa1d9d9889b4p-19, -0x1.3a555d79bc3f1p-22, 0x1.bcbee06703f54p-26, -0x1.3972874811133p-29,          \
      0x1.b82f3130152dap-33, -0x1.33ee2c06b2ac9p-36, 0x1.ac730c2462d85p-40, -0x1.2a616435c23a7p-43,          \
      0x1.c32385965d627p-47, -0x1.17bdec8bddc95p-50)                                                         \
  ROW(0x1.627bcc27cb4aep-5, -0x1.b1be47a913fc3p-9, 0x1.0898f73586c9ap-12, -0x1.41e750b2e02f4p-16,            \
      0x1.8682d219f092dp-20, -0x1.d868cc7244c06p-24, 0x1.1cf1fcabc7891p-27, -0x1.56cb0bf17d829p-31,          \
      0x1.9b45a60f85d29p-35, -0x1.ec0e75c5ec559p-39, 0x1.23b3d765971a7p-42, -0x1.5c491d8479dacp-46,          \
      0x1.1a9f66a0a4b2ap-49, -0x1.1efbb92e70ca6p-53)                                                         \
  ROW(0x1.204ddcd967373p-5, -0x1.1f305584ff3efp-9, 0x1.1d875467f84dfp-13, -0x1.1b561359e6737p-17,            \
      0x1.18a08709023ffp-21, -0x1.156b53c7f45ep-25, 0x1.11bbc001d6187p-29, -0x1.0d97a8b8f9159p-33,           \
      0x1.09062a6701d4ep-37, -0x1.040d449a848d1p-41, 0x1.fcdb186224235p-46, -0x1.f13d847a83322p-50,          \
      0x1.ff78a80e0701bp-54, -0x1.f6d89be515c16p-58)                                                         \
  ROW(0x1.cd9bc89b73548p-6, -0x1.705e8c068805p-10, 0x1.259993494e431p-14, -0x1.d36fe3dd8fcb4p-19,            \
      0x1.73a4ded45c593p-23, -0x1.271eee818906ep-27, 0x1.d42321a061934p-32, -0x1.72d794b75cde9p-36,          \
      0x1.2569f8fa8e62p-40, -0x1.cfbeb831e9daep-45, 0x1.6ddc5841f7186p-49, -0x1.20559df6bae96p-53,           \
      0x1.d64120596cdb6p-58, -0x1.757aa8a5384e4p-62)                                                         \
  ROW(0x1.80d1e88d3c62p-6, -0x1.001a68f1b5449p-10, 0x1.54964558f64bdp-15, -0x1.c48d27f6c7e2fp-20,            \
      0x1.2c675fe07666bp-24, -0x1.8e79b818d0975p-29, 0x1.080e890dce2b1p-33, -0x1.5daa87ff87178p-38,          \
      0x1.cea3788c57d1dp-43, -0x1.31cb892abf5fep-47, 0x1.93ceea583dbe6p-52, -0x1.0a8e329025dcap-56,          \
      0x1.6853b9c62d768p-61, -0x1.d3ca62092e2a9p-66)                                                         \
  ROW(0x1.49ebde7878139p-6, -0x1.7892d6052da5dp-11, 0x1.ad8ccfc089c6dp-16, -0x1.e9ab4c8d1b9d1p-21,           \
      0x1.16ecc51224ac3p-25, -0x1.3d8fbf068b56ep-30, 0x1.69528ec15a19bp-35, -0x1.9adb0b82ac65fp-40,          \
      0x1.d2e78f03daaf4p-45, -0x1.0920d78ab7f31p-49, 0x1.2b0689439f3c2p-54, -0x1.526bd28b5e359p-59,          \
      0x1.0cc026c6aea1ep-63, -0x1.46d980e3f8005p-68)
TABLE64(ERFC_PIECES64, 14, ERFC_ROWS64)
#endif

#endif
