// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reserved addresses, and the physical memory that is mapped in them piece by piece.
//!
//! ```text
//!  Range   |-------------------------------|   from zeVirtualMemReserve
//!  Piece      |--- rw ---|      |-- ro --|     buffer, offset, access
//! ```
//!
//! Pieces do not overlap. A piece is split when a part of it is unmapped or gets another access.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tally_uapi::PAGE_SIZE;
use tally_uapi::ioctl::{BoCreate, VmBind, bind_flag, bind_op};
use tally_ze::ze_memory_type_t;

use super::Vm;
use super::bindings::{Bindings, Buffer, Source, out_of_addresses};
use super::budget::Charge;
use crate::backend::{BoUse, SharedBo};
use crate::error::{Error, Result};
use crate::process;

/// The device's access to a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// No access. The content stays.
    None,
    /// Read and write.
    ReadWrite,
    /// Read.
    ReadOnly,
}

impl Access {
    const fn flags(self) -> u32 {
        match self {
            Self::None => 0,
            Self::ReadWrite => bind_flag::READ | bind_flag::WRITE,
            Self::ReadOnly => bind_flag::READ,
        }
    }
}

/// Physical memory, which has no address of its own. Pieces that map it keep it alive.
pub struct Physical {
    bo: Buffer,
    size: u64,
    id: u64,
    /// `Context::id`.
    context: u64,
    exportable: bool,
    /// The charge on the device for which it was created; `None`: it was created for the host.
    charge: Option<Charge>,
    /// The ids of its parts that other processes have got, by the offsets at which they begin.
    parts: Mutex<BTreeMap<u64, u64>>,
}

impl Physical {
    /// Bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Its id among all allocations of this process; never reused.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The id, among all allocations of this process, of its part that begins at `offset`.
    pub fn part(&self, offset: u64) -> u64 {
        if offset == 0 {
            return self.id;
        }
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        *parts.entry(offset).or_insert_with(Vm::allocation_id)
    }

    /// The `Context::id` of the context for which it was created.
    pub fn context(&self) -> u64 {
        self.context
    }

    /// The buffer.
    pub fn bo(&self) -> u32 {
        self.bo.handle
    }

    /// Whether it can be exported as a file, because its buffer contains nothing else.
    pub fn is_exportable(&self) -> bool {
        self.exportable
    }

    /// Device or host.
    pub fn kind(&self) -> ze_memory_type_t {
        match self.charge {
            Some(_) => ze_memory_type_t::ZE_MEMORY_TYPE_DEVICE,
            None => ze_memory_type_t::ZE_MEMORY_TYPE_HOST,
        }
    }
}

/// A part of a range that is mapped.
#[derive(Clone)]
struct Piece {
    size: u64,
    memory: Arc<Physical>,
    offset: u64,
    access: Access,
}

struct Range {
    size: u64,
    /// `Context::id`.
    context: u64,
    pieces: BTreeMap<u64, Piece>,
    /// Attributes that the application has set, by their first address, with the end of each. They apply
    /// where nothing is mapped; mapping and unmapping remove them.
    attributes: BTreeMap<u64, (u64, Access)>,
}

impl Range {
    /// Removes the attributes that were set in `start..end`.
    fn forget_attributes(&mut self, start: u64, end: u64) {
        let before = self.attributes.range(..end);
        let met: Vec<_> =
            before.filter(|(_, it)| it.0 > start).map(|(&at, &it)| (at, it)).collect();
        for (at, (until, access)) in met {
            self.attributes.remove(&at);
            if at < start {
                self.attributes.insert(at, (start, access));
            }
            if until > end {
                self.attributes.insert(end, (until, access));
            }
        }
    }

    /// The attribute at `at`, where nothing is mapped, and its end, which is at most `end`.
    fn attribute(&self, at: u64, end: u64) -> (Access, u64) {
        let before = self.attributes.range(..=at).next_back();
        match before.filter(|(_, it)| it.0 > at) {
            Some((_, &(until, access))) => (access, until.min(end)),
            None => {
                let next = self.attributes.range(at..end).next();
                (Access::None, next.map_or(end, |(&start, _)| start))
            }
        }
    }

