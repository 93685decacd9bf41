/* Fetches in the background, tensors that arrive one by one, and versions in the caller's own arrays. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/ranks.h"
#include "version/away_kit.h"
#include "version/version_kit.h"

/* A gate in the callbacks of a fetch: the test sees where the fetch is, and lets it go on. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open, stops;
    int reached;
    size_t arrived[16];
    int narrived;
    weft_epoch_step version;
    bool right;
};

static void gate_begin(struct gate *g, bool open)
{
    *g = (struct gate){.open = open, .right = true};
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
}

static int at_gate(void *arg, int64_t done, int64_t total)
{
    struct gate *g = arg;
    pthread_mutex_lock(&g->lock);
    g->reached++;
    pthread_cond_broadcast(&g->changed);
    while (!g->open)
        pthread_cond_wait(&g->changed, &g->lock);
    int code = g->stops;
    pthread_mutex_unlock(&g->lock);
    return code || done > total;
}

static void await_gate(struct gate *g)
{
    pthread_mutex_lock(&g->lock);
    while (!g->reached)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void open_gate(struct gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->open = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static void background(void **state)
{
    (void)state;
    weft_bus *a = open_bus("trainer"), *b = open_bus("server");
    weft_publisher *p = publish(a, "background", NULL);
    weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
    struct gate g;
    gate_begin(&g, true);
    o.progress = at_gate;
    o.arg = &g;
    weft_subscriber *s = subscribe(b, "background", &o);
    weft_epoch_step v;
    weft_fetching *f;
    bool over;
    int64_t done, total;
    commit(p, 1);
    fine(weft_fetch_start(s, &latest, LONG, &f));
    fine(weft_fetching_wait(f, LONG, &v));
    fine(weft_fetching_test(f, &over, &done, &total));
    assert_true(over && done == total && total == sizeof(float) * 40 * 24 + 2 * 130 + 8);
    assert_int_equal(weft_swap(s, &v, LONG), WEFT_EBUSY); /* it is not freed yet */
    says("a fetch runs in the background");
    weft_fetching_free(f);
    fine(weft_swap(s, &v, LONG));
    compare(s, 1);

    /* The live version is used while the next one is being staged. */
    commit(p, 2);
    g.open = false;
    g.reached = 0;
    fine(weft_fetch_start(s, &latest, LONG, &f));
    await_gate(&g);
    compare(s, 1);
    fine(weft_fetching_test(f, &over, &done, &total));
    assert_true(!over && done > 0 && done < total);
    assert_int_equal(weft_fetching_wait(f, 0, &v), WEFT_ETIMEOUT);
    assert_int_equal(weft_fetch(s, &latest, LONG, &v), WEFT_EBUSY);
    assert_int_equal(weft_subscriber_verify(s, &latest, LONG, &v), WEFT_EBUSY);
    weft_fetching *second;
    assert_int_equal(weft_fetch_start(s, &latest, LONG, &second), WEFT_EBUSY);
    char text[16];
    size_t len;
    assert_int_equal(weft_subscriber_explain(s, false, text, sizeof text, &len), WEFT_EBUSY);
    open_gate(&g);
    fine(weft_fetching_wait(f, LONG, &v));
    assert_int_equal(v.step, 2);
    weft_fetching_free(f);
    fine(weft_swap(s, &v, LONG));
    compare(s, 2);
    weft_subscriber_close(s);
    weft_publisher_close(p);
    fine(weft_bus_close(b));
    fine(weft_bus_close(a));
}

/* A fetch that copies, one that waits for a version, and one that waits for a pin, are stopped; the version before
 * stays, and the next fetch is whole. */
