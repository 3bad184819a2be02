// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses the private variables that can become values, and divides them.
//!
//! A variable whose address is only used by loads and stores at constant offsets is divided into
//! *slots*. If all accesses to some bytes agree on a scalar or vector, that is a slot. Otherwise each
//! scalar is one, and scalars of different sizes at one place share an integer.

use std::collections::HashMap;
use std::ops::Range;

use super::units::{Unit, constant_offset, units};
use crate::ir::{
    BlockId, ConstKind, ConvertOp, Function, Module, Op, Operand, TypeId, Uses, ValueId,
};

/// A part of a variable that becomes a value.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    /// The variable's index.
    pub(super) variable: usize,
    /// Its bytes in the variable.
    pub(super) start: u64,
    pub(super) end: u64,
    /// The type of the value.
    pub(super) ty: TypeId,
    /// Whether the value is an integer of which accesses take parts.
    pub(super) shared: bool,
}

/// The slots of a function's variables.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// All slots: those of one variable are adjacent, in ascending order.
    pub(super) all: Vec<Slot>,
    /// The variables that become values, by index.
    pub(super) chosen: Vec<bool>,
    /// The addresses in those variables, with the index and the offset.
    pub(super) addresses: HashMap<ValueId, (usize, u64)>,
    /// For each variable that becomes values, its first slot.
    first: Vec<usize>,
}

/// The uses of a variable, all of which are loads and stores at constant offsets.
struct Survey {
    addresses: Vec<(ValueId, u64)>,
    accesses: Vec<Unit>,
}

impl Slots {
    /// Finds the slots, at most `limit` in all. Variables that are `left_out`, by index, have none.
    pub(super) fn find(
        module: &mut Module,
        function: &Function,
        limit: usize,
        left_out: &[bool],
    ) -> Self {
        let uses = Uses::of_function(function);
        let mut slots = Self::default();
        for (index, variable) in function.variables.iter().enumerate() {
            let before = slots.all.len();
            slots.first.push(before);
            let mut survey = survey(module, function, &uses, variable.address, variable.size);
            // An initial value is a write, too: of its own parts, which need not be those that the
            // function accesses. A null value can be divided into any parts.
            let init = variable.init.filter(|&init| module.constants[init].kind != ConstKind::Null);
            if let (Some(found), Some(_)) = (&mut survey, init) {
                let (ty, size) = (variable.ty, variable.size);
                if access_of(module, ty, 0, size, &mut found.accesses).is_none() {
                    survey = None;
                }
            }
            let divided = survey.as_ref().and_then(|survey| divide(module, &survey.accesses));
            let left_out = left_out.get(index).is_some_and(|&it| it);
            let chosen = !left_out && divided.as_ref().is_some_and(|it| before + it.len() <= limit);
            slots.chosen.push(chosen);
            if let (Some(survey), Some(divided), true) = (survey, divided, chosen) {
                let own =
                    |(start, end, ty, shared)| Slot { variable: index, start, end, ty, shared };
                slots.all.extend(divided.into_iter().map(own));
                let places = survey.addresses.into_iter();
                slots.addresses.extend(places.map(|(value, offset)| (value, (index, offset))));
            }
        }
        slots
    }

    /// The slots of a variable that have bytes between two offsets, by number.
    pub(super) fn within(
        &self,
        variable: usize,
        start: u64,
        end: u64,
    ) -> impl Iterator<Item = usize> + use<'_> {
        let own = self.of(variable);
        let from = self.all[own.clone()].partition_point(|slot| slot.end <= start);
        (own.start + from..own.end).take_while(move |&slot| self.all[slot].start < end)
    }

    /// The range of a variable's slots.
    pub(super) fn of(&self, variable: usize) -> Range<usize> {
        let behind = self.first.get(variable + 1).copied().unwrap_or(self.all.len());
        self.first[variable]..behind
    }
}

/// The uses of a variable, unless one of them keeps it from becoming values.
fn survey(
    module: &Module,
    function: &Function,
    uses: &Uses,
    address: ValueId,
    size: u64,
) -> Option<Survey> {
    let mut survey = Survey { addresses: vec![(address, 0)], accesses: Vec::new() };
    let mut next = 0;
    while let Some(&(value, at)) = survey.addresses.get(next) {
        next += 1;
        for &(block, index) in uses.of(value) {
            let inst = function.blocks[block].insts.get(index as usize)?;
            match &inst.op {
                Op::Address { offset, terms, .. } => {
                    let offset = constant_offset(module, *offset, terms)?;
                    let at = at.checked_add_signed(offset)?;
                    survey.addresses.push((inst.result?, at));
                }
                Op::Convert(ConvertOp::PtrCast, _) => survey.addresses.push((inst.result?, at)),
                Op::Load(_, access) if !access.volatile => {
                    let ty = function.values[inst.result?].ty;
                    access_of(module, ty, at, size, &mut survey.accesses)?;
                }
                Op::Store(_, stored, access)
                    if !access.volatile && *stored != Operand::Value(value) =>
                {
                    let ty = module.operand_type(function, *stored);
                    access_of(module, ty, at, size, &mut survey.accesses)?;
                }
                _ => return None,
            }
        }
    }
    Some(survey)
}

