// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matrices that are spread over the items of a sub-group (SPV_KHR_cooperative_matrix), and what Intel's
//! extension adds to them.
//!
//! Such a matrix is an array of the components that an item has: element `e`, counted along the rows, is
//! component `e / n` of item `e % n`, for sub-groups of `n` items. Only a product needs the components of other
//! items ([`GroupOp::MulAdd`]); everything else is what each item does with its own. Sizes that are no multiples
//! of `n` leave some items without an element in the last component, which is zero when it is loaded.

use rspirv::spirv::{Op as Spv, Scope as SpvScope};
use tally_compiler_protocol::SUBGROUP_SIZES;

use super::body::Body;
use super::builder::{Builder, Matrix, SpvKind};
use super::error::Result;
use super::memory::access;
use super::words::{Instruction, intel};
use super::{arith, brain};
use crate::ir::group::{DEFAULT_SUBGROUP_SIZE, Product, Saturation};
use crate::ir::{
    Access, BinaryOp, CompareOp, ConvertOp, Float, GroupOp, Op, Operand, Scope, Terminator, Type,
    TypeId, WorkItemQuery,
};

/// The maximum number of components that an item has of a matrix.
const MAX_COMPONENTS: u64 = 128;
/// The maximum number of multiplications of a product.
const MAX_PRODUCTS: u64 = 1 << 16;

/// The number of items over which a module's matrices are spread; `None` if its kernels have sub-groups of
/// several sizes.
fn lanes(builder: &Builder<'_>) -> Option<u32> {
    let modes = &builder.annotations.modes;
    let size = |kernel| modes.get(kernel).and_then(|modes| modes.subgroup_size);
    let kernels = builder.annotations.kernels.keys();
    let mut sizes = kernels.map(|kernel| size(kernel).unwrap_or(DEFAULT_SUBGROUP_SIZE));
    let first = sizes.next().unwrap_or(DEFAULT_SUBGROUP_SIZE);
    sizes.all(|size| size == first).then_some(first)
}

/// The type of a matrix, or a name that says why it is not supported.
pub fn matrix_type(
    builder: &Builder<'_>,
    inst: &Instruction<'_>,
    element: TypeId,
) -> Result<Result<(Type, Matrix), String>> {
    let [scope, rows, columns, used] = [1, 2, 3, 4].map(|i| builder.int(inst, inst.arg(i)?));
    let (scope, rows, columns, used) = (scope?, rows?, columns?, used?);
    let name = format!("cooperative matrix of {rows}x{columns}");
    if scope != u64::from(SpvScope::Subgroup as u32) {
        return Ok(Err(format!("{name} in scope {scope}, not of a sub-group (scope 3)")));
    }
    if used > 2 {
        return Err(inst.error(format!("has use {used}, which is neither A, B nor accumulator")));
    }
    if !matches!(builder.module.types[element], Type::Int(_) | Type::Float(_)) {
        let text = builder.module.types.text(element);
        return Ok(Err(format!("{name} with elements of type {text}")));
    }
    let Some(lanes) = lanes(builder).filter(|lanes| SUBGROUP_SIZES.contains(lanes)) else {
        let why =
            "in a module whose kernels have sub-groups of several sizes, or not of 8, 16 or 32";
        return Ok(Err(format!("{name} {why}")));
    };
    let limit = MAX_COMPONENTS * u64::from(lanes);
    match rows.checked_mul(columns) {
        Some(0) => return Err(inst.error(format!("is a matrix of {rows}x{columns}"))),
        Some(elements) if elements <= limit => {}
        _ => {
            let why = format!("the limit is {limit} elements for sub-groups of {lanes} items");
            return Ok(Err(format!("{name}, {why}")));
        }
    }
    // Both are at most the limit.
    let (rows, columns) = (rows as u32, columns as u32);
    let matrix = Matrix { component: inst.arg(0)?, rows, columns, used, lanes };
    Ok(Ok((Type::Array(element, u64::from(matrix.length())), matrix)))
}

