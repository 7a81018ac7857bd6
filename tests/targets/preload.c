/* build: -O2 -static
 *
 * `preload LIBRARY COUNTFILE COMMAND ARGUMENTS...` executes COMMAND with LIBRARY preloaded and MALLOCCOUNT=COUNTFILE.
 * It is static, so that it calls no shared C library itself: everything a probe there sees is COMMAND's. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    if (setenv("LD_PRELOAD", argv[1], 1) || setenv("MALLOCCOUNT", argv[2], 1)) return 2;
    execvp(argv[3], argv + 3);
    perror(argv[3]);
    return 127;
}
