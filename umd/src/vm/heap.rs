// SPDX-License-Identifier: MIT OR Apache-2.0
//! The driver's own memory that the device uses too: rings, arguments, recordings, counters.
//!
//! Blocks have sizes of powers of two and are aligned to their size. They are cut from chunks of
//! [`CHUNK`] bytes, one buffer each. Freed blocks are kept for the next request of the same size: a few
//! with the thread that freed them, whose cache holds them, the others in a list that all threads share.
//! Larger blocks get a buffer of their own, which is destroyed when they are freed.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tally_uapi::ioctl::bind_flag;
use tally_ze::ze_result_t;

use super::bindings::{Bindings, Mapping};
use crate::error::{Error, Result};
use crate::shards::Shards;
use crate::space::HUGE_PAGE;

/// Bytes of a chunk.
const CHUNK: u64 = HUGE_PAGE;
/// Bytes of the smallest block: a cache line.
const MIN: u64 = 64;
/// Bytes of the largest block that is cut from a chunk.
const MAX: u64 = CHUNK / 4;
/// Number of sizes from [`MIN`] to [`MAX`].
const CLASSES: usize = (MAX.ilog2() - MIN.ilog2() + 1) as usize;

/// Bytes of the largest block that a thread keeps, and of all blocks that it keeps at most.
const OWN_MAX: u64 = 64 << 10;
const OWN_BYTES: u64 = 512 << 10;
/// The largest number of pieces of a class that it keeps.
const OWN_PIECES: usize = 32;

/// The sub-allocator. Thread-safe; a lock is held for a few instructions, or for a new chunk.
pub struct Heap {
    bindings: Arc<Bindings>,
    /// Free pieces that threads keep.
    own: Shards<Mutex<Own>>,
    shared: Mutex<State>,
}

/// Free pieces by class.
type Free = [Vec<Piece>; CLASSES];

#[derive(Default)]
struct Own {
    free: Free,
    bytes: u64,
}

#[derive(Default)]
struct State {
    /// The part of the last chunk that has not been cut yet.
    rest: Option<Piece>,
    free: Free,
}

/// A part of a mapping that is not yet or no longer a block.
#[derive(Clone)]
struct Piece {
    mapping: Arc<Mapping>,
    offset: u64,
}

impl Heap {
    /// An empty heap that allocates its memory from `bindings`.
    pub fn new(bindings: Arc<Bindings>) -> Arc<Self> {
        Arc::new(Self { bindings, own: Shards::default(), shared: Mutex::default() })
    }

    /// A block of at least `size` bytes, aligned to `align` and to a cache line.
    ///
    /// New memory is zero; a block that was used before keeps its old content.
    ///
    /// # Errors
    /// OUT_OF_HOST_MEMORY, OUT_OF_DEVICE_MEMORY, DEVICE_LOST.
    ///
    /// # Panics
    /// If `align` is no power of two or larger than 2 MiB, which is a bug of the driver.
    pub fn alloc(self: &Arc<Self>, size: u64, align: u64) -> Result<Block> {
        assert!(align.is_power_of_two() && align <= HUGE_PAGE, "heap alignment {align}");
        let size = size.max(align).max(MIN).checked_next_power_of_two().ok_or_else(too_large)?;
        if size > MAX {
            return Ok(Block::whole(self.map(size)?));
        }
        let piece = ManuallyDrop::new(self.take(size)?);
        Ok(Block { heap: Some(self.clone()), piece, size })
    }

    fn map(&self, size: u64) -> Result<Mapping> {
        self.bindings.map(size, HUGE_PAGE, bind_flag::READ | bind_flag::WRITE)
    }

    fn take(&self, size: u64) -> Result<Piece> {
        let class = class(size);
        if size <= OWN_MAX {
            let mut own = lock(self.own.mine());
            if let Some(piece) = own.free[class].pop() {
                own.bytes -= size;
                return Ok(piece);
            }
        }
        let mut state = lock(&self.shared);
        match state.free[class].pop() {
            Some(piece) => Ok(piece),
            None => self.cut(&mut state, size),
        }
    }

