/* The store file:DIR, in two parts: how ranks find each other in the folder (file_join.c), and keys and values in a
 * folder of their own inside it (file.c). */
#ifndef WEFT_RENDEZVOUS_FILE_H
#define WEFT_RENDEZVOUS_FILE_H
#include "base/process.h"
#include "rendezvous/store.h"

#define FILE_ID 33    /* 32 hex digits and a zero */
#define FILE_NAME 256 /* of a file, with its zero */

struct file_store {
    struct store base;
    char *dir;        /* of the URL */
    char *room;       /* the folder in it that these ranks have for themselves */
    char prefix[96];  /* of what ranks say in dir */
    char id[FILE_ID]; /* of this open: no other ever had it */
    struct process_id self;
    unsigned temporaries; /* names given to files on their way */
};

/* ---- file.c: whole files in a folder, which appear at once ---- */

#define FILE_NONE 1 /* not an error: there is no such file */

/* A folder of this user's; opened again for each look, since that makes NFS look, too. Negative: an error is set, or
 * FILE_NONE. */
int file_folder(const struct file_store *s, const char *path, int *fd);
int file_write(struct file_store *s, int folder, const char *name, const void *bytes, size_t n);
/* Up to cap bytes; *n is how many the file has. 0, FILE_NONE or an error. */
int file_read(const struct file_store *s, int folder, const char *name, void *bytes, size_t cap, size_t *n);
int file_failed(const struct file_store *s, const char *what, const char *name); /* of errno */

/* ---- file_join.c ---- */

int file_join(struct file_store *s, int64_t until); /* makes or finds s->room */
void file_leave(struct file_store *s);              /* the last one removes it */
#endif
