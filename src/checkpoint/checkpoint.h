/* Checkpoints: safetensors files from one parallelism to another.
 *
 *     source.c, source_set.c   what the input's files hold, and by which layouts
 *     rules.c, place.c         how the target wants each tensor: rules and a mesh give a layout
 *     regroup.c                which tensors are fused with which in the output
 *     target.c, output.c       the output's files: what is where in them; written aside, then put in place at once
 *     slab.c, move.c           slabs of tensors from file to file, by several threads with bounded buffers
 *
 * An entry is what one side's files store under one name: one part, or several parts one behind the other along a dim.
 * A part is a global tensor with a layout. Both sides have the same parts. */
#ifndef WEFT_CHECKPOINT_CHECKPOINT_H
#define WEFT_CHECKPOINT_CHECKPOINT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/vec.h"
#include "checkpoint/rules.h"
#include "checkpoint/safetensors.h"
#include "weft/checkpoint.h"

#define CHECKPOINT_RANKS 65536 /* most files of ranks on either side */
#define CHECKPOINT_CONFIG "config.json"
#define CHECKPOINT_CONFIG_MOST ((size_t)16 << 20) /* bytes of it */
#define CHECKPOINT_INDEX "model.safetensors.index.json"
#define CHECKPOINT_ONE "model.safetensors"
#define CHECKPOINT_RANK "rank-%05d-of-%05d.safetensors"
/* Notes that weft writes: the mesh and the rank of a file, and for each tensor its layout as "weft.layout:NAME". For a
 * fused tensor that is "cat DIM: LAYOUT | LAYOUT ...". */
#define CHECKPOINT_MESH_NOTE "weft.mesh"
#define CHECKPOINT_RANK_NOTE "weft.rank"
#define CHECKPOINT_LAYOUT_NOTE "weft.layout:"

struct checkpoint_file {
    const char *path; /* where it is written, for an output */
    int fd, rank;
    int64_t data; /* where its data begins */
    struct safetensors_header header;
};

/* One rank's array of an entry. */
struct checkpoint_hold {
    int rank;
    size_t file;
    int64_t begin; /* in the file's data */
    int64_t shape[WEFT_MAX_DIMS];
};

struct checkpoint_part;
struct checkpoint_entry {
    const char *name;
    int dtype, ndim, cat; /* the dim along which parts follow one another */
    struct checkpoint_part **parts;
    int nparts;
    struct checkpoint_hold *holds; /* by rank */
    size_t nholds;
};

/* A global tensor as one side has it. */
struct checkpoint_end {
    const struct checkpoint_entry *entry;
    int index; /* among the entry's parts */
    weft_layout *layout;
};
struct checkpoint_part {
    const char *name; /* NULL: the part has no name of its own, only its entry has */
    int ndim;
    int64_t shape[WEFT_MAX_DIMS];
    struct checkpoint_end src, dst;
};

struct checkpoint_side {
    weft_layout *mesh; /* of a scalar: axes and their sizes */
    VEC(struct checkpoint_file) files;
    VEC(struct checkpoint_entry *) entries;
};

struct checkpoint {
    struct arena arena; /* names, entries, parts */
    const weft_checkpoint_opts *opts;
    struct rules rules; /* empty if none were given */
    const char *config; /* the path of the model's config.json, for variables; NULL: none */
    struct json_doc *config_doc;
    struct checkpoint_side src, dst;
    VEC(struct checkpoint_part *) parts;
    int64_t count[WEFT_MAX_AXES]; /* how many numbers each axis of the mesh deals out, for the current side */
};

/* ---- files.c: shared by all code that reads or writes files ---- */

char *checkpoint_files_path(struct arena *arena, const char *folder, const char *name); /* NULL: memory is out */
char *checkpoint_files_keep(struct arena *arena, const char *text);                     /* NULL: memory is out */
int checkpoint_files_read_all(int fd, void *to, size_t n, int64_t at, const char *path);
int checkpoint_files_write_all(int fd, const void *from, size_t n, int64_t at, const char *path);
/* Reads a whole text file into malloc'd memory with a zero behind it. A file of more than `most` bytes is refused. */
int checkpoint_files_read_text(const char *path, size_t most, char **out, size_t *len);

/* ---- source.c ---- */

