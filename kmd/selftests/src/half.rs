// SPDX-License-Identifier: GPL-2.0
//! The two halves of the module: the device is a PCI function, or a process of this machine. Removes the device
//! and brings it back for tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::device::{Node, eventually};
use crate::host::node_of;

/// Whether the device is a PCI function.
pub fn is_pci() -> bool {
    fs::read_dir(driver()).is_ok_and(|entries| {
        entries.flatten().any(|entry| entry.file_name().to_string_lossy().contains(':'))
    })
}

/// The PCI driver.
fn driver() -> PathBuf {
    PathBuf::from("/sys/bus/pci/drivers/tally")
}

/// The PCI address of the bound device.
fn address() -> String {
    let entries = fs::read_dir(driver()).expect("the driver").flatten();
    let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.find(|name| name.contains(':')).expect("a bound device")
}

/// A file of the bound PCI device in sysfs.
pub fn device_file(name: &str) -> PathBuf {
    driver().join(address()).join(name)
}

/// The process id of the device's process. Only on the host half.
pub fn daemon() -> Option<libc::pid_t> {
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.into_iter().find(|pid| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = words.split(|&byte| byte == 0);
        words.next().is_some_and(|program| program.ends_with(b"tally-gpu"))
            && words.any(|word| word == b"--host")
    })
}

/// The process ids of a device's engine processes.
pub fn engines(daemon: libc::pid_t) -> Vec<libc::pid_t> {
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let parent = |pid: &libc::pid_t| -> Option<libc::pid_t> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The fields behind the name are the state and the parent.
        text.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    numbers.filter(|pid| parent(pid) == Some(daemon)).collect()
}

/// Numbers of the GPUs that are processes of this machine.
fn numbers() -> Vec<u32> {
    let devices = fs::read_dir("/sys/devices/faux").expect("faux devices").flatten();
    let names = devices.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter_map(|name| name.strip_prefix("tally-host.")?.parse().ok()).collect()
}

/// Sends a signal to the device's process, if there is one.
pub fn signal_daemon(signal: i32) {
    if let Some(pid) = daemon() {
        // SAFETY: the call takes only numbers. It does no harm if the process has just ended.
        unsafe { libc::kill(pid, signal) };
    }
}

/// While this file exists, the device's process is not restarted (`scripts/vm.d/guest-init`).
const STOPPED: &str = "/run/tally-gpu.stopped";

/// A removed device, which comes back when this is dropped.
pub struct Gone {
    /// The device's address on the PCI half.
    address: Option<String>,
}

impl Gone {
    /// Removes the device: the driver is unbound, or the device's process is killed.
    pub fn now() -> Self {
        if is_pci() {
            let address = address();
            fs::write(driver().join("unbind"), &address).expect("unbind");
            return Self { address: Some(address) };
        }
        fs::write(STOPPED, "").expect("to stop it");
        // Other tests may end the process, too, or it may be about to start.
        eventually(|| {
            signal_daemon(libc::SIGKILL);
            daemon().is_none()
        });
        // A child that it was about to start keeps its file open a moment longer.
        eventually(|| Node::try_open().is_none());
        Self { address: None }
    }

    /// On the PCI half: whether the device may access memory by itself (bit 2 of the command register).
    pub fn is_master(&self) -> bool {
        let Some(address) = &self.address else { return false };
        let config = Path::new("/sys/bus/pci/devices").join(address).join("config");
        fs::read(config).expect("the configuration space")[4] & 4 != 0
    }
}

impl Drop for Gone {
    fn drop(&mut self) {
        match &self.address {
            // Allocations may be made to fail.
            Some(address) => eventually(|| fs::write(driver().join("bind"), address).is_ok()),
            None => fs::remove_file(STOPPED).expect("to go on"),
        }
        eventually(|| Node::try_open().is_some());
    }
}

/// The program of the device's process, for tests that start it themselves.
pub struct Program {
    words: Vec<String>,
    _gone: Gone,
}

impl Program {
    /// Takes over the start of the process from its previous starter.
    pub fn take_over() -> Self {
        Self { words: words(), _gone: Gone::now() }
    }

    /// Starts it.
    pub fn start(&self) -> Running {
        run(&self.words)
    }
}

/// The command line with which the device's process was started.
fn words() -> Vec<String> {
    let pid = daemon().expect("the device's process");
    let words = fs::read(format!("/proc/{pid}/cmdline")).expect("its words");
    let words = words.split(|&byte| byte == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

fn run(words: &[String]) -> Running {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stderr(Stdio::null());
    Running(command.spawn().expect("the device's process"))
}

/// One more GPU beside the first, and its render node.
pub fn another() -> (Running, PathBuf) {
    let before = numbers();
    let running = run(&words());
    let mut number = None;
    eventually(|| {
        number = numbers().into_iter().find(|number| !before.contains(number));
        number.is_some()
    });
    (running, node_of(number.expect("its number")))
}

/// The device's process, until this is dropped.
pub struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().expect("to end it");
        self.0.wait().expect("its end");
    }
}
