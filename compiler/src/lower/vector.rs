// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations of widened code only: masks, masked accesses, vectors of addresses.

use super::body::{Body, modifiers};
use super::context::SUMS;
use super::types::{is_bool, memory_type, suffix, value_type, zero};
use super::unit::{LowerError, MAX_ALIGN};
use crate::ir::{Access, Op, Operand, Type, TypeId, WorkItemQuery};

/// LLVM moves no access to memory past this, and takes none behind it for one in front of it. The processor does nothing.
const ORDER: &str = "fence syncscope(\"singlethread\") seq_cst";
/// The parameters that are a vector of addresses.
const PLACES: &str = "<8 x i64>, <8 x i64>";

impl Body<'_, '_> {
    /// Text of the instruction for an operation of widened code; `None` if it has no result. `ty` is
    /// the result's type.
    pub(super) fn vector_op(
        &mut self,
        op: &Op,
        ty: Option<TypeId>,
    ) -> Result<Option<String>, LowerError> {
        let result = || ty.ok_or(LowerError::Unsupported("a value without a name".into()));
        Ok(Some(match *op {
            Op::Present => self.present(self.unit.module.types.lanes(result()?))?,
            Op::Splat(scalar) => {
                let ty = self.value_type(result()?);
                let n = self.unit.module.types.lanes(result()?);
                let scalar = self.typed(scalar);
                let first = self.def(&format!("insertelement {ty} poison, {scalar}, i32 0"));
                format!("shufflevector {ty} {first}, {ty} poison, <{n} x i32> zeroinitializer")
            }
            Op::Any(mask) => {
                let n = self.unit.module.types.lanes(self.type_of(mask));
                let name = format!("llvm.vector.reduce.or.v{n}i1");
                self.unit.declare("i1", &name, &format!("<{n} x i1>"));
                format!("call i1 @{name}({})", self.typed(mask))
            }
            Op::Bits(mask) => {
                let bits = self.bits(mask);
                format!("select i1 true, i32 {bits}, i32 {bits}")
            }
            Op::LastTrue(mask) => {
                let bits = self.bits(mask);
                // Without an item it is the first one. Otherwise LLVM moves this in front of the test of whether there
                // are any, with a number that may be anything then; its code reads a vector on the stack there.
                let bits = self.def(&format!("or i32 {bits}, 1"));
                self.unit.declare("i32", "llvm.ctlz.i32", "i32, i1");
                let zeros = self.def(&format!("call i32 @llvm.ctlz.i32(i32 {bits}, i1 true)"));
                format!("sub i32 31, {zeros}")
            }
            Op::Prefetch(at) => {
                self.unit.declare("void", "llvm.prefetch.p0", "ptr, i32, i32, i32");
                // A prefetch of data for reading, into all caches.
                let at = self.operand(at);
                self.line(&format!("call void @llvm.prefetch.p0(ptr {at}, i32 0, i32 3, i32 1)"));
                return Ok(None);
            }
            Op::Freeze(vector) => format!("freeze {}", self.typed(vector)),
            Op::InLine(at, mask, by, part) => self.in_line(at, mask, by, part),
            Op::MaskedLoad(at, mask, access) => {
                self.masked_read("load", "ptr", "p0", at, mask, access, result()?)
            }
            Op::Gather(at, mask, access) => {
                let n = self.unit.module.types.lanes(result()?);
                let pointer = format!("<{n} x ptr>");
                self.masked_read(
                    "gather",
                    &pointer,
                    &format!("v{n}p0"),
                    at,
                    mask,
                    access,
                    result()?,
                )
            }
            Op::MaskedStore(at, value, mask, access) => {
                self.masked_write("store", "ptr", "p0", [at, value, mask], access);
                return Ok(None);
            }
            Op::Scatter(at, value, mask, access) => {
                let n = self.unit.module.types.lanes(self.type_of(value));
                let pointer = format!("<{n} x ptr>");
                self.masked_write(
                    "scatter",
                    &pointer,
                    &format!("v{n}p0"),
                    [at, value, mask],
                    access,
                );
                return Ok(None);
            }
            Op::AddLater(at, value, mask) => self.add_later(at, value, mask),
            Op::Close(at, mask, block) => {
                let (places, items) = (self.places(at), self.items(mask));
                self.unit.declare("i1", "__tally_close", &format!("{PLACES}, i32, i64"));
                format!("call i1 @__tally_close({places}, {items}, i64 {block})")
            }
            Op::GatherClose(at, block, offset) => {
                let (places, words) = (self.places(at), "<16 x i32>");
                self.unit.declare(words, "__tally_gather_close", &format!("{PLACES}, i64, i64"));
                format!("call {words} @__tally_gather_close({places}, i64 {block}, i64 {offset})")
            }
            Op::Table(at, bytes) => {
                self.unit.declare("i1", "__tally_table", "ptr, i64");
                format!("call i1 @__tally_table({}, i64 {bytes})", self.typed(at))
            }
            Op::LookUp(at, place, bytes) => {
                let words = "<16 x i32>";
                let (at, place) = (self.typed(at), self.typed(place));
                // The places of items that do not run may be any.
                let place = self.def(&format!("freeze {place}"));
                self.unit.declare(words, "__tally_look_up", &format!("ptr, {words}, i64"));
                format!("call {words} @__tally_look_up({at}, {words} {place}, i64 {bytes})")
            }
            Op::ScatterClose(at, value, mask) => {
                let (places, items) = (self.places(at), self.items(mask));
                // What items write that do not run may be any.
                let value = self.typed(value);
                let value = self.def(&format!("freeze {value}"));
                let params = format!("{PLACES}, <16 x i32>, i32");
                self.unit.declare("i1", "__tally_scatter_close", &params);
                format!("call i1 @__tally_scatter_close({places}, <16 x i32> {value}, {items})")
            }
            _ => return Err(LowerError::Unsupported("an operation of widened code".into())),
        }))
    }

