// SPDX-License-Identifier: MIT OR Apache-2.0
//! Function bodies: blocks, control flow, calls, and the choice of the file that translates an
//! instruction.

use std::collections::{HashMap, HashSet};

use rspirv::spirv::Op as Spv;

use super::body::{Body, PendingPhi, Val, empty_function};
use super::builder::{Builder, Def, InstructionSet, Signature};
use super::error::{Error, Result};
use super::words::Instruction;
use super::{
    angles, arith, async_copy, brain, debug, directed, dot, gather, group, image, imports,
    indirect, lines, matrix, matrix_checked, memory, narrow, opencl, pipe, vendor,
};
use crate::ir::eval::fold;
use crate::ir::{
    AddressSpace, Arena, Block, BlockId, ConstId, ENTRY, Flags, Loc, Op, Operand, Terminator, Type,
    TypeId, Value,
};

/// Builds a function and adds it to the module.
pub fn build(builder: &mut Builder<'_>, signature: &Signature<'_>) -> Result<()> {
    let kernel = builder.annotations.kernels.get(&signature.head.result().unwrap_or_default());
    let place = match kernel {
        Some(name) => format!("kernel {name:?}"),
        None => format!("function {:?}", signature.name),
    };
    let mut body = Body::new(builder, signature.name.clone());
    body.floats = signature.floats;
    if signature.floats.any() {
        body.in_modes = Some(directed::emit);
    }
    let built = body.function(signature);
    let (line, f) = (body.line, body.f);
    built.map_err(|error| Error {
        place: Some(place),
        source: line.and_then(|[file, line, column]| {
            let file = builder.annotations.strings.get(&file)?;
            Some(format!("{file}:{line}:{column}"))
        }),
        ..error
    })?;
    let id = builder.module.functions.push(f);
    debug_assert_eq!(id, signature.id, "functions are built in the order of their numbers");
    Ok(())
}

/// The value of an `OpSpecConstantOp`.
pub fn fold_constant(builder: &mut Builder<'_>, inst: &Instruction<'_>) -> Result<ConstId> {
    let opcode = inst.arg(0)?;
    let grammar = super::words::grammar(opcode)
        .filter(|grammar| grammar.has_type && grammar.has_result)
        .ok_or_else(|| inst.error(format!("applies opcode {opcode}, which gives no value")))?;
    let mut operands = inst.operands[..2].to_vec();
    operands.extend_from_slice(&inst.rest()[1..]);
    let inner = Instruction { grammar, operands: &operands, word: inst.word };
    inner.check_length()?;
    let mut body = Body::new(builder, String::new());
    body.block = Some(ENTRY);
    body.instruction(&inner)?;
    let (val, _) = body.value(&inner, inst.result().unwrap_or_default())?;
    let Val::Operand(operand) = val else {
        return Err(inst.error("has no constant value".into()));
    };
    let (f, insts) = (std::mem::replace(&mut body.f, empty_function(String::new(), TypeId(0))), {
        std::mem::take(&mut body.insts)
    });
    fold(&mut builder.module, &f, &insts, operand)
        .ok_or_else(|| inner.error("cannot be a specialization constant's operation".into()))
}

impl Body<'_, '_> {
    fn function(&mut self, signature: &Signature<'_>) -> Result<()> {
        let head = &signature.head;
        self.f.return_type = self.b.ty(head, signature.return_type)?;
        let linkage = self.b.decorations(head).linkage.as_ref();
        self.f.exported = linkage.is_some_and(|linkage| !linkage.import) && !signature.copied;
        self.line = signature.line;
        self.f.loc = self.b.loc(head, self.line);
        for inst in &signature.body {
            if inst.op() == Spv::Label {
                let block = self.f.blocks.push(Block {
                    insts: Vec::new(),
                    terminator: Terminator::Unreachable,
                    loc: Loc::default(),
                });
                let id = inst.result().unwrap_or_default();
                self.b.check_new(inst, id)?;
                if self.labels.insert(id, block).is_some() {
                    return Err(inst.error(format!("defines id %{id} a second time")));
                }
            }
        }
        self.params(signature)?;
        for inst in &signature.body {
            self.instruction(inst)?;
        }
        if self.block.is_some() {
            return Err(head.error("has a last block without an end".into()));
        }
        self.resolve_phis(head)?;
        if signature.body.is_empty() {
            // Defined elsewhere: a function without blocks, which copies no arguments.
            self.f.variables.clear();
            return Ok(());
        }
        debug::name_the_rest(self, head.result().unwrap_or_default());
        self.remove_unreachable_blocks();
        self.remove_unused_queries();
        angles::join(&mut self.b.module, &mut self.f);
        Ok(())
    }

