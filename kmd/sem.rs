// SPDX-License-Identifier: GPL-2.0
//! Hosts that sleep on cells: SEM_WAIT and SEM_WAKE.
//!
//! A sleeper is in the list of every bucket that one of its cells is in, and is
//! counted there in the waiters page, which the device reads after each signal
//! (`device/SPEC.md`, chapters 6 and 14). Only then it looks at its cells and
//! sleeps: so either it sees the signal, or the signaller sees it.
//!
//! All this outlives the hardware: sleepers are woken when the device goes, and
//! leave their lists later.

use core::sync::atomic::{fence, Ordering};

use kernel::list::{impl_list_arc_safe, impl_list_item, List, ListArc, ListLinks};
use kernel::prelude::*;
use kernel::sync::{new_spinlock, Arc, SpinLock};
use kernel::uaccess::{UserPtr, UserSlice};
use tally_uapi::cell::{waiters_index, Compare, CELL_SIZE, WAITERS};
use tally_uapi::firmware::WaitersPage;
use tally_uapi::ioctl::{sem_wait_flag, SemWait, SemWaitEntry, SemWake, SEM_WAIT_MAX_ENTRIES};
use tally_uapi::regs::WAKE_FOREIGN;
use zerocopy::{FromZeros, IntoBytes};

use crate::file::TallyFile;
use crate::gem::BoRef;
use crate::gpu::Gpu;
use crate::raw::{monotonic_ns, Interrupted, PinnedWord, Waiter};
use crate::shared::Shared;
use crate::state::{Count, State};
use crate::vm::Vm;

/// A thread in SEM_WAIT, as the lists have it: one for each bucket of its cells.
#[pin_data]
struct Link {
    waiter: Arc<Waiter>,
    about: About,
    #[pin]
    links: ListLinks,
}

/// What somebody sleeps on, for people: of the cells in a bucket the first.
#[derive(Clone, Copy)]
pub(crate) struct About {
    /// The thread.
    pub(crate) thread: i32,
    /// The cell's place in its page, in bytes.
    pub(crate) place: usize,
    /// What it held when the thread looked first.
    pub(crate) cell: u64,
    /// How it is compared with `value`.
    pub(crate) compare: Compare,
    /// What it is compared with.
    pub(crate) value: u64,
}

impl_list_arc_safe! {
    impl ListArcSafe<0> for Link { untracked; }
}
impl_list_item! {
    impl ListItem<0> for Link { using ListLinks { self.links }; }
}

/// Everybody who sleeps, by bucket.
#[pin_data]
pub(crate) struct Sleepers {
    #[pin]
    inner: SpinLock<Inner>,
}

struct Inner {
    lists: KVVec<List<Link>>,
    /// What the device reads; none while there is no device.
    page: Option<Arc<Shared<WaitersPage>>>,
}

impl Inner {
    fn count(&self, bucket: usize, change: impl Fn(&tally_uapi::sync::AtomicU32)) {
        let page = self.page.as_ref().and_then(|page| page.atomics());
        if let Some(word) = page.and_then(|page| page.waiters.get(bucket)) {
            change(word);
        }
    }
}

