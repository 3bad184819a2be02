// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debug information: OpenCL.DebugInfo.100, and NonSemantic.Shader.DebugInfo.100 and 200, which have the same
//! instructions for what is read here, with ids of constants in the place of numbers.
//!
//! Instructions of module scope are collected, and understood when a function refers to them: types through
//! its variables, and functions through the scopes of its instructions. What is wrong or unknown in them is
//! left out, since debug information has no meaning for a program.

use std::collections::HashMap;

use super::body::{Body, Val};
use super::builder::{Builder, Def};
use super::collected::{PlaceOf, Raw};
use super::error::Result;
use super::memory::plain_access;
use super::words::Instruction;
use crate::ir::{
    ConstKind, Encoding, FileId, Inlined, InlinedId, KeptValue, Loc, Member, Op, Operand,
    SourcePlace, SourceType, SourceTypeId, SourceVariable, Type,
};

/// Numbers of extended instructions.
mod number {
    pub const TYPE_BASIC: u32 = 2;
    pub const TYPE_POINTER: u32 = 3;
    pub const TYPE_QUALIFIER: u32 = 4;
    pub const TYPE_ARRAY: u32 = 5;
    pub const TYPE_VECTOR: u32 = 6;
    pub const TYPEDEF: u32 = 7;
    pub const TYPE_ENUM: u32 = 9;
    pub const TYPE_COMPOSITE: u32 = 10;
    pub const TYPE_MEMBER: u32 = 11;
    pub const TYPE_INHERITANCE: u32 = 12;
    pub const TYPE_TEMPLATE: u32 = 14;
    pub const FUNCTION: u32 = 20;
    pub const LEXICAL_BLOCK: u32 = 21;
    pub const LEXICAL_BLOCK_DISCRIMINATOR: u32 = 22;
    pub const SCOPE: u32 = 23;
    pub const NO_SCOPE: u32 = 24;
    pub const INLINED_AT: u32 = 25;
    pub const LOCAL_VARIABLE: u32 = 26;
    pub const DECLARE: u32 = 28;
    pub const VALUE: u32 = 29;
    pub const OPERATION: u32 = 30;
    pub const EXPRESSION: u32 = 31;
    pub const SOURCE: u32 = 35;
    pub const FUNCTION_DEFINITION: u32 = 101;
    pub const LINE: u32 = 103;
    pub const TYPE_SUBRANGE: u32 = 201;
    pub const NO_LINE: u32 = 104;
}

/// Operations of expressions.
mod operation {
    pub const DEREF: u64 = 0;
    pub const SWAP: u64 = 5;
    pub const XDEREF: u64 = 6;
    pub const STACK_VALUE: u64 = 7;
    pub const CONSTU: u64 = 8;
    pub const FRAGMENT: u64 = 9;
}

/// Types, scopes or inlined calls inside of each other that are followed.
const MAX_DEPTH: u32 = 64;

/// Collects an extended instruction of module scope.
pub fn collect(builder: &mut Builder<'_>, inst: &Instruction<'_>, literal: bool) -> Result<()> {
    let number = inst.arg(1)?;
    let operands = inst.rest().get(2..).unwrap_or_default().to_vec();
    let id = inst.result().unwrap_or_default();
    if number == number::SOURCE {
        builder.sources.insert(id, inst.arg(2)?);
    }
    let raw = Raw { number, literal, operands };
    if number == number::FUNCTION && literal {
        builder.debug.functions.insert(raw.arg(9), id);
    }
    builder.debug.raw.insert(id, raw);
    Ok(())
}

