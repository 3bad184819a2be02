// SPDX-License-Identifier: GPL-2.0
//! Other drivers of the kernel: the software fences of debugfs (sw_sync), vgem, udmabuf and dma heaps.

use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::{Command, Stdio};

use crate::device::{Node, PAGE, core_request};

fn ioctl<T>(fd: RawFd, request: u32, arg: &mut T) {
    // SAFETY: each caller passes the struct of that number, without addresses.
    let answer = unsafe { libc::ioctl(fd, request as libc::Ioctl, arg) };
    assert_eq!(answer, 0, "{:#x}: {}", request, std::io::Error::last_os_error());
}

/// A timeline of sw_sync: another driver whose fences signal when they are told to.
pub struct Timeline(OwnedFd);

#[repr(C)]
struct CreateFence {
    value: u32,
    name: [u8; 32],
    fence: i32,
}

impl Timeline {
    /// Returns none on a kernel without sw_sync.
    pub fn new() -> Option<Self> {
        let path = "/sys/kernel/debug/sync/sw_sync";
        Some(Self(OpenOptions::new().read(true).write(true).open(path).ok()?.into()))
    }

    /// A sync file whose fence signals when the timeline is at `value`. Its fences end with ENOENT when the timeline
    /// is closed before that.
    pub fn fence(&self, value: u32) -> OwnedFd {
        let mut arg = CreateFence { value, name: [0; 32], fence: -1 };
        ioctl(self.0.as_raw_fd(), 0xc028_5700, &mut arg);
        // SAFETY: made for us.
        unsafe { OwnedFd::from_raw_fd(arg.fence) }
    }

    /// Advances the timeline.
    pub fn advance(&self, mut by: u32) {
        ioctl(self.0.as_raw_fd(), 0x4004_5701, &mut by);
    }
}

#[repr(C)]
struct CreateDumb {
    height: u32,
    width: u32,
    bits: u32,
    flags: u32,
    handle: u32,
    pitch: u32,
    size: u64,
}

#[repr(C)]
struct AttachFence {
    handle: u32,
    flags: u32,
    fence: u32,
    pad: u32,
}

#[repr(C)]
struct SyncFile {
    flags: u32,
    fd: i32,
}

/// vgem: a driver of buffers to which programs attach fences.
pub struct Vgem(pub Node);

impl Vgem {
    /// Returns none on a kernel without vgem.
    pub fn open() -> Option<Self> {
        let quiet = Stdio::null;
        let _ = Command::new("modprobe").arg("vgem").stdout(quiet()).stderr(quiet()).status();
        Node::of_driver("vgem").map(Self)
    }

    /// A buffer of whole pages.
    pub fn buffer(&self, pages: u64) -> u32 {
        let height = pages as u32;
        let mut arg =
            CreateDumb { height, width: 1024, bits: 32, flags: 0, handle: 0, pitch: 0, size: 0 };
        // SAFETY: the core's struct.
        unsafe { self.0.raw(core_request(0xb2, 32), &mut arg) }.expect("a dumb buffer");
        assert_eq!(arg.size, pages * PAGE);
        arg.handle
    }

    /// Attaches a new fence for a write of the buffer. Signalled by [`Self::signal`], or after ten seconds.
    pub fn attach(&self, handle: u32) -> u32 {
        let mut arg = AttachFence { handle, flags: 1, fence: 0, pad: 0 };
        // SAFETY: vgem's struct.
        unsafe { self.0.raw(core_request(0x41, 16), &mut arg) }.expect("a fence");
        arg.fence
    }

    /// Signals a fence.
    pub fn signal(&self, fence: u32) -> Result<(), i32> {
        let mut arg = [fence, 0];
        // SAFETY: vgem's struct, which it only reads.
        unsafe { self.0.raw(core_request(0x42, 8) & !(2 << 30), &mut arg) }
    }
}

/// A sync file of the fences that a reader of a dma-buf has to wait for.
pub fn sync_file_of(dma_buf: RawFd) -> OwnedFd {
    let mut arg = SyncFile { flags: 1, fd: -1 };
    ioctl(dma_buf, 0xc008_6202, &mut arg);
    // SAFETY: made for us.
    unsafe { OwnedFd::from_raw_fd(arg.fd) }
}

#[repr(C)]
struct UdmabufCreate {
    memfd: u32,
    flags: u32,
    offset: u64,
    size: u64,
}

#[repr(C)]
struct HeapAllocation {
    len: u64,
    fd: u32,
    fd_flags: u32,
    heap_flags: u64,
}

/// A dma-buf of the pages of a memfd, by udmabuf, and the memfd. None on a kernel without udmabuf.
pub fn udmabuf(pages: u64) -> Option<(OwnedFd, OwnedFd)> {
    let driver = OpenOptions::new().read(true).write(true).open("/dev/udmabuf").ok()?;
    let flags = libc::MFD_ALLOW_SEALING | libc::MFD_CLOEXEC;
    // SAFETY: a name, and numbers; the file is new.
    let memory = unsafe {
        let memory = OwnedFd::from_raw_fd(libc::memfd_create(c"test".as_ptr(), flags));
        assert_eq!(libc::ftruncate(memory.as_raw_fd(), (pages * PAGE) as i64), 0);
        let seal = libc::F_SEAL_SHRINK;
        assert_eq!(libc::fcntl(memory.as_raw_fd(), libc::F_ADD_SEALS, seal), 0);
        memory
    };
    let memfd = memory.as_raw_fd() as u32;
    // UDMABUF_FLAGS_CLOEXEC.
    let mut arg = UdmabufCreate { memfd, flags: 1, offset: 0, size: pages * PAGE };
    // SAFETY: udmabuf's struct and number; it answers a new descriptor.
    let buf = unsafe {
        let buf = libc::ioctl(driver.as_raw_fd(), 0x4018_7542u32 as libc::Ioctl, &mut arg);
        assert!(buf >= 0, "{}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(buf)
    };
    Some((buf, memory))
}

/// A dma-buf of the system's dma heap. None on a kernel without it.
pub fn heap_buffer(pages: u64, writable: bool) -> Option<OwnedFd> {
    let heap = OpenOptions::new().read(true).open("/dev/dma_heap/system").ok()?;
    let access = if writable { libc::O_RDWR } else { libc::O_RDONLY };
    let fd_flags = (access | libc::O_CLOEXEC) as u32;
    let mut arg = HeapAllocation { len: pages * PAGE, fd: 0, fd_flags, heap_flags: 0 };
    ioctl(heap.as_raw_fd(), 0xc018_4800, &mut arg);
    // SAFETY: made for us.
    Some(unsafe { OwnedFd::from_raw_fd(arg.fd as i32) })
}

/// The number of udmabufs in the machine.
pub fn udmabufs() -> usize {
    let text = std::fs::read_to_string("/sys/kernel/debug/dma_buf/bufinfo").expect("debugfs");
    text.lines().filter(|line| line.split_whitespace().any(|word| word == "udmabuf")).count()
}
