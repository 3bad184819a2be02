// SPDX-License-Identifier: MIT OR Apache-2.0
//! The front end for this machine: the device as a process beside the driver, over the driver's host device
//! (`device/SPEC.md`, chapter 17).

mod areas;
mod device;

use std::io;
use std::sync::Arc;

use tally_device::Clock;
use tally_uapi::host::{ADMIN_ENTRIES, Area, Write};
use tally_uapi::regs;

use self::device::HostDevice;
use crate::Settings;
use crate::confine::confine;
use crate::engine;
use crate::identity::identity;
use crate::lane;
use crate::machine::Machine;
use crate::registers::Registers;
use crate::session::{Host, Session};

/// Makes a GPU of this machine, and serves it until the driver gives it up. `ready` is called with its number
/// once its render node exists.
///
/// # Errors
/// There is no driver, or this process has no right to be its device; the driver refuses, or gives up the GPU.
pub fn serve(settings: Settings, ready: impl FnOnce(u32)) -> io::Result<()> {
    let device = Arc::new(HostDevice::open(lane::max_mappings())?);
    engine::open_files()?;
    let (clock, va_end) = (Clock::new(), engine::fix_addresses());
    // The process still has one thread, and the others inherit this.
    confine()?;
    let identity = identity(&settings, va_end);
    let host = Arc::new(Host {
        settings,
        clock,
        machine: Arc::clone(&device) as Arc<dyn Machine>,
        va_end,
    });
    // Started before the driver can send anything, since a session begins with empty answers.
    let session = Session::start(&host, &registers())
        .ok_or_else(|| io::Error::other("the admin ring cannot be served"))?;
    ready(device.start(&identity, clock.zero())?);
    let result = attend(&device, &session);
    session.stop();
    result
}

/// The places of the driver's rings, in the form of register values.
fn registers() -> Registers {
    Registers {
        admin_ring: std::mem::offset_of!(Area, commands) as u64,
        admin_answers: std::mem::offset_of!(Area, answers) as u64,
        admin_entries: ADMIN_ENTRIES,
        waiters_page: std::mem::offset_of!(Area, waiters) as u64,
        status_page: std::mem::offset_of!(Area, status) as u64,
    }
}

/// Carries out the driver's register writes, until it has given up the device.
fn attend(device: &HostDevice, session: &Session) -> io::Result<()> {
    let mut writes = [Write::default(); 64];
    loop {
        for Write { register, value } in device.read(&mut writes)? {
            match u64::from(*register) {
                regs::ADMIN_TAIL => session.publish(*value),
                regs::KICK => session.kick(*value),
                regs::WAKE => session.wake(*value),
                // Registers of a newer driver are ignored.
                _ => {}
            }
        }
        if session.failed() {
            return Err(io::Error::other("the admin ring makes no sense"));
        }
    }
}
