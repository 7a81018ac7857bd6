/* build: -O2 -shared -fPIC -ldl
 *
 * Counts calls of malloc and free another way than by probes: a library to preload. It stands before the C library in
 * symbol lookup, counts, and forwards. The counters live in a file that is shared by all processes of a run
 * (MALLOCCOUNT=path, two 64-bit numbers: malloc, free), so no exit, exec or signal can lose a count.
 *
 * The counts are comparable with probes on the C library's `malloc` and `free`, and equal to them exactly, because no
 * call reaches those two addresses but through here. The C library calls both through its procedure linkage table,
 * which leads here, except in realloc, aligned_alloc and their family, which it calls on itself; those are built here
 * from malloc and free. calloc does not call malloc. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void *(*next_malloc)(size_t);
static void (*next_free)(void *);
static void *(*next_calloc)(size_t, size_t);
static void *(*next_memalign)(size_t, size_t);
static uint64_t *counts, nowhere[2];

/* What dlsym itself allocates, before the C library's functions are known. Never freed, never counted. */
static char early[65536] __attribute__((aligned(16)));
static size_t early_used;
static int starting;

static int is_early(void *p) { return (char *)p >= early && (char *)p < early + sizeof early; }

static void *early_malloc(size_t size) {
    void *p = early + early_used;
    early_used += (size + 15) & ~(size_t)15;
    if (early_used > sizeof early) abort();
    return p;
}

static void start(void) {
    if (next_malloc || starting) return;
    starting = 1;
    const char *path = getenv("MALLOCCOUNT");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    counts = file < 0 ? MAP_FAILED : mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0) close(file);
    if (counts == MAP_FAILED) counts = nowhere;
    next_free = dlsym(RTLD_NEXT, "free");
    next_calloc = dlsym(RTLD_NEXT, "calloc");
    next_memalign = dlsym(RTLD_NEXT, "memalign");
    next_malloc = dlsym(RTLD_NEXT, "malloc");
    starting = 0;
}

void *malloc(size_t size) {
    start();
    if (!next_malloc) return early_malloc(size);
    __atomic_add_fetch(&counts[0], 1, __ATOMIC_RELAXED);
    return next_malloc(size);
}

void free(void *p) {
    start();
    if (!next_malloc || is_early(p)) return;
    __atomic_add_fetch(&counts[1], 1, __ATOMIC_RELAXED);
    next_free(p);
}

void *calloc(size_t count, size_t size) {
    start();
    if (next_malloc) return next_calloc(count, size);
    size_t bytes;
    return __builtin_mul_overflow(count, size, &bytes) ? NULL : early_malloc(bytes);
}

void *realloc(void *p, size_t size) {
    if (!p) return malloc(size);
    if (!size) {
        free(p);
        return NULL;
    }
    size_t had = is_early(p) ? (size_t)(early + sizeof early - (char *)p) : malloc_usable_size(p);
    void *q = malloc(size);
    if (!q) return NULL;
    memcpy(q, p, had < size ? had : size);
    free(p);
    return q;
}

void *reallocarray(void *p, size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(p, bytes);
}

/* The C library serves small alignments by calling its malloc on itself; a larger one is never served so. */
static void *aligned(size_t alignment, size_t size) {
    start();
    if (!next_malloc) abort();
    return next_memalign(alignment < 64 ? 64 : alignment, size);
}

void *memalign(size_t alignment, size_t size) { return aligned(alignment, size); }
void *aligned_alloc(size_t alignment, size_t size) { return aligned(alignment, size); }
void *valloc(size_t size) { return aligned(4096, size); }
void *pvalloc(size_t size) { return aligned(4096, (size + 4095) & ~(size_t)4095); }

int posix_memalign(void **out, size_t alignment, size_t size) {
    if (alignment < sizeof(void *) || (alignment & (alignment - 1))) return EINVAL;
    void *p = aligned(alignment, size);
    if (!p) return ENOMEM;
    *out = p;
    return 0;
}
