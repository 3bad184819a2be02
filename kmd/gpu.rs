// SPDX-License-Identifier: GPL-2.0
//! The hardware while the driver is bound: start, interrupts, reset, and the end.
//!
//! What happens to memory that the device uses is decided here. It is freed when
//! the device has answered that it is done with it, or when a reset is complete.
//! A device that does neither keeps the memory until the machine is restarted: it is counted,
//! reported, and never given to another user.

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

/// How often the device is looked after while there are VMs or commands are out.
const WATCH_MS: u32 = 500;
/// How often it is asked for a sign of life then.
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
    /// Whether the DRM device has been registered: before, there is nothing by which the watchdog
    /// finds the hardware.
    registered: Atomic<bool>,
    /// When the device was last asked for a sign of life.
    pinged_ns: Atomic<i64>,
    /// Held during a reset.
    #[pin]
    power: Mutex<Power>,
}

/// What the device does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Power {
    /// It takes commands.
    On,
    /// Its bus has failed: it takes no commands, and may still touch memory, until it was reset.
    Halted,
    /// It was reset and touches nothing, until [`Gpu::go_on`].
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
            power <- new_mutex!(Power::On),
        }? Error)
    }

    /// The way to the device.
    pub(crate) fn transport(&self) -> &'bound (dyn Transport + 'bound) {
        self.transport
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
            dev_err!(self.transport.device(), "the device does not reset\n");
            return Err(EIO);
        }
        self.start()?;
        let page =
            Arc::new(Shared::<Identity>::new(self.transport, Purpose::Argument, 1)?, GFP_KERNEL)?;
        // Not watched: this waits itself, and the watchdog uses what is registered after it.
        let call =
            self.send(Order::new()?, admin::identify(&page), Keep::Identity(page.clone()))?;
        let answer = call.wait_until(&self.state, monotonic_ns().saturating_add(timeout_ns()))?;
        answer_status(&answer)?;
        self.introduce(page.read_boxed()?)
    }

    /// Starts a device that has said already what it is.
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
    /// ENODEV: the device is gone. EIO: it is being reset, or was since the VM was made, which is lost then.
    /// As [`crate::lanes::Lanes::add`].
    pub(crate) fn send(&self, order: Order, command: Command, keep: Keep) -> Result<Arc<Call>> {
        self.send_then(order, command, keep, || ())
    }

    /// As [`Self::send`]; `then` is called once it is certain that the device will be given the command.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn send_then(
        &self,
        order: Order,
        command: Command,
        keep: Keep,
        then: impl FnOnce(),
    ) -> Result<Arc<Call>> {
        let call = order.call.clone();
        let sent = self.admin.send(self.transport, &self.state, order, command, keep, then);
        sent.map_err(|unsent| self.settle(unsent))?;
        self.watch();
        Ok(call)
    }

    /// As [`Self::send`], for who must not settle a VM under its lock.
    ///
    /// # Errors
    /// What could not be sent, for [`Self::settle`].
    pub(crate) fn send_locked(
        &self,
        order: Order,
        command: Command,
        keep: Keep,
    ) -> Result<Arc<Call>, Unsent> {
        let call = order.call.clone();
        self.admin.send(self.transport, &self.state, order, command, keep, || ())?;
        self.watch();
        Ok(call)
    }

    /// Deals with what a command that was not sent would have kept. Returns why it was not sent.
    pub(crate) fn settle(&self, unsent: Unsent) -> Error {
        let error = unsent.error;
        self.admin.settle(&self.state, unsent);
        match error {
            _ if self.state.gone() => ENODEV,
            // The VM's lane is closed although it was not ended: a reset has taken it.
            error if error == ENODEV || error == ENOENT => EIO,
            error => error,
        }
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
        let left = self.admin.collect(self.transport, &self.state, |vm| {
            // It may have become lost before it ended. The next VM of this id has not.
            if let Some(word) = page.lost.get(vm as usize / 64) {
                word.fetch_and(!(1 << (vm % 64)), Ordering::SeqCst);
            }
        });
        if left {
            // If it is queued already, all is well.
            let _ = workqueue::system_long().enqueue::<_, { REAPER }>(self.drm.clone());
        }
    }

    /// The device says that a VM is lost: asks its queues which one is to blame.
    fn lost(&self, id: u32) {
        let Some(vm) = self.state.vms.by_id(id) else { return };
        if !vm.lose() {
            return;
        }
        self.state.count(Count::Lost);
        self.state.sleepers.wake_all();
        if self.state.may_log() {
            dev_info!(self.transport.device(), "vm {id} of process {} is lost\n", vm.pid());
        }
        self.state.queues.for_each(
            |queue| core::ptr::eq(&**queue.vm(), &*vm),
            |_, queue| {
                // Without memory to ask it remains unknown.
                if let Ok(order) = Order::new() {
                    order.call.leave();
                    let command = queue_command(op::QUEUE_QUERY, &queue, [0; 6]);
                    let _ = self.send(order, command, Keep::Suspect(queue));
                }
            },
        );
    }

    /// While there are VMs or commands are out: does the device still do its part?
    pub(crate) fn look_after(&self) {
        // Should an interrupt have got lost, this is the end of the wait for it.
        self.interrupt();
        let now = monotonic_ns();
        while let Some(slot) = self.admin.overdue(now.saturating_sub(timeout_ns())) {
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
        // By the ring and not by a register, whose read would stop this processor for as long as the
        // device's process stands still.
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

    /// A VM's command is not answered: the VM is lost, and what it uses stays until there is an answer.
    fn give_up(&self, id: u32) {
        dev_err!(self.transport.device(), "a command of vm {id} is not answered; the vm is lost\n");
        if let Some(vm) = self.state.vms.by_id(id) {
            if vm.lose() {
                self.state.count(Count::Lost);
            }
        }
        self.admin.end_calls(id);
        self.state.sleepers.wake_all();
    }

    /// Loses all VMs and wakes who waits for them.
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

    /// Resets a device that no longer answers. All its VMs are lost; if it comes
    /// back new ones can be made, and else it is gone.
    fn recover(&self) {
        let mut power = self.power.lock();
        if *power != Power::On {
            return;
        }
        self.state.count(Count::Resets);
        // Who waits need not wait for the reset.
        self.lose_all();
        self.admin.stop(EIO);
        let reset = self.reset();
        if !reset {
            // The other reset may take a minute, and comes too late for who uses the device.
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

    /// The device's bus has failed, and its registers cannot be reached: all its VMs are lost. What they
    /// use stays until the device was reset.
    pub(crate) fn halt(&self) {
        let mut power = self.power.lock();
        if *power == Power::On {
            self.end_all();
            *power = Power::Halted;
        }
    }

    /// Before the device is reset or loses power: ends what it does. All its VMs are lost.
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
        dev_info!(self.transport.device(), "the device stops; all its vms are lost\n");
        self.lose_all();
        self.admin.stop(EIO);
    }

    /// Resets a device that was halted, and frees what it has used.
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

    /// After [`Self::pause`] or [`Self::halt`]: new VMs can be made.
    pub(crate) fn go_on(&self) {
        let mut power = self.power.lock();
        self.settle_halted(&mut power);
        if *power != Power::Paused {
            return;
        }
        // What had power may have to be told anew what to forget.
        if self.reset() && self.start().is_ok() {
            *power = Power::On;
        } else {
            *power = Power::Off;
            self.give_device_up();
        }
    }

    /// Before the driver goes: ends all waits, and the device's use of memory.
    pub(crate) fn stop(&self) {
        self.state.go();
        // Ends the waits for answers; the guards that they hold would delay unbind.
        self.admin.stop(ENODEV);
        cancel_work(&self.drm);
        let mut power = self.power.lock();
        let before = core::mem::replace(&mut *power, Power::Off);
        if matches!(before, Power::On | Power::Halted) {
            // A reset that went on until now may have let commands in again.
            self.admin.stop(ENODEV);
            let quiet = self.reset() || self.force_reset();
            self.state.sleepers.publish_to(None);
            self.settle_all(quiet);
        }
        self.state.reap();
    }

    /// Frees or gives up all that the device has used, and loses all VMs.
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
            // The device may write its rings, and the buffers belong to the DRM device.
            core::mem::forget(self.admin.clone());
            core::mem::forget(self.status.clone());
            core::mem::forget(self.waiters.clone());
            core::mem::forget(self.drm.clone());
        }
    }

    /// Resets the device. Whether it confirmed that it touches no memory any more.
    fn reset(&self) -> bool {
        self.transport.present() && self.transport.begin_reset() && self.poll(|| self.is_reset())
    }

    /// The same for a device that ignores that.
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
        // Nobody is left who could queue it again.
        cancel_work(&self.drm);
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
