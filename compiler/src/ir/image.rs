// SPDX-License-Identifier: MIT OR Apache-2.0
//! The initial bytes of global variables.

use super::{ConstId, ConstKind, Constant, GlobalId, GlobalReloc, Module, Type};

/// The contents of a global variable before the first kernel runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GlobalImage {
    /// The bytes, as many as the variable has; empty if all are zero.
    pub bytes: Vec<u8>,
    /// Addresses to be filled in, in ascending order of offset.
    pub relocs: Vec<GlobalReloc>,
}

impl Module {
    /// The initial bytes of a global variable and the addresses of others among them.
    ///
    /// Padding and undefined parts are zero. Every byte comes from a constant of the module, except
    /// the tail of arrays whose elements are null, so a large image needs a large module; still,
    /// callers bound [`super::Global::size`] first (`check` does).
    pub fn global_image(&self, id: GlobalId) -> GlobalImage {
        let global = &self.globals[id];
        let mut image = GlobalImage::default();
        if let Some(init) = global.init
            && !matches!(self.constants[init].kind, ConstKind::Null | ConstKind::Undef)
        {
            image.bytes = vec![0; usize::try_from(global.size).unwrap_or(0)];
            self.write_constant(init, 0, &mut image);
            image.relocs.sort_by_key(|reloc| reloc.offset);
        }
        image
    }

    fn write_constant(&self, id: ConstId, offset: u64, image: &mut GlobalImage) {
        let Constant { ty, kind } = &self.constants[id];
        if self.types.size(*ty) == 0 {
            return;
        }
        match kind {
            ConstKind::Undef | ConstKind::Null => {}
            ConstKind::Bits(bits) => {
                let size = self.types.size(*ty) as usize;
                let start = offset as usize;
                if let Some(target) = image.bytes.get_mut(start..start + size) {
                    target.copy_from_slice(&bits.to_le_bytes()[..size]);
                }
            }
            ConstKind::Address(global, addend) => {
                image.relocs.push(GlobalReloc { offset, global: *global, addend: *addend });
            }
            ConstKind::Composite(parts) => {
                for (i, &part) in parts.iter().enumerate() {
                    let within = match &self.types[*ty] {
                        Type::Struct { .. } => {
                            self.types.member_offset(*ty, i as u32).unwrap_or_default()
                        }
                        _ => i as u64 * self.types.stride(self.constants[part].ty),
                    };
                    self.write_constant(part, offset + within, image);
                }
            }
        }
    }
}
