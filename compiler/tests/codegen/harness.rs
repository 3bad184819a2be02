// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs compiled kernels in the test process, like the device: the blob is mapped read-execute, and its
//! entry point is called for each work-group.

use std::ptr;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tally_compiler::codegen::Options;
use tally_compiler::ir::{Module, Op};
use tally_compiler::llvm::Level;
use tally_compiler::lower::Lowered;
use tally_compiler::widen::Widened;
use tally_compiler::{check, codegen, lower, parse, widen};
use tally_compiler_protocol::checks::Checks;
use tally_compiler_protocol::{ArgKind, Form, GlobalInfo, KernelCode, KernelInfo, TargetCpu};

#[path = "../support/clang.rs"]
pub mod clang;

/// `LaunchInfo` of the device's manual.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LaunchInfo {
    pub global_offset: [u64; 3],
    pub global_size: [u64; 3],
    pub num_groups: [u32; 3],
    pub group_size: [u32; 3],
    pub work_dim: u32,
    pub reserved: u32,
    pub grid_wait: unsafe extern "C" fn(*const GroupContext),
    pub grid: u64,
}

/// Groups run one after the other, so only a single group may wait for all.
unsafe extern "C" fn grid_wait(context: *const GroupContext) {
    // SAFETY: the context is the one that the kernel received.
    let groups = unsafe { (*(*context).launch).num_groups };
    assert_eq!(groups, [1; 3], "a barrier of several groups");
}

/// `GroupContext` of the device's manual.
#[repr(C)]
pub struct GroupContext {
    launch: *const LaunchInfo,
    args: *const u8,
    local: *mut u8,
    scratch: *mut u8,
    group: [u32; 3],
    reserved: u32,
}

const _: () = assert!(size_of::<LaunchInfo>() == 96 && size_of::<GroupContext>() == 48);

/// The index space of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    pub offset: [u64; 3],
    pub global: [u64; 3],
    pub group: [u32; 3],
}

impl Grid {
    /// One dimension without offset.
    pub fn line(global: u64, group: u32) -> Self {
        Self { offset: [0; 3], global: [global, 1, 1], group: [group, 1, 1] }
    }

    pub fn launch(&self) -> LaunchInfo {
        let groups = |d: usize| self.global[d].div_ceil(self.group[d].into()) as u32;
        let dims = (0..3).rev().find(|&d| self.global[d] > 1).map_or(1, |d| d as u32 + 1);
        LaunchInfo {
            global_offset: self.offset,
            global_size: self.global,
            num_groups: [groups(0), groups(1), groups(2)],
            group_size: self.group,
            work_dim: dims,
            reserved: 0,
            grid_wait,
            grid: 0,
        }
    }
}

/// An argument.
pub enum Arg<'a> {
    Bytes(Vec<u8>),
    Buffer(&'a mut [u8]),
    Local(usize),
}

/// A value argument.
pub fn value<T: Copy>(value: T) -> Arg<'static> {
    // SAFETY: tests pass integers, floats and arrays of them, which have no padding.
    let bytes =
        unsafe { std::slice::from_raw_parts((&raw const value).cast::<u8>(), size_of::<T>()) };
    Arg::Bytes(bytes.to_vec())
}

/// A buffer argument.
pub fn buffer<T: Copy>(slice: &mut [T]) -> Arg<'_> {
    let (at, len) = (slice.as_mut_ptr().cast::<u8>(), size_of_val(slice));
    // SAFETY: the same memory as bytes; tests use integers and floats, for which any are valid.
    Arg::Buffer(unsafe { std::slice::from_raw_parts_mut(at, len) })
}

/// Runs the front end, which must succeed.
pub fn module(spirv: &[u8]) -> Module {
    let mut module = parse::parse(spirv, &[]).unwrap_or_else(|error| panic!("{error}"));
    check::check(&mut module).unwrap_or_else(|failure| panic!("{failure}"));
    module
}

/// The processors that tests generate code for: the oldest, and those with wider vectors whose code
/// this machine can run; the last one with arithmetic of half floats, if this machine has it.
pub fn targets() -> Vec<TargetCpu> {
    let mut names = vec!["x86-64"];
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        names.push("x86-64-v3");
    }
    if is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
    {
        names.push("x86-64-v4");
    }
    let features = |name: &str| match name {
        "x86-64-v4" if is_x86_feature_detected!("avx512fp16") => "+avx512fp16",
        _ => "",
    };
    let target = |name: &str| TargetCpu { name: name.into(), features: features(name).into() };
    names.into_iter().map(target).collect()
}

