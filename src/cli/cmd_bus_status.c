/* Keys of the bus are sets/SET/KIND/...: epoch, slots/EPOCH/RANK, parts/VERSION/RANK, versions/VERSION and
 * readers/GROUP/RANK, with readers/GROUP/decided; readers/HOST/relay. A version is EPOCH.STEP. Other keys are counted,
 * and stand in no row.
 */
#include "cli/cmd_bus_status.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/json_write.h"
#include "tool/readable.h"

struct set {
    const char *name; /* in a key */
    int name_len;
    int64_t versions, publishers, readers;
    int64_t held;  /* ranks that have gone, and whose parts an agent has */
    int64_t parts; /* of the newest version */
    const char *newest;
    int64_t epoch, step; /* of the newest version */
};

/* The part of a key behind the folder, if the key begins with it; otherwise NULL. */
static const char *behind(const char *key, const char *folder)
{
    size_t n = strlen(folder);
    return strncmp(key, folder, n) ? NULL : key + n;
}

static void add_version(struct set *s, const char *version)
{
    char *end;
    int64_t epoch = strtoll(version, &end, 10), step = *end == '.' ? strtoll(end + 1, &end, 10) : -1;
    if (*end || step < 0)
        return; /* a version that this weft does not know */
    s->versions++;
    if (!s->newest || epoch > s->epoch || (epoch == s->epoch && step >= s->step)) {
        s->newest = version;
        s->epoch = epoch;
        s->step = step;
    }
}

static void add_key(struct set *s, const char *key, const char *value)
{
    const char *rest;
    bool agent = strstr(value, "\nagent 1\n");
    if (behind(key, "slots/")) {
        s->held += agent;
        s->publishers += !agent;
    } else if (behind(key, "readers/"))
        s->readers += strcmp(strrchr(key, '/'), "/decided") && strcmp(strrchr(key, '/'), "/relay");
    else if ((rest = behind(key, "versions/")))
        add_version(s, rest);
}

/* Parts of the newest version: keys parts/VERSION/RANK. */
static bool is_newest_part(const struct set *s, const char *key)
{
    const char *version = behind(key, "parts/");
    size_t n = s->newest ? strlen(s->newest) : 0;
    return version && n && !strncmp(version, s->newest, n) && version[n] == '/';
}

/* Keys are in order, so those of one set stand together. */
static size_t find_sets(const struct directory_items *all, struct set *sets)
{
    size_t n = 0;
    for (int pass = 0; pass < 2; pass++) {
        n = 0;
        for (size_t i = 0; i < all->n; i++) {
            const char *name = behind(all->items[i].key, "sets/"), *end = name ? strchr(name, '/') : NULL;
            if (!end || end == name)
                continue;
            int len = (int)(end - name);
            bool same = n && sets[n - 1].name_len == len && !strncmp(sets[n - 1].name, name, (size_t)len);
            if (!same && !pass)
                sets[n] = (struct set){.name = name, .name_len = len};
            n += !same;
            if (!pass)
                add_key(&sets[n - 1], end + 1, (const char *)all->items[i].value);
            else
                sets[n - 1].parts += is_newest_part(&sets[n - 1], end + 1);
        }
    }
    return n;
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t count_leases(const struct directory_items *all, int64_t *ids)
{
    int64_t n = 0;
    for (size_t i = 0; i < all->n; i++)
        ids[i] = all->items[i].lease;
    qsort(ids, all->n, sizeof *ids, compare);
    for (size_t i = 0; i < all->n; i++)
        n += ids[i] && (!i || ids[i] != ids[i - 1]);
    return n;
}

static void print_json(const char *url, const struct directory_items *all, int64_t bytes, int64_t leases, int64_t ns,
                       const struct set *sets, size_t n)
{
    struct json j = {.to = stdout};
    char name[DIRECTORY_KEY_MAX + 1];
    json_write_open(&j, NULL, '{', false);
    json_write_text(&j, "url", url);
    json_write_int(&j, "revision", all->revision);
    json_write_int(&j, "keys", (int64_t)all->n);
    json_write_int(&j, "bytes", bytes);
    json_write_int(&j, "leases", leases);
    json_write_real(&j, "answer_ms", (double)ns * 1e-6);
    json_write_open(&j, "sets", '[', false);
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%.*s", sets[i].name_len, sets[i].name);
        json_write_open(&j, NULL, '{', true);
        json_write_text(&j, "set", name);
        if (sets[i].newest) {
            json_write_int(&j, "epoch", sets[i].epoch);
            json_write_int(&j, "step", sets[i].step);
        }
        json_write_int(&j, "versions", sets[i].versions);
        json_write_int(&j, "parts", sets[i].parts);
        json_write_int(&j, "publishers", sets[i].publishers);
        json_write_int(&j, "held", sets[i].held);
        json_write_int(&j, "readers", sets[i].readers);
        json_write_close(&j, '}');
    }
    json_write_close(&j, ']');
    json_write_close(&j, '}');
}

static void print_table(const char *url, const struct directory_items *all, int64_t bytes, int64_t leases, int64_t ns,
                        const struct set *sets, size_t n)
{
    char size[32];
    int wide = 3;
    printf("%s: answered in %.1f ms, revision %" PRId64 "\n", url, (double)ns * 1e-6, all->revision);
    printf("keys %zu, %s; leases with keys %" PRId64 "; sets %zu\n", all->n, readable_bytes(bytes, size, sizeof size),
           leases, n);
    for (size_t i = 0; i < n; i++)
        wide = sets[i].name_len > wide ? sets[i].name_len : wide;
    if (n)
        printf("\n%-*s  %-16s  %8s  %5s  %10s  %4s  %7s\n", wide, "set", "newest", "versions", "parts", "publishers",
               "held", "readers");
    for (size_t i = 0; i < n; i++) {
        char newest[48] = "none";
        if (sets[i].newest)
            snprintf(newest, sizeof newest, "%" PRId64 ".%" PRId64, sets[i].epoch, sets[i].step);
        printf("%-*.*s  %-16s  %8" PRId64 "  %5" PRId64 "  %10" PRId64 "  %4" PRId64 "  %7" PRId64 "\n", wide,
               sets[i].name_len, sets[i].name, newest, sets[i].versions, sets[i].parts, sets[i].publishers,
               sets[i].held, sets[i].readers);
    }
}

bool cmd_bus_status(const char *url, const struct directory_items *all, int64_t ns, bool json)
{
    struct set *sets = calloc(all->n + 1, sizeof *sets);
    int64_t *ids = calloc(all->n + 1, sizeof *ids), bytes = 0;
    bool fine = sets && ids;
    if (fine) {
        for (size_t i = 0; i < all->n; i++)
            bytes += (int64_t)(strlen(all->items[i].key) + all->items[i].bytes);
        int64_t leases = count_leases(all, ids);
        size_t n = find_sets(all, sets);
        (json ? print_json : print_table)(url, all, bytes, leases, ns, sets, n);
    }
    free(sets);
    free(ids);
    return fine;
}
