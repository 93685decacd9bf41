#!/usr/bin/env python3
"""Results of `weft bench` as files and as a document.

benchmarks.py collect OUT NAME=FILE...   one machine's results: the JSON of each benchmark, less what no table shows,
                                         and what stands in machine.json beside OUT's inputs
benchmarks.py document OUT FILE...       a section for each machine's results, in the order given
"""
import json
import os
import sys

HOW = """\
- Ranks are processes. weft, the floor and each setting of each MPI library stand ready, asleep, and take turns in rounds on
  the same work; a figure is the median over the rounds. Ranks of all of them are bound to the cores in turn.
- The *floor* is the same work written by hand on shared mappings, without a library (`bench/ranks/floor.c`, `bench/work/matrix.c`). It
  waits by spinning where there are cores enough, else by yielding, and by yielding and then sleeping; a reshard is pushed
  and pulled. The best counts.
- *time* is that of calls back to back, slowest rank. Broadcasts overlap when called so: for them it is not less than that of
  a single call, which with more ranks than cores lasts from the root's start to the last rank's end. Reshards and many
  tensors are single calls, from the first rank's start to the last one's end. A barrier stands before each timed stretch and
  outside it.
- *best peer* is the fastest of all settings: Open MPI with and without the kernel's cross-memory copy, over UCX, with its
  shared-memory collectives, spinning and yielding; MPICH. A peer's reduce-scatter is never worse than its allreduce, its
  halo is the better of plain and persistent requests (on grids of `MPI_Neighbor_alltoallw` and of persistent requests, to all
  neighbours at once and dim by dim, with derived datatypes), its reshard the better of `MPI_Alltoallw` and of packing by hand with
  `MPI_Alltoallv`. *ratio* is its time over weft's: above 1 weft is faster. A setting that is four times slower than the best
  one at first sight (twice, where that is 2 ms or more) is not measured further.
  Where the quartiles of somebody's rounds are more than 15 % apart, all contenders do theirs again, twice at most.
- *of floor* is the floor's time over weft's; *of memcpy* is half of the bytes read and written over time, against memcpy by
  as many workers as there are cores or ranks, of as much, measured in the same rounds.
- Every contender's result is checked once for each line; *wrong* counts weft's wrong elements.
- Sizes are per rank: what each gives (broadcast and allreduce: the buffer; halo: one face; all_to_all: all that it sends).
- Aims are for two cores, with tensors in window memory. Halos: each line from 64 KiB on twice as fast as the best peer, strided
  faces three times; 4 KiB 0.95 (2 and 4 ranks) and 1.3 (8); none below 0.9. Collectives: at 2 ranks and 4 KiB a cell of allgather, all_to_all and halo has to
  reach the floor only, and the broadcast of 8 bytes to 4 ranks is set aside, since no program measures it fairly.
"""


def size(n):
    for unit in ("", "K", "M", "G"):
        if n % 1024 or not n or unit == "G":
            return f"{n}{unit}"
        n //= 1024


def share(v):
    return f"{100 * v:.0f} %" if v else "-"


def number(v, digits=2):
    return f"{v:.{digits}f}" if v else "-"


