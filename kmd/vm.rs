// SPDX-License-Identifier: GPL-2.0
//! GPU address spaces: VM_CREATE, VM_DESTROY, VM_BIND, VM_ORPHAN.
//!
//! Mappings are kept in a tree of their own. drm_gpuvm's abstraction asks for a
//! GEM object behind every mapping, and has no look-up: there would be no place
//! for user pages and NULL mappings, and no way to answer EEXIST, which the uapi
//! promises where gpuvm would replace.
//!
//! A VM's commands are sent under the lock of its mappings, so the device
//! carries them out in the order in which the tree changed. Nobody waits for
//! answers under it.

use core::ops::Range;

use kernel::prelude::*;
use kernel::rbtree::{RBTree, RBTreeNodeReservation};
use kernel::sync::atomic::{Atomic, Full, Relaxed};
use kernel::sync::{new_mutex, Arc, Mutex};
use kernel::time::Delta;
use tally_uapi::cell::CELL_SIZE;
use tally_uapi::firmware::{map_flag, op, Extent, MAX_EXTENTS};
use tally_uapi::ioctl::{bind_flag, bind_op, VmBind, VmCreate, VmDestroy, VmOrphan};
use tally_uapi::PAGE_SIZE;

use crate::account::{Amount, Charge, Client, EXTENTS, MAPPING};
use crate::admin::vm_command;
use crate::call::{Call, Order};
use crate::extent::Cut;
use crate::file::TallyFile;
use crate::gem::BoRef;
use crate::gpu::Gpu;
use crate::keep::Keep;
use crate::raw::{self, PinnedBo, UserPages};
use crate::shared::Shared;
use crate::state::State;
use crate::table::{Closed, Entry, Owner};

/// An address space.
#[pin_data]
pub(crate) struct Vm {
    id: u32,
    owner: Owner,
    pid: i32,
    window: Range<u64>,
    /// Of its file: what its mappings take.
    account: Arc<Client>,
    closed: Closed,
    lost: Atomic<bool>,
    #[pin]
    maps: Mutex<Maps>,
}

struct Maps {
    /// By first VA.
    tree: RBTree<u64, Mapping>,
    /// For its VM_DESTROY. None: that was sent, and nothing may follow it.
    end: Option<Order>,
    /// Number of the next mapping.
    serial: u64,
}

/// What is mapped at a range of VAs.
pub(crate) struct Mapping {
    end: u64,
    flags: u32,
    serial: u64,
    /// Keeps the pages where they are.
    _backing: Backing,
    /// What it takes. None only in tests.
    _cost: Option<Charge>,
}

impl Mapping {
    /// What is left of it up to `end`, as a mapping of its own.
    fn rest(&self, end: u64, cost: Option<Charge>) -> Self {
        let Self { flags, serial, ref _backing, .. } = *self;
        Self { end, flags, serial, _backing: _backing.clone(), _cost: cost }
    }

    /// The first VA behind it.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }
}

