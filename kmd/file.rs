// SPDX-License-Identifier: GPL-2.0
//! An open file: a client.

use kernel::drm;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::Arc;

use crate::account::Client;
use crate::driver::{Tally, TallyDevice};
use crate::fdinfo::EngineTime;
use crate::raw;
use crate::state::State;
use crate::table::Owner;
use crate::vm;

/// A client. Its VMs and queues are in the device's tables, by its number.
pub(crate) struct TallyFile {
    id: u64,
    user: u32,
    pid: i32,
    account: Arc<Client>,
    engine_time: Arc<EngineTime>,
    state: Arc<State>,
    dev: ARef<TallyDevice>,
}

impl TallyFile {
    /// The number of this file; never used again for another.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The file and its user.
    pub(crate) fn owner(&self) -> Owner {
        Owner { file: self.id, user: self.user }
    }

    /// The thread group that opened it.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// What it uses.
    pub(crate) fn account(&self) -> &Arc<Client> {
        &self.account
    }

    /// The time of its queues on engines.
    pub(crate) fn engine_time(&self) -> &Arc<EngineTime> {
        &self.engine_time
    }

    /// What files share.
    pub(crate) fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// The device.
    pub(crate) fn device(&self) -> &TallyDevice {
        &self.dev
    }
}

impl drm::file::DriverFile for TallyFile {
    type Driver = Tally;

    fn open(dev: &TallyDevice) -> Result<Pin<KBox<Self>>> {
        let state = dev.state.clone();
        let pid = kernel::current!().group_leader().pid();
        let user = raw::current_user();
        let account = state.accounts.open(user)?;
        let engine_time = Arc::new(EngineTime::new(), GFP_KERNEL_ACCOUNT)?;
        let id = state.new_file();
        let file = Self { id, user, pid, account, engine_time, state, dev: dev.into() };
        Ok(KBox::new(file, GFP_KERNEL_ACCOUNT)?.into())
    }
}

impl Drop for TallyFile {
    /// Ends what the client has left. Waits for nothing: the answers free the rest.
    fn drop(&mut self) {
        let dev = raw::once_registered(&self.dev);
        let guard = dev.registration_guard();
        let (id, state) = (self.id, &self.state);
        state.vms.for_each(
            |vm| vm.owner_id() == id,
            |_, vm| {
                if !vm.close() {
                    return;
                }
                match &guard {
                    Some(guard) => guard.registration_data_with(|registered| {
                        vm::end_unattended(registered.gpu, &vm);
                    }),
                    // Unbound: the device was reset, and has nothing of it.
                    None => state.vms.free(&vm),
                }
            },
        );
        state.queues.for_each(
            |queue| queue.owner_id() == id && guard.is_none(),
            |_, queue| state.queues.free(&queue),
        );
    }
}