    /// Additions to the sums that the group keeps (`rt/sums.c`). LLVM inlines the call, and keeps the parts of what is
    /// written here for it in registers as far as it can.
    fn add_later(&mut self, at: Operand, value: Operand, mask: Operand) -> String {
        let types = &self.unit.module.types;
        let (bits, n) = (types.scalar_bits(types.element(self.type_of(value))), {
            types.lanes(self.type_of(value))
        });
        let sums = self.base(SUMS);
        let function = format!("__tally_add_later_i{bits}");
        self.unit.declare("i1", &function, "ptr, ptr, ptr, i32, i32");
        let (at, value) = (self.operand(at), self.operand(value));
        let places = self.spilled(&at, "ptr", n, 8);
        let values = self.spilled(&value, &format!("i{bits}"), n, bits / 8);
        let items = self.bits(mask);
        format!("call i1 @{function}(ptr {sums}, ptr {places}, ptr {values}, i32 {items}, i32 {n})")
    }

    /// A vector of addresses as arguments for `rt/maths/close.c`.
    fn places(&mut self, at: Operand) -> String {
        let at = self.operand(at);
        let numbers = self.def(&format!("ptrtoint <16 x ptr> {at} to <16 x i64>"));
        let halves = [0, 8].map(|first| self.part(&numbers, "<16 x i64>", first, 8));
        halves.map(|half| format!("<8 x i64> {half}")).join(", ")
    }

    /// A mask of at most 32 items as bits of an `i32`.
    fn bits(&mut self, mask: Operand) -> String {
        let n = self.unit.module.types.lanes(self.type_of(mask));
        let mask = self.typed(mask);
        let bits = self.def(&format!("bitcast {mask} to i{n}"));
        match n {
            32 => bits,
            _ => self.def(&format!("zext i{n} {bits} to i32")),
        }
    }

    /// A mask as an argument.
    fn items(&mut self, mask: Operand) -> String {
        let mask = self.typed(mask);
        let bits = self.def(&format!("bitcast {mask} to i16"));
        let bits = self.def(&format!("zext i16 {bits} to i32"));
        format!("i32 {bits}")
    }

