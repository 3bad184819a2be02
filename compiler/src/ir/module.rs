// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of a module: constants, variables, functions with their blocks, kernels.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use tally_compiler_protocol::checks::hidden;

use super::arena::{Arena, Id};
use super::debug::{DebugInfo, SourceVariable};
use super::group;
use super::ids::{BlockId, ConstId, FileId, FunctionId, GlobalId, InlinedId, Operand, ValueId};
use super::named::named_enum;
use super::ops::{Op, Terminator};
use super::types::{AddressSpace, TypeId, Types};

/// A constant: a type and its contents.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Constant {
    /// The type.
    pub ty: TypeId,
    /// The contents.
    pub kind: ConstKind,
}

/// The contents of a constant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ConstKind {
    /// Any value of the type. The interpreter takes zero.
    Undef,
    /// All bytes zero; of any type that has a layout. Numbers, `bool` and pointers that are zero always
    /// have this form.
    Null,
    /// The bits of a `bool`, integer or float in the low bits, the rest zero; or a pointer made
    /// from an integer. Never zero.
    Bits(u64),
    /// The components of a vector, array or structure. Never all null.
    Composite(Vec<ConstId>),
    /// The address of a global variable (any address space) plus a number of bytes. The type is a
    /// pointer.
    Address(GlobalId, i64),
}

/// A place in the source, for messages and debug information.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Loc {
    /// Offset of the instruction in the SPIR-V binary, in words.
    pub word: u32,
    /// The SPIR-V opcode, 0 if there is none.
    pub opcode: u16,
    /// Source file, if `OpLine` gave one.
    pub file: Option<FileId>,
    /// Line, from 1; 0 if unknown.
    pub line: u32,
    /// Column, from 1; 0 if unknown.
    pub column: u32,
    /// The inlined call that it belongs to, if the front end has inlined one.
    pub inlined: Option<InlinedId>,
}

/// Assumptions that the optimiser may make about one instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(u16);

impl Flags {
    /// Operands and result are not NaN.
    pub const NNAN: Flags = Flags(1);
    /// Operands and result are not infinite.
    pub const NINF: Flags = Flags(1 << 1);
    /// The sign of zero does not matter.
    pub const NSZ: Flags = Flags(1 << 2);
    /// A quotient may be a product with the reciprocal.
    pub const ARCP: Flags = Flags(1 << 3);
    /// May be fused with the operation that uses it or that it uses.
    pub const CONTRACT: Flags = Flags(1 << 4);
    /// May be reassociated.
    pub const REASSOC: Flags = Flags(1 << 5);
    /// A library function may be approximate (`native_` and `half_` functions).
    pub const AFN: Flags = Flags(1 << 6);
    /// The signed integer result does not overflow.
    pub const NSW: Flags = Flags(1 << 7);
    /// The unsigned integer result does not overflow.
    pub const NUW: Flags = Flags(1 << 8);

    /// All flags with their names in the textual form.
    pub const NAMES: [(Flags, &'static str); 9] = [
        (Flags::NNAN, "nnan"),
        (Flags::NINF, "ninf"),
        (Flags::NSZ, "nsz"),
        (Flags::ARCP, "arcp"),
        (Flags::CONTRACT, "contract"),
        (Flags::REASSOC, "reassoc"),
        (Flags::AFN, "afn"),
        (Flags::NSW, "nsw"),
        (Flags::NUW, "nuw"),
    ];

    /// No assumptions.
    pub const fn empty() -> Flags {
        Flags(0)
    }

    /// Whether all of `other` are set.
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// The flags of both.
    #[must_use]
    pub const fn union(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// The flags without those of `other`.
    #[must_use]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }
}

/// An instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Inst {
    /// The value it defines. `None` for operations without result.
    pub result: Option<ValueId>,
    /// The operation.
    pub op: Op,
    /// The assumptions that hold for it.
    pub flags: Flags,
    /// Its place in the source.
    pub loc: Loc,
}

/// A value of a function. The parameter list, the private variables or the instruction that names it
/// as its result defines it; each value has exactly one definition.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// The type.
    pub ty: TypeId,
    /// The name in the source (`OpName`), for readers only.
    pub name: Option<String>,
}

/// A basic block.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Instructions in order, phis first.
    pub insts: Vec<Inst>,
    /// The terminator of the block.
    pub terminator: Terminator,
    /// The terminator's place in the source.
    pub loc: Loc,
}

