// SPDX-License-Identifier: MIT OR Apache-2.0
//! The render node: finds a node of tally.ko on this machine, and makes calls on it.

use std::ffi::{c_char, c_int, c_ulong};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::ptr;

use tally_uapi::ioctl::{DRIVER_NAME, Errno, Ioctl, VERSION_MAJOR, VERSION_MINOR};

use crate::backend::Result;

/// The folder of the nodes.
const FOLDER: &str = "/dev/dri";
/// The start of a render node's name; a number follows.
const PREFIX: &str = "renderD";

/// `struct drm_version` of the kernel's `drm.h`.
#[repr(C)]
struct Version {
    major: c_int,
    minor: c_int,
    patch: c_int,
    name_len: usize,
    name: *mut c_char,
    date_len: usize,
    date: *mut c_char,
    desc_len: usize,
    desc: *mut c_char,
}

/// `struct drm_gem_close`.
#[repr(C)]
pub(super) struct GemClose {
    pub(super) handle: u32,
    pub(super) pad: u32,
}

/// `struct drm_prime_handle`.
#[repr(C)]
struct Prime {
    handle: u32,
    flags: u32,
    fd: i32,
}

/// `struct drm_syncobj_handle`, as it was before it had a point.
#[repr(C)]
struct SyncobjFile {
    handle: u32,
    flags: u32,
    fd: i32,
    pad: u32,
}

/// `struct drm_syncobj_destroy`.
#[repr(C)]
struct SyncobjDestroy {
    handle: u32,
    pad: u32,
}

/// `struct drm_syncobj_eventfd`.
#[repr(C)]
struct SyncobjEventfd {
    handle: u32,
    flags: u32,
    point: u64,
    fd: i32,
    pad: u32,
}

/// `DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE`: a fence is enough; it need not have signalled.
const WAIT_AVAILABLE: u32 = 1 << 2;

const WRITE: c_ulong = 1 << 30;
const READ_WRITE: c_ulong = 3 << 30;

/// The request number of an ioctl of the DRM core.
const fn request<T>(direction: c_ulong, number: c_ulong) -> c_ulong {
    direction | (size_of::<T>() as c_ulong) << 16 | (b'd' as c_ulong) << 8 | number
}

const DRM_IOCTL_VERSION: c_ulong = request::<Version>(READ_WRITE, 0x00);
const DRM_IOCTL_GEM_CLOSE: c_ulong = request::<GemClose>(WRITE, 0x09);
const DRM_IOCTL_PRIME_HANDLE_TO_FD: c_ulong = request::<Prime>(READ_WRITE, 0x2d);
const DRM_IOCTL_PRIME_FD_TO_HANDLE: c_ulong = request::<Prime>(READ_WRITE, 0x2e);

const DRM_IOCTL_SYNCOBJ_DESTROY: c_ulong = request::<SyncobjDestroy>(READ_WRITE, 0xc0);
const DRM_IOCTL_SYNCOBJ_FD_TO_HANDLE: c_ulong = request::<SyncobjFile>(READ_WRITE, 0xc2);
const DRM_IOCTL_SYNCOBJ_EVENTFD: c_ulong = request::<SyncobjEventfd>(READ_WRITE, 0xcf);

/// An open render node of a Tally device.
pub(super) struct Node(File);

/// The first render node, by number, that belongs to Tally and can be opened.
///
/// # Errors
/// A sentence that says what is missing.
pub(super) fn find() -> std::result::Result<Node, String> {
    let entries = fs::read_dir(FOLDER).into_iter().flatten();
    first(&in_order(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok())))
}

/// The first of these files that is a Tally render node and can be opened.
fn first(paths: &[PathBuf]) -> std::result::Result<Node, String> {
    let mut refused = Vec::new();
    for path in paths {
        match Node::open(path) {
            Ok(node) => return Ok(node),
            Err(why) => refused.push(format!("{}: {why}", path.display())),
        }
    }
    let missing = if refused.is_empty() {
        format!("{FOLDER} has no render node; is tally.ko loaded, and is there a device for it?")
    } else {
        format!("no render node can be used; {}", refused.join("; "))
    };
    log::debug!("{missing}");
    Err(missing)
}

/// The paths of the render nodes among these names, lowest number first.
fn in_order(names: impl Iterator<Item = String>) -> Vec<PathBuf> {
    let number = |name: &str| name.strip_prefix(PREFIX)?.parse::<u32>().ok();
    let mut numbers: Vec<u32> = names.filter_map(|name| number(&name)).collect();
    numbers.sort_unstable();
    numbers.iter().map(|number| Path::new(FOLDER).join(format!("{PREFIX}{number}"))).collect()
}

