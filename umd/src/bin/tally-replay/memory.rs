// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of a replay: allocations at the recorded addresses, and stand-ins for the program's own memory.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use ze_tally::recording::hash;

use crate::Result;
use crate::scan::Scan;

/// Memory that recorded addresses stand for.
pub struct Memory {
    /// Allocations: bytes by address.
    allocations: BTreeMap<u64, u64>,
    /// The program's memory: end, and where it is here.
    host: BTreeMap<u64, (u64, u64)>,
    reservation: (u64, u64),
}

fn pointer(address: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// Writes bytes. What may not be written (virtual memory that is for reading only, whose bytes are written elsewhere) is
/// told, and stays.
fn put(to: *mut u8, data: &[u8]) -> Result<()> {
    static TOLD: Once = Once::new();
    let local = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
    let remote = libc::iovec { iov_base: to.cast(), iov_len: data.len() };
    // SAFETY: the place is an allocation's or a stand-in of this process, and the call answers EFAULT where nothing can
    // be written. The device may access it, as it may while a program writes it.
    let put = unsafe { libc::process_vm_writev(libc::getpid(), &local, 1, &remote, 1, 0) };
    match put {
        _ if put == data.len() as isize => Ok(()),
        -1 if std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT) => {
            Err(std::io::Error::last_os_error().into())
        }
        _ => {
            TOLD.call_once(|| {
                eprintln!(
                    "tally-replay: memory at {to:p} cannot be written here, and stays as it is"
                );
            });
            Ok(())
        }
    }
}

/// The range that holds all of `bytes` at an address: its start and what is known of it.
fn find<T: Copy>(
    map: &BTreeMap<u64, T>,
    address: u64,
    bytes: u64,
    end: impl Fn(u64, T) -> u64,
) -> Option<(u64, T)> {
    let (&start, &it) = map.range(..=address).next_back()?;
    (address.checked_add(bytes)? <= end(start, it)).then_some((start, it))
}

impl Memory {
    /// Makes stand-ins for the program's memory, where it was if nothing is there.
    pub fn new(scan: &Scan) -> Result<Self> {
        let mut host = BTreeMap::new();
        for (&start, &end) in &scan.host {
            let size = (end - start) as usize;
            let map = |at: u64, flags| {
                let at = pointer(at).cast::<c_void>();
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | flags;
                // SAFETY: without MAP_FIXED no mapping is replaced.
                unsafe { libc::mmap(at, size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) }
            };
            let mut made = map(start, libc::MAP_FIXED_NOREPLACE);
            if made == libc::MAP_FAILED {
                made = map(0, 0);
            }
            if made == libc::MAP_FAILED {
                let error = std::io::Error::last_os_error();
                return Err(format!("{size} bytes for the program's memory: {error}").into());
            }
            host.insert(start, (end, made.expose_provenance() as u64));
        }
        Ok(Self { allocations: BTreeMap::new(), host, reservation: scan.begin.reservation })
    }

    /// Adds an allocation.
    pub fn add(&mut self, address: u64, bytes: u64) {
        self.allocations.insert(address, bytes);
    }

    /// Forgets the allocations that begin in a range.
    pub fn remove(&mut self, address: u64, bytes: u64) {
        let end = address.saturating_add(bytes.max(1));
        self.allocations.retain(|&at, _| at < address || at >= end);
    }

    /// Where memory of a command is here. Memory of no allocation stays what it is: the command is refused.
    pub fn here(&self, address: u64, bytes: u64) -> Result<u64> {
        if address.wrapping_sub(self.reservation.0) < self.reservation.1 {
            return Ok(address);
        }
        let found = find(&self.host, address, bytes, |_, (end, _)| end);
        let (start, (_, at)) = found.ok_or_else(|| format!("nothing is known of {address:#x}"))?;
        Ok(at + (address - start))
    }

    /// The same for memory that is read and written here.
    fn place(&self, address: u64, bytes: u64) -> Result<*mut u8> {
        if address.wrapping_sub(self.reservation.0) >= self.reservation.1 {
            return Ok(pointer(self.here(address, bytes)?));
        }
        match find(&self.allocations, address, bytes, |start, size| start.saturating_add(size)) {
            Some(_) => Ok(pointer(address)),
            None => Err(format!("{bytes} bytes at {address:#x} are in no allocation").into()),
        }
    }

    /// Writes bytes; a mask says which, if not all.
    pub fn write(&self, address: u64, mask: &[u8], data: &[u8]) -> Result<()> {
        let bytes = if mask.is_empty() { data.len() } else { mask.len() * 8 };
        let last = mask.iter().rposition(|&byte| byte != 0);
        // The last byte of the mask may reach beyond the end of the memory.
        let used = last.map_or(bytes, |last| 8 * (last + 1) - mask[last].leading_zeros() as usize);
        let to = self.place(address, used as u64)?;
        if mask.is_empty() {
            return put(to, data);
        }
        let mut i = 0;
        let mut data = data;
        while i < used {
            let is_set = |&i: &usize| mask[i / 8] & (1 << (i % 8)) != 0;
            let run = (i..used).take_while(is_set).count();
            let (part, rest) =
                data.split_at_checked(run).ok_or("a change has fewer bytes than it says")?;
            if run != 0 {
                put(to.wrapping_add(i), part)?;
            }
            data = rest;
            i += run.max(1);
        }
        Ok(())
    }

    /// Writes a word that commands may wait for, or adds to it.
    pub fn write_word(&self, address: u64, value: u64, adds: bool) -> Result<()> {
        let to = self.place(address, 8)?.cast::<AtomicU64>();
        if !to.is_aligned() {
            return Err(format!("the word at {address:#x} is not aligned").into());
        }
        // SAFETY: the place is mapped and aligned, and the device accesses the word atomically.
        let word = unsafe { &*to };
        match adds {
            true => _ = word.fetch_add(value, Ordering::AcqRel),
            false => word.store(value, Ordering::Release),
        }
        Ok(())
    }

    /// Writes the bytes of a mask that are what they were; the number of those that are neither that nor what they
    /// were to become.
    pub fn write_if(&self, address: u64, mask: &[u8], old: &[u8], data: &[u8]) -> Result<u64> {
        let places = (0..mask.len() * 8).filter(|&i| mask[i / 8] & (1 << (i % 8)) != 0);
        let used = places.clone().next_back().map_or(0, |last| last + 1);
        let to = self.place(address, used as u64)?;
        let mut differ = 0;
        let mut bytes = old.iter().zip(data);
        for i in places {
            let (&old, &new) = bytes.next().ok_or("a change has fewer bytes than it says")?;
            // SAFETY: the place is mapped and has as many bytes. The device may access it, as it may while a
            // program does.
            match unsafe { to.add(i).read_volatile() } {
                it if it == new => {}
                // The device may write virtual memory that may only be read here.
                it if it == old => put(to.wrapping_add(i), &[new])?,
                _ => differ += 1,
            }
        }
        Ok(differ)
    }

    /// The hash of memory.
    pub fn hash(&self, address: u64, bytes: u64) -> Result<u64> {
        let from = self.place(address, bytes)?;
        // SAFETY: the place is mapped and has as many bytes, and all work is complete.
        Ok(hash(unsafe { std::slice::from_raw_parts(from, bytes as usize) }))
    }
}
