// SPDX-License-Identifier: MIT OR Apache-2.0
//! The PCI function's interface for the VMM: regions, interrupts, DMA, resets.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tally_device::Clock;
use tally_uapi::regs::{self, control, status};
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_ACTION_TYPE_MASK,
    VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE, VFIO_PCI_BAR0_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_NUM_REGIONS,
    VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, Server, ServerBackend, ServerRegion};

use super::config::{CONFIG_BYTES, ConfigSpace};
use super::interrupt::Interrupt;
use super::mappings::{Guest, GuestMachine};
use super::memory::GuestMemory;
use crate::Settings;
use crate::confine::confine;
use crate::engine;
use crate::lane;
use crate::registers::Registers;
use crate::session::{Host, Session};

/// Serves one VMM at a socket, until it closes the connection. Each VM takes a few descriptors of this
/// process; VMs for which there are none left are refused.
///
/// # Errors
/// The path exists already, or the socket or the connection fails; the text
/// says which.
pub fn serve(socket: &Path, settings: Settings) -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::new(socket, true, irqs(), regions())?;
    let mut function = Function::new(settings)?;
    engine::open_files()?;
    // The process still has one thread, and the others inherit this.
    confine()?;
    let result = server.run(&mut function);
    function.stop();
    Ok(result?)
}

fn regions() -> Vec<ServerRegion> {
    let region = |index| {
        let size = match index {
            VFIO_PCI_BAR0_REGION_INDEX => regs::BAR_SIZE,
            VFIO_PCI_CONFIG_REGION_INDEX => CONFIG_BYTES as u64,
            _ => 0,
        };
        let access = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
        let region_info = vfio_region_info {
            argsz: size_of::<vfio_region_info>() as u32,
            flags: if size == 0 { 0 } else { access },
            index,
            size,
            ..Default::default()
        };
        ServerRegion { region_info, sparse_areas: Vec::new(), mmap_fd: None }
    };
    (0..VFIO_PCI_NUM_REGIONS).map(region).collect()
}

fn irqs() -> Vec<IrqInfo> {
    let irq = |index| {
        let ours = index == VFIO_PCI_MSIX_IRQ_INDEX;
        let count = if ours { u32::from(regs::MSIX_VECTORS) } else { 0 };
        IrqInfo { index, flags: if ours { VFIO_IRQ_INFO_EVENTFD } else { 0 }, count }
    };
    // Later ones are for error recovery, which the function does not offer.
    (0..=VFIO_PCI_MSIX_IRQ_INDEX).map(irq).collect()
}

/// The session, and the state that STATUS shows besides it.
#[derive(Debug, Default)]
struct Power {
    session: Option<Arc<Session>>,
    resetting: bool,
    failed: bool,
}

/// The PCI function.
pub struct Function {
    config: ConfigSpace,
    registers: Registers,
    guest: Arc<Guest>,
    host: Arc<Host>,
    power: Arc<Mutex<Power>>,
}

