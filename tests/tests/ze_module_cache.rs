// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cache on disk: a module that any process has built starts no compiler again; damage, other
//! options and folders of others do no harm.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tally_tests::check;
use tally_tests::ze::{self, Gpu};
use tally_ze::*;

const FLAGS: &str = "TALLY_TEST_FLAGS";

/// A folder with a compiler that writes a line for each of its starts.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tally-cache-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("a temporary folder can be made");
        // Naming the driver's compiler to children is the loader's affair, so have it opened.
        let _gpu = Gpu::new();
        let real = std::env::var("TALLY_COMPILER").expect("the tests name the compiler");
        let script =
            format!("#!/bin/sh\necho started >> '{0}/starts'\nexec '{real}'\n", dir.display());
        let program = dir.join("compiler");
        fs::write(&program, script).expect("our own folder");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("our own file");
        Self(dir)
    }

    fn cache(&self) -> PathBuf {
        self.0.join("cache")
    }

    /// Has a child build and run; how often a compiler was started until now.
    fn run(&self, flags: &str) -> usize {
        let compiler = self.0.join("compiler");
        let text = |path: &Path| path.to_str().expect("it is ASCII").to_owned();
        let (compiler, cache) = (text(&compiler), text(&self.cache()));
        let variables =
            [("TALLY_COMPILER", &*compiler), ("TALLY_CACHE_DIR", &*cache), (FLAGS, flags)];
        ze::in_child("child_that_builds", &variables);
        fs::read_to_string(self.0.join("starts")).map_or(0, |text| text.lines().count())
    }

    fn files(&self) -> Vec<PathBuf> {
        let folder = fs::read_dir(self.cache()).into_iter().flatten().flatten();
        let mut files: Vec<_> = folder.map(|entry| entry.path()).collect();
        files.sort();
        files
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What stays is litter, not a failure.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_builds() {
    let gpu = Gpu::new();
    let source = "constant uint table[4] = {1, 2, 3, 5}; global uint sum;
        kernel void fill(global uint *out) { out[get_global_id(0)] = table[get_global_id(0)]; }
        kernel void other(uint x) { sum += x; }";
    let flags = std::env::var(FLAGS).unwrap_or_default();
    let module = gpu.module(&ze::spirv_from(source), &flags).expect("it is valid");
    let kernel = gpu.kernel(module, "fill");
    let out = gpu.host::<u32>(4);
    let address = out.address();
    let desc = ze_command_queue_desc_t {
        mode: ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS,
        ..Default::default()
    };
    let mut list = ze_command_list_handle_t::NULL;
    check!(zeCommandListCreateImmediate(gpu.context, gpu.device, &raw const desc, &raw mut list));
    check!(zeKernelSetGroupSize(kernel, 4, 1, 1));
    check!(zeKernelSetArgumentValue(kernel, 0, 8, (&raw const address).cast()));
    let one = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
    let (none, nothing) = (ze_event_handle_t::NULL, std::ptr::null_mut());
    check!(zeCommandListAppendLaunchKernel(list, kernel, &raw const one, none, 0, nothing));
    assert_eq!(out.to_vec(), [1, 2, 3, 5]);
}

/// "the cache on request keyed by content, options, CPU and version"
#[test]
fn what_was_built_once_is_not_built_again() {
    let place = Place::new("again");
    assert_eq!(place.run(""), 1);
    assert_eq!(place.files().len(), 2, "what the module offers, and the kernel that was created");
    assert_eq!(place.run(""), 1, "all of it was there");
    assert_eq!(place.run("-ze-opt-disable"), 2, "other options, other code");
    assert_eq!(place.files().len(), 4);
    assert_eq!(place.run("-ze-opt-disable"), 2);
}

/// "safe with many processes and damaged files"
#[test]
fn damaged_files_are_built_anew() {
    let place = Place::new("damage");
    place.run("");
    for (i, file) in place.files().into_iter().enumerate() {
        let whole = fs::read(&file).expect("it was listed");
        for (j, bytes) in
            [&whole[..whole.len() / 2], &[], b"not a module at all"].iter().enumerate()
        {
            fs::write(&file, bytes).expect("our own file");
            let starts = place.run("");
            assert_eq!(starts, 2 + 3 * i + j, "{}", file.display());
            assert_eq!(fs::read(&file).expect("it is there again").len(), whole.len());
        }
    }
}

#[test]
fn many_processes_share_the_cache() {
    let place = Place::new("many");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| place.run(""));
        }
    });
    let starts = place.run("");
    assert_eq!(place.run(""), starts, "the last ones found it");
    let left = place.files();
    assert_eq!(left.len(), 2, "no writer left anything: {left:?}");
}

/// What lies in the folder is run as code: nothing is taken from where others may write.
#[test]
fn a_folder_that_others_may_write_to_is_not_used() {
    let place = Place::new("others");
    fs::create_dir_all(place.cache()).expect("our own folder");
    fs::set_permissions(place.cache(), fs::Permissions::from_mode(0o777)).expect("our own folder");
    assert_eq!(place.run(""), 1);
    assert_eq!(place.files(), Vec::<PathBuf>::new());
    assert_eq!(place.run(""), 2);
}
