#!/usr/bin/env python3
"""What being many costs one rank: runs bench/scale.c for growing numbers of ranks and prints the tables of docs/scale.md.

    python3 bench/scale.py [--build build] [--on shm:,tcp:,auto:,threads:] [--ranks 16,64,...]

Up to 1,024 ranks (--processes) are processes, and auto: plays 16 hosts. More ranks are threads of 16 processes, or of one for threads:.
Every figure is measured or counted on each rank: first the mean over all ranks, then, in parentheses, the rank that has most.
Private memory is the processes' RssAnon beyond what they had before open, divided by their ranks.
"""
import argparse
import os
import struct
import subprocess
import sys
import tempfile
import time

PHASES = ["open", "meet", "bind", "run", "death", "agree", "close"]
COUNTERS = ["sends", "bytes", "connects", "wakes"]
HEAD = 4096
MEETINGS, RUNS = 10, 100
COST = 2 + len(COUNTERS)
FIGURES = "<%dd5dii240s" % (COST * len(PHASES))
SIZE = struct.calcsize(FIGURES)
HOSTS = 16


def read_figures(path, ranks):
    """One dict for each rank; the names are those of struct figures."""
    with open(path, "rb") as f:
        data = f.read()
    out = []
    for r in range(ranks):
        v = struct.unpack_from(FIGURES, data, HEAD + r * SIZE)
        one = {"phases": {}}
        for i, phase in enumerate(PHASES):
            cost = v[i * COST:(i + 1) * COST]
            one["phases"][phase] = dict(zip(["seconds", "cpu"] + COUNTERS, cost))
        rest = v[COST * len(PHASES):]
        one.update(zip(["files", "connections", "private", "shared", "knew", "code", "went"], rest))
        one["text"] = rest[7].split(b"\0")[0].decode(errors="replace")
        out.append(one)
    return out


def measure(options, on, ranks, work, dies):
    """Runs the ranks. Returns their figures without those of the dead, the threads in a process, and what went wrong."""
    threads = 1
    if on == "threads:":
        threads = ranks
    elif ranks > options.processes:
        threads = ranks // HOSTS
    processes = ranks // threads
    command = [os.path.join(options.build, "weft"), "run", "-n", str(processes)]
    if on == "auto:":
        command += ["--hosts", str(HOSTS)]
    elif on != "threads:":
        command += ["--on", on] + (["--at", "tcp:"] if on == "tcp:" else [])
    with tempfile.NamedTemporaryFile(prefix="scale-") as f:
        f.truncate(HEAD + ranks * SIZE)
        command += ["--", os.path.join(options.build, "bench", "scale"), f.name, str(threads), work] + (["dies"] if dies else [])
        begin = time.time()
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=options.timeout, stdin=subprocess.DEVNULL)
            wrong = done.stderr[-400:] if done.returncode else ""
        except subprocess.TimeoutExpired:
            wrong = "it took more than %d s" % options.timeout
        seconds = time.time() - begin
        figures = read_figures(f.name, ranks)
    if dies:
        figures = figures[:ranks - threads]
    for r, one in enumerate(figures):
        if not wrong and one["code"]:
            wrong = "rank %d: code %d: %s" % (r, one["code"], one["text"])
        elif not wrong and one["went"] != len(PHASES):
            wrong = "rank %d ended after %d phases" % (r, one["went"])
    return figures, threads, wrong, seconds


def number(x):
    """Three digits, and thousands with commas."""
    if x >= 99.95 or x == round(x):
        return "{:,.0f}".format(x)
    if x >= 9.995:
        return "%.1f" % x
    if x >= 0.00995:
        return "%.2f" % x
    return "%.1g" % x


def spread(values):
    """The mean, and the largest value if it differs."""
    a, b = number(sum(values) / len(values)), number(max(values))
    return a if a == b else "%s (%s)" % (a, b)


def phase(figures, name, what, by=1.0):
    return [one["phases"][name][what] * by for one in figures]


