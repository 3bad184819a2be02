// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs whose kernels read uninitialised memory.
#include "wrong.h"

WRONG(sums_without_a_start)
{
    int n = 16;
    int *sums = device_memory(64 * sizeof(int)), *in = shared_memory(n * sizeof(int));

    for (int i = 0; i < n; i++)
        in[i] = i;
    launch(synchronous, "sums_without_a_start", LINE(1, 64), ARG(sums), ARG(in), ARG(n)); //! launched
    release(sums);
    release(in);
}

WRONG(half_written)
{
    int n = 64, *a = device_memory(n * sizeof(int)), *out = shared_memory(sizeof(int)); //! made

    launch(synchronous, "every_second", LINE(1, 64), ARG(a));
    launch(synchronous, "add_all", LINE(1, 1), ARG(a), ARG(out), ARG(n)); //! launched
    release(a);
    release(out);
}

WRONG(fill_too_short)
{
    int n = 64, zero = 0;
    int *a = device_memory(n * sizeof(int)), *out = shared_memory(sizeof(int)); //! made

    must(zeCommandListAppendMemoryFill(synchronous, a, &zero, sizeof(zero), TWIN(n, n * sizeof(int)), NULL, 0, NULL));
    launch(synchronous, "add_all", LINE(1, 1), ARG(a), ARG(out), ARG(n)); //! launched
    release(a);
    release(out);
}

// The copy is allowed, the sum of the copied values is not.
WRONG(copy_of_nothing)
{
    int n = 64, zero = 0;
    int *a = device_memory(n * sizeof(int));
    int *b = device_memory(n * sizeof(int)), *out = shared_memory(sizeof(int)); //! made

#ifdef MENDED
    must(zeCommandListAppendMemoryFill(synchronous, a, &zero, sizeof(zero), n * sizeof(int), NULL, 0, NULL));
#endif
    (void)zero;
    must(zeCommandListAppendMemoryCopy(synchronous, b, a, n * sizeof(int), NULL, 0, NULL));
    launch(synchronous, "add_all", LINE(1, 1), ARG(b), ARG(out), ARG(n)); //! launched
    release(a);
    release(b);
    release(out);
}

WRONG(branch)
{
    int *flags = device_memory(64 * sizeof(int)), *out = shared_memory(64 * sizeof(int)); //! made
    int one = 1;

#ifdef MENDED
    must(zeCommandListAppendMemoryFill(synchronous, flags, &one, sizeof(one), 64 * sizeof(int), NULL, 0, NULL));
#endif
    (void)one;
    launch(synchronous, "branch", LINE(1, 64), ARG(flags), ARG(out)); //! launched
    release(flags);
    release(out);
}

WRONG(gather)
{
    int *index = device_memory(64 * sizeof(int)); //! made
    float *in = shared_memory(64 * sizeof(float)), *out = shared_memory(64 * sizeof(float));

#ifdef MENDED
    launch(synchronous, "every_second", LINE(1, 64), ARG(index));
#endif
    launch(synchronous, "gather", LINE(1, 64), ARG(index), ARG(in), ARG(out)); //! launched
    release(index);
    release(in);
    release(out);
}

WRONG(field_never_written)
{
    char *first = device_memory(64 * 8);
    char *second = device_memory(64 * 8); //! made
    int *out = shared_memory(64 * sizeof(int));

    launch(synchronous, "make_pairs", LINE(1, 64), ARG(first));
    launch(synchronous, "move_pairs", LINE(1, 64), ARG(second), ARG(first));
    launch(synchronous, "use_pairs", LINE(1, 64), ARG(second), ARG(out)); //! launched
    release(first);
    release(second);
    release(out);
}

WRONG(count)
{
    uint32_t *counts = device_memory(4 * sizeof(uint32_t)), zero = 0; //! made

#ifdef MENDED
    must(zeCommandListAppendMemoryFill(synchronous, counts, &zero, sizeof(zero), 16, NULL, 0, NULL));
#endif
    (void)zero;
    launch(synchronous, "count", LINE(1, 64), ARG(counts)); //! launched
    release(counts);
}

WRONG(three_of_four)
{
    float *v = device_memory(64 * 16), *out = shared_memory(64 * sizeof(float)); //! made

    launch(synchronous, "three_of_four", LINE(1, 64), ARG(v));
    launch(synchronous, "length_of_all", LINE(1, 64), ARG(v), ARG(out)); //! launched
    release(v);
    release(out);
}

// A regular list, executed twice: the second time the memory is initialised.
WRONG(read_before_it_is_written)
{
    int n = 64, *a = device_memory(n * sizeof(int)), *out = shared_memory(sizeof(int)); //! made
    ze_command_list_handle_t list = regular_list();

#ifdef MENDED
    launch(list, "every_second", LINE(1, 64), ARG(a));
    launch(list, "add_all", LINE(1, 1), ARG(a), ARG(out), ARG(n));
#else
    launch(list, "add_all", LINE(1, 1), ARG(a), ARG(out), ARG(n)); //! launched
    launch(list, "every_second", LINE(1, 64), ARG(a));
#endif
    must(zeCommandListClose(list));
    execute(list);
    execute(list);
    must(zeCommandListDestroy(list));
    release(a);
    release(out);
}

