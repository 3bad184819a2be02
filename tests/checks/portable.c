// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs that run here and not on all devices.
#include "wrong.h"

static const struct size four_groups = LINE(4, 64);

WRONG(host_reads_device_memory)
{
    int *a = device_memory(256 * sizeof(int)); //! made
    int seen;

    launch(synchronous, "numbers", four_groups, ARG(a));
#ifdef MENDED
    must(zeCommandListAppendMemoryCopy(synchronous, &seen, a + 200, sizeof(int), NULL, 0, NULL));
#else
    seen = a[200]; //! device-memory-on-host
#endif
    if (seen != 200)
        abort();
    release(a);
}

WRONG(host_writes_device_memory)
{
    int *a = device_memory(256 * sizeof(int)), *sum = shared_memory(sizeof(int)), n = 256; //! made

#ifdef MENDED
    int one = 1;
    must(zeCommandListAppendMemoryFill(synchronous, a, &one, sizeof(int), n * sizeof(int), NULL, 0, NULL));
#else
    for (int i = 0; i < n; i++)
        a[i] = 1; //! device-memory-on-host
#endif
    launch(synchronous, "walk", LINE(1, 1), ARG(a), ARG(sum), ARG(n));
    if (*sum != 256)
        abort();
    release(a);
    release(sum);
}

WRONG(host_copies_from_device_memory)
{
    static int copy[256];
    int *a = device_memory(sizeof(copy)); //! made

    launch(synchronous, "numbers", four_groups, ARG(a));
#ifdef MENDED
    must(zeCommandListAppendMemoryCopy(synchronous, copy, a, sizeof(copy), NULL, 0, NULL));
#else
    memcpy(copy, a, sizeof(copy)); //! device-memory-on-host
#endif
    if (copy[255] != 255)
        abort();
    release(a);
}

// An event whose signal, or a wait for it, makes nothing visible, unless it is mended.
static ze_event_handle_t event_without_scope(ze_event_pool_handle_t pool)
{
    ze_event_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_DESC};
    ze_event_handle_t event;

#ifdef MENDED
    desc.signal = ZE_EVENT_SCOPE_FLAG_HOST;
#endif
    must(zeEventCreate(pool, &desc, &event));
    return event;
}

static void launch_numbers(int *a, ze_event_handle_t done)
{
    ze_kernel_handle_t kernel = kernel_of("numbers");
    ze_group_count_t groups = {4, 1, 1};

    must(zeKernelSetGroupSize(kernel, 64, 1, 1));
    must(zeKernelSetArgumentValue(kernel, 0, sizeof(a), &a));
    must(zeCommandListAppendLaunchKernel(asynchronous, kernel, &groups, done, 0, NULL));
    must(zeEventHostSynchronize(done, UINT64_MAX));
}

WRONG(results_without_a_scope)
{
    int *a = shared_memory(256 * sizeof(int)); //! made
    ze_event_pool_handle_t pool = new_pool(1);
    ze_event_handle_t done = event_without_scope(pool);

    launch_numbers(a, done);
    if (a[255] != 255) //! no-host-scope
        abort();
    must(zeEventDestroy(done));
    must(zeEventPoolDestroy(pool));
    release(a);
}

WRONG(copy_without_a_scope)
{
    int *a = host_memory(64), from = 7; //! made
    ze_event_pool_handle_t pool = new_pool(1);
    ze_event_handle_t done = event_without_scope(pool);

    must(zeCommandListAppendMemoryFill(asynchronous, a, &from, sizeof(from), 64, done, 0, NULL));
    must(zeEventHostSynchronize(done, UINT64_MAX));
    if (a[3] != 7) //! no-host-scope
        abort();
    must(zeEventDestroy(done));
    must(zeEventPoolDestroy(pool));
    release(a);
}

WRONG(event_that_the_host_cannot_see)
{
    ze_event_pool_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, .count = 1};
    ze_event_pool_handle_t pool;
    int *a = shared_memory(256 * sizeof(int));

#ifdef MENDED
    desc.flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE;
#endif
    must(zeEventPoolCreate(context, &desc, 1, &device, &pool));
    ze_event_handle_t done = new_event(pool, 0);
    must(zeCommandListAppendBarrier(asynchronous, done, 0, NULL));
    must(zeEventHostSynchronize(done, UINT64_MAX)); //! host-visible
    must(zeEventDestroy(done));
    must(zeEventPoolDestroy(pool));
    release(a);
}

