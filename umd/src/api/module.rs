// SPDX-License-Identifier: MIT OR Apache-2.0
//! Modules and build logs.

use std::ffi::{c_char, c_void};

use tally_ze::*;

use super::{Call, api};
use crate::core::module::{BuildLog, Constants, Module};
use crate::error::{Error, Result};
use crate::handle;

api! {
    /// Spec: `zeModuleCreate`. The log exists also where the build fails.
    fn zeModuleCreate(
        call,
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        desc: *const ze_module_desc_t,
        phModule: *mut ze_module_handle_t,
        phBuildLog: *mut ze_module_build_log_handle_t,
    ) {
        let context = call.handle(hContext, "hContext")?;
        context.must_hold(call.handle(hDevice, "hDevice")?, "hDevice")?;
        let desc = call.desc(desc, "desc")?;
        let out = call.out(phModule, "phModule")?;
        check_source(call, desc)?;
        let spirv = call.slice(desc.pInputModule, desc.inputSize, "desc->pInputModule")?;
        let options = match desc.pBuildFlags.is_null() {
            true => "".into(),
            false => call.c_str(desc.pBuildFlags, "desc->pBuildFlags")?.to_string_lossy(),
        };
        let constants = constants(call, desc, spirv)?;
        let (module, log) = Module::build(context, spirv, &options, constants);
        if let Some(out) = call.optional_out(phBuildLog) {
            out.set(handle::create(BuildLog::new(&log))?);
        }
        out.set(handle::create(module?)?);
        Ok(())
    }

    /// Spec: `zeModuleDestroy`. Code that is still running keeps its memory.
    fn zeModuleDestroy(call, hModule: ze_module_handle_t) {
        call.destroy(hModule, "hModule")
    }

    /// Spec: `zeModuleDynamicLink`. Modules without imports, which all are that were built, are
    /// linked already.
    fn zeModuleDynamicLink(
        call,
        numModules: u32,
        phModules: *mut ze_module_handle_t,
        phLinkLog: *mut ze_module_build_log_handle_t,
    ) {
        if numModules == 0 {
            return Err(Error::new(ze_result_t::ZE_RESULT_ERROR_INVALID_SIZE, "numModules: it is 0"));
        }
        let mut missing = Vec::new();
        for &module in call.slice(phModules, numModules as usize, "phModules")? {
            missing.extend(call.handle(module, "phModules")?.info().imports.iter().cloned());
        }
        let log = missing.iter().map(|name| format!("{name}: no module defines it\n"));
        let log = log.collect::<String>();
        if let Some(out) = call.optional_out(phLinkLog) {
            out.set(handle::create(BuildLog::new(&log))?);
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(Error::new(ze_result_t::ZE_RESULT_ERROR_MODULE_LINK_FAILURE, format!("phModules: {log}")))
    }

    /// Spec: `zeModuleBuildLogDestroy`.
    fn zeModuleBuildLogDestroy(call, hModuleBuildLog: ze_module_build_log_handle_t) {
        call.destroy(hModuleBuildLog, "hModuleBuildLog")
    }

    /// Spec: `zeModuleBuildLogGetString`. The size counts the NUL.
    fn zeModuleBuildLogGetString(
        call,
        hModuleBuildLog: ze_module_build_log_handle_t,
        pSize: *mut usize,
        pBuildLog: *mut c_char,
    ) {
        let log = call.handle(hModuleBuildLog, "hModuleBuildLog")?;
        call.bytes(pSize, pBuildLog.cast(), "pSize", log.0.as_bytes_with_nul())
    }

    /// Spec: `zeModuleGetGlobalPointer`.
    fn zeModuleGetGlobalPointer(
        call,
        hModule: ze_module_handle_t,
        pGlobalName: *const c_char,
        pSize: *mut usize,
        pptr: *mut *mut c_void,
    ) {
        let module = call.handle(hModule, "hModule")?;
        let name = call.c_str(pGlobalName, "pGlobalName")?;
        let found = name.to_str().ok().and_then(|name| module.global(name));
        let (address, size) = found.ok_or_else(|| {
            Error::new(
                ze_result_t::ZE_RESULT_ERROR_INVALID_GLOBAL_NAME,
                format!("pGlobalName: the module exports no variable {name:?}"),
            )
        })?;
        if let Some(out) = call.optional_out(pSize) {
            out.set(size as usize);
        }
        if let Some(out) = call.optional_out(pptr) {
            out.set(crate::space::pointer(address).cast());
        }
        Ok(())
    }

    /// Spec: `zeModuleGetKernelNames`. The names live as long as the module.
    fn zeModuleGetKernelNames(
        call,
        hModule: ze_module_handle_t,
        pCount: *mut u32,
        pNames: *mut *const c_char,
    ) {
        let module = call.handle(hModule, "hModule")?;
        call.list(pCount, pNames, "pCount", module.kernel_names().iter().map(|name| name.as_ptr()))
    }

    /// Spec: `zeModuleGetProperties`.
    fn zeModuleGetProperties(
        call,
        hModule: ze_module_handle_t,
        pModuleProperties: *mut ze_module_properties_t,
    ) {
        let module = call.handle(hModule, "hModule")?;
        let out = call.properties(pModuleProperties, "pModuleProperties")?;
        out.flags = ze_module_property_flags_t::empty();
        if !module.info().imports.is_empty() {
            out.flags |= ze_module_property_flags_t::ZE_MODULE_PROPERTY_FLAG_IMPORTS;
        }
        Ok(())
    }
}

/// Checks what kind of input a module is to be built from.
fn check_source(call: Call<'_>, desc: &ze_module_desc_t) -> Result {
    match desc.format {
        ze_module_format_t::ZE_MODULE_FORMAT_IL_SPIRV => {}
        ze_module_format_t::ZE_MODULE_FORMAT_NATIVE => {
            return Err(Error::unsupported("desc->format: native binaries cannot be loaded yet"));
        }
        format => {
            return Err(Error::new(
                ze_result_t::ZE_RESULT_ERROR_INVALID_ENUMERATION,
                format!("desc->format: {} is no ze_module_format_t", format.0),
            ));
        }
    }
    let extended = |it: &super::Link<'_>| it.stype() == ze_module_program_exp_desc_t::STYPE;
    if call.chain(desc.pNext).any(|link| extended(&link)) {
        return Err(Error::unsupported(
            "desc->pNext: ze_module_program_exp_desc_t is not supported",
        ));
    }
    call.read(desc.pInputModule, "desc->pInputModule")?;
    if desc.inputSize == 0 {
        return Err(Error::new(
            ze_result_t::ZE_RESULT_ERROR_INVALID_SIZE,
            "desc->inputSize: it is 0",
        ));
    }
    Ok(())
}

/// Reads the specialization constants' values, each as wide as the module says. Those that the
/// module does not have are left out.
fn constants(call: Call<'_>, desc: &ze_module_desc_t, spirv: &[u8]) -> Result<Constants> {
    if desc.pConstants.is_null() {
        return Ok(Constants::default());
    }
    let given = call.read(desc.pConstants, "desc->pConstants")?;
    let mut constants = Constants::scan(spirv);
    let count = given.numConstants as usize;
    let ids = call.slice(given.pConstantIds, count, "desc->pConstants->pConstantIds")?;
    let values = call.slice(given.pConstantValues, count, "desc->pConstants->pConstantValues")?;
    for (&id, &value) in ids.iter().zip(values) {
        let Some(width) = constants.width(id) else { continue };
        call.read(value.cast::<u8>(), "desc->pConstants->pConstantValues[i]")?;
        let bytes =
            call.slice(value.cast::<u8>(), width, "desc->pConstants->pConstantValues[i]")?;
        constants.set(id, bytes);
    }
    Ok(constants)
}
