// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that are known to be published, in a ring or in a recording, and copying them.

use std::arch::x86_64::{__m128i, _mm_set_epi64x};
use std::sync::atomic::Ordering;

use tally_uapi::packet::{Header, PACKET_SIZE, Packet};

use crate::guard::{Guard, word};

/// The most prefixes of a command: one of each kind.
const PREFIXES: u64 = 2;

/// The packets from one index to another, exclusive, of an array that may wrap around.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    /// VA of the array.
    pub(crate) base: u64,
    /// The bits of an index that select the place in the array.
    pub(crate) mask: u64,
    pub(crate) next: u64,
    pub(crate) end: u64,
}

impl Ahead {
    fn slot(&self, index: u64) -> u64 {
        self.base.wrapping_add((index & self.mask) * PACKET_SIZE)
    }

    /// Copies the next packet, once. False: there is none.
    ///
    /// # Safety
    /// In a guarded call; the array is aligned for packets.
    #[inline]
    pub(crate) unsafe fn take(&mut self, packet: &mut Packet) -> bool {
        if self.next == self.end {
            return false;
        }
        let slot = self.slot(self.next);
        let to = std::ptr::from_mut(packet).cast::<__m128i>();
        for i in 0..4 {
            let from = slot + i as u64 * 16;
            // SAFETY: aligned, as the caller promises; traps if there is no memory.
            let [low, high] =
                [from, from + 8].map(|at| unsafe { word(at) }.load(Ordering::Relaxed));
            // Written in pairs: the next reads are of this size, and a read across two stores waits for both.
            // SAFETY: a packet has four of these and their alignment; any CPU has the instruction.
            unsafe { to.add(i).write(_mm_set_epi64x(high as i64, low as i64)) };
        }
        self.next += 1;
        true
    }

    /// The places of the next packet and of those that may follow if it is a prefix.
    fn command_slots(&self) -> impl Iterator<Item = u64> {
        let end = self.end.min(self.next.saturating_add(PREFIXES + 1));
        (self.next..end).map(|index| self.slot(index))
    }

    /// Reads the header of the next command or wait, prefixes skipped. None: it is not known to be published.
    ///
    /// # Safety
    /// The same as for [`Self::take`].
    #[inline]
    pub(crate) unsafe fn header(&self) -> Option<Header> {
        self.command_slots().find_map(|slot| {
            // SAFETY: as the caller promises; traps if there is no memory.
            let word = unsafe { word(slot) }.load(Ordering::Relaxed);
            let header: Header = zerocopy::transmute!(word);
            (!header.is_prefix()).then_some(header)
        })
    }

    /// Reads the next command or wait, without its prefixes. None: it is not known to be published.
    pub(crate) fn peek(&self, guard: &mut Guard) -> Option<Packet> {
        for slot in self.command_slots() {
            let packet: Packet = guard.read(slot).ok()?;
            if !packet.header.is_prefix() {
                return Some(packet);
            }
        }
        None
    }
}
