// SPDX-License-Identifier: GPL-2.0
//! Tests that the files of VMs show the bound memory, and that it is inaccessible when UNMAP returns: a test acts
//! as the GPU, and binds and unmaps while other processes hold the file, as engine processes do.

use std::arch::asm;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use tally_uapi::firmware::op;
use tally_uapi::ioctl::{VmBind, VmCreate, VmDestroy, bind_flag, bind_op};

use crate::Outcome;
use crate::device::{Mapped, Node, PAGE, RW, eventually};
use crate::foreign::{udmabuf, udmabufs};
use crate::fuzz::Dice;
use crate::half::is_pci;
use crate::host::{Device, NO_HOST, WINDOW, errno};
use crate::processes::Child;

/// A VM of the GPU that the test implements.
struct Vm<'a> {
    node: &'a Node,
    id: u32,
    file: OwnedFd,
}

impl Vm<'_> {
    /// VM_BIND of pages of the window, from page `from` of a buffer.
    fn bind(&self, op: u32, handle: u32, from: u64, page: u64, pages: u64, flags: u32) {
        let mut bind = VmBind {
            vm_id: self.id,
            op,
            handle,
            flags,
            offset: from * PAGE,
            address: WINDOW.0 + page * PAGE,
            size: pages * PAGE,
            ..Default::default()
        };
        self.node.call(&mut bind).expect("VM_BIND");
    }

    fn map(&self, handle: u32, from: u64, page: u64, pages: u64, flags: u32) {
        self.bind(bind_op::MAP, handle, from, page, pages, flags);
    }

    fn unmap(&self, page: u64, pages: u64) {
        self.bind(bind_op::UNMAP, 0, 0, page, pages, 0);
    }

    /// Ends it. Its file stays.
    fn end(&self) {
        self.node.call(&mut VmDestroy { vm_id: self.id, pad: 0 }).expect("VM_DESTROY");
    }
}

impl Drop for Vm<'_> {
    fn drop(&mut self) {
        // The VM may have ended already. It has to end, because the thread that serves it waits for that.
        let _ = self.node.call(&mut VmDestroy { vm_id: self.id, pad: 0 });
    }
}

/// Runs `test` with a VM of a GPU that this process implements.
fn with_vm(test: impl FnOnce(&Vm<'_>)) -> Outcome {
    if is_pci() {
        return NO_HOST;
    }
    let device = Device::open();
    let node = device.start();
    let (given, file) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let device = &device;
        scope.spawn(move || {
            device.serve(|command| {
                if command.opcode == op::VM_CREATE {
                    given.send(device.vm_file(command.vm).expect("VM_FILE")).expect("who asks");
                }
            });
        });
        let mut create = VmCreate { start: WINDOW.0, size: WINDOW.1, ..Default::default() };
        node.call(&mut create).expect("VM_CREATE");
        test(&Vm { node: &node, id: create.vm_id, file: file.recv().expect("its file") });
    });
    drop(device);
    crate::queues::a_signal_arrives();
    Outcome::Passed
}

/// Maps pages of the file of a VM, at an address that the kernel chooses.
fn map(file: &OwnedFd, access: i32, page: u64, pages: u64) -> Result<*mut u8, i32> {
    map_as(file, libc::MAP_SHARED, access, WINDOW.0 + page * PAGE, pages)
}

fn map_as(file: &OwnedFd, flags: i32, access: i32, va: u64, pages: u64) -> Result<*mut u8, i32> {
    // SAFETY: this makes a new mapping.
    let mapped = unsafe {
        let (bytes, fd) = ((pages * PAGE) as usize, file.as_raw_fd());
        libc::mmap(std::ptr::null_mut(), bytes, access, flags, fd, va as i64)
    };
    if mapped == libc::MAP_FAILED { Err(errno()) } else { Ok(mapped.cast()) }
}

