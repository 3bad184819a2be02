// SPDX-License-Identifier: MIT OR Apache-2.0
//! VM_MAP and VM_UNMAP.

use super::*;

impl Vm {
    pub(super) fn map(&mut self, command: &Command) -> Outcome {
        let range = self.in_window(command)?;
        let access = command.flags & !map_flag::NULL;
        let both = map_flag::WRITE | map_flag::EXECUTE;
        if access == 0 || access & both == both {
            return Err(answer_status::INVALID);
        }
        let done = match self.memory.map(&range, command) {
            Ok(pieces) => self.carry_out(op::VM_MAP, &range, &pieces),
            Err(answer_status::INVALID) => return Err(answer_status::INVALID),
            Err(status) => Ok(status),
        };
        match done {
            Ok(answer_status::OK) => Ok(DONE),
            Err(Ended) => Err(answer_status::LOST),
            // The range now contains neither the old nor the new mappings.
            Ok(_) => {
                self.take_away(&range);
                Err(answer_status::NO_SPACE)
            }
        }
    }

    pub(super) fn unmap(&mut self, command: &Command) -> Outcome {
        let range = self.in_window(command)?;
        self.take_away(&range);
        Ok(DONE)
    }

    fn in_window(&self, command: &Command) -> Result<Range<u64>, u32> {
        let [address, bytes, ..] = command.args;
        let range = range(address, bytes).ok_or(answer_status::INVALID)?;
        let inside = self.window.start <= range.start && range.end <= self.window.end;
        if inside { Ok(range) } else { Err(answer_status::INVALID) }
    }

    /// Unmaps a range: when this returns, the engine process cannot touch it, if
    /// necessary because the process was ended.
    fn take_away(&mut self, range: &Range<u64>) {
        let pieces = self.memory.unmap(range);
        match self.carry_out(op::VM_UNMAP, range, &pieces) {
            Ok(answer_status::OK) | Err(Ended) => {}
            Ok(_) => self.engine.end(),
        }
        self.memory.unmapped();
    }

    /// Has the engine process make its first mappings.
    pub(super) fn begin(&mut self) -> Result<(), u32> {
        let window = self.window.clone();
        let pieces = self.memory.begin(&window);
        if pieces.is_empty() {
            return Ok(());
        }
        match self.carry_out(op::VM_MAP, &(0..0), &pieces) {
            Ok(answer_status::OK) => Ok(()),
            _ => Err(answer_status::NO_SPACE),
        }
    }

    /// Has the engine process map and unmap, and forget its state of `range`. Returns the process's own answer.
    fn carry_out(
        &mut self,
        opcode: u32,
        range: &Range<u64>,
        pieces: &[Piece],
    ) -> Result<u32, Ended> {
        let args = [range.start, range.end - range.start, 0, 0, 0, 0];
        let mut rest = pieces;
        loop {
            let (now, later) = rest.split_at(rest.len().min(MAX_PIECES));
            let order = Order { opcode, args, pieces: now.to_vec(), ..Order::default() };
            let (status, _) = self.engine.order(&order)?;
            if status != answer_status::OK || later.is_empty() {
                return Ok(status);
            }
            rest = later;
        }
    }
}
