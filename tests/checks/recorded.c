// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs whose recorded commands access the same memory, and nothing orders them: copies of lists, graphs, mutable
// lists, and several launches at once.
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

static void begin_capture(ze_command_list_handle_t list)
{
    ze_result_t (*begin)(ze_command_list_handle_t, const void *) = extension("zeCommandListBeginGraphCaptureExt");

    must(begin(list, NULL));
}

// The graph, as pointers: older headers lack the types.
static void *end_capture(ze_command_list_handle_t list)
{
    ze_result_t (*end)(ze_command_list_handle_t, const void *, void **) =
        extension("zeCommandListEndGraphCaptureExt");
    void *graph;

    must(end(list, NULL, &graph));
    return graph;
}

static void *executable(void *graph)
{
    ze_result_t (*instantiate)(void *, const void *, void **) = extension("zeGraphInstantiateExt");
    void *instance;

    must(instantiate(graph, NULL, &instance));
    return instance;
}

static void run_graph(ze_command_list_handle_t list, void *instance, ze_event_handle_t signal)
{
    ze_result_t (*append)(ze_command_list_handle_t, void *, const void *, ze_event_handle_t, uint32_t,
                          ze_event_handle_t *) = extension("zeCommandListAppendGraphExt");

    must(append(list, instance, NULL, signal, 0, NULL));
}

static void leave_instance(void *instance)
{
    ze_result_t (*destroy)(void *) = extension("zeExecutableGraphDestroyExt");

    must(destroy(instance));
}

static void leave_graph(void *graph)
{
    ze_result_t (*destroy)(void *) = extension("zeGraphDestroyExt");

    must(destroy(graph));
}

static void wait_for(ze_command_list_handle_t list, ze_event_handle_t event)
{
    must(zeCommandListAppendWaitOnEvents(list, 1, &event));
}

static void leave_list(ze_command_list_handle_t list)
{
    finish(list);
    must(zeCommandListDestroy(list));
}

// The list that was captured writes again what the fork still reads.
WRONG(a_fork_that_is_joined_too_late)
{
    ze_command_list_handle_t list = new_immediate(true), fork = new_immediate(true);
    ze_event_handle_t forked = counter_based_event(), joined = counter_based_event();
    void *a = device_memory(BYTES), *b = device_memory(BYTES), *graph, *instance; //! made

    begin_capture(list);
    fill(list, a, forked);
    copy(fork, b, a, joined, forked); //! command-race
#ifdef MENDED
    wait_for(list, joined);
    fill(list, a, NULL);
#else
    fill(list, a, NULL); //! command-race
    wait_for(list, joined);
#endif
    graph = end_capture(list);
    instance = executable(graph);
    run_graph(list, instance, NULL);
    run_graph(list, instance, NULL);
    leave_list(list);
    leave_list(fork);
    leave_instance(instance);
    leave_graph(graph);
    must(zeEventDestroy(forked));
    must(zeEventDestroy(joined));
    release(a);
    release(b);
}

// Executions of one executable graph come one after the other, and those of two do not.
WRONG(two_executable_graphs)
{
    ze_command_list_handle_t list = new_immediate(true), other = new_immediate(true);
    void *a = device_memory(BYTES), *graph, *first, *second; //! made

    fill(synchronous, a, NULL);
    begin_capture(list);
    launch(list, "more", items, ARG(a)); //! command-race
    graph = end_capture(list);
    first = executable(graph);
    second = executable(graph);
    run_graph(list, first, NULL);
    run_graph(other, TWIN(second, first), NULL);
    leave_list(list);
    leave_list(other);
    leave_instance(first);
    leave_instance(second);
    leave_graph(graph);
    release(a);
}

