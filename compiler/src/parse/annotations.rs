// SPDX-License-Identifier: MIT OR Apache-2.0
//! A module's information about its ids that precedes their definitions: names, decorations, entry
//! points and execution modes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rspirv::spirv::{Decoration, ExecutionMode, ExecutionModel, FPFastMathMode, Op};

use super::controls::{Controls, Rounding};
use super::error::{Error, Result};
use super::words::Instruction;
use crate::ir::Flags;

/// The maximum number of kernels of a module; each costs a walk over all functions that it calls.
const MAX_KERNELS: usize = 8192;

/// Linkage types of SPIR-V.
const IMPORT: u32 = 1;
const LINK_ONCE_ODR: u32 = 2;

/// The linkage of an object.
#[derive(Clone, Debug)]
pub struct Linkage {
    /// The name that other modules use.
    pub name: Arc<str>,
    /// Whether the object is defined elsewhere.
    pub import: bool,
    /// Whether several modules may define it, with the same definition.
    pub once: bool,
}

/// The decorations of one id that the compiler uses.
#[derive(Clone, Debug, Default)]
pub struct Decorations {
    /// Alignment in bytes, a power of two.
    pub alignment: Option<u32>,
    /// The built-in that a variable stands for.
    pub builtin: Option<u32>,
    /// Its linkage.
    pub linkage: Option<Linkage>,
    /// Number of a specialization constant.
    pub spec_id: Option<u32>,
    /// Rounding of a conversion.
    pub rounding: Option<Rounding>,
    /// A conversion clamps.
    pub saturated: bool,
    /// A structure has no padding.
    pub packed: bool,
    /// A parameter points to a copy that belongs to the function.
    pub by_value: bool,
    /// A pointer parameter is not aliased.
    pub no_alias: bool,
    /// Accesses are volatile.
    pub volatile: bool,
    /// Multiplications and additions must not be fused.
    pub no_contraction: bool,
    /// Fast-math and wrap flags.
    pub flags: Flags,
}

/// An `OpEntryPoint`.
pub struct EntryPoint {
    /// The function's id.
    pub function: u32,
    /// The kernel's name.
    pub name: String,
    /// Its offset in the module, in words.
    pub word: usize,
}

/// The execution modes of one entry point.
#[derive(Clone, Debug, Default)]
pub struct Modes {
    /// `LocalSize`
    pub local_size: Option<[u32; 3]>,
    /// `LocalSizeId`, as ids.
    pub local_size_ids: Option<[u32; 3]>,
    /// `LocalSizeHint`
    pub local_size_hint: Option<[u32; 3]>,
    /// `VecTypeHint`
    pub vec_type_hint: Option<u32>,
    /// `SubgroupSize`
    pub subgroup_size: Option<u32>,
    /// Those about floats.
    pub floats: Controls,
}

/// All annotations of a module.
#[derive(Default)]
pub struct Annotations {
    names: HashMap<u32, String>,
    decorations: HashMap<u32, Decorations>,
    /// Contents of `OpString`.
    pub strings: HashMap<u32, String>,
    /// Entry points in order.
    pub entry_points: Vec<EntryPoint>,
    /// The first kernel name of each entry point's function, by function id.
    pub kernels: HashMap<u32, String>,
    kernel_names: HashSet<String>,
    /// Execution modes by function id.
    pub modes: HashMap<u32, Modes>,
    /// Whether a kernel forbids fusing; that then holds for the whole module, as functions are shared.
    pub contraction_off: bool,
}

static NO_DECORATIONS: Decorations = Decorations {
    alignment: None,
    builtin: None,
    linkage: None,
    spec_id: None,
    rounding: None,
    saturated: false,
    packed: false,
    by_value: false,
    no_alias: false,
    volatile: false,
    no_contraction: false,
    flags: Flags::empty(),
};

