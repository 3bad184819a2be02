// SPDX-License-Identifier: MIT OR Apache-2.0
//! A small assembler of SPIR-V, for instructions that the packaged one is too old for. It takes the same text;
//! enumerants that few instructions have are numbers, and so are floats, by their bits.

use std::collections::HashMap;
use std::str::FromStr;

use rspirv::grammar::{INSTRUCTION_TABLE, OperandKind};
use rspirv::spirv;

/// Instructions of Intel that the tables do not have: name, opcode, whether there is a result type.
const MORE: [(&str, u32, bool); 6] = [
    ("CooperativeMatrixLoadCheckedINTEL", 6193, true),
    ("CooperativeMatrixStoreCheckedINTEL", 6194, false),
    ("CooperativeMatrixConstructCheckedINTEL", 6195, true),
    ("CooperativeMatrixGetElementCoordINTEL", 6440, true),
    ("CooperativeMatrixApplyFunctionINTEL", 6448, true),
    ("CooperativeMatrixPrefetchINTEL", 6449, false),
];

/// The module of a text.
pub fn assemble(text: &str) -> Vec<u8> {
    let mut ids: HashMap<String, u32> = HashMap::new();
    // The width of each type of integers or floats.
    let mut widths: HashMap<u32, u32> = HashMap::new();
    let mut words = vec![spirv::MAGIC_NUMBER, 0x1_0400, 0, 0, 0];
    for line in text.lines() {
        let tokens = tokens(line);
        let (result, rest) = match tokens.as_slice() {
            [] => continue,
            [result, equals, rest @ ..] if equals == "=" => (Some(result.as_str()), rest),
            rest => (None, rest),
        };
        let name = rest[0].strip_prefix("Op").unwrap_or_else(|| panic!("no instruction: {line}"));
        let entry = INSTRUCTION_TABLE.iter().find(|entry| entry.opname == name);
        let (opcode, has_type) = match entry {
            Some(entry) => {
                let first = entry.operands.first().map(|operand| operand.kind);
                (entry.opcode as u32, first == Some(OperandKind::IdResultType))
            }
            None => {
                let more = MORE.iter().find(|(more, ..)| *more == name);
                more.map(|&(_, opcode, has_type)| (opcode, has_type))
                    .unwrap_or_else(|| panic!("no such instruction: {line}"))
            }
        };
        let mut id = |name: &str| {
            let next = ids.len() as u32 + 1;
            *ids.entry(name.to_owned()).or_insert(next)
        };
        let mut operands = Vec::new();
        let mut arguments = rest[1..].iter();
        if has_type {
            operands.push(id(arguments.next().expect("a result type")));
        }
        operands.extend(result.map(&mut id));
        for (index, token) in arguments.enumerate() {
            if token.starts_with('%') {
                operands.push(id(token));
            } else if let Some(text) = token.strip_prefix('"') {
                let mut bytes = text.trim_end_matches('"').as_bytes().to_vec();
                bytes.resize((bytes.len() + 4) / 4 * 4, 0);
                let word = |four: &[u8]| u32::from_le_bytes([four[0], four[1], four[2], four[3]]);
                operands.extend(bytes.chunks(4).map(word));
            } else if let Some(number) = number(token) {
                operands.push(number as u32);
                if matches!(name, "Constant" | "SpecConstant")
                    && widths.get(&operands[0]).is_some_and(|&bits| bits > 32)
                {
                    operands.push((number >> 32) as u32);
                }
            } else {
                let known = enumerant(name, index, token);
                operands.push(known.unwrap_or_else(|| panic!("no such name {token}: {line}")));
            }
        }
        if matches!(name, "TypeInt" | "TypeFloat") {
            widths.insert(operands[0], operands[1]);
        }
        words.push((operands.len() as u32 + 1) << 16 | opcode);
        words.extend(operands);
    }
    words[3] = ids.len() as u32 + 1;
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The words of a line, strings with their quotes.
fn tokens(line: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    for (index, part) in line.split(';').next().unwrap_or("").split('"').enumerate() {
        match index % 2 {
            0 => tokens.extend(part.split_whitespace().map(str::to_owned)),
            _ => tokens.push(format!("\"{part}\"")),
        }
    }
    tokens
}

fn number(token: &str) -> Option<i64> {
    match token.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None => token.parse().ok(),
    }
}

fn enumerant(op: &str, index: usize, name: &str) -> Option<u32> {
    let class = |name: &str| spirv::StorageClass::from_str(name).ok().map(|it| it as u32);
    match (op, index) {
        ("Capability", _) => spirv::Capability::from_str(name).ok().map(|it| it as u32),
        ("MemoryModel", 0) => spirv::AddressingModel::from_str(name).ok().map(|it| it as u32),
        ("MemoryModel", _) => spirv::MemoryModel::from_str(name).ok().map(|it| it as u32),
        ("EntryPoint", _) => spirv::ExecutionModel::from_str(name).ok().map(|it| it as u32),
        ("ExecutionMode", _) => spirv::ExecutionMode::from_str(name).ok().map(|it| it as u32),
        ("Decorate", 1) => spirv::Decoration::from_str(name).ok().map(|it| it as u32),
        ("Decorate", _) => spirv::BuiltIn::from_str(name).ok().map(|it| it as u32),
        ("TypePointer" | "Variable" | "TypeUntypedPointerKHR" | "UntypedVariableKHR", _) => {
            class(name)
        }
        ("Function", _) if name == "None" => Some(0),
        _ => None,
    }
}
