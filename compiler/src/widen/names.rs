// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replaces phis at which only one value arrives by that value.
//!
//! Each phi that is replaced may allow others to be, if two values that met there have become one. Only
//! those are visited again: of two values that become one, the users of the one with fewer. So a
//! value's users are visited no more often than their number can double, and each visit continues where
//! the last one ended.

use crate::ir::arena::Id;
use crate::ir::{BlockId, Operand, ValueId};

/// The operands of a phi, with the blocks that they come from.
pub(super) type Arms = Vec<(BlockId, Operand)>;

/// The operand that stands for each value, by number.
#[derive(Default)]
pub(super) struct Names(Vec<Option<Operand>>);

impl Names {
    /// Replaces a value by another operand from now on.
    pub(super) fn set(&mut self, value: ValueId, operand: Operand) {
        let at = value.index();
        if at >= self.0.len() {
            self.0.resize(at + 1, None);
        }
        self.0[at] = Some(operand);
    }

    fn next(&self, operand: Operand) -> Option<Operand> {
        let Operand::Value(value) = operand else { return None };
        self.0.get(value.index()).copied().flatten()
    }

    /// The operand at the end of the chain of names. Names on the path point to it directly afterwards.
    pub(super) fn find(&mut self, operand: Operand) -> Operand {
        let mut last = operand;
        while let Some(next) = self.next(last) {
            last = next;
        }
        let mut at = operand;
        while let Some(next) = self.next(at) {
            if let Operand::Value(value) = at {
                self.set(value, last);
            }
            at = next;
        }
        last
    }
}

/// An instruction that may turn out to equal one of its operands.
#[derive(Clone)]
pub(super) enum Node {
    /// A phi, and the state of its arms.
    Phi(Arms, Seen),
    /// All items of two masks. It equals the second if the first has none.
    Union(Operand, Operand),
}

/// The state of a phi's first arms. Arms that were equal stay equal.
#[derive(Clone, Default)]
pub(super) struct Seen {
    /// The number of these arms.
    arms: usize,
    /// The value that arrives there, if one does.
    only: Option<Operand>,
    /// An undefined value that arrives there, if one does.
    undefined: Option<Operand>,
}

/// The effect of a constant on the nodes that use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Any value is allowed.
    Undefined,
    /// All bits are 0.
    Null,
    /// Another constant, or no constant.
    Other,
}

/// Nodes, by the numbers of their results.
pub(super) struct Nodes {
    nodes: Vec<Option<Node>>,
    users: Vec<Vec<ValueId>>,
    /// Nodes to visit, the last one first, and whether each is among them.
    work: Vec<ValueId>,
    waits: Vec<bool>,
}

impl Nodes {
    /// The nodes of a function with `values` values.
    pub(super) fn new(values: usize, nodes: impl IntoIterator<Item = (ValueId, Node)>) -> Self {
        let mut all = Self {
            nodes: vec![None; values],
            users: vec![Vec::new(); values],
            work: Vec::new(),
            waits: vec![false; values],
        };
        for (value, node) in nodes {
            let mut uses = |operand: Operand| {
                if let Operand::Value(used) = operand {
                    all.users[used.index()].push(value);
                }
            };
            match &node {
                Node::Phi(arms, _) => arms.iter().for_each(|&(_, operand)| uses(operand)),
                &Node::Union(first, _) => uses(first),
            }
            all.nodes[value.index()] = Some(node);
        }
        let found = |value: &ValueId| all.nodes[value.index()].is_some();
        all.work = (0..values).map(ValueId::from_index).filter(found).collect();
        all.work.iter().for_each(|value| all.waits[value.index()] = true);
        all
    }

    /// Replaces all nodes that turn out to equal another operand. The remaining phis are those at which
    /// several values meet. `None` if it takes more than `steps` steps.
    pub(super) fn settle(
        &mut self,
        names: &mut Names,
        kind: impl Fn(Operand) -> Kind,
        mut steps: usize,
    ) -> Option<()> {
        while let Some(value) = self.work.pop() {
            self.waits[value.index()] = false;
            let Some(mut node) = self.nodes[value.index()].take() else { continue };
            let (stands_for, looked_at) = node.stands_for(value, names, &kind);
            steps = steps.checked_sub(looked_at)?;
            let Some(operand) = stands_for else {
                self.nodes[value.index()] = Some(node);
                continue;
            };
            names.set(value, operand);
            steps = steps.checked_sub(self.unite(value, operand))?;
        }
        Some(())
    }

    /// Schedules the nodes that may change because two operands are one now, and returns their number.
    fn unite(&mut self, value: ValueId, operand: Operand) -> usize {
        let mut fewer = std::mem::take(&mut self.users[value.index()]);
        let Operand::Value(other) = operand else {
            fewer.iter().for_each(|&user| self.look_at(user));
            return fewer.len();
        };
        let mut more = std::mem::take(&mut self.users[other.index()]);
        if fewer.len() > more.len() {
            std::mem::swap(&mut fewer, &mut more);
        }
        // A phi is not among its own users when one of its arms becomes itself.
        self.look_at(other);
        fewer.iter().for_each(|&user| self.look_at(user));
        let looked_at = fewer.len() + 1;
        more.append(&mut fewer);
        self.users[other.index()] = more;
        looked_at
    }