    fn params(&mut self, signature: &Signature<'_>) -> Result<()> {
        let id = signature.head.result().unwrap_or_default();
        let is_kernel = self.b.annotations.kernels.contains_key(&id);
        for param in &signature.params {
            let id = param.result().unwrap_or_default();
            let type_id = param.result_type().unwrap_or_default();
            let ty = self.b.ty(param, type_id)?;
            let value = self
                .f
                .values
                .push(Value { ty, name: self.b.annotations.name(id).map(str::to_owned) });
            self.f.params.push(value);
            let private = self.b.module.types[ty] == Type::Pointer(AddressSpace::Private);
            let mut operand = Operand::Value(value);
            self.loc = self.b.loc(param, None);
            if private && (is_kernel || self.b.annotations.decorations(id).by_value) {
                // The function may write to the pointee, and must not see others do so: it works on a
                // copy of its own.
                let copied = self.b.pointee(param, type_id)?;
                if let Some(layout) = self.b.module.types.layout(copied) {
                    let address = self.new_variable(copied, 1, None)?;
                    let i64 = self.b.module.types.int(64);
                    let size = Operand::Const(self.b.module.const_int(i64, layout.size));
                    let access = memory::plain_access(layout.align);
                    self.emit_void(Op::Copy(address, operand, size, access));
                    operand = address;
                }
            }
            if is_kernel && self.b.has_narrow {
                let bits = narrow::width(self, param, type_id);
                operand = narrow::low(self, operand, bits);
            }
            self.set(param, id, Val::Operand(operand), type_id)?;
        }
        Ok(())
    }

    fn instruction(&mut self, inst: &Instruction<'_>) -> Result<()> {
        match inst.op() {
            Spv::Line | Spv::NoLine => {
                self.line = lines::after(inst, self.line)?;
                return Ok(());
            }
            Spv::Nop if inst.opcode() == Spv::Nop as u32 => return Ok(()),
            Spv::Label => return self.label(inst),
            _ => {}
        }
        if self.block.is_none() {
            return Err(inst.error("stands outside of a block".into()));
        }
        if !self.kept.pending.is_empty() && inst.op() != Spv::Phi && !self.is_debug(inst)? {
            debug::store_values(self);
        }
        self.loc = Loc { inlined: self.inlined, ..self.b.loc(inst, self.line) };
        self.set_flags(inst);
        if narrow::translate(self, inst)?
            || self.control_flow(inst)?
            || gather::translate(self, inst)?
            || matrix_checked::translate(self, inst)?
            || matrix::translate(self, inst)?
            || brain::translate(self, inst)?
            || arith::translate(self, inst)?
            || memory::translate(self, inst)?
            || async_copy::translate(self, inst)?
            || group::translate(self, inst)?
            || indirect::translate(self, inst)?
            || image::translate(self, inst)?
            || pipe::translate(self, inst)?
            || dot::translate(self, inst)?
            || vendor::translate(self, inst)?
        {
            return Ok(());
        }
        let name = inst.grammar.name.clone();
        self.unsupported(inst, &name)
    }