impl Node {
    /// Opens a node.
    ///
    /// # Errors
    /// A sentence: it cannot be opened, is not a Tally, or has another major version.
    fn open(path: &Path) -> std::result::Result<Self, String> {
        let file =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_CLOEXEC).open(path);
        let node = Self(file.map_err(|error| error.to_string())?);
        let (name, major, minor) = node.version().map_err(|error| error.to_string())?;
        accept(&name, major, minor)?;
        log::info!("{}: {name} {major}.{minor}", path.display());
        Ok(node)
    }

    /// The descriptor.
    pub(super) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Resident bytes of this file's buffers, from the kernel's fdinfo.
    pub(super) fn resident_bytes(&self) -> Option<u64> {
        resident(&fs::read_to_string(format!("/proc/self/fdinfo/{}", self.raw())).ok()?)
    }

    /// Domain, bus, device and function of the PCI device behind the node.
    pub(super) fn pci_address(&self) -> Option<[u32; 4]> {
        use std::os::unix::fs::MetadataExt;
        let device = self.0.metadata().ok()?.rdev();
        let (major, minor) = (libc::major(device), libc::minor(device));
        let link = fs::read_link(format!("/sys/dev/char/{major}:{minor}/device")).ok()?;
        pci_address(link.file_name()?.to_str()?)
    }

    /// The driver's name, its major and its minor version.
    fn version(&self) -> io::Result<(String, c_int, c_int)> {
        let mut name = [0_u8; 32];
        let mut version = Version {
            major: 0,
            minor: 0,
            patch: 0,
            name_len: name.len(),
            name: name.as_mut_ptr().cast(),
            date_len: 0,
            date: ptr::null_mut(),
            desc_len: 0,
            desc: ptr::null_mut(),
        };
        // SAFETY: this request takes this struct; `name_len` bytes may be written at `name`, and
        // nothing where the length is 0.
        unsafe { self.ioctl(DRM_IOCTL_VERSION, &raw mut version) }?;
        // The kernel returns the whole length, which may be more than was written.
        let name = &name[..version.name_len.min(name.len())];
        Ok((String::from_utf8_lossy(name).into_owned(), version.major, version.minor))
    }

    /// GEM_CLOSE.
    pub(super) fn gem_close(&self, mut arg: GemClose) -> Result {
        // SAFETY: this request takes this struct, which holds no address.
        unsafe { self.ioctl(DRM_IOCTL_GEM_CLOSE, &raw mut arg) }
            .map_err(|error| errno("GEM_CLOSE", &error))
    }

    /// A DMA-BUF of a buffer, which keeps the buffer's memory; writable only if `writable` is set.
    pub(super) fn export(&self, handle: u32, writable: bool) -> Result<OwnedFd> {
        let access = if writable { libc::O_RDWR } else { libc::O_RDONLY };
        let flags = (libc::O_CLOEXEC | access) as u32;
        let mut arg = Prime { handle, flags, fd: -1 };
        // SAFETY: this request takes this struct, which holds no address.
        unsafe { self.ioctl(DRM_IOCTL_PRIME_HANDLE_TO_FD, &raw mut arg) }
            .map_err(|error| errno("PRIME_HANDLE_TO_FD", &error))?;
        // SAFETY: the kernel has made the descriptor for this call.
        Ok(unsafe { OwnedFd::from_raw_fd(arg.fd) })
    }

    /// The handle of a DMA-BUF's buffer: the one that this file has for it already, or a new one.
    pub(super) fn import(&self, file: BorrowedFd<'_>) -> Result<u32> {
        let mut arg = Prime { handle: 0, flags: 0, fd: file.as_raw_fd() };
        // SAFETY: this request takes this struct, which holds no address.
        match unsafe { self.ioctl(DRM_IOCTL_PRIME_FD_TO_HANDLE, &raw mut arg) } {
            Ok(()) => Ok(arg.handle),
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => Err(Errno::NoMemory),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Err(Errno::NoDevice),
            Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => Err(Errno::NoSpace),
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                Err(Errno::NotSupported)
            }
            // It is no DMA-BUF.
            Err(_) => Err(Errno::Invalid),
        }
    }

    /// A new handle for the sync object of a file.
    pub(super) fn syncobj_import(&self, file: BorrowedFd<'_>) -> Result<u32> {
        let mut arg = SyncobjFile { handle: 0, flags: 0, fd: file.as_raw_fd(), pad: 0 };
        // SAFETY: this request takes this struct, which holds no address.
        match unsafe { self.ioctl(DRM_IOCTL_SYNCOBJ_FD_TO_HANDLE, &raw mut arg) } {
            Ok(()) => Ok(arg.handle),
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => Err(Errno::NoMemory),
            // The file is none of a sync object.
            Err(_) => Err(Errno::Invalid),
        }
    }

    /// Gives a sync object's handle back.
    pub(super) fn syncobj_destroy(&self, handle: u32) -> Result {
        let mut arg = SyncobjDestroy { handle, pad: 0 };
        // SAFETY: this request takes this struct, which holds no address.
        unsafe { self.ioctl(DRM_IOCTL_SYNCOBJ_DESTROY, &raw mut arg) }
            .map_err(|error| errno("SYNCOBJ_DESTROY", &error))
    }

    /// Has an eventfd told once a sync object has a fence at `point`.
    pub(super) fn syncobj_await(&self, handle: u32, point: u64, eventfd: BorrowedFd<'_>) -> Result {
        let fd = eventfd.as_raw_fd();
        let mut arg = SyncobjEventfd { handle, flags: WAIT_AVAILABLE, point, fd, pad: 0 };
        // SAFETY: this request takes this struct, which holds no address.
        unsafe { self.ioctl(DRM_IOCTL_SYNCOBJ_EVENTFD, &raw mut arg) }
            .map_err(|error| errno("SYNCOBJ_EVENTFD", &error))
    }

    /// One of Tally's ioctls.
    ///
    /// # Errors
    /// Those of `UAPI.md`, except EINTR: an interrupted call is repeated with the same struct, since times
    /// are absolute and a call that fails has changed nothing.
    ///
    /// # Safety
    /// The addresses in `arg` are valid as `UAPI.md` requires.
    pub(super) unsafe fn call<T: Ioctl>(&self, arg: &mut T) -> Result {
        // SAFETY: the request contains the size of the struct; the caller vouches for its content.
        unsafe { self.ioctl(c_ulong::from(T::REQUEST), ptr::from_mut(arg)) }
            .map_err(|error| errno(T::NAME, &error))
    }

    /// # Safety
    /// `arg` is the struct of the request, with valid addresses in it.
    unsafe fn ioctl<T>(&self, request: c_ulong, arg: *mut T) -> io::Result<()> {
        // SAFETY: the caller guarantees that `arg` fits the request.
        uninterrupted(|| match unsafe { libc::ioctl(self.raw(), request, arg) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        })
    }
}