/// Memory that each call of a function has for itself. Contents are undefined unless initialised at
/// the call.
#[derive(Clone, Debug, PartialEq)]
pub struct PrivateVariable {
    /// The value that is its address, of type pointer to private.
    pub address: ValueId,
    /// The type of its contents.
    pub ty: TypeId,
    /// Size in bytes.
    pub size: u64,
    /// Alignment in bytes.
    pub align: u64,
    /// Its contents at entry.
    pub init: Option<ConstId>,
}

/// A function. Without blocks it is only declared: a linked module of that name defines it.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// The name in the source, or one made from its SPIR-V id. Unique names are not guaranteed.
    pub name: String,
    /// Parameters in order.
    pub params: Vec<ValueId>,
    /// The type of its result.
    pub return_type: TypeId,
    /// All values.
    pub values: Arena<ValueId, Value>,
    /// Private variables of a call.
    pub variables: Vec<PrivateVariable>,
    /// Those that are variables of the source, as far as the module says so.
    pub shown: Vec<SourceVariable>,
    /// The blocks; block 0 is the entry. Blocks that cannot be reached have been removed. None if
    /// the function is only declared.
    pub blocks: Arena<BlockId, Block>,
    /// Whether other modules may link to it by name.
    pub exported: bool,
    /// Its place in the source.
    pub loc: Loc,
}

/// The entry block of every function.
pub const ENTRY: BlockId = BlockId(0);

/// A variable of module scope.
#[derive(Clone, Debug, PartialEq)]
pub struct Global {
    /// The name in the source, or one made from its SPIR-V id.
    pub name: String,
    /// `Local`, `Global`, `Constant` or `Private`. A local one exists once per work-group and is
    /// not initialised; a private one exists once per work-item.
    pub space: AddressSpace,
    /// The type of its contents.
    pub ty: TypeId,
    /// Size in bytes.
    pub size: u64,
    /// Alignment in bytes.
    pub align: u64,
    /// Its initial contents; zeros if there is none and it is not local.
    pub init: Option<ConstId>,
    /// Whether other modules may link to it by name.
    pub exported: bool,
    /// Whether it is defined elsewhere.
    pub imported: bool,
    /// Its place in the source.
    pub loc: Loc,
}

named_enum! {
    /// The way in which a kernel argument is passed.
    ArgKind {
        /// The bytes of a value.
        Value = "value",
        /// A 64-bit address in global memory.
        GlobalPointer = "global",
        /// A 64-bit address in constant memory.
        ConstantPointer = "constant",
        /// A 64-bit byte offset into the group's local memory; the caller gives a size.
        LocalPointer = "local",
        /// An image.
        Image = "image",
        /// A sampler.
        Sampler = "sampler",
    }
}

named_enum! {
    /// The coordinates that address an image.
    ImageKind {
        /// x
        D1 = "1d",
        /// x, layer
        D1Array = "1d array",
        /// x, y
        D2 = "2d",
        /// x, y, layer
        D2Array = "2d array",
        /// x, y, z
        D3 = "3d",
        /// x, over a buffer
        Buffer = "buffer",
    }
}

impl ImageKind {
    /// Number of dimensions and layers: the components of its size, and the coordinates that are used.
    pub fn dimensions(self) -> usize {
        match self {
            ImageKind::D1 | ImageKind::Buffer => 1,
            ImageKind::D1Array | ImageKind::D2 => 2,
            ImageKind::D2Array | ImageKind::D3 => 3,
        }
    }
}

/// An image as the type of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageArg {
    /// The coordinates that address it.
    pub kind: ImageKind,
    /// Whether the kernel may read it.
    pub read: bool,
    /// Whether the kernel may write it.
    pub write: bool,
}

/// One argument of a kernel. Its bytes lie at `offset` of the argument block.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelArg {
    /// The way in which it is passed.
    pub kind: ArgKind,
    /// The type of the bytes in the argument block: for a value passed by reference to a copy
    /// (`by_reference`) the type that is copied.
    pub ty: TypeId,
    /// The function's parameter is not the value but a private pointer to its bytes in the argument
    /// block. The function does not write through it (the parser made a copy at entry).
    pub by_reference: bool,
    /// Size in bytes.
    pub size: u64,
    /// Alignment in bytes.
    pub align: u64,
    /// Offset in the argument block in bytes.
    pub offset: u64,
    /// The parameter's name, empty if unknown.
    pub name: String,
    /// The type's name in the source language, as in `float*`, empty if unknown.
    pub type_name: String,
    /// The kind of the image, if it is one.
    pub image: Option<ImageArg>,
    /// The qualifiers of the type: `const`, `restrict`, `volatile`, `pipe`.
    pub qualifiers: Vec<&'static str>,
}

