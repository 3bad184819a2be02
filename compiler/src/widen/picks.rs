// SPDX-License-Identifier: MIT OR Apache-2.0
//! Elements of several vectors that are put into one by shuffles, each of which takes two vectors.

/// What a shuffle takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The vector of this number.
    Vector(usize),
    /// What the shuffle of this number has made.
    Shuffle(usize),
}

/// A shuffle, as `Op::Shuffle` has it: the second vector's elements are numbered behind the first one's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pick {
    pub(super) of: [Source; 2],
    pub(super) places: Vec<Option<u32>>,
}

/// The shuffles that put the wanted elements into a vector, which is the last one's.
///
/// The vectors have `each` elements and begin at the given ones, in order. They can overlap, and have all that are wanted.
pub(super) fn picks(begins: &[u32], each: u32, wanted: &[u32]) -> Vec<Pick> {
    let vector = |element: u32| begins.iter().rposition(|&it| it <= element).unwrap_or(0);
    let mut picks: Vec<Pick> = Vec::new();
    let mut so_far: Option<(usize, Vec<bool>)> = None;
    for first in (0..begins.len()).step_by(2) {
        let second = (first + 1).min(begins.len() - 1);
        let place = |&element: &u32| match vector(element) {
            number if number == first => Some(element - begins[number]),
            number if number == second => Some(element - begins[number] + each),
            _ => None,
        };
        let places: Vec<Option<u32>> = wanted.iter().map(place).collect();
        if places.iter().all(Option::is_none) {
            continue;
        }
        let here: Vec<bool> = places.iter().map(Option::is_some).collect();
        picks.push(Pick { of: [Source::Vector(first), Source::Vector(second)], places });
        let own = picks.len() - 1;
        so_far = Some(match so_far {
            None => (own, here),
            Some((before, had)) => {
                let place = |(lane, (&had, &here)): (u32, (&bool, &bool))| match (had, here) {
                    (true, _) => Some(lane),
                    (_, true) => Some(lane + wanted.len() as u32),
                    _ => None,
                };
                let places = (0..).zip(had.iter().zip(&here)).map(place).collect();
                picks.push(Pick { of: [Source::Shuffle(before), Source::Shuffle(own)], places });
                (picks.len() - 1, had.iter().zip(&here).map(|(had, here)| had | here).collect())
            }
        });
    }
    picks
}

#[cfg(test)]
mod tests {
    use super::{Pick, Source, picks};

    /// What the shuffles make of vectors of consecutive numbers.
    fn made(begins: &[u32], each: u32, picks: &[Pick]) -> Vec<Option<u32>> {
        let mut results: Vec<Vec<Option<u32>>> = Vec::new();
        for pick in picks {
            let of = |source| match source {
                Source::Vector(number) => (0..each).map(|at| Some(begins[number] + at)).collect(),
                Source::Shuffle(number) => results[number].clone(),
            };
            let both = [of(pick.of[0]), of(pick.of[1])].concat();
            results.push(pick.places.iter().map(|place| both[(*place)? as usize]).collect());
        }
        results.pop().unwrap_or_default()
    }

    #[test]
    fn every_nth_element_of_overlapping_vectors_is_picked() {
        for each in [4, 8, 16] {
            for step in 1..=4 {
                let wanted: Vec<u32> = (0..8).map(|item| item * step).collect();
                let last = (wanted[7] + 1).saturating_sub(each);
                let count = (wanted[7] + 1).div_ceil(each);
                let begins: Vec<u32> = (0..count).map(|number| (number * each).min(last)).collect();
                let picks = picks(&begins, each, &wanted);
                let all: Vec<Option<u32>> = wanted.into_iter().map(Some).collect();
                assert_eq!(made(&begins, each, &picks), all, "every {step} of {each}");
                assert!(picks.len() <= begins.len(), "every {step} of {each}: {picks:?}");
            }
        }
    }

    #[test]
    fn vectors_without_wanted_elements_are_left_out() {
        let one =
            Pick { of: [Source::Vector(2), Source::Vector(3)], places: vec![Some(1), Some(6)] };
        assert_eq!(picks(&[0, 4, 8, 12], 4, &[9, 14]), [one]);
    }
}
