// SPDX-License-Identifier: MIT OR Apache-2.0
//! Host threads in SEM_WAIT, and their wakes.
//!
//! A thread that sleeps is counted in the waiters words of its cells, which makes
//! every signaller raise an interrupt for the bucket, so nothing is polled. The
//! interrupt reads the cells first: a counter that grows by one with every command
//! of a list wakes its sleeper once and not with every command.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tally_device::{Device, Host, QueueId, VmId, Wakeup, monotonic_ns};
use tally_uapi::cell::{Compare, WAITERS, waiter_enters, waiter_leaves};
use tally_uapi::fault::Fault;
use tally_uapi::ioctl::{Errno, SEM_WAIT_MAX_ENTRIES, SemWait, SemWaitEntry, sem_wait_flag};

use super::buffer::Buffer;
use super::watches::Watches;
use super::window::Window;
use crate::backend::Result;
use crate::checks;

/// Copies the entries of a SEM_WAIT, after the checks of its own fields.
///
/// # Errors
/// EINVAL, EFAULT. EOPNOTSUPP: a file is requested, which only a real kernel can make.
///
/// # Safety
/// `count` entries may be read at `entries`.
pub(super) unsafe fn entries(arg: &SemWait) -> Result<Vec<SemWaitEntry>> {
    if arg.flags & !sem_wait_flag::ALL != 0 || arg.count == 0 || arg.count > SEM_WAIT_MAX_ENTRIES {
        return Err(Errno::Invalid);
    }
    if arg.flags & sem_wait_flag::FILE != 0 {
        return Err(Errno::NotSupported);
    }
    if arg.entries == 0 {
        return Err(Errno::Fault);
    }
    let entry = |i| {
        // SAFETY: the caller guarantees that the entries are readable; they need not be aligned.
        unsafe { (arg.entries as *const SemWaitEntry).add(i).read_unaligned() }
    };
    Ok((0..arg.count as usize).map(entry).collect())
}

/// One decoded entry.
pub(super) struct Cell<'a> {
    cell: &'a AtomicU64,
    compare: Compare,
    value: u64,
    bucket: usize,
}

impl<'a> Cell<'a> {
    /// # Errors
    /// EINVAL: unknown comparison. ENOMEM.
    pub(super) fn new(entry: &SemWaitEntry, buffer: &'a Buffer, bucket: usize) -> Result<Self> {
        let compare = u8::try_from(entry.compare).ok().and_then(Compare::from_raw);
        let compare = compare.ok_or(Errno::Invalid)?;
        Ok(Self { cell: buffer.cell(entry.offset)?, compare, value: entry.value, bucket })
    }

    fn met(&self) -> bool {
        self.compare.met(self.cell.load(Ordering::Acquire), self.value)
    }
}

/// A sleeper in a bucket, with the cell that it sleeps on there.
struct Listed {
    sleeper: Arc<Wakeup>,
    /// The VM that the wait named, or 0.
    vm: u32,
    cell: NonNull<AtomicU64>,
    compare: Compare,
    value: u64,
}

// SAFETY: the cell is an atomic that any thread may read while the entry is listed (see `met`).
unsafe impl Send for Listed {}

impl Listed {
    fn new(sleeper: &Arc<Wakeup>, vm: u32, cell: &Cell<'_>) -> Self {
        let (compare, value) = (cell.compare, cell.value);
        Self { sleeper: Arc::clone(sleeper), vm, cell: cell.cell.into(), compare, value }
    }

    /// Whether the cell is met now.
    ///
    /// # Safety
    /// The entry is in its bucket, which is locked. The wait that lends it the cell removes the entry before
    /// it ends.
    unsafe fn met(&self) -> bool {
        // SAFETY: as the caller promises.
        let cell = unsafe { self.cell.as_ref() };
        self.compare.met(cell.load(Ordering::Acquire), self.value)
    }
}

/// A bucket, alone in its cache lines, so that waits for different cells share no lock.
#[derive(Default)]
#[repr(align(128))]
struct Bucket(Mutex<Vec<Listed>>);

impl Bucket {
    fn lock(&self) -> MutexGuard<'_, Vec<Listed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All threads that sleep in SEM_WAIT.
pub(super) struct Sleepers {
    buckets: Box<[Bucket]>,
    /// Watchers, which do not sleep but are notified, too.
    pub(super) watches: Watches,
}

impl Default for Sleepers {
    fn default() -> Self {
        let buckets = (0..WAITERS).map(|_| Bucket::default()).collect();
        Self { buckets, watches: Watches::default() }
    }
}

impl Host for Sleepers {
    fn semaphore_interrupt(&self, bucket: usize) {
        self.interrupt(bucket);
    }

    fn vm_lost(&self, vm: VmId, queue: QueueId, fault: Fault) {
        log::error!(
            "GPU VM {} is lost: {} at {:#x}, queue {}, packet {}",
            vm.0,
            fault.kind.name(),
            fault.address,
            queue.0,
            fault.packet
        );
        if let Some(checks) = checks::get() {
            checks.faulted(fault);
        }
        self.wake_vm(vm.0);
    }
}

impl Sleepers {
    /// Called when a cell of the bucket was written: wakes the sleepers whose cell is met.
    pub(super) fn interrupt(&self, bucket: usize) {
        let listed = self.buckets[bucket].lock();
        // SAFETY: the entries are in their bucket, which is locked.
        let met = listed.iter().filter(|it| unsafe { it.met() });
        let met: Vec<_> = met.map(|it| Arc::clone(&it.sleeper)).collect();
        // Woken without the lock: otherwise they would try to take it before it is free.
        drop(listed);
        met.iter().for_each(|sleeper| sleeper.notify());
        self.watches.signalled(bucket);
    }