    /// The mask of the `n` items that exist: those in front of the end of their row. Sizes of groups
    /// fit 32 bits.
    fn present(&mut self, n: u32) -> Result<String, LowerError> {
        let first = self.work_item(WorkItemQuery::LocalId, self.unit.axis)?;
        let size = self.work_item(WorkItemQuery::LocalSize, self.unit.axis)?;
        let left = self.def(&format!("sub i64 {size}, {first}"));
        let left = self.def(&format!("trunc i64 {left} to i32"));
        let one = self.def(&format!("insertelement <{n} x i32> poison, i32 {left}, i32 0"));
        let all = self.def(&format!(
            "shufflevector <{n} x i32> {one}, <{n} x i32> poison, <{n} x i32> zeroinitializer"
        ));
        let items: Vec<String> = (0..n).map(|item| format!("i32 {item}")).collect();
        Ok(format!("icmp ugt <{n} x i32> {all}, <{}>", items.join(", ")))
    }

    /// Whether addresses are contiguous in parts.
    fn in_line(&mut self, at: Operand, mask: Operand, by: u64, part: u32) -> String {
        let n = self.unit.module.types.lanes(self.type_of(mask));
        let (at, mask) = (self.operand(at), self.typed(mask));
        let numbers = self.def(&format!("ptrtoint <{n} x ptr> {at} to <{n} x i64>"));
        let from: Vec<String> = (0..n).map(|i| format!("i32 {}", i / part * part)).collect();
        let all = self.def(&format!(
            "shufflevector <{n} x i64> {numbers}, <{n} x i64> poison, <{n} x i32> <{}>",
            from.join(", ")
        ));
        let steps: Vec<String> =
            (0..n).map(|i| format!("i64 {}", u64::from(i % part).wrapping_mul(by))).collect();
        let line = self.def(&format!("add <{n} x i64> {all}, <{}>", steps.join(", ")));
        let off = self.def(&format!("icmp ne <{n} x i64> {numbers}, {line}"));
        let off = self.def(&format!("select {mask}, <{n} x i1> {off}, <{n} x i1> zeroinitializer"));
        let name = format!("llvm.vector.reduce.or.v{n}i1");
        self.unit.declare("i1", &name, &format!("<{n} x i1>"));
        let any = self.def(&format!("call i1 @{name}(<{n} x i1> {off})"));
        format!("xor i1 {any}, true")
    }

    /// Text of a masked load or gather. LLVM has no volatile ones.
    #[allow(clippy::too_many_arguments, reason = "the parts of one instruction")]
    fn masked_read(
        &mut self,
        what: &str,
        pointer: &str,
        pointer_suffix: &str,
        at: Operand,
        mask: Operand,
        access: Access,
        ty: TypeId,
    ) -> String {
        let module = self.unit.module;
        let memory = memory_type(module, ty);
        let truth = value_type(module, self.type_of(mask));
        let name = format!("llvm.masked.{what}.{}.{pointer_suffix}", memory_suffix(self, ty));
        self.unit.declare(&memory, &name, &format!("{pointer}, {truth}, {memory}"));
        let (at, mask) = (self.operand(at), self.operand(mask));
        let align = u64::from(access.align).clamp(1, MAX_ALIGN);
        let (_, rest) = modifiers(access);
        let metadata = rest.split_once(", ").map_or(String::new(), |(_, m)| format!(", {m}"));
        let mut call = format!(
            "call {memory} @{name}({pointer} align {align} {at}, {truth} {mask}, {memory} poison){metadata}"
        );
        if access.volatile {
            self.line(ORDER);
            let read = self.def(&call);
            self.line(ORDER);
            call = format!("bitcast {memory} {read} to {memory}");
        }
        if !is_bool(module, ty) {
            return call;
        }
        let bytes = self.def(&call);
        format!("icmp ne {memory} {bytes}, {}", zero(module, ty))
    }

