// SPDX-License-Identifier: GPL-2.0
//! Binding: the PCI driver, and the DRM driver that user space sees.

use kernel::device::{Core, DeviceContext};
use kernel::dma::{self, Device as _};
use kernel::drm;
use kernel::irq::{self, ThreadedRegistration};
use kernel::pci;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;
use kernel::workqueue::{
    impl_has_delayed_work, impl_has_work, new_delayed_work, new_work, DelayedWork, Work, WorkItem,
};
use tally_uapi::{ioctl, regs};

use crate::debugfs::Debug;
use crate::file::TallyFile;
use crate::gem::Bo;
use crate::gpu::Gpu;
use crate::irq::Irq;
use crate::raw;
use crate::state::State;

/// The DRM driver.
pub(crate) struct Tally;

/// The DRM device.
pub(crate) type TallyDevice<C = drm::Normal> = drm::Device<Tally, C>;

/// What a DRM device holds until its last file is closed.
#[pin_data]
pub(crate) struct Data {
    /// What files share.
    pub(crate) state: Arc<State>,
    #[pin]
    watchdog: DelayedWork<TallyDevice>,
    #[pin]
    reaper: Work<TallyDevice, REAPER>,
}

/// The work that frees the resources of commands without a waiting thread.
pub(crate) const REAPER: u64 = 1;

impl_has_work! {
    impl HasWork<TallyDevice, REAPER> for Data { self.reaper }
}

impl WorkItem<REAPER> for Data {
    type Pointer = ARef<TallyDevice>;

    fn run(dev: ARef<TallyDevice>) {
        dev.state.reap();
    }
}

impl_has_delayed_work! {
    impl HasDelayedWork<TallyDevice> for Data { self.watchdog }
}

impl WorkItem for Data {
    type Pointer = ARef<TallyDevice>;

    fn run(dev: ARef<TallyDevice>) {
        if let Some(guard) = raw::once_registered(&dev).registration_guard() {
            guard.registration_data_with(|registered| registered.gpu.look_after());
        }
    }
}

/// The watchdog of a device, as C sees it.
pub(crate) fn watchdog_work(dev: &TallyDevice) -> raw::RawWork {
    // SAFETY: the data of a device is pinned: it is part of the C allocation.
    raw::delayed_work(unsafe { Pin::new_unchecked(&dev.watchdog) })
}

/// The reaper of a device, as C sees it.
pub(crate) fn reaper_work(dev: &TallyDevice) -> raw::RawWork {
    raw::work(&dev.reaper)
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
    [(raw::pci_id(regs::PCI_VENDOR, regs::PCI_DEVICE), ())]
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
            let drm = drm::UnregisteredDevice::<Tally>::new(
                pdev,
                try_pin_init!(Data {
                    state,
                    watchdog <- new_delayed_work!("tally_watchdog"),
                    reaper <- new_work!("tally_reaper"),
                }? Error),
            )?;
            raw::patch_driver(&drm);
            raw::handle_resets(pdev);
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
        raw::clear_master(pdev);
    }
}

/// The device's slot has failed.
pub(crate) fn halt(data: Pin<&TallyPciData<'_>>) {
    data.gpu.halt();
}

/// The device is about to be reset, or to lose its power.
pub(crate) fn pause(data: Pin<&TallyPciData<'_>>) {
    data.gpu.pause();
}

/// That is over.
pub(crate) fn go_on(data: Pin<&TallyPciData<'_>>) {
    data.gpu.go_on();
}
