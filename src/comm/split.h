/* A split under way, and what ranks on different hosts tell each other in it.
 *
 *   split.c        the call: lists, agreement, the new comm
 *   split_hosts.c  lists that differ, and the wire of the new group, which ranks of several hosts make together
 */
#ifndef WEFT_COMM_SPLIT_H
#define WEFT_COMM_SPLIT_H
#include "comm/task.h"

/* What a rank shows the others of the parent that are on its host. */
struct split_card {
    uint64_t group; /* the founder's: where the group is */
    uint64_t table; /* the founder's: where the gathering's table is; 0: none is needed */
    int32_t n;
    int32_t ranks[];
};

struct split_table;

struct split {
    struct comm_task task; /* first: a task is its split */
    weft_comm *parent, *comm;
    const int *ranks;
    int n, rank;      /* of the new comm */
    int founder;      /* which of them makes what it needs on this host */
    bool wide;        /* they are on several hosts */
    uint64_t meeting; /* its number, in the parent's meetings */
    struct split_card *card;
    uint64_t place; /* of the card */
    struct transport_link *link;
    struct mail *mail;         /* for the new comm, if it is wide */
    struct split_card *theirs; /* the list of a rank of another host that was asked for it; */
    int asked, have;           /* that rank, and how many of its list are here */
    struct split_table *table; /* what the ranks of the new group give each other */
    uint32_t gathered;         /* times that this rank has given something */
    uint32_t *passed;          /* the founder: of each rank, times that other hosts were told */
};

/* What is mailed about a split. */
#define SPLIT_BYTES 640
struct split_mail {
    uint32_t kind; /* of split_hosts.c */
    int32_t rank;  /* of the new group: whose share it is */
    uint64_t meeting;
    uint32_t round;
    int32_t code;
    uint32_t total, at, bytes; /* of all of it; where these bytes are in it; how many follow */
    unsigned char data[SPLIT_BYTES];
};

/* Does the rank list the same ranks in the same order? other: NULL if it lists none. */
int split_compare(const struct split_card *mine, int rank, const struct split_card *other);

/* ---- split_hosts.c ---- */

/* What ranks of other hosts see of a list: 0 if it is empty. */
uint64_t split_hosts_note(const int *ranks, int n);
/* Asks a rank of another host, whose note differs, for its list and compares. */
int split_hosts_ask(struct split *s, int rank);
/* The founder, before the first meeting: the table, and where it is. */
int split_hosts_table_make(struct split *s, uint64_t *place);
void split_hosts_table_find(struct split *s, uint64_t place); /* the others, after it */
/* After the second: opens the wire of the new group. When it fails on one rank it does on all, sooner or later, so that
 * all come to the third. */
int split_hosts_wire(struct split *s);
void split_hosts_table_drop(struct split *s); /* after the last meeting; takes what was not made */

/* While this rank is in a split of a comm on several hosts: hears what others mail about it, and passes on what the
 * ranks of its host give. */
void split_hosts_begin(struct split *s);
void split_hosts_end(struct split *s);
#endif
