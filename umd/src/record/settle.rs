// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits until the device has nothing to run.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::checks::{self, Checks};
use crate::submit::activity;
use crate::sync::shared::Shared;
use crate::vm::Vm;

/// How the device was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// All work is complete.
    Idle,
    /// What is left waits for something that is yet to come.
    Waits,
    /// The same, and it waits for a function of the host that is asked for or runs.
    Calls,
    /// Something still runs.
    Runs,
}

/// The time after which what runs may go on running, unless `TALLY_RECORD_MS` gives another: it may wait for something
/// that the host does without a call.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// That time in a program whose kernels often wait for the host.
pub const LEAST_PATIENCE: Duration = Duration::from_millis(30);
/// The time between two looks.
const LOOK: Duration = Duration::from_micros(100);
/// Looks without such a time, at first.
const CLOSE: u32 = 50;
/// Looks in a row that find nothing running. A queue that is about to be woken looks as if it waited.
const LOOKS: u32 = 3;

/// Waits until all work of a VM is complete, or none of it can go on, or for so long.
pub fn settle(vm: &Arc<Vm>, patience: Duration) -> Settled {
    let shared = Shared::of(vm);
    // The device may have deferred a wake, since the thread is used to wait for its work by itself.
    vm.backend().begin_wait();
    let begun = Instant::now();
    let (mut looks, mut quiet) = (0, 0);
    let mut before = None;
    loop {
        // The device is asked, not the objects: waiting for a list puts a barrier into it if it is out of order, and
        // the check of races would take the wait for the program's.
        let standing = activity::standing(vm);
        if standing.is_idle || vm.is_lost() {
            if checks::get().and_then(Checks::order).is_none() {
                shared.all_is_complete();
            }
            return Settled::Idle;
        }
        let same = !standing.runs && before.as_ref().is_none_or(|before| *before == standing);
        quiet = if same { quiet + 1 } else { 0 };
        if quiet == LOOKS {
            return if shared.waits_for_function() { Settled::Calls } else { Settled::Waits };
        }
        if begun.elapsed() > patience {
            return Settled::Runs;
        }
        before = Some(standing);
        looks += 1;
        if !same && looks < CLOSE {
            thread::yield_now();
        } else {
            thread::sleep(LOOK);
        }
    }
}
