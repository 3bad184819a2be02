// SPDX-License-Identifier: MIT OR Apache-2.0
// A program to be debugged, in the frame of the wrong programs.
#include "../checks/wrong.h"

enum { N = 64 };

WRONG(scale)
{
    int n = 32;
    float *a = shared_memory(N * sizeof(float));

    for (int i = 0; i < N; i++)
        a[i] = i + 0.5f;
    launch(synchronous, "scale", LINE(4, 16), ARG(a), ARG(n));
    printf("scaled: %g %g\n", a[31], a[32]);
    release(a);
}

WRONG(rotate)
{
    int *a = shared_memory(N * sizeof(int));

    for (int i = 0; i < N; i++)
        a[i] = i;
    launch(synchronous, "rotate", LINE(4, 16), ARG(a), LOCAL(16 * sizeof(int)));
    printf("rotated: %d %d\n", a[0], a[63]);
    release(a);
}
