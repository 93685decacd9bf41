#!/usr/bin/env python3
"""Measures the structure of the library and of the command, from the object files: a file depends on another one when
it uses a name that the other one defines. Folders are those of layers.txt.

  cycles.py BUILD_DIR              fails if two folders depend on each other, or if more files of one folder than
                                   ALLOWED says depend on each other in a circle
  cycles.py BUILD_DIR --all        also lists the circles that are allowed
  cycles.py BUILD_DIR --prefixes   also fails if a name does not begin with the name of its file: shm_heap_take is
                                   defined in shm_heap.c. The folder's name may stand before it: src/memory/tile.c may
                                   define memory_tile_count, and src/engine/ways/pull.c way_pull. Names of the interface, weft_*, may stand anywhere. A file
                                   whose names begin otherwise says so in a comment of its folder, as in
                                   "Prefix of json_read.c: json_."
  cycles.py BUILD_DIR --exports FOLDER...
                                   lists what the files of these folders define for others
"""
import collections
import glob
import os
import re
import subprocess
import sys

MOST = 3
ALLOWED = {}  # folder: more than MOST, where an argument stands beside it
EXCEPTIONS = {}  # a name that does not begin as its file does: why

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))


def objects(build):
    """Every object file of the library, its modules and the command: the name of its source file, without src/ and .c,
    and its path. An object file whose source file is gone does not count."""
    for target, place in (("weft*", "src"), ("weft_cli_objects", "bench")):
        for whole in sorted(glob.glob(os.path.join(build, "CMakeFiles", f"{target}.dir"))):
            for folder, _, files in os.walk(os.path.join(whole, place)):
                for file in files:
                    name = os.path.relpath(os.path.join(folder, file), whole)
                    if name.endswith(".c.o") and os.path.exists(os.path.join(ROOT, name[:-2])):
                        yield name[:-4].removeprefix("src/"), os.path.join(folder, file)


def layers():
    with open(os.path.join(HERE, "layers.txt"), encoding="utf-8") as table:
        return {line.split()[0] for line in table if line.strip() and not line.startswith("#")}


def names(paths):
    """Of each object file the names that it defines, and those that it uses."""
    defined, used = collections.defaultdict(set), collections.defaultdict(set)
    said = subprocess.run(["nm", "-g", "-A", *paths], capture_output=True, text=True, check=True).stdout
    for line in said.splitlines():
        path, rest = line.split(":", 1)
        kind, name = rest.split()[-2:]
        (used if kind in "Uwv" else defined)[path].add(name)
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
    defined, used = collections.defaultdict(set), collections.defaultdict(set)
    owner = {}
    found = list(objects(build))
    here, wanted = names([path for _, path in found]) if found else ({}, {})
    for name, path in found:
        defined[name] |= here[path]
        used[name] |= wanted[path]
        for symbol in here[path]:
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




def check_circles(defined, uses, show_all):
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
            many = len(part) > ALLOWED.get(folder, MOST)
            failed |= many
            if many or show_all:
                print(f"{len(part)} files in a circle{' (too many)' if many else ''}: {' '.join(part)}")
    print(f"cycles: {len(defined)} files, the largest circle inside a folder has {largest} files")
    return failed


def stated_prefixes(folder):
    """What the comments of a folder state: its files, without .c, and the prefixes of their names, without the _."""
    stated = {}
    for path in glob.glob(os.path.join(ROOT, "src", folder, "*.[ch]")):
        with open(path, encoding="utf-8") as file:
            text = re.sub(r"\s+(\* )?", " ", file.read())
        for name, prefixes in re.findall(r"Prefix(?:es)? of (\w+)\.c: ((?:\w+_(?:, )?)+)", text):
            stated[name] = [prefix.rstrip("_") for prefix in prefixes.split(", ")]
    return stated


def check_prefixes(defined):
    failed, count, unused = False, 0, set(EXCEPTIONS)
    for name in sorted(defined):
        folder, base = os.path.split(name)
        mine = [base] + [f"{part}_{base}" for parts in folder.split("/") for part in (parts, parts.removesuffix("s"))] + stated_prefixes(folder).get(base, [])
        for symbol in sorted(defined[name]):
            count += 1
            if symbol in EXCEPTIONS:
                unused.discard(symbol)
            elif not symbol.startswith("weft_") and not any(symbol == p or symbol.startswith(p + "_") for p in mine):
                failed = True
                print(f"{name}.c defines {symbol}")
    for symbol in sorted(unused):
        failed = True
        print(f"EXCEPTIONS names {symbol}, which is nowhere defined")
    print(f"prefixes: {count} names, {len(EXCEPTIONS)} exceptions")
    return failed


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
    failed = check_circles(defined, uses, "--all" in rest)
    if "--prefixes" in rest:
        failed |= check_prefixes(defined)
    sys.exit(1 if failed else 0)


main()
