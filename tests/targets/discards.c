/* build: -O2
 *
 * A child that takes away memory that it has not mapped: one of its mappings that are of a file of its probes' tracer, or
 * of no file and below 2 GiB.
 *   discards gone N     the child unmaps the Nth
 *   discards zeros N    it replaces it by zeros of its own
 * Parent and child call discards_work a hundred times before and after. Prints "PID child STATUS wrong N"; ends with
 * status 3 if there is no Nth. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noipa)) long discards_work(long x) { return x * 3 + 1; }

static int work(void) {
    int wrong = 0;
    for (long i = 0; i < 100; i++) wrong += discards_work(i) != i * 3 + 1;
    return wrong;
}

static int discard(int zeros, int number) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    while (maps && fgets(line, sizeof line, maps)) {
        void *start, *end;
        unsigned long inode;
        if (sscanf(line, "%p-%p %*s %*s %*s %lu", &start, &end, &inode) != 3) continue;
        int low = !inode && (unsigned long)start < 0x80000000 && !strchr(line, '[');
        if ((!low && !strstr(line, "memfd:dprobes")) || number--) continue;
        fclose(maps);
        size_t size = end - start;
        if (!zeros) return munmap(start, size);
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
        return mmap(start, size, PROT_READ | PROT_WRITE, flags, -1, 0) != start;
    }
    return 3;
}

int main(int count, char **words) {
    if (count != 3) return 2;
    int wrong = work(), status;
    pid_t child = fork();
    if (!child) {
        wrong = work();
        int failed = discard(!strcmp(words[1], "zeros"), atoi(words[2]));
        if (failed) _exit(failed);
        _exit(wrong + work() ? 4 : 0);
    }
    if (waitpid(child, &status, 0) != child) return 2;
    wrong += work();
    if (WIFEXITED(status) && WEXITSTATUS(status) == 3) return 3;
    printf("%d child %d wrong %d\n", getpid(), status, wrong);
    return 0;
}
