// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ordinary memory to which the commands of a list and of its copies refer, on lanes where the device does
//! not see the process.
//!
//! The bound pages must be those that the process has when an execution is submitted. So they are bound
//! anew for each execution, unless another one that uses them still runs or is just being submitted.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Result;
use crate::sync::counter::Counter;
use crate::vm::UserRange;

/// A piece of ordinary memory.
pub(super) struct UserMemory {
    range: UserRange,
    users: Mutex<Users>,
}

#[derive(Default)]
struct Users {
    /// Number of executions that are being submitted.
    claims: usize,
    /// The counters of the executions that were submitted.
    counters: Vec<Arc<Counter>>,
}

/// Memory of an execution that is being submitted. It stays bound until this is dropped, and after that
/// until the execution's counter is settled.
#[derive(Default)]
pub(super) struct Claim(Vec<Arc<UserMemory>>);

impl UserMemory {
    pub(super) fn new(range: UserRange) -> Arc<Self> {
        Arc::new(Self { range, users: Mutex::default() })
    }

    pub(super) fn range(&self) -> &UserRange {
        &self.range
    }

    fn users(&self) -> MutexGuard<'_, Users> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Binds the pages for an execution that signals `counter`.
    fn claim(&self, counter: &Arc<Counter>) -> Result {
        let mut users = self.users();
        users.counters.retain(|it| !it.is_settled());
        if users.claims == 0 && users.counters.is_empty() {
            self.range.unpin();
        }
        self.range.pin()?;
        users.claims += 1;
        if !users.counters.iter().any(|it| Arc::ptr_eq(it, counter)) {
            users.counters.push(counter.clone());
        }
        Ok(())
    }
}

impl Claim {
    /// Binds all of a list's memory for an execution that signals `counter`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: the process has no such memory; OUT_OF_HOST_MEMORY; DEVICE_LOST.
    pub(super) fn new(user_memory: &[Arc<UserMemory>], counter: &Arc<Counter>) -> Result<Self> {
        let mut claim = Self::default();
        for memory in user_memory {
            memory.claim(counter)?;
            claim.0.push(memory.clone());
        }
        Ok(claim)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        for memory in &self.0 {
            memory.users().claims -= 1;
        }
    }
}
