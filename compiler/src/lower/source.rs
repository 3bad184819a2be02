// SPDX-License-Identifier: MIT OR Apache-2.0
//! Types of the source, as debug information of LLVM.

use super::places::{Places, quoted};
use crate::ir::{Encoding, Member, SourceType, SourceTypeId};

impl Places<'_> {
    /// The number of a type of the source; `None` if it is not known.
    pub(super) fn source_type(&mut self, id: SourceTypeId) -> Option<u32> {
        if let Some(&known) = self.types.get(&id) {
            return Some(known);
        }
        let module = self.module();
        let ty = &module.debug.types[id];
        match ty {
            SourceType::Unknown => return None,
            // A qualifier: debuggers need none.
            SourceType::Named(name, of) if name.is_empty() => return self.source_type(*of),
            _ => {}
        }
        // Before what it refers to, which may refer to it.
        let number = self.reserve();
        self.types.insert(id, number);
        let text = match ty {
            SourceType::Unknown => String::new(),
            SourceType::Basic { name, bits, encoding } => {
                let (name, encoding) = (quoted(name), dwarf(*encoding));
                format!("!DIBasicType(name: {name}, size: {bits}, encoding: {encoding})")
            }
            SourceType::Pointer(of) => {
                let of = self.reference(*of);
                format!("!DIDerivedType(tag: DW_TAG_pointer_type, baseType: {of}, size: 64)")
            }
            SourceType::Named(name, of) => {
                let of = self.reference(*of);
                format!(
                    "!DIDerivedType(tag: DW_TAG_typedef, name: {}, baseType: {of})",
                    quoted(name)
                )
            }
            SourceType::Array(of, counts) => {
                let bits = module.debug.bits(id);
                self.several_of(*of, counts, bits, "")
            }
            SourceType::Vector(of, count) => {
                let bits = module.debug.bits(id);
                self.several_of(*of, &[*count], bits, "flags: DIFlagVector, ")
            }
            SourceType::Composite { name, bits, is_union, members } => {
                let tag = if *is_union { "union" } else { "structure" };
                let members = members.iter().map(|member| self.member(member));
                let members: Vec<String> = members.collect();
                let elements = self.add(&format!("!{{{}}}", members.join(", ")));
                format!(
                    "distinct !DICompositeType(tag: DW_TAG_{tag}_type, name: {}, size: {bits}, elements: !{elements})",
                    quoted(name)
                )
            }
            SourceType::Enumeration { name, bits, values } => {
                let value = |(name, value): &(String, i64)| {
                    let text = format!("!DIEnumerator(name: {}, value: {value})", quoted(name));
                    format!("!{}", self.add(&text))
                };
                let values: Vec<String> = values.iter().map(value).collect();
                let elements = self.add(&format!("!{{{}}}", values.join(", ")));
                let size = u32::try_from(*bits).unwrap_or(0).max(8);
                let base = self.basic("int", size, "DW_ATE_signed");
                format!(
                    "!DICompositeType(tag: DW_TAG_enumeration_type, name: {}, baseType: !{base}, size: {bits}, elements: !{elements})",
                    quoted(name)
                )
            }
        };
        self.set(number, &text);
        Some(number)
    }

    /// A reference to a type, null if it is not known.
    fn reference(&mut self, id: SourceTypeId) -> String {
        self.source_type(id).map_or("null".to_owned(), |number| format!("!{number}"))
    }

    fn member(&mut self, member: &Member) -> String {
        let Member { name, ty, offset, bits } = member;
        let (name, of) = (quoted(name), self.reference(*ty));
        let text = format!(
            "!DIDerivedType(tag: DW_TAG_member, name: {name}, baseType: {of}, size: {bits}, offset: {offset})"
        );
        format!("!{}", self.add(&text))
    }

    fn several_of(&mut self, of: SourceTypeId, counts: &[u64], bits: u64, flags: &str) -> String {
        let of = self.reference(of);
        let range = |count: &u64| {
            let text = format!("!DISubrange(count: {})", i64::try_from(*count).unwrap_or(-1));
            format!("!{}", self.add(&text))
        };
        let ranges: Vec<String> = counts.iter().map(range).collect();
        let elements = self.add(&format!("!{{{}}}", ranges.join(", ")));
        format!(
            "!DICompositeType(tag: DW_TAG_array_type, {flags}baseType: {of}, size: {bits}, elements: !{elements})"
        )
    }
}

fn dwarf(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Bool => "DW_ATE_boolean",
        Encoding::Float => "DW_ATE_float",
        Encoding::Signed => "DW_ATE_signed",
        Encoding::SignedChar => "DW_ATE_signed_char",
        Encoding::Unsigned => "DW_ATE_unsigned",
        Encoding::UnsignedChar => "DW_ATE_unsigned_char",
    }
}
