// SPDX-License-Identifier: MIT OR Apache-2.0
//! Module scope: types, constants, variables and the signatures of functions.

use std::collections::{HashMap, HashSet};

use rspirv::spirv::{AddressingModel, MemoryModel, Op, StorageClass};

use super::annotations::{Annotations, Decorations};
use super::indirect::{self, Indirect};
use super::lines::Line;
use super::words::Instruction;
use super::{Error, Result, SpecConstants, body, image, lines};
use crate::ir::{
    AddressSpace, ConstId, ConstKind, FileId, Float, FunctionId, Global, ImageArg, Loc, Module,
    Operand, Type, TypeId,
};

/// SPIR-V's universal limits on types; they also bound this compiler's recursion.
const MAX_TYPE_DEPTH: u32 = 255;
const MAX_MEMBERS: usize = 16_383;
const MAX_PARAMETERS: usize = 255;

/// What an id of module scope stands for.
#[derive(Clone, Debug)]
pub enum Def {
    /// A type.
    Type(SpvType),
    /// A constant or the address of a variable, and the id of its type.
    Const(ConstId, u32),
    /// A variable of the `Input` storage class: the built-in and the id of the pointer type.
    BuiltIn(u32, u32),
    /// A function with a body.
    Function(FunctionId),
    /// A function without one: its name, and what stands for it in the module.
    Import(String, FunctionId),
    /// An imported set of extended instructions.
    InstructionSet(InstructionSet),
    /// Something that only debug information refers to.
    Debug,
}

/// The sets of extended instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstructionSet {
    /// `OpenCL.std`
    OpenCl,
    /// NonSemantic.Shader.DebugInfo, which may say lines in its own way.
    DebugLines,
    /// Any other set of debug information or without semantics.
    Debug,
}

/// A SPIR-V type: the IR's type and what that does not say.
#[derive(Clone, Debug)]
pub struct SpvType {
    /// The IR's type.
    pub ir: TypeId,
    /// How deep composites are nested in it.
    depth: u32,
    /// The rest.
    pub kind: SpvKind,
}

/// The most components of a composite that an instruction of a few words makes, and the most that all
/// of a module make.
const MAX_COMPONENTS: u64 = 1 << 12;
const MAX_REPEATED: u64 = 1 << 20;

/// What SPIR-V types say beyond the IR's.
#[derive(Clone, Debug)]
pub enum SpvKind {
    /// Nothing.
    Plain,
    /// A pointer: the id of the type it points to.
    Pointer(u32),
    /// An image.
    Image(ImageArg),
    /// A sampler.
    Sampler,
    /// An image with its sampler: the id of the image's type.
    SampledImage(u32),
    /// A function: the ids of its return type and its parameters' types.
    Function(u32, Vec<u32>),
}

/// A function as it is declared.
pub struct Signature<'a> {
    /// Its `OpFunction`.
    pub head: Instruction<'a>,
    /// Where the source has it, and its first block if that says nothing else.
    pub line: Line,
    /// Its number.
    pub id: FunctionId,
    /// Its name.
    pub name: String,
    /// `OpFunctionParameter`s.
    pub params: Vec<Instruction<'a>>,
    /// The id of the return type.
    pub return_type: u32,
    /// Everything from the first label to before `OpFunctionEnd`; empty if it is defined elsewhere.
    pub body: Vec<Instruction<'a>>,
}

/// A module being built.
pub struct Builder<'a> {
    /// What exists so far.
    pub module: Module,
    /// Names, decorations and the like.
    pub annotations: Annotations,
    /// Ids of module scope.
    pub defs: HashMap<u32, Def>,
    /// SPIR-V ids of functions, by number.
    pub function_ids: Vec<u32>,
    /// SPIR-V ids of the types of their parameters, by number.
    pub parameter_types: Vec<Vec<u32>>,
    bound: u32,
    spec_constants: &'a SpecConstants,
    files: HashMap<u32, FileId>,
    /// The ids of the names of sources, by the ids of those.
    pub sources: HashMap<u32, u32>,
    forward_pointers: HashMap<u32, StorageClass>,
    /// Calls through pointers.
    pub(super) indirect: Indirect,
    /// Places, in words, and names of what other modules may link to.
    exports: Vec<(usize, String)>,
    /// Components so far that repeat one.
    repeated: u64,
}

impl<'a> Builder<'a> {
    /// A module with nothing but its annotations.
    pub fn new(annotations: Annotations, bound: u32, spec_constants: &'a SpecConstants) -> Self {
        Self {
            module: Module::default(),
            annotations,
            defs: HashMap::new(),
            function_ids: Vec::new(),
            parameter_types: Vec::new(),
            bound,
            spec_constants,
            files: HashMap::new(),
            sources: HashMap::new(),
            forward_pointers: HashMap::new(),
            indirect: Indirect::default(),
            exports: Vec::new(),
            repeated: 0,
        }
    }

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

