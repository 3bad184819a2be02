// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The set-up of every Level Zero program: a device, its engines, and short functions that create the
// objects that the parts of the demo use. A call that fails ends the program and prints the call, the
// name of its result code and the driver's description.

#ifndef GPU_H
#define GPU_H

#include <level_zero/ze_api.h>
#include <stdbool.h>
#include <stddef.h>

// A wait that takes longer than this has hung.
#define PATIENCE_NS UINT64_C(60000000000)

// A group of equal engines, with the number and size from zeDeviceGetCommandQueueGroupProperties.
struct engines {
    uint32_t ordinal;
    uint32_t count;
};

struct gpu {
    ze_driver_handle_t driver;
    ze_device_handle_t device;
    ze_context_handle_t context;
    struct engines compute;
    struct engines copy; // engines that only copy, if the device has them; else the same as `compute`
    const char *modules; // folder of the SPIR-V modules
};

struct kernel {
    ze_module_handle_t module;
    ze_kernel_handle_t handle;
};

enum order { OUT_OF_ORDER, IN_ORDER };
enum memory { DEVICE_MEMORY, HOST_MEMORY, SHARED_MEMORY };

#define must(call) check((call), #call)
void check(ze_result_t result, const char *call);
_Noreturn void stop(const char *format, ...) __attribute__((format(printf, 1, 2)));

// The first GPU of the first driver that has one.
void open_gpu(struct gpu *gpu, const char *modules);
void close_gpu(struct gpu *gpu);

void *allocate(const struct gpu *gpu, enum memory kind, size_t bytes);
void release(const struct gpu *gpu, void *memory);

// Kernel `name` of the module `file`.spv.
struct kernel build_kernel(const struct gpu *gpu, const char *file, const char *name);
void destroy_kernel(struct kernel kernel);
void set_argument(struct kernel kernel, uint32_t index, size_t size, const void *value);
// Launches of this kernel cover `items` work-items or a few more, in groups whose size the driver
// suggests.
ze_group_count_t group_items(struct kernel kernel, uint32_t items);

ze_command_queue_handle_t create_queue(const struct gpu *gpu, struct engines engines, uint32_t index);
ze_command_list_handle_t create_list(const struct gpu *gpu, struct engines engines, enum order order);
ze_command_list_handle_t create_immediate_list(const struct gpu *gpu, struct engines engines,
                                               enum order order, ze_command_queue_mode_t mode);
// The same on an engine of the group; numbers beyond the last one wrap around.
ze_command_list_handle_t create_immediate_list_on(const struct gpu *gpu, struct engines engines,
                                                  uint32_t index, enum order order,
                                                  ze_command_queue_mode_t mode);
void execute(ze_command_queue_handle_t queue, ze_command_list_handle_t list);
// False if the queue still had work after PATIENCE_NS.
bool queue_finishes(ze_command_queue_handle_t queue);
// The same, but the program ends if the queue does not finish.
void finish(ze_command_queue_handle_t queue);

#endif
