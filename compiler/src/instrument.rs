// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes a kernel check its own memory accesses.
//!
//! A check is inserted in front of each access, as operations of the IR, after all calls are inlined
//! and before other passes. Afterwards accesses may be widened, merged and moved like those of any
//! other kernel, and even removed: the checks stay, since a report is an effect. Loads of states
//! ([`tally_compiler_protocol::checks`]) are widened like the accesses beside them.
//!
//! ```text
//!                                   %9 = shadow %8
//!                                   %10: i32 = load %9 align 4
//!                                   %11: bool = ne %10, i32 -1
//!   %5: f32 = load %8 align 4  ──▶  report 3 at %8 if %11
//!                                   %5: f32 = load %8 align 4
//! ```
//!
//! - **memory**: the bytes of an access are accessible. In a private variable the offset is compared with
//!   the variable's size.
//! - **init**: what is read was written. Where a value is only moved, its states move along, to a place in
//!   memory or to an operation that depends on the value ([`follow`]). Private variables have states
//!   of their own ([`private`]).
//!
//! - **portable**: some places are told without running ([`portable`]); an access through a pointer that the
//!   kernel has read tells where it goes.
//!
//! - **races**, **sync**: accesses, and what orders them, are told to the run-time library ([`races`]).
//!
//! A check is left out if an earlier one on every path to it includes it. Private variables that can
//! become values have done so before.

mod follow;
mod portable;
mod private;
mod races;
mod rewrite;
mod roots;
mod sites;
mod states;

use tally_compiler_protocol::checks::{Checks, Sites};

use self::sites::Table;
use crate::ir::{ArgKind, Kernel, Module};
use crate::optimise::{self, Pass};

/// The maximum weight of a kernel with all calls inlined; larger ones are not checked.
const MAX_WEIGHT: usize = 1 << 18;

/// A kernel that checks its accesses.
pub struct Instrumented {
    /// The kernel's part of its module, and the kernel, which calls no function. `None`: it checks nothing
    /// while it runs, and stays as it was.
    pub part: Option<(Module, Kernel)>,
    /// The places that are checked, or that the code itself tells.
    pub sites: Sites,
}

/// Makes a kernel check its accesses. `None` if it is too large.
pub fn instrument(module: &Module, kernel: &Kernel, checks: Checks) -> Option<Instrumented> {
    let (mut part, mut function) = optimise::inlined(module, kernel, MAX_WEIGHT)?;
    // Private variables become values that need no check. With init those that may be read before
    // they are written stay variables.
    let registers = if checks.init { Pass::WrittenRegisters } else { Pass::Registers };
    for pass in [Pass::Copies, registers, Pass::Simplify] {
        pass.run(&mut part, &mut function);
    }
    let mut table = Table::new(sites::Names::new(module, kernel));
    if checks.portable {
        portable::facts(&part, &function, kernel, &mut table);
    }
    if checks.portable || checks.races {
        table.write_through(portable::written(&part, &function));
    }
    let reaches = checks.reach && portable::reach(&mut part, &mut function, kernel, &mut table);
    let follows = races::add(&mut part, &mut function, kernel, &mut table, checks);
    let accesses = checks.memory || checks.init;
    let sites = match accesses {
        true => rewrite::run(&mut part, &mut function, kernel, table, checks),
        false => table.finish(),
    };
    if !accesses && !reaches && follows == 0 {
        return Some(Instrumented { part: None, sites });
    }
    part.functions[kernel.function] = function;
    let mut kernel = kernel.clone();
    kernel.facts.functions = vec![kernel.function];
    let has_local = kernel.facts.local_static_bytes != 0
        || kernel.args.iter().any(|arg| arg.kind == ArgKind::LocalPointer);
    kernel.facts.forgets_local = checks.init && has_local;
    kernel.facts.follows = (follows != 0).then_some(follows);
    Some(Instrumented { part: Some((part, kernel)), sites })
}
