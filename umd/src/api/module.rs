// SPDX-License-Identifier: MIT OR Apache-2.0
//! Modules and build logs.

use std::collections::BTreeSet;
use std::ffi::{c_char, c_void};
use std::sync::Arc;

use tally_ze::zet::zet_module_debug_info_format_t;
use tally_ze::*;

use super::{Call, Out, api};
use crate::core::module::{self, BuildLog, Found, Module, definition};
use crate::error::{Error, Result};
use crate::handle;
use crate::log::warn_once;
use source::Source;

mod carried;
mod source;

api! {
    /// Spec: `zeModuleCreate`. There is a log even if the build fails or the description is refused.
    fn zeModuleCreate(
        call,
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        desc: *const ze_module_desc_t,
        phModule: *mut ze_module_handle_t,
        phBuildLog: *mut ze_module_build_log_handle_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
        let context = call.handle(hContext, "hContext")?;
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hDevice`
        context.must_hold(call.handle(hDevice, "hDevice")?, "hDevice")?;
        let (built, log) = match request(call, desc, phModule) {
            Ok((out, source)) => {
                let (module, log) = match source {
                    Source::Native(binary) => Module::load(context, binary),
                    Source::Spirv(inputs) => Module::build(context, inputs),
                    Source::OpenClC(text, flags) => Module::compile(context, text, flags),
                };
                (module.map(|module| (out, module)), log)
            }
            Err(error) => refused(error),
        };
        write_log(call, phBuildLog, &log)?;
        let (out, module) = built?;
        out.set(handle::create(module)?);
        Ok(())
    }

    /// Spec: `zeModuleDestroy`. Code that is still running keeps its memory.
    fn zeModuleDestroy(call, hModule: ze_module_handle_t) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hModule`
        call.destroy(hModule, "hModule")
    }

    /// Spec: `zeModuleDynamicLink`. There is a log even if the call fails. Either all imports of all the
    /// modules are linked, or none.
    fn zeModuleDynamicLink(
        call,
        numModules: u32,
        phModules: *mut ze_module_handle_t,
        phLinkLog: *mut ze_module_build_log_handle_t,
    ) {
        let modules = modules(call, numModules, phModules);
        let (linked, log) = modules.map_or_else(refused, |modules| module::link(&modules));
        write_log(call, phLinkLog, &log)?;
        linked
    }

    /// Spec: `zeModuleInspectLinkageExt`. A line for each name, under a heading for each kind.
    fn zeModuleInspectLinkageExt(
        call,
        pInspectDesc: *mut ze_linkage_inspection_ext_desc_t,
        numModules: u32,
        phModules: *mut ze_module_handle_t,
        phLog: *mut ze_module_build_log_handle_t,
    ) {
        use ze_linkage_inspection_ext_flags_t as flag;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pInspectDesc`
        let desc = call.desc(pInspectDesc.cast_const(), "pInspectDesc")?;
        // ZE_RESULT_ERROR_INVALID_ENUMERATION: `0x7 < pInspectDesc->flags`
        call.flags(desc.flags.has_unknown(), "pInspectDesc->flags")?;
        let modules = modules(call, numModules, phModules)?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == phLog`
        let out = call.out(phLog, "phLog")?;
        let imports = || modules.iter().flat_map(|it| &it.own_info().imports).map(|it| &it.name);
        let open = || imports().filter(|it| definition(&modules, it) == Found::None);
        let exports = modules.iter().flat_map(|it| &it.own_info().exports).map(|it| &it.name);
        let mut log = String::new();
        let mut list = |flag, heading: &str, names: &mut dyn Iterator<Item = &String>| {
            if desc.flags.contains(flag) {
                log += heading;
                log += ":\n";
                let names: BTreeSet<_> = names.collect();
                names.into_iter().for_each(|name| log += &format!("{name}\n"));
            }
        };
        list(flag::ZE_LINKAGE_INSPECTION_EXT_FLAG_IMPORTS, "imports", &mut imports());
        list(
            flag::ZE_LINKAGE_INSPECTION_EXT_FLAG_UNRESOLVABLE_IMPORTS,
            "unresolvable imports",
            &mut open(),
        );
        list(flag::ZE_LINKAGE_INSPECTION_EXT_FLAG_EXPORTS, "exports", &mut { exports });
        out.set(handle::create(BuildLog::new(&log))?);
        Ok(())
    }

    /// Spec: `zeModuleGetNativeBinary`. Waits for the code of all kernels.
    fn zeModuleGetNativeBinary(
        call,
        hModule: ze_module_handle_t,
        pSize: *mut usize,
        pModuleNativeBinary: *mut u8,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hModule`
        let module = call.handle(hModule, "hModule")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pSize`
        call.in_out(pSize, "pSize")?;
        call.bytes(pSize, pModuleNativeBinary, "pSize", &module.native_binary()?)
    }

    /// Spec: `zetModuleGetDebugInfo`. Waits for the code of all kernels. It is empty for a module that was built
    /// without `-g`, or that has no code until it is linked.
    fn zetModuleGetDebugInfo(
        call,
        hModule: ze_module_handle_t,
        format: zet_module_debug_info_format_t,
        pSize: *mut usize,
        pDebugInfo: *mut u8,
    ) {
        let module = call.handle(hModule, "hModule")?;
        if format.name().is_none() {
            return Err(Error::new(
                ze_result_t::ZE_RESULT_ERROR_INVALID_ENUMERATION,
                format!("format: {} is no zet_module_debug_info_format_t", format.0),
            ));
        }
        call.in_out(pSize, "pSize")?;
        call.bytes(pSize, pDebugInfo, "pSize", &module.debug_info()?)
    }

    /// Spec: `zeModuleBuildLogDestroy`.
    fn zeModuleBuildLogDestroy(call, hModuleBuildLog: ze_module_build_log_handle_t) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hModuleBuildLog`
        call.destroy(hModuleBuildLog, "hModuleBuildLog")
    }

    /// Spec: `zeModuleBuildLogGetString`. The size counts the NUL.
    fn zeModuleBuildLogGetString(
        call,
        hModuleBuildLog: ze_module_build_log_handle_t,
        pSize: *mut usize,
        pBuildLog: *mut c_char,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hModuleBuildLog`
        let log = call.handle(hModuleBuildLog, "hModuleBuildLog")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pSize`
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
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hModule`
        let module = call.handle(hModule, "hModule")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pGlobalName`
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

    /// Spec: `zeModuleGetFunctionPointer`. For calls through pointers in kernels of this module.
    fn zeModuleGetFunctionPointer(
        call,
        hModule: ze_module_handle_t,
        pFunctionName: *const c_char,
        pfnFunction: *mut *mut c_void,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hModule`
        let module = call.handle(hModule, "hModule")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pFunctionName`
        let name = call.c_str(pFunctionName, "pFunctionName")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pfnFunction`
        let out = call.out(pfnFunction, "pfnFunction")?;
        let exports = &module.own_info().exports;
        let found = exports.iter().find(|it| it.name.as_bytes() == name.to_bytes());
        if let Some(pointer) = found.and_then(|it| it.pointer) {
            out.set(std::ptr::without_provenance_mut(pointer as usize));
            return Ok(());
        }
        // "The function name should only refer to callable functions". Intel's driver gives the address of a
        // kernel's code; here it is one through which calls reach nothing.
        let kernel = module.kernel_names().iter().find(|it| it.as_c_str() == name).ok_or_else(|| {
            Error::new(
                ze_result_t::ZE_RESULT_ERROR_INVALID_FUNCTION_NAME,
                format!("pFunctionName: the module exports no function {name:?}"),
            )
        })?;
        warn_once!("pFunctionName: {name:?} is a kernel; calls through its address reach nothing");
        out.set(kernel.as_ptr().cast_mut().cast());
        Ok(())
    }

    /// Spec: `zeModuleGetKernelNames`. The names live as long as the module.
    fn zeModuleGetKernelNames(
        call,
        hModule: ze_module_handle_t,
        pCount: *mut u32,
        pNames: *mut *const c_char,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hModule`
        let module = call.handle(hModule, "hModule")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pCount`
        call.list(pCount, pNames, "pCount", module.kernel_names().iter().map(|name| name.as_ptr()))
    }

    /// Spec: `zeModuleGetProperties`.
    fn zeModuleGetProperties(
        call,
        hModule: ze_module_handle_t,
        pModuleProperties: *mut ze_module_properties_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hModule`
        let module = call.handle(hModule, "hModule")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pModuleProperties`
        let out = call.properties(pModuleProperties, "pModuleProperties")?;
        out.flags = ze_module_property_flags_t::empty();
        if !module.own_info().imports.is_empty() {
            out.flags |= ze_module_property_flags_t::ZE_MODULE_PROPERTY_FLAG_IMPORTS;
        }
        Ok(())
    }
}

