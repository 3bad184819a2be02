// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Command packets: 64 bytes each, little-endian, in a ring or in a recording.
//!
//! Builders make packets that [`Packet::decode`] accepts; only `decode`
//! defines what a valid packet is, for the device and for the
//! disassembler. `device/SPEC.md`, chapter "Packets".

use zerocopy::{transmute, transmute_ref, FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::cell::{CellKind, Compare};
use crate::eu::{
    BLOCK_ALIGN, MAX_COOPERATIVE_GROUPS, MAX_GROUP_ITEMS, MAX_LOCAL_BYTES, MAX_SCRATCH_BYTES,
};
use crate::fault::FaultKind;
use crate::queue::{RING_MAX_PACKETS, RING_MIN_PACKETS};

/// Bytes of a packet.
pub const PACKET_SIZE: u64 = 64;
/// Waits in one WAIT packet.
pub const WAITS_PER_PACKET: usize = 3;
/// Maximum size of a FILL's pattern, in bytes.
pub const MAX_FILL_PATTERN: u32 = 128;
/// Bytes of a FILL's pattern that fit into the packet itself.
pub const INLINE_FILL_PATTERN: u32 = 16;
/// Maximum number of packets in a recording.
pub const MAX_RECORDING_PACKETS: u32 = 1 << 24;
/// Maximum number of entries in a CALL's operand block.
pub const MAX_OPERANDS: u32 = 1 << 20;

/// The opcode of a packet.
pub mod opcode {
    /// Has only its order and its post-sync operation.
    pub const NOP: u8 = 0x00;
    /// Parks the queue until up to three cells are met.
    pub const WAIT: u8 = 0x01;
    /// Prefix: the next command writes its start and end times.
    pub const STAMP: u8 = 0x03;
    /// Prefix: the next command does its work only below a count in memory.
    pub const PREDICATE: u8 = 0x04;
    /// The following packets are in another ring.
    pub const LINK: u8 = 0x05;
    /// Runs a recording.
    pub const CALL: u8 = 0x06;
    /// Runs a kernel.
    pub const DISPATCH: u8 = 0x10;
    /// Copies bytes.
    pub const COPY: u8 = 0x20;
    /// Copies a two- or three-dimensional region.
    pub const COPY_REGION: u8 = 0x21;
    /// Fills bytes with a pattern.
    pub const FILL: u8 = 0x22;
}

/// Flags for the order of a packet and for its post-sync operation.
pub mod flag {
    /// Starts when all earlier commands of its queue have completed.
    pub const ORDERED: u8 = 1 << 0;
    /// Has a post-sync operation.
    pub const POST_SYNC: u8 = 1 << 1;
    /// The post-sync value counts from the base of the CALL (recordings only).
    pub const FROM_BASE: u8 = 1 << 2;
    /// DISPATCH: the numbers of groups are in memory.
    pub const INDIRECT: u8 = 1 << 3;
    /// DISPATCH: all groups run at the same time.
    pub const COOPERATIVE: u8 = 1 << 4;
    /// DISPATCH: no group waits for another one.
    pub const INDEPENDENT: u8 = 1 << 5;
    /// All bits that have a meaning.
    pub const ALL: u8 = ORDERED | POST_SYNC | FROM_BASE | INDIRECT | COOPERATIVE | INDEPENDENT;
}

/// The post-sync operation of a command on a cell, when its work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PostOp {
    /// Stores the value.
    Store = 0,
    /// Adds the value atomically.
    Add = 1,
    /// Stores the device's clock, in ticks; the value must be zero.
    Clock = 2,
}

impl PostOp {
    /// The operation whose encoding is `raw`.
    pub const fn from_raw(raw: u8) -> Option<Self> {
        match raw {
            0 => Some(Self::Store),
            1 => Some(Self::Add),
            2 => Some(Self::Clock),
            _ => None,
        }
    }
}

