/* build: -O1 -g -lpthread
 *
 * Writes to variables when it is told to, a line of standard input each:
 *
 *     threads T N   T new threads write to `counter` N times each; `done PID TID...`
 *     set V         `config.limits[1].soft` becomes V, by one instruction in `set`
 *     read N        `counter` is read N times
 *     fork N        a child writes to `counter` N times
 *     large N       writes to the middle of `large` N times
 *     system        the kernel writes to `counter`: it reads 8 bytes into it from a pipe
 *     exec          executes itself again
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct limit { int hard; int soft; };
struct config { char name[8]; struct limit limits[3]; };

volatile long counter;
volatile struct config config;
volatile long large[12];
static long times;

__attribute__((noinline)) void update(void)
{
    __atomic_fetch_add(&counter, 1, __ATOMIC_SEQ_CST);
}

__attribute__((noinline)) void set(int value)
{
    config.limits[1].soft = value;
}

static void *writes(void *argument)
{
    *(int *)argument = gettid();
    for (long number = 0; number < times; number++)
        update();
    return NULL;
}

static void threads(long count)
{
    pthread_t all[64];
    int numbers[64];
    for (long number = 0; number < count; number++)
        if (pthread_create(&all[number], NULL, writes, &numbers[number]))
            exit(1);
    for (long number = 0; number < count; number++)
        pthread_join(all[number], NULL);
    printf("done %d", getpid());
    for (long number = 0; number < count; number++)
        printf(" %d", numbers[number]);
    printf("\n");
}

int main(int argc, char **argv)
{
    (void)argc;
    char line[128], word[32];
    printf("ready %d\n", getpid());
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        long first = 0, second = 0;
        if (sscanf(line, "%31s %ld %ld", word, &first, &second) < 1)
            continue;
        if (!strcmp(word, "threads") && first > 0 && first <= 64) {
            times = second;
            threads(first);
        } else if (!strcmp(word, "set")) {
            set((int)first);
            printf("done\n");
        } else if (!strcmp(word, "read")) {
            long sum = 0;
            for (long number = 0; number < first; number++)
                sum += counter;
            printf("done %ld\n", sum);
        } else if (!strcmp(word, "fork")) {
            pid_t child = fork();
            if (child == 0) {
                for (long number = 0; number < first; number++)
                    update();
                _exit(0);
            }
            waitpid(child, NULL, 0);
            printf("done\n");
        } else if (!strcmp(word, "large")) {
            for (long number = 0; number < first; number++)
                large[5] = number;
            printf("done\n");
        } else if (!strcmp(word, "system")) {
            int ends[2];
            long value = 77;
            if (pipe(ends) || write(ends[1], &value, 8) != 8 || read(ends[0], (void *)&counter, 8) != 8)
                return 1;
            close(ends[0]);
            close(ends[1]);
            printf("done\n");
        } else if (!strcmp(word, "exec")) {
            execv("/proc/self/exe", argv);
            return 1;
        }
        fflush(stdout);
    }
    return 0;
}