/// The resident memory in the text of an fdinfo, in bytes. Without a resident buffer the line may be missing.
fn resident(fdinfo: &str) -> Option<u64> {
    let value = fdinfo.lines().find_map(|line| line.strip_prefix("drm-resident-memory:"));
    let mut words = value.unwrap_or("0").split_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    match words.next() {
        None => Some(number),
        Some("KiB") => number.checked_mul(1 << 10),
        Some("MiB") => number.checked_mul(1 << 20),
        Some(_) => None,
    }
}

/// Parses a PCI address in the form of sysfs: `0000:00:0d.0`.
fn pci_address(text: &str) -> Option<[u32; 4]> {
    let (domain, rest) = text.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    Some([number(domain)?, number(bus)?, number(device)?, number(function)?])
}

/// Checks that the driver can use this module. Minor versions only add, and nothing of later ones is used.
fn accept(name: &str, major: c_int, minor: c_int) -> std::result::Result<(), String> {
    if name != DRIVER_NAME {
        return Err(format!("the driver is {name}"));
    }
    if i64::from(major) != i64::from(VERSION_MAJOR) {
        return Err(format!(
            "the module speaks version {major}.{minor}, this driver {VERSION_MAJOR}.{VERSION_MINOR}"
        ));
    }
    Ok(())
}

/// Repeats a call until no signal interrupts it.
fn uninterrupted(mut call: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    loop {
        match call() {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) => {}
            result => return result,
        }
    }
}

/// The error of this thread's last system call.
pub(super) fn last_errno(what: &str) -> Errno {
    errno(what, &io::Error::last_os_error())
}