/* Opens the input and fills c->src and c->parts. */
int checkpoint_source(struct checkpoint *c, const char *in);
/* Opens one safetensors file and reads its header. *out is the file's number. */
int checkpoint_source_open(struct checkpoint *c, const char *path, int rank, size_t *out);
/* source_set.c: layouts of what the ranks' files hold, by their notes or by rules. */
int checkpoint_source_set(struct checkpoint *c, bool by_rules);

/* Finds the config.json of the folder that the input is, or is in. */
int checkpoint_source_config(struct checkpoint *c, const char *in);

/* ---- choose.c ---- */

/* The rules of the library for the model_type of the config.json; *rules is NULL if it does not say one. An error if
 * there are none for it. */
int checkpoint_choose(struct checkpoint *c, const char **rules);
const char *checkpoint_choose_names(char *buf, size_t cap); /* "llama, moe, ...": those of the library */

/* ---- entry.c ---- */

/* A new entry, without parts and holds, or a new part; NULL: memory is out. */
struct checkpoint_entry *checkpoint_entry_new(struct checkpoint *c, struct checkpoint_side *side, const char *name,
                                              int nparts, size_t nholds);
struct checkpoint_part *checkpoint_entry_new_part(struct checkpoint *c);
/* The array of a rank that has the entry. */
const struct checkpoint_hold *checkpoint_entry_hold(const struct checkpoint_entry *e, int rank);

/* ---- place.c ---- */

/* "tp4.pp2" as the layout of a scalar on that mesh. */
int checkpoint_place_mesh(const char *what, const char *text, weft_layout **out);
/* Checks that some rule uses each axis of more than one rank. */
int checkpoint_place_mesh_used(const struct checkpoint *c, const weft_layout *mesh, const char *what, const char *text);
/* Learns how many numbers each axis of the mesh deals out. Called before the first layout; count starts at zero. */
int checkpoint_place_count(struct checkpoint *c, const weft_layout *mesh, const char *name);
/* The layout of a part, by its name. shape NULL: each dim has one position for each piece, which is enough to tell
 * which rank holds what. */
int checkpoint_place(struct checkpoint *c, const weft_layout *mesh, const char *name, int dtype, int ndim,
                     const int64_t *shape, weft_layout **out);
int checkpoint_place_config(struct checkpoint *c); /* reads config.json, which there is, if that was not done yet */
int checkpoint_place_value(struct checkpoint *c, int line, const struct rules_value *v, int64_t *out);
/* The extents of the parts of a fused dim of n, by their shares. */
int checkpoint_place_shares(struct checkpoint *c, const struct rules_fuse *f, const char *name, int64_t n,
                            int64_t *out);

/* ---- regroup.c ---- */

/* The entries of the output, their parts and names; holds come later. */
int checkpoint_regroup(struct checkpoint *c);

/* ---- target.c, output.c ---- */

/* Plans the output's files: their headers, and where everything is in them. `one`: a single file. Writes nothing. */
int checkpoint_target(struct checkpoint *c, const char *to, bool one);
int checkpoint_target_name_files(struct checkpoint *c, const char *folder,
                                 bool one); /* one: the output is a single file, and folder is its path */

struct checkpoint_output {
    char *place;      /* where the output goes: a folder, or one file */
    char *aside;      /* where it is written first: beside its place */
    bool one;         /* the output is one file */
    bool there, made; /* there: something is in its place; made: something is aside */
};
/* Checks that the output may be put there. Chooses the name aside. */
int checkpoint_output_check(struct checkpoint *c, struct checkpoint_output *o, const char *out);
/* Creates the files aside, with their headers and their full length, the index and config.json. */
int checkpoint_output_begin(struct checkpoint *c, struct checkpoint_output *o);
/* Called when everything is written: syncs the output to the disk and puts it in its place at once. */
int checkpoint_output_commit(struct checkpoint *c, struct checkpoint_output *o);
void checkpoint_output_end(
    struct checkpoint_output *o); /* removes an unfinished output, or the one that was replaced */

/* ---- move.c ---- */

/* Can the move be done with the threads and bytes of opts? */
int checkpoint_move_check(const weft_checkpoint_opts *opts);
int checkpoint_move(struct checkpoint *c, weft_checkpoint_info *info);
#endif
