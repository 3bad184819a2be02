// SPDX-License-Identifier: MIT OR Apache-2.0
//! The front end's checks: a module that passes can be compiled, for each of its kernels.
//!
//! Over every function that a kernel reaches: the graph and the SSA form ([`ssa`]), the types of
//! each instruction ([`types`]), and whether it is supported ([`support`]). Over every kernel: no
//! recursion, the variables it names, its local memory and its arguments. Functions that no kernel
//! reaches may hold anything.
//!
//! [`check`] also records facts about each kernel ([`KernelFacts`]). It refuses imports that a kernel
//! needs; [`check_unlinked`] lists them instead, for a module that is to be linked with others
//! ([`crate::link`]).

mod exports;
mod ssa;
mod support;
mod types;
mod waits;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use tally_compiler_protocol::SUBGROUP_SIZES;

use crate::ir::{
    AddressSpace, Function, FunctionId, GlobalId, GroupOp, Kernel, KernelFacts, Loc, Module, Op,
    Scope,
};
pub use crate::parse::Error;
use crate::parse::{is_of_matrix, opcode_name};
pub use support::MAX_GLOBAL_BYTES;

/// The maximum local memory of a kernel's own variables, in bytes. Devices allow less; the driver
/// compares it with the device's limit.
pub const MAX_LOCAL_BYTES: u64 = 1 << 24;
/// The maximum private memory of one work-item, in bytes.
pub const MAX_PRIVATE_BYTES: u64 = 1 << 24;
/// The largest argument block in bytes.
pub const MAX_ARGS_BYTES: u64 = 1 << 16;
/// The number of errors after which the checks stop.
const MAX_ERRORS: usize = 32;

/// The reasons why a module cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The errors in the order in which they were found.
    pub errors: Vec<Error>,
}

impl fmt::Display for Failure {
    /// The build log: one line for each error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.errors.iter().enumerate() {
            write!(f, "{}{error}", if i == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// Checks a module and fills in the facts of its kernels.
///
/// # Errors
/// If a kernel reaches something that is wrong or not supported. The failure names the instruction
/// and the kernel.
pub fn check(module: &mut Module) -> Result<(), Failure> {
    run(module, false).map(drop)
}

/// The imports that a module needs from others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unlinked {
    /// Names of functions and variables that it imports and uses, in order, and whether a kernel uses
    /// them; if not, only the module's own exports do.
    pub imports: BTreeMap<String, bool>,
    /// The reasons why exported functions will be refused if a kernel of another module calls them;
    /// lines.
    pub warnings: String,
}

/// Like [`check`], but lists what the module imports.
///
/// # Errors
/// The same as those of [`check`], except for imports.
pub fn check_unlinked(module: &mut Module) -> Result<Unlinked, Failure> {
    run(module, true)
}

fn run(module: &mut Module, unlinked: bool) -> Result<Unlinked, Failure> {
    let imports = unlinked.then(BTreeMap::new);
    let mut checker = Checker { module, checked: HashSet::new(), errors: Vec::new(), imports };
    let facts: Vec<KernelFacts> =
        module.kernels.iter().map(|kernel| checker.kernel(kernel)).collect();
    let mut errors = std::mem::take(&mut checker.errors);
    let mut found = Unlinked::default();
    if errors.is_empty() && unlinked {
        found.warnings = checker.exports();
        found.imports = checker.imports.take().unwrap_or_default();
    }
    if !errors.is_empty() {
        errors.truncate(MAX_ERRORS);
        return Err(Failure { errors });
    }
    for (kernel, facts) in module.kernels.iter_mut().zip(facts) {
        kernel.facts = facts;
    }
    Ok(found)
}

/// The kind of a root of the checks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RootKind {
    Kernel,
    Exported,
}

impl fmt::Display for RootKind {
    /// Its name in messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kernel => "kernel",
            Self::Exported => "exported function",
        })
    }
}

/// A function at which the checks begin. All functions that it calls are checked too.
#[derive(Clone, Copy)]
struct Root<'m> {
    kind: RootKind,
    name: &'m str,
    function: FunctionId,
}

impl<'m> Root<'m> {
    fn kernel(kernel: &'m Kernel) -> Self {
        Self { kind: RootKind::Kernel, name: &kernel.name, function: kernel.function }
    }
}

struct Checker<'m> {
    module: &'m Module,
    /// Functions that were checked already, for any kernel.
    checked: HashSet<FunctionId>,
    errors: Vec<Error>,
    /// The imports that the module uses, by name, and whether a kernel uses them; `None` if every
    /// import is an error.
    imports: Option<BTreeMap<String, bool>>,
}

