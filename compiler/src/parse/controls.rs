// SPDX-License-Identifier: MIT OR Apache-2.0
//! How kernels ask for floats to be computed: execution modes of SPV_KHR_float_controls (in the core since
//! SPIR-V 1.4) and SPV_INTEL_float_controls2.
//!
//! A mode of an entry point holds for all functions that it calls, for floats of one width. A function that
//! entry points with different modes call is built once for each combination. What belongs to no entry point,
//! constants of module scope and functions that are called through pointers or by other modules, is rounded
//! to nearest.

use std::collections::{HashMap, HashSet};

use rspirv::spirv::{ExecutionMode, Op};

use super::annotations::Rounding;
use super::builder::{Builder, Def, Signature};
use super::error::Result;
use super::words::Instruction;
use crate::ir::{FunctionId, Id};

/// The maximum number of instructions in functions that are built again because modes differ.
const MAX_COPIED: usize = 1 << 20;

/// The modes of an entry point, for floats of 16, 32 and 64 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Controls {
    /// The direction in which results are rounded.
    rounding: [Option<Rounding>; 3],
    /// Whether subnormal numbers are kept or count as zeros.
    keeps_subnormal: [Option<bool>; 3],
}

impl Controls {
    /// The direction of results of so many bits, unless it is the nearest number.
    pub fn rounding(&self, bits: u32) -> Option<Rounding> {
        self.rounding[place(bits)?].filter(|&rounding| rounding != Rounding::Nearest)
    }

    /// Whether subnormal numbers of so many bits count as zeros.
    pub fn flushes(&self, bits: u32) -> bool {
        place(bits).is_some_and(|place| self.keeps_subnormal[place] == Some(false))
    }

    /// Whether anything differs from what is done without modes.
    pub fn any(&self) -> bool {
        [16, 32, 64].iter().any(|&bits| self.rounding(bits).is_some() || self.flushes(bits))
    }

    /// Adds an execution mode; others than those about floats are ignored.
    ///
    /// # Errors
    /// If the mode contradicts an earlier one, names a width that floats do not have, or is the
    /// alternative mode of Intel's GPUs.
    pub fn add(&mut self, inst: &Instruction<'_>, mode: ExecutionMode) -> Result<()> {
        let rounding = match mode {
            ExecutionMode::RoundingModeRTE => Some(Rounding::Nearest),
            ExecutionMode::RoundingModeRTZ => Some(Rounding::Zero),
            ExecutionMode::RoundingModeRTPINTEL => Some(Rounding::Up),
            ExecutionMode::RoundingModeRTNINTEL => Some(Rounding::Down),
            _ => None,
        };
        let keeps_subnormal = match mode {
            ExecutionMode::DenormPreserve => Some(true),
            ExecutionMode::DenormFlushToZero => Some(false),
            ExecutionMode::FloatingPointModeALTINTEL => {
                let what = "asks for the alternative mode of floats, which is not supported; \
                            FloatingPointModeIEEEINTEL is";
                return Err(inst.error(what.into()));
            }
            _ => None,
        };
        if rounding.is_none() && keeps_subnormal.is_none() {
            return Ok(());
        }
        let bits = inst.arg(2)?;
        let Some(place) = place(bits) else {
            return Err(inst.error(format!("is about floats of {bits} bits, which do not exist")));
        };
        let contradicts = |what: &str| {
            Err(inst.error(format!("gives floats of {bits} bits a second, different {what}")))
        };
        if rounding.is_some() {
            if self.rounding[place].is_some_and(|old| Some(old) != rounding) {
                return contradicts("rounding mode");
            }
            self.rounding[place] = rounding;
        }
        if keeps_subnormal.is_some() {
            if self.keeps_subnormal[place].is_some_and(|old| Some(old) != keeps_subnormal) {
                return contradicts("mode for subnormal numbers");
            }
            self.keeps_subnormal[place] = keeps_subnormal;
        }
        Ok(())
    }
}

fn place(bits: u32) -> Option<usize> {
    [16, 32, 64].iter().position(|&width| width == bits)
}

/// Copies of functions for entry points with other modes: by the function and the modes.
pub type Copies = HashMap<(FunctionId, Controls), FunctionId>;

/// Gives each function the modes of the entry points that call it, with copies of those that are called with
/// several.
///
/// # Errors
/// If the copies are too large.
pub fn spread(builder: &mut Builder<'_>, functions: &mut Vec<Signature<'_>>) -> Result<()> {
    let modes = &builder.annotations.modes;
    if !modes.values().any(|modes| modes.floats.any()) {
        return Ok(());
    }
    let called = |signature: &Signature<'_>| -> Vec<FunctionId> {
        let calls = signature.body.iter().filter(|inst| inst.op() == Op::FunctionCall);
        let callees = calls.filter_map(|inst| match builder.defs.get(&inst.arg(0).ok()?) {
            Some(&Def::Function(callee)) => Some(callee),
            _ => None,
        });
        callees.collect()
    };
    let exported = |head: &Instruction<'_>| {
        builder.decorations(head).linkage.as_ref().is_some_and(|linkage| !linkage.import)
    };
    let calls: Vec<Vec<FunctionId>> = functions.iter().map(called).collect();
    // An entry point has its own modes, any other function those that it is first seen with.
    let mut first: HashMap<FunctionId, Controls> = HashMap::new();
    let mut work = Vec::new();
    for (index, signature) in functions.iter().enumerate() {
        let id = signature.head.result().unwrap_or_default();
        if builder.annotations.kernels.contains_key(&id) {
            let floats = modes.get(&id).map(|modes| modes.floats).unwrap_or_default();
            first.insert(FunctionId::from_index(index), floats);
            work.push((FunctionId::from_index(index), floats));
        } else if builder.indirect.taken.contains_key(&id) || exported(&signature.head) {
            // Code without modes may call it through a pointer, or from another module.
            first.insert(FunctionId::from_index(index), Controls::default());
        }
    }
    let mut seen: HashSet<(FunctionId, Controls)> = work.iter().copied().collect();
    let mut next = 0;
    while let Some(&(function, floats)) = work.get(next) {
        next += 1;
        for &callee in &calls[function.index()] {
            if seen.insert((callee, floats)) {
                work.push((callee, floats));
            }
        }
    }
    let mut copied = 0;
    for (function, floats) in work {
        if *first.entry(function).or_insert(floats) == floats {
            functions[function.index()].floats = floats;
            continue;
        }
        let original = &functions[function.index()];
        copied += original.body.len() + 1;
        if copied > MAX_COPIED {
            let what = format!(
                "is called in different modes of floats, which makes it {copied} instructions that are \
                 built again; the limit of a module is {MAX_COPIED}"
            );
            return Err(original.head.error(what));
        }
        let id = FunctionId::from_index(functions.len());
        let copy = Signature { id, floats, copied: true, ..original.clone() };
        let (at, types) = (function.index(), &mut builder.parameter_types);
        builder.function_ids.push(builder.function_ids[at]);
        types.push(types[at].clone());
        builder.copies.insert((function, floats), id);
        functions.push(copy);
    }
    Ok(())
}
