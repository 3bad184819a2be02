// SPDX-License-Identifier: GPL-2.0
//! Waits in which no thread sleeps. Each tells its target once: when it is met, when its VM or the device has
//! ended, or when the file is closed.
//!
//! A wake comes from the interrupt thread under a spinlock. So it only marks the wait and queues the work item of
//! its open file, which reads the cells of the marked waits.

use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Full};
use kernel::sync::{new_mutex, Arc, Mutex};
use kernel::workqueue::{self, impl_has_work, new_work, Work, WorkItem};

use crate::account::Charge;
use crate::object::vm::Vm;
use crate::progress::{ended, Lists, Progress};
use crate::raw::target::Target;
use crate::raw::work;
use crate::sleepers::{Places, Sleeper};
use crate::state::State;

/// The waits of an open file that tell a target.
#[pin_data]
pub(crate) struct Notifier {
    #[pin]
    armed: Mutex<KVec<KBox<Armed>>>,
    #[pin]
    work: Work<Notifier>,
    state: Arc<State>,
}

impl_has_work! {
    impl HasWork<Self> for Notifier { self.work }
}

/// A wait that was not over when it was last looked at.
struct Armed {
    progress: Progress,
    mark: Arc<Mark>,
    places: Places<Lists>,
    vm: Option<Arc<Vm>>,
    charge: Charge,
    target: Target,
}

/// A wait's entry in the lists of sleepers. It refers to the notifier, which owns the wait; closing the file
/// breaks this cycle.
struct Mark {
    /// Whether the wait was woken since it was last looked at.
    woken: Atomic<bool>,
    notifier: Arc<Notifier>,
}

impl Sleeper for Mark {
    fn wake(&self) {
        self.woken.xchg(true, Full);
        // If the work item is queued already, it will see the mark.
        let _ = workqueue::system_long().enqueue(self.notifier.clone());
    }
}

impl WorkItem for Notifier {
    type Pointer = Arc<Notifier>;

    fn run(this: Arc<Notifier>) {
        let mut from = 0;
        while let Some(armed) = this.next_over(&mut from) {
            Armed::tell(armed);
        }
    }
}

impl Notifier {
    /// A notifier without waits.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new(state: Arc<State>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                armed <- new_mutex!(KVec::new()),
                work <- new_work!("tally_notifier"),
                state,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Arms a wait that tells `target` when it is over, which may be before this returns.
    ///
    /// # Errors
    /// After an error, the target is told nothing. EIO: the VM is lost. ENODEV: the device is gone. ENOMEM.
    pub(crate) fn arm(
        self: &Arc<Self>,
        progress: Progress,
        vm: Option<Arc<Vm>>,
        charge: Charge,
        target: Target,
    ) -> Result {
        let mark = Mark {
            woken: Atomic::new(false),
            notifier: self.clone(),
        };
        let mark = Arc::new(mark, GFP_KERNEL_ACCOUNT)?;
        let lists = Lists(self.state.clone());
        let places = Places::enter(lists, mark.clone(), progress.places())?;
        let armed = Armed {
            progress,
            mark,
            places,
            vm,
            charge,
            target,
        };
        let mut armed = KBox::new(armed, GFP_KERNEL_ACCOUNT)?;
        let mut all = self.armed.lock();
        // A work item that a wake queues from now on waits for the lock, and then finds the wait in the list.
        match armed.outcome(&self.state) {
            Some(outcome) => {
                drop(all);
                outcome.map(|()| Armed::tell(armed))
            }
            None => Ok(all.push(armed, GFP_KERNEL_ACCOUNT)?),
        }
    }

    /// Removes the next wait, from index `from` on, that was woken and is over.
    fn next_over(&self, from: &mut usize) -> Option<KBox<Armed>> {
        let mut all = self.armed.lock();
        while let Some(armed) = all.get_mut(*from) {
            let woken = armed.mark.woken.xchg(false, Full);
            if woken && armed.outcome(&self.state).is_some() {
                return all.remove(*from).ok();
            }
            *from += 1;
        }
        None
    }

    /// Ends all waits because the file is closed, and tells their targets. No code of the notifier runs
    /// afterwards.
    pub(crate) fn close(self: &Arc<Self>) {
        let rest = core::mem::take(&mut *self.armed.lock());
        for armed in rest {
            Armed::tell(armed);
        }
        // The waits have left the lists of sleepers, so nothing queues the work item any more.
        work::cancel_shared(self);
    }
}

impl Armed {
    /// The outcome of the wait, if it has ended: it is met, or it cannot continue.
    fn outcome(&mut self, state: &State) -> Option<Result> {
        match self.progress.look() {
            Some(_) => Some(Ok(())),
            None => ended(state, self.vm.as_deref()).err().map(Err),
        }
    }

    /// Tells the target, after everything else was released. The caller holds no lock.
    fn tell(armed: KBox<Self>) {
        let Self {
            progress,
            mark,
            places,
            vm,
            charge,
            target,
        } = KBox::into_inner(armed);
        drop((places, mark, progress, vm, charge));
        target.tell();
    }
}
