// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state in which a kernel is called: its stack and the floating-point control.

/// Size of a kernel's stack: at least the 64 KiB of SPEC.md, and room for the frames above the kernel's.
pub(crate) const STACK_BYTES: usize = 1 << 20;

/// Sets the default floating-point control: nearest even, no traps, denormals kept.
#[inline]
pub(crate) fn set_float_control() {
    const DEFAULT: u32 = 0x1f80;
    // SAFETY: reads four bytes of a static; the value has no reserved bits.
    unsafe {
        std::arch::asm!("ldmxcsr [{}]", in(reg) &DEFAULT, options(nostack, readonly));
    }
}
