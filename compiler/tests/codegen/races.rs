// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels that tell their accesses: the races and the divergent barriers that are found, at all widths, and
//! kernels without any.

use std::cell::{Cell, RefCell};
use std::ptr;

use tally_compiler_protocol::checks::{
    Checks, SiteKind, cell, command, ordered, record, release, rows, watch,
};

use super::harness::clang::compile_text;
use super::harness::{Arg, Grid, Kernel, module, value, widths};

/// Bytes of memory whose accesses are remembered.
const BYTES: usize = 1 << 20;
/// Offset of local memory.
const LOCAL: usize = 1 << 19;

pub const BOTH: Checks =
    Checks { memory: false, init: false, portable: false, reach: false, races: true, sync: true };

thread_local! {
    /// The next run.
    static NEXT: Cell<u32> = const { Cell::new(1) };
    /// The first run of each launch, and their number.
    static LAUNCHES: RefCell<Vec<(u32, u32)>> = const { RefCell::new(Vec::new()) };
}

extern "C" fn begin(_block: u64, launch: u64, groups: u32) -> u32 {
    assert_eq!(launch, 77);
    let first = NEXT.replace(NEXT.get() + groups);
    LAUNCHES.with_borrow_mut(|all| all.push((first, groups)));
    first
}

/// All launches follow each other.
extern "C" fn is_ordered(run: u32, mine: u32) -> u64 {
    assert!(run < mine);
    let launch = LAUNCHES.with_borrow(|all| all.iter().copied().rfind(|it| it.0 <= run));
    let (first, count) = launch.expect("a run of a launch");
    assert!(mine - first >= count, "the same launch");
    ordered::YES | u64::from(count) << ordered::COUNT | u64::from(first)
}

/// Memory with cells, and what kernels find.
pub struct World {
    memory: *mut u8,
    cells: *mut u64,
    ring: Vec<u64>,
    counts: Vec<u64>,
    watch: Vec<u64>,
    releases: Vec<u64>,
    command: Vec<u32>,
}

/// An access of a race, or a place of a divergent barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    /// The place: an instruction, by its word in the SPIR-V module.
    pub word: u32,
    pub writes: bool,
    /// The group, counted from the first one of the launch, and the item in it.
    pub group: u32,
    pub item: u32,
}

/// A race: the later access and the earlier one, and the first byte, as an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Race {
    pub at: u64,
    pub later: Seen,
    pub earlier: Seen,
}

fn map(bytes: usize) -> *mut u8 {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping.
    let at = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    at.cast()
}

impl World {
    pub fn new() -> Self {
        let memory = map(2 * BYTES);
        let mut world = Self {
            memory: memory.wrapping_add((memory as usize).wrapping_neg() % BYTES),
            cells: map(rows::all(BYTES as u64 - 1).expect("it is small") as usize).cast(),
            ring: vec![0; record::SIZE as usize / 8 + 8],
            counts: vec![0; 1000],
            watch: vec![0; watch::SIZE as usize / 8],
            releases: vec![0; (release::COUNT * release::BYTES) as usize / 8],
            command: vec![0; command::SIZE as usize / 4],
        };
        let ring = &world.ring[world.ring_start()] as *const u64;
        for (at, word) in [
            (watch::MASK, BYTES as u64 - 1),
            (watch::START, world.memory as u64),
            (watch::RING, ring as u64),
            (watch::COUNTS, world.counts.as_ptr() as u64),
            (watch::CELLS, world.cells as u64),
            (watch::BEGIN, begin as *const () as u64),
            (watch::ORDERED, is_ordered as *const () as u64),
            (watch::RELEASES, world.releases.as_ptr() as u64),
        ] {
            world.watch[at as usize / 8] = word;
        }
        world
    }

    fn ring_start(&self) -> usize {
        (self.ring.as_ptr() as usize).wrapping_neg() % 64 / 8
    }

