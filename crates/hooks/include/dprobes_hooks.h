/*
 * Generalised hooks: dormant call sites that exits register for and arm.
 * docs/hooks.md says how they are used; the library is the crate `hooks`.
 *
 *     DECLARE_HOOK(request, 2, "int length, const char *path");   in one file
 *     USE_HOOK(request);                                          in others
 *
 *     HOOK(request, length, path);          in the function
 *
 * x86-64 Linux, gcc or clang (asm goto). Arguments are integers or pointers, six at most; they are evaluated only while an exit is
 * armed. A dormant site is one 5-byte no-operation.
 */
#ifndef DPROBES_HOOKS_H
#define DPROBES_HOOKS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Flags of a hook. */
#define HOOK_ACTIVE    0x80000000u /* an exit is armed */
#define HOOK_EXCLUSIVE 0x20000000u /* it takes one exit only */
#define HOOK_GENERIC   0x10000000u /* it has no location symbol, and any number of sites */

/* Flags of a record. */
#define HOOK_ARMED           0x01u /* set and cleared by the library; an exit that clears it disarms itself */
#define HOOK_PRIORITY_FIRST  0x04u /* before all others */
#define HOOK_PRIORITY_LAST   0x08u /* behind all others */
#define HOOK_QUEUE_LIFO      0x10u /* before those that are there, but behind the first */
#define HOOK_PRIORITY_ONLY   0x20u /* the only exit */
#define HOOK_QUIESCED        0x40u /* no other thread is at the hook while the exit runs */
#define HOOK_SIGNALS_BLOCKED 0x80u /* signals are blocked while the exit runs */

/* What an exit returns. */
#define HOOK_CONTINUE  0    /* the next exit is called */
#define HOOK_TERMINATE 1    /* no further exit is called */
#define HOOK_RETURN    (-1) /* no further exit is called, and at HOOK_RET the function returns the exit's code */

/* Errors. */
#define HOOK_ERROR_EXCLUSIVE      (-1)
#define HOOK_ERROR_FIRST_TAKEN    (-2)
#define HOOK_ERROR_LAST_TAKEN     (-4)
#define HOOK_ERROR_UNKNOWN_HOOK   (-16)
#define HOOK_ERROR_NOT_REGISTERED (-17)
#define HOOK_ERROR_REGISTERED     (-18)
#define HOOK_ERROR_INVALID        (-19)
#define HOOK_ERROR_IN_USE         (-20)
#define HOOK_ERROR_TEXT           (-21)

/* hook_exit_deregister, from inside of an exit: threads may still be inside. */
#define HOOK_PENDING 1

/* A hook. Only the library changes it. */
struct hook {
    const char *hook_name;
    const char *hook_parameters; /* their types and names; new ones come last */
    uint32_t hook_flags;
    uint32_t hook_count; /* of parameters */
    uint8_t hook_active;
    uint8_t hook_reserved[7];
    void *hook_state;
};

/*
 * A registration. The caller zeroes it, fills it, and keeps it until hook_exit_deregister has returned 0.
 *
 * The exit is int exit(struct hook *, arguments...), and of sites of HOOK_RET int exit(struct hook *, long *code, arguments...).
 * An exception or a longjmp must not leave it.
 */
struct hook_rec {
    void (*hook_exit)(void); /* HOOK_EXIT(function) */
    struct hook_rec *hook_next; /* of a list that is armed, disarmed or deregistered together */
    uint32_t hook_flags;
    uint32_t hook_index; /* 1 is called first */
    struct hook *hook_head;
    const char *hook_exit_name;
    void *hook_context; /* the caller's own */
    void *hook_entry;   /* the library's own */
};

/* An exit's function as a record takes it. */
#define HOOK_EXIT(function) ((void (*)(void))(function))

/* An exit disarms itself: in its own function, with its own record. */
#define HOOK_DISARM_SELF(record) ((void)__atomic_and_fetch(&(record)->hook_flags, ~HOOK_ARMED, __ATOMIC_SEQ_CST))

