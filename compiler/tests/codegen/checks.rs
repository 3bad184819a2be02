// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checked kernels: the accesses that they report, at all widths, and their unchanged results.

use std::ptr;

use tally_compiler_protocol::checks::{
    Checks, DEFINED, NO_MEMORY, SiteKind, UNDEFINED, record, watch,
};

use tally_compiler::codegen::{Options, kernel_code};
use tally_compiler::ir::Module;

use super::harness::clang::compile_text;
use super::harness::{Arg, Grid, Kernel, module, targets, value, widths};
use super::{gathers, named_barriers};

/// Number of bytes with states.
const BYTES: usize = 1 << 20;

const NONE: Checks =
    Checks { memory: false, init: false, portable: false, reach: false, races: false, sync: false };
const ALL: Checks = Checks { memory: true, init: true, ..NONE };
const MEMORY: Checks = Checks { memory: true, ..NONE };

/// Memory with states, and the reports of kernels about it.
struct World {
    memory: *mut u8,
    shadow: *mut u8,
    ring: Vec<u64>,
    counts: Vec<u64>,
    watch: Vec<u64>,
    reached: Vec<u64>,
}

/// The contents of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    kind: SiteKind,
    /// Offset in the memory, or in a variable.
    at: u64,
    item: [u64; 3],
    items: u32,
}

impl World {
    fn new() -> Self {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, with room to begin at a multiple of its size.
        let map = || unsafe { libc::mmap(ptr::null_mut(), 2 * BYTES, protection, flags, -1, 0) };
        let aligned = |at: *mut libc::c_void| {
            assert_ne!(at, libc::MAP_FAILED);
            at.cast::<u8>().wrapping_add((at as usize).wrapping_neg() % BYTES)
        };
        let (memory, shadow) = (aligned(map()), aligned(map()));
        let ring = vec![0; record::SIZE as usize / 8 + 8];
        let mut world = Self {
            memory,
            shadow,
            ring,
            counts: vec![0; 200],
            watch: vec![0; watch::SIZE as usize / 8],
            reached: vec![0; watch::SEEN_COUNT as usize],
        };
        let ring = world.ring_start();
        let fields = [
            (watch::MASK, BYTES as u64 - 1),
            (watch::SHADOW, world.shadow as u64),
            (watch::START, world.memory as u64),
            (watch::RING, (&raw const world.ring[ring]) as u64),
            (watch::COUNTS, world.counts.as_ptr() as u64),
            (watch::SEEN, world.reached.as_ptr() as u64),
        ];
        for (at, word) in fields {
            world.watch[at as usize / 8] = word;
        }
        world
    }

    /// Forgets which reached places were reported, so that they are reported again.
    fn forget(&mut self) {
        self.reached.fill(0);
    }

    fn ring_start(&self) -> usize {
        (self.ring.as_ptr() as usize).wrapping_neg() % 64 / 8
    }

    /// Sets the states of bytes.
    fn set(&mut self, at: usize, bytes: usize, state: u8) {
        assert!(at + bytes <= BYTES);
        // SAFETY: within the shadow.
        unsafe { self.shadow.add(at).write_bytes(state, bytes) };
    }

    fn states(&self, at: usize, bytes: usize) -> Vec<u8> {
        assert!(at + bytes <= BYTES);
        // SAFETY: within the shadow.
        unsafe { std::slice::from_raw_parts(self.shadow.add(at), bytes).to_vec() }
    }

    fn words(&self) -> [u64; 3] {
        [self.watch.as_ptr() as u64, 77, 0]
    }

