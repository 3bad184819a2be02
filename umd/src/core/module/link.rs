// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links modules that import from each other.
//!
//! This file decides by name which module an import refers to. The compiler then rebuilds the importing module
//! with the functions that it calls, and its code uses the variables in the memory of the other modules. A link
//! is complete or changes nothing.

use std::collections::HashMap;
use std::sync::Arc;

use tally_compiler_protocol::Link;
use tally_ze::ze_result_t;

use super::Module;
use super::build::{Build, Graph};
use super::globals::Unit;
use super::origin::{Origin, Part};
use crate::checks;
use crate::error::{Error, Result};

/// Links modules. The second part of the result is the log: a line for each unresolved import, or the
/// compiler's message.
pub fn link(modules: &[&Arc<Module>]) -> (Result, String) {
    let mut set: Vec<&Arc<Module>> = Vec::new();
    for module in modules {
        if !set.iter().any(|other| Arc::ptr_eq(other, module)) {
            set.push(module);
        }
    }
    let mut log = String::new();
    let tables: Vec<_> = set.iter().map(|module| table(&set, module, &mut log)).collect();
    if !log.is_empty() {
        return (Err(failure(&log)), log);
    }
    let mut built = Vec::new();
    for (i, module) in set.iter().enumerate().filter(|(_, module)| module.needs_link()) {
        let graph = graph(&set, &tables, i);
        let parts = graph
            .iter()
            .map(|(unit, links)| Part { inputs: unit.inputs.clone(), links: links.clone() });
        let target = module.context().device().target();
        match Origin::compile(parts.collect(), target, checks::of_kernels()) {
            (Ok((origin, info)), remarks) => {
                log += &remarks;
                built.push((module, Build { info, origin, graph }));
            }
            (Err(error), why) => {
                return (Err(Error::new(LINK_FAILURE, error.text().to_owned())), why);
            }
        }
    }
    let prepared = built
        .into_iter()
        .map(|(module, build)| Ok((module, module.prepare_link(build)?)))
        .collect::<Result<Vec<_>>>();
    match prepared {
        Ok(prepared) => {
            prepared.into_iter().for_each(|(module, link)| module.set_linked(link));
            (Ok(()), log)
        }
        Err(error) => (Err(error), log),
    }
}

const LINK_FAILURE: ze_result_t = ze_result_t::ZE_RESULT_ERROR_MODULE_LINK_FAILURE;

fn failure(log: &str) -> Error {
    Error::new(LINK_FAILURE, format!("phModules: {}", log.trim_end()))
}

/// Lists for each import of a module the index of the module in the set that defines it. Logs imports
/// that no module defines, or more than one.
fn table(set: &[&Arc<Module>], module: &Arc<Module>, log: &mut String) -> Vec<(String, usize)> {
    let mut table = Vec::new();
    if !module.needs_link() {
        return table;
    }
    for import in &module.own_info().imports {
        match definition(set, &import.name) {
            Found::One(index) => table.push((import.name.clone(), index)),
            Found::None => *log += &format!("{}: no module defines it\n", import.name),
            Found::Several(n) => *log += &format!("{}: {n} modules define it\n", import.name),
        }
    }
    table
}

/// The definition of a name.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// There is none.
    None,
    /// In one module, or in several with equal definitions, of which this is the first.
    One(usize),
    /// In this number of modules.
    Several(usize),
}

/// The module of a set that exports a name.
pub fn definition(set: &[&Arc<Module>], name: &str) -> Found {
    let exports = set.iter().enumerate().filter_map(|(i, module)| {
        module.own_info().exports.iter().find(|it| it.name == name).map(|it| (i, it.once))
    });
    choose(exports.collect())
}

/// Chooses among definitions, each with whether it allows others beside it (`LinkOnceODR`).
fn choose(found: Vec<(usize, bool)>) -> Found {
    let mut only = found.iter().filter(|(_, once)| !once);
    match (only.next(), only.count()) {
        (Some(&(i, _)), 0) => Found::One(i),
        (Some(_), more) => Found::Several(more + 1),
        (None, _) => found.first().map_or(Found::None, |&(i, _)| Found::One(i)),
    }
}

/// Everything that module `first` of a set reaches by imports, itself first.
fn graph(set: &[&Arc<Module>], tables: &[Vec<(String, usize)>], first: usize) -> Graph {
    let mut reached = Reached::default();
    reached.number(Node::of(set, first));
    // A work list instead of recursion, since chains of imports may be long.
    let mut next = 0;
    while let Some(&node) = reached.nodes.get(next) {
        let links = match node {
            Node::Open(_, index) => tables[index]
                .iter()
                .map(|(name, target)| reached.link(name, Node::of(set, *target)))
                .collect(),
            // Linked before: its imports keep the meaning that they had then.
            Node::Linked(graph, index) => graph[index]
                .1
                .iter()
                .map(|link| reached.link(&link.name, Node::Linked(graph, link.object as usize)))
                .collect(),
        };
        reached.graph[next].1 = links;
        next += 1;
    }
    reached.graph
}

/// A module that a link reaches.
#[derive(Clone, Copy)]
enum Node<'a> {
    /// A module that is being linked, by its index in the set.
    Open(&'a Arc<Unit>, usize),
    /// A unit of an earlier link.
    Linked(&'a Graph, usize),
}

impl<'a> Node<'a> {
    fn of(set: &[&'a Arc<Module>], index: usize) -> Self {
        let module = set[index];
        match module.linked_graph() {
            Some(graph) => Self::Linked(graph, 0),
            None => Self::Open(module.unit(), index),
        }
    }

    fn unit(self) -> &'a Arc<Unit> {
        match self {
            Self::Open(unit, _) => unit,
            Self::Linked(graph, index) => &graph[index].0,
        }
    }
}

/// The graph under construction.
#[derive(Default)]
struct Reached<'a> {
    graph: Graph,
    /// The source of each unit's links, in the graph's order.
    nodes: Vec<Node<'a>>,
    /// The number of each unit, by its address.
    numbers: HashMap<*const Unit, u32>,
}

impl<'a> Reached<'a> {
    /// The number of a node, which is added if it is new.
    fn number(&mut self, node: Node<'a>) -> u32 {
        let unit = node.unit();
        *self.numbers.entry(Arc::as_ptr(unit)).or_insert_with(|| {
            self.graph.push((unit.clone(), Vec::new()));
            self.nodes.push(node);
            (self.nodes.len() - 1) as u32
        })
    }

    fn link(&mut self, name: &str, node: Node<'a>) -> Link {
        Link { name: name.to_owned(), object: self.number(node) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "Modules cannot have ambiguous import dependencies".
    #[test]
    fn a_name_means_one_definition_or_several_alike() {
        assert_eq!(choose(vec![]), Found::None);
        assert_eq!(choose(vec![(3, false)]), Found::One(3));
        assert_eq!(choose(vec![(1, true), (2, true)]), Found::One(1));
        assert_eq!(choose(vec![(1, true), (2, false)]), Found::One(2));
        assert_eq!(choose(vec![(1, false), (2, true), (4, false)]), Found::Several(2));
    }
}
