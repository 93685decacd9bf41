/* Runs that were captured into a graph of the caller, which is launched again and again. A graph has constants in it,
 * so the words by which ranks meet cannot hold the number of a run. Each rank has two words of its own instead, which
 * are 0 between runs and are reset in the run itself:
 *
 *   come   the rank's stream has come to a run. The rank writes 1, and the launcher writes 0 when the run is done
 *   gone   the run is done for this rank. The launcher writes 1, and the rank writes 0 when it has seen it
 *
 * The launcher's graph: come of its own = 1; wait for come == 1 of all other ranks; the launches; come = 0 for all
 * ranks; gone = 1 for all other ranks. The graph of another rank: come = 1; wait for gone == 1; gone = 0. Copies into a
 * mirror stand before all of this, and copies out of it behind.
 *
 * Both are in device memory. `come` is in host memory, too, written before that in device memory: there the watcher
 * sees which rank waits, and by a stamp beside it whether it waits in the same run as before. To let a stream go on,
 * the host writes a value into the words in host memory that is never there otherwise, and that kernels look for.
 *
 * Why no write is lost: a rank writes come = 1 for its next run behind the wait for gone == 1, which the launcher
 * writes after come = 0. The launcher writes gone = 1 for the next run behind the wait for come == 1, which the rank
 * writes after gone = 0. Streams do all this in order, and a write is seen after those before it.
 * tests/models/replay.pml checks it.
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
    _Alignas(CORE_LINE) _Atomic uint32_t come, stamp; /* stamp: another one in each run, written with come */
    _Atomic uint32_t gone;
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
/* If a stream of this rank waits in such a run for ranks that have not come to it: *missing is one of them, and *stamp
 * is another one in each run. Any thread may call it. */
bool replay_lacks(const struct replay *r, const weft_exec *x, int *missing, uint32_t *stamp);
/* Lets a stream of this rank go on that waits in such a run. True: one did wait. Launches that are queued behind it
 * wait again. Any thread may call it. */
bool replay_release(struct replay *r, const weft_exec *x);
#endif
