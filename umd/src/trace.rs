// SPDX-License-Identifier: MIT OR Apache-2.0
//! `TALLY_TRACE=file`: a timeline in the trace-event format that Perfetto and chrome://tracing open.
//!
//! Two processes are shown: the program, with a track for each thread and its Level Zero calls, and
//! the GPU, with a track for each engine and its commands, and one for each queue that had to wait, with
//! these waits. Commands that overlap on an engine get further tracks, since slices of one track must nest.
//! Arrows lead from signals to the waits that they ended. All times are of CLOCK_MONOTONIC. Events are
//! appended as they end, and the format does not require the closing bracket, so the file is usable even
//! after a crash, except for events that were still buffered.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

mod arrows;

use arrows::{Arrows, Point, Signal, Wait};

/// Track group of the program.
const HOST: u32 = 1;
/// Track group of the GPU.
const GPU: u32 = 2;
/// The number of the first track with a queue's waits; those of engines are below.
const QUEUES: u64 = 1 << 24;

static ENABLED: AtomicBool = AtomicBool::new(false);
static TRACE: Mutex<Option<Trace>> = Mutex::new(None);
static SOURCES: Mutex<Vec<Weak<dyn Source>>> = Mutex::new(Vec::new());

/// A collector that holds records of commands for a while before it hands them to the trace.
pub trait Source: Send + Sync {
    /// Hands over the commands that have ended.
    fn drain(&self);
}

/// From now on, `source` is drained before the file is ended or has to be complete.
pub fn add_source(source: Weak<dyn Source>) {
    let mut sources = sources();
    sources.retain(|source| source.strong_count() != 0);
    sources.push(source);
}

fn sources() -> MutexGuard<'static, Vec<Weak<dyn Source>>> {
    SOURCES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn drain_sources() {
    // Dropped without the lock, since dropping the last reference to a source drains it, too.
    let all: Vec<Arc<dyn Source>> = sources().iter().filter_map(Weak::upgrade).collect();
    all.iter().for_each(|source| source.drain());
}

struct Trace {
    out: Box<dyn Write + Send>,
    first: bool,
    named: HashSet<(u32, u64)>,
    kernels: HashMap<u64, String>,
    /// For each engine, the end of the last command on each of its tracks, in device ticks.
    lanes: HashMap<(u32, u32), Vec<u64>>,
    /// The offset (ns) to add to device ticks to get CLOCK_MONOTONIC.
    offset: i64,
    arrows: Arrows,
    /// Number of arrows that were drawn.
    drawn: u64,
}

/// Whether calls and commands are recorded.
#[inline]
pub fn enabled() -> bool {
    ENABLED.load(Ordering::Relaxed)
}

/// Starts to write to `path`. On failure it writes a message to the log and records nothing.
pub fn start(path: &Path) {
    match File::create(path) {
        Ok(file) => begin(Box::new(BufWriter::new(file))),
        Err(error) => log::error!("TALLY_TRACE: {}: {error}", path.display()),
    }
}

fn begin(out: Box<dyn Write + Send>) {
    let mut trace = Trace {
        out,
        first: true,
        named: HashSet::new(),
        kernels: HashMap::new(),
        lanes: HashMap::new(),
        offset: 0,
        arrows: Arrows::default(),
        drawn: 0,
    };
    trace.name_process(HOST, &format!("{} {}", process_name(), std::process::id()));
    trace.name_process(GPU, "Tally GPU");
    *lock() = Some(trace);
    ENABLED.store(true, Ordering::Relaxed);
    crate::process::set_traced(finish);
}

/// Ends the file. Called at exit; later events are dropped.
pub fn finish() {
    drain_sources();
    ENABLED.store(false, Ordering::Relaxed);
    if let Some(mut trace) = lock().take() {
        trace.draw(true);
        trace.write(format_args!("\n]\n"));
        // At exit there is no caller to report an error to.
        let _ = trace.out.flush();
    }
}

/// Relates the device's clock to the host's, given both values at one moment, in ns.
pub fn set_clock(host_ns: u64, device_ticks: u64) {
    if let Some(trace) = lock().as_mut() {
        trace.offset = host_ns.wrapping_sub(device_ticks) as i64;
    }
}

/// Sets the name of the kernel at an entry address.
pub fn kernel_name(entry: u64, name: &str) {
    if enabled()
        && let Some(trace) = lock().as_mut()
    {
        trace.kernels.insert(entry, name.to_owned());
    }
}

