// SPDX-License-Identifier: MIT OR Apache-2.0
//! The adversarial but legal device (`Config::chaos`): it decides against the client
//! whatever SPEC.md leaves open.
//!
//! - A command that later ones may overtake is held back, up to [`MOST_HELD`]
//!   of a queue, until the queue would have to wait or is empty; then the held
//!   commands start in random order.
//! - Groups and blocks of a command run from the last to the first.
//! - Before packets and before signals there are pauses.
//! - A queue leaves its engine between packets, so that other queues run in between.
//!
//! Decisions depend only on the seed, the queue's number and the packet's place in
//! its ring, so a program that submits the same packets gets the same decisions
//! again. The decisions of the operating system's scheduler are not replayed.

use std::time::Duration;

use crate::host::QueueId;

/// The most commands of a queue that are held back.
pub(crate) const MOST_HELD: usize = 16;

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_micros(200);

/// The subject of a decision, so that decisions of one packet differ.
#[derive(Clone, Copy, Debug)]
pub(crate) enum About {
    /// A pause before a packet is taken.
    Start,
    /// A pause before a command signals.
    Signal,
    /// Whether a command is held back.
    Hold,
    /// The order in which commands that were held back start.
    Order,
    /// Whether units run backwards.
    Units,
    /// Whether the queue leaves its engine before a packet.
    Yield,
}

/// The source of decisions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chaos {
    seed: u64,
}

impl Chaos {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The decision on a packet of a queue: 64 pseudo-random bits.
    pub(crate) fn draw(&self, about: About, queue: QueueId, packet: u64) -> u64 {
        let mut bits = self.seed;
        for word in [about as u64, u64::from(queue.0), packet] {
            bits = mix(bits ^ word);
        }
        bits
    }

    /// True one time in `times`.
    pub(crate) fn one_in(&self, times: u64, about: About, queue: QueueId, packet: u64) -> bool {
        self.draw(about, queue, packet).is_multiple_of(times)
    }

    /// Sleeps, one time in four.
    pub(crate) fn pause(&self, about: About, queue: QueueId, packet: u64) {
        let bits = self.draw(about, queue, packet);
        if bits.is_multiple_of(4) {
            let longest = LONGEST_PAUSE.as_nanos() as u64;
            // A confined engine process may wait for a futex, but not sleep. An early return is fine.
            std::thread::park_timeout(Duration::from_nanos((bits >> 2) % longest));
        }
    }

    /// Shuffles a list.
    pub(crate) fn shuffle<T>(&self, list: &mut [T], queue: QueueId, packet: u64) {
        let mut bits = self.draw(About::Order, queue, packet);
        for last in (1..list.len()).rev() {
            bits = mix(bits);
            list.swap(last, (bits % (last as u64 + 1)) as usize);
        }
    }
}

/// One step of SplitMix64: different inputs have different outputs.
fn mix(bits: u64) -> u64 {
    let bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_replayed_and_differ_by_seed_queue_packet_and_kind() {
        let (one, two) = (Chaos::new(1), Chaos::new(2));
        let draw = |chaos: &Chaos, packet| chaos.draw(About::Start, QueueId(3), packet);
        assert_eq!(draw(&one, 7), draw(&Chaos::new(1), 7));
        let others = [
            draw(&two, 7),
            draw(&one, 8),
            one.draw(About::Signal, QueueId(3), 7),
            one.draw(About::Start, QueueId(4), 7),
        ];
        assert!(others.iter().all(|&other| other != draw(&one, 7)));
    }

    #[test]
    fn a_shuffle_keeps_all_and_changes_the_order() {
        let chaos = Chaos::new(5);
        let orders: Vec<Vec<u32>> = (0..50)
            .map(|packet| {
                let mut list: Vec<u32> = (0..8).collect();
                chaos.shuffle(&mut list, QueueId(1), packet);
                list
            })
            .collect();
        for order in &orders {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..8).collect::<Vec<u32>>());
        }
        assert!(orders.iter().any(|order| order[0] != orders[0][0]));
    }
}