    /// Instructions of control flow. `false` if it is another one.
    fn control_flow(&mut self, inst: &Instruction<'_>) -> Result<bool> {
        match inst.op() {
            Spv::Phi => self.phi(inst)?,
            Spv::LoopMerge | Spv::SelectionMerge | Spv::LoopControlINTEL => {}
            Spv::Branch => {
                let next = self.block_id(inst, inst.arg(0)?)?;
                self.end_block(Terminator::Branch(next));
            }
            Spv::BranchConditional => {
                let condition = self.arg(inst, 0)?;
                let yes = self.block_id(inst, inst.arg(1)?)?;
                let no = self.block_id(inst, inst.arg(2)?)?;
                self.end_block(if yes == no {
                    Terminator::Branch(yes)
                } else {
                    Terminator::CondBranch(condition, yes, no)
                });
            }
            Spv::Switch => self.switch(inst)?,
            Spv::Return => self.end_block(Terminator::Return(None)),
            Spv::ReturnValue => {
                let value = self.arg(inst, 0)?;
                self.end_block(Terminator::Return(Some(value)));
            }
            Spv::Unreachable => self.end_block(Terminator::Unreachable),
            Spv::Kill | Spv::TerminateInvocation => {
                self.emit_void(Op::Unsupported(inst.grammar.name.clone()));
                self.end_block(Terminator::Unreachable);
            }
            Spv::FunctionCall => self.call(inst)?,
            Spv::ExtInst => self.extended(inst)?,
            Spv::FunctionParameter => {
                return Err(inst.error("stands behind the first block".into()));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn phi(&mut self, inst: &Instruction<'_>) -> Result<()> {
        if self.insts.iter().any(|inst| !matches!(inst.op, Op::Phi(_))) {
            return Err(inst.error("does not stand at the start of its block".into()));
        }
        let pairs = inst.rest();
        if !pairs.len().is_multiple_of(2) {
            return Err(inst.error("has an odd number of operands".into()));
        }
        let incoming = pairs.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        let ty = self.result_type(inst)?;
        let index = self.insts.len();
        let operand = self.emit(ty, Op::Phi(Vec::new()));
        if let Some(block) = self.block {
            self.phis.push(PendingPhi { block, index, incoming });
        }
        self.set_result(inst, operand)
    }

    fn switch(&mut self, inst: &Instruction<'_>) -> Result<()> {
        let value = self.arg(inst, 0)?;
        let default = self.block_id(inst, inst.arg(1)?)?;
        let bits = self.b.module.types.scalar_bits(self.type_of(value));
        let words = if bits > 32 { 2 } else { 1 };
        let pairs = &inst.rest()[2..];
        if !pairs.len().is_multiple_of(words + 1) {
            return Err(inst.error("has an incomplete case".into()));
        }
        let mut cases = Vec::with_capacity(pairs.len() / (words + 1));
        let mut seen = HashSet::new();
        for pair in pairs.chunks_exact(words + 1) {
            let case = match pair {
                [low, high, _] => u64::from(*high) << 32 | u64::from(*low),
                _ => u64::from(pair[0]) & (u64::MAX >> (64 - bits.clamp(1, 32))),
            };
            if !seen.insert(case) {
                return Err(inst.error(format!("has case {case} twice")));
            }
            cases.push((case, self.block_id(inst, pair[words])?));
        }
        self.end_block(if cases.is_empty() {
            Terminator::Branch(default)
        } else {
            Terminator::Switch { value, default, cases }
        });
        Ok(())
    }

    fn call(&mut self, inst: &Instruction<'_>) -> Result<()> {
        let callee = inst.arg(0)?;
        let mut args = Vec::with_capacity(inst.rest().len());
        for &id in &inst.rest()[1..] {
            args.push(self.operand(inst, id)?);
        }
        match self.b.defs.get(&callee) {
            Some(&Def::Function(callee)) => {
                let copy = self.b.copies.get(&(callee, self.floats));
                self.call_function(inst, copy.copied().unwrap_or(callee), args)
            }
            Some(Def::Import(name, declared)) => {
                let (name, declared) = (name.clone(), *declared);
                match imports::call(self, inst, &name, &args)? {
                    true => Ok(()),
                    false if self.floats.any() => {
                        let what = "a call of another module's function in a kernel with its own modes of floats";
                        self.unsupported(inst, what)
                    }
                    false => self.call_function(inst, declared, args),
                }
            }
            _ => Err(inst.error(format!("calls %{callee}, which is not a function"))),
        }
    }

    /// Whether an instruction is debug information.
    fn is_debug(&self, inst: &Instruction<'_>) -> Result<bool> {
        Ok(inst.op() == Spv::ExtInst
            && !matches!(
                self.b.defs.get(&inst.arg(0)?),
                Some(Def::InstructionSet(InstructionSet::OpenCl))
            ))
    }

    fn extended(&mut self, inst: &Instruction<'_>) -> Result<()> {
        match self.b.defs.get(&inst.arg(0)?) {
            Some(Def::InstructionSet(InstructionSet::OpenCl)) => opencl::translate(self, inst),
            Some(Def::InstructionSet(InstructionSet::ShaderDebug)) => {
                debug::extended(self, inst, false)
            }
            Some(Def::InstructionSet(InstructionSet::OpenClDebug)) => {
                debug::extended(self, inst, true)
            }
            Some(Def::InstructionSet(InstructionSet::Debug)) => Ok(()),
            _ => Err(inst.error("names an instruction set that is not imported".into())),
        }
    }

    fn resolve_phis(&mut self, head: &Instruction<'_>) -> Result<()> {
        for PendingPhi { block, index, incoming } in std::mem::take(&mut self.phis) {
            let word = self.f.blocks[block].insts[index].loc.word as usize;
            let at = |error: Error| Error { word, opcode: Some("OpPhi".into()), ..error };
            let mut arms = Vec::with_capacity(incoming.len());
            for (value, parent) in incoming {
                let from = self.block_id(head, parent).map_err(at)?;
                let from = self.ends.get(&from).copied().unwrap_or(from);
                arms.push((from, self.operand(head, value).map_err(at)?));
            }
            // LLVM has an arm for each case of a switch, and its translator keeps them all.
            let mut seen = HashSet::new();
            arms.retain(|arm| seen.insert(*arm));
            self.f.blocks[block].insts[index].op = Op::Phi(arms);
        }
        Ok(())
    }

    /// Removes blocks that cannot be reached, and their arms in phis.
    fn remove_unreachable_blocks(&mut self) {
        let mut reached = vec![false; self.f.blocks.len()];
        let mut work = vec![ENTRY];
        while let Some(block) = work.pop() {
            if let Some(slot) = reached.get_mut(block.0 as usize)
                && !std::mem::replace(slot, true)
            {
                work.extend(self.f.blocks[block].terminator.successors());
            }
        }
        let mut renumbered = HashMap::new();
        let mut blocks = Arena::new();
        for (id, block) in std::mem::take(&mut self.f.blocks).into_iter() {
            if reached[id.0 as usize] {
                renumbered.insert(id, blocks.push(block));
            }
        }
        for (_, block) in blocks.iter_mut() {
            block.terminator.for_each_successor_mut(|next| {
                *next = renumbered.get(next).copied().unwrap_or(*next);
            });
            for inst in &mut block.insts {
                if let Op::Phi(arms) = &mut inst.op {
                    arms.retain_mut(|(from, _)| match renumbered.get(from) {
                        Some(&new) => {
                            *from = new;
                            true
                        }
                        None => false,
                    });
                }
            }
        }
        self.f.blocks = blocks;
    }

    /// Removes work-item queries that only served to load the vector of one that is used.
    fn remove_unused_queries(&mut self) {
        // Constructs use queries, so two rounds are enough.
        for _ in 0..2 {
            let mut used = HashSet::new();
            let mut note = |operand: Operand| {
                if let Operand::Value(value) = operand {
                    used.insert(value);
                }
            };
            for (_, block) in self.f.blocks.iter() {
                block.insts.iter().for_each(|inst| inst.op.for_each_operand(&mut note));
                block.terminator.for_each_operand(&mut note);
            }
            for (_, block) in self.f.blocks.iter_mut() {
                block.insts.retain(|inst| {
                    !matches!(inst.op, Op::WorkItem(..) | Op::Construct(_))
                        || inst.result.is_some_and(|result| used.contains(&result))
                });
            }
        }
    }

    fn label(&mut self, inst: &Instruction<'_>) -> Result<()> {
        if self.block.is_some() {
            return Err(inst.error("begins before the last block has ended".into()));
        }
        let block = self.labels[&inst.result().unwrap_or_default()];
        self.block = Some(block);
        self.labelled = block;
        Ok(())
    }

    fn set_flags(&mut self, inst: &Instruction<'_>) {
        let contraction_off = self.b.annotations.contraction_off;
        let decorations = self.b.decorations(inst);
        let int = Flags::NSW.union(Flags::NUW);
        self.int_flags = decorations.flags.without(decorations.flags.without(int));
        self.float_flags = decorations.flags.without(int);
        if decorations.no_contraction {
            self.float_flags = self.float_flags.without(Flags::CONTRACT);
        } else if !contraction_off {
            self.float_flags = self.float_flags.union(Flags::CONTRACT);
        }
    }

    fn block_id(&self, inst: &Instruction<'_>, id: u32) -> Result<BlockId> {
        self.labels
            .get(&id)
            .copied()
            .ok_or_else(|| inst.error(format!("goes to %{id}, not a label of the function")))
    }
}
