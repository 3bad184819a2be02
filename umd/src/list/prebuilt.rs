// SPDX-License-Identifier: MIT OR Apache-2.0
//! The prebuilt DISPATCH and argument block of a kernel's next launch, for an append to copy.
//!
//! Several threads may append the same kernel at once, and none of them should pay for a lock. So the
//! words are atomic, and a version tells a reader whether they changed while it copied them. If they did,
//! the append takes the general path. Arguments are copied once, from here to the memory that the device
//! reads.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use tally_uapi::eu::{ARGS_OFFSET, KernargHeader};
use tally_uapi::packet::{Dispatch, Header, Packet, PostSync, opcode};
use zerocopy::{IntoBytes, transmute};

use super::launch::{Groups, Launch, independent};

/// Number of words of the argument block that are copied at a time.
const STEP: usize = 4;

/// The next launch of a kernel, for appends to copy without a lock.
#[derive(Debug)]
pub struct Prebuilt {
    /// Odd while the rest changes.
    version: AtomicU64,
    /// The packet without the fields that an append adds. All zero: there is no launch to copy.
    header: AtomicU64,
    entry: AtomicU64,
    scratch: AtomicU64,
    sizes: AtomicU64,
    /// The argument block behind the packet's `kernarg`: the header and the arguments.
    block: Box<[[AtomicU64; STEP]]>,
}

impl Prebuilt {
    /// Creates an empty one for a kernel with `args` bytes of arguments.
    pub fn new(args: usize) -> Self {
        let words = (ARGS_OFFSET as usize + args).div_ceil(size_of::<u64>());
        Self {
            version: AtomicU64::new(0),
            header: AtomicU64::new(0),
            entry: AtomicU64::new(0),
            scratch: AtomicU64::new(0),
            sizes: AtomicU64::new(0),
            block: (0..words.div_ceil(STEP)).map(|_| Default::default()).collect(),
        }
    }

    /// From now on appends copy `launch`, whose arguments have the size that `new` was given; with `None`
    /// they find no launch here. Callers exclude each other.
    pub fn publish(&self, launch: Option<&Launch<'_>>) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        // A reader that sees one of the writes below also sees the odd version.
        fence(Ordering::Release);
        match launch {
            None => self.header.store(0, Ordering::Relaxed),
            Some(launch) => self.write(launch),
        }
        self.version.store(version + 2, Ordering::Release);
    }

    fn write(&self, launch: &Launch<'_>) {
        let header = Header {
            opcode: opcode::DISPATCH,
            flags: independent(launch),
            param: launch.local_bytes,
            ..Default::default()
        };
        let packet = Dispatch {
            header,
            entry: launch.entry,
            scratch_bytes: launch.scratch_bytes,
            group_size: launch.group_size.map(|size| size as u16),
            work_dim: launch.work_dim as u16,
            ..Default::default()
        };
        let [header, entry, _, _, scratch, sizes, ..]: [u64; 8] = transmute!(packet);
        self.header.store(header, Ordering::Relaxed);
        self.entry.store(entry, Ordering::Relaxed);
        self.scratch.store(scratch, Ordering::Relaxed);
        self.sizes.store(sizes, Ordering::Relaxed);
        let header = KernargHeader { global_offset: launch.global_offset, ..Default::default() };
        let bytes = header.as_bytes().iter().chain(launch.args);
        let mut bytes = bytes.copied().fuse();
        for word in self.block.iter().flatten() {
            let value = std::array::from_fn(|_| bytes.next().unwrap_or(0));
            word.store(u64::from_ne_bytes(value), Ordering::Relaxed);
        }
    }

    /// Bytes of the block.
    #[inline]
    pub fn bytes(&self) -> u64 {
        (self.block.len() * STEP * size_of::<u64>()) as u64
    }

