/* Messages between ranks that do not share memory: small ordered mail for control, and messages that are set up once
 * and started many times. A wire is one rank's end. It uses sockets, which are part of the library, or it comes from a
 * module (UCX, or one of the MPI libraries). A module is a shared object of its own, which is loaded when its URL is
 * opened. So the library itself needs only libc and pthreads.
 *
 *   wire_tcp*.c   TCP sockets (part of the library)
 *   wire.c        finds the module of a URL and loads it (part of the library)
 *   wire_ucx*.c   weft_ucx.so
 *   wire_mpi*.c   weft_mpi_openmpi.so and weft_mpi_mpich.so: the same source, compiled against each
 *
 * A wire and its messages belong to one thread at a time: the comm serialises the calls. Only open, cancel and close
 * may block, for a bounded time. Data moves only inside progress, start and test. Error codes are those of weft.h; the
 * function that notices an error sets its text. */
#ifndef WEFT_TRANSPORT_WIRE_WIRE_H
#define WEFT_TRANSPORT_WIRE_WIRE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/roster.h"
#include "transport/transport.h"
#include "weft.h"

#define WIRE_ABI 4     /* of this header, between the library and its modules */
#define WIRE_MAIL 2048 /* bytes of a mail at most */
#define WIRE_AHEAD 8   /* how many starts of a send may be done before the receiver has begun the first of them */
#define WIRE_KEY 32    /* bytes of a key */
#define WIRE_NAME "weft_wire" /* the one symbol that a module exports: its struct wire_ops */

struct wire_can {
    bool deaths;  /* `gone` reports peers that ended without closing the wire, and messages with them fail */
    bool cancels; /* `cancel` always gives the memory back */
    bool sized;   /* the launcher says rank and size: boot need not (size 0) */
};

/* One rank's end. A module embeds it first in a struct of its own. */
struct wire {
    const struct wire_ops *ops;
    int (*error)(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* error_set of the library */
    int rank, size;
    uint64_t tags; /* `make` takes tags 0 to tags - 1: sockets 2^62, UCX 2^40, Open MPI 2^31 - 1, MPICH 2^28 - 1 */
    int fd;        /* readable when something comes after `arm`; -1: there is none, call progress now and then */
    bool failed;  /* set by the owner: incoming data is not wanted any more, and close does not wait until what was sent
                     has left */
    size_t files; /* not 0: this process may have that many files open, which is too few to connect with all peers */
};

/* One message, set up for many runs. A module embeds it first, too. */
struct wire_message {
    struct wire *wire;
    void *memory;
    size_t bytes;
    uint64_t tag;
    int peer;
    bool send;
    /* The caller sets it after make: then memory and bytes may be changed before a start, and a receive may get fewer
     * bytes than it has room for. */
    bool loose;
    size_t got; /* bytes that a loose receive has got */
};

/* A piece of a message's memory. */
struct wire_part {
    void *memory;
    size_t bytes;
};

/* The arguments of open. */
struct wire_boot {
    int rank, size; /* size 0: the launcher says both (can.sized) */
    /* Collective: gives the bytes of every rank, in order of rank, to all ranks, within wait_ns. `bytes` is the same on
     * all ranks, and `all` has room for size times as many. Not used if can.sized. */
    int (*gather)(void *arg, const void *mine, size_t bytes, void *all);
    /* The same, with one copy for the ranks of a host; NULL: use gather (wire_roster). */
    int (*roster)(void *arg, const struct roster_ask *ask, struct roster *out);
    void *arg;
    int64_t wait_ns;
    bool no_shm;              /* do not use UCX's own transports inside a host, unless the user has chosen (UCX_TLS) */
    bool one_thread;          /* only the thread that opens it will ever use it: MPI needs no support for threads */
    const void *communicator; /* mpi: points to the caller's MPI_Comm, which open duplicates; NULL: MPI_COMM_WORLD */
    const char *modules;      /* the folder where modules are looked for first (WEFT_MODULES); NULL: none */
    /* Sockets. local: all ranks share this rank's network namespace, so nothing needs to listen outside. key: a secret
     * that all ranks know, WIRE_KEY bytes; NULL: none. Without it the bytes of `gather` must stay secret. */
    bool local;
    const unsigned char *key;
    int peers; /* with how many ranks this one will be connected, at least */
    /* wire_open sets it for the module */
    int (*error)(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
};

struct wire_ops {
    uint32_t abi;     /* WIRE_ABI; checked before anything else is looked at */
    const char *name; /* for messages: "UCX 1.13.1", "Open MPI 4.1.4" */
    struct wire_can can;

    /* Collective over the ranks of boot. Peers are connected when they are first used: a large world costs only its
     * addresses, and the rest of the cost grows with the peers that a rank uses. Errors: WEFT_EINVAL,
     * WEFT_EUNSUPPORTED, WEFT_ENOMEM, WEFT_ETIMEOUT, WEFT_ETRANSPORT, and those of gather. */
    int (*open)(const struct wire_boot *boot, struct wire **out);
    /* Opens another wire, which shares nothing with w, for boot->size of the ranks of w; this rank is number
     * boot->rank. Collective over these ranks, and boot->gather is theirs. Its time is bounded as far as that of the
     * calls of UCX or MPI is. Errors as open. */
    int (*split)(struct wire *w, const int *ranks, const struct wire_boot *boot, struct wire **out);
    /* Not collective, and bounded in time, also after failures: some 6 s at most, and only if peers do not take what
     * was sent. Tells the peers that this rank has left. Mail and sends that are done still reach them. The caller
     * drops all messages before. */
    void (*close)(struct wire *w);

