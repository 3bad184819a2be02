// SPDX-License-Identifier: GPL-2.0
//! QUERY: facts of the device, from its IDENTIFY and the module's limits.

use kernel::prelude::*;
use kernel::uaccess::{UserPtr, UserSlice};
use tally_uapi::ioctl::{DeviceInfo, Query};
use zerocopy::IntoBytes;

use crate::file::TallyFile;
use crate::gpu::Gpu;
use crate::request::Question;
use crate::state::State;

/// IOCTL: QUERY: facts of the device.
pub(super) fn query(gpu: &Gpu<'_>, file: &TallyFile, arg: &mut Query) -> Result {
    let question = Question::try_from(&*arg)?;
    let identity = gpu.identity()?;
    match question {
        Question::Device => answer(arg, device(file, &identity.device).as_bytes()),
        Question::Engines => {
            let classes = (identity.engine_classes as usize).min(identity.engines.len());
            answer(arg, identity.engines[..classes].as_bytes())
        }
        Question::Target => {
            let bytes = (identity.target_bytes as usize).min(identity.target.len());
            answer(arg, &identity.target[..bytes])
        }
        Question::Clock => {
            let pair = gpu.state().clock.now(|| gpu.transport().clock())?;
            answer(arg, pair.as_bytes())
        }
    }
}

/// The device's properties, within the module's limits.
fn device(file: &TallyFile, device: &DeviceInfo) -> DeviceInfo {
    let (vms, queues) = (State::vm_limits(), State::queue_limits());
    DeviceInfo {
        memory_bytes: file.account().limit(),
        max_vms: device.max_vms.min(vms.file).min(vms.user),
        max_queues: device.max_queues.min(queues.file).min(queues.user),
        ..*device
    }
}

fn answer(arg: &mut Query, bytes: &[u8]) -> Result {
    if arg.data != 0 {
        if (arg.size as usize) < bytes.len() {
            return Err(EINVAL);
        }
        let to = UserPtr::from_addr(usize::try_from(arg.data).map_err(|_| EFAULT)?);
        UserSlice::new(to, bytes.len())
            .writer()
            .write_slice(bytes)?;
    }
    arg.size = bytes.len() as u32;
    Ok(())
}
