/* How ranks find each other in a folder in which earlier jobs may have left files.
 *
 * Every open draws a random number that no other open has. Rank 0 makes a room, a subfolder with a fresh name, and
 * writes that name into PREFIX.lead. Rank r writes its number into PREFIX.hello.r. For each hello, rank 0 writes the
 * number into ROOM/admit.r. Rank r enters a room only if it finds its own number there, so that an old PREFIX.lead
 * cannot mislead it. It then writes ROOM/here.r. When all ranks are here, rank 0 writes ROOM/all, and all go on. An old
 * hello is admitted, too, but its rank never comes; when the rank replaces the hello, rank 0 admits the new one. If
 * rank 0 gives up, it writes its reason into ROOM/failed instead of ROOM/all.
 *
 * Each of these files names the process that wrote it. A rank whose file was written by another process that is alive
 * is refused. Whether a process of another machine is alive cannot be known: its file is replaced, and it notices that
 * while it waits.
 *
 * A rank that closes writes ROOM/bye.r. A rank that finds that all ranks that are here have written it, or have died,
 * removes the room. Before rank 0 makes a room it removes the rooms of its name for which that is true. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "rendezvous/deadline.h"
#include "rendezvous/file.h"

#define LOOK_NS INT64_C(500000)
#define LOOK_MOST_NS INT64_C(20000000)

/* What each of these files holds: the rank's number, its process, how many ranks it expects and, from rank 0, its
 * room. */
struct card {
    char id[FILE_ID], room[FILE_NAME];
    int size;
    struct process_id process;
};

/* ---- cards ---- */

static int card_write(struct file_store *s, int folder, const char *name, const char *id, const char *room)
{
    char text[640];
    const struct process_id *p = &s->self;
    int n =
        snprintf(text, sizeof text, "weft-1 %s %d %lld %llu %llu %s %s %s\n", id, s->base.size, (long long)p->pid,
                 (unsigned long long)p->start, (unsigned long long)p->space, p->boot[0] ? p->boot : "-", p->host, room);
    return file_write(s, folder, name, text, (size_t)n);
}

/* FILE_NONE also if the file is no card: another program may have put it there. */
static int card_read(const struct file_store *s, int folder, const char *name, struct card *c)
{
    char text[641];
    size_t n;
    long long pid;
    unsigned long long start, space;
    int err = file_read(s, folder, name, text, sizeof text - 1, &n);
    if (err)
        return err;
    text[n < sizeof text ? n : sizeof text - 1] = 0;
    *c = (struct card){.size = 0};
    if (sscanf(text, "weft-1 %32s %d %lld %llu %llu %39s %63s %255s", c->id, &c->size, &pid, &start, &space,
               c->process.boot, c->process.host, c->room) != 8)
        return FILE_NONE;
    c->process.pid = pid;
    c->process.start = start;
    c->process.space = space;
    return 0;
}

static void numbered(char *name, const char *what, int rank)
{
    snprintf(name, FILE_NAME, "%s.%d", what, rank);
}

static bool has(int folder, const char *what, int rank)
{
    struct stat st;
    char name[FILE_NAME];
    if (rank >= 0)
        numbered(name, what, rank);
    return !fstatat(folder, rank >= 0 ? name : what, &st, AT_SYMLINK_NOFOLLOW);
}

static bool is_here(void *folder, int rank)
{
    return has(*(int *)folder, "here", rank);
}

/* ---- rooms that are over ---- */

/* Lists a folder from its first name on. NULL: it cannot be read. */
static DIR *names(int folder)
{
    int fd = dup(folder);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (d)
        rewinddir(d); /* the position belongs to the open folder and may have moved */
    else if (fd >= 0)
        close(fd);
    return d;
}

/* Have all ranks that came here left or died? */
static bool over(const struct file_store *s, int folder)
{
    DIR *d = names(folder);
    int rank;
    bool alive = false, any = false;
    if (!d)
        return false;
    for (struct dirent *e; !alive && (e = readdir(d));) {
        struct card c;
        if (sscanf(e->d_name, "here.%d", &rank) != 1)
            continue;
        any = true;
        alive = !has(folder, "bye", rank) &&
                (card_read(s, folder, e->d_name, &c) || process_judge(&c.process) != PROCESS_GONE);
    }
    closedir(d);
    return any && !alive;
}

static void remove_room(const char *path, int folder)
{
    DIR *d = names(folder);
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            unlinkat(folder, e->d_name, 0);
    closedir(d);
    rmdir(path);
}

