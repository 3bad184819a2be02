// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a debugger shows of a work-item: which one it is, the parameters of its functions and their
//! variables, as far as the SPIR-V module has names for them.
//!
//! Each is in memory of the function's own frame, or behind a pointer that is, since registers are used
//! for something else a moment later. The code is not optimised ([`crate::llvm::Level::None`]), so what is
//! there is what the program has at a line.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use super::body::{Body, name};
use super::places::{Scope, Shown, Told};
use super::types::{is_bool, value_type};
use super::unit::LowerError;
use crate::ir::{
    Definition, Function, Id, Module, Op, Operand, SourcePlace, SourceVariable, Type, TypeId,
    ValueId, WorkItemQuery, definitions,
};

/// The ids by which a debugger tells work-items apart.
const IDS: [(&str, WorkItemQuery); 3] = [
    ("global_id", WorkItemQuery::GlobalId),
    ("local_id", WorkItemQuery::LocalId),
    ("group_id", WorkItemQuery::GroupId),
];

/// The suffix that clang appends to a parameter's name where it is kept as a variable.
const KEPT: &str = ".addr";

impl Body<'_, '_> {
    /// Adds to the prelude what a debugger shows, if it is asked for.
    pub(super) fn show_variables(&mut self) -> Result<(), LowerError> {
        let Some(scope) = self.scope.filter(|_| self.unit.shows_variables) else { return Ok(()) };
        for (title, query) in IDS {
            let mut values = Vec::with_capacity(3);
            for dimension in 0..3 {
                values.push(self.work_item(query, dimension)?);
            }
            let place = format!("%{title}.shown");
            let _ = writeln!(self.prelude, "  {place} = alloca [3 x i64]");
            for (dimension, value) in values.into_iter().enumerate() {
                let at =
                    self.prelude_def(&format!("getelementptr i64, ptr {place}, i64 {dimension}"));
                let _ = writeln!(self.prelude, "  store volatile i64 {value}, ptr {at}");
            }
            let ty = self.unit.places.as_mut().map(|places| places.three_longs());
            let shown = Shown { name: title, ..Shown::default() };
            self.declare(scope, shown, ty, &place, false);
        }
        let function = self.function;
        let nowhere = |it: &SourceVariable| matches!(&it.place, SourcePlace::Kept(places) if places.is_empty());
        if !function.shown.iter().all(nowhere) {
            self.show_source(scope);
            return Ok(());
        }
        let pointees = Pointees::of(self.unit.module, self.function);
        for (number, &param) in (1..).zip(&function.params) {
            let value = &function.values[param];
            let Some(title) = value.name.clone() else { continue };
            let ty = self.shown_type(value.ty, pointees.of.get(&param).copied());
            let stored = value_type(self.unit.module, value.ty);
            if ty.is_none() || is_bool(self.unit.module, value.ty) {
                continue;
            }
            let (value, place) = (name(param), format!("{}.shown", name(param)));
            let _ = writeln!(self.prelude, "  {place} = alloca {stored}");
            let _ = writeln!(self.prelude, "  store volatile {stored} {value}, ptr {place}");
            let shown = Shown { name: &title, parameter: Some(number), ..Shown::default() };
            self.declare(scope, shown, ty, &place, false);
        }
        for variable in &function.variables {
            let Some(title) = function.values[variable.address].name.clone() else { continue };
            if title.ends_with(KEPT) {
                continue;
            }
            let ty =
                self.shown_type(variable.ty, pointees.in_variable.get(&variable.address).copied());
            let shown = Shown { name: &title, ..Shown::default() };
            self.declare_behind(scope, shown, ty, variable.address);
        }
        Ok(())
    }

    /// The variables of the source that the module's debug information names, with their types.
    fn show_source(&mut self, scope: Scope) {
        let function = self.function;
        let mut left: HashSet<ValueId> = function.variables.iter().map(|it| it.address).collect();
        for (number, variable) in function.shown.iter().enumerate() {
            let ty = self.unit.places.as_mut().and_then(|places| places.source_type(variable.ty));
            let &SourceVariable { line, inlined, .. } = variable;
            let parameter = variable.parameter.map(|number| number as usize);
            let shown = Shown { name: &variable.name, parameter, line, inlined };
            match &variable.place {
                &SourcePlace::Variable(address) => {
                    if left.remove(&address) {
                        self.declare_behind(scope, shown, ty, address);
                    }
                }
                SourcePlace::Kept(places) => {
                    let (Some(ty), Some(text)) = (ty, self.unit.places.as_mut()) else { continue };
                    let (variable, at) = text.variable(scope, &shown, ty);
                    // Until something is stored.
                    self.prelude += &Told::nowhere(variable, at, None);
                    for place in places.iter().filter(|place| left.remove(&place.address)) {
                        let pointer = self.pointer_to(place.address);
                        let told = Told::new(number, place, &pointer, variable, at);
                        self.kept.insert(place.address, told);
                    }
                }
            }
        }
    }

