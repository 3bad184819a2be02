// SPDX-License-Identifier: MIT OR Apache-2.0
//! A driver for tests, which does a kernel module's work over a vfio-user client.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::PathBuf;
use std::process::{Child, Command as Process};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tally_uapi::firmware::{
    ANSWERS, Answer, Command, Identity, MAX_VMS, StatusPage, WaitersPage, answer_status, op,
};
use tally_uapi::regs::{self, control, status};
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_PCI_BAR0_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
};
use vfio_user::Client;
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of the guest's memory.
pub const MEMORY: u64 = 256 << 20;
/// Commands of the admin ring.
pub const ENTRIES: u32 = 64;
/// The time that any operation may take before a test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

// The ring is not at 0x1000, which random commands use as an address.
const RING: u64 = 0x8000;
const ANSWER_SLOTS: u64 = 0x2000;
const WAITERS: u64 = 0x6000;
const STATUS: u64 = 0x7000;
/// The first bus address that `pages` hands out.
const FREE: u64 = 0x10_0000;

/// The guest's memory: a memfd, mapped here, and lent to the device.
pub struct Memory {
    pub file: File,
    base: *mut u8,
}

// SAFETY: shared memory that is only reached through atomics and raw copies.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub fn new(bytes: u64) -> Self {
        // SAFETY: plain calls, whose results are checked.
        unsafe {
            let fd = libc::memfd_create(c"guest".as_ptr(), libc::MFD_CLOEXEC);
            assert!(fd >= 0, "memfd");
            let file = File::from_raw_fd(fd);
            file.set_len(bytes).unwrap();
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
            let base = libc::mmap(std::ptr::null_mut(), bytes as usize, access, flags, fd, 0);
            assert_ne!(base, libc::MAP_FAILED);
            Self { file, base: base.cast() }
        }
    }

    pub fn at<T>(&self, address: u64) -> &T {
        assert!(address.is_multiple_of(align_of::<T>() as u64) && address < MEMORY);
        // SAFETY: in the mapping; the tests use it for atomics and plain bytes.
        unsafe { &*self.base.add(address as usize).cast() }
    }

    pub fn word(&self, address: u64) -> &AtomicU64 {
        self.at(address)
    }

    pub fn write(&self, address: u64, bytes: &[u8]) {
        assert!(address + bytes.len() as u64 <= MEMORY);
        // SAFETY: in the mapping; nothing else uses these bytes meanwhile.
        unsafe {
            let to = self.base.add(address as usize);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }
}

/// A device process and the driver's side of it.
pub struct Gpu {
    pub client: Mutex<Client>,
    pub memory: Memory,
    pub process: Child,
    eventfd: File,
    folder: PathBuf,
    free: AtomicU64,
    ring: Mutex<Ring>,
}

/// The driver's side of the admin ring.
struct Ring {
    tail: u32,
    /// For each slot of the answers: the command that was given last, if any.
    last: [Option<u32>; ANSWERS as usize],
}

impl Ring {
    const EMPTY: Self = Self { tail: 0, last: [None; ANSWERS as usize] };
}

/// A command that was published.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    number: u32,
    slot: usize,
}

static FOLDERS: AtomicU32 = AtomicU32::new(0);

/// Waits until `done` returns true.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < until, "{what} has not happened");
        std::thread::sleep(Duration::from_micros(200));
    }
}

impl Gpu {
    /// A device that was enabled.
    pub fn new() -> Self {
        let gpu = Self::off(&[]);
        gpu.enable();
        gpu
    }

