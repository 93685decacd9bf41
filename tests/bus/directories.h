/* Directories for tests: one of each kind, and short forms of its calls that fail the test. */
#ifndef WEFT_TESTS_DIRECTORIES_H
#define WEFT_TESTS_DIRECTORIES_H
#include "bus/directory.h"
#include "support/clock.h"
#include "support/suite.h"

#define LONG (60 * SECOND) /* what is waited for comes, on a loaded machine, too */
#define PUBLISH_TOKEN "0123456789abcdef-for-publishing"
#define READ_TOKEN "0123456789abcdef-for-reading"

#define fine(call)                         \
    do {                                   \
        if (call)                          \
            fail_msg("%s", weft_errmsg()); \
    } while (0)

extern const struct suite_places directories_places; /* every kind */
extern const struct suite_places directories_served; /* weft's own server */
const char *directories_url(void);
bool directories_sees_death(void);   /* a lease ends when its owner's process ends, and not only with its time */
int64_t directories_ttl(int64_t ns); /* the shortest lease, of at least that time, that this kind has */
bool directories_slow(void);         /* a change takes milliseconds */
/* Has the directory forget all changes up to this revision. False: that cannot be asked of it. */
bool directories_forget(int64_t revision);
size_t directories_key_max(const char *space); /* bytes of a key */
size_t directories_log(void);                  /* more changes than the directory remembers; 0: it remembers all */

/* Skips a test that forks, where that is not done: TSan looks at one process. */
void directories_forks(void);

/* A space of its own for each test. */
struct directory *directories_open(const char *space);
struct directory *directories_open_with(const char *space, const char *token);

/* Puts whatever the key's revision is, and returns the new one. */
int64_t directories_put(struct directory *d, const char *key, const char *value, int64_t lease);
/* Is the key there, with this value? NULL: it is not there. */
bool directories_has(struct directory *d, const char *key, const char *value);
/* Waits until it is so. */
void directories_await(struct directory *d, const char *key, const char *value);
/* How many keys the directory has below a folder, with or without a lease. */
size_t directories_keys(const char *prefix);
#endif
