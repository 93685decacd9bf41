/* The store file:DIR: whole files in a folder (file.c), how ranks find each other in it (file_join.c), and keys and
 * values in a subfolder that belongs to these ranks alone (store_file.c). */
#ifndef WEFT_RENDEZVOUS_FILE_H
#define WEFT_RENDEZVOUS_FILE_H
#include "base/process.h"
#include "rendezvous/store.h"

#define FILE_ID 33    /* 32 hex digits and a zero */
#define FILE_NAME 256 /* of a file, with its zero */

/* What a rank that collects has read of a gather and not passed on yet: n values from the rank `first` on. */
struct file_piece {
    char prefix[STORE_KEY_MAX + 1];
    int first, n;
    size_t bytes;
    unsigned char *packed; /* NULL: nothing was gathered yet */
};

struct file_store {
    struct store base;
    char *dir;        /* of the URL */
    char *room;       /* the subfolder that belongs to these ranks alone */
    char prefix[96];  /* of the names of files by which ranks find each other in dir */
    char id[FILE_ID]; /* random, of this open: no other open has it */
    struct process_id self;
    int ended;            /* store_opts.ended */
    unsigned temporaries; /* names of temporary files that were used */
    bool orphan;          /* rank 0, which passes on values, is gone */
    struct file_piece piece;
};

/* How long a rank that waits for a file rests between two looks, at most: so that all ranks together look some 4,000
 * times a second, however many there are. */
static inline int64_t file_pause_most(const struct file_store *s)
{
    return 20000000 + (int64_t)s->base.size * 250000;
}

/* ---- file.c: whole files in a folder; a reader sees all of a file or none ---- */

#define FILE_NONE 1 /* not an error: there is no such file */

/* Opens a folder; s->room must belong to this user. It is opened anew for each look, since that makes NFS ask its
 * server. Returns 0, FILE_NONE, or an error. */
int file_folder(const struct file_store *s, const char *path, int *fd);
int file_write(struct file_store *s, int folder, const char *name, const void *bytes, size_t n);
/* Reads up to cap bytes; *n says how many the file has. Returns 0, FILE_NONE or an error. */
int file_read(const struct file_store *s, int folder, const char *name, void *bytes, size_t cap, size_t *n);
/* A name that no reader looks for, and no other file has. It says which process writes the file, so that others can
 * remove it if this process dies before it has removed or renamed it. */
void file_aside(struct file_store *s, char name[FILE_NAME]);
/* Is this the name of a file that was not written to the end? Then *writer is the process that writes it. */
bool file_aside_of(const char *name, struct process_id *writer);
int file_failed(const struct file_store *s, const char *what, const char *name); /* sets the error of errno */

/* ---- file_join.c ---- */

int file_join(struct file_store *s, int64_t until); /* makes or finds s->room */
void file_join_leave(struct file_store *s);         /* the last rank removes s->room */
#endif
