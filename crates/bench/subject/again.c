/* A program that executes itself again and again: what an exec of a module with many probes costs (`bin/arm`).
 *
 * It is linked with the library of `many.c`, and calls each of its functions once each time.
 *
 * usage: again TIMES; for each exec a line "exec WALL CPU wrong N": microseconds from the call of execv to the first instruction of main, and
 * how much processor time the process that traces this one has used meanwhile, 0 if none does; N results were wrong. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

extern uint64_t (*const functions[])(uint64_t);
extern const uint64_t count;

static long in_status(const char *file, const char *what)
{
    char line[256];
    long value = 0;
    FILE *status = fopen(file, "r");
    while (status && fgets(line, sizeof line, status))
        if (!strncmp(line, what, strlen(what)))
            value = atol(line + strlen(what));
    if (status)
        fclose(status);
    return value;
}

static long microseconds(clockid_t clock)
{
    struct timespec time;
    if (clock_gettime(clock, &time))
        return 0;
    return time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

/* The processor time of the process that traces this one. */
static long tracer(void)
{
    char file[64];
    clockid_t clock;
    long thread = in_status("/proc/self/status", "TracerPid:");
    if (!thread)
        return 0;
    snprintf(file, sizeof file, "/proc/%ld/status", thread);
    long process = in_status(file, "Tgid:");
    return process && !clock_getcpuclockid(process, &clock) ? microseconds(clock) : 0;
}

int main(int argc, char **argv)
{
    long now = microseconds(CLOCK_MONOTONIC), used = tracer();
    long left = argc > 1 ? atol(argv[1]) : 0;
    if (argc > 3) {
        uint64_t wrong = 0;
        for (uint64_t at = 0; at < count; at++)
            wrong += functions[at](at) != at + at;
        printf("exec %ld %ld wrong %lu\n", now - atol(argv[2]), used - atol(argv[3]), (unsigned long)wrong);
        fflush(stdout);
    }
    if (left <= 0)
        return 0;
    char next[32], began[32], before[32];
    snprintf(next, sizeof next, "%ld", left - 1);
    snprintf(before, sizeof before, "%ld", tracer());
    snprintf(began, sizeof began, "%ld", microseconds(CLOCK_MONOTONIC));
    execv("/proc/self/exe", (char *[]){ argv[0], next, began, before, NULL });
    return 2;
}
