// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that several processes use (core programming guide, "Inter-Process Communication",
//! "Memory").

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr;

use tally_tests::lists::PATIENCE;
use tally_tests::peer::{self, HandleBytes, Peer};
use tally_tests::ze::{self, Gpu, Usm};
use tally_tests::{check, refused};
use tally_ze::*;

fn handle_at(gpu: &Gpu, ptr: *const c_void) -> HandleBytes {
    let mut handle = ze_ipc_mem_handle_t::default();
    check!(zeMemGetIpcHandle(gpu.context, ptr, &raw mut handle));
    handle.data
}

fn handle_of<T: Copy>(gpu: &Gpu, memory: &Usm<T>) -> HandleBytes {
    handle_at(gpu, memory.ptr().cast())
}

fn open(gpu: &Gpu, data: HandleBytes) -> *mut c_void {
    let mut ptr = ptr::null_mut();
    let flags = ze_ipc_memory_flags_t::empty();
    let handle = ze_ipc_mem_handle_t { data };
    check!(zeMemOpenIpcHandle(gpu.context, gpu.device, handle, flags, &raw mut ptr));
    ptr
}

fn close(gpu: &Gpu, ptr: *mut c_void) {
    check!(zeMemCloseIpcHandle(gpu.context, ptr));
}

fn fill(gpu: &Gpu, at: *mut c_void, value: u32, bytes: usize) {
    let list = gpu.immediate(0, true);
    let (pattern, size) = ((&raw const value).cast(), size_of::<u32>());
    let none = ptr::null_mut();
    let event = ze_event_handle_t::NULL;
    check!(zeCommandListAppendMemoryFill(list.0, at, pattern, size, bytes, event, 0, none));
    check!(zeCommandListHostSynchronize(list.0, PATIENCE));
}

fn read(at: *mut c_void, i: usize) -> u32 {
    // SAFETY: the tests read words of memory that they have open, and that is large enough.
    unsafe { at.cast::<u32>().add(i).read_volatile() }
}

/// 98 pages.
const WORDS: usize = 100_352;