    fn give(&self, piece: Piece, size: u64) {
        let class = class(size);
        if size <= OWN_MAX {
            let mut own = lock(self.own.mine());
            if own.bytes + size <= OWN_BYTES && own.free[class].len() < OWN_PIECES {
                own.bytes += size;
                own.free[class].push(piece);
                return;
            }
        }
        lock(&self.shared).free[class].push(piece);
    }

    fn cut(&self, state: &mut State, size: u64) -> Result<Piece> {
        if let Some(piece) = state.carve(size) {
            return Ok(piece);
        }
        // The chunk is created under the lock; otherwise another thread would only create one too.
        let mapping = Arc::new(self.map(CHUNK)?);
        state.retire_rest(CHUNK);
        state.rest = Some(Piece { mapping, offset: 0 });
        state.carve(size).ok_or_else(too_large)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Cuts a piece off the rest of the last chunk, after the gap that aligns it.
    fn carve(&mut self, size: u64) -> Option<Piece> {
        let offset = self.rest.as_ref()?.offset.next_multiple_of(size);
        if offset + size > CHUNK {
            return None;
        }
        self.retire_rest(offset);
        let rest = self.rest.as_mut()?;
        let piece = rest.clone();
        rest.offset += size;
        Some(piece)
    }

    /// Turns the rest up to offset `end` into free pieces, each the largest that is aligned to its size.
    fn retire_rest(&mut self, end: u64) {
        let Some(mut piece) = self.rest.take() else { return };
        while piece.offset < end {
            let aligned = 1 << piece.offset.trailing_zeros().min(MAX.ilog2());
            let fits = 1 << (end - piece.offset).ilog2();
            let size = MAX.min(aligned).min(fits);
            self.free[class(size)].push(piece.clone());
            piece.offset += size;
        }
        self.rest = Some(piece);
    }
}

/// The index of the class of a size that is a power of two from MIN to MAX.
fn class(size: u64) -> usize {
    (size.ilog2() - MIN.ilog2()) as usize
}

fn too_large() -> Error {
    Error::new(
        ze_result_t::ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
        "the driver needs a block of memory that is larger than the device has",
    )
}

/// Memory that host and device see at the same address. Freed on drop.
///
/// It may be used until then, whatever happens to the VM. Only the device may refer to it besides the
/// owner, which frees it only when no packet that names it can still run.
pub struct Block {
    /// The heap to which it returns; `None`: it owns its whole mapping.
    heap: Option<Arc<Heap>>,
    /// Moved out when the block is freed, since each change of the mapping's reference count would write a
    /// cache line that all threads share.
    piece: ManuallyDrop<Piece>,
    size: u64,
}

impl Block {
    /// A block that is a whole mapping.
    pub fn whole(mapping: Mapping) -> Self {
        let size = mapping.size();
        let piece = ManuallyDrop::new(Piece { mapping: Arc::new(mapping), offset: 0 });
        Self { heap: None, piece, size }
    }

    /// The address in the GPU's address space, which is also the host's.
    #[inline]
    pub fn va(&self) -> u64 {
        self.piece.mapping.va() + self.piece.offset
    }

    /// The same address as a pointer, good for `size` bytes.
    #[inline]
    pub fn ptr(&self) -> NonNull<u8> {
        // SAFETY: a block lies within its mapping, so the sum neither overflows nor is null.
        unsafe { self.piece.mapping.ptr().add(self.piece.offset as usize) }
    }

    /// The size in bytes; at least the requested size.
    #[inline]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The handle of the buffer that contains it.
    #[inline]
    pub fn bo(&self) -> u32 {
        self.piece.mapping.bo()
    }

    /// Its offset in that buffer, in bytes.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.piece.offset
    }

