/* Ranks that are processes of one machine. They share one file without a name (a memfd), which every rank maps whole: a
 * place is an offset in it. The file is sparse and far larger than what is used of it. A part gets its memory, for
 * good, before any rank touches it. The kernel frees the file with the last process that has it open, also if that
 * process is killed.
 *
 *   shm_meet.c     how ranks find each other and get the file: sockets whose names the kernel forgets (shm_meet.h)
 *   shm_host.c     the rank that gathers the others
 *   shm_hands.c    how ranks that have the file give it to others
 *   shm_form.c     whether the group has formed, and which ranks are missing
 *   shm_talk.c     the sockets of ranks that meet, and what they say
 *   shm_where.c    what a rank says whose peers did not come
 *   shm_file.c     making and mapping the file
 *   shm_heap.c     which rank has which part of the file
 *   shm_process.c  whether the process of a peer is alive
 *   shm_read.c     reading a peer's private memory, which is not in the file
 *   shm_split.c    smaller groups in the same file
 *   shm_leave.c    leaving a group, and giving back its memory
 *   shm.c          the transport */
#ifndef WEFT_TRANSPORT_SHM_SHM_H
#define WEFT_TRANSPORT_SHM_SHM_H
#include <sys/types.h>

#include "transport/transport.h"

#define SHM_PAGE ((uint64_t)2 << 20) /* a huge page: ranks take parts of the file in multiples of it */
#define SHM_NAME 80                  /* letters of a group's name */
#define SHM_RANKS 4096
#define SHM_GATHERS "weft:"     /* before the name of a group: the socket of the rank that gathers the others */
#define SHM_CLAIMS "weft-rank:" /* before a rank and the name of its group: the socket of each rank */
#define SHM_SAID 512            /* bytes of a text from the rank that gathers the others */

/* Identifies a process: its number alone may have been given to another process. */
struct shm_process {
    int64_t pid;
    uint64_t start;         /* when it began, in ticks of the kernel; 0: unknown */
    uint64_t map;           /* the address at which it has mapped the file */
    _Atomic uint32_t ended; /* it was seen to have ended */
};

/* The front of the file. */
struct shm_head {
    uint64_t magic, total;                    /* bytes of the file */
    uint64_t core;                            /* where the core_group is */
    _Atomic uint32_t formed;                  /* shm_form.c: whether the group has formed */
    _Alignas(CORE_LINE) _Atomic uint64_t top; /* all below it is taken */
    _Atomic int64_t look_at;                  /* shm_process.c: when the next look is due, */
    _Atomic uint32_t looked;                  /* and at how many processes ranks have looked */
    _Atomic uint64_t deaths;                  /* how many of them were seen to have ended */
    struct shm_process process[];
};

struct shm_extent {
    uint64_t at, bytes;
};
struct shm_extents {
    struct shm_extent *item;
    size_t n, cap;
};

/* What a group that was opened and the groups split from it have in common, on one rank. */
struct shm_home {
    int file; /* the memfd */
    char *map;
    struct shm_head *head;
    struct shm_extents small, large; /* free parts of the file */
    int ranks;                       /* of the group that was opened */
    int *pidfd;                      /* of each; -1: not made yet; -2: it cannot be made. NULL: none was needed yet */
    int links;                       /* how many links have not left */
    struct shm_link *left;           /* links that have left, and whose memory other ranks may still look at */
};

struct shm_link {
    struct transport_link base;
    struct shm_home *home;
    int *process; /* of a group that was split: each rank's number among the processes of the file; otherwise NULL */
    struct shm_extents used; /* the parts of the file that it has taken */
    uint64_t core;           /* the one of them that is the core of its group; 0: none is */
    struct shm_link *next;   /* in home->left */
    bool settled;            /* it has left, and has given back all parts except the core */
    int claim;               /* the socket whose name says that this rank is here */
    char name[SHM_NAME + 1];
    char late[SHM_SAID]; /* why a host has given up */
    bool absent;         /* ranks did not come in time */
    int ended;           /* transport_ask.ended, while the ranks meet */
};

/* ---- shm_meet.c ---- */

/* Claims the rank, finds the others within ask->wait_ns and maps the file. On an error nothing is held. */
int shm_meet(struct shm_link *l, const struct transport_ask *ask);

/* ---- shm_where.c ---- */

/* Adds to the text of the error, which says that ranks of the group `own` did not come, where this rank has waited for
 * them. Returns WEFT_ETIMEOUT. */
int shm_where(const char *own, int size);
/* Whether a process of this network namespace is this rank of a group with this name. */
bool shm_where_claimed(const char *name, int rank);

/* ---- shm_file.c ---- */

int shm_file_create(struct shm_link *l); /* makes the file for a group of l->base.size ranks, and maps it */
int shm_file_attach(struct shm_link *l); /* maps the file l->home->file, which another rank has made */
void shm_file_unmap(struct shm_link *l); /* unmaps and closes the file */

/* ---- shm_process.c ---- */

/* Has the rank's process ended? Most callers only read a flag in shared memory. Every 10 ms one caller makes the system
 * calls for all ranks, and sets the flags. */
bool shm_process_died(struct shm_link *l, int rank);
uint64_t shm_process_deaths(struct shm_link *l);         /* of all processes of the file, as far as they were seen */
bool shm_process_died_now(struct shm_link *l, int rank); /* the same by a system call: true as soon as it has ended */
/* The rank's number among the processes of the file. */
static inline int shm_process_of(const struct shm_link *l, int rank)
{
    return l->process ? l->process[rank] : rank;
}

/* ---- shm_read.c, shm_split.c, shm_leave.c: as in struct transport ---- */

bool shm_read_permitted(struct transport_link *base, int rank);
int64_t shm_read_worth(const void *memory, size_t bytes);
int shm_read(struct transport_link *base, int rank, const struct iovec *to, const struct iovec *from, size_t n);

int shm_split(struct transport_link *base, const int *ranks, int size, int rank, uint64_t *place,
              struct transport_link **out);
void shm_leave(struct transport_link *base);

void shm_leave_free(struct shm_link *l); /* frees the link, and its home if no other link has it */
/* Gives back the memory of links that have left groups which all ranks have left. */
void shm_leave_sweep(struct shm_home *home);

/* ---- shm_heap.c ---- */

/* Takes a free part of the file, aligned to CORE_LINE, from SHM_PAGE bytes on to SHM_PAGE; 0: there is none. The part
 * has no memory yet. */
uint64_t shm_heap_take(struct shm_link *l, uint64_t bytes);
/* Gives memory to a part, zeroed if it had none. False: memory is out. */
bool shm_heap_back(struct shm_link *l, uint64_t at, uint64_t bytes);
void shm_heap_give(struct shm_link *l, uint64_t at); /* frees a part */
bool shm_heap_small(uint64_t bytes);                 /* does a part of this size share its page with others? */
#endif