// A list reads what a fork of a graph has written.
WRONG(a_list_beside_a_graph)
{
    ze_command_list_handle_t list = new_immediate(true), fork = new_immediate(true);
    ze_event_handle_t forked = counter_based_event(), joined = counter_based_event(), ended = counter_based_event();
    void *a = device_memory(BYTES), *b = device_memory(BYTES), *c = device_memory(BYTES), *graph, *instance; //! made

    begin_capture(list);
    fill(list, c, forked);
    wait_for(fork, forked);
    launch(fork, "doubled", items, ARG(c), ARG(a)); //! command-race
    must(zeCommandListAppendSignalEvent(fork, joined));
    wait_for(list, joined);
    graph = end_capture(list);
    instance = executable(graph);
    run_graph(list, instance, ended);
    copy(asynchronous, b, a, NULL, TWIN(NULL, ended)); //! command-race
    finish(asynchronous);
    leave_list(list);
    leave_list(fork);
    leave_instance(instance);
    leave_graph(graph);
    must(zeEventDestroy(forked));
    must(zeEventDestroy(joined));
    must(zeEventDestroy(ended));
    release(a);
    release(b);
    release(c);
}

// What a graph does that is a part of another one comes before what follows it in its list, and not before a fork.
WRONG(a_fork_beside_a_graph_in_a_graph)
{
    ze_command_list_handle_t list = new_immediate(true), fork = new_immediate(true);
    ze_event_handle_t forked = counter_based_event(), joined = counter_based_event();
    void *a = device_memory(BYTES), *b = device_memory(BYTES), *inner, *part, *graph, *instance; //! made

    begin_capture(list);
    launch(list, "numbers", items, ARG(a)); //! command-race
    inner = end_capture(list);
    part = executable(inner);
    begin_capture(list);
    fill(list, b, TWIN(forked, NULL));
    run_graph(list, part, TWIN(NULL, forked));
    copy(fork, b, a, joined, forked); //! command-race
    wait_for(list, joined);
    graph = end_capture(list);
    instance = executable(graph);
    run_graph(list, instance, NULL);
    leave_list(list);
    leave_list(fork);
    leave_instance(instance);
    leave_instance(part);
    leave_graph(graph);
    leave_graph(inner);
    must(zeEventDestroy(forked));
    must(zeEventDestroy(joined));
    release(a);
    release(b);
}

// What older headers lack of mutable lists.
struct description {
    uint32_t stype;
    const void *next;
    uint32_t flags;
};

struct new_argument {
    uint32_t stype;
    const void *next;
    uint64_t command;
    uint32_t index;
    size_t size;
    const void *value;
};

enum { LIST_DESC = 0x20016, ID_DESC, CHANGES, NEW_ARGUMENT };
enum { ARGUMENTS = 1 << 0, SIGNAL_EVENT = 1 << 4, WAIT_EVENTS = 1 << 5, KERNEL = 1 << 6 };

// An in-order list whose commands may be changed, and which may be copied.
static ze_command_list_handle_t mutable_list(void)
{
    struct description changes = {.stype = LIST_DESC};
    ze_command_list_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC,
                                   .pNext = &changes,
                                   .flags = (ze_command_list_flags_t)(ZE_BIT(3) | ZE_BIT(4))};
    ze_command_list_handle_t list;

    must(zeCommandListCreate(context, device, &desc, &list));
    return list;
}

// The number of the next command, which may be changed in these parts, or to this kernel.
static uint64_t next_command(ze_command_list_handle_t list, uint32_t parts, ze_kernel_handle_t kernel)
{
    ze_result_t (*next)(ze_command_list_handle_t, const struct description *, uint32_t, ze_kernel_handle_t *,
                        uint64_t *) = extension("zeCommandListGetNextCommandIdWithKernelsExp");
    struct description desc = {.stype = ID_DESC, .flags = parts};
    uint64_t number;

    must(next(list, &desc, kernel != NULL, &kernel, &number));
    return number;
}

static void change_argument(ze_command_list_handle_t list, uint64_t command, void *memory)
{
    ze_result_t (*change)(ze_command_list_handle_t, const struct description *) =
        extension("zeCommandListUpdateMutableCommandsExp");
    struct new_argument argument = {NEW_ARGUMENT, NULL, command, 0, sizeof(memory), &memory};
    struct description desc = {.stype = CHANGES, .next = &argument};

    must(change(list, &desc));
}

static void run_alone(ze_command_queue_handle_t queue, ze_command_list_handle_t list)
{
    run_on(queue, list);
    must(zeCommandQueueSynchronize(queue, UINT64_MAX));
}

static void leave_both(ze_command_queue_handle_t queue, ze_command_list_handle_t list)
{
    finish(asynchronous);
    leave_queue(queue);
    must(zeCommandListDestroy(list));
}

