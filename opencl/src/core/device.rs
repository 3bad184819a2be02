// SPDX-License-Identifier: MIT OR Apache-2.0
//! The devices: those of Tally's Level Zero driver in this process, which says what they are.

use std::ffi::{CStr, CString, c_void};
use std::mem::transmute;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use opencl_sys::CL_INVALID_DEVICE;
use tally_ze::tables::{self, Table};
use tally_ze::{functions, *};

use super::object::{Kind, Object};

/// A device, as Level Zero describes it.
pub struct Device {
    /// Its properties, among them what tells devices apart: vendor, clock, name.
    pub device: ze_device_properties_t,
    /// The limits of groups.
    pub compute: ze_device_compute_properties_t,
    /// What kernels may do with numbers.
    pub module: ze_device_module_properties_t,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of the largest cache.
    pub cache: u64,
    /// The architecture.
    pub ip_version: u32,
    /// What atomic operations there are on floats: half, single, double.
    pub float_atomics: [ze_device_fp_atomic_ext_flags_t; 3],
    /// How it reaches allocations of each kind.
    pub access: ze_device_memory_access_properties_t,
}

// SAFETY: plain numbers; the pointers in the properties are null.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Kind for Device {
    const TAG: u32 = 0x7461_6464;
    const INVALID: i32 = CL_INVALID_DEVICE;
}

impl Device {
    /// The device's name.
    pub fn name(&self) -> String {
        let bytes: Vec<u8> =
            self.device.name.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Whether it passes for one of Intel's GPUs (`TALLY_DEVICE_AS`).
    pub fn is_intels(&self) -> bool {
        const INTEL: u32 = 0x8086;
        self.device.vendorId == INTEL
    }

    /// Execution units.
    pub fn units(&self) -> u32 {
        let it = &self.device;
        it.numSlices * it.numSubslicesPerSlice * it.numEUsPerSubslice
    }
}

/// All devices, found once; none if there is no driver.
pub fn all() -> &'static [Object<Device>] {
    static ALL: OnceLock<Vec<Object<Device>>> = OnceLock::new();
    ALL.get_or_init(|| {
        let found = Driver::open().and_then(|driver| driver.devices()).unwrap_or_default();
        found.into_iter().map(Object::new).collect()
    })
}

/// The folder that this library lies in.
pub fn own_folder() -> Option<PathBuf> {
    // SAFETY: dladdr fills the structure, for which zeroes are a valid value, with the name of this library,
    // which stays open while its code runs.
    let name = unsafe {
        let mut info = std::mem::zeroed::<libc::Dl_info>();
        let inside = own_folder as fn() -> Option<PathBuf>;
        if libc::dladdr(inside as *const c_void, &raw mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        CStr::from_ptr(info.dli_fname)
    };
    let file = PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes())).canonicalize().ok()?;
    Some(file.parent()?.to_owned())
}

/// The driver's library: the one that the program's Level Zero loader has opened, or opens later.
struct Driver(*mut c_void);

impl Driver {
    fn open() -> Option<Self> {
        let path =
            CString::new(own_folder()?.join("libze_tally.so").as_os_str().as_bytes()).ok()?;
        // SAFETY: the library's initialisers are those of this driver. It stays open.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        (!library.is_null()).then_some(Self(library))
    }

    /// A function of the driver, from the table that it fills.
    fn function(&self, getter: &str, name: &str) -> Option<*const c_void> {
        type Getter = unsafe extern "C" fn(ze_api_version_t, *mut *const c_void) -> ze_result_t;
        const VERSION: ze_api_version_t = ze_api_version_t::ZE_API_VERSION_1_17;
        let symbol = CString::new(getter).ok()?;
        // SAFETY: the library is open, and the name ends with a zero.
        let found = unsafe { libc::dlsym(self.0, symbol.as_ptr()) };
        if found.is_null() {
            return None;
        }
        // SAFETY: the driver's function of this name has this type.
        let getter_function: Getter = unsafe { transmute(found) };
        let table: &Table = tables::all().find(|it| it.getter == getter)?;
        let names: Vec<&str> = table.entries_at(VERSION.0).map(|entry| entry.name).collect();
        let mut entries = vec![std::ptr::null(); names.len()];
        // SAFETY: the table has as many entries at this version.
        let result = unsafe { getter_function(VERSION, entries.as_mut_ptr()) };
        let place = names.iter().position(|it| *it == name)?;
        (result == ze_result_t::ZE_RESULT_SUCCESS).then(|| entries[place])
    }

