// SPDX-License-Identifier: MIT OR Apache-2.0
//! The function that is being built, and the methods that append instructions to it.

use std::collections::HashMap;

use super::annotations::Decorations;
use super::builder::{Builder, Def, SpvKind};
use super::collected::Kept;
use super::controls::Controls;
use super::error::Result;
use super::lines::Line;
use super::words::Instruction;
use crate::ir::{
    AddressSpace, Arena, BinaryOp, Block, BlockId, CompareOp, ConstId, ConstKind, ENTRY, Flags,
    Function, FunctionId, InlinedId, Inst, Loc, Op, Operand, PrivateVariable, Terminator, Type,
    TypeId, UnaryOp, ValueId,
};

/// The meaning of an id within a function.
#[derive(Clone, Copy, Debug)]
pub enum Val {
    /// A value or a constant.
    Operand(Operand),
    /// The address within a variable for a built-in, in bytes from its start.
    BuiltIn(u32, u64),
}

/// A phi whose operands may not have been defined yet.
pub struct PendingPhi {
    pub block: BlockId,
    /// Its place in the block.
    pub index: usize,
    /// Pairs of ids: a value and the label it comes from.
    pub incoming: Vec<(u32, u32)>,
}

/// The private variable for the arguments of a function's `printf`s: its place among the variables.
#[derive(Clone, Copy)]
pub struct PrintfArguments {
    pub index: usize,
    pub address: Operand,
}

/// What emits operations in a function's modes.
pub type InModes = fn(&mut Body<'_, '_>, TypeId, &Op) -> Option<Operand>;

/// A function being built.
pub struct Body<'b, 'a> {
    /// The module around it.
    pub b: &'b mut Builder<'a>,
    /// The function so far.
    pub f: Function,
    /// The parts of composites that were just constructed, to see through extractions.
    pub constructs: HashMap<ValueId, Vec<Operand>>,
    pub values: HashMap<u32, (Val, u32)>,
    pub labels: HashMap<u32, BlockId>,
    pub block: Option<BlockId>,
    /// The block in which each label's code ends, if that is not the one in which it begins.
    pub ends: HashMap<BlockId, BlockId>,
    /// The block of the current label.
    pub labelled: BlockId,
    pub insts: Vec<Inst>,
    pub phis: Vec<PendingPhi>,
    pub line: Line,
    /// The inlined call that the instructions belong to.
    pub inlined: Option<InlinedId>,
    pub loc: Loc,
    pub float_flags: Flags,
    pub int_flags: Flags,
    /// The function's modes about floats.
    pub floats: Controls,
    /// Emits operations on floats in these modes, if there are any; `None` for what is the same without.
    pub in_modes: Option<InModes>,
    /// The variable that holds the arguments of `printf`.
    pub printf_arguments: Option<PrintfArguments>,
    /// For a debugger.
    pub kept: Kept,
}

pub(super) fn empty_function(name: String, return_type: TypeId) -> Function {
    Function {
        name,
        params: Vec::new(),
        return_type,
        values: Arena::new(),
        variables: Vec::new(),
        shown: Vec::new(),
        blocks: Arena::new(),
        exported: false,
        loc: Loc::default(),
    }
}

impl<'b, 'a> Body<'b, 'a> {
    pub fn new(b: &'b mut Builder<'a>, name: String) -> Self {
        let void = b.module.types.void();
        Self {
            b,
            f: empty_function(name, void),
            constructs: HashMap::new(),
            values: HashMap::new(),
            labels: HashMap::new(),
            block: None,
            ends: HashMap::new(),
            labelled: ENTRY,
            insts: Vec::new(),
            phis: Vec::new(),
            line: None,
            inlined: None,
            loc: Loc::default(),
            float_flags: Flags::empty(),
            int_flags: Flags::empty(),
            floats: Controls::default(),
            in_modes: None,
            printf_arguments: None,
            kept: Kept::default(),
        }
    }

    /// A new private variable; its address.
    pub fn new_variable(
        &mut self,
        ty: TypeId,
        align: u64,
        init: Option<ConstId>,
    ) -> Result<Operand> {
        let layout = self.b.module.types.layout(ty);
        let pointer = self.b.module.types.pointer(AddressSpace::Private);
        let address = self.f.new_value(pointer);
        self.f.variables.push(PrivateVariable {
            address,
            ty,
            size: layout.map_or(0, |layout| layout.size),
            align: layout.map_or(1, |layout| layout.align).max(align),
            init,
        });
        Ok(Operand::Value(address))
    }

    /// Gives an id its value.
    pub fn set(&mut self, inst: &Instruction<'_>, id: u32, val: Val, ty: u32) -> Result<()> {
        self.b.check_new(inst, id)?;
        if self.labels.contains_key(&id) || self.values.insert(id, (val, ty)).is_some() {
            return Err(inst.error(format!("defines id %{id} a second time")));
        }
        if let (Val::Operand(Operand::Value(value)), Some(name)) =
            (val, self.b.annotations.name(id))
        {
            self.f.values[value].name.get_or_insert_with(|| name.to_owned());
        }
        Ok(())
    }

