// SPDX-License-Identifier: GPL-2.0
//! GPU address spaces.
//!
//! A VM's commands are sent under the lock of its mappings, so the device
//! carries them out in the order of the changes to the tree. Answers are not
//! waited for under that lock.

use core::ops::Range;

use kernel::prelude::*;
use kernel::rbtree::RBTree;
use kernel::sync::atomic::{Acquire, Atomic, Full, Relaxed};
use kernel::sync::{new_mutex, Arc, Mutex, SetOnce};

use super::bindings::{Bindings, Edit, Mapping};
use super::keep::Keep;
use crate::account::Client;
use crate::call::Order;
use crate::raw::space::Space;
use crate::request::Access;
use crate::table::{Closed, Entry, Owner};

/// An address space.
#[pin_data]
pub(crate) struct Vm {
    id: u32,
    owner: Owner,
    pid: i32,
    window: Range<u64>,
    /// The account of its file, which its mappings are charged to.
    account: Arc<Client>,
    closed: Closed,
    lost: Atomic<bool>,
    /// Whether some of its cells were declared orphaned.
    orphaned: Atomic<bool>,
    bindings: Arc<Bindings>,
    /// The file that shows them to a device that is a process of this machine.
    space: SetOnce<Space<Bindings>>,
    /// Memory for its VM_DESTROY. None: that was sent.
    #[pin]
    end: Mutex<Option<Order<Keep>>>,
}

impl Entry for Vm {
    fn id(&self) -> u32 {
        self.id
    }

    fn owner(&self) -> Owner {
        self.owner
    }

    fn closed(&self) -> &Closed {
        &self.closed
    }
}

impl Vm {
    /// A VM without mappings. `order` is for the command that ends it.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new(
        id: u32,
        owner: Owner,
        pid: i32,
        window: Range<u64>,
        account: Arc<Client>,
        order: Order<Keep>,
    ) -> Result<Arc<Self>> {
        let bindings = Bindings::new()?;
        Arc::pin_init(
            try_pin_init!(Self {
                id,
                owner,
                pid,
                window,
                account,
                closed: Closed::new(),
                lost: Atomic::new(false),
                orphaned: Atomic::new(false),
                bindings,
                space: SetOnce::new(),
                end <- new_mutex!(Some(order)),
            }? Error),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// The id, which device and client use.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// The file that made it, and its user.
    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    /// The file that made it.
    pub(crate) fn owner_id(&self) -> u64 {
        self.owner.file
    }

    /// The thread group that opened the file.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// The VAs that may be mapped.
    pub(crate) fn window(&self) -> Range<u64> {
        self.window.clone()
    }

    /// Whether the device has lost it.
    pub(crate) fn lost(&self) -> bool {
        self.lost.load(Acquire)
    }

    /// Marks it as lost. False if it was marked already.
    pub(crate) fn lose(&self) -> bool {
        !self.lost.xchg(true, Full)
    }

    /// Whether its owner has ended it.
    pub(crate) fn ended(&self) -> bool {
        self.closed.is()
    }

    /// Ends it for its owner. False if it was ended before.
    pub(crate) fn close(&self) -> bool {
        self.closed.close()
    }

    /// The account that its mappings are charged to.
    pub(crate) fn account(&self) -> &Arc<Client> {
        &self.account
    }

    /// Notes that some of its cells are orphaned. Called with its mappings locked.
    pub(crate) fn set_orphaned(&self) {
        self.orphaned.store(true, Relaxed);
    }

    /// Whether some of its cells were declared orphaned. Called with its mappings locked.
    pub(crate) fn orphaned(&self) -> bool {
        self.orphaned.load(Relaxed)
    }

    /// The file that shows its mappings; `make` makes it the first time.
    ///
    /// # Errors
    /// Those of `make`.
    pub(crate) fn space(
        &self,
        make: impl FnOnce(Arc<Bindings>) -> Result<Space<Bindings>>,
    ) -> Result<&Space<Bindings>> {
        if self.space.as_ref().is_none() {
            // If another thread was faster, this thread's file is dropped.
            let _ = self.space.populate(make(self.bindings.clone())?);
        }
        // The other thread may not have finished.
        self.space.as_ref().ok_or(EAGAIN)
    }

    /// Locks its mappings, to change them.
    ///
    /// # Errors
    /// ENOENT: the VM is ending.
    pub(crate) fn edit(&self) -> Result<Edit<'_>> {
        self.bindings.edit(&self.space)
    }

    /// Calls `f` with the memory for its last command; no command is sent after that one.
    ///
    /// # Errors
    /// ENOENT: this was called before.
    pub(crate) fn end<T>(&self, f: impl FnOnce(Order<Keep>) -> T) -> Result<T> {
        let mut edit = self.edit()?;
        edit.end();
        let order = self.end.lock().take().ok_or(ENOENT)?;
        let result = f(order);
        drop(edit);
        Ok(result)
    }

    /// Removes all mappings, so that no process sees them any more.
    pub(crate) fn take_mappings(&self) -> RBTree<u64, Mapping> {
        self.bindings.take_all(&self.space, &self.window)
    }

    /// The number of mappings, and their size in bytes.
    pub(crate) fn mapped(&self) -> (usize, u64) {
        self.bindings.count()
    }

    /// Calls `f` if all ranges are mapped with at least their access. Commands that `f`
    /// sends precede any later change.
    ///
    /// # Errors
    /// EFAULT: they are not. ENOENT: the VM is ending. Those of `f`.
    pub(crate) fn while_mapped<T>(
        &self,
        ranges: &[(Range<u64>, Access)],
        f: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let edit = self.edit()?;
        if !edit.covers(ranges) {
            return Err(EFAULT);
        }
        let result = f();
        drop(edit);
        result
    }
}
