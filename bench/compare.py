#!/usr/bin/env python3
"""Compares two builds of weft on this machine, in one run.

    bench/compare.py OLD NEW [--tables coll,many] [--rounds N] [--json FILE] [--markdown FILE]

OLD and NEW are two `weft` commands, of two source trees that are built beside each other. Both are asked for the same
lines of `weft bench`, in turns: a round runs every group of lines with one build and at once with the other, and the
next round begins with the other one. A cell is one figure of weft in one line. Its time is the median over the rounds,
and its speed is the time of OLD over the time of NEW: above 1 NEW is faster. Cells with a speed below --least are
measured again, alone, up to --again times; all samples of a cell count.

OLD needs no other option than those that `weft bench` had in its first version."""
import argparse
import hashlib
import json
import math
import os
import statistics
import subprocess
import sys
import time

COLLECTIVES = "barrier broadcast allgather reduce_scatter allreduce all_to_all halo".split()
HOSTS = "move ping slow many fanout allreduce reshard".split()
# Tables of `make bench`: the arguments; what --only takes, one group of lines each; has it ranks and sizes to choose?
TABLES = {
    "coll": (["coll"], COLLECTIVES, True, True),
    "private": (["coll", "--private"], COLLECTIVES, True, True),
    "reshard": (["reshard"], "square thin 3d cast transpose cyclic".split(), True, True),
    "halo": (["halo"], "1d 2d 3d x exchange".split(), True, True),
    "many": (["many"], ["25", "2000"], True, False),
    "latency": (["latency"], ["barrier", "ping"], False, True),
    "memory": (["memory"], [None], False, True),
    "lower": (["lower"], [None], False, False),
    "hosts": (["hosts"], HOSTS, False, False),
}
CORES = len(os.sched_getaffinity(0))
RANKS = (("2,4,8", "2,4,8"), ("2,8,16", "2,4,8,16"))  # as `make bench` has them: with 16 cores or more; reshards
LIMIT = 600  # s for one call of weft


class Group:
    """Lines that one call of weft measures."""

    def __init__(self, table, only=None, ranks=None, sizes=None):
        self.table, self.only, self.ranks, self.sizes = table, only, ranks, sizes

    def arguments(self, ms):
        arguments = list(TABLES[self.table][0])
        for option, value in (("--only", self.only), ("-n", self.ranks), ("--sizes", self.sizes)):
            if value is not None:
                arguments += [option, str(value)]
        if self.table != "lower":
            arguments += ["--ms", str(ms), "--rounds", "1"]
        return arguments + ["--json"]


def figures(result):
    """(cell, microseconds) of all that weft did in the JSON of one call."""
    for row in result.get("rows", []):
        for figure in row["figures"]:
            if figure["who"].split(",")[0] == "weft":
                if figure["wrong"]:
                    sys.exit(f"compare: {row['what']} on {row['ranks']} ranks: {figure['wrong']} elements are wrong")
                way = figure["who"][len("weft"):].lstrip(", ")
                yield (row["what"], row["ranks"], row["bytes"], way), figure["time_us"]
    for line in result.get("lines", []):
        if "time_us" in line:
            yield (line["what"], line["ranks"], line["bytes"], ""), line["time_us"]
    for world in result.get("worlds", []):
        yield (world["name"], world["world"], 0, ""), world["us"]


def call(weft, group, ms):
    command = [weft, "bench"] + group.arguments(ms)
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode == 2 and "nothing that --only names" in done.stderr:
        return {}  # not measured on as few or as many ranks
    if done.returncode:
        sys.exit(f"compare: {' '.join(command)}: {done.stderr.strip()}")
    return dict(figures(json.loads(done.stdout)))


