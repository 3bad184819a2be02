// SPDX-License-Identifier: MIT OR Apache-2.0
//! Execution units, which run the work-groups of a DISPATCH. A unit of work is a
//! work-group.

use std::sync::atomic::{AtomicU64, Ordering};

use tally_uapi::eu::{
    ARGS_OFFSET, BLOCK_ALIGN, GroupContext, KernargHeader, KernelEntry, LaunchInfo,
    MAX_LOCAL_BYTES, MAX_SCRATCH_BYTES,
};
use tally_uapi::packet::{Dispatch, flag};

use crate::config::GroupMemory;
use crate::fields::{MAX_UNITS, bad_field};
use crate::grid::{self, Grid};
use crate::guard::{Guard, Trap, set_float_control};

/// The state that all work-groups of a DISPATCH share.
#[derive(Debug)]
pub(crate) struct Launch {
    info: LaunchInfo,
    /// Work-groups that have items, in each dimension.
    groups: [u64; 3],
    entry: u64,
    args: u64,
    local_bytes: usize,
    scratch_bytes: usize,
    /// Whether no group waits for another one.
    is_independent: bool,
    /// The barrier of a cooperative launch's groups.
    grid: Option<Box<Grid>>,
}

impl Launch {
    /// Reads the memory that the packet points to. Returns the launch and its number of groups.
    pub(crate) fn new(guard: &mut Guard, packet: &Dispatch) -> Result<(Self, u64), Trap> {
        let header: KernargHeader = guard.read(packet.kernarg)?;
        if header.reserved != [0; 2] {
            return Err(bad_field(packet.kernarg));
        }
        let num_groups = if packet.header.flags & flag::INDIRECT != 0 {
            guard.read::<[u32; 3]>(packet.indirect_address())?
        } else {
            packet.groups
        };
        let mut groups = [0; 3];
        let mut global_size = header.global_size;
        for d in 0..3 {
            let (count, size) = (u64::from(num_groups[d]), u64::from(packet.group_size[d]));
            if global_size[d] == 0 {
                global_size[d] = count * size;
            }
            groups[d] = count.min(global_size[d].div_ceil(size));
        }
        let units = groups.iter().try_fold(1u64, |product, &n| product.checked_mul(n));
        let units = units.filter(|&units| units <= MAX_UNITS);
        let units = units.ok_or_else(|| bad_field(u64::from(num_groups[2])))?;
        // Decoding has bounded the groups.
        let cooperative = packet.header.flags & flag::COOPERATIVE != 0;
        let grid = cooperative.then(|| Box::new(Grid::new(units as u32)));
        let info = LaunchInfo {
            global_offset: header.global_offset,
            global_size,
            num_groups,
            group_size: packet.group_size.map(u32::from),
            work_dim: u32::from(packet.work_dim),
            reserved: 0,
            grid_wait: grid::wait as *const () as u64,
            grid: grid.as_deref().map_or(0, |grid| std::ptr::from_ref(grid) as u64),
        };
        // The block is 64-byte aligned, so this cannot overflow.
        let args = packet.kernarg + ARGS_OFFSET;
        let scratch_bytes = packet.scratch_bytes as usize;
        let local_bytes = packet.header.param as usize;
        let entry = packet.entry;
        let is_independent = packet.header.flags & flag::INDEPENDENT != 0;
        let launch =
            Self { info, groups, entry, args, local_bytes, scratch_bytes, is_independent, grid };
        Ok((launch, units))
    }

    pub(crate) fn entry(&self) -> u64 {
        self.entry
    }

    /// Whether all groups have to run at the same time.
    pub(crate) fn is_cooperative(&self) -> bool {
        self.grid.is_some()
    }

    /// Whether no group waits for another one.
    pub(crate) fn is_independent(&self) -> bool {
        self.is_independent
    }

    /// Releases the grid's barrier, since some of the groups will never reach it.
    pub(crate) fn release(&self) {
        if let Some(grid) = &self.grid {
            grid.release();
        }
    }

    /// Runs `count` work-groups from number `first` on; x counts fastest.
    pub(crate) fn run(
        &self,
        guard: &mut Guard,
        arena: &mut Arena,
        first: u64,
        count: u64,
    ) -> Result<(), Trap> {
        arena.reserve(self.scratch_bytes)?;
        arena.touch_behind(self.local_bytes);
        let mut context = GroupContext {
            launch: &self.info,
            args: self.args as *const u8,
            local: arena.local(),
            scratch: arena.scratch(),
            group: [0; 3],
            reserved: 0,
        };
        // SAFETY: DISPATCH names the entry of a kernel. If it is anything else,
        // the client asked for running that, in its own process. The packet's
        // decoding has refused 0.
        let entry = unsafe { std::mem::transmute::<usize, KernelEntry>(self.entry as usize) };
        let [x, y, _] = self.groups;
        guard.run(|| {
            set_float_control();
            for group in first..first + count {
                context.group =
                    [(group % x) as u32, (group / x % y) as u32, (group / x / y) as u32];
                // SAFETY: in a guarded call; the context is as the kernel
                // expects it (SPEC.md, chapter 7).
                unsafe { entry(&context) };
            }
        })
    }
}

/// A worker's own local memory and scratch, reused from group to group.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    local: Block,
    scratch: Block,
    source: Option<GroupMemory>,
}

