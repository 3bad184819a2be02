// SPDX-License-Identifier: MIT OR Apache-2.0
//! The path of a vector of work-items through a control-flow graph.
//!
//! Blocks are run in one order ([`order`]): a later block waits for the earlier ones, and a loop is
//! contiguous. If the items of a vector diverge at a branch, all targets that some of them take become
//! *pending*, and the first of them in the order is run, with its items (its *mask*); the others follow
//! at its end. If all items take the same target, the branch stays a branch. This is partial
//! linearisation (Moll and Hack, "Partial control-flow linearization", 2018).
//!
//! A loop that items leave at different times is *masked*: it is run until no item is left in it, and
//! everything behind it is pending meanwhile. Its *latch* has a place of its own in the order.
//!
//! Many blocks are run by exactly the items of an earlier one, their *leader*: no mask is kept for
//! them.

use std::collections::BTreeSet;

use super::refusal::Refusal;
use crate::ir::arena::Id;
use crate::ir::{BlockId, Dominators, ENTRY, Function, Terminator};
use crate::regions::order;

/// A place in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Block(BlockId),
    /// The end of a loop.
    Latch(usize),
}

/// A loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loop {
    /// The block that it is entered at.
    pub(super) header: BlockId,
    /// The place of its first block and of its latch.
    pub(super) first: usize,
    pub(super) latch: usize,
    /// The loop around it.
    pub(super) parent: Option<usize>,
    /// Whether items leave it at different times.
    pub(super) masked: bool,
}

/// The path of a vector through a function.
pub(super) struct Flow {
    pub(super) order: Vec<Node>,
    /// The place of each block.
    pub(super) place: Vec<usize>,
    pub(super) loops: Vec<Loop>,
    /// The innermost loop of each block.
    pub(super) within: Vec<Option<usize>>,
    /// The blocks that lead to each block.
    pub(super) predecessors: Vec<Vec<BlockId>>,
    /// The block whose mask a block has; a block that leads itself has one of its own.
    pub(super) leader: Vec<BlockId>,
    /// The block whose mask enters a masked loop, if that is known.
    pub(super) entry_leader: Vec<Option<BlockId>>,
    /// The blocks that may be pending at each place, without the place itself.
    pub(super) pending: Vec<BTreeSet<usize>>,
    /// Whether a place may become pending while another is run.
    pub(super) deferred: Vec<bool>,
    /// Whether control reaches a place.
    pub(super) reached: Vec<bool>,
    dominators: Dominators,
    /// Blocks that must have masks of their own, regardless of the analysis.
    own: BTreeSet<BlockId>,
    /// For each block, the later blocks that are run by exactly its items.
    equals: Vec<Vec<BlockId>>,
}

/// A reason to restart the analysis.
enum Again {
    Masked(usize),
    Own(BlockId),
}

impl Flow {
    /// The path through `function` if no items diverge.
    pub(super) fn new(function: &Function) -> Result<Self, Refusal> {
        let nest = order::nest(function);
        if nest.too_deep {
            return Err(Refusal::new("loops lie within each other too deeply"));
        }
        let count = function.blocks.len();
        let (mut order, mut place) = (Vec::new(), vec![usize::MAX; count]);
        let mut loops: Vec<Loop> = Vec::new();
        let mut within = vec![None; count];
        let mut open: Vec<usize> = Vec::new();
        let mut starts = nest.loops.iter().peekable();
        for (index, &block) in nest.order.iter().enumerate() {
            while let Some(&&(first, last)) = starts.peek()
                && first == index
            {
                let parent = open.last().copied();
                // The latch's place is not known yet; the last block's index stands in for it.
                loops.push(Loop {
                    header: block,
                    first: order.len(),
                    latch: last,
                    parent,
                    masked: false,
                });
                open.push(loops.len() - 1);
                starts.next();
            }
            place[block.index()] = order.len();
            within[block.index()] = open.last().copied();
            order.push(Node::Block(block));
            while let Some(&inner) = open.last()
                && loops[inner].latch == index
            {
                loops[inner].latch = order.len();
                order.push(Node::Latch(inner));
                open.pop();
            }
        }
        let predecessors = function.predecessors();
        let dominators = Dominators::of(function, &predecessors);
        let places = order.len();
        let flow = Self {
            order,
            place,
            loops,
            within,
            predecessors,
            leader: vec![ENTRY; count],
            entry_leader: Vec::new(),
            pending: vec![BTreeSet::new(); places],
            deferred: vec![false; places],
            reached: vec![false; places],
            dominators,
            own: BTreeSet::new(),
            equals: vec![Vec::new(); count],
        };
        for (id, block) in function.blocks.iter() {
            for next in block.terminator.successors() {
                let enters =
                    |&index: &usize| !flow.contains(index, id) && flow.loops[index].header != next;
                if flow.around(next).any(|index| enters(&index)) {
                    return Err(Refusal::new("a loop has several entries"));
                }
            }
        }
        Ok(flow)
    }

