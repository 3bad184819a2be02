// SPDX-License-Identifier: GPL-2.0
//! The hardware while the driver is bound: start, interrupts, reset, and the end.
//!
//! This module decides when memory that the device uses is freed: once the device has
//! answered that it is done with it, or once a reset is complete. If the device does
//! neither, the memory is kept until the machine restarts: it is counted, reported, and
//! never given to another user.

use core::sync::atomic::Ordering;

use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::atomic::{Acquire, Atomic, Relaxed, Release};
use kernel::sync::{new_mutex, Arc, Mutex, SetOnce};
use kernel::time::{msecs_to_jiffies, Delta};
use kernel::workqueue;
use tally_uapi::firmware::{op, Command, Identity, StatusPage, WaitersPage};

use crate::admin::{self, queue_command, Admin, Call, Order, Unsent};
use crate::call::status as answer_status;
use crate::data::{cancel_work, REAPER};
use crate::device::TallyDevice;
use crate::module_parameters;
use crate::object::keep::Keep;
use crate::raw::time::monotonic_ns;
use crate::settle;
use crate::shared::Shared;
use crate::state::{Count, State};
use crate::transport::{Addresses, Purpose, Transport};

/// Period of the watchdog, in ms, while VMs exist or commands are outstanding.
const WATCH_MS: u32 = 500;
/// Time between two commands that only ask the device for a sign of life, in ns.
const PING_NS: i64 = 2_000_000_000;

/// See the module.
#[pin_data(PinnedDrop)]
pub(crate) struct Gpu<'bound> {
    transport: &'bound (dyn Transport + 'bound),
    admin: Arc<Admin>,
    status: Arc<Shared<StatusPage>>,
    waiters: Arc<Shared<WaitersPage>>,
    identity: SetOnce<KBox<Identity>>,
    state: Arc<State>,
    drm: ARef<TallyDevice>,
    /// Whether the DRM device has been registered: before that the watchdog cannot find the hardware.
    registered: Atomic<bool>,
    /// Time at which the device was last asked for a sign of life, in CLOCK_MONOTONIC ns.
    pinged_ns: Atomic<i64>,
    /// Time at which the watchdog was last started.
    watched_ns: Atomic<i64>,
    /// Time before which no command counts as overdue.
    patient_ns: Atomic<i64>,
    /// Held during a reset.
    #[pin]
    power: Mutex<Power>,
}

/// State of the device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Power {
    /// It takes commands.
    On,
    /// Its bus has failed: it takes no commands, and may still touch memory until it has been reset.
    Halted,
    /// It was reset and touches no memory until [`Gpu::go_on`].
    Paused,
    /// It is not used any more.
    Off,
}

