// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations on values that differ between the items.
//!
//! A value is represented by one vector for each of its scalars, so that a component of all items'
//! `float4` lies in one vector. Structures and arrays are split in the same way.

use super::divide::Division;
use super::emit::Widener;
use super::refusal::Refusal;
use super::shape::Shape;
use crate::ir::{BinaryOp, CompareOp, ConvertOp, Inst, MathOp, Op, Operand, Type, TypeId};

/// The maximum number of scalars of a value.
const MAX_LEAVES: usize = 256;

/// A scalar in a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf {
    pub(super) ty: TypeId,
    /// Its place in memory.
    pub(super) offset: u64,
}

/// Whether an operation may trap, for some divisors.
pub(super) fn divides(op: BinaryOp) -> bool {
    use BinaryOp as B;
    matches!(op, B::UDiv | B::SDiv | B::URem | B::SRem | B::SMod)
}

impl Widener<'_> {
    /// The scalars of a type.
    pub(super) fn leaves(&self, ty: TypeId) -> Result<Vec<Leaf>, Refusal> {
        let mut leaves = Vec::new();
        self.add_leaves(ty, 0, &mut leaves)?;
        Ok(leaves)
    }

    fn add_leaves(&self, ty: TypeId, offset: u64, to: &mut Vec<Leaf>) -> Result<(), Refusal> {
        let types = &self.out.module.types;
        if to.len() > MAX_LEAVES {
            return Err(Refusal::of_type(&self.out.module, ty));
        }
        let repeated = |element: TypeId, n: u64, to: &mut Vec<Leaf>| {
            if n > MAX_LEAVES as u64 {
                return Err(Refusal::of_type(&self.out.module, ty));
            }
            let stride = types.stride(element);
            (0..n).try_for_each(|i| self.add_leaves(element, offset + i * stride, to))
        };
        match &types[ty] {
            Type::Vector(element, n) => repeated(*element, u64::from(*n), to),
            Type::Array(element, n) => repeated(*element, *n, to),
            Type::Struct { members, .. } => {
                for (index, &member) in members.iter().enumerate() {
                    let at = types.member_offset(ty, index as u32).unwrap_or(0);
                    self.add_leaves(member, offset + at, to)?;
                }
                Ok(())
            }
            Type::Void | Type::Opaque(_) => Err(Refusal::of_type(&self.out.module, ty)),
            _ => {
                to.push(Leaf { ty, offset });
                Ok(())
            }
        }
    }

    /// The scalars of a uniform value.
    pub(super) fn scalars(&mut self, whole: Operand) -> Result<Vec<Operand>, Refusal> {
        let ty = self.out.type_of(whole);
        let count = match &self.out.module.types[ty] {
            Type::Vector(_, n) => u64::from(*n),
            Type::Array(_, n) => *n,
            Type::Struct { members, .. } => members.len() as u64,
            _ => return Ok(vec![whole]),
        };
        // Refuses a value that is too large before it is split.
        self.leaves(ty)?;
        let mut scalars = Vec::new();
        for index in 0..count {
            let index = index as u32;
            let Some(part) = self.component(ty, index) else { continue };
            let part = self.out.value(Op::Extract(whole, vec![index]), part);
            scalars.extend(self.scalars(part)?);
        }
        Ok(scalars)
    }

    fn component(&self, ty: TypeId, index: u32) -> Option<TypeId> {
        match &self.out.module.types[ty] {
            Type::Vector(element, _) | Type::Array(element, _) => Some(*element),
            Type::Struct { members, .. } => members.get(index as usize).copied(),
            _ => None,
        }
    }

    /// The range of a type's scalars at a path: the first one, and their number.
    fn stretch(&self, mut ty: TypeId, path: &[u32]) -> Result<(usize, usize), Refusal> {
        let mut first = 0;
        for &index in path {
            for before in 0..index {
                if let Some(part) = self.component(ty, before) {
                    first += self.leaves(part)?.len();
                }
            }
            ty = self.component(ty, index).ok_or_else(|| Refusal::of_type(&self.out.module, ty))?;
        }
        Ok((first, self.leaves(ty)?.len()))
    }

    /// The vectors of the result of an operation.
    pub(super) fn compute(&mut self, inst: &Inst, ty: TypeId) -> Result<Vec<Operand>, Refusal> {
        match &inst.op {
            Op::Construct(parts) => {
                let mut all = Vec::new();
                for &part in parts {
                    all.extend(self.vectors(part)?);
                }
                Ok(all)
            }
            Op::Extract(whole, path) => {
                let (first, count) = self.stretch(self.type_in(*whole), path)?;
                Ok(self.vectors(*whole)?[first..first + count].to_vec())
            }
            Op::Insert(whole, part, path) => {
                let (first, _) = self.stretch(self.type_in(*whole), path)?;
                let mut all = self.vectors(*whole)?;
                for (i, value) in self.vectors(*part)?.into_iter().enumerate() {
                    all[first + i] = value;
                }
                Ok(all)
            }
            Op::Shuffle(a, b, lanes) => {
                let mut all = self.vectors(*a)?;
                all.extend(self.vectors(*b)?);
                Ok(lanes.iter().map(|lane| all[lane.unwrap_or(0) as usize]).collect())
            }
            Op::ExtractDynamic(whole, index) => {
                let parts = self.vectors(*whole)?;
                let index = self.vector(*index)?;
                let mut result = parts[0];
                for (n, &part) in parts.iter().enumerate().skip(1) {
                    result = self.choose(index, n, part, result);
                }
                Ok(vec![result])
            }
            Op::InsertDynamic(whole, value, index) => {
                let parts = self.vectors(*whole)?;
                let value = self.vector(*value)?;
                let index = self.vector(*index)?;
                let parts = parts.into_iter().enumerate();
                Ok(parts.map(|(n, part)| self.choose(index, n, value, part)).collect())
            }
            &Op::Select(condition, a, b) => self.select(condition, a, b),
            Op::Address { base, offset, terms, .. } => {
                self.address(ty, *base, *offset, terms).map(|address| vec![address])
            }
            Op::Convert(ConvertOp::Bitcast, a) => self.bitcast(*a, ty),
            Op::Shadow(at) => {
                let (at, vector) = (self.vector(*at)?, self.out.vector_of(ty));
                Ok(vec![self.out.value(Op::Shadow(at), vector)])
            }
            Op::Math(op, args) => self.math(inst, *op, args, ty),
            Op::AddCarry(a, b)
            | Op::SubBorrow(a, b)
            | Op::UMulExtended(a, b)
            | Op::SMulExtended(a, b) => {
                let pairs: Vec<_> = self.vectors(*a)?.into_iter().zip(self.vectors(*b)?).collect();
                let (mut low, mut high) = (Vec::new(), Vec::new());
                for (a, b) in pairs {
                    let part = self.out.type_of(a);
                    let pair = self.pair_type(part, part);
                    let op = match inst.op {
                        Op::AddCarry(..) => Op::AddCarry(a, b),
                        Op::SubBorrow(..) => Op::SubBorrow(a, b),
                        Op::UMulExtended(..) => Op::UMulExtended(a, b),
                        _ => Op::SMulExtended(a, b),
                    };
                    let both = self.out.value(op, pair);
                    low.push(self.out.value(Op::Extract(both, vec![0]), part));
                    high.push(self.out.value(Op::Extract(both, vec![1]), part));
                }
                low.extend(high);
                Ok(low)
            }
            Op::Unary(..)
            | Op::Binary(..)
            | Op::Ternary(..)
            | Op::Compare(..)
            | Op::Test(..)
            | Op::Convert(..) => self.by_component(inst, ty),
            op => Err(Refusal::new(&format!("the operation {}", self.op_text(op)))),
        }
    }

    /// A name for an operation that has no rule here, for the refusal.
    fn op_text(&self, op: &Op) -> &'static str {
        match op {
            Op::Call(..) => "call",
            Op::Unsupported(_) => "unsupported",
            _ => "of another kind",
        }
    }

    /// The type of an operand of the function.
    pub(super) fn type_in(&self, operand: Operand) -> TypeId {
        self.out.module.operand_type(self.from, operand)
    }

    fn choose(&mut self, index: Operand, n: usize, yes: Operand, no: Operand) -> Operand {
        let index_type = self.out.type_of(index);
        let n = self.out.int(index_type, n as i64);
        let mask_type = self.out.mask_type();
        let is = self.out.value(Op::Compare(CompareOp::Eq, index, n), mask_type);
        let ty = self.out.type_of(yes);
        self.out.value(Op::Select(is, yes, no), ty)
    }

    fn select(&mut self, on: Operand, a: Operand, b: Operand) -> Result<Vec<Operand>, Refusal> {
        let uniform =
            self.shape(on) == Shape::Uniform && self.out.module.types.lanes(self.type_in(on)) == 1;
        let conditions = if uniform { vec![self.one(on)] } else { self.vectors(on)? };
        let pairs: Vec<_> = self.vectors(a)?.into_iter().zip(self.vectors(b)?).collect();
        let mut all = Vec::new();
        for (n, (a, b)) in pairs.into_iter().enumerate() {
            let condition = conditions.get(n).or(conditions.first()).copied();
            let Some(condition) = condition else { continue };
            let ty = self.out.type_of(a);
            all.push(self.out.value(Op::Select(condition, a, b), ty));
        }
        Ok(all)
    }

    /// A vector of addresses. A uniform address stays scalar.
    pub(super) fn address(
        &mut self,
        ty: TypeId,
        base: Operand,
        offset: i64,
        terms: &[(Operand, i64)],
    ) -> Result<Operand, Refusal> {
        let vector = self.out.vector_of(ty);
        let i64_type = self.out.module.types.int(64);
        // Uniform indices come first, varying ones last.
        let (mut same, mut different) = (Vec::new(), Vec::new());
        let mut reach = None;
        let base_shape = self.shape(base);
        let mut base = match base_shape {
            Shape::Varying => self.vector(base)?,
            Shape::Strided { guard: Some(_), .. } => self.vector(base)?,
            Shape::Strided { step, guard: None } => {
                different.push((self.out.steps(i64_type, 1), step));
                self.one(base)
            }
            Shape::Uniform => self.one(base),
        };
        for &(index, stride) in terms {
            match self.shape(index) {
                Shape::Uniform => same.push((self.one(index), stride)),
                _ => {
                    reach = self.shapes.most(&self.out.module, index);
                    different.push((self.vector(index)?, stride));
                }
            }
        }
        let reach = reach.filter(|_| different.len() == 1);
        let base_type = self.out.type_of(base);
        if !same.is_empty() && !different.is_empty() {
            let op = Op::Address { base, offset, terms: same, inbounds: false };
            base = self.out.value(op, base_type);
            let op = Op::Address { base, offset: 0, terms: different, inbounds: false };
            return Ok(self.note_reach(op, vector, reach));
        }
        same.extend(different);
        let op = Op::Address { base, offset, terms: same, inbounds: false };
        Ok(self.note_reach(op, vector, reach))
    }

    /// A vector of addresses with one index that varies, and how large that may be.
    fn note_reach(&mut self, op: Op, vector: TypeId, reach: Option<u64>) -> Operand {
        let at = self.out.value(op, vector);
        if let (Operand::Value(at), Some(most)) = (at, reach) {
            self.reach.insert(at, most);
        }
        at
    }

    /// The same bits as another type, which may have fewer and larger components, or more and smaller
    /// ones.
    fn bitcast(&mut self, a: Operand, ty: TypeId) -> Result<Vec<Operand>, Refusal> {
        let to = self.leaves(ty)?;
        let mut parts = self.vectors(a)?;
        let (n, wanted) = (parts.len(), to.len());
        if n == wanted {
            // Each is a part of one of the others.
        } else if n.is_multiple_of(wanted) {
            parts = self.join(&parts, n / wanted);
        } else if wanted.is_multiple_of(n) {
            parts = self.split(&parts, wanted / n);
        } else {
            return Err(Refusal::new("a bitcast between components that do not divide each other"));
        }
        let mut all = Vec::new();
        for (value, leaf) in parts.into_iter().zip(to) {
            let vector = self.out.vector_of(leaf.ty);
            all.push(self.bits_as(value, vector));
        }
        Ok(all)
    }

    /// The same bits as a value of another type.
    pub(super) fn bits_as(&mut self, value: Operand, ty: TypeId) -> Operand {
        match self.out.type_of(value) == ty {
            true => value,
            false => self.out.value(Op::Convert(ConvertOp::Bitcast, value), ty),
        }
    }

    /// Vectors of integers with the bits of `n` parts each, the first part lowest.
    fn join(&mut self, parts: &[Operand], n: usize) -> Vec<Operand> {
        let Some(&first) = parts.first() else { return Vec::new() };
        let bits = self.out.module.types.scalar_bits(self.out.type_of(first));
        let (small, large) = (self.vector_of_ints(bits), self.vector_of_ints(bits * n as u32));
        let mut all = Vec::new();
        for parts in parts.chunks_exact(n) {
            let mut whole = None;
            for (&part, at) in parts.iter().zip((0..).step_by(bits as usize)) {
                let part = self.bits_as(part, small);
                let part = self.out.value(Op::Convert(ConvertOp::ZExt, part), large);
                whole = Some(whole.map_or(part, |below| {
                    let places = self.out.int(large, at);
                    let part = self.out.value(Op::Binary(BinaryOp::Shl, part, places), large);
                    self.out.value(Op::Binary(BinaryOp::Or, below, part), large)
                }));
            }
            all.extend(whole);
        }
        all
    }

    /// Vectors of integers with `n` parts of the bits of each of `wholes`, the lowest first.
    fn split(&mut self, wholes: &[Operand], n: usize) -> Vec<Operand> {
        let Some(&first) = wholes.first() else { return Vec::new() };
        let large_bits = self.out.module.types.scalar_bits(self.out.type_of(first));
        let bits = large_bits / n as u32;
        let (small, large) = (self.vector_of_ints(bits), self.vector_of_ints(large_bits));
        let mut all = Vec::new();
        for &whole in wholes {
            let whole = self.bits_as(whole, large);
            for at in (0..i64::from(large_bits)).step_by(bits as usize) {
                let places = self.out.int(large, at);
                let part = self.out.value(Op::Binary(BinaryOp::LShr, whole, places), large);
                all.push(self.out.value(Op::Convert(ConvertOp::Trunc, part), small));
            }
        }
        all
    }

    fn vector_of_ints(&mut self, bits: u32) -> TypeId {
        let int = self.out.module.types.int(bits);
        self.out.vector_of(int)
    }

    fn by_component(&mut self, inst: &Inst, ty: TypeId) -> Result<Vec<Operand>, Refusal> {
        let mut operands = Vec::new();
        inst.op.for_each_operand(|operand| operands.push(operand));
        let mut parts = Vec::new();
        for operand in operands {
            parts.push(self.vectors(operand)?);
        }
        let leaves = self.leaves(ty)?;
        let mut all = Vec::new();
        for (n, leaf) in leaves.into_iter().enumerate() {
            let vector = self.out.vector_of(leaf.ty);
            let mut op = inst.op.clone();
            let mut number = 0;
            op.for_each_operand_mut(|operand| {
                *operand = parts[number][n];
                number += 1;
            });
            if let (Op::Binary(kind, a, b), &Op::Binary(_, whole, by)) = (&op, &inst.op) {
                let (kind, dividend, divisor) = (*kind, *a, *b);
                let uniform = (self.shape(by) == Shape::Uniform).then(|| self.one(by));
                let uniform = uniform.map(|one| self.scalars(one)).transpose()?;
                let uniform = uniform.and_then(|scalars| scalars.get(n).copied());
                let most = self.most(whole);
                let most_divisor = self.most(by);
                if divides(kind) {
                    let division =
                        Division { op: kind, dividend, most, divisor, most_divisor, uniform };
                    if let Some(result) = self.divide(&division)? {
                        all.push(result);
                        continue;
                    }
                }
                if kind == BinaryOp::Mul {
                    all.push(self.multiply([dividend, divisor], [most, most_divisor], inst.flags));
                    continue;
                }
                op = Op::Binary(kind, dividend, self.divisor(kind, divisor));
            }
            all.push(self.out.def(op, vector, inst.flags));
        }
        Ok(all)
    }

    /// Inactive items have arbitrary divisors, which must not trap.
    pub(super) fn divisor(&mut self, op: BinaryOp, divisor: Operand) -> Operand {
        let Some(mask) = self.mask.filter(|_| divides(op)) else { return divisor };
        if matches!(divisor, Operand::Const(_)) {
            return divisor;
        }
        let ty = self.out.type_of(divisor);
        let one = self.out.int(ty, 1);
        self.out.value(Op::Select(mask, divisor, one), ty)
    }

    fn pair_type(&mut self, first: TypeId, second: TypeId) -> TypeId {
        let ty = Type::Struct { members: vec![first, second], packed: false };
        // A structure of two vectors is far below the limit on sizes.
        self.out.module.types.intern(ty).unwrap_or(first)
    }

    fn math(
        &mut self,
        inst: &Inst,
        op: MathOp,
        args: &[Operand],
        ty: TypeId,
    ) -> Result<Vec<Operand>, Refusal> {
        let mut parts = Vec::new();
        for &arg in args {
            parts.push(self.vectors(arg)?);
        }
        let leaves = self.leaves(ty)?;
        let count = parts.first().map_or(0, Vec::len);
        let (mut firsts, mut seconds) = (Vec::new(), Vec::new());
        for n in 0..count {
            let args: Vec<Operand> = parts.iter().map(|part| part[n]).collect();
            let first = self.out.vector_of(leaves[n].ty);
            if op.second_result().is_none() {
                firsts.push(self.out.def(Op::Math(op, args), first, inst.flags));
                continue;
            }
            let second = self.out.vector_of(leaves[count + n].ty);
            let pair = self.pair_type(first, second);
            let both = self.out.def(Op::Math(op, args), pair, inst.flags);
            firsts.push(self.out.value(Op::Extract(both, vec![0]), first));
            seconds.push(self.out.value(Op::Extract(both, vec![1]), second));
        }
        firsts.extend(seconds);
        Ok(firsts)
    }
}