/// The first eight bytes of every packet.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct Header {
    /// One of [`opcode`].
    pub opcode: u8,
    /// Bits of [`flag`].
    pub flags: u8,
    /// A [`PostOp`].
    pub post_op: u8,
    /// Zero.
    pub reserved: u8,
    /// Meaning by opcode.
    pub param: u32,
}

impl Header {
    /// Whether the packet only modifies the next command.
    pub const fn is_prefix(&self) -> bool {
        matches!(self.opcode, opcode::STAMP | opcode::PREDICATE)
    }
}

/// The post-sync operation's cell and value: the last 16 bytes of a packet.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct PostSync {
    /// VA of the cell; zero without the POST_SYNC flag.
    pub address: u64,
    /// Value; with FROM_BASE, the number to add to the CALL's base.
    pub value: u64,
}

/// One packet, not yet checked.
#[repr(C, align(64))]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct Packet {
    /// The header.
    pub header: Header,
    /// Meaning by opcode.
    pub body: [u64; 5],
    /// The post-sync operation (WAIT, STAMP, PREDICATE and LINK use it as body).
    pub post: PostSync,
}

/// NOP: ordering and a post-sync operation alone; the barrier and the signal.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Nop {
    /// Opcode NOP; param is a number for tools, which the device ignores.
    pub header: Header,
    /// Zero.
    pub zero: [u64; 5],
    /// Post-sync.
    pub post: PostSync,
}

/// One cell of a WAIT.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct WaitEntry {
    /// VA of the cell; zero if the entry is an operand.
    pub address: u64,
    /// Value to compare with; for an operand its index in the CALL's block.
    pub value: u64,
}

/// WAIT: parks the queue until all entries are met. Later packets of the queue
/// start after it; earlier ones may still run.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Wait {
    /// Opcode WAIT, flags 0; param is the number of entries, 1 to 3.
    pub header: Header,
    /// The cells.
    pub entries: [WaitEntry; WAITS_PER_PACKET],
    /// A [`CellKind`] for each entry; zero for operands and unused entries.
    pub kinds: [u8; WAITS_PER_PACKET],
    /// A [`Compare`] for each entry; zero for operands and unused entries.
    pub compares: [u8; WAITS_PER_PACKET],
    /// Bit i: entry i is taken from the operand block.
    pub operands: u8,
    /// Zero.
    pub reserved: u8,
}

/// An entry of a CALL's operand block: a wait that is bound at execution.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct Operand {
    /// VA of the cell.
    pub address: u64,
    /// Value to compare with.
    pub value: u64,
    /// A [`CellKind`]; 0 means that this wait is met already.
    pub kind: u8,
    /// A [`Compare`].
    pub compare: u8,
    /// Zero.
    pub reserved: [u8; 6],
}

/// STAMP: the next command writes its times to a [`TimestampSlot`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Stamp {
    /// Opcode STAMP, flags 0, param 0.
    pub header: Header,
    /// VA of the slot, 8-byte aligned.
    pub slot: u64,
    /// Zero.
    pub zero: [u64; 6],
}

/// The memory to which a stamped command writes its times, in device ticks.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct TimestampSlot {
    /// Start on the device's clock.
    pub global_start: u64,
    /// End on the device's clock.
    pub global_end: u64,
    /// Start, without the time that the command's queue was not on an engine.
    pub context_start: u64,
    /// End, likewise.
    pub context_end: u64,
}

/// PREDICATE: the next command does its work only if `param < *count`.
/// Either way it keeps its order and its post-sync operation.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Predicate {
    /// Opcode PREDICATE, flags 0; param is the index that is compared.
    pub header: Header,
    /// VA of a 32-bit count, 4-byte aligned.
    pub count: u64,
    /// Zero.
    pub zero: [u64; 6],
}

/// LINK: the packets after this one are in another ring.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Link {
    /// Opcode LINK, flags 0; param is the new ring's number of packets.
    pub header: Header,
    /// VA of the new ring, 64-byte aligned.
    pub ring: u64,
    /// Zero.
    pub zero: [u64; 6],
}

