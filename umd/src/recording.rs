// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recordings: the format that `tally-run --record` writes and `tally-replay` reads (`docs/replay.md`).
//!
//! ```text
//!  file    magic (8 bytes), version (u32), chunks
//!  chunk   stored (u32), raw (u32), hash of the payload (u64), hash of these 16 bytes (u32), payload
//!  payload `stored` bytes: records one after the other (postcard); if `stored` < `raw`, compressed (LZ4 block)
//! ```
//!
//! Numbers are little-endian, hashes are XXH3. A chunk is written with one system call at each submission and host
//! wait, so what a killed program leaves is whole up to there. The first record is [`Record::Begin`]; the last
//! one of a program that has ended by itself is [`Record::End`].
//!
//! Nothing here knows the driver: calls are numbers, names and values.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::io::{self, Read, Write};

use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use twox_hash::XxHash3_64;

pub mod calls;

/// The first bytes of every recording.
pub const MAGIC: [u8; 8] = *b"TALLYREC";
/// The version of the format. Another version is refused: what a call's values mean may differ.
pub const VERSION: u32 = 2;
/// Variables that change what the device is: a recording keeps them, and a replay sets no others of it.
pub const SETTINGS: [&str; 9] = [
    "TALLY_DEVICES",
    "TALLY_SUBDEVICES",
    "TALLY_COMPUTE_ENGINES",
    "TALLY_COPY_ENGINES",
    "TALLY_MEMORY",
    "TALLY_DEVICE_AS",
    "ZE_AFFINITY_MASK",
    "ZE_FLAT_DEVICE_HIERARCHY",
    "ZE_SHARED_FORCE_DEVICE_ALLOC",
];
/// The most bytes of a chunk's records.
const MOST: usize = 64 << 20;
/// Bytes at which a chunk is ended.
const FULL: usize = 1 << 20;
/// Bytes of a chunk's head.
const HEAD: usize = 20;

/// Bytes, which are encoded as one piece.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Copied;
        impl Visitor<'_> for Copied {
            type Value = Bytes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Ok(Bytes(bytes.to_vec()))
            }
        }
        deserializer.deserialize_bytes(Copied).map_err(D::Error::custom)
    }
}

/// One step of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// What was recorded.
    Begin(Begin),
    /// A call of the program.
    Call(Call),
    /// Bytes of an allocation that the host has changed before the next call.
    Memory {
        /// Where they are.
        address: u64,
        /// A bit for each byte of the range, lowest first, that says whether it was changed; empty: all were.
        mask: Bytes,
        /// The bytes that were changed.
        data: Bytes,
    },
    /// A word of an allocation that the host has changed and that commands may wait for: it is written behind all
    /// bytes that were changed with it.
    Word {
        /// Where it is.
        address: u64,
        /// What it holds, or what was added to it.
        value: u64,
        /// How it came to that.
        how: Written,
    },
    /// Bytes that either the host or the device has changed: a replay writes those that still are what they were.
    Either {
        /// Whether the device had nothing left that it could run. If not, a kernel that waits for the host may run.
        settled: bool,
        /// Where they are.
        address: u64,
        /// As in [`Record::Memory`], but never empty.
        mask: Bytes,
        /// The bytes that were changed, as they were.
        old: Bytes,
        /// The same, as they are.
        data: Bytes,
    },
    /// The program's own memory, from which a command copies.
    Host {
        /// Where it was.
        address: u64,
        /// All bytes of it.
        data: Bytes,
    },
    /// What a host function has written when it was called.
    Function {
        /// Its number: functions are numbered in the order in which they were appended.
        function: u32,
        /// Calls of it before this one.
        before: u32,
        /// Where the bytes are.
        address: u64,
        /// As in [`Record::Memory`].
        mask: Bytes,
        /// The bytes that were changed.
        data: Bytes,
    },
    /// All work that was submitted is complete, or waits for something that is yet to come.
    Waits,
    /// All work that was submitted is complete.
    Idle,
    /// What memory holds that the device has written, now that all work is complete.
    Expect {
        /// Where it is.
        address: u64,
        /// Bytes.
        size: u64,
        /// [`hash`] of it.
        hash: u64,
    },
    /// What was not kept, as a sentence.
    NotKept(String),
    /// The program has ended by itself.
    End,
}

