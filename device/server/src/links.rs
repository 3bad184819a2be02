// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engines and queues of a session, and the wakes between them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tally_uapi::cell::WAITERS;
use tally_uapi::regs::WAKE_FOREIGN;

use crate::engine::Link;
use crate::status::Status;
use crate::waiters::Waiters;

/// The state that the threads of a session share.
pub struct Links {
    pub status: Arc<Status>,
    pub waiters: Waiters,
    engines: RwLock<Engines>,
    queues: RwLock<HashMap<u32, Arc<Link>>>,
}

#[derive(Default)]
struct Engines {
    links: Vec<Arc<Link>>,
    /// Set when the session ends: no more engines are added.
    closed: bool,
}

impl Links {
    pub fn new(status: Arc<Status>, waiters: Waiters) -> Self {
        Self { status, waiters, engines: RwLock::default(), queues: RwLock::default() }
    }

    fn engines(&self) -> RwLockReadGuard<'_, Engines> {
        self.engines.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn engines_mut(&self) -> RwLockWriteGuard<'_, Engines> {
        self.engines.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn queues(&self) -> RwLockWriteGuard<'_, HashMap<u32, Arc<Link>>> {
        self.queues.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the engine of a VM. False if the session is ending.
    pub fn add(&self, link: &Arc<Link>) -> bool {
        let mut engines = self.engines_mut();
        if !engines.closed {
            engines.links.push(Arc::clone(link));
        }
        !engines.closed
    }

    /// Removes the engine of a VM, and its queues.
    pub fn remove(&self, link: &Arc<Link>) {
        self.engines_mut().links.retain(|it| !Arc::ptr_eq(it, link));
        self.queues().retain(|_, it| !Arc::ptr_eq(it, link));
    }

    /// Ends all engine processes with the session.
    pub fn close(&self) {
        let mut engines = self.engines_mut();
        engines.closed = true;
        engines.links.iter().for_each(|link| link.close());
    }

    /// Whether the session is ending.
    pub fn is_closed(&self) -> bool {
        self.engines().closed
    }

    /// Takes an id for a queue of `link`. False if it is in use.
    pub fn add_queue(&self, id: u32, link: &Arc<Link>) -> bool {
        match self.queues().entry(id) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(Arc::clone(link));
                true
            }
        }
    }

    /// Gives back the id of a queue of `link`. False if `link` has no queue with that id.
    pub fn remove_queue(&self, id: u32, link: &Arc<Link>) -> bool {
        let owned = self.owns(id, link);
        if owned {
            self.queues().remove(&id);
        }
        owned
    }

    /// Whether the id is that of a queue of `link`.
    pub fn owns(&self, id: u32, link: &Arc<Link>) -> bool {
        let queues = self.queues.read().unwrap_or_else(PoisonError::into_inner);
        queues.get(&id).is_some_and(|it| Arc::ptr_eq(it, link))
    }

    /// KICK.
    pub fn kick(&self, id: u32) {
        let queues = self.queues.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(link) = queues.get(&id) {
            link.kick(id);
        }
    }

    /// WAKE: the host has written a cell of the bucket.
    pub fn wake(&self, bucket: u32) {
        let engines = self.engines();
        if bucket == WAKE_FOREIGN {
            engines.links.iter().for_each(|link| link.recheck_foreign());
        } else if (bucket as usize) < WAITERS {
            let bucket = bucket as usize;
            let counted = engines.links.iter().filter(|link| link.is_counted(bucket));
            counted.for_each(|link| link.recheck(bucket));
        }
    }

    /// Handles the message of a VM's engine that it has written a cell of the bucket.
    /// The engine has looked at its own queues itself.
    pub fn signalled(&self, vm: u32, bucket: usize) {
        for link in &self.engines().links {
            if link.vm != vm && link.is_counted(bucket) {
                link.recheck(bucket);
            }
        }
        if self.waiters.driver_sleeps(bucket) {
            self.status.signalled(bucket);
        }
    }
}