/// An extended instruction of a function.
pub fn extended(body: &mut Body<'_, '_>, inst: &Instruction<'_>, literal: bool) -> Result<()> {
    match inst.arg(1)? {
        number::LINE if !literal => {
            // Some modules name the file in place of the source.
            let source = inst.arg(2)?;
            let is_name = body.b.annotations.strings.contains_key(&source);
            let file = body.b.sources.get(&source).copied().or(is_name.then_some(source));
            // From line, to line, from column, to column.
            let (line, column) = (constant(body.b, inst.arg(3)?), constant(body.b, inst.arg(5)?));
            let place = file.zip(line);
            let place = place.map(|(file, line)| [file, narrow(line), narrow(column.unwrap_or(0))]);
            body.set_line(place);
        }
        number::NO_LINE if !literal => body.set_line(None),
        number::SCOPE => {
            let call = inst.arg(3).ok();
            let scope = inst.arg(2)?;
            body.inlined = call.and_then(|call| inlined(body.b, scope, call, 0));
            if body.b.debug.keeps_values
                && let Some((function, ..)) = function_of(body.b, scope)
            {
                body.kept.functions.entry(body.inlined).or_insert(function);
            }
        }
        number::NO_SCOPE => body.inlined = None,
        number::DECLARE => declare(body, inst.arg(2)?, inst.arg(3)?),
        number::VALUE if body.b.debug.keeps_values => {
            let indexed = inst.rest().len() > 5;
            let shape = Shape::of(body.b, inst.arg(4)?).filter(|_| !indexed);
            value(body, inst.arg(2)?, inst.arg(3)?, shape.unwrap_or(Shape::UNKNOWN));
        }
        number::FUNCTION_DEFINITION if !literal => {
            body.kept.functions.insert(None, inst.arg(2)?);
        }
        _ => {}
    }
    Ok(())
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// The value of a constant.
fn constant(builder: &Builder<'_>, id: u32) -> Option<u64> {
    match builder.defs.get(&id) {
        Some(&Def::Const(id, _)) => builder.module.const_bits(id),
        _ => None,
    }
}

impl Builder<'_> {
    fn raw(&self, id: u32, number: u32) -> Option<&Raw> {
        self.debug.raw.get(&id).filter(|raw| raw.number == number)
    }

    /// A number that is an operand.
    fn debug_number(&self, raw: &Raw, at: usize) -> u64 {
        match raw.literal {
            true => raw.arg(at).into(),
            false => constant(self, raw.arg(at)).unwrap_or(0),
        }
    }

    /// A number that is always the id of a constant.
    fn debug_constant(&self, raw: &Raw, at: usize) -> u64 {
        constant(self, raw.arg(at)).unwrap_or(0)
    }

    fn debug_text(&self, raw: &Raw, at: usize) -> String {
        self.annotations.strings.get(&raw.arg(at)).cloned().unwrap_or_default()
    }

    fn debug_file(&mut self, source: u32) -> Option<FileId> {
        let name = self.sources.get(&source).copied()?;
        self.file(name)
    }
}

/// A variable of the source is in memory at an address.
fn declare(body: &mut Body<'_, '_>, variable: u32, id: u32) {
    let Some(&(Val::Operand(Operand::Value(address)), _)) = body.values.get(&id) else { return };
    if body.f.variables.iter().any(|own| own.address == address) {
        show(body, variable, SourcePlace::Variable(address));
    } else if body.b.debug.keeps_values {
        value(body, variable, id, Shape { behind: true, ..Shape::WHOLE });
    }
}

/// Adds a variable of the source; its number among those of the function.
fn show(body: &mut Body<'_, '_>, variable: u32, place: SourcePlace) -> Option<usize> {
    let raw = body.b.raw(variable, number::LOCAL_VARIABLE)?;
    let (name, of) = (body.b.debug_text(raw, 0), raw.arg(1));
    let line = narrow(body.b.debug_number(raw, 3));
    let parameter = raw.operands.get(7).map(|&number| match raw.literal {
        true => number,
        // Some modules have the number itself here.
        false => constant(body.b, number).map_or(number, narrow),
    });
    let ty = source_type(body.b, of, 0);
    body.kept.seen.insert((variable, body.inlined));
    body.f.shown.push(SourceVariable { place, name, ty, line, parameter, inlined: body.inlined });
    Some(body.f.shown.len() - 1)
}

/// How a value stands for a variable.
#[derive(Clone, Copy)]
struct Shape {
    /// It does not.
    unknown: bool,
    /// It is the variable's address.
    behind: bool,
    /// It is this part of the variable: where it begins, and its size, in bits.
    part: Option<(u64, u64)>,
}

impl Shape {
    const WHOLE: Self = Self { unknown: false, behind: false, part: None };
    const UNKNOWN: Self = Self { unknown: true, ..Self::WHOLE };