class Table:
    def __init__(self, name, weft, options):
        self.name, self.weft, self.options = name, weft, options
        self.samples = {}  # of a cell: [old, new], microseconds
        self.group = {}  # of a cell: that measures it
        self.speeds = {}  # of a cell: after each measurement
        _, only, ranked, sized = TABLES[name]
        chosen = options.only.split(",") if options.only else None
        ranks = options.ranks or RANKS[CORES >= 16][name == "reshard"]
        ranks = ranks.split(",") if ranked else [None]
        self.groups = [Group(name, o, n, options.sizes if sized else None)
                       for n in ranks for o in only if not chosen or o in chosen]

    def turn(self, group, number, keep):
        for side in ((0, 1), (1, 0))[number % 2]:
            for cell, us in call(self.weft[side], group, self.options.ms).items():
                if keep and cell not in keep:
                    continue
                self.samples.setdefault(cell, [[], []])[side].append(us)
                self.group[cell] = group

    def speed(self, cell):
        old, new = self.samples[cell]
        return statistics.median(old) / statistics.median(new)

    def note(self, cells):
        for cell in cells:
            self.speeds.setdefault(cell, []).append(self.speed(cell))

    def measure(self):
        began = time.monotonic()
        for number in range(self.options.rounds):
            spent = time.monotonic() - began
            if number and spent * (number + 1) / number > 60 * self.options.minutes:
                break
            for group in self.groups:
                tell(f"{self.name}, round {number + 1} of {self.options.rounds}: {group.only or ''} {group.ranks or ''}")
                self.turn(group, number, None)
        for cell, (old, new) in self.samples.items():
            if not old or not new:
                sys.exit(f"compare: {self.name}: only one of the two builds measures {cell}")
        self.note(list(self.samples))
        for again in range(self.options.again):
            slow = [cell for cell in self.samples if self.speed(cell) < self.options.least]
            for cell in slow:
                tell(f"{self.name}, again ({again + 1} of {self.options.again}): {text_of(cell)}")
                group = self.group[cell]
                exact = self.name in ("coll", "private", "latency") and cell[2] > 0  # other tables round the sizes
                size = cell[2] if exact else group.sizes
                alone = Group(group.table, group.only, group.ranks, size)
                for number in range(self.options.rounds):
                    self.turn(alone, number, {cell})
            self.note(slow)
        return self.result(time.monotonic() - began)

    def result(self, seconds):
        cells = []
        for cell, (old, new) in self.samples.items():
            what, ranks, size, way = cell
            cells.append({"what": what, "ranks": ranks, "bytes": size, "way": way,
                          "old_us": statistics.median(old), "new_us": statistics.median(new),
                          "speed": self.speed(cell), "measured": self.speeds[cell], "old": old, "new": new})
        speeds = [c["speed"] for c in cells]
        mean = math.exp(sum(map(math.log, speeds)) / len(speeds)) if speeds else None
        return {"table": self.name, "rounds": max((len(c["old"]) for c in cells), default=0), "seconds": round(seconds),
                "ms": self.options.ms, "geometric_mean": mean, "least": min(speeds, default=None),
                "below": sum(s < self.options.least for s in speeds), "cells": cells}


def text_of(cell):
    what, ranks, size, way = cell
    return f"{what} {size_text(size)} on {ranks} ranks{', ' + way if way else ''}"


def size_text(size):
    for unit in ("", "K", "M", "G"):
        if size < 1024 or size % 1024:
            return f"{size}{unit}"
        size //= 1024
    return f"{size}T"


