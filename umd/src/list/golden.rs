// SPDX-License-Identifier: MIT OR Apache-2.0
//! Golden packets: the packets that the lists write for each call, as text in `umd/tests/golden`.
//!
//! The device does not run here, so no counter changes. TALLY_BLESS=1 writes the files anew. Addresses
//! print as names: those that the test gives, and `@n` for the rest.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs};

use tally_uapi::disasm::Line;
use tally_uapi::ioctl::priority;
use tally_uapi::packet::{Call, Command as Packets, Operand, Packet, Place as Stands, Region};
use tally_uapi::queue::QueueControl;
use tally_ze::{ze_event_counter_based_flags_t as CbFlags, ze_event_handle_t};

use super::command::{Command, Times};
use super::fast_path::{self, Kernel};
use super::immediate::Immediate;
use super::launch::{Groups, Launch};
use super::prebuilt::Prebuilt;
use super::regular::Regular;
use super::target::Signal;
use crate::backend::fake::Fake;
use crate::submit::ring::Place;
use crate::sync::cb_event::{CbEvent, External, HostWord};
use crate::sync::event::{Event, EventKind, Traits};
use crate::sync::event_pool::EventPool;
use crate::sync::shared::Shared;
use crate::vm::Vm;
use crate::vm::tests::fake;

struct Golden {
    fake: Arc<Fake>,
    vm: Arc<Vm>,
    pool: Arc<EventPool>,
    names: BTreeMap<u64, String>,
    text: String,
    /// Number of packets that were printed, by queue.
    printed: BTreeMap<u32, u64>,
}

impl Golden {
    fn new() -> Self {
        let (fake, vm) = fake();
        let pool = EventPool::regular(&Shared::of(&vm), 16, false).expect("room");
        let (names, printed) = (BTreeMap::new(), BTreeMap::new());
        Self { fake, vm, pool, names, text: String::new(), printed }
    }

    fn shared(&self) -> Arc<Shared> {
        Shared::of(&self.vm)
    }

    fn immediate(&mut self, name: &str, in_order: bool) -> Arc<Immediate> {
        let place = Place { class: 0, index: 0, priority: priority::NORMAL, device: 0 };
        let list = Immediate::create(self.shared(), place, in_order, false).expect("room");
        self.names.insert(list.cell().va(), name.to_owned());
        list
    }

    fn regular(&self, in_order: bool) -> Arc<Regular> {
        Regular::create(self.shared(), in_order).expect("room")
    }

    fn event(&mut self, name: &str, timestamps: bool) -> Event {
        let index = (0..).find(|&it| self.pool.place(it).is_ok()).expect("room");
        let place = self.pool.place(index).expect("it is free");
        self.names.insert(place.cell().va(), name.to_owned());
        self.names.insert(place.resets().va(), format!("{name}.resets"));
        self.names.insert(place.slot(), format!("{name}.times"));
        let traits = Traits { timestamps, ..Default::default() };
        Event::new(&self.shared(), EventKind::Regular(place), traits, Some(self.pool.clone()))
    }

    fn cb_event(&self, timestamps: bool) -> Event {
        let kind = EventKind::CounterBased(CbEvent::completed());
        let cb_flags = CbFlags::all().bits();
        let traits = Traits { timestamps, cb_flags, ..Default::default() };
        Event::new(&self.shared(), kind, traits, None)
    }

    /// Prints what was published since the last time, under a title.
    fn print(&mut self, title: &str) -> usize {
        writeln!(self.text, "{title}").expect("strings take everything");
        let queues: Vec<_> = self.fake.state().queues.clone().into_iter().collect();
        let mut lines = 0;
        for (id, queue) in queues {
            // SAFETY: the control page of an existing queue, which is shared memory.
            let control = unsafe {
                &*std::ptr::with_exposed_provenance::<QueueControl>(queue.control as usize)
            };
            let tail = control.tail.load(Ordering::Acquire);
            let from = self.printed.insert(id, tail).unwrap_or(0);
            for number in from..tail {
                let slot = queue.ring + number % u64::from(queue.packets) * 64;
                lines += 1;
                self.packet(slot, Stands::Ring, "    ");
            }
        }
        lines
    }

    fn packet(&mut self, at: u64, place: Stands, indent: &str) {
        // SAFETY: the address is that of a packet in a ring or a recording of the test.
        let packet = unsafe { *std::ptr::with_exposed_provenance::<Packet>(at as usize) };
        let line = self.named(&Line { packet: &packet, place }.to_string());
        writeln!(self.text, "{indent}{line}").expect("strings take everything");
        if let Ok(Packets::Call(call)) = packet.decode(place) {
            self.call(&call);
        }
    }

