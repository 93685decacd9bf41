#!/usr/bin/env python3
"""Which lines of src/ the tests have run: `coverage.py SOURCE_DIR BUILD_DIR`, BUILD_DIR having been compiled with --coverage.

Prints a line for each folder and the total, and writes BUILD_DIR/uncovered.txt: the lines that nothing has run, file by
file. A line counts as run if any object file has run it: headers are in several."""
import collections
import gzip
import json
import os
import subprocess
import sys
import tempfile


def counts(source, build):
    """{file: {line: whether it was run}} of the files below SOURCE_DIR/src."""
    lines = collections.defaultdict(dict)
    notes = [os.path.join(d, f) for d, _, fs in os.walk(build) for f in fs if f.endswith(".gcno")]
    with tempfile.TemporaryDirectory() as work:
        for start in range(0, len(notes), 50):
            subprocess.run(["gcov", "--json-format", "--hash-filenames", *notes[start:start + 50]], cwd=work, check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for name in os.listdir(work):
            with gzip.open(os.path.join(work, name), "rt", encoding="utf-8") as f:
                data = json.load(f)
            for file in data["files"]:
                path = os.path.normpath(os.path.join(data["current_working_directory"], file["file"]))
                if path.startswith(os.path.join(source, "src") + os.sep):
                    mine = lines[os.path.relpath(path, source)]
                    for line in file["lines"]:
                        n = line["line_number"]
                        mine[n] = mine.get(n, False) or line["count"] > 0
    return lines


def ranges(numbers):
    """[1, 2, 3, 7] as "1-3 7"."""
    parts = []
    for n in numbers:
        if parts and parts[-1][1] == n - 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return " ".join(f"{a}-{b}" if a < b else str(a) for a, b in parts)


def main(source, build):
    lines = counts(os.path.abspath(source), os.path.abspath(build))
    if not lines:
        sys.exit(f"{build}: no figures; was it compiled with --coverage?")
    folders = collections.defaultdict(lambda: [0, 0])
    with open(os.path.join(build, "uncovered.txt"), "w", encoding="utf-8") as out:
        for name, seen in sorted(lines.items()):
            folder = folders[os.path.join(*name.split(os.sep)[:2])]
            folder[0] += sum(seen.values())
            folder[1] += len(seen)
            missed = sorted(n for n, run in seen.items() if not run)
            if missed:
                out.write(f"{name}: {ranges(missed)}\n")
    for name, (run, total) in sorted(folders.items()):
        print(f"{name:16} {run:6} of {total:6} lines  {100 * run / total:5.1f} %")
    run, total = (sum(column) for column in zip(*folders.values()))
    print(f"{'src':16} {run:6} of {total:6} lines  {100 * run / total:5.1f} %")


main(*sys.argv[1:3])
