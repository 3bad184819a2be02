// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies and fills of more than 2 KiB with vectors of 32 bytes.
//!
//! From that size on the C library uses `rep movsb` and `rep stosb`. On AMD's processors those are no faster
//! than a plain loop and mostly slower if the memory is in the caches, and far slower if the target begins a few
//! bytes further into its page than the source: 1.4 µs instead of 0.05 for 4 KiB on Zen 3, measured. Processors
//! of other makers have not been measured, so the C library serves them.
//!
//! The loops are assembly: the host and kernels may write the same memory at the same time, which would be a
//! data race for Rust's own accesses.

use std::arch::asm;
use std::arch::x86_64::__cpuid;
use std::sync::atomic::{AtomicU8, Ordering};

/// Size in bytes from which on the C library no longer uses a loop of its own.
const FROM: usize = 2049;

/// Bytes of a vector.
const VECTOR: usize = 32;
/// Bytes that the copying loop moves in a round: four vectors.
const ROUND: usize = 4 * VECTOR;

/// Bytes of a cache line, and of a pattern that is repeated to a line.
pub(crate) const LINE: usize = 64;

/// Whether such a copy or fill is faster here than the C library's.
#[inline]
pub(super) fn is_for(bytes: usize) -> bool {
    bytes >= FROM && is_faster()
}

/// Called within guarded calls, which may hold no lock: threads that call it first at the same time all find
/// the same answer.
fn is_faster() -> bool {
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;
    static ANSWER: AtomicU8 = AtomicU8::new(UNKNOWN);
    match ANSWER.load(Ordering::Relaxed) {
        UNKNOWN => {
            #[allow(unused_unsafe, reason = "safe in newer compilers")]
            // SAFETY: every x86-64 CPU has CPUID and its first leaf.
            let maker = unsafe { __cpuid(0) };
            let maker = [maker.ebx, maker.edx, maker.ecx].map(u32::to_le_bytes);
            let yes = maker.as_flattened() == b"AuthenticAMD" && is_x86_feature_detected!("avx2");
            ANSWER.store(if yes { YES } else { NO }, Ordering::Relaxed);
            yes
        }
        answer => answer == YES,
    }
}

/// Copies forwards.
///
/// # Safety
/// In a guarded call, on a processor with AVX2. Both are addresses of a client or `bytes` bytes of ours,
/// which are apart, and there are at least [`ROUND`] bytes.
pub(super) unsafe fn copy(dst: u64, src: u64, bytes: usize) {
    // From the second vector on the target is aligned; the bytes after the last whole round are moved as part
    // of one more round at the end, which moves the bytes before them a second time.
    let skip = VECTOR as u64 - dst % VECTOR as u64;
    let (last_dst, last_src) = (dst + (bytes - ROUND) as u64, src + (bytes - ROUND) as u64);
    // SAFETY: reads and writes within the two ranges: the loop ends once less than a round is left, and the
    // first vector and the last round fit into the smallest allowed size. Traps if there is no memory.
    unsafe {
        asm!(
            "vmovdqu ymm0, [{src}]",
            "vmovdqu [{dst}], ymm0",
            "add {src}, {skip}",
            "add {dst}, {skip}",
            "cmp {dst}, {last_dst}",
            "jae 3f",
            ".p2align 5",
            "2:",
            "vmovdqu ymm0, [{src}]",
            "vmovdqu ymm1, [{src} + 32]",
            "vmovdqu ymm2, [{src} + 64]",
            "vmovdqu ymm3, [{src} + 96]",
            "vmovdqa [{dst}], ymm0",
            "vmovdqa [{dst} + 32], ymm1",
            "vmovdqa [{dst} + 64], ymm2",
            "vmovdqa [{dst} + 96], ymm3",
            "add {src}, 128",
            "add {dst}, 128",
            "cmp {dst}, {last_dst}",
            "jb 2b",
            "3:",
            "vmovdqu ymm0, [{last_src}]",
            "vmovdqu ymm1, [{last_src} + 32]",
            "vmovdqu ymm2, [{last_src} + 64]",
            "vmovdqu ymm3, [{last_src} + 96]",
            "vmovdqu [{last_dst}], ymm0",
            "vmovdqu [{last_dst} + 32], ymm1",
            "vmovdqu [{last_dst} + 64], ymm2",
            "vmovdqu [{last_dst} + 96], ymm3",
            "vzeroupper",
            dst = inout(reg) dst => _,
            src = inout(reg) src => _,
            skip = in(reg) skip,
            last_dst = in(reg) last_dst,
            last_src = in(reg) last_src,
            out("xmm0") _,
            out("xmm1") _,
            out("xmm2") _,
            out("xmm3") _,
            options(nostack),
        );
    }
}

/// Writes a pattern repeatedly, from its first byte on.
///
/// # Safety
/// In a guarded call, on a processor with AVX2. `dst` is an address of a client, and there are at least two
/// [`LINE`]s of bytes.
pub(super) unsafe fn fill(dst: u64, line: [u8; LINE], bytes: usize) {
    // The same order as in `copy`: the first vector unaligned, then aligned ones, then the last line again.
    let skip = VECTOR - dst as usize % VECTOR;
    let turned = |by: usize| {
        let mut line = line;
        line.rotate_left(by % LINE);
        line
    };
    let (body, tail) = (turned(skip), turned(bytes));
    let last = dst + (bytes - LINE) as u64;
    // SAFETY: reads the three lines; writes within the range: the loop ends once less than a line is left,
    // and the first vector and the last line fit into the smallest allowed size. Traps if there is no memory.
    unsafe {
        asm!(
            "vmovdqu ymm0, [{line}]",
            "vmovdqu [{dst}], ymm0",
            "add {dst}, {skip}",
            "vmovdqu ymm0, [{body}]",
            "vmovdqu ymm1, [{body} + 32]",
            ".p2align 5",
            "2:",
            "vmovdqa [{dst}], ymm0",
            "vmovdqa [{dst} + 32], ymm1",
            "add {dst}, 64",
            "cmp {dst}, {last}",
            "jb 2b",
            "vmovdqu ymm0, [{tail}]",
            "vmovdqu ymm1, [{tail} + 32]",
            "vmovdqu [{last}], ymm0",
            "vmovdqu [{last} + 32], ymm1",
            "vzeroupper",
            dst = inout(reg) dst => _,
            skip = in(reg) skip,
            line = in(reg) line.as_ptr(),
            body = in(reg) body.as_ptr(),
            tail = in(reg) tail.as_ptr(),
            last = in(reg) last,
            out("xmm0") _,
            out("xmm1") _,
            options(nostack),
        );
    }
}

