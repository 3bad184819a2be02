// SPDX-License-Identifier: MIT OR Apache-2.0
//! Code of checked kernels: addresses of states, and reports ([`crate::instrument`]).

use tally_compiler_protocol::checks::{access, hidden, watch};

use super::body::Body;
use super::context::ARGS;
use super::unit::{LowerError, Unit};
use crate::ir::{AddressSpace, ImageOp, Op, Operand, Type, TypeId};

/// The function through which checks report: its fast path is inlined.
const REPORT: &str = "tally.report";

/// The function through which accesses are told.
const ACCESS: &str = "tally.access";

/// Bytes of the context with which a group runs that is looked at; at least those of `struct Checked` in
/// `rt/races.c`.
const CHECKED: u32 = 8192;

/// Values that a function loads at its start for its checks.
#[derive(Clone)]
pub(super) struct Watch {
    /// The block that all launches share.
    block: String,
    /// The driver's number for the launch.
    launch: String,
    mask: String,
    shadow: String,
}

impl Body<'_, '_> {
    /// Text of an operation of a check; `None` if it has no result. `ty` is the result's type.
    pub(super) fn checks(
        &mut self,
        op: &Op,
        ty: Option<TypeId>,
    ) -> Result<Option<String>, LowerError> {
        let watch = self.watch()?;
        if let Op::Texels(op, args) = op {
            let params = match op {
                ImageOp::Fetch => "ptr, ptr, i64, i32, i32, i32",
                ImageOp::Sample => "ptr, ptr, i64, float, float, float",
                ImageOp::Write => "ptr, ptr, i32, i32, i32",
            };
            let function = format!("__tally_texels_{}", op.name());
            self.unit.declare("i64", &function, params);
            let args: Vec<String> = args.iter().map(|&arg| self.typed(arg)).collect();
            let (block, args) = (watch.block, args.join(", "));
            return Ok(Some(format!("call i64 @{function}(ptr {block}, {args})")));
        }
        match *op {
            Op::Shadow(at) => {
                let lanes = ty.map_or(1, |ty| self.unit.module.types.lanes(ty));
                let at = self.operand(at);
                let Watch { mask, shadow, .. } = watch;
                if lanes == 1 {
                    let number = self.def(&format!("ptrtoint ptr {at} to i64"));
                    let place = self.def(&format!("and i64 {number}, {mask}"));
                    return Ok(Some(format!("getelementptr i8, ptr {shadow}, i64 {place}")));
                }
                let vector = format!("<{lanes} x i64>");
                let number = self.def(&format!("ptrtoint <{lanes} x ptr> {at} to {vector}"));
                let one = self.def(&format!("insertelement {vector} poison, i64 {mask}, i32 0"));
                let mask = self.def(&format!(
                    "shufflevector {vector} {one}, {vector} poison, <{lanes} x i32> zeroinitializer"
                ));
                let place = self.def(&format!("and {vector} {number}, {mask}"));
                Ok(Some(format!("getelementptr i8, ptr {shadow}, {vector} {place}")))
            }
            Op::CheckWord(offset) => {
                let args = self.base(ARGS);
                let at = self.unit.watch.unwrap_or_default() + u64::from(offset);
                let at = self.def(&format!("getelementptr i8, ptr {args}, i64 {at}"));
                Ok(Some(format!("load i64, ptr {at}, align 8, !invariant.load !0")))
            }
            Op::Accessible(at, size) => {
                let (at, size) = (self.typed(at), self.typed(size));
                self.unit.declare("i64", "__tally_accessible", "ptr, ptr, i64");
                let block = watch.block;
                Ok(Some(format!("call i64 @__tally_accessible(ptr {block}, {at}, {size})")))
            }
            Op::Strings(args, bytes) => {
                let args = self.typed(args);
                self.unit.declare("i64", "__tally_strings", "ptr, ptr, i32");
                let block = watch.block;
                Ok(Some(format!("call i64 @__tally_strings(ptr {block}, {args}, i32 {bytes})")))
            }
            Op::CopyStates(to, from, size) => {
                let private = |this: &Self, operand| {
                    let ty = this.type_of(operand);
                    this.unit.module.types[ty] == Type::Pointer(AddressSpace::Private)
                };
                let name = match (private(self, to), private(self, from)) {
                    (false, false) => "__tally_copy_states",
                    (false, true) => "__tally_put_states",
                    (true, false) => "__tally_get_states",
                    (true, true) => "__tally_move_states",
                };
                let (to, from, size) = (self.typed(to), self.typed(from), self.typed(size));
                self.unit.declare("void", name, "ptr, ptr, ptr, i64");
                let block = watch.block;
                self.line(&format!("call void @{name}(ptr {block}, {to}, {from}, {size})"));
                Ok(None)
            }
            Op::Report { site, size, at, step, mistake, items } => {
                self.report(&watch, (site, size), (at, step), (mistake, items));
                Ok(None)
            }
            _ => Err(LowerError::Unsupported("an operation of a check".into())),
        }
    }

