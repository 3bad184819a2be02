// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cooperative launches: groups that wait for each other (SPEC.md, chapter 7).

use std::sync::atomic::Ordering;
use std::time::Duration;

use tally_device::{Config, EngineClass, Priority, VmId};
use tally_uapi::eu::{GroupContext, MAX_COOPERATIVE_GROUPS};
use tally_uapi::packet::{Packet, Place, flag};

use crate::support::*;

const COOPERATIVE: u8 = flag::COOPERATIVE;

/// Kernel: waits, without the device's help, until all groups are in it.
unsafe extern "C" fn all_meet(context: *const GroupContext) {
    // SAFETY: argument 0 is a cell, and the launch is there as long as the group.
    let (cell, groups) = unsafe { (cell_arg(context, 0), (*(*context).launch).num_groups[0]) };
    cell.fetch_add(1, Ordering::AcqRel);
    while cell.load(Ordering::Acquire) < groups.into() {
        std::hint::spin_loop();
    }
}

/// The barrier of all groups of a launch.
///
/// # Safety
/// The context is the group's own.
unsafe fn wait_for_all(context: *const GroupContext) {
    // SAFETY: the launch is there as long as the group; the manual says what the address is.
    let wait = unsafe {
        std::mem::transmute::<usize, unsafe extern "C" fn(*const GroupContext)>(
            (*(*context).launch).grid_wait as usize,
        )
    };
    // SAFETY: the caller's promise.
    unsafe { wait(context) };
}

/// Rounds of [`rounds`].
const ROUNDS: u64 = 20;

