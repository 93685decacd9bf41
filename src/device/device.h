/* Devices: memory that the host does not touch, and streams that work on it in order. A module implements one kind of
 * device as a table of calls: weft_cuda.so on CUDA's driver API, weft_sim.so as a simulation on the host. The engine
 * knows the table and not the modules. libweft loads a module when a caller first names memory of its kind.
 *
 * A struct device is one device as this process uses it. All its calls may be made by any thread at any time. Calls
 * that take a stream return when the work is queued, unless their comment says otherwise. They return 0 or an error of
 * weft.h, whose text they have set (`error` of device_open). After a device has failed (a kernel that crashed), all
 * calls return WEFT_ETRANSPORT with the device's own text.
 *
 * Order: work of one stream is done in the order in which it was queued. `await` ends when the host's word has the
 * value; what comes behind it in the stream sees all that was written before the word was. What comes before `signal`
 * in the stream is seen by those that see the word, on the host and on the device. */
#ifndef WEFT_DEVICE_DEVICE_H
#define WEFT_DEVICE_DEVICE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEVICE_ABI 11
#define DEVICE_SYMBOL "weft_device_ops" /* of each module: its struct device_ops */
#define DEVICE_HANDLE 96                /* bytes by which another process finds shared memory */
#define DEVICE_GROUP 128                /* bytes by which ranks find the group that they are to join */

struct device_ops;
struct weft_view;

struct device {
    const struct device_ops *ops;
    int number;           /* of the device, as the caller counts devices */
    unsigned char id[16]; /* the same in all processes that use this device */
};

/* Memory of a device that other processes may map: the whole allocation that has the address. */
struct device_share {
    uint64_t base, bytes; /* of the allocation, in the owner's addresses */
    char handle[DEVICE_HANDLE];
};

/* What `weft info` says about a device. */
struct device_facts {
    char name[160]; /* for readers */
    char driver[64];
    uint64_t bytes; /* of its memory; 0: as much as the host has */
    bool simulated;
    bool mps;                  /* processes share the device by MPS */
    bool handles, descriptors; /* memory can be shared by IPC handles, by exported descriptors */
};

/* A word of host memory that was pinned, as streams see it. */
struct device_word {
    uint64_t at; /* its address on the device */
    uint32_t value;
};

/* Words that get the same value: in device memory, where kernels look at them all the time, and in host memory, where
 * hosts do so, and kernels now and then. Word i of n is at `near` in device memory, or that far behind address i of a
 * list in device memory. The first `hosts` of them are in host memory that was pinned, `stride` bytes apart. */
struct device_words {
    uint64_t list; /* 0: there is one word, or none */
    uint64_t near, at;
    uint32_t n, hosts, stride;
    uint32_t value, host_value; /* host_value: what is awaited in host memory */
    uint32_t host_counts;       /* 1: a gate's counter is added to host_value, too */
};

/* What a kernel does with words by itself. It writes `come`. It waits for each of `awaited` until one of its places
 * has reached the value: (int32_t)(word - value) >= 0. At its end it writes `told`: first the words in device memory,
 * so that those that see one in host memory may free the others. Words of `come` are written in either order, before
 * the kernel ends.
 *
 * `counter` is a word in device memory, or 0. Its value is added to all values, and to host_value if host_counts is
 * set. `counts`: the kernel adds 1 to it at its end, before it writes `told`. So a graph, which has constants in it,
 * writes another value each time it is launched.
 *
 * `late` is the address of two words in host memory that was pinned, or 0. A kernel that has waited for about a
 * millisecond writes the value of `come` into the first of them, and into the second one when it goes on. `shown`: a
 * kernel that has not waited for long writes both when it goes on. */
struct device_gate {
    uint64_t counter, late;
    struct device_words come, awaited, told;
    bool counts, shown;
};

/* One start of a kernel; device_table makes them (device_table.h). */
struct device_launch {
    uint32_t kernel; /* enum device_kernel of device_table.h */
    uint32_t blocks; /* of DEVICE_THREADS threads */
    uint32_t first;  /* where its part of the table begins */
    uint32_t n;      /* how that part is read (item.h) */
    uint32_t level;  /* of its tasks */
    uint32_t lines;  /* of 128 bytes that the table has */
};

/* Launches that one kernel does by itself, level by level: device_table_small. */
struct device_work {
    uint64_t table;
    uint64_t count; /* a word of device memory that is 0 between runs */
    const struct device_launch *launches;
    size_t n;
};

/* A group of ranks, each with a device, whose streams send each other messages: a communicator of NCCL. */
struct device_group;

/* One end of a message. The k-th message that a rank sends to another is the k-th that this one receives from it, and
 * has as many bytes. */
struct device_message {
    void *at; /* in memory of the device */
    size_t bytes;
    int peer;
    bool sends;
};

struct device_ops {
    uint32_t abi;
    const char *name; /* "cuda", "sim" */

    /* How many devices there are; 0 if there is no driver, and then *why says so in a few words. */
    int (*count)(const char **why);
    /* Opens a device. Each call returns the same struct, and counts; `close` counts down. */
    int (*open)(int number, int (*error)(int code, const char *form, ...), struct device **out);
    void (*close)(struct device *d);
    /* The number of the device to which the address belongs; -1: it is host memory. */
    int (*owner)(const void *address);
    /* What is known about device `number` before it is opened. False: nothing, and `name` says why. */
    bool (*facts)(int number, struct device_facts *out);

