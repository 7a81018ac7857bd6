/* build: -O2
 *
 * A process of root's and a child of another user, both of which call `strangers_work` and `strangers_few`.
 *   exec N     the child executes this program again as the other user, calls both 50 times and writes over all the memory below 2 GiB that it
 *              has in common with anybody; meanwhile and afterwards its parent calls both N times.
 *   drop N     the same by a child that becomes another user without executing a program, and waits until it has other memory.
 *   calls N    the child executes this program again and calls both N times; then its parent does.
 *   setuid N FILE  the child executes this program again as the other user, and while it writes over what it has, a child of its own executes FILE, a
 *              copy that is root's and setuid, which calls both N times.
 *   many N     so many children, each of a user of its own, execute this program again and call both 10 times; all of them live at the same time.
 * Prints "done", or what went wrong. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOW (2ul << 30)
#define OTHER 4242
/* Descriptors of those that are one of many. */
#define READY 100
#define GO 101

static volatile long sink;

__attribute__((noinline, noclone)) long strangers_work(long a) {
    sink += a;
    return sink;
}

__attribute__((noinline, noclone)) long strangers_few(long a) {
    sink -= a;
    return sink;
}

static void call(long calls) {
    for (long i = 1; i <= calls; i++) {
        strangers_work(i);
        strangers_few(i);
    }
}

/* The file of the memory that is shared below 2 GiB and can be written; 0: none. With `write`, writes there. What can only be read stays so. */
static unsigned long shared(int write, int *refused) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    unsigned long found = 0;
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start, end, inode;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s %*s %*s %lu", &start, &end, rights, &inode) != 4) continue;
        if (!strstr(line, "memfd:dprobes") || end > LOW || rights[3] != 's') continue;
        if (rights[1] != 'w') {
            *refused = mprotect((void *)start, end - start, PROT_READ | PROT_WRITE) != 0;
            continue;
        }
        found = inode;
        volatile uint64_t *word = (volatile uint64_t *)start;
        for (size_t i = 0; write && i < (end - start) / 8; i++) word[i] = i % 3 ? ~0ull : i;
    }
    if (maps) fclose(maps);
    return found;
}

/* What the other user's process does. */
static int hostile(long calls) {
    int refused = 1;
    call(calls);
    for (int round = 0; round < 100; round++) {
        if (!shared(1, &refused)) return 6;
        usleep(1000);
    }
    return refused ? 0 : 7;
}

/* As the other user, writes until a child is done, which executes a program of root's. */
static int caller(char **argv) {
    int refused, status;
    call(50);
    pid_t child = fork();
    if (child == 0) {
        execl(argv[3], "strangers", "trusted", argv[2], NULL);
        _exit(5);
    }
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (!shared(1, &refused)) return 6;
        usleep(1000);
    }
    return WEXITSTATUS(status);
}

static int become(uid_t other) {
    return setgroups(0, NULL) || setresgid(other, other, other) || setresuid(other, other, other);
}

/* One of many: says that it has called both, and stays until all may go. */
static int one_of_many(void) {
    char byte = 0;
    call(10);
    return write(READY, &byte, 1) != 1 || read(GO, &byte, 1) != 0;
}

static int many(long children) {
    int ready[2], go[2], status;
    char byte;
    if (pipe2(ready, O_CLOEXEC) || pipe2(go, O_CLOEXEC)) return 11;
    for (long child = 0; child < children; child++) {
        pid_t pid = fork();
        if (pid < 0) return 12;
        if (pid) continue;
        if (dup2(ready[1], READY) < 0 || dup2(go[0], GO) < 0 || become(OTHER + 1 + child)) _exit(3);
        execl("/proc/self/exe", "strangers", "one", "0", NULL);
        _exit(5);
    }
    for (long child = 0; child < children; child++)
        if (read(ready[0], &byte, 1) != 1) return 13;
    close(go[1]);
    for (long child = 0; child < children; child++)
        if (wait(&status) < 0 || status) return 14;
    puts("done");
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    long calls = atol(argv[2]);
    int none, status;
    if (!strcmp(argv[1], "hostile")) return hostile(calls);
    if (!strcmp(argv[1], "one")) return one_of_many();
    if (!strcmp(argv[1], "many")) return many(calls);
    if (!strcmp(argv[1], "caller")) return caller(argv);
    if (!strcmp(argv[1], "trusted") && geteuid() != 0) return 10;
    for (int part = 0; !strcmp(argv[1], "trusted"); part++) {
        if (part == 100) return 0;
        call(calls / 100);
        usleep(1000);
    }
    if (!strcmp(argv[1], "other")) return call(calls), 0;
    call(1);
    pid_t child = fork();
    if (child == 0) {
        char number[24];
        unsigned long before = shared(0, &none);
        if (become(OTHER)) _exit(3);
        if (!strcmp(argv[1], "setuid")) {
            execl("/proc/self/exe", "strangers", "caller", argv[2], argv[3], NULL);
            _exit(5);
        }
        if (!strcmp(argv[1], "drop")) {
            for (int wait = 0; before == shared(0, &none); wait++) {
                if (wait == 10000) _exit(4);
                usleep(1000);
            }
            _exit(hostile(50));
        }
        int calls_here = !strcmp(argv[1], "calls");
        snprintf(number, sizeof number, "%ld", calls_here ? calls : 50);
        execl("/proc/self/exe", "strangers", calls_here ? "other" : "hostile", number, NULL);
        _exit(5);
    }
    int waits = strcmp(argv[1], "exec") && strcmp(argv[1], "drop");
    if (waits && (waitpid(child, &status, 0) != child || status)) {
        if (WEXITSTATUS(status) == 10) return puts("no setuid here"), 0;
        printf("the child failed: %d\n", WEXITSTATUS(status));
        return 8;
    }
    for (int part = 0; strcmp(argv[1], "setuid") && part < 100; part++) {
        call(calls / 100);
        if (!waits) usleep(1000);
    }
    if (!waits && (waitpid(child, &status, 0) != child || status)) {
        printf("the child failed: %d\n", WEXITSTATUS(status));
        return 9;
    }
    call(1);
    puts("done");
    return 0;
}
