/* The state of a directory in a file: what the book was at some revision, and every change since then. A file that has
 * grown is written anew under another name and renamed. An entry that was not written to the end, because its writer
 * died, is the last one; it is passed over, and the next writer cuts it off.
 *
 *   "weft-jn1", then entries: length[4] of kind and body, its check[4], their check[8], kind[1], body
 *   BASE      revision[8], forgotten[8]
 *   LEASE     id[8], ttl in ns[8]
 *   KEY       an item of bus_message.h: a key as it is
 *   LOGGED    an item: a change that is remembered;  LOGGED_KEY: its key alone, if the key still has that record
 *   CHANGE    a transaction without compares
 *   REVOKE    id[8]
 *
 * The checks find torn and damaged entries, not forged ones. The length has one of its own: an entry whose length is
 * damaged must not pass for one that ends behind the end of the file. */
#ifndef WEFT_BUS_JOURNAL_H
#define WEFT_BUS_JOURNAL_H
#include "bus/book.h"

struct journal {
    char *path;
    int fd;
    size_t bytes; /* of the entries that the book has */
    size_t base;  /* of those that stand for the state when it was written anew */
    bool durable; /* entries are on the disk when the call returns */
};

/* Opens or makes the file, and brings the book up to date. `fresh` is the revision of a new directory. WEFT_EBUSY:
 * with `alone`, another process has the file. WEFT_EIO: it cannot be used, or is damaged. */
int journal_open(struct journal *j, const char *path, struct book *b, int64_t fresh, bool alone, bool durable);
void journal_close(struct journal *j);

/* Is the file that has the name still the one that is open? */
bool journal_is_current(const struct journal *j);
/* Applies what other processes have written since. The caller keeps them from writing meanwhile. */
int journal_read(struct journal *j, struct book *b);

/* Write what the caller has done to the book, or is about to do. After WEFT_EIO the file is as before. */
int journal_grant(struct journal *j, int64_t id, int64_t ttl_ns);
int journal_revoke(struct journal *j, int64_t id);
int journal_change(struct journal *j, const struct directory_transaction *t); /* without its compares */
/* Writes the file anew if it has grown enough. */
int journal_tidy(struct journal *j, struct book *b);
#endif
