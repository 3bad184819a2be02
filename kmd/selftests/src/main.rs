// SPDX-License-Identifier: GPL-2.0
//! Tests of `tally.ko` by its ioctls, as root on a machine that has the module loaded.
//!
//! Usage: `tally-selftests [NAME-PART]...` prints TAP and ends with 0 if all is well.
//! `tally-selftests --fuzz SEED PROCESSES THREADS SECONDS` calls at random instead; with `--trouble` behind
//! it while the device is reset and unbound, and processes are stopped and killed.
//! `tally-selftests --outlive` sleeps until somebody outside ends the device's process,
//! `tally-selftests --lose` until somebody ends that of the VM's engine.
//! `tally-selftests --means` prints how long a witness waits beside each thing that a hostile client can do;
//! with `--first` behind it the witness never waits for a processor.
//! `tally-selftests --slow` tests what a slow VM does to others, on a device that lets one be slow, and `--refused`
//! what becomes of memory that the device does not unmap.
//! `TALLY_KO` names the module's file for the tests that reload it; without it they
//! are skipped. `TALLY_COVERAGE` names a file to which the blocks of the module that were run are added.

use std::panic::catch_unwind;

mod binds;
mod buffers;
mod cgroups;
mod coverage;
mod daemon;
mod device;
mod follows;
mod foreign;
mod fuzz;
mod half;
mod host;
mod hostile;
mod imports;
mod liars;
mod life;
mod notifies;
mod polls;
mod power;
mod primes;
mod processes;
mod queues;
mod rejections;
mod resets;
mod revocation;
mod syncobjs;
mod trouble;
mod users;
mod waits;

/// The outcome of a test that does not panic.
enum Outcome {
    Passed,
    Skipped(&'static str),
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Passed
    }
}

