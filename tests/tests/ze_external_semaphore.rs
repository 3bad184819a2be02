// SPDX-License-Identifier: MIT OR Apache-2.0
//! Semaphores of other drivers (`ZE_extension_external_semaphores`). The other driver is the kernel's DRM core: its
//! sync objects, made through a render node that the test opens itself.

use std::ffi::{CStr, c_ulong};
use std::fs::{self, File};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::thread;

use tally_tests::lists::{Event, List, raw, raws};
use tally_tests::ze::Gpu;
use tally_tests::{call, check, refused, ze};
use tally_ze::*;

type Flags = ze_external_semaphore_ext_flags_t;

const TIMELINE: Flags = Flags::ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_VK_TIMELINE_SEMAPHORE_FD;
const BINARY: Flags = Flags::ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_OPAQUE_FD;
const NONE: ze_event_handle_t = ze_event_handle_t::NULL;

/// A sync object of the kernel.
struct Syncobj {
    node: File,
    handle: u32,
}

#[repr(C)]
struct ToFile {
    handle: u32,
    flags: u32,
    fd: i32,
    pad: u32,
}

#[repr(C)]
struct TimelineWait {
    handles: u64,
    points: u64,
    timeout_ns: i64,
    count: u32,
    flags: u32,
    first: u32,
    pad: u32,
}

#[repr(C)]
struct TimelineArray {
    handles: u64,
    points: u64,
    count: u32,
    flags: u32,
}

#[repr(C)]
struct Array {
    handles: u64,
    count: u32,
    pad: u32,
}

impl Syncobj {
    /// A new one, by the first render node that makes them.
    fn new() -> Self {
        let entries = fs::read_dir("/dev/dri").expect("render nodes").flatten();
        let nodes = entries.map(|entry| entry.path());
        let nodes = nodes.filter(|path| path.to_string_lossy().contains("renderD"));
        let made = nodes.filter_map(|path| {
            let node = File::options().read(true).write(true).open(path).ok()?;
            let mut syncobj = Self { node, handle: 0 };
            let mut create = [0_u32; 2];
            syncobj.call(0xbf, &mut create).ok()?;
            syncobj.handle = create[0];
            Some(syncobj)
        });
        { made }.next().expect("a sync object")
    }

    fn call<T>(&self, number: c_ulong, arg: &mut T) -> Result<(), i32> {
        let request = 3 << 30 | (size_of::<T>() as c_ulong) << 16 | 0x6400 | number;
        // SAFETY: each caller passes the core's struct of that number, whose addresses are those of live values.
        match unsafe { libc::ioctl(self.node.as_raw_fd(), request as libc::Ioctl, arg) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
        }
    }

    fn file(&self) -> OwnedFd {
        let mut arg = ToFile { handle: self.handle, flags: 0, fd: -1, pad: 0 };
        self.call(0xc1, &mut arg).expect("its file");
        // SAFETY: made for this call.
        unsafe { OwnedFd::from_raw_fd(arg.fd) }
    }

    /// Waits until it has a fence at the point, and the fence has signalled.
    fn wait(&self, point: u64) {
        assert_eq!(self.wait_until(point, i64::MAX), Ok(()));
    }

    fn wait_until(&self, point: u64, timeout_ns: i64) -> Result<(), i32> {
        let mut arg = TimelineWait {
            handles: (&raw const self.handle).addr() as u64,
            points: (&raw const point).addr() as u64,
            timeout_ns,
            count: 1,
            flags: 1 << 1,
            first: 0,
            pad: 0,
        };
        self.call(0xca, &mut arg)
    }

    fn is_signalled(&self, point: u64) -> bool {
        self.wait_until(point, 0).is_ok()
    }

    /// Gives it a signalled fence at a point, or as its only one.
    fn signal(&self, point: u64) {
        let mut arg = TimelineArray {
            handles: (&raw const self.handle).addr() as u64,
            points: (&raw const point).addr() as u64,
            count: 1,
            flags: 0,
        };
        if point != 0 {
            return self.call(0xcd, &mut arg).expect("a signal");
        }
        let mut arg = Array { handles: arg.handles, count: 1, pad: 0 };
        self.call(0xc5, &mut arg).expect("a signal");
    }

