// SPDX-License-Identifier: MIT OR Apache-2.0
// Asynchronous copies to local memory and back, plain and with strides, with events in a chain and
// in an array.

kernel void there_and_back(global float4 *out, const global float4 *in, local float4 *near,
                           int n) {
  int group = (int)get_group_id(0);
  event_t in_event = async_work_group_copy(near, in + group * n, (size_t)n, 0);
  wait_group_events(1, &in_event);
  int i = (int)get_local_id(0);
  float4 sum = near[i] + near[n - 1 - i];
  barrier(CLK_LOCAL_MEM_FENCE);
  near[i] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  event_t out_event = async_work_group_copy(out + group * n, near, (size_t)n, 0);
  wait_group_events(1, &out_event);
}

kernel void strided(global short *out, const global short *in, local short *near, int n,
                    int stride) {
  prefetch(in, (size_t)(n * stride));
  event_t events[2];
  events[0] = async_work_group_strided_copy(near, in, (size_t)n, (size_t)stride, 0);
  events[0] = async_work_group_copy(near + n, in, (size_t)n, events[0]);
  events[1] = async_work_group_strided_copy(near + 2 * n, in + 1, (size_t)n, (size_t)2, 0);
  wait_group_events(2, events);
  for (int i = (int)get_local_id(0); i < n; i += (int)get_local_size(0))
    near[i] = (short)(near[i] + near[n + i] * near[2 * n + i]);
  barrier(CLK_LOCAL_MEM_FENCE);
  event_t last = 0;
  if (n > 3)
    last = async_work_group_strided_copy(out, near, (size_t)n, (size_t)stride, last);
  wait_group_events(1, &last);
}
