/* build: -O2
 *
 * Children. The function `forks_work` is called a known number of times by the parent, by forked children and
 * grandchildren, by a child that shares memory (clone with CLONE_VM), by a vfork child before it executes, and by
 * programs started with vfork + exec and posix_spawn (this program itself, as `forks leaf N`).
 * Prints "calls N" with the sum over all of them, and exits with 0 if every child ended well. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static volatile long sink;
static char stack[65536] __attribute__((aligned(16)));

__attribute__((noinline, noclone)) long forks_work(long a) {
    sink += a;
    return sink;
}

static void work(int times) {
    while (times--) forks_work(times);
}

static int shares_memory(void *argument) {
    (void)argument;
    work(100);
    return 0;
}

static int failed;
static void reap(pid_t child) {
    int status;
    if (child < 0 || waitpid(child, &status, __WALL) != child || status) failed++;
}

int main(int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[1], "leaf")) {
        work(atoi(argv[2]));
        return 0;
    }
    int expected = 0;
    char *leaf[] = {argv[0], "leaf", "70", NULL};

    work(50);
    expected += 50;

    pid_t children[5];
    for (int i = 0; i < 5; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            work(100);
            pid_t grandchild = fork();
            if (grandchild == 0) {
                work(30);
                _exit(0);
            }
            reap(grandchild);
            _exit(failed);
        }
        expected += 130;
    }
    work(20);
    expected += 20;
    for (int i = 0; i < 5; i++) reap(children[i]);

    for (int i = 0; i < 3; i++) {
        pid_t child = vfork();
        if (child == 0) {
            forks_work(1);
            execv(argv[0], leaf);
            _exit(127);
        }
        reap(child);
        expected += 71;
    }
    for (int i = 0; i < 3; i++) {
        pid_t child;
        if (posix_spawn(&child, argv[0], NULL, NULL, leaf, environ)) return 2;
        reap(child);
        expected += 70;
    }
    for (int i = 0; i < 3; i++) {
        reap(clone(shares_memory, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL));
        expected += 100;
    }
    work(10);
    expected += 10;
    printf("calls %d\n", expected);
    return failed != 0;
}
