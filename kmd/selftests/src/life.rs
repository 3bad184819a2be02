// SPDX-License-Identifier: GPL-2.0
//! The end of the driver: unbinding and unloading.

use std::ffi::CString;
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering::Acquire;
use std::thread;
use std::time::{Duration, Instant};

use tally_uapi::cell::CellKind;
use tally_uapi::fault::FaultKind;
use tally_uapi::ioctl::{BoInfo, VmCreate, sem_wait_flag};

use crate::Outcome;
use crate::device::{
    FOREVER, Fixture, Node, PAGE, RW, counter, debug_file, entry, eventually, nobody_is_left,
    shared_kib, wait, wait_for,
};
use crate::half::{Gone, Program, is_pci};

/// "rmmod and unbind with open files and 1000 sleepers (ENODEV, clean reload)"
pub fn unbind_wakes_a_thousand_sleepers() {
    let fixture = Fixture::new();
    let mut queue = fixture.queue(0);
    let (handle, memory) = fixture.memory(8, 1);
    let gone = thread::scope(|scope| {
        let sleepers: Vec<_> = (0..1000)
            .map(|index| {
                let wanted = entry(handle, index % 512 * 8, 1);
                let fixture = &fixture;
                let builder = thread::Builder::new().stack_size(64 << 10);
                builder.spawn_scoped(scope, move || fixture.wait(&[wanted], 0, FOREVER)).unwrap()
            })
            .collect();
        eventually(|| counter("asleep") == 1000);
        let gone = Gone::now();
        for sleeper in sleepers {
            assert_eq!(sleeper.join().unwrap(), Err(libc::ENODEV));
        }
        gone
    });
    assert!(!gone.is_master(), "an unbound device has no business with memory");
    // The file is useless by now, but harmless; its memory is still mapped.
    assert_eq!(memory.word(0).load(Acquire), 0);
    queue.push(queue.signal(0, 1));
    let node = &fixture.node;
    assert_eq!(node.call(&mut VmCreate::default()), Err(libc::ENODEV));
    assert_eq!(node.call(&mut BoInfo { handle, ..Default::default() }), Err(libc::ENODEV));
    drop(gone);
    crate::queues::a_signal_arrives();
}

/// Unbinding does not wait until a client has got all the memory that it binds.
pub fn unbind_does_not_wait_for_memory() {
    const PAGES: u64 = 1 << 18;
    const KIB: u64 = (PAGES * PAGE) >> 10;
    nobody_is_left();
    let fixture = Fixture::new();
    let handle = fixture.node.bo(PAGES, 0).expect("a buffer");
    let before = shared_kib();
    let gone = thread::scope(|scope| {
        let binder = scope.spawn(|| fixture.bind(fixture.map(handle, 0, 0, 1, RW)));
        // Allocating all of it takes many times as long as unbinding.
        eventually(|| shared_kib() > before + KIB / 64);
        let begun = Instant::now();
        let gone = Gone::now();
        println!("# unbinding took {} ms", begun.elapsed().as_millis());
        assert_eq!(binder.join().unwrap(), Err(libc::ENODEV));
        gone
    });
    let had = shared_kib() - before;
    // The count lags behind by some pages for each processor.
    assert!(had < KIB / 2, "it had {had} KiB of {KIB}");
    drop(fixture);
    drop(gone);
}

/// Each parameter is in debugfs, with its value, by the name that the module file gives it.
pub fn parameters_are_visible() -> Outcome {
    let Some(path) = std::env::var_os("TALLY_KO") else {
        return Outcome::Skipped("TALLY_KO does not name the module");
    };
    let module = fs::read(path).expect("the module's file");
    let strings = module.split(|&byte| byte == 0).filter_map(|it| it.strip_prefix(b"parm="));
    let mut names: Vec<_> = strings
        .map(|it| String::from_utf8_lossy(it.split(|&byte| byte == b':').next().unwrap()))
        .collect();
    names.sort();
    let shown = debug_file("parameters");
    let mut shown: Vec<_> = shown.lines().filter_map(|line| line.split_once('\t')).collect();
    shown.sort();
    assert!(!names.is_empty() && shown.iter().map(|line| line.0).eq(names), "{shown:?}");
    assert!(shown.iter().all(|line| line.1.parse::<u64>().is_ok()), "{shown:?}");
    Outcome::Passed
}

