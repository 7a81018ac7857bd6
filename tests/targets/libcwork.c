/* build: -O1 -fno-builtin -lm
 *
 * A walk through the C library: strings, characters, numbers, stdio, math, sorting, searching, time and memory. What it
 * prints depends on nothing but its arguments: a program with all of the library's instructions probed must print the
 * same.
 *   libcwork [ROUNDS [plain]]     plain: without what a simulator does otherwise: long
 *                                 double, the time, a jump out of a signal handler */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <locale.h>
#include <malloc.h>
#include <math.h>
#include <regex.h>
#include <search.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>
#include <wctype.h>

static uint64_t state;
static int plain;
static uint64_t sum = 14695981039346656037ull;

static uint64_t number(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

/* Everything that is computed goes into one sum, which is printed after each part. */
static void add(const void *bytes, size_t size) {
    for (const unsigned char *at = bytes; size--; at++) sum = (sum ^ *at) * 1099511628211ull;
}
static void add_number(int64_t value) { add(&value, sizeof value); }
static void add_text(const char *text) { add(text, strlen(text) + 1); }
static void part(const char *name) { printf("%-10s %016" PRIx64 "\n", name, sum); }

/* Aligned to pages: how far a string is from the next one does not depend on where the program was loaded. */
static _Alignas(4096) char from[8192], to[8192];

static void fill(char *at, size_t size) {
    for (size_t i = 0; i < size; i++) at[i] = 'a' + number() % 26;
    at[size] = 0;
}

static void strings(void) {
    static const size_t sizes[] = {0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129,
                                   255, 256, 257, 500, 512, 1000, 2048, 3000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t size = sizes[s];
        for (size_t shift = 0; shift < 40; shift += 13) {
            char *a = from + shift, *b = to + (shift * 7) % 64;
            fill(a, size);
            memcpy(b, a, size + 1), add(b, size);
            memmove(b + 5, b, size + 1), add(b, size + 5);
            memset(b, 'x', size), add(b, size);
            strcpy(b, a), add_text(b), stpcpy(b, a), strncpy(b, a, size / 2 + 1);
            add_number(strlen(a)), add_number(strnlen(a, size / 2)), add_number(strcmp(a, b) < 0);
            add_number(memcmp(a, b, size) > 0), add_number(strncmp(a, b, size / 3) == 0);
            add_number(strcasecmp(a, b) < 0), add_number(strncasecmp(a, b, 5) < 0);
            add_number(strchr(a, 'q') ? strchr(a, 'q') - a : -1);
            add_number(strrchr(a, 'e') ? strrchr(a, 'e') - a : -1);
            add_number(memchr(a, 'z', size) ? (char *)memchr(a, 'z', size) - a : -1);
            add_number(memrchr(a, 'z', size) ? (char *)memrchr(a, 'z', size) - a : -1);
            add_number(rawmemchr(a, 0) - (void *)a), add_number(strchrnul(a, 'k') - a);
            add_number(strspn(a, "abcdefghijklm")), add_number(strcspn(a, "xyz"));
            add_number(strpbrk(a, "vwx") ? strpbrk(a, "vwx") - a : -1);
            add_number(strstr(a, "ab") ? strstr(a, "ab") - a : -1);
            add_number(memmem(a, size, "cab", 3) ? (char *)memmem(a, size, "cab", 3) - a : -1);
            add_number(strcasestr(a, "QU") ? strcasestr(a, "QU") - a : -1);
            if (size > 4 && size < 3000) strcat(b, "more"), strncat(b, a, 3), add_text(b);
        }
    }
    fill(from, 2000);
    for (int i = 7; i < 2000; i += 11) from[i] = i % 3 ? ' ' : ',';
    char *rest, *word, *copy = strdup(from);
    for (word = strtok_r(copy, " ,", &rest); word; word = strtok_r(NULL, " ,", &rest)) add_text(word);
    free(copy), copy = strndup(from, 100), rest = copy;
    while ((word = strsep(&rest, " "))) add_text(word);
    free(copy);
    strfry(strdupa("a")), swab(from, to, 200), add(to, 200);
    static _Alignas(4096) wchar_t wide[1024], other[1024];
    for (int i = 0; i < 299; i++) wide[i] = L'a' + number() % 40;
    wide[299] = 0, wcscpy(other, wide), wmemset(other, L'x', 20);
    add_number(wcslen(wide)), add_number(wcscmp(wide, other) < 0), add_number(wmemcmp(wide, other, 200) < 0);
    add_number(wcschr(wide, L'c') != 0), add_number(wcsspn(wide, L"abcdefgh")), add_number(wcsstr(wide, L"ab") != 0);
    add_number(mbstowcs(other, "wide and narrow", 299)), add_number(wcstombs(to, other, 100)), add_text(to);
    for (int c = 0; c < 256; c++) add_number(!!isalpha(c) + !!isdigit(c) * 2 + !!ispunct(c) * 4 + toupper(c) * 8);
    for (wint_t c = 0; c < 600; c++) add_number(!!iswalpha(c) + !!iswspace(c) * 2 + towlower(c) * 4);
    part("strings");
}

static int printed(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(to, sizeof to, format, arguments);
    va_end(arguments);
    add_text(to);
    return length;
}

static void formats(void) {
    for (int i = 0; i < 60; i++) {
        int64_t value = (int64_t)number() >> (i % 60);
        double real = (double)value / 977 * (i % 7 ? 1 : 1e-30);
        printed("%d %5d %-7d| %+d %05d %x %#X %o", (int)value, i, i, i, i, (int)value, (int)value, i);
        printed("%ld %lld %zu %jd %hhd %hd %'d", value, (long long)value, (size_t)i, value, (char)i, (short)value, i);
        printed("%f %.3f %e %.0e %g %#g %a %10.2f %-12.1e|", real, real, real, real, real, real, real, real, real);
        if (!plain) printed("%Lf %Le %La", (long double)real, (long double)real, (long double)real);
        printed("%s %.3s %10s %-10s| %c %% %ls", "text", "truncated", "right", "left", 'a' + i % 26, L"wide");
        printed("%2$s %1$s %3$*4$d", "second", "first", i, 9);
        char text[64];
        snprintf(text, sizeof text, "%.17g", real);
        add_number(strtod(text, NULL) == real), add_number(atoi(text)), add_number(strtol(text, NULL, 0));
        snprintf(text, sizeof text, "0x%" PRIx64, (uint64_t)value), add_number(strtoull(text, NULL, 16));
        float single = strtof("1.25e-3", NULL);
        add(&single, sizeof single);
        if (!plain) printed("%.20Lg", strtold("-3.14159265358979323846264338327950288e10", NULL));
        int a, count;
        double b;
        char c, line[32];
        snprintf(text, sizeof text, "%d %.4f word%d [x-y] %c", i * 7, i / 3.0, i, 'a' + i % 26);
        count = sscanf(text, "%d %lf %31s [%*[a-z-]] %c", &a, &b, line, &c);
        add_number(count), add_number(a), add(&b, sizeof b), add_text(line), add_number(c);
        div_t divided = div((int)value, 17);
        ldiv_t larger = ldiv(value, 977);
        add_number(divided.quot), add_number(divided.rem), add_number(larger.quot), add_number(labs(value) + abs(i));
    }
    for (int i = 0; i < 140; i++) add_text(strerror(i));
    for (int i = 1; i < 32; i++) add_text(strsignal(i));
    part("formats");
}

/* A file without a name. To find one of its own, tmpfile asks for the time, which simulators do otherwise. */
static FILE *scratch(void) { return plain ? fdopen(memfd_create("scratch", 0), "w+") : tmpfile(); }

static void files(void) {
    char *memory = NULL, line[200];
    size_t size = 0;
    FILE *file = scratch();
    if (!file) exit(3);
    for (int i = 0; i < 400; i++) fprintf(file, "line %d of %s, %.3f\n", i, "a file", i * 1.5), fputc('#', file);
    fputs("the end\n", file), fwrite(from, 1, 1000, file), fflush(file);
    add_number(ftell(file)), rewind(file);
    for (int i = 0; i < 100 && fgets(line, sizeof line, file); i++) add_text(line);
    fseek(file, 500, SEEK_SET), add_number(fgetc(file)), ungetc('u', file), add_number(getc(file));
    ssize_t got;
    while ((got = getline(&memory, &size, file)) > 0) add(memory, got);
    add_number(feof(file)), clearerr(file), fseek(file, -900, SEEK_END), add_number(fread(to, 7, 100, file));
    add(to, 700), add_number(fclose(file)), free(memory), memory = NULL;
    file = open_memstream(&memory, &size);
    for (int i = 0; i < 300; i++) fprintf(file, "%d,", i * i);
    fclose(file), add(memory, size), free(memory);
    file = fmemopen(from, 1000, "r"), setvbuf(file, NULL, _IOFBF, 64);
    while (fscanf(file, "%7s", line) == 1) add_text(line);
    fclose(file);
    file = fopen("/nonexistent/file", "r"), add_number(file == NULL), add_number(errno);
    file = scratch();
    for (int i = 0; i < 100; i++) fputwc(L'a' + i % 26, file);
    rewind(file);
    for (wint_t c; (c = fgetwc(file)) != WEOF;) add_number(c);
    fclose(file);
    part("files");
}

#define ONE(function) (value = function(x), add(&value, sizeof value))
static void mathematics(void) {
    for (int i = 1; i < 80; i++) {
        double x = (double)(int64_t)number() / 9.3e17 * (i % 9 + 0.01), value;
        float single;
        int exponent;
        ONE(sin), ONE(cos), ONE(tan), ONE(exp), ONE(exp2), ONE(expm1), ONE(atan), ONE(sinh), ONE(cosh), ONE(tanh);
        ONE(asinh), ONE(cbrt), ONE(floor), ONE(ceil), ONE(trunc), ONE(rint), ONE(round), ONE(nearbyint), ONE(fabs);
        ONE(erf), ONE(erfc), ONE(lgamma), ONE(j0), ONE(y1), ONE(logb);
        if (!plain) ONE(tgamma);
        x = fabs(x);
        ONE(log), ONE(log2), ONE(log10), ONE(log1p), ONE(sqrt), ONE(acosh);
        value = pow(x, 1.7), add(&value, sizeof value), value = fmod(x, 0.3), add(&value, sizeof value);
        value = atan2(x, 2), add(&value, sizeof value), value = hypot(x, 3), add(&value, sizeof value);
        value = fma(x, 2, 1), add(&value, sizeof value), value = remainder(x, 0.7), add(&value, sizeof value);
        value = frexp(x, &exponent), add(&value, sizeof value), value = ldexp(x, 3), add(&value, sizeof value);
        value = nextafter(x, 9), add(&value, sizeof value), value = asin(x / 100), add(&value, sizeof value);
        single = sinf(x), add(&single, sizeof single), single = expf(x), add(&single, sizeof single);
        single = powf(x, 0.3f), add(&single, sizeof single), single = logf(x), add(&single, sizeof single);
        single = cosf(x), add(&single, sizeof single), single = fmodf(x, 0.7f), add(&single, sizeof single);
        add_number(lrint(x)), add_number(llround(x)), add_number(ilogb(x)), add_number(isnan(x) + 2 * isfinite(x));
        if (!plain) printed("%.18Lg %.18Lg %.18Lg", sinl(x), expl(x / 10), powl(x, 1.3L));
    }
    part("math");
}

static int by_number(const void *a, const void *b) {
    int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;
    return (one > other) - (one < other);
}
static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }
static int backwards(const void *a, const void *b, void *unused) {
    (void)unused;
    return by_number(b, a);
}
static void visit(const void *node, VISIT order, int depth) {
    if (order == postorder || order == leaf) add_text(*(char *const *)node), add_number(depth);
}
static int in_order(const void *a, const void *b) { return strcmp(a, b); }

