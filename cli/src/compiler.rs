// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `tally-compiler`.

use std::path::PathBuf;

use clap::{ArgGroup, Parser};

/// Shows what Tally's compiler makes of a SPIR-V module
///
/// Drivers start this program without arguments, as their compiler; then it
/// speaks its protocol on standard input and output. People start it with a
/// view and a file.
#[derive(Debug, Parser)]
#[command(
    name = "tally-compiler",
    version,
    max_term_width = 80,
    verbatim_doc_comment,
    override_usage = "tally-compiler VIEW FILE [CPU]",
    after_long_help = AFTER,
    group = ArgGroup::new("view").required(true)
)]
#[allow(clippy::struct_excessive_bools, reason = "the views are one option each")]
pub struct Arguments {
    /// The typed representation
    #[arg(long, group = "view", help_heading = "Views")]
    pub ir: bool,

    /// What runs a vector of work-items
    #[arg(long, group = "view", help_heading = "Views")]
    pub widen: bool,

    /// What is given to LLVM
    #[arg(long, group = "view", help_heading = "Views")]
    pub llvm: bool,

    /// What LLVM makes of it
    #[arg(long, group = "view", help_heading = "Views")]
    pub opt: bool,

    /// The processor's code
    #[arg(long, group = "view", help_heading = "Views")]
    pub disasm: bool,

    /// What each step of a build costs
    #[arg(long, group = "view", help_heading = "Views")]
    pub time_passes: bool,

    /// All of these beside one another, with what slows the code down
    #[arg(long, group = "view", help_heading = "Views")]
    pub beside: bool,

    /// The SPIR-V module
    #[arg(value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,

    /// LLVM's name of a processor, such as x86-64-v3 [default: x86-64]
    #[arg(default_value = "", hide_default_value = true)]
    pub cpu: String,
}

const AFTER: &str = "\
Examples:
  tally-compiler --beside saxpy.spv x86-64-v3
  tally-compiler --disasm saxpy.spv

Exit status:
  0  the view was printed
  1  the module cannot be compiled; the message says why
  2  the command line is wrong

See also:
  tally-run(1); compiler/README.md explains the views";
