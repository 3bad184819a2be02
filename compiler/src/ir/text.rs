// SPDX-License-Identifier: MIT OR Apache-2.0
//! The textual form of the IR.
//!
//! ```text
//! kernel "scale" = f0(value:0+4, global:8+8)
//!
//! f0 "scale"(%0 n: i32, %1 x: ptr<global>) -> void {
//! bb0:
//!   %2: i64 = work_item global_id.0
//!   %3: ptr<global> = address inbounds %1 + %2 * 4
//!   %4: f32 = load %3 align 4
//!   %5: f32 = fmul contract %4, f32 2.0
//!   store %3, %5 align 4
//!   return
//! }
//! ```

use std::fmt::{self, Display, Formatter, Write};

use super::{
    Access, AddressSpace, ArgKind, ConstId, ConstKind, Flags, Float, Function, FunctionId, GroupOp,
    Inst, Kernel, Module, Op, Operand, Terminator, Type, TypeId, Types, ValueId,
};

/// The maximum number of components of a composite type or constant that are printed.
const MAX_COMPONENTS: usize = 16;
/// The maximum number of levels of nested composites that are printed.
const MAX_DEPTH: usize = 3;

/// A type with its context for printing.
pub struct TypeText<'a>(&'a Types, TypeId, usize);

impl Types {
    /// The type in its textual form.
    pub fn text(&self, ty: TypeId) -> TypeText<'_> {
        TypeText(self, ty, 0)
    }
}

impl Display for TypeText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let TypeText(types, ty, depth) = *self;
        let inner = |ty| TypeText(types, ty, depth + 1);
        if depth > MAX_DEPTH {
            return f.write_str("...");
        }
        match &types[ty] {
            Type::Void => f.write_str("void"),
            Type::Bool => f.write_str("bool"),
            Type::Int(bits) => write!(f, "i{bits}"),
            Type::Float(float) => write!(f, "f{}", float.bits()),
            Type::Pointer(space) => write!(f, "ptr<{}>", space.name()),
            Type::Vector(element, n) => write!(f, "{}x{n}", inner(*element)),
            Type::Array(element, n) => write!(f, "[{n} x {}]", inner(*element)),
            Type::Struct { members, packed } => {
                f.write_str(if *packed { "<{" } else { "{" })?;
                for (i, &member) in members.iter().take(MAX_COMPONENTS).enumerate() {
                    write!(f, "{}{}", if i == 0 { "" } else { ", " }, inner(member))?;
                }
                if members.len() > MAX_COMPONENTS {
                    f.write_str(", ...")?;
                }
                f.write_str(if *packed { "}>" } else { "}" })
            }
            Type::Opaque(name) => write!(f, "opaque<{name}>"),
        }
    }
}

/// A constant with its context for printing.
pub struct ConstText<'a>(&'a Module, ConstId);

impl Module {
    /// A constant in its textual form. Large ones are abridged.
    pub fn constant_text(&self, id: ConstId) -> ConstText<'_> {
        ConstText(self, id)
    }

    fn write_constant_text(
        &self,
        f: &mut Formatter<'_>,
        id: ConstId,
        with_type: bool,
        depth: usize,
    ) -> fmt::Result {
        let constant = &self.constants[id];
        if with_type {
            write!(f, "{} ", self.types.text(constant.ty))?;
        }
        match &constant.kind {
            ConstKind::Undef => f.write_str("undef"),
            ConstKind::Null => match self.types[constant.ty] {
                Type::Bool => f.write_str("false"),
                Type::Int(_) => f.write_str("0"),
                Type::Float(_) => f.write_str("0.0"),
                _ => f.write_str("null"),
            },
            ConstKind::Bits(bits) => match self.types[constant.ty] {
                Type::Bool => f.write_str("true"),
                Type::Int(width) => {
                    let unused = 64 - width;
                    write!(f, "{}", ((bits << unused) as i64) >> unused)
                }
                Type::Float(Float::F16) => write!(f, "{bits:#06x}"),
                Type::Float(Float::F32) => write!(f, "{:?}", f32::from_bits(*bits as u32)),
                Type::Float(Float::F64) => write!(f, "{:?}", f64::from_bits(*bits)),
                _ => write!(f, "{bits:#x}"),
            },
            ConstKind::Address(global, 0) => write!(f, "&{global}"),
            ConstKind::Address(global, offset) => write!(f, "&{global}{offset:+}"),
            ConstKind::Composite(_) if depth >= MAX_DEPTH => f.write_str("(...)"),
            ConstKind::Composite(parts) => {
                f.write_char('(')?;
                for (i, &part) in parts.iter().take(MAX_COMPONENTS).enumerate() {
                    f.write_str(if i == 0 { "" } else { ", " })?;
                    self.write_constant_text(f, part, false, depth + 1)?;
                }
                f.write_str(if parts.len() > MAX_COMPONENTS { ", ...)" } else { ")" })
            }
        }
    }
}

