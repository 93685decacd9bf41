/* Peers that are waited for: which they are, and whether they are gone or have stalled. */
#ifndef WEFT_ENGINE_WATCH_H
#define WEFT_ENGINE_WATCH_H
#include "engine/exec.h"

int watch_timeout(const weft_exec *x); /* WEFT_ETIMEOUT with a text that names the ranks that x waits for */
#endif
