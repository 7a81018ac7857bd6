/* build: -O2
 *
 *   borrower N     calls `borrower_work` with its process id, in itself and in N children that have its memory meanwhile (vfork).
 * Ends with 0. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile long sink;

__attribute__((noinline, noclone)) long borrower_work(long pid) {
    sink += pid;
    return sink;
}

int main(int argc, char **argv) {
    for (int n = argc > 1 ? atoi(argv[1]) : 1; n > 0; n--) {
        borrower_work(getpid());
        pid_t child = vfork();
        if (child == 0) {
            borrower_work(getpid());
            _exit(0);
        }
        if (child < 0 || waitpid(child, NULL, 0) != child) return 1;
    }
    return 0;
}
