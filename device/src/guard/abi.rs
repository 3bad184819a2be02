// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a kernel finds when it is called: its stack and the floating-point control.

/// A kernel's stack: at least the 64 KiB of SPEC.md, and what is above it.
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
