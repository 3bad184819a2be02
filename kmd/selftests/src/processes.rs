// SPDX-License-Identifier: GPL-2.0
//! Several processes: sharing, killing, forking.

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::{Relaxed, Release};

use tally_uapi::cell::CellKind;
use tally_uapi::ioctl::{SemWake, bind_flag, bo_flag};

use crate::device::{
    FOREVER, Fixture, Mapped, Node, PAGE, RW, counter, debug_lines, entry, eventually, in_ms,
    nobody_is_left, wait, wait_for,
};

/// A child process, killed on drop, so that the processes of a failed test do not disturb the next ones.
pub struct Child(libc::pid_t);

impl Child {
    /// A child that this process has forked, and has not waited for.
    pub fn new(pid: libc::pid_t) -> Self {
        assert!(pid > 0, "fork failed");
        Self(pid)
    }

    /// Its number.
    pub fn pid(&self) -> libc::pid_t {
        self.0
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: takes numbers; an own child that was not waited for.
        assert_eq!(unsafe { libc::kill(self.0, signal) }, 0);
    }

    /// Waits for its end and returns its status.
    pub fn status(self) -> i32 {
        let mut status = 0;
        // SAFETY: an own child.
        assert_eq!(unsafe { libc::waitpid(self.0, &mut status, 0) }, self.0);
        std::mem::forget(self);
        status
    }

    /// Kills it. False if it had already ended successfully.
    pub fn kill_if_alive(self) -> bool {
        self.signal(libc::SIGKILL);
        let status = self.status();
        assert!(status == 0 || status == libc::SIGKILL, "{status:#x}");
        status != 0
    }

    /// Kills it. It must not have ended before.
    pub fn kill(self) {
        assert!(self.kill_if_alive(), "it has ended");
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: an own child that was not waited for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// Runs `child` in a process of its own, whose status is 0 if `child` returns true. Until it changes its user,
/// it is killed when its parent ends.
pub fn process(child: impl FnOnce() -> bool) -> Child {
    let parent = std::process::id();
    // SAFETY: the program has one thread here; the child only makes system calls, and ends.
    unsafe {
        match libc::fork() {
            0 => {
                end_with(parent);
                let good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
                libc::_exit(i32::from(!good.unwrap_or(false)));
            }
            pid => Child::new(pid),
        }
    }
}

/// Arranges that this process is killed when its parent ends, which may have happened already.
fn end_with(parent: u32) {
    // SAFETY: takes numbers.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() as u32 != parent {
            libc::_exit(1);
        }
    }
}

/// BO_CREATE: "With IMPORT_READ_ONLY a client that gets the buffer by PRIME may bind it
/// READ and map it PROT_READ, and nothing more: EACCES."
pub fn importers_of_read_only_buffers_only_read() {
    let (owner, client) = (Fixture::new(), Fixture::new());
    let handle = owner.node.bo(1, bo_flag::IMPORT_READ_ONLY).unwrap();
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let own = owner.node.map(handle, both).unwrap();
    owner.bind(owner.map(handle, 0, 0, 1, RW)).unwrap();
    own.word(0).store(6, Relaxed);
    let fd = owner.node.export(handle).unwrap();
    let imported = client.node.import(fd.as_raw_fd()).unwrap();
    for flags in [RW, bind_flag::WRITE, bind_flag::READ | bind_flag::EXECUTE] {
        let refused = client.bind(client.map(imported, 0, 0, 1, flags));
        assert_eq!(refused, Err(libc::EACCES));
    }
    client.bind(client.map(imported, 0, 0, 1, bind_flag::READ)).unwrap();
    assert_eq!(client.node.map(imported, both).err(), Some(libc::EACCES));
    let read = client.node.map(imported, libc::PROT_READ).unwrap();
    assert_eq!(read.word(0).load(Relaxed), 6);
    assert_eq!(read.protect(both), Err(libc::EACCES));
    // The dma-buf itself does not bypass the rule.
    assert_eq!(Mapped::new(fd.as_raw_fd(), 0, PAGE, both).err(), Some(libc::EACCES));
    let direct = Mapped::new(fd.as_raw_fd(), 0, PAGE, libc::PROT_READ).unwrap();
    assert_eq!(direct.word(0).load(Relaxed), 6);
    assert_eq!(direct.protect(both), Err(libc::EACCES));
    // The owner gets its own handle back, with all its rights.
    assert_eq!(owner.node.import(fd.as_raw_fd()), Ok(handle));
    drop(owner.node.map(handle, both).unwrap());
}