static void cancelled(void **state)
{
    (void)state;
    weft_bus *a = open_bus("trainer"), *b = open_bus("server");
    weft_publisher *p = publish(a, "cancelled", NULL);
    weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
    struct gate g;
    gate_begin(&g, true);
    o.progress = at_gate;
    o.arg = &g;
    weft_subscriber *s = subscribe(b, "cancelled", &o);
    weft_epoch_step v;
    weft_fetching *f;
    weft_pin *pin;
    int64_t done, total;
    commit(p, 1);
    fine(weft_fetch(s, &latest, LONG, &v));
    fine(weft_swap(s, &v, LONG));
    fine(weft_fetch_start(s, &(weft_want){WEFT_WANT_NEWER, 0}, LONG, &f));
    fine(weft_fetching_test(f, NULL, &done, &total));
    assert_true(!done && !total); /* not those of the fetch before */
    weft_fetching_cancel(f);
    assert_int_equal(weft_fetching_wait(f, LONG, &v), WEFT_EINVAL);
    says("stopped by the caller");
    weft_fetching_free(f);
    commit(p, 2);
    g.open = false;
    g.reached = 0;
    fine(weft_fetch_start(s, &latest, LONG, &f));
    await_gate(&g);
    weft_fetching_cancel(f);
    open_gate(&g);
    assert_int_equal(weft_fetching_wait(f, LONG, &v), WEFT_EINVAL);
    weft_fetching_free(f);
    compare(s, 1);
    assert_int_equal(weft_swap(s, &(weft_epoch_step){1, 2}, LONG), WEFT_EINVAL); /* it is not staged */
    fine(weft_use(s, &pin));
    fine(weft_fetch(s, &latest, LONG, &v));
    fine(weft_swap(s, &v, LONG));
    compare(s, 2);
    /* It waits for the pin, which this thread has. */
    fine(weft_fetch_start(s, &latest, LONG, &f));
    weft_fetching_cancel(f);
    assert_int_equal(weft_fetching_wait(f, LONG, &v), WEFT_EINVAL);
    says("stopped by the caller");
    weft_fetching_free(f);
    weft_unuse(pin);
    /* Freeing one that waits for a version that never comes ends it. */
    fine(weft_fetch_start(s, &(weft_want){WEFT_WANT_STEP, 99}, LONG, &f));
    weft_fetching_free(f);
    compare(s, 2);
    weft_fetching_free(NULL);
    weft_subscriber_close(s);
    weft_publisher_close(p);
    fine(weft_bus_close(b));
    fine(weft_bus_close(a));
}

/* The directory is away: a fetch in the background that waits for it can be cancelled soon. */
static void cancelled_without_the_directory(void **state)
{
    (void)state;
    struct away x;
    weft_fetching *f;
    weft_epoch_step v;
    away_begin(&x);
    weft_bus *b = away_bus(&x, LONG, LONG);
    weft_subscriber *s = subscribe(b, "away", NULL);
    bus_server_stop(x.server);
    fine(weft_fetch_start(s, &latest, 10 * LONG, &f));
    weft_fetching_cancel(f);
    assert_int_equal(weft_fetching_wait(f, LONG, &v), WEFT_EINVAL);
    says("stopped by the caller");
    away_comes(&x);
    weft_fetching_free(f);
    weft_subscriber_close(s);
    fine(weft_bus_close(b));
    away_end(&x);
}

static int arrived(void *arg, const weft_epoch_step *v, size_t i, const void *data, int64_t bytes)
{
    struct gate *g = arg;
    struct arrays a;
    uint16_t norm[130];
    fill(&a, v->step);
    memory_cast(norm, WEFT_BF16, a.norm, WEFT_F32, 130);
    const void *want[N] = {a.embed, norm, &a.step};
    const int64_t size[N] = {sizeof a.embed, sizeof norm, sizeof a.step};
    g->right = g->right && bytes == size[i] && !memcmp(data, want[i], (size_t)bytes);
    g->arrived[g->narrived++] = i;
    g->version = *v;
    return g->stops;
}

static void arrivals(void **state)
{
    (void)state;
    weft_bus *a = open_bus("trainer"), *b = open_bus("server");
    weft_publisher *p = publish(a, "arrivals", NULL);
    weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
    struct gate g;
    gate_begin(&g, true);
    o.arrived = arrived;
    o.arg = &g;
    weft_subscriber *s = subscribe(b, "arrivals", &o);
    weft_epoch_step v;
    commit(p, 7);
    fine(weft_fetch(s, &latest, LONG, &v));
    assert_true(g.narrived == N && g.right && g.version.step == 7);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(g.arrived[i], i);
    fine(weft_swap(s, &v, LONG));
    g.stops = true;
    assert_int_equal(weft_fetch(s, &latest, LONG, &v), WEFT_EINVAL);
    assert_int_equal(g.narrived, N + 1);
    compare(s, 7);
    weft_subscriber_close(s);
    weft_publisher_close(p);
    fine(weft_bus_close(b));
    fine(weft_bus_close(a));
}

/* ---- the caller's arrays ---- */