    fn call(&mut self, call: &Call) {
        for i in 0..u64::from(call.operand_count) {
            let at = call.operands + i * size_of::<Operand>() as u64;
            // SAFETY: the address is that of an operand of the call.
            let it = unsafe { *std::ptr::with_exposed_provenance::<Operand>(at as usize) };
            let line = match it.kind {
                0 => "met".to_owned(),
                kind => self.named(&format!("kind {kind} [{:#x}] >= {}", it.address, it.value)),
            };
            writeln!(self.text, "      operand {i}: {line}").expect("strings take everything");
        }
        for i in 0..u64::from(call.packets) {
            self.packet(call.recording + i * 64, Stands::Recording, "      | ");
        }
    }

    /// Replaces addresses with names.
    fn named(&mut self, line: &str) -> String {
        let mut parts = line.split("0x");
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            if out.ends_with(|c: char| c.is_ascii_digit()) {
                // A size, such as 10x1, not an address.
                out += "0x";
                out += part;
                continue;
            }
            let end = part.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(part.len());
            let address = u64::from_str_radix(&part[..end], 16).expect("a number follows 0x");
            let next = format!("@{}", self.names.len());
            out += self.names.entry(address).or_insert(next);
            out += &part[end..];
        }
        out
    }

    /// Compares the text with the file, or writes the file.
    fn check(self, name: &str) {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
        if env::var_os("TALLY_BLESS").is_some() {
            fs::write(&file, &self.text).expect("the file can be written");
        }
        let golden = fs::read_to_string(&file).unwrap_or_default();
        assert!(golden == self.text, "{} differs; now:\n{}", file.display(), self.text);
    }
}

fn signal(event: &Event) -> Option<Signal<'_>> {
    Some(Signal { event, raw: ze_event_handle_t::NULL })
}

fn waits<'a>(
    events: &'a [&'a Event],
) -> impl ExactSizeIterator<Item = crate::error::Result<&'a Event>> {
    events.iter().map(|&event| Ok(event))
}

const COPY: Command<'static> = Command::Copy { dst: 0xd000, src: 0x5000, size: 16 };

/// "Since the command list manages the counter allocation, this method avoids producing additional
/// GPU memory operations (except timestamps).": a signal of a counter-based event and a wait for an
/// own one add no packet to an in-order list; a regular event adds one.
#[test]
fn in_order_immediate() {
    let mut golden = Golden::new();
    let (list, other) = (golden.immediate("list", true), golden.immediate("other", true));
    let (mine, theirs, event) =
        (golden.cb_event(false), golden.cb_event(false), golden.event("event", false));
    let append = |golden: &mut Golden,
                  title: &str,
                  command: &Command<'_>,
                  sig: Option<&Event>,
                  of: &[&Event]| {
        list.append(command, sig.and_then(signal), &mut waits(of)).expect("it is valid");
        golden.print(title)
    };
    assert_eq!(append(&mut golden, "copy", &COPY, None, &[]), 1);
    assert_eq!(append(&mut golden, "copy, signals a CB event", &COPY, Some(&mine), &[]), 1);
    assert_eq!(append(&mut golden, "copy, after an own CB event", &COPY, None, &[&mine]), 1);
    assert_eq!(
        append(&mut golden, "wait for an own CB event alone", &Command::Wait, None, &[&mine]),
        0
    );
    append(&mut golden, "copy, signals a regular event", &COPY, Some(&event), &[]);
    append(&mut golden, "copy, after a regular event", &COPY, None, &[&event]);
    append(&mut golden, "barrier", &Command::Barrier, None, &[]);
    append(&mut golden, "signal a regular event", &Command::Signal, Some(&event), &[]);
    append(&mut golden, "reset it", &Command::Reset(&event), None, &[]);
    append(&mut golden, "write the clock", &Command::Clock(0xd000), None, &[]);
    other.append(&COPY, signal(&theirs), &mut waits(&[])).expect("it is valid");
    golden.print("another list signals a CB event");
    append(&mut golden, "copy, after it", &COPY, None, &[&theirs]);
    let all = [&event, &theirs, &mine, &event, &theirs, &event];
    append(&mut golden, "copy, after six events, one of them its own", &COPY, None, &all);
    golden.check("in_order_immediate.txt");
}

