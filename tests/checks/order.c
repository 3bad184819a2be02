// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs whose commands access the same memory, and nothing orders them.
#include "wrong.h"

#define BYTES (256 * sizeof(int))

static void fill(ze_command_list_handle_t list, void *to, size_t bytes, ze_event_handle_t signal)
{
    int one = 1;

    must(zeCommandListAppendMemoryFill(list, to, &one, sizeof(one), bytes, signal, 0, NULL));
}

static void copy(ze_command_list_handle_t list, void *to, const void *from, ze_event_handle_t signal,
                 ze_event_handle_t wait)
{
    must(zeCommandListAppendMemoryCopy(list, to, from, BYTES, signal, wait != NULL, wait ? &wait : NULL));
}

static void leave_list(ze_command_list_handle_t list)
{
    finish(list);
    must(zeCommandListDestroy(list));
}

WRONG(two_lists)
{
    ze_command_list_handle_t other = new_immediate(true);
    ze_event_pool_handle_t pool = new_pool(1);
    ze_event_handle_t filled = new_event(pool, 0);
    void *a = device_memory(BYTES), *b = device_memory(BYTES); //! made

    fill(asynchronous, a, BYTES, filled); //! command-race
    copy(other, b, a, NULL, TWIN(NULL, filled)); //! command-race
    leave_list(other);
    finish(asynchronous);
    must(zeEventDestroy(filled));
    must(zeEventPoolDestroy(pool));
    release(a);
    release(b);
}

WRONG(without_a_barrier)
{
    ze_command_list_handle_t list = new_immediate(false);
    void *a = device_memory(BYTES), *b = device_memory(BYTES); //! made

    fill(list, a, BYTES, NULL); //! command-race
#ifdef MENDED
    must(zeCommandListAppendBarrier(list, NULL, 0, NULL));
#endif
    copy(list, b, a, NULL, NULL); //! command-race
    leave_list(list);
    release(a);
    release(b);
}

WRONG(copies_that_overlap)
{
    ze_command_list_handle_t list = new_immediate(false);
    char *a = device_memory(2 * BYTES), *b = device_memory(BYTES); //! made

    fill(synchronous, b, BYTES, NULL);
    copy(list, a, b, NULL, NULL); //! command-race
    copy(list, a + TWIN(BYTES - 1, BYTES), b, NULL, NULL); //! command-race
    leave_list(list);
    release(a);
    release(b);
}

WRONG(rows_that_overlap)
{
    ze_command_list_handle_t list = new_immediate(false);
    char *a = device_memory(32 * 32), *b = device_memory(16 * 16); //! made
    ze_copy_region_t small = {0, 0, 0, 16, 16, 0}, from = {TWIN(15, 16), 4, 0, 16, 16, 0}, first = {0, 4, 0, 16, 16, 0};

    fill(synchronous, b, 16 * 16, NULL);
    must(zeCommandListAppendMemoryCopyRegion(list, a, &first, 32, 0, b, &small, 16, 0, NULL, 0, NULL)); //! command-race
    must(zeCommandListAppendMemoryCopyRegion(list, a, &from, 32, 0, b, &small, 16, 0, NULL, 0, NULL)); //! command-race
    leave_list(list);
    release(a);
    release(b);
}

WRONG(one_of_two_events)
{
    ze_command_list_handle_t other = new_immediate(true), third = new_immediate(true);
    ze_event_pool_handle_t pool = new_pool(2);
    ze_event_handle_t filled[] = {new_event(pool, 0), new_event(pool, 1)};
    char *a = device_memory(2 * BYTES), *b = device_memory(2 * BYTES); //! made

    fill(asynchronous, a, BYTES, filled[0]);
    fill(other, a + BYTES, BYTES, filled[1]); //! command-race
    must(zeCommandListAppendMemoryCopy(third, b, a, 2 * BYTES, NULL, TWIN(1, 2), filled)); //! command-race
    leave_list(third);
    leave_list(other);
    finish(asynchronous);
    must(zeEventDestroy(filled[0]));
    must(zeEventDestroy(filled[1]));
    must(zeEventPoolDestroy(pool));
    release(a);
    release(b);
}

WRONG(a_barrier_in_another_list)
{
    ze_command_list_handle_t list = new_immediate(false), other = new_immediate(false);
    void *a = device_memory(BYTES), *b = device_memory(BYTES); //! made

    fill(list, a, BYTES, NULL); //! command-race
    must(zeCommandListAppendBarrier(TWIN(other, list), NULL, 0, NULL));
    copy(list, b, a, NULL, NULL); //! command-race
    leave_list(list);
    leave_list(other);
    release(a);
    release(b);
}

