// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs whose kernels and commands access memory outside of their allocations.
#include "wrong.h"

WRONG(past_the_end)
{
    int n = 1000, *a = device_memory(n * sizeof(int)); //! made

    launch(synchronous, "past_the_end", LINE(16, 64), ARG(a), ARG(n)); //! launched
    release(a);
}

WRONG(before_the_start)
{
    int *a = device_memory(256 * sizeof(int)), zero = 0; //! made

    must(zeCommandListAppendMemoryFill(synchronous, a, &zero, 4, 1024, NULL, 0, NULL));
    launch(synchronous, "before_the_start", LINE(4, 64), ARG(a)); //! launched
    release(a);
}

WRONG(one_row_too_many)
{
    int width = 32;
    float *in = shared_memory(width * 32 * sizeof(float)); //! made
    float *out = shared_memory(width * 32 * sizeof(float));

    memset(in, 0, width * 32 * sizeof(float));
    launch(synchronous, "one_row_too_many", ((struct size){{1, 32, 1}, {32, 1, 1}}), ARG(in), ARG(out), ARG(width)); //! launched
    release(in);
    release(out);
}

WRONG(field_of_a_short_array)
{
    int n = 100;
    char *all = host_memory(n * 16); //! made

    memset(all, 0, n * 16);
    launch(synchronous, "field_of_a_short_array", LINE(2, 64), ARG(all), ARG(n)); //! launched
    release(all);
}

WRONG(fill_after_free)
{
    int *a = device_memory(256 * sizeof(int)); //! made

#ifndef MENDED
    release(a); //! freed
#endif
    launch(synchronous, "fill_after_free", LINE(4, 64), ARG(a)); //! launched
#ifdef MENDED
    release(a);
#endif
}

WRONG(vector_at_the_edge)
{
    int n = 254;
    float *a = shared_memory(n * sizeof(float)); //! made

    memset(a, 0, n * sizeof(float));
    launch(synchronous, "vector_at_the_edge", LINE(1, 64), ARG(a), ARG(n)); //! launched
    release(a);
}

WRONG(misaligned_atomic)
{
    char *bytes = shared_memory(16);

    memset(bytes, 0, 16);
    launch(synchronous, "misaligned_atomic", LINE(1, 8), ARG(bytes)); //! launched
    release(bytes);
}

WRONG(count_past_the_end)
{
    int n = 10;
    uint32_t *counts = shared_memory(n * sizeof(uint32_t)), *keys = shared_memory(64 * sizeof(uint32_t)); //! made

    memset(counts, 0, n * sizeof(uint32_t));
    for (int i = 0; i < 64; i++)
        keys[i] = i % 11;
    launch(synchronous, "count_past_the_end", LINE(1, 64), ARG(counts), ARG(keys), ARG(n)); //! launched
    release(counts);
    release(keys);
}

WRONG(through_a_function)
{
    int n = 100, *a = device_memory(n * sizeof(int)); //! made

    launch(synchronous, "through_a_function", LINE(2, 64), ARG(a), ARG(n)); //! launched
    release(a);
}

WRONG(through_a_generic_pointer)
{
    int n = 100, *a = device_memory(n * sizeof(int)); //! made

    launch(synchronous, "through_a_generic_pointer", LINE(2, 64), ARG(a), ARG(n)); //! launched
    release(a);
}

WRONG(masked_items)
{
    int n = 67, *a = shared_memory(n * sizeof(int)); //! made

    memset(a, 0, n * sizeof(int));
    launch(synchronous, "masked_items", LINE(2, 64), ARG(a), ARG(n)); //! launched
    release(a);
}

WRONG(signed_index)
{
    int *a = device_memory(64 * sizeof(int)), *index = shared_memory(64 * sizeof(int)); //! made

    for (int i = 0; i < 64; i++)
        index[i] = i == 33 ? -5 : i;
    launch(synchronous, "signed_index", LINE(1, 64), ARG(a), ARG(index)); //! launched
    release(a);
    release(index);
}

WRONG(through_a_null_pointer)
{
    int *a = NULL;

    // The access stops the device, so the launch fails.
    ze_kernel_handle_t kernel = kernel_of("through_a_null_pointer");
    ze_group_count_t groups = {1, 1, 1};
    must(zeKernelSetGroupSize(kernel, 8, 1, 1));
    must(zeKernelSetArgumentValue(kernel, 0, sizeof(a), &a));
    zeCommandListAppendLaunchKernel(synchronous, kernel, &groups, NULL, 0, NULL); //! launched
}

WRONG(wild_pointer)
{
    uint64_t *a = shared_memory(16);

    a[0] = (uint64_t)&a[1];
    launch(synchronous, "wild_pointer", LINE(1, 8), ARG(a)); //! launched
    release(a);
}

