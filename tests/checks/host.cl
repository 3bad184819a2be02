// SPDX-License-Identifier: MIT OR Apache-2.0
// Kernels of host.c.

#ifdef MENDED
#define TWIN(wrong, right) (right)
#else
#define TWIN(wrong, right) (wrong)
#endif

kernel void result_read_without_a_wait(global int *a)
{
    int i = get_global_id(0);
    a[i] = i; //! with
}

kernel void input_changed_while_it_is_read(global const int *from, global int *to)
{
    int i = get_global_id(0);
    to[i] = 2 * from[i]; //! with
}

kernel void wait_for_the_wrong_list(global int *a)
{
    int i = get_global_id(0);
    a[i] = i; //! with
}

kernel void data_behind_the_signal(global const int *from, global int *to)
{
    int i = get_global_id(0);
    to[i] = from[i]; //! with
}

kernel void result_of_a_regular_list(global int *a)
{
    int i = get_global_id(0);
    a[i] = i; //! with
}

kernel void flag_without_atomics(global int *a, global int *flag)
{
    a[0] = 5; //! with
    TWIN(*(volatile global int *)flag = 1, //! with
         atomic_fetch_or_explicit((volatile global atomic_int *)flag, 1, memory_order_release, memory_scope_all_svm_devices));
}

kernel void flag_behind_a_pointer(global int *a, global const ulong *table)
{
    global int *flag = (global int *)table[0];
    a[0] = 5; //! with
    TWIN(*(volatile global int *)flag = 1,
         atomic_fetch_or_explicit((volatile global atomic_int *)flag, 1, memory_order_release, memory_scope_all_svm_devices));
}

kernel void flag_of_the_host(global int *a, global int *flag)
{
    volatile global atomic_int *at = (volatile global atomic_int *)flag;
    while (atomic_fetch_or_explicit(at, 0, memory_order_acquire, memory_scope_all_svm_devices) == 0)
        ;
    a[1] = a[0] + 1;
}

kernel void numbers(global int *a)
{
    int i = get_global_id(0);
    a[i] = i;
}

kernel void sum_behind_a_host_function(global const int *a, global int *sum)
{
    sum[0] = a[0] + a[1]; //! with
}
