/* Versions on the bus in one process: put, commit, fetch, swap, pins, and everything that is refused. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/deadline.h"
#include "support/processes.h"
#include "support/random.h"
#include "support/share.h"
#include "version/bus.h"
#include "version/part_link.h"
#include "version/subscribe.h"
#include "version/version_kit.h"

static void round_trip(void **state)
{
    (void)state;
    weft_bus *a = open_bus("trainer"), *b = open_bus("server");
    weft_publisher *p = publish(a, "round", NULL);
    weft_subscriber *s = subscribe(b, "round", NULL);
    weft_epoch_step v;
    weft_pin *pin;
    assert_int_equal(weft_publisher_epoch(p), 1);
    assert_int_equal(weft_fetch(s, &latest, 0, &v), WEFT_ETIMEOUT);
    says("epoch 1 has committed none");
    assert_int_equal(weft_use(s, &pin), WEFT_EINVAL);
    for (int64_t step = 5; step < 12; step++) {
        commit(p, step);
        fine(weft_fetch(s, &(weft_want){WEFT_WANT_NEWER, 0}, LONG, &v));
        assert_true(v.epoch == 1 && v.step == step);
        if (step > 5)
            compare(s, step - 1); /* the old one is live still */
        fine(weft_swap(s, &v, LONG));
        compare(s, step);
        assert_int_equal(weft_swap(s, &v, LONG), WEFT_EINVAL);
        assert_int_equal(weft_fetch(s, &(weft_want){WEFT_WANT_NEWER, 0}, 0, &v), WEFT_ETIMEOUT);
    }
    weft_bus_version list[4];
    size_t n;
    fine(weft_bus_versions(b, "round", LONG, list, 4, &n));
    assert_int_equal(n, 2);
    assert_true(list[0].version.step == 10 && list[1].version.step == 11);
    assert_true(list[1].ranks == 1 && list[1].holders == 1 && list[1].bytes == 40 * 24 * 4 + 130 * 2 + 8);
    assert_string_equal(list[1].meta, "{\"step\": 11}");
    fine(weft_fetch(s, &(weft_want){WEFT_WANT_STEP, 10}, LONG, &v));
    fine(weft_swap(s, &v, LONG));
    compare(s, 10);
    assert_int_equal(weft_fetch(s, &(weft_want){WEFT_WANT_STEP, 9}, 0, &v), WEFT_ETIMEOUT);
    assert_int_equal(weft_fetch(s, &(weft_want){WEFT_WANT_AT_LEAST, 12}, 0, &v), WEFT_ETIMEOUT);
    says("1.11");
    char text[1024];
    fine(weft_subscriber_explain(s, false, text, sizeof text, &n));
    assert_non_null(strstr(text, "rank 0 of publisher trainer (mapped)"));
    assert_int_equal(weft_bus_close(a), WEFT_EBUSY);
    weft_publisher_close(p);
    fine(weft_bus_versions(b, "round", LONG, list, 4, &n));
    assert_int_equal(n, 0);
    compare(s, 10);
    weft_subscriber_close(s);
    fine(weft_bus_close(a));
    fine(weft_bus_close(b));
}

/* ---- names ---- */

static void names_differ(void **state)
{
    (void)state;
    weft_bus *b = open_bus("names");
    weft_publisher *p = publish(b, "names", NULL);
    struct set s;
    weft_subscriber *sub;
    weft_epoch_step v;
    commit(p, 1);
    make(&s, texts);
    s.tensors[0].name = "model.other";
    weft_layout_free(s.layouts[1]);
    fine(weft_layout_parse("bf16[131] @x1", &s.layouts[1]));
    s.tensors[1].layout = s.layouts[1];
    fine(weft_subscribe(b, "names", s.tensors, N, NULL, &sub));
    assert_int_equal(weft_subscriber_verify(sub, &latest, LONG, &v), WEFT_EMISMATCH);
    says("3 tensors do not fit");
    says("'model.other' is not in the set");
    says("'model.norm' is bf16[130] in the set and bf16[131] here");
    says("'model.embed' is in the set and not in the list");
    assert_int_equal(weft_fetch(sub, &latest, LONG, &v), WEFT_EMISMATCH);
    weft_subscriber_close(sub);
    /* Two of them and an alias, and the rest left out on purpose. */
    weft_bus_tensor some[2] = {{.name = "head", .layout = s.layouts[0], .from = "model.embed"},
                               {.name = "again", .layout = s.layouts[0], .from = "model.embed"}};
    fine(weft_subscribe(b, "names", some, 2, NULL, &sub));
    assert_int_equal(weft_subscriber_verify(sub, &latest, LONG, &v), WEFT_EMISMATCH);
    says("2 tensors do not fit");
    weft_subscriber_close(sub);
    weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
    o.only = true;
    fine(weft_subscribe(b, "names", some, 2, &o, &sub));
    fine(weft_subscriber_verify(sub, &latest, LONG, &v));
    fine(weft_fetch(sub, &latest, LONG, &v));
    fine(weft_swap(sub, &v, LONG));
    weft_pin *pin;
    const void *data[2];
    struct arrays a;
    fill(&a, 1);
    fine(weft_use(sub, &pin));
    for (size_t i = 0; i < 2; i++) {
        fine(weft_pin_data(pin, i, &data[i], NULL));
        assert_memory_equal(data[i], a.embed, sizeof a.embed);
    }
    assert_int_equal(weft_pin_data(pin, 2, &data[0], NULL), WEFT_EINVAL);
    weft_unuse(pin);
    weft_subscriber_close(sub);
    drop(&s);
    weft_publisher_close(p);
    fine(weft_bus_close(b));
}

