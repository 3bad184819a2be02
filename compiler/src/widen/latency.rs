// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels whose vectors wait for their own results.
//!
//! Each instruction of a hash, of a cipher or of an iteration needs the result of the one before it, and the processor
//! could start several meanwhile:
//!
//! ```text
//!   x += y; y = rotl(y, 13) ^ x; x += y; …      one chain: three cycles, three instructions
//! ```
//!
//! Such kernels are widened once more, to vectors of twice as many items. If such a vector takes two of the
//! processor's, one is computed during the latency of the other.

use std::collections::HashMap;

use super::flow::Node;
use super::searches::searches;
use super::shape::Shape;
use super::way::Way;
use crate::ir::arena::Id;
use crate::ir::{
    BinaryOp, BlockId, ConvertOp, Function, Inst, Module, Op, Operand, Type, TypeId, UnaryOp,
    ValueId,
};

/// The maximum number of instructions of a kernel that is widened twice because its loops carry few values: each form
/// takes time to build, and larger kernels mostly have enough independent work during a latency.
const MAX_IN_LOOPS: usize = 128;

/// The maximum number of values that a loop of such a kernel carries from one iteration to the next.
/// With more it has several independent chains, and twice as many values do not fit the registers: the
/// eight largest of 64 took 1.5 times as long. Philox, whose counter of four words is a vector, takes 0.76 times as
/// long with vectors of 32 items.
const MAX_CARRIED: u32 = 6;

/// The least number of cycles that the longest chain of a kernel without loops, or of a turn of a larger kernel's loops,
/// takes. A processor has that many instructions waiting at a time, so with shorter chains it computes the next vector
/// meanwhile. Threefry, whose chain takes 49, takes 0.8 times as long with vectors of 32 items.
const MIN_CHAIN: u32 = 48;

/// The same if mathematical functions are in it: three of these, one after the other. Kepler's equation takes 0.71 of the
/// time with vectors of 32 items, Black and Scholes' 0.85, but turning pairs by an angle, a chain of 120, would take 1.08.
const MIN_CHAIN_OF_CALLS: u32 = 3 * CALL.1;

/// The approximate number of instructions of a mathematical function, and of its cycles.
const CALL: (u32, u32) = (32, 48);

/// The maximum number of instructions for each cycle of that chain. Processors start two to four instructions for
/// vectors in a cycle. 32 rounds of XTEA have 1.2 and take 0.6 times as long with vectors of 32 items, 64 steps of MD5
/// 0.5, philox by products of 64 bits 0.73. A transform of 8 points has 2.2 and gains nothing.
const MAX_BESIDE: u32 = 2;

/// The maximum number of instructions of a kernel of such chains.
const MAX_IN_CHAINS: usize = 1024;

/// The number of instructions for each one that loads from memory. With fewer a kernel waits for memory: a stencil
/// in three dimensions, which loads seven values for 74 instructions, takes as long with either vectors.
const FOR_EACH_LOAD: u32 = 16;

/// The maximum number of values that are live at a time. A processor has 32 registers for vectors, and twice as many
/// values need two each; constants need the others.
const MAX_LIVE: u32 = 12;

/// The same where a chain has less beside it: 1.6 instructions for each cycle leave room for moves to the stack. SHOC's MD5
/// of keys, which are no more than a loop's number, has 25 live values and takes 0.53 of the time.
const MAX_LIVE_ALONE: u32 = 26;

/// Whether vectors of twice as many items are faster.
pub(super) fn waits_for_itself(module: &Module, source: &Function, way: &Way) -> bool {
    let size: usize = source.blocks.iter().map(|(_, block)| block.insts.len()).sum();
    let waits = || match way.flow.loops.is_empty() {
        false if goes_apart(source, way) => size <= MAX_IN_LOOPS && searches(source, way),
        false if size <= MAX_IN_LOOPS && carries_few(module, source, way) => true,
        _ => is_one_chain(module, source, way),
    };
    size <= MAX_IN_CHAINS && source.variables.is_empty() && waits()
}

