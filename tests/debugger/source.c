// SPDX-License-Identifier: MIT OR Apache-2.0
// A program to be debugged by the variables and types of its kernels' source.
#include "../checks/wrong.h"

enum { N = 16 };

struct point {
    int x;
    float place[2];
    int state;
};

WRONG(lengths)
{
    uint32_t n = 0xfffffff0;
    float *a = shared_memory(N * sizeof(float));
    struct point *points = shared_memory(N * sizeof(struct point));

    for (int i = 0; i < N; i++)
        points[i] = (struct point){-i, {3.0f * i, 4.0f * i}, 3 + i % 2};
    launch(synchronous, "lengths", LINE(1, N), ARG(a), ARG(n), ARG(points));
    printf("lengths: %g %g\n", a[1], a[15]);
    release(a);
    release(points);
}
