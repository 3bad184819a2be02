// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hub's side of an engine process.
//!
//! Three threads of the hub serve it. The VM's lane gives it orders and waits.
//! The gate, which has also started it, decides about its mappings and waits for
//! its end. The ear receives its messages about cells and faults.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tally_engine::MAX_FILES;
use tally_engine::mailbox::{Mailbox, MailboxMap, Order, fence_arguments};
use tally_uapi::firmware::op;

use crate::links::Links;
use crate::patience::Patience;

mod ear;
mod gate;
mod link;
mod spawn;

pub use link::{Link, Loss};
pub use spawn::{fix_addresses, open_files};

/// The time that an engine process may take to start, and again to confine itself. Until then it runs no code of a
/// client's, so that only a busy machine makes it slow. It is given up when the session ends.
const START_TIME: Duration = Duration::from_secs(60);
/// The time beyond the reset time that it may take for an order, or for one mapping of it, including
/// waits for a processor of the host.
const STEP_TIME: Duration = Duration::from_secs(2);
/// The further time that it may take for all the mappings of an order. A busy machine takes some
/// milliseconds for each.
const ORDER_TIME: Duration = Duration::from_secs(4);

/// The engine process has ended, by itself or by the hub.
#[derive(Debug)]
pub struct Ended;

/// The parameters of a new engine process.
#[derive(Clone)]
pub struct Recipe {
    pub vm: u32,
    /// The end of the windows of VMs.
    pub va_end: u64,
    pub settings: crate::Settings,
    pub clock: tally_device::Clock,
    /// The files of its memory.
    pub files: Vec<RawFd>,
    /// Index and offset of the waiters page among them.
    pub waiters: (usize, u64),
}

/// An engine process. Dropping it ends the process.
pub struct Engine {
    pub link: Arc<Link>,
    threads: Vec<JoinHandle<()>>,
    sequence: u32,
    reset_time: Duration,
}

impl Engine {
    /// Starts an engine process and waits until it is confined.
    ///
    /// # Errors
    /// The process or a thread cannot be started; messages of the process itself
    /// are written to standard error.
    pub fn start(recipe: &Recipe, links: &Arc<Links>) -> io::Result<Self> {
        let (mailbox, fd) = MailboxMap::create()?;
        set_up(&mailbox, recipe);
        let link = Arc::new(Link::new(recipe.vm, mailbox));
        let files = recipe.files.iter().copied();
        let fds: Vec<RawFd> = std::iter::once(fd.as_raw_fd()).chain(files).collect();
        debug_assert!(fds.len() <= MAX_FILES + 1);
        let (tell, told) = std::sync::mpsc::channel();
        let (own, home) = (Arc::clone(&link), Arc::clone(links));
        // The kernel ends the process when the thread that started it ends.
        let gate =
            std::thread::Builder::new().name("gate".into()).spawn(move || {
                match spawn::start(&fds, START_TIME, || home.is_closed()) {
                    Ok((process, child, reports)) => {
                        let _ = own.process.set(process);
                        if tell.send(Ok(())).is_ok() {
                            gate::watch(&own, child, &reports, &home);
                        }
                    }
                    Err(error) => drop(tell.send(Err(error))),
                }
            })?;
        let lost = || io::Error::other("the thread that starts engine processes has ended");
        told.recv().map_err(|_| lost())??;
        let reset_time = Duration::from_millis(u64::from(recipe.settings.reset_ms));
        let mut engine = Self { link, threads: vec![gate], sequence: 0, reset_time };
        let (own, home) = (Arc::clone(&engine.link), Arc::clone(links));
        let ear = std::thread::Builder::new().name("ear".into());
        engine.threads.push(ear.spawn(move || ear::listen(&own, &home))?);
        // It takes orders only once it is confined. So the answer to an order that does nothing shows that it
        // is confined.
        let nothing = Order { opcode: op::NOP, ..Order::default() };
        let unconfined = |Ended| io::Error::other("the engine process has not confined itself");
        engine
            .order_within(&nothing, START_TIME, START_TIME, || links.is_closed())
            .map_err(unconfined)?;
        Ok(engine)
    }

    /// Has an order carried out, and returns status and values, which only the
    /// process vouches for. A process that is too slow is ended.
    ///
    /// # Errors
    /// It has ended.
    pub fn order(&mut self, order: &Order) -> Result<(u32, [u64; 7]), Ended> {
        let (all, step) = (self.reset_time + ORDER_TIME, self.reset_time + STEP_TIME);
        self.order_within(order, all, step, || false)
    }

    /// [`Self::order`] with these limits, for all of it and for one mapping of it; it is given up when `over` is true.
    fn order_within(
        &mut self,
        order: &Order,
        order_time: Duration,
        step_time: Duration,
        over: impl Fn() -> bool,
    ) -> Result<(u32, [u64; 7]), Ended> {
        let link = Arc::clone(&self.link);
        self.sequence = self.sequence.wrapping_add(1);
        let mut progress = link.progress();
        if progress.ended {
            return Err(Ended);
        }
        progress.allowed = order.pieces.iter().map(|piece| piece.system_call()).collect();
        progress.allowed.push(fence_arguments(self.sequence));
        progress.made = 0;
        link.mailbox.to_engine.give(self.sequence, order);
        let mut made = 0;
        let (mut order_left, mut step_left) = (Patience::new(order_time), Patience::new(step_time));
        loop {
            if progress.made == progress.allowed.len() {
                break;
            }
            if progress.made != made {
                made = progress.made;
                step_left = Patience::new(step_time);
            }
            if progress.ended {
                return Err(Ended);
            }
            let step = order_left.step().min(step_left.step());
            if step.is_zero() || over() {
                drop(progress);
                self.end();
                return Err(Ended);
            }
            let waited = link.changed.wait_timeout(progress, step);
            progress = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        // No call is allowed between orders.
        progress.allowed.clear();
        progress.made = 0;
        let to_hub = &link.mailbox.to_hub;
        let values = std::array::from_fn(|i| to_hub.values[i].load(Ordering::Relaxed));
        Ok((to_hub.status.load(Ordering::SeqCst), values))
    }

    /// Ends the process and waits until it has ended and touches no memory any
    /// more. The VM is then lost.
    pub fn end(&self) {
        self.link.kill();
        let mut progress = self.link.progress();
        while !progress.ended {
            progress = self.link.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.link.close();
        self.end();
        for thread in self.threads.drain(..) {
            // A thread that panicked has ended, too.
            let _ = thread.join();
        }
    }
}

fn set_up(mailbox: &Mailbox, recipe: &Recipe) {
    let setup = &mailbox.setup;
    let (settings, relaxed) = (&recipe.settings, Ordering::Relaxed);
    setup.compute_engines.store(settings.compute_engines, relaxed);
    setup.copy_engines.store(settings.copy_engines, relaxed);
    setup.workers.store(settings.workers, relaxed);
    setup.substitutes.store(settings.substitutes, relaxed);
    setup.reset_ms.store(settings.reset_ms, relaxed);
    setup.files.store(recipe.files.len() as u32, relaxed);
    setup.vm.store(recipe.vm, relaxed);
    setup.waiters_file.store(recipe.waiters.0 as u32, relaxed);
    setup.waiters_offset.store(recipe.waiters.1, relaxed);
    setup.va_end.store(recipe.va_end, relaxed);
    setup.clock_start.store(recipe.clock.start(), relaxed);
    setup.chaos.store(u32::from(settings.chaos.is_some()), relaxed);
    setup.seed.store(settings.chaos.unwrap_or(0), relaxed);
}