    /// Takes its fence away.
    fn reset(&self) {
        let handles = (&raw const self.handle).addr() as u64;
        let mut arg = Array { handles, count: 1, pad: 0 };
        self.call(0xc4, &mut arg).expect("a reset");
    }
}

/// An imported semaphore.
struct Semaphore(ze_external_semaphore_ext_handle_t);

impl Drop for Semaphore {
    fn drop(&mut self) {
        check!(zeDeviceReleaseExternalSemaphoreExt(self.0));
    }
}

fn import(gpu: &Gpu, fd: i32, flags: Flags) -> Result<Semaphore, ze_result_t> {
    let fd = ze_external_semaphore_fd_ext_desc_t { fd, ..Default::default() };
    let next = (&raw const fd).cast();
    let desc = ze_external_semaphore_ext_desc_t { flags, pNext: next, ..Default::default() };
    let mut semaphore = ze_external_semaphore_ext_handle_t::NULL;
    let device = gpu.device;
    match call!(zeDeviceImportExternalSemaphoreExt(device, &raw const desc, &raw mut semaphore)) {
        ze_result_t::ZE_RESULT_SUCCESS => Ok(Semaphore(semaphore)),
        error => Err(error),
    }
}

/// A sync object, and the semaphore that is imported from its file. The file is closed.
fn shared(gpu: &Gpu, flags: Flags) -> (Syncobj, Semaphore) {
    let syncobj = Syncobj::new();
    let semaphore = import(gpu, syncobj.file().as_raw_fd(), flags).expect("a semaphore");
    (syncobj, semaphore)
}

fn signal(list: &List, targets: &[(&Semaphore, u64)], event: Option<&Event>, waits: &[&Event]) {
    let param = |value| ze_external_semaphore_signal_params_ext_t { value, ..Default::default() };
    let mut params: Vec<_> = targets.iter().map(|(_, value)| param(*value)).collect();
    let mut semaphores: Vec<_> = targets.iter().map(|(semaphore, _)| semaphore.0).collect();
    let (count, mut waits) = (targets.len() as u32, raws(waits));
    let (semaphores, params) = (semaphores.as_mut_ptr(), params.as_mut_ptr());
    let (waits, event, all) = (waits.as_mut_ptr(), raw(event), waits.len() as u32);
    check!(zeCommandListAppendSignalExternalSemaphoreExt(
        list.0, count, semaphores, params, event, all, waits
    ));
}

fn wait(list: &List, targets: &[(&Semaphore, u64)], event: Option<&Event>, waits: &[&Event]) {
    let param = |value| ze_external_semaphore_wait_params_ext_t { value, ..Default::default() };
    let mut params: Vec<_> = targets.iter().map(|(_, value)| param(*value)).collect();
    let mut semaphores: Vec<_> = targets.iter().map(|(semaphore, _)| semaphore.0).collect();
    let (count, mut waits) = (targets.len() as u32, raws(waits));
    let (semaphores, params) = (semaphores.as_mut_ptr(), params.as_mut_ptr());
    let (waits, event, all) = (waits.as_mut_ptr(), raw(event), waits.len() as u32);
    check!(zeCommandListAppendWaitExternalSemaphoreExt(
        list.0, count, semaphores, params, event, all, waits
    ));
}

