/* What the files of the survivor agreement share. survive.c says how it works, and why it is safe. Each file uses only
 * those above it:
 *
 *   survive_state.c  what a rank knows
 *   survive_words.c  words in the memory of a host, in which its ranks read what the others say
 *   survive_mail.c   what ranks of different hosts tell each other
 *   survive_tree.c   which rank mails which: leaders' words go down a tree of hosts, and answers up
 *   survive_take.c   what comes by mail
 *   survive_lead.c   the rank that leads
 *   survive.c        the other ranks, and the call */
#ifndef WEFT_COMM_SURVIVE_STATE_H
#define WEFT_COMM_SURVIVE_STATE_H
#include "comm/comm.h"

/* A ballot is a number that is higher than all before it: the agreement that it belongs to, the attempt in this
 * agreement, and the rank that leads the attempt. */
#define SURVIVE_RANK_BITS 20
#define SURVIVE_ROUND_BITS 16
static inline uint64_t survive_ballot(uint64_t agreement, uint64_t round, int rank)
{
    return agreement << (SURVIVE_RANK_BITS + SURVIVE_ROUND_BITS) | round << SURVIVE_RANK_BITS | (uint64_t)rank;
}
static inline uint64_t survive_agreement(uint64_t ballot)
{
    return ballot >> (SURVIVE_RANK_BITS + SURVIVE_ROUND_BITS);
}
static inline uint64_t survive_round(uint64_t ballot)
{
    return ballot >> SURVIVE_RANK_BITS & ((UINT64_C(1) << SURVIVE_ROUND_BITS) - 1);
}
static inline int survive_leader(uint64_t ballot)
{
    return (int)(ballot & ((UINT64_C(1) << SURVIVE_RANK_BITS) - 1));
}

/* A set of ranks: a bit for each. */
static inline bool survive_in(const uint64_t *set, int rank)
{
    return set[rank / 64] >> rank % 64 & 1;
}
static inline void survive_put(uint64_t *set, int rank, bool in)
{
    uint64_t bit = UINT64_C(1) << rank % 64;
    set[rank / 64] = in ? set[rank / 64] | bit : set[rank / 64] & ~bit;
}

enum survive_phase {
    SURVIVE_PREPARES = 1, /* asks all ranks for their reports */
    SURVIVE_PROPOSES,     /* asks the ranks on the list to accept it */
    SURVIVE_COMMITS,      /* the list is the result */
    SURVIVE_FAILS         /* there will be no result: list has the ranks that took part */
};

/* What a leader says. */
struct survive_word {
    uint64_t ballot, phase;
    uint64_t *list;
};

/* A number for each word of a leader. */
static inline uint64_t survive_key(const struct survive_word *w)
{
    return w->ballot * 5 + w->phase;
}

/* What a rank of this host has said in its words. */
struct survive_peer {
    uint64_t promised, accepted; /* ballots */
    uint64_t seen;               /* version of its words */
};

/* Hosts that another rank speaks for. Hosts stand in a ring. */
struct survive_part {
    int first, n;     /* `n` hosts from number `first` on */
    int rank;         /* it is told, passes the word on to these hosts, and reports for them */
    uint64_t told;    /* survive_key of the word that it was told last */
    int64_t told_at;  /* when */
    int64_t heard_at; /* when it was told this word first, or has last reported */
    int more;         /* ranks of its host that were mailed with it last: survive_more */
};

struct survive_block; /* a rank's words in the memory of its host */

struct survivors {
    weft_comm *comm;
    size_t words; /* 64-bit words of a set of ranks */
    struct survive_block *block;
    int64_t began;      /* the call */
    uint64_t agreement; /* the number of the agreement that this rank is in, or was in last */
    uint64_t newest;    /* the highest number of an agreement that it has heard of */
    bool asking;        /* it is in the call */
    uint64_t promised, accepted;
    uint64_t *accepted_list;
    struct survive_word view;    /* the newest word of a leader that this rank knows */
    struct survive_word decided; /* the last result; ballot 0: none */
    struct survive_word coming;  /* a leader's word of which parts have come by mail */
    size_t coming_words;
    bool repeated; /* a leader (`answers`) has said what this rank knows: its answer was lost, or it has to bid more */
    int answers;
    /* sets of ranks */
    uint64_t *dead;  /* ended, or left for good: each of them is known, not guessed */
    uint64_t *lost;  /* cannot be reached, or have gone on without this rank */
    uint64_t *quit;  /* of other hosts: left, and did not go on with any list */
    uint64_t *asked; /* of other hosts: have asked in this agreement */
    bool news;       /* the dead have changed since this rank's last report */
    int64_t looked_at, asked_at;
    int asked_whom, asked_more; /* the rank that was asked last, and how many others of its host: survive_more */
    uint64_t departures;        /* liveness_departures, when this rank last looked at all others */
    uint64_t words_seen;        /* of core_group, when it last read words of this host's ranks */
    int64_t words_at;           /* when it last looked at all of them */
    bool asked_after;           /* this rank has told ranks after it that it asks, because its deadline is over */
    /* of the leader */
    bool fresh;                            /* the list was not one that a rank had accepted before */
    struct survive_word best, coming_best; /* the accepted list with the highest ballot; one of which parts have come */
    size_t coming_best_words;
    int64_t prepared_at, proposed_at;
    uint64_t *took_part;        /* ranks that had promised when the list was proposed */
    struct survive_peer *peers; /* of this host, in the order of core_rank.number */
    /* of a rank that speaks for others, the leader among them (survive_tree.c) */
    uint64_t key;               /* survive_key of the word that the answers are for */
    uint64_t *answered;         /* ranks that have promised the ballot, have accepted its list, or know the result */
    uint64_t *away;             /* ranks that others could not reach */
    uint64_t outbid;            /* the highest ballot of which this rank has heard that it was promised */
    int first, hosts;           /* the hosts that it speaks for: `hosts` from number `first` on; 0: none */
    struct survive_part *parts; /* of these hosts, without its own */
    int nparts, room;
    int above;           /* the rank that has told this one the word, and gets the answers; -1: none */
    uint64_t above_key;  /* of that word */
    bool answer_now;     /* that rank has repeated its word */
    bool changed, whole; /* since the last report; the last report was complete */
    int64_t reported_at;
};