#[cfg(test)]
mod tests {
    use tally_uapi::fault::FaultKind;

    use super::*;
    use crate::guard::{Guard, Seat};

    /// Room around the written bytes, to check that no others are written.
    const ROOM: usize = 256;

    fn address(bytes: &mut [u8], at: usize) -> u64 {
        bytes[at..].as_mut_ptr().expose_provenance() as u64
    }

    fn noise(len: usize, seed: u32) -> Vec<u8> {
        let mut last = seed;
        let mut next = || {
            last = last.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (last >> 24) as u8
        };
        std::iter::repeat_with(&mut next).take(len).collect()
    }

    /// Every alignment of both ends, every remainder of a round.
    #[test]
    fn a_copy_moves_these_bytes_and_no_others() {
        if !is_x86_feature_detected!("avx2") {
            return;
        }
        let mut source = noise(2 * ROOM + 4096, 1);
        let before = noise(2 * ROOM + 4096, 2);
        for (i, bytes) in (ROUND..2 * ROUND + VECTOR).chain(FROM..FROM + ROUND + 1).enumerate() {
            for to in 0..VECTOR + 1 {
                let from = (i * 7 + to * 5) % 64;
                let mut target = before.clone();
                // SAFETY: within the two vectors, which are apart.
                unsafe { copy(address(&mut target, ROOM + to), address(&mut source, from), bytes) };
                let mut wanted = before.clone();
                wanted[ROOM + to..][..bytes].copy_from_slice(&source[from..][..bytes]);
                assert!(target == wanted, "{bytes} bytes to {to} from {from}");
            }
        }
    }

    #[test]
    fn a_fill_repeats_its_pattern_from_the_first_byte_and_writes_nothing_else() {
        if !is_x86_feature_detected!("avx2") {
            return;
        }
        let before = noise(2 * ROOM + 4096, 3);
        for bytes in (2 * LINE..4 * LINE + 1).chain(FROM..FROM + LINE + 1) {
            for to in 0..VECTOR + 1 {
                let length = 1 << ((bytes + to) % 7);
                let pattern: [u8; LINE] = std::array::from_fn(|i| (i % length) as u8 + 1);
                let mut target = before.clone();
                // SAFETY: within the vector.
                unsafe { fill(address(&mut target, ROOM + to), pattern, bytes) };
                let mut wanted = before.clone();
                for (i, byte) in wanted[ROOM + to..][..bytes].iter_mut().enumerate() {
                    *byte = (i % length) as u8 + 1;
                }
                assert!(target == wanted, "{bytes} bytes to {to}, pattern of {length}");
            }
        }
    }

    /// A page without memory after it: both loops reach the gap and end the guarded call there.
    #[test]
    fn where_there_is_no_memory_the_guarded_call_ends() {
        const PAGE: usize = 4096;
        if !is_x86_feature_detected!("avx2") {
            return;
        }
        let page = {
            let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: new memory, of which the second page is then taken away again.
            unsafe {
                let to =
                    libc::mmap(std::ptr::null_mut(), 2 * PAGE, libc::PROT_NONE, private, -1, 0);
                assert_ne!(to, libc::MAP_FAILED);
                assert_eq!(libc::mprotect(to, PAGE, libc::PROT_READ | libc::PROT_WRITE), 0);
                to
            }
        };
        let (start, gap) = (page.expose_provenance() as u64, (page.addr() + PAGE) as u64);
        let mut source = vec![7; 2 * PAGE];
        let seat = Seat::new().expect("a signal stack");
        let mut guard = Guard::attach(seat).expect("it is this thread's");
        // SAFETY: in a guarded call; the second half of the target is not mapped.
        let copied = guard.run(|| unsafe { copy(start, address(&mut source, 0), 2 * PAGE) });
        // SAFETY: as above, of the source.
        let read = guard.run(|| unsafe { copy(address(&mut source, 0), start, 2 * PAGE) });
        // SAFETY: as for the copy.
        let filled = guard.run(|| unsafe { fill(start, [7; LINE], 2 * PAGE) });
        for trapped in [copied, read, filled] {
            let trap = trapped.expect_err("there is no memory");
            assert_eq!((trap.kind, trap.address), (FaultKind::PageFault, gap));
        }
        // SAFETY: mapped above, and nothing refers to it any more.
        assert_eq!(unsafe { libc::munmap(page, 2 * PAGE) }, 0);
    }

    /// The expectation comes from the kernel, not from what this file asked the processor.
    #[test]
    fn only_large_ones_on_amds_processors_are_for_these_loops() {
        let said = std::fs::read_to_string("/proc/cpuinfo").expect("there is /proc");
        let amds = said.contains("AuthenticAMD") && said.contains(" avx2 ");
        assert_eq!((is_for(FROM - 1), is_for(FROM), is_for(1 << 20)), (false, amds, amds));
    }
}
