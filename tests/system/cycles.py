#!/usr/bin/env python3
"""Measures circles between the files of the library and of the command, from the object files: a file depends on another
one when it uses a name that the other one defines. `cycles.py BUILD_DIR` fails if two folders depend on each other, or if
more files of one folder than ALLOWED says depend on each other in a circle; `--all` also lists the circles that are
allowed, `--exports FOLDER...` lists what the files of these folders define for others. Folders are those of layers.txt."""
import collections
import os
import subprocess
import sys

MOST = 3
ALLOWED = {}  # folder: more than MOST, where an argument stands beside it


def objects(build):
    """(name, path) of each: the library's, and the command's with its benchmarks."""
    for target, place in (("weft_objects", "src"), ("weft_cli_objects", "src"), ("weft_cli_objects", "bench")):
        whole = os.path.join(build, "CMakeFiles", f"{target}.dir")
        for folder, _, files in os.walk(os.path.join(whole, place)):
            for name in files:
                if name.endswith(".c.o"):
                    path = os.path.join(folder, name)
                    yield os.path.relpath(path, whole)[:-4].removeprefix("src/"), path


def layers():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "layers.txt")) as table:
        return {line.split()[0] for line in table if line.strip() and not line.startswith("#")}


def names(path):
    defined, used = set(), set()
    for line in subprocess.run(["nm", "-g", path], capture_output=True, text=True, check=True).stdout.splitlines():
        kind, name = line.split()[-2:]
        (used if kind in "Uwv" else defined).add(name)
    return defined, used


def circles(graph):
    """The strongly connected components of more than one node (Tarjan's algorithm)."""
    index, low, stack, on, found = {}, {}, [], set(), []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        on.add(v)
        for w in sorted(graph[v]):
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in on:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            part = []
            while not part or part[-1] != v:
                part.append(stack.pop())
                on.discard(part[-1])
            if len(part) > 1:
                found.append(sorted(part))

    for v in sorted(graph):
        if v not in index:
            visit(v)
    return sorted(found, key=lambda part: (-len(part), part))


def read(build):
    defined, used = {}, {}
    owner = {}
    for name, path in objects(build):
        defined[name], used[name] = names(path)
        for symbol in defined[name]:
            owner[symbol] = name
    uses = collections.defaultdict(lambda: collections.defaultdict(list))
    for name in used:
        for symbol in sorted(used[name]):
            if owner.get(symbol, name) != name:
                uses[name][owner[symbol]].append(symbol)
    return defined, uses


LAYERS = layers()


def top(name):
    """The folder of the table that a file is in."""
    folder = os.path.dirname(name)
    while folder not in LAYERS and "/" in folder:
        folder = os.path.dirname(folder)
    return folder


def main():
    build, rest = sys.argv[1], sys.argv[2:]
    sys.setrecursionlimit(10000)
    defined, uses = read(build)
    if not defined:
        sys.exit(f"cycles: no object files below {build}")
    if "--exports" in rest:
        wanted = {s for one in uses.values() for symbols in one.values() for s in symbols}
        for name in sorted(defined):
            if os.path.dirname(name) in rest:
                symbols = sorted(s for s in defined[name] if s in wanted or s.startswith("weft_"))
                print(f"{name:32} {len(symbols)}: {' '.join(symbols)}")
        return
    failed = False
    folders = collections.defaultdict(set)
    for a in uses:
        for b in uses[a]:
            if top(a) != top(b):
                folders[top(a)].add(top(b))
    for part in circles(collections.defaultdict(set, {f: folders[f] for f in {top(n) for n in defined}})):
        failed = True
        print(f"folders in a circle: {' '.join(part)}")
        for a in sorted(uses):
            for b in sorted(uses[a]):
                if top(a) in part and top(b) in part and top(a) != top(b):
                    print(f"  {a} uses {' '.join(uses[a][b])} of {b}")
    largest = 0
    for folder in sorted({top(n) for n in defined}):
        inside = {n: {m for m in uses[n] if top(m) == folder} for n in defined if top(n) == folder}
        for part in circles(inside):
            largest = max(largest, len(part))
            bad = len(part) > ALLOWED.get(folder, MOST)
            failed |= bad
            if bad or "--all" in rest:
                print(f"{len(part)} files in a circle{' (too many)' if bad else ''}: {' '.join(part)}")
    print(f"cycles: {len(defined)} files, the largest circle inside a folder has {largest} files")
    sys.exit(1 if failed else 0)


main()
