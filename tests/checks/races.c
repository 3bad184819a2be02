// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs whose kernels access memory without order.
#include "wrong.h"

static int *numbers(int n)
{
    int *memory = shared_memory(n * sizeof(int));

    for (int i = 0; i < n; i++)
        memory[i] = i * 7 % 31;
    return memory;
}

static uint8_t *small_numbers(int n)
{
    uint8_t *memory = shared_memory(n);

    for (int i = 0; i < n; i++)
        memory[i] = i * 7 % 31;
    return memory;
}

WRONG(sum_without_a_barrier)
{
    int *in = numbers(256), *sums = numbers(4);

    launch(synchronous, "sum_without_a_barrier", LINE(4, 64), ARG(in), ARG(sums), LOCAL(64 * sizeof(int))); //! launched
    release(in);
    release(sums);
}

WRONG(scan_with_one_barrier)
{
    int *a = numbers(256);

    launch(synchronous, "scan_with_one_barrier", LINE(4, 64), ARG(a), LOCAL(64 * sizeof(int))); //! launched
    release(a);
}

WRONG(tile_without_a_barrier)
{
    int width = 64, *in = numbers(width * width), *out = numbers(width * width);
    struct size size = {{4, 4, 1}, {16, 16, 1}};

    launch(synchronous, "tile_without_a_barrier", size, ARG(in), ARG(out), ARG(width)); //! launched
    release(in);
    release(out);
}

WRONG(counts_without_atomics)
{
    uint8_t *in = small_numbers(256);
    int *counts = numbers(8); //! made

    launch(synchronous, "counts_without_atomics", LINE(4, 64), ARG(in), ARG(counts)); //! launched
    release(in);
    release(counts);
}

WRONG(local_counts_without_atomics)
{
    uint8_t *in = small_numbers(256);
    int *counts = numbers(8);

    launch(synchronous, "local_counts_without_atomics", LINE(4, 64), ARG(in), ARG(counts)); //! launched
    release(in);
    release(counts);
}

WRONG(border_of_the_neighbour)
{
    int *a = numbers(256), *out = numbers(256);

    launch(synchronous, "border_of_the_neighbour", LINE(4, 64), ARG(a), ARG(out)); //! launched
    release(a);
    release(out);
}

WRONG(flag_without_release)
{
    int *sums = device_memory(4 * sizeof(int)), *counts = numbers(2), *total = counts + 1; //! made

    launch(synchronous, "flag_without_release", LINE(4, 64), ARG(sums), ARG(counts), ARG(total)); //! launched
    release(sums);
    release(counts);
}

WRONG(tile_used_again)
{
    int tiles = 3, *in = numbers(3 * 64), *out = numbers(64);

    launch(synchronous, "tile_used_again", LINE(1, 64), ARG(in), ARG(out), LOCAL(64 * sizeof(int)), ARG(tiles)); //! launched
    release(in);
    release(out);
}

WRONG(value_of_the_first_item)
{
    int *in = numbers(4), *out = numbers(256);

    launch(synchronous, "value_of_the_first_item", LINE(4, 64), ARG(in), ARG(out)); //! launched
    release(in);
    release(out);
}

WRONG(barrier_for_groups)
{
    int *a = device_memory(256 * sizeof(int)), *out = numbers(256); //! made

    launch(synchronous, "barrier_for_groups", LINE(4, 64), ARG(a), ARG(out)); //! launched
    release(a);
    release(out);
}

WRONG(two_items_for_a_byte)
{
    uint8_t *marks = device_memory(64); //! made

    launch(synchronous, "two_items_for_a_byte", LINE(1, 64), ARG(marks)); //! launched
    release(marks);
}

WRONG(turned_round_in_place)
{
    int *all = numbers(256), *out = numbers(256);

    launch(synchronous, "turned_round_in_place", LINE(1, 64), ARG(all), ARG(out)); //! launched
    release(all);
    release(out);
}

WRONG(atomic_and_plain)
{
    int *count = numbers(1), *out = numbers(64);

    launch(synchronous, "atomic_and_plain", LINE(1, 64), ARG(count), ARG(out)); //! launched
    release(count);
    release(out);
}

WRONG(sub_group_in_step)
{
    int *a = numbers(256);

    launch(synchronous, "sub_group_in_step", LINE(4, 64), ARG(a), LOCAL(64 * sizeof(int))); //! launched
    release(a);
}

WRONG(all_write_the_result)
{
    int *out = device_memory(sizeof(int)); //! made
    ze_command_list_handle_t list = regular_list();

    launch(list, "all_write_the_result", LINE(4, 64), ARG(out)); //! launched
    must(zeCommandListClose(list));
    // Executions of one list are ordered.
    execute(list);
    execute(list);
    must(zeCommandListDestroy(list));
    release(out);
}

WRONG(through_a_function)
{
    int *out = numbers(256);

    launch(synchronous, "through_a_function", LINE(4, 64), ARG(out), LOCAL(64 * sizeof(int))); //! launched
    release(out);
}

WRONG(copy_without_a_wait)
{
    int *in = numbers(64), *out = numbers(256);

    launch(synchronous, "copy_without_a_wait", LINE(4, 64), ARG(in), ARG(out), LOCAL(64 * sizeof(int))); //! launched
    release(in);
    release(out);
}

WRONG(groups_that_wait_for_all)
{
    int *parts = device_memory(32 * sizeof(int)), *arrived = shared_memory(16 * sizeof(int)); //! made
    int *out = numbers(32 * 64);

    // Many groups at the same address, more than processors.
    for (int i = 0; i < 16; i++) {
        int *one = arrived + i;
        *one = 0;
        cooperative = true;
        launch(synchronous, "groups_that_wait_for_all", LINE(32, 64), ARG(parts), ARG(one), ARG(out)); //! launched
    }
    release(parts);
    release(arrived);
    release(out);
}
