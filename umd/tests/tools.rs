// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the programs tally-info and tally-run, started as users start them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const TRIPLET: &str = "x86_64-linux-gnu";

fn info(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally-info"));
    // A test must not touch the user's cache.
    command.env("TALLY_CACHE", "0");
    command.env_remove("ZE_AFFINITY_MASK").args(arguments).envs(environment.iter().copied());
    command.output().expect("tally-info starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn info_says_what_settings_make_of_the_device() {
    let output = info(
        &[],
        &[("TALLY_COMPUTE_ENGINES", "3"), ("TALLY_WORKERS", "5"), ("TALLY_MEMORY", "1536")],
    );
    assert!(output.status.success() && output.stderr.is_empty(), "{}", stderr(&output));
    let text = stdout(&output);
    let value = |name: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with(name));
        line.and_then(|line| line.get(46..)).unwrap_or_else(|| panic!("no {name} in\n{text}"))
    };
    assert_eq!(value("Devices"), "1");
    assert_eq!(value("Name"), "Tally");
    assert_eq!(value("Cache of kernels"), "off (TALLY_CACHE=0)");
    assert_eq!(value("Level Zero API"), "1.17");
    assert_eq!(value("Execution units"), "5");
    assert_eq!(value("Largest allocation"), "1610612736 (1.50 GiB)");
    assert!(value("Queue groups").starts_with("#0: 3 queues, compute, copy"));
    assert!(value("Lane").starts_with("embedded"));
    assert!(text.contains("ZEX_counter_based_event 1.0"));
}

// docs/settings.md: "`tally-info` says where it is and how full"
#[test]
fn info_says_where_kernels_are_kept() {
    let folder = std::env::temp_dir().join(format!("tally-info-cache-{}", std::process::id()));
    let xdg = folder.to_str().expect("UTF-8");
    let says = |variables: &[(&str, &str)]| {
        let all = [&[("TALLY_CACHE", "1"), ("XDG_CACHE_HOME", xdg)], variables].concat();
        let text = stdout(&info(&[], &all));
        let line = text.lines().find_map(|line| line.trim_start().strip_prefix("Cache of kernels"));
        line.unwrap_or_else(|| panic!("nothing in {text}")).trim().to_owned()
    };
    let program = folder.join("tally-compiler");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(&program, "#!/bin/sh\n").expect("a file");
    let compiler = ("TALLY_COMPILER", program.to_str().expect("UTF-8"));
    assert_eq!(says(&[compiler]), format!("{xdg}/tally/kernels, 0 of 1024 MiB"));
    let hash = "0123456789abcdef0123456789abcdef";
    let kept = folder.join("tally/kernels").join(format!("{hash}.info"));
    fs::write(kept, vec![0; 3 << 20]).expect("a file");
    let small = ("TALLY_CACHE_MAX", "7");
    assert_eq!(says(&[compiler, small]), format!("{xdg}/tally/kernels, 3 of 7 MiB"));
    let mode =
        fs::metadata(folder.join("tally/kernels")).expect("it was made").permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "what it holds is run as code");
    let no_folder = ("TALLY_CACHE_DIR", program.to_str().expect("UTF-8"));
    assert!(says(&[compiler, no_folder]).starts_with("off ("));
    fs::remove_dir_all(folder).expect("it is ours");
}