/// An entry point and what is known about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// The name that programs ask for.
    pub name: String,
    /// The body. Returns `void`.
    pub function: FunctionId,
    /// Arguments, one per parameter of the function.
    pub args: Vec<KernelArg>,
    /// Size of the arguments in bytes. The argument block may be longer: see
    /// [`Kernel::block_size`].
    pub args_size: u64,
    /// The only work-group size it may be launched with (`LocalSize`).
    pub required_group_size: Option<[u32; 3]>,
    /// The work-group size it was written for (`LocalSizeHint`).
    pub group_size_hint: Option<[u32; 3]>,
    /// The type it mostly computes with (`VecTypeHint`), as SPIR-V encodes it.
    pub vec_type_hint: Option<u32>,
    /// The sub-group size it needs (`SubgroupSize`).
    pub required_subgroup_size: Option<u32>,
    /// The attributes as a programmer would write them.
    pub source_attributes: String,
    /// The facts that `check` found; empty before.
    pub facts: KernelFacts,
    /// The body's place in the source.
    pub loc: Loc,
}

/// The resources that a kernel uses, over all functions that it reaches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelFacts {
    /// All functions that can run, the kernel's own first, callers before callees.
    pub functions: Vec<FunctionId>,
    /// The global variables that are referenced (any address space but local).
    pub globals: Vec<GlobalId>,
    /// The local variables that are referenced, with their offsets in the group's local memory.
    pub locals: Vec<(GlobalId, u64)>,
    /// Bytes of local memory for these variables.
    pub local_static_bytes: u64,
    /// Bytes of private memory of one work-item for the variables of all functions.
    pub private_bytes: u64,
    /// Whether work-items wait for each other: at a barrier or an operation of a group.
    pub uses_barrier: bool,
    /// Whether it can observe how its items are divided into sub-groups.
    pub uses_subgroups: bool,
    /// Whether matrices are spread over its sub-groups.
    pub uses_matrices: bool,
    /// Whether an atomic operation or a fence may have a scope beyond the device.
    pub uses_system_scope: bool,
    /// Whether a group may wait for another one.
    pub may_wait: bool,
    /// Offset in the argument block, behind the arguments, of the address of the ring that the
    /// kernel prints to; `None` if it prints nothing.
    pub printf_ring: Option<u64>,
    /// Offset in the argument block, behind all else, of the words that checks need
    /// ([`tally_compiler_protocol::checks::hidden`]); `None` if the kernel is not checked.
    pub watch: Option<u64>,
    /// Whether a group's local memory counts as not written when the group begins.
    pub forgets_local: bool,
    /// What the run-time library is told when a group begins, if it looks at the kernel's accesses or
    /// barriers (`rt/races.c`).
    pub follows: Option<u32>,
}

/// A compiled program before code generation.
#[derive(Clone, Debug, Default)]
pub struct Module {
    /// Interned types.
    pub types: Types,
    /// Interned constants.
    pub constants: Arena<ConstId, Constant>,
    /// Variables of module scope.
    pub globals: Arena<GlobalId, Global>,
    /// Functions.
    pub functions: Arena<FunctionId, Function>,
    /// Entry points in the order of the module.
    pub kernels: Vec<Kernel>,
    /// Names of source files.
    pub files: Arena<FileId, String>,
    /// What it tells debuggers.
    pub debug: DebugInfo,
    /// The value of a pointer to an exported function, by the function's name.
    pub pointers: BTreeMap<String, u64>,
    /// Functions that implement calls through pointers ([`crate::pointers`]).
    pub dispatchers: Vec<FunctionId>,
    /// Functions whose addresses are taken, each with the number that such a pointer holds.
    pub callable: Vec<(u64, FunctionId)>,
    /// Names of exports that other modules may define too, with the same definition.
    pub link_once: BTreeSet<String>,
    /// If modules were linked into this one: the first variable of each of the others, ascending. A
    /// kernel uses those variables at their addresses in the other modules.
    pub foreign: Vec<GlobalId>,
    const_ids: HashMap<Constant, ConstId>,
}

impl Module {
    /// The id of a constant, which is added if it is new. Zero bits and composites of nulls become
    /// [`ConstKind::Null`].
    pub fn constant(&mut self, ty: TypeId, kind: ConstKind) -> ConstId {
        let kind = match kind {
            ConstKind::Bits(0) => ConstKind::Null,
            ConstKind::Composite(parts)
                if parts.iter().all(|&part| self.constants[part].kind == ConstKind::Null) =>
            {
                ConstKind::Null
            }
            kind => kind,
        };
        let constant = Constant { ty, kind };
        if let Some(&id) = self.const_ids.get(&constant) {
            return id;
        }
        let id = self.constants.push(constant.clone());
        self.const_ids.insert(constant, id);
        id
    }