/// A test by its name.
type Test = (&'static str, fn() -> Outcome);

/// Lists functions by their own names.
macro_rules! tests {
    ($($module:ident: $($name:ident)*;)*) => {
        &[$($((concat!(stringify!($module), "::", stringify!($name)), || $module::$name().into())),*),*]
    };
}

const TESTS: &[Test] = tests! {
    rejections: must_be_zero unknown_handles_and_ids queries_are_checked buffers_are_checked
        address_spaces_are_checked bindings_are_checked queues_are_checked waits_are_checked orphaned_ranges_are_checked
        numbers_beyond_the_last_are_refused structs_may_be_shorter dumb_buffers_are_refused;
    buffers: memory_is_zero_and_shared a_mapping_outlives_its_handle tools_see_each_buffer_once
        memory_has_a_limit clients_have_limits
        bindings_are_cut_and_joined parts_are_mapped_and_mappings_are_cut
        userptr_is_the_callers_memory a_page_is_bound_many_times a_bind_ends_with_its_caller huge_and_many
        a_bind_without_memory_changes_nothing;
    queues: a_signal_arrives a_copy_copies a_fault_loses_the_vm_and_no_other
        a_queue_says_what_it_waits_for destroyed_queues_do_not_signal an_endless_kernel_is_ended limits_are_reached
        a_busy_queue_needs_no_kicks tools_see_engine_time;
    waits: met_at_once late_and_past any_and_all a_signal_handler_interrupts
        the_device_wakes_a_sleeper a_host_wakes_a_sleeper the_device_hears_only_of_what_it_waits_for
        no_sleeper_no_interrupt
        a_destroyed_vm_ends_waits queues_of_two_vms_wait_for_each_other
        a_queue_does_not_wait_for_the_dead;
    polls: a_signal_makes_a_file_readable all_pollers_learn_of_it event_loops_watch_files
        a_file_outlives_its_node
        a_destroyed_vm_fails_files pollers_and_producers_are_killed a_reset_fails_files
        an_unbound_driver_hangs_files_up files_of_waits_are_limited;
    notifies: a_signal_tells_an_eventfd met_waits_tell_at_once every_wait_tells_once
        signals_race_with_arming the_end_of_a_vm_tells the_end_of_a_file_tells
        readers_and_producers_are_killed a_reset_tells the_end_of_the_device_tells
        notifies_are_checked armed_waits_are_limited;
    syncobjs: the_driver_has_sync_objects a_signal_adds_a_point met_waits_add_their_point_at_once
        binary_objects_give_sync_files points_race_with_signals ends_add_points_too
        waiters_and_producers_are_killed a_reset_adds_points the_end_of_the_device_adds_points
        fed_points_are_checked;
    binds: a_bind_waits_and_tells binds_without_waits_answer_at_once failures_are_told a_producer_dies
        clients_are_killed_while_binds_wait a_reset_ends_binds
        an_import_waits_and_the_device_ends points_of_binds_are_checked;
    follows: a_fence_raises_a_cell signalled_fences_store_at_once cells_do_not_go_back
        points_of_sync_objects_are_followed a_counter_goes_round another_driver_signals_a_counter
        fences_race_with_arming producers_die clients_are_killed_and_fences_stay
        a_reset_between an_unbound_driver_stores_all_the_same follows_are_checked
        armed_cells_are_limited;
    primes: another_driver_keeps_a_buffer fences_of_a_shared_buffer_are_followed
        private_buffers_are_not_for_other_drivers another_driver_keeps_a_buffer_without_its_device
        importers_are_killed;
    imports: udmabufs_are_copied_to_and_from vgem_buffers_are_copied_to_and_from
        heap_buffers_are_copied_to_and_from an_import_is_the_same_buffer imports_are_checked
        read_only_imports_are_only_read imports_outlive_their_files_and_makers
        importers_are_killed an_import_ends_while_a_command_uses_it fences_of_imports_are_not_waited_for
        imports_are_bound_again an_import_ends_with_its_device another_gpu_has_a_buffer;
    processes: importers_of_read_only_buffers_only_read an_importer_outlives_the_exporter
        a_killed_process_leaves_nothing
        a_killed_process_takes_its_endless_kernel_along a_forked_child_may_use_the_file;
    users: closed_things_make_room one_user_cannot_have_all_vms one_user_cannot_have_all_memory one_user_cannot_have_all_buffers
        one_user_cannot_have_all_kernel_memory null_memory_counts locked_memory_is_counted_by_user
        a_wait_takes_no_memory_but_its_cells;
    hostile: a_witness_notices_nothing;
    cgroups: a_cgroup_pays_for_buffers a_cgroup_at_its_limit_gets_no_buffer
        a_cgroup_pays_for_kernel_objects kernel_memory_runs_out_in_its_cgroup;
    power: the_machine_sleeps pci_recovers_from_an_error;
    liars: starts_are_checked silence_ends_the_gpu garbage_is_harmless;
    revocation: a_file_shows_what_is_bound mappings_stay_what_they_are
        memory_of_other_drivers_has_areas_of_its_own no_access_outlives_unmap
        nothing_is_bound_in_a_gpu_that_ends;
    daemon: an_ended_engine_loses_its_vm_alone a_stopped_engine_keeps_no_memory
        a_lying_engine_loses_its_vm_alone a_pause_loses_nothing
        a_pause_may_include_a_sleep_of_the_machine a_long_pause_ends_one_gpu garbage_ends_one_gpu_at_most;
    resets: a_reset_from_outside_is_noticed resets_among_other_calls;
    life: parameters_are_visible unbind_wakes_a_thousand_sleepers
        unbind_does_not_wait_for_memory
        the_module_comes_back_a_hundred_times;
};

fn main() {
    let parts: Vec<String> = std::env::args().skip(1).collect();
    if let [option, seed, processes, threads, seconds, rest @ ..] = &parts[..]
        && option == "--fuzz"
    {
        let number = |text: &String| text.parse().expect("a number");
        let time = std::time::Duration::from_secs(number(seconds));
        let trouble = rest == ["--trouble"];
        return fuzz::run(number(seed), number(processes), number(threads), time, trouble);
    }
    if parts == ["--outlive"] {
        return life::outlive();
    }
    if parts == ["--lose"] {
        return life::lose();
    }
    if let [option, rest @ ..] = &parts[..]
        && option == "--means"
    {
        return hostile::each_means(rest == ["--first"]);
    }
    if parts == ["--slow"] {
        return resets::slow();
    }
    if parts == ["--refused"] {
        return resets::refused();
    }
    let chosen =
        |name: &str| parts.is_empty() || parts.iter().any(|part| name.contains(part.as_str()));
    let tests: Vec<&Test> = TESTS.iter().filter(|(name, _)| chosen(name)).collect();
    println!("TAP version 13\n1..{}", tests.len());
    let covers = std::env::var_os("TALLY_COVERAGE").is_some();
    if covers {
        coverage::begin();
    }
    let mut failed = 0;
    for (index, (name, test)) in tests.into_iter().enumerate() {
        let number = index + 1;
        match catch_unwind(test) {
            Ok(Outcome::Passed) => println!("ok {number} {name}"),
            Ok(Outcome::Skipped(why)) => println!("ok {number} {name} # SKIP {why}"),
            Err(_) => {
                failed += 1;
                println!("not ok {number} {name}");
            }
        }
    }
    if covers {
        coverage::report();
    }
    std::process::exit(i32::from(failed != 0));
}
