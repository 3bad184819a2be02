// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messages, and the tables in them that describe a module and its code.

use serde::{Deserialize, Serialize};

use crate::checks::{Checks, Sites};

/// Version of the messages. Driver and compiler come from one build, so any difference is an
/// installation error and ends the connection.
pub const PROTOCOL_VERSION: u32 = 12;

/// The sizes of full sub-groups that a kernel may require, in work-items, ascending.
pub const SUBGROUP_SIZES: [u32; 3] = [8, 16, 32];

/// The processor that code is generated for, in LLVM's words.
///
/// It is what the device's QUERY reports, not what the compiling machine happens to be.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TargetCpu {
    /// LLVM's processor name, for example `x86-64-v3`. Empty means `x86-64`.
    pub name: String,
    /// LLVM's feature string, for example `+avx2,+fma,-avx512f`. May be empty.
    pub features: String,
}

/// The source of a build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Objects that import from each other. The kernels of the first are built; the others only provide
    /// their functions and variables.
    pub objects: Vec<Object>,
    /// The processor that code is generated for.
    pub target: TargetCpu,
    /// Optimise little, because a build with more optimisation has exceeded a limit of the compiler.
    pub careful: bool,
    /// The checks that kernels make while they run.
    pub checks: Checks,
}

/// The source of one module of Level Zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Its SPIR-V modules; they are linked.
    pub inputs: Vec<Input>,
    /// The modules that define its imports.
    pub links: Vec<Link>,
}

/// A SPIR-V module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// The SPIR-V binary, in either byte order.
    pub spirv: Vec<u8>,
    /// Build flags as given to `zeModuleCreate`.
    pub options: String,
    /// Specialization constants: `SpecId` and the bits of the value, zero-extended.
    pub spec_constants: Vec<(u32, u64)>,
}

/// An import whose definition is in another object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The name that is imported and exported.
    pub name: String,
    /// Index into [`Source::objects`].
    pub object: u32,
}

/// Driver to compiler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Build a module. Answered by one [`Reply::Built`] and, if that is a success, by one
    /// [`Reply::Code`] for each of its kernels, with its usual code.
    Build {
        /// The driver's number for this module; never reused on one connection.
        module: u64,
        /// The source of a build.
        source: Source,
    },
    /// A launch waits for this code: generate it before other code. Usual code has no further answer for
    /// this; any other is only generated when it is needed, and answered by one [`Reply::Code`].
    Need {
        /// The module's number.
        module: u64,
        /// The code.
        code: CodeId,
    },
    /// The module is no longer needed. Code that is not generated yet is not generated.
    Release {
        /// The module's number.
        module: u64,
    },
}

/// Compiler to driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The first message of a connection.
    Hello {
        /// The compiler's [`PROTOCOL_VERSION`].
        version: u32,
    },
    /// A worker begins a piece of work. If the process dies, this work may be the cause.
    Begun {
        /// The module's number.
        module: u64,
        /// The code that it generates; none for the front end.
        code: Option<CodeId>,
    },
    /// The front end is done with a module.
    Built {
        /// The module's number.
        module: u64,
        /// Its description, or the reason why it was refused.
        result: Result<ModuleInfo, BuildFailure>,
        /// Remarks that did not stop the build; lines, may be empty.
        warnings: String,
    },
    /// A kernel's code is ready, or can't be made.
    Code {
        /// The module's number.
        module: u64,
        /// Which code of the module it is.
        code: CodeId,
        /// The code, or a log. After a successful `Built` only limits and compiler errors fail.
        result: Result<KernelCode, String>,
    },
}

/// One piece of a module's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CodeId {
    /// Index into [`ModuleInfo::kernels`].
    pub kernel: u32,
    /// The groups that it is good for.
    pub form: Form,
}

/// The groups that a kernel's code is good for. Every form runs all groups right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Form {
    /// Those whose rows are made of whole vectors; all groups, if the kernel has no other form.
    Usual,
    /// Those of [`Uneven`] rows.
    Uneven,
    /// Those of this size alone, as if the kernel required it.
    Sized([u32; 3]),
}

