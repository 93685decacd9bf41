#!/usr/bin/env python3
"""Measures what each driver and each way of weft is worth: weft with all of them against weft without one of them.

    bench/ablation.py [--weft build/weft] [--tables coll,many] [--document]

Each call of `weft bench TABLE --without NAMES` measures weft and some of the variants in turns, in one run. What is
finished is kept in bench/results/ablation-ARCHITECTURE-CORES.json. A second call with the same sources goes on where
the first one ended; results of other sources are dropped. A table takes at most --minutes in one call.

The gain of a cell is the time without the way over the time with all: 1.10 means that it takes 10 % longer without. A
cell whose gain may matter (RECHECK) is measured up to three times, and the median counts. docs/ways.md is written from the results of all
machines; --document does that alone. `make ablation` calls this."""
import argparse
import glob
import hashlib
import json
import math
import os
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COLLECTIVES = "broadcast allgather reduce_scatter allreduce all_to_all halo".split()
# Tables of `make bench` that move data on one machine by plans: the arguments of weft bench, and what --only takes.
TABLES = {
    "coll": (["coll"], COLLECTIVES),
    "private": (["coll", "--private"], COLLECTIVES),
    "reshard": (["reshard"], "square thin 3d cast transpose cyclic".split()),
    "halo": (["halo"], "1d 2d 3d x".split()),
    "many": (["many"], ["25", "2000"]),
}
CORES = len(os.sched_getaffinity(0))
RESHARD = "256M" if CORES >= 16 else "64M"  # larger than the caches, and small enough for ten minutes
TITLES = {
    "coll": "Collectives in windows",
    "private": "Collectives in private memory",
    "reshard": "Reshards",
    "halo": "Halos",
    "many": "Many small tensors",
}
GAIN = 1.10  # from here on a cell counts
CELLS = 3  # cells of a table that earn a way its place, unless all cells of one case do
RECHECK = (0.93, 1.07)  # a gain outside is measured again
MEASUREMENTS = 3
BATCH = 6  # variants in one call: they have their buffers at the same time
LIMIT = 600  # s for one call of weft


def sources():
    """The sources that are measured: for readers the last commit that changed them, and a hash of all that they say."""
    paths = ["src", "include", "bench/work", "bench/ranks", "bench/harness", "bench/tables"]
    try:
        git = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%h", "--", *paths], capture_output=True, text=True)
        commit = git.stdout.strip()
    except OSError:  # there is no git
        commit = ""
    digest = hashlib.sha256()
    for path in sorted(p for folder in paths for p in glob.glob(os.path.join(ROOT, folder, "**/*.[ch]"), recursive=True)):
        with open(path, "rb") as f:
            digest.update(os.path.relpath(path, ROOT).encode() + b"\0" + f.read())
    return commit or "no commit", digest.hexdigest()[:16]


def machine_of():
    return f"{os.uname().machine}-{CORES}"


def cell_name(row, figure):
    """A cell: what, ranks, bytes, and which of the ways to run it (many tensors have three)."""
    how = figure["who"].partition(", ")[2]
    return json.dumps([row["what"], row["ranks"], row["bytes"], how])


class Results:
    """gains[table][cell][way]: [[us with all, us without], ...], one for each measurement. done[table]: the calls that
    are finished."""

    def __init__(self, path):
        self.path = path
        commit, digest = sources()
        self.data = {"commit": commit, "sources": digest, "machine": machine_of(), "ways": [], "gains": {}, "done": {}}
        if os.path.exists(path):
            with open(path) as f:
                kept = json.load(f)
            if kept["sources"] == digest and kept["machine"] == self.data["machine"]:
                self.data = kept
            else:
                tell(f"ablation: the results of {kept['commit']} are dropped")

    def save(self):
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        with open(self.path + ".new", "w") as f:
            json.dump(self.data, f, indent=1)
            f.write("\n")
        os.replace(self.path + ".new", self.path)

    def add(self, table, result):
        """The figures of one call; returns the cells."""
        cells = []
        for row in result["rows"]:
            base = {}
            for figure in row["figures"]:
                who = figure["who"].partition(", ")[0]
                if figure["wrong"]:
                    sys.exit(f"ablation: {who}, {row['what']} on {row['ranks']} ranks: {figure['wrong']} elements are wrong")
                cell = cell_name(row, figure)
                if who == "weft":
                    base[cell] = figure["time_us"]
                    cells.append(cell)
                    continue
                ways = self.data["gains"].setdefault(table, {}).setdefault(cell, {})
                ways.setdefault(who.removeprefix("weft -"), []).append([base[cell], figure["time_us"]])
        return cells


