/* The tables of drivers and ways: both ends of every message choose the same way, whatever is switched off at either of
 * them, data arrives all the same, and weft_exec_explain says what was chosen. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/driver.h"
#include "engine/way.h"
#include "engine_model.h"
#include "memory/pick.h"
#include "support/conformance.h"

enum { RANKS = 4, MESSAGES = 64 };

/* Small and large, dense and in columns, one to all and all to all, folds, casts, scattered faces. */
static const struct pair sets[][4] = {
    {{"u8[5] @x1=0", "u8[5] @x4", 0}, {"f32[700/x] @x4", "f32[700] @x4", 0}},
    {{"f32[96,2000/x] @x4", "f32[96/x,2000] @x4", 0xffffffff}, {"f32[90000/x] @x4", "f32[90000] @x4", 0xffffffff}},
    {{"f32[64,2000] @x1=1", "f32[64,2000/x] @x4", 0xffffffff}, {"u8[400003] @x1=0", "u8[400003] @x1=1", 0xffffffff}},
    {{"u8[400003] @x1=0", "u8[400003] @x4", 0}, {"f32[80001] @x1=2", "f32[80001] @x2=0,3", 0}},
    {{"f32[40000] @x4 +sum(x)", "f32[40000/x] @x4", 0xffffffff}, {"f64[9000] @x1=0", "f32[9000] @x2=3,1", 0x000f}},
    {{"f32[3000/x,3] @x4", "f32[3000/x~2o,3] @x4", 0xffffffff}},
    {{"f32[300,200/x] @x4", "f32[300/x,200] @x4", 0}, {"f32[25/x] @x4", "f32[25] @x4", 0xffffffff}},
    {{"f32[96,3000/x] @x3=1..3", "f32[96,3000] @x1=0", 0xffffffff}},
};

static int pairs_of(size_t set)
{
    int n = 0;
    while (n < 4 && sets[set][n].src)
        n++;
    return n;
}

/* What each end of each message has chosen, in memory of all ranks: 0 is no message. */
struct board {
    size_t set;
    const char *off; /* on all ranks */
    char name[2][RANKS][RANKS][MESSAGES][12];
};

static void note(struct board *b, int side, int from, int to, uint32_t k, const struct way *way)
{
    if (k < MESSAGES)
        snprintf(b->name[side][from][to][k], sizeof b->name[side][from][to][k], "%s", way->name);
}

static bool is_off(const char *off, const char *name)
{
    const char *at = off ? strstr(off, name) : NULL;
    return at && at[-1] == '-' && (!at[strlen(name)] || at[strlen(name)] == ',');
}

static void run_alike(struct ranks_rank *r)
{
    struct board *b = r->arg;
    struct model m = {.r = r};
    const char *off = b->off;
    char text[8192], name[40];
    size_t len;
    RANKS_OK(r, model_make(&m, r, sets[b->set], pairs_of(b->set), &(weft_lower_opts){0}));
    const struct program *p = m.exec->program;
    for (uint32_t i = 0; i < p->nouts; i++)
        for (uint32_t k = 0; k < p->outs[i].n; k++)
            note(b, 0, r->rank, p->outs[i].peer, k, p->steps[p->outs[i].steps[k]].way);
    for (uint32_t i = 0; i < p->nins; i++)
        for (uint32_t k = 0; k < p->ins[i].n; k++)
            note(b, 1, p->ins[i].peer, r->rank, k, p->steps[p->ins[i].steps[k]].way);
    ranks_meet(r);
    RANKS_CHECK(r, !memcmp(b->name[0], b->name[1], sizeof b->name[0]));
    RANKS_OK(r, weft_exec_explain(m.exec, true, text, sizeof text, &len));
    RANKS_CHECK(r, len < sizeof text);
    snprintf(name, sizeof name, "\"driver\": \"%s\"", p->driver->name);
    RANKS_CHECK(r, strstr(text, name) && !is_off(off, p->driver->name));
    for (uint32_t s = 0; s < p->nsteps; s++)
        if (p->steps[s].way) {
            RANKS_CHECK(r, !is_off(off, p->steps[s].way->name));
            snprintf(name, sizeof name, "\"way\": \"%s\"", p->driver->copies ? p->driver->name : p->steps[s].way->name);
            RANKS_CHECK(r, strstr(text, name));
        }
    RANKS_OK(r, weft_exec_explain(m.exec, false, text, sizeof text, &len));
    RANKS_CHECK(r, strstr(text, p->driver->what));
    for (int run = 0; run < 3; run++) {
        model_fill(&m, run);
        RANKS_OK(r, weft_exec_run(m.exec));
        int64_t wrong = model_wrong(&m, run);
        if (wrong)
            ranks_note(r, __FILE__, __LINE__, "set %zu, %s off: %lld elements are wrong", b->set, off ? off : "nothing",
                       (long long)wrong);
    }
    model_free(&m);
}

static void run_sets(const char *off)
{
    struct board *b = ranks_shared(sizeof *b);
    if (off)
        setenv("WEFT_WAYS", off, 1);
    for (size_t set = 0; set < sizeof sets / sizeof *sets; set++) {
        memset(b, 0, sizeof *b);
        *b = (struct board){.set = set, .off = off};
        ranks_run(RANKS, NULL, run_alike, b, NULL);
    }
    unsetenv("WEFT_WAYS");
}

static void both_ends_choose_the_same_way(void **state)
{
    (void)state;
    run_sets(NULL);
}

