// SPDX-License-Identifier: MIT OR Apache-2.0
//! The function that is being lowered: its names for values, and the emission of instructions.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use super::checks::Watch;
use super::context::{LOCAL, load_context};
use super::frame::Frame;
use super::places;
use super::types::{constant, is_bool, memory_type, value_type, zero};
use super::unit::{MAX_ALIGN, Unit};
use crate::ir::{
    Access, BlockId, ConstId, ConstKind, Function, GlobalId, Loc, Operand, Type, TypeId, ValueId,
    WorkItemQuery,
};
use crate::regions::Barrier;

/// A function under construction.
pub(super) struct Body<'u, 'm> {
    pub(super) unit: &'u mut Unit<'m>,
    pub(super) function: &'u Function,
    /// The block `entry`, without its terminator.
    pub(super) prelude: String,
    /// The text of the blocks so far.
    pub(super) out: String,
    /// The number of the next temporary.
    pub(super) next: u32,
    /// Values that live in stack slots because they are live across a barrier.
    pub(super) slots: HashSet<ValueId>,
    /// Values that are computed in the prelude, wherever the IR defines them.
    pub(super) hoisted: HashMap<ValueId, String>,
    /// Barriers by the block that they end, with the state of an item that stopped there.
    pub(super) barriers: HashMap<BlockId, (u32, &'u Barrier)>,
    pub(super) frame: Option<&'u Frame>,
    /// Results of queries that are computed in the prelude.
    pub(super) queries: HashMap<(WorkItemQuery, u8), String>,
    /// Pointers loaded from the context in the prelude, by offset.
    pub(super) bases: HashMap<u32, String>,
    /// Values for the checks, loaded in the prelude.
    pub(super) watch: Option<Watch>,
    /// The function, and the place of the instruction that is being emitted, as debug information.
    pub(super) scope: Option<places::Scope>,
    pub(super) place: Option<u32>,
    /// Private variables that were made for a debugger, by their addresses.
    pub(super) kept: HashMap<ValueId, places::Told>,
    /// Where items' coordinates and texels are passed to the library.
    pub(super) items: Option<String>,
}

impl<'u, 'm> Body<'u, 'm> {
    pub(super) fn new(unit: &'u mut Unit<'m>, function: &'u Function) -> Self {
        let form = unit.form;
        let scope = unit.places.as_mut().map(|places| places.function(form, function));
        Self {
            scope,
            place: None,
            unit,
            function,
            prelude: String::new(),
            out: String::new(),
            next: 0,
            slots: HashSet::new(),
            hoisted: HashMap::new(),
            barriers: HashMap::new(),
            frame: None,
            queries: HashMap::new(),
            bases: HashMap::new(),
            watch: None,
            kept: HashMap::new(),
            items: None,
        }
    }

    /// A new temporary's name.
    pub(super) fn temp(&mut self) -> String {
        self.next += 1;
        format!("%t{}", self.next)
    }

    /// Adds an instruction without result.
    pub(super) fn line(&mut self, text: &str) {
        let _ = match self.place {
            Some(place) => writeln!(self.out, "  {text}, !dbg !{place}"),
            None => writeln!(self.out, "  {text}"),
        };
    }

    /// Sets the place in the source of the instructions that are emitted next.
    pub(super) fn come_from(&mut self, loc: Loc) {
        if let (Some(scope), Some(places)) = (self.scope, &mut self.unit.places) {
            self.place = Some(places.at(scope, loc));
        }
    }

    /// Adds an instruction and names its result.
    pub(super) fn def(&mut self, text: &str) -> String {
        let name = self.temp();
        self.line(&format!("{name} = {text}"));
        name
    }

    /// Adds an instruction to the prelude and names its result.
    pub(super) fn prelude_def(&mut self, text: &str) -> String {
        let name = self.temp();
        let _ = writeln!(self.prelude, "  {name} = {text}");
        name
    }

    /// The IR type of an operand.
    pub(super) fn type_of(&self, operand: Operand) -> TypeId {
        self.unit.module.operand_type(self.function, operand)
    }

    /// LLVM's type of a value of the IR type.
    pub(super) fn value_type(&self, ty: TypeId) -> String {
        value_type(self.unit.module, ty)
    }

    /// An operand's name or constant. May add instructions.
    pub(super) fn operand(&mut self, operand: Operand) -> String {
        match operand {
            Operand::Const(id) => self.constant(id, false),
            Operand::Value(value) => {
                if let Some(name) = self.hoisted.get(&value) {
                    return name.clone();
                }
                if !self.slots.contains(&value) {
                    return name(value);
                }
                let ty = self.value_type(self.function.values[value].ty);
                self.def(&format!("load {ty}, ptr {}.slot", name(value)))
            }
        }
    }

