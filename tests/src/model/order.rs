// SPDX-License-Identifier: MIT OR Apache-2.0
//! The happens-before graph: which piece of work is complete before which other one starts.

use crate::program::{Cell, Op};

/// A piece of work: a command on the device, or the beginning or end of a host call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub struct Node(u32);

impl Node {
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// The effect of a node on memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// A host call, or a fence: no effect.
    None,
    /// A command.
    Command(Op),
    /// The host reads a cell.
    Read(Cell),
    /// The host writes a cell.
    Write(Cell, u32),
}

/// The reason why one node comes before another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bond {
    /// The specification promises it.
    Ordered,
    /// It is allowed, not guaranteed: both are in one list or queue, and "commands are started in the
    /// same order in which they are appended", so the later may be stuck behind the earlier.
    Queued,
}

/// A set of nodes.
#[derive(Clone, Debug, Default)]
pub struct NodeSet(Vec<u64>);

impl NodeSet {
    fn insert(&mut self, node: Node) -> bool {
        let (word, bit) = (node.index() / 64, 1 << (node.index() % 64));
        let fresh = self.0[word] & bit == 0;
        self.0[word] |= bit;
        fresh
    }

    /// Whether the node is in the set.
    pub fn contains(&self, node: Node) -> bool {
        self.0.get(node.index() / 64).is_some_and(|word| word >> (node.index() % 64) & 1 == 1)
    }
}

#[derive(Clone, Copy)]
struct Edge {
    before: Node,
    bond: Bond,
    /// The next edge that ends in the same node: one past its index, 0 for none.
    next: u32,
}

/// The graph. Flat vectors, since the generator copies it for each step that it tries.
#[derive(Clone, Default)]
pub struct Graph {
    work: Vec<Work>,
    /// For each node its newest incoming edge: one past its index, 0 for none.
    incoming: Vec<u32>,
    edges: Vec<Edge>,
}

impl Graph {
    /// Adds a node that is ordered after no other.
    pub fn add(&mut self, work: Work) -> Node {
        let node = Node(u32::try_from(self.work.len()).expect("programs are small"));
        self.work.push(work);
        self.incoming.push(0);
        node
    }

    /// Changes the effect of a node.
    pub fn set_work(&mut self, node: Node, work: Work) {
        self.work[node.index()] = work;
    }

    /// The effect of a node.
    pub fn work(&self, node: Node) -> Work {
        self.work[node.index()]
    }

    /// All commands.
    pub fn commands(&self) -> impl Iterator<Item = Node> + '_ {
        let is_command = |&index: &usize| matches!(self.work[index], Work::Command(_));
        (0..self.work.len()).filter(is_command).map(|index| Node(index as u32))
    }

    /// `before` is complete before `after` starts.
    pub fn order(&mut self, before: Node, after: Node, bond: Bond) {
        let next = std::mem::replace(
            &mut self.incoming[after.index()],
            u32::try_from(self.edges.len() + 1).expect("programs are small"),
        );
        self.edges.push(Edge { before, bond, next });
    }

    fn incoming(&self, node: Node) -> impl Iterator<Item = Edge> + '_ {
        let edge_at = |at: u32| at.checked_sub(1).map(|index| self.edges[index as usize]);
        std::iter::successors(edge_at(self.incoming[node.index()]), move |edge| edge_at(edge.next))
    }

    /// All nodes that are guaranteed to be complete before the given one starts.
    pub fn before(&self, node: Node) -> NodeSet {
        self.reach(node, |edge| edge.bond == Bond::Ordered)
    }

    /// All nodes that may have to be complete before the given one starts.
    pub fn possibly_before(&self, node: Node) -> NodeSet {
        self.reach(node, |_| true)
    }

    fn reach(&self, node: Node, follow: impl Fn(&Edge) -> bool) -> NodeSet {
        let mut seen = NodeSet(vec![0; self.work.len().div_ceil(64)]);
        let mut open = vec![node];
        while let Some(node) = open.pop() {
            for edge in self.incoming(node).filter(&follow) {
                if seen.insert(edge.before) {
                    open.push(edge.before);
                }
            }
        }
        seen
    }

    /// One of the sequences that the guaranteed order allows: `pick(n)` chooses one of n nodes that may
    /// come next. It leaves out nodes in a cycle and everything after them.
    pub fn sequence(&self, mut pick: impl FnMut(usize) -> usize) -> Vec<Node> {
        let nodes = || (0..self.work.len()).map(|index| Node(index as u32));
        let mut missing = vec![0; self.work.len()];
        let mut followers = vec![Vec::new(); self.work.len()];
        for node in nodes() {
            for edge in self.incoming(node).filter(|edge| edge.bond == Bond::Ordered) {
                missing[node.index()] += 1;
                followers[edge.before.index()].push(node);
            }
        }
        let mut ready: Vec<Node> = nodes().filter(|node| missing[node.index()] == 0).collect();
        let mut sequence = Vec::with_capacity(self.work.len());
        while !ready.is_empty() {
            let node = ready.swap_remove(pick(ready.len()));
            sequence.push(node);
            for &follower in &followers[node.index()] {
                missing[follower.index()] -= 1;
                if missing[follower.index()] == 0 {
                    ready.push(follower);
                }
            }
        }
        sequence
    }
}