static char *path_in(const char *dir, const char *name)
{
    char *path = NULL;
    return asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : path;
}

static void sweep(const struct file_store *s, int dir)
{
    char start[FILE_NAME];
    int n = snprintf(start, sizeof start, "%s.g-", s->prefix);
    DIR *d = names(dir);
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));) {
        if (strncmp(e->d_name, start, (size_t)n))
            continue;
        char *path = path_in(s->dir, e->d_name);
        int room = path ? open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
        if (room >= 0 && over(s, room))
            remove_room(path, room);
        if (room >= 0)
            close(room);
        free(path);
    }
    closedir(d);
}

/* A rank that gives up because others have died removes what they have left here: no other job has this name, as
 * survivors of other ranks have other ones. This thread's error stays as it is. */
static void sweep_dead(const struct file_store *s, int dir)
{
    char name[FILE_NAME], what[128], text[1024];
    snprintf(text, sizeof text, "%s", weft_errmsg());
    for (int r = 0; r < s->base.size; r++) {
        struct card c;
        snprintf(what, sizeof what, "%s.hello", s->prefix);
        numbered(name, what, r);
        if (r == 0)
            snprintf(name, sizeof name, "%s.lead", s->prefix);
        if (card_read(s, dir, name, &c))
            continue;
        enum process_fate fate = process_judge(&c.process);
        if (fate == PROCESS_GONE || (fate == PROCESS_HERE && process_ending(c.process.pid)))
            unlinkat(dir, name, 0);
    }
    sweep(s, dir);
    error_set(WEFT_EPEER, "%s", text);
}

void file_join_leave(struct file_store *s)
{
    char name[FILE_NAME];
    int folder;
    if (!s->room || file_folder(s, s->room, &folder))
        return;
    numbered(name, "bye", s->base.rank);
    if (has(folder, "here", s->base.rank))
        card_write(s, folder, name, s->id, "-");
    if (over(s, folder))
        remove_room(s->room, folder);
    close(folder);
}

/* ---- joining ---- */

static int taken(const struct file_store *s, const struct card *c)
{
    return error_set(WEFT_EBUSY,
                     "file:%s: rank %d is taken by process %lld on %s; jobs at the same time need folders or names "
                     "(WEFT_NAME) of their own",
                     s->dir, s->base.rank, (long long)c->process.pid, c->process.host);
}

/* Writes this rank's card into `name`, unless another process that is alive has written one. */
static int claim(struct file_store *s, int dir, const char *name, const char *room)
{
    struct card c;
    int err = card_read(s, dir, name, &c);
    if (!err && process_judge(&c.process) == PROCESS_HERE)
        return taken(s, &c);
    return err && err != FILE_NONE ? err : card_write(s, dir, name, s->id, room);
}

/* Is the card in `name` still this rank's? */
static int keep(const struct file_store *s, int dir, const char *name)
{
    struct card c;
    int err = card_read(s, dir, name, &c);
    return err == FILE_NONE ? 0 : !err && strcmp(c.id, s->id) ? taken(s, &c) : err;
}

static void withdraw(const struct file_store *s, int dir, const char *name)
{
    if (!keep(s, dir, name))
        unlinkat(dir, name, 0);
}

static int open_dir(const struct file_store *s, int *dir)
{
    int err = file_folder(s, s->dir, dir);
    return err == FILE_NONE ? file_failed(s, "cannot open", s->dir) : err;
}

/* ---- rank 0 ---- */

/* Admits every rank whose hello has a new number. WEFT_EMISMATCH: a rank that was admitted expects another size. */
static int admit(struct file_store *s, int dir, int folder, char (*admitted)[FILE_ID], int *here)
{
    char name[FILE_NAME], what[128];
    struct card c;
    *here = 1;
    for (int r = 1; r < s->base.size; r++) {
        if (has(folder, "here", r)) {
            ++*here;
            continue;
        }
        snprintf(what, sizeof what, "%s.hello", s->prefix);
        numbered(name, what, r);
        int err = card_read(s, dir, name, &c);
        if (err == FILE_NONE || (!err && !strcmp(c.id, admitted[r])))
            continue;
        numbered(name, "admit", r);
        if (!err)
            err = card_write(s, folder, name, c.id, "-");
        if (err)
            return err;
        strcpy(admitted[r], c.id);
    }
    for (int r = 1; *here < s->base.size && r < s->base.size; r++) {
        numbered(name, "no", r);
        if (!card_read(s, folder, name, &c))
            return error_set(WEFT_EMISMATCH, "file:%s: rank %d says that there are %d ranks, rank 0 says %d", s->dir, r,
                             c.size, s->base.size);
    }
    return 0;
}

