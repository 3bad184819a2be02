// SPDX-License-Identifier: MIT OR Apache-2.0
//! One function: its blocks, phis and terminators, its private variables, and the resumption of items.
//!
//! Each IR block is one LLVM block of the same name, behind a block `entry` that computes the values
//! that the whole function shares. In a resumable function `entry` ends with a switch to the place
//! where the item stopped. Values that are live across a barrier have a stack slot there, which LLVM's
//! `mem2reg` turns back into SSA form: the definition and the resumed code both write it.

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write;

use super::body::{Body, name};
use super::context::SCRATCH;
use super::frame::{EXCHANGE_PARAMS, Frame, NAMED_STATES, SHARED, SUBGROUP_STATES};
use super::places;
use super::types::{constant, memory_type, value_type};
use super::unit::{ITEM_PARAMS, LowerError, MAX_ALIGN, Unit, function_symbol};
use crate::ir::{
    Block, BlockId, Function, FunctionId, Inst, Op, Operand, PrivateVariable, Scope, Terminator,
    ValueId,
};
use crate::regions::{Barrier, Regions};
use crate::widen::physical;

/// The maximum size in bytes of an initial value that is stored as one value.
const MAX_STORED: u64 = 256;

/// Lowers a function that runs from start to end.
pub(super) fn lower(
    unit: &mut Unit<'_>,
    id: FunctionId,
    function: &Function,
) -> Result<String, LowerError> {
    let mut body = Body::new(unit, function);
    body.place_variables();
    body.prepare(&HashSet::new())?;
    body.show_variables()?;
    let start = body.initialise_variables();
    body.blocks()?;
    let result = value_type(body.unit.module, function.return_type);
    let params = body.params();
    let symbol = function_symbol(id);
    let attributes = body.unit.attributes();
    let place = body.scope.map(places::Scope::text).unwrap_or_default();
    let Body { prelude, out, .. } = body;
    Ok(format!(
        "\n; {}\ndefine internal {result} {symbol}({ITEM_PARAMS}{params}) {attributes}{place} {{\nentry:\n{prelude}{start}  br label %bb0\n{out}}}\n",
        comment(&function.name)
    ))
}

/// Lowers a kernel that can be resumed behind each of its barriers.
pub(super) fn lower_resumable(
    unit: &mut Unit<'_>,
    regions: &Regions,
    frame: &Frame,
    id: FunctionId,
) -> Result<String, LowerError> {
    let function = &regions.function;
    let mut body = Body::new(unit, function);
    body.slots = regions.crossing.iter().copied().collect();
    let barriers = || (1..).map(|n: u32| n).zip(&regions.barriers).map(|(n, b)| (state(n, b), b));
    body.barriers = barriers().map(|(state, b)| (b.block, (state, b))).collect();
    body.frame = Some(frame);
    for variable in &function.variables {
        let (address, offset) = (variable.address, frame.offsets[&variable.address]);
        let _ = writeln!(
            body.prelude,
            "  {} = getelementptr i8, ptr %frame, i64 {offset}",
            name(address)
        );
    }
    for &value in &regions.crossing {
        let ty = value_type(body.unit.module, function.values[value].ty);
        let _ = writeln!(body.prelude, "  {}.slot = alloca {ty}", name(value));
    }
    body.prepare(&regions.remade)?;
    body.show_variables()?;
    let mut cases = String::new();
    let mut resumes = String::new();
    let ends: Vec<_> = barriers().map(|(_, barrier)| barrier.block).collect();
    let told = body.tell_again(function, &ends);
    for ((state, barrier), told) in barriers().zip(told) {
        let _ = write!(cases, " i32 {state}, label %resume{state}");
        let restore = |body: &mut Body<'_, '_>| {
            barrier.live.iter().for_each(|&value| body.restore(frame, value));
        };
        let ((), restore) = body.captured(restore);
        let _ = writeln!(resumes, "resume{state}:\n{restore}{told}  br label %{}", barrier.resume);
    }
    let start = body.initialise_variables();
    body.blocks()?;
    let params = body.params();
    let symbol = function_symbol(id);
    let attributes = body.unit.attributes();
    let place = body.scope.map(places::Scope::text).unwrap_or_default();
    let Body { prelude, out, .. } = body;
    // Items that exchange values read each other's frames.
    let (alone, exchange) = match &frame.exchange {
        Some(_) => (false, EXCHANGE_PARAMS),
        None => (regions.makes_addresses(), ""),
    };
    let noalias = if alone { "noalias " } else { "" };
    let shared: String = match frame.shared.size {
        0 => String::new(),
        _ => SHARED.map(|name| format!(", ptr noalias {name}")).concat(),
    };
    Ok(format!(
        "\n; {}, to be resumed\ndefine internal i32 {symbol}({ITEM_PARAMS}, ptr {noalias}%frame, i32 %resume{exchange}{params}{shared}) {attributes}{place} {{
entry:
{prelude}  switch i32 %resume, label %start [{cases} ]
start:
{start}  br label %bb0
{resumes}{out}}}
",
        comment(&function.name)
    ))
}

