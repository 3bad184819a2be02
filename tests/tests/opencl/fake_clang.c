// SPDX-License-Identifier: MIT OR Apache-2.0
// A stand-in for Intel's libcommon_clang.so, with its interface as common_clang.h declares it: the "SPIR-V" that
// it makes ends with what it was told. Sources "wrong", "options" and "none" fail in the three ways there are.
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct answer {
    const void *const *functions;
    size_t size;
    unsigned char code[4096];
    const char *log;
};

static size_t size_of(const struct answer *answer) { return answer->size; }
static const void *code_of(const struct answer *answer) { return answer->code; }
static const char *name_of(const struct answer *answer) { (void)answer; return "1"; }
static int kind_of(const struct answer *answer) { (void)answer; return 3; }
static const char *log_of(const struct answer *answer) { return answer->log; }
static void release(struct answer *answer) { free(answer); }

static const void *const functions[] = {size_of, code_of, name_of, kind_of, log_of, release};

int Compile(const char *source, const char **headers, unsigned count, const char **names, const char *precompiled,
            size_t precompiled_size, const char *options, const char *its_own, const char *version,
            struct answer **out)
{
    static const unsigned first[5] = {0x07230203, 0x00010000, 0, 1, 0};
    struct answer *answer = calloc(1, sizeof *answer);
    if (headers || count || names || precompiled || precompiled_size)
        abort();
    *out = answer;
    answer->functions = functions;
    answer->log = "a remark";
    /* The text follows two lines that enable halves. */
    const char enables[] = "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n#line 1\n";
    if (strncmp(source, enables, strlen(enables)))
        return -1;
    source += strlen(enables);
    if (!strcmp(source, "wrong")) {
        answer->log = "1:1: error: it is wrong";
        return -15;
    }
    if (!strcmp(source, "options")) {
        free(answer);
        *out = NULL;
        return -43;
    }
    if (!strcmp(source, "none"))
        return 0;
    if (!strcmp(source, "crash"))
        abort();
    memcpy(answer->code, first, sizeof first);
    snprintf((char *)answer->code + sizeof first, sizeof answer->code - sizeof first, "%s|%s|%s", options, its_own, version);
    answer->size = sizeof answer->code;
    return 0;
}
