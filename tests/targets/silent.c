/* build: -O1 -fno-builtin */
/* Calls libc's usleep, and has a function of the same name that nobody calls. */
#include <dlfcn.h>
#include <unistd.h>

__attribute__((noinline)) static int calls(int (*function)(useconds_t), useconds_t time)
{
    return function(time);
}

int usleep(useconds_t time)
{
    return (int)time + 1;
}

int main(void)
{
    void *libc = dlopen("libc.so.6", RTLD_NOW);
    int (*sleeps)(useconds_t) = (int (*)(useconds_t))dlsym(libc, "usleep");
    for (;;)
        calls(sleeps, 1000);
}