/// The state of an item that waits at a barrier.
fn state(number: u32, barrier: &Barrier) -> u32 {
    match barrier.scope {
        Scope::Subgroup => SUBGROUP_STATES + number,
        _ if barrier.named => NAMED_STATES + number,
        _ => number,
    }
}

impl Body<'_, '_> {
    /// The parameter list behind [`ITEM_PARAMS`].
    fn params(&self) -> String {
        let param = |&id: &ValueId| {
            format!(", {} {}", self.value_type(self.function.values[id].ty), name(id))
        };
        self.function.params.iter().map(param).collect()
    }

    /// Gives each private variable its place: the stack, or scratch memory if the kernel has many bytes
    /// of them.
    fn place_variables(&mut self) {
        for variable in &self.function.variables {
            let address = name(variable.address);
            let align = variable.align.clamp(1, MAX_ALIGN);
            let place = if self.unit.spill_variables {
                let offset = self.unit.take_scratch(variable.size, variable.align);
                let base = self.base(SCRATCH);
                format!("getelementptr i8, ptr {base}, i64 {offset}")
            } else {
                let ty = memory_type(self.unit.module, variable.ty);
                format!("alloca {ty}, align {align}")
            };
            let _ = writeln!(self.prelude, "  {address} = {place}");
        }
    }

    /// The instructions that write the initial values of private variables.
    fn initialise_variables(&mut self) -> String {
        let function = self.function;
        let write = |body: &mut Self| {
            for variable in &function.variables {
                let Some(init) = variable.init else { continue };
                if variable.size > MAX_STORED
                    && let Some(byte) = body.unit.module.repeated_byte(init)
                {
                    body.set_bytes(variable, byte);
                    continue;
                }
                let ty = memory_type(body.unit.module, variable.ty);
                let value = body.constant(init, true);
                let align = variable.align.clamp(1, MAX_ALIGN);
                let address = name(variable.address);
                body.line(&format!("store {ty} {value}, ptr {address}, align {align}"));
            }
        };
        self.captured(write).1
    }

    /// Sets all bytes of a private variable.
    fn set_bytes(&mut self, variable: &PrivateVariable, byte: u8) {
        self.unit.declare("void", "llvm.memset.p0.i64", "ptr, i8, i64, i1");
        let align = variable.align.clamp(1, MAX_ALIGN);
        let (address, size) = (name(variable.address), variable.size);
        self.line(&format!(
            "call void @llvm.memset.p0.i64(ptr align {align} {address}, i8 {byte}, i64 {size}, i1 false)"
        ));
    }

