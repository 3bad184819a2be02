// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests how much of its exporter's memory an importer can access: the shared part, and nothing else,
//! whatever it does with the descriptors that it received.

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::ptr;

use tally_tests::check;
use tally_tests::peer::{self, HandleBytes, Peer};
use tally_tests::ze::{self, Gpu, Usm};
use tally_ze::*;

/// The contents of shared memory, and of all other memory.
const SHARED: u64 = 0x57a2_ed00_57a2_ed00;
const SECRET: u64 = 0x5ec2_e7a1_5ec2_e7a1;

/// Sizes of allocations in bytes: parts of a page, of the readable bytes behind them, and large ones.
const SIZES: [usize; 7] = [64, 4096, 40_000, 65_536, 70_000, 1 << 20, 3 << 20];

fn memory(gpu: &Gpu, bytes: usize, on_device: bool, word: u64) -> Usm<u64> {
    let words = bytes / 8;
    let memory = if on_device { gpu.device_memory(words) } else { gpu.host(words) };
    memory.fill_with(|_| word);
    memory
}

fn handle_of(gpu: &Gpu, memory: &Usm<u64>) -> HandleBytes {
    let mut handle = ze_ipc_mem_handle_t::default();
    check!(zeMemGetIpcHandle(gpu.context, memory.ptr().cast(), &raw mut handle));
    handle.data
}

/// The importer reads all memory files that are open in any of its threads, from their first byte to
/// the last.
#[test]
fn an_importer_reaches_what_is_shared_and_nothing_else() {
    if ze::on_kernel_lane() {
        // A DMA-BUF is a buffer; there are no files to read.
        return;
    }
    let gpu = Gpu::new();
    let mut importer = Peer::start("child_that_looks_around");
    for (on_device, size) in [false, true].into_iter().flat_map(|it| SIZES.map(|size| (it, size))) {
        let secret = |bytes| memory(&gpu, bytes, on_device, SECRET);
        // Blocks that hold secrets when they are freed are reused for the shared memory.
        drop((0..4).map(|_| secret(size)).collect::<Vec<_>>());
        let before: Vec<_> = SIZES.into_iter().map(secret).collect();
        let shared = memory(&gpu, size, on_device, SHARED);
        let _neighbours: Vec<_> = SIZES.into_iter().map(secret).collect();
        drop(before);
        importer.say_handle(&handle_of(&gpu, &shared));
        importer.expect("only what is shared");
        // Memory that is freed and allocated while the handle is open stays hidden from the importer
        // too.
        drop(shared);
        let _again: Vec<_> = (0..4).map(|_| secret(size)).collect();
        importer.say("look again");
        importer.expect("only what is shared");
    }
    importer.say("end");
    importer.finish();
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_looks_around() {
    let gpu = Gpu::new();
    loop {
        let line = peer::hear();
        if line == "end" {
            return;
        }
        let handle = ze_ipc_mem_handle_t { data: peer::from_hex(&line) };
        let (mut at, flags) = (ptr::null_mut::<c_void>(), ze_ipc_memory_flags_t::empty());
        check!(zeMemOpenIpcHandle(gpu.context, gpu.device, handle, flags, &raw mut at));
        peer::say(look_around());
        assert_eq!(peer::hear(), "look again");
        peer::say(look_around());
        check!(zeMemCloseIpcHandle(gpu.context, at));
    }
}

fn look_around() -> &'static str {
    let (mut shared, mut secret) = (0, 0);
    let mut seen = BTreeSet::new();
    for thread in fs::read_dir("/proc/self/task").expect("Linux shows it").flatten() {
        let Ok(descriptors) = fs::read_dir(thread.path().join("fd")) else { continue };
        for descriptor in descriptors.flatten() {
            let path = descriptor.path();
            let link = fs::read_link(&path).unwrap_or_default();
            let is_memory = link.to_string_lossy().starts_with("/memfd:tally");
            let Some(file) = is_memory.then(|| File::open(&path).ok()).flatten() else { continue };
            if seen.insert(file.metadata().expect("a file").ino()) {
                for word in words(&file) {
                    shared += u32::from(word == SHARED);
                    secret += u32::from(word == SECRET);
                }
            }
        }
    }
    match (shared, secret) {
        (0, _) => "not even what is shared",
        (_, 0) => "only what is shared",
        _ => "secrets",
    }
}

/// The words of a file, without its holes.
fn words(file: &File) -> Vec<u64> {
    let mut words = Vec::new();
    let mut end = 0;
    loop {
        // SAFETY: asks about a descriptor that is open.
        let start = unsafe { libc::lseek(file.as_raw_fd(), end, libc::SEEK_DATA) };
        if start < 0 {
            return words;
        }
        // SAFETY: as above.
        end = unsafe { libc::lseek(file.as_raw_fd(), start, libc::SEEK_HOLE) };
        let mut bytes = vec![0; (end - start) as usize];
        file.read_exact_at(&mut bytes, start as u64).expect("data");
        words.extend(bytes.chunks_exact(8).map(|it| u64::from_ne_bytes(it.try_into().expect("8"))));
    }
}

/// Allocations can be shared in any number: memory files take none of the program's descriptors, whose
/// limit is low.
#[test]
fn more_allocations_than_descriptors_can_be_shared() {
    if ze::on_kernel_lane() {
        return;
    }
    let output =
        ze::in_child_under(&["prlimit", "--nofile=256:256"], "child_with_few_descriptors", &[]);
    assert!(output.contains("all of them"), "{output}");
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_few_descriptors() {
    let (gpu, other) = (Gpu::new(), Gpu::new());
    let all: Vec<_> = (0..1000).map(|_| gpu.host::<u64>(8)).collect();
    for (i, memory) in all.iter().enumerate() {
        memory.set(0, i as u64);
    }
    for (i, memory) in all.iter().enumerate().step_by(50) {
        let handle = ze_ipc_mem_handle_t { data: handle_of(&gpu, memory) };
        let (mut at, flags) = (ptr::null_mut::<c_void>(), ze_ipc_memory_flags_t::empty());
        check!(zeMemOpenIpcHandle(other.context, other.device, handle, flags, &raw mut at));
        // SAFETY: the memory is open here, and larger than a word.
        assert_eq!(unsafe { at.cast::<u64>().read_volatile() }, i as u64);
        check!(zeMemCloseIpcHandle(other.context, at));
    }
    println!("all of them");
}
