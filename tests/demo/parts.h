// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The parts of the demo. Each does its work on the GPU, compares every result with the host's and
// writes a line for the report.

#ifndef PARTS_H
#define PARTS_H

#include "gpu.h"

struct line {
    char size[32];
    double milliseconds; // from the first submission to the host's seeing the last result
    char differs[160];   // what differs from the host; empty: nothing
    char note[160];      // an outcome worth saying; may be empty
};

void part_saxpy(const struct gpu *gpu, struct line *line);
void part_matmul(const struct gpu *gpu, struct line *line);
void part_engines(const struct gpu *gpu, struct line *line);
void part_recorded(const struct gpu *gpu, struct line *line);
void part_two_way(const struct gpu *gpu, struct line *line);

double now_ms(void);
// Records a difference, unless there is an earlier one. Always false.
bool differs(struct line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));
// `what` names the buffer in the report.
bool same_floats(struct line *line, const char *what, const float *device, const float *host, size_t n);
bool same_words(struct line *line, const char *what, const uint32_t *device, const uint32_t *host,
                size_t n);

#endif