/// The guide's sample, for each kind of memory: "Each process may now refer to the same device memory
/// allocation via its dptr."
/// "The API allows sharing of memory objects across different device processes." "First, the allocation
/// is made, packaged, and sent on the sending process"; "Method of sending to receiving process is not
/// defined by Level-Zero": here as text; "Next, the allocation is received and un-packaged on the
/// receiving process"; "To cleanup, first close the handle in the receiving process"; "Finally, return
/// the IPC handle to the driver with zeMemPutIpcHandle and free the device pointer in the sending
/// process."
#[test]
fn the_guides_sample() {
    let gpu = Gpu::new();
    let mut receiver = Peer::start("child_that_doubles");
    for memory in [gpu.device_memory::<u32>(WORDS), gpu.host(WORDS)] {
        memory.fill_with(|i| i as u32);
        // An address inside of an allocation stands for all of it.
        let inside = memory.ptr().wrapping_add(WORDS / 2);
        let handle = handle_at(&gpu, inside.cast());
        assert_eq!(peer::to_hex(&handle), peer::to_hex(&handle_of(&gpu, &memory)));
        receiver.say_handle(&handle);
        receiver.expect("doubled");
        assert!((0..WORDS).all(|i| memory.get(i) == 2 * i as u32));
        check!(zeMemPutIpcHandle(gpu.context, ze_ipc_mem_handle_t { data: handle }));
    }
    receiver.say("end");
    receiver.finish();
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_doubles() {
    let gpu = Gpu::new();
    loop {
        let line = peer::hear();
        if line == "end" {
            return;
        }
        let at = open(&gpu, peer::from_hex(&line));
        let (mut base, mut size) = (ptr::null_mut(), 0);
        check!(zeMemGetAddressRange(gpu.context, at, &raw mut base, &raw mut size));
        assert_eq!((base, size), (at, WORDS * size_of::<u32>()));
        let mut properties = ze_memory_allocation_properties_t::default();
        let mut device = ze_device_handle_t::NULL;
        let out = &raw mut properties;
        check!(zeMemGetAllocProperties(gpu.context, at, out, &raw mut device));
        let kind = properties.r#type;
        assert_eq!(device.is_null(), kind == ze_memory_type_t::ZE_MEMORY_TYPE_HOST);
        // The device reads and writes it: to a copy, which the host changes, and back.
        let copy = gpu.host::<u32>(WORDS);
        let list = gpu.immediate(0, true);
        let (event, none) = (ze_event_handle_t::NULL, ptr::null_mut());
        let there = copy.ptr().cast();
        check!(zeCommandListAppendMemoryCopy(list.0, there, at, size, event, 0, none));
        list.synchronize();
        let values = copy.to_vec();
        copy.fill_with(|i| 2 * values[i]);
        check!(zeCommandListAppendMemoryCopy(list.0, at, there, size, event, 0, none));
        list.synchronize();
        close(&gpu, at);
        peer::say("doubled");
    }
}

/// Contexts of one process may open what it exports itself; it is the same memory at another address.
/// "Since each process has its own virtual address space, there is no guarantee that the same virtual
/// address will be available when the memory object is shared in new process." "Note, there is no
/// guaranteed address equivalence for the values of dptr in each process."
#[test]
fn a_process_opens_its_own_memory() {
    let (gpu, other) = (Gpu::new(), Gpu::new());
    let memory = gpu.device_memory::<u32>(1 << 20);
    let at = open(&other, handle_of(&gpu, &memory));
    assert_ne!(at, memory.ptr().cast(), "the address is taken, so it is another one here");
    fill(&other, at, 7, memory.bytes());
    assert_eq!((memory.get(0), memory.get((1 << 20) - 1)), (7, 7));
    memory.set(5, 9);
    assert_eq!(read(at, 5), 9);
    close(&other, at);
}

/// "If zeMemPutIpcHandle is not called, any actions performed by that call are eventually done by
/// zeMemFree." Memory that is open then stays unchanged: its pages are not reused.
#[test]
fn memory_that_is_freed_is_kept_for_who_has_it_open() {
    let gpu = Gpu::new();
    let memory = gpu.device_memory::<u32>(1024);
    memory.fill_with(|i| i as u32);
    let handle = handle_of(&gpu, &memory);
    let at = open(&gpu, handle);
    drop(memory);
    let mut again = ptr::null_mut();
    let (flags, data) = (ze_ipc_memory_flags_t::empty(), ze_ipc_mem_handle_t { data: handle });
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeMemOpenIpcHandle(gpu.context, gpu.device, data, flags, &raw mut again)
    );
    // Memory that is allocated meanwhile would get the same pages if they were free.
    let others: Vec<_> = (0..64).map(|_| gpu.device_memory::<u32>(1024)).collect();
    others.iter().for_each(|other| other.fill_with(|_| u32::MAX));
    assert!((0..1024).all(|i| read(at, i) == i as u32));
    fill(&gpu, at, 3, 4096);
    assert!(others.iter().all(|other| other.to_vec().iter().all(|&it| it == u32::MAX)));
    close(&gpu, at);
}

#[test]
fn what_cannot_be_shared_opened_or_closed_is_refused() {
    let gpu = Gpu::new();
    let other = Gpu::new();
    let memory = gpu.device_memory::<u32>(16);
    let mut handle = ze_ipc_mem_handle_t::default();
    let stack = 0_u32;
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeMemGetIpcHandle(gpu.context, (&raw const stack).cast(), &raw mut handle)
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeMemGetIpcHandle(other.context, memory.ptr().cast(), &raw mut handle)
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_POINTER,
        zeMemGetIpcHandle(gpu.context, memory.ptr().cast(), ptr::null_mut())
    );
    check!(zeMemGetIpcHandle(gpu.context, memory.ptr().cast(), &raw mut handle));
    let mut at = ptr::null_mut();
    let unknown = ze_ipc_memory_flags_t::from_bits_retain(1 << 7);
    refused!(
        ZE_RESULT_ERROR_INVALID_ENUMERATION,
        zeMemOpenIpcHandle(gpu.context, gpu.device, handle, unknown, &raw mut at)
    );
    let flags = ze_ipc_memory_flags_t::ZE_IPC_MEMORY_FLAG_BIAS_UNCACHED;
    check!(zeMemOpenIpcHandle(gpu.context, gpu.device, handle, flags, &raw mut at));
    let said = refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, at));
    assert!(said.contains("zeMemCloseIpcHandle"), "{said}");
    refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemGetIpcHandle(gpu.context, at, &raw mut handle));
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeMemCloseIpcHandle(gpu.context, at.wrapping_byte_add(4))
    );
    refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemCloseIpcHandle(other.context, at));
    close(&gpu, at);
    refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemCloseIpcHandle(gpu.context, at));
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeMemCloseIpcHandle(gpu.context, memory.ptr().cast())
    );
}