    /// The argument for memory from an offset on.
    fn at(&self, offset: usize) -> Arg<'static> {
        value(self.memory as u64 + offset as u64)
    }

    /// Takes the new reports, in order.
    fn take(&mut self, kernel: &Kernel) -> Vec<Seen> {
        let start = self.ring_start();
        let head = self.ring[start] as usize;
        let first = start + record::FIRST as usize / 8;
        let seen = (0..head).map(|i| {
            let word = |at: usize| self.ring[first + i * record::WORDS + at];
            assert_eq!(word(record::READY), i as u64 + 1);
            assert_eq!(word(record::LAUNCH), 77);
            let site = &kernel.code.sites.as_ref().expect("it is checked").sites
                [word(record::SITE) as u32 as usize];
            let offset = matches!(
                site.kind,
                SiteKind::ReadVariable { .. }
                    | SiteKind::WriteVariable { .. }
                    | SiteKind::ReadUnwritten { .. }
                    | SiteKind::ReadLocal
                    | SiteKind::WriteLocal
                    | SiteKind::Use
            );
            let base = if offset { 0 } else { self.memory as u64 };
            Seen {
                kind: site.kind,
                at: word(record::ADDRESS).wrapping_sub(base),
                item: [0, 1, 2].map(|d| word(record::GLOBAL_ID + d)),
                items: (word(record::ITEMS) as u32).count_ones(),
            }
        });
        let seen = seen.collect();
        self.ring.fill(0);
        self.counts.fill(0);
        seen
    }
}

/// Compiles a kernel of OpenCL C with checks and runs it at all widths.
fn in_all_widths(text: &str, checks: Checks, run: impl Fn(&mut World, &Kernel, u32)) {
    for options in [&["-O0"], &["-O2"]] {
        module_in_all_widths(&module(&compile_text(text, options)), checks, &run);
    }
}

/// Builds the kernel `k` with checks and runs it at all widths.
fn module_in_all_widths(module: &Module, checks: Checks, run: impl Fn(&mut World, &Kernel, u32)) {
    for (target, lanes) in widths() {
        let kernel = Kernel::checked(module, "k", &target, lanes, checks);
        assert!(!kernel.code.remark.contains("one item"), "{}", kernel.code.remark);
        run(&mut World::new(), &kernel, lanes);
    }
}

/// Only the item that is beyond the end is reported.
#[test]
fn an_item_beyond_the_end_is_told() {
    let text = "kernel void k(global int *a, int n) {
        int i = get_global_id(0);
        if (i <= n) a[i] = i;
    }";
    in_all_widths(text, ALL, |world, kernel, lanes| {
        let n = 100;
        world.set(4096, 4 * n, UNDEFINED);
        let args = vec![world.at(4096), value(n as i32)];
        kernel.run_checked(Grid::line(256, 64), args, 0, &world.words());
        let seen = Seen { kind: SiteKind::Write, at: 4096 + 400, item: [100, 0, 0], items: 1 };
        assert_eq!(world.take(kernel), [seen], "{lanes}");
        assert!(world.states(4096, 400).iter().all(|&state| state == DEFINED));
    });
}

/// A gather of four components is checked where its mask is true, and only there.
#[test]
fn a_gather_beyond_the_end_is_told() {
    module_in_all_widths(&gathers::reads_beyond(), MEMORY, |world, kernel, lanes| {
        world.set(4096, 4 * 101, DEFINED);
        world.set(8192, 16 * 101, DEFINED);
        let args = vec![world.at(8192), world.at(4096)];
        kernel.run_checked(Grid::line(101, 50), args, 0, &world.words());
        let seen = Seen { kind: SiteKind::Read, at: 4096 + 404, item: [100, 0, 0], items: 1 };
        assert_eq!(world.take(kernel), [seen], "{lanes}");
    });
}

/// Named barriers are no accesses, and those between them are checked as others are.
#[test]
fn accesses_between_named_barriers_are_checked() {
    let module = named_barriers::pairs(16, 64);
    for target in targets() {
        for lanes in [1, 16] {
            let kernel = Kernel::checked(&module, "k", &target, lanes, ALL);
            let world = &mut World::new();
            world.set(4096, 4 * 100, DEFINED);
            world.set(8192, 4 * 128, UNDEFINED);
            let args = vec![world.at(8192), world.at(4096)];
            kernel.run_checked(Grid::line(128, 64), args, 0, &world.words());
            let seen = world.take(&kernel);
            assert!(!seen.is_empty(), "{lanes}");
            let beyond = |it: &Seen| it.kind == SiteKind::Read && it.at >= 4096 + 400;
            assert!(seen.iter().all(beyond), "{lanes}: {seen:?}");
        }
    }
}