    /// An integer constant of type `ty`; bits beyond its width are dropped.
    pub fn const_int(&mut self, ty: TypeId, value: u64) -> ConstId {
        let bits = self.types.scalar_bits(ty);
        let mask = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
        self.constant(ty, ConstKind::Bits(value & mask))
    }

    /// The bits of a scalar constant; `None` if it is undefined, an address or a composite.
    pub fn const_bits(&self, id: ConstId) -> Option<u64> {
        let constant = &self.constants[id];
        match constant.kind {
            ConstKind::Bits(bits) => Some(bits),
            ConstKind::Null if self.types.scalar_bits(constant.ty) != 0 => {
                (self.types.lanes(constant.ty) == 1).then_some(0)
            }
            _ => None,
        }
    }

    /// The bits of an operand that is such a constant.
    pub fn operand_bits(&self, operand: Operand) -> Option<u64> {
        match operand {
            Operand::Const(id) => self.const_bits(id),
            Operand::Value(_) => None,
        }
    }

    /// The byte that a constant consists of, if all of its bytes in memory are the same, or padding.
    pub fn repeated_byte(&self, id: ConstId) -> Option<u8> {
        let constant = &self.constants[id];
        match &constant.kind {
            ConstKind::Null => Some(0),
            ConstKind::Bits(bits) => {
                let size = self.types.size(constant.ty).clamp(1, 8) as usize;
                let bytes = bits.to_le_bytes();
                bytes[..size].iter().all(|&byte| byte == bytes[0]).then_some(bytes[0])
            }
            ConstKind::Composite(parts) => {
                let mut parts = parts.clone();
                parts.dedup();
                let byte = self.repeated_byte(*parts.first()?)?;
                let same = |&part: &ConstId| self.repeated_byte(part) == Some(byte);
                parts[1..].iter().all(same).then_some(byte)
            }
            ConstKind::Undef | ConstKind::Address(..) => None,
        }
    }

    /// The part of the module that a kernel needs: all ids stay valid, but the functions that the
    /// kernel does not reach are placeholders, and there are no kernels.
    pub fn part_of(&self, kernel: &Kernel) -> Module {
        let mut functions = Arena::new();
        for (id, function) in self.functions.iter() {
            functions.push(match kernel.facts.functions.contains(&id) {
                true => function.clone(),
                false => function.placeholder(),
            });
        }
        Module {
            types: self.types.clone(),
            constants: self.constants.clone(),
            globals: self.globals.clone(),
            functions,
            kernels: Vec::new(),
            files: self.files.clone(),
            debug: self.debug.clone(),
            pointers: BTreeMap::new(),
            dispatchers: Vec::new(),
            callable: Vec::new(),
            link_once: BTreeSet::new(),
            foreign: self.foreign.clone(),
            const_ids: self.const_ids.clone(),
        }
    }

    /// The kernel with this name and its number.
    pub fn kernel(&self, name: &str) -> Option<(usize, &Kernel)> {
        self.kernels.iter().enumerate().find(|(_, kernel)| kernel.name == name)
    }

    /// The type of an operand of `function`.
    pub fn operand_type(&self, function: &Function, operand: Operand) -> TypeId {
        match operand {
            Operand::Value(value) => function.values[value].ty,
            Operand::Const(constant) => self.constants[constant].ty,
        }
    }

    /// The global variables whose addresses the constants hold, each once, in ascending order.
    pub fn globals_in(&self, constants: impl IntoIterator<Item = ConstId>) -> Vec<GlobalId> {
        let mut work: Vec<ConstId> = constants.into_iter().collect();
        let mut seen: HashSet<ConstId> = work.iter().copied().collect();
        let mut globals = BTreeSet::new();
        while let Some(id) = work.pop() {
            match &self.constants[id].kind {
                ConstKind::Address(global, _) => {
                    globals.insert(*global);
                }
                ConstKind::Composite(parts) => {
                    work.extend(parts.iter().copied().filter(|&part| seen.insert(part)));
                }
                ConstKind::Undef | ConstKind::Null | ConstKind::Bits(_) => {}
            }
        }
        globals.into_iter().collect()
    }
}

impl Kernel {
    /// Size of the argument block in bytes: the arguments, and the words that the compiler adds.
    pub fn block_size(&self) -> u64 {
        let printing = self.facts.printf_ring.map_or(self.args_size, |at| at.saturating_add(8));
        let locals =
            self.args.iter().filter(|arg| arg.kind == ArgKind::LocalPointer).count() as u64;
        let words = u64::from(hidden::LOCAL_ARGS) + 8 * locals;
        self.facts.watch.map_or(printing, |at| at.saturating_add(words))
    }

