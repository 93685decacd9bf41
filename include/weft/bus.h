/* The bus: versions of sharded tensors between jobs that do not know each other. A trainer publishes, engines that
 * serve its weights subscribe. They share a URL and a token, and nothing else: no comm, no call that both make.
 *
 *   weft_bus_open("file:/run/user/1000/run42", NULL, &bus);
 *
 *   weft_publish(bus, "policy", tensors, n, NULL, &pub);     the publisher: which rank holds what
 *   weft_put(pub, step, arrays);                             copies into memory of the bus; arrays are free on return
 *   weft_commit(pub, step, "{\"loss\": 0.7}", NULL);         visible to everybody, or to nobody
 *
 *   weft_subscribe(bus, "policy", mine, n, NULL, &sub);      the subscriber: which rank wants what
 *   weft_fetch(sub, &(weft_want){WEFT_WANT_LATEST, 0}, 60 * second, &v);    staged beside the live version, and checked
 *   weft_swap(sub, &v, second);                              all ranks change to it, or none does; pointers only
 *   weft_use(sub, &pin); weft_pin_data(pin, i, &data); ... weft_unuse(pin);
 *
 * A set is a name with a list of tensors. A version is a set at an epoch and a step. Each start of a publisher takes
 * the next epoch of its set: what an older epoch commits later is refused. Versions are ordered by epoch, then step.
 *
 * Layouts say which rank of the publisher, or of the subscriber, holds which elements of a tensor. The two sides may
 * have different numbers of ranks, other splits, replicas, and other dtypes, and either may be boxes. An array of boxes
 * is flat, as weft_layout_local says. What is in no box of it is not read, and not written: in an array of `into` it
 * stays, so that several tensors may be in one array; elsewhere it is 0. A publisher with a comm may have layouts with
 * folds: put folds the partial sums over the comm, in the dtype of the arrays, and the version has the layouts without
 * the folds. Other layouts with folds, and those with ghosts, are refused with WEFT_EUNSUPPORTED.
 *
 * Arrays may be in memory of a CUDA device, on either side: those that are put (weft_view says where they are), those
 * of `into`, and the memory of a subscriber's versions. A rank uses one device. Snapshots are in host memory; casts and
 * digests are computed on the device. Work of the caller that is under way on arrays of the device is not known to
 * weft: it must have ended before weft_put (weft_put_on waits for a stream), before weft_unuse and weft_swap, before
 * `arrived` returns, and with `direct` before weft_fetch.
 *
 * Threads. A bus may be used by several threads at once. A publisher belongs to one thread at a time. Of a subscriber
 * one thread at a time may call verify, explain, fetch, swap and close; other threads may call weft_use and weft_unuse
 * meanwhile, which do not wait for a fetch. A bus has a thread of its own that renews its leases, and one for each
 * reader that it serves. After fork, the child must not use it.
 *
 * Errors name the job, rank or host that is to blame. WEFT_ETIMEOUT: the time is over. WEFT_ETRANSPORT: the directory
 * cannot be reached. WEFT_EPEER: a holder of a version, or a rank of this job, has gone. WEFT_EMISMATCH: names, shapes
 * or digests do not fit. Timeouts are those of weft.h; WEFT_DEADLINE is the deadline of the bus. docs/bus.md has the
 * rules, docs/limits.md what is not there. */
#ifndef WEFT_BUS_H
#define WEFT_BUS_H
#include <weft.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_BUS_NAME 63        /* letters of a set's or a job's name: letters, digits, and . _ - */
#define WEFT_BUS_RANKS 1024     /* most ranks of a publisher */
#define WEFT_BUS_SWAP_RANKS 60  /* most ranks of a subscriber's comm */
#define WEFT_BUS_KEEP 64        /* most versions that a publisher keeps */
#define WEFT_BUS_META 4096      /* bytes of a version's meta text */
#define WEFT_BUS_TENSORS 262144 /* most tensors of a set */

typedef struct weft_bus weft_bus;
typedef struct weft_publisher weft_publisher;
typedef struct weft_subscriber weft_subscriber;
typedef struct weft_pin weft_pin;