    /// Fills the block with zeroes.
    pub fn clear(&mut self) {
        // SAFETY: the block is mapped for the host, and `&mut` guarantees that it is not shared.
        unsafe { self.ptr().write_bytes(0, self.size as usize) };
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: taken once, here, and not used afterwards, since the block is being dropped.
        let piece = unsafe { ManuallyDrop::take(&mut self.piece) };
        if let Some(heap) = &self.heap {
            heap.give(piece, self.size);
        }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({:#x}, {} bytes)", self.va(), self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::tests::fake;

    #[test]
    fn blocks_are_aligned_apart_and_mapped() {
        let (_, vm) = fake();
        let sizes = [1, 64, 65, 4096, 100, 300_000, 64, 3 << 20, 8192, MAX, MAX + 1];
        let blocks: Vec<Block> =
            sizes.iter().map(|&size| vm.heap().alloc(size, 8).expect("room")).collect();
        let mut ranges: Vec<(u64, u64)> = blocks.iter().map(|it| (it.va(), it.size())).collect();
        for (block, asked) in blocks.iter().zip(sizes) {
            assert!(block.size() >= asked);
            assert_eq!(block.va() % block.size().min(CHUNK), 0, "aligned to its size");
            assert_eq!(block.ptr().as_ptr() as u64, block.va(), "one address for both");
            // SAFETY: the block is ours and has this size.
            unsafe { block.ptr().write_bytes(0xa5, block.size() as usize) };
        }
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|it| it[0].0 + it[0].1 <= it[1].0), "{ranges:x?}");
    }

    #[test]
    fn an_alignment_larger_than_the_size_is_kept() {
        let (_, vm) = fake();
        drop(vm.heap().alloc(64, 64).expect("room"));
        for align in [64, 4096, 65536, CHUNK] {
            assert_eq!(vm.heap().alloc(1, align).expect("room").va() % align, 0);
        }
    }

    #[test]
    fn a_freed_block_is_used_again_and_a_large_one_given_back() {
        let (kernel, vm) = fake();
        let first = vm.heap().alloc(128, 8).expect("room");
        let (va, buffers) = (first.va(), kernel.state().buffers.len());
        drop(first);
        assert_eq!(vm.heap().alloc(100, 8).expect("room").va(), va);
        drop(vm.heap().alloc(8 << 20, 8).expect("room"));
        assert_eq!(kernel.state().buffers.len(), buffers, "the large block's buffer is closed");
    }

    #[test]
    fn what_a_thread_frees_beyond_some_is_for_all() {
        let (kernel, vm) = fake();
        let size = 4096;
        let blocks: Vec<Block> =
            (0..2 * OWN_PIECES).map(|_| vm.heap().alloc(size, 8).expect("room")).collect();
        let freed: Vec<u64> = blocks.iter().map(Block::va).collect();
        drop(blocks);
        let buffers = kernel.state().buffers.len();
        let other = std::thread::scope(|scope| {
            let thread = scope.spawn(|| vm.heap().alloc(size, 8).expect("room"));
            thread.join().expect("the thread ends")
        });
        assert!(freed.contains(&other.va()));
        assert_eq!(kernel.state().buffers.len(), buffers);
    }

    #[test]
    fn nothing_of_a_chunk_is_wasted_by_alignment() {
        let (kernel, vm) = fake();
        let mut blocks = vec![vm.heap().alloc(64, 8).expect("room")];
        blocks.extend((0..3).map(|_| vm.heap().alloc(MAX, 8).expect("room")));
        // The rest of the first quarter is MAX - 64 bytes, in aligned pieces of each size.
        let mut size = MAX / 2;
        while size >= MIN {
            blocks.push(vm.heap().alloc(size, 8).expect("room"));
            size /= 2;
        }
        assert_eq!(kernel.state().buffers.len(), 1, "all of it came from one chunk");
    }

    #[test]
    fn running_out_of_memory_is_an_error_and_changes_nothing() {
        let (kernel, vm) = fake();
        kernel.state().memory_left = CHUNK;
        let block = vm.heap().alloc(64, 8).expect("one chunk fits");
        let error = vm.heap().alloc(CHUNK, 8).expect_err("a second does not");
        assert_eq!(error.code(), ze_result_t::ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
        assert_eq!(vm.heap().alloc(64, 8).expect("room in the first").bo(), block.bo());
    }

    #[test]
    fn blocks_outlive_the_vm_and_then_everything_is_given_back() {
        let (kernel, vm) = fake();
        let block = vm.heap().alloc(64, 8).expect("room");
        drop(vm);
        assert_eq!(kernel.state().vms.len(), 1);
        drop(block);
        let state = kernel.state();
        assert!(state.vms.is_empty() && state.buffers.is_empty() && state.bindings.is_empty());
    }
}
