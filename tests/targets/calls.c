/* build: -O2 -static
 *
 * Makes a known number of system calls, faults or packets, to be counted by probes in the kernel. `calls WHAT N`, or
 * `calls WHAT N NAME`, prints "pid P WHAT N". WHAT is one of the words in `table`, below. It needs the machine of
 * crates/testing/src/machine: some of it needs root, and a kernel that nobody else uses. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };

static void getppid_(long times, const char *name) {
    (void)name;
    while (times--) syscall(SYS_getppid);
}

static void open_(long times, const char *name) {
    while (times--) {
        int file = open(name ? name : "/dev/null", O_RDONLY);
        if (file < 0 || close(file)) err(1, "open");
    }
}

static void reap(pid_t child, int expected) {
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != expected) err(1, "a child");
}

static void fork_(long times, const char *name) {
    (void)name;
    while (times--) {
        pid_t child = fork();
        if (child == 0) _exit(0);
        reap(child, 0);
    }
}

static void fork_and_kill(long times, const char *name) {
    (void)name;
    while (times--) {
        pid_t child = fork();
        if (child == 0)
            for (;;) pause();
        if (kill(child, SIGTERM)) err(1, "kill");
        reap(child, SIGTERM);
    }
}

static void write_(long times, const char *name) {
    int file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (file < 0) err(1, "%s", name);
    while (times--)
        if (write(file, "a line of text\n", 15) != 15) err(1, "write");
    close(file);
}

/* Pages of its own, each written once: each write is a fault. */
static char *pages(long count) {
    char *memory = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || madvise(memory, count * PAGE, MADV_NOHUGEPAGE)) err(1, "pages");
    for (long i = 0; i < count; i++) memory[i * PAGE] = i + 1;
    return memory;
}

static void fault(long times, const char *name) {
    (void)name;
    pages(times);
}

/* Each page is written to swap. */
static void page_out(long times, const char *name) {
    (void)name;
    char *memory = pages(times);
    if (madvise(memory, times * PAGE, MADV_PAGEOUT)) err(1, "MADV_PAGEOUT");
}

static void set_up(int socket, struct ifreq *request, int up) {
    if (ioctl(socket, SIOCGIFFLAGS, request)) err(1, "SIOCGIFFLAGS");
    request->ifr_flags = up ? request->ifr_flags | IFF_UP : request->ifr_flags & ~IFF_UP;
    if (ioctl(socket, SIOCSIFFLAGS, request)) err(1, "SIOCSIFFLAGS");
}

/* Sets a network interface up, sends this many packets on it, and sets it down. */
static void packets(long times, const char *name) {
    int link = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
    struct ifreq request = {0};
    strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    if (link < 0 || ioctl(link, SIOCGIFINDEX, &request)) err(1, "%s", name);
    struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_ifindex = request.ifr_ifindex, .sll_halen = ETH_ALEN};
    set_up(link, &request, 1);
    static const char frame[64] = {0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1, 0x88, 0xb5};
    while (times--)
        if (sendto(link, frame, sizeof frame, 0, (struct sockaddr *)&to, sizeof to) != sizeof frame) err(1, "sendto");
    set_up(link, &request, 0);
}

static const struct {
    const char *what;
    void (*make)(long times, const char *name);
} table[] = {
    {"getppid", getppid_},             /* system calls */
    {"open", open_},                   /* open and close, of NAME or /dev/null */
    {"fork", fork_},                   /* children, each waited for */
    {"fork-and-kill", fork_and_kill},  /* children, each killed with SIGTERM and waited for */
    {"write", write_},                 /* writes to the file NAME */
    {"fault", fault},                  /* page faults, and the few of the program itself */
    {"page-out", page_out},            /* pages written to swap */
    {"packets", packets},              /* packets on the interface NAME, which goes up and down once */
};

int main(int argc, char **argv) {
    if (argc >= 3)
        for (size_t i = 0; i < sizeof table / sizeof *table; i++)
            if (!strcmp(argv[1], table[i].what)) {
                printf("pid %d %s %s\n", getpid(), argv[1], argv[2]);
                fflush(stdout);
                table[i].make(atol(argv[2]), argv[3]);
                return 0;
            }
    errx(2, "usage: calls WHAT N [NAME]");
}
