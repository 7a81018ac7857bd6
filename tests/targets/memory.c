// build: -O1 -g -fno-stack-protector
// Memory of many kinds, one address after the other given to a probed function; then what the program itself can do there.
//   memory kinds    pages with all protections, the stack, code: prints "NAME r w" for each address
//   memory ours     what dprobes has mapped, as /proc/self/maps shows it: prints how many addresses, and whether all is well
//   memory low      the addresses below 2 GiB, in steps of 64 MiB
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 32, MOST = 400 };

// Its code is known: two long nops and a return.
__asm__(".text\n.p2align 6\n.globl memory_look\n.type memory_look, @function\n"
        "memory_look: .byte 0x0f, 0x1f, 0x44, 0, 0, 0x0f, 0x1f, 0x44, 0, 0\nret\n"
        ".size memory_look, . - memory_look\n.p2align 6\n");
void memory_look(unsigned long address);

static struct { const char *name; unsigned long address; } places[MOST];
static int count;
static sigjmp_buf out;

static void add(const char *name, unsigned long address) {
    if (count < MOST) {
        places[count].name = name;
        places[count++].address = address;
    }
}

static void faulted(int signal) {
    (void)signal;
    siglongjmp(out, 1);
}

static int can_read(unsigned long address) {
    if (sigsetjmp(out, 1)) return 0;
    (void)*(volatile unsigned char *)address;
    return 1;
}

static int can_write(unsigned long address) {
    if (!can_read(address) || sigsetjmp(out, 1)) return 0;
    *(volatile unsigned char *)address = *(volatile unsigned char *)address;
    return 1;
}

static void kinds(void) {
    static const int protections[] = {PROT_NONE, PROT_READ, PROT_EXEC, PROT_WRITE, PROT_READ | PROT_EXEC};
    static const char *const names[] = {"none", "read", "execute", "write", "read-execute"};
    // The same addresses in every run.
    char *p = mmap((void *)0x7e0000000000, PAGES * PAGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (p == MAP_FAILED) exit(2);
    memset(p, 'x', PAGES * PAGE);
    int page = 1;
    for (int kind = 0; kind < 5; kind++, page += 2) {
        mprotect(p + page * PAGE, PAGE, protections[kind]);
        add(names[kind], (unsigned long)p + page * PAGE);
    }
    munmap(p + page * PAGE, PAGE);
    add("unmapped", (unsigned long)p + page * PAGE), page += 2;
    madvise(p + page * PAGE, PAGE, MADV_DONTNEED);
    add("zeros", (unsigned long)p + page * PAGE), page += 2;
    int file = memfd_create("memory", 0);
    if (ftruncate(file, PAGE + 100) ||
        mmap(p + page * PAGE, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
        exit(2);
    memset(p + page * PAGE, 'm', PAGE + 100);
    add("shared", (unsigned long)p + page * PAGE);
    add("end of the file", (unsigned long)p + (page + 1) * PAGE + 96);
    add("behind the file", (unsigned long)p + (page + 2) * PAGE);
    int kept = count;
    for (int place = 0; place < kept; place++) {
        unsigned long address = places[place].address;
        add("last", address + PAGE - 1);
        for (int before = 1; before < 16; before += 3) add("before", address - before);
    }
    unsigned long odd[] = {0, 1, 4095, 0x7ffffffff000, 0x7fffffffffff, 0x800000000000, 1UL << 63, 0xffff800000000000,
                           0xffffffffff600000, ~0UL, ~0UL - 7};
    for (unsigned place = 0; place < sizeof odd / sizeof *odd; place++) add("odd", odd[place]);
    for (int place = 0; place < count; place++) memory_look(places[place].address);
    signal(SIGSEGV, faulted), signal(SIGBUS, faulted);
    for (int place = 0; place < count; place++)
        printf("%s %d %d\n", places[place].name, can_read(places[place].address), can_write(places[place].address));
    // What follows has addresses that differ from run to run, or is not what the program itself sees.
    unsigned long frame = (unsigned long)__builtin_frame_address(0);
    unsigned long code = (unsigned long)memory_look;
    memory_look(frame);
    memory_look(frame - (1 << 20));
    memory_look(frame - (7 << 20));
    memory_look(code);
    memory_look(code + 5);
    mprotect((void *)(code & ~(PAGE - 1UL)), PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
    memory_look(code);
    fflush(stdout);
    // The stack is no larger than before.
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    while (fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        if (strstr(line, "[stack]") && sscanf(line, "%lx-%lx", &start, &end) == 2)
            printf("stack %s\n", start < frame - (1 << 20) ? "grown" : "kept");
    }
}

// This program is position-independent: what is below 2 GiB is not its own, nor is code without a file.
static void ours(void) {
    static unsigned long start[20000], end[20000];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512], rights[8], path[256];
    while (fgets(line, sizeof line, maps) && found < 20000) {
        path[0] = 0;
        if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %255s", &start[found], &end[found], rights, path) < 3) continue;
        if (end[found] <= 1UL << 31 || (rights[2] == 'x' && !path[0])) found++;
    }
    for (int place = 0; place < found; place++) {
        unsigned long middle = start[place] + (end[place] - start[place]) / 2;
        unsigned long at[] = {start[place] - 1, start[place], start[place] + 8, middle, end[place] - 8, end[place] - 1};
        for (int it = 0; it < 6; it++) memory_look(at[it]);
    }
    // Probes go on, and so does the program.
    for (int round = 0; round < 1000; round++) memory_look(0);
    printf("mappings %d\n", found);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "kinds";
    if (!strcmp(mode, "kinds")) kinds();
    if (!strcmp(mode, "ours")) ours();
    if (!strcmp(mode, "low"))
        for (unsigned long start = 0; start < 1UL << 31; start += 64UL << 20) memory_look(start);
    printf("done\n");
    return 0;
}
