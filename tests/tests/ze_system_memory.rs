// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared system allocations: kernels that use memory which the driver has not allocated, if the device
//! reports that they can.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tally_tests::check;
use tally_tests::lists::PATIENCE;
use tally_tests::system::{Guest, PAGE, Pages, bytes, capabilities, reached};
use tally_tests::ze::{self, Gpu, in_child};
use tally_ze::*;

/// "A Shared System allocation is a sub-class of a Shared allocation, where the memory is allocated by a
/// system allocator (such as malloc or new) rather than by an allocation API", and "the same pointer to a
/// shared system allocation may be used on the host and all supported devices."
#[test]
fn kernels_use_memory_of_malloc_the_stack_the_program_and_of_mappings() {
    static PROGRAM: [AtomicU32; 100] = [const { AtomicU32::new(1) }; 100];
    if !reached() {
        return;
    }
    let guest = Guest::new();
    let (mut malloc, mut stack) = (vec![1_u32; 1001], [1_u32; 99]);
    guest.add(malloc.as_mut_ptr(), 2, 1000);
    guest.add(stack.as_mut_ptr(), 3, 99);
    guest.add(PROGRAM[0].as_ptr(), 4, 100);
    assert!(malloc[..1000].iter().all(|&it| it == 3) && malloc[1000] == 1 && stack == [4; 99]);
    assert!(PROGRAM.iter().all(|it| it.load(Ordering::Relaxed) == 5));
    // Pages that were not accessed yet, and enough of them to span several page tables.
    let large = Pages::new(64 << 20);
    let words = large.0.cast::<u32>();
    guest.add(words, 6, 16 << 20);
    // SAFETY: they are in the mapping.
    assert!((0..16 << 20).step_by(997).all(|i| unsafe { words.add(i).read() } == 6));
    let (fd, file) = Pages::of_file(2 * PAGE);
    guest.add(file.0.cast(), 7, 2 * PAGE / 4);
    let mut found = [0_u32; 2 * PAGE / 4];
    // SAFETY: the descriptor is the file's, the buffer has its length, and it is closed only once.
    unsafe {
        assert_eq!(libc::pread(fd, found.as_mut_ptr().cast(), 2 * PAGE, 0), 2 * PAGE as isize);
        libc::close(fd);
    }
    assert_eq!(found, [7; 2 * PAGE / 4]);
}