static void refused(void **state)
{
    (void)state;
    weft_bus *b = open_bus("refused"), *none;
    struct set s;
    weft_publisher *p;
    weft_subscriber *sub;
    weft_layout *l;
    weft_publish_opts o = WEFT_PUBLISH_OPTS_INIT;
    weft_subscribe_opts threads = WEFT_SUBSCRIBE_OPTS_INIT;
    make(&s, texts);
    threads.threads = 65;
    assert_int_equal(weft_subscribe(b, "refused", s.tensors, N, &threads, &sub), WEFT_EINVAL);
    says("threads is 65: it must be 0 to 64");
    assert_int_equal(weft_bus_open("strange:x", NULL, &none), WEFT_EINVAL);
    assert_int_equal(weft_publish(b, "a/b", s.tensors, N, NULL, &p), WEFT_EINVAL);
    assert_int_equal(weft_publish(b, "", s.tensors, N, NULL, &p), WEFT_EINVAL);
    assert_int_equal(weft_publish(b, "refused", s.tensors, 0, NULL, &p), WEFT_EINVAL);
    s.tensors[1].name = names[0];
    assert_int_equal(weft_publish(b, "refused", s.tensors, N, NULL, &p), WEFT_EINVAL);
    says("two tensors have the name 'model.embed'");
    s.tensors[1].name = names[1];
    o.ranks = 2;
    assert_int_equal(weft_publish(b, "refused", s.tensors, N, &o, &p), WEFT_EINVAL);
    says("need a comm, or a run");
    o = (weft_publish_opts)WEFT_PUBLISH_OPTS_INIT;
    o.keep = WEFT_BUS_KEEP + 1;
    assert_int_equal(weft_publish(b, "refused", s.tensors, N, &o, &p), WEFT_EINVAL);
    const char *const wrong[] = {"f32[8] @x2 +sum(x)", "f32[8/x~1] @x2", "f32[8/x] @x2"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (weft_layout_parse(wrong[i], &l))
            fail_msg("%s", weft_errmsg());
        weft_bus_tensor t = {.name = "t", .layout = l};
        assert_int_equal(weft_publish(b, "refused", &t, 1, NULL, &p), i < 2 ? WEFT_EUNSUPPORTED : WEFT_EINVAL);
        weft_layout_free(l);
    }
    s.tensors[2].dtype = WEFT_C64;
    assert_int_equal(weft_publish(b, "refused", s.tensors, N, NULL, &p), WEFT_EINVAL);
    says("there is no cast from c64 to i64");
    s.tensors[2].dtype = 0;
    weft_bus_version list[1];
    size_t n;
    fine(weft_bus_versions(b, "refused", LONG, list, 1, &n));
    assert_int_equal(n, 0);
    fine(weft_publish(b, "refused", s.tensors, N, NULL, &p));
    assert_int_equal(weft_publisher_epoch(p), 1); /* what was refused has taken none */
    struct arrays a;
    fill(&a, 3);
    uint16_t norm[130] = {0};
    a.views[1] = (weft_view)WEFT_VIEW(norm, sizeof norm);
    assert_int_equal(weft_commit(p, 3, NULL, NULL), WEFT_EINVAL);
    a.views[0].bytes--;
    assert_int_equal(weft_put(p, 3, a.views), WEFT_EINVAL);
    says("'model.embed': the buffer has 3839 bytes, 3840 are needed");
    a.views[0].bytes++;
    a.views[0].memory = WEFT_MEMORY_CUDA;
    assert_int_equal(weft_put(p, 3, a.views), WEFT_EUNSUPPORTED);
    a.views[0].memory = WEFT_MEMORY_HOST;
    a.views[2].data = NULL;
    assert_int_equal(weft_put(p, 3, a.views), WEFT_EINVAL);
    a.views[2].data = &a.step;
    fine(weft_put(p, 3, a.views));
    fine(weft_commit(p, 3, NULL, NULL));
    assert_int_equal(weft_put(p, 3, a.views), WEFT_EINVAL);
    assert_int_equal(weft_put(p, 2, a.views), WEFT_EINVAL);
    fine(weft_put(p, 4, a.views));
    fine(weft_put(p, 5, a.views)); /* replaces the one that was not committed */
    assert_int_equal(weft_commit(p, 4, NULL, NULL), WEFT_EINVAL);
    char *meta = malloc(WEFT_BUS_META + 2);
    memset(meta, 'x', WEFT_BUS_META + 1);
    meta[WEFT_BUS_META + 1] = 0;
    assert_int_equal(weft_commit(p, 5, meta, NULL), WEFT_EINVAL);
    meta[WEFT_BUS_META] = 0;
    fine(weft_commit(p, 5, meta, NULL));
    fine(weft_bus_versions(b, "refused", LONG, list, 1, &n));
    assert_int_equal(n, 2);
    free(meta);
    weft_subscribe_opts so = WEFT_SUBSCRIBE_OPTS_INIT;
    so.rank = -1;
    assert_int_equal(weft_subscribe(b, "refused", s.tensors, N, &so, &sub), WEFT_EINVAL);
    weft_publisher_close(p);
    drop(&s);
    fine(weft_bus_close(b));
}

