// SPDX-License-Identifier: MIT OR Apache-2.0
//! The results of calls with memory that the driver has not allocated, on either lane, and the fault of
//! a kernel that may not access it.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tally_tests::lists::{NONE, PATIENCE};
use tally_tests::system::{Guest, PAGE, Pages, bytes, capabilities, reached};
use tally_tests::ze::{self, in_child, on_kernel_lane};
use tally_tests::{call, check, refused};
use tally_ze::*;

/// "ze_device_memory_access_properties_t.sharedSystemAllocCapabilities": a device in the process has all
/// capabilities, one behind the kernel module has none; the parts of a device are as the device.
#[test]
fn the_property_says_whether_kernels_reach_memory_of_the_system() {
    use ze_memory_access_cap_flags_t as access;
    let expected = if on_kernel_lane() { access::empty() } else { access::all() };
    assert_eq!(capabilities(ze::device()), expected);
    if !on_kernel_lane() {
        for chaos in [("TALLY_CHAOS", "1"), ("TALLY_WORKERS", "1")] {
            in_child("child_of_the_embedded_lane", &[chaos]);
        }
    }
}

#[test]
#[ignore = "runs in a child process"]
fn child_of_the_embedded_lane() {
    assert_eq!(capabilities(ze::device()), ze_memory_access_cap_flags_t::all());
    let (guest, mut data) = (Guest::new(), vec![1; 1000]);
    guest.add(data.as_mut_ptr(), 6, 1000);
    assert!(data.iter().all(|&it| it == 7));
}

/// "This is a hint to improve performance only and is not required for correctness", "If a memory advice hint is
/// not supported by the device it will be ignored", both on either lane; to make memory resident that the device
/// does not reach is "ptr is not recognized by the implementation".
#[test]
fn hints_about_memory_of_the_system_are_taken_where_the_device_reaches_it() {
    let guest = Guest::new();
    let mut memory = vec![1_u32; 1000];
    let (at, size) = (memory.as_mut_ptr().cast::<c_void>(), 4000);
    let gpu = &guest.gpu;
    let (list, queue) = (gpu.regular(0, true), gpu.queue(0));
    check!(zeCommandListAppendMemoryPrefetch(list.0, at, size));
    let advice = ze_memory_advice_t::ZE_MEMORY_ADVICE_SET_SYSTEM_MEMORY_PREFERRED_LOCATION;
    check!(zeCommandListAppendMemAdvise(list.0, gpu.device, at, size, advice));
    check!(zeCommandListAppendMemoryCopy(
        list.0,
        at.wrapping_add(4),
        at,
        4,
        NONE,
        0,
        ptr::null_mut()
    ));
    list.close();
    queue.execute(&[&list], None);
    queue.synchronize();
    let (context, device) = (gpu.context, gpu.device);
    if reached() {
        check!(zeContextMakeMemoryResident(context, device, at, size));
        guest.add(at.cast(), 1, 1000);
        check!(zeContextEvictMemory(context, device, at, size));
        guest.add(at.cast(), 1, 1000);
        assert_eq!(memory, vec![3; 1000]);
    } else {
        for text in [
            refused!(
                ZE_RESULT_ERROR_INVALID_ARGUMENT,
                zeContextMakeMemoryResident(context, device, at, size)
            ),
            refused!(
                ZE_RESULT_ERROR_INVALID_ARGUMENT,
                zeContextEvictMemory(context, device, at, size)
            ),
        ] {
            assert!(text.contains("do not reach"), "{text}");
        }
    }
    refused!(
        ZE_RESULT_ERROR_INVALID_SIZE,
        zeContextMakeMemoryResident(context, device, at, usize::MAX)
    );
}

/// It was not made "by an allocation API": it is of no known type, in no allocation, and the driver
/// neither frees nor shares it.
#[test]
fn memory_of_the_system_is_no_allocation() {
    let guest = Guest::new();
    let mut memory = vec![0_u32; 1000];
    let at = memory.as_mut_ptr().cast::<c_void>();
    let mut properties = ze_memory_allocation_properties_t::default();
    let gpu = &guest.gpu;
    let mut device = gpu.device;
    check!(zeMemGetAllocProperties(gpu.context, at, &raw mut properties, &raw mut device));
    let unknown = ze_memory_type_t::ZE_MEMORY_TYPE_UNKNOWN;
    assert_eq!((properties.r#type, device), (unknown, ze_device_handle_t::NULL));
    let none = (ptr::null_mut(), ptr::null_mut());
    refused!(
        ZE_RESULT_ERROR_ADDRESS_NOT_FOUND,
        zeMemGetAddressRange(gpu.context, at, none.0, none.1)
    );
    refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, at));
    let mut handle = ze_ipc_mem_handle_t::default();
    refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemGetIpcHandle(gpu.context, at, &raw mut handle));
}

