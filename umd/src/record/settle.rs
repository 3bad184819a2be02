// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits until the device has nothing to run.

use std::sync::Arc;
use std::time::{Duration, Instant};

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

/// The time after which what runs may go on running: it may wait for something that the host does without a call.
const PATIENCE: Duration = Duration::from_secs(1);
/// The time between two looks.
const LOOK: Duration = Duration::from_micros(200);
/// Looks in a row that find nothing running. A queue that is about to be woken looks as if it waited.
const LOOKS: u32 = 3;

/// Waits until all work of a VM is complete, or none of it can go on.
pub fn settle(vm: &Arc<Vm>) -> Settled {
    let shared = Shared::of(vm);
    let begun = Instant::now();
    let mut quiet = 0;
    let mut before = None;
    loop {
        match shared.is_idle(LOOK.as_nanos() as u64) {
            Ok(false) => {}
            // A lost device runs nothing.
            Ok(true) | Err(_) => return Settled::Idle,
        }
        let standing = activity::standing(vm);
        let same = !standing.runs && before.as_ref().is_none_or(|before| *before == standing);
        quiet = if same { quiet + 1 } else { 0 };
        if quiet == LOOKS {
            return if shared.waits_for_function() { Settled::Calls } else { Settled::Waits };
        }
        if begun.elapsed() > PATIENCE {
            return Settled::Runs;
        }
        before = Some(standing);
    }
}