    /// The loops around a block, the innermost first.
    pub(super) fn around(&self, block: BlockId) -> impl Iterator<Item = usize> + '_ {
        let mut next = self.within[block.index()];
        std::iter::from_fn(move || {
            let this = next?;
            next = self.loops[this].parent;
            Some(this)
        })
    }

    /// Whether no other loop lies in a loop.
    pub(super) fn is_innermost(&self, index: usize) -> bool {
        self.loops.iter().all(|it| it.parent != Some(index))
    }

    /// Whether a loop contains a block.
    pub(super) fn contains(&self, index: usize, block: BlockId) -> bool {
        let place = self.place[block.index()];
        self.loops[index].first <= place && place < self.loops[index].latch
    }

    /// The blocks of a loop, in their order.
    pub(super) fn blocks_of(&self, index: usize) -> impl Iterator<Item = BlockId> + '_ {
        let Loop { first, latch, .. } = self.loops[index];
        self.order[first..latch].iter().filter_map(|node| match node {
            Node::Block(block) => Some(*block),
            Node::Latch(_) => None,
        })
    }

    /// Whether all paths to `below` pass `above`, which may be the same block.
    pub(super) fn dominates(&self, above: BlockId, below: BlockId) -> bool {
        self.dominators.dominates(above, below)
    }

    /// The innermost masked loop around a block.
    pub(super) fn masked_around(&self, block: BlockId) -> Option<usize> {
        self.around(block).find(|&index| self.loops[index].masked)
    }

    /// The innermost masked loop around a block; a loop's header does not count as inside it.
    fn outer_masked(&self, block: BlockId) -> Option<usize> {
        self.around(block)
            .filter(|&index| self.loops[index].header != block)
            .find(|&index| self.loops[index].masked)
    }

    /// Whether items that arrive by an edge may meet others that have arrived by another edge, or by the
    /// same one at another time.
    pub(super) fn mixes(&self, from: BlockId, to: BlockId) -> bool {
        if let Some(index) = self.back_edge(from, to) {
            let back = self.predecessors[to.index()].iter();
            let back = back.filter(|&&from| self.back_edge(from, to).is_some()).count();
            return self.leaves_masked(from, to) || self.loops[index].masked && back > 1;
        }
        let several = self.forward(to).nth(1).is_some();
        self.leaves_masked(from, to) || several && self.deferred[self.place[to.index()]]
    }

    /// Whether an edge leads out of a masked loop, so that items take it at different times. It may be the back edge of a
    /// loop around that.
    pub(super) fn leaves_masked(&self, from: BlockId, to: BlockId) -> bool {
        let around = match self.back_edge(from, to) {
            Some(_) => self.masked_around(to),
            None => self.outer_masked(to),
        };
        self.masked_around(from) != around
    }

    /// The loop whose back edge an edge is.
    pub(super) fn back_edge(&self, from: BlockId, to: BlockId) -> Option<usize> {
        self.around(from).find(|&index| self.loops[index].header == to)
    }

    /// The predecessors of `block` without back edges.
    pub(super) fn forward(&self, block: BlockId) -> impl Iterator<Item = BlockId> + '_ {
        let from = self.predecessors[block.index()].iter().copied();
        from.filter(move |&from| self.back_edge(from, block).is_none())
    }

    /// The later blocks that are run by exactly the items of this one.
    pub(super) fn equals_of(&self, block: BlockId) -> &[BlockId] {
        &self.equals[block.index()]
    }

    /// Whether a block is the header of a masked loop.
    pub(super) fn back_edges_are_masked(&self, block: BlockId) -> bool {
        self.within[block.index()]
            .is_some_and(|index| self.loops[index].masked && self.loops[index].header == block)
    }

    /// Computes the path for items that diverge at the ends of the blocks in `divergent`.
    pub(super) fn update(&mut self, function: &Function, divergent: &[bool]) {
        loop {
            self.find_leaders(function, divergent);
            let again = self.mask_loops(function, divergent).or_else(|| {
                let mut way = Way::new(self, function, divergent);
                let again = way.walk();
                let Way { pending, deferred, reached, .. } = way;
                (self.pending, self.deferred, self.reached) = (pending, deferred, reached);
                again
            });
            match again {
                None => return,
                Some(Again::Masked(index)) => self.loops[index].masked = true,
                Some(Again::Own(block)) => {
                    self.own.insert(block);
                }
            }
        }
    }

    fn find_leaders(&mut self, function: &Function, divergent: &[bool]) {
        let levels = Levels::new(self, function);
        self.entry_leader = vec![None; function.blocks.len()];
        self.equals = vec![Vec::new(); function.blocks.len()];
        for index in 0..self.order.len() {
            let Node::Block(block) = self.order[index] else { continue };
            if block == ENTRY {
                continue;
            }
            let around = self.within[block.index()];
            let header = around.filter(|&index| self.loops[index].header == block);
            // A header counts as part of the code around its loop.
            let outside = match header {
                Some(index) => self.loops[index].parent,
                None => around,
            };
            let masked = |flow: &Self, mut level: Option<usize>| {
                while let Some(index) = level {
                    if flow.loops[index].masked {
                        return Some(index);
                    }
                    level = flow.loops[index].parent;
                }
                None
            };
            let context = masked(self, outside);
            let mut found = None;
            let mut from = self.forward(block);
            if let Some(first) = from.next() {
                let leader = self.leader[first.index()];
                let fits = |from: BlockId| {
                    !divergent[from.index()]
                        && self.leader[from.index()] == leader
                        && self.masked_around(from) == context
                };
                if fits(first) && from.all(fits) {
                    found = Some(leader);
                }
            }
            drop(from);
            let mut equal = None;
            if found.is_none() {
                let mut above = self.dominators.parent(block);
                while let Some(block_above) = above {
                    if self.within[block_above.index()] == outside {
                        // If this one does not, none above does: the paths from there lead through this
                        // one.
                        if levels.always_follows(self, outside, block_above, block) {
                            found = Some(self.leader[block_above.index()]);
                            equal = Some(block_above);
                        }
                        break;
                    }
                    above = self.dominators.parent(block_above);
                }
            }
            if self.own.contains(&block) {
                found = None;
            }
            if header.is_some_and(|index| self.loops[index].masked) {
                self.entry_leader[block.index()] = found;
                self.leader[block.index()] = block;
                continue;
            }
            if let Some(above) = equal
                && found.is_some()
            {
                self.equals[above.index()].push(block);
            }
            self.leader[block.index()] = found.unwrap_or(block);
        }
    }

    /// A loop that has to be masked: its items do not all repeat it, or leave it, together.
    fn mask_loops(&self, function: &Function, divergent: &[bool]) -> Option<Again> {
        for (id, block) in function.blocks.iter() {
            for index in self.around(id) {
                let info = &self.loops[index];
                let together = !divergent[id.index()]
                    && self.leader[id.index()] == self.leader[info.header.index()];
                if info.masked || together {
                    continue;
                }
                let mut next = block.terminator.successors().into_iter();
                if next.any(|next| next == info.header || !self.contains(index, next)) {
                    return Some(Again::Masked(index));
                }
            }
        }
        None
    }
}

