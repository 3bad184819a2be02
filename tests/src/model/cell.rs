// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals and resets of regular events, fences and user's words, in the order of submission.

use super::event::{Epoch, EventCell};
use super::order::{Bond, Node};
use super::shared::Shared;
use super::{Model, Refusal};

impl Model {
    pub(super) fn new_cell(&mut self, cell: EventCell) -> usize {
        self.cells.push(Shared::new(cell));
        self.cells.len() - 1
    }

    pub(super) fn signal_cell(&mut self, cell: usize, node: Node) -> Result<(), Refusal> {
        match self.cells[cell].completed() {
            Some(_) if self.cells[cell].timed => {
                return Err(Refusal::Misuse("a second signal replaces the times"));
            }
            Some(signals) => {
                for &signal in signals {
                    self.must_come_before(signal, node)?;
                }
                self.cells[cell].current_mut().signals.push(node);
            }
            None => {
                self.must_come_before(self.cells[cell].current().reset, node)?;
                self.cells[cell].current_mut().signals.push(node);
                let Some(signals) = self.cells[cell].completed().map(<[Node]>::to_vec) else {
                    return Ok(());
                };
                for waiter in self.cells[cell].current().waits.clone() {
                    self.fulfil(&signals, waiter)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn reset_cell(&mut self, cell: usize, node: Node) -> Result<(), Refusal> {
        let epoch = self.cells[cell].current();
        if self.cells[cell].completed().is_none() && !epoch.waits.is_empty() {
            return Err(Refusal::Deadlock);
        }
        let before = self.graph.before(node);
        let ordered = |node: &Node| before.contains(*node);
        if !epoch.signals.iter().chain(&epoch.waits).chain([&epoch.reset]).all(ordered) {
            return Err(Refusal::Unordered);
        }
        self.cells[cell].epochs.push(Epoch { reset: node, signals: Vec::new(), waits: Vec::new() });
        Ok(())
    }

    /// A wait that was submitted before its signals is ordered after them.
    pub(super) fn fulfil(&mut self, signals: &[Node], waiter: Node) -> Result<(), Refusal> {
        for &signal in signals {
            if signal == waiter || self.graph.possibly_before(signal).contains(waiter) {
                return Err(Refusal::Deadlock);
            }
            self.graph.order(signal, waiter, Bond::Ordered);
        }
        if let Some(at) = self.pending.iter().position(|&node| node == waiter) {
            self.pending.swap_remove(at);
        }
        Ok(())
    }

    pub(super) fn must_come_before(&self, first: Node, second: Node) -> Result<(), Refusal> {
        match first == second || self.graph.before(second).contains(first) {
            true => Ok(()),
            false => Err(Refusal::Unordered),
        }
    }
}
