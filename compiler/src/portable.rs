// SPDX-License-Identifier: MIT OR Apache-2.0
//! What LLVM's archives want of a newer C library than the packages may ask for (2.34).

/// Random numbers: LLVM names its temporary files with them. The C library has it from 2.36 on.
#[unsafe(no_mangle)]
extern "C" fn arc4random() -> u32 {
    let mut number = 0_u32;
    // SAFETY: the bytes of `number` may be written, and it lives during the call.
    let got = unsafe { libc::getrandom((&raw mut number).cast(), size_of::<u32>(), 0) };
    // Up to 256 bytes come whole once the kernel has any to give.
    assert_eq!(got, size_of::<u32>().cast_signed(), "the kernel gives no random numbers");
    number
}
