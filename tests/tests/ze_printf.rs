// SPDX-License-Identifier: MIT OR Apache-2.0
//! Formatted output of kernels, on the process's standard output. The quotes are from the core
//! programming guide, chapter "Formatted Output".
//!
//! Each case runs in a process of its own, whose standard output becomes a file.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use tally_tests::check;
use tally_tests::lists::{List, NONE};
use tally_tests::ze::{self, Gpu, Usm};
use tally_ze::*;

const KERNELS: &str = r#"
    kernel void hello(global int *out, int n)
    {
        int i = get_global_id(0);
        out[i] = printf("hello %d of %d, %s\n", i, n, i & 1 ? "odd" : "even");
    }
    kernel void many(global int *out, int calls)
    {
        int refused = 0;
        for (int k = 0; k < calls; k++)
            refused -= printf("%d: %d\n", (int)get_global_id(0), k);
        out[get_global_id(0)] = refused;
    }
    kernel void stray(global int *out, int n)
    {
        printf("last words %d\n", n);
        *(volatile global int *)(16 + n) = out[0];
    }"#;

/// Standard output, redirected to a file.
struct Output {
    file: File,
    real: i32,
}

impl Output {
    fn capture() -> Self {
        // SAFETY: the descriptor is new and not used elsewhere. Standard output stays valid: it is
        // replaced, and the original is kept.
        let (file, real) = unsafe {
            let made = libc::memfd_create(c"output".as_ptr(), 0);
            assert!(made >= 0);
            let file = File::from_raw_fd(made);
            let real = libc::dup(1);
            assert!(real >= 0 && libc::dup2(file.as_raw_fd(), 1) == 1);
            (file, real)
        };
        Self { file, real }
    }

    /// All lines so far; each is complete.
    fn lines(&mut self) -> Vec<String> {
        let mut text = String::new();
        self.file.rewind().expect("a file can be rewound");
        self.file.read_to_string(&mut text).expect("it is text");
        assert!(text.is_empty() || text.ends_with('\n'), "{text:?}");
        text.lines().map(str::to_owned).collect()
    }

    /// The lines that a kernel of this test has printed.
    fn hellos(&mut self) -> usize {
        self.lines().iter().filter(|line| line.starts_with("hello ")).count()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // SAFETY: restores standard output, so that the test's result is seen.
        unsafe { libc::dup2(self.real, 1) };
    }
}

/// The most groups that a test launches.
const MOST_GROUPS: u32 = 2;

struct Printer {
    kernel: ze_kernel_handle_t,
    out: Usm<i32>,
    // The last: a context outlives its memory.
    gpu: Gpu,
}

impl Printer {
    fn new(name: &str, items: u32, value: i32) -> Self {
        let gpu = Gpu::new();
        let module = gpu.module(&ze::spirv_from(KERNELS), "").expect("it is valid");
        let kernel = gpu.kernel(module, name);
        let out = gpu.host((MOST_GROUPS * items) as usize);
        check!(zeKernelSetGroupSize(kernel, items, 1, 1));
        let address = out.address();
        check!(zeKernelSetArgumentValue(kernel, 0, 8, ptr::from_ref(&address).cast()));
        check!(zeKernelSetArgumentValue(kernel, 1, 4, ptr::from_ref(&value).cast()));
        Self { gpu, kernel, out }
    }

    fn launch(&self, list: &List, groups: u32, signal: ze_event_handle_t) {
        let groups = ze_group_count_t { groupCountX: groups, groupCountY: 1, groupCountZ: 1 };
        let (kernel, none) = (self.kernel, ptr::null_mut());
        check!(zeCommandListAppendLaunchKernel(list.0, kernel, &raw const groups, signal, 0, none));
    }
}

