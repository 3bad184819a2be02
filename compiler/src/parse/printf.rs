// SPDX-License-Identifier: MIT OR Apache-2.0
//! `printf` of OpenCL.std.
//!
//! The arguments are written to a private variable, each with its type, and one operation of the IR
//! prints from there. So every later stage sees ordinary stores and an operation on memory. All
//! calls of a function use one variable.

use tally_compiler_protocol::printf::{self, Kind, Piece, argument_header};

use super::body::{Body, PrintfArguments};
use super::error::Result;
use super::memory::plain_access;
use super::words::Instruction;
use crate::ir::{AddressSpace, ConstKind, Module, Op, Operand, Type};

/// Bytes of the word before an argument's value.
const HEADER: u64 = 8;

/// Translates a call whose operands begin with the format, at `first`.
pub fn translate(body: &mut Body<'_, '_>, inst: &Instruction<'_>, first: usize) -> Result<()> {
    let i64 = body.b.module.types.int(64);
    let format = body.arg(inst, first)?;
    let letters = constant_string(&body.b.module, format).map(|text| letters(&text));
    let mut parts = Vec::new();
    let mut bytes = 0;
    for (i, &id) in inst.rest()[first + 1..].iter().enumerate() {
        let (value, type_id) = (body.operand(inst, id)?, body.value(inst, id)?.1);
        let ty = body.type_of(value);
        let types = &body.b.module.types;
        let kind = match types[types.element(ty)] {
            Type::Int(_) => Kind::Int,
            Type::Float(_) => Kind::Float,
            Type::Pointer(space) if types.lanes(ty) == 1 => {
                // If the format is unknown, a constant string counts as a string argument.
                let string = match &letters {
                    Some(letters) => letters.get(i) == Some(&b's'),
                    None => {
                        space == AddressSpace::Constant
                            && match body.known_pointee(inst, type_id)? {
                                Some(pointee) => types[pointee] == Type::Int(8),
                                None => points_to_bytes(&body.b.module, value),
                            }
                    }
                };
                if string { Kind::String } else { Kind::Pointer }
            }
            _ => {
                let what = format!("printf of an argument of type {}", types.text(ty));
                return body.unsupported(inst, &what);
            }
        };
        let types = &body.b.module.types;
        let (width, lanes) = (types.scalar_bits(ty) / 8, types.lanes(ty));
        let header = argument_header(kind, width as u8, lanes as u8, width * lanes);
        parts.push((bytes, header, value));
        bytes += HEADER + u64::from(width * lanes).next_multiple_of(8);
    }
    let variable = arguments(body, inst, bytes)?;
    for (at, header, value) in parts {
        let header = body.int(i64, header);
        for (offset, value) in [(at, header), (at + HEADER, value)] {
            let place = match offset {
                0 => variable,
                offset => body.address(variable, offset as i64, Vec::new(), true),
            };
            body.emit_void(Op::Store(place, value, plain_access(8)));
        }
    }
    let i32 = body.b.module.types.int(32);
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    let result = body.emit(i32, Op::Printf(format, variable, bytes));
    if body.result_type(inst)? != i32 {
        return Err(inst.error("gives another type than a 32-bit integer".into()));
    }
    body.set_result(inst, result)
}

/// The variable, with room for `bytes` bytes.
fn arguments(body: &mut Body<'_, '_>, inst: &Instruction<'_>, bytes: u64) -> Result<Operand> {
    let i64 = body.b.module.types.int(64);
    let words = (bytes / 8).max(1);
    let ty = body.b.module.types.intern(Type::Array(i64, words));
    let ty = ty.ok_or_else(|| inst.error("has too many arguments".into()))?;
    let Some(PrintfArguments { index, address }) = body.printf_arguments else {
        let address = body.new_variable(ty, 8, None)?;
        let index = body.f.variables.len() - 1;
        body.printf_arguments = Some(PrintfArguments { index, address });
        return Ok(address);
    };
    let variable = &mut body.f.variables[index];
    if variable.size < 8 * words {
        (variable.ty, variable.size) = (ty, 8 * words);
    }
    Ok(address)
}

/// The bytes from a constant address on; `None` if the program may select one of several.
fn constant_string(module: &Module, operand: Operand) -> Option<Vec<u8>> {
    let Operand::Const(id) = operand else { return None };
    let ConstKind::Address(global, offset) = module.constants[id].kind else { return None };
    let constant = &module.globals[global];
    if constant.imported || constant.space != AddressSpace::Constant {
        return None;
    }
    let mut bytes = module.global_image(global).bytes;
    let start = usize::try_from(offset).ok().filter(|&start| start <= bytes.len())?;
    Some(bytes.split_off(start))
}

/// Whether a constant address is one within an array of bytes.
fn points_to_bytes(module: &Module, operand: Operand) -> bool {
    let Operand::Const(id) = operand else { return false };
    let ConstKind::Address(global, _) = module.constants[id].kind else { return false };
    match module.types[module.globals[global].ty] {
        Type::Array(element, _) => module.types[element] == Type::Int(8),
        _ => false,
    }
}

/// The letter of the conversion that takes each argument.
fn letters(format: &[u8]) -> Vec<u8> {
    let mut letters = Vec::new();
    for piece in printf::pieces(format) {
        if let Piece::Conversion(conversion, _) = piece {
            letters.resize(letters.len() + conversion.arguments() - 1, b'*');
            letters.push(conversion.letter);
        }
    }
    letters
}
