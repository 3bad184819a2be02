// SPDX-License-Identifier: GPL-2.0
//! The half of the driver whose device is a process of this machine (`device/SPEC.md`, chapter 17).
//!
//! A process that opens the misc device and calls START is a GPU until the last reference to the file is
//! closed, for any reason. Nothing here waits for the process, and the process cannot keep memory from being
//! freed: the files of VMs show it the bound pages, and only as long as they are bound.

use kernel::device::Device;
use kernel::drm;
use kernel::faux;
use kernel::fs::file::{File, FileDescriptorReservation};
use kernel::fs::Kiocb;
use kernel::iov::IovIterDest;
use kernel::miscdevice::{MiscDevice, MiscDeviceOptions, MiscDeviceRegistration};
use kernel::mm::virt::VmaNew;
use kernel::prelude::*;
use kernel::str::CString;
use kernel::sync::aref::ARef;
use kernel::sync::atomic::{Atomic, Full};
use kernel::sync::{Arc, SetOnce};
use kernel::uaccess::{UserPtr, UserSlice};
use tally_uapi::firmware::Identity;
use tally_uapi::host::{self, Ioctl as _, Start, VmFile, Write};
use tally_uapi::{regs, PAGE_SIZE};
use zerocopy::{FromBytes, IntoBytes};

use self::doorbells::Doorbells;
use self::numbers::Number;
use self::process::Process;
use crate::buffer::BoData;
use crate::data::Data;
use crate::debugfs::Debug;
use crate::device::{Tally, TallyDevice};
use crate::driver::Registered;
use crate::gpu::Gpu;
use crate::raw::drm::{patch_driver, Parent};
use crate::raw::space::{self, Area, Files, Space};
use crate::state::{Count, State};

mod doorbells;
mod numbers;
mod process;

/// The misc device.
pub(crate) fn register() -> impl PinInit<MiscDeviceRegistration<HostFile>, Error> {
    MiscDeviceRegistration::register(MiscDeviceOptions {
        name: c"tally-host",
    })
}

/// An open file of the misc device.
#[pin_data]
pub(crate) struct HostFile {
    /// Memory that is shared with the process.
    area: Arc<Area>,
    /// Register writes for the process to read.
    doorbells: Arc<Doorbells>,
    /// Whether START was called.
    started: Atomic<bool>,
    /// The GPU, once START was called.
    gpu: SetOnce<Pin<KBox<HostGpu>>>,
}

/// A GPU. Dropped from the first field to the last: user space first, the parent last.
#[pin_data]
struct HostGpu {
    #[pin]
    debug: Debug,
    reg: drm::Registration<'static, Tally>,
    #[pin]
    gpu: Gpu<'static>,
    process: Process,
    parent: faux::Registration,
    number: Number,
    files: Files,
    /// The process that called START.
    owner: space::Process,
}

impl HostGpu {
    fn new(file: &HostFile, start: &Start, identity: KBox<Identity>) -> Result<Pin<KBox<Self>>> {
        let number = Number::take()?;
        let name = CString::try_from_fmt(fmt!("tally-host.{}", number.get()))?;
        let debug_name = CString::try_from_fmt(fmt!("tally-host-{}", number.get()))?;
        let parent = faux::Registration::new(&name, None)?;
        let dev: &faux::Device<kernel::device::Bound> = parent.as_ref();
        let dev: *const Device<kernel::device::Bound> = dev.as_ref();
        // SAFETY: the parent stays as long as its registration, which is a field of the value made here, and is
        // dropped after all fields that refer to it.
        let dev = unsafe { &*dev };

        let state = State::new(false)?;
        let shown = state.clone();
        let drm = drm::UnregisteredDevice::<Tally>::new(Parent::of(dev), Data::new(state))?;
        patch_driver::<BoData>(&drm);
        let node: ARef<TallyDevice> = (&*drm).into();
        let process = Process::new(
            dev,
            file.area.clone(),
            file.doorbells.clone(),
            start.clock_start,
        );
        KBox::try_pin_init(
            try_pin_init!(Self {
                owner: space::Process::current(),
                files: Files::new()?,
                number,
                parent,
                process,
                // SAFETY: `process` was initialised above, stays where it is, and is dropped after `gpu`.
                gpu <- Gpu::new(unsafe { &*core::ptr::from_ref(process) }, node),
                _: { gpu.as_ref().start_as(identity)? },
                // SAFETY: never forgotten, and dropped before `gpu`, which stays where it is.
                reg: unsafe {
                    let gpu = &*core::ptr::from_ref(gpu.as_ref().get_ref());
                    drm::Registration::new(dev, drm, Ok::<_, Error>(Registered { gpu }), 0)?
                },
                _: { gpu.as_ref().set_registered() },
                debug <- Debug::new(debug_name, shown),
            }? Error),
            GFP_KERNEL,
        )
    }
}

#[vtable]
impl MiscDevice for HostFile {
    type Ptr = Pin<KBox<Self>>;

    fn open(_file: &File, _misc: &MiscDeviceRegistration<Self>) -> Result<Self::Ptr> {
        KBox::try_pin_init(
            try_pin_init!(Self {
                area: Arc::new(Area::new(size_of::<host::Area>())?, GFP_KERNEL)?,
                doorbells: Doorbells::new()?,
                started: Atomic::new(false),
                gpu: SetOnce::new(),
            }? Error),
            GFP_KERNEL,
        )
    }

    fn release(this: Self::Ptr, _file: &File) {
        if let Some(gpu) = this.gpu.as_ref() {
            gpu.gpu.stop();
        }
    }

    fn mmap(this: Pin<&Self>, _file: &File, vma: &VmaNew) -> Result {
        this.area.map(vma)
    }