/// Records a call of the program, which lasts until the returned value is dropped.
pub fn span(function: &'static str) -> Span {
    Span { function, start: if enabled() { now() } else { 0 } }
}

/// See [`span`].
pub struct Span {
    function: &'static str,
    start: u64,
}

impl Drop for Span {
    fn drop(&mut self) {
        if self.start == 0 || !enabled() {
            return;
        }
        let (start, end, thread) = (self.start, now(), thread_id());
        if let Some(trace) = lock().as_mut() {
            trace.name_thread(HOST, thread, thread_name);
            trace.event(HOST, thread, self.function, start, end, format_args!(""));
        }
    }
}

/// Records that a host thread writes a cell, in a call that has a span.
pub fn host_signal(cell: u64, value: u64) {
    if !enabled() {
        return;
    }
    let from = Point { process: HOST, track: thread_id(), at: now() };
    if let Some(trace) = lock().as_mut() {
        trace.arrows.signal(Signal { cell, value: Some(value), from });
    }
}

/// Records a wait of this thread for a cell, which lasts until the returned value is dropped, in a call
/// that has a span.
pub fn host_wait(cell: u64, value: u64) -> Option<HostWait> {
    enabled().then(|| HostWait { cell, value, since: now() })
}

/// See [`host_wait`].
#[derive(Debug)]
pub struct HostWait {
    cell: u64,
    value: u64,
    since: u64,
}

impl Drop for HostWait {
    fn drop(&mut self) {
        let to = Point { process: HOST, track: thread_id(), at: now() };
        let Self { cell, value, since } = *self;
        if let Some(trace) = lock().as_mut() {
            trace.arrows.wait(Wait { cell, value, since, to });
        }
    }
}

/// Draws the arrows of which both ends are known.
pub fn draw_arrows() {
    if let Some(trace) = lock().as_mut() {
        trace.draw(false);
    }
}

/// Records a wait of this thread that has lasted for `lasted_ns` and continues, with its report in
/// `lines`, of which the first is the name. It is in the file when this returns, since the process may
/// have to be killed.
pub fn hang(lasted_ns: u64, lines: &[String]) {
    if !enabled() {
        return;
    }
    drain_sources();
    let (end, thread) = (now(), thread_id());
    if let Some(trace) = lock().as_mut() {
        trace.name_thread(HOST, thread, thread_name);
        let name = lines.first().map_or("", String::as_str);
        let (start, report) = (end.saturating_sub(lasted_ns), lines.join("\n"));
        let args = format_args!("\"report\":\"{}\"", Escaped(&report));
        trace.event(HOST, thread, name, start, end, args);
        // The next event reports a file that cannot be written.
        let _ = trace.out.flush();
    }
}

/// A command that an engine ran.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    /// Engine class and index.
    pub engine: (u32, u32),
    /// The queue, by the kernel's id.
    pub queue: u32,
    /// Name of the packet.
    pub kind: &'a str,
    /// Entry address of a dispatch, else 0.
    pub entry: u64,
    /// Start and end in device ticks.
    pub ticks: (u64, u64),
    /// The cell that it signals and the value that it stores there, or `None` if it adds to the cell.
    pub signal: Option<(u64, Option<u64>)>,
}

/// Records a command that has ended.
pub fn command(command: Command<'_>) {
    let (class, index) = command.engine;
    if let Some(trace) = lock().as_mut() {
        let lane = trace.lane(command.engine, command.ticks);
        // Viewers accept 32 bits; no engine has more tracks than fit into the lowest 8.
        let track = u64::from((class << 16) | ((index & 0xff) << 8) | (lane & 0xff));
        trace.name_thread(GPU, track, |_| {
            let more = if lane == 0 { String::new() } else { format!(", beside {lane}") };
            match class {
                0 => format!("compute engine {index}{more}"),
                1 => format!("copy engine {index}{more}"),
                class => format!("engine {index} of class {class}{more}"),
            }
        });
        let host = |ticks: u64| ticks.wrapping_add_signed(trace.offset);
        let (start, end) = (host(command.ticks.0), host(command.ticks.1));
        let name = trace.kernels.get(&command.entry).filter(|_| command.entry != 0);
        let name = name.cloned().unwrap_or_else(|| command.kind.to_owned());
        let args = format_args!("\"queue\":{},\"entry\":\"{:#x}\"", command.queue, command.entry);
        trace.event(GPU, track, &name, start, end, args);
        if let Some((cell, value)) = command.signal {
            // Within the slice, which ends before the signal.
            let at = end.saturating_sub(1).max(start);
            let from = Point { process: GPU, track, at };
            trace.arrows.signal(Signal { cell, value, from });
        }
    }
}