WRONG(an_argument_that_was_changed)
{
    ze_command_list_handle_t list = mutable_list();
    ze_command_queue_handle_t queue = new_queue();
    void *a = device_memory(BYTES), *b = device_memory(BYTES); //! made
    uint64_t more = next_command(list, ARGUMENTS, NULL);

    launch(list, "more", items, ARG(a)); //! command-race
    must(zeCommandListClose(list));
    run_alone(queue, list);
    change_argument(list, more, b);
    must(zeCommandListClose(list));
    fill(asynchronous, TWIN(b, a), NULL); //! command-race
    run_on(queue, list);
    leave_both(queue, list);
    release(a);
    release(b);
}

WRONG(a_kernel_that_was_changed)
{
    ze_result_t (*change)(ze_command_list_handle_t, uint32_t, uint64_t *, ze_kernel_handle_t *) =
        extension("zeCommandListUpdateMutableCommandKernelsExp");
    ze_command_list_handle_t list = mutable_list();
    ze_command_queue_handle_t queue = new_queue();
    ze_kernel_handle_t kernel = kernel_of("more");
    void *a = device_memory(BYTES), *b = device_memory(BYTES); //! made
    uint64_t command = next_command(list, ARGUMENTS | KERNEL, kernel);

    launch(list, "numbers", items, ARG(b)); //! command-race
    must(zeCommandListClose(list));
    run_alone(queue, list);
    must(change(list, 1, &command, &kernel));
    change_argument(list, command, a);
    must(zeCommandListClose(list));
    fill(asynchronous, TWIN(a, b), NULL); //! command-race
    run_on(queue, list);
    leave_both(queue, list);
    release(a);
    release(b);
}

WRONG(a_wait_that_was_changed)
{
    ze_result_t (*change)(ze_command_list_handle_t, uint64_t, uint32_t, ze_event_handle_t *) =
        extension("zeCommandListUpdateMutableCommandWaitEventsExp");
    ze_command_list_handle_t list = mutable_list(), third = new_immediate(true);
    ze_command_queue_handle_t queue = new_queue();
    ze_event_handle_t filled = counter_based_event(), other = counter_based_event();
    void *a = device_memory(BYTES), *b = device_memory(BYTES), *c = device_memory(BYTES); //! made
    uint64_t read = next_command(list, WAIT_EVENTS, NULL);

    copy(list, b, a, NULL, filled); //! command-race
    must(zeCommandListClose(list));
    run_alone(queue, list);
    fill(asynchronous, a, filled); //! command-race
    fill(third, c, other);
    must(change(list, read, 1, TWIN(&other, &filled)));
    must(zeCommandListClose(list));
    run_on(queue, list);
    leave_both(queue, list);
    leave_list(third);
    must(zeEventDestroy(filled));
    must(zeEventDestroy(other));
    release(a);
    release(b);
    release(c);
}

// The event before stays signalled.
WRONG(a_signal_that_was_changed)
{
    ze_result_t (*change)(ze_command_list_handle_t, uint64_t, ze_event_handle_t) =
        extension("zeCommandListUpdateMutableCommandSignalEventExp");
    ze_command_list_handle_t list = mutable_list();
    ze_command_queue_handle_t queue = new_queue();
    ze_event_pool_handle_t pool = new_pool(2);
    ze_event_handle_t before = new_event(pool, 0), now = new_event(pool, 1);
    void *a = device_memory(BYTES), *b = device_memory(BYTES); //! made
    uint64_t write = next_command(list, SIGNAL_EVENT, NULL);

    fill(list, a, before); //! command-race
    must(zeCommandListClose(list));
    run_alone(queue, list);
    must(change(list, write, now));
    must(zeCommandListClose(list));
    run_on(queue, list);
    copy(asynchronous, b, a, NULL, TWIN(before, now)); //! command-race
    leave_both(queue, list);
    must(zeEventDestroy(before));
    must(zeEventDestroy(now));
    must(zeEventPoolDestroy(pool));
    release(a);
    release(b);
}

