// SPDX-License-Identifier: MIT OR Apache-2.0
//! A log of the application's calls that wrote the packets of a list.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::host_waits::current;

/// Names of functions; logs keep indices into it.
static FUNCTIONS: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

fn functions() -> MutexGuard<'static, Vec<&'static str>> {
    FUNCTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The most commands that a list remembers; beyond that it forgets the first ones.
const KEPT: usize = 1 << 20;
/// Bits for the function in the word of a command; the other bits count its packets.
const FUNCTION_BITS: u32 = 8;
const FUNCTION: u32 = (1 << FUNCTION_BITS) - 1;

/// The number of packets of a command that is not the last one.
fn packets(word: u32) -> u64 {
    u64::from(word >> FUNCTION_BITS)
}

/// The commands of a list, one word each: the function and the number of packets that it wrote.
#[derive(Clone, Debug, Default)]
pub struct CallLog {
    words: VecDeque<u32>,
    /// Number of commands that were forgotten.
    forgotten: u64,
    /// Number of the first packet of the first command that is kept.
    first: u64,
    /// Number of the first packet of the last command.
    last: u64,
}

impl CallLog {
    /// Notes that the current call begins to append a command, with packet number `start`.
    #[cold]
    pub fn note(&mut self, start: u64) {
        self.push(current(), start);
    }

    /// Removes the last command, which was not appended after all.
    #[cold]
    pub fn undo(&mut self) {
        self.words.pop_back();
        self.last -= self.words.back().map_or(0, |word| packets(*word));
    }

    fn push(&mut self, name: &'static str, start: u64) {
        let mut functions = functions();
        let known = functions.iter().position(|it| *it == name);
        let function = known.unwrap_or_else(|| {
            functions.push(name);
            functions.len() - 1
        });
        drop(functions);
        match self.words.back_mut() {
            Some(word) => {
                let packets = start
                    .saturating_sub(self.last)
                    .min(u64::from(u32::MAX >> FUNCTION_BITS)) as u32;
                *word = *word & FUNCTION | packets << FUNCTION_BITS;
            }
            None => self.first = start,
        }
        self.last = start;
        self.words.push_back(function as u32 & FUNCTION);
        if self.words.len() > KEPT
            && let Some(word) = self.words.pop_front()
        {
            self.first += packets(word);
            self.forgotten += 1;
        }
    }

    /// The function that wrote a packet, and the number of the packet's command in the list, from 1.
    pub fn find(&self, packet: u64) -> Option<(&'static str, u64)> {
        let mut end = self.first;
        let count = self.words.len();
        for (i, word) in self.words.iter().enumerate() {
            let start = end;
            end = if i + 1 == count { u64::MAX } else { end + packets(*word) };
            if (start..end).contains(&packet) {
                let name = functions().get((word & FUNCTION) as usize).copied()?;
                return Some((name, self.forgotten + i as u64 + 1));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_leads_to_its_call_and_the_commands_place() {
        let mut calls = CallLog::default();
        calls.push("zeA", 0);
        calls.push("zeB", 2);
        calls.push("zeC", 2);
        calls.undo();
        calls.push("zeB", 2);
        calls.push("zeA", 5);
        let found: Vec<_> = (0..6).map(|packet| calls.find(packet)).collect();
        let (a, b, last) = (Some(("zeA", 1)), Some(("zeB", 3)), Some(("zeA", 4)));
        assert_eq!(found, [a, a, b, b, b, last]);
    }

    #[test]
    fn a_list_remembers_its_last_commands() {
        let mut calls = CallLog::default();
        let count = KEPT as u64 + 10;
        (0..count).for_each(|start| calls.push("zeA", start));
        assert_eq!(calls.find(9), None);
        assert_eq!(calls.find(10), Some(("zeA", 11)));
        assert_eq!(calls.find(count - 1), Some(("zeA", count)));
    }
}
