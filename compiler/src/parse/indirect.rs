// SPDX-License-Identifier: MIT OR Apache-2.0
//! Function pointers (SPV_INTEL_function_pointers).
//!
//! A module is a closed world: a pointer that it may call means one of its own functions. So a
//! pointer is a number, and a call through one is a call of a *dispatcher*, which compares the number
//! and calls the function that it stands for:
//!
//! ```text
//!   dispatch(pointer, args...) =  switch pointer { 1: return f(args...)  2: return g(args...) }
//! ```
//!
//! So such calls may wait at barriers, and are widened and inlined, as all others. There is one
//! dispatcher for each type of function. It knows the functions whose address the module takes and
//! those that it exports, whose pointers the driver hands out. A number begins with a hash of the
//! module, so the pointer of another module calls nothing, and the result is zero.

use std::collections::{BTreeMap, HashMap, HashSet};

use rspirv::spirv::Op as Spv;

use super::Result;
use super::body::Body;
use super::module::{Builder, Def};
use super::words::Instruction;
use crate::ir::{
    Block, BlockId, ConstKind, ConvertOp, Function, FunctionId, Id, Inst, Loc, Op, Operand,
    Terminator, Type, TypeId,
};

/// What a function takes and returns.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Signature {
    params: Vec<TypeId>,
    returns: TypeId,
}

/// A dispatcher that is called.
struct Dispatcher {
    pointer: TypeId,
    signature: Signature,
}

/// Functions that are called through pointers, and by whom.
#[derive(Default)]
pub(super) struct Indirect {
    /// Tells modules apart; the low bits are zero.
    module: u64,
    /// Functions whose address is taken, by SPIR-V id, and where that is.
    taken: BTreeMap<u32, usize>,
    dispatchers: Vec<Dispatcher>,
}

/// Bits of a pointer that are the function's id; ids are at most 2^22.
const ID_BITS: u32 = 24;

impl Indirect {
    /// For the module in `bytes`.
    pub(super) fn new(bytes: &[u8]) -> Self {
        // FNV-1a of 64 bits.
        let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, step);
        Self { module: hash << ID_BITS, ..Self::default() }
    }

    fn pointer(&self, id: u32) -> u64 {
        self.module | u64::from(id)
    }
}

/// `OpConstantFunctionPointerINTEL`.
pub(super) fn constant(builder: &mut Builder<'_>, inst: &Instruction<'_>) -> Result<()> {
    let type_id = inst.result_type().unwrap_or_default();
    let ty = builder.ty(inst, type_id)?;
    if !matches!(builder.module.types[ty], Type::Pointer(_)) {
        return Err(inst.error("has a type that is not a pointer".into()));
    }
    let function = inst.arg(0)?;
    if function >= 1 << ID_BITS {
        return Err(inst.error(format!("names %{function}, which is beyond the limit of ids")));
    }
    builder.indirect.taken.entry(function).or_insert(inst.word);
    let bits = builder.indirect.pointer(function);
    let constant = builder.module.constant(ty, ConstKind::Bits(bits));
    builder.define(inst, Def::Const(constant, type_id))
}

/// `OpFunctionPointerCallINTEL`. `false` if it is another instruction.
pub(super) fn translate(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<bool> {
    if inst.op() != Spv::FunctionPointerCallINTEL {
        return Ok(false);
    }
    let mut args = Vec::with_capacity(inst.rest().len());
    for &id in inst.rest() {
        args.push(body.operand(inst, id)?);
    }
    let returns = body.result_type(inst)?;
    let Some(&pointer) = args.first() else {
        return Err(inst.error("names no pointer".into()));
    };
    let pointer = body.type_of(pointer);
    if !matches!(body.b.module.types[pointer], Type::Pointer(_)) {
        return Err(inst.error("calls what is not a pointer".into()));
    }
    let params = args[1..].iter().map(|&arg| body.type_of(arg)).collect();
    let signature = Signature { params, returns };
    let indirect = &mut body.b.indirect;
    let same = |it: &Dispatcher| it.signature == signature && it.pointer == pointer;
    let number = indirect.dispatchers.iter().position(same).unwrap_or_else(|| {
        indirect.dispatchers.push(Dispatcher { pointer, signature });
        indirect.dispatchers.len() - 1
    });
    // Dispatchers follow the module's own functions.
    let callee = FunctionId::from_index(body.b.function_ids.len() + number);
    body.call_function(inst, callee, args)?;
    Ok(true)
}

/// Adds the dispatchers, and says which pointers exported functions have.
pub(super) fn finish(builder: &mut Builder<'_>) -> Result<()> {
    let indirect = std::mem::take(&mut builder.indirect);
    let mut taken = Vec::new();
    for (&id, &word) in &indirect.taken {
        match builder.defs.get(&id) {
            Some(&Def::Function(function)) => taken.push(function),
            _ => {
                return Err(super::Error {
                    word,
                    opcode: Some("OpConstantFunctionPointerINTEL".into()),
                    place: None,
                    source: None,
                    message: format!("names %{id}, which is not a function with a body"),
                });
            }
        }
    }
    let ids = builder.function_ids.clone();
    let mut offered = HashSet::new();
    for (function_id, &id) in ids.iter().enumerate().map(|(i, id)| (FunctionId::from_index(i), id))
    {
        let function = &builder.module.functions[function_id];
        if function.exported && !function.is_declared() && id < 1 << ID_BITS {
            let name = function.name.clone();
            builder.module.pointers.insert(name, indirect.pointer(id));
            offered.insert(function_id);
        }
    }
    let mut callers = Callers::of(builder);
    let with_signature = |builder: &Builder<'_>, dispatcher: &Dispatcher| {
        let functions = (0..ids.len()).map(FunctionId::from_index);
        let fits =
            |&id: &FunctionId| signature(&builder.module.functions[id]) == dispatcher.signature;
        functions.filter(fits).collect::<Vec<_>>()
    };
    // Who is surely called comes first, so that what may be offered besides is known.
    let mut callees = Vec::new();
    for (number, dispatcher) in (ids.len()..).zip(&indirect.dispatchers) {
        let mut surely = with_signature(builder, dispatcher);
        surely.retain(|id| taken.contains(id));
        surely.iter().for_each(|&callee| callers.add(FunctionId::from_index(number), callee));
        callees.push(surely);
    }
    for ((number, dispatcher), callees) in
        (ids.len()..).zip(&indirect.dispatchers).zip(&mut callees)
    {
        // An exported function that comes to such a call itself would be recursion.
        let number = FunctionId::from_index(number);
        let above = callers.above(number);
        for id in with_signature(builder, dispatcher) {
            if offered.contains(&id) && !above.contains(&id) && !callees.contains(&id) {
                callers.add(number, id);
                callees.push(id);
            }
        }
    }
    for (dispatcher, callees) in indirect.dispatchers.iter().zip(callees) {
        let pointer = |id: FunctionId| (indirect.pointer(ids[id.index()]), id);
        let callees: Vec<_> = callees.into_iter().map(pointer).collect();
        let function = dispatch(builder, dispatcher, &callees);
        builder.module.functions.push(function);
    }
    Ok(())
}

