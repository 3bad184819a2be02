// SPDX-License-Identifier: MIT OR Apache-2.0
//! The driver's host device: its calls, and the memory that is shared with the driver.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tally_engine::mailbox::Piece;
use tally_uapi::firmware::{Command, Identity, answer_status, map_flag};
use tally_uapi::host::{Area, INTERRUPT, Ioctl, PATH, Start, VmFile, WAITERS_OFFSET, Write};
use tally_uapi::{PAGE_SIZE, regs};
use zerocopy::IntoBytes;

use super::areas::Areas;
use crate::machine::{Machine, View, VmMemory};

/// The open host device, with the memory that is shared with the driver.
#[derive(Debug)]
pub struct HostDevice {
    file: File,
    /// The memory that is shared with the driver.
    area: Arc<Shared>,
    /// The most mappings of a VM.
    max_mappings: usize,
}

/// The memory that is shared with the driver, mapped as long as this lives.
#[derive(Debug)]
struct Shared(NonNull<u8>);

// SAFETY: the memory is accessed through atomics only.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn map(file: &File) -> io::Result<Arc<Self>> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping touches nothing that exists; the result is checked.
        let start = unsafe {
            let (flags, fd) = (libc::MAP_SHARED, file.as_raw_fd());
            libc::mmap(std::ptr::null_mut(), size_of::<Area>(), protection, flags, fd, 0)
        };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Arc::new(Self(start))),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which no view is left.
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<Area>()) };
    }
}

impl HostDevice {
    /// Opens the host device.
    ///
    /// # Errors
    /// It does not exist, or may not be opened. No memory.
    pub fn open(max_mappings: usize) -> io::Result<Self> {
        let explain = |error: io::Error| {
            let why = match error.kind() {
                io::ErrorKind::NotFound => "the module tally is not loaded",
                io::ErrorKind::PermissionDenied => "only root and the user of the service may",
                _ => "it cannot be opened",
            };
            io::Error::new(error.kind(), format!("{PATH}: {why} ({error})"))
        };
        let file = File::options().read(true).write(true).open(PATH).map_err(explain)?;
        let area = Shared::map(&file)?;
        Ok(Self { file, area, max_mappings })
    }

    fn call<T: Ioctl>(&self, arg: &mut T) -> io::Result<()> {
        // SAFETY: the number fits the struct, and the memory at its addresses is valid for the call.
        let done = unsafe { libc::ioctl(self.file.as_raw_fd(), T::REQUEST as libc::Ioctl, arg) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// START. Returns the GPU's number.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn start(&self, identity: &Identity, clock_start: u64) -> io::Result<u32> {
        let mut start = Start {
            version: u32::from(regs::VERSION_MAJOR) << 16 | u32::from(regs::VERSION_MINOR),
            number: 0,
            identity: std::ptr::from_ref(identity).addr() as u64,
            clock_start,
        };
        self.call(&mut start).map_err(|error| {
            let why = match error.raw_os_error() {
                Some(libc::EINVAL) => ": the module is of another version",
                _ => "",
            };
            io::Error::new(error.kind(), format!("{PATH}: the driver refuses{why} ({error})"))
        })?;
        Ok(start.number)
    }

    /// Waits for register writes.
    ///
    /// # Errors
    /// The driver has given the device up.
    pub fn read<'a>(&self, writes: &'a mut [Write]) -> io::Result<&'a [Write]> {
        let bytes = loop {
            match (&self.file).read(writes.as_mut_bytes()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        match bytes {
            Ok(bytes) => Ok(&writes[..bytes / size_of::<Write>()]),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {
                let text = "the driver has given this GPU up, since it did not answer";
                Err(io::Error::new(error.kind(), text))
            }
            Err(error) => Err(error),
        }
    }
}

impl Machine for HostDevice {
    fn words(&self, address: u64, count: usize) -> Option<View<[AtomicU64]>> {
        let end = address.checked_add(count as u64 * 8)?;
        if !address.is_multiple_of(PAGE_SIZE) || end > size_of::<Area>() as u64 {
            return None;
        }
        // SAFETY: within the mapping, aligned, and kept by it.
        unsafe {
            let start = self.area.0.add(address as usize);
            Some(View::new(start, count, Arc::clone(&self.area) as _))
        }
    }

    fn interrupt(&self) {
        // If this fails, the driver has given up the device, which `read` reports.
        // SAFETY: a call without an argument.
        unsafe { libc::ioctl(self.file.as_raw_fd(), INTERRUPT as libc::Ioctl) };
    }

    fn memory(&self, vm: u32, _waiters: u64) -> io::Result<Box<dyn VmMemory>> {
        let mut request = VmFile { vm, fd: -1 };
        self.call(&mut request)?;
        // SAFETY: the driver has just made it for us.
        let file = unsafe { OwnedFd::from_raw_fd(request.fd) };
        Ok(Box::new(Space { file, areas: Areas::new(self.max_mappings) }))
    }
}

/// The memory of a VM: its file, in which the driver shows the bound pages. The engine process needs orders
/// only for code, where it maps the file for execution, and for memory of other drivers, where it maps the file anew.
struct Space {
    file: OwnedFd,
    areas: Areas,
}

impl VmMemory for Space {
    fn files(&self) -> Vec<RawFd> {
        vec![self.file.as_raw_fd()]
    }

    fn waiters(&self) -> (usize, u64) {
        (0, WAITERS_OFFSET)
    }

    fn begin(&mut self, window: &Range<u64>) -> Vec<Piece> {
        vec![self.areas.begin(window)]
    }

    fn map(&mut self, range: &Range<u64>, command: &Command) -> Result<Vec<Piece>, u32> {
        let [_, _, list, count, ..] = command.args;
        if list != 0 || count != 0 || command.flags & map_flag::NULL != 0 {
            return Err(answer_status::INVALID);
        }
        // Code is read, too; other memory has the access of its binding.
        let executes = command.flags & map_flag::EXECUTE != 0;
        let access = command.flags | if executes { map_flag::READ } else { 0 };
        self.areas.add(range, access).map(|piece| vec![piece]).ok_or(answer_status::NO_SPACE)
    }

    fn unmap(&mut self, range: &Range<u64>) -> Vec<Piece> {
        self.areas.remove(range)
    }

    fn covers(&self, _: u64, _: u64, _: u32) -> bool {
        // The driver has checked that, and shows only bound pages.
        true
    }
}
