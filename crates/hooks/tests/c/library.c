/* A library with a hook, which comes and goes. */
#include "dprobes_hooks.h"

DECLARE_HOOK(in_library, 0, "");

void work(void)
{
    HOOK(in_library);
}
