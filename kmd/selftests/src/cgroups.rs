// SPDX-License-Identifier: GPL-2.0
//! Memory of a cgroup: allocations for its processes are charged to it, and when it runs out of memory, no
//! other process suffers. For a kernel with memory cgroups, with /sys/fs/cgroup mounted.

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tally_uapi::ioctl::{VmBind, bind_op};

use crate::Outcome;
use crate::device::{FOREVER, Fixture, Node, PAGE, RW, eventually, nobody_is_left};

const NONE: Outcome = Outcome::Skipped("the kernel has no memory cgroups");

/// A cgroup of its own.
struct Group(PathBuf);

impl Group {
    /// None where there are no memory cgroups.
    fn new(name: &str) -> Option<Self> {
        let root = PathBuf::from("/sys/fs/cgroup");
        fs::write(root.join("cgroup.subtree_control"), "+memory").ok()?;
        let group = Self(root.join(name));
        fs::create_dir(&group.0).expect("a cgroup");
        Some(group)
    }

    fn set(&self, file: &str, value: impl ToString) {
        fs::write(self.0.join(file), value.to_string()).expect("a file of the cgroup");
    }

    fn text(&self, file: &str) -> String {
        fs::read_to_string(self.0.join(file)).expect("a file of the cgroup")
    }

    /// Bytes that are charged.
    fn current(&self) -> u64 {
        self.text("memory.current").trim().parse().expect("a number")
    }

    /// A line of memory.stat or memory.events.
    fn value(&self, file: &str, key: &str) -> u64 {
        let text = self.text(file);
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {key} in {text}"))
    }

    /// Runs `f` in a process of the group, which ends when `f` returns or the other end of its stream
    /// is dropped.
    fn start(&self, f: impl FnOnce(Node, &mut UnixStream)) -> Member {
        let (stream, mut theirs) = UnixStream::pair().expect("a pair");
        // SAFETY: the program has one thread here; the child ends without returning.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            drop(stream);
            self.set("cgroup.procs", 0);
            let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                f(Node::open(), &mut theirs);
            }));
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(ran.is_err())) };
        }
        Member { pid, stream }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its processes have ended, but the kernel may still be cleaning up after them. If the test has failed,
        // its message is the one to report, not a failure here.
        let until = Instant::now() + Duration::from_secs(60);
        while fs::remove_dir(&self.0).is_err() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A process of a group.
struct Member {
    pid: libc::pid_t,
    stream: UnixStream,
}

impl Member {
    /// The next number that it sends, or None if it has ended.
    fn hear(&mut self) -> Option<u64> {
        let mut bytes = [0; 8];
        self.stream.read_exact(&mut bytes).is_ok().then(|| u64::from_ne_bytes(bytes))
    }

    /// Lets it continue.
    fn answer(&mut self) {
        self.stream.write_all(&[0]).expect("it listens");
    }

    /// Waits for its end and returns its status.
    fn end(mut self) -> i32 {
        // A child that still waits for an answer sees the end of the stream, and continues.
        let _ = self.stream.shutdown(Shutdown::Both);
        let mut status = 0;
        // SAFETY: an own child.
        assert_eq!(unsafe { libc::waitpid(self.pid, &mut status, 0) }, self.pid);
        self.pid = 0;
        status
    }
}

impl Drop for Member {
    /// Kills it if the test has failed before its end.
    fn drop(&mut self) {
        if self.pid != 0 {
            // SAFETY: an own child that was not waited for.
            unsafe {
                libc::kill(self.pid, libc::SIGKILL);
                libc::waitpid(self.pid, std::ptr::null_mut(), 0);
            }
        }
    }
}

fn tell(stream: &mut UnixStream, number: u64) {
    stream.write_all(&number.to_ne_bytes()).expect("the parent listens");
}

fn listen(stream: &mut UnixStream) {
    // The parent may end without an answer.
    let _ = stream.read(&mut [0]);
}

