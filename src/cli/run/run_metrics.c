/* Samples of one family stand together, so the families of all files are written one after the other. */
#define _GNU_SOURCE
#include "cli/run/run_metrics.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "tool/whole_file.h"

static const char type[] = "# TYPE ";

static int is_ours(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return !strncmp(e->d_name, "weft-metrics-", 13) && n > 5 && !strcmp(e->d_name + n - 5, ".prom");
}

/* A file that cannot be read, for example because its rank has just written a new one, is left out. */
static size_t read_all(const char *folder, char ***out)
{
    struct dirent **names;
    size_t n = 0;
    int found = scandir(folder, &names, is_ours, alphasort);
    if (found < 0)
        return 0;
    *out = calloc((size_t)found + 1, sizeof **out);
    for (int i = 0; i < found; i++) {
        char path[4096];
        struct failure f;
        size_t len;
        struct text t = text_start(path, sizeof path);
        text_printf(&t, "%s/%s", folder, names[i]->d_name);
        if (*out && !whole_file_read(path, &(*out)[n], &len, &f))
            n++;
        free(names[i]);
    }
    free(names);
    return n;
}

static const char *next_line(const char *s)
{
    const char *end = strchr(s, '\n');
    return end ? end + 1 : s + strlen(s);
}

static bool begins(const char *line)
{
    return !strncmp(line, type, sizeof type - 1);
}

/* The length of the family's name behind # TYPE. */
static size_t name_length(const char *line)
{
    return strcspn(line + sizeof type - 1, " \n");
}

static const char *find_family(const char *file, const char *like)
{
    size_t n = name_length(like);
    for (const char *s = file; *s; s = next_line(s))
        if (begins(s) && name_length(s) == n && !strncmp(s + sizeof type - 1, like + sizeof type - 1, n))
            return s;
    return NULL;
}

static void put_family(struct text *t, char *const *files, size_t n, size_t first, const char *line)
{
    for (size_t i = first; i < n; i++) {
        const char *s = i == first ? line : find_family(files[i], line), *from = s;
        if (!s)
            continue;
        for (; *s && (s == from || !begins(s)); s = next_line(s))
            if (*s != '#' || (i == first && strncmp(s, "# EOF", 5)))
                text_bytes(t, s, (size_t)(next_line(s) - s));
    }
}

size_t run_metrics_text(void *folder, char *out, size_t cap)
{
    char **files = NULL;
    size_t n = read_all(folder, &files);
    struct text t = text_start(out, cap);
    for (size_t i = 0; i < n; i++)
        for (const char *s = files[i]; *s; s = next_line(s)) {
            bool seen = !begins(s);
            for (size_t k = 0; k < i && !seen; k++)
                seen = find_family(files[k], s);
            if (!seen)
                put_family(&t, files, n, i, s);
        }
    text_put(&t, "# EOF\n");
    for (size_t i = 0; i < n; i++)
        free(files[i]);
    free(files);
    return t.len;
}