// A barrier with a wait list waits for that, and not for what was appended before.
WRONG(a_barrier_with_a_wait_list)
{
    ze_command_list_handle_t list = new_immediate(false);
    ze_event_pool_handle_t pool = new_pool(1);
    ze_event_handle_t event = new_event(pool, 0);
    void *a = device_memory(BYTES), *b = device_memory(BYTES); //! made

    must(zeEventHostSignal(event));
    fill(list, a, BYTES, NULL); //! command-race
    must(zeCommandListAppendBarrier(list, NULL, TWIN(1, 0), TWIN(&event, NULL)));
    copy(list, b, a, NULL, NULL); //! command-race
    leave_list(list);
    must(zeEventDestroy(event));
    must(zeEventPoolDestroy(pool));
    release(a);
    release(b);
}

WRONG(an_event_of_another_list)
{
    ze_command_list_handle_t other = new_immediate(true), third = new_immediate(true);
    ze_event_handle_t event = counter_based_event();
    void *a = device_memory(BYTES), *b = device_memory(BYTES), *c = device_memory(BYTES); //! made

    fill(asynchronous, a, BYTES, TWIN(NULL, event)); //! command-race
    fill(other, c, BYTES, TWIN(event, NULL));
    copy(third, b, a, NULL, event); //! command-race
    leave_list(third);
    leave_list(other);
    finish(asynchronous);
    must(zeEventDestroy(event));
    release(a);
    release(b);
    release(c);
}

// The event names the fill before the one that matters.
WRONG(an_event_of_an_earlier_command)
{
    ze_command_list_handle_t other = new_immediate(true);
    ze_event_handle_t event = counter_based_event();
    void *a = device_memory(BYTES), *b = device_memory(BYTES); //! made

    fill(asynchronous, b, BYTES, TWIN(event, NULL));
    fill(asynchronous, a, BYTES, TWIN(NULL, event)); //! command-race
    copy(other, b, a, NULL, event); //! command-race
    leave_list(other);
    finish(asynchronous);
    must(zeEventDestroy(event));
    release(a);
    release(b);
}

// A counter-based event is complete until something signals it.
WRONG(an_event_that_is_signalled_too_late)
{
    ze_command_list_handle_t other = new_immediate(true);
    ze_event_handle_t event = counter_based_event();
    void *a = device_memory(BYTES), *b = device_memory(BYTES); //! made

#ifdef MENDED
    fill(asynchronous, a, BYTES, event);
    copy(other, b, a, NULL, event);
#else
    copy(other, b, a, NULL, event); //! command-race
    fill(asynchronous, a, BYTES, event); //! command-race
#endif
    leave_list(other);
    finish(asynchronous);
    must(zeEventDestroy(event));
    release(a);
    release(b);
}

static ze_command_list_handle_t unordered_list(void)
{
    ze_command_list_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC};
    ze_command_list_handle_t list;

    must(zeCommandListCreate(context, device, &desc, &list));
    return list;
}

static void leave_queue(ze_command_queue_handle_t queue)
{
    must(zeCommandQueueSynchronize(queue, UINT64_MAX));
    must(zeCommandQueueDestroy(queue));
}

WRONG(a_list_on_two_queues)
{
    ze_command_list_handle_t list = unordered_list();
    ze_command_queue_handle_t one = new_queue(), two = new_queue();
    void *a = device_memory(BYTES); //! made

    fill(list, a, BYTES, NULL); //! command-race
    must(zeCommandListClose(list));
    must(zeCommandQueueExecuteCommandLists(one, 1, &list, NULL));
#ifdef MENDED
    must(zeCommandQueueSynchronize(one, UINT64_MAX));
#endif
    must(zeCommandQueueExecuteCommandLists(two, 1, &list, NULL));
    leave_queue(one);
    leave_queue(two);
    must(zeCommandListDestroy(list));
    release(a);
}

WRONG(two_lists_on_a_queue)
{
    ze_command_list_handle_t lists[] = {unordered_list(), unordered_list()};
    ze_command_queue_handle_t queue = new_queue();
    void *a = device_memory(BYTES), *b = device_memory(BYTES); //! made

    fill(lists[0], a, BYTES, NULL); //! command-race
#ifdef MENDED
    must(zeCommandListAppendBarrier(lists[1], NULL, 0, NULL));
#endif
    copy(lists[1], b, a, NULL, NULL); //! command-race
    must(zeCommandListClose(lists[0]));
    must(zeCommandListClose(lists[1]));
    must(zeCommandQueueExecuteCommandLists(queue, 2, lists, NULL));
    leave_queue(queue);
    must(zeCommandListDestroy(lists[0]));
    must(zeCommandListDestroy(lists[1]));
    release(a);
    release(b);
}

