// SPDX-License-Identifier: MIT OR Apache-2.0
//! The format: what is written is read; damage of any kind is told.

use super::*;

fn records() -> Vec<Record> {
    let call = |number, args| Record::Call(Call { number, thread: 1, call: 3, result: 0, args });
    let noise: Vec<u8> = (0..5000_u32).map(|i| (i.wrapping_mul(2654435761) >> 13) as u8).collect();
    vec![
        Record::Begin(Begin { program: "p".into(), names: vec!["zeX".into()], ..Begin::default() }),
        call(1, vec![Value::Driver, Value::New(7), Value::Address(1 << 45, 4096)]),
        Record::Memory { address: 1 << 45, mask: Bytes(vec![1]), data: Bytes(vec![9]) },
        Record::Host { address: 77, data: Bytes(noise) },
        call(2, vec![Value::List(vec![Value::Object(7), Value::Null]), Value::Out]),
        Record::Idle,
        Record::Expect { address: 1 << 45, size: 4096, hash: 5 },
        Record::NotKept("nothing".into()),
        Record::End,
    ]
}

fn written() -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file).expect("memory");
    for (i, record) in records().iter().enumerate() {
        writer.add(record).expect("memory");
        if i % 3 == 0 {
            writer.flush().expect("memory");
        }
    }
    writer.flush().expect("memory");
    file
}

/// The records that can be read, whether the file is cut, and what is wrong.
fn read(file: &[u8]) -> (Vec<Record>, bool, Option<Problem>) {
    let mut reader = match Reader::new(file) {
        Ok(reader) => reader,
        Err(problem) => return (Vec::new(), false, Some(problem)),
    };
    let mut all = Vec::new();
    loop {
        match reader.read() {
            Ok(Some(record)) => all.push(record),
            Ok(None) => return (all, reader.is_cut(), None),
            Err(problem) => return (all, reader.is_cut(), Some(problem)),
        }
    }
}

#[test]
fn what_is_written_is_read() {
    let (all, cut, problem) = read(&written());
    assert_eq!(all, records());
    assert!(!cut && problem.is_none(), "{problem:?}");
}

#[test]
fn every_flipped_bit_is_told() {
    let file = written();
    let whole = records();
    for bit in 0..file.len() * 8 {
        let mut damaged = file.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let (all, _, problem) = read(&damaged);
        let problem = problem.unwrap_or_else(|| panic!("bit {bit} is not missed"));
        assert!(all.len() < whole.len() && all[..] == whole[..all.len()], "bit {bit}");
        match (bit / 8, problem) {
            (0..8, Problem::NoRecording) | (8..12, Problem::Version(_)) => {}
            (12.., Problem::Damaged { .. }) => {}
            (at, other) => panic!("byte {at}: {other}"),
        }
    }
}

#[test]
fn a_file_that_ends_early_is_read_up_to_there() {
    let file = written();
    let whole = records();
    let mut lengths = Vec::new();
    for length in 12..file.len() {
        let (all, cut, problem) = read(&file[..length]);
        assert!(problem.is_none(), "{length}: {problem:?}");
        assert_eq!(all[..], whole[..all.len()], "{length}");
        // At a chunk's end nothing is missing but the last record.
        assert!(cut || !all.contains(&Record::End), "{length}");
        lengths.push(all.len());
    }
    assert!(lengths.is_sorted() && lengths.contains(&1) && lengths.contains(&7), "{lengths:?}");
    for length in 0..12 {
        assert!(matches!(read(&file[..length]).2, Some(Problem::NoRecording)));
    }
}

#[test]
fn sizes_that_a_file_only_claims_cost_nothing() {
    // Each head has right hashes.
    for (stored, raw) in [(u32::MAX, u32::MAX), (1, u32::MAX), (9, 8), (200 << 20, 200 << 20)] {
        let mut file = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
        let mut head = [stored.to_le_bytes(), raw.to_le_bytes()].concat();
        head.extend_from_slice(&hash(b"x").to_le_bytes());
        head.extend_from_slice(&(hash(&head) as u32).to_le_bytes());
        file.extend_from_slice(&head);
        file.push(b'x');
        let (all, cut, problem) = read(&file);
        assert!(all.is_empty() && (cut || problem.is_some()), "{stored} {raw}");
    }
    // Lists in lists: each level is two bytes.
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file).expect("memory");
    writer.records = [&[1, 1, 1, 0, 0, 1][..], &[10, 1].repeat(10_000_000)].concat();
    writer.flush().expect("memory");
    let (all, _, problem) = read(&file);
    let problem = problem.map(|it| it.to_string()).unwrap_or_default();
    assert!(all.is_empty() && problem.contains("cannot be read"), "{problem}");
    // A record that says it has more bytes than there are.
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file).expect("memory");
    writer.records = vec![5, 1, 0xff, 0xff, 0xff, 0xff, 0x0f, 1];
    writer.flush().expect("memory");
    let (all, _, problem) = read(&file);
    assert!(all.is_empty() && matches!(problem, Some(Problem::Damaged { .. })), "{problem:?}");
}
