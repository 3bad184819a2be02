// SPDX-License-Identifier: MIT OR Apache-2.0
//
// An ordinary Level Zero program: what a GPU must do, checked against the host, in a short report.
// Usage: demo FOLDER, the folder that holds the kernels as SPIR-V modules. The exit status is 0 if
// every result is right, 1 if one is not, 2 if a call failed.
#include "parts.h"

#include <level_zero/loader/ze_loader.h>
#include <stdio.h>

static const struct {
    const char *title;
    void (*run)(const struct gpu *gpu, struct line *line);
} parts[] = {
    {"a  saxpy", part_saxpy},
    {"b  tiled matrix product", part_matmul},
    {"c  copy, compute, copy on two engines", part_engines},
    {"d  recorded list, waited for each time", part_recorded},
    {"e  two recorded lists, waits both ways", part_two_way},
};

enum { PARTS = sizeof(parts) / sizeof(parts[0]), TITLE_WIDTH = 40, SIZE_WIDTH = 25 };

static void print_loader(void)
{
    zel_component_version_t components[16];
    size_t count = 16;

    if (zelLoaderGetVersions(&count, components) == ZE_RESULT_SUCCESS && count > 0)
        printf("loader   %d.%d.%d\n", components[0].component_lib_version.major,
               components[0].component_lib_version.minor, components[0].component_lib_version.patch);
}

static void print_headline(const struct gpu *gpu)
{
    ze_driver_properties_t driver = {.stype = ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES};
    ze_device_properties_t device = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};
    ze_api_version_t api;

    must(zeDriverGetApiVersion(gpu->driver, &api));
    must(zeDriverGetProperties(gpu->driver, &driver));
    must(zeDeviceGetProperties(gpu->device, &device));
    printf("device   %s\n", device.name);
    print_loader();
    printf("driver   version %08x, Level Zero %u.%u\n", (unsigned)driver.driverVersion,
           (unsigned)ZE_MAJOR_VERSION(api), (unsigned)ZE_MINOR_VERSION(api));
    printf("engines  compute: %u in group %u, copy: %u in group %u\n", gpu->compute.count,
           gpu->compute.ordinal, gpu->copy.count, gpu->copy.ordinal);
    printf("units    %u at %u MHz, largest allocation %.1f GiB\n\n",
           device.numSlices * device.numSubslicesPerSlice * device.numEUsPerSubslice, device.coreClockRate,
           (double)device.maxMemAllocSize / (double)(1 << 30));
}

int main(int count, char **arguments)
{
    struct gpu gpu;
    int wrong = 0;

    if (count != 2) {
        fprintf(stderr, "usage: %s FOLDER-OF-MODULES\n", arguments[0]);
        return 2;
    }
    open_gpu(&gpu, arguments[1]);
    print_headline(&gpu);
    printf("%-*s%-*s%11s   result\n", TITLE_WIDTH, "part", SIZE_WIDTH, "size", "time");
    for (size_t i = 0; i < PARTS; i++) {
        struct line line = {0};
        // Printed before the part runs, so that a failing call appears under its part.
        printf("%-*s", TITLE_WIDTH, parts[i].title);
        fflush(stdout);
        parts[i].run(&gpu, &line);
        printf("%-*s%8.2f ms   %s\n", SIZE_WIDTH, line.size, line.milliseconds,
               line.differs[0] ? line.differs : "ok");
        if (line.note[0])
            printf("   %s\n", line.note);
        wrong += line.differs[0] != '\0';
    }
    close_gpu(&gpu);
    if (wrong)
        printf("\n%d of %d parts differ from the host.\n", wrong, (int)PARTS);
    else
        printf("\nAll %d parts agree with the host.\n", (int)PARTS);
    return wrong ? 1 : 0;
}