/// A copy of bytes is checked as a whole, and the states are copied too: uninitialised bytes are
/// reported where they are used, through any number of copies.
#[test]
fn copies_of_structures_are_checked_and_move_states() {
    let text = "struct pair { int a; char b[24]; int c; };
    kernel void k(global struct pair *to, global struct pair *from, global int *out) {
        int i = get_global_id(0);
        to[i] = from[i];
        out[i] = to[i].c + 1;
    }";
    in_all_widths(text, ALL, |world, kernel, lanes| {
        let (n, size) = (64, 32);
        let (to, from, out) = (4096, 16384, 32768);
        world.set(to, size * n, UNDEFINED);
        // The last one is 4 bytes short, and the last member of the third one is not initialised.
        world.set(from, size * n - 4, DEFINED);
        world.set(from + 2 * size + 28, 4, UNDEFINED);
        world.set(out, 4 * n, UNDEFINED);
        let args = vec![world.at(to), world.at(from), world.at(out)];
        kernel.run_checked(Grid::line(n as u64, 32), args, 0, &world.words());
        let mut seen = world.take(kernel);
        seen.sort_by_key(|it| it.item);
        assert_eq!(seen.len(), 2, "{seen:?} with {lanes} lanes");
        let undefined = &seen[0];
        assert_eq!((undefined.item[0], undefined.kind), (2, SiteKind::Read), "{lanes}");
        assert_eq!(undefined.at, (to + 2 * size + 28) as u64);
        let beyond = &seen[1];
        assert_eq!((beyond.item[0], beyond.kind), (63, SiteKind::Read), "{lanes}");
        assert!((from + 63 * size..from + 64 * size).contains(&(beyond.at as usize)), "{beyond:?}");
    });
}

/// Padding, the fourth component of a vector of three, and values that a select drops are no mistakes.
#[test]
fn what_is_only_moved_is_not_told() {
    let text = "struct odd { char a; int b; };
    kernel void k(global struct odd *to, global struct odd *from, global float4 *v, global int *out) {
        int i = get_global_id(0);
        to[i] = from[i];
        float3 xyz = v[i].xyz;
        int limit = out[i];
        int other = from[i + 64].b * 3;
        out[i] = (int)(xyz.x + xyz.y + xyz.z) + (limit > 0 ? limit : other) + to[i].a + to[i].b;
    }";
    in_all_widths(text, ALL, |world, kernel, lanes| {
        let (n, to, from, v, out) = (64, 4096, 16384, 32768, 65536);
        world.set(to, 8 * n, UNDEFINED);
        world.set(from, 8 * 2 * n, UNDEFINED);
        world.set(v, 16 * n, UNDEFINED);
        world.set(out, 4 * n, DEFINED);
        for i in 0..n {
            world.set(from + 8 * i, 1, DEFINED);
            world.set(from + 8 * i + 4, 4, DEFINED);
            world.set(v + 16 * i, 12, DEFINED);
        }
        // SAFETY: within the memory.
        unsafe { world.memory.add(out).write_bytes(1, 4 * n) };
        let args = vec![world.at(to), world.at(from), world.at(v), world.at(out)];
        kernel.run_checked(Grid::line(n as u64, 32), args, 0, &world.words());
        assert_eq!(world.take(kernel), [], "{lanes}");
        let mut wanted = vec![DEFINED; 8];
        wanted[1..4].fill(UNDEFINED);
        assert_eq!(world.states(to, 8), wanted, "{lanes}");
    });
}

/// Inaccessible memory stays inaccessible, and is reported again at another place.
#[test]
fn a_mistake_changes_no_states() {
    let text = "kernel void k(global int *a) {
        int i = get_global_id(0);
        a[i] = i;
        a[i] += 1;
    }";
    in_all_widths(text, MEMORY, |world, kernel, _| {
        world.set(4096, 4 * 30, DEFINED);
        kernel.run_checked(Grid::line(32, 32), vec![world.at(4096)], 0, &world.words());
        assert_eq!(world.take(kernel).iter().map(|it| it.items).sum::<u32>(), 2);
        assert_eq!(world.states(4096 + 120, 8), [NO_MEMORY; 8]);
    });
}