/* ---- epochs ---- */

static void older_epoch(void **state)
{
    (void)state;
    weft_bus *a = open_bus("first"), *b = open_bus("second");
    weft_publisher *old = publish(a, "epochs", NULL);
    weft_subscriber *s = subscribe(b, "epochs", NULL);
    weft_epoch_step v;
    struct arrays x;
    commit(old, 100);
    fill(&x, 101);
    fine(weft_put(old, 101, x.views));
    weft_publisher *new = publish(b, "epochs", NULL);
    assert_int_equal(weft_publisher_epoch(new), 2);
    assert_int_equal(weft_commit(old, 101, NULL, NULL), WEFT_EPEER);
    says("a newer publisher has taken it");
    fine(weft_fetch(s, &latest, LONG, &v)); /* what was committed before stays, while its owner lives */
    assert_true(v.epoch == 1 && v.step == 100);
    commit(new, 7); /* a new epoch may begin at a lower step */
    fine(weft_fetch(s, &latest, LONG, &v));
    assert_true(v.epoch == 2 && v.step == 7);
    fine(weft_swap(s, &v, LONG));
    compare(s, 7);
    weft_publisher_close(old);
    weft_bus_version there[4];
    size_t n;
    fine(weft_bus_versions(b, "epochs", LONG, there, 4, &n)); /* what it had goes with it, while its bus is open */
    assert_true(n == 1 && there[0].version.epoch == 2 && there[0].version.step == 7);
    fine(weft_fetch(s, &latest, LONG, &v));
    assert_true(v.epoch == 2 && v.step == 7);
    weft_publisher_close(new);
    weft_subscriber_close(s);
    fine(weft_bus_close(a));
    fine(weft_bus_close(b));
}

/* ---- pins, readers ---- */

static void pins(void **state)
{
    (void)state;
    weft_bus *b = open_bus("pins");
    weft_publisher *p = publish(b, "pins", NULL);
    weft_subscriber *s = subscribe(b, "pins", NULL);
    weft_epoch_step v;
    weft_pin *pin;
    commit(p, 1);
    fine(weft_fetch(s, &latest, LONG, &v));
    fine(weft_swap(s, &v, LONG));
    fine(weft_use(s, &pin));
    commit(p, 2);
    fine(weft_fetch(s, &latest, LONG, &v)); /* beside the pinned one */
    fine(weft_swap(s, &v, LONG));
    compare(s, 2);
    assert_int_equal(weft_pin_version(pin).step, 1);
    commit(p, 3);
    assert_int_equal(weft_fetch(s, &latest, 20 * MS, &v), WEFT_ETIMEOUT);
    says("pinned");
    compare(s, 2);
    weft_unuse(pin);
    fine(weft_fetch(s, &latest, LONG, &v));
    fine(weft_swap(s, &v, LONG));
    compare(s, 3);
    weft_subscriber_close(s);
    weft_publisher_close(p);
    fine(weft_bus_close(b));
}