/* A site, as the section lists it. */
struct hook_site {
    const void *hook_at;
    const void *hook_armed;
    const struct hook *hook_head;
};

int hook_exit_register(struct hook *hook, struct hook_rec *record);
int hook_exit_deregister(struct hook_rec *records);
int hook_exit_arm(struct hook_rec *records);
int hook_exit_disarm(struct hook_rec *records);
int hook_identify(struct hook *hook);
int hook_delete(struct hook *hook);
struct hook *hook_find(const char *name);
int hook_initialise(void);
int hook_terminate(int force);
int hook_hit(const struct hook *hook, long *code, const uintptr_t *arguments, unsigned count);
void hook_sites_identify(const struct hook_site *start, const struct hook_site *stop);
void hook_sites_delete(const struct hook_site *start, const struct hook_site *stop);

#ifdef __cplusplus
}
#define HOOK_EXTERN extern "C"
#else
#define HOOK_EXTERN extern
#endif

/* ---- Declaring ---------------------------------------------------------------------------------------------------------------- */

#define HOOK_DECLARE_AS(name, count, parameters, flags)                                           \
    HOOK_EXTERN struct hook dprobes_hook_##name;                                                  \
    __attribute__((used)) struct hook dprobes_hook_##name = {#name, parameters, flags, count, 0, {0}, 0}

/* A hook with one site, whose place has the symbol hook_site_NAME. */
#define DECLARE_HOOK(name, count, parameters) HOOK_DECLARE_AS(name, count, parameters, 0)
/* The same; it takes one exit only. */
#define DECLARE_EXCLUSIVE_HOOK(name, count, parameters) HOOK_DECLARE_AS(name, count, parameters, HOOK_EXCLUSIVE)
/* A hook with any number of sites, in inline functions too. */
#define DECLARE_GENERIC_HOOK(name, count, parameters) HOOK_DECLARE_AS(name, count, parameters, HOOK_GENERIC)
/* A hook that is declared elsewhere. */
#define USE_HOOK(name) HOOK_EXTERN struct hook dprobes_hook_##name

/* The hook itself, for the functions above. */
#define HOOK_OF(name) (&dprobes_hook_##name)

/* ---- Sites --------------------------------------------------------------------------------------------------------------------- */

#define HOOK_LOCATION(name)                                   \
    ".globl hook_site_" #name "\n.hidden hook_site_" #name    \
    "\n.type hook_site_" #name ", @notype\nhook_site_" #name ":\n"
#define HOOK_NO_LOCATION(name) ""

/* Goes to `armed` while an exit is armed. The 5 bytes are in one aligned word of 8. */
#define HOOK_SITE(name, location, armed)                                  \
    __asm__ goto(".p2align 3,,4\n" location(name)                         \
                 "2: .byte 0x0f, 0x1f, 0x44, 0x00, 0x00\n"                \
                 ".pushsection dprobes_hook_sites,\"aw\",@progbits\n"     \
                 ".p2align 3\n"                                           \
                 "3: .quad 2b, %l[" #armed "], dprobes_hook_" #name "\n"  \
                 ".popsection\n"                                          \
                 ".reloc 2b, R_X86_64_NONE, 3b\n"                         \
                 : : : : armed)

/* The arguments as words, behind one that is not passed, so that there may be none. */
#define HOOK_WORD(argument) ((uintptr_t)(argument))
#define HOOK_WORDS_0() 0
#define HOOK_WORDS_1(a) 0, HOOK_WORD(a)
#define HOOK_WORDS_2(a, b) HOOK_WORDS_1(a), HOOK_WORD(b)
#define HOOK_WORDS_3(a, b, c) HOOK_WORDS_2(a, b), HOOK_WORD(c)
#define HOOK_WORDS_4(a, b, c, d) HOOK_WORDS_3(a, b, c), HOOK_WORD(d)
#define HOOK_WORDS_5(a, b, c, d, e) HOOK_WORDS_4(a, b, c, d), HOOK_WORD(e)
#define HOOK_WORDS_6(a, b, c, d, e, f) HOOK_WORDS_5(a, b, c, d, e), HOOK_WORD(f)
#define HOOK_CHOOSE(none, a, b, c, d, e, f, choice, ...) choice
#define HOOK_WORDS(...)                                                                                      \
    HOOK_CHOOSE(0, ##__VA_ARGS__, HOOK_WORDS_6, HOOK_WORDS_5, HOOK_WORDS_4, HOOK_WORDS_3, HOOK_WORDS_2, \
                HOOK_WORDS_1, HOOK_WORDS_0)(__VA_ARGS__)

