// SPDX-License-Identifier: MIT OR Apache-2.0
//! Graphs as text in the DOT language: a node for each command, and an edge for each wait.

use std::fmt::Write;

use super::{Graph, Point};
use crate::core::kernel::Launched;
use crate::error::Result;
use crate::list::command::Command;
use crate::list::launch::Groups;

/// The level of detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// A name for each command.
    Simple,
    /// Names and arguments.
    Full,
}

/// A command, for the readable text.
pub(super) struct Node {
    at: Point,
    name: String,
    details: Vec<String>,
}

impl Node {
    pub(super) fn new(at: Point, command: &Command<'_>, launched: Option<Launched<'_>>) -> Self {
        let mut details = Vec::new();
        let name = match (command.itself(), launched) {
            (Command::Launch(_), Some(launched)) => kernel(launched, &mut details),
            _ => describe(command, &mut details).to_owned(),
        };
        Self { at, name, details }
    }
}

/// The name of a kernel; its sizes and arguments.
fn kernel((kernel, launch, groups): Launched<'_>, details: &mut Vec<String>) -> String {
    match groups {
        Groups::Direct([x, y, z]) => details.push(format!("groups {x} x {y} x {z}")),
        Groups::Cooperative([x, y, z]) => {
            details.push(format!("cooperative groups {x} x {y} x {z}"))
        }
        Groups::Indirect(at) => details.push(format!("groups at {at:#x}")),
    }
    let [x, y, z] = launch.group_size;
    details.push(format!("group size {x} x {y} x {z}"));
    for (index, arg) in kernel.info().args.iter().enumerate() {
        let mut text = format!("argument {index}");
        for part in [&arg.type_name, &arg.name] {
            if !part.is_empty() {
                text.push(' ');
                text.push_str(part);
            }
        }
        let (start, size) = (arg.offset as usize, arg.size as usize);
        let bytes = launch.args.get(start..start.saturating_add(size)).unwrap_or_default();
        text.push_str(" = 0x");
        for byte in bytes.iter().rev() {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
        }
        details.push(text);
    }
    launch.name.to_string()
}

fn describe(command: &Command<'_>, details: &mut Vec<String>) -> &'static str {
    match command {
        Command::Wait => "wait",
        Command::Barrier => "barrier",
        Command::Signal => "signal",
        Command::Reset(_) => "reset of an event",
        Command::Copy { dst, src, size } => {
            details.push(format!("{size} bytes from {src:#x} to {dst:#x}"));
            "copy"
        }
        Command::CopyRegion { dst, src, shape } => {
            let (x, y, z) = (shape.width, shape.height, shape.depth);
            details.push(format!("{x} x {y} x {z} bytes from {src:#x} to {dst:#x}"));
            "copy of a region"
        }
        Command::Fill { dst, size, pattern } => {
            details.push(format!("{size} bytes at {dst:#x}, pattern of {}", pattern.len()));
            "fill"
        }
        Command::Clock(dst) => {
            details.push(format!("to {dst:#x}"));
            "global timestamp"
        }
        Command::Times(times) => {
            details.push(format!("of {} events", times.len()));
            "kernel timestamps"
        }
        Command::Launch(_) => "kernel",
        Command::Launches { launches, .. } => {
            details.push(format!("at most {}", launches.len()));
            "kernels"
        }
        Command::Lists(_) => "command lists",
        Command::Graph(_) => "graph",
        Command::HostFunction(_) => "host function",
        Command::SignalSemaphores(_) => "semaphores' signal",
        Command::WaitSemaphores(_) => "semaphores' wait",
        Command::Together { main, .. } => describe(main, details),
        Command::Number(_) => "number",
    }
}

impl Graph {
    /// The graph in the DOT language.
    ///
    /// # Errors
    /// INVALID_GRAPH.
    pub fn dot(&self, detail: Detail) -> Result<String> {
        let state = self.state();
        state.check()?;
        let mut text = String::from("digraph graph_ {\n    node [shape=box];\n");
        let id = |at: &Point| format!("c{}_{}", at.branch, at.command);
        for (number, branch) in state.branches.iter().enumerate() {
            let order = if branch.in_order { "in order" } else { "out of order" };
            let (_, group) = (number, branch.traits.ordinal);
            let _ = write!(
                text,
                "    subgraph cluster_{number} {{\n        label=\"list {number}, group {group}, {order}\";\n"
            );
            for node in state.nodes.iter().filter(|it| it.at.branch == number) {
                let mut label = escaped(&node.name);
                if detail == Detail::Full {
                    for line in &node.details {
                        label.push_str("\\n");
                        label.push_str(&escaped(line));
                    }
                }
                let _ = writeln!(text, "        {} [label=\"{label}\"];", id(&node.at));
            }
            text.push_str("    }\n");
            if branch.in_order {
                for command in 1..branch.commands {
                    let before = Point { branch: number, command: command - 1 };
                    let after = Point { branch: number, command };
                    let _ = writeln!(text, "    {} -> {};", id(&before), id(&after));
                }
            }
        }
        for (at, from) in &state.waits {
            let _ = writeln!(text, "    {} -> {} [style=dashed];", id(from), id(at));
        }
        text.push_str("}\n");
        Ok(text)
    }
}

/// Escapes a text for a quoted string of DOT.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', " ")
}
