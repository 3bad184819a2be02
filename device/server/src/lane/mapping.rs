// SPDX-License-Identifier: MIT OR Apache-2.0
//! VM_MAP and VM_UNMAP.

use super::*;
use crate::map::continues;
use crate::memory::GuestMemory;
use tally_uapi::firmware::MAX_EXTENTS;

impl Vm {
    pub(super) fn map(&mut self, host: &Host, command: &Command) -> Outcome {
        let [address, bytes, list, count, ..] = command.args;
        let (start, end) = self.in_window(address, bytes)?;
        let access = command.flags & !map_flag::NULL;
        let both = map_flag::WRITE | map_flag::EXECUTE;
        if access == 0 || access & both == both {
            return Err(answer_status::INVALID);
        }
        let pieces = if command.flags & map_flag::NULL != 0 {
            if list != 0 || count != 0 {
                return Err(answer_status::INVALID);
            }
            vec![Piece { address, bytes, offset: 0, file: None, access }]
        } else {
            let extents = Extents { memory: &host.memory, list, count, start, end, access };
            extents.pieces(&self.files).ok_or(answer_status::INVALID)?
        };
        for &piece in &pieces {
            self.map.apply(piece);
        }
        let null_bytes = self.map.null_bytes();
        let fits = self.map.len() <= host.max_mappings && null_bytes <= MAX_NULL_BYTES;
        let fits = fits && self.null.set(null_bytes);
        let done = fits.then(|| self.carry_out(&pieces));
        match done {
            Some(Ok(answer_status::OK)) => Ok(DONE),
            Some(Err(Ended)) => Err(answer_status::LOST),
            // What is there now is neither the old nor the new.
            Some(Ok(_)) | None => {
                self.take_away(address, bytes);
                Err(answer_status::NO_SPACE)
            }
        }
    }

    pub(super) fn unmap(&mut self, command: &Command) -> Outcome {
        let [address, bytes, ..] = command.args;
        self.in_window(address, bytes)?;
        self.take_away(address, bytes);
        Ok(DONE)
    }

    fn in_window(&self, address: u64, bytes: u64) -> Result<(u64, u64), u32> {
        let range = range(address, bytes).ok_or(answer_status::INVALID)?;
        let inside = self.window.start <= range.start && range.end <= self.window.end;
        if inside { Ok((range.start, range.end)) } else { Err(answer_status::INVALID) }
    }

    /// Unmaps a range: when this returns, the engine process cannot touch it, if
    /// need be because it is gone.
    fn take_away(&mut self, address: u64, bytes: u64) {
        let piece = Piece::unmap(address, bytes);
        self.map.apply(piece);
        match self.carry_out(&[piece]) {
            Ok(answer_status::OK) | Err(Ended) => {}
            Ok(_) => self.engine.end(),
        }
        // The engine process has it no more.
        self.null.set(self.map.null_bytes());
    }

    /// Has the engine process map and unmap; its word on whether it did.
    fn carry_out(&mut self, pieces: &[Piece]) -> Result<u32, Ended> {
        for pieces in pieces.chunks(MAX_PIECES) {
            let order = Order { opcode: op::VM_MAP, pieces: pieces.to_vec(), ..Order::default() };
            let (status, _) = self.engine.order(&order)?;
            if status != answer_status::OK {
                return Ok(status);
            }
        }
        Ok(answer_status::OK)
    }
}

/// The extents of a VM_MAP.
struct Extents<'a> {
    memory: &'a GuestMemory,
    /// Bus address of their page.
    list: u64,
    count: u64,
    start: u64,
    end: u64,
    access: u32,
}

impl Extents<'_> {
    /// What they stand for, neighbours joined. None if they are not as they
    /// should be.
    fn pieces(&self, files: &[Arc<MemoryFile>]) -> Option<Vec<Piece>> {
        let count = usize::try_from(self.count).ok()?;
        if !(1..=MAX_EXTENTS as usize).contains(&count) {
            return None;
        }
        let list = self.memory.words(self.list, count * 2)?;
        let mut pieces: Vec<Piece> = Vec::new();
        let mut at = self.start;
        for extent in list.chunks_exact(2) {
            // Each word is read once.
            let [bus, bytes] = [0, 1].map(|i: usize| extent[i].load(Ordering::Relaxed));
            range(bus, bytes)?;
            if bytes > self.end - at {
                return None;
            }
            let writable = self.access & map_flag::WRITE != 0;
            for part in self.memory.resolve(bus, bytes, writable)? {
                // A file that came after the engine process is not in its table.
                let file = files.iter().position(|file| Arc::ptr_eq(file, &part.file))?;
                let piece = Piece {
                    address: at,
                    bytes: part.bytes,
                    offset: part.offset,
                    file: Some(file as u32),
                    access: self.access,
                };
                at += part.bytes;
                match pieces.last_mut() {
                    Some(last) if continues(last, &piece) => last.bytes += piece.bytes,
                    _ => pieces.push(piece),
                }
            }
        }
        (at == self.end).then_some(pieces)
    }
}