/// For each loop, and for the code outside of loops: which of its places always follow which others,
/// within one iteration. An inner loop counts as one place.
struct Levels {
    /// By loop, with the code outside of loops last: for each place, the next place that all paths
    /// pass.
    next: Vec<std::collections::HashMap<usize, Option<usize>>>,
}

impl Levels {
    fn new(flow: &Flow, function: &Function) -> Self {
        let levels = (0..flow.loops.len()).map(Some).chain([None]);
        Self { next: levels.map(|level| Self::level(flow, function, level)).collect() }
    }

    /// The place that represents a block at a level; `None` if it is outside.
    fn stands_for(flow: &Flow, level: Option<usize>, block: BlockId) -> Option<usize> {
        if level.is_some_and(|index| !flow.contains(index, block)) {
            return None;
        }
        let mut place = flow.place[block.index()];
        for index in flow.around(block) {
            if Some(index) == level {
                break;
            }
            place = flow.loops[index].first;
        }
        Some(place)
    }

    fn level(
        flow: &Flow,
        function: &Function,
        level: Option<usize>,
    ) -> std::collections::HashMap<usize, Option<usize>> {
        let (first, end) = match level {
            Some(index) => (flow.loops[index].first, flow.loops[index].latch),
            None => (0, flow.order.len()),
        };
        let header = level.map(|index| flow.loops[index].header);
        let mut after: std::collections::HashMap<usize, Vec<Option<usize>>> = Default::default();
        for place in first..end {
            let Node::Block(block) = flow.order[place] else { continue };
            let Some(here) = Self::stands_for(flow, level, block) else { continue };
            let list = after.entry(here).or_default();
            let terminator = &function.blocks[block].terminator;
            if matches!(terminator, Terminator::Return(_)) {
                list.push(None);
            }
            for next in terminator.successors() {
                let there = Self::stands_for(flow, level, next).filter(|_| Some(next) != header);
                if there != Some(here) {
                    list.push(there);
                }
            }
        }
        // `None` in the result stands for the end of the level. An absent place has no path on.
        let mut result: std::collections::HashMap<usize, Option<usize>> = Default::default();
        let mut places: Vec<usize> = after.keys().copied().collect();
        places.sort();
        for &here in places.iter().rev() {
            let mut common: Option<Option<usize>> = None;
            for &next in &after[&here] {
                if next.is_some_and(|next| !result.contains_key(&next)) {
                    continue;
                }
                common = Some(match common {
                    None => next,
                    Some(other) => meet(&result, other, next),
                });
            }
            if let Some(common) = common {
                result.insert(here, common);
            }
        }
        result
    }