/* Tells the other ranks, so that none waits for a room that will not open. This thread's error stays as it is. */
static void tell_failure(struct file_store *s, int folder, int err)
{
    char why[1024], text[1100];
    snprintf(why, sizeof why, "%s", weft_errmsg());
    int n = snprintf(text, sizeof text, "%d %s", err, why);
    file_write(s, folder, "failed", text, (size_t)n);
    error_set(err, "%s", why);
}

static int gather_all(struct file_store *s, const char *lead, char (*admitted)[FILE_ID], int64_t until)
{
    for (int64_t pause = LOOK_NS;; deadline_pause(&pause, LOOK_MOST_NS, until)) {
        bool last = deadline_now() >= until;
        int dir, folder = -1, here = 0, err = open_dir(s, &dir);
        if (err)
            return err;
        err = file_folder(s, s->room, &folder);
        if (!err)
            err = keep(s, dir, lead);
        if (!err)
            err = admit(s, dir, folder, admitted, &here);
        if (!err && here == s->base.size)
            err = card_write(s, folder, "all", s->id, "-");
        if (!err && here < s->base.size)
            err = store_look(&s->base, s->ended);
        if (!err && here < s->base.size && last) {
            char missing[192];
            store_missing(missing, sizeof missing, s->base.size, is_here, &folder);
            err = error_set(WEFT_ETIMEOUT, "file:%s: %s did not come in time", s->dir, missing);
        }
        if (err && folder >= 0)
            tell_failure(s, folder, err);
        if (folder >= 0)
            close(folder);
        close(dir);
        if (err || here == s->base.size)
            return err == FILE_NONE ? error_set(WEFT_ETRANSPORT, "file:%s: the folder of the store was removed", s->dir)
                                    : err;
    }
}

static int make_room(struct file_store *s, int dir, const char *name)
{
    s->room = path_in(s->dir, name);
    if (!s->room)
        return error_nomem();
    if (mkdirat(dir, name, 0700))
        return file_failed(s, "cannot make the folder", name);
    int folder, err = file_folder(s, s->room, &folder);
    if (err)
        return err;
    err = card_write(s, folder, "here.0", s->id, "-");
    close(folder);
    return err;
}

static int lead(struct file_store *s, int dir, int64_t until)
{
    char name[FILE_NAME], room[FILE_NAME];
    snprintf(name, sizeof name, "%s.lead", s->prefix);
    snprintf(room, sizeof room, "%s.g-%.16s", s->prefix, s->id);
    sweep(s, dir);
    int err = make_room(s, dir, room);
    if (!err)
        err = claim(s, dir, name, room);
    char(*admitted)[FILE_ID] = calloc((size_t)s->base.size, sizeof *admitted);
    if (!admitted && !err)
        err = error_nomem();
    if (!err)
        err = gather_all(s, name, admitted, until);
    char text[1024];
    snprintf(text, sizeof text, "%s", weft_errmsg());
    withdraw(s, dir, name);
    free(admitted);
    return err ? error_set(err, "%s", text) : 0;
}

/* ---- the others ---- */

/* Enters the room that rank 0 names. FILE_NONE: rank 0 has not admitted this rank yet. */
static int find_room(struct file_store *s, int dir, const char *lead_name)
{
    struct card c, mine;
    char name[FILE_NAME];
    int folder, err = card_read(s, dir, lead_name, &c);
    if (err || strchr(c.room, '/') || strncmp(c.room, s->prefix, strlen(s->prefix)))
        return err ? err : FILE_NONE;
    s->room = path_in(s->dir, c.room);
    if (!s->room)
        return error_nomem();
    err = file_folder(s, s->room, &folder);
    if (!err) {
        numbered(name, "admit", s->base.rank);
        err = card_read(s, folder, name, &mine);
        if (!err && strcmp(mine.id, s->id))
            err = FILE_NONE;
        bool differs = !err && mine.size != s->base.size;
        numbered(name, differs ? "no" : "here", s->base.rank);
        if (!err)
            err = card_write(s, folder, name, s->id, "-");
        if (!err && differs)
            err = error_set(WEFT_EMISMATCH, "file:%s: rank 0 says that there are %d ranks, rank %d says %d", s->dir,
                            mine.size, s->base.rank, s->base.size);
        close(folder);
    }
    if (err) {
        free(s->room);
        s->room = NULL;
    }
    return err;
}