const READ: i32 = libc::PROT_READ;
const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// A process that has the file of a VM. `run` only makes system calls and uses memory; its result is the exit
/// status of the process.
fn holder(run: impl FnOnce() -> i32) -> Child {
    // SAFETY: the child only runs `run` and exits.
    match unsafe { libc::fork() } {
        0 => {
            let status = run();
            // SAFETY: the call only ends the process.
            unsafe { libc::_exit(status) }
        }
        pid => Child::new(pid),
    }
}

/// A process that reports which of the first pages of a window it can access. It accesses them through system
/// calls, which return EFAULT where an access of its own would end the process.
struct Reader {
    _process: Child,
    stream: std::os::unix::net::UnixStream,
}

impl Reader {
    fn start(file: &OwnedFd) -> Self {
        let (stream, theirs) = std::os::unix::net::UnixStream::pair().expect("a socket");
        let process = holder(|| {
            let memory = map(file, BOTH, 0, 4).unwrap_or(std::ptr::null_mut());
            let mut ask = [0u8; 2];
            // SAFETY: buffers and descriptors are the process's own. Only the kernel accesses `memory`, and
            // it checks the address.
            unsafe {
                let mut pipe = [0; 2];
                libc::pipe(pipe.as_mut_ptr());
                while libc::read(theirs.as_raw_fd(), ask.as_mut_ptr().cast(), 2) == 2 {
                    let at = memory.wrapping_add(usize::from(ask[0]) * PAGE as usize);
                    let mut byte = 0u8;
                    let done = if ask[1] == 0 {
                        // Writing from that memory is a read of it.
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
            }
            0
        });
        Self { _process: process, stream }
    }

    /// Whether a page can be read, or written.
    fn can(&self, page: u8, write: bool) -> bool {
        use std::io::{Read, Write};
        (&self.stream).write_all(&[page, u8::from(write)]).expect("the child");
        let mut answer = [0];
        (&self.stream).read_exact(&mut answer).expect("the child");
        answer[0] != 0
    }
}

/// "A page is there while it is bound, with the access of the binding", "The process that called START may not
/// map it"
pub fn a_file_shows_what_is_bound() -> Outcome {
    with_vm(|vm| {
        let handle = vm.node.bo(4, 0).expect("a buffer");
        vm.map(handle, 0, 0, 2, RW);
        vm.map(handle, 0, 2, 1, bind_flag::READ);
        let mapped = map(&vm.file, BOTH, 0, 4);
        assert_eq!(mapped, Err(libc::EPERM), "by the process that is the GPU");
        let reader = Reader::start(&vm.file);
        assert!(reader.can(0, true) && reader.can(1, true), "what is bound");
        assert!(reader.can(2, false) && !reader.can(2, true), "with the binding's access");
        assert!(!reader.can(3, false), "what is not bound");
        vm.unmap(0, 1);
        assert!(!reader.can(0, false), "what was unmapped");
        assert!(reader.can(1, true), "and nothing else");
        for _ in 0..200 {
            vm.map(handle, 0, 0, 1, RW);
            assert!(reader.can(0, true));
            vm.unmap(0, 1);
            assert!(!reader.can(0, true));
        }
        vm.end();
        assert!(!reader.can(1, false), "after the VM");
    })
}

/// "A mapping of exactly a range in which memory of another driver is bound, or of a part of it, becomes one of that
/// driver's when it is made. It shows that memory until the process maps something else there, also after the driver has
/// unmapped it"; "In other mappings of the range every access is SIGBUS."
pub fn memory_of_other_drivers_has_areas_of_its_own() -> Outcome {
    let Some((fd, memory)) = udmabuf(4) else {
        return Outcome::Skipped("the kernel has no udmabuf");
    };
    let theirs = Mapped::new(memory.as_raw_fd(), 0, 4 * PAGE, BOTH).expect("the memfd");
    let outcome = with_vm(|vm| {
        let handle = vm.node.import(fd.as_raw_fd()).expect("an import");
        let own = vm.node.bo(1, 0).expect("a buffer");
        vm.map(handle, 0, 0, 2, RW);
        vm.map(handle, 2, 2, 1, bind_flag::READ);
        vm.map(own, 0, 3, 1, RW);
        let (mut told, tell) = std::io::pipe().expect("a pipe");
        let (wait, mut go_on) = std::io::pipe().expect("a pipe");
        let child = holder(|| areas(&vm.file, tell.as_raw_fd(), wait.as_raw_fd()));
        let mut first = [0];
        std::io::Read::read_exact(&mut told, &mut first).expect("its word");
        assert_eq!(first, [0], "which one");
        assert_eq!(theirs.word(0).load(SeqCst) & 0xff, 7, "what it has written");
        vm.unmap(0, 3);
        std::io::Write::write_all(&mut go_on, &[1]).expect("the child");
        assert_eq!(child.status(), 0, "which one, in the upper byte");
    });
    drop((theirs, fd, memory));
    eventually(|| udmabufs() == 0);
    outcome
}

/// Maps what [`memory_of_other_drivers_has_areas_of_its_own`] has bound. Tells the number of the first thing that is
/// not as it should be, 0 if all is, waits for a byte, and returns such a number for afterwards.
fn areas(file: &OwnedFd, tell: i32, wait: i32) -> i32 {
    const EXECUTE: i32 = libc::PROT_EXEC;
    let mut pipe = [0; 2];
    // SAFETY: descriptors and memory of the process's own. Only the kernel accesses the mappings, and it checks all
    // addresses.
    unsafe {
        libc::pipe(pipe.as_mut_ptr());
        let mut byte = 7u8;
        let reads = |at: Result<*mut u8, i32>, byte: &mut u8| {
            at.is_ok_and(|at| {
                libc::write(pipe[1], at.cast(), 1) == 1
                    && libc::read(pipe[0], std::ptr::from_mut(byte).cast(), 1) == 1
            })
        };
        let exact = map(file, BOTH, 0, 2);
        let only_read = map(file, READ, 2, 1);
        libc::write(pipe[1], (&raw const byte).cast(), 1);
        let wrote = exact.is_ok_and(|at| libc::read(pipe[0], at.cast(), 1) == 1);
        let refused = |at: Result<*mut u8, i32>, access| {
            let at = at.unwrap_or(std::ptr::null_mut());
            libc::mprotect(at.cast(), PAGE as usize, access) == -1 && errno() == libc::EACCES
        };
        let good = [
            wrote,
            reads(exact, &mut byte) && byte == 7,
            reads(map(file, READ, 1, 1), &mut byte),
            reads(only_read, &mut byte),
            refused(only_read, BOTH),
            refused(exact, READ | EXECUTE),
            // More than the range, or than the access, or for something else.
            !reads(map(file, BOTH, 0, 4), &mut byte),
            !reads(map(file, BOTH, 1, 2), &mut byte),
            !reads(map(file, BOTH, 2, 1), &mut byte),
            !reads(map(file, READ | EXECUTE, 0, 2), &mut byte),
            reads(map(file, BOTH, 3, 1), &mut byte),
        ];
        let bad = |good: &[bool]| good.iter().position(|&it| !it).map_or(0, |at| at as u8 + 1);
        let first = bad(&good);
        libc::write(tell, (&raw const first).cast(), 1);
        libc::read(wait, (&raw mut byte).cast(), 1);
        let good = [
            reads(exact, &mut byte) && byte == 7,
            !reads(map(file, BOTH, 0, 2), &mut byte),
            !reads(map(file, READ, 2, 1), &mut byte),
        ];
        bad(&good).into()
    }
}

/// "Nothing here waits for the process, and the process cannot keep memory from being freed": a GPU ends while a client
/// binds. The file of the VM, which this test still has, keeps no buffer: buffers are freed before the DRM device is.
/// (Otherwise the kernel warns.)
pub fn nothing_is_bound_in_a_gpu_that_ends() -> Outcome {
    if is_pci() {
        return NO_HOST;
    }
    let mut dice = Dice(1);
    for _ in 0..100 {
        let device = Device::open();
        let node = device.start();
        let mut create = VmCreate { start: WINDOW.0, size: WINDOW.1, ..Default::default() };
        let file = std::thread::scope(|scope| {
            let client = scope.spawn(|| node.call(&mut create).expect("VM_CREATE"));
            let mut file = None;
            device.serve_until(op::VM_CREATE, |command| file = device.vm_file(command.vm).ok());
            client.join().expect("the client");
            file.expect("its file")
        });
        std::thread::scope(|scope| {
            for page in 0..2 {
                let (node, id) = (&node, create.vm_id);
                scope.spawn(move || binds_until_the_end(node, id, page));
            }
            std::thread::sleep(Duration::from_micros(dice.below(2000)));
            drop(device);
        });
        drop(node);
        drop(file);
    }
    crate::queues::a_signal_arrives();
    Outcome::Passed
}

/// Binds and unmaps page `page` of the window until the GPU has gone.
fn binds_until_the_end(node: &Node, vm_id: u32, page: u64) {
    // It may have gone already.
    let Ok(handle) = node.bo(1, 0) else { return };
    let change = |op, handle, flags| {
        let address = WINDOW.0 + page * PAGE;
        let asked = VmBind { vm_id, op, handle, flags, address, size: PAGE, ..Default::default() };
        node.call(&mut { asked })
    };
    loop {
        let done = change(bind_op::MAP, handle, RW).and_then(|()| change(bind_op::UNMAP, 0, 0));
        if let Err(error) = done {
            assert_eq!(error, libc::ENODEV);
            return;
        }
    }
}

/// "A mapping is shared, and is never writable and executable at once": it also does not become so later, and is
/// not passed on to another process.
pub fn mappings_stay_what_they_are() -> Outcome {
    with_vm(|vm| {
        let handle = vm.node.bo(4, 0).expect("a buffer");
        let executable = bind_flag::READ | bind_flag::EXECUTE;
        vm.map(handle, 0, 0, 4, RW);
        vm.map(handle, 0, 4, 4, executable);
        let child = holder(|| refusals(&vm.file));
        assert_eq!(child.status(), 0, "which one, in the upper byte");
    })
}

/// Makes the calls that the kernel has to refuse to a process with the file. Returns the number of the first one
/// that it did not refuse; 0: it refused all.
fn refusals(file: &OwnedFd) -> i32 {
    const EXECUTE: i32 = libc::PROT_EXEC;
    let bytes = 4 * PAGE as usize;
    let (Ok(data), Ok(code)) = (map(file, BOTH, 0, 4), map(file, READ | EXECUTE, 4, 4)) else {
        return 1;
    };
    // SAFETY: these are calls on the process's own mappings. The kernel checks all addresses.
    unsafe {
        let refused = |result: i32, error| result == -1 && errno() == error;
        let protect = |at: *mut u8, access| libc::mprotect(at.cast(), bytes, access);
        let mut byte = 0u8;
        let mut pipe = [0; 2];
        libc::pipe(pipe.as_mut_ptr());
        // Both are readable now, so that the pages are mapped.
        let there = |at: *mut u8, byte: &mut u8| {
            libc::write(pipe[1], at.cast(), 1) == 1
                && libc::read(pipe[0], (&raw mut *byte).cast(), 1) == 1
        };
        let child = libc::fork();
        if child == 0 {
            libc::_exit(i32::from(there(data, &mut byte) || there(code, &mut byte)));
        }
        let mut status = 1;
        libc::waitpid(child, &mut status, 0);
        let moved = libc::mremap(data.cast(), bytes, 2 * bytes, libc::MREMAP_MAYMOVE);
        let checks = [
            there(data, &mut byte) && there(code, &mut byte),
            status == 0,
            refused(protect(data, READ | EXECUTE), libc::EACCES),
            refused(protect(data, BOTH | EXECUTE), libc::EACCES),
            refused(protect(code, BOTH), libc::EACCES),
            refused(protect(code, BOTH | EXECUTE), libc::EACCES),
            map(file, BOTH | EXECUTE, 0, 4) == Err(libc::EINVAL),
            map_as(file, libc::MAP_PRIVATE, READ, WINDOW.0, 4) == Err(libc::EINVAL),
            // The waiters page: one page, for reading.
            map_as(file, libc::MAP_SHARED, BOTH, 0, 1) == Err(libc::EINVAL),
            map_as(file, libc::MAP_SHARED, READ, 0, 2) == Err(libc::EINVAL),
            moved == libc::MAP_FAILED,
            !through_proc(data) && !through_proc(code),
        ];
        checks.iter().position(|&good| !good).map_or(0, |index| index as i32 + 2)
    }
}

/// Whether a byte of this process is accessible in the ways that a debugger uses.
fn through_proc(at: *mut u8) -> bool {
    let mut byte = 0u8;
    // SAFETY: the byte is the process's own; the kernel checks the arguments.
    unsafe {
        let memory = libc::open(c"/proc/self/mem".as_ptr(), libc::O_RDONLY);
        memory < 0 || libc::pread(memory, (&raw mut byte).cast(), 1, at.addr() as i64) == 1
    }
}

/// Number of pages that are unmapped and bound again; they include some huge pages.
const PAGES: u64 = 2048;
/// A holder writes one page in each group of this many. Unmapped ranges are multiples of it.
const STEP: u64 = 16;
const PLACES: u64 = PAGES / STEP;
const HOLDERS: usize = 2;

/// When UNMAP returns, processes that write all the time can no longer write to the range, with small and huge
/// pages, not even one that changes its mapping all the time. And no other page becomes inaccessible.
pub fn no_access_outlives_unmap() -> Outcome {
    with_vm(|vm| {
        let passes = Shared::new();
        let _holders: [Child; HOLDERS] = std::array::from_fn(|index| {
            let (file, passes) = (&vm.file, &passes);
            holder(move || write_all_the_time(file, index, passes.word(index)))
        });
        let handle = vm.node.bo(PAGES, 0).expect("a buffer");
        let memory = vm.node.map(handle, BOTH).expect("a mapping");
        vm.map(handle, 0, 0, PAGES, RW);
        let mut dice = Dice(7);
        for round in 0..100 {
            await_passes(&passes, 1);
            let from = dice.below(PLACES);
            let count = match round % 3 {
                0 => 1,
                1 => PLACES - from,
                _ => 1 + dice.below(PLACES - from),
            };
            vm.unmap(from * STEP, count * STEP);
            let gone = from..from + count;
            let before = seen(&memory, gone.clone());
            let rest: Vec<_> = (0..PLACES).filter(|place| !gone.contains(place)).collect();
            let others = seen(&memory, rest.iter().copied());
            // The holders have since tried all pages.
            await_passes(&passes, 2);
            assert_eq!(seen(&memory, gone), before, "round {round}: {from} and {count} more");
            let now = seen(&memory, rest.iter().copied());
            assert!(others.iter().zip(&now).all(|(before, now)| now > before), "round {round}");
            vm.map(handle, from * STEP, from * STEP, count * STEP, RW);
        }
        await_passes(&passes, 1);
    })
}

/// The numbers that the holders have last written to these places.
fn seen(memory: &Mapped, places: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let words = |place: u64| (0..HOLDERS).map(move |holder| word_of(place) / 8 + holder as u64);
    let words = places.into_iter().flat_map(words);
    words.map(|word| memory.word(word as usize).load(SeqCst)).collect()
}

/// The byte at which the holders' words of a place begin.
fn word_of(place: u64) -> u64 {
    // The word is not always in the first page of the place.
    (place * STEP + place % STEP) * PAGE
}

/// Waits until each holder has begun and ended this number of passes.
fn await_passes(passes: &Shared, count: u64) {
    for holder in 0..HOLDERS {
        let word = passes.word(holder);
        let until = word.load(SeqCst) + count + 1;
        eventually(|| word.load(SeqCst) >= until);
    }
}

/// A page that is shared with children.
struct Shared(*mut AtomicU64);

impl Shared {
    fn new() -> Self {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: this makes a new mapping, which is never unmapped.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE as usize, BOTH, flags, -1, 0) };
        assert_ne!(page, libc::MAP_FAILED);
        Self(page.cast())
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < PAGE as usize / 8);
        // SAFETY: the index lies within the page.
        unsafe { &*self.0.add(index) }
    }
}