    /// Computes in the prelude the items' queries for their place, and the values in `cheap`.
    fn prepare(&mut self, cheap: &HashSet<ValueId>) -> Result<(), LowerError> {
        let mut conversions = Vec::new();
        for (_, block) in self.function.blocks.iter() {
            for inst in &block.insts {
                let Some(result) = inst.result else { continue };
                if let Op::WorkItem(query, dimension) = inst.op {
                    let dimension = physical(self.unit.axis, dimension);
                    let answer = self.work_item(query, dimension)?;
                    self.hoisted.insert(result, answer);
                } else if cheap.contains(&result) {
                    conversions.push(inst);
                }
            }
        }
        // Each depends on values that are computed already or in a later round.
        while !conversions.is_empty() {
            let (ready, later): (Vec<_>, Vec<_>) = conversions.into_iter().partition(|inst| {
                let mut ready = true;
                inst.op.for_each_operand(|operand| ready &= self.is_ready(operand, cheap));
                ready
            });
            for inst in &ready {
                let (value, text) =
                    self.captured(|body| Ok(body.op(inst)?.map(|text| body.def(&text))));
                self.prelude += &text;
                self.hoisted.extend(inst.result.zip(value?));
            }
            if ready.is_empty() {
                return Err(LowerError::Unsupported("a value that depends on itself".into()));
            }
            conversions = later;
        }
        Ok(())
    }

    /// Whether the prelude has computed an operand of a value in `cheap` by now.
    fn is_ready(&self, operand: Operand, cheap: &HashSet<ValueId>) -> bool {
        let Operand::Value(value) = operand else { return true };
        self.hoisted.contains_key(&value)
            || !cheap.contains(&value)
            || self.function.params.contains(&value)
            || self.function.variables.iter().any(|variable| variable.address == value)
    }

    /// Writes all blocks.
    fn blocks(&mut self) -> Result<(), LowerError> {
        let function = self.function;
        for (id, block) in function.blocks.iter() {
            let _ = writeln!(self.out, "{id}:");
            self.come_from(block.loc);
            self.phis(block);
            for inst in block.insts.iter().skip(block.phis().count()) {
                self.come_from(inst.loc);
                self.inst(inst)?;
            }
            self.come_from(block.loc);
            match self.barriers.get(&id) {
                Some(&(state, barrier)) => self.stop(state, barrier)?,
                None => self.terminator(id, block),
            }
        }
        Ok(())
    }

    fn phis(&mut self, block: &Block) {
        for inst in block.phis() {
            let (Op::Phi(incoming), Some(result)) = (&inst.op, inst.result) else { continue };
            let ty = self.value_type(self.function.values[result].ty);
            let mut arms = Vec::new();
            for &(from, operand) in incoming {
                let value = match self.must_copy(operand) {
                    true => edge_name(result, from),
                    false => self.operand(operand),
                };
                // LLVM needs an arm for each edge, and a switch may have several to this block.
                let here = |next: &BlockId| function_block_has(self.function, *next, result);
                let edges = self.function.blocks[from].terminator.successors();
                let count = edges.iter().filter(|&next| here(next)).count();
                arms.extend((0..count).map(|_| format!("[ {value}, %{from} ]")));
            }
            let text = match arms.is_empty() {
                true => format!("freeze {ty} poison"),
                false => format!("phi {ty} {}", arms.join(", ")),
            };
            self.line(&format!("{} = {text}", name(result)));
        }
        for result in block.phis().filter_map(|inst| inst.result) {
            self.keep(result);
        }
    }

    /// Whether a phi's operand needs instructions, which belong at the end of the predecessor.
    fn must_copy(&mut self, operand: Operand) -> bool {
        match operand {
            Operand::Value(value) => {
                self.slots.contains(&value) && !self.hoisted.contains_key(&value)
            }
            Operand::Const(id) => {
                let module = self.unit.module;
                constant(module, id, false, &mut |global| self.unit.symbol(global)).is_none()
            }
        }
    }

    /// Writes a value that is live across a barrier to its slot.
    fn keep(&mut self, value: ValueId) {
        if self.slots.contains(&value) {
            let ty = self.value_type(self.function.values[value].ty);
            let name = name(value);
            self.line(&format!("store {ty} {name}, ptr {name}.slot"));
        }
    }

    fn inst(&mut self, inst: &Inst) -> Result<(), LowerError> {
        if inst.result.is_some_and(|result| self.hoisted.contains_key(&result)) {
            return Ok(());
        }
        let text = self.op(inst)?;
        match (inst.result, text) {
            (Some(result), Some(text)) => {
                self.line(&format!("{} = {text}", name(result)));
                self.keep(result);
            }
            (None, Some(text)) => self.line(&text),
            (_, None) => {}
        }
        Ok(())
    }

