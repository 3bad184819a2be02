// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module that is being built, and the definitions of its ids.

use std::collections::HashMap;

use rspirv::spirv::{Op, StorageClass};

use super::annotations::{Annotations, Decorations};
use super::collected::Collected;
use super::controls::{Controls, Copies};
use super::error::Result;
use super::lines::Line;
use super::pointers::Indirect;
use super::words::Instruction;
use crate::ir::{
    ConstId, ConstKind, FileId, FunctionId, ImageArg, Loc, Module, Operand, Type, TypeId,
};

/// Values for specialization constants: `SpecId` and the value's bits.
pub type SpecConstants = [(u32, u64)];

/// The definition of an id of module scope.
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
    /// A function without one: its name, and its placeholder in the module.
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
    /// NonSemantic.Shader.DebugInfo
    ShaderDebug,
    /// OpenCL.DebugInfo
    OpenClDebug,
    /// Any other set for debug information or without semantics.
    Debug,
}

/// A SPIR-V type: the IR's type, and the properties that it lacks.
#[derive(Clone, Debug)]
pub struct SpvType {
    /// The IR's type.
    pub ir: TypeId,
    /// The nesting depth of composites in it.
    pub depth: u32,
    /// The properties that the IR's type lacks.
    pub kind: SpvKind,
}

/// The maximum number of components of a composite that an instruction of a few words makes, and the
/// maximum for all such instructions of a module.
const MAX_COMPONENTS: u64 = 1 << 12;
const MAX_REPEATED: u64 = 1 << 20;

/// Properties of a SPIR-V type that the IR's type lacks.
#[derive(Clone, Debug)]
pub enum SpvKind {
    /// Nothing.
    Plain,
    /// A pointer: the id of the type it points to.
    Pointer(u32),
    /// A pointer that does not say what it points to (SPV_KHR_untyped_pointers).
    Untyped,
    /// A vector of pointers: the id of the pointers' type.
    Pointers(u32),
    /// An image.
    Image(ImageArg),
    /// A sampler.
    Sampler,
    /// An image with its sampler: the id of the image's type.
    SampledImage(u32),
    /// A function: the ids of its return type and its parameters' types.
    Function(u32, Vec<u32>),
    /// A brain float, or a vector of them, as the integers with their bits.
    Brain,
    /// An integer of so many bits, as the next wider one.
    Narrow(u32),
    /// A matrix that is spread over the items of a sub-group.
    Matrix(Matrix),
}

/// A type of matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// The id of the type of an element.
    pub component: u32,
    pub rows: u32,
    pub columns: u32,
    /// `Cooperative Matrix Use`: first factor, second factor, result.
    pub used: u64,
    /// The number of items of a sub-group.
    pub lanes: u32,
}

impl Matrix {
    /// The number of elements.
    pub fn elements(&self) -> u32 {
        self.rows * self.columns
    }

    /// The number of components that an item has.
    pub fn length(&self) -> u32 {
        self.elements().div_ceil(self.lanes)
    }

    /// Whether an item may have no element in a component.
    pub fn is_partial(&self, component: u32) -> bool {
        (component + 1) * self.lanes > self.elements()
    }
}

/// A function's declaration.
#[derive(Clone)]
pub struct Signature<'a> {
    /// Its `OpFunction`.
    pub head: Instruction<'a>,
    /// Its line in the source; that of its first block too, unless the block has its own.
    pub line: Line,
    /// Its number.
    pub id: FunctionId,
    /// Its name.
    pub name: String,
    /// `OpFunctionParameter`s.
    pub params: Vec<Instruction<'a>>,
    /// The id of the return type.
    pub return_type: u32,
    /// Its modes about floats.
    pub floats: Controls,
    /// Whether it is a copy of another one with other modes.
    pub copied: bool,
    /// Everything from the first label up to `OpFunctionEnd`, exclusive; empty if it is defined
    /// elsewhere.
    pub body: Vec<Instruction<'a>>,
}

