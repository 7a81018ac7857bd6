/* What the header promises, from C. Prints nothing and returns 0 if it is so. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dprobes_hooks.h"

#define CHECK(condition)                                                      \
    do {                                                                      \
        if (!(condition)) {                                                   \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);   \
            exit(1);                                                          \
        }                                                                     \
    } while (0)

_Static_assert(sizeof(struct hook) == 40 && offsetof(struct hook, hook_state) == 32, "as in head.rs");
_Static_assert(sizeof(struct hook_rec) == 56 && offsetof(struct hook_rec, hook_entry) == 48, "as in c.rs");

USE_HOOK(line);
USE_HOOK(opened);
DECLARE_EXCLUSIVE_HOOK(alone, 0, "");

/* In other.c. */
void read_line(int number, const char *text);
int open_file(int flags);
int close_file(int *closed);
int doubled(int number);

extern const char hook_site_line[] __attribute__((visibility("hidden")));

static char order[64];
static int evaluated;

static int note(struct hook *hook, int number, const char *text, char what)
{
    CHECK(hook == HOOK_OF(line) && strcmp(hook->hook_name, "line") == 0);
    CHECK(number == 7 && strcmp(text, "seven") == 0);
    strncat(order, &what, 1);
    return HOOK_CONTINUE;
}

static int a(struct hook *hook, int number, const char *text) { return note(hook, number, text, 'a'); }
static int b(struct hook *hook, int number, const char *text) { return note(hook, number, text, 'b'); }
static int c(struct hook *hook, int number, const char *text) { return note(hook, number, text, 'c'); }
static int d(struct hook *hook, int number, const char *text) { return note(hook, number, text, 'd'); }

static const char *calls(void)
{
    order[0] = 0;
    read_line(7, "seven");
    return order;
}

static void order_and_errors(void)
{
    struct hook_rec first = {.hook_exit = HOOK_EXIT(a), .hook_flags = HOOK_PRIORITY_FIRST, .hook_exit_name = "a"};
    struct hook_rec last = {.hook_exit = HOOK_EXIT(d), .hook_flags = HOOK_PRIORITY_LAST};
    struct hook_rec middle = {.hook_exit = HOOK_EXIT(c)};
    struct hook_rec lifo = {.hook_exit = HOOK_EXIT(b), .hook_flags = HOOK_QUEUE_LIFO};
    struct hook_rec more = {.hook_exit = HOOK_EXIT(a), .hook_flags = HOOK_PRIORITY_FIRST};

    CHECK(memcmp(hook_site_line, "\x0f\x1f\x44\0\0", 5) == 0);
    CHECK(hook_exit_arm(&first) == HOOK_ERROR_NOT_REGISTERED);
    CHECK(hook_exit_register(HOOK_OF(line), &last) == 0);
    CHECK(hook_exit_register(HOOK_OF(line), &middle) == 0);
    CHECK(hook_exit_register(HOOK_OF(line), &first) == 0);
    CHECK(hook_exit_register(HOOK_OF(line), &lifo) == 0);
    CHECK(hook_exit_register(HOOK_OF(line), &lifo) == HOOK_ERROR_REGISTERED);
    CHECK(hook_exit_register(HOOK_OF(line), &more) == HOOK_ERROR_FIRST_TAKEN);
    more.hook_flags = HOOK_PRIORITY_LAST;
    CHECK(hook_exit_register(HOOK_OF(line), &more) == HOOK_ERROR_LAST_TAKEN);
    more.hook_flags = HOOK_PRIORITY_ONLY;
    CHECK(hook_exit_register(HOOK_OF(line), &more) == HOOK_ERROR_EXCLUSIVE);
    more.hook_flags = HOOK_PRIORITY_LAST | HOOK_QUEUE_LIFO;
    CHECK(hook_exit_register(HOOK_OF(line), &more) == HOOK_ERROR_INVALID);
    CHECK(first.hook_index == 1 && lifo.hook_index == 2 && middle.hook_index == 3 && last.hook_index == 4);

    CHECK(strcmp(calls(), "") == 0);
    first.hook_next = &lifo;
    lifo.hook_next = &last;
    CHECK(hook_exit_arm(&first) == 0);
    CHECK((unsigned char)hook_site_line[0] == 0xe9);
    CHECK(HOOK_OF(line)->hook_flags & HOOK_ACTIVE);
    CHECK((first.hook_flags & HOOK_ARMED) && (last.hook_flags & HOOK_ARMED) && !(middle.hook_flags & HOOK_ARMED));
    CHECK(strcmp(calls(), "abd") == 0);
    CHECK(hook_exit_arm(&middle) == 0);
    CHECK(strcmp(calls(), "abcd") == 0);
    CHECK(hook_terminate(0) == HOOK_ERROR_IN_USE);
    CHECK(hook_exit_disarm(&first) == 0);
    CHECK(strcmp(calls(), "c") == 0);
    last.hook_next = &middle;
    CHECK(hook_exit_deregister(&first) == 0);
    CHECK(memcmp(hook_site_line, "\x0f\x1f\x44\0\0", 5) == 0);
    CHECK(!(HOOK_OF(line)->hook_flags & HOOK_ACTIVE) && first.hook_entry == 0 && first.hook_index == 0);
}

