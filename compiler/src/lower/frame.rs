// SPDX-License-Identifier: MIT OR Apache-2.0
//! The layout of the frame of an item that can be resumed.

use std::collections::HashMap;

use super::places::Form;
use super::sums::{self, Sum};
use super::types::memory_type;
use super::unit::{MAX_ALIGN, Unit, align_up};
use crate::ir::{Module, Op, Scope, ValueId};
use crate::regions::{Ends, Regions, uniform};

/// The frame of an item that can be resumed: its state (32 bits) or, if items exchange values, the part
/// for that; its private variables, and the values that are live across barriers.
pub(super) struct Frame {
    /// Bytes from one item's frame to the next's.
    pub(super) size: u64,
    /// Offset of the private variables of module scope.
    pub(super) private_offset: u64,
    /// The places through which items exchange values, if they do or sub-groups wait.
    pub(super) exchange: Option<Exchange>,
    /// The ends of each region, if there are few enough.
    pub(super) ends: Vec<Ends>,
    /// Whether all items, or vectors of them, are known to stop at the same barriers.
    pub(super) stops_alike: bool,
    /// Offsets of private variables, by their addresses, and of values.
    pub(super) offsets: HashMap<ValueId, u64>,
    /// The values that all vectors share, which have one place for the whole group.
    pub(super) shared: GroupValues,
    /// What vectors sum up on their way to barriers, if they exchange values in that way alone.
    pub(super) sums: Vec<Sum>,
}

/// Values that are live across barriers and the same for all vectors of a group: loop counters,
/// distances, and values computed from those. They are in two places of the group, not in frames:
/// vectors read the values of the previous barrier from one, and write those for the next barrier to
/// the other. Both are variables of the function that runs the group. LLVM turns them into values, and
/// hoists computations that depend on nothing else out of the loop over the vectors.
#[derive(Default)]
pub(super) struct GroupValues {
    /// Bytes of each place.
    pub(super) size: u64,
    /// Offsets in either place, by value.
    pub(super) offsets: HashMap<ValueId, u64>,
    /// By barrier, the values that are copied from one place to the other behind it: offsets and LLVM's
    /// types.
    pub(super) changed: Vec<Vec<(u64, String)>>,
}

/// The parameters of a resumable function with such values: the place that it reads, and the other.
pub(super) const SHARED: [&str; 2] = ["%shared", "%shared.next"];

impl Frame {
    pub(super) fn new(unit: &Unit<'_>, regions: &Regions) -> Self {
        let types = &unit.module.types;
        let function = &regions.function;
        let ends = regions.ends();
        // It is not used if regions are run as one.
        let alike = match ends.is_empty() {
            true => None,
            false => uniform::shared(unit.module, function),
        };
        let together = unit.form == Form::Vector
            && alike.is_some()
            && ends.iter().all(|ends| !ends.is_empty());
        let found = if together { sums::find(regions).unwrap_or_default() } else { Vec::new() };
        let exchange = match found.is_empty() {
            true => Exchange::new(unit.module, regions),
            false => None,
        };
        let head = exchange.as_ref().map_or(4, |exchange| exchange.end);
        let private_offset = match unit.private_size {
            0 => head,
            _ => align_up(head, MAX_ALIGN),
        };
        let mut end = private_offset + unit.private_size;
        let mut offsets = HashMap::new();
        let mut shared = match &alike {
            Some(alike) if unit.form == Form::Vector && exchange.is_none() => {
                GroupValues::new(unit.module, regions, alike)
            }
            _ => GroupValues::default(),
        };
        let variables = function.variables.iter().map(|v| (v.address, v.size, v.align));
        let own = regions.crossing.iter().filter(|value| !shared.offsets.contains_key(value));
        let values = own.map(|&value| {
            let ty = function.values[value].ty;
            (value, types.size(ty), types.align(ty))
        });
        for (value, size, align) in variables.chain(values) {
            end = align_up(end, align);
            offsets.insert(value, end);
            end += size;
        }
        let mut sums = Vec::new();
        for (barrier, mut sum) in found {
            let (bytes, align) = (types.size(sum.ty), types.align(sum.ty).min(MAX_ALIGN));
            sum.shared = align_up(shared.size, align);
            shared.size = sum.shared + bytes;
            match sum.of_all {
                true => {
                    let handed_on = (sum.shared, memory_type(unit.module, sum.ty));
                    shared.changed[barrier].push(handed_on);
                }
                false => {
                    sum.own = align_up(end, align);
                    end = sum.own + bytes;
                }
            }
            sums.push(sum);
        }
        let size = align_up(end, MAX_ALIGN);
        let stops_alike = alike.is_some();
        Self { size, private_offset, exchange, ends, stops_alike, offsets, shared, sums }
    }
}

