// SPDX-License-Identifier: MIT OR Apache-2.0
//! Injected faults of the driver: the random programs find each of them.
//!
//! The faults are a patch, tests/mutants/driver/faults.patch, that is applied to a copy of the tree.
//! The changed crates are rebuilt, in a folder that is kept, when the tree has changed. Each fault gets
//! a process, since it is chosen once, and may hang it.

use std::env;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use tally_tests::faults::{Fault, VARIABLE};
use tally_tests::model::Model;
use tally_tests::program::generate::{Shape, from_seed};
use tally_tests::program::run::run;
use tally_tests::ze_backend::{Driver, HANG_VARIABLE, partner};

/// The number of programs in which a fault must show.
const PROGRAMS: u64 = 1500;
/// The number of runs of a program, since schedules differ.
const RUNS: u32 = 3;
/// A process that takes longer for one program hangs in a call.
const LIMIT: Duration = Duration::from_secs(60);
/// Hangs are expected with a fault: a wait that takes this long counts as one, in ms.
const HANG: &str = "3000";
/// The number of processes that run at a time.
const AT_ONCE: usize = 4;

/// Faults that the driver can have; the others are only the toy driver's.
const FAULTS: [Fault; 27] = [
    Fault::WaitDropped,
    Fault::BaseOffByOne,
    Fault::BarrierIgnored,
    Fault::SlotZeroed,
    Fault::WaitBoundToEarlierExecution,
    Fault::SignalBeforeWork,
    Fault::DeviceResetIgnored,
    Fault::HostResetIgnored,
    Fault::RecordedKeepsState,
    Fault::UnsubmittedIsMet,
    Fault::ExecutionKeepsState,
    Fault::InOrderIgnored,
    Fault::FenceEarly,
    Fault::ReservedNotRetired,
    Fault::AggregateReplaced,
    Fault::IncrementStored,
    Fault::WordWaitElided,
    Fault::CloneKeepsCounter,
    Fault::CloneKeepsState,
    Fault::AppendedListsUnordered,
    Fault::AppendedListsIgnoreWaits,
    Fault::UnorderedListsSignalEarly,
    Fault::HostFunctionNotAwaited,
    Fault::TimestampsShared,
    Fault::RegularTimesLost,
    Fault::OpenedIsMet,
    Fault::SharedSignalUnheard,
];

/// Builds the driver with faults.
fn library() -> PathBuf {
    if let Some(file) = env::var_os("TALLY_FAULTY_LIBRARY") {
        return file.into();
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("faults");
    let (tree, fresh, build) = (folder.join("tree"), folder.join("fresh"), folder.join("build"));
    patched_tree(&fresh);
    replace(&fresh, &tree).expect("the folder is ours");
    if !build.exists() {
        take_dependencies(&build.join("debug")).expect("the target folder can be read");
    }
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--workspace", "--lib", "--features", "tally-umd/faults"])
        .arg("--target-dir")
        .arg(&build)
        .current_dir(&tree)
        .status();
    assert!(built.expect("cargo runs").success(), "the driver with faults does not build");
    build.join("debug/libze_tally.so")
}

/// Copies the build of this program's driver, so that only the driver itself is rebuilt. Cargo compares
/// file times to decide that the rest is up to date.
fn take_dependencies(to: &Path) -> io::Result<()> {
    let from = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("debug");
    let mut files: Vec<PathBuf> = [".fingerprint", "build"].map(|name| from.join(name)).into();
    for entry in fs::read_dir(from.join("deps"))? {
        let path = entry?.path();
        let library = path.extension().is_some_and(|end| {
            ["rlib", "rmeta", "so", "d"].contains(&end.to_str().unwrap_or_default())
        });
        if library {
            files.push(path);
        }
    }
    fs::create_dir_all(to.join("deps"))?;
    let copy = |files: &[PathBuf], to: &Path| {
        let copied = Command::new("cp").arg("-a").args(files).arg(to).status()?;
        copied.success().then_some(()).ok_or_else(|| io::Error::other("cp failed"))
    };
    copy(&files[..2], to)?;
    copy(&files[2..], &to.join("deps"))
}

/// Copies the project's files and applies the faults.
fn patched_tree(folder: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    if folder.exists() {
        fs::remove_dir_all(folder).expect("the folder is ours");
    }
    copy(root, folder).expect("the project can be read, and the folder is ours");
    let patch = File::open(root.join("tests/mutants/driver/faults.patch")).expect("it is there");
    let patched = Command::new("patch").args(["-p1", "-s", "-d"]).arg(folder).stdin(patch).status();
    assert!(patched.expect("patch runs").success(), "the patch with the faults does not apply");
}

/// Copies a folder with its times, except build products and hidden files.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == "target" || name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let (from, to) = (entry.path(), to.join(&name));
        if entry.file_type()?.is_dir() {
            copy(&from, &to)?;
        } else {
            fs::copy(&from, &to)?;
            take_time(&from, &to)?;
        }
    }
    take_time(from, to)
}