/// In private variables the offset is compared with the variable's size.
#[test]
fn private_arrays_are_checked() {
    let text = "kernel void k(global int *a, int far) {
        int i = get_global_id(0);
        int mine[8];
        for (int j = 0; j < 8; j++) mine[(i + j) & 7] = j;
        mine[(i & 7) + (i == 5) * far] = 3;
        a[i] = mine[i & 7];
    }";
    in_all_widths(text, MEMORY, |world, kernel, lanes| {
        world.set(4096, 4 * 64, DEFINED);
        for (far, at) in [(3, 32), (-6, -4_i64 as u64)] {
            let args = vec![world.at(4096), value(far)];
            kernel.run_checked(Grid::line(64, 32), args, 0, &world.words());
            let seen = world.take(kernel);
            let kind = SiteKind::WriteVariable { size: 32 };
            assert!(!seen.is_empty(), "{lanes}");
            for it in seen {
                assert_eq!((it.kind, it.at, it.item[0], it.items), (kind, at, 5, 1), "{lanes}");
            }
        }
    });
}

/// An element that nothing has written is told where it is used, by the items that use it; elements that
/// were written, in an order that only the running kernel knows, are not.
#[test]
fn unwritten_private_elements_are_told() {
    let text = "kernel void k(global int *a, int few) {
        int i = get_global_id(0);
        int mine[8];
        for (int j = 0; j < 8; j++)
            if (j != few || i % 16 != 5) mine[(i + j) & 7] = j;
        int sum = 0;
        for (int j = 0; j < 8; j++) sum += mine[j ^ (i & 7)];
        a[i] = sum;
    }";
    in_all_widths(text, ALL, |world, kernel, lanes| {
        for (few, wrong) in [(9, 0), (3, 2)] {
            world.set(4096, 4 * 32, UNDEFINED);
            let args = vec![world.at(4096), value(few)];
            kernel.run_checked(Grid::line(32, 32), args, 0, &world.words());
            let seen = world.take(kernel);
            let kind = SiteKind::ReadUnwritten { size: 32 };
            assert_eq!(seen.iter().map(|it| it.items).sum::<u32>(), wrong, "{lanes}: {seen:?}");
            for it in seen {
                // Items 5 and 21: their element (5 + 3) & 7.
                assert_eq!((it.kind, it.at, it.item[0] % 16), (kind, 0, 5), "{lanes}");
            }
        }
    });
}

/// A variable that is written on some ways only is told on the others, before optimisation. (An optimising
/// compiler has taken any value for it.)
#[test]
fn an_unwritten_private_variable_is_told() {
    let text = "__attribute__((optnone, noinline))
    kernel void k(global int *a, int n) {
        int i = get_global_id(0), it;
        if (i < n) it = i;
        a[i] = it * 2;
    }";
    in_all_widths(text, ALL, |world, kernel, lanes| {
        for (n, wrong) in [(32, 0), (30, 2)] {
            world.set(4096, 4 * 32, UNDEFINED);
            let args = vec![world.at(4096), value(n)];
            kernel.run_checked(Grid::line(32, 32), args, 0, &world.words());
            let seen = world.take(kernel);
            let kind = SiteKind::ReadUnwritten { size: 4 };
            assert_eq!(seen.iter().map(|it| it.items).sum::<u32>(), wrong, "{lanes}: {seen:?}");
            assert!(seen.iter().all(|it| it.kind == kind && it.at == 0 && it.item[0] >= 30));
        }
    });
}