    /// Splits the piece that contains `at`, so that a piece begins there.
    fn split(&mut self, at: u64) {
        let Some((&start, piece)) = self.pieces.range_mut(..at).next_back() else { return };
        if start + piece.size <= at {
            return;
        }
        let left = at - start;
        let right = Piece {
            size: piece.size - left,
            offset: piece.offset + left,
            memory: piece.memory.clone(),
            access: piece.access,
        };
        piece.size = left;
        self.pieces.insert(at, right);
    }

    /// Number of bytes of `start..end` that are mapped.
    fn mapped(&self, start: u64, end: u64) -> u64 {
        let before = self.pieces.range(..start).next_back();
        before
            .into_iter()
            .chain(self.pieces.range(start..end))
            .map(|(&at, piece)| (at + piece.size).min(end).saturating_sub(at.max(start)))
            .sum()
    }

    /// The access at `start`, and the number of bytes, up to `end`, that have the same.
    fn access(&self, start: u64, end: u64) -> (Access, u64) {
        let mut at = start;
        let mut first = None;
        while at < end {
            let piece = self.pieces.range(..=at).next_back();
            let piece = piece.filter(|(start, piece)| *start + piece.size > at);
            let (access, until) = match piece {
                Some((start, piece)) => (piece.access, start + piece.size),
                None => {
                    let next = self.pieces.range(at..end).next();
                    self.attribute(at, next.map_or(end, |(&start, _)| start))
                }
            };
            if *first.get_or_insert(access) != access {
                break;
            }
            at = until.min(end);
        }
        (first.unwrap_or(Access::None), at - start)
    }
}

/// All reserved ranges of a VM, by their first address.
pub struct Reserved {
    bindings: Arc<Bindings>,
    ranges: Mutex<BTreeMap<u64, Range>>,
    /// Physical memory that can be exported as a file.
    exportable: Mutex<Vec<Weak<Physical>>>,
}

impl Reserved {
    pub(super) fn new(bindings: Arc<Bindings>) -> Self {
        Self { bindings, ranges: Mutex::default(), exportable: Mutex::default() }
    }

    fn ranges(&self) -> MutexGuard<'_, BTreeMap<u64, Range>> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves `size` bytes, whole pages, at `hint` if they are free there, else anywhere.
    ///
    /// # Errors
    /// OUT_OF_DEVICE_MEMORY: no such range is free.
    pub fn reserve(&self, hint: u64, size: u64, align: u64, context: u64) -> Result<u64> {
        let space = &self.bindings.space;
        let at = space
            .alloc_at(hint, size)
            .or_else(|| space.alloc_apart(size, align))
            .ok_or_else(|| out_of_addresses(size))?;
        let range = Range { size, context, pieces: BTreeMap::new(), attributes: BTreeMap::new() };
        self.ranges().insert(at, range);
        Ok(at)
    }

    /// Frees a range; its pieces are unmapped.
    ///
    /// # Errors
    /// INVALID_ARGUMENT unless `context` reserved exactly this range.
    pub fn free(&self, start: u64, size: u64, context: u64) -> Result {
        let mut ranges = self.ranges();
        match ranges.get(&start) {
            Some(range) if range.context == context && range.size == size => {}
            Some(range) if range.context == context => {
                return Err(Error::invalid(format!(
                    "size: {size} where {} were reserved at {start:#x}",
                    range.size
                )));
            }
            _ => return Err(no_range(start)),
        }
        let Some(range) = ranges.remove(&start) else { return Ok(()) };
        drop(ranges);
        self.give_back(start, &range);
        Ok(())
    }

    /// Frees all ranges that a context has left and returns their number.
    pub fn free_all(&self, context: u64) -> usize {
        let mut ranges = self.ranges();
        let left: Vec<u64> =
            ranges.iter().filter(|(_, it)| it.context == context).map(|(&at, _)| at).collect();
        let left: Vec<(u64, Range)> =
            left.into_iter().filter_map(|at| Some((at, ranges.remove(&at)?))).collect();
        drop(ranges);
        left.iter().for_each(|(at, range)| self.give_back(*at, range));
        left.len()
    }

