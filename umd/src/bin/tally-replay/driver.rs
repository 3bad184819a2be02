// SPDX-License-Identifier: MIT OR Apache-2.0
//! The driver's library, opened as a loader opens it.

use std::collections::HashMap;
use std::env;
use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use tally_ze::call::{Function, Words};
use tally_ze::tables::{self, Table};
use tally_ze::{functions, ze_api_version_t, ze_device_handle_t, ze_driver_handle_t, ze_result_t};
use ze_tally::recording::calls;

use crate::Result;

/// The functions of the driver.
pub struct Driver {
    address_of: functions::zeDriverGetExtensionFunctionAddress,
    device_of: functions::zerTranslateIdentifierToDeviceHandle,
    handle: ze_driver_handle_t,
    known: HashMap<String, *const c_void>,
}

/// libze_tally.so: beside this program, or in the lib folder of its installation.
fn library() -> Result<PathBuf> {
    let own = env::current_exe()?.canonicalize()?;
    let folder = own.parent().ok_or("this program lies in no folder")?;
    let files = [folder.join("libze_tally.so"), folder.join("../lib/libze_tally.so")];
    files.iter().find_map(|file| file.canonicalize().ok()).ok_or_else(|| {
        format!("there is no libze_tally.so in {} nor in ../lib", folder.display()).into()
    })
}

/// The function of this name in a table of the library.
fn entry(library: *mut c_void, getter: &str, name: &str) -> Result<*const c_void> {
    type Getter = unsafe extern "C" fn(ze_api_version_t, *mut *const c_void) -> ze_result_t;
    let version = ze_api_version_t::ZE_API_VERSION_1_17;
    let symbol = CString::new(getter)?;
    // SAFETY: the library is open, and the name ends with a zero.
    let found = unsafe { libc::dlsym(library, symbol.as_ptr()) };
    if found.is_null() {
        return Err(format!("the driver has no {getter}").into());
    }
    // SAFETY: the driver's function of this name has this type.
    let getter_function: Getter = unsafe { std::mem::transmute(found) };
    let table: &Table = tables::all().find(|it| it.getter == getter).ok_or("no such table")?;
    let names: Vec<&str> = table.entries_at(version.0).map(|entry| entry.name).collect();
    let mut entries = vec![std::ptr::null(); names.len()];
    // SAFETY: the table has as many entries at this version.
    let result = unsafe { getter_function(version, entries.as_mut_ptr()) };
    succeeded(getter, result)?;
    let place = names.iter().position(|it| *it == name).ok_or("no such entry")?;
    Ok(entries[place])
}

fn succeeded(what: &str, result: ze_result_t) -> Result<()> {
    match result {
        ze_result_t::ZE_RESULT_SUCCESS => Ok(()),
        result => Err(format!("{what}: {result:?}").into()),
    }
}

impl Driver {
    /// Opens and initialises the driver.
    pub fn open() -> Result<Self> {
        let file = library()?;
        let path = CString::new(file.as_os_str().as_bytes())?;
        // SAFETY: the library's initialisers are those of this driver.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            // SAFETY: after a failure there is a message.
            let why = unsafe { CStr::from_ptr(libc::dlerror()) };
            return Err(why.to_string_lossy().into());
        }
        let global = |name| entry(library, "zeGetGlobalProcAddrTable", name);
        let of_driver = |name| entry(library, "zeGetDriverProcAddrTable", name);
        let runtime = |name| entry(library, "zerGetGlobalProcAddrTable", name);
        // SAFETY: functions of these names have these types.
        let (init, get, address_of, device_of) = unsafe {
            (
                std::mem::transmute::<*const c_void, functions::zeInit>(global("zeInit")?),
                std::mem::transmute::<*const c_void, functions::zeDriverGet>(of_driver(
                    "zeDriverGet",
                )?),
                std::mem::transmute::<*const c_void, functions::zeDriverGetExtensionFunctionAddress>(
                    of_driver("zeDriverGetExtensionFunctionAddress")?,
                ),
                std::mem::transmute::<*const c_void, functions::zerTranslateIdentifierToDeviceHandle>(
                    runtime("zerTranslateIdentifierToDeviceHandle")?,
                ),
            )
        };
        let mut handle = ze_driver_handle_t::NULL;
        // SAFETY: the places are good for the calls.
        unsafe {
            succeeded("zeInit", init(Default::default()))?;
            succeeded("zeDriverGet", get(&mut 1, &mut handle))?;
        }
        Ok(Self { address_of, device_of, handle, known: HashMap::new() })
    }

    /// The driver's handle.
    pub fn handle(&self) -> u64 {
        self.handle.0.expose_provenance() as u64
    }

    /// The handle of the device with this identifier.
    pub fn device(&self, identifier: u32) -> Option<u64> {
        // SAFETY: takes a number.
        let device: ze_device_handle_t = unsafe { (self.device_of)(identifier) };
        (!device.is_null()).then(|| device.0.expose_provenance() as u64)
    }

    /// The driver's default context.
    pub fn default_context(&mut self) -> Result<u64> {
        let address = self.function("zeDriverGetDefaultContext")?;
        // SAFETY: the function of this name has this type.
        let function: functions::zeDriverGetDefaultContext =
            unsafe { std::mem::transmute(address) };
        // SAFETY: the driver's own handle.
        let context = unsafe { function(self.handle) };
        Ok(context.0.expose_provenance() as u64)
    }

    /// The address of a function.
    pub fn function(&mut self, name: &str) -> Result<*const c_void> {
        if let Some(&known) = self.known.get(name) {
            return Ok(known);
        }
        let text = CString::new(name)?;
        let mut address = std::ptr::null_mut();
        // SAFETY: the name ends with a zero and the place is writable.
        let result = unsafe { (self.address_of)(self.handle, text.as_ptr(), &mut address) };
        succeeded(name, result)?;
        self.known.insert(name.to_owned(), address.cast_const());
        Ok(address.cast_const())
    }

    /// Calls a function that recordings have.
    ///
    /// # Safety
    /// The words are arguments that the function accepts.
    pub unsafe fn call(&mut self, name: &str, words: &[u64]) -> Result<ze_result_t> {
        let address = self.function(name)?;
        let mut all = Words::default();
        words.iter().for_each(|&word| all.push(word));
        // SAFETY: as the caller promises.
        let result = unsafe { calls::call(name, address, &all) };
        result.ok_or_else(|| format!("{name}: this call cannot be replayed").into())
    }

    /// The next allocation lies at this address, or fails.
    pub fn place_next(&mut self, address: u64) -> Result<()> {
        succeeded("tallyPlaceNext", self.own("tallyPlaceNext", address)?)
    }

    /// Waits until nothing is left that the device could run, for so many ms; whether it waits for a function of the
    /// host.
    pub fn settle(&mut self, patience: u64) -> Result<bool> {
        match self.own("tallySettle", patience)? {
            ze_result_t::ZE_RESULT_NOT_READY => Ok(true),
            result => succeeded("tallySettle", result).map(|()| false),
        }
    }

    /// Calls a function that is none of Level Zero's.
    fn own(&mut self, name: &str, argument: u64) -> Result<ze_result_t> {
        type Own = unsafe extern "C" fn(u64) -> ze_result_t;
        let function = self.function(name)?;
        let mut words = Words::default();
        words.push(argument);
        // SAFETY: these functions take a number.
        Ok(unsafe { <Own as Function>::call(function, &words) })
    }
}
