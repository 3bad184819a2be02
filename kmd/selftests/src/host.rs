// SPDX-License-Identifier: GPL-2.0
//! A GPU that the test implements itself with the host device. It behaves correctly only as far as the test wants.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};

use tally_uapi::firmware::{Answer, Command, Identity, op};
use tally_uapi::host::{ADMIN_ENTRIES, Area, INTERRUPT, Ioctl, PATH, Start, VmFile, Write};
use tally_uapi::ioctl::{DeviceInfo, EngineInfo, engine_capability};
use tally_uapi::regs;
use zerocopy::IntoBytes;

use crate::Outcome;
use crate::device::{Node, eventually};

pub const NO_HOST: Outcome = Outcome::Skipped("the device is no process of this machine");
/// A window that the driver accepts.
pub const WINDOW: (u64, u64) = (1 << 32, 1 << 30);
/// Words of a command and of an answer.
const WORDS: usize = 8;

pub fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// The host device, open, with its area mapped.
pub struct Device {
    file: File,
    area: *mut AtomicU64,
}

// SAFETY: a descriptor, and memory that is used only by atomic accesses.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: `open` mapped it, and only `self` uses it.
        unsafe { libc::munmap(self.area.cast(), size_of::<Area>()) };
    }
}

/// An identity that the driver accepts.
pub fn identity() -> Box<Identity> {
    let capabilities = engine_capability::COMPUTE | engine_capability::COPY;
    let mut engines = [EngineInfo::default(); tally_uapi::firmware::IDENTITY_ENGINES];
    engines[0] = EngineInfo { capabilities, count: 1 };
    let device = DeviceInfo {
        execution_units: 1,
        simd_lanes: 4,
        clock_hz: 1_000_000_000,
        va_start: 1 << 32,
        va_end: 1 << 46,
        max_vms: 16,
        max_queues: 64,
        ..Default::default()
    };
    Box::new(Identity {
        device,
        engine_classes: 1,
        target_bytes: 0,
        engines,
        target: [0; tally_uapi::firmware::IDENTITY_TARGET],
    })
}

impl Device {
    pub fn open() -> Self {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_CLOEXEC)
            .open(PATH)
            .expect("the host device");
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: this makes a new mapping of the driver's memory.
        let area = unsafe {
            let (flags, fd) = (libc::MAP_SHARED, file.as_raw_fd());
            libc::mmap(std::ptr::null_mut(), size_of::<Area>(), access, flags, fd, 0)
        };
        assert_ne!(area, libc::MAP_FAILED);
        Self { file, area: area.cast() }
    }

    pub fn call<T: Ioctl>(&self, arg: &mut T) -> Result<(), i32> {
        // SAFETY: the request number matches the struct. The kernel checks addresses.
        match unsafe { libc::ioctl(self.file.as_raw_fd(), T::REQUEST as libc::Ioctl, arg) } {
            0 => Ok(()),
            _ => Err(errno()),
        }
    }

    pub fn start_as(&self, identity: &Identity, version: u32) -> Result<u32, i32> {
        let identity = std::ptr::from_ref(identity).addr() as u64;
        let mut start = Start { version, number: 0, identity, clock_start: 0 };
        self.call(&mut start).map(|()| start.number)
    }

    /// Starts the GPU and opens its render node.
    pub fn start(&self) -> Node {
        let version = u32::from(regs::VERSION_MAJOR) << 16;
        let number = self.start_as(&identity(), version).expect("START");
        Node::open_path(&node_of(number))
    }

    pub fn interrupt(&self) -> Result<(), i32> {
        // SAFETY: the call has no argument.
        match unsafe { libc::ioctl(self.file.as_raw_fd(), INTERRUPT as libc::Ioctl) } {
            0 => Ok(()),
            _ => Err(errno()),
        }
    }

    pub fn vm_file(&self, vm: u32) -> Result<OwnedFd, i32> {
        let mut request = VmFile { vm, fd: -1 };
        self.call(&mut request)?;
        // SAFETY: the driver has just created the descriptor.
        Ok(unsafe { OwnedFd::from_raw_fd(request.fd) })
    }

    /// Reads the next register writes. It fails if the driver has given up the device.
    pub fn writes(&self) -> io::Result<Vec<Write>> {
        let mut writes = [Write::default(); 8];
        let bytes = (&self.file).read(writes.as_mut_bytes())?;
        Ok(writes[..bytes / size_of::<Write>()].to_vec())
    }

    /// Word `index` at `offset` of the area.
    pub fn word(&self, offset: usize, index: usize) -> &AtomicU64 {
        assert!(offset + index * 8 < size_of::<Area>());
        // SAFETY: the word lies within the mapping, which exists as long as `self`.
        unsafe { &*self.area.byte_add(offset).add(index) }
    }

    fn command(&self, index: u32) -> Command {
        let slot = (index % ADMIN_ENTRIES) as usize * WORDS;
        let words: [u64; WORDS] =
            std::array::from_fn(|word| self.word(0, slot + word).load(Acquire));
        zerocopy::transmute!(words)
    }

    /// Answers the command with number `index`.
    fn answer(&self, index: u32, command: &Command, answer: Answer) {
        let slot = if command.vm < 256 { command.vm as usize } else { 0 } * WORDS;
        let words: [u64; WORDS] = zerocopy::transmute!(answer);
        let offset = std::mem::offset_of!(Area, answers);
        // The upper half of the last word is the sequence.
        for (word, value) in words.iter().enumerate().take(WORDS - 1) {
            self.word(offset, slot + word).store(*value, SeqCst);
        }
        let last = words[WORDS - 1] & 0xffff_ffff | u64::from(index.wrapping_add(1)) << 32;
        self.word(offset, slot + WORDS - 1).store(last, Release);
        let _ = self.interrupt();
    }

    /// Answers every command with success, up to and including a VM_DESTROY.
    pub fn serve(&self, on: impl FnMut(&Command)) {
        self.serve_until(op::VM_DESTROY, on);
    }

    /// Answers every command with success, up to and including the first with the opcode `last`.
    pub fn serve_until(&self, last: u32, mut on: impl FnMut(&Command)) {
        let mut served = 0;
        while let Ok(writes) = self.writes() {
            for write in writes.iter().filter(|it| u64::from(it.register) == regs::ADMIN_TAIL) {
                while served != write.value {
                    let command = self.command(served);
                    on(&command);
                    self.answer(served, &command, Answer::default());
                    served = served.wrapping_add(1);
                    if command.opcode == last {
                        return;
                    }
                }
            }
        }
    }
}

/// The render node of the GPU with this number.
pub fn node_of(number: u32) -> std::path::PathBuf {
    let folder = format!("/sys/devices/faux/tally-host.{number}/drm");
    let node = || {
        let names = std::fs::read_dir(&folder).ok()?.flatten().map(|entry| entry.file_name());
        names.into_iter().find(|name| name.to_string_lossy().starts_with("renderD"))
    };
    let mut path = None;
    // The node comes after its parent. Opening it fails with ENODEV until the DRM core has registered it.
    eventually(|| {
        let found = node().map(|name| std::path::Path::new("/dev/dri").join(name));
        path = found.filter(|path| std::fs::File::open(path).is_ok());
        path.is_some()
    });
    path.expect("its path")
}
