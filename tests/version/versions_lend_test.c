/* Versions that are lent: read in place, withdrawn when the loan ends, and never mixed with what comes after. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "version/away_kit.h"
#include "version/bus.h"
#include "version/version_kit.h"

#define T 3
static const char *const lent_texts[T] = {"f32[300,100] @x1", "i16[7] @x1", "f64[2,9000] @x1"};

struct loan {
    weft_layout *layouts[T];
    weft_bus_tensor tensors[T];
    float a[30000];
    int16_t b[7];
    double c[18000];
    weft_view views[T];
    weft_publisher *p;
    int ends, result; /* for the callback */
    int64_t timeout;
};
static struct loan loan;

static void fill_loan(int64_t step)
{
    for (int i = 0; i < 30000; i++)
        loan.a[i] = (float)(i % 1000 + step);
    for (int i = 0; i < 7; i++)
        loan.b[i] = (int16_t)(i - step);
    for (int i = 0; i < 18000; i++)
        loan.c[i] = (double)i / 3 + (double)step;
}

static void open_loan(weft_bus *b, const char *set, const weft_publish_opts *o)
{
    for (int i = 0; i < T; i++) {
        fine(weft_layout_parse(lent_texts[i], &loan.layouts[i]));
        loan.tensors[i] = (weft_bus_tensor){.name = names[i], .layout = loan.layouts[i]};
    }
    loan.views[0] = (weft_view)WEFT_VIEW(loan.a, sizeof loan.a);
    loan.views[1] = (weft_view)WEFT_VIEW(loan.b, sizeof loan.b);
    loan.views[2] = (weft_view)WEFT_VIEW(loan.c, sizeof loan.c);
    fine(weft_publish(b, set, loan.tensors, T, o, &loan.p));
}

static void close_loan(void)
{
    weft_publisher_close(loan.p);
    for (int i = 0; i < T; i++)
        weft_layout_free(loan.layouts[i]);
}

static void lend(int64_t step)
{
    fill_loan(step);
    fine(weft_lend(loan.p, step, loan.views));
    fine(weft_commit(loan.p, step, NULL, NULL));
}

static void check_loan(weft_subscriber *s, int64_t step)
{
    weft_pin *pin;
    const void *data[T];
    fine(weft_use(s, &pin));
    assert_int_equal(weft_pin_version(pin).step, step);
    for (size_t i = 0; i < T; i++)
        fine(weft_pin_data(pin, i, &data[i], NULL));
    fill_loan(step);
    assert_memory_equal(data[0], loan.a, sizeof loan.a);
    assert_memory_equal(data[1], loan.b, sizeof loan.b);
    assert_memory_equal(data[2], loan.c, sizeof loan.c);
    weft_unuse(pin);
}

/* From the same host, by the relay of another one, and from another one without a relay. */
static void read_in_place(void **state)
{
    (void)state;
    weft_bus *a, *b;
    weft_epoch_step v;
    weft_publish_opts o = WEFT_PUBLISH_OPTS_INIT;
    weft_subscribe_opts alone = WEFT_SUBSCRIBE_OPTS_INIT;
    weft_subscriber *s[3];
    open_two(true, &a, &b);
    o.lend = true;
    open_loan(a, "lent", &o);
    alone.alone = true;
    fine(weft_subscribe(a, "lent", loan.tensors, T, NULL, &s[0]));
    fine(weft_subscribe(b, "lent", loan.tensors, T, NULL, &s[1]));
    fine(weft_subscribe(b, "lent", loan.tensors, T, &alone, &s[2]));
    for (int64_t step = 1; step < 4; step++) {
        lend(step);
        for (int i = 0; i < 3; i++) {
            fine(weft_fetch(s[i], &latest, LONG, &v));
            fine(weft_swap(s[i], &v, LONG));
            static const char *const ways[3] = {"publisher here (socket)", "publisher here (relay)",
                                                "publisher here (tcp)"};
            char text[1024];
            size_t n;
            fine(weft_subscriber_explain(s[i], false, text, sizeof text, &n));
            assert_non_null(strstr(text, ways[i]));
        }
        fine(weft_lend_end(loan.p, step == 1 ? LONG : 0));
        memset(loan.a, 0xff, sizeof loan.a); /* the arrays are free again */
        for (int i = 0; i < 3; i++) {
            check_loan(s[i], step);
            assert_int_equal(weft_fetch(s[i], &(weft_want){WEFT_WANT_NEWER, 0}, 0, &v), WEFT_ETIMEOUT);
        }
    }
    assert_int_equal(weft_put(loan.p, 9, loan.views), WEFT_EINVAL);
    says("with lend");
    for (int i = 0; i < 3; i++)
        weft_subscriber_close(s[i]);
    close_loan();
    fine(weft_bus_close(a));
    fine(weft_bus_close(b));
}