/// A module being built.
pub struct Builder<'a> {
    /// The module so far.
    pub module: Module,
    /// Names, decorations and the like.
    pub annotations: Annotations,
    /// The definitions of ids of module scope.
    pub defs: HashMap<u32, Def>,
    /// SPIR-V ids of functions, by number.
    pub function_ids: Vec<u32>,
    /// SPIR-V ids of the types of their parameters, by number.
    pub parameter_types: Vec<Vec<u32>>,
    pub bound: u32,
    pub spec_constants: &'a SpecConstants,
    pub files: HashMap<u32, FileId>,
    /// The ids of the names of sources, by the ids of the sources.
    pub sources: HashMap<u32, u32>,
    /// Debug information.
    pub debug: Collected,
    pub forward_pointers: HashMap<u32, StorageClass>,
    /// Calls through pointers.
    pub indirect: Indirect,
    /// Copies of functions with other modes about floats.
    pub copies: Copies,
    /// Offsets, in words, and names of the definitions that other modules may link to.
    pub exports: Vec<(usize, String)>,
    /// Whether there are integers of other widths than memory has.
    pub has_narrow: bool,
    /// The number of components so far that repeat one value.
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
            debug: Collected::default(),
            forward_pointers: HashMap::new(),
            indirect: Indirect::default(),
            copies: Copies::new(),
            exports: Vec::new(),
            has_narrow: false,
            repeated: 0,
        }
    }

    /// Defines the result id of an instruction.
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
            SpvKind::Untyped => {
                Err(inst.error(format!("needs a typed pointer, %{pointer} is an untyped one")))
            }
            _ => Err(inst.error(format!("needs a pointer, %{pointer} is another type"))),
        }
    }

    /// The type of the object that a variable is, and the id of its initialiser, if there is one.
    pub fn variable_object(&self, inst: &Instruction<'_>) -> Result<(TypeId, Option<u32>)> {
        let pointer = inst.result_type().unwrap_or_default();
        if inst.op() != Op::UntypedVariableKHR {
            return Ok((self.pointee(inst, pointer)?, inst.arg(1).ok()));
        }
        if !matches!(self.spv_type(inst, pointer)?.kind, SpvKind::Untyped) {
            return Err(inst.error("has a type that is not an untyped pointer".into()));
        }
        let data = inst.arg(1).map_err(|_| inst.error("has no data type".into()))?;
        Ok((self.ty(inst, data)?, inst.arg(2).ok()))
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

    /// The place of an instruction; `line` is the `OpLine` in force.
    pub fn loc(&mut self, inst: &Instruction<'_>, line: Line) -> Loc {
        let mut loc = Loc {
            word: u32::try_from(inst.word).unwrap_or(u32::MAX),
            opcode: inst.opcode() as u16,
            ..Loc::default()
        };
        if let Some([file, line, column]) = line {
            loc.file = self.file(file);
            loc.line = line;
            loc.column = column;
        }
        loc
    }

    /// The file whose name has an id.
    pub fn file(&mut self, name: u32) -> Option<FileId> {
        if let Some(&known) = self.files.get(&name) {
            return Some(known);
        }
        let new = self.module.files.push(self.annotations.strings.get(&name)?.clone());
        self.files.insert(name, new);
        Some(new)
    }

    /// The number of a composite's components.
    pub fn component_count(&self, ty: TypeId) -> u64 {
        match &self.module.types[ty] {
            Type::Vector(_, n) => u64::from(*n),
            Type::Array(_, n) => *n,
            Type::Struct { members, .. } => members.len() as u64,
            _ => 0,
        }
    }

    /// The number of components of a composite that repeats one value.
    ///
    /// # Errors
    /// If there are more than [`MAX_COMPONENTS`], or more than [`MAX_REPEATED`] including all earlier
    /// ones.
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

    /// A constant as an operand.
    pub fn const_operand(&mut self, ty: TypeId, kind: ConstKind) -> Operand {
        Operand::Const(self.module.constant(ty, kind))
    }
}
