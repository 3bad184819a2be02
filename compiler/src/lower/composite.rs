// SPDX-License-Identifier: MIT OR Apache-2.0
//! Vectors, arrays and structures: construction, extraction, shuffles.

use super::body::Body;
use super::types::{component, is_bool, memory_type, value_type, zero};
use super::unit::LowerError;
use crate::ir::{Op, Operand, Type, TypeId};
use crate::widen::FORWARDED;

impl Body<'_, '_> {
    /// Text of the instruction that computes a composite operation of type `ty`.
    pub(super) fn composite(&mut self, op: &Op, ty: TypeId) -> Result<String, LowerError> {
        Ok(match op {
            Op::Construct(parts) => self.construct(ty, parts),
            Op::Extract(from, path) => self.extract(*from, path),
            Op::Insert(into, value, path) => self.insert(*into, *value, path),
            &Op::ExtractDynamic(vector, index) => self.extract_dynamic(vector, index),
            &Op::InsertDynamic(vector, value, index) => {
                let index = self.index_within(vector, index);
                let (vector, value) = (self.typed(vector), self.typed(value));
                format!("insertelement {vector}, {value}, {index}")
            }
            Op::Shuffle(a, b, lanes) => self.shuffle(*a, *b, lanes),
            _ => return Err(LowerError::Unsupported("a composite operation".into())),
        })
    }