/* A publisher that puts while a version of its is read: called in the middle of the fetch. */
struct meddler {
    weft_publisher *p;
    int64_t next;
    int calls, code;
    bool stop;
};

static int meddle(void *arg, int64_t done, int64_t total)
{
    struct meddler *m = arg;
    struct arrays a;
    (void)done, (void)total;
    if (m->calls++ || !m->p)
        return m->stop;
    fill(&a, m->next);
    m->code = weft_put(m->p, m->next, a.views);
    if (!m->code)
        m->code = weft_commit(m->p, m->next, NULL, NULL);
    return m->stop;
}

static void leased(void **state)
{
    (void)state;
    weft_bus *a = open_bus("slow"), *b = open_bus("reader");
    weft_publish_opts one = WEFT_PUBLISH_OPTS_INIT;
    struct meddler m = {.next = 2};
    weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
    weft_epoch_step v;
    one.keep = 1;
    weft_publisher *p = publish(a, "leased", &one);
    o.progress = meddle;
    o.arg = &m;
    m.p = p;
    weft_subscriber *s = subscribe(b, "leased", &o);
    commit(p, 1);
    fine(weft_fetch(s, &latest, LONG, &v)); /* the snapshot that is read is not reused */
    assert_int_equal(m.code, WEFT_EBUSY);
    assert_int_equal(v.step, 1);
    fine(weft_swap(s, &v, LONG));
    compare(s, 1);
    commit(p, 2);
    m.stop = true;
    assert_int_equal(weft_fetch(s, &latest, LONG, &v), WEFT_EINVAL);
    says("stopped by the caller");
    compare(s, 1);
    m.stop = false;
    fine(weft_fetch(s, &latest, LONG, &v)); /* the next one begins clean */
    fine(weft_swap(s, &v, LONG));
    compare(s, 2);
    weft_subscriber_close(s);
    weft_publisher_close(p);
    fine(weft_bus_close(a));
    fine(weft_bus_close(b));
}

/* ---- lies ---- */

static void wrong_digest(void **state)
{
    (void)state;
    weft_bus *b = open_bus("liar");
    weft_publisher *p = publish(b, "digest", NULL);
    weft_subscriber *s = subscribe(b, "digest", NULL);
    weft_epoch_step v;
    commit(p, 1);
    fine(weft_fetch(s, &latest, LONG, &v));
    fine(weft_swap(s, &v, LONG));
    commit(p, 2);
    assert_int_equal(flip(1001), 2);
    assert_int_equal(weft_fetch(s, &latest, LONG, &v), WEFT_EMISMATCH);
    says("version 1.2: tensor 'model.embed', block 0 of rank 0 of publisher liar: the digest is wrong");
    char metrics[8192];
    size_t len;
    fine(weft_bus_metrics(b, metrics, sizeof metrics, &len));
    assert_non_null(strstr(metrics, "weft_bus_failed_total{call=\"check\"} 1\n"));
    compare(s, 1);
    weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
    o.no_check = true;
    weft_subscriber *blind = subscribe(b, "digest", &o);
    fine(weft_fetch(blind, &latest, LONG, &v));
    weft_subscriber_close(blind);
    commit(p, 3);
    fine(weft_fetch(s, &latest, LONG, &v));
    fine(weft_swap(s, &v, LONG));
    compare(s, 3);
    weft_subscriber_close(s);
    weft_publisher_close(p);
    fine(weft_bus_close(b));
}

