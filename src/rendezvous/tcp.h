/* For stores that are tcp: underneath. */
#ifndef WEFT_RENDEZVOUS_TCP_H
#define WEFT_RENDEZVOUS_TCP_H
#include "rendezvous/address.h"
#include "rendezvous/store.h"

/* A store at one of n places, which are tried in turn; whoever has `listener` serves it there itself, and gives the
 * socket away, also on an error. `place` is for texts. */
#define TCP_GUEST (-1)   /* instead of a listener: somebody else serves */
#define TCP_IF_FREE (-2) /* so do we, while nobody listens at at[0] */
int tcp_open_at(const struct store_kind *kind, const char *place, const struct address *at, int n, int listener,
                const struct store_opts *o, int64_t until, struct store **out);
int tcp_set(struct store *s, const char *key, const void *value, size_t bytes, int64_t until);
int tcp_get(struct store *s, const char *key, void *value, size_t cap, size_t *bytes, int64_t until);
int tcp_parts(struct store *s, const char *prefix, int first, unsigned char *packed, int *count, int64_t until);
int tcp_again(struct store *s, const int *survivors, const struct store_opts *o, int64_t until, struct store **out);
void tcp_close(struct store *s, int64_t until);
#endif
