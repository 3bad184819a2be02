// SPDX-License-Identifier: MIT OR Apache-2.0
//! The types of instructions.

use super::support;
use crate::ir::Scalar;
use crate::ir::group::{Product, Saturation, identity};
use crate::ir::{
    AddressSpace, AtomicOp, BinaryOp, CompareOp, ConvertOp, Float, Function, GroupOp, ImageOp,
    Inst, Loc, MathOp, Module, Op, Operand, RowOp, Scope, SecondResult, Terminator, TernaryOp,
    Type, TypeId, UnaryOp,
};

/// Checks that every instruction of a function is supported and fits its types, and reports each that
/// does not. Returns whether all do.
pub fn check(module: &Module, function: &Function, report: &mut impl FnMut(Loc, String)) -> bool {
    let types = Types { module, function };
    let mut good = true;
    let mut complain = |loc, message| {
        good = false;
        report(loc, message);
    };
    for &param in &function.params {
        let ty = function.values[param].ty;
        if let Some(message) = support::value_type(module, ty) {
            complain(function.loc, format!("has a parameter {message}"));
        }
    }
    for variable in &function.variables {
        if variable.init.is_some_and(|init| module.constants[init].ty != variable.ty) {
            complain(function.loc, "initialises a variable with another type".into());
        }
    }
    for (_, block) in function.blocks.iter() {
        for inst in &block.insts {
            if let Some(message) = support::inst(module, function, inst) {
                complain(inst.loc, message);
            } else if types.fits(inst).is_none() {
                complain(inst.loc, types.describe(inst));
            }
        }
        for (index, inst) in block.insts.iter().enumerate() {
            let next = block.insts.get(index + 1);
            let before = index.checked_sub(1).and_then(|before| block.insts.get(before));
            if types.exchange_fits(before, inst, next).is_none() {
                complain(inst.loc, types.describe(inst));
            }
        }
        if !types.terminator_fits(&block.terminator) {
            complain(block.loc, "does not fit its types".into());
        }
    }
    good
}

struct Types<'m> {
    module: &'m Module,
    function: &'m Function,
}

/// `Some` if a rule holds, so that rules can be chained with `?`.
type Rule = Option<()>;

fn rule(holds: bool) -> Rule {
    holds.then_some(())
}

