// SPDX-License-Identifier: MIT OR Apache-2.0
//! Escapes: kernels that try to reach resources that are not their VM's. "Anything
//! else ends the process, and its VM is lost with fault 9."

use std::sync::atomic::Ordering;

use tally_engine::mailbox::{Mailbox, ToHub};
use tally_uapi::fault::FaultKind;
use tally_uapi::firmware::answer_status;
use tally_uapi::ioctl::queue_state;

use crate::support::{Gpu, eventually};
use crate::vm::*;

kernels! {
    /// args[0] = number, args[1..7] = arguments, args[7] = the result's address.
    call:
        "push rbx",
        "mov rbx, [rdi + 8]",
        "mov rax, [rbx]",
        "mov rdi, [rbx + 8]",
        "mov rsi, [rbx + 16]",
        "mov rdx, [rbx + 24]",
        "mov r10, [rbx + 32]",
        "mov r8, [rbx + 40]",
        "mov r9, [rbx + 48]",
        "syscall",
        "mov rdx, [rbx + 56]",
        "mov [rdx], rax",
        "mov qword ptr [rdx + 8], 1",
        "pop rbx",
        "ret";
    /// write(2), by the nearest system call instruction of the engine's own code.
    borrow_instruction:
        "mov r8, [rsp]",
        "2: inc r8",
        "cmp word ptr [r8], 0x050f",
        "jne 2b",
        "mov eax, 1",
        "mov edi, 2",
        "lea rsi, [rip]",
        "mov edx, 1",
        "jmp r8";
    /// getpid of the 32-bit ABI.
    call_32: "mov eax, 20", "int 0x80", "ret";
    /// gettimeofday by the vsyscall page.
    call_vsyscall: "mov rax, 0xffffffffff600000", "xor edi, edi", "call rax", "ret";
    /// No stack.
    pivot: "xor esp, esp", "push rax", "ret";
    /// A stack in the VM's own memory, and then write(2).
    pivot_and_call:
        "mov rax, [rdi + 8]",
        "mov rsp, [rax]",
        "add rsp, 2048",
        "push rax",
        "mov eax, 1",
        "mov edi, 2",
        "mov rsi, rsp",
        "mov edx, 1",
        "syscall",
        "pop rax",
        "ret";
    /// Interrupts the main thread with the abort signal.
    interrupt_main:
        "mov eax, 39",
        "syscall",
        "mov edi, eax",
        "mov esi, eax",
        "mov edx, 16",
        "mov eax, 234",
        "syscall",
        "ret";
    /// Interrupts other threads of its process with the abort signal.
    interrupt_others:
        "mov eax, 39",
        "syscall",
        "mov r12d, eax",
        "mov r13d, 1",
        "2: mov edi, r12d",
        "lea esi, [r12d + r13d]",
        "mov edx, 16",
        "mov eax, 234",
        "syscall",
        "inc r13d",
        "cmp r13d, 64",
        "jne 2b",
        "ret";
    /// Leaves a direction flag, floating-point traps and a broken stack frame.
    leave_a_mess:
        "std",
        "push 0",
        "ldmxcsr [rsp]",
        "pop rax",
        "xor ebx, ebx",
        "xor ebp, ebp",
        "xor r12, r12",
        "xor r13, r13",
        "xor r14, r14",
        "xor r15, r15",
        "ret";
    /// No thread-local storage, where the CPU lets programs do that.
    lose_tls: "xor eax, eax", "wrfsbase rax", "ret";
    /// Fills args[1] words from args[0] on with args[2], endlessly if args[3] is set.
    scribble:
        "mov rsi, [rdi + 8]",
        "mov r8, [rsi + 24]",
        "2: mov rdi, [rsi]",
        "mov rcx, [rsi + 8]",
        "mov rax, [rsi + 16]",
        "rep stosq",
        "test r8, r8",
        "jnz 2b",
        "ret";
}

const SHARED: u64 = libc::MAP_SHARED as u64;
const FIXED: u64 = libc::MAP_FIXED as u64;
const READ_WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;

/// A VM that keeps working beside the attacks.
struct Witness<'a> {
    gpu: &'a Gpu,
    vm: Vm<'a>,
    queue: Queue<'a>,
    cell: Buffer,
    round: u64,
}

impl<'a> Witness<'a> {
    fn new(gpu: &'a Gpu) -> Self {
        let vm = Vm::new(gpu, 200);
        let (queue, cell) = (vm.queue(), vm.buffer(1, RW));
        Self { gpu, vm, queue, cell, round: 0 }
    }

