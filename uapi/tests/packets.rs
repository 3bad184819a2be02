// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Packets: what decode() accepts and refuses, and how packets read as text.
//!
//! The golden file holds one line a packet; TALLY_BLESS=1 rewrites it.

#![cfg(not(loom))]

use std::fmt::Write;

use tally_uapi::disasm::Line;
use tally_uapi::fault::FaultKind;
use tally_uapi::packet::*;

const CELL: u64 = 0x7000_0000_0040;

fn post(header: Header, op: PostOp, value: u64) -> (Header, PostSync) {
    let header = Header { flags: header.flags | flag::POST_SYNC, post_op: op as u8, ..header };
    (header, PostSync { address: CELL, value })
}

fn header(opcode: u8, param: u32) -> Header {
    Header { opcode, param, ..Header::default() }
}

fn dispatch() -> Dispatch {
    let (header, post) = post(header(opcode::DISPATCH, 256), PostOp::Store, 7);
    Dispatch {
        header: Header { flags: header.flags | flag::ORDERED, ..header },
        entry: 0x7000_1000_0010,
        kernarg: 0x7000_2000_0040,
        groups: [16, 2, 1],
        scratch_bytes: 4096,
        group_size: [64, 4, 1],
        work_dim: 2,
        post,
    }
}

fn wait() -> Wait {
    Wait {
        header: header(opcode::WAIT, 3),
        entries: [
            WaitEntry { address: CELL, value: 9 },
            WaitEntry { address: 0, value: 4 },
            WaitEntry { address: CELL + 8, value: 1 },
        ],
        kinds: [1, 0, 3],
        compares: [0, 0, 5],
        operands: 0b010,
        reserved: 0,
    }
}

fn call() -> Call {
    let (header, post) = post(header(opcode::CALL, 3), PostOp::Store, 12);
    Call {
        header,
        recording: 0x7000_3000_0000,
        packets: 5,
        operand_count: 2,
        operands: 0x7000_4000_0000,
        counter: CELL + 64,
        base: 30,
        post,
    }
}

fn fill(size: u32, pattern: [u8; 16]) -> Fill {
    Fill {
        header: header(opcode::FILL, size),
        dst: 0x1001,
        size: 100,
        pattern,
        zero: 0,
        post: PostSync::default(),
    }
}

/// Every opcode in its usual forms, with the place where it stands.
fn samples() -> Vec<(Place, Packet)> {
    let nop = |header, post| Nop { header, zero: [0; 5], post };
    let (add, add_post) = post(header(opcode::NOP, 0), PostOp::Add, 2);
    let (clock, clock_post) = post(header(opcode::NOP, 0), PostOp::Clock, 0);
    let (based, based_post) = post(header(opcode::NOP, 0), PostOp::Store, 2);
    let based = Header { flags: based.flags | flag::FROM_BASE | flag::ORDERED, ..based };
    let mut inline = [0; 16];
    inline[..4].copy_from_slice(&[0xde, 0xad, 0xbe, 0xef]);
    let mut far = [0; 16];
    far[..8].copy_from_slice(&0x7000_5000_0000u64.to_le_bytes());
    let mut indirect = dispatch();
    indirect.header.flags |= flag::INDIRECT;
    indirect.groups = [0x10, 0x7000, 0];
    let link = Link { header: header(opcode::LINK, 64), ring: 0x7000_6000_0000, zero: [0; 6] };
    let stamp = Stamp { header: header(opcode::STAMP, 0), slot: CELL, zero: [0; 6] };
    let predicate =
        Predicate { header: header(opcode::PREDICATE, 3), count: CELL + 4, zero: [0; 6] };
    let copy = Copy {
        header: header(opcode::COPY, 0),
        dst: 0x2003,
        src: 0x1001,
        size: 77,
        zero: [0; 2],
        post: PostSync::default(),
    };
    let region = CopyRegion {
        header: header(opcode::COPY_REGION, 0),
        dst: 0x2000,
        src: 0x1000,
        region: CELL,
        zero: [0; 2],
        post: PostSync::default(),
    };
    vec![
        (Place::Ring, nop(header(opcode::NOP, 0), PostSync::default()).into()),
        (Place::Ring, nop(header(opcode::NOP, 7), PostSync::default()).into()),
        (Place::Ring, nop(add, add_post).into()),
        (Place::Ring, nop(clock, clock_post).into()),
        (Place::Recording, nop(based, based_post).into()),
        (Place::Recording, wait().into()),
        (Place::Ring, stamp.into()),
        (Place::Ring, predicate.into()),
        (Place::Ring, link.into()),
        (Place::Ring, call().into()),
        (Place::Ring, dispatch().into()),
        (Place::Ring, indirect.into()),
        (Place::Ring, copy.into()),
        (Place::Ring, region.into()),
        (Place::Ring, fill(4, inline).into()),
        (Place::Ring, fill(64, far).into()),
    ]
}

