/* weft moves sharded tensors between ranks. A plan is made once and run many times.
 *
 *   weft_layout_parse("f32[4096/x,512] @x4", &a);                which rank holds what, before
 *   weft_layout_parse("f32[4096,512/x] @x4", &b);                and after
 *   weft_lower(&(weft_move){"w", a, b}, 1, rank, NULL, &plan);   no data, no peers: pure arithmetic
 *   weft_comm_open("threads:4/job", &opts, &comm);               the ranks that take part
 *   weft_bind(plan, comm, &src, &dst, NULL, &exec);              collective: succeeds on all ranks or fails on all
 *   weft_exec_run(exec);                                         as often as needed
 *
 * A layout says which elements of a global tensor each rank holds, and how several copies of one element combine.
 * A plan gives the destination the value of the source, element by element. Every collective, every reshard and every
 * halo exchange is such a pair of layouts.
 *
 * Return values. A function of type int returns 0 or a negative WEFT_E code, and weft_errmsg() describes the error.
 * Outputs are set only if the function returns 0. The functions that return a number, a pointer or a truth value
 * instead of a code are:
 *   numbers: weft_version, weft_dtype_size, weft_layout_ranks, weft_plan_digest, weft_plan_tensors, weft_plan_rank,
 *     weft_plan_world, weft_comm_rank, weft_comm_size. None of them can fail.
 *   truth values: weft_layout_equal, weft_plan_equal, weft_exchange_over.
 *   pointers, NULL if there is nothing: weft_version_string, weft_strerror, weft_errmsg, weft_dtype_name, weft_op_name,
 *     weft_algorithm_name, weft_transport_name, weft_module_name, weft_way_name, weft_window_pointer,
 *     weft_window_signal_pointer.
 *
 * Structs that start with `size`. The caller sets size to sizeof of the struct, most simply with the initialiser
 * that stands below it: weft_comm_opts opts = WEFT_COMM_OPTS_INIT. A field that is zero has its default. A NULL pointer
 * to options means all defaults. Structs grow at their end, and both sides accept the other's size:
 *   - A smaller struct comes from a program that was compiled with an older weft.h. The fields that it lacks have their
 *     defaults; fields of an output that it lacks are not written.
 *   - A larger struct comes from a newer program. It is accepted if the bytes that this library does not know are zero,
 *     and refused with WEFT_EINVAL otherwise. In an output these bytes are set to zero.
 *   - A size of 0 was forgotten, and is refused. So is a size above 4096.
 *
 * Timeouts are nanoseconds. 0 polls once. WEFT_FOREVER waits until the call succeeds or fails. WEFT_DEADLINE waits as
 * long as the comm's deadline. Other negative values are refused. A call whose time ran out returns WEFT_ETIMEOUT.
 *
 * Types. The length of a list, and an index into one, is size_t. A rank, a number of ranks, dims or axes, and the
 * number of a buffer or a signal is int. Elements, and bytes of tensors, are int64_t.
 *
 * Texts. A function that fills a buffer with text or bytes sets *len to the full length, without the closing zero of
 * a text, and writes at most cap bytes. A function that fills a list sets *n to the full length and writes at most cap
 * entries. A buffer that is too small is not an error; with cap 0 the buffer may be NULL.
 *
 * Objects with peers are opened and closed, local ones are created and freed; weft_bind opens an exec. Close and free
 * accept NULL. Layouts and plans never change after they are made, and threads may share them. A comm, the comms that
 * were split from it, their execs, windows and exchanges belong to one thread at a time, and to their progress thread
 * if they have one; exceptions stand at the declarations. The library never prints, aborts or exits.
 *
 * Further headers: weft/collective.h (collectives in one call), weft/checkpoint.h (safetensors files), weft/store.h
 * (the rendezvous server), weft/halo.h (exchange with two neighbours), weft/bus.h (versions of tensors between jobs).
 * weft/log.h (records for a log). The manual page weft.h(3) has the details. */
#ifndef WEFT_H
#define WEFT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef WEFT_API
#if defined(__GNUC__)
#define WEFT_API __attribute__((visibility("default")))
#else
#define WEFT_API
#endif
#endif

