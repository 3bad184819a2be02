// SPDX-License-Identifier: MIT OR Apache-2.0
//! Appends while checks run (`crate::checks`): commands that move memory are checked where they are
//! appended, and move its states too; launches get numbers; and it is noted what a command uses until it is
//! complete.

use std::sync::Arc;

use tally_compiler_protocol::checks::hidden;
use tally_compiler_protocol::{ArgKind, KernelInfo};
use tally_uapi::packet::Region;
use tally_ze::ze_kernel_timestamp_result_t;

use super::ordered::Ordered;
use crate::checks::{Checks, Launching, Move, Rows, State, Transfer};
use crate::core::kernel::{Launch, Launched};
use crate::error::Result;
use crate::list::command::Command;
use crate::list::immediate::Immediate;
use crate::list::launch::Groups;
use crate::list::regular::Regular;

/// Appends a command with what checks need, by `append`. The addresses of the memory that it uses.
pub(super) fn append(
    checks: &'static Checks,
    command: &Command<'_>,
    launched: Option<Launched<'_>>,
    ordered: &mut Option<Ordered<'_>>,
    append: impl FnOnce(&Command<'_>, Option<Launched<'_>>) -> Result,
) -> Result<Vec<u64>> {
    if let Some((kernel, launch, groups)) = launched {
        let (word, numbered) = numbered(checks, (kernel, launch, groups), 0);
        let pointers = pointers(kernel.info(), &launch.args);
        let launch = numbered.as_ref().unwrap_or(launch);
        let main = launch.with(groups);
        let main = Command::Launch(&main);
        let number = number(ordered, &main, &[], word & !hidden::REACHES_ALL);
        append(&with(&main, &number), Some((kernel, launch, groups)))?;
        return Ok(pointers.into_iter().map(|it| it.1).collect());
    }
    if let Command::Launches { launches, count, words, .. } = *command {
        let (number, numbers) =
            ordered.as_mut().map_or_else(Default::default, |it| it.launches(command, words));
        let main = Command::Launches { launches, count, words, numbers: &numbers };
        append(&with(&main, &as_part(number)), None)?;
        return Ok(Vec::new());
    }
    if let Command::Clock(dst) = *command {
        // It is a write behind a packet, and no packet beside which there could be another.
        checks.written(Rows::of(dst, size_of::<u64>() as u64));
        let write = Transfer::write(Rows::of(dst, size_of::<u64>() as u64));
        let number = number(ordered, command, &[write], 0);
        append(&with(command, &number), None)?;
        return Ok(vec![dst]);
    }
    let transfers = transfers(command);
    let moves = checks.moved(&transfers);
    let mut parts = number(ordered, command, &transfers, 0);
    parts.extend(moves.iter().map(of_move));
    append(&with(command, &parts), None)?;
    let rows = transfers.iter().flat_map(|it| [it.to, it.from]).flatten();
    Ok(rows.map(|rows| rows.address).collect())
}

/// The word by which a launch's kernel names it, and the launch with that word if the kernel has checks. `of`: the number
/// of the launch that it replaces, or 0.
pub(super) fn numbered(
    checks: &Checks,
    (kernel, launch, groups): Launched<'_>,
    of: u64,
) -> (u64, Option<Launch>) {
    let pointers = pointers(kernel.info(), &launch.args);
    let indirect = *kernel.indirect();
    let word = checks.launching(&Launching {
        kernel: &launch.name,
        watched: launch.code.watched.as_ref(),
        indirect,
        forces_residency: kernel.forces_residency(),
        pointers: &pointers,
        group_items: launch.group_size.iter().map(|&items| u64::from(items)).product(),
        may_wait: matches!(groups, Groups::Cooperative(_) | Groups::Direct([0 | 1, 0 | 1, 0 | 1])),
        words: launch.words(),
        of,
    });
    (word, launch.numbered(word, checks.block()))
}

/// Adds a command to what orders commands. Its number, if the device has to tell when it starts.
fn number(
    ordered: &mut Option<Ordered<'_>>,
    command: &Command<'_>,
    transfers: &[Transfer],
    launch: u64,
) -> Vec<Command<'static>> {
    as_part(ordered.as_mut().map_or(0, |it| it.number(command, transfers, launch)))
}

/// The part of a command that tells its number, unless it is 0.
fn as_part(number: u32) -> Vec<Command<'static>> {
    if number == 0 { Vec::new() } else { vec![Command::Number(number)] }
}

/// A command with the parts that belong to it.
fn with<'a>(main: &'a Command<'a>, with: &'a [Command<'a>]) -> Command<'a> {
    Command::Together { main, with }
}

/// Whether what was just appended to an immediate list is complete; `None`: that is not known.
pub(super) fn immediate(list: &Immediate) -> Option<State> {
    let (cell, value) = list.last()?;
    // The cell goes with the address space, which may be lost.
    let shared = Arc::downgrade(list.shared());
    Some(Box::new(move || {
        let _shared = shared.upgrade()?;
        (!cell.reached(value)).then_some(true)
    }))
}

/// Whether a regular list is being executed.
pub(super) fn regular(list: &Regular) -> State {
    let recording = Arc::downgrade(&list.recording());
    Box::new(move || recording.upgrade().map(|it| it.is_running()))
}

/// The memory that a command writes and reads, other than by kernels.
fn transfers(command: &Command<'_>) -> Vec<Transfer> {
    let one = match *command {
        Command::Copy { dst, src, size } => {
            Transfer::copy(Rows::of(dst, size), Rows::of(src, size))
        }
        Command::Fill { dst, size, .. } => Transfer::write(Rows::of(dst, size)),
        Command::CopyRegion { dst, src, shape } => {
            let Region { width, height, depth, .. } = shape;
            let side = |address, row_pitch, slice_pitch| Rows {
                address,
                width,
                height,
                depth,
                row_pitch,
                slice_pitch,
            };
            let to = side(dst, shape.dst_row_pitch, shape.dst_slice_pitch);
            Transfer::copy(to, side(src, shape.src_row_pitch, shape.src_slice_pitch))
        }
        Command::Times(times) => {
            let size = size_of::<ze_kernel_timestamp_result_t>() as u64;
            return times.iter().map(|it| Transfer::write(Rows::of(it.dst, size))).collect();
        }
        _ => return Vec::new(),
    };
    vec![one]
}

fn of_move(it: &Move) -> Command<'static> {
    use tally_compiler_protocol::checks::DEFINED;
    match *it {
        Move::Copy { dst, src, size } => Command::Copy { dst, src, size },
        Move::Region { dst, src, shape } => Command::CopyRegion { dst, src, shape },
        Move::Define { dst, size } => Command::Fill { dst, size, pattern: &[DEFINED] },
    }
}

/// The pointers among a kernel's arguments, by their indices.
fn pointers(info: &KernelInfo, args: &[u8]) -> Vec<(usize, u64)> {
    let is_pointer = |kind| matches!(kind, ArgKind::GlobalPointer | ArgKind::ConstantPointer);
    let all = info.args.iter().enumerate().filter(|(_, arg)| is_pointer(arg.kind));
    all.filter_map(|(index, arg)| {
        let bytes = args.get(arg.offset as usize..)?.first_chunk()?;
        Some((index, u64::from_le_bytes(*bytes)))
    })
    .collect()
}
