// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory layout of the private variables of a vector's items.
//!
//! Usually the items' variables are adjacent in memory. An item's third element is then a whole
//! variable away from its neighbour's, and a load at one index in all items is a gather. A variable
//! whose scalars all have one size is laid out element by element instead: at one index, the items'
//! elements are neighbours, and form a plain vector.
//!
//! ```text
//!   float a[3], four items        a0 a1 a2 | a0 a1 a2 | a0 a1 a2 | a0 a1 a2
//!   element by element            a0 a0 a0 a0 | a1 a1 a1 a1 | a2 a2 a2 a2
//! ```
//!
//! An item's address of such a variable is that of its first element, and all offsets from there are
//! multiplied by the number of items. This requires that each use of the variable's address is known.

use std::collections::{HashMap, HashSet};

use crate::ir::eval::apply;
use crate::ir::{
    Access, ConstKind, ConvertOp, ENTRY, Flags, Function, Inst, Loc, Module, Op, Operand, Type,
    TypeId, Uses, ValueId,
};

use super::shape::private_step;
use crate::optimise::is_skipped;
use crate::optimise::multiples::Multiples;

/// The maximum alignment of a variable: the size of a processor's largest load.
const MAX_ALIGN: u64 = 64;
/// The maximum number of scalars of one access, and of an initialised variable.
const MAX_SCALARS: usize = 64;

/// The name that skips this, like a pass of [`crate::optimise`].
const NAME: &str = "layout";

/// Lays out the variables for which this is possible element by element, for vectors of `lanes` items.
/// Returns, by variable, the distance in bytes from one item's variable to the next one's.
pub fn lay_out(module: &mut Module, function: &mut Function, lanes: u32) -> Vec<i64> {
    let variables = function.variables.iter();
    let mut steps: Vec<i64> = variables.map(|it| private_step(it.size, it.align)).collect();
    if steps.is_empty() || is_skipped(NAME) {
        return steps;
    }
    let uses = Uses::of_function(function);
    let multiples = Multiples::of_function(module, function);
    // The addresses in those variables, with the size of an element.
    let mut addresses: HashMap<ValueId, u64> = HashMap::new();
    let mut stores = Vec::new();
    for (index, step) in steps.iter_mut().enumerate() {
        let Some((unit, own)) = survey(module, function, (&uses, &multiples), index, lanes) else {
            continue;
        };
        let variable = &mut function.variables[index];
        // A variable of one element has this layout anyway.
        if unit == variable.size {
            continue;
        }
        let element = module.types.int(unit as u32 * 8);
        let Some(ty) = module.types.intern(Type::Array(element, variable.size / unit)) else {
            continue;
        };
        *step = unit as i64;
        addresses.extend(own.into_iter().map(|value| (value, unit)));
        variable.ty = ty;
        variable.align = variable.align.max((unit * u64::from(lanes)).min(MAX_ALIGN));
        if let Some(byte) = variable.init.and_then(|init| module.repeated_byte(init)) {
            let bits = u64::from_le_bytes([byte; 8]) & (u64::MAX >> (64 - 8 * unit));
            let part = module.const_int(element, bits);
            let parts = vec![part; (variable.size / unit) as usize];
            variable.init = Some(module.constant(ty, ConstKind::Composite(parts)));
        } else if let Some(init) = variable.init.take() {
            let address = Operand::Value(variable.address);
            let access = Access { align: unit as u32, volatile: false, nontemporal: false };
            let op = Op::Store(address, Operand::Const(init), access);
            let (flags, loc) = (Flags::empty(), function.loc);
            // It is split with all others.
            stores.push(Inst { result: None, op, flags, loc });
        }
    }
    function.blocks[ENTRY].insts.splice(0..0, stores);
    if !addresses.is_empty() {
        rewrite(module, function, &addresses, lanes);
    }
    steps
}