impl Display for ConstText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.write_constant_text(f, self.1, true, 0)
    }
}

impl Display for Flags {
    /// Each flag with a space before it.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Flags::NAMES
            .iter()
            .filter(|(flag, _)| self.contains(*flag))
            .try_for_each(|(_, name)| write!(f, " {name}"))
    }
}

impl Display for Access {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, " align {}", self.align)?;
        f.write_str(if self.volatile { " volatile" } else { "" })?;
        f.write_str(if self.nontemporal { " nontemporal" } else { "" })
    }
}

/// Items with commas between them.
fn list<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

/// A function with its context for printing.
pub struct FunctionText<'a> {
    module: &'a Module,
    id: FunctionId,
}

impl Module {
    /// A function in its textual form.
    pub fn function_text(&self, id: FunctionId) -> FunctionText<'_> {
        FunctionText { module: self, id }
    }
}

impl Module {
    /// An instruction of a function in its textual form.
    pub fn inst_text(&self, function: &Function, inst: &Inst) -> String {
        let text = FunctionText { module: self, id: FunctionId(0) };
        text.inst(function, inst)
    }

    /// The terminator of a block in its textual form.
    pub fn terminator_text(&self, terminator: &Terminator) -> String {
        FunctionText { module: self, id: FunctionId(0) }.terminator(terminator)
    }
}

