#!/usr/bin/env python3
"""Compares the metrics of ranks with what their execs said of their messages: metrics_check.py FOLDER RANKS RUNS TIMED [HOSTS].

FOLDER has explain.R and metrics.R of each rank. HOSTS is how many hosts were played. TIMED: yes or no.
metrics_check.py --text FILE RUNS: FILE is OpenMetrics text of all ranks, whose runs add up to RUNS.
"""

import collections
import json
import re
import sys


def parse(text):
    """{(sample, labels): value}. The text is OpenMetrics: families stand together, names fit their types and units."""
    lines, seen, family, found = text.split("\n"), [], None, {}
    assert lines[-1] == "" and lines[-2] == "# EOF", "no end"
    for line in lines[:-2]:
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ")
            assert family not in seen, f"{family} stands in two places"
            seen.append(family)
        elif line.startswith("# UNIT "):
            assert line.split(" ")[2] == family and family.endswith("_" + line.split(" ")[3]), line
        elif line.startswith("# HELP "):
            assert line.split(" ")[2] == family and line.endswith("."), line
        else:
            name, labels, value = re.fullmatch(r"(\w+)\{(.*)\} (\S+)", line).groups()
            ends = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_sum", "_count"]}[kind]
            assert name in [family + e for e in ends], line
            pairs = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels)
            assert ",".join(f'{k}="{v}"' for k, v in pairs) == labels, line
            key = (name, tuple(pairs))
            assert key not in found, f"twice: {line}"
            found[key] = float(value)
    return found


def total(found, name, **labels):
    return sum(v for (n, pairs), v in found.items() if n == name and labels.items() <= dict(pairs).items())


def check_rank(folder, rank, ranks, runs, timed, hosts):
    text = open(f"{folder}/metrics.{rank}").read()
    text, samples = re.fullmatch(r"(.*)# samples (\d+)\n", text, re.S).groups()
    found = parse(text)
    execs = [json.loads(line) for line in open(f"{folder}/explain.{rank}")]
    want = collections.Counter()
    for x in execs:
        for ch in x["channels"]:
            peer, way = ch.get("to", ch.get("from")), "sent" if "to" in ch else "received"
            host = f"host{peer * hosts // ranks}" if hosts > 1 else None
            want[way, ch["way"], host, "bytes"] += ch["bytes"] * runs
            want[way, ch["way"], host, "messages"] += ch["messages"] * runs
    for (way, name, host, unit), value in want.items():
        labels = {"way": name, "rank": str(rank), **({"peer_host": host} if host else {})}
        got = total(found, f"weft_{way}_{unit}_total", **labels)
        assert got == value, f"rank {rank}: {way} {unit} by {name} {host}: {got}, the execs say {value}"
    for way in ("sent", "received"):
        all_of_it = sum(v for k, v in want.items() if k[0] == way and k[3] == "bytes")
        assert total(found, f"weft_{way}_bytes_total") == all_of_it > 0, f"rank {rank}: more than its execs have {way}"
    assert total(found, "weft_runs_total") == runs * len(execs) and total(found, "weft_failed_runs_total") == 0
    assert total(found, "weft_failures_total") == 0 and total(found, "weft_staging_bytes", what="limit") > 0
    assert total(found, "weft_run_seconds_count") == (runs * len(execs) if timed else 0)
    if timed:
        for name in ("run", "wait"):
            counts = [v for (n, _), v in found.items() if n == f"weft_{name}_seconds_bucket"]
            assert counts == sorted(counts) and counts[-1] == total(found, f"weft_{name}_seconds_count"), counts
        assert total(found, "weft_run_seconds_sum") > 0
    # One sample of the callback is one of the text; a histogram is ten lines there.
    histograms = sum(n.endswith("_count") for n, _ in found)
    buckets = sum(n.endswith("_bucket") for n, _ in found)
    assert int(samples) == len(found) - buckets - histograms, f"{samples} samples, {len(found)} lines"


def main(argv):
    if argv[0] == "--text":
        found = parse(open(argv[1]).read())
        assert total(found, "weft_runs_total") == int(argv[2]), total(found, "weft_runs_total")
        return
    folder, ranks, runs, timed = argv[0], int(argv[1]), int(argv[2]), argv[3] == "yes"
    for rank in range(ranks):
        check_rank(folder, rank, ranks, runs, timed, int(argv[4]) if len(argv) > 4 else 1)


try:
    main(sys.argv[1:])
except AssertionError as e:
    sys.exit(f"FAILED: {e}")
