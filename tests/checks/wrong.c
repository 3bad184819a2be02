// SPDX-License-Identifier: MIT OR Apache-2.0
#include "wrong.h"

#define MAX_KERNELS 16
// In-order lists came with version 1.9 of the API; older headers lack the names.
#define QUEUE_IN_ORDER ((ze_command_queue_flags_t)ZE_BIT(1))
#define LIST_IN_ORDER ((ze_command_list_flags_t)ZE_BIT(3))

ze_driver_handle_t driver;
ze_device_handle_t device;
ze_context_handle_t context;
ze_module_handle_t module;
ze_command_list_handle_t synchronous, asynchronous;
bool cooperative;

static struct wrong *all;
static struct {
    const char *name;
    ze_kernel_handle_t handle;
} kernels[MAX_KERNELS];

void add_wrong(struct wrong *wrong)
{
    wrong->next = all;
    all = wrong;
}

void check(ze_result_t result, const char *call)
{
    if (result == ZE_RESULT_SUCCESS)
        return;
    fprintf(stderr, "%s: 0x%x\n", call, (unsigned)result);
    exit(3);
}

void *device_memory(size_t bytes)
{
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    void *memory;

    must(zeMemAllocDevice(context, &desc, bytes, 64, device, &memory));
    return memory;
}

void *host_memory(size_t bytes)
{
    ze_host_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    void *memory;

    must(zeMemAllocHost(context, &desc, bytes, 64, &memory));
    return memory;
}

void *shared_memory(size_t bytes)
{
    ze_device_mem_alloc_desc_t on_device = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    ze_host_mem_alloc_desc_t on_host = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    void *memory;

    must(zeMemAllocShared(context, &on_device, &on_host, bytes, 64, device, &memory));
    return memory;
}

void release(void *memory)
{
    must(zeMemFree(context, memory));
}

ze_kernel_handle_t kernel_of(const char *name)
{
    ze_kernel_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_KERNEL_DESC, .pKernelName = name};

    for (int i = 0; i < MAX_KERNELS; i++) {
        if (kernels[i].name && strcmp(kernels[i].name, name) == 0)
            return kernels[i].handle;
        if (!kernels[i].name) {
            kernels[i].name = name;
            must(zeKernelCreate(module, &desc, &kernels[i].handle));
            return kernels[i].handle;
        }
    }
    abort();
}

void forget(ze_kernel_handle_t kernel)
{
    for (int i = 0; i < MAX_KERNELS; i++)
        if (kernels[i].handle == kernel)
            kernels[i].name = "", kernels[i].handle = NULL;
}

ze_command_list_handle_t regular_list(void)
{
    ze_command_list_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC,
                                   .flags = LIST_IN_ORDER};
    ze_command_list_handle_t list;

    must(zeCommandListCreate(context, device, &desc, &list));
    return list;
}

ze_command_queue_handle_t new_queue(void)
{
    ze_command_queue_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC};
    ze_command_queue_handle_t queue;

    must(zeCommandQueueCreate(context, device, &desc, &queue));
    return queue;
}

ze_event_pool_handle_t new_pool(uint32_t events)
{
    ze_event_pool_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC,
                                 .flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE | ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP,
                                 .count = events};
    ze_event_pool_handle_t pool;

    must(zeEventPoolCreate(context, &desc, 1, &device, &pool));
    return pool;
}

ze_event_handle_t new_event(ze_event_pool_handle_t pool, uint32_t index)
{
    ze_event_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_DESC,
                            .index = index,
                            .signal = ZE_EVENT_SCOPE_FLAG_HOST,
                            .wait = ZE_EVENT_SCOPE_FLAG_HOST};
    ze_event_handle_t event;

    must(zeEventCreate(pool, &desc, &event));
    return event;
}

ze_event_handle_t counter_based_event(void)
{
    // Names that older headers lack; both kinds of lists, visible to the host.
    ze_driver_handle_t this = driver;
    ze_result_t (*create)(ze_context_handle_t, ze_device_handle_t, uint64_t *, uint64_t *, uint64_t,
                          const ze_event_desc_t *, ze_event_handle_t *);
    ze_event_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_DESC,
                            .signal = ZE_EVENT_SCOPE_FLAG_HOST,
                            .wait = ZE_EVENT_SCOPE_FLAG_HOST};
    ze_event_handle_t event;

    must(zeDriverGetExtensionFunctionAddress(this, "zexCounterBasedEventCreate", (void **)&create));
    must(create(context, device, NULL, NULL, 0, &desc, &event));
    return event;
}