impl FunctionText<'_> {
    fn inst(&self, function: &Function, inst: &Inst) -> String {
        match inst.result {
            Some(id) => format!("{} = {}", self.typed_value(function, id), self.op(inst)),
            None => self.op(inst),
        }
    }

    fn operand(&self, operand: Operand) -> String {
        match operand {
            Operand::Value(value) => value.to_string(),
            Operand::Const(id) => self.module.constant_text(id).to_string(),
        }
    }

    fn operands(&self, operands: &[Operand]) -> String {
        list(operands.iter().map(|&operand| self.operand(operand)))
    }

    fn typed_value(&self, function: &Function, id: ValueId) -> String {
        let value = &function.values[id];
        let ty = self.module.types.text(value.ty);
        match &value.name {
            Some(name) => format!("{id} {name}: {ty}"),
            None => format!("{id}: {ty}"),
        }
    }

    fn op(&self, inst: &Inst) -> String {
        let o = |operand: &Operand| self.operand(*operand);
        let flags = inst.flags;
        match &inst.op {
            Op::Unary(op, a) => format!("{}{flags} {}", op.name(), o(a)),
            Op::Binary(op, a, b) => format!("{}{flags} {}, {}", op.name(), o(a), o(b)),
            Op::Ternary(op, a, b, c) => {
                format!("{}{flags} {}, {}, {}", op.name(), o(a), o(b), o(c))
            }
            Op::Compare(op, a, b) => format!("{}{flags} {}, {}", op.name(), o(a), o(b)),
            Op::Test(test, a) => format!("{} {}", test.name(), o(a)),
            Op::Select(c, a, b) => format!("select{flags} {}, {}, {}", o(c), o(a), o(b)),
            Op::Convert(op, a) => format!("{}{flags} {}", op.name(), o(a)),
            Op::Math(op, args) => format!("math {}{flags} {}", op.name(), self.operands(args)),
            Op::Image(op, args) => format!("image_{} {}", op.name(), self.operands(args)),
            Op::AddCarry(a, b) => format!("add_carry {}, {}", o(a), o(b)),
            Op::SubBorrow(a, b) => format!("sub_borrow {}, {}", o(a), o(b)),
            Op::UMulExtended(a, b) => format!("umul_extended {}, {}", o(a), o(b)),
            Op::SMulExtended(a, b) => format!("smul_extended {}, {}", o(a), o(b)),
            Op::Construct(parts) => format!("construct {}", self.operands(parts)),
            Op::Extract(a, path) => format!("extract {} at {}", o(a), list(path)),
            Op::Insert(a, v, path) => format!("insert {}, {} at {}", o(a), o(v), list(path)),
            Op::ExtractDynamic(a, i) => format!("extract_dynamic {}, {}", o(a), o(i)),
            Op::InsertDynamic(a, v, i) => {
                format!("insert_dynamic {}, {}, {}", o(a), o(v), o(i))
            }
            Op::Shuffle(a, b, mask) => {
                let mask =
                    mask.iter().map(|lane| lane.map_or_else(|| "_".into(), |n| n.to_string()));
                format!("shuffle {}, {} by {}", o(a), o(b), list(mask))
            }
            Op::Address { base, offset, terms, inbounds } => {
                let mut text =
                    format!("address {}{}", if *inbounds { "inbounds " } else { "" }, o(base));
                for (index, stride) in terms {
                    text += &format!(" + {} * {stride}", o(index));
                }
                if *offset != 0 {
                    text += &format!(" + {offset}");
                }
                text
            }
            Op::Load(p, access) => format!("load {}{access}", o(p)),
            Op::Store(p, v, access) => format!("store {}, {}{access}", o(p), o(v)),
            Op::Copy(to, from, n, access) => {
                format!("copy {}, {}, {}{access}", o(to), o(from), o(n))
            }
            Op::AtomicLoad(p, order, scope) => {
                format!("atomic_load {} {} {}", o(p), order.name(), scope.name())
            }
            Op::AtomicStore(p, v, order, scope) => {
                format!("atomic_store {}, {} {} {}", o(p), o(v), order.name(), scope.name())
            }
            Op::AtomicRmw(op, p, v, order, scope) => {
                let (order, scope) = (order.name(), scope.name());
                format!("atomic_{} {}, {} {order} {scope}", op.name(), o(p), o(v))
            }
            Op::AtomicCompareExchange { ptr, expected, value, success, failure, scope } => format!(
                "atomic_cmpxchg {}, {}, {} {} {} {}",
                o(ptr),
                o(expected),
                o(value),
                success.name(),
                failure.name(),
                scope.name()
            ),
            Op::Printf(format, args, bytes) => {
                format!("printf {}, {} of {bytes} bytes", o(format), o(args))
            }
            Op::Shadow(p) => format!("shadow {}", o(p)),
            Op::CheckWord(offset) => format!("check_word {offset}"),
            Op::Texels(op, args) => format!("texels_{} {}", op.name(), self.operands(args)),
            Op::Strings(args, bytes) => format!("strings {}, {bytes}", o(args)),
            Op::Accessible(p, size) => format!("accessible {}, {}", o(p), o(size)),
            Op::CopyStates(to, from, size) => {
                format!("copy_states {}, {}, {}", o(to), o(from), o(size))
            }
            Op::Report { site, size, at, step, mistake, items } => {
                let step = if *step == 0 { String::new() } else { format!(" step {step}") };
                let items = items.as_ref().map(|items| format!(" for {}", o(items)));
                let items = items.unwrap_or_default();
                format!("report {site} at {}{step} of {size} if {}{items}", o(at), o(mistake))
            }
            Op::WorkItem(query, dimension) if query.has_dimension() => {
                format!("work_item {}.{dimension}", query.name())
            }
            Op::WorkItem(query, _) => format!("work_item {}", query.name()),
            Op::ControlBarrier { execution, memory, ordering } => {
                format!("barrier {} {} {}", execution.name(), ordering.name(), memory.name())
            }
            Op::NamedBarrier(at, scope, ordering) => {
                format!("named_barrier {} {} {}", o(at), ordering.name(), scope.name())
            }
            Op::GridBarrier => "grid_barrier".into(),
            Op::Fence(scope, ordering) => format!("fence {} {}", ordering.name(), scope.name()),
            Op::Offer(scope, a) => format!("offer {} {}", scope.name(), o(a)),
            Op::Collect(op, scope, index) => {
                let word = if matches!(op, GroupOp::MulAdd(_)) { "to" } else { "at" };
                let index = index.as_ref().map(|index| format!(" {word} {}", o(index)));
                format!("collect {} {}{}", scope.name(), op.text(), index.unwrap_or_default())
            }
            Op::Present => "present".into(),
            Op::Splat(a) => format!("splat {}", o(a)),
            Op::Row(op, a, b) => format!("{} {}, {}", op.name(), o(a), o(b)),
            Op::Whole(a) => format!("whole {}", o(a)),
            Op::Any(a) => format!("any {}", o(a)),
            Op::Bits(a) => format!("bits {}", o(a)),
            Op::LastTrue(a) => format!("last_true {}", o(a)),
            Op::Freeze(a) => format!("freeze {}", o(a)),
            Op::Prefetch(p) => format!("prefetch {}", o(p)),
            Op::InLine(p, mask, by, part) => {
                format!("in_line {} by {by} in parts of {part} if {}", o(p), o(mask))
            }
            Op::MaskedLoad(p, mask, access) => {
                format!("masked_load {}{access} if {}", o(p), o(mask))
            }
            Op::MaskedStore(p, value, mask, access) => {
                format!("masked_store {}, {}{access} if {}", o(p), o(value), o(mask))
            }
            Op::Close(p, mask, block) => format!("close {} in {block} if {}", o(p), o(mask)),
            Op::GatherClose(p, block, offset) => {
                format!("gather_close {} + {offset} in {block}", o(p))
            }
            Op::Table(p, bytes) => format!("table {} of {bytes}", o(p)),
            Op::LookUp(p, place, bytes) => format!("look_up {} + {} of {bytes}", o(p), o(place)),
            Op::ScatterClose(p, value, mask) => {
                format!("scatter_close {}, {} if {}", o(p), o(value), o(mask))
            }
            Op::Gather(p, mask, access) => format!("gather {}{access} if {}", o(p), o(mask)),
            Op::AddLater(p, value, mask) => {
                format!("add_later {}, {} if {}", o(p), o(value), o(mask))
            }
            Op::Images(op, args) => format!("images_{} {}", op.name(), self.operands(args)),
            Op::Scatter(p, value, mask, access) => {
                format!("scatter {}, {}{access} if {}", o(p), o(value), o(mask))
            }
            Op::Call(callee, args) => {
                let name = &self.module.functions[*callee].name;
                format!("call {callee} {name:?}({})", self.operands(args))
            }
            Op::Phi(incoming) => {
                let arms = incoming.iter().map(|(from, v)| format!("{from}: {}", o(v)));
                format!("phi {}", list(arms))
            }
            Op::Assume(a) => format!("assume {}", o(a)),
            Op::Unsupported(what) => format!("unsupported {what}"),
        }
    }

    fn terminator(&self, terminator: &Terminator) -> String {
        match terminator {
            Terminator::Branch(next) => format!("branch {next}"),
            Terminator::CondBranch(condition, yes, no) => {
                format!("branch {} ? {yes} : {no}", self.operand(*condition))
            }
            Terminator::Switch { value, default, cases } => {
                let cases = cases.iter().map(|(case, block)| format!("{case}: {block}"));
                let value = self.operand(*value);
                format!("switch {value} [{}] else {default}", list(cases))
            }
            Terminator::Return(None) => "return".into(),
            Terminator::Return(Some(value)) => format!("return {}", self.operand(*value)),
            Terminator::Unreachable => "unreachable".into(),
        }
    }
}