static void sorting(void) {
    static int64_t numbers[1500];
    static char texts[400][16], *pointers[400];
    struct wide {
        int64_t key;
        char rest[40];
    } *wide = calloc(300, sizeof *wide);
    for (int i = 0; i < 1500; i++) numbers[i] = number() % 10000;
    qsort(numbers, 1500, sizeof *numbers, by_number), add(numbers, sizeof numbers);
    for (int64_t key = 0; key < 10000; key += 97)
        add_number(bsearch(&key, numbers, 1500, sizeof *numbers, by_number) != NULL);
    qsort_r(numbers, 1500, sizeof *numbers, backwards, NULL), add(numbers, sizeof numbers);
    for (int i = 0; i < 300; i++) wide[i].key = number() % 1000;
    qsort(wide, 300, sizeof *wide, by_number);
    for (int i = 0; i < 300; i++) add_number(wide[i].key);
    free(wide);
    void *tree = NULL;
    hcreate(500);
    for (int i = 0; i < 400; i++) {
        fill(texts[i], 3 + i % 12), pointers[i] = texts[i];
        tsearch(texts[i], &tree, in_order);
        hsearch((ENTRY){.key = texts[i], .data = &numbers[i]}, ENTER);
    }
    qsort(pointers, 400, sizeof *pointers, by_text);
    for (int i = 0; i < 400; i++) add_text(pointers[i]);
    twalk(tree, visit);
    for (int i = 0; i < 400; i += 3) add_number(tfind(texts[i], &tree, in_order) != NULL), tdelete(texts[i], &tree, in_order);
    for (int i = 0; i < 400; i++) add_number(hsearch((ENTRY){.key = texts[i]}, FIND) != NULL);
    twalk(tree, visit), hdestroy();
    while (tree) tdelete(*(char **)tree, &tree, in_order);
    part("sorting");
}