/// The device takes an array as long as it is: what lies before and behind it may not be there. "it is
/// undefined behavior for an application to access memory outside of the allocation size requested", and a
/// kernel that is run with vectors is not to do so on its own.
#[test]
fn an_array_may_begin_and_end_where_memory_does() {
    if !reached() {
        return;
    }
    let guest = Guest::new();
    let (from, to) = (Pages::new(3 * PAGE), Pages::new(3 * PAGE));
    for pages in [&from, &to] {
        pages.protect(0, libc::PROT_NONE);
        pages.protect(2, libc::PROT_NONE);
    }
    let begin = |pages: &Pages| pages.0.wrapping_add(PAGE);
    for n in (1..40).chain([63, 64, 65, 127, 500, 682]) {
        for at_end in [false, true] {
            let place = |pages: &Pages, bytes: usize| {
                begin(pages).wrapping_add(if at_end { PAGE - bytes } else { 0 })
            };
            let (read, written) =
                (place(&from, 6 * n).cast::<u16>(), place(&to, 2 * n).cast::<u16>());
            for i in 0..3 * n {
                // SAFETY: the element is in the page.
                unsafe { read.add(i).write(i as u16) };
            }
            let arguments = (read, written, n as u32);
            let arguments = [bytes(&arguments.0), bytes(&arguments.1), bytes(&arguments.2)];
            guest.run("triples", [n.div_ceil(32) as u32, 32], &arguments);
            for i in 0..n {
                // SAFETY: as above.
                let found = unsafe { written.add(n - 1 - i).read() };
                assert_eq!(found, (18 * i + 8) as u16, "{n} {i}");
            }
            let words = place(&to, 4 * n).cast::<u32>();
            // SAFETY: the elements are in the page.
            unsafe { words.write_bytes(0, n) };
            guest.add(words, 5, n);
            // SAFETY: as above.
            assert!((0..n).all(|i| unsafe { words.add(i).read() } == 5), "{n}");
        }
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Node {
    value: u32,
    pad: u32,
    next: *mut Node,
}

impl Node {
    fn new(value: u32, next: *mut Node) -> Self {
        Self { value, pad: 0, next }
    }
}

/// A pointer in memory leads to more memory, whether or not the kernel was said to reach any through
/// pointers: "Shared system allocations have no associated device", so none of its flags is about them.
#[test]
fn pointers_in_memory_of_the_system_lead_on() {
    use ze_kernel_indirect_access_flags_t as indirect;
    if !reached() {
        return;
    }
    let guest = Guest::new();
    let (usm, pages) = (guest.gpu.host::<Node>(1), Pages::new(PAGE));
    let mut stack = Node::new(1, ptr::null_mut());
    let mapped = pages.0.cast::<Node>();
    // SAFETY: both places have the size of a node, and no other thread uses them.
    unsafe { mapped.write(Node::new(2, &raw mut stack)) };
    // SAFETY: as above.
    unsafe { usm.ptr().write(Node::new(3, mapped)) };
    let mut first = Box::new(Node::new(4, usm.ptr()));
    let first = &raw mut *first;
    let kernel = guest.kernel("walk", &[bytes(&first), bytes(&10_u32)]);
    for (round, flags) in (1..).zip([indirect::empty(), indirect::all()]) {
        check!(zeKernelSetIndirectAccess(kernel, flags));
        guest.launch(kernel).synchronize();
        let mut found = Vec::new();
        let mut at = first;
        while !at.is_null() {
            // SAFETY: the nodes live, and the kernel is done.
            let node = unsafe { at.read_volatile() };
            found.push(node.value);
            at = node.next;
        }
        assert_eq!(found, [4, 3, 2, 1].map(|it| it + 10 * round));
    }
    check!(zeKernelDestroy(kernel));
}

/// "Buffer can be atomically accessed from hDevice concurrently with another device [...] as well as with the
/// host itself": nothing is lost of what both add to one word at once.
#[test]
fn host_and_kernels_add_to_one_word_at_once() {
    if !reached() {
        return;
    }
    let guest = Guest::new();
    let (total, done) = (Box::new(AtomicU32::new(0)), AtomicBool::new(false));
    let added = std::thread::scope(|scope| {
        let host = scope.spawn(|| {
            let mut added = 0_u32;
            while !done.load(Ordering::Relaxed) {
                total.fetch_add(1, Ordering::Relaxed);
                added += 1;
            }
            added
        });
        let arguments = (total.as_ptr(), 1000_u32);
        guest.run("count", [16, 64], &[bytes(&arguments.0), bytes(&arguments.1)]);
        done.store(true, Ordering::Relaxed);
        host.join().expect("no panic")
    });
    assert_eq!(total.load(Ordering::Relaxed), added + 16 * 64 * 1000);
}

/// "Memory consistency can be enforced between the host & devices that support concurrent atomic access using
/// atomic operations": host and kernel pass a ball while the kernel runs, and each sees what the other wrote
/// before.
#[test]
fn host_and_a_running_kernel_answer_each_other() {
    const ROUNDS: u32 = 40;
    if !reached() {
        return;
    }
    let guest = Guest::new();
    let ball = Box::new(AtomicU32::new(0));
    let words = || (0..ROUNDS).map(|_| AtomicU32::new(0)).collect::<Vec<_>>();
    let (sent, received) = (words(), words());
    let pointers = [ball.as_ptr(), sent[0].as_ptr(), received[0].as_ptr()];
    let [ball_at, sent_at, received_at] = pointers.each_ref().map(bytes);
    let kernel = guest.kernel("pong", &[ball_at, sent_at, received_at, bytes(&ROUNDS)]);
    let list = guest.launch(kernel);
    let start = Instant::now();
    for i in 0..ROUNDS {
        sent[i as usize].store(i + 7, Ordering::Relaxed);
        ball.store(2 * i + 1, Ordering::Release);
        while ball.load(Ordering::Acquire) != 2 * i + 2 {
            assert!(start.elapsed() < Duration::from_nanos(PATIENCE), "round {i}");
            std::thread::yield_now();
        }
        assert_eq!(received[i as usize].load(Ordering::Relaxed), 3 * (i + 7));
    }
    list.synchronize();
    check!(zeKernelDestroy(kernel));
}

/// "Devices that support concurrent access [...] must write to unique non-overlapping memory locations": bytes
/// of the host's between those that a kernel writes keep what the host writes at the same time.
#[test]
fn the_host_writes_between_what_a_kernel_writes() {
    const N: usize = 512;
    if !reached() {
        return;
    }
    let guest = Guest::new();
    let memory: Vec<_> = (0..2 * N).map(|_| AtomicU8::new(0)).collect();
    let (begun, done) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut value = 0_u8;
            while !done.load(Ordering::Relaxed) {
                value = value.wrapping_add(1);
                for (i, byte) in memory.iter().skip(1).step_by(2).enumerate() {
                    byte.store(value, Ordering::Relaxed);
                    // The kernel wrote an earlier value back.
                    let found = byte.load(Ordering::Relaxed);
                    assert_eq!(found, value, "byte {i} of the host's");
                }
                begun.store(true, Ordering::Relaxed);
            }
        });
        while !begun.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        for value in 1..=200_u8 {
            let arguments = (memory[0].as_ptr(), N as u32);
            let arguments = [bytes(&arguments.0), bytes(&arguments.1), bytes(&value)];
            guest.run("alternate", [N as u32 / 64, 64], &arguments);
            let own = memory.iter().step_by(2);
            let all = own.map(|it| it.load(Ordering::Relaxed)).all(|it| it == value);
            if !all {
                done.store(true, Ordering::Relaxed);
            }
            assert!(all, "the kernel's bytes after {value}");
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// "they are inherently cross-device": kernels of all devices and sub-devices add to one word at once.
#[test]
fn all_devices_share_memory_of_the_system() {
    if reached() {
        let two = [("TALLY_DEVICES", "2"), ("TALLY_SUBDEVICES", "2")];
        in_child("child_with_devices", &two);
    }
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_devices() {
    let (mut count, mut devices) = (2, [ze_device_handle_t::NULL; 2]);
    check!(zeDeviceGet(ze::driver(), &raw mut count, devices.as_mut_ptr()));
    let (mut parts, mut part) = (1, ze_device_handle_t::NULL);
    check!(zeDeviceGetSubDevices(devices[1], &raw mut parts, &raw mut part));
    let all = [devices[0], devices[1], part];
    let total = Box::new(AtomicU32::new(0));
    std::thread::scope(|scope| {
        for device in all {
            assert_eq!(capabilities(device), ze_memory_access_cap_flags_t::all());
            let total = &total;
            scope.spawn(move || {
                let desc = ze_context_desc_t::default();
                let mut context = ze_context_handle_t::NULL;
                check!(zeContextCreate(ze::driver(), &raw const desc, &raw mut context));
                let guest = Guest::on(Gpu { device, context });
                let arguments = (total.as_ptr(), 1000_u32);
                let arguments = [bytes(&arguments.0), bytes(&arguments.1)];
                guest.run("count", [8, 32], &arguments);
            });
        }
    });
    assert_eq!(total.load(Ordering::Relaxed), 3 * 8 * 32 * 1000);
}
