// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ear receives an engine process's messages about its cells and faults. Any
//! of them may be false; then it wakes a thread needlessly, or loses its own VM.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tally_uapi::cell::WAITERS;
use tally_uapi::fault::{Fault, FaultKind};
use tally_uapi::firmware::MAX_QUEUES;

use super::link::{Link, Loss};
use crate::links::Links;

/// The number of times that an engine process is heard in [`WINDOW`]: more than an honest process
/// needs, fewer than would keep the guest busy with interrupts.
const ROUNDS: u32 = 50;
const WINDOW: Duration = Duration::from_millis(1);

/// Enforces the bound.
struct Pace {
    rounds: u32,
    since: Instant,
}

impl Pace {
    fn keep(&mut self) {
        self.rounds += 1;
        if self.rounds == ROUNDS {
            std::thread::sleep(WINDOW.saturating_sub(self.since.elapsed()));
            *self = Self { rounds: 0, since: Instant::now() };
        }
    }
}

/// Listens until the process has ended.
pub(super) fn listen(link: &Link, links: &Links) {
    let to_hub = &link.mailbox.to_hub;
    let mut pace = Pace { rounds: 0, since: Instant::now() };
    while !link.deaf.load(Ordering::SeqCst) {
        pace.keep();
        let seen = to_hub.bell.rings();
        to_hub.changed.take().for_each(|bucket| update(link, links, bucket));
        to_hub.signalled.take().for_each(|bucket| links.signalled(link.vm, bucket));
        if to_hub.lost.swap(0, Ordering::SeqCst) != 0 && link.lose(fault(link)) {
            links.status.lost(link.vm);
        }
        if !link.deaf.load(Ordering::SeqCst) {
            to_hub.bell.wait(seen);
        }
    }
    for bucket in (0..WAITERS).filter(|&bucket| link.is_counted(bucket)) {
        links.waiters.leave(bucket);
    }
    link.counted.iter().for_each(|word| word.store(0, Ordering::SeqCst));
}

/// Counts the VM's queues in the waiters page, or ends the count. Queues that
/// are newly counted look again, since a signal may have arrived just before.
fn update(link: &Link, links: &Links, bucket: usize) {
    let waits = link.mailbox.to_hub.waiters[bucket].load(Ordering::SeqCst) != 0;
    let bit = 1 << (bucket % 64);
    match (link.is_counted(bucket), waits) {
        (false, true) => {
            // Set before the count: a signaller that sees the count must find this VM in the list.
            link.counted[bucket / 64].fetch_or(bit, Ordering::SeqCst);
            links.waiters.enter(bucket);
            link.recheck(bucket);
        }
        (true, false) => {
            links.waiters.leave(bucket);
            link.counted[bucket / 64].fetch_and(!bit, Ordering::SeqCst);
        }
        _ => {}
    }
}

/// The fault that the process reports, each number read once.
fn fault(link: &Link) -> Loss {
    let words = &link.mailbox.to_hub.fault;
    let [queue, kind, address, packet] =
        [0, 1, 2, 3].map(|i: usize| words[i].load(Ordering::SeqCst));
    let kind = u32::try_from(kind).ok().and_then(FaultKind::from_raw);
    let queue = u32::try_from(queue).ok().filter(|id| (1..=MAX_QUEUES).contains(id));
    let kind = kind.unwrap_or(FaultKind::EngineLost);
    Loss { queue, fault: Fault { kind, address, packet } }
}
