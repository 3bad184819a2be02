// SPDX-License-Identifier: GPL-2.0
//! Processes that are a GPU and do what one must not. Each loses its own GPU, and nothing else is lost.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use tally_uapi::firmware::{Answer, Command, Identity, op};
use tally_uapi::host::{ADMIN_ENTRIES, Area, INTERRUPT, Ioctl, PATH, Start, VmFile, Write};
use tally_uapi::ioctl::{
    DeviceInfo, EngineInfo, VmBind, VmCreate, VmDestroy, bind_op, engine_capability,
};
use tally_uapi::regs;
use zerocopy::IntoBytes;

use crate::Outcome;
use crate::device::{Node, PAGE, RW, eventually};
use crate::fuzz::Dice;
use crate::half::is_pci;

const NO_HOST: Outcome = Outcome::Skipped("the device is no process of this machine");
/// A window that the driver accepts.
const WINDOW: (u64, u64) = (1 << 32, 1 << 30);
/// Words of a command and of an answer.
const WORDS: usize = 8;

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// The host device, open, with its area mapped.
struct Device {
    file: File,
    area: *mut AtomicU64,
}

// SAFETY: a descriptor, and memory that is used by atomics only.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: mapped by `open`, and used by `self` only.
        unsafe { libc::munmap(self.area.cast(), size_of::<Area>()) };
    }
}

/// An identity that the driver accepts.
fn identity() -> Box<Identity> {
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
    fn open() -> Self {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_CLOEXEC)
            .open(PATH)
            .expect("the host device");
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of what the driver gives.
        let area = unsafe {
            let (flags, fd) = (libc::MAP_SHARED, file.as_raw_fd());
            libc::mmap(std::ptr::null_mut(), size_of::<Area>(), access, flags, fd, 0)
        };
        assert_ne!(area, libc::MAP_FAILED);
        Self { file, area: area.cast() }
    }

    fn call<T: Ioctl>(&self, arg: &mut T) -> Result<(), i32> {
        // SAFETY: the number fits the struct. The kernel checks addresses.
        match unsafe { libc::ioctl(self.file.as_raw_fd(), T::REQUEST as libc::Ioctl, arg) } {
            0 => Ok(()),
            _ => Err(errno()),
        }
    }

    fn start_as(&self, identity: &Identity, version: u32) -> Result<u32, i32> {
        let identity = std::ptr::from_ref(identity).addr() as u64;
        let mut start = Start { version, number: 0, identity, clock_start: 0 };
        self.call(&mut start).map(|()| start.number)
    }

    /// Starts, and opens the render node.
    fn start(&self) -> Node {
        let version = u32::from(regs::VERSION_MAJOR) << 16;
        let number = self.start_as(&identity(), version).expect("START");
        Node::open_path(&node_of(number))
    }

    fn interrupt(&self) -> Result<(), i32> {
        // SAFETY: a call without an argument.
        match unsafe { libc::ioctl(self.file.as_raw_fd(), INTERRUPT as libc::Ioctl) } {
            0 => Ok(()),
            _ => Err(errno()),
        }
    }

    fn vm_file(&self, vm: u32) -> Result<OwnedFd, i32> {
        let mut request = VmFile { vm, fd: -1 };
        self.call(&mut request)?;
        // SAFETY: the driver has just made it.
        Ok(unsafe { OwnedFd::from_raw_fd(request.fd) })
    }

    /// The next register writes. An error: the driver has given the device up.
    fn writes(&self) -> io::Result<Vec<Write>> {
        let mut writes = [Write::default(); 8];
        let bytes = (&self.file).read(writes.as_mut_bytes())?;
        Ok(writes[..bytes / size_of::<Write>()].to_vec())
    }

    /// Word `index` at `offset` of the area.
    fn word(&self, offset: usize, index: usize) -> &AtomicU64 {
        assert!(offset + index * 8 < size_of::<Area>());
        // SAFETY: within the mapping, which lives as long as `self`.
        unsafe { &*self.area.byte_add(offset).add(index) }
    }

    fn command(&self, index: u32) -> Command {
        let slot = (index % ADMIN_ENTRIES) as usize * WORDS;
        let words: [u64; WORDS] =
            std::array::from_fn(|word| self.word(0, slot + word).load(Acquire));
        zerocopy::transmute!(words)
    }

    /// Answers the command of number `index`.
    fn answer(&self, index: u32, command: &Command, answer: Answer) {
        let slot = if command.vm < 256 { command.vm as usize } else { 0 } * WORDS;
        let words: [u64; WORDS] = zerocopy::transmute!(answer);
        let offset = std::mem::offset_of!(Area, answers);
        // The last word has the sequence in its upper half.
        for (word, value) in words.iter().enumerate().take(WORDS - 1) {
            self.word(offset, slot + word).store(*value, SeqCst);
        }
        let last = words[WORDS - 1] & 0xffff_ffff | u64::from(index.wrapping_add(1)) << 32;
        self.word(offset, slot + WORDS - 1).store(last, Release);
        let _ = self.interrupt();
    }

    /// Answers every command with success, up to and with a VM_DESTROY.
    fn serve(&self, mut on: impl FnMut(&Command)) {
        let mut served = 0;
        while let Ok(writes) = self.writes() {
            for write in writes.iter().filter(|it| u64::from(it.register) == regs::ADMIN_TAIL) {
                while served != write.value {
                    let command = self.command(served);
                    on(&command);
                    self.answer(served, &command, Answer::default());
                    served = served.wrapping_add(1);
                    if command.opcode == op::VM_DESTROY {
                        return;
                    }
                }
            }
        }
    }
}

