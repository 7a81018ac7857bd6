// What happens in a process's life, again and again; each way's mean time is written, in nanoseconds.
//
//     life PLUGIN ROUNDS [KIND]...
//
// The kinds are signal, thread, fork, dlopen, exec and call; all of them where none is named. PLUGIN is a shared object for dlopen.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static const char *plugin, *self;
static volatile int caught;

static void handler(int number)
{
    caught += number > 0;
}

static void *body(void *argument)
{
    return argument;
}

// The function that is probed.
__attribute__((noinline)) int called(int number)
{
    __asm__ volatile("" : "+r"(number));
    return number;
}

static int by_signal(void)
{
    return raise(SIGUSR1);
}

static int by_thread(void)
{
    pthread_t thread;
    return pthread_create(&thread, 0, body, 0) || pthread_join(thread, 0);
}

static int by_fork(void)
{
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    return child < 0 || waitpid(child, &status, 0) != child || status;
}

static int by_dlopen(void)
{
    void *handle = dlopen(plugin, RTLD_NOW);
    return !handle || dlclose(handle);
}

static int by_exec(void)
{
    char *words[] = {(char *)self, (char *)"--nothing", 0};
    pid_t child;
    int status;
    if (posix_spawn(&child, self, 0, 0, words, environ))
        return 1;
    return waitpid(child, &status, 0) != child || status;
}

static int by_call(void)
{
    return called(0);
}

static const struct kind {
    const char *name;
    int (*once)(void);
    int times;
} kinds[] = {
    {"signal", by_signal, 40}, {"thread", by_thread, 10}, {"fork", by_fork, 4},
    {"dlopen", by_dlopen, 8},  {"exec", by_exec, 2},      {"call", by_call, 400},
};

static int is_wanted(const char *name, char **words)
{
    if (!*words)
        return 1;
    for (; *words; words++)
        if (!strcmp(*words, name))
            return 1;
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--nothing"))
        return called(0);
    if (argc < 3)
        return 2;
    self = argv[0];
    plugin = argv[1];
    int rounds = atoi(argv[2]);
    signal(SIGUSR1, handler);
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct kind *kind = &kinds[i];
        if (!is_wanted(kind->name, argv + 3))
            continue;
        long times = (long)kind->times * rounds;
        struct timespec start, end;
        clock_gettime(CLOCK_MONOTONIC, &start);
        for (long j = 0; j < times; j++)
            if (kind->once())
                return 1;
        clock_gettime(CLOCK_MONOTONIC, &end);
        // A debugger writes to the same place.
        printf("\n%s %.0f\n", kind->name,
               ((end.tv_sec - start.tv_sec) * 1e9 + (end.tv_nsec - start.tv_nsec)) / times);
        fflush(stdout);
    }
    return 0;
}
