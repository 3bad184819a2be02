// SPDX-License-Identifier: MIT OR Apache-2.0
//! The producer of a queue: writes packets into its ring, publishes them, wakes the device.
//!
//! A full ring is followed by a larger one (a LINK packet), so that a parked queue never blocks a thread
//! that appends to it; the total size of a queue's rings is limited.
//! (`device/SPEC.md`, chapter 3.)

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tally_uapi::PAGE_SIZE;
use tally_uapi::ioctl::{QueueCreate, QueueDestroy, QueueKick, QueueQuery};
use tally_uapi::packet::{self, Header, Link, PACKET_SIZE, Packet, opcode};
use tally_uapi::queue::{QueueControl, RING_MAX_PACKETS};
use tally_ze::ze_result_t;

use crate::error::{Error, Result};
use crate::submit::activity;
use crate::vm::Vm;
use crate::vm::heap::Block;

/// Number of packets of a queue's first ring.
const FIRST_PACKETS: u32 = 256;
/// Largest number of packets in all rings of a queue: 64 MiB.
const MAX_PACKETS: u64 = 1 << 20;

/// Largest number of packets between two KICKs of a queue whose wake is deferred.
const FARTHEST: u64 = 8;

/// The engine that a queue runs on.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Engine class.
    pub class: u32,
    /// The index of the engine in its class.
    pub index: u32,
    /// One of `tally_uapi::ioctl::priority`.
    pub priority: u32,
    /// The number of the device for which the queue is created.
    pub device: u32,
}

/// A queue of the device and the producer's side of it. Dropping it destroys the queue.
///
/// Between [`Ring::reserve`] and [`Ring::publish`] or [`Ring::rollback`] packets are written that
/// the device does not see yet.
pub struct Ring {
    vm: Arc<Vm>,
    queue: u32,
    control: Block,
    current: Segment,
    /// Rings before the current one, with the number of the LINK that left them.
    left: Vec<(Segment, u64)>,
    /// Number of the next packet.
    next: u64,
    /// Number of published packets.
    published: u64,
    /// Number of packets that were published at the last KICK that a wake follows.
    rung: u64,
    /// The last KICK whose wake the device has deferred.
    deferred: Deferred,
    /// The last value read from `head`.
    head: u64,
    /// Whether something has to be done before packets are published.
    attended: bool,
}

/// A device that has deferred a wake needs no other KICK, but further ones show it that the host continues
/// to submit instead of waiting. The first ones follow closely, for a host that is slow between two
/// packets; for packets in quick succession they would cost more than the packets themselves.
#[derive(Default)]
struct Deferred {
    /// Number of packets that were published at the last KICK.
    at: u64,
    /// Number of packets from there to the next KICK.
    apart: u64,
}

/// One ring in memory.
struct Segment {
    memory: Block,
    packets: u64,
    /// Number of the first packet in it.
    first: u64,
}

impl Segment {
    fn new(vm: &Vm, packets: u64, first: u64) -> Result<Self> {
        let memory = vm.heap().alloc(packets * PACKET_SIZE, PACKET_SIZE)?;
        Ok(Self { memory, packets, first })
    }

    fn read(&self, number: u64) -> Packet {
        let slot = (number & (self.packets - 1)) as usize;
        // SAFETY: the memory has aligned room for `packets` packets; only this side writes it, and any bits
        // are a packet.
        unsafe { self.memory.ptr().cast::<Packet>().add(slot).read() }
    }

    #[inline]
    fn write(&mut self, number: u64, packet: Packet) {
        let slot = (number & (self.packets - 1)) as usize;
        // SAFETY: the memory has aligned room for `packets` packets; `reserve` has made sure that the device
        // no longer uses the slot.
        unsafe { self.memory.ptr().cast::<Packet>().add(slot).write(packet) };
    }
}

