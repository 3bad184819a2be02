// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs whose kernels do not reach a barrier with all work-items.
#include "wrong.h"

static int *numbers(int n)
{
    int *memory = shared_memory(n * sizeof(int));

    for (int i = 0; i < n; i++)
        memory[i] = i;
    return memory;
}

WRONG(barrier_in_a_branch)
{
    int *a = numbers(256);

    launch(synchronous, "barrier_in_a_branch", LINE(4, 64), ARG(a), LOCAL(64 * sizeof(int))); //! launched
    release(a);
}

WRONG(early_return)
{
    int n = 250, *a = numbers(256);

    launch(synchronous, "early_return", LINE(4, 64), ARG(a), LOCAL(64 * sizeof(int)), ARG(n)); //! launched
    release(a);
}

WRONG(a_barrier_in_each_branch)
{
    int *a = numbers(256);

    launch(synchronous, "a_barrier_in_each_branch", LINE(4, 64), ARG(a), LOCAL(64 * sizeof(int))); //! launched
    release(a);
}

WRONG(rounds_differ)
{
    int n = 3, *a = numbers(256);

    launch(synchronous, "rounds_differ", LINE(4, 64), ARG(a), LOCAL(64 * sizeof(int)), ARG(n)); //! launched
    release(a);
}

WRONG(leaves_the_loop)
{
    int n = 10, *a = numbers(256);

    launch(synchronous, "leaves_the_loop", LINE(4, 64), ARG(a), LOCAL(64 * sizeof(int)), ARG(n)); //! launched
    release(a);
}

WRONG(sum_of_some)
{
    int *a = numbers(256);

    launch(synchronous, "sum_of_some", LINE(4, 64), ARG(a)); //! launched
    release(a);
}
