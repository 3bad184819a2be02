// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue for tests.

use std::sync::Arc;

use super::{Queue, VmState};
use crate::config::{EngineClass, Priority, QueueConfig};
use crate::host::QueueId;

/// A queue on a device's only engine. Its ring's address is not mapped.
pub(crate) fn queue(vm: &Arc<VmState>) -> Arc<Queue> {
    let config = QueueConfig {
        id: QueueId(1),
        class: EngineClass::Compute,
        index: 0,
        priority: Priority::Normal,
        ring: 64,
        packets: 16,
        control: 4096,
    };
    Arc::new(Queue::new(&config, Arc::clone(vm), true))
}