/// The source that a description names, and the place for the module's handle.
fn request<'c>(
    call: Call<'c>,
    desc: *const ze_module_desc_t,
    module: *mut ze_module_handle_t,
) -> Result<(Out<'c, ze_module_handle_t>, Source<'c>)> {
    // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == desc`
    let source = source::read(call, call.desc(desc, "desc")?)?;
    // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == phModule`
    Ok((call.out(module, "phModule")?, source))
}

/// The result and the log of a call that is refused before it has built anything. Programs read and
/// destroy the log whatever the result is.
fn refused<T>(error: Error) -> (Result<T>, String) {
    let log = error.text().to_owned();
    (Err(error), log)
}

/// Returns a log, if the caller wants one.
fn write_log(call: Call<'_>, out: *mut ze_module_build_log_handle_t, log: &str) -> Result {
    if let Some(out) = call.optional_out(out) {
        out.set(handle::create(BuildLog::new(log))?);
    }
    Ok(())
}

/// The modules of an array that may not be empty.
fn modules<'c>(
    call: Call<'c>,
    count: u32,
    handles: *const ze_module_handle_t,
) -> Result<Vec<&'c Arc<Module>>> {
    if count == 0 {
        return Err(Error::new(ze_result_t::ZE_RESULT_ERROR_INVALID_SIZE, "numModules: it is 0"));
    }
    // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == phModules`
    let handles = call.slice(handles, count as usize, "phModules")?;
    let modules = handles.iter().map(|&module| call.handle(module, "phModules"));
    let modules = modules.collect::<Result<Vec<&Arc<Module>>>>()?;
    let vm = modules[0].context().vm();
    if modules.iter().any(|module| !Arc::ptr_eq(module.context().vm(), vm)) {
        return Err(Error::invalid("phModules: the modules do not share a device that works"));
    }
    Ok(modules)
}