#[derive(Clone)]
enum Backing {
    Bo(#[expect(dead_code, reason = "kept, not read")] Arc<PinnedBo>),
    User(#[expect(dead_code, reason = "kept, not read")] Arc<UserPages>),
    Null(#[expect(dead_code, reason = "kept, not read")] Option<Arc<Charge>>),
}

impl Entry for Vm {
    fn id(&self) -> u32 {
        self.id
    }

    fn owner(&self) -> Owner {
        self.owner
    }

    fn closed(&self) -> &Closed {
        &self.closed
    }
}

impl Vm {
    /// The device's id, which is the file's, too.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Who made it.
    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    /// The file that made it.
    pub(crate) fn owner_id(&self) -> u64 {
        self.owner.file
    }

    /// The thread group that opened the file.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// The VAs that may be mapped.
    pub(crate) fn window(&self) -> Range<u64> {
        self.window.clone()
    }

    /// Whether the device has lost it.
    pub(crate) fn lost(&self) -> bool {
        self.lost.load(Relaxed)
    }

    /// The device has lost it. False if that was known.
    pub(crate) fn lose(&self) -> bool {
        !self.lost.xchg(true, Full)
    }

    /// Whether its owner has ended it.
    pub(crate) fn ended(&self) -> bool {
        self.closed.is()
    }

    /// Ends it for its owner. False if somebody else did before.
    pub(crate) fn close(&self) -> bool {
        self.closed.close()
    }

    /// All mappings, which it then has no more.
    pub(crate) fn take_mappings(&self) -> RBTree<u64, Mapping> {
        core::mem::replace(&mut self.maps.lock().tree, RBTree::new())
    }

    /// How many mappings there are, and of how many bytes.
    pub(crate) fn mapped(&self) -> (usize, u64) {
        let maps = self.maps.lock();
        let bytes = maps.tree.iter().map(|(start, mapping)| mapping.end - start).sum();
        (maps.tree.keys().count(), bytes)
    }

    /// Calls `f` if both ranges are mapped with (at least) their flags. What `f` sends
    /// comes before any later change.
    ///
    /// # Errors
    /// EFAULT: not mapped so. ENOENT: the VM is ending. Those of `f`.
    pub(crate) fn while_mapped<T>(
        &self,
        ranges: &[(Range<u64>, u32)],
        f: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let maps = self.maps.lock();
        if maps.end.is_none() {
            return Err(ENOENT);
        }
        if !ranges.iter().all(|(range, flags)| covers(&maps.tree, range, *flags)) {
            return Err(EFAULT);
        }
        f()
    }
}

/// The first VA of the first mapping that has a part in `range`.
fn overlap(tree: &RBTree<u64, Mapping>, range: &Range<u64>) -> Option<u64> {
    let before = match tree.cursor_lower_bound(&range.start) {
        Some(cursor) => {
            let before = cursor.peek_prev().filter(|(_, mapping)| mapping.end > range.start);
            let at = Some(cursor.current()).filter(|(start, _)| **start < range.end);
            return before.or(at).map(|(start, _)| *start);
        }
        None => tree.cursor_back(),
    };
    let before = before?;
    let (start, mapping) = before.current();
    (mapping.end > range.start).then_some(*start)
}

fn covers(tree: &RBTree<u64, Mapping>, range: &Range<u64>, flags: u32) -> bool {
    let mut from = range.start;
    while from < range.end {
        let Some(start) = overlap(tree, &(from..range.end)) else { return false };
        match tree.get(&start) {
            Some(mapping) if start <= from && mapping.flags & flags == flags => from = mapping.end,
            _ => return false,
        }
    }
    true
}

/// Whether a mapping begins before `range` and goes on in it, and whether one begins in it, or before,
/// and goes on behind it.
fn cuts(tree: &RBTree<u64, Mapping>, range: &Range<u64>) -> (bool, bool) {
    let at =
        |va: u64| overlap(tree, &(va..va + 1)).and_then(|start| Some((start, tree.get(&start)?)));
    let left = at(range.start).is_some_and(|(start, _)| start < range.start);
    let right = at(range.end - 1).is_some_and(|(_, mapping)| mapping.end > range.end);
    (left, right)
}

/// Takes `range`, which is not empty, out of `tree`; what was in it, whole mappings, goes to the
/// result. `cost` is asked for what each mapping that comes into being takes.
///
/// # Errors
/// ENOMEM, and those of `cost`, with the tree as it was.
fn take(
    tree: &mut RBTree<u64, Mapping>,
    range: &Range<u64>,
    cost: impl Fn() -> Result<Option<Charge>>,
) -> Result<RBTree<u64, Mapping>> {
    let (left, right) = cuts(tree, range);
    let spare = |needed: bool| match needed {
        true => Ok::<_, Error>(Some((RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?, cost()?))),
        false => Ok(None),
    };
    let (mut left, mut right) = (spare(left)?, spare(right)?);
    let mut taken = RBTree::new();
    while let Some(start) = overlap(tree, range) {
        let Some(mapping) = tree.get(&start) else { break };
        let end = mapping.end;
        let before = left.take_if(|_| start < range.start);
        let before =
            before.map(|(place, cost)| place.into_node(start, mapping.rest(range.start, cost)));
        let behind = right.take_if(|_| end > range.end);
        let behind =
            behind.map(|(place, cost)| place.into_node(range.end, mapping.rest(end, cost)));
        let Some(node) = tree.remove_node(&start) else { break };
        taken.insert(node);
        for rest in [before, behind].into_iter().flatten() {
            tree.insert(rest);
        }
    }
    Ok(taken)
}

/// IOCTL: VM_CREATE: an address space.
pub(crate) fn create(gpu: &Gpu<'_>, file: &TallyFile, arg: &mut VmCreate) -> Result {
    let device = &gpu.identity()?.device;
    let start = arg.start;
    let end = arg.start.checked_add(arg.size).ok_or(EINVAL)?;
    if arg.flags != 0
        || arg.start % PAGE_SIZE != 0
        || arg.size % PAGE_SIZE != 0
        || arg.size == 0
        || arg.start < device.va_start
        || end > device.va_end
    {
        return Err(EINVAL);
    }
    let state = gpu.state();
    let reserved = state.vms.reserve(file.owner(), State::vm_limits())?;
    let id = reserved.id();
    let order = Order::new()?;
    let maps = Maps { tree: RBTree::new(), end: Some(Order::new()?), serial: 0 };
    let vm = Arc::pin_init(
        try_pin_init!(Vm {
            id,
            owner: file.owner(),
            pid: file.pid(),
            window: start..end,
            account: file.account().clone(),
            closed: Closed::new(),
            lost: Atomic::new(false),
            maps <- new_mutex!(maps),
        }? Error),
        GFP_KERNEL_ACCOUNT,
    )?;
    let command = vm_command(op::VM_CREATE, id, [arg.start, arg.size, 0, 0, 0, 0]);
    let published = vm.clone();
    let call = gpu.send_then(order, command, Keep::Nothing, || reserved.publish(published))?;
    if let Err(error) = call.wait(state) {
        // Killed, or refused: VM_DESTROY comes after it, and frees the id.
        if vm.close() {
            end_unattended(gpu, &vm);
        }
        return Err(error);
    }
    arg.vm_id = vm.id;
    Ok(())
}

/// Sends the end of a closed VM; the answer frees what it had. What cannot be sent is freed by the
/// reset that prevents it.
///
/// # Errors
/// ENODEV, EIO: the device takes no commands.
fn end(gpu: &Gpu<'_>, vm: &Arc<Vm>, attended: bool) -> Result<Arc<Call>> {
    let mut maps = vm.maps.lock();
    let order = maps.end.take().ok_or(ENOENT)?;
    if !attended {
        order.call.leave();
    }
    let command = vm_command(op::VM_DESTROY, vm.id, [0; 6]);
    let sent = gpu.send_locked(order, command, Keep::Vm(vm.clone()));
    drop(maps);
    gpu.state().sleepers.wake_all();
    // Settling takes the mappings, and so their lock.
    sent.map_err(|unsent| gpu.settle(unsent))
}

/// Sends the end of a closed VM, and does not wait for it.
pub(crate) fn end_unattended(gpu: &Gpu<'_>, vm: &Arc<Vm>) {
    // What could not be sent was settled.
    let _ = end(gpu, vm, false);
}

/// IOCTL: VM_DESTROY: ends an address space and its queues.
pub(crate) fn destroy(gpu: &Gpu<'_>, file: &TallyFile, arg: &VmDestroy) -> Result {
    if arg.pad != 0 {
        return Err(EINVAL);
    }
    let vm = gpu.state().vms.close(file.id(), arg.vm_id)?;
    // A device that is reset has no VM any more; that is success.
    end(gpu, &vm, true).map_or(Ok(()), |call| call.wait_for_end(gpu.state()))
}

/// Whether an address and a size are whole pages and fit into 64 bits.
fn is_range(address: u64, size: u64) -> bool {
    address % PAGE_SIZE == 0 && size % PAGE_SIZE == 0 && address.checked_add(size).is_some()
}

/// IOCTL: VM_BIND: maps and unmaps.
pub(crate) fn bind(
    gpu: &Gpu<'_>,
    file: &TallyFile,
    lookup: impl Fn(u32) -> Result<BoRef>,
    arg: &VmBind,
) -> Result {
    let access = bind_flag::READ | bind_flag::WRITE;
    let (allowed, has_handle, has_offset) = match arg.op {
        bind_op::MAP => (bind_flag::ALL, true, true),
        bind_op::UNMAP => (0, false, false),
        bind_op::MAP_USERPTR => (access, false, true),
        bind_op::MAP_NULL => (access, false, false),
        _ => return Err(EINVAL),
    };
    let both = bind_flag::WRITE | bind_flag::EXECUTE;
    if arg.flags & !allowed != 0
        || (arg.flags != 0) != (allowed != 0)
        || arg.flags & both == both
        || !has_handle && arg.handle != 0
        || !has_offset && arg.offset != 0
        || arg.size == 0
        || !is_range(arg.address, arg.size)
        || !is_range(arg.offset, arg.size)
    {
        return Err(EINVAL);
    }
    let vm = gpu.state().vms.get(file.id(), arg.vm_id)?;
    let bo = if has_handle { Some(lookup(arg.handle)?) } else { None };
    let range = arg.address..arg.address + arg.size;
    if range.start < vm.window.start
        || range.end > vm.window.end
        || bo.as_ref().is_some_and(|bo| arg.offset + arg.size > bo.bytes())
    {
        return Err(EINVAL);
    }
    if arg.op == bind_op::UNMAP {
        return unmap(gpu, &vm, &range);
    }
    if gpu.state().gone() {
        return Err(ENODEV);
    }
    if vm.lost() {
        return Err(EIO);
    }
    let dev = gpu.pdev().as_ref();
    match bo {
        Some(bo) => {
            if arg.flags & both != 0 && !bo.may_write(Some(file.id())) {
                return Err(EACCES);
            }
            let pinned = Arc::new(PinnedBo::new(bo)?, GFP_KERNEL_ACCOUNT)?;
            let table = patiently(|| raw::sg_table(pinned.bo(), dev))?;
            let pieces = table.iter().map(|piece| (piece.dma_address(), piece.dma_len()));
            let extents = Cut::new(pieces, arg.offset, arg.size);
            map(gpu, &vm, &range, arg.flags, Backing::Bo(pinned.clone()), extents)
        }
        None if arg.op == bind_op::MAP_NULL => {
            // Memory of the device, which has it from the same machine in the end.
            let charge =
                Charge::take(&vm.account, Amount { bytes: arg.size, ..Amount::default() })?;
            let backing = Backing::Null(Some(Arc::new(charge, GFP_KERNEL_ACCOUNT)?));
            map(gpu, &vm, &range, arg.flags | map_flag::NULL, backing, core::iter::empty())
        }
        None => {
            let count = usize::try_from(arg.size / PAGE_SIZE).map_err(|_| EINVAL)?;
            let write = arg.flags & bind_flag::WRITE != 0;
            let user =
                Arc::new(UserPages::pin(dev, arg.offset, count, write)?, GFP_KERNEL_ACCOUNT)?;
            let pieces = user.table().iter().map(|piece| (piece.dma_address(), piece.dma_len()));
            let extents = Cut::new(pieces, 0, arg.size);
            map(gpu, &vm, &range, arg.flags, Backing::User(user.clone()), extents)
        }
    }
}

/// Calls `f` again when it answers EINTR: a signal came while another thread had the
/// buffer's lock, which it does not have for long. Nobody waits for the signal here.
fn patiently<T>(f: impl Fn() -> Result<T>) -> Result<T> {
    loop {
        match f() {
            Err(error) if error == EINTR => kernel::time::delay::fsleep(Delta::from_millis(1)),
            other => return other,
        }
    }
}

fn map(
    gpu: &Gpu<'_>,
    vm: &Arc<Vm>,
    range: &Range<u64>,
    flags: u32,
    backing: Backing,
    extents: impl Iterator<Item = Extent>,
) -> Result {
    let node = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
    let undoing = Order::new()?;
    let cost = Charge::take(&vm.account, MAPPING)?;
    let mut maps = vm.maps.lock();
    if maps.end.is_none() {
        return Err(ENOENT);
    }
    if overlap(&maps.tree, range).is_some() {
        return Err(EEXIST);
    }
    let serial = maps.serial;
    maps.serial += 1;
    let mapping = Mapping { end: range.end, flags, serial, _backing: backing, _cost: Some(cost) };
    maps.tree.insert(node.into_node(range.start, mapping));
    let mut calls = KVVec::new();
    let mut result = send_maps(gpu, vm, range, flags, extents, &mut calls);
    drop(maps);
    for call in calls {
        result = result.and(call.wait(gpu.state()).map(|_| ()));
    }
    // A killed caller leaves the mapping: its file ends soon, and the VM with it.
    match result {
        Err(error) if error != EINTR => {
            undo(gpu, vm, range, serial, undoing);
            Err(error)
        }
        other => other,
    }
}

/// Sends the VM_MAPs of a range, a page of extents each.
fn send_maps(
    gpu: &Gpu<'_>,
    vm: &Vm,
    range: &Range<u64>,
    flags: u32,
    mut extents: impl Iterator<Item = Extent>,
    calls: &mut KVVec<Arc<Call>>,
) -> Result {
    let mut from = range.start;
    while from < range.end {
        let (mut count, mut bytes) = (0, 0);
        let (address, keep) = if flags & map_flag::NULL != 0 {
            bytes = range.end - from;
            (0, Keep::Nothing)
        } else {
            let cost = Charge::take(&vm.account, EXTENTS)?;
            let page = Shared::<Extent>::charged(gpu.pdev().as_ref(), MAX_EXTENTS as usize)?;
            for extent in extents.by_ref().take(MAX_EXTENTS as usize) {
                page.write(count, extent);
                count += 1;
                bytes += extent.bytes;
            }
            (page.address(), Keep::Extents(page, cost))
        };
        if bytes == 0 {
            // Fewer pages than the range has: cannot be, and must not loop.
            return Err(EFAULT);
        }
        let args = [from, bytes, address, count as u64, 0, 0];
        let command =
            tally_uapi::firmware::Command { flags, ..vm_command(op::VM_MAP, vm.id, args) };
        calls.reserve(1, GFP_KERNEL_ACCOUNT)?;
        let call = gpu.send(Order::new()?, command, keep)?;
        calls.push(call, GFP_KERNEL_ACCOUNT)?;
        from += bytes;
    }
    Ok(())
}

/// Takes a mapping back that could not be made as a whole.
fn undo(gpu: &Gpu<'_>, vm: &Arc<Vm>, range: &Range<u64>, serial: u64, order: Order) {
    let mut maps = vm.maps.lock();
    // VM_DESTROY takes it back with all others.
    if maps.end.is_none() {
        return;
    }
    // Somebody else may have unmapped it meanwhile, or a part of it.
    let ours = maps.tree.get(&range.start).filter(|mapping| mapping.serial == serial);
    let Some(end) = ours.map(|mapping| mapping.end) else { return };
    let Some(node) = maps.tree.remove_node(&range.start) else { return };
    let mut gone = RBTree::new();
    gone.insert(node);
    let args = [range.start, end - range.start, 0, 0, 0, 0];
    order.call.leave();
    // What could not be sent was settled.
    let _ = gpu.send(order, vm_command(op::VM_UNMAP, vm.id, args), Keep::Mappings(gone));
}

fn unmap(gpu: &Gpu<'_>, vm: &Arc<Vm>, range: &Range<u64>) -> Result {
    let order = Order::new()?;
    let mut maps = vm.maps.lock();
    if maps.end.is_none() {
        return Err(ENOENT);
    }
    let cost = || Charge::take(&vm.account, MAPPING).map(Some);
    let taken = take(&mut maps.tree, range, cost)?;
    if taken.is_empty() {
        return Ok(());
    }
    let args = [range.start, range.end - range.start, 0, 0, 0, 0];
    let sent = gpu.send(order, vm_command(op::VM_UNMAP, vm.id, args), Keep::Mappings(taken));
    drop(maps);
    // A device that is reset maps nothing any more; that is success.
    sent.map_or(Ok(()), |call| call.wait_for_end(gpu.state()))
}

/// IOCTL: VM_ORPHAN: nobody is left who could signal these cells.
pub(crate) fn orphan(gpu: &Gpu<'_>, file: &TallyFile, arg: &VmOrphan) -> Result {
    let end = arg.address.checked_add(arg.size).ok_or(EINVAL)?;
    if arg.pad != 0 || (arg.address | arg.size) % CELL_SIZE != 0 || arg.size == 0 {
        return Err(EINVAL);
    }
    let vm = gpu.state().vms.get(file.id(), arg.vm_id)?;
    if arg.address < vm.window.start || end > vm.window.end {
        return Err(EINVAL);
    }
    if vm.lost() {
        return Err(EIO);
    }
    let order = Order::new()?;
    let maps = vm.maps.lock();
    if maps.end.is_none() {
        return Err(ENOENT);
    }
    // In order with the UNMAP that ends it.
    let command = vm_command(op::VM_ORPHAN, vm.id, [arg.address, arg.size, 0, 0, 0, 0]);
    let sent = gpu.send(order, command, Keep::Nothing);
    drop(maps);
    sent?.wait(gpu.state()).map(|_| ())
}

#[kernel::macros::kunit_tests(tally_vm)]
mod tests {
    use super::*;

    fn insert(tree: &mut RBTree<u64, Mapping>, start: u64, end: u64, flags: u32) -> Result {
        let mapping = Mapping { end, flags, serial: 0, _backing: Backing::Null(None), _cost: None };
        tree.try_create_and_insert(start, mapping, GFP_KERNEL)?;
        Ok(())
    }

    fn ranges(tree: &RBTree<u64, Mapping>) -> [(u64, u64); 4] {
        let mut out = [(0, 0); 4];
        for (slot, (start, mapping)) in out.iter_mut().zip(tree.iter()) {
            *slot = (*start, mapping.end);
        }
        out
    }

    fn free() -> Result<Option<Charge>> {
        Ok(None)
    }

    const READ: u32 = bind_flag::READ;
    const BOTH: u32 = bind_flag::READ | bind_flag::WRITE;

    /// "MAP, MAP_USERPTR and MAP_NULL need the range to be unmapped"
    #[test]
    fn overlaps_are_seen_at_every_side() -> Result {
        let mut tree = RBTree::new();
        insert(&mut tree, 10, 20, READ)?;
        insert(&mut tree, 30, 40, READ)?;
        for (range, found) in [
            (0..10, None),
            (0..11, Some(10)),
            (12..13, Some(10)),
            (19..31, Some(10)),
            (20..30, None),
            (20..31, Some(30)),
            (39..50, Some(30)),
            (40..50, None),
        ] {
            assert_eq!(overlap(&tree, &range), found);
        }
        Ok(())
    }

    /// "UNMAP takes whatever part is mapped, also none."
    #[test]
    fn unmap_cuts_what_it_meets() -> Result {
        let mut tree = RBTree::new();
        insert(&mut tree, 10, 40, READ)?;
        insert(&mut tree, 40, 50, READ)?;
        assert!(take(&mut tree, &(60..70), free)?.is_empty());
        // In the middle of one.
        assert_eq!(ranges(&take(&mut tree, &(20..30), free)?)[0], (10, 40));
        assert_eq!(ranges(&tree), [(10, 20), (30, 40), (40, 50), (0, 0)]);
        // Over the ends of three.
        take(&mut tree, &(15..45), free)?;
        assert_eq!(ranges(&tree), [(10, 15), (45, 50), (0, 0), (0, 0)]);
        take(&mut tree, &(0..100), free)?;
        assert!(tree.is_empty());
        Ok(())
    }

    /// "ENOSPC: too many pieces": what does not cut needs nothing, and what may not cut changes nothing.
    #[test]
    fn only_cuts_cost() -> Result {
        let mut tree = RBTree::new();
        insert(&mut tree, 10, 20, READ)?;
        insert(&mut tree, 20, 30, READ)?;
        insert(&mut tree, 30, 40, READ)?;
        let dear = || Err(ENOSPC);
        for range in [12..13, 5..15, 15..20, 25..60] {
            assert_eq!(take(&mut tree, &range, dear).err(), Some(ENOSPC));
        }
        assert_eq!(ranges(&tree), [(10, 20), (20, 30), (30, 40), (0, 0)]);
        take(&mut tree, &(20..30), dear)?;
        assert_eq!(ranges(&tree), [(10, 20), (30, 40), (0, 0), (0, 0)]);
        take(&mut tree, &(0..100), dear)?;
        assert!(tree.is_empty());
        Ok(())
    }

    /// "`ring`: … that are mapped READ", "a page that is mapped READ and WRITE"
    #[test]
    fn covers_needs_every_page_and_every_flag() -> Result {
        let mut tree = RBTree::new();
        insert(&mut tree, 10, 20, BOTH)?;
        insert(&mut tree, 20, 30, READ)?;
        assert!(covers(&tree, &(10..30), READ));
        assert!(covers(&tree, &(12..18), BOTH));
        assert!(!covers(&tree, &(12..22), BOTH));
        assert!(!covers(&tree, &(9..12), READ));
        assert!(!covers(&tree, &(25..31), READ));
        Ok(())
    }
}
