/* build: -O2 -ldl
 *
 * A module that comes and goes: `dlopen LIBRARY` opens plugin.so, calls plugin_work ten times, closes it, three times
 * over. With the calls of its constructor and destructor that is 15 a round. Prints "calls N". Between rounds it maps
 * memory, so that the library does not always come back to the same address. */
#include <dlfcn.h>
#include <stdio.h>
#include <sys/mman.h>

int main(int argc, char **argv) {
    int calls = 0;
    if (argc < 2) return 2;
    for (int round = 0; round < 3; round++) {
        void *library = dlopen(argv[1], RTLD_NOW);
        if (!library) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        long (*work)(long) = (long (*)(long))dlsym(library, "plugin_work");
        if (!work) return 1;
        for (int i = 0; i < 10; i++) work(i);
        if (dlclose(library)) return 1;
        calls += 15;
        if (mmap(NULL, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) return 2;
    }
    printf("calls %d\n", calls);
    return 0;
}
