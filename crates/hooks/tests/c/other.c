/* The hooked functions, in a file of their own. */
#include "dprobes_hooks.h"

DECLARE_HOOK(line, 2, "int number, const char *text");
DECLARE_GENERIC_HOOK(opened, 1, "int flags");
DECLARE_GENERIC_HOOK(everywhere, 6, "int a, b, c, d, e, f");

void read_line(int number, const char *text)
{
    HOOK(line, number, text);
}

int open_file(int flags)
{
    GENERIC_HOOK_RET(opened, flags);
    return 3;
}

static void closing(int *closed)
{
    GENERIC_HOOK_RET_NORC(opened, 0);
    *closed = 1;
}

int close_file(int *closed)
{
    closing(closed);
    return 0;
}

static inline __attribute__((always_inline)) int twice(int number)
{
    GENERIC_HOOK(everywhere, number, 2, 3, 4, 5, 6);
    return number * 2;
}

int doubled(int number)
{
    return number > 4 ? twice(number) : twice(number);
}
