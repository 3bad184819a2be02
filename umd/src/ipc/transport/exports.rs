// SPDX-License-Identifier: MIT OR Apache-2.0
//! The objects that this process allows others to open: the table of secrets.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::rand::GetRandomFlags;
use tally_ze::ze_result_t;

use super::handle::{Handle, Kind, Secret};
use super::offer::Offer;
use super::{reactor, wire};
use crate::error::{Error, Result};

/// The identity of an exported object within its kind.
type Object = (Kind, u64);

struct Entry {
    object: Object,
    offer: Arc<dyn Offer>,
    /// Number of handles that were returned and not withdrawn.
    handles: usize,
}

#[derive(Default)]
struct Table {
    entries: HashMap<Secret, Entry>,
    objects: HashMap<Object, Secret>,
}

fn table() -> MutexGuard<'static, Table> {
    static TABLE: OnceLock<Mutex<Table>> = OnceLock::new();
    TABLE.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

impl Table {
    fn remove(&mut self, secret: &Secret) {
        if let Some(entry) = self.entries.remove(secret) {
            self.objects.remove(&entry.object);
        }
    }
}

/// Bytes that cannot be guessed.
fn random() -> Result<Secret> {
    let mut secret = Secret::default();
    match rustix::rand::getrandom(&mut secret, GetRandomFlags::empty()) {
        Ok(length) if length == secret.len() => Ok(secret),
        _ => Err(Error::new(
            ze_result_t::ZE_RESULT_ERROR_UNKNOWN,
            "the system has no random numbers for a handle",
        )),
    }
}

/// The name of this process's socket, which is open when this returns.
fn exporter() -> Result<Secret> {
    static EXPORTER: Mutex<Option<Secret>> = Mutex::new(None);
    let mut exporter = EXPORTER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(exporter) = *exporter {
        return Ok(exporter);
    }
    let name = random()?;
    let listener = wire::listen(&name).map_err(|errno| reactor::failed("a socket", errno))?;
    reactor::listen(listener)?;
    Ok(*exporter.insert(name))
}

/// A handle for an object of this process. The object has one secret until it ends or all its handles are
/// withdrawn.
///
/// # Errors
/// OUT_OF_HOST_MEMORY: no descriptor or thread.
pub fn export(object: (Kind, u64), offer: impl FnOnce() -> Arc<dyn Offer>) -> Result<Handle> {
    let exporter = exporter()?;
    let mut table = table();
    if let Some(&secret) = table.objects.get(&object) {
        match table.entries.get_mut(&secret) {
            Some(entry) if entry.offer.is_alive() => entry.handles += 1,
            _ => table.remove(&secret),
        }
    }
    let secret = match table.objects.get(&object) {
        Some(&secret) => secret,
        None => {
            let secret = random()?;
            // Objects end without a notification.
            let dead = |entry: &Entry| !entry.offer.is_alive();
            let gone: Vec<_> = table.entries.iter().filter(|(_, it)| dead(it)).collect();
            let gone: Vec<Secret> = gone.into_iter().map(|(secret, _)| *secret).collect();
            gone.iter().for_each(|secret| table.remove(secret));
            table.entries.insert(secret, Entry { object, offer: offer(), handles: 1 });
            table.objects.insert(object, secret);
            secret
        }
    };
    Ok(Handle { kind: object.0, details: 0, exporter, secret, value: 0 })
}

/// Withdraws a handle that [`export`] has returned. Existing imports are not affected.
///
/// # Errors
/// INVALID_ARGUMENT: it is not such a handle, or was withdrawn already.
pub fn withdraw(handle: &Handle, name: &str) -> Result {
    let mut table = table();
    let entry = table.entries.get_mut(&handle.secret).filter(|it| it.object.0 == handle.kind);
    let Some(entry) = entry else {
        return Err(Error::invalid(format!(
            "{name}: this process has made no such handle, or has taken it back"
        )));
    };
    entry.handles -= 1;
    if entry.handles == 0 {
        table.remove(&handle.secret);
    }
    Ok(())
}

/// The offer of a secret of this kind.
pub(super) fn find(secret: &Secret, kind: u32) -> Option<Arc<dyn Offer>> {
    let table = table();
    let entry = table.entries.get(secret).filter(|it| it.object.0 as u32 == kind)?;
    Some(entry.offer.clone())
}
