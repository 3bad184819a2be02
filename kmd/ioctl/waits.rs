// SPDX-License-Identifier: GPL-2.0
//! SEM_WAIT, SEM_NOTIFY and SEM_WAKE: host threads that sleep on cells, poll a file for them or have a target
//! told, and signals by the host.

use core::sync::atomic::{fence, Ordering};

use kernel::drm;
use kernel::fs::file::{flags, FileDescriptorReservation};
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::{new_mutex, Arc, Mutex};
use kernel::uaccess::{UserPtr, UserSlice};
use tally_uapi::cell::waiters_index;
use tally_uapi::ioctl::{SemNotify, SemWait, SemWaitEntry, SemWake};
use tally_uapi::regs::WAKE_FOREIGN;
use zerocopy::{FromZeros, IntoBytes};

use crate::account::{Charge, WAIT};
use crate::buffer::BoRef;
use crate::device::TallyDevice;
use crate::file::TallyFile;
use crate::gpu::Gpu;
use crate::object::vm::Vm;
use crate::progress::{ended, Cell, Lists, Progress};
use crate::raw::poll::{self, Polled, Readiness};
use crate::raw::target::{Eventfd, Point, Target};
use crate::raw::time::monotonic_ns;
use crate::raw::wait::{Interrupted, Sleep, Waiter};
use crate::request::{Condition, Entries, Notify, NotifyTarget, Wait, Wake};
use crate::sleepers::Places;
use crate::state::{Count, State};

/// IOCTL: SEM_WAIT: sleeps until cells are met.
///
/// Holds no registration guard: a sleeper must not keep the driver from unbinding.
pub(super) fn wait(
    state: &State,
    file: &TallyFile,
    lookup: impl Fn(u32) -> Result<BoRef>,
    arg: &mut SemWait,
) -> Result {
    let asked = Wait::try_from(&*arg)?;
    let mut progress = progress(lookup, &asked.entries)?;
    let vm = asked
        .entries
        .vm
        .map(|id| state.vms.get(file.id(), id))
        .transpose()?;
    arg.index = match progress.look() {
        _ if asked.file => open(file, progress, vm)?,
        Some(index) => index,
        None => sleep(state, &mut progress, vm.as_deref(), asked.deadline_ns)?,
    };
    Ok(())
}

/// Reads the entries of a wait, of which none was looked at yet.
fn progress(lookup: impl Fn(u32) -> Result<BoRef>, asked: &Entries) -> Result<Progress> {
    let place = UserPtr::from_addr(usize::try_from(asked.address).map_err(|_| EFAULT)?);
    let mut reader = UserSlice::new(place, asked.count * size_of::<SemWaitEntry>()).reader();
    let mut cells = KVec::with_capacity(asked.count, GFP_KERNEL_ACCOUNT)?;
    for _ in 0..asked.count {
        let mut entry = SemWaitEntry::new_zeroed();
        reader.read_slice(entry.as_mut_bytes())?;
        let condition = Condition::try_from(&entry)?;
        cells.push(Cell::new(&lookup, &condition)?, GFP_KERNEL_ACCOUNT)?;
    }
    Ok(Progress::new(cells, asked.any))
}

fn sleep(state: &State, progress: &mut Progress, vm: Option<&Vm>, deadline_ns: i64) -> Result<u32> {
    let ended = || ended(state, vm);
    if deadline_ns <= monotonic_ns() {
        ended()?;
        return Err(ETIME);
    }
    state.count(Count::Sleeps);
    let waiter = Arc::pin_init(Waiter::new(), GFP_KERNEL_ACCOUNT)?;
    let _places = Places::enter(&state.sleepers, waiter.clone(), progress.places())?;
    loop {
        if let Some(index) = progress.look() {
            return Ok(index);
        }
        ended()?;
        let slept = waiter.sleep(deadline_ns, Sleep::Interruptible);
        waiter.rearm();
        if let Err(why) = slept {
            return match (progress.look(), why) {
                (Some(index), _) => Ok(index),
                (None, Interrupted::Late) => Err(ETIME),
                (None, Interrupted::Signal) => Err(EINTR),
            };
        }
    }
}

