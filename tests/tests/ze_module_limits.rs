// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds that exceed the compiler's limits on time and memory, through the stock loader.

use std::fmt::Write;

use tally_tests::check;
use tally_tests::ze::{self, Gpu};

/// The number of values that are live all the time.
const VALUES: usize = 64;
/// The number of steps, each of which changes one of the values by two others.
const STEPS: usize = 7500;

/// The values of each step.
fn steps() -> impl Iterator<Item = [usize; 3]> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as usize % VALUES
    };
    (0..STEPS).map(move |_| std::array::from_fn(|_| random()))
}

/// A kernel that takes LLVM seconds as vectors of 16 items, and a tenth of a second in scalar form.
fn heavy() -> String {
    let mut text =
        String::from("kernel void heavy(global ulong *p) { size_t g = get_global_id(0);");
    for i in 0..VALUES {
        let _ = write!(text, "ulong a{i} = p[g] + {i};");
    }
    for [i, j, k] in steps() {
        let _ = writeln!(text, "a{i} = a{j} * a{k} - a{i};");
    }
    text += "ulong sum = 0;";
    for i in 0..VALUES {
        let _ = write!(text, "sum += a{i};");
    }
    text + "p[g] = sum; }"
}

/// The kernel's result for a number.
fn expected(start: u64) -> u64 {
    let mut values: Vec<u64> = (0..VALUES as u64).map(|i| start + i).collect();
    for [i, j, k] in steps() {
        values[i] = values[j].wrapping_mul(values[k]).wrapping_sub(values[i]);
    }
    values.into_iter().fold(0, u64::wrapping_add)
}

/// The limits count for each processor, so the test uses one.
fn use_one_processor() {
    // SAFETY: all-zero bytes are a valid set; the calls read and write it within its size, and only
    // concern this process.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of_val(&set);
        assert_eq!(libc::sched_getaffinity(0, size, &raw mut set), 0);
        let first = (0..libc::CPU_SETSIZE as usize).find(|&cpu| libc::CPU_ISSET(cpu, &set));
        libc::CPU_ZERO(&mut set);
        libc::CPU_SET(first.expect("this runs on one"), &mut set);
        assert_eq!(libc::sched_setaffinity(0, size, &raw const set), 0);
    }
}

/// "limits on time and memory with a retry at lower optimisation": the kernel is built in the end, and
/// right; the log says that it was built again.
#[test]
fn a_build_beyond_the_time_limit_is_done_again_with_less_optimisation() {
    let variables = [("TALLY_COMPILER_TIME", "3"), ("TALLY_LOG", "warn")];
    let said = ze::in_child("child_that_builds_what_is_heavy", &variables);
    assert!(said.contains("built again with less optimisation"), "{said}");
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_builds_what_is_heavy() {
    use_one_processor();
    let gpu = Gpu::new();
    let spirv = ze::spirv_from(&heavy());
    // With a lower level nothing is optimised.
    let module = gpu.module(&spirv, "-ze-opt-level=1").expect("it is valid");
    let starts = [0, 1, 7, u64::MAX / 3];
    let numbers = gpu.host::<u64>(starts.len());
    numbers.fill_with(|i| starts[i]);
    gpu.run(module, "heavy", [1, 4], &[&numbers.address().to_ne_bytes()]);
    assert_eq!(numbers.to_vec(), starts.map(expected));
    check!(zeModuleDestroy(module));
}
