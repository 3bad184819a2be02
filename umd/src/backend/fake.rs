// SPDX-License-Identifier: MIT OR Apache-2.0
//! A kernel without a device, for unit tests: buffers and mappings are real, queues run nothing.
//!
//! It checks what the driver must keep to: ids exist, ranges lie in the window, nothing is mapped
//! twice, and everything is given back.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard};

use tally_uapi::ioctl::{
    BoCreate, BoInfo, DeviceInfo, EngineInfo, Errno, Query, QueueCreate, QueueDestroy, QueueKick,
    QueueQuery, SemFollow, SemNotify, SemWait, SemWake, VmBind, VmCreate, VmDestroy, VmOrphan,
    bind_flag, bind_op, engine_capability, query,
};
use zerocopy::IntoBytes;

use super::{Backend, HostWait, Ioctls, Result, Sharing, Watcher};
use crate::space;

/// See the module's description.
#[derive(Default)]
pub struct Fake(Mutex<State>);

/// State that a test may look at and change.
#[derive(Default)]
pub struct State {
    next: u32,
    /// Buffers by handle.
    pub buffers: BTreeMap<u32, OwnedFd>,
    /// VMs by id: start and size.
    pub vms: BTreeMap<u32, (u64, u64)>,
    /// Bindings: address to size and flags.
    pub bindings: BTreeMap<u64, (u64, u32)>,
    /// Queues that were made, by id.
    pub queues: BTreeMap<u32, QueueCreate>,
    /// Calls of QUEUE_KICK so far.
    pub doorbells: u32,
    /// The device counts on the host to come.
    pub defers: bool,
    /// Bytes that buffers may still take; 0 for no limit.
    pub memory_left: u64,
    /// The device does not see the process.
    pub blind: bool,
    /// From now on everything but freeing answers EIO.
    pub lost: bool,
}

impl Fake {
    /// The state.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics with the lock")
    }
}

impl State {
    fn id(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    fn alive(&self) -> Result {
        if self.lost { Err(Errno::Io) } else { Ok(()) }
    }
}

impl Backend for Fake {
    fn lane(&self) -> &'static str {
        "fake"
    }

    fn sees_process(&self) -> bool {
        !self.state().blind
    }
}

impl Ioctls for Fake {
    unsafe fn query(&self, arg: &mut Query) -> Result {
        let info = DeviceInfo {
            execution_units: 4,
            simd_lanes: 8,
            memory_bytes: 1 << 30,
            clock_hz: 1_000_000_000,
            va_start: 4096,
            va_end: 1 << 47,
            max_vms: 16,
            max_queues: 1024,
            ..Default::default()
        };
        let both = engine_capability::COMPUTE | engine_capability::COPY;
        let engines = [
            EngineInfo { capabilities: both, count: 4 },
            EngineInfo { capabilities: engine_capability::COPY, count: 2 },
        ];
        let answer: Vec<u8> = match arg.what {
            query::DEVICE => info.as_bytes().to_vec(),
            query::ENGINES => engines.as_bytes().to_vec(),
            query::TARGET => b"x86-64\0+sse2\0".to_vec(),
            query::CLOCK => [1_u64, 1].as_bytes().to_vec(),
            _ => return Err(Errno::Invalid),
        };
        if arg.data != 0 {
            // SAFETY: the caller promises `size` bytes, and the answer is not longer.
            unsafe {
                let len = answer.len().min(arg.size as usize);
                ptr::copy_nonoverlapping(answer.as_ptr(), space::pointer(arg.data), len);
            }
        }
        arg.size = answer.len() as u32;
        Ok(())
    }

    fn bo_create(&self, arg: &mut BoCreate) -> Result {
        let mut state = self.state();
        if state.memory_left != 0 {
            let left = state.memory_left.checked_sub(arg.size).ok_or(Errno::NoSpace)?;
            state.memory_left = left.max(1);
        }
        // SAFETY: a new descriptor, owned below; the name is terminated.
        let fd = unsafe {
            let fd = libc::memfd_create(c"fake".as_ptr(), libc::MFD_CLOEXEC);
            assert!(fd >= 0 && libc::ftruncate(fd, arg.size as i64) == 0, "memfd");
            OwnedFd::from_raw_fd(fd)
        };
        arg.handle = state.id();
        state.buffers.insert(arg.handle, fd);
        Ok(())
    }

    fn bo_info(&self, _: &mut BoInfo) -> Result {
        Err(Errno::NotSupported)
    }

    fn bo_close(&self, handle: u32) -> Result {
        self.state().buffers.remove(&handle).map(drop).ok_or(Errno::NoEntry)
    }

