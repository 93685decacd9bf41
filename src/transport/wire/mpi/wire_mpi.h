/* The MPI modules: persistent requests on a communicator of their own. Compiled once against each MPI library. Each
 * file uses only those above it:
 *
 *   wire_mpi_error.c  errors of MPI
 *   wire_mpi_mail.c   mail
 *   wire_mpi_end.c    when a wire is over, and freeing it
 *   wire_mpi_comm.c   starting MPI; communicators that are duplicated, and freed when all ranks are done with them
 *   wire_mpi_data.c   messages that are set up once and started many times
 *   wire_mpi.c        open and close
 *
 * MPI does not report a rank that has ended, and cannot take back what was sent: can.deaths and can.cancels are false.
 * After a failure weft does not end MPI by itself, since that would wait for ranks that are gone. */
#ifndef WEFT_TRANSPORT_WIRE_MPI_WIRE_MPI_H
#define WEFT_TRANSPORT_WIRE_MPI_WIRE_MPI_H
#include <mpi.h>
#include <time.h>

#include "transport/wire/wire.h"

#define MPI_MAILS 16 /* how many mails can come without using MPI's queue of unexpected messages */

/* Room for a mail, and the request that fills or sends it. */
struct wire_mpi_packet {
    struct wire_mpi_packet *next;
    MPI_Request request;
    bool open; /* it is a receive that is started and not done */
    unsigned char bytes[WIRE_MAIL];
};

struct wire_mpi_peer {
    bool used; /* there were messages or mail with it: both ranks tell each other when they leave */
    bool told;
    int64_t left_at; /* when it said that it leaves; 0: it has not said so */
};

struct wire_mpi {
    struct wire base;
    MPI_Comm comm;
    bool split, closed;
    struct wire_mpi *next; /* in the list of wires that are not freed */
    int mail_tag;
    struct wire_mpi_peer *peers;
    struct wire_mpi_packet in[MPI_MAILS];
    MPI_Status arrived;                   /* the status of mail next_in, if `came` */
    struct wire_mpi_packet *posts, *last; /* mail that is being sent, oldest first */
    struct wire_mpi_packet *spare;
    unsigned next_in;
    bool came, read; /* came: mail next_in has come; read: the caller has the one before it */
};

static inline int64_t wire_mpi_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- wire_mpi.c ---- */
enum transport_fate wire_mpi_gone(struct wire *base, int rank);

/* ---- wire_mpi_error.c ---- */
int wire_mpi_error(const struct wire *w, int code, const char *what, int peer); /* an error of MPI as one of weft */
void wire_mpi_error_trouble(void);                                              /* weft does not end MPI after this */
bool wire_mpi_error_troubled(void);

/* ---- wire_mpi_mail.c ---- */
int wire_mpi_mail_open(struct wire_mpi *w);   /* returns a code of MPI */
bool wire_mpi_mail_leave(struct wire_mpi *w); /* waits, bounded, until all mail has left; false: MPI still has some */
void wire_mpi_mail_close(struct wire_mpi *w); /* the same, and frees what MPI has given back */
bool wire_mpi_mail_move(struct wire_mpi *w);  /* looks after mail in both directions; true: something moved */
int wire_mpi_mail(struct wire *w, int peer, const void *bytes, size_t n);
int wire_mpi_mail_bye(struct wire_mpi *w, int peer); /* a mail of no bytes says that this rank leaves */
bool wire_mpi_mail_flushed(struct wire *w);
bool wire_mpi_mail_fetch(struct wire *w, int *peer, const void **bytes, size_t *n);

/* ---- wire_mpi_end.c ---- */
void wire_mpi_end_list(struct wire_mpi *w); /* remembers a wire until wire_mpi_end_free or the end of MPI */
void wire_mpi_end_bye(struct wire_mpi *w);  /* tells all peers that this rank leaves */
/* Is the wire closed, and has it received all that peers send it? Makes progress with its mail. */
bool wire_mpi_end_settled(struct wire_mpi *w);
/* Is the wire settled, and has it no message that was never received? A run that was given up may leave one, and the
 * next communicator with the same number would receive it. */
bool wire_mpi_end_over(struct wire_mpi *w);
void wire_mpi_end_free(struct wire_mpi *w); /* frees a wire that is over, with its communicator */
void wire_mpi_end_free_splits(void);        /* frees all wires that were split and are over */

/* ---- wire_mpi_comm.c ---- */
/* Starts MPI if the program has not, and checks that it can be used from here. */
int wire_mpi_comm_begin(const struct wire_boot *boot);
/* Gives w a duplicate of the communicator; collective. A later call on the same communicator frees w when w is over on
 * all ranks. */
int wire_mpi_comm_duplicate(const struct wire_boot *boot, MPI_Comm of, struct wire_mpi *w);

/* ---- wire_mpi_data.c: as in wire_ops ---- */
int wire_mpi_data_make(struct wire *w, int peer, uint64_t tag, void *memory, size_t bytes, bool send,
                       struct wire_message **out);
int wire_mpi_data_start(struct wire_message *m);
int wire_mpi_data_test(struct wire_message *m);
bool wire_mpi_data_cancel(struct wire_message *m);
void wire_mpi_data_drop(struct wire_message *m);
#endif
