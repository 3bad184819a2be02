// SPDX-License-Identifier: MIT OR Apache-2.0
//! DMA-BUFs of other drivers of the kernel as memory: those of udmabuf, which are pages of a memfd.

use std::ffi::{c_int, c_void};
use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use tally_tests::lists::{Event, List, NONE};
use tally_tests::ze::Gpu;
use tally_tests::{call, check, ze};
use tally_ze::*;

const PAGE: usize = 4096;
const OPAQUE: ze_external_memory_type_flags_t =
    ze_external_memory_type_flags_t::ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD;
const DMA_BUF: ze_external_memory_type_flags_t =
    ze_external_memory_type_flags_t::ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF;
const INVALID: ze_result_t = ze_result_t::ZE_RESULT_ERROR_INVALID_ARGUMENT;

/// `struct udmabuf_create` of `linux/udmabuf.h`.
#[repr(C)]
struct Create {
    memfd: u32,
    flags: u32,
    offset: u64,
    size: u64,
}

/// A udmabuf, and the mapping of the memfd whose pages it consists of.
struct Udmabuf {
    file: Option<OwnedFd>,
    words: *mut u32,
    bytes: usize,
}

impl Udmabuf {
    fn new(bytes: usize) -> Self {
        let driver =
            OpenOptions::new().read(true).write(true).open("/dev/udmabuf").expect("udmabuf");
        // SAFETY: system calls with numbers, on new files and memory of our own; the ioctl is udmabuf's with its
        // struct.
        unsafe {
            let flags = libc::MFD_ALLOW_SEALING | libc::MFD_CLOEXEC;
            let memory = OwnedFd::from_raw_fd(libc::memfd_create(c"test".as_ptr(), flags));
            let memfd = memory.as_raw_fd();
            assert_eq!(libc::ftruncate(memfd, bytes as i64), 0);
            assert_eq!(libc::fcntl(memfd, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK), 0);
            let create = Create { memfd: memfd as u32, flags: 1, offset: 0, size: bytes as u64 };
            let fd = libc::ioctl(driver.as_raw_fd(), 0x4018_7542 as libc::Ioctl, &raw const create);
            assert!(fd >= 0, "{}", std::io::Error::last_os_error());
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let words = libc::mmap(ptr::null_mut(), bytes, access, libc::MAP_SHARED, memfd, 0);
            assert_ne!(words, libc::MAP_FAILED);
            Self { file: Some(OwnedFd::from_raw_fd(fd)), words: words.cast(), bytes }
        }
    }

    fn fd(&self) -> c_int {
        self.file.as_ref().expect("it is open").as_raw_fd()
    }

    fn set(&self, index: usize, value: u32) {
        assert!(index < self.bytes / 4);
        // SAFETY: within the mapping.
        unsafe { self.words.add(index).write_volatile(value) };
    }

    fn get(&self, index: usize) -> u32 {
        assert!(index < self.bytes / 4);
        // SAFETY: within the mapping.
        unsafe { self.words.add(index).read_volatile() }
    }
}

impl Drop for Udmabuf {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nothing uses any more.
        unsafe { libc::munmap(self.words.cast(), self.bytes) };
    }
}

fn request(fd: c_int) -> ze_external_memory_import_fd_t {
    ze_external_memory_import_fd_t { flags: DMA_BUF, fd, ..Default::default() }
}

fn imported(gpu: &Gpu, size: usize, fd: c_int) -> Result<*mut u32, ze_result_t> {
    let request = request(fd);
    let desc =
        ze_device_mem_alloc_desc_t { pNext: (&raw const request).cast(), ..Default::default() };
    let mut memory = ptr::null_mut();
    let result =
        call!(zeMemAllocDevice(gpu.context, &raw const desc, size, 0, gpu.device, &raw mut memory));
    if result == ze_result_t::ZE_RESULT_SUCCESS { Ok(memory.cast()) } else { Err(result) }
}

fn copy(list: &List, to: *mut c_void, from: *const c_void, size: usize) {
    let (none, no_event) = (ptr::null_mut(), ze_event_handle_t::NULL);
    check!(zeCommandListAppendMemoryCopy(list.0, to, from, size, no_event, 0, none));
    list.synchronize();
}