    /* Zeroed memory, aligned to 256 bytes; NULL: there is none. */
    void *(*alloc)(struct device *d, size_t bytes);
    void (*free)(struct device *d, void *memory);
    /* How other processes find the allocation of `memory`. WEFT_EUNSUPPORTED: this memory cannot be shared. */
    int (*share)(struct device *d, const void *memory, struct device_share *out);
    /* Maps another process's allocation; *base is its address here. Mapping it again gives the same address, and
     * counts. */
    int (*map)(struct device *d, const struct device_share *share, void **base);
    void (*unmap)(struct device *d, void *base);

    /* Lets streams reach host memory (whole pages of it); *at is the address for them. Pins count. Rank threads pin
     * the same address with different sizes, so `unpin` gives back the shortest pin that begins there: those that are
     * left reach as far as any of their owners needs. */
    int (*pin)(struct device *d, void *host, size_t bytes, uint64_t *at);
    /* The same for memory that is mapped for reading alone. Streams do not write into it. */
    int (*pin_read)(struct device *d, void *host, size_t bytes, uint64_t *at);
    void (*unpin)(struct device *d, void *host);

    /* Has the device failed? Does not wait, uses no stream of the caller, and may be called while streams are being
     * captured. */
    int (*health)(struct device *d);

    int (*stream_open)(struct device *d, void **stream);
    void (*stream_close)(struct device *d, void *stream);
    int (*sync)(struct device *d, void *stream); /* waits until all that is queued is done */
    /* Has all that is queued been done? */
    int (*idle)(struct device *d, void *stream, bool *idle);
    /* Is the stream being captured into a graph? Then calls are recorded and not run. */
    int (*capturing)(struct device *d, void *stream, bool *capturing);
    /* Work behind it in the stream waits until (int32_t)(word - value) >= 0 for all words. */
    int (*await)(struct device *d, void *stream, const struct device_word *words, size_t n);
    int (*signal)(struct device *d, void *stream, const struct device_word *words, size_t n); /* writes the words */
    /* A kernel that does what the gate says, and the work between the two halves of it; NULL: there is none. A gate
     * that awaits words is for ranks whose kernels can run while it waits: threads of one process, and processes under
     * MPS. */
    int (*meet)(struct device *d, void *stream, const struct device_gate *g, const struct device_work *work);
    /* Copies between addresses of the host and of the device, either way. If host memory is not pinned, the call
     * returns when the copy is done, after all that was queued before it; it cannot be captured. */
    int (*copy)(struct device *d, void *stream, void *dst, const void *src, size_t bytes);
    /* g: NULL, or the kernel does the second half of the gate at its end; the word `count` in device memory, which is
     * 0 at the beginning and at the end, counts its blocks. Few blocks should do so: each waits for its own stores. */
    int (*launch)(struct device *d, void *stream, uint64_t table, const struct device_launch *l,
                  const struct device_gate *g, uint64_t count);
    /* Launches and meetings that are queued on the stream from now on are recorded, and not done. The stream was opened
     * by stream_open, and no other thread uses it. stream_close drops what is being recorded. */
    int (*record)(struct device *d, void *stream);
    /* *recording is what was recorded. Each `replay` queues all of it by one call of the driver, and begins when the
     * one before is done. stream_close drops what is being recorded. */
    /* *recording is what was recorded. Each `replay` queues all of it by one call of the driver. Replays of a recording
     * are on one stream, or the one before is done. */
    int (*recorded)(struct device *d, void *stream, void **recording);
    int (*replay)(struct device *d, void *recording, void *stream);
    void (*forget)(struct device *d, void *recording); /* what was queued is done still; NULL is fine */

    /* Groups. `group_name` says what makes them, for readers ("NCCL 2.28.3"); NULL: there are none, and *why says so
     * in a few words. `together`: several ranks of the group are on one device. */
    const char *(*group_name)(bool together, const char **why);
    int (*group_id)(struct device *d, char id[DEVICE_GROUP]); /* a new group's, by one of its ranks */
    /* Joins the group, and returns when all `size` ranks have, or at the deadline (nanoseconds from now). */
    int (*group_join)(struct device *d, const char id[DEVICE_GROUP], int rank, int size, int64_t ns,
                      struct device_group **out);
    /* Queues messages that go at the same time. Those behind them in the stream begin when all of them are done on
     * this side. The stream waits for peers that come later. The first messages between two ranks may make the caller
     * wait for the peer. */
    int (*group_move)(struct device_group *g, void *stream, const struct device_message *messages, size_t n);
    /* Has a rank, or the way to it, failed as far as the group knows? */
    int (*group_health)(struct device_group *g);
    /* Streams that wait for other ranks go on, and what they have received is worthless. Any thread may call it, more
     * than once; then group_leave alone may follow. */
    void (*group_abort)(struct device_group *g);
    /* Its streams are at rest. Waits until what it has sent has left this host, at most as long as is given
     * (nanoseconds). */
    void (*group_leave)(struct device_group *g, int64_t ns);
};

/* ---- device.c ---- */

/* The module that serves a kind of memory (enum weft_memory), loaded if need be. `what` begins the text of an error:
 * WEFT_EUNSUPPORTED if there is no such module, or if it finds no device. `modules`: the folder where it is looked for
 * first; NULL: none. */
int device_find(const char *what, int memory, const char *modules, const struct device_ops **out);
/* The same if there is one, otherwise NULL; sets no error. */
const struct device_ops *device_loaded(int memory, const char *modules);
/* The device, opened. */
int device_open(const char *what, int memory, int number, const char *modules, struct device **out);
/* Where a view is: *number is that of its device, -1 for host memory. WEFT_MEMORY_ANY is looked up: memory that no
 * device owns is the host's. Kinds of memory that do not exist, and host memory with a device's number, are refused. */
int device_of_view(const char *what, const struct weft_view *v, const char *modules, int *number);
#endif