    fn give_back(&self, start: u64, range: &Range) {
        if process::is_gone() {
            return;
        }
        if !range.pieces.is_empty()
            && let Err(error) = self.unbind(start, range.size)
        {
            // The addresses are never freed, since the device may still use them.
            log::error!("reserved range at {start:#x}: {error}");
            return;
        }
        self.bindings.space.free(start, range.size);
    }

    /// Creates memory of `size` bytes, whole pages, from a device's share or for the host.
    ///
    /// # Errors
    /// OUT_OF_DEVICE_MEMORY, OUT_OF_HOST_MEMORY, DEVICE_LOST. INVALID_ARGUMENT: the file is not one to which
    /// this much memory was exported.
    pub fn physical(
        &self,
        source: Source,
        size: u64,
        context: u64,
        charge: Option<Charge>,
    ) -> Result<Arc<Physical>> {
        let exportable = source.is_file();
        let bo = match source {
            Source::New => self.buffer(size, BoUse::User)?,
            Source::ForExport => self.buffer(size, BoUse::Shared)?,
            Source::File(file) => {
                let shared = SharedBo { file, offset: 0, size, read_only: false };
                self.bindings.import_buffer(shared)?
            }
        };
        let id = Vm::allocation_id();
        let memory = Arc::new(Physical {
            bo,
            size,
            id,
            context,
            exportable,
            charge,
            parts: Mutex::default(),
        });
        if exportable {
            let mut files = self.exportable.lock().unwrap_or_else(PoisonError::into_inner);
            files.retain(|it| it.strong_count() != 0);
            files.push(Arc::downgrade(&memory));
        }
        Ok(memory)
    }

    /// The physical memory of a context that can be exported as a file.
    pub fn exportable(&self, context: u64) -> Vec<Arc<Physical>> {
        let files = self.exportable.lock().unwrap_or_else(PoisonError::into_inner);
        files.iter().filter_map(Weak::upgrade).filter(|it| it.context == context).collect()
    }

    fn buffer(&self, size: u64, bo_use: BoUse) -> Result<Buffer> {
        let bindings = &self.bindings;
        let mut create = BoCreate { size, ..Default::default() };
        let created = bindings.backend.bo_create_for(&mut create, bo_use);
        created.map_err(|it| bindings.failed("BO_CREATE", it))?;
        Ok(Buffer { bindings: bindings.clone(), handle: create.handle })
    }

    /// The memory that is mapped at an address of `context`, and the offset in it at which the contiguous
    /// mapping around the address begins.
    pub fn memory_at(&self, address: u64, context: u64) -> Option<(Arc<Physical>, u64)> {
        let ranges = self.ranges();
        let (&start, range) = ranges.range(..=address).next_back()?;
        if range.context != context || address - start >= range.size {
            return None;
        }
        let mut pieces = range.pieces.range(..=address).rev();
        let (&at, piece) = pieces.next()?;
        if address - at >= piece.size {
            return None;
        }
        let (mut first, mut offset) = (at, piece.offset);
        // A mapping is split where a part of it got another access.
        for (&at, before) in pieces {
            let joins = at + before.size == first
                && before.offset + before.size == offset
                && Arc::ptr_eq(&before.memory, &piece.memory);
            if !joins {
                break;
            }
            (first, offset) = (at, before.offset);
        }
        Some((piece.memory.clone(), offset))
    }

