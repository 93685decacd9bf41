/* The input: which form it has, and its files. The input of one rank is a file, or a folder with one file or with an
 * index of several. The whole input is that of one rank, or one for each rank. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/json_read.h"
#include "checkpoint/checkpoint.h"
#include "layout/layout.h"

#define INDEX_MOST ((size_t)SAFETENSORS_HEADER_MAX)

/* ---- one file ---- */

static int read_header(struct checkpoint *c, struct checkpoint_file *f)
{
    struct stat st;
    unsigned char prelude[SAFETENSORS_PRELUDE] = {0};
    int64_t length;
    if (fstat(f->fd, &st))
        return error_set(WEFT_EIO, "%s: %s", f->path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return error_set(WEFT_EINVAL, "%s: it is not a regular file", f->path);
    int64_t size = st.st_size;
    int rc = size < SAFETENSORS_PRELUDE ? 0 : checkpoint_files_read_all(f->fd, prelude, sizeof prelude, 0, f->path);
    if (!rc)
        rc = safetensors_length(f->path, prelude, size, &length);
    if (rc)
        return rc;
    char *bytes = malloc((size_t)length + 1);
    if (!bytes)
        return error_nomem();
    rc = checkpoint_files_read_all(f->fd, bytes, (size_t)length, SAFETENSORS_PRELUDE, f->path);
    if (rc) {
        free(bytes);
        return rc;
    }
    bytes[length] = 0;
    f->data = SAFETENSORS_PRELUDE + length;
    return safetensors_read(f->path, bytes, (size_t)length, size - f->data, &c->arena, &f->header);
}

int checkpoint_source_open(struct checkpoint *c, const char *path, int rank, size_t *out)
{
    struct checkpoint_file *f = vec_push(&c->src.files);
    if (!f)
        return error_nomem();
    *f = (struct checkpoint_file){.fd = -1, .rank = rank, .path = checkpoint_files_keep(&c->arena, path)};
    if (!f->path)
        return error_nomem();
    f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not block; it is refused below */
    if (f->fd < 0)
        return error_set(errno == EMFILE ? WEFT_EIO : WEFT_EINVAL, "%s: %s", path, strerror(errno));
    posix_fadvise(f->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    *out = c->src.files.n - 1;
    return read_header(c, f);
}

/* ---- an index ---- */

struct listed {
    const char *name, *file;
};

static int order_by_file(const void *a, const void *b)
{
    const struct listed *x = a, *y = b;
    int order = strcmp(x->file, y->file);
    return order ? order : strcmp(x->name, y->name);
}

static int read_index(const char *path, struct json_doc *doc, struct listed **out, size_t *n)
{
    char *text, why[JSON_WRONG], shown[SAFETENSORS_SHOWN];
    size_t len;
    int rc = checkpoint_files_read_text(path, INDEX_MOST, &text, &len);
    if (rc)
        return rc;
    if (json_read(doc, text, len, why))
        return error_set(WEFT_EINVAL, "%s: it is not JSON: %s", path, why);
    const struct json_value *map = json_member(doc, &doc->values[1], "weight_map");
    if (!map || map->kind != JSON_OBJECT)
        return error_set(WEFT_EINVAL, "%s: it has no object \"weight_map\"", path);
    *n = 0;
    *out = malloc(((size_t)doc->n + 1) * sizeof **out);
    if (!*out)
        return error_nomem();
    for (const struct json_value *v = json_first(doc, map); v; v = json_next(doc, v)) {
        if (v->kind != JSON_TEXT || !*v->text || strchr(v->text, '/') || v->text[0] == '.')
            return error_set(WEFT_EINVAL, "%s: tensor %s is mapped to something other than a file of this folder", path,
                             safetensors_show(v->key, shown));
        (*out)[(*n)++] = (struct listed){v->key, v->text};
    }
    qsort(*out, *n, sizeof **out, order_by_file);
    for (size_t i = 1; i < *n; i++)
        if (!order_by_file(&(*out)[i], &(*out)[i - 1]))
            return error_set(WEFT_EINVAL, "%s: tensor %s is there twice", path,
                             safetensors_show((*out)[i].name, shown));
    return 0;
}

static int order_by_name(const void *a, const void *b)
{
    const struct safetensors_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* Checks that a file has exactly the tensors that the index lists for it; both are in order of their names. */
static int check_listed(const struct checkpoint_file *f, const struct listed *l, size_t n, const char *index)
{
    size_t k = f->header.ntensors;
    char shown[SAFETENSORS_SHOWN];
    const struct safetensors_tensor **by_name = malloc((k + 1) * sizeof *by_name);
    if (!by_name)
        return error_nomem();
    for (size_t i = 0; i < k; i++)
        by_name[i] = &f->header.tensors[i];
    qsort(by_name, k, sizeof *by_name, order_by_name);
    int rc = 0;
    for (size_t i = 0; (i < k || i < n) && !rc; i++) {
        int order = i == k ? 1 : i == n ? -1 : strcmp(by_name[i]->name, l[i].name);
        if (order > 0)
            rc = error_set(WEFT_EINVAL, "%s: tensor %s is missing, although %s lists it", f->path,
                           safetensors_show(l[i].name, shown), index);
        else if (order < 0)
            rc = error_set(WEFT_EINVAL, "%s: tensor %s is not in %s", f->path,
                           safetensors_show(by_name[i]->name, shown), index);
    }
    free(by_name);
    return rc;
}

static int open_indexed(struct checkpoint *c, const char *folder, const char *index, int rank)
{
    struct json_doc doc = {0};
    struct listed *l = NULL;
    size_t n = 0, file;
    int rc = read_index(index, &doc, &l, &n);
    for (size_t i = 0, k; !rc && i < n; i = k) {
        for (k = i + 1; k < n && !strcmp(l[k].file, l[i].file); k++) {
        }
        char *path = checkpoint_files_path(&c->arena, folder, l[i].file);
        rc = path ? checkpoint_source_open(c, path, rank, &file) : error_nomem();
        if (!rc)
            rc = check_listed(&c->src.files.v[file], l + i, k - i, index);
    }
    free(l);
    json_free(&doc);
    return rc;
}

/* ---- one rank's part ---- */

static bool exists(const char *path)
{
    struct stat st;
    return !stat(path, &st);
}

static bool is_folder(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

static int open_unit(struct checkpoint *c, const char *path, int rank)
{
    size_t file;
    if (!is_folder(path))
        return checkpoint_source_open(c, path, rank, &file);
    char *index = checkpoint_files_path(&c->arena, path, CHECKPOINT_INDEX);
    char *one = checkpoint_files_path(&c->arena, path, CHECKPOINT_ONE);
    if (!index || !one)
        return error_nomem();
    if (exists(index))
        return open_indexed(c, path, index, rank);
    if (exists(one))
        return checkpoint_source_open(c, one, rank, &file);
    return error_set(WEFT_EINVAL, "%s: the folder has no %s, no %s and no rank-00000-of-N.safetensors", path,
                     CHECKPOINT_INDEX, CHECKPOINT_ONE);
}

/* ---- all of it ---- */

/* A name with %r in it for a rank. */
static char *rank_name(struct checkpoint *c, const char *pattern, int rank)
{
    const char *r = strstr(pattern, "%r");
    size_t n = strlen(pattern) + 16;
    char *name = arena_alloc(&c->arena, n);
    if (name)
        snprintf(name, n, "%.*s%d%s", (int)(r - pattern), pattern, rank, r + 2);
    return name;
}

/* How many rank files a folder that weft wrote has; 0: none; -1: there are several sets. */
static int folder_ranks(const char *folder)
{
    int ranks = 0, n, end;
    DIR *d = opendir(folder);
    for (struct dirent *e = d ? readdir(d) : NULL; e && ranks >= 0; e = readdir(d)) {
        end = 0;
        if (sscanf(e->d_name, "rank-00000-of-%5d.safetensors%n", &n, &end) == 1 && end && !e->d_name[end] && n > 0)
            ranks = ranks && ranks != n ? -1 : n;
    }
    if (d)
        closedir(d);
    return ranks;
}

/* Takes the mesh from the first file, or from the caller. */
static int learn_mesh(struct checkpoint *c, const char *in, bool set, bool *by_rules)
{
    const char *from = c->opts->from;
    const struct checkpoint_file *f = c->src.files.n ? &c->src.files.v[0] : NULL;
    const char *note = f ? safetensors_note(&f->header, CHECKPOINT_MESH_NOTE) : NULL;
    *by_rules = !note;
    if (!note && !from && set)
        return error_set(WEFT_EINVAL, "%s: the files do not say which mesh they are sharded over: give it (from)", in);
    if (note && from && strcmp(note, from))
        return error_set(WEFT_EINVAL, "%s: the files are sharded over '%.100s', not over '%s'", in, note, from);
    if (!set && from && !note) {
        int rc = checkpoint_place_mesh("from", from, &c->src.mesh);
        if (!rc && c->src.mesh->mesh > 1)
            rc = error_set(WEFT_EINVAL,
                           "%s: it is the file of one rank, but '%s' has several ranks: name their files with %%r", in,
                           from);
        return rc;
    }
    int rc = checkpoint_place_mesh(note ? f->path : "from", note ? note : from ? from : "x1", &c->src.mesh);
    if (!rc && note && !set && c->src.mesh->mesh > 1)
        rc = error_set(WEFT_EINVAL, "%s: it is the file of one rank of a set over '%.100s': give the folder", in, note);
    if (!rc && !note)
        rc = checkpoint_place_mesh_used(c, c->src.mesh, "from", from ? from : "x1");
    return rc;
}

static int open_set(struct checkpoint *c, const char *in, const char *pattern, int ranks, bool *by_rules)
{
    char name[64], *path = pattern ? rank_name(c, pattern, 0) : NULL;
    if (!pattern) {
        snprintf(name, sizeof name, CHECKPOINT_RANK, 0, ranks);
        path = checkpoint_files_path(&c->arena, in, name);
    }
    int rc = path ? open_unit(c, path, 0) : error_nomem();
    if (!rc)
        rc = learn_mesh(c, in, true, by_rules);
    if (!rc && ranks && ranks != c->src.mesh->mesh)
        rc = error_set(WEFT_EINVAL, "%s: there are files of %d ranks, but the mesh has %lld ranks", in, ranks,
                       (long long)c->src.mesh->mesh);
    for (int r = 1; !rc && r < c->src.mesh->mesh; r++) {
        snprintf(name, sizeof name, CHECKPOINT_RANK, r, ranks);
        path = pattern ? rank_name(c, pattern, r) : checkpoint_files_path(&c->arena, in, name);
        rc = path ? open_unit(c, path, r) : error_nomem();
    }
    return rc;
}

int checkpoint_source_config(struct checkpoint *c, const char *in)
{
    char *folder = checkpoint_files_keep(&c->arena, in);
    if (!folder)
        return error_nomem();
    while (!is_folder(folder)) {
        char *slash = strrchr(folder, '/');
        if (!slash)
            folder = "";
        else
            slash[slash == folder] = 0;
        if (!slash || slash == folder)
            break;
    }
    char *path = checkpoint_files_path(&c->arena, folder, CHECKPOINT_CONFIG);
    if (!path)
        return error_nomem();
    c->config = exists(path) ? path : NULL;
    return 0;
}

/* A folder of torch.distributed.checkpoint has a file .metadata, which is a pickle, and files NAME.distcp. */
static int refuse_dcp(struct checkpoint *c, const char *in)
{
    char *path = checkpoint_files_path(&c->arena, in, ".metadata");
    if (!path)
        return error_nomem();
    if (!is_folder(in) || !exists(path))
        return 0;
    return error_set(
        WEFT_EUNSUPPORTED,
        "%s: this is a folder of PyTorch's Distributed Checkpoint (DCP), whose metadata is a pickle: read it by "
        "weft.dcp in Python, or save with HuggingFaceStorageWriter of torch.distributed.checkpoint",
        in);
}

int checkpoint_source(struct checkpoint *c, const char *in)
{
    bool by_rules;
    int ranks = 0, rc = refuse_dcp(c, in);
    if (rc)
        return rc;
    if (strstr(in, "%r"))
        rc = open_set(c, in, in, 0, &by_rules);
    else if (is_folder(in) && (ranks = folder_ranks(in)))
        rc = ranks > 0 ? open_set(c, in, NULL, ranks, &by_rules)
                       : error_set(WEFT_EINVAL, "%s: it has the files of several sets of ranks", in);
    else if (!(rc = open_unit(c, in, 0)))
        rc = learn_mesh(c, in, false, &by_rules);
    return rc ? rc : checkpoint_source_set(c, by_rules);
}
