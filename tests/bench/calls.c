// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Counts the work of one call on the thread that makes it, instruction by instruction: instructions,
// system calls, instructions that lock memory, allocations, pages of code. Unlike times these do not
// depend on the machine's load, so limits on them can be tests. Usage: calls FOLDER-OF-MODULES
// [check|appends].
//
// A child makes the calls between two breakpoints of its own; the parent single-steps through the code
// between them. If that would be too slow for the effect in question, it only counts system calls by
// futex, which wake or sleep, and stop the child without steps. Another child appends to a list while
// Tally logs packets, which gives the bytes of packets and of arguments. With `check` the program fails
// if a call exceeds its limits; with `appends` it only counts what a simulated device can do.
#include "counter_events.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LOGGED = 8, WARM_UP = 100, SAMPLES = 9, ALLOCATORS = 4, MOST_PAGES = 64, CANNOT_TRACE = 77 };

struct counts {
    long instructions, system_calls, locked, allocations;
    // Pages that instructions were fetched from, of program, loader, driver and C library.
    long pages;
};

struct bytes {
    long packets, arguments;
};

// The kernel's code in the process that reads clocks (the vDSO): addresses from, to.
static unsigned long long lent[2];

// Data that parent and child share.
struct shared {
    int row;
    void *allocators[ALLOCATORS];
};

struct calls {
    struct gpu gpu;
    struct kernel kernel;
    ze_command_list_handle_t list, other, immediate;
    ze_event_handle_t signalled, own, waited;
    char *memory;
};

// Not inlined, so that the program's own instructions are the same in all rows.
__attribute__((noinline))
static void launch(struct calls *c, ze_command_list_handle_t list, ze_event_handle_t signal,
                   ze_event_handle_t wait)
{
    const ze_group_count_t one = {1, 1, 1};

    must(zeCommandListAppendLaunchKernel(list, c->kernel.handle, &one, signal, wait ? 1 : 0,
                                         wait ? &wait : NULL));
}

static void nothing(struct calls *c)
{
    must(zeKernelSetIndirectAccess(c->kernel.handle, 0));
}

static void plain(struct calls *c)
{
    launch(c, c->list, NULL, NULL);
}

static void with_signal(struct calls *c)
{
    launch(c, c->list, c->signalled, NULL);
}

static void with_own_wait(struct calls *c)
{
    launch(c, c->list, NULL, c->own);
}

static void with_wait_and_signal(struct calls *c)
{
    launch(c, c->list, c->signalled, c->waited);
}

static void copy(struct calls *c)
{
    must(zeCommandListAppendMemoryCopy(c->list, c->memory, c->memory + 64, 64, NULL, 0, NULL));
}

static void fill(struct calls *c)
{
    const uint32_t pattern = 7;

    must(zeCommandListAppendMemoryFill(c->list, c->memory, &pattern, sizeof(pattern), 64, NULL, 0, NULL));
}

static void event(struct calls *c)
{
    must(zeEventDestroy(create_counter_event(&c->gpu)));
}

static void immediate(struct calls *c)
{
    launch(c, c->immediate, c->signalled, NULL);
}

static void round_trip(struct calls *c)
{
    immediate(c);
    must(zeEventHostSynchronize(c->signalled, UINT64_MAX));
}

static void query(struct calls *c)
{
    must(zeEventQueryStatus(c->signalled));
}

static const struct {
    const char *what;
    void (*call)(struct calls *c);
    bool executes;
    // The limits of a call through the loader: what it does in a release build, plus a tenth; plus two
    // pages or three, since functions move a little with each change. umd/hot.ld keeps them together.
    struct counts limit;
    // The maximum number of bytes that it may write for the device.
    struct bytes bytes;
} rows[] = {
    {"the cheapest call", nothing, false, {85, 0, 2, 0, 6}, {0}},
    {"append to a regular in-order list", plain, false, {420, 0, 1, 0, 9}, {64, 128}},
    {"  with a counter-based signal", with_signal, false, {465, 0, 2, 0, 9}, {64, 128}},
    {"  with a wait for the list's own event", with_own_wait, false, {465, 0, 1, 0, 9}, {64, 128}},
    {"  with another list's event and a signal", with_wait_and_signal, false, {660, 0, 4, 0, 10}, {128, 128}},
    {"copy of 64 bytes, regular in-order list", copy, false, {505, 0, 1, 0, 13}, {64, 0}},
    {"fill of 64 bytes, regular in-order list", fill, false, {535, 0, 1, 0, 15}, {64, 0}},
    {"counter-based event, create and destroy", event, false, {345, 0, 1, 0, 12}, {0}},
    // It wakes a worker, and the watchdog if another worker is still busy with earlier commands.
    {"append to an immediate list that sleeps", immediate, true, {1500, 2, 20, 0, 17}, {0}},
    // No worker is woken for a host that usually waits at once.
    {"  and to wait for it, as before (futex)", round_trip, true, {0}, {0}},
    {"query of an event that is complete", query, true, {185, 0, 1, 0, 8}, {0}},
};