    /// Gives the result id of an instruction its meaning.
    pub fn define(&mut self, inst: &Instruction<'_>, def: Def) -> Result<()> {
        let id = inst.result().unwrap_or_default();
        self.check_new(inst, id)?;
        self.defs.insert(id, def);
        Ok(())
    }

    /// Checks that an id may be defined here.
    pub fn check_new(&self, inst: &Instruction<'_>, id: u32) -> Result<()> {
        if id == 0 || id >= self.bound {
            return Err(
                inst.error(format!("defines id %{id}, outside of the bound {}", self.bound))
            );
        }
        if self.defs.contains_key(&id) {
            return Err(inst.error(format!("defines id %{id} a second time")));
        }
        Ok(())
    }

    /// The SPIR-V type with this id.
    pub fn spv_type(&self, inst: &Instruction<'_>, id: u32) -> Result<&SpvType> {
        match self.defs.get(&id) {
            Some(Def::Type(ty)) => Ok(ty),
            _ => Err(inst.error(format!("uses %{id} as a type, which it is not"))),
        }
    }

    /// The IR's type with this id.
    pub fn ty(&self, inst: &Instruction<'_>, id: u32) -> Result<TypeId> {
        self.spv_type(inst, id).map(|ty| ty.ir)
    }

    /// The IR's type that a pointer type points to.
    pub fn pointee(&self, inst: &Instruction<'_>, pointer: u32) -> Result<TypeId> {
        match self.spv_type(inst, pointer)?.kind {
            SpvKind::Pointer(pointee) => self.ty(inst, pointee),
            _ => Err(inst.error(format!("needs a pointer, %{pointer} is another type"))),
        }
    }

    /// The constant with this id.
    pub fn constant(&self, inst: &Instruction<'_>, id: u32) -> Result<ConstId> {
        match self.defs.get(&id) {
            Some(Def::Const(constant, _)) => Ok(*constant),
            _ => Err(inst.error(format!("needs a constant, %{id} is none"))),
        }
    }

    /// The value of the integer constant with this id.
    pub fn int(&self, inst: &Instruction<'_>, id: u32) -> Result<u64> {
        let constant = self.constant(inst, id)?;
        self.module
            .const_bits(constant)
            .ok_or_else(|| inst.error(format!("needs an integer constant, %{id} is none")))
    }

    /// The name in the source of an id, or one made from it.
    pub fn name(&self, id: u32) -> String {
        if let Some(linkage) = &self.annotations.decorations(id).linkage {
            return linkage.name.to_string();
        }
        let kernel = || self.annotations.kernels.get(&id).map(String::as_str);
        let name = self.annotations.name(id).or_else(kernel);
        name.map_or_else(|| format!("id{id}"), str::to_owned)
    }

    /// The decorations of an instruction's result.
    pub fn decorations(&self, inst: &Instruction<'_>) -> &Decorations {
        self.annotations.decorations(inst.result().unwrap_or_default())
    }

    /// Where an instruction stands; `line` is the `OpLine` in force.
    pub fn loc(&mut self, inst: &Instruction<'_>, line: Line) -> Loc {
        let mut loc = Loc {
            word: u32::try_from(inst.word).unwrap_or(u32::MAX),
            opcode: inst.op() as u16,
            ..Loc::default()
        };
        if let Some([file, line, column]) = line {
            loc.file = match (self.files.get(&file), self.annotations.strings.get(&file)) {
                (Some(&known), _) => Some(known),
                (None, Some(name)) => {
                    let new = self.module.files.push(name.clone());
                    self.files.insert(file, new);
                    Some(new)
                }
                (None, None) => None,
            };
            loc.line = line;
            loc.column = column;
        }
        loc
    }