/// The same processors, with numbers of lanes that suit them: every number at least once.
pub fn widths() -> Vec<(TargetCpu, u32)> {
    let widths = |target: TargetCpu| {
        let lanes: &[u32] = match target.name.as_str() {
            "x86-64" => &[1, 8],
            "x86-64-v3" => &[16, 32],
            _ => &[16],
        };
        lanes.iter().map(move |&lanes| (target.clone(), lanes)).collect::<Vec<_>>()
    };
    targets().into_iter().flat_map(widths).collect()
}

/// A kernel that can be run.
pub struct Kernel {
    pub info: KernelInfo,
    pub code: KernelCode,
    /// Whether a fault was injected, so that it may access more than its buffers.
    pub faulty: bool,
    /// Groups of a launch in each dimension that lie beyond its global size, so that they do not run.
    pub beyond: [u32; 3],
    mapping: Mapping,
    /// Memory of the module's globals.
    _globals: Vec<Aligned>,
}

impl Kernel {
    /// Compiles a kernel of a module at the width that a driver gets.
    pub fn new(module: &Module, name: &str, target: &TargetCpu) -> Self {
        let (index, kernel) = module.kernel(name).unwrap_or_else(|| panic!("no kernel {name}"));
        let code = codegen::kernel_code(module, kernel, target, Options::default())
            .unwrap_or_else(|log| panic!("{log}"));
        Self::load(module, index, code)
    }

    /// Compiles one form of a kernel of a module, as a driver gets it; `None` if it has no such form.
    pub fn in_form(module: &Module, name: &str, target: &TargetCpu, form: Form) -> Option<Self> {
        let (index, kernel) = module.kernel(name).unwrap_or_else(|| panic!("no kernel {name}"));
        let code = codegen::kernel_code_in(module, kernel, target, Options::default(), form);
        Some(Self::load(module, index, code.ok()?))
    }

    /// Compiles a kernel of a module with vectors of `lanes` items.
    pub fn with_lanes(module: &Module, name: &str, target: &TargetCpu, lanes: u32) -> Self {
        let (index, kernel) = module.kernel(name).unwrap_or_else(|| panic!("no kernel {name}"));
        let code = codegen::kernel_code_of(module, kernel, target, Options::default(), lanes)
            .unwrap_or_else(|log| panic!("{log}"));
        Self::load(module, index, code)
    }

    /// Whether a kernel has code for vectors of `lanes` items.
    pub fn is_widened(module: &Module, name: &str, lanes: u32) -> bool {
        let (_, kernel) = module.kernel(name).unwrap_or_else(|| panic!("no kernel {name}"));
        widen::widen(module, kernel, lanes).is_ok()
    }

    /// Compiles a kernel that checks its accesses, with vectors of `lanes` items.
    pub fn checked(
        module: &Module,
        name: &str,
        target: &TargetCpu,
        lanes: u32,
        checks: Checks,
    ) -> Self {
        let mut module = module.clone();
        module.kernels.iter_mut().for_each(tally_compiler::ir::Kernel::make_room_for_checks);
        let (index, kernel) = module.kernel(name).unwrap_or_else(|| panic!("no kernel {name}"));
        let options = Options { checks, ..Options::default() };
        let code = codegen::kernel_code_of(&module, kernel, target, options, lanes)
            .unwrap_or_else(|log| panic!("{log}"));
        Self::load(&module, index, code)
    }

    /// Compiles a kernel with instructions changed after widening, like a fault of the compiler. `None`
    /// if the kernel is not widened.
    pub fn with_fault(
        module: &Module,
        name: &str,
        target: &TargetCpu,
        lanes: u32,
        fault: &dyn Fn(&mut Op),
    ) -> Option<Self> {
        let (index, kernel) = module.kernel(name).unwrap_or_else(|| panic!("no kernel {name}"));
        let mut widened = widen::widen(module, kernel, lanes).ok()?;
        for id in [widened.function].into_iter().chain(widened.uneven) {
            for (_, block) in widened.module.functions[id].blocks.iter_mut() {
                block.insts.iter_mut().for_each(|inst| fault(&mut inst.op));
            }
        }
        let kernel = Self::of_widened(module, index, &widened, target, &|text| text);
        Some(Self { faulty: true, ..kernel })
    }

