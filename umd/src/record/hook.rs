// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens instead of a call: it is made and recorded, and the device gets its turn.

use tally_ze::call::Words;
use tally_ze::*;

use super::recorder::{Guard, Recorder};
use super::settle::Settled;
use super::threads::Inside;
use super::turn;
use crate::api::{list, queue};
use crate::error::Error;
use crate::handle::RawHandle;
use crate::recording::Value;
use crate::recording::calls::{Class, ROWS, Row};
use crate::space;

/// Makes a call and records it.
///
/// # Safety
/// The words are arguments as the specification wants them.
pub unsafe fn called(
    call: usize,
    words: &Words,
    real: &dyn Fn(&Words) -> ze_result_t,
) -> ze_result_t {
    let row = &ROWS[call];
    let _inside = Inside::begins();
    let mut guard = turn::lock_for_call();
    if guard.is_none() {
        *guard = Recorder::begin(turn::around_function);
    }
    let Some(recorder) = guard.as_mut().filter(|it| it.file.is_some()) else {
        drop(guard);
        return real(words);
    };
    if row.class == Class::NotKept {
        recorder.not_kept(format!("what {} brings", row.name));
        drop(guard);
        return real(words);
    }
    // SAFETY: as the caller promises.
    let Some(encoded) = (unsafe { recorder.encode(row, words) }) else {
        recorder.not_kept(format!("{} of an object that is not known", row.name));
        drop(guard);
        return real(words);
    };
    if recorder.refuses(row, words) {
        let why = Error::invalid("hCommandList: it is synchronous");
        crate::error::set_last(row.name, &why);
        return why.code();
    }
    if row.name == "zeMemFreeExt" {
        return freed(guard, call, words, real, encoded.values);
    }
    let result = if row.class == Class::Waits {
        if recorder.settled != Settled::Idle {
            recorder.before();
            guard = turn::take(guard);
        }
        flush(&mut guard);
        drop(guard);
        let result = real(words);
        guard = turn::lock_for_call();
        if let Some(recorder) =
            guard.as_mut().filter(|_| result != ze_result_t::ZE_RESULT_NOT_READY)
        {
            recorder.after_wait();
            recorder.keep(call, result, encoded.values);
            if recorder.settled != Settled::Idle {
                guard = turn::take(guard);
            }
            flush(&mut guard);
        }
        return result;
    } else {
        // SAFETY: as the caller promises.
        let (result, goes_on) = unsafe { recorder.made(call, row, words, real, encoded) };
        if goes_on {
            flush(&mut guard);
            guard = turn::take(guard);
            flush(&mut guard);
        }
        result
    };
    // The rest of a call that waits for its command.
    let follow = guard.as_mut().and_then(|it| follow(it, row, words, result));
    drop(guard);
    match follow {
        // SAFETY: the handle is one that the caller has passed for this call.
        Some((handle, wait)) => unsafe { wait(handle) },
        None => result,
    }
}

/// Makes and records a call that frees memory and may wait for the device, and so for what other threads do.
fn freed(
    mut guard: Guard,
    call: usize,
    words: &Words,
    real: &dyn Fn(&Words) -> ze_result_t,
    values: Vec<Value>,
) -> ze_result_t {
    let address = words.as_slice().get(2).copied().unwrap_or_default();
    if let Some(recorder) = guard.as_mut().filter(|it| it.settled != Settled::Idle) {
        recorder.before();
        guard = turn::take(guard);
    }
    // From here on the memory may be gone at any time, so the recorder must not read it.
    let removed = guard.as_mut().and_then(|it| it.memory.remove(address));
    flush(&mut guard);
    drop(guard);
    let result = real(words);
    guard = turn::lock_for_call();
    if let Some(recorder) = guard.as_mut() {
        if let Some((owner, size)) = removed.filter(|_| result != ze_result_t::ZE_RESULT_SUCCESS) {
            recorder.memory.add(address, size, owner, true);
        }
        recorder.after_wait();
        recorder.keep(call, result, values);
        if recorder.settled != Settled::Idle {
            guard = turn::take(guard);
        }
        flush(&mut guard);
    }
    result
}

fn flush(guard: &mut Guard) {
    if let Some(recorder) = guard.as_mut() {
        recorder.flush();
    }
}

/// Waits for all of a list or a queue, through the recorder.
type Follow = unsafe fn(u64) -> ze_result_t;

unsafe fn wait_for(name: &str, handle: u64, real: &dyn Fn(&Words) -> ze_result_t) -> ze_result_t {
    let mut words = Words::default();
    words.push(handle);
    words.push(u64::MAX);
    let call = ROWS.iter().position(|row| row.name == name).unwrap_or_default();
    // SAFETY: a handle of the kind, as the caller promises, and a time.
    unsafe { called(call, &words, real) }
}

unsafe fn wait_for_list(handle: u64) -> ze_result_t {
    let raw = ze_command_list_handle_t::from_ptr(space::pointer(handle).cast());
    // SAFETY: the caller's handle.
    unsafe {
        wait_for("zeCommandListHostSynchronize", handle, &|_| {
            list::zeCommandListHostSynchronize(raw, u64::MAX)
        })
    }
}

unsafe fn wait_for_queue(handle: u64) -> ze_result_t {
    let raw = ze_command_queue_handle_t::from_ptr(space::pointer(handle).cast());
    // SAFETY: the caller's handle.
    unsafe {
        wait_for("zeCommandQueueSynchronize", handle, &|_| {
            queue::zeCommandQueueSynchronize(raw, u64::MAX)
        })
    }
}

/// What a call to a synchronous list or queue still has to do.
fn follow(
    recorder: &Recorder,
    row: &Row,
    words: &Words,
    result: ze_result_t,
) -> Option<(u64, Follow)> {
    let raw = words.as_slice().first().copied()?;
    let submits = matches!(row.class, Class::Appends | Class::Submits);
    let target = recorder.targets.get(recorder.objects.get(&raw)?).filter(|it| it.synchronous)?;
    if !submits || result != ze_result_t::ZE_RESULT_SUCCESS {
        return None;
    }
    Some((raw, if target.immediate { wait_for_list } else { wait_for_queue }))
}