#define HOOK_AT(name, location, code, returning, ...)                                                         \
    do {                                                                                                      \
        __label__ hook_armed, hook_passed;                                                                    \
        HOOK_SITE(name, location, hook_armed);                                                                \
        goto hook_passed;                                                                                     \
    hook_armed: __attribute__((cold));                                                                        \
        {                                                                                                     \
            const uintptr_t hook_words[] = {HOOK_WORDS(__VA_ARGS__)};                                         \
            long hook_code = 0;                                                                               \
            if (hook_hit(&dprobes_hook_##name, code, hook_words + 1,                                          \
                         sizeof hook_words / sizeof hook_words[0] - 1)) {                                     \
                returning;                                                                                    \
            }                                                                                                 \
            (void)hook_code;                                                                                  \
        }                                                                                                     \
    hook_passed:;                                                                                             \
    } while (0)

/* A site. */
#define HOOK(name, ...) HOOK_AT(name, HOOK_LOCATION, 0, (void)0, ##__VA_ARGS__)
/* A site whose exits can make the function return a code. */
#define HOOK_RET(name, ...) HOOK_AT(name, HOOK_LOCATION, &hook_code, return hook_code, ##__VA_ARGS__)
/* A site whose exits can make the function return, which returns nothing. */
#define HOOK_RET_NORC(name, ...) HOOK_AT(name, HOOK_LOCATION, 0, return, ##__VA_ARGS__)
/* The same for exclusive hooks. */
#define EXCLUSIVE_HOOK(name, ...) HOOK(name, ##__VA_ARGS__)
#define EXCLUSIVE_HOOK_RET(name, ...) HOOK_RET(name, ##__VA_ARGS__)
#define EXCLUSIVE_HOOK_RET_NORC(name, ...) HOOK_RET_NORC(name, ##__VA_ARGS__)
/* Sites without a location symbol. */
#define GENERIC_HOOK(name, ...) HOOK_AT(name, HOOK_NO_LOCATION, 0, (void)0, ##__VA_ARGS__)
#define GENERIC_HOOK_RET(name, ...) HOOK_AT(name, HOOK_NO_LOCATION, &hook_code, return hook_code, ##__VA_ARGS__)
#define GENERIC_HOOK_RET_NORC(name, ...) HOOK_AT(name, HOOK_NO_LOCATION, 0, return, ##__VA_ARGS__)

/* ---- The sites of this program or library become known when it is loaded ---------------------------------------------------------- */

#ifndef DPROBES_HOOKS_NO_SITES
HOOK_EXTERN const struct hook_site __start_dprobes_hook_sites[] __attribute__((weak, visibility("hidden")));
HOOK_EXTERN const struct hook_site __stop_dprobes_hook_sites[] __attribute__((weak, visibility("hidden")));

__attribute__((constructor, unused)) static void hook_identify_sites(void)
{
    hook_sites_identify(__start_dprobes_hook_sites, __stop_dprobes_hook_sites);
}

/* A program's sites go with the program; a library's may go before. */
#if defined(__PIC__) && !defined(__PIE__)
__attribute__((destructor, unused)) static void hook_delete_sites(void)
{
    hook_sites_delete(__start_dprobes_hook_sites, __stop_dprobes_hook_sites);
}
#endif
#endif

#endif
