// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers by which the device trades latency against processor time. Results are right with any value; only
//! the times change. Times are of the device's clock (ticks of 1 ns) or durations.
//!
//! "Without" gives how much longer something takes if only this mechanism is switched off, in per cent, in one
//! thread and in 16 on 16 processors: docs/figures.md, "Mechanisms".

use std::time::Duration;

/// A time, or that of shuttle's models in nanoseconds: their clock advances by 400 ns with each look at it, and a
/// thread's actions between two looks take no time. So their threads fall asleep as often as real ones.
const fn or_model(time: Duration, model: u64) -> Duration {
    if cfg!(shuttle) { Duration::from_nanos(model) } else { time }
}

/// Time for which a worker that just had work searches for more before it sleeps. A wake costs a virtual
/// machine 5 to 25 µs, so a burst with shorter gaps than this is served without one. Without: nothing and 40
/// when now and then a thread asks for the end of a kernel instead of waiting for it.
pub(crate) const IDLE_SPIN: Duration = or_model(Duration::from_micros(20), 800);

/// Time for which a worker polls an empty ring before its queue sleeps and the next packet needs a doorbell.
/// Without: 21 and 19 in streams of empty kernels.
pub(crate) const EMPTY_SPIN: Duration = or_model(Duration::from_micros(10), 0);
/// Number of packets after which the producer is told `head`, if the ring is not smaller than four times that.
/// The producer reads `asleep` in the same line with each packet, so telling it each time would cost both sides
/// a cache miss. Without: 59 and 32 in streams of copies of 64 bytes.
pub(crate) const TOLD_EVERY: u64 = 16;
/// The most commands of a recording that are executed inline in one guarded call: the costs that they share are
/// then small compared to their own. Without: 125 and 106 in a recorded list of 256 copies of 64 bytes.
pub(crate) const INLINE_SERIES: u64 = 16;

/// The thread that starts a dispatch of at most this many ticks, by its kernel's earlier times, runs it alone:
/// waking others would take longer. Without: 393 and 3,500 in streams of kernels of 16 groups.
pub(crate) const QUICK_TICKS: u64 = 15_000;
/// The same for a copy of at most this many units of 256 KiB. Without, copies of 1 MiB: -25 (processor time 236)
/// and 42.
pub(crate) const FEW_BLOCKS: u64 = 4;
/// The same for a fill of at most this many units that no other work follows: it reads nothing, and ends before
/// another worker is awake. Without, fills of 1 MiB: 0 (processor time 303) and 131.
pub(crate) const FEW_FILL_BLOCKS: u64 = 16;
/// Each thread that is woken for a dispatch gets at least this many ticks of it: less is not worth the wake and
/// the search for more that follows. Without: 23 and 31 in streams of empty kernels.
pub(crate) const WORTH_A_WAKE: u64 = 20_000;
/// A thread that is woken for a dispatch that takes this many ticks in all runs on another processor than its waker,
/// which takes the waker 10,000 to 15,000 on two or three processors; with more it is not needed. Without, seven
/// kernels of 0.8 ms after a pause, on two processors: 2 to 90 in the median.
pub(crate) const WORTH_A_PLACE: u64 = 100_000;
/// A dispatch is cut into a part for each thread if it takes each of them at least this many ticks, by its kernel's
/// earlier times, and ...
/// Without parts, `o[i] = a[i] * 2` with 2 to 4 MiB in all, on two processors: 12 to 23; with 8 to 32 MiB on 16
/// processors: 9 to 40.
pub(crate) const WORTH_A_PART: u64 = 20_000;
/// ... this many more for each thread, which is how much later the last one comes. Shorter dispatches gain nothing.
pub(crate) const LATE: u64 = 2_000;
/// Intended duration of a claim of units, in ticks: short compared to the tick of the watchdog, long compared to
/// the cost of a claim.
/// Without: 140 in six kernels on 16 processors, 47 on two.
pub(crate) const CLAIM_TICKS: u64 = 200_000;

/// The watchdog's tick: time for which a piece of work may keep a thread before others get a substitute.
pub(crate) const TICK: Duration = or_model(Duration::from_millis(5), 8_000);
/// Ticks without work or doorbells before the watchdog sleeps: waking it costs more than these. Without: 63 and 17
/// of processor time in round trips with 12 ms of sleep before each.
pub(crate) const QUIET_TICKS: u32 = 4;
/// Foreign cells are read again after this time, then after twice as long, ...
pub(crate) const FOREIGN_FIRST: Duration = Duration::from_micros(50);
/// ... up to this time.
pub(crate) const FOREIGN_LAST: Duration = Duration::from_millis(10);
/// Time in ticks between two reads of foreign cells at the ends of commands.
pub(crate) const FOREIGN_APART: u64 = 50_000;

/// Times in a row that a host thread blocks right after its doorbell before the wake is deferred. Without wake
/// elision: 219 in round trips of 16 threads; on two processors 33 to 38 of processor time in streams.
pub(crate) const ELISION_TURNS: u32 = 4;
/// The most such times: each miss of the thread doubles them, since its queue then waits for the watchdog.
/// Without: 130 to 270 when after eight waits a thread looks for a copy's result in memory, on two processors.
pub(crate) const ELISION_MOST_TURNS: u32 = 256;
/// Number of arrivals in a row after which older misses are forgiven.
pub(crate) const ELISION_FORGIVEN: u32 = 1024;
/// Time after its first doorbell, in ticks, within which a thread arrives in time: no longer than a wake takes.
pub(crate) const ELISION_SOON: u64 = 30_000;
/// The largest time between doorbells, in ticks, for which the watchdog is woken because of them: it stays awake
/// for as long.
pub(crate) const ELISION_WATCHED: u64 = 15_000_000;
/// Time in ticks for which a thread may keep submitting before it is considered one that does not block: longer
/// than 64 appends take on a slow machine, and less than [`ELISION_SOON`], by which it has to arrive.
pub(crate) const ELISION_BURST: u64 = 20_000;
const _: () = assert!(ELISION_BURST < ELISION_SOON);
