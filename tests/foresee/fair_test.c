/* Max-min fair rates: against progressive filling by small steps of arithmetic, written without a heap, and by the
 * definition: no link has more than it can carry, and each flow has a full link on which no flow has more. Flows that
 * take turns on a link count together as one does. */
#include <math.h>
#include <stdio.h>

#include "foresee/fair.h"
#include "support/random.h"
#include "support/suite.h"

enum { LINKS = 8, FLOWS = 24 };

struct network {
    double cap[LINKS];
    struct fair_flow flow[FLOWS], *at[FLOWS];
    double weight[FLOWS];
    size_t flows;
};

static void draw(struct network *net, int64_t number)
{
    struct random r = random_of(2121, number);
    net->flows = (size_t)random_in(&r, 0, FLOWS);
    for (int l = 0; l < LINKS; l++)
        net->cap[l] = (double)random_in(&r, 1, 40) / 4;
    for (size_t i = 0; i < net->flows; i++) {
        struct fair_flow *f = &net->flow[i];
        net->at[i] = f;
        f->uses = 0;
        f->turns = -1;
        for (uint32_t l = 0; l < LINKS; l++)
            if (random_once_in(&r, 3))
                f->use[f->uses++] = (struct fair_use){l, (float)random_in(&r, 1, 8) / 4};
        if (f->uses && random_once_in(&r, 2))
            f->turns = (int16_t)random_in(&r, 0, f->uses - 1);
    }
    for (size_t i = 0; i < net->flows; i++) {
        const struct fair_flow *f = &net->flow[i];
        int sharers = 0;
        for (size_t j = 0; j < net->flows && f->turns >= 0; j++)
            for (int k = 0; k < net->flow[j].uses; k++)
                sharers += net->flow[j].use[k].link == f->use[f->turns].link;
        net->weight[i] = f->turns < 0 ? 1 : 1.0 / sharers;
    }
}

/* All rates grow at the pace of their weights. The first link that is full stops its flows. */
static void fill(const struct network *net, double *rate)
{
    bool still[FLOWS] = {0};
    for (size_t i = 0; i < net->flows; i++) {
        rate[i] = net->flow[i].uses ? 0 : INFINITY;
        still[i] = !net->flow[i].uses;
    }
    for (;;) {
        double step = INFINITY;
        double load[LINKS] = {0}, used[LINKS] = {0};
        for (size_t i = 0; i < net->flows; i++)
            for (int k = 0; k < net->flow[i].uses; k++) {
                const struct fair_use *u = &net->flow[i].use[k];
                used[u->link] += rate[i] * (double)u->each;
                load[u->link] += still[i] ? 0 : net->weight[i] * (double)u->each;
            }
        for (int l = 0; l < LINKS; l++)
            if (load[l] > 0)
                step = fmin(step, (net->cap[l] - used[l]) / load[l]);
        if (isinf(step))
            return;
        for (size_t i = 0; i < net->flows; i++)
            rate[i] += still[i] ? 0 : net->weight[i] * step;
        for (size_t i = 0; i < net->flows; i++)
            for (int k = 0; k < net->flow[i].uses; k++) {
                uint32_t l = net->flow[i].use[k].link;
                if (load[l] > 0 && (net->cap[l] - used[l]) / load[l] <= step * (1 + 1e-9) + 1e-12)
                    still[i] = true;
            }
    }
}

static void rates_equal_progressive_filling(void **state)
{
    (void)state;
    struct fair *f = fair_new(LINKS);
    assert_non_null(f);
    for (int64_t n = 0; suite_seed(&n, 0, 3000); n++) {
        struct network net;
        double rate[FLOWS];
        draw(&net, n);
        fill(&net, rate);
        assert_int_equal(fair_solve(f, net.cap, net.at, net.flows), 0);
        for (size_t i = 0; i < net.flows; i++)
            if (isinf(rate[i]) ? !isinf(net.flow[i].rate) : fabs(net.flow[i].rate - rate[i]) > 1e-6 * (1 + rate[i]))
                fail_msg("network %d, flow %zu: %g and not %g", (int)n, i, net.flow[i].rate, rate[i]);
    }
    fair_free(f);
}

static void each_flow_has_a_full_link_where_none_has_more(void **state)
{
    (void)state;
    struct fair *f = fair_new(LINKS);
    assert_non_null(f);
    for (int64_t n = 0; suite_seed(&n, 0, 3000); n++) {
        struct network net;
        double used[LINKS] = {0}, most[LINKS] = {0};
        uint32_t sharers[LINKS] = {0};
        draw(&net, n);
        assert_int_equal(fair_solve(f, net.cap, net.at, net.flows), 0);
        for (size_t i = 0; i < net.flows; i++)
            for (int k = 0; k < net.flow[i].uses; k++) {
                uint32_t l = net.flow[i].use[k].link;
                used[l] += net.flow[i].rate * (double)net.flow[i].use[k].each;
                most[l] = fmax(most[l], net.flow[i].rate / net.weight[i]);
                sharers[l]++;
            }
        for (uint32_t l = 0; l < LINKS; l++) {
            assert_true(used[l] <= net.cap[l] * (1 + 1e-9));
            assert_int_equal(fair_sharers(f, l), sharers[l]);
        }
        for (size_t i = 0; i < net.flows; i++) {
            uint32_t l = net.flow[i].narrow;
            if (!net.flow[i].uses) {
                assert_int_equal(l, FAIR_NONE);
                continue;
            }
            assert_true(used[l] >= net.cap[l] * (1 - 1e-9));
            assert_true(net.flow[i].rate / net.weight[i] >= most[l] * (1 - 1e-9));
        }
    }
    fair_free(f);
}

static void two_links_by_hand(void **state)
{
    (void)state;
    /* Three flows on a link of 9, one of them also on a link of 1: it has 1, the others 4 each. */
    double cap[2] = {9, 1};
    struct fair_flow a = {.use = {{0, 1}}, .uses = 1, .turns = -1}, b = a;
    struct fair_flow c = {.use = {{0, 1}, {1, 1}}, .uses = 2, .turns = -1};
    struct fair_flow *all[] = {&a, &b, &c};
    struct fair *f = fair_new(2);
    assert_non_null(f);
    assert_int_equal(fair_solve(f, cap, all, 3), 0);
    assert_true(a.rate == 4 && b.rate == 4 && c.rate == 1);
    assert_int_equal(a.narrow, 0);
    assert_int_equal(c.narrow, 1);
    fair_free(f);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_equal_progressive_filling),
        cmocka_unit_test(each_flow_has_a_full_link_where_none_has_more),
        cmocka_unit_test(two_links_by_hand),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
