// SPDX-License-Identifier: GPL-2.0
//! Accounting of bytes, buffers and kernel memory: for the device, for each user, and for each open file.
//!
//! A user's limit is below the device's, so that one user, with any number of processes and files, cannot
//! take everything from the others.

use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Full, Relaxed};
use kernel::sync::{new_mutex, Arc, Mutex};
use tally_uapi::PAGE_SIZE;

use crate::module_parameters;
use crate::raw::machine;

/// A sum with a limit.
pub(crate) struct Quota {
    limit: u64,
    used: Atomic<u64>,
}

impl Quota {
    fn new(limit: u64) -> Self {
        Self {
            limit,
            used: Atomic::new(0),
        }
    }

    /// The most that may be used.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// The amount in use.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Takes `amount`.
    ///
    /// # Errors
    /// ENOSPC: there is not as much left.
    fn take(&self, amount: u64) -> Result {
        let mut used = self.used.load(Relaxed);
        loop {
            let sum = used
                .checked_add(amount)
                .filter(|&sum| sum <= self.limit)
                .ok_or(ENOSPC)?;
            match self.used.cmpxchg(used, sum, Full) {
                Ok(_) => return Ok(()),
                Err(now) => used = now,
            }
        }
    }

    /// Gives `amount` back.
    fn give(&self, amount: u64) {
        self.used.fetch_sub(amount, Relaxed);
    }
}

/// An amount of each counted resource.
#[derive(Clone, Copy, Default)]
pub(crate) struct Amount {
    /// Bytes in buffers and in NULL mappings.
    pub(crate) bytes: u64,
    /// Buffers. Each costs the kernel memory of its own, and a file.
    pub(crate) buffers: u64,
    /// Bytes of kernel memory for what nothing else limits.
    pub(crate) kernel: u64,
    /// Waits without a thread: files of waits, and waits that tell a target. A signal visits all waiters of its
    /// bucket with a lock held.
    pub(crate) waits: u64,
}

const NOTHING: Amount = Amount {
    bytes: 0,
    buffers: 0,
    kernel: 0,
    waits: 0,
};

/// The quota that one mapping consumes: for the mapping itself, and for the object that keeps its memory.
pub(crate) const MAPPING: Amount = Amount {
    kernel: 256,
    ..NOTHING
};
/// The quota that a command with a page of extents consumes until it is answered.
pub(crate) const EXTENTS: Amount = Amount {
    kernel: PAGE_SIZE + 512,
    ..NOTHING
};
/// The quota that a wait without a thread, with 64 entries, consumes.
pub(crate) const WAIT: Amount = Amount {
    kernel: 8 << 10,
    waits: 1,
    ..NOTHING
};

/// The most waits without a thread: of the device, and of one user.
const WAITS: (u64, u64) = (4096, 1024);

/// The quotas of one account, one for each counted resource.
pub(crate) struct Account {
    /// See [`Amount`].
    pub(crate) bytes: Quota,
    /// See [`Amount`].
    pub(crate) buffers: Quota,
    /// See [`Amount`].
    pub(crate) kernel: Quota,
    /// See [`Amount`].
    pub(crate) waits: Quota,
}

impl Account {
    fn new(limit: Amount) -> Self {
        Self {
            bytes: Quota::new(limit.bytes),
            buffers: Quota::new(limit.buffers),
            kernel: Quota::new(limit.kernel),
            waits: Quota::new(limit.waits),
        }
    }

    fn take(&self, amount: Amount) -> Result {
        self.bytes.take(amount.bytes)?;
        self.buffers
            .take(amount.buffers)
            .inspect_err(|_| self.bytes.give(amount.bytes))?;
        self.kernel.take(amount.kernel).inspect_err(|_| {
            self.bytes.give(amount.bytes);
            self.buffers.give(amount.buffers);
        })?;
        self.waits.take(amount.waits).inspect_err(|_| {
            self.give(Amount { waits: 0, ..amount });
        })
    }

    fn give(&self, amount: Amount) {
        self.bytes.give(amount.bytes);
        self.buffers.give(amount.buffers);
        self.kernel.give(amount.kernel);
        self.waits.give(amount.waits);
    }
}

/// The account of a user.
struct User {
    /// Its number.
    id: u32,
    /// Number of [`Client`]s that refer to it.
    clients: Atomic<u32>,
    account: Account,
}

/// A client's reference to its user.
struct UserRef(Arc<User>);

impl core::ops::Deref for UserRef {
    type Target = User;

    fn deref(&self) -> &User {
        &self.0
    }
}

impl Drop for UserRef {
    fn drop(&mut self) {
        self.clients.fetch_sub(1u32, Relaxed);
    }
}

/// The account of an open file, with its user's and the device's, in which it counts too. It outlives the
/// file as long as there are charges to it.
pub(crate) struct Client {
    own: Account,
    user: UserRef,
    all: Arc<Accounts>,
}

/// What the administrator allows users and their files; 0 means that the size of the whole decides.
#[derive(Default)]
struct Allowed {
    client_bytes: u64,
    user_bytes: u64,
    user_buffers: u64,
    user_kernel: u64,
}

