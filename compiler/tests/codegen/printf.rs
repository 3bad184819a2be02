// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiled kernels print at every width the same as in the interpreter; and a full ring refuses calls.

use tally_compiler::interp;
use tally_compiler_protocol::printf::{self, CAPACITY, DATA, HEAD, REFUSED, SKIP, TAIL};

use crate::harness::{Arg, Grid, Kernel, buffer, clang, module, value, widths};

/// A ring, as the driver creates it.
struct Ring {
    words: Vec<u64>,
    start: usize,
}

impl Ring {
    fn new(capacity: usize) -> Self {
        let words = vec![0_u64; (2 * DATA + capacity) / 8];
        let start = words.as_ptr().align_offset(DATA);
        let mut ring = Self { words, start };
        *ring.word(CAPACITY) = capacity as u64;
        ring
    }

    fn address(&self) -> u64 {
        self.words[self.start..].as_ptr() as u64
    }

    fn word(&mut self, offset: usize) -> &mut u64 {
        &mut self.words[self.start + offset / 8]
    }

    /// Returns the texts of all records and frees them.
    fn drain(&mut self) -> Vec<String> {
        let mut texts = Vec::new();
        let capacity = *self.word(CAPACITY) as usize;
        while *self.word(TAIL) < *self.word(HEAD) {
            let at = DATA + *self.word(TAIL) as usize % capacity;
            let first = *self.word(at);
            let size = (first & !SKIP) as usize;
            assert!(size >= 8 && size.is_multiple_of(8) && at + size <= DATA + capacity);
            let words = &mut self.words[self.start + at / 8..][..size / 8];
            if first & SKIP == 0 {
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                let text = printf::text(&bytes).expect("a kernel has written it");
                texts.push(String::from_utf8(text).expect("it is ASCII"));
            }
            words.fill(0);
            *self.word(TAIL) += size as u64;
        }
        texts
    }
}

/// An argument for both.
#[derive(Clone)]
enum Given {
    Out(usize),
    Text(Vec<u8>),
    Value(Vec<u8>),
    Local(usize),
}

fn given<T: Copy>(it: T) -> Given {
    match value(it) {
        Arg::Bytes(bytes) => Given::Value(bytes),
        _ => unreachable!("a value's bytes"),
    }
}

/// Runs a kernel in the interpreter and at every width; all must print the same, in some order.
fn agree(file: &str, name: &str, grid: Grid, args: &[Given]) -> Vec<String> {
    let spirv = clang::compile(file, &["-O1"]);
    let module = module(&spirv);
    let (number, _) = module.kernel(name).expect("the file has it");
    let mut memory = interp::Memory::new();
    let mut next = 0x10000;
    let mut place = |bytes: Vec<u8>, memory: &mut interp::Memory| {
        let at = next;
        next += 0x10000;
        memory.map(at, bytes).expect("there is room");
        interp::Arg::pointer(at)
    };
    let list: Vec<interp::Arg> = args
        .iter()
        .map(|arg| match arg {
            Given::Out(n) => place(vec![0; 4 * n], &mut memory),
            Given::Text(text) => place(text.clone(), &mut memory),
            Given::Value(bytes) => interp::Arg::Bytes(bytes.clone()),
            Given::Local(size) => interp::Arg::Local(*size as u64),
        })
        .collect();
    let launch = interp::Launch {
        global_size: grid.global,
        group_size: grid.group,
        global_offset: grid.offset,
        work_dim: 1,
        step_limit: 1 << 26,
    };
    interp::run(&module, number, &launch, &list, &mut memory).unwrap_or_else(|e| panic!("{e}"));
    let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).expect("it is ASCII");
    let printed: Vec<String> = memory.printed().iter().map(text).collect();
    let mut expected = printed.clone();
    expected.sort();
    let out = memory.buffer(0x10000).map(<[u8]>::to_vec);
    for (target, lanes) in widths() {
        let kernel = Kernel::with_lanes(&module, name, &target, lanes);
        let mut ring = Ring::new(1 << 20);
        let mut owned: Vec<Given> = args.to_vec();
        let mut outs: Vec<Vec<u32>> =
            owned.iter().filter_map(|it| matches!(it, Given::Out(_)).then_some(vec![])).collect();
        for (out, arg) in outs.iter_mut().zip(args) {
            if let Given::Out(n) = arg {
                out.resize(*n, 0);
            }
        }
        let mut places = outs.iter_mut();
        let list = owned
            .iter_mut()
            .map(|arg| match arg {
                Given::Out(_) => buffer(places.next().expect("as many").as_mut_slice()),
                Given::Text(text) => buffer(text.as_mut_slice()),
                Given::Value(bytes) => Arg::Bytes(bytes.clone()),
                Given::Local(size) => Arg::Local(*size),
            })
            .collect();
        kernel.run_printing(grid, list, ring.address());
        let mut printed = ring.drain();
        printed.sort();
        assert_eq!(printed, expected, "{name} with {lanes} lanes for {}", target.name);
        assert_eq!(*ring.word(REFUSED), 0);
        let bytes: Vec<u8> = outs[0].iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(Some(bytes), out, "{name} with {lanes} lanes");
    }
    printed
}