static inline bool survive_late(const struct survivors *s, int64_t now)
{
    return now >= s->began + s->comm->deadline_ns;
}

/* A rank that was mailed is dead. Then the others of its host may be, too, and a rank on another host finds that out
 * only if it mails them. So it mails the next one, and this many more with it: each time four times as many as before.
 * A host that is gone is known after a few beats, and one rank that is gone costs a few messages. */
static inline int survive_more(int before)
{
    return before < 1 << 20 ? 4 * before + 4 : before; /* more than a host has ranks */
}

/* A time, or some beats, which are longer if many ranks share a machine. */
static inline int64_t survive_patience(const struct survivors *s, int64_t ns, int beats)
{
    return beats * s->comm->beat_ns > ns ? beats * s->comm->beat_ns : ns;
}

/* ---- survive_state.c ---- */

struct survivors *survive_state_of(weft_comm *c); /* makes it if there is none; NULL: no memory */
void survive_state_free(struct survivors *s);
/* Enters an agreement with a higher number, in which this rank has promised and accepted nothing. */
void survive_state_enter(struct survivors *s, uint64_t agreement);
/* Is this word of a leader newer than the one in view? In one agreement the result is the last word. */
bool survive_state_newer(const struct survivors *s, uint64_t ballot, uint64_t phase);
void survive_state_view(struct survivors *s, uint64_t ballot, uint64_t phase, const uint64_t *list);
/* For the leader: a list that a rank has accepted. The one with the highest ballot is kept. */
void survive_state_best(struct survivors *s, uint64_t ballot, const uint64_t *list);
/* Another rank knows that these are dead: `n` words of a set, from word `first` on. */
void survive_state_dead(struct survivors *s, size_t first, const uint64_t *set, size_t n);

/* ---- survive_words.c ---- */

/* Makes this rank's words, if it has none. WEFT_ENOMEM. */
int survive_words_open(struct survivors *s);
void survive_words_ask(struct survivors *s);  /* publishes the agreement that this rank is in */
void survive_words_hold(struct survivors *s); /* publishes what it has promised and accepted, and the dead */
void survive_words_lead(struct survivors *s); /* publishes s->view, for all ranks of this host to look at */
/* Reads what the ranks of this host have published: the newest word of a leader, and the newest agreement. */
void survive_words_look(struct survivors *s, int64_t now);
uint64_t survive_words_asked(const struct survivors *s, int rank); /* of this host; 0: never */
/* For the leader: reads what a rank of this host has promised and accepted, and the dead that it knows. */
void survive_words_collect(struct survivors *s, int rank);

/* ---- survive_mail.c ---- */

void survive_mail_ask(struct survivors *s, int rank);
/* Tells a leader's word to a rank, which passes it on to `hosts` hosts from its own (`first`) on, and reports for them.
 * 0 hosts: it need not report. */
void survive_mail_word(struct survivors *s, int rank, const struct survive_word *w, int first, int hosts);
void survive_mail_report(struct survivors *s, int rank); /* what this rank knows of the ranks that it speaks for */
void survive_mail_quit(weft_comm *c);

/* ---- survive_tree.c ---- */

#define SURVIVE_FAN 4 /* ranks that a rank tells by itself, and that report to it */

void survive_tree_lead(struct survivors *s); /* from here on this rank speaks for all hosts */
/* A rank has told s->view, or a word that is not newer, and asks for a report for these hosts. */
void survive_tree_told(struct survivors *s, int peer, const struct survive_word *w, int first, int hosts, int64_t now);
/* A rank has reported. Answers are to the word with this key. */
void survive_tree_heard(struct survivors *s, int peer, int64_t now);
void survive_tree_sync(struct survivors *s); /* answers to an older word than the one in view are forgotten */
/* A rank has asked in this agreement: it seems not to have heard what it was told. */
void survive_tree_asked(struct survivors *s, int peer, uint64_t agreement);
/* Reads what the ranks of this host have answered. */
void survive_tree_collect(struct survivors *s);
/* Tells, repeats and hands over what is due, and reports. */
void survive_tree_move(struct survivors *s, int64_t now);
/* Have all ranks got the result that this rank had to tell them, as far as they can be reached? */
bool survive_tree_settled(const struct survivors *s);
/* Tells the result to each rank of these hosts that has not answered, without waiting for answers. */
void survive_tree_pass_on(struct survivors *s, const struct survive_word *w, int first, int hosts);
/* The rank to ask for the word of rank `leader`, on the way up to it. */
int survive_tree_up(const struct survivors *s, int leader);
/* The next rank of the same host, behind this one, that may speak for others; -1: none. There are several hosts. */
int survive_tree_next(const struct survivors *s, int rank);

/* ---- survive_take.c ---- */

void survive_take(weft_comm *c, int peer, const void *packet, size_t n); /* a mail_handler */

/* ---- survive_lead.c ---- */

/* One step of the leader, or of a rank that has to lead now. */
void survive_lead_step(struct survivors *s, int64_t now);
#endif
