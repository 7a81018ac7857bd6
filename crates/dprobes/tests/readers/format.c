/*
 * Shows traces and records by the formatting library.
 *
 *     format store FILE [TEMPLATES]    all records of a store
 *     format record TEMPLATES WORD     the record on standard input
 *     format data MAJOR MINOR          the data on standard input, by a template in the program
 *     format misuse                    each call as it must not be made
 */
#include "dprobes_format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed(int status) {
    fprintf(stderr, "%d %s: %s\n", status, dpfmt_status_text(status), dpfmt_message());
    return status;
}

/* All records, with a buffer that grows as the library asks. */
static int store(const char *path, const char *templates) {
    dpfmt_store *store = NULL;
    int status = dpfmt_open_store(path, templates, &store);
    if (status != DPFMT_OK)
        return failed(status);
    size_t size = 1, length = 0;
    char *buffer = malloc(size);
    while ((status = dpfmt_next(store, buffer, size, &length)) != DPFMT_END) {
        if (status == DPFMT_OK) {
            fwrite(buffer, 1, length, stdout);
        } else if (status == DPFMT_SHORT) {
            size = length + 1;
            buffer = realloc(buffer, size);
        } else {
            failed(status);
            if (status != DPFMT_DAMAGE)
                break;
        }
    }
    free(buffer);
    dpfmt_close_store(store);
    return status == DPFMT_END ? 0 : status;
}

static char input[1 << 16], output[1 << 16];

static int record(const char *templates, int word) {
    dpfmt_formatter *formatter = NULL;
    size_t bytes = fread(input, 1, sizeof input, stdin), length = 0;
    int status = dpfmt_open_templates(templates, &formatter);
    if (status == DPFMT_OK)
        status = dpfmt_format(formatter, input, bytes, word, output, sizeof output, &length);
    if (status == DPFMT_OK)
        fwrite(output, 1, length, stdout);
    dpfmt_close(formatter);
    return status == DPFMT_OK ? 0 : failed(status);
}

static int data(unsigned major, unsigned minor) {
    dpfmt_formatter *formatter = NULL;
    size_t bytes = fread(input, 1, sizeof input, stdin);
    int status = dpfmt_parse_templates(
        "major=7 minor=1 desc=\"\" fmt=\"size=%4u flags=%m(READ=0,WRITE=1)\" minor=2 desc=\"\" fmt=\"%q\"", &formatter);
    if (status != DPFMT_OK)
        return failed(status);
    dpfmt_problems(formatter, output, sizeof output, NULL);
    fputs(output, stderr);
    status = dpfmt_format_data(formatter, major, minor, input, bytes, 8, output, sizeof output, NULL);
    if (status == DPFMT_OK)
        puts(output);
    dpfmt_close(formatter);
    return status == DPFMT_OK ? 0 : failed(status);
}

/* Each wrong call: the status that it must have, and nothing else changes. */
static int misuse(void) {
    dpfmt_formatter *formatter = NULL;
    dpfmt_store *store = NULL;
    char small[4] = "xyz";
    size_t length = 77;
    failed(dpfmt_open_templates(NULL, &formatter));
    failed(dpfmt_open_templates("/", NULL));
    failed(dpfmt_open_templates("/nowhere", &formatter));
    failed(dpfmt_parse_templates("\xff", &formatter));
    failed(dpfmt_open_store("/nowhere", NULL, &store));
    failed(dpfmt_open_store("/proc/self/exe", NULL, &store));
    failed(dpfmt_next(NULL, small, sizeof small, &length));
    failed(dpfmt_format(NULL, "", 0, 8, small, sizeof small, &length));
    if (formatter || store || length != 77 || strcmp(small, "xyz"))
        return 1;
    if (dpfmt_parse_templates("major=1 minor=1 desc=\"\" fmt=\"long text\"", &formatter) != DPFMT_OK)
        return 2;
    failed(dpfmt_format(formatter, "\xff\xff\xff\xff", 4, 8, small, sizeof small, &length));
    failed(dpfmt_format(formatter, NULL, 4, 8, small, sizeof small, &length));
    failed(dpfmt_format_data(formatter, 1, 1, "", 0, 5, small, sizeof small, &length));
    failed(dpfmt_format_data(formatter, 1, 9, "", 0, 8, small, sizeof small, &length));
    failed(dpfmt_format_data(formatter, 1, 1, "", 0, 8, NULL, 9, &length));
    if (length != 9 || strcmp(small, "xyz"))
        return 3;
    failed(dpfmt_format_data(formatter, 1, 1, "", 0, 8, small, sizeof small, NULL));
    if (small[0] != 0 || small[1] != 'y')
        return 4;
    if (dpfmt_format_data(formatter, 1, 1, "", 0, 8, NULL, 0, &length) != DPFMT_SHORT || length != 9)
        return 5;
    puts(dpfmt_status_text(-1));
    dpfmt_close(formatter);
    dpfmt_close(NULL);
    dpfmt_close_store(NULL);
    return 0;
}

int main(int count, char **words) {
    if (count >= 3 && !strcmp(words[1], "store"))
        return store(words[2], count > 3 ? words[3] : NULL);
    if (count == 4 && !strcmp(words[1], "record"))
        return record(words[2], atoi(words[3]));
    if (count == 4 && !strcmp(words[1], "data"))
        return data(atoi(words[2]), atoi(words[3]));
    return count == 2 && !strcmp(words[1], "misuse") ? misuse() : 99;
}