static jmp_buf back;
static sigjmp_buf signal_back;
static volatile sig_atomic_t signals;
static void count_signal(int number) { signals += number; }
static void leave(int number) { siglongjmp(signal_back, number); }

static void memory(void) {
    void *held[200] = {0};
    for (int i = 0; i < 2000; i++) {
        unsigned which = number() % 200;
        size_t size = number() % (i % 50 ? 500 : 200000);
        if (i % 3 == 0) free(held[which]), held[which] = malloc(size + 1);
        else if (i % 3 == 1) held[which] = realloc(held[which], size + 1);
        else free(held[which]), held[which] = calloc(1, size + 1);
        if (!held[which]) exit(3);
        ((char *)held[which])[size] = 1;
        add_number(malloc_usable_size(held[which]) >= size + 1);
    }
    for (int i = 0; i < 200; i++) free(held[i]);
    void *aligned;
    add_number(posix_memalign(&aligned, 256, 1000)), add_number((uintptr_t)aligned % 256), free(aligned);
    volatile int jumps = 0;
    if (setjmp(back) < 5) jumps++, longjmp(back, jumps);
    add_number(jumps);
    signal(SIGUSR1, count_signal), raise(SIGUSR1), raise(SIGUSR1), add_number(signals);
    signal(SIGUSR2, leave);
    if (!plain && !sigsetjmp(signal_back, 1)) raise(SIGUSR2);
    add_number(setenv("LIBCWORK", "a value", 1)), add_text(getenv("LIBCWORK")), unsetenv("LIBCWORK");
    part("memory");
}

