// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels whose work-items wait for each other, in groups whose rows are not made of whole vectors: they
//! have code of their own for these, and for each size of groups with short rows, which is only built when such a
//! group is asked for.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::Barrier;

use tally_tests::check;
use tally_tests::lists::NONE;
use tally_tests::ze::{self, Gpu};
use tally_ze::*;

/// Reverses the rows of each group.
const SOURCE: &str = "
    kernel void reverse(global uint *out, local uint *mine)
    {
        size_t i = get_local_linear_id(), x = get_local_id(0), last = get_local_size(0) - 1;
        mine[i] = (uint)get_global_linear_id() + 1;
        barrier(CLK_LOCAL_MEM_FENCE);
        out[get_global_linear_id()] = mine[i - x + last - x];
    }";

/// A row that goes in vectors though it has no whole number of them, whatever their length.
const UNEVEN: [u32; 3] = [20, 1, 1];

const GROUP: &str = "TALLY_TEST_GROUP";
const SAYS: &str = "for uneven rows is at";

/// Runs one group of this size with a kernel of its own, and checks what it writes.
fn run(gpu: &Gpu, module: ze_module_handle_t, [x, y, z]: [u32; 3]) {
    let kernel = gpu.kernel(module, "reverse");
    let items = x * y * z;
    let out = gpu.host::<u32>(items as usize);
    let (address, bytes) = (out.address(), 4 * items as usize);
    check!(zeKernelSetGroupSize(kernel, x, y, z));
    check!(zeKernelSetArgumentValue(kernel, 0, 8, (&raw const address).cast()));
    check!(zeKernelSetArgumentValue(kernel, 1, bytes, ptr::null()));
    let list = gpu.immediate(0, true);
    let one = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
    let none = ptr::null_mut();
    check!(zeCommandListAppendLaunchKernel(list.0, kernel, &raw const one, NONE, 0, none));
    list.synchronize();
    let reversed = |i: u32| i / x * x + x - i % x;
    assert_eq!(out.to_vec(), (0..items).map(reversed).collect::<Vec<_>>(), "{:?}", [x, y, z]);
    check!(zeKernelDestroy(kernel));
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_runs_groups() {
    let gpu = Gpu::new();
    let module = gpu.module(&ze::spirv_from(SOURCE), "").expect("it is valid");
    let groups = std::env::var(GROUP).expect("the parent says which");
    for group in groups.split(';') {
        let mut sizes = group.split(',').map(|size| size.parse().expect("a number"));
        run(&gpu, module, std::array::from_fn(|_| sizes.next().expect("three of them")));
    }
    check!(zeModuleDestroy(module));
}

/// A folder with a cache, and with a compiler that can be stopped.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tally-uneven-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("a temporary folder can be made");
        // Naming the driver's compiler to children is the loader's affair, so have it opened.
        let _gpu = Gpu::new();
        let real = std::env::var("TALLY_COMPILER").expect("the tests name the compiler");
        let program = dir.join("compiler");
        let script = format!("#!/bin/sh\n[ -e '{}/stop' ] || exec '{real}'\n", dir.display());
        fs::write(&program, script).expect("our own folder");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("our own file");
        Self(dir)
    }

    /// From now on no compiler starts.
    fn stop_the_compiler(&self) {
        fs::write(self.0.join("stop"), "").expect("our own folder");
    }

    /// Has a child run a group; what it said.
    fn run(&self, group: [u32; 3]) -> String {
        self.run_all(&[group])
    }

    /// Has a child run groups, one after the other; what it said.
    fn run_all(&self, groups: &[[u32; 3]]) -> String {
        let group = groups.iter().map(|[x, y, z]| format!("{x},{y},{z}"));
        let group = group.collect::<Vec<_>>().join(";");
        let path = |name| self.0.join(name).display().to_string();
        let (cache, compiler) = (path("cache"), path("compiler"));
        let variables = [
            ("TALLY_CACHE", "1"),
            ("TALLY_CACHE_DIR", &cache),
            ("TALLY_COMPILER", &compiler),
            ("TALLY_LOG", "debug"),
            (GROUP, &group),
        ];
        ze::in_child("child_that_runs_groups", &variables)
    }

    /// The number of files, and of those with code for uneven rows.
    fn files(&self) -> (usize, usize) {
        let files: Vec<_> =
            fs::read_dir(self.0.join("cache")).expect("it was made").flatten().collect();
        let uneven =
            files.iter().filter(|it| it.file_name().to_string_lossy().ends_with(".uneven"));
        (files.len(), uneven.count())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // If the folder stays, that is no failure.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// "built when a launch's group size is set for which it is faster", and kept like all other code.
#[test]
fn code_for_uneven_rows_is_built_when_a_group_has_some() {
    let place = Place::new("when");
    // Whole vectors, one work-item: nothing that it would be good for.
    for group in [[64, 1, 1], [32, 3, 2], [1, 1, 1]] {
        let said = place.run(group);
        assert!(!said.contains(SAYS), "{group:?}: {said}");
        assert_eq!(place.files(), (2, 0), "{group:?}");
    }
    for group in [UNEVEN, [33, 2, 3]] {
        let said = place.run(group);
        assert!(said.contains(SAYS), "{group:?}: {said}");
        assert_eq!(place.files(), (3, 1), "{group:?}");
    }
    place.stop_the_compiler();
    let said = place.run(UNEVEN);
    assert!(said.contains(SAYS), "the cache has it: {said}");
}

/// Groups of several short rows have code for their size, which is kept too.
#[test]
fn code_for_short_rows_is_built_for_their_size() {
    let place = Place::new("size");
    place.run([64, 1, 1]);
    let sizes = [[1, 20, 1], [7, 5, 1]];
    for (files, size) in (3..).zip(sizes) {
        for _ in 0..2 {
            let said = place.run(size);
            assert!(said.contains(&format!("for {size:?} is at")), "{size:?}: {said}");
            assert_eq!(place.files(), (files, 0), "{size:?}");
        }
    }
    place.stop_the_compiler();
    let said = place.run(sizes[0]);
    assert!(said.contains("for [1, 20, 1] is at"), "the cache has it: {said}");
    let said = place.run([1, 21, 1]);
    assert!(said.contains("runs groups of [1, 21, 1] one item at a time"), "{said}");
}

/// A kernel has code for a few sizes; the usual one runs all others.
#[test]
fn groups_of_more_sizes_than_there_is_code_for_are_right() {
    let gpu = Gpu::new();
    let module = gpu.module(&ze::spirv_from(SOURCE), "").expect("it is valid");
    for turn in 0..2 {
        for rows in 4..16 {
            run(&gpu, module, [1 + (rows + turn) % 3, rows, 1]);
        }
    }
    check!(zeModuleDestroy(module));
}

/// They leave the form for uneven rows its place, and each that has one is used again.
#[test]
fn many_sizes_leave_a_place_for_uneven_rows() {
    let place = Place::new("many");
    let sizes: Vec<_> = (4..13).map(|rows| [1 + rows % 3, rows, 1]).collect();
    let (last, kept) = sizes.split_last().expect("there are nine");
    let all: Vec<_> = [&sizes[..], &[UNEVEN], &sizes[..], &[[33, 2, 1], *last]].concat();
    let said = place.run_all(&all);
    for size in kept {
        assert_eq!(said.matches(&format!("for {size:?} is at")).count(), 1, "{size:?}: {said}");
    }
    assert!(!said.contains(&format!("for {last:?} is at")), "{said}");
    assert_eq!(said.matches(SAYS).count(), 1, "{said}");
}

/// "Without it the usual one runs them more slowly, so no error stops the program."
#[test]
fn without_a_compiler_the_usual_code_runs_uneven_rows() {
    let place = Place::new("without");
    place.run([64, 1, 1]);
    place.stop_the_compiler();
    let said = place.run(UNEVEN);
    assert!(said.contains("runs groups of [20, 1, 1] one item at a time"), "{said}");
}

/// Debuggers find one piece of code for all groups.
#[test]
fn with_debug_information_there_is_one_form() {
    let gpu = Gpu::new();
    let module = gpu.module(&ze::spirv_from(SOURCE), "-g").expect("it is valid");
    for group in [UNEVEN, [64, 1, 1], [5, 3, 2]] {
        run(&gpu, module, group);
    }
    check!(zeModuleDestroy(module));
}

/// Threads that need the code at the same time all get it, each for its own kernel object.
#[test]
fn many_threads_may_need_the_code_at_once() {
    let gpu = Gpu::new();
    for _ in 0..4 {
        let module = gpu.module(&ze::spirv_from(SOURCE), "").expect("it is valid");
        let start = Barrier::new(16);
        std::thread::scope(|scope| {
            for thread in 0..16 {
                let (gpu, start) = (&gpu, &start);
                scope.spawn(move || {
                    start.wait();
                    let sizes = [UNEVEN, [64, 1, 1], [33, 2, 1], [7, 5, 1]];
                    for turn in 0..4 {
                        run(gpu, module, sizes[(thread + turn) % sizes.len()]);
                    }
                });
            }
        });
        check!(zeModuleDestroy(module));
    }
}

/// One kernel object whose group size changes from launch to launch: what was appended keeps its code.
#[test]
fn launches_of_both_forms_follow_one_another() {
    let gpu = Gpu::new();
    let module = gpu.module(&ze::spirv_from(SOURCE), "").expect("it is valid");
    let kernel = gpu.kernel(module, "reverse");
    let rows = [64, 20, 1, 33, 16, 20, 40, 100];
    let out = gpu.host::<u32>(128 * rows.len());
    let list = gpu.regular(0, true);
    for (at, &row) in rows.iter().enumerate() {
        let address = out.address() + 512 * at as u64;
        check!(zeKernelSetGroupSize(kernel, row, 1, 1));
        check!(zeKernelSetArgumentValue(kernel, 0, 8, (&raw const address).cast()));
        check!(zeKernelSetArgumentValue(kernel, 1, 4 * row as usize, ptr::null()));
        let one = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
        let none = ptr::null_mut();
        check!(zeCommandListAppendLaunchKernel(list.0, kernel, &raw const one, NONE, 0, none));
    }
    // The recording keeps what it runs.
    check!(zeKernelDestroy(kernel));
    check!(zeModuleDestroy(module));
    list.close();
    let queue = gpu.queue(0);
    for _ in 0..2 {
        out.fill_with(|_| 0);
        queue.execute(&[&list], None);
        queue.synchronize();
        for (at, &row) in rows.iter().enumerate() {
            let wrote: Vec<u32> = out.to_vec()[128 * at..][..row as usize].to_vec();
            assert_eq!(wrote, (1..=row).rev().collect::<Vec<_>>(), "a row of {row}");
        }
    }
}