static int refuse(struct hook *hook, long *code, int flags)
{
    (void)hook;
    *code = -13;
    return flags == 0 ? HOOK_RETURN : flags == 1 ? HOOK_TERMINATE : HOOK_CONTINUE;
}

static int counted;

static int count(struct hook *hook)
{
    (void)hook;
    counted++;
    return HOOK_CONTINUE;
}

static void returning(void)
{
    struct hook_rec record = {.hook_exit = HOOK_EXIT(refuse), .hook_exit_name = "refuse"};
    struct hook_rec later = {.hook_exit = HOOK_EXIT(count)};
    CHECK(open_file(0) == 3);
    CHECK(hook_exit_register(HOOK_OF(opened), &record) == 0);
    CHECK(hook_exit_register(HOOK_OF(opened), &later) == 0);
    record.hook_next = &later;
    CHECK(hook_exit_arm(&record) == 0);
    CHECK(open_file(0) == -13 && counted == 0);
    CHECK(open_file(1) == 3 && counted == 0);
    CHECK(open_file(2) == 3 && counted == 1);
    CHECK(hook_exit_deregister(&record) == 0);
    CHECK(open_file(0) == 3);
}

static struct hook_rec once;
static int blocked;

static int only_once(struct hook *hook)
{
    sigset_t set;
    (void)hook;
    pthread_sigmask(SIG_SETMASK, 0, &set);
    blocked = sigismember(&set, SIGUSR1);
    counted++;
    HOOK_DISARM_SELF(&once);
    return HOOK_CONTINUE;
}

static void *hit_alone(void *unused)
{
    for (int i = 0; i < 1000; i++) {
        EXCLUSIVE_HOOK(alone);
    }
    return unused;
}

static void self_disarm(void)
{
    struct hook_rec second = {.hook_exit = HOOK_EXIT(count)};
    once.hook_exit = HOOK_EXIT(only_once);
    once.hook_flags = HOOK_QUIESCED | HOOK_SIGNALS_BLOCKED;
    CHECK(hook_exit_register(HOOK_OF(alone), &once) == 0);
    CHECK(hook_exit_register(HOOK_OF(alone), &second) == HOOK_ERROR_EXCLUSIVE);
    for (int round = 0; round < 20; round++) {
        pthread_t threads[4];
        counted = 0;
        CHECK(hook_exit_arm(&once) == 0);
        for (int i = 0; i < 4; i++) {
            CHECK(pthread_create(&threads[i], 0, hit_alone, 0) == 0);
        }
        for (int i = 0; i < 4; i++) {
            CHECK(pthread_join(threads[i], 0) == 0);
        }
        CHECK(counted == 1 && blocked == 1);
        CHECK(!(once.hook_flags & HOOK_ARMED) && !(HOOK_OF(alone)->hook_flags & HOOK_ACTIVE));
    }
    CHECK(hook_exit_deregister(&once) == 0);
}

static struct hook_rec own;
static int own_answer;

static int take_away(struct hook *hook)
{
    (void)hook;
    counted++;
    own_answer = hook_exit_deregister(&own);
    return HOOK_CONTINUE;
}

static void self_deregister(void)
{
    own.hook_exit = HOOK_EXIT(take_away);
    counted = 0;
    CHECK(hook_exit_register(HOOK_OF(alone), &own) == 0 && hook_exit_arm(&own) == 0);
    hit_alone(0);
    CHECK(counted == 1 && own_answer == HOOK_PENDING);
}

static void library(const char *path)
{
    for (int round = 0; round < 3; round++) {
        struct hook_rec record = {.hook_exit = HOOK_EXIT(count)};
        void *loaded = dlopen(path, RTLD_NOW);
        if (!loaded) {
            fprintf(stderr, "%s\n", dlerror());
            exit(1);
        }
        void (*work)(void) = (void (*)(void))dlsym(loaded, "work");
        struct hook *hook = hook_find("in_library");
        CHECK(work && hook && hook->hook_count == 0);
        counted = 0;
        work();
        CHECK(hook_exit_register(hook, &record) == 0 && hook_exit_arm(&record) == 0);
        work();
        CHECK(counted == 1);
        CHECK(dlclose(loaded) == 0);
        CHECK(hook_find("in_library") == 0 && record.hook_entry == 0);
    }
}

int main(int argc, char **argv)
{
    int closed = 0;
    order_and_errors();
    returning();
    self_disarm();
    self_deregister();
    CHECK(close_file(&closed) == 0 && closed == 1);
    CHECK(doubled(4) + doubled(5) == 18 && evaluated == 0);
    CHECK(hook_delete(HOOK_OF(line)) == 0 && hook_find("line") == 0);
    CHECK(hook_delete(HOOK_OF(line)) == HOOK_ERROR_UNKNOWN_HOOK);
    CHECK(hook_identify(HOOK_OF(line)) == 0 && hook_find("line") == HOOK_OF(line));
    if (argc > 1) {
        library(argv[1]);
    }
    CHECK(hook_terminate(0) == 0 && hook_find("line") == 0);
    CHECK(hook_initialise() == 0 && hook_find("line") == HOOK_OF(line));
    return 0;
}
