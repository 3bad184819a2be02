// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The C header (`include/drm/tally_drm.h`) says what `src/ioctl.rs` says: gcc and clang accept it as C and
//! as C++, with the sizes, offsets and numbers of the Rust types.

#![cfg(not(any(loom, shuttle)))]

use std::fmt::Write;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;

use tally_uapi::cell::Compare;
use tally_uapi::fault::FaultKind;
use tally_uapi::ioctl::*;

const HEADER: &str = include_str!("../include/drm/tally_drm.h");

/// The part of the kernel's `drm.h` that the header needs, since not every machine has that file.
const DRM: &str = "\
#include <linux/types.h>
#include <asm/ioctl.h>
#define DRM_IOCTL_BASE 'd'
#define DRM_IOWR(nr, type) _IOWR(DRM_IOCTL_BASE, nr, type)
#define DRM_COMMAND_BASE 0x40
";

/// A struct in C, and what the C compiler must find for it. The pattern names every field, so a new one is not
/// forgotten.
macro_rules! layout {
    ($facts:ident, $($type:ident $c:literal { $($field:ident),* })*) => {$({
        let $type { $($field: _),* } = $type::default();
        $facts.push((concat!("sizeof(struct ", $c, ")").into(), size_of::<$type>() as u64));
        $($facts.push((
            concat!("offsetof(struct ", $c, ", ", stringify!($field), ")").into(),
            offset_of!($type, $field) as u64,
        ));
        $facts.push((
            concat!("sizeof(((struct ", $c, " *)0)->", stringify!($field), ")").into(),
            width(|it: &$type| &it.$field),
        ));)*
    })*};
}

/// Bytes of a field.
fn width<T, F>(_: fn(&T) -> &F) -> u64 {
    size_of::<F>() as u64
}

/// Constants of the source by the names that C has for them.
macro_rules! constants {
    ($facts:ident, $($module:ident: $($name:ident)*;)*) => {$($(
        let name = format!("DRM_TALLY_{}_{}", stringify!($module).to_uppercase(), stringify!($name));
        $facts.push((name, u64::from($module::$name)));
    )*)*};
}

macro_rules! requests {
    ($facts:ident, $($name:ident $type:ident)*) => {$(
        $facts.push((concat!("DRM_IOCTL_TALLY_", stringify!($name)).into(), u64::from($type::REQUEST)));
        $facts.push((concat!("DRM_TALLY_", stringify!($name)).into(), u64::from($type::NUMBER)));
    )*};
}

macro_rules! variants {
    ($facts:ident, $($type:ident: $($name:ident $c:literal)*;)*) => {$($(
        $facts.push((concat!("DRM_TALLY_", $c).into(), $type::$name as u64));
    )*)*};
}