/// A wait of a queue that has ended.
#[derive(Clone, Copy, Debug)]
pub struct QueueWait {
    /// The queue, by the kernel's id.
    pub queue: u32,
    /// VA of the cell.
    pub cell: u64,
    /// The value that it waited for.
    pub value: u64,
    /// Start and end in device ticks.
    pub ticks: (u64, u64),
}

/// Records a wait of a queue.
pub fn queue_wait(wait: QueueWait) {
    let QueueWait { queue, cell, value, ticks } = wait;
    if let Some(trace) = lock().as_mut() {
        let track = QUEUES + u64::from(queue);
        trace.name_thread(GPU, track, |_| format!("queue {queue} waits"));
        let host = |ticks: u64| ticks.wrapping_add_signed(trace.offset);
        let (start, end) = (host(ticks.0), host(ticks.1));
        let args = format_args!("\"queue\":{queue},\"cell\":\"{cell:#x}\",\"value\":{value}");
        trace.event(GPU, track, "wait", start, end, args);
        let to = Point { process: GPU, track, at: end.saturating_sub(1).max(start) };
        trace.arrows.wait(Wait { cell, value, since: start, to });
    }
}

impl Trace {
    /// Draws the arrows of which both ends are known. At the end of the file (`over`) no wait is kept back.
    fn draw(&mut self, over: bool) {
        for (from, to) in self.arrows.take(over) {
            self.drawn += 1;
            let number = self.drawn;
            for (kind, Point { process, track, at }) in
                [("\"s\"", from), ("\"f\",\"bp\":\"e\"", to)]
            {
                let (us, ns) = (at / 1000, at % 1000);
                self.item(format_args!(
                    "{{\"ph\":{kind},\"id\":{number},\"cat\":\"signal\",\"name\":\"signal\",\"pid\":{process},\"tid\":{track},\"ts\":{us}.{ns:03}}}"
                ));
            }
        }
    }

    /// The first track of the engine on which nothing overlaps the command. Commands arrive in the order of
    /// their ends, so only the last command of each track can overlap.
    fn lane(&mut self, engine: (u32, u32), (start, end): (u64, u64)) -> u32 {
        let lanes = self.lanes.entry(engine).or_default();
        let free = lanes.iter().position(|&last| last <= start).unwrap_or(lanes.len());
        if free == lanes.len() {
            lanes.push(0);
        }
        lanes[free] = end;
        free as u32
    }

    fn name_process(&mut self, process: u32, name: &str) {
        self.item(format_args!(
            "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{process},\"args\":{{\"name\":\"{}\"}}}}",
            Escaped(name)
        ));
        // The program is shown above the GPU.
        self.item(format_args!(
            "{{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":{process},\"args\":{{\"sort_index\":{process}}}}}"
        ));
    }

    fn name_thread(&mut self, process: u32, thread: u64, name: impl Fn(u64) -> String) {
        if self.named.insert((process, thread)) {
            let name = name(thread);
            self.item(format_args!(
                "{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{process},\"tid\":{thread},\"args\":{{\"name\":\"{}\"}}}}",
                Escaped(&name)
            ));
            if process == GPU {
                // Engines by their numbers, then queues.
                self.item(format_args!(
                    "{{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":{process},\"tid\":{thread},\"args\":{{\"sort_index\":{thread}}}}}"
                ));
            }
        }
    }

    /// A complete event; times in ns.
    fn event(
        &mut self,
        process: u32,
        thread: u64,
        name: &str,
        start: u64,
        end: u64,
        args: std::fmt::Arguments<'_>,
    ) {
        // A slice without length could not contain the end of an arrow.
        let length = end.saturating_sub(start).max(1);
        self.item(format_args!(
            "{{\"ph\":\"X\",\"name\":\"{}\",\"pid\":{process},\"tid\":{thread},\"ts\":{}.{:03},\"dur\":{}.{:03},\"args\":{{{args}}}}}",
            Escaped(name),
            start / 1000,
            start % 1000,
            length / 1000,
            length % 1000,
        ));
    }

    fn item(&mut self, item: std::fmt::Arguments<'_>) {
        let before = if std::mem::take(&mut self.first) { "[\n" } else { ",\n" };
        self.write(format_args!("{before}{item}"));
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        if let Err(error) = self.out.write_fmt(text)
            && ENABLED.swap(false, Ordering::Relaxed)
        {
            log::error!("TALLY_TRACE: {error}; nothing more is recorded");
        }
    }
}

