// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that open a program's shared events, and make some of its host calls on them.
//!
//! A partner is an ignored test of the same test program, [`TEST`], which calls [`serve`]. Each call of
//! a host thread has a partner of its own, so that a wait in one blocks no other.
//!
//! ```text
//! open counter|pool KEY HANDLE    query KEY    wait KEY NANOSECONDS    signal KEY    reset KEY    forget
//! wait-by-list KEY NANOSECONDS    signal-by-list KEY
//! ```

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use super::answer;
use super::events::{self, Made};
use crate::lists::NONE;
use crate::peer::{self, HandleBytes, Peer};
use crate::program::EventId;
use crate::program::backend::{Answered, BackendError};
use crate::ze::Gpu;
use crate::{call, check};
use tally_ze::*;

/// The ignored test that every test program with a backend has.
pub const TEST: &str = "partner";

/// The kind of object that a handle stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A counter-based event.
    Counter,
    /// A pool with one event.
    Pool,
}

/// A shared object.
#[derive(Clone, Copy)]
pub(super) struct Shared {
    pub(super) kind: Kind,
    pub(super) handle: HandleBytes,
}

struct Partner {
    peer: Peer,
    /// The program whose events it has open.
    program: u64,
    open: HashSet<EventId>,
}

static FREE: Mutex<Vec<Partner>> = Mutex::new(Vec::new());

/// Lets a partner make a call, such as `query` or `wait`, on an event of a program, and returns its
/// answer.
pub(super) fn ask(program: u64, event: EventId, shared: Shared, call: &str) -> Answered<bool> {
    let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let mut partner =
        free.unwrap_or_else(|| Partner { peer: Peer::start(TEST), program, open: HashSet::new() });
    if partner.program != program {
        partner.say("forget")?;
        (partner.program, partner.open) = (program, HashSet::new());
    }
    if partner.open.insert(event) {
        let kind = match shared.kind {
            Kind::Counter => "counter",
            Kind::Pool => "pool",
        };
        partner.say(&format!("open {kind} {} {}", event.0, peer::to_hex(&shared.handle)))?;
    }
    let (verb, rest) = call.split_once(' ').unwrap_or((call, ""));
    let said = partner.say(&format!("{verb} {} {rest}", event.0))?;
    FREE.lock().unwrap_or_else(PoisonError::into_inner).push(partner);
    Ok(said)
}

impl Partner {
    /// Sends one call; a partner whose call fails is not used again.
    fn say(&mut self, line: &str) -> Answered<bool> {
        self.peer.say(line);
        match self.peer.hear().as_str() {
            "ready" => Ok(true),
            "not ready" => Ok(false),
            said => Err(BackendError {
                call: format!("another process, told to {line:?},"),
                answer: said.to_owned(),
            }),
        }
    }
}

/// The body of the ignored test: makes calls until the program that started it has ended.
///
/// # Panics
/// If it does not understand a line.
pub fn serve() -> ! {
    let gpu = Gpu::new();
    let mut open = HashMap::new();
    while let Some(line) = peer::hear_or_end() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let done = match words[..] {
            ["forget"] => open.drain().try_for_each(|(_, opened): (_, Opened)| opened.close()),
            ["open", kind, key, handle] => {
                Opened::open(&gpu, kind, peer::from_hex(handle)).map(|opened| {
                    open.insert(key.to_owned(), opened);
                })
            }
            [verb, key, ref rest @ ..] => {
                let mut event = open.get(key).expect("it is opened first").made.event;
                let limit = || rest[0].parse().expect("nanoseconds");
                let result = match verb {
                    "query" => call!(zeEventQueryStatus(event)),
                    "wait" => call!(zeEventHostSynchronize(event, limit())),
                    "wait-by-list" => {
                        let list = gpu.immediate(0, true);
                        check!(zeCommandListAppendWaitOnEvents(list.0, 1, &raw mut event));
                        call!(zeCommandListHostSynchronize(list.0, limit()))
                    }
                    "signal-by-list" => {
                        let list = gpu.immediate(0, true);
                        check!(zeCommandListAppendSignalEvent(list.0, event));
                        call!(zeCommandListHostSynchronize(list.0, super::hang()))
                    }
                    "signal" => call!(zeEventHostSignal(event)),
                    "reset" => call!(zeEventHostReset(event)),
                    other => panic!("told to {other}"),
                };
                if result == ze_result_t::ZE_RESULT_NOT_READY {
                    peer::say("not ready");
                    continue;
                }
                answer(verb, result)
            }
            [..] => panic!("told {line:?}"),
        };
        match done {
            Ok(()) => peer::say("ready"),
            Err(error) => peer::say(&error.to_string()),
        }
    }
    // It exits here, since the parent reports the test's result.
    std::process::exit(0);
}

/// An object that a partner has open.
struct Opened {
    made: Made,
    pool: Option<ze_event_pool_handle_t>,
}

impl Opened {
    fn open(gpu: &Gpu, kind: &str, data: HandleBytes) -> Answered<Self> {
        if kind == "counter" {
            // The functions do the same; the handle does not tell which one made it.
            return Ok(Self { made: events::open(gpu.context, data, false)?, pool: None });
        }
        let (handle, mut pool) = (ze_ipc_event_pool_handle_t { data }, Default::default());
        let result = call!(zeEventPoolOpenIpcHandle(gpu.context, handle, &raw mut pool));
        answer("zeEventPoolOpenIpcHandle", result)?;
        let (desc, mut event) = (ze_event_desc_t::default(), NONE);
        check!(zeEventCreate(pool, &raw const desc, &raw mut event));
        Ok(Self { made: Made { event, end: events::End::Event }, pool: Some(pool) })
    }

    fn close(self) -> Answered<()> {
        self.made.end()?;
        match self.pool {
            Some(pool) => {
                answer("zeEventPoolCloseIpcHandle", call!(zeEventPoolCloseIpcHandle(pool)))
            }
            None => Ok(()),
        }
    }
}
