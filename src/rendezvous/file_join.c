/* How ranks find each other in a folder in which earlier jobs may have left files.
 *
 * Every open draws a random number that no other open has. Rank 0 makes a room, a subfolder with a fresh name, and
 * writes that name into PREFIX.lead. Rank r writes its number into PREFIX.hello.r. Rank 0 admits each hello: it moves
 * the file to ROOM/admit.r. Rank r enters a room only if it finds its own number there, so that an old PREFIX.lead
 * cannot mislead it. It then renames the file to ROOM/here.r. When all ranks are here, rank 0 writes ROOM/all, and all
 * go on. An old hello is admitted, too, but its rank never comes; the rank's new hello then replaces it. If a rank
 * finds neither its hello nor its number in the room, a rank 0 that has ended since has moved the hello: the rank
 * writes it again. If rank 0 gives up, it writes its reason into ROOM/failed instead of ROOM/all.
 *
 * Rank 0 reads the names in the two folders, and no file, so that a look costs it little however many ranks there are.
 * The other ranks look at one file at a time. They look the more rarely, the more ranks there are (file_pause_most).
 *
 * Each of these files names the process that wrote it. A rank whose file was written by another process that is alive
 * is refused. Whether a process of another machine is alive cannot be known: its file is replaced, and it notices that
 * while it waits.
 *
 * A rank that closes renames ROOM/here.r to ROOM/bye.r. A rank that finds that all ranks that were here have left or
 * died removes the room. Before rank 0 makes a room it removes the rooms of its name for which that is true, and a rank
 * that gives up because another one has died does so, too.
 *
 * A rank may die between any two of these steps, also while it removes a room. So PREFIX.lead names the room before
 * there is one, here.r and bye.r are the last files of a room to be removed, and a room without any of them is removed
 * unless the rank 0 that PREFIX.lead names is alive. The name of a file that is not complete yet says which process
 * writes it (file.c). */
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
#include "base/hash.h"
#include "rendezvous/deadline.h"
#include "rendezvous/file.h"