typedef struct weft_bus_opts {
    size_t size;
    const char *token;   /* of the directory; NULL: that of WEFT_TOKEN or WEFT_TOKEN_FILE, if one of them is set */
    const char *job;     /* names this process in errors and in the directory; NULL: HOST.PID. At most WEFT_BUS_NAME */
    int64_t deadline_ns; /* for calls of the bus that have no timeout of their own, and WEFT_DEADLINE; default 30 s */
    int64_t lease_ns;    /* after which others take this process for gone if it does not answer; default 10 s */
    const char *listen;  /* "HOST:PORT": where processes of other hosts pull what this process publishes or has read.
                          * HOST is an address of this machine that they reach; port 0: the system chooses. Needs
                          * libsodium. NULL: only processes of this host reach it */
    const char *metrics; /* a file that has the text of weft_bus_metrics. It is written anew after a commit, a swap or a
                          * call that fails, at most once a second, and at weft_bus_close. NULL: none */
} weft_bus_opts;
#define WEFT_BUS_OPTS_INIT WEFT_SIZED(weft_bus_opts)

/* Opens the directory: "tcp:HOST:PORT[/SPACE]" (weft bus serve), "file:DIR" (processes of one user on one machine) or
 * "etcd:http://HOST:PORT[/SPACE]". */
WEFT_API int weft_bus_open(const char *url, const weft_bus_opts *opts, weft_bus **out);
/* Close its publishers and subscribers first: while there are some, it is refused with WEFT_EBUSY. NULL is allowed. */
WEFT_API int weft_bus_close(weft_bus *b);
WEFT_API const char *weft_bus_job(const weft_bus *b); /* the name of this process */
/* What this process has done on the bus, as OpenMetrics text: times of put, fetch, check and swap as histograms, bytes
 * by path, calls that failed, steps, and how far its readers are behind. Writes at most cap bytes with a zero; *len is
 * the length of the text. */
WEFT_API int weft_bus_metrics(weft_bus *b, char *buf, size_t cap, size_t *len);

/* Names a version of a set. */
typedef struct weft_epoch_step {
    int64_t epoch; /* of the publisher: 1 and more */
    int64_t step;
} weft_epoch_step;

typedef struct weft_bus_version {
    weft_epoch_step version;
    int64_t bytes;   /* of all tensors, each element once, in the published dtype */
    int ranks;       /* of its publisher */
    int holders;     /* ranks of them whose part can be read now: fewer than `ranks` if some have died */
    size_t meta_len; /* of the meta text */
    char meta[WEFT_BUS_META + 1];
} weft_bus_version;
/* The versions of a set that are committed, in ascending order. */
WEFT_API int weft_bus_versions(weft_bus *b, const char *set, int64_t timeout_ns, weft_bus_version *out, size_t cap,
                               size_t *n);

/* A tensor of a set, as one side has it. */
typedef struct weft_bus_tensor {
    const char *name;
    const weft_layout *layout; /* of the published tensor, or of the subscriber's; it may be freed after the call */
    int32_t dtype;             /* publish: of the arrays that are put, if they are cast on the way; 0: the layout's */
    uint32_t reserved;         /* 0 */
    const char *from;          /* subscribe: the tensor's name in the set, if it is another one; otherwise NULL */
} weft_bus_tensor;

enum weft_want_kind {
    WEFT_WANT_LATEST = 0, /* the newest version that can be read */
    WEFT_WANT_STEP,       /* the newest one with this step */
    WEFT_WANT_AT_LEAST,   /* the newest one, if its step is this one or higher */
    WEFT_WANT_NEWER       /* the newest one, if it is newer than the version that is live here */
};
typedef struct weft_want {
    enum weft_want_kind kind;
    int64_t step;
} weft_want;

/* The tensors of a version, as its publisher has them: names and layouts. Waits for such a version until the timeout.
 * The list can be given to weft_subscribe, by a job with as many ranks. */
typedef struct weft_bus_set weft_bus_set;
WEFT_API int weft_bus_describe(weft_bus *b, const char *set, const weft_want *want, int64_t timeout_ns,
                               weft_bus_set **out);
