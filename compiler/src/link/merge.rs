// SPDX-License-Identifier: MIT OR Apache-2.0
//! Renumbers modules into one.
//!
//! Types and constants are interned anew; functions, variables and files are appended to the existing
//! ones. Everything that holds constants is renumbered last, when all imports are resolved.

use std::collections::HashMap;
use std::ops::Range;

use super::{Definition, Export, Exports};
use crate::ir::arena::Id;
use crate::ir::{
    Arena, ConstId, ConstKind, Constant, FileId, Function, FunctionId, Global, GlobalId, InlinedId,
    Kernel, Loc, Module, Op, Operand, SourceTypeId, Type, TypeId,
};
use crate::pointers;

/// The merged module under construction.
#[derive(Default)]
pub(super) struct Merger {
    module: Module,
    parts: Vec<Part>,
    /// Definitions of functions and variables that are only declared.
    functions: HashMap<FunctionId, FunctionId>,
    globals: HashMap<GlobalId, GlobalId>,
}

/// One of the modules: its own constants, and the offsets of its numbers in the merged module.
struct Part {
    object: usize,
    constants: Arena<ConstId, Constant>,
    types: Vec<TypeId>,
    functions: Range<usize>,
    globals: Range<usize>,
}

impl Merger {
    /// The following modules belong to another object.
    pub(super) fn begin_foreign(&mut self) {
        self.module.foreign.push(GlobalId::from_index(self.module.globals.len()));
    }

    /// Adds a module; constants in it are renumbered by [`Self::finish`].
    pub(super) fn add(
        &mut self,
        module: Module,
        object: usize,
        exports: &mut Exports,
        errors: &mut Vec<String>,
    ) {
        let types = self.add_types(&module);
        let first_function = self.module.functions.len();
        let first_global = self.module.globals.len();
        let first_file = self.module.files.len();
        let ty = |id: TypeId| types[id.index()];
        let (first_type, first_call) = self.module.debug.append(module.debug, first_file);
        let loc = |loc: Loc| Loc {
            file: loc.file.map(|file| FileId::from_index(first_file + file.index())),
            inlined: loc.inlined.map(|call| InlinedId::from_index(first_call + call.index())),
            ..loc
        };
        for (_, file) in module.files {
            self.module.files.push(file);
        }
        for (_, global) in module.globals {
            let (exported, name) = (global.exported, global.name.clone());
            let global = Global { ty: ty(global.ty), loc: loc(global.loc), ..global };
            let what = Definition::Global(self.module.globals.push(global));
            if exported {
                let once = module.link_once.contains(&name);
                exports.add(&name, Export { what, once }, errors);
            }
        }
        for (_, mut function) in module.functions {
            let exported = function.exported.then(|| function.name.clone());
            renumber(&mut function, first_function, ty, loc);
            for shown in &mut function.shown {
                shown.ty = SourceTypeId::from_index(first_type + shown.ty.index());
                let call = |id: InlinedId| InlinedId::from_index(first_call + id.index());
                shown.inlined = shown.inlined.map(call);
            }
            let what = Definition::Function(self.module.functions.push(function));
            if let Some(name) = exported {
                let once = module.link_once.contains(&name);
                exports.add(&name, Export { what, once }, errors);
            }
        }
        for kernel in module.kernels {
            if self.module.kernel(&kernel.name).is_some() {
                errors.push(format!("kernel {:?} is defined twice", kernel.name));
            }
            let function = FunctionId::from_index(first_function + kernel.function.index());
            let mut kernel = Kernel { function, loc: loc(kernel.loc), ..kernel };
            kernel.args.iter_mut().for_each(|arg| arg.ty = ty(arg.ty));
            self.module.kernels.push(kernel);
        }
        self.module.link_once.extend(module.link_once);
        self.module.pointers.extend(module.pointers);
        let function = |id: FunctionId| FunctionId::from_index(first_function + id.index());
        self.module.dispatchers.extend(module.dispatchers.into_iter().map(function));
        let callable = module.callable.into_iter().map(|(number, id)| (number, function(id)));
        self.module.callable.extend(callable);
        self.parts.push(Part {
            object,
            constants: module.constants,
            types,
            functions: first_function..self.module.functions.len(),
            globals: first_global..self.module.globals.len(),
        });
    }

    /// The merged module's number of each type; a type follows those that it consists of.
    fn add_types(&mut self, module: &Module) -> Vec<TypeId> {
        let void = self.module.types.void();
        let mut types: Vec<TypeId> = Vec::new();
        for (_, ty) in module.types.iter() {
            let ty = match ty {
                Type::Vector(element, n) => Type::Vector(types[element.index()], *n),
                Type::Array(element, n) => Type::Array(types[element.index()], *n),
                Type::Struct { members, packed } => Type::Struct {
                    members: members.iter().map(|member| types[member.index()]).collect(),
                    packed: *packed,
                },
                plain => plain.clone(),
            };
            // A type has the same size here as in its own module, where it was not too large.
            types.push(self.module.types.intern(ty).unwrap_or(void));
        }
        types
    }