    /// The witness still works, and so does the hub.
    fn ask(&mut self) {
        self.round += 1;
        self.queue.push(nop(Some((self.cell.va, self.round))));
        let word = self.gpu.memory.word(self.cell.bus);
        eventually("the witness", || word.load(Ordering::Acquire) == self.round);
        assert!(!self.vm.is_lost());
    }
}

/// uretprobe and uprobe, by which Linux calls itself from traced code and which it
/// does not filter. From anywhere else they cause an illegal instruction or ENXIO.
const PROBES: [u64; 2] = [335, 336];

/// Makes a system call in a kernel of a fresh VM. Returns its result, or None if
/// the VM was lost with fault 9 first.
fn system_call(gpu: &Gpu, number: u64, arguments: &[u64]) -> Option<u64> {
    let vm = Vm::new(gpu, 1);
    let (mut queue, result) = (vm.queue(), vm.buffer(1, RW));
    let mut args = [0; 8];
    args[0] = number;
    args[1..=arguments.len()].copy_from_slice(arguments);
    args[7] = result.va;
    let (entry, args) = (vm.code(call()), vm.kernarg(&args));
    queue.push(dispatch(entry, args, 1, None));
    let done = gpu.memory.word(result.bus + 8);
    eventually("an end", || vm.is_lost() || done.load(Ordering::Acquire) == 1);
    let value = (!vm.is_lost()).then(|| gpu.memory.word(result.bus).load(Ordering::Relaxed));
    if value.is_none() {
        vm.await_loss();
        let (state, fault) = queue.state();
        let trapped = fault == Some(FaultKind::IllegalInstruction) && PROBES.contains(&number);
        assert!(fault == Some(FaultKind::EngineLost) || trapped, "call {number}: {fault:?}");
        assert_eq!(state, queue_state::STOPPED);
        assert_eq!(done.load(Ordering::Relaxed), 0, "call {number} was made");
    }
    assert_eq!(vm.destroy(), answer_status::OK);
    value
}

/// "Anything else ends the process, and its VM is lost with fault 9." All calls but those that the filter
/// allows end the process, whatever their arguments.
#[test]
fn every_other_system_call_is_the_end() {
    let gpu = Gpu::new();
    let mut witness = Witness::new(&gpu);
    let harmless = [
        libc::SYS_sched_yield,
        libc::SYS_getpid,
        libc::SYS_clock_gettime,
        libc::SYS_futex,
        libc::SYS_restart_syscall,
        // Returns to whatever the stack holds.
        libc::SYS_rt_sigreturn,
    ];
    // The last number of Linux 6.18 is 470.
    for number in (0..=470).filter(|number| !harmless.contains(number)) {
        let number = number as u64;
        let result = system_call(&gpu, number, &[]);
        let refused = PROBES.contains(&number) && result == Some(-i64::from(libc::ENXIO) as u64);
        assert!(result.is_none() || refused, "call {number}: {result:?}");
    }
    // Numbers of the x32 ABI, and one that is invalid.
    for number in [0x4000_0000, 0x4000_0001, 0x7fff_ffff, u64::from(u32::MAX)] {
        assert_eq!(system_call(&gpu, number, &[]), None, "call {number:#x}");
    }
    witness.ask();
}

/// "It asks to map and unmap; the device lets through exactly what the driver
/// commanded."
#[test]
fn mappings_of_its_own_are_the_end() {
    let gpu = Gpu::new();
    let mut witness = Witness::new(&gpu);
    let [map, unmap] = [libc::SYS_mmap, libc::SYS_munmap].map(|number| number as u64);
    let executable = READ_WRITE | libc::PROT_EXEC as u64;
    for fd in [0, 1, 2, 3, tally_engine::FIRST_FILE, 5, u64::from(u32::MAX)] {
        for flags in [SHARED, SHARED | FIXED] {
            // The guest's memory anywhere: its first page, the witness's page.
            for offset in [0, witness.cell.bus] {
                let arguments = [0x5000_0000_0000, 4096, READ_WRITE, flags, fd, offset];
                assert_eq!(system_call(&gpu, map, &arguments), None);
            }
        }
    }
    let anonymous = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    assert_eq!(system_call(&gpu, map, &[0, 4096, executable, anonymous, u64::MAX, 0]), None);
    // The calls of an earlier order.
    let again = [WINDOW, 4096, READ_WRITE, SHARED | FIXED, tally_engine::FIRST_FILE, 0x10_0000];
    assert_eq!(system_call(&gpu, map, &again), None);
    assert_eq!(system_call(&gpu, unmap, &[WINDOW, 4096]), None);
    // A forged fence with any number, from a thread other than the main thread.
    for sequence in 0..8 {
        assert_eq!(system_call(&gpu, unmap, &[sequence, 0]), None);
    }
    let protect = libc::SYS_mprotect as u64;
    assert_eq!(system_call(&gpu, protect, &[WINDOW, 4096, executable]), None);
    let remap = libc::SYS_mremap as u64;
    assert_eq!(system_call(&gpu, remap, &[WINDOW, 4096, 8192, 1]), None);
    witness.ask();
}

