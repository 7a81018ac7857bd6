/* build: -O2 -g -pthread
 *
 * A process with much memory, of which core dumps are taken while it works:   dumped MIB [adopts|unshares]
 *   counter  counts, and looks for children, of which there are none; nor is there a signal of one
 *   main     prints "ready", then answers each line that it reads:
 *     ask    calls dumped_ask, prints "asked COUNT" with the count then, and changes all its memory
 *     twice  the same, but calls dumped_ask twice
 *     look   prints "count COUNT surprises N"
 * With `adopts` orphans become its children; with `unshares` its children get a pid namespace of their own. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_long count, surprises, sink;
static volatile long generation = 1;
static unsigned char *volatile memory;
static size_t size;

__attribute__((noinline, noclone)) void dumped_ask(long number) { sink += number; }

static void on_child(int number) { surprises += number == SIGCHLD; }

static void *counter(void *argument) {
    for (;;) {
        count++;
        if (waitpid(-1, NULL, __WALL | WNOHANG) != -1 || errno != ECHILD) surprises++;
        usleep(500);
    }
    return argument;
}

int main(int argc, char **argv) {
    struct sigaction action = {.sa_handler = on_child, .sa_flags = SA_RESTART};
    pthread_t thread;
    char line[64];
    size = (argc > 1 ? atol(argv[1]) : 1) << 20;
    memory = malloc(size);
    memset(memory, (int)generation, size);
    sigaction(SIGCHLD, &action, NULL);
    if (argc > 2 && !strcmp(argv[2], "adopts") && prctl(PR_SET_CHILD_SUBREAPER, 1L)) return 2;
    if (pthread_create(&thread, NULL, counter, NULL)) return 2;
    if (argc > 2 && !strcmp(argv[2], "unshares") && unshare(CLONE_NEWPID)) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("ready\n");
    while (fgets(line, sizeof line, stdin)) {
        if (!strcmp(line, "look\n")) {
            printf("count %ld surprises %ld\n", (long)count, (long)surprises);
            continue;
        }
        for (int times = strcmp(line, "twice\n") ? 1 : 2; times; times--) {
            dumped_ask(generation);
            generation++;
        }
        printf("asked %ld\n", (long)count);
        memset(memory, (int)generation, size);
    }
    return 7;
}
