/* What fetches in the background take from fetch.c. */
#ifndef WEFT_VERSION_FETCH_H
#define WEFT_VERSION_FETCH_H
#include "version/subscribe.h"

/* The arguments of a call that fetches, and the time until which it waits. */
int fetch_check(weft_subscriber *s, const char *call, const weft_want *w, int64_t timeout_ns, int64_t *until);
int fetch_run(weft_subscriber *s, const weft_want *w, int64_t until, weft_epoch_step *out); /* the fetch itself */
#endif
