// SPDX-License-Identifier: GPL-2.0
//! VM_BIND: maps and unmaps.

use core::ops::Range;

use kernel::prelude::*;
use kernel::rbtree::RBTree;
use kernel::sync::Arc;
use kernel::time::Delta;
use tally_uapi::firmware::{map_flag, op, Command, Extent, MAX_EXTENTS};
use tally_uapi::ioctl::VmBind;
use tally_uapi::PAGE_SIZE;

use super::caller::{Caller, Hardware};
use super::later;
use crate::account::{Amount, Charge, EXTENTS, MAPPING};
use crate::admin::{vm_command, Call, Order};
use crate::buffer::{BoRef, ForeignBo};
use crate::extent::Cut;
use crate::follower::status;
use crate::gpu::Gpu;
use crate::object::bindings::{Backing, Edit, Mapping, Null, Place};
use crate::object::keep::Keep;
use crate::object::vm::Vm;
use crate::raw::foreign::Foreign;
use crate::raw::pages::{fill, sg_table, PinnedBo, PinnedUser, UserPages};
use crate::request::{Access, Bind, Content};
use crate::shared::Shared;
use crate::state::State;

/// IOCTL: VM_BIND: maps and unmaps, at once or once fences have signalled.
///
/// Memory is allocated before the hardware is used: that takes as long as the caller makes it take, and
/// unbinding waits for every user of the hardware.
pub(super) fn bind(caller: &Caller<'_>, arg: &VmBind) -> Result {
    // An unbound driver answers ENODEV to every request.
    caller.gpu_or_gone(|_| Ok(()))?;
    let asked = Bind::try_from(arg)?;
    let (waits, outcome) = later::read(caller, &asked)?;
    let change = Change::new(caller, asked.vm, asked.range, asked.content)?;
    match status(waits.iter()) {
        Some(_) => {
            // After an error no point is signalled.
            change.carry_out(caller.hardware())?;
            outcome.tell(Ok(()));
            Ok(())
        }
        None => later::arm(caller, waits, change, outcome),
    }
}

/// A change of a VM's mappings that can be carried out by any thread.
pub(super) struct Change {
    vm: Arc<Vm>,
    range: Range<u64>,
    to: To,
}

/// The memory of a range after a change.
enum To {
    /// None.
    Nothing,
    /// A part of a buffer, from an offset.
    Buffer(BoRef, u64, Access),
    /// A part of a buffer of another driver, from an offset.
    Foreign(BoRef, Arc<Foreign>, u64, Access),
    /// Pages of the caller.
    User(PinnedUser, Access),
    /// Memory of the device, or zeros that are only read.
    Null(Option<Arc<Null>>, Access),
}

impl Change {
    fn new(caller: &Caller<'_>, vm: u32, range: Range<u64>, content: Content) -> Result<Self> {
        let file = caller.file();
        let state = file.state();
        let vm = state.vms.get(file.id(), vm)?;
        let bo = match content {
            Content::Buffer { handle, .. } => Some(caller.lookup()(handle)?),
            _ => None,
        };
        let window = vm.window();
        let bytes = range.end - range.start;
        let fits = match (&content, &bo) {
            (Content::Buffer { offset, .. }, Some(bo)) => offset + bytes <= bo.bytes(),
            _ => true,
        };
        if range.start < window.start || range.end > window.end || !fits {
            return Err(EINVAL);
        }
        if matches!(content, Content::Nothing) {
            return Ok(Self {
                vm,
                range,
                to: To::Nothing,
            });
        }
        must_live(state, &vm)?;
        let to = match (content, bo) {
            (Content::Buffer { offset, access, .. }, Some(bo)) => {
                if access.is_more_than_read() && !bo.may_write(Some(file.id())) {
                    return Err(EACCES);
                }
                match bo.foreign().cloned() {
                    None => {
                        fill(&bo)?;
                        To::Buffer(bo, offset, access)
                    }
                    // What other drivers write is never code.
                    Some(_) if access.executes() => return Err(EACCES),
                    Some(foreign) => {
                        if state.given_addresses() {
                            foreign.attach(caller.dev)?;
                        } else if offset != 0 && foreign.only_from_start() {
                            return Err(EOPNOTSUPP);
                        }
                        To::Foreign(bo, foreign, offset, access)
                    }
                }
            }
            (Content::User { address, access }, _) => {
                let count = usize::try_from(bytes / PAGE_SIZE).map_err(|_| EINVAL)?;
                To::User(PinnedUser::new(address, count, access.writes())?, access)
            }
            (Content::Null { access }, _) => {
                // A device that is told provides the memory itself, in the end from the same machine. Zeros that
                // are only read need no memory.
                let amount = Amount {
                    bytes,
                    ..Amount::default()
                };
                let here = caller.gpu(|gpu| Ok(gpu.transport().dma().is_none()))?;
                let charge = access.writes().then(|| Charge::take(vm.account(), amount));
                let null = charge
                    .transpose()?
                    .map(|charge| Null::new(charge, here))
                    .transpose()?;
                To::Null(null, access)
            }
            (Content::Nothing | Content::Buffer { .. }, _) => return Err(EINVAL),
        };
        Ok(Self { vm, range, to })
    }

