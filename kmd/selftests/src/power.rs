// SPDX-License-Identifier: GPL-2.0
//! Tests of events of the device's power and bus: the machine sleeps, PCI recovers from an error. They need
//! a kernel that can do so on request.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use tally_uapi::cell::CellKind;
use tally_uapi::ioctl::{QueueKick, VmCreate, VmDestroy};

use crate::Outcome;
use crate::device::{Fixture, Node, PAGE, counter, debug_file, eventually, in_ms, wait_for};
use crate::half::{device_file, is_pci};

/// Runs `event` while a client has a thread in SEM_WAIT. The event ends the client's VM; new VMs work afterwards.
fn lost_by(event: impl FnOnce()) {
    let fixture = Fixture::new();
    let mut queue = fixture.queue(0);
    let (_, memory) = fixture.memory(16, 1);
    memory.word(0).store(7, std::sync::atomic::Ordering::Release);
    queue.push(wait_for(queue.cell(1), 1, CellKind::Event));
    let resets = counter("resets");
    // Without a deadline, the test of a driver that notices nothing would not fail but never end.
    let until = in_ms(180_000);
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            loop {
                // The wait of a thread that was frozen with the machine ends as if by a signal.
                match fixture.wait(&[queue.entry(0, 1)], 0, until) {
                    Err(libc::EINTR) => {}
                    other => return other,
                }
            }
        });
        eventually(|| counter("asleep") == 1);
        event();
        assert_eq!(sleeper.join().unwrap(), Err(libc::EIO));
    });
    eventually(can_make_a_vm);
    assert_eq!(counter("resets"), resets + 1);
    let kick = fixture.node.call(&mut QueueKick { queue_id: queue.id, pad: 0 });
    assert_eq!(kick, Err(libc::EIO));
    assert_eq!(memory.word(0).load(std::sync::atomic::Ordering::Acquire), 7);
    fixture.node.call(&mut VmDestroy { vm_id: fixture.vm, pad: 0 }).unwrap();
    crate::queues::a_signal_arrives();
    // This also tests the interrupt, which a device may lose with its power.
    crate::waits::the_device_wakes_a_sleeper();
}

/// Runs `event`, in which the device's process is stopped for less than the limit, while clients work. They notice
/// nothing, neither a thread in SEM_WAIT nor threads that wait for answers of the device.
pub fn kept_through(event: impl FnOnce()) {
    let fixture = Fixture::new();
    let mut queue = fixture.queue(0);
    let lost = counter("vms_lost");
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        let entry = queue.entry(0, 1);
        let fixture = &fixture;
        let sleeper = scope.spawn(move || fixture.wait(&[entry], 0, in_ms(180_000)));
        for place in 0..4 {
            let end = &end;
            scope.spawn(move || {
                let node = Node::open();
                while !end.load(SeqCst) {
                    let start = (1 + place) << 36;
                    let mut create = VmCreate { start, size: PAGE, ..Default::default() };
                    node.call(&mut create).expect("a VM");
                    node.call(&mut VmDestroy { vm_id: create.vm_id, pad: 0 }).expect("its end");
                }
            });
        }
        eventually(|| counter("asleep") == 1);
        event();
        end.store(true, SeqCst);
        queue.push(queue.signal(0, 1));
        assert_eq!(sleeper.join().unwrap(), Ok(0));
    });
    assert_eq!(counter("vms_lost"), lost);
    crate::queues::a_signal_arrives();
}

fn can_make_a_vm() -> bool {
    Node::try_open().is_some_and(|node| {
        let mut create = VmCreate { start: 0x10_0000_0000, size: PAGE, ..Default::default() };
        node.call(&mut create).is_ok()
    })
}

/// "a loss of power while the machine sleeps": all steps that a driver sees, without the sleep itself.
pub fn the_machine_sleeps() -> Outcome {
    if !can_pretend_to_sleep() {
        return Outcome::Skipped("the kernel cannot pretend to sleep");
    }
    // Up to the step that suspends devices, and up to the one where their interrupts are off as well.
    for depth in ["devices", "platform"] {
        // Once longer than a device has for an answer, where the device is frozen with its clients.
        let long = !is_pci() && depth == "devices";
        let seconds = if long { longer_than_answers_take() } else { 1 };
        let sleep = || pretend_to_sleep(depth, seconds);
        if is_pci() { lost_by(sleep) } else { kept_through(sleep) }
    }
    Outcome::Passed
}

/// The kernel's choice of how far it goes to sleep.
const DEPTH: &str = "/sys/power/pm_test";

/// Whether this kernel has [`pretend_to_sleep`].
pub fn can_pretend_to_sleep() -> bool {
    Path::new(DEPTH).exists()
}

/// Seconds that are more than the device has for an answer.
pub fn longer_than_answers_take() -> u32 {
    let shown = debug_file("parameters");
    let ms =
        shown.lines().find_map(|line| line.strip_prefix("admin_timeout_ms\t")?.parse::<u32>().ok());
    ms.expect("the limit") / 1000 * 3 / 2
}

/// Lets the machine go to sleep as far as the step `depth`, stay there, and wake up.
pub fn pretend_to_sleep(depth: &str, seconds: u32) {
    fs::write(DEPTH, depth).expect("pm_test");
    let _ = fs::write("/sys/module/suspend/parameters/pm_test_delay", seconds.to_string());
    fs::write("/sys/power/state", "freeze").expect("to sleep and wake");
    fs::write(DEPTH, "none").expect("pm_test");
}

/// `struct aer_error_inj` of the kernel's aer_inject: an uncorrectable error of a function.
fn inject(function: &str, uncorrectable: u32) {
    let number = |text: &str| u32::from_str_radix(text, 16).expect("a PCI address");
    let (domain, rest) = function.split_once(':').expect("a domain");
    let (bus, rest) = rest.split_once(':').expect("a bus");
    let (device, function) = rest.split_once('.').expect("a function");
    let mut error = vec![number(bus) as u8, number(device) as u8, number(function) as u8, 0];
    // Uncorrectable and correctable errors, four words of a header, the domain.
    for word in [uncorrectable, 0, 0, 0, 0, 0, number(domain)] {
        error.extend(word.to_ne_bytes());
    }
    fs::write("/dev/aer_inject", error).expect("an error");
}

/// An error of the port above the device: its link is reset, and the device with it.
pub fn pci_recovers_from_an_error() -> Outcome {
    if !is_pci() {
        return Outcome::Skipped("the device is no PCI function");
    }
    let device = fs::canonicalize(device_file(".")).expect("the device");
    let port = device.parent().and_then(Path::file_name).expect("a parent").to_string_lossy();
    if !Path::new("/dev/aer_inject").exists() || port.starts_with("pci") {
        return Outcome::Skipped("the kernel cannot inject errors of PCI Express");
    }
    // "Completion Timeout", by default not fatal, and "Data Link Protocol Error", which is.
    for error in [1 << 14, 1 << 4] {
        lost_by(|| inject(&port, error));
    }
    Outcome::Passed
}
