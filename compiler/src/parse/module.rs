// SPDX-License-Identifier: MIT OR Apache-2.0
//! Module scope: types, constants, variables and the signatures of functions.

use std::collections::HashSet;

use rspirv::spirv::{AddressingModel, MemoryModel, Op, StorageClass};

use super::builder::{Builder, Def, InstructionSet, Signature, SpvKind, SpvType};
use super::controls::Controls;
use super::error::{Error, Result};
use super::lines::Line;
use super::words::Instruction;
use super::{debug, function, image, indirect, lines, matrix, modes, pipe};
use crate::ir::{AddressSpace, ConstId, ConstKind, Float, FunctionId, Global, Type, TypeId};

/// SPIR-V's universal limits on types; they also bound this compiler's recursion.
const MAX_TYPE_DEPTH: u32 = 255;
const MAX_MEMBERS: usize = 16_383;
const MAX_PARAMETERS: usize = 255;

impl Builder<'_> {
    /// Builds everything of module scope and returns the functions.
    pub fn module_scope<'w>(
        &mut self,
        instructions: &[Instruction<'w>],
    ) -> Result<Vec<Signature<'w>>> {
        let first_function =
            instructions.iter().position(|i| i.op() == Op::Function).unwrap_or(instructions.len());
        let mut has_memory_model = false;
        let mut line = None;
        for inst in &instructions[..first_function] {
            has_memory_model |= inst.op() == Op::MemoryModel;
            line = lines::after(inst, line)?;
            self.global_instruction(inst)?;
        }
        if !has_memory_model {
            return Err(Error {
                word: super::words::HEADER_WORDS,
                opcode: None,
                place: None,
                source: None,
                message: "the module has no OpMemoryModel".into(),
            });
        }
        self.signatures(&instructions[first_function..], line)
    }

    fn global_instruction(&mut self, inst: &Instruction<'_>) -> Result<()> {
        match inst.op() {
            Op::MemoryModel => memory_model(inst),
            Op::ExtInstImport => {
                let name = inst.string(0)?.0;
                let set = match name.as_str() {
                    "OpenCL.std" => InstructionSet::OpenCl,
                    "OpenCL.DebugInfo.100" => InstructionSet::OpenClDebug,
                    "SPIRV.debug" | "DebugInfo" => InstructionSet::Debug,
                    name if name.starts_with("NonSemantic.Shader.DebugInfo.") => {
                        InstructionSet::ShaderDebug
                    }
                    name if name.starts_with("NonSemantic.") => InstructionSet::Debug,
                    name => {
                        return Err(inst.error(format!("imports {name:?}, which is not known")));
                    }
                };
                self.define(inst, Def::InstructionSet(set))
            }
            Op::ExtInst => match self.defs.get(&inst.arg(0)?) {
                Some(Def::InstructionSet(InstructionSet::Debug)) => self.define(inst, Def::Debug),
                Some(Def::InstructionSet(InstructionSet::ShaderDebug)) => {
                    debug::collect(self, inst, false)?;
                    self.define(inst, Def::Debug)
                }
                Some(Def::InstructionSet(InstructionSet::OpenClDebug)) => {
                    debug::collect(self, inst, true)?;
                    self.define(inst, Def::Debug)
                }
                _ => Err(inst.error("stands outside of a function".into())),
            },
            Op::String
            | Op::DecorationGroup
            | Op::AliasDomainDeclINTEL
            | Op::AliasScopeDeclINTEL
            | Op::AliasScopeListDeclINTEL => self.define(inst, Def::Debug),
            Op::TypeForwardPointer => {
                if let Some(class) = StorageClass::from_u32(inst.arg(1)?) {
                    self.forward_pointers.insert(inst.arg(0)?, class);
                }
                Ok(())
            }
            Op::Variable | Op::UntypedVariableKHR => self.variable(inst),
            Op::ConstantPipeStorage => pipe::storage(self, inst),
            Op::ConstantFunctionPointerINTEL => indirect::constant(self, inst),
            Op::Undef
            | Op::ConstantTrue
            | Op::ConstantFalse
            | Op::Constant
            | Op::ConstantComposite
            | Op::ConstantNull
            | Op::ConstantSampler
            | Op::SpecConstantTrue
            | Op::SpecConstantFalse
            | Op::SpecConstant
            | Op::SpecConstantComposite
            | Op::ConstantCompositeReplicateEXT
            | Op::SpecConstantCompositeReplicateEXT => self.constant_instruction(inst),
            Op::SpecConstantOp => {
                let ty = inst.result_type().unwrap_or_default();
                let constant = function::fold_constant(self, inst)?;
                self.define(inst, Def::Const(constant, ty))
            }
            _ if inst.grammar.name.starts_with("OpType") => self.type_instruction(inst),
            _ if inst.grammar.has_result => {
                // Its meaning is not known: a use of it by code is reported.
                self.define(inst, Def::Debug)
            }
            _ => Ok(()),
        }
    }

    fn type_instruction(&mut self, inst: &Instruction<'_>) -> Result<()> {
        let mut depth = 0;
        let mut nest = |this: &Self, id: u32| -> Result<TypeId> {
            let ty = this.spv_type(inst, id)?;
            depth = depth.max(ty.depth + 1);
            Ok(ty.ir)
        };
        let mut kind = SpvKind::Plain;
        let ty = match inst.op() {
            Op::TypeVoid => Type::Void,
            Op::TypeBool => Type::Bool,
            Op::TypeInt => match inst.arg(0)? {
                bits @ (8 | 16 | 32 | 64) => Type::Int(bits),
                bits @ 1..64 => {
                    kind = SpvKind::Narrow(bits);
                    self.has_narrow = true;
                    Type::Int(bits.next_power_of_two().max(8))
                }
                bits => Type::Opaque(format!("integer of {bits} bits")),
            },
            Op::TypeFloat => match (inst.arg(0)?, inst.arg(1).ok()) {
                (16, None) => Type::Float(Float::F16),
                (32, None) => Type::Float(Float::F32),
                (64, None) => Type::Float(Float::F64),
                (16, Some(0)) => {
                    kind = SpvKind::Brain;
                    Type::Int(16)
                }
                (bits, None) => Type::Opaque(format!("float of {bits} bits")),
                (bits, Some(_)) => Type::Opaque(format!("float of {bits} bits, other encoding")),
            },
            Op::TypeVector => {
                let element = nest(self, inst.arg(0)?)?;
                if matches!(self.spv_type(inst, inst.arg(0)?)?.kind, SpvKind::Brain) {
                    kind = SpvKind::Brain;
                }
                if matches!(self.module.types[element], Type::Pointer(_)) {
                    kind = SpvKind::Pointers(inst.arg(0)?);
                }
                let narrow = matches!(self.spv_type(inst, inst.arg(0)?)?.kind, SpvKind::Narrow(_));
                match (&self.module.types[element], inst.arg(1)?) {
                    _ if narrow => Type::Opaque("vector of integers of an odd width".to_owned()),
                    (
                        Type::Bool | Type::Int(_) | Type::Float(_) | Type::Pointer(_),
                        n @ (2 | 3 | 4 | 8 | 16),
                    ) => Type::Vector(element, n),
                    (Type::Opaque(name), _) => Type::Opaque(format!("vector of {name}")),
                    (_, n) => Type::Opaque(format!("vector of {n}")),
                }
            }
            Op::TypeArray => {
                let element = nest(self, inst.arg(0)?)?;
                Type::Array(element, self.int(inst, inst.arg(1)?)?)
            }
            Op::TypeStruct => {
                if inst.rest().len() > MAX_MEMBERS {
                    return Err(inst.error(format!("has more than {MAX_MEMBERS} members")));
                }
                let mut members = Vec::with_capacity(inst.rest().len());
                for &member in inst.rest() {
                    members.push(match self.forward_pointers.get(&member) {
                        // A pointer that is declared later: only its address space matters.
                        Some(&class) if !self.defs.contains_key(&member) => {
                            let ty = pointer_type(Some(class));
                            self.intern(inst, ty)?
                        }
                        _ => nest(self, member)?,
                    });
                }
                Type::Struct { members, packed: self.decorations(inst).packed }
            }
            Op::TypePointer => {
                let class = StorageClass::from_u32(inst.arg(0)?);
                kind = SpvKind::Pointer(inst.arg(1)?);
                pointer_type(class)
            }
            Op::TypeUntypedPointerKHR => {
                kind = SpvKind::Untyped;
                pointer_type(StorageClass::from_u32(inst.arg(0)?))
            }
            // Named barriers are numbers of sub-groups in local memory.
            Op::TypeNamedBarrier => Type::Pointer(AddressSpace::Local),
            // A pipe is the address of its header, and its storage has the same.
            Op::TypePipe | Op::TypePipeStorage => Type::Pointer(AddressSpace::Global),
            Op::TypeReserveId => Type::Int(64),
            // An event carries no information.
            Op::TypeEvent => Type::Int(64),
            Op::TypeFunction => {
                let params = inst.rest()[1..].to_vec();
                if params.len() > MAX_PARAMETERS {
                    return Err(inst.error(format!("has more than {MAX_PARAMETERS} parameters")));
                }
                for &id in inst.rest() {
                    nest(self, id)?;
                }
                kind = SpvKind::Function(inst.arg(0)?, params);
                Type::Opaque("function".into())
            }
            Op::TypeImage => match image::image_type(inst)? {
                Ok((ty, image)) => {
                    kind = SpvKind::Image(image);
                    ty
                }
                Err(name) => Type::Opaque(name),
            },
            Op::TypeSampler => {
                kind = SpvKind::Sampler;
                Type::Int(64)
            }
            Op::TypeSampledImage => {
                let image = nest(self, inst.arg(0)?)?;
                kind = SpvKind::SampledImage(inst.arg(0)?);
                let sampler = self.module.types.int(64);
                Type::Struct { members: vec![image, sampler], packed: false }
            }
            Op::TypeCooperativeMatrixKHR => {
                let element = nest(self, inst.arg(0)?)?;
                match matrix::matrix_type(self, inst, element)? {
                    Ok((ty, matrix)) => {
                        kind = SpvKind::Matrix(matrix);
                        ty
                    }
                    Err(why) => Type::Opaque(why),
                }
            }
            _ => Type::Opaque(inst.grammar.name["OpType".len()..].to_lowercase()),
        };
        if depth > MAX_TYPE_DEPTH {
            return Err(inst.error(format!("nests types more than {MAX_TYPE_DEPTH} deep")));
        }
        let ir = self.intern(inst, ty)?;
        self.define(inst, Def::Type(SpvType { ir, depth, kind }))
    }

    fn intern(&mut self, inst: &Instruction<'_>, ty: Type) -> Result<TypeId> {
        self.module.types.intern(ty).ok_or_else(|| inst.error("is larger than 1 TiB".into()))
    }

    fn constant_instruction(&mut self, inst: &Instruction<'_>) -> Result<()> {
        let type_id = inst.result_type().unwrap_or_default();
        let ty = self.ty(inst, type_id)?;
        let spec = self.decorations(inst).spec_id.and_then(|number| {
            self.spec_constants.iter().find(|(id, _)| *id == number).map(|&(_, value)| value)
        });
        let constant = match inst.op() {
            Op::Undef => self.module.constant(ty, ConstKind::Undef),
            Op::ConstantSampler if self.module.types[ty] == Type::Int(64) => {
                self.module.const_int(ty, image::constant_sampler(inst)?)
            }
            Op::ConstantSampler => return Err(inst.error("has a type that is no sampler".into())),
            Op::ConstantNull => match self.module.types.layout(ty) {
                Some(_) => self.module.constant(ty, ConstKind::Null),
                None => self.module.constant(ty, ConstKind::Undef),
            },
            Op::ConstantTrue => self.bool_constant(inst, ty, true)?,
            Op::ConstantFalse => self.bool_constant(inst, ty, false)?,
            Op::SpecConstantTrue => self.bool_constant(inst, ty, spec.unwrap_or(1) != 0)?,
            Op::SpecConstantFalse => self.bool_constant(inst, ty, spec.unwrap_or(0) != 0)?,
            Op::Constant | Op::SpecConstant => {
                let bits = match self.module.types[ty] {
                    Type::Int(bits) => bits,
                    Type::Float(float) => float.bits(),
                    Type::Opaque(_) => 0,
                    _ => return Err(inst.error("has a type that is not a number".into())),
                };
                if bits == 0 {
                    self.module.constant(ty, ConstKind::Undef)
                } else {
                    let low = u64::from(inst.arg(0)?);
                    let high = if bits == 64 { u64::from(inst.arg(1)?) } else { 0 };
                    let value = spec.unwrap_or(high << 32 | low);
                    let value = match self.spv_type(inst, type_id)?.kind {
                        SpvKind::Narrow(bits) => value & ((1 << bits) - 1),
                        _ => value,
                    };
                    self.module.const_int(ty, value)
                }
            }
            Op::ConstantCompositeReplicateEXT | Op::SpecConstantCompositeReplicateEXT => {
                self.replicated_constant(inst, ty)?
            }
            _ => self.composite_constant(inst, ty)?,
        };
        self.define(inst, Def::Const(constant, type_id))
    }

    fn bool_constant(
        &mut self,
        inst: &Instruction<'_>,
        ty: TypeId,
        value: bool,
    ) -> Result<ConstId> {
        match self.module.types[ty] {
            Type::Bool => Ok(self.module.constant(ty, ConstKind::Bits(u64::from(value)))),
            _ => Err(inst.error("has a type that is not bool".into())),
        }
    }

    fn composite_constant(&mut self, inst: &Instruction<'_>, ty: TypeId) -> Result<ConstId> {
        if matches!(self.module.types[ty], Type::Opaque(_)) {
            // A vector of another size, for instance; code that uses it is refused.
            return Ok(self.module.constant(ty, ConstKind::Undef));
        }
        let count = self.component_count(ty);
        let mut ids = inst.rest().to_vec();
        let matrix = self.spv_type(inst, inst.result_type().unwrap_or_default())?;
        if let (SpvKind::Matrix(_), [id]) = (&matrix.kind, ids.as_slice()) {
            // All components of a matrix are one number.
            ids = vec![*id; self.repeated_components(inst, ty)?];
        }
        let mut parts = Vec::with_capacity(ids.len());
        for (i, &id) in ids.iter().enumerate() {
            let part = self.constant(inst, id)?;
            let wanted = match &self.module.types[ty] {
                Type::Vector(element, _) | Type::Array(element, _) => Some(*element),
                Type::Struct { members, .. } => members.get(i).copied(),
                _ => None,
            };
            let found = self.module.constants[part].ty;
            if wanted != Some(found) {
                let types = &self.module.types;
                let text = |ty: TypeId| types.text(ty).to_string();
                let (wanted, found) = (wanted.map_or("none".into(), text), text(found));
                let text = format!("has a wrong type for component {i}: {found}, not {wanted}");
                return Err(inst.error(text));
            }
            parts.push(part);
        }
        if count != parts.len() as u64 {
            return Err(inst.error(format!("has {} components of {count}", parts.len())));
        }
        Ok(self.module.constant(ty, ConstKind::Composite(parts)))
    }

    /// `OpConstantCompositeReplicateEXT` and its specialization form: one component many times.
    fn replicated_constant(&mut self, inst: &Instruction<'_>, ty: TypeId) -> Result<ConstId> {
        let part = self.constant(inst, inst.arg(0)?)?;
        let part_ty = self.module.constants[part].ty;
        let fits = match &self.module.types[ty] {
            Type::Vector(element, _) | Type::Array(element, _) => *element == part_ty,
            Type::Struct { members, .. } => members.iter().all(|&member| member == part_ty),
            _ => false,
        };
        if !fits {
            return Err(inst.error("has a component of a wrong type".into()));
        }
        let count = self.repeated_components(inst, ty)?;
        Ok(self.module.constant(ty, ConstKind::Composite(vec![part; count])))
    }

    fn variable(&mut self, inst: &Instruction<'_>) -> Result<()> {
        let id = inst.result().unwrap_or_default();
        let pointer = inst.result_type().unwrap_or_default();
        let decorations = self.annotations.decorations(id).clone();
        if let Some(builtin) = decorations.builtin {
            return self.define(inst, Def::BuiltIn(builtin, pointer));
        }
        // One of the class Function may not stand here, but LLVM writes its globals of address space 0 so.
        // It is taken as one of the class Private, as Intel's compiler does.
        let pointer_ir = self.ty(inst, pointer)?;
        let (ty, init) = self.variable_object(inst)?;
        let (Type::Pointer(space), Some(layout)) =
            (&self.module.types[pointer_ir], self.module.types.layout(ty))
        else {
            // Memory that the compiler cannot lay out; code that uses it is refused.
            let undef = self.module.constant(pointer_ir, ConstKind::Undef);
            return self.define(inst, Def::Const(undef, pointer));
        };
        let space = *space;
        let init = init.map(|init| self.constant(inst, init)).transpose()?;
        if init.is_some_and(|init| self.module.constants[init].ty != ty) {
            return Err(inst.error("has an initialiser of another type".into()));
        }
        let linkage = decorations.linkage.as_ref();
        let name = self.name(id);
        let loc = self.loc(inst, None);
        let global = self.module.globals.push(Global {
            name,
            space,
            ty,
            size: layout.size,
            align: layout.align.max(u64::from(decorations.alignment.unwrap_or(1))),
            init: init.filter(|_| space != AddressSpace::Local),
            exported: linkage.is_some_and(|linkage| !linkage.import),
            imported: linkage.is_some_and(|linkage| linkage.import),
            loc,
        });
        let name = self.module.globals[global].name.clone();
        self.note_export(inst, &name);
        let address = self.module.constant(pointer_ir, ConstKind::Address(global, 0));
        self.define(inst, Def::Const(address, pointer))
    }

    /// Splits the rest of the module into functions and numbers them. `line` is the `OpLine` that
    /// applies before it.
    fn signatures<'w>(
        &mut self,
        instructions: &[Instruction<'w>],
        mut line: Line,
    ) -> Result<Vec<Signature<'w>>> {
        let mut functions: Vec<Signature<'w>> = Vec::new();
        let mut rest = instructions.iter();
        while let Some(head) = rest.next() {
            line = lines::after(head, line)?;
            match head.op() {
                Op::Function => {}
                // Line and debug information may stand between functions.
                Op::Line | Op::NoLine | Op::Nop => continue,
                Op::ExtInst => {
                    self.global_instruction(head)?;
                    continue;
                }
                _ => return Err(head.error("stands between functions".into())),
            }
            let mut params = Vec::new();
            let mut body = Vec::new();
            loop {
                let Some(inst) = rest.next() else {
                    return Err(head.error("has no OpFunctionEnd".into()));
                };
                match inst.op() {
                    Op::FunctionEnd => break,
                    Op::Function => {
                        return Err(inst.error("begins inside of a function".into()));
                    }
                    Op::FunctionParameter if body.is_empty() => params.push(*inst),
                    Op::Line | Op::NoLine if body.is_empty() => line = lines::after(inst, line)?,
                    _ => body.push(*inst),
                }
            }
            self.signature(*head, line.take(), params, body, &mut functions)?;
        }
        self.unique_exports()?;
        modes::spread(self, &mut functions)?;
        Ok(functions)
    }

    fn signature<'w>(
        &mut self,
        head: Instruction<'w>,
        line: Line,
        params: Vec<Instruction<'w>>,
        body: Vec<Instruction<'w>>,
        functions: &mut Vec<Signature<'w>>,
    ) -> Result<()> {
        let id = head.result().unwrap_or_default();
        let SpvKind::Function(return_type, ref wanted) = self.spv_type(&head, head.arg(1)?)?.kind
        else {
            return Err(head.error("has a type that is not a function type".into()));
        };
        if head.result_type() != Some(return_type)
            || wanted.len() != params.len()
            || wanted.iter().zip(&params).any(|(&ty, param)| param.result_type() != Some(ty))
        {
            return Err(head.error("does not match its function type".into()));
        }
        let name = self.name(id);
        let number = FunctionId(u32::try_from(functions.len()).unwrap_or(u32::MAX));
        self.function_ids.push(id);
        let types = params.iter().map(|param| param.result_type().unwrap_or_default());
        self.parameter_types.push(types.collect());
        let def = match body.is_empty() {
            true => Def::Import(name.clone(), number),
            false => Def::Function(number),
        };
        self.define(&head, def)?;
        self.note_export(&head, &name);
        let (floats, copied) = (Controls::default(), false);
        let id = number;
        functions.push(Signature {
            head,
            line,
            id,
            name,
            params,
            return_type,
            floats,
            copied,
            body,
        });
        Ok(())
    }

    /// Records a definition that other modules may link to.
    fn note_export(&mut self, inst: &Instruction<'_>, name: &str) {
        let Some(linkage) = self.decorations(inst).linkage.clone().filter(|it| !it.import) else {
            return;
        };
        if linkage.once {
            self.module.link_once.insert(name.to_owned());
        }
        self.exports.push((inst.word, name.to_owned()));
    }

    /// Refuses two exports of one name: an import of it would be ambiguous.
    fn unique_exports(&mut self) -> Result<()> {
        let mut seen = HashSet::new();
        let twice = self.exports.iter().find(|(_, name)| !seen.insert(name));
        twice.map_or(Ok(()), |(word, name)| {
            Err(Error {
                word: *word,
                opcode: None,
                place: None,
                source: None,
                message: format!("the module exports {name:?} twice"),
            })
        })
    }
}