#[test]
fn output_is_there_after_each_kind_of_synchronization() {
    // "To ensure all output has been flushed to the output stream, wait on the event associated with
    // the kernel launch, or wait for the kernel launch to complete using a coarser-grained
    // synchronization method such as zeFenceHostSynchronize or zeCommandQueueSynchronize."
    ze::in_child("child_each_synchronization", &[]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_each_synchronization() {
    let mut output = Output::capture();
    let printer = Printer::new("hello", 20, 20);
    let immediate = printer.gpu.immediate(0, true);
    let pool = printer.gpu.pool(1, ze_event_pool_flags_t::empty());
    let event = pool.event(0);
    printer.launch(&immediate, 1, event.0);
    event.synchronize();
    assert_eq!(output.hellos(), 20);
    let lines = output.lines();
    assert!(lines.iter().any(|line| line == "hello 7 of 20, odd"), "{lines:?}");
    assert!(printer.out.to_vec().iter().all(|&result| result == 0));
    event.reset();
    printer.launch(&immediate, 1, event.0);
    while !event.is_ready() {
        std::thread::yield_now();
    }
    assert_eq!(output.hellos(), 40);
    printer.launch(&immediate, 1, NONE);
    immediate.synchronize();
    assert_eq!(output.hellos(), 60);
    let regular = printer.gpu.regular(0, true);
    printer.launch(&regular, 1, NONE);
    regular.close();
    let queue = printer.gpu.queue(0);
    for (round, printed) in [(0, 80), (1, 100)] {
        let fence = queue.fence(ze_fence_flags_t::empty());
        queue.execute(&[&regular], Some(&fence));
        if round == 0 {
            fence.synchronize();
        } else {
            queue.synchronize();
        }
        assert_eq!(output.hellos(), printed);
    }
    let cb = printer.gpu.cb_event();
    printer.launch(&immediate, 1, cb.0);
    cb.synchronize();
    assert_eq!(output.hellos(), 120);
    printer.launch(&immediate, 1, NONE);
    check!(zeDeviceSynchronize(printer.gpu.device));
    assert_eq!(output.hellos(), 140);
    // In synchronous mode there is nothing to wait for.
    let mode = ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
    let desc = ze_command_queue_desc_t { mode, ..Default::default() };
    printer.launch(&printer.gpu.immediate_of(&desc), 1, NONE);
    assert_eq!(output.hellos(), 160);
}

#[test]
fn a_full_buffer_is_an_error_code_and_every_other_call_is_printed() {
    // "When the internal buffer becomes full, additional calls to print formatted output will return
    // an error code."
    ze::in_child("child_with_a_full_buffer", &[]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_a_full_buffer() {
    const ITEMS: u32 = 16;
    const CALLS: i32 = 20_000;
    let mut output = Output::capture();
    let printer = Printer::new("many", ITEMS, CALLS);
    let mut properties = ze_device_module_properties_t::default();
    check!(zeDeviceGetModuleProperties(printer.gpu.device, &raw mut properties));
    assert!(properties.printfBufferSize >= 1 << 20, "OpenCL's least");
    let list = printer.gpu.immediate(0, true);
    for round in 1..=2 {
        let before = output.lines().len();
        printer.launch(&list, 1, NONE);
        list.synchronize();
        let refused: i32 = printer.out.to_vec().iter().sum();
        assert!(refused > 0, "{CALLS} calls of each item fit");
        let printed = output.lines().len() - before;
        assert_eq!(printed as i32 + refused, ITEMS as i32 * CALLS, "round {round}");
        // A record is about as long as its format and arguments, so the reported size is really
        // available.
        assert!(printed as u32 > properties.printfBufferSize / 64, "{printed}");
    }
}

#[test]
fn kernels_queues_and_threads_print_at_once_and_lose_nothing() {
    // "If multiple work-items make multiple calls to printf, the output from one work-item may appear
    // intermixed with output from other work-items."
    ze::in_child("child_with_threads", &[]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_threads() {
    const THREADS: usize = 6;
    const ROUNDS: usize = 30;
    let mut output = Output::capture();
    let synchronised = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let synchronised = &synchronised;
            scope.spawn(move || {
                let printer = Printer::new("hello", 32, thread as i32);
                let list = printer.gpu.immediate(0, thread & 1 == 0);
                for _ in 0..ROUNDS {
                    printer.launch(&list, 2, NONE);
                    printer.launch(&list, 1, NONE);
                    list.synchronize();
                    synchronised.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(synchronised.load(Ordering::Relaxed), THREADS * ROUNDS);
    let lines = output.lines();
    for thread in 0..THREADS {
        let of = format!(" of {thread}, ");
        let count = lines.iter().filter(|line| line.contains(&of)).count();
        assert_eq!(count, 96 * ROUNDS, "thread {thread}");
    }
}

#[test]
fn what_was_printed_before_a_fault_is_not_lost() {
    ze::in_child("child_with_a_fault", &[]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_a_fault() {
    let mut output = Output::capture();
    let printer = Printer::new("stray", 1, 40);
    let list = printer.gpu.immediate(0, true);
    printer.launch(&list, 1, NONE);
    let answer = tally_tests::call!(zeCommandListHostSynchronize(list.0, u64::MAX));
    assert_eq!(answer, ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST);
    assert_eq!(output.lines().iter().filter(|line| *line == "last words 40").count(), 1);
}