    /// The argument for memory from an offset on.
    pub fn at(&self, offset: usize) -> Arg<'static> {
        value(self.memory as u64 + offset as u64)
    }

    /// Runs a kernel once; returns what it finds, in order: races, and items at divergent barriers.
    pub fn run(
        &mut self,
        kernel: &Kernel,
        grid: Grid,
        args: Vec<Arg<'_>>,
    ) -> (Vec<Race>, Vec<Seen>) {
        let base = NEXT.get();
        let words = vec![self.watch.as_ptr() as u64, 77, 0, self.command.as_ptr() as u64, 0];
        // SAFETY: local memory lies in the mapping.
        kernel.run_in(grid, args, 0, words, Some(unsafe { self.memory.add(LOCAL) }));
        assert_eq!(self.command[command::LEFT as usize / 4], 0, "all groups have begun");
        self.take(kernel, grid, base)
    }

    /// Looks at stores of equal values, too.
    pub fn with_equal_values(mut self) -> Self {
        self.watch[watch::FLAGS as usize / 8] = 1;
        self
    }

    /// Whether something was forgotten since the last call.
    pub fn has_dropped(&mut self) -> bool {
        let start = self.ring_start();
        std::mem::take(&mut self.ring[start + record::DROPPED as usize / 8]) != 0
    }

    fn take(&mut self, kernel: &Kernel, grid: Grid, base: u32) -> (Vec<Race>, Vec<Seen>) {
        let start = self.ring_start();
        let first = start + record::FIRST as usize / 8;
        let sites = &kernel.code.sites.as_ref().expect("it is checked").sites;
        let (mut races, mut parted) = (Vec::new(), Vec::new());
        for i in 0..self.ring[start] as usize {
            let word = |at: usize| self.ring[first + i * record::WORDS + at];
            assert_eq!(word(record::READY), i as u64 + 1);
            let site = &sites[word(record::SITE) as u32 as usize];
            let [x, y, z] =
                [0, 21, 42].map(|shift| (word(record::LOCAL_ID) >> shift & 0x1f_ffff) as u32);
            let item = x + grid.group[0] * (y + grid.group[1] * z);
            let group = word(record::GROUP) as u32 & 0x1f_ffff;
            let other = word(record::STATES);
            let bits = |at: u32, mask: u64| (other >> at & mask) as u32;
            match site.kind {
                SiteKind::Touch { writes, .. } => {
                    assert_eq!(word(record::RUN) as u32 - base, group);
                    let later = Seen { word: site.word, writes, group, item };
                    let earlier = Seen {
                        word: sites[bits(cell::SITE, cell::LAST_SITE.into()) as usize].word,
                        writes: other & cell::WRITES != 0,
                        group: bits(cell::RUN, 0xff_ffff) - base,
                        item: bits(cell::ITEM, 0x3ff),
                    };
                    let at = word(record::ADDRESS) - self.memory as u64;
                    races.push(Race { at, later, earlier });
                }
                SiteKind::Barrier => {
                    parted.push(Seen { word: site.word, writes: false, group, item });
                    let word = sites[word(record::ADDRESS) as usize].word;
                    parted.push(Seen { word, writes: false, group, item: other as u32 });
                }
                kind => panic!("{kind:?}"),
            }
        }
        self.ring[start..].fill(0);
        self.counts.fill(0);
        (races, parted)
    }
}

/// Compiles a kernel of OpenCL C and runs it: optimised at all widths, as it is written at one of them.
pub fn in_all_widths(text: &str, run: impl Fn(&mut World, &Kernel, u32)) {
    in_widths(text, &["-O0"], |lanes| lanes == 8, &run);
    in_widths(text, &["-O2"], |_| true, run);
}

/// Compiles a kernel of OpenCL C with each of these options and runs it at the widths that `is` names.
pub fn in_widths(
    text: &str,
    options: &[&str],
    is: impl Fn(u32) -> bool,
    run: impl Fn(&mut World, &Kernel, u32),
) {
    for option in options {
        let module = module(&compile_text(text, &[option]));
        for (target, lanes) in widths().into_iter().filter(|it| is(it.1)) {
            let kernel = Kernel::checked(&module, "k", &target, lanes, BOTH);
            run(&mut World::new(), &kernel, lanes);
        }
    }
}

/// Items of a pair, the smaller one first.
pub fn pair(race: &Race) -> (u32, u32) {
    let (a, b) = (race.later.item, race.earlier.item);
    (a.min(b), a.max(b))
}

/// A kernel has a race among the items of each pair that `is_pair` names, and no other, exactly if `wrong`.
pub fn try_pairs(body: &str, grid: Grid, is_pair: impl Fn(u32, u32) -> bool) {
    try_pairs_in(body, grid, is_pair, |text, run| in_all_widths(text, run));
}

