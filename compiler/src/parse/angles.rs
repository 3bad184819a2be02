// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sine and the cosine of one number, computed as one `sincos`: the angle is reduced once.
//!
//! This is done here so that all forms of a kernel give the same bits. The approximate functions (`native_sin`,
//! `native_cos`) stay apart.

use std::collections::HashMap;

use crate::ir::{Flags, Function, Inst, MathOp, Module, Op, Operand, Type, TypeId};

/// A number, its type and the assumptions about the function of it.
type Key = (Operand, TypeId, Flags);

/// Joins the sines and cosines of each block.
pub fn join(module: &mut Module, function: &mut Function) {
    for id in function.blocks.ids() {
        // The first sine or cosine of each number, and whether the other one follows.
        let mut firsts: HashMap<Key, (usize, MathOp, bool)> = HashMap::new();
        for (index, inst) in function.blocks[id].insts.iter().enumerate() {
            let Some((op, key)) = angle(function, inst) else { continue };
            let first = firsts.entry(key).or_insert((index, op, false));
            first.2 |= first.1 != op;
        }
        firsts.retain(|_, &mut (_, _, both)| both);
        if firsts.is_empty() {
            continue;
        }
        let insts = std::mem::take(&mut function.blocks[id].insts);
        let mut pairs = HashMap::new();
        let mut joined = Vec::with_capacity(insts.len() + firsts.len());
        for mut inst in insts {
            if let Some((op, key)) = angle(function, &inst)
                && firsts.contains_key(&key)
            {
                let (number, ty, flags) = key;
                let pair = pairs.get(&key).copied().or_else(|| {
                    let members = vec![ty, ty];
                    let pair = module.types.intern(Type::Struct { members, packed: false })?;
                    let result = function.new_value(pair);
                    let op = Op::Math(MathOp::Sincos, vec![number]);
                    joined.push(Inst { result: Some(result), op, flags, loc: inst.loc });
                    pairs.insert(key, result);
                    Some(result)
                });
                if let Some(pair) = pair {
                    let member = u32::from(op == MathOp::Cos);
                    inst.op = Op::Extract(Operand::Value(pair), vec![member]);
                    inst.flags = Flags::empty();
                }
            }
            joined.push(inst);
        }
        function.blocks[id].insts = joined;
    }
}

/// The operation of a precise sine or cosine, and what it is of.
fn angle(function: &Function, inst: &Inst) -> Option<(MathOp, Key)> {
    let Op::Math(op @ (MathOp::Sin | MathOp::Cos), args) = &inst.op else { return None };
    let &[number] = args.as_slice() else { return None };
    let ty = function.values[inst.result?].ty;
    (!inst.flags.contains(Flags::AFN)).then_some((*op, (number, ty, inst.flags)))
}