/// The groups that a kernel's other forms run in vectors, where its usual form runs one work-item at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uneven {
    /// Work-items of a vector. A row of another number than multiples of this is uneven.
    pub lanes: u32,
    /// The shortest row that goes in vectors, in work-items.
    pub least_row: u32,
    /// Vectors are sub-groups, which are numbered through the group.
    pub one_row: bool,
    /// All work-items of a group run in one form, since they wait for each other. Otherwise, the usual form
    /// runs one at a time only those that are left over behind the whole vectors of a row.
    pub together: bool,
    /// Whether there is a [form](Form::Uneven) for uneven rows of any length. If the usual form runs no group in
    /// vectors, there is none.
    pub any: bool,
}

impl Uneven {
    /// The form that is best for groups of a size, and worth its time to build.
    ///
    /// Vectors are parts of rows. Where work-items wait for each other, groups of several rows that are shorter than
    /// half a vector, or that are uneven and have sub-groups, go in vectors that continue in the next row. What follows
    /// from an id depends on the group's size then, so such a form is for one size.
    ///
    /// If work-items do not wait for each other, the uneven form is for groups of several rows where a third of the
    /// time is saved: a work-item that is left over takes half as long as a vector.
    pub fn form(&self, group: [u32; 3]) -> Form {
        let [row, rows, planes] = group;
        let one_row = (rows, planes) == (1, 1);
        let items = row.saturating_mul(rows).saturating_mul(planes);
        let (Some(rest), Some(vectors)) =
            (row.checked_rem(self.lanes), row.checked_div(self.lanes))
        else {
            return Form::Usual;
        };
        let continues = !one_row && (self.one_row || row < self.lanes / 2);
        if rest == 0 {
            Form::Usual
        } else if self.together && continues && items >= self.least_row {
            Form::Sized(group)
        } else if self.any
            && row >= self.least_row
            && (self.together || (!one_row && rest > vectors + 2))
        {
            Form::Uneven
        } else {
            Form::Usual
        }
    }
}

/// The reason why a module was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildFailure {
    /// The build log: names the instruction, its place, and the rule that it breaks.
    pub log: String,
}

/// The description of a module, known before any code exists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleInfo {
    /// Entry points, in the order of the module.
    pub kernels: Vec<KernelInfo>,
    /// Variables in global or constant memory that the driver allocates once per module.
    pub globals: Vec<GlobalInfo>,
    /// Variables of other objects. [`Reloc::global`] counts on from `globals` here.
    pub foreign: Vec<ForeignGlobal>,
    /// The definitions that other modules may import.
    pub exports: Vec<Export>,
    /// The names that the module uses and no object defines.
    pub imports: Vec<Import>,
}

/// A variable of another object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignGlobal {
    /// Index into [`Source::objects`].
    pub object: u32,
    /// Index into [`ModuleInfo::globals`] of that object.
    pub global: u32,
}

/// A function or a variable that other modules may import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Export {
    /// Its linkage name.
    pub name: String,
    /// Whether others may define the same (`LinkOnceODR`).
    pub once: bool,
    /// The value of a pointer to it in the module's kernels, if it is a function.
    pub pointer: Option<u64>,
}

/// A function or a variable of another module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Import {
    /// Its linkage name.
    pub name: String,
    /// Whether a kernel needs it; else only the module's exports do.
    pub by_kernels: bool,
}

/// A module-scope variable in global or constant memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GlobalInfo {
    /// Linkage name, else the debug name, else empty.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Alignment in bytes, a power of two.
    pub align: u32,
    /// The first bytes of the initial contents; the rest up to `size` is zero.
    pub init: Vec<u8>,
    /// Addresses of globals that are part of the contents. Offsets count from the variable.
    pub relocs: Vec<Reloc>,
    /// Kernels never write it.
    pub constant: bool,
    /// Visible by name to `zeModuleGetGlobalPointer`.
    pub exported: bool,
}