const RW: ze_memory_access_attribute_t =
    ze_memory_access_attribute_t::ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE;

fn physical(gpu: &Gpu, size: usize) -> ze_physical_mem_handle_t {
    let mut desc = ze_physical_mem_desc_t { size, ..Default::default() };
    let mut memory = ze_physical_mem_handle_t::default();
    check!(zePhysicalMemCreate(gpu.context, gpu.device, &raw mut desc, &raw mut memory));
    memory
}

fn reserve(gpu: &Gpu, size: usize) -> *mut c_void {
    let mut at = ptr::null_mut();
    check!(zeVirtualMemReserve(gpu.context, ptr::null(), size, &raw mut at));
    at
}

/// "The pointer may also be a virtual address that was mapped to a physical memory object via
/// zeVirtualMemMap; in that case, the IPC handle represents the underlying physical memory object."
/// "The pointer may also be a physical memory handle cast to void* …; in that case, the IPC handle
/// represents the physical memory object directly and no virtual address mapping is required in the
/// sending process." "opening the handle assigns a new virtual address in the importing process that
/// maps to the underlying physical memory; no prior zeVirtualMemReserve or zeVirtualMemMap call is
/// required in the importing process."
#[test]
fn physical_memory_is_shared_by_its_address_or_its_handle() {
    let gpu = Gpu::new();
    let mut receiver = Peer::start("child_that_doubles");
    let bytes = WORDS * size_of::<u32>();
    let memory = physical(&gpu, bytes);
    let range = reserve(&gpu, 2 * bytes);
    // Only the second half of the range is mapped, and that in two pieces.
    let (first, second) = (range.wrapping_byte_add(bytes), bytes / 2);
    check!(zeVirtualMemMap(gpu.context, first, second, memory, 0, RW));
    let behind = first.wrapping_byte_add(second);
    check!(zeVirtualMemMap(gpu.context, behind, second, memory, second, RW));
    for i in 0..WORDS {
        // SAFETY: that many words are mapped there for the host too.
        unsafe { first.cast::<u32>().add(i).write_volatile(i as u32) };
    }
    let handle = handle_at(&gpu, first);
    receiver.say_handle(&handle);
    receiver.expect("doubled");
    assert!((0..WORDS).all(|i| read(first, i) == 2 * i as u32));
    let inside = handle_at(&gpu, behind.wrapping_byte_add(5));
    assert_eq!(peer::to_hex(&handle), peer::to_hex(&inside), "one object, one handle");
    check!(zeVirtualMemUnmap(gpu.context, first, bytes));
    // Nothing is mapped now.
    let handle = handle_at(&gpu, memory.0);
    receiver.say_handle(&handle);
    receiver.expect("doubled");
    check!(zeVirtualMemMap(gpu.context, range, bytes, memory, 0, RW));
    assert!((0..WORDS).all(|i| read(range, i) == 4 * i as u32));
    check!(zeMemPutIpcHandle(gpu.context, ze_ipc_mem_handle_t { data: handle }));
    receiver.say("end");
    receiver.finish();
    check!(zeVirtualMemFree(gpu.context, range, 2 * bytes));
    check!(zePhysicalMemDestroy(gpu.context, memory));
}

/// "the IPC handle represents the underlying physical memory object": the importer's address is that of
/// the page at which the mapping begins, so both processes see the same pages behind their pointers.
#[test]
fn a_mapping_with_an_offset_is_shared_from_its_first_page() {
    let gpu = Gpu::new();
    let memory = physical(&gpu, 6 * PAGE);
    let range = reserve(&gpu, 16 * PAGE);
    let at = |page: usize| range.wrapping_byte_add(page * PAGE);
    check!(zeVirtualMemMap(gpu.context, range, 6 * PAGE, memory, 0, RW));
    for page in 0..6_u32 {
        fill(&gpu, at(page as usize), 100 + page, PAGE);
    }
    check!(zeVirtualMemUnmap(gpu.context, range, 6 * PAGE));
    // Pages 2 and 3 in two pieces that follow each other, page 1 behind them, page 5 far away.
    for (to, page) in [(4, 2), (5, 3), (6, 1), (12, 5)] {
        check!(zeVirtualMemMap(gpu.context, at(to), PAGE, memory, page * PAGE, RW));
    }
    for (from, page, pages) in [(4, 2, 4), (5, 2, 4), (6, 1, 5), (12, 5, 1)] {
        let there = open(&gpu, handle_at(&gpu, at(from).wrapping_byte_add(8)));
        let (mut base, mut size) = (ptr::null_mut(), 0);
        check!(zeMemGetAddressRange(gpu.context, there, &raw mut base, &raw mut size));
        assert_eq!((base, size), (there, pages * PAGE), "to the end of the object");
        assert_eq!(read(there, 0), 100 + page, "page {page}");
        // Each side reads the other side's writes.
        fill(&gpu, there, 200 + page, PAGE);
        let first = if from == 5 { at(4) } else { at(from) };
        assert_eq!(read(first, 0), 200 + page);
        fill(&gpu, first, 100 + page, PAGE);
        assert_eq!(read(there, PAGE / 4 - 1), 100 + page);
        close(&gpu, there);
    }
    // A handle shares the whole object.
    let whole = open(&gpu, handle_at(&gpu, memory.0));
    assert_eq!((read(whole, 0), read(whole, PAGE / 4)), (100, 101));
    close(&gpu, whole);
    check!(zeVirtualMemFree(gpu.context, range, 16 * PAGE));
    check!(zePhysicalMemDestroy(gpu.context, memory));
}