/// How a word came to what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Written {
    /// The host stored this.
    Stored,
    /// The host added this. Commands add to it, too, so only the sum is known.
    Added,
    /// It holds this when the device has nothing left that it could run. The device has written it, or the host.
    Left,
}

/// What was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    /// The driver's version.
    pub driver: String,
    /// The program's name and its process id.
    pub program: String,
    /// The lane: embedded or drm.
    pub lane: String,
    /// Variables of the environment that change what the device is.
    pub settings: Vec<(String, String)>,
    /// First address and bytes of the addresses in which allocations lie.
    pub reservation: (u64, u64),
    /// Names of calls; [`Call::call`] is an index here.
    pub names: Vec<String>,
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Its number in the recording, from 1.
    pub number: u64,
    /// The thread, in the order in which threads made their first call, from 1.
    pub thread: u32,
    /// The function.
    pub call: u16,
    /// The result.
    pub result: u32,
    /// The arguments.
    pub args: Vec<Value>,
}

/// An argument.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Value {
    /// A null pointer or handle.
    Null,
    /// A number.
    Word(u64),
    /// The driver.
    Driver,
    /// A device, by its identifier.
    Device(u32),
    /// The driver's default context.
    DefaultContext,
    /// An object that an earlier call has made.
    Object(u32),
    /// The object that the call makes gets this number.
    New(u32),
    /// The call returns this address. The second number is a size in bytes.
    Address(u64, u64),
    /// Memory that the command reads or writes: address, bytes.
    Memory(u64, u64),
    /// Bytes behind a pointer.
    Bytes(Bytes),
    /// Several values behind a pointer.
    #[serde(deserialize_with = "shallow")]
    List(Vec<Value>),
    /// A description and the structures that extend it.
    Chain(Vec<Bytes>),
    /// The sources of a module.
    Sources(Vec<Source>),
    /// The call returns a result there that is not used.
    Out,
}

/// One SPIR-V module of a module, or its native binary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Whether `code` is a native binary.
    pub native: bool,
    /// The code.
    pub code: Bytes,
    /// Build flags.
    pub flags: String,
    /// Specialisation constants: number and bits.
    pub constants: Vec<(u32, u64)>,
}

/// Lists of lists of values are as deep as it gets: a file that says otherwise must not exhaust the stack.
fn shallow<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Value>, D::Error> {
    const DEEPEST: u32 = 2;
    thread_local! {
        static DEPTH: Cell<u32> = const { Cell::new(0) };
    }
    let depth = DEPTH.get();
    if depth == DEEPEST {
        return Err(D::Error::custom("lists are too deep"));
    }
    DEPTH.set(depth + 1);
    let list = Vec::deserialize(deserializer);
    DEPTH.set(depth);
    list
}

/// The hash of memory in [`Record::Expect`]: XXH3, 64 bits.
pub fn hash(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// Writes a recording.
pub struct Writer<W> {
    to: W,
    records: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a recording.
    ///
    /// # Errors
    /// Those of writing.
    pub fn new(mut to: W) -> io::Result<Self> {
        to.write_all(&[&MAGIC[..], &VERSION.to_le_bytes()].concat())?;
        Ok(Self { to, records: Vec::new() })
    }

    /// Adds a record, which [`Writer::flush`] or a later record writes.
    ///
    /// # Errors
    /// Those of writing; InvalidInput: the record is too large.
    pub fn add(&mut self, record: &Record) -> io::Result<()> {
        let bytes = postcard::to_stdvec(record).map_err(io::Error::other)?;
        if bytes.len() > MOST {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a record is too large"));
        }
        if self.records.len() + bytes.len() > FULL {
            self.flush()?;
        }
        self.records.extend_from_slice(&bytes);
        Ok(())
    }

    /// Writes all records.
    ///
    /// # Errors
    /// Those of writing.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.records.is_empty() {
            return Ok(());
        }
        let raw = std::mem::take(&mut self.records);
        let packed = lz4_flex::block::compress(&raw);
        let payload = if packed.len() < raw.len() { &packed } else { &raw };
        let mut chunk = Vec::with_capacity(HEAD + payload.len());
        chunk.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        chunk.extend_from_slice(&(raw.len() as u32).to_le_bytes());
        chunk.extend_from_slice(&hash(payload).to_le_bytes());
        chunk.extend_from_slice(&(hash(&chunk) as u32).to_le_bytes());
        chunk.extend_from_slice(payload);
        self.to.write_all(&chunk)
    }
}