    /// What an expression says, if that is understood.
    fn of(builder: &Builder<'_>, expression: u32) -> Option<Self> {
        let (mut shape, mut space) = (Self::WHOLE, Vec::new());
        for &id in &builder.raw(expression, number::EXPRESSION)?.operands {
            let raw = builder.raw(id, number::OPERATION)?;
            let number = builder.debug_number(raw, 0);
            match number {
                // Together they name an address space, all of which are one.
                operation::CONSTU | operation::SWAP if !shape.unknown => space.push(number),
                operation::XDEREF if space == [operation::CONSTU, operation::SWAP] => space.clear(),
                operation::DEREF if !shape.behind => shape.behind = true,
                operation::STACK_VALUE => {}
                operation::FRAGMENT => {
                    shape.part = Some((builder.debug_number(raw, 1), builder.debug_number(raw, 2)));
                }
                // The part is known all the same.
                _ => shape.unknown = true,
            }
        }
        shape.unknown |= !space.is_empty();
        Some(shape)
    }
}

/// From here on a variable of the source has a value, or none that is known. A debugger finds it in a private
/// variable.
fn value(body: &mut Body<'_, '_>, variable: u32, id: u32, shape: Shape) {
    let key = (variable, body.inlined);
    let shown = match body.kept.shown.get(&key) {
        Some(&known) => known,
        None => {
            let Some(new) = show(body, variable, SourcePlace::Kept(Vec::new())) else { return };
            body.kept.shown.insert(key, new);
            new
        }
    };
    let known = known_value(body, shown, id, shape);
    let ty = match known {
        Some(known) => body.type_of(known),
        None => body.b.module.types.int(8),
    };
    let behind = shape.behind && known.is_some();
    let of = PlaceOf { shown, part: shape.part, ty, behind };
    let address = match body.kept.places.get(&of) {
        Some(&address) => address,
        None => {
            let Ok(address) = body.new_variable(ty, 1, None) else { return };
            body.kept.places.insert(of, address);
            if let (SourcePlace::Kept(places), Operand::Value(address)) =
                (&mut body.f.shown[shown].place, address)
            {
                places.push(KeptValue { address, behind, part: shape.part });
            }
            address
        }
    };
    let stored = match known {
        Some(known) => known,
        None => Operand::Const(body.b.module.constant(ty, ConstKind::Undef)),
    };
    body.kept.pending.push((address, stored, body.inlined));
}

/// The value that a variable has, if it can be shown.
fn known_value(body: &Body<'_, '_>, shown: usize, id: u32, shape: Shape) -> Option<Operand> {
    let value = match (body.values.get(&id), body.b.defs.get(&id)) {
        (Some(&(Val::Operand(value), _)), _) => value,
        (None, Some(&Def::Const(constant, _))) => Operand::Const(constant),
        _ => return None,
    };
    let (module, ty) = (&body.b.module, body.type_of(value));
    let undefined = |id| {
        matches!(module.constants[id].kind, ConstKind::Undef) || module.types.layout(ty).is_none()
    };
    let is_pointer = matches!(module.types[ty], Type::Pointer(_));
    let fits = match module.types[ty] {
        Type::Bool | Type::Int(_) | Type::Float(_) | Type::Vector(..) | Type::Pointer(_) => {
            let (_, wanted) = shape.part.unwrap_or((0, module.debug.bits(body.f.shown[shown].ty)));
            module.types.size(ty) * 8 >= wanted
        }
        _ => false,
    };
    let good = if shape.behind { is_pointer } else { fits };
    let defined = match value {
        Operand::Const(id) => !undefined(id),
        Operand::Value(_) => true,
    };
    Some(value).filter(|_| good && defined && !shape.unknown)
}

/// Emits the stores that wait. They belong to what is in front of them: behind it, a debugger shows the values.
pub fn store_values(body: &mut Body<'_, '_>) {
    let before = body.insts.iter().rev().find(|inst| inst.loc.line != 0).map(|inst| inst.loc);
    let start = if body.in_entry() { body.f.loc } else { Loc::default() };
    for (address, value, inlined) in std::mem::take(&mut body.kept.pending) {
        body.loc = before.unwrap_or(Loc { inlined, ..start });
        let align = body.b.module.types.align(body.type_of(value));
        body.emit_void(Op::Store(address, value, plain_access(align)));
    }
}