WEFT_API weft_epoch_step weft_bus_set_version(const weft_bus_set *s);
WEFT_API const weft_bus_tensor *weft_bus_set_tensors(const weft_bus_set *s, size_t *n);
WEFT_API void weft_bus_set_free(weft_bus_set *s); /* NULL is allowed */

/* Looks for what is wrong with the sets of the directory: versions without holders, holders that cannot be reached or
 * have other tensors than their records say, publishers that are over, damaged records, what was left behind. `found`
 * is called with a text for each; wrong: readers suffer from it, otherwise it is worth knowing. The result is an error
 * only if the directory cannot be read. */
WEFT_API int weft_bus_check(weft_bus *b, int64_t timeout_ns, void (*found)(void *arg, bool wrong, const char *text),
                            void *arg);

/* ---- publishing ---- */

typedef struct weft_publish_opts {
    size_t size;
    int rank, ranks;    /* of this publisher; ranks 0: 1, or those of the comm */
    weft_comm *comm;    /* of the publisher's ranks: publish is collective over it. It is not used afterwards, unless
                         * layouts have folds: then put is collective, too, and the comm must outlive the publisher */
    const char *run;    /* without a comm and with several ranks: a name that all ranks of this start have in common
                         * and no other start has, such as the job's number. At most WEFT_BUS_NAME letters */
    int keep;           /* versions in memory; default 2. Memory is keep times what the rank holds, and never
                         * more, except for a sixteenth of a version once readers of other hosts take deltas */
    bool wait;          /* put waits for readers of the oldest version; otherwise it is WEFT_EBUSY if all are read */
    bool no_digest;     /* no digests: readers do not check what they read */
    bool lend;          /* versions are lent only, never put: no memory is taken for them. keep is 0 */
    int64_t timeout_ns; /* for this call; 0: the deadline of the bus */
    /* Threads that copy during put, the one that puts among them: up to 64, and 1 is that one alone. 0: as many as this
     * rank has cores, at most 4. Without a comm, all ranks count as ranks of this host. */
    int64_t threads;
} weft_publish_opts;
#define WEFT_PUBLISH_OPTS_INIT WEFT_SIZED(weft_publish_opts)

/* Takes the next epoch of the set. Names are not empty, are different, and have at most 1,000 bytes. All ranks give the
 * same tensors; if they do not, it is WEFT_EMISMATCH. The memory of the snapshots is taken here. */
WEFT_API int weft_publish(weft_bus *b, const char *set, const weft_bus_tensor *tensors, size_t n,
                          const weft_publish_opts *opts, weft_publisher **out);
/* Copies this rank's part of every tensor into a snapshot, casts it to the published dtype, and computes digests. views
 * has one view for each tensor; the data of a tensor that this rank does not hold may be NULL. Steps
 * grow from put to put. The oldest snapshot without a reader is reused: its version goes. WEFT_EBUSY: all are read.
 * A put that was not committed is replaced by the next one. If layouts have folds, it is collective over the comm: all
 * ranks put the same step, and all succeed or none does. */
WEFT_API int weft_put(weft_publisher *p, int64_t step, const weft_view *views);
/* The same after the work that is in a stream (a CUstream) of the device. If no array is on a device, the stream does
 * not matter. */
WEFT_API int weft_put_on(weft_publisher *p, int64_t step, const weft_view *views, void *stream);
/* Instead of weft_put: the version's arrays stay where they are, dense and in the published dtype, and are read there.
 * The caller does not write into them until weft_lend_end; if it does, readers find that the digests do not fit. One
 * version is lent at a time. Readers of this host copy by a socket, too. Layouts of boxes, partial sums, and arrays
 * that put would cast or make dense are refused with WEFT_EUNSUPPORTED. */
WEFT_API int weft_lend(weft_publisher *p, int64_t step, const weft_view *views);
/* The lent version goes, and the arrays are the caller's again on return, whatever the result is. Readers that have
 * begun may end within the timeout; 0: they are sent away at once, and look for another version. WEFT_ETIMEOUT: some
 * were not done. The directory is told within the deadline of the bus. It does nothing if nothing is lent. A step that
 * was lent and committed is not lent or put again. */
