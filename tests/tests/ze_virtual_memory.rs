// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reserved device allocations through the stock loader: the guide's examples, and the uses that it
//! rules out.

use std::ffi::c_void;
use std::ptr;

use tally_tests::lists::List;
use tally_tests::ze::{self, Gpu};
use tally_tests::{call, check, refused};
use tally_ze::*;

use ze_memory_access_attribute_t as Access;

const RW: Access = Access::ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE;
const RO: Access = Access::ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY;
const NONE: Access = Access::ZE_MEMORY_ACCESS_ATTRIBUTE_NONE;

fn page_size(gpu: &Gpu, size: usize) -> usize {
    let mut page = 0;
    check!(zeVirtualMemQueryPageSize(gpu.context, ze::device(), size, &raw mut page));
    assert!(page.is_power_of_two(), "a page of {page} bytes");
    page
}

fn reserve(gpu: &Gpu, hint: *const c_void, size: usize) -> *mut c_void {
    let mut at = ptr::null_mut();
    check!(zeVirtualMemReserve(gpu.context, hint, size, &raw mut at));
    at
}

fn physical(gpu: &Gpu, size: usize) -> ze_physical_mem_handle_t {
    let mut desc = ze_physical_mem_desc_t { size, ..Default::default() };
    let mut memory = ze_physical_mem_handle_t::default();
    check!(zePhysicalMemCreate(gpu.context, ze::device(), &raw mut desc, &raw mut memory));
    memory
}

fn access(gpu: &Gpu, at: *const c_void, size: usize) -> (Access, usize) {
    let (mut access, mut same) = (NONE, 0);
    check!(zeVirtualMemGetAccessAttribute(gpu.context, at, size, &raw mut access, &raw mut same));
    (access, same)
}

fn fill(list: &List, at: *mut c_void, value: u8, size: usize) {
    let (event, waits) = (ze_event_handle_t::default(), ptr::null_mut());
    let pattern = (&raw const value).cast();
    check!(zeCommandListAppendMemoryFill(list.0, at, pattern, 1, size, event, 0, waits));
    list.synchronize();
}

/// The bytes that the device reads there.
fn read(gpu: &Gpu, list: &List, at: *const c_void, size: usize) -> Vec<u8> {
    let out = gpu.host::<u8>(size);
    let (event, waits) = (ze_event_handle_t::default(), ptr::null_mut());
    check!(zeCommandListAppendMemoryCopy(list.0, out.ptr().cast(), at, size, event, 0, waits));
    list.synchronize();
    out.to_vec()
}

fn all(bytes: &[u8], value: u8) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| byte == value)
}

/// "Reserve 1MB of virtual address space … Create 1MB physical memory object … Map entire 1MB
/// reservation and set access to read/write … Expecting entire range to have the same access
/// attribute and it be read/write."
#[test]
fn a_reservation_that_is_mapped_is_memory() {
    let gpu = Gpu::new();
    let size = (1_usize << 20).next_multiple_of(page_size(&gpu, 1 << 20));
    let at = reserve(&gpu, ptr::null(), size);
    assert_eq!(access(&gpu, at, size), (NONE, size), "reserved is not mapped");
    let memory = physical(&gpu, size);
    check!(zeVirtualMemMap(gpu.context, at, size, memory, 0, RW));
    assert_eq!(access(&gpu, at, size), (RW, size));
    let list = gpu.immediate(0, true);
    assert!(all(&read(&gpu, &list, at, size), 0), "memory begins as zero");
    fill(&list, at, 0x5a, size);
    assert!(all(&read(&gpu, &list, at, size), 0x5a));
    check!(zeVirtualMemUnmap(gpu.context, at, size));
    assert_eq!(access(&gpu, at, size), (NONE, size));
    // The pages belong to the physical object: after mapping it again they have the written contents.
    check!(zeVirtualMemMap(gpu.context, at, size, memory, 0, RO));
    assert!(all(&read(&gpu, &list, at, size), 0x5a));
    check!(zeVirtualMemUnmap(gpu.context, at, size));
    check!(zePhysicalMemDestroy(gpu.context, memory));
    check!(zeVirtualMemFree(gpu.context, at, size));
}

/// "Reserve another 1MB of virtual address space that is contiguous with previous reservation." "If
/// they are different then the application may want to create a new larger reservation and remap the
/// physical memory from the first reservation".
#[test]
fn a_reservation_grows_in_place_or_by_remapping() {
    let gpu = Gpu::new();
    let size = 1 << 20;
    let first = reserve(&gpu, ptr::null(), size);
    let memory = physical(&gpu, size);
    check!(zeVirtualMemMap(gpu.context, first, size, memory, 0, RW));
    let list = gpu.immediate(0, true);
    fill(&list, first, 7, size);
    let hint = first.wrapping_byte_add(size);
    let second = reserve(&gpu, hint, size);
    // The address behind it is in use now, so this one has to be elsewhere.
    let third = reserve(&gpu, hint, size);
    assert!(third != hint && third != first);
    let larger = reserve(&gpu, ptr::null(), 2 * size);
    check!(zeVirtualMemMap(gpu.context, larger, size, memory, 0, RW));
    assert!(all(&read(&gpu, &list, larger, size), 7), "the same pages at two addresses");
    fill(&list, larger, 8, 4096);
    assert!(all(&read(&gpu, &list, first, 4096), 8));
    for (at, size) in [(first, size), (second, size), (third, size), (larger, 2 * size)] {
        check!(zeVirtualMemFree(gpu.context, at, size));
    }
    check!(zePhysicalMemDestroy(gpu.context, memory));
}

