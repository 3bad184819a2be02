// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits that the process sets for itself, so that no build can exhaust the machine.

use std::sync::OnceLock;
use std::{env, thread};

/// Address space in bytes; `TALLY_COMPILER_MEMORY` (in MiB) overrides it.
const MEMORY_BYTES: u64 = 8 << 30;

/// Processor time of one build on each processor, in seconds; `TALLY_COMPILER_TIME` overrides it.
const BUILD_SECONDS: u64 = 120;

/// Limits the address space: an allocation beyond it fails, which ends the process. A process that dies
/// leaves no core file in the application's folder.
pub(super) fn set() {
    lower_soft_limit(libc::RLIMIT_CORE, 0);
    let chosen = number("TALLY_COMPILER_MEMORY").and_then(|mib| mib.checked_mul(1 << 20));
    let bytes = chosen.unwrap_or(MEMORY_BYTES);
    lower_soft_limit(libc::RLIMIT_AS, bytes);
}

/// A setting, if it is set to a number.
fn number(name: &str) -> Option<u64> {
    env::var(name).ok().and_then(|value| value.parse().ok())
}

/// The number of processors available to the process when this was first called.
pub(super) fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| thread::available_parallelism().map_or(1, usize::from))
}

/// Gives a build its processor time from now on. When it is used up, SIGXCPU ends the process.
pub(super) fn allow_time() {
    let threads = processors() as u64;
    let seconds = number("TALLY_COMPILER_TIME").unwrap_or(BUILD_SECONDS).saturating_mul(threads);
    lower_soft_limit(libc::RLIMIT_CPU, used_seconds().saturating_add(seconds));
}

/// The processor time that the process has used, in seconds.
fn used_seconds() -> u64 {
    // SAFETY: all-zero bytes are a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid place for the answer.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) } != 0 {
        return 0;
    }
    (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec).unsigned_abs()
}

/// Sets a soft limit, within the hard one. A limit that can't be set is left as it is.
fn lower_soft_limit(resource: libc::__rlimit_resource_t, value: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for the answer.
    if unsafe { libc::getrlimit(resource, &mut limit) } == 0 {
        limit.rlim_cur = value.min(limit.rlim_max);
        // SAFETY: `limit` is initialised, and its hard limit is the present one.
        unsafe { libc::setrlimit(resource, &limit) };
    }
}
