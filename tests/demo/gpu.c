// SPDX-License-Identifier: MIT OR Apache-2.0
#include "gpu.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

// In-order lists came with version 1.9 of the API; older headers lack the names, but older loaders pass
// the flags on.
#define QUEUE_IN_ORDER ((ze_command_queue_flags_t)ZE_BIT(1))
#define LIST_IN_ORDER ((ze_command_list_flags_t)ZE_BIT(3))

typedef ze_result_t(ZE_APICALL *last_error_fn)(ze_driver_handle_t, const char **);

// The driver whose error description `check` prints.
static ze_driver_handle_t described_by;

void stop(const char *format, ...)
{
    va_list arguments;

    fflush(stdout);
    fputs("demo: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(2);
}

static const char *result_name(ze_result_t result)
{
    static char other[32];

#define NAME(code) \
    case code:     \
        return #code
    switch (result) {
        NAME(ZE_RESULT_NOT_READY);
        NAME(ZE_RESULT_ERROR_DEVICE_LOST);
        NAME(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
        NAME(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
        NAME(ZE_RESULT_ERROR_MODULE_BUILD_FAILURE);
        NAME(ZE_RESULT_ERROR_UNINITIALIZED);
        NAME(ZE_RESULT_ERROR_UNSUPPORTED_VERSION);
        NAME(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
        NAME(ZE_RESULT_ERROR_INVALID_ARGUMENT);
        NAME(ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
        NAME(ZE_RESULT_ERROR_INVALID_NULL_POINTER);
        NAME(ZE_RESULT_ERROR_INVALID_SIZE);
        NAME(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        NAME(ZE_RESULT_ERROR_INVALID_NATIVE_BINARY);
        NAME(ZE_RESULT_ERROR_INVALID_KERNEL_NAME);
        NAME(ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION);
        NAME(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE);
        NAME(ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT);
        NAME(ZE_RESULT_ERROR_UNKNOWN);
    default:
        snprintf(other, sizeof(other), "ze_result_t 0x%08x", (unsigned)result);
        return other;
    }
#undef NAME
}

// zeDriverGetLastErrorDescription, found through the driver, since an older loader does not export it.
static const char *last_error(void)
{
    void *address = NULL;
    const char *text = NULL;

    if (described_by && zeDriverGetExtensionFunctionAddress(described_by, "zeDriverGetLastErrorDescription",
                                                            &address) == ZE_RESULT_SUCCESS &&
        address && ((last_error_fn)address)(described_by, &text) == ZE_RESULT_SUCCESS && text)
        return text;
    return "";
}

void check(ze_result_t result, const char *call)
{
    if (result != ZE_RESULT_SUCCESS) {
        const char *why = last_error();
        stop("%s\n  gave %s%s%s", call, result_name(result), *why ? ": " : "", why);
    }
}

static bool find_gpu(struct gpu *gpu, ze_driver_handle_t driver)
{
    ze_device_handle_t devices[16];
    uint32_t count = 16;

    must(zeDeviceGet(driver, &count, devices));
    for (uint32_t i = 0; i < count; i++) {
        ze_device_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};
        must(zeDeviceGetProperties(devices[i], &properties));
        if (properties.type == ZE_DEVICE_TYPE_GPU) {
            gpu->driver = described_by = driver;
            gpu->device = devices[i];
            return true;
        }
    }
    return false;
}

static void find_engines(struct gpu *gpu)
{
    ze_command_queue_group_properties_t groups[16];
    uint32_t count = 16;
    bool compute = false, copy = false;

    for (uint32_t i = 0; i < count; i++)
        groups[i] = (ze_command_queue_group_properties_t){
            .stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES};
    must(zeDeviceGetCommandQueueGroupProperties(gpu->device, &count, groups));
    for (uint32_t i = 0; i < count; i++) {
        struct engines engines = {i, groups[i].numQueues};
        if (groups[i].flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE) {
            if (!compute)
                gpu->compute = engines;
            compute = true;
        } else if (groups[i].flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY) {
            if (!copy)
                gpu->copy = engines;
            copy = true;
        }
    }
    if (!compute)
        stop("the device has no engine that computes");
    if (!copy)
        gpu->copy = gpu->compute;
}

void open_gpu(struct gpu *gpu, const char *modules)
{
    ze_driver_handle_t drivers[16];
    uint32_t count = 16;

    *gpu = (struct gpu){.modules = modules};
    must(zeInit(0));
    must(zeDriverGet(&count, drivers));
    for (uint32_t i = 0; i < count && !gpu->device; i++)
        find_gpu(gpu, drivers[i]);
    if (!gpu->device)
        stop("no Level Zero driver has a GPU");
    find_engines(gpu);

    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    must(zeContextCreate(gpu->driver, &desc, &gpu->context));
}

void close_gpu(struct gpu *gpu)
{
    must(zeContextDestroy(gpu->context));
}

void *allocate(const struct gpu *gpu, enum memory kind, size_t bytes)
{
    ze_device_mem_alloc_desc_t device = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    ze_host_mem_alloc_desc_t host = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    void *memory = NULL;

    switch (kind) {
    case DEVICE_MEMORY:
        must(zeMemAllocDevice(gpu->context, &device, bytes, 64, gpu->device, &memory));
        break;
    case HOST_MEMORY:
        must(zeMemAllocHost(gpu->context, &host, bytes, 64, &memory));
        break;
    case SHARED_MEMORY:
        must(zeMemAllocShared(gpu->context, &device, &host, bytes, 64, gpu->device, &memory));
        break;
    }
    return memory;
}

void release(const struct gpu *gpu, void *memory)
{
    must(zeMemFree(gpu->context, memory));
}

static uint8_t *read_module(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    uint8_t *bytes;
    long end;

    if (!file || fseek(file, 0, SEEK_END) != 0 || (end = ftell(file)) <= 0)
        stop("cannot read %s", path);
    rewind(file);
    *size = (size_t)end;
    bytes = malloc(*size);
    if (!bytes || fread(bytes, 1, *size, file) != *size)
        stop("cannot read %s", path);
    fclose(file);
    return bytes;
}

static void build_failed(const char *path, ze_result_t result, ze_module_build_log_handle_t log)
{
    size_t size = 0;
    char *text;

    must(zeModuleBuildLogGetString(log, &size, NULL));
    text = calloc(1, size + 1);
    if (text)
        must(zeModuleBuildLogGetString(log, &size, text));
    stop("building %s gave %s\n%s", path, result_name(result), text ? text : "");
}

struct kernel build_kernel(const struct gpu *gpu, const char *file, const char *name)
{
    ze_module_build_log_handle_t log;
    struct kernel kernel;
    ze_result_t result;
    size_t size;
    char path[4096];

    snprintf(path, sizeof(path), "%s/%s.spv", gpu->modules, file);
    uint8_t *bytes = read_module(path, &size);
    ze_module_desc_t module = {.stype = ZE_STRUCTURE_TYPE_MODULE_DESC,
                               .format = ZE_MODULE_FORMAT_IL_SPIRV,
                               .inputSize = size,
                               .pInputModule = bytes};
    result = zeModuleCreate(gpu->context, gpu->device, &module, &kernel.module, &log);
    if (result != ZE_RESULT_SUCCESS)
        build_failed(path, result, log);
    must(zeModuleBuildLogDestroy(log));
    free(bytes);

    ze_kernel_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_KERNEL_DESC, .pKernelName = name};
    must(zeKernelCreate(kernel.module, &desc, &kernel.handle));
    return kernel;
}

void destroy_kernel(struct kernel kernel)
{
    must(zeKernelDestroy(kernel.handle));
    must(zeModuleDestroy(kernel.module));
}

void set_argument(struct kernel kernel, uint32_t index, size_t size, const void *value)
{
    must(zeKernelSetArgumentValue(kernel.handle, index, size, value));
}

ze_group_count_t group_items(struct kernel kernel, uint32_t items)
{
    uint32_t x, y, z;

    must(zeKernelSuggestGroupSize(kernel.handle, items, 1, 1, &x, &y, &z));
    must(zeKernelSetGroupSize(kernel.handle, x, y, z));
    return (ze_group_count_t){(items + x - 1) / x, 1, 1};
}

ze_command_queue_handle_t create_queue(const struct gpu *gpu, struct engines engines, uint32_t index)
{
    ze_command_queue_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                    .ordinal = engines.ordinal,
                                    .index = index % engines.count,
                                    .mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS};
    ze_command_queue_handle_t queue;

    must(zeCommandQueueCreate(gpu->context, gpu->device, &desc, &queue));
    return queue;
}

ze_command_list_handle_t create_list(const struct gpu *gpu, struct engines engines, enum order order)
{
    ze_command_list_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC,
                                   .commandQueueGroupOrdinal = engines.ordinal,
                                   .flags = order == IN_ORDER ? LIST_IN_ORDER : 0};
    ze_command_list_handle_t list;

    must(zeCommandListCreate(gpu->context, gpu->device, &desc, &list));
    return list;
}

ze_command_list_handle_t create_immediate_list_on(const struct gpu *gpu, struct engines engines,
                                                  uint32_t index, enum order order,
                                                  ze_command_queue_mode_t mode)
{
    ze_command_queue_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                    .ordinal = engines.ordinal,
                                    .index = index % engines.count,
                                    .flags = order == IN_ORDER ? QUEUE_IN_ORDER : 0,
                                    .mode = mode};
    ze_command_list_handle_t list;

    must(zeCommandListCreateImmediate(gpu->context, gpu->device, &desc, &list));
    return list;
}

ze_command_list_handle_t create_immediate_list(const struct gpu *gpu, struct engines engines,
                                               enum order order, ze_command_queue_mode_t mode)
{
    return create_immediate_list_on(gpu, engines, 0, order, mode);
}

void execute(ze_command_queue_handle_t queue, ze_command_list_handle_t list)
{
    must(zeCommandQueueExecuteCommandLists(queue, 1, &list, NULL));
}

bool queue_finishes(ze_command_queue_handle_t queue)
{
    ze_result_t result = zeCommandQueueSynchronize(queue, PATIENCE_NS);

    if (result == ZE_RESULT_NOT_READY)
        return false;
    check(result, "zeCommandQueueSynchronize(queue, PATIENCE_NS)");
    return true;
}

void finish(ze_command_queue_handle_t queue)
{
    if (!queue_finishes(queue))
        stop("a queue has not finished after %g s", (double)PATIENCE_NS * 1e-9);
}