/// The size of a variable's elements and its addresses, if it can be laid out element by element.
fn survey(
    module: &Module,
    function: &Function,
    (uses, multiples): (&Uses, &Multiples),
    index: usize,
    lanes: u32,
) -> Option<(u64, Vec<ValueId>)> {
    let variable = &function.variables[index];
    let mut found = vec![variable.address];
    let mut known = HashSet::from([variable.address]);
    // Operands that must be addresses of the variable too.
    let mut others = Vec::new();
    let mut unit = None;
    // All distances, which must be multiples of an element.
    let mut distances = vec![variable.size as i64];
    // Indices with their scales, for which the same must hold.
    let mut scaled = Vec::new();
    if let Some(init) = variable.init.filter(|&init| module.repeated_byte(init).is_none()) {
        accessed(module, module.constants[init].ty, &mut unit, &mut distances)?;
    }
    let mut next = 0;
    while let Some(&value) = found.get(next) {
        next += 1;
        for &(block, at) in uses.of(value) {
            let inst = function.blocks[block].insts.get(at as usize)?;
            let mut add = |value: ValueId| {
                if known.insert(value) {
                    found.push(value);
                }
            };
            match &inst.op {
                Op::Address { offset, terms, .. } => {
                    distances.push(*offset);
                    scaled.extend(terms);
                    add(inst.result?);
                }
                Op::Convert(ConvertOp::PtrCast, _) => add(inst.result?),
                Op::Phi(incoming) => {
                    others.extend(incoming.iter().map(|arm| arm.1));
                    add(inst.result?);
                }
                Op::Select(_, a, b) => {
                    others.extend([*a, *b]);
                    add(inst.result?);
                }
                // The order of addresses stays the same.
                Op::Compare(_, a, b) => others.extend([*a, *b]),
                Op::Load(..) => {
                    let ty = function.values[inst.result?].ty;
                    accessed(module, ty, &mut unit, &mut distances)?;
                }
                Op::Store(_, stored, _) if *stored != Operand::Value(value) => {
                    let ty = module.operand_type(function, *stored);
                    accessed(module, ty, &mut unit, &mut distances)?;
                }
                _ => return None,
            }
        }
    }
    let unit = unit?;
    let fits = |distance: &i64| {
        distance % unit as i64 == 0 && distance.checked_mul(i64::from(lanes)).is_some()
    };
    let log = unit.trailing_zeros();
    let index_fits = |&(index, stride): &(Operand, i64)| {
        let zeros = stride.trailing_zeros() + multiples.zeros(module, index);
        zeros >= log && stride.checked_mul(i64::from(lanes)).is_some()
    };
    let own = |operand: &Operand| match operand {
        Operand::Value(value) => known.contains(value),
        Operand::Const(_) => false,
    };
    let good =
        distances.iter().all(fits) && scaled.iter().all(index_fits) && others.iter().all(own);
    good.then_some((unit, found))
}

/// Records an access of a type: its scalars must have the size of all others.
fn accessed(
    module: &Module,
    ty: TypeId,
    unit: &mut Option<u64>,
    distances: &mut Vec<i64>,
) -> Option<()> {
    let mut scalars = Vec::new();
    add_scalars(module, ty, 0, &mut Vec::new(), &mut scalars)?;
    for scalar in scalars {
        let size = module.types.size(scalar.ty);
        if *unit.get_or_insert(size) != size {
            return None;
        }
        distances.push(scalar.offset as i64);
    }
    Some(())
}

/// A scalar of a type: its place in memory, and its path.
struct Scalar {
    ty: TypeId,
    offset: u64,
    path: Vec<u32>,
}

/// Adds the scalars of a type; `None` if there are too many, or if they cannot be accessed.
fn add_scalars(
    module: &Module,
    ty: TypeId,
    offset: u64,
    path: &mut Vec<u32>,
    to: &mut Vec<Scalar>,
) -> Option<()> {
    let types = &module.types;
    let parts: Vec<(TypeId, u64)> = match &types[ty] {
        Type::Vector(element, _) | Type::Array(element, _) => {
            let n = match types[ty] {
                Type::Vector(_, n) => u64::from(n),
                Type::Array(_, n) => n,
                _ => 0,
            };
            if n > MAX_SCALARS as u64 {
                return None;
            }
            (0..n).map(|i| (*element, i * types.stride(*element))).collect()
        }
        Type::Struct { members, .. } => {
            let at = |index| types.member_offset(ty, index);
            let parts = (0..).zip(members);
            parts.map(|(i, &member)| Some((member, at(i)?))).collect::<Option<_>>()?
        }
        Type::Void | Type::Opaque(_) => return None,
        _ => {
            to.push(Scalar { ty, offset, path: path.clone() });
            return (to.len() <= MAX_SCALARS).then_some(());
        }
    };
    for (i, (part, at)) in (0..).zip(parts) {
        path.push(i);
        add_scalars(module, part, offset + at, path, to)?;
        path.pop();
    }
    Some(())
}