impl Ring {
    /// Creates a queue.
    ///
    /// # Errors
    /// OUT_OF_DEVICE_MEMORY, OUT_OF_HOST_MEMORY, DEVICE_LOST.
    pub fn create(vm: &Arc<Vm>, place: Place) -> Result<Self> {
        let current = Segment::new(vm, u64::from(FIRST_PACKETS), 0)?;
        let control = vm.heap().alloc(PAGE_SIZE, PAGE_SIZE)?;
        // SAFETY: the block is a page of its own, larger than the struct and aligned for it.
        unsafe { control.ptr().cast::<QueueControl>().write(QueueControl::new()) };
        let mut create = QueueCreate {
            vm_id: vm.id(),
            engine_class: place.class,
            engine_index: place.index,
            priority: place.priority,
            ring: current.memory.va(),
            control: control.va(),
            packets: FIRST_PACKETS,
            ..Default::default()
        };
        let made = vm.backend().queue_create(&mut create);
        made.map_err(|errno| vm.failed("QUEUE_CREATE", errno))?;
        let engine = (place.class, place.index);
        activity::begin(Arc::downgrade(vm), create.queue_id, engine);
        let ring = Self {
            vm: vm.clone(),
            queue: create.queue_id,
            control,
            current,
            left: Vec::new(),
            next: 0,
            published: 0,
            rung: 0,
            deferred: Deferred::default(),
            head: 0,
            attended: crate::log::wants_packets() || vm.has_views(),
        };
        vm.trace_queue(ring.control(), ring.queue, engine);
        Ok(ring)
    }

    /// Reserves room for `packets` more packets.
    ///
    /// # Errors
    /// OUT_OF_HOST_MEMORY: the queue is parked and full. Those of the heap.
    #[inline]
    pub fn reserve(&mut self, packets: usize) -> Result {
        debug_assert_eq!(self.next, self.published, "packets of another call are pending");
        // One slot is always reserved for the LINK.
        if self.free() > packets as u64 { Ok(()) } else { self.make_room(packets as u64) }
    }

    /// Writes a packet into the next slot.
    #[inline]
    pub fn push(&mut self, packet: Packet) {
        debug_assert!(self.free() > 1, "more packets than were reserved");
        self.current.write(self.next, packet);
        self.next += 1;
    }

    /// Discards the packets that were written since the last publication.
    pub fn rollback(&mut self) {
        self.next = self.published;
    }

    /// Publishes the written packets to the device.
    ///
    /// # Errors
    /// DEVICE_LOST.
    #[inline]
    pub fn publish(&mut self) -> Result {
        if self.next == self.published {
            return Ok(());
        }
        if self.attended {
            self.before_publication();
        }
        self.published = self.next;
        if self.control().publish(self.next) { self.ring_doorbell() } else { Ok(()) }
    }

    #[cold]
    fn before_publication(&self) {
        self.vm.flush_host();
        if crate::log::wants_packets() {
            self.log();
        }
    }

    /// Writes the packets that are about to be published to the log.
    fn log(&self) {
        let written = (self.published..self.next).map(|number| {
            // A LINK is published after its ring has been left.
            let left = self.left.last().filter(|_| number < self.current.first);
            (number, left.map_or(&self.current, |(ring, _)| ring).read(number))
        });
        let owner = format_args!("queue {}", self.queue);
        crate::log::packets(owner, packet::Place::Ring, written);
    }

