/* build: -O2 -g -pthread
 *
 * What scripts look at. `scripted MODE [N]`, silent, exit status 3:
 *   calls N     N times: scripted_size(i), scripted_name(one of "red", "green", "blue"), scripted_many(1..8),
 *               scripted_node, and scripted_outer, which calls scripted_inner
 *   threads N   eight threads call scripted_size N times each
 *   forks N     three children, one of which executes this program anew, and the parent: `calls N` each
 *   rude        scripted_name with escape sequences and bytes that are not UTF-8
 *   wait        calls scripted_size once, then sleeps until it is ended
 *   serve       calls scripted_size for each line of standard input, and echoes the line
 *   erase N     after one call of scripted_size fills all memory that is shared with others, N times, with ones
 *               and goes on calling */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct point { short x; unsigned char tag[4]; };
struct node { int value; char name[16]; struct node *next; struct point at; };

static volatile long sink;

__attribute__((noinline, noclone)) long scripted_size(long size) { return sink = size * 2; }
__attribute__((noinline, noclone)) long scripted_name(const char *name) { return sink = name[0]; }
__attribute__((noinline, noclone)) long scripted_many(long a, long b, long c, long d, long e, long f, long g, long h) {
    return sink = a + b + c + d + e + f + g + h;
}
__attribute__((noinline, noclone)) long scripted_node(struct node *node) { return sink = node->value; }
__attribute__((noinline, noclone)) long scripted_inner(long a) { return sink = a - 1; }
__attribute__((noinline, noclone)) long scripted_outer(long a) { return scripted_inner(a) + sink; }

static void calls(long times) {
    static const char *const names[] = {"red", "green", "blue"};
    struct node last = {-7, "last", NULL, {-2, {9, 8, 7, 6}}};
    struct node first = {41, "first", &last, {5, {1, 2, 3, 4}}};
    for (long i = 0; i < times; i++) {
        scripted_size(i);
        scripted_name(names[i % 3]);
        scripted_many(1, 2, 3, 4, 5, 6, 7, 8);
        scripted_node(&first);
        scripted_outer(i);
    }
}

static void *sizes(void *times) {
    for (long i = 0; i < *(long *)times; i++) scripted_size(i);
    return NULL;
}

static int threads(long times) {
    pthread_t all[8];
    for (int i = 0; i < 8; i++)
        if (pthread_create(&all[i], NULL, sizes, &times)) return 2;
    for (int i = 0; i < 8; i++) pthread_join(all[i], NULL);
    return 3;
}

static int forks(long times, char *itself) {
    char count[32];
    char *words[] = {itself, "calls", count, NULL};
    snprintf(count, sizeof count, "%ld", times);
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (child == 0) {
            if (i == 2) execv("/proc/self/exe", words);
            calls(times);
            _exit(3);
        }
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 3)
            return 2;
    }
    calls(times);
    return 3;
}

/* Shared, writable mappings: this program makes none itself. */
static int erase(long times) {
    struct { unsigned long from, to; } found[64];
    char line[512];
    int count = 0;
    scripted_size(0);
    FILE *maps = fopen("/proc/self/maps", "r");
    if (!maps) return 2;
    while (fgets(line, sizeof line, maps)) {
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &found[count].from, &found[count].to, rights) == 3 &&
            !strcmp(rights, "rw-s") && count < 63)
            count++;
    }
    fclose(maps);
    for (long i = 0; i < times; i++) {
        for (int each = 0; each < count; each++)
            memset((void *)found[each].from, 0xff, found[each].to - found[each].from);
        scripted_size(i);
    }
    return count ? 3 : 4;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "calls";
    long times = argc > 2 ? atol(argv[2]) : 1;
    if (!strcmp(mode, "threads")) return threads(times);
    if (!strcmp(mode, "forks")) return forks(times, argv[0]);
    if (!strcmp(mode, "erase")) return erase(times);
    if (!strcmp(mode, "rude")) return scripted_name("\033]0;owned\007\x9b""31m\xff\tend\r\n"), 3;
    if (!strcmp(mode, "serve")) {
        char line[64];
        setvbuf(stdout, NULL, _IOLBF, 0);
        puts("ready");
        for (long i = 0; fgets(line, sizeof line, stdin); i++) scripted_size(i), fputs(line, stdout);
        return 3;
    }
    if (!strcmp(mode, "wait")) {
        scripted_size(1);
        for (;;) pause();
    }
    calls(times);
    return 3;
}