/// "importing external semaphores": the extension is there where there is a kernel. Elsewhere an import is refused.
#[test]
fn semaphores_are_offered_where_there_is_a_kernel() {
    let gpu = Gpu::new();
    let mut count = 0;
    check!(zeDriverGetExtensionProperties(ze::driver(), &raw mut count, ptr::null_mut()));
    let mut extensions = vec![ze_driver_extension_properties_t::default(); count as usize];
    check!(zeDriverGetExtensionProperties(ze::driver(), &raw mut count, extensions.as_mut_ptr()));
    let offered = extensions.iter().any(|it| {
        // SAFETY: the driver ends names with a NUL.
        let name = unsafe { CStr::from_ptr(it.name.as_ptr()) };
        name.to_str() == Ok(ZE_EXTERNAL_SEMAPHORES_EXTENSION_NAME)
    });
    assert_eq!(offered, ze::on_kernel_lane());
    if !offered {
        let stdin = import(&gpu, 0, BINARY);
        assert_eq!(stdin.err(), Some(ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_FEATURE));
    }
}

/// "The semaphore signal command waits for a list of events to complete and then signals a list of semaphore
/// objects." "The semaphore wait command waits for a list of events to complete and waits on a list of semaphore
/// objects."
#[test]
#[ignore = "needs the kernel lane"]
fn a_timeline_goes_there_and_back() {
    let gpu = Gpu::new();
    for in_order in [true, false] {
        let (syncobj, semaphore) = shared(&gpu, TIMELINE);
        let memory = gpu.host::<u32>(1);
        let pool = gpu.pool(3, ze_event_pool_flags_t::empty());
        let (gate, passed, done) = (pool.event(0), pool.event(1), pool.event(2));
        let list = gpu.immediate(0, in_order);
        for round in 0..10 {
            let value = 2 * round + 1;
            [&gate, &passed, &done].into_iter().for_each(Event::reset);
            signal(&list, &[(&semaphore, value)], None, &[&gate]);
            assert!(!syncobj.is_signalled(value));
            gate.signal();
            syncobj.wait(value);
            wait(&list, &[(&semaphore, value + 1)], Some(&passed), &[]);
            list.set((&memory, 0), round as u32, Some(&done), &[&passed]);
            assert!(!done.is_ready());
            thread::scope(|scope| {
                scope.spawn(|| syncobj.signal(value + 1));
                done.synchronize();
            });
            assert_eq!(memory.get(0), round as u32);
        }
        list.synchronize();
    }
}

/// A value that has been signalled needs no wait, nor does a smaller one. A larger one ends all waits before it.
#[test]
#[ignore = "needs the kernel lane"]
fn values_of_a_timeline_are_ordered() {
    let gpu = Gpu::new();
    let (syncobj, semaphore) = shared(&gpu, TIMELINE);
    let list = gpu.immediate(0, true);
    syncobj.signal(5);
    wait(&list, &[(&semaphore, 5), (&semaphore, 3)], None, &[]);
    list.synchronize();
    wait(&list, &[(&semaphore, 6), (&semaphore, 7), (&semaphore, 8), (&semaphore, 9)], None, &[]);
    syncobj.signal(9);
    list.synchronize();
}

/// "Application must perform semaphore signal and waits in alternate manner and order producer first." "Resetting
/// semaphore object needs to be handled by the exporter".
#[test]
#[ignore = "needs the kernel lane"]
fn a_binary_semaphore_is_signalled_and_reset_by_turns() {
    let gpu = Gpu::new();
    let (syncobj, semaphore) = shared(&gpu, BINARY);
    let list = gpu.immediate(0, true);
    for _ in 0..5 {
        // The value means nothing.
        signal(&list, &[(&semaphore, 77)], None, &[]);
        syncobj.wait(0);
        syncobj.reset();
        syncobj.signal(0);
        wait(&list, &[(&semaphore, 88)], None, &[]);
        list.synchronize();
        syncobj.reset();
        assert!(!syncobj.is_signalled(0));
    }
}

