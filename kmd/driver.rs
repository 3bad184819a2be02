// SPDX-License-Identifier: GPL-2.0
//! Binding: the PCI driver, and the DRM driver that user space sees.

use kernel::device::{Core, DeviceContext};
use kernel::dma::{self, Device as _};
use kernel::drm;
use kernel::irq::{self, ThreadedRegistration};
use kernel::pci;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::workqueue::WorkItem;
use tally_uapi::{ioctl, regs};

use crate::buffer::{Bo, BoData};
use crate::commands::end_vm_unattended;
use crate::data::{Data, REAPER};
use crate::debugfs::Debug;
use crate::device::{Tally, TallyDevice};
use crate::file::TallyFile;
use crate::gpu::Gpu;
use crate::irq::Irq;
use crate::raw::drm::{once_registered, patch_driver, Buffer, Tables};
use crate::raw::pci::{clear_master, handle_power, id, Power};
use crate::state::State;

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

impl Buffer for BoData {
    fn tables() -> &'static Tables<Self> {
        static TABLES: Tables<BoData> = Tables::new();
        &TABLES
    }

    fn may_write(&self, client: Option<&TallyFile>) -> bool {
        BoData::may_write(self, client.map(TallyFile::id))
    }
}

/// What ioctls may use while the driver is bound.
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
    type ParentDevice<C: DeviceContext> = pci::Device<C>;

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
    /// Ends what the client has left. Waits for nothing: the answers free the rest.
    fn drop(&mut self) {
        let guard = once_registered(self.device()).registration_guard();
        let (id, state) = (self.id(), self.state());
        state.vms.for_each(
            |vm| vm.owner_id() == id,
            |_, vm| {
                if !vm.close() {
                    return;
                }
                match &guard {
                    Some(guard) => guard.registration_data_with(|registered| {
                        end_vm_unattended(registered.gpu, &vm);
                    }),
                    // Unbound: the device was reset, and has nothing of it.
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

/// The PCI driver.
pub(crate) struct TallyPci;

/// A bound device. Dropped from the first field to the last: user space first,
/// the hardware last.
#[pin_data]
pub(crate) struct TallyPciData<'bound> {
    #[pin]
    debug: Debug,
    reg: drm::Registration<'bound, Tally>,
    #[pin]
    irq: ThreadedRegistration<'bound, Irq<'bound>>,
    vectors: pci::IrqVectorRegistration<'bound>,
    #[pin]
    gpu: Gpu<'bound>,
}

kernel::pci_device_table!(
    PCI_TABLE,
    <TallyPci as pci::Driver>::IdInfo,
    [(id(regs::PCI_VENDOR, regs::PCI_DEVICE), ())]
);

impl pci::Driver for TallyPci {
    type IdInfo = ();
    type Data<'bound> = TallyPciData<'bound>;
    const ID_TABLE: pci::IdTable<Self::IdInfo> = &PCI_TABLE;

    fn probe<'bound>(
        pdev: &'bound pci::Device<Core<'_>>,
        _info: Option<&'bound Self::IdInfo>,
    ) -> impl PinInit<Self::Data<'bound>, Error> + 'bound {
        pin_init::pin_init_scope(move || {
            pdev.enable_device_mem()?;
            pdev.set_master();
            // SAFETY: nothing of this device is mapped for DMA before probe ends.
            unsafe { pdev.dma_set_mask_and_coherent(dma::DmaMask::new::<64>())? };
            // An extent of the admin ring is as long as the memory lies in one piece.
            // SAFETY: as above.
            unsafe { pdev.dma_set_max_seg_size(u32::MAX) };

            let state = State::new()?;
            let shown = state.clone();
            let drm = drm::UnregisteredDevice::<Tally>::new(pdev, Data::new(state))?;
            patch_driver::<BoData>(&drm);
            // SAFETY: `probe` binds it to this driver, the only one of the module.
            unsafe { handle_power::<Self>(pdev) };
            let node: ARef<TallyDevice> = (&*drm).into();

            Ok(try_pin_init!(TallyPciData {
                gpu <- Gpu::new(pdev, node),
                vectors: pdev.alloc_irq_vectors(
                    1,
                    1,
                    pci::IrqTypes::default().with(pci::IrqType::MsiX),
                )?,
                // SAFETY: the registration is part of the driver's data, which is dropped
                // at unbind, before `vectors` and `gpu`; both were initialised above and
                // stay where they are.
                irq <- unsafe {
                    let vectors = &*core::ptr::from_ref(vectors);
                    let gpu = &*core::ptr::from_ref(gpu.as_ref().get_ref());
                    ThreadedRegistration::new(
                        vectors.index(0)?.into(),
                        irq::Flags::TRIGGER_NONE,
                        c"tally",
                        Ok::<_, Error>(Irq { gpu }),
                    )
                },
                _: { gpu.as_ref().probe()? },
                // SAFETY: as for the interrupt: never forgotten, dropped before `gpu`.
                reg: unsafe {
                    let gpu = &*core::ptr::from_ref(gpu.as_ref().get_ref());
                    drm::Registration::new(
                        pdev.as_ref(),
                        drm,
                        Ok::<_, Error>(Registered { gpu }),
                        0,
                    )?
                },
                _: { gpu.as_ref().set_registered() },
                debug <- Debug::new(pdev, shown),
            }))
        })
    }

    fn unbind<'bound>(pdev: &'bound pci::Device<Core<'_>>, this: Pin<&TallyPciData<'bound>>) {
        this.gpu.stop();
        // Whatever the device does from now on, it does not do it to memory.
        clear_master(pdev);
    }
}

impl Power for TallyPci {
    fn halt(data: Pin<&TallyPciData<'_>>) {
        data.gpu.halt();
    }

    fn pause(data: Pin<&TallyPciData<'_>>) {
        data.gpu.pause();
    }

    fn go_on(data: Pin<&TallyPciData<'_>>) {
        data.gpu.go_on();
    }
}