    /// Gives the instruction's result id its value.
    pub fn set_result(&mut self, inst: &Instruction<'_>, operand: Operand) -> Result<()> {
        self.set_result_val(inst, Val::Operand(operand))
    }

    /// Like [`Body::set_result`], also for addresses of built-ins.
    pub fn set_result_val(&mut self, inst: &Instruction<'_>, val: Val) -> Result<()> {
        let (id, ty) = (inst.result().unwrap_or_default(), inst.result_type().unwrap_or_default());
        self.set(inst, id, val, ty)
    }

    /// The value of an id and the id of its type.
    pub fn value(&self, inst: &Instruction<'_>, id: u32) -> Result<(Val, u32)> {
        if let Some(&value) = self.values.get(&id) {
            return Ok(value);
        }
        match self.b.defs.get(&id) {
            Some(&Def::Const(constant, ty)) => Ok((Val::Operand(Operand::Const(constant)), ty)),
            Some(&Def::BuiltIn(builtin, ty)) => Ok((Val::BuiltIn(builtin, 0), ty)),
            Some(_) => Err(inst.error(format!("uses %{id} as a value, which it is not"))),
            None => Err(inst.error(format!("uses %{id} before it is defined"))),
        }
    }

    /// Operand `index` of an instruction, as a value.
    pub fn arg(&self, inst: &Instruction<'_>, index: usize) -> Result<Operand> {
        self.operand(inst, inst.arg(index)?)
    }

    /// The operand with this id.
    pub fn operand(&self, inst: &Instruction<'_>, id: u32) -> Result<Operand> {
        match self.value(inst, id)? {
            (Val::Operand(operand), _) => Ok(operand),
            (Val::BuiltIn(..), _) => Err(inst.error(format!(
                "uses %{id}, the address of a built-in, other than to load from it"
            ))),
        }
    }

    /// The type of an operand.
    pub fn type_of(&self, operand: Operand) -> TypeId {
        self.b.module.operand_type(&self.f, operand)
    }

    /// The IR's type of an instruction's result.
    pub fn result_type(&self, inst: &Instruction<'_>) -> Result<TypeId> {
        self.b.ty(inst, inst.result_type().unwrap_or_default())
    }

    /// The decorations of an instruction's result.
    pub fn decorations(&self, inst: &Instruction<'_>) -> Decorations {
        self.b.decorations(inst).clone()
    }

    /// Appends an instruction with a result.
    pub fn emit(&mut self, ty: TypeId, op: Op) -> Operand {
        // What it emits for an operation is emitted as it is.
        if let Some(in_modes) = self.in_modes.take() {
            let result = in_modes(self, ty, &op);
            self.in_modes = Some(in_modes);
            if let Some(result) = result {
                return result;
            }
        }
        let result = self.f.new_value(ty);
        if let Op::Construct(parts) = &op {
            self.constructs.insert(result, parts.clone());
        }
        self.push(Some(result), op);
        Operand::Value(result)
    }

    /// Appends an instruction with a result whose number is assigned already.
    pub fn emit_to(&mut self, result: ValueId, op: Op) {
        self.push(Some(result), op);
    }

    /// Appends an instruction without a result.
    pub fn emit_void(&mut self, op: Op) {
        self.push(None, op);
    }

    fn push(&mut self, result: Option<ValueId>, op: Op) {
        let flags = self.flags_for(&op);
        self.insts.push(Inst { result, op, flags, loc: self.loc });
    }

    /// The flags of the SPIR-V instruction that apply to an operation.
    fn flags_for(&self, op: &Op) -> Flags {
        use BinaryOp::{Add, FAdd, FDiv, FMax, FMin, FMul, FSub, Mul, Shl, Sub};
        match op {
            Op::Binary(Add | Sub | Mul | Shl, ..) | Op::Unary(UnaryOp::Neg, _) => self.int_flags,
            Op::Binary(FAdd | FSub | FMul, ..) | Op::Unary(UnaryOp::FNeg, _) => self.float_flags,
            Op::Binary(FDiv | FMin | FMax, ..)
            | Op::Ternary(..)
            | Op::Math(..)
            | Op::Unary(UnaryOp::Sqrt, _) => self.float_flags.without(Flags::CONTRACT),
            Op::Compare(compare, ..) if (*compare as u8) >= CompareOp::FOEq as u8 => {
                self.float_flags.without(Flags::CONTRACT)
            }
            _ => Flags::empty(),
        }
    }

    /// Allows library functions of the current instruction to be approximate.
    pub fn allow_approximation(&mut self) {
        self.float_flags = self.float_flags.union(Flags::AFN);
    }

    /// Lets the current instruction multiply by an inverse instead of dividing.
    pub fn allow_reciprocals(&mut self) {
        self.float_flags = self.float_flags.union(Flags::ARCP);
    }