    /// Makes the change.
    pub(super) fn carry_out(self, hardware: Hardware<'_>) -> Result {
        let Self { vm, range, to } = self;
        if matches!(to, To::Nothing) {
            return unmap(hardware, &vm, &range);
        }
        must_live(hardware.state(), &vm)?;
        let bytes = range.end - range.start;
        match to {
            To::Nothing => Ok(()),
            To::Buffer(bo, offset, access) => {
                let from = offset / PAGE_SIZE;
                map(hardware, &vm, &range, |gpu, mapping| {
                    let pinned = Arc::new(PinnedBo::new(bo)?, GFP_KERNEL_ACCOUNT)?;
                    let backing = Backing::Bo(pinned.clone());
                    let Some(dev) = gpu.transport().dma() else {
                        return mapping.show(gpu, access, (backing, from));
                    };
                    let table = patiently(|| sg_table(pinned.bo(), dev, &pinned.bo().table_lock))?;
                    let pieces = table
                        .iter()
                        .map(|piece| (piece.dma_address(), piece.dma_len()));
                    let extents = Some(Cut::new(pieces, offset, bytes));
                    mapping.tell(gpu, access, (backing, from), extents)
                })
            }
            To::Foreign(bo, foreign, offset, access) => {
                let from = offset / PAGE_SIZE;
                map(hardware, &vm, &range, |gpu, mapping| {
                    let Some(dev) = gpu.transport().dma() else {
                        let bo = ForeignBo::new(bo, foreign, None)?;
                        return mapping.show(gpu, access, (Backing::Foreign(bo), from));
                    };
                    let mapped = foreign.map(dev)?;
                    let bo = ForeignBo::new(bo, foreign, Some(mapped))?;
                    let backing = (Backing::Foreign(bo.clone()), from);
                    let pieces = bo
                        .mapped()
                        .into_iter()
                        .flat_map(|mapped| mapped.table().iter())
                        .map(|piece| (piece.dma_address(), piece.dma_len()));
                    let extents = Some(Cut::new(pieces, offset, bytes));
                    mapping.tell(gpu, access, backing, extents)
                })
            }
            To::User(pinned, access) => map(hardware, &vm, &range, |gpu, mapping| {
                let Some(dev) = gpu.transport().dma() else {
                    let pinned = Arc::new(pinned, GFP_KERNEL_ACCOUNT)?;
                    return mapping.show(gpu, access, (Backing::Pinned(pinned), 0));
                };
                let user = Arc::new(UserPages::map(pinned, dev)?, GFP_KERNEL_ACCOUNT)?;
                let pieces = user
                    .table()
                    .iter()
                    .map(|piece| (piece.dma_address(), piece.dma_len()));
                let extents = Some(Cut::new(pieces, 0, bytes));
                mapping.tell(gpu, access, (Backing::User(user.clone()), 0), extents)
            }),
            To::Null(null, access) => map(hardware, &vm, &range, |gpu, mapping| {
                let backing = (Backing::Null(null), 0);
                if gpu.transport().dma().is_none() {
                    return mapping.show(gpu, access, backing);
                }
                mapping.tell(gpu, access, backing, None::<core::iter::Empty<Extent>>)
            }),
        }
    }
}

/// Checks that something can be mapped in a VM.
fn must_live(state: &State, vm: &Vm) -> Result {
    // A device that goes loses its VMs afterwards, and the answer then is ENODEV.
    let lost = vm.lost();
    if state.gone() {
        return Err(ENODEV);
    }
    if lost {
        return Err(EIO);
    }
    Ok(())
}