/* In the room: have all ranks come, or has rank 0 given up? FILE_NONE: neither. */
static int look_round(const struct file_store *s, bool last)
{
    char text[1200] = "", missing[192];
    size_t n;
    int folder, err = file_folder(s, s->room, &folder);
    if (err)
        return err == FILE_NONE ? error_set(WEFT_EPEER, "file:%s: rank 0 has given up", s->dir) : err;
    err = has(folder, "all", -1) ? 0 : file_read(s, folder, "failed", text, sizeof text - 1, &n);
    if (!err && text[0]) {
        const char *reason = strchr(text, ' ');
        long code = strtol(text, NULL, 10);
        err = error_set(code < 0 && code > -100 ? (int)code : WEFT_EPEER, "%s", reason ? reason + 1 : text);
    }
    struct card first;
    if (err == FILE_NONE && !card_read(s, folder, "here.0", &first) && process_judge(&first.process) == PROCESS_GONE)
        err = error_set(WEFT_EPEER, "file:%s: rank 0, process %lld on %s, has died", s->dir,
                        (long long)first.process.pid, first.process.host);
    if (err == FILE_NONE && last) {
        store_missing(missing, sizeof missing, s->base.size, is_here, &folder);
        err = error_set(WEFT_ETIMEOUT, "file:%s: %s did not come in time", s->dir, missing);
    }
    close(folder);
    return err;
}

static int follow(struct file_store *s, const char *hello, const char *lead_name, int64_t until)
{
    for (int64_t pause = LOOK_NS;; deadline_pause(&pause, LOOK_MOST_NS, until)) {
        bool last = deadline_now() >= until;
        int dir, err = open_dir(s, &dir);
        if (err)
            return err;
        if (!s->room) {
            err = keep(s, dir, hello);
            if (!err)
                err = find_room(s, dir, lead_name);
            if (!err)
                unlinkat(dir, hello, 0);
        }
        close(dir);
        if (!err)
            err = look_round(s, last);
        int gone = err == FILE_NONE ? store_look(&s->base, s->ended) : 0;
        err = gone ? gone : err;
        if (err == FILE_NONE && last)
            err = error_set(WEFT_ETIMEOUT, "file:%s: rank 0 did not come in time", s->dir);
        if (err != FILE_NONE)
            return err;
    }
}

static int be_led(struct file_store *s, int dir, int64_t until)
{
    char what[128], hello[FILE_NAME], lead_name[FILE_NAME], here[FILE_NAME], text[1024];
    snprintf(what, sizeof what, "%s.hello", s->prefix);
    snprintf(lead_name, sizeof lead_name, "%s.lead", s->prefix);
    numbered(hello, what, s->base.rank);
    int folder, err = claim(s, dir, hello, "-");
    if (err)
        return err;
    err = follow(s, hello, lead_name, until);
    if (!err)
        return 0;
    snprintf(text, sizeof text, "%s", weft_errmsg());
    withdraw(s, dir, hello);
    numbered(here, "here", s->base.rank);
    if (s->room && !file_folder(s, s->room, &folder)) { /* this rank has failed: it is not here */
        unlinkat(folder, here, 0);
        close(folder);
    }
    return error_set(err, "%s", text);
}

/* ---- */

int file_join(struct file_store *s, int64_t until)
{
    unsigned char random[16];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return file_failed(s, "no random number for", "a rank");
    for (int i = 0; i < 16; i++)
        snprintf(s->id + 2 * i, 3, "%02x", random[i]);
    process_self(&s->self);
    snprintf(s->prefix, sizeof s->prefix, "weft%s%s", s->base.name[0] ? "-" : "", s->base.name);
    for (char *c = s->prefix; *c; c++)
        if (*c == '/')
            *c = ',';
    if (mkdir(s->dir, 0700) && errno != EEXIST)
        return file_failed(s, "cannot make the folder", s->dir);
    int dir, err = open_dir(s, &dir);
    if (err)
        return err;
    err = s->base.rank ? be_led(s, dir, until) : lead(s, dir, until);
    if (err == WEFT_EPEER)
        sweep_dead(s, dir);
    close(dir);
    return err;
}