fn lock(power: &Mutex<Power>) -> MutexGuard<'_, Power> {
    power.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Function {
    /// The function after power-on.
    ///
    /// # Errors
    /// A resource that every engine process needs is not available.
    pub fn new(settings: Settings) -> io::Result<Self> {
        let guest = Arc::new(Guest {
            memory: GuestMemory::default(),
            interrupt: Interrupt::default(),
            max_mappings: lane::max_mappings(),
            most_null_bytes: settings.null_bytes,
            null_bytes: AtomicU64::new(0),
        });
        let host = Host {
            settings,
            clock: Clock::new(),
            machine: Arc::new(GuestMachine(Arc::clone(&guest))),
            va_end: engine::fix_addresses(),
        };
        Ok(Self {
            config: ConfigSpace::new(),
            registers: Registers::default(),
            guest,
            host: Arc::new(host),
            power: Arc::default(),
        })
    }

    /// Ends everything that the device does.
    pub fn stop(&mut self) {
        self.reset_now();
    }

    fn status(&self) -> u32 {
        let power = lock(&self.power);
        let failed = power.failed || power.session.as_ref().is_some_and(|it| it.failed());
        let mut bits = 0;
        for (set, bit) in [
            (power.session.is_some() && !failed, status::ENABLED),
            (power.resetting, status::RESETTING),
            (failed, status::FAILED),
        ] {
            bits |= if set { bit } else { 0 };
        }
        bits
    }

    fn enable(&mut self) {
        let mut power = lock(&self.power);
        if power.session.is_some() || power.resetting || power.failed {
            return;
        }
        match Session::start(&self.host, &self.registers) {
            Some(session) => power.session = Some(session),
            None => power.failed = true,
        }
    }

    /// CONTROL's RESET: the driver polls STATUS until it is done.
    fn begin_reset(&mut self) {
        let mut power = lock(&self.power);
        if std::mem::replace(&mut power.resetting, true) {
            return;
        }
        self.registers = Registers::default();
        let (session, shared) = (power.session.take(), Arc::clone(&self.power));
        let guest = Arc::clone(&self.guest);
        drop(power);
        std::thread::spawn(move || finish_reset(session, &guest, &shared));
    }

    /// A function-level reset, or a reset by the VMM. It is done when this returns.
    fn reset_now(&mut self) {
        self.registers = Registers::default();
        let mut power = lock(&self.power);
        let running = std::mem::replace(&mut power.resetting, true);
        let session = power.session.take();
        drop(power);
        if !running {
            finish_reset(session, &self.guest, &self.power);
        }
        while lock(&self.power).resetting {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    fn read_register(&mut self, offset: u64, bytes: usize) -> u64 {
        if self.is_resetting() && offset != regs::STATUS {
            return 0;
        }
        let part = |value: u64, register: u64| value >> ((offset - register) * 8);
        let value = match offset {
            regs::MAGIC => u64::from(regs::MAGIC_VALUE),
            regs::VERSION => u64::from(regs::VERSION_MAJOR) << 16 | u64::from(regs::VERSION_MINOR),
            regs::STATUS => u64::from(self.status()),
            regs::CLOCK => self.host.clock.ticks(),
            offset if offset == regs::CLOCK + 4 => part(self.host.clock.ticks(), regs::CLOCK),
            _ => self.registers.read(offset, bytes),
        };
        if bytes < 8 { value & ((1 << (bytes * 8)) - 1) } else { value }
    }

    fn write_register(&mut self, offset: u64, bytes: usize, value: u64) {
        if self.is_resetting() {
            return;
        }
        let session = lock(&self.power).session.clone();
        match (offset, bytes) {
            (regs::CONTROL, 4) if value == u64::from(control::ENABLE) => self.enable(),
            (regs::CONTROL, 4) if value == u64::from(control::RESET) => self.begin_reset(),
            (regs::ADMIN_TAIL | regs::KICK | regs::WAKE, 4) => {
                let Some(session) = session else { return };
                match offset {
                    regs::ADMIN_TAIL => session.publish(value as u32),
                    regs::KICK => session.kick(value as u32),
                    _ => session.wake(value as u32),
                }
            }
            _ => self.registers.write(offset, bytes, value),
        }
    }

    fn is_resetting(&self) -> bool {
        lock(&self.power).resetting
    }
}

fn finish_reset(session: Option<Arc<Session>>, guest: &Guest, power: &Mutex<Power>) {
    if let Some(session) = session {
        session.stop();
    }
    guest.interrupt.forget();
    *lock(power) = Power::default();
}

impl ServerBackend for Function {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        data.fill(0);
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX => self.config.read(offset, data),
            VFIO_PCI_BAR0_REGION_INDEX if data.len() <= 8 => {
                let value = self.read_register(offset, data.len());
                data.copy_from_slice(&value.to_le_bytes()[..data.len()]);
            }
            _ => {}
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX => {
                let asks_for_reset = self.config.write(offset, data);
                if asks_for_reset {
                    self.reset()?;
                }
            }
            VFIO_PCI_BAR0_REGION_INDEX if data.len() <= 8 => {
                let mut bytes = [0; 8];
                bytes[..data.len()].copy_from_slice(data);
                self.write_register(offset, data.len(), u64::from_le_bytes(bytes));
            }
            _ => {}
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> io::Result<()> {
        let writable = flags.contains(DmaMapFlags::WRITE);
        self.guest.memory.insert(address, size, offset, fd, writable)
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        if flags.contains(DmaUnmapFlags::UNMAP_ALL) {
            self.guest.memory.clear();
        } else {
            self.guest.memory.remove(address, size);
        }
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        self.reset_now();
        self.config = ConfigSpace::new();
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        start: u32,
        count: u32,
        fds: Vec<File>,
    ) -> io::Result<()> {
        let trigger = flags & VFIO_IRQ_SET_ACTION_TYPE_MASK == VFIO_IRQ_SET_ACTION_TRIGGER;
        if index != VFIO_PCI_MSIX_IRQ_INDEX || !trigger || start != 0 {
            return Ok(());
        }
        if flags & VFIO_IRQ_SET_DATA_EVENTFD != 0 {
            self.guest.interrupt.connect(fds.into_iter().next());
        } else if flags & VFIO_IRQ_SET_DATA_NONE != 0 {
            match count {
                0 => self.guest.interrupt.connect(None),
                _ => self.guest.interrupt.raise(),
            }
        }
        Ok(())
    }
}
