// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions of the run-time library on long vectors.
//!
//! The library has scalar functions, written without tables and with few branches. Called once for
//! each component in a loop of known length, with the function inlined, LLVM's loop vectoriser
//! makes vector code of them; where it can't, the loop is still right. One such loop serves all
//! calls of a kernel.

use std::fmt::Write;

use super::LowerError;
use super::function::Body;
use super::types::value_type;
use crate::ir::{MathOp, Operand, SecondResult, Type, TypeId};

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
            let near = matches!(op, MathOp::Sin | MathOp::Cos | MathOp::Tan | MathOp::Sincos)
                .then_some(near.as_str());
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
            let text = Loop { lanes, params, first, second, number }.text(&name, scalar, near);
            self.unit.helpers.insert(name.clone(), text);
        }
        let args: Vec<String> = args.iter().map(|&arg| self.typed(arg)).collect();
        Ok(format!("call {result} @{name}({})", args.join(", ")))
    }
}

/// A function that calls a scalar one for each component.
struct Loop<'a> {
    lanes: u32,
    params: &'a [String],
    first: &'a str,
    second: Option<&'a str>,
    /// The number of its metadata.
    number: usize,
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

    /// The whole function. With `near`, that is called if all components of the first argument are
    /// small; it has no branches, so that its loop becomes vector code.
    fn text(&self, name: &str, scalar: &str, near: Option<&str>) -> String {
        let result = self.result();
        let params = self.params.iter().enumerate();
        let list: Vec<String> =
            params.clone().map(|(i, ty)| format!("{} %a{i}", self.vector(ty))).collect();
        let mut text =
            format!("\ndefine internal {result} @{name}({}) #0 {{\nentry:\n", list.join(", "));
        let mut place = |name: &str, ty: &str| {
            let _ = writeln!(text, "  %{name} = alloca [{} x {ty}], align 64", self.lanes);
        };
        params.clone().for_each(|(i, ty)| place(&format!("p{i}"), ty));
        place("first", self.first);
        if let Some(second) = self.second {
            place("second", second);
        }
        for (i, ty) in params {
            let _ = writeln!(text, "  store {} %a{i}, ptr %p{i}, align 64", self.vector(ty));
        }
        match near {
            None => text += "  br label %all\nall:\n",
            Some(near) => {
                text += &self.choice();
                text += &self.each("near", near, self.number);
            }
        }
        text += &self.each("all", scalar, self.number + 2);
        text += "done:\n";
        let _ =
            writeln!(text, "  %firsts = load {}, ptr %first, align 64", self.vector(self.first));
        if let Some(second) = self.second {
            let _ = write!(
                text,
                "  %seconds = load {1}, ptr %second, align 64
  %one = insertvalue {result} poison, {0} %firsts, 0
  %both = insertvalue {result} %one, {1} %seconds, 1
  ret {result} %both
",
                self.vector(self.first),
                self.vector(second)
            );
        } else {
            let _ = writeln!(text, "  ret {result} %firsts");
        }
        text += "}\n";
        let loops = if near.is_some() { &[0, 2][..] } else { &[2] };
        for id in loops.iter().map(|loop_number| self.number + loop_number) {
            let width = id + 1;
            let _ = writeln!(
                text,
                "!{id} = distinct !{{!{id}, !{width}}}\n!{width} = !{{!\"llvm.loop.vectorize.width\", i32 {}}}",
                self.lanes
            );
        }
        text
    }

    /// Goes to `near` if no component is as large as 2^20 or NaN, else to `all`.
    fn choice(&self) -> String {
        let (vector, lanes) = (self.vector(&self.params[0]), self.lanes);
        let bits = if self.params[0] == "double" { 64 } else { 32 };
        format!(
            "  %size = call {vector} @llvm.fabs.v{lanes}f{bits}({vector} %a0)
  %far = fcmp uge {vector} %size, splat ({} 0x4130000000000000)
  %far.any = call i1 @llvm.vector.reduce.or.v{lanes}i1(<{lanes} x i1> %far)
  br i1 %far.any, label %all, label %near
near:
",
            self.params[0]
        )
    }

    /// The loop in blocks whose names begin with `tag`. Comes from block `tag`, goes to `done`.
    fn each(&self, tag: &str, scalar: &str, loop_id: usize) -> String {
        let mut text = format!(
            "  br label %{tag}.each\n{tag}.each:\n  %{tag}.i = phi i64 [ 0, %{tag} ], [ %{tag}.next, %{tag}.each ]\n"
        );
        let mut values: Vec<String> = Vec::new();
        for (i, ty) in self.params.iter().enumerate() {
            let _ = writeln!(
                text,
                "  %{tag}.at{i} = getelementptr inbounds {ty}, ptr %p{i}, i64 %{tag}.i\n  %{tag}.x{i} = load {ty}, ptr %{tag}.at{i}"
            );
            values.push(format!("{ty} %{tag}.x{i}"));
        }
        if let Some(second) = self.second {
            let _ = writeln!(
                text,
                "  %{tag}.second = getelementptr inbounds {second}, ptr %second, i64 %{tag}.i"
            );
            values.push(format!("ptr %{tag}.second"));
        }
        let (first, lanes) = (self.first, self.lanes);
        let _ = writeln!(
            text,
            "  %{tag}.y = call {first} @{scalar}({}) alwaysinline
  %{tag}.first = getelementptr inbounds {first}, ptr %first, i64 %{tag}.i
  store {first} %{tag}.y, ptr %{tag}.first
  %{tag}.next = add nuw nsw i64 %{tag}.i, 1
  %{tag}.last = icmp eq i64 %{tag}.next, {lanes}
  br i1 %{tag}.last, label %done, label %{tag}.each, !llvm.loop !{loop_id}",
            values.join(", ")
        );
        if tag == "near" { text + "all:\n" } else { text }
    }
}

/// Whether a type is one whose functions go through a loop.
pub(super) fn is_long(module: &crate::ir::Module, ty: TypeId) -> bool {
    matches!(module.types[ty], Type::Vector(_, n) if n >= MIN_LANES)
}
