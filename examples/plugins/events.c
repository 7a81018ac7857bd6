/*
 * A plugin in C: a small trace daemon. It writes what dprobes does to a file, a line for each program that is inserted, each
 * record, each program that is removed.
 *
 *     cc -shared -fPIC -O2 -I crates/hooks/include -o events.so examples/plugins/events.c
 *     dprobes run --plugin ./events.so=events.txt examples/count.rpn -- ls
 *
 *     create 1 libc.so.6 HEX examples/count.rpn
 *     log 1 major 2 minor 1 pid 4711 header 20 data 0700000000000000
 *     destroy 1
 */
#include <inttypes.h>
#include <stdio.h>

#include "dprobes_plugin.h"

DPROBES_PLUGIN;

static const struct dprobes_api *dprobes;
static FILE *file;
static uint32_t events;

static int create(struct hook *hook, uint32_t *event, const char *name, const char *format, const char *description)
{
    (void)hook;
    *event = ++events;
    fprintf(file, "create %" PRIu32 " %s %s %s\n", *event, name, format, description);
    return HOOK_CONTINUE;
}

static int log_record(struct hook *hook, long *code, uint32_t event, const struct dprobes_event *record)
{
    (void)hook;
    (void)code;
    fprintf(file, "log %" PRIu32 " major %" PRIu32 " minor %" PRIu32 " pid %" PRIu32 " header %" PRIu32 " data ", event,
            record->major, record->minor, record->pid, record->size - record->log_size);
    for (uint32_t i = 0; i < record->log_size; i++) {
        fprintf(file, "%02x", record->log[i]);
    }
    fputc('\n', file);
    /* dprobes writes it too. */
    return HOOK_CONTINUE;
}

static int destroy(struct hook *hook, int *rc, uint32_t event)
{
    (void)hook;
    fprintf(file, "destroy %" PRIu32 "\n", event);
    *rc = ferror(file) ? 1 : 0;
    return HOOK_CONTINUE;
}

/* One list: the three become active at once. */
static struct hook_rec on_destroy = {.hook_exit = HOOK_EXIT(destroy), .hook_exit_name = "events"};
static struct hook_rec on_log = {
    .hook_exit = HOOK_EXIT(log_record), .hook_next = &on_destroy, .hook_flags = HOOK_PRIORITY_FIRST, .hook_exit_name = "events"};
static struct hook_rec on_create = {.hook_exit = HOOK_EXIT(create), .hook_next = &on_log, .hook_exit_name = "events"};

int dprobes_plugin_init(const struct dprobes_api *api)
{
    int error;
    dprobes = api;
    file = fopen(api->argument, "w");
    if (!file) {
        api->tell("events: the argument is the file to write, as in --plugin ./events.so=events.txt");
        return 1;
    }
    if ((error = api->exit_register(api->create_event, &on_create)) != 0 ||
        (error = api->exit_register(api->log_event, &on_log)) != 0 ||
        (error = api->exit_register(api->destroy_event, &on_destroy)) != 0) {
        return error;
    }
    return api->exit_arm(&on_create);
}

void dprobes_plugin_end(void)
{
    dprobes->exit_deregister(&on_create);
    fclose(file);
}
