/* build: -O2 -no-pie -fno-pie
 *
 * A process at low addresses with an instruction of one byte before one whose bytes, as those of a jump, lead below the
 * address space: the first can be a jump only as long as the second may be moved. No other instruction nearby is long enough to
 * take a second jump. Standard input: "go N" runs both N times and prints "ran N"; end of file ends it. Prints "pid N" first. */
#include <stdio.h>
#include <unistd.h>

long crowd(void);
__asm__(".text\n"
        ".globl crowd, crowd_first, crowd_second\n"
        ".type crowd, @function\n"
        "crowd:\n"
        ".rept 80\n mov %eax, %eax\n .endr\n"
        "crowd_first: cmc\n"
        "crowd_second: mov $0x12801234, %eax\n"
        ".rept 80\n mov %eax, %eax\n .endr\n"
        "mov $1, %al\n"
        "ret\n"
        ".size crowd, .-crowd\n");

int main(void) {
    char line[32];
    long count;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("pid %d\n", getpid());
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "go %ld", &count) != 1) return 1;
        for (long i = 0; i < count; i++)
            if (crowd() != 0x12801201) return 2;
        printf("ran %ld\n", count);
    }
    return 0;
}
