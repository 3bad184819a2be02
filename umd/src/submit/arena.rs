// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that packets point to: arguments of kernels, long patterns, shapes, operands, timestamp slots.
//! It is allocated from chunks in order and becomes free a chunk at a time, when a counter shows that the
//! commands that use the chunk are complete.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;

use tally_ze::ze_result_t;

use crate::error::{Error, Result};
use crate::vm::heap::{Block, Heap};

/// A chunk. Others than the arena may keep it (because of a timestamp slot in it): then it is not reused.
#[derive(Debug)]
pub struct Chunk(Block);

impl Chunk {
    /// Whether the chunk contains the `size` bytes at `va`.
    pub fn holds(&self, va: u64, size: u64) -> bool {
        va >= self.0.va() && va + size <= self.0.va() + self.0.size()
    }
}

/// An uninitialised piece of an arena.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The address, for host and device.
    pub ptr: NonNull<u8>,
}

impl Span {
    /// The address as a number.
    #[inline]
    pub fn va(self) -> u64 {
        self.ptr.as_ptr() as u64
    }
}

/// The arena of one list or queue.
#[derive(Debug)]
pub struct Arena {
    chunk_bytes: u64,
    limit: u64,
    current: Option<Arc<Chunk>>,
    used: u64,
    /// Chunks that the device uses, oldest first, each with the value at which it is free again.
    busy: VecDeque<(Arc<Chunk>, u64)>,
    bytes: u64,
}

impl Arena {
    /// An empty arena that grows by `chunk_bytes` up to `limit` bytes.
    pub fn new(chunk_bytes: u64, limit: u64) -> Self {
        Self { chunk_bytes, limit, current: None, used: 0, busy: VecDeque::new(), bytes: 0 }
    }

    /// Allocates `size` bytes, aligned to `align`, for a command that is complete when the arena's counter
    /// reaches `value`. `reached` returns the counter's current value; values only grow.
    ///
    /// # Errors
    /// OUT_OF_HOST_MEMORY at the limit; the heap's.
    #[inline]
    pub fn take(
        &mut self,
        heap: &Arc<Heap>,
        size: u64,
        align: u64,
        value: u64,
        reached: impl FnOnce() -> u64,
    ) -> Result<Span> {
        debug_assert!(align.is_power_of_two() && align <= 64);
        let start = (self.used + align - 1) & !(align - 1);
        if let Some(chunk) = &self.current
            && start + size <= chunk.0.size()
        {
            self.used = start + size;
            // SAFETY: the piece lies within the chunk.
            return Ok(Span { ptr: unsafe { chunk.0.ptr().add(start as usize) } });
        }
        self.next_chunk(heap, size, value, reached())?;
        self.used = size;
        let chunk = self.current.as_ref().ok_or_else(exhausted)?;
        Ok(Span { ptr: chunk.0.ptr() })
    }

    /// The chunk that contains the last piece.
    ///
    /// # Errors
    /// OUT_OF_HOST_MEMORY if there is none.
    pub fn chunk(&self) -> Result<&Arc<Chunk>> {
        self.current.as_ref().ok_or_else(exhausted)
    }

    /// All chunks with pieces that may be in use.
    pub fn chunks(&self) -> impl Iterator<Item = &Arc<Chunk>> {
        self.busy.iter().map(|(chunk, _)| chunk).chain(&self.current)
    }

    /// Frees all pieces: no command uses them any more.
    pub fn clear(&mut self) {
        self.busy.clear();
        self.used = 0;
        self.bytes = 0;
        // An event may keep a slot of the chunk.
        match self.current.take() {
            Some(chunk) if Arc::strong_count(&chunk) == 1 => {
                self.bytes = chunk.0.size();
                self.current = Some(chunk);
            }
            _ => {}
        }
    }

    #[cold]
    fn next_chunk(&mut self, heap: &Arc<Heap>, size: u64, value: u64, reached: u64) -> Result {
        if let Some(chunk) = self.current.take() {
            // The pieces that were taken from it before are free at the latest when this command is
            // complete: earlier commands may have reserved a smaller value.
            self.busy.push_back((chunk, value));
        }
        while let Some((chunk, until)) = self.busy.front() {
            if *until > reached {
                break;
            }
            let fits = chunk.0.size() >= size && Arc::strong_count(chunk) == 1;
            let Some((chunk, _)) = self.busy.pop_front() else { break };
            if fits {
                self.current = Some(chunk);
                return Ok(());
            }
            self.bytes -= chunk.0.size();
        }
        let bytes = size.max(self.chunk_bytes);
        if self.bytes + bytes > self.limit {
            return Err(exhausted());
        }
        let chunk = Arc::new(Chunk(heap.alloc(bytes, 64)?));
        self.bytes += chunk.0.size();
        self.current = Some(chunk);
        Ok(())
    }
}

#[cold]
fn exhausted() -> Error {
    Error::new(
        ze_result_t::ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY,
        "the commands that wait to run hold all the memory for arguments that a list may have",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::tests::fake;

    #[test]
    fn pieces_are_aligned_and_apart_until_the_counter_frees_their_chunk() {
        let (_, vm) = fake();
        let mut arena = Arena::new(4096, 1 << 20);
        let mut take =
            |value, reached| arena.take(vm.heap(), 1000, 64, value, || reached).expect("room").va();
        let first: Vec<u64> = (1..=4).map(|value| take(value, 0)).collect();
        assert!(first.iter().all(|va| va.is_multiple_of(64)));
        assert!(first.windows(2).all(|it| it[0] + 1000 <= it[1]));
        let second = take(5, 3);
        assert!(!first.contains(&second), "a command of the first chunk may still run");
        (6..=8).for_each(|value| _ = take(value, 3));
        assert_eq!(take(9, 5), first[0], "the first chunk is free again");
    }

    #[test]
    fn a_chunk_that_somebody_keeps_is_not_used_again() {
        let (_, vm) = fake();
        let mut arena = Arena::new(64, 1 << 20);
        let first = arena.take(vm.heap(), 64, 8, 1, || 0).expect("room").va();
        let kept = arena.chunk().expect("taken from").clone();
        for value in 2..10 {
            let next = arena.take(vm.heap(), 64, 8, value, || value - 1).expect("room").va();
            assert_ne!(next, first);
        }
        assert!(kept.holds(first, 64));
    }

    #[test]
    fn an_arena_has_a_limit_and_goes_on_after_it() {
        let (_, vm) = fake();
        let mut arena = Arena::new(4096, 8192);
        let mut take = |reached| arena.take(vm.heap(), 4096, 8, 1, || reached);
        assert!(take(0).is_ok() && take(0).is_ok());
        let error = take(0).expect_err("the limit is reached");
        assert_eq!(error.code(), ze_result_t::ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
        assert!(take(1).is_ok(), "when the commands are complete there is room again");
    }
}
