/* What a process on the bus tells of itself: the counts of its calls, and the file. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    assert_int_equal(weft_bus_metrics(b, text, sizeof text, &len), 0);
    assert_int_equal(len, strlen(text));
    static const char *const lines[] = {"weft_bus_put_seconds_count 2\n",
                                        "weft_bus_fetch_seconds_bucket{le=\"+Inf\"} 2\n",
                                        "weft_bus_swap_seconds_count 2\n",
                                        "weft_bus_failed_total{call=\"put\"} 0\n",
                                        "weft_bus_failed_total{call=\"fetch\"} 1\n",
                                        "weft_bus_failed_total{call=\"swap\"} 1\n",
                                        "weft_bus_data_bytes_total{path=\"mapped\"} 8216\n", /* 3840 + 260 + 8, twice */
                                        "weft_bus_data_bytes_total{path=\"tcp\"} 0\n",
                                        "weft_bus_versions_committed_total 2\n",
                                        "weft_bus_step{role=\"published\"} 6\n",
                                        "weft_bus_step{role=\"live\"} 6\n"};
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(counts), cmocka_unit_test(file)};
    return SUITE_MAIN(argc, argv, SUITE_AT(&directories_served, tests));
}