impl Display for FunctionText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let function = &self.module.functions[self.id];
        let params = list(function.params.iter().map(|&id| self.typed_value(function, id)));
        let result = self.module.types.text(function.return_type);
        writeln!(f, "{} {:?}({params}) -> {result} {{", self.id, function.name)?;
        for variable in &function.variables {
            let address = self.typed_value(function, variable.address);
            let ty = self.module.types.text(variable.ty);
            write!(f, "  {address} = private {ty} align {}", variable.align)?;
            match variable.init {
                Some(init) => writeln!(f, " init {}", self.module.constant_text(init))?,
                None => writeln!(f)?,
            }
        }
        for (id, block) in function.blocks.iter() {
            writeln!(f, "{id}:")?;
            for inst in &block.insts {
                writeln!(f, "  {}", self.inst(function, inst))?;
            }
            writeln!(f, "  {}", self.terminator(&block.terminator))?;
        }
        f.write_str("}\n")
    }
}

fn write_kernel(f: &mut Formatter<'_>, kernel: &Kernel) -> fmt::Result {
    let args = kernel.args.iter().map(|arg| {
        let kind = match arg.kind {
            ArgKind::Value if arg.by_reference => "value by reference",
            kind => kind.name(),
        };
        format!("{kind}:{}+{}", arg.offset, arg.size)
    });
    write!(f, "kernel {:?} = {}({})", kernel.name, kernel.function, list(args))?;
    let sizes = [
        ("group_size", kernel.required_group_size),
        ("group_size_hint", kernel.group_size_hint),
        ("subgroup_size", kernel.required_subgroup_size.map(|n| [n, 1, 1])),
    ];
    for (what, size) in sizes {
        if let Some([x, y, z]) = size {
            write!(f, " {what} {x}x{y}x{z}")?;
        }
    }
    writeln!(f)
}

impl Display for Module {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (id, global) in self.globals.iter() {
            let space = match global.space {
                AddressSpace::Generic => "generic",
                space => space.name(),
            };
            let ty = self.types.text(global.ty);
            write!(f, "{id} {:?} = {space} {ty} align {}", global.name, global.align)?;
            match global.init {
                Some(init) => writeln!(f, " init {}", self.constant_text(init))?,
                None if global.imported => writeln!(f, " imported")?,
                None => writeln!(f)?,
            }
        }
        for kernel in &self.kernels {
            write_kernel(f, kernel)?;
        }
        for id in self.functions.ids() {
            write!(f, "\n{}", self.function_text(id))?;
        }
        Ok(())
    }
}