/// Calls `f` again when it answers EINTR: a signal arrived while another thread held the
/// buffer's lock, which it does not hold for long. The signal does not end the call.
fn patiently<T>(f: impl Fn() -> Result<T>) -> Result<T> {
    loop {
        match f() {
            Err(error) if error == EINTR => kernel::time::delay::fsleep(Delta::from_millis(1)),
            other => return other,
        }
    }
}

/// A mapping that is being made.
struct NewMapping<'a> {
    vm: &'a Arc<Vm>,
    range: &'a Range<u64>,
    /// The commands that were sent for it.
    calls: KVVec<Arc<Call>>,
    /// Its number, once it is in the tree, and the result of sending its commands.
    made: Option<(u64, Result)>,
}

impl NewMapping<'_> {
    /// Puts it into the tree, and sends VM_MAP to a device that keeps its own mappings: for `extents`, or for
    /// memory of the device if there are none.
    ///
    /// # Errors
    /// It is not in the tree.
    fn tell(
        &mut self,
        gpu: &Gpu<'_>,
        access: Access,
        backing: (Backing, u64),
        extents: Option<impl Iterator<Item = Extent>>,
    ) -> Result {
        self.insert(gpu, access, backing, |vm, range, calls| match extents {
            Some(extents) => send_maps(gpu, vm, range, access, extents, calls),
            None => send_unlisted_map(gpu, vm, range, access.bits() | map_flag::NULL, calls),
        })
    }

    /// Puts it into the tree, where the page faults of a device that sees bindings through the VM's file find
    /// it. Only what such a device has an area of its own for is sent to it: code, and memory of other drivers.
    ///
    /// # Errors
    /// It is not in the tree.
    fn show(&mut self, gpu: &Gpu<'_>, access: Access, backing: (Backing, u64)) -> Result {
        let has_area = access.executes() || matches!(backing.0, Backing::Foreign(_));
        self.insert(gpu, access, backing, |vm, range, calls| match has_area {
            true => send_unlisted_map(gpu, vm, range, access.bits(), calls),
            false => Ok(()),
        })
    }

    fn insert(
        &mut self,
        gpu: &Gpu<'_>,
        access: Access,
        backing: (Backing, u64),
        send: impl FnOnce(&Vm, &Range<u64>, &mut KVVec<Arc<Call>>) -> Result,
    ) -> Result {
        let Self {
            vm,
            range,
            calls,
            made,
        } = self;
        let place = Place::new(GFP_KERNEL_ACCOUNT)?;
        let cost = Charge::take(vm.account(), MAPPING)?;
        let mut edit = vm.edit()?;
        let serial = edit
            .insert(place, range, access, backing, cost)
            .map_err(|error| if gpu.state().gone() { ENODEV } else { error })?;
        *made = Some((serial, send(vm, range, calls)));
        Ok(())
    }
}

/// Makes a mapping; `send` sends its commands, and this waits for the answers.
fn map(
    hardware: Hardware<'_>,
    vm: &Arc<Vm>,
    range: &Range<u64>,
    send: impl for<'g> FnOnce(&Gpu<'g>, &mut NewMapping<'_>) -> Result,
) -> Result {
    let undoing = Order::new()?;
    let mut mapping = NewMapping {
        vm,
        range,
        calls: KVVec::new(),
        made: None,
    };
    hardware.gpu(|gpu| send(gpu, &mut mapping))?;
    let (serial, mut result) = mapping.made.ok_or(EINVAL)?;
    for call in mapping.calls {
        result = result.and(call.wait(hardware.state()).map(|_| ()));
    }
    // A killed caller leaves the mapping: its file ends soon, and the VM with it.
    match result {
        Err(error) if error != EINTR => {
            // Unbound: unbinding has removed all mappings.
            let _ = hardware.gpu_or_gone(|gpu| {
                undo(gpu, vm, range.start, serial, undoing);
                Ok(())
            });
            Err(error)
        }
        other => other,
    }
}

/// The VM_MAP of `bytes` bytes from `start`; `flags` are those of the mapping.
fn map_command(vm: &Vm, start: u64, bytes: u64, flags: u32, extents: (u64, usize)) -> Command {
    let args = [start, bytes, extents.0, extents.1 as u64, 0, 0];
    Command {
        flags,
        ..vm_command(op::VM_MAP, vm.id(), args)
    }
}