/* Records that say something else than the publisher has. */
static void wrong_records(void **state)
{
    (void)state;
    weft_bus *b = open_bus("forger");
    struct directory *d = directories_open("");
    const char *const lies[] = {"schema ", "layouts ", "parts ", "ranks ", "generation ", "hash ", "sketch "};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        char set[32];
        weft_epoch_step v;
        struct directory_items items;
        snprintf(set, sizeof set, "forged%zu", i);
        weft_publisher *p = publish(b, set, NULL);
        weft_subscriber *s = subscribe(b, set, NULL);
        commit(p, 1);
        char prefix[64];
        snprintf(prefix, sizeof prefix, "sets/%s/", set);
        fine(directory_get(d, prefix, LONG, &items));
        int forged = 0;
        for (size_t k = 0; k < items.n; k++) {
            char value[8192];
            memcpy(value, items.items[k].value, items.items[k].bytes + 1);
            char *at = strstr(value, lies[i]);
            if (!at || strstr(items.items[k].key, "/epoch"))
                continue;
            at += strlen(lies[i]);
            *at = *at == '1' ? '2' : '1';
            directories_put(d, items.items[k].key, value, items.items[k].lease);
            forged++;
        }
        directory_items_free(&items);
        assert_int_equal(forged, 1);
        int err = weft_fetch(s, &latest, i < 2 || i == 6 ? LONG : 200 * MS, &v); /* the others may wait for a holder */
        if (i == 6) /* the sketch is for those that commit */
            assert_int_equal(err, 0);
        else if (i < 2)
            assert_int_equal(err, WEFT_EMISMATCH);
        else if (err != WEFT_ETIMEOUT && err != WEFT_EMISMATCH)
            fail_msg("%s: %d %s", lies[i], err, weft_errmsg());
        weft_subscriber_close(s);
        weft_publisher_close(p);
    }
    directory_close(d);
    fine(weft_bus_close(b));
}

/* ---- arrays that are not dense, blocks of large ones ---- */

static void strided(void **state)
{
    (void)state;
    enum { ROWS = 1100, COLUMNS = 1024 };
    weft_bus *b = open_bus("strided");
    weft_layout *l;
    fine(weft_layout_parse("f32[1100,1024] @x1", &l)); /* more than one block */
    weft_bus_tensor t = {.name = "w", .layout = l};
    weft_publisher *p;
    weft_subscriber *s;
    fine(weft_publish(b, "strided", &t, 1, NULL, &p));
    fine(weft_subscribe(b, "strided", &t, 1, NULL, &s));
    float *columns = malloc(ROWS * COLUMNS * sizeof *columns); /* transposed */
    for (int i = 0; i < ROWS * COLUMNS; i++)
        columns[i] = (float)i;
    int64_t strides[2] = {4, 4 * ROWS};
    weft_view view = {.data = columns, .bytes = ROWS * COLUMNS * sizeof *columns, .strides = strides};
    fine(weft_put(p, 0, &view));
    fine(weft_commit(p, 0, NULL, NULL));
    weft_epoch_step v;
    weft_pin *pin;
    const void *data;
    fine(weft_fetch(s, &latest, LONG, &v));
    fine(weft_swap(s, &v, LONG));
    fine(weft_use(s, &pin));
    fine(weft_pin_data(pin, 0, &data, NULL));
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < COLUMNS; k++)
            if (((const float *)data)[i * COLUMNS + k] != columns[k * ROWS + i])
                fail_msg("element %d, %d", i, k);
    weft_unuse(pin);
    fine(weft_put(p, 1, &view));
    fine(weft_commit(p, 1, NULL, NULL));
    flip(1090 * COLUMNS * 4 + 17); /* in both, so that the one that is read is among them */
    assert_int_equal(weft_fetch(s, &latest, LONG, &v), WEFT_EMISMATCH);
    says("tensor 'w', block 68 of");
    free(columns);
    weft_layout_free(l);
    weft_subscriber_close(s);
    weft_publisher_close(p);
    fine(weft_bus_close(b));
}

/* A reader looks at blocks with an element that it needs, and at no others: here the left half of rows of two blocks.
 */