fn memory_model(inst: &Instruction<'_>) -> Result<()> {
    if inst.arg(0)? != AddressingModel::Physical64 as u32 {
        return Err(inst.error("does not have Physical64 addressing".into()));
    }
    if inst.arg(1)? != MemoryModel::OpenCL as u32 {
        return Err(inst.error("does not have the OpenCL memory model".into()));
    }
    Ok(())
}

/// The IR's type of a pointer.
fn pointer_type(class: Option<StorageClass>) -> Type {
    let space = match class {
        Some(StorageClass::Function | StorageClass::Private | StorageClass::Input) => {
            AddressSpace::Private
        }
        Some(StorageClass::Workgroup) => AddressSpace::Local,
        Some(
            StorageClass::CrossWorkgroup
            | StorageClass::DeviceOnlyINTEL
            | StorageClass::HostOnlyINTEL,
        ) => AddressSpace::Global,
        // Code is not written either.
        Some(StorageClass::UniformConstant | StorageClass::CodeSectionINTEL) => {
            AddressSpace::Constant
        }
        Some(StorageClass::Generic) => AddressSpace::Generic,
        Some(class) => return Type::Opaque(format!("pointer to {class:?}")),
        None => return Type::Opaque("pointer to an unknown storage class".into()),
    };
    Type::Pointer(space)
}
