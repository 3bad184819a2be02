// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that is exported as a file, memory of the application that it registers, and queries about
//! atomics.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use tally_tests::ze::Gpu;
use tally_tests::{call, check, refused, ze};
use tally_ze::*;

const OPAQUE: ze_external_memory_type_flags_t =
    ze_external_memory_type_flags_t::ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD;
const DMA_BUF: ze_external_memory_type_flags_t =
    ze_external_memory_type_flags_t::ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF;

fn allocate(gpu: &Gpu, size: usize, next: *const c_void) -> Result<*mut u32, ze_result_t> {
    let desc = ze_device_mem_alloc_desc_t { pNext: next, ..Default::default() };
    let mut memory = ptr::null_mut();
    let result =
        call!(zeMemAllocDevice(gpu.context, &raw const desc, size, 0, gpu.device, &raw mut memory));
    if result == ze_result_t::ZE_RESULT_SUCCESS { Ok(memory.cast()) } else { Err(result) }
}

fn for_export(gpu: &Gpu, size: usize) -> *mut u32 {
    let export = ze_external_memory_export_desc_t { flags: OPAQUE, ..Default::default() };
    allocate(gpu, size, (&raw const export).cast()).expect("memory to export")
}

fn imported(gpu: &Gpu, size: usize, fd: c_int) -> Result<*mut u32, ze_result_t> {
    let import = ze_external_memory_import_fd_t { flags: OPAQUE, fd, ..Default::default() };
    allocate(gpu, size, (&raw const import).cast())
}

fn file_of(gpu: &Gpu, memory: *mut u32) -> OwnedFd {
    let mut export = ze_external_memory_export_fd_t { flags: OPAQUE, fd: -1, ..Default::default() };
    let mut properties =
        ze_memory_allocation_properties_t { pNext: (&raw mut export).cast(), ..Default::default() };
    let none = ptr::null_mut();
    check!(zeMemGetAllocProperties(gpu.context, memory.cast(), &raw mut properties, none));
    assert!(export.fd >= 0);
    // SAFETY: the driver has created the descriptor for this call.
    unsafe { OwnedFd::from_raw_fd(export.fd) }
}

/// "Level-Zero supports exporting memory allocations for use in other APIs and importing memory
/// allocations from other APIs."
#[test]
fn memory_goes_out_and_comes_in_as_a_file() {
    let gpu = Gpu::new();
    let mut properties = ze_device_external_memory_properties_t::default();
    check!(zeDeviceGetExternalMemoryProperties(gpu.device, &raw mut properties));
    let mut types = OPAQUE;
    types.set(DMA_BUF, ze::on_kernel_lane());
    assert_eq!(properties.memoryAllocationExportTypes, types);
    // Those of other drivers of the kernel come in on both lanes.
    assert_eq!(properties.memoryAllocationImportTypes, OPAQUE | DMA_BUF);
    let first = for_export(&gpu, 10_000);
    let file = file_of(&gpu, first);
    let second = imported(&gpu, 10_000, file.as_raw_fd()).expect("its file");
    assert_ne!(first, second);
    // The device writes through one address, the host reads through the other.
    let list = gpu.immediate(1, true);
    let value = 0x1234_5678_u32;
    check!(zeCommandListAppendMemoryFill(
        list.0,
        first.cast(),
        (&raw const value).cast(),
        4,
        10_000,
        ze_event_handle_t::NULL,
        0,
        ptr::null_mut()
    ));
    list.synchronize();
    // SAFETY: both are 10,000 bytes of USM.
    assert_eq!(unsafe { second.add(2_499).read_volatile() }, value);
    // The importer's memory outlives file and exporter.
    drop(file);
    check!(zeMemFree(gpu.context, first.cast()));
    // SAFETY: as above.
    assert_eq!(unsafe { second.read_volatile() }, value);
    let again = file_of(&gpu, second);
    let third = imported(&gpu, 8, again.as_raw_fd()).expect("a part of it");
    // SAFETY: the memory has 8 bytes.
    assert_eq!(unsafe { third.read_volatile() }, value);
    check!(zeMemFree(gpu.context, third.cast()));
    check!(zeMemFree(gpu.context, second.cast()));
}

