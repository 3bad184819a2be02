// SPDX-License-Identifier: MIT OR Apache-2.0
//! Products of matrices that are spread over the items of a sub-group, in code for one item: it finds the
//! elements of both factors in the offers of all items. Elements of items that do not take part are zeros.

use std::fmt::Write;

use super::body::Body;
use super::frame::Slots;
use super::group::{scope_values, type_name};
use super::types::{memory_type, suffix, zero};
use super::unit::LowerError;
use crate::ir::group::{Product, Saturation};
use crate::ir::{Operand, Scope, Type, TypeId};

impl Body<'_, '_> {
    /// Text of the call that computes the item's part of a product and adds its part of another matrix.
    pub(super) fn product(
        &mut self,
        product: Product,
        added: Operand,
        ty: TypeId,
    ) -> Result<String, LowerError> {
        let (stride, exchange) = self.exchange()?;
        let slots = exchange.slots(Scope::Subgroup);
        let [first, count, now] = scope_values(Scope::Subgroup);
        let module = self.unit.module;
        let &Type::Array(element, _) = &module.types[ty] else {
            return Err(LowerError::Unsupported("a product of something else".into()));
        };
        let whole = memory_type(module, ty);
        let name = format!(
            "tally.muladd.{}.{}x{}x{}.{}.{}.{}.{stride}.{}",
            type_name(&memory_type(module, element)),
            product.rows,
            product.columns,
            product.depth,
            product.lanes,
            product.narrow,
            product.saturation as u8,
            slots.offers,
        );
        if !self.unit.helpers.contains_key(&name) {
            let text = self.product_helper(&name, product, element, &whole, (stride, slots));
            self.unit.helpers.insert(name.clone(), text);
        }
        let before = self.def(&format!("xor i64 {now}, 1"));
        let added = self.operand(added);
        let who = format!("ptr %frame, ptr {first}, i64 {count}, i64 {before}, i32 %resume");
        Ok(format!("call {whole} @{name}({who}, {whole} {added})"))
    }

    fn product_helper(
        &mut self,
        name: &str,
        it: Product,
        element: TypeId,
        whole: &str,
        (stride, slots): (u64, Slots),
    ) -> String {
        let module = self.unit.module;
        let number = memory_type(module, element);
        let size = if it.narrow { 2 } else { module.types.size(element) };
        let factors = if it.narrow { "i16".to_owned() } else { number.clone() };
        let floats = matches!(module.types[element], Type::Float(_));
        let nothing = if floats { "zeroinitializer" } else { zero(module, element) };
        let (multiply, add) =
            if floats { ("fmul contract", "fadd contract") } else { ("mul", "add") };
        let saturating = match it.saturation {
            Saturation::None => None,
            Saturation::Signed => Some("sadd"),
            Saturation::Unsigned => Some("uadd"),
        };
        let (start, total) = match saturating {
            None => ("%own.value".to_owned(), format!("freeze {number} %sum")),
            Some(kind) => {
                let symbol = format!("llvm.{kind}.sat.{}", suffix(module, element));
                self.unit.declare(&number, &symbol, &format!("{number}, {number}"));
                let total = format!("call {number} @{symbol}({number} %sum, {number} %own.value)");
                (nothing.to_owned(), total)
            }
        };
        let Product { rows, columns, depth, lanes, .. } = it;
        let Slots { states, offers, offer_size, .. } = slots;
        let mut text = format!(
            "\ndefine internal {whole} @{name}(ptr %frame, ptr %first, i64 %count, i64 %before, i32 %state, {whole} %added) #0 {{
entry:
  %own = alloca {whole}, align 64
  %none = alloca {factors}, align 8
  store {whole} %added, ptr %own, align 8
  store {factors} {nothing}, ptr %none, align 8
  %which.state = mul i64 %before, 4
  %state.off = add i64 %which.state, {states}
  %which.offer = mul i64 %before, {offer_size}
  %offer.off = add i64 %which.offer, {offers}
  %here = ptrtoint ptr %frame to i64
  %begin = ptrtoint ptr %first to i64
  %far = sub i64 %here, %begin
  %lane = udiv i64 %far, {stride}
  br label %component
component:
  %n = phi i64 [ 0, %entry ], [ %n.next, %given ]
  %n.more = icmp ult i64 %n, {}
  br i1 %n.more, label %look, label %done
look:
  %e.first = mul i64 %n, {lanes}
  %e = add i64 %e.first, %lane
  %inside = icmp ult i64 %e, {}
  br i1 %inside, label %begins, label %given
begins:
  %row = udiv i64 %e, {columns}
  %column = urem i64 %e, {columns}
  %row.first = mul i64 %row, {depth}
  %own.place = getelementptr {number}, ptr %own, i64 %n
  %own.value = load {number}, ptr %own.place, align 1
  br label %walk
walk:
  %k = phi i64 [ 0, %begins ], [ %k.next, %step ]
  %sum = phi {number} [ {start}, %begins ], [ %sum.next, %step ]
  %k.more = icmp ult i64 %k, {depth}
  br i1 %k.more, label %step, label %give
step:
  %a.e = add i64 %row.first, %k
  %b.row = mul i64 %k, {columns}
  %b.e = add i64 %b.row, %column
",
            it.result(),
            rows * columns,
        );
        for (name, start) in [("a", 0), ("b", u64::from(it.first()) * size)] {
            let _ = write!(
                text,
                "  %{name}.wanted = urem i64 %{name}.e, {lanes}
  %{name}.part = udiv i64 %{name}.e, {lanes}
  %{name}.there = icmp ult i64 %{name}.wanted, %count
  %{name}.item = select i1 %{name}.there, i64 %{name}.wanted, i64 0
  %{name}.off = mul i64 %{name}.item, {stride}
  %{name}.frame = getelementptr i8, ptr %first, i64 %{name}.off
  %{name}.state.at = getelementptr i8, ptr %{name}.frame, i64 %state.off
  %{name}.state = load i32, ptr %{name}.state.at, align 4
  %{name}.active = icmp eq i32 %{name}.state, %state
  %{name}.takes = and i1 %{name}.there, %{name}.active
  %{name}.offer = getelementptr i8, ptr %{name}.frame, i64 %offer.off
  %{name}.factor = getelementptr i8, ptr %{name}.offer, i64 {start}
  %{name}.element = getelementptr {factors}, ptr %{name}.factor, i64 %{name}.part
  %{name}.at = select i1 %{name}.takes, ptr %{name}.element, ptr %none
  %{name}.loaded = load {factors}, ptr %{name}.at, align 1
"
            );
            let _ = match it.narrow {
                true => writeln!(text, "  %{name}.value = sext i16 %{name}.loaded to {number}"),
                false => writeln!(text, "  %{name}.value = freeze {number} %{name}.loaded"),
            };
        }
        let _ = write!(
            text,
            "  %product = {multiply} {number} %a.value, %b.value
  %sum.next = {add} {number} %sum, %product
  %k.next = add i64 %k, 1
  br label %walk
give:
  %total = {total}
  store {number} %total, ptr %own.place, align 1
  br label %given
given:
  %n.next = add i64 %n, 1
  br label %component
done:
  %result = load {whole}, ptr %own, align 8
  ret {whole} %result
}}
"
        );
        text
    }
}