fn access_of(
    module: &Module,
    ty: TypeId,
    at: u64,
    size: u64,
    accesses: &mut Vec<Unit>,
) -> Option<()> {
    let mut own = Vec::new();
    let good = units(&module.types, ty, at, &mut own) && own.iter().all(|unit| unit.end() <= size);
    accesses.extend(own);
    good.then_some(())
}

/// The slots for some accesses: start, end, type, and whether it is shared.
fn divide(module: &mut Module, accesses: &[Unit]) -> Option<Vec<(u64, u64, TypeId, bool)>> {
    let mut slots = Vec::new();
    for group in overlapping(accesses.to_vec()) {
        let first = group[0];
        if group.iter().all(|unit| unit.offset == first.offset && unit.ty == first.ty) {
            slots.push((first.offset, first.end(), first.ty, false));
            continue;
        }
        let types = &module.types;
        let scalars = group.iter().flat_map(|unit| {
            let element = types.element(unit.ty);
            let stride = types.size(element);
            let lanes = u64::from(types.lanes(unit.ty));
            (0..lanes).map(move |i| Unit::new(types, element, unit.offset + i * stride))
        });
        for group in overlapping(scalars.collect()) {
            let start = group[0].offset;
            let end = group.iter().map(|unit| unit.end()).max()?;
            let whole = group.iter().all(|unit| (unit.offset, unit.end()) == (start, end));
            if whole {
                slots.push((start, end, group[0].ty, false));
                continue;
            }
            let size = end - start;
            if ![2, 4, 8].contains(&size) {
                return None;
            }
            slots.push((start, end, module.types.int(size as u32 * 8), true));
        }
    }
    Some(slots)
}

/// Groups of units that have bytes in common, in ascending order.
fn overlapping(mut all: Vec<Unit>) -> Vec<Vec<Unit>> {
    all.sort_by_key(|unit| (unit.offset, unit.size, unit.ty));
    all.dedup();
    let mut groups: Vec<Vec<Unit>> = Vec::new();
    let mut end = 0;
    for unit in all {
        match groups.last_mut() {
            Some(group) if unit.offset < end => group.push(unit),
            _ => groups.push(vec![unit]),
        }
        end = end.max(unit.end());
    }
    groups
}

/// For each slot, the blocks that write it, and those that read its earlier value.
pub(super) struct Traffic {
    pub(super) writes: Vec<Vec<BlockId>>,
    pub(super) reads: Vec<Vec<BlockId>>,
}

impl Traffic {
    pub(super) fn new(module: &Module, function: &Function, slots: &Slots) -> Self {
        let none = || vec![Vec::new(); slots.all.len()];
        let mut traffic = Self { writes: none(), reads: none() };
        for (id, block) in function.blocks.iter() {
            for inst in &block.insts {
                let (Op::Load(Operand::Value(at), _) | Op::Store(Operand::Value(at), ..)) = inst.op
                else {
                    continue;
                };
                let Some(&(variable, offset)) = slots.addresses.get(&at) else { continue };
                let (ty, stores) = match inst.op {
                    Op::Store(_, value, _) => (module.operand_type(function, value), true),
                    _ => {
                        let Some(result) = inst.result else { continue };
                        (function.values[result].ty, false)
                    }
                };
                let mut own = Vec::new();
                units(&module.types, ty, offset, &mut own);
                for unit in own {
                    for slot in slots.within(variable, unit.offset, unit.end()) {
                        let (start, end) = (slots.all[slot].start, slots.all[slot].end);
                        let whole = stores && unit.offset <= start && unit.end() >= end;
                        let written = traffic.writes[slot].last() == Some(&id);
                        let reads = &mut traffic.reads[slot];
                        if !whole && !written && reads.last() != Some(&id) {
                            reads.push(id);
                        }
                        if stores && !written {
                            traffic.writes[slot].push(id);
                        }
                    }
                }
            }
        }
        traffic
    }
}
