/* What weft says about devices: the part of weft_exec_explain about an exec's memory on them. Nothing if the exec has
 * none. */
#ifndef WEFT_ENGINE_DEVICE_DEVICE_EXPLAIN_H
#define WEFT_ENGINE_DEVICE_DEVICE_EXPLAIN_H
#include "base/text.h"
#include "engine/exec.h"

void device_explain_text(const weft_exec *x, struct text *t);
void device_explain_json(const weft_exec *x, struct text *t); /* a value: an object, or null */
#endif
