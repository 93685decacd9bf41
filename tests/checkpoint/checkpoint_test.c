/* Checkpoints against brute force: random models, rules, meshes, dtypes and forms of files. What a straight split and
 * save gives is resharded to another mesh, that to a third, and that to one file, and every array is what a straight
 * split gives there. Then forms of inputs, options and failures by name. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/safetensors.h"
#include "checkpoint_files.h"
#include "checkpoint_model.h"
#include "support/share.h"
#include "support/suite.h"
#include "weft/checkpoint.h"

/* ---- files as a straight split and save writes them ---- */

/* Entries `from`, `from` + step, ... of a rank. */
static void naive_file(const char *path, const struct model *m, const struct model_mesh *mesh, int rank, bool fused,
                       int from, int step)
{
    struct naive_tensor t[MODEL_PARTS * MODEL_ENTRIES];
    static char names[MODEL_PARTS * MODEL_ENTRIES][64];
    int n = 0;
    for (int part = 0; part < MODEL_PARTS; part++) {
        struct model_entry e[MODEL_ENTRIES];
        int all = model_entries(m, fused, part < 1 ? 0 : part, e);
        for (int i = from; i < all; i += step) {
            const struct model_kind *k = &m->kind[e[i].kind];
            if (part >= (fused ? 1 : k->nparts) || !model_holds(m, mesh, &e[i], rank))
                continue;
            memcpy(names[n], e[i].name, sizeof names[n]);
            t[n] = (struct naive_tensor){.name = names[n], .dtype = k->dtype, .ndim = k->ndim};
            t[n].data = model_array(m, mesh, &e[i], rank, part, fused ? k->nparts : part + 1, k->dtype, t[n].shape);
            n++;
        }
    }
    naive_write(path, t, n);
    for (int i = 0; i < n; i++)
        free(t[i].data);
}

enum form { ONE_FILE, INDEXED, RANKS };

static enum form naive_set(const char *in, const struct model *m, const struct model_mesh *mesh, bool fused,
                           struct random *r)
{
    char path[PATH];
    if (mesh->ranks > 1) {
        for (int rank = 0; rank < mesh->ranks; rank++)
            naive_file(scratch_place(path, "%s.%d.safetensors", in, rank), m, mesh, rank, fused, 0, 1);
        return RANKS;
    }
    if (random_once_in(r, 2)) {
        naive_file(scratch_place(path, "%s.safetensors", in), m, mesh, 0, fused, 0, 1);
        return ONE_FILE;
    }
    scratch_folder(in);
    for (int f = 0; f < 3; f++)
        naive_file(scratch_place(path, "%s/part%d.safetensors", in, f), m, mesh, 0, fused, f, 3);
    naive_index(in, 3);
    return INDEXED;
}

/* ---- what came out ---- */

static const struct safetensors_tensor *find_tensor(const struct safetensors_header *h, const char *name)
{
    for (size_t i = 0; i < h->ntensors; i++)
        if (!strcmp(h->tensors[i].name, name))
            return &h->tensors[i];
    return NULL;
}

static int cast_dtype(int dtype, int to)
{
    bool is_float = dtype == WEFT_F16 || dtype == WEFT_BF16 || dtype == WEFT_F32 || dtype == WEFT_F64;
    return to && is_float ? to : dtype;
}

/* Is the rank's file what a straight split gives? */
static void check_file(const char *path, const struct model *m, const struct model_mesh *mesh, int rank, bool fused,
                       int dtype)
{
    struct loaded f;
    naive_load(path, &f);
    size_t n = 0;
    for (int part = 0; part < MODEL_PARTS; part++) {
        struct model_entry e[MODEL_ENTRIES];
        int all = model_entries(m, fused, part, e);
        for (int i = 0; i < all; i++) {
            const struct model_kind *k = &m->kind[e[i].kind];
            if (part >= (fused ? 1 : k->nparts))
                continue;
            const struct safetensors_tensor *t = find_tensor(&f.header, e[i].name);
            assert_int_equal(t != NULL, model_holds(m, mesh, &e[i], rank));
            if (!t)
                continue;
            int64_t shape[WEFT_MAX_DIMS] = {0};
            int to = cast_dtype(k->dtype, dtype);
            unsigned char *want = model_array(m, mesh, &e[i], rank, part, fused ? k->nparts : part + 1, to, shape);
            assert_int_equal(t->dtype, to);
            assert_int_equal(t->ndim, k->ndim);
            assert_memory_equal(t->shape, shape, (size_t)k->ndim * sizeof *shape);
            if (memcmp(f.data + t->begin, want, (size_t)t->bytes))
                fail_msg("%s: %s on rank %d of %s differs", path, e[i].name, rank, mesh->text);
            free(want);
            n++;
        }
    }
    assert_int_equal(n, f.header.ntensors);
    naive_unload(&f);
}

