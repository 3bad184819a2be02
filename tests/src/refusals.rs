// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes one system call for memory fail: the n-th request of the calling thread, or of threads that it
//! starts.
//!
//! A seccomp filter passes the system calls for memory, memory files and threads to a thread of this
//! process, which counts them and lets them continue or fail. Requests of malloc in the C library
//! always succeed: a Rust program aborts if one fails.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

/// The system calls that may fail.
const CALLS: [libc::c_long; 7] = [
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_memfd_create,
    libc::SYS_ftruncate,
    libc::SYS_clone,
    libc::SYS_clone3,
];

/// Values of the listener's number before the filter is installed, and if there will be none.
const NOT_YET: i32 = -1;
const NEVER: i32 = -2;

/// `SECCOMP_IOCTL_NOTIF_RECV` and `SECCOMP_IOCTL_NOTIF_SEND`.
const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;

/// Counts requests and refuses one of them.
pub struct Refusals {
    refuse: u64,
    seen: AtomicU64,
    paused: AtomicBool,
    listener: AtomicI32,
}

impl Refusals {
    /// From now on the request of this number, from 1, fails. `None` if the system has no such filters.
    pub fn begin(refuse: u64) -> Option<Arc<Self>> {
        let this = Arc::new(Self {
            refuse,
            seen: AtomicU64::new(0),
            paused: AtomicBool::new(false),
            listener: AtomicI32::new(NOT_YET),
        });
        let clerk = this.clone();
        // Started before the filter, so that the thread has none itself.
        std::thread::spawn(move || clerk.serve());
        let fd = install();
        // No call may come between: a call that the filter stops waits for the thread above.
        this.listener.store(fd.unwrap_or(NEVER), Ordering::Release);
        fd.map(|_| this)
    }

    /// The number of requests so far.
    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Runs `work` while nothing is counted and nothing fails.
    pub fn paused<T>(&self, work: impl FnOnce() -> T) -> T {
        self.paused.store(true, Ordering::SeqCst);
        let result = work();
        self.paused.store(false, Ordering::SeqCst);
        result
    }

    fn serve(&self) {
        let listener = loop {
            match self.listener.load(Ordering::Acquire) {
                NOT_YET => std::thread::yield_now(),
                NEVER => return,
                // SAFETY: the descriptor was made for this thread.
                fd => break unsafe { OwnedFd::from_raw_fd(fd) },
            }
        };
        loop {
            // SAFETY: numbers only; all zero is what the kernel asks for.
            let mut request: libc::seccomp_notif = unsafe { std::mem::zeroed() };
            // SAFETY: the request takes this struct.
            if unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE, &raw mut request) } != 0 {
                continue;
            }
            let fails = self.fails(&request);
            let mut answer =
                libc::seccomp_notif_resp { id: request.id, val: 0, error: 0, flags: 0 };
            if fails {
                answer.error = -libc::ENOMEM;
            } else {
                answer.flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
            }
            // SAFETY: as above. The requesting thread may have ended, so errors are ignored.
            unsafe { libc::ioctl(listener.as_raw_fd(), SEND, &raw mut answer) };
        }
    }

    fn fails(&self, request: &libc::seccomp_notif) -> bool {
        let data = &request.data;
        let malloc = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        let writable = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let is_malloc = i64::from(data.nr) == libc::SYS_mmap
            && data.args[3] & !(libc::MAP_NORESERVE as u64) == malloc
            && data.args[2] == writable;
        // The calls of another process, such as the compiler, are not tested.
        let ours = std::path::Path::new(&format!("/proc/self/task/{}", request.pid)).exists();
        if is_malloc || !ours || self.paused.load(Ordering::SeqCst) {
            return false;
        }
        self.seen.fetch_add(1, Ordering::Relaxed) + 1 == self.refuse
    }
}

/// Installs the filter on the calling thread; returns the descriptor that receives its calls.
fn install() -> Option<i32> {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut filter = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    for (i, call) in CALLS.iter().enumerate() {
        // Jumps to the statement behind "allow".
        let jt = (CALLS.len() - i) as u8;
        let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        filter.push(libc::sock_filter { code, jt, jf: 0, k: *call as u32 });
    }
    filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_USER_NOTIF));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program is read during the call only, and restricts only the calling thread
    // and those that it starts.
    let fd = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    i32::try_from(fd).ok().filter(|&fd| fd >= 0)
}