/// CALL: waits until the recording's counter has reached `base`, runs the
/// recording, and raises the counter to `base + signals` when all of it is done.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Call {
    /// Opcode CALL; param is the number of signals in the recording.
    pub header: Header,
    /// VA of the recording's packets, 64-byte aligned.
    pub recording: u64,
    /// Packets in the recording.
    pub packets: u32,
    /// Entries in the operand block.
    pub operand_count: u32,
    /// VA of the operand block, 8-byte aligned; zero without operands.
    pub operands: u64,
    /// VA of the recording's counter.
    pub counter: u64,
    /// The value that the counter has reached when the previous execution is done.
    pub base: u64,
    /// Post-sync of the whole call.
    pub post: PostSync,
}

/// DISPATCH: runs a kernel over a grid of work-groups.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct Dispatch {
    /// Opcode DISPATCH; param is the local memory of a group, in bytes.
    pub header: Header,
    /// VA of the kernel's entry.
    pub entry: u64,
    /// VA of a [`crate::eu::KernargHeader`] and the arguments, 64-byte aligned.
    pub kernarg: u64,
    /// Work-groups in each dimension; with INDIRECT the VA of three 32-bit
    /// numbers (low word, high word) and zero.
    pub groups: [u32; 3],
    /// Scratch of a group, in bytes.
    pub scratch_bytes: u32,
    /// Work-items of a full group in each dimension, at least 1.
    pub group_size: [u16; 3],
    /// Dimensions in use: 1, 2 or 3.
    pub work_dim: u16,
    /// Post-sync.
    pub post: PostSync,
}

impl Dispatch {
    /// VA of the numbers of groups of an INDIRECT dispatch.
    pub const fn indirect_address(&self) -> u64 {
        self.groups[0] as u64 | (self.groups[1] as u64) << 32
    }
}

/// COPY: copies bytes; the ranges may overlap.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Copy {
    /// Opcode COPY, param 0.
    pub header: Header,
    /// VA written.
    pub dst: u64,
    /// VA read.
    pub src: u64,
    /// Bytes.
    pub size: u64,
    /// Zero.
    pub zero: [u64; 2],
    /// Post-sync.
    pub post: PostSync,
}

/// COPY_REGION: copies rows of bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct CopyRegion {
    /// Opcode COPY_REGION, param 0.
    pub header: Header,
    /// VA of the first byte written.
    pub dst: u64,
    /// VA of the first byte read.
    pub src: u64,
    /// VA of a [`Region`], 8-byte aligned.
    pub region: u64,
    /// Zero.
    pub zero: [u64; 2],
    /// Post-sync.
    pub post: PostSync,
}

/// The shape of a COPY_REGION, in bytes and rows.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct Region {
    /// Bytes of a row.
    pub width: u64,
    /// Rows of a slice.
    pub height: u64,
    /// Slices.
    pub depth: u64,
    /// Bytes from row to row of the destination.
    pub dst_row_pitch: u64,
    /// Bytes from slice to slice of the destination.
    pub dst_slice_pitch: u64,
    /// Bytes from row to row of the source.
    pub src_row_pitch: u64,
    /// Bytes from slice to slice of the source.
    pub src_slice_pitch: u64,
    /// Zero.
    pub reserved: u64,
}

/// FILL: repeats a pattern; the last repetition is cut to the size.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Fill {
    /// Opcode FILL; param is the pattern's size in bytes, 1 to [`MAX_FILL_PATTERN`].
    pub header: Header,
    /// VA written.
    pub dst: u64,
    /// Bytes.
    pub size: u64,
    /// The pattern, zero-padded, if it has at most [`INLINE_FILL_PATTERN`]
    /// bytes; else its VA in the first eight bytes, and zero.
    pub pattern: [u8; 16],
    /// Zero.
    pub zero: u64,
    /// Post-sync.
    pub post: PostSync,
}