/// The allowed calls are allowed only with harmless arguments.
#[test]
fn signals_and_futexes_reach_nobody_else() {
    let gpu = Gpu::new();
    let mut witness = Witness::new(&gpu);
    let hub = u64::from(gpu.process.id());
    let other = u64::from(gpu.engines()[0]);
    let [tgkill, kill, tkill, futex] =
        [libc::SYS_tgkill, libc::SYS_kill, libc::SYS_tkill, libc::SYS_futex].map(|n| n as u64);
    for victim in [hub, other, 1] {
        for signal in [libc::SIGKILL, libc::SIGSTOP, libc::SIGSTKFLT].map(|signal| signal as u64) {
            assert_eq!(system_call(&gpu, tgkill, &[victim, victim, signal]), None);
            assert_eq!(system_call(&gpu, kill, &[victim, signal]), None);
            assert_eq!(system_call(&gpu, tkill, &[victim, signal]), None);
        }
    }
    // FUTEX_FD to FUTEX_LOCK_PI2, except for the plain waits and wakes.
    for operation in (2..=13).filter(|operation| *operation != 9) {
        assert_eq!(system_call(&gpu, futex, &[WINDOW, operation]), None, "{operation}");
    }
    let woken = system_call(&gpu, futex, &[WINDOW, libc::FUTEX_WAKE as u64, 1]);
    assert_eq!(woken, Some(0));
    assert!(system_call(&gpu, libc::SYS_getpid as u64, &[]).is_some_and(|pid| pid > 1));
    witness.ask();
}

/// Runs a kernel in a fresh VM until the VM is lost, and returns the queue's fault.
fn fault_of(gpu: &Gpu, code: &[u8]) -> Option<FaultKind> {
    let vm = Vm::new(gpu, 1);
    let (mut queue, stack) = (vm.queue(), vm.buffer(1, RW));
    let (entry, args) = (vm.code(code), vm.kernarg(&[stack.va]));
    queue.push(dispatch(entry, args, 1, None));
    vm.await_loss();
    let (state, fault) = queue.state();
    assert_eq!(state, queue_state::STOPPED);
    assert_eq!(vm.destroy(), answer_status::OK);
    fault
}

/// Other ways to the same call: the engine's own instructions, other ABIs, other
/// stacks.
#[test]
fn detours_are_the_end() {
    let gpu = Gpu::new();
    let mut witness = Witness::new(&gpu);
    assert_eq!(fault_of(&gpu, borrow_instruction()), Some(FaultKind::EngineLost));
    // Otherwise it could have a mapping approved and then not make it.
    assert_eq!(fault_of(&gpu, interrupt_main()), Some(FaultKind::EngineLost));
    assert_eq!(fault_of(&gpu, pivot_and_call()), Some(FaultKind::EngineLost));
    assert_eq!(fault_of(&gpu, pivot()), Some(FaultKind::PageFault));
    // The host's kernel may have been built without these two.
    let refused = [Some(FaultKind::EngineLost), Some(FaultKind::PageFault)];
    assert!(refused.contains(&fault_of(&gpu, call_32())));
    assert!(refused.contains(&fault_of(&gpu, call_vsyscall())));
    witness.ask();
}

/// "it can claim that its queues faulted, or cause needless wake-ups, and no more":
/// a process that damages itself affects no other.
#[test]
fn a_mess_stays_inside() {
    let gpu = Gpu::new();
    let mut witness = Witness::new(&gpu);
    for code in [interrupt_others(), leave_a_mess(), lose_tls()] {
        let vm = Vm::new(&gpu, 1);
        let (mut queue, cell) = (vm.queue(), vm.buffer(1, RW));
        let (entry, args) = (vm.code(code), vm.kernarg(&[0]));
        for round in 1..=3 {
            queue.push(dispatch(entry, args, 8, Some((cell.va, round))));
        }
        witness.ask();
        // Whatever its state, it answers and can be destroyed.
        assert_eq!(queue.query().status, answer_status::OK);
        assert_eq!(queue.destroy(), answer_status::OK);
        assert_eq!(vm.destroy(), answer_status::OK);
        witness.ask();
    }
}

/// The address of an engine process's mapping, found by its line in /proc, which only root can read.
fn find_mapping(pid: u32, what: &[&str]) -> u64 {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("root may read it");
    let line = maps.lines().find(|line| what.iter().all(|what| line.contains(what)));
    let line = line.unwrap_or_else(|| panic!("no {what:?} in\n{maps}"));
    let start = line.split('-').next().expect("a split has a first part");
    u64::from_str_radix(start, 16).expect("an address")
}

