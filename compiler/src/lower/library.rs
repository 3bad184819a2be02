// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions of the run-time library on long vectors.
//!
//! The library has scalar functions, written without tables and with few branches. Called once for
//! each component in a loop of known length, with the function inlined, LLVM's loop vectoriser
//! makes vector code of them; where it can't, the loop is still right. One such loop serves all
//! calls of a kernel.

use std::fmt::Write;

use super::body::Body;
use super::types::value_type;
use super::unit::LowerError;
use crate::ir::{ImageOp, MathOp, Operand, SecondResult, Type, TypeId};

/// Vectors from this length on go through a loop.
pub(super) const MIN_LANES: u32 = 8;

impl Body<'_, '_> {
    /// Text of a call of a library function for vectors of `MIN_LANES` components or more.
    pub(super) fn library_loop(
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
            let near = scalar.replacen("__tally_", "__tally_near_", 1);
            let angle = matches!(op, MathOp::Sin | MathOp::Cos | MathOp::Tan | MathOp::Sincos);
            let branches = angle && !scalar.starts_with("__tally_native_");
            let near = branches.then_some(near.as_str());
            if let Some(near) = near {
                let mut list = params.clone();
                list.extend(second.iter().map(|_| "ptr".to_owned()));
                self.unit.declare(&first, near, &list.join(", "));
                let bits = if float == "double" { 64 } else { 32 };
                let vector = format!("<{lanes} x {float}>");
                self.unit.declare(&vector, &format!("llvm.fabs.v{lanes}f{bits}"), &vector);
                let (reduce, mask) =
                    (format!("llvm.vector.reduce.or.v{lanes}i1"), format!("<{lanes} x i1>"));
                self.unit.declare("i1", &reduce, &mask);
            }
            // Numbers below belong to the module.
            let number = 2 + 4 * self.unit.helpers.len();
            let (params, first, second) = (&params[..], first.as_str(), second.as_deref());
            let each = Loop { lanes, params, first, second };
            let text = match near {
                None => each.text(&name, "#0", scalar, number),
                Some(near) => each.choice(&name, scalar, near, number),
            };
            self.unit.helpers.insert(name.clone(), text);
        }
        let args: Vec<String> = args.iter().map(|&arg| self.typed(arg)).collect();
        Ok(format!("call {result} @{name}({})", args.join(", ")))
    }
}

impl Body<'_, '_> {
    /// Text of a call of the library's function for an image.
    pub(super) fn image(&mut self, op: ImageOp, args: &[Operand]) -> String {
        const TEXEL: &str = "<4 x i32>";
        let (result, params) = match op {
            ImageOp::Fetch => (TEXEL, "ptr, i64, i32, i32, i32"),
            ImageOp::Sample => (TEXEL, "ptr, i64, float, float, float"),
            ImageOp::Write => ("void", "ptr, i32, i32, i32, <4 x i32>"),
        };
        let function = format!("__tally_image_{}", op.name());
        self.unit.declare(result, &function, params);
        let args: Vec<String> = args.iter().map(|&arg| self.typed(arg)).collect();
        format!("call {result} @{function}({})", args.join(", "))
    }
}

/// A function that calls a scalar one for each component.
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

    /// The parameters of the function, or the arguments with which another passes them on.
    fn list(&self) -> String {
        let params = self.params.iter().enumerate();
        params.map(|(i, ty)| format!("{} %a{i}", self.vector(ty))).collect::<Vec<_>>().join(", ")
    }

    /// A function that goes to `near` if no component of the first argument is as large as 2^20 or
    /// NaN, else to `scalar`. `near` has no branches, so that its loop becomes vector code; the
    /// other one is rarely needed and kept apart.
    fn choice(&self, name: &str, scalar: &str, near: &str, number: usize) -> String {
        let (vector, lanes) = (self.vector(&self.params[0]), self.lanes);
        let bits = if self.params[0] == "double" { 64 } else { 32 };
        let (result, list) = (self.result(), self.list());
        let near_name = format!("{name}.near");
        let far_name = format!("{name}.far");
        let text = format!(
            "
define internal {result} @{name}({list}) #0 {{
entry:
  %size = call {vector} @llvm.fabs.v{lanes}f{bits}({vector} %a0)
  %far = fcmp uge {vector} %size, splat ({} 0x4130000000000000)
  %far.any = call i1 @llvm.vector.reduce.or.v{lanes}i1(<{lanes} x i1> %far)
  br i1 %far.any, label %all, label %near
near:
  %close = call {result} @{near_name}({list})
  ret {result} %close
all:
  %any = call {result} @{far_name}({list})
  ret {result} %any
}}
",
            self.params[0]
        );
        text + &self.text(&near_name, "alwaysinline #0", near, number)
            + &self.text(&far_name, "noinline cold #0", scalar, number + 2)
    }

    /// A function that calls `scalar` for each component. Its loop has a number for metadata.
    fn text(&self, name: &str, attributes: &str, scalar: &str, number: usize) -> String {
        let (result, lanes, first) = (self.result(), self.lanes, self.first);
        let params = self.params.iter().enumerate();
        let mut text = format!(
            "\ndefine internal {result} @{name}({}) {attributes} {{\nentry:\n",
            self.list()
        );
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

/// Whether a type is one whose functions go through a loop.
pub(super) fn is_long(module: &crate::ir::Module, ty: TypeId) -> bool {
    matches!(module.types[ty], Type::Vector(_, n) if n >= MIN_LANES)
}