    fn masked_write(
        &mut self,
        what: &str,
        pointer: &str,
        pointer_suffix: &str,
        [at, value, mask]: [Operand; 3],
        access: Access,
    ) {
        let module = self.unit.module;
        let ty = self.type_of(value);
        let memory = memory_type(module, ty);
        let truth = value_type(module, self.type_of(mask));
        let name = format!("llvm.masked.{what}.{}.{pointer_suffix}", memory_suffix(self, ty));
        self.unit.declare("void", &name, &format!("{memory}, {pointer}, {truth}"));
        let (at, mask, value) = (self.operand(at), self.operand(mask), self.operand(value));
        let value = self.in_memory_form(ty, &value);
        let align = u64::from(access.align).clamp(1, MAX_ALIGN);
        let (_, rest) = modifiers(access);
        let metadata = rest.split_once(", ").map_or(String::new(), |(_, m)| format!(", {m}"));
        let write = format!(
            "call void @{name}({memory} {value}, {pointer} align {align} {at}, {truth} {mask}){metadata}"
        );
        let order = access.volatile.then_some(ORDER);
        for line in order.into_iter().chain([&*write]).chain(order) {
            self.line(line);
        }
    }

    /// Text of an address, or of a vector of them if the base or an index is one.
    pub(super) fn address_of(
        &mut self,
        base: Operand,
        offset: i64,
        terms: &[(Operand, i64)],
        inbounds: bool,
    ) -> String {
        let inbounds = if inbounds { "inbounds " } else { "" };
        let pointer = |lanes: u32| match lanes {
            1 => "ptr".to_owned(),
            n => format!("<{n} x ptr>"),
        };
        let mut lanes = self.unit.module.types.lanes(self.type_of(base));
        let mut at = self.operand(base);
        // The type that is indexed, the index with its type, and the number of resulting addresses.
        let mut steps: Vec<(String, String, u32)> = Vec::new();
        for &(index, stride) in terms {
            let (index, ty, n) = self.index(index);
            steps.push(match u32::try_from(stride) {
                // The form of a stride that LLVM's loop passes handle best.
                Ok(stride) => (format!("[{stride} x i8]"), format!("{ty} {index}"), n),
                Err(_) => {
                    let stride =
                        if n == 1 { stride.to_string() } else { format!("splat (i64 {stride})") };
                    let product = self.def(&format!("mul {ty} {index}, {stride}"));
                    ("i8".into(), format!("{ty} {product}"), n)
                }
            });
        }
        if offset != 0 || steps.is_empty() {
            steps.push(("i8".into(), format!("i64 {offset}"), 1));
        }
        let mut text = String::new();
        for (unit, count, n) in steps {
            if !text.is_empty() {
                at = self.def(&text);
            }
            text = format!("getelementptr {inbounds}{unit}, {} {at}, {count}", pointer(lanes));
            lanes = lanes.max(n);
        }
        text
    }

    /// A signed index of any width as 64 bits: with its type, and the number of its components.
    fn index(&mut self, index: Operand) -> (String, String, u32) {
        let ty = self.type_of(index);
        let lanes = self.unit.module.types.lanes(ty);
        let wide = match lanes {
            1 => "i64".to_owned(),
            n => format!("<{n} x i64>"),
        };
        let text = self.operand(index);
        if self.unit.module.types[self.unit.module.types.element(ty)] == Type::Int(64) {
            return (text, wide, lanes);
        }
        let ty = self.value_type(ty);
        let text = self.def(&format!("sext {ty} {text} to {wide}"));
        (text, wide, lanes)
    }
}

/// The suffix of an intrinsic's name for a type in memory.
fn memory_suffix(body: &Body<'_, '_>, ty: TypeId) -> String {
    let module = body.unit.module;
    match module.types[ty] {
        Type::Vector(element, n) if module.types[element] == Type::Bool => format!("v{n}i8"),
        _ => suffix(module, ty),
    }
}
