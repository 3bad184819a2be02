// SPDX-License-Identifier: MIT OR Apache-2.0
#include "parts.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

bool differs(struct line *line, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    if (!line->differs[0])
        vsnprintf(line->differs, sizeof(line->differs), format, arguments);
    va_end(arguments);
    return false;
}

bool same_floats(struct line *line, const char *what, const float *device, const float *host, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (device[i] != host[i])
            return differs(line, "%s[%zu] is %g, the host has %g", what, i, (double)device[i],
                           (double)host[i]);
    return true;
}

bool same_words(struct line *line, const char *what, const uint32_t *device, const uint32_t *host,
                size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (device[i] != host[i])
            return differs(line, "%s[%zu] is %" PRIu32 ", the host has %" PRIu32, what, i, device[i],
                           host[i]);
    return true;
}