    /// Wakes the sleepers that named a VM, which was lost or destroyed.
    pub(super) fn wake_vm(&self, vm: u32) {
        for bucket in &self.buckets {
            let of_vm: Vec<_> = bucket
                .lock()
                .iter()
                .filter(|it| it.vm == vm)
                .map(|it| Arc::clone(&it.sleeper))
                .collect();
            of_vm.iter().for_each(|sleeper| sleeper.notify());
        }
        self.watches.vm_lost(vm);
    }

    /// Sleeps until all cells (or, with ANY, one) have been seen met. Returns the
    /// index of the first one that is met.
    ///
    /// # Errors
    /// ETIME, EIO.
    pub(super) fn wait(
        &self,
        device: &Device,
        cells: &[Cell<'_>],
        vm: Option<(u32, &Window)>,
        flags: u32,
        timeout_ns: i64,
    ) -> Result<u32> {
        let mut seen = Seen { met: 0, any: flags & sem_wait_flag::ANY != 0 };
        if let Some(index) = seen.look(cells) {
            return Ok(index);
        }
        if vm.is_some_and(|(_, vm)| vm.is_over()) {
            return Err(Errno::Io);
        }
        if time_left(timeout_ns) == Some(Duration::ZERO) {
            return Err(Errno::TimedOut);
        }
        let sleeper = Arc::new(Wakeup::default());
        let vm_id = vm.map_or(0, |(id, _)| id);
        for cell in cells {
            self.buckets[cell.bucket].lock().push(Listed::new(&sleeper, vm_id, cell));
            let waiters = device.waiters(cell.bucket);
            if !waiter_enters(waiters, cell.cell, cell.compare, cell.value) {
                // The wait was met meanwhile: this makes the loop below look before it sleeps.
                sleeper.notify();
            }
        }
        let result = loop {
            if let Some(index) = seen.look(cells) {
                break Ok(index);
            }
            // Checked after the wait is listed, since destroying the VM before that did not wake it.
            if vm.is_some_and(|(_, vm)| vm.is_over()) {
                break Err(Errno::Io);
            }
            let left = time_left(timeout_ns);
            if left == Some(Duration::ZERO) {
                break Err(Errno::TimedOut);
            }
            match left {
                None => sleeper.wait(),
                Some(left) => sleeper.wait_for(left),
            }
        };
        for cell in cells {
            let mut bucket = self.buckets[cell.bucket].lock();
            if let Some(at) = bucket.iter().position(|it| Arc::ptr_eq(&it.sleeper, &sleeper)) {
                bucket.swap_remove(at);
            }
            drop(bucket);
            waiter_leaves(device.waiters(cell.bucket));
        }
        result
    }
}

/// The cells that were seen met, at any time.
struct Seen {
    met: u64,
    any: bool,
}

impl Seen {
    /// Looks at all cells, and returns the index of the first one that is met if the wait is met.
    fn look(&mut self, cells: &[Cell<'_>]) -> Option<u32> {
        for (i, cell) in cells.iter().enumerate() {
            if cell.met() {
                self.met |= 1 << i;
            }
        }
        let enough =
            if self.any { self.met != 0 } else { self.met.count_ones() as usize == cells.len() };
        enough.then(|| self.met.trailing_zeros())
    }
}

const _: () = assert!(SEM_WAIT_MAX_ENTRIES <= u64::BITS);

/// Time until an absolute CLOCK_MONOTONIC time; None: without a limit.
fn time_left(timeout_ns: i64) -> Option<Duration> {
    if timeout_ns == i64::MAX {
        return None;
    }
    let until = u64::try_from(timeout_ns).unwrap_or(0);
    Some(Duration::from_nanos(until.saturating_sub(monotonic_ns())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tally_device::Config;

    /// "a counter that grows by one with every command of a list wakes its sleeper once and not with every
    /// command."
    #[test]
    fn who_sleeps_on_a_counter_is_woken_when_it_is_there() {
        let sleepers = Sleepers::default();
        let sleeper = Arc::new(Wakeup::default());
        let word = AtomicU64::new(0);
        let cell = Cell { cell: &word, compare: Compare::GreaterEqual, value: 3, bucket: 5 };
        sleepers.buckets[5].lock().push(Listed::new(&sleeper, 0, &cell));
        let woken = || sleeper.is_notified();
        for value in 1..=3 {
            word.store(value, Ordering::Release);
            sleepers.interrupt(4);
            assert!(!woken(), "another bucket's");
            sleepers.interrupt(5);
            assert_eq!(woken(), value == 3, "at {value}");
        }
    }

    /// VM_DESTROY: "SEM_WAITs that name the VM end with EIO", even one that is listed only afterwards.
    #[test]
    fn a_wait_with_a_vm_that_went_before_it_was_listed_ends() {
        let sleepers = Arc::new(Sleepers::default());
        let device = Device::new(Config::default(), Arc::<Sleepers>::clone(&sleepers));
        let device = device.expect("threads");
        let word = AtomicU64::new(0);
        let cell = Cell { cell: &word, compare: Compare::GreaterEqual, value: 1, bucket: 0 };
        let window = Window::new(0, 4096, device.create_vm(VmId(1)));
        // The VM was looked up before VM_DESTROY, and the wait begins after it.
        window.gone.store(true, Ordering::Release);
        sleepers.wake_vm(1);
        let soon = i64::try_from(monotonic_ns()).unwrap() + 60_000_000_000;
        let waited = sleepers.wait(&device, &[cell], Some((1, &window)), 0, soon);
        assert_eq!(waited, Err(Errno::Io));
        assert!(sleepers.buckets[0].lock().is_empty());
    }
}