def gain(samples):
    return statistics.median(without / all_on for all_on, without in samples)


def tell(text):
    print(text, file=sys.stderr, flush=True)


def bench(weft, table, ranks, only, ways, options):
    """One call; None where the table has no such line on this number of ranks."""
    command = [weft, "bench", *TABLES[table][0], "-n", str(ranks), "--only", only, "--without", ",".join(ways),
               "--ms", str(options.ms), "--rounds", str(options.rounds), "--json"]
    sizes = options.sizes or (RESHARD if table == "reshard" else None)
    if sizes and table != "many":
        command += ["--sizes", sizes]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode == 2 and "nothing that --only names" in done.stderr:
        return None
    if done.returncode:
        sys.exit(f"ablation: {' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def doubtful(results, table, cells, ways):
    """Ways of these cells with a gain that may matter, measured fewer than MEASUREMENTS times."""
    gains = results.data["gains"].get(table, {})
    return sorted({way for cell in cells for way, samples in gains.get(cell, {}).items()
                   if way in ways and len(samples) < MEASUREMENTS and not RECHECK[0] < gain(samples) < RECHECK[1]})


def measure_batch(results, table, ranks, only, ways, options):
    """Some ways on one group of lines. Measuring again takes the whole group: its other cells get more samples, too."""
    while ways:
        result = bench(options.weft, table, ranks, only, ways, options)
        if result is None:
            return
        ways = doubtful(results, table, results.add(table, result), ways)


def measure(results, options):
    info = subprocess.run([options.weft, "info", "--json"], capture_output=True, text=True, check=True)
    ways = json.loads(info.stdout)["ways"]
    if options.ways:
        ways = [w for w in ways if w in options.ways.split(",")]
    results.data["ways"] = sorted(set(results.data["ways"]) | set(ways))
    complete = True
    for table in options.tables:
        began, longest = time.monotonic(), 0
        done = results.data["done"].setdefault(table, [])
        batches = [(int(n), only, ways[i:i + BATCH]) for n in options.ranks.split(",") for only in TABLES[table][1]
                   if not options.only or only in options.only.split(",") for i in range(0, len(ways), BATCH)]
        left = [b for b in batches if str(b) not in done]
        for i, batch in enumerate(left):
            start = time.monotonic()
            if start - began + longest > 60 * options.minutes:
                tell(f"ablation: {table}: {len(left) - i} of {len(batches)} calls are left: start it again")
                complete = False
                break
            tell(f"ablation: {table}, {batch[1]} on {batch[0]} ranks ({len(batches) - len(left) + i + 1} of {len(batches)})")
            measure_batch(results, table, *batch, options)
            done.append(str(batch))
            results.save()
            longest = max(longest, time.monotonic() - start)
    return complete


# ---- the document ----

def size_text(size):
    for unit in ("", "K", "M", "G"):
        if size < 1024 or size % 1024:
            return f"{size}{unit}"
        size //= 1024
    return f"{size}T"


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else 1.0


def worth(results, way):
    """What a way gains: for each table the mean, the cells that count and the whole cases; and whether it earns its place."""
    tables, earns = {}, False
    for table in TABLES:
        gains = {cell: gain(ways[way]) for cell, ways in results["gains"].get(table, {}).items() if way in ways}
        if not gains:
            continue
        counts = sorted(((g, cell) for cell, g in gains.items() if g >= GAIN), reverse=True)
        cases = {}
        for cell, g in gains.items():
            what, ranks, _, how = json.loads(cell)
            cases.setdefault((what, ranks, how), []).append(g)
        whole = [case for case, all_of in cases.items() if min(all_of) >= GAIN]
        earns |= len(counts) >= CELLS or bool(whole)
        tables[table] = {"mean": mean(list(gains.values())), "counts": counts, "whole": whole, "cells": len(gains),
                         "least": min(gains.values())}
    return tables, earns


def document(paths):
    text = ["# What each driver and each way is worth", "",
            "A *driver* is how a whole run is driven, a *way* is how one message travels. `make ablation` switches each of them off "
            "alone (`WEFT_WAYS=-NAME`) and measures that beside weft with all of them, in turns in one run. It writes this page.", "",
            f"*Gain* is the time without it over the time with all: {GAIN:.2f} means that it takes 10 % longer without. Below 1 weft would be faster "
            "without it. For each table: the geometric mean of the gain over all cells, and the number of cells with a gain of "
            f"{GAIN:.2f} or more. A cell is one size of one case on one number of ranks. A driver or way earns its place if {CELLS} cells of one "
            f"table gain {GAIN:.2f} or more, or all cells of one case do (one collective, reshard or halo on one number of ranks). A name that "
            "`weft info` does not list has been deleted since that machine was measured.", ""]
    for path in paths:
        with open(path) as f:
            results = json.load(f)
        arch, _, cores = results["machine"].partition("-")
        measured = [t for t in TABLES if results["gains"].get(t)]
        text += [f"## {arch}, {cores} cores ({results['commit']})", "",
                 "| | " + " | ".join(TITLES[t] for t in measured) + " | earns its place |",
                 "| --- |" + " --- |" * (len(measured) + 1)]
        details = []
        for way in results["ways"]:
            tables, earns = worth(results, way)
            line = [f"{tables[t]['mean']:.2f}, {len(tables[t]['counts'])} of {tables[t]['cells']}" if t in tables else "-"
                    for t in measured]
            text.append(f"| {way} | " + " | ".join(line) + f" | {'yes' if earns else 'no'} |")
            for t in tables:
                for g, cell in tables[t]["counts"]:
                    what, ranks, size, how = json.loads(cell)
                    details.append(f"| {way} | {TITLES[t]} | {ranks} | {what}{', ' + how if how else ''} | {size_text(size)} | {g:.2f} |")
        text += ["", f"Cells with a gain of {GAIN:.2f} or more:", "", "| | table | ranks | what | size | gain |",
                 "| --- | --- | --- | --- | --- | --- |", *details, ""]
    return "\n".join(text).rstrip() + "\n"


def write_document(root):
    paths = sorted(glob.glob(os.path.join(root, "bench/results/ablation-*.json")))
    if not paths:
        sys.exit("ablation: there are no results yet")
    with open(os.path.join(root, "docs/ways.md"), "w") as f:
        f.write(document(paths))
    tell(f"ablation: wrote {os.path.join(root, 'docs/ways.md')}")


def options_of(argv):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--weft", default=os.path.join(ROOT, "build/weft"), help="the command (%(default)s)")
    p.add_argument("--tables", default=",".join(TABLES), help="tables (%(default)s)")
    p.add_argument("--ranks", "-n", default="2,8,16" if CORES >= 16 else "2,4,8", help="ranks (%(default)s)")
    p.add_argument("--ways", help="these drivers and ways only")
    p.add_argument("--only", help="lines with these names only, as --only of weft bench has them")
    p.add_argument("--sizes", help="sizes, as --sizes of weft bench has them (that table's)")
    p.add_argument("--ms", type=int, default=50, help="time for each variant in each line (%(default)s)")
    p.add_argument("--rounds", type=int, default=5, help="rounds in which they take turns (%(default)s)")
    p.add_argument("--minutes", type=float, default=10, help="the most for one table (%(default)s)")
    p.add_argument("--root", default=ROOT, help="where bench/results and docs are written (%(default)s)")
    p.add_argument("--document", action="store_true", help="write docs/ways.md alone")
    options = p.parse_args(argv)
    options.tables = options.tables.split(",")
    for table in options.tables:
        if table not in TABLES:
            p.error(f"there is no table {table}; there are {','.join(TABLES)}")
    return options


def main():
    options = options_of(sys.argv[1:])
    complete = True
    if not options.document:
        path = os.path.join(options.root, f"bench/results/ablation-{machine_of()}.json")
        complete = measure(Results(path), options)
    write_document(options.root)
    sys.exit(0 if complete else 3)


if __name__ == "__main__":
    main()