/// Checks that a client outside of the group gets everything that it asks for.
fn others_are_well() {
    let fixture = Fixture::new();
    fixture.memory(64, 2048);
    let mut queue = fixture.queue(0);
    queue.push(queue.signal(0, 1));
    assert_eq!(fixture.wait(&[queue.entry(0, 1)], 0, FOREVER), Ok(0));
}

/// The pages of a buffer are charged to the cgroup of the process that binds it, until it is freed.
pub fn a_cgroup_pays_for_buffers() -> Outcome {
    const BYTES: u64 = 32 << 20;
    let Some(group) = Group::new("tally-buffers") else { return NONE };
    let mut member = group.start(|node, stream| {
        let fixture = Fixture::on(node);
        tell(stream, 0);
        listen(stream);
        let handle = fixture.node.bo(BYTES / PAGE, 0).unwrap();
        fixture.bind(fixture.map(handle, 0, 0, BYTES / PAGE, RW)).unwrap();
        tell(stream, 0);
        listen(stream);
        fixture.bind(fixture.unmap(0, BYTES / PAGE)).unwrap();
        fixture.node.close(handle).unwrap();
        tell(stream, 0);
        listen(stream);
    });
    assert_eq!(member.hear(), Some(0));
    let before = group.current();
    member.answer();
    assert_eq!(member.hear(), Some(0));
    let with = group.current();
    assert!(with >= before + BYTES, "{before} before, {with} with a buffer of {BYTES}");
    member.answer();
    assert_eq!(member.hear(), Some(0));
    eventually(|| group.current() < before + BYTES / 2);
    assert_eq!(member.end(), 0);
    nobody_is_left();
    Outcome::Passed
}

/// "When memory runs out, a buffer gets none (ENOMEM) and no process is ended": this holds for the memory of a
/// cgroup, too.
pub fn a_cgroup_at_its_limit_gets_no_buffer() -> Outcome {
    const LIMIT: u64 = 64 << 20;
    const PAGES: u64 = 2048;
    let Some(group) = Group::new("tally-limit") else { return NONE };
    group.set("memory.max", LIMIT);
    let mut member = group.start(|node, stream| {
        let fixture = Fixture::on(node);
        let mut bound = 0;
        let error = loop {
            let handle = fixture.node.bo(PAGES, 0).unwrap();
            match fixture.bind(fixture.map(handle, 0, bound, PAGES, RW)) {
                Ok(()) => bound += PAGES,
                Err(error) => {
                    // The group is full, and a message takes memory too. So free some first.
                    fixture.node.close(handle).unwrap();
                    break error;
                }
            }
        };
        tell(stream, error as u64);
        tell(stream, bound * PAGE);
        listen(stream);
        // It can have again the memory that it gives back.
        fixture.bind(fixture.unmap(0, PAGES)).unwrap();
    });
    assert_eq!(member.hear(), Some(libc::ENOMEM as u64));
    let bound = member.hear().expect("it lives");
    assert!((LIMIT / 2..=LIMIT).contains(&bound), "{bound} bytes of {LIMIT}");
    others_are_well();
    member.answer();
    assert_eq!(member.end(), 0);
    assert!(group.value("memory.events", "max") > 0);
    assert_eq!(group.value("memory.events", "oom_kill"), 0);
    nobody_is_left();
    Outcome::Passed
}

