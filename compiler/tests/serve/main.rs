// SPDX-License-Identifier: MIT OR Apache-2.0
//! The compiler process, from the driver's side of the socket.

use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::OnceLock;

use tally_compiler_protocol::{
    CodeId, Compiler, CompilerError, Form, Input, Object, Source, TargetCpu,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tally-compiler");

/// The folder for files of the tests.
fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// The folder of the real program.
fn program_dir() -> Option<&'static Path> {
    Path::new(PROGRAM).parent()
}

/// SPIR-V of three kernels.
fn spirv() -> Vec<u8> {
    static SPIRV: OnceLock<Vec<u8>> = OnceLock::new();
    let compile = || {
        let file = |extension: &str| folder().join(format!("serve-{}.{extension}", process::id()));
        let (from, to) = (file("cl"), file("spv"));
        let source = "
            kernel void one(global int *p) { p[get_global_id(0)] += 1; }
            kernel void two(global int *p, local int *q) {
              q[get_local_id(0)] = p[0]; barrier(CLK_LOCAL_MEM_FENCE); p[1] = q[0];
            }
            kernel __attribute__((reqd_work_group_size(16, 1, 1)))
            void three(global float *p, float x) { p[get_global_id(0)] *= x; }";
        fs::write(&from, source).expect("the target folder is writable");
        let clang = std::env::var("TALLY_CLANG").unwrap_or("clang-22".into());
        let status = Command::new(clang)
            .args([
                "--target=spirv64",
                "-cl-std=CL3.0",
                "-O2",
                "-Xclang",
                "-finclude-default-header",
            ])
            .arg("-c")
            .args([&from, Path::new("-o"), &to])
            .status();
        assert!(status.expect("clang-22 is installed").success());
        let spirv = fs::read(&to).expect("clang has written its output");
        for file in [from, to] {
            let _ = fs::remove_file(file);
        }
        spirv
    };
    SPIRV.get_or_init(compile).clone()
}

fn source(spirv: Vec<u8>) -> Source {
    let target = TargetCpu { name: String::new(), features: String::new() };
    let input = Input { spirv, ..Input::default() };
    let objects = vec![Object { inputs: vec![input], links: Vec::new() }];
    Source { objects, target, careful: false, checks: Default::default() }
}

/// The code of a kernel that every client gets.
fn usual(kernel: u32) -> CodeId {
    CodeId { kernel, form: Form::Usual }
}

/// A folder with a shell script in place of the program.
struct Fake(PathBuf);