/// A 64-bit little-endian address to fill in: `*(offset) = address(global) + addend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloc {
    /// The offset of the address in the bytes that contain it.
    pub offset: u64,
    /// Index into [`ModuleInfo::globals`], or behind them into [`ModuleInfo::foreign`].
    pub global: u32,
    /// Added to the global's address, wrapping.
    pub addend: i64,
}

/// An entry point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelInfo {
    /// The entry point's name.
    pub name: String,
    /// Its arguments, in order.
    pub args: Vec<ArgInfo>,
    /// Size in bytes of the argument block.
    pub args_size: u32,
    /// Offset in the argument block of the address of the [ring](crate::printf) that `printf`
    /// writes to; `None` if the kernel prints nothing.
    pub printf_ring: Option<u32>,
    /// Offset in the argument block of the [words](crate::checks::hidden) that its checks need; `None` if
    /// it is not checked.
    pub checks: Option<u32>,
    /// `LocalSize`: the only group size that is allowed.
    pub required_group_size: Option<[u32; 3]>,
    /// `LocalSizeHint`.
    pub group_size_hint: Option<[u32; 3]>,
    /// Local memory of the kernel's own variables, in bytes; local arguments follow it.
    pub local_static_bytes: u32,
    /// Private memory of one work-item in bytes; an estimate made before code generation.
    pub private_bytes: u32,
    /// Whether work-items wait for each other: at a barrier or an operation of a group or sub-group.
    pub uses_barrier: bool,
    /// Whether it may have an atomic operation or a fence of system scope, in which not only the device
    /// takes part.
    pub uses_system_scope: bool,
    /// Whether a group may wait for another one, or its groups should run in order for another reason.
    pub may_wait: bool,
    /// Whether a group must consist of full sub-groups, since matrices are spread over their items.
    pub full_subgroups: bool,
    /// Work-items of a full sub-group.
    pub max_subgroup_size: u32,
    /// `SubgroupSize`.
    pub required_subgroup_size: Option<u32>,
    /// Attributes in OpenCL C's spelling, as `zeKernelGetSourceAttributes` returns them.
    pub source_attributes: String,
}

/// A kernel argument.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgInfo {
    /// The kind of the argument.
    pub kind: ArgKind,
    /// Size in bytes in the argument block. Eight for pointers.
    pub size: u32,
    /// Alignment in bytes in the argument block.
    pub align: u32,
    /// Offset in bytes in the argument block.
    pub offset: u32,
    /// Name in the source, or empty.
    pub name: String,
    /// Type in the source, or empty.
    pub type_name: String,
    /// The kernel's access to the memory, or to the image.
    pub access: Access,
    /// The way in which a kernel addresses the image, if it is one.
    pub image: Option<ImageKind>,
}

/// The way in which a kernel addresses an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImageKind {
    /// x
    D1,
    /// x, layer
    D1Array,
    /// x, y
    D2,
    /// x, y, layer
    D2Array,
    /// x, y, z
    D3,
    /// x, over a buffer
    Buffer,
}

/// The kind of a kernel argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ArgKind {
    /// Bytes, passed by value.
    Value,
    /// A 64-bit address of global memory.
    GlobalPointer,
    /// A 64-bit address of memory that the kernel only reads.
    ConstantPointer,
    /// A 64-bit byte offset into the group's local memory; the argument given is a size.
    LocalPointer,
    /// An image handle.
    Image,
    /// A sampler handle.
    Sampler,
}

/// Access to an argument's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// The argument is no pointer, or the kernel does not declare it.
    None,
    /// Read only.
    Read,
    /// Write only.
    Write,
    /// Both.
    ReadWrite,
}

