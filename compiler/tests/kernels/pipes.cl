/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Kernels on pipes. Each stores what the functions return, so that tests see which packets went through. */
typedef struct { char c[3]; } odd;

#define WHOLE(name, type)                                                               \
    kernel void write_##name(global const type *in, global int *got, write_only pipe type p) \
    {                                                                                   \
        size_t i = get_global_id(0);                                                    \
        type packet = in[i];                                                            \
        got[i] = write_pipe(p, &packet);                                                \
    }                                                                                   \
    kernel void read_##name(global type *out, global int *got, read_only pipe type p)   \
    {                                                                                   \
        size_t i = get_global_id(0);                                                    \
        type packet = out[i];                                                           \
        got[i] = read_pipe(p, &packet);                                                 \
        out[i] = packet;                                                                \
    }

WHOLE(int, int)
WHOLE(odd, odd)
WHOLE(wide, long16)

/* Each group has one reservation for its items; its packets stay together. */
#define GROUPS(kind, size, id)                                                          \
    kernel void write_##kind(global const int *in, global int *got, write_only pipe int p) \
    {                                                                                   \
        size_t i = get_global_id(0);                                                    \
        reserve_id_t r = kind##_reserve_write_pipe(p, size);                            \
        got[i] = -2;                                                                    \
        if (is_valid_reserve_id(r)) {                                                   \
            got[i] = write_pipe(p, r, id, &in[i]);                                      \
            kind##_commit_write_pipe(p, r);                                             \
        }                                                                               \
    }                                                                                   \
    kernel void read_##kind(global int *out, global int *got, read_only pipe int p)     \
    {                                                                                   \
        size_t i = get_global_id(0);                                                    \
        reserve_id_t r = kind##_reserve_read_pipe(p, size);                             \
        got[i] = -2;                                                                    \
        if (is_valid_reserve_id(r)) {                                                   \
            got[i] = read_pipe(p, r, id, &out[i]);                                      \
            kind##_commit_read_pipe(p, r);                                              \
        }                                                                               \
    }

GROUPS(work_group, get_local_size(0), get_local_id(0))
GROUPS(sub_group, get_sub_group_size(), get_sub_group_local_id())

/* Items with reservations of different sizes: i % 4 packets. */
kernel void write_some(global const int *in, global int *got, write_only pipe int p)
{
    int i = get_global_id(0);
    reserve_id_t r = reserve_write_pipe(p, i % 4);
    got[i] = is_valid_reserve_id(r);
    if (got[i]) {
        for (int k = i % 4 - 1; k >= 0; k--) {
            int packet = in[i] + k;
            write_pipe(p, r, k, &packet);
        }
        int beyond = -1;
        if (write_pipe(p, r, i % 4, &beyond) == 0)
            got[i] = -1;
        commit_write_pipe(p, r);
    }
}

/* A reservation that is not committed hides its packets, and those behind it. */
kernel void late(global int *got, write_only pipe int p)
{
    int packet = 7;
    reserve_id_t first = reserve_write_pipe(p, 1), second = reserve_write_pipe(p, 2);
    write_pipe(p, second, 0, &packet);
    write_pipe(p, second, 1, &packet);
    commit_write_pipe(p, second);
    got[0] = is_valid_reserve_id(first) && is_valid_reserve_id(second);
}

kernel void sizes(global int *out, read_only pipe int p)
{
    out[0] = get_pipe_num_packets(p);
    out[1] = get_pipe_max_packets(p);
}
