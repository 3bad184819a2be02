// SPDX-License-Identifier: MIT OR Apache-2.0
//! The threads of the embedded device, for tests that count their process's resources.
//!
//! The device creates threads when it needs them, and keeps them; the time depends on the load of the
//! machine. A test that counts threads or descriptors starts all of them first.

use std::ptr;
use std::time::{Duration, Instant};

use tally_ze::ze_group_count_t;

use crate::check;
use crate::lists::{List, NONE};
use crate::ze::{self, Gpu};

/// Two workers, on any machine: for the environment of a child that counts.
pub const VARIABLE: (&str, &str) = ("TALLY_WORKERS", "2");
/// The maximum number of threads of such a device: a substitute for each worker, and eight more.
const THREADS: usize = 12;
/// The time limit for starting all of them.
const PATIENCE: Duration = Duration::from_secs(60);

const KERNEL: &str = "
    kernel void stay(global atomic_uint *here, global volatile uint *end)
    {
        atomic_fetch_add(here, 1);
        while (*end == 0)
            ;
    }";

/// The kernel that [`start_all`] takes, built by clang.
///
/// # Panics
/// In the cases of [`ze::spirv`].
pub fn spirv() -> Vec<u8> {
    ze::spirv_from(KERNEL)
}

/// Gives each thread that the device may have a kernel of its own, so that all of them exist. The
/// process has [`VARIABLE`] in its environment. The kernel module's device has its threads in another
/// process.
///
/// # Panics
/// If they do not start in time.
pub fn start_all(gpu: &Gpu, spirv: &[u8]) {
    if ze::on_kernel_lane() {
        return;
    }
    let module = gpu.module(spirv, "").expect("it is valid");
    let kernel = gpu.kernel(module, "stay");
    let (here, end) = (gpu.host::<u32>(1), gpu.host::<u32>(1));
    for (index, address) in [(0, here.address()), (1, end.address())] {
        check!(zeKernelSetArgumentValue(kernel, index, 8, (&raw const address).cast()));
    }
    check!(zeKernelSetGroupSize(kernel, 1, 1, 1));
    let one = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
    let lists = [(); THREADS].map(|()| gpu.immediate(0, true));
    for list in &lists {
        let (groups, none) = (&raw const one, ptr::null_mut());
        check!(zeCommandListAppendLaunchKernel(list.0, kernel, groups, NONE, 0, none));
    }
    let start = Instant::now();
    while here.get(0) < THREADS as u32 {
        assert!(start.elapsed() < PATIENCE, "{} of {THREADS} threads have started", here.get(0));
        std::thread::sleep(Duration::from_millis(1));
    }
    end.set(0, 1);
    lists.iter().for_each(List::synchronize);
    check!(zeKernelDestroy(kernel));
    check!(zeModuleDestroy(module));
}
