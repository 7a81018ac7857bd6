/* build: -O2 -static
 *
 * The first process of a virtual machine for tests (crates/testing/src/machine). It mounts the kernel's file systems, runs
 * the commands of the file /machine/commands one after another, and turns the machine off.
 *
 * The file has strings that end with a zero byte: of each command its time limit in seconds, the number of its words, the
 * words.
 *
 * What happens goes to port 0xe9 (QEMU's debugcon), not to a terminal, so that no code of the kernel that may be probed
 * takes part. A message is one letter, two numbers of four bytes (the command's, the length of what follows) and bytes:
 *
 *   b           the command begins
 *   o, e BYTES  it wrote to standard output, to standard error
 *   x, s N      it has exited with this status, or a signal has ended it (four bytes)
 *   t           its time was over; it was killed
 *   z           all have ended */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PORT = 0xe9 };

static void put(const void *bytes, size_t length) {
    asm volatile("rep outsb" : "+S"(bytes), "+c"(length) : "d"(PORT) : "memory");
}

static void say(char kind, unsigned command, const void *bytes, unsigned length) {
    put(&kind, 1);
    put(&command, sizeof command);
    put(&length, sizeof length);
    put(bytes, length);
}

static void fail(const char *what) {
    fprintf(stderr, "machine: %s: %s\n", what, strerror(errno));
    reboot(RB_POWER_OFF);
}

static void write_file(const char *path, const char *text) {
    int file = open(path, O_WRONLY);
    if (file < 0 || write(file, text, strlen(text)) < 0) fail(path);
    close(file);
}

static void mount_at(const char *type, const char *path) {
    mkdir(path, 0755);
    if (mount(type, path, type, 0, NULL) && errno != EBUSY) fail(path);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* Passes on what is in a pipe; false at its end, or if there is nothing now. */
static int pass(char kind, unsigned number, int pipe) {
    char bytes[4096];
    ssize_t length = read(pipe, bytes, sizeof bytes);
    if (length <= 0) return 0;
    say(kind, number, bytes, length);
    return 1;
}

static void run(unsigned number, double limit, char **words) {
    int out[2], error[2];
    if (pipe2(out, O_CLOEXEC) || pipe2(error, O_CLOEXEC)) fail("pipe2");
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    fcntl(error[0], F_SETFL, O_NONBLOCK);
    /* The kernel's own messages are then known to be of this command. */
    char line[64];
    snprintf(line, sizeof line, "<5>machine: command %u begins\n", number);
    write_file("/dev/kmsg", line);
    say('b', number, "", 0);

    pid_t child = fork();
    if (child == 0) {
        setsid();
        dup2(open("/dev/null", O_RDONLY), 0);
        dup2(out[1], 1);
        dup2(error[1], 2);
        execvp(words[0], words);
        fprintf(stderr, "%s: %s\n", words[0], strerror(errno));
        _exit(127);
    }
    close(out[1]);
    close(error[1]);
    int process = pidfd_open(child, 0);
    if (process < 0) fail("pidfd_open");

    double end = now() + limit;
    struct pollfd waits[3] = {{process, POLLIN, 0}, {out[0], POLLIN, 0}, {error[0], POLLIN, 0}};
    int over = 0;
    while (!waits[0].revents && !over) {
        double left = end - now();
        over = left <= 0 || poll(waits, 3, left * 1000 + 1) == 0;
        for (int i = 1; i < 3; i++)
            if (waits[i].revents && !pass("?oe"[i], number, waits[i].fd) && waits[i].revents & POLLHUP)
                waits[i].fd = -1;
    }
    /* Also what it has left in its session: the next command begins with nothing running. */
    kill(-child, SIGKILL);
    kill(child, SIGKILL);
    int status;
    waitpid(child, &status, 0);
    while (pass('o', number, out[0]));
    while (pass('e', number, error[0]));
    close(out[0]);
    close(error[0]);
    close(process);
    while (waitpid(-1, NULL, WNOHANG) > 0);

    int value = WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status);
    if (over)
        say('t', number, "", 0);
    else
        say(WIFEXITED(status) ? 'x' : 's', number, &value, sizeof value);
}

int main(void) {
    if (ioperm(PORT, 1, 1)) fail("ioperm");
    static const char *const mounts[][2] = {
        {"proc", "/proc"},         {"sysfs", "/sys"},
        {"devtmpfs", "/dev"},      {"devpts", "/dev/pts"},
        {"tmpfs", "/dev/shm"},     {"tmpfs", "/tmp"},
        {"tmpfs", "/run"},         {"debugfs", "/sys/kernel/debug"},
        {"bpf", "/sys/fs/bpf"},    {"tracefs", "/sys/kernel/tracing"},
        {"cgroup2", "/sys/fs/cgroup"},
    };
    for (size_t i = 0; i < sizeof mounts / sizeof *mounts; i++) mount_at(mounts[i][0], mounts[i][1]);
    chmod("/tmp", 01777);
    write_file("/proc/sys/kernel/printk", "7\n");
    setenv("PATH", "/bin:/sbin", 1);
    setenv("HOME", "/tmp", 1);
    if (chdir("/tmp")) fail("/tmp");

    static char text[1 << 20];
    int file = open("/machine/commands", O_RDONLY | O_CLOEXEC);
    ssize_t length = read(file, text, sizeof text - 1);
    if (file < 0 || length < 0) fail("/machine/commands");
    close(file);
    unsigned number = 0;
    for (char *next = text; next < text + length; number++) {
        double limit = atof(next);
        next += strlen(next) + 1;
        int count = atoi(next);
        next += strlen(next) + 1;
        char *words[count + 1];
        for (int i = 0; i < count; i++) {
            words[i] = next;
            next += strlen(next) + 1;
        }
        words[count] = NULL;
        run(number, limit, words);
    }
    say('z', number, "", 0);
    reboot(RB_POWER_OFF);
    return 1;
}
