// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The benchmark of many threads on Level Zero.
#include "cost.h"
#include "counter_events.h"
#include "gpu.h"
#include "threads.h"

#include <stdlib.h>
#include <time.h>

// A recorded list is reset after RECORDED commands, and a stream is waited for after STREAMED commands.
enum { RECORDED = 4096, STREAMED = 256, COPIED = 1 << 16, ALLOCATED = 4096, SHORT = 64, LONG = 1 << 20, SERIES = 256, PROMPT = 8 };

// Groups of kernels that take about 0.5 and 100 µs.
static const ze_group_count_t few_groups = {16, 1, 1}, many_groups = {4096, 1, 1};

// The pause of a host between two commands: longer than a short command, shorter than a device waits
// for the next.
static const double PAUSE_NS = 4000;
// Longer than two ticks of the device's watchdog.
static const struct timespec rest = {.tv_nsec = 12000000};

struct device {
    struct gpu gpu;
    struct kernel kernel;
};

struct worker {
    const struct gpu *gpu;
    ze_kernel_handle_t kernel;
    ze_command_list_handle_t recorded, immediate, series;
    ze_command_queue_handle_t queue;
    ze_event_handle_t event;
    uint8_t *from, *to;
    unsigned appended, streamed;
};

static const ze_group_count_t one_group = {1, 1, 1};

struct device *open_device(const char *modules)
{
    struct device *device = calloc(1, sizeof(*device));

    if (!device)
        stop("no memory");
    open_gpu(&device->gpu, modules);
    device->kernel = build_kernel(&device->gpu, "empty", "empty");
    // Looks the function up before there are threads.
    must(zeEventDestroy(create_counter_event(&device->gpu)));
    return device;
}

struct worker *create_worker(struct device *device, uint32_t engine)
{
    const ze_kernel_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_KERNEL_DESC, .pKernelName = "empty"};
    const struct gpu *gpu = &device->gpu;
    struct worker *worker = calloc(1, sizeof(*worker));
    const void *nowhere = NULL;

    if (!worker)
        stop("no memory");
    worker->gpu = gpu;
    must(zeKernelCreate(device->kernel.module, &desc, &worker->kernel));
    must(zeKernelSetGroupSize(worker->kernel, 1, 1, 1));
    for (uint32_t i = 0; i < 3; i++)
        must(zeKernelSetArgumentValue(worker->kernel, i, sizeof(nowhere), &nowhere));
    worker->recorded = create_list(gpu, gpu->compute, IN_ORDER);
    worker->immediate =
        create_immediate_list_on(gpu, gpu->compute, engine, IN_ORDER, ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
    worker->event = create_counter_event(gpu);
    worker->from = allocate(gpu, HOST_MEMORY, LONG);
    worker->to = allocate(gpu, HOST_MEMORY, LONG);
    worker->queue = create_queue(gpu, gpu->compute, engine);
    worker->series = create_list(gpu, gpu->compute, IN_ORDER);
    for (unsigned i = 0; i < SERIES; i++)
        must(zeCommandListAppendMemoryCopy(worker->series, worker->to, worker->from, SHORT, NULL, 0, NULL));
    must(zeCommandListClose(worker->series));
    return worker;
}

// Without a time limit the driver may let the waiting thread itself run the kernel.
static void wait_without_limit(struct worker *worker)
{
    must(zeEventHostSynchronize(worker->event, UINT64_MAX));
}

void finish_worker(struct worker *worker)
{
    must(zeCommandListAppendBarrier(worker->immediate, worker->event, 0, NULL));
    wait_without_limit(worker);
}

void destroy_worker(struct worker *worker)
{
    release(worker->gpu, worker->from);
    release(worker->gpu, worker->to);
    must(zeEventDestroy(worker->event));
    must(zeCommandQueueDestroy(worker->queue));
    must(zeCommandListDestroy(worker->series));
    must(zeCommandListDestroy(worker->immediate));
    must(zeCommandListDestroy(worker->recorded));
    must(zeKernelDestroy(worker->kernel));
    free(worker);
}

static void append(struct worker *worker, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        if (worker->appended++ % RECORDED == 0)
            must(zeCommandListReset(worker->recorded));
        must(zeCommandListAppendLaunchKernel(worker->recorded, worker->kernel, &one_group, NULL, 0, NULL));
    }
}

static void create_event(struct worker *worker, unsigned times)
{
    for (unsigned i = 0; i < times; i++)
        must(zeEventDestroy(create_counter_event(worker->gpu)));
}

static void launch_and_wait(struct worker *worker, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        must(zeCommandListAppendLaunchKernel(worker->immediate, worker->kernel, &one_group, worker->event, 0,
                                             NULL));
        wait_without_limit(worker);
    }
}