    /// Finds the definition of everything that is only declared. `find` returns the definition of a
    /// name in an object. Definitions that give way to another of their object (`LinkOnceODR`) are
    /// mapped to it.
    pub(super) fn resolve(
        &mut self,
        find: impl Fn(usize, &str) -> Option<Definition>,
        errors: &mut Vec<String>,
    ) {
        for part in &self.parts {
            for id in part.functions.clone().map(FunctionId::from_index) {
                let function = &self.module.functions[id];
                if !(function.is_declared() || function.exported) {
                    continue;
                }
                let same = |found| signature(function) == signature(&self.module.functions[found]);
                match find(part.object, &function.name) {
                    None => {}
                    Some(Definition::Function(found)) if found == id => {}
                    Some(Definition::Function(found)) if same(found) => {
                        self.functions.insert(id, found);
                    }
                    Some(_) => errors.push(differs(&function.name, function.exported, "function")),
                }
            }
            for id in part.globals.clone().map(GlobalId::from_index) {
                let global = &self.module.globals[id];
                if !(global.imported || global.exported) {
                    continue;
                }
                match find(part.object, &global.name) {
                    None => {}
                    Some(Definition::Global(found)) if found == id => {}
                    Some(Definition::Global(found)) => {
                        match misfit(global, &self.module.globals[found]) {
                            None => drop(self.globals.insert(id, found)),
                            Some(why) => errors.push(why),
                        }
                    }
                    Some(_) => errors.push(differs(&global.name, global.exported, "variable")),
                }
            }
        }
        // Other modules no longer find a definition that gave way by its name.
        for &id in self.functions.keys() {
            self.module.functions[id].exported = false;
        }
        for &id in self.globals.keys() {
            self.module.globals[id].exported = false;
        }
    }

    /// Renumbers constants, and calls of functions that are only declared.
    ///
    /// # Errors
    /// A module whose constants are not in order, which the parser does not produce.
    pub(super) fn finish(mut self) -> Result<Module, String> {
        for part in std::mem::take(&mut self.parts) {
            let constants = self.add_constants(&part)?;
            let constant = |id: ConstId| constants[id.index()];
            for id in part.globals.map(GlobalId::from_index) {
                let global = &mut self.module.globals[id];
                global.init = global.init.map(constant);
            }
            let rename = |operand: &mut Operand| {
                if let Operand::Const(id) = operand {
                    *id = constant(*id);
                }
            };
            for id in part.functions.map(FunctionId::from_index) {
                let function = &mut self.module.functions[id];
                for variable in &mut function.variables {
                    variable.init = variable.init.map(constant);
                }
                for (_, block) in function.blocks.iter_mut() {
                    for inst in &mut block.insts {
                        inst.op.for_each_operand_mut(rename);
                        if let Op::Call(callee, _) = &mut inst.op {
                            *callee = self.functions.get(callee).copied().unwrap_or(*callee);
                        }
                    }
                    block.terminator.for_each_operand_mut(rename);
                }
            }
        }
        for (_, id) in &mut self.module.callable {
            *id = self.functions.get(id).copied().unwrap_or(*id);
        }
        pointers::connect(&mut self.module);
        Ok(self.module)
    }

    /// The merged module's number of each constant of a part.
    fn add_constants(&mut self, part: &Part) -> Result<Vec<ConstId>, String> {
        let mut constants: Vec<ConstId> = Vec::with_capacity(part.constants.len());
        for (_, constant) in part.constants.iter() {
            let kind = match &constant.kind {
                ConstKind::Address(global, offset) => {
                    let global = GlobalId::from_index(part.globals.start + global.index());
                    let global = self.globals.get(&global).copied().unwrap_or(global);
                    ConstKind::Address(global, *offset)
                }
                ConstKind::Composite(parts) => {
                    let known = |id: &ConstId| constants.get(id.index()).copied();
                    let parts: Option<Vec<ConstId>> = parts.iter().map(known).collect();
                    ConstKind::Composite(parts.ok_or("a constant is made of later ones")?)
                }
                plain => plain.clone(),
            };
            constants.push(self.module.constant(part.types[constant.ty.index()], kind));
        }
        Ok(constants)
    }
}

/// A function's parameters and result.
fn signature(function: &Function) -> (Vec<TypeId>, TypeId) {
    let params = function.params.iter().map(|&param| function.values[param].ty).collect();
    (params, function.return_type)
}

/// The error for a declaration that differs from the definition of its name.
fn differs(name: &str, defined: bool, what: &str) -> String {
    match defined {
        false => format!("{name:?} is imported as another type of {what} than it is defined"),
        true => format!("{name:?} is defined as different types of {what}"),
    }
}

/// The reason why an import, or a definition that gives way, can't refer to a variable. The declaration
/// of an array may leave its length open.
fn misfit(import: &Global, export: &Global) -> Option<String> {
    if import.space != export.space || import.size > export.size {
        return Some(differs(&import.name, import.exported, "variable"));
    }
    // Code of the importing module may rely on the alignment of its declaration.
    (import.align > export.align).then(|| {
        let Global { name, align, .. } = import;
        let defined = export.align;
        format!("{name:?} is imported with alignment {align}, but defined with {defined}")
    })
}

/// Renumbers everything that needs no constants.
fn renumber(
    function: &mut Function,
    first_function: usize,
    ty: impl Fn(TypeId) -> TypeId,
    loc: impl Fn(Loc) -> Loc,
) {
    function.return_type = ty(function.return_type);
    function.loc = loc(function.loc);
    for (_, value) in function.values.iter_mut() {
        value.ty = ty(value.ty);
    }
    for variable in &mut function.variables {
        variable.ty = ty(variable.ty);
    }
    for (_, block) in function.blocks.iter_mut() {
        block.loc = loc(block.loc);
        for inst in &mut block.insts {
            inst.loc = loc(inst.loc);
            if let Op::Call(callee, _) = &mut inst.op {
                *callee = FunctionId::from_index(first_function + callee.index());
            }
        }
    }
}