    /// Whether every path that passes `above` passes `below` too, in the same iteration of `level`.
    fn always_follows(
        &self,
        flow: &Flow,
        level: Option<usize>,
        above: BlockId,
        below: BlockId,
    ) -> bool {
        let next = &self.next[level.unwrap_or(flow.loops.len())];
        let (Some(mut place), Some(wanted)) =
            (Self::stands_for(flow, level, above), Self::stands_for(flow, level, below))
        else {
            return false;
        };
        // Paths lead to later places only.
        while let Some(&Some(after)) = next.get(&place)
            && place < wanted
        {
            place = after;
        }
        place == wanted
    }
}

/// The first place that all paths from both pass.
fn meet(
    next: &std::collections::HashMap<usize, Option<usize>>,
    mut a: Option<usize>,
    mut b: Option<usize>,
) -> Option<usize> {
    while a != b {
        let (Some(here), Some(there)) = (a, b) else { return None };
        if here < there {
            a = next.get(&here).copied().flatten();
        } else {
            b = next.get(&there).copied().flatten();
        }
    }
    a
}

/// One traversal of the order.
struct Way<'f> {
    flow: &'f Flow,
    function: &'f Function,
    divergent: &'f [bool],
    pending: Vec<BTreeSet<usize>>,
    /// The blocks that are pending on every path by which control may have come.
    surely: Vec<Option<BTreeSet<usize>>>,
    deferred: Vec<bool>,
    reached: Vec<bool>,
    /// Blocks that control may reach although no item does.
    unsure: Vec<BlockId>,
}

