// SPDX-License-Identifier: MIT OR Apache-2.0
//! SPIR-V's outer form: a header of five words, then instructions, each with its length.
//!
//! This file does not know what an instruction means. The grammar tables only give the minimum number
//! of words of an instruction, and whether it defines an id.

use std::sync::OnceLock;

use rspirv::grammar::{INSTRUCTION_TABLE, OperandKind, OperandQuantifier};
use rspirv::spirv::{self, Op};

use super::error::{Error, Result};

/// Words in the header.
pub const HEADER_WORDS: usize = 5;

/// One instruction of the binary, borrowed.
#[derive(Clone, Copy)]
pub struct Instruction<'a> {
    /// Its grammar.
    pub grammar: &'static Grammar,
    /// The words behind the first.
    pub operands: &'a [u32],
    /// The offset at which it begins in the module, in words.
    pub word: usize,
}

/// The grammar of an opcode.
pub struct Grammar {
    /// The opcode; `Nop` for those of [`intel`].
    pub op: Op,
    /// The opcode as a number.
    pub number: u32,
    /// The name with its `Op`.
    pub name: String,
    /// Whether the first operand is a result type.
    pub has_type: bool,
    /// Whether there is a result id (behind the result type, if any).
    pub has_result: bool,
    /// The minimum number of words, without the first.
    min_words: usize,
    /// The maximum number of words, if that is fixed.
    max_words: Option<usize>,
}

impl Instruction<'_> {
    /// The opcode.
    pub fn op(&self) -> Op {
        self.grammar.op
    }

    /// The opcode as a number, also of those that the tables do not have ([`intel`]).
    pub fn opcode(&self) -> u32 {
        self.grammar.number
    }

    /// The id of the result type, if there is one.
    pub fn result_type(&self) -> Option<u32> {
        self.grammar.has_type.then(|| self.operands[0])
    }

    /// The id that is defined, if there is one.
    pub fn result(&self) -> Option<u32> {
        self.grammar.has_result.then(|| self.operands[usize::from(self.grammar.has_type)])
    }

    /// The words behind the result type and result id.
    pub fn rest(&self) -> &[u32] {
        &self.operands[usize::from(self.grammar.has_type) + usize::from(self.grammar.has_result)..]
    }

    /// Word `index` of [`Instruction::rest`].
    pub fn arg(&self, index: usize) -> Result<u32> {
        let args = self.rest();
        args.get(index).copied().ok_or_else(|| {
            self.error(format!("has {} operands, operand {} is missing", args.len(), index + 1))
        })
    }

    /// The literal string that begins at word `index` of [`Instruction::rest`], and the number of
    /// words it takes.
    pub fn string(&self, index: usize) -> Result<(String, usize)> {
        let mut bytes = Vec::new();
        for (i, word) in self.rest().get(index..).unwrap_or_default().iter().enumerate() {
            for byte in word.to_le_bytes() {
                if byte == 0 {
                    let text = String::from_utf8(bytes)
                        .map_err(|_| self.error("has a string that is not UTF-8".into()))?;
                    return Ok((text, i + 1));
                }
                bytes.push(byte);
            }
        }
        Err(self.error("has a string without an end".into()))
    }

    /// Checks the number of operands.
    pub fn check_length(&self) -> Result<()> {
        let Grammar { min_words, max_words, .. } = *self.grammar;
        let words = self.operands.len();
        if words < min_words {
            return Err(self.error(format!("has {words} words of operands, needs {min_words}")));
        }
        match max_words {
            // LLVM 22 repeats the type of a null event.
            Some(2)
                if self.op() == Op::ConstantNull
                    && self.operands[2..].iter().all(|word| *word == self.operands[0]) =>
            {
                Ok(())
            }
            Some(max) if words > max => {
                Err(self.error(format!("has {words} words of operands, takes {max}")))
            }
            _ => Ok(()),
        }
    }

    /// An error at this instruction.
    pub fn error(&self, message: String) -> Error {
        Error {
            word: self.word,
            opcode: Some(self.grammar.name.clone()),
            place: None,
            source: None,
            message,
        }
    }
}

fn grammar_table() -> &'static Vec<Option<Grammar>> {
    static TABLE: OnceLock<Vec<Option<Grammar>>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table = Vec::new();
        for entry in INSTRUCTION_TABLE.iter() {
            let index = entry.opcode as usize;
            if table.len() <= index {
                table.resize_with(index + 1, || None);
            }
            // Two entries may share a number if an extension's name is still in use; the first wins.
            table[index].get_or_insert_with(|| grammar_of(entry));
        }
        for (number, name, has_type, has_result, min_words) in intel::OPCODES {
            let index = number as usize;
            if table.len() <= index {
                table.resize_with(index + 1, || None);
            }
            table[index].get_or_insert_with(|| Grammar {
                op: Op::Nop,
                number,
                name: format!("Op{name}"),
                has_type,
                has_result,
                min_words,
                max_words: None,
            });
        }
        table
    })
}

/// Opcodes of Intel's extensions that the tables do not have.
pub mod intel {
    /// A load of a part of a larger matrix, which may reach beyond it.
    pub const MATRIX_LOAD_CHECKED: u32 = 6193;
    /// A store of one.
    pub const MATRIX_STORE_CHECKED: u32 = 6194;
    /// A matrix of one number where it is inside of a larger one.
    pub const MATRIX_CONSTRUCT_CHECKED: u32 = 6195;
    /// Row and column of a component of a matrix.
    pub const MATRIX_COORDINATES: u32 = 6440;
    /// A prefetch of a part of a matrix.
    pub const MATRIX_PREFETCH: u32 = 6449;

