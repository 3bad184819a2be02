// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cache on disk: a module that any process has built does not start a compiler again; damage,
//! other options and folders of other users do no harm.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tally_tests::check;
use tally_tests::ze::{self, Gpu};
use tally_ze::*;

const FLAGS: &str = "TALLY_TEST_FLAGS";

/// A folder with a compiler that logs each of its starts.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tally-cache-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("a temporary folder can be made");
        // The loader passes the driver's compiler to children, so it has to be opened.
        let _gpu = Gpu::new();
        let real = std::env::var("TALLY_COMPILER").expect("the tests name the compiler");
        let script =
            format!("#!/bin/sh\necho started >> '{0}/starts'\nexec '{real}'\n", dir.display());
        let program = dir.join("compiler");
        fs::write(&program, script).expect("our own folder");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("our own file");
        Self(dir)
    }

    fn cache(&self) -> PathBuf {
        self.0.join("cache")
    }

    /// Makes a child build and run; returns how often a compiler was started until now.
    fn run(&self, flags: &str) -> usize {
        self.run_with(&[("TALLY_CACHE_DIR", text(&self.cache())), (FLAGS, flags)])
    }

    /// Does the same with these variables, which set the cache's folder.
    fn run_with(&self, variables: &[(&str, &str)]) -> usize {
        let compiler = self.0.join("compiler");
        let cache_is_on = [("TALLY_COMPILER", text(&compiler)), ("TALLY_CACHE", "1")];
        ze::in_child("child_that_builds", &[&cache_is_on, variables].concat());
        self.starts()
    }

    fn starts(&self) -> usize {
        fs::read_to_string(self.0.join("starts")).map_or(0, |text| text.lines().count())
    }

    fn files(&self) -> Vec<PathBuf> {
        let folder = fs::read_dir(self.cache()).into_iter().flatten().flatten();
        let mut files: Vec<_> = folder.map(|entry| entry.path()).collect();
        files.sort();
        files
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("it is ASCII")
}

/// Whether this user may do everything, so that file modes do not restrict it.
fn is_root() -> bool {
    // SAFETY: takes nothing.
    unsafe { libc::geteuid() == 0 }
}

impl Drop for Place {
    fn drop(&mut self) {
        // If something stays, that is no failure.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_builds() {
    let gpu = Gpu::new();
    let source = "constant uint table[4] = {1, 2, 3, 5}; global uint sum;
        kernel void fill(global uint *out) { out[get_global_id(0)] = table[get_global_id(0)]; }
        kernel void other(uint x) { sum += x; }";
    let flags = std::env::var(FLAGS).unwrap_or_default();
    let module = gpu.module(&ze::spirv_from(source), &flags).expect("it is valid");
    let kernel = gpu.kernel(module, "fill");
    let out = gpu.host::<u32>(4);
    let address = out.address();
    let desc = ze_command_queue_desc_t {
        mode: ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS,
        ..Default::default()
    };
    let mut list = ze_command_list_handle_t::NULL;
    check!(zeCommandListCreateImmediate(gpu.context, gpu.device, &raw const desc, &raw mut list));
    check!(zeKernelSetGroupSize(kernel, 4, 1, 1));
    check!(zeKernelSetArgumentValue(kernel, 0, 8, (&raw const address).cast()));
    let one = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
    let (none, nothing) = (ze_event_handle_t::NULL, std::ptr::null_mut());
    check!(zeCommandListAppendLaunchKernel(list, kernel, &raw const one, none, 0, nothing));
    assert_eq!(out.to_vec(), [1, 2, 3, 5]);
}

/// "the cache on request keyed by content, options, CPU and version"
#[test]
fn what_was_built_once_is_not_built_again() {
    let place = Place::new("again");
    assert_eq!(place.run(""), 1);
    assert_eq!(place.files().len(), 2, "what the module offers, and the kernel that was created");
    assert_eq!(place.run(""), 1, "all of it was there");
    assert_eq!(place.run("-ze-opt-disable"), 2, "other options, other code");
    assert_eq!(place.files().len(), 4);
    assert_eq!(place.run("-ze-opt-disable"), 2);
    let idle = "-ze-opt-greater-than-4GB-buffer-required -cl-std=CL2.0";
    assert_eq!(place.run(idle), 2, "flags without effect");
    assert_eq!(place.run(&format!("{idle} -ze-opt-disable")), 2);
    assert_eq!(place.files().len(), 4);
}

/// "safe with many processes and damaged files"
#[test]
fn damaged_files_are_built_anew() {
    let place = Place::new("damage");
    place.run("");
    for (i, file) in place.files().into_iter().enumerate() {
        let whole = fs::read(&file).expect("it was listed");
        for (j, bytes) in
            [&whole[..whole.len() / 2], &[], b"not a module at all"].iter().enumerate()
        {
            fs::write(&file, bytes).expect("our own file");
            let starts = place.run("");
            assert_eq!(starts, 2 + 3 * i + j, "{}", file.display());
            assert_eq!(fs::read(&file).expect("it is there again").len(), whole.len());
        }
    }
}

/// Valid files under other modules' names are not used for those modules: each contains its module's
/// identity.
#[test]
fn files_under_the_names_of_others_are_built_anew() {
    let place = Place::new("swapped");
    assert_eq!(place.run(""), 1);
    let first = place.files();
    assert_eq!(place.run("-ze-opt-disable"), 2);
    let (mut second, mut starts) = (place.files(), 2);
    second.retain(|file| !first.contains(file));
    assert_eq!((first.len(), second.len()), (2, 2));
    for (of_first, of_second) in first.iter().zip(&second) {
        fs::copy(of_second, of_first).expect("our own folder");
        starts += 1;
        assert_eq!(place.run(""), starts, "{}", of_first.display());
        assert_eq!(place.run(""), starts, "the right file has taken its place");
    }
    assert_eq!(place.run("-ze-opt-disable"), starts, "and the other module's are as they were");
}

#[test]
fn many_processes_share_the_cache() {
    let place = Place::new("many");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| place.run(""));
        }
    });
    let starts = place.run("");
    assert_eq!(place.run(""), starts, "the last ones found it");
    let left = place.files();
    assert_eq!(left.len(), 2, "no writer left anything: {left:?}");
}

