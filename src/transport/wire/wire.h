/* Messages between ranks that do not share memory: ordered small mail for control, and messages that are set up once
 * and started many times. A wire is one rank's end; it is of sockets, which are part of the core, or it is made by a
 * module (UCX, or one of the MPI libraries), a shared object of its own that is loaded when its URL is opened, so that
 * the core needs libc and pthreads alone.
 *
 *   wire_tcp*.c   sockets of TCP (part of the core)
 *   wire.c        finds the module of a URL and loads it (part of the core)
 *   wire_ucx*.c   weft_ucx.so
 *   wire_mpi*.c   weft_mpi_openmpi.so and weft_mpi_mpich.so: the same source, compiled against each
 *
 * A wire and its messages belong to one thread at a time: the comm serialises the calls. No call blocks but open, and
 * cancel and close, which are bounded. What moves, moves inside progress, start and test. Codes are those of weft.h;
 * their text is set where they arise. */
#ifndef WEFT_TRANSPORT_WIRE_WIRE_H
#define WEFT_TRANSPORT_WIRE_WIRE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transport/transport.h"

#define WIRE_ABI 2            /* of this header, between the core and its modules */
#define WIRE_MAIL 2048        /* bytes of a mail at most */
#define WIRE_AHEAD 8          /* starts of a send that may be done before the receiver has begun the first of them */
#define WIRE_NAME "weft_wire" /* the one symbol that a module exports: its struct wire_ops */

struct wire_can {
    bool deaths;  /* `gone` sees peers that ended without a word, and messages with them fail */
    bool cancels; /* `cancel` always gives the memory back */
    bool sized;   /* the launcher knows rank and size: boot may leave them open (size 0) */
};

/* One rank's end. A module embeds it first in a struct of its own. */
struct wire {
    const struct wire_ops *ops;
    int (*error)(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* error_set of the core */
    int rank, size;
    uint64_t
        tags; /* that `make` takes: 0 to tags - 1. sockets have 2^62, UCX 2^40, Open MPI 2^31 - 1, MPICH 2^28 - 1 */
    int fd;   /* readable when something comes after `arm`; -1: this wire cannot be slept on, look at it now and then */
    bool failed; /* set by the owner: what comes is not wanted any more, and close does not wait for what was sent to
                    leave */
};

/* One message, set up for many runs. A module embeds it first, too. */
struct wire_message {
    struct wire *wire;
    void *memory;
    size_t bytes;
    uint64_t tag;
    int peer;
    bool send;
    /* Set after make: memory and bytes may be changed before a start, and a receive may get less than it has room for.
     */
    bool loose;
    size_t got; /* by a loose receive that is done */
};

/* A piece of a message's memory. */
struct wire_part {
    void *memory;
    size_t bytes;
};

/* What open needs to know, and how the ranks find each other. */
struct wire_boot {
    int rank, size; /* size 0: as the launcher says, where can.sized */
    /* Gives every rank's `bytes`, in order of rank, to all: all has room for size of them. The same bytes on all ranks,
     * collective, within wait_ns. Not used where can.sized. */
    int (*gather)(void *arg, const void *mine, size_t bytes, void *all);
    void *arg;
    int64_t wait_ns;
    bool no_shm;              /* without the library's own transports inside a host, unless the user chose (UCX_TLS) */
    bool one_thread;          /* only the thread that opens it will ever use it: no thread support is asked of MPI */
    const void *communicator; /* mpi: points to the caller's MPI_Comm, which open duplicates; NULL: MPI_COMM_WORLD */
    const char *modules;      /* folder where modules are looked for first (WEFT_MODULES); NULL: none */
    /* set by wire_open for the module */
    int (*error)(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
};

struct wire_ops {
    uint32_t abi;     /* WIRE_ABI; checked before anything else is looked at */
    const char *name; /* for people: "UCX 1.13.1", "Open MPI 4.1.4" */
    struct wire_can can;

    /* Collective over the ranks of boot. Peers are connected when they are first used, so that the cost of a world is
     * its addresses and the cost of a rank its peers. Errors: WEFT_EINVAL, WEFT_EUNSUPPORTED, WEFT_ENOMEM,
     * WEFT_ETIMEOUT, WEFT_ETRANSPORT, and those of gather. */
    int (*open)(const struct wire_boot *boot, struct wire **out);
    /* Another wire, with nothing in common with w, for some ranks of w, of which it has boot->size and this rank is
     * number boot->rank. Collective over them, bounded as far as the library's own calls are; boot's gather is theirs.
     * Errors as open. */
    int (*split)(struct wire *w, const int *ranks, const struct wire_boot *boot, struct wire **out);
    /* Not collective, bounded in time (some 6 s at most, and only where peers do not take what was sent), also after
     * failures. Tells the peers that this rank has left. What was mailed or sent and is done still reaches them.
     * Messages are dropped before. */
    void (*close)(struct wire *w);

