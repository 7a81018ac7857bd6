/* build: -O2 -pthread
 *
 * again ROUNDS WAY works, then executes itself with one round less. The last one,
 *   end     ends
 *   fork    has children that work, too, and execute themselves
 *   serve   prints "serve PID", and does as it is told on standard input:
 *             work N    works so often, prints "done N"
 *             exec N    executes itself, for N rounds more
 *             thread    starts a thread that does nothing, prints "done 0"
 *             files     starts a process that shares its descriptors, and puts a file of its own, all zeros, in the place
 *                       of each other file from 3 on as soon as it is there; prints "done 0"
 *           end of file: ends
 *
 * Each prints "round ROUNDS SUM". */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile long sink;

__attribute__((noinline, noclone)) long again_step(long a, long b) {
    if (a % 3 == 0) return sink += a * b;
    return sink -= b;
}

static int compare(const void *one, const void *other) {
    return *(const int *)one - *(const int *)other;
}

__attribute__((noinline, noclone)) static long work(void) {
    int numbers[64];
    char text[64];
    long sum = 0;
    for (int i = 0; i < 64; i++) numbers[i] = (i * 37) % 64;
    qsort(numbers, 64, sizeof numbers[0], compare);
    for (int i = 0; i < 64; i++) sum += again_step(numbers[i], i);
    for (int i = 0; i < 20; i++) {
        char *volatile copy = malloc(i + 16);
        snprintf(text, sizeof text, "%d %ld", i, sum);
        strcpy(copy, text);
        sum += strlen(copy) + strtol(text, NULL, 10);
        free(copy);
    }
    return sum;
}

static void execute(char *self, long rounds, char *way) {
    char count[32];
    snprintf(count, sizeof count, "%ld", rounds);
    execl("/proc/self/exe", self, count, way, (char *)NULL);
    _exit(127);
}

static void *wait_for_ever(void *unused) {
    for (;;) pause();
    return unused;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    long rounds = atol(argv[1]);
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("round %ld %ld\n", rounds, work());
    if (rounds > 0) execute(argv[0], rounds - 1, argv[2]);
    if (!strcmp(argv[2], "fork")) {
        for (int i = 0; i < 4; i++) {
            pid_t child = fork();
            if (!child) {
                work();
                if (i % 2) execute(argv[0], 1, "end");
                _exit(0);
            }
            int status;
            if (waitpid(child, &status, 0) != child || status) return 3;
        }
    } else if (!strcmp(argv[2], "serve")) {
        char line[64];
        printf("serve %d\n", getpid());
        while (fgets(line, sizeof line, stdin)) {
            long n = 0;
            if (sscanf(line, "work %ld", &n) == 1)
                for (long i = 0; i < n; i++) work();
            else if (sscanf(line, "exec %ld", &n) == 1) execute(argv[0], n, argv[2]);
            else if (!strcmp(line, "thread\n")) {
                pthread_t thread;
                if (pthread_create(&thread, NULL, wait_for_ever, NULL)) return 4;
            } else if (!strcmp(line, "files\n")) {
                int file = fcntl(memfd_create("own", 0), F_DUPFD, 40);
                if (ftruncate(file, 1 << 28)) return 4;
                long child = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
                if (file < 0 || child < 0) return 4;
                if (!child) {
                    prctl(PR_SET_PDEATHSIG, SIGKILL);
                    struct stat own, found;
                    fstat(file, &own);
                    for (;;)
                        for (int other = 3; other < 12; other++)
                            if (!fstat(other, &found) && S_ISREG(found.st_mode) && found.st_ino != own.st_ino)
                                dup2(file, other);
                }
            }
            printf("done %ld\n", n);
        }
    }
    return 0;
}