/// C expressions and their values in Rust.
fn facts() -> Vec<(String, u64)> {
    let mut facts = vec![
        ("DRM_TALLY_VERSION_MAJOR".into(), u64::from(VERSION_MAJOR)),
        ("DRM_TALLY_VERSION_MINOR".into(), u64::from(VERSION_MINOR)),
        ("DRM_TALLY_SEM_WAIT_MAX_ENTRIES".into(), u64::from(SEM_WAIT_MAX_ENTRIES)),
        ("DRM_TALLY_BIND_MAX_POINTS".into(), u64::from(BIND_MAX_POINTS)),
    ];
    layout! { facts,
        Query "drm_tally_query" { what, size, data, reserved }
        DeviceInfo "drm_tally_device_info" {
            uuid, vendor_id, device_id, execution_units, simd_lanes, core_clock_mhz, cache_line_bytes,
            memory_bytes, cache_bytes, clock_hz, va_start, va_end, max_vms, max_queues
        }
        EngineInfo "drm_tally_engine_info" { capabilities, count }
        ClockPair "drm_tally_clock_pair" { host_ns, device_ticks }
        BoCreate "drm_tally_bo_create" { size, flags, handle }
        BoInfo "drm_tally_bo_info" { handle, pad, size, mmap_offset }
        VmCreate "drm_tally_vm_create" { start, size, flags, vm_id }
        VmDestroy "drm_tally_vm_destroy" { vm_id, pad }
        BindPoint "drm_tally_bind_point" { handle, pad, point }
        VmBind "drm_tally_vm_bind" {
            vm_id, op, flags, handle, offset, address, size, waits, signals, wait_count, signal_count,
            status_handle, pad, status_offset
        }
        QueueCreate "drm_tally_queue_create" {
            vm_id, engine_class, engine_index, priority, ring, control, packets, flags, queue_id, pad
        }
        QueueDestroy "drm_tally_queue_destroy" { queue_id, pad }
        QueueQuery "drm_tally_queue_query" {
            queue_id, state, fault_kind, pad, fault_address, fault_packet, parked_address, parked_value,
            head, busy_ns
        }
        QueueKick "drm_tally_queue_kick" { queue_id, pad }
        SemWait "drm_tally_sem_wait" { entries, count, flags, timeout_ns, vm_id, index }
        SemWaitEntry "drm_tally_sem_wait_entry" { handle, compare, offset, value }
        SemNotify "drm_tally_sem_notify" { entries, count, flags, vm_id, kind, target, pad, point }
        SemFollow "drm_tally_sem_follow" {
            handle, flags, offset, value, status_offset, kind, source, point
        }
        SemWake "drm_tally_sem_wake" { handle, pad, offset }
        VmOrphan "drm_tally_vm_orphan" { vm_id, pad, address, size }
    }
    constants! { facts,
        query: DEVICE ENGINES TARGET CLOCK;
        engine_capability: COMPUTE COPY;
        bo_flag: IMPORT_READ_ONLY;
        bind_op: MAP UNMAP MAP_USERPTR MAP_NULL;
        bind_flag: READ WRITE EXECUTE;
        priority: HIGH NORMAL LOW;
        queue_state: IDLE RUNNING PARKED STOPPED;
        sem_wait_flag: ANY FILE;
        notify_kind: EVENTFD SYNCOBJ;
        follow_kind: SYNC_FILE SYNCOBJ;
        follow_flag: STATUS;
    }
    requests! { facts,
        QUERY Query BO_CREATE BoCreate BO_INFO BoInfo VM_CREATE VmCreate VM_DESTROY VmDestroy
        VM_BIND VmBind QUEUE_CREATE QueueCreate QUEUE_DESTROY QueueDestroy QUEUE_QUERY QueueQuery
        QUEUE_KICK QueueKick SEM_WAIT SemWait SEM_WAKE SemWake VM_ORPHAN VmOrphan
        SEM_NOTIFY SemNotify SEM_FOLLOW SemFollow
    }
    variants! { facts,
        Compare: GreaterEqual "COMPARE_GREATER_EQUAL" Greater "COMPARE_GREATER"
            LessEqual "COMPARE_LESS_EQUAL" Less "COMPARE_LESS" Equal "COMPARE_EQUAL"
            NotEqual "COMPARE_NOT_EQUAL";
        FaultKind: BadOpcode "FAULT_KIND_BAD_OPCODE" BadField "FAULT_KIND_BAD_FIELD"
            BadAlignment "FAULT_KIND_BAD_ALIGNMENT" BadNesting "FAULT_KIND_BAD_NESTING"
            PageFault "FAULT_KIND_PAGE_FAULT" IllegalInstruction "FAULT_KIND_ILLEGAL_INSTRUCTION"
            ArithmeticTrap "FAULT_KIND_ARITHMETIC_TRAP" Aborted "FAULT_KIND_ABORTED"
            EngineLost "FAULT_KIND_ENGINE_LOST" Orphaned "FAULT_KIND_ORPHANED"
            OutOfResources "FAULT_KIND_OUT_OF_RESOURCES";
    }
    facts
}

/// Every name that the header defines is compared with Rust.
#[test]
fn nothing_of_the_header_is_left_out() {
    let facts = facts();
    let known = |text: &str| facts.iter().any(|(fact, _)| fact == text);
    for line in HEADER.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some("#define"), Some(name), Some(_)) => assert!(known(name), "{name}"),
            (Some("struct"), Some(name), Some("{")) => {
                assert!(known(&format!("sizeof(struct {name})")), "{name}")
            }
            (Some(name), Some("="), Some(_)) => assert!(known(name), "{name}"),
            _ => {}
        }
    }
    assert_eq!(HEADER.matches("#define DRM_IOCTL_TALLY_").count(), IOCTLS.len());
}

#[test]
fn compilers_find_the_layouts_of_rust() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("header");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("drm.h"), DRM).unwrap();
    let mut text = String::from("#include <tally_drm.h>\n#include <stddef.h>\n");
    for (index, (expression, value)) in facts().into_iter().enumerate() {
        // An array of negative length is an error in C90 too.
        writeln!(text, "extern char fact_{index}[({expression}) == {value}ull ? 1 : -1];").unwrap();
    }
    let clang = std::env::var_os("TALLY_CLANG").unwrap_or_else(|| "clang-22".into());
    for (compiler, language, standard) in [
        ("gcc".into(), "c", "gnu90"),
        ("gcc".into(), "c", "gnu2x"),
        (clang.clone(), "c", "gnu90"),
        (clang.clone(), "c", "gnu2x"),
        ("g++".into(), "c++", "gnu++98"),
        ("g++".into(), "c++", "gnu++20"),
        (clang.clone(), "c++", "gnu++98"),
        (clang, "c++", "gnu++20"),
    ] {
        let source =
            folder.join(format!("{standard}.{}", if language == "c" { "c" } else { "cc" }));
        std::fs::write(&source, &text).unwrap();
        let built = Command::new(&compiler)
            .args([
                "-x",
                language,
                &format!("-std={standard}"),
                "-fsyntax-only",
                "-Wall",
                "-Wextra",
            ])
            .args([
                "-Werror",
                "-Wno-long-long",
                "-I",
                concat!(env!("CARGO_MANIFEST_DIR"), "/include/drm"),
            ])
            .arg("-I")
            .arg(&folder)
            .arg(&source)
            .output()
            .unwrap_or_else(|error| panic!("{compiler:?}: {error}"));
        let said = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "{compiler:?} -std={standard}: {said}");
    }
}
