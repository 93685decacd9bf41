/* weft moves sharded data between ranks by a plan that is made once and run many times.
 *
 *   weft_layout_parse("f32[4096/x,512] @x4", &a);            who holds what
 *   weft_layout_parse("f32[4096,512/x] @x4", &b);
 *   weft_lower(&(weft_move){"w", a, b}, 1, rank, NULL, &plan);   pure: no data, no peers
 *   weft_comm_open("threads:4/job", &opts, &comm);           who takes part
 *   weft_bind(plan, comm, &src, &dst, NULL, &exec);          collective: all ranks succeed, or all fail
 *   weft_exec_run(exec);                                     as often as needed
 *
 * A layout says which elements of a global tensor each rank holds and how the copies of one
 * element combine. A plan makes the destination's value equal to the source's, element by
 * element; every collective, every reshard and every halo exchange is such a pair of layouts.
 *
 * Every int is 0 or a negative WEFT_E code; outputs are set on 0 only; weft_errmsg() has the
 * words. Functions that fill a text buffer always set *len to the length without the closing
 * zero and fill at most cap bytes; a buffer that is too small is not an error. Options structs
 * start with their size; a field that is zero means its default, NULL means all defaults.
 * Frees take NULL. The library never prints, aborts or exits. Layouts and plans never change
 * once made and may be shared between threads; a comm, its execs, windows and the comms split from it belong
 * to one thread at a time, and beside it to their progress thread if they have one, unless their declaration says
 * otherwise. weft.h(3) tells it at length. */
#ifndef WEFT_H
#define WEFT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_VERSION 100 /* major * 10000 + minor * 100 + patch */
#define WEFT_MAX_DIMS 8
#define WEFT_MAX_AXES 8
#define WEFT_MAX_NAME 31 /* letters of an axis name */

typedef struct weft_layout weft_layout;
typedef struct weft_plan weft_plan;
typedef struct weft_comm weft_comm;
typedef struct weft_exec weft_exec;
typedef struct weft_window weft_window;
typedef struct weft_exchange weft_exchange;
typedef struct weft_halo weft_halo;

enum weft_err {
    WEFT_OK = 0,
    WEFT_EINVAL = -1,       /* an argument, a layout or a file is wrong */
    WEFT_ENOMEM = -2,       /* memory, or a limit that was set on it */
    WEFT_EUNSUPPORTED = -3, /* right, but not possible here: see the limits in the docs */
    WEFT_EMISMATCH = -4,    /* ranks do not agree (plans, order of calls) */
    WEFT_EBUSY = -5,        /* the object is in use */
    WEFT_ETIMEOUT = -6,     /* time ran out; the exec is still in flight */
    WEFT_EPEER = -7,        /* another rank failed; the text names it */
    WEFT_ETRANSPORT = -8,   /* the transport failed */
    WEFT_EIO = -9           /* a file or the system failed */
};

enum weft_dtype {
    WEFT_BOOL = 1,
    WEFT_U8,
    WEFT_I8,
    WEFT_U16,
    WEFT_I16,
    WEFT_U32,
    WEFT_I32,
    WEFT_U64,
    WEFT_I64,
    WEFT_F16,
    WEFT_BF16,
    WEFT_F32,
    WEFT_F64,
    WEFT_F8E4M3, /* the OCP "fn" form: no infinities */
    WEFT_F8E5M2
};

enum weft_op { WEFT_SUM = 1, WEFT_PROD, WEFT_MIN, WEFT_MAX, WEFT_AVG, WEFT_BAND, WEFT_BOR, WEFT_BXOR };

uint32_t weft_version(void);            /* WEFT_VERSION of the library that was loaded */
const char *weft_strerror(int err);     /* a few words for a code; never NULL */
const char *weft_errmsg(void);          /* this thread's last error in detail; valid until the next error */
const char *weft_dtype_name(int dtype); /* "f32"; NULL for none */
size_t weft_dtype_size(int dtype);      /* bytes of one element; 0 for none */
const char *weft_op_name(int op);       /* "sum"; NULL for none */

/* ---- layouts ---- */

