// A service for the cookbook: three threads serve requests.
//
//     gcc -g -O1 -pthread svc.c -o svc
//     ./svc 60                        serves for 60 seconds
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct database { long id; const char *name; };
struct client { int fd; struct database *db; };

static pthread_mutex_t store = PTHREAD_MUTEX_INITIALIZER;
static struct database databases[] = { { 1, "orders" }, { 2, "customers" } };
static volatile int ends;
static long served;

__attribute__((noinline)) int lookup(const char *key) {
    int file = open(strcmp(key, "missing") ? "/dev/null" : "/no/such/file", O_RDONLY);
    if (file < 0)
        return -errno;
    close(file);
    return 0;
}

__attribute__((noinline)) int serve(struct client *client, const char *key) {
    char *answer = malloc(64 + strlen(key));
    pthread_mutex_lock(&store);
    if (client->db->id == 2)
        usleep(2000); // this database is slow
    pthread_mutex_unlock(&store);
    __atomic_fetch_add(&served, 1, __ATOMIC_RELAXED);
    int result = lookup(key);
    if (answer)
        snprintf(answer, 64, "%s: %d", key, result);
    return result; // the answer is never freed
}

static void *works(void *argument) {
    static const char *keys[] = { "apple", "pear", "missing" };
    long thread = (long)argument;
    for (long i = 0; !ends; i++) {
        struct client client = { (int)thread, &databases[i % 8 == 0] };
        serve(&client, keys[i % 3]);
        usleep(500);
    }
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t threads[3];
    for (long i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, works, (void *)i);
    sleep(count > 1 ? (unsigned)atoi(arguments[1]) : 60);
    ends = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
