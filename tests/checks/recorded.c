// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs whose recorded commands access the same memory, and nothing orders them: copies of lists.
#include "wrong.h"

#define BYTES (256 * sizeof(int))

static const struct size items = LINE(4, 64);

// A function that older loaders lack.
static void *extension(const char *name)
{
    void *function;

    must(zeDriverGetExtensionFunctionAddress(driver, name, &function));
    return function;
}

static void fill(ze_command_list_handle_t list, void *to, ze_event_handle_t signal)
{
    int one = 1;

    must(zeCommandListAppendMemoryFill(list, to, &one, sizeof(one), BYTES, signal, 0, NULL));
}

static void copy(ze_command_list_handle_t list, void *to, const void *from, ze_event_handle_t signal,
                 ze_event_handle_t wait)
{
    must(zeCommandListAppendMemoryCopy(list, to, from, BYTES, signal, wait != NULL, wait ? &wait : NULL));
}

static void run_on(ze_command_queue_handle_t queue, ze_command_list_handle_t list)
{
    must(zeCommandQueueExecuteCommandLists(queue, 1, &list, NULL));
}

static void leave_queue(ze_command_queue_handle_t queue)
{
    must(zeCommandQueueSynchronize(queue, UINT64_MAX));
    must(zeCommandQueueDestroy(queue));
}

// An in-order list that may be copied.
static ze_command_list_handle_t list_for_copies(void)
{
    ze_command_list_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC,
                                   .flags = (ze_command_list_flags_t)(ZE_BIT(3) | ZE_BIT(4))};
    ze_command_list_handle_t list;

    must(zeCommandListCreate(context, device, &desc, &list));
    return list;
}

static ze_command_list_handle_t copy_of(ze_command_list_handle_t list)
{
    ze_result_t (*clone)(ze_command_list_handle_t, ze_command_list_handle_t *) =
        extension("zeCommandListCreateCloneExp");
    ze_command_list_handle_t copy;

    must(clone(list, &copy));
    return copy;
}

// A list orders its executions; those of its copy are another list's.
WRONG(a_list_and_its_copy)
{
    ze_command_list_handle_t list = list_for_copies(), other;
    ze_command_queue_handle_t one = new_queue(), two = new_queue();
    void *a = device_memory(BYTES); //! made

    fill(synchronous, a, NULL);
    launch(list, "more", items, ARG(a)); //! command-race
    must(zeCommandListClose(list));
    other = copy_of(list);
    run_on(one, list);
    run_on(two, TWIN(other, list));
    leave_queue(one);
    leave_queue(two);
    must(zeCommandListDestroy(list));
    must(zeCommandListDestroy(other));
    release(a);
}

// The event names the execution before, which is complete, until the copy is executed.
WRONG(an_event_of_a_list_and_its_copy)
{
    ze_command_list_handle_t list = list_for_copies(), other;
    ze_command_queue_handle_t one = new_queue(), two = new_queue();
    ze_event_handle_t event = counter_based_event();
    void *a = device_memory(BYTES), *b = device_memory(BYTES); //! made

    fill(list, a, event); //! command-race
    must(zeCommandListClose(list));
    other = copy_of(list);
    run_on(one, list);
    must(zeCommandQueueSynchronize(one, UINT64_MAX));
#ifdef MENDED
    run_on(two, other);
    copy(asynchronous, b, a, NULL, event);
#else
    copy(asynchronous, b, a, NULL, event); //! command-race
    run_on(two, other);
#endif
    finish(asynchronous);
    leave_queue(one);
    leave_queue(two);
    must(zeEventDestroy(event));
    must(zeCommandListDestroy(list));
    must(zeCommandListDestroy(other));
    release(a);
    release(b);
}

// Each of two copies of a copy has an order of its own.
WRONG(two_copies)
{
    ze_command_list_handle_t list = list_for_copies(), first, second;
    ze_command_queue_handle_t one = new_queue(), two = new_queue();
    void *a = device_memory(BYTES); //! made

    fill(synchronous, a, NULL);
    launch(list, "more", items, ARG(a)); //! command-race
    must(zeCommandListClose(list));
    first = copy_of(list);
    second = copy_of(first);
    run_on(one, first);
#ifdef MENDED
    must(zeCommandQueueSynchronize(one, UINT64_MAX));
#endif
    run_on(two, second);
    leave_queue(one);
    leave_queue(two);
    must(zeCommandListDestroy(list));
    must(zeCommandListDestroy(first));
    must(zeCommandListDestroy(second));
    release(a);
}