impl Types<'_> {
    fn describe(&self, inst: &Inst) -> String {
        let types = &self.module.types;
        let mut operands = Vec::new();
        inst.op.for_each_operand(|operand| {
            operands.push(types.text(self.of(operand)).to_string());
        });
        let result = inst.result.map_or_else(
            || "nothing".into(),
            |id| types.text(self.function.values[id].ty).to_string(),
        );
        format!("does not fit its types: {result} from ({})", operands.join(", "))
    }

    fn of(&self, operand: Operand) -> TypeId {
        self.module.operand_type(self.function, operand)
    }

    fn ty(&self, id: TypeId) -> &Type {
        &self.module.types[id]
    }

    /// The type of a vector's components, or the type itself.
    fn element(&self, id: TypeId) -> &Type {
        &self.module.types[self.module.types.element(id)]
    }

    fn lanes(&self, id: TypeId) -> u32 {
        self.module.types.lanes(id)
    }

    fn bits(&self, id: TypeId) -> u32 {
        self.module.types.scalar_bits(id)
    }

    fn is_int(&self, id: TypeId) -> bool {
        matches!(self.element(id), Type::Int(_))
    }

    fn is_float(&self, id: TypeId) -> bool {
        matches!(self.element(id), Type::Float(_))
    }

    fn is_bool(&self, id: TypeId) -> bool {
        matches!(self.element(id), Type::Bool)
    }

    fn is_pointer(&self, id: TypeId) -> bool {
        matches!(self.element(id), Type::Pointer(_))
    }

    fn scalar_int(&self, operand: Operand) -> Rule {
        rule(matches!(self.ty(self.of(operand)), Type::Int(_)))
    }

    /// Requires a pointer; returns its address space.
    fn pointer(&self, operand: Operand) -> Option<AddressSpace> {
        match self.ty(self.of(operand)) {
            Type::Pointer(space) => Some(*space),
            _ => None,
        }
    }

    /// Requires a pointer that may be written through.
    fn target(&self, operand: Operand) -> Rule {
        rule(self.pointer(operand)? != AddressSpace::Constant)
    }

    /// Requires `bool` or a vector of it with as many components as another type.
    fn bool_like(&self, id: TypeId, other: TypeId) -> Rule {
        rule(self.is_bool(id) && self.lanes(id) == self.lanes(other))
    }

    fn fits(&self, inst: &Inst) -> Rule {
        let result = inst.result.map(|id| self.function.values[id].ty);
        match &inst.op {
            Op::Store(ptr, value, _) => {
                self.target(*ptr)?;
                self.module.types.layout(self.of(*value))?;
                return rule(result.is_none());
            }
            Op::Copy(to, from, size, _) => {
                self.target(*to)?;
                self.pointer(*from)?;
                self.scalar_int(*size)?;
                return rule(result.is_none());
            }
            Op::AtomicStore(ptr, value, ..) => {
                self.target(*ptr)?;
                return rule(result.is_none() && self.lanes(self.of(*value)) == 1);
            }
            Op::ControlBarrier { .. } | Op::GridBarrier | Op::Fence(..) | Op::Offer(..) => {
                return rule(result.is_none());
            }
            Op::NamedBarrier(at, ..) => {
                return rule(self.pointer(*at) == Some(AddressSpace::Local) && result.is_none());
            }
            Op::Prefetch(at) => {
                return rule(self.module.types.lanes(self.of(*at)) == 1 && result.is_none());
            }
            Op::MaskedStore(_, value, mask, _) | Op::Scatter(_, value, mask, _) => {
                self.bool_like(self.of(*mask), self.of(*value))?;
                return rule(result.is_none());
            }
            Op::CopyStates(to, from, size) => {
                self.pointer(*to)?;
                self.pointer(*from)?;
                self.scalar_int(*size)?;
                return rule(result.is_none());
            }
            Op::Report { mistake, .. } => {
                return rule(self.is_bool(self.of(*mistake)) && result.is_none());
            }
            Op::Image(op, args) => return self.image(*op, args, result),
            Op::Images(op, args) => return self.images(*op, args, result),
            Op::Assume(condition) => {
                return rule(*self.ty(self.of(*condition)) == Type::Bool && result.is_none());
            }
            Op::Call(callee, args) => {
                let callee = self.module.functions.get(*callee)?;
                rule(args.len() == callee.params.len())?;
                for (&arg, &param) in args.iter().zip(&callee.params) {
                    rule(self.of(arg) == callee.values[param].ty)?;
                }
                let void = *self.ty(callee.return_type) == Type::Void;
                return rule(result == (!void).then_some(callee.return_type));
            }
            _ => {}
        }
        self.value_fits(&inst.op, result?)
    }

    fn value_fits(&self, op: &Op, result: TypeId) -> Rule {
        match op {
            Op::Unary(op, a) => self.unary(*op, self.of(*a), result),
            Op::Binary(op, a, b) => {
                rule(self.of(*a) == result && self.of(*b) == result)?;
                self.binary(*op, result)
            }
            Op::Ternary(op, a, b, c) => {
                rule([a, b, c].into_iter().all(|&x| self.of(x) == result))?;
                rule(match op {
                    TernaryOp::Fma => self.is_float(result),
                    TernaryOp::SMadSat | TernaryOp::UMadSat => self.is_int(result),
                })
            }
            Op::Compare(op, a, b) => self.compare(*op, self.of(*a), self.of(*b), result),
            Op::Test(_, a) => {
                rule(self.is_float(self.of(*a)))?;
                self.bool_like(result, self.of(*a))
            }
            Op::Select(condition, yes, no) => {
                rule(self.of(*yes) == result && self.of(*no) == result)?;
                let condition = self.of(*condition);
                rule(*self.ty(condition) == Type::Bool)
                    .or_else(|| self.bool_like(condition, result))
            }
            Op::Convert(op, a) => self.convert(*op, self.of(*a), result),
            Op::Math(op, args) => self.math(*op, args, result),
            Op::AddCarry(a, b)
            | Op::SubBorrow(a, b)
            | Op::UMulExtended(a, b)
            | Op::SMulExtended(a, b) => {
                let ty = self.of(*a);
                rule(self.of(*b) == ty && self.is_int(ty))?;
                self.pair(result, ty, ty)
            }
            Op::Construct(_)
            | Op::Extract(..)
            | Op::Insert(..)
            | Op::ExtractDynamic(..)
            | Op::InsertDynamic(..)
            | Op::Shuffle(..) => self.composite(op, result),
            Op::Accessible(at, size) => {
                self.pointer(*at)?;
                self.scalar_int(*size)?;
                rule(matches!(self.ty(result), Type::Int(64)))
            }
            Op::Texels(_, args) => {
                self.pointer(*args.first()?)?;
                rule(matches!(self.ty(result), Type::Int(64)))
            }
            Op::Strings(args, _) => {
                self.pointer(*args)?;
                rule(matches!(self.ty(result), Type::Int(64)))
            }
            Op::CheckWord(_) => rule(matches!(self.ty(result), Type::Int(64))),
            Op::Shadow(at) => {
                rule(self.is_pointer(self.of(*at)) && self.is_pointer(result))?;
                rule(self.lanes(self.of(*at)) == self.lanes(result))
            }
            Op::Present => rule(self.is_bool(result)),
            Op::Splat(a) => match self.ty(result) {
                Type::Vector(element, _) => rule(*element == self.of(*a)),
                _ => None,
            },
            Op::Freeze(a) => rule(self.of(*a) == result),
            Op::Row(op, a, b) => {
                let is = match op {
                    RowOp::Fits => *self.ty(result) == Type::Bool,
                    RowOp::Number | RowOp::Place => self.of(*a) == result,
                };
                rule(is && self.of(*a) == self.of(*b))
            }
            Op::Whole(a) => rule(self.of(*a) == result && *self.ty(result) == Type::Bool),
            Op::Any(a) => rule(self.is_bool(self.of(*a)) && *self.ty(result) == Type::Bool),
            Op::LastTrue(a) | Op::Bits(a) => {
                rule(self.is_bool(self.of(*a)) && *self.ty(result) == Type::Int(32))
            }
            Op::InLine(_, mask, ..) => {
                rule(self.is_bool(self.of(*mask)) && *self.ty(result) == Type::Bool)
            }
            Op::Close(_, mask, ..) => {
                rule(self.is_bool(self.of(*mask)) && *self.ty(result) == Type::Bool)
            }
            Op::Table(at, _) => {
                self.pointer(*at)?;
                rule(*self.ty(result) == Type::Bool)
            }
            Op::LookUp(at, place, _) => {
                self.pointer(*at)?;
                rule(self.of(*place) == result)
            }
            Op::GatherClose(at, ..) => rule(self.lanes(self.of(*at)) == self.lanes(result)),
            Op::AddLater(_, value, mask) | Op::ScatterClose(_, value, mask) => {
                self.bool_like(self.of(*mask), self.of(*value))?;
                rule(*self.ty(result) == Type::Bool)
            }
            Op::MaskedLoad(_, mask, _) | Op::Gather(_, mask, _) => {
                self.bool_like(self.of(*mask), result)
            }
            Op::Address { base, terms, .. } if self.lanes(result) > 1 => {
                rule(self.is_pointer(self.of(*base)) && self.is_pointer(result))?;
                rule(terms.iter().all(|&(index, _)| self.is_int(self.of(index))))
            }
            Op::Address { base, terms, .. } => {
                self.pointer(*base)?;
                terms.iter().try_for_each(|&(index, _)| self.scalar_int(index))?;
                rule(self.of(*base) == result)
            }
            Op::Load(ptr, _) => {
                self.pointer(*ptr)?;
                self.module.types.layout(result).map(|_| ())
            }
            Op::AtomicLoad(ptr, ..) => {
                self.pointer(*ptr)?;
                rule(self.lanes(result) == 1)
            }
            Op::AtomicRmw(op, ptr, value, ..) => {
                self.target(*ptr)?;
                rule(self.of(*value) == result)?;
                rule(match op {
                    AtomicOp::Exchange => true,
                    AtomicOp::FAdd | AtomicOp::FMin | AtomicOp::FMax => {
                        matches!(self.ty(result), Type::Float(_))
                    }
                    _ => matches!(self.ty(result), Type::Int(_)),
                })
            }
            Op::AtomicCompareExchange { ptr, expected, value, .. } => {
                self.target(*ptr)?;
                rule(self.of(*expected) == result && self.of(*value) == result)
            }
            Op::Printf(format, args, _) => {
                self.pointer(*format)?;
                self.target(*args)?;
                rule(*self.ty(result) == Type::Int(32))
            }
            Op::WorkItem(query, dimension) => {
                rule(*self.ty(result) == Type::Int(query.bits()))?;
                rule(*dimension < if query.has_dimension() { 3 } else { 1 })
            }
            Op::Collect(op, _, index) => {
                let shuffle = op.combines().is_none();
                rule(index.is_some() == shuffle)?;
                let added = matches!(op, GroupOp::MulAdd(_));
                let fits = |ty| if added { ty == result } else { *self.ty(ty) == Type::Int(32) };
                rule(index.is_none_or(|index| fits(self.of(index))))
            }
            Op::Phi(incoming) => rule(incoming.iter().all(|&(_, value)| self.of(value) == result)),
            _ => None,
        }
    }

    /// Requires that a group's offer and its collection are adjacent, and of one type that can be
    /// combined.
    fn exchange_fits(&self, before: Option<&Inst>, inst: &Inst, next: Option<&Inst>) -> Rule {
        match (&inst.op, before.map(|inst| &inst.op), next.map(|inst| &inst.op)) {
            (Op::Offer(scope, _), _, next) => {
                rule(matches!(next, Some(Op::Collect(_, other, _)) if other == scope))
            }
            (Op::Collect(op, scope, _), Some(Op::Offer(other, value)), _) => {
                let (ty, result) = (self.of(*value), self.function.values[inst.result?].ty);
                if let GroupOp::MulAdd(product) = op {
                    rule(scope == other && *scope == Scope::Subgroup)?;
                    return self.product_fits(*product, ty, result);
                }
                rule(scope == other && ty == result)?;
                let Some(op) = op.combines() else { return Some(()) };
                let scalar = Scalar::of(self.element(ty))?;
                rule(!self.is_pointer(ty))?;
                identity(op, scalar).map(|_| ())
            }
            (Op::Collect(..), ..) => None,
            _ => Some(()),
        }
    }

    /// Requires the parts of three matrices of one type of numbers.
    fn product_fits(&self, product: Product, offered: TypeId, result: TypeId) -> Rule {
        let Type::Struct { members, .. } = self.ty(offered) else { return None };
        let &[first, second] = members.as_slice() else { return None };
        let &Type::Array(element, _) = self.ty(result) else { return None };
        let &Type::Array(factors, _) = self.ty(first) else { return None };
        let halves = *self.ty(factors) == Type::Int(16) && *self.ty(element) == Type::Int(32);
        rule(if product.narrow { halves } else { factors == element })?;
        let array = |element, count: u32| Type::Array(element, u64::from(count));
        rule(*self.ty(first) == array(factors, product.first()))?;
        rule(*self.ty(second) == array(factors, product.second()))?;
        rule(*self.ty(result) == array(element, product.result()))?;
        match self.ty(element) {
            Type::Int(_) => Some(()),
            Type::Float(_) => rule(product.saturation == Saturation::None),
            _ => None,
        }
    }

    fn unary(&self, op: UnaryOp, a: TypeId, result: TypeId) -> Rule {
        rule(a == result)?;
        rule(match op {
            UnaryOp::Not => self.is_int(a) || self.is_bool(a),
            UnaryOp::Neg
            | UnaryOp::Abs
            | UnaryOp::Clz
            | UnaryOp::Ctz
            | UnaryOp::PopCount
            | UnaryOp::BitReverse => self.is_int(a),
            _ => self.is_float(a),
        })
    }

    fn binary(&self, op: BinaryOp, ty: TypeId) -> Rule {
        rule(match op {
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => self.is_int(ty) || self.is_bool(ty),
            BinaryOp::FAdd
            | BinaryOp::FSub
            | BinaryOp::FMul
            | BinaryOp::FDiv
            | BinaryOp::FDivNear
            | BinaryOp::FMin
            | BinaryOp::FMax
            | BinaryOp::CopySign => self.is_float(ty),
            BinaryOp::PairDot => self.is_int(ty) && self.bits(ty) == 32,
            _ => self.is_int(ty),
        })
    }

    fn compare(&self, op: CompareOp, a: TypeId, b: TypeId, result: TypeId) -> Rule {
        self.bool_like(result, a)?;
        // Pointers into different address spaces are numbers in one flat space.
        rule(a == b)?;
        rule(match op {
            CompareOp::Eq | CompareOp::Ne => {
                self.is_int(a) || self.is_bool(a) || self.is_pointer(a)
            }
            CompareOp::ULt
            | CompareOp::ULe
            | CompareOp::UGt
            | CompareOp::UGe
            | CompareOp::SLt
            | CompareOp::SLe
            | CompareOp::SGt
            | CompareOp::SGe => self.is_int(a),
            _ => self.is_float(a),
        })
    }

    fn convert(&self, op: ConvertOp, from: TypeId, to: TypeId) -> Rule {
        let (from_bits, to_bits) = (self.bits(from), self.bits(to));
        let ints = self.is_int(from) && self.is_int(to);
        if op == ConvertOp::Bitcast {
            let number = |ty| self.is_int(ty) || self.is_float(ty);
            return rule(
                number(from)
                    && number(to)
                    && from_bits * self.lanes(from) == to_bits * self.lanes(to),
            );
        }
        rule(self.lanes(from) == self.lanes(to))?;
        rule(match op {
            ConvertOp::Trunc => ints && from_bits > to_bits,
            ConvertOp::SExt | ConvertOp::ZExt => ints && from_bits < to_bits,
            ConvertOp::FToS | ConvertOp::FToU | ConvertOp::FToSSat | ConvertOp::FToUSat => {
                self.is_float(from) && self.is_int(to)
            }
            ConvertOp::SToF | ConvertOp::UToF => self.is_int(from) && self.is_float(to),
            ConvertOp::FToF => self.is_float(from) && self.is_float(to) && from_bits != to_bits,
            ConvertOp::PtrToInt => self.is_pointer(from) && self.is_int(to) && to_bits == 64,
            ConvertOp::IntToPtr => self.is_int(from) && from_bits == 64 && self.is_pointer(to),
            ConvertOp::PtrCast => self.is_pointer(from) && self.is_pointer(to),
            ConvertOp::Bitcast => false,
        })
    }

    /// Requires a structure of these two types.
    fn pair(&self, ty: TypeId, first: TypeId, second: TypeId) -> Rule {
        match self.ty(ty) {
            Type::Struct { members, .. } => rule(*members == [first, second]),
            _ => None,
        }
    }

    fn is_i32_like(&self, ty: TypeId, like: TypeId) -> bool {
        *self.element(ty) == Type::Int(32) && self.lanes(ty) == self.lanes(like)
    }

    fn math(&self, op: MathOp, args: &[Operand], result: TypeId) -> Rule {
        rule(args.len() == op.arity())?;
        let ty = self.of(*args.first()?);
        rule(matches!(self.element(ty), Type::Float(Float::F32 | Float::F64)))?;
        for (i, &arg) in args.iter().enumerate() {
            if op.takes_int() && i + 1 == args.len() {
                rule(self.is_i32_like(self.of(arg), ty))?;
            } else {
                rule(self.of(arg) == ty)?;
            }
        }
        match op.second_result() {
            Some(SecondResult::Float) => self.pair(result, ty, ty),
            Some(SecondResult::Int) => match self.ty(result) {
                Type::Struct { members, .. } => match members.as_slice() {
                    [first, second] => rule(*first == ty && self.is_i32_like(*second, ty)),
                    _ => None,
                },
                _ => None,
            },
            None if op.returns_int() => rule(self.is_i32_like(result, ty)),
            None => rule(result == ty),
        }
    }

    fn image(&self, op: ImageOp, args: &[Operand], result: Option<TypeId>) -> Rule {
        let texel = |ty: TypeId| {
            rule(
                matches!(*self.ty(ty), Type::Vector(element, 4) if *self.ty(element) == Type::Int(32)),
            )
        };
        let (&image, rest) = args.split_first()?;
        rule(self.pointer(image)? == AddressSpace::Constant)?;
        let coordinate = match op {
            ImageOp::Sample => Type::Float(Float::F32),
            ImageOp::Fetch | ImageOp::Write => Type::Int(32),
        };
        let coordinates = match (op, rest) {
            (ImageOp::Write, [coordinates @ .., value]) => {
                rule(result.is_none())?;
                texel(self.of(*value))?;
                coordinates
            }
            (ImageOp::Fetch | ImageOp::Sample, [sampler, coordinates @ ..]) => {
                rule(*self.ty(self.of(*sampler)) == Type::Int(64))?;
                texel(result?)?;
                coordinates
            }
            _ => return None,
        };
        rule(coordinates.len() == 3)?;
        rule(coordinates.iter().all(|&it| *self.ty(self.of(it)) == coordinate))
    }

    fn images(&self, op: ImageOp, args: &[Operand], result: Option<TypeId>) -> Rule {
        let (&mask, args) = args.split_last()?;
        let (&image, rest) = args.split_first()?;
        rule(self.pointer(image)? == AddressSpace::Constant && self.is_bool(self.of(mask)))?;
        let lanes = self.lanes(self.of(mask));
        let vectors = if op == ImageOp::Write {
            rule(result.is_none() && rest.len() == 7)?;
            rest
        } else {
            let (&sampler, vectors) = rest.split_first()?;
            rule(*self.ty(self.of(sampler)) == Type::Int(64) && vectors.len() == 3)?;
            rule(self.lanes(result?) == 4 * lanes)?;
            vectors
        };
        rule(vectors.iter().all(|&it| self.lanes(self.of(it)) == lanes))
    }

    /// The type of the component of a composite at a path.
    fn component(&self, mut ty: TypeId, path: &[u32]) -> Option<TypeId> {
        for &index in path {
            ty = match self.ty(ty) {
                Type::Vector(element, n) if index < *n => *element,
                Type::Array(element, n) if u64::from(index) < *n => *element,
                Type::Struct { members, .. } => *members.get(index as usize)?,
                _ => return None,
            };
        }
        Some(ty)
    }

    fn composite(&self, op: &Op, result: TypeId) -> Rule {
        match op {
            Op::Construct(parts) => match self.ty(result) {
                Type::Vector(element, n) => {
                    rule(parts.len() == *n as usize)?;
                    rule(parts.iter().all(|&part| self.of(part) == *element))
                }
                Type::Array(element, n) => {
                    rule(parts.len() as u64 == *n)?;
                    rule(parts.iter().all(|&part| self.of(part) == *element))
                }
                Type::Struct { members, .. } => {
                    rule(parts.len() == members.len())?;
                    rule(parts.iter().zip(members).all(|(&part, &ty)| self.of(part) == ty))
                }
                _ => None,
            },
            Op::Extract(whole, path) => {
                rule(!path.is_empty())?;
                rule(self.component(self.of(*whole), path)? == result)
            }
            Op::Insert(whole, value, path) => {
                rule(!path.is_empty() && self.of(*whole) == result)?;
                rule(self.component(result, path)? == self.of(*value))
            }
            Op::ExtractDynamic(vector, index) => {
                self.scalar_int(*index)?;
                match self.ty(self.of(*vector)) {
                    Type::Vector(element, _) => rule(*element == result),
                    _ => None,
                }
            }
            Op::InsertDynamic(vector, value, index) => {
                self.scalar_int(*index)?;
                match self.ty(result) {
                    Type::Vector(element, _) => {
                        rule(self.of(*vector) == result && self.of(*value) == *element)
                    }
                    _ => None,
                }
            }
            Op::Shuffle(a, b, mask) => {
                let (a, b) = (self.of(*a), self.of(*b));
                let (Type::Vector(ea, na), Type::Vector(eb, nb), Type::Vector(er, nr)) =
                    (self.ty(a), self.ty(b), self.ty(result))
                else {
                    return None;
                };
                rule(ea == eb && ea == er && mask.len() == *nr as usize)?;
                rule(mask.iter().flatten().all(|&lane| lane < na + nb))
            }
            _ => None,
        }
    }

    fn terminator_fits(&self, terminator: &Terminator) -> bool {
        match terminator {
            Terminator::CondBranch(condition, ..) => *self.ty(self.of(*condition)) == Type::Bool,
            Terminator::Switch { value, .. } => self.scalar_int(*value).is_some(),
            Terminator::Return(None) => *self.ty(self.function.return_type) == Type::Void,
            Terminator::Return(Some(value)) => self.of(*value) == self.function.return_type,
            Terminator::Branch(_) | Terminator::Unreachable => true,
        }
    }
}
