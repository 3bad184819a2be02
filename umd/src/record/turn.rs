// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns: the device runs while a thread of the program is in a call, and not in between, so what changes in between
//! was changed by the host.
//!
//! A call that hands over work or lets it go on opens the gate of the device, waits until nothing is left that the
//! device could run, lets it call functions of the host meanwhile, and closes the gate if work is left. A program
//! that writes a word and looks at memory until the device has seen it makes no call: a thread gives the device a turn
//! now and then. A kernel that runs for long is not stopped by the gate.

use std::sync::{Condvar, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::recorder::{Guard, Recorder, lock};
use super::settle::Settled;
use super::threads::{self, is_in_function};
use crate::process;

/// Notified when a host function has ended.
static ENDED: Condvar = Condvar::new();
/// How long a call waits for a function of the host. One may itself wait for what this thread does later.
const FUNCTION: Duration = Duration::from_millis(100);
/// The time between two looks at it.
const LOOK: Duration = Duration::from_millis(1);
/// The time without a call after which the device gets a turn, at first and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(500)];

/// Notes, in front of a host function and behind it, what was written; `call`: its number and its calls before.
pub fn around_function(call: Option<(u32, u32)>) {
    if process::is_gone() {
        return;
    }
    if let Some(recorder) = lock().as_mut() {
        match call {
            None => {
                recorder.settle();
                // The program has written it, not the function.
                recorder.host_writes(None);
                recorder.running += 1;
                threads::set_in_function(true);
            }
            Some((function, before)) => {
                recorder.function_writes(function, before);
                recorder.flush();
                recorder.running = recorder.running.saturating_sub(1);
                recorder.ended += 1;
                threads::set_in_function(false);
                ENDED.notify_all();
            }
        }
    }
}

/// The recorder, when no function of the host runs and no other thread's call lets the device run, or that takes long.
pub fn lock_for_call() -> Guard {
    let guard = lock();
    if is_in_function() {
        return guard;
    }
    let waits = |it: &mut Option<_>| it.as_ref().is_some_and(Recorder::is_at_work);
    let ended = ENDED.wait_timeout_while(guard, FUNCTION, waits);
    ended.unwrap_or_else(PoisonError::into_inner).0
}

/// Lets the device go on until nothing is left that it could run, with the functions that it calls.
pub fn take(mut guard: Guard) -> Guard {
    let mut until = Instant::now() + FUNCTION;
    let mut ended = None;
    loop {
        let Some(recorder) = guard.as_mut() else { return guard };
        // What changes while a function runs is the function's.
        if !recorder.is_in_function() {
            recorder.settle();
        }
        if recorder.settled != Settled::Calls || is_in_function() {
            break;
        }
        let now = Some(recorder.ended);
        if std::mem::replace(&mut ended, now) != now {
            until = Instant::now() + FUNCTION;
        }
        if Instant::now() > until {
            break;
        }
        recorder.turns += 1;
        guard = ENDED.wait_timeout(guard, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        if let Some(recorder) = guard.as_mut() {
            recorder.turns -= 1;
        }
    }
    ENDED.notify_all();
    if let Some(recorder) = guard.as_mut() {
        recorder.places = None;
    }
    if guard.as_ref().is_some_and(|it| it.settled != Settled::Idle) {
        static PACER: Once = Once::new();
        PACER.call_once(|| {
            let started = thread::Builder::new().name("tally-record".to_owned()).spawn(pace);
            if let Err(error) = started {
                log::error!("TALLY_RECORD: no thread: {error}");
            }
        });
    }
    guard
}

/// Gives the device turns when the program makes no calls.
fn pace() {
    let (mut pause, mut seen) = (PAUSES[0], 0);
    loop {
        thread::sleep(pause);
        if process::is_gone() {
            return;
        }
        let mut guard = lock();
        let Some(recorder) = guard.as_mut() else { continue };
        if recorder.is_at_work() || matches!(recorder.settled, Settled::Idle | Settled::Runs) {
            pause = PAUSES[1];
            continue;
        }
        if std::mem::replace(&mut seen, recorder.sections) != recorder.sections {
            pause = PAUSES[0];
            continue;
        }
        let begun = Instant::now();
        recorder.before();
        guard = take(guard);
        if let Some(recorder) = guard.as_mut() {
            recorder.flush();
            seen = recorder.sections;
        }
        pause = (2 * pause).max(10 * begun.elapsed()).min(PAUSES[1].max(10 * begun.elapsed()));
    }
}
