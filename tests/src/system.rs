// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels that use memory which the driver has not allocated, and helpers that make such memory.

use std::ffi::c_int;
use std::ptr;
use std::sync::OnceLock;

use tally_ze::*;

use crate::lists::{List, NONE};
use crate::ze::{self, Gpu};
use crate::{call, check};

/// The kernels of [`Guest`].
const KERNELS: &str = "
    kernel void add(global uint *data, uint term, uint n)
    {
        size_t i = get_global_id(0);
        if (i < n)
            data[i] += term;
    }
    kernel void triples(global const ushort *from, global ushort *to, uint n)
    {
        size_t i = get_global_id(0);
        if (i < n)
            to[n - 1 - i] = from[3 * i] + 2 * from[3 * i + 1] + 3 * from[3 * i + 2];
    }
    kernel void alternate(global uchar *bytes, uint n, uchar value)
    {
        size_t i = get_global_id(0);
        if (i < n)
            bytes[2 * i] = value;
    }
    struct node { uint value; uint pad; global struct node *next; };
    kernel void walk(global struct node *at, uint term)
    {
        for (; at; at = at->next)
            at->value += term;
    }
    kernel void count(global atomic_uint *total, uint times)
    {
        for (uint i = 0; i < times; i++)
            atomic_fetch_add_explicit(total, 1, memory_order_relaxed, memory_scope_all_svm_devices);
    }
    kernel void pong(global atomic_uint *ball, global const uint *sent, global uint *received, uint rounds)
    {
        for (uint i = 0; i < rounds; i++) {
            while (atomic_load_explicit(ball, memory_order_acquire, memory_scope_all_svm_devices) != 2 * i + 1)
                ;
            received[i] = sent[i] * 3;
            atomic_store_explicit(ball, 2 * i + 2, memory_order_release, memory_scope_all_svm_devices);
        }
    }
    kernel void look(global volatile uint *word, global volatile uint *seen)
    {
        for (;;)
            seen[0] += 1 + *word;
    }";

/// A device with a context, and the kernels of this program.
pub struct Guest {
    /// The device and its context.
    pub gpu: Gpu,
    module: ze_module_handle_t,
}

impl Default for Guest {
    fn default() -> Self {
        Self::new()
    }
}

impl Guest {
    /// A new context on the driver's device.
    pub fn new() -> Self {
        Self::on(Gpu::new())
    }

    /// Uses this context.
    pub fn on(gpu: Gpu) -> Self {
        static CODE: OnceLock<Vec<u8>> = OnceLock::new();
        let code = CODE.get_or_init(|| ze::spirv_from(KERNELS));
        let module = gpu.module(code, "").expect("it is valid");
        Self { gpu, module }
    }

    /// Runs a kernel and waits: groups, work-items of each, and the bytes of its arguments.
    pub fn run(&self, name: &str, shape: [u32; 2], arguments: &[&[u8]]) {
        self.gpu.run(self.module, name, shape, arguments);
    }

    /// Adds to `n` elements, in groups of 64.
    pub fn add(&self, data: *mut u32, term: u32, n: usize) {
        let n = n as u32;
        self.run("add", [n.div_ceil(64), 64], &[bytes(&data), bytes(&term), bytes(&n)]);
    }

    /// A kernel of one work-item, with its arguments.
    pub fn kernel(&self, name: &str, arguments: &[&[u8]]) -> ze_kernel_handle_t {
        let kernel = self.gpu.kernel(self.module, name);
        check!(zeKernelSetGroupSize(kernel, 1, 1, 1));
        for (i, bytes) in (0..).zip(arguments) {
            check!(zeKernelSetArgumentValue(kernel, i, bytes.len(), bytes.as_ptr().cast()));
        }
        kernel
    }

    /// Appends one work-item of a kernel to a new list.
    pub fn launch(&self, kernel: ze_kernel_handle_t) -> List {
        let (list, none) = (self.gpu.immediate(0, true), ptr::null_mut());
        let one = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
        check!(zeCommandListAppendLaunchKernel(list.0, kernel, &raw const one, NONE, 0, none));
        list
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // A failure here, after a failed test, must not hide that test's failure.
        let _ = call!(zeModuleDestroy(self.module));
    }
}

/// The device's capabilities for memory of the system.
pub fn capabilities(device: ze_device_handle_t) -> ze_memory_access_cap_flags_t {
    let mut access = ze_device_memory_access_properties_t::default();
    check!(zeDeviceGetMemoryAccessProperties(device, &raw mut access));
    access.sharedSystemAllocCapabilities
}

/// Whether kernels can access memory of the system here: programs query this before they rely on it.
pub fn reached() -> bool {
    capabilities(ze::device()).contains(ze_memory_access_cap_flags_t::ZE_MEMORY_ACCESS_CAP_FLAG_RW)
}

/// A value as the bytes of an argument.
pub fn bytes<T: Copy>(value: &T) -> &[u8] {
    // SAFETY: the tests pass integers and pointers, which have no padding.
    unsafe { std::slice::from_raw_parts(ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// Pages of the process's own, unmapped on drop.
pub struct Pages(pub *mut u8, pub usize);

/// Bytes of a page.
pub const PAGE: usize = 4096;

impl Pages {
    /// Pages that were not accessed yet.
    pub fn new(bytes: usize) -> Self {
        Self::map(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
    }

    fn map(bytes: usize, flags: c_int, fd: c_int) -> Self {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: nothing is replaced.
        let at = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, fd, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Self(at.cast(), bytes)
    }

    /// A file without a name, and its pages.
    pub fn of_file(bytes: usize) -> (c_int, Self) {
        // SAFETY: the name is terminated; the descriptor is new.
        let fd = unsafe { libc::memfd_create(c"pages".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: it is a file of ours.
        assert_eq!(unsafe { libc::ftruncate(fd, bytes as i64) }, 0);
        (fd, Self::map(bytes, libc::MAP_SHARED, fd))
    }

    /// Sets the protection of a page.
    pub fn protect(&self, page: usize, access: c_int) {
        // SAFETY: the page is ours, and no reference to it exists.
        assert_eq!(unsafe { libc::mprotect(self.0.add(page * PAGE).cast(), PAGE, access) }, 0);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: they are ours, and the commands that used them are complete.
        unsafe { libc::munmap(self.0.cast(), self.1) };
    }
}
