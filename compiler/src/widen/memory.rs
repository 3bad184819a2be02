// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads, stores and atomics of a vector of items.
//!
//! Adjacent values are read and written as a vector, with the mask if items are missing. Other
//! addresses are gathered and scattered. Operations without a vector form (atomic updates, copies of bytes,
//! images of their own, printing) are executed for one item after the other, in their order.
//! Volatile accesses and relaxed atomic loads and stores are vectors, too: each item accesses its place once, where it
//! stands in the program, but neighbours do so together. Items that are not in the mask access
//! no memory, except private variables, which no other item sees.

use super::emit::Widener;
use super::lie::{Lie, Places};
use super::ops::Leaf;
use super::refusal::Refusal;
use super::shape::Shape;
use crate::ir::{Access, AddressSpace, Inst, Op, Operand, Ordering, Terminator, Type, TypeId};

/// Bytes of the longest words that are accessed under a mask.
pub(super) const LONGEST_WORD: u64 = 8;

impl Widener<'_> {
    /// Translates accesses to memory. `false` if the instruction is none, or is uniform.
    pub(super) fn memory(&mut self, inst: &Inst) -> Result<bool, Refusal> {
        let uniform = inst.result.map(|result| self.shapes.of(result)) == Some(Shape::Uniform);
        match &inst.op {
            Op::Load(..) | Op::AtomicLoad(..) if uniform => return Ok(false),
            // LLVM would remove a vector that nothing uses.
            &Op::Load(at, access)
                if !access.volatile
                    || self.shapes.is_own(at)
                    || inst.result.is_some_and(|result| self.is_used(result)) =>
            {
                let Some(result) = inst.result else { return Ok(true) };
                let values = self.load(at, self.from.values[result].ty, access)?;
                self.set(result, &values)?;
            }
            &Op::Store(at, value, access) if self.shape(at) == Shape::Uniform => {
                let value = self.last(value)?;
                let at = self.one(at);
                self.out.effect(Op::Store(at, value, access), inst.flags);
            }
            &Op::Store(at, value, access) => {
                let values = self.vectors(value)?;
                self.store(at, self.type_in(value), &values, access)?;
            }
            &Op::AtomicStore(at, value, ordering, scope) if self.shape(at) == Shape::Uniform => {
                let value = self.last(value)?;
                let at = self.one(at);
                self.out.effect(Op::AtomicStore(at, value, ordering, scope), inst.flags);
            }
            Op::Copy(to, from, len, _) => {
                let mut operands = [*to, *from, *len].into_iter();
                if operands.all(|operand| self.shape(operand) == Shape::Uniform) {
                    return Ok(false);
                }
                self.one_by_one(inst)?;
            }
            Op::Image(_, operands) | Op::Texels(_, operands)
                if operands.iter().all(|&operand| self.shape(operand) == Shape::Uniform) =>
            {
                return Ok(false);
            }
            Op::Accessible(a, b) if [*a, *b].iter().all(|&it| self.shape(it) == Shape::Uniform) => {
                return Ok(false);
            }
            Op::CopyStates(a, b, c)
                if [*a, *b, *c].iter().all(|&it| self.shape(it) == Shape::Uniform) =>
            {
                return Ok(false);
            }
            &Op::AtomicLoad(at, Ordering::Relaxed, _) => {
                let Some(result) = inst.result else { return Ok(true) };
                let ty = self.from.values[result].ty;
                let access = self.relaxed(ty);
                let values = self.load(at, ty, access)?;
                self.set(result, &values)?;
            }
            &Op::AtomicStore(at, value, Ordering::Relaxed, _) => {
                let (ty, values) = (self.type_in(value), self.vectors(value)?);
                let access = self.relaxed(ty);
                self.store(at, ty, &values, access)?;
            }
            Op::AtomicRmw(..) | Op::AtomicCompareExchange { .. } if self.atomic(inst)? => {}
            Op::Image(op, operands) if self.images(*op, operands, inst.result)? => {}
            &Op::Report { site, size, at, mistake, .. } => self.report(site, size, at, mistake)?,
            Op::Load(..)
            | Op::Image(..)
            | Op::Texels(..)
            | Op::Strings(..)
            | Op::AtomicLoad(..)
            | Op::AtomicStore(..)
            | Op::AtomicRmw(..)
            | Op::AtomicCompareExchange { .. }
            | Op::Accessible(..)
            | Op::CopyStates(..)
            | Op::Printf(..) => self.one_by_one(inst)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// A relaxed atomic access as a volatile one: processors load and store each aligned number at once.
    fn relaxed(&self, ty: TypeId) -> Access {
        let align = self.out.module.types.size(ty) as u32;
        Access { align, volatile: true, nontemporal: false }
    }

    /// A vector of addresses of which one is looked at. An address may be any where its item does not run. Which items run
    /// may be as good as random, and whether the first does tells nothing.
    pub(super) fn known_places(&mut self, at: Operand) -> Result<Operand, Refusal> {
        let places = self.vector(at)?;
        if self.mask.is_none() {
            return Ok(places);
        }
        let ty = self.out.type_of(places);
        Ok(self.out.value(Op::Freeze(places), ty))
    }

    pub(super) fn is_private(&self, at: Operand) -> bool {
        let ty = &self.out.module.types[self.type_in(at)];
        matches!(ty, Type::Pointer(AddressSpace::Private))
    }

    /// The value of the last running item, if all write to one place.
    fn last(&mut self, value: Operand) -> Result<Operand, Refusal> {
        if self.shape(value) == Shape::Uniform {
            return Ok(self.one(value));
        }
        let ty = self.type_in(value);
        let index = match self.mask {
            Some(mask) => {
                let i32_type = self.out.module.types.int(32);
                Some(self.out.value(Op::LastTrue(mask), i32_type))
            }
            None => None,
        };
        let leaves = self.leaves(ty)?;
        let vectors = self.vectors(value)?;
        let mut scalars = Vec::new();
        for (leaf, vector) in leaves.iter().zip(vectors) {
            let op = match index {
                Some(index) => Op::ExtractDynamic(vector, index),
                None => Op::Extract(vector, vec![self.out.lanes - 1]),
            };
            scalars.push(self.out.value(op, leaf.ty));
        }
        self.assemble(ty, &mut scalars.into_iter())
    }

    /// A value from its scalars.
    pub(super) fn assemble(
        &mut self,
        ty: TypeId,
        scalars: &mut impl Iterator<Item = Operand>,
    ) -> Result<Operand, Refusal> {
        let parts: Vec<TypeId> = match &self.out.module.types[ty] {
            Type::Vector(element, n) => vec![*element; *n as usize],
            Type::Array(element, n) => vec![*element; *n as usize],
            Type::Struct { members, .. } => members.clone(),
            _ => {
                let scalar = scalars.next();
                return scalar.ok_or_else(|| Refusal::of_type(&self.out.module, ty));
            }
        };
        let mut values = Vec::new();
        for part in parts {
            values.push(self.assemble(part, scalars)?);
        }
        Ok(self.out.value(Op::Construct(values), ty))
    }

    /// Whether memory can be read where items do not run. A volatile access is only that of the items that do.
    pub(super) fn is_readable(&self, at: Operand, access: Access) -> bool {
        self.shapes.is_readable(at) && (!access.volatile || self.shapes.is_own(at))
    }

    pub(super) fn load(
        &mut self,
        at: Operand,
        ty: TypeId,
        access: Access,
    ) -> Result<Vec<Operand>, Refusal> {
        let leaves = self.leaves(ty)?;
        let size = self.out.module.types.size(ty);
        let line = self.is_vector(&leaves, size);
        let lie = if line { self.lie(at, size) } else { Lie::Apart };
        let readable = self.is_readable(at, access);
        if let (Lie::Back(guard), [leaf]) = (lie, &leaves[..]) {
            let holds = self.holds(guard);
            let last = self.last_place(at, size);
            return self.guarded(
                holds,
                &leaves,
                |this| Ok(vec![this.load_backwards(last, leaf, access, readable)]),
                |this| this.gather(at, &leaves, access),
            );
        }
        if let Some(fixed) = self.fixed_loads(at, &leaves, access, readable) {
            return self.load_fixed(&fixed, &leaves, access);
        }
        match lie {
            Lie::Line(guard) => {
                let holds = self.holds(guard);
                let first = self.one(at);
                if holds.is_none() && !readable {
                    self.prefetch(at, first, size);
                }
                self.guarded(
                    holds,
                    &leaves,
                    |this| Ok(this.load_line(&[first], &leaves, access, readable)),
                    |this| match guard {
                        Some(guard) if guard.is_mask() => {
                            let places = this.known_places(at)?;
                            this.gather_close(places, &leaves, size, access)
                        }
                        _ => this.gather(at, &leaves, access),
                    },
                )
            }
            Lie::Computed => {
                let Places { all, firsts, holds } = self.computed(at, size)?;
                self.guarded(
                    Some(holds),
                    &leaves,
                    |this| Ok(this.load_line(&firsts, &leaves, access, readable)),
                    |this| this.gather_close(all, &leaves, size, access),
                )
            }
            Lie::Close => {
                let places = self.known_places(at)?;
                self.gather_close(places, &leaves, size, access)
            }
            Lie::Stride(growth) => {
                let stride = self.strided(growth, at)?;
                self.load_strided(&stride, &leaves, size, access)
            }
            Lie::Back(_) | Lie::Steps(..) | Lie::Apart => {
                self.gather_apart(at, &leaves, size, access)
            }
        }
    }

    /// Whether the scalars of a value fill it, and all have one type: the items' values are then
    /// one long vector.
    fn is_vector(&self, leaves: &[Leaf], size: u64) -> bool {
        let Some(first) = leaves.first() else { return false };
        let each = self.out.module.types.size(first.ty);
        leaves.len() <= 4
            && each * leaves.len() as u64 == size
            && leaves.iter().all(|leaf| leaf.ty == first.ty)
    }

    /// The address of the last item's element of `size` bytes, where elements lie one before the other.
    fn last_place(&mut self, at: Operand, size: u64) -> Operand {
        let (first, ty) = (self.one(at), self.type_in(at));
        let offset = -(size as i64) * (i64::from(self.out.lanes) - 1);
        let op = Op::Address { base: first, offset, terms: Vec::new(), inbounds: false };
        self.out.value(op, ty)
    }

    fn backwards(&mut self, vector: Operand) -> Operand {
        let ty = self.out.type_of(vector);
        let picks = (0..self.out.lanes).rev().map(Some).collect();
        self.out.value(Op::Shuffle(vector, vector, picks), ty)
    }

    fn load_backwards(
        &mut self,
        first: Operand,
        leaf: &Leaf,
        access: Access,
        readable: bool,
    ) -> Operand {
        let ty = self.out.vector_of(leaf.ty);
        let mask = self.mask.filter(|_| !readable).map(|mask| self.backwards(mask));
        let op = match mask {
            Some(mask) => Op::MaskedLoad(first, mask, access),
            None => Op::Load(first, access),
        };
        let line = self.out.value(op, ty);
        self.backwards(line)
    }

    fn store_backwards(&mut self, first: Operand, vector: Operand, access: Access) {
        let line = self.backwards(vector);
        let op = match self.mask {
            Some(mask) => Op::MaskedStore(first, line, self.backwards(mask), access),
            None => Op::Store(first, line, access),
        };
        self.out.effect(op, Default::default());
    }

    pub(super) fn load_line(
        &mut self,
        firsts: &[Operand],
        leaves: &[Leaf],
        access: Access,
        readable: bool,
    ) -> Vec<Operand> {
        let leaf = leaves[0].ty;
        let vector = self.out.vector_of(leaf);
        let (n, lanes) = (leaves.len() as u32, self.out.lanes);
        let each = n * lanes / firsts.len() as u32;
        let ty = self.out.vector(leaf, each);
        let words = self.mask.filter(|_| !readable).map(|mask| self.masked_words(mask, leaf, n));
        let mut lines = Vec::with_capacity(firsts.len());
        for (number, &first) in (0..).zip(firsts) {
            let Some((mask, word, of_item)) = words else {
                lines.push(self.out.value(Op::Load(first, access), ty));
                continue;
            };
            let count = of_item * lanes / firsts.len() as u32;
            let mask = self.cut(mask, number * count, count);
            let words = self.out.vector(word, count);
            let line = self.out.value(Op::MaskedLoad(first, mask, access), words);
            lines.push(self.bits_as(line, ty));
        }
        let all = self.joined(lines, leaf, each);
        if n == 1 {
            return vec![all];
        }
        self.parts_of_line(all, vector, n)
    }

    /// The words of items' values of `n` scalars each, which lie side by side, under a mask: the mask of all words, the
    /// type of one, and how many an item has. Processors have masks for words of 4 and 8 bytes, not all for shorter ones.
    fn masked_words(&mut self, mask: Operand, leaf: TypeId, n: u32) -> (Operand, TypeId, u32) {
        let types = &mut self.out.module.types;
        let size = types.size(leaf);
        let bytes = size * u64::from(n);
        let word = LONGEST_WORD.min(1 << bytes.trailing_zeros());
        if word <= size || !matches!(types[leaf], Type::Int(_) | Type::Float(_)) {
            return (self.mask_of_parts(mask, n), leaf, n);
        }
        let (ty, count) = (types.int(8 * word as u32), (bytes / word) as u32);
        (self.mask_of_parts(mask, count), ty, count)
    }

    fn gather(
        &mut self,
        at: Operand,
        leaves: &[Leaf],
        access: Access,
    ) -> Result<Vec<Operand>, Refusal> {
        let places = self.vector(at)?;
        Ok(self.gather_from(places, leaves, access))
    }

    /// What a vector of addresses points to.
    pub(super) fn gather_from(
        &mut self,
        places: Operand,
        leaves: &[Leaf],
        access: Access,
    ) -> Vec<Operand> {
        self.remark("gathers what its items load from places apart");
        let mask = self.mask_value();
        let mut all = Vec::new();
        for leaf in leaves {
            let places = self.moved(places, leaf.offset);
            let access = self.part_access(access, leaf);
            let vector = self.out.vector_of(leaf.ty);
            all.push(self.out.value(Op::Gather(places, mask, access), vector));
        }
        all
    }

    fn moved(&mut self, pointers: Operand, offset: u64) -> Operand {
        if offset == 0 {
            return pointers;
        }
        let ty = self.out.type_of(pointers);
        let offset = offset as i64;
        let op = Op::Address { base: pointers, offset, terms: Vec::new(), inbounds: false };
        self.out.value(op, ty)
    }

    /// The access to a scalar at an offset of an access.
    fn part_access(&self, access: Access, leaf: &Leaf) -> Access {
        let known = 1u64 << leaf.offset.trailing_zeros().min(31);
        let align = u64::from(access.align).min(if leaf.offset == 0 { 1 << 31 } else { known });
        Access { align: align.max(1) as u32, ..access }
    }

    pub(super) fn store(
        &mut self,
        at: Operand,
        ty: TypeId,
        values: &[Operand],
        access: Access,
    ) -> Result<(), Refusal> {
        let leaves = self.leaves(ty)?;
        let size = self.out.module.types.size(ty);
        // Three parts cannot be shuffled together in pairs.
        let line = leaves.len().is_power_of_two() && self.is_vector(&leaves, size);
        let lie = if line { self.lie(at, size) } else { Lie::Apart };
        if let (Lie::Back(guard), 1) = (lie, leaves.len()) {
            let holds = self.holds(guard);
            let last = self.last_place(at, size);
            self.guarded(
                holds,
                &[],
                |this| {
                    this.store_backwards(last, values[0], access);
                    Ok(Vec::new())
                },
                |this| {
                    this.scatter(at, values, &leaves, access)?;
                    Ok(Vec::new())
                },
            )?;
            return Ok(());
        }
        if let Some(fixed) = self.fixed_stores(at, &leaves, access) {
            return self.store_fixed(&fixed, values, &leaves, access);
        }
        match lie {
            Lie::Line(guard) => {
                let holds = self.holds(guard);
                let first = self.one(at);
                let own = self.shapes.is_own(at);
                self.guarded(
                    holds,
                    &[],
                    |this| {
                        this.store_line(&[first], values, &leaves, access, own);
                        Ok(Vec::new())
                    },
                    |this| match guard {
                        Some(guard) if guard.is_mask() => {
                            let places = this.known_places(at)?;
                            this.scatter_close(places, values, &leaves, size, access)
                        }
                        _ => {
                            this.scatter(at, values, &leaves, access)?;
                            Ok(Vec::new())
                        }
                    },
                )?;
                Ok(())
            }
            Lie::Computed => {
                let Places { all, firsts, holds } = self.computed(at, size)?;
                self.guarded(
                    Some(holds),
                    &[],
                    |this| {
                        this.store_line(&firsts, values, &leaves, access, false);
                        Ok(Vec::new())
                    },
                    |this| this.scatter_close(all, values, &leaves, size, access),
                )?;
                Ok(())
            }
            Lie::Stride(growth) => {
                let stride = self.strided(growth, at)?;
                self.store_strided(&stride, values, &leaves, size, access)
            }
            Lie::Back(_) | Lie::Steps(..) | Lie::Close | Lie::Apart => {
                self.scatter(at, values, &leaves, access)
            }
        }
    }

    pub(super) fn store_line(
        &mut self,
        firsts: &[Operand],
        values: &[Operand],
        leaves: &[Leaf],
        access: Access,
        own: bool,
    ) {
        let leaf = leaves[0].ty;
        let (n, lanes) = (leaves.len() as u32, self.out.lanes);
        let all = self.line_of_parts(values, leaf);
        let each = n * lanes / firsts.len() as u32;
        let words = self.mask.filter(|_| !own).map(|mask| self.masked_words(mask, leaf, n));
        let mask = self.mask.filter(|_| own).map(|mask| self.mask_of_parts(mask, n));
        for (number, &first) in (0..).zip(firsts) {
            let mut value = self.cut(all, number * each, each);
            if let Some((mask, word, of_item)) = words {
                let count = of_item * lanes / firsts.len() as u32;
                let mask = self.cut(mask, number * count, count);
                let words = self.out.vector(word, count);
                let op = Op::MaskedStore(first, self.bits_as(value, words), mask, access);
                self.out.effect(op, Default::default());
                continue;
            }
            if let Some(mask) = mask {
                let mask = self.cut(mask, number * each, each);
                let ty = self.out.vector(leaf, each);
                let old = self.out.value(Op::Load(first, access), ty);
                value = self.out.value(Op::Select(mask, value, old), ty);
            }
            self.out.effect(Op::Store(first, value, access), Default::default());
        }
    }

    fn scatter(
        &mut self,
        at: Operand,
        values: &[Operand],
        leaves: &[Leaf],
        access: Access,
    ) -> Result<(), Refusal> {
        let places = self.vector(at)?;
        self.scatter_to(places, values, leaves, access);
        Ok(())
    }

    /// Writes to what a vector of addresses points to.
    pub(super) fn scatter_to(
        &mut self,
        places: Operand,
        values: &[Operand],
        leaves: &[Leaf],
        access: Access,
    ) {
        self.remark("scatters what its items store to places apart");
        let mask = self.mask_value();
        for (&value, leaf) in values.iter().zip(leaves) {
            let places = self.moved(places, leaf.offset);
            let access = self.part_access(access, leaf);
            self.out.effect(Op::Scatter(places, value, mask, access), Default::default());
        }
    }

    /// Emits one computation if a condition holds, else another. Both return a vector for each leaf.
    pub(super) fn guarded(
        &mut self,
        holds: Option<Operand>,
        leaves: &[Leaf],
        fast: impl FnOnce(&mut Self) -> Result<Vec<Operand>, Refusal>,
        slow: impl FnOnce(&mut Self) -> Result<Vec<Operand>, Refusal>,
    ) -> Result<Vec<Operand>, Refusal> {
        let types: Vec<TypeId> = leaves.iter().map(|leaf| self.out.vector_of(leaf.ty)).collect();
        self.guarded_as(holds, &types, fast, slow)
    }

    /// As [`Self::guarded`], with the types of what both return.
    pub(super) fn guarded_as(
        &mut self,
        holds: Option<Operand>,
        types: &[TypeId],
        fast: impl FnOnce(&mut Self) -> Result<Vec<Operand>, Refusal>,
        slow: impl FnOnce(&mut Self) -> Result<Vec<Operand>, Refusal>,
    ) -> Result<Vec<Operand>, Refusal> {
        let Some(holds) = holds else { return fast(self) };
        let vars: Vec<_> = types.iter().map(|&ty| self.out.var(ty)).collect();
        let [yes, no, join] = std::array::from_fn(|_| self.out.new_block());
        self.out.end(Terminator::CondBranch(holds, yes, no));
        self.out.switch_to(yes);
        for (&var, value) in vars.iter().zip(fast(self)?) {
            self.out.write(var, value);
        }
        self.out.end(Terminator::Branch(join));
        self.out.switch_to(no);
        for (&var, value) in vars.iter().zip(slow(self)?) {
            self.out.write(var, value);
        }
        self.out.end(Terminator::Branch(join));
        self.out.switch_to(join);
        Ok(vars.into_iter().map(|var| self.out.read(var)).collect())
    }

    /// Reports the items of the mask that make a mistake.
    fn report(
        &mut self,
        site: u32,
        size: u32,
        at: Operand,
        mistake: Operand,
    ) -> Result<(), Refusal> {
        let (at, step) = match self.shape(at) {
            Shape::Uniform => (self.one(at), 0),
            Shape::Strided { step, guard: None } => (self.one(at), step),
            _ => (self.vector(at)?, 0),
        };
        let (mistake, items) = match self.shape(mistake) {
            Shape::Uniform => (self.one(mistake), Some(self.mask_value())),
            _ => {
                let mistakes = self.vector(mistake)?;
                (self.and(self.mask, mistakes), None)
            }
        };
        let op = Op::Report { site, size, at, step, mistake, items };
        self.out.effect(op, Default::default());
        Ok(())
    }

    /// Records what makes the code slow, for readers.
    pub(super) fn remark(&mut self, what: &str) {
        let remark = (self.out.loc, what.to_owned());
        if self.remarks.last() != Some(&remark) {
            self.remarks.push(remark);
        }
    }
}