macro_rules! packet_layouts {
    ($($name:ident),* $(,)?) => {$(
        const _: () = assert!(core::mem::size_of::<$name>() == PACKET_SIZE as usize);
        impl From<$name> for Packet {
            fn from(packet: $name) -> Packet {
                transmute!(packet)
            }
        }
    )*};
}
packet_layouts!(Nop, Wait, Stamp, Predicate, Link, Call, Dispatch, Copy, CopyRegion, Fill);

const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(size_of::<Packet>() == PACKET_SIZE as usize);
    assert!(offset_of!(Packet, post) == 48);
    assert!(offset_of!(Dispatch, post) == 48);
    assert!(offset_of!(Dispatch, group_size) == 40);
    assert!(offset_of!(Call, base) == 40);
    assert!(offset_of!(Wait, kinds) == 56);
    assert!(size_of::<Operand>() == 24);
    assert!(size_of::<Region>() == 64);
    assert!(size_of::<TimestampSlot>() == 32);
};

/// A checked packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// See [`Nop`].
    Nop(Nop),
    /// See [`Wait`].
    Wait(Wait),
    /// See [`Stamp`].
    Stamp(Stamp),
    /// See [`Predicate`].
    Predicate(Predicate),
    /// See [`Link`].
    Link(Link),
    /// See [`Call`].
    Call(Call),
    /// See [`Dispatch`].
    Dispatch(Dispatch),
    /// See [`struct@Copy`].
    Copy(Copy),
    /// See [`CopyRegion`].
    CopyRegion(CopyRegion),
    /// See [`Fill`].
    Fill(Fill),
}

/// A reference to the packet of a command that needs only its packet.
#[derive(Clone, Copy, Debug)]
pub enum InPlace<'a> {
    /// See [`Nop`].
    Nop(&'a Nop),
    /// See [`struct@Copy`].
    Copy(&'a Copy),
    /// See [`Fill`].
    Fill(&'a Fill),
}

/// The place of a packet; some packets are valid in a ring only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a queue's ring.
    Ring,
    /// In a recording that a CALL runs.
    Recording,
}

impl Packet {
    /// Checks everything that can be checked without reading memory.
    ///
    /// Errors: the fault that the device reports for the packet.
    pub fn decode(&self, place: Place) -> Result<Command, FaultKind> {
        let packet = *self;
        self.check_header(place)?;
        match self.header.opcode {
            opcode::NOP => {
                check_nop(transmute_ref!(self))?;
                Ok(Command::Nop(transmute!(packet)))
            }
            opcode::WAIT => check_wait(transmute!(packet), place).map(Command::Wait),
            opcode::STAMP => {
                let stamp: Stamp = transmute!(packet);
                zero(&stamp.zero)?;
                require(stamp.header.param == 0)?;
                aligned(stamp.slot, 8)?;
                Ok(Command::Stamp(stamp))
            }
            opcode::PREDICATE => {
                let predicate: Predicate = transmute!(packet);
                zero(&predicate.zero)?;
                aligned(predicate.count, 4)?;
                Ok(Command::Predicate(predicate))
            }
            opcode::LINK => check_link(transmute!(packet), place).map(Command::Link),
            opcode::CALL => check_call(transmute!(packet), place).map(Command::Call),
            opcode::DISPATCH => check_dispatch(transmute!(packet)).map(Command::Dispatch),
            opcode::COPY => {
                check_copy(transmute_ref!(self))?;
                Ok(Command::Copy(transmute!(packet)))
            }
            opcode::COPY_REGION => {
                let copy: CopyRegion = transmute!(packet);
                zero(&copy.zero)?;
                require(copy.header.param == 0)?;
                aligned(copy.region, 8)?;
                Ok(Command::CopyRegion(copy))
            }
            opcode::FILL => {
                check_fill(transmute_ref!(self))?;
                Ok(Command::Fill(transmute!(packet)))
            }
            _ => Err(FaultKind::BadOpcode),
        }
    }

    /// Does the same as [`Self::decode`] without a copy of the packet, which would take as long as a short
    /// command. `None`: the packet needs [`Self::decode`].
    #[inline]
    pub fn in_place(&self, place: Place) -> Option<InPlace<'_>> {
        let is_simple = matches!(self.header.opcode, opcode::NOP | opcode::COPY | opcode::FILL);
        if !is_simple || self.check_header(place).is_err() {
            return None;
        }
        match self.header.opcode {
            opcode::NOP => {
                let nop: &Nop = transmute_ref!(self);
                check_nop(nop).ok().map(|()| InPlace::Nop(nop))
            }
            opcode::COPY => {
                let copy: &Copy = transmute_ref!(self);
                check_copy(copy).ok().map(|()| InPlace::Copy(copy))
            }
            _ => {
                let fill: &Fill = transmute_ref!(self);
                check_fill(fill).ok().map(|()| InPlace::Fill(fill))
            }
        }
    }

    #[inline]
    fn check_header(&self, place: Place) -> Result<(), FaultKind> {
        let flags = self.header.flags;
        require(self.header.reserved == 0 && flags & !flag::ALL == 0)?;
        if flags & (flag::INDIRECT | flag::COOPERATIVE | flag::INDEPENDENT) != 0 {
            require(self.header.opcode == opcode::DISPATCH)?;
        }
        match self.header.opcode {
            // These have no post-sync operation; their last words belong to the body.
            opcode::WAIT | opcode::STAMP | opcode::PREDICATE | opcode::LINK => {
                return require(flags == 0 && self.header.post_op == 0);
            }
            _ => {}
        }
        if flags & flag::POST_SYNC == 0 {
            require(flags & flag::FROM_BASE == 0 && self.header.post_op == 0)?;
            return require(self.post == PostSync::default());
        }
        let op = PostOp::from_raw(self.header.post_op).ok_or(FaultKind::BadField)?;
        if flags & flag::FROM_BASE != 0 {
            require(op == PostOp::Store)?;
            if place == Place::Ring {
                return Err(FaultKind::BadNesting);
            }
        }
        require(op != PostOp::Clock || self.post.value == 0)?;
        aligned(self.post.address, 8)
    }
}

