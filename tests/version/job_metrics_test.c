/* What a process on the bus tells of itself: the counts of its calls, and the file. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "version/job_metrics.h"
#include "version/version_kit.h"

static void tells(const char *text, const char *line)
{
    if (!strstr(text, line))
        fail_msg("the metrics do not have '%s':\n%s", line, text);
}

static void read_file(const char *path, char *text, size_t cap)
{
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, cap - 1, f) : 0;
    if (f)
        fclose(f);
    assert_true(n > 0);
    text[n] = 0;
}

/* The first version is in the file as soon as it is committed: the put shortly before did not use up the second. */
static void file(void **state)
{
    (void)state;
    char path[] = "/tmp/weft-metrics-XXXXXX", text[8192];
    int fd = mkstemp(path);
    weft_bus_opts o = WEFT_BUS_OPTS_INIT;
    weft_bus *b;
    o.token = PUBLISH_TOKEN;
    o.metrics = path;
    fine(weft_bus_open(directories_url(), &o, &b));
    weft_publisher *p = publish(b, "file", NULL);
    commit(p, 5);
    read_file(path, text, sizeof text);
    tells(text, "weft_bus_put_seconds_count 1\n");
    tells(text, "weft_bus_step{role=\"published\"} 5\n");
    weft_publisher_close(p);
    fine(weft_bus_close(b));
    close(fd);
    unlink(path);
}

