// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends: resets with work in flight, engine processes that die or are stopped,
//! and the device that ends with its VMM.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tally_uapi::fault::FaultKind;
use tally_uapi::firmware::{Command, MAX_VMS, answer_status, op};
use tally_uapi::ioctl::queue_state;
use tally_uapi::regs::{self, status};

use crate::support::{Gpu, eventually};
use crate::vm::*;

/// Starts a kernel that never ends, and returns once it runs.
fn run_endless<'a>(vm: &Vm<'a>) -> (Queue<'a>, Buffer) {
    let (mut queue, cell) = (vm.queue(), vm.buffer(1, RW));
    let (entry, args) = (vm.code(endless()), vm.kernarg(&[cell.va]));
    queue.push(dispatch(entry, args, 4, Some((cell.va + 8, 1))));
    let word = vm.gpu.memory.word(cell.bus);
    eventually("the kernel", || word.load(Ordering::Acquire) == 1);
    (queue, cell)
}

/// "After RESET, or a function-level reset, … all VMs are gone, and once
/// RESETTING is clear the device touches no memory of the guest."
#[test]
fn a_reset_ends_all_vms() {
    let gpu = Gpu::new();
    for round in 0..6 {
        let vms = [1, 2, 255].map(|id| Vm::new(&gpu, id));
        let running: Vec<_> = vms.iter().map(run_endless).collect();
        assert_eq!(gpu.engines().len(), 3);
        match round % 3 {
            0 => gpu.reset(),
            1 => gpu.write_config16(u64::from(gpu.config(0x34) as u8) + 8, 1 << 15),
            _ => gpu.client.lock().unwrap().reset().unwrap(),
        }
        assert_eq!(gpu.read32(regs::STATUS), 0);
        assert!(gpu.engines().is_empty(), "engine processes are gone when RESETTING is clear");
        for (_, cell) in &running {
            assert_eq!(gpu.memory.word(cell.bus + 8).load(Ordering::Relaxed), 0);
        }
        assert!(gpu.enable());
    }
}

/// "Maximum number of VMs on the device. Ids are 1 to this.": that many VMs work side by side, and one reset
/// ends them all.
#[test]
fn all_vms_at_once() {
    let gpu = Gpu::new();
    let shared = gpu.pages(1);
    let mut queues: Vec<_> = (1..=MAX_VMS)
        .map(|id| {
            let vm = Vm::new(&gpu, id);
            let cell = vm.share(shared, RW);
            (vm.queue(), cell.va)
        })
        .collect();
    // Each waits for the previous one, and they are submitted in the opposite order.
    for (i, (queue, va)) in queues.iter_mut().enumerate().rev() {
        queue.push(wait_for(*va, i as u64 + 1));
        queue.push(nop(Some((*va, i as u64 + 2))));
    }
    let word = gpu.memory.word(shared);
    word.store(1, Ordering::SeqCst);
    gpu.write32(regs::WAKE, 0);
    let last = u64::from(MAX_VMS) + 1;
    eventually("the last of them", || word.load(Ordering::Acquire) == last);
    gpu.reset();
    assert!(gpu.engines().is_empty());
}

/// A stopped process that goes on has its system calls with time limits interrupted (signal(7)). Engine processes
/// start nevertheless.
#[test]
fn pauses_do_not_end_the_start_of_a_vm() {
    let gpu = Gpu::new();
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !end.load(Ordering::SeqCst) {
                gpu.signal(libc::SIGSTOP);
                eventually("a stop", || gpu.is_stopped());
                gpu.signal(libc::SIGCONT);
                thread::sleep(Duration::from_millis(1));
            }
        });
        for _ in 0..60 {
            let create = [WINDOW, 4096, 0, 0, 0, 0];
            let [create, destroy] = [(op::VM_CREATE, create), (op::VM_DESTROY, [0; 6])]
                .map(|(opcode, args)| Command { opcode, vm: 1, args, ..Command::default() });
            let answers = [create, destroy].map(|command| gpu.admin(&command).status);
            end.fetch_or(answers != [answer_status::OK; 2], Ordering::SeqCst);
        }
        let failed = end.swap(true, Ordering::SeqCst);
        assert!(!failed, "a VM was not created or not destroyed");
    });
}

/// A reset does not wait for commands that are under way.
#[test]
fn a_reset_cuts_commands_short() {
    let gpu = Gpu::new();
    let vm = Vm::new(&gpu, 1);
    let (queue, _cell) = run_endless(&vm);
    let destroy =
        Command { opcode: op::QUEUE_DESTROY, vm: 1, queue: queue.id, ..Default::default() };
    gpu.submit(&destroy);
    gpu.reset();
    assert!(gpu.engines().is_empty());
    assert!(gpu.enable());
    assert_eq!(Vm::new(&gpu, 1).destroy(), answer_status::OK);
}