fn physical(gpu: &Gpu, size: usize, next: *const c_void) -> ze_physical_mem_handle_t {
    let mut desc = ze_physical_mem_desc_t { size, pNext: next, ..Default::default() };
    let mut memory = ze_physical_mem_handle_t::default();
    check!(zePhysicalMemCreate(gpu.context, gpu.device, &raw mut desc, &raw mut memory));
    memory
}

fn file_of_physical(gpu: &Gpu, memory: ze_physical_mem_handle_t) -> Option<OwnedFd> {
    let mut export = ze_external_memory_export_fd_t { flags: OPAQUE, fd: -1, ..Default::default() };
    let next = (&raw mut export).cast();
    let mut properties = ze_physical_mem_properties_t { pNext: next, ..Default::default() };
    let result = call!(zePhysicalMemGetProperties(gpu.context, memory, &raw mut properties));
    // SAFETY: the driver has created the descriptor for this call.
    (result == ze_result_t::ZE_RESULT_SUCCESS).then(|| unsafe { OwnedFd::from_raw_fd(export.fd) })
}

/// "This structure may be passed to … zePhysicalMemCreate, via the pNext member of …
/// ze_physical_mem_desc_t …, to indicate an exportable memory allocation", "to import memory from a file
/// descriptor"; "may be passed to zePhysicalMemGetProperties … to export physical memory as a file
/// descriptor. The requested memory export type must have been specified when the allocation was made."
#[test]
fn physical_memory_goes_out_and_comes_in_as_a_file() {
    let gpu = Gpu::new();
    let size = 3 * 4096;
    let export = ze_external_memory_export_desc_t { flags: OPAQUE, ..Default::default() };
    let first = physical(&gpu, size, (&raw const export).cast());
    let file = file_of_physical(&gpu, first).expect("it was made for that");
    let fd = file.as_raw_fd();
    let import = ze_external_memory_import_fd_t { flags: OPAQUE, fd, ..Default::default() };
    let second = physical(&gpu, size, (&raw const import).cast());
    let mut at = ptr::null_mut();
    check!(zeVirtualMemReserve(gpu.context, ptr::null(), 2 * size, &raw mut at));
    let behind = at.wrapping_byte_add(size);
    let access = ze_memory_access_attribute_t::ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE;
    check!(zeVirtualMemMap(gpu.context, at, size, first, 0, access));
    check!(zeVirtualMemMap(gpu.context, behind, size, second, 0, access));
    // The file can be imported as an allocation as well.
    let third = imported(&gpu, size, fd).expect("its file");
    let (last, value) = (size / 4 - 1, 0x0bad_cafe);
    // SAFETY: all three are mapped for the host, `size` bytes each.
    unsafe {
        at.cast::<u32>().add(last).write_volatile(value);
        assert_eq!(behind.cast::<u32>().add(last).read_volatile(), value);
        assert_eq!(third.add(last).read_volatile(), value);
    }
    check!(zeMemFree(gpu.context, third.cast()));
    let plain = physical(&gpu, size, ptr::null());
    assert!(file_of_physical(&gpu, plain).is_none());
    assert!(
        ze::description().contains("ze_external_memory_export_desc_t"),
        "{}",
        ze::description()
    );
    let import = ze_external_memory_import_fd_t { flags: OPAQUE, fd, ..Default::default() };
    let next = (&raw const import).cast();
    let mut longer = ze_physical_mem_desc_t { size: 2 * size, pNext: next, ..Default::default() };
    let mut none = ze_physical_mem_handle_t::default();
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zePhysicalMemCreate(gpu.context, gpu.device, &raw mut longer, &raw mut none)
    );
    check!(zeVirtualMemFree(gpu.context, at, 2 * size));
    for memory in [first, second, plain] {
        check!(zePhysicalMemDestroy(gpu.context, memory));
    }
}