// docs/commands.md: "--json"
#[test]
fn info_answers_programs_in_json() {
    let json = |environment: &[(&str, &str)]| -> serde_json::Value {
        let output = info(&["--json"], environment);
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let info = json(&[("TALLY_SUBDEVICES", "2"), ("TALLY_WORKERS", "6"), ("TALLY_MEMORY", "64")]);
    let driver = &info["drivers"][0];
    assert_eq!(driver["name"], "Tally");
    assert_eq!(driver["api_version"], "1.17");
    let device = &driver["devices"][0];
    assert_eq!((&device["execution_units"], &device["lane"]), (&6.into(), &"embedded".into()));
    assert_eq!(device["memories"][0]["bytes"], 64 << 20);
    assert_eq!(device["subdevices"].as_array().map(Vec::len), Some(2));
    assert_eq!(device["subdevices"][1]["subdevices"], serde_json::json!([]));
    assert_eq!(json(&[("ZE_AFFINITY_MASK", "1")])["drivers"][0]["devices"], serde_json::json!([]));
}

#[test]
fn info_lists_names_and_shows_no_hidden_device() {
    let text = stdout(&info(&["--list"], &[]));
    assert_eq!(text, "Driver #0: Tally\n `-- Device #0: Tally virtual GPU\n");
    let text = stdout(&info(&["-l"], &[("ZE_AFFINITY_MASK", "1")]));
    assert_eq!(text, "Driver #0: Tally\n");
}

// docs/kernel-lane.md: "with `drm` and no node there is no device"
#[test]
fn info_says_what_the_kernel_lane_lacks() {
    if Path::new("/dev/dri").exists() {
        return;
    }
    let output = info(&[], &[("TALLY_LANE", "drm")]);
    assert!(!output.status.success() && output.stdout.is_empty());
    let text = stderr(&output);
    assert!(
        text.contains("UNINITIALIZED") && text.contains("/dev/dri has no render node"),
        "{text}"
    );
}

#[test]
fn info_refuses_what_it_does_not_know() {
    let output = info(&["--all"], &[]);
    assert!(!output.status.success() && output.stdout.is_empty());
    assert!(stderr(&output).contains("--all"));
}

/// tally-run as it is installed: in a `bin` folder, with the driver in `lib` beside it.
struct Installed {
    top: PathBuf,
}

impl Installed {
    fn new(name: &str) -> Self {
        let top = std::env::temp_dir().join(format!("tally-run-{name}-{}", std::process::id()));
        let it = Self { top };
        it.file("lib/libze_tally.so", "");
        fs::create_dir_all(it.top.join("bin")).expect("a folder");
        // Copied by a separate process: a file that this process writes is open in the children that other
        // tests start meanwhile, and cannot be executed until they have closed it.
        let mut copy = Command::new("cp");
        copy.arg(env!("CARGO_BIN_EXE_tally-run")).arg(it.top.join("bin/tally-run"));
        assert!(copy.status().expect("cp is there").success());
        it
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.top.join(name);
        fs::create_dir_all(path.parent().expect("a name")).expect("a folder");
        fs::write(&path, text).expect("a file");
        path
    }

    fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.file(name, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        path
    }

    /// Makes a folder with a loader that has only this function.
    fn loader(&self, function: &str) -> PathBuf {
        let source = self.file(&format!("{function}.c"), &format!("void {function}(void) {{}}\n"));
        let folder = self.top.join(function);
        fs::create_dir_all(&folder).expect("a folder");
        let mut cc = Command::new("cc");
        cc.arg("-shared").arg("-o").arg(folder.join("libze_loader.so.1")).arg(source);
        assert!(cc.status().expect("cc is there: it links this test").success());
        folder
    }

    /// Makes the files that scripts/loaders leaves of a suite; returns the folder of its libraries.
    fn unpack(&self, suite: &str) -> PathBuf {
        let libraries = format!("cache/loaders/{suite}/root/usr/lib/{TRIPLET}");
        for name in ["libc.so.6", "libze_loader.so.1", "ld-linux-x86-64.so.2"] {
            self.file(&format!("{libraries}/{name}"), "");
        }
        self.top.join(libraries)
    }

    fn run(&self, arguments: &[&str], libraries: &Path) -> Output {
        let mut command = Command::new(self.top.join("bin/tally-run"));
        command
            .args(arguments)
            .env("TALLY_SCRIPTS_CACHE", self.top.join("cache"))
            .env("LD_LIBRARY_PATH", libraries);
        command.output().expect("tally-run starts")
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.top);
    }
}

#[test]
fn run_becomes_the_program_with_tally_as_its_driver() {
    let it = Installed::new("becomes");
    let new = it.loader("zeInitDrivers");
    let script = "echo \"$ZE_ENABLE_ALT_DRIVERS $*\"; exit 7";
    let output = it.run(&["sh", "-c", script, "sh", "--loader", "a b"], &new);
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    let text = stdout(&output);
    let (driver, rest) = text.split_once(' ').expect("two words");
    let expected = it.top.join("lib/libze_tally.so").canonicalize().expect("it is there");
    assert_eq!(Path::new(driver), expected);
    assert_eq!(rest, "--loader a b\n", "what follows the program is the program's");
}

