// SPDX-License-Identifier: MIT OR Apache-2.0
//! The common calls of nearly every program, for tests of the environment: other loaders, layers, hosts
//! with limits. It uses only functions and flags that every loader and its layers know.

use std::ffi::c_void;
use std::ptr;

use tally_ze::*;

use crate::check;
use crate::lists::{List, Queue};
use crate::ze::{self, Gpu, Usm};

/// Elements that the kernel works on.
const LEN: usize = 1000;

/// A module with its kernel, memory, and one list of each kind.
pub struct Routine {
    immediate: List,
    regular: List,
    queue: Queue,
    memory: Usm<u32>,
    kernel: ze_kernel_handle_t,
    module: ze_module_handle_t,
    // Last: the others need it while they are dropped.
    gpu: Gpu,
}

impl Routine {
    /// The module that [`Routine::new`] takes, built by clang.
    ///
    /// # Panics
    /// In the cases of [`ze::spirv`].
    pub fn spirv() -> Vec<u8> {
        ze::spirv_from(
            "kernel void step(global uint *x, uint by)
             {
                 x[get_global_id(0)] += by + get_global_id(0);
             }",
        )
    }

    /// Everything that [`Routine::run`] needs.
    ///
    /// # Panics
    /// If the driver refuses anything of it.
    pub fn new(spirv: &[u8]) -> Self {
        let gpu = Gpu::new();
        let module = gpu.module(spirv, "").expect("the module is valid");
        let kernel = gpu.kernel(module, "step");
        check!(zeKernelSetGroupSize(kernel, 100, 1, 1));
        Self {
            immediate: gpu.immediate(0, false),
            regular: gpu.regular(0, false),
            queue: gpu.queue(0),
            memory: gpu.host(LEN),
            kernel,
            module,
            gpu,
        }
    }

    /// Runs the kernel on both kinds of lists.
    ///
    /// # Panics
    /// If a call fails or a result is wrong.
    pub fn run(&self) {
        self.run_immediate();
        self.run_regular();
    }

    /// Runs the kernel on an immediate list, and waits for an event.
    ///
    /// # Panics
    /// In the cases of [`Routine::run`].
    pub fn run_immediate(&self) {
        self.memory.fill_with(|_| 7);
        let pool = self.gpu.pool(1, ze_event_pool_flags_t::empty());
        let done = pool.event(0);
        self.launch(&self.immediate, 1, done.0);
        done.synchronize();
        self.expect(|i| 8 + i);
    }

    /// Runs the kernel from a recording, and waits for a fence.
    ///
    /// # Panics
    /// In the cases of [`Routine::run`].
    pub fn run_regular(&self) {
        self.memory.fill_with(|i| 8 + i as u32);
        self.regular.reset();
        self.regular.set((&self.memory, 0), 100, None, &[]);
        self.regular.barrier(None, &[]);
        self.launch(&self.regular, 2, ze_event_handle_t::NULL);
        self.regular.close();
        let fence = self.queue.fence(ze_fence_flags_t::empty());
        self.queue.execute(&[&self.regular], Some(&fence));
        fence.synchronize();
        self.queue.synchronize();
        self.expect(|i| if i == 0 { 102 } else { 10 + 2 * i });
    }

    /// The context.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    fn launch(&self, list: &List, by: u32, signal: ze_event_handle_t) {
        let (x, by) = (self.memory.address(), ptr::from_ref(&by).cast::<c_void>());
        check!(zeKernelSetArgumentValue(self.kernel, 0, 8, ptr::from_ref(&x).cast()));
        check!(zeKernelSetArgumentValue(self.kernel, 1, 4, by));
        let groups = ze_group_count_t { groupCountX: 10, groupCountY: 1, groupCountZ: 1 };
        let (kernel, none) = (self.kernel, ptr::null_mut());
        check!(zeCommandListAppendLaunchKernel(list.0, kernel, &raw const groups, signal, 0, none));
    }

    fn expect(&self, value: impl Fn(u32) -> u32) {
        for (i, got) in self.memory.to_vec().into_iter().enumerate() {
            assert_eq!(got, value(i as u32), "element {i}");
        }
    }
}

impl Drop for Routine {
    fn drop(&mut self) {
        // A failure here, after a failed test, must not hide that test's failure.
        let _ = crate::call!(zeKernelDestroy(self.kernel));
        let _ = crate::call!(zeModuleDestroy(self.module));
    }
}
