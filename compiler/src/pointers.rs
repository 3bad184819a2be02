// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls through function pointers, for parsing and linking.
//!
//! A pointer is a number, and a call through one is a call of a *dispatcher*, which compares the number
//! and calls the function with that number:
//!
//! ```text
//!   dispatch(pointer, args...) =  switch pointer { 1: return f(args...)  2: return g(args...) }
//! ```
//!
//! So such calls may wait at barriers, and are widened and inlined, like all others. There is one
//! dispatcher for each type of function and SPIR-V module. A number begins with a hash of the module,
//! so it denotes the same function wherever that is known, and calls nothing elsewhere.

use std::collections::{HashMap, HashSet};

use crate::ir::{
    Block, BlockId, ConstKind, ConvertOp, ENTRY, Function, FunctionId, Inst, Loc, Module, Op,
    Operand, Terminator, Type, TypeId, ValueId,
};

/// A function's parameters and result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The types of the parameters.
    pub params: Vec<TypeId>,
    /// The type of the result.
    pub returns: TypeId,
}

impl Signature {
    /// The parameters and the result of `function`.
    pub fn of(function: &Function) -> Self {
        let params = function.params.iter().map(|&param| function.values[param].ty).collect();
        Self { params, returns: function.return_type }
    }
}

/// The block of a dispatcher that calls nothing.
const NOTHING: BlockId = BlockId(1);

/// A dispatcher that calls nothing yet, for pointers of type `pointer`.
pub fn new_dispatcher(module: &mut Module, pointer: TypeId, signature: &Signature) -> Function {
    let mut f = Function {
        name: "call through a pointer".into(),
        params: Vec::new(),
        return_type: signature.returns,
        values: Default::default(),
        variables: Vec::new(),
        shown: Vec::new(),
        blocks: Default::default(),
        exported: false,
        loc: Loc::default(),
    };
    let called = f.new_value(pointer);
    f.params.push(called);
    for &ty in &signature.params {
        let param = f.new_value(ty);
        f.params.push(param);
    }
    let void = module.types[signature.returns] == Type::Void;
    let number = f.new_value(module.types.int(64));
    let convert = Op::Convert(ConvertOp::PtrToInt, Operand::Value(called));
    let nothing =
        (!void).then(|| Operand::Const(module.constant(signature.returns, ConstKind::Null)));
    f.blocks.push(block(vec![inst(Some(number), convert)], Terminator::Branch(NOTHING)));
    f.blocks.push(block(Vec::new(), Terminator::Return(nothing)));
    f
}

fn inst(result: Option<ValueId>, op: Op) -> Inst {
    Inst { result, op, flags: Default::default(), loc: Loc::default() }
}

fn block(insts: Vec<Inst>, terminator: Terminator) -> Block {
    Block { insts, terminator, loc: Loc::default() }
}

/// Makes a dispatcher call `callee` for this number.
pub fn add_case(module: &mut Module, dispatcher: FunctionId, number: u64, callee: FunctionId) {
    let function = &mut module.functions[dispatcher];
    let void = module.types[function.return_type] == Type::Void;
    let args = function.params.iter().skip(1).map(|&param| Operand::Value(param)).collect();
    let result = (!void).then(|| function.new_value(function.return_type));
    let call = inst(result, Op::Call(callee, args));
    let answer = Terminator::Return(result.map(Operand::Value));
    let at = function.blocks.push(block(vec![call], answer));
    let entry = &mut function.blocks[ENTRY];
    match &mut entry.terminator {
        Terminator::Switch { cases, .. } => cases.push((number, at)),
        first => {
            let pointer = entry.insts.first().and_then(|inst| inst.result);
            let Some(value) = pointer.map(Operand::Value) else { return };
            *first = Terminator::Switch { value, default: NOTHING, cases: vec![(number, at)] };
        }
    }
}

/// The callers of each function, dispatchers included.
pub struct Callers(HashMap<FunctionId, Vec<FunctionId>>);

impl Callers {
    /// Collects the calls of a module's functions.
    pub fn of(module: &Module) -> Self {
        let mut callers = Self(HashMap::new());
        for (id, function) in module.functions.iter() {
            let insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
            for inst in insts {
                if let Op::Call(callee, _) = inst.op {
                    callers.add(id, callee);
                }
            }
        }
        callers
    }

    /// Records a call.
    pub fn add(&mut self, caller: FunctionId, callee: FunctionId) {
        self.0.entry(callee).or_default().push(caller);
    }

    /// A function and all its direct and indirect callers.
    pub fn above(&self, id: FunctionId) -> HashSet<FunctionId> {
        let mut above = HashSet::from([id]);
        let mut work = vec![id];
        while let Some(id) = work.pop() {
            let callers = self.0.get(&id).into_iter().flatten();
            work.extend(callers.filter(|&&caller| above.insert(caller)));
        }
        above
    }
}

/// Makes each dispatcher of a linked module call the functions of all its parts. Functions that reach
/// such a call themselves are left out: that would be recursion.
pub fn connect(module: &mut Module) {
    if module.dispatchers.is_empty() {
        return;
    }
    let mut callers = Callers::of(module);
    let callable = module.callable.clone();
    for dispatcher in module.dispatchers.clone() {
        let function = &module.functions[dispatcher];
        let mut signature = Signature::of(function);
        signature.params.remove(0);
        let mut known: HashSet<u64> = match &function.blocks[ENTRY].terminator {
            Terminator::Switch { cases, .. } => cases.iter().map(|&(number, _)| number).collect(),
            _ => HashSet::new(),
        };
        let above = callers.above(dispatcher);
        for &(number, callee) in &callable {
            let function = &module.functions[callee];
            let fits = !function.is_declared() && Signature::of(function) == signature;
            if fits && !above.contains(&callee) && known.insert(number) {
                callers.add(dispatcher, callee);
                add_case(module, dispatcher, number, callee);
            }
        }
    }
}
