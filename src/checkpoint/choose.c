/* Which rules a model has, by the model_type of its config.json, if the caller names none. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json_read.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"

/* A type is in the table if all names of its tensors are in the rules. */
static const struct {
    const char *type, *rules;
} known[] = {
    {"llama", "llama"},     {"mistral", "llama"},   {"qwen2", "llama"},   {"qwen3", "llama"},
    {"gemma", "llama"},     {"gemma2", "llama"},    {"phi3", "llama"},    {"gemma3_text", "llama"},
    {"mixtral", "moe"},     {"qwen2_moe", "moe"},   {"qwen3_moe", "moe"}, {"olmoe", "moe"},
    {"deepseek_v2", "moe"}, {"deepseek_v3", "moe"}, {"gpt2", "gpt2"},     {"gpt_oss", "gpt_oss"},
};

const char *checkpoint_choose_names(char *buf, size_t cap)
{
    struct text t = text_start(buf, cap);
    for (size_t i = 0; weft_checkpoint_rules_name(i); i++)
        text_printf(&t, "%s%s", i ? ", " : "", weft_checkpoint_rules_name(i));
    return buf;
}

int checkpoint_choose(struct checkpoint *c, const char **rules)
{
    char names[128], type[64] = "";
    *rules = NULL;
    if (!c->config)
        return 0;
    int rc = checkpoint_place_config(c);
    if (rc)
        return rc;
    const struct json_value *found = json_member(c->config_doc, &c->config_doc->values[1], "model_type");
    if (!found || found->kind != JSON_TEXT)
        return 0;
    snprintf(type, sizeof type, "%s", found->text);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].type, type))
            *rules = known[i].rules;
    if (*rules)
        return 0;
    return error_set(WEFT_EINVAL,
                     "%s: weft has no rules for the model_type '%s': give rules, a file or one of %s, if they have the "
                     "names of its tensors",
                     c->config, type, checkpoint_choose_names(names, sizeof names));
}
