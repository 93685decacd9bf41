#include "checkpoint/shipped.h"

#include <string.h>

#include "weft/checkpoint.h"

const char *weft_checkpoint_rules_name(size_t i)
{
    for (size_t k = 0; k <= i; k++)
        if (!shipped_rules[k].name)
            return NULL;
    return shipped_rules[i].name;
}

const char *weft_checkpoint_rules(const char *name)
{
    for (const struct shipped_rules *r = shipped_rules; name && r->name; r++)
        if (!strcmp(r->name, name))
            return r->text;
    return NULL;
}
