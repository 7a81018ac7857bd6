/* A thread that calls back from code without a file, which has a frame pointer; and a context. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

static ucontext_t here, there;
static char stack[65536];

__attribute__((noinline)) long called(long n) {
    char text[40];
    return snprintf(text, sizeof text, "%ld", n) + n;
}

__attribute__((noinline)) void other(int n) {
    called(n);
}

/* push rbp; mov rbp, rsp; mov rax, rdi; mov rdi, rsi; call rax; pop rbp; ret */
static const unsigned char code[] = {
    0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3,
};

__attribute__((noinline)) long work(long n) {
    unsigned char *made =
        mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(made, code, sizeof code);
    long (*function)(long (*)(long), long) = (long (*)(long (*)(long), long))made;
    long sum = function(called, n) + 1;
    munmap(made, 4096);
    return sum;
}

static void *thread(void *argument) {
    return (void *)(work((long)argument) + 1);
}

int main(int argc, char **argv) {
    pthread_t made;
    void *result;
    pthread_create(&made, 0, thread, (void *)(long)argc);
    pthread_join(made, &result);
    getcontext(&there);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = sizeof stack;
    there.uc_link = &here;
    makecontext(&there, (void (*)(void))other, 1, argc);
    swapcontext(&here, &there);
    return result == 0;
}
