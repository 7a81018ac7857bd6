/* build: -O2 -shared -fPIC
 *
 * The library that dlopen.c loads. Its constructor calls the probed function three times, its destructor twice. */
static volatile long sink;

__attribute__((noinline, noclone, visibility("default"))) long plugin_work(long a) {
    sink += a;
    return sink;
}

/* Calls must not be bound inside the library by the compiler: each goes to the one probed address. */
static long (*volatile work)(long) = plugin_work;

__attribute__((constructor)) static void come(void) {
    for (int i = 0; i < 3; i++) work(i);
}

__attribute__((destructor)) static void go(void) {
    for (int i = 0; i < 2; i++) work(i);
}