/// "These ranges can be sparsely mapped using one or more physical memory objects": the guide's
/// 128 KB and 8 MB of a reservation of 1 GB.
#[test]
fn a_large_reservation_is_mapped_sparsely() {
    let gpu = Gpu::new();
    let whole = 1_048_576_000_usize.next_multiple_of(page_size(&gpu, 1_048_576_000));
    let at = reserve(&gpu, ptr::null(), whole);
    let list = gpu.immediate(0, true);
    let parts = [(131_072_usize, 1_usize << 20, 1), (8_388_608, 512 << 20, 2)];
    for (size, offset, value) in parts {
        let size = size.next_multiple_of(page_size(&gpu, size));
        let memory = physical(&gpu, size);
        let part = at.wrapping_byte_add(offset);
        check!(zeVirtualMemMap(gpu.context, part, size, memory, 0, RW));
        // "Its mappings outlive its handle": the object's handle is needed no longer.
        check!(zePhysicalMemDestroy(gpu.context, memory));
        fill(&list, part, value, size);
        assert_eq!(access(&gpu, part, size), (RW, size));
    }
    assert_eq!(access(&gpu, at, whole), (NONE, 1 << 20), "up to the first part");
    for (size, offset, value) in parts {
        assert!(all(&read(&gpu, &list, at.wrapping_byte_add(offset), size), value));
    }
    check!(zeVirtualMemFree(gpu.context, at, whole));
}

/// "Access attributes can be set for a range of pages".
#[test]
fn access_is_an_attribute_of_pages() {
    let gpu = Gpu::new();
    let page = page_size(&gpu, 4096);
    let at = reserve(&gpu, ptr::null(), 4 * page);
    let memory = physical(&gpu, 4 * page);
    check!(zeVirtualMemMap(gpu.context, at, 4 * page, memory, 0, RW));
    let list = gpu.immediate(0, true);
    fill(&list, at, 9, 4 * page);
    let second = at.wrapping_byte_add(page);
    check!(zeVirtualMemSetAccessAttribute(gpu.context, second, page, RO));
    assert_eq!(access(&gpu, at, 4 * page), (RW, page));
    assert_eq!(access(&gpu, second, 3 * page), (RO, page));
    assert!(all(&read(&gpu, &list, at, 4 * page), 9), "read-only pages are read");
    check!(zeVirtualMemSetAccessAttribute(gpu.context, at, 4 * page, NONE));
    check!(zeVirtualMemSetAccessAttribute(gpu.context, at, 4 * page, RW));
    assert!(all(&read(&gpu, &list, at, 4 * page), 9), "the contents stay");
    check!(zeVirtualMemFree(gpu.context, at, 4 * page));
    check!(zePhysicalMemDestroy(gpu.context, memory));
}

/// "ALLOCATE_ON_HOST: Allocate physical host memory instead." The device "can be `nullptr` if creating
/// physical host memory".
#[test]
fn physical_memory_of_the_host_needs_no_device() {
    let gpu = Gpu::new();
    let size = page_size(&gpu, 4096);
    let nobody = ze_device_handle_t::default();
    let mut memory = ze_physical_mem_handle_t::default();
    let mut desc = ze_physical_mem_desc_t { size, ..Default::default() };
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_HANDLE,
        zePhysicalMemCreate(gpu.context, nobody, &raw mut desc, &raw mut memory)
    );
    desc.flags = ze_physical_mem_flags_t::ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_HOST;
    check!(zePhysicalMemCreate(gpu.context, nobody, &raw mut desc, &raw mut memory));
    let at = reserve(&gpu, ptr::null(), size);
    check!(zeVirtualMemMap(gpu.context, at, size, memory, 0, RW));
    let list = gpu.immediate(0, true);
    fill(&list, at, 3, size);
    assert!(all(&read(&gpu, &list, at, size), 3));
    check!(zeVirtualMemFree(gpu.context, at, size));
    check!(zePhysicalMemDestroy(gpu.context, memory));
}

/// "Read-only attribute is hardware-enforced; writes to read-only pages" fault, says the device's
/// property. The fault loses the device, so it happens in a process of its own.
#[test]
fn a_write_to_a_read_only_page_is_a_fault() {
    let mut read_only = ze_device_readonly_memory_ext_properties_t::default();
    let mut properties =
        ze_device_properties_t { pNext: (&raw mut read_only).cast(), ..Default::default() };
    check!(zeDeviceGetProperties(ze::device(), &raw mut properties));
    let enforced =
        ze_device_readonly_memory_capability_t::ZE_DEVICE_READONLY_MEMORY_CAPABILITY_ENFORCED;
    assert_eq!(read_only.readonlyCapability, enforced);
    let said = ze::in_child("child_writes_to_a_read_only_page", &[]);
    assert!(said.contains("DEVICE_LOST"), "{said}");
}