const PAGE: usize = 4096;

/// Shares pages in every way: a handle, the local address of its first page, and that page's number.
/// Page `n` is filled with `n`. Everything is kept until the process ends.
fn shared_pages(gpu: &Gpu) -> Vec<(HandleBytes, *mut c_void, u32)> {
    let mut all = Vec::new();
    for on_host in [false, true] {
        let flags = if on_host {
            ze_physical_mem_flags_t::ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_HOST
        } else {
            ze_physical_mem_flags_t::ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_DEVICE
        };
        let mut desc = ze_physical_mem_desc_t { flags, size: 8 * PAGE, ..Default::default() };
        let mut memory = ze_physical_mem_handle_t::default();
        check!(zePhysicalMemCreate(gpu.context, gpu.device, &raw mut desc, &raw mut memory));
        let range = reserve(gpu, 16 * PAGE);
        let at = |page: usize| range.wrapping_byte_add(page * PAGE);
        check!(zeVirtualMemMap(gpu.context, range, 8 * PAGE, memory, 0, RW));
        for page in 0..8_u32 {
            fill(gpu, at(page as usize), page, PAGE);
        }
        // From the start of a mapping, its middle, and another mapping of the same page.
        check!(zeVirtualMemMap(gpu.context, at(10), 3 * PAGE, memory, 5 * PAGE, RW));
        all.push((handle_at(gpu, range), range, 0));
        all.push((handle_at(gpu, at(10)), at(10), 5));
        all.push((handle_at(gpu, at(11).wrapping_byte_add(12)), at(10), 5));
        all.push((handle_at(gpu, memory.0), range, 0));
    }
    let plain = Box::leak(Box::new(gpu.device_memory::<u32>(2 * PAGE / 4)));
    fill(gpu, plain.ptr().cast(), 3, 2 * PAGE);
    let inside = plain.ptr().wrapping_add(PAGE / 4 + 1);
    all.push((handle_at(gpu, inside.cast()), plain.ptr().cast(), 3));
    all
}

/// Opens a handle of the other process, checks its page, and writes to it.
fn see_page(gpu: &Gpu, handle: HandleBytes, page: u32, round: u32) {
    let at = open(gpu, handle);
    assert_eq!(read(at, PAGE / 4 - 1), page);
    fill(gpu, at, 100 * round + page, 8);
    close(gpu, at);
}