impl Arena {
    /// An arena whose memory comes from `source`.
    pub(crate) fn new(source: Option<GroupMemory>) -> Self {
        Self { source, ..Self::default() }
    }

    /// Makes room for any group, for a process that can map nothing later.
    /// Errors: no memory.
    pub(crate) fn reserve_all(&mut self) -> Result<(), Trap> {
        self.reserve(MAX_SCRATCH_BYTES as usize)
    }

    /// Makes room for a group. Errors: no memory.
    fn reserve(&mut self, scratch_bytes: usize) -> Result<(), Trap> {
        let source = self.source;
        self.local.reserve(MAX_LOCAL_BYTES as usize, PAGE, source)?;
        self.scratch.reserve(scratch_bytes.max(BLOCK_ALIGN as usize), 0, source)
    }

    /// Sees to it that the page behind a group's local memory is there.
    ///
    /// Kernels read a vector under a mask at the ends of local memory, as `i > 0 ? t[i - 1] : 0` does. If no item
    /// reads the part beyond the end, that does not fault, but where the page is not there, the processor takes
    /// about a thousand cycles to find that out, each time. The page in front is touched when it is mapped.
    fn touch_behind(&mut self, local_bytes: usize) {
        let behind = local_bytes.next_multiple_of(PAGE);
        if self.source.is_none() && behind < self.local.bytes {
            // SAFETY: within the mapping, which is the arena's own; the bytes belong to no group.
            unsafe { self.local.start.add(behind).write_volatile(0) };
        }
    }

    fn local(&self) -> *mut u8 {
        self.local.start
    }

    fn scratch(&self) -> *mut u8 {
        self.scratch.start
    }
}

/// Bytes of a page.
const PAGE: usize = 4096;

/// A page-aligned anonymous mapping, or memory of the owner. Untouched pages cost nothing.
#[derive(Debug)]
struct Block {
    start: *mut u8,
    bytes: usize,
    /// Mapped bytes in front of the start.
    lead: usize,
    /// The source that it came from.
    source: Option<GroupMemory>,
}

// SAFETY: only the block refers to the mapping, whichever thread has the block.
unsafe impl Send for Block {}

impl Default for Block {
    fn default() -> Self {
        Self { start: std::ptr::null_mut(), bytes: 0, lead: 0, source: None }
    }
}

impl Block {
    /// Makes room for so many bytes, with `lead` bytes of touched pages in front if they are not the owner's.
    fn reserve(
        &mut self,
        bytes: usize,
        lead: usize,
        source: Option<GroupMemory>,
    ) -> Result<(), Trap> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let bytes = bytes.next_power_of_two().max(1 << 16);
        let given = source.map_or(std::ptr::null_mut(), |source| (source.take)(bytes));
        if !given.is_null() {
            *self = Self { start: given, bytes, lead: 0, source };
            return Ok(());
        }
        // SAFETY: a fresh anonymous mapping touches nothing that exists.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                lead + bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(Trap::new(tally_uapi::fault::FaultKind::OutOfResources, 0));
        }
        let start = start.cast::<u8>();
        if lead > 0 {
            // SAFETY: the last of the lead's bytes, in the mapping that was just made.
            unsafe { start.add(lead - 1).write_volatile(0) };
        }
        // SAFETY: the mapping is longer than that.
        *self = Self { start: unsafe { start.add(lead) }, bytes, lead, source: None };
        Ok(())
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(source) = self.source {
            (source.give)(self.start, self.bytes);
        } else if self.bytes != 0 {
            // SAFETY: our own mapping, which no running group refers to; it begins with the lead.
            unsafe { libc::munmap(self.start.sub(self.lead).cast(), self.lead + self.bytes) };
        }
    }
}

/// The recent time of a group of a kernel, by the kernel's entry. It is an estimate that only decides how work
/// is shared out.
#[derive(Debug)]
pub(crate) struct KernelTimes {
    slots: Box<[Times]>,
}

/// Times in ticks, alone in its cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Times {
    entry: AtomicU64,
    average: AtomicU64,
}

impl KernelTimes {
    const SLOTS: usize = 256;

    pub(crate) fn new() -> Self {
        Self { slots: (0..Self::SLOTS).map(|_| Times::default()).collect() }
    }

    fn slot(&self, entry: u64) -> &Times {
        &self.slots[(entry >> 4 ^ entry >> 12) as usize % Self::SLOTS]
    }

    /// Ticks of a group on average, if known.
    pub(crate) fn get(&self, entry: u64) -> Option<u64> {
        let times =
            Some(self.slot(entry)).filter(|times| times.entry.load(Ordering::Relaxed) == entry);
        times.map(|times| times.average.load(Ordering::Relaxed))
    }

    /// Notes that a group has taken `ticks`.
    ///
    /// Small differences are not written, since all threads that run the kernel read the slot.
    pub(crate) fn put(&self, entry: u64, ticks: u64) {
        /// Differences below this many ticks decide nothing.
        const LITTLE: u64 = 100;
        let times = self.slot(entry);
        let Some(before) = self.get(entry) else {
            times.average.store(ticks, Ordering::Relaxed);
            times.entry.store(entry, Ordering::Relaxed);
            return;
        };
        if before.abs_diff(ticks) > before / 4 + LITTLE {
            times.average.store(before / 2 + ticks / 2, Ordering::Relaxed);
        }
    }
}