    /// Maps `size` bytes of `memory` from `offset` on at `start`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the addresses are not reserved by one call, or something is mapped there,
    /// or the memory is too short; and as [`Reserved::physical`].
    pub fn map(
        &self,
        start: u64,
        size: u64,
        memory: &Arc<Physical>,
        offset: u64,
        access: Access,
    ) -> Result {
        if offset.checked_add(size).is_none_or(|end| end > memory.size) {
            return Err(Error::invalid(format!(
                "size: {size} from offset {offset} reach beyond the {} bytes of hPhysicalMemory",
                memory.size
            )));
        }
        let mut ranges = self.ranges();
        let range = range_of(&mut ranges, start, size)?;
        if range.mapped(start, start + size) != 0 {
            return Err(Error::invalid(format!(
                "ptr: something is mapped in the {size} bytes at {start:#x} already"
            )));
        }
        let piece = Piece { size, memory: memory.clone(), offset, access };
        self.bind(start, &piece)?;
        range.pieces.insert(start, piece);
        range.forget_attributes(start, start + size);
        Ok(())
    }

    /// Unmaps everything that is mapped in the range.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the addresses are not reserved by one call; as [`Reserved::physical`].
    pub fn unmap(&self, start: u64, size: u64) -> Result {
        let mut ranges = self.ranges();
        let range = range_of(&mut ranges, start, size)?;
        range.forget_attributes(start, start + size);
        if range.mapped(start, start + size) == 0 {
            return Ok(());
        }
        self.unbind(start, size)?;
        range.split(start);
        range.split(start + size);
        range.pieces.retain(|at, _| !(start..start + size).contains(at));
        self.reopen(range, start, start + size)
    }

    /// Changes the device's access to the mapped parts of a range. Where nothing is mapped, the attribute is
    /// only stored: a later mapping brings its own access.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the addresses are not reserved by one call; as [`Reserved::physical`].
    pub fn set_access(&self, start: u64, size: u64, access: Access) -> Result {
        let mut ranges = self.ranges();
        let range = range_of(&mut ranges, start, size)?;
        range.split(start);
        range.split(start + size);
        for (&at, piece) in range.pieces.range_mut(start..start + size) {
            if piece.access == access {
                continue;
            }
            self.unbind(at, piece.size)?;
            let before = std::mem::replace(&mut piece.access, access);
            if let Err(error) = self.bind(at, piece) {
                piece.access = before;
                if let Err(error) = self.bind(at, piece) {
                    piece.access = Access::None;
                    log::error!("the {} bytes at {at:#x} stay unmapped: {error}", piece.size);
                }
                return Err(error);
            }
        }
        range.forget_attributes(start, start + size);
        range.attributes.insert(start, (start + size, access));
        self.reopen(range, start, start + size)
    }

    /// The access at `start`, and the number of bytes, at most `size`, that have the same.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the addresses are not reserved by one call.
    pub fn access(&self, start: u64, size: u64) -> Result<(Access, u64)> {
        let mut ranges = self.ranges();
        Ok(range_of(&mut ranges, start, size)?.access(start, start + size))
    }

    /// Maps a piece for the device and, if it is writable, for the host.
    fn bind(&self, at: u64, piece: &Piece) -> Result {
        let bindings = &self.bindings;
        if piece.access == Access::None {
            return Ok(());
        }
        let bind = VmBind {
            vm_id: bindings.id,
            op: bind_op::MAP,
            flags: piece.access.flags(),
            handle: piece.memory.bo.handle,
            offset: piece.offset,
            address: at,
            size: piece.size,
            ..Default::default()
        };
        // SAFETY: the piece is a reserved range in the VA reservation, where nothing is mapped.
        let bound = unsafe { bindings.backend.vm_bind(&bind) };
        bound.map_err(|errno| bindings.failed("VM_BIND", errno))?;
        if piece.access != Access::ReadWrite {
            return Ok(());
        }
        self.open(at, piece).inspect_err(|_| {
            if let Err(error) = self.unbind(at, piece.size) {
                log::error!("the {} bytes at {at:#x} stay mapped: {error}", piece.size);
            }
        })
    }

    /// Maps a piece for the host.
    fn open(&self, at: u64, piece: &Piece) -> Result {
        let bindings = &self.bindings;
        let ptr = std::ptr::NonNull::new(crate::space::pointer(at));
        let (handle, size) = (piece.memory.bo.handle, piece.size as usize);
        // SAFETY: the range is reserved in the VA reservation, and at most this piece is mapped there.
        let mapped = unsafe { bindings.backend.bo_map(handle, piece.offset, size, ptr) };
        mapped.map(drop).map_err(|errno| bindings.failed("mmap of a buffer", errno))
    }

