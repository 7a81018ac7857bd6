// A service that is idle most of the time and yet does not get faster with more threads. Find out
// why, without reading on.
//
//     gcc -g -O1 -pthread lock.c -o lock
//     ./lock 600
//
// Eight threads take orders and note each in a journal; printed are the orders of each second.
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 8 };

struct journal { pthread_mutex_t lock; int file; unsigned lines; };
struct order { unsigned number; char text[48]; };

static struct journal journal = { PTHREAD_MUTEX_INITIALIZER, -1, 0 };
static pthread_mutex_t stock_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned stock[16];
static volatile int ends;
static unsigned orders;

__attribute__((noinline)) static void take_from_stock(const struct order *order) {
    pthread_mutex_lock(&stock_lock);
    stock[order->number % 16]++;
    pthread_mutex_unlock(&stock_lock);
}

// Makes sure that what was written is on the disk. (A disk that takes 3 ms.)
__attribute__((noinline)) static void flush_journal(struct journal *journal) {
    fdatasync(journal->file);
    usleep(3000);
}

__attribute__((noinline)) static void note(struct journal *journal, const struct order *order) {
    pthread_mutex_lock(&journal->lock);
    if (write(journal->file, order->text, strlen(order->text)) > 0)
        journal->lines++;
    if (journal->lines % 4 == 0)
        flush_journal(journal); // the fault: all others wait for the disk
    pthread_mutex_unlock(&journal->lock);
}

static void *works(void *argument) {
    unsigned number = (unsigned)(uintptr_t)argument;
    while (!ends) {
        struct order order = { number += THREADS, "" };
        snprintf(order.text, sizeof order.text, "order %u\n", order.number);
        take_from_stock(&order);
        note(&journal, &order);
        __atomic_fetch_add(&orders, 1, __ATOMIC_RELAXED);
        usleep(200);
    }
    return NULL;
}

int main(int words, char **arguments) {
    char path[] = "/tmp/dprobes-journal-XXXXXX";
    journal.file = mkstemp(path);
    if (journal.file < 0)
        return perror(path), 1;
    unlink(path);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, works, (void *)i);
    for (int left = words > 1 ? atoi(arguments[1]) : 600; left > 0; left--) {
        sleep(1);
        printf("%u orders\n", __atomic_exchange_n(&orders, 0, __ATOMIC_RELAXED));
        fflush(stdout);
    }
    ends = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