/// Why a recording cannot be read.
#[derive(Debug)]
pub enum Problem {
    /// Reading failed.
    Io(io::Error),
    /// It does not begin like a recording.
    NoRecording,
    /// Its format has another version.
    Version(u32),
    /// Not what was written, at this byte.
    Damaged {
        /// The first byte of the chunk.
        at: u64,
        /// What is wrong there.
        what: Cow<'static, str>,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::NoRecording => f.write_str("this is no recording of Tally's"),
            Self::Version(version) => write!(
                f,
                "its format has version {version}; this tally-replay reads version {VERSION}"
            ),
            Self::Damaged { at, what } => {
                write!(f, "the recording is damaged: at byte {at}, {what}")
            }
        }
    }
}

impl std::error::Error for Problem {}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads a recording.
pub struct Reader<R> {
    from: R,
    /// Bytes read so far.
    at: u64,
    records: Vec<u8>,
    /// Bytes of `records` that were returned.
    taken: usize,
    cut: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the head.
    ///
    /// # Errors
    /// [`Problem`].
    pub fn new(from: R) -> Result<Self, Problem> {
        let mut reader = Self { from, at: 0, records: Vec::new(), taken: 0, cut: false };
        let mut head = [0; 12];
        if reader.fill(&mut head)? != head.len() || head[..8] != MAGIC {
            return Err(Problem::NoRecording);
        }
        match u32::from_le_bytes([head[8], head[9], head[10], head[11]]) {
            VERSION => Ok(reader),
            version => Err(Problem::Version(version)),
        }
    }

    /// Whether the file ended inside a chunk. Known once there is no further record.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// The next record; none at the end of the file.
    ///
    /// # Errors
    /// [`Problem`].
    pub fn read(&mut self) -> Result<Option<Record>, Problem> {
        while self.taken == self.records.len() {
            if !self.chunk()? {
                return Ok(None);
            }
        }
        let rest = &self.records[self.taken..];
        let (record, rest) = postcard::take_from_bytes(rest)
            .map_err(|error| self.damaged(format!("a record cannot be read: {error}").into()))?;
        self.taken = self.records.len() - rest.len();
        Ok(Some(record))
    }

    fn damaged(&self, what: Cow<'static, str>) -> Problem {
        Problem::Damaged { at: self.at, what }
    }

    /// Reads the next chunk; false at the end.
    fn chunk(&mut self) -> Result<bool, Problem> {
        let mut head = [0; HEAD];
        let got = self.fill(&mut head)?;
        if got < HEAD {
            self.cut |= got != 0;
            return Ok(false);
        }
        let word = |i: usize| u32::from_le_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
        if hash(&head[..16]) as u32 != word(16) {
            return Err(self.damaged("the head of a chunk is not what was written".into()));
        }
        let (stored, raw) = (word(0) as usize, word(4) as usize);
        if raw > MOST || stored > raw {
            return Err(self.damaged(format!("a chunk has {raw} bytes").into()));
        }
        // Read piece by piece: a file that is shorter than it says costs no memory for what is not there.
        let mut payload = Vec::new();
        let read = (&mut self.from).take(stored as u64).read_to_end(&mut payload)?;
        if read < stored {
            self.cut = true;
            return Ok(false);
        }
        let expected = u64::from(word(8)) | u64::from(word(12)) << 32;
        if hash(&payload) != expected {
            return Err(self.damaged("a chunk is not what was written".into()));
        }
        self.at += stored as u64;
        self.taken = 0;
        self.records = match stored < raw {
            true => lz4_flex::block::decompress(&payload, raw).map_err(|error| {
                self.damaged(format!("a chunk cannot be unpacked: {error}").into())
            })?,
            false => payload,
        };
        if self.records.len() != raw {
            return Err(self.damaged("a chunk has another size than it says".into()));
        }
        Ok(true)
    }

    /// Reads until the buffer is full or the file ends.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, Problem> {
        let mut got = 0;
        while got < buffer.len() {
            match self.from.read(&mut buffer[got..]) {
                Ok(0) => break,
                Ok(more) => got += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.at += got as u64;
        Ok(got)
    }
}

#[cfg(test)]
mod tests;
