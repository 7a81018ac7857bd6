// build: -O2 -fPIE -pie
// A program to which it matters what else is mapped in it, and where.
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

#define MIB (1ul << 20)

__attribute__((noinline, noipa)) long narrow_work(long x) { return x * 3 + 1; }

static void *ask(unsigned long place, unsigned long size)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (place ? MAP_FIXED_NOREPLACE : 0);
    return mmap((void *)place, size, PROT_READ | PROT_WRITE, flags, -1, 0);
}

static void limit(int resource, unsigned long bytes)
{
    struct rlimit limit;
    getrlimit(resource, &limit);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    limit.rlim_max = limit.rlim_cur;
    setrlimit(resource, &limit);
}

// Everything that is mapped, and will be, is to stay in memory, of which there may be little.
static void locks(void)
{
    limit(RLIMIT_MEMLOCK, 8 * MIB);
    if (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
        puts("still root");
    int current = mlockall(MCL_CURRENT | MCL_FUTURE);
    printf("locked %d\n", current);
    void *more = ask(0, MIB);
    printf("more %d\n", more != MAP_FAILED);
}

static void counts_addresses(void)
{
    limit(RLIMIT_AS, 64 * MIB);
    int count = 0;
    while (ask(0, MIB) != MAP_FAILED)
        count++;
    printf("%s\n", count >= 40 ? "room" : "no room");
}

// A runtime that wants addresses of its own.
static void takes(unsigned long from, unsigned long to, unsigned long size)
{
    int refused = 0;
    for (unsigned long place = from; place < to; place += size)
        refused += ask(place, size) != (void *)place;
    printf("refused %d\n", refused);
}

// How much is mapped that is no file's.
static void weighs(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    unsigned long sum = 0;
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        int named = strchr(line, '/') != NULL || strchr(line, '[') != NULL;
        if (sscanf(line, "%lx-%lx", &from, &to) == 2 && (!named || strstr(line, "memfd:")))
            sum += to - from;
    }
    printf("%s\n", sum < 3 * MIB / 2 ? "light" : "heavy");
}

int main(int count, char **arguments)
{
    const char *mode = count > 1 ? arguments[1] : "";
    long sum = 0;
    for (int i = 0; i < 100; i++)
        sum += narrow_work(i);
    if (strcmp(mode, "locks") == 0)
        locks();
    if (strcmp(mode, "addresses") == 0)
        counts_addresses();
    if (strcmp(mode, "fixed") == 0)
        takes(0x10000000, 0x80000000, 0x10000000);
    if (strcmp(mode, "shadow") == 0)
        takes(0x7fff7000, 0x80ff7000, 16 * MIB);
    if (strcmp(mode, "weighs") == 0)
        weighs();
    for (int i = 0; i < 100; i++)
        sum += narrow_work(i);
    printf("%ld\n", sum);
    return 0;
}