#[test]
fn every_packet_reads_as_one_line() {
    let mut text = String::new();
    for (place, packet) in samples() {
        writeln!(text, "{}", Line { packet: &packet, place }).expect("a String takes any text");
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/packets.txt");
    if std::env::var_os("TALLY_BLESS").is_some() {
        std::fs::write(path, &text).expect("the golden file is writable");
    }
    let golden = std::fs::read_to_string(path).expect("the golden file is there");
    assert_eq!(text, golden, "TALLY_BLESS=1 accepts the new text");
}

#[test]
fn valid_packets_are_accepted_where_they_may_stand() {
    for (place, packet) in samples() {
        assert!(packet.decode(place).is_ok(), "{}", Line { packet: &packet, place });
    }
}

/// SPEC.md, Packets: "others must be zero", "Unused bytes must be zero".
///
/// Flips every bit of every sample: it is refused, or it reads differently.
#[test]
fn no_bit_is_ignored() {
    for (place, packet) in samples() {
        let original = Line { packet: &packet, place }.to_string();
        for bit in 0..512 {
            let mut bytes: [u8; 64] = zerocopy::transmute!(packet);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let flipped: Packet = zerocopy::transmute!(bytes);
            if flipped.decode(place).is_ok() {
                let text = Line { packet: &flipped, place }.to_string();
                assert_ne!(text, original, "bit {bit} is ignored");
            }
        }
    }
}

/// [`Packet::in_place`]: "Does the same as [`Packet::decode`] without a copy of the packet".
#[test]
fn what_is_read_in_place_is_what_decode_says() {
    let mut found = 0;
    for (place, packet) in samples() {
        let bits = (0..PACKET_SIZE as usize * 8).map(Some);
        for bit in bits.chain([None]) {
            let mut bytes = [0; PACKET_SIZE as usize];
            bytes.copy_from_slice(zerocopy::IntoBytes::as_bytes(&packet));
            if let Some(bit) = bit {
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            let packet: Packet = zerocopy::transmute!(bytes);
            let in_place = packet.in_place(place).map(|command| match command {
                InPlace::Nop(nop) => Command::Nop(*nop),
                InPlace::Copy(copy) => Command::Copy(*copy),
                InPlace::Fill(fill) => Command::Fill(*fill),
            });
            let simple =
                |it: &Command| matches!(it, Command::Nop(_) | Command::Copy(_) | Command::Fill(_));
            assert_eq!(in_place, packet.decode(place).ok().filter(simple), "{packet:?}");
            found += usize::from(in_place.is_some());
        }
    }
    assert!(found > 100, "{found} packets were read in place");
}

/// SPEC.md, Faults: each kind that a packet alone can cause.
#[test]
fn refused_packets_name_the_fault() {
    let decode = |packet: Packet| packet.decode(Place::Ring).map(|_| ());
    let mut unknown = Packet::default();
    unknown.header.opcode = 0x7f;
    assert_eq!(decode(unknown), Err(FaultKind::BadOpcode));

    let mut items = dispatch();
    items.group_size = [64, 64, 1];
    assert_eq!(decode(items.into()), Err(FaultKind::BadField));

    let mut odd = call();
    odd.counter += 4;
    assert_eq!(decode(odd.into()), Err(FaultKind::BadAlignment));

    assert_eq!(decode(wait().into()), Err(FaultKind::BadNesting));
    let nested: Packet = call().into();
    assert_eq!(nested.decode(Place::Recording), Err(FaultKind::BadNesting));

    let mut counter = wait();
    counter.operands = 0;
    counter.entries[1].address = CELL;
    counter.kinds = [1, 1, 1];
    counter.compares = [0, 0, 4];
    assert_eq!(decode(counter.into()), Err(FaultKind::BadField), "a counter is only compared >=");

    let mut null = dispatch();
    null.kernarg = 0;
    assert_eq!(decode(null.into()), Err(FaultKind::BadAlignment));
}

#[test]
fn a_bad_packet_still_prints() {
    let mut packet = Packet::default();
    packet.header.opcode = 0x7f;
    let text = Line { packet: &packet, place: Place::Ring }.to_string();
    assert!(text.starts_with("bad(bad opcode) opcode=0x7f"), "{text}");
}
