/* The MPI modules: persistent requests on a communicator of their own. Compiled once against each MPI library.
 *
 *   wire_mpi.c        open and close
 *   wire_mpi_comm.c   starting MPI, and communicators that are duplicated, and freed when all ranks are done with them
 *   wire_mpi_mail.c   mail
 *   wire_mpi_data.c   messages that are set up once and started many times
 *
 * MPI tells nobody of a rank that ended, and cannot take back what was sent: can.deaths and can.cancels are false.
 * After a failure weft does not end MPI by itself, since that would wait for ranks that are gone. */
#ifndef WEFT_TRANSPORT_WIRE_MPI_WIRE_MPI_H
#define WEFT_TRANSPORT_WIRE_MPI_WIRE_MPI_H
#include <mpi.h>

#include "transport/wire/wire.h"

#define MPI_LETTERS 16 /* mails that are received without MPI's queue of unexpected messages */

/* Room for a mail, and the request that fills or sends it. */
struct wire_mpi_letter {
    struct wire_mpi_letter *next;
    MPI_Request request;
    bool open; /* a receive that is started and not done */
    unsigned char bytes[WIRE_MAIL];
};

struct wire_mpi_peer {
    bool used; /* there is something with it: it will be told when this rank leaves, and will tell, too */
    bool told, left;
};

struct wire_mpi {
    struct wire base;
    MPI_Comm comm;
    bool split, closed;
    struct wire_mpi *next; /* of those that are not freed */
    int mail_tag;
    struct wire_mpi_peer *peers;
    struct wire_mpi_letter in[MPI_LETTERS];
    MPI_Status arrived;                   /* of the letter next_in, where came */
    struct wire_mpi_letter *posts, *last; /* on their way out, oldest first */
    struct wire_mpi_letter *spare;
    unsigned next_in;
    bool came, read; /* the letter next_in is here; the one before it is being looked at */
};

int64_t wire_mpi_now(void);
/* An error of MPI as one of weft. */
int wire_mpi_error(const struct wire *w, int code, const char *what, int peer);
/* Is it closed, and has all come that peers send it? Looks after its mail. */
bool wire_mpi_settled(struct wire_mpi *w);
/* Settled, and with no message in it that was never received, as of a run that was given up: that would come to the
 * next communicator with its number. */
bool wire_mpi_over(struct wire_mpi *w);
void wire_mpi_free(struct wire_mpi *w); /* one that is over, with its communicator */

/* ---- wire_mpi_comm.c ---- */

/* Starts MPI if the program has not, and checks that it can be used from here. */
int wire_mpi_begin(const struct wire_boot *boot);
/* Gives w a duplicate of the communicator, collective. Another such call on it frees w when w is over on all ranks. */
int wire_mpi_duplicate(const struct wire_boot *boot, MPI_Comm of, struct wire_mpi *w);
void wire_mpi_trouble(void); /* MPI is not ended by weft after this */
bool wire_mpi_troubled(void);

/* ---- wire_mpi_mail.c ---- */

int wire_mpi_letters_open(struct wire_mpi *w);   /* a code of MPI */
bool wire_mpi_letters_leave(struct wire_mpi *w); /* bounded; false: some mail is still with MPI */
void wire_mpi_letters_close(struct wire_mpi *w); /* the same, and frees what MPI has given back */
bool wire_mpi_move(struct wire_mpi *w);          /* looks after mail in both directions; true: something moved */
int wire_mpi_mail(struct wire *w, int peer, const void *bytes, size_t n);
int wire_mpi_bye(struct wire_mpi *w, int peer);
bool wire_mpi_flushed(struct wire *w);
bool wire_mpi_fetch(struct wire *w, int *peer, const void **bytes, size_t *n);

/* ---- wire_mpi_data.c ---- */

int wire_mpi_make(struct wire *w, int peer, uint64_t tag, void *memory, size_t bytes, bool send,
                  struct wire_message **out);
int wire_mpi_start(struct wire_message *m);
int wire_mpi_test(struct wire_message *m);
bool wire_mpi_cancel(struct wire_message *m);
void wire_mpi_drop(struct wire_message *m);
#endif