/* On the fetch's thread, which is the publisher's, too: ends the loan amid a fetch and reuses the arrays. */
static int end_loan(void *arg, int64_t done, int64_t total)
{
    (void)arg, (void)done, (void)total;
    if (!loan.ends++) {
        loan.result = weft_lend_end(loan.p, loan.timeout);
        memset(loan.a, 0xee, sizeof loan.a);
        memset(loan.c, 0xee, sizeof loan.c);
    }
    return 0;
}

static void ends_amid_a_fetch(void **state)
{
    (void)state;
    for (int host = 0; host < 3; host++) {
        weft_bus *a, *b;
        weft_epoch_step v;
        weft_subscriber *s;
        weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
        open_two(true, &a, &b);
        open_loan(a, "ends", NULL);
        o.progress = end_loan;
        o.alone = host == 2;
        fine(weft_subscribe(host ? b : a, "ends", loan.tensors, T, &o, &s));
        fill_loan(1);
        fine(weft_put(loan.p, 1, loan.views)); /* puts and loans in turns */
        fine(weft_commit(loan.p, 1, NULL, NULL));
        lend(2);
        loan.ends = 0;
        loan.timeout = host == 1 ? 0 : 30 * MS;
        fine(weft_fetch(s, &latest, LONG, &v));
        assert_true(loan.ends > 1);
        assert_int_equal(loan.result, host == 1 ? 0 : WEFT_ETIMEOUT); /* the reader was not done */
        fine(weft_swap(s, &v, LONG));
        assert_true(v.step == 1 || host == 1); /* a relay may have had all of it */
        check_loan(s, v.step);
        weft_subscriber_close(s);
        close_loan();
        fine(weft_bus_close(a));
        fine(weft_bus_close(b));
    }
}

static void written_during_a_loan(void **state)
{
    (void)state;
    weft_bus *a = open_bus("lender");
    weft_epoch_step v;
    weft_subscriber *s;
    open_loan(a, "written", NULL);
    fine(weft_subscribe(a, "written", loan.tensors, T, NULL, &s));
    lend(1);
    loan.c[17000] += 1;
    assert_int_equal(weft_fetch(s, &latest, LONG, &v), WEFT_EMISMATCH);
    says("tensor 'step', block 2 of rank 0 of publisher lender: the digest is wrong");
    fine(weft_lend_end(loan.p, 0));
    lend(2);
    fine(weft_fetch(s, &latest, LONG, &v));
    fine(weft_swap(s, &v, LONG));
    fine(weft_lend_end(loan.p, LONG));
    check_loan(s, 2);
    weft_subscriber_close(s);
    close_loan();
    fine(weft_bus_close(a));
}