/* The struct form of a layout. Parsing and creating give the same object. */
typedef struct {
    const char *name;
    int64_t size;
} weft_axis;
typedef struct {
    const char *axis;
    int64_t block; /* 0: one contiguous chunk a coordinate; k > 0: blocks of k dealt round-robin */
} weft_split;
typedef struct {
    int64_t extent;
    weft_split splits[WEFT_MAX_AXES]; /* outermost first */
    int nsplits;
    int64_t lo, hi; /* ghosts before and after the piece */
    bool wrap;      /* ghosts wrap round */
} weft_dim;
typedef struct {
    enum weft_op op;
    const char *over[WEFT_MAX_AXES + 1]; /* axis names, or "~" for the ghosts */
    int nover;
} weft_fold;
typedef struct weft_layout_desc {
    size_t size; /* sizeof(weft_layout_desc) */
    enum weft_dtype dtype;
    const weft_dim *dims;
    int ndim;
    const weft_axis *axes;
    int naxes;
    const int *ranks; /* of the mesh in row-major order; NULL: 0, 1, 2, ... */
    const weft_fold *folds;
    int nfolds;
} weft_layout_desc;

/* What one rank's buffer looks like. A rank outside the mesh holds nothing: bytes is 0. */
typedef struct weft_local {
    bool holds; /* the rank is in the mesh */
    int ndim;
    int64_t shape[WEFT_MAX_DIMS];    /* with ghosts; dense, row-major */
    int64_t interior[WEFT_MAX_DIMS]; /* first element of the interior in each dim */
    int64_t inner[WEFT_MAX_DIMS];    /* shape of the interior */
    int64_t count;                   /* elements, with ghosts */
    int64_t bytes;
} weft_local;

/* A box of global elements and where it stands in the local buffer. */
typedef struct weft_box {
    int64_t at[WEFT_MAX_DIMS], len[WEFT_MAX_DIMS], local[WEFT_MAX_DIMS];
} weft_box;

/* An error's text shows the layout with a caret under the place that is wrong. */
int weft_layout_parse(const char *text, weft_layout **out);
int weft_layout_create(const weft_layout_desc *desc, weft_layout **out);
/* The struct form of l; what it points to lives until l is freed. ranks is never NULL here. */
int weft_layout_describe(const weft_layout *l, weft_layout_desc *out);
/* The layout of gradients: "equal" and "sum" change places on free axes and ghosts. Refused for other ops. */
int weft_layout_dual(const weft_layout *l, weft_layout **out);
int weft_layout_format(const weft_layout *l, char *buf, size_t cap, size_t *len);
bool weft_layout_equal(const weft_layout *a, const weft_layout *b);
int weft_layout_ranks(const weft_layout *l); /* one more than the largest rank used */
int weft_layout_local(const weft_layout *l, int rank, weft_local *out);
/* The boxes of the rank's interior, in the order of its buffer. Fills at most cap, sets *n to how many there are. */
int weft_layout_boxes(const weft_layout *l, int rank, weft_box *out, size_t cap, size_t *n);
/* What a stencil that reads as far as the ghosts reach treats apart. Each slot of a rank's buffer is in one box of one
 * part. */
enum weft_halo_part {
    WEFT_HALO_INNER = 1, /* own elements that read no ghost: may be computed while an exchange is in flight */
    WEFT_HALO_RIM,       /* the other own elements */
    WEFT_HALO_GHOSTS,    /* filled by an exchange; at: the elements that they are copies of */
    WEFT_HALO_EDGES      /* beyond an end that does not wrap round, left untouched; at: where they would be, below 0 or
                            from the extent on in some dim */
};
/* The boxes of a part, by faces, edges and corners; the rim has two a dim at most, as long as they can be. Fills as
 * boxes does. */
int weft_layout_halo(const weft_layout *l, int rank, enum weft_halo_part part, weft_box *out, size_t cap, size_t *n);
void weft_layout_free(weft_layout *l);

/* ---- plans ---- */

/* One tensor to move. The name is part of the digest; NULL counts as "". */
typedef struct {
    const char *name;
    const weft_layout *src, *dst;
} weft_move;

/* The machine as lowering sees it: plain integers, the same on all ranks. */
typedef struct weft_machine {
    size_t size;
    int ranks_per_host;   /* ranks r with the same r / ranks_per_host share a host; 0: all on one */
    int64_t latency_ns;   /* of one message between hosts; default 2000 */
    int64_t bytes_per_us; /* of one host's link; default 12500 (100 Gbit/s) */
    int ranks;            /* entries of host; in a plan: that there were when it was lowered */
    const int *host;      /* of each rank, from 0 on, where ranks_per_host does not say it; else NULL */
} weft_machine;