/// "Handle passed must be a valid file descriptor obtained with ze_external_memory_export_fd_t via
/// zeMemGetAllocProperties or zePhysicalMemGetProperties."
#[test]
fn an_exported_file_becomes_an_ipc_handle() {
    let gpu = Gpu::new();
    let (allocation, other) = (for_export(&gpu, 4096), for_export(&gpu, 4096));
    let export = ze_external_memory_export_desc_t { flags: OPAQUE, ..Default::default() };
    let memory = physical(&gpu, 4096, (&raw const export).cast());
    let files = [file_of(&gpu, allocation), file_of_physical(&gpu, memory).expect("a file")];
    let opened = files.map(|file| {
        let (mut handle, mut at) = (ze_ipc_mem_handle_t::default(), ptr::null_mut());
        let fd = file.as_raw_fd() as u64;
        check!(zeMemGetIpcHandleFromFileDescriptorExp(gpu.context, fd, &raw mut handle));
        let flags = ze_ipc_memory_flags_t::empty();
        check!(zeMemOpenIpcHandle(gpu.context, gpu.device, handle, flags, &raw mut at));
        check!(zeMemPutIpcHandle(gpu.context, handle));
        at
    });
    // SAFETY: all are a page, mapped for the host.
    unsafe {
        other.write_volatile(1);
        opened[0].cast::<u32>().write_volatile(2);
        opened[1].cast::<u32>().write_volatile(3);
        assert_eq!((allocation.read_volatile(), other.read_volatile()), (2, 1));
    }
    let second = imported(&gpu, 4096, file_of_physical(&gpu, memory).expect("a file").as_raw_fd());
    // SAFETY: as above.
    assert_eq!(unsafe { second.expect("its file").read_volatile() }, 3);
    opened.into_iter().for_each(|at| check!(zeMemCloseIpcHandle(gpu.context, at)));
    for at in [allocation, other, second.expect("its file")] {
        check!(zeMemFree(gpu.context, at.cast()));
    }
    check!(zePhysicalMemDestroy(gpu.context, memory));
}

/// "alignment: [in] minimum alignment in bytes for the allocation (must be a power of two)": of memory
/// that comes as a file too.
#[test]
fn imported_memory_has_the_alignment_that_is_asked_for() {
    let gpu = Gpu::new();
    let memory = for_export(&gpu, 4096);
    let file = file_of(&gpu, memory);
    let import = ze_external_memory_import_fd_t {
        flags: OPAQUE,
        fd: file.as_raw_fd(),
        ..Default::default()
    };
    let desc =
        ze_device_mem_alloc_desc_t { pNext: (&raw const import).cast(), ..Default::default() };
    let all = [1 << 13, 1 << 20, 1 << 16].map(|alignment| {
        let (context, device, mut out) = (gpu.context, gpu.device, ptr::null_mut());
        check!(zeMemAllocDevice(context, &raw const desc, 4096, alignment, device, &raw mut out));
        assert_eq!(out.addr() % alignment, 0, "{out:p}, {alignment}");
        out
    });
    for memory in all.into_iter().chain([memory.cast()]) {
        check!(zeMemFree(gpu.context, memory));
    }
}

#[test]
fn files_that_are_no_memory_and_memory_that_is_no_file_are_refused() {
    let gpu = Gpu::new();
    let invalid = Err(ze_result_t::ZE_RESULT_ERROR_INVALID_ARGUMENT);
    for fd in [-1, 9_999] {
        assert_eq!(imported(&gpu, 4096, fd), invalid);
        assert!(ze::description().contains("no open file"), "{}", ze::description());
    }
    let null = std::fs::File::open("/dev/null").expect("it exists");
    assert_eq!(imported(&gpu, 4096, null.as_raw_fd()), invalid);
    let memory = for_export(&gpu, 4096);
    let file = file_of(&gpu, memory);
    assert_eq!(imported(&gpu, 8192, file.as_raw_fd()), invalid, "it is shorter");
    if !ze::on_kernel_lane() {
        let request = ze_external_memory_import_fd_t {
            flags: DMA_BUF,
            fd: file.as_raw_fd(),
            ..Default::default()
        };
        assert_eq!(allocate(&gpu, 4096, (&raw const request).cast()), invalid);
        assert!(ze::description().contains("no DMA-BUF"), "{}", ze::description());
    }
    let import = ze_external_memory_import_fd_t {
        flags: OPAQUE,
        fd: file.as_raw_fd(),
        ..Default::default()
    };
    let both = ze_external_memory_export_desc_t {
        flags: OPAQUE,
        pNext: (&raw const import).cast(),
        ..Default::default()
    };
    assert_eq!(allocate(&gpu, 4096, (&raw const both).cast()), invalid);
    let other = ze_external_memory_type_flags_t::ZE_EXTERNAL_MEMORY_TYPE_FLAG_D3D12_HEAP;
    let other = ze_external_memory_export_desc_t { flags: other, ..Default::default() };
    let unsupported = Err(ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
    assert_eq!(allocate(&gpu, 4096, (&raw const other).cast()), unsupported);
    let plain = gpu.device_memory::<u32>(4);
    let mut export = ze_external_memory_export_fd_t { flags: OPAQUE, fd: -1, ..Default::default() };
    let mut properties =
        ze_memory_allocation_properties_t { pNext: (&raw mut export).cast(), ..Default::default() };
    let text = refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeMemGetAllocProperties(
            gpu.context,
            plain.ptr().cast(),
            &raw mut properties,
            ptr::null_mut()
        )
    );
    assert!(text.contains("ze_external_memory_export_desc_t") && export.fd == -1, "{text}");
    check!(zeMemFree(gpu.context, memory.cast()));
}