/// "A command that is given before its predecessor is answered sets FAILED": so commands never pile up in the
/// device, whatever the driver does.
#[test]
fn a_vm_has_one_command_at_a_time() {
    let gpu = Gpu::new();
    Vm::new(&gpu, 1);
    let stopped = gpu.engines();
    Vm::new(&gpu, 2);
    send(stopped[0], libc::SIGSTOP);
    let unmap = |vm| Command {
        opcode: op::VM_UNMAP,
        vm,
        args: [WINDOW, 4096, 0, 0, 0, 0],
        ..Default::default()
    };
    // A command of another VM does not count as this VM's second.
    let first = gpu.submit(&unmap(1));
    assert_eq!(gpu.admin(&unmap(2)).status, answer_status::OK);
    if gpu.answer(first).is_none() {
        gpu.submit_early(&unmap(1));
        eventually("FAILED", || gpu.read32(regs::STATUS) & status::FAILED != 0);
    }
    gpu.reset();
    assert!(gpu.enable());
    assert_eq!(Vm::new(&gpu, 1).destroy(), answer_status::OK);
}

/// "9 engine lost: the process that ran the VM's kernels … died", and other VMs continue.
#[test]
fn a_killed_engine_loses_its_vm() {
    let gpu = Gpu::new();
    let vm = Vm::new(&gpu, 1);
    let killed = gpu.engines();
    let other = Vm::new(&gpu, 2);
    let (queue, _cell) = run_endless(&vm);
    let idle = vm.queue();
    assert_eq!(killed.len(), 1);
    send(killed[0], libc::SIGKILL);
    vm.await_loss();
    let lost = (queue_state::STOPPED, Some(FaultKind::EngineLost));
    assert_eq!((queue.state(), idle.state()), (lost, lost));
    assert_eq!(vm.map_at(vm.reserve(1), &[(0x10_0000, 1)], RW), answer_status::LOST);
    assert_eq!(vm.unmap(WINDOW, 16), answer_status::OK);
    assert_eq!(idle.destroy(), answer_status::OK);
    let (mut queue, cell) = (other.queue(), other.buffer(1, RW));
    queue.push(nop(Some((cell.va, 1))));
    eventually("the other VM", || gpu.memory.word(cell.bus).load(Ordering::Acquire) == 1);
    assert_eq!(vm.destroy(), answer_status::OK);
    assert_eq!(Vm::new(&gpu, 1).destroy(), answer_status::OK);
}

/// "Every command is answered, … at the latest after the reset time and five seconds: an engine
/// process that does not do its part is ended, and its VM lost." and "Commands …
/// of different VMs are not ordered".
#[test]
fn a_stopped_engine_is_ended() {
    let gpu = Gpu::new();
    let vm = Vm::new(&gpu, 1);
    let stopped = gpu.engines();
    let other = Vm::new(&gpu, 2);
    let buffer = vm.buffer(4, RW);
    let queue = vm.queue();
    send(stopped[0], libc::SIGSTOP);
    let unmap = Command {
        opcode: op::VM_UNMAP,
        vm: 1,
        args: [buffer.va, 4096, 0, 0, 0, 0],
        ..Default::default()
    };
    let begun = Instant::now();
    let sent = gpu.submit(&unmap);
    // Another VM's commands do not wait for it.
    other.buffer(1, RW);
    let unanswered = gpu.answer(sent).is_none();
    // A busy machine may have taken longer than the process is given.
    assert!(unanswered || begun.elapsed() > Duration::from_millis(500));
    eventually("the answer", || gpu.answer(sent).is_some());
    assert!(begun.elapsed() > Duration::from_millis(100), "it was given its time");
    assert_eq!(gpu.answer(sent).unwrap().status, answer_status::OK, "and nothing is mapped");
    assert_eq!(gpu.engines().len(), 1);
    vm.await_loss();
    assert_eq!(queue.state(), (queue_state::STOPPED, Some(FaultKind::EngineLost)));
    assert_eq!(vm.destroy(), answer_status::OK);
}

/// A VM whose engine process is stopped can be destroyed.
#[test]
fn a_stopped_engine_can_be_destroyed() {
    let gpu = Gpu::new();
    let vm = Vm::new(&gpu, 1);
    send(gpu.engines()[0], libc::SIGSTOP);
    assert_eq!(vm.destroy(), answer_status::OK);
    assert!(gpu.engines().is_empty() && !vm.is_lost());
}

/// Serves one VMM "and ends with it": nothing is left of it or its engines.
#[test]
fn the_device_ends_with_its_vmm() {
    let mut gpu = Gpu::new();
    let vm = Vm::new(&gpu, 1);
    run_endless(&vm);
    let engines = gpu.engines();
    gpu.client.lock().unwrap().shutdown().unwrap();
    let process = &mut gpu.process;
    eventually("the end", || process.try_wait().unwrap().is_some());
    assert!(process.wait().unwrap().success());
    assert!(engines.iter().all(|&pid| !alive(pid)));
}

/// Engine processes do not outlive a device that was killed.
#[test]
fn engines_end_with_the_device() {
    let mut gpu = Gpu::new();
    let vm = Vm::new(&gpu, 1);
    run_endless(&vm);
    let engines = gpu.engines();
    assert_eq!(engines.len(), 1);
    gpu.process.kill().unwrap();
    gpu.process.wait().unwrap();
    eventually("the end of the engines", || engines.iter().all(|&pid| !alive(pid)));
}

fn send(pid: u32, signal: i32) {
    // SAFETY: takes numbers.
    assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
}

/// Whether a process runs: it is there, and not a zombie.
fn alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}
