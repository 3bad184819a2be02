// SPDX-License-Identifier: MIT OR Apache-2.0
//! Graphs: commands that were appended to immediate lists while these were captured, and executable copies.
//!
//! ```text
//!  begin: the primary list ─► branch 0          a list that waits for a captured event ─► branch 1, …
//!  end:   all branches close, lists go on as before
//!  instantiate: copies of all branches, with counters of their own, as one `list::graph::Execution`
//! ```
//!
//! A branch is a regular list that replaces an immediate one. Unless some graph is being captured, an append only
//! reads one number in memory for this.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tally_ze::{ze_command_list_handle_t, ze_graph_handle_t, ze_result_t};

use crate::core::context::Context;
use crate::core::queue::QueueTraits;
use crate::error::{Error, Result};
use crate::handle::{Kind, object};
use crate::hang::names;
use crate::list::graph::{Execution, Queued};
use crate::list::regular::Regular;
use crate::log::warn_once;

pub mod capture;
mod dump;
mod nested;

pub use dump::Detail;

/// The state of an immediate list that concerns captures.
#[derive(Default)]
pub struct Membership(Mutex<Option<(Weak<Graph>, usize)>>);

impl Membership {
    fn lock(&self) -> MutexGuard<'_, Option<(Weak<Graph>, usize)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The graph that the list is being captured into, and the number of its branch.
    pub fn find(&self) -> Option<(Arc<Graph>, usize)> {
        self.belongs().filter(|(graph, _)| graph.state().phase == Phase::Capturing)
    }

    /// Like [`Self::find`], but also while the capture is paused.
    pub fn belongs(&self) -> Option<(Arc<Graph>, usize)> {
        let mut member = self.lock();
        let (graph, branch) = member.as_ref()?;
        let graph = graph.upgrade().filter(|it| it.state().phase.is_open());
        if graph.is_none() {
            // The capture has ended for all of its lists.
            *member = None;
            return None;
        }
        Some((graph?, *branch))
    }

    fn join(&self, graph: &Arc<Graph>, branch: usize) {
        *self.lock() = Some((Arc::downgrade(graph), branch));
    }
}

/// A graph.
pub struct Graph {
    context: Arc<Context>,
    /// Whether the application has had the handle since before the capture.
    is_applications: bool,
    state: Mutex<State>,
    /// Number of existing executable graphs of it.
    instances: AtomicUsize,
}

object!(ze_graph_handle_t => Arc<Graph>, Kind::Graph);

#[derive(Default)]
struct State {
    phase: Phase,
    /// The graph's handle, once a capture has begun.
    raw: ze_graph_handle_t,
    /// The list that the capture began with.
    primary: Option<ze_command_list_handle_t>,
    branches: Vec<Branch>,
    /// The point at which an event was last signalled, by the address of the event.
    signals: HashMap<usize, Point>,
    /// Waits for signals of the graph: the point at which each was appended, and the point of the signal.
    waits: Vec<(Point, Point)>,
    nodes: Vec<dump::Node>,
    callbacks: Vec<Callback>,
}

/// The state of a graph.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// Nothing has been captured yet.
    #[default]
    New,
    Capturing,
    /// Commands that are appended meanwhile are submitted. The capture's regular events behave like others.
    Paused,
    Captured,
    /// The reason why it cannot be executed.
    Invalid(&'static str),
}

impl Phase {
    /// Whether a capture has begun and not ended.
    fn is_open(self) -> bool {
        matches!(self, Self::Capturing | Self::Paused)
    }
}

/// A command of a graph.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Point {
    branch: usize,
    /// Its number in the branch.
    command: usize,
}

/// The regular list that replaces an immediate list, or a list of a graph that was appended.
struct Branch {
    list: Arc<Regular>,
    /// For a graph that was appended: lists before it in its queue, which wait for the point at which the
    /// graph begins.
    gates: Vec<Arc<Regular>>,
    traits: QueueTraits,
    in_order: bool,
    /// Number of commands so far.
    commands: usize,
    /// Number of commands up to the last one that does work, or that made the branch.
    work: usize,
}

/// A function of the application that is called when the graph is destroyed.
#[derive(Clone, Copy)]
pub struct Callback {
    /// The function.
    pub function: unsafe extern "C" fn(*mut c_void),
    /// Its argument.
    pub data: *mut c_void,
}

/// Graphs that are being captured. Appends check by `core::list::special` whether there are any.
static CAPTURES: Mutex<Vec<Weak<Graph>>> = Mutex::new(Vec::new());

fn captures() -> Vec<Arc<Graph>> {
    let captures = CAPTURES.lock().unwrap_or_else(PoisonError::into_inner);
    captures.iter().filter_map(Weak::upgrade).collect()
}

