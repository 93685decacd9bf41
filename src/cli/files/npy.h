/* NumPy's file format, as far as weft reads and writes it: arrays of plain numbers in C order, little-endian, versions
 * 1, 2 and 3 of the header. Nothing in a file is trusted. */
#ifndef WEFT_CLI_FILES_NPY_H
#define WEFT_CLI_FILES_NPY_H
#include <stddef.h>
#include <stdint.h>

#include "weft.h"

#define NPY_PRELUDE 12           /* bytes that say how long the header is; version 1 needs 10 of them */
#define NPY_HEADER_MAX (1 << 20) /* longer headers are refused: those of plain arrays have a hundred bytes */
#define NPY_WHY 256              /* room for the text of an error */

struct npy {
    int dtype; /* enum weft_dtype */
    int ndim;
    int64_t shape[WEFT_MAX_DIMS];
    int64_t data;  /* offset of the first element in the file */
    int64_t bytes; /* of all elements */
};

/* The length of prelude and header together, from the first n bytes of a file. 0, or -1 with the reason in why. */
int npy_header_length(const void *start, size_t n, int64_t *length, char why[NPY_WHY]);
/* Reads a whole header of n bytes (npy_header_length's, prelude included). 0, or -1 with the reason in why. */
int npy_parse(const void *header, size_t n, struct npy *out, char why[NPY_WHY]);

/* Writes a header (version 1) for a dense array, a multiple of 64 bytes long. Returns the length, or 0 if numpy does
 * not have the dtype or cap is too small; 512 bytes are always enough. */
size_t npy_write_header(int dtype, int ndim, const int64_t *shape, void *buf, size_t cap);
const char *npy_descr(int dtype); /* "<f4"; NULL if numpy does not have the dtype */
/* "(3, 4)", "(5,)", "()"; returns buf. 256 bytes are always enough. */
char *npy_shape_text(int ndim, const int64_t *shape, char *buf, size_t cap);
#endif
