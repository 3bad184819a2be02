// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matrices that are a part of a larger one in memory, and may reach beyond its end (Intel's extension): what lies
//! outside is zero when it is loaded, and is not stored.
//!
//! The first coordinate counts the rows of memory, which are columns of the matrix if it lies in columns, the
//! second one the elements of such a row. Height and width are the larger matrix's.

use super::body::Body;
use super::builder::{Matrix, SpvKind};
use super::error::Result;
use super::matrix::{Index, Layout, Place, Walk, all, number, opaque};
use super::words::{Instruction, intel};
use crate::ir::{BinaryOp, CompareOp, Op, Operand, Terminator};

/// Translates such an instruction. `false` if it is another one.
pub fn translate(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<bool> {
    // The operands of the coordinates, and of height and width.
    let (type_id, first, limits, layout) = match inst.opcode() {
        intel::MATRIX_LOAD_CHECKED => (inst.result_type().unwrap_or_default(), 1, 4, Some(3)),
        intel::MATRIX_STORE_CHECKED => (body.value(inst, inst.arg(3)?)?.1, 1, 5, Some(4)),
        intel::MATRIX_CONSTRUCT_CHECKED => (inst.result_type().unwrap_or_default(), 0, 2, None),
        _ => return Ok(false),
    };
    let SpvKind::Matrix(matrix) = body.b.spv_type(inst, type_id)?.kind else {
        return opaque(body, inst, type_id).map(|()| true);
    };
    let ty = body.b.ty(inst, type_id)?;
    body.b.repeated_components(inst, ty)?;
    let place = match layout.map(|layout| Place::read(body, inst, &matrix, (layout, 3))) {
        Some(place) => match place? {
            Ok(place) if place.layout == Layout::Packed => {
                let what = format!("{} with the packed layout", inst.grammar.name);
                return body.unsupported(inst, &what).map(|()| true);
            }
            Ok(place) => Some(place),
            Err(what) => return body.unsupported(inst, &what).map(|()| true),
        },
        None => None,
    };
    let i64 = body.b.module.types.int(64);
    let mut numbers = Vec::new();
    for index in [first, first + 1, limits, limits + 1] {
        let number = body.arg(inst, index)?;
        numbers.push(body.resize_int(number, i64, false));
    }
    let [line, within, height, width] = numbers[..] else { return Ok(false) };
    let columns = place.as_ref().is_some_and(|place| place.layout == Layout::Columns);
    let region = Region { from: [line, within], to: [height, width], columns };
    let parts = match (&place, inst.opcode()) {
        (Some(place), intel::MATRIX_STORE_CHECKED) => {
            store(body, inst, matrix, place, &region)?;
            return Ok(true);
        }
        (Some(place), _) => load(body, matrix, place, &region),
        (None, _) => {
            let element = body.b.ty(inst, matrix.component)?;
            let value = number(body, inst, 4, element)?;
            let (walk, zero) = (Walk::new(body, matrix), body.splat(element, 0));
            let mut parts = Vec::new();
            for component in 0..matrix.length() {
                let (inside, _) = region.find(body, &walk, component);
                parts.push(body.emit(element, Op::Select(inside, value, zero)));
            }
            parts
        }
    };
    let whole = body.emit(ty, Op::Construct(parts));
    body.set_result(inst, whole)?;
    Ok(true)
}

/// A part of a larger matrix.
struct Region {
    /// Row of memory and element within it from which the part begins.
    from: [Operand; 2],
    /// The size of the larger matrix.
    to: [Operand; 2],
    /// Whether a row of memory is a column of the matrix.
    columns: bool,
}

impl Region {
    /// Whether the item's element in a component is inside, and its row of memory and place within that.
    fn find(
        &self,
        body: &mut Body<'_, '_>,
        walk: &Walk,
        component: u32,
    ) -> (Operand, [Operand; 2]) {
        let (i64, bool) = (body.b.module.types.int(64), body.b.module.types.bool());
        let (row, column) = walk.place(body, component);
        let order = if self.columns { [column, row] } else { [row, column] };
        let mut inside = walk.exists(body, component);
        let places = std::array::from_fn(|i| {
            let Index { fixed, own } = order[i];
            let fixed = body.int(i64, fixed.into());
            let mut place = body.emit(i64, Op::Binary(BinaryOp::Add, self.from[i], fixed));
            if let Some(own) = own {
                place = body.emit(i64, Op::Binary(BinaryOp::Add, place, own));
            }
            let here = body.emit(bool, Op::Compare(CompareOp::ULt, place, self.to[i]));
            inside = Some(match inside {
                Some(inside) => body.emit(bool, Op::Binary(BinaryOp::And, inside, here)),
                None => here,
            });
            place
        });
        // Two comparisons have been made.
        (inside.unwrap_or_else(|| body.int(bool, 0)), places)
    }
}

/// The address of an element.
fn address(body: &mut Body<'_, '_>, place: &Place, [line, within]: [Operand; 2]) -> Operand {
    let i64 = body.b.module.types.int(64);
    let far = body.emit(i64, Op::Binary(BinaryOp::Mul, line, place.stride));
    body.address(place.base, 0, vec![(far, place.unit), (within, place.size)], false)
}

fn load(body: &mut Body<'_, '_>, matrix: Matrix, place: &Place, region: &Region) -> Vec<Operand> {
    let walk = Walk::new(body, matrix);
    let zero = body.splat(place.element, 0);
    let mut parts = Vec::new();
    for component in 0..matrix.length() {
        let (inside, found) = region.find(body, &walk, component);
        let before = body.current_block();
        let [read, next] = [body.new_block(), body.new_block()];
        body.go_on(Terminator::CondBranch(inside, read, next), read);
        let at = address(body, place, found);
        let part = body.emit(place.element, Op::Load(at, place.access));
        body.go_on(Terminator::Branch(next), next);
        let arms = vec![(before, zero), (read, part)];
        parts.push(body.emit(place.element, Op::Phi(arms)));
    }
    parts
}

fn store(
    body: &mut Body<'_, '_>,
    inst: &Instruction<'_>,
    matrix: Matrix,
    place: &Place,
    region: &Region,
) -> Result<()> {
    let whole = body.arg(inst, 3)?;
    let walk = Walk::new(body, matrix);
    for (component, part) in (0..).zip(all(body, inst, whole, &matrix)?) {
        let (inside, found) = region.find(body, &walk, component);
        let [write, next] = [body.new_block(), body.new_block()];
        body.go_on(Terminator::CondBranch(inside, write, next), write);
        let at = address(body, place, found);
        body.emit_void(Op::Store(at, part, place.access));
        body.go_on(Terminator::Branch(next), next);
    }
    Ok(())
}
