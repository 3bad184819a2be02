// SPDX-License-Identifier: MIT OR Apache-2.0
//! A launch: its index space, its arguments, and the reasons for an early end.

use std::fmt;

use super::memory::{self, MemoryError};
use crate::ir::{GlobalId, Id};

/// The index space of a launch.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Work-items per dimension, not counting the offset. A last group may be partial.
    pub global_size: [u64; 3],
    /// Work-items of a full group per dimension.
    pub group_size: [u32; 3],
    /// Added to every global id.
    pub global_offset: [u64; 3],
    /// The value of `get_work_dim`.
    pub work_dim: u32,
    /// The maximum number of instructions of the launch.
    pub step_limit: u64,
}

impl Launch {
    /// A launch in one dimension without offset, with a limit far above the needs of tests.
    pub fn linear(global_size: u64, group_size: u32) -> Self {
        Self {
            global_size: [global_size, 1, 1],
            group_size: [group_size, 1, 1],
            global_offset: [0; 3],
            work_dim: 1,
            step_limit: 1 << 26,
        }
    }

    /// Work-groups per dimension.
    pub fn num_groups(&self) -> [u64; 3] {
        std::array::from_fn(|d| self.global_size[d].div_ceil(u64::from(self.group_size[d]).max(1)))
    }
}

/// One argument of a launch.
#[derive(Clone, Debug)]
pub enum Arg {
    /// The bytes of a value, or of a pointer to global or constant memory.
    Bytes(Vec<u8>),
    /// This many bytes of local memory.
    Local(u64),
}

impl Arg {
    /// An address in global or constant memory.
    pub fn pointer(address: u64) -> Self {
        Arg::Bytes(address.to_le_bytes().to_vec())
    }
}

/// The reason why a run ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterpError {
    /// The launch does not fit the kernel.
    Launch(String),
    /// A wrong access to memory.
    Memory {
        /// The error.
        error: MemoryError,
        /// The function.
        function: String,
        /// The instruction's place in the SPIR-V binary, in words.
        word: u32,
    },
    /// An instruction that the interpreter cannot run; `crate::check` refuses it.
    Unsupported {
        /// The instruction's name.
        what: String,
        /// The function.
        function: String,
        /// The instruction's place in the SPIR-V binary, in words.
        word: u32,
    },
    /// The launch took more than [`Launch::step_limit`] instructions.
    StepLimit,
}

impl fmt::Display for InterpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InterpError::Launch(message) => f.write_str(message),
            InterpError::Memory { error, function, word } => {
                write!(f, "word {word} in function {function:?}: {error}")
            }
            InterpError::Unsupported { what, function, word } => {
                write!(f, "word {word} in function {function:?}: cannot run {what}")
            }
            InterpError::StepLimit => f.write_str("the launch took more steps than it may"),
        }
    }
}

impl std::error::Error for InterpError {}

/// The place and size of one work-group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    /// Id per dimension.
    pub id: [u64; 3],
    /// Work-items per dimension; fewer than in a full group at the edges.
    pub size: [u64; 3],
}

/// The places of a kernel's local variables.
pub(crate) struct LocalLayout {
    pub offsets: Vec<(GlobalId, u64)>,
    pub size: u64,
}

/// The arguments of a launch as the kernel sees them.
pub(crate) struct Arguments {
    /// The bytes of each, an address for local memory.
    pub values: Vec<Vec<u8>>,
    /// Local memory of a group, variables and arguments.
    pub local_bytes: u64,
}

impl LocalLayout {
    /// The address of a local variable.
    pub fn address(&self, id: GlobalId) -> Option<u64> {
        // Few kernels have more than a handful.
        let found = self.offsets.iter().find(|(other, _)| other.index() == id.index());
        found.map(|(_, offset)| memory::LOCAL_BASE + offset)
    }
}