typedef struct weft_lower_opts {
    size_t size;
    int64_t bucket; /* bytes of a message: small chunks of a channel share one, larger ones are cut; default 4 MiB;
                                1: each chunk travels alone and whole */
    const char *algorithm; /* NULL: the chooser; else one of weft_algorithm_name(), refused where it does not fit */
    bool in_place;         /* folds may be bound with the source and the destination at the same address */
    int world;             /* ranks in the world, at least what the layouts use; 0: just that */
    weft_machine machine;  /* zeroed: one host */
} weft_lower_opts;

typedef struct weft_stats {
    size_t size;
    int rank, world, tensors;
    const char *kind;      /* what the pair was recognised as ("allreduce"), "reshard" otherwise, "mixed" for several */
    const char *algorithm; /* what was chosen or forced */
    int64_t sent, received, copied, folded; /* bytes: on the wire, on the wire, local, read by folds */
    int64_t bound;   /* this rank's share of the fewest bytes that must cross; sums to the bound of the move */
    int64_t stated;  /* this rank's share of the bytes the algorithm says it moves; equals bound for "direct" */
    int64_t scratch; /* bytes of staging inside the plan */
    int send_peers, recv_peers;
    int64_t steps, sends, recvs, chunks; /* sends and recvs count buckets */
    int64_t largest_send, largest_recv;  /* bytes of the largest bucket each way */
    int64_t memory;                      /* bytes of the plan itself */
} weft_stats;

/* One rank's plan for all the moves together. Pure: no communication, no clock, no environment. */
int weft_lower(const weft_move *moves, size_t n, int rank, const weft_lower_opts *opts, weft_plan **out);
/* A collective by its name, for people who think in those: a pair of layouts made from a row of a table. */
typedef struct weft_collective {
    size_t size;
    const char *kind; /* broadcast scatter gather reduce allgather reduce_scatter allreduce all_to_all send permute */
    enum weft_dtype dtype;
    enum weft_op op;  /* reduce, reduce_scatter, allreduce: default sum */
    int64_t count;    /* elements: of the whole for broadcast, reduce, allreduce and send, else of one rank's part */
    const int *ranks; /* the group; NULL: 0 .. n-1 */
    int n;
    int root;      /* broadcast, scatter, gather, reduce, send (who sends): a rank, in the group or outside it */
    const int *to; /* permute: the rank that gets what ranks[i] has */
} weft_collective;
int weft_lower_collective(const weft_collective *c, int rank, const weft_lower_opts *opts, weft_plan **out);
/* The two layouts of it, e.g. to ask for the sizes of buffers; free both. */
int weft_collective_layouts(const weft_collective *c, weft_layout **src, weft_layout **dst);
/* The algorithms that can be forced, from 0 on; NULL after the last. */
const char *weft_algorithm_name(int i);
int weft_plan_explain(const weft_plan *p, bool json, char *buf, size_t cap, size_t *len);
int weft_plan_stats(const weft_plan *p, weft_stats *out); /* set out->size first */
/* What this rank exchanges with each of its peers, by rank. Fills at most cap, sets *n to how many there are. */
typedef struct weft_peer {
    int rank;
    int64_t sent, received; /* bytes */
    int64_t sends, recvs;   /* messages */
} weft_peer;
int weft_plan_peers(const weft_plan *p, weft_peer *out, size_t cap, size_t *n);
/* A box of a tensor's destination that a step of the plan completes. */
typedef struct weft_arrival {
    int tensor;
    weft_box box;
} weft_arrival;
/* All boxes of this rank's destination, in an order that is the plan's own: the boxes are disjoint and cover all that a
 * run writes. Fills at most cap, sets *n to how many there are. */
