/* The rules that come with the library: the texts in rules/, built into it (cmake/rules.cmake). */
#ifndef WEFT_CHECKPOINT_SHIPPED_H
#define WEFT_CHECKPOINT_SHIPPED_H

struct shipped_rules {
    const char *name, *text;
};
extern const struct shipped_rules shipped_rules[]; /* ends with a row without a name */
#endif
