// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the items of a work-group together: their waits for each other, and their exchange of values.
//!
//! This implements the meaning of the operations, not the way of compiled code: when a scope has
//! stopped, the scheduler passes each item the list of those that stopped at the same place with their
//! offers, and the item computes its result from that.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::item::{Item, Status};
use super::launch::InterpError;
use super::memory::Memory;
use super::ops;
use super::trace::Event;
use super::value::Value;
use crate::ir::Scalar;
use crate::ir::group::{Product, Saturation, identity};
use crate::ir::{
    BinaryOp, BlockId, Function, GroupOp, Module, Op, Operand, Scope, Type, TypeId, ValueId,
};
use crate::regions;

/// The offers of the items that stopped at one place, with their places in the scope, ascending.
pub type Offers = Rc<[(usize, Value)]>;

/// Runs items, in the order of their linear ids, until all have ended.
pub fn run(
    items: &mut [Item<'_>],
    subgroup_size: usize,
    memory: &mut Memory,
    steps: &mut u64,
) -> Result<(), InterpError> {
    let mut ranks = Ranks::new();
    loop {
        for peers in items.chunks_mut(subgroup_size) {
            loop {
                for item in peers.iter_mut() {
                    item.run(memory, steps)?;
                }
                if !peers.iter().any(|item| item.status == Status::Waits(Scope::Subgroup)) {
                    break;
                }
                release(peers, Scope::Subgroup, &mut ranks, memory);
            }
        }
        if items.iter().all(|item| item.status == Status::Finished) {
            return Ok(());
        }
        if items.iter().any(|item| matches!(item.status, Status::WaitsAt(_))) {
            let mut peers: Vec<_> = items.chunks_mut(subgroup_size).collect();
            if release_named(&mut peers, memory) {
                continue;
            }
        }
        release(items, Scope::Workgroup, &mut ranks, memory);
        // Named barriers that too few sub-groups will ever reach.
        for item in items.iter_mut().filter(|item| matches!(item.status, Status::WaitsAt(_))) {
            item.status = Status::Ready;
        }
    }
}

/// Resumes the sub-groups that wait at a named barrier, if there are as many as it says. Returns whether any
/// are.
fn release_named(subgroups: &mut [&mut [Item<'_>]], memory: &Memory) -> bool {
    let mut waiting: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (number, items) in subgroups.iter().enumerate() {
        let at = items.iter().find_map(|item| match item.status {
            Status::WaitsAt(at) => Some(at),
            _ => None,
        });
        if let Some(at) = at {
            waiting.entry(at).or_default().push(number);
        }
    }
    let mut any = false;
    for (at, numbers) in waiting {
        let mut count = [0; 4];
        let read = memory.read(at, &mut count).is_ok();
        let count = u32::from_le_bytes(count).max(1) as usize;
        if !read || numbers.len() < count {
            continue;
        }
        any = true;
        for number in numbers.into_iter().take(count) {
            for item in subgroups[number].iter_mut() {
                if let Status::WaitsAt(_) = item.status {
                    item.status = Status::Ready;
                }
            }
        }
    }
    any
}

/// The order of the blocks of each function that was needed so far.
type Ranks = HashMap<*const Function, Vec<u32>>;

/// Resumes items that wait for a scope, once it has stopped: all those of a work-group; of a sub-group
/// those that are behind the others.
fn release<'m>(items: &mut [Item<'m>], scope: Scope, ranks: &mut Ranks, memory: &mut Memory) {
    let mut place = |item: &Item<'m>| -> Vec<(u32, usize)> {
        let of = |(function, block, next): (&'m Function, BlockId, usize)| {
            let ranks = ranks.entry(function).or_insert_with(|| regions::order::ranks(function));
            (regions::order::rank(ranks, block), next)
        };
        item.position().map(of).collect()
    };
    let mut places: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (number, item) in items.iter().enumerate() {
        if item.status == Status::Waits(scope) {
            places.entry(place(item)).or_default().push(number);
        }
    }
    let count = if scope == Scope::Subgroup { 1 } else { places.len() };
    if memory.is_traced() {
        let released = places.values().take(count).flatten();
        let items = released.map(|&at| items[at].number() as u32).collect();
        memory.note(|group| Event::Released { group, items });
    }
    for numbers in places.into_values().take(count) {
        let offer = |&number: &usize| Some((number, items[number].offer.clone()?));
        let offers: Offers = numbers.iter().filter_map(offer).collect();
        for number in numbers {
            let item = &mut items[number];
            item.offer = None;
            item.offers = Some((number, Rc::clone(&offers)));
            item.status = Status::Ready;
        }
    }
}

