// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests the text of kernels' `printf`: scalars against the C library, vectors and malformed records
//! against expected text.

use std::ffi::{CString, c_char, c_int};

use tally_compiler_protocol::printf::{self, Kind, argument_header};

/// An argument's bytes in a record.
fn argument(kind: Kind, width: u8, components: u8, value: &[u8]) -> Vec<u8> {
    let mut bytes =
        argument_header(kind, width, components, value.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

fn int(value: i32) -> Vec<u8> {
    argument(Kind::Int, 4, 1, &value.to_le_bytes())
}

fn long(value: i64) -> Vec<u8> {
    argument(Kind::Int, 8, 1, &value.to_le_bytes())
}

fn double(value: f64) -> Vec<u8> {
    argument(Kind::Float, 8, 1, &value.to_le_bytes())
}

fn string(text: &str) -> Vec<u8> {
    argument(Kind::String, 1, 1, text.as_bytes())
}

fn print(format: &str, arguments: &[Vec<u8>]) -> String {
    let record = printf::record(format.as_bytes(), &arguments.concat());
    assert_eq!(record.len() % 8, 0);
    String::from_utf8_lossy(&printf::text(&record).expect("it is a record")).into_owned()
}

/// The output of the C library for a call of snprintf.
fn c(call: impl Fn(*mut c_char, usize) -> c_int) -> String {
    let mut out = vec![0_u8; 8192];
    let length = call(out.as_mut_ptr().cast(), out.len());
    out.truncate(usize::try_from(length).expect("it prints"));
    String::from_utf8_lossy(&out).into_owned()
}

fn c_int_of(format: &str, value: i32) -> String {
    let format = CString::new(format).expect("no NUL");
    // SAFETY: the buffer has the length that is given, and the format takes one int.
    c(|out, size| unsafe { libc::snprintf(out, size, format.as_ptr(), value) })
}

fn c_long_of(format: &str, value: i64) -> String {
    let format = CString::new(format).expect("no NUL");
    // SAFETY: the buffer has the length that is given, and the format takes one long.
    c(|out, size| unsafe { libc::snprintf(out, size, format.as_ptr(), value) })
}

fn c_double_of(format: &str, value: f64) -> String {
    let format = CString::new(format).expect("no NUL");
    // SAFETY: the buffer has the length that is given, and the format takes one double.
    c(|out, size| unsafe { libc::snprintf(out, size, format.as_ptr(), value) })
}

/// All sets of flags with some widths and precisions.
fn specifications(letter: &str) -> Vec<String> {
    let mut all = Vec::new();
    for flags in 0..32 {
        let set: String = "-+ #0"
            .chars()
            .enumerate()
            .filter(|(i, _)| flags >> i & 1 != 0)
            .map(|it| it.1)
            .collect();
        for width in ["", "1", "12", "40"] {
            for precision in ["", ".", ".0", ".1", ".3", ".17", ".30"] {
                all.push(format!("[%{set}{width}{precision}{letter}]"));
            }
        }
    }
    all
}

#[test]
fn integers_are_printed_as_c_prints_them() {
    for letter in ["d", "i", "u", "o", "x", "X"] {
        for format in specifications(letter) {
            for value in [0, 1, -1, 42, -12345, i32::MAX, i32::MIN] {
                assert_eq!(print(&format, &[int(value)]), c_int_of(&format, value), "{format}");
            }
        }
        for format in specifications(&format!("l{letter}")) {
            for value in [0, i64::MAX, i64::MIN, 0x1234_5678_9abc] {
                assert_eq!(print(&format, &[long(value)]), c_long_of(&format, value), "{format}");
            }
        }
        for length in ["h", "hh"] {
            let format = format!("%{length}{letter}");
            for value in [0, 0x1ff, 0x80, -1, 0x1_8000] {
                assert_eq!(print(&format, &[int(value)]), c_int_of(&format, value), "{format}");
            }
        }
    }
}

#[test]
fn floats_are_printed_as_c_prints_them() {
    let values = [
        0.0,
        -0.0,
        1.0,
        -1.5,
        0.5,
        2.5,
        0.1,
        0.25,
        0.35,
        9.995,
        99999.95,
        123_456_789.0,
        1e-5,
        1e-4,
        1e15,
        1e16,
        1e17,
        1e22,
        1e300,
        f64::MIN_POSITIVE,
        5e-324,
        2.2e-310,
        f64::MAX,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        0.000_123_456,
        1.999_999_999_999,
        12.0,
    ];
    for letter in ["f", "F", "e", "E", "g", "G", "a", "A"] {
        for format in specifications(letter) {
            for value in values {
                assert_eq!(
                    print(&format, &[double(value)]),
                    c_double_of(&format, value),
                    "{format} of {value:e}"
                );
            }
        }
    }
}

#[test]
fn characters_strings_and_addresses() {
    assert_eq!(print("%c%c|%3c|%-3c|", &[int(72), int(105), int(33), int(33)]), "Hi|  !|!  |");
    assert_eq!(
        print("%s, %8s|%-8s|%.2s", &["one", "two", "three", "four"].map(string)),
        "one,      two|three   |fo"
    );
    let address = argument(Kind::Pointer, 8, 1, &0xbeef_u64.to_le_bytes());
    assert_eq!(print("%p %12p", &[address.clone(), address]), "0xbeef       0xbeef");
    let null = argument_header(Kind::String, 1, 1, printf::NULL_STRING).to_le_bytes().to_vec();
    assert_eq!(print("%s %d", &[null, int(1)]), "(null) 1");
    assert_eq!(print("100%% of %d%%", &[int(5)]), "100% of 5%");
}

#[test]
fn a_vector_is_printed_with_commas_and_each_component_by_the_conversion() {
    // OpenCL C 3.0, printf: "float4 f = (float4)(1.0f, 2.0f, 3.0f, 4.0f);
    // printf("f4 = %2.2v4hlf\n", f);" prints "f4 = 1.00,2.00,3.00,4.00".
    let floats: Vec<u8> = [1_f32, 2.0, 3.0, 4.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let f4 = argument(Kind::Float, 4, 4, &floats);
    assert_eq!(print("f4 = %2.2v4hlf\n", &[f4]), "f4 = 1.00,2.00,3.00,4.00\n");
    // There: "uchar4 uc = (uchar4)(0xFA, 0xFB, 0xFC, 0xFD); printf("uc = %#v4hhx\n", uc);"
    // prints "uc = 0xfa,0xfb,0xfc,0xfd".
    let bytes = argument(Kind::Int, 1, 4, &[0xfa, 0xfb, 0xfc, 0xfd]);
    assert_eq!(print("uc = %#v4hhx\n", std::slice::from_ref(&bytes)), "uc = 0xfa,0xfb,0xfc,0xfd\n");
    assert_eq!(print("%v4hhd", &[bytes]), "-6,-5,-4,-3");
    let words: Vec<u8> = [5_u32, 6, 7].iter().flat_map(|x| x.to_le_bytes()).collect();
    assert_eq!(print("%04v3hld|", &[argument(Kind::Int, 4, 3, &words)]), "0005,0006,0007|");
    let halves: Vec<u8> =
        [0x3e00_u16, 0xc000, 0x0001, 0x7c00].iter().flat_map(|x| x.to_le_bytes()).collect();
    assert_eq!(print("%v4hg", &[argument(Kind::Float, 2, 4, &halves)]), "1.5,-2,5.96046e-08,inf");
    let longs: Vec<u8> = (0..16_i64).flat_map(|x| (-x).to_le_bytes()).collect();
    let all = (0..16).map(|x: i64| (-x).to_string()).collect::<Vec<_>>().join(",");
    assert_eq!(print("%v16ld", &[argument(Kind::Int, 8, 16, &longs)]), all);
}

#[test]
fn what_does_not_fit_is_printed_as_well_as_can_be_and_loses_nothing_else() {
    assert_eq!(print("%d and %s.\n", &[int(1)]), "1 and %s.\n");
    assert_eq!(print("%f", &[int(3)]), "3.000000");
    assert_eq!(print("%d", &[double(-3.7)]), "-3");
    assert_eq!(print("%s", &[int(16)]), "0x10");
    assert_eq!(print("%v5d %q %", &[]), "%v5d %q %");
    assert_eq!(
        print("%*d|%-*d|%.*f", &[int(4), int(7), int(3), int(8), int(1), double(0.5)]),
        "   7|8  |0.5"
    );
    assert_eq!(print("%999999999d", &[int(1)]).len(), 1 << 15);
}

#[test]
fn bytes_that_are_no_record_are_known() {
    let record = printf::record(b"%d %s", &[int(1), string("word")].concat());
    assert!(printf::text(&record).is_some());
    for length in 0..record.len() {
        assert!(printf::text(&record[..length]).is_none(), "{length}");
    }
    // A string in place of a width, whose header claims 200 bytes a component.
    let long = argument(Kind::String, 200, 1, &[b'!'; 200]);
    assert!(printf::text(&printf::record(b"%*d", &[long, int(1)].concat())).is_some());
    // A change of any byte of the headers is refused or printed, and never panics.
    for at in 0..record.len() {
        for bit in 0..8 {
            let mut damaged = record.clone();
            damaged[at] ^= 1 << bit;
            let _ = printf::text(&damaged);
        }
    }
}