static void blocks_touched(void **state)
{
    (void)state;
    enum { ROWS = 6, COLUMNS = 32768 }; /* a row has 128 KiB */
    weft_bus *b = open_bus("touched");
    weft_layout *l[2];
    fine(weft_layout_parse("f32[6,32768] @x1", &l[0]));
    fine(weft_layout_parse("f32[6,32768/x] @x2", &l[1]));
    weft_publisher *p;
    weft_subscriber *s;
    weft_epoch_step v;
    weft_pin *pin;
    const void *data;
    fine(weft_publish(b, "touched", &(weft_bus_tensor){.name = "w", .layout = l[0]}, 1, NULL, &p));
    fine(weft_subscribe(b, "touched", &(weft_bus_tensor){.name = "w", .layout = l[1]}, 1, NULL, &s));
    float *w = malloc(ROWS * COLUMNS * sizeof *w);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        w[i] = (float)i;
    fine(weft_put(p, 1, &(weft_view)WEFT_VIEW(w, ROWS * COLUMNS * sizeof *w)));
    fine(weft_commit(p, 1, NULL, NULL));
    flip(3 * 131072 + 65536 + 5); /* the right half of row 3 */
    fine(weft_fetch(s, &latest, LONG, &v));
    fine(weft_swap(s, &v, LONG));
    fine(weft_use(s, &pin));
    fine(weft_pin_data(pin, 0, &data, NULL));
    for (int i = 0; i < ROWS; i++)
        assert_memory_equal((const float *)data + i * COLUMNS / 2, w + i * COLUMNS, COLUMNS / 2 * sizeof *w);
    weft_unuse(pin);
    flip(3 * 131072 + 5); /* the left one */
    assert_int_equal(weft_fetch(s, &latest, LONG, &v), WEFT_EMISMATCH);
    says("tensor 'w', block 6 of");
    free(w);
    weft_layout_free(l[0]);
    weft_layout_free(l[1]);
    weft_subscriber_close(s);
    weft_publisher_close(p);
    fine(weft_bus_close(b));
}

/* ---- many versions, readers that come and go ---- */

/* Sanitizers keep what was freed. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

static long resident(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_int_equal(fscanf(f, "%*d %ld", &pages), 1);
    fclose(f);
    return pages;
}

static void flat(void **state)
{
    (void)state;
    weft_bus *a = open_bus("trainer"), *b = open_bus("reader");
    weft_publisher *p = publish(a, "flat", NULL);
    weft_subscriber *s[4] = {NULL};
    struct random g = random_of(6, 0);
    int64_t share = test_share(directories_slow() ? 40 : 300, 10000),
            n = share > 12 ? share : 12; /* n / 3: the ring is full */
    long pages = 0;
    int files = 0;
    size_t keys = 0;
    for (int64_t step = 0; step < n; step++) {
        struct arrays x;
        weft_epoch_step v;
        fill(&x, step);
        fine(weft_put(p, step, x.views));
        char meta[32];
        snprintf(meta, sizeof meta, "{\"step\": %lld}", (long long)step);
        fine(weft_commit(p, step, meta, NULL));
        for (int i = 0; i < 4; i++) {
            if (!s[i])
                s[i] = subscribe(b, "flat", NULL);
            if (random_once_in(&g, 3))
                continue;
            fine(weft_fetch(s[i], &latest, LONG, &v));
            fine(weft_swap(s[i], &v, LONG));
            compare(s[i], step);
            if (random_once_in(&g, 5)) {
                weft_subscriber_close(s[i]);
                s[i] = NULL;
            }
        }
        if (step != n / 3 && step != n - 1)
            continue;
        struct directory *d = directories_open("");
        struct directory_items items;
        fine(directory_get(d, "sets/flat/", LONG, &items));
        if (step == n - 1) {
            assert_true(items.n <= keys + 4); /* a key of each reader */
            assert_true(process_files() <= files + 8);
            assert_true(SANITIZED || resident() <= pages + 2048);
        }
        keys = items.n;
        files = process_files();
        pages = resident();
        directory_items_free(&items);
        directory_close(d);
    }
    for (int i = 0; i < 4; i++)
        weft_subscriber_close(s[i]);
    weft_publisher_close(p);
    fine(weft_bus_close(a));
    fine(weft_bus_close(b));
}

/* ---- a large model ---- */