/// [`try_pairs`] at some widths only: `run_in` runs a kernel.
pub fn try_pairs_in(
    body: &str,
    grid: Grid,
    is_pair: impl Fn(u32, u32) -> bool,
    run_in: impl Fn(&str, &dyn Fn(&mut World, &Kernel, u32)),
) {
    for wrong in [true, false] {
        let define =
            if wrong { "#define BARRIER" } else { "#define BARRIER barrier(CLK_LOCAL_MEM_FENCE);" };
        let text = format!(
            "{define}\nkernel void k(global int *a, local int *s) {{ int i = get_local_id(0), g = get_global_id(0); {body} }}"
        );
        run_in(&text, &|world, kernel, lanes| {
            for _ in 0..2 {
                let args = vec![world.at(4096), Arg::Local(4096)];
                let (races, parted) = world.run(kernel, grid, args);
                assert_eq!(parted, []);
                assert_eq!(!races.is_empty(), wrong, "{lanes}: {races:?}");
                for race in races {
                    let (a, b) = pair(&race);
                    assert!(is_pair(a, b), "{lanes}: {race:?}");
                    assert_eq!(race.later.group, race.earlier.group);
                }
                assert!(!world.has_dropped());
            }
        });
    }
}

#[test]
fn a_missing_barrier_between_a_write_and_a_read_is_told() {
    let body = "s[i] = g; BARRIER a[g] = s[(i + 1) % 64];";
    try_pairs(body, Grid::line(256, 64), |a, b| b - a == 1 || b - a == 63);
}

#[test]
fn a_missing_barrier_between_a_read_and_a_write_is_told() {
    let body = "s[i] = g; barrier(CLK_LOCAL_MEM_FENCE); int x = s[(i + 5) % 64]; BARRIER s[i] = x; a[g] = s[i];";
    try_pairs(body, Grid::line(256, 64), |a, b| b - a == 5 || b - a == 59);
}

#[test]
fn a_missing_barrier_in_a_loop_is_told() {
    let body = "s[i] = g; barrier(CLK_LOCAL_MEM_FENCE);
        for (int n = 32; n > 0; n /= 2) { if (i < n) s[i] += s[i + n]; BARRIER }
        if (i == 0) a[get_group_id(0)] = s[0];";
    try_pairs(body, Grid::line(128, 64), |_, b| b > 0);
}

/// A kernel looks at a cell under the lock of its block, which the driver takes, too. If a lock stays taken, a kernel
/// takes it all the same after a while, and frees it at the end: that shows which lock it has used.
#[test]
fn cells_are_used_under_the_lock_of_their_block() {
    let text = "kernel void k(global int *a) { a[get_global_id(0)] = 1; }";
    in_all_widths(text, |world, kernel, lanes| {
        let rows = rows::rows(BYTES as u64 - 1).expect("it is small") as usize;
        let cells = world.cells;
        let lock = |block: usize| {
            let at = rows + block * rows::BYTES as usize + rows::LOCK as usize;
            // SAFETY: it lies in what is remembered of all blocks, and no kernel runs.
            unsafe { &mut *cells.byte_add(at).cast::<u32>() }
        };
        for offset in [4096, 4096 + (1 << release::BLOCK)] {
            let near = (4096 >> release::BLOCK) - 8..(4096 >> release::BLOCK) + 8;
            near.clone().for_each(|block| *lock(block) = 1);
            let (races, _) = world.run(kernel, Grid::line(16, 16), vec![world.at(offset)]);
            assert_eq!(races, [], "{lanes}");
            let free = near.filter(|&block| *lock(block) == 0);
            assert_eq!(free.collect::<Vec<_>>(), [offset >> release::BLOCK], "{lanes}");
        }
    });
}

/// Groups that write each other's elements, and those that do not.
#[test]
fn groups_that_nothing_orders_race() {
    let text = "kernel void k(global int *a, int far) {
        int g = get_global_id(0);
        a[g] = g;
        if (a[g + far] == -5) a[g + 4096] = 1;
    }";
    in_all_widths(text, |world, kernel, lanes| {
        let grid = Grid::line(256, 64);
        let (races, _) = world.run(kernel, grid, vec![world.at(4096), value(0)]);
        assert_eq!(races, [], "{lanes}");
        let (races, _) = world.run(kernel, grid, vec![world.at(4096), value(64)]);
        assert!(!races.is_empty(), "{lanes}");
        for race in races {
            assert_eq!(race.later.group, race.earlier.group + 1, "{lanes}");
            assert!(
                race.later.item == race.earlier.item && race.later.writes && !race.earlier.writes
            );
            assert_eq!(race.at, 4096 + u64::from(64 * race.later.group + race.later.item) * 4);
        }
    });
}

