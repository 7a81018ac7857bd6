/* build: -O1 */
/* A program whose names are chosen to be obeyed by a terminal. The test that builds it puts the hostile bytes in the place of the letters
   Z in the name of the function and of the section.

   For each character on its standard input the function is called once; a line is written for each line. */
#include <stdio.h>
#include <sys/prctl.h>

__attribute__((noinline, section(".textZZZZZZZZZZZZZZZZZZZZZZZZ"))) int callZZZZZZZZZZZZZZZZZZZZZZZZ(int x) {
    __asm__ volatile("" : "+r"(x));
    return x + 1;
}

int main(void) {
    int sum = 0;
    prctl(PR_SET_NAME, "c\033]0;t\007\n\302\233\xff" "z");
    puts("ready");
    fflush(stdout);
    for (int c; (c = getchar()) != EOF;) {
        sum += callZZZZZZZZZZZZZZZZZZZZZZZZ(c);
        if (c == '\n') {
            puts("done");
            fflush(stdout);
        }
    }
    return sum == 1;
}
