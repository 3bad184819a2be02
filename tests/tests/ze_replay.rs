// SPDX-License-Identifier: MIT OR Apache-2.0
//! `TALLY_RECORD` and `tally-replay`: what a program has the device do is done again in another process, to the
//! same bytes, and a recording that is not whole is told.
//!
//! The recorded programs are the tests named `child_*`, each in a process of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::ptr;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Barrier};

use tally_tests::model::Model;
use tally_tests::program::generate::{Shape, search};
use tally_tests::program::run::run;
use tally_tests::program::{Action, Program, Step};
use tally_tests::ze::{self, Gpu, Usm};
use tally_tests::ze_backend::Driver;
use tally_tests::{call, check};
use tally_ze::*;

const NONE: ze_event_handle_t = ze_event_handle_t::NULL;
/// What is no recording, or no whole one.
const REFUSED: Option<i32> = Some(2);

/// A recording of this test's own, removed at its end.
struct Recording(PathBuf);

impl Drop for Recording {
    fn drop(&mut self) {
        // If the file stays, that is no failure.
        let _ = fs::remove_file(&self.0);
    }
}

impl Recording {
    fn at(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (id, count) = (std::process::id(), COUNT.fetch_add(1, Relaxed));
        Self(std::env::temp_dir().join(format!("tally-replay-{id}-{count}-{name}.tally")))
    }

    /// Records a child.
    fn of(test: &str, more: &[(&str, &str)]) -> Self {
        let recording = Self::at(test);
        let file = recording.0.to_str().expect("plain letters").to_owned();
        ze::in_child(test, &[&[("TALLY_RECORD", &file[..])], more].concat());
        recording
    }

    /// Replays it.
    fn replay(&self, options: &[&str]) -> Output {
        replay(&self.0, options)
    }

    /// Replays it and compares memory; returns what was said.
    fn verify(&self) -> String {
        let output = self.replay(&["--verify"]);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.contains("all as recorded"), "{said}");
        said
    }

    fn list(&self) -> String {
        let output = self.replay(&["--list"]);
        assert!(output.status.success(), "{}", text(&output));
        text(&output)
    }
}

fn replay(file: &Path, options: &[&str]) -> Output {
    Command::new("timeout")
        .args(["--foreground", "--signal=KILL", "600"])
        .arg(ze::beside("tally-replay").expect("it is built with the driver"))
        .args(options)
        .arg(file)
        .output()
        .expect("it starts")
}

fn text(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&all).into_owned()
}

fn immediate(gpu: &Gpu, mode: ze_command_queue_mode_t) -> ze_command_list_handle_t {
    let flags = ze_command_queue_flags_t::ZE_COMMAND_QUEUE_FLAG_IN_ORDER;
    let desc = ze_command_queue_desc_t { flags, mode, ..Default::default() };
    let mut list = ze_command_list_handle_t::NULL;
    check!(zeCommandListCreateImmediate(gpu.context, gpu.device, &raw const desc, &raw mut list));
    list
}

fn argument<T>(kernel: ze_kernel_handle_t, index: u32, value: &T) {
    let value = ptr::from_ref(value).cast();
    check!(zeKernelSetArgumentValue(kernel, index, size_of::<T>(), value));
}

static ONE: ze_group_count_t = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };

/// Sums what pointers in memory point to, in system memory's copies of it, in a variable of the module.
const SUMS: &str = "
    global uint total = 5;
    kernel void sum(global ulong *table, global uint *out, uint factor)
    {
        global uint *a = (global uint *)table[0], *b = (global uint *)table[1];
        size_t i = get_global_id(0);
        out[i] = (a[i] + b[i]) * factor;
        if (i == 0)
            out[64] = total += a[0];
    }";

