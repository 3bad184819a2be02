// SPDX-License-Identifier: MIT OR Apache-2.0
// All queries of a work-item for its place.

kernel void ids(global ulong *out, int d) {
    size_t at = get_global_linear_id() * 16;
    for (int k = 0; k < 3; k++) out[at + k] = get_global_id(k);
    for (int k = 0; k < 3; k++) out[at + 3 + k] = get_local_id(k);
    for (int k = 0; k < 3; k++) out[at + 6 + k] = get_group_id(k);
    out[at + 9] = get_local_size(d);
    out[at + 10] = get_enqueued_local_size(d);
    out[at + 11] = get_global_size(d);
    out[at + 12] = get_num_groups(d);
    out[at + 13] = get_global_offset(d);
    out[at + 14] = get_local_linear_id();
    out[at + 15] = get_work_dim();
}
