// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program's calls of the driver. Each has a number, by which reports name it.

use std::backtrace::Backtrace;
use std::cell::Cell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use super::names::demangled;
use crate::settings;

/// The handler of signals, by its function's name (`device/src/guard/thread/chain.rs`).
const HANDLER: &str = "on_signal";
/// Number of frames of a stack by which callers are distinguished.
const MOST_FRAMES: usize = 64;

thread_local! {
    /// The current call of this thread: its number and the entry point.
    static CURRENT: Cell<(u64, &'static str)> = const { Cell::new((0, "")) };
    /// Number of nested entry points of this thread: some call others.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// A call of an entry point.
#[derive(Clone, Debug, Serialize)]
pub struct Call {
    /// The number of the call among those of the process, from 1.
    pub number: u64,
    /// The entry point.
    pub function: &'static str,
    /// The system's id of the thread.
    pub thread: i32,
    /// The functions of the program that led there, the innermost first; empty without `--stacks`.
    #[serde(skip_serializing_if = "Stack::is_empty", serialize_with = "frames")]
    pub stack: Stack,
}

/// An access by the program itself.
#[derive(Clone, Debug, Serialize)]
pub struct Host {
    /// The system's id of the thread.
    pub thread: i32,
    /// The functions of the program that led there, the innermost first.
    #[serde(serialize_with = "frames")]
    pub stack: Stack,
    /// The place, as a number ([`caller`]).
    #[serde(skip)]
    pub caller: u64,
}

/// The program's current place. Called in the handler of the signal that its access has caused.
pub fn host() -> Host {
    // SAFETY: the call takes no arguments and cannot fail.
    let thread = unsafe { libc::gettid() };
    let stack = Stack(Some(Arc::new(Backtrace::force_capture())));
    Host { thread, stack, caller: caller() }
}

/// The system's id of this thread.
pub fn thread() -> i32 {
    // SAFETY: the call takes no arguments and cannot fail.
    unsafe { libc::gettid() }
}

/// Whether this thread is in an entry point.
pub fn is_inside() -> bool {
    INSIDE.try_with(Cell::get).is_ok_and(|depth| depth != 0)
}

/// Marks this thread as being in an entry point, until this is dropped.
pub struct Inside(());

impl Drop for Inside {
    fn drop(&mut self) {
        let _ = INSIDE.try_with(|depth| depth.set(depth.get() - 1));
    }
}

/// The place in the program that has made the current call, as a number. It is equal for calls with the same
/// stack.
pub fn caller() -> u64 {
    let mut frames = [std::ptr::null_mut(); MOST_FRAMES];
    // SAFETY: the call writes at most as many addresses as there is room for.
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), MOST_FRAMES as i32) };
    let mut hasher = DefaultHasher::new();
    frames[..usize::try_from(count).unwrap_or(0)].hash(&mut hasher);
    hasher.finish()
}

/// A stack, whose functions are looked up when it is shown.
#[derive(Clone, Debug, Default)]
pub struct Stack(Option<Arc<Backtrace>>);

/// Notes that this thread is in the entry point of this name from now on.
#[cold]
pub fn enter(function: &'static str) -> Inside {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // After the thread-local destructors have run, it is not needed any more.
    let _ = CURRENT.try_with(|current| current.set((number, function)));
    let _ = INSIDE.try_with(|depth| depth.set(depth.get() + 1));
    Inside(())
}

/// The current call of this thread.
pub fn current() -> Call {
    let (number, function) = CURRENT.try_with(Cell::get).unwrap_or_default();
    // SAFETY: the call takes no arguments and cannot fail.
    let thread = unsafe { libc::gettid() };
    let stack = settings::get().checks.stacks.then(|| Arc::new(Backtrace::force_capture()));
    Call { number, function, thread, stack: Stack(stack) }
}

impl Stack {
    fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The program's functions, the innermost first, each with its place in the source if that is known.
    pub fn frames(&self) -> Vec<String> {
        let Some(stack) = &self.0 else { return Vec::new() };
        let text = stack.to_string();
        let mut frames: Vec<String> = Vec::new();
        for line in text.lines().map(str::trim) {
            if let Some(place) = line.strip_prefix("at ") {
                if let Some(last) = frames.last_mut() {
                    *last += &format!(" at {place}");
                }
            } else if let Some((_, function)) = line.split_once(": ") {
                frames.push(function.to_owned());
            }
        }
        // The frames above the entry point are the driver's; below it there may be the loader's function of the
        // same name, and those of its layers.
        let entry = frames.iter().rposition(|frame| is_entry_point(frame));
        frames.drain(..entry.map_or(0, |entry| entry + 1));
        // An access by the program was noted by the handler of its signal.
        let handler = frames.iter().rposition(|frame| name_of(frame) == HANDLER);
        frames.drain(..handler.map_or(0, |handler| handler + 1));
        let is_signal =
            |frame: &&String| frame.starts_with("__restore_rt") || frame.starts_with('<');
        let signal = frames.iter().take_while(is_signal).count();
        frames.drain(..handler.map_or(0, |_| signal));
        // A host function has callers in the driver, which are not of interest.
        if let Some(driver) = frames.iter().position(|frame| frame.starts_with("ze_tally::")) {
            frames.truncate(driver);
        }
        // The callers of main belong to the C library.
        if let Some(main) = frames.iter().position(|frame| name_of(frame) == "main") {
            frames.truncate(main + 1);
        }
        frames.iter().map(|frame| readable(frame)).collect()
    }
}

/// A frame with its function's name as in the source, which C++ has mangled.
fn readable(frame: &str) -> String {
    match frame.split_once(" at ") {
        Some((name, place)) => format!("{} at {place}", demangled(name)),
        None => demangled(frame),
    }
}

fn name_of(frame: &str) -> &str {
    let function = frame.split(" at ").next().unwrap_or(frame);
    function.rsplit("::").next().unwrap_or(function)
}

fn is_entry_point(frame: &str) -> bool {
    let name = name_of(frame);
    let rest = ["zer", "zes", "zet", "ze"].iter().find_map(|prefix| name.strip_prefix(prefix));
    rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
}

fn frames<S: serde::Serializer>(stack: &Stack, to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(stack.frames())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_points_are_told_by_their_names() {
        assert!(is_entry_point("zeMemFree at ./loader.cpp:12:3"));
        assert!(is_entry_point("ze_tally::api::memory::zeMemFree"));
        assert!(!is_entry_point("zebra at ./zoo.c:1:1") && !is_entry_point("main"));
    }

    #[test]
    fn frames_have_readable_names() {
        assert_eq!(
            readable("_ZN5tally4stepEPf at ./a b.cpp:12:3"),
            "tally::step(float*) at ./a b.cpp:12:3"
        );
        assert_eq!(readable("main"), "main");
    }

    #[test]
    fn calls_are_numbered_in_their_order() {
        drop(enter("zeA"));
        let first = current();
        let inside = enter("zeB");
        assert!(is_inside());
        let second = current();
        drop(inside);
        assert!(!is_inside());
        assert!(first.number < second.number);
        assert_eq!((first.function, second.function), ("zeA", "zeB"));
    }
}
