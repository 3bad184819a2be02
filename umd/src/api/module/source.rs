// SPDX-License-Identifier: MIT OR Apache-2.0
//! The input of a module's build: SPIR-V, several SPIR-V modules, OpenCL C, or a native binary.

use std::ffi::c_char;

use tally_compiler_protocol::Input;
use tally_ze::*;

use super::carried;
use crate::api::Call;
use crate::core::module::Constants;
use crate::error::{Error, Result};
use crate::settings;

/// The input of zeModuleCreate.
pub(super) enum Source<'c> {
    /// A native binary of this driver.
    Native(&'c [u8]),
    /// SPIR-V modules with their flags and constants.
    Spirv(Vec<Input>),
    /// OpenCL C and its build flags.
    OpenClC(String, String),
}

/// The format of OpenCL C, which is not in the specification. Intel's driver has it, and programs build that
/// way: oneDNN, OpenVINO, Intel's benchmarks (compute-runtime, level_zero/core/source/module/defines_ext.h:
/// `ZE_MODULE_FORMAT_OCLC`).
const OPENCL_C: ze_module_format_t = ze_module_format_t(3);

/// The most SPIR-V modules of one description.
const MAX_INPUTS: u32 = 1 << 16;

/// Reads a description.
pub(super) fn read<'c>(call: Call<'c>, desc: &'c ze_module_desc_t) -> Result<Source<'c>> {
    let native = match desc.format {
        ze_module_format_t::ZE_MODULE_FORMAT_IL_SPIRV => false,
        ze_module_format_t::ZE_MODULE_FORMAT_NATIVE => true,
        OPENCL_C => return opencl_c(call, desc),
        // ZE_RESULT_ERROR_INVALID_ENUMERATION: `::ZE_MODULE_FORMAT_NATIVE < desc->format`
        format => {
            return Err(Error::new(
                ze_result_t::ZE_RESULT_ERROR_INVALID_ENUMERATION,
                format!("desc->format: {} is no ze_module_format_t", format.0),
            ));
        }
    };
    let program =
        call.chain(desc.pNext).find_map(|link| link.get::<ze_module_program_exp_desc_t>());
    match program {
        Some(_) if native => {
            Err(Error::unsupported("desc->pNext: several native binaries can't be made one module"))
        }
        Some(program) => inputs(call, program).map(Source::Spirv),
        None if native => {
            let binary = bytes(call, desc.pInputModule, desc.inputSize)?;
            let Some(carried) = carried::find(binary) else { return Ok(Source::Native(binary)) };
            log::debug!("zeModuleCreate: the SPIR-V that the native binary carries is built");
            let mut input = one(call, carried.spirv, desc)?;
            // Of several flags the last ones count: those of the call.
            input.options = format!("{} {}", carried.flags, input.options);
            Ok(Source::Spirv(vec![input]))
        }
        None => {
            let spirv = bytes(call, desc.pInputModule, desc.inputSize)?;
            Ok(Source::Spirv(vec![one(call, spirv, desc)?]))
        }
    }
}

/// OpenCL C. Whether the size counts a zero at the end differs between programs.
fn opencl_c<'c>(call: Call<'c>, desc: &'c ze_module_desc_t) -> Result<Source<'c>> {
    if call.chain(desc.pNext).any(|link| link.get::<ze_module_program_exp_desc_t>().is_some()) {
        return Err(Error::unsupported(
            "desc->pNext: several texts in OpenCL C can't be made one module",
        ));
    }
    let text = bytes(call, desc.pInputModule, desc.inputSize)?;
    let end = text.iter().rposition(|it| *it != 0).map_or(0, |last| last + 1);
    let text = String::from_utf8_lossy(&text[..end]).into_owned();
    Ok(Source::OpenClC(text, options(call, desc.pBuildFlags)?))
}

/// SPIR-V with a description's flags and constants.
fn one(call: Call<'_>, spirv: &[u8], desc: &ze_module_desc_t) -> Result<Input> {
    let constants = constants(call, desc.pConstants, spirv)?;
    input(call, spirv, desc.pBuildFlags, constants)
}

/// The SPIR-V modules that a program description lists. They replace the module description's
/// input, flags and constants.
fn inputs(call: Call<'_>, desc: &ze_module_program_exp_desc_t) -> Result<Vec<Input>> {
    if desc.count == 0 || desc.count > MAX_INPUTS {
        return Err(Error::new(
            ze_result_t::ZE_RESULT_ERROR_INVALID_SIZE,
            format!("desc->pNext->count: {}, but there can be 1 to {MAX_INPUTS}", desc.count),
        ));
    }
    let count = desc.count as usize;
    let sizes = call.slice(desc.inputSizes, count, "desc->pNext->inputSizes")?;
    let modules = call.slice(desc.pInputModules, count, "desc->pNext->pInputModules")?;
    let optional = |is_null: bool| if is_null { 0 } else { count };
    let flags = optional(desc.pBuildFlags.is_null());
    let flags = call.slice(desc.pBuildFlags, flags, "desc->pNext->pBuildFlags")?;
    let given = optional(desc.pConstants.is_null());
    let given = call.slice(desc.pConstants, given, "desc->pNext->pConstants")?;
    let mut inputs = Vec::with_capacity(count);
    for (i, (&module, &size)) in modules.iter().zip(sizes).enumerate() {
        let spirv = bytes(call, module, size)?;
        let given = given.get(i).copied().unwrap_or(std::ptr::null());
        let constants = constants(call, given, spirv)?;
        let flags = flags.get(i).copied().unwrap_or(std::ptr::null());
        inputs.push(input(call, spirv, flags, constants)?);
    }
    Ok(inputs)
}

fn bytes<'c>(call: Call<'c>, module: *const u8, size: usize) -> Result<&'c [u8]> {
    // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == desc->pInputModule`
    call.read(module, "desc->pInputModule")?;
    // ZE_RESULT_ERROR_INVALID_SIZE: `0 == desc->inputSize`
    if size == 0 {
        return Err(Error::new(
            ze_result_t::ZE_RESULT_ERROR_INVALID_SIZE,
            "desc->inputSize: it is 0",
        ));
    }
    call.slice(module, size, "desc->pInputModule")
}

/// Build flags of what is debugged.
const FOR_DEBUGGER: &str = " -g -cl-opt-disable";

fn input(
    call: Call<'_>,
    spirv: &[u8],
    flags: *const c_char,
    constants: Constants,
) -> Result<Input> {
    let options = options(call, flags)?;
    Ok(Input { spirv: spirv.to_owned(), options, spec_constants: constants.values() })
}

/// A description's flags.
fn options(call: Call<'_>, flags: *const c_char) -> Result<String> {
    let options = match flags.is_null() {
        true => String::new(),
        false => call.c_str(flags, "desc->pBuildFlags")?.to_string_lossy().into_owned(),
    };
    Ok(match settings::get().debug {
        // Of several flags the last ones count.
        true => options + FOR_DEBUGGER,
        false => options,
    })
}

/// Reads the values of specialization constants, each with the width that the module declares.
/// Constants that the module does not have are ignored.
fn constants(
    call: Call<'_>,
    given: *const ze_module_constants_t,
    spirv: &[u8],
) -> Result<Constants> {
    if given.is_null() {
        return Ok(Constants::default());
    }
    let given = call.read(given, "desc->pConstants")?;
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