// docs/clients.md: "`tally-run --as NAME` (`TALLY_DEVICE_AS=NAME`)"
#[test]
fn run_names_the_gpu_to_pass_for() {
    let it = Installed::new("passes");
    let new = it.loader("zeInitDrivers");
    let output = it.run(&["--as", "arc-b580", "sh", "-c", "echo $TALLY_DEVICE_AS"], &new);
    assert_eq!(stdout(&output), "arc-b580\n", "{}", stderr(&output));
    let output = it.run(&["--as", "b580", "true"], &new);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("uhd-630, uhd-770, arc-a770, arc-b580, max-1100"));
    let known: Vec<&str> = ze_tally::identity::ALL.iter().map(|it| it.key).collect();
    assert_eq!(known, tally_cli::run::IDENTITIES, "the driver knows the same");
    let text = stdout(&info(&["--list"], &[("TALLY_DEVICE_AS", "arc-b580")]));
    assert_eq!(text, "Driver #0: Tally\n `-- Device #0: Intel(R) Arc(TM) B580 Graphics\n");
}

#[test]
fn run_says_what_cannot_be_started() {
    let it = Installed::new("refuses");
    let new = it.loader("zeInitDrivers");
    let plain = it.file("no-program", "text");
    let code = |arguments: &[&str]| it.run(arguments, &new).status.code();
    assert_eq!(code(&[]), Some(2));
    assert_eq!(code(&["--what", "true"]), Some(2));
    assert_eq!(code(&["there-is-no-such-program"]), Some(127));
    assert_eq!(code(&[plain.to_str().expect("UTF-8")]), Some(127));
    assert_eq!(code(&["--loader", "sid", "true"]), Some(126), "it is not unpacked");
    assert_eq!(code(&["--loader", "/there/is/no/such/folder", "true"]), Some(126));
    fs::remove_file(it.top.join("lib/libze_tally.so")).expect("it is ours");
    let output = it.run(&["true"], &new);
    assert_eq!(output.status.code(), Some(126));
    assert!(stderr(&output).contains("libze_tally.so"));
}

#[test]
fn run_takes_an_unpacked_loader_only_where_the_systems_does_not_do() {
    let it = Installed::new("chooses");
    let (old, new) = (it.loader("zeInit"), it.loader("zeInitDrivers"));
    // The dynamic linker does not search further after a broken library.
    let broken = it.file("broken/libze_loader.so.1", "").parent().map(Path::to_owned);
    let broken = broken.expect("it lies in a folder");
    let python = it.script("python3", "");
    let sycl = it.script("sycl", "needs libsycl.so.9\0");
    let plain = it.script("plain", "");
    let print = |program: &Path, libraries: &Path| {
        stdout(&it.run(&["--print", program.to_str().expect("UTF-8")], libraries))
    };
    // SYCL would crash with an old one; users who know better can say so.
    for program in [&python, &sycl] {
        let program = program.to_str().expect("UTF-8");
        let output = it.run(&["--print", program], &old);
        assert_eq!(output.status.code(), Some(126));
        assert!(stderr(&output).contains("older than SYCL needs"), "{}", stderr(&output));
        let output = it.run(&["--loader=system", "--print", program], &old);
        assert!(output.status.success() && !stdout(&output).contains("ld-linux"));
    }
    assert_eq!(it.run(&["true"], &broken).status.code(), Some(126));
    let trixie = it.unpack("trixie");
    assert!(print(&python, &old).contains(trixie.to_str().expect("UTF-8")));
    let sid = it.unpack("sid");
    for (program, libraries, unpacked) in [
        (&python, &old, true),
        (&sycl, &old, true),
        (&plain, &old, false),
        (&plain, &broken, true),
        (&python, &new, false),
        (&sycl, &new, false),
    ] {
        let said = print(program, libraries);
        let linker = sid.join("ld-linux-x86-64.so.2");
        assert_eq!(said.contains(linker.to_str().expect("UTF-8")), unpacked, "{said}");
        assert!(said.contains(&program.display().to_string()), "{said}");
    }
}