int weft_plan_arrivals(const weft_plan *p, weft_arrival *out, size_t cap, size_t *n);
/* Proves the plans of all ranks (all[r] is rank r's) right without data, or says what is wrong and where. */
int weft_plan_verify(const weft_plan *const *all, size_t ranks);
uint64_t weft_plan_digest(const weft_plan *p); /* of the whole problem: the same on every rank */
bool weft_plan_equal(const weft_plan *a, const weft_plan *b);
int weft_plan_save(const weft_plan *p, void *buf, size_t cap, size_t *len);
int weft_plan_load(const void *buf, size_t len, weft_plan **out); /* trusts nothing in buf */
/* Views of what the plan was made of; they live as long as the plan. */
int weft_plan_tensors(const weft_plan *p);
int weft_plan_tensor(const weft_plan *p, int i, weft_move *out);
int weft_plan_rank(const weft_plan *p);
int weft_plan_world(const weft_plan *p);
void weft_plan_free(weft_plan *p);

/* ---- comms: who takes part, and how they reach each other ---- */

/* Who moves along what is in flight. With WEFT_PROGRESS_THREAD a thread of weft's own, one for the comm that was
 * opened and all that are split from it, completes what was started without a further call, and runs the callbacks. It
 * sleeps while there is nothing to do, and ends with the last of these comms. Calls are made as before, by one thread
 * at a time (or inside a callback, whichever thread runs it): start and test never wait for the progress thread, the
 * others may, for as long as one of its passes or a callback takes. A process that forks has no such thread in the
 * child, which must not use the comm: what it frees or closes of it stays the parent's. */
enum weft_progress {
    WEFT_PROGRESS_CALLER, /* test, wait and the other calls that wait */
    WEFT_PROGRESS_THREAD  /* a thread, and those calls at the same time */
};

typedef struct weft_comm_opts {
    size_t size;
    int rank;               /* of the caller, for threads:N and where ranks is set */
    int64_t deadline_ns;    /* a rank that made no progress for so long has failed; default 30 s */
    int64_t inflight_bytes; /* staging over all channels; default 64 MiB */
    int inflight_buckets;   /* likewise in buckets; default 256 */
    int channel_buckets;    /* in flight on one channel; default 4 */
    bool staged;            /* move through staging buffers even where peers can reach each other's memory */
    int ranks;              /* how many there are, for shm:NAME; 0: rank and ranks are as the launcher has set them */
    enum weft_progress progress; /* who moves along what is in flight */
    const void
        *communicator; /* mpi: points to an MPI_Comm of the caller's, which is duplicated; NULL: MPI_COMM_WORLD */
    int cross;         /* the system's copies out of the private memory of other processes: 0 where they are faster than
                                       staging, 1 wherever they are permitted, -1 never */
} weft_comm_opts;

/* Every rank opens the same URL with its own rank and waits (until the deadline) for the others: "self:",
 * "threads:N/NAME" (each of N threads), "shm:NAME" (each of the processes of one machine), "tcp:NAME" (all by sockets),
 * "ucx:NAME" (all by UCX), "mpi:" (all by the MPI that has started them; "mpi:openmpi", "mpi:mpich") or "auto:NAME"
 * (shared memory inside a host, UCX, sockets or, where there is no WEFT_AT, MPI between hosts). NULL is the job that
 * weft run, mpirun, mpiexec, srun or torchrun started this process in: by WEFT_URL, else auto: where it spans several
 * machines or WEFT_AT is set, else shm:. A scheme without a name has the job's. */
int weft_comm_open(const char *url, const weft_comm_opts *opts, weft_comm **out);
/* The transports of this build, as their URLs look, from 0 on; NULL after the last. */
const char *weft_transport_name(int i);
/* The modules that are installed with this build, each for a library that carries messages between hosts, likewise. */
const char *weft_module_name(int i);
/* Collective over c: a comm of n of its ranks, numbered in the order of the list. All of them pass the same list; who
 * is in no group passes none (n 0) and gets NULL. Different groups may form in one call, and by several calls a rank
 * may be in any number of groups that overlap: each has c's options and its own execs, windows, barriers and failure,
 * and waiting in one makes progress in all. Lists that differ, have a rank twice or one that is not there, or leave the
 * caller out are refused on all ranks of c with one text that names them. A comm may be closed before or after those
 * split from it. On several hosts a group that is on one of them has nothing to do with the network, any other has
 * connections of its own. */