/// Whether an innermost loop has gathers or scatters. Those take longer than a computation, and twice as many items need
/// twice as many lines of the cache at a time: syr2k of PolyBench, whose items read rows of 2 KiB, took 2.5 times as long,
/// and items that write rows of 4 KiB three times.
fn goes_apart(source: &Function, way: &Way) -> bool {
    source.blocks.iter().any(|(id, block)| {
        let apart = |inst: &Inst| match inst.op {
            Op::Load(at, _) | Op::Store(at, ..) => {
                way.shapes.at(&way.flow, at, id) == Some(Shape::Varying)
            }
            _ => false,
        };
        way.flow.within[id.index()].is_some_and(|index| way.flow.is_innermost(index))
            && block.insts.iter().any(apart)
    })
}

/// Whether the loops of a small kernel carry only few values of an item from turn to turn. Values of 64 bits take two
/// registers; they count where they are divided by constants, which takes some 20 cycles, one instruction after the other.
/// Powers modulo a prime take 0.7 of the time with vectors of 32 items. Products and sums alone gain nothing.
fn carries_few(module: &Module, source: &Function, way: &Way) -> bool {
    let Way { flow, shapes, .. } = way;
    let (mut carried, mut divides) = (0, None);
    for (id, block) in source.blocks.iter() {
        let around = flow.around(id).any(|index| flow.loops[index].header == id);
        for result in block.phis().filter_map(|phi| phi.result).filter(|_| around) {
            let ty = source.values[result].ty;
            if shapes.of(result) == Shape::Varying {
                let is_long = module.types.scalar_bits(ty) > 32;
                if is_long && !*divides.get_or_insert_with(|| divides_in_loops(module, source, way))
                {
                    return false;
                }
                let element = &module.types[module.types.element(ty)];
                if matches!(element, Type::Int(_) | Type::Float(_)) {
                    carried += registers(module, ty);
                }
            }
        }
    }
    (1..=MAX_CARRIED).contains(&carried)
}

/// Whether each innermost loop divides integers of 64 bits by constants.
fn divides_in_loops(module: &Module, source: &Function, way: &Way) -> bool {
    use BinaryOp::{SDiv, SRem, UDiv, URem};
    let Way { flow, shapes, .. } = way;
    let mut divide = vec![false; flow.loops.len()];
    for (id, block) in source.blocks.iter() {
        let Some(index) = flow.within[id.index()] else { continue };
        divide[index] |= block.insts.iter().any(|inst| match (&inst.op, inst.result) {
            (&Op::Binary(UDiv | URem | SDiv | SRem, _, Operand::Const(_)), Some(result)) => {
                shapes.of(result) == Shape::Varying
                    && module.types.scalar_bits(source.values[result].ty) == 64
            }
            _ => false,
        });
    }
    (0..divide.len()).all(|index| divide[index] || !flow.is_innermost(index))
}

/// What the vectors of a kernel compute in an innermost loop, or outside of loops.
#[derive(Clone, Copy, Default)]
struct Work {
    /// The cycles of the longest chain.
    longest: u32,
    /// The instructions, and those that load.
    all: u32,
    loads: u32,
    calls: bool,
}

impl Work {
    fn is_one_chain(self) -> bool {
        self.longest >= if self.calls { MIN_CHAIN_OF_CALLS } else { MIN_CHAIN }
            && self.all <= MAX_BESIDE * self.longest
            && self.all >= FOR_EACH_LOAD * self.loads
    }
}

/// Whether the innermost loops of a kernel, or a kernel without loops, are little more than one chain.
fn is_one_chain(module: &Module, source: &Function, way: &Way) -> bool {
    let Way { flow, shapes, .. } = way;
    let mut chains = vec![0_u32; source.values.len()];
    let mut works = vec![Work::default(); flow.loops.len() + 1];
    for (id, inst) in in_order(source, way) {
        let within = flow.within[id.index()];
        let work = &mut works[within.map_or(0, |index| index + 1)];
        work.calls |= matches!(inst.op, Op::Math(..));
        let Some(result) = inst.result.filter(|&it| shapes.of(it) == Shape::Varying) else {
            continue;
        };
        let registers = registers(module, source.values[result].ty).max(1);
        let (count, latency) = cost(&inst.op);
        work.all += count * registers;
        if matches!(inst.op, Op::Load(..)) {
            work.loads += registers;
        }
        // What comes from elsewhere is there, and so is what comes from the turn before.
        let mut chain = 0;
        inst.op.for_each_operand(|operand| match operand {
            Operand::Value(value) if shapes.is_of_loop(flow, value, within) => {
                chain = chain.max(chains[value.index()]);
            }
            _ => {}
        });
        chains[result.index()] = chain + latency;
        work.longest = work.longest.max(chain + latency);
    }
    let has_loops = !flow.loops.is_empty();
    let counts = |slot: usize| match slot {
        0 => !has_loops,
        _ => way.flow.is_innermost(slot - 1),
    };
    let works = || (0..works.len()).filter(|&slot| counts(slot)).map(|slot| works[slot]);
    let alone = works().all(|work| 5 * work.all <= 8 * work.longest);
    works().all(Work::is_one_chain)
        && most_live(module, source, way) <= if alone { MAX_LIVE_ALONE } else { MAX_LIVE }
}

