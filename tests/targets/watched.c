/* build: -O2 -static -no-pie -fno-pie -Wl,--section-start=.watched=0x0804040c
 *
 * A variable at the address that the manual's example of a user watchpoint names, 0x0804040c. `watched N` writes it N
 * times and reads it N times, each with one instruction, and prints "pid P accesses A". */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((section(".watched"))) volatile int watched = 1;

int main(int argc, char **argv) {
    int times = argc > 1 ? atoi(argv[1]) : 10, wrong = 0;
    printf("pid %d accesses %d\n", getpid(), 2 * times);
    fflush(stdout);
    for (int i = 0; i < times; i++) {
        watched = i;
        wrong += watched != i;
    }
    return wrong;
}
