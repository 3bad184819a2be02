// SPDX-License-Identifier: MIT OR Apache-2.0
//! Group sizes that suit the device.
//!
//! A launch consists of whole groups, so a size divides the global size in each dimension. Among such sizes
//! this chooses the cheapest one in a small model of the device: it runs rows of the first dimension in vectors,
//! and the rest of a row one item at a time, or, in kernels with barriers, in a vector that is not full; rows
//! that would not fill a quarter of a vector run one item at a time. Each group costs its start, and units
//! without a group are idle. Of equally cheap sizes the one with the longest rows is chosen, if items access memory
//! side by side, and the one with the most rows otherwise.

/// The facts that the choice depends on.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Work-items of a vector.
    pub lanes: u32,
    /// Whether work-items wait for each other.
    pub waits: bool,
    /// The most work-items of a group.
    pub max_items: u32,
    /// Execution units.
    pub units: u32,
    /// The dimension in which the vectors of groups lie that have one there.
    pub axis: u8,
    /// Whether work-items that follow one another there access memory side by side, or at one place.
    pub side_by_side: bool,
}

/// Items of a group beyond which it gains little, and leaves less for other units.
const ENOUGH_ITEMS: u32 = 256;
/// The same in one dimension, where each unit has [`MANY_GROUPS`] of that size and items do not wait for each other.
/// Intel's driver suggests this size for such launches, and Intel's compute-benchmarks rely on it (`MutateGraph`).
const MANY_ITEMS: u32 = 1024;
const MANY_GROUPS: u64 = 16;
/// Costs in units of a single item.
const VECTOR: f64 = 2.0;
const GROUP: f64 = 16.0;
/// The part by which as many items again as are enough make a group worse.
const EXCESS: f64 = 0.25;

/// The best size of groups for `global` work-items.
pub fn suggest(mut global: [u32; 3], facts: Facts) -> [u32; 3] {
    // For the model that dimension is the first one.
    let axis = usize::from(facts.axis.min(2));
    if global[axis] < facts.lanes {
        return in_rows(global, facts);
    }
    global.swap(0, axis);
    let mut size = in_rows(global, facts);
    size.swap(0, axis);
    size
}

/// The same where vectors lie in the first dimension.
fn in_rows(global: [u32; 3], facts: Facts) -> [u32; 3] {
    let max = facts.max_items.max(1);
    let enough = enough_items(global, facts);
    let [mut xs, ys, zs] = global.map(|extent| divisors(extent, max));
    // Of sizes that cost the same, the first is taken. Long rows have fewer beginnings, and are read in order; rows of
    // one plane are nearer to each other than those of several.
    if facts.side_by_side {
        xs.reverse();
    }
    let mut best = ([1; 3], f64::INFINITY);
    for &x in &xs {
        for &y in ys.iter().rev().filter(|&&y| x * y <= max) {
            for &z in zs.iter().take_while(|&&z| x * y * z <= max) {
                let cost = cost(global, [x, y, z], facts, enough);
                if cost < best.1 {
                    best = ([x, y, z], cost);
                }
            }
        }
    }
    best.0
}

/// The divisors of a number up to `max`, ascending.
fn divisors(extent: u32, max: u32) -> Vec<u32> {
    (1..=extent.min(max)).filter(|&it| extent.is_multiple_of(it)).collect()
}

/// Items of a group beyond which more of them have a cost of their own.
fn enough_items(global: [u32; 3], facts: Facts) -> u32 {
    let [items, other, another] = global.map(u64::from);
    let groups = items / u64::from(MANY_ITEMS) / u64::from(facts.units.max(1));
    let many = groups >= MANY_GROUPS && other * another == 1 && !facts.waits;
    if many { MANY_ITEMS } else { ENOUGH_ITEMS }
}

