/* Kinds of memory (enum weft_memory) that this build can move. */
#ifndef WEFT_BASE_DOMAIN_H
#define WEFT_BASE_DOMAIN_H

/* 0 if memory of this kind on this device can be used; `what` begins the text otherwise. */
int domain_check(const char *what, int memory, int device);

#endif