/// Bytes of one word belong to several items.
#[test]
fn neighbouring_bytes_do_not_race() {
    let text = "kernel void k(global uchar *a, int all) {
        int g = get_global_id(0);
        a[g] = g;
        barrier(CLK_GLOBAL_MEM_FENCE);
        a[g / 2 * 2 + all * (g & 1)] += 1;
    }";
    in_all_widths(text, |world, kernel, lanes| {
        let grid = Grid::line(256, 64);
        let (races, _) = world.run(kernel, grid, vec![world.at(4096), value(1)]);
        assert_eq!(races, [], "{lanes}");
        let (races, _) = world.run(kernel, grid, vec![world.at(4096), value(0)]);
        assert!(!races.is_empty(), "{lanes}");
        assert!(races.iter().all(|it| pair(it).0 + 1 == pair(it).1), "{lanes}: {races:?}");
    });
}

/// Stores of one value to one place are not told, those of different values are.
#[test]
fn stores_of_equal_values_are_not_told() {
    let text = "kernel void k(global int *a, global float *f, int each) {
        int g = get_global_id(0);
        *a = 7 + g * each;
        f[1] = 0.5f;
    }";
    in_all_widths(text, |world, kernel, lanes| {
        let grid = Grid::line(256, 64);
        let args = |world: &World, each: i32| vec![world.at(4096), world.at(8192), value(each)];
        assert_eq!(world.run(kernel, grid, args(world, 0)).0, [], "{lanes}");
        let (races, _) = world.run(kernel, grid, args(world, 1));
        assert!(!races.is_empty() && races.iter().all(|it| it.at == 4096), "{lanes}: {races:?}");
    });
}

/// Atomics do not race with each other, but with other accesses.
#[test]
fn atomics_race_with_other_accesses_only() {
    let text = "kernel void k(global int *a, int plain) {
        int g = get_global_id(0);
        atomic_inc(a + (g & 7));
        if (plain && g == 100) a[3] += 1;
    }";
    in_all_widths(text, |world, kernel, lanes| {
        let grid = Grid::line(256, 64);
        assert_eq!(world.run(kernel, grid, vec![world.at(4096), value(0)]).0, [], "{lanes}");
        let (races, _) = world.run(kernel, grid, vec![world.at(4096), value(1)]);
        assert!(!races.is_empty(), "{lanes}");
        for race in races {
            assert!(
                race.at == 4096 + 12 && (race.later.item == 36 || race.earlier.item == 36),
                "{race:?}"
            );
        }
    });
}

/// The last group to count itself adds what all have written: release and acquire by an atomic order that.
#[test]
fn release_and_acquire_order_by_scope() {
    let kernel = |order: &str, scope: &str| {
        format!(
            "kernel void k(global int *a, global atomic_uint *count) {{
                int g = get_group_id(0);
                local int last;
                if (get_local_id(0) == 0) {{
                    a[g] = g + 1;
                    last = atomic_fetch_add_explicit(count, 1, memory_order_{order}, memory_scope_{scope}) == 3;
                }}
                barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
                if (last && get_local_id(0) < 4) a[100 + get_local_id(0)] = a[get_local_id(0)];
            }}"
        )
    };
    for (order, scope, races) in [
        ("acq_rel", "device", false),
        ("relaxed", "device", true),
        ("release", "device", true),
        ("acquire", "device", true),
        ("acq_rel", "work_group", true),
    ] {
        in_all_widths(&kernel(order, scope), |world, kernel, lanes| {
            let args = vec![world.at(4096), world.at(8192)];
            let (found, _) = world.run(kernel, Grid::line(128, 32), args);
            assert_eq!(!found.is_empty(), races, "{order} {scope} {lanes}: {found:?}");
            for race in found {
                assert_eq!(
                    (race.later.group, race.at),
                    (3, 4096 + 4 * u64::from(race.earlier.group))
                );
            }
        });
    }
}

/// The same with fences and atomics that order nothing themselves. (clang makes loads and stores of atomics
/// acquire and release whatever their order is.)
#[test]
fn fences_order() {
    let kernel = |before: &str, after: &str| {
        format!(
            "#define FENCE(order) atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_ ## order, memory_scope_device);
            kernel void k(global int *a, global atomic_uint *flag) {{
                if (get_group_id(0) == 0) {{
                    a[0] = 5;
                    {before}
                    atomic_exchange_explicit(flag, 1, memory_order_relaxed, memory_scope_device);
                }} else if (atomic_fetch_add_explicit(flag, 0, memory_order_relaxed, memory_scope_device)) {{
                    {after}
                    a[get_global_id(0)] = a[0];
                }}
            }}"
        )
    };
    let (release, acquire) = ("FENCE(release)", "FENCE(acquire)");
    for (before, after, races) in [
        (release, acquire, false),
        ("", acquire, true),
        (release, "", true),
        ("FENCE(acq_rel)", "FENCE(seq_cst)", false),
    ] {
        in_all_widths(&kernel(before, after), |world, kernel, lanes| {
            // SAFETY: within the memory.
            unsafe { world.memory.add(8192).write_bytes(0, 4) };
            let args = vec![world.at(4096), world.at(8192)];
            let (found, _) = world.run(kernel, Grid::line(4, 1), args);
            assert_eq!(!found.is_empty(), races, "{before} {after} {lanes}: {found:?}");
        });
    }
}

