/* A way that exists in the tests only: a message travels through a file. It shows that a new way is one file and one
 * line in the table (way_table.c is compiled once more for way_toy_test, with TABLE_FIRST naming it), and that `take`
 * may begin a message and end it later: the receiver begins in one pass and reads the file in the next. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/channel.h"
#include "engine/work.h"
#include "toy_way.h"

_Atomic int toy_messages; /* that were taken through a file */

/* Both ends know the message by its sender's memory for it in the block, and by the run. */
static void name_of(const weft_exec *x, const struct block_message *send, char name[64])
{
    snprintf(name, 64, "/tmp/weft-toy-%d-%p-%llu", (int)getpid(), (const void *)send, (unsigned long long)x->run);
}

static bool launch(weft_exec *x, struct exec_out *out, const struct exec_step *step)
{
    const struct block_message *send = &out->sends[out->posted];
    char name[64], *message = malloc((size_t)send->bytes);
    name_of(x, send, name);
    int fd = open(name, O_CREAT | O_EXCL | O_WRONLY, 0600);
    if (!message || fd < 0)
        abort();
    work_pack(x->program, step, message);
    if (write(fd, message, (size_t)send->bytes) != send->bytes)
        abort();
    close(fd);
    free(message);
    channel_release(x->program, step);
    return true;
}

/* What depended on the message was released when it was packed. */
static void retire(weft_exec *x, struct exec_out *out, const struct exec_step *step)
{
    (void)x, (void)out, (void)step;
}

static enum way_state take(weft_exec *x, struct exec_in *in, const struct exec_step *step, int64_t *bytes)
{
    const struct block_message *send = &in->sends[in->taken];
    *bytes = send->bytes / 2;
    if (!in->begun) { /* the first pass over it */
        in->begun = 1;
        return WAY_BEGUN;
    }
    char name[64], *message = malloc((size_t)send->bytes);
    name_of(x, send, name);
    int fd = open(name, O_RDONLY);
    if (!message || fd < 0 || read(fd, message, (size_t)send->bytes) != send->bytes)
        abort();
    close(fd);
    unlink(name);
    work_unpack(x->program, step, message);
    free(message);
    in->begun = 0;
    toy_messages++;
    return WAY_OVER;
}

static bool fits(const struct way_ends *e)
{
    return e->send->offer == OFFER_PLACE && e->send->bytes > 1000 && !e->pushes;
}

const struct way way_toy = {
    .name = "toy",
    .what = "through a file",
    .why = "this is a test",
    .told = true,
    .send_moves = WAY_MOVES_MESSAGE,
    .recv_moves = WAY_MOVES_MESSAGE,
    .fits = fits,
    .launch = launch,
    .retire = retire,
    .take = take,
};
