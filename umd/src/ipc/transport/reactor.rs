// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that serves all sockets of a process, as exporter and as importer.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use tally_ze::ze_result_t;

use super::exports;
use super::offer::Endpoint;
use super::peer::Peer;
use super::wire::{self, Ask, Facts, Grant, Line, verdict};
use crate::error::{Error, Result};
use crate::process;

/// A descriptor that may become readable.
enum Source {
    /// The socket that importers connect to.
    Listener(OwnedFd),
    /// An importer, and the endpoint of the object that it has opened, once it has asked for one.
    Importer(Line, OnceLock<Arc<dyn Endpoint>>),
    /// This process's end of an import.
    Import(Line, Arc<Peer>, Weak<dyn Endpoint>),
    /// A process that this one has imported from.
    Process(Weak<Peer>, OwnedFd),
}

impl Source {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Listener(fd) | Self::Process(_, fd) => fd.as_fd(),
            Self::Importer(line, _) | Self::Import(line, ..) => line.as_fd(),
        }
    }
}

struct Reactor {
    epoll: OwnedFd,
    sources: Mutex<(u64, HashMap<u64, Arc<Source>>)>,
}

/// The error for a resource that the system does not have.
pub(super) fn failed(what: &str, errno: Errno) -> Error {
    Error::new(
        ze_result_t::ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY,
        format!("sharing with other processes needs {what}: {errno}"),
    )
}

fn reactor() -> Result<&'static Reactor> {
    static REACTOR: OnceLock<Reactor> = OnceLock::new();
    static ONCE_AT_A_TIME: Mutex<()> = Mutex::new(());
    if let Some(reactor) = REACTOR.get() {
        return Ok(reactor);
    }
    let _one = ONCE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(reactor) = REACTOR.get() {
        return Ok(reactor);
    }
    let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(|errno| failed("epoll", errno))?;
    let poll = epoll.try_clone().map_err(|_| failed("epoll", Errno::MFILE))?;
    let thread = thread::Builder::new().name("tally-ipc".into());
    process::without_signals(|| thread.spawn(move || run(&poll)))
        .map_err(|_| failed("a thread", Errno::AGAIN))?;
    Ok(REACTOR.get_or_init(|| Reactor { epoll, sources: Mutex::default() }))
}

impl Reactor {
    fn sources(&self) -> MutexGuard<'_, (u64, HashMap<u64, Arc<Source>>)> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, source: Source) -> Result<u64> {
        let mut sources = self.sources();
        sources.0 += 1;
        let key = sources.0;
        epoll::add(&self.epoll, source.fd(), EventData::new_u64(key), EventFlags::IN)
            .map_err(|errno| failed("epoll", errno))?;
        sources.1.insert(key, Arc::new(source));
        Ok(key)
    }

    /// Ends a source; its descriptor is closed when its last user has dropped it.
    fn remove(&self, key: u64) {
        let source = self.sources().1.remove(&key);
        if let Some(source) = source {
            // A forked child may hold the descriptor too: without this, its events would continue.
            // This fails only if the descriptor is not registered.
            let _ = epoll::delete(&self.epoll, source.fd());
        }
    }

    fn find(&self, key: u64) -> Option<Arc<Source>> {
        self.sources().1.get(&key).cloned()
    }
}

/// Accepts importers from now on.
///
/// # Errors
/// OUT_OF_HOST_MEMORY.
pub(super) fn listen(listener: OwnedFd) -> Result {
    reactor()?.add(Source::Listener(listener)).map(drop)
}

/// Serves this process's end of an import, until [`end_import`] or until the other end is gone.
///
/// # Errors
/// OUT_OF_HOST_MEMORY.
pub(super) fn import(line: Line, peer: &Arc<Peer>, endpoint: Weak<dyn Endpoint>) -> Result<u64> {
    let reactor = reactor()?;
    let key = reactor.add(Source::Import(line, peer.clone(), endpoint))?;
    // Last: if the process has ended in between, this import is notified with the others.
    watch(reactor, peer).inspect_err(|_| reactor.remove(key))?;
    Ok(key)
}

/// See [`import`].
pub(super) fn end_import(key: u64) {
    if let Ok(reactor) = reactor() {
        reactor.remove(key);
    }
}

/// Watches for the end of a process.
fn watch(reactor: &Reactor, peer: &Arc<Peer>) -> Result {
    let Some(process) = peer.process() else { return Ok(()) };
    let weak = Arc::downgrade(peer);
    let mut unused = Vec::new();
    let mut known = false;
    for (&key, source) in &reactor.sources().1 {
        if let Source::Process(it, _) = &**source {
            known |= Weak::ptr_eq(it, &weak);
            unused.extend((it.strong_count() == 0).then_some(key));
        }
    }
    unused.into_iter().for_each(|key| reactor.remove(key));
    if known {
        return Ok(());
    }
    let process = process.try_clone().map_err(|_| failed("a descriptor", Errno::MFILE))?;
    reactor.add(Source::Process(weak, process)).map(drop)
}

