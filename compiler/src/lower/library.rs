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
            let number = self.unit.helpers.len();
            let text = loop_text(&name, scalar, lanes, &params, &first, second.as_deref(), number);
            self.unit.helpers.insert(name.clone(), text);
        }
        let args: Vec<String> = args.iter().map(|&arg| self.typed(arg)).collect();
        Ok(format!("call {result} @{name}({})", args.join(", ")))
    }
}

/// The function that calls `scalar` for each component.
fn loop_text(
    name: &str,
    scalar: &str,
    lanes: u32,
    params: &[String],
    first: &str,
    second: Option<&str>,
    number: usize,
) -> String {
    let vector = |ty: &str| format!("<{lanes} x {ty}>");
    let list: Vec<String> =
        params.iter().enumerate().map(|(i, ty)| format!("{} %a{i}", vector(ty))).collect();
    let result = match second {
        None => vector(first),
        Some(second) => format!("{{ {}, {} }}", vector(first), vector(second)),
    };
    let mut text =
        format!("\ndefine internal {result} @{name}({}) #0 {{\nentry:\n", list.join(", "));
    let mut place = |name: &str, ty: &str| {
        let _ = writeln!(text, "  %{name} = alloca [{lanes} x {ty}], align 64");
    };
    params.iter().enumerate().for_each(|(i, ty)| place(&format!("p{i}"), ty));
    place("first", first);
    if let Some(second) = second {
        place("second", second);
    }
    for (i, ty) in params.iter().enumerate() {
        let _ = writeln!(text, "  store {} %a{i}, ptr %p{i}, align 64", vector(ty));
    }
    text += "  br label %each\neach:\n  %i = phi i64 [ 0, %entry ], [ %next, %each ]\n";
    let mut values: Vec<String> = Vec::new();
    for (i, ty) in params.iter().enumerate() {
        let _ = writeln!(
            text,
            "  %at{i} = getelementptr inbounds {ty}, ptr %p{i}, i64 %i\n  %x{i} = load {ty}, ptr %at{i}"
        );
        values.push(format!("{ty} %x{i}"));
    }
    if let Some(second) = second {
        let _ =
            writeln!(text, "  %second.at = getelementptr inbounds {second}, ptr %second, i64 %i");
        values.push("ptr %second.at".into());
    }
    let loop_id = 2 * number + 2;
    let _ = write!(
        text,
        "  %y = call {first} @{scalar}({}) alwaysinline
  %first.at = getelementptr inbounds {first}, ptr %first, i64 %i
  store {first} %y, ptr %first.at
  %next = add nuw nsw i64 %i, 1
  %last = icmp eq i64 %next, {lanes}
  br i1 %last, label %done, label %each, !llvm.loop !{loop_id}
done:
  %firsts = load {}, ptr %first, align 64
",
        values.join(", "),
        vector(first)
    );
    match second {
        None => {
            let _ = writeln!(text, "  ret {result} %firsts");
        }
        Some(second) => {
            let _ = write!(
                text,
                "  %seconds = load {1}, ptr %second, align 64
  %one = insertvalue {result} poison, {0} %firsts, 0
  %both = insertvalue {result} %one, {1} %seconds, 1
  ret {result} %both
",
                vector(first),
                vector(second)
            );
        }
    }
    let width = loop_id + 1;
    let _ = write!(
        text,
        "}}
!{loop_id} = distinct !{{!{loop_id}, !{width}}}
!{width} = !{{!\"llvm.loop.vectorize.width\", i32 {lanes}}}
"
    );
    text
}

/// Whether a type is one whose functions go through a loop.
pub(super) fn is_long(module: &crate::ir::Module, ty: TypeId) -> bool {
    matches!(module.types[ty], Type::Vector(_, n) if n >= MIN_LANES)
}
