// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs that do not free what they have allocated, and do not destroy what they have created. The first ones
// do not destroy the context either, which would free their memory.
#include "wrong.h"

WRONG(never_freed)
{
    int *a = device_memory(64 * sizeof(int)); //! not-freed

    launch(synchronous, "fill", LINE(1, 64), ARG(a));
#ifdef MENDED
    release(a);
#endif
    leave();
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
    leave();
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
    leave();
}

WRONG(list_never_destroyed)
{
    ze_command_list_handle_t list = regular_list(); //! not-destroyed

#ifdef MENDED
    must(zeCommandListDestroy(list));
#endif
    (void)list;
}

// The pool is destroyed, its event is not.
WRONG(event_never_destroyed)
{
    ze_event_pool_handle_t pool = new_pool(4);

    for (uint32_t i = 0; i < 3; i++) {
        ze_event_handle_t event = new_event(pool, i); //! not-destroyed

#ifndef MENDED
        if (i == 1)
            continue;
#endif
        must(zeEventDestroy(event));
    }
    must(zeEventPoolDestroy(pool));
}

WRONG(queue_and_fence_never_destroyed)
{
    ze_fence_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_FENCE_DESC};
    ze_command_queue_handle_t queue = new_queue(); //! not-destroyed
    ze_fence_handle_t fence;

    must(zeFenceCreate(queue, &desc, &fence)); //! not-destroyed
#ifdef MENDED
    must(zeFenceDestroy(fence));
    must(zeCommandQueueDestroy(queue));
#endif
}

WRONG(build_log_never_destroyed)
{
    ze_module_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_MODULE_DESC,
                             .format = ZE_MODULE_FORMAT_IL_SPIRV,
                             .inputSize = 4,
                             .pInputModule = (const uint8_t *)"none"};
    ze_module_build_log_handle_t log;
    ze_module_handle_t none;

    if (zeModuleCreate(context, device, &desc, &none, &log) == ZE_RESULT_SUCCESS) //! not-destroyed
        abort();
#ifdef MENDED
    must(zeModuleBuildLogDestroy(log));
#endif
}

WRONG(kernel_made_in_a_loop)
{
    for (int i = 0; i < 100; i++) {
        ze_kernel_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_KERNEL_DESC, .pKernelName = "fill"};
        ze_kernel_handle_t kernel;

        must(zeKernelCreate(module, &desc, &kernel)); //! not-destroyed
#ifdef MENDED
        must(zeKernelDestroy(kernel));
#endif
    }
}