    fn global_instruction(&mut self, inst: &Instruction<'_>) -> Result<()> {
        match inst.op() {
            Op::MemoryModel => memory_model(inst),
            Op::ExtInstImport => {
                let name = inst.string(0)?.0;
                let set = match name.as_str() {
                    "OpenCL.std" => InstructionSet::OpenCl,
                    "OpenCL.DebugInfo.100" | "SPIRV.debug" | "DebugInfo" => InstructionSet::Debug,
                    name if name.starts_with("NonSemantic.Shader.DebugInfo.") => {
                        InstructionSet::DebugLines
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
                Some(Def::InstructionSet(InstructionSet::DebugLines)) => {
                    lines::source(self, inst)?;
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
            Op::Variable => self.variable(inst),
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
                let constant = body::fold_constant(self, inst)?;
                self.define(inst, Def::Const(constant, ty))
            }
            _ if inst.grammar.name.starts_with("OpType") => self.type_instruction(inst),
            _ if inst.grammar.has_result => {
                // Something whose meaning is not known: a use of it by code will say so.
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
                bits => Type::Opaque(format!("integer of {bits} bits")),
            },
            Op::TypeFloat => match (inst.arg(0)?, inst.arg(1).ok()) {
                (16, None) => Type::Float(Float::F16),
                (32, None) => Type::Float(Float::F32),
                (64, None) => Type::Float(Float::F64),
                (bits, None) => Type::Opaque(format!("float of {bits} bits")),
                (bits, Some(_)) => Type::Opaque(format!("float of {bits} bits, other encoding")),
            },
            Op::TypeVector => {
                let element = nest(self, inst.arg(0)?)?;
                match (&self.module.types[element], inst.arg(1)?) {
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
            // An event carries nothing.
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
                    self.module.const_int(ty, spec.unwrap_or(high << 32 | low))
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
        let mut parts = Vec::with_capacity(inst.rest().len());
        for (i, &id) in inst.rest().iter().enumerate() {
            let part = self.constant(inst, id)?;
            let wanted = match &self.module.types[ty] {
                Type::Vector(element, _) | Type::Array(element, _) => Some(*element),
                Type::Struct { members, .. } => members.get(i).copied(),
                _ => None,
            };
            if wanted != Some(self.module.constants[part].ty) {
                return Err(inst.error(format!("has a wrong type for component {i}")));
            }
            parts.push(part);
        }
        let count = self.component_count(ty);
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

    fn component_count(&self, ty: TypeId) -> u64 {
        match &self.module.types[ty] {
            Type::Vector(_, n) => u64::from(*n),
            Type::Array(_, n) => *n,
            Type::Struct { members, .. } => members.len() as u64,
            _ => 0,
        }
    }

    /// How many components a composite has that is made of one of them.
    ///
    /// # Errors
    /// If there are more than [`MAX_COMPONENTS`], or more than [`MAX_REPEATED`] with all before.
    pub fn repeated_components(&mut self, inst: &Instruction<'_>, ty: TypeId) -> Result<usize> {
        let count = self.component_count(ty);
        if count > MAX_COMPONENTS {
            return Err(
                inst.error(format!("has {count} components, the limit is {MAX_COMPONENTS}"))
            );
        }
        self.repeated += count;
        match self.repeated {
            ..=MAX_REPEATED => Ok(count as usize),
            all => Err(inst.error(format!(
                "makes it {all} components that repeat one, the limit of a module is {MAX_REPEATED}"
            ))),
        }
    }

    fn variable(&mut self, inst: &Instruction<'_>) -> Result<()> {
        let id = inst.result().unwrap_or_default();
        let pointer = inst.result_type().unwrap_or_default();
        let class = StorageClass::from_u32(inst.arg(0)?);
        let decorations = self.annotations.decorations(id).clone();
        if class == Some(StorageClass::Function) {
            return Err(inst.error("of a function stands outside of functions".into()));
        }
        if let Some(builtin) = decorations.builtin {
            return self.define(inst, Def::BuiltIn(builtin, pointer));
        }
        let pointer_ir = self.ty(inst, pointer)?;
        let ty = self.pointee(inst, pointer)?;
        let (Type::Pointer(space), Some(layout)) =
            (&self.module.types[pointer_ir], self.module.types.layout(ty))
        else {
            // Memory that the compiler cannot lay out; code that uses it is refused.
            let undef = self.module.constant(pointer_ir, ConstKind::Undef);
            return self.define(inst, Def::Const(undef, pointer));
        };
        let space = *space;
        let init = match inst.arg(1) {
            Ok(init) => Some(self.constant(inst, init)?),
            Err(_) => None,
        };
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

    /// Splits the rest of the module into functions and numbers them. `line` is the `OpLine` in force
    /// before it.
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
        functions.push(Signature { head, line, id: number, name, params, return_type, body });
        Ok(())
    }

    /// Remembers a definition that other modules may link to.
    fn note_export(&mut self, inst: &Instruction<'_>, name: &str) {
        let Some(linkage) = self.decorations(inst).linkage.clone().filter(|it| !it.import) else {
            return;
        };
        if linkage.once {
            self.module.link_once.insert(name.to_owned());
        }
        self.exports.push((inst.word, name.to_owned()));
    }

    /// Refuses two exports of one name: it would be unclear which of them an import means.
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

    /// A constant as an operand.
    pub fn const_operand(&mut self, ty: TypeId, kind: ConstKind) -> Operand {
        Operand::Const(self.module.constant(ty, kind))
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