/* The initialiser of a struct that starts with its size: all other fields are zero. */
#ifdef __cplusplus
template <typename T> static inline T weft_sized()
{
    T t = T();
    t.size = sizeof t;
    return t;
}
#define WEFT_SIZED(type) weft_sized<type>()
extern "C" {
#else
/* clang-format off */
#define WEFT_SIZED(type) {.size = sizeof(type)}
/* clang-format on */
#endif

#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 1
#define WEFT_VERSION_PATCH 0
#define WEFT_VERSION (WEFT_VERSION_MAJOR * 10000 + WEFT_VERSION_MINOR * 100 + WEFT_VERSION_PATCH)

#define WEFT_MAX_DIMS 8
#define WEFT_MAX_AXES 8
#define WEFT_MAX_NAME 31 /* letters of an axis name */

#define WEFT_FOREVER (-1)  /* a timeout: no limit */
#define WEFT_DEADLINE (-2) /* a timeout: the deadline of the comm */

typedef struct weft_layout weft_layout;
typedef struct weft_plan weft_plan;
typedef struct weft_comm weft_comm;
typedef struct weft_exec weft_exec;
typedef struct weft_window weft_window;
typedef struct weft_exchange weft_exchange;

enum weft_err {
    WEFT_OK = 0,
    WEFT_EINVAL = -1,       /* an argument, a layout or a file is wrong */
    WEFT_ENOMEM = -2,       /* out of memory, or a limit on memory was reached */
    WEFT_EUNSUPPORTED = -3, /* correct, but not possible here: see the limits in the docs */
    WEFT_EMISMATCH = -4,    /* the ranks do not agree (on plans, or on the order of calls) */
    WEFT_EBUSY = -5,        /* the object is in use */
    WEFT_ETIMEOUT = -6,     /* time ran out; what was waited for is still in flight */
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
    WEFT_F8E4M3, /* the OCP "fn" form: no infinities; what is too large for it becomes NaN */
    WEFT_F8E5M2, /* what is too large for it becomes an infinity */
    /* The same bits, but what is too large, infinities included, becomes the largest finite value with its sign. */
    WEFT_F8E4M3SAT,
    WEFT_F8E5M2SAT,
    WEFT_F8E8M0, /* a power of two, for scales: no sign, no zero, no infinity */
    WEFT_C64,    /* complex: two f32 */
    WEFT_C128    /* complex: two f64 */
};

enum weft_op { WEFT_SUM = 1, WEFT_PROD, WEFT_MIN, WEFT_MAX, WEFT_AVG, WEFT_BAND, WEFT_BOR, WEFT_BXOR };

/* Where memory is. Kinds that this version or this machine does not have are refused with WEFT_EUNSUPPORTED. */
enum weft_memory {
    WEFT_MEMORY_ANY = -1, /* of a view: the driver is asked */
    WEFT_MEMORY_HOST = 0,
    WEFT_MEMORY_CUDA = 1 /* of the CUDA device with a number */
};

WEFT_API uint32_t weft_version(void);            /* WEFT_VERSION of the library that was loaded */
WEFT_API const char *weft_version_string(void);  /* "0.1.0" */
WEFT_API const char *weft_strerror(int err);     /* a few words for a code; never NULL */
WEFT_API const char *weft_errmsg(void);          /* this thread's last error in detail, until its next error */
WEFT_API const char *weft_dtype_name(int dtype); /* "f32"; NULL if there is no such dtype */
WEFT_API size_t weft_dtype_size(int dtype);      /* bytes of one element; 0 if there is no such dtype */
WEFT_API const char *weft_op_name(int op);       /* "sum"; NULL if there is no such operation */

/* ---- layouts ---- */

/* The struct form of a layout. The text form and the struct form give the same object. */
typedef struct {
    const char *name;
    int64_t size;
} weft_axis;
typedef struct {
    const char *axis;
    int64_t block; /* 0: each coordinate has one contiguous chunk; k > 0: blocks of k elements, dealt round-robin */
} weft_split;
typedef struct {
    int64_t extent;
    weft_split splits[WEFT_MAX_AXES]; /* outermost first */
    int nsplits;
    int64_t lo, hi; /* ghosts before and after a rank's piece */
    bool wrap;      /* ghosts wrap round */
} weft_dim;
typedef struct {
    enum weft_op op;
    const char *over[WEFT_MAX_AXES + 1]; /* names of axes, or "~" for the ghosts */
    int nover;
} weft_fold;
/* A flag of weft_layout_desc: ghosts without corners. What is a ghost in two or more dims is no copy of an element: it
 * is neither filled nor read. A stencil that reads along one dim at a time needs no more. The text form is "]+". */
#define WEFT_LAYOUT_FACES 1
/* Boxes, one list for each rank, instead of a mesh: the struct form of "f32[8] @{0: [0:4]; 1: [4:8]}". A box has a
 * place in the global tensor and a place in the buffer of its rank, which is flat: strides say how far apart the
 * elements are along each dim, so that a box may be permuted or lie between others. Box i is the one of rank[i], and of
 * at[i * ndim] and on. Boxes without elements are left out. */
typedef struct weft_boxes {
    size_t n; /* boxes of all ranks */
    const int *rank;
    const int64_t *at, *len; /* n times ndim */
    const int64_t *offset;   /* n: the slot of the first element. NULL: each box begins where those of its rank that
                                stand before it end */
    const int64_t *stride;   /* n times ndim, in elements, at least 1. NULL: each box is dense, row-major */
} weft_boxes;
/* Flags of a layout of boxes. Without them, each element is in exactly one box. An element in several boxes has equal
 * copies there. An element in no box of the source stays as it is in the destination. */
#define WEFT_LAYOUT_OVERLAPS 2 /* an element may be in several boxes; the text form is "+overlaps" */
#define WEFT_LAYOUT_GAPS 4     /* an element may be in no box; the text form is "+gaps" */
/* Scales of a tensor of f8: each block of elements has one scale, and stands for its values times that scale. The text
 * form is "*f32(128,128)", with the blocks of the last dims. The scales are a tensor of their own (weft_layout_scales).
 * Only for layouts without folds and ghosts, of at most 7 dims. */
typedef struct weft_scale {
    enum weft_dtype dtype; /* WEFT_F32: largest absolute value / largest value of the format; WEFT_F8E8M0: as OCP MX */
    int64_t block[WEFT_MAX_DIMS]; /* extent of a block in each dim, at least 1; the last blocks may be cut short */
} weft_scale;
typedef struct weft_layout_desc {
    size_t size;
    enum weft_dtype dtype;
    int ndim, naxes, nfolds; /* entries of dims, axes and folds */
    const weft_dim *dims;
    const weft_axis *axes;
    const int *ranks; /* of the mesh, in row-major order; NULL: 0, 1, 2, ... */
    const weft_fold *folds;
    uint64_t flags;          /* WEFT_LAYOUT_FACES; with boxes WEFT_LAYOUT_OVERLAPS and WEFT_LAYOUT_GAPS */
    const weft_boxes *boxes; /* NULL: a mesh. Otherwise dims have extents alone, and naxes, nfolds and ranks are 0 */
    const weft_scale *scale; /* NULL: the values have no scales */
} weft_layout_desc;
#define WEFT_LAYOUT_DESC_INIT WEFT_SIZED(weft_layout_desc)

/* The shape of one rank's buffer. A rank outside the mesh, or without boxes, holds nothing: its bytes are 0. With boxes
 * the buffer is flat, one dim whatever the tensor has, as long as the boxes reach. */
typedef struct weft_local {
    bool holds; /* the rank is in the mesh */
    int ndim;
    int64_t shape[WEFT_MAX_DIMS];    /* with ghosts; dense, row-major */
    int64_t interior[WEFT_MAX_DIMS]; /* index of the first element that is not a ghost, in each dim */
    int64_t inner[WEFT_MAX_DIMS];    /* shape without ghosts */
    int64_t count;                   /* elements, with ghosts */
    int64_t bytes;
} weft_local;

/* A box of global elements, and its place in the local buffer: an index for each dim. In a layout of boxes local[0] is
 * the slot of the first element. */
typedef struct weft_box {
    int64_t at[WEFT_MAX_DIMS], len[WEFT_MAX_DIMS], local[WEFT_MAX_DIMS];
} weft_box;

/* The error text shows the layout with a caret below the place that is wrong. Boxes may also be given as JSON
 * (weft_layout_json). */
WEFT_API int weft_layout_parse(const char *text, weft_layout **out);
WEFT_API int weft_layout_create(const weft_layout_desc *desc, weft_layout **out);
/* The struct form of a layout. Set out->size first. The pointers in *out are valid until the layout is freed, and ranks
 * is not NULL, except with boxes: these come by rank, with the places of all. */
WEFT_API int weft_layout_describe(const weft_layout *l, weft_layout_desc *out);
/* The layout of gradients: copies become terms of a sum and terms of a sum become copies, on free axes and on ghosts.
 * Layouts with another operation than sum are refused. */
WEFT_API int weft_layout_dual(const weft_layout *l, weft_layout **out);
/* The same elements at the same places as boxes. Refused for folds and for ghosts. */
WEFT_API int weft_layout_boxed(const weft_layout *l, weft_layout **out);
/* Boxes of the tensor with its dims in another order: dim d of the result is dim order[d] of l. The buffers stay as
 * they are. */
WEFT_API int weft_layout_permute(const weft_layout *l, const int *order, weft_layout **out);
/* Boxes of the tensor with dims split or joined: its elements in row-major order are those of the new shape. The
 * buffers stay as they are. A box that is no box of the new shape becomes several. Refused if a dim of either shape is
 * not a product of dims of the other or a factor of one. */
WEFT_API int weft_layout_reshape(const weft_layout *l, int ndim, const int64_t *extents, weft_layout **out);
/* The layout of the scales of a layout that has some: one element for each block, on all ranks that hold a part of the
 * block. If no block is cut by the splits of a mesh, it is the same mesh. Otherwise it is boxes: the blocks of each box
 * of weft_layout_boxes, dense, one box behind the other. */
WEFT_API int weft_layout_scales(const weft_layout *l, weft_layout **out);
WEFT_API int weft_layout_format(const weft_layout *l, char *buf, size_t cap, size_t *len);
/* Boxes as JSON, which weft_layout_parse reads: {"dtype": "f32", "shape": [8], "boxes": [{"rank": 0, "at": [0],
 * "len": [8], "offset": 0, "stride": [1]}]}, with "overlaps": true and "gaps": true where they are allowed. In a text
 * to be read, offset and stride are in all boxes or in none. Refused for a mesh. */
WEFT_API int weft_layout_json(const weft_layout *l, char *buf, size_t cap, size_t *len);
WEFT_API bool weft_layout_equal(const weft_layout *a, const weft_layout *b);
WEFT_API int weft_layout_ranks(const weft_layout *l); /* the largest rank in it, plus one */
WEFT_API int weft_layout_local(const weft_layout *l, int rank, weft_local *out);
/* The boxes of the elements that a rank owns (no ghosts), in the order of its buffer. */
WEFT_API int weft_layout_boxes(const weft_layout *l, int rank, weft_box *out, size_t cap, size_t *n);
/* The parts of a buffer that a stencil treats differently, if it reads as far as the ghosts reach. Each element of the
 * buffer is in exactly one box of one part. */
enum weft_halo_part {
    WEFT_HALO_INNER = 1, /* own elements that need no ghost: they can be computed while an exchange is in flight */
    WEFT_HALO_RIM,       /* the other own elements */
    WEFT_HALO_GHOSTS,    /* filled by an exchange; `at` is the element that the ghost is a copy of */
    WEFT_HALO_EDGES      /* never written: beyond an end that does not wrap round (`at` is below 0 or not below the
                            extent in some dim), and the corners of a layout without corners */
};
/* The boxes of one part, ordered by faces, edges and corners. The rim has at most two boxes per dim, each as long as
 * possible. */
WEFT_API int weft_layout_halo(const weft_layout *l, int rank, enum weft_halo_part part, weft_box *out, size_t cap,
                              size_t *n);
WEFT_API void weft_layout_free(weft_layout *l);

/* ---- plans ---- */

/* One tensor to move. The name is part of the plan's digest; NULL is the same as "". If a side has scales, the plan has
 * two tensors for it: the values, and behind them the scales, "NAME.scale". A side without scales may be f32, bf16 or
 * f16: scales are made of its values, or it gets the values times their scales. */
typedef struct {
    const char *name;
    const weft_layout *src, *dst;
} weft_move;

/* What lowering knows of the machine. The same on all ranks. */
typedef struct weft_machine {
    size_t size;
    int ranks_per_host;   /* ranks r with the same r / ranks_per_host share a host; 0: all ranks share one */
    int64_t latency_ns;   /* of a message between hosts; default 2000 */
    int64_t bytes_per_us; /* of one host's link; default 12500 (100 Gbit/s) */
    int ranks;            /* entries of host; 0 if host is NULL */
    const int *host;      /* the host of each rank, from 0 on, if ranks_per_host cannot express it; otherwise NULL */
    /* The following are for the choice of an algorithm alone, and are not part of a saved plan. */
    int64_t inside_latency_ns;      /* of a message inside a host; default 2000 */
    int64_t inside_bytes_per_us;    /* of a rank's port, each direction, if a link joins the ranks of a host; 0: they
                                       share memory */
    int64_t copy_bytes_per_us;      /* what a rank copies or folds; default 20000 */
    int64_t host_copy_bytes_per_us; /* what all ranks of a host copy or fold; 0: as much as each of them can */
    int64_t core_bytes_per_us;      /* what a core moves through a link between hosts; 0: the link needs no core */
    int64_t message_ns;             /* a rank's own time for a message, at either end; default 200 */
    int64_t launch_ns;              /* a rank's own time for a kernel, if a link joins the ranks of a host */
    int links;                      /* of a host, which make up bytes_per_us and which its ranks share; default 1 */
    int cores;                      /* that the ranks of a host share; 0: each rank has one */
} weft_machine;
#define WEFT_MACHINE_INIT WEFT_SIZED(weft_machine)

typedef struct weft_lower_opts {
    size_t size;
    int64_t bucket; /* bytes of a message: small chunks to one peer share a message, larger ones are cut; default 4 MiB.
                       1: each chunk is one message */
    const char *algorithm;       /* NULL: weft chooses; otherwise a weft_algorithm_name(), refused if it does not fit */
    bool in_place;               /* a fold may be bound with source and destination at the same address */
    int world;                   /* ranks in the world; 0: as many as the layouts need */
    const weft_machine *machine; /* NULL: one host */
} weft_lower_opts;
#define WEFT_LOWER_OPTS_INIT WEFT_SIZED(weft_lower_opts)

typedef struct weft_stats {
    size_t size;
    size_t tensors;
    int rank, world;
    int send_peers, recv_peers;
    const char *kind;       /* of the move ("allreduce"); "reshard" for any other, "mixed" for several kinds */
    const char *algorithm;  /* chosen or forced */
    int64_t sent, received; /* bytes in messages */
    int64_t copied, folded; /* bytes copied inside this rank; bytes that folds read */
    int64_t bound;          /* this rank's share of the lower bound on bytes sent; the sum over ranks is the bound */
    int64_t stated;         /* this rank's share of the bytes that the algorithm states; equals bound for "direct" */
    int64_t scratch;        /* bytes of temporary memory in the plan */
    int64_t steps;          /* of the plan */
    int64_t sends, recvs;   /* messages */
    int64_t chunks;         /* pieces of tensors in these messages */
    int64_t largest_send, largest_recv; /* bytes of the largest message in each direction */
    int64_t memory;                     /* bytes of the plan itself */
} weft_stats;
#define WEFT_STATS_INIT WEFT_SIZED(weft_stats)

/* One rank's plan for n moves together. Pure: no communication, no clock, no environment. */
WEFT_API int weft_lower(const weft_move *moves, size_t n, int rank, const weft_lower_opts *opts, weft_plan **out);
/* A collective by its usual name. It is a pair of layouts as any other move. */
typedef struct weft_collective {
    size_t size;
    const char *kind; /* broadcast scatter gather reduce allgather reduce_scatter allreduce all_to_all send permute */
    enum weft_dtype dtype;
    enum weft_op op;  /* of reduce, reduce_scatter and allreduce; default sum */
    int64_t count;    /* elements: of the whole for broadcast, reduce, allreduce, send; otherwise of one rank's part */
    const int *ranks; /* the group; NULL: 0 to n - 1 */
    size_t n;         /* ranks in the group */
    int root;         /* of broadcast, scatter, gather, reduce; the sender of send. It need not be in the group */
    const int *to;    /* permute: to[i] gets the part of ranks[i] */
} weft_collective;
#define WEFT_COLLECTIVE_INIT WEFT_SIZED(weft_collective)
WEFT_API int weft_lower_collective(const weft_collective *c, int rank, const weft_lower_opts *opts, weft_plan **out);
/* The two layouts of a collective, for instance to ask for the sizes of buffers. The caller frees both. */
WEFT_API int weft_collective_layouts(const weft_collective *c, weft_layout **src, weft_layout **dst);
/* The algorithms that weft_lower_opts can force, from index 0 on; NULL after the last. */
WEFT_API const char *weft_algorithm_name(size_t i);
WEFT_API int weft_plan_explain(const weft_plan *p, bool json, char *buf, size_t cap, size_t *len);
WEFT_API int weft_plan_stats(const weft_plan *p, weft_stats *out); /* set out->size first */
/* What this rank exchanges with each of its peers, ordered by rank. */
typedef struct weft_peer {
    int rank;
    int64_t sent, received; /* bytes */
    int64_t sends, recvs;   /* messages */
} weft_peer;
WEFT_API int weft_plan_peers(const weft_plan *p, weft_peer *out, size_t cap, size_t *n);
/* A box of a tensor's destination that one step of the plan completes. */
typedef struct weft_arrival {
    size_t tensor; /* index of the move */
    weft_box box;
} weft_arrival;
/* All such boxes of this rank, in a fixed order. The boxes are disjoint and cover everything that a run writes. */
WEFT_API int weft_plan_arrivals(const weft_plan *p, weft_arrival *out, size_t cap, size_t *n);
/* Proves without data that the plans of all ranks (all[r] is that of rank r) are correct together, or reports what is
 * wrong and where. */
WEFT_API int weft_plan_verify(const weft_plan *const *all, size_t ranks);
WEFT_API uint64_t weft_plan_digest(const weft_plan *p); /* of moves and options: the same on every rank */
WEFT_API bool weft_plan_equal(const weft_plan *a, const weft_plan *b);
WEFT_API int weft_plan_save(const weft_plan *p, void *buf, size_t cap, size_t *len);
WEFT_API int weft_plan_load(const void *buf, size_t len, weft_plan **out); /* checks everything in buf */
/* What the plan was made of. The pointers in *out are valid as long as the plan. */
WEFT_API size_t weft_plan_tensors(const weft_plan *p);
WEFT_API int weft_plan_tensor(const weft_plan *p, size_t i, weft_move *out);
WEFT_API int weft_plan_rank(const weft_plan *p);
WEFT_API int weft_plan_world(const weft_plan *p);
WEFT_API void weft_plan_free(weft_plan *p);

/* ---- comms: the ranks that take part, and how they reach each other ---- */

/* Which thread makes progress with what is in flight. With WEFT_PROGRESS_THREAD, weft has a thread for the comm that
 * was opened and for all comms that are split from it. This thread completes what was started and runs the callbacks.
 * It sleeps while there is nothing to do, and ends with the last of these comms. The caller still makes its calls from
 * one thread at a time, or from a callback on whichever thread that runs. Start and test never wait for the progress
 * thread; other calls may wait for one of its passes, or for a callback.
 * After fork, the child has no progress thread and must not use the comm. Freeing or closing it in the child does not
 * affect the parent. */
enum weft_progress {
    WEFT_PROGRESS_CALLER, /* test, wait and the other calls that wait make progress */
    WEFT_PROGRESS_THREAD  /* a thread of weft makes progress, and these calls too */
};

typedef struct weft_comm_opts {
    size_t size;
    int rank;                    /* of the caller, for threads:N, or if ranks is set */
    int64_t deadline_ns;         /* a rank without progress for this long has failed; default 30 s */
    int64_t inflight_bytes;      /* of staging memory, over all peers; default 64 MiB */
    int inflight_buckets;        /* messages in staging memory, over all peers; default 256 */
    int channel_buckets;         /* messages in flight to one peer; default 4 */
    bool staged;                 /* use staging memory even between ranks that reach each other's memory */
    int ranks;                   /* number of ranks, for shm:NAME; 0: rank and ranks come from the launcher */
    enum weft_progress progress; /* which thread makes progress */
    const void *communicator;    /* mpi: points to an MPI_Comm, which is duplicated; NULL: MPI_COMM_WORLD */
} weft_comm_opts;
#define WEFT_COMM_OPTS_INIT WEFT_SIZED(weft_comm_opts)

/* Joins a comm. Every rank opens the same URL with its own rank, and waits for the others until the deadline.
 *   self:            one rank
 *   threads:N/NAME   N threads of one process
 *   shm:NAME         processes of one machine, by shared memory
 *   tcp:NAME         all messages by sockets
 *   ucx:NAME         all messages by UCX
 *   mpi:             all messages by the MPI that started the ranks; also mpi:openmpi, mpi:mpich
 *   auto:NAME        shared memory inside a host; between hosts UCX, sockets, or, if WEFT_AT is not set, MPI
 * NULL opens the job that the launcher (weft run, mpirun, mpiexec, srun, torchrun) started. The URL is then $WEFT_URL
 * if set; auto: if the job spans several machines or WEFT_AT is set; shm: otherwise. If the URL has no name, the job's
 * name is used. */
WEFT_API int weft_comm_open(const char *url, const weft_comm_opts *opts, weft_comm **out);
/* The transports of this build, as their URLs look, from index 0 on; NULL after the last. */
WEFT_API const char *weft_transport_name(size_t i);
/* The modules that are installed with this build, from index 0 on; NULL after the last. A module uses another library
 * to carry messages between hosts. */
WEFT_API const char *weft_module_name(size_t i);
/* Describes the devices whose memory this process can use: their names, driver, MPS, how memory is shared between
 * processes, and how weft moves it. If there are none, it says why. It loads the device's module and its driver. */
WEFT_API int weft_device_explain(bool json, char *buf, size_t cap, size_t *len);
/* Collective over c: makes a comm of the n listed ranks, numbered in the order of the list. All of them pass the same
 * list. A rank that joins no group passes n = 0 and gets NULL. Several groups may form in one call. By several calls a
 * rank may be in groups that overlap. Each group has the options of c, and execs, windows, barriers and failures of
 * its own; waiting in one makes progress in all. If lists differ, contain a rank twice or a rank that does not exist,
 * or leave out the caller, all ranks of c are refused with one text that names the rank. A comm may be closed before or
 * after those split from it. If c spans hosts, a group inside one host does not use the network, and any other group
 * has connections of its own. */
WEFT_API int weft_comm_split(weft_comm *c, const int *ranks, size_t n, weft_comm **out);
WEFT_API int weft_comm_rank(const weft_comm *c);
WEFT_API int weft_comm_size(const weft_comm *c);
/* The machine that this comm runs on, for weft_lower_opts. Set out->size first. host is valid until the comm is
 * closed. */
WEFT_API int weft_comm_machine(const weft_comm *c, weft_machine *out);
/* Allocates memory that the peers on this host reach without a copy in between: in this comm, in those split from it
 * and in the one it was split from. The memory is zero, resident, and aligned to 128 bytes or more. Not collective. It
 * lives until weft_comm_free on the same comm, or until the comm is closed; no exec may be bound to it then. */
WEFT_API int weft_comm_alloc(weft_comm *c, size_t bytes, enum weft_memory memory, int device, void **out);
WEFT_API void weft_comm_free(weft_comm *c, void *ptr); /* frees the memory, not the comm */
/* Collective. After WEFT_ETIMEOUT this rank is still in the barrier: enter it again before any other collective call.
 */
WEFT_API int weft_comm_barrier(weft_comm *c, int64_t timeout_ns);
/* After the comm has failed, or a rank of it has died; collective among the ranks that are left. Lists these ranks in
 * ascending order, the same list on all of them. The list leaves out ranks that have died. It leaves out ranks that
 * cannot be reached, or that do not call within the deadline, only if more than half of all ranks agree. Otherwise, and
 * on a rank that the others have left out, it is WEFT_EPEER. */
WEFT_API int weft_comm_survivors(weft_comm *c, int *ranks, size_t cap, size_t *n);
/* Collective among n ranks of an opened comm, such as its survivors, listed in ascending order. Opens a new comm of
 * these ranks in the same way, numbered in the order of the list. c stays, and has to be closed. If one of them dies
 * meanwhile, all others get WEFT_EPEER, and ask for the survivors of c again; or all get the comm, which then fails. */
WEFT_API int weft_comm_reopen(weft_comm *c, const int *ranks, size_t n, weft_comm **out);
/* Describes in JSON what this rank has in flight, which ranks it waits for and what it did last. If WEFT_FLIGHT=DIR is
 * set, each rank writes the same text there when a wait times out or the comm fails; weft diagnose reads it. */
WEFT_API int weft_comm_dump(weft_comm *c, char *buf, size_t cap, size_t *len);

/* What this rank has done on the comm, for a monitoring system. Calls each(arg, m) for every sample, in the calling
 * thread; those of one name follow each other. What *m points to is valid until `each` returns, which must make no call
 * on the comm. Times of runs and waits are among them only if WEFT_METRICS was set when the comm was opened.
 * docs/trace.md lists the samples. */
enum weft_metric_type { WEFT_METRIC_GAUGE, WEFT_METRIC_COUNTER, WEFT_METRIC_HISTOGRAM };
typedef struct weft_metric {
    size_t size;
    const char *name; /* for example "weft_sent_bytes" */
    enum weft_metric_type type;
    const char *unit;          /* "bytes", "seconds", or empty */
    const char *help;          /* one sentence */
    const char *const *labels; /* nlabels names, each followed by its value */
    size_t nlabels;
    double value;            /* of a histogram: the sum */
    uint64_t count;          /* of a histogram: how many values there were, */
    const double *bounds;    /* and for each of nbuckets bounds, ascending, */
    const uint64_t *buckets; /* how many were at most that */
    size_t nbuckets;
} weft_metric;
WEFT_API int weft_comm_metrics(weft_comm *c, void (*each)(void *arg, const weft_metric *m), void *arg);
/* The same as OpenMetrics text. */
WEFT_API int weft_comm_metrics_text(weft_comm *c, char *buf, size_t cap, size_t *len);
/* Close its execs, windows and exchanges first: this does not close them. */
WEFT_API void weft_comm_close(weft_comm *c);

/* ---- execs: a plan with memory and peers ---- */

/* A rank's buffer for one tensor. data may be NULL if the rank holds nothing. */
typedef struct weft_view {
    void *data;
    size_t bytes;           /* size of the buffer */
    const int64_t *strides; /* in bytes, one for each dim of the local shape; NULL: dense, row-major */
    int32_t memory;         /* enum weft_memory */
    int32_t device;         /* the number of the device; 0 for host memory */
    uint64_t reserved[2];   /* 0 */
} weft_view;
/* clang-format off */
#define WEFT_VIEW_INIT {NULL, 0, NULL, WEFT_MEMORY_HOST, 0, {0, 0}}
#define WEFT_VIEW(data, bytes) {(data), (bytes), NULL, WEFT_MEMORY_HOST, 0, {0, 0}} /* dense, in host memory */
/* clang-format on */

typedef struct weft_bind_opts {
    size_t size;
    int64_t deadline_ns; /* for the ranks to meet in this call; 0: that of the comm */
    const char *ways;    /* drivers and ways not to use, "-eager,-weave" (weft_way_name); NULL: those of WEFT_WAYS */
    int64_t check;       /* 1: every message is proved by sums at both ends; -1: none is; 0: as WEFT_CHECK says. The
                          * same on all ranks */
} weft_bind_opts;
#define WEFT_BIND_OPTS_INIT WEFT_SIZED(weft_bind_opts)
/* The drivers, ways and orders of copying that can be switched off, from index 0 on; NULL after the last. */
WEFT_API const char *weft_way_name(size_t i);

/* Collective, in the same order on all ranks. src and dst have one view for each tensor; either may be NULL if the rank
 * holds nothing there. The view of scales on a side without scales is ignored. If on any rank a buffer is too small,
 * buffers overlap illegally, the memory is of a kind that is not supported or the plan is another one, all ranks are
 * refused with one text that names the rank. After bind nothing is allocated, with one exception: over sockets, a
 * message that arrives before its run has started is buffered. The plan and the comm must outlive the exec. */
WEFT_API int weft_bind(const weft_plan *p, weft_comm *c, const weft_view *src, const weft_view *dst,
                       const weft_bind_opts *opts, weft_exec **out);
/* Collective. Continues with other buffers. Refused while a run is in flight. */
WEFT_API int weft_exec_rebind(weft_exec *x, const weft_view *src, const weft_view *dst);
/* Starts a run. Until it is done, the source must not change and the destination must not be used. */
WEFT_API int weft_exec_start(weft_exec *x);
/* Starts a run in the order of a device's stream (a CUstream): after the work that is in the stream, and before the
 * work that is added later. Each rank calls it with a stream of its own. If the memory of all ranks is on one device,
 * and the ranks can share it, the host does not wait, and the exec may be started on the same stream again before the
 * run is over. Otherwise the host carries the data, and the call returns when the run is over. Refused with
 * WEFT_EUNSUPPORTED if all buffers of this rank are in host memory and no other rank's are on a device.
 * If the stream is being captured into a graph, the run is recorded: it takes place each time the graph is launched,
 * and weft_exec_wait knows nothing of it. Each rank captures the run, and launches its graph as often as the others, in
 * the same place among its other runs. The exec must not be closed or bound again before the last launch is done.
 * Refused with WEFT_EUNSUPPORTED if the host carries the data, or if the ranks are processes that share the device
 * without MPS. */
WEFT_API int weft_exec_start_on(weft_exec *x, void *stream);
WEFT_API int weft_exec_test(weft_exec *x, bool *done);
/* WEFT_ETIMEOUT: the text names the ranks that are waited for. */
WEFT_API int weft_exec_wait(weft_exec *x, int64_t timeout_ns);
WEFT_API int weft_exec_run(weft_exec *x); /* start and wait */
/* Sets a callback that is called once per run, when it completes or fails. It runs inside test or wait, or on the
 * progress thread. It may start and close execs and close comms. It must not block: neither in a weft call nor on
 * the thread that calls weft. NULL: none. */
WEFT_API int weft_exec_on_done(weft_exec *x, void (*done)(void *arg, int err), void *arg);
/* Reports the destination piece by piece, in the runs that are started from now on. The callback is called as soon as
 * box i of weft_plan_arrivals has its final values, under the rules of weft_exec_on_done. NULL: the caller asks
 * weft_exec_arrived. Refused while a run is in flight. */
WEFT_API int weft_exec_on_arrival(weft_exec *x, void (*arrived)(void *arg, size_t i, const weft_arrival *a), void *arg);
/* The boxes that are complete in the last run that was started, in the order of their completion. Makes no progress. */
WEFT_API int weft_exec_arrived(const weft_exec *x, size_t *out, size_t cap, size_t *n);
typedef struct weft_exec_info {
    size_t size;
    int64_t runs;                        /* that completed */
    int64_t staging_peak, staging_limit; /* bytes of the comm's staging memory in use: the most so far, and the limit */
    int64_t checked;                     /* messages that this rank has received and checked (weft_bind_opts.check) */
} weft_exec_info;
#define WEFT_EXEC_INFO_INIT WEFT_SIZED(weft_exec_info)
WEFT_API int weft_exec_stats(const weft_exec *x, weft_exec_info *out); /* set out->size first */
/* Describes what bind has chosen on this rank: the driver of its runs, the way of each message and why, the bytes that
 * are packed, which buffers are mirrored on a device or on the host and why, and whether each rank was assumed to have
 * a core of its own. */
WEFT_API int weft_exec_explain(const weft_exec *x, bool json, char *buf, size_t cap, size_t *len);
/* Waits for a run in flight until the deadline, and then fails the comm. */
WEFT_API void weft_exec_close(weft_exec *x);

/* ---- windows: memory of the same shape on every rank, which all ranks load from, store to and wait on ---- */

typedef struct weft_buffer {
    const char *name; /* not empty, different for each buffer */
    enum weft_dtype dtype;
    int64_t count;  /* elements on each rank, 0 or more */
    size_t align;   /* of the buffer on every rank: a power of two up to 4096; 0: 128; at least the element's size */
    int32_t memory; /* WEFT_MEMORY_HOST or WEFT_MEMORY_CUDA */
    int32_t device; /* the number of the device, one for all buffers; 0 for host memory */
    uint64_t reserved[2]; /* 0 */
} weft_buffer;
/* clang-format off */
#define WEFT_BUFFER_INIT {NULL, (enum weft_dtype)0, 0, 0, WEFT_MEMORY_HOST, 0, {0, 0}}
#define WEFT_BUFFER(name, dtype, count) {(name), (dtype), (count), 0, WEFT_MEMORY_HOST, 0, {0, 0}} /* in host memory */
/* clang-format on */
enum weft_notify { WEFT_NOTIFY_SET = 1, WEFT_NOTIFY_ADD };
enum weft_compare { WEFT_EQ = 1, WEFT_NE, WEFT_GE, WEFT_GT, WEFT_LE, WEFT_LT };

/* Collective like bind: n buffers and `signals` 64-bit counters on each rank, all zero when the call returns. If ranks
 * ask for different things, all are refused with a text that names the first rank that differs. */
WEFT_API int weft_window_open(weft_comm *c, const weft_buffer *buffers, size_t n, int signals, weft_window **out);
WEFT_API int weft_window_find(const weft_window *w, const char *name, int *buffer); /* the buffer's number */
/* The address of a rank's buffer in this process, to load from and store to; order these by notify and wait, or by a
 * barrier. NULL if there is no such buffer or rank. Also NULL if the rank is on another host, which only put reaches:
 * the thread's error is WEFT_EUNSUPPORTED then. If the buffer is on a device, kernels use the address, not the host. */
WEFT_API void *weft_window_pointer(const weft_window *w, int buffer, int rank);
/* The address of a rank's signal for kernels, if the window has buffers on a device: 8 bytes, aligned to 8. A kernel
 * sets it by a store with release at system scope, and waits by loads with acquire at system scope. Kernels do not add:
 * the signals are in host memory, where adds of a device are not atomic with those of the host. NULL if there is no
 * such signal or rank, or no buffer on a device. */
WEFT_API void *weft_window_signal_pointer(const weft_window *w, int rank, int signal);
/* Stores count elements of src into the rank's buffer, from element offset on. src may be reused when the call returns.
 * On another host, the owner stores them: in any of its calls that make progress, or on its progress thread. A put that
 * is too large to be buffered waits for the owner, and handles incoming puts meanwhile. WEFT_EPEER: the comm failed,
 * for instance because the owner took nothing for as long as the deadline. */
WEFT_API int weft_window_put(weft_window *w, int buffer, int rank, int64_t offset, const void *src, int64_t count);
/* Adds instead. Each element's add is atomic among all put_add calls, for any dtype except bool. Floats are rounded
 * after each add, in the order in which the ranks arrive. */
WEFT_API int weft_window_put_add(weft_window *w, int buffer, int rank, int64_t offset, const void *src, int64_t count);
/* Sets a signal of the rank, or adds to it (it wraps). A rank that sees the new value also sees everything that this
 * rank stored or put before. With puts to other hosts on their way, the call does not wait: the signal is sent when
 * they have been stored, while this rank makes progress. */
WEFT_API int weft_window_notify(weft_window *w, int rank, int signal, enum weft_notify how, uint64_t value);
/* Waits until this rank's signal compares with the value as asked (unsigned), and makes progress with everything on the
 * comm. WEFT_ETIMEOUT: the text names the signal. WEFT_EPEER: the comm failed, or no rank is left that could notify. */
WEFT_API int weft_window_wait(weft_window *w, int signal, enum weft_compare compare, uint64_t value,
                              int64_t timeout_ns);
/* The value of this rank's signal now. On several hosts the call makes progress. */
WEFT_API int weft_window_signal(const weft_window *w, int signal, uint64_t *value);
/* barrier: all ranks of the comm. barrier_with: this rank and the n listed ones, each of which must list the others.
 * Groups may overlap, but two ranks that share several barriers must enter them in the same order. WEFT_ETIMEOUT: the
 * text names the missing ranks, and this rank is still in the barrier: enter it again with the same ranks. */
WEFT_API int weft_window_barrier(weft_window *w, int64_t timeout_ns);
WEFT_API int weft_window_barrier_with(weft_window *w, const int *ranks, size_t n, int64_t timeout_ns);
WEFT_API void weft_window_close(weft_window *w); /* not collective: peers may use the memory until they close theirs */

/* ---- exchanges: messages whose sizes only the sender knows, in rounds among declared neighbours ---- */

#define WEFT_EXCHANGE_SMALL 8192 /* payloads up to this many bytes are copied by put and travel with their metadata */

/* A message that was received, or one to send: metadata and payload, either may be empty. */
typedef struct weft_message {
    int from;       /* the sender; ignored in a message to send */
    uint64_t round; /* in which it was put, from 0 on; ignored in a message to send */
    const void *meta;
    size_t meta_bytes;
    void *payload;
    size_t bytes;
} weft_message;

typedef struct weft_exchange_opts {
    size_t size;
    int64_t budget; /* bytes in flight: what this rank has put and its receivers have not taken over; default 16 MiB */
    bool vote;      /* each round ends with a vote of all ranks of the comm; the same on all ranks */
    /* Returns the memory for a payload of one byte or more; it must stay valid until the message is complete. NULL: not
     * now; it is asked again, and the sender waits meanwhile. Called by the thread that makes progress. It must not
     * call weft. */
    void *(*buffer)(void *arg, int from, const void *meta, size_t meta_bytes, size_t bytes);
    void *arg;
} weft_exchange_opts;
#define WEFT_EXCHANGE_OPTS_INIT WEFT_SIZED(weft_exchange_opts)

/* Collective like bind. This rank will receive messages from the ranks of one list and send to those of the other. All
 * ranks are refused with one text if a list contains the caller, a rank that does not exist or a rank twice, or if the
 * lists of two ranks do not match. Memory grows with the number of neighbours, not with the number of ranks. Close it
 * before the comm. */
WEFT_API int weft_exchange_open(weft_comm *c, const int *from, size_t nfrom, const int *to, size_t nto,
                                const weft_exchange_opts *opts, weft_exchange **out);
/* Sends one message. Any thread may call it, several at once too; the messages of one thread to one rank arrive in
 * order. Metadata, and payloads up to WEFT_EXCHANGE_SMALL, may be reused when the call returns. A larger payload must
 * not change until the round is complete. A small message may be kept here until the next put, finish or test. If the
 * budget is used up, the call waits for room and receives meanwhile; inside a callback it returns WEFT_EBUSY instead.
 */
WEFT_API int weft_exchange_put(weft_exchange *x, int to, const void *meta, size_t meta_bytes, const void *payload,
                               size_t bytes);
/* Ends this rank's messages in this round; done is its vote. The round is complete on this rank when it has received
 * everything that was put to it, its receivers have taken over everything that it put, and, with votes, all ranks have
 * voted. The next round begins with the first put or finish after test, wait or the callback has reported that. */
WEFT_API int weft_exchange_finish(weft_exchange *x, bool done);
WEFT_API int weft_exchange_test(weft_exchange *x, bool *complete); /* true also if no round is in flight */
WEFT_API int weft_exchange_wait(weft_exchange *x, int64_t timeout_ns);
WEFT_API bool weft_exchange_over(const weft_exchange *x); /* all ranks voted done in the last complete round */
/* Sets a callback that is called once per round, when it is complete or has failed. The rules are those of
 * weft_exec_on_done. It may put, finish and take. NULL: none. */
WEFT_API int weft_exchange_on_done(weft_exchange *x, void (*done)(void *arg, int err), void *arg);
/* A file descriptor that is readable from the completion or failure of a round until test, wait or the callback has
 * reported it. Something must make progress meanwhile: a progress thread, or calls of test. It is closed with the
 * exchange. */
WEFT_API int weft_exchange_fd(weft_exchange *x, int *fd);
/* The next message of a rank (from -1: of any rank), in the order in which that rank put them; also before the round is
 * complete. NULL if there is none yet. The caller owns it until weft_message_free, which any thread may call, also
 * after the exchange was closed. A payload in memory of the buffer hook belongs to the hook. Any thread may call it. */
WEFT_API int weft_exchange_take(weft_exchange *x, int from, weft_message **out);
WEFT_API void weft_message_free(weft_message *m);
typedef struct weft_exchange_info {
    size_t size;
    uint64_t rounds;                         /* complete */
    uint64_t sent, received;                 /* messages */
    int64_t budget, inflight, inflight_peak; /* bytes, as in the options */
    int64_t untaken, untaken_peak; /* bytes received but not yet taken. Until finish is called, nothing is received
                                      beyond the budget (unless a put is waiting for room); after finish everything in
                                      the round is accepted */
    int64_t memory;                /* bytes of the exchange itself; independent of the number of ranks */
} weft_exchange_info;
#define WEFT_EXCHANGE_INFO_INIT WEFT_SIZED(weft_exchange_info)
WEFT_API int weft_exchange_stats(weft_exchange *x, weft_exchange_info *out); /* set out->size first */
/* Waits until the deadline for a round in flight, and for ranks on other hosts to receive what was sent; then it fails
 * the comm. Messages that were not taken are freed. */
WEFT_API void weft_exchange_close(weft_exchange *x);

#ifdef __cplusplus
}
#endif
#endif