def table(heads, rows):
    """heads: names, with ':' before those of text; the others are numbers."""
    left = [h.startswith(":") for h in heads]
    lines = ["| " + " | ".join(h.lstrip(":") for h in heads) + " |",
             "| " + " | ".join("---" if is_left else "---:" for is_left in left) + " |"]
    lines += ["| " + " | ".join(str(c) for c in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def remarks(run):
    return "".join(f"- {s['text']}\n" for s in run.get("summary", []))


def moves(run, what):
    heads = ["ranks", ":" + what, "size", "time us", "algbw GB/s", "busbw GB/s", "wrong", "of memcpy", "floor us", "of floor",
             "best peer us", "ratio", ":which"]
    rows = [[r["ranks"], r["what"], size(r["bytes"]), number(r["time_us"]), number(r["algbw_GBps"]), number(r["busbw_GBps"]),
             r["wrong"], share(r["share_of_memcpy"]), number(r["floor_us"]), share(r["share_of_floor"]),
             number(r["best_peer_us"]), number(r["ratio"]), r["best_peer"] or "-"] for r in run["rows"]]
    return remarks(run) + "\n" + table(heads, rows)


def many(run):
    heads = ["ranks", "tensors", "size", "one plan us", "one each, together us", "in turn us", "ratio", "wrong", "floor us",
             "of floor", "best peer us", "ratio", "made: one us", "each us"]
    rows = []
    for r in run["rows"]:
        one, both, turn = (r["figures"]["weft, " + way] for way in
                           ("one plan", "one plan each, started together", "one plan each, in turn"))
        rows.append([r["ranks"], r["tensors"], size(r["bytes"]), number(one["us"], 1), number(both["us"], 1),
                     number(turn["us"], 1), number(min(both["us"], turn["us"]) / one["us"]), r["wrong"],
                     number(r["floor_us"], 1), share(r["share_of_floor"]), number(r["best_peer_us"], 1), number(r["ratio"]),
                     number(one.get("made", 0), 1), number(both.get("made", 0), 1)])
    return remarks(run) + "\n" + table(heads, rows)


def memory(run):
    heads = ["workers", "size", "memcpy GB/s", "read GB/s", "write GB/s", "weft GB/s", "weft of memcpy"]
    cells = {}
    for r in run["rows"]:
        rate = {who.split(",")[0]: r["ranks"] * r["bytes"] / f["us"] / 1e3 for who, f in r["figures"].items()}
        cells.setdefault((r["ranks"], r["bytes"]), {})[r["what"]] = rate
    rows = []
    for (workers, bytes_), c in cells.items():
        weft, copy = c["copy"].get("weft", 0), c["copy"]["memory"]
        rows.append([workers, size(bytes_), number(copy), number(c["read"]["memory"]), number(c["write"]["memory"]),
                     number(weft), share(weft / copy)])
    return table(heads, rows)


def overlap(run):
    heads = [":progress by", "exchange us", "compute us", "both us", "of the sum", "hidden", "wrong"]
    rows = [[r["progress"], number(r["exchange_us"], 1), number(r["compute_us"], 1), number(r["both_us"], 1), number(r["of_sum"]),
             f"{r['hidden_percent']:.0f} %", r["wrong"]] for r in run["lines"]]
    aim = f"- progress by a thread, aim {run['aim']}\n\n" if run["aim"] else ""
    return aim + table(heads, rows)


def lower(run):
    worlds = sorted({w["world"] for w in run["worlds"]})
    names = list(dict.fromkeys(w["name"] for w in run["worlds"]))
    by = {(w["name"], w["world"]): w for w in run["worlds"]}
    first = table([":one rank's lowering, us, by ranks in the world", "peers"] + [str(w) for w in worlds],
                  [[n, by[n, worlds[-1]]["peers"]] + [number(by[n, w]["us"]) for w in worlds] for n in names])
    heads = ["layers", "tensors", "inference rank ms", "plan MiB", "training rank ms", "plan MiB"]
    second = table(heads, [[m["layers"], m["tensors"]] +
                           [v for side in ("inference_rank", "training_rank")
                            for v in (number(m[side]["us"] / 1e3, 1), number(m[side]["plan_bytes"] / 1048576, 1))]
                           for m in run["model"]])
    return first + "\nA model of DeepSeek-V3's size, 128 ranks to 128 others, one rank's whole plan:\n\n" + second


def hosts(run):
    heads = ["ranks", ":what", "size", "weft", "GB/s", "the other", "ratio", "aim", ":beside"]
    rows = []
    for r in run["lines"]:
        if "crossed" in r:
            figures = [f"{r['crossed'] / 1048576:.2f} MiB", "-", f"{r['must'] / 1048576:.2f} MiB"]
        else:
            figures = [f"{number(r['time_us'])} us", number(r["bytes"] / r["time_us"] / 1e3, 3), f"{number(r['other_us'])} us"]
        rows.append([r["ranks"], r["what"], size(r["bytes"])] + figures +
                    [number(r["ratio"]), number(r.get("aim", 0)), r["other"]])
    return table(heads, rows)


SECTIONS = [("coll", "Collectives, window memory", lambda run: moves(run, "collective"), "time by size"),
            ("private", "Collectives, private memory", lambda run: "The floor copies its inputs into windows first.\n\n" +
             moves(run, "collective"), None),
            ("reshard", "Reshard", lambda run: moves(run, "tensor"), "speed of each case"),
            ("halo", "Halos", lambda run: "Ghosts around each rank's cells, corners too, in place, on grids of ranks that are as square "
             "as can be; *3d x faces* are those across the rows of a 3-d array. *exchange* is a message to either neighbour whose size "
             "only its sender knows.\n\n" + moves(run, "what"), "time by size"),
            ("many", "Many small tensors", lambda run: "Tensors of 1 to 64 KiB from rows to columns, all in one plan or one "
             "plan each. *ratio* is the better of the two ways to run one plan each, over one plan; *made* is lowering and "
             "binding, once. The best peer packs all tensors and exchanges once.\n\n" + many(run), None),
            ("latency", "Latency", lambda run: moves(run, "what"), None),
            ("overlap", "Overlap", lambda run: f"{size(run['bytes'])} from each of {run['ranks']} ranks to the next, computation of the same "
             "length, and both at once (start, compute, wait): *hidden* is how much of the exchange takes no time beside it.\n\n" +
             overlap(run), None),
            ("memory", "Memory", memory, None),
            ("hosts", "Between hosts", lambda run: "Two hosts played on this machine: network namespaces on a bridge, so the link is "
             "the kernel's TCP, and its cost is copies by the same cores that the ranks run on. All took turns in rounds on that link; "
             "medians. *ratio* is the other's time over weft's, or the bytes that must cross over those that did. Left to itself "
             "ucx_perftest sends memory that was never written, one page of zeros, which stays in the cache; with `UCX_ALLOC_PRIO=heap "
             "MALLOC_PERTURB_=85` it sends memory like weft's. The slow link is limited by tc to " + (run.get("slow_link") or "") + ". "
             "The peers' hosts have names of their own; shared memory is on inside them but for UCX, which would take all hosts for one."
             "\n\n" + hosts(run), None),
            ("lower", "Lowering", lower, None)]


def slim(run):
    """Figures of a row by who they are of."""
    for r in run.get("rows", []):
        r["figures"] = {f["who"]: {"us": round(f["time_us"], 3)} | ({"made": round(f["made_us"], 1)} if "made_us" in f else {})
                        for f in r["figures"] if not f["brief"]}
        for k, v in r.items():
            r[k] = round(v, 4) if isinstance(v, float) else v
    return run


def collect(out, inputs):
    runs = {}
    for item in inputs:
        name, path = item.split("=", 1)
        with open(path, encoding="utf-8") as f:
            runs[name] = json.load(f)
        if runs[name].get("incomplete"):
            sys.exit(f"{path}: it is incomplete: {runs[name]['incomplete']}")
    machine = runs.pop("machine")
    with open(out, "w", encoding="utf-8") as f:
        f.write('{"machine": ' + json.dumps(machine) + ',\n "runs": {')
        for i, (name, run) in enumerate(runs.items()):
            run = slim(run)
            rows = run.pop("rows", None)
            body = json.dumps(run)
            if rows is not None:  # a line each, so that changes can be read
                body = body[:-1] + ', "rows": [\n  ' + ",\n  ".join(json.dumps(r) for r in rows) + "]}"
            f.write(("," if i else "") + f'\n "{name}": {body}')
        f.write("}}\n")


def section(path, folder):
    with open(path, encoding="utf-8") as f:
        result = json.load(f)
    name = os.path.splitext(os.path.basename(path))[0]
    machine = result["machine"]
    text = f"## {machine.pop('title')}\n\n"
    text += table([":", ":"], [[k, v] for k, v in machine.items() if v])
    for key, title, body, picture in SECTIONS:
        if key not in result["runs"]:
            continue
        run = result["runs"][key]
        text += f"\n### {title}\n\n{body(run)}"
        if run.get("left_out"):
            text += "\nLeft out: " + "; ".join(run["left_out"].strip().split("\n")) + ".\n"
        if picture and os.path.exists(f"{folder}/pictures/{name}-{key}.svg"):
            text += f"\n![{picture}](pictures/{name}-{key}.svg)\n"
    return text


def document(out, paths):
    folder = os.path.dirname(out) or "."
    text = "# Benchmarks\n\nWritten by `make bench`; do not edit. Each machine's figures were measured in one go, unless its table says otherwise.\n\n"
    text += "## How it was measured\n\n" + HOW
    for path in paths:
        text += "\n" + section(path, folder)
    with open(out, "w", encoding="utf-8") as f:
        f.write(text)


def main(args):
    if len(args) >= 3 and args[0] == "collect":
        collect(args[1], args[2:])
    elif len(args) >= 3 and args[0] == "document":
        document(args[1], args[2:])
    else:
        sys.exit(__doc__)


main(sys.argv[1:])