// The device's threads run the kernel.
static void wait_with_limit(struct worker *worker, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        must(zeCommandListAppendLaunchKernel(worker->immediate, worker->kernel, &one_group, worker->event, 0,
                                             NULL));
        must(zeEventHostSynchronize(worker->event, PATIENCE_NS));
    }
}

static void stream_groups(struct worker *worker, unsigned times, const ze_group_count_t *groups)
{
    for (unsigned i = 0; i < times; i++) {
        must(zeCommandListAppendLaunchKernel(worker->immediate, worker->kernel, groups, NULL, 0, NULL));
        if (++worker->streamed % STREAMED == 0)
            finish_worker(worker);
    }
}

static void stream(struct worker *worker, unsigned times)
{
    stream_groups(worker, times, &one_group);
}

static void stream_few_groups(struct worker *worker, unsigned times)
{
    stream_groups(worker, times, &few_groups);
}

static void stream_many_groups(struct worker *worker, unsigned times)
{
    stream_groups(worker, times, &many_groups);
}

// A thread that usually waits at once, and sometimes only polls.
static void launch_and_ask(struct worker *worker, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        launch_and_wait(worker, PROMPT);
        must(zeCommandListAppendLaunchKernel(worker->immediate, worker->kernel, &one_group, worker->event, 0,
                                             NULL));
        for (;;) {
            ze_result_t result = zeEventQueryStatus(worker->event);

            if (result == ZE_RESULT_SUCCESS)
                break;
            if (result != ZE_RESULT_NOT_READY)
                must(result);
        }
    }
}

// A thread that usually waits at once, and sometimes only reads the result.
static void copy_and_look(struct worker *worker, unsigned times)
{
    const volatile uint8_t *result = worker->to;

    for (unsigned i = 0; i < times; i++) {
        launch_and_wait(worker, PROMPT);
        worker->from[0]++;
        must(zeCommandListAppendMemoryCopy(worker->immediate, worker->to, worker->from, SHORT, NULL, 0, NULL));
        while (*result != worker->from[0])
            ;
    }
}

static void rest_and_launch(struct worker *worker, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        nanosleep(&rest, NULL);
        launch_and_wait(worker, 1);
    }
}

static void allocate_and_free(struct worker *worker, unsigned times)
{
    for (unsigned i = 0; i < times; i++)
        release(worker->gpu, allocate(worker->gpu, HOST_MEMORY, ALLOCATED));
}

static void copy(struct worker *worker, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        must(zeCommandListAppendMemoryCopy(worker->immediate, worker->to, worker->from, COPIED, worker->event,
                                           0, NULL));
        wait_without_limit(worker);
    }
}

static void stream_slowly(struct worker *worker, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        stream(worker, 1);
        for (double end = now_ns() + PAUSE_NS; now_ns() < end;)
            ;
    }
}

static void stream_short_copies(struct worker *worker, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        must(zeCommandListAppendMemoryCopy(worker->immediate, worker->to, worker->from, SHORT, NULL, 0, NULL));
        if (++worker->streamed % STREAMED == 0)
            finish_worker(worker);
    }
}

static void run_series(struct worker *worker, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        execute(worker->queue, worker->series);
        must(zeCommandQueueSynchronize(worker->queue, UINT64_MAX));
    }
}

static void copy_long(struct worker *worker, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        must(zeCommandListAppendMemoryCopy(worker->immediate, worker->to, worker->from, LONG, worker->event, 0,
                                           NULL));
        wait_without_limit(worker);
    }
}

static void fill_long(struct worker *worker, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        must(zeCommandListAppendMemoryFill(worker->immediate, worker->to, &i, 1, LONG, worker->event, 0, NULL));
        wait_without_limit(worker);
    }
}

const struct operation operations[] = {
    {"append", 1, append},
    {"event", 1, create_event},
    {"trip", 1, launch_and_wait},
    {"trip-4", 4, launch_and_wait},
    {"stream", 1, stream},
    {"stream-4", 4, stream},
    {"allocate", 1, allocate_and_free},
    {"copy-4", 4, copy},
    {"limit", 1, wait_with_limit},
    {"slowly", 1, stream_slowly},
    {"short", 1, stream_short_copies},
    {"series", 1, run_series},
    {"long", 4, copy_long},
    {"fill", 4, fill_long},
    {"few", 1, stream_few_groups},
    {"many", 1, stream_many_groups},
    {"ask", 1, launch_and_ask},
    {"look", 1, copy_and_look},
    {"rest", 1, rest_and_launch},
    {0},
};