/// One list signals, another waits, and both have imported the semaphore by themselves.
#[test]
#[ignore = "needs the kernel lane"]
fn lists_wait_for_each_other_by_a_semaphore() {
    let gpu = Gpu::new();
    let (syncobj, first) = shared(&gpu, TIMELINE);
    let second = import(&gpu, syncobj.file().as_raw_fd(), TIMELINE).expect("a semaphore");
    drop(syncobj);
    let memory = gpu.host::<u32>(2);
    let (producer, consumer) = (gpu.immediate(0, true), gpu.immediate(1, true));
    for value in 1..=20 {
        wait(&consumer, &[(&second, value)], None, &[]);
        consumer.copy((&memory, 1), (&memory, 0), 1, None, &[]);
        producer.set((&memory, 0), value as u32, None, &[]);
        signal(&producer, &[(&first, value)], None, &[]);
        consumer.synchronize();
        assert_eq!(memory.get(1), value as u32);
    }
}

/// A semaphore is released, and a list destroyed, while a wait has no signal yet.
#[test]
#[ignore = "needs the kernel lane"]
fn a_wait_outlives_its_handles() {
    let gpu = Gpu::new();
    let (syncobj, semaphore) = shared(&gpu, TIMELINE);
    let memory = gpu.host::<u32>(1);
    memory.set(0, 0);
    let done = gpu.cb_event();
    let list = gpu.immediate(0, true);
    wait(&list, &[(&semaphore, 1)], None, &[]);
    list.set((&memory, 0), 6, Some(&done), &[]);
    drop(semaphore);
    drop(list);
    assert!(!done.is_ready());
    syncobj.signal(1);
    done.synchronize();
    assert_eq!(memory.get(0), 6);
}

/// "This function must only be used with an immediate command list."
#[test]
#[ignore = "needs the kernel lane"]
fn bad_calls_are_refused() {
    let gpu = Gpu::new();
    let (syncobj, semaphore) = shared(&gpu, TIMELINE);
    let file = syncobj.file();
    let refuse = |fd, flags| import(&gpu, fd, flags).err();
    for fd in [-1, 9999, syncobj.node.as_raw_fd()] {
        let code = ze_result_t::ZE_RESULT_ERROR_INVALID_ARGUMENT;
        assert_eq!(refuse(fd, BINARY), Some(code), "{fd}");
    }
    for flags in [
        Flags::empty(),
        BINARY | TIMELINE,
        Flags::ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_OPAQUE_WIN32,
        Flags::ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_D3D12_FENCE,
    ] {
        let code = ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
        assert_eq!(refuse(file.as_raw_fd(), flags), Some(code), "{flags:?}");
    }
    let desc = ze_external_semaphore_ext_desc_t { flags: BINARY, ..Default::default() };
    let mut out = ze_external_semaphore_ext_handle_t::NULL;
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeDeviceImportExternalSemaphoreExt(gpu.device, &raw const desc, &raw mut out)
    );
    let mut raw = semaphore.0;
    let mut signal = ze_external_semaphore_signal_params_ext_t { value: 1, ..Default::default() };
    let mut wait = ze_external_semaphore_wait_params_ext_t { value: 1, ..Default::default() };
    let (regular, list) = (gpu.regular(0, true), gpu.immediate(0, true));
    let (raw, signal, wait, no) = (&raw mut raw, &raw mut signal, &raw mut wait, ptr::null_mut());
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeCommandListAppendSignalExternalSemaphoreExt(regular.0, 1, raw, signal, NONE, 0, no)
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeCommandListAppendWaitExternalSemaphoreExt(regular.0, 1, raw, wait, NONE, 0, no)
    );
    let (none, nothing) = (ptr::null_mut(), ptr::null_mut());
    refused!(
        ZE_RESULT_ERROR_INVALID_SIZE,
        zeCommandListAppendSignalExternalSemaphoreExt(list.0, 1, none, signal, NONE, 0, no)
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_SIZE,
        zeCommandListAppendWaitExternalSemaphoreExt(list.0, 1, raw, nothing, NONE, 0, no)
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_SIZE,
        zeCommandListAppendWaitExternalSemaphoreExt(list.0, 1, raw, wait, NONE, 1, no)
    );
    // Nothing was appended.
    list.synchronize();
    assert!(!syncobj.is_signalled(1));
}