    fn devices(&self) -> Option<Vec<Device>> {
        let init = self.function("zeGetGlobalProcAddrTable", "zeInit")?;
        let driver_get = self.function("zeGetDriverProcAddrTable", "zeDriverGet")?;
        let get = self.function("zeGetDeviceProcAddrTable", "zeDeviceGet")?;
        // SAFETY: functions of these names have these types.
        let (init, driver_get, get) = unsafe {
            (
                transmute::<*const c_void, functions::zeInit>(init),
                transmute::<*const c_void, functions::zeDriverGet>(driver_get),
                transmute::<*const c_void, functions::zeDeviceGet>(get),
            )
        };
        let mut driver = ze_driver_handle_t::NULL;
        let mut count = 0;
        // SAFETY: the places are good for the calls, here and below.
        unsafe {
            ok(init(Default::default()))?;
            ok(driver_get(&mut 1, &mut driver))?;
            ok(get(driver, &mut count, std::ptr::null_mut()))?;
        }
        let mut handles = vec![ze_device_handle_t::NULL; count as usize];
        // SAFETY: as above.
        ok(unsafe { get(driver, &mut count, handles.as_mut_ptr()) })?;
        handles.truncate(count as usize);
        handles.iter().map(|&handle| self.describe(handle)).collect()
    }

    /// Asks the driver what the device is.
    fn describe(&self, handle: ze_device_handle_t) -> Option<Device> {
        // SAFETY: each function of `ask` fills the structures whose types say that they are its, and the chained
        // ones outlive the calls.
        unsafe {
            let mut ip_version = ze_device_ip_version_ext_t::default();
            let mut device = ze_device_properties_t {
                pNext: (&raw mut ip_version).cast(),
                ..Default::default()
            };
            self.ask("zeDeviceGetProperties", handle, &mut device)?;
            let mut compute = ze_device_compute_properties_t::default();
            self.ask("zeDeviceGetComputeProperties", handle, &mut compute)?;
            let mut atomics = ze_float_atomic_ext_properties_t::default();
            let mut module = ze_device_module_properties_t {
                pNext: (&raw mut atomics).cast(),
                ..Default::default()
            };
            self.ask("zeDeviceGetModuleProperties", handle, &mut module)?;
            let mut access = ze_device_memory_access_properties_t::default();
            self.ask("zeDeviceGetMemoryAccessProperties", handle, &mut access)?;
            let memories: Vec<ze_device_memory_properties_t> =
                self.ask_all("zeDeviceGetMemoryProperties", handle)?;
            let caches: Vec<ze_device_cache_properties_t> =
                self.ask_all("zeDeviceGetCacheProperties", handle)?;
            (device.pNext, module.pNext) = (std::ptr::null_mut(), std::ptr::null_mut());
            Some(Device {
                device,
                compute,
                module,
                memory: memories.first()?.totalSize,
                cache: caches.iter().map(|it| it.cacheSize as u64).max().unwrap_or(0),
                ip_version: ip_version.ipVersion,
                float_atomics: [atomics.fp16Flags, atomics.fp32Flags, atomics.fp64Flags],
                access,
            })
        }
    }

    /// Calls a query that fills one structure.
    ///
    /// # Safety
    /// It is the structure of the device's function with this name.
    unsafe fn ask<T>(&self, name: &str, handle: ze_device_handle_t, out: &mut T) -> Option<()> {
        type Query<T> = unsafe extern "C" fn(ze_device_handle_t, *mut T) -> ze_result_t;
        let function = self.function("zeGetDeviceProcAddrTable", name)?;
        // SAFETY: as the caller promises.
        ok(unsafe { transmute::<*const c_void, Query<T>>(function)(handle, out) })
    }

    /// Calls a query that fills as many structures as there are.
    ///
    /// # Safety
    /// As for [`Self::ask`].
    unsafe fn ask_all<T: Default + Clone>(
        &self,
        name: &str,
        handle: ze_device_handle_t,
    ) -> Option<Vec<T>> {
        type Query<T> = unsafe extern "C" fn(ze_device_handle_t, *mut u32, *mut T) -> ze_result_t;
        let function = self.function("zeGetDeviceProcAddrTable", name)?;
        let mut count = 0;
        // SAFETY: as the caller promises; there is room for as many as the first call says.
        unsafe {
            let query = transmute::<*const c_void, Query<T>>(function);
            ok(query(handle, &mut count, std::ptr::null_mut()))?;
            let mut all = vec![T::default(); count as usize];
            ok(query(handle, &mut count, all.as_mut_ptr()))?;
            all.truncate(count as usize);
            Some(all)
        }
    }
}

fn ok(result: ze_result_t) -> Option<()> {
    (result == ze_result_t::ZE_RESULT_SUCCESS).then_some(())
}
