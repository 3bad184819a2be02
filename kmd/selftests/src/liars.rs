// SPDX-License-Identifier: GPL-2.0
//! Tests with processes that are a GPU and violate the protocol. Each loses its own GPU, and nothing else is lost.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use tally_uapi::host::{Area, Start};
use tally_uapi::ioctl::VmCreate;
use tally_uapi::regs;

use crate::Outcome;
use crate::device::{Node, eventually};
use crate::fuzz::Dice;
use crate::half::is_pci;
use crate::host::{Device, NO_HOST, WINDOW, identity, node_of};

/// Checks that the honest GPU works.
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

/// False answers, garbage in all shared memory, and interrupts without a cause: the clients of that GPU get an
/// error or a wrong answer, and no other client notices.
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

/// A GPU that answers nothing: its client gets an error after the driver's time limit and can be killed before,
/// and no memory is leaked.
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