impl<'f> Way<'f> {
    fn new(flow: &'f Flow, function: &'f Function, divergent: &'f [bool]) -> Self {
        let places = flow.order.len();
        Self {
            flow,
            function,
            divergent,
            pending: vec![BTreeSet::new(); places],
            surely: vec![None; places],
            deferred: vec![false; places],
            reached: vec![false; places],
            unsure: Vec::new(),
        }
    }

    fn walk(&mut self) -> Option<Again> {
        self.reached[0] = true;
        self.surely[0] = Some(BTreeSet::new());
        for place in 0..self.flow.order.len() {
            if !self.reached[place] {
                continue;
            }
            let may = self.pending[place].clone();
            let must = self.surely[place].clone().unwrap_or_default();
            match self.flow.order[place] {
                Node::Latch(_) => self.go(&may, &must),
                Node::Block(block) => {
                    if let Some(again) = self.block(block, may, must) {
                        return Some(again);
                    }
                }
            }
        }
        let trusted = |block: &BlockId| {
            self.flow.leader[block.index()] != *block
                || self.flow.entry_leader[block.index()].is_some()
        };
        self.unsure.iter().copied().find(trusted).map(Again::Own)
    }

    fn block(
        &mut self,
        block: BlockId,
        mut may: BTreeSet<usize>,
        mut must: BTreeSet<usize>,
    ) -> Option<Again> {
        let flow = self.flow;
        if flow.leader[block.index()] == block && block != ENTRY {
            // It may be skipped if it has no item.
            self.go(&may, &must);
        }
        for &other in &flow.equals[block.index()] {
            may.insert(flow.place[other.index()]);
            must.insert(flow.place[other.index()]);
        }
        let mut next = self.function.blocks[block].terminator.successors();
        next.dedup();
        if next.is_empty() {
            self.go(&may, &must);
        }
        if self.divergent[block.index()] {
            for &to in &next {
                self.add_edge(block, to, &mut may);
                self.add_latches(block, to, &mut must);
            }
            self.go(&may, &must);
            return None;
        }
        for &to in &next {
            let (mut may, mut must) = (may.clone(), must.clone());
            if let Some(index) = flow.back_edge(block, to)
                && !flow.loops[index].masked
            {
                let header = flow.loops[index].first;
                let inside = may.first().is_some_and(|&place| place < flow.loops[index].latch);
                let known = may.is_subset(&self.pending[header]);
                let before = self.surely[header].as_ref();
                let sure = before.is_none_or(|before| before.is_subset(&must));
                if inside || !known || !sure {
                    return Some(Again::Masked(index));
                }
                continue;
            }
            self.add_edge(block, to, &mut may);
            self.add_edge(block, to, &mut must);
            self.go(&may, &must);
        }
        None
    }

    /// Makes the target of an edge pending.
    fn add_edge(&self, from: BlockId, to: BlockId, set: &mut BTreeSet<usize>) {
        if self.flow.back_edge(from, to).is_none() {
            set.insert(self.flow.place[to.index()]);
            self.add_latches(from, to, set);
        }
    }

    /// Makes the latches of the masked loops pending that an edge leads into.
    fn add_latches(&self, from: BlockId, to: BlockId, set: &mut BTreeSet<usize>) {
        for index in self.flow.around(to) {
            if self.flow.loops[index].masked && !self.flow.contains(index, from) {
                set.insert(self.flow.loops[index].latch);
            }
        }
    }

    /// Passes control to the first place that may be pending.
    fn go(&mut self, may: &BTreeSet<usize>, must: &BTreeSet<usize>) {
        let Some(&next) = may.first() else { return };
        for &place in may.iter().skip(1) {
            self.pending[next].insert(place);
            self.deferred[place] = true;
        }
        let mut sure = must.clone();
        if !sure.remove(&next)
            && let Node::Block(block) = self.flow.order[next]
        {
            self.unsure.push(block);
        }
        let surely = &mut self.surely[next];
        *surely = Some(match surely.take() {
            Some(before) => before.intersection(&sure).copied().collect(),
            None => sure,
        });
        self.reached[next] = true;
    }
}
