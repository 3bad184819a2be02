// SPDX-License-Identifier: GPL-2.0
//! The hardware while the driver is bound: start, interrupts, reset, and the end.
//!
//! What happens to memory that the device uses is decided here. It is freed when
//! the device has answered that it is done with it, or when a reset is complete.
//! A device that does neither keeps the memory for ever: it is counted, reported,
//! and never given to anybody else.

use core::sync::atomic::Ordering;

use kernel::device::Bound;
use kernel::pci;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::atomic::{Acquire, Atomic, Release};
use kernel::sync::{new_mutex, Arc, Mutex, SetOnce};
use kernel::time::{msecs_to_jiffies, Delta};
use kernel::workqueue;
use tally_uapi::firmware::{op, Command, Identity, StatusPage, WaitersPage};
use tally_uapi::regs::status;

use crate::admin::{self, queue_command, Admin, Call, Keep, Unsent};
use crate::driver::TallyDevice;
use crate::module_parameters;
use crate::raw::{self, monotonic_ns};
use crate::regs::{Addresses, Regs};
use crate::shared::Shared;
use crate::state::{Count, State};

/// How often the device is looked after while commands are out.
const WATCH_MS: u32 = 500;

/// See the module.
#[pin_data(PinnedDrop)]
pub(crate) struct Gpu<'bound> {
    pdev: &'bound pci::Device<Bound>,
    regs: Regs<'bound>,
    admin: Arc<Admin>,
    status: Arc<Shared<StatusPage>>,
    waiters: Arc<Shared<WaitersPage>>,
    identity: SetOnce<KBox<Identity>>,
    state: Arc<State>,
    drm: ARef<TallyDevice>,
    /// Whether the DRM device has been registered: before, there is nothing by which the watchdog
    /// finds the hardware.
    registered: Atomic<bool>,
    /// Held during a reset. Whether it was the last one.
    #[pin]
    ended: Mutex<bool>,
}

