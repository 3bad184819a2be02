// SPDX-License-Identifier: MIT OR Apache-2.0
//! A module's variables. Modules that were linked with it may use them, too.

use std::sync::Arc;

use tally_compiler_protocol::{GlobalInfo, Input, Reloc};
use tally_ze::{ze_memory_type_t, ze_result_t};

use crate::checks;
use crate::core::context::Context;
use crate::error::{Error, Result};
use crate::space::{self, HUGE_PAGE};
use crate::vm::{Source, Vm};

/// The part of a module that other modules may link to. It outlives the module if they do.
pub struct Unit {
    /// The source that it was built from.
    pub inputs: Arc<Vec<Input>>,
    /// Its variables.
    pub globals: Globals,
}

/// The module-scope variables, in one allocation of device memory.
pub struct Globals {
    vm: Arc<Vm>,
    /// First address, 0 without variables.
    base: u64,
    /// Address of each variable.
    addresses: Vec<u64>,
}

/// Bytes between variables if checks have to notice accesses beyond the end of one.
const APART: u64 = 256;

/// The owner of memory that belongs to the driver: no context has this id.
const DRIVER_OWNED: u64 = 0;

impl Globals {
    /// Allocates and fills the variables, except addresses of other modules' variables.
    ///
    /// # Errors
    /// OUT_OF_DEVICE_MEMORY, and the other errors of an allocation.
    pub fn allocate(context: &Context, infos: &[GlobalInfo]) -> Result<Self> {
        let vm = context.vm();
        let mut size = 0_u64;
        let mut align = 1_u64;
        let mut offsets = Vec::with_capacity(infos.len());
        let checks = checks::get();
        for info in infos {
            let own = u64::from(info.align).next_power_of_two().min(HUGE_PAGE);
            align = align.max(own);
            let offset = size.checked_next_multiple_of(own);
            let end = offset.and_then(|offset| offset.checked_add(info.size.max(1)));
            let (Some(offset), Some(end)) = (offset, end) else { return Err(too_large(info)) };
            offsets.push(offset);
            size = end + if checks.is_some() { APART } else { 0 };
        }
        let mut globals = Self { vm: vm.clone(), base: 0, addresses: Vec::new() };
        if size == 0 {
            return Ok(globals);
        }
        let kind = ze_memory_type_t::ZE_MEMORY_TYPE_DEVICE;
        let charge = context.device().budget().charge(0)?;
        globals.base = vm.allocate(Source::New, size, align, kind, DRIVER_OWNED, Some(charge))?;
        globals.addresses = offsets.iter().map(|offset| globals.base + offset).collect();
        if let Some(checks) = checks {
            let named = infos.iter().zip(&globals.addresses);
            let named = named.map(|(info, &address)| (address, info.size, info.name.clone()));
            checks.divided(globals.base, size, named);
        }
        for (info, &address) in infos.iter().zip(&globals.addresses) {
            let mut bytes = info.init.clone();
            if bytes.len() as u64 > info.size {
                return Err(inconsistent());
            }
            if let Some(end) = info.relocs.iter().map(|it| it.offset.saturating_add(8)).max() {
                if end > info.size {
                    return Err(inconsistent());
                }
                bytes.resize(bytes.len().max(end as usize), 0);
            }
            relocate(&mut bytes, &info.relocs, |global| globals.address(global))?;
            // SAFETY: the variable's bytes are part of the allocation, which is new, mapped for the
            // host, and known to nothing else; `bytes` has at most as many.
            unsafe {
                let to = space::pointer(address);
                to.copy_from(bytes.as_ptr(), bytes.len());
                to.add(bytes.len()).write_bytes(0, info.size as usize - bytes.len());
            }
        }
        Ok(globals)
    }

    /// First address and bytes of all variables; none without variables.
    pub fn extent(&self) -> Option<(u64, u64)> {
        let found = self.vm.find(self.base).filter(|_| self.base != 0)?;
        Some((found.base, found.size))
    }

    /// The address of a variable.
    pub fn address(&self, global: u32) -> Option<u64> {
        self.addresses.get(global as usize).copied()
    }

    /// The writes to variables once their module is linked: addresses of other modules' variables, which
    /// `find` returns.
    ///
    /// # Errors
    /// MODULE_BUILD_FAILURE if the compiler contradicts itself.
    pub fn patches(
        &self,
        infos: &[GlobalInfo],
        find: impl Fn(u32) -> Option<u64>,
    ) -> Result<Vec<Patch>> {
        let mut patches = Vec::new();
        for (info, &address) in infos.iter().zip(&self.addresses) {
            for reloc in info.relocs.iter().filter(|it| self.address(it.global).is_none()) {
                if reloc.offset.checked_add(8).is_none_or(|end| end > info.size) {
                    return Err(inconsistent());
                }
                let mut bytes = [0; 8];
                relocate(&mut bytes, &[Reloc { offset: 0, ..*reloc }], &find)?;
                patches.push(Patch { address: address + reloc.offset, bytes });
            }
        }
        Ok(patches)
    }

    /// Applies the result of [`Self::patches`] of the same variables.
    pub fn patch(&self, patches: &[Patch]) {
        for patch in patches {
            debug_assert!(self.base <= patch.address, "they are of these variables");
            // SAFETY: `patches` has checked that the eight bytes are part of a variable, whose memory
            // is mapped for the host as long as `self` lives. Kernels that could read them do not
            // exist yet.
            unsafe {
                space::pointer(patch.address).copy_from(patch.bytes.as_ptr(), patch.bytes.len());
            }
        }
    }
}

/// An address that a link writes into a variable.
pub struct Patch {
    address: u64,
    bytes: [u8; 8],
}

/// Writes addresses of variables, which `find` returns, into `bytes`.
///
/// # Errors
/// MODULE_BUILD_FAILURE if there is no such variable, or no room.
pub fn relocate(bytes: &mut [u8], relocs: &[Reloc], find: impl Fn(u32) -> Option<u64>) -> Result {
    for reloc in relocs {
        let address = find(reloc.global).ok_or_else(inconsistent)?;
        let start = usize::try_from(reloc.offset).map_err(|_| inconsistent())?;
        let place = bytes.get_mut(start..).and_then(|rest| rest.first_chunk_mut::<8>());
        *place.ok_or_else(inconsistent)? = address.wrapping_add_signed(reloc.addend).to_le_bytes();
    }
    Ok(())
}

impl Drop for Globals {
    fn drop(&mut self) {
        if self.base != 0 {
            drop(self.vm.release(self.base, DRIVER_OWNED));
        }
    }
}

fn too_large(info: &GlobalInfo) -> Error {
    Error::new(
        ze_result_t::ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
        format!("the variable {:?} of {} bytes does not fit", info.name, info.size),
    )
}

/// The error for an inconsistent answer of the compiler, which is another process, so that its answers are
/// checked.
pub(super) fn inconsistent() -> Error {
    Error::new(
        ze_result_t::ZE_RESULT_ERROR_MODULE_BUILD_FAILURE,
        "the compiler's answer contradicts itself; please report it",
    )
}
