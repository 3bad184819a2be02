// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Counter-based events through the extension ZEX_counter_based_event. A program finds its functions
// with zeDriverGetExtensionFunctionAddress and, as no header of the loader declares them, declares them
// itself.

#ifndef COUNTER_EVENTS_H
#define COUNTER_EVENTS_H

#include "gpu.h"

// An event that lists of both kinds may signal and that the host may wait for. Complete when new.
ze_event_handle_t create_counter_event(const struct gpu *gpu);
// Waits on the host; an event that is not complete after PATIENCE_NS ends the program.
void wait_for_event(ze_event_handle_t event);

#endif