/// Padding, bits of one byte that are written one after another, and a structure of which a part is copied and
/// never used are no mistakes in private memory either; the part that is used later is one.
#[test]
fn states_move_through_private_memory() {
    let text = "struct odd { char a; int b; int c; int d[20]; };
    kernel void k(global struct odd *to, global struct odd *from, global int *out, int n) {
        int i = get_global_id(0);
        struct odd mine[3];
        mine[n] = from[i];
        mine[n ^ 1] = mine[n];
        to[i] = mine[n ^ 1];
        uchar few[4];
        few[i & 3] = (few[i & 3] & 0xf8) | (i & 7);
        few[i & 3] = (few[i & 3] & 7) | (i << 3);
        out[i] = to[i].a + to[i].b + few[i & 3];
        out[i + 32] = to[i].c + to[i].d[19];
    }";
    in_all_widths(text, ALL, |world, kernel, lanes| {
        let (n, size, to, from, out) = (32, 92, 4096, 16384, 32768);
        for whole in [true, false] {
            world.set(to, size * n, UNDEFINED);
            world.set(from, size * n, DEFINED);
            world.set(out, 8 * n, UNDEFINED);
            for i in 0..n {
                world.set(from + size * i + 1, 3, UNDEFINED);
            }
            world.set(from + 8, 4, if whole { DEFINED } else { UNDEFINED });
            let args = vec![world.at(to), world.at(from), world.at(out), value(1)];
            kernel.run_checked(Grid::line(n as u64, 32), args, 0, &world.words());
            let seen = world.take(kernel);
            assert_eq!(seen.len(), usize::from(!whole), "{lanes}: {seen:?}");
            assert!(seen.iter().all(|it| it.at == to as u64 + 8 && it.item[0] == 0), "{seen:?}");
        }
    });
}

/// An atomic access that crosses a multiple of its size is reported, and still executed.
#[test]
fn misaligned_atomics_are_told() {
    let text = "kernel void k(global char *a, int by) {
        atomic_inc((global int *)(a + by));
    }";
    in_all_widths(text, MEMORY, |world, kernel, lanes| {
        world.set(4096, 64, DEFINED);
        let args = vec![world.at(4096), value(2_i32)];
        kernel.run_checked(Grid::line(16, 16), args, 0, &world.words());
        let seen = world.take(kernel);
        assert!(seen.iter().all(|it| it.kind == SiteKind::Align && it.at == 4098), "{seen:?}");
        assert!(!seen.is_empty(), "{lanes}");
    });
}

const REACH: Checks = Checks { portable: true, reach: true, ..NONE };

/// A launch reports the places that it reaches through pointers that it has read once for each 64 KiB.
#[test]
fn memory_behind_pointers_is_told_once() {
    let text = "kernel void k(global int *global *rows, global int *out) {
        int i = get_global_id(0), sum = 0;
        for (int k = 0; k < 8; k++) sum += rows[i & 3][k];
        out[i] = sum;
    }";
    in_all_widths(text, REACH, |world, kernel, lanes| {
        const GRANULE: usize = 1 << 16;
        for i in 0..4 {
            let row = world.memory as u64 + (GRANULE * (2 + i / 2) + 64 * i) as u64;
            // SAFETY: within the memory, which is aligned to its size.
            unsafe { world.memory.cast::<u64>().add(i).write(row) };
        }
        let args = vec![world.at(0), world.at(GRANULE)];
        kernel.run_checked(Grid::line(64, 32), args, 0, &world.words());
        let seen: Vec<usize> = world.take(kernel).iter().map(|it| it.at as usize).collect();
        let mut granules: Vec<usize> = seen.iter().map(|at| at / GRANULE).collect();
        granules.sort_unstable();
        granules.dedup();
        assert_eq!(granules, [2, 3], "{lanes}");
        // Another granule may have taken the place of one that was told.
        assert!(seen.len() <= 4, "{lanes}: {seen:?}");
        world.forget();
    });
}

/// A kernel that reaches memory through its arguments only has the same code as without checks.
#[test]
fn what_is_told_without_running_costs_nothing() {
    let text = "kernel void k(global double *a, global atomic_int *flag, int n) {
        while (atomic_load(flag) == 0);
        for (global double *it = a; it != a + n; it++) *it *= 2;
        a[n] = 0;
    }";
    let module = module(&compile_text(text, &["-O2"]));
    let (_, kernel) = module.kernel("k").expect("it is there");
    let target = &widths()[0].0;
    let code = |checks| {
        let options = Options { checks, ..Options::default() };
        kernel_code(&module, kernel, target, options).expect("it compiles")
    };
    let (with, without) = (code(REACH), code(Checks::default()));
    assert_eq!(with.blob, without.blob);
    let sites = with.sites.expect("it is looked at");
    let kinds: Vec<SiteKind> = sites.sites.iter().map(|site| site.kind).collect();
    assert_eq!(kinds, [SiteKind::Doubles, SiteKind::Waits]);
    assert_eq!(sites.written, [0]);
}