/// "Level-Zero supports (...) importing memory allocations from other APIs", "ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF: a
/// file descriptor handle for a Linux dma_buf": commands, the host and the exporter see the same bytes.
#[test]
#[ignore = "needs udmabuf"]
fn a_dma_buf_of_another_driver_is_memory() {
    let gpu = Gpu::new();
    let list = gpu.immediate(1, true);
    let size = 300 * PAGE;
    let mut theirs = Udmabuf::new(size);
    let memory = imported(&gpu, size, theirs.fd()).expect("its file");
    // "the application still owns its own", and may close it.
    theirs.file = None;
    let (last, host) = (size / 4 - 1, gpu.host::<u32>(size / 4));
    host.fill_with(|i| i as u32 ^ 0x5a5a);
    copy(&list, memory.cast(), host.ptr().cast(), size);
    assert!((0..=last).all(|i| theirs.get(i) == i as u32 ^ 0x5a5a));
    (0..=last).for_each(|i| theirs.set(i, 7 * i as u32));
    copy(&list, host.ptr().cast(), memory.cast(), size);
    assert!((0..=last).all(|i| host.get(i) == 7 * i as u32));
    // SAFETY: the allocation has as many bytes, and no command uses it now.
    unsafe {
        assert_eq!(memory.add(last).read_volatile(), 7 * last as u32);
        memory.add(last).write_volatile(1);
    }
    assert_eq!(theirs.get(last), 1);
    check!(zeMemFree(gpu.context, memory.cast()));
    assert_eq!(theirs.get(last), 1);
}

/// What is exported of an import is the same DMA-BUF, and it is imported as often as one likes.
#[test]
#[ignore = "needs udmabuf"]
fn an_import_is_passed_on() {
    let (gpu, other) = (Gpu::new(), Gpu::new());
    let theirs = Udmabuf::new(2 * PAGE);
    let memory = imported(&gpu, 2 * PAGE, theirs.fd()).expect("its file");
    let mut export = ze_external_memory_export_fd_t { flags: OPAQUE, fd: -1, ..Default::default() };
    let mut properties =
        ze_memory_allocation_properties_t { pNext: (&raw mut export).cast(), ..Default::default() };
    let none = ptr::null_mut();
    check!(zeMemGetAllocProperties(gpu.context, memory.cast(), &raw mut properties, none));
    // SAFETY: the driver has made the descriptor for this call.
    let file = unsafe { OwnedFd::from_raw_fd(export.fd) };
    let inode = |fd: c_int| {
        // SAFETY: fills the struct.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            assert_eq!(libc::fstat(fd, &mut stat), 0);
            stat.st_ino
        }
    };
    assert_eq!(inode(file.as_raw_fd()), inode(theirs.fd()));
    let all = [
        imported(&gpu, 2 * PAGE, theirs.fd()).expect("again"),
        imported(&other, 2 * PAGE, file.as_raw_fd()).expect("in another context"),
        // A part from the beginning.
        imported(&gpu, 100, theirs.fd()).expect("a part"),
    ];
    theirs.set(3, 33);
    for (i, again) in all.iter().enumerate() {
        // SAFETY: the memory has 100 bytes at least.
        assert_eq!(unsafe { again.add(3).read_volatile() }, 33, "{i}");
    }
    let list = other.immediate(0, true);
    copy(&list, all[1].wrapping_add(1024).cast(), all[1].cast(), 16);
    assert_eq!(theirs.get(1024 + 3), 33);
    // A handle for another process.
    let (mut handle, mut opened) = (ze_ipc_mem_handle_t::default(), ptr::null_mut());
    check!(zeMemGetIpcHandle(gpu.context, memory.cast(), &raw mut handle));
    let flags = ze_ipc_memory_flags_t::empty();
    check!(zeMemOpenIpcHandle(other.context, other.device, handle, flags, &raw mut opened));
    copy(&list, opened.wrapping_byte_add(8), all[1].wrapping_add(3).cast(), 4);
    assert_eq!(theirs.get(2), 33);
    check!(zeMemCloseIpcHandle(other.context, opened));
    check!(zeMemPutIpcHandle(gpu.context, handle));
    for (context, memory) in [gpu.context, other.context, gpu.context].into_iter().zip(all) {
        check!(zeMemFree(context, memory.cast()));
    }
    check!(zeMemFree(gpu.context, memory.cast()));
}

