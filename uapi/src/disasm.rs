// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Packets as text: one line each, for golden tests and for TALLY_LOG.

use core::fmt::{self, Display, Formatter};

use crate::cell::{CellKind, Compare};
use crate::packet::{
    flag, Call, Command, Dispatch, Fill, Header, Packet, Place, PostOp, PostSync, Wait,
    INLINE_FILL_PATTERN,
};

/// A packet that prints as one line of assembly, without a newline.
///
/// A packet for which the device would report a fault prints as `bad(...)` with its words.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// The packet.
    pub packet: &'a Packet,
    /// The packet's place.
    pub place: Place,
}

impl Display for Line<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let header = self.packet.header;
        let command = match self.packet.decode(self.place) {
            Ok(command) => command,
            Err(fault) => {
                write!(f, "bad({}) opcode={:#04x}", fault.name(), header.opcode)?;
                write!(f, " flags={:#04x} param={:#x}", header.flags, header.param)?;
                for word in self.packet.body {
                    write!(f, " {word:#x}")?;
                }
                return write!(f, " {:#x} {:#x}", self.packet.post.address, self.packet.post.value);
            }
        };
        if header.flags & flag::ORDERED != 0 {
            f.write_str("ordered ")?;
        }
        match command {
            Command::Nop(nop) if nop.header.param != 0 => write!(f, "nop {}", nop.header.param)?,
            Command::Nop(_) => f.write_str("nop")?,
            Command::Wait(wait) => return waits(f, &wait),
            Command::Stamp(stamp) => return write!(f, "stamp [{:#x}]", stamp.slot),
            Command::Predicate(p) => {
                return write!(f, "predicate {} < [{:#x}]", p.header.param, p.count);
            }
            Command::Link(link) => {
                return write!(f, "link {:#x} packets={}", link.ring, link.header.param);
            }
            Command::Call(call) => calls(f, &call)?,
            Command::Dispatch(dispatch) => dispatches(f, &dispatch)?,
            Command::Copy(copy) => {
                write!(f, "copy [{:#x}] <- [{:#x}] bytes={}", copy.dst, copy.src, copy.size)?;
            }
            Command::CopyRegion(copy) => {
                write!(f, "copy_region [{:#x}] <- [{:#x}]", copy.dst, copy.src)?;
                write!(f, " shape=[{:#x}]", copy.region)?;
            }
            Command::Fill(fill) => fills(f, &fill)?,
        }
        post_sync(f, &header, &self.packet.post)
    }
}

fn waits(f: &mut Formatter<'_>, wait: &Wait) -> fmt::Result {
    f.write_str("wait")?;
    for i in 0..wait.header.param as usize {
        let separator = if i == 0 { " " } else { ", " };
        let entry = wait.entries[i];
        if wait.operands & (1 << i) != 0 {
            write!(f, "{separator}operand {}", entry.value)?;
            continue;
        }
        let kind = match CellKind::from_raw(wait.kinds[i]) {
            Some(CellKind::Counter) => "counter",
            Some(CellKind::Event) => "event",
            _ => "foreign",
        };
        let compare = Compare::from_raw(wait.compares[i]).unwrap_or(Compare::GreaterEqual).symbol();
        write!(f, "{separator}{kind} [{:#x}] {compare} {}", entry.address, entry.value)?;
    }
    Ok(())
}

fn calls(f: &mut Formatter<'_>, call: &Call) -> fmt::Result {
    write!(f, "call [{:#x}] packets={}", call.recording, call.packets)?;
    if call.operand_count != 0 {
        write!(f, " operands=[{:#x}] x{}", call.operands, call.operand_count)?;
    }
    write!(f, " counter=[{:#x}] base={} signals={}", call.counter, call.base, call.header.param)
}

fn dispatches(f: &mut Formatter<'_>, dispatch: &Dispatch) -> fmt::Result {
    write!(f, "dispatch {:#x} kernarg=[{:#x}]", dispatch.entry, dispatch.kernarg)?;
    if dispatch.header.flags & flag::INDIRECT != 0 {
        write!(f, " groups=[{:#x}]", dispatch.indirect_address())?;
    } else {
        let [x, y, z] = dispatch.groups;
        write!(f, " groups={x}x{y}x{z}")?;
    }
    let [x, y, z] = dispatch.group_size;
    write!(f, " size={x}x{y}x{z} dim={}", dispatch.work_dim)?;
    if dispatch.header.param != 0 {
        write!(f, " local={}", dispatch.header.param)?;
    }
    if dispatch.scratch_bytes != 0 {
        write!(f, " scratch={}", dispatch.scratch_bytes)?;
    }
    if dispatch.header.flags & flag::COOPERATIVE != 0 {
        write!(f, " cooperative")?;
    }
    if dispatch.header.flags & flag::INDEPENDENT != 0 {
        write!(f, " independent")?;
    }
    Ok(())
}

fn fills(f: &mut Formatter<'_>, fill: &Fill) -> fmt::Result {
    write!(f, "fill [{:#x}] bytes={} pattern=", fill.dst, fill.size)?;
    let size = fill.header.param;
    if size > INLINE_FILL_PATTERN {
        let (address, _) = fill.pattern.split_at(8);
        let address = address.iter().rev().fold(0u64, |sum, &byte| sum << 8 | byte as u64);
        return write!(f, "[{address:#x}] x{size}");
    }
    fill.pattern[..size as usize].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

fn post_sync(f: &mut Formatter<'_>, header: &Header, post: &PostSync) -> fmt::Result {
    if header.flags & flag::POST_SYNC == 0 {
        return Ok(());
    }
    let base = if header.flags & flag::FROM_BASE != 0 { "base+" } else { "" };
    match PostOp::from_raw(header.post_op) {
        Some(PostOp::Add) => write!(f, " -> [{:#x}] += {}", post.address, post.value),
        Some(PostOp::Clock) => write!(f, " -> [{:#x}] = clock", post.address),
        _ => write!(f, " -> [{:#x}] = {base}{}", post.address, post.value),
    }
}