enum { ROWS = sizeof(rows) / sizeof(*rows) };

static void breakpoint(void)
{
    __asm__ volatile("int3" ::: "memory");
}

static void open_calls(struct calls *c, const char *modules)
{
    open_gpu(&c->gpu, modules);
    c->kernel = build_kernel(&c->gpu, "empty", "empty");
    must(zeKernelSetGroupSize(c->kernel.handle, 1, 1, 1));
    c->memory = allocate(&c->gpu, DEVICE_MEMORY, 4096);
    for (uint32_t i = 0; i < 3; i++)
        set_argument(c->kernel, i, sizeof(c->memory), &c->memory);
    c->list = create_list(&c->gpu, c->gpu.compute, IN_ORDER);
    c->other = create_list(&c->gpu, c->gpu.compute, IN_ORDER);
    c->signalled = create_counter_event(&c->gpu);
    c->own = create_counter_event(&c->gpu);
    c->waited = create_counter_event(&c->gpu);
    launch(c, c->list, c->own, NULL);
    launch(c, c->other, c->waited, NULL);
}

// Appends each row's call to a list of its own and closes it, which logs its packets.
static void log_calls(const char *modules)
{
    struct calls c = {0};

    open_calls(&c, modules);
    for (int row = 0; row < ROWS; row++) {
        if (!rows[row].bytes.packets)
            continue;
        c.list = create_list(&c.gpu, c.gpu.compute, IN_ORDER);
        launch(&c, c.list, c.own, NULL);
        for (int i = 0; i < LOGGED; i++)
            rows[row].call(&c);
        must(zeCommandListClose(c.list));
        fprintf(stderr, "end of row %d\n", row);
    }
    _exit(0);
}

static void make_calls(struct shared *shared, const char *modules, bool executes)
{
    struct calls c = {0};
    const char *names[ALLOCATORS] = {"malloc", "calloc", "realloc", "posix_memalign"};

    for (int i = 0; i < ALLOCATORS; i++)
        shared->allocators[i] = dlsym(RTLD_DEFAULT, names[i]);
    open_calls(&c, modules);
    if (executes) {
        c.immediate = create_immediate_list(&c.gpu, c.gpu.compute, IN_ORDER,
                                            ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
        launch(&c, c.immediate, c.signalled, NULL);
        wait_for_event(c.signalled);
    }
    for (int row = 0; row < ROWS; row++) {
        if (rows[row].executes && !executes)
            continue;
        if (rows[row].call == query)
            wait_for_event(c.signalled);
        for (int i = 0; i < WARM_UP; i++)
            rows[row].call(&c);
        for (int i = 0; i < SAMPLES; i++) {
            // Meanwhile the device's threads fall asleep.
            if (rows[row].call == round_trip)
                nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
            shared->row = row;
            breakpoint();
            rows[row].call(&c);
            breakpoint();
        }
    }
    _exit(0);
}

// Whether an instruction locks memory: it has the prefix, or exchanges a register with memory.
static bool locks(const unsigned char *code)
{
    while (*code == 0x66 || *code == 0xf2 || *code == 0xf3)
        code++;
    if (*code == 0xf0)
        return true;
    if ((*code & 0xf0) == 0x40)
        code++;
    return (code[0] == 0x86 || code[0] == 0x87) && code[1] >> 6 != 3;
}

// Counts the calls of futex up to the next breakpoint. False if the child has ended.
static bool run_through(pid_t child, struct counts *counts)
{
    struct user_regs_struct registers;
    int status, stops = 0;

    // The child stops at each entry and each return.
    if (ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)PTRACE_O_TRACESYSGOOD) < 0)
        return false;
    do {
        if (ptrace(PTRACE_SYSCALL, child, NULL, NULL) < 0 || waitpid(child, &status, 0) < 0 ||
            !WIFSTOPPED(status))
            return false;
        if (WSTOPSIG(status) == (SIGTRAP | 0x80) && ptrace(PTRACE_GETREGS, child, NULL, &registers) == 0)
            stops += registers.orig_rax == SYS_futex;
    } while (WSTOPSIG(status) != SIGTRAP);
    counts->system_calls = stops / 2;
    return true;
}