    /// The queue's state.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn query(&self) -> Result<QueueQuery> {
        let mut query = QueueQuery { queue_id: self.queue, ..Default::default() };
        let answer = self.vm.backend().queue_query(&mut query);
        answer.map(|()| query).map_err(|errno| self.vm.failed("QUEUE_QUERY", errno))
    }

    /// Number of the next packet.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The packets that the device has not finished, with their numbers.
    pub fn pending(&self) -> impl Iterator<Item = (u64, Packet)> {
        let head = self.control().head.load(Ordering::Acquire);
        let left = self.left.iter().map(|(ring, link)| (ring, *link + 1));
        left.chain([(&self.current, self.published)]).flat_map(move |(ring, end)| {
            (ring.first.max(head)..end).map(|number| (number, ring.read(number)))
        })
    }

    /// The VM.
    pub fn vm(&self) -> &Arc<Vm> {
        &self.vm
    }

    #[inline]
    fn control(&self) -> &QueueControl {
        // SAFETY: `create` wrote a `QueueControl` there; both sides only use its atomics.
        unsafe { self.control.ptr().cast().as_ref() }
    }

    /// Number of free slots of the current ring, as far as is known.
    #[inline]
    fn free(&self) -> u64 {
        self.current.packets - (self.next - self.head.max(self.current.first))
    }

    #[cold]
    fn make_room(&mut self, packets: u64) -> Result {
        self.head = self.control().head.load(Ordering::Acquire);
        let head = self.head;
        self.left.retain(|(_, link)| *link >= head);
        if self.free() > packets {
            return Ok(());
        }
        let want = (packets + 2).next_power_of_two().max(self.current.packets * 2);
        let used: u64 = self.left.iter().map(|(ring, _)| ring.packets).sum();
        if want > u64::from(RING_MAX_PACKETS) || used + self.current.packets + want > MAX_PACKETS {
            return Err(Error::new(
                ze_result_t::ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY,
                format!(
                    "the queue waits and holds {} packets already; {packets} more are too many",
                    self.next - head
                ),
            ));
        }
        let ring = Segment::new(&self.vm, want, self.next + 1)?;
        let header = Header { opcode: opcode::LINK, param: want as u32, ..Default::default() };
        let link = Link { header, ring: ring.memory.va(), zero: [0; 6] };
        self.current.write(self.next, link.into());
        let old = std::mem::replace(&mut self.current, ring);
        self.left.push((old, self.next));
        self.next += 1;
        // Published at once, so that a rollback never undoes it.
        self.publish()
    }

    #[cold]
    fn ring_doorbell(&mut self) -> Result {
        if self.control().owes_wake(self.rung) {
            return Ok(());
        }
        let goes_on = self.control().owes_wake(self.deferred.at);
        if goes_on && self.published < self.deferred.at + self.deferred.apart {
            return Ok(());
        }
        let kick = QueueKick { queue_id: self.queue, pad: 0 };
        let deferred = self.vm.backend().queue_kick(&kick);
        if deferred.map_err(|errno| self.vm.failed("QUEUE_KICK", errno))? {
            let apart = if goes_on { (2 * self.deferred.apart).min(FARTHEST) } else { 1 };
            self.deferred = Deferred { at: self.published, apart };
        } else {
            self.rung = self.published;
        }
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if crate::process::is_gone() {
            return;
        }
        activity::end(&self.vm, &Arc::downgrade(&self.vm), self.queue);
        let destroy = QueueDestroy { queue_id: self.queue, pad: 0 };
        if let Err(errno) = self.vm.backend().queue_destroy(&destroy) {
            log::error!("QUEUE_DESTROY: {}", errno.name());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::fake::Fake;

    fn ring() -> (Arc<Fake>, Ring) {
        let (fake, vm) = crate::vm::tests::fake();
        let ring = Ring::create(&vm, Place { class: 0, index: 0, priority: 1, device: 0 });
        (fake, ring.expect("a queue"))
    }

    fn doorbells(fake: &Fake) -> u32 {
        fake.state().doorbells
    }

    fn append(ring: &mut Ring) {
        ring.reserve(1).expect("room");
        ring.push(Packet::default());
        ring.publish().expect("a device");
    }

    /// SPEC.md, Publishing: "If `asleep` is 1, the producer issues a KICK, unless `head` is still below
    /// the `tail` of its last KICK".
    #[test]
    fn a_sleeping_device_gets_one_doorbell_until_it_has_slept_again() {
        let (fake, mut ring) = ring();
        (0..3).for_each(|_| append(&mut ring));
        assert_eq!(doorbells(&fake), 1, "it has yet to answer");
        ring.control().device_wakes();
        append(&mut ring);
        assert_eq!(doorbells(&fake), 1, "it is awake");
        ring.control().head.store(4, Ordering::Release);
        assert!(ring.control().device_may_sleep(4));
        append(&mut ring);
        assert_eq!(doorbells(&fake), 2, "it sleeps again");
    }

    #[test]
    fn a_device_that_defers_the_wake_sees_by_further_doorbells_that_the_host_goes_on() {
        let (fake, mut ring) = ring();
        fake.state().defers = true;
        let mut rung = Vec::new();
        for packet in 1..=24 {
            let before = doorbells(&fake);
            append(&mut ring);
            if doorbells(&fake) > before {
                rung.push(packet);
            }
        }
        assert_eq!(rung, [1, 2, 4, 8, 16, 24]);
    }

    #[test]
    fn a_device_that_wakes_a_worker_at_last_gets_no_more_doorbells() {
        let (fake, mut ring) = ring();
        fake.state().defers = true;
        append(&mut ring);
        fake.state().defers = false;
        (0..24).for_each(|_| append(&mut ring));
        assert_eq!(doorbells(&fake), 2);
    }

    /// The distance between KICKs applies only while a wake is deferred: otherwise a sleeping device gets a
    /// doorbell at once.
    #[test]
    fn a_device_that_has_slept_since_it_deferred_the_wake_gets_a_doorbell_with_the_next_packet() {
        let (fake, mut ring) = ring();
        fake.state().defers = true;
        (0..8).for_each(|_| append(&mut ring));
        let before = doorbells(&fake);
        ring.control().device_wakes();
        ring.control().head.store(8, Ordering::Release);
        assert!(ring.control().device_may_sleep(8));
        for doorbells_since in 1..=2 {
            append(&mut ring);
            assert_eq!(doorbells(&fake) - before, doorbells_since, "closely again");
        }
    }
}
