// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs that do not free what they have allocated. They do not destroy the context, which would free it.
#include "wrong.h"

WRONG(never_freed)
{
    int *a = device_memory(64 * sizeof(int)); //! not-freed

    launch(synchronous, "fill", LINE(1, 64), ARG(a));
#ifdef MENDED
    release(a);
#endif
    exit(0);
}

WRONG(lost_in_a_loop)
{
    for (int i = 0; i < 10; i++) {
        int *a = shared_memory(100); //! not-freed

        a[0] = i;
#ifdef MENDED
        release(a);
#endif
    }
    exit(0);
}

WRONG(one_of_two)
{
    int *a = host_memory(100); //! not-freed
    int *b = host_memory(100);

#ifdef MENDED
    release(a);
#endif
    (void)a;
    release(b);
    exit(0);
}
