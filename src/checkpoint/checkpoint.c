/* From one checkpoint to another, step by step; see checkpoint.h. */
#include "checkpoint/checkpoint.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/json_read.h"
#include "base/sized.h"
#include "layout/layout.h"

#define RULES_MOST ((size_t)16 << 20) /* bytes of a file of rules */

static int check_opts(const weft_checkpoint_opts *o)
{
    if (o->dtype && (!dtype_is_float((int)o->dtype) || weft_dtype_size((int)o->dtype) < 2))
        return error_set(WEFT_EINVAL, "checkpoint: floats are cast to f16, bf16, f32 or f64, not to %s",
                         weft_dtype_name((int)o->dtype) ? weft_dtype_name((int)o->dtype)
                                                        : "a value that is not a dtype");
    if ((int)o->fused < WEFT_FUSED_KEEP || o->fused > WEFT_FUSED_SPLIT)
        return error_set(WEFT_EINVAL, "checkpoint: opts.fused is %d", (int)o->fused);
    if ((o->nset && !o->set) || o->shard < 0)
        return error_set(WEFT_EINVAL, "checkpoint: opts.%s is wrong", o->shard < 0 ? "shard" : "set");
    for (size_t i = 0; i < o->nset; i++)
        if (!o->set[i] || !strchr(o->set[i], '='))
            return error_set(WEFT_EINVAL, "checkpoint: '%s' is not of the form name=number",
                             o->set[i] ? o->set[i] : "(null)");
    return checkpoint_move_check(o);
}

static int load_rules(struct checkpoint *c)
{
    const char *rules = c->opts->rules;
    char names[128];
    c->rules.path = "no rules";
    if (!rules && (c->dst.mesh->mesh > 1 || c->opts->from)) {
        int rc = checkpoint_choose(c, &rules);
        if (rc)
            return rc;
    }
    if (!rules)
        return 0;
    if (!weft_checkpoint_rules(rules) && !strchr(rules, '/') && access(rules, F_OK))
        return error_set(WEFT_EINVAL, "%s: there are no rules of this name (weft has %s), and there is no such file",
                         rules, checkpoint_choose_names(names, sizeof names));
    const char *own = weft_checkpoint_rules(rules);
    char *text = NULL;
    size_t len = own ? strlen(own) : 0;
    int rc = own ? 0 : checkpoint_files_read_text(rules, RULES_MOST, &text, &len);
    if (!rc)
        rc = rules_parse(rules, own ? own : text, len, &c->arena, &c->rules);
    free(text);
    return rc;
}

/* A variable that no rule uses is an error: its name is probably misspelt. */
static int check_set(const struct checkpoint *c)
{
    for (size_t i = 0; i < c->opts->nset && c->rules.nrules; i++) {
        const char *text = c->opts->set[i];
        if (!rules_match_ask(&c->rules, text, strcspn(text, "=")))
            return error_set(WEFT_EINVAL, "'%.100s': no rule of %s asks for that number", text, c->rules.path);
    }
    return 0;
}

static void end_side(struct checkpoint_side *s)
{
    for (size_t i = 0; i < s->files.n; i++)
        if (s->files.v[i].fd >= 0)
            close(s->files.v[i].fd);
    free(s->files.v);
    free(s->entries.v);
    weft_layout_free(s->mesh);
}

static void end(struct checkpoint *c)
{
    for (size_t i = 0; i < c->parts.n; i++) {
        weft_layout_free(c->parts.v[i]->src.layout);
        weft_layout_free(c->parts.v[i]->dst.layout);
    }
    free(c->parts.v);
    end_side(&c->src);
    end_side(&c->dst);
    if (c->config_doc) {
        json_free(c->config_doc);
        free(c->config_doc);
    }
    arena_free(&c->arena);
}

static int reshard(struct checkpoint *c, struct checkpoint_output *o, const char *in, const char *out, const char *to,
                   weft_checkpoint_info *info)
{
    int rc = checkpoint_place_mesh("to", to, &c->dst.mesh);
    if (!rc)
        rc = checkpoint_source_config(c, in);
    if (!rc)
        rc = load_rules(c);
    if (!rc)
        rc = check_set(c);
    if (!rc)
        rc = checkpoint_place_mesh_used(c, c->dst.mesh, "to", to);
    if (!rc)
        rc = checkpoint_output_check(c, o, out);
    if (!rc)
        rc = checkpoint_source(c, in);
    if (!rc)
        rc = checkpoint_regroup(c);
    if (!rc)
        rc = checkpoint_target(c, to, o->one);
    if (!rc)
        rc = checkpoint_output_begin(c, o);
    if (!rc)
        rc = checkpoint_move(c, info);
    if (!rc)
        rc = checkpoint_output_commit(c, o);
    info->tensors = (int64_t)c->dst.entries.n;
    info->files_in = (int64_t)c->src.files.n;
    info->files_out = (int64_t)c->dst.files.n;
    return rc;
}

int weft_checkpoint_reshard(const char *in, const char *out, const char *to, const weft_checkpoint_opts *opts,
                            weft_checkpoint_info *info)
{
    if (!in || !out || !to)
        return error_set(WEFT_EINVAL, "checkpoint: %s is NULL", !in ? "in" : !out ? "out" : "to");
    weft_checkpoint_opts given;
    struct checkpoint c = {.opts = &given};
    struct checkpoint_output o = {0};
    weft_checkpoint_info result = {.size = sizeof result};
    int rc = sized_read("weft_checkpoint_reshard", "weft_checkpoint_opts", &given, sizeof given, opts);
    if (!rc && info)
        rc = sized_check("weft_checkpoint_reshard", "weft_checkpoint_info", info);
    if (!rc)
        rc = check_opts(&given);
    if (!rc)
        rc = reshard(&c, &o, in, out, to, &result);
    checkpoint_output_end(&o);
    end(&c);
    if (!rc && info)
        sized_write(info, &result, sizeof result);
    return rc;
}