    /// Compiles a kernel with the text for LLVM changed. `None` if the kernel is not widened.
    pub fn with_text(
        module: &Module,
        name: &str,
        target: &TargetCpu,
        lanes: u32,
        change: &dyn Fn(String) -> String,
    ) -> Option<Self> {
        let (index, kernel) = module.kernel(name).unwrap_or_else(|| panic!("no kernel {name}"));
        let widened = widen::widen(module, kernel, lanes).ok()?;
        Some(Self::of_widened(module, index, &widened, target, change))
    }

    fn of_widened(
        module: &Module,
        index: usize,
        widened: &Widened,
        target: &TargetCpu,
        change: &dyn Fn(String) -> String,
    ) -> Self {
        let kernel = &module.kernels[index];
        let lowered = lower::lower_widened(widened, kernel).expect("it is as large as before");
        let lowered = Lowered { text: change(lowered.text), ..lowered };
        // A fault of widening shows at every level, and this one takes the least time.
        let code = codegen::lowered_code(module, lowered, target, Level::None)
            .unwrap_or_else(|error| panic!("{error}"));
        Self::load(module, index, code)
    }

    fn load(module: &Module, index: usize, mut code: KernelCode) -> Self {
        let info = codegen::module_info(module, &check::Unlinked::default());
        let globals = globals(&info.globals);
        for reloc in &code.relocs {
            let address =
                globals[reloc.global as usize].address().wrapping_add(reloc.addend as u64);
            let at = reloc.offset as usize;
            code.blob[at..at + 8].copy_from_slice(&address.to_le_bytes());
        }
        let mapping = Mapping::new(&code.blob);
        let info = info.kernels[index].clone();
        Self { info, code, faulty: false, beyond: [0; 3], mapping, _globals: globals }
    }

    /// Runs the kernel over a grid, one group after the other.
    pub fn run(&self, grid: Grid, args: Vec<Arg<'_>>) {
        self.run_printing(grid, args, 0);
    }

    /// Like [`Kernel::run`], with the address of a ring if the kernel prints.
    pub fn run_printing(&self, grid: Grid, args: Vec<Arg<'_>>, ring: u64) {
        self.run_checked(grid, args, ring, &[]);
    }

    /// Like [`Kernel::run_printing`], with the words that checks need.
    pub fn run_checked(&self, grid: Grid, args: Vec<Arg<'_>>, ring: u64, words: &[u64]) {
        self.run_in(grid, args, ring, words.to_vec(), None);
    }

