// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives variables the alignment that accesses to them claim.
//!
//! A producer may lose a variable's alignment and keep that of its accesses: AdaptiveCpp makes LLVM's
//! variables anew, with the alignment of the type (`AddressSpaceInferencePass.cpp`). GPUs do not care,
//! but a processor traps where 16 bytes and more are not aligned.
//!
//! ```text
//!   %1 = private {[4 x i32]} align 4              %1 = private {[4 x i32]} align 16
//!   store %1, %0 align 16                  ──▶    store %1, %0 align 16
//! ```
//!
//! Values of which one is an address in the object of the other are in one set, across calls too, and all
//! variables in a set get the strictest alignment that an access through one of its members claims.

use crate::ir::arena::Id;
use crate::ir::{ConstKind, ConvertOp, Function, Module, Op, Operand};

/// Less strict alignments do not matter to a processor.
const MIN_ALIGN: u32 = 16;

/// The size of a processor's largest access.
const MAX_ALIGN: u32 = 64;

/// Raises the alignment of a module's variables.
pub fn raise(module: &mut Module) {
    if !module.functions.iter().any(|(_, function)| is_strict(function)) {
        return;
    }
    let mut sets = Sets::new(module);
    for (id, function) in module.functions.iter() {
        let first = sets.first[id.index()];
        for inst in function.blocks.iter().flat_map(|(_, block)| &block.insts) {
            let result = inst.result.map(|it| first + it.index());
            let mut join = |a: Option<usize>, b: Operand| {
                if let Some((a, b)) = a.zip(sets.of(module, first, b)) {
                    sets.join(a, b);
                }
            };
            match &inst.op {
                Op::Address { base, .. } => join(result, *base),
                Op::Convert(ConvertOp::PtrCast, from) => join(result, *from),
                Op::Select(_, yes, no) => [yes, no].into_iter().for_each(|it| join(result, *it)),
                Op::Phi(ways) => ways.iter().for_each(|(_, it)| join(result, *it)),
                Op::Call(callee, args) => {
                    let to = sets.first[callee.index()];
                    let params = module.functions[*callee].params.iter();
                    for (param, arg) in params.zip(args) {
                        if let Some(arg) = sets.of(module, first, *arg) {
                            sets.join(to + param.index(), arg);
                        }
                    }
                }
                op => {
                    for (at, align) in accesses(op) {
                        if let Some(at) = sets.of(module, first, at) {
                            sets.claim(at, align);
                        }
                    }
                }
            }
        }
    }
    for (id, function) in module.functions.iter_mut() {
        let first = sets.first[id.index()];
        for variable in &mut function.variables {
            let claimed = sets.claimed(first + variable.address.index());
            variable.align = variable.align.max(u64::from(claimed));
        }
    }
    for (id, global) in module.globals.iter_mut() {
        let claimed = sets.claimed(sets.globals + id.index());
        global.align = global.align.max(u64::from(claimed));
    }
}

/// Whether an access of a function claims an alignment that matters.
fn is_strict(function: &Function) -> bool {
    let mut insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
    insts.any(|inst| accesses(&inst.op).any(|(_, align)| align >= MIN_ALIGN))
}

/// The addresses that an operation accesses, with the alignment that it claims for them.
fn accesses(op: &Op) -> impl Iterator<Item = (Operand, u32)> {
    let (first, second) = match op {
        Op::Load(at, access) | Op::Store(at, _, access) => (Some((*at, access.align)), None),
        Op::Copy(to, from, _, access) => (Some((*to, access.align)), Some((*from, access.align))),
        _ => (None, None),
    };
    first.into_iter().chain(second)
}

/// Sets of the values of all functions and of the variables of module scope.
struct Sets {
    /// The number of each function's first value.
    first: Vec<usize>,
    /// The number of the first variable of module scope.
    globals: usize,
    /// Another member of the same set, nearer to the one that stands for it; itself if it is that one.
    parent: Vec<usize>,
    /// The strictest alignment that was claimed, for the member that stands for the set.
    align: Vec<u32>,
}

impl Sets {
    /// Each member in a set of its own.
    fn new(module: &Module) -> Self {
        let mut len = 0;
        let mut first = Vec::with_capacity(module.functions.len());
        for (_, function) in module.functions.iter() {
            first.push(len);
            len += function.values.len();
        }
        let globals = len;
        len += module.globals.len();
        Self { first, globals, parent: (0..len).collect(), align: vec![1; len] }
    }

    /// The member that an operand of a function is, by the number of the function's first value.
    fn of(&self, module: &Module, first: usize, operand: Operand) -> Option<usize> {
        match operand {
            Operand::Value(value) => Some(first + value.index()),
            Operand::Const(id) => match module.constants[id].kind {
                ConstKind::Address(global, _) => Some(self.globals + global.index()),
                _ => None,
            },
        }
    }

    /// The member that stands for a set.
    fn root(&mut self, mut of: usize) -> usize {
        while self.parent[of] != of {
            self.parent[of] = self.parent[self.parent[of]];
            of = self.parent[of];
        }
        of
    }

    /// Makes two sets one.
    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        self.parent[a] = b;
        self.align[b] = self.align[b].max(self.align[a]);
    }

    /// Notes that an address of a set is said to have an alignment.
    fn claim(&mut self, of: usize, align: u32) {
        let root = self.root(of);
        self.align[root] = self.align[root].max(align.min(MAX_ALIGN));
    }

    /// The alignment for the variables of a set; 1 if none matters.
    fn claimed(&mut self, of: usize) -> u32 {
        let root = self.root(of);
        if self.align[root] < MIN_ALIGN { 1 } else { self.align[root] }
    }
}