static void counts(void **state)
{
    (void)state;
    char path[] = "/tmp/weft-metrics-XXXXXX", text[8192], written[8192];
    int fd = mkstemp(path);
    weft_bus_opts o = WEFT_BUS_OPTS_INIT;
    weft_bus *b;
    weft_epoch_step v;
    size_t len;
    o.token = PUBLISH_TOKEN;
    o.metrics = path;
    fine(weft_bus_open(directories_url(), &o, &b));
    fine(weft_bus_metrics(b, text, sizeof text, &len));
    tells(text, "weft_bus_put_seconds_count 0\n");
    tells(text, "weft_bus_step{role=\"live\"} -1\n");
    weft_publisher *p = publish(b, "metrics", NULL);
    weft_subscriber *s = subscribe(b, "metrics", NULL);
    assert_int_equal(weft_fetch(s, &latest, 0, &v), WEFT_ETIMEOUT);
    for (int64_t step = 5; step < 7; step++) {
        commit(p, step);
        fine(weft_fetch(s, &latest, LONG, &v));
        fine(weft_swap(s, &v, LONG));
    }
    assert_int_equal(weft_swap(s, &(weft_epoch_step){9, 9}, LONG), WEFT_EINVAL);
    fine(weft_bus_metrics(b, text, sizeof text, &len));
    tells(text, "weft_bus_lag_versions{set=\"metrics\"} 0\n");
    tells(text, "weft_bus_lag_seconds{set=\"metrics\"} 0.000\n");
    commit(p, 7);
    fine(weft_fetch(s, &latest, LONG, &v)); /* 7 is staged, and 6 is live */
    assert_int_equal(weft_bus_metrics(b, text, sizeof text, &len), 0);
    assert_int_equal(len, strlen(text));
    static const char *const lines[] = {
        "weft_bus_put_seconds_count 3\n",
        "weft_bus_fetch_seconds_bucket{le=\"100.0\"} 3\n",
        "weft_bus_fetch_seconds_bucket{le=\"+Inf\"} 3\n",
        "weft_bus_check_seconds_count 3\n",
        "weft_bus_swap_seconds_count 2\n",
        "weft_bus_failed_total{call=\"put\"} 0\n",
        "weft_bus_failed_total{call=\"fetch\"} 1\n",
        "weft_bus_failed_total{call=\"check\"} 0\n",
        "weft_bus_failed_total{call=\"swap\"} 1\n",
        "weft_bus_data_bytes_total{path=\"mapped\"} 12324\n", /* 3840 + 260 + 8, three times */
        "weft_bus_data_bytes_total{path=\"tcp\"} 0\n",
        "weft_bus_versions_committed_total 3\n",
        "weft_bus_step{role=\"published\"} 7\n",
        "weft_bus_step{role=\"live\"} 6\n",
        "weft_bus_lag_versions{set=\"metrics\"} 1\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        tells(text, lines[i]);
    assert_string_equal(text + len - 6, "# EOF\n");
    assert_int_equal(weft_bus_metrics(b, NULL, 1, &len), WEFT_EINVAL);
    weft_subscriber_close(s);
    weft_publisher_close(p);
    fine(weft_bus_metrics(b, text, sizeof text, &len));
    fine(weft_bus_close(b)); /* writes the file */
    read_file(path, written, sizeof written);
    assert_string_equal(written, text);
    close(fd);
    unlink(path);
}

static double number(const char *text, const char *name)
{
    const char *found = NULL;
    int times = 0;
    for (const char *at = text; (at = strstr(at, name)); times++)
        found = at += strlen(name);
    if (times != 1)
        fail_msg("the metrics have '%s' %d times:\n%s", name, times, text);
    return strtod(found, NULL);
}

/* Several readers of a set are one line, that of the slowest. A step back, and more versions than are noted. */
static void lags(void **state)
{
    (void)state;
    static const char versions[] = "weft_bus_lag_versions{set=\"lags\"} ",
                      seconds[] = "weft_bus_lag_seconds{set=\"lags\"} ";
    char text[16384];
    struct job_metrics m;
    struct job_metrics_lag fast, slow, never = {0};
    fine(job_metrics_begin(&m, NULL));
    job_metrics_lag_begin(&m, &fast, "lags");
    job_metrics_lag_begin(&m, &slow, "lags");
    for (int round = 0; round < 2; round++) /* they are seen once */
        for (int64_t step = 1; step <= 10; step++) {
            job_metrics_saw(&m, &fast, &(weft_epoch_step){1, step});
            job_metrics_saw(&m, &slow, &(weft_epoch_step){1, step});
        }
    job_metrics_live(&m, &slow, &(weft_epoch_step){1, 3});
    job_metrics_live(&m, &fast, &(weft_epoch_step){1, 10});
    int64_t until = clock_now() + 2 * MS;
    while (clock_now() < until)
        ;
    struct text t = text_start(text, sizeof text);
    job_metrics_text(&m, &t);
    assert_true(number(text, versions) == 7);
    assert_true(number(text, seconds) >= 0.002);
    job_metrics_lag_end(&m, &slow);
    for (int64_t step = 1; step <= 10; step++)
        job_metrics_saw(&m, &fast, &(weft_epoch_step){1, step});
    t = text_start(text, sizeof text);
    job_metrics_text(&m, &t);
    assert_true(number(text, versions) == 0);
    assert_true(number(text, seconds) == 0);
    job_metrics_live(&m, &fast, &(weft_epoch_step){1, 8}); /* 9 and 10 are newer again */
    for (int64_t step = 1; step <= 10 + 2 * JOB_METRICS_SEEN; step++)
        job_metrics_saw(&m, &fast, &(weft_epoch_step){1, step});
    assert_int_equal(fast.n, JOB_METRICS_SEEN);
    job_metrics_live(&m, &fast, &(weft_epoch_step){1, 8 + JOB_METRICS_SEEN}); /* those after it were not noted */
    for (int64_t step = 1; step <= 10 + 2 * JOB_METRICS_SEEN; step++)
        job_metrics_saw(&m, &fast, &(weft_epoch_step){1, step});
    assert_int_equal(fast.n, JOB_METRICS_SEEN);
    assert_int_equal(fast.seen[0].version.step, 9 + JOB_METRICS_SEEN);
    job_metrics_lag_end(&m, &fast);
    job_metrics_lag_end(&m, &never);
    t = text_start(text, sizeof text);
    job_metrics_text(&m, &t);
    assert_null(strstr(text, "lag"));
    job_metrics_end(&m);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(counts), cmocka_unit_test(file), cmocka_unit_test(lags)};
    return SUITE_MAIN(argc, argv, SUITE_AT(&directories_served, tests));
}
