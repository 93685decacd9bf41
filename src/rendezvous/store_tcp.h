/* The tcp: store, also for kinds that are built on it. */
#ifndef WEFT_RENDEZVOUS_STORE_TCP_H
#define WEFT_RENDEZVOUS_STORE_TCP_H
#include "rendezvous/address.h"
#include "rendezvous/store.h"

#define STORE_TCP_SPARES 64 /* ranks of a store that can serve it next, when the rank that serves it dies, at most */

/* Opens a store at one of n addresses, which are tried in turn. The process that passes a `listener` serves the store
 * there itself; the call takes over the socket, also on an error. `place` is for texts. */
#define STORE_TCP_CONNECT (-1) /* instead of a listener: another process serves */
#define STORE_TCP_IF_FREE (-2) /* instead of a listener: this process serves if no process listens at at[0] */
int store_tcp_open_at(const struct store_kind *kind, const char *place, const struct address *at, int n, int listener,
                      const struct store_opts *o, int64_t until, struct store **out);
int store_tcp_set(struct store *s, const char *key, const void *value, size_t bytes, int64_t until);
int store_tcp_get(struct store *s, const char *key, void *value, size_t cap, size_t *bytes, int64_t until);
int store_tcp_parts(struct store *s, const char *prefix, int first, unsigned char *packed, int *count, int64_t until);
int store_tcp_again(struct store *s, const int *survivors, const struct store_opts *o, int64_t until,
                    struct store **out);
void store_tcp_close(struct store *s, int64_t until);
#endif
