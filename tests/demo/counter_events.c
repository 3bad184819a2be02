// SPDX-License-Identifier: MIT OR Apache-2.0
#include "counter_events.h"

#define ZEX_STRUCTURE_COUNTER_BASED_EVENT_DESC 0x0003001C

enum {
    ZEX_COUNTER_BASED_EVENT_FLAG_IMMEDIATE = ZE_BIT(0),
    ZEX_COUNTER_BASED_EVENT_FLAG_NON_IMMEDIATE = ZE_BIT(1),
    ZEX_COUNTER_BASED_EVENT_FLAG_HOST_VISIBLE = ZE_BIT(2),
};

typedef struct {
    uint32_t stype;
    const void *pNext;
    uint32_t flags;
    ze_event_scope_flags_t signalScope;
    ze_event_scope_flags_t waitScope;
} zex_counter_based_event_desc_t;

typedef ze_result_t(ZE_APICALL *create_fn)(ze_context_handle_t, ze_device_handle_t,
                                           const zex_counter_based_event_desc_t *, ze_event_handle_t *);

ze_event_handle_t create_counter_event(const struct gpu *gpu)
{
    zex_counter_based_event_desc_t desc = {
        .stype = ZEX_STRUCTURE_COUNTER_BASED_EVENT_DESC,
        .flags = ZEX_COUNTER_BASED_EVENT_FLAG_IMMEDIATE | ZEX_COUNTER_BASED_EVENT_FLAG_NON_IMMEDIATE |
                 ZEX_COUNTER_BASED_EVENT_FLAG_HOST_VISIBLE,
        .signalScope = ZE_EVENT_SCOPE_FLAG_HOST,
        .waitScope = ZE_EVENT_SCOPE_FLAG_DEVICE,
    };
    static create_fn create;
    ze_event_handle_t event;

    if (!create)
        must(zeDriverGetExtensionFunctionAddress(gpu->driver, "zexCounterBasedEventCreate2",
                                                 (void **)&create));
    check(create(gpu->context, gpu->device, &desc, &event), "zexCounterBasedEventCreate2");
    return event;
}

void wait_for_event(ze_event_handle_t event)
{
    ze_result_t result = zeEventHostSynchronize(event, PATIENCE_NS);

    if (result == ZE_RESULT_NOT_READY)
        stop("an event is not complete after %g s", (double)PATIENCE_NS * 1e-9);
    check(result, "zeEventHostSynchronize(event, PATIENCE_NS)");
}