/// Items that do not reach a barrier, or another one.
#[test]
fn divergent_barriers_are_told() {
    for (body, items) in [
        ("if (i < 20) return; barrier(CLK_LOCAL_MEM_FENCE);", [20, 19]),
        ("if (i < 20) barrier(CLK_LOCAL_MEM_FENCE); else barrier(CLK_LOCAL_MEM_FENCE);", [0, 20]),
        ("for (int n = 0; n <= i / 60; n++) barrier(CLK_LOCAL_MEM_FENCE);", [60, 59]),
        ("for (int n = 0; n <= 2; n++) barrier(CLK_LOCAL_MEM_FENCE);", [0, 0]),
        ("if (a[0] == 7) return; barrier(CLK_LOCAL_MEM_FENCE);", [0, 0]),
    ] {
        let text = format!("kernel void k(global int *a) {{ int i = get_local_id(0); {body} }}");
        in_all_widths(&text, |world, kernel, lanes| {
            let (races, parted) = world.run(kernel, Grid::line(64, 64), vec![world.at(4096)]);
            assert_eq!(races, []);
            if items == [0, 0] {
                assert_eq!(parted, [], "{body} {lanes}");
            } else {
                let seen: Vec<u32> = parted.iter().take(2).map(|it| it.item).collect();
                assert_eq!(seen.len(), 2, "{body} {lanes}");
                let is_early = |item: u32| match items {
                    [20, _] => item < 20,
                    [60, _] => item < 60,
                    _ => item < 20,
                };
                assert_ne!(is_early(seen[0]), is_early(seen[1]), "{body} {lanes}: {seen:?}");
                assert_eq!(is_early(seen[0]), items[0] == 0, "{body} {lanes}: {seen:?}");
            }
        });
    }
}

/// Barriers and exchanges of sub-groups order their items, and no others.
#[test]
fn sub_groups_order_their_items() {
    for (other, ordered) in [("i ^ 1", true), ("i ^ 16", false)] {
        let text = format!(
            "kernel void k(global int *a, local int *s) {{
                int i = get_local_id(0);
                s[i] = i;
                sub_group_barrier(CLK_LOCAL_MEM_FENCE);
                a[get_global_id(0)] = s[{other}];
            }}"
        );
        in_all_widths(&text, |world, kernel, lanes| {
            let args = vec![world.at(4096), Arg::Local(4096)];
            let (races, _) = world.run(kernel, Grid::line(128, 64), args);
            assert_eq!(races.is_empty(), ordered, "{other} {lanes}: {races:?}");
        });
    }
}

/// A full cell gives up an atomic load for another one, and not the atomic store that stands for more.
#[test]
fn an_atomic_store_stays_remembered_behind_many_loads() {
    let text = "
        kernel void k(global atomic_int *p, global int *a)
        {
            int i = get_local_id(0), g = get_group_id(0);
            if (g == 0 && i == 5)
                a[0] = *(volatile global int *)p;
            barrier(CLK_GLOBAL_MEM_FENCE);
            if (g < 2 && i == 1)
                a[1 + g] = atomic_load_explicit(p, memory_order_relaxed, memory_scope_device);
            if (g == 0 && i == 2)
                atomic_store_explicit(p, 7, memory_order_relaxed, memory_scope_device);
            if (g == 2 && i == 3)
                a[3] = *(volatile global int *)p;
        }";
    in_all_widths(text, |world, kernel, lanes| {
        let args = vec![world.at(4096), world.at(8192)];
        let (races, _) = world.run(kernel, Grid::line(48, 16), args);
        let items: Vec<_> = races
            .iter()
            .map(|it| (it.later.group, it.later.item, it.earlier.group, it.earlier.item))
            .collect();
        assert_eq!(items, [(2, 3, 0, 2)], "{lanes}");
    });
}
