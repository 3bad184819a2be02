// SPDX-License-Identifier: GPL-2.0
//! An open file: a client.

use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;

use crate::account::Client;
use crate::device::TallyDevice;
use crate::follower::Follower;
use crate::notifier::Notifier;
use crate::object::queue::EngineTime;
use crate::raw::machine;
use crate::state::State;
use crate::table::Owner;

/// A client. Its VMs and queues are in the device's tables, by its number.
pub(crate) struct TallyFile {
    id: u64,
    user: u32,
    pid: i32,
    account: Arc<Client>,
    engine_time: Arc<EngineTime>,
    notifier: Arc<Notifier>,
    follower: Arc<Follower>,
    binder: Arc<Follower>,
    state: Arc<State>,
    dev: ARef<TallyDevice>,
}

impl TallyFile {
    /// A client that opens the device now.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new(dev: ARef<TallyDevice>, state: Arc<State>) -> Result<Self> {
        let pid = kernel::current!().group_leader().pid();
        let user = machine::current_user();
        let account = state.accounts.open(user)?;
        let engine_time = Arc::new(EngineTime::new(), GFP_KERNEL_ACCOUNT)?;
        let notifier = Notifier::new(state.clone())?;
        let follower = Follower::new(dev.clone())?;
        let binder = Follower::new(dev.clone())?;
        let id = state.new_file();
        Ok(Self {
            id,
            user,
            pid,
            account,
            engine_time,
            notifier,
            follower,
            binder,
            state,
            dev,
        })
    }

    /// The number of this file; no other file ever gets it.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The file and its user.
    pub(crate) fn owner(&self) -> Owner {
        Owner {
            file: self.id,
            user: self.user,
        }
    }

    /// The thread group that opened it.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Its account.
    pub(crate) fn account(&self) -> &Arc<Client> {
        &self.account
    }

    /// The time of its queues on engines.
    pub(crate) fn engine_time(&self) -> &Arc<EngineTime> {
        &self.engine_time
    }

    /// The waits of the file that tell a target.
    pub(crate) fn notifier(&self) -> &Arc<Notifier> {
        &self.notifier
    }

    /// The cells of the file that follow fences.
    pub(crate) fn follower(&self) -> &Arc<Follower> {
        &self.follower
    }

    /// The changes of mappings that wait for fences. They wait for the device too, and the cells must not.
    pub(crate) fn binder(&self) -> &Arc<Follower> {
        &self.binder
    }

    /// The state that files share.
    pub(crate) fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// The device.
    pub(crate) fn device(&self) -> &TallyDevice {
        &self.dev
    }
}
