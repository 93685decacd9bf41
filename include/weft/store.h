/* The rendezvous server: a store of keys and values where ranks on several machines find each other. weft run --at
 * starts one; a program that starts ranks itself can do the same with these calls. */
#ifndef WEFT_STORE_H
#define WEFT_STORE_H
#include <weft.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_store weft_store;

/* Serves a store from a thread of this process, to ranks that know its address and its token. `at` is "tcp:HOST:PORT",
 * or "tcp::PORT" for the loopback interface; port 0 lets the system choose. The token is that of WEFT_TOKEN or
 * WEFT_TOKEN_FILE; otherwise a new one is made. Needs libsodium; without it the call returns WEFT_EUNSUPPORTED. */
WEFT_API int weft_store_open(const char *at, weft_store **out);
WEFT_API const char *weft_store_at(const weft_store *s);    /* the address with its port, for WEFT_AT of the ranks */
WEFT_API const char *weft_store_token(const weft_store *s); /* for WEFT_TOKEN of the ranks */
/* Stops at once. Ranks that still use the store get an error. */
WEFT_API void weft_store_close(weft_store *s);

#ifdef __cplusplus
}
#endif
#endif