/// Kernel: counts itself in the cell of argument 0 and waits for all groups, repeatedly. A group that sees that
/// another was missing, or early, counts that in the cell of argument 1.
unsafe extern "C" fn rounds(context: *const GroupContext) {
    // SAFETY: both arguments are cells, and the launch is there as long as the group.
    let (cell, wrong, launch) =
        unsafe { (cell_arg(context, 0), cell_arg(context, 1), &*(*context).launch) };
    let groups = u64::from(launch.num_groups[0]);
    for round in 1..=ROUNDS {
        cell.fetch_add(1, Ordering::Relaxed);
        // SAFETY: this group's own context.
        unsafe { wait_for_all(context) };
        let seen = cell.load(Ordering::Relaxed);
        wrong.fetch_add(u64::from(seen != groups * round), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { wait_for_all(context) };
    }
}

/// One execution unit and no substitutes: only the cooperative-launch pool could help.
fn narrow() -> Gpu {
    Gpu::with(Config {
        workers: Some(1),
        substitutes: Some(0),
        compute_engines: 2,
        ..Config::default()
    })
}

#[test]
fn all_groups_of_a_cooperative_launch_run_at_the_same_time() {
    // "all groups of the launch run at the same time"
    let gpu = narrow();
    let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
    let kernarg = Kernarg::new(&[cells.cell_va(1)]);
    for (round, groups) in [(1, 2), (2, MAX_COOPERATIVE_GROUPS), (3, 7)] {
        cells.cell(1).store(0, Ordering::Relaxed);
        let signal = Some((cells.cell_va(0), round));
        queue.push(dispatch(ORDERED | COOPERATIVE, all_meet, &kernarg, groups, signal));
        eventually("the launch", || cells.load(0) == round);
        assert_eq!(cells.load(1), groups.into());
    }
}

#[test]
fn the_grid_barrier_keeps_everybody_until_all_have_come() {
    // "it returns when all groups have called it the same number of times"
    let gpu = narrow();
    let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
    let kernarg = Kernarg::new(&[cells.cell_va(1), cells.cell_va(2)]);
    let signal = Some((cells.cell_va(0), 1));
    queue.push(dispatch(COOPERATIVE, rounds, &kernarg, 12, signal));
    eventually("the launch", || cells.load(0) == 1);
    assert_eq!((cells.load(1), cells.load(2)), (12 * ROUNDS, 0));
}

#[test]
fn launches_take_turns_and_others_go_on() {
    // "They … take none from other queues, even if they never stop waiting. A launch starts when there
    // are units for all its groups."
    let gpu = narrow();
    let cells = Memory::new(4096);
    let mut stuck = gpu.queue();
    // It keeps one unit until the test's end, so only one of the other launches has room at a time.
    let forever = Kernarg::new(&[cells.cell_va(8), cells.cell_va(9)]);
    stuck.push(dispatch(COOPERATIVE, meet, &forever, 1, None));
    eventually("the stuck kernel", || cells.load(8) == 1);
    let mut queues: Vec<_> = (0..4).map(|_| gpu.queue()).collect();
    let kernargs: Vec<_> = (0..4).map(|i| Kernarg::new(&[cells.cell_va(16 + i)])).collect();
    for (i, (queue, kernarg)) in queues.iter_mut().zip(&kernargs).enumerate() {
        let signal = Some((cells.cell_va(i), 1));
        queue.push(dispatch(COOPERATIVE, all_meet, kernarg, 20, signal));
    }
    let mut other = gpu.queue();
    let counted = Kernarg::new(&[cells.cell_va(10)]);
    other.push(dispatch(0, count_groups, &counted, 100, Some((cells.cell_va(11), 1))));
    eventually("an ordinary launch", || cells.load(11) == 1);
    eventually("the cooperative ones", || (0..4).all(|i| cells.load(i) == 1));
    cells.cell(9).store(1, Ordering::Release);
}

/// Kernel: draws a number from the cell of argument 0; the cell of argument 1 keeps the launch's lowest.
unsafe extern "C" fn draw(context: *const GroupContext) {
    // SAFETY: both arguments are cells.
    let (next, own) = unsafe { (cell_arg(context, 0), cell_arg(context, 1)) };
    own.fetch_min(next.fetch_add(1, Ordering::AcqRel), Ordering::AcqRel);
}

#[test]
fn a_launch_that_waits_for_units_holds_up_none_for_which_there_are() {
    // "Launches that wait for units are considered in order of arrival, and one for which there are not enough
    // units holds up no later one for which there are."
    let gpu = narrow();
    let cells = Memory::new(4096);
    let mut first = gpu.queue();
    // It keeps half of the units until all small launches have ended.
    let held = Kernarg::new(&[cells.cell_va(8), cells.cell_va(9)]);
    first.push(dispatch(COOPERATIVE, meet, &held, 16, None));
    eventually("the first launch", || cells.load(8) == 1);
    // Every second launch has room beside the first. Two of the others never have room together: a group of the
    // former has to end, and so to draw, before the latter begins.
    let groups = [32, 2, 32, 3, 32, 1];
    let mut queues = Vec::new();
    for (i, groups) in groups.into_iter().enumerate() {
        let mut queue = gpu.queue_on(&gpu.vm, EngineClass::Compute, 1, Priority::Normal);
        let kernarg = Kernarg::new(&[cells.cell_va(10), cells.cell_va(20 + i)]);
        let signal = Some((cells.cell_va(30 + i), 1));
        cells.cell(20 + i).store(u64::MAX, Ordering::Release);
        queue.push(dispatch(COOPERATIVE, draw, &kernarg, groups, signal));
        eventually("its turn to wait", || gpu.device.query(&queue.handle).head == 1);
        queues.push((queue, kernarg));
    }
    eventually("the small ones", || [1, 3, 5].iter().all(|i| cells.load(30 + i) == 1));
    assert!([0, 2, 4].iter().all(|i| cells.load(30 + i) == 0), "a large one ran beside the first");
    cells.cell(9).store(1, Ordering::Release);
    eventually("all", || (0..groups.len()).all(|i| cells.load(30 + i) == 1));
    let drawn = [0, 2, 4].map(|i| cells.load(20 + i));
    assert!(drawn.is_sorted(), "a launch has begun before one that came earlier: {drawn:?}");
}

#[test]
fn what_cannot_be_cooperative_is_refused() {
    // "DISPATCH only, not with INDIRECT or INDEPENDENT, at most 32 groups"
    let kernarg = Kernarg::new(&[]);
    let most = MAX_COOPERATIVE_GROUPS;
    let of = |flags, groups| dispatch(flags, count_groups, &kernarg, groups, None);
    let valid = |packet: Packet| packet.decode(Place::Ring).is_ok();
    assert!(valid(of(COOPERATIVE, most).into()));
    assert!(!valid(of(COOPERATIVE, most + 1).into()));
    let mut huge = of(COOPERATIVE, 1 << 31);
    huge.groups = [1 << 31; 3];
    assert!(!valid(huge.into()));
    assert!(!valid(of(COOPERATIVE | flag::INDIRECT, 16).into()));
    assert!(!valid(of(COOPERATIVE | flag::INDEPENDENT, 16).into()));
    assert!(!valid(nop(COOPERATIVE, None).into()));
}

#[test]
fn a_queue_with_an_endless_cooperative_launch_can_be_destroyed() {
    let gpu = narrow();
    let cells = Memory::new(4096);
    for round in 1..=3 {
        let vm = gpu.device.create_vm(VmId(10));
        let mut stuck = gpu.queue_on(&vm, EngineClass::Compute, 0, Priority::Normal);
        let kernarg = Kernarg::new(&[cells.cell_va(1)]);
        let before = cells.load(1);
        stuck.push(dispatch(COOPERATIVE, endless, &kernarg, MAX_COOPERATIVE_GROUPS, None));
        eventually("the kernel", || cells.load(1) != before);
        std::thread::sleep(Duration::from_millis(5));
        gpu.device.destroy_queue(&stuck.handle);
        let mut queue = gpu.queue();
        let meeting = Kernarg::new(&[cells.cell_va(2)]);
        cells.cell(2).store(0, Ordering::Relaxed);
        queue.push(dispatch(COOPERATIVE, all_meet, &meeting, 32, Some((cells.cell_va(0), round))));
        eventually("the next launch", || cells.load(0) == round);
    }
    assert!(!gpu.vm.is_lost());
}

#[test]
fn a_queue_whose_launch_waits_for_units_can_be_destroyed() {
    // Chapter 10: "Nothing that was not complete is signalled."
    let gpu = narrow();
    let cells = Memory::new(4096);
    let mut stuck = gpu.queue();
    let forever = Kernarg::new(&[cells.cell_va(8), cells.cell_va(9)]);
    stuck.push(dispatch(COOPERATIVE, meet, &forever, 1, Some((cells.cell_va(10), 1))));
    eventually("the stuck kernel", || cells.load(8) == 1);
    let (mut waiting, mut behind) = (gpu.queue(), gpu.queue());
    let kernargs = [cells.cell_va(2), cells.cell_va(3)].map(|cell| Kernarg::new(&[cell]));
    let launch = |kernarg, groups, signal| {
        dispatch(COOPERATIVE, all_meet, kernarg, groups, Some((cells.cell_va(signal), 1)))
    };
    waiting.push(launch(&kernargs[0], MAX_COOPERATIVE_GROUPS, 0));
    let head = || gpu.device.query(&waiting.handle).head;
    eventually("the launch that waits", || head() == 1);
    behind.push(launch(&kernargs[1], 2, 1));
    gpu.device.destroy_queue(&waiting.handle);
    eventually("the launch behind it", || cells.load(1) == 1);
    cells.cell(9).store(1, Ordering::Release);
    eventually("the end of the first", || cells.load(10) == 1);
    assert_eq!((cells.load(0), cells.load(2)), (0, 0), "what was taken back has not run");
    assert!(!gpu.vm.is_lost());
}

/// Kernel: the first group touches unmapped memory, and the others wait for it at the barrier.
unsafe extern "C" fn one_faults(context: *const GroupContext) {
    // SAFETY: argument 0 is a cell, and the launch is there as long as the group.
    let (cell, launch) = unsafe { (cell_arg(context, 0), &*(*context).launch) };
    // SAFETY: the context is there as long as the group.
    if unsafe { (*context).group[0] } == 0 {
        while cell.load(Ordering::Acquire) + 1 < launch.num_groups[0].into() {
            std::hint::spin_loop();
        }
        // SAFETY: it faults, which this test needs.
        unsafe { std::ptr::without_provenance_mut::<u64>(8).write_volatile(1) };
    }
    cell.fetch_add(1, Ordering::AcqRel);
    // SAFETY: this group's own context.
    unsafe { wait_for_all(context) };
}

#[test]
fn a_group_that_faults_keeps_no_other_at_the_barrier() {
    // "it returns when all groups have called it the same number of times, or a group has faulted"
    let gpu = narrow();
    let cells = Memory::new(4096);
    let vm = gpu.device.create_vm(VmId(10));
    let mut lost = gpu.queue_on(&vm, EngineClass::Compute, 0, Priority::Normal);
    let kernarg = Kernarg::new(&[cells.cell_va(1)]);
    lost.push(dispatch(COOPERATIVE, one_faults, &kernarg, MAX_COOPERATIVE_GROUPS, None));
    eventually("the fault", || vm.is_lost());
    // The lost queue is still there, and all units are free again.
    let mut queue = gpu.queue();
    let meeting = Kernarg::new(&[cells.cell_va(2)]);
    let signal = Some((cells.cell_va(0), 1));
    queue.push(dispatch(COOPERATIVE, all_meet, &meeting, MAX_COOPERATIVE_GROUPS, signal));
    eventually("the next launch", || cells.load(0) == 1);
}
