/* build: -O2 -static
 *
 * Counts accesses to memory while a command runs, with the processor's breakpoints and nothing of dprobes: an independent
 * count to compare with. `breakpoints ADDRESS LENGTH w|rw COMMAND...` prints "accesses N" after the command's output; N is
 * of all processes and processors. The address may be the kernel's. */
#define _GNU_SOURCE
#include <err.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 5) errx(2, "usage: breakpoints ADDRESS LENGTH w|rw COMMAND...");
    struct perf_event_attr event = {
        .type = PERF_TYPE_BREAKPOINT,
        .size = sizeof event,
        .bp_type = strcmp(argv[3], "w") ? HW_BREAKPOINT_RW : HW_BREAKPOINT_W,
        .bp_addr = strtoull(argv[1], NULL, 0),
        .bp_len = strtoull(argv[2], NULL, 0),
    };
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int counters[processors];
    for (long i = 0; i < processors; i++) {
        counters[i] = syscall(SYS_perf_event_open, &event, -1, (int)i, -1, 0);
        if (counters[i] < 0) err(1, "perf_event_open");
    }
    pid_t child = fork();
    if (child == 0) {
        execvp(argv[4], argv + 4);
        err(127, "%s", argv[4]);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child) err(1, "the command");
    uint64_t sum = 0, count;
    for (long i = 0; i < processors; i++) {
        if (read(counters[i], &count, sizeof count) != sizeof count) err(1, "read");
        sum += count;
    }
    printf("accesses %lu\n", sum);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
