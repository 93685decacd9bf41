#!/usr/bin/env python3
"""Results of `weft bench` as files and as a document.

benchmarks.py collect OUT NAME=FILE...   one machine's results: the JSON of each benchmark, less what no table shows,
                                         and what stands in machine.json beside OUT's inputs
benchmarks.py document OUT FILE...       a section for each machine's results, in the order given
"""
import json
import math
import os
import sys

HOW = """\
- Ranks are processes. weft, the floor and every setting of every MPI library take turns in rounds on the same work; those whose
  turn it is not are asleep. A figure is the median over the rounds. The ranks of all contenders are bound to the cores in turn.
- The *floor* is the same work written by hand on shared memory, without a library (`bench/ranks/floor.c`, `bench/work/matrix.c`). It is
  measured with several ways to wait (spinning where there is a core for each rank, otherwise yielding, and yielding and then
  sleeping), and for reshards with pushed and pulled copies. The best one counts. weft can be faster than the floor, because it
  chooses among more ways to move a message.
- *time* is the time of calls back to back, on the slowest rank. Broadcasts overlap when they are called in this way; for them the
  time is at least that of a single call. With more ranks than cores a single call lasts from the start of the root to the end of
  the last rank. Reshards and many tensors are single calls, from the start of the first rank to the end of the last one. A
  barrier stands before each timed stretch and is not timed.
- *best peer* is the fastest of all settings: Open MPI with and without the kernel's cross-memory copy, over UCX, with its
  shared-memory collectives, spinning and yielding; and MPICH. *ratio* is the time of the best peer over the time of weft: above
  1 weft is faster.
  - The reduce-scatter of a peer counts as no worse than its allreduce.
  - Its halo is the better of plain and persistent requests. On grids it is the better of `MPI_Neighbor_alltoallw` and persistent
    requests, to all neighbours at once and dim by dim, with derived datatypes.
  - Its reshard is the better of `MPI_Alltoallw` and packing by hand with `MPI_Alltoallv`.
  - A setting that is four times slower than the best one at first sight is not measured further (twice slower, where the best
    one takes 2 ms or more).
- If the quartiles of the rounds of one contender are more than 15 % apart, all contenders repeat their rounds, twice at most.
- *of floor* is the time of the floor over the time of weft. *of memcpy* is half of the bytes read and written over the time,
  relative to memcpy of the same size by as many workers as there are cores or ranks, measured in the same rounds.
- The result of every contender is checked once for each line. *wrong* counts the wrong elements of weft.
- Sizes are per rank: the bytes that each rank gives (broadcast and allreduce: the buffer; halo: one face; all_to_all: all that the
  rank sends).
- Aims are for two cores, with tensors in window memory. Halos: each line from 64 KiB on twice as fast as the best peer, and
  strided faces three times as fast; 4 KiB 0.95 (2 and 4 ranks) and 1.3 (8 ranks); none below 0.9. Collectives: at 2 ranks and
  4 KiB, allgather, all_to_all and halo only have to reach the floor. The broadcast of 8 bytes to 4 ranks has no aim, because no
  program measures it fairly.
"""

DEMO = """\
`make demo` moves the 84 million weights of a transformer, 39 tensors in one plan, from f32 on 4 ranks (dp2.tp2, split as by FSDP
and tensor parallelism) to bf16 on 4 other ranks (tp4). Every byte is checked. Times are medians on the AArch64 machine below.

| `make demo`, ranks are threads | |
| --- | --- |
| the plan of one rank, made once | 40 us; the plans of all 8 ranks are verified without data in 0.3 ms |
| moved in a round | 167,845,888 B in 54 messages: the lower bound, evenly on all ranks |
| weft | 21 ms a round: reads 16 GB/s of f32, writes 8 GB/s of bf16; memcpy by two threads: 45 GB/s |
| gather, cast, broadcast, slice | 54 ms: 2.6 times as long, and 22 times the bytes through its busiest rank |

An 8-byte move between two processes takes fewer than 400 instructions on each side (a test counts them).
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


def mean(values):
    """The geometric mean, or a dash where there is nothing to average."""
    values = [v for v in values if v]
    return f"{math.exp(sum(map(math.log, values)) / len(values)):.2f}" if values else "-"


def short(result):
    """The geometric means of one machine's collectives, by numbers of ranks."""
    runs = result["runs"]
    ranks = sorted({r["ranks"] for r in runs["coll"]["rows"]})

    def line(title, name, ratio, wanted):
        rows = runs[name]["rows"] if name in runs else []
        return [title] + [mean(ratio(r) for r in rows if r["ranks"] == n and wanted(r)) for n in ranks]

    def peer(r):
        return r["ratio"]

    lines = [line("window memory, 64 KiB and more: best MPI / weft", "coll", peer, lambda r: r["bytes"] >= 65536),
             line("window memory, below 64 KiB: best MPI / weft", "coll", peer, lambda r: r["bytes"] < 65536),
             line("private memory, 64 KiB and more: best MPI / weft", "private", peer, lambda r: r["bytes"] >= 65536),
             line("window memory, all sizes: the floor / weft", "coll", lambda r: r["share_of_floor"], lambda r: True)]
    return table([":" + result["machine"]["title"]] + [f"{n} ranks" for n in ranks], lines)


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


