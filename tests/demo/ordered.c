// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Counter-based events between in-order lists: immediate ones on two engines, and a regular one that is
// executed repeatedly.
#include "counter_events.h"
#include "parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t word(size_t i)
{
    return (uint32_t)i * 2654435761u + 12345u;
}

static void set_chain(struct kernel chain, uint32_t *data, uint32_t factor, uint32_t term, uint32_t n)
{
    set_argument(chain, 0, sizeof(data), &data);
    set_argument(chain, 1, sizeof(factor), &factor);
    set_argument(chain, 2, sizeof(term), &term);
    set_argument(chain, 3, sizeof(n), &n);
}

enum { ROUNDS = 32, ROUND_WORDS = 65536 };

// Each round copies a slice in, processes it and copies it out. One list feeds the copy engine, one the
// compute engine. Two events order everything; each is reused in every round, without a reset or a wait
// by the host. All rounds use the same device buffer, so a missing order shows.
// and no wait by the host. All rounds go through the same device buffer, so one order lost shows.
void part_engines(const struct gpu *gpu, struct line *line)
{
    const size_t words = (size_t)ROUNDS * ROUND_WORDS, bytes = ROUND_WORDS * sizeof(uint32_t);
    uint32_t *input = malloc(words * sizeof(uint32_t)), *output = calloc(words, sizeof(uint32_t));
    if (!input || !output)
        stop("out of memory");
    for (size_t i = 0; i < words; i++)
        input[i] = word(i);

    struct kernel chain = build_kernel(gpu, "chain", "chain");
    uint32_t *data = allocate(gpu, DEVICE_MEMORY, bytes);
    ze_command_list_handle_t copies =
        create_immediate_list(gpu, gpu->copy, IN_ORDER, ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
    ze_command_list_handle_t kernels =
        create_immediate_list(gpu, gpu->compute, IN_ORDER, ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
    ze_event_handle_t copied = create_counter_event(gpu), computed = create_counter_event(gpu);
    ze_group_count_t groups = group_items(chain, ROUND_WORDS);

    double start = now_ms();
    for (uint32_t round = 0; round < ROUNDS; round++) {
        size_t first = (size_t)round * ROUND_WORDS;
        set_chain(chain, data, 3, round, ROUND_WORDS);
        must(zeCommandListAppendMemoryCopy(copies, data, &input[first], bytes, copied, 0, NULL));
        must(zeCommandListAppendLaunchKernel(kernels, chain.handle, &groups, computed, 1, &copied));
        must(zeCommandListAppendMemoryCopy(copies, &output[first], data, bytes, copied, 1, &computed));
    }
    wait_for_event(copied);
    line->milliseconds = now_ms() - start;

    snprintf(line->size, sizeof(line->size), "%d rounds x %zu KiB", ROUNDS, bytes / 1024);
    for (size_t i = 0; i < words; i++)
        input[i] = input[i] * 3 + (uint32_t)(i / ROUND_WORDS);
    same_words(line, "output", output, input, words);

    must(zeEventDestroy(copied));
    must(zeEventDestroy(computed));
    must(zeCommandListDestroy(copies));
    must(zeCommandListDestroy(kernels));
    release(gpu, data);
    destroy_kernel(chain);
    free(input);
    free(output);
}

enum { EXECUTIONS = 3, RECORDED_WORDS = 262144 };

// The first list signals its event with the second of three commands. The second list waits for that
// event and copies the data. Both are recorded once; each wait refers to the latest execution.
void part_recorded(const struct gpu *gpu, struct line *line)
{
    const size_t bytes = RECORDED_WORDS * sizeof(uint32_t);
    const uint32_t n = RECORDED_WORDS;
    uint32_t *data = allocate(gpu, SHARED_MEMORY, bytes), *after = allocate(gpu, SHARED_MEMORY, bytes);
    uint32_t *copy = allocate(gpu, HOST_MEMORY, bytes), *expected = malloc(bytes);
    if (!expected)
        stop("out of memory");
    for (size_t i = 0; i < n; i++)
        data[i] = after[i] = expected[i] = word(i);
    memset(copy, 0, bytes);

    struct kernel chain = build_kernel(gpu, "chain", "chain");
    ze_group_count_t groups = group_items(chain, n);
    ze_event_handle_t ready = create_counter_event(gpu);
    ze_command_queue_handle_t queue1 = create_queue(gpu, gpu->compute, 0);
    ze_command_queue_handle_t queue2 = create_queue(gpu, gpu->copy, 0);
    ze_command_list_handle_t list1 = create_list(gpu, gpu->compute, IN_ORDER);
    ze_command_list_handle_t list2 = create_list(gpu, gpu->copy, IN_ORDER);

    set_chain(chain, data, 3, 1, n);
    must(zeCommandListAppendLaunchKernel(list1, chain.handle, &groups, NULL, 0, NULL));
    set_chain(chain, data, 1, 7, n);
    must(zeCommandListAppendLaunchKernel(list1, chain.handle, &groups, ready, 0, NULL));
    set_chain(chain, after, 5, 2, n);
    must(zeCommandListAppendLaunchKernel(list1, chain.handle, &groups, NULL, 0, NULL));
    must(zeCommandListClose(list1));
    must(zeCommandListAppendMemoryCopy(list2, copy, data, bytes, NULL, 1, &ready));
    must(zeCommandListClose(list2));

    for (int execution = 1; execution <= EXECUTIONS; execution++) {
        char what[32];
        double start = now_ms();
        execute(queue1, list1);
        execute(queue2, list2);
        finish(queue2);
        line->milliseconds += now_ms() - start;

        snprintf(what, sizeof(what), "copy %d: data", execution);
        for (size_t i = 0; i < n; i++)
            expected[i] = expected[i] * 3 + 8;
        same_words(line, what, copy, expected, n);
        finish(queue1);
    }
    for (size_t i = 0; i < n; i++) {
        expected[i] = word(i);
        for (int execution = 1; execution <= EXECUTIONS; execution++)
            expected[i] = expected[i] * 5 + 2;
    }
    same_words(line, "after", after, expected, n);
    snprintf(line->size, sizeof(line->size), "%d executions x %zu KiB", EXECUTIONS, bytes / 1024);

    must(zeCommandListDestroy(list1));
    must(zeCommandListDestroy(list2));
    must(zeCommandQueueDestroy(queue1));
    must(zeCommandQueueDestroy(queue2));
    must(zeEventDestroy(ready));
    destroy_kernel(chain);
    release(gpu, data);
    release(gpu, after);
    release(gpu, copy);
    free(expected);
}