/// A wait whose events are complete is no command, unless the device has to tell that it has ended.
#[test]
fn a_wait_with_a_number_is_written_in_any_case() {
    for in_order in [true, false] {
        let mut golden = Golden::new();
        let list = golden.immediate("list", in_order);
        let complete = golden.cb_event(false);
        let mut packets = |command: &Command<'_>| {
            list.append(command, None, &mut waits(&[&complete])).expect("it is valid");
            golden.print("wait")
        };
        assert_eq!(packets(&Command::Wait), 0);
        let told = Command::Together { main: &Command::Wait, with: &[Command::Number(7)] };
        assert_ne!(packets(&told), 0);
    }
}

/// "It can be signaled from multiple append calls, but waiting requires only one memory compare operation."
/// "Using aggregated event as dependency, requires only one memory compare operation against final value":
/// however many lists signal it, a wait is one packet that compares one word.
#[test]
fn a_wait_for_an_aggregated_event_compares_one_word() {
    let mut golden = Golden::new();
    let lists = ["one", "two", "three"].map(|name| golden.immediate(name, true));
    let waiting = golden.immediate("waiting", true);
    let word: &AtomicU64 = Box::leak(Box::new(AtomicU64::new(0)));
    let device = std::ptr::from_ref(word).expose_provenance() as u64;
    golden.names.insert(device, "word".to_owned());
    // SAFETY: the word is aligned and never freed.
    let host = unsafe { HostWord::new(device) };
    let event = CbEvent::aggregate(External { device, host, value: 6 }, 2);
    let traits = Traits { cb_flags: CbFlags::all().bits(), ..Default::default() };
    let event = Event::new(&golden.shared(), EventKind::CounterBased(event), traits, None);
    for list in &lists {
        list.append(&COPY, signal(&event), &mut waits(&[])).expect("it is valid");
    }
    golden.print("signals");
    golden.text.clear();
    waiting.append(&COPY, None, &mut waits(&[&event])).expect("it is valid");
    assert_eq!(golden.print("a wait"), 2, "a WAIT and the copy: {}", golden.text);
    let compares = golden.text.matches(">=").count();
    assert!(compares == 1 && golden.text.contains("[word] >= 6"), "{}", golden.text);
}

/// Out-of-order lists order only the commands that require it.
#[test]
fn out_of_order_immediate() {
    let mut golden = Golden::new();
    let list = golden.immediate("list", false);
    let event = golden.event("event", false);
    let append = |golden: &mut Golden,
                  title: &str,
                  command: &Command<'_>,
                  sig: Option<&Event>,
                  of: &[&Event]| {
        list.append(command, sig.and_then(signal), &mut waits(of)).expect("it is valid");
        golden.print(title);
    };
    append(&mut golden, "copy", &COPY, None, &[]);
    append(&mut golden, "copy, signals an event", &COPY, Some(&event), &[]);
    append(&mut golden, "copy, after an event", &COPY, None, &[&event]);
    append(&mut golden, "barrier", &Command::Barrier, None, &[]);
    append(&mut golden, "barrier, signals an event", &Command::Barrier, Some(&event), &[]);
    append(&mut golden, "barrier, after an event", &Command::Barrier, None, &[&event]);
    append(&mut golden, "signal", &Command::Signal, Some(&event), &[]);
    append(&mut golden, "reset", &Command::Reset(&event), None, &[]);
    assert_eq!(list.synchronize(0), Ok(false));
    golden.print("synchronize: what no value covers yet");
    assert_eq!(list.synchronize(0), Ok(false));
    golden.print("synchronize again: nothing");
    golden.check("out_of_order_immediate.txt");
}

/// The packets of copies, fills, kernels and times.
#[test]
fn work() {
    let mut golden = Golden::new();
    let list = golden.immediate("list", true);
    let (event, timed) = (golden.event("event", true), golden.cb_event(true));
    let code = Arc::new(());
    let launch = Launch {
        entry: 0xc0de,
        args: &[1, 2, 3, 4],
        global_offset: [0; 3],
        group_size: [64, 2, 1],
        groups: Groups::Direct([10, 1, 1]),
        work_dim: 2,
        local_bytes: 256,
        scratch_bytes: 4096,
        is_independent: true,
        keep: &code,
    };
    let indirect = Launch { groups: Groups::Indirect(0xa000), ..launch };
    let append = |golden: &mut Golden, title: &str, command: &Command<'_>, sig: Option<&Event>| {
        list.append(command, sig.and_then(signal), &mut waits(&[])).expect("it is valid");
        golden.print(title);
    };
    append(&mut golden, "kernel", &Command::Launch(&launch), None);
    append(
        &mut golden,
        "kernel with times, regular event",
        &Command::Launch(&launch),
        Some(&event),
    );
    append(&mut golden, "kernel with times, CB event", &Command::Launch(&launch), Some(&timed));
    append(&mut golden, "indirect kernel", &Command::Launch(&indirect), None);
    let again = Launch { groups: Groups::Indirect(0xa00c), ..indirect };
    let launches = &[indirect, again];
    let two = Command::Launches { launches, count: 0xb000, words: &[], numbers: &[] };
    append(&mut golden, "several indirect kernels", &two, None);
    let fill = |pattern| Command::Fill { dst: 0xd000, size: 256, pattern };
    append(&mut golden, "fill", &fill(&[1, 2, 3, 4]), None);
    append(&mut golden, "fill with a long pattern", &fill(&[7; 32]), None);
    let shape = Region { width: 5, height: 3, depth: 2, ..Default::default() };
    let region = Command::CopyRegion { dst: 0xd000, src: 0x5000, shape };
    append(&mut golden, "copy of a region", &region, None);
    let times = |event: &Event, dst| {
        let (slot, timestamp) = event.slot().expect("it has times");
        Times { slot, timestamp, dst }
    };
    let times = [times(&event, 0xd000), times(&timed, 0xd020)];
    append(&mut golden, "times of both events", &Command::Times(&times), None);
    golden.check("work.txt");
}

