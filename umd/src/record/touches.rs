// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which memory commands may write, as far as that is known: what else changes while they run is the host's.
//!
//! With one thread it makes no difference, since that thread is in a call until the device is done. Another thread may
//! write other memory meanwhile.

use std::collections::{BTreeSet, HashMap};

use super::memory::Memory;
use crate::recording::Value;
use crate::recording::calls::{Arg, Row};

/// First addresses of allocations.
#[derive(Clone, Debug, Default)]
pub struct Touches {
    /// Any allocation: kernels may follow pointers in memory, or the command does not say.
    pub all: bool,
    /// These.
    pub bases: BTreeSet<u64>,
    /// Start and end of ranges in others.
    pub ranges: BTreeSet<(u64, u64)>,
}

impl Touches {
    /// Adds others.
    pub fn extend(&mut self, other: &Self) {
        self.all |= other.all;
        self.bases.extend(&other.bases);
        self.ranges.extend(&other.ranges);
    }

    /// Whether an allocation is one of them.
    pub fn contains(&self, base: u64) -> bool {
        self.all || self.bases.contains(&base)
    }

    /// Adds the allocations to which words of a value point.
    fn add_pointers(&mut self, value: &Value, memory: &Memory) {
        let Value::Bytes(bytes) = value else { return };
        for word in bytes.0.chunks_exact(8) {
            let word = word.try_into().map_or(0, u64::from_le_bytes);
            self.bases.extend(memory.base_of(word));
        }
    }
}

/// What is known of kernels.
#[derive(Default)]
pub struct Kernels {
    known: HashMap<u32, Kernel>,
    /// Events whose counter is a word of the application's memory that a command raises which signals them.
    words: HashMap<u32, u64>,
}

#[derive(Default)]
struct Kernel {
    args: HashMap<u64, Touches>,
    /// The program says that it follows pointers in memory.
    indirect: bool,
}

impl Kernels {
    /// Takes note of a successful call that changes a kernel.
    pub fn note(&mut self, row: &Row, kernel: u32, values: &[Value], memory: &Memory) {
        match (row.name, values) {
            ("zeKernelSetArgumentValue", [_, Value::Word(index), _, value]) => {
                let mut touches = Touches::default();
                touches.add_pointers(value, memory);
                self.known.entry(kernel).or_default().args.insert(*index & 0xffff_ffff, touches);
            }
            ("zeKernelSetIndirectAccess", [_, Value::Word(flags)]) => {
                self.known.entry(kernel).or_default().indirect = *flags as u32 != 0;
            }
            ("zeKernelDestroy", _) => drop(self.known.remove(&kernel)),
            _ => {}
        }
    }

    /// Notes where the counter of an event is.
    pub fn has_counter(&mut self, event: u32, word: u64) {
        self.words.insert(event, word);
    }

    /// What a command that is appended may write.
    pub fn of_command(&self, row: &Row, values: &[Value], memory: &Memory) -> Touches {
        // The application's memory may be an image's.
        let mut touches = Touches { all: row.name.contains("Image"), ..Touches::default() };
        let mut launches = |value: &Value| {
            if let Value::Object(number) = value
                && let Some(kernel) = self.known.get(number)
            {
                touches.all |= kernel.indirect;
                kernel.args.values().for_each(|it| touches.extend(it));
            }
        };
        if row.name.contains("Launch") {
            for value in values {
                match value {
                    Value::List(list) => list.iter().for_each(&mut launches),
                    value => launches(value),
                }
            }
        }
        for (arg, value) in row.args.iter().zip(values) {
            match (arg, value) {
                (Arg::Written(_), &Value::Memory(address, bytes))
                    if memory.base_of(address).is_some() =>
                {
                    touches.ranges.insert((address, address.saturating_add(bytes)));
                }
                // Its signal.
                (Arg::Event | Arg::Subject, Value::Object(number)) => {
                    let words = self.words.get(number);
                    touches.ranges.extend(words.map(|&word| (word, word + 8)));
                }
                (Arg::Special, Value::List(list)) => {
                    list.iter().for_each(|value| touches.add_pointers(value, memory));
                }
                _ => {}
            }
        }
        touches
    }
}
