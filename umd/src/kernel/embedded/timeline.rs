// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device's commands on the timeline of `TALLY_TRACE`.

use std::sync::Arc;

use tally_device::trace::{CommandKind, CommandRecord, Sink};

use crate::settings::Settings;
use crate::trace;

struct Timeline {
    compute_engines: u32,
}

/// The listener, if there is a timeline.
pub(super) fn sink(settings: &Settings, compute_engines: u32) -> Option<Arc<dyn Sink>> {
    settings.trace.as_ref()?;
    Some(Arc::new(Timeline { compute_engines }))
}

impl Sink for Timeline {
    fn command(&self, record: &CommandRecord) {
        let engine = record.engine as u32;
        let kind = match record.kind {
            CommandKind::Nop => "nop",
            CommandKind::Call => "call",
            CommandKind::Dispatch => "dispatch",
            CommandKind::Copy => "copy",
            CommandKind::CopyRegion => "copy_region",
            CommandKind::Fill => "fill",
        };
        trace::command(trace::Command {
            engine: match engine.checked_sub(self.compute_engines) {
                Some(copy) => (1, copy),
                None => (0, engine),
            },
            queue: record.queue.0,
            kind,
            entry: record.entry,
            ticks: (record.start, record.end),
        });
    }
}
