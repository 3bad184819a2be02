// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `tally-gpu`.

use std::path::PathBuf;

use clap::{Parser, value_parser};

/// The largest number of engines of a class.
pub const MAX_ENGINES: u32 = 64;
/// The largest number of threads of a kind.
pub const MAX_WORKERS: u32 = 128;

/// Serves the Tally GPU to one virtual machine, or to this machine
#[derive(Debug, Parser)]
#[command(name = "tally-gpu", version, max_term_width = 80, after_long_help = AFTER)]
pub struct Arguments {
    /// Serve a virtual machine, listening at this socket
    #[arg(long, value_name = "PATH", value_hint = clap::ValueHint::FilePath,
        required_unless_present = "host", conflicts_with = "host")]
    pub socket: Option<PathBuf>,

    /// Serve this machine, which has the module tally loaded
    #[arg(long)]
    pub host: bool,

    /// Engines that take all packets [default: 4]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=MAX_ENGINES as i64))]
    pub compute_engines: Option<u32>,

    /// Engines that take all packets but DISPATCH [default: 2]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(..=MAX_ENGINES as i64))]
    pub copy_engines: Option<u32>,

    /// Execution units of each address space [default: one a processor]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=MAX_WORKERS as i64))]
    pub workers: Option<u32>,

    /// Threads that take the place of stuck ones [default: 8]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(..=MAX_WORKERS as i64))]
    pub substitutes: Option<u32>,

    /// Time for a kernel whose queue is destroyed to end [default: 100]
    #[arg(long, value_name = "MS", value_parser = value_parser!(u32).range(1..=60_000))]
    pub reset_ms: Option<u32>,

    /// Memory of NULL mappings [default: a quarter of this machine's]
    #[arg(long, value_name = "MIB", conflicts_with = "host")]
    pub null_mib: Option<u32>,

    /// Decide by chance all that is not guaranteed, alike for the same N
    #[arg(long, value_name = "N")]
    pub chaos: Option<u64>,

    /// Refuse every VM_UNMAP, to test drivers
    #[arg(long, hide = true)]
    pub refuse_unmap: bool,
}

const AFTER: &str = "\
Virtual machine:
  QEMU 10.1 or newer attaches the device with
  -M q35,memory-backend=mem
  -object memory-backend-memfd,id=mem,size=SIZE,share=on
  -device '{\"driver\":\"vfio-user-pci\",
            \"socket\":{\"type\":\"unix\",\"path\":\"PATH\"}}'

Exit status:
  0  the virtual machine has ended
  1  the device cannot be served, or the driver of this machine has given it
     up; the message says why
  2  the command line is wrong";