/// The instructions in the order in which vectors run them, with their blocks.
fn in_order<'a>(source: &'a Function, way: &'a Way) -> impl Iterator<Item = (BlockId, &'a Inst)> {
    let blocks = way.flow.order.iter().filter_map(|node| match node {
        Node::Block(id) => Some(*id),
        Node::Latch(_) => None,
    });
    blocks.flat_map(|id| source.blocks[id].insts.iter().map(move |inst| (id, inst)))
}

/// The most registers that vectors need at a time.
fn most_live(module: &Module, source: &Function, way: &Way) -> u32 {
    let Way { flow, shapes, .. } = way;
    // The places at which blocks and loops end.
    let mut ends = vec![0; source.blocks.len()];
    let mut loop_ends = vec![0; flow.loops.len()];
    for (place, (id, _)) in in_order(source, way).enumerate() {
        ends[id.index()] = place;
        flow.around(id).for_each(|index| loop_ends[index] = place);
    }
    let mut last = vec![0; source.values.len()];
    for (place, (id, inst)) in in_order(source, way).enumerate() {
        let mut used = |operand: Operand, user: BlockId, place: usize| {
            let Operand::Value(value) = operand else { return };
            // What a loop uses from outside is live in all its turns.
            let outer = flow.around(user).filter(|&it| !shapes.is_in_loop(flow, value, it)).last();
            let place = outer.map_or(place, |index| loop_ends[index]);
            last[value.index()] = place.max(last[value.index()]);
        };
        match &inst.op {
            Op::Phi(arms) => {
                arms.iter().for_each(|&(from, it)| used(it, from, ends[from.index()]));
            }
            op => op.for_each_operand(|operand| used(operand, id, place)),
        }
    }
    let (mut live, mut most) = (0, 0);
    let mut free: HashMap<usize, u32> = HashMap::new();
    for (place, (_, inst)) in in_order(source, way).enumerate() {
        live -= free.remove(&place).unwrap_or(0);
        let vector = |it: &ValueId| shapes.of(*it) == Shape::Varying && last[it.index()] > place;
        if let Some(result) = inst.result.filter(vector) {
            let needs = registers(module, source.values[result].ty);
            live += needs;
            *free.entry(last[result.index()]).or_default() += needs;
        }
        most = most.max(live);
    }
    most
}

/// The registers of a vector's values of a type, if one has as many bits as a vector of words.
fn registers(module: &Module, ty: TypeId) -> u32 {
    let each = match module.types.scalar_bits(ty) {
        0 | 1 => 0,
        2..=32 => 1,
        _ => 2,
    };
    each * module.types.lanes(ty)
}

/// The approximate number of the processor's instructions that an operation takes for each register of its result, and
/// of cycles until the result is there.
fn cost(op: &Op) -> (u32, u32) {
    use BinaryOp::*;
    match op {
        Op::Phi(_)
        | Op::Construct(_)
        | Op::Extract(..)
        | Op::Insert(..)
        | Op::Shuffle(..)
        | Op::Address { .. } => (0, 0),
        Op::Convert(ConvertOp::Bitcast, _) => (0, 0),
        Op::Convert(..) => (1, 3),
        Op::Binary(Mul, ..) => (1, 5),
        Op::Binary(UMulHi | SMulHi, ..) | Op::UMulExtended(..) | Op::SMulExtended(..) => (4, 8),
        Op::Binary(UDiv | SDiv | URem | SRem | SMod, ..) => (16, 30),
        Op::Binary(FDiv | FDivNear, ..) | Op::Unary(UnaryOp::Sqrt, _) => (8, 14),
        Op::Binary(FAdd | FSub | FMul | FMin | FMax, ..) | Op::Ternary(..) => (1, 4),
        Op::Load(..) => (1, 5),
        Op::Math(..) => CALL,
        _ => (1, 1),
    }
}
