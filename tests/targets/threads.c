/* build: -O2 -pthread
 *
 * Threads that are born and die all the time. A server on standard input:
 *   pid      prints "pid N"
 *   run N    starts N threads, one after the other in batches of four, which call threads_work ten times each;
 *            prints "done CALLS" when all have ended
 *   quit     ends (so does end of file); prints "born N", the threads that came and went meanwhile
 * From start to end two more threads do nothing but start threads that die at once. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_long sink, born;
static atomic_int stop;

__attribute__((noinline, noclone)) long threads_work(long a) { return sink += a; }

static void *nothing(void *argument) {
    born++;
    return argument;
}

static void *churn(void *argument) {
    pthread_t thread;
    while (!stop) {
        if (pthread_create(&thread, NULL, nothing, NULL) == 0) pthread_join(thread, NULL);
        usleep(500);
    }
    return argument;
}

static void *ten(void *argument) {
    for (int i = 0; i < 10; i++) threads_work(i);
    return argument;
}

int main(void) {
    char line[64];
    pthread_t churners[2], batch[4];
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; i < 2; i++)
        if (pthread_create(&churners[i], NULL, churn, NULL)) return 2;
    while (fgets(line, sizeof line, stdin) && strncmp(line, "quit", 4)) {
        int count = 0;
        if (!strncmp(line, "pid", 3)) printf("pid %d\n", getpid());
        if (sscanf(line, "run %d", &count) != 1) continue;
        for (int started = 0; started < count;) {
            int now = 0;
            while (now < 4 && started < count) {
                if (pthread_create(&batch[now], NULL, ten, NULL)) return 2;
                now++, started++;
            }
            while (now) pthread_join(batch[--now], NULL);
        }
        printf("done %d\n", count * 10);
    }
    stop = 1;
    for (int i = 0; i < 2; i++) pthread_join(churners[i], NULL);
    printf("born %ld\n", (long)born);
    return 0;
}