WEFT_API int weft_lend_end(weft_publisher *p, int64_t timeout_ns);
/* Makes the version visible if all ranks have put and committed it. Each rank calls it; the last one makes the version
 * visible by one transaction. *visible (may be NULL) says whether this call did. meta is a text for readers, that of
 * rank 0 counts; NULL: none. WEFT_EPEER: a newer publisher has taken the set, and this one is over. WEFT_EMISMATCH:
 * replicas of a tensor have different bits. After WEFT_ETIMEOUT or WEFT_ETRANSPORT it can be called again. */
WEFT_API int weft_commit(weft_publisher *p, int64_t step, const char *meta, bool *visible);
/* The epoch that it has taken. */
WEFT_API int64_t weft_publisher_epoch(const weft_publisher *p);
/* Its versions go. Readers that copy from its memory at this moment keep their mapping of it until they are done. */
WEFT_API void weft_publisher_close(weft_publisher *p);

/* ---- subscribing ---- */

typedef struct weft_subscribe_opts {
    size_t size;
    weft_comm *comm; /* of this job's ranks: subscribe, verify, fetch, swap and close are collective over it, and it is
                      * used for nothing else during these calls. NULL: this rank fetches and swaps alone */
    int rank;        /* without a comm: which rank of the layouts this process is */
    bool only;       /* tensors of the set that are not in the list are left out; otherwise they are an error */
    bool no_check;   /* digests are not checked */
    /* Called during fetch, on its thread: bytes that are staged so far, and of how many. If the fetch has to begin
     * again, or the ranks read again to check each for itself, the bytes begin at 0 again. Another value than 0 stops
     * the fetch with WEFT_EINVAL. It must not call this subscriber. NULL: none. */
    int (*progress)(void *arg, int64_t done, int64_t total);
    void *arg;
    /* Called during fetch, on its thread, when tensor i of the list is staged and its digests fit: in the order of the
     * list, with its array as weft_pin_data gives it. If the fetch has to begin again, its tensors arrive again,
     * perhaps of another version. With `into`, a tensor whose layout is boxes arrives as its boxes alone, one behind
     * the other. Another value than 0 stops the fetch with WEFT_EINVAL. It must not call this subscriber. */
    int (*arrived)(void *arg, const weft_epoch_step *v, size_t i, const void *data, int64_t bytes);
    bool direct; /* with `into`: fetch writes into the arrays at once, without staging. From then on weft_use is refused
                  * until a fetch has succeeded and was swapped: after a failure the arrays are a mixture */
    /* What comes from other hosts is pulled once for each host, into memory that its ranks share, and is given to other
     * hosts that read the same version, if weft_bus_opts.listen says where they reach this one. */
    bool alone;    /* this rank pulls for itself only: less memory, more traffic, and no deltas */
    bool no_delta; /* whole blocks come also where the host has the version before */
    /* The caller's own arrays, for memory that cannot be exchanged: a view for each tensor, dense.
     * Swap copies the staged version into them when all ranks have staged and checked it; weft_pin_data gives them.
     * Memory for one version is taken, not for two. NULL: none. The arrays must outlive the subscriber. While swap, or
     * a fetch with `direct`, waits for pins, weft_use waits for it: a thread that has a pin does not take another. */
    const weft_view *into;
    /* Without `into`: where versions live. weft_pin_data and `arrived` give addresses of that device. */
    int32_t memory; /* WEFT_MEMORY_HOST or WEFT_MEMORY_CUDA */
    int32_t device; /* the number of the device; 0 for host memory */
    /* Threads that copy during fetch, the one that fetches among them: up to 64, and 1 is that one alone. 0: as many as
     * this rank has cores, at most 4. Without a comm it counts as the only rank of this host. */
    int64_t threads;
} weft_subscribe_opts;
#define WEFT_SUBSCRIBE_OPTS_INIT WEFT_SIZED(weft_subscribe_opts)

/* The set need not be published yet. Memory for two versions is taken when the first one is fetched. */
WEFT_API int weft_subscribe(weft_bus *b, const char *set, const weft_bus_tensor *tensors, size_t n,
                            const weft_subscribe_opts *opts, weft_subscriber **out);

/* Proves before a byte moves that a version has all that this rank needs, and that live holders have it: waits for such
 * a version until the timeout. WEFT_EMISMATCH: the text lists every name that is missing or too many, or whose shape or
 * dtype does not fit. */
