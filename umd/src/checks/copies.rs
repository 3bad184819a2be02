// SPDX-License-Identifier: MIT OR Apache-2.0
//! What copies of lists have in place of their sources' numbers.

use std::collections::HashMap;

use super::Checks;
use super::cells::Cells;
use super::launches::Words;

/// The copies of commands, by the numbers of the commands.
pub struct Copies(HashMap<u32, Copied>);

/// A copy of a command.
#[derive(Clone, Copy, Debug, Default)]
pub struct Copied {
    /// Its number; 0: the command is not known any more.
    pub number: u32,
    /// The launch, if it is one of a kernel that has checks.
    pub launch: Option<CopiedLaunch>,
}

/// A copy of a launch.
#[derive(Clone, Copy, Debug)]
pub struct CopiedLaunch {
    /// The number by which its kernel names it.
    pub number: u64,
    /// The place of the kernel's words in its block.
    pub words: Words,
}

impl Copies {
    /// The copy of a command.
    pub fn of(&self, number: u32) -> Copied {
        self.0.get(&number).copied().unwrap_or_default()
    }
}

impl Checks {
    /// Notes copies of recordings, which the current call makes: pairs of a recording and its copy. `None`: the order of
    /// commands is not followed, so nothing has a number.
    pub fn recordings_are_copied(&self, copies: &[(usize, usize)]) -> Option<Copies> {
        let order = self.order.as_ref()?;
        let copied = order.recordings_are_copied(copies, |launch| self.launches.again(launch));
        let copied = copied.into_iter().map(|(source, (number, launch))| {
            let words = self.launches.words(launch);
            let of_kernel = words.map(|words| CopiedLaunch { number: launch, words });
            (source, Copied { number, launch: of_kernel })
        });
        Some(Copies(copied.collect()))
    }

    /// The address of a new command's block for a launch, or 0 if none is needed.
    pub fn block(&self) -> u64 {
        self.cells().map_or(0, |_| Cells::block())
    }
}
