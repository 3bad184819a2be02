// SPDX-License-Identifier: MIT OR Apache-2.0
//! Appends of signals and waits of external semaphores.

use tally_ze::*;

use super::{Events, append};
use crate::api::{Call, api};
use crate::core::list::List;
use crate::error::{Error, Result};
use crate::list::command::Command;
use crate::sync::semaphore::{Gate, Target};

api! {
    /// Spec: `zeCommandListAppendSignalExternalSemaphoreExt`. The kernel adds the signal once the list has reached
    /// it.
    fn zeCommandListAppendSignalExternalSemaphoreExt(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        numSemaphores: u32,
        phSemaphores: *mut ze_external_semaphore_ext_handle_t,
        signalParams: *mut ze_external_semaphore_signal_params_ext_t,
        events: Events,
    ) {
        must_be_immediate(list)?;
        let params = params(call, numSemaphores, signalParams, "signalParams")?;
        let values = params.iter().map(|it| it.value);
        let targets = targets(call, numSemaphores, phSemaphores, values)?;
        let gate = Gate::of_signal(list.context().shared(), &targets)?;
        append(call, list, &Command::SignalSemaphores(&gate), events)
    }

    /// Spec: `zeCommandListAppendWaitExternalSemaphoreExt`. The list waits like for an event. A semaphore that has
    /// no signal yet may get one later.
    fn zeCommandListAppendWaitExternalSemaphoreExt(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        numSemaphores: u32,
        phSemaphores: *mut ze_external_semaphore_ext_handle_t,
        waitParams: *mut ze_external_semaphore_wait_params_ext_t,
        events: Events,
    ) {
        must_be_immediate(list)?;
        let params = params(call, numSemaphores, waitParams, "waitParams")?;
        let values = params.iter().map(|it| it.value);
        let targets = targets(call, numSemaphores, phSemaphores, values)?;
        let gate = Gate::of_wait(list.context().shared(), &targets)?;
        append(call, list, &Command::WaitSemaphores(&gate), events)
    }
}

fn must_be_immediate(list: &List) -> Result {
    list.must_not_be_captured()?;
    // ZE_RESULT_ERROR_INVALID_ARGUMENT: Commandlist handle does not correspond to an immediate command list
    list.as_immediate().map(drop)
}

/// The semaphores of an append with their values.
fn targets(
    call: Call<'_>,
    count: u32,
    raws: *mut ze_external_semaphore_ext_handle_t,
    values: impl Iterator<Item = u64>,
) -> Result<Vec<Target>> {
    // ZE_RESULT_ERROR_INVALID_SIZE: `(nullptr == phSemaphores) && (0 < numSemaphores)`
    let raws = params(call, count, raws, "phSemaphores")?;
    let targets = raws.iter().zip(values);
    targets.map(|(&raw, value)| Ok((call.handle(raw, "phSemaphores")?.clone(), value))).collect()
}

/// An array with one element for each semaphore.
fn params<'c, T: Copy>(
    call: Call<'c>,
    count: u32,
    array: *mut T,
    name: &'static str,
) -> Result<&'c [T]> {
    // ZE_RESULT_ERROR_INVALID_SIZE: `(nullptr == signalParams) && (0 < numSemaphores)`
    if array.is_null() && count != 0 {
        return Err(Error::new(
            ze_result_t::ZE_RESULT_ERROR_INVALID_SIZE,
            format!("numSemaphores: it is not 0, but {name} is null"),
        ));
    }
    call.slice(array, count as usize, name)
}