WRONG(pointer_in_memory)
{
    int n = 64, **all = shared_memory(2 * sizeof(int *));
    int *there = device_memory(n * sizeof(int)); //! made

    all[1] = there;
    release(there); //! freed
    all[1] = TWIN(there, NULL);
    must(zeKernelSetIndirectAccess(kernel_of("pointer_in_memory"), ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE));
    launch(synchronous, "pointer_in_memory", LINE(1, 64), ARG(all), ARG(n)); //! launched
    release(all);
}

WRONG(copy_of_a_structure)
{
    char *to = shared_memory(64 * 16), *from = shared_memory(TWIN(63, 64) * 16); //! made

    memset(from, 0, 63 * 16);
    launch(synchronous, "copy_of_a_structure", LINE(1, 64), ARG(to), ARG(from)); //! launched
    release(to);
    release(from);
}

WRONG(constant_table)
{
    int n = 10, *out = shared_memory(64 * sizeof(int)), *table = shared_memory(n * sizeof(int)); //! made

    launch(synchronous, "constant_table", LINE(1, 64), ARG(out), ARG(table), ARG(n)); //! launched
    release(out);
    release(table);
}

WRONG(ends_in_a_loop)
{
    int n = 16;
    float *sums = shared_memory(64 * sizeof(float)), *in = shared_memory(64 * n * sizeof(float)); //! made

    launch(synchronous, "ends_in_a_loop", LINE(1, 64), ARG(sums), ARG(in), ARG(n)); //! launched
    release(sums);
    release(in);
}

WRONG(wider_than_its_array)
{
    int n = 64;
    char *a = shared_memory(n); //! made

    launch(synchronous, "wider_than_its_array", LINE(1, 64), ARG(a), ARG(n)); //! launched
    release(a);
}

WRONG(table_of_the_module)
{
    int *out = shared_memory(64 * sizeof(int));

    launch(synchronous, "table_of_the_module", LINE(1, 64), ARG(out)); //! launched
    release(out);
}

WRONG(freed_twice)
{
    int *a = device_memory(100); //! made

    release(a); //! freed
#ifndef MENDED
    zeMemFree(context, a); //! double-free
#endif
}

WRONG(free_in_the_middle)
{
    int *a = shared_memory(100); //! made

    zeMemFree(context, TWIN(a + 4, a)); //! bad-free
#ifndef MENDED
    release(a);
#endif
}

WRONG(free_of_the_stack)
{
    int here;

#ifndef MENDED
    zeMemFree(context, &here); //! bad-free
#endif
    (void)here;
}

WRONG(copy_past_the_end)
{
    char *a = device_memory(100), *b = shared_memory(200); //! made

    zeCommandListAppendMemoryCopy(synchronous, b, a, TWIN(200, 100), NULL, 0, NULL); //! out-of-bounds
    release(a);
    release(b);
}

WRONG(copy_after_free)
{
    char *a = device_memory(100), *b = shared_memory(100); //! made

    memset(b, 0, 100);
#ifndef MENDED
    release(a); //! freed
#endif
    zeCommandListAppendMemoryCopy(synchronous, a, b, 100, NULL, 0, NULL); //! use-after-free
#ifdef MENDED
    release(a);
#endif
    release(b);
}

WRONG(fill_past_the_end)
{
    int *a = device_memory(1000), pattern = 7; //! made

    zeCommandListAppendMemoryFill(synchronous, a, &pattern, sizeof(pattern), TWIN(4 * 1000, 1000), NULL, 0, NULL); //! out-of-bounds
    release(a);
}

WRONG(region_with_a_wrong_pitch)
{
    char *a = shared_memory(64 * 64), *b = shared_memory(64 * 64); //! made
    ze_copy_region_t region = {0, 0, 0, 64, 64, 0};

    memset(a, 0, 64 * 64);
    zeCommandListAppendMemoryCopyRegion(synchronous, b, &region, 64, 0, a, &region, TWIN(68, 64), 0, NULL, 0, NULL); //! out-of-bounds
    release(a);
    release(b);
}

WRONG(region_one_slice_too_deep)
{
    char *a = shared_memory(16 * 16 * 4), *b = shared_memory(16 * 16 * 5); //! made
    ze_copy_region_t region = {0, 0, 0, 16, 16, TWIN(5, 4)};

    memset(a, 0, 16 * 16 * 4);
    zeCommandListAppendMemoryCopyRegion(synchronous, b, &region, 16, 256, a, &region, 16, 256, NULL, 0, NULL); //! out-of-bounds
    release(a);
    release(b);
}