#define LOOK_NS INT64_C(500000)
#define LOOK_MOST_NS INT64_C(20000000) /* of rank 0 */
#define LOOKS_EACH 64 /* of this many looks of rank 0, one asks for each file by its name: lists of NFS may be old */
#define LOOKS_LOST 4  /* looks of a rank without its hello and its number, before it writes its hello again */

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
        snprintf(text, sizeof text, "weft-2 %s %d %lld %llu %llu %s %s %s\n", id, s->base.size, (long long)p->pid,
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
    if (sscanf(text, "weft-2 %32s %d %lld %llu %llu %39s %63s %255s", c->id, &c->size, &pid, &start, &space,
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

/* A process that has begun to end runs no more code of its program. Others may know of its end by then, as its
 * connections are closed. */
static bool is_gone(const struct process_id *p)
{
    enum process_fate fate = process_judge(p);
    return fate == PROCESS_GONE || (fate == PROCESS_HERE && process_ending(p->pid));
}

static bool lives(const struct file_store *s, int folder, const char *name)
{
    struct card c;
    return card_read(s, folder, name, &c) || !is_gone(&c.process);
}

static bool is_trace(const char *name)
{
    int rank;
    return sscanf(name, "here.%d", &rank) == 1 || sscanf(name, "bye.%d", &rank) == 1;
}

/* What the ranks of a room have left in it. */
enum room_state { ROOM_ALIVE, ROOM_LEFT, ROOM_BARE /* not a trace of a rank */ };

static enum room_state room_state(const struct file_store *s, int folder)
{
    DIR *d = names(folder);
    enum room_state state = d ? ROOM_BARE : ROOM_ALIVE;
    for (struct dirent *e; state != ROOM_ALIVE && (e = readdir(d));)
        if (is_trace(e->d_name))
            state = e->d_name[0] == 'h' && lives(s, folder, e->d_name) ? ROOM_ALIVE : ROOM_LEFT;
    if (d)
        closedir(d);
    return state;
}

/* Does a rank 0 that is alive make the room of this name? */
static bool is_made(const struct file_store *s, int dir, const char *room)
{
    struct card c;
    char lead[FILE_NAME];
    snprintf(lead, sizeof lead, "%s.lead", s->prefix);
    int err = card_read(s, dir, lead, &c);
    return err ? err != FILE_NONE : !strcmp(c.room, room) && !is_gone(&c.process);
}

/* Have all ranks that came here left or died? A room without a trace of them is one that is being made, or one whose
 * rank 0 has died before it wrote here.0, or one that a rank was removing when it died. While it is being made,
 * PREFIX.lead names it, until here.0 is written. So a room is over that is bare, then is not named, and still is bare.
 */
static bool over(const struct file_store *s, int dir, const char *room, int folder)
{
    enum room_state state = room_state(s, folder);
    return state == ROOM_LEFT || (state == ROOM_BARE && !is_made(s, dir, room) && room_state(s, folder) != ROOM_ALIVE);
}

/* Is one of some ranks still here? Then the caller need not look at all of them. */
static bool some_here(const struct file_store *s, int folder)
{
    char name[FILE_NAME];
    for (int64_t step = 1; step < s->base.size; step *= 2) {
        int rank = (int)((s->base.rank + step) % s->base.size);
        numbered(name, "here", rank);
        if (has(folder, "here", rank) && lives(s, folder, name))
            return true;
    }
    return false;
}

/* Traces of ranks come last: as long as there is one, others see that the room is over. */
static void remove_room(const char *path, int folder)
{
    for (int traces = 0; traces < 2; traces++) {
        DIR *d = names(folder);
        if (!d)
            return;
        for (struct dirent *e; (e = readdir(d));)
            if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && is_trace(e->d_name) == traces)
                unlinkat(folder, e->d_name, 0);
        closedir(d);
    }
    rmdir(path);
}

static char *path_in(const char *dir, const char *name)
{
    char *path = NULL;
    return asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : path;
}

/* Removes rooms that are over, and files that a process has not written to the end and that is gone. */
static void sweep(const struct file_store *s, int dir)
{
    char start[FILE_NAME];
    struct process_id writer;
    int n = snprintf(start, sizeof start, "%s.g-", s->prefix);
    DIR *d = names(dir);
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));) {
        if (file_aside_of(e->d_name, &writer) && is_gone(&writer))
            unlinkat(dir, e->d_name, 0);
        if (strncmp(e->d_name, start, (size_t)n))
            continue;
        char *path = path_in(s->dir, e->d_name);
        int room = path ? open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
        if (room >= 0 && over(s, dir, e->d_name, room))
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
    char start[FILE_NAME], text[1024];
    snprintf(text, sizeof text, "%s", weft_errmsg());
    int n = snprintf(start, sizeof start, "%s.", s->prefix);
    DIR *d = names(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        struct card c;
        int rank;
        if (strncmp(e->d_name, start, (size_t)n) ||
            (strcmp(e->d_name + n, "lead") && sscanf(e->d_name + n, "hello.%d", &rank) != 1) ||
            card_read(s, dir, e->d_name, &c))
            continue;
        if (is_gone(&c.process))
            unlinkat(dir, e->d_name, 0);
    }
    if (d)
        closedir(d);
    sweep(s, dir);
    error_set(WEFT_EPEER, "%s", text);
}

/* Rank 0 may have died before it removed PREFIX.lead. If that still names this room, it is removed. Another rank 0 may
 * write its own just now. So the file is moved aside before the second look, and put back if it names another room. */
static void remove_lead(struct file_store *s, int dir, const char *room)
{
    struct card c;
    char lead[FILE_NAME], aside[FILE_NAME];
    snprintf(lead, sizeof lead, "%s.lead", s->prefix);
    if (card_read(s, dir, lead, &c) || strcmp(c.room, room) || !is_gone(&c.process))
        return;
    file_aside(s, aside);
    if (renameat(dir, lead, dir, aside))
        return;
    if (!card_read(s, dir, aside, &c) && strcmp(c.room, room) && linkat(dir, aside, dir, lead, 0))
        return; /* it cannot be put back: the file stays, for whoever looks into the folder */
    unlinkat(dir, aside, 0);
}