/// The Python package has a loader in the driver's folder.
#[test]
fn run_takes_the_loader_beside_the_driver_where_the_systems_does_not_do() {
    let it = Installed::new("beside");
    let (old, new) = (it.loader("zeInit"), it.loader("zeInitDrivers"));
    let python = it.script("python3", "");
    let (python, plain) = (python.to_str().expect("UTF-8"), it.script("plain", ""));
    let plain = plain.to_str().expect("UTF-8");
    it.unpack("sid");
    let lib = it.top.join("lib").canonicalize().expect("it is there");
    let first = format!("LD_LIBRARY_PATH={}:", lib.display());
    let takes = |arguments: &[&str], libraries: &Path| {
        let output = it.run(&[&["--print"], arguments].concat(), libraries);
        stdout(&output).contains(&first)
    };
    assert!(!takes(&[python], &old), "there is none");
    assert_eq!(it.run(&["--loader", "tally", python], &old).status.code(), Some(126));
    fs::copy(new.join("libze_loader.so.1"), lib.join("libze_loader.so.1")).expect("a file");
    assert!(takes(&[python], &old), "it needs no other C library, as the unpacked one does");
    assert!(takes(&[plain], &old), "it may start a Python");
    assert!(!takes(&[python], &new) && !takes(&[plain], &new), "the system's does");
    assert!(takes(&["--loader", "tally", plain], &new));
}

/// A program's search path may name a folder with a loader, which the dynamic linker takes. Its layers have to be of the
/// same folder.
#[test]
fn run_takes_the_loader_that_a_program_brings() {
    let it = Installed::new("brings");
    let (old, new) = (it.loader("zeInit"), it.loader("zeInitDrivers"));
    let program = |name: &str, path: &str, sycl: bool| {
        let text = if sycl { "char needs[] = \"libsycl.so.9\";" } else { "" };
        let source =
            it.file(&format!("{name}.c"), &format!("{text}\nint main(void) {{ return 0; }}\n"));
        let program = it.top.join(name);
        let mut cc = Command::new("cc");
        cc.arg("-o").arg(&program).arg(source).arg(format!("-Wl,-rpath,{path}"));
        assert!(cc.status().expect("cc is there: it links this test").success());
        program.to_str().expect("UTF-8").to_owned()
    };
    let gets = |program: &str, libraries: &Path| {
        let output = it.run(&["--check-environment", "--json", program], libraries);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        json["program"]["gets_loader"]["file"].as_str().unwrap_or("none").to_owned()
    };
    let file = |folder: &Path| {
        let file = folder.join("libze_loader.so.1").canonicalize().expect("it is there");
        file.to_str().expect("UTF-8").to_owned()
    };
    let nothing = Path::new("");
    let beside = program("beside", "/there/is/none:$ORIGIN/zeInit", false);
    assert_eq!(gets(&beside, nothing), file(&old));
    assert_eq!(gets(&beside, &new), "the system's loader", "the library path comes first");
    let said = stdout(&it.run(&["--print", &beside], nothing));
    let folder = old.canonicalize().expect("it is there");
    assert!(said.contains(&format!("LD_LIBRARY_PATH={} ", folder.display())), "{said}");
    assert_ne!(gets(&program("without", "$ORIGIN", false), nothing), file(&old));
    assert_ne!(gets(&program("sycl-old", "$ORIGIN/zeInit", true), nothing), file(&old));
    let newer =
        format!("${{ORIGIN}}/{}", new.file_name().and_then(|it| it.to_str()).expect("UTF-8"));
    assert_eq!(gets(&program("sycl-new", &newer, true), nothing), file(&new));
}

#[test]
fn run_says_what_there_is_and_what_a_program_needs() {
    let it = Installed::new("checks");
    let (old, new) = (it.loader("zeInit"), it.loader("zeInitDrivers"));
    let python = it.script("python3", "");
    let (python, plain) = (python.to_str().expect("UTF-8"), it.script("plain", ""));
    let check = |program: &str, libraries: &Path| {
        let output = it.run(&["--check-environment", program], libraries);
        let text = stdout(&output);
        let row = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("no {name} in {text}")).trim().to_owned()
        };
        let system = row("system's loader");
        (output.status.code(), system, row("it needs"), row("it gets"))
    };
    let (code, system, needs, gets) = check(python, &old);
    assert_eq!((code, needs.as_str()), (Some(126), "1.20 or newer, for SYCL"));
    assert!(system.ends_with("libze_loader.so.1, too old for SYCL"), "{system}");
    assert!(gets.contains("scripts/loaders sid"), "{gets}");
    let (code, _, needs, gets) = check(plain.to_str().expect("UTF-8"), &old);
    assert_eq!(
        (code, needs.as_str(), gets.as_str()),
        (Some(0), "any loader", "the system's loader")
    );
    let (code, system, _, gets) = check(python, &new);
    assert_eq!((code, gets.as_str()), (Some(0), "the system's loader"));
    let file = new.join("libze_loader.so.1").canonicalize().expect("it is there");
    assert_eq!(Path::new(&system), file);
    let sid = it.unpack("sid");
    let (code, _, _, gets) = check(python, &old);
    assert_eq!(code, Some(0));
    assert_eq!(
        Path::new(&gets),
        sid.join("libze_loader.so.1").canonicalize().expect("it is there")
    );
    let json = it.run(&["--check-environment", "--json", python], &old);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!((&json["works"], &json["tally_loader"]), (&true.into(), &serde_json::Value::Null));
    assert_eq!(json["system_loader"]["new_enough_for_sycl"], false);
    assert_eq!(json["program"]["gets_loader"]["file"], gets.as_str());
    let output = it.run(&["--check-environment"], &old);
    assert!(output.status.success() && stdout(&output).contains("libze_tally.so"));
    assert_eq!(it.run(&["--check-environment", "no-such-program"], &old).status.code(), Some(126));
}