static void others(void) {
    struct tm parts;
    regex_t pattern;
    regmatch_t match[3];
    setenv("TZ", "UTC0", 1), tzset();
    for (time_t when = 0; when < 2000000000; when += 123456789) {
        gmtime_r(&when, &parts), add_number(timegm(&parts)), strftime(to, 200, "%Y-%m-%d %H:%M:%S %a %b %j %U %p", &parts);
        add_text(to), add_text(asctime_r(&parts, to)), memset(&parts, 0, sizeof parts);
        add_number(strptime("2001-02-03 04:05:06", "%Y-%m-%d %H:%M:%S", &parts) != NULL), add_number(mktime(&parts));
    }
    if (regcomp(&pattern, "([a-z]+)[0-9]{2,3}(x|y)*$", REG_EXTENDED)) exit(3);
    for (int i = 0; i < 40; i++) {
        snprintf(to, 100, "some text%d%s", i * 7, i % 2 ? "xyx" : "");
        int found = regexec(&pattern, to, 3, match, 0);
        add_number(found);
        if (!found) add_number(match[1].rm_so * 100 + match[1].rm_eo);
        add_number(fnmatch("*t[a-z]xt*[0-9]", to, 0));
    }
    regfree(&pattern);
    srand(7), srandom(7), srand48(7);
    unsigned seed = 5;
    for (int i = 0; i < 50; i++) add_number(rand()), add_number(random()), add_number(lrand48()), add_number(rand_r(&seed));
    add_text(setlocale(LC_ALL, "C")), add_number(ffs(96)), add_number(ffsll(1ll << 40));
    part("others");
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 1;
    plain = argc > 2;
    /* How many variables there are must not matter either. */
    clearenv();
    setvbuf(stdout, NULL, _IOLBF, 0);
    state = 88172645463325252ull;
    for (long i = 0; i < rounds; i++) strings(), formats(), files(), mathematics(), sorting(), memory(), others();
    printf("end %016" PRIx64 "\n", sum);
    return 0;
}