/// Both processes share, and open the other's handles: reserved, mapped at an offset, of device and
/// host.
#[test]
fn mappings_with_an_offset_are_shared_in_both_directions() {
    let gpu = ManuallyDrop::new(Gpu::new());
    let mut other = Peer::start("child_that_shares_pages");
    for (round, (handle, at, page)) in (1..).zip(shared_pages(&gpu)) {
        other.say_handle(&handle);
        other.say(&format!("{page}"));
        other.expect("seen");
        assert_eq!(read(at, 1), 100 * round + page, "what the other process wrote");
        let handle = other.hear_handle();
        let page = other.hear().parse().expect("a number");
        see_page(&gpu, handle, page, round);
        other.say("seen");
    }
    other.finish();
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_shares_pages() {
    let gpu = ManuallyDrop::new(Gpu::new());
    for (round, (handle, at, page)) in (1..).zip(shared_pages(&gpu)) {
        let theirs = peer::hear_handle();
        see_page(&gpu, theirs, peer::hear().parse().expect("a number"), round);
        peer::say("seen");
        peer::say_handle(&handle);
        peer::say(&format!("{page}"));
        peer::expect("seen");
        assert_eq!(read(at, 1), 100 * round + page, "what the other process wrote");
    }
}

/// "The driver must not release the underlying physical memory until all IPC handles referencing it
/// have been closed via zeMemCloseIpcHandle": what is open stays what it is, and nothing of it can be
/// opened any more.
#[test]
fn physical_memory_that_is_destroyed_is_kept_for_who_has_it_open() {
    let gpu = Gpu::new();
    let memory = physical(&gpu, 4096);
    let handle = ze_ipc_mem_handle_t { data: handle_at(&gpu, memory.0) };
    let at = open(&gpu, handle.data);
    fill(&gpu, at, 5, 4096);
    check!(zePhysicalMemDestroy(gpu.context, memory));
    let (mut again, flags) = (ptr::null_mut(), ze_ipc_memory_flags_t::empty());
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeMemOpenIpcHandle(gpu.context, gpu.device, handle, flags, &raw mut again)
    );
    // Memory that is allocated meanwhile would get the same pages if they were free.
    let others: Vec<_> = (0..64).map(|_| gpu.device_memory::<u32>(1024)).collect();
    others.iter().for_each(|other| other.fill_with(|_| u32::MAX));
    assert!((0..1024).all(|i| read(at, i) == 5));
    close(&gpu, at);
}

/// "the virtual address range passed must map to exactly one physical memory object", of the context
/// that is named.
#[test]
fn addresses_without_memory_and_memory_of_other_contexts_are_not_shared() {
    let (gpu, other) = (Gpu::new(), Gpu::new());
    let (memory, range) = (physical(&gpu, 4096), reserve(&gpu, 8192));
    check!(zeVirtualMemMap(gpu.context, range, 4096, memory, 0, RW));
    let mut handle = ze_ipc_mem_handle_t::default();
    let unmapped = range.wrapping_byte_add(4096);
    for (context, at) in [
        (gpu.context, unmapped),
        (gpu.context, range.wrapping_byte_add(8192)),
        (other.context, range),
        (other.context, memory.0),
    ] {
        refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemGetIpcHandle(context, at, &raw mut handle));
    }
    check!(zePhysicalMemDestroy(gpu.context, memory));
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeMemGetIpcHandle(gpu.context, memory.0, &raw mut handle)
    );
    // Its mapping still exists.
    check!(zeMemGetIpcHandle(gpu.context, range, &raw mut handle));
    check!(zeVirtualMemFree(gpu.context, range, 8192));
    let (mut at, flags) = (ptr::null_mut(), ze_ipc_memory_flags_t::empty());
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeMemOpenIpcHandle(gpu.context, gpu.device, handle, flags, &raw mut at)
    );
}

/// A file descriptor may replace a handle, to be sent where only descriptors can be.
#[test]
fn a_handle_becomes_a_file_and_a_handle_again() {
    let gpu = Gpu::new();
    let memory = gpu.device_memory::<u32>(16);
    let handle = ze_ipc_mem_handle_t { data: handle_of(&gpu, &memory) };
    let (mut file, mut back) = (0, ze_ipc_mem_handle_t::default());
    check!(zeMemGetFileDescriptorFromIpcHandleExp(gpu.context, handle, &raw mut file));
    // SAFETY: the descriptor is ours, to copy and to close. Other tests open files meanwhile, whose
    // numbers are not as large.
    let large = unsafe {
        let large = libc::fcntl(file as i32, libc::F_DUPFD_CLOEXEC, 900);
        assert!(large >= 900 && libc::close(file as i32) == 0);
        large
    };
    file = large as u64;
    check!(zeMemGetIpcHandleFromFileDescriptorExp(gpu.context, file, &raw mut back));
    assert_eq!(peer::to_hex(&handle.data), peer::to_hex(&back.data));
    // SAFETY: as above.
    assert_eq!(unsafe { libc::close(large) }, 0);
    for wrong in [file, u64::MAX, 1 << 32] {
        refused!(
            ZE_RESULT_ERROR_INVALID_ARGUMENT,
            zeMemGetIpcHandleFromFileDescriptorExp(gpu.context, wrong, &raw mut back)
        );
    }
}

#[test]
fn properties_say_that_it_works() {
    let mut properties = ze_driver_ipc_properties_t::default();
    check!(zeDriverGetIpcProperties(ze::driver(), &raw mut properties));
    assert!(properties.flags.contains(ze_ipc_property_flags_t::ZE_IPC_PROPERTY_FLAG_MEMORY));
}
