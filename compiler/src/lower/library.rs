// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions of the run-time library on long vectors.
//!
//! Most mathematical functions have forms for vectors (`rt/maths/`), which are called for pieces of the
//! vector. The others are called once for each component in a loop of known length, with the function
//! inlined. LLVM's loop vectoriser makes vector code of some of them; if it can't, the loop is still
//! correct. One such loop serves all calls of a kernel.

use std::fmt::Write;

use super::body::Body;
use super::types::value_type;
use super::unit::{LowerError, ONE_ROUND};
use crate::ir::{MathOp, Operand, SecondResult, Type, TypeId};

/// Vectors of at least this length are not split into scalars.
pub(super) const MIN_LANES: u32 = 8;

/// The longest vectors of floats and of doubles that functions take.
const MOST_FLOATS: u32 = 16;
const MOST_DOUBLES: u32 = 8;

impl Body<'_, '_> {
    /// Text that computes the result, of type `ty`, of a library function on vectors of `MIN_LANES`
    /// components or more. `scalar` is its scalar form.
    pub(super) fn library_call(
        &mut self,
        op: MathOp,
        args: &[Operand],
        scalar: &str,
        ty: TypeId,
    ) -> Result<String, LowerError> {
        let lanes = self.unit.module.types.lanes(self.type_of(args[0]));
        if op.takes_vectors() && lanes.is_multiple_of(MIN_LANES) {
            Ok(self.library_pieces(args, scalar, lanes, op.second_result().is_some(), ty))
        } else {
            self.library_loop(op, args, scalar)
        }
    }

    /// Text of the sums of two products of integers of 16 bits, where vectors have as many components as the
    /// library's forms, and otherwise of one component after the other.
    pub(super) fn pair_dot(&mut self, a: Operand, b: Operand, ty: TypeId) -> String {
        self.pieces_or_each(a, b, "__tally_pair_dot", ty)
    }

    /// Text of a function of two numbers of one type, whose results have that type, for vectors of any length.
    fn pieces_or_each(&mut self, a: Operand, b: Operand, name: &str, ty: TypeId) -> String {
        let module = self.unit.module;
        let lanes = module.types.lanes(ty);
        if lanes.is_multiple_of(MIN_LANES) {
            return self.library_pieces(&[a, b], name, lanes, false, ty);
        }
        let each = value_type(module, module.types.element(ty));
        self.unit.declare(&each, name, &format!("{each}, {each}"));
        let (whole, a, b) = (self.value_type(ty), self.operand(a), self.operand(b));
        if lanes == 1 {
            return format!("call {each} @{name}({each} {a}, {each} {b})");
        }
        let mut parts = Vec::new();
        for lane in 0..lanes {
            let [x, y] =
                [&a, &b].map(|it| self.def(&format!("extractelement {whole} {it}, i32 {lane}")));
            parts.push(self.def(&format!("call {each} @{name}({each} {x}, {each} {y})")));
        }
        self.assemble(ty, &parts)
    }

    /// Text of quotients that need not be rounded correctly; `None` if a division is as good.
    pub(super) fn near_quotient(&mut self, a: Operand, b: Operand, ty: TypeId) -> Option<String> {
        const FLOATS: &str = "__tally_native_divide_f32";
        let types = &self.unit.module.types;
        let lanes = types.lanes(ty);
        if types.scalar_bits(ty) == 32 {
            return Some(self.pieces_or_each(a, b, FLOATS, ty));
        }
        (types.scalar_bits(ty) == 64 && lanes.is_multiple_of(MIN_LANES))
            .then(|| self.library_pieces(&[a, b], "__tally_near_quotient_f64", lanes, false, ty))
    }

