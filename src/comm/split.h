/* A split under way, and what ranks on different hosts mail each other in it.
 *
 *   split.c        the call: lists, agreement, the new comm
 *   split_hosts.c  lists of other hosts, and the wire of the new group, which ranks of several hosts make together */
#ifndef WEFT_COMM_SPLIT_H
#define WEFT_COMM_SPLIT_H
#include "comm/task.h"

/* What a rank shows the other ranks of the parent comm on its host. */
struct split_card {
    uint64_t group; /* the founder's: where the group is */
    uint64_t table; /* the founder's: where the gathering's table is; 0: none is needed */
    int32_t n;
    int32_t ranks[];
};

struct split_table;
struct split_relay;

struct split {
    struct comm_task task; /* first: a task is its split */
    weft_comm *parent, *comm;
    const int *ranks;
    int n, rank;      /* of the new comm */
    int founder;      /* the rank that makes the group's shared memory on this host */
    bool wide;        /* its ranks are on several hosts */
    uint64_t meeting; /* its number, in the parent's meetings */
    struct split_card *card;
    uint64_t place; /* of the card */
    struct transport_link *link;
    struct mail *mail;         /* for the new comm, if it is wide */
    struct split_card *theirs; /* the list that a rank of another host has sent when asked */
    int asked, have;           /* that rank, and how many entries of its list have come; -1: no answer yet */
    struct split_table *table; /* bytes that the ranks of the new group give each other */
    uint32_t gathered;         /* rounds in which this rank has given something */
    struct split_relay *relay; /* of the founder: what it passes on to other hosts */
};

/* A list, or the request for one. */
#define SPLIT_BYTES 640
struct split_mail {
    uint32_t kind; /* of split_hosts.c */
    uint64_t meeting;
    uint32_t total, at, bytes; /* entries of the list; which comes first here; bytes that follow */
    unsigned char data[SPLIT_BYTES];
};

/* Compares this rank's list with that of `rank`: the same ranks in the same order? other: NULL if the list is empty. */
int split_compare(const struct split_card *mine, int rank, const struct split_card *other);

/* ---- split_hosts.c ---- */

/* Called by a founder, whose group has several hosts: compares its list with those of other founders. */
int split_hosts_compare(struct split *s);
/* Called by the founder before the first meeting: makes the table and says where it is. */
int split_hosts_table_make(struct split *s, uint64_t *place);
void split_hosts_table_find(struct split *s, uint64_t place); /* called by the others after the first meeting */
/* After the second meeting: opens the wire of the new group. If it fails on one rank it fails on all, sooner or later,
 * so that all come to the third meeting. */
int split_hosts_wire(struct split *s);
void split_hosts_table_drop(struct split *s); /* after the last meeting; also for a table that was not made */

/* While this rank is in a split of a comm on several hosts: receives mail about the split, and passes on what the ranks
 * of its host give. */
void split_hosts_begin(struct split *s);
void split_hosts_end(struct split *s);
#endif
