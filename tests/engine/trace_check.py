#!/usr/bin/env python3
"""Checks trace files against the trace event format as Perfetto and Chrome document it, and against what weft says of them.

trace_check.py [--merged] [--ranks N] FILE...   prints one line of what it found; exit code 1 and the faults if there are any.
"""

import collections
import json
import sys

PHASES = {"X": {"ts", "dur", "pid", "tid", "name", "cat", "args"}, "M": {"name", "pid", "args"},
          "s": {"ts", "pid", "tid", "name", "cat", "id"}, "f": {"ts", "pid", "tid", "name", "cat", "id", "bp"}}
METADATA = {"process_name": "name", "process_sort_index": "sort_index", "thread_name": "name"}
NAMES = {"run", "wait", "send", "receive", "copy", "reduce", "met", "put", "put_add", "notify", "barrier", "round"}
FACTS = {"exec": {"run", "message", "bytes", "way", "tensor"}, "window": {"message", "bytes", "call"}, "exchange": {"round", "message", "bytes"}}
faults = []


def ns(us):
    return round(us * 1000)


def kind_of(args):
    """What the event is of."""
    return next((k for k in FACTS if k in args), None)


def check_event(e):
    need = PHASES.get(e.get("ph"))
    if need is None:
        faults.append(f"a phase that is not expected: {e}")
        return
    if need - e.keys():
        faults.append(f"{sorted(need - e.keys())} is missing: {e}")
        return
    for key in ("pid", "tid"):
        if key in e and not isinstance(e[key], int):
            faults.append(f"{key} is no number: {e}")
    for key in ("ts", "dur"):
        if key in e and (isinstance(e[key], bool) or not isinstance(e[key], (int, float)) or e[key] < 0):
            faults.append(f"{key} is no time: {e}")
    if e["ph"] == "M" and METADATA.get(e["name"]) not in e["args"]:
        faults.append(f"metadata that is not known: {e}")
    if e["ph"] == "X" and e["name"] not in NAMES:
        faults.append(f"an event that is not in the table of names: {e}")
    if e["ph"] == "f" and e["bp"] != "e":
        faults.append(f"an arrow that does not end in the slice around it: {e}")
    args = e.get("args", {})
    kind = kind_of(args)
    if e.get("ph") == "X" and e["name"] != "met" and kind is None:
        faults.append(f"an event of nothing: {e}")
    if e.get("name") in ("send", "receive") and not FACTS.get(kind, {"?"}) <= args.keys():
        faults.append(f"a message without its facts: {e}")
    if e.get("name") == "wait" and "for" not in args:
        faults.append(f"a wait for nobody knows whom: {e}")


def check_nesting(events):
    """The slices of a track contain each other or do not touch; an arrow begins and ends in a slice."""
    tracks = collections.defaultdict(list)
    for e in events:
        if e["ph"] == "X":
            tracks[e["pid"], e["tid"]].append((ns(e["ts"]), -ns(e["dur"]), e))
    for slices in tracks.values():
        open_until = []
        for begin, length, e in sorted(slices, key=lambda s: s[:2]):
            while open_until and open_until[-1][0] <= begin:
                open_until.pop()
            if open_until and begin - length > open_until[-1][0]:
                faults.append(f"two slices of a track cross: {open_until[-1][1]} and {e}")
            open_until.append((begin - length, e))
            whole = {"exec": "run", "exchange": "round"}.get(kind_of(e["args"]))
            runs = [o for _, o in open_until if o["name"] == whole]
            if whole and e["name"] != whole and (not runs or runs[0]["args"][whole] != e["args"][whole]):
                faults.append(f"an event outside of its {whole}: {e}")
    for e in events:
        if e["ph"] not in "sf":
            continue
        at, name = ns(e["ts"]), {"message": ("send", "receive"), "signal": ("notify", "wait")}[e["name"]][e["ph"] == "f"]
        if not any(b <= at <= b - n and x["name"] == name for b, n, x in tracks[e["pid"], e["tid"]]):
            faults.append(f"an arrow without its message: {e}")


def check_signals(events):
    """A wait that a notify ended began nowhere else; nobody need wait for a notify."""
    begins = {e["id"]: e["ts"] for e in events if e["ph"] == "s"}
    ends = [e for e in events if e["ph"] == "f"]
    for e in ends:
        if e["id"] not in begins or begins[e["id"]] > e["ts"]:
            faults.append(f"a signal that nobody notified, or too late: {e}")
    return len(ends)


def check_arrows(events, backwards):
    begins = collections.Counter(e["id"] for e in events if e["ph"] == "s")
    ends = collections.Counter(e["id"] for e in events if e["ph"] == "f")
    if begins != ends:
        faults.append(f"{len(begins - ends)} arrows do not end, {len(ends - begins)} do not begin")
    if any(n > 1 for n in begins.values()):
        faults.append("two arrows have one number")
    at = {e["id"]: e for e in events if e["ph"] == "s"}
    back = [e for e in events if e["ph"] == "f" and e["id"] in at and e["ts"] < at[e["id"]]["ts"]]
    if len(back) > backwards:
        faults.append(f"{len(back)} arrows end before they begin: {back[0]}")
    sends = {}
    for e in events:
        if e["ph"] == "X" and e["name"] in ("send", "receive"):
            a, peer = e["args"], "to" if e["name"] == "send" else "from"
            pair = (e["pid"], a["to"]) if peer == "to" else (a["from"], e["pid"])
            kind = kind_of(a)
            key = (kind, a[kind], a.get("run", a.get("round", 0)), *pair, a["message"])
            sends.setdefault(key, {}).setdefault(e["name"], a)
    for key, both in sends.items():
        if set(both) != {"send", "receive"} or both["send"]["bytes"] != both["receive"]["bytes"]:
            faults.append(f"the two ends of a message do not fit: {key}: {both}")
    return len(begins)


def main(argv):
    merged, ranks, files, events, dropped = "--merged" in argv, 0, [], [], 0
    words = iter(a for a in argv if a != "--merged")
    for word in words:
        if word == "--ranks":
            ranks = int(next(words))
        else:
            files.append(word)
    for path in files:
        with open(path, encoding="utf-8") as f:
            trace = json.load(f)
        other = trace["otherData"]
        if trace["displayTimeUnit"] not in ("ms", "ns") or other["weft_trace"] != 1:
            faults.append(f"{path}: no trace of weft")
        mine = trace["traceEvents"]
        for e in mine:
            check_event(e)
        dropped += other["dropped"]
        if not merged and any(e["pid"] != other["rank"] for e in mine):
            faults.append(f"{path}: events of another rank")
        if merged and [e["ts"] for e in mine if "ts" in e] != sorted(e["ts"] for e in mine if "ts" in e):
            faults.append(f"{path}: the events do not ascend")
        events += mine
    if not faults:
        check_nesting(events)
    signals = [e for e in events if e["ph"] in "sf" and e["name"] == "signal"]
    events = [e for e in events if e["ph"] not in "sf" or e["name"] != "signal"]
    arrows = check_arrows(events, 0) if not faults and not dropped else 0
    ended = check_signals(signals) if not faults and not dropped else 0
    if ranks and {e["pid"] for e in events} != set(range(ranks)):
        faults.append(f"not all of {ranks} ranks are here")
    names = collections.Counter(e["name"] for e in events if e["ph"] == "X")
    print(f"{len(files)} files, {arrows} arrows, {ended} signals, dropped {dropped},", ", ".join(f"{k} {v}" for k, v in sorted(names.items())))
    for fault in faults[:10]:
        print("FAULT:", fault)
    return 1 if faults else 0


sys.exit(main(sys.argv[1:]))
