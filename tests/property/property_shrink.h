/* Makes a failing case small: tries one simplification after the other and keeps those with which it still fails. */
#ifndef WEFT_TESTS_PROPERTY_SHRINK_H
#define WEFT_TESTS_PROPERTY_SHRINK_H
#include <stdbool.h>

#include "property_lab.h"

/* True if the law holds. */
typedef bool property_law(const struct property_case *c, struct why *why);

/* Leaves in *c the smallest case found that still breaks the law, and in *why how. */
void shrink(property_law *law, struct property_case *c, struct why *why);
#endif