    /// A device after power-on.
    pub fn off(options: &[&str]) -> Self {
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let folder = format!("tally-gpu-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        // A killed process with the same number may have left a folder.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let socket = folder.join("socket");
        let process = Process::new(env!("CARGO_BIN_EXE_tally-gpu"))
            .arg("--socket")
            .arg(&socket)
            .args(["--workers", "2", "--substitutes", "4"])
            .args(options)
            .spawn()
            .unwrap();
        eventually("the socket", || socket.exists());
        let until = Instant::now() + PATIENCE;
        let mut client = loop {
            match Client::new(&socket) {
                Ok(client) => break client,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
        };
        let memory = Memory::new(MEMORY);
        client.dma_map(0, 0, MEMORY, memory.file.as_raw_fd()).unwrap();
        // SAFETY: takes numbers; the result is checked.
        let eventfd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        assert!(eventfd >= 0);
        let flags = VFIO_IRQ_SET_ACTION_TRIGGER | VFIO_IRQ_SET_DATA_EVENTFD;
        client.set_irqs(VFIO_PCI_MSIX_IRQ_INDEX, flags, 0, 1, &[eventfd]).unwrap();
        Self {
            client: Mutex::new(client),
            memory,
            process,
            // SAFETY: just made, and owned only by this.
            eventfd: unsafe { File::from_raw_fd(eventfd) },
            folder,
            free: AtomicU64::new(FREE),
            ring: Mutex::new(Ring::EMPTY),
        }
    }

    fn client(&self) -> MutexGuard<'_, Client> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn read32(&self, register: u64) -> u32 {
        let mut bytes = [0; 4];
        self.client().region_read(VFIO_PCI_BAR0_REGION_INDEX, register, &mut bytes).unwrap();
        u32::from_le_bytes(bytes)
    }

    pub fn read64(&self, register: u64) -> u64 {
        let mut bytes = [0; 8];
        self.client().region_read(VFIO_PCI_BAR0_REGION_INDEX, register, &mut bytes).unwrap();
        u64::from_le_bytes(bytes)
    }

    pub fn write32(&self, register: u64, value: u32) {
        let bytes = value.to_le_bytes();
        self.client().region_write(VFIO_PCI_BAR0_REGION_INDEX, register, &bytes).unwrap();
    }

    pub fn write64(&self, register: u64, value: u64) {
        let bytes = value.to_le_bytes();
        self.client().region_write(VFIO_PCI_BAR0_REGION_INDEX, register, &bytes).unwrap();
    }

    pub fn config(&self, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        self.client().region_read(VFIO_PCI_CONFIG_REGION_INDEX, offset, &mut bytes).unwrap();
        u32::from_le_bytes(bytes)
    }

    pub fn write_config16(&self, offset: u64, value: u16) {
        let bytes = value.to_le_bytes();
        self.client().region_write(VFIO_PCI_CONFIG_REGION_INDEX, offset, &bytes).unwrap();
    }

    /// Writes the addresses and enables the device. Returns whether it accepted them.
    pub fn enable(&self) -> bool {
        self.write64(regs::ADMIN_RING, RING);
        self.write64(regs::ADMIN_ANSWERS, ANSWER_SLOTS);
        self.write32(regs::ADMIN_ENTRIES, ENTRIES);
        self.write64(regs::WAITERS_PAGE, WAITERS);
        self.write64(regs::STATUS_PAGE, STATUS);
        *self.ring.lock().unwrap() = Ring::EMPTY;
        self.write32(regs::CONTROL, control::ENABLE);
        self.read32(regs::STATUS) == status::ENABLED
    }

    /// Resets by the register and waits until it is done.
    pub fn reset(&self) {
        self.write32(regs::CONTROL, control::RESET);
        eventually("the reset", || self.read32(regs::STATUS) & status::RESETTING == 0);
    }

    pub fn status_page(&self) -> &StatusPage {
        self.memory.at(STATUS)
    }

    pub fn waiters_page(&self) -> &WaitersPage {
        self.memory.at(WAITERS)
    }

    /// The answer to IDENTIFY.
    pub fn identity(&self) -> Identity {
        let page = self.pages(1);
        let args = [page, 0, 0, 0, 0, 0];
        let answer = self.admin(&Command { opcode: op::IDENTIFY, args, ..Command::default() });
        assert_eq!(answer.status, answer_status::OK);
        Identity::read_from_bytes(self.memory.at::<[u8; 4096]>(page)).unwrap()
    }

    /// Sends the device's process a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: takes numbers; the process has not been waited for.
        assert_eq!(unsafe { libc::kill(self.process.id() as i32, signal) }, 0);
    }