struct own {
    float embed[40 * 24];
    uint16_t norm[130];
    int64_t step;
    weft_view views[N];
};

static void own_begin(struct own *w)
{
    memset(w, 0, sizeof *w);
    w->views[0] = (weft_view)WEFT_VIEW(w->embed, sizeof w->embed);
    w->views[1] = (weft_view)WEFT_VIEW(w->norm, sizeof w->norm);
    w->views[2] = (weft_view)WEFT_VIEW(&w->step, sizeof w->step);
}

static void own_is(const struct own *w, int64_t step)
{
    struct arrays a;
    uint16_t norm[130];
    fill(&a, step);
    memory_cast(norm, WEFT_BF16, a.norm, WEFT_F32, 130);
    assert_memory_equal(w->embed, a.embed, sizeof a.embed);
    assert_memory_equal(w->norm, norm, sizeof norm);
    assert_int_equal(w->step, step);
}

static void *give_back(void *pin)
{
    weft_unuse(pin);
    return NULL;
}

static void into_arrays(void **state)
{
    (void)state;
    weft_bus *a = open_bus("trainer"), *b = open_bus("server");
    weft_publisher *p = publish(a, "into", NULL);
    weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
    struct own w;
    own_begin(&w);
    o.into = w.views;
    weft_subscriber *s = subscribe(b, "into", &o);
    weft_epoch_step v;
    weft_pin *pin;
    const void *data;
    pthread_t t;
    for (int64_t step = 1; step < 5; step++) {
        commit(p, step);
        fine(weft_fetch(s, &latest, LONG, &v));
        if (step > 1)
            own_is(&w, step - 1); /* written by swap, not by fetch */
        fine(weft_swap(s, &v, LONG));
        own_is(&w, step);
        compare(s, step);
    }
    fine(weft_use(s, &pin));
    fine(weft_pin_data(pin, 0, &data, NULL));
    assert_ptr_equal(data, w.embed);
    commit(p, 5);
    fine(weft_fetch(s, &latest, LONG, &v));
    assert_int_equal(weft_swap(s, &v, 0), WEFT_ETIMEOUT); /* the arrays are in use */
    says("pinned 1 times");
    own_is(&w, 4);
    pthread_create(&t, NULL, give_back, pin); /* before swap or while it waits */
    fine(weft_swap(s, &v, LONG));
    pthread_join(t, NULL);
    own_is(&w, 5);
    compare(s, 5);
    weft_subscriber_close(s);

    struct set names_of;
    make(&names_of, texts);
    w.views[1].bytes--;
    assert_int_equal(weft_subscribe(b, "into", names_of.tensors, N, &o, &s), WEFT_EINVAL);
    says("'model.norm': its array is too small");
    w.views[1].bytes++;
    w.views[0].strides = (const int64_t[]){96, 4};
    assert_int_equal(weft_subscribe(b, "into", names_of.tensors, N, &o, &s), WEFT_EUNSUPPORTED);
    o.into = NULL;
    o.direct = true;
    assert_int_equal(weft_subscribe(b, "into", names_of.tensors, N, &o, &s), WEFT_EINVAL);
    drop(&names_of);
    weft_publisher_close(p);
    fine(weft_bus_close(b));
    fine(weft_bus_close(a));
}

/* Without staging: after a fetch that fails, nothing is used until one is whole. */
static void direct(void **state)
{
    (void)state;
    weft_bus *a = open_bus("trainer"), *b = open_bus("server");
    weft_publisher *p = publish(a, "direct", NULL);
    weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
    struct own w;
    struct gate g;
    own_begin(&w);
    gate_begin(&g, true);
    o.into = w.views;
    o.direct = true;
    o.progress = at_gate;
    o.arg = &g;
    weft_subscriber *s = subscribe(b, "direct", &o);
    weft_epoch_step v;
    weft_pin *pin;
    commit(p, 1);
    fine(weft_fetch(s, &latest, LONG, &v));
    own_is(&w, 1);
    assert_int_equal(weft_use(s, &pin), WEFT_EBUSY);
    fine(weft_swap(s, &v, LONG));
    compare(s, 1);
    commit(p, 2);
    fine(weft_use(s, &pin));
    assert_int_equal(weft_fetch(s, &latest, 0, &v), WEFT_ETIMEOUT);
    own_is(&w, 1); /* nothing was written */
    weft_unuse(pin);
    compare(s, 1);
    g.stops = true;
    assert_int_equal(weft_fetch(s, &latest, LONG, &v), WEFT_EINVAL);
    assert_int_equal(weft_use(s, &pin), WEFT_EBUSY);
    says("has left a mixture");
    g.stops = false;
    fine(weft_fetch(s, &(weft_want){WEFT_WANT_NEWER, 0}, LONG, &v));
    assert_int_equal(weft_use(s, &pin), WEFT_EBUSY);
    fine(weft_swap(s, &v, LONG));
    compare(s, 2);
    weft_subscriber_close(s);
    weft_publisher_close(p);
    fine(weft_bus_close(b));
    fine(weft_bus_close(a));
}