# The name of a column, the run that it is of, the phase there, and by what its figures are divided.
COLUMNS = [("open", "close", "open", 1), ("a meeting", "close", "meet", MEETINGS), ("bind, 2 neighbours", "close", "bind", 1),
           ("a run", "close", "run", RUNS), ("a death", "death", "death", 1), ("survivors", "death", "agree", 1),
           ("close after it", "death", "close", 1),
           ("close", "close", "close", 1), ("bind, all", "all", "bind", 1),
           ("a run, all", "all", "run", RUNS)]
KINDS = [("CPU time, ms a rank", "cpu", 1e3), ("Messages a rank", "sends", 1), ("Bytes a rank", "bytes", 1),
         ("Wake-ups of other ranks, by a rank", "wakes", 1), ("Milliseconds that it takes, of the slowest rank", "seconds", 1e3)]


def what_it_has(runs, threads):
    """Columns of what a rank has when all is bound."""
    row = {}
    for name, run in (("2 neighbours", "close"), ("all", "all")):
        figures = runs.get(run)
        if not figures:
            continue
        row["files, " + name] = spread([one["files"] / threads for one in figures])
        row["connections, " + name] = spread([one["connections"] / threads for one in figures])
        row["private KiB, " + name] = spread([one["private"] / threads / 1024 for one in figures])
    if runs.get("death"):
        row["a death is known after s"] = spread([one["knew"] for one in runs["death"]])
    return row


def row_of(runs, kind, by):
    row = {}
    for name, run, at, share in COLUMNS:
        if runs.get(run):
            values = phase(runs[run], at, kind, by / share)
            row[name] = number(max(values)) if kind == "seconds" else spread(values)
    return row


def print_table(on, title, rows):
    columns = []
    for _, row in rows:
        columns += [c for c in row if c not in columns and any(r.get(c, "0") != "0" for _, r in rows)]
    if not columns:
        return
    print("\n`%s`: %s.\n" % (on, title))
    print("| ranks | " + " | ".join(columns) + " |")
    print("| --- |" + " --- |" * len(columns))
    for name, row in rows:
        print("| %s | %s |" % (name, " | ".join(row.get(c, "-") for c in columns)))


def print_tables(on, measured):
    for title, kind, by in KINDS:
        print_table(on, title, [(name, row_of(runs, kind, by)) for name, runs, _ in measured])
    print_table(on, "What a rank has", [(name, what_it_has(runs, threads)) for name, runs, threads in measured])
    sys.stdout.flush()


RUNS_OF = [("close", "neighbours", False), ("death", "neighbours", True), ("all", "all", False)]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build")
    p.add_argument("--on", default="shm:,tcp:,auto:,threads:")
    p.add_argument("--ranks", default="16,64,256,1024,4096,16384")
    p.add_argument("--processes", type=int, default=1024, help="up to this number ranks are processes")
    p.add_argument("--timeout", type=int, default=600, help="seconds for each run")
    p.add_argument("--all", type=int, default=1024, help="up to this number all ranks sum up over all")
    options = p.parse_args()
    failed = 0
    for on in options.on.split(","):
        measured = []
        for ranks in [int(n) for n in options.ranks.split(",")]:
            if on == "auto:" and ranks <= HOSTS:
                continue
            runs, threads = {}, 1
            for name, work, dies in RUNS_OF:
                if dies and on == "threads:" or work == "all" and ranks > options.all:
                    continue
                figures, threads, wrong, seconds = measure(options, on, ranks, work, dies)
                print("%s %d ranks, %d in a process, %s: %.1f s %s" % (on, ranks, threads, name, seconds, wrong), file=sys.stderr)
                failed |= bool(wrong)
                if not wrong:
                    runs[name] = figures
            if runs:
                measured.append(("{:,}".format(ranks) + (" threads" if threads > 1 else ""), runs, threads))
        print_tables(on, measured)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