impl Graph {
    /// An empty graph, for the application or for a capture.
    pub fn create(context: &Arc<Context>, is_applications: bool) -> Arc<Self> {
        Arc::new(Self {
            context: context.clone(),
            is_applications,
            state: Mutex::default(),
            instances: AtomicUsize::new(0),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the application has had the handle since before the capture.
    pub fn is_applications(&self) -> bool {
        self.is_applications
    }

    /// Its handle; null if nothing was captured.
    pub fn raw(&self) -> ze_graph_handle_t {
        self.state().raw
    }

    /// The list that the capture began with.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: nothing was captured.
    pub fn primary(&self) -> Result<ze_command_list_handle_t> {
        let primary = self.state().primary;
        primary.ok_or_else(|| Error::invalid("hGraph: nothing was captured into the graph"))
    }

    /// Whether it contains no commands.
    ///
    /// # Errors
    /// INVALID_GRAPH.
    pub fn is_empty(&self) -> Result<bool> {
        let state = self.state();
        state.check()?;
        Ok(state.branches.iter().all(|it| it.commands == 0))
    }

    /// Registers a function that is called when the graph is destroyed.
    pub fn on_destruction(&self, callback: Callback) {
        self.state().callbacks.push(callback);
    }

    /// Refuses to end a graph that is being captured.
    ///
    /// # Errors
    /// HANDLE_OBJECT_IN_USE.
    pub fn must_be_free(&self) -> Result {
        if self.state().phase.is_open() {
            let code = ze_result_t::ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE;
            return Err(Error::new(code, "hGraph: it is being captured"));
        }
        // The specification requires that they are destroyed earlier. Intel's driver does not check that, and
        // they have copies of everything that they execute.
        if self.instances.load(Ordering::Relaxed) != 0 {
            warn_once!("hGraph: an executable graph of it was not destroyed");
        }
        Ok(())
    }

    /// Ends the graph, whose handle is destroyed, and calls the registered functions.
    pub fn destroy(&self) {
        let callbacks = std::mem::take(&mut *self.state()).callbacks;
        for Callback { function, data } in callbacks {
            // SAFETY: the application has registered the function to be called with this argument.
            unsafe { function(data) };
        }
    }

    /// An executable copy.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: no capture into it has ended, as Intel's driver answers; INVALID_GRAPH: not completely
    /// captured; out of memory; DEVICE_LOST.
    pub fn instantiate(self: &Arc<Self>, raw: ze_graph_handle_t) -> Result<Executable> {
        let state = self.state();
        state.check()?;
        if state.phase != Phase::Captured {
            return Err(Error::invalid("hGraph: no capture into it has ended"));
        }
        let mut copies = Regular::duplicate_all(&state.lists())?.into_iter();
        let mut branches = state.branches.iter();
        let (Some(first), Some(primary)) = (copies.next(), branches.next()) else {
            return Err(Error::invalid("hGraph: no capture into it has ended"));
        };
        names::name_regular(&first, || format!("graph {:p}", raw.0));
        let mut others = Vec::with_capacity(copies.len());
        for (index, branch) in branches.enumerate() {
            let queue = branch.traits.open(&self.context, true)?;
            let name = || format!("branch {} of graph {:p}", index + 1, raw.0);
            let gates: Vec<_> = copies.by_ref().take(branch.gates.len()).collect();
            let Some(list) = copies.next() else { break };
            names::name_regular(&list, name);
            for gate in &gates {
                names::name_regular(gate, || format!("way to {}", name()));
            }
            names::name_immediate(&queue, || format!("queue of {}", name()));
            others.push(Queued { gates, list, queue });
        }
        self.instances.fetch_add(1, Ordering::Relaxed);
        Ok(Executable {
            source: self.clone(),
            raw,
            traits: primary.traits,
            execution: Execution::new(self.clone(), first, others),
        })
    }
}

impl State {
    /// The lists of all branches, each after its gates. The first branch has no gates.
    fn lists(&self) -> Vec<&Regular> {
        let mut lists = Vec::with_capacity(self.branches.len());
        for branch in &self.branches {
            lists.extend(branch.gates.iter().chain([&branch.list]).map(|it| &**it));
        }
        lists
    }

    fn check(&self) -> Result {
        match self.phase {
            Phase::Invalid(why) => Err(invalid_graph(why)),
            _ => Ok(()),
        }
    }
}

fn invalid_graph(text: &'static str) -> Error {
    Error::new(ze_result_t::ZE_RESULT_ERROR_INVALID_GRAPH, text)
}

// SAFETY: the pointer is only passed to the function, which any thread that destroys the graph may call by
// the application's contract.
unsafe impl Send for Callback {}

/// An executable graph.
pub struct Executable {
    source: Arc<Graph>,
    raw: ze_graph_handle_t,
    traits: QueueTraits,
    execution: Execution,
}

object!(ze_executable_graph_handle_t => Executable, Kind::ExecutableGraph);

impl Executable {
    /// The graph that it was made from.
    pub fn source(&self) -> ze_graph_handle_t {
        self.raw
    }

    /// Its execution for an immediate list.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: the list is not like the one that was captured.
    pub fn for_list(&self, traits: &QueueTraits) -> Result<&Execution> {
        if self.traits.executes_like(traits) {
            return Ok(&self.execution);
        }
        Err(Error::invalid(
            "hCommandList: device, ordinal, order or mode are not those of the list that was captured",
        ))
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        self.source.instances.fetch_sub(1, Ordering::Relaxed);
    }
}