/// A kernel's code: a position-independent blob with no imports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelCode {
    /// Text and read-only data. It must be mapped read-execute at an address that is a multiple of 64.
    pub blob: Vec<u8>,
    /// Offset of the entry point in the blob.
    pub entry: u32,
    /// Addresses of globals in the blob, to be filled in before it is mapped read-execute.
    pub relocs: Vec<Reloc>,
    /// Scratch memory of a group, whatever its size, in bytes.
    pub scratch_bytes_fixed: u32,
    /// Scratch memory to add for each work-item of the group, in bytes.
    pub scratch_bytes_per_item: u32,
    /// Same as [`KernelInfo::local_static_bytes`].
    pub local_static_bytes: u32,
    /// The reason why it runs one work-item at a time, as text; empty if it runs vectors of them, or if
    /// scalar code was requested.
    pub remark: String,
    /// Debug information, if `-g` was among the build flags.
    pub debug: Vec<DebugSection>,
    /// The places that it checks; `None` if it checks nothing.
    pub sites: Option<Sites>,
    /// The groups for which the kernel has other forms; `None` if it has none, or if this is one.
    pub uneven: Option<Uneven>,
    /// The dimension in which groups are best long: 0, unless the kernel has vectors in another one.
    pub axis: u8,
    /// Whether work-items that follow one another in that dimension access memory side by side, or at one place:
    /// groups are then best one long row.
    pub side_by_side: bool,
}

/// A section of the debug information of a kernel's code, as in an ELF file: DWARF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DebugSection {
    /// Its name, as in `.debug_line`.
    pub name: String,
    /// Its contents.
    pub bytes: Vec<u8>,
    /// The addresses and offsets in the contents. Addresses count from the start of the blob,
    /// offsets from the start of a section of this kernel's.
    pub places: Vec<DebugPlace>,
}

/// An address in code, or an offset in a section of debug information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DebugPlace {
    /// Its offset in the contents.
    pub offset: u32,
    /// Whether it has eight bytes instead of four.
    pub wide: bool,
    /// Index into [`KernelCode::debug`] of the section that it refers to; none for code.
    pub section: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: Uneven =
        Uneven { lanes: 16, least_row: 4, one_row: false, together: true, any: true };

    /// Where work-items wait for each other, any uneven row that is long enough needs the form for such, and groups of
    /// shorter rows, or of several with sub-groups, one of their own.
    #[test]
    fn groups_that_wait_need_a_form_for_all_uneven_rows() {
        for group in [[8, 8, 1], [20, 1, 1], [1000, 1, 1], [4, 1, 1]] {
            assert_eq!(FORM.form(group), Form::Uneven, "{group:?}");
        }
        for group in [[3, 64, 1], [1, 128, 1], [1, 1, 64], [1, 2, 2], [7, 2, 1]] {
            assert_eq!(FORM.form(group), Form::Sized(group), "{group:?}");
        }
        for group in [[16, 16, 1], [1, 1, 1], [1, 3, 1], [0, 0, 0]] {
            assert_eq!(FORM.form(group), Form::Usual, "{group:?}");
        }
        let subgroups = Uneven { one_row: true, ..FORM };
        for group in [[8, 8, 1], [1, 4, 4], [8, 3, 1]] {
            assert_eq!(subgroups.form(group), Form::Sized(group), "{group:?}");
        }
        assert_eq!(subgroups.form([20, 1, 1]), Form::Uneven);
        assert_eq!(subgroups.form([16, 2, 1]), Form::Usual);
        let parted = Uneven { any: false, ..FORM };
        assert_eq!(parted.form([20, 1, 1]), Form::Usual);
        assert_eq!(parted.form([1, 128, 1]), Form::Sized([1, 128, 1]));
    }

    /// Otherwise it is built only for groups whose time is mostly that of what is left over of rows.
    #[test]
    fn other_groups_need_the_form_where_little_goes_in_whole_vectors() {
        let form = Uneven { together: false, ..FORM };
        for group in [[8, 8, 1], [4, 4, 4], [10, 10, 1], [20, 20, 1], [24, 8, 1]] {
            assert_eq!(form.form(group), Form::Uneven, "{group:?}");
        }
        for group in [[1000, 1, 1], [20, 1, 1], [17, 8, 1], [100, 4, 1], [32, 8, 1], [3, 64, 1]] {
            assert_eq!(form.form(group), Form::Usual, "{group:?}");
        }
    }
}