def pairs(run):
    about = (f"{len(run['pairs'])} random pairs of large tensors over the whole notation, {run['memory']} memory of {run['ranks']}. The score of a "
             "pair is the time of memcpy, by as many workers, for the bytes that the pair has to read and write at least, over the time of weft.")
    about += f" Measured apart: {run['measured']}.\n\n" if "measured" in run else "\n\n"
    heads = ["worst"] + [f"{10 * i} %" for i in range(1, 10)] + ["best"]
    worst = [[":pair", "score"]] + [[f"`{p['src']} -> {p['dst']}`", number(p["score"])] for p in run["pairs"][:5]]
    return about + table(heads, [[number(d) for d in run["deciles"]]]) + "\nThe worst:\n\n" + table(worst[0], worst[1:])


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
            ("private", "Collectives, private memory", lambda run: "Here the floor first copies its inputs into windows.\n\n" +
             moves(run, "collective"), None),
            ("reshard", "Reshard", lambda run: moves(run, "tensor"), "speed of each case"),
            ("halo", "Halos", lambda run: "Each rank fills the ghosts around its cells in place, corners included, on grids of ranks "
             "that are as square as possible. *3d x faces* are the faces across the rows of a 3-d array. *exchange* is a message to each "
             "neighbour whose size only its sender knows.\n\n" + moves(run, "what"), "time by size"),
            ("many", "Many small tensors", lambda run: "Tensors of 1 to 64 KiB move from rows to columns, all in one plan or with "
             "one plan for each. The first *ratio* is the better of the two ways to run one plan for each tensor, over one plan for all. *made* is "
             "the time of lowering and binding, once. The best peer packs all tensors and exchanges once.\n\n" + many(run), None),
            ("latency", "Latency", lambda run: moves(run, "what"), None),
            ("overlap", "Overlap", lambda run: f"{size(run['bytes'])} from each of {run['ranks']} ranks to the next, alone; a computation "
             "that takes as long, alone; and both at once (start, compute, wait). *hidden* is the share of the exchange that takes no extra time.\n\n" +
             overlap(run), None),
            ("memory", "Memory", memory, None),
            ("pairs", "Random pairs, window memory", pairs, None),
            ("pairs_threads", "Random pairs, memory of threads", pairs, None),
            ("hosts", "Between hosts", lambda run: "Two hosts are played on this machine: network namespaces on a bridge. So the link is the "
             "kernel's TCP, and its cost is copies by the same cores that the ranks run on. All contenders take turns in rounds on that link; "
             "figures are medians. *ratio* is the time of the other over the time of weft, or the bytes that must cross over the bytes that did "
             "cross. By default ucx_perftest sends memory that was never written, a single page of zeros that stays in the cache; with "
             "`UCX_ALLOC_PRIO=heap MALLOC_PERTURB_=85` it sends memory like that of weft. tc limits the slow link to " +
             (run.get("slow_link") or "") + ". The hosts of the peers have names of their own. Inside them shared memory is on, except for UCX, "
             "which would take all hosts for one."
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
    text = "# Benchmarks\n\nWritten by `make bench`; do not edit. The figures of a machine were measured in one run, unless its table says otherwise.\n\n"
    text += "## In short\n\nGeometric means over all collectives. Above 1 weft is faster.\n\n"
    for path in paths:
        with open(path, encoding="utf-8") as f:
            text += short(json.load(f)) + "\n"
    text += DEMO + "\n## How it was measured\n\n" + HOW
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