// Finds the kernel's code, which has the same address in the child. There may be none.
static void find_lent(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[256];

    while (maps && fgets(line, sizeof(line), maps))
        if (strstr(line, "[vdso]"))
            sscanf(line, "%llx-%llx", &lent[0], &lent[1]);
    if (maps)
        fclose(maps);
}

// Counts an instruction's page unless an earlier instruction was on it.
static void count_page(struct counts *counts, unsigned long long pages[MOST_PAGES], unsigned long long at)
{
    for (long i = 0; i < counts->pages; i++)
        if (pages[i] == at >> 12)
            return;
    if (counts->pages < MOST_PAGES)
        pages[counts->pages++] = at >> 12;
}

// Steps from one breakpoint to the next. False if the child has ended.
//
// The kernel's code that reads a clock restarts if the clock ticks meanwhile. Single-stepping takes so
// long that it restarts, up to sixty times on one machine; the repeated instructions are not counted.
static bool step_through(pid_t child, const struct shared *shared, struct counts *counts)
{
    struct user_regs_struct registers;
    unsigned long long before = 0, reached = 0, pages[MOST_PAGES];
    int status;

    for (;;) {
        union {
            long words[2];
            unsigned char bytes[16];
        } code;

        if (ptrace(PTRACE_GETREGS, child, NULL, &registers) < 0)
            return false;
        code.words[0] = ptrace(PTRACE_PEEKTEXT, child, registers.rip, NULL);
        code.words[1] = ptrace(PTRACE_PEEKTEXT, child, registers.rip + 8, NULL);
        bool is_lent = registers.rip >= lent[0] && registers.rip < lent[1];
        bool again = is_lent && registers.rip <= reached;
        reached = !is_lent ? 0 : again ? reached : registers.rip;
        // A repeated instruction stops in every iteration.
        if (registers.rip != before && !again) {
            counts->instructions++;
            counts->locked += locks(code.bytes);
            count_page(counts, pages, registers.rip);
            for (int i = 0; i < ALLOCATORS; i++)
                counts->allocations += registers.rip == (unsigned long long)shared->allocators[i];
        }
        counts->system_calls += code.bytes[0] == 0x0f && code.bytes[1] == 0x05;
        before = registers.rip;
        bool ends = code.bytes[0] == 0xcc;
        if (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) < 0 || waitpid(child, &status, 0) < 0 ||
            !WIFSTOPPED(status))
            return false;
        if (ends)
            return true;
    }
}

static int by_counts(const void *a, const void *b)
{
    const struct counts *x = a, *y = b;

    if (x->instructions == y->instructions)
        return (x->system_calls > y->system_calls) - (x->system_calls < y->system_calls);
    return (x->instructions > y->instructions) - (x->instructions < y->instructions);
}

static bool exceeds(const struct counts *is, const struct counts *may)
{
    return is->instructions > may->instructions || is->system_calls > may->system_calls ||
           is->locked > may->locked || is->allocations > may->allocations || is->pages > may->pages;
}

