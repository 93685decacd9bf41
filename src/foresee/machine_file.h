/* The machine that a move is foreseen on: a small text file, or a preset. The same file gives lowering its
 * weft_machine.
 *
 * A line is a key, a value and a unit, "nic 50 GB/s"; what follows # is a comment. A rate of 0 means "no limit", a key
 * that is missing has the value of the preset "plain". docs/sim.md explains the keys. */
#ifndef WEFT_FORESEE_MACHINE_FILE_H
#define WEFT_FORESEE_MACHINE_FILE_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tool/failure.h"
#include "weft.h"

/* What joins the ranks of a host. */
enum machine_file_inside {
    MACHINE_FILE_MEMORY, /* memory that all of them load from: a rank's core copies */
    MACHINE_FILE_LINK    /* NVLink, NVSwitch or PCIe: a device copies, and each rank has a port */
};

/* What a core does with bytes. Rates count the mean of what it reads and writes. */
enum machine_file_work {
    MACHINE_FILE_COPY,
    MACHINE_FILE_LONG, /* copies in long pieces, by a rank that writes much (links.h) */
    MACHINE_FILE_ROWS, /* copies of rows that are not as long */
    MACHINE_FILE_FOLD,
    MACHINE_FILE_CAST,
    MACHINE_FILE_WORKS
};

#define MACHINE_FILE_CACHED 16 /* sizes, at most */

/* The rates of one work where caches hold the data of a run, by the bytes that a rank keeps: those that it reads and
 * writes, each once. */
struct machine_file_cached {
    double bytes, rank, host;
};

/* Rates are in bytes a nanosecond, which are GB/s; times are in nanoseconds. */
struct machine_file {
    char name[64];
    int64_t ranks_per_host; /* 0: all ranks are on one host */
    int64_t cores;          /* that the ranks of `hosts_on_cores` hosts share; 0: each rank has a core */
    int64_t hosts_on_cores; /* more than 1: hosts that are played on one machine */
    int64_t inside;         /* enum machine_file_inside */
    double copy, copy_host; /* one rank copies or packs, and all ranks of a host together */
    double copy_long, copy_long_host, copy_rows, copy_rows_host; /* the same of other work; 0: as copies */
    double fold, fold_host, cast, cast_host;
    double inside_rank; /* MACHINE_FILE_LINK: the port of a rank, each direction */
    double inside_host; /* MACHINE_FILE_LINK: all ports of a host together */
    double inside_latency;
    int64_t nics;          /* of a host; the ranks of a host share them evenly */
    double nic;            /* one NIC, each direction */
    double nic_crowd;      /* the same where each of 8 hosts gives each other one 64 KiB or less; 0: as nic */
    double nic_crowd_long; /* the same for 1 MiB or more; 0: as nic_crowd */
    double nic_latency;
    double nic_core;    /* what a core moves through a NIC; 0: the NIC needs no core */
    double nic_path;    /* what a core, of any rank, carries from NIC to NIC; 0: that needs no core */
    double nic_message; /* a rank's own time for a message through a NIC, at either end; 0: as message */
    int64_t rails;      /* 1: NIC k of all hosts is on switch k, and only messages between two rails use the spine */
    int64_t hosts_per_rack; /* 0: one rack */
    double spine;           /* what a rack has to all others together, each direction */
    double spine_latency;   /* added to nic_latency */
    double message;         /* a rank's own time for a message, at either end */
    double part;            /* a rank's own time for each part of a tensor that it copies or folds, in memory */
    double launch;          /* a rank's own time for a kernel: each pack, unpack, copy and fold on a device */
    struct machine_file_cached cached[MACHINE_FILE_WORKS][MACHINE_FILE_CACHED]; /* by size, which grows; those above
                                                                                   are of more bytes */
    size_t ncached[MACHINE_FILE_WORKS];
};

/* `what` is the name of a preset, or of a file. These return an exit code and say in *why what is wrong. */
int machine_file_open(const char *what, struct machine_file *out, struct failure *why);
int machine_file_parse(const char *name, const char *text, struct machine_file *out, struct failure *why);
void machine_file_print(FILE *to, const struct machine_file *m); /* as machine_file_parse reads it */
/* The names of the presets, from 0 on; NULL after the last. */
const char *machine_file_preset(size_t i);
const char *machine_file_about(size_t i); /* a preset in a few words */

/* What one rank does if it keeps `bytes` bytes in a run; host: what all ranks of a host do if each keeps so much.
 * Without sizes for this work, caches make it faster by as much as they do copies. */
double machine_file_rate(const struct machine_file *m, enum machine_file_work work, bool host, double bytes);
int machine_file_hosts(const struct machine_file *m, int world);
/* What lowering knows of it. */
weft_machine machine_file_lower(const struct machine_file *m);
#endif