/// The result for the item at place `own`.
pub fn collect(
    module: &Module,
    op: GroupOp,
    ty: TypeId,
    own: usize,
    offers: &Offers,
    index: Option<Value>,
) -> Result<Value, String> {
    if let (GroupOp::MulAdd(it), Some(added)) = (op, &index) {
        return product(module, it, ty, own, offers, added);
    }
    let find = |place: usize| offers.iter().find(|(other, _)| *other == place);
    let missing = || "a group operation without an offer".to_owned();
    let Some(combine) = op.combines() else {
        let wanted = index.and_then(|index| find(usize::try_from(index.bits()).ok()?));
        return wanted.or_else(|| find(own)).map(|(_, value)| value.clone()).ok_or_else(missing);
    };
    let within = |place: usize| match op {
        GroupOp::Reduce(_, Some(size)) => place / size as usize == own / size as usize,
        GroupOp::InclusiveScan(_) => place <= own,
        GroupOp::ExclusiveScan(_) => place < own,
        GroupOp::Reduce(_, None) | GroupOp::Shuffle | GroupOp::MulAdd(_) => true,
    };
    let mut sum = start(module, combine, ty)?;
    for (_, value) in offers.iter().filter(|(place, _)| within(*place)) {
        // Only the operator is used; the values are passed separately.
        let none = Operand::Value(ValueId(0));
        sum = ops::apply(
            module,
            &Op::Binary(combine, none, none),
            ty,
            &[(ty, sum), (ty, value.clone())],
        )?;
    }
    Ok(sum)
}

/// The part of a product of matrices that belongs to the item at place `own`, added to its part of another
/// matrix. The parts of items that offer nothing are zeros.
fn product(
    module: &Module,
    it: Product,
    ty: TypeId,
    own: usize,
    offers: &Offers,
    added: &Value,
) -> Result<Value, String> {
    let Type::Array(element, _) = module.types[ty] else { return Err("a product".into()) };
    let none = Operand::Value(ValueId(0));
    let apply = |op, a: Value, b: Value| {
        let op = Op::Binary(op, none, none);
        ops::apply(module, &op, element, &[(element, a), (element, b)])
    };
    let part = |factor: usize, at: u32| {
        let lane = (at % it.lanes) as usize;
        let offer = offers.iter().find(|(place, _)| place % it.lanes as usize == lane);
        let part = |(_, value): &(usize, Value)| value.part(factor).part((at / it.lanes) as usize);
        let value = offer.map_or(Value::Bits(0), part);
        match module.types[element] {
            // Factors may have 16 bits.
            Type::Int(32) if it.narrow => Value::Bits(u64::from(value.bits() as i16 as u32)),
            _ => value,
        }
    };
    let (multiply, add) = match module.types[element] {
        Type::Float(_) => (BinaryOp::FMul, BinaryOp::FAdd),
        _ => (BinaryOp::Mul, BinaryOp::Add),
    };
    let last = match it.saturation {
        Saturation::None => add,
        Saturation::Signed => BinaryOp::SAddSat,
        Saturation::Unsigned => BinaryOp::UAddSat,
    };
    let mut parts = Vec::new();
    for component in 0..it.result() {
        let start = added.part(component as usize);
        let Some((row, column)) = it.place(component, (own % it.lanes as usize) as u32) else {
            parts.push(start);
            continue;
        };
        let mut sum = Value::Bits(0);
        for k in 0..it.depth {
            let (a, b) = (part(0, row * it.depth + k), part(1, k * it.columns + column));
            let one = apply(multiply, a, b)?;
            sum = apply(add, sum, one)?;
        }
        parts.push(apply(last, sum, start)?);
    }
    Ok(Value::Parts(parts))
}

/// The value with which combining begins.
fn start(module: &Module, op: BinaryOp, ty: TypeId) -> Result<Value, String> {
    let types = &module.types;
    let bits = Scalar::of(&types[types.element(ty)]).and_then(|ty| identity(op, ty));
    let bits = Value::Bits(bits.ok_or_else(|| op.name().to_owned())?);
    Ok(match types.lanes(ty) {
        1 => bits,
        n => Value::Parts(vec![bits; n as usize]),
    })
}