/* ---- ranks ---- */

static bool own_has(const struct own *w, int64_t step)
{
    struct arrays a;
    fill(&a, step);
    return !memcmp(w->embed, a.embed, sizeof a.embed) && w->step == step;
}

/* Rank 0 publishes; both ranks subscribe together, into their own arrays. */
struct shared {
    weft_publisher *publisher;
    struct set wanted;
};

/* Both fetch in the background. Either rank cancels, and both fail. A rank whose version is pinned keeps both from
 * swapping. */
static void fetch_together(struct ranks_rank *r)
{
    struct shared *h = r->arg;
    weft_bus_opts bo = WEFT_BUS_OPTS_INIT;
    weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
    struct own w;
    struct arrays a;
    weft_bus *b;
    weft_subscriber *s;
    weft_epoch_step v;
    weft_fetching *f;
    weft_pin *pin = NULL;
    own_begin(&w);
    bo.token = PUBLISH_TOKEN;
    o.into = w.views;
    o.comm = r->comm;
    RANKS_OK(r, weft_bus_open(directories_url(), &bo, &b));
    RANKS_OK(r, weft_subscribe(b, "together", h->wanted.tensors, N, &o, &s));
    for (int rank = 0; rank < 2; rank++) {
        RANKS_OK(r, weft_fetch_start(s, &latest, LONG, &f)); /* there is no version yet */
        if (r->rank == rank)
            weft_fetching_cancel(f);
        RANKS_CHECK(r, weft_fetching_wait(f, LONG, &v) == WEFT_EINVAL);
        weft_fetching_free(f);
    }
    for (int64_t step = 1; step < 3; step++) {
        fill(&a, step);
        if (!r->rank) {
            RANKS_OK(r, weft_put(h->publisher, step, a.views));
            RANKS_OK(r, weft_commit(h->publisher, step, NULL, NULL));
        }
        RANKS_OK(r, weft_fetch_start(s, &(weft_want){WEFT_WANT_AT_LEAST, step}, LONG, &f));
        RANKS_OK(r, weft_fetching_wait(f, LONG, &v));
        weft_fetching_free(f);
        RANKS_CHECK(r, v.step == step && (step == 1 || own_has(&w, step - 1)));
        if (step == 2) {
            if (r->rank)
                RANKS_OK(r, weft_use(s, &pin));
            RANKS_CHECK(r, weft_swap(s, &v, r->rank ? 0 : LONG) == WEFT_ETIMEOUT);
            RANKS_CHECK(r, own_has(&w, 1));
            weft_unuse(pin);
        }
        RANKS_OK(r, weft_swap(s, &v, LONG));
        RANKS_CHECK(r, own_has(&w, step));
    }
    RANKS_OK(r, weft_comm_barrier(r->comm, LONG));
    weft_subscriber_close(s);
    RANKS_OK(r, weft_bus_close(b));
}

static void together(void **state)
{
    (void)state;
    static const char *const both[N] = {"f32[40,24] @x2", "bf16[130] @x2", "i64[] @x2"};
    weft_bus *b = open_bus("trainer");
    struct shared h = {.publisher = publish(b, "together", NULL)};
    make(&h.wanted, both);
    ranks_run(2, NULL, fetch_together, &h, NULL);
    drop(&h.wanted);
    weft_publisher_close(h.publisher);
    fine(weft_bus_close(b));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(background),
                                       cmocka_unit_test(cancelled),
                                       cmocka_unit_test(arrivals),
                                       cmocka_unit_test(into_arrays),
                                       cmocka_unit_test(direct),
                                       cmocka_unit_test(together),
                                       cmocka_unit_test(cancelled_without_the_directory)};
    return SUITE_MAIN(argc, argv, SUITE_AT(&directories_served, tests));
}