impl Sleepers {
    /// Nobody sleeps.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            inner <- new_spinlock!(Inner {
                lists: {
                    let mut lists = KVVec::with_capacity(WAITERS, GFP_KERNEL)?;
                    for _ in 0..WAITERS {
                        lists.push(List::new(), GFP_KERNEL)?;
                    }
                    lists
                },
                page: None,
            }),
        }? Error)
    }

    /// From now on the device reads `page`: counts in it who sleeps already. `None`:
    /// the page is not written any more.
    pub(crate) fn publish_to(&self, page: Option<Arc<Shared<WaitersPage>>>) {
        let mut inner = self.inner.lock();
        let before = core::mem::replace(&mut inner.page, page);
        for bucket in 0..WAITERS {
            let sleeping = inner.lists.get(bucket).map_or(0, |list| list.iter().count()) as u32;
            inner.count(bucket, |word| word.store(sleeping, Ordering::Relaxed));
        }
        drop(inner);
        // Outside of the lock: freeing it may sleep.
        drop(before);
    }

    fn enter(&self, bucket: usize, link: ListArc<Link>) -> Arc<Link> {
        let arc = link.clone_arc();
        let mut inner = self.inner.lock();
        if let Some(list) = inner.lists.get_mut(bucket) {
            list.push_back(link);
        }
        inner.count(bucket, |word| {
            word.fetch_add(1, Ordering::Relaxed);
        });
        arc
    }

    fn leave(&self, bucket: usize, link: &Link) {
        let mut inner = self.inner.lock();
        // SAFETY: a link is only ever in the list of its bucket.
        let removed = inner.lists.get_mut(bucket).and_then(|list| unsafe { list.remove(link) });
        inner.count(bucket, |word| {
            word.fetch_sub(1, Ordering::Release);
        });
        drop(inner);
        drop(removed);
    }

    /// Wakes who sleeps on a cell of `bucket`.
    pub(crate) fn wake(&self, bucket: usize) {
        let inner = self.inner.lock();
        for link in inner.lists.get(bucket).into_iter().flat_map(List::iter) {
            link.waiter.wake();
        }
    }

    /// Wakes everybody: something else than a cell has changed.
    pub(crate) fn wake_all(&self) {
        for bucket in 0..WAITERS {
            self.wake(bucket);
        }
    }

    /// How many cells are slept on.
    pub(crate) fn asleep(&self) -> usize {
        self.inner.lock().lists.iter().map(|list| list.iter().count()).sum()
    }

    /// Who sleeps on what, as far as there is room in `out`; returns for how many there was none.
    pub(crate) fn about(&self, out: &mut KVec<About>) -> usize {
        let inner = self.inner.lock();
        let all = inner.lists.iter().flat_map(List::iter);
        all.filter(|link| out.push_within_capacity(link.about).is_err()).count()
    }
}

/// One entry of a wait.
struct Cell {
    /// Keeps the memory.
    _bo: BoRef,
    word: PinnedWord,
    compare: Compare,
    value: u64,
    bucket: usize,
}

impl Cell {
    fn new(lookup: &impl Fn(u32) -> Result<BoRef>, entry: &SemWaitEntry) -> Result<Self> {
        let compare = u8::try_from(entry.compare).ok().and_then(Compare::from_raw).ok_or(EINVAL)?;
        if entry.offset % CELL_SIZE != 0 {
            return Err(EINVAL);
        }
        let bo = lookup(entry.handle)?;
        let word = PinnedWord::new(&bo, entry.offset)?;
        Ok(Self { _bo: bo, word, compare, value: entry.value, bucket: waiters_index(entry.offset) })
    }

    fn read(&self) -> u64 {
        self.word.load()
    }

    fn met(&self) -> bool {
        self.compare.met(self.read(), self.value)
    }
}

/// The sleeper's places in the lists; leaves them when dropped.
struct Places<'a> {
    sleepers: &'a Sleepers,
    links: KVec<(usize, Arc<Link>)>,
}

impl<'a> Places<'a> {
    fn enter(sleepers: &'a Sleepers, waiter: &Arc<Waiter>, cells: &[Cell]) -> Result<Self> {
        let mut places =
            Self { sleepers, links: KVec::with_capacity(cells.len(), GFP_KERNEL_ACCOUNT)? };
        for cell in cells {
            if places.links.iter().any(|(bucket, _)| *bucket == cell.bucket) {
                continue;
            }
            let waiter = waiter.clone();
            let about = About {
                thread: kernel::current!().pid(),
                place: cell.bucket * CELL_SIZE as usize,
                cell: cell.read(),
                compare: cell.compare,
                value: cell.value,
            };
            let link = ListArc::pin_init(
                try_pin_init!(Link { waiter, about, links <- ListLinks::new() }),
                GFP_KERNEL_ACCOUNT,
            )?;
            places
                .links
                .push((cell.bucket, sleepers.enter(cell.bucket, link)), GFP_KERNEL_ACCOUNT)?;
        }
        // Between the counting and the look at the cells (`uapi/src/cell.rs`).
        fence(Ordering::SeqCst);
        Ok(places)
    }
}

impl Drop for Places<'_> {
    fn drop(&mut self) {
        for (bucket, link) in &self.links {
            self.sleepers.leave(*bucket, link);
        }
    }
}

/// What a wait is for; remembers which entries of an ALL wait were met.
struct Wait {
    cells: KVec<Cell>,
    met: u64,
    any: bool,
}

