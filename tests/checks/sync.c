// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs that use events in ways that have no meaning.
#include "wrong.h"

static void barrier(ze_command_list_handle_t list, ze_event_handle_t signal, ze_event_handle_t wait)
{
    must(zeCommandListAppendBarrier(list, signal, wait != NULL, wait ? &wait : NULL));
}

WRONG(a_reset_by_the_host)
{
    ze_command_list_handle_t other = new_immediate(true);
    ze_event_pool_handle_t pool = new_pool(1);
    ze_event_handle_t event = new_event(pool, 0);

    barrier(other, NULL, event); //! reset-in-use
    barrier(asynchronous, event, NULL);
    must(zeEventHostSynchronize(event, UINT64_MAX));
#ifdef MENDED
    finish(other);
#endif
    must(zeEventHostReset(event)); //! reset-in-use
    must(zeEventHostSignal(event));
    finish(other);
    must(zeCommandListDestroy(other));
    must(zeEventDestroy(event));
    must(zeEventPoolDestroy(pool));
}

WRONG(a_reset_by_a_command)
{
    ze_command_list_handle_t other = new_immediate(true);
    ze_event_pool_handle_t pool = new_pool(2);
    ze_event_handle_t event = new_event(pool, 0), waited = new_event(pool, 1);

    barrier(other, waited, event); //! reset-in-use
    barrier(asynchronous, event, NULL);
#ifdef MENDED
    barrier(asynchronous, NULL, waited);
#endif
    must(zeCommandListAppendEventReset(asynchronous, event)); //! reset-in-use
    finish(asynchronous);
    must(zeEventHostSignal(event));
    finish(other);
    must(zeCommandListDestroy(other));
    must(zeEventDestroy(event));
    must(zeEventDestroy(waited));
    must(zeEventPoolDestroy(pool));
}

WRONG(a_reset_before_the_signal)
{
    ze_event_pool_handle_t pool = new_pool(1);
    ze_event_handle_t event = new_event(pool, 0);

    barrier(asynchronous, event, NULL); //! signal-race
#ifdef MENDED
    must(zeEventHostSynchronize(event, UINT64_MAX));
#endif
    must(zeEventHostReset(event)); //! signal-race
    finish(asynchronous);
    must(zeEventDestroy(event));
    must(zeEventPoolDestroy(pool));
}

WRONG(two_signals)
{
    ze_command_list_handle_t other = new_immediate(true);
    ze_event_pool_handle_t pool = new_pool(2);
    ze_event_handle_t event = new_event(pool, 0), first = new_event(pool, 1);

    barrier(asynchronous, event, NULL); //! signal-race
    barrier(asynchronous, first, NULL);
    barrier(other, event, TWIN(NULL, first)); //! signal-race
    finish(asynchronous);
    finish(other);
    must(zeCommandListDestroy(other));
    must(zeEventDestroy(event));
    must(zeEventDestroy(first));
    must(zeEventPoolDestroy(pool));
}

WRONG(two_signals_in_a_list)
{
    ze_command_list_handle_t list = new_immediate(false);
    ze_event_pool_handle_t pool = new_pool(1);
    ze_event_handle_t event = new_event(pool, 0);
    int zero = 0, *a = device_memory(2 * sizeof(int));

    must(zeCommandListAppendMemoryFill(list, a, &zero, sizeof(int), sizeof(int), event, 0, NULL)); //! signal-race
#ifdef MENDED
    must(zeCommandListAppendBarrier(list, NULL, 0, NULL));
#endif
    must(zeCommandListAppendMemoryFill(list, a + 1, &zero, sizeof(int), sizeof(int), event, 0, NULL)); //! signal-race
    finish(list);
    must(zeCommandListDestroy(list));
    must(zeEventDestroy(event));
    must(zeEventPoolDestroy(pool));
    release(a);
}

WRONG(two_signals_with_the_host)
{
    ze_event_pool_handle_t pool = new_pool(1);
    ze_event_handle_t event = new_event(pool, 0);

    barrier(asynchronous, event, NULL); //! signal-race
#ifdef MENDED
    must(zeEventHostSynchronize(event, UINT64_MAX));
#endif
    must(zeEventHostSignal(event)); //! signal-race
    finish(asynchronous);
    must(zeEventDestroy(event));
    must(zeEventPoolDestroy(pool));
}

WRONG(a_signal_that_never_comes)
{
    ze_event_pool_handle_t pool = new_pool(1);
    ze_event_handle_t event = new_event(pool, 0);

#ifdef MENDED
    barrier(asynchronous, event, NULL);
#endif
    zeEventHostSynchronize(event, 1500000000); //! never-signalled
    must(zeEventDestroy(event));
    must(zeEventPoolDestroy(pool));
}

WRONG(a_list_that_waits_for_nothing)
{
    ze_command_queue_handle_t queue = new_queue();
    ze_command_list_handle_t list = regular_list();
    ze_event_pool_handle_t pool = new_pool(1);
    ze_event_handle_t event = new_event(pool, 0);

    barrier(list, NULL, event);
    must(zeCommandListClose(list));
    must(zeCommandQueueExecuteCommandLists(queue, 1, &list, NULL));
#ifdef MENDED
    must(zeEventHostSignal(event));
#endif
    zeCommandQueueSynchronize(queue, 1500000000); //! never-signalled
    must(zeEventHostSignal(event));
    must(zeCommandQueueSynchronize(queue, UINT64_MAX));
    must(zeCommandListDestroy(list));
    must(zeCommandQueueDestroy(queue));
    must(zeEventDestroy(event));
    must(zeEventPoolDestroy(pool));
}

WRONG(a_fence_that_no_list_signals)
{
    ze_command_queue_handle_t queue = new_queue();
    ze_fence_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_FENCE_DESC};
    ze_command_list_handle_t list = regular_list();
    ze_fence_handle_t fence;

    must(zeFenceCreate(queue, &desc, &fence));
    must(zeCommandListClose(list));
    must(zeCommandQueueExecuteCommandLists(queue, 1, &list, TWIN(NULL, fence)));
    zeFenceHostSynchronize(fence, 1500000000); //! never-signalled
    must(zeCommandQueueSynchronize(queue, UINT64_MAX));
    must(zeFenceDestroy(fence));
    must(zeCommandListDestroy(list));
    must(zeCommandQueueDestroy(queue));
}
