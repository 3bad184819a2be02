// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that is shared with other processes, and the files that share it.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use tally_uapi::ioctl::Errno;

use super::reserved::Physical;
use super::{Allocation, Vm};
use crate::backend::{Hold, SharedBo};
use crate::error::{Error, Result};

/// Memory that can be exported as a file.
pub enum Exported {
    /// An allocation, by its first address.
    Allocation(u64),
    /// A physical memory object.
    Physical(Arc<Physical>),
}

impl Vm {
    /// Exports a buffer for another process; the returned hold keeps its memory meanwhile.
    ///
    /// # Errors
    /// UNSUPPORTED_FEATURE: this lane or machine cannot do it. OUT_OF_HOST_MEMORY.
    pub fn export_bo(&self, bo: u32) -> Result<(SharedBo, Hold)> {
        self.backend().bo_export(bo).map_err(|errno| match errno {
            Errno::NotSupported => Error::unsupported(
                "memory cannot be shared with other processes: the system has no memfd_create",
            ),
            errno => self.failed("exporting a buffer", errno),
        })
    }

    /// The memory of `context` from which a file was made.
    pub fn exported_as(&self, file: &File, context: u64) -> Option<Exported> {
        let place = |file: &File| file.metadata().map(|it| (it.dev(), it.ino())).ok();
        let wanted = place(file)?;
        let is_of = |bo| {
            let shared = self.backend().bo_export(bo).ok();
            shared.is_some_and(|(it, _)| place(&File::from(it.file)) == Some(wanted))
        };
        let files = self.usm.bases(|it| it.exportable && it.context == context && is_of(it.bo));
        if let Some(&base) = files.first() {
            return Some(Exported::Allocation(base));
        }
        let mut files = self.reserved.exportable(context).into_iter();
        files.find(|it| is_of(it.bo())).map(Exported::Physical)
    }

    /// Does the same for an allocation, if it still exists. Its block is not reused for another one from then on.
    ///
    /// # Errors
    /// Those of [`Vm::export_bo`].
    pub fn export(&self, base: u64, id: u64) -> Result<Option<(SharedBo, Hold)>> {
        let export = |it: &mut Allocation| self.export_bo(it.export());
        self.usm.with(base, id, export).transpose()
    }
}
