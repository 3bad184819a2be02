// SPDX-License-Identifier: GPL-2.0
//! The DRM driver that user space sees, for each way of reaching a device.

use kernel::device::DeviceContext;
use kernel::drm;
use kernel::drm::gem::shmem;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;
use kernel::workqueue::WorkItem;
use tally_uapi::{ioctl, PAGE_SIZE};

use crate::buffer::{Bo, BoArgs, BoData, BoRef};
use crate::commands::end_vm_unattended;
use crate::data::{Data, REAPER};
use crate::device::{Tally, TallyDevice};
use crate::file::TallyFile;
use crate::follower::Follower;
use crate::gpu::Gpu;
use crate::raw::drm::{once_registered, Buffer, Parent, Tables};
use crate::raw::foreign::Foreign;

impl WorkItem<REAPER> for Data {
    type Pointer = ARef<TallyDevice>;

    fn run(dev: ARef<TallyDevice>) {
        dev.state.reap();
    }
}

impl WorkItem for Data {
    type Pointer = ARef<TallyDevice>;

    fn run(dev: ARef<TallyDevice>) {
        if let Some(guard) = once_registered(&dev).registration_guard() {
            guard.registration_data_with(|registered| registered.gpu.look_after());
        }
    }
}

impl WorkItem for Follower {
    type Pointer = Arc<Follower>;

    fn run(this: Arc<Follower>) {
        this.carry_out_due(once_registered(this.device()));
    }
}

impl Buffer for BoData {
    fn tables() -> &'static Tables<Self> {
        static TABLES: Tables<BoData> = Tables::new();
        &TABLES
    }

    fn may_write(&self, client: Option<&TallyFile>) -> bool {
        BoData::may_write(self, client.map(TallyFile::id))
    }

    fn import(dev: &TallyDevice, foreign: Arc<Foreign>) -> Result<BoRef> {
        let bytes = foreign.bytes();
        if bytes == 0 || bytes as u64 % PAGE_SIZE != 0 {
            return Err(EINVAL);
        }
        // A device that is a process maps what it uses.
        if !dev.state.given_addresses() && !foreign.mappable() {
            return Err(EOPNOTSUPP);
        }
        let args = BoArgs::Foreign(foreign);
        Bo::new(dev, bytes, shmem::ObjectConfig::default(), args)
    }

    fn foreign(&self) -> Option<&Arc<Foreign>> {
        BoData::foreign(self)
    }
}

/// The data that ioctls may use while the driver is bound.
pub(crate) struct Registered<'drm> {
    /// The hardware.
    pub(crate) gpu: &'drm Gpu<'drm>,
}

#[vtable]
impl drm::Driver for Tally {
    type Data = Data;
    type RegistrationData<'drm> = Registered<'drm>;
    type Object = Bo;
    type File = TallyFile;
    type ParentDevice<C: DeviceContext> = Parent<C>;

    const INFO: drm::DriverInfo = drm::DriverInfo {
        major: ioctl::VERSION_MAJOR as i32,
        minor: ioctl::VERSION_MINOR as i32,
        patchlevel: 0,
        name: c"tally",
        desc: c"Tally virtual GPU",
    };
    const FEAT_RENDER: bool = true;
    const IOCTLS: &'static [drm::ioctl::DrmIoctlDescriptor] = crate::ioctl::TABLE;
}

impl drm::file::DriverFile for TallyFile {
    type Driver = Tally;

    fn open(dev: &TallyDevice) -> Result<Pin<KBox<Self>>> {
        let file = Self::new(dev.into(), dev.state.clone())?;
        Ok(KBox::new(file, GFP_KERNEL_ACCOUNT)?.into())
    }
}

impl Drop for TallyFile {
    /// Ends the VMs and queues that the client has left, without waiting: the answers free the rest.
    fn drop(&mut self) {
        self.follower().close();
        self.binder().close();
        self.notifier().close();
        let guard = once_registered(self.device()).registration_guard();
        let (id, state) = (self.id(), self.state());
        state.vms.for_each(
            |vm| vm.owner_id() == id,
            |_, vm| {
                let goes_on = vm.close();
                match &guard {
                    Some(guard) if goes_on => guard.registration_data_with(|registered| {
                        end_vm_unattended(registered.gpu, &vm);
                    }),
                    Some(_) => {}
                    // Unbound: the device was reset, and the VM is gone there.
                    None => state.vms.free(&vm),
                }
            },
        );
        state.queues.for_each(
            |queue| queue.owner_id() == id && guard.is_none(),
            |_, queue| state.queues.free(&queue),
        );
    }
}
