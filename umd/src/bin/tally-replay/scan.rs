// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first pass over a recording: is it whole, and which of the program's memory do its commands use?

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use ze_tally::recording::{Begin, Reader, Record, Value};

use crate::Result;

const PAGE: u64 = 4096;
/// The most bytes of the program's memory that a replay provides.
const MOST: u64 = 1 << 40;

/// Bytes that are written: address, mask, bytes.
pub type Write = (u64, Vec<u8>, Vec<u8>);

/// What the pass has found.
#[derive(Default)]
pub struct Scan {
    /// The recording's head.
    pub begin: Begin,
    /// The program's memory: start and end of ranges of whole pages that neither overlap nor touch.
    pub host: BTreeMap<u64, u64>,
    /// What host functions wrote: by function and call, the addresses, masks and bytes.
    pub functions: HashMap<(u32, u32), Vec<Write>>,
    /// What was not kept.
    pub not_kept: Vec<String>,
    /// The number of calls.
    pub calls: u64,
    /// The program has ended by itself.
    pub ended: bool,
    /// The file ends inside a chunk.
    pub cut: bool,
}

/// Opens a recording.
pub fn open(path: &Path) -> Result<Reader<BufReader<File>>> {
    Ok(Reader::new(BufReader::new(File::open(path)?))?)
}

impl Scan {
    /// Reads all of a recording.
    pub fn of(path: &Path) -> Result<Self> {
        let mut reader = open(path)?;
        let mut scan = Self::default();
        match reader.read()? {
            Some(Record::Begin(begin)) => scan.begin = begin,
            Some(_) => return Err("the recording does not begin with its head".into()),
            None => return Err("the recording is empty".into()),
        }
        while let Some(record) = reader.read()? {
            match record {
                Record::Begin(_) => return Err("the recording has two heads".into()),
                Record::Call(call) => {
                    if usize::from(call.call) >= scan.begin.names.len() {
                        return Err(format!("call {} has no name", call.number).into());
                    }
                    scan.calls += 1;
                    // A call that failed used nothing.
                    for value in call.args.iter().filter(|_| call.result == 0) {
                        scan.value(value)?;
                    }
                }
                Record::Host { address, data } => scan.add(address, data.0.len() as u64)?,
                // It wrote nothing more.
                Record::Function { data, .. } if data.0.is_empty() => {}
                Record::Function { function, before, address, mask, data } => {
                    if !scan.is_reserved(address) {
                        scan.add(address, data.0.len() as u64)?;
                    }
                    let writes = scan.functions.entry((function, before)).or_default();
                    writes.push((address, mask.0, data.0));
                }
                Record::NotKept(what) => scan.not_kept.push(what),
                Record::End => scan.ended = true,
                Record::Memory { .. }
                | Record::Word { .. }
                | Record::Either { .. }
                | Record::Waits
                | Record::Idle
                | Record::Expect { .. } => {}
            }
        }
        scan.cut = reader.is_cut();
        Ok(scan)
    }

    /// Whether an address is one of the driver's.
    pub fn is_reserved(&self, address: u64) -> bool {
        address.wrapping_sub(self.begin.reservation.0) < self.begin.reservation.1
    }

    fn value(&mut self, value: &Value) -> Result<()> {
        match value {
            &Value::Memory(address, bytes) if !self.is_reserved(address) => {
                self.add(address, bytes)
            }
            Value::List(values) => values.iter().try_for_each(|value| self.value(value)),
            _ => Ok(()),
        }
    }

    /// Adds a range of the program's memory.
    fn add(&mut self, address: u64, bytes: u64) -> Result<()> {
        let end = address.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(PAGE));
        let Some(mut end) = end.filter(|_| bytes <= MOST) else {
            return Err(format!("a command uses {bytes} bytes at {address:#x}").into());
        };
        let mut start = address & !(PAGE - 1);
        end = end.max(start + PAGE);
        // Ranges that touch or overlap become one.
        while let Some((&other, &until)) = self.host.range(..=end).next_back()
            && until >= start
        {
            self.host.remove(&other);
            start = start.min(other);
            end = end.max(until);
        }
        self.host.insert(start, end);
        Ok(())
    }
}