    /// Copies the block to `to` and returns the packet, without its order and its signal. `None`: there is
    /// no launch here, or another thread is changing it.
    ///
    /// # Safety
    /// `to` is valid for writes of [`Prebuilt::bytes`] and aligned to 8.
    #[inline]
    pub unsafe fn copy(&self, to: *mut u64, groups: [u32; 3]) -> Option<Packet> {
        let version = self.version.load(Ordering::Acquire);
        let header = self.header.load(Ordering::Relaxed);
        if header == 0 {
            return None;
        }
        let entry = self.entry.load(Ordering::Relaxed);
        let scratch = self.scratch.load(Ordering::Relaxed);
        let sizes = self.sizes.load(Ordering::Relaxed);
        let mut to = to;
        for words in &self.block {
            let words = words.each_ref().map(|word| word.load(Ordering::Relaxed));
            // SAFETY: the caller guarantees room for the whole block.
            unsafe {
                to.cast::<[u64; STEP]>().write(words);
                to = to.add(STEP);
            }
        }
        // The reads above are ordered before the second read of the version.
        fence(Ordering::Acquire);
        if !version.is_multiple_of(2) || self.version.load(Ordering::Relaxed) != version {
            return None;
        }
        let [x, y, z] = groups.map(u64::from);
        let used = if z > 1 {
            3
        } else if y > 1 {
            2
        } else {
            1
        };
        let dim = (sizes >> DIM_SHIFT).max(used);
        Some(Packet {
            header: transmute!(header),
            body: [
                entry,
                0,
                x | y << 32,
                z | scratch,
                sizes & ((1 << DIM_SHIFT) - 1) | dim << DIM_SHIFT,
            ],
            post: PostSync::default(),
        })
    }
}

/// The bit position of `work_dim` in its word, above the three sizes.
const DIM_SHIFT: u32 = 48;

const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(Dispatch, entry) == 8 && offset_of!(Dispatch, kernarg) == 16);
    assert!(offset_of!(Dispatch, groups) == 24 && offset_of!(Dispatch, scratch_bytes) == 36);
    assert!(offset_of!(Dispatch, group_size) == 40 && offset_of!(Dispatch, work_dim) == 46);
};

impl Groups {
    /// The number of groups of a plain launch, if it is known.
    pub fn direct(self) -> Option<[u32; 3]> {
        match self {
            Self::Direct(groups) => Some(groups),
            Self::Cooperative(_) | Self::Indirect(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn launch<'a>(args: &'a [u8], code: &'a Arc<()>) -> Launch<'a> {
        Launch {
            entry: 0xc0de,
            args,
            global_offset: [7, 8, 9],
            group_size: [64, 2, 1],
            groups: Groups::Direct([1; 3]),
            work_dim: 2,
            local_bytes: 256,
            scratch_bytes: 4096,
            is_independent: true,
            keep: code,
        }
    }

    fn copy(prebuilt: &Prebuilt) -> Option<(Packet, Vec<u64>)> {
        let mut block = vec![u64::MAX; prebuilt.bytes() as usize / 8];
        // SAFETY: the block has that many bytes.
        unsafe { prebuilt.copy(block.as_mut_ptr(), [1; 3]) }.map(|packet| (packet, block))
    }

    #[test]
    fn the_block_is_the_header_and_the_arguments() {
        let (args, code) = ([1, 2, 3, 4, 5, 6, 7, 8, 9], Arc::new(()));
        let prebuilt = Prebuilt::new(args.len());
        assert_eq!(copy(&prebuilt), None);
        prebuilt.publish(Some(&launch(&args, &code)));
        let (_, block) = copy(&prebuilt).expect("it is ready");
        let header = KernargHeader { global_offset: [7, 8, 9], ..Default::default() };
        let bytes = block.as_bytes();
        assert_eq!(bytes[..ARGS_OFFSET as usize], *header.as_bytes());
        assert_eq!(bytes[ARGS_OFFSET as usize..][..args.len()], args);
    }

    #[test]
    fn who_copies_while_another_thread_changes_gets_all_of_one_launch_or_nothing() {
        let code = Arc::new(());
        let prebuilt = Prebuilt::new(64);
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..20_000u32 {
                    prebuilt.publish(Some(&launch(&[round as u8; 64], &code)));
                }
                done.store(true, Ordering::Relaxed);
            });
            while !done.load(Ordering::Relaxed) {
                if let Some((_, block)) = copy(&prebuilt) {
                    let args = &block.as_bytes()[ARGS_OFFSET as usize..][..64];
                    assert!(args.iter().all(|byte| *byte == args[0]), "{args:?}");
                }
            }
        });
    }
}