/// A holder: writes increasing numbers to its words until it is killed. The second holder meanwhile changes its
/// mapping in the ways in which a process may.
fn write_all_the_time(file: &OwnedFd, index: usize, passes: &AtomicU64) -> i32 {
    survive_faults();
    let bytes = (PAGES * PAGE) as usize;
    // An address at which huge pages fit.
    let place = (1usize << 44) + (index << 40);
    let map_again = || {
        // SAFETY: this makes a new mapping where nothing else is mapped.
        let mapped = unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            libc::mmap(place as *mut _, bytes, BOTH, flags, file.as_raw_fd(), WINDOW.0 as i64)
        };
        mapped.cast::<u8>()
    };
    let mut memory = map_again();
    for number in 1.. {
        // SAFETY: these are calls on the middle of the process's own mapping.
        unsafe {
            let (middle, half) = (memory.add(bytes / 4).cast(), bytes / 2);
            match number % 6 {
                _ if index == 0 => {}
                0 => {
                    libc::mprotect(middle, half, READ);
                    libc::mprotect(middle, half, BOTH);
                }
                1 => drop(libc::madvise(middle, half, libc::MADV_DONTNEED)),
                2 => drop(libc::madvise(middle, half, libc::MADV_POPULATE_WRITE)),
                3 => {
                    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                    let other = (place + (1 << 39)) as *mut libc::c_void;
                    let moved = libc::mremap(memory.cast(), bytes, bytes, flags, other);
                    libc::mremap(moved, bytes, bytes, flags, memory);
                }
                4 => drop(libc::mlock(middle, half)),
                _ => {
                    libc::munmap(middle, half);
                    memory = map_again();
                }
            }
        }
        for place in 0..PLACES {
            // SAFETY: the address lies within the process's own mapping; faults are survived.
            unsafe { store(memory.add(word_of(place) as usize).cast::<u64>().add(index), number) };
        }
        passes.fetch_add(1, SeqCst);
    }
    0
}

/// The code of [`store`].
const STORE: [u8; 3] = [0x48, 0x89, 0x37];

/// Stores a number, if the memory permits it.
///
/// # Safety
/// All other accesses to that word are atomic, and [`survive_faults`] was called.
unsafe fn store(at: *mut u64, number: u64) {
    // SAFETY: as the caller guarantees. After a fault, execution continues behind the instruction.
    unsafe { asm!("mov qword ptr [rdi], rsi", in("rdi") at, in("rsi") number, options(nostack)) };
}

/// From now on a [`store`] that faults does nothing. Any other fault ends the process.
fn survive_faults() {
    extern "C" fn skip(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: these are the arguments that the kernel passes to a handler of this kind.
        unsafe {
            let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
            let at = &mut registers[libc::REG_RIP as usize];
            if std::ptr::with_exposed_provenance::<[u8; 3]>(*at as usize).read() != STORE {
                libc::_exit(2);
            }
            *at += STORE.len() as i64;
        }
    }
    // SAFETY: a plain struct, and a handler that does not return to code that faulted elsewhere.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = skip as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        for signal in [libc::SIGBUS, libc::SIGSEGV] {
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}
