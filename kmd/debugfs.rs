// SPDX-License-Identifier: GPL-2.0
//! /sys/kernel/debug/tally-NAME, by the name of the device: users, VMs, queues, sleepers, counters, the first fault, and the
//! module's parameters, which the abstraction does not show under /sys/module.

use kernel::debugfs::{Dir, File};
use kernel::fmt;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::account::Account;
use crate::module_parameters;
use crate::sleepers::About;
use crate::state::State;

/// The files of a device; removed on drop.
#[pin_data]
pub(crate) struct Debug {
    #[pin]
    state: File<Arc<State>>,
    #[pin]
    fault: File<Arc<State>>,
    #[pin]
    parameters: File<()>,
    _dir: Dir,
}

impl Debug {
    /// Makes the files. Without debugfs this does nothing.
    pub(crate) fn new(name: kernel::str::CString, state: Arc<State>) -> impl PinInit<Self, Error> {
        pin_init::pin_init_scope(move || {
            let dir = Dir::new(&name);
            let of_state = dir.clone();
            let of_fault = dir.clone();
            let of_parameters = dir.clone();
            let faults = state.clone();
            Ok(try_pin_init!(Self {
                state <- of_state.read_callback_file(c"state", Ok::<_, Error>(state), &show),
                fault <- of_fault.read_callback_file(c"fault", Ok::<_, Error>(faults), &show_fault),
                parameters <- of_parameters.read_callback_file(
                    c"parameters",
                    Ok::<_, Error>(()),
                    &show_parameters,
                ),
                _dir: dir,
            }? Error))
        })
    }
}

/// Most sleepers that are listed.
const SLEEPERS: usize = 128;

fn show(state: &Arc<State>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let account = state.accounts.all();
    writeln!(f, "gone\t{}", state.gone())?;
    writeln!(
        f,
        "memory\t{} of {} bytes",
        account.bytes.used(),
        account.bytes.limit()
    )?;
    writeln!(
        f,
        "buffers\t{} of {}",
        account.buffers.used(),
        account.buffers.limit()
    )?;
    writeln!(
        f,
        "kernel\t{} of {} bytes",
        account.kernel.used(),
        account.kernel.limit()
    )?;
    writeln!(
        f,
        "waits\t{} of {}",
        account.waits.used(),
        account.waits.limit()
    )?;
    writeln!(f, "quarantined\t{} bytes", state.quarantined())?;
    writeln!(f, "asleep\t{} cells", state.sleepers.asleep())?;
    for (name, limit) in state.limits() {
        writeln!(f, "{name}\t{limit}")?;
    }
    for (name, count) in state.counts() {
        writeln!(f, "{name}\t{count}")?;
    }
    let mut result = Ok(());
    state.accounts.for_each_user(
        |id,
         files,
         Account {
             bytes,
             buffers,
             kernel,
             waits,
         }| {
            result = result.and_then(|()| {
                write!(
                    f,
                    "user {id}\t{files} files, {} of {} bytes, ",
                    bytes.used(),
                    bytes.limit()
                )?;
                write!(f, "{} of {} buffers, ", buffers.used(), buffers.limit())?;
                write!(f, "{} of {} waits, ", waits.used(), waits.limit())?;
                writeln!(
                    f,
                    "{} of {} bytes of the kernel",
                    kernel.used(),
                    kernel.limit()
                )
            });
        },
    );
    result?;
    let mut sleepers = KVec::with_capacity(SLEEPERS, GFP_KERNEL).map_err(|_| fmt::Error)?;
    let more = state.sleepers.about(&mut sleepers);
    for about in sleepers.iter() {
        let About {
            thread,
            place,
            cell,
            compare,
            value,
        } = *about;
        let wanted = compare.symbol();
        writeln!(
            f,
            "wait\tthread {thread}, at {place:#x} of a page: was {cell}, until {wanted} {value}"
        )?;
    }
    if more != 0 {
        writeln!(f, "wait\tand {more} more")?;
    }
    let mut result = Ok(());
    state.vms.for_each(
        |_| true,
        |id, vm| {
            let (mappings, bytes) = vm.mapped();
            let (window, lost) = (vm.window(), if vm.lost() { ", lost" } else { "" });
            let (start, end, pid) = (window.start, window.end, vm.pid());
            result = result.and(writeln!(
                f,
                "vm {id}\tprocess {pid}, {start:#x} to {end:#x}, {mappings} mappings of {bytes} bytes{lost}"
            ));
        },
    );
    state.queues.for_each(
        |_| true,
        |id, queue| {
            let (vm, class, busy) = (queue.vm().id(), queue.class(), queue.busy_ns());
            result = result.and(writeln!(
                f,
                "queue {id}\tvm {vm}, class {class}, busy {busy} ns"
            ));
        },
    );
    result
}

fn show_fault(state: &Arc<State>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some(fault) = *state.fault.lock() else {
        return Ok(());
    };
    let kind = tally_uapi::fault::FaultKind::from_raw(fault.kind);
    writeln!(f, "time\t{} ns", fault.time_ns)?;
    writeln!(f, "process\t{}", fault.pid)?;
    writeln!(f, "vm\t{}", fault.vm)?;
    writeln!(f, "queue\t{}", fault.queue)?;
    writeln!(
        f,
        "kind\t{} ({})",
        fault.kind,
        kind.map_or("unknown", |kind| kind.name())
    )?;
    writeln!(f, "address\t{:#x}", fault.address)?;
    writeln!(f, "packet\t{}", fault.packet)
}

fn show_parameters((): &(), f: &mut fmt::Formatter<'_>) -> fmt::Result {
    macro_rules! lines {
        ($($name:ident)*) => {
            $(writeln!(f, "{}\t{}", stringify!($name), *module_parameters::$name.value_ref())?;)*
        };
    }
    lines!(memory_mib client_memory_mib user_memory_mib user_buffers user_kernel_mib);
    lines!(max_vms max_queues user_vms user_queues admin_timeout_ms reset_timeout_ms);
    Ok(())
}
