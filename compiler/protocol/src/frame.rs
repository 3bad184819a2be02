// SPDX-License-Identifier: MIT OR Apache-2.0
//! Framing: a little-endian 32-bit length, then that many bytes of postcard.

use std::fmt;
use std::io::{self, Read, Write};

use serde::{Serialize, de::DeserializeOwned};

/// The largest frame in bytes. A longer one is refused by the sender and the receiver, so that
/// a damaged length can't ask for memory without bound.
pub const MAX_FRAME: usize = 256 << 20;

/// A frame could not be sent or received. The stream is of no further use, except after
/// [`FrameError::TooLong`] on the sending side, where nothing was written.
#[derive(Debug)]
pub enum FrameError {
    /// The other side closed the stream between two frames: the orderly end.
    Closed,
    /// Reading or writing failed, or the stream ended inside a frame.
    Io(io::Error),
    /// The frame is longer than [`MAX_FRAME`].
    TooLong(usize),
    /// The bytes are not a message.
    Malformed(postcard::Error),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the stream was closed"),
            Self::Io(error) => write!(f, "the stream failed: {error}"),
            Self::TooLong(len) => write!(f, "a frame of {len} bytes exceeds {MAX_FRAME}"),
            Self::Malformed(error) => write!(f, "a frame is not a message: {error}"),
        }
    }
}

impl std::error::Error for FrameError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Malformed(error) => Some(error),
            Self::Closed | Self::TooLong(_) => None,
        }
    }
}

/// Sends one message.
///
/// # Errors
/// [`FrameError::TooLong`] before anything is written, else [`FrameError::Io`].
pub fn send<T: Serialize>(stream: &mut impl Write, message: &T) -> Result<(), FrameError> {
    let mut bytes = vec![0; 4];
    bytes = postcard::to_extend(message, bytes).map_err(FrameError::Malformed)?;
    let len = bytes.len() - 4;
    match u32::try_from(len) {
        Ok(word) if len <= MAX_FRAME => bytes[..4].copy_from_slice(&word.to_le_bytes()),
        _ => return Err(FrameError::TooLong(len)),
    }
    stream.write_all(&bytes).and_then(|()| stream.flush()).map_err(FrameError::Io)
}

/// Receives one message; blocks until it is there.
///
/// # Errors
/// [`FrameError::Closed`] if the stream ends before the first byte, others as named.
pub fn receive<T: DeserializeOwned>(stream: &mut impl Read) -> Result<T, FrameError> {
    let mut len = [0; 4];
    let mut have = 0;
    while have < len.len() {
        match stream.read(&mut len[have..]) {
            Ok(0) if have == 0 => return Err(FrameError::Closed),
            Ok(0) => return Err(FrameError::Io(io::ErrorKind::UnexpectedEof.into())),
            Ok(n) => have += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(FrameError::Io(error)),
        }
    }
    let len = u32::from_le_bytes(len);
    if len as usize > MAX_FRAME {
        return Err(FrameError::TooLong(len as usize));
    }
    // Grown while bytes arrive: a length alone does not cost memory.
    let mut bytes = Vec::new();
    stream.take(len.into()).read_to_end(&mut bytes).map_err(FrameError::Io)?;
    if bytes.len() != len as usize {
        return Err(FrameError::Io(io::ErrorKind::UnexpectedEof.into()));
    }
    let (message, rest) = postcard::take_from_bytes(&bytes).map_err(FrameError::Malformed)?;
    if rest.is_empty() {
        Ok(message)
    } else {
        Err(FrameError::Malformed(postcard::Error::SerdeDeCustom))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Request;

    fn bytes_of(message: &Request) -> Vec<u8> {
        let mut bytes = Vec::new();
        send(&mut bytes, message).unwrap();
        bytes
    }

    #[test]
    fn what_is_sent_is_received() {
        let sent = Request::Release { module: u64::MAX };
        let mut stream = &bytes_of(&sent)[..];
        assert_eq!(receive::<Request>(&mut stream).unwrap(), sent);
        assert!(matches!(receive::<Request>(&mut stream), Err(FrameError::Closed)));
    }

    #[test]
    fn a_stream_that_ends_inside_a_frame_is_an_error_and_not_an_orderly_end() {
        let bytes = bytes_of(&Request::Release { module: 1 });
        for len in 1..bytes.len() {
            assert!(matches!(receive::<Request>(&mut &bytes[..len]), Err(FrameError::Io(_))));
        }
    }

    #[test]
    fn a_frame_over_the_limit_is_refused_before_it_is_read() {
        let mut stream = &u32::MAX.to_le_bytes()[..];
        assert!(matches!(receive::<Request>(&mut stream), Err(FrameError::TooLong(_))));
    }

    #[test]
    fn bytes_after_the_message_make_a_frame_malformed() {
        let mut bytes = bytes_of(&Request::Release { module: 3 });
        bytes.push(0);
        bytes[0] += 1;
        assert!(matches!(receive::<Request>(&mut &bytes[..]), Err(FrameError::Malformed(_))));
    }

    #[test]
    fn a_vector_length_that_the_frame_does_not_hold_is_malformed() {
        // Build, module 0, spirv of 2^32 - 1 bytes that are not there.
        let body = [0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f];
        let mut bytes = vec![body.len() as u8, 0, 0, 0];
        bytes.extend(body);
        assert!(matches!(receive::<Request>(&mut &bytes[..]), Err(FrameError::Malformed(_))));
    }
}
