/* Compiled without unwinding information: a callback from a function that has none. */
long bare_inner(long (*call)(long), long n) {
    volatile long own[5] = {n, n + 1};
    return call(own[1]) + own[0];
}

long bare(long (*call)(long), long n) {
    volatile long own[9] = {n};
    return bare_inner(call, own[0] + 1) * 2;
}
