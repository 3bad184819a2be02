// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs that access memory which commands access, too, and nothing orders the two.
#include "wrong.h"

#define BYTES (1024 * sizeof(int))

static const struct size items = LINE(16, 64);
static const struct size one = LINE(1, 1);

// What is read may not be left out.
static volatile int seen;

WRONG(result_read_without_a_wait)
{
    int *a = shared_memory(BYTES); //! made

    launch(asynchronous, "result_read_without_a_wait", items, ARG(a)); //! launched
#ifdef MENDED
    finish(asynchronous);
#endif
    seen = a[100]; //! host-race
    finish(asynchronous);
    seen = a[100];
    release(a);
}

WRONG(input_changed_while_it_is_read)
{
    int *from = host_memory(BYTES), *to = device_memory(BYTES);

    memset(from, 0, BYTES);
    launch(asynchronous, "input_changed_while_it_is_read", items, ARG(from), ARG(to)); //! launched
    seen = from[7]; // Both read.
#ifdef MENDED
    finish(asynchronous);
#endif
    from[8] = 1; //! host-race
    finish(asynchronous);
    release(from);
    release(to);
}

WRONG(source_reused_before_the_copy)
{
    int *from = host_memory(BYTES), *to = device_memory(BYTES); //! made

    for (int round = 0; round < 2; round++) {
        memset(from, round, BYTES); //! host-race
        must(zeCommandListAppendMemoryCopy(asynchronous, to, from, BYTES, NULL, 0, NULL)); //! launched
#ifdef MENDED
        finish(asynchronous);
#endif
    }
    finish(asynchronous);
    release(from);
    release(to);
}

WRONG(fill_of_what_the_host_reads)
{
    ze_event_pool_handle_t pool = new_pool(1);
    ze_event_handle_t filled = new_event(pool, 0);
    int *a = shared_memory(BYTES), five = 5; //! made

    must(zeCommandListAppendMemoryFill(asynchronous, a, &five, sizeof(five), BYTES, filled, 0, NULL)); //! launched
#ifdef MENDED
    must(zeEventHostSynchronize(filled, UINT64_MAX));
#endif
    seen = a[1]; //! host-race
    must(zeEventHostSynchronize(filled, UINT64_MAX));
    seen = a[1];
    must(zeEventDestroy(filled));
    must(zeEventPoolDestroy(pool));
    release(a);
}

WRONG(wait_for_the_wrong_list)
{
    ze_command_list_handle_t other = new_immediate(true);
    int *a = shared_memory(BYTES), *b = shared_memory(BYTES); //! made

    launch(asynchronous, "numbers", items, ARG(a));
    launch(other, "wait_for_the_wrong_list", items, ARG(b)); //! launched
    finish(TWIN(asynchronous, other));
    seen = b[5]; //! host-race
    finish(other);
    finish(asynchronous);
    seen = a[5] + b[5];
    must(zeCommandListDestroy(other));
    release(a);
    release(b);
}

// The kernel starts when the host signals, and so after what it has done before.
WRONG(data_behind_the_signal)
{
    ze_command_list_handle_t list = new_immediate(true);
    ze_event_pool_handle_t pool = new_pool(1);
    ze_event_handle_t ready = new_event(pool, 0);
    int *from = shared_memory(BYTES), *to = device_memory(BYTES); //! made

    must(zeCommandListAppendWaitOnEvents(list, 1, &ready));
    launch(list, "data_behind_the_signal", items, ARG(from), ARG(to)); //! launched
#ifdef MENDED
    memset(from, 0, BYTES);
#endif
    must(zeEventHostSignal(ready));
#ifndef MENDED
    memset(from, 0, BYTES); //! host-race
#endif
    finish(list);
    must(zeCommandListDestroy(list));
    must(zeEventDestroy(ready));
    must(zeEventPoolDestroy(pool));
    release(from);
    release(to);
}

WRONG(result_of_a_regular_list)
{
    ze_command_list_handle_t list = regular_list();
    ze_command_queue_handle_t queue = new_queue();
    int *a = shared_memory(BYTES); //! made

    launch(list, "result_of_a_regular_list", items, ARG(a)); //! launched
    must(zeCommandListClose(list));
    a[0] = 1; // Nothing is submitted.
    must(zeCommandQueueExecuteCommandLists(queue, 1, &list, NULL));
#ifdef MENDED
    must(zeCommandQueueSynchronize(queue, UINT64_MAX));
#endif
    seen = a[1000]; //! host-race
    must(zeCommandQueueSynchronize(queue, UINT64_MAX));
    seen = a[1000];
    must(zeCommandListDestroy(list));
    must(zeCommandQueueDestroy(queue));
    release(a);
}

// What the kernel has written before the flag is there when the flag is, if the kernel writes it atomically.
WRONG(flag_without_atomics)
{
    int *a = shared_memory(BYTES), *flag = shared_memory(sizeof(*flag));

    *flag = 0;
    launch(asynchronous, "flag_without_atomics", one, ARG(a), ARG(flag));
    while (*(volatile int *)flag == 0) //! host-race
        ;
    seen = a[0]; //! host-race
#ifdef MENDED
    // The other way round.
    *flag = 0;
    launch(asynchronous, "flag_of_the_host", one, ARG(a), ARG(flag));
    a[0] = 7;
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
#endif
    finish(asynchronous);
    release(a);
    release(flag);
}

// The flag's memory is not known to be used: what the host does there is not seen. But the kernel has atomics.
WRONG(flag_behind_a_pointer)
{
    int *a = shared_memory(BYTES), *flag = shared_memory(sizeof(*flag)); //! made
    uint64_t *table = shared_memory(sizeof(*table));

    *flag = 0;
    *table = (uint64_t)(uintptr_t)flag;
    launch(asynchronous, "flag_behind_a_pointer", one, ARG(a), ARG(table)); //! launched
    while (*(volatile int *)flag == 0)
        ;
    seen = a[0]; //! host-race
    finish(asynchronous);
    release(a);
    release(flag);
    release(table);
}

static void set(void *data)
{
    int *a = data;

    a[0] = 1; //! sum_behind_a_host_function: host-race
    a[1] = 2; // The page is open by now.
}

// The function runs when the list has come to it. That orders it among the commands of its list, and of no other.
WRONG(sum_behind_a_host_function)
{
    ze_driver_handle_t this = driver;
    ze_result_t (*call)(ze_command_list_handle_t, void (*)(void *), void *, void *, ze_event_handle_t, uint32_t,
                        ze_event_handle_t *);
    ze_command_list_handle_t other = new_immediate(true);
    int *a = shared_memory(BYTES), *sum = device_memory(BYTES); //! made

    must(zeDriverGetExtensionFunctionAddress(this, "zeCommandListAppendHostFunction", (void **)&call));
    launch(synchronous, "numbers", items, ARG(a));
#ifndef MENDED
    launch(other, "sum_behind_a_host_function", one, ARG(a), ARG(sum)); //! launched
#endif
    must(call(asynchronous, set, a, NULL, NULL, 0, NULL));
#ifdef MENDED
    launch(asynchronous, "sum_behind_a_host_function", one, ARG(a), ARG(sum));
#endif
    finish(asynchronous);
    finish(other);
    must(zeCommandListDestroy(other));
    release(a);
    release(sum);
}