/// The fast path writes what the general path writes.
#[test]
fn the_fast_path_writes_what_the_general_path_writes() {
    let code = Arc::new(());
    let launch = |groups: [u32; 3], work_dim| Launch {
        entry: 0xc0de,
        args: &[1, 2, 3, 4, 5],
        global_offset: [7, 8, 9],
        group_size: [64, 2, 1],
        groups: Groups::Direct(groups),
        work_dim,
        local_bytes: 256,
        scratch_bytes: 4096,
        is_independent: true,
        keep: &code,
    };
    let prebuilt = Prebuilt::new(5);
    let sizes = [([10, 1, 1], 2), ([1, 3, 1], 2), ([1, 1, 2], 3)];
    let text = |is_fast: bool| {
        let mut golden = Golden::new();
        let (queue, list) = (golden.immediate("queue", true), golden.regular(true));
        let other = golden.immediate("other", true);
        let [mine, theirs, never] = [0; 3].map(|_| golden.cb_event(false));
        other.append(&COPY, signal(&theirs), &mut waits(&[])).expect("it is valid");
        prebuilt.publish(Some(&launch([1; 3], 2)));
        for (groups, work_dim) in sizes {
            let fast = Kernel { prebuilt: &prebuilt, keep: &code, groups };
            let general = Command::Launch(&launch(groups, work_dim));
            for sig in [None, Some(&mine)] {
                for of in [&[][..], &[&mine], &[&never, &theirs], &[&theirs, &mine, &theirs]] {
                    let sig = sig.and_then(signal);
                    if is_fast {
                        assert_eq!(queue.append_fast(&fast, sig, waits(of)), Ok(true));
                        assert_eq!(list.append_fast(&fast, sig, waits(of)), Ok(true));
                    } else {
                        queue.append(&general, sig, &mut waits(of)).expect("it is valid");
                        list.append(&general, sig, &mut waits(of)).expect("it is valid");
                    }
                }
            }
        }
        let copy = fast_path::Copy { dst: 0xd000, src: 0x5000, size: 16 };
        let fills = [&[1, 2, 3, 4][..], &[7; 32]].map(|pattern| (0xd000, 256, pattern));
        if is_fast {
            assert_eq!(list.append_fast(&copy, signal(&mine), waits(&[&theirs])), Ok(true));
            for (dst, size, pattern) in fills {
                let fill = fast_path::Fill { dst, size, pattern };
                assert_eq!(list.append_fast(&fill, None, waits(&[&mine])), Ok(true));
            }
        } else {
            list.append(&COPY, signal(&mine), &mut waits(&[&theirs])).expect("it is valid");
            for (dst, size, pattern) in fills {
                let fill = Command::Fill { dst, size, pattern };
                list.append(&fill, None, &mut waits(&[&mine])).expect("it is valid");
            }
        }
        list.close().expect("room");
        queue.submit(&Command::Lists(&[&list])).expect("it is valid");
        golden.print("all");
        assert_ne!(mine.address(), theirs.address());
        golden.text
    };
    assert_eq!(text(true), text(false));
}