/// Files in the folder are run as code, so no file is used from a folder that other users may write to.
#[test]
fn a_folder_that_others_may_write_to_is_not_used() {
    let place = Place::new("others");
    fs::create_dir_all(place.cache()).expect("our own folder");
    fs::set_permissions(place.cache(), fs::Permissions::from_mode(0o777)).expect("our own folder");
    assert_eq!(place.run(""), 1);
    assert_eq!(place.files(), Vec::<PathBuf>::new());
    assert_eq!(place.run(""), 2);
}

/// "default: `tally/kernels` in `XDG_CACHE_HOME`, else in `~/.cache`"
#[test]
fn without_a_setting_the_cache_lies_where_the_user_keeps_caches() {
    let place = Place::new("home");
    let home = [("HOME", text(&place.0)), ("XDG_CACHE_HOME", ""), ("TALLY_CACHE_DIR", "")];
    assert_eq!((place.run_with(&home), place.run_with(&home)), (1, 1));
    let kernels = place.0.join(".cache/tally/kernels");
    assert_eq!(fs::read_dir(&kernels).expect("it was made").count(), 2);
    for folder in [&kernels, &place.0.join(".cache")] {
        let mode = fs::metadata(folder).expect("it was made").permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{}", folder.display());
    }
    for file in fs::read_dir(&kernels).expect("it is there").flatten() {
        assert_eq!(file.metadata().expect("it is there").permissions().mode() & 0o777, 0o600);
    }
    let xdg = place.0.join("xdg");
    let variables = [home[0], ("XDG_CACHE_HOME", text(&xdg)), home[2]];
    assert_eq!((place.run_with(&variables), place.run_with(&variables)), (2, 2));
    assert_eq!(fs::read_dir(xdg.join("tally/kernels")).expect("it was made").count(), 2);
}

/// "`0`: no kernels are kept"
#[test]
fn the_cache_can_be_turned_off() {
    let place = Place::new("off");
    let (cache, off) = (place.cache(), ("TALLY_CACHE", "0"));
    let variables = [("HOME", text(&place.0)), ("TALLY_CACHE_DIR", text(&cache)), off];
    assert_eq!((place.run_with(&variables), place.run_with(&variables)), (1, 2));
    assert!(!cache.exists() && !place.0.join(".cache").exists());
}

/// A folder of another user's may contain anything.
#[test]
fn a_folder_of_somebody_elses_is_not_used() {
    let place = Place::new("foreign");
    let mut folder = PathBuf::from("/usr");
    if is_root() {
        // Files that this user has built, given to another user.
        assert_eq!(place.run(""), 1);
        folder = place.cache();
        std::os::unix::fs::chown(&folder, Some(65534), None).expect("root may");
    }
    let before = place.starts();
    let variables = [("TALLY_CACHE_DIR", text(&folder)), ("TALLY_LOG", "warn")];
    assert_eq!(place.run_with(&variables), before + 1, "nothing is read from it");
    assert_eq!(place.run_with(&variables), before + 2, "nothing is written to it");
}

/// Files that other users may have written are not run.
#[test]
fn files_that_others_may_write_to_are_built_anew() {
    let place = Place::new("files");
    assert_eq!(place.run(""), 1);
    for file in place.files() {
        let starts = place.starts();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("our own file");
        assert_eq!(place.run(""), starts + 1, "{}", file.display());
        assert_eq!(place.run(""), starts + 1, "another file has taken its place");
    }
}