    /// Calls the function's form for vectors on one piece of the components after the other.
    fn library_pieces(
        &mut self,
        args: &[Operand],
        scalar: &str,
        lanes: u32,
        has_second: bool,
        ty: TypeId,
    ) -> String {
        let module = self.unit.module;
        let elements: Vec<String> = args
            .iter()
            .map(|&arg| value_type(module, module.types.element(self.type_of(arg))))
            .collect();
        let most = if elements[0] == "double" { MOST_DOUBLES } else { MOST_FLOATS };
        let piece = if lanes.is_multiple_of(most) { most } else { MIN_LANES };
        let function = format!("{scalar}x{piece}");
        let result = format!("<{piece} x {}>", elements[0]);
        let mut params: Vec<String> =
            elements.iter().map(|element| format!("<{piece} x {element}>")).collect();
        params.extend(has_second.then(|| "ptr".to_owned()));
        self.unit.declare(&result, &function, &params.join(", "));
        let out = has_second.then(|| self.prelude_def(&format!("alloca {result}, align 64")));
        let args: Vec<String> = args.iter().map(|&arg| self.operand(arg)).collect();
        let (mut firsts, mut seconds) = (Vec::new(), Vec::new());
        for first in (0..lanes).step_by(piece as usize) {
            let mut list = Vec::new();
            for (arg, element) in args.iter().zip(&elements) {
                let part = match piece == lanes {
                    true => arg.clone(),
                    false => self.part(arg, &format!("<{lanes} x {element}>"), first, piece),
                };
                list.push(format!("<{piece} x {element}> {part}"));
            }
            list.extend(out.iter().map(|out| format!("ptr {out}")));
            let call = format!("call {result} @{function}({})", list.join(", "));
            if piece == lanes && out.is_none() {
                return call;
            }
            firsts.push(self.def(&call));
            seconds.extend(
                out.iter().map(|out| self.def(&format!("load {result}, ptr {out}, align 64"))),
            );
        }
        if out.is_none() {
            return self.joined(&elements[0], piece, firsts);
        }
        let both = [firsts, seconds].map(|pieces| match pieces.as_slice() {
            [one] => one.clone(),
            _ => {
                let text = self.joined(&elements[0], piece, pieces);
                self.def(&text)
            }
        });
        self.assemble(ty, &both)
    }

    /// `count` components of a vector of type `ty`, from `first` on.
    pub(super) fn part(&mut self, vector: &str, ty: &str, first: u32, count: u32) -> String {
        let mask: Vec<String> = (first..first + count).map(|i| format!("i32 {i}")).collect();
        let mask = format!("<{count} x i32> <{}>", mask.join(", "));
        self.def(&format!("shufflevector {ty} {vector}, {ty} poison, {mask}"))
    }

    /// Text that joins pieces of one length to a vector; their number is a power of two.
    fn joined(&mut self, element: &str, mut piece: u32, mut pieces: Vec<String>) -> String {
        loop {
            let ty = format!("<{piece} x {element}>");
            piece *= 2;
            let mask: Vec<String> = (0..piece).map(|i| format!("i32 {i}")).collect();
            let mask = format!("<{piece} x i32> <{}>", mask.join(", "));
            let texts: Vec<String> = pieces
                .chunks(2)
                .map(|pair| {
                    let last = &pair[pair.len() - 1];
                    format!("shufflevector {ty} {}, {ty} {last}, {mask}", pair[0])
                })
                .collect();
            if let [text] = texts.as_slice() {
                return text.clone();
            }
            pieces = texts.iter().map(|text| self.def(text)).collect();
        }
    }

    /// Text of a call of a function that calls the scalar one in a loop.
    fn library_loop(
        &mut self,
        op: MathOp,
        args: &[Operand],
        scalar: &str,
    ) -> Result<String, LowerError> {
        let module = self.unit.module;
        let missing = || LowerError::Unsupported("a function without arguments".into());
        let lanes = module.types.lanes(self.type_of(*args.first().ok_or_else(missing)?));
        let element =
            |body: &Self, ty: TypeId| value_type(module, body.unit.module.types.element(ty));
        let params: Vec<String> =
            args.iter().map(|&arg| element(self, self.type_of(arg))).collect();
        let float = params[0].clone();
        let first = if op.returns_int() { "i32".to_owned() } else { float.clone() };
        let second = op.second_result().map(|second| match second {
            SecondResult::Float => float.clone(),
            SecondResult::Int => "i32".to_owned(),
        });
        let name = format!("{scalar}.v{lanes}");
        let result = match &second {
            None => format!("<{lanes} x {first}>"),
            Some(second) => format!("{{ <{lanes} x {first}>, <{lanes} x {second}> }}"),
        };
        if !self.unit.helpers.contains_key(&name) {
            // Smaller numbers belong to the module.
            let number = ONE_ROUND + 2 + 2 * self.unit.helpers.len();
            let each = Loop { lanes, params: &params, first: &first, second: second.as_deref() };
            self.unit.helpers.insert(name.clone(), each.text(&name, scalar, number));
        }
        self.unit.has_component_loops = true;
        let args: Vec<String> = args.iter().map(|&arg| self.typed(arg)).collect();
        Ok(format!("call {result} @{name}({})", args.join(", ")))
    }
}