    /// Maps again, for the host, the remaining pieces at the borders of a range that was unmapped or remapped:
    /// a mapping of the DRM core does not survive the removal of a part of it.
    fn reopen(&self, range: &Range, start: u64, end: u64) -> Result {
        if self.bindings.backend.sees_process() {
            return Ok(());
        }
        let before = range.pieces.range(..start).next_back();
        let before = before.filter(|(at, piece)| *at + piece.size == start);
        let after = range.pieces.get_key_value(&end);
        for (&at, piece) in before.into_iter().chain(after) {
            if piece.access == Access::ReadWrite {
                self.open(at, piece)?;
            }
        }
        Ok(())
    }

    /// Unmaps for the device and the host.
    fn unbind(&self, at: u64, size: u64) -> Result {
        let bindings = &self.bindings;
        let bind = VmBind {
            vm_id: bindings.id,
            op: bind_op::UNMAP,
            address: at,
            size,
            ..Default::default()
        };
        // SAFETY: the range is reserved in the VA reservation, and its owner asks to unmap it.
        let unbound = unsafe { bindings.backend.vm_bind(&bind) };
        unbound.map_err(|errno| bindings.failed("VM_BIND", errno))?;
        // SAFETY: as above.
        unsafe { bindings.space.close(at, size) };
        Ok(())
    }
}

/// The range that contains all of `start..start + size`.
fn range_of(ranges: &mut BTreeMap<u64, Range>, start: u64, size: u64) -> Result<&mut Range> {
    let found = ranges.range_mut(..=start).next_back();
    match found {
        Some((&at, range)) if start - at < range.size && size <= range.size - (start - at) => {
            Ok(range)
        }
        _ => Err(no_range(start)),
    }
}

fn no_range(start: u64) -> Error {
    Error::invalid(format!(
        "ptr: the addresses from {start:#x} on are not reserved, or not by one zeVirtualMemReserve"
    ))
}