/// A pipe in place of a file does not block the driver.
#[test]
fn what_is_no_file_holds_nothing() {
    let place = Place::new("pipe");
    assert_eq!(place.run(""), 1);
    for file in place.files() {
        fs::remove_file(&file).expect("our own file");
        let made = std::process::Command::new("mkfifo").args(["-m", "600"]).arg(&file).status();
        assert!(made.expect("mkfifo is there").success());
    }
    assert_eq!(place.run(""), 2);
    assert_eq!(place.run(""), 2, "files have taken their place");
}

/// A folder in which no file can be created.
#[test]
fn an_unwritable_folder_costs_the_cache_and_nothing_else() {
    let place = Place::new("unwritable");
    let cache = place.cache();
    assert_eq!(place.run(""), 1);
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o500)).expect("our own folder");
    assert_eq!(place.run(""), 1, "what it holds is good");
    let folder = if is_root() { Path::new("/proc/sys") } else { &cache };
    let variables = [("TALLY_CACHE_DIR", text(folder)), (FLAGS, "-ze-opt-disable")];
    assert_eq!((place.run_with(&variables), place.run_with(&variables)), (2, 3));
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o700)).expect("our own folder");
    let no_folder = place.0.join("starts");
    let below = no_folder.join("folder");
    for (i, folder) in [&no_folder, &below].into_iter().enumerate() {
        assert_eq!(place.run_with(&[("TALLY_CACHE_DIR", text(folder))]), 4 + i);
    }
}

/// On a full file system nothing is kept, and no partial files stay.
#[test]
#[ignore = "needs user namespaces"]
fn a_full_file_system_costs_the_cache_and_nothing_else() {
    let place = Place::new("full");
    let cache = place.cache();
    fs::create_dir_all(&cache).expect("our own folder");
    let compiler = place.0.join("compiler");
    // Two pages: for the folder itself, and for a file that is smaller than a kernel's.
    let script = format!(
        "mount -t tmpfs -o size=8k,mode=700 tmpfs '{0}' && head -c 100000 /dev/zero >'{0}/notes'; \
         \"$@\"; status=$?; ls -A '{0}'; exit $status",
        cache.display()
    );
    let command = ["unshare", "-rm", "sh", "-c", &script, "sh"];
    let variables = [
        ("TALLY_COMPILER", text(&compiler)),
        ("TALLY_CACHE", "1"),
        ("TALLY_CACHE_DIR", text(&cache)),
    ];
    for starts in 1..3 {
        let said = ze::in_child_under(&command, "child_that_builds", &variables);
        assert_eq!(place.starts(), starts);
        assert!(said.contains("notes") && !said.contains(".tmp"), "{said}");
    }
}

/// `TALLY_CACHE_MAX`: the entries that were not used for the longest time are removed.
#[test]
fn a_folder_that_is_too_large_loses_its_oldest_files() {
    let place = Place::new("large");
    assert_eq!(place.run(""), 1);
    let old: Vec<PathBuf> = (0..4)
        .map(|number| {
            let path = place.cache().join(format!("{number:032x}.0"));
            fs::write(&path, vec![0; 300 << 10]).expect("our own folder");
            let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1000 + number);
            let file = fs::File::options().write(true).open(&path).expect("our own file");
            file.set_modified(long_ago).expect("our own file");
            path
        })
        .collect();
    let cache = place.cache();
    let small = [("TALLY_CACHE_DIR", text(&cache)), ("TALLY_CACHE_MAX", "1")];
    place.run_with(&[&small[..], &[(FLAGS, "-ze-opt-disable")]].concat());
    let left: Vec<bool> = old.iter().map(|path| path.exists()).collect();
    assert_eq!(left, [false, false, true, true], "four fifths of 1 MiB are 819 KiB");
    assert_eq!(place.run_with(&small), 2, "what was built last is there");
}

/// docs/settings.md: "`TALLY_LOG=info` says where it is"
#[test]
fn the_log_says_where_the_cache_is() {
    let place = Place::new("log");
    let (cache, compiler) = (place.cache(), place.0.join("compiler"));
    let run = |level: &str, folder: &Path| {
        let variables = [
            ("TALLY_COMPILER", text(&compiler)),
            ("TALLY_CACHE", "1"),
            ("TALLY_CACHE_DIR", text(folder)),
            ("TALLY_LOG", level),
        ];
        ze::in_child("child_that_builds", &variables)
    };
    let kept = format!("kept in {}, up to 1024 MiB", cache.display());
    let said = run("info", &cache);
    assert!(said.contains(&kept), "{said}");
    let no_folder = place.0.join("starts");
    let said = run("warn", &no_folder);
    assert!(said.contains("the cache of kernels is off ("), "{said}");
}