int weft_comm_split(weft_comm *c, const int *ranks, int n, weft_comm **out);
int weft_comm_rank(const weft_comm *c);
int weft_comm_size(const weft_comm *c);
int weft_comm_machine(const weft_comm *c, weft_machine *out);
/* Window memory: zeroed, touched, aligned to 128 bytes or more; peers reach what is in it without a copy between, in
 * the comm and in all that were split from it or that it was split from. Not collective. It lives until dealloc on the
 * same comm or until that is closed; no exec may then be bound to it. */
int weft_comm_alloc(weft_comm *c, size_t bytes, void **out);
void weft_comm_free(weft_comm *c, void *ptr);
int weft_comm_barrier(weft_comm *c, int64_t timeout_ns);
/* After a failure of the comm, collective among the ranks that are left: who they are, ascending, the same list on all
 * of them. A rank that does not call it within the deadline is not on it. */
int weft_comm_survivors(weft_comm *c, int *ranks, size_t cap, size_t *n);
/* Collective among n ranks of a comm that was opened, ascending, such as its survivors: a new comm of them alone,
 * opened the same way, in which they are numbered in the order of the list. c stays and is to be closed. */
int weft_comm_reopen(weft_comm *c, const int *ranks, int n, weft_comm **out);
/* What this rank has in flight on the comm, whom it waits for and what it did last, as JSON. With WEFT_FLIGHT=DIR ranks
 * write the same there when a wait runs out of time or the comm fails; weft diagnose reads it. */
int weft_comm_dump(weft_comm *c, char *buf, size_t cap, size_t *len);
void weft_comm_close(weft_comm *c); /* frees no exec: free those first */

/* ---- rendezvous: a store of keys and values where ranks of several machines find each other ---- */

/* Serves one from a thread of this process, for ranks that have its place and its token; weft run --at does. `at` is
 * "tcp:HOST:PORT" or "tcp::PORT" (loopback), with port 0 for one that the system chooses. The token is that of
 * WEFT_TOKEN or WEFT_TOKEN_FILE, else a fresh one. Needs libsodium: WEFT_EUNSUPPORTED without it. */
typedef struct weft_store weft_store;
int weft_store_open(const char *at, weft_store **out);
const char *weft_store_at(const weft_store *s);    /* with the port: for WEFT_AT of the ranks */
const char *weft_store_token(const weft_store *s); /* for their WEFT_TOKEN */
void weft_store_close(weft_store *s);              /* at once: ranks that still use it are told that it is gone */

/* ---- running ---- */

/* A rank's buffer for one tensor. Data may be NULL where the rank holds nothing. */
typedef struct {
    void *data;
    size_t bytes;           /* that may be touched from data on */
    const int64_t *strides; /* in bytes, one a dim of the local shape; NULL: dense, row-major */
} weft_view;

typedef struct weft_bind_opts {
    size_t size;
    int64_t deadline_ns; /* 0: the comm's */
    const char *ways;    /* drivers and ways to do without, "-stream,-comb" (weft_way_name); NULL: as WEFT_WAYS says */
} weft_bind_opts;
/* The drivers and ways that can be switched off, from 0 on; NULL after the last. */
const char *weft_way_name(int i);

/* Collective, in the same order on all ranks. One view a tensor on each side; src or dst may be
 * NULL where the rank holds nothing there. Too small, an overlap that is not legal, another plan
 * on another rank: refused on all ranks with one text that names the rank. After it nothing is
 * allocated. The plan and the comm must outlive the exec. */
int weft_bind(const weft_plan *p, weft_comm *c, const weft_view *src, const weft_view *dst, const weft_bind_opts *opts,
              weft_exec **out);
int weft_exec_rebind(weft_exec *x, const weft_view *src, const weft_view *dst); /* collective; not in flight */
int weft_exec_start(weft_exec *x);
int weft_exec_test(weft_exec *x, bool *done);
/* Timeout: 0 polls once, negative waits until done or failed. WEFT_ETIMEOUT says which ranks it waits for. */
int weft_exec_wait(weft_exec *x, int64_t timeout_ns);
int weft_exec_run(weft_exec *x); /* start and wait */
/* Called once a run completes or fails, from test or wait or on the progress thread; it may start and free execs and
 * close comms but not wait, neither here nor for the thread that makes the calls. NULL: none. */
