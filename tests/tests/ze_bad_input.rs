// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every function that the driver implements, called with null and with invalid arguments: each returns
//! an error and its reason, none crashes or hangs.

use std::collections::BTreeSet;
use std::ffi::{CString, c_void};
use std::ptr;

use tally_tests::ze::{self, Gpu};
use tally_tests::{call, check};
use tally_ze::*;

/// Any function of the interface, as far as the C calling convention cares: arguments are integers
/// and pointers, and the caller removes those that the function does not take. Functions with a
/// structure by value read it from the stack, where more zeroes are.
type Any = unsafe extern "C" fn(
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    [usize; 24],
) -> ze_result_t;

fn implemented() -> Vec<(&'static str, Any)> {
    let driver = ze::driver();
    let core = tables::all().flat_map(|table| table.entries).map(|entry| entry.name);
    let experimental = ["zexCounterBasedEventCreate2", "zexEventGetDeviceAddress"];
    let names: BTreeSet<&str> = core.chain(experimental).collect();
    let known = names.into_iter().filter_map(|name| {
        let text = CString::new(name).expect("no NUL");
        let mut address: *mut c_void = ptr::null_mut();
        let answer =
            call!(zeDriverGetExtensionFunctionAddress(driver, text.as_ptr(), &raw mut address));
        (answer == ze_result_t::ZE_RESULT_SUCCESS).then(|| {
            // SAFETY: see `Any`.
            (name, unsafe { std::mem::transmute::<*mut c_void, Any>(address) })
        })
    });
    known.collect()
}

/// Functions that return a value and no result code, so that null is a valid result:
/// ze_default_context.rs tests them.
const VALUED: [&str; 3] = [
    "zeDriverGetDefaultContext",
    "zerTranslateDeviceHandleToIdentifier",
    "zerTranslateIdentifierToDeviceHandle",
];

/// Functions that have nothing to refuse.
const HARMLESS: [&str; 3] = ["zeInit", "zesInit", "zerGetDefaultContext"];

/// Functions whose first argument is no handle.
const OTHERWISE: [&str; 6] = [
    "zerGetLastErrorDescription",
    "zeInitDrivers",
    "zeDriverGet",
    "zesDriverGet",
    "zeModuleDynamicLink",
    "zeModuleInspectLinkageExt",
];

#[test]
fn nothing_but_zeroes_is_refused_by_every_function() {
    let functions = implemented();
    assert!(functions.len() > 100, "{} functions", functions.len());
    for (name, function) in functions {
        if HARMLESS.contains(&name) || VALUED.contains(&name) {
            continue;
        }
        // SAFETY: the functions must check every pointer and handle for null.
        let answer = unsafe { function(0, 0, 0, 0, 0, 0, 0, 0, [0; 24]) };
        assert_ne!(answer, ze_result_t::ZE_RESULT_SUCCESS, "{name}");
        assert_ne!(answer, ze_result_t::ZE_RESULT_ERROR_UNKNOWN, "{name}: {}", ze::description());
        if name.starts_with("ze") && !name.starts_with("zes") {
            let text = ze::description();
            assert!(text.starts_with(name), "{name} left the description {text:?}");
        }
    }
}

#[test]
fn a_handle_of_another_kind_is_refused_by_every_function() {
    let gpu = Gpu::new();
    let zeroes = [0_u64; 512];
    let rest = zeroes.as_ptr() as usize;
    for (name, function) in implemented() {
        let answers_otherwise = OTHERWISE.contains(&name) || VALUED.contains(&name);
        if HARMLESS.contains(&name) || answers_otherwise {
            continue;
        }
        let is_context = name.starts_with("zeContext") && name != "zeContextCreate";
        let uses_context = ["zeMem", "zeVirtualMem", "zePhysicalMem", "zexCounterBased"];
        let creates = [
            "zeModuleCreate",
            "zeEventPoolCreate",
            "zeEventCounterBasedCreate",
            "zeGraphCreateExt",
        ];
        let shares = [
            "zeEventPoolPutIpcHandle",
            "zeEventPoolOpenIpcHandle",
            "zeEventCounterBasedOpenIpcHandle",
        ];
        let lists = ["zeCommandListCreate", "zeCommandListCreateImmediate", "zeCommandQueueCreate"];
        let wants_context = is_context
            || uses_context.iter().any(|it| name.starts_with(it))
            || creates.contains(&name)
            || shares.contains(&name)
            || lists.contains(&name);
        let other = if wants_context { gpu.device.0 } else { gpu.context.0 } as usize;
        let rubbish = [0x10, usize::MAX, rest, other, other + 8];
        for handle in rubbish {
            // SAFETY: the functions must detect a wrong handle before they use the other arguments,
            // which are zeroes of the test's own.
            let answer =
                unsafe { function(handle, rest, rest, rest, rest, rest, rest, rest, [0; 24]) };
            assert_eq!(
                answer,
                ze_result_t::ZE_RESULT_ERROR_INVALID_NULL_HANDLE,
                "{name}({handle:#x}): {}",
                ze::description()
            );
        }
    }
    check!(zeContextGetStatus(gpu.context));
}