impl<'m> Checker<'m> {
    fn kernel(&mut self, kernel: &'m Kernel) -> KernelFacts {
        let at_kernel = |message: String| Error {
            word: kernel.loc.word as usize,
            opcode: Some("OpEntryPoint".into()),
            place: Some(format!("kernel {:?}", kernel.name)),
            source: None,
            message,
        };
        let root = Root::kernel(kernel);
        let mut facts = KernelFacts { functions: self.reachable(root), ..KernelFacts::default() };
        for &id in &facts.functions {
            if self.checked.insert(id) {
                self.function(root, id);
            }
            if self.errors.len() >= MAX_ERRORS {
                return facts;
            }
        }
        self.memory(&mut facts);
        let reaches = |wanted: fn(&Op) -> bool| {
            facts.functions.iter().any(|&id| {
                let blocks = self.module.functions[id].blocks.iter();
                blocks.flat_map(|(_, block)| &block.insts).any(|inst| wanted(&inst.op))
            })
        };
        facts.uses_subgroups = reaches(Op::is_of_subgroup);
        facts.uses_barrier = reaches(|op| {
            matches!(op, Op::ControlBarrier { .. } | Op::Offer(..) | Op::NamedBarrier(..))
        });
        facts.uses_system_scope = reaches(is_of_system_scope);
        facts.may_wait = facts.functions.iter().any(|&id| {
            let function = &self.module.functions[id];
            waits::may_wait(self.module, function)
        });
        let instructions = || {
            let functions = facts.functions.iter().map(|&id| &self.module.functions[id]);
            let blocks = functions.flat_map(|function| function.blocks.iter());
            blocks.flat_map(|(_, block)| &block.insts)
        };
        facts.uses_matrices = instructions().any(|inst| is_of_matrix(inst.loc.opcode));
        let other = instructions().find_map(|inst| match inst.op {
            Op::Collect(GroupOp::MulAdd(product), ..) => {
                (product.lanes != kernel.subgroup_size()).then_some(product.lanes)
            }
            _ => None,
        });
        if let Some(lanes) = other {
            let size = kernel.subgroup_size();
            self.errors.push(at_kernel(format!(
                "has sub-groups of {size} work-items, and multiplies matrices that are spread over {lanes}"
            )));
        }
        let prints = reaches(|op| matches!(op, Op::Printf(..)));
        facts.printf_ring = prints.then(|| kernel.args_size.next_multiple_of(8));
        let limits = [
            ("local variables", facts.local_static_bytes, MAX_LOCAL_BYTES),
            ("private variables", facts.private_bytes, MAX_PRIVATE_BYTES),
            ("arguments", kernel.args_size, MAX_ARGS_BYTES),
        ];
        for (what, size, limit) in limits {
            if size > limit {
                self.errors.push(at_kernel(format!(
                    "needs {size} bytes for its {what}, the limit is {limit}"
                )));
            }
        }
        if let Some(size) = kernel.required_group_size {
            let items = size.iter().try_fold(1u32, |items, &n| items.checked_mul(n));
            if items.is_none_or(|items| items == 0) {
                let [x, y, z] = size;
                self.errors.push(at_kernel(format!("requires groups of {x}x{y}x{z} work-items")));
            }
        }
        if let Some([x, y, z]) = kernel.required_group_size
            && facts.uses_matrices
            && !x.wrapping_mul(y).wrapping_mul(z).is_multiple_of(kernel.subgroup_size())
        {
            let size = kernel.subgroup_size();
            self.errors.push(at_kernel(format!(
                "requires groups of {x}x{y}x{z} work-items, which are no whole sub-groups of {size}, over \
                 which its matrices are spread"
            )));
        }
        if let Some(size) = kernel.required_subgroup_size
            && !SUBGROUP_SIZES.contains(&size)
        {
            self.errors.push(at_kernel(format!(
                "requires sub-groups of {size} work-items; 8, 16 and 32 are supported"
            )));
        }
        for (i, arg) in kernel.args.iter().enumerate() {
            if self.module.types.layout(arg.ty).is_none() {
                let ty = self.module.types.text(arg.ty);
                self.errors.push(at_kernel(format!(
                    "has argument {i} of type {ty}, which is not supported"
                )));
            }
        }
        for &id in &facts.globals {
            let global = &self.module.globals[id];
            if global.imported && self.import(&global.name, true) {
                continue;
            }
            if let Some(message) = support::global(self.module, id) {
                self.errors.push(at_kernel(message));
            }
        }
        facts
    }

    /// Records an import, used by a kernel or not; `false` if it is an error.
    fn import(&mut self, name: &str, kernel: bool) -> bool {
        let Some(imports) = &mut self.imports else { return false };
        *imports.entry(name.to_owned()).or_default() |= kernel;
        true
    }

