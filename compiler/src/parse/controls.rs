// SPDX-License-Identifier: MIT OR Apache-2.0
//! How kernels ask for floats to be computed: execution modes of SPV_KHR_float_controls (in the core since
//! SPIR-V 1.4) and SPV_INTEL_float_controls2.
//!
//! A mode of an entry point holds for all functions that it calls, for floats of one width. A function that
//! entry points with different modes call is built once for each combination. What belongs to no entry point,
//! constants of module scope and functions that are called through pointers or by other modules, is rounded
//! to nearest.

use std::collections::HashMap;

use rspirv::spirv::ExecutionMode;

use super::error::Result;
use super::words::Instruction;
use crate::ir::FunctionId;

/// A rounding direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// To nearest, ties to even.
    Nearest,
    /// Towards zero.
    Zero,
    /// Towards positive infinity.
    Up,
    /// Towards negative infinity.
    Down,
}

impl Rounding {
    /// Decodes `FPRoundingMode`.
    pub fn decode(word: u32) -> Option<Self> {
        Some(match word {
            0 => Rounding::Nearest,
            1 => Rounding::Zero,
            2 => Rounding::Up,
            3 => Rounding::Down,
            _ => return None,
        })
    }
}

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