WRONG(event_that_the_host_cannot_signal)
{
    ze_event_pool_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, .count = 1};
    ze_event_pool_handle_t pool;

#ifdef MENDED
    desc.flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE;
#endif
    must(zeEventPoolCreate(context, &desc, 1, &device, &pool));
    ze_event_handle_t go = new_event(pool, 0);
    must(zeCommandListAppendWaitOnEvents(asynchronous, 1, &go));
    must(zeEventHostSignal(go)); //! host-visible
    finish(asynchronous);
    must(zeEventDestroy(go));
    must(zeEventPoolDestroy(pool));
}

enum { ROWS = 64, WIDTH = 16 };

static void allow(const char *kernel, ze_kernel_indirect_access_flags_t flags)
{
    must(zeKernelSetIndirectAccess(kernel_of(kernel), flags));
}

// Adds the rows of a table, whose pointers are in memory.
static void add_rows(int **rows)
{
    int *sums = shared_memory(ROWS * sizeof(int)), width = WIDTH;

    launch(synchronous, "sums_of_rows", LINE(1, ROWS), ARG(sums), ARG(rows), ARG(width)); //! table_of_pointers: launched, flag_for_another_kind: launched, only_the_first_rows: launched, evicted_too_early: launched, rows_of_malloc: launched
    if (sums[ROWS - 1] != WIDTH)
        abort();
    release(sums);
}

static int *row(int *row)
{
    for (int i = 0; i < WIDTH; i++)
        row[i] = 1;
    return row;
}

static int **table(void *(*allocate)(size_t))
{
    int **rows = host_memory(ROWS * sizeof(int *));

    for (int i = 0; i < ROWS; i++)
        rows[i] = row(allocate(WIDTH * sizeof(int))); //! table_of_pointers: made, flag_for_another_kind: made, only_the_first_rows: made, evicted_too_early: made
    return rows;
}

static void release_table(int **rows)
{
    for (int i = 0; i < ROWS; i++)
        release(rows[i]);
    release(rows);
}

WRONG(table_of_pointers)
{
    int **rows = table(shared_memory);

    if (TWIN(false, true))
        allow("sums_of_rows", ZE_KERNEL_INDIRECT_ACCESS_FLAG_SHARED);
    add_rows(rows);
    release_table(rows);
}

WRONG(flag_for_another_kind)
{
    int **rows = table(host_memory);

    allow("sums_of_rows", TWIN(ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE, ZE_KERNEL_INDIRECT_ACCESS_FLAG_HOST));
    add_rows(rows);
    release_table(rows);
}

WRONG(only_the_first_rows)
{
    int **rows = table(shared_memory);

    for (int i = 0; i < TWIN(ROWS - 1, ROWS); i++)
        must(zeContextMakeMemoryResident(context, device, rows[i], WIDTH * sizeof(int)));
    add_rows(rows);
    release_table(rows);
}

WRONG(evicted_too_early)
{
    int **rows = table(shared_memory);

    for (int i = 0; i < ROWS; i++)
        must(zeContextMakeMemoryResident(context, device, rows[i], WIDTH * sizeof(int)));
#ifndef MENDED
    must(zeContextEvictMemory(context, device, rows[3], WIDTH * sizeof(int)));
#endif
    add_rows(rows);
    release_table(rows);
}

static void *from_malloc(size_t bytes)
{
    return TWIN(malloc(bytes), shared_memory(bytes));
}

WRONG(rows_of_malloc)
{
    int **rows = table(from_malloc);

    allow("sums_of_rows", ZE_KERNEL_INDIRECT_ACCESS_FLAG_HOST | ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE |
                              ZE_KERNEL_INDIRECT_ACCESS_FLAG_SHARED);
    add_rows(rows);
#ifdef MENDED
    release_table(rows);
#else
    release(rows);
#endif
}

struct node {
    struct node *next;
    int value;
};

WRONG(linked_list)
{
    struct node *first = NULL;
    int *length = shared_memory(sizeof(int));

    for (int i = 0; i < 10; i++) {
        struct node *node = host_memory(sizeof(*node)); //! made
        *node = (struct node){first, i};
        first = node;
    }
    if (TWIN(false, true))
        allow("length_of_list", ZE_KERNEL_INDIRECT_ACCESS_FLAG_HOST);
    launch(synchronous, "length_of_list", LINE(1, 1), ARG(length), ARG(first)); //! launched
    if (*length != 10)
        abort();
    while (first) {
        struct node *next = first->next;
        release(first);
        first = next;
    }
    release(length);
}