/// The render node of the GPU of a number.
fn node_of(number: u32) -> std::path::PathBuf {
    let folder = format!("/sys/devices/faux/tally-host.{number}/drm");
    let entries = std::fs::read_dir(folder).expect("its node").flatten();
    let name = entries
        .map(|entry| entry.file_name())
        .find(|name| name.to_string_lossy().starts_with("renderD"))
        .expect("a render node");
    let path = std::path::Path::new("/dev/dri").join(name);
    eventually(|| path.exists());
    path
}

/// All is well with the GPU that is honest.
fn witness() {
    crate::queues::a_signal_arrives();
}

/// "a process is one GPU until it closes the file", "EINVAL: a version that the driver does not know"
pub fn starts_are_checked() -> Outcome {
    if is_pci() {
        return NO_HOST;
    }
    let device = Device::open();
    let good = u32::from(regs::VERSION_MAJOR) << 16;
    assert_eq!(device.interrupt(), Err(libc::EINVAL), "before START");
    assert_eq!(device.vm_file(1).err(), Some(libc::EINVAL), "before START");
    assert_eq!(device.start_as(&identity(), good + (1 << 16)), Err(libc::EINVAL));
    let windows = [(0, 1 << 40), (1, 1 << 40), (1 << 40, 1 << 32), (1 << 32, 1 << 63)];
    for (va_start, va_end) in windows {
        let mut bad = identity();
        (bad.device.va_start, bad.device.va_end) = (va_start, va_end);
        assert_eq!(device.start_as(&bad, good), Err(libc::EINVAL), "{va_start:#x} {va_end:#x}");
    }
    let mut start = Start { version: good, identity: 8, ..Default::default() };
    assert_eq!(device.call(&mut start), Err(libc::EFAULT));
    let number = device.start_as(&identity(), good).expect("START");
    assert_eq!(device.start_as(&identity(), good), Err(libc::EBUSY));
    assert_eq!(device.vm_file(1).err(), Some(libc::ENOENT));
    let node = Node::open_path(&node_of(number));
    drop(device);
    assert_eq!(node.call(&mut VmCreate::default()), Err(libc::ENODEV));
    witness();
    Outcome::Passed
}

/// Lies, garbage in all that is shared, and interrupts without a reason: the clients of that GPU get an error
/// or a wrong answer, and nobody else notices.
pub fn garbage_is_harmless() -> Outcome {
    if is_pci() {
        return NO_HOST;
    }
    for seed in 0..3 {
        let device = Device::open();
        let node = device.start();
        let end = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut dice = Dice(seed + 1);
                while !end.load(SeqCst) {
                    let words = (size_of::<Area>() / 8) as u64;
                    for _ in 0..100 {
                        let value = match dice.below(3) {
                            0 => dice.below(u64::MAX),
                            1 => dice.below(300),
                            _ => dice.below(300) << 32 | dice.below(300),
                        };
                        device.word(0, dice.below(words) as usize).store(value, SeqCst);
                    }
                    if device.interrupt().is_err() {
                        return;
                    }
                }
            });
            scope.spawn(|| {
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_secs(2) {
                    let mut vm = VmCreate { start: WINDOW.0, size: WINDOW.1, ..Default::default() };
                    if node.call(&mut vm) == Err(libc::ENODEV) {
                        break;
                    }
                }
            });
            // The commands that wait for an answer end with the GPU.
            std::thread::sleep(Duration::from_secs(3));
            end.store(true, SeqCst);
            witness();
        });
        drop(device);
        witness();
    }
    Outcome::Passed
}