def tell(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def summary(results, least):
    lines = ["| table | cells | geometric mean | lowest | below {:.2f} |".format(least), "| --- | --- | --- | --- | --- |"]
    for r in results:
        if r["cells"]:
            lines.append(f"| {r['table']} | {len(r['cells'])} | {r['geometric_mean']:.3f} | {r['least']:.2f} | {r['below']} |")
    return "\n".join(lines)


def document(machine, results, least):
    text = [f"# Two builds of weft, {machine['arch']}, {machine['cores']} cores", "",
            f"old: {machine['old']}; new: {machine['new']}. speed is the time of the old build over the time of the new one: above 1 "
            "the new one is faster. Medians over rounds in turns.", "", summary(results, least)]
    for r in results:
        text += ["", f"## {r['table']}", "", "| ranks | what | size | old us | new us | speed | |", "| --- | --- | --- | --- | --- | --- | --- |"]
        for c in r["cells"]:
            what = c["what"] + (", " + c["way"] if c["way"] else "")
            mark = f"below {least:.2f}" if c["speed"] < least else ""
            if len(c["measured"]) > 1:
                mark += f" measured {len(c['measured'])} times"
            text.append(f"| {c['ranks']} | {what} | {size_text(c['bytes'])} | {c['old_us']:.2f} | {c['new_us']:.2f} "
                        f"| {c['speed']:.2f} | {mark.strip()} |")
    return "\n".join(text) + "\n"


def commit_of(weft):
    """The version of a build, with the commit of the tree that it stands in and the first digits of its hash."""
    version = subprocess.run([weft, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    folder = os.path.dirname(os.path.realpath(weft))
    try:
        commit = subprocess.run(["git", "-C", folder, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    except OSError:  # there is no git
        commit = ""
    with open(weft, "rb") as f:
        digest = hashlib.sha256(f.read()).hexdigest()[:8]
    return f"{version} ({'commit ' + commit + ', ' if commit else ''}build {digest})"


def options_of(argv):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("old", metavar="OLD", help="the weft command of the older build")
    p.add_argument("new", metavar="NEW", help="the weft command of the newer build")
    p.add_argument("--tables", metavar="NAMES", help=f"some of {','.join(TABLES)} (all that this machine can do)")
    p.add_argument("--ranks", "-n", metavar="N,N", help="ranks (those of make bench)")
    p.add_argument("--only", metavar="NAMES", help="lines with these names only, as --only of weft bench has them")
    p.add_argument("--sizes", metavar="LIST", help="sizes, as --sizes of weft bench has them (that table's)")
    p.add_argument("--ms", type=int, default=20, help="time for each contender in each line and round (%(default)s)")
    p.add_argument("--rounds", type=int, default=9, help="rounds (%(default)s)")
    p.add_argument("--minutes", type=float, default=8, help="the most for the rounds of one table (%(default)s)")
    p.add_argument("--least", type=float, default=0.90, help="cells with a lower speed are measured again (%(default)s)")
    p.add_argument("--again", type=int, default=3, help="how often at most (%(default)s)")
    p.add_argument("--json", metavar="FILE", help="keep all samples; tables of the same two builds that are in it stay")
    p.add_argument("--markdown", metavar="FILE", help="write the tables")
    options = p.parse_args(argv)
    if options.rounds < 1 or options.ms < 1 or options.again < 0:
        p.error("--rounds and --ms begin at 1, --again at 0")
    for weft in (options.old, options.new):
        if not os.access(weft, os.X_OK) or os.path.isdir(weft):
            p.error(f"{weft}: no such command")
    if options.tables:
        options.tables = options.tables.split(",")
        unknown = [t for t in options.tables if t not in TABLES]
        if unknown:
            p.error(f"there is no table {unknown[0]}; there are {','.join(TABLES)}")
        return options
    options.tables = list(TABLES)
    for weft in (options.old, options.new):
        if subprocess.run([weft, "run", "-n", "2", "--hosts", "2", "--", "true"], capture_output=True).returncode:
            options.tables.remove("hosts")
            break
    return options


def main():
    options = options_of(sys.argv[1:])
    machine = {"arch": os.uname().machine, "cores": CORES,
               "old": commit_of(options.old), "new": commit_of(options.new)}
    results = []
    if options.json and os.path.exists(options.json):
        with open(options.json) as f:
            kept = json.load(f)
        if kept["machine"] == machine:
            results = [r for r in kept["tables"] if r["table"] not in options.tables]
    for name in options.tables:
        results.append(Table(name, (options.old, options.new), options).measure())
        results.sort(key=lambda r: list(TABLES).index(r["table"]))
        tell("")
        if not results or not any(r["cells"] for r in results):
            sys.exit("compare: nothing was measured")
        for path, text in ((options.json, json.dumps({"machine": machine, "tables": results}, indent=1) + "\n"),
                           (options.markdown, document(machine, results, options.least))):
            if path:
                with open(path, "w") as f:
                    f.write(text)
    print(document(machine, results, options.least), end="")


if __name__ == "__main__":
    main()
