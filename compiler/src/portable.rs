// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a compiler with LLVM inside has besides: functions of a newer C library than the packages may ask
//! for (2.34), and a note that says so.

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

/// A note in the program's file: that LLVM is inside, so that the linker's hash of the program stands for
/// all that makes code. The driver's cache reads it.
#[repr(C)]
struct Note {
    name_len: u32,
    len: u32,
    kind: u32,
    name: [u8; 8],
}

#[used]
#[unsafe(link_section = ".note.tally")]
static NOTE: Note = Note { name_len: 6, len: 0, kind: 1, name: *b"Tally\0\0\0" };
