/* Runs that were captured into a graph of the caller, which is launched again and again. A graph has constants in it,
 * so it cannot hold the number of a run. Each rank has a counter in device memory instead, to which the last kernel of
 * each replay adds 1 (device_gate), and all ranks launch their graphs equally often. So ranks meet by numbers, as in
 * ordinary runs (launcher.c):
 *
 *   come   the rank's stream has come to replay n
 *   gone   replay n is done. The launcher writes it for each rank
 *
 * The launcher's graph: come of its own; wait for come of all other ranks; the launches; gone for all ranks. The graph
 * of another rank: come; wait for gone. Copies into a mirror stand before all of this, and copies out of it behind.
 *
 * Why numbers are enough: `come` of replay n is written behind the wait for `gone` of replay n - 1, and `gone` of n
 * behind the wait for `come` of n by all ranks. So no rank is more than one replay ahead of another, a word of replay n
 * is not overwritten before its reader has seen it, and no word is written for a replay that has not begun.
 * tests/models/replay.pml checks this.
 *
 * Both words are in device memory. A store to host memory at the end of each replay would take longer than a small
 * replay does. So only a rank that has waited for long shows the host the number of its replay (`late`), and shows it
 * again when it goes on (`left`). The launcher of a large run shows both when it goes on, because its work may take
 * long while the others wait. The watcher, which looks ten times a second, sees which rank waits for which. It reads
 * `left` first: a rank that goes on meanwhile looks as if it waited, until the next look. To let a stream go on, the
 * host writes `released`, which kernels look for now and then. The model does not have these three.
 *
 * Runs of weft_exec_start_on that are not captured may stand between launches of the graph, in the same place on all
 * ranks: they have other words, and a stream does one after the other.
 *
 * Graphs are refused if ranks are processes that share the device without MPS. A graph is one piece of work to the
 * device, and pieces of two processes do not run at the same time there: one that waits for another rank could keep
 * that rank's process from running. */
#ifndef WEFT_ENGINE_DEVICE_REPLAY_H
#define WEFT_ENGINE_DEVICE_REPLAY_H
#include <stdatomic.h>

#include "device/device_queue.h"
#include "engine/exec.h"

/* Of a rank, in memory that all ranks have pinned. Zero at first. */
struct replay_words {
    _Alignas(CORE_LINE) _Atomic uint32_t late;
    _Atomic uint32_t left; /* right behind it: device_gate */
    _Atomic uint32_t released;
    _Atomic uint32_t process, mps; /* written at bind: a hash of the rank's process, and whether it uses MPS */
};

struct replay {
    struct replay_words *words; /* of all ranks */
    uint64_t at;                /* the same for streams */
    uint64_t near;              /* of the launcher: a list in device memory, where near words of all ranks are */
};

void replay_make(struct replay *r, const weft_exec *x, void *words, uint64_t at);
/* Why runs of this exec cannot be captured; NULL: they can. The same on all ranks. */
const char *replay_refusal(const struct replay *r, const weft_exec *x);
/* Records a run on a stream that is being captured. queue: the launcher's, otherwise NULL. */
int replay_record(struct replay *r, weft_exec *x, void *stream, struct device_queue *queue);
/* Does a stream of this rank wait for `rank` in such a run? Any thread may call it. */
bool replay_waits(const struct replay *r, const weft_exec *x, int rank);
/* If a stream of this rank waits in such a run for ranks that have not come to it: *missing is one of them, and *replay
 * is the number of the run. Any thread may call it. */
bool replay_lacks(const struct replay *r, const weft_exec *x, int *missing, uint32_t *replay);
/* Lets streams of this rank go on that wait in such runs, now or later. Any thread may call it. */
void replay_release(struct replay *r, const weft_exec *x);
#endif