    /// Whether all threads of the device's process are stopped. A signal reaches them one after the other.
    pub fn is_stopped(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.process.id())).unwrap();
        threads.flatten().all(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat"));
            stat.is_ok_and(|stat| stat.contains(") T "))
        })
    }

    /// Descriptors ("fd") or threads ("task") of the device's process.
    pub fn count(&self, what: &str) -> usize {
        std::fs::read_dir(format!("/proc/{}/{what}", self.process.id())).unwrap().count()
    }

    /// The status file of the device's process in /proc.
    pub fn proc_status(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap()
    }

    /// The engine processes.
    pub fn engines(&self) -> Vec<u32> {
        let mut engines = Vec::new();
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.process.id())).unwrap();
        for thread in threads.flatten() {
            let children = std::fs::read_to_string(thread.path().join("children"));
            let children = children.unwrap_or_default();
            engines.extend(children.split_whitespace().map(|pid| pid.parse::<u32>().unwrap()));
        }
        engines
    }

    /// The number of interrupts in the status page, if answers were the only reason for them: each is counted
    /// soon after its answer.
    pub fn answers_interrupts(&self) -> u64 {
        let interrupts = &self.status_page().interrupts;
        let answers = u64::from(self.ring.lock().unwrap().tail);
        eventually("the interrupts of the answers", || {
            interrupts.load(Ordering::SeqCst) >= answers
        });
        interrupts.load(Ordering::SeqCst)
    }

    /// Interrupts since the last call.
    pub fn interrupts(&self) -> u64 {
        let mut count = [0; 8];
        let mut eventfd = &self.eventfd;
        eventfd.read(&mut count).map_or(0, |_| u64::from_ne_bytes(count))
    }

    /// Bus address of fresh contiguous zero pages.
    pub fn pages(&self, count: u64) -> u64 {
        let address = self.free.fetch_add(count * 4096, Ordering::Relaxed);
        assert!(address + count * 4096 <= MEMORY, "the guest's memory is used up");
        address
    }

    /// Publishes a command, once the previous one of the same VM is answered.
    pub fn submit(&self, command: &Command) -> Sent {
        let mut ring = self.ring.lock().unwrap();
        let slot = if command.vm <= MAX_VMS { command.vm as usize } else { 0 };
        if let Some(number) = ring.last[slot] {
            eventually("the answer before", || self.answer(Sent { number, slot }).is_some());
        }
        self.publish(&mut ring, slot, command)
    }

    /// Publishes a command although the previous one may not be answered.
    pub fn submit_early(&self, command: &Command) {
        let mut ring = self.ring.lock().unwrap();
        self.publish(&mut ring, command.vm as usize, command);
    }

    fn publish(&self, ring: &mut Ring, slot: usize, command: &Command) -> Sent {
        let number = ring.tail;
        self.memory.write(RING + u64::from(number % ENTRIES) * 64, command.as_bytes());
        ring.tail = number.wrapping_add(1);
        ring.last[slot] = Some(number);
        fence(Ordering::SeqCst);
        self.write32(regs::ADMIN_TAIL, ring.tail);
        Sent { number, slot }
    }

    /// The answer to a command, if it is there.
    pub fn answer(&self, sent: Sent) -> Option<Answer> {
        let slot = ANSWER_SLOTS + sent.slot as u64 * 64;
        let last = self.memory.word(slot + 56).load(Ordering::Acquire);
        if (last >> 32) as u32 != sent.number.wrapping_add(1) {
            return None;
        }
        let words: Vec<u64> =
            (0..8).map(|i| self.memory.word(slot + i * 8).load(Ordering::Relaxed)).collect();
        Some(Answer::read_from_bytes(words.as_bytes()).unwrap())
    }

    /// Sends a command and waits for its answer.
    pub fn admin(&self, command: &Command) -> Answer {
        let sent = self.submit(command);
        let mut answer = None;
        eventually("the answer", || {
            answer = self.answer(sent);
            answer.is_some()
        });
        answer.unwrap()
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // The device ends with its VMM; a failed test must not leave it running.
        let _ = self.client().shutdown();
        let until = Instant::now() + Duration::from_secs(5);
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