fn take_time(from: &Path, to: &Path) -> io::Result<()> {
    File::open(to)?.set_modified(fs::metadata(from)?.modified()?)
}

/// Makes a folder equal to another one. Equal files keep their times, so that unchanged ones are not
/// rebuilt.
fn replace(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(to)? {
        let old = entry?;
        if from.join(old.file_name()).exists() {
            continue;
        }
        match old.file_type()?.is_dir() {
            true => fs::remove_dir_all(old.path())?,
            false => fs::remove_file(old.path())?,
        }
    }
    for entry in fs::read_dir(from)? {
        let new = entry?;
        let (from, to) = (new.path(), to.join(new.file_name()));
        if new.file_type()?.is_dir() {
            replace(&from, &to)?;
        } else if fs::read(&to).ok().as_deref() != Some(&fs::read(&from)?) {
            fs::copy(&from, &to)?;
            take_time(&from, &to)?;
        }
    }
    take_time(from, to)
}

/// The device that the programs run on.
#[derive(Clone, Copy)]
enum Device {
    /// The usual environment.
    Usual,
    /// The adversarial one (docs/chaos.md), which runs unordered work in any order. How much of that
    /// the usual one shows depends on the timing.
    Adversarial,
}

/// Starts a process that runs the programs with the given fault.
fn start(library: &Path, fault: Option<Fault>, device: Device) -> Child {
    let program = env::current_exe().expect("Linux knows the program's file");
    let mut child = Command::new(program);
    child
        .args(["--exact", "child", "--ignored", "--nocapture"])
        .env("TALLY_LIBRARY", library)
        .env(VARIABLE, fault.map_or("", Fault::name));
    if fault.is_some() {
        child.env(HANG_VARIABLE, HANG);
    }
    match device {
        Device::Usual => child.env_remove("TALLY_CHAOS"),
        Device::Adversarial => child.env("TALLY_CHAOS", "1"),
    };
    child.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a process starts")
}

/// The status with which the process ended; `None` if it hung and was killed.
fn finish(mut child: Child) -> Option<ExitStatus> {
    let output = BufReader::new(child.stdout.take().expect("piped"));
    let (sender, lines) = channel();
    thread::spawn(move || {
        // After the process is killed there is no receiver any more.
        let _ = output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line));
    });
    loop {
        match lines.recv_timeout(LIMIT) {
            Ok(_) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Some(child.wait().expect("the process is ours"));
            }
            Err(RecvTimeoutError::Timeout) => {
                // It may end at this moment by itself; then there is nothing to kill.
                let _ = child.kill();
                child.wait().expect("the process is ours");
                return None;
            }
        }
    }
}

/// The faults that do not show in the programs on a device. Several processes run at a time, because
/// most of the time goes into waiting for one that hangs.
fn hidden(library: &Path, faults: &[Fault], device: Device) -> Vec<Fault> {
    let next = AtomicUsize::new(0);
    let search = || {
        let mut hidden = Vec::new();
        while let Some(&fault) = faults.get(next.fetch_add(1, Relaxed)) {
            if passes(library, Some(fault), device) {
                hidden.push(fault);
            }
        }
        hidden
    };
    thread::scope(|scope| {
        let searches: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(search)).collect();
        searches.into_iter().flat_map(|search| search.join().expect("it does not panic")).collect()
    })
}

/// Whether no difference shows with a fault, or without one.
fn passes(library: &Path, fault: Option<Fault>, device: Device) -> bool {
    finish(start(library, fault, device)).is_some_and(|status| status.success())
}

/// Each fault shows in the programs on one of the two devices, and without a fault nothing does.
#[test]
fn every_mistake_is_found() {
    let library = library();
    assert!(passes(&library, None, Device::Usual), "something shows without a mistake");
    let left = hidden(&library, &FAULTS, Device::Usual);
    if left.is_empty() {
        return;
    }
    assert!(passes(&library, None, Device::Adversarial), "something shows there without a mistake");
    let left = hidden(&library, &left, Device::Adversarial);
    assert!(left.is_empty(), "not found: {left:?}");
}

/// The body of the processes.
#[test]
#[ignore = "runs in a child process"]
fn child() {
    for seed in 0..PROGRAMS {
        // This shows that the process makes progress.
        println!("program {seed}");
        let program = from_seed(Shape::default(), seed);
        let model = Model::of(&program).expect("generated programs are valid");
        let expected = model.expected().expect("generated programs end");
        for _ in 0..RUNS {
            if let Err(mismatch) = run(&program, &expected, &Driver::new()) {
                println!("program {seed}: {mismatch}");
                // Nothing is cleaned up: the driver may be stuck.
                std::process::exit(1);
            }
        }
    }
}

/// The other process of programs that share events.
#[test]
#[ignore = "runs in a child process"]
fn partner() {
    partner::serve();
}
