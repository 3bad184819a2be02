// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of lists: the same commands under numbers of their own, so that what the device tells of one list is not
//! taken for the other one's.

use std::collections::{HashMap, VecDeque};
use std::iter;

use super::lists::{Item, Recording};
use super::{Awaited, Command, Execution, Order, State};
use crate::checks::{calls, log};

impl Order {
    /// Notes copies of recordings, which the current call makes: pairs of a recording and its copy. A wait of one of
    /// them for another one becomes a wait of the copy for the other one's copy. `launch`: the number of a copy of a
    /// launch. Returns the numbers of the copies' commands and launches by those of the sources' commands.
    pub fn recordings_are_copied(
        &self,
        copies: &[(usize, usize)],
        mut launch: impl FnMut(u64) -> u64,
    ) -> HashMap<u32, (u32, u64)> {
        let maker = calls::current().number;
        let mut state = self.state();
        let mut numbers = HashMap::new();
        for &(from, to) in copies {
            let Some(source) = state.recordings.get(&from) else { continue };
            let (list, in_order, items) = (source.maker, source.in_order, source.items.clone());
            let items = items.into_iter().map(|mut item| {
                for number in iter::once(&mut item.number).chain(&mut item.parts.launches) {
                    let copied = state.copy_command(*number, maker, &mut launch);
                    numbers.insert(*number, copied);
                    *number = copied.0;
                }
                item.rename(copies);
                item
            });
            let copy = Recording::of(list, in_order, items.collect());
            state.begin(to, copy);
        }
        numbers
    }
}

impl State {
    /// Adds a copy of a command, which a call makes; returns its number and that of its launch. They are 0 if the
    /// command is not remembered.
    fn copy_command(
        &mut self,
        number: u32,
        maker: u64,
        launch: &mut impl FnMut(u64) -> u64,
    ) -> (u32, u64) {
        let Some(it) = self.command(number) else { return (0, 0) };
        let launch = if it.launch == 0 { 0 } else { launch(it.launch) };
        let &Command { caller, list, captured, in_order, signals, tells, role, .. } = it;
        let new = Command {
            call: it.call.clone(),
            caller,
            list,
            copy: maker,
            captured,
            in_order,
            signals,
            tells,
            role,
            transfers: it.transfers.clone(),
            launch,
            coming: VecDeque::new(),
            current: Execution::NONE,
        };
        let source = (number, it.launch);
        let copy = self.add(new);
        self.accesses.copy(source, (copy, launch));
        log::copy(copy, number);
        (copy, launch)
    }
}

impl Item {
    /// Makes it wait for copies, and execute them, in place of their sources.
    fn rename(&mut self, copies: &[(usize, usize)]) {
        let copy = |of: usize| copies.iter().find(|it| it.0 == of).map_or(of, |it| it.1);
        for wait in &mut self.waits {
            if let Awaited::Recorded { recording, .. } = wait {
                *recording = copy(*recording);
            }
        }
        self.parts.graph.iter_mut().for_each(|it| *it = copy(*it));
    }
}