/// The data of a wait's file. Fields are dropped in this order: the device outlives the buffers.
#[pin_data]
struct WaitFile {
    #[pin]
    watch: Mutex<Watch>,
    waiter: Arc<Waiter>,
    vm: Option<Arc<Vm>>,
    _charge: Charge,
    state: Arc<State>,
    _dev: ARef<TallyDevice>,
}

struct Watch {
    progress: Progress,
    /// Its places in the lists. None once the wait is met: it needs no more signals.
    places: Option<Places<Lists>>,
}

impl Polled for WaitFile {
    fn waiter(&self) -> &Waiter {
        &self.waiter
    }

    fn state(&self) -> Readiness {
        let mut watch = self.watch.lock();
        let woken = self.waiter.rearm();
        if watch.progress.look().is_some() {
            // The signal may not have arrived here yet, and would then find no waiter in the lists. So this
            // wakes pollers that looked before, unless a wake since then has done it.
            if watch.places.take().is_some() && !woken {
                self.waiter.wake();
            }
            return Readiness::Ready;
        }
        match ended(&self.state, self.vm.as_deref()) {
            Ok(()) => Readiness::Waiting,
            Err(error) if error == ENODEV => Readiness::Gone,
            Err(_) => Readiness::Failed,
        }
    }
}

/// Makes a file for a wait. Returns its descriptor.
fn open(file: &TallyFile, progress: Progress, vm: Option<Arc<Vm>>) -> Result<u32> {
    let charge = Charge::take(file.account(), WAIT)?;
    let waiter = Arc::pin_init(Waiter::new(), GFP_KERNEL_ACCOUNT)?;
    let state = file.state();
    // Entered before the first poll reads the cells.
    let places = Places::enter(Lists(state.clone()), waiter.clone(), progress.places())?;
    let about = KBox::pin_init(
        pin_init!(WaitFile {
            watch <- new_mutex!(Watch { progress, places: Some(places) }),
            waiter,
            vm,
            _charge: charge,
            state: state.clone(),
            _dev: file.device().into(),
        }),
        GFP_KERNEL_ACCOUNT,
    )?;
    let descriptor = FileDescriptorReservation::get_unused_fd_flags(flags::O_CLOEXEC)?;
    let opened = poll::file(about)?;
    let number = descriptor.reserved_fd();
    descriptor.fd_install(opened);
    Ok(number)
}

/// IOCTL: SEM_NOTIFY: arms a wait that tells a target once, when it is over.
pub(super) fn notify(
    drm_file: &drm::File<TallyFile>,
    lookup: impl Fn(u32) -> Result<BoRef>,
    arg: &SemNotify,
) -> Result {
    let file = drm_file.inner();
    let Notify { entries, target } = Notify::try_from(arg)?;
    let state = file.state();
    let progress = progress(lookup, &entries)?;
    let vm = entries
        .vm
        .map(|id| state.vms.get(file.id(), id))
        .transpose()?;
    let target = match target {
        NotifyTarget::Eventfd(number) => Target::Eventfd(Eventfd::get(number)?),
        NotifyTarget::Point(handle, at) => Target::Point(Point::new(drm_file, handle, at)?),
    };
    let charge = Charge::take(file.account(), WAIT)?;
    file.notifier().arm(progress, vm, charge, target)
}

/// IOCTL: SEM_WAKE: the host wrote a cell, so its waiters look again.
pub(super) fn wake(gpu: &Gpu<'_>, lookup: impl Fn(u32) -> Result<BoRef>, arg: &SemWake) -> Result {
    let wake = Wake::try_from(arg)?;
    // Orders the caller's store before the look at the lists and before the device's look.
    fence(Ordering::SeqCst);
    match wake {
        Wake::Foreign => gpu.wake(WAKE_FOREIGN),
        Wake::Cell { handle, offset } => {
            if offset >= lookup(handle)?.bytes() {
                return Err(EINVAL);
            }
            let bucket = waiters_index(offset);
            // The device takes one register write at a time, for all clients. A wake without a waiter needs
            // none.
            if gpu.state().sleepers.wake_for_host(bucket) {
                gpu.wake(bucket as u32);
            }
        }
    }
    Ok(())
}
