/* build: -O2
 *
 * A child of another user that writes into all large memory it has in common with anybody.
 *   child N    the child writes while its parent, which is root, calls `intruder_work` N times. Prints "calls N untouched", or what
 *              it has found in its own memory.
 *   logs N     N children, eight at a time, each of which calls `intruder_work` as its first doing and four times more.
 * Prints "ready" when it begins, waits for a line or for the end of its input, and calls `intruder_work` once before all else. */
#define _GNU_SOURCE
#include <grp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What has the rings is larger than this, with 64 MiB for each. */
#define LARGE (512ul << 20)
/* Bytes of it that are written. */
#define PART (8ul << 20)
#define WORDS 4096

static volatile uint64_t secret[WORDS] __attribute__((aligned(4096)));
static volatile long sink;

__attribute__((noinline, noclone)) long intruder_work(long a) {
    sink += a;
    return sink;
}

/* Writes into each part of memory that is shared and large; each round with another value. */
static void write_everywhere(unsigned round) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &start, &end, rights) != 3) continue;
        if (rights[1] != 'w' || rights[3] != 's' || end - start < LARGE) continue;
        uint64_t values[] = {(uint64_t)secret, 0, ~0ull, 1, (uint64_t)secret + 8 * round, 1ull << 63, 2, round};
        volatile uint64_t *word = (volatile uint64_t *)start;
        for (size_t i = 0; i < PART / 8; i++) word[i] = values[(round + i / 512) % 8];
    }
    if (maps) fclose(maps);
}

static int child(long calls) {
    int begun[2], over[2];
    char byte;
    if (pipe(begun) || pipe(over)) return 2;
    pid_t pid = fork();
    if (pid == 0) {
        close(over[1]);
        if (setgroups(0, NULL) || setgid(4242) || setuid(4242)) _exit(3);
        for (unsigned round = 0; round < 8; round++) write_everywhere(round);
        if (write(begun[1], "x", 1) != 1) _exit(4);
        /* Once more, as the parent calls. */
        for (unsigned round = 0; round < 8; round++) write_everywhere(round);
        _exit(read(over[0], &byte, 1) == 0 ? 0 : 5);
    }
    if (pid < 0 || read(begun[0], &byte, 1) != 1) return 6;
    for (long i = 0; i < calls; i++) intruder_work(i);
    close(over[0]);
    close(over[1]);
    int status;
    if (waitpid(pid, &status, 0) != pid) return 7;
    for (int i = 0; i < WORDS; i++) {
        if (secret[i]) {
            printf("word %d has become %lx\n", i, (unsigned long)secret[i]);
            return 66;
        }
    }
    if (status) {
        printf("the child has ended with %x\n", status);
        return 8;
    }
    printf("calls %ld untouched\n", calls);
    return 0;
}

static int logs(int children) {
    int running = 0, failed = 0;
    for (int i = 0; i < children || running > 0;) {
        if (i < children && running < 8) {
            pid_t pid = fork();
            if (pid == 0) {
                for (int k = 0; k < 5; k++) intruder_work(k);
                _exit(0);
            }
            failed += pid < 0;
            running += pid > 0;
            i++;
            continue;
        }
        int status;
        if (wait(&status) < 0) break;
        running--;
        failed += status != 0;
    }
    printf("calls %d failed %d\n", 5 * children, failed);
    return failed != 0;
}

int main(int argc, char **argv) {
    if (argc != 3) return 1;
    setvbuf(stdout, NULL, _IONBF, 0);
    puts("ready");
    char line[80];
    if (fgets(line, sizeof line, stdin) == NULL) line[0] = 0;
    intruder_work(0);
    return strcmp(argv[1], "child") ? logs(atoi(argv[2])) : child(atol(argv[2]));
}