    fn look_at(&mut self, value: ValueId) {
        let at = value.index();
        if self.nodes[at].is_some() && !std::mem::replace(&mut self.waits[at], true) {
            self.work.push(value);
        }
    }

    /// The nodes at which only null and each other arrive, which are null too: the masks of blocks at
    /// which no item is ever pending, around any number of loops. To be called when all have settled;
    /// [`Self::settle_null`] takes them.
    pub(super) fn find_null(
        &self,
        names: &mut Names,
        kind: impl Fn(Operand) -> Kind,
    ) -> Vec<ValueId> {
        let mut users: Vec<Vec<ValueId>> = vec![Vec::new(); self.nodes.len()];
        let mut holds = vec![false; self.nodes.len()];
        let mut work = Vec::new();
        for (number, node) in self.nodes.iter().enumerate() {
            let value = ValueId::from_index(number);
            let operands: Vec<Operand> = match node {
                None => continue,
                Some(Node::Phi(arms, _)) => arms.iter().map(|&(_, operand)| operand).collect(),
                &Some(Node::Union(first, second)) => vec![first, second],
            };
            for operand in operands {
                match names.find(operand) {
                    Operand::Value(from) if self.nodes[from.index()].is_some() => {
                        users[from.index()].push(value);
                    }
                    operand => holds[number] |= kind(operand) != Kind::Null,
                }
            }
            if holds[number] {
                work.push(value);
            }
        }
        while let Some(value) = work.pop() {
            for &user in &users[value.index()] {
                if !std::mem::replace(&mut holds[user.index()], true) {
                    work.push(user);
                }
            }
        }
        let null = |number: &usize| self.nodes[*number].is_some() && !holds[*number];
        (0..self.nodes.len()).filter(null).map(ValueId::from_index).collect()
    }

    /// Replaces a node by null. The next [`Self::settle`] visits its users.
    pub(super) fn settle_null(&mut self, value: ValueId, null: Operand, names: &mut Names) {
        self.nodes[value.index()] = None;
        names.set(value, null);
        self.unite(value, null);
    }

    /// The remaining phis, with their original arms, by number.
    pub(super) fn into_phis(self) -> impl Iterator<Item = (ValueId, Arms)> {
        let nodes = self.nodes.into_iter().enumerate();
        nodes.filter_map(|(number, node)| match node {
            Some(Node::Phi(arms, _)) => Some((ValueId::from_index(number), arms)),
            _ => None,
        })
    }
}

impl Node {
    /// A phi with these arms.
    pub(super) fn phi(arms: Arms) -> Self {
        Self::Phi(arms, Seen::default())
    }