/// "When calling this function multiple times with different flags, only the attributes from last call are
/// honored."
#[test]
fn attributes_of_atomics_are_kept_for_memory_of_the_system() {
    use ze_memory_atomic_attr_exp_flags_t as it;
    let guest = Guest::new();
    let mut memory = vec![0_u32; 1000];
    let at = memory.as_mut_ptr().cast::<c_void>();
    let asked = it::ZE_MEMORY_ATOMIC_ATTR_EXP_FLAG_SYSTEM_ATOMICS;
    let (context, device) = (guest.gpu.context, guest.gpu.device);
    if !reached() {
        refused!(
            ZE_RESULT_ERROR_INVALID_ARGUMENT,
            zeMemSetAtomicAccessAttributeExp(context, device, at, 4000, asked)
        );
        return;
    }
    let get = |at: *mut c_void| {
        let mut found = it::empty();
        check!(zeMemGetAtomicAccessAttributeExp(context, device, at, 4, &raw mut found));
        found
    };
    let by_default = get(at);
    assert!(by_default.contains(asked));
    check!(zeMemSetAtomicAccessAttributeExp(context, device, at, 4000, asked));
    assert_eq!([get(at), get(at.wrapping_byte_add(3996))], [asked; 2]);
    assert_eq!(get(at.wrapping_byte_add(4000)), by_default, "behind the range");
    let none = it::ZE_MEMORY_ATOMIC_ATTR_EXP_FLAG_NO_ATOMICS;
    check!(zeMemSetAtomicAccessAttributeExp(context, device, at, 4000, none));
    assert_eq!(get(at), none);
    check!(zeMemSetAtomicAccessAttributeExp(context, device, at, 4000, it::empty()));
    assert_eq!(get(at), by_default);
}

/// The device is lost and not the program, and a new context works.
fn loses_the_device(wrong: impl FnOnce(&Guest) -> ze_result_t) {
    let guest = Guest::new();
    assert_eq!(wrong(&guest), ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST);
    let device = guest.gpu.device;
    drop(guest);
    let _ = call!(zeDeviceGetStatus(device));
    let guest = Guest::new();
    let memory = guest.gpu.host::<u32>(100);
    memory.fill_with(|_| 0);
    guest.add(memory.ptr(), 9, 100);
    assert_eq!(memory.get(99), 9);
}

/// A kernel has the access rights of the program: a write to a page that the program may not write is a
/// fault of the device, and so are accesses to memory that was unmapped and to a file that has become
/// shorter.
#[test]
fn what_the_program_may_not_do_to_its_memory_is_a_fault_of_the_device() {
    let children = ["read_only", "unmapped", "cut_short", "unmapped_meanwhile"];
    // If the device can access none of this memory, one kind of page is enough.
    let count = if reached() { children.len() } else { 1 };
    for child in &children[..count] {
        in_child(&format!("child_with_memory_{child}"), &[]);
    }
}

/// Adds to one word.
fn add_one(guest: &Guest, at: *mut u8) -> ze_result_t {
    let kernel = guest.kernel("add", &[bytes(&at), bytes(&1_u32), bytes(&1_u32)]);
    call!(zeCommandListHostSynchronize(guest.launch(kernel).0, PATIENCE))
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_memory_read_only() {
    let pages = Pages::new(PAGE);
    // SAFETY: the page is ours, and still writable.
    unsafe { pages.0.write(5) };
    pages.protect(0, libc::PROT_READ);
    loses_the_device(|guest| add_one(guest, pages.0));
    // SAFETY: the page is ours and may be read.
    assert_eq!(unsafe { pages.0.read() }, 5);
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_memory_unmapped() {
    let pages = ManuallyDrop::new(Pages::new(PAGE));
    // SAFETY: the page is ours; nothing is mapped before the kernel has run.
    unsafe { libc::munmap(pages.0.cast(), pages.1) };
    loses_the_device(|guest| add_one(guest, pages.0));
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_memory_cut_short() {
    let (fd, pages) = Pages::of_file(2 * PAGE);
    // SAFETY: it is a file of ours.
    assert_eq!(unsafe { libc::ftruncate(fd, PAGE as i64) }, 0);
    loses_the_device(|guest| add_one(guest, pages.0.wrapping_add(PAGE)));
}

/// The program unmaps memory while a kernel uses it.
#[test]
#[ignore = "runs in a child process"]
fn child_with_memory_unmapped_meanwhile() {
    let pages = ManuallyDrop::new(Pages::new(PAGE));
    let seen = Box::new(AtomicU64::new(0));
    loses_the_device(|guest| {
        let kernel = guest.kernel("look", &[bytes(&pages.0), bytes(&seen.as_ptr())]);
        let (list, start) = (guest.launch(kernel), Instant::now());
        while reached() && seen.load(Ordering::Relaxed) == 0 {
            assert!(start.elapsed() < Duration::from_nanos(PATIENCE), "the kernel never began");
            std::thread::yield_now();
        }
        // SAFETY: the page is ours; the test is about the kernel's accesses to it.
        unsafe { libc::munmap(pages.0.cast(), pages.1) };
        call!(zeCommandListHostSynchronize(list.0, PATIENCE))
    });
}

/// Kernels run in the process that created the context, also after it has forked: their later writes
/// are not in the child, whose memory is a copy.
#[test]
fn what_kernels_write_after_a_fork_is_the_parents() {
    if !reached() {
        return;
    }
    let guest = Guest::new();
    let mut memory = vec![1_u32; 1000];
    guest.add(memory.as_mut_ptr(), 1, 1000);
    let mut pipe = [0; 2];
    // SAFETY: the array has room for two descriptors.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    let at = memory.as_mut_ptr();
    // SAFETY: the child only reads, writes and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut byte = 0_u8;
        // SAFETY: as above; the memory is the child's own.
        unsafe {
            libc::read(pipe[0], (&raw mut byte).cast(), 1);
            let same = (0..1000).all(|i| at.add(i).read_volatile() == 2);
            libc::_exit(i32::from(!same));
        }
    }
    assert!(child > 0);
    guest.add(at, 3, 1000);
    let mut status = -1;
    // SAFETY: the descriptors are ours, the child too, the status has room.
    unsafe {
        libc::write(pipe[1], b"!".as_ptr().cast(), 1);
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        pipe.into_iter().for_each(|fd| assert_eq!(libc::close(fd), 0));
    }
    assert_eq!(status, 0, "the child saw what the kernel wrote");
    assert_eq!(memory, vec![5; 1000]);
}