fn check_wait(wait: Wait, place: Place) -> Result<Wait, FaultKind> {
    let count = wait.header.param as usize;
    require((1..=WAITS_PER_PACKET).contains(&count))?;
    require(wait.reserved == 0 && wait.operands >> count == 0)?;
    if wait.operands != 0 && place == Place::Ring {
        return Err(FaultKind::BadNesting);
    }
    for i in 0..WAITS_PER_PACKET {
        let (entry, kind, compare) = (wait.entries[i], wait.kinds[i], wait.compares[i]);
        if i >= count {
            require(entry == WaitEntry::default() && kind == 0 && compare == 0)?;
        } else if wait.operands & (1 << i) != 0 {
            require(entry.address == 0 && kind == 0 && compare == 0)?;
            require(entry.value < MAX_OPERANDS as u64)?;
        } else {
            check_cell(entry.address, kind, compare)?;
        }
    }
    Ok(wait)
}

impl Operand {
    /// Checks an entry that the device has read; `Ok(None)` for one that is met already.
    pub fn decode(&self) -> Result<Option<(CellKind, Compare)>, FaultKind> {
        zero_bytes(&self.reserved)?;
        if self.kind == 0 {
            require(self.address == 0 && self.value == 0 && self.compare == 0)?;
            return Ok(None);
        }
        check_cell(self.address, self.kind, self.compare).map(Some)
    }
}

/// Checks a wait's cell: its kind, its comparison, its alignment.
fn check_cell(address: u64, kind: u8, compare: u8) -> Result<(CellKind, Compare), FaultKind> {
    let kind = CellKind::from_raw(kind).ok_or(FaultKind::BadField)?;
    let compare = Compare::from_raw(compare).ok_or(FaultKind::BadField)?;
    // A counter keeps growing, so any other comparison may stop being met.
    require(kind != CellKind::Counter || compare == Compare::GreaterEqual)?;
    aligned(address, 8)?;
    Ok((kind, compare))
}