/// The best page size for `size` bytes.
pub fn page_size(size: u64) -> u64 {
    if size >= crate::space::HUGE_PAGE { crate::space::HUGE_PAGE } else { PAGE_SIZE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::fake::Fake;
    use crate::vm::Vm;
    use tally_ze::ze_result_t;

    const PAGE: u64 = PAGE_SIZE;

    fn made() -> (Arc<Fake>, Arc<Vm>) {
        crate::vm::tests::fake()
    }

    fn is_invalid<T>(result: Result<T>) -> bool {
        result.err().map(|error| error.code())
            == Some(ze_result_t::ZE_RESULT_ERROR_INVALID_ARGUMENT)
    }

    #[test]
    fn a_reservation_grows_where_the_addresses_behind_it_are_free() {
        let (_, vm) = made();
        let reserved = vm.reserved();
        let first = reserved.reserve(0, 4 * PAGE, PAGE, 1).expect("room");
        let behind = first + 4 * PAGE;
        assert_eq!(reserved.reserve(behind, 4 * PAGE, PAGE, 1).expect("room"), behind);
        let third = reserved.reserve(first, 4 * PAGE, PAGE, 1).expect("room elsewhere");
        assert!(third != first && third != behind);
        assert!(is_invalid(reserved.free(first, 8 * PAGE, 1)), "two reservations");
        assert!(is_invalid(reserved.free(first, 4 * PAGE, 2)), "another context's");
        reserved.free(first, 4 * PAGE, 1).expect("exactly what was reserved");
    }

    #[test]
    fn pieces_are_split_where_access_or_mapping_changes() {
        let (_, vm) = made();
        let reserved = vm.reserved();
        let at = reserved.reserve(0, 8 * PAGE, PAGE, 1).expect("room");
        let memory = reserved.physical(Source::New, 8 * PAGE, 1, None).expect("memory");
        reserved.map(at + PAGE, 6 * PAGE, &memory, PAGE, Access::ReadWrite).expect("free");
        assert!(is_invalid(reserved.map(at + 6 * PAGE, 2 * PAGE, &memory, 0, Access::ReadWrite)));
        reserved.set_access(at + 2 * PAGE, PAGE, Access::ReadOnly).expect("mapped");
        reserved.unmap(at + 4 * PAGE, PAGE).expect("mapped");
        let access = |page: u64| reserved.access(at + page * PAGE, (8 - page) * PAGE).expect("it");
        assert_eq!(access(0), (Access::None, PAGE));
        assert_eq!(access(1), (Access::ReadWrite, PAGE));
        assert_eq!(access(2), (Access::ReadOnly, PAGE));
        assert_eq!(access(3), (Access::ReadWrite, PAGE));
        assert_eq!(access(4), (Access::None, PAGE));
        assert_eq!(access(5), (Access::ReadWrite, 2 * PAGE));
        assert!(is_invalid(reserved.set_access(at, 9 * PAGE, Access::None)));
        assert!(is_invalid(reserved.access(at, 9 * PAGE)));
        assert_eq!(reserved.free_all(1), 1);
    }

    #[test]
    fn an_attribute_counts_where_nothing_is_mapped_until_something_is() {
        let (backend, vm) = made();
        let reserved = vm.reserved();
        let at = reserved.reserve(0, 8 * PAGE, PAGE, 1).expect("room");
        let access = |page: u64| reserved.access(at + page * PAGE, (8 - page) * PAGE).expect("it");
        reserved.set_access(at + PAGE, 6 * PAGE, Access::ReadOnly).expect("reserved");
        assert_eq!((access(0), access(1)), ((Access::None, PAGE), (Access::ReadOnly, 6 * PAGE)));
        reserved.set_access(at + 2 * PAGE, PAGE, Access::ReadWrite).expect("reserved");
        assert_eq!(access(1), (Access::ReadOnly, PAGE));
        assert_eq!(
            (access(2), access(3)),
            ((Access::ReadWrite, PAGE), (Access::ReadOnly, 4 * PAGE))
        );
        assert!(backend.state().bindings.is_empty(), "nothing is mapped by it");
        let memory = reserved.physical(Source::New, PAGE, 1, None).expect("memory");
        reserved.map(at + 4 * PAGE, PAGE, &memory, 0, Access::ReadWrite).expect("free");
        assert_eq!((access(3), access(4)), ((Access::ReadOnly, PAGE), (Access::ReadWrite, PAGE)));
        // Across a border of a mapping: both sides have the access now.
        reserved.set_access(at + 3 * PAGE, 2 * PAGE, Access::ReadOnly).expect("reserved");
        assert_eq!(access(3), (Access::ReadOnly, 4 * PAGE));
        reserved.unmap(at + 4 * PAGE, PAGE).expect("mapped");
        assert_eq!((access(3), access(4)), ((Access::ReadOnly, PAGE), (Access::None, PAGE)));
        assert_eq!((access(5), access(7)), ((Access::ReadOnly, 2 * PAGE), (Access::None, PAGE)));
        assert_eq!(reserved.free_all(1), 1);
    }

    #[test]
    fn freeing_a_range_unmaps_it_and_lets_its_memory_go() {
        let (backend, vm) = made();
        let reserved = vm.reserved();
        let at = reserved.reserve(0, 2 * PAGE, PAGE, 1).expect("room");
        let memory = reserved.physical(Source::New, PAGE, 1, None).expect("memory");
        reserved.map(at, PAGE, &memory, 0, Access::ReadWrite).expect("free");
        assert!(is_invalid(reserved.map(at + PAGE, PAGE, &memory, PAGE, Access::ReadOnly)));
        drop(memory);
        assert_eq!(backend.state().buffers.len(), 1, "the piece keeps the memory");
        assert_eq!(reserved.free_all(1), 1);
        assert!(backend.state().buffers.is_empty() && backend.state().bindings.is_empty());
    }
}
