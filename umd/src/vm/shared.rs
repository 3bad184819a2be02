// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that other processes get, and the files by which they do.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, PoisonError};

use tally_uapi::ioctl::Errno;

use super::Vm;
use super::reserved::Physical;
use crate::error::{Error, Result};
use crate::kernel::{Hold, SharedBo};

/// Memory that can be had as a file.
pub enum Exported {
    /// An allocation, by its first address.
    Allocation(u64),
    /// A physical memory object.
    Physical(Arc<Physical>),
}

impl Vm {
    /// A buffer for another process, and what keeps its memory meanwhile.
    ///
    /// # Errors
    /// UNSUPPORTED_FEATURE: not on this lane or machine. OUT_OF_HOST_MEMORY.
    pub fn export_bo(&self, bo: u32) -> Result<(SharedBo, Hold)> {
        self.kernel().bo_export(bo).map_err(|errno| match errno {
            Errno::NotSupported => Error::unsupported(
                "memory cannot be shared with other processes: the system has no memfd_create",
            ),
            errno => self.failed("exporting a buffer", errno),
        })
    }

    /// The memory of `context` that a file was made of.
    pub fn exported_as(&self, file: &File, context: u64) -> Option<Exported> {
        let place = |file: &File| file.metadata().map(|it| (it.dev(), it.ino())).ok();
        let wanted = place(file)?;
        let is_of = |bo| {
            let shared = self.kernel().bo_export(bo).ok();
            shared.is_some_and(|(it, _)| place(&File::from(it.file)) == Some(wanted))
        };
        let usm = self.usm.read().unwrap_or_else(PoisonError::into_inner);
        let mut files = usm.iter().filter(|(_, it)| it.exportable && it.context == context);
        let found = files.find(|(_, it)| is_of(it.mapping.bo()));
        if let Some((&base, _)) = found {
            return Some(Exported::Allocation(base));
        }
        drop(usm);
        let mut files = self.reserved.exportable(context).into_iter();
        files.find(|it| is_of(it.bo())).map(Exported::Physical)
    }

    /// The same of an allocation, if it still exists.
    ///
    /// # Errors
    /// As [`Vm::export_bo`].
    pub fn export(&self, base: u64, id: u64) -> Result<Option<(SharedBo, Hold)>> {
        let usm = self.usm.read().unwrap_or_else(PoisonError::into_inner);
        let found = usm.get(&base).filter(|it| it.id == id);
        found.map(|it| self.export_bo(it.mapping.bo())).transpose()
    }
}