/// Who calls each function, dispatchers included.
struct Callers(HashMap<FunctionId, Vec<FunctionId>>);

impl Callers {
    /// The calls that a module's functions make.
    fn of(builder: &Builder<'_>) -> Self {
        let mut callers = Self(HashMap::new());
        for (id, function) in builder.module.functions.iter() {
            let insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
            for inst in insts {
                if let Op::Call(callee, _) = inst.op {
                    callers.add(id, callee);
                }
            }
        }
        callers
    }

    fn add(&mut self, caller: FunctionId, callee: FunctionId) {
        self.0.entry(callee).or_default().push(caller);
    }

    /// Everything that comes to a call of a function, and the function.
    fn above(&self, id: FunctionId) -> HashSet<FunctionId> {
        let mut above = HashSet::from([id]);
        let mut work = vec![id];
        while let Some(id) = work.pop() {
            let callers = self.0.get(&id).into_iter().flatten();
            work.extend(callers.filter(|&&caller| above.insert(caller)));
        }
        above
    }
}

fn signature(function: &Function) -> Signature {
    let params = function.params.iter().map(|&param| function.values[param].ty).collect();
    Signature { params, returns: function.return_type }
}

/// A dispatcher among functions and their pointers.
fn dispatch(
    builder: &mut Builder<'_>,
    dispatcher: &Dispatcher,
    callees: &[(u64, FunctionId)],
) -> Function {
    let Dispatcher { pointer, signature } = dispatcher;
    let module = &mut builder.module;
    let mut f = super::body::empty_function("call through a pointer".into(), signature.returns);
    let called = f.new_value(*pointer);
    let args: Vec<Operand> = signature
        .params
        .iter()
        .map(|&ty| {
            let param = f.new_value(ty);
            f.params.push(param);
            Operand::Value(param)
        })
        .collect();
    f.params.insert(0, called);
    let void = module.types[signature.returns] == Type::Void;
    let i64 = module.types.int(64);
    let number = f.new_value(i64);
    let inst = |result, op| Inst { result, op, flags: Default::default(), loc: Loc::default() };
    let block = |insts, terminator| Block { insts, terminator, loc: Loc::default() };
    let convert = Op::Convert(ConvertOp::PtrToInt, Operand::Value(called));
    let nothing =
        (!void).then(|| Operand::Const(module.constant(signature.returns, ConstKind::Null)));
    let default = BlockId::from_index(1);
    let cases: Vec<(u64, BlockId)> =
        callees.iter().zip(2..).map(|(&(bits, _), at)| (bits, BlockId::from_index(at))).collect();
    let choice = match cases.is_empty() {
        true => Terminator::Branch(default),
        false => Terminator::Switch { value: Operand::Value(number), default, cases },
    };
    f.blocks.push(block(vec![inst(Some(number), convert)], choice));
    f.blocks.push(block(Vec::new(), Terminator::Return(nothing)));
    for &(_, callee) in callees {
        let result = (!void).then(|| f.new_value(signature.returns));
        let call = inst(result, Op::Call(callee, args.clone()));
        let answer = result.map(Operand::Value);
        f.blocks.push(block(vec![call], Terminator::Return(answer)));
    }
    f
}