    /// Reserves room in the argument block for the words that checks need.
    pub fn make_room_for_checks(&mut self) {
        self.facts.watch = Some(self.block_size().next_multiple_of(8));
    }

    /// Work-items of a full sub-group.
    pub fn subgroup_size(&self) -> u32 {
        self.required_subgroup_size.unwrap_or(group::DEFAULT_SUBGROUP_SIZE)
    }
}

impl Function {
    /// Whether the function is defined elsewhere.
    pub fn is_declared(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Calls `visit` with each constant that an instruction, a terminator or a variable's initialiser names.
    pub fn for_each_constant(&self, mut visit: impl FnMut(ConstId)) {
        let mut note = |operand: Operand| {
            if let Operand::Const(id) = operand {
                visit(id);
            }
        };
        for (_, block) in self.blocks.iter() {
            block.insts.iter().for_each(|inst| inst.op.for_each_operand(&mut note));
            block.terminator.for_each_operand(&mut note);
        }
        self.variables.iter().filter_map(|variable| variable.init).for_each(visit);
    }

    /// A placeholder for a function that nothing calls. It has no name either: each kernel of a module
    /// has such placeholders for all other kernels.
    fn placeholder(&self) -> Function {
        Function {
            name: String::new(),
            params: Vec::new(),
            return_type: self.return_type,
            values: Arena::new(),
            variables: Vec::new(),
            shown: Vec::new(),
            blocks: Arena::new(),
            exported: self.exported,
            loc: self.loc,
        }
    }

    /// Adds a value of type `ty`.
    pub fn new_value(&mut self, ty: TypeId) -> ValueId {
        self.values.push(Value { ty, name: None })
    }

    /// Adds an empty copy of each of some blocks, and a value for each result of theirs. Returns both, by the blocks
    /// and the values that they are copies of.
    pub fn copies_of(
        &mut self,
        blocks: &[BlockId],
    ) -> (HashMap<BlockId, BlockId>, HashMap<ValueId, ValueId>) {
        let (mut places, mut names) = (HashMap::new(), HashMap::new());
        for &id in blocks {
            let Block { insts, loc, .. } = &self.blocks[id];
            let loc = *loc;
            let results: Vec<ValueId> = insts.iter().filter_map(|inst| inst.result).collect();
            for result in results {
                let ty = self.values[result].ty;
                names.insert(result, self.new_value(ty));
            }
            let terminator = Terminator::Unreachable;
            places.insert(id, self.blocks.push(Block { insts: Vec::new(), terminator, loc }));
        }
        (places, names)
    }

    /// The predecessors of each block, indexed by block number; each once, in ascending order.
    pub fn predecessors(&self) -> Vec<Vec<BlockId>> {
        let mut predecessors = vec![Vec::new(); self.blocks.len()];
        for (id, block) in self.blocks.iter() {
            for next in block.terminator.successors() {
                let list: &mut Vec<BlockId> = &mut predecessors[next.index()];
                if list.last() != Some(&id) {
                    list.push(id);
                }
            }
        }
        predecessors
    }
}

impl Block {
    /// Gives a copied block its own names: those of values, results included, and those of blocks, all of which are
    /// copied with it.
    pub fn rename(
        &mut self,
        names: &HashMap<ValueId, ValueId>,
        places: &HashMap<BlockId, BlockId>,
    ) {
        let rename = |operand: &mut Operand| {
            if let Operand::Value(value) = operand
                && let Some(&name) = names.get(value)
            {
                *value = name;
            }
        };
        for inst in &mut self.insts {
            inst.op.for_each_operand_mut(rename);
            if let Op::Phi(arms) = &mut inst.op {
                arms.iter_mut().for_each(|arm| arm.0 = places[&arm.0]);
            }
            inst.result = inst.result.map(|result| names[&result]);
        }
        self.terminator.for_each_operand_mut(rename);
        self.terminator.for_each_successor_mut(|next| *next = places[next]);
    }

    /// The phis at the block's start.
    pub fn phis(&self) -> impl Iterator<Item = &Inst> {
        self.insts.iter().take_while(|inst| matches!(inst.op, Op::Phi(_)))
    }

    /// Makes what its phis take from block `from` what they take from block `to`.
    pub fn redirect_phis(&mut self, from: BlockId, to: BlockId) {
        for inst in &mut self.insts {
            let Op::Phi(arms) = &mut inst.op else { break };
            arms.iter_mut().filter(|arm| arm.0 == from).for_each(|arm| arm.0 = to);
        }
    }
}