/// Translates an instruction about matrices. `false` if it is another one.
pub fn translate(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<bool> {
    match inst.opcode() {
        intel::MATRIX_COORDINATES => return coordinates(body, inst).map(|()| true),
        // A hint.
        intel::MATRIX_PREFETCH => return Ok(true),
        _ => {}
    }
    match inst.op() {
        Spv::CooperativeMatrixLoadKHR => load(body, inst)?,
        Spv::CooperativeMatrixStoreKHR => store(body, inst)?,
        Spv::CooperativeMatrixMulAddKHR => multiply(body, inst)?,
        Spv::CooperativeMatrixLengthKHR => {
            // Older translators name a matrix, not its type.
            let id = inst.arg(0)?;
            let id = body.value(inst, id).map_or(id, |(_, ty)| ty);
            let (count, ty) = match body.b.spv_type(inst, id)?.kind {
                SpvKind::Matrix(matrix) => (matrix.length(), body.result_type(inst)?),
                _ => return opaque(body, inst, id).map(|()| true),
            };
            let count = body.int(ty, count.into());
            body.set_result(inst, count)?;
        }
        _ => return elementwise(body, inst),
    }
    Ok(true)
}

/// `unsupported`, with the name of a type that should be one of matrices.
pub fn opaque(body: &mut Body<'_, '_>, inst: &Instruction<'_>, id: u32) -> Result<()> {
    let ty = body.b.ty(inst, id)?;
    match &body.b.module.types[ty] {
        Type::Opaque(name) => {
            let what = format!("{} of a {name}", inst.grammar.name);
            body.unsupported(inst, &what)
        }
        _ => Err(inst.error(format!("needs a matrix, %{id} is none"))),
    }
}

/// The matrix type with an id; otherwise the instruction is refused.
macro_rules! matrix_or_refuse {
    ($body:expr, $inst:expr, $id:expr) => {{
        let id = $id;
        match $body.b.spv_type($inst, id)?.kind {
            SpvKind::Matrix(matrix) => matrix,
            _ => return opaque($body, $inst, id),
        }
    }};
}

/// Instructions that do the same with every element. `false` if it is another one.
fn elementwise(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<bool> {
    let Some(result) = inst.result_type() else { return Ok(false) };
    let SpvKind::Matrix(matrix) = body.b.spv_type(inst, result)?.kind else { return Ok(false) };
    let (ty, element) = (body.b.ty(inst, result)?, body.b.ty(inst, matrix.component)?);
    body.b.repeated_components(inst, ty)?;
    let conversion = match inst.op() {
        Spv::ConvertFToU | Spv::ConvertFToS | Spv::ConvertSToF | Spv::ConvertUToF => true,
        Spv::UConvert | Spv::SConvert | Spv::FConvert => true,
        op => brain::is_conversion(op),
    };
    let mut parts = Vec::new();
    if inst.op() == Spv::CompositeConstruct {
        parts = vec![number(body, inst, 0, element)?; matrix.length() as usize];
    } else if conversion {
        let (from_brain, to_brain) = brain::brains(body, inst)?;
        let floats = body.b.module.types.float(Float::F32);
        for a in components(body, inst, 0, &matrix)? {
            parts.push(if brain::is_conversion(inst.op()) {
                brain::converted(body, inst, a, element)?
            } else {
                let a = if from_brain { body.brain_to_float(a) } else { a };
                let wide = if to_brain { floats } else { element };
                let result = arith::converted(body, inst, a, wide);
                if to_brain { body.float_to_brain(result, element) } else { result }
            });
        }
    } else if let Some(op) = arith::unary_op(inst.op()) {
        for a in components(body, inst, 0, &matrix)? {
            parts.push(body.emit(element, Op::Unary(op, a)));
        }
    } else if let Some(op) = arith::binary_op(inst.op()) {
        let left = components(body, inst, 0, &matrix)?;
        for (a, b) in left.into_iter().zip(components(body, inst, 1, &matrix)?) {
            parts.push(body.emit(element, Op::Binary(op, a, b)));
        }
    } else if inst.op() == Spv::MatrixTimesScalar {
        let by = body.arg(inst, 1)?;
        let op = match body.b.module.types[element] {
            Type::Float(_) => BinaryOp::FMul,
            _ => BinaryOp::Mul,
        };
        for a in components(body, inst, 0, &matrix)? {
            parts.push(body.emit(element, Op::Binary(op, a, by)));
        }
    } else {
        return Ok(false);
    }
    let whole = body.emit(ty, Op::Construct(parts));
    body.set_result(inst, whole)?;
    Ok(true)
}

/// The number that a construction repeats. DPC++ passes a brain float by a pointer to it.
pub fn number(
    body: &mut Body<'_, '_>,
    inst: &Instruction<'_>,
    index: usize,
    element: TypeId,
) -> Result<Operand> {
    if inst.rest().len() != index + 1 {
        return Err(inst.error("makes a matrix of other than one number".into()));
    }
    let number = body.arg(inst, index)?;
    let ty = body.type_of(number);
    Ok(match &body.b.module.types[ty] {
        Type::Pointer(_) => {
            let align = body.b.module.types.align(element);
            body.emit(element, Op::Load(number, super::memory::plain_access(align)))
        }
        Type::Struct { members, .. } if members.as_slice() == [element] => {
            body.extract(number, element, vec![0])
        }
        _ => number,
    })
}

/// The components of an operand that is a matrix of the same size.
fn components(
    body: &mut Body<'_, '_>,
    inst: &Instruction<'_>,
    index: usize,
    like: &Matrix,
) -> Result<Vec<Operand>> {
    let (_, id) = body.value(inst, inst.arg(index)?)?;
    let whole = body.arg(inst, index)?;
    let SpvKind::Matrix(found) = body.b.spv_type(inst, id)?.kind else {
        return Err(inst.error(format!("has operand {index} that is no matrix")));
    };
    if (found.rows, found.columns) != (like.rows, like.columns) {
        return Err(inst.error(format!(
            "has a matrix of {}x{} as operand {index} and one of {}x{} as its result",
            found.rows, found.columns, like.rows, like.columns
        )));
    }
    all(body, inst, whole, &found)
}

/// All components of a matrix.
pub fn all(
    body: &mut Body<'_, '_>,
    inst: &Instruction<'_>,
    whole: Operand,
    matrix: &Matrix,
) -> Result<Vec<Operand>> {
    let element = body.b.ty(inst, matrix.component)?;
    Ok((0..matrix.length()).map(|i| body.extract(whole, element, vec![i])).collect())
}

/// A row or a column: a constant, and a part of 64 bits that depends on the item.
#[derive(Clone, Copy)]
pub struct Index {
    pub fixed: u32,
    pub own: Option<Operand>,
}

/// Row and column of an item's elements.
pub struct Walk {
    pub matrix: Matrix,
    lane: Operand,
    /// Row and column of the item's element among the first ones, if these are whole rows.
    within: Option<(Operand, Operand)>,
}

impl Walk {
    pub fn new(body: &mut Body<'_, '_>, matrix: Matrix) -> Self {
        let (i32, i64) = (body.b.module.types.int(32), body.b.module.types.int(64));
        let lane = body.emit(i32, Op::WorkItem(WorkItemQuery::SubgroupLocalId, 0));
        let lane = body.resize_int(lane, i64, false);
        let rows = !matrix.columns.is_multiple_of(matrix.lanes)
            && matrix.lanes.is_multiple_of(matrix.columns);
        let within = rows.then(|| {
            let shift = body.int(i64, matrix.columns.trailing_zeros().into());
            let low = body.int(i64, (matrix.columns - 1).into());
            let row = body.emit(i64, Op::Binary(BinaryOp::LShr, lane, shift));
            (row, body.emit(i64, Op::Binary(BinaryOp::And, lane, low)))
        });
        Self { matrix, lane, within }
    }

    /// Whether all items have the same row in each component.
    fn in_rows(&self) -> bool {
        self.matrix.columns.is_multiple_of(self.matrix.lanes)
    }

    /// Whether each component is two rows, and all items have an element in each.
    fn in_halves(&self) -> bool {
        let Matrix { columns, lanes, .. } = self.matrix;
        lanes == 2 * columns && self.matrix.elements().is_multiple_of(lanes)
    }

    /// Row and column of the item's element in a component.
    pub fn place(&self, body: &mut Body<'_, '_>, component: u32) -> (Index, Index) {
        let Matrix { columns, lanes, .. } = self.matrix;
        let first = component * lanes;
        if self.in_rows() {
            let column = Index { fixed: first % columns, own: Some(self.lane) };
            return (Index { fixed: first / columns, own: None }, column);
        }
        if let Some((row, column)) = self.within {
            let row = Index { fixed: first / columns, own: Some(row) };
            return (row, Index { fixed: 0, own: Some(column) });
        }
        let (element, i64) = (self.element(body, component), body.b.module.types.int(64));
        let columns = body.int(i64, columns.into());
        let [row, column] = [BinaryOp::UDiv, BinaryOp::URem].map(|op| {
            let own = body.emit(i64, Op::Binary(op, element, columns));
            Index { fixed: 0, own: Some(own) }
        });
        (row, column)
    }

    /// The number of the item's element in a component.
    fn element(&self, body: &mut Body<'_, '_>, component: u32) -> Operand {
        let i64 = body.b.module.types.int(64);
        let first = body.int(i64, (component * self.matrix.lanes).into());
        body.emit(i64, Op::Binary(BinaryOp::Add, self.lane, first))
    }

    /// Whether the item has an element in a component; `None` if all items have one.
    pub fn exists(&self, body: &mut Body<'_, '_>, component: u32) -> Option<Operand> {
        self.matrix.is_partial(component).then(|| {
            let element = self.element(body, component);
            let (i64, bool) = (body.b.module.types.int(64), body.b.module.types.bool());
            let count = body.int(i64, self.matrix.elements().into());
            body.emit(bool, Op::Compare(CompareOp::ULt, element, count))
        })
    }
}

/// `OpCooperativeMatrixGetElementCoordINTEL`: row and column of a component.
fn coordinates(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<()> {
    let (_, id) = body.value(inst, inst.arg(0)?)?;
    let matrix = matrix_or_refuse!(body, inst, id);
    let ty = body.result_type(inst)?;
    let (i64, part) = (body.b.module.types.int(64), body.b.module.types.element(ty));
    let index = body.arg(inst, 1)?;
    let index = body.resize_int(index, i64, false);
    let walk = Walk::new(body, matrix);
    let [lanes, columns] = [matrix.lanes, matrix.columns].map(|n| body.int(i64, n.into()));
    let first = body.emit(i64, Op::Binary(BinaryOp::Mul, index, lanes));
    let element = body.emit(i64, Op::Binary(BinaryOp::Add, first, walk.lane));
    let mut parts = Vec::new();
    for op in [BinaryOp::UDiv, BinaryOp::URem] {
        let place = body.emit(i64, Op::Binary(op, element, columns));
        parts.push(body.resize_int(place, part, false));
    }
    let both = body.emit(ty, Op::Construct(parts));
    body.set_result(inst, both)
}

/// The way in which elements lie in memory.
#[derive(Clone, Copy, PartialEq)]
pub enum Layout {
    Rows,
    Columns,
    /// Intel's: so many rows as fill 32 bits lie side by side, element by element.
    Packed,
}

/// A matrix in memory.
pub struct Place {
    pub base: Operand,
    pub layout: Layout,
    /// The distance of rows or columns, 64 bits, in so many bytes.
    pub stride: Operand,
    pub unit: i64,
    pub element: TypeId,
    /// Size of an element in bytes.
    pub size: i64,
    pub access: Access,
}

impl Place {
    /// The operands of a load or a store: the pointer is the first operand, the layout is at `index`, the stride
    /// so many operands behind it. `Err` of the inner result names what is not supported.
    pub fn read(
        body: &mut Body<'_, '_>,
        inst: &Instruction<'_>,
        matrix: &Matrix,
        (index, behind): (usize, usize),
    ) -> Result<Result<Self, String>> {
        let base = body.arg(inst, 0)?;
        let (_, pointer) = body.value(inst, inst.arg(0)?)?;
        let pointee = body.known_pointee(inst, pointer)?;
        let element = body.b.ty(inst, matrix.component)?;
        let layout = match body.b.int(inst, inst.arg(index)?)? {
            0 => Layout::Rows,
            1 => Layout::Columns,
            2 => Layout::Packed,
            other => {
                let name = &inst.grammar.name;
                return Ok(Err(format!("{name} with the layout {other}, which is not known")));
            }
        };
        if inst.rest().len() <= index + behind {
            return Err(inst.error("has no stride, which this layout needs".into()));
        }
        let i64 = body.b.module.types.int(64);
        let stride = body.arg(inst, index + behind)?;
        let stride = body.resize_int(stride, i64, false);
        let types = &body.b.module.types;
        let size = types.size(element) as i64;
        // Strides count what the pointer points to, and bytes if it is untyped. Compilers whose pointers have no
        // such type write pointers to bytes, and mean elements.
        let unit = match pointee.map(|pointee| types.size(pointee)) {
            None => 1,
            Some(0 | 1) => size,
            Some(unit) => unit as i64,
        };
        let access = access(body, inst, index + behind + 1, element)?;
        Ok(Ok(Self { base, layout, stride, unit, element, size, access }))
    }

    /// The number of rows that lie side by side.
    fn packed(&self) -> u32 {
        match self.layout {
            Layout::Packed => (4 / self.size.clamp(1, 4)) as u32,
            _ => 1,
        }
    }

    /// The address of an element.
    fn address(&self, body: &mut Body<'_, '_>, row: Index, column: Index) -> Operand {
        let i64 = body.b.module.types.int(64);
        let (mut major, mut minor) = match self.layout {
            Layout::Columns => (column, row),
            _ => (row, column),
        };
        let mut offset = 0;
        let mut terms = Vec::new();
        let count = self.packed();
        let mut size = self.size;
        if count > 1 {
            // The column counts groups of elements, the row is one of such a group.
            size *= i64::from(count);
            offset += i64::from(major.fixed % count) * self.size;
            major.fixed /= count;
            if let Some(own) = major.own {
                // A sub-group has whole groups of rows, or the rest of the row is the item's own.
                let (low, by) = (body.int(i64, u64::from(count - 1)), count.trailing_zeros());
                let by = body.int(i64, by.into());
                let rest = body.emit(i64, Op::Binary(BinaryOp::And, own, low));
                terms.push((rest, self.size));
                major.own = Some(body.emit(i64, Op::Binary(BinaryOp::LShr, own, by)));
            }
        }
        if major.fixed > 0 {
            terms.push((self.stride, i64::from(major.fixed) * self.unit));
        }
        if let Some(own) = major.own.take() {
            let far = body.emit(i64, Op::Binary(BinaryOp::Mul, own, self.stride));
            terms.push((far, self.unit));
        }
        offset += i64::from(minor.fixed) * size;
        if let Some(own) = minor.own.take() {
            terms.push((own, size));
        }
        body.address(self.base, offset, terms, false)
    }
}

fn load(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<()> {
    let matrix = matrix_or_refuse!(body, inst, inst.result_type().unwrap_or_default());
    let place = match Place::read(body, inst, &matrix, (1, 1))? {
        Ok(place) => place,
        Err(what) => return body.unsupported(inst, &what),
    };
    let ty = body.result_type(inst)?;
    body.b.repeated_components(inst, ty)?;
    let walk = Walk::new(body, matrix);
    let parts = match place.packed() {
        count @ 2.. if walk.in_rows() && matrix.rows.is_multiple_of(count) => {
            packed_parts(body, &walk, &place)
        }
        _ if walk.in_halves() && place.layout == Layout::Rows => {
            parts_in_halves(body, &walk, &place)
        }
        _ => {
            let mut parts = Vec::new();
            for component in 0..matrix.length() {
                let (row, column) = walk.place(body, component);
                let at = place.address(body, row, column);
                let exists = walk.exists(body, component);
                // What does not exist may not be read.
                let at = match exists {
                    Some(exists) => {
                        let pointer = body.type_of(at);
                        body.emit(pointer, Op::Select(exists, at, place.base))
                    }
                    None => at,
                };
                let mut part = body.emit(place.element, Op::Load(at, place.access));
                if let Some(exists) = exists {
                    let zero = body.splat(place.element, 0);
                    part = body.emit(place.element, Op::Select(exists, part, zero));
                }
                parts.push(part);
            }
            parts
        }
    };
    let whole = body.emit(ty, Op::Construct(parts));
    body.set_result(inst, whole)
}

/// The components of a matrix, each of which is two rows. One half of the items takes the upper row, the other one
/// the lower: in vectors these are two masked loads of neighbours, which take less than a gather.
fn parts_in_halves(body: &mut Body<'_, '_>, walk: &Walk, place: &Place) -> Vec<Operand> {
    let (i64, bool) = (body.b.module.types.int(64), body.b.module.types.bool());
    let columns = body.int(i64, walk.matrix.columns.into());
    let is_upper = body.emit(bool, Op::Compare(CompareOp::ULt, walk.lane, columns));
    let [upper, lower, next] = [body.new_block(), body.new_block(), body.new_block()];
    let half = |body: &mut Body<'_, '_>, lower: u32, own: Operand| -> Vec<Operand> {
        let column = Index { fixed: 0, own: Some(own) };
        let mut parts = Vec::new();
        for component in 0..walk.matrix.length() {
            let row = Index { fixed: 2 * component + lower, own: None };
            let at = place.address(body, row, column);
            parts.push(body.emit(place.element, Op::Load(at, place.access)));
        }
        parts
    };
    body.go_on(Terminator::CondBranch(is_upper, upper, lower), upper);
    let first = half(body, 0, walk.lane);
    body.go_on(Terminator::Branch(next), lower);
    let own = body.emit(i64, Op::Binary(BinaryOp::Sub, walk.lane, columns));
    let second = half(body, 1, own);
    body.go_on(Terminator::Branch(next), next);
    let both = first.into_iter().zip(second);
    both.map(|(a, b)| body.emit(place.element, Op::Phi(vec![(upper, a), (lower, b)]))).collect()
}

/// The components of a matrix whose rows lie side by side: one word of 32 bits has an element of each.
fn packed_parts(body: &mut Body<'_, '_>, walk: &Walk, place: &Place) -> Vec<Operand> {
    let i32 = body.b.module.types.int(32);
    let bits = body.b.module.types.int(place.size as u32 * 8);
    let count = place.packed();
    let across = walk.matrix.columns / walk.matrix.lanes;
    let (mut words, mut parts) = (Vec::new(), Vec::new());
    for component in 0..walk.matrix.length() {
        let (row, column) = walk.place(body, component);
        let (group, member) = (row.fixed / count, row.fixed % count);
        if member == 0 {
            let at = place.address(body, row, column);
            words.push(body.emit(i32, Op::Load(at, place.access)));
        }
        let word = words[(group * across + column.fixed / walk.matrix.lanes) as usize];
        let by = body.int(i32, u64::from(member) * place.size as u64 * 8);
        let part = body.emit(i32, Op::Binary(BinaryOp::LShr, word, by));
        let part = body.emit(bits, Op::Convert(ConvertOp::Trunc, part));
        parts.push(body.bitcast(part, place.element));
    }
    parts
}

fn store(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<()> {
    let (_, id) = body.value(inst, inst.arg(1)?)?;
    let matrix = matrix_or_refuse!(body, inst, id);
    let whole = body.arg(inst, 1)?;
    let place = match Place::read(body, inst, &matrix, (2, 1))? {
        Ok(place) => place,
        Err(what) => return body.unsupported(inst, &what),
    };
    let ty = body.b.ty(inst, id)?;
    body.b.repeated_components(inst, ty)?;
    let walk = Walk::new(body, matrix);
    for (component, part) in (0..).zip(all(body, inst, whole, &matrix)?) {
        let (row, column) = walk.place(body, component);
        let at = place.address(body, row, column);
        let Some(exists) = walk.exists(body, component) else {
            body.emit_void(Op::Store(at, part, place.access));
            continue;
        };
        let [write, next] = [body.new_block(), body.new_block()];
        body.go_on(Terminator::CondBranch(exists, write, next), write);
        body.emit_void(Op::Store(at, part, place.access));
        body.go_on(Terminator::Branch(next), next);
    }
    Ok(())
}

/// The bits of `Cooperative Matrix Operands`.
mod operands {
    pub const A_SIGNED: u32 = 1;
    pub const B_SIGNED: u32 = 2;
    pub const C_SIGNED: u32 = 4;
    pub const RESULT_SIGNED: u32 = 8;
    pub const SATURATING: u32 = 16;
    /// Intel's: the factors are TF32, which are floats.
    pub const TF32: u32 = 0x20;
    /// Intel's: integers are brain floats.
    pub const FACTORS_BRAIN: u32 = 0x40;
    pub const C_BRAIN: u32 = 0x80;
    pub const RESULT_BRAIN: u32 = 0x100;
    pub const ALL: u32 = 0x1ff;
}

/// The meaning of a matrix's components.
#[derive(Clone, Copy, PartialEq)]
enum Number {
    Int { signed: bool },
    Float,
    Brain,
}

fn multiply(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<()> {
    let result = matrix_or_refuse!(body, inst, inst.result_type().unwrap_or_default());
    let mut factors = Vec::new();
    for index in 0..3 {
        let (_, id) = body.value(inst, inst.arg(index)?)?;
        let ty = body.b.ty(inst, id)?;
        body.b.repeated_components(inst, ty)?;
        factors.push((matrix_or_refuse!(body, inst, id), body.arg(inst, index)?));
    }
    let [(a, _), (b, _), (c, _)] = factors[..] else { return Ok(()) };
    if (a.used, b.used, c.used, result.used) != (0, 1, 2, 2) {
        return Err(inst.error("has operands that are not A, B and accumulator".into()));
    }
    let (rows, columns, depth) = (result.rows, result.columns, a.columns);
    let sizes = [(a, rows, depth), (b, depth, columns), (c, rows, columns)];
    if sizes.iter().any(|&(it, rows, columns)| (it.rows, it.columns) != (rows, columns)) {
        return Err(inst.error(format!(
            "multiplies {}x{} by {}x{} and adds {}x{} for a result of {rows}x{columns}",
            a.rows, a.columns, b.rows, b.columns, c.rows, c.columns
        )));
    }
    let products = u64::from(rows * columns) * u64::from(depth);
    if products > MAX_PRODUCTS {
        let what = format!(
            "{} of {rows}x{columns}x{depth}, which are {products} products, the limit is {MAX_PRODUCTS}",
            inst.grammar.name
        );
        return body.unsupported(inst, &what);
    }
    use operands as o;
    let flags = inst.arg(3).unwrap_or(0);
    if flags & !o::ALL != 0 {
        let what = format!("{} with the operands {flags:#x}", inst.grammar.name);
        return body.unsupported(inst, &what);
    }
    let has = |bit| flags & bit != 0;
    let kinds = [
        (a, o::A_SIGNED, o::FACTORS_BRAIN),
        (b, o::B_SIGNED, o::FACTORS_BRAIN),
        (c, o::C_SIGNED, o::C_BRAIN),
        (result, o::RESULT_SIGNED, o::RESULT_BRAIN),
    ];
    let mut numbers = Vec::new();
    let mut doubles = false;
    for (matrix, signed, brain) in kinds {
        let ty = body.b.ty(inst, matrix.component)?;
        doubles |= body.b.module.types[ty] == Type::Float(Float::F64);
        let is_brain = matches!(body.b.spv_type(inst, matrix.component)?.kind, SpvKind::Brain);
        numbers.push(match &body.b.module.types[ty] {
            Type::Float(_) if !has(brain) => Number::Float,
            Type::Int(16) if is_brain || has(brain) => Number::Brain,
            _ if has(brain) => {
                return Err(inst.error("takes other than 16-bit integers as brain floats".into()));
            }
            _ => Number::Int { signed: has(signed) },
        });
    }
    let ints = numbers.iter().filter(|number| matches!(number, Number::Int { .. })).count();
    let ty = body.result_type(inst)?;
    let element = body.b.ty(inst, result.component)?;
    let float = body.b.module.types.float(if doubles { Float::F64 } else { Float::F32 });
    let wide = match ints {
        0 => float,
        4 => element,
        _ => {
            let what = format!("{} of integers and floats together", inst.grammar.name);
            return body.unsupported(inst, &what);
        }
    };
    if has(o::TF32) && (ints > 0 || numbers[..2].contains(&Number::Brain)) {
        return Err(inst.error("takes other than 32-bit floats as TF32".into()));
    }
    let saturation = match (has(o::SATURATING) && ints > 0, has(o::RESULT_SIGNED)) {
        (false, _) => Saturation::None,
        (_, true) => Saturation::Signed,
        _ => Saturation::Unsigned,
    };
    let mut narrow = ints > 0 && body.b.module.types.scalar_bits(wide) == 32;
    for (matrix, number) in [(a, numbers[0]), (b, numbers[1])] {
        let ty = body.b.ty(inst, matrix.component)?;
        narrow &= match body.b.module.types.scalar_bits(ty) {
            8 => true,
            16 => number == Number::Int { signed: true },
            _ => false,
        };
    }
    let short = body.b.module.types.int(16);
    let mut arrays = Vec::new();
    for (i, ((matrix, whole), &number)) in factors.into_iter().zip(&numbers).enumerate() {
        let wide = if narrow && i < 2 { short } else { wide };
        let array = Type::Array(wide, u64::from(matrix.length()));
        let array = body.b.module.types.intern(array).unwrap_or(ty);
        if body.type_of(whole) == array && number != Number::Brain {
            arrays.push((array, whole));
            continue;
        }
        let mut parts = Vec::new();
        for part in all(body, inst, whole, &matrix)? {
            parts.push(as_number(body, part, number, wide));
        }
        arrays.push((array, body.emit(array, Op::Construct(parts))));
    }
    let [(first_ty, first), (second_ty, second), (sums, added)] = arrays[..] else {
        return Ok(());
    };
    let pair = Type::Struct { members: vec![first_ty, second_ty], packed: false };
    let pair = body.b.module.types.intern(pair).unwrap_or(ty);
    let offered = body.emit(pair, Op::Construct(vec![first, second]));
    let product = Product { rows, columns, depth, lanes: result.lanes, narrow, saturation };
    body.emit_void(Op::Offer(Scope::Subgroup, offered));
    let op = Op::Collect(GroupOp::MulAdd(product), Scope::Subgroup, Some(added));
    let mut whole = body.emit(sums, op);
    if sums != ty || numbers[3] == Number::Brain {
        let mut parts = Vec::new();
        for i in 0..result.length() {
            let part = body.emit(wide, Op::Extract(whole, vec![i]));
            parts.push(match numbers[3] {
                Number::Brain => {
                    let floats = body.b.module.types.float(Float::F32);
                    let part = resized(body, part, floats);
                    body.float_to_brain(part, element)
                }
                _ => resized(body, part, element),
            });
        }
        whole = body.emit(ty, Op::Construct(parts));
    }
    body.set_result(inst, whole)
}

/// A component as a number of the type in which a product is computed.
fn as_number(body: &mut Body<'_, '_>, part: Operand, number: Number, ty: TypeId) -> Operand {
    match number {
        Number::Int { signed } => body.resize_int(part, ty, signed),
        Number::Float => resized(body, part, ty),
        Number::Brain => {
            let part = body.brain_to_float(part);
            resized(body, part, ty)
        }
    }
}

/// A float as one of another size.
fn resized(body: &mut Body<'_, '_>, a: Operand, ty: TypeId) -> Operand {
    if body.type_of(a) == ty { a } else { body.emit(ty, Op::Convert(ConvertOp::FToF, a)) }
}