/// "Clients cannot write the table": the waiters page is mapped read-only.
#[test]
#[ignore = "needs root"]
fn the_waiters_page_cannot_be_written() {
    let gpu = Gpu::new();
    let vm = Vm::new(&gpu, 1);
    // Looked up before any other guest memory is mapped.
    let page = find_mapping(gpu.engines()[0], &["r--s", "memfd:guest"]);
    let mut queue = vm.queue();
    let (entry, args) = (vm.code(poke()), vm.kernarg(&[page, u64::MAX]));
    queue.push(dispatch(entry, args, 1, None));
    vm.await_loss();
    assert_eq!(queue.state(), (queue_state::STOPPED, Some(FaultKind::PageFault)));
    let waiters = &gpu.waiters_page().waiters;
    assert!(waiters.iter().all(|word| word.load(Ordering::Relaxed) == 0));
}

/// "What an engine process says is taken only as a statement about its own VM":
/// forged messages of every kind, once and endlessly.
#[test]
#[ignore = "needs root"]
fn forged_messages_harm_nobody_else() {
    let gpu = Gpu::new();
    let mut witness = Witness::new(&gpu);
    for for_ever in [0, 1] {
        for value in [u64::MAX, 0, 0x0101_0101_0101_0101, 1 << 32 | 1] {
            for only_to_hub in [true, false] {
                let known = gpu.engines();
                let vm = Vm::new(&gpu, 1);
                let engine = gpu.engines().into_iter().find(|pid| !known.contains(pid)).unwrap();
                let mailbox = find_mapping(engine, &["rw-s", "memfd:tally-mailbox"]);
                let mut queue = vm.queue();
                let start = if only_to_hub { std::mem::offset_of!(Mailbox, to_hub) } else { 0 };
                let bytes = if only_to_hub { size_of::<ToHub>() } else { size_of::<Mailbox>() };
                let args = [mailbox + start as u64, bytes as u64 / 8, value, for_ever];
                let (entry, args) = (vm.code(scribble()), vm.kernarg(&args));
                queue.push(dispatch(entry, args, 1, None));
                // Commands are still answered, the first of them while it happens.
                let mine = gpu.pages(1);
                for _ in 0..3 {
                    let mapped = vm.map_at(WINDOW + (1 << 30), &[(mine, 1)], RW);
                    let lost = answer_status::LOST;
                    assert!([answer_status::OK, answer_status::NO_SPACE, lost].contains(&mapped));
                    assert_eq!(vm.unmap(WINDOW + (1 << 30), 1), answer_status::OK);
                    witness.ask();
                }
                assert_eq!(queue.query().status, answer_status::OK);
                assert_eq!(queue.destroy(), answer_status::OK);
                assert_eq!(vm.destroy(), answer_status::OK);
                witness.ask();
            }
        }
    }
    let waiters = &gpu.waiters_page().waiters;
    eventually("an honest count", || waiters.iter().all(|word| word.load(Ordering::SeqCst) == 0));
}

/// The process has no descriptors but the files of the guest's memory, cannot be
/// traced, and has a filter on every thread.
#[test]
#[ignore = "needs root"]
fn an_engine_process_has_nothing_else() {
    let gpu = Gpu::new();
    let _vm = Vm::new(&gpu, 1);
    let engine = gpu.engines()[0];
    let status = std::fs::read_to_string(format!("/proc/{engine}/status")).unwrap();
    let has = |line: &str| status.lines().any(|it| it.replace('\t', " ") == line);
    assert!(has("Name: tally-engine") && has("NoNewPrivs: 1"), "{status}");
    let filters = |status: &str| {
        let filters = status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"));
        filters.and_then(|count| count.trim().parse::<u32>().ok()).expect("a count")
    };
    // It inherits the hub's filters, and a container may have put one on everything already.
    let inherited = filters(&gpu.proc_status());
    for thread in std::fs::read_dir(format!("/proc/{engine}/task")).unwrap().flatten() {
        let status = std::fs::read_to_string(thread.path().join("status")).unwrap();
        assert!(status.lines().any(|line| line == "Seccomp:\t2"), "{status}");
        assert_eq!(filters(&status), inherited + 2, "{status}");
    }
    let fds = std::fs::read_dir(format!("/proc/{engine}/fd")).expect("root may read it");
    let fds: Vec<String> = fds
        .flatten()
        .map(|fd| std::fs::read_link(fd.path()).unwrap().display().to_string())
        .collect();
    assert_eq!(fds.len(), 1, "{fds:?}");
    assert!(fds[0].contains("memfd:guest"), "{fds:?}");
}
