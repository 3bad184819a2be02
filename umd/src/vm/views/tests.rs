// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of views with the buffers of a fake kernel, whose second mapping stands for the device.

use std::sync::Arc;

use super::*;
use crate::backend::Backend;
use crate::backend::fake::Fake;
use crate::space::{self, Space};
use crate::vm::Source;

const HOST: ze_memory_type_t = ze_memory_type_t::ZE_MEMORY_TYPE_HOST;
const DEVICE: ze_memory_type_t = ze_memory_type_t::ZE_MEMORY_TYPE_DEVICE;

fn made() -> Arc<Vm> {
    let backend: Arc<dyn Backend> = Arc::new(Fake::default());
    let space = Space::reserve(Some(1 << 30), 4096, 1 << 47).expect("1 GiB of addresses");
    Vm::create_with(&backend, &Arc::new(space), Some(Views::default())).expect("a fake VM")
}

/// Memory as the program and as the device see it.
struct Both<'a> {
    vm: &'a Vm,
    base: u64,
    device: Words,
}

impl<'a> Both<'a> {
    fn new(vm: &'a Vm, size: u64) -> Self {
        let base = vm.allocate(Source::New, size, 1, HOST, 1, None).expect("room");
        let device = {
            let id = vm.find(base).expect("allocated just now").id;
            let alias = vm.usm.with(base, id, |it| it.mapping.alias());
            alias.expect("allocated just now").expect("a mapping")
        };
        Self { vm, base, device }
    }

    fn host(&self, i: usize) -> &AtomicU64 {
        // SAFETY: the allocation exists and is larger.
        unsafe { &*space::pointer(self.base).cast::<AtomicU64>().add(i) }
    }

    fn set_host(&self, i: usize, value: u64) {
        self.host(i).store(value, Ordering::Relaxed);
    }

    fn set_device(&self, i: usize, value: u64) {
        self.device.get()[i].store(value, Ordering::Relaxed);
    }

    /// The bytes that the host and the device see.
    fn get(&self, i: usize) -> (u64, u64) {
        (self.host(i).load(Ordering::Relaxed), self.device.get()[i].load(Ordering::Relaxed))
    }

    fn has_view(&self) -> bool {
        self.vm.views().is_some_and(|it| it.state().views.contains_key(&self.base))
    }
}

#[test]
fn each_side_sees_the_other_when_it_is_let() {
    let vm = made();
    let it = Both::new(&vm, 8192);
    it.set_device(3, 5);
    it.set_host(1000, 7);
    assert_eq!((it.get(3), it.get(1000)), ((0, 5), (7, 0)));
    vm.refresh_host();
    assert_eq!((it.get(3), it.get(1000)), ((5, 5), (7, 0)), "what the host wrote stays");
    it.set_device(3, 6);
    vm.flush_host();
    assert_eq!((it.get(3), it.get(1000)), ((5, 6), (7, 7)), "what the device wrote stays");
    it.set_host(1000, 0);
    vm.flush_host();
    assert_eq!(it.get(1000), (0, 0), "back to what it was is a change too");
}

#[test]
fn both_may_write_to_the_same_word() {
    let vm = made();
    for refresh_first in [false, true] {
        let it = Both::new(&vm, 8);
        it.set_host(0, 0x11_0000_0022);
        it.set_device(0, 0x3300_0000_4400);
        if refresh_first {
            vm.refresh_host();
            vm.flush_host();
        } else {
            vm.flush_host();
            vm.refresh_host();
        }
        assert_eq!(it.get(0), (0x3311_0000_4422, 0x3311_0000_4422));
        drop(vm.release(it.base, 1).expect("it is there"));
    }
}

#[test]
fn changed_bytes_are_whole_bytes() {
    assert_eq!(changed_bytes(0), 0);
    for bit in 0..64 {
        assert_eq!(changed_bytes(1 << bit), 0xff << (bit / 8 * 8));
    }
    assert_eq!(changed_bytes(0x8000_0100_00ff_0001), 0xff00_ff00_00ff_00ff);
    assert_eq!(changed_bytes(u64::MAX), u64::MAX);
}

#[test]
fn device_memory_is_not_the_programs() {
    let vm = made();
    let base = vm.allocate(Source::New, 4096, 1, DEVICE, 1, None).expect("room");
    let mut byte = 0_u8;
    let to = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let from = libc::iovec { iov_base: space::pointer(base).cast(), iov_len: 1 };
    // SAFETY: this reads a byte of this process into another byte of it; the kernel checks the address.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &to, 1, &from, 1, 0) };
    let error = std::io::Error::last_os_error().raw_os_error();
    assert_eq!((read, error), (-1, Some(libc::EFAULT)));
}

#[test]
fn coherent_memory_is_one_and_keeps_what_both_wrote() {
    let vm = made();
    let (first, second) = (Both::new(&vm, 8192), Both::new(&vm, 8192));
    for it in [&first, &second] {
        it.set_host(1, 1);
        it.set_device(2, 2);
    }
    vm.make_coherent(first.base).expect("memory");
    assert_eq!((first.get(1), first.get(2)), ((1, 1), (2, 2)));
    first.set_host(3, 3);
    assert_eq!(first.get(3), (3, 3));
    assert_eq!(second.get(1), (1, 0), "others are not touched");
    vm.make_all_coherent().expect("memory");
    assert_eq!((second.get(1), second.get(2)), ((1, 1), (2, 2)));
    let third = Both::new(&vm, 8);
    third.set_device(0, 9);
    assert_eq!(third.get(0), (9, 9));
    assert!(![first, second, third].iter().any(Both::has_view));
}

#[test]
fn what_is_large_or_much_stays_coherent_and_freeing_makes_room() {
    let vm = made();
    assert!(!Both::new(&vm, LARGEST + 1).has_view());
    let many: Vec<_> = (0..=MOST / LARGEST).map(|_| Both::new(&vm, LARGEST)).collect();
    let (last, views) = many.split_last().expect("some");
    assert!(views.iter().all(Both::has_view) && !last.has_view());
    drop(vm.release(many[0].base, 1).expect("it is there"));
    assert!(Both::new(&vm, LARGEST).has_view());
}