    bool (*progress)(struct wire *w); /* true: something moved */

    /* Mail: 1 to WIRE_MAIL bytes, copied, in order for each peer, never waits for it. Errors: WEFT_ENOMEM, WEFT_EPEER,
     * WEFT_ETRANSPORT. */
    int (*mail)(struct wire *w, int peer, const void *bytes, size_t n);
    bool (*flushed)(struct wire *w); /* has all mail left this process, except mail that is lost? */
    /* The next mail, in the order in which they came; the bytes are valid until the next fetch. False: there is none.
     */
    bool (*fetch)(struct wire *w, int *peer, const void **bytes, size_t *n);

    /* Sets up a send to the peer or a receive from it. Both ends use the same tag and the same bytes; among the
     * messages of one direction between two ranks a tag is used once at a time, and again only when all that was
     * started with it has been received. The peer is watched from here on (gone). bytes may be 0 and beyond 2^31. */
    int (*make)(struct wire *w, int peer, uint64_t tag, void *memory, size_t bytes, bool send,
                struct wire_message **out);
    /* One start in flight at a time. The nth start of the send meets the nth start of the receive. A send that is done
     * lets its memory be written again; it does not say that the receiver has begun, but the sender is at most
     * WIRE_AHEAD starts ahead of it. Allocates nothing here. Errors: WEFT_EPEER, WEFT_ETRANSPORT. */
    int (*start)(struct wire_message *m);
    /* 0: not yet; 1: done, or was never started; else why it failed: WEFT_EPEER (the peer is gone), WEFT_EMISMATCH (the
     * sizes differ), WEFT_ETRANSPORT. What failed keeps its memory until it is cancelled. */
    int (*test)(struct wire_message *m);
    /* Ends what was started, after a failure, send or receive. True: the memory is the caller's again, nobody will read
     * or write it. Peers may lose messages of this rank by it: the comm has failed. Takes some 1 s at most. False,
     * where !can.cancels: the library may use the memory as long as the process lives. */
    bool (*cancel)(struct wire_message *m);
    /* Frees a message that is done, cancelled or was never started; NULL is fine. */
    void (*drop)(struct wire_message *m);

    /* Whether a peer with which there were messages or mail has left (closed its wire) or ended. Others are HERE. Known
     * 100 ms after the connection broke, when it is clear which of the two it is; until then messages are not done
     * either. LEFT is learnt by `fetch`. */
    enum transport_fate (*gone)(struct wire *w, int rank);

    /* Before sleeping on fd (poll for reading): true: it will be readable when something comes; false: something has
     * come, or this wire has no fd: progress again. After waking, progress until nothing moves. */
    bool (*arm)(struct wire *w);

    /* As make, for memory in n pieces, which the message has one behind the other. NULL: this wire cannot. */
    int (*make_list)(struct wire *w, int peer, uint64_t tag, const struct wire_part *parts, size_t n, bool send,
                     struct wire_message **out);
};

extern const struct wire_ops wire_tcp; /* the one without a module */

/* Opens the wire of a URL: tcp:..., ucx:..., mpi: (the library that launched or is loaded in this process),
 * mpi:openmpi, mpi:mpich. What follows "tcp:" or "ucx:" is not looked at. WEFT_EUNSUPPORTED when the module is not
 * there; the text says what to install. */
int wire_open(const char *url, const struct wire_boot *boot, struct wire **out);

/* What a rank knows about which wire a group on several hosts is to have. */
struct wire_wish {
    uint32_t asked; /* by the user: 0, or which */
    uint32_t able;  /* a bit for each that can be opened there */
    uint32_t rdma;  /* it has a device of which UCX makes more than sockets do */
};

/* asked: "tcp", "ucx" or NULL. WEFT_EINVAL for others. */
int wire_choose_wish(const char *asked, const char *modules, struct wire_wish *out);
/* The wire for `size` ranks that wish so, each `stride` bytes behind the one before; the same on all. What one asked
 * for is for all: WEFT_EMISMATCH where two differ, WEFT_EUNSUPPORTED where a rank cannot. */
int wire_choose(const struct wire_wish *first, size_t stride, int size, const char **url);

/* The modules that are there, from 0 on, by the name of their URL; NULL after the last. Looks for files, loads nothing.
 */
const char *wire_module(const char *modules, size_t i);
#endif