static void many(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    enum { COUNT = 2000 };
#else
    enum { COUNT = 45000 };
#endif
    weft_bus *a = open_bus("large"), *b = open_bus("small");
    weft_bus_tensor *t = calloc(COUNT, sizeof *t);
    weft_view *views = calloc(COUNT, sizeof *views);
    char(*texts_of)[48] = malloc(COUNT * sizeof *texts_of);
    float data[12];
    weft_layout *l;
    weft_publisher *p;
    weft_subscriber *s;
    weft_epoch_step v;
    weft_pin *pin;
    fine(weft_layout_parse("f32[3,4] @x1", &l));
    for (int i = 0; i < 12; i++)
        data[i] = (float)i;
    for (int i = 0; i < COUNT; i++) {
        snprintf(texts_of[i], sizeof *texts_of, "model.layers.%d.experts.%d.weight", i / 256, i % 256);
        t[i] = (weft_bus_tensor){.name = texts_of[i], .layout = l};
        views[i] = (weft_view)WEFT_VIEW(data, sizeof data);
    }
    int64_t times[6] = {clock_now()};
    fine(weft_publish(a, "many", t, COUNT, NULL, &p));
    times[1] = clock_now();
    fine(weft_put(p, 1, views));
    times[2] = clock_now();
    fine(weft_commit(p, 1, NULL, NULL));
    times[3] = clock_now();
    fine(weft_subscribe(b, "many", t, COUNT, NULL, &s));
    fine(weft_fetch(s, &latest, LONG, &v));
    times[4] = clock_now();
    int64_t swap = INT64_MAX; /* the best of some: the machine may be busy */
    for (int64_t step = 2; step < 7; step++) {
        int64_t before = clock_now();
        fine(weft_swap(s, &v, LONG));
        swap = clock_now() - before < swap ? clock_now() - before : swap;
        fine(weft_put(p, step, views));
        fine(weft_commit(p, step, NULL, NULL));
        fine(weft_fetch(s, &latest, LONG, &v));
    }
    times[5] = clock_now();
    assert_true(swap < MS);
    fine(weft_use(s, &pin));
    for (size_t i = 0; i < COUNT; i += 997) {
        const void *at;
        fine(weft_pin_data(pin, i, &at, NULL));
        assert_memory_equal(at, data, sizeof data);
    }
    weft_unuse(pin);
    struct directory *d = directories_open("");
    struct directory_items items;
    size_t bytes = 0;
    fine(directory_get(d, "sets/many/", LONG, &items));
    for (size_t i = 0; i < items.n; i++)
        bytes += items.items[i].bytes + strlen(items.items[i].key);
    directory_items_free(&items);
    directory_close(d);
    assert_true(bytes < 65536);
    print_message("%d tensors: publish %.0f ms, put %.0f, commit %.1f, first fetch %.0f, later put and fetch %.0f, "
                  "swap %.4f; "
                  "%zu bytes in the directory\n",
                  COUNT, (double)(times[1] - times[0]) / 1e6, (double)(times[2] - times[1]) / 1e6,
                  (double)(times[3] - times[2]) / 1e6, (double)(times[4] - times[3]) / 1e6,
                  (double)(times[5] - times[4]) / 5e6, (double)swap / 1e6, bytes);
    weft_subscriber_close(s);
    weft_publisher_close(p);
    weft_layout_free(l);
    free(texts_of);
    free(views);
    free(t);
    fine(weft_bus_close(a));
    fine(weft_bus_close(b));
}

/* The lease of a publisher's slot; 0: it is not there. */
static int64_t lease_of_slot(struct directory *d, const char *set)
{
    struct directory_items items;
    char prefix[64];
    int64_t lease = 0;
    snprintf(prefix, sizeof prefix, "sets/%s/slots/", set);
    fine(directory_get(d, prefix, LONG, &items));
    for (size_t i = 0; i < items.n; i++)
        lease = items.items[i].lease;
    directory_items_free(&items);
    return lease;
}

/* Somebody deletes all that the directory has, while leases are alive: publishers register again, with the lease that
 * they have. Other keys of theirs may have it still. */
static void wiped(void **state)
{
    (void)state;
    weft_bus_opts o = WEFT_BUS_OPTS_INIT;
    weft_bus *a, *b = open_bus("server");
    weft_epoch_step v;
    o.token = PUBLISH_TOKEN;
    o.lease_ns = directories_ttl(SECOND);
    fine(weft_bus_open(directories_url(), &o, &a));
    weft_publisher *p = publish(a, "wiped", NULL);
    commit(p, 1);
    struct directory *d = directories_open("");
    struct directory_items items;
    struct directory_outcome done;
    const int64_t lease = lease_of_slot(d, "wiped");
    fine(directory_get(d, "sets/wiped/", LONG, &items));
    assert_true(lease && items.n >= 4); /* the epoch, a slot, a part, a version */
    for (size_t i = 0; i < items.n; i++) {
        struct directory_change x = {.key = items.items[i].key, .erase = true};
        struct directory_transaction t = {NULL, 0, &x, 1};
        fine(directory_transact(d, &t, LONG, &done));
    }
    directory_items_free(&items);
    weft_subscriber *s = subscribe(b, "wiped", NULL);
    fine(weft_fetch(s, &latest, LONG, &v));
    assert_true(v.epoch == 1 && v.step == 1);
    assert_int_equal(lease_of_slot(d, "wiped"), lease);
    fine(weft_swap(s, &v, LONG));
    compare(s, 1);
    commit(p, 2);
    fine(weft_fetch(s, &latest, LONG, &v));
    fine(weft_swap(s, &v, LONG));
    compare(s, 2);
    weft_subscriber_close(s);
    weft_publisher_close(p);
    directory_close(d);
    fine(weft_bus_close(a));
    fine(weft_bus_close(b));
}

