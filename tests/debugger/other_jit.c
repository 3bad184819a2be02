// SPDX-License-Identifier: MIT OR Apache-2.0
// Another library that makes code at run time and exports the names of the debugger's interface, as LLVM's
// does: the driver must not use its list.
#include <stdint.h>
#include <stdio.h>

struct {
    uint32_t version, action;
    void *relevant, *first;
} __jit_debug_descriptor = {1, 0, NULL, NULL};

void __jit_debug_register_code(void)
{
    printf("the driver has called another library\n");
}

__attribute__((destructor)) static void look(void)
{
    printf("the other list is %s\n", __jit_debug_descriptor.relevant == NULL ? "empty" : "used");
}