/// "UNMAP takes the page away from all mappings of the file", "The process that called START may not map it"
pub fn a_file_shows_what_is_bound() -> Outcome {
    if is_pci() {
        return NO_HOST;
    }
    let device = Device::open();
    let node = device.start();
    let given = std::sync::Mutex::new(None);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            device.serve(|command| {
                if command.opcode == op::VM_CREATE {
                    *given.lock().unwrap() = Some(device.vm_file(command.vm).expect("VM_FILE"));
                }
            });
        });
        let mut vm = VmCreate { start: WINDOW.0, size: WINDOW.1, ..Default::default() };
        node.call(&mut vm).expect("VM_CREATE");
        let ends = Ends(&node, vm.vm_id);
        let file = given.lock().unwrap().take().expect("its file");
        let handle = node.bo(4, 0).expect("a buffer");
        let bind = |op, address, pages, flags| {
            node.call(&mut VmBind {
                vm_id: vm.vm_id,
                op,
                handle: if op == bind_op::MAP { handle } else { 0 },
                flags,
                address,
                size: pages * PAGE,
                ..Default::default()
            })
        };
        bind(bind_op::MAP, WINDOW.0, 2, RW).expect("a binding");
        bind(bind_op::MAP, WINDOW.0 + 2 * PAGE, 1, tally_uapi::ioctl::bind_flag::READ)
            .expect("a binding");
        // SAFETY: a mapping that is refused.
        let mapped = unsafe { map(&file, WINDOW.0, 4) };
        assert_eq!(mapped, Err(libc::EPERM), "by the process that is the GPU");
        let child = Child::start(&file);
        assert!(child.can(0, true) && child.can(1, true), "what is bound");
        assert!(child.can(2, false) && !child.can(2, true), "with the binding's access");
        assert!(!child.can(3, false), "what is not bound");
        bind(bind_op::UNMAP, WINDOW.0, 1, 0).expect("UNMAP");
        assert!(!child.can(0, false), "what was unmapped");
        assert!(child.can(1, true), "and nothing else");
        // In a loop: there is never access after UNMAP has returned.
        for _ in 0..200 {
            bind(bind_op::MAP, WINDOW.0, 1, RW).expect("a binding");
            assert!(child.can(0, true));
            bind(bind_op::UNMAP, WINDOW.0, 1, 0).expect("UNMAP");
            assert!(!child.can(0, true));
        }
        drop(ends);
        assert!(!child.can(1, false), "after the VM");
    });
    drop(device);
    witness();
    Outcome::Passed
}

/// A VM that ends with this, and with it the thread that serves it.
struct Ends<'a>(&'a Node, u32);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.call(&mut VmDestroy { vm_id: self.1, pad: 0 }).expect("the end of the VM");
    }
}

/// Maps pages of the file of a VM.
///
/// # Safety
/// None; it is a new mapping.
unsafe fn map(file: &OwnedFd, va: u64, pages: u64) -> Result<*mut u8, i32> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping.
    let mapped = unsafe {
        let (flags, fd) = (libc::MAP_SHARED, file.as_raw_fd());
        libc::mmap(std::ptr::null_mut(), (pages * PAGE) as usize, access, flags, fd, va as i64)
    };
    if mapped == libc::MAP_FAILED { Err(errno()) } else { Ok(mapped.cast()) }
}

/// A process that has the file of a VM, as an engine process does, and says what it can reach. The kernel
/// reads and writes for it, which answers EFAULT where the process would be ended.
struct Child {
    pid: libc::pid_t,
    stream: std::os::unix::net::UnixStream,
}

impl Child {
    fn start(file: &OwnedFd) -> Self {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a socket");
        // SAFETY: the child makes system calls only.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: a new mapping; the pipe's ends are the child's own.
                unsafe {
                    let memory = map(file, WINDOW.0, 4).unwrap_or(std::ptr::null_mut());
                    let mut pipe = [0; 2];
                    libc::pipe(pipe.as_mut_ptr());
                    let mut ask = [0u8; 2];
                    while libc::read(theirs.as_raw_fd(), ask.as_mut_ptr().cast(), 2) == 2 {
                        let at = memory.add(usize::from(ask[0]) * PAGE as usize);
                        let mut byte = 0u8;
                        let done = if ask[1] == 0 {
                            // From that memory, and so a read of it.
                            libc::write(pipe[1], at.cast(), 1) == 1
                                && libc::read(pipe[0], (&raw mut byte).cast(), 1) == 1
                        } else {
                            libc::write(pipe[1], (&raw const byte).cast(), 1) == 1
                                && match libc::read(pipe[0], at.cast(), 1) {
                                    1 => true,
                                    _ => {
                                        libc::read(pipe[0], (&raw mut byte).cast(), 1);
                                        false
                                    }
                                }
                        };
                        libc::write(theirs.as_raw_fd(), (&raw const done).cast(), 1);
                    }
                    libc::_exit(0);
                }
            }
            pid => {
                assert!(pid > 0);
                Self { pid, stream: ours }
            }
        }
    }

    /// Whether a page can be read, or written.
    fn can(&self, page: u8, write: bool) -> bool {
        use std::io::Write as _;
        (&self.stream).write_all(&[page, u8::from(write)]).expect("the child");
        let mut answer = [0];
        (&self.stream).read_exact(&mut answer).expect("the child");
        answer[0] != 0
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: our own child, which was not waited for.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

/// A GPU that answers nothing: its client is told after the time that the driver gives it, can be killed
/// before, and no memory stays.
pub fn silence_ends_the_gpu() -> Outcome {
    if is_pci() {
        return NO_HOST;
    }
    let device = Device::open();
    let node = device.start();
    let begun = Instant::now();
    let mut vm = VmCreate { start: WINDOW.0, size: WINDOW.1, ..Default::default() };
    let answer = node.call(&mut vm);
    assert!(matches!(answer, Err(libc::EIO | libc::ENODEV | libc::ETIMEDOUT)), "{answer:?}");
    println!("# a silent GPU was noticed after {} ms", begun.elapsed().as_millis());
    witness();
    eventually(|| device.interrupt() == Err(libc::ENODEV));
    assert!(device.writes().is_err());
    witness();
    Outcome::Passed
}
