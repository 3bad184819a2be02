// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls of the run-time library for images (`rt/images/`). Its functions are compiled beforehand, so what differs
//! between items is passed in memory, where code for all processors has it in the same places.

use super::body::Body;
use crate::ir::{ImageOp, Operand, TypeId};

/// The items of the longest vector that the library takes, and of the other one.
const MOST: u32 = 16;
const FEWER: u32 = 8;

/// The vectors of `struct items`: coordinates, the channels of a texel that is written, those of one that is read.
const VECTORS: u32 = 11;
const TEXEL: u32 = 3;
const RESULT: u32 = 7;

/// The channels of a texel.
const CHANNELS: u32 = 4;

impl Body<'_, '_> {
    /// Text of a call of the library's function for an image.
    pub(super) fn image(&mut self, op: ImageOp, args: &[Operand]) -> String {
        let texel = "<4 x i32>";
        let (result, params, reads) = match op {
            ImageOp::Fetch => (texel, "ptr, i64, i32, i32, i32", " memory(read)"),
            ImageOp::Sample => (texel, "ptr, i64, float, float, float", " memory(read)"),
            ImageOp::Write => ("void", "ptr, i32, i32, i32, <4 x i32>", ""),
        };
        let function = format!("__tally_image_{}", op.name());
        self.unit.declare(result, &function, params);
        let args: Vec<String> = args.iter().map(|&arg| self.typed(arg)).collect();
        format!("call {result} @{function}({}) nounwind willreturn{reads}", args.join(", "))
    }

    /// The same for a vector of items, in pieces that the library takes; `None` if there is no result.
    pub(super) fn images(
        &mut self,
        op: ImageOp,
        args: &[Operand],
        ty: Option<TypeId>,
    ) -> Option<String> {
        // Image, sampler unless it is a write, then what differs between the items, and their mask.
        let (image, rest) = args.split_first()?;
        let (mask, rest) = rest.split_last()?;
        let (sampler, vectors) = match op {
            ImageOp::Write => (None, rest),
            _ => rest.split_first().map(|(sampler, rest)| (Some(*sampler), rest))?,
        };
        let lanes = self.unit.module.types.lanes(self.type_of(*mask));
        let piece = if lanes.is_multiple_of(MOST) { MOST } else { FEWER };
        let function = format!("__tally_images_{}_{piece}", op.name());
        let (params, effect) = match sampler {
            Some(_) => ("ptr, i64, ptr, i32", " memory(read, argmem: readwrite)"),
            None => ("ptr, ptr, i32", ""),
        };
        self.unit.declare("void", &function, params);
        let items = match &self.items {
            Some(items) => items.clone(),
            None => self.prelude_def(&format!("alloca [{VECTORS} x <{piece} x i32>], align 64")),
        };
        self.items = Some(items.clone());
        let at = |body: &mut Self, number: u32| {
            body.def(&format!("getelementptr i8, ptr {items}, i64 {}", number * piece * 4))
        };
        let before: Vec<String> =
            [Some(*image), sampler].into_iter().flatten().map(|arg| self.typed(arg)).collect();
        let mut results = Vec::new();
        for first in (0..lanes).step_by(piece as usize) {
            for (number, &vector) in (0..).zip(vectors) {
                let part = self.piece(vector, first, piece);
                let to = at(self, number);
                self.line(&format!("store {part}, ptr {to}, align {}", 4 * piece));
            }
            let mask = self.piece(*mask, first, piece);
            let bits = self.def(&format!("bitcast {mask} to i{piece}"));
            let bits = self.def(&format!("zext i{piece} {bits} to i32"));
            self.line(&format!(
                "call void @{function}({}, ptr {items}, i32 {bits}) nounwind willreturn{effect}",
                before.join(", ")
            ));
            if ty.is_some() {
                let from = at(self, RESULT);
                let all = CHANNELS * piece;
                results.push(
                    self.def(&format!("load <{all} x i32>, ptr {from}, align {}", 4 * piece)),
                );
            }
        }
        debug_assert!(
            ty.is_some() || vectors.len() as u32 == TEXEL + CHANNELS,
            "a write has a texel"
        );
        ty?;
        Some(self.channels(&results, piece))
    }

    /// Some components of a vector, with their type.
    fn piece(&mut self, vector: Operand, first: u32, count: u32) -> String {
        let ty = self.type_of(vector);
        if self.unit.module.types.lanes(ty) == count {
            return self.typed(vector);
        }
        let element = self.value_type(self.unit.module.types.element(ty));
        let (whole, vector) = (self.value_type(ty), self.operand(vector));
        let part = self.part(&vector, &whole, first, count);
        format!("<{count} x {element}> {part}")
    }

    /// Text of the channels of all items, from those of one piece or two.
    fn channels(&mut self, pieces: &[String], piece: u32) -> String {
        let all = CHANNELS * piece;
        let [first, others @ ..] = pieces else { return String::new() };
        let second = others.first().unwrap_or(first);
        let pieces = pieces.len() as u32;
        let from = |channel, number, item| number * all + channel * piece + item;
        let each = (0..CHANNELS).flat_map(|channel| {
            (0..pieces)
                .flat_map(move |number| (0..piece).map(move |item| from(channel, number, item)))
        });
        let mask: Vec<String> = each.map(|i| format!("i32 {i}")).collect();
        let ty = format!("<{all} x i32>");
        format!(
            "shufflevector {ty} {first}, {ty} {second}, <{} x i32> <{}>",
            mask.len(),
            mask.join(", ")
        )
    }
}
