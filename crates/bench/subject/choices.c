// What each resolver of a module chooses (STT_GNU_IFUNC), on the processor that this runs on.
//
//     choices MODULE < RESOLVERS
//
// The resolvers are addresses in the module's file, in hexadecimal, one a line; so is what is written: each one's choice, or 0
// where it lies in another module.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct module {
    const char *path;
    unsigned long base, end;
};

static int find(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    struct module *module = argument;
    char path[4096];
    if (!info->dlpi_name[0] || !realpath(info->dlpi_name, path) || strcmp(path, module->path))
        return 0;
    module->base = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        unsigned long end = info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
        if (info->dlpi_phdr[i].p_type == PT_LOAD && end > module->end)
            module->end = end;
    }
    return 1;
}

int main(int argc, char **argv)
{
    char path[4096];
    if (argc != 2 || !realpath(argv[1], path) || !dlopen(path, RTLD_NOW)) {
        fprintf(stderr, "choices: the module cannot be loaded\n");
        return 1;
    }
    struct module module = {.path = path};
    if (!dl_iterate_phdr(find, &module)) {
        fprintf(stderr, "choices: the module is not there\n");
        return 1;
    }
    unsigned long resolver;
    while (scanf("%lx", &resolver) == 1) {
        if (resolver >= module.end)
            return 1;
        unsigned long choice = ((unsigned long (*)(void))(module.base + resolver))() - module.base;
        printf("%lx\n", choice < module.end ? choice : 0);
    }
    return 0;
}
