/* build: -O1 -ldl
 *
 * What is mapped where a module was: `reuse one TWO` opens module `one`, calls it 10 times and closes it, then
 *   a path         opens that module in its place, and calls it 20 times
 *   data           fills the place with data, forks, and lets the child look for changes
 * Both modules are built from twin.c. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };

static void *use(const char *path, int calls, void **at) {
    void *module = dlopen(path, RTLD_NOW);
    if (!module) _exit(9);
    long (*work)(long) = (long (*)(long))dlsym(module, "twin_work");
    long sum = 0;
    for (int i = 0; i < calls; i++) sum += work(i);
    printf("sum %ld\n", sum);
    *at = (void *)work;
    return module;
}

int main(int count, char **words) {
    if (count < 3) return 2;
    void *first, *second;
    dlclose(use(words[1], 10, &first));
    if (strcmp(words[2], "data")) {
        use(words[2], 20, &second);
        printf("same place %d\n", first == second);
        return 0;
    }
    unsigned char *page = (unsigned char *)((unsigned long)first / PAGE * PAGE);
    if (mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != page) return 8;
    memset(page, 0x11, PAGE);
    fflush(stdout);
    int child = fork(), status, changed = 0;
    for (int i = 0; i < PAGE; i++) changed += page[i] != 0x11;
    if (child == 0) _exit(changed);
    waitpid(child, &status, 0);
    printf("changed %d %d\n", changed, WEXITSTATUS(status));
    return 0;
}