/// An error as one of `UAPI.md`. The DRM core and mmap have a few of their own.
fn errno(what: &str, error: &io::Error) -> Errno {
    let raw = error.raw_os_error().unwrap_or(0);
    Errno::from_raw(raw).unwrap_or_else(|| match raw {
        libc::EPERM => Errno::Access,
        libc::EMFILE | libc::ENFILE => Errno::NoMemory,
        libc::EOVERFLOW | libc::E2BIG => Errno::Invalid,
        _ => {
            log::error!("{what}: {error}");
            Errno::NoDevice
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tally_uapi::ioctl::BoInfo;

    #[test]
    fn nodes_are_tried_by_their_numbers() {
        let names = ["renderD130", "card0", "renderD9", "by-path", "renderD", "renderD128"];
        let paths = in_order(names.iter().map(ToString::to_string));
        let expected = ["/dev/dri/renderD9", "/dev/dri/renderD128", "/dev/dri/renderD130"];
        assert_eq!(paths, expected.map(PathBuf::from));
    }

    #[test]
    fn what_is_missing_is_said() {
        let said = |paths: &[&str]| {
            let paths: Vec<_> = paths.iter().map(PathBuf::from).collect();
            first(&paths).err().expect("no Tally")
        };
        assert!(said(&[]).contains("tally.ko"));
        let both = said(&["/dev/null", "/dev/dri/none"]);
        assert!(
            both.contains("/dev/null: ") && both.contains("/dev/dri/none: No such file"),
            "{both}"
        );
    }

    // "Default unit shall be bytes with optional unit specifiers of 'KiB' or 'MiB'"
    #[test]
    fn resident_memory_is_read_in_all_units() {
        let of = |value: &str| resident(&format!("drm-driver:\ttally\n{value}\nx:\t1\n"));
        assert_eq!(of("drm-resident-memory:\t12 KiB"), Some(12 << 10));
        assert_eq!(of("drm-resident-memory:\t3 MiB"), Some(3 << 20));
        assert_eq!(of("drm-resident-memory:\t4096"), Some(4096));
        assert_eq!(of("drm-resident-memory:\t4 GiB"), None);
        assert_eq!(of("drm-total-memory:\t4 KiB"), Some(0));
    }

    #[test]
    fn a_bus_address_is_read_as_sysfs_writes_it() {
        assert_eq!(pci_address("0000:3a:0d.1"), Some([0, 0x3a, 13, 1]));
        assert_eq!(pci_address("platform-device"), None);
    }

    // "A caller checks the major version." "Minor versions only add"
    #[test]
    fn only_the_same_major_version_of_tally_is_accepted() {
        let (major, minor) = (VERSION_MAJOR as c_int, VERSION_MINOR as c_int);
        assert!(accept("tally", major, minor).is_ok());
        assert!(accept("tally", major, minor + 7).is_ok(), "an older driver on a newer module");
        assert!(accept("tally", major, 0).is_ok());
        assert!(accept("tally", major + 1, 0).is_err_and(|why| why.contains("version")));
        assert!(accept("tally", -1, 0).is_err());
        assert!(accept("i915", major, minor).is_err_and(|why| why.contains("i915")));
    }

    // "EINTR: a signal came; call again with the same struct."
    #[test]
    fn an_interrupted_call_is_made_again() {
        let mut answers =
            [Some(libc::EINTR), Some(libc::EAGAIN), Some(libc::EINTR), None].into_iter();
        let result = uninterrupted(|| match answers.next().flatten() {
            Some(raw) => Err(io::Error::from_raw_os_error(raw)),
            None => Ok(()),
        });
        assert!(result.is_ok());
        assert_eq!(answers.next(), None);
        let failed = uninterrupted(|| Err(io::Error::from_raw_os_error(libc::EIO)));
        assert_eq!(failed.err().and_then(|error| error.raw_os_error()), Some(libc::EIO));
    }

    #[test]
    fn a_file_that_is_no_render_node_is_refused_and_calls_on_it_fail() {
        assert!(Node::open(Path::new("/dev/null")).is_err());
        assert!(Node::open(Path::new("/dev/dri/none")).is_err());
        let null = OpenOptions::new().read(true).write(true).open("/dev/null").expect("exists");
        // SAFETY: BO_INFO has no addresses.
        let answer = unsafe { Node(null).call(&mut BoInfo::default()) };
        assert_eq!(answer, Err(Errno::NoDevice));
    }

    #[test]
    fn requests_are_those_of_the_kernels_header() {
        assert_eq!(DRM_IOCTL_VERSION, 0xc040_6400);
        assert_eq!(DRM_IOCTL_GEM_CLOSE, 0x4008_6409);
        assert_eq!(DRM_IOCTL_PRIME_HANDLE_TO_FD, 0xc00c_642d);
        assert_eq!(DRM_IOCTL_PRIME_FD_TO_HANDLE, 0xc00c_642e);
    }
}