impl Allowed {
    /// By the module's parameters.
    fn by_parameters() -> Self {
        let bytes = |mib: u64| mib.saturating_mul(1 << 20);
        Self {
            client_bytes: bytes(*module_parameters::client_memory_mib.value_ref()),
            user_bytes: bytes(*module_parameters::user_memory_mib.value_ref()),
            user_buffers: u64::from(*module_parameters::user_buffers.value_ref()),
            user_kernel: bytes(*module_parameters::user_kernel_mib.value_ref()),
        }
    }
}

/// The accounts of a device.
#[pin_data]
pub(crate) struct Accounts {
    all: Account,
    allowed: Allowed,
    /// Users with open files, or with charges that have outlived their files.
    #[pin]
    users: Mutex<KVVec<Arc<User>>>,
}

impl Accounts {
    /// Empty accounts with the limits of the module's parameters.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let bytes = match *module_parameters::memory_mib.value_ref() {
            0 => machine::memory_bytes() / 4 * 3 / PAGE_SIZE * PAGE_SIZE,
            mib => mib.saturating_mul(1 << 20),
        };
        // The kernel's own limit of open files is one for each 10 KiB of memory.
        let buffers = machine::memory_bytes() / (20 << 10);
        let kernel = machine::memory_bytes() / 16;
        let all = Account::new(Amount {
            bytes,
            buffers,
            kernel,
            waits: WAITS.0,
        });
        Arc::pin_init(
            pin_init!(Self { all, allowed: Allowed::by_parameters(), users <- new_mutex!(KVVec::new()) }),
            GFP_KERNEL,
        )
    }

    /// The device's account, in which everything counts.
    pub(crate) fn all(&self) -> &Account {
        &self.all
    }

    /// An account for a file that the user opens.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn open(self: &Arc<Self>, user: u32) -> Result<Arc<Client>> {
        let user = UserRef(self.user(user)?);
        let bytes = match self.allowed.client_bytes {
            0 => user.account.bytes.limit,
            most => most.min(user.account.bytes.limit),
        };
        let own = Account::new(Amount {
            bytes,
            buffers: user.account.buffers.limit,
            kernel: user.account.kernel.limit,
            waits: user.account.waits.limit,
        });
        Ok(Arc::new(
            Client {
                own,
                user,
                all: self.clone(),
            },
            GFP_KERNEL_ACCOUNT,
        )?)
    }

    /// Bytes that a user may use.
    pub(crate) fn user_bytes(&self) -> u64 {
        let whole = self.all.bytes.limit;
        match self.allowed.user_bytes {
            0 => whole / 8 * 7 / PAGE_SIZE * PAGE_SIZE,
            most => most.min(whole),
        }
    }

    /// Buffers that a user may have.
    pub(crate) fn user_buffers(&self) -> u64 {
        let whole = self.all.buffers.limit;
        match self.allowed.user_buffers {
            0 => whole / 2,
            most => most.min(whole),
        }
    }

    /// Bytes of kernel memory that a user may cause, beyond what other limits allow.
    pub(crate) fn user_kernel(&self) -> u64 {
        let whole = self.all.kernel.limit;
        match self.allowed.user_kernel {
            0 => whole / 2,
            most => most.min(whole),
        }
    }

    /// Calls `f` for every user, with the number of its accounts of files: of open files, and of closed ones that
    /// charges have outlived.
    pub(crate) fn for_each_user(&self, mut f: impl FnMut(u32, u32, &Account)) {
        for user in self.users.lock().iter() {
            let clients = user.clients.load(Relaxed);
            if clients != 0 {
                f(user.id, clients, &user.account);
            }
        }
    }

    fn user(&self, id: u32) -> Result<Arc<User>> {
        let mut users = self.users.lock();
        users.retain(|user| user.clients.load(Relaxed) != 0);
        if let Some(user) = users.iter().find(|user| user.id == id) {
            user.clients.fetch_add(1u32, Relaxed);
            return Ok(user.clone());
        }
        let account = Account::new(Amount {
            bytes: self.user_bytes(),
            buffers: self.user_buffers(),
            kernel: self.user_kernel(),
            waits: WAITS.1,
        });
        let user = Arc::new(
            User {
                id,
                clients: Atomic::new(1),
                account,
            },
            GFP_KERNEL,
        )?;
        users.push(user.clone(), GFP_KERNEL)?;
        Ok(user)
    }
}

impl Client {
    /// Bytes that the file may use.
    pub(crate) fn limit(&self) -> u64 {
        self.own.bytes.limit
    }

    /// Bytes that the file uses.
    pub(crate) fn used(&self) -> u64 {
        self.own.bytes.used()
    }
}

/// An amount that was taken from an account and is given back on drop.
pub(crate) struct Charge {
    client: Arc<Client>,
    amount: Amount,
}