WEFT_API int weft_subscriber_verify(weft_subscriber *s, const weft_want *want, int64_t timeout_ns,
                                    weft_epoch_step *out);
/* What the last verify or fetch has found: which bytes come from whom, and on which way: mapped (memory of this host),
 * socket (of this host, lent), relay (of another host, once for all readers of this one) or tcp. */
WEFT_API int weft_subscriber_explain(weft_subscriber *s, bool json, char *buf, size_t cap, size_t *len);
/* Waits for a version, copies this rank's part of it into staging memory, casts it, and checks its digests. With a
 * comm: succeeds on all ranks or fails on all. The live version stays as it is and can be used meanwhile. A version
 * that was torn, or that has gone meanwhile, is dropped and the next one is taken. Replaces a version that was staged
 * and not swapped. WEFT_ETIMEOUT: there was none in time, and the text says what is missing, or a pin on the version
 * before the live one was not given back. */
WEFT_API int weft_fetch(weft_subscriber *s, const weft_want *want, int64_t timeout_ns, weft_epoch_step *out);
/* The same in a thread of the subscriber: the caller goes on. Until weft_fetching_free, verify, explain, fetch, swap
 * and close of this subscriber are refused with WEFT_EBUSY; weft_use is not. The comm is used by that thread. */
typedef struct weft_fetching weft_fetching;
WEFT_API int weft_fetch_start(weft_subscriber *s, const weft_want *want, int64_t timeout_ns, weft_fetching **out);
/* Whether it is over, and how far it is: bytes that are staged, and of how many. All but f may be NULL. */
WEFT_API int weft_fetching_test(weft_fetching *f, bool *over, int64_t *done, int64_t *total);
/* Waits for its end, and returns its result. WEFT_ETIMEOUT: it is not over; the fetch goes on. */
WEFT_API int weft_fetching_wait(weft_fetching *f, int64_t timeout_ns, weft_epoch_step *out);
/* Asks it to stop: it fails with WEFT_EINVAL, unless it was over before, and what was live stays live. With a comm it
 * fails on all ranks. It is over when weft_fetching_wait says so: within a second while it looks for a version.
 * Otherwise a request to the directory, or to a holder, that is not answered ends first, at its time. Any thread may
 * call it, and a callback of the fetch, too. */
WEFT_API void weft_fetching_cancel(weft_fetching *f);
/* Cancels it, if it is not over, waits for its end, and frees it. NULL is allowed. */
WEFT_API void weft_fetching_free(weft_fetching *f);
/* Makes the staged version live, on all ranks of the comm or on none. WEFT_EINVAL: v is not the one that is staged.
 * After an error that comes before the decision the old version stays live. If this rank cannot learn the decision, it
 * is WEFT_EPEER, and weft_use is refused until a later swap or the next subscription. WEFT_ETRANSPORT: the device of
 * `into` has failed. If that was behind the decision, the version is live, and weft_use is refused on this rank. */
WEFT_API int weft_swap(weft_subscriber *s, const weft_epoch_step *v, int64_t timeout_ns);
/* Pins the live version: its memory does not change until weft_unuse. WEFT_EINVAL: no version is live yet. Any thread
 * may call both. */
WEFT_API int weft_use(weft_subscriber *s, weft_pin **out);
WEFT_API void weft_unuse(weft_pin *p); /* NULL is allowed */
WEFT_API weft_epoch_step weft_pin_version(const weft_pin *p);
/* The array of tensor i of the list: dense, of the shape and dtype of its layout on this rank, aligned to 64 bytes;
 * with `into` the caller's own. *data is NULL and *bytes 0 if the rank holds nothing of it. bytes may be NULL. */
WEFT_API int weft_pin_data(const weft_pin *p, size_t i, const void **data, int64_t *bytes);
WEFT_API int weft_pin_meta(const weft_pin *p, char *buf, size_t cap, size_t *len); /* of the version */
/* Give back all pins first: their memory is gone afterwards. While a fetch runs in the background it does nothing. */
WEFT_API void weft_subscriber_close(weft_subscriber *s);

#ifdef __cplusplus
}
#endif
#endif
