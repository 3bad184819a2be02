// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the exported table functions, called on the shared library as a loader calls them.

use std::collections::BTreeSet;
use std::ffi::{CString, c_void};
use std::path::PathBuf;
use std::process::Command;

use tally_ze::tables::{self, Returns, Table};
use tally_ze::{make_version, ze_api_version_t, ze_result_t};

type Getter = unsafe extern "C" fn(ze_api_version_t, *mut usize) -> ze_result_t;

/// The value of a word that was never written.
const CANARY: usize = 0x7a11_ca9a_7a11_ca9a;

/// The libze_tally.so of this build, which cargo places beside the test binaries. (The one in the folder
/// above is from the last `cargo build`.)
fn library() -> PathBuf {
    let path = std::env::current_exe().unwrap().with_file_name("libze_tally.so");
    assert!(path.exists(), "the build made {}", path.display());
    path
}

/// The exported function of this name.
fn getter(name: &str) -> Getter {
    let path = CString::new(library().into_os_string().into_encoded_bytes()).unwrap();
    let symbol = CString::new(name).unwrap();
    // SAFETY: both strings end in null; the library has no initialisers that need more.
    let address = unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        assert!(!handle.is_null(), "{} loads", path.to_string_lossy());
        libc::dlsym(handle, symbol.as_ptr())
    };
    assert!(!address.is_null(), "{name} is exported");
    // SAFETY: every symbol with such a name has this type.
    unsafe { std::mem::transmute::<*mut c_void, Getter>(address) }
}

/// Calls the getter of `table` with `version`; returns its result and a buffer, with room behind the table,
/// into which it wrote.
fn ask(table: &Table, version: u32) -> (ze_result_t, Vec<usize>) {
    let mut words = vec![CANARY; table.entries.len() + 64];
    // SAFETY: the buffer is longer than the table of any version.
    let result = unsafe { getter(table.getter)(ze_api_version_t(version), words.as_mut_ptr()) };
    (result, words)
}

#[test]
fn every_table_of_the_specification_is_exported() {
    let known: BTreeSet<_> = tables::all().map(|table| table.getter).collect();
    let exported: BTreeSet<_> = ze_tally::ddi::EXPORTED.iter().copied().collect();
    assert_eq!(known, exported);
    assert_eq!(known.len(), 76);
    for name in known {
        getter(name);
    }
}

#[test]
fn no_version_of_any_table_is_written_behind_its_end() {
    for table in tables::all() {
        for minor in 0..=17 {
            let version = make_version(1, minor);
            let (result, words) = ask(table, version);
            assert_eq!(result, ze_result_t::ZE_RESULT_SUCCESS, "{} 1.{minor}", table.getter);
            let written = table.entries_at(version).count();
            assert!(
                words[..written].iter().all(|word| *word != CANARY && *word != 0),
                "{} 1.{minor}: every one of the {written} entries is filled",
                table.getter
            );
            assert!(
                words[written..].iter().all(|word| *word == CANARY),
                "{} 1.{minor}: nothing behind the {written} entries is touched",
                table.getter
            );
        }
    }
}

#[test]
fn a_newer_minor_version_gets_the_entries_known_today() {
    for table in tables::all() {
        let (result, words) = ask(table, make_version(1, 99));
        assert_eq!(result, ze_result_t::ZE_RESULT_SUCCESS);
        assert_eq!(words, ask(table, make_version(1, 17)).1, "{}", table.getter);
    }
}

#[test]
fn another_major_version_is_refused_and_nothing_written() {
    for table in tables::all() {
        for version in [make_version(0, 91), make_version(2, 0), u32::MAX, 0] {
            let (result, words) = ask(table, version);
            assert_eq!(result, ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_VERSION);
            assert!(words.iter().all(|word| *word == CANARY), "{}", table.getter);
        }
    }
}

