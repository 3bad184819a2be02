// SPDX-License-Identifier: GPL-2.0
//! VMs, queues, and the resources of theirs that commands keep until they are answered. A VM holds the
//! memory for its last command, and that command keeps the VM.

pub(crate) mod bindings;
pub(crate) mod keep;
pub(crate) mod queue;
pub(crate) mod vm;
