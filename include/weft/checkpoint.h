/* Checkpoints: converts safetensors files from one parallelism to another. Reads only the byte ranges that it needs. */
#ifndef WEFT_CHECKPOINT_H
#define WEFT_CHECKPOINT_H
#include <weft.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Tensors that may be stored as one, for instance q, k and v. The rules name them. */
enum weft_fused {
    WEFT_FUSED_KEEP, /* as in the input */
    WEFT_FUSED_JOIN, /* all that the rules can join */
    WEFT_FUSED_SPLIT /* none */
};

typedef struct weft_checkpoint_opts {
    size_t size;
    const char *rules; /* a file with rules, or a weft_checkpoint_rules_name(). NULL: those for the model_type in
                        * config.json; if it says none, every tensor is whole */
    const char *from;  /* the mesh that wrote the input, e.g. "tp8"; NULL: as the files say, otherwise whole tensors */
    const char *const *set; /* texts "name=number" for the rules; other numbers come from the input's config.json */
    size_t nset;
    enum weft_dtype dtype; /* floats of 16 bits and more are cast to it; 0: no cast */
    enum weft_fused fused; /* in the output */
    int64_t memory;        /* bytes of buffers in all; default 256 MiB */
    int64_t shard;         /* bytes of a file, if the output is a folder for one rank; default 5 GB */
    int threads;           /* default 4 */
    bool force;            /* replace an output that exists */
    /* Called from time to time on the calling thread. A negative code stops the work and is returned. */
    int (*progress)(void *arg, int64_t done, int64_t bytes);
    void *arg;
} weft_checkpoint_opts;
#define WEFT_CHECKPOINT_OPTS_INIT WEFT_SIZED(weft_checkpoint_opts)

typedef struct weft_checkpoint_info {
    size_t size;
    int64_t tensors; /* names in the output; fused ones count once */
    int64_t files_in, files_out;
    int64_t bytes_in, bytes_out; /* of tensors that were read and written */
} weft_checkpoint_info;
#define WEFT_CHECKPOINT_INFO_INIT WEFT_SIZED(weft_checkpoint_info)

/* Reads the checkpoint at `in` and writes it to `out` as the ranks of the mesh `to` ("tp4.pp2") hold it.
 * `in` is a safetensors file, a folder with one file or with an index, a folder that this function wrote, or the files
 * of ranks, with %r for the rank in the name.
 * `out` is a folder with a file for each rank. For one rank it may also be a folder without weft's notes, or a file
 * NAME.safetensors. It appears complete or not at all.
 * Memory: the buffers, and what names and headers take. info may be NULL; otherwise set info->size first. */
WEFT_API int weft_checkpoint_reshard(const char *in, const char *out, const char *to, const weft_checkpoint_opts *opts,
                                     weft_checkpoint_info *info);
/* The rules that come with the library. Their names, from index 0 on, NULL after the last; and the text of one, NULL
 * if there is no such name. */
WEFT_API const char *weft_checkpoint_rules_name(size_t i);
WEFT_API const char *weft_checkpoint_rules(const char *name);

#ifdef __cplusplus
}
#endif
#endif