    fn read_iter(mut kiocb: Kiocb<'_, Self::Ptr>, iov: &mut IovIterDest<'_>) -> Result<usize> {
        let this = kiocb.file();
        let _ = kiocb.ki_pos_mut();
        let room = iov.len() / size_of::<Write>();
        if room == 0 {
            return Err(EINVAL);
        }
        let mut writes = [Write::default(); 64];
        let count = this.doorbells.take(&mut writes[..room.min(64)])?;
        let bytes = writes[..count].as_bytes();
        match iov.copy_to_iter(bytes) {
            copied if copied == bytes.len() => Ok(copied),
            // The writes that it should have read are lost, so the device cannot go on.
            _ => {
                this.doorbells.end();
                Err(EFAULT)
            }
        }
    }

    fn ioctl(this: Pin<&Self>, _file: &File, cmd: u32, arg: usize) -> Result<isize> {
        match cmd {
            Start::REQUEST => this.start(arg)?,
            VmFile::REQUEST => this.vm_file(arg)?,
            host::INTERRUPT => this.interrupt()?,
            _ => return Err(ENOTTY),
        }
        Ok(0)
    }
}

/// Copies an argument in.
fn read<T: FromBytes + IntoBytes>(arg: usize) -> Result<T> {
    let mut value = T::new_zeroed();
    let mut reader = UserSlice::new(UserPtr::from_addr(arg), size_of::<T>()).reader();
    reader.read_slice(value.as_mut_bytes())?;
    Ok(value)
}

/// Copies an argument out.
fn write<T: IntoBytes + zerocopy::Immutable>(arg: usize, value: &T) -> Result {
    UserSlice::new(UserPtr::from_addr(arg), size_of::<T>())
        .writer()
        .write_slice(value.as_bytes())
}

impl HostFile {
    /// START: makes the GPU.
    ///
    /// # Errors
    /// EINVAL: a version that the driver does not know, or an identity that cannot be. EBUSY: it was called
    /// before. ENOSPC: there are too many of them. EFAULT, ENOMEM.
    fn start(&self, arg: usize) -> Result {
        let mut start: Start = read(arg)?;
        let identity = identity(&start)?;
        if self.started.xchg(true, Full) {
            return Err(EBUSY);
        }
        let made = HostGpu::new(self, &start, identity).and_then(|gpu| {
            start.number = gpu.number.get();
            // The GPU is stopped again if the result cannot be written.
            write(arg, &start).inspect_err(|_| gpu.gpu.stop())?;
            Ok(gpu)
        });
        match made {
            Ok(gpu) => {
                self.gpu.populate(gpu);
                Ok(())
            }
            Err(error) => {
                self.started.xchg(false, Full);
                Err(error)
            }
        }
    }

    fn gpu(&self) -> Result<&HostGpu> {
        let gpu = self.gpu.as_ref().ok_or(EINVAL)?;
        if self.doorbells.ended() {
            return Err(ENODEV);
        }
        Ok(gpu)
    }

    /// INTERRUPT: the driver reads the status page and the answers.
    ///
    /// # Errors
    /// EINVAL: not started. ENODEV: the driver has given the GPU up.
    fn interrupt(&self) -> Result {
        let gpu = &self.gpu()?.gpu;
        gpu.state().count(Count::Interrupts);
        gpu.interrupt();
        Ok(())
    }

    /// VM_FILE: the file of a VM.
    ///
    /// # Errors
    /// Those of INTERRUPT. ENOENT: there is no such VM. ENOMEM, EMFILE, ENFILE, EFAULT.
    fn vm_file(&self, arg: usize) -> Result {
        let mut request: VmFile = read(arg)?;
        let gpu = self.gpu()?;
        let vm = gpu.gpu.state().vms.by_id(request.vm).ok_or(ENOENT)?;
        let offset = core::mem::offset_of!(host::Area, waiters);
        let space =
            vm.space(|bound| Space::new(&gpu.files, bound, &self.area, offset, gpu.owner))?;
        let fd =
            FileDescriptorReservation::get_unused_fd_flags(kernel::fs::file::flags::O_CLOEXEC)?;
        request.fd = fd.reserved_fd() as i32;
        write(arg, &request)?;
        fd.fd_install(space.file());
        Ok(())
    }
}

/// The checked identity from the process's START.
fn identity(start: &Start) -> Result<KBox<Identity>> {
    if start.version >> 16 != u32::from(regs::VERSION_MAJOR) {
        // Once: a process can call as often as it likes.
        kernel::pr_err_once!(
            "tally-host: registers of version {}.{}; this driver knows {}.x\n",
            start.version >> 16,
            start.version & 0xffff,
            regs::VERSION_MAJOR
        );
        return Err(EINVAL);
    }
    let place = usize::try_from(start.identity).map_err(|_| EFAULT)?;
    let mut identity = KBox::<Identity>::new_uninit(GFP_KERNEL)?;
    let mut reader = UserSlice::new(UserPtr::from_addr(place), size_of::<Identity>()).reader();
    // SAFETY: as many bytes as it has; all bits are values.
    let identity = unsafe {
        let bytes = core::slice::from_raw_parts_mut(
            identity.as_mut_ptr().cast::<core::mem::MaybeUninit<u8>>(),
            size_of::<Identity>(),
        );
        reader.read_raw(bytes)?;
        identity.assume_init()
    };
    let window = identity.device.va_start..identity.device.va_end;
    // The first page of the file of a VM is never part of a window.
    let aligned = (window.start | window.end) % PAGE_SIZE == 0;
    if window.start < PAGE_SIZE || window.start >= window.end || window.end >> 63 != 0 || !aligned {
        return Err(EINVAL);
    }
    Ok(identity)
}
