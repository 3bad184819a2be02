// SPDX-License-Identifier: GPL-2.0
//! Events around clients: resets, unbinding, processes that are stopped for a while or killed.
//!
//! `scripts/vm --disturb` adds events of the device, outside of the virtual machine.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use crate::device::Node;
use crate::fuzz::Dice;
use crate::half::{Gone, device_file, is_pci};
use crate::processes::Child;

/// Causes such events for the processes `pids` until `end`, and prints the number of each. A process that it
/// has killed is restarted.
pub fn make(
    mut dice: Dice,
    pids: &mut [libc::pid_t],
    end: Instant,
    start: impl Fn(u64) -> libc::pid_t,
) {
    // The number of events, and the longest.
    let mut done = BTreeMap::<&str, (u64, Duration)>::new();
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(50 + dice.below(500)));
        let index = dice.below(pids.len() as u64);
        let pid = pids[index as usize];
        let pause = Duration::from_millis(dice.below(300));
        let signal = |signal| {
            // SAFETY: an own child that was not waited for.
            unsafe { libc::kill(pid, signal) };
        };
        let begun = Instant::now();
        let what = match dice.below(5) {
            0 if is_pci() => {
                fs::write(device_file("reset"), "1").expect("a reset");
                "resets"
            }
            0 | 1 => {
                let gone = Gone::now();
                std::thread::sleep(pause);
                drop(gone);
                "ends of the device"
            }
            2 => {
                signal(libc::SIGSTOP);
                std::thread::sleep(pause);
                signal(libc::SIGCONT);
                "pauses"
            }
            3 => {
                if !Child::new(pid).kill_if_alive() {
                    // The process had ended by itself.
                    pids[index as usize] = start(index);
                    break;
                }
                pids[index as usize] = start(index);
                "kills"
            }
            _ => {
                for fd in
                    fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten()
                {
                    let _ = fs::read(fd.path());
                }
                "looks"
            }
        };
        let (times, longest) = done.entry(what).or_default();
        *times += 1;
        *longest = begun.elapsed().max(*longest);
    }
    for (what, (times, longest)) in done {
        println!("# fuzz: {times} {what}, the longest {} ms", longest.as_millis());
    }
    drop(Node::await_one());
}
