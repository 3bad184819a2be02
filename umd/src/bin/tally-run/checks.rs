// SPDX-License-Identifier: MIT OR Apache-2.0
//! The environment by which a program is told what to check.

use std::env;
use std::path::{Path, PathBuf, absolute};
use std::process::Command;

use tally_cli::run::Checks;

use crate::Result;

/// Settings with which SYCL's Level Zero adapters ask the driver for each allocation, instead of taking it
/// from larger ones of their own, in which mistakes could not be seen.
const WITHOUT_POOLS: [&str; 2] =
    ["UR_L0_DISABLE_USM_ALLOCATOR", "SYCL_PI_LEVEL_ZERO_DISABLE_USM_ALLOCATOR"];

/// Sets the settings of the requested checks.
pub fn ask_for(command: &mut Command, checks: &Checks) -> Result<()> {
    if checks.wanted.is_empty() {
        return Ok(());
    }
    command.env("TALLY_CHECK", checks.wanted.join(","));
    if env::var_os("TALLY_LANE").is_none() {
        // Kernels can be checked only if they run in the program's process.
        command.env("TALLY_LANE", "embedded");
    }
    for (name, file) in
        [("TALLY_CHECK_REPORT", &checks.report), ("TALLY_CHECK_SARIF", &checks.sarif)]
    {
        if let Some(file) = file {
            // The program may change its folder.
            command.env(name, absolute(file)?);
        }
    }
    if !checks.suppressions.is_empty() {
        let files: Vec<PathBuf> =
            checks.suppressions.iter().map(|file| readable(file)).collect::<Result<_>>()?;
        command.env("TALLY_CHECK_SUPPRESSIONS", env::join_paths(files)?);
    }
    if let Some(status) = checks.error_exitcode {
        command.env("TALLY_CHECK_EXITCODE", status.to_string());
    }
    if checks.stacks {
        command.env("TALLY_CHECK_STACKS", "1");
    }
    for name in WITHOUT_POOLS {
        if env::var_os(name).is_none() {
            command.env(name, "1");
        }
    }
    Ok(())
}

fn readable(file: &Path) -> Result<PathBuf> {
    match file.is_file() {
        true => Ok(absolute(file)?),
        false => Err(format!("{}: no such file", file.display()).into()),
    }
}
