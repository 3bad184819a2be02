// SPDX-License-Identifier: MIT OR Apache-2.0
//! Long vectors of floats as integers, with numbers out of range as the nearest integer, and NaN as 0. LLVM converts most of
//! them one component at a time.

use super::body::Body;
use crate::ir::TypeId;

impl Body<'_, '_> {
    /// Text of the integers, of type `to`, of a long vector of floats, of type `from`.
    pub(super) fn saturated(
        &mut self,
        value: &str,
        from: TypeId,
        to: TypeId,
        signed: bool,
    ) -> String {
        let types = &self.unit.module.types;
        let (lanes, bits) = (types.lanes(from), types.scalar_bits(to));
        let (mut element, mut value) = (self.value_type(types.element(from)), value.to_owned());
        if element == "half" {
            element = "float".into();
            value = self.def(&format!("fpext <{lanes} x half> {value} to <{lanes} x float>"));
        }
        let digits = if element == "float" { 24 } else { 53 };
        let vector = Floats { value: &value, element: &element, lanes };
        match bits <= digits {
            true => self.clamped(&vector, to, signed),
            false => self.below_limit(&vector, to, signed),
        }
    }

    /// The least and the most of the integers are floats, so that the others are clamped before they are converted.
    fn clamped(&mut self, vector: &Floats<'_>, to: TypeId, signed: bool) -> String {
        let Floats { value, element, lanes } = *vector;
        let bits = self.unit.module.types.scalar_bits(to);
        let (least, most) = match signed {
            true => (-(1i64 << (bits - 1)), (1i64 << (bits - 1)) - 1),
            false => (0, (1i64 << bits) - 1),
        };
        let [least, most] = [least, most].map(|limit| format!("splat ({element} {limit}.0)"));
        let (ty, bools) = (format!("<{lanes} x {element}>"), format!("<{lanes} x i1>"));
        let above = self.def(&format!("fcmp ogt {ty} {value}, {least}"));
        let low = self.def(&format!("select {bools} {above}, {ty} {value}, {ty} {least}"));
        let below = self.def(&format!("fcmp olt {ty} {low}, {most}"));
        let within = self.def(&format!("select {bools} {below}, {ty} {low}, {ty} {most}"));
        let llvm = self.value_type(to);
        let mut whole = format!("<{lanes} x i32>");
        let convert = if signed || bits < 32 { "fptosi" } else { "fptoui" };
        let mut result = self.def(&format!("{convert} {ty} {within} to {whole}"));
        if bits < 32 {
            result = self.def(&format!("trunc {whole} {result} to {llvm}"));
            whole = llvm;
        }
        if !signed {
            return format!("select i1 true, {whole} {result}, {whole} {result}");
        }
        // NaN is not above the least number, which is 0 for unsigned ones.
        let is_number = self.def(&format!("fcmp ord {ty} {value}, zeroinitializer"));
        format!("select {bools} {is_number}, {whole} {result}, {whole} zeroinitializer")
    }

    /// The most of the integers is no float, but one more is: what is not below that is replaced afterwards.
    fn below_limit(&mut self, vector: &Floats<'_>, to: TypeId, signed: bool) -> String {
        let Floats { value, element, lanes } = *vector;
        let bits = self.unit.module.types.scalar_bits(to);
        let half = 2f64.powi(bits as i32 - 1);
        let (convert, least, limit, most) = match signed {
            true => ("fptosi", -half, half, i64::MAX >> (64 - bits)),
            false => ("fptoui", 0.0, 2.0 * half, -1),
        };
        let [least, limit] =
            [least, limit].map(|it| format!("splat ({element} 0x{:016X})", it.to_bits()));
        let most = self.splat(to, most);
        let (ty, bools) = (format!("<{lanes} x {element}>"), format!("<{lanes} x i1>"));
        // NaN becomes 0 here.
        let is_below = self.def(&format!("fcmp olt {ty} {value}, {limit}"));
        let below =
            self.def(&format!("select {bools} {is_below}, {ty} {value}, {ty} zeroinitializer"));
        let above = self.def(&format!("fcmp ogt {ty} {below}, {least}"));
        let within = self.def(&format!("select {bools} {above}, {ty} {below}, {ty} {least}"));
        let llvm = self.value_type(to);
        let whole = self.def(&format!("{convert} {ty} {within} to {llvm}"));
        let is_more = self.def(&format!("fcmp oge {ty} {value}, {limit}"));
        format!("select {bools} {is_more}, {llvm} {most}, {llvm} {whole}")
    }
}

/// A vector of floats or doubles.
struct Floats<'v> {
    value: &'v str,
    element: &'v str,
    lanes: u32,
}
