// SPDX-License-Identifier: GPL-2.0
//! VM_CREATE, VM_DESTROY, VM_ORPHAN: address spaces.

use kernel::prelude::*;
use kernel::sync::Arc;
use tally_uapi::firmware::op;
use tally_uapi::ioctl::{VmCreate, VmDestroy, VmOrphan};

use super::caller::Caller;
use crate::admin::{vm_command, Call, Order};
use crate::commands::{end_vm, end_vm_unattended};
use crate::file::TallyFile;
use crate::gpu::Gpu;
use crate::object::keep::Keep;
use crate::object::vm::Vm;
use crate::request::{NewVm, Orphan, VmId};
use crate::state::State;

/// IOCTL: VM_CREATE: an address space.
pub(super) fn create(caller: &Caller<'_>, arg: &mut VmCreate) -> Result {
    let file = caller.file();
    let (vm, call) = caller.with_room(|| caller.gpu(|gpu| begin(gpu, &file, arg)))?;
    if let Err(error) = call.wait(file.state()) {
        // Killed or refused: VM_DESTROY follows VM_CREATE, and frees the id.
        if vm.close() {
            // If the driver was unbound, the file frees the VM.
            let _ = caller.gpu_or_gone(|gpu| {
                end_vm_unattended(gpu, &vm);
                Ok(())
            });
        }
        return Err(error);
    }
    arg.vm_id = vm.id();
    Ok(())
}

fn begin(gpu: &Gpu<'_>, file: &TallyFile, arg: &VmCreate) -> Result<(Arc<Vm>, Arc<Call>)> {
    let NewVm { window } = NewVm::try_from(arg)?;
    let device = &gpu.identity()?.device;
    if window.start < device.va_start || window.end > device.va_end {
        return Err(EINVAL);
    }
    let reserved = gpu.state().vms.reserve(file.owner(), State::vm_limits())?;
    let id = reserved.id();
    let (order, last) = (Order::new()?, Order::new()?);
    let args = [window.start, window.end - window.start, 0, 0, 0, 0];
    let account = file.account().clone();
    let vm = Vm::new(id, file.owner(), file.pid(), window, account, last)?;
    let command = vm_command(op::VM_CREATE, id, args);
    let published = vm.clone();
    let call = gpu.send_then(order, command, Keep::Nothing, || {
        reserved.publish(published)
    })?;
    Ok((vm, call))
}

/// IOCTL: VM_DESTROY: ends an address space and its queues.
pub(super) fn destroy(caller: &Caller<'_>, arg: &VmDestroy) -> Result {
    let file = caller.file();
    let call = caller.gpu_or_gone(|gpu| {
        let VmId(id) = VmId::try_from(arg)?;
        let vm = gpu.state().vms.close(file.id(), id)?;
        Ok(end_vm(gpu, &vm, true).ok())
    })?;
    // A device that was reset has no VM any more; that is success.
    call.map_or(Ok(()), |call| call.wait_for_end(file.state()))
}

/// IOCTL: VM_ORPHAN: declares that no process is left that could signal these cells.
pub(super) fn orphan(caller: &Caller<'_>, arg: &VmOrphan) -> Result {
    let file = caller.file();
    let call = caller.gpu(|gpu| {
        let Orphan { vm, cells } = Orphan::try_from(arg)?;
        let vm = gpu.state().vms.get(file.id(), vm)?;
        let window = vm.window();
        if cells.start < window.start || cells.end > window.end {
            return Err(EINVAL);
        }
        if vm.lost() {
            return Err(EIO);
        }
        let order = Order::new()?;
        // Sent under the lock, so that a later VM_UNMAP, which ends it, follows it.
        let _edit = vm.edit()?;
        vm.set_orphaned();
        let args = [cells.start, cells.end - cells.start, 0, 0, 0, 0];
        gpu.send(
            order,
            vm_command(op::VM_ORPHAN, vm.id(), args),
            Keep::Nothing,
        )
    })?;
    call.wait(file.state()).map(|_| ())
}
