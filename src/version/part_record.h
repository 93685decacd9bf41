/* The record of a rank's part of a version. It has the hash of the part's digests, and a sketch of them, by which
 * commit finds replicas that differ. */
#ifndef WEFT_VERSION_PART_RECORD_H
#define WEFT_VERSION_PART_RECORD_H
#include "version/publish.h"

#define PART_RECORD_MAX (WEFT_BUS_META + 512) /* bytes */

void part_record_hash(const weft_publisher *p, const struct publish_ring *r, unsigned char hash[CATALOG_PART]);
/* Writes at most PART_RECORD_MAX bytes, and returns how many. */
size_t part_record_write(const weft_publisher *p, const struct publish_ring *r, const char *meta, char *record);
#endif
