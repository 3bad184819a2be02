// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels whose items wait for each other run one item at a time; those that only try again run in vectors.

use tally_compiler::widen::widen;

use crate::diff::same_at;
use crate::harness::{Grid, clang, module, widths};
use crate::widen::ints;

/// Kernels by the beginning of their names: `yes` where items wait for each other.
const TEXT: &str = "
    kernel void yes_lock(volatile global int *lock, global const int *at, volatile global int *out) {
      int i = get_global_id(0), done = 0;
      while (!done)
        if (atomic_cmpxchg(&lock[at[i]], 0, 1) == 0) {
          out[at[i]] += i;
          atomic_xchg(&lock[at[i]], 0);
          done = 1;
        }
    }
    kernel void yes_exchanged(volatile global int *lock, global const int *at, volatile global int *out) {
      int i = get_global_id(0), tries = 0;
      while (atomic_xchg(&lock[0], 1)) tries++;
      out[at[i]] = out[at[i]] * 3 + tries;
      atomic_xchg(&lock[0], 0);
    }
    kernel void yes_looked_at(volatile global int *lock, global const int *at, volatile global int *out) {
      int i = get_global_id(0);
      for (int k = 0; k < 3; k++) {
        do { while (lock[at[i]]); } while (atomic_or(&lock[at[i]], 1));
        out[at[i]] += i << k;
        atomic_and(&lock[at[i]], 0);
      }
    }
    kernel void yes_tickets(volatile global int *lock, global const int *at, volatile global int *out) {
      int i = get_global_id(0), mine = atomic_inc(&lock[0]);
      while (atomic_add(&lock[1], 0) != mine);
      out[at[i]] = out[at[i]] * 5 + i;
      atomic_inc(&lock[1]);
    }
    kernel void yes_chain(volatile global int *done, global const int *at, volatile global int *out) {
      int i = get_global_id(0);
      if (i > 0) while (done[i - 1] == 0);
      out[i] = at[i] + (i > 0 ? out[i - 1] : 0);
      done[i] = 1;
    }
    kernel void no_retry(global int *lock, global const int *at, global int *out) {
      int i = get_global_id(0), old, sum;
      do { old = out[at[i]]; sum = old * 3 + 1; } while (atomic_cmpxchg(&out[at[i]], old, sum) != old);
    }
    kernel void no_volatile(global int *lock, global const int *at, volatile global int *out) {
      int i = get_global_id(0), old, sum;
      do { old = out[at[i]]; sum = old * 3 + 1; } while (atomic_cmpxchg(&out[at[i]], old, sum) != old);
    }
    kernel void no_kept(global int *lock, global const int *at, global int *out) {
      int i = get_global_id(0), old = out[at[i]], seen;
      do { seen = old; old = atomic_cmpxchg(&out[at[i]], seen, seen * 3 + 1); } while (old != seen);
    }
    kernel void no_probe(global int *lock, global const int *at, global int *out) {
      int key = get_global_id(0) + 1, place = key * 7;
      for (;; place++) {
        int old = atomic_cmpxchg(&out[place & 127], 0, key);
        if (old == 0 || old == key) break;
      }
    }
    kernel void no_queue(global int *next, global const int *at, global int *out) {
      int k;
      while ((k = atomic_inc(next)) < 64) out[k] = at[k] * 3;
    }
    kernel void no_own_words(volatile global int *lock, global const int *at, global int *out) {
      int i = get_global_id(0);
      do lock[at[i]] = i; while (lock[at[i]] < at[i]);
    }
    kernel void no_alone(volatile global int *lock, global const int *at, volatile global int *out) {
      if (get_local_id(0) == 0) {
        while (atomic_cmpxchg(&lock[0], 0, 1) != 0);
        out[0] += at[get_global_id(0)];
        atomic_xchg(&lock[0], 0);
      }
    }";

#[test]
fn items_that_wait_for_each_other_run_one_at_a_time() {
    let module = module(&clang::compile_text(TEXT, &["-O2", "-w"]));
    let why = |kernel| widen(&module, kernel, 16).err().map(|why| why.to_string());
    for kernel in &module.kernels {
        let waits = why(kernel).as_deref() == Some("items that wait for each other");
        assert_eq!(waits, kernel.name.starts_with("yes"), "{}", kernel.name);
    }
    let args = [ints(64, |_| 0), ints(64, |i| i * 5 % 7), ints(64, |i| i)];
    for kernel in module.kernels.iter().filter(|kernel| kernel.name.starts_with("yes")) {
        same_at(&widths(), &module, &kernel.name, Grid::line(64, 32), &args, "");
    }
}
