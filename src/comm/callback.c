/* Functions of the user that a pass calls: which thread is in one, and which comms refuse to wait until it returns. */
#include "comm/comm.h"

static _Thread_local int callbacks; /* how many this thread is in */

bool comm_callback_active(void)
{
    return callbacks > 0;
}

/* For siblings, too: their waits would pass the same tasks. */
void comm_callback(weft_comm *c, bool is)
{
    weft_comm *k = c;
    callbacks += is ? 1 : -1;
    do
        k->in_callback = is;
    while ((k = k->sibling) != c);
}