impl Charge {
    /// Takes from the accounts of the file, of its user, and of the device.
    ///
    /// # Errors
    /// ENOSPC: one of them does not have that much left.
    pub(crate) fn take(client: &Arc<Client>, amount: Amount) -> Result<Self> {
        let Client { own, user, all } = &**client;
        own.take(amount)?;
        user.account
            .take(amount)
            .inspect_err(|_| own.give(amount))?;
        all.all.take(amount).inspect_err(|_| {
            user.account.give(amount);
            own.give(amount);
        })?;
        Ok(Self {
            client: client.clone(),
            amount,
        })
    }

    /// Its bytes in buffers or NULL mappings.
    pub(crate) fn bytes(&self) -> u64 {
        self.amount.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let Client { own, user, all } = &*self.client;
        for account in [own, &user.account, &all.all] {
            account.give(self.amount);
        }
    }
}

#[kernel::macros::kunit_tests(tally_account)]
mod tests {
    use super::*;

    /// Some bytes and buffers.
    fn of(bytes: u64, buffers: u64) -> Amount {
        Amount {
            bytes,
            buffers,
            ..NOTHING
        }
    }

    /// Accounts with room for 12 pages, 6 buffers and 8 mappings in all.
    fn accounts() -> Result<Arc<Accounts>> {
        let all = Account::new(Amount {
            kernel: 8 * MAPPING.kernel,
            ..of(12 * PAGE_SIZE, 6)
        });
        Arc::pin_init(
            pin_init!(Accounts { all, allowed: Allowed::default(), users <- new_mutex!(KVVec::new()) }),
            GFP_KERNEL,
        )
    }

    /// "ENOSPC: there is not as much left."
    #[test]
    fn a_quota_holds_its_limit() {
        let quota = Quota::new(0x3000);
        assert!(quota.take(0x2000).is_ok());
        assert_eq!(quota.take(0x2000).err(), Some(ENOSPC));
        assert_eq!(quota.take(u64::MAX).err(), Some(ENOSPC));
        assert!(quota.take(0x1000).is_ok());
        quota.give(0x3000);
        assert_eq!(quota.used(), 0);
    }

    /// "one user, with any number of processes and files, cannot take everything"
    #[test]
    fn files_of_a_user_share_an_account() -> Result {
        let accounts = accounts()?;
        let (first, second, other) = (accounts.open(1)?, accounts.open(1)?, accounts.open(2)?);
        let limit = first.limit();
        assert!(limit < accounts.all.bytes.limit && limit != 0);
        let held = Charge::take(&first, of(limit, 1))?;
        assert_eq!(Charge::take(&second, of(PAGE_SIZE, 1)).err(), Some(ENOSPC));
        // A refusal has taken nothing.
        let rest = accounts.all.bytes.limit - limit;
        let others = Charge::take(&other, of(rest, 1))?;
        assert_eq!(Charge::take(&other, of(PAGE_SIZE, 1)).err(), Some(ENOSPC));
        drop((held, others));
        assert!(Charge::take(&second, of(limit, 1)).is_ok());
        assert_eq!(accounts.all.bytes.used() + accounts.all.buffers.used(), 0);
        Ok(())
    }

    /// "Each costs the kernel memory of its own"
    #[test]
    fn buffers_are_counted() -> Result {
        let accounts = accounts()?;
        let client = accounts.open(1)?;
        let mut held = KVec::new();
        for _ in 0..3 {
            held.push(Charge::take(&client, of(1, 1))?, GFP_KERNEL)?;
        }
        assert_eq!(Charge::take(&client, of(1, 1)).err(), Some(ENOSPC));
        assert!(Charge::take(&client, of(1, 0)).is_ok());
        Ok(())
    }

    /// "kernel memory for what nothing else limits", and a refusal for lack of it takes nothing.
    #[test]
    fn kernel_memory_is_counted() -> Result {
        let accounts = accounts()?;
        let (client, other) = (accounts.open(1)?, accounts.open(2)?);
        let mut held = KVec::new();
        while let Ok(charge) = Charge::take(&client, MAPPING) {
            held.push(charge, GFP_KERNEL)?;
        }
        assert_eq!(held.len() as u64, accounts.user_kernel() / MAPPING.kernel);
        let both = Amount {
            kernel: 1,
            ..of(PAGE_SIZE, 1)
        };
        assert_eq!(Charge::take(&client, both).err(), Some(ENOSPC));
        assert_eq!((client.used(), accounts.all.buffers.used()), (0, 0));
        assert!(Charge::take(&other, MAPPING).is_ok());
        Ok(())
    }

    /// "It outlives the file as long as there are charges to it."
    #[test]
    fn what_outlives_its_file_still_counts() -> Result {
        let accounts = accounts()?;
        let client = accounts.open(1)?;
        let limit = client.limit();
        let held = Charge::take(&client, of(limit, 1))?;
        drop(client);
        drop(accounts.open(2)?);
        assert_eq!(
            Charge::take(&accounts.open(1)?, of(PAGE_SIZE, 1)).err(),
            Some(ENOSPC)
        );
        drop(held);
        assert!(Charge::take(&accounts.open(1)?, of(PAGE_SIZE, 1)).is_ok());
        Ok(())
    }
}