#[test]
fn run_starts_a_scripts_interpreter_itself_under_another_dynamic_linker() {
    let it = Installed::new("scripts");
    let sid = it.unpack("sid");
    let inner = it.script("python3", "");
    let script = it.script("tool", &format!("#!{} -u\n", inner.display()));
    let sh = it.script("other", "#!/usr/bin/env sh\n");
    let none = Path::new("");
    let said =
        stdout(&it.run(&["--loader=sid", "--print", script.to_str().expect("UTF-8"), "x"], none));
    let paths = format!("{0}:{0}", sid.display());
    let words = format!("--library-path {paths} {} -u {} x\n", inner.display(), script.display());
    assert!(said.ends_with(&words), "{said}");
    let said = stdout(&it.run(&["--loader=sid", "--print", sh.to_str().expect("UTF-8")], none));
    assert!(said.ends_with(&format!("/sh {}\n", sh.display())), "{said}");
}

/// A program may open the system's loader by its full name, as pyzes does.
#[test]
fn run_gives_the_newer_loader_to_a_program_that_opens_the_systems_by_its_full_name() {
    let it = Installed::new("full-name");
    let sid = it.unpack("sid");
    let link = |from: &Path, to: PathBuf| {
        fs::remove_file(&to).expect("a file of the test's");
        symlink(from, to).expect("its folder is there");
    };
    // This system's own dynamic linker is sufficient.
    link(Path::new("/lib64/ld-linux-x86-64.so.2"), sid.join("ld-linux-x86-64.so.2"));
    link(Path::new("/lib/x86_64-linux-gnu/libc.so.6"), sid.join("libc.so.6"));
    let newer = it.loader("inNoSystemsLoader").join("libze_loader.so.1");
    link(&newer, sid.join("libze_loader.so.1"));
    let driver = std::env::current_exe().expect("it runs").with_file_name("libze_tally.so");
    link(&driver, it.top.join("lib/libze_tally.so"));
    let source = it.file(
        "opens.c",
        r#"
        #include <dlfcn.h>
        #include <stddef.h>
        int main(void) {
            void *loader = dlopen("/usr/lib/x86_64-linux-gnu/libze_loader.so.1", RTLD_NOW);
            return loader != NULL && dlsym(loader, "inNoSystemsLoader") != NULL ? 42 : 1;
        }"#,
    );
    let program = it.top.join("opens");
    let mut cc = Command::new("cc");
    cc.arg("-o").arg(&program).arg(source).arg("-ldl");
    assert!(cc.status().expect("cc is there: it links this test").success());
    let output = it.run(&["--loader=sid", program.to_str().expect("UTF-8")], Path::new(""));
    assert_eq!(output.status.code(), Some(42), "{}", stderr(&output));
}

#[test]
fn run_puts_a_folder_before_the_library_path() {
    let it = Installed::new("folder");
    let (old, new) = (it.loader("zeInit"), it.loader("zeInitDrivers"));
    let new = new.canonicalize().expect("it is there");
    let arguments = ["--loader", new.to_str().expect("UTF-8"), "sh", "-c", "echo $LD_LIBRARY_PATH"];
    let said = stdout(&it.run(&arguments, &old));
    assert_eq!(said, format!("{}:{}\n", new.display(), old.display()));
}
