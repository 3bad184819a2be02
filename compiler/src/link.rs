// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links modules that import from each other, before the checks: the importing module's kernels are
//! then compiled with the functions that they call, as if all had been one module from the start.
//!
//! An *object* is the product of one zeModuleCreate, from one SPIR-V module or several. The kernels of
//! the first object are built; the others only provide their functions and variables. Variables keep
//! their addresses in their own object, so all objects see the same ones.
//!
//! ```text
//!   object 0: kernels, f()   ──▶ calls f, g        links: g → object 1
//!   object 1: g(), table     ──▶ g reads table
//! ```
//!
//! An import refers to a definition of its own object, if there is one, else to the one of the object
//! that `links` names. A name that no module defines stays an import, which the checks then refuse or
//! list.

mod merge;

use std::collections::HashMap;

use crate::ir::{FunctionId, GlobalId, Module};
use merge::Merger;

/// Modules of one object, and the objects that define its imports.
#[derive(Debug, Default)]
pub struct Object {
    /// The modules, parsed and not checked yet.
    pub modules: Vec<Module>,
    /// The number of the object that defines an import, by the import's name.
    pub links: HashMap<String, usize>,
}

/// The maximum number of errors that are listed.
const MAX_ERRORS: usize = 32;

/// Links objects; the result has the kernels of the first.
///
/// # Errors
/// A log: names that are defined twice in one object, imports that differ from their definitions.
pub fn link(mut objects: Vec<Object>) -> Result<Module, String> {
    if let [Object { modules, .. }] = &mut objects[..]
        && let [module] = &modules[..]
        && !imports(module)
    {
        return Ok(modules.remove(0));
    }
    let mut merger = Merger::default();
    let mut errors = Vec::new();
    let mut exports = Vec::new();
    let mut links = Vec::new();
    for (number, object) in objects.into_iter().enumerate() {
        if number > 0 {
            merger.begin_foreign();
        }
        let mut names = Exports::default();
        for mut module in object.modules {
            if number > 0 {
                module.kernels.clear();
            }
            merger.add(module, number, &mut names, &mut errors);
        }
        exports.push(names);
        links.push(object.links);
    }
    let find = |object: usize, name: &str| {
        let own = exports[object].0.get(name);
        let linked = || exports.get(*links[object].get(name)?)?.0.get(name);
        own.or_else(linked).map(|export| export.what)
    };
    merger.resolve(find, &mut errors);
    if errors.is_empty() {
        return merger.finish();
    }
    errors.truncate(MAX_ERRORS);
    Err(errors.join("\n"))
}

/// Whether a module declares a name that another one may define.
fn imports(module: &Module) -> bool {
    module.functions.iter().any(|(_, function)| function.is_declared())
        || module.globals.iter().any(|(_, global)| global.imported)
}

/// The definitions that an object provides, by name.
#[derive(Default)]
struct Exports(HashMap<String, Export>);

#[derive(Clone, Copy)]
struct Export {
    what: Definition,
    /// Whether others may define the same.
    once: bool,
}

/// A definition in the merged module.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Definition {
    Function(FunctionId),
    Global(GlobalId),
}

impl Exports {
    /// Adds a definition, in place of one that others may define too.
    fn add(&mut self, name: &str, export: Export, errors: &mut Vec<String>) {
        match self.0.get(name) {
            Some(before) if !before.once && !export.once => {
                errors.push(format!("{name:?} is defined twice"));
            }
            Some(_) if export.once => {}
            _ => {
                self.0.insert(name.to_owned(), export);
            }
        }
    }
}