    /// Loads the values that checks need, once.
    fn watch(&mut self) -> Result<Watch, LowerError> {
        if let Some(watch) = &self.watch {
            return Ok(watch.clone());
        }
        let missing = || LowerError::Unsupported("a check in a kernel without its words".into());
        let words = self.unit.watch.ok_or_else(missing)?;
        let args = self.base(ARGS);
        let mut word = |ty: &str, base: &str, offset: u64| {
            let at = self.prelude_def(&format!("getelementptr i8, ptr {base}, i64 {offset}"));
            self.prelude_def(&format!("load {ty}, ptr {at}, align 8, !invariant.load !0"))
        };
        let block = word("ptr", &args, words + u64::from(hidden::WATCH));
        let launch = word("i64", &args, words + u64::from(hidden::LAUNCH));
        let mask = word("i64", &block, watch::MASK.into());
        let shadow = word("ptr", &block, watch::SHADOW.into());
        Ok(self.watch.insert(Watch { block, launch, mask, shadow }).clone())
    }

    /// Reports `mistake` of `items` at an address with a step.
    fn report(
        &mut self,
        watch: &Watch,
        (site, size): (u32, u32),
        (at, step): (Operand, i64),
        (mistake, items): (Operand, Option<Operand>),
    ) {
        let types = &self.unit.module.types;
        let several = types.lanes(self.type_of(mistake)) > 1;
        let apart = types.lanes(self.type_of(at)) > 1;
        let lanes = types.lanes(self.type_of(items.unwrap_or(mistake)));
        let some = match several {
            true => {
                let name = format!("llvm.vector.reduce.or.v{lanes}i1");
                self.unit.declare("i1", &name, &format!("<{lanes} x i1>"));
                let mistake = self.typed(mistake);
                self.def(&format!("call i1 @{name}({mistake})"))
            }
            false => self.operand(mistake),
        };
        let items = match (several, items) {
            (true, _) => self.operand(mistake),
            (false, Some(items)) => self.operand(items),
            (false, None) => "splat (i1 true)".into(),
        };
        let ty = self.value_type(self.type_of(at));
        let at = self.operand(at);
        let number = if apart { format!("<{lanes} x i64>") } else { "i64".into() };
        let at = match ty == number {
            true => at,
            false => self.def(&format!("ptrtoint {ty} {at} to {number}")),
        };
        let Watch { block, launch, .. } = watch;
        if access::is_one(size) {
            let name = access_helper(self.unit, lanes, apart);
            return self.line(&format!(
                "call void @{name}(ptr %ctx, i64 %lx, i64 %ly, i64 %lz, ptr {block}, i64 {launch}, i32 {site}, i32 {size}, <{lanes} x i1> {items}, {number} {at}, i64 {step})"
            ));
        }
        let name = helper(self.unit, lanes, apart);
        self.line(&format!(
            "call void @{name}(ptr %ctx, i64 %lx, i64 %ly, i64 %lz, ptr {block}, i64 {launch}, i32 {site}, i32 {size}, i1 {some}, <{lanes} x i1> {items}, {number} {at}, i64 {step})"
        ));
    }
}

/// Makes the group's local memory count as not written.
pub(super) fn forget_local(unit: &mut Unit<'_>) -> String {
    let words = unit.watch.unwrap_or_default();
    unit.declare("void", "__tally_forget", "ptr, ptr, i64");
    let mut text = String::new();
    let fields = [("block", "ptr", hidden::WATCH), ("bytes", "i64", hidden::LOCAL)];
    for (name, ty, offset) in fields {
        let at = words + u64::from(offset);
        text += &format!(
            "  %local.{name}.at = getelementptr i8, ptr %args, i64 {at}
  %local.{name} = load {ty}, ptr %local.{name}.at, align 8, !invariant.load !0
"
        );
    }
    text + "  call void @__tally_forget(ptr %local.block, ptr %local, i64 %local.bytes)\n"
}