static void refused(void **state)
{
    (void)state;
    weft_bus *a = open_bus("lender");
    weft_publisher *p;
    weft_layout *boxes;
    open_loan(a, "refused", NULL);
    int64_t strides[2] = {400, 4}, apart[2] = {4, 1200};
    fine(weft_lend_end(loan.p, 0)); /* nothing is lent */
    loan.views[0].strides = apart;
    assert_int_equal(weft_lend(loan.p, 1, loan.views), WEFT_EUNSUPPORTED);
    says("is not dense");
    loan.views[0].strides = strides;
    lend(1);
    assert_int_equal(weft_lend(loan.p, 2, loan.views), WEFT_EBUSY);
    says("step 1 is lent");
    assert_int_equal(weft_put(loan.p, 1, loan.views), WEFT_EINVAL);
    fine(weft_lend_end(loan.p, 0));
    assert_int_equal(weft_commit(loan.p, 1, NULL, NULL), WEFT_EINVAL);
    assert_int_equal(weft_lend(loan.p, 0, loan.views), WEFT_EINVAL);
    assert_int_equal(weft_lend(loan.p, 1, loan.views), WEFT_EINVAL); /* readers may have it */
    says("step 1 was lent and committed");
    assert_int_equal(weft_put(loan.p, 1, loan.views), WEFT_EINVAL);
    lend(2);
    assert_int_equal(weft_lend_end(loan.p, -77), WEFT_EINVAL); /* a wrong timeout: the loan ends all the same */
    says("the timeout is -77");
    assert_int_equal(weft_commit(loan.p, 2, NULL, NULL), WEFT_EINVAL);
    fine(weft_lend(loan.p, 3, loan.views)); /* never committed: it may be lent again */
    fine(weft_lend_end(loan.p, LONG));
    fine(weft_lend(loan.p, 3, loan.views));
    fine(weft_lend_end(loan.p, 0));
    loan.views[2].bytes = 8;
    assert_int_equal(weft_lend(loan.p, 4, loan.views), WEFT_EINVAL);
    says("'step': its array is too small");
    fine(weft_layout_parse("f32[8] @{0: [:]=4}", &boxes));
    fine(weft_publish(a, "other", &(weft_bus_tensor){.name = "w", .layout = boxes}, 1, NULL, &p));
    assert_int_equal(weft_lend(p, 1, loan.views), WEFT_EUNSUPPORTED);
    says("layout of boxes");
    weft_publisher_close(p);
    fine(weft_publish(a, "other", &(weft_bus_tensor){.name = "w", .layout = loan.layouts[0], .dtype = WEFT_F64}, 1,
                      NULL, &p));
    assert_int_equal(weft_lend(p, 1, loan.views), WEFT_EUNSUPPORTED);
    says("another dtype");
    weft_publisher_close(p);
    weft_publish_opts o = WEFT_PUBLISH_OPTS_INIT;
    o.lend = true;
    o.keep = 3;
    assert_int_equal(weft_publish(a, "other", loan.tensors, T, &o, &p), WEFT_EINVAL);
    weft_layout_free(boxes);
    close_loan();
    fine(weft_bus_close(a));
}

/* The directory is away when a loan ends: the version goes when it is back. */
static void ends_without_the_directory(void **state)
{
    (void)state;
    struct away x;
    away_begin(&x);
    weft_bus *b = away_bus(&x, 300 * MS, 60 * SECOND);
    weft_bus_version v[4];
    size_t n = 0;
    open_loan(b, "away", NULL);
    lend(1);
    fine(weft_bus_versions(b, "away", LONG, v, 4, &n));
    assert_int_equal(n, 1);
    bus_server_stop(x.server);
    int err = weft_lend_end(loan.p, 0);
    assert_true(err == WEFT_ETIMEOUT || err == WEFT_ETRANSPORT);
    away_comes(&x);
    for (int64_t until = clock_now() + LONG; n && clock_now() < until; clock_pause(MS))
        if (weft_bus_versions(b, "away", LONG, v, 4, &n))
            n = 1;
    assert_int_equal(n, 0);
    lend(2); /* and the next one can be lent */
    fine(weft_bus_versions(b, "away", LONG, v, 4, &n));
    assert_int_equal(n, 1);
    fine(weft_lend_end(loan.p, 0));
    close_loan();
    fine(weft_bus_close(b));
    away_end(&x);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(read_in_place), cmocka_unit_test(ends_amid_a_fetch),
                                       cmocka_unit_test(written_during_a_loan), cmocka_unit_test(refused),
                                       cmocka_unit_test(ends_without_the_directory)};
    return SUITE_MAIN(argc, argv, SUITE_AT(&directories_served, tests));
}