/// SYCL's adapters call zeInitDrivers, which an old loader does not have, without a check. A mapped file of
/// that name stands for one.
#[test]
fn a_loader_that_would_crash_sycl_gets_no_driver() {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_with_an_adapter", "--ignored", "--nocapture"])
        .output()
        .expect("it starts");
    assert!(child.status.success(), "{child:?}");
    let said = String::from_utf8_lossy(&child.stderr).into_owned();
    let sentence = "loader of this process is too old for SYCL (API 1.9; 1.10 is needed)";
    assert_eq!(said.matches(sentence).count(), 1, "once: {said}");
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_an_adapter() {
    let table = tables::get("zeGetGlobalProcAddrTable");
    let (old, new) = (make_version(1, 9), make_version(1, 10));
    let success = ze_result_t::ZE_RESULT_SUCCESS;
    assert_eq!(ask(table, old).0, success, "nothing here would call what it does not have");
    let folder = std::env::temp_dir().join(format!("tally-adapter-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("libur_adapter_level_zero_v2.so.0");
    std::fs::write(&path, [0; 4096]).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    // SAFETY: this maps new pages, which nothing uses, of a file that is not changed.
    let at = unsafe {
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_PRIVATE, fd, 0)
    };
    assert_ne!(at, libc::MAP_FAILED);
    for _ in 0..2 {
        let (result, words) = ask(table, old);
        assert_eq!(result, ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_VERSION);
        assert!(words.iter().all(|&word| word == CANARY), "nothing is written");
    }
    assert_eq!(ask(table, new).0, success);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_null_table_is_refused() {
    for table in tables::all() {
        // SAFETY: the function has to tolerate null.
        let result = unsafe {
            getter(table.getter)(ze_api_version_t::ZE_API_VERSION_1_0, std::ptr::null_mut())
        };
        assert_eq!(result, ze_result_t::ZE_RESULT_ERROR_INVALID_NULL_POINTER, "{}", table.getter);
    }
}

/// The function of this name in the table of the newest version.
fn entry(getter: &str, name: &str) -> usize {
    let table = tables::all().find(|table| table.getter == getter).unwrap();
    let index = table.entries.iter().position(|entry| entry.name == name).unwrap();
    ask(table, make_version(1, 17)).1[index]
}

#[test]
fn what_is_not_implemented_says_so() {
    let result = entry("zetGetTracerExpProcAddrTable", "zetTracerExpCreate");
    // SAFETY: the type is that of the function, without the arguments, which it does not read.
    let result: extern "C" fn() -> ze_result_t = unsafe { std::mem::transmute(result) };
    assert_eq!(result(), ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
}

/// The stub of a function that is not implemented returns a result code, not a handle.
#[test]
fn functions_that_return_no_result_are_implemented() {
    let entries = tables::all().flat_map(|table| table.entries);
    let others: Vec<&str> =
        entries.filter(|it| it.returns != Returns::Result).map(|it| it.name).collect();
    assert!(others.contains(&"zeDriverGetDefaultContext"), "{others:?}");
    for name in others {
        assert!(ze_tally::ddi::lookup(name).is_some(), "{name}");
    }
}

/// The API version promises all functions of the core and of the runtime that are not extensions. The
/// functions for runtime requirements may report that there are none, as in Intel's driver.
#[test]
fn the_version_that_is_reported_has_its_functions() {
    let requirements = [
        "zeDeviceGetRuntimeRequirements",
        "zeDeviceGetRuntimeRequirementsKey",
        "zeDeviceValidateRuntimeRequirements",
    ];
    let is_core = |name: &str| {
        let core = name.starts_with("ze") && !name.starts_with("zes") && !name.starts_with("zet");
        core && !name.ends_with("Ext") && !name.ends_with("Exp")
    };
    let core = tables::all().flat_map(|table| table.entries).filter(|it| is_core(it.name));
    let missing: Vec<&str> =
        core.map(|it| it.name).filter(|name| ze_tally::ddi::lookup(name).is_none()).collect();
    assert_eq!(missing, requirements);
}

#[test]
fn every_implemented_core_function_is_in_a_table() {
    let known: BTreeSet<_> =
        tables::all().flat_map(|table| table.entries).map(|entry| entry.name).collect();
    for name in ze_tally::ddi::IMPLEMENTED {
        // Intel's own functions, and its older names of graphs' functions, are only looked up.
        let is_intels = name.contains("Graph") && name.ends_with("Exp")
            || ["zeGraphPauseCaptureExt", "zeGraphResumeCaptureExt"].contains(name);
        let has_no_table = name.starts_with("zex") || is_intels;
        assert!(known.contains(name) || has_no_table, "{name} is in no table");
        assert!(ze_tally::ddi::lookup(name).is_some());
    }
}

#[test]
fn every_entry_leads_into_the_driver() {
    for table in tables::all() {
        let words = ask(table, make_version(1, 17)).1;
        for (entry, word) in table.entries.iter().zip(words) {
            // SAFETY: the structure consists of pointers, for which null is a valid value.
            let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
            // SAFETY: dladdr only looks the address up.
            assert_ne!(unsafe { libc::dladdr(word as *const c_void, &mut found) }, 0);
            let (base, own) = (found.dli_fbase, getter(table.getter) as *const c_void);
            // SAFETY: as above.
            assert_ne!(unsafe { libc::dladdr(own, &mut found) }, 0);
            assert_eq!(base, found.dli_fbase, "{}", entry.name);
        }
    }
}

/// Runs a C program with the installed loader and this driver; returns its standard output.
fn with_loader(name: &str, source: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (text, program) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&text, source).unwrap();
    let built = Command::new("gcc")
        .args(["-Wall", "-Werror"])
        .arg(&text)
        .arg("-o")
        .arg(&program)
        .args(["-lze_loader", "-ldl"])
        .output()
        .expect("gcc runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let run =
        Command::new(&program).env("ZE_ENABLE_ALT_DRIVERS", library()).output().expect("it runs");
    assert!(run.status.success(), "{:?} {}", run.status, String::from_utf8_lossy(&run.stderr));
    String::from_utf8(run.stdout).unwrap()
}

#[test]
fn ze_init_through_the_installed_loader_reaches_the_driver() {
    // The driver's own table is queried first, since the loader has no equal one.
    let source = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <level_zero/ze_api.h>
#include <level_zero/ze_ddi.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    void *library = dlopen(getenv("ZE_ENABLE_ALT_DRIVERS"), RTLD_NOW);
    if (!library) return 2;
    ze_pfnGetGlobalProcAddrTable_t get =
        (ze_pfnGetGlobalProcAddrTable_t)dlsym(library, "zeGetGlobalProcAddrTable");
    ze_global_dditable_t table;
    if (!get || get(ZE_API_VERSION_CURRENT, &table)) return 3;
    printf("%x %x\n", table.pfnInit(0), zeInit(0));
    return 0;
}
"#;
    let output = with_loader("init", source);
    let (own, through) = output.trim().split_once(' ').unwrap();
    assert_eq!(own, through);
    let uninitialized = format!("{:x}", ze_result_t::ZE_RESULT_ERROR_UNINITIALIZED.0);
    assert_ne!(through, uninitialized, "that is what the loader says without a driver");
}

#[test]
fn the_library_stays_when_its_last_user_closes_it() {
    // Loader 1.8 closes a driver whose zeInit failed, but still calls through its table.
    let source = r#"
#include <dlfcn.h>
#include <level_zero/ze_ddi.h>
#include <stdlib.h>
int main(void) {
    void *library = dlopen(getenv("ZE_ENABLE_ALT_DRIVERS"), RTLD_NOW);
    ze_pfnGetGlobalProcAddrTable_t get =
        (ze_pfnGetGlobalProcAddrTable_t)dlsym(library, "zeGetGlobalProcAddrTable");
    ze_global_dditable_t table;
    dlclose(library);
    return get(ZE_API_VERSION_CURRENT, &table);
}
"#;
    with_loader("close", source);
}

#[test]
fn tables_of_the_installed_headers_have_the_length_that_is_written() {
    let groups = ["ze", "zet", "zes"];
    let mut source = String::from("#include <stdio.h>\n");
    for group in groups {
        source +=
            &format!("#include <level_zero/{group}_api.h>\n#include <level_zero/{group}_ddi.h>\n");
    }
    source += "int main(void) {\nprintf(\"version %d\\n\", (int)ZE_API_VERSION_CURRENT);\n";
    for group in groups {
        let path = format!("/usr/include/level_zero/{group}_ddi.h");
        let header = std::fs::read_to_string(path).unwrap_or_default();
        for table in tables::all() {
            let Some(at) = header.find(&format!("\n{}(", table.getter)) else { continue };
            let structure =
                header[at..].lines().find(|line| line.contains("_dditable_t*")).unwrap();
            let structure = structure.trim().split('*').next().unwrap();
            source += &format!(
                "printf(\"{} %d\\n\", (int)(sizeof({structure}) / sizeof(void*)));\n",
                table.getter
            );
        }
    }
    source += "return 0; }\n";
    let output = with_loader("tables", &source);
    let mut lines = output.lines().map(|line| line.split_once(' ').unwrap());
    let version: u32 = lines.next().unwrap().1.parse().unwrap();
    let mut compared = 0;
    for (getter, length) in lines {
        let table = tables::all().find(|table| table.getter == getter).unwrap();
        let length: usize = length.parse().unwrap();
        assert_eq!(table.entries_at(version).count(), length, "{getter} at {version:#x}");
        compared += 1;
    }
    assert!(compared > 50, "only {compared} tables compared");
}