/// Emits the function that tells accesses of `lanes` items, at addresses with a step or `apart`. Returns
/// its name.
fn access_helper(unit: &mut Unit<'_>, lanes: u32, apart: bool) -> String {
    let name = format!("{ACCESS}.{}{lanes}", if apart { "apart." } else { "" });
    if unit.helpers.contains_key(&name) {
        return name;
    }
    let shared = "ptr, i64, i64, i64, ptr, i64, i32, i32, i32, ";
    let given =
        "ptr %ctx, i64 %lx, i64 %ly, i64 %lz, ptr %block, i64 %launch, i32 %site, i32 %size";
    let (mask, widened) = match lanes {
        32 => ("%bits", String::new()),
        _ => ("%mask", format!("  %mask = zext i{lanes} %bits to i32\n")),
    };
    let (function, ty) = match apart {
        true => ("__tally_access_apart", format!("<{lanes} x i64>")),
        false => ("__tally_access", "i64".to_owned()),
    };
    let rest = if apart { "ptr" } else { "i64, i64" };
    unit.declare("void", function, &format!("{shared}{rest}"));
    let (place, given_at) = match apart {
        true => (
            format!("  %place = alloca {ty}, align 64\n  store {ty} %at, ptr %place, align 8\n"),
            "ptr %place",
        ),
        false => (String::new(), "i64 %at, i64 %step"),
    };
    let text = format!(
        "
define internal void @{name}({given}, <{lanes} x i1> %items, {ty} %at, i64 %step) alwaysinline #0 {{
entry:
{place}  %bits = bitcast <{lanes} x i1> %items to i{lanes}
{widened}  call void @{function}({given}, i32 {mask}, {given_at})
  ret void
}}
"
    );
    unit.helpers.insert(name.clone(), text);
    name
}

/// The entry function of a kernel that is looked at: it runs `inner` with a context of its own. (`inner`
/// must not be inlined, since it takes its context as constant.)
pub(super) fn follow_group(
    unit: &mut Unit<'_>,
    head: &str,
    inner: &str,
    subgroup_size: u32,
    flags: u32,
) -> String {
    let words = unit.watch.unwrap_or_default();
    unit.declare("void", "__tally_group", "ptr, ptr, ptr, i32, i32");
    let shift = subgroup_size.trailing_zeros();
    format!(
        "{head}  %own = alloca [{CHECKED} x i8], align 64
  %args.at = getelementptr i8, ptr %ctx, i64 8
  %args = load ptr, ptr %args.at, align 8
  %words = getelementptr i8, ptr %args, i64 {words}
  call void @__tally_group(ptr %own, ptr %ctx, ptr %words, i32 {shift}, i32 {flags})
  call void @{inner}(ptr %own)
  ret void
}}
"
    )
}

/// Emits the function that reports mistakes of `lanes` items, at addresses with a step or `apart`.
/// Returns its name.
fn helper(unit: &mut Unit<'_>, lanes: u32, apart: bool) -> String {
    let name = format!("{REPORT}.{}{lanes}", if apart { "apart." } else { "" });
    if unit.helpers.contains_key(&name) {
        return name;
    }
    let shared = "ptr, i64, i64, i64, ptr, i64, i32, i32, i32, ";
    let given =
        "ptr %ctx, i64 %lx, i64 %ly, i64 %lz, ptr %block, i64 %launch, i32 %site, i32 %size";
    let widened = match lanes {
        32 => String::new(),
        _ => format!("  %mask = zext i{lanes} %bits to i32\n"),
    };
    let mask = if lanes == 32 { "%bits" } else { "%mask" };
    let (ty, place, call) = if apart {
        unit.declare("void", "__tally_report_apart", &format!("{shared}ptr"));
        let ty = format!("<{lanes} x i64>");
        let place = format!("  %place = alloca {ty}, align 64\n");
        let call = format!(
            "  store {ty} %at, ptr %place, align 8
  call void @__tally_report_apart({given}, i32 {mask}, ptr %place) cold
"
        );
        (ty, place, call)
    } else {
        unit.declare("void", "__tally_report", &format!("{shared}i64, i64"));
        let call =
            format!("  call void @__tally_report({given}, i32 {mask}, i64 %at, i64 %step) cold\n");
        ("i64".to_owned(), String::new(), call)
    };
    let text = format!(
        "
define internal void @{name}({given}, i1 %some, <{lanes} x i1> %items, {ty} %at, i64 %step) alwaysinline #0 {{
entry:
{place}  br i1 %some, label %report, label %done, !prof !{{!\"branch_weights\", i32 1, i32 1048576}}
report:
  %bits = bitcast <{lanes} x i1> %items to i{lanes}
{widened}{call}  br label %done
done:
  ret void
}}
"
    );
    unit.helpers.insert(name.clone(), text);
    name
}
