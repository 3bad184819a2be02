// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The time that a program waits for the first launch of kernels. Each line of standard input names a
// kernel, the size of a group as in "8x1", and arguments: "m" is memory, "v24:8" a value of 24 bytes
// with the address of that memory at 8, "l64" local memory of 64 bytes; all else is zero. One group is
// launched. The answer is the time in milliseconds from before the module's creation until its end,
// until the kernel was created, and until the launch had ended.
// Usage: first MODULE.spv
#include "kernels.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ARGUMENTS = 64, MEMORY_BYTES = 1 << 20 };

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void fail(const char *what)
{
    fprintf(stderr, "first: %s\n", what);
    exit(2);
}

static struct argument argument(const char *word, const void *memory)
{
    char *rest;
    const size_t size = strtoul(word + 1, &rest, 10);

    if (*word == 'm')
        return (struct argument){MEMORY, MEMORY_BYTES, memory};
    if (*word == 'l')
        return (struct argument){LOCAL, size, NULL};
    if (*word != 'v')
        fail("no such argument");
    char *value = calloc(size, 1);
    while (*rest == ':') {
        const size_t at = strtoul(rest + 1, &rest, 10);
        if (!value || at + sizeof memory > size)
            fail("a pointer outside of its value");
        memcpy(value + at, &memory, sizeof memory);
    }
    return (struct argument){VALUE, size, value};
}

int main(int argc, char **argv)
{
    struct argument arguments[ARGUMENTS];
    char *line = NULL;
    size_t room = 0;

    if (argc != 2)
        fail("usage: first MODULE.spv");
    struct device *device = open_device();
    void *memory = allocate_memory(device, MEMORY_BYTES);
    memset(memory, 0, MEMORY_BYTES);
    const double begin = now_ms();
    load_module(device, argv[1]);
    const double built = now_ms();
    while (getline(&line, &room, stdin) > 0) {
        const char *kernel = strtok(line, " \n"), *group = strtok(NULL, " \n"), *word;
        int count = 0;

        if (!kernel || !group)
            fail("a line lacks a kernel or a size");
        while ((word = strtok(NULL, " \n"))) {
            if (count == ARGUMENTS)
                fail("too many arguments");
            arguments[count++] = argument(word, memory);
        }
        size_t size[2];
        if (sscanf(group, "%zux%zu", &size[0], &size[1]) != 2)
            fail("a size is not like 8x1");
        struct launch *launch = prepare(device, kernel, count, arguments);
        const double created = now_ms();
        run(device, launch, size, size);
        printf("%.3f %.3f %.3f\n", built - begin, created - begin, now_ms() - begin);
        fflush(stdout);
    }
    free(line);
    return 0;
}