    /// Text of a composite from all its components' texts, in value form.
    pub(super) fn assemble(&mut self, ty: TypeId, parts: &[String]) -> String {
        let module = self.unit.module;
        let vector = matches!(module.types[ty], Type::Vector(..));
        let whole = self.value_type(ty);
        let mut value = String::from("poison");
        let mut text = format!("freeze {whole} poison");
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                value = self.def(&text);
            }
            let Some(part_ty) = component(module, ty, index as u32) else { continue };
            text = if vector {
                let part_ty = value_type(module, part_ty);
                format!("insertelement {whole} {value}, {part_ty} {part}, i32 {index}")
            } else {
                let part = self.in_memory_form(part_ty, part);
                let part_ty = memory_type(module, part_ty);
                format!("insertvalue {whole} {value}, {part_ty} {part}, {index}")
            };
        }
        text
    }

    fn construct(&mut self, ty: TypeId, parts: &[Operand]) -> String {
        let parts: Vec<String> = parts.iter().map(|&part| self.operand(part)).collect();
        self.assemble(ty, &parts)
    }

    /// The component types along a path, and the length of its part through structures and arrays; at
    /// most one step, the last, is into a vector.
    fn follow(&self, ty: TypeId, path: &[u32]) -> (TypeId, usize, TypeId) {
        let module = self.unit.module;
        let (mut outer, mut steps, mut inner) = (ty, 0, ty);
        for &index in path {
            let Some(next) = component(module, inner, index) else { break };
            if !matches!(module.types[inner], Type::Vector(..)) {
                (outer, steps) = (next, steps + 1);
            }
            inner = next;
        }
        (outer, steps, inner)
    }

    fn extract(&mut self, from: Operand, path: &[u32]) -> String {
        let module = self.unit.module;
        let ty = self.type_of(from);
        let (outer, steps, inner) = self.follow(ty, path);
        let whole = self.typed(from);
        if steps == 0 {
            return format!("extractelement {whole}, i32 {}", path[0]);
        }
        let part = format!("extractvalue {whole}, {}", indices(&path[..steps]));
        let (outer_ty, inner_ty) = (memory_type(module, outer), memory_type(module, inner));
        let part = match path.get(steps) {
            None => part,
            Some(index) => {
                let part = self.def(&part);
                format!("extractelement {outer_ty} {part}, i32 {index}")
            }
        };
        if !is_bool(module, inner) {
            return part;
        }
        let byte = self.def(&part);
        format!("icmp ne {inner_ty} {byte}, {}", zero(module, inner))
    }

    fn insert(&mut self, into: Operand, value: Operand, path: &[u32]) -> String {
        let module = self.unit.module;
        let (ty, value_ty) = (self.type_of(into), self.type_of(value));
        let (outer, steps, _) = self.follow(ty, path);
        let whole = self.typed(into);
        if steps == 0 {
            let value = self.typed(value);
            return format!("insertelement {whole}, {value}, i32 {}", path[0]);
        }
        let value = self.operand(value);
        let value = self.in_memory_form(value_ty, &value);
        let mut part = format!("{} {value}", memory_type(module, value_ty));
        let way = indices(&path[..steps]);
        if let Some(index) = path.get(steps) {
            let vector_ty = memory_type(module, outer);
            let vector = self.def(&format!("extractvalue {whole}, {way}"));
            let vector =
                self.def(&format!("insertelement {vector_ty} {vector}, {part}, i32 {index}"));
            part = format!("{vector_ty} {vector}");
        }
        format!("insertvalue {whole}, {part}, {way}")
    }

    /// The component of a vector at an index. LLVM would load it from a store of the whole vector.
    fn extract_dynamic(&mut self, vector: Operand, index: Operand) -> String {
        let types = &self.unit.module.types;
        let ty = self.type_of(vector);
        let (lanes, element) = (types.lanes(ty), types.element(ty));
        let (size, is_bool) = (types.size(element) as u32, matches!(types[element], Type::Bool));
        let is_constant = matches!(index, Operand::Const(_));
        let index = self.index_within(vector, index);
        if is_constant || is_bool || u64::from(size * lanes) <= FORWARDED {
            return format!("extractelement {}, {index}", self.typed(vector));
        }
        let (vector, element) = (self.operand(vector), self.value_type(element));
        let table = self.spilled(&vector, &element, lanes, size);
        let at = self.def(&format!("getelementptr inbounds {element}, ptr {table}, {index}"));
        format!("load {element}, ptr {at}, align {size}")
    }

    /// A table with the components of a vector, each of `size` bytes, which are loaded one by one.
    pub(super) fn spilled(&mut self, vector: &str, element: &str, lanes: u32, size: u32) -> String {
        let table = self.prelude_def(&format!("alloca [{lanes} x {element}], align 64"));
        let part = lanes.min(FORWARDED as u32 / size);
        let whole = format!("<{lanes} x {element}>");
        for first in (0..lanes).step_by(part as usize) {
            let value = self.part(vector, &whole, first, part);
            let at =
                self.def(&format!("getelementptr inbounds {element}, ptr {table}, i32 {first}"));
            // LLVM would join the parts.
            let align = (part * size).next_power_of_two();
            self.line(&format!(
                "store volatile <{part} x {element}> {value}, ptr {at}, align {align}"
            ));
        }
        table
    }

    /// An index into a vector with its type; 0 if it is out of range, which LLVM does not allow.
    fn index_within(&mut self, vector: Operand, index: Operand) -> String {
        let lanes = self.unit.module.types.lanes(self.type_of(vector));
        let ty = self.value_type(self.type_of(index));
        let index = self.operand(index);
        let inside = self.def(&format!("icmp ult {ty} {index}, {lanes}"));
        let index = self.def(&format!("select i1 {inside}, {ty} {index}, {ty} 0"));
        format!("{ty} {index}")
    }

    fn shuffle(&mut self, a: Operand, b: Operand, lanes: &[Option<u32>]) -> String {
        let types = &self.unit.module.types;
        let element = self.value_type(types.element(self.type_of(a)));
        let (len_a, len_b) = (types.lanes(self.type_of(a)), types.lanes(self.type_of(b)));
        let len = len_a.max(len_b);
        let (a, b) = (self.widened(a, len_a, len, &element), self.widened(b, len_b, len, &element));
        let lane = |lane: &Option<u32>| match *lane {
            None => "i32 poison".into(),
            // The second vector's components come behind those of the widened first.
            Some(lane) if lane >= len_a => format!("i32 {}", lane - len_a + len),
            Some(lane) => format!("i32 {lane}"),
        };
        let mask: Vec<String> = lanes.iter().map(lane).collect();
        format!("shufflevector {a}, {b}, <{} x i32> <{}>", lanes.len(), mask.join(", "))
    }

    /// A vector with its type, lengthened: LLVM shuffles vectors of one length.
    fn widened(&mut self, vector: Operand, from: u32, to: u32, element: &str) -> String {
        let typed = self.typed(vector);
        if from == to {
            return typed;
        }
        let lane = |i| if i < from { format!("i32 {i}") } else { "i32 poison".into() };
        let mask: Vec<String> = (0..to).map(lane).collect();
        let mask = mask.join(", ");
        let wide = self.def(&format!(
            "shufflevector {typed}, <{from} x {element}> poison, <{to} x i32> <{mask}>"
        ));
        format!("<{to} x {element}> {wide}")
    }
}

fn indices(path: &[u32]) -> String {
    let path: Vec<String> = path.iter().map(u32::to_string).collect();
    path.join(", ")
}