static void check_set(const char *out, const struct model *m, const struct model_mesh *mesh, bool fused, int dtype)
{
    char path[PATH];
    if (mesh->ranks == 1) {
        check_file(scratch_place(path, "%s/model.safetensors", out), m, mesh, 0, fused, dtype);
        return;
    }
    for (int r = 0; r < mesh->ranks; r++)
        check_file(scratch_place(path, "%s/rank-%05d-of-%05d.safetensors", out, r, mesh->ranks), m, mesh, r, fused,
                   dtype);
}

/* ---- the law ---- */

static void reshard(const char *in, const char *out, const char *to, weft_checkpoint_opts *opts)
{
    weft_checkpoint_info info = {.size = sizeof info};
    if (weft_checkpoint_reshard(in, out, to, opts, &info))
        fail_msg("%s -> %s on %s: %s", in, out, to, weft_errmsg());
}

static void one_model(uint64_t seed)
{
    struct random r = {seed};
    struct model m;
    struct model_mesh mesh[3];
    char rules[PATH], in[PATH], pattern[PATH], out[PATH], next[PATH], whole[PATH];
    bool fused = random_once_in(&r, 2), joined = fused;
    static const int threads[] = {1, 2, 16};
    weft_checkpoint_opts opts = {.size = sizeof opts,
                                 .memory = 1 << 20,
                                 .threads = threads[random_in(&r, 0, 2)],
                                 .dtype = random_once_in(&r, 3) ? WEFT_F32 : (enum weft_dtype)0};
    int dtype = (int)opts.dtype;
    model_random(&r, &m);
    for (int i = 0; i < 3; i++)
        model_random_mesh(&r, &mesh[i]);
    FILE *f = fopen(scratch_place(rules, "%s/rules", scratch), "w");
    model_write_rules(&m, f);
    fclose(f);
    opts.rules = rules;

    scratch_place(in, "%s/in", scratch);
    enum form form = naive_set(in, &m, &mesh[0], fused, &r);
    scratch_place(pattern,
                  form == RANKS      ? "%s/in.%%r.safetensors"
                  : form == ONE_FILE ? "%s/in.safetensors"
                                     : "%s/in",
                  scratch);
    opts.from = form == RANKS ? mesh[0].text : NULL;
    reshard(pattern, scratch_place(out, "%s/out", scratch), mesh[1].text, &opts);
    check_set(out, &m, &mesh[1], joined, dtype);

    opts.from = NULL;
    opts.dtype = (enum weft_dtype)0;
    if (random_once_in(&r, 2)) {
        opts.fused = fused ? WEFT_FUSED_SPLIT : WEFT_FUSED_JOIN;
        joined = !fused;
    }
    reshard(out, scratch_place(next, "%s/next", scratch), mesh[2].text, &opts);
    check_set(next, &m, &mesh[2], joined, dtype);

    opts.fused = WEFT_FUSED_KEEP;
    struct model_mesh one = {.order = {0, 1, 2}, .size = {1, 1, 1}, .ranks = 1, .text = "tp1"};
    reshard(next, scratch_place(whole, "%s/whole.safetensors", scratch), "tp1", &opts);
    check_file(whole, &m, &one, 0, joined, dtype);
    scratch_clear();
}

static void random_models_resharded_match_a_straight_split(void **state)
{
    (void)state;
    for (int64_t seed = 1; suite_seed(&seed, 1, test_share(50, 3000)); seed++) {
        print_message("model %d\n", (int)seed);
        one_model((uint64_t)seed);
    }
}

/* Larger tensors in slabs of 4 KiB: rows, parts of rows, several dims deep. */
static void tensors_in_small_slabs_match_a_straight_split(void **state)
{
    (void)state;
    struct random r = {77};
    static const struct model_mesh one = {.order = {0, 1, 2}, .size = {1, 1, 1}, .ranks = 1, .text = "tp1"};
    for (int i = 0; i < (int)test_share(6, 200); i++) {
        struct model m;
        struct model_mesh mesh;
        char in[PATH], rules[PATH], out[PATH];
        do {
            model_random(&r, &m);
            model_random_mesh(&r, &mesh);
        } while (mesh.ranks < 2);
        m.layers = 1;
        m.experts = 1;
        for (int k = 0; k < m.nkinds; k++)
            for (int d = 0; d < m.kind[k].ndim; d++)
                m.kind[k].shape[d] = 16 * random_in(&r, 1, m.kind[k].ndim == 3 ? 3 : 5);
        FILE *f = fopen(scratch_place(rules, "%s/rules", scratch), "w");
        model_write_rules(&m, f);
        fclose(f);
        weft_checkpoint_opts opts = {.size = sizeof opts, .memory = 1 << 20, .threads = 64, .rules = rules};
        naive_file(scratch_place(in, "%s/in.safetensors", scratch), &m, &one, 0, true, 0, 1);
        reshard(in, scratch_place(out, "%s/out", scratch), mesh.text, &opts);
        check_set(out, &m, &mesh, true, 0);
        scratch_clear();
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_models_resharded_match_a_straight_split),
        cmocka_unit_test(tensors_in_small_slabs_match_a_straight_split),
    };
    return SUITE_MAIN(argc, argv, SUITE_FIXTURE(tests, scratch_make, scratch_drop));
}
