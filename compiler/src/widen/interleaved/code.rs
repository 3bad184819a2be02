// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations on interleaved vectors, and the ways between the two forms.

use super::kept::Words;
use crate::ir::arena::Id;
use crate::ir::{ConstKind, Op, Operand, Type, TypeId, ValueId};
use crate::widen::build::Var;
use crate::widen::emit::{Mask, Place, Widener};
use crate::widen::memory::LONGEST_WORD;
use crate::widen::refusal::Refusal;
use crate::widen::shape::Shape;

impl Widener<'_> {
    /// Sets a result that stays interleaved to its vectors in that form.
    pub(in crate::widen) fn set_interleaved(&mut self, result: ValueId, values: &[Operand]) {
        if matches!(self.places[result.index()], Place::Nowhere)
            && let Some(place) = self.interleaved_place(result)
        {
            self.places[result.index()] = place;
        }
        if let Place::Interleaved(vars) = self.places[result.index()].clone() {
            for (var, &value) in vars.into_iter().zip(values) {
                self.out.write(var, value);
            }
        }
    }

    /// Sets a result that stays interleaved to vectors of one component each.
    pub(in crate::widen) fn interleave_result(&mut self, result: ValueId, values: &[Operand]) {
        let Some(elements) = self.elements(result) else { return };
        let (leaf, _) = self.components(self.from.values[result].ty);
        let values = self.interleave(values, leaf, elements);
        self.set_interleaved(result, &values);
    }

    /// The vectors of one component each of a value that stays interleaved.
    pub(in crate::widen) fn separated(
        &mut self,
        value: ValueId,
        vectors: Vec<Operand>,
    ) -> Vec<Operand> {
        let Some(elements) = self.elements(value) else { return vectors };
        let (leaf, parts) = self.components(self.from.values[value].ty);
        self.separate(vectors, leaf, elements, parts)
    }

    /// What arrives at an interleaved phi, for the items of a mask, from an operand.
    pub(in crate::widen) fn interleaved_arm(
        &mut self,
        phi: ValueId,
        vars: &[Var],
        operand: Operand,
        mask: Mask,
    ) -> Result<Vec<Operand>, Refusal> {
        let Some(elements) = self.elements(phi) else { return Ok(Vec::new()) };
        let (leaf, parts) = self.components(self.from.values[phi].ty);
        let values = self.interleaved(operand, elements)?;
        let Some(mask) = mask else { return Ok(values) };
        let words = self.words(leaf, parts, elements);
        let masks = self.for_components(mask, parts / words.each, elements / words.each);
        let blend = |((&var, value), mask)| {
            let old = self.out.read(var);
            self.chosen(mask, value, old, words)
        };
        Ok(vars.iter().zip(values).zip(masks).map(blend).collect())
    }

    /// The longest words that a row consists of, up to 8 bytes: there are fewer masks of them.
    pub(super) fn words(&mut self, leaf: TypeId, parts: u32, elements: u32) -> Words {
        let types = &mut self.out.module.types;
        if !matches!(types[leaf], Type::Int(_) | Type::Float(_)) {
            return Words { ty: leaf, each: 1 };
        }
        let size = types.size(leaf);
        let bytes = LONGEST_WORD.min(size * u64::from(parts.min(elements)));
        match (bytes / size) as u32 {
            each @ 2.. => Words { ty: types.int(8 * bytes as u32), each },
            _ => Words { ty: leaf, each: 1 },
        }
    }

    /// One of two vectors for each item of a mask of words.
    pub(super) fn chosen(
        &mut self,
        mask: Operand,
        yes: Operand,
        no: Operand,
        words: Words,
    ) -> Operand {
        let ty = self.out.type_of(yes);
        let count = self.out.module.types.lanes(ty) / words.each;
        let vector = self.out.vector(words.ty, count);
        let (yes, no) = (self.bits_as(yes, vector), self.bits_as(no, vector));
        let chosen = self.out.value(Op::Select(mask, yes, no), vector);
        self.bits_as(chosen, ty)
    }

    /// The interleaved vectors of an operand, of so many elements each.
    pub(in crate::widen) fn interleaved(
        &mut self,
        operand: Operand,
        elements: u32,
    ) -> Result<Vec<Operand>, Refusal> {
        if let Operand::Value(value) = operand
            && let Place::Interleaved(vars) = self.places[value.index()].clone()
        {
            return Ok(vars.into_iter().map(|var| self.out.read(var)).collect());
        }
        let (leaf, parts) = self.components(self.type_in(operand));
        if self.shape(operand) != Shape::Uniform {
            let values = self.vectors(operand)?;
            return Ok(self.interleave(&values, leaf, elements));
        }
        let one = self.one(operand);
        let ty = self.out.vector(leaf, elements);
        let vectors = (0..parts * self.out.lanes).step_by(elements as usize);
        let vector = |first: u32| {
            let picked = (first..first + elements).map(|element| element % parts);
            if let Operand::Const(id) = one
                && let ConstKind::Composite(all) = &self.out.module.constants[id].kind
            {
                let picked = picked.map(|part| all[part as usize]).collect();
                return Operand::Const(self.out.module.constant(ty, ConstKind::Composite(picked)));
            }
            self.out.value(Op::Shuffle(one, one, picked.map(Some).collect()), ty)
        };
        Ok(vectors.map(vector).collect())
    }

    /// Vectors of one component each as interleaved ones.
    pub(in crate::widen) fn interleave(
        &mut self,
        values: &[Operand],
        leaf: TypeId,
        elements: u32,
    ) -> Vec<Operand> {
        let line = self.line_of_parts(values, leaf);
        let all = values.len() as u32 * self.out.lanes;
        (0..all).step_by(elements as usize).map(|first| self.cut(line, first, elements)).collect()
    }

    /// Interleaved vectors as a vector for each component: at each level, the even and the odd elements of two.
    pub(in crate::widen) fn separate(
        &mut self,
        vectors: Vec<Operand>,
        leaf: TypeId,
        elements: u32,
        parts: u32,
    ) -> Vec<Operand> {
        if parts == 1 {
            return vec![self.joined(vectors, leaf, elements)];
        }
        if let [vector] = vectors[..] {
            let ty = self.out.vector(leaf, elements / parts);
            let pick = |part: u32| {
                let elements = (part..elements).step_by(parts as usize);
                Op::Shuffle(vector, vector, elements.map(Some).collect())
            };
            return (0..parts).map(|part| self.out.value(pick(part), ty)).collect();
        }
        let ty = self.out.vector(leaf, elements);
        let [even, odd] = [0, 1].map(|first: u32| {
            let pick: Vec<Option<u32>> = (0..elements).map(|n| Some(2 * n + first)).collect();
            let half = |pair: &[Operand]| Op::Shuffle(pair[0], pair[1], pick.clone());
            let halves: Vec<Operand> =
                vectors.chunks_exact(2).map(|pair| self.out.value(half(pair), ty)).collect();
            self.separate(halves, leaf, elements, parts / 2)
        });
        even.into_iter().zip(odd).flat_map(|(even, odd)| [even, odd]).collect()
    }

    /// A value for each item, `of_item` times behind each other, as vectors of so many elements: masks, and scalars that
    /// are used for all components.
    pub(in crate::widen) fn for_components(
        &mut self,
        vector: Operand,
        of_item: u32,
        elements: u32,
    ) -> Vec<Operand> {
        let leaf = self.out.type_of(vector);
        let leaf = self.out.module.types.element(leaf);
        let ty = self.out.vector(leaf, elements);
        let firsts = (0..of_item * self.out.lanes).step_by(elements as usize);
        let repeat = |first: u32| {
            let pick = (first..first + elements).map(|element| Some(element / of_item)).collect();
            self.out.value(Op::Shuffle(vector, vector, pick), ty)
        };
        firsts.map(repeat).collect()
    }
}
