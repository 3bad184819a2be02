// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fuzz targets as plain tests: every input of the corpus, and random ones from fixed seeds.

use std::fs;
use std::path::{Path, PathBuf};

use tally_fuzz::TARGETS;

/// The number of random inputs of each target.
const RANDOM: u64 = 3000;

/// A number sequence that is the same on every run: Marsaglia's xorshift64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| (self.next() >> 32) as u8).collect()
    }
}

/// The inputs of a target, by name.
fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{folder:?} is empty");
    files.into_iter().map(|file| (file.clone(), fs::read(file).expect("it can be read"))).collect()
}

/// Changes, moves or repeats bits, bytes and words of an input.
fn damage(random: &mut Random, input: &mut Vec<u8>) {
    for _ in 0..=random.next() % 4 {
        if input.len() < 8 {
            return;
        }
        let at = (random.next() % (input.len() as u64 - 4)) as usize;
        match random.next() % 4 {
            0 => input[at] ^= 1 << (random.next() % 8),
            1 => input[at] = random.next() as u8,
            2 => {
                let from = at & !3;
                let to = (random.next() % (input.len() as u64 - 4)) as usize & !3;
                input.copy_within(from..from + 4, to);
            }
            _ => {
                let word: Vec<u8> = input[at..at + 4].to_vec();
                input.splice(at..at, word);
            }
        }
    }
}

fn run(name: &str) {
    let (_, target) = TARGETS.iter().find(|(it, _)| *it == name).expect("there is such a target");
    let corpus = corpus(name);
    for (file, input) in &corpus {
        println!("{}", file.display());
        target(input);
    }
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for number in 0..RANDOM {
        let input = if number % 2 == 0 {
            let len = random.next() as usize % 2048;
            random.bytes(len)
        } else {
            let mut input = corpus[random.next() as usize % corpus.len()].1.clone();
            damage(&mut random, &mut input);
            input
        };
        println!("random input {number}");
        target(&input);
    }
}

#[test]
fn spirv() {
    run("spirv");
}

#[test]
fn packets() {
    run("packets");
}

#[test]
fn api() {
    run("api");
}
