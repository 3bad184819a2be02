// SPDX-License-Identifier: MIT OR Apache-2.0
//! Barriers, and the exchange of values between work-items.
//!
//! A sub-group is a vector, so an exchange between its items moves values between the components of one
//! vector, and its barriers only order memory. In a work-group each vector first combines its own
//! items; then the vectors exchange one value each, like items in scalar code.

use super::emit::Widener;
use super::refusal::Refusal;
use super::shape::{Rows, Shape};
use crate::ir::Scalar;
use crate::ir::group::identity;
use crate::ir::{
    Access, AddressSpace, BinaryOp, CompareOp, ConstKind, ConvertOp, GroupOp, Inst, Op, Operand,
    PrivateVariable, Scope, Type, TypeId, WorkItemQuery,
};

impl Widener<'_> {
    /// Translates operations of groups. `false` if the instruction is none.
    pub(super) fn exchange(&mut self, inst: &Inst) -> Result<bool, Refusal> {
        match inst.op {
            Op::ControlBarrier { execution: Scope::Subgroup, memory, ordering } => {
                self.out.effect(Op::Fence(memory, ordering), inst.flags);
            }
            Op::NamedBarrier(at, scope, ordering) => {
                if self.shape(at) != Shape::Uniform {
                    return Err(Refusal::new("a named barrier that may differ between items"));
                }
                let at = self.one(at);
                self.out.effect(Op::NamedBarrier(at, scope, ordering), inst.flags);
            }
            Op::WorkItem(WorkItemQuery::SubgroupLocalId, _) => self.number(inst, 0)?,
            Op::WorkItem(WorkItemQuery::SubgroupSize, _) if self.rows == Rows::Whole => {
                self.number(inst, i64::from(self.out.lanes))?;
            }
            // The next instruction collects the offer, and finds it here.
            Op::Offer(_, value) => self.offered = Some(value),
            Op::Collect(op, scope, index) => {
                let Some(value) = self.offered.take() else {
                    return Err(Refusal::new("a group operation that nothing was offered to"));
                };
                self.collect(inst, op, scope, value, index)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Sets a uniform result, or the first item's, to a number.
    fn number(&mut self, inst: &Inst, number: i64) -> Result<(), Refusal> {
        let Some(result) = inst.result else { return Ok(()) };
        let value = self.out.int(self.from.values[result].ty, number);
        self.set_one(result, value)
    }

    fn collect(
        &mut self,
        inst: &Inst,
        op: GroupOp,
        scope: Scope,
        value: Operand,
        index: Option<Operand>,
    ) -> Result<(), Refusal> {
        let Some(result) = inst.result else { return Ok(()) };
        let vectors = self.vectors(value)?;
        if let (GroupOp::MulAdd(product), Some(added)) = (op, index) {
            let added = self.vectors(added)?;
            let parts = self.product(product, &vectors, &added)?;
            return self.set(result, &parts);
        }
        let group = scope != Scope::Subgroup;
        let mut results = Vec::new();
        for vector in vectors {
            let together = match (op, index) {
                (GroupOp::Reduce(op, None), _) if group && !self.is_mask(vector) => {
                    // Item by item, so that there is one sum of items at the end.
                    let (vector, _) = self.neutral(op, vector)?;
                    let all = self.among_vectors(GroupOp::Reduce(op, None), vector, None);
                    self.fold(op, all)
                }
                (GroupOp::Reduce(op, None), _) => {
                    let own = self.reduce(op, vector)?;
                    if group {
                        self.among_vectors(GroupOp::Reduce(op, None), own, None)
                    } else {
                        own
                    }
                }
                (GroupOp::Reduce(op, Some(size)), _) if !group => {
                    self.clusters(op, vector, size)?
                }
                (GroupOp::InclusiveScan(op) | GroupOp::ExclusiveScan(op), _) => {
                    let exclusive = matches!(inst.op, Op::Collect(GroupOp::ExclusiveScan(_), ..));
                    self.scan(op, vector, exclusive, group)?
                }
                (GroupOp::Shuffle, Some(index)) if group => self.broadcast(vector, index)?,
                (GroupOp::Shuffle, Some(index)) => self.shuffle(vector, index)?,
                _ => return Err(Refusal::new("a group operation of an unusual form")),
            };
            results.push(together);
        }
        match self.shapes.of(result) {
            Shape::Uniform => {
                let ty = self.from.values[result].ty;
                let mut scalars = Vec::new();
                for together in results {
                    // A shuffle with a uniform result has it in every lane.
                    let ty = self.out.type_of(together);
                    let element = self.out.module.types.element(ty);
                    scalars.push(match self.out.module.types.lanes(ty) {
                        1 => together,
                        _ => self.out.value(Op::Extract(together, vec![0]), element),
                    });
                }
                let whole = self.assemble(ty, &mut scalars.into_iter())?;
                self.set_one(result, whole)
            }
            _ => self.set(result, &results),
        }
    }

    /// The values of the running items, and the neutral value for others.
    fn neutral(&mut self, op: BinaryOp, vector: Operand) -> Result<(Operand, Operand), Refusal> {
        let ty = self.out.type_of(vector);
        let element = self.out.module.types.element(ty);
        let scalar = Scalar::of(&self.out.module.types[element]);
        let bits = scalar.and_then(|scalar| identity(op, scalar));
        let bits = bits.ok_or_else(|| Refusal::new("a group operation on this type"))?;
        let start = self.out.module.constant(element, ConstKind::Bits(bits));
        let start = self.out.splat(Operand::Const(start));
        let vector = match self.mask {
            Some(mask) => self.out.value(Op::Select(mask, vector, start), ty),
            None => vector,
        };
        Ok((vector, start))
    }

    /// All items' values combined, as a scalar.
    pub(super) fn reduce(&mut self, op: BinaryOp, vector: Operand) -> Result<Operand, Refusal> {
        let (vector, _) = self.neutral(op, vector)?;
        Ok(self.fold(op, vector))
    }

    fn is_mask(&self, vector: Operand) -> bool {
        let element = self.out.module.types.element(self.out.type_of(vector));
        matches!(self.out.module.types[element], Type::Bool)
    }

    /// All components of a vector combined.
    fn fold(&mut self, op: BinaryOp, mut vector: Operand) -> Operand {
        let ty = self.out.type_of(vector);
        let element = self.out.module.types.element(ty);
        let mut lanes = self.out.lanes;
        while lanes > 1 {
            lanes /= 2;
            let half = if lanes == 1 { element } else { self.out.vector(element, lanes) };
            let (low, high) = if lanes == 1 {
                (
                    self.out.value(Op::Extract(vector, vec![0]), element),
                    self.out.value(Op::Extract(vector, vec![1]), element),
                )
            } else {
                let mut part = |from: u32| {
                    let pick = (from..from + lanes).map(Some).collect();
                    self.out.value(Op::Shuffle(vector, vector, pick), half)
                };
                (part(0), part(lanes))
            };
            vector = self.out.value(Op::Binary(op, low, high), half);
        }
        vector
    }

    /// The combined values of each `size` adjacent items.
    fn clusters(&mut self, op: BinaryOp, vector: Operand, size: u32) -> Result<Operand, Refusal> {
        let (mut vector, _) = self.neutral(op, vector)?;
        let ty = self.out.type_of(vector);
        let mut distance = 1;
        while distance < size.min(self.out.lanes) {
            let pick = (0..self.out.lanes).map(|lane| Some(lane ^ distance)).collect();
            let other = self.out.value(Op::Shuffle(vector, vector, pick), ty);
            vector = self.out.value(Op::Binary(op, vector, other), ty);
            distance *= 2;
        }
        Ok(vector)
    }

    /// The values of each item and those before it combined, or of those before it only.
    pub(super) fn scan(
        &mut self,
        op: BinaryOp,
        vector: Operand,
        exclusive: bool,
        group: bool,
    ) -> Result<Operand, Refusal> {
        let (vector, start) = self.neutral(op, vector)?;
        let ty = self.out.type_of(vector);
        let element = self.out.module.types.element(ty);
        let lanes = self.out.lanes;
        let shifted = |this: &mut Self, vector: Operand, by: u32| {
            let from = |lane: u32| if lane < by { lanes } else { lane - by };
            let pick = (0..lanes).map(|lane| Some(from(lane))).collect();
            this.out.value(Op::Shuffle(vector, start, pick), ty)
        };
        let mut sums = vector;
        let mut by = 1;
        while by < lanes {
            let before = shifted(self, sums, by);
            sums = self.out.value(Op::Binary(op, before, sums), ty);
            by *= 2;
        }
        let own = if exclusive { shifted(self, sums, 1) } else { sums };
        if !group {
            return Ok(own);
        }
        let all = self.out.value(Op::Extract(sums, vec![lanes - 1]), element);
        let before = self.among_vectors(GroupOp::ExclusiveScan(op), all, None);
        let before = self.out.splat(before);
        Ok(self.out.value(Op::Binary(op, before, own), ty))
    }

    /// The result of combining one value of each vector.
    fn among_vectors(&mut self, op: GroupOp, value: Operand, index: Option<Operand>) -> Operand {
        let ty = self.out.type_of(value);
        self.out.effect(Op::Offer(Scope::Workgroup, value), Default::default());
        self.out.value(Op::Collect(op, Scope::Workgroup, index), ty)
    }

    /// The value of one item of the work-group.
    fn broadcast(&mut self, vector: Operand, index: Operand) -> Result<Operand, Refusal> {
        if self.shape(index) != Shape::Uniform {
            return Err(Refusal::new("a shuffle in a work-group"));
        }
        let ty = self.out.type_of(vector);
        let element = self.out.module.types.element(ty);
        let index = self.one(index);
        let index_type = self.out.type_of(index);
        let shift = self.out.int(index_type, i64::from(self.out.lanes.trailing_zeros()));
        let last = self.out.int(index_type, i64::from(self.out.lanes - 1));
        let value =
            |this: &mut Self, kind, a, b| this.out.value(Op::Binary(kind, a, b), index_type);
        use BinaryOp as B;
        // Vectors begin with the rows, so if rows are uneven the last vector of each has fewer items.
        let (which, x) = match self.rows {
            Rows::Whole => (value(self, B::LShr, index, shift), index),
            Rows::Any => {
                let i64_type = self.out.module.types.int(64);
                let size = Op::WorkItem(WorkItemQuery::LocalSize, 0);
                let size = self.out.value(size, i64_type);
                let row = self.out.value(Op::Convert(ConvertOp::Trunc, size), index_type);
                let rounded = value(self, B::Add, row, last);
                let vectors = value(self, B::LShr, rounded, shift);
                let (y, x) = (value(self, B::UDiv, index, row), value(self, B::URem, index, row));
                let before = value(self, B::Mul, y, vectors);
                let within = value(self, B::LShr, x, shift);
                (value(self, B::Add, before, within), x)
            }
        };
        let vector = self.among_vectors(GroupOp::Shuffle, vector, Some(which));
        let lane = value(self, B::And, x, last);
        Ok(self.out.value(Op::ExtractDynamic(vector, lane), element))
    }

    /// The value of the item with an index; the item's own if that one does not run.
    fn shuffle(&mut self, vector: Operand, index: Operand) -> Result<Operand, Refusal> {
        let lanes = self.out.lanes;
        let ty = self.out.type_of(vector);
        let mask_type = self.out.mask_type();
        let index = self.vector(index)?;
        if let Some(picks) = self.constant_indices(index) {
            let pick: Vec<Option<u32>> = picks
                .iter()
                .zip(0..)
                .map(|(&pick, lane)| Some(if pick < lanes { pick } else { lane }))
                .collect();
            let other = self.out.value(Op::Shuffle(vector, vector, pick.clone()), ty);
            let Some(mask) = self.mask else { return Ok(other) };
            let there = self.out.value(Op::Shuffle(mask, mask, pick), mask_type);
            return Ok(self.out.value(Op::Select(there, other, vector), ty));
        }
        let index_type = self.out.type_of(index);
        let (limit, low) = (
            self.out.int(index_type, i64::from(lanes)),
            self.out.int(index_type, i64::from(lanes - 1)),
        );
        let mut there = self.out.value(Op::Compare(CompareOp::ULt, index, limit), mask_type);
        let index = self.out.value(Op::Binary(BinaryOp::And, index, low), index_type);
        let other = self.looked_up(vector, index);
        if let Some(mask) = self.mask {
            let runs = self.looked_up(mask, index);
            there = self.and(Some(there), runs);
        }
        Ok(self.out.value(Op::Select(there, other, vector), ty))
    }

    /// The numbers of a constant vector.
    fn constant_indices(&self, vector: Operand) -> Option<Vec<u32>> {
        let Operand::Const(id) = vector else { return None };
        match &self.out.module.constants[id].kind {
            ConstKind::Composite(parts) => parts
                .iter()
                .map(|&part| self.out.module.const_bits(part).and_then(|n| u32::try_from(n).ok()))
                .collect(),
            ConstKind::Null => Some(vec![0; self.out.lanes as usize]),
            _ => None,
        }
    }

    /// Components of a vector at a vector of indices that are in range, loaded from memory. The indices
    /// of items that do not run are unknown.
    fn looked_up(&mut self, vector: Operand, index: Operand) -> Operand {
        let ty = self.out.type_of(vector);
        let element = self.out.module.types.element(ty);
        let place = self.table(ty);
        let size = self.out.module.types.size(element);
        let access = |bytes: u64| Access {
            align: bytes.clamp(1, 64) as u32,
            volatile: false,
            nontemporal: false,
        };
        self.out.effect(Op::Store(place, vector, access(size)), Default::default());
        let pointer = self.out.type_of(place);
        let pointers = self.out.vector_of(pointer);
        let terms = vec![(index, size as i64)];
        let op = Op::Address { base: place, offset: 0, terms, inbounds: false };
        let at = self.out.value(op, pointers);
        let mask = self.mask_value();
        self.out.value(Op::Gather(at, mask, access(size)), ty)
    }

    /// Private memory for a vector.
    pub(super) fn table(&mut self, ty: TypeId) -> Operand {
        let size = self.out.module.types.size(ty);
        let pointer = self.out.module.types.pointer(AddressSpace::Private);
        let address = self.out.function.new_value(pointer);
        let variable = PrivateVariable { address, ty, size, align: 64, init: None };
        self.out.function.variables.push(variable);
        Operand::Value(address)
    }
}