#[test]
#[ignore = "needs udmabuf"]
fn what_is_too_long_or_only_read_is_refused() {
    let gpu = Gpu::new();
    let theirs = Udmabuf::new(PAGE);
    assert_eq!(imported(&gpu, 2 * PAGE, theirs.fd()), Err(INVALID));
    let reopened = std::fs::File::open("/dev/null").expect("it exists");
    assert_eq!(imported(&gpu, PAGE, reopened.as_raw_fd()), Err(INVALID));
    assert!(ze::description().contains("reading and writing"), "{}", ze::description());
    assert_eq!(imported(&gpu, PAGE, -1), Err(INVALID));
    // Nothing of that has harmed it.
    let memory = imported(&gpu, PAGE, theirs.fd()).expect("its file");
    check!(zeMemFree(gpu.context, memory.cast()));
}

/// "to import memory from a file descriptor" with zePhysicalMemCreate.
#[test]
#[ignore = "needs udmabuf"]
fn a_dma_buf_is_physical_memory() {
    let gpu = Gpu::new();
    let list = gpu.immediate(1, true);
    let theirs = Udmabuf::new(16 * PAGE);
    let mut page = 0;
    check!(zeVirtualMemQueryPageSize(gpu.context, gpu.device, 16 * PAGE, &raw mut page));
    assert!(page <= 16 * PAGE, "{page}");
    let request = request(theirs.fd());
    let next = (&raw const request).cast();
    let mut desc = ze_physical_mem_desc_t { size: 16 * PAGE, pNext: next, ..Default::default() };
    let mut memory = ze_physical_mem_handle_t::default();
    check!(zePhysicalMemCreate(gpu.context, gpu.device, &raw mut desc, &raw mut memory));
    let mut at = ptr::null_mut();
    check!(zeVirtualMemReserve(gpu.context, ptr::null(), 32 * PAGE, &raw mut at));
    let access = ze_memory_access_attribute_t::ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE;
    check!(zeVirtualMemMap(gpu.context, at, 16 * PAGE, memory, 0, access));
    theirs.set(5, 55);
    copy(&list, at.wrapping_byte_add(15 * PAGE), at, 64);
    assert_eq!(theirs.get(15 * PAGE / 4 + 5), 55);
    check!(zeVirtualMemUnmap(gpu.context, at, 16 * PAGE));
    check!(zeVirtualMemFree(gpu.context, at, 32 * PAGE));
    check!(zePhysicalMemDestroy(gpu.context, memory));
}

/// "Counter allocation is managed by the User": in memory of another driver, which another program writes.
#[test]
#[ignore = "needs udmabuf"]
fn a_dma_buf_holds_a_counter() {
    let gpu = Gpu::new();
    let theirs = Udmabuf::new(PAGE);
    let memory = imported(&gpu, PAGE, theirs.fd()).expect("its file");
    let word = memory.wrapping_add(512).cast::<u64>();
    let mut raw = NONE;
    let desc = ze_event_desc_t::default();
    check!(zexCounterBasedEventCreate(
        gpu.context,
        gpu.device,
        word,
        word,
        10,
        &raw const desc,
        &raw mut raw
    ));
    let event = Event(raw);
    let (list, out) = (gpu.immediate(0, true), gpu.host::<u32>(1));
    list.set((&out, 0), 1, None, &[&event]);
    theirs.set(512, 9);
    let result = call!(zeEventHostSynchronize(event.0, 2_000_000));
    assert_eq!(result, ze_result_t::ZE_RESULT_NOT_READY);
    assert_eq!(out.get(0), 0);
    theirs.set(512, 10);
    event.synchronize();
    list.synchronize();
    assert_eq!(out.get(0), 1);
    drop((event, list));
    check!(zeMemFree(gpu.context, memory.cast()));
}
