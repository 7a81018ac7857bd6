/* A function whose return address is in a register for a while: vfork. */
#define _GNU_SOURCE
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) int start(int status) {
    int child = vfork();
    if (child == 0) _exit(status);
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

int main(int argc, char **argv) {
    return start(argc) - 1;
}