// Bytes of a region of which one column was left out.
WRONG(column_left_out)
{
    int n = 64;
    int *a = device_memory(n * sizeof(int)), *from = shared_memory(n * sizeof(int)), *out = shared_memory(sizeof(int)); //! made
    ze_copy_region_t region = {0, 0, 0, TWIN(28, 32), 8, 0};

    memset(from, 0, n * sizeof(int));
    must(zeCommandListAppendMemoryCopyRegion(synchronous, a, &region, 32, 0, from, &region, 32, 0, NULL, 0, NULL));
    launch(synchronous, "add_all", LINE(1, 1), ARG(a), ARG(out), ARG(n)); //! launched
    release(a);
    release(from);
    release(out);
}

WRONG(local_never_written)
{
    int *out = shared_memory(64 * sizeof(int));

    launch(synchronous, "local_never_written", LINE(2, 32), ARG(out)); //! launched
    release(out);
}

// The group's memory holds values of another group.
WRONG(local_sum_without_a_start)
{
    int *out = shared_memory(4 * sizeof(int));

    launch(synchronous, "local_sum_without_a_start", LINE(4, 16), ARG(out)); //! launched
    release(out);
}

WRONG(local_argument_half_written)
{
    float *out = shared_memory(64 * sizeof(float));

    launch(synchronous, "local_argument_half_written", LINE(1, 64), ARG(out), LOCAL(64 * sizeof(float))); //! launched
    release(out);
}

// A copy of uninitialised local memory is no mistake, its use is.
WRONG(local_copy_of_nothing)
{
    int zero = 0, *in = device_memory(64 * sizeof(int)), *out = shared_memory(64 * sizeof(int));

#ifdef MENDED
    must(zeCommandListAppendMemoryFill(synchronous, in, &zero, sizeof(zero), 64 * sizeof(int), NULL, 0, NULL));
#endif
    (void)zero;
    launch(synchronous, "local_copy_of_nothing", LINE(1, 64), ARG(in), ARG(out)); //! launched
    release(in);
    release(out);
}

WRONG(local_through_a_generic_pointer)
{
    int *out = shared_memory(16 * sizeof(int));

    launch(synchronous, "local_through_a_generic_pointer", LINE(1, 16), ARG(out)); //! launched
    release(out);
}

// A value read behind the end is reported there, and is no uninitialised value afterwards.
WRONG(read_behind_the_end)
{
    int n = TWIN(65, 64), *in = shared_memory(64 * sizeof(int)), *out = device_memory(sizeof(int));

    launch(synchronous, "any_bit", LINE(1, 1), ARG(in), ARG(out), ARG(n)); //! launched
    launch(synchronous, "any_bit", LINE(1, 1), ARG(in), ARG(out), ARG(n));
    launch(synchronous, "double_it", LINE(1, 1), ARG(out));
    release(in);
    release(out);
}

WRONG(bins_without_a_start)
{
    int n = 64, *in = shared_memory(n * sizeof(int)), *out = shared_memory(8 * sizeof(int));

    for (int i = 0; i < n; i++)
        in[i] = i;
    launch(synchronous, "bins_without_a_start", LINE(1, 1), ARG(in), ARG(out), ARG(n)); //! launched
    release(in);
    release(out);
}

WRONG(window_not_filled)
{
    int n = 16;
    float *in = shared_memory(64 * 16 * sizeof(float)), *out = shared_memory(64 * sizeof(float));

    memset(in, 0, 64 * 16 * sizeof(float));
    launch(synchronous, "window_not_filled", LINE(1, 64), ARG(in), ARG(out), ARG(n)); //! launched
    release(in);
    release(out);
}

WRONG(private_structure)
{
    int which = 22, *out = shared_memory(64 * sizeof(int));

    launch(synchronous, "private_structure", LINE(1, 64), ARG(out), ARG(which)); //! launched
    release(out);
}

WRONG(left_out_on_a_way)
{
    int n = 60, *a = shared_memory(64 * sizeof(int));

    launch(synchronous, "left_out_on_a_way", LINE(1, 64), ARG(a), ARG(n)); //! launched
    release(a);
}

WRONG(prints_what_was_never_written)
{
    int zero = 0, *a = device_memory(sizeof(int)); //! made

#ifdef MENDED
    must(zeCommandListAppendMemoryFill(synchronous, a, &zero, sizeof(zero), sizeof(zero), NULL, 0, NULL));
#endif
    (void)zero;
    launch(synchronous, "prints_what_was_never_written", LINE(1, 1), ARG(a)); //! launched
    release(a);
}