/// Host, shared and device memory, pointers in memory, a variable, copies from and to the program's own
/// memory, a regular list that runs twice, an event that the host signals, and a list that waits by itself.
#[test]
#[ignore = "runs in a child process"]
fn child_that_does_a_bit_of_everything() {
    use ze_command_queue_mode_t as Mode;
    let gpu = Gpu::new();
    let list = immediate(&gpu, Mode::ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
    let (a, b): (Usm<u32>, Usm<u32>) = (gpu.host(64), gpu.device_memory(64));
    let (table, out): (Usm<u64>, Usm<u32>) = (gpu.host(2), gpu.host(65));
    table.fill_with(|i| [a.address(), b.address()][i]);
    let own: Vec<u32> = (0..64).map(|i| 1000 + i).collect();
    let from = own.as_ptr().cast();
    check!(zeCommandListAppendMemoryCopy(
        list,
        b.ptr().cast(),
        from,
        256,
        NONE,
        0,
        ptr::null_mut()
    ));
    let module = gpu.module(&ze::spirv_from(SUMS), "").expect("it builds");
    let kernel = gpu.kernel(module, "sum");
    check!(zeKernelSetGroupSize(kernel, 64, 1, 1));
    argument(kernel, 0, &table.address());
    argument(kernel, 1, &out.address());
    for factor in [2_u32, 3] {
        a.fill_with(|i| factor * 10 + i as u32);
        argument(kernel, 2, &factor);
        let one = &raw const ONE;
        check!(zeCommandListAppendLaunchKernel(list, kernel, one, NONE, 0, ptr::null_mut()));
        for i in 0..64 {
            assert_eq!(out.get(i as usize), (factor * 10 + i + 1000 + i) * factor);
        }
    }
    assert_eq!(out.get(64), 5 + 20 + 30);
    // A regular list that reads the program's memory at each execution, and waits for the host.
    let mut source = vec![0_u8; 100];
    let mut target = vec![0_u8; 100];
    let (mut pool, mut event) = (ze_event_pool_handle_t::NULL, NONE);
    let desc = ze_event_pool_desc_t {
        flags: ze_event_pool_flags_t::ZE_EVENT_POOL_FLAG_HOST_VISIBLE,
        count: 1,
        ..Default::default()
    };
    check!(zeEventPoolCreate(gpu.context, &raw const desc, 0, ptr::null_mut(), &raw mut pool));
    let desc = ze_event_desc_t::default();
    check!(zeEventCreate(pool, &raw const desc, &raw mut event));
    let (mut regular, mut queue) =
        (ze_command_list_handle_t::NULL, ze_command_queue_handle_t::NULL);
    let desc = ze_command_list_desc_t::default();
    check!(zeCommandListCreate(gpu.context, gpu.device, &raw const desc, &raw mut regular));
    let (to, from) = (target.as_mut_ptr().cast(), source.as_ptr().cast());
    check!(zeCommandListAppendMemoryCopy(regular, to, from, 100, NONE, 1, &raw mut event));
    check!(zeCommandListClose(regular));
    let desc = ze_command_queue_desc_t::default();
    check!(zeCommandQueueCreate(gpu.context, gpu.device, &raw const desc, &raw mut queue));
    for value in [7, 9] {
        let no_fence = ze_fence_handle_t::NULL;
        check!(zeCommandQueueExecuteCommandLists(queue, 1, &raw mut regular, no_fence));
        // Behind the call, and in front of the signal.
        source.fill(value);
        check!(zeEventHostSignal(event));
        check!(zeCommandQueueSynchronize(queue, u64::MAX));
        assert_eq!(target, source);
        check!(zeEventHostReset(event));
    }
}

#[test]
fn a_replay_comes_to_the_same_bytes() {
    let recording = Recording::of("child_that_does_a_bit_of_everything", &[]);
    let said = recording.verify();
    assert!(!said.contains("does not have"), "all is kept: {said}");
    // Also on a device that decides by chance, and without the waits of a comparison.
    for options in [&["--chaos=3"][..], &[]] {
        let output = recording.replay(options);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    }
    let list = recording.list();
    assert!(list.contains("zeKernelCreate") && list.contains("'sum'"), "{list}");
    assert!(list.contains("the program ended by itself"), "{list}");
}

/// Adds to a cell, which shows whether something was done twice; the second kernel also waits for the host.
const ADDS: &str = "
    kernel void adds(global uint *cell, uint to, uint by) { cell[to] += by; }
    kernel void waits(global atomic_uint *word, uint round)
    {
        atomic_fetch_add(&word[0], round);
        atomic_store(&word[1], round);
        while (atomic_load(&word[2]) != round)
            ;
        atomic_store(&word[3], atomic_load(&word[4]));
    }";

/// An event with a word that the host writes, for which a kernel waits: no call tells that the kernel goes on.
#[test]
#[ignore = "runs in a child process"]
fn child_that_looks_at_memory() {
    let gpu = Gpu::new();
    let list = immediate(&gpu, ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
    let (cell, word): (Usm<u32>, Usm<u64>) = (gpu.host(2), gpu.host(1));
    let storage = ze_event_counter_based_external_sync_allocation_desc_t {
        deviceAddress: word.ptr(),
        hostAddress: word.ptr(),
        completionValue: 3,
        ..Default::default()
    };
    use ze_event_counter_based_flags_t as flag;
    let desc = ze_event_counter_based_desc_t {
        pNext: (&raw const storage).cast(),
        flags: flag::ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE
            | flag::ZE_EVENT_COUNTER_BASED_FLAG_HOST_VISIBLE,
        ..Default::default()
    };
    let mut event = NONE;
    check!(zeEventCounterBasedCreate(gpu.context, gpu.device, &raw const desc, &raw mut event));
    let module = gpu.module(&ze::spirv_from(ADDS), "").expect("it builds");
    let kernel = gpu.kernel(module, "adds");
    check!(zeKernelSetGroupSize(kernel, 1, 1, 1));
    argument(kernel, 0, &cell.address());
    argument(kernel, 1, &0_u32);
    argument(kernel, 2, &5_u32);
    check!(zeCommandListAppendLaunchKernel(list, kernel, &raw const ONE, NONE, 1, &raw mut event));
    cell.set(0, 100);
    word.set(0, 3);
    while cell.get(0) == 100 {
        std::thread::yield_now();
    }
    cell.set(1, 7);
    check!(zeCommandListHostSynchronize(list, u64::MAX));
    check!(zeCommandListAppendLaunchKernel(list, kernel, &raw const ONE, NONE, 0, ptr::null_mut()));
    check!(zeCommandListHostSynchronize(list, u64::MAX));
    assert_eq!((cell.get(0), cell.get(1)), (110, 7));
}

/// A thread that writes into a kernel's memory while another thread's call lets the kernel run. It makes its own call
/// before: calls of a program that is recorded wait for each other, and the kernel would wait for this one.
#[test]
#[ignore = "runs in a child process"]
fn child_with_a_thread_that_writes() {
    let gpu = Gpu::new();
    let list = immediate(&gpu, ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
    let word: Usm<u32> = gpu.host(8);
    let module = gpu.module(&ze::spirv_from(ADDS), "-cl-std=CL2.0").expect("it builds");
    let kernel = gpu.kernel(module, "waits");
    check!(zeKernelSetGroupSize(kernel, 1, 1, 1));
    argument(kernel, 0, &word.address());
    let ready = Arc::new(Barrier::new(2));
    let other = std::thread::spawn({
        let ready = ready.clone();
        let (word, device) = (word.ptr().expose_provenance(), gpu.device.0.expose_provenance());
        move || {
            if std::env::var_os("TALLY_TEST_SILENT").is_none() {
                let device = ze_device_handle_t(ptr::with_exposed_provenance_mut(device));
                check!(zeDeviceGetStatus(device));
            }
            ready.wait();
            let word = ptr::with_exposed_provenance_mut::<u32>(word);
            let at = |i: usize| {
                // SAFETY: the memory has so many words, and outlives the thread.
                unsafe { &*word.wrapping_add(i).cast::<AtomicU32>() }
            };
            for round in 1..=2 {
                while at(1).load(SeqCst) != round {
                    std::thread::yield_now();
                }
                if std::env::var_os("TALLY_TEST_LATE").is_some() {
                    std::thread::sleep(std::time::Duration::from_millis(1200));
                }
                at(4).store(10 * round, SeqCst);
                at(5).fetch_add(3, SeqCst);
                at(2).store(round, SeqCst);
            }
        }
    });
    ready.wait();
    for round in 1..=2_u32 {
        argument(kernel, 1, &round);
        let one = &raw const ONE;
        check!(zeCommandListAppendLaunchKernel(list, kernel, one, NONE, 0, ptr::null_mut()));
        check!(zeCommandListHostSynchronize(list, u64::MAX));
    }
    other.join().expect("it ends");
    assert_eq!([0, 3, 4, 5].map(|i| word.get(i)), [3, 20, 20, 6]);
}

/// What the host writes while the device goes on is its own in the recording, too.
#[test]
fn host_and_device_are_told_apart() {
    let writes = "child_with_a_thread_that_writes";
    // A thread that writes may have made calls, or none at all.
    for (child, variables) in [
        ("child_that_looks_at_memory", &[][..]),
        (writes, &[]),
        (writes, &[("TALLY_TEST_SILENT", "1")]),
        // Later than recordings wait by themselves.
        (writes, &[("TALLY_TEST_LATE", "1")]),
    ] {
        // The thread writes at some time, however busy the machine is.
        let patience = [("TALLY_RECORD_MS", "3600000")];
        let recording = Recording::of(child, &[variables, &patience].concat());
        let said = recording.verify();
        assert!(!said.contains("does not have"), "all is kept: {said}");
        let output = recording.replay(&[]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    }
}

/// A program that computes with the time, so that no run comes to the same bytes. The time itself is not compared.
#[test]
#[ignore = "runs in a child process"]
fn child_that_copies_the_time() {
    let gpu = Gpu::new();
    let list = immediate(&gpu, ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
    let times: Usm<u64> = gpu.host(2);
    let (time, copy) = (times.ptr(), times.ptr().wrapping_add(1).cast());
    check!(zeCommandListAppendWriteGlobalTimestamp(list, time, NONE, 0, ptr::null_mut()));
    if std::env::var_os("TALLY_TEST_COPIES").is_some() {
        check!(zeCommandListAppendMemoryCopy(list, copy, time.cast(), 8, NONE, 0, ptr::null_mut()));
    }
}

#[test]
fn other_bytes_are_told() {
    let recording = Recording::of("child_that_copies_the_time", &[]);
    recording.verify();
    let recording = Recording::of("child_that_copies_the_time", &[("TALLY_TEST_COPIES", "1")]);
    let output = recording.replay(&["--verify"]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("1 DIFFER") && said.contains("bytes at 0x"), "{said}");
}

/// Whether a recording has all that the program does. Of several threads one may write bytes and then a word for
/// which commands wait while another one's commands run: their order is not kept (docs/replay.md).
fn is_kept(program: &Program) -> bool {
    let has_word =
        |step: &Step| matches!(&step.action, Action::CreateEvent(_, kind) if kind.has_word());
    program.threads() == 1 || !program.steps.iter().any(has_word)
}

/// Programs of the generator, with all kinds of lists, events and host functions.
#[test]
#[ignore = "runs in a child process"]
fn child_with_random_programs() {
    let number = |name: &str| std::env::var(name).expect("set").parse::<u32>().expect("a number");
    let (cases, seed) = (number("TALLY_PROGRAMS"), number("TALLY_SEED"));
    let threads = number("TALLY_THREADS") as usize;
    let agrees = |program: &Program, _| {
        if !is_kept(program) {
            return Ok(());
        }
        let model = Model::of(program).map_err(|(step, refusal)| format!("{step}: {refusal}"))?;
        let expected = model.expected().map_err(|refusal| refusal.to_string())?;
        run(program, &expected, &Driver::alone()).map_err(|mismatch| mismatch.to_string())
    };
    // Without a second process, of which a replay would know nothing.
    let shape = Shape { sharing: false, threads, ..Shape::default() };
    if let Err(found) = search(shape, seed.into(), cases, agrees) {
        panic!("{found}");
    }
}

/// Records random programs and replays them, with and without the waits of a comparison. TALLY_PROGRAMS is the number
/// of programs, TALLY_SEED the first seed; the recordings that differ stay.
#[test]
fn random_programs_come_to_the_same_bytes() {
    /// Programs of one recording.
    const PART: u32 = 20;
    let number = |name: &str, default: u32| {
        std::env::var(name).ok().and_then(|it| it.parse().ok()).unwrap_or(default)
    };
    let (all, first) = (number("TALLY_PROGRAMS", 3 * PART), number("TALLY_SEED", 8));
    let mut wrong = Vec::new();
    for part in 0..all.div_ceil(PART) {
        let threads = if part % 2 == 0 { "1" } else { "3" };
        let seed = (first + part).to_string();
        let recording = Recording::at("random");
        let file = recording.0.to_str().expect("plain letters");
        let more = [
            ("TALLY_RECORD", file),
            ("TALLY_PROGRAMS", &PART.to_string()),
            ("TALLY_SEED", &seed),
            ("TALLY_THREADS", threads),
        ];
        ze::in_child("child_with_random_programs", &more);
        let verified = recording.replay(&["--verify"]);
        let said = text(&verified);
        assert!(!said.contains(" 0 bytes"), "something was compared: {said}");
        let plain = recording.replay(&[]);
        if !verified.status.success() || !plain.status.success() {
            wrong.push(format!("seed {seed}, threads {threads}, {file}: {said}{}", text(&plain)));
            std::mem::forget(recording);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A program that writes beyond the end of its memory.
#[test]
#[ignore = "runs in a child process"]
fn child_with_a_mistake() {
    let gpu = Gpu::new();
    let list = immediate(&gpu, ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
    let out: Usm<u32> = gpu.device_memory(16);
    let source = "kernel void beyond(global uint *p) { p[get_global_id(0) + 16] = 1; }";
    let module = gpu.module(&ze::spirv_from(source), "").expect("it builds");
    let kernel = gpu.kernel(module, "beyond");
    argument(kernel, 0, &out.address());
    check!(zeCommandListAppendLaunchKernel(list, kernel, &raw const ONE, NONE, 0, ptr::null_mut()));
    // The write goes to the rest of the page, so nothing stops it.
    check!(zeCommandListHostSynchronize(list, u64::MAX));
}

/// "A replay under checks reports the mistakes that the program makes under checks."
#[test]
fn checks_find_mistakes_in_a_replay() {
    let recording = Recording::of("child_with_a_mistake", &[]);
    assert_eq!(recording.replay(&[]).status.code(), Some(0));
    let output = recording.replay(&["--check=memory", "--error-exitcode=99"]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(99), "{said}");
    assert!(said.contains("out-of-bounds") && said.contains("'beyond'"), "{said}");
}

/// A program that is killed leaves what it did up to there; a child that it forks adds nothing.
#[test]
#[ignore = "runs in a child process"]
fn child_that_is_killed() {
    let gpu = Gpu::new();
    let list = immediate(&gpu, ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
    let memory: Usm<u32> = gpu.host(4);
    let fill = |value: u32| {
        let value = (&raw const value).cast();
        let to = memory.ptr().cast();
        check!(zeCommandListAppendMemoryFill(list, to, value, 4, 16, NONE, 0, ptr::null_mut()));
    };
    fill(1);
    // SAFETY: the child only calls functions that a forked child may call, and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let _ = call!(zeMemFree(gpu.context, memory.ptr().cast()));
            libc::exit(0);
        }
        assert_eq!(libc::waitpid(child, ptr::null_mut(), 0), child);
    }
    fill(2);
    // SAFETY: ends this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

#[test]
fn what_a_killed_program_did_is_replayed() {
    let recording = Recording::at("killed");
    let file = recording.0.to_str().expect("plain letters");
    let ended = ze::child(&[], "child_that_is_killed", &[("TALLY_RECORD", file)]);
    assert!(!ended.status.success());
    let said = recording.verify();
    assert!(said.contains("the program was ended from outside"), "{said}");
    let list = recording.list();
    let fills = list.matches("zeCommandListAppendMemoryFill").count();
    assert_eq!((fills, list.matches("zeMemFree").count()), (2, 0), "{list}");
}

/// No damage goes unnoticed, crashes the player or makes it wait.
#[test]
fn damage_is_told() {
    let recording = Recording::of("child_that_does_a_bit_of_everything", &[]);
    let whole = fs::read(&recording.0).expect("it is there");
    let try_it = |bytes: &[u8]| {
        fs::write(&recording.0, bytes).expect("it is ours");
        recording.replay(&[])
    };
    // As random as it has to be.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    for round in 0..300 {
        let mut bytes = whole.clone();
        for _ in 0..=random(3) {
            bytes[random(whole.len())] ^= 1 << random(8);
        }
        if bytes == whole {
            continue;
        }
        let output = try_it(&bytes);
        let said = text(&output);
        assert_eq!(output.status.code(), REFUSED, "round {round}: {said}");
        let known = ["is damaged", "no recording", "version"];
        assert!(known.iter().any(|it| said.contains(it)), "round {round}: {said}");
    }
    for round in 0..40 {
        let length = 12 + random(whole.len() - 12);
        let output = try_it(&whole[..length]);
        let said = text(&output);
        // Without its head it is none; else what is there is replayed.
        let expected = if said.contains("is empty") { REFUSED } else { Some(0) };
        assert_eq!(output.status.code(), expected, "round {round}: {said}");
    }
    for (bytes, why) in [
        (&b""[..], "no recording"),
        (b"TALLYRE", "no recording"),
        (b"\x7fELF is something else", "no recording"),
        (b"TALLYREC\x63\0\0\0", "version 99"),
        (b"TALLYREC\x01\0\0\0", "version 1;"),
        (b"TALLYREC\x02\0\0\0", "is empty"),
    ] {
        let output = try_it(bytes);
        assert_eq!(output.status.code(), REFUSED);
        assert!(text(&output).contains(why), "{}", text(&output));
    }
    let missing = replay(Path::new("/nowhere/at.tally"), &[]);
    assert_eq!(missing.status.code(), REFUSED);
}

/// `--only`: the work up to a call, and nothing behind it.
#[test]
fn a_replay_ends_with_the_call_that_was_asked_for() {
    let recording = Recording::of("child_that_does_a_bit_of_everything", &[]);
    let list = recording.list();
    let launch = list.lines().find(|it| it.contains("AppendLaunchKernel")).expect("there is one");
    let number = launch.split_whitespace().next().expect("its number").to_owned();
    let said = text(&recording.replay(&["--only", &number]));
    assert!(said.starts_with(&format!("{number} calls replayed")), "{said}");
    let said = text(&recording.replay(&["--only", "1000000"]));
    assert!(said.contains("there is no call 1000000"), "{said}");
}
