// A service whose memory grows. Find out why, without reading on.
//
//     gcc -g -O1 leak.c -o leak
//     ./leak 600
//
// It opens and closes sessions of users, and prints each second how much memory it has.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct session { char user[32]; char *token; struct session *next; };

static struct session *sessions;

__attribute__((noinline)) static char *new_token(const char *user) {
    char *token = malloc(128);
    if (token)
        snprintf(token, 128, "token of %s, %ld", user, random());
    return token;
}

__attribute__((noinline)) static struct session *new_session(const char *user) {
    struct session *session = calloc(1, sizeof *session);
    if (session) {
        snprintf(session->user, sizeof session->user, "%s", user);
        session->token = new_token(user);
    }
    return session;
}

__attribute__((noinline)) static void free_session(struct session *session) {
    free(session->token);
    free(session);
}

__attribute__((noinline)) static int check_password(const char *user, const char *password) {
    return !strcmp(user, "mallory") || strcmp(password, "secret") ? -1 : 0;
}

__attribute__((noinline)) static int log_in(const char *user, const char *password) {
    struct session *session = new_session(user);
    if (!session)
        return -1;
    if (check_password(user, password) < 0)
        return -1; // the fault: the session is forgotten
    session->next = sessions;
    sessions = session;
    return 0;
}

__attribute__((noinline)) static void log_out(void) {
    struct session *session = sessions;
    if (session) {
        sessions = session->next;
        free_session(session);
    }
}

static long resident_kib(void) {
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%ld %ld", &pages, &resident) != 2)
        resident = 0;
    if (file)
        fclose(file);
    return resident * 4;
}

int main(int words, char **arguments) {
    static const char *users[] = { "alice", "bob", "carol", "mallory" };
    time_t begin = time(NULL), told = begin;
    long seconds = words > 1 ? atol(arguments[1]) : 600;
    for (unsigned i = 0; time(NULL) - begin < seconds; i++) {
        log_in(users[i % 4], "secret");
        if (i % 4 != 3)
            log_out();
        usleep(200);
        if (time(NULL) != told) {
            told = time(NULL);
            printf("%u requests, %ld KiB resident\n", i, resident_kib());
            fflush(stdout);
        }
    }
    return 0;
}
