// SPDX-License-Identifier: GPL-2.0
//! VMs, queues, and what commands keep of them until they are answered: a VM has the memory
//! for its last command, which keeps the VM.

pub(crate) mod bindings;
pub(crate) mod keep;
pub(crate) mod queue;
pub(crate) mod vm;
