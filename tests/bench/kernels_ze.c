// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The benchmarks of kernels on Level Zero.
#include "gpu.h"
#include "kernels.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

struct device {
    struct gpu gpu;
    ze_module_handle_t module;
    ze_command_list_handle_t list;
};

struct launch {
    ze_kernel_handle_t kernel;
};

struct device *open_device(void)
{
    struct device *device = calloc(1, sizeof *device);

    if (!device)
        stop("no memory");
    open_gpu(&device->gpu, ".");
    device->list = create_immediate_list(&device->gpu, device->gpu.compute, IN_ORDER,
                                         ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
    return device;
}

void load_module(struct device *device, const char *path)
{
    FILE *file = fopen(path, "rb");

    if (!file || fseek(file, 0, SEEK_END))
        stop("%s can't be read", path);
    long size = ftell(file);
    uint8_t *bytes = malloc((size_t)size);
    rewind(file);
    if (!bytes || fread(bytes, 1, (size_t)size, file) != (size_t)size)
        stop("%s can't be read", path);
    fclose(file);
    const ze_module_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_MODULE_DESC,
                                   .format = ZE_MODULE_FORMAT_IL_SPIRV,
                                   .inputSize = (size_t)size,
                                   .pInputModule = bytes};
    must(zeModuleCreate(device->gpu.context, device->gpu.device, &desc, &device->module, NULL));
    free(bytes);
}

void *allocate_memory(struct device *device, size_t bytes)
{
    return allocate(&device->gpu, SHARED_MEMORY, bytes);
}

struct launch *prepare(struct device *device, const char *name, int count,
                       const struct argument *arguments)
{
    struct launch *launch = calloc(1, sizeof *launch);
    const ze_kernel_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_KERNEL_DESC, .pKernelName = name};

    if (!launch)
        stop("no memory");
    must(zeKernelCreate(device->module, &desc, &launch->kernel));
    for (int i = 0; i < count; i++) {
        const struct argument *argument = &arguments[i];
        bool is_memory = argument->kind == MEMORY;
        size_t size = is_memory ? sizeof argument->value : argument->size;
        const void *value = is_memory ? &argument->value : argument->value;

        must(zeKernelSetArgumentValue(launch->kernel, (uint32_t)i, size, value));
    }
    return launch;
}

void run(struct device *device, struct launch *launch, const size_t global[2],
         const size_t local[2])
{
    const ze_group_count_t groups = {(uint32_t)(global[0] / local[0]),
                                     (uint32_t)(global[1] / local[1]), 1};

    must(zeKernelSetGroupSize(launch->kernel, (uint32_t)local[0], (uint32_t)local[1], 1));
    must(zeCommandListAppendLaunchKernel(device->list, launch->kernel, &groups, NULL, 0, NULL));
}