    bool (*progress)(struct wire *w); /* true: something moved */

    /* Sends a mail of 1 to WIRE_MAIL bytes, which are copied. Mail to one peer stays in order. It never waits for the
     * peer. Errors: WEFT_ENOMEM, WEFT_EPEER,
     * WEFT_ETRANSPORT. */
    int (*mail)(struct wire *w, int peer, const void *bytes, size_t n);
    bool (*flushed)(struct wire *w); /* has all mail left this process, except mail that is lost? */
    /* The next mail, in the order in which mails came; the bytes are valid until the next fetch. False: there is
     * none. */
    bool (*fetch)(struct wire *w, int *peer, const void **bytes, size_t *n);

    /* Sets up a send to the peer or a receive from it. Both ends use the same tag and the same number of bytes, which
     * may be 0 or more than 2^31. Among the messages of one direction between two ranks a tag is used once at a time,
     * and again only when all that was started with it has been received. From here on `gone` watches the peer. */
    int (*make)(struct wire *w, int peer, uint64_t tag, void *memory, size_t bytes, bool send,
                struct wire_message **out);
    /* One start is in flight at a time. The nth start of the send meets the nth start of the receive. When a send is
     * done, its memory may be written again. This does not mean that the receiver has begun, but the sender is at most
     * WIRE_AHEAD starts ahead of it. weft allocates nothing here. Errors: WEFT_EPEER, WEFT_ETRANSPORT. */
    int (*start)(struct wire_message *m);
    /* 0: not yet; 1: done, or never started; otherwise the error: WEFT_EPEER (the peer is gone), WEFT_EMISMATCH (the
     * sizes differ), WEFT_ETRANSPORT. A message that has failed may use its memory until it is cancelled. */
    int (*test)(struct wire_message *m);
    /* Ends a send or a receive that was started, after a failure of the comm. True: the wire will not read or write the
     * memory any more. Peers may lose messages of this rank. If the wire has to end the connection with the peer (a
     * cut), messages with that peer fail on both sides. Mail still goes, by another connection, and mail that is in
     * flight may be lost. A cut is no farewell: each rank is HERE for the other. Takes some 1 s at most. False (only if
     * can.cancels is false): UCX or MPI may use the memory as long as the process lives. */
    bool (*cancel)(struct wire_message *m);
    /* Frees a message that is done, cancelled or was never started; NULL is allowed. */
    void (*drop)(struct wire_message *m);

    /* Whether a peer with which there were messages or mail has left (closed its wire), has ended, or cannot be
     * reached; other peers are HERE. DIED is no guess: the process has ended. It is known 100 ms after the connection
     * broke, when it is clear whether the peer left, and up to 2 s later if the peer seems to live. Until then messages
     * are not done either. LEFT is reported after `fetch` has delivered all mail of the peer. */
    enum transport_fate (*gone)(struct wire *w, int rank);

    bool (*used)(struct wire *w, int rank); /* were there messages or mail with the peer? */

    /* To be called before sleeping on fd (poll for reading). True: fd will be readable when something comes. False:
     * something has come, or this wire has no fd: call progress again. After waking, call progress until nothing moves.
     */
    bool (*arm)(struct wire *w);

    /* As make, for memory in n pieces, which follow each other in the message. NULL: this wire cannot do it. */
    int (*make_list)(struct wire *w, int peer, uint64_t tag, const struct wire_part *parts, size_t n, bool send,
                     struct wire_message **out);
};

/* For `open` and `split`: what all ranks tell each other. */
static inline int wire_roster(const struct wire_boot *boot, const struct roster_ask *ask, struct roster *out)
{
    if (boot->roster)
        return boot->roster(boot->arg, ask, out);
    void *all = calloc(1, roster_size(ask, boot->size));
    int err = all ? boot->gather(boot->arg, ask->mine, ask->bytes, all) : boot->error(WEFT_ENOMEM, "out of memory");
    if (!err)
        err = roster_make(ask, boot->size, all, out);
    if (err)
        free(all);
    return err;
}

extern const struct wire_ops wire_tcp; /* the wire that needs no module */

/* Opens the wire of a URL: tcp:..., ucx:..., mpi: (the library that launched or is loaded in this process),
 * mpi:openmpi, mpi:mpich. The text after "tcp:" or "ucx:" is ignored. WEFT_EUNSUPPORTED: the module is not there;
 * the text says what to install. */
int wire_open(const char *url, const struct wire_boot *boot, struct wire **out);

/* What a rank knows for the choice of the wire of a group on several hosts. */
struct wire_wish {
    uint32_t asked; /* the wire that the user has asked for, plus 1; 0: none */
    uint32_t able;  /* a bit for each wire that this rank can open */
    uint32_t rdma;  /* it has a device for RDMA, with which UCX is faster than sockets */
};

/* asked: "tcp", "ucx" or NULL; others are refused with WEFT_EINVAL. */
int wire_choose_wish(const char *asked, const char *modules, struct wire_wish *out);
/* Chooses the wire from the wishes of `size` ranks, which are `stride` bytes apart; all ranks choose the same. If one
 * rank has asked for a wire, it is the wire of all. WEFT_EMISMATCH: two ranks have asked for different ones.
 * WEFT_EUNSUPPORTED: a rank cannot open it. */
int wire_choose(const struct wire_wish *first, size_t stride, int size, const char **url);

/* The URL of the ith module that is installed, from 0 on; NULL after the last. It looks for files and loads nothing. */
const char *wire_module(const char *modules, size_t i);
#endif
