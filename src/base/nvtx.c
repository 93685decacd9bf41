#define _GNU_SOURCE
#include "base/nvtx.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/library.h"

/* The interface between a program and the library of a profiler, version 2 of NVTX's injection. The library exports
 * InitializeInjectionNvtx2, which is given a function that finds tables by number. Table CALLBACKS has a function that
 * gives for each module an array of addresses, of one slot for each of its calls. The library writes its own functions
 * into the slots that it wants. Some libraries fill in all modules, so all of them have slots. */
enum { CALLBACKS = 1, VERSION = 3 };
enum { CORE = 1, MODULES = 7 };
enum { RANGE_START = 5, RANGE_END = 7, RANGE_PUSH = 9, RANGE_POP = 11, SLOTS = 17 /* more than any module has */ };

typedef void slot(void);

struct callbacks {
    size_t size;
    int (*module)(uint32_t module, slot ****table, unsigned *n);
};
struct version {
    size_t size;
    uint32_t version, reserved;
    void (*tell)(uint32_t version);
};

static slot *slots[MODULES][SLOTS], **tables[MODULES][SLOTS];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool attached;

static int give_module(uint32_t module, slot ****table, unsigned *n)
{
    if (module < CORE || module >= MODULES)
        return 0;
    if (table)
        *table = tables[module];
    if (n)
        *n = SLOTS - 1;
    return 1;
}

static void ignore_version(uint32_t version)
{
    (void)version;
}

static const void *give_table(uint32_t number)
{
    static const struct callbacks callbacks = {sizeof callbacks, give_module};
    static const struct version version = {sizeof version, 3, 0, ignore_version};
    return number == CALLBACKS ? (const void *)&callbacks : number == VERSION ? (const void *)&version : NULL;
}

static void attach(void)
{
    int (*initialise)(const void *(*give)(uint32_t)) = NULL;
    const char *path = secure_getenv("NVTX_INJECTION64_PATH");
    const struct library_call calls[] = {{"InitializeInjectionNvtx2", &initialise}, {NULL, NULL}};
    if (!path || !*path)
        return;
    for (int m = 0; m < MODULES; m++)
        for (int i = 0; i < SLOTS; i++)
            tables[m][i] = &slots[m][i];
    attached = library_open(&path, 1, calls) && initialise(give_table);
}

bool nvtx_open(void)
{
    pthread_once(&once, attach);
    return attached;
}

void nvtx_push(const char *text)
{
    int (*call)(const char *) = (int (*)(const char *))slots[CORE][RANGE_PUSH];
    if (call)
        call(text);
}

void nvtx_pop(void)
{
    int (*call)(void) = (int (*)(void))slots[CORE][RANGE_POP];
    if (call)
        call();
}

uint64_t nvtx_start(const char *text)
{
    uint64_t (*call)(const char *) = (uint64_t(*)(const char *))slots[CORE][RANGE_START];
    return call ? call(text) : 0;
}

void nvtx_end(uint64_t range)
{
    void (*call)(uint64_t) = (void (*)(uint64_t))slots[CORE][RANGE_END];
    if (call)
        call(range);
}
