/* What the Python module has beside weft.h: the loops in C that weft.bench measures Python's against. */
#include <time.h>
#include <weft.h>

/* Start and wait `runs` times; how long it took. */
static int weft_python_runs(weft_exec *x, int64_t runs, int64_t *ns)
{
    struct timespec a, b;
    int err = 0;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (int64_t i = 0; i < runs && !err; i++) {
        err = weft_exec_start(x);
        if (!err)
            err = weft_exec_wait(x, WEFT_FOREVER);
    }
    clock_gettime(CLOCK_MONOTONIC, &b);
    *ns = (int64_t)(b.tv_sec - a.tv_sec) * 1000000000 + (b.tv_nsec - a.tv_nsec);
    return err;
}