/// GFP_KERNEL_ACCOUNT: kernel objects that VM_BIND makes are charged to the caller's cgroup.
pub fn a_cgroup_pays_for_kernel_objects() -> Outcome {
    const COUNT: u64 = 4000;
    let Some(group) = Group::new("tally-objects") else { return NONE };
    let mut member = group.start(|node, stream| {
        let fixture = Fixture::on(node);
        tell(stream, 0);
        listen(stream);
        for page in 0..COUNT {
            let null = VmBind { op: bind_op::MAP_NULL, ..fixture.map(0, 0, 2 * page, 1, RW) };
            fixture.bind(null).unwrap();
        }
        tell(stream, 0);
        listen(stream);
    });
    assert_eq!(member.hear(), Some(0));
    let before = group.value("memory.stat", "kernel");
    member.answer();
    assert_eq!(member.hear(), Some(0));
    // A mapping and its charge, each an allocation of at least 64 bytes. Sums are exact to some pages for
    // each processor, and may be two seconds old.
    let mut with = 0;
    eventually(|| {
        with = group.value("memory.stat", "kernel");
        with >= before + COUNT * 2 * 64
    });
    assert_eq!(member.end(), 0);
    nobody_is_left();
    Outcome::Passed
}

/// When a cgroup runs out of kernel memory, the call fails, or the cgroup's own process is killed.
pub fn kernel_memory_runs_out_in_its_cgroup() -> Outcome {
    const LIMIT: u64 = 12 << 20;
    const PAGES: u64 = 1024;
    let Some(group) = Group::new("tally-kernel") else { return NONE };
    group.set("memory.max", LIMIT);
    // The memory is allocated outside of the group, so that inside only the kernel's memory for binding it is
    // new. That is largest if no page follows its predecessor, so these are a file's pages from last to first.
    let (protection, bytes) = (libc::PROT_READ | libc::PROT_WRITE, (PAGES * PAGE) as usize);
    // SAFETY: a new file, and new mappings of it, all of which are written.
    let memory = unsafe {
        let file = libc::memfd_create(c"backwards".as_ptr(), libc::MFD_CLOEXEC);
        assert_eq!(libc::ftruncate(file, bytes as i64), 0);
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        let whole = libc::mmap(std::ptr::null_mut(), bytes, protection, flags, file, 0);
        assert_ne!(whole, libc::MAP_FAILED);
        for page in 0..PAGES {
            let (at, offset) = (whole.byte_add((page * PAGE) as usize), (PAGES - 1 - page) * PAGE);
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            assert_eq!(libc::mmap(at, PAGE as usize, protection, flags, file, offset as i64), at);
            at.cast::<u8>().write(1);
        }
        libc::close(file);
        whole.addr() as u64
    };
    let mut member = group.start(|node, stream| {
        let fixture = Fixture::on(node);
        let made = (0..60).map(|slot| {
            let map = fixture.map(0, 0, slot * PAGES, PAGES, RW);
            fixture.bind(VmBind { op: bind_op::MAP_USERPTR, offset: memory, ..map })
        });
        let error = made.filter_map(Result::err).next();
        // The window has room for 64; more bindings need more windows.
        let error = error.or_else(|| {
            (0x20_0000_0000..).step_by(1 << 30).take(15).find_map(|start| {
                let vm = match Fixture::create_vm(&fixture.node, start) {
                    Ok(vm) => vm,
                    Err(error) => return Some(error),
                };
                (0..60).find_map(|slot| {
                    let map = VmBind {
                        vm_id: vm,
                        op: bind_op::MAP_USERPTR,
                        offset: memory,
                        address: start + slot * PAGES * PAGE,
                        ..fixture.map(0, 0, 0, PAGES, RW)
                    };
                    fixture.bind(map).err()
                })
            })
        });
        tell(stream, error.map_or(0, |error| error as u64));
    });
    let told = member.hear();
    others_are_well();
    let status = member.end();
    let killed = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL;
    assert!(killed || told == Some(libc::ENOMEM as u64), "status {status:#x}, told {told:?}");
    assert_eq!(group.value("memory.events", "oom_kill"), u64::from(killed));
    assert!(group.value("memory.events", "max") > 0);
    // SAFETY: mapped above; the child that used it has ended.
    unsafe { libc::munmap(std::ptr::without_provenance_mut(memory as usize), bytes) };
    nobody_is_left();
    others_are_well();
    Outcome::Passed
}