    /// The operand that a node equals, if it is not itself, and the number of steps taken to find it.
    fn stands_for(
        &mut self,
        value: ValueId,
        names: &mut Names,
        kind: &impl Fn(Operand) -> Kind,
    ) -> (Option<Operand>, usize) {
        let (arms, seen) = match self {
            Node::Phi(arms, seen) => (arms, seen),
            &mut Node::Union(first, second) => {
                let empty = kind(names.find(first)) == Kind::Null;
                let second = Some(second).filter(|_| empty).map(|second| names.find(second));
                return (second.filter(|&second| second != Operand::Value(value)), 1);
            }
        };
        let mut steps = 1;
        let first = seen.only.take().into_iter();
        let rest = arms[seen.arms..].iter().map(|&(_, operand)| operand);
        let before = first.len();
        for (number, operand) in first.chain(rest).enumerate() {
            let operand = names.find(operand);
            if operand == Operand::Value(value) {
                // It is the phi's own value.
            } else if kind(operand) == Kind::Undefined {
                seen.undefined = Some(operand);
            } else if seen.only.is_some_and(|only| only != operand) {
                seen.arms += number - before;
                return (None, steps);
            } else {
                seen.only = Some(operand);
            }
            steps += 1;
        }
        seen.arms = arms.len();
        // A value beside an undefined one may not be available here on all paths.
        let partial = seen.undefined.is_some() && matches!(seen.only, Some(Operand::Value(_)));
        (seen.only.or(seen.undefined).filter(|_| !partial), steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{ConstId, ENTRY};

    const UNDEFINED: Operand = Operand::Const(ConstId(0));
    const NULL: Operand = Operand::Const(ConstId(1));

    fn kind(operand: Operand) -> Kind {
        match operand {
            UNDEFINED => Kind::Undefined,
            NULL => Kind::Null,
            _ => Kind::Other,
        }
    }

    fn value(number: usize) -> Operand {
        Operand::Value(ValueId::from_index(number))
    }

    fn phi(arms: &[Operand]) -> Node {
        Node::phi(arms.iter().map(|&operand| (ENTRY, operand)).collect())
    }

    /// Settles nodes with the numbers from `first` on; returns their replacements, if the steps
    /// suffice.
    fn settled(first: usize, nodes: &[Node], steps: usize) -> Option<Vec<Operand>> {
        let count = first + nodes.len();
        let numbered = nodes.iter().cloned().enumerate();
        let numbered = numbered.map(|(n, node)| (ValueId::from_index(first + n), node));
        let (mut nodes, mut names) = (Nodes::new(count, numbered), Names::default());
        nodes.settle(&mut names, kind, steps)?;
        Some((first..count).map(|number| names.find(value(number))).collect())
    }

    /// Replacing a phi allows others to be replaced, in any order of numbers, and each is visited only
    /// a few times.
    #[test]
    fn long_chains_of_phis_take_few_steps() {
        let n = 10_000;
        for forth in [true, false] {
            let source = |i: usize| match (forth, i) {
                (true, i) if i + 1 == n => value(0),
                (true, i) => value(i + 2),
                (false, i) => value(i),
            };
            // There is a loop around each: it is one of its own arms too.
            let chain: Vec<Node> = (0..n).map(|i| phi(&[source(i), value(i + 1)])).collect();
            assert_eq!(settled(1, &chain, 8 * n), Some(vec![value(0); n]), "{forth}");
        }
        // Each can be replaced once two others are, one of them long before.
        let ladder: Vec<Node> = (0..n).map(|i| phi(&[value(i), value(i / 2), value(0)])).collect();
        assert_eq!(settled(1, &ladder, 64 * n), Some(vec![value(0); n]));
    }

    /// Phis of many arms are not scanned from the start whenever two of their arms become one.
    #[test]
    fn phis_of_many_arms_take_few_steps() {
        let n = 300;
        // Each settles when the one before has settled, and all meet another value in the end.
        let mut nodes: Vec<Node> =
            (0..n).map(|i| phi(&[value(0), value(if i == 0 { 0 } else { i + 1 })])).collect();
        let arms: Vec<Operand> = (2..n + 2).chain([1]).map(value).collect();
        nodes.extend((0..n).map(|_| phi(&arms)));
        let found = settled(2, &nodes, 8 * n * n).expect("each arm is passed once");
        assert_eq!(found[..n], vec![value(0); n]);
        assert_eq!(found[n..], (n + 2..2 * n + 2).map(value).collect::<Vec<_>>());
    }

    /// The step budget bounds the work that is done.
    #[test]
    fn steps_are_limited() {
        let chain: Vec<Node> = (0..100).map(|i| phi(&[value(i)])).collect();
        assert_eq!(settled(1, &chain, 50), None);
        assert!(settled(1, &chain, 500).is_some());
    }

    /// Undefined values give way to constants, but not to values, which may not be available on all
    /// paths.
    #[test]
    fn undefined_arms_give_way_to_constants() {
        let nodes = [
            phi(&[UNDEFINED, NULL, value(1)]),
            phi(&[UNDEFINED, value(0)]),
            phi(&[UNDEFINED, value(3)]),
            phi(&[]),
        ];
        let found = settled(1, &nodes, 100).expect("few steps");
        assert_eq!(found, [NULL, value(2), UNDEFINED, value(4)]);
    }

    /// Null that circulates in loops within loops is null, and so are unions of such; another value
    /// that enters anywhere is visible everywhere behind it.
    #[test]
    fn what_only_null_reaches_is_null() {
        // 1 and 2 are the headers of two loops, 3 is a value that leaves the inner one, 4 a union; 5
        // uses it.
        let web = |entering: Operand| {
            let nodes = [
                phi(&[entering, value(3)]),
                phi(&[value(1), value(3)]),
                phi(&[value(2), NULL, value(4)]),
                Node::Union(value(2), value(1)),
                Node::Union(value(4), value(0)),
                phi(&[NULL, value(6)]),
            ];
            let numbered = nodes.into_iter().enumerate();
            let numbered = numbered.map(|(n, node)| (ValueId::from_index(1 + n), node));
            let (mut nodes, mut names) = (Nodes::new(7, numbered), Names::default());
            nodes.settle(&mut names, kind, 100).expect("few steps");
            for value in nodes.find_null(&mut names, kind) {
                nodes.settle_null(value, NULL, &mut names);
            }
            nodes.settle(&mut names, kind, 100).expect("few steps");
            (1..7).map(|number| names.find(value(number))).collect::<Vec<_>>()
        };
        assert_eq!(web(NULL), [NULL, NULL, NULL, NULL, value(0), NULL]);
        let itself = (1..6).map(value).collect::<Vec<_>>();
        assert_eq!(web(value(0))[..5], itself);
        assert_eq!(web(value(0))[5], NULL);
        assert_eq!(web(UNDEFINED)[..5], itself);
    }

    /// A union with a mask that turns out to have no items equals the other mask, also if that mask
    /// depends on it.
    #[test]
    fn unions_with_empty_masks_go() {
        let nodes = [
            phi(&[NULL, value(1)]),
            Node::Union(value(1), value(3)),
            phi(&[value(0), value(2)]),
            Node::Union(value(0), NULL),
        ];
        let found = settled(1, &nodes, 100).expect("few steps");
        assert_eq!(found, [NULL, value(0), value(0), value(4)]);
    }
}