WRONG(timestamps_past_the_end)
{
    ze_event_pool_handle_t pool = new_pool(4);
    ze_event_handle_t events[4];
    char *times = shared_memory(TWIN(3, 4) * sizeof(ze_kernel_timestamp_result_t)); //! made

    for (uint32_t i = 0; i < 4; i++) {
        events[i] = new_event(pool, i);
        must(zeCommandListAppendSignalEvent(synchronous, events[i]));
    }
    zeCommandListAppendQueryKernelTimestamps(synchronous, 4, events, times, NULL, NULL, 0, NULL); //! out-of-bounds
    for (uint32_t i = 0; i < 4; i++)
        must(zeEventDestroy(events[i]));
    must(zeEventPoolDestroy(pool));
    release(times);
}

WRONG(clock_past_the_end)
{
    char *times = shared_memory(12); //! made

    zeCommandListAppendWriteGlobalTimestamp(synchronous, (uint64_t *)(times + TWIN(8, 0)), NULL, 0, NULL); //! out-of-bounds
    release(times);
}

WRONG(freed_while_in_use)
{
    ze_event_pool_handle_t pool = new_pool(1);
    ze_event_handle_t go = new_event(pool, 0);
    int n = 64, *a = device_memory(n * sizeof(int)), zero = 0; //! made

    must(zeCommandListAppendWaitOnEvents(asynchronous, 1, &go));
    must(zeCommandListAppendMemoryFill(asynchronous, a, &zero, 4, 4 * n, NULL, 0, NULL));
#ifdef MENDED
    must(zeEventHostSignal(go));
    finish(asynchronous);
#endif
    release(a); //! free-in-use
#ifndef MENDED
    must(zeEventHostSignal(go));
    finish(asynchronous);
#endif
    must(zeEventDestroy(go));
    must(zeEventPoolDestroy(pool));
}

WRONG(private_array)
{
    int *out = shared_memory(64 * sizeof(int)), far = 3;

    launch(synchronous, "private_array", LINE(1, 64), ARG(out), ARG(far)); //! launched
    release(out);
}

WRONG(private_array_before_its_start)
{
    int *in = shared_memory(16 * sizeof(int)), *out = shared_memory(64 * sizeof(int));

    for (int i = 0; i < 16; i++)
        in[i] = i % 4;
    launch(synchronous, "private_array_before_its_start", LINE(1, 64), ARG(in), ARG(out)); //! launched
    release(in);
    release(out);
}

WRONG(local_array)
{
    int *out = shared_memory(64 * sizeof(int));

    launch(synchronous, "local_array", LINE(1, 64), ARG(out)); //! launched
    release(out);
}

WRONG(local_tile_without_its_border)
{
    int *out = shared_memory(256 * sizeof(int));

    launch(synchronous, "local_tile_without_its_border", ((struct size){{1, 1, 1}, {16, 16, 1}}), ARG(out)); //! launched
    release(out);
}

WRONG(local_argument)
{
    int *out = shared_memory(64 * sizeof(int));

    launch(synchronous, "local_argument", LINE(1, 64), ARG(out), LOCAL(TWIN(60, 64) * sizeof(int))); //! launched
    release(out);
}

WRONG(second_local_argument)
{
    int *out = shared_memory(64 * sizeof(int));

    launch(synchronous, "second_local_argument", LINE(1, 64), ARG(out), LOCAL(64), LOCAL(64 * sizeof(int))); //! launched
    release(out);
}

WRONG(through_a_native_binary)
{
    size_t size;
    uint8_t *bytes;
    int n = 40, *a = device_memory(n * sizeof(int)); //! made
    ze_module_handle_t built = module;

    must(zeModuleGetNativeBinary(built, &size, NULL));
    bytes = malloc(size);
    must(zeModuleGetNativeBinary(built, &size, bytes));
    ze_module_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_MODULE_DESC,
                             .format = ZE_MODULE_FORMAT_NATIVE,
                             .inputSize = size,
                             .pInputModule = bytes};
    must(zeModuleCreate(context, device, &desc, &module, NULL));
    launch(synchronous, "through_a_native_binary", LINE(1, 64), ARG(a), ARG(n)); //! launched
    ze_kernel_handle_t kernel = kernel_of("through_a_native_binary");
    must(zeKernelDestroy(kernel));
    forget(kernel);
    must(zeModuleDestroy(module));
    module = built;
    free(bytes);
    release(a);
}

WRONG(prints_without_an_end)
{
    char *text = shared_memory(16); //! made

    memset(text, 'a', 16);
    text[15] = TWIN('a', 0);
    launch(synchronous, "prints_without_an_end", LINE(1, 1), ARG(text)); //! launched
    release(text);
}

WRONG(private_structure)
{
    int which = TWIN(13, 5), *out = shared_memory(64 * sizeof(int));

    launch(synchronous, "private_structure", LINE(1, 64), ARG(out), ARG(which)); //! launched
    release(out);
}
