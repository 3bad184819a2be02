// SPDX-License-Identifier: MIT OR Apache-2.0
//! The environment in which the driver's library starts.

use std::env;
use std::path::absolute;

use tally_cli::replay::Arguments;
use ze_tally::recording::SETTINGS;

use crate::Result;
use crate::scan::Scan;

/// Sets what the recording and the command line ask for. Variables that are set already stay.
pub fn set(arguments: &Arguments, scan: &Scan) -> Result<()> {
    let set = |name: &str, value: &std::ffi::OsStr| {
        // SAFETY: there is no other thread yet.
        unsafe { env::set_var(name, value) };
    };
    let or = |name: &str, value: &str| {
        if env::var_os(name).is_none() {
            set(name, value.as_ref());
        }
    };
    // SAFETY: there is no other thread yet.
    unsafe { env::remove_var("TALLY_RECORD") };
    set("TALLY_REPLAY", "1".as_ref());
    or("TALLY_WINDOW", &(scan.begin.reservation.1 >> 20).to_string());
    for (name, value) in &scan.begin.settings {
        if SETTINGS.contains(&name.as_str()) {
            or(name, value);
        }
    }
    if let Some(number) = arguments.chaos {
        set("TALLY_CHAOS", number.to_string().as_ref());
    }
    if let Some(file) = &arguments.trace {
        set("TALLY_TRACE", absolute(file)?.as_os_str());
    }
    let checks = &arguments.checks;
    if checks.wanted.is_empty() {
        return Ok(());
    }
    set("TALLY_CHECK", checks.wanted.join(",").as_ref());
    // Kernels can be checked only if they run in this process.
    or("TALLY_LANE", "embedded");
    for (name, file) in
        [("TALLY_CHECK_REPORT", &checks.report), ("TALLY_CHECK_SARIF", &checks.sarif)]
    {
        if let Some(file) = file {
            set(name, absolute(file)?.as_os_str());
        }
    }
    if !checks.suppressions.is_empty() {
        set("TALLY_CHECK_SUPPRESSIONS", &env::join_paths(&checks.suppressions)?);
    }
    if let Some(status) = checks.error_exitcode {
        set("TALLY_CHECK_EXITCODE", status.to_string().as_ref());
    }
    if checks.stacks {
        set("TALLY_CHECK_STACKS", "1".as_ref());
    }
    Ok(())
}