    /// Saves the item at a barrier and leaves the function.
    fn stop(&mut self, state: u32, barrier: &Barrier) -> Result<(), LowerError> {
        if let Some(frame) = self.frame {
            self.add_to_sum(frame, barrier.block)?;
            barrier.changed.iter().for_each(|&value| self.save(frame, value));
        }
        self.line(&format!("ret i32 {state}"));
        Ok(())
    }

    /// Slot to frame.
    fn save(&mut self, frame: &Frame, value: ValueId) {
        let ty = self.function.values[value].ty;
        let at = self.frame_place(frame, value, SHARED[1]);
        let text = self.operand(Operand::Value(value));
        self.store(ty, &text, &at, self.plain_access(ty));
    }

    /// Frame to slot.
    fn restore(&mut self, frame: &Frame, value: ValueId) {
        let ty = self.function.values[value].ty;
        let at = self.frame_place(frame, value, SHARED[0]);
        let load = self.load(ty, &at, self.plain_access(ty));
        let text = self.def(&load);
        let ty = self.value_type(ty);
        self.line(&format!("store {ty} {text}, ptr {}.slot", name(value)));
    }

    /// The place of a value: in the frame, or in the group's place `shared`.
    fn frame_place(&mut self, frame: &Frame, value: ValueId, shared: &str) -> String {
        let (base, offset) = match frame.shared.offsets.get(&value) {
            Some(&offset) => (shared, offset),
            None => ("%frame", frame.offsets[&value]),
        };
        self.def(&format!("getelementptr i8, ptr {base}, i64 {offset}"))
    }

    fn terminator(&mut self, id: BlockId, block: &Block) {
        self.copies(id, &block.terminator);
        let text = match &block.terminator {
            Terminator::Branch(next) => format!("br label %{next}"),
            Terminator::CondBranch(condition, yes, no) => {
                let condition = self.operand(*condition);
                format!("br i1 {condition}, label %{yes}, label %{no}")
            }
            Terminator::Switch { value, default, cases } => {
                let ty = self.value_type(self.type_of(*value));
                let value = self.operand(*value);
                let mut text = format!("switch {ty} {value}, label %{default} [");
                for (case, next) in cases {
                    let _ = write!(text, " {ty} {case}, label %{next}");
                }
                text + " ]"
            }
            Terminator::Return(_) if self.frame.is_some() => "ret i32 -1".into(),
            Terminator::Return(None) => "ret void".into(),
            Terminator::Return(Some(value)) => format!("ret {}", self.typed(*value)),
            Terminator::Unreachable => "unreachable".into(),
        };
        self.line(&text);
    }

    /// Emits the operands of the next blocks' phis that need instructions.
    fn copies(&mut self, id: BlockId, end: &Terminator) {
        let function = self.function;
        // In an order of their own, so that the same module gives the same text each time.
        let next: BTreeSet<_> = end.successors().into_iter().collect();
        for next in next {
            for inst in function.blocks[next].phis() {
                let (Op::Phi(incoming), Some(result)) = (&inst.op, inst.result) else { continue };
                for &(_, operand) in incoming.iter().filter(|(from, _)| *from == id) {
                    if self.must_copy(operand) {
                        let ty = self.value_type(self.type_of(operand));
                        let value = self.operand(operand);
                        let name = edge_name(result, id);
                        self.line(&format!("{name} = select i1 true, {ty} {value}, {ty} {value}"));
                    }
                }
            }
        }
    }
}

/// Whether `block` has the phi that defines `result`.
fn function_block_has(function: &Function, block: BlockId, result: ValueId) -> bool {
    function.blocks[block].phis().any(|inst| inst.result == Some(result))
}

/// The name of a phi's operand that is made at the end of a predecessor.
fn edge_name(result: ValueId, from: BlockId) -> String {
    format!("%v{}.{from}", result.0)
}

/// A name that is safe in a comment.
fn comment(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