#[test]
fn every_kind_of_argument_arrives() {
    let args = [
        Given::Out(40),
        given(40_i32),
        given(1.25_f32),
        given(1e-7_f64),
        given(1_i64 << 40),
        given(0xdead_beef_u64),
        given([1_f32, 2.0, 3.0, 4.0]),
        given([250_u8, 251, 252, 0]),
    ];
    let printed = agree("printf_kinds.cl", "kinds", Grid::line(40, 20), &args);
    assert_eq!(printed.len(), 160);
    let first = "3 of 40: 3.75 1e-07 1099511627773 d odd %\n";
    assert!(printed.iter().any(|text| text == first), "{printed:#?}");
    let second = "0xdeadbeef 4.000000,5.000000,6.000000,7.000000 0xfa,0xfb,0xfc|\
                  1.000e+00,2.000e+00,3.000e+00,4.000e+00\n";
    assert!(printed.iter().any(|text| text == second), "{printed:#?}");
    let fourth = "3,6,9,12,15,18,21,24 10000000000,3 3,1.25\n";
    assert!(printed.iter().any(|text| text == fourth), "{printed:#?}");
}

#[test]
fn items_that_part_print_for_themselves_only() {
    let args = [Given::Out(64), Given::Text(b"a string in a buffer\0".to_vec())];
    let printed = agree("printf.cl", "divergent", Grid::line(64, 32), &args);
    let told = printed.iter().filter(|text| text.ends_with("says a string in a buffer\n")).count();
    assert_eq!(told, 13);
    assert!(printed.iter().all(|text| !text.starts_with("loop 0 ")), "{printed:#?}");
}

#[test]
fn kernels_with_barriers_print() {
    let printed = agree(
        "printf.cl",
        "with_barriers",
        Grid::line(64, 32),
        &[Given::Out(64), Given::Local(128)],
    );
    assert_eq!(printed.len(), 128);
    assert!(printed.iter().any(|text| text == "after 1 900\n"), "{printed:#?}");
}

#[test]
fn a_full_ring_refuses_and_each_refusal_is_known_to_the_caller() {
    // "When the internal buffer becomes full, additional calls to print formatted output will
    // return an error code." (core programming guide, Formatted Output)
    const CALLS: i32 = 50;
    let module = module(&clang::compile("printf.cl", &["-O1"]));
    for (target, lanes) in widths() {
        let kernel = Kernel::with_lanes(&module, "many", &target, lanes);
        let mut ring = Ring::new(4096);
        // The second round begins where the first one ended, so that records wrap.
        for _ in 0..3 {
            let mut out = vec![0_i32; 32];
            let args = vec![buffer(&mut out), value(CALLS)];
            kernel.run_printing(Grid::line(32, 16), args, ring.address());
            let refused: i32 = out.iter().sum();
            let printed = ring.drain();
            assert_eq!(printed.len() as i32 + refused, 32 * CALLS, "{lanes} lanes");
            assert!(refused > 0 && printed.len() > 50, "{refused} refused");
            assert_eq!(*ring.word(REFUSED), refused as u64);
            *ring.word(REFUSED) = 0;
            assert!(printed.iter().all(|text| text.ends_with('\n')));
        }
    }
}
