/* Threads hit a hook while lists of its exits are armed, disarmed and deregistered: each hit sees all of a list or nothing. An
 * exit that disarms itself is not called again. Ends by itself after ROUNDS rounds, or after LONGEST seconds. */
#include "dprobes_hooks.h"
#include <pthread.h>
#include <stdio.h>
#include <time.h>

DECLARE_HOOK(busy, 1, "long number");

enum { THREADS = 4, EXITS = 3, ROUNDS = 20000, LONGEST = 3 };

static __thread unsigned seen;
static __thread long rounds;
static long partial, hits;
static volatile int stop;

/* An exit takes time now and then, so that the list is disarmed while a thread is inside. */
static int note(unsigned which)
{
    if ((++rounds & 31) == 0)
        for (volatile int i = 0; i < 200; i++) ;
    seen |= which;
    return HOOK_CONTINUE;
}

static int first(struct hook *hook, long number) { (void)hook, (void)number; return note(1); }
static int second(struct hook *hook, long number) { (void)hook, (void)number; return note(2); }
static int third(struct hook *hook, long number) { (void)hook, (void)number; return note(4); }

static struct hook_rec list[EXITS] = {
    {.hook_exit = HOOK_EXIT(first)}, {.hook_exit = HOOK_EXIT(second)}, {.hook_exit = HOOK_EXIT(third)},
};

__attribute__((noinline)) static void site(long number) { HOOK(busy, number); }

static void *worker(void *unused)
{
    long count = 0, wrong = 0;
    for (; !stop; count++) {
        seen = 0;
        site(count);
        wrong += seen != 0 && seen != 7;
    }
    __atomic_add_fetch(&partial, wrong, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&hits, count, __ATOMIC_SEQ_CST);
    return unused;
}

static int register_all(void)
{
    for (int i = 0; i < EXITS; i++)
        if (hook_exit_register(HOOK_OF(busy), &list[i]) != 0) return 0;
    return 1;
}

static struct hook_rec self;
static long calls;

static int once(struct hook *hook, long number)
{
    (void)hook, (void)number;
    calls++;
    HOOK_DISARM_SELF(&self);
    return HOOK_CONTINUE;
}

int main(void)
{
    pthread_t threads[THREADS];
    long done = 0;
    for (int i = 0; i + 1 < EXITS; i++) list[i].hook_next = &list[i + 1];
    if (!register_all()) return 1;
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, worker, 0);
    time_t end = time(0) + LONGEST;
    for (; done < ROUNDS && time(0) < end; done++) {
        if (hook_exit_arm(list) != 0) return 2;
        for (volatile int i = 0; i < 500; i++) ;
        /* Each way of taking a list away. */
        if (done % 16 == 0) {
            if (hook_exit_deregister(list) != 0 || !register_all()) return 3;
        } else if (done % 16 == 8) {
            if (hook_delete(HOOK_OF(busy)) != 0 || hook_identify(HOOK_OF(busy)) != 0 || !register_all()) return 4;
        } else if (hook_exit_disarm(list) != 0 || list[0].hook_flags & HOOK_ARMED) {
            return 5;
        }
    }
    stop = 1;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
    if (partial) {
        fprintf(stderr, "%ld of %ld hits saw a part of the list, in %ld rounds\n", partial, hits, done);
        return 6;
    }
    hook_exit_deregister(list);
    self.hook_exit = HOOK_EXIT(once);
    hook_exit_register(HOOK_OF(busy), &self);
    for (int i = 0; i < 3; i++) {
        hook_exit_arm(&self);
        site(i);
        site(i);
    }
    return calls == 3 ? 0 : 7;
}