fn send_map(gpu: &Gpu<'_>, command: Command, keep: Keep, calls: &mut KVVec<Arc<Call>>) -> Result {
    calls.reserve(1, GFP_KERNEL_ACCOUNT)?;
    calls.push(gpu.send(Order::new()?, command, keep)?, GFP_KERNEL_ACCOUNT)?;
    Ok(())
}

/// Sends the VM_MAP of a range for which the device needs no list of extents.
fn send_unlisted_map(
    gpu: &Gpu<'_>,
    vm: &Vm,
    range: &Range<u64>,
    flags: u32,
    calls: &mut KVVec<Arc<Call>>,
) -> Result {
    let bytes = range.end - range.start;
    send_map(
        gpu,
        map_command(vm, range.start, bytes, flags, (0, 0)),
        Keep::Nothing,
        calls,
    )
}

/// Sends the VM_MAPs of a range, with one page of extents each.
fn send_maps(
    gpu: &Gpu<'_>,
    vm: &Vm,
    range: &Range<u64>,
    access: Access,
    mut extents: impl Iterator<Item = Extent>,
    calls: &mut KVVec<Arc<Call>>,
) -> Result {
    let mut from = range.start;
    while from < range.end {
        let cost = Charge::take(vm.account(), EXTENTS)?;
        let page = Shared::<Extent>::charged(gpu.transport(), MAX_EXTENTS as usize)?;
        let (mut count, mut bytes) = (0, 0);
        for extent in extents.by_ref().take(MAX_EXTENTS as usize) {
            page.write(count, extent);
            count += 1;
            bytes += extent.bytes;
        }
        if bytes == 0 {
            // The list has fewer pages than the range. That cannot happen, and must not loop.
            return Err(EFAULT);
        }
        let command = map_command(vm, from, bytes, access.bits(), (page.address(), count));
        send_map(gpu, command, Keep::Extents(page, cost), calls)?;
        from += bytes;
    }
    Ok(())
}

/// Removes a mapping that could not be made as a whole.
fn undo(gpu: &Gpu<'_>, vm: &Arc<Vm>, start: u64, serial: u64, order: Order) {
    // VM_DESTROY removes it with all others.
    let Ok(mut edit) = vm.edit() else { return };
    // Another thread may have unmapped it meanwhile, or a part of it.
    let Some((end, gone)) = edit.take_back(start, serial) else {
        return;
    };
    order.call.leave();
    // A command that could not be sent was settled.
    let _ = send_unmap(gpu, vm, &(start..end), gone, order, edit);
}

fn unmap(hardware: Hardware<'_>, vm: &Arc<Vm>, range: &Range<u64>) -> Result {
    let call = hardware.gpu_or_gone(|gpu| {
        let order = Order::new()?;
        let mut edit = vm.edit()?;
        let taken = edit.take(range, || Charge::take(vm.account(), MAPPING))?;
        if taken.is_empty() {
            return Ok(None);
        }
        Ok(send_unmap(gpu, vm, range, taken, order, edit))
    })?;
    // A device that is reset maps nothing any more; that is success.
    call.map_or(Ok(()), |call| call.wait_for_end(hardware.state()))
}

/// Sends the VM_UNMAP of the mappings that were removed under `edit`. None: there is no answer to wait for.
fn send_unmap(
    gpu: &Gpu<'_>,
    vm: &Vm,
    range: &Range<u64>,
    taken: RBTree<u64, Mapping>,
    order: Order,
    edit: Edit<'_>,
) -> Option<Arc<Call>> {
    let args = [range.start, range.end - range.start, 0, 0, 0, 0];
    let command = vm_command(op::VM_UNMAP, vm.id(), args);
    if gpu.transport().dma().is_some() {
        return gpu.send(order, command, Keep::Mappings(taken)).ok();
    }
    // The device has lost the pages already. It is told so that it changes areas of its own and forgets
    // orphans.
    let tell = vm.orphaned() || taken.values().any(Mapping::has_area);
    let call = tell
        .then(|| gpu.send(order, command, Keep::Nothing).ok())
        .flatten();
    // The pages are freed without the lock.
    drop(edit);
    drop(taken);
    call
}
