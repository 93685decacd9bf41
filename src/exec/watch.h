/* Peers that are waited for: which they are, and whether they are gone or have stalled. */
#ifndef WEFT_EXEC_WATCH_H
#define WEFT_EXEC_WATCH_H
#include "exec/exec.h"

int watch_timeout(const weft_exec *x); /* WEFT_ETIMEOUT with a text that names the ranks that x waits for */
#endif