/// A function that calls a scalar function for each component.
struct Loop<'a> {
    lanes: u32,
    params: &'a [String],
    first: &'a str,
    second: Option<&'a str>,
}

impl Loop<'_> {
    fn vector(&self, ty: &str) -> String {
        format!("<{} x {ty}>", self.lanes)
    }

    fn result(&self) -> String {
        let first = self.vector(self.first);
        match self.second {
            None => first,
            Some(second) => format!("{{ {first}, {} }}", self.vector(second)),
        }
    }

    /// The parameters of the function, or the arguments with which another function passes them on.
    fn list(&self) -> String {
        let params = self.params.iter().enumerate();
        params.map(|(i, ty)| format!("{} %a{i}", self.vector(ty))).collect::<Vec<_>>().join(", ")
    }

    /// A function that calls `scalar` for each component. Its loop has a number for metadata.
    fn text(&self, name: &str, scalar: &str, number: usize) -> String {
        let (result, lanes, first) = (self.result(), self.lanes, self.first);
        let params = self.params.iter().enumerate();
        let mut text =
            format!("\ndefine internal {result} @{name}({}) #0 {{\nentry:\n", self.list());
        let mut place = |name: &str, ty: &str| {
            let _ = writeln!(text, "  %{name} = alloca [{lanes} x {ty}], align 64");
        };
        params.clone().for_each(|(i, ty)| place(&format!("p{i}"), ty));
        place("first", first);
        if let Some(second) = self.second {
            place("second", second);
        }
        for (i, ty) in params.clone() {
            let _ = writeln!(text, "  store {} %a{i}, ptr %p{i}, align 64", self.vector(ty));
        }
        text += "  br label %each\neach:\n  %i = phi i64 [ 0, %entry ], [ %next, %each ]\n";
        let mut values: Vec<String> = Vec::new();
        for (i, ty) in params {
            let _ = writeln!(
                text,
                "  %at{i} = getelementptr inbounds {ty}, ptr %p{i}, i64 %i\n  %x{i} = load {ty}, ptr %at{i}"
            );
            values.push(format!("{ty} %x{i}"));
        }
        if let Some(second) = self.second {
            let _ = writeln!(
                text,
                "  %at.second = getelementptr inbounds {second}, ptr %second, i64 %i"
            );
            values.push("ptr %at.second".to_owned());
        }
        let _ = writeln!(
            text,
            "  %y = call {first} @{scalar}({}) alwaysinline
  %at.first = getelementptr inbounds {first}, ptr %first, i64 %i
  store {first} %y, ptr %at.first
  %next = add nuw nsw i64 %i, 1
  %last = icmp eq i64 %next, {lanes}
  br i1 %last, label %done, label %each, !llvm.loop !{number}
done:",
            values.join(", ")
        );
        let _ = writeln!(text, "  %firsts = load {}, ptr %first, align 64", self.vector(first));
        if let Some(second) = self.second {
            let (firsts, seconds) = (self.vector(first), self.vector(second));
            let _ = writeln!(
                text,
                "  %seconds = load {seconds}, ptr %second, align 64
  %one = insertvalue {result} poison, {firsts} %firsts, 0
  %both = insertvalue {result} %one, {seconds} %seconds, 1
  ret {result} %both"
            );
        } else {
            let _ = writeln!(text, "  ret {result} %firsts");
        }
        let width = number + 1;
        let _ = writeln!(
            text,
            "}}
!{number} = distinct !{{!{number}, !{width}}}
!{width} = !{{!\"llvm.loop.vectorize.width\", i32 {lanes}}}"
        );
        text
    }
}

/// Whether functions of a type use a loop.
pub(super) fn is_long(module: &crate::ir::Module, ty: TypeId) -> bool {
    matches!(module.types[ty], Type::Vector(_, n) if n >= MIN_LANES)
}