#[test]
fn memory_of_the_applications_is_known_from_its_import_to_its_release() {
    let driver = ze::driver();
    let mut memory = vec![7_u32; 1024];
    let at = memory.as_mut_ptr().cast::<c_void>();
    if call!(zexDriverImportExternalPointer(driver, at, 4096))
        == ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_FEATURE
    {
        assert!(ze::on_kernel_lane(), "on the other one the device reaches all memory");
        return;
    }
    let inside = at.wrapping_byte_add(100);
    let mut base = ptr::null_mut();
    check!(zexDriverGetHostPointerBaseAddress(driver, inside, &raw mut base));
    assert_eq!(base, at);
    check!(zexDriverImportExternalPointer(driver, at, 4096));
    refused!(
        ZE_RESULT_ERROR_OVERLAPPING_REGIONS,
        zexDriverImportExternalPointer(driver, inside, 8)
    );
    refused!(ZE_RESULT_ERROR_INVALID_SIZE, zexDriverImportExternalPointer(driver, inside, 0));
    refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zexDriverReleaseImportedPointer(driver, inside));
    let gpu = Gpu::new();
    let copy = gpu.host::<u32>(1);
    let list = gpu.immediate(1, true);
    check!(zeCommandListAppendMemoryCopy(
        list.0,
        copy.ptr().cast(),
        inside,
        4,
        ze_event_handle_t::NULL,
        0,
        ptr::null_mut()
    ));
    list.synchronize();
    assert_eq!(copy.get(0), 7);
    check!(zexDriverReleaseImportedPointer(driver, at));
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zexDriverGetHostPointerBaseAddress(driver, inside, &raw mut base)
    );
}

#[test]
fn what_was_asked_for_of_atomics_is_what_is_answered() {
    use ze_memory_atomic_attr_exp_flags_t as it;
    let gpu = Gpu::new();
    let memory = gpu.host::<u64>(8);
    let at = memory.ptr().cast::<c_void>();
    let get = || {
        let mut attributes = it::empty();
        let out = &raw mut attributes;
        check!(zeMemGetAtomicAccessAttributeExp(gpu.context, gpu.device, at, 64, out));
        attributes
    };
    let by_default = get();
    assert!(by_default.contains(it::ZE_MEMORY_ATOMIC_ATTR_EXP_FLAG_DEVICE_ATOMICS));
    let asked = it::ZE_MEMORY_ATOMIC_ATTR_EXP_FLAG_NO_HOST_ATOMICS;
    check!(zeMemSetAtomicAccessAttributeExp(gpu.context, gpu.device, at, 64, asked));
    assert_eq!(get(), asked);
    check!(zeMemSetAtomicAccessAttributeExp(gpu.context, gpu.device, at, 64, it::empty()));
    assert_eq!(get(), by_default);
    let both = asked | it::ZE_MEMORY_ATOMIC_ATTR_EXP_FLAG_HOST_ATOMICS;
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeMemSetAtomicAccessAttributeExp(gpu.context, gpu.device, at, 64, both)
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_SIZE,
        zeMemSetAtomicAccessAttributeExp(gpu.context, gpu.device, at, 65, asked)
    );
}