    /// An operand with its type.
    pub(super) fn typed(&mut self, operand: Operand) -> String {
        let ty = self.value_type(self.type_of(operand));
        format!("{ty} {}", self.operand(operand))
    }

    /// A constant. Adds instructions if it holds addresses that are known only at run time.
    pub(super) fn constant(&mut self, id: ConstId, in_memory: bool) -> String {
        let module = self.unit.module;
        let text = constant(module, id, in_memory, &mut |global| self.unit.symbol(global));
        if let Some(text) = text {
            return text;
        }
        let ty = module.constants[id].ty;
        match &module.constants[id].kind {
            &ConstKind::Address(global, addend) => self.address(global, addend),
            ConstKind::Composite(parts) => {
                let insert = match module.types[ty] {
                    Type::Vector(..) => "insertelement",
                    _ => "insertvalue",
                };
                let index_type = if insert == "insertelement" { "i32 " } else { "" };
                let whole = memory_type(module, ty);
                let mut value = String::from("poison");
                for (index, &part) in parts.iter().enumerate() {
                    let part_type = memory_type(module, module.constants[part].ty);
                    let part = self.constant(part, true);
                    value = self.def(&format!(
                        "{insert} {whole} {value}, {part_type} {part}, {index_type}{index}"
                    ));
                }
                value
            }
            _ => zero(module, ty).into(),
        }
    }

    /// The address of a local or private variable of module scope.
    fn address(&mut self, global: GlobalId, addend: i64) -> String {
        if let Some(&offset) = self.unit.locals.get(&global) {
            let base = self.base(LOCAL);
            let offset = (offset as i64).wrapping_add(addend);
            self.def(&format!("getelementptr i8, ptr {base}, i64 {offset}"))
        } else {
            let offset = self.unit.privates.get(&global).copied().unwrap_or(0);
            let offset = (offset as i64).wrapping_add(addend);
            self.def(&format!("getelementptr i8, ptr %priv, i64 {offset}"))
        }
    }

    /// A pointer of the context, loaded once.
    pub(super) fn base(&mut self, offset: u32) -> String {
        if let Some(base) = self.bases.get(&offset) {
            return base.clone();
        }
        let name = self.temp();
        self.prelude += &load_context(&name, offset);
        self.bases.insert(offset, name.clone());
        name
    }

    /// Runs `write` and returns the instructions that it added, so that they can be placed elsewhere.
    pub(super) fn captured<T>(&mut self, write: impl FnOnce(&mut Self) -> T) -> (T, String) {
        let before = std::mem::take(&mut self.out);
        let result = write(self);
        (result, std::mem::replace(&mut self.out, before))
    }

    /// Emits a load of a value of the IR type, in its value form. May add instructions.
    pub(super) fn load(&mut self, ty: TypeId, at: &str, access: Access) -> String {
        let module = self.unit.module;
        let memory = memory_type(module, ty);
        let (volatile, rest) = modifiers(access);
        let load = format!("load {volatile}{memory}, ptr {at}, {rest}");
        if !is_bool(module, ty) {
            return load;
        }
        let byte = self.def(&load);
        format!("icmp ne {memory} {byte}, {}", zero(module, ty))
    }

    /// Stores a value of the IR type.
    pub(super) fn store(&mut self, ty: TypeId, value: &str, at: &str, access: Access) {
        let value = self.in_memory_form(ty, value);
        let memory = memory_type(self.unit.module, ty);
        let (volatile, rest) = modifiers(access);
        self.line(&format!("store {volatile}{memory} {value}, ptr {at}, {rest}"));
    }

    /// The access to a value of the IR type in memory that this compiler has laid out.
    pub(super) fn plain_access(&self, ty: TypeId) -> Access {
        let align = self.unit.module.types.align(ty).min(MAX_ALIGN) as u32;
        Access { align, volatile: false, nontemporal: false }
    }

    /// Converts a value to its form in memory.
    pub(super) fn in_memory_form(&mut self, ty: TypeId, value: &str) -> String {
        let module = self.unit.module;
        if !is_bool(module, ty) {
            return value.into();
        }
        let (value_ty, memory) = (value_type(module, ty), memory_type(module, ty));
        self.def(&format!("zext {value_ty} {value} to {memory}"))
    }
}

/// LLVM's modifiers of an access: the one before the type, and those behind the address.
pub(super) fn modifiers(access: Access) -> (&'static str, String) {
    let volatile = if access.volatile { "volatile " } else { "" };
    let metadata = if access.nontemporal { ", !nontemporal !1" } else { "" };
    (volatile, format!("align {}{metadata}", u64::from(access.align).clamp(1, MAX_ALIGN)))
}

/// The LLVM name of a value.
pub(super) fn name(value: ValueId) -> String {
    format!("%v{}", value.0)
}