impl GroupValues {
    fn new(module: &Module, regions: &Regions, alike: &uniform::Shared) -> Self {
        let type_of = |value: ValueId| regions.function.values[value].ty;
        let mut shared = Self::default();
        for &value in regions.crossing.iter().filter(|&&value| alike.contains(value)) {
            let at = align_up(shared.size, module.types.align(type_of(value)).min(MAX_ALIGN));
            shared.offsets.insert(value, at);
            shared.size = at + module.types.size(type_of(value));
        }
        for barrier in &regions.barriers {
            let changed = barrier.changed.iter().filter_map(|value| {
                Some((*shared.offsets.get(value)?, memory_type(module, type_of(*value))))
            });
            shared.changed.push(changed.collect());
        }
        shared
    }
}

/// States from here on are named barriers.
pub(super) const NAMED_STATES: u32 = 1 << 29;

/// States from here on are barriers of a sub-group. They are positive as signed numbers.
pub(super) const SUBGROUP_STATES: u32 = 1 << 30;

/// The parameters that a resumable item takes if items exchange values: the frames of its sub-group and
/// of its group, their numbers, and which one of each pair is written now.
pub(super) const EXCHANGE_PARAMS: &str =
    ", ptr %peers, i64 %peer.count, i64 %turn, ptr %frames, i64 %items, i64 %phase";

/// Offset of the item's local ids: three 32-bit numbers.
pub(super) const LOCAL_IDS: u64 = 24;

/// The part of a frame through which items exchange values; it is at the frame's start.
pub(super) struct Exchange {
    pub(super) group: Slots,
    pub(super) subgroup: Slots,
    /// Whether the items of a sub-group wait for each other.
    pub(super) turns: bool,
    /// The place for waiting at named barriers, if the kernel has such: `struct named` of `rt/phases.c`.
    pub(super) named: Option<u64>,
    /// The offset of its end.
    pub(super) end: u64,
}

/// The places for one scope. Offsets within the frame.
#[derive(Clone, Copy)]
pub(super) struct Slots {
    /// Two states, 32 bits each.
    pub(super) states: u64,
    /// Whether the result is computed, 32 bits.
    pub(super) ready: u64,
    /// Two offers.
    pub(super) offers: u64,
    /// Bytes from one offer to the other.
    pub(super) offer_size: u64,
    /// The result.
    pub(super) result: u64,
}

impl Exchange {
    /// The places that a kernel needs; `None` if it has nothing but unnamed barriers of the work-group.
    pub(super) fn new(module: &Module, regions: &Regions) -> Option<Self> {
        let function = &regions.function;
        let turns = regions.barriers.iter().any(|barrier| barrier.scope == Scope::Subgroup);
        let mut sizes = [(0, 1); 2];
        let mut offers = false;
        for (_, block) in function.blocks.iter() {
            for inst in &block.insts {
                let Op::Offer(scope, value) = inst.op else { continue };
                let ty = module.operand_type(function, value);
                let (size, align) = &mut sizes[usize::from(scope == Scope::Subgroup)];
                *size = module.types.size(ty).max(*size);
                *align = module.types.align(ty).min(MAX_ALIGN).max(*align);
                offers = true;
            }
        }
        let named = regions.barriers.iter().any(|barrier| barrier.named);
        if !turns && !offers && !named {
            return None;
        }
        let mut end = LOCAL_IDS + 12;
        let mut place = |states, ready, (size, align): (u64, u64)| {
            let offer_size = align_up(size, align);
            let offers = align_up(end, align);
            let result = offers + 2 * offer_size;
            end = result + offer_size;
            Slots { states, ready, offers, offer_size, result }
        };
        let group = place(0, 16, sizes[0]);
        let subgroup = place(8, 20, sizes[1]);
        let named = named.then(|| {
            let at = align_up(end, 8);
            end = at + 16;
            at
        });
        Some(Self { group, subgroup, turns, named, end })
    }

    /// The places for a scope.
    pub(super) fn slots(&self, scope: Scope) -> Slots {
        match scope {
            Scope::Subgroup => self.subgroup,
            _ => self.group,
        }
    }
}