/// A name as the inside of a JSON string.
struct Escaped<'a>(&'a str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                c if c < ' ' => write!(f, "\\u{:04x}", u32::from(c))?,
                c => write!(f, "{c}")?,
            }
        }
        Ok(())
    }
}

fn lock() -> MutexGuard<'static, Option<Trace>> {
    TRACE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// CLOCK_MONOTONIC in ns.
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on every Linux and the place is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The name that a thread of this process has set for itself, and its id.
fn thread_name(thread: u64) -> String {
    let name = std::fs::read_to_string(format!("/proc/self/task/{thread}/comm"));
    format!("{} {thread}", name.as_deref().map_or("thread", str::trim_end))
}

fn process_name() -> String {
    let name = std::fs::read_to_string("/proc/self/comm");
    name.map_or("program".to_owned(), |name| name.trim_end().to_owned())
}

fn thread_id() -> u64 {
    thread_local!(static ID: Cell<u64> = const { Cell::new(0) });
    ID.with(|id| {
        if id.get() == 0 {
            // SAFETY: gettid has no preconditions.
            id.set(unsafe { libc::gettid() } as u64);
        }
        id.get()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic").extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    // There is one trace per process, and VMs that other tests create meanwhile would add to it, so the test
    // runs in a process of its own.
    #[test]
    fn calls_and_commands_end_up_on_their_tracks_by_one_clock() {
        const ALONE: &str = "TALLY_TEST_ALONE";
        let name = "trace::tests::calls_and_commands_end_up_on_their_tracks_by_one_clock";
        if std::env::var_os(ALONE).is_none() {
            let program = std::env::current_exe().expect("Linux knows it");
            let mut alone = std::process::Command::new(program);
            let output = alone.args(["--exact", name]).env(ALONE, "1").output();
            let output = output.expect("it is this program");
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("1 passed"), "{text}");
            return;
        }
        let memory = Memory::default();
        begin(Box::new(memory.clone()));
        set_clock(5_000_000, 1_000_000);
        kernel_name(0x4000, "say \"hi\"");
        drop(span("zeTest"));
        hang(3_000, &["A waits".to_owned(), "for \"B\"".to_owned()]);
        let engine = (1, 0);
        let ticks = (2_000_000, 2_001_500);
        let plain = Command { engine, queue: 7, kind: "COPY", entry: 0, ticks, signal: None };
        command(Command { kind: "DISPATCH", entry: 0x4000, ..plain });
        command(plain);
        let ticks = (2_001_500, 2_001_600);
        command(Command { kind: "FILL", ticks, signal: Some((0x80, Some(3))), ..plain });
        queue_wait(QueueWait { queue: 9, cell: 0x80, value: 3, ticks: (1_000_000, 2_001_700) });
        finish();
        drop(span("zeLate"));
        let text = String::from_utf8(memory.0.lock().expect("no panic").clone()).expect("UTF-8");
        assert!(text.starts_with("[\n{") && text.ends_with("}\n]\n"), "{text}");
        assert!(text.contains("\"name\":\"zeTest\",\"pid\":1"), "{text}");
        assert!(text.contains("\"name\":\"copy engine 0\""), "{text}");
        assert!(text.contains("say \\\"hi\\\""), "{text}");
        assert!(text.contains("\"name\":\"COPY\""), "{text}");
        assert!(text.contains("\"ts\":6000.000,\"dur\":1.500"), "device time is host time: {text}");
        assert!(text.contains("\"dur\":3.000,\"args\":{\"report\":\"A waits\\u000afor"), "{text}");
        assert!(!text.contains("zeLate"), "{text}");
        assert_eq!(text.matches("thread_name").count(), 4, "each track is named once: {text}");
        let arrow = "\"id\":1,\"cat\":\"signal\",\"name\":\"signal\",\"pid\":2,\"tid\":";
        assert!(text.contains(&format!("\"ph\":\"s\",{arrow}65536,\"ts\":6001.599}}")), "{text}");
        let end = "16777225,\"ts\":6001.699}";
        assert!(text.contains(&format!("\"ph\":\"f\",\"bp\":\"e\",{arrow}{end}")), "{text}");
        assert!(text.contains("\"name\":\"queue 9 waits\""), "{text}");
        assert_eq!(text.matches("copy engine 0").count(), 2, "what overlaps is beside: {text}");
        assert_eq!(text.matches("\"tid\":65536,\"ts\"").count(), 3, "with the arrow: {text}");
    }
}