fn check_link(link: Link, place: Place) -> Result<Link, FaultKind> {
    if place == Place::Recording {
        return Err(FaultKind::BadNesting);
    }
    zero(&link.zero)?;
    let packets = link.header.param;
    require(packets.is_power_of_two())?;
    require((RING_MIN_PACKETS..=RING_MAX_PACKETS).contains(&packets))?;
    aligned(link.ring, PACKET_SIZE)?;
    Ok(link)
}

fn check_call(call: Call, place: Place) -> Result<Call, FaultKind> {
    if place == Place::Recording {
        return Err(FaultKind::BadNesting);
    }
    require(call.packets <= MAX_RECORDING_PACKETS && call.operand_count <= MAX_OPERANDS)?;
    require(call.operand_count != 0 || call.operands == 0)?;
    require(call.base.checked_add(call.header.param as u64).is_some())?;
    if call.packets != 0 {
        aligned(call.recording, PACKET_SIZE)?;
    }
    if call.operand_count != 0 {
        aligned(call.operands, 8)?;
    }
    aligned(call.counter, 8)?;
    Ok(call)
}

fn check_dispatch(dispatch: Dispatch) -> Result<Dispatch, FaultKind> {
    let items = dispatch.group_size.iter().map(|&n| n as u64).product::<u64>();
    require(items >= 1 && items <= MAX_GROUP_ITEMS as u64)?;
    require((1..=3).contains(&dispatch.work_dim))?;
    require(dispatch.header.param <= MAX_LOCAL_BYTES)?;
    require(dispatch.scratch_bytes <= MAX_SCRATCH_BYTES)?;
    if dispatch.header.flags & flag::INDIRECT != 0 {
        require(dispatch.groups[2] == 0)?;
        aligned(dispatch.indirect_address(), 4)?;
    }
    if dispatch.header.flags & flag::COOPERATIVE != 0 {
        require(dispatch.header.flags & (flag::INDIRECT | flag::INDEPENDENT) == 0)?;
        let groups = dispatch.groups.iter().map(|&n| n as u64).fold(1, u64::saturating_mul);
        require(groups <= MAX_COOPERATIVE_GROUPS as u64)?;
    }
    require(dispatch.entry != 0)?;
    aligned(dispatch.kernarg, BLOCK_ALIGN)?;
    Ok(dispatch)
}

#[inline]
fn check_nop(nop: &Nop) -> Result<(), FaultKind> {
    zero(&nop.zero)
}

#[inline]
fn check_copy(copy: &Copy) -> Result<(), FaultKind> {
    zero(&copy.zero)?;
    require(copy.header.param == 0)?;
    require(copy.dst.checked_add(copy.size).is_some())?;
    require(copy.src.checked_add(copy.size).is_some())
}

#[inline]
fn check_fill(fill: &Fill) -> Result<(), FaultKind> {
    let size = fill.header.param;
    require(fill.zero == 0 && (1..=MAX_FILL_PATTERN).contains(&size))?;
    require(fill.dst.checked_add(fill.size).is_some())?;
    let used = if size <= INLINE_FILL_PATTERN { size as usize } else { 8 };
    // The check uses one number: a loop over bytes takes as long as the rest of a short fill.
    let unused = u128::from_le_bytes(fill.pattern).checked_shr(8 * used as u32);
    require(unused.unwrap_or(0) == 0)
}

#[inline]
fn require(holds: bool) -> Result<(), FaultKind> {
    if holds {
        Ok(())
    } else {
        Err(FaultKind::BadField)
    }
}

#[inline]
fn zero(words: &[u64]) -> Result<(), FaultKind> {
    require(words.iter().all(|&word| word == 0))
}

fn zero_bytes(bytes: &[u8]) -> Result<(), FaultKind> {
    require(bytes.iter().all(|&byte| byte == 0))
}

/// A null address is as wrong as a misaligned one: nothing is ever mapped there.
#[inline]
fn aligned(address: u64, to: u64) -> Result<(), FaultKind> {
    if address != 0 && address.is_multiple_of(to) {
        Ok(())
    } else {
        Err(FaultKind::BadAlignment)
    }
}