/// "the hub killed": sleepers are woken, and the driver can be unloaded.
pub fn outlive() {
    let fixture = Fixture::new();
    let (handle, _memory) = fixture.memory(0, 1);
    let wanted = [entry(handle, 0, 1)];
    thread::scope(|scope| {
        let with_vm = scope.spawn(|| fixture.wait(&wanted, 0, FOREVER));
        let without = scope.spawn(|| wait(&fixture.node, 0, &wanted, 0, FOREVER));
        eventually(|| counter("asleep") == 2);
        println!("asleep");
        let answers = (with_vm.join().unwrap(), without.join().unwrap());
        println!("{answers:?}");
        assert!(matches!(answers.0, Err(libc::EIO | libc::ENODEV)));
        assert_eq!(answers.1, Err(libc::ENODEV));
    });
    assert_eq!(fixture.node.bo(1, 0), Err(libc::ENODEV));
}

/// An engine process that dies loses its VM, and nothing else.
pub fn lose() {
    let (fixture, other) = (Fixture::new(), Fixture::new());
    let mut queue = fixture.queue(0);
    queue.push(wait_for(queue.cell(1), 1, CellKind::Event));
    let mut alive = other.queue(0);
    println!("asleep");
    let either = sem_wait_flag::ANY;
    let lost = fixture.wait(&[queue.entry(0, 1), queue.entry(2, 1)], either, FOREVER);
    assert_eq!(lost, Err(libc::EIO));
    let query = queue.query();
    println!("EIO, fault {} at {:#x}", query.fault_kind, query.fault_address);
    assert_eq!(query.fault_kind, FaultKind::EngineLost as u32);
    alive.push(alive.signal(0, 1));
    assert_eq!(other.wait(&[alive.entry(0, 1)], 0, FOREVER), Ok(0));
    crate::queues::a_signal_arrives();
}

/// "insmod, use, rmmod a hundred times returns all memory"
pub fn the_module_comes_back_a_hundred_times() -> Outcome {
    let Some(path) = std::env::var_os("TALLY_KO") else {
        return Outcome::Skipped("TALLY_KO does not name the module");
    };
    let parameters = CString::default();
    let name = CString::new("tally").unwrap();
    // The daemon keeps the module in use while it runs.
    let program = (!is_pci()).then(Program::take_over);
    let round = || {
        // SAFETY: a system call with a valid string.
        let remove = || unsafe {
            libc::syscall(libc::SYS_delete_module, name.as_ptr(), libc::O_NONBLOCK) == 0
        };
        match program {
            // An engine process ends by itself after its daemon, and keeps the module in use until then.
            Some(_) => eventually(remove),
            None => assert!(remove(), "the module is in use"),
        }
        // SAFETY: system calls with valid strings.
        unsafe {
            let file = fs::File::open(&path).expect("the module's file");
            let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
            assert_eq!(libc::syscall(libc::SYS_finit_module, fd, parameters.as_ptr(), 0), 0);
        }
        let _running = program.as_ref().map(Program::start);
        eventually(|| Node::try_open().is_some());
        crate::queues::a_signal_arrives();
    };
    // The first rounds fill caches.
    (0..10).for_each(|_| round());
    if let Some(leaks) = Leaks::watch() {
        (0..100).for_each(|_| round());
        let found = leaks.found();
        assert!(found.is_empty(), "{found}");
        return Outcome::Passed;
    }
    // A leak of the module repeats every time; memory that caches have taken meanwhile is taken once.
    let lost = || {
        let before = available_kib();
        (0..100).for_each(|_| round());
        before.saturating_sub(available_kib())
    };
    let lost = (0..3).map(|_| lost()).find(|&lost| lost < 4 << 10);
    assert!(lost.is_some(), "each time 4 MiB and more are gone after 100 rounds");
    Outcome::Passed
}

/// The kernel's leak detector, kmemleak. A kernel that has it also has KASAN, which holds freed memory back
/// for a while: then free memory shrinks without a leak.
struct Leaks(&'static Path);

impl Leaks {
    /// Clears earlier findings. None: this kernel has no leak detector.
    fn watch() -> Option<Self> {
        let leaks = Self(Path::new("/sys/kernel/debug/kmemleak"));
        fs::write(leaks.0, "clear").ok().map(|()| leaks)
    }

    /// The leaks since then.
    fn found(&self) -> String {
        for _ in 0..2 {
            // Memory that is younger than five seconds, or has changed since the last scan, is not reported.
            thread::sleep(Duration::from_secs(6));
            fs::write(self.0, "scan").expect("a search");
        }
        fs::read_to_string(self.0).expect("what was found")
    }
}

fn available_kib() -> u64 {
    fs::write("/proc/sys/vm/drop_caches", "3").expect("to drop caches");
    let text = fs::read_to_string("/proc/meminfo").expect("meminfo");
    let line = text.lines().find(|line| line.starts_with("MemAvailable:")).expect("MemAvailable");
    line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a number")
}
