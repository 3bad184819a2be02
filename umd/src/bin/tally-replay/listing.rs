// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--list`: what a recording holds.

use std::fmt::Write as _;
use std::io::{ErrorKind, Write, stdout};
use std::path::Path;

use tally_ze::ze_result_t;
use ze_tally::recording::{Call, Record, Value, Written};

use crate::Result;
use crate::scan::{Scan, open};

/// Prints the recording.
pub fn print(file: &Path, scan: &Scan) -> Result<()> {
    match print_all(file, scan) {
        // The reader has closed the pipe.
        Err(error)
            if error
                .downcast_ref::<std::io::Error>()
                .is_some_and(|it| it.kind() == ErrorKind::BrokenPipe) =>
        {
            Ok(())
        }
        result => result,
    }
}

fn print_all(file: &Path, scan: &Scan) -> Result<()> {
    let mut out = stdout().lock();
    let begin = &scan.begin;
    writeln!(out, "program {}, driver {}, lane {}", begin.program, begin.driver, begin.lane)?;
    for (name, value) in &begin.settings {
        writeln!(out, "setting {name}={value}")?;
    }
    let mut reader = open(file)?;
    while let Some(record) = reader.read()? {
        match record {
            Record::Call(call) => writeln!(out, "{}", line(&call, &begin.names))?,
            Record::Memory { address, data, .. } => {
                writeln!(out, "       the host writes {} at {address:#x}", written(&data.0))?;
            }
            Record::Word { address, value, how } => {
                let how = match how {
                    Written::Stored => "the host stores",
                    Written::Added => "the host adds",
                    Written::Left => "the host or the device leaves",
                };
                writeln!(out, "       {how} {value:#x} at {address:#x}")?;
            }
            Record::Either { address, data, .. } => {
                let count = written(&data.0);
                writeln!(out, "       the host or the device writes {count} at {address:#x}")?;
            }
            Record::Host { address, data } => {
                writeln!(out, "       the program has {} at {address:#x}", bytes(data.0.len()))?;
            }
            Record::Function { function, data, .. } if data.0.is_empty() => {
                writeln!(out, "       host function {function} ends")?;
            }
            Record::Function { function, data, address, .. } => {
                let count = written(&data.0);
                writeln!(out, "       host function {function} writes {count} at {address:#x}")?;
            }
            Record::NotKept(what) => writeln!(out, "       not kept: {what}")?,
            Record::Begin(_)
            | Record::Waits
            | Record::Idle
            | Record::Expect { .. }
            | Record::End => {}
        }
    }
    let end = match (scan.cut, scan.ended) {
        (_, true) => "the program ended by itself",
        (true, false) => "the program was ended while this was written",
        (false, false) => "the program was ended from outside",
    };
    writeln!(out, "{} calls; {end}", scan.calls)?;
    Ok(())
}

/// Some bytes, or how many there are.
fn written(data: &[u8]) -> String {
    match data {
        [] | [_, _, _, _, _, _, _, _, _, ..] => bytes(data.len()),
        few => few.iter().map(|it| format!("{it:02x}")).collect::<Vec<_>>().join(" "),
    }
}

fn bytes(count: usize) -> String {
    if count == 1 { "1 byte".into() } else { format!("{count} bytes") }
}

fn line(call: &Call, names: &[String]) -> String {
    let name = names.get(usize::from(call.call)).map_or("?", String::as_str);
    let mut text = format!("{:>6} ", call.number);
    if call.thread != 1 {
        let _ = write!(text, "[thread {}] ", call.thread);
    }
    let args: Vec<String> = call.args.iter().map(value).collect();
    let _ = write!(text, "{name}({})", args.join(", "));
    match ze_result_t(call.result) {
        ze_result_t::ZE_RESULT_SUCCESS => {}
        result => _ = write!(text, " = {result:?}"),
    }
    text
}

fn value(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Word(word) if *word >= 1 << 32 => format!("{word:#x}"),
        Value::Word(word) => word.to_string(),
        Value::Driver => "driver".into(),
        Value::Device(number) => format!("device {number}"),
        Value::DefaultContext => "the default context".into(),
        Value::Object(number) => format!("#{number}"),
        Value::New(number) => format!("-> #{number}"),
        Value::Address(address, _) => format!("-> {address:#x}"),
        Value::Memory(address, _) => format!("{address:#x}"),
        // Short ones are numbers, texts or pointers.
        Value::Bytes(it) if it.0.len() == 8 => {
            let word = it.0.iter().rev().fold(0_u64, |word, &byte| word << 8 | u64::from(byte));
            format!("{{{word:#x}}}")
        }
        Value::Bytes(it)
            if it.0.len() <= 64 && it.0.iter().all(u8::is_ascii_graphic) && !it.0.is_empty() =>
        {
            format!("'{}'", String::from_utf8_lossy(&it.0))
        }
        Value::Bytes(it) if it.0.len() <= 32 && it.0.len().is_multiple_of(4) => {
            let words = it.0.chunks(4);
            let words = words
                .map(|it| it.iter().rev().fold(0_u32, |word, &byte| word << 8 | u32::from(byte)));
            format!("{{{}}}", words.map(|it| it.to_string()).collect::<Vec<_>>().join(", "))
        }
        Value::Bytes(it) => format!("{{{}}}", bytes(it.0.len())),
        Value::List(list) => {
            format!("[{}]", list.iter().map(self::value).collect::<Vec<_>>().join(", "))
        }
        Value::Chain(links) if links.len() == 1 => "desc".into(),
        Value::Chain(links) => format!("desc with {} extensions", links.len() - 1),
        Value::Sources(sources) => {
            let all: Vec<String> = sources.iter().map(|it| bytes(it.code.0.len())).collect();
            format!("code of {}", all.join(" and "))
        }
        Value::Out => "-".into(),
    }
}