/// Adds the variables of a function's source that nothing in it describes, for a debugger: the front end has
/// optimised them away.
pub fn name_the_rest(body: &mut Body<'_, '_>, id: u32) {
    if !body.b.debug.keeps_values {
        return;
    }
    if let Some(&described) = body.b.debug.functions.get(&id) {
        body.kept.functions.insert(None, described);
    }
    if body.b.debug.locals.is_none() {
        body.b.debug.locals = Some(locals(body.b));
    }
    for (inlined, function) in std::mem::take(&mut body.kept.functions) {
        let all = body.b.debug.locals.as_ref().and_then(|all| all.get(&function));
        body.inlined = inlined;
        for variable in all.cloned().unwrap_or_default() {
            if !body.kept.seen.contains(&(variable, inlined)) {
                show(body, variable, SourcePlace::Kept(Vec::new()));
            }
        }
    }
}

/// The variables of each function that is described.
fn locals(builder: &Builder<'_>) -> HashMap<u32, Vec<u32>> {
    let mut found: HashMap<u32, Vec<u32>> = HashMap::new();
    for (&id, raw) in &builder.debug.raw {
        if raw.number == number::LOCAL_VARIABLE
            && let Some((function, ..)) = function_of(builder, raw.arg(5))
        {
            found.entry(function).or_default().push(id);
        }
    }
    found.values_mut().for_each(|ids| ids.sort_unstable());
    found
}

/// The number of a type.
fn source_type(builder: &mut Builder<'_>, id: u32, depth: u32) -> SourceTypeId {
    if let Some(&known) = builder.debug.types.get(&id) {
        return known;
    }
    let new = builder.module.debug.types.push(SourceType::Unknown);
    builder.debug.types.insert(id, new);
    if depth < MAX_DEPTH
        && let Some(ty) = understood(builder, id, depth)
        && !names_itself(builder, &ty, new)
    {
        builder.module.debug.types[new] = ty;
    }
    new
}

fn understood(builder: &mut Builder<'_>, id: u32, depth: u32) -> Option<SourceType> {
    let raw = builder.debug.raw.remove(&id)?;
    let ty = of_raw(builder, &raw, depth);
    builder.debug.raw.insert(id, raw);
    ty
}

fn of_raw(builder: &mut Builder<'_>, raw: &Raw, depth: u32) -> Option<SourceType> {
    let inner = |builder: &mut Builder<'_>, id| source_type(builder, id, depth + 1);
    Some(match raw.number {
        number::TYPE_BASIC => SourceType::Basic {
            name: builder.debug_text(raw, 0),
            bits: builder.debug_constant(raw, 1),
            encoding: match builder.debug_number(raw, 2) {
                2 => Encoding::Bool,
                3 => Encoding::Float,
                4 => Encoding::Signed,
                5 => Encoding::SignedChar,
                7 => Encoding::UnsignedChar,
                _ => Encoding::Unsigned,
            },
        },
        number::TYPE_POINTER => SourceType::Pointer(inner(builder, raw.arg(0))),
        number::TYPE_QUALIFIER | number::TYPE_TEMPLATE => {
            SourceType::Named(String::new(), inner(builder, raw.arg(0)))
        }
        number::TYPEDEF => {
            SourceType::Named(builder.debug_text(raw, 0), inner(builder, raw.arg(1)))
        }
        number::TYPE_ARRAY => {
            let counts = (1..raw.operands.len()).map(|at| builder.debug_constant(raw, at));
            // The kind of the elements' numbers may follow: it is no constant.
            let mut counts: Vec<u64> = counts.filter(|&count| count != 0).collect();
            // NonSemantic.Shader.DebugInfo.200 has ranges in their place.
            let ranges = raw.operands.iter().skip(1);
            let ranges = ranges.filter_map(|&id| builder.raw(id, number::TYPE_SUBRANGE));
            counts.extend(ranges.map(|range| builder.debug_constant(range, 2)));
            SourceType::Array(inner(builder, raw.arg(0)), counts)
        }
        number::TYPE_VECTOR => {
            SourceType::Vector(inner(builder, raw.arg(0)), builder.debug_number(raw, 1))
        }
        number::TYPE_ENUM => {
            let value = |pair: &[u32]| {
                let name = builder.annotations.strings.get(&pair[1])?.clone();
                Some((name, constant(builder, pair[0])? as i64))
            };
            let pairs = raw.operands.get(8..).unwrap_or_default().chunks_exact(2);
            SourceType::Enumeration {
                name: builder.debug_text(raw, 0),
                bits: builder.debug_constant(raw, 6),
                values: pairs.filter_map(value).collect(),
            }
        }
        number::TYPE_COMPOSITE => {
            let members = raw.operands.get(9..).unwrap_or_default().to_vec();
            let members = members.into_iter().filter_map(|id| member(builder, id, depth));
            SourceType::Composite {
                members: members.collect(),
                name: builder.debug_text(raw, 0),
                bits: builder.debug_constant(raw, 7),
                is_union: builder.debug_number(raw, 1) == 2,
            }
        }
        _ => return None,
    })
}