impl Fake {
    fn new(name: &str, script: &str) -> Self {
        let dir = folder().join(format!("{name}-{}", process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("the target folder is writable");
        // Written by a process of its own: a file that this process writes is open in the children that
        // other tests start meanwhile, and cannot be run until they have closed it.
        let write = "printf '#!/bin/sh\n%s\n' \"$1\" >\"$2\" && chmod +x \"$2\"";
        let mut writer = Command::new("sh");
        writer.args(["-c", write, "sh", script]).arg(dir.join("tally-compiler"));
        assert!(writer.status().expect("a shell").success());
        Self(dir)
    }

    fn compiler(&self) -> Compiler {
        Compiler::start(Some(&self.0)).expect("the script is there")
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_module_is_described_and_each_kernel_has_code() {
    let compiler = Compiler::start(program_dir()).expect("the program is there");
    let module = compiler.build(source(spirv())).expect("the process runs");
    let info = module.info().expect("the module is good");
    let names: Vec<_> = info.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    assert_eq!(names, ["one", "two", "three"]);
    assert_eq!(info.kernels[1].args.len(), 2);
    assert!(info.kernels[1].uses_barrier && !info.kernels[0].uses_barrier);
    for kernel in 0..3 {
        let code = module.kernel_code(usual(kernel)).expect("the kernel is good");
        assert!((code.entry as usize) < code.blob.len());
        let together = code.uneven.map(|uneven| uneven.together);
        let wanted = [Some(false), Some(true), None];
        assert_eq!(
            together, wanted[kernel as usize],
            "the second waits, the third requires a size"
        );
    }
    assert_eq!(module.kernel_code(usual(3)), Err(CompilerError::NoSuchKernel(3)));
}

#[test]
fn code_for_uneven_rows_is_made_when_it_is_needed() {
    let compiler = Compiler::start(program_dir()).expect("the program is there");
    let module = compiler.build(source(spirv())).expect("the process runs");
    let uneven = |kernel| module.kernel_code(CodeId { kernel, form: Form::Uneven });
    // The module is not even built yet.
    let first = uneven(1).expect("the kernel requires no group size");
    let usual = module.kernel_code(usual(1)).expect("the kernel is good");
    assert!(first.blob != usual.blob && first.uneven.is_none());
    assert_eq!(uneven(1).as_ref(), Ok(&first), "it is made once");
    assert_ne!(uneven(0).expect("so does the first").blob, first.blob);
    let Err(CompilerError::Refused(log)) = uneven(2) else { panic!("it has no such form") };
    assert!(log.contains("no such form"), "{log}");
}

#[test]
fn a_truncated_module_is_refused_with_a_log_and_the_process_goes_on() {
    let compiler = Compiler::start(program_dir()).expect("the program is there");
    let whole = spirv();
    for len in [0, 3, 20, whole.len() / 2, whole.len() - 4] {
        let module = compiler.build(source(whole[..len].to_vec())).expect("the process runs");
        let Err(CompilerError::Refused(log)) = module.info() else {
            panic!("{len} bytes of a module were not refused");
        };
        assert!(!log.is_empty());
    }
    let module = compiler.build(source(whole)).expect("the process runs");
    assert!(module.info().is_ok());
}

#[test]
fn many_threads_share_one_process() {
    let compiler = Compiler::start(program_dir()).expect("the program is there");
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let compiler = &compiler;
            scope.spawn(move || {
                for round in 0..4 {
                    let module = compiler.build(source(spirv())).expect("the process runs");
                    if (thread + round) % 4 == 0 {
                        continue; // Released before it is built.
                    }
                    assert_eq!(module.info().expect("the module is good").kernels.len(), 3);
                    let code = module.kernel_code(usual(round % 3)).expect("the kernel is good");
                    assert!(!code.blob.is_empty());
                }
            });
        }
    });
}

#[test]
fn when_the_process_dies_every_wait_fails_with_its_last_words() {
    let fake = Fake::new("dies", "head -c 1 >/dev/null; echo out of cheese >&2; kill -SEGV $$");
    let compiler = fake.compiler();
    let modules: Vec<_> = (0..3).filter_map(|_| compiler.build(source(spirv())).ok()).collect();
    for module in &modules {
        let Err(CompilerError::Died(why)) = module.info() else {
            panic!("a wait for a dead process did not fail");
        };
        assert!(why.contains("out of cheese"), "{why}");
    }
}

#[test]
fn the_next_build_starts_another_process() {
    let script = format!(
        "if [ -e \"$0.died\" ]; then exec '{PROGRAM}'; fi; : >\"$0.died\"; head -c 1 >/dev/null; exit 3"
    );
    let fake = Fake::new("restarts", &script);
    let compiler = fake.compiler();
    let first = compiler.build(source(spirv()));
    let died = first.and_then(|module| module.info());
    assert!(matches!(died, Err(CompilerError::Died(_))), "{died:?}");
    let module = compiler.build(source(spirv())).expect("another process runs");
    assert!(module.info().is_ok());
}

#[test]
fn a_build_beyond_the_memory_limit_fails_and_does_not_hang() {
    let script = format!("TALLY_COMPILER_MEMORY=1 exec '{PROGRAM}'");
    let fake = Fake::new("memory", &script);
    let compiler = fake.compiler();
    let built = compiler.build(source(spirv())).and_then(|module| module.kernel_code(usual(0)));
    assert!(matches!(built, Err(CompilerError::Died(_))), "{built:?}");
}

#[test]
fn a_process_of_another_version_or_none_at_all_is_an_error() {
    // A frame of two bytes: Hello, version 99.
    let fake = Fake::new("version", "printf '\\002\\000\\000\\000\\000\\143' >&0; cat >/dev/null");
    let compiler = fake.compiler();
    let died = compiler.build(source(spirv())).and_then(|module| module.info());
    let Err(CompilerError::Died(why)) = died else { panic!("version 99 was accepted") };
    assert!(why.contains("version 99"), "{why}");

    let missing = Compiler::start(Some(Path::new("/nonexistent"))).map(drop);
    assert_eq!(missing, Err(CompilerError::NotFound));
}

#[test]
fn garbage_ends_the_process_with_a_message() {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    let (mut ours, theirs) = UnixStream::pair().expect("a socket pair");
    let child = Command::new(PROGRAM)
        .stdin(std::os::fd::OwnedFd::from(theirs))
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the program is there");
    ours.write_all(&[4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]).expect("the process reads");
    let output = child.wait_with_output().expect("our child");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("not a message"));
}

#[test]
fn the_host_sees_no_child_process() {
    let compiler = Compiler::start(program_dir()).expect("the program is there");
    let module = compiler.build(source(spirv())).expect("the process runs");
    assert!(module.info().is_ok());
    let children = fs::read_to_string(format!(
        "/proc/self/task/{}/children",
        // SAFETY: asks for this thread's number.
        unsafe { libc::gettid() }
    ));
    assert_eq!(children.unwrap_or_default().trim(), "");
}

/// The process is confined before it sends its first message.
#[test]
fn the_process_is_confined_before_it_reads_a_module() {
    let (mut ours, theirs) = UnixStream::pair().expect("a pair");
    let child = Command::new(PROGRAM).stdin(OwnedFd::from(theirs)).spawn();
    let mut child = child.expect("the program is there");
    ours.read_exact(&mut [0]).expect("its greeting");
    let own = fs::read_to_string("/proc/self/status").expect("our own state");
    let its = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("its state");
    drop(ours);
    child.wait().expect("its end");
    let number = |status: &str, key| {
        let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("a line");
        line.trim().parse::<u32>().expect("a number")
    };
    assert_eq!(number(&its, "NoNewPrivs:"), 1);
    assert_eq!(number(&its, "Seccomp_filters:"), number(&own, "Seccomp_filters:") + 1);
}