// The copy has numbers of its own for what is changed in it.
WRONG(a_copy_of_a_list_that_was_changed)
{
    ze_command_list_handle_t list = mutable_list(), other;
    ze_command_queue_handle_t queue = new_queue(), second = new_queue();
    void *a = device_memory(BYTES), *b = device_memory(BYTES); //! made
    uint64_t more = next_command(list, ARGUMENTS, NULL);

    fill(synchronous, a, NULL);
    fill(synchronous, b, NULL);
    launch(list, "more", items, ARG(a)); //! command-race
    must(zeCommandListClose(list));
    other = copy_of(list);
    change_argument(TWIN(list, other), more, b);
    change_argument(other, more, b);
    must(zeCommandListClose(list));
    must(zeCommandListClose(other));
    run_on(queue, list);
    run_on(second, other);
    leave_queue(second);
    leave_both(queue, list);
    must(zeCommandListDestroy(other));
    release(a);
    release(b);
}

// Each of these is a launch, whatever its number is.
static void launch_three(ze_command_list_handle_t list, ze_kernel_handle_t *kernels, uint32_t *numbers)
{
    must(zeCommandListAppendLaunchMultipleKernelsIndirect(list, 3, kernels, numbers,
                                                          (ze_group_count_t *)(numbers + 1), NULL, 0, NULL));
}

static ze_kernel_handle_t kernel_for(const char *name, void *memory)
{
    ze_kernel_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_KERNEL_DESC, .pKernelName = name};
    ze_kernel_handle_t kernel;

    must(zeKernelCreate(module, &desc, &kernel));
    must(zeKernelSetGroupSize(kernel, 64, 1, 1));
    must(zeKernelSetArgumentValue(kernel, 0, sizeof(memory), &memory));
    return kernel;
}

// A number of launches, and four groups for each.
static uint32_t *launches(void)
{
    uint32_t *numbers = shared_memory(10 * sizeof(uint32_t));

    numbers[0] = 3;
    for (int i = 1; i < 10; i++)
        numbers[i] = i % 3 == 1 ? 4 : 1;
    return numbers;
}

// A list out of order does not order them.
WRONG(two_launches_of_one_call)
{
    ze_command_list_handle_t list = new_immediate(false);
    void *a = device_memory(BYTES), *b = device_memory(BYTES), *c = device_memory(BYTES); //! made
    ze_kernel_handle_t kernels[] = {kernel_for("more", b), kernel_for("more", a), kernel_for("more", TWIN(a, c))};
    uint32_t *numbers = launches();

    launch_three(list, kernels, numbers); //! command-race
    leave_list(list);
    for (int i = 0; i < 3; i++)
        must(zeKernelDestroy(kernels[i]));
    release(numbers);
    release(a);
    release(b);
    release(c);
}

WRONG(a_copy_of_what_one_of_several_launches_writes)
{
    ze_command_list_handle_t list = regular_list();
    ze_command_queue_handle_t queue = new_queue();
    void *a = device_memory(BYTES), *b = device_memory(BYTES), *c = device_memory(BYTES); //! made
    ze_kernel_handle_t kernels[] = {kernel_for("more", b), kernel_for("more", a), kernel_for("more", b)};
    uint32_t *numbers = launches();

    launch_three(list, kernels, numbers); //! command-race
    must(zeCommandListClose(list));
    run_on(queue, list);
#ifdef MENDED
    must(zeCommandQueueSynchronize(queue, UINT64_MAX));
#endif
    copy(asynchronous, c, a, NULL, NULL); //! command-race
    leave_both(queue, list);
    for (int i = 0; i < 3; i++)
        must(zeKernelDestroy(kernels[i]));
    release(numbers);
    release(a);
    release(b);
    release(c);
}

// What was recorded before is gone, and the list is the same.
WRONG(a_list_that_was_reset)
{
    ze_command_list_handle_t list = regular_list();
    ze_command_queue_handle_t queue = new_queue();
    void *a = device_memory(BYTES), *b = device_memory(BYTES); //! made

    copy(list, b, a, NULL, NULL);
    must(zeCommandListReset(list));
    fill(list, a, NULL); //! command-race
    must(zeCommandListClose(list));
    run_on(queue, list);
#ifdef MENDED
    must(zeCommandQueueSynchronize(queue, UINT64_MAX));
#endif
    copy(asynchronous, b, a, NULL, NULL); //! command-race
    leave_both(queue, list);
    release(a);
    release(b);
}