    /// Number, name, whether there is a result type, and a result, and the number of words at least.
    pub(super) const OPCODES: [(u32, &str, bool, bool, usize); 8] = [
        (MATRIX_LOAD_CHECKED, "CooperativeMatrixLoadCheckedINTEL", true, true, 8),
        (MATRIX_STORE_CHECKED, "CooperativeMatrixStoreCheckedINTEL", false, false, 7),
        (MATRIX_CONSTRUCT_CHECKED, "CooperativeMatrixConstructCheckedINTEL", true, true, 7),
        (6239, "CooperativeMatrixLoadOffsetINTEL", true, true, 6),
        (6240, "CooperativeMatrixStoreOffsetINTEL", false, false, 5),
        (MATRIX_COORDINATES, "CooperativeMatrixGetElementCoordINTEL", true, true, 4),
        (6448, "CooperativeMatrixApplyFunctionINTEL", true, true, 4),
        (MATRIX_PREFETCH, "CooperativeMatrixPrefetchINTEL", false, false, 7),
    ];
}

/// The grammar of an opcode; `None` if it does not exist.
pub fn grammar(opcode: u32) -> Option<&'static Grammar> {
    grammar_table().get(opcode as usize)?.as_ref()
}

fn grammar_of(entry: &'static rspirv::grammar::Instruction<'static>) -> Grammar {
    let is = |index: usize, kind| entry.operands.get(index).is_some_and(|o| o.kind == kind);
    let has_type = is(0, OperandKind::IdResultType);
    let one_word = |kind: &OperandKind| {
        matches!(
            kind,
            OperandKind::IdResultType
                | OperandKind::IdResult
                | OperandKind::IdRef
                | OperandKind::IdScope
                | OperandKind::IdMemorySemantics
        )
    };
    let required = |o: &&rspirv::grammar::LogicalOperand| o.quantifier == OperandQuantifier::One;
    let fixed = entry
        .operands
        .iter()
        .all(|o| o.quantifier != OperandQuantifier::ZeroOrMore && one_word(&o.kind));
    Grammar {
        op: entry.opcode,
        number: entry.opcode as u32,
        name: format!("Op{}", entry.opname),
        has_type,
        has_result: is(usize::from(has_type), OperandKind::IdResult),
        min_words: entry.operands.iter().filter(required).count(),
        // This one may have memory operands since revision 3 of its extension, which the tables do not have.
        max_words: (fixed && entry.opcode != Op::UntypedPrefetchKHR)
            .then_some(entry.operands.len()),
    }
}

/// A module as host-endian words.
pub struct Binary {
    words: Vec<u32>,
    /// One more than the largest id.
    pub bound: u32,
}

impl Binary {
    /// Checks the header and brings the words into the host's byte order.
    pub fn new(bytes: &[u8]) -> Result<Self> {
        let header = |word, message: String| Error {
            word,
            opcode: None,
            place: None,
            source: None,
            message,
        };
        if !bytes.len().is_multiple_of(4) || bytes.len() < HEADER_WORDS * 4 {
            return Err(header(
                bytes.len() / 4,
                format!(
                    "a SPIR-V module is at least 5 words of 4 bytes, this one has {} bytes",
                    bytes.len()
                ),
            ));
        }
        let mut words: Vec<u32> =
            bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        if words[0] == spirv::MAGIC_NUMBER.swap_bytes() {
            words.iter_mut().for_each(|word| *word = word.swap_bytes());
        }
        if words[0] != spirv::MAGIC_NUMBER {
            return Err(header(0, format!("{:#010x} is not SPIR-V's magic number", words[0])));
        }
        let (major, minor) = ((words[1] >> 16) & 0xff, (words[1] >> 8) & 0xff);
        if major != 1 || minor > 6 {
            return Err(header(1, format!("SPIR-V {major}.{minor} is not one of 1.0 to 1.6")));
        }
        let bound = words[3];
        if bound == 0 {
            return Err(header(3, "the bound of ids is 0".into()));
        }
        Ok(Self { words, bound })
    }

    /// All instructions. Fails at the first whose length or opcode is impossible.
    pub fn instructions(&self) -> Result<Vec<Instruction<'_>>> {
        let mut instructions = Vec::new();
        let mut word = HEADER_WORDS;
        while word < self.words.len() {
            let first = self.words[word];
            let (length, opcode) = ((first >> 16) as usize, first & 0xffff);
            let grammar = grammar(opcode);
            let error = |message| Error {
                word,
                opcode: Some(
                    grammar.map_or_else(|| format!("opcode {opcode}"), |g| g.name.clone()),
                ),
                place: None,
                source: None,
                message,
            };
            if length == 0 || word + length > self.words.len() {
                let left = self.words.len() - word;
                return Err(error(format!("says {length} words long, {left} are left")));
            }
            let Some(grammar) = grammar else {
                return Err(error("is not an opcode of SPIR-V".into()));
            };
            let operands = &self.words[word + 1..word + length];
            let inst = Instruction { grammar, operands, word };
            inst.check_length()?;
            instructions.push(inst);
            word += length;
        }
        Ok(instructions)
    }
}
