// SPDX-License-Identifier: MIT OR Apache-2.0
//! Record-and-replay graphs: captures, executable graphs, executions.

use std::ptr;

use tally_ze::ze_event_counter_based_flags_t as Flag;
use tally_ze::*;

use crate::lists::{Event, List, NONE, raws};
use crate::ze::Gpu;
use crate::{call, check};

/// A recorded graph, destroyed on drop.
pub struct Graph(pub ze_graph_handle_t);

impl Drop for Graph {
    fn drop(&mut self) {
        let _ = call!(zeGraphDestroyExt(self.0));
    }
}

/// An executable graph, destroyed on drop.
pub struct Executable(pub ze_executable_graph_handle_t);

impl Drop for Executable {
    fn drop(&mut self) {
        let _ = call!(zeExecutableGraphDestroyExt(self.0));
    }
}

/// Begins to capture a list.
pub fn begin(list: &List) {
    check!(zeCommandListBeginGraphCaptureExt(list.0, ptr::null()));
}

/// Ends the capture of a list.
pub fn end(list: &List) -> Graph {
    let mut graph = ze_graph_handle_t::NULL;
    check!(zeCommandListEndGraphCaptureExt(list.0, ptr::null(), &raw mut graph));
    Graph(graph)
}

/// The result of the call that ends a capture, and the graph.
pub fn ended(list: &List) -> (ze_result_t, Graph) {
    let mut graph = ze_graph_handle_t::NULL;
    let code = call!(zeCommandListEndGraphCaptureExt(list.0, ptr::null(), &raw mut graph));
    (code, Graph(graph))
}

/// Creates an executable graph.
pub fn instantiate(graph: &Graph) -> Executable {
    let mut executable = ze_executable_graph_handle_t::NULL;
    check!(zeGraphInstantiateExt(graph.0, ptr::null(), &raw mut executable));
    Executable(executable)
}

/// Appends an execution to a list.
pub fn run(list: &List, graph: &Executable, signal: Option<&Event>, waits: &[&Event]) {
    let mut waits = raws(waits);
    check!(zeCommandListAppendGraphExt(
        list.0,
        graph.0,
        ptr::null(),
        signal.map_or(NONE, |event| event.0),
        waits.len() as u32,
        waits.as_mut_ptr()
    ));
}

/// Whether a list is being captured.
pub fn is_capturing(list: &List) -> bool {
    match call!(zeCommandListIsGraphCaptureEnabledExt(list.0)) {
        ze_result_t::ZE_RESULT_QUERY_TRUE => true,
        ze_result_t::ZE_RESULT_QUERY_FALSE => false,
        other => panic!("{other:?}"),
    }
}

/// A counter-based event for use outside of graphs, too.
pub fn external(gpu: &Gpu) -> Event {
    gpu.cb_event_with(Flag::ZE_EVENT_COUNTER_BASED_FLAG_GRAPH_EXTERNAL)
}

/// A kernel that adds `value` to each word.
pub const KERNEL: &str = "
    kernel void add(global uint *data, uint value)
    {
        data[get_global_id(0)] += value;
    }";