/* ---- a watch that hears nothing, as after a directory has lost its data ---- */

static struct {
    weft_publisher *publisher; /* commits step 1 while the reader waits */
    int waits;
} deaf;

static int deaf_next(struct directory_watch *w, int64_t until, struct directory_items *out)
{
    (void)out;
    if (!deaf.waits++)
        commit(deaf.publisher, 1);
    for (int64_t pause = SECOND; deadline_now() < until;)
        deadline_pause(&pause, LONG, until);
    return directory_late(w->directory, "watch");
}

static void deaf_unwatch(struct directory_watch *w)
{
    (void)w;
}

/* A reader that waits looks at the directory itself once a second. */
static void deaf_watch(void **state)
{
    (void)state;
    static const struct directory_kind kind = {.next = deaf_next, .unwatch = deaf_unwatch};
    static char url[] = "deaf:";
    static struct directory d = {.kind = &kind, .url = url, .space = url + sizeof url - 1};
    weft_bus *a = open_bus("trainer"), *b = open_bus("server");
    weft_subscriber *s = subscribe(b, "deaf", NULL);
    weft_epoch_step v;
    deaf.publisher = publish(a, "deaf", NULL);
    deaf.waits = 0;
    s->watch = calloc(1, sizeof *s->watch);
    assert_non_null(s->watch);
    s->watch->directory = &d;
    fine(weft_fetch(s, &latest, 20 * SECOND, &v));
    assert_true(v.step == 1 && deaf.waits == 1);
    weft_subscriber_close(s);
    weft_publisher_close(deaf.publisher);
    fine(weft_bus_close(a));
    fine(weft_bus_close(b));
}

/* ---- a directory that has just forgotten everything ---- */

static int refusals; /* transactions of one part that do not hold, as when the fence is away for a moment */

int __real_keeper_transact(struct keeper *k, const struct directory_compare *compares, size_t ncompares,
                           struct directory_change *changes, size_t nchanges, int64_t until,
                           struct directory_outcome *out);
int __wrap_keeper_transact(struct keeper *k, const struct directory_compare *compares, size_t ncompares,
                           struct directory_change *changes, size_t nchanges, int64_t until,
                           struct directory_outcome *out);
int __wrap_keeper_transact(struct keeper *k, const struct directory_compare *compares, size_t ncompares,
                           struct directory_change *changes, size_t nchanges, int64_t until,
                           struct directory_outcome *out)
{
    if (nchanges == 1 && strstr(changes[0].key, "/parts/") && refusals > 0) {
        refusals--;
        *out = (struct directory_outcome){0};
        return 0;
    }
    return __real_keeper_transact(k, compares, ncompares, changes, nchanges, until, out);
}

/* The fence was away when a part was put, and is back with the revision that it had: revisions begin anew in a
 * directory that was wiped. The part is put again, so that the version is seen. */
static void fence_comes_back(void **state)
{
    (void)state;
    weft_bus *b = open_bus("fence");
    weft_publisher *p = publish(b, "fence", NULL);
    weft_subscriber *s = subscribe(b, "fence", NULL);
    weft_epoch_step v;
    refusals = 2;
    commit(p, 1);
    assert_int_equal(refusals, 0);
    fine(weft_fetch(s, &latest, LONG, &v));
    fine(weft_swap(s, &v, LONG));
    compare(s, 1);
    weft_subscriber_close(s);
    weft_publisher_close(p);
    fine(weft_bus_close(b));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(round_trip),   cmocka_unit_test(names_differ),
                                       cmocka_unit_test(refused),      cmocka_unit_test(older_epoch),
                                       cmocka_unit_test(pins),         cmocka_unit_test(leased),
                                       cmocka_unit_test(wrong_digest), cmocka_unit_test(wrong_records),
                                       cmocka_unit_test(strided),      cmocka_unit_test(blocks_touched),
                                       cmocka_unit_test(flat),         cmocka_unit_test(wiped),
                                       cmocka_unit_test(deaf_watch),   cmocka_unit_test(fence_comes_back)};
    const struct CMUnitTest served[] = {cmocka_unit_test(many)};
    return SUITE_MAIN(argc, argv, SUITE_AT(&directories_places, tests), SUITE_AT(&directories_served, served));
}
