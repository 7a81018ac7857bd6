/*
 * Plugins of dprobes: shared objects that `dprobes run --plugin FILE.so[=ARGUMENT]` loads. docs/hooks.md tells how one is made.
 *
 *     #include "dprobes_plugin.h"
 *
 *     DPROBES_PLUGIN;
 *
 *     int dprobes_plugin_init(const struct dprobes_api *api)
 *     {
 *         ... api->exit_register(api->log_event, &record) ... api->exit_arm(&record) ...
 *         return 0;
 *     }
 */
#ifndef DPROBES_PLUGIN_H
#define DPROBES_PLUGIN_H

#define DPROBES_HOOKS_NO_SITES
#include <stddef.h>
#include "dprobes_hooks.h"

#define DPROBES_PLUGIN_VERSION 1

/* Every plugin says once what it was compiled with. */
#define DPROBES_PLUGIN                                                                   \
    HOOK_EXTERN const uint32_t dprobes_plugin_version;                                   \
    __attribute__((used, visibility("default"))) const uint32_t dprobes_plugin_version = DPROBES_PLUGIN_VERSION

#ifdef __cplusplus
extern "C" {
#endif

/* What dprobes gives. It is there as long as the plugin. */
struct dprobes_api {
    uint32_t version; /* DPROBES_PLUGIN_VERSION */
    uint32_t size;    /* bytes of this; what is behind is not there */

    /* A program is inserted: *event is to be its number for whoever takes its events.
       int exit(struct hook *, uint32_t *event, const char *name, const char *format, const char *description) */
    struct hook *create_event;
    /* A record is made.
       int exit(struct hook *, long *code, uint32_t event, const struct dprobes_event *)
       HOOK_RETURN: dprobes itself does not write it; with *code 0 it counts as logged, else as dropped. */
    struct hook *log_event;
    /* The program is removed.
       int exit(struct hook *, int *rc, uint32_t event) */
    struct hook *destroy_event;
    /* A handler has executed `callk`.
       int exit(struct hook *, struct dprobes_callk *) */
    struct hook *callk;

    const char *argument; /* what was given behind `=`; empty if nothing was */

    int (*exit_register)(struct hook *, struct hook_rec *);
    int (*exit_deregister)(struct hook_rec *);
    int (*exit_arm)(struct hook_rec *);
    int (*exit_disarm)(struct hook_rec *);
    struct hook *(*find)(const char *name);
    void (*tell)(const char *text); /* a line to the user */
};

/* A record. */
struct dprobes_event {
    uint32_t id;
    uint32_t size;
    const uint8_t *data; /* the flags of the header, its items, and the logged bytes */
    uint32_t log_size;
    uint32_t word; /* bytes of a word of the probed program */
    const uint8_t *log; /* the logged bytes: the end of data */
    uint32_t major, minor;
    uint32_t pid, tid, cpu;
    uint32_t probe; /* its number in the program */
    uint64_t time;  /* nanoseconds since 1970; 0 where the header has no time */
};

/* A callk: what the handler has, and may do. */
struct dprobes_callk {
    uint32_t size;
    uint32_t word;
    uint32_t pid, tid, cpu;
    uint32_t major, minor;
    uint32_t event;
    uint64_t address; /* of the probepoint */
    const char *module;
    void *own;
    uint64_t (*pop)(struct dprobes_callk *);
    void (*push)(struct dprobes_callk *, uint64_t);
    int (*log)(struct dprobes_callk *, const void *, size_t);
    int (*get_register)(struct dprobes_callk *, uint32_t index, uint64_t *value);
    int (*set_register)(struct dprobes_callk *, uint32_t index, uint64_t value);
    int (*read)(struct dprobes_callk *, uint64_t address, void *into, size_t size);
    int (*write)(struct dprobes_callk *, uint64_t address, const void *from, size_t size);
};

/* The plugin's: 0, or it is not wanted and dprobes says so. */
__attribute__((visibility("default"))) int dprobes_plugin_init(const struct dprobes_api *api);
/* The plugin's, if it has one: it takes its exits away. */
__attribute__((visibility("default"))) void dprobes_plugin_end(void);

#ifdef __cplusplus
}
#endif

#endif
