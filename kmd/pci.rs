// SPDX-License-Identifier: GPL-2.0
//! The half of the driver whose device is a PCI function.

use core::ptr::NonNull;

use kernel::alloc::Flags;
use kernel::device::{Bound, Core, Device};
use kernel::dma::{self, Coherent, Device as _};
use kernel::drm;
use kernel::irq::{Flags as IrqFlags, ThreadedRegistration};
use kernel::pci;
use kernel::prelude::*;
use kernel::str::CString;
use kernel::sync::aref::ARef;
use tally_uapi::regs;

use self::bar::Regs;
use self::irq::Irq;
use crate::buffer::BoData;
use crate::data::Data;
use crate::debugfs::Debug;
use crate::device::{Tally, TallyDevice};
use crate::driver::Registered;
use crate::gpu::Gpu;
use crate::raw::drm::{patch_driver, Parent};
use crate::raw::pci::{clear_master, handle_power, id, reset_function, Power};
use crate::state::State;
use crate::transport::{Addresses, Memory, Purpose, Status, Transport};

mod bar;
mod irq;

/// The transport to a PCI function.
struct Function<'bound> {
    pdev: &'bound pci::Device<Bound>,
    regs: Regs<'bound>,
}

impl Memory for Coherent<[u64]> {
    fn base(&self) -> NonNull<u64> {
        // SAFETY: coherent memory is never at 0.
        unsafe { NonNull::new_unchecked(self.as_mut_ptr().cast()) }
    }

    fn bytes(&self) -> usize {
        self.size()
    }

    fn address(&self) -> u64 {
        self.dma_address()
    }
}

impl Transport for Function<'_> {
    fn device(&self) -> &Device<Bound> {
        self.pdev.as_ref()
    }

    fn version(&self) -> (u16, u16) {
        self.regs.version()
    }

    fn present(&self) -> bool {
        self.regs.present()
    }

    fn status(&self) -> Status {
        self.regs.status()
    }

    fn begin_reset(&self) -> bool {
        self.regs.reset();
        true
    }

    fn force_reset(&self) -> Result {
        dev_err!(self.pdev, "no reset by register; trying that of PCI\n");
        reset_function(self.pdev)
    }

    fn enable(&self, at: &Addresses) {
        self.regs.enable(at);
    }

    fn clock(&self) -> Result<u64> {
        self.regs.clock()
    }

    fn admin_tail(&self, tail: u32) {
        self.regs.admin_tail(tail);
    }

    fn kick(&self, queue: u32) {
        self.regs.kick(queue);
    }

    fn wake(&self, bucket: u32) {
        self.regs.wake(bucket);
    }

    fn memory(&self, _: Purpose, bytes: usize, flags: Flags) -> Result<KBox<dyn Memory>> {
        let words = bytes / size_of::<u64>();
        let memory = Coherent::<u64>::zeroed_slice(self.pdev.as_ref(), words, flags)?;
        Ok(KBox::new(memory, flags)?)
    }

    fn dma(&self) -> Option<&Device<Bound>> {
        Some(self.pdev.as_ref())
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
    function: Function<'bound>,
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
            // An extent of the admin ring may be as long as memory is contiguous.
            // SAFETY: as above.
            unsafe { pdev.dma_set_max_seg_size(u32::MAX) };

            let state = State::new(true)?;
            let shown = state.clone();
            let drm =
                drm::UnregisteredDevice::<Tally>::new(Parent::of(pdev.as_ref()), Data::new(state))?;
            patch_driver::<BoData>(&drm);
            // SAFETY: `probe` binds it to this driver, the only one of the module.
            unsafe { handle_power::<Self>(pdev) };
            let node: ARef<TallyDevice> = (&*drm).into();
            let name = CString::try_from_fmt(fmt!("tally-{:04x}", pdev.dev_id()))?;

            Ok(try_pin_init!(TallyPciData {
                function: Function { pdev, regs: Regs::new(pdev)? },
                // SAFETY: `function` was initialised above, stays where it is, and is dropped after `gpu`.
                gpu <- Gpu::new(unsafe { &*core::ptr::from_ref(function) }, node),
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
                        IrqFlags::TRIGGER_NONE,
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
                debug <- Debug::new(name, shown),
            }))
        })
    }

    fn unbind<'bound>(pdev: &'bound pci::Device<Core<'_>>, this: Pin<&TallyPciData<'bound>>) {
        this.gpu.stop();
        // From now on the device cannot reach memory, whatever it does.
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
