// SPDX-License-Identifier: MIT OR Apache-2.0
// A program to be debugged whose kernels are optimised already.
#include "../checks/wrong.h"

enum { N = 16, GROUP = 4 };

WRONG(means)
{
    uint32_t rounds = 2;
    float *a = shared_memory(N * sizeof(float));

    for (int i = 0; i < N; i++)
        a[i] = 10 * i;
    launch(synchronous, "means", LINE(N / GROUP, GROUP), ARG(a), LOCAL(GROUP * sizeof(float)), ARG(rounds));
    printf("means: %g %g\n", a[0], a[15]);
    release(a);
}
