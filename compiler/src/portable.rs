// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of a compiler that contains LLVM: functions of a newer C library than the packages may require
//! (2.34), and a note that LLVM is inside.

/// Random numbers, with which LLVM names its temporary files. The C library has this function from 2.36
/// on.
#[unsafe(no_mangle)]
extern "C" fn arc4random() -> u32 {
    let mut number = 0_u32;
    // SAFETY: the bytes of `number` may be written, and it lives during the call.
    let got = unsafe { libc::getrandom((&raw mut number).cast(), size_of::<u32>(), 0) };
    // The kernel returns up to 256 bytes at once, as soon as its generator is initialised.
    assert_eq!(got, size_of::<u32>().cast_signed(), "the kernel gives no random numbers");
    number
}

/// A note in the program's file. It says that LLVM is inside, so that the linker's build ID of the
/// program identifies everything that generates code. The driver's cache reads it.
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
