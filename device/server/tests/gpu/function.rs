// SPDX-License-Identifier: MIT OR Apache-2.0
//! The PCI function: registers, reset, admin ring.

use std::sync::atomic::Ordering;

use tally_uapi::firmware::{Command, MAX_QUEUES, answer_status, op};
use tally_uapi::regs::{self, status};

use crate::support::{ENTRIES, Gpu, MEMORY, eventually};

fn command(opcode: u32, args: [u64; 6]) -> Command {
    Command { opcode, args, ..Command::default() }
}

/// "MAGIC u32 r "TALY"; VERSION u32 r major in the upper half"
#[test]
fn a_driver_recognises_the_function() {
    let gpu = Gpu::off(&[]);
    assert_eq!(gpu.config(0) as u16, regs::PCI_VENDOR);
    assert_eq!((gpu.config(0) >> 16) as u16, regs::PCI_DEVICE);
    assert_eq!(gpu.config(8) >> 8, regs::PCI_CLASS);
    assert_eq!(gpu.read32(regs::MAGIC).to_le_bytes(), *b"TALY");
    let version = gpu.read32(regs::VERSION);
    assert_eq!((version >> 16) as u16, regs::VERSION_MAJOR);
    assert_eq!(gpu.read32(regs::STATUS), 0);
    let before = gpu.read64(regs::CLOCK);
    assert!(gpu.read64(regs::CLOCK) > before);
}

/// "ENABLE with an address that is not the guest's memory sets FAILED." and
/// "RESET clears it."
#[test]
fn enable_refuses_what_is_not_memory() {
    let gpu = Gpu::off(&[]);
    for (register, value) in [
        (regs::ADMIN_RING, MEMORY),
        (regs::ADMIN_ANSWERS, 0x1008),
        (regs::WAITERS_PAGE, !0xfff),
        (regs::STATUS_PAGE, 1 << 50),
    ] {
        gpu.write64(regs::ADMIN_RING, 0x1000);
        gpu.write64(regs::ADMIN_ANSWERS, 0x2000);
        gpu.write64(regs::WAITERS_PAGE, 0x3000);
        gpu.write64(regs::STATUS_PAGE, 0x4000);
        gpu.write32(regs::ADMIN_ENTRIES, 16);
        gpu.write64(register, value);
        gpu.write32(regs::CONTROL, regs::control::ENABLE);
        assert_eq!(gpu.read32(regs::STATUS), status::FAILED, "register {register:#x}");
        gpu.reset();
        assert_eq!(gpu.read32(regs::STATUS), 0);
    }
    assert!(gpu.enable());
}

/// "After RESET, or a function-level reset, all registers are zero again"
#[test]
fn a_reset_forgets_the_registers() {
    let gpu = Gpu::new();
    assert_eq!(gpu.read64(regs::STATUS_PAGE), 0x7000);
    gpu.reset();
    assert_eq!(gpu.read64(regs::STATUS_PAGE), 0);
    assert!(gpu.enable());
    // Bit 15 of the device control register, 8 bytes into the capability.
    let capability = u64::from(gpu.config(0x34) as u8);
    assert_eq!(gpu.config(capability) as u8, 0x10, "PCI Express");
    assert_ne!(gpu.config(capability + 4) & 1 << 28, 0, "has a function-level reset");
    gpu.write_config16(capability + 8, 1 << 15);
    assert_eq!(gpu.read32(regs::STATUS), 0);
    assert_eq!(gpu.read64(regs::ADMIN_RING), 0);
    assert!(gpu.enable());
    gpu.client.lock().unwrap().reset().unwrap();
    assert_eq!(gpu.read32(regs::STATUS), 0);
}

/// "IDENTIFY: Writes an Identity to args[0], a page." and "It then raises an
/// interrupt."
#[test]
fn identify_tells_what_the_device_is() {
    let gpu = Gpu::new();
    let identity = gpu.identity();
    eventually("an interrupt", || gpu.interrupts() != 0);
    assert_eq!(identity.engine_classes, 2);
    assert_eq!(identity.engines[0].count, 4);
    assert_eq!(identity.device.execution_units, 2);
    assert_eq!(identity.device.max_queues, MAX_QUEUES);
    assert!(identity.device.va_start < identity.device.va_end);
    let target = &identity.target[..identity.target_bytes as usize];
    assert_eq!(target.iter().filter(|&&byte| byte == 0).count(), 2, "name and features");
    let answer = gpu.admin(&command(op::IDENTIFY, [MEMORY, 0, 0, 0, 0, 0]));
    assert_eq!(answer.status, answer_status::INVALID);
}

/// "A slot of the ring may be used again when its command is answered."
#[test]
fn the_ring_goes_round() {
    let gpu = Gpu::new();
    for _ in 0..ENTRIES * 3 + 1 {
        assert_eq!(gpu.admin(&command(op::NOP, [0; 6])).status, answer_status::OK);
    }
    // The count is raised after the answer is written.
    let answered = || gpu.status_page().answered.load(Ordering::Relaxed);
    let all = u64::from(ENTRIES) * 3 + 1;
    eventually("the last count", || answered() >= all);
    assert_eq!(answered(), all);
}