/// The cost of the whole launch.
fn cost(global: [u32; 3], size: [u32; 3], facts: Facts, enough: u32) -> f64 {
    let lanes = facts.lanes.max(1);
    let rows = f64::from(size[1] * size[2]);
    let items = size.iter().product::<u32>();
    let (vectors, rest) = match (facts.waits, size[0] % lanes) {
        (true, 1..) if size[0] >= lanes / 4 => (size[0].div_ceil(lanes), 0),
        (true, 1..) => (0, size[0]),
        (_, rest) => (size[0] / lanes, rest),
    };
    let group = GROUP + rows * (f64::from(vectors) * VECTOR + f64::from(rest));
    let groups: f64 = (0..3).map(|i| f64::from(global[i] / size[i])).product();
    let rounds = (groups / f64::from(facts.units.max(1))).ceil();
    // A small cost for each item beyond enough: a quarter for twice as many. So the smaller of equal sizes is chosen, and
    // a row of 510 items in place of pieces of 17.
    let excess = f64::from(items.saturating_sub(enough)) / f64::from(enough);
    rounds * group * (1.0 + EXCESS * excess)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Facts =
        Facts { lanes: 16, waits: false, max_items: 1024, units: 2, axis: 0, side_by_side: false };

    fn checked(global: [u32; 3], facts: Facts) -> [u32; 3] {
        let size = suggest(global, facts);
        assert!((0..3).all(|i| global[i].is_multiple_of(size[i])), "{global:?}: {size:?}");
        assert!(size.iter().product::<u32>() <= facts.max_items, "{global:?}: {size:?}");
        size
    }

    #[test]
    fn rows_are_made_of_whole_vectors_where_that_is_possible() {
        for global in [[1 << 20, 1, 1], [4096, 4096, 1], [160, 90, 3], [48, 1000, 1]] {
            for waits in [false, true] {
                let [x, y, z] = checked(global, Facts { waits, ..PLAIN });
                assert!(x.is_multiple_of(16), "{global:?}: {:?}", [x, y, z]);
                assert!(x * y * z >= 64, "{global:?}: {:?}", [x, y, z]);
            }
        }
    }

    #[test]
    fn a_prime_size_is_one_group_if_it_fits_and_other_dimensions_help_if_not() {
        assert_eq!(checked([997, 1, 1], PLAIN), [997, 1, 1]);
        assert_eq!(checked([251, 1, 1], PLAIN), [251, 1, 1]);
        let [x, y, _] = checked([10_007, 512, 1], PLAIN);
        assert!(x == 1 && y >= 64, "{x} x {y}");
        assert_eq!(checked([10_007, 1, 1], PLAIN), [1; 3]);
    }

    #[test]
    fn uneven_rows_are_whole_where_their_pieces_would_fill_no_vectors() {
        assert_eq!(checked([510, 510, 1], PLAIN), [510, 1, 1]);
        assert_eq!(checked([1000, 1000, 1], PLAIN), [500, 1, 1]);
    }

    #[test]
    fn vectors_may_lie_in_another_dimension() {
        let turned = |axis| Facts { axis, ..PLAIN };
        assert!(checked([1000, 512, 1], turned(1))[1].is_multiple_of(16));
        assert!(checked([4, 7, 64], turned(2))[2].is_multiple_of(16));
        assert_eq!(checked([512, 4, 1], turned(1)), checked([512, 4, 1], PLAIN));
    }

    #[test]
    fn rows_with_barriers_need_not_be_made_of_whole_vectors() {
        let size = checked([1000, 1000, 1], Facts { waits: true, ..PLAIN });
        assert!(size[0] >= 100, "{size:?}");
    }

    #[test]
    fn items_side_by_side_lie_in_long_rows() {
        let side_by_side = Facts { side_by_side: true, ..PLAIN };
        assert_eq!(checked([2048, 2048, 1], side_by_side), [256, 1, 1]);
        assert_eq!(checked([64, 64, 64], side_by_side), [64, 4, 1]);
        assert_eq!(checked([2048, 2048, 1], PLAIN), [16, 16, 1]);
        let turned = Facts { axis: 1, ..side_by_side };
        assert_eq!(checked([2048, 2048, 1], turned), [1, 256, 1]);
    }

    #[test]
    fn all_units_get_a_group() {
        let [x, ..] = checked([256, 1, 1], Facts { units: 4, ..PLAIN });
        assert!(256 / x >= 4 && x.is_multiple_of(16), "{x}");
    }

    /// As Intel's driver suggests, where there is work for all.
    #[test]
    fn large_launches_have_large_groups() {
        assert_eq!(checked([65_536, 1, 1], PLAIN), [1024, 1, 1]);
        assert_eq!(checked([65_536, 1, 1], Facts { units: 16, ..PLAIN }), [256, 1, 1]);
        assert_eq!(checked([65_536, 1, 1], Facts { waits: true, ..PLAIN }), [256, 1, 1]);
    }

    #[test]
    fn limits_of_the_kernel_are_kept() {
        assert_eq!(checked([64, 64, 64], Facts { max_items: 1, ..PLAIN }), [1; 3]);
        let [x, y, z] = checked([64, 64, 64], Facts { max_items: 48, ..PLAIN });
        assert!(x * y * z <= 48 && x == 32 || x == 16, "{x} {y} {z}");
        checked([u32::MAX, u32::MAX, u32::MAX], PLAIN);
    }
}