/// Multiplies the distances, and splits accesses of several scalars.
fn rewrite(
    module: &mut Module,
    function: &mut Function,
    addresses: &HashMap<ValueId, u64>,
    lanes: u32,
) {
    let factor = i64::from(lanes);
    let unit_of = |operand: Operand| match operand {
        Operand::Value(value) => addresses.get(&value).copied(),
        Operand::Const(_) => None,
    };
    for id in function.blocks.ids() {
        let insts = std::mem::take(&mut function.blocks[id].insts);
        let mut writer = Writer { module, function, out: Vec::with_capacity(insts.len()), factor };
        for mut inst in insts {
            match &mut inst.op {
                Op::Address { base, offset, terms, .. } if unit_of(*base).is_some() => {
                    *offset *= factor;
                    terms.iter_mut().for_each(|(_, stride)| *stride *= factor);
                    writer.out.push(inst);
                }
                &mut Op::Load(at, access) => match unit_of(at) {
                    Some(unit) => writer.load(&inst, at, Access { align: unit as u32, ..access }),
                    None => writer.out.push(inst),
                },
                &mut Op::Store(at, value, access) => match unit_of(at) {
                    Some(unit) => {
                        writer.store(&inst, at, value, Access { align: unit as u32, ..access });
                    }
                    None => writer.out.push(inst),
                },
                _ => writer.out.push(inst),
            }
        }
        let out = writer.out;
        function.blocks[id].insts = out;
    }
}

struct Writer<'a> {
    module: &'a mut Module,
    function: &'a mut Function,
    out: Vec<Inst>,
    factor: i64,
}

impl Writer<'_> {
    fn push(&mut self, op: Op, ty: TypeId, loc: Loc) -> Operand {
        let result = self.function.new_value(ty);
        self.out.push(Inst { result: Some(result), op, flags: Flags::empty(), loc });
        Operand::Value(result)
    }

    /// The scalars of a type; none if it is a scalar itself.
    fn scalars(&self, ty: TypeId) -> Vec<Scalar> {
        let mut scalars = Vec::new();
        // The survey has checked that this succeeds.
        let _ = add_scalars(self.module, ty, 0, &mut Vec::new(), &mut scalars);
        scalars.retain(|scalar| !scalar.path.is_empty());
        scalars
    }

    fn at(&mut self, base: Operand, offset: u64, loc: Loc) -> Operand {
        if offset == 0 {
            return base;
        }
        let ty = self.module.operand_type(self.function, base);
        let offset = offset as i64 * self.factor;
        self.push(Op::Address { base, offset, terms: Vec::new(), inbounds: true }, ty, loc)
    }

    fn load(&mut self, inst: &Inst, at: Operand, access: Access) {
        let Some(result) = inst.result else { return };
        let ty = self.function.values[result].ty;
        let scalars = self.scalars(ty);
        if scalars.is_empty() {
            self.out.push(Inst { op: Op::Load(at, access), ..inst.clone() });
            return;
        }
        let mut values = Vec::new();
        for scalar in scalars {
            let at = self.at(at, scalar.offset, inst.loc);
            values.push(self.push(Op::Load(at, access), scalar.ty, inst.loc));
        }
        let whole = self.assemble(ty, &mut values.into_iter(), inst.loc);
        // The last insertion has just completed the value, so it gets the result's name.
        if let (Operand::Value(value), Some(last)) = (whole, self.out.last_mut())
            && last.result == Some(value)
        {
            last.result = Some(result);
        }
    }

    fn assemble(
        &mut self,
        ty: TypeId,
        values: &mut impl Iterator<Item = Operand>,
        loc: Loc,
    ) -> Operand {
        let parts: Vec<TypeId> = match &self.module.types[ty] {
            Type::Vector(element, n) => vec![*element; *n as usize],
            Type::Array(element, n) => vec![*element; *n as usize],
            Type::Struct { members, .. } => members.clone(),
            _ => {
                let undef = self.module.constant(ty, ConstKind::Undef);
                return values.next().unwrap_or(Operand::Const(undef));
            }
        };
        let parts = parts.into_iter().map(|part| self.assemble(part, values, loc)).collect();
        self.push(Op::Construct(parts), ty, loc)
    }

    fn store(&mut self, inst: &Inst, at: Operand, value: Operand, access: Access) {
        let ty = self.module.operand_type(self.function, value);
        let scalars = self.scalars(ty);
        if scalars.is_empty() {
            self.out.push(Inst { op: Op::Store(at, value, access), ..inst.clone() });
            return;
        }
        for scalar in scalars {
            let at = self.at(at, scalar.offset, inst.loc);
            let op = Op::Extract(value, scalar.path);
            let known = match value {
                Operand::Const(id) => apply(self.module, &op, scalar.ty, &[id]),
                Operand::Value(_) => None,
            };
            let part = match known {
                Some(constant) => Operand::Const(constant),
                None => self.push(op, scalar.ty, inst.loc),
            };
            self.out.push(Inst { op: Op::Store(at, part, access), ..inst.clone() });
        }
    }
}