#[test]
#[ignore = "runs in a child process"]
fn child_writes_to_a_read_only_page() {
    let gpu = Gpu::new();
    let at = reserve(&gpu, ptr::null(), 4096);
    let memory = physical(&gpu, 4096);
    check!(zeVirtualMemMap(gpu.context, at, 4096, memory, 0, RO));
    let list = gpu.immediate(0, true);
    let (value, event) = (1_u8, ze_event_handle_t::default());
    let pattern = (&raw const value).cast();
    check!(zeCommandListAppendMemoryFill(list.0, at, pattern, 1, 4096, event, 0, ptr::null_mut()));
    println!("{:?}", call!(zeCommandListHostSynchronize(list.0, u64::MAX)));
}

/// "The reservation starting address and size must be page aligned."
#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let gpu = Gpu::new();
    let page = page_size(&gpu, 4096);
    let at = reserve(&gpu, ptr::null(), 2 * page);
    let memory = physical(&gpu, page);
    let odd = at.wrapping_byte_add(8);
    let mut out = ptr::null_mut();
    for size in [0, 100, page + 1] {
        refused!(
            ZE_RESULT_ERROR_UNSUPPORTED_SIZE,
            zeVirtualMemReserve(gpu.context, ptr::null(), size, &raw mut out)
        );
        refused!(
            ZE_RESULT_ERROR_UNSUPPORTED_SIZE,
            zeVirtualMemMap(gpu.context, at, size, memory, 0, RW)
        );
    }
    refused!(
        ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT,
        zeVirtualMemReserve(gpu.context, odd, page, &raw mut out)
    );
    refused!(
        ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT,
        zeVirtualMemMap(gpu.context, odd, page, memory, 0, RW)
    );
    refused!(
        ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
        zeVirtualMemReserve(gpu.context, ptr::null(), 1 << 60, &raw mut out)
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_ENUMERATION,
        zeVirtualMemMap(gpu.context, at, page, memory, 0, Access(77))
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeVirtualMemMap(gpu.context, at, 2 * page, memory, 0, RW)
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeVirtualMemSetAccessAttribute(gpu.context, at, 3 * page, RO)
    );
    refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeVirtualMemFree(gpu.context, at, page));
    let usm = gpu.host::<u8>(page);
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeVirtualMemMap(gpu.context, usm.ptr().cast(), page, memory, 0, RW)
    );
    check!(zeVirtualMemMap(gpu.context, at, page, memory, 0, RW));
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeVirtualMemMap(gpu.context, at, page, memory, 0, RW)
    );
    let mut properties = ze_physical_mem_properties_t::default();
    check!(zePhysicalMemGetProperties(gpu.context, memory, &raw mut properties));
    assert_eq!(properties.size, page as u64);
    check!(zePhysicalMemDestroy(gpu.context, memory));
    refused!(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, zePhysicalMemDestroy(gpu.context, memory));
    check!(zeVirtualMemFree(gpu.context, at, 2 * page));
}

/// An attribute may be set before anything is mapped: it is reported until a mapping replaces it with
/// its own.
#[test]
fn an_attribute_can_be_set_before_memory_is_mapped() {
    let gpu = Gpu::new();
    let page = page_size(&gpu, 1);
    let at = reserve(&gpu, ptr::null(), 4 * page);
    let second = at.wrapping_byte_add(page);
    assert_eq!(access(&gpu, at, 4 * page), (NONE, 4 * page));
    check!(zeVirtualMemSetAccessAttribute(gpu.context, at, 4 * page, RO));
    assert_eq!(access(&gpu, at, 4 * page), (RO, 4 * page));
    let memory = physical(&gpu, page);
    check!(zeVirtualMemMap(gpu.context, second, page, memory, 0, RW));
    assert_eq!(access(&gpu, at, 4 * page), (RO, page));
    assert_eq!(access(&gpu, second, 3 * page), (RW, page));
    let list = gpu.immediate(0, true);
    fill(&list, second, 7, page);
    list.synchronize();
    check!(zeVirtualMemSetAccessAttribute(gpu.context, at, 4 * page, RW));
    assert_eq!(access(&gpu, at, 4 * page), (RW, 4 * page));
    // SAFETY: mapped for reading and writing.
    assert_eq!(unsafe { second.cast::<u8>().read_volatile() }, 7, "what is mapped stays");
    check!(zeVirtualMemUnmap(gpu.context, at, 4 * page));
    assert_eq!(access(&gpu, at, 4 * page), (NONE, 4 * page));
    check!(zePhysicalMemDestroy(gpu.context, memory));
    check!(zeVirtualMemFree(gpu.context, at, 4 * page));
}