// Counts all calls of a child that has stopped at its first breakpoint. 0 if no limit is exceeded.
static int count_calls(pid_t child, const struct shared *shared, bool check)
{
    struct counts samples[ROWS][SAMPLES] = {0};
    int taken[ROWS] = {0}, status, bad = 0;

    while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
        int signal = WSTOPSIG(status);

        if (signal == SIGTRAP) {
            int row = shared->row;

            if (taken[row] == SAMPLES)
                break;
            struct counts *sample = &samples[row][taken[row]++];
            bool quickly = rows[row].call == round_trip;
            if (!(quickly ? run_through(child, sample) : step_through(child, shared, sample)))
                break;
            signal = 0;
        }
        if (ptrace(PTRACE_CONT, child, NULL, (void *)(long)(signal == SIGSTOP ? 0 : signal)) < 0)
            break;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT_TRACE) {
        printf("not counted: this machine does not let a process trace its child\n");
        return 0;
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status)) {
        fprintf(stderr, "calls: the child ended with status %#x\n", status);
        return 1;
    }
    printf("%-42s%14s%14s%14s%14s%14s\n", "per call", "instructions", "system calls", "locked", "allocations",
           "code pages");
    for (int row = 0; row < ROWS; row++) {
        if (!taken[row])
            continue;
        qsort(samples[row], SAMPLES, sizeof(**samples), by_counts);
        // A host that loses its processor between append and wait sleeps, and a worker is woken for it. On a busy
        // machine that may happen in most samples, so the least counts where a wait is asked for.
        struct counts *counted = &samples[row][rows[row].call == round_trip ? 0 : SAMPLES / 2];
        bool over = check && exceeds(counted, &rows[row].limit);
        const char *verdict = !check ? "" : over ? "   TOO MUCH" : "   ok";

        if (rows[row].call == round_trip) {
            printf("%-42s%14s%14ld%14s%14s%14s%s\n", rows[row].what, "-", counted->system_calls, "-", "-", "-",
                   verdict);
            bad |= over;
            continue;
        }
        printf("%-42s%14ld%14ld%14ld%14ld%14ld%s\n", rows[row].what, counted->instructions,
               counted->system_calls, counted->locked, counted->allocations, counted->pages, verdict);
        bad |= over;
    }
    return bad;
}

// Reads the log of log_calls: a line for each packet, and where the arguments of a kernel are.
static bool count_bytes(FILE *log, struct bytes bytes[ROWS])
{
    char line[1024];
    long packets = 0;
    unsigned long long first = 0, last = 0;
    int row, read = 0;

    while (fgets(line, sizeof(line), log)) {
        const char *arguments = strstr(line, "kernarg=[0x");

        if (sscanf(line, "end of row %d", &row) == 1 && row >= 0 && row < ROWS) {
            // The list begins with a launch that does not belong to the row.
            bytes[row].packets = (packets - 1) * 64 / LOGGED;
            bytes[row].arguments = (long)(last - first) / LOGGED;
            packets = 0;
            first = last = 0;
            read++;
        } else if (strstr(line, "packets: list [")) {
            packets++;
        }
        if (arguments) {
            last = strtoull(arguments + strlen("kernarg=[0x"), NULL, 16);
            first = first ? first : last;
        }
    }
    return read != 0;
}

// Bytes of packets and of arguments that the calls write. 0 if none exceeds its limit.
static int weigh_calls(const char *modules, bool check)
{
    struct bytes bytes[ROWS] = {0};
    FILE *log = tmpfile();
    pid_t child = log ? fork() : -1;
    int status, bad = 0;

    if (child < 0)
        stop("no child to be logged");
    if (child == 0) {
        setenv("TALLY_LOG", "packets=trace", 1);
        dup2(fileno(log), STDERR_FILENO);
        log_calls(modules);
    }
    waitpid(child, &status, 0);
    rewind(log);
    if (!WIFEXITED(status) || WEXITSTATUS(status) || !count_bytes(log, bytes)) {
        fprintf(stderr, "calls: the logged child ended with status %#x\n", status);
        return 1;
    }
    fclose(log);
    printf("\n%-42s%14s%14s\n", "bytes per call", "packets", "arguments");
    for (int row = 0; row < ROWS; row++) {
        const struct bytes *may = &rows[row].bytes;
        bool over = check && (bytes[row].packets > may->packets || bytes[row].arguments > may->arguments);
        const char *verdict = !check ? "" : over ? "   TOO MUCH" : "   ok";

        if (!may->packets)
            continue;
        printf("%-42s%14ld%14ld%s\n", rows[row].what, bytes[row].packets, bytes[row].arguments, verdict);
        bad |= over;
    }
    return bad;
}

int main(int count, char **arguments)
{
    bool check = count == 3 && strcmp(arguments[2], "check") == 0;
    bool appends = count == 3 && strcmp(arguments[2], "appends") == 0;

    if (count < 2 || (count == 3 && !check && !appends)) {
        fprintf(stderr, "usage: %s FOLDER-OF-MODULES [check|appends]\n", arguments[0]);
        return 2;
    }
    find_lent();
    struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = shared == MAP_FAILED ? -1 : fork();
    if (child < 0)
        stop("no child to be counted");
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0) {
            _exit(CANNOT_TRACE);
        }
        make_calls(shared, arguments[1], !appends);
    }
    int bad = count_calls(child, shared, check);
    return appends ? bad : bad | weigh_calls(arguments[1], check);
}