int weft_exec_on_done(weft_exec *x, void (*done)(void *arg, int err), void *arg);
/* Watches the destination piece by piece, in the runs that are started from now on: arrived is called (NULL: by nobody,
 * for who polls) as soon as box i of weft_plan_arrivals has its final values, by whoever makes progress and under the
 * rules of weft_exec_on_done. Refused while in flight. */
int weft_exec_on_arrival(weft_exec *x, void (*arrived)(void *arg, size_t i, const weft_arrival *a), void *arg);
/* The boxes that are complete in the run that was started last, in the order in which they came. Fills at most cap,
 * sets *n to how many there are. Makes no progress itself. */
int weft_exec_arrived(const weft_exec *x, size_t *out, size_t cap, size_t *n);
typedef struct weft_exec_info {
    size_t size;
    int64_t runs;
    int64_t staging_peak, staging_limit; /* bytes of staging in flight on the comm: the most so far, and allowed */
} weft_exec_info;
int weft_exec_stats(const weft_exec *x, weft_exec_info *out);
/* What bind has chosen on this rank: the driver of its runs, the way of each message and why, what is packed, and
 * whether each rank was taken to have a core of its own. */
int weft_exec_explain(const weft_exec *x, bool json, char *buf, size_t cap, size_t *len);
void weft_exec_close(weft_exec *x); /* waits for a run in flight until the deadline, then fails the comm */

/* ---- windows: memory of one shape on every rank, in which all load, store and wait ---- */

typedef struct {
    const char *name; /* not empty, no two alike */
    enum weft_dtype dtype;
    int64_t count; /* elements on each rank, 0 or more */
    size_t align;  /* a power of two up to 4096, on every rank's pointers; 0: 128; never less than the element's size */
} weft_buffer;
enum weft_notify { WEFT_NOTIFY_SET = 1, WEFT_NOTIFY_ADD };
enum weft_compare { WEFT_EQ = 1, WEFT_NE, WEFT_GE, WEFT_GT, WEFT_LE, WEFT_LT };

/* Collective like bind: n buffers and `signals` 64-bit counters on each rank, all zero before anyone sees them. What
 * ranks ask for must be the same; if not, all are refused and told the first rank that differs. */
int weft_window_open(weft_comm *c, const weft_buffer *buffers, int n, int signals, weft_window **out);
int weft_window_find(const weft_window *w, const char *name); /* the buffer's number, or WEFT_EINVAL */
/* Where the rank's buffer is here, to load from and store to; NULL for none, and for a rank on another host, which is
 * reached by put alone (WEFT_EUNSUPPORTED is the thread's error then). Notify and wait, or a barrier, order it. */
void *weft_window_pointer(const weft_window *w, int buffer, int rank);
/* Stores count elements of src into the rank's buffer from its element offset on. src may be used again at once. On
 * another host the owner stores them, when it makes any call on the comm that makes progress, or its progress thread
 * does; what is too large to be copied waits for that, and moves what others put here meanwhile. WEFT_EPEER: the comm
 * failed, also because the owner took nothing for the deadline. */
int weft_window_put(weft_window *w, int buffer, int rank, int64_t offset, const void *src, int64_t count);
/* The same with an add that is atomic for each element among all that put_add, in any dtype but bool. Floats are
 * rounded after each add, in the order in which ranks happen to come. */
int weft_window_put_add(weft_window *w, int buffer, int rank, int64_t offset, const void *src, int64_t count);
/* Sets the rank's signal or adds to it (it wraps). Whoever waits for it sees all that this rank stored or put before.
 * Puts to ranks on other hosts are waited for, but not here: the signal goes when they have landed and this rank makes
 * progress. */
int weft_window_notify(weft_window *w, int rank, int signal, enum weft_notify how, uint64_t value);
/* Until this rank's signal compares so (unsigned), making progress with all execs of the comm. Timeout as for
 * weft_exec_wait. WEFT_ETIMEOUT names the signal; WEFT_EPEER: the comm failed, or nobody is left who could notify. */
int weft_window_wait(weft_window *w, int signal, enum weft_compare compare, uint64_t value, int64_t timeout_ns);
int weft_window_signal(const weft_window *w, int signal,
                       uint64_t *value); /* this rank's now; makes progress on several hosts */
