// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of [`CHUNK`](super::CHUNK) bytes and more: each item's bytes are loaded or stored as one, and exchanged with the
//! columns of a square in registers.

use super::{Chunk, Writer};
use crate::ir::{Inst, Op, Operand, ValueId};

impl Writer<'_> {
    /// Loads all items' bytes, one item's after the other's. What stands for each part.
    pub(super) fn load_rows(&mut self, chunk: &Chunk) -> Vec<(ValueId, Operand)> {
        let lanes = chunk.lanes as usize;
        let count = chunk.elements(self.module).min(chunk.parts.len());
        let row = self.vector(chunk.element, count);
        let mut rows: Vec<Vec<Operand>> =
            vec![Vec::with_capacity(lanes); chunk.parts.len() / count];
        for item in 0..lanes {
            for (piece, rows) in rows.iter_mut().enumerate() {
                let at = self.row(chunk, item, piece * count);
                rows.push(self.value(Op::Load(at, Self::access(chunk)), row));
            }
        }
        let mut names = Vec::with_capacity(chunk.parts.len());
        for (rows, parts) in rows.into_iter().zip(chunk.parts.chunks(count)) {
            let mut vectors = Vec::with_capacity(count);
            for number in 0..count {
                // Every `count`-th item's bytes, one behind the other.
                let mut pieces: Vec<Operand> =
                    rows[number..].iter().step_by(count).copied().collect();
                let mut length = count;
                while pieces.len() > 1 {
                    length *= 2;
                    let ty = self.vector(chunk.element, length);
                    let pick: Vec<Option<u32>> = (0..length as u32).map(Some).collect();
                    pieces = pieces
                        .chunks(2)
                        .map(|two| self.value(Op::Shuffle(two[0], two[1], pick.clone()), ty))
                        .collect();
                }
                vectors.push(pieces[0]);
            }
            let vectors = self.transposed(vectors, chunk);
            names.extend(parts.iter().zip(vectors).filter_map(|(part, vector)| match part.value {
                Operand::Value(value) => Some((value, vector)),
                Operand::Const(_) => None,
            }));
        }
        names
    }

    /// Stores all items' bytes, one item's after the other's.
    pub(super) fn store_rows(&mut self, chunk: &Chunk) {
        let lanes = chunk.lanes as usize;
        let count = chunk.elements(self.module).min(chunk.parts.len());
        let row = self.vector(chunk.element, count);
        let values: Vec<Operand> = chunk.parts.iter().map(|part| part.value).collect();
        let pieces: Vec<Vec<Operand>> =
            values.chunks(count).map(|values| self.transposed(values.to_vec(), chunk)).collect();
        for item in 0..lanes {
            let (number, first) = (item % count, item / count * count);
            for (piece, vectors) in pieces.iter().enumerate() {
                let pick = (first as u32..).take(count).map(Some).collect();
                let own = self.value(Op::Shuffle(vectors[number], vectors[number], pick), row);
                let at = self.row(chunk, item, piece * count);
                let op = Op::Store(at, own, Self::access(chunk));
                let (flags, loc) = (Default::default(), self.loc);
                self.insts.push(Inst { result: None, op, flags, loc });
            }
        }
    }

    /// Exchanges rows and columns of each square that as many vectors have as their parts: in each of the
    /// rounds, pairs of vectors are interleaved.
    fn transposed(&mut self, mut vectors: Vec<Operand>, chunk: &Chunk) -> Vec<Operand> {
        let (count, lanes) = (vectors.len() as u32, chunk.lanes);
        let ty = self.vector(chunk.element, lanes as usize);
        let interleaved = |from: u32| -> Vec<Option<u32>> {
            let place = |lane: u32| {
                let (square, column) = (lane / count * count, lane % count);
                square + from + column / 2 + (column % 2) * lanes
            };
            (0..lanes).map(|lane| Some(place(lane))).collect()
        };
        let halves = [interleaved(0), interleaved(count / 2)];
        for _ in 0..count.ilog2() {
            let (low, high) = vectors.split_at(vectors.len() / 2);
            let mut next = Vec::with_capacity(vectors.len());
            for (&a, &b) in low.iter().zip(high) {
                for half in &halves {
                    next.push(self.value(Op::Shuffle(a, b, half.clone()), ty));
                }
            }
            vectors = next;
        }
        vectors
    }
}
