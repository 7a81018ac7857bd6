/* What coverage is measured of; build: -g -O0 -pthread
 *
 * covered plain | fork | threads | plugin FILE.so | wait
 *
 * Some of its lines are reached, some are not, and some not any more: behind calls that do not come
 * back. `plugin` calls a function of a library that it loads. `wait` waits for lines of input. */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static jmp_buf back;

static int classify(int n)
{
    switch (n % 6) {
    case 0:
        return 10;
    case 1:
        n += 3;
        break;
    case 2:
    case 3:
        n -= 1;
        break;
    case 5:
        n = n > 4 ? n - 4 : 0;
        break;
    default:
        n *= 2;
    }
    if (n > 100)
        n = 100;
    else if (n < 0 || n == 17)
        n = 0;
    return n;
}

static int never(int a)
{
    int b = a * 2;
    return b + 1;
}

static void leaves(int how)
{
    if (how == 0)
        return;
    longjmp(back, how);
    puts("not reached");
}

static int loops(int count)
{
    int sum = 0;
    for (int i = 0; i < count; i++) {
        if (i == 3)
            continue;
        if (i == 1000)
            goto out;
        sum += classify(i);
    }
    while (sum > 5) {
        sum -= 3;
        if (sum == 1000)
            break;
    }
    do {
        sum++;
    } while (sum < 3);
out:
    return sum;
}

static void in_child(void)
{
    puts("a child");
    fflush(stdout);
    exit(loops(2));
    puts("not reached");
}

static void *in_thread(void *start)
{
    pthread_barrier_wait(start);
    long sum = 0;
    for (int count = 0; count < 12; count++)
        sum += loops(count);
    return (void *)sum;
}

static long threads(void)
{
    pthread_t all[8];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, 8);
    for (int i = 0; i < 8; i++)
        pthread_create(&all[i], NULL, in_thread, &start);
    long sum = 0;
    for (int i = 0; i < 8; i++) {
        void *result;
        pthread_join(all[i], &result);
        sum += (long)result;
    }
    return sum;
}

static int plugged(const char *file)
{
    void *library = dlopen(file, RTLD_NOW);
    if (!library) {
        puts(dlerror());
        return 1;
    }
    int (*plugin)(int) = (int (*)(int))dlsym(library, "plugin");
    return plugin(2);
}

static void waits(void)
{
    char line[80];
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (line[0] == 'l')
            printf("loops %d\n", loops(10));
        if (line[0] == 'n')
            printf("never %d\n", never(10));
        fflush(stdout);
    }
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "plain";
    int status = 0;
    if (strcmp(what, "wait") == 0) {
        waits();
        return 0;
    }
    if (strcmp(what, "fork") == 0) {
        pid_t child = fork();
        if (child == 0)
            in_child();
        waitpid(child, &status, 0);
        printf("ended with %d\n", WEXITSTATUS(status));
        return 5;
    }
    if (strcmp(what, "threads") == 0) {
        printf("the threads say %ld\n", threads());
        return 0;
    }
    if (strcmp(what, "plugin") == 0) {
        printf("the plugin says %d\n", plugged(words[2]));
        return 6;
    }
    int how = setjmp(back);
    if (how == 0) {
        leaves(0);
        leaves(7);
        puts("not reached");
    }
    printf("%s %d %d\n", what, how, loops(10));
    if (how == 1)
        printf("%d\n", never(how));
    exit(3);
    return 4;
}