impl Annotations {
    /// Reads the annotations among all instructions of a module.
    pub fn collect(instructions: &[Instruction<'_>]) -> Result<Self> {
        let mut all = Self::default();
        for inst in instructions {
            match inst.op() {
                Op::Name => {
                    all.names.insert(inst.arg(0)?, inst.string(1)?.0);
                }
                Op::String => {
                    let id = inst.result().unwrap_or_default();
                    all.strings.insert(id, inst.string(0)?.0);
                }
                Op::Decorate => all.decorate(inst)?,
                Op::GroupDecorate => all.group_decorate(inst)?,
                Op::EntryPoint => all.entry_point(inst)?,
                Op::ExecutionMode | Op::ExecutionModeId => all.execution_mode(inst)?,
                _ => {}
            }
        }
        Ok(all)
    }

    /// The decorations of an id.
    pub fn decorations(&self, id: u32) -> &Decorations {
        self.decorations.get(&id).unwrap_or(&NO_DECORATIONS)
    }

    /// The name of an id.
    pub fn name(&self, id: u32) -> Option<&str> {
        self.names.get(&id).map(String::as_str).filter(|name| !name.is_empty())
    }

    fn decorate(&mut self, inst: &Instruction<'_>) -> Result<()> {
        let target = self.decorations.entry(inst.arg(0)?).or_default();
        // Unknown decorations do not affect anything that the compiler looks at.
        let Some(decoration) = Decoration::from_u32(inst.arg(1)?) else { return Ok(()) };
        match decoration {
            Decoration::Alignment => target.alignment = Some(alignment(inst, inst.arg(2)?)?),
            Decoration::BuiltIn => target.builtin = Some(inst.arg(2)?),
            Decoration::SpecId => target.spec_id = Some(inst.arg(2)?),
            Decoration::SaturatedConversion => target.saturated = true,
            Decoration::CPacked => target.packed = true,
            Decoration::Volatile => target.volatile = true,
            Decoration::NoContraction => target.no_contraction = true,
            Decoration::NoSignedWrap => target.flags = target.flags.union(Flags::NSW),
            Decoration::NoUnsignedWrap => target.flags = target.flags.union(Flags::NUW),
            Decoration::FPFastMathMode => {
                target.flags = target.flags.union(fast_math(inst.arg(2)?));
            }
            Decoration::FPRoundingMode => {
                let mode = inst.arg(2)?;
                target.rounding = Some(Rounding::decode(mode).ok_or_else(|| {
                    inst.error(format!("names rounding mode {mode}, which does not exist"))
                })?);
            }
            Decoration::FuncParamAttr => match inst.arg(2)? {
                2 => target.by_value = true,
                4 => target.no_alias = true,
                _ => {}
            },
            Decoration::LinkageAttributes => {
                let (name, words) = inst.string(2)?;
                let kind = inst.arg(2 + words)?;
                let (import, once) = (kind == IMPORT, kind == LINK_ONCE_ODR);
                target.linkage = Some(Linkage { name: name.into(), import, once });
            }
            _ => {}
        }
        Ok(())
    }

    fn group_decorate(&mut self, inst: &Instruction<'_>) -> Result<()> {
        let group = self.decorations(inst.arg(0)?).clone();
        for &id in &inst.rest()[1..] {
            let target = self.decorations.entry(id).or_default();
            target.alignment = target.alignment.or(group.alignment);
            target.builtin = target.builtin.or(group.builtin);
            target.linkage = target.linkage.take().or_else(|| group.linkage.clone());
            target.spec_id = target.spec_id.or(group.spec_id);
            target.rounding = target.rounding.or(group.rounding);
            target.saturated |= group.saturated;
            target.packed |= group.packed;
            target.by_value |= group.by_value;
            target.no_alias |= group.no_alias;
            target.volatile |= group.volatile;
            target.no_contraction |= group.no_contraction;
            target.flags = target.flags.union(group.flags);
        }
        Ok(())
    }

    fn entry_point(&mut self, inst: &Instruction<'_>) -> Result<()> {
        let model = inst.arg(0)?;
        if model != ExecutionModel::Kernel as u32 {
            return Err(inst.error(format!("has execution model {model}, not Kernel")));
        }
        let name = inst.string(2)?.0;
        if !self.kernel_names.insert(name.clone()) {
            return Err(inst.error(format!("names a second kernel {name:?}")));
        }
        if self.entry_points.len() == MAX_KERNELS {
            return Err(inst.error(format!("is one more than {MAX_KERNELS}")));
        }
        self.kernels.entry(inst.arg(1)?).or_insert_with(|| name.clone());
        self.entry_points.push(EntryPoint { function: inst.arg(1)?, name, word: inst.word });
        Ok(())
    }

    fn execution_mode(&mut self, inst: &Instruction<'_>) -> Result<()> {
        let function = inst.arg(0)?;
        let Some(mode) = ExecutionMode::from_u32(inst.arg(1)?) else { return Ok(()) };
        let modes = self.modes.entry(function).or_default();
        let three =
            || -> Result<[u32; 3], Error> { Ok([inst.arg(2)?, inst.arg(3)?, inst.arg(4)?]) };
        match mode {
            ExecutionMode::LocalSize => modes.local_size = Some(three()?),
            ExecutionMode::LocalSizeId => modes.local_size_ids = Some(three()?),
            ExecutionMode::LocalSizeHint => modes.local_size_hint = Some(three()?),
            ExecutionMode::VecTypeHint => modes.vec_type_hint = Some(inst.arg(2)?),
            ExecutionMode::SubgroupSize => modes.subgroup_size = Some(inst.arg(2)?),
            // What may be done by default, fusing among it, is then given by a constant, which is not known
            // here; nothing has to be done.
            ExecutionMode::ContractionOff | ExecutionMode::FPFastMathDefault => {
                self.contraction_off = true;
            }
            _ => modes.floats.add(inst, mode)?,
        }
        Ok(())
    }
}

/// Checks that a number is an alignment that memory can have.
pub fn alignment(inst: &Instruction<'_>, bytes: u32) -> Result<u32> {
    // Zero specifies nothing; some producers write it.
    match bytes {
        0 => Ok(1),
        // LLVM 22 writes the alignment of a private variable as a byte with a sign, so 128 becomes -128.
        0xffff_ff80 => Ok(128),
        n if n.is_power_of_two() && n <= 1 << 16 => Ok(n),
        n => Err(inst.error(format!("asks for an alignment of {n} bytes"))),
    }
}

/// The flags of an `FPFastMathMode`.
fn fast_math(mask: u32) -> Flags {
    let mode = FPFastMathMode::from_bits_truncate(mask);
    let pairs = [
        (FPFastMathMode::NOT_NAN, Flags::NNAN),
        (FPFastMathMode::NOT_INF, Flags::NINF),
        (FPFastMathMode::NSZ, Flags::NSZ),
        (FPFastMathMode::ALLOW_RECIP, Flags::ARCP),
        (FPFastMathMode::ALLOW_CONTRACT, Flags::CONTRACT),
        (FPFastMathMode::ALLOW_REASSOC, Flags::REASSOC),
    ];
    let mut flags = Flags::empty();
    for (bit, flag) in pairs {
        if mode.contains(bit) {
            flags = flags.union(flag);
        }
    }
    if mask & 0x10 != 0 {
        // The old "Fast" bit stands for all of them.
        for (_, flag) in pairs {
            flags = flags.union(flag);
        }
    }
    flags
}