impl<'bound> Gpu<'bound> {
    /// Finds the registers and makes the shared memory. The device is not started.
    pub(crate) fn new(
        pdev: &'bound pci::Device<Bound>,
        drm: ARef<TallyDevice>,
    ) -> impl PinInit<Self, Error> + 'bound {
        let state = drm.state.clone();
        try_pin_init!(Self {
            pdev,
            regs: Regs::new(pdev)?,
            admin: Arc::pin_init(Admin::new(pdev.as_ref()), GFP_KERNEL)?,
            status: Arc::new(Shared::new(pdev.as_ref(), 1)?, GFP_KERNEL)?,
            waiters: Arc::new(Shared::new(pdev.as_ref(), 1)?, GFP_KERNEL)?,
            identity: SetOnce::new(),
            state,
            drm,
            registered: Atomic::new(false),
            ended <- new_mutex!(false),
        }? Error)
    }

    /// The device.
    pub(crate) fn pdev(&self) -> &'bound pci::Device<Bound> {
        self.pdev
    }

    /// The registers.
    pub(crate) fn regs(&self) -> &Regs<'bound> {
        &self.regs
    }

    /// What outlives the hardware.
    pub(crate) fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// What the device said of itself.
    ///
    /// # Errors
    /// ENODEV: it has not yet.
    pub(crate) fn identity(&self) -> Result<&Identity> {
        self.identity.as_ref().map(|identity| &**identity).ok_or(ENODEV)
    }

    /// Starts the device and asks what it is.
    ///
    /// # Errors
    /// EIO: it refuses. ETIME: it does not answer.
    pub(crate) fn probe(&self) -> Result {
        if !self.reset() {
            dev_err!(self.pdev, "the device does not reset\n");
            return Err(EIO);
        }
        self.start()?;
        let page = Arc::new(Shared::<Identity>::new(self.pdev.as_ref(), 1)?, GFP_KERNEL)?;
        let call = Call::new()?;
        // Not watched: this waits itself, and the watchdog uses what is registered after it.
        let keep = Keep::Identity(page.clone());
        let sent = self.admin.send(&self.regs, &self.state, &call, admin::identify(&page), keep);
        sent.map_err(|Unsent { error, keep }| {
            self.settle(keep);
            error
        })?;
        let timeout = i64::from(*module_parameters::admin_timeout_ms.value_ref()) * 1_000_000;
        let answer = call.wait_until(monotonic_ns().saturating_add(timeout))?;
        admin::status(&answer)?;
        self.identity.populate(page.read_boxed()?);
        let (major, minor) = self.regs.version();
        let device = &self.identity()?.device;
        dev_info!(
            self.pdev,
            "Tally {major}.{minor}: {} execution units, VAs {:#x} to {:#x}\n",
            device.execution_units,
            device.va_start,
            device.va_end
        );
        Ok(())
    }

    fn start(&self) -> Result {
        if let Some(page) = self.status.atomics() {
            for word in [&page.signalled[..], &page.lost[..]].into_iter().flatten() {
                word.store(0, Ordering::Relaxed);
            }
        }
        self.state.sleepers.publish_to(Some(self.waiters.clone()));
        self.admin.start();
        let (ring, answers, entries) = self.admin.place();
        self.regs.enable(&Addresses {
            ring,
            answers,
            entries,
            waiters: self.waiters.address(),
            status: self.status.address(),
        });
        let enabled = || {
            let now = self.regs.status();
            now & (status::ENABLED | status::FAILED | status::RESETTING) != 0
        };
        if !self.poll(enabled) || self.regs.status() & status::ENABLED == 0 {
            dev_err!(self.pdev, "ENABLE failed, status {:#x}\n", self.regs.status());
            self.admin.stop();
            self.admin.stopped(&self.state, self.reset());
            return Err(EIO);
        }
        Ok(())
    }

    /// Sends a command; see [`Admin::send`].
    ///
    /// # Errors
    /// As there.
    pub(crate) fn send(&self, call: &Arc<Call>, command: Command, keep: Keep) -> Result {
        self.send_locked(call, command, keep).map_err(|Unsent { error, keep }| {
            self.settle(keep);
            error
        })
    }

    /// As [`Self::send`], for who must not settle a VM there and then.
    ///
    /// # Errors
    /// See [`Admin::send`].
    pub(crate) fn send_locked(
        &self,
        call: &Arc<Call>,
        command: Command,
        keep: Keep,
    ) -> Result<(), Unsent> {
        self.admin.send(&self.regs, &self.state, call, command, keep)?;
        self.watch();
        Ok(())
    }

    /// Deals with what a command that was not sent would have kept.
    pub(crate) fn settle(&self, keep: Keep) {
        self.admin.settle(&self.state, keep);
    }

    /// The DRM device has been registered, and commands may be out already.
    pub(crate) fn set_registered(&self) {
        self.registered.store(true, Release);
        self.watch();
    }

    fn watch(&self) {
        // Before that only `probe` sends, and waits with a limit of its own.
        if !self.registered.load(Acquire) {
            return;
        }
        // If it is queued already, all is well.
        let _ =
            workqueue::system_long().enqueue_delayed(self.drm.clone(), msecs_to_jiffies(WATCH_MS));
    }

    /// Looks why the device interrupts.
    pub(crate) fn interrupt(&self) {
        let Some(page) = self.status.atomics() else { return };
        for (index, word) in page.signalled.iter().enumerate() {
            each_bit(word.swap(0, Ordering::SeqCst), |bit| {
                self.state.sleepers.wake(index * 64 + bit);
            });
        }
        for (index, word) in page.lost.iter().enumerate() {
            each_bit(word.swap(0, Ordering::SeqCst), |bit| self.lost((index * 64 + bit) as u32));
        }
        self.admin.collect(&self.state);
    }

    /// The device says that a VM is lost: asks its queues which one is to blame.
    fn lost(&self, id: u32) {
        let Some(vm) = self.state.vms.by_id(id) else { return };
        if !vm.lose() {
            return;
        }
        self.state.count(Count::Lost);
        self.state.sleepers.wake_all();
        self.state.queues.for_each(
            |queue| queue.vm().id() == id,
            |_, queue| {
                let command = queue_command(op::QUEUE_QUERY, &queue, [0; 6]);
                self.admin.try_send(&self.regs, &self.state, command, Keep::Suspect(queue));
            },
        );
    }

    /// While there are VMs or commands are out: is there still somebody?
    pub(crate) fn look_after(&self) {
        // Should an interrupt have got lost, this is the end of the wait for it.
        self.interrupt();
        let oldest = self.admin.oldest_ns();
        if oldest.is_none() && self.state.vms.next(0, |_| true).is_none() {
            return;
        }
        let timeout = i64::from(*module_parameters::admin_timeout_ms.value_ref()) * 1_000_000;
        if oldest.is_some_and(|sent| monotonic_ns().saturating_sub(sent) > timeout) {
            dev_err!(self.pdev, "a command is not answered; resetting\n");
            self.recover();
        } else if !self.regs.present() {
            dev_err!(self.pdev, "the device does not answer any more\n");
            self.recover();
        } else {
            self.watch();
        }
    }

    /// Resets a device that no longer answers. All its VMs are lost; if it comes
    /// back new ones can be made, and else it is gone.
    fn recover(&self) {
        let mut ended = self.ended.lock();
        if *ended {
            return;
        }
        self.state.count(Count::Resets);
        // Who waits need not wait for the reset.
        self.state.vms.for_each(
            |_| true,
            |_, vm| {
                vm.lose();
            },
        );
        self.state.sleepers.wake_all();
        self.admin.stop();
        let reset = self.reset();
        if !reset {
            // PCI's reset may take a minute, and comes too late for who uses the device.
            self.state.go();
        }
        self.settle_all(reset || self.reset_function());
        if !reset || self.start().is_err() {
            dev_err!(self.pdev, "the device is given up\n");
            *ended = true;
            self.state.sleepers.publish_to(None);
            self.state.go();
        }
    }

    /// Before the driver goes: ends all waits, and the device's use of memory.
    pub(crate) fn stop(&self) {
        self.state.go();
        // Ends the waits for answers; the guards that they hold would delay unbind.
        self.admin.stop();
        raw::cancel_watchdog(&self.drm);
        let mut ended = self.ended.lock();
        if core::mem::replace(&mut *ended, true) {
            return;
        }
        let quiet = self.reset() || self.reset_function();
        self.state.sleepers.publish_to(None);
        self.settle_all(quiet);
    }

    /// Frees or gives up all that the device has used, and loses all VMs.
    fn settle_all(&self, quiet: bool) {
        self.state.vms.for_each(
            |_| true,
            |_, vm| {
                vm.lose();
                let mappings = vm.take_mappings();
                if quiet {
                    drop(mappings);
                } else {
                    admin::quarantine(&self.state, mappings);
                }
            },
        );
        self.admin.stopped(&self.state, quiet);
        if !quiet {
            let bytes = self.state.quarantined();
            dev_err!(self.pdev, "no reset: {bytes} bytes stay allocated for ever\n");
            // The device may write its rings, and the buffers belong to the DRM device.
            core::mem::forget(self.admin.clone());
            core::mem::forget(self.status.clone());
            core::mem::forget(self.waiters.clone());
            core::mem::forget(self.drm.clone());
        }
    }

    /// Resets the device. Whether it confirmed that it touches no memory any more.
    fn reset(&self) -> bool {
        if !self.regs.present() {
            return false;
        }
        self.regs.reset();
        self.poll(|| self.is_reset())
    }

    /// The same by PCI's function-level reset, for a device that ignores its register.
    fn reset_function(&self) -> bool {
        dev_err!(self.pdev, "no reset by register; trying that of PCI\n");
        raw::reset_function(self.pdev).is_ok() && self.poll(|| self.is_reset())
    }

    fn is_reset(&self) -> bool {
        self.regs.present() && self.regs.status() & status::RESETTING == 0
    }

    /// Whether `done` becomes true within the reset time.
    fn poll(&self, done: impl Fn() -> bool) -> bool {
        let timeout = i64::from(*module_parameters::reset_timeout_ms.value_ref()) * 1_000_000;
        let deadline = monotonic_ns().saturating_add(timeout);
        while !done() {
            if monotonic_ns() > deadline {
                return false;
            }
            kernel::time::delay::fsleep(Delta::from_millis(1));
        }
        true
    }
}

#[pinned_drop]
impl PinnedDrop for Gpu<'_> {
    fn drop(self: Pin<&mut Self>) {
        self.stop();
        // Nobody is left who could queue it again.
        raw::cancel_watchdog(&self.drm);
    }
}

fn each_bit(mut bits: u64, mut f: impl FnMut(usize)) {
    while bits != 0 {
        f(bits.trailing_zeros() as usize);
        bits &= bits - 1;
    }
}
