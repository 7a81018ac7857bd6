/* build: -O2 -g -pthread */
/* Leaks, locks, sleeps, opens, starts threads and looks a host up, each a known number of times. */
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static void *volatile kept;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) static void leaks(void)
{
    kept = malloc(3000);
    kept = calloc(2, 1500);
    kept = realloc(NULL, 3000);
    void *aligned;
    if (posix_memalign(&aligned, 64, 3000) == 0)
        kept = aligned;
}

__attribute__((noinline)) static void cleans(void)
{
    void *block = malloc(5000);
    kept = block;
    block = realloc(block, 50000);
    kept = block;
    free(block);
}

static void *locks(void *unused)
{
    (void)unused;
    for (int i = 0; i < 20; i++) {
        pthread_mutex_lock(&mutex);
        usleep(1000);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[3];
    struct addrinfo *found;
    for (int i = 0; i < 7; i++) {
        leaks();
        cleans();
    }
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, locks, NULL);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++)
        open("/nowhere/at/all", O_RDONLY);
    close(open("/dev/null", O_RDONLY));
    getaddrinfo("127.0.0.1", "80", NULL, &found);
    return 0;
}