/* All ranks of the comm, or this one and those n that list it in the same turn. Any number of times, and groups may
 * overlap: any two ranks must enter the barriers that both are in in one order. Timeout negative: the comm's deadline.
 * After WEFT_ETIMEOUT, which names who is missing, this rank is still in it: enter it again with the same ranks. */
int weft_window_barrier(weft_window *w, int64_t timeout_ns);
int weft_window_barrier_with(weft_window *w, const int *ranks, int n, int64_t timeout_ns);
void weft_window_close(weft_window *w); /* not collective: peers may use their pointers until they free theirs */

/* ---- exchange: messages whose sizes only their senders know, in rounds among declared neighbours ---- */

#define WEFT_EXCHANGE_SMALL 8192 /* bytes of a payload up to which put copies it and it travels with its metadata */

/* A message as it came, or as it is to go: metadata and payload, either may be empty. */
typedef struct weft_message {
    int from;       /* who sent it; not looked at in what is to go */
    uint64_t round; /* in which it was put, from 0 on; likewise */
    const void *meta;
    size_t meta_bytes;
    void *payload;
    size_t bytes;
} weft_message;

typedef struct weft_exchange_opts {
    size_t size;
    int64_t budget; /* bytes in flight: what this rank holds of messages that did not arrive yet; default 16 MiB */
    bool vote;      /* a round ends with a vote of all ranks of the comm; the same on all of them */
    /* Where a payload of at least one byte shall be stored; it must stay until the message is complete. NULL: not now,
     * ask again; its sender waits meanwhile. Called by whoever makes progress; it must not call weft. */
    void *(*buffer)(void *arg, int from, const void *meta, size_t meta_bytes, size_t bytes);
    void *arg;
} weft_exchange_opts;

/* Collective like bind: this rank will get messages from the ranks of one list and put them to those of the other.
 * Oneself, a rank that is not there or twice in a list, lists that do not match between ranks: refused on all ranks
 * with one text. What it allocates goes with the neighbours, not with the ranks. Free it before the comm is closed. */
int weft_exchange_open(weft_comm *c, const int *from, int nfrom, const int *to, int nto, const weft_exchange_opts *opts,
                       weft_exchange **out);
/* One message, from any thread, also several at once; those of one thread to one rank arrive in order. Metadata and
 * payloads up to WEFT_EXCHANGE_SMALL may be used again at once; a larger payload must stay as it is until the round is
 * complete. A small message may stay here until the next put, finish or test. When the budget is used up it waits for
 * room, and receives meanwhile: inside a callback that is WEFT_EBUSY. */
int weft_exchange_put(weft_exchange *x, int to, const void *meta, size_t meta_bytes, const void *payload, size_t bytes);
/* No more messages of this rank in this round; done is its vote. The round is complete here when all that was put to
 * this rank has come, all that it put was taken over, and, with votes, all ranks have voted. The next round begins with
 * the next put or finish after that was seen by test, by wait or by the callback. */
int weft_exchange_finish(weft_exchange *x, bool done);
int weft_exchange_test(weft_exchange *x, bool *complete);     /* true also when no round is in flight */
int weft_exchange_wait(weft_exchange *x, int64_t timeout_ns); /* as weft_exec_wait */
bool weft_exchange_over(const weft_exchange *x);              /* did all ranks vote done in the last complete round? */
/* Called once a round is complete or has failed, as for weft_exec_on_done. It may put, finish and take. NULL: none. */
int weft_exchange_on_done(weft_exchange *x, void (*done)(void *arg, int err), void *arg);
/* A descriptor that polls readable from when a round is complete or has failed until test, wait or the callback have
 * seen it. Somebody must make progress: a progress thread, or calls of test. It is closed with the exchange. */
int weft_exchange_fd(weft_exchange *x, int *fd);
/* The next message of a rank, or of any one (from -1), in the order in which that rank put them, also before the round
 * is complete; NULL: none yet. It is the caller's until weft_message_free, which any thread may call, even after the
 * exchange was freed. A payload in memory of the hook stays the hook's. From any thread. */