void finish(ze_command_list_handle_t list)
{
    ze_event_pool_handle_t pool = new_pool(1);
    ze_event_handle_t done = new_event(pool, 0);

    must(zeCommandListAppendBarrier(list, done, 0, NULL));
    must(zeEventHostSynchronize(done, UINT64_MAX));
    must(zeEventDestroy(done));
    must(zeEventPoolDestroy(pool));
}

void execute(ze_command_list_handle_t list)
{
    ze_command_queue_handle_t queue = new_queue();

    must(zeCommandQueueExecuteCommandLists(queue, 1, &list, NULL));
    must(zeCommandQueueSynchronize(queue, UINT64_MAX));
    must(zeCommandQueueDestroy(queue));
}

void launch_with(ze_command_list_handle_t list, const char *name, struct size size,
                 const struct argument *arguments, size_t count)
{
    ze_kernel_handle_t kernel = kernel_of(name);
    ze_group_count_t groups = {size.groups[0], size.groups[1], size.groups[2]};

    must(zeKernelSetGroupSize(kernel, size.items[0], size.items[1], size.items[2]));
    for (uint32_t i = 0; i < count; i++)
        must(zeKernelSetArgumentValue(kernel, i, arguments[i].size, arguments[i].value));
    if (cooperative)
        must(zeCommandListAppendLaunchCooperativeKernel(list, kernel, &groups, NULL, 0, NULL));
    else
        must(zeCommandListAppendLaunchKernel(list, kernel, &groups, NULL, 0, NULL));
}

static void read_module(const char *path)
{
    static uint8_t bytes[1 << 20];
    FILE *file = fopen(path, "rb");
    size_t size = file ? fread(bytes, 1, sizeof(bytes), file) : 0;
    ze_module_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_MODULE_DESC,
                             .format = ZE_MODULE_FORMAT_IL_SPIRV,
                             .inputSize = size,
                             .pInputModule = bytes};

    must(zeModuleCreate(context, device, &desc, &module, NULL));
    fclose(file);
}

static ze_command_list_handle_t immediate(ze_command_queue_mode_t mode, ze_command_queue_flags_t flags)
{
    ze_command_queue_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                    .flags = flags,
                                    .mode = mode};
    ze_command_list_handle_t list;

    must(zeCommandListCreateImmediate(context, device, &desc, &list));
    return list;
}

ze_command_list_handle_t new_immediate(bool in_order)
{
    return immediate(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS, in_order ? QUEUE_IN_ORDER : 0);
}

static void begin(const char *kernels_file)
{
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    uint32_t one = 1;

    must(zeInit(0));
    must(zeDriverGet(&one, &driver));
    must(zeDeviceGet(driver, &one, &device));
    must(zeContextCreate(driver, &desc, &context));
    read_module(kernels_file);
    synchronous = immediate(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS, QUEUE_IN_ORDER);
    asynchronous = immediate(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS, QUEUE_IN_ORDER);
}

static void destroy_all_but_the_context(void)
{
    for (int i = 0; i < MAX_KERNELS && kernels[i].name; i++)
        if (kernels[i].handle)
            must(zeKernelDestroy(kernels[i].handle));
    must(zeCommandListDestroy(synchronous));
    must(zeCommandListDestroy(asynchronous));
    must(zeModuleDestroy(module));
}

void leave(void)
{
    destroy_all_but_the_context();
    exit(0);
}

// wrong KERNELS.spv [NAME]: runs a program, or names them all.
int main(int argc, char **argv)
{
    if (argc == 1) {
        for (struct wrong *it = all; it; it = it->next)
            puts(it->name);
        return 0;
    }
    begin(argv[1]);
    for (struct wrong *it = all; it; it = it->next)
        if (argc == 2 || strcmp(it->name, argv[2]) == 0)
            it->run();
    destroy_all_but_the_context();
    must(zeContextDestroy(context));
    return 0;
}