    /// Keeps the address of a private variable in the frame; the place.
    fn pointer_to(&mut self, address: ValueId) -> String {
        let (address, place) = (name(address), format!("{}.shown", name(address)));
        let _ = writeln!(self.prelude, "  {place} = alloca ptr");
        let _ = writeln!(self.prelude, "  store volatile ptr {address}, ptr {place}");
        place
    }

    /// Tells a debugger of a private variable.
    fn declare_behind(
        &mut self,
        scope: Scope,
        shown: Shown<'_>,
        ty: Option<u32>,
        address: ValueId,
    ) {
        let place = self.pointer_to(address);
        self.declare(scope, shown, ty, &place, true);
    }

    /// The debugger's type of values of a type; pointers point to values of `pointee`.
    fn shown_type(&mut self, ty: TypeId, pointee: Option<TypeId>) -> Option<u32> {
        let module = self.unit.module;
        self.unit.places.as_mut()?.type_of(module, ty, pointee)
    }

    /// Tells a debugger of something at a place, or at the pointer there.
    fn declare(
        &mut self,
        scope: Scope,
        shown: Shown<'_>,
        ty: Option<u32>,
        place: &str,
        behind: bool,
    ) {
        let (Some(ty), Some(places)) = (ty, self.unit.places.as_mut()) else { return };
        let (variable, at) = places.variable(scope, &shown, ty);
        let steps = if behind { "DW_OP_deref" } else { "" };
        let _ = writeln!(
            self.prelude,
            "    #dbg_declare(ptr {place}, !{variable}, !DIExpression({steps}), !{at})"
        );
    }
}

/// The types that pointers point to, by the accesses through them: the IR's own have no such type.
struct Pointees {
    of: HashMap<ValueId, TypeId>,
    /// The same of the pointers that private variables hold, by the variables' addresses.
    in_variable: HashMap<ValueId, TypeId>,
}

impl Pointees {
    fn of(module: &Module, function: &Function) -> Self {
        let definitions = definitions(function);
        let inst_of = |value: ValueId| match definitions.get(value.index()).copied().flatten() {
            Some(Definition::Inst(block, index)) => function.blocks[block].insts.get(index),
            _ => None,
        };
        let root = |mut at: Operand| loop {
            let Operand::Value(value) = at else { return None };
            match inst_of(value).map(|inst| &inst.op) {
                Some(Op::Address { base, .. }) => at = *base,
                Some(Op::Convert(_, from)) => at = *from,
                _ => return Some(value),
            }
        };
        let insts = || function.blocks.iter().flat_map(|(_, block)| &block.insts);
        let mut found = Self { of: HashMap::new(), in_variable: HashMap::new() };
        for inst in insts() {
            let (at, ty) = match &inst.op {
                Op::Load(at, _) | Op::AtomicLoad(at, ..) => {
                    (at, inst.result.map(|result| function.values[result].ty))
                }
                Op::Store(at, value, _)
                | Op::AtomicStore(at, value, ..)
                | Op::AtomicRmw(_, at, value, ..) => {
                    (at, Some(module.operand_type(function, *value)))
                }
                _ => continue,
            };
            if let (Some(root), Some(ty)) = (root(*at), ty) {
                found.of.entry(root).or_insert(ty);
            }
        }
        for inst in insts() {
            if let (Op::Load(Operand::Value(variable), _), Some(result)) = (&inst.op, inst.result)
                && let Some(&ty) = found.of.get(&result)
            {
                found.in_variable.entry(*variable).or_insert(ty);
            }
        }
        for inst in insts() {
            if let Op::Store(Operand::Value(variable), Operand::Value(stored), _) = &inst.op
                && let Some(&ty) = found.in_variable.get(variable)
            {
                found.of.entry(*stored).or_insert(ty);
            }
        }
        let is_pointer =
            |value: &ValueId| matches!(module.types[function.values[*value].ty], Type::Pointer(_));
        found.of.retain(|value, _| is_pointer(value));
        found
    }
}
