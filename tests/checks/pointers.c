// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs whose kernels make mistakes in functions that they call through pointers.
#include "wrong.h"

WRONG(chosen_function)
{
    int n = 63, which = 0, *a = device_memory(TWIN(n, n + 1) * sizeof(int)); //! made

    launch(synchronous, "chosen_function", LINE(1, 64), ARG(a), ARG(which)); //! launched
    which = 1;
    launch(synchronous, "chosen_function", LINE(1, 64), ARG(a), ARG(which));
    release(a);
}

WRONG(given_function)
{
    int *a = device_memory(64 * sizeof(int)), zero = 0; //! made
    void *function;

#ifdef MENDED
    must(zeCommandListAppendMemoryFill(synchronous, a, &zero, sizeof(zero), 64 * sizeof(int), NULL, 0, NULL));
#endif
    (void)zero;
    must(zeModuleGetFunctionPointer(module, "add", &function));
    launch(synchronous, "given_function", LINE(1, 64), ARG(a), ARG(function)); //! launched
    release(a);
}