    unsafe fn bo_map(
        &self,
        handle: u32,
        offset: u64,
        size: usize,
        at: Option<NonNull<u8>>,
    ) -> Result<NonNull<u8>> {
        let state = self.state();
        let fd = state.buffers.get(&handle).ok_or(Errno::NoEntry)?.as_raw_fd();
        let flags = libc::MAP_SHARED | if at.is_some() { libc::MAP_FIXED } else { 0 };
        let hint = at.map_or(ptr::null_mut(), NonNull::as_ptr);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: with an address the caller has reserved it; else nothing is replaced.
        let mapped = unsafe { libc::mmap(hint.cast(), size, protection, flags, fd, offset as i64) };
        assert_ne!(mapped, libc::MAP_FAILED);
        NonNull::new(mapped.cast()).ok_or(Errno::NoMemory)
    }

    fn vm_create(&self, arg: &mut VmCreate) -> Result {
        let mut state = self.state();
        arg.vm_id = state.id();
        state.vms.insert(arg.vm_id, (arg.start, arg.size));
        Ok(())
    }

    fn vm_destroy(&self, arg: &VmDestroy) -> Result {
        let mut state = self.state();
        assert!(state.bindings.is_empty(), "a VM ends with bindings: {:x?}", state.bindings);
        state.vms.remove(&arg.vm_id).map(drop).ok_or(Errno::NoEntry)
    }

    unsafe fn vm_bind(&self, arg: &VmBind) -> Result {
        let mut state = self.state();
        let &(start, size) = state.vms.get(&arg.vm_id).ok_or(Errno::NoEntry)?;
        assert!(arg.address >= start && arg.address + arg.size <= start + size, "{arg:x?}");
        if arg.op == bind_op::UNMAP {
            let end = arg.address + arg.size;
            let hit: Vec<u64> = state
                .bindings
                .range(..end)
                .filter(|&(&at, &(size, _))| at + size > arg.address)
                .map(|(&at, _)| at)
                .collect();
            assert!(!hit.is_empty(), "nothing is mapped there: {arg:x?}");
            for at in hit {
                let Some((size, flags)) = state.bindings.remove(&at) else { continue };
                if at < arg.address {
                    state.bindings.insert(at, (arg.address - at, flags));
                }
                if at + size > end {
                    state.bindings.insert(end, (at + size - end, flags));
                }
            }
            return Ok(());
        }
        state.alive()?;
        let before = state.bindings.range(..arg.address + arg.size).next_back();
        assert!(before.is_none_or(|(&at, &(size, _))| at + size <= arg.address), "mapped twice");
        let known = arg.op != bind_op::MAP || state.buffers.contains_key(&arg.handle);
        assert!(known, "{arg:x?}");
        state.bindings.insert(arg.address, (arg.size, arg.flags));
        assert!(
            arg.flags & bind_flag::EXECUTE == 0 || arg.flags & bind_flag::WRITE == 0,
            "writable and executable"
        );
        Ok(())
    }

    fn queue_create(&self, arg: &mut QueueCreate) -> Result {
        let mut state = self.state();
        state.alive()?;
        arg.queue_id = state.id();
        state.queues.insert(arg.queue_id, *arg);
        Ok(())
    }

    fn queue_destroy(&self, arg: &QueueDestroy) -> Result {
        self.state().queues.remove(&arg.queue_id).map(drop).ok_or(Errno::NoEntry)
    }

    fn queue_query(&self, _: &mut QueueQuery) -> Result {
        Err(Errno::NotSupported)
    }

    fn queue_kick(&self, _: &QueueKick) -> Result<bool> {
        let mut state = self.state();
        state.doorbells += 1;
        Ok(state.defers)
    }

    unsafe fn sem_wait(&self, _: &mut SemWait) -> Result {
        self.state().alive()?;
        Err(Errno::TimedOut)
    }

    unsafe fn sem_notify(&self, _: &SemNotify) -> Result {
        Err(Errno::NotSupported)
    }

    fn sem_follow(&self, _: &SemFollow) -> Result {
        Err(Errno::NotSupported)
    }

    fn sem_wake(&self, _: &SemWake) -> Result {
        Ok(())
    }

    fn vm_orphan(&self, _: &VmOrphan) -> Result {
        Ok(())
    }
}

impl Sharing for Fake {
    fn watch(&self, _: u32, _: &[(u32, u64)], _: Arc<dyn Watcher>) -> Result<u64> {
        Ok(0)
    }

    fn unwatch(&self, _: u64) {}
}

impl HostWait for Fake {}
