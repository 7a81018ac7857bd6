/* build: -O2
 *
 * A process to attach to. Standard input:
 *   call N      calls server_work N times, prints "done N"
 *   spin MS     calls it for so many milliseconds, prints "done N"
 *   exit S      exits with status S (end of file: 0)
 *   die         kills itself with SIGKILL
 *   exec N      executes itself as `server leaf N`, which calls server_work N times, prints "done N" and exits with 5
 * Prints "pid N" first. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile long sink;

__attribute__((noinline, noclone)) long server_work(long a) {
    sink += a;
    return sink;
}

static long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

int main(int argc, char **argv) {
    char line[64];
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 2 && !strcmp(argv[1], "leaf")) {
        for (int i = atoi(argv[2]); i--;) server_work(i);
        printf("done %s\n", argv[2]);
        return 5;
    }
    printf("pid %d\n", getpid());
    while (fgets(line, sizeof line, stdin)) {
        long n = 0, calls = 0;
        if (sscanf(line, "call %ld", &n) == 1)
            for (; calls < n; calls++) server_work(calls);
        else if (sscanf(line, "spin %ld", &n) == 1)
            for (long end = now() + n; now() < end; calls++) server_work(calls);
        else if (sscanf(line, "exit %ld", &n) == 1) return (int)n;
        else if (!strncmp(line, "die", 3)) raise(SIGKILL);
        else if (sscanf(line, "exec %ld", &n) == 1) {
            char count[32];
            snprintf(count, sizeof count, "%ld", n);
            execl("/proc/self/exe", argv[0], "leaf", count, (char *)NULL);
            return 127;
        }
        printf("done %ld\n", calls);
    }
    return 0;
}