WRONG(pointer_in_a_structure)
{
    struct span {
        int *start, count;
    } span = {device_memory(400), 100}; //! made

    if (TWIN(false, true))
        allow("clear", ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE);
    launch(synchronous, "clear", LINE(2, 64), ARG(span)); //! launched
    release(span.start);
}

WRONG(memory_of_malloc)
{
    int *a = TWIN(malloc(256 * sizeof(int)), shared_memory(256 * sizeof(int)));

    launch(synchronous, "numbers", four_groups, ARG(a)); //! system-memory
    if (a[255] != 255)
        abort();
    if (TWIN(false, true))
        release(a);
}

WRONG(largest_groups)
{
    int *a = device_memory(1024 * sizeof(int));
    uint32_t items = 1024;

#ifdef MENDED
    ze_device_compute_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES};
    must(zeDeviceGetComputeProperties(device, &properties));
    if (items > properties.maxTotalGroupSize)
        items = properties.maxTotalGroupSize;
#endif
    launch(synchronous, "numbers", LINE(1024 / items, items), ARG(a)); //! group-size
    release(a);
}

WRONG(butterfly)
{
    int *a = shared_memory(256 * sizeof(int));

    memset(a, 0, 256 * sizeof(int));
    launch(synchronous, "butterfly", four_groups, ARG(a)); //! launched
    release(a);
}

WRONG(halves)
{
    float *a = shared_memory(256 * sizeof(float));

    memset(a, 0, 256 * sizeof(float));
    launch(synchronous, "halves", four_groups, ARG(a)); //! launched
    release(a);
}

WRONG(one_after_another)
{
    unsigned *turn = shared_memory(sizeof(unsigned));
    int *log = device_memory(4 * sizeof(int));

    *turn = 0;
    launch(synchronous, "one_after_another", LINE(4, 1), ARG(turn), ARG(log)); //! launched
    release(turn);
    release(log);
}

WRONG(locked)
{
    int *sum = shared_memory(sizeof(int)), *lock = shared_memory(sizeof(int));

    *sum = *lock = 0;
    launch(synchronous, "locked", four_groups, ARG(lock), ARG(sum)); //! launched
    if (*sum != 4)
        abort();
    release(sum);
    release(lock);
}

// Programs that look wrong and are right.
WRONG(no_mistake_but_one)
{
    int *a = shared_memory(256 * sizeof(int)), *sum = shared_memory(sizeof(int)), n = 256;
    unsigned *next = shared_memory(sizeof(unsigned)), *largest = shared_memory(sizeof(unsigned)), count = 256;
    ze_event_pool_handle_t pool = new_pool(2);
    ze_event_handle_t done = event_without_scope(pool);

    *next = *largest = 0;
    launch(synchronous, "progress", four_groups, ARG(next), ARG(largest), ARG(a), ARG(count));
    launch(synchronous, "walk", LINE(1, 1), ARG(a), ARG(sum), ARG(n));
    if (*sum != 256 || *largest != 255)
        abort();
    // A barrier behind it makes visible what the event does not.
    launch_numbers(a, done);
    finish(asynchronous);
    if (a[255] != 255)
        abort();
    // Nothing has written this since.
    must(zeEventHostReset(done));
    must(zeCommandListAppendBarrier(asynchronous, done, 0, NULL));
    must(zeEventHostSynchronize(done, UINT64_MAX));
    a[0] = a[1];
    // The device and the driver access device memory, and the host does not.
    char *far = device_memory(1 << 20), text[100];
    for (int i = 0; i < 100; i++) {
        must(zeCommandListAppendMemoryFill(synchronous, far, &i, 1, 1 << 20, NULL, 0, NULL));
        must(zeCommandListAppendMemoryCopy(synchronous, text, far + i, sizeof(text), NULL, 0, NULL));
        if (text[7] != i)
            abort();
    }
    int *wrong = device_memory(4); //! made
    if (TWIN(true, false))
        *wrong = 1; //! device-memory-on-host
    release(wrong);
    release(far);
    must(zeEventDestroy(done));
    must(zeEventPoolDestroy(pool));
    release(a);
    release(sum);
    release(next);
    release(largest);
}
