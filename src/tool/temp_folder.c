/* See temp_folder.h. The lock is a flock(2) on the folder itself: the system drops it when its owner ends, also if the
 * owner is killed. */
#define _GNU_SOURCE
#include "tool/temp_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define RANDOM "XXXXXX" /* mkdtemp replaces these letters */

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *where)
{
    (void)s, (void)kind, (void)where;
    remove(path);
    return 0; /* go on if other processes have removed something meanwhile */
}

static void remove_all(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int open_folder(const char *path)
{
    return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Removes a folder of this user whose owner is dead: no process has the lock. */
static void remove_dead(const char *path)
{
    struct stat st;
    int fd = open_folder(path);
    if (fd >= 0 && !fstat(fd, &st) && st.st_uid == geteuid() && !flock(fd, LOCK_EX | LOCK_NB))
        remove_all(path);
    if (fd >= 0)
        close(fd);
}

/* Removes dead folders in the place whose names begin like the pattern and have its length. */
static void sweep(const char *place, const char *pattern)
{
    size_t n = strlen(pattern), fixed = n - strlen(RANDOM);
    DIR *d = opendir(place);
    for (const struct dirent *e; d && (e = readdir(d));) {
        char path[512];
        if (strlen(e->d_name) != n || strncmp(e->d_name, pattern, fixed))
            continue;
        if ((size_t)snprintf(path, sizeof path, "%s/%s", place, e->d_name) < sizeof path)
            remove_dead(path);
    }
    if (d)
        closedir(d);
}

/* Takes the lock of a folder that was just made. False: another process took it for a dead owner's folder and has
 * removed it. If the file system has no locks, no process removes it either. */
static bool take(struct temp_folder *f)
{
    struct stat st;
    f->lock = open_folder(f->path);
    if (f->lock < 0)
        return false;
    int locked;
    do
        locked = flock(f->lock, LOCK_EX);
    while (locked && errno == EINTR);
    if (!fstat(f->lock, &st) && st.st_nlink && !access(f->path, F_OK))
        return true;
    close(f->lock);
    return false;
}

bool temp_folder_make(const char *place, const char *kind, struct temp_folder *out, char *why, size_t cap)
{
    char pattern[64];
    *out = (struct temp_folder){.lock = -1};
    if (!place)
        place = getenv("TMPDIR");
    if (!place || !*place)
        place = "/tmp";
    snprintf(pattern, sizeof pattern, "weft-%s-%u-" RANDOM, kind, (unsigned)geteuid());
    sweep(place, pattern);
    do {
        errno = ENAMETOOLONG;
        if ((size_t)snprintf(out->path, sizeof out->path, "%s/%s", place, pattern) >= sizeof out->path ||
            !mkdtemp(out->path)) {
            snprintf(why, cap, "no folder %s/%s for its files: %s", place, pattern, strerror(errno));
            out->path[0] = 0;
            return false;
        }
    } while (!take(out));
    return true;
}

void temp_folder_remove(struct temp_folder *f)
{
    if (!f->path[0])
        return;
    remove_all(f->path);
    close(f->lock);
    *f = (struct temp_folder){.lock = -1};
}
