// SPDX-License-Identifier: GPL-2.0
//! Resets from outside of the driver, and the loss of a VM whose commands take too long.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use tally_uapi::cell::CellKind;
use tally_uapi::ioctl::{QueueDestroy, QueueKick, VmDestroy};

use crate::Outcome;
use crate::device::{FOREVER, Fixture, Node, PAGE, counter, eventually, quarantined, wait_for};
use crate::half::{Gone, device_file, is_pci, signal_daemon};

/// A function-level reset through sysfs: waits that name a VM end, the VMs are lost, new ones work.
pub fn a_reset_from_outside_is_noticed() -> Outcome {
    if !is_pci() {
        return Outcome::Skipped("only PCI resets devices");
    }
    let fixture = Fixture::new();
    let mut queue = fixture.queue(0);
    queue.push(wait_for(queue.cell(1), 1, CellKind::Event));
    let resets = counter("resets");
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| fixture.wait(&[queue.entry(0, 1)], 0, FOREVER));
        eventually(|| counter("asleep") == 1);
        fs::write(device_file("reset"), "1").expect("a reset");
        assert_eq!(sleeper.join().unwrap(), Err(libc::EIO));
    });
    assert_eq!(counter("resets"), resets + 1);
    let node = &fixture.node;
    assert_eq!(node.call(&mut QueueKick { queue_id: queue.id, pad: 0 }), Err(libc::EIO));
    assert_eq!(fixture.bind(fixture.map(queue.handle, 0, 100, 1, 3)), Err(libc::EIO));
    // Calls that end objects succeed, since the objects have ended.
    fixture.bind(fixture.unmap(0, 3)).unwrap();
    node.call(&mut QueueDestroy { queue_id: queue.id, pad: 0 }).unwrap();
    node.call(&mut VmDestroy { vm_id: fixture.vm, pad: 0 }).unwrap();
    crate::queues::a_signal_arrives();
    Outcome::Passed
}

/// Resets while another thread makes and ends objects: no call hangs, and no object is left. On the host half
/// the device's process is killed and restarted.
pub fn resets_among_other_calls() {
    crate::device::nobody_is_left();
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 1..3 {
            let end = &end;
            scope.spawn(move || {
                let seeds = (0..).map(|round| round << 8 | thread);
                for seed in seeds.take_while(|_| !end.load(SeqCst)) {
                    crate::fuzz::some_calls(seed);
                }
            });
        }
        for _ in 0..10 {
            if is_pci() {
                fs::write(device_file("reset"), "1").expect("a reset");
            } else {
                drop(Node::await_one());
                signal_daemon(libc::SIGKILL);
            }
        }
        end.store(true, SeqCst);
    });
    drop(Node::await_one());
    crate::device::nobody_is_left();
    crate::queues::a_signal_arrives();
}

/// "One client's slowness is its own": a VM whose commands take seconds is lost, with the commands that wait
/// behind them, and all commands of another VM are answered meanwhile. For a device with `--reset-ms 5000`
/// and a module with `admin_timeout_ms=2000`, so that QUEUE_DESTROY takes longer than it may.
pub fn slow() {
    let (slow, other) = (Fixture::new(), Fixture::new());
    let mut queue = slow.queue(0);
    let behind = slow.queue(16);
    crate::queues::start_endless(&slow, &mut queue, 8);
    let (resets, lost) = (counter("resets"), counter("vms_lost"));
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let destroying = scope.spawn(|| {
            let answer = slow.node.call(&mut QueueDestroy { queue_id: queue.id, pad: 0 });
            ended.store(true, SeqCst);
            answer
        });
        let kept_waiting =
            scope.spawn(|| slow.node.call(&mut QueueDestroy { queue_id: behind.id, pad: 0 }));
        // Many more commands than a ring holds.
        for round in 0..1000 {
            other.memory(round % 8 * 16, 1);
            other.bind(other.unmap(round % 8 * 16, 1)).unwrap();
        }
        let path = format!("/proc/self/fdinfo/{}", slow.node.fd());
        fs::read_to_string(path).expect("fdinfo");
        println!("the slow one had {}ended by then", if ended.load(SeqCst) { "" } else { "not " });
        // For its owner the queue is gone, with its VM.
        assert_eq!(destroying.join().unwrap(), Ok(()));
        assert_eq!(kept_waiting.join().unwrap(), Ok(()));
    });
    assert_eq!(counter("vms_lost"), lost + 1, "the slow VM");
    assert_eq!(counter("resets"), resets, "and not the device");
    let kick = QueueKick { queue_id: behind.id, pad: 0 };
    assert!(slow.node.call(&mut kick.clone()).is_err());
    let mut alive = other.queue(200);
    alive.push(alive.signal(0, 1));
    assert_eq!(other.wait(&[alive.entry(0, 1)], 0, FOREVER), Ok(0));
    // The answer finally arrives, and frees all resources of the VM.
    slow.node.call(&mut VmDestroy { vm_id: slow.vm, pad: 0 }).unwrap();
    // A mapping keeps its file open.
    drop(alive);
    drop(other);
    crate::device::nobody_is_left();
}

/// "A device that refuses to unmap": its pages are kept, and so is the DRM device that their buffer belongs to. For a
/// device with `--refuse-unmap`. (The kernel warns, or stops, if the buffer goes after the DRM device.)
pub fn refused() {
    let fixture = Fixture::new();
    let before = quarantined();
    let (handle, memory) = fixture.memory(16, 4);
    fixture.bind(fixture.unmap(16, 4)).expect("UNMAP");
    assert_eq!(quarantined(), before + 4 * PAGE);
    drop(memory);
    fixture.node.close(handle).expect("to close it");
    drop(fixture);
    drop(Gone::now());
    crate::queues::a_signal_arrives();
    println!("ok 1 resets::refused");
}
