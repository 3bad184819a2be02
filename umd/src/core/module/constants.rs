// SPDX-License-Identifier: MIT OR Apache-2.0
//! Specialization constants: the width of each one.
//!
//! ze_module_constants_t has pointers without sizes. Reading more bytes than the constant has could run
//! over the end of the caller's memory, so the module is scanned first. The compiler validates the
//! module; this scan only has to survive any input.

use std::collections::HashMap;

/// Words of the header of a SPIR-V module.
const HEADER: usize = 5;
const MAGIC: u32 = 0x0723_0203;
const OP_TYPE_BOOL: u32 = 20;
const OP_TYPE_INT: u32 = 21;
const OP_TYPE_FLOAT: u32 = 22;
const OP_SPEC_CONSTANT_TRUE: u32 = 48;
const OP_SPEC_CONSTANT_FALSE: u32 = 49;
const OP_SPEC_CONSTANT: u32 = 50;
const OP_FUNCTION: u32 = 54;
const OP_DECORATE: u32 = 71;
const DECORATION_SPEC_ID: u32 = 1;

/// A module's constants with the application's values.
#[derive(Debug, Default)]
pub struct Constants {
    /// Bytes of the constant of each SpecId.
    widths: HashMap<u32, usize>,
    values: Vec<(u32, u64)>,
}

impl Constants {
    /// The constants of a module; none if it is not SPIR-V.
    pub fn scan(spirv: &[u8]) -> Self {
        let mut words = spirv.chunks_exact(4).map(|word| [word[0], word[1], word[2], word[3]]);
        let decode = match words.clone().next().map(u32::from_le_bytes) {
            Some(MAGIC) => u32::from_le_bytes,
            Some(word) if word.swap_bytes() == MAGIC => u32::from_be_bytes,
            _ => return Self::default(),
        };
        let words: Vec<u32> = words.by_ref().map(decode).collect();
        let mut ids = HashMap::new();
        let mut types = HashMap::new();
        let mut widths = HashMap::new();
        let mut rest = words.get(HEADER..).unwrap_or_default();
        while let Some(&first) = rest.first() {
            let (len, op) = ((first >> 16) as usize, first & 0xffff);
            // No constants follow the first function.
            if len == 0 || len > rest.len() || op == OP_FUNCTION {
                break;
            }
            let (instruction, after) = rest.split_at(len);
            rest = after;
            match *instruction {
                [_, target, DECORATION_SPEC_ID, id, ..] if op == OP_DECORATE => {
                    ids.insert(target, id);
                }
                [_, result, ..] if op == OP_TYPE_BOOL => {
                    types.insert(result, 1);
                }
                [_, result, bits, ..] if op == OP_TYPE_INT || op == OP_TYPE_FLOAT => {
                    types.insert(result, bits.div_ceil(8) as usize);
                }
                [_, kind, result, ..]
                    if matches!(op, OP_SPEC_CONSTANT | OP_SPEC_CONSTANT_TRUE)
                        || op == OP_SPEC_CONSTANT_FALSE =>
                {
                    let width = types.get(&kind).copied().filter(|&width| width <= 8);
                    if let (Some(&id), Some(width)) = (ids.get(&result), width) {
                        widths.insert(id, width);
                    }
                }
                _ => {}
            }
        }
        Self { widths, values: Vec::new() }
    }

    /// Bytes of the constant with this SpecId, at most 8; `None` if the module has no such constant.
    pub fn width(&self, id: u32) -> Option<usize> {
        self.widths.get(&id).copied()
    }

    /// Sets the value of a constant, with its width, in the host's byte order.
    pub fn set(&mut self, id: u32, value: &[u8]) {
        let mut bytes = [0; 8];
        let len = value.len().min(8);
        bytes[..len].copy_from_slice(&value[..len]);
        self.values.push((id, u64::from_le_bytes(bytes)));
    }

    /// The values that were set.
    pub fn values(self) -> Vec<(u32, u64)> {
        self.values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(swap: bool) -> Vec<u8> {
        let words = [
            vec![MAGIC, 0x1_0000, 0, 10, 0],
            vec![4 << 16 | OP_DECORATE, 5, DECORATION_SPEC_ID, 7],
            vec![4 << 16 | OP_DECORATE, 6, DECORATION_SPEC_ID, 9],
            vec![4 << 16 | OP_TYPE_INT, 1, 16, 0],
            vec![2 << 16 | OP_TYPE_BOOL, 2],
            vec![4 << 16 | OP_SPEC_CONSTANT, 1, 5, 3],
            vec![3 << 16 | OP_SPEC_CONSTANT_TRUE, 2, 6],
        ];
        let bytes = |word: u32| if swap { word.to_be_bytes() } else { word.to_le_bytes() };
        words.concat().into_iter().flat_map(bytes).collect()
    }

    #[test]
    fn the_widths_of_constants_are_found_in_both_byte_orders() {
        for swap in [false, true] {
            let constants = Constants::scan(&module(swap));
            assert_eq!(constants.width(7), Some(2), "a 16-bit integer");
            assert_eq!(constants.width(9), Some(1), "a bool");
            assert_eq!(constants.width(8), None);
        }
    }

    #[test]
    fn no_prefix_or_garbage_breaks_the_scan() {
        let module = module(false);
        for end in 0..module.len() {
            Constants::scan(&module[..end]);
        }
        for i in 0..module.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut broken = module.clone();
                broken[i] = value;
                Constants::scan(&broken);
            }
        }
    }

    #[test]
    fn values_are_zero_extended() {
        let mut constants = Constants::scan(&module(false));
        constants.set(7, &[0xfe, 0xff]);
        assert_eq!(constants.values(), [(7, 0xfffe)]);
    }
}