/// A wait on a counter whose owner was killed continues, and the memory stays.
pub fn an_importer_outlives_the_exporter() {
    let pair = sockets();
    let exporter = process(|| {
        let fixture = Fixture::new();
        let (handle, _memory) = fixture.memory(0, 1);
        let mut queue = fixture.queue(8);
        // Work that never ends by itself.
        queue.push(wait_for(queue.cell(1), 1, CellKind::Event));
        let fd = fixture.node.export(handle).unwrap();
        send_fd(pair[0], fd.as_raw_fd());
        loop {
            std::thread::sleep(std::time::Duration::from_secs(100));
        }
    });
    let fd = receive_fd(pair[1]);
    let node = Node::open();
    let handle = node.import(fd).unwrap();
    let memory = node.map(handle, libc::PROT_READ | libc::PROT_WRITE).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| wait(&node, 0, &[entry(handle, 0, 1)], 0, FOREVER));
        eventually(|| counter("asleep") == 1);
        exporter.kill();
        let late = wait(&node, 0, &[entry(handle, 0, 1)], 0, in_ms(50));
        assert_eq!(late, Err(libc::ETIME), "no false completion");
        memory.word(0).store(1, Release);
        node.call(&mut SemWake { handle, pad: 0, offset: 0 }).unwrap();
        assert_eq!(waiter.join().unwrap(), Ok(0));
    });
    // SAFETY: received above.
    unsafe { libc::close(fd) };
}

/// "a process killed with work in flight": all its resources are freed.
pub fn a_killed_process_leaves_nothing() {
    nobody_is_left();
    let before = left();
    for _ in 0..5 {
        let pair = sockets();
        let child = process(|| {
            let fixture = Fixture::new();
            let mut queues: Vec<_> = (0..4).map(|index| fixture.queue(index * 8)).collect();
            for queue in &mut queues {
                for value in 1..=20 {
                    queue.push(queue.signal(0, value));
                }
                queue.push(wait_for(queue.cell(1), 1, CellKind::Counter));
            }
            // SAFETY: a byte of an own array to an own socket.
            unsafe { libc::write(pair[0], [1u8].as_ptr().cast(), 1) };
            let _ = fixture.wait(&[queues[0].entry(1, 1)], 0, FOREVER);
            false
        });
        let mut byte = [0u8];
        // SAFETY: into an own array.
        assert_eq!(unsafe { libc::read(pair[1], byte.as_mut_ptr().cast(), 1) }, 1);
        child.kill();
    }
    eventually(|| left() == before);
}

/// The same with a kernel that never ends: closing the file does not wait for it, and
/// the device's answer frees what it used.
pub fn a_killed_process_takes_its_endless_kernel_along() {
    nobody_is_left();
    let before = left();
    let pair = sockets();
    let child = process(|| {
        let fixture = Fixture::new();
        let mut queue = fixture.queue(0);
        crate::queues::start_endless(&fixture, &mut queue, 8);
        // SAFETY: a byte of an own array to an own socket.
        unsafe { libc::write(pair[0], [1u8].as_ptr().cast(), 1) };
        let _ = fixture.wait(&[queue.entry(0, 1)], 0, FOREVER);
        false
    });
    let mut byte = [0u8];
    // SAFETY: into an own array.
    assert_eq!(unsafe { libc::read(pair[1], byte.as_mut_ptr().cast(), 1) }, 1);
    child.kill();
    eventually(|| left() == before);
}

/// Usage of all clients: bytes in buffers, VMs, queues.
fn left() -> (u64, usize, usize) {
    (counter("memory"), debug_lines("vm "), debug_lines("queue "))
}

/// A file is shared by fork: the parent sees the child's actions on it.
pub fn a_forked_child_may_use_the_file() {
    let fixture = Fixture::new();
    let queue = fixture.queue(0);
    let child = process(|| {
        let mut queue = queue;
        queue.push(queue.signal(0, 5));
        fixture.wait(&[queue.entry(0, 5)], 0, FOREVER) == Ok(0)
    });
    assert_eq!(child.status(), 0);
    // The child's end has not ended the parent's VM.
    let mut other = fixture.queue(8);
    other.push(other.signal(0, 1));
    assert_eq!(fixture.wait(&[other.entry(0, 1)], 0, FOREVER), Ok(0));
}

fn sockets() -> [i32; 2] {
    let mut pair = [0; 2];
    let stream = libc::SOCK_STREAM;
    // SAFETY: fills the array. The sockets live as long as the program.
    let made = unsafe { libc::socketpair(libc::AF_UNIX, stream, 0, pair.as_mut_ptr()) };
    assert_eq!(made, 0);
    pair
}

/// Room for one control message with one descriptor.
#[repr(C, align(8))]
struct Control([u8; 24]);

fn message(byte: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: a plain struct.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = byte;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len();
    message
}

fn send_fd(socket: i32, fd: i32) {
    let (mut byte, mut control) = ([0u8; 1], Control([0; 24]));
    let mut vector = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let message = message(&mut vector, &mut control);
    // SAFETY: the header fits into the buffer, and all buffers outlive the call.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(4) as usize;
        libc::CMSG_DATA(header).cast::<i32>().write_unaligned(fd);
        assert_eq!(libc::sendmsg(socket, &message, 0), 1);
    }
}

fn receive_fd(socket: i32) -> i32 {
    let (mut byte, mut control) = ([0u8; 1], Control([0; 24]));
    let mut vector = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let mut message = message(&mut vector, &mut control);
    // SAFETY: all buffers outlive the call, and one descriptor was sent.
    unsafe {
        assert_eq!(libc::recvmsg(socket, &mut message, 0), 1);
        libc::CMSG_DATA(libc::CMSG_FIRSTHDR(&message)).cast::<i32>().read_unaligned()
    }
}