/// The fast path leaves commands that it does not serve to the general path and writes nothing.
#[test]
fn some_launches_take_the_general_path() {
    let mut golden = Golden::new();
    let code = Arc::new(());
    let (list, unordered) = (golden.immediate("list", true), golden.immediate("unordered", false));
    let (timed, plain, regular) =
        (golden.cb_event(true), golden.cb_event(false), golden.event("event", false));
    let prebuilt = Prebuilt::new(5);
    let fast = Kernel { prebuilt: &prebuilt, keep: &code, groups: [1; 3] };
    let none = || waits(&[]);
    assert_eq!(list.append_fast(&fast, None, none()), Ok(false), "the kernel is not ready");
    let launch = Launch {
        entry: 0xc0de,
        args: &[0; 5],
        global_offset: [0; 3],
        group_size: [1; 3],
        groups: Groups::Direct([1; 3]),
        work_dim: 1,
        local_bytes: 0,
        scratch_bytes: 0,
        is_independent: false,
        keep: &code,
    };
    prebuilt.publish(Some(&launch));
    assert_eq!(unordered.append_fast(&fast, None, none()), Ok(false));
    for event in [&timed, &regular] {
        assert_eq!(list.append_fast(&fast, signal(event), none()), Ok(false));
    }
    assert_eq!(golden.print("nothing"), 0);
    assert_eq!(list.append_fast(&fast, signal(&plain), none()), Ok(true));
    assert_eq!(golden.print("one"), 1);
    prebuilt.publish(None);
    assert_eq!(list.append_fast(&fast, None, none()), Ok(false), "an argument is unset again");
}

/// Executions: bases follow each other, operands are bound when the list is executed.
#[test]
fn regular() {
    let mut golden = Golden::new();
    let queue = golden.immediate("queue", true);
    let (first, second) = (golden.regular(true), golden.regular(true));
    let (from_first, never, event) =
        (golden.cb_event(false), golden.cb_event(false), golden.event("event", false));
    let append = |list: &Regular, sig: Option<&Event>, of: &[&Event]| {
        list.append(&COPY, sig.and_then(signal), &mut waits(of)).expect("it is valid");
    };
    append(&first, None, &[&event]);
    append(&first, Some(&from_first), &[]);
    append(&first, Some(&event), &[&from_first]);
    append(&second, None, &[&from_first, &never]);
    for list in [&first, &second] {
        list.close().expect("room");
    }
    let execute = |golden: &mut Golden, title: &str, lists: &[&Regular]| {
        queue.submit(&Command::Lists(lists)).expect("it is valid");
        golden.print(title);
    };
    execute(&mut golden, "the waiting list, before the other", &[&second]);
    execute(&mut golden, "the other", &[&first]);
    execute(&mut golden, "both", &[&first, &second]);
    if let EventKind::CounterBased(event) = &never.kind {
        event.signal(queue.cell(), 99, None);
    }
    execute(&mut golden, "after another list signalled the event that was complete", &[&second]);
    golden.check("regular.txt");
}

/// Inside an out-of-order recording no packet stores the counter; the CALL signals that all is complete.
#[test]
fn out_of_order_regular() {
    let mut golden = Golden::new();
    let queue = golden.immediate("queue", true);
    let list = golden.regular(false);
    let event = golden.event("event", false);
    let append = |command: &Command<'_>, sig: Option<&Event>| {
        list.append(command, sig.and_then(signal), &mut waits(&[])).expect("it is valid");
    };
    append(&COPY, None);
    append(&COPY, Some(&event));
    append(&Command::Barrier, None);
    append(&COPY, None);
    list.close().expect("room");
    for _ in 0..2 {
        queue.submit(&Command::Lists(&[&list])).expect("it is valid");
        golden.print("execute");
    }
    golden.check("out_of_order_regular.txt");
}

/// A full ring continues in a larger one; the total size of a queue's rings is limited.
#[test]
fn a_full_ring_links_to_a_larger_one() {
    let mut golden = Golden::new();
    let list = golden.immediate("list", true);
    let append = || list.append(&COPY, None, &mut waits(&[]));
    for _ in 0..250 {
        append().expect("room");
    }
    golden.print("250 copies");
    golden.text.clear();
    golden.names.clear();
    for _ in 0..6 {
        append().expect("room");
    }
    let queue = *golden.fake.state().queues.values().next().expect("one queue");
    let links = (0..256).filter(|&slot| {
        // SAFETY: a slot of the first ring.
        let packet = unsafe {
            *std::ptr::with_exposed_provenance::<Packet>((queue.ring + slot * 64) as usize)
        };
        matches!(packet.decode(Stands::Ring), Ok(Packets::Link(link)) if link.header.param == 512)
    });
    assert_eq!(links.count(), 1);
    let error = loop {
        match append() {
            Ok(()) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.code(), tally_ze::ze_result_t::ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    let reserved = list.cell();
    assert_eq!(reserved.load(), 0, "nothing ran");
    assert!(append().is_err(), "and nothing is lost by asking again");
}