void file_join_leave(struct file_store *s)
{
    char here[FILE_NAME], bye[FILE_NAME];
    int folder, dir;
    if (!s->room || file_folder(s, s->room, &folder))
        return;
    numbered(here, "here", s->base.rank);
    numbered(bye, "bye", s->base.rank);
    renameat(folder, here, folder, bye); /* there is none if this rank has failed to join */
    if (!some_here(s, folder) && !file_folder(s, s->dir, &dir)) {
        const char *room = strrchr(s->room, '/') + 1;
        if (over(s, dir, room, folder)) {
            remove_lead(s, dir, room);
            remove_room(s->room, folder);
        }
        close(dir);
    }
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
    if (!err && process_judge(&c.process) == PROCESS_HERE && !is_gone(&c.process))
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

/* The ranks that have come, as far as rank 0 has seen. */
struct arrivals {
    bool *here;
    int n;
    unsigned looks;
};

static void admit(struct file_store *s, int dir, int folder, int rank)
{
    char name[FILE_NAME], what[128], to[FILE_NAME];
    snprintf(what, sizeof what, "%s.hello", s->prefix);
    numbered(name, what, rank);
    numbered(to, "admit", rank);
    renameat(dir, name, folder, to); /* if it is gone already, its rank has given up */
}

/* The rank in a name that begins with `start`; -1: it is another name. */
static int rank_of(const struct file_store *s, const char *name, const char *start)
{
    size_t n = strlen(start);
    char *end;
    if (strncmp(name, start, n) || name[n] < '0' || name[n] > '9')
        return -1;
    long rank = strtol(name + n, &end, 10);
    return *end || rank < 1 || rank >= s->base.size ? -1 : (int)rank;
}

static int differs(const struct file_store *s, int folder, int rank)
{
    struct card c;
    char name[FILE_NAME];
    numbered(name, "no", rank);
    int err = card_read(s, folder, name, &c);
    return err ? 0
               : error_set(WEFT_EMISMATCH, "file:%s: rank %d says that there are %d ranks, rank 0 says %d", s->dir,
                           rank, c.size, s->base.size);
}

static void came(struct arrivals *a, int rank)
{
    a->n += !a->here[rank];
    a->here[rank] = true;
}

/* Admits every rank that has written a hello. */
static int admit_all(struct file_store *s, int dir, int folder, const struct arrivals *a)
{
    char start[FILE_NAME];
    snprintf(start, sizeof start, "%s.hello.", s->prefix);
    DIR *d = names(dir);
    if (!d)
        return file_failed(s, "cannot list", s->dir);
    for (struct dirent *e; (e = readdir(d));) {
        int rank = rank_of(s, e->d_name, start);
        if (rank > 0)
            admit(s, dir, folder, rank);
    }
    closedir(d);
    for (int r = 1; r < s->base.size && a->looks % LOOKS_EACH == LOOKS_EACH - 1; r++)
        if (!a->here[r])
            admit(s, dir, folder, r);
    return 0;
}

/* Which ranks have come? WEFT_EMISMATCH: a rank that was admitted expects another size. */
static int count_all(const struct file_store *s, int folder, struct arrivals *a)
{
    DIR *d = names(folder);
    int err = d ? 0 : file_failed(s, "cannot list", s->room);
    for (struct dirent *e; !err && (e = readdir(d));) {
        int rank = rank_of(s, e->d_name, "here."), no = rank_of(s, e->d_name, "no.");
        if (rank > 0)
            came(a, rank);
        if (no > 0)
            err = differs(s, folder, no);
    }
    if (d)
        closedir(d);
    for (int r = 1; r < s->base.size && !err && a->looks % LOOKS_EACH == LOOKS_EACH - 1; r++) {
        if (!a->here[r] && has(folder, "here", r))
            came(a, r);
        if (!a->here[r])
            err = differs(s, folder, r);
    }
    a->looks++;
    return err;
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

static int gather_all(struct file_store *s, const char *lead, struct arrivals *a, int64_t until)
{
    for (int64_t pause = LOOK_NS;; deadline_pause(&pause, LOOK_MOST_NS, until)) {
        bool last = deadline_now() >= until;
        int dir, folder = -1, err = open_dir(s, &dir);
        if (err)
            return err;
        err = file_folder(s, s->room, &folder);
        if (!err)
            err = keep(s, dir, lead);
        if (!err)
            err = admit_all(s, dir, folder, a);
        if (!err)
            err = count_all(s, folder, a);
        bool all = a->n == s->base.size;
        if (!err && all)
            err = card_write(s, folder, "all", s->id, "-");
        if (!err && !all)
            err = store_look(&s->base, s->ended);
        if (!err && !all && last) {
            char missing[192];
            store_missing(missing, sizeof missing, s->base.size, is_here, &folder);
            err = error_set(WEFT_ETIMEOUT, "file:%s: %s did not come in time", s->dir, missing);
        }
        if (err && folder >= 0)
            tell_failure(s, folder, err);
        if (folder >= 0)
            close(folder);
        close(dir);
        if (err || all)
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
    int err = claim(s, dir, name, room);
    if (!err)
        err = make_room(s, dir, room);
    struct arrivals a = {.here = calloc((size_t)s->base.size, sizeof *a.here), .n = 1};
    if (!a.here && !err)
        err = error_nomem();
    if (!err)
        err = gather_all(s, name, &a, until);
    char text[1024];
    snprintf(text, sizeof text, "%s", weft_errmsg());
    withdraw(s, dir, name);
    free(a.here);
    return err ? error_set(err, "%s", text) : 0;
}

/* ---- the others ---- */

/* Enters the room that rank 0 names. FILE_NONE: rank 0 has not admitted this rank there. */
static int find_room(struct file_store *s, int dir, const char *lead_name)
{
    struct card c, mine;
    char name[FILE_NAME], to[FILE_NAME];
    int folder, err = card_read(s, dir, lead_name, &c);
    if (err || strchr(c.room, '/') || strncmp(c.room, s->prefix, strlen(s->prefix)))
        return err ? err : FILE_NONE;
    s->room = path_in(s->dir, c.room);
    if (!s->room)
        return error_nomem();
    err = file_folder(s, s->room, &folder);
    if (!err) {
        bool differs = c.size != s->base.size;
        numbered(name, "admit", s->base.rank);
        numbered(to, differs ? "no" : "here", s->base.rank);
        err = card_read(s, folder, name, &mine);
        if (!err && strcmp(mine.id, s->id))
            err = FILE_NONE;
        if (!err && renameat(folder, name, folder, to))
            err = errno == ENOENT ? FILE_NONE : file_failed(s, "cannot rename", name);
        if (!err && differs)
            err = error_set(WEFT_EMISMATCH, "file:%s: rank 0 says that there are %d ranks, rank %d says %d", s->dir,
                            c.size, s->base.rank, s->base.size);
        close(folder);
    }
    if (err) {
        free(s->room);
        s->room = NULL;
    }
    return err;
}

/* Has rank 0 admitted this rank? Then it enters the room. FILE_NONE: not yet. *lost counts the looks that have found
 * neither this rank's hello nor its number. */
static int enter(struct file_store *s, int dir, const char *hello, const char *lead_name, int *lost)
{
    struct card c;
    int err = card_read(s, dir, hello, &c);
    if (!err)
        return strcmp(c.id, s->id) ? taken(s, &c) : FILE_NONE;
    if (err == FILE_NONE)
        err = find_room(s, dir, lead_name);
    if (err != FILE_NONE || ++*lost < LOOKS_LOST)
        return err;
    *lost = 0;
    err = claim(s, dir, hello, "-");
    return err ? err : FILE_NONE;
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
        err = s->base.watch.died ? s->base.watch.died(s->base.watch.arg, 0)
                                 : error_set(WEFT_EPEER, "file:%s: rank 0, process %lld on %s, has died", s->dir,
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
    int lost = 0;
    for (int64_t pause = LOOK_NS;; deadline_pause(&pause, file_pause_most(s), until)) {
        bool last = deadline_now() >= until;
        int dir, err = s->room ? 0 : open_dir(s, &dir);
        if (err)
            return err;
        if (!s->room) {
            err = enter(s, dir, hello, lead_name, &lost);
            close(dir);
        }
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
    const char *number = s->room ? strrchr(s->room, '-') : NULL;
    for (int i = 0; i < 2 && number && !err; i++) /* each half, so that neither alone says the other */
        s->base.id[i] = hash_bytes((uint64_t)i, number, strlen(number));
    if (err == WEFT_EPEER)
        sweep_dead(s, dir);
    close(dir);
    return err;
}