    /// Like [`Kernel::run_checked`], with local memory at `local`. The words for its size and that of scratch
    /// memory, if there are such, are set.
    pub fn run_in(
        &self,
        grid: Grid,
        mut args: Vec<Arg<'_>>,
        ring: u64,
        mut words: Vec<u64>,
        local: Option<*mut u8>,
    ) {
        let _watch = Watch::new(&self.info.name);
        let mut launch = grid.launch();
        let [nx, ny, nz] = launch.num_groups;
        launch.num_groups = [0, 1, 2].map(|d| launch.num_groups[d] + self.beyond[d]);
        let mut block = Aligned::new(self.info.args_size as usize);
        let mut local_bytes = (self.code.local_static_bytes as usize).next_multiple_of(64);
        assert_eq!(args.len(), self.info.args.len(), "arguments of {}", self.info.name);
        for (arg, info) in args.iter_mut().zip(&self.info.args) {
            let bytes = match arg {
                Arg::Bytes(bytes) => bytes.clone(),
                Arg::Buffer(buffer) => (buffer.as_mut_ptr() as u64).to_le_bytes().to_vec(),
                Arg::Local(size) => {
                    assert_eq!(info.kind, ArgKind::LocalPointer);
                    let offset = local_bytes as u64;
                    local_bytes += size.next_multiple_of(64);
                    offset.to_le_bytes().to_vec()
                }
            };
            assert_eq!(
                bytes.len(),
                info.size as usize,
                "argument {} of {}",
                info.name,
                self.info.name
            );
            block.bytes()[info.offset as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        if let Some(at) = self.info.printf_ring {
            block.bytes()[at as usize..][..8].copy_from_slice(&ring.to_le_bytes());
        }
        let items: u64 = grid.group.iter().map(|&n| u64::from(n)).product();
        let per_item = u64::from(self.code.scratch_bytes_per_item);
        let scratch_bytes = u64::from(self.code.scratch_bytes_fixed) + per_item * items;
        if let Some([local, _, scratch]) = words.get_mut(2..5) {
            (*local, *scratch) = (local_bytes as u64, scratch_bytes);
        }
        if let Some(at) = self.info.checks {
            for (i, word) in words.iter().enumerate() {
                let at = at as usize + 8 * i;
                block.bytes()[at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
        }
        for z in 0..nz {
            for y in 0..ny {
                for x in 0..nx {
                    // Contents are undefined: the pattern exposes kernels that rely on zeros.
                    let mut own = Aligned::filled(local_bytes, 0xa5);
                    let mut scratch = Aligned::filled(scratch_bytes as usize, 0x5a);
                    let context = GroupContext {
                        launch: &launch,
                        args: block.pointer(),
                        local: local.unwrap_or_else(|| own.pointer()),
                        scratch: scratch.pointer(),
                        group: [x, y, z],
                        reserved: 0,
                    };
                    // SAFETY: the blob is a kernel that was linked for this interface, and everything
                    // that the context points to outlives the call.
                    unsafe { (self.mapping.entry(self.code.entry))(&context) };
                }
            }
        }
    }
}

/// Ends the process if a kernel hangs: nothing else can stop a loop in native code.
struct Watch(Option<(mpsc::Sender<()>, JoinHandle<()>)>);

impl Watch {
    fn new(kernel: &str) -> Self {
        let kernel = kernel.to_owned();
        let (sender, ended) = mpsc::channel();
        let watch = move || {
            if ended.recv_timeout(Duration::from_secs(120)) == Err(RecvTimeoutError::Timeout) {
                eprintln!("the kernel {kernel} does not end");
                std::process::abort();
            }
        };
        Self(Some((sender, thread::spawn(watch))))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some((sender, watcher)) = self.0.take() {
            drop(sender);
            let _ = watcher.join();
        }
    }
}

/// Allocates and initialises a module's globals.
fn globals(infos: &[GlobalInfo]) -> Vec<Aligned> {
    let mut globals: Vec<Aligned> = infos.iter().map(|g| Aligned::new(g.size as usize)).collect();
    let addresses: Vec<u64> = globals.iter().map(Aligned::address).collect();
    for (global, info) in globals.iter_mut().zip(infos) {
        global.bytes()[..info.init.len()].copy_from_slice(&info.init);
        for reloc in &info.relocs {
            let address = addresses[reloc.global as usize].wrapping_add(reloc.addend as u64);
            global.bytes()[reloc.offset as usize..][..8].copy_from_slice(&address.to_le_bytes());
        }
    }
    globals
}

/// Bytes on either side of a kernel's memory, for the accesses of kernels with injected faults. A
/// multiple of 64.
pub const MARGIN: usize = 1024;

/// Bytes at an address that is a multiple of 64, with a margin.
struct Aligned {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Self {
        Self::filled(len, 0)
    }

    fn filled(len: usize, byte: u8) -> Self {
        let memory = vec![byte; len + 64 + 2 * MARGIN];
        let start = memory.as_ptr().align_offset(64) + MARGIN;
        Self { memory, start, len }
    }

    fn pointer(&mut self) -> *mut u8 {
        self.memory[self.start..].as_mut_ptr()
    }

    fn address(&self) -> u64 {
        self.memory[self.start..].as_ptr() as u64
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.len]
    }
}

/// Code, mapped read-execute.
struct Mapping {
    at: *mut libc::c_void,
    len: usize,
}

impl Mapping {
    fn new(blob: &[u8]) -> Self {
        let len = blob.len().max(1);
        let (write, private) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new private mapping of its own pages.
        let at = unsafe { libc::mmap(ptr::null_mut(), len, write, private, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        // SAFETY: the mapping is `len` writable bytes that nothing else uses.
        unsafe { ptr::copy_nonoverlapping(blob.as_ptr(), at.cast(), blob.len()) };
        // SAFETY: the mapping is ours; from now on nothing writes it.
        assert_eq!(unsafe { libc::mprotect(at, len, libc::PROT_READ | libc::PROT_EXEC) }, 0);
        Self { at, len }
    }

    fn entry(&self, offset: u32) -> unsafe extern "C" fn(*const GroupContext) {
        assert!((offset as usize) < self.len);
        // SAFETY: the offset is inside the mapping, and the compiler states that a function of this
        // type begins there.
        unsafe { std::mem::transmute(self.at.byte_add(offset as usize)) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: unmaps what `new` has mapped; no code of it runs any more.
        unsafe { libc::munmap(self.at, self.len) };
    }
}