static void each_way_can_be_switched_off(void **state)
{
    (void)state;
    for (size_t i = 0; weft_way_name(i); i++) {
        char off[40];
        snprintf(off, sizeof off, "-%s", weft_way_name(i));
        run_sets(off);
    }
}

static void all_can_be_switched_off_together(void **state)
{
    char off[400] = "";
    (void)state;
    for (size_t i = 0; weft_way_name(i); i++)
        snprintf(off + strlen(off), sizeof off - strlen(off), "%s-%s", i ? "," : "", weft_way_name(i));
    run_sets(off);
}

/* Threads have one environment, so the ranks differ in their bind options. */
static void run_differently(struct ranks_rank *r)
{
    weft_bind_opts opts = {.size = sizeof opts, .ways = r->rank % 2 ? "-eager,-weave" : "-assist,-push"};
    struct model m = {.r = r};
    RANKS_OK(r, model_make(&m, r, sets[(size_t)(uintptr_t)r->arg], pairs_of((size_t)(uintptr_t)r->arg),
                           &(weft_lower_opts){0}));
    weft_exec_close(m.exec);
    m.exec = NULL;
    RANKS_OK(r, weft_bind(m.plan, r->comm, m.in, m.out, &opts, &m.exec));
    for (int run = 0; run < 3; run++) {
        model_fill(&m, run);
        RANKS_OK(r, weft_exec_run(m.exec));
        RANKS_CHECK(r, !model_wrong(&m, run));
    }
    model_free(&m);
}

static void ranks_may_switch_off_different_ways(void **state)
{
    (void)state;
    for (uintptr_t set = 0; set < sizeof sets / sizeof *sets; set++)
        ranks_run(RANKS, NULL, run_differently, (void *)set, NULL);
}

/* From many ranks to one the senders copy; from one to many the receivers do, or both. Senders copy every fourth
 * element for each of four where these are picked, and not if they are cast. They copy rows of a few bytes whose gaps
 * are narrower at the receiver. */
enum pushed { NEVER, ALWAYS, PICKED };
static const struct {
    struct pair pair;
    enum pushed pushed;
} crowds[] = {
    {{"f32[96,3000/x] @x3=1..3", "f32[96,3000] @x1=0", 0xffffffff}, ALWAYS},
    {{"f32[300/x,1000] @x3=1..3", "f32[300,1000] @x1=0", 0xffffffff}, ALWAYS},
    {{"f32[96,3000] @x1=0", "f32[96,3000/x] @x3=1..3", 0xffffffff}, NEVER},
    {{"f32[96,3000] @x1=0", "f32[96,3000/x] @x4", 0xffffffff}, NEVER},
    {{"u8[96000/x] @x4", "u8[96000/x:1] @x4", 0xffffffff}, PICKED},
    {{"u8[8,3000/x,8] @x4", "u8[8,3000,8/x:1] @x4", 0xffffffff}, PICKED},
    {{"u8[96000/x] @x4", "i8[96000/x:1] @x4", 0xffffffff}, NEVER},
    {{"bf16[9000,24] @x2=0,1", "bf16[9000,24/y~1] @y4", 0xffffffff}, ALWAYS},
};

static void run_crowd(struct ranks_rank *r)
{
    struct model m = {.r = r};
    size_t i = (size_t)(uintptr_t)r->arg;
    RANKS_OK(r, model_make(&m, r, &crowds[i].pair, 1, &(weft_lower_opts){0}));
    const struct program *p = m.exec->program;
    const bool pushed = crowds[i].pushed == ALWAYS || (crowds[i].pushed == PICKED && pick_here());
    for (uint32_t s = 0; s < p->nsteps; s++)
        RANKS_CHECK(r, !p->steps[s].way || !strcmp(p->steps[s].way->name, "push") == pushed);
    model_free(&m);
}

static void few_ranks_do_not_copy_for_many(void **state)
{
    (void)state;
    for (uintptr_t i = 0; i < sizeof crowds / sizeof *crowds; i++)
        ranks_run(RANKS, NULL, run_crowd, (void *)i, NULL);
}

static void run_refused(struct ranks_rank *r)
{
    static const struct {
        const char *ways, *text;
    } wrong[] = {{"-nothing", "there is no driver or way 'nothing'"},
                 {"eager", "there is no driver or way 'eager'"},
                 {"-eager,-pull", "pull cannot be switched off"},
                 {"-pipeline", "pipeline cannot be switched off"}};
    struct model m = {.r = r};
    RANKS_OK(r, model_make(&m, r, sets[0], pairs_of(0), &(weft_lower_opts){0}));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        weft_bind_opts opts = {.size = sizeof opts, .ways = r->rank == 1 ? wrong[i].ways : NULL};
        weft_exec *x = NULL;
        RANKS_CHECK(r, weft_bind(m.plan, r->comm, m.in, m.out, &opts, &x) == WEFT_EINVAL);
        RANKS_CHECK(r, strstr(weft_errmsg(), wrong[i].text));
    }
    model_free(&m);
}

static void wrong_names_are_refused_on_all_ranks(void **state)
{
    (void)state;
    ranks_run(RANKS, NULL, run_refused, NULL, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ends_choose_the_same_way),    cmocka_unit_test(each_way_can_be_switched_off),
        cmocka_unit_test(all_can_be_switched_off_together), cmocka_unit_test(ranks_may_switch_off_different_ways),
        cmocka_unit_test(few_ranks_do_not_copy_for_many),   cmocka_unit_test(wrong_names_are_refused_on_all_ranks),
    };
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_one_host, tests));
}