fn run(epoll: &OwnedFd) {
    let mut events = [MaybeUninit::<Event>::uninit(); 64];
    loop {
        let ready = match epoll::wait(epoll, &mut events, None) {
            Ok((ready, _)) => ready,
            Err(Errno::INTR) => continue,
            Err(errno) => {
                log::error!("sharing with other processes ends: epoll: {errno}");
                return;
            }
        };
        let Ok(reactor) = reactor() else { return };
        for event in ready {
            let key = event.data.u64();
            // An import that has ended since is not found any more.
            if let Some(source) = reactor.find(key)
                && !serve(reactor, key, &source)
            {
                reactor.remove(key);
            }
        }
    }
}

/// Handles a source that is ready; false if it has ended.
fn serve(reactor: &Reactor, key: u64, source: &Source) -> bool {
    match source {
        Source::Listener(listener) => {
            match wire::accept(listener).map(Line::new) {
                Ok(line) => {
                    if let Err(error) = reactor.add(Source::Importer(line, OnceLock::new())) {
                        log::warn!("an importer is turned away: {error}");
                    }
                }
                Err(Errno::ACCESS) => log::warn!("an importer of another user is turned away"),
                Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => {}
                Err(errno) => {
                    log::warn!("an importer is turned away: {errno}");
                    // A connection for which there is no descriptor stays in the queue, so an immediate
                    // retry would be of no use.
                    thread::sleep(std::time::Duration::from_millis(10));
                }
            }
            true
        }
        Source::Importer(line, endpoint) => match endpoint.get() {
            Some(known) => hear(line, &**known),
            None => match answer(line) {
                Answer::Later => true,
                Answer::Refused => false,
                Answer::Granted(granted) => endpoint.set(granted).is_ok(),
            },
        },
        Source::Import(line, _, endpoint) => {
            let Some(endpoint) = endpoint.upgrade() else { return false };
            let goes_on = hear(line, &*endpoint);
            if !goes_on {
                endpoint.hung_up();
            }
            goes_on
        }
        Source::Process(peer, _) => {
            // First, so that an import that begins from now on has the process watched again.
            reactor.remove(key);
            let imports: Vec<_> =
                reactor.sources().1.iter().map(|(&k, s)| (k, s.clone())).collect();
            for (key, source) in imports {
                if let Source::Import(line, its, endpoint) = &*source
                    && std::ptr::eq(Arc::as_ptr(its), peer.as_ptr())
                {
                    reactor.remove(key);
                    if let Some(endpoint) = endpoint.upgrade() {
                        // Messages that were sent before the process died are still valid.
                        hear(line, &*endpoint);
                        endpoint.hung_up();
                    }
                }
            }
            false
        }
    }
}

/// The number of notes read at once from which on the socket may have been full and notes lost. Far
/// fewer than fit into it.
const MUCH: usize = 16;

/// Hands all notes that have arrived to `endpoint`; false if the other end is gone.
fn hear(line: &Line, endpoint: &dyn Endpoint) -> bool {
    let mut count = 0;
    let errno = loop {
        match line.hear() {
            Ok((note, cell)) => {
                endpoint.told(note, cell);
                count += 1;
            }
            Err(Errno::INTR) => {}
            Err(errno) => break errno,
        }
    };
    // A note is lost only while the socket is full; all notes that filled it have been read by now.
    if count >= MUCH {
        endpoint.told_much();
    }
    errno == Errno::AGAIN
}

enum Answer {
    Later,
    Refused,
    Granted(Arc<dyn Endpoint>),
}

/// Answers an importer's request.
fn answer(line: &Line) -> Answer {
    let ask = match wire::receive::<Ask>(line) {
        Ok((ask, None)) if ask.pad == 0 => ask,
        Err(Errno::AGAIN | Errno::INTR) => return Answer::Later,
        _ => return Answer::Refused,
    };
    let refuse = |verdict| {
        let facts = Facts::default();
        let grant = Grant { offset: 0, size: 0, facts, verdict, read_only: 0 };
        // An importer that is gone needs no answer.
        let _ = wire::send(line, &grant, None);
        Answer::Refused
    };
    let Some(offer) = exports::find(&ask.secret, ask.kind) else {
        return refuse(verdict::UNKNOWN);
    };
    let opened = match offer.open(ask.value) {
        Ok(opened) => opened,
        Err(error) => {
            log::warn!("an importer is refused: {error}");
            return refuse(verdict::GONE);
        }
    };
    let (bo, facts) = (&opened.bo, opened.facts);
    let grant = Grant {
        offset: bo.offset,
        size: bo.size,
        facts,
        verdict: verdict::GRANTED,
        read_only: u32::from(bo.read_only),
    };
    if wire::send(line, &grant, Some(bo.file.as_fd())).is_err() {
        return Answer::Refused;
    }
    match (opened.start)(line.clone()) {
        Ok(endpoint) => Answer::Granted(endpoint),
        Err(error) => {
            log::warn!("an import ends: {error}");
            Answer::Refused
        }
    }
}
