// A service that is slow at times. Find out why, without reading on.
//
//     gcc -g -O1 -pthread slow.c -o slow
//     ./slow 600
//
// It converts prices between currencies, four threads at a time, and prints how long its requests
// took each second. Its load is its own.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, CURRENCIES = 5, RATES = 20000, LIFE = 30 };

struct request { const char *from, *to; double amount; };
struct entry { char name[4]; double rate; time_t until; };

static const char *names[CURRENCIES] = { "EUR", "USD", "GBP", "CHF", "JPY" };
static struct entry cache[CURRENCIES];
static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;
static char table_path[] = "/tmp/dprobes-rates-XXXXXX";
static volatile int ends;
static uint64_t worst, sum, count;
static pthread_mutex_t figures = PTHREAD_MUTEX_INITIALIZER;

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

// The table of rates as a bank sends it: the last line of a currency holds.
__attribute__((noinline)) static double read_table(const char *currency) {
    FILE *table = fopen(table_path, "r");
    char line[64], name[4];
    double rate = 1, each;
    while (table && fgets(line, sizeof line, table))
        if (sscanf(line, "%3s %lf", name, &each) == 2 && !strcmp(name, currency))
            rate = each;
    if (table)
        fclose(table);
    return rate;
}

__attribute__((noinline)) static double rate_of(const char *currency) {
    double rate = 0;
    pthread_mutex_lock(&cache_lock);
    for (int i = 0; i < CURRENCIES; i++)
        if (!strcmp(cache[i].name, currency) && cache[i].until > time(NULL))
            rate = cache[i].rate;
    pthread_mutex_unlock(&cache_lock);
    if (rate != 0)
        return rate;
    rate = read_table(currency);
    pthread_mutex_lock(&cache_lock);
    for (int i = 0; i < CURRENCIES - 1; i++) // the fault: the last place is never filled
        if (!cache[i].name[0] || !strcmp(cache[i].name, currency)) {
            strcpy(cache[i].name, currency);
            cache[i].rate = rate;
            cache[i].until = time(NULL) + LIFE;
            break;
        }
    pthread_mutex_unlock(&cache_lock);
    return rate;
}

__attribute__((noinline)) static double convert(const struct request *request) {
    return request->amount * rate_of(request->to) / rate_of(request->from);
}

static void *works(void *argument) {
    unsigned seed = (unsigned)(uintptr_t)argument;
    while (!ends) {
        int from = rand_r(&seed) % 4, to = rand_r(&seed) % 50 ? (from + 1) % 4 : 4;
        struct request request = { names[from], names[to], 100 };
        uint64_t begin = now();
        volatile double result = convert(&request);
        (void)result;
        uint64_t took = now() - begin;
        pthread_mutex_lock(&figures);
        sum += took;
        count++;
        worst = took > worst ? took : worst;
        pthread_mutex_unlock(&figures);
        usleep(2000);
    }
    return NULL;
}

int main(int words, char **arguments) {
    int file = mkstemp(table_path);
    FILE *table = file < 0 ? NULL : fdopen(file, "w");
    if (!table)
        return perror(table_path), 1;
    for (int i = 0; i < RATES; i++)
        fprintf(table, "%s %d.%02d\n", names[i % CURRENCIES], 1 + i % CURRENCIES, i % 100);
    fclose(table);
    for (int i = 0; i < 4; i++)
        rate_of(names[i]);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, works, (void *)(i + 1));
    for (int left = words > 1 ? atoi(arguments[1]) : 600; left > 0; left--) {
        sleep(1);
        pthread_mutex_lock(&figures);
        printf("%llu requests, mean %llu us, worst %llu us\n", (unsigned long long)count,
               (unsigned long long)(count ? sum / count / 1000 : 0), (unsigned long long)worst / 1000);
        fflush(stdout);
        sum = count = worst = 0;
        pthread_mutex_unlock(&figures);
    }
    ends = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    unlink(table_path);
    return 0;
}
