// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls that append commands and execute lists.

use std::ffi::c_void;
use std::ptr;

use arbitrary::{Result, Unstructured};
use tally_ze::*;

use super::{MEMORY, World, call};

/// The maximum number of events that one command waits for.
const WAITS: u8 = 4;

impl World {
    /// A range of the context's memory.
    fn range(&self, u: &mut Unstructured<'_>) -> Result<(*mut c_void, usize)> {
        let memory = self.memory[usize::from(u.arbitrary::<u8>()?) % self.memory.len()];
        let at = usize::from(u.arbitrary::<u16>()?) % MEMORY;
        let len = usize::from(u.arbitrary::<u16>()?) % (MEMORY - at + 1);
        Ok((memory.cast::<u8>().wrapping_add(at).cast(), len))
    }

    fn waits(&self, u: &mut Unstructured<'_>) -> Result<Vec<ze_event_handle_t>> {
        let count = u.arbitrary::<u8>()?;
        let count = if count < 150 { 0 } else { count % WAITS };
        (0..count).map(|_| self.event(u)).collect()
    }

    fn signal(&self, u: &mut Unstructured<'_>) -> Result<ze_event_handle_t> {
        if u.arbitrary::<u8>()? < 128 { Ok(ze_event_handle_t::NULL) } else { self.event(u) }
    }

    pub(super) fn append(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let list = self.list(u)?;
        let kind = u.arbitrary::<u8>()? % 11;
        let (signal, mut waits) = (self.signal(u)?, self.waits(u)?);
        let (count, waits) = (waits.len() as u32, waits.as_mut_ptr());
        match kind {
            0 => call!(zeCommandListAppendBarrier(list, signal, count, waits)),
            1 => {
                let ((to, len), pattern) = (self.range(u)?, u.arbitrary::<[u8; 16]>()?);
                let size = usize::from(u.arbitrary::<u8>()? % 18);
                let pattern = pattern.as_ptr().cast();
                // 17 bytes are no power of two, and are refused before they are read.
                call!(zeCommandListAppendMemoryFill(
                    list, to, pattern, size, len, signal, count, waits
                ))
            }
            2 => {
                let ((to, room), (from, len)) = (self.range(u)?, self.range(u)?);
                let len = len.min(room);
                call!(zeCommandListAppendMemoryCopy(list, to, from, len, signal, count, waits))
            }
            3 => {
                let region = |u: &mut Unstructured<'_>| -> Result<ze_copy_region_t> {
                    let [x, y, z, w, h, d] = u.arbitrary::<[u8; 6]>()?;
                    Ok(ze_copy_region_t {
                        originX: u32::from(x % 16),
                        originY: u32::from(y % 4),
                        originZ: u32::from(z % 4),
                        width: u32::from(w % 16),
                        height: u32::from(h % 4),
                        depth: u32::from(d % 4),
                    })
                };
                let (to, mut from) = (region(u)?, region(u)?);
                if u.arbitrary::<u8>()? < 240 {
                    (from.width, from.height, from.depth) = (to.width, to.height, to.depth);
                }
                // At most 8 slices of 8 rows of 32 bytes, in 4096.
                let memory = self.memory[0];
                call!(zeCommandListAppendMemoryCopyRegion(
                    list,
                    memory,
                    &raw const to,
                    32,
                    256,
                    self.memory[1],
                    &raw const from,
                    32,
                    256,
                    signal,
                    count,
                    waits
                ))
            }
            4 => call!(zeCommandListAppendSignalEvent(list, self.event(u)?)),
            5 => call!(zeCommandListAppendWaitOnEvents(list, count, waits)),
            6 => call!(zeCommandListAppendEventReset(list, self.event(u)?)),
            7 => {
                let at = usize::from(u.arbitrary::<u16>()?) % (MEMORY - 8);
                let to = self.memory[0].cast::<u8>().wrapping_add(at).cast::<u64>();
                call!(zeCommandListAppendWriteGlobalTimestamp(list, to, signal, count, waits))
            }
            8 => {
                let mut events = [self.event(u)?, self.event(u)?];
                call!(zeCommandListAppendQueryKernelTimestamps(
                    list,
                    events.len() as u32,
                    events.as_mut_ptr(),
                    self.memory[1],
                    ptr::null(),
                    signal,
                    count,
                    waits
                ))
            }
            9 => {
                let function = if u.arbitrary::<u8>()? < 240 { Some(nothing as _) } else { None };
                let (data, next) = (self.memory[0], ptr::null());
                call!(zeCommandListAppendHostFunction(
                    list, function, data, next, signal, count, waits
                ))
            }
            _ => call!(zeCommandListClose(list)),
        };
        Ok(())
    }

    pub(super) fn execute(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let count = usize::from(u.arbitrary::<u8>()? % 4);
        let mut lists =
            (0..count).map(|_| self.list(u)).collect::<Result<Vec<ze_command_list_handle_t>>>()?;
        let (len, lists) = (lists.len() as u32, lists.as_mut_ptr());
        if u.arbitrary::<bool>()? {
            let fence = match u.arbitrary::<bool>()? {
                true => ze_fence_handle_t::NULL,
                false => self.fence(u)?,
            };
            let queue = self.queue(u)?;
            call!(zeCommandQueueExecuteCommandLists(queue, len, lists, fence));
        } else {
            let (signal, mut waits) = (self.signal(u)?, self.waits(u)?);
            let (waiting, waits) = (waits.len() as u32, waits.as_mut_ptr());
            let list = self.list(u)?;
            call!(zeCommandListImmediateAppendCommandListsExp(
                list, len, lists, signal, waiting, waits
            ));
        }
        Ok(())
    }
}

/// The host function of lists.
unsafe extern "C" fn nothing(_: *mut c_void) {}