int weft_exchange_take(weft_exchange *x, int from, weft_message **out);
void weft_message_free(weft_message *m);
typedef struct weft_exchange_info {
    size_t size;
    uint64_t rounds;                         /* complete */
    uint64_t sent, received;                 /* messages */
    int64_t budget, inflight, inflight_peak; /* bytes, as in the options */
    int64_t untaken, untaken_peak; /* bytes that came and are not taken. Beyond the budget nothing more is let in before
                                      finish, unless put waits; from finish on all that the round brings */
    int64_t memory;                /* bytes of the exchange itself, rings included; the same for any number of ranks */
} weft_exchange_info;
int weft_exchange_stats(weft_exchange *x, weft_exchange_info *out); /* set out->size first */
/* Waits for a round in flight until the deadline, then fails the comm; likewise for ranks on other hosts to take what
 * was sent. What was not taken is freed. */
void weft_exchange_close(weft_exchange *x);

/* Exchange with the ranks before and after this one, in rounds in which each of them sends one message each way. */
int weft_halo_open(weft_comm *c, bool periodic, const weft_exchange_opts *opts, weft_halo **out);
/* NULL sends an empty message. done is the vote. Payloads must stay as they are until the round is complete. After an
 * error it may be called again; WEFT_EBUSY, when there was no room inside a callback: with the same messages, of which
 * one may have gone. */
int weft_halo_start(weft_halo *h, const weft_message *send_left, const weft_message *send_right, bool done);
/* The exchange below, to test, wait, notify, poll and ask whether all are done; not to put, take or free. */
weft_exchange *weft_halo_rounds(weft_halo *h);
/* What the last complete round brought, once; NULL where there is no neighbour. Free both. */
int weft_halo_take(weft_halo *h, weft_message **from_left, weft_message **from_right);
/* Start, wait and take. */
int weft_halo_exchange(weft_halo *h, const weft_message *send_left, const weft_message *send_right,
                       weft_message **from_left, weft_message **from_right);
void weft_halo_close(weft_halo *h);

/* ---- checkpoints: safetensors files from one parallelism to another, by ranged reads ---- */

/* Tensors that are stored as one, q, k and v for instance. The rules say which are. */
enum weft_fused { WEFT_FUSED_KEEP, WEFT_FUSED_JOIN, WEFT_FUSED_SPLIT };

typedef struct weft_checkpoint_opts {
    size_t size;
    const char *rules; /* a file of rules, or the name of one of the library's own; NULL: none, for whole tensors */
    const char *from;  /* the mesh whose ranks' files the input is, e.g. "tp8"; NULL: as the files say, else whole */
    const char *const *set; /* nset texts "name=number" for the rules; else the input's config.json has the numbers */
    int nset;
    enum weft_dtype dtype; /* that floats of 16 bits and more are cast to; 0: none */
    enum weft_fused fused; /* in the output: as in the input, all that can be joined, or none */
    int64_t memory;        /* bytes of buffers in all; default 256 MiB */
    int threads;           /* default 4 */
    int64_t shard;         /* bytes of a file, where the output is one rank's and a folder; default 5 GB */
    bool force;            /* replaces an output that is there already */
    /* Called now and then by the thread that waits here; a negative code ends it all and is returned. */
    int (*progress)(void *arg, int64_t done, int64_t bytes);
    void *arg;
} weft_checkpoint_opts;

typedef struct weft_checkpoint_info {
    size_t size;
    int64_t tensors; /* names in the output; fused ones count once */
    int64_t files_in, files_out;
    int64_t bytes_in, bytes_out; /* of tensors: read, written */
} weft_checkpoint_info;

/* Reads the checkpoint at `in` and writes it to `out` as the ranks of the mesh `to` ("tp4.pp2") hold it. `in` is a
 * safetensors file, a folder with one or with an index, a folder that this function wrote, or the files of ranks, %r
 * in the name being the rank. `out` is a folder, with a file for each rank; or, for one rank, a folder without weft's
 * notes, or a file NAME.safetensors. It appears complete or not at all. Memory: the buffers, and what the names and
 * headers take. info may be NULL. */
int weft_checkpoint_reshard(const char *in, const char *out, const char *to, const weft_checkpoint_opts *opts,
                            weft_checkpoint_info *info);
/* The rules that come with the library: their names, from 0 on, NULL after the last; and the text of one, NULL for
 * none. */
const char *weft_checkpoint_rules_name(int i);
const char *weft_checkpoint_rules(const char *name);

#ifdef __cplusplus
}
#endif
#endif