/// A member of a structure, or one that stands for a base class.
fn member(builder: &mut Builder<'_>, id: u32, depth: u32) -> Option<Member> {
    let raw = builder.debug.raw.get(&id)?;
    // OpenCL's members name their structure, and so do its base classes.
    let parent = usize::from(raw.literal);
    let (name, of, at) = match raw.number {
        number::TYPE_MEMBER => (builder.debug_text(raw, 0), raw.arg(1), 5 + parent),
        number::TYPE_INHERITANCE => {
            let base = raw.arg(parent.min(1));
            let base_name = builder.debug.raw.get(&base);
            let name = base_name.map_or(String::new(), |base| builder.debug_text(base, 0));
            (name, base, 1 + parent)
        }
        _ => return None,
    };
    let (offset, bits) = (builder.debug_constant(raw, at), builder.debug_constant(raw, at + 1));
    Some(Member { name, ty: source_type(builder, of, depth + 1), offset, bits })
}

/// Whether a name stands for itself: nothing would end a search for what it means.
fn names_itself(builder: &Builder<'_>, ty: &SourceType, own: SourceTypeId) -> bool {
    let mut next = ty;
    for _ in 0..MAX_DEPTH {
        match *next {
            SourceType::Named(_, of) | SourceType::Array(of, _) | SourceType::Vector(of, _) => {
                if of == own {
                    return true;
                }
                next = &builder.module.debug.types[of];
            }
            _ => return false,
        }
    }
    true
}

/// The function that a scope is in: name, source and line.
fn function_of(builder: &Builder<'_>, mut scope: u32) -> Option<(u32, String, u32, u32)> {
    for _ in 0..MAX_DEPTH {
        let raw = builder.debug.raw.get(&scope)?;
        scope = match raw.number {
            number::FUNCTION => {
                let line = narrow(builder.debug_number(raw, 3));
                return Some((scope, builder.debug_text(raw, 0), raw.arg(2), line));
            }
            number::LEXICAL_BLOCK => raw.arg(3),
            number::LEXICAL_BLOCK_DISCRIMINATOR => raw.arg(2),
            _ => return None,
        };
    }
    None
}

/// The inlined call of the function that a scope is in, at a place.
fn inlined(builder: &mut Builder<'_>, scope: u32, call: u32, depth: u32) -> Option<InlinedId> {
    let (function, name, source, line) = function_of(builder, scope)?;
    if let Some(&known) = builder.debug.inlined.get(&(function, call)) {
        return Some(known);
    }
    let raw = builder.raw(call, number::INLINED_AT).filter(|_| depth < MAX_DEPTH)?;
    // NonSemantic.Shader.DebugInfo.200 has a column behind the line.
    let column = usize::from(!raw.literal && constant(builder, raw.arg(1)).is_some());
    let (at, scope) = (narrow(builder.debug_number(raw, 0)), raw.arg(1 + column));
    let outer = raw.operands.get(2 + column).copied();
    let caller = match outer {
        Some(outer) => Some(inlined(builder, scope, outer, depth + 1)?),
        None => None,
    };
    let file = builder.debug_file(source);
    let new = builder.module.debug.inlined.push(Inlined { name, file, line, call: at, caller });
    builder.debug.inlined.insert((function, call), new);
    Some(new)
}
