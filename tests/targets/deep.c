/* build: -O2 -fomit-frame-pointer -fno-optimize-sibling-calls -rdynamic -ldl
 *
 * Deep stacks without frame pointers. `deep` recurses to many depths, and sorts there, so that the C library calls
 * deep_leaf. `deep open` prints "ready", and for each line opens the library of that name, calls its deep_inside, which
 * calls deep_leaf, closes it, and prints "done". With -DLIBRARY it is that library; with -DMANY, too, one with much
 * unwinding information. At its end it writes its mappings to the file that MAPS names. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef LIBRARY
__attribute__((noinline)) int deep_within(int (*leaf)(int), int n) {
    char text[n * 16 + 1];
    memset(text, n, sizeof text);
    return leaf(text[n]) + text[0];
}

__attribute__((noinline)) int deep_inside(int (*leaf)(int), int n) {
    return n ? deep_inside(leaf, n - 1) + n : deep_within(leaf, 3) + 1;
}

#ifdef MANY
__asm__(".text\n"
        ".rept 150000\n"
        "  .cfi_startproc\n"
        "  push %rbp\n"
        "  .cfi_adjust_cfa_offset 8\n"
        "  pop %rbp\n"
        "  .cfi_adjust_cfa_offset -8\n"
        "  ret\n"
        "  .cfi_endproc\n"
        "  ud2\n"
        ".endr\n");
#endif
#else
static volatile int calls;

__attribute__((noinline)) int deep_leaf(int n) {
    calls++;
    return n;
}

__attribute__((noinline)) int deep_compare(const void *one, const void *other) {
    return deep_leaf(*(const int *)one) - *(const int *)other;
}

__attribute__((noinline)) int deep_sort(int n) {
    int numbers[n];
    for (int i = 0; i < n; i++) numbers[i] = (i * 7) % n;
    qsort(numbers, n, sizeof *numbers, deep_compare);
    return numbers[n - 1];
}

__attribute__((noinline)) int deep_recurse(int n, int depth) {
    char text[64];
    if (depth == 0) return deep_sort(n) + 1;
    snprintf(text, sizeof text, "%d", depth);
    return deep_recurse(n, depth - 1) + text[0];
}

__attribute__((destructor)) static void write_maps(void) {
    const char *path = getenv("MAPS");
    FILE *from = path ? fopen("/proc/self/maps", "r") : NULL, *to = from ? fopen(path, "w") : NULL;
    for (int c; to && (c = getc(from)) != EOF;) putc(c, to);
    if (to) fclose(to);
}

int main(int argc, char **argv) {
    char line[4096];
    if (argc < 2) {
        int sum = 0;
        for (int round = 0; round < 40; round++) sum += deep_recurse(5 + round % 11, round % 30);
        printf("%d %d\n", sum, calls);
        return 0;
    }
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        void *library = dlopen(line, RTLD_NOW);
        if (!library) return 1;
        int (*inside)(int (*)(int), int) = (int (*)(int (*)(int), int))dlsym(library, "deep_inside");
        if (!inside || inside(deep_leaf, 4) == 0 || dlclose(library)) return 1;
        printf("done\n");
        fflush(stdout);
    }
    return 0;
}
#endif
