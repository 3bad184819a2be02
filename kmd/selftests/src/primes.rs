// SPDX-License-Identifier: GPL-2.0
//! PRIME with other drivers: vgem attaches to buffers of Tally.

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::{Acquire, Release};

use tally_uapi::ioctl::{SemFollow, bo_flag, follow_kind};

use crate::Outcome;
use crate::device::{
    FOREVER, Fixture, Mapped, Node, PAGE, counter, entry, eventually, nobody_is_left,
};
use crate::foreign::{Vgem, sync_file_of};
use crate::half::Gone;
use crate::processes::process;

const NO_VGEM: Outcome = Outcome::Skipped("the kernel has no vgem");
const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// "another driver … pins them": the buffer outlives its handles and its file as long as the other driver has it.
pub fn another_driver_keeps_a_buffer() -> Outcome {
    let Some(vgem) = Vgem::open() else { return NO_VGEM };
    nobody_is_left();
    let before = counter("buffers");
    let theirs = {
        let fixture = Fixture::new();
        let (handle, memory) = fixture.memory(0, 3);
        memory.word(2 * PAGE as usize / 8).store(7, Release);
        let fd = fixture.node.export(handle).unwrap();
        let theirs = vgem.0.import(fd.as_raw_fd()).expect("our buffer");
        // Importing it twice gives the same handle.
        assert_eq!(vgem.0.import(fd.as_raw_fd()), Ok(theirs));
        theirs
    };
    nobody_is_left();
    assert_eq!(counter("buffers"), before + 1);
    // What vgem exports is our dma-buf.
    let back = vgem.0.export(theirs).unwrap();
    let mapped = Mapped::new(back.as_raw_fd(), 0, 3 * PAGE, RW).unwrap();
    assert_eq!(mapped.word(2 * PAGE as usize / 8).load(Acquire), 7);
    let node = Node::open();
    let again = node.import(back.as_raw_fd()).unwrap();
    assert_eq!(node.map(again, RW).unwrap().word(2 * PAGE as usize / 8).load(Acquire), 7);
    drop((mapped, back, node));
    vgem.0.close(theirs).unwrap();
    eventually(|| counter("buffers") == before);
    Outcome::Passed
}

/// A fence that another driver attaches to a buffer of ours is one that a counter can follow.
pub fn fences_of_a_shared_buffer_are_followed() -> Outcome {
    let Some(vgem) = Vgem::open() else { return NO_VGEM };
    let fixture = Fixture::new();
    let (handle, _memory) = fixture.memory(0, 1);
    let fd = fixture.node.export(handle).unwrap();
    let theirs = vgem.0.import(fd.as_raw_fd()).expect("our buffer");
    let fence = vgem.attach(theirs);
    let source = sync_file_of(fd.as_raw_fd());
    let kind = follow_kind::SYNC_FILE;
    let source = source.as_raw_fd() as u32;
    let mut arg = SemFollow { handle, value: 1, kind, source, ..Default::default() };
    fixture.node.call(&mut arg).unwrap();
    // vgem may have signalled by itself, after ten seconds.
    let _ = vgem.signal(fence);
    assert_eq!(fixture.wait(&[entry(handle, 0, 1)], 0, FOREVER), Ok(0));
    Outcome::Passed
}

/// "IMPORT_READ_ONLY … not at all": other drivers would not keep the rule.
pub fn private_buffers_are_not_for_other_drivers() -> Outcome {
    let Some(vgem) = Vgem::open() else { return NO_VGEM };
    let fixture = Fixture::new();
    let handle = fixture.node.bo(1, bo_flag::IMPORT_READ_ONLY).unwrap();
    let fd = fixture.node.export(handle).unwrap();
    assert_eq!(vgem.0.import(fd.as_raw_fd()), Err(libc::ENOSYS));
    Outcome::Passed
}

/// "Nothing is revoked": neither by the end of the client nor by that of the device. Afterwards no driver attaches
/// any more.
pub fn another_driver_keeps_a_buffer_without_its_device() -> Outcome {
    let Some(vgem) = Vgem::open() else { return NO_VGEM };
    let fixture = Fixture::new();
    let (handle, memory) = fixture.memory(0, 1);
    let fresh = fixture.node.bo(1, 0).unwrap();
    memory.word(0).store(9, Release);
    let [fd, other] = [handle, fresh].map(|handle| fixture.node.export(handle).unwrap());
    let theirs = vgem.0.import(fd.as_raw_fd()).expect("our buffer");
    let gone = Gone::now();
    assert_eq!(memory.word(0).load(Acquire), 9);
    assert_eq!(vgem.0.import(other.as_raw_fd()), Err(libc::ENODEV));
    drop((memory, fixture, fd, other));
    vgem.0.close(theirs).unwrap();
    drop(gone);
    crate::queues::a_signal_arrives();
    Outcome::Passed
}

/// A process that holds buffers by another driver is killed.
pub fn importers_are_killed() -> Outcome {
    let Some(vgem) = Vgem::open() else { return NO_VGEM };
    drop(vgem);
    nobody_is_left();
    let before = counter("buffers");
    let (read, write) = std::io::pipe().expect("a pipe");
    let child = process(|| {
        let fixture = Fixture::new();
        let vgem = Vgem::open().expect("vgem");
        for page in 0..8 {
            let (handle, _memory) = fixture.memory(page, 1);
            let fd = fixture.node.export(handle).unwrap();
            vgem.0.import(fd.as_raw_fd()).expect("our buffer");
        }
        std::io::Write::write_all(&mut &write, &[1]).is_ok() && {
            // SAFETY: takes nothing.
            unsafe { libc::pause() };
            true
        }
    });
    std::io::Read::read_exact(&mut &read, &mut [0]).expect("its word");
    assert_eq!(counter("buffers"), before + 8);
    child.kill();
    nobody_is_left();
    eventually(|| counter("buffers") == before);
    Outcome::Passed
}
