// SPDX-License-Identifier: MIT OR Apache-2.0
//! Graphs in graphs: an executable graph that is appended to a list under capture.
//!
//! ```text
//!  branch    ── command ── place ───────────────────── wait for the ends ── command ──
//!                            └─► gate ── copy of a list ──┘
//!                            └─► gate ── copy of a list ──┘   one for each list of the graph
//! ```
//!
//! The graph becomes part of the other one: copies of its lists are branches of that one, with queues of their
//! own. A gate in front of each copy delays it until the branch has reached the point, and the branch continues
//! when all copies have ended. So the appended graph is not needed any more, and executions of the two graphs are
//! independent.

use std::sync::Arc;

use super::capture::unsupported;
use super::{Branch, Graph, Phase};
use crate::error::Result;
use crate::list::command::Command;
use crate::list::graph::Execution;
use crate::list::regular::Regular;
use crate::list::target::Signal;
use crate::list::waits::WaitList;

impl Graph {
    /// Makes a graph part of this one, at the end of a branch, and returns the new branches. The caller still
    /// has to append the signal.
    ///
    /// # Errors
    /// GRAPH_CAPTURE_UNSUPPORTED: the branch is out of order, or the graph another context's or destroyed; those of
    /// the waits and of the signal; out of memory.
    pub(super) fn nest(
        &self,
        into: &Branch,
        execution: &Execution,
        signal: Option<&Signal<'_>>,
        waits: WaitList<'_, '_>,
    ) -> Result<Vec<Branch>> {
        if !into.in_order {
            return Err(unsupported(
                "hCommandList: a graph is appended to in-order lists only while they are captured"
                    .to_owned(),
            ));
        }
        signal.map_or(Ok(()), |it| into.list.may_signal(it))?;
        let source = execution.source().downcast::<Self>().ok();
        let source =
            source.filter(|it| Arc::ptr_eq(&it.context, &self.context)).ok_or_else(|| {
                unsupported(
                    "hGraph: it is of another context than the graph that is captured".to_owned(),
                )
            })?;
        let source = source.state();
        if source.phase != Phase::Captured {
            return Err(unsupported(
                "hGraph: the graph from which it was made was destroyed".to_owned(),
            ));
        }
        let mut copies = Regular::duplicate_all(&source.lists())?.into_iter();
        let mut nested = Vec::with_capacity(source.branches.len());
        for of in &source.branches {
            let gate = Regular::branch(self.context.shared().clone(), true, false)?;
            let gates = [gate].into_iter().chain(copies.by_ref().take(of.gates.len())).collect();
            let Some(list) = copies.next() else { break };
            let (traits, in_order) = (of.traits, of.in_order);
            nested.push(Branch { list, gates, traits, in_order, commands: 0, work: 0 });
        }
        into.list.append(&Command::Barrier, None, waits)?;
        let place = into.list.signal_count();
        for gate in nested.iter().filter_map(|it| it.gates.first()) {
            gate.follow(&[(&into.list, place)])?;
        }
        let ends: Vec<_> = nested.iter().map(|it| (&*it.list, it.list.signal_count())).collect();
        into.list.follow(&ends)?;
        Ok(nested)
    }
}