// The host waits for the fence of the first execution, and not for that of the second.
WRONG(the_fence_before)
{
    ze_command_list_handle_t one = unordered_list(), two = unordered_list();
    ze_command_queue_handle_t queue = new_queue();
    ze_fence_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_FENCE_DESC};
    ze_fence_handle_t fence;
    void *a = device_memory(BYTES), *b = device_memory(BYTES), *c = device_memory(BYTES); //! made

    must(zeFenceCreate(queue, &desc, &fence));
    fill(one, c, BYTES, NULL);
    fill(two, a, BYTES, NULL); //! command-race
    must(zeCommandListClose(one));
    must(zeCommandListClose(two));
    must(zeCommandQueueExecuteCommandLists(queue, 1, &one, TWIN(fence, NULL)));
    must(zeCommandQueueExecuteCommandLists(queue, 1, &two, TWIN(NULL, fence)));
    must(zeFenceHostSynchronize(fence, UINT64_MAX));
    copy(asynchronous, b, a, NULL, NULL); //! command-race
    finish(asynchronous);
    leave_queue(queue);
    must(zeFenceDestroy(fence));
    must(zeCommandListDestroy(one));
    must(zeCommandListDestroy(two));
    release(a);
    release(b);
    release(c);
}

WRONG(a_clock)
{
    ze_command_list_handle_t list = new_immediate(false);
    char *a = device_memory(BYTES), *b = device_memory(BYTES); //! made

    fill(list, a + TWIN(0, 64), BYTES - 64, NULL); //! command-race
    must(zeCommandListAppendWriteGlobalTimestamp(list, (uint64_t *)a, NULL, 0, NULL)); //! command-race
    leave_list(list);
    release(a);
    release(b);
}

static const struct size items = LINE(4, 64);

WRONG(a_copy_of_what_a_kernel_writes)
{
    ze_command_list_handle_t other = new_immediate(true);
    void *a = device_memory(BYTES), *b = device_memory(BYTES); //! made

    launch(asynchronous, "numbers", items, ARG(a)); //! command-race
    copy(TWIN(other, asynchronous), b, a, NULL, NULL); //! command-race
    leave_list(other);
    finish(asynchronous);
    release(a);
    release(b);
}

WRONG(a_fill_of_what_a_kernel_reads)
{
    ze_command_list_handle_t list = new_immediate(false);
    void *a = device_memory(BYTES), *b = device_memory(BYTES); //! made

    fill(synchronous, a, BYTES, NULL);
    launch(list, "doubled", items, ARG(a), ARG(b)); //! command-race
#ifdef MENDED
    must(zeCommandListAppendBarrier(list, NULL, 0, NULL));
#endif
    fill(list, a, BYTES, NULL); //! command-race
    leave_list(list);
    release(a);
    release(b);
}

WRONG(two_kernels)
{
    ze_command_list_handle_t list = new_immediate(false);
    void *a = device_memory(BYTES), *b = device_memory(BYTES); //! made

    fill(synchronous, b, BYTES, NULL);
    launch(list, "numbers", items, ARG(a)); //! command-race
#ifdef MENDED
    must(zeCommandListAppendBarrier(list, NULL, 0, NULL));
#endif
    launch(list, "doubled", items, ARG(a), ARG(b)); //! command-race
    leave_list(list);
    release(a);
    release(b);
}

// The second one reads through a pointer what the first one writes through another.
WRONG(two_kernels_in_lists_of_two_queues)
{
    ze_command_list_handle_t one = regular_list(), two = regular_list();
    ze_command_queue_handle_t first = new_queue(), second = new_queue();
    int *a = device_memory(2 * BYTES), *b = device_memory(BYTES), *from = a + 255, *upper = a + 256; //! made

    fill(synchronous, a, 2 * BYTES, NULL);
    launch(one, "numbers", items, ARG(upper)); //! command-race
    launch(two, "doubled", items, ARG(from), ARG(b)); //! command-race
    must(zeCommandListClose(one));
    must(zeCommandListClose(two));
    must(zeCommandQueueExecuteCommandLists(first, 1, &one, NULL));
#ifdef MENDED
    must(zeCommandQueueSynchronize(first, UINT64_MAX));
#endif
    must(zeCommandQueueExecuteCommandLists(second, 1, &two, NULL));
    leave_queue(first);
    leave_queue(second);
    must(zeCommandListDestroy(one));
    must(zeCommandListDestroy(two));
    release(a);
    release(b);
}

// The groups are read before the command runs.
WRONG(groups_of_an_indirect_launch)
{
    ze_command_list_handle_t list = new_immediate(false);
    uint32_t *groups = shared_memory(3 * sizeof(uint32_t)), one = 1; //! made
    void *a = device_memory(BYTES);
    ze_kernel_handle_t kernel = kernel_of("numbers");

    groups[0] = groups[1] = groups[2] = 1;
    must(zeKernelSetGroupSize(kernel, 64, 1, 1));
    must(zeKernelSetArgumentValue(kernel, 0, sizeof(a), &a));
    must(zeCommandListAppendMemoryFill(list, groups, &one, sizeof(one), 3 * sizeof(one), NULL, 0, NULL)); //! command-race
#ifdef MENDED
    must(zeCommandListAppendBarrier(list, NULL, 0, NULL));
#endif
    must(zeCommandListAppendLaunchKernelIndirect(list, kernel, (ze_group_count_t *)groups, NULL, 0, NULL)); //! command-race
    leave_list(list);
    release(groups);
    release(a);
}