impl<'bound> Gpu<'bound> {
    /// Makes the shared memory. The device is not started.
    pub(crate) fn new(
        transport: &'bound (dyn Transport + 'bound),
        drm: ARef<TallyDevice>,
    ) -> impl PinInit<Self, Error> + 'bound {
        let state = drm.state.clone();
        try_pin_init!(Self {
            transport,
            admin: Arc::pin_init(Admin::new(*transport), GFP_KERNEL)?,
            status: Arc::new(Shared::new(*transport, Purpose::Status, 1)?, GFP_KERNEL)?,
            waiters: Arc::new(Shared::new(*transport, Purpose::Waiters, 1)?, GFP_KERNEL)?,
            identity: SetOnce::new(),
            state,
            drm,
            registered: Atomic::new(false),
            pinged_ns: Atomic::new(0),
            watched_ns: Atomic::new(0),
            patient_ns: Atomic::new(0),
            power <- new_mutex!(Power::On),
        }? Error)
    }

    /// The way to the device.
    pub(crate) fn transport(&self) -> &'bound (dyn Transport + 'bound) {
        self.transport
    }

    /// The state that outlives the hardware.
    pub(crate) fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// The device's answer to IDENTIFY.
    ///
    /// # Errors
    /// ENODEV: it has not answered yet.
    pub(crate) fn identity(&self) -> Result<&Identity> {
        self.identity
            .as_ref()
            .map(|identity| &**identity)
            .ok_or(ENODEV)
    }

    /// Starts the device and sends IDENTIFY.
    ///
    /// # Errors
    /// EIO: it refuses. ETIME: it does not answer.
    pub(crate) fn probe(&self) -> Result {
        if !self.reset() {
            dev_err!(self.transport.device(), "the device does not reset\n");
            return Err(EIO);
        }
        self.start()?;
        let page = Arc::new(
            Shared::<Identity>::new(self.transport, Purpose::Argument, 1)?,
            GFP_KERNEL,
        )?;
        // The watchdog does not cover this command: this function waits itself, and the watchdog needs the DRM
        // device, which is registered later.
        let call = self.send(
            Order::new()?,
            admin::identify(&page),
            Keep::Identity(page.clone()),
        )?;
        let answer = call.wait_until(&self.state, monotonic_ns().saturating_add(timeout_ns()))?;
        answer_status(&answer)?;
        self.introduce(page.read_boxed()?)
    }

    /// Starts a device whose identity is already known.
    ///
    /// # Errors
    /// EIO: it refuses.
    pub(crate) fn start_as(&self, identity: KBox<Identity>) -> Result {
        self.start()?;
        self.introduce(identity)
    }

    fn introduce(&self, identity: KBox<Identity>) -> Result {
        self.identity.populate(identity);
        let (major, minor) = self.transport.version();
        let device = &self.identity()?.device;
        dev_info!(
            self.transport.device(),
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
        self.transport.enable(&Addresses {
            ring,
            answers,
            entries,
            waiters: self.waiters.address(),
            status: self.status.address(),
        });
        let decided = || {
            let now = self.transport.status();
            now.enabled || now.failed || now.resetting
        };
        if !self.poll(decided) || !self.transport.status().enabled {
            dev_err!(
                self.transport.device(),
                "ENABLE failed, status {:?}\n",
                self.transport.status()
            );
            self.admin.stop(EIO);
            self.admin.stopped(&self.state, self.reset());
            return Err(EIO);
        }
        Ok(())
    }

    /// Sends a command; see [`Admin::send`].
    ///
    /// # Errors
    /// ENODEV: the device is gone. EIO: it is being reset, or has been since the VM was made; the VM is lost.
    /// The errors of [`crate::lanes::Lanes::add`].
    pub(crate) fn send(&self, order: Order, command: Command, keep: Keep) -> Result<Arc<Call>> {
        self.send_then(order, command, keep, || ())
    }

    /// Like [`Self::send`]; `then` is called once it is certain that the device will be given the command.
    ///
    /// # Errors
    /// Those of [`Self::send`].
    pub(crate) fn send_then(
        &self,
        order: Order,
        command: Command,
        keep: Keep,
        then: impl FnOnce(),
    ) -> Result<Arc<Call>> {
        let call = order.call.clone();
        let sent = self
            .admin
            .send(self.transport, &self.state, order, command, keep, then);
        sent.map_err(|unsent| self.settle(unsent))?;
        self.watch();
        Ok(call)
    }

    /// Like [`Self::send`], for callers that hold a VM's lock, under which they must not settle.
    ///
    /// # Errors
    /// The command that could not be sent, for [`Self::settle`].
    pub(crate) fn send_locked(
        &self,
        order: Order,
        command: Command,
        keep: Keep,
    ) -> Result<Arc<Call>, Unsent> {
        let call = order.call.clone();
        self.admin
            .send(self.transport, &self.state, order, command, keep, || ())?;
        self.watch();
        Ok(call)
    }

    /// Settles the resources of a command that was not sent. Returns the reason why it was not sent.
    pub(crate) fn settle(&self, unsent: Unsent) -> Error {
        let error = unsent.error;
        self.admin.settle(&self.state, unsent);
        match error {
            _ if self.state.gone() => ENODEV,
            // The VM's lane is closed although the VM was not ended: a reset has closed it.
            error if error == ENODEV || error == ENOENT => EIO,
            error => error,
        }
    }

    /// Has the device look at its waiters of `bucket`: a host has written a cell there.
    pub(crate) fn wake(&self, bucket: u32) {
        self.state.count(Count::Wakes);
        self.transport.wake(bucket);
    }

    /// Notes that the DRM device has been registered. Commands may be outstanding already.
    pub(crate) fn set_registered(&self) {
        self.registered.store(true, Release);
        self.watch();
    }

    fn watch(&self) {
        // Before that only `probe` sends commands, and it waits with a limit of its own.
        if !self.registered.load(Acquire) {
            return;
        }
        // This queue is frozen while the machine sleeps, as processes are, of which one may be the device.
        let queue = workqueue::system_freezable();
        // If it is queued already, all is well.
        if queue
            .enqueue_delayed(self.drm.clone(), msecs_to_jiffies(WATCH_MS))
            .is_ok()
        {
            self.watched_ns.store(monotonic_ns(), Relaxed);
        }
    }

    /// Handles an interrupt: finds out its reasons from the status page and the answers.
    pub(crate) fn interrupt(&self) {
        let Some(page) = self.status.atomics() else {
            return;
        };
        for (index, word) in page.signalled.iter().enumerate() {
            each_bit(word.swap(0, Ordering::SeqCst), |bit| {
                self.state.sleepers.wake(index * 64 + bit);
            });
        }
        for (index, word) in page.lost.iter().enumerate() {
            each_bit(word.swap(0, Ordering::SeqCst), |bit| {
                self.lost((index * 64 + bit) as u32)
            });
        }
        let left = self.admin.collect(self.transport, &self.state, |vm| {
            // The VM may have become lost before it ended. The next VM with this id is not lost.
            if let Some(word) = page.lost.get(vm as usize / 64) {
                word.fetch_and(!(1 << (vm % 64)), Ordering::SeqCst);
            }
        });
        if left {
            // If it is queued already, all is well.
            let _ = workqueue::system_long().enqueue::<_, { REAPER }>(self.drm.clone());
        }
    }

    /// Handles the device's report that a VM is lost: asks the device which of its queues faulted.
    fn lost(&self, id: u32) {
        let Some(vm) = self.state.vms.by_id(id) else {
            return;
        };
        if !vm.lose() {
            return;
        }
        self.state.count(Count::Lost);
        self.state.sleepers.wake_all();
        if self.state.may_log() {
            dev_info!(
                self.transport.device(),
                "vm {id} of process {} is lost\n",
                vm.pid()
            );
        }
        self.state.queues.for_each(
            |queue| core::ptr::eq(&**queue.vm(), &*vm),
            |_, queue| {
                // Without memory for the question the answer remains unknown.
                if let Ok(order) = Order::new() {
                    order.call.leave();
                    let command = queue_command(op::QUEUE_QUERY, &queue, [0; 6]);
                    let _ = self.send(order, command, Keep::Suspect(queue));
                }
            },
        );
    }

    /// The watchdog's check that the device still answers, while VMs exist or commands are outstanding.
    pub(crate) fn look_after(&self) {
        // Recovers from an interrupt that got lost.
        self.interrupt();
        let now = monotonic_ns();
        // The machine was asleep, or far too busy. A device that is one of its processes could do nothing
        // meanwhile, so it gets the full time again.
        if now.saturating_sub(self.watched_ns.load(Relaxed)) > timeout_ns() / 2 {
            self.patient_ns
                .store(now.saturating_add(timeout_ns()), Relaxed);
        }
        let patient = now < self.patient_ns.load(Relaxed);
        while let Some(slot) = self.admin.overdue(now.saturating_sub(timeout_ns())) {
            if patient {
                break;
            }
            if slot == 0 {
                dev_err!(
                    self.transport.device(),
                    "the device does not answer any more; resetting\n"
                );
                return self.recover();
            }
            self.give_up(slot);
        }
        if !self.admin.is_busy() && self.state.vms.next(0, |_| true).is_none() {
            return;
        }
        // Asks by the ring and not by a register: the read of a register would stop this processor as long as
        // the device's process does not run.
        if self.admin.is_idle() && now.saturating_sub(self.pinged_ns.load(Relaxed)) > PING_NS {
            self.pinged_ns.store(now, Relaxed);
            if let Ok(order) = Order::new() {
                order.call.leave();
                self.state.count(Count::Pings);
                let _ = self.send(order, admin::nop(), Keep::Nothing);
            }
        }
        self.watch();
    }

    /// Loses a VM whose command is not answered. Its resources stay until the answer arrives.
    fn give_up(&self, id: u32) {
        dev_err!(
            self.transport.device(),
            "a command of vm {id} is not answered; the vm is lost\n"
        );
        if let Some(vm) = self.state.vms.by_id(id) {
            if vm.lose() {
                self.state.count(Count::Lost);
            }
        }
        self.admin.end_calls(id);
        self.state.sleepers.wake_all();
    }

    /// Loses all VMs and wakes their waiters.
    fn lose_all(&self) {
        self.state.vms.for_each(
            |_| true,
            |_, vm| {
                if vm.lose() {
                    self.state.count(Count::Lost);
                }
            },
        );
        self.state.sleepers.wake_all();
    }

    /// Resets a device that no longer answers. All its VMs are lost. If it works again,
    /// new ones can be made; otherwise it is gone.
    fn recover(&self) {
        let mut power = self.power.lock();
        if *power != Power::On {
            return;
        }
        self.state.count(Count::Resets);
        // Done first, so that waiters do not wait for the reset.
        self.lose_all();
        self.admin.stop(EIO);
        let reset = self.reset();
        if !reset {
            // The forced reset may take a minute, which is too long for clients to wait.
            self.state.go();
        }
        self.settle_all(reset || self.force_reset());
        if !reset || self.start().is_err() {
            *power = Power::Off;
            self.give_device_up();
        }
    }

    fn give_device_up(&self) {
        dev_err!(self.transport.device(), "the device is given up\n");
        self.state.sleepers.publish_to(None);
        self.state.go();
    }

    /// Handles a failure of the device's bus, which makes its registers unreachable: all its VMs are lost.
    /// Their resources stay until the device has been reset.
    pub(crate) fn halt(&self) {
        let mut power = self.power.lock();
        if *power == Power::On {
            self.end_all();
            *power = Power::Halted;
        }
    }

    /// Stops the device before it is reset or loses power. All its VMs are lost.
    pub(crate) fn pause(&self) {
        let mut power = self.power.lock();
        if *power == Power::On {
            self.end_all();
            *power = Power::Halted;
        }
        self.settle_halted(&mut power);
    }

    fn end_all(&self) {
        self.state.count(Count::Resets);
        dev_info!(
            self.transport.device(),
            "the device stops; all its vms are lost\n"
        );
        self.lose_all();
        self.admin.stop(EIO);
    }

    /// Resets a device that was halted, and frees the memory that it has used.
    fn settle_halted(&self, power: &mut Power) {
        if *power != Power::Halted {
            return;
        }
        let reset = self.reset();
        self.settle_all(reset);
        *power = if reset { Power::Paused } else { Power::Off };
        if !reset {
            self.give_device_up();
        }
    }

    /// Starts the device again after [`Self::pause`] or [`Self::halt`]: new VMs can be made.
    pub(crate) fn go_on(&self) {
        let mut power = self.power.lock();
        self.settle_halted(&mut power);
        if *power != Power::Paused {
            return;
        }
        // Reset again: the device may have got power since, in any state.
        if self.reset() && self.start().is_ok() {
            *power = Power::On;
        } else {
            *power = Power::Off;
            self.give_device_up();
        }
    }

    /// Ends all waits and the device's use of memory, before the driver is unbound.
    pub(crate) fn stop(&self) {
        self.state.go();
        // Ends the waits for answers; the guards that they hold would delay unbind.
        self.admin.stop(ENODEV);
        cancel_work(&self.drm);
        let mut power = self.power.lock();
        let before = core::mem::replace(&mut *power, Power::Off);
        if matches!(before, Power::On | Power::Halted) {
            // A reset that has just ended may have admitted commands again.
            self.admin.stop(ENODEV);
            let quiet = self.reset() || self.force_reset();
            self.state.sleepers.publish_to(None);
            self.settle_all(quiet);
        }
        self.state.reap();
    }

    /// Frees or quarantines all memory that the device has used, and loses all VMs.
    fn settle_all(&self, quiet: bool) {
        self.state.vms.for_each(
            |_| true,
            |_, vm| {
                vm.lose();
                settle::free(&self.state, vm.take_mappings(), quiet);
            },
        );
        self.admin.stopped(&self.state, quiet);
        if !quiet {
            let bytes = self.state.quarantined();
            dev_err!(
                self.transport.device(),
                "no reset: {bytes} bytes stay allocated until the machine is restarted\n"
            );
            // The device may still write its rings, and the buffers belong to the DRM device.
            core::mem::forget(self.admin.clone());
            core::mem::forget(self.status.clone());
            core::mem::forget(self.waiters.clone());
            core::mem::forget(self.drm.clone());
        }
    }

    /// Resets the device. Returns whether it confirmed that it touches no memory any more.
    fn reset(&self) -> bool {
        self.transport.present() && self.transport.begin_reset() && self.poll(|| self.is_reset())
    }

    /// Like [`Self::reset`], for a device that ignores its reset register.
    fn force_reset(&self) -> bool {
        self.transport.force_reset().is_ok() && self.poll(|| self.is_reset())
    }

    fn is_reset(&self) -> bool {
        self.transport.present() && !self.transport.status().resetting
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
        // The work cannot be queued again after this.
        cancel_work(&self.drm);
        if self.state.refused() {
            // The buffers that the device has not unmapped belong to the DRM device.
            core::mem::forget(self.drm.clone());
        }
    }
}

/// The time after which a command counts as unanswered.
fn timeout_ns() -> i64 {
    i64::from(*module_parameters::admin_timeout_ms.value_ref()) * 1_000_000
}

fn each_bit(mut bits: u64, mut f: impl FnMut(usize)) {
    while bits != 0 {
        f(bits.trailing_zeros() as usize);
        bits &= bits - 1;
    }
}