    /// Lets the multiplications and additions of the current instruction be fused.
    pub fn allow_contraction(&mut self) {
        self.float_flags = self.float_flags.union(Flags::CONTRACT);
    }

    /// A number of the component type of `ty`, in every component.
    pub fn splat(&mut self, ty: TypeId, bits: u64) -> Operand {
        let element = self.b.module.types.element(ty);
        let part = self.b.module.const_int(element, bits);
        match self.b.module.types[ty] {
            Type::Vector(_, n) => {
                let parts = vec![part; n as usize];
                self.b.const_operand(ty, ConstKind::Composite(parts))
            }
            _ => Operand::Const(part),
        }
    }

    /// A float of the component type of `ty`, in every component.
    pub fn splat_float(&mut self, ty: TypeId, value: f64) -> Operand {
        let element = self.b.module.types.element(ty);
        let bits = match self.b.module.types[element] {
            Type::Float(float) => crate::ir::eval::float_bits(float, value),
            _ => 0,
        };
        self.splat(ty, bits)
    }

    /// An integer constant of type `ty`, a scalar.
    pub fn int(&mut self, ty: TypeId, value: u64) -> Operand {
        Operand::Const(self.b.module.const_int(ty, value))
    }

    /// `unsupported` in place of an instruction.
    pub fn unsupported(&mut self, inst: &Instruction<'_>, what: &str) -> Result<()> {
        let op = Op::Unsupported(what.to_owned());
        if !inst.grammar.has_type {
            self.emit_void(op);
            return Ok(());
        }
        let ty = self.result_type(inst)?;
        if self.b.module.types[ty] == Type::Void {
            self.emit_void(op);
            return Ok(());
        }
        let operand = self.emit(ty, op);
        self.set_result(inst, operand)
    }

    /// Adds a block, for instructions that need several.
    pub fn new_block(&mut self) -> BlockId {
        self.f.blocks.push(Block {
            insts: Vec::new(),
            terminator: Terminator::Unreachable,
            loc: Loc::default(),
        })
    }

    /// The block to which instructions are appended.
    pub fn current_block(&self) -> BlockId {
        self.block.unwrap_or(ENTRY)
    }

    /// Sets the place in the source of the instructions that follow.
    pub fn set_line(&mut self, line: Line) {
        self.line = line;
    }

    /// Ends the block and continues in another one, within one label's code.
    pub fn go_on(&mut self, end: Terminator, next: BlockId) {
        let (line, inlined) = (self.line, self.inlined);
        self.end_block(end);
        (self.line, self.inlined) = (line, inlined);
        self.block = Some(next);
        self.ends.insert(self.labelled, next);
    }

    pub fn end_block(&mut self, terminator: Terminator) {
        if let Some(block) = self.block.take() {
            let block = &mut self.f.blocks[block];
            block.insts = std::mem::take(&mut self.insts);
            block.terminator = terminator;
            block.loc = self.loc;
        }
        (self.line, self.inlined) = (None, None);
    }

    /// Calls a function of the module.
    pub fn call_function(
        &mut self,
        inst: &Instruction<'_>,
        callee: FunctionId,
        args: Vec<Operand>,
    ) -> Result<()> {
        let ty = self.result_type(inst)?;
        if self.b.module.types[ty] == Type::Void {
            self.emit_void(Op::Call(callee, args));
            return Ok(());
        }
        let operand = self.emit(ty, Op::Call(callee, args));
        self.set_result(inst, operand)
    }

    /// Whether instructions are appended to the entry block.
    pub fn in_entry(&self) -> bool {
        self.block == Some(ENTRY)
    }

    /// The pointee of the SPIR-V type of a pointer or a vector of pointers.
    pub fn pointee(&self, inst: &Instruction<'_>, type_id: u32) -> Result<TypeId> {
        let pointee = self.known_pointee(inst, type_id)?;
        pointee
            .ok_or_else(|| inst.error("has an untyped pointer where it needs a typed one".into()))
    }

    /// The same; `None` if the pointers are untyped.
    pub fn known_pointee(&self, inst: &Instruction<'_>, type_id: u32) -> Result<Option<TypeId>> {
        match self.b.spv_type(inst, type_id)?.kind {
            SpvKind::Pointer(pointee) => self.b.ty(inst, pointee).map(Some),
            SpvKind::Untyped => Ok(None),
            SpvKind::Pointers(pointer) => self.known_pointee(inst, pointer),
            _ => Err(inst.error("has an operand that is not a pointer".into())),
        }
    }

    /// The distance of two pointers that differ by one, in bytes. Untyped pointers count bytes.
    pub fn pointer_step(&self, inst: &Instruction<'_>, type_id: u32) -> Result<u64> {
        let pointee = self.known_pointee(inst, type_id)?;
        Ok(pointee.map_or(1, |pointee| self.b.module.types.size(pointee).max(1)))
    }
}