    /// The functions that are reached, callers before callees, without those that are only declared.
    /// Reports recursion.
    fn reachable(&mut self, root: Root<'m>) -> Vec<FunctionId> {
        #[derive(PartialEq)]
        enum State {
            Open,
            Done,
        }
        let mut states: HashMap<FunctionId, State> = HashMap::new();
        let mut finished = Vec::new();
        // Depth-first without recursion of our own: (function, its calls, the next one).
        let mut stack = vec![(root.function, self.calls(root.function), 0)];
        states.insert(root.function, State::Open);
        while let Some((id, calls, next)) = stack.last_mut() {
            let Some(&(callee, loc)) = calls.get(*next) else {
                states.insert(*id, State::Done);
                finished.push(*id);
                stack.pop();
                continue;
            };
            *next += 1;
            let module = self.module;
            if module.functions.get(callee).is_some_and(Function::is_declared) {
                let name = &module.functions[callee].name;
                let id = *id;
                if !self.import(name, root.kind == RootKind::Kernel) {
                    let message = format!("calls {name:?}, which the module only imports");
                    self.errors.push(self.error(root, id, loc, message));
                }
                continue;
            }
            match states.get(&callee) {
                None => {
                    states.insert(callee, State::Open);
                    stack.push((callee, self.calls(callee), 0));
                }
                Some(State::Done) => {}
                Some(State::Open) => {
                    let id = *id;
                    let name = &self.module.functions[callee].name;
                    let message = format!("calls {name:?}, which is recursion");
                    let error = self.error(root, id, loc, message);
                    if self.errors.len() < MAX_ERRORS && !self.errors.contains(&error) {
                        self.errors.push(error);
                    }
                }
            }
        }
        finished.reverse();
        finished
    }

    /// The functions that a function calls, each once, with one place.
    fn calls(&self, id: FunctionId) -> Vec<(FunctionId, Loc)> {
        let mut seen = HashSet::new();
        let mut calls = Vec::new();
        for (_, block) in self.module.functions[id].blocks.iter() {
            for inst in &block.insts {
                if let Op::Call(callee, _) = inst.op
                    && seen.insert(callee)
                {
                    calls.push((callee, inst.loc));
                }
            }
        }
        calls
    }

    fn function(&mut self, root: Root<'m>, id: FunctionId) {
        let module = self.module;
        let function = &module.functions[id];
        let mut report = |loc: Loc, message: String| {
            let error = self.error(root, id, loc, message);
            self.errors.push(error);
        };
        // Types first: unsupported types are reported before their consequences.
        let before = types::check(module, function, &mut report);
        if before {
            ssa::check(function, &mut report);
        }
    }

    fn error(&self, root: Root<'m>, id: FunctionId, loc: Loc, message: String) -> Error {
        let name = &self.module.functions[id].name;
        let place = if id == root.function {
            format!("{} {:?}", root.kind, root.name)
        } else {
            format!("function {name:?}, reached by {} {:?}", root.kind, root.name)
        };
        Error {
            word: loc.word as usize,
            opcode: opcode_name(loc.opcode),
            place: Some(place),
            source: source_text(self.module, loc),
            message,
        }
    }

    /// The variables that a kernel references and the memory that it needs for them.
    fn memory(&self, facts: &mut KernelFacts) {
        let module = self.module;
        for &id in &facts.functions {
            for variable in &module.functions[id].variables {
                facts.private_bytes = facts
                    .private_bytes
                    .next_multiple_of(variable.align.max(1))
                    .saturating_add(variable.size);
            }
        }
        for id in self.globals_of(&facts.functions) {
            let global = &module.globals[id];
            match global.space {
                AddressSpace::Local => {
                    let offset = facts.local_static_bytes.next_multiple_of(global.align);
                    facts.locals.push((id, offset));
                    facts.local_static_bytes = offset.saturating_add(global.size);
                    continue;
                }
                AddressSpace::Private => {
                    facts.private_bytes = facts.private_bytes.saturating_add(global.size);
                }
                _ => {}
            }
            facts.globals.push(id);
        }
    }

    /// The variables of module scope that functions reference, ascending.
    fn globals_of(&self, functions: &[FunctionId]) -> Vec<GlobalId> {
        let module = self.module;
        let mut constants = HashSet::new();
        for &id in functions {
            module.functions[id].for_each_constant(|constant| {
                constants.insert(constant);
            });
        }
        // A variable's initialiser may reference others.
        let mut found: Vec<GlobalId> = module.globals_in(constants);
        let mut seen: HashSet<GlobalId> = found.iter().copied().collect();
        let mut next = 0;
        while let Some(&id) = found.get(next) {
            next += 1;
            let inner = module.globals_in(module.globals[id].init);
            found.extend(inner.into_iter().filter(|&id| seen.insert(id)));
        }
        found.sort();
        found
    }
}

/// Whether its scope may reach beyond the device. LLVM 22 writes wrong scopes for OpenCL C's atomic
/// loads and stores, so all of them may.
fn is_of_system_scope(op: &Op) -> bool {
    match op {
        Op::AtomicLoad(..) | Op::AtomicStore(..) => true,
        Op::AtomicRmw(_, _, _, _, scope)
        | Op::AtomicCompareExchange { scope, .. }
        | Op::ControlBarrier { memory: scope, .. }
        | Op::NamedBarrier(_, scope, _)
        | Op::Fence(scope, _) => *scope == Scope::System,
        _ => false,
    }
}

/// `file:line:column` of a place, if the module says.
fn source_text(module: &Module, loc: Loc) -> Option<String> {
    let file = module.files.get(loc.file?)?;
    Some(format!("{file}:{}:{}", loc.line, loc.column))
}