impl Wait {
    /// The index of the first entry that is met, once the wait as a whole is.
    fn look(&mut self) -> Option<u32> {
        for (index, cell) in self.cells.iter().enumerate() {
            if self.met & 1 << index == 0 && cell.met() {
                self.met |= 1 << index;
            }
        }
        let all = u64::MAX >> (64 - self.cells.len());
        let done = if self.any { self.met != 0 } else { self.met == all };
        done.then(|| self.met.trailing_zeros())
    }
}

/// IOCTL: SEM_WAIT: sleeps until cells are met.
///
/// Holds no registration guard: a sleeper must not keep the driver from unbinding.
pub(crate) fn wait(
    state: &State,
    file: &TallyFile,
    lookup: impl Fn(u32) -> Result<BoRef>,
    arg: &mut SemWait,
) -> Result {
    if arg.flags & !sem_wait_flag::ANY != 0 || !(1..=SEM_WAIT_MAX_ENTRIES).contains(&arg.count) {
        return Err(EINVAL);
    }
    let mut reader = UserSlice::new(
        UserPtr::from_addr(usize::try_from(arg.entries).map_err(|_| EFAULT)?),
        arg.count as usize * size_of::<SemWaitEntry>(),
    )
    .reader();
    let mut cells = KVec::with_capacity(arg.count as usize, GFP_KERNEL_ACCOUNT)?;
    for _ in 0..arg.count {
        let mut entry = SemWaitEntry::new_zeroed();
        reader.read_slice(entry.as_mut_bytes())?;
        cells.push(Cell::new(&lookup, &entry)?, GFP_KERNEL_ACCOUNT)?;
    }
    let vm = match arg.vm_id {
        0 => None,
        id => Some(state.vms.get(file.id(), id)?),
    };
    let mut wait = Wait { cells, met: 0, any: arg.flags & sem_wait_flag::ANY != 0 };
    arg.index = match wait.look() {
        Some(index) => index,
        None => sleep(state, &mut wait, vm.as_deref(), arg.timeout_ns)?,
    };
    Ok(())
}

fn sleep(state: &State, wait: &mut Wait, vm: Option<&Vm>, deadline_ns: i64) -> Result<u32> {
    // Why the wait cannot go on, if so. Looked at after the cells: what is met counts.
    let ended = || {
        if state.gone() {
            Err(ENODEV)
        } else if vm.is_some_and(|vm| vm.lost() || vm.ended()) {
            Err(EIO)
        } else {
            Ok(())
        }
    };
    if deadline_ns <= monotonic_ns() {
        ended()?;
        return Err(ETIME);
    }
    state.count(Count::Sleeps);
    let waiter = Arc::pin_init(Waiter::new(), GFP_KERNEL_ACCOUNT)?;
    let _places = Places::enter(&state.sleepers, &waiter, &wait.cells)?;
    loop {
        if let Some(index) = wait.look() {
            return Ok(index);
        }
        ended()?;
        let slept = waiter.sleep(deadline_ns, false);
        waiter.rearm();
        if let Err(why) = slept {
            return match (wait.look(), why) {
                (Some(index), _) => Ok(index),
                (None, Interrupted::Late) => Err(ETIME),
                (None, Interrupted::Signal) => Err(EINTR),
            };
        }
    }
}

/// IOCTL: SEM_WAKE: the host wrote a cell, whose waiters look again.
pub(crate) fn wake(gpu: &Gpu<'_>, lookup: impl Fn(u32) -> Result<BoRef>, arg: &SemWake) -> Result {
    if arg.pad != 0 || arg.offset % CELL_SIZE != 0 || arg.handle == 0 && arg.offset != 0 {
        return Err(EINVAL);
    }
    // The caller's store comes before the look at the lists and the device's look.
    fence(Ordering::SeqCst);
    if arg.handle == 0 {
        gpu.regs().wake(WAKE_FOREIGN);
        return Ok(());
    }
    if arg.offset >= lookup(arg.handle)?.bytes() {
        return Err(EINVAL);
    }
    let bucket = waiters_index(arg.offset);
    gpu.state().sleepers.wake(bucket);
    gpu.regs().wake(bucket as u32);
    Ok(())
}
