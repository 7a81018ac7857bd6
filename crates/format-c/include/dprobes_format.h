/*
 * Formats records and trace stores of dprobes as text, in any program.
 *
 *     cc -I crates/format-c/include program.c -ldprobes_format
 *
 * A record is given as bytes, as targets of dprobes write it (docs/records.md, "The record as bytes"); its template says what
 * its bytes are (docs/templates.md). A store is read record by record, and shown as `dprobes show` does.
 *
 * Functions return a status. After any but DPFMT_OK and DPFMT_END, dpfmt_message() says what was wrong.
 *
 * A text is written with a NUL behind it. `*length` is set to the bytes of the text without the NUL, also if it does not
 * fit (DPFMT_SHORT): then nothing is written but a NUL, and the same call with a larger buffer gives the text. `length`
 * may be NULL; `buffer` may be NULL if `size` is 0.
 *
 * A handle may be used by one thread at a time; different handles by different threads at once.
 */
#ifndef DPROBES_FORMAT_H
#define DPROBES_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum dpfmt_status {
    DPFMT_OK = 0,          /* the call has done what was asked */
    DPFMT_END = 1,         /* the store has no more records */
    DPFMT_SHORT = 2,       /* the buffer is too small for the text */
    DPFMT_ARGUMENT = 3,    /* an argument is not what the function takes */
    DPFMT_TEMPLATES = 4,   /* the templates cannot be read */
    DPFMT_NO_TEMPLATE = 5, /* no template has these codes */
    DPFMT_RECORD = 6,      /* these bytes are no record */
    DPFMT_STORE = 7,       /* the store cannot be read */
    DPFMT_DAMAGE = 8,      /* a part of the store cannot be read; the next call goes on behind it */
    DPFMT_BUG = 9,         /* a mistake in this library; the handle may only be closed */
};

/* What a status means. The text is the library's, and stays. */
const char *dpfmt_status_text(int status);

/* What was wrong in the last call of this thread that failed. The text stays until its next call that fails. */
const char *dpfmt_message(void);

/* Templates, held in memory. */
typedef struct dpfmt_formatter dpfmt_formatter;

/* Reads the templates of a directory. Those with mistakes are not used: dpfmt_problems tells them. */
int dpfmt_open_templates(const char *directory, dpfmt_formatter **formatter);

/* The same from the text of one template file. */
int dpfmt_parse_templates(const char *text, dpfmt_formatter **formatter);

/* The mistakes in the templates, as text; an empty text if there is none. */
int dpfmt_problems(const dpfmt_formatter *formatter, char *buffer, size_t size, size_t *length);

/*
 * The text of a record: its header, then its data by its template, or as a dump if it has none. `word` is the size of a
 * word in the probed program: 8 or 4.
 */
int dpfmt_format(const dpfmt_formatter *formatter, const void *record, size_t bytes, int word, char *buffer, size_t size,
                 size_t *length);

/* The text of logged bytes by the template with these codes, without a header. */
int dpfmt_format_data(const dpfmt_formatter *formatter, uint32_t major, uint32_t minor, const void *data, size_t bytes,
                      int word, char *buffer, size_t size, size_t *length);

/* Frees the templates. NULL is allowed. */
void dpfmt_close(dpfmt_formatter *formatter);

/* A trace store that is read. */
typedef struct dpfmt_store dpfmt_store;

/* Opens a store. It is shown by the templates in a directory, or by its own if `templates` is NULL. */
int dpfmt_open_store(const char *path, const char *templates, dpfmt_store **store);

/*
 * The text of the next record, with its newline. DPFMT_END: there are no more. DPFMT_DAMAGE: a part cannot be read; the
 * next call goes on. After DPFMT_SHORT the record is still the next one.
 */
int dpfmt_next(dpfmt_store *store, char *buffer, size_t size, size_t *length);

/* Closes the store. NULL is allowed. */
void dpfmt_close_store(dpfmt_store *store);

#ifdef __cplusplus
}
#endif
#endif
