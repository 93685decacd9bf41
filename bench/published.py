#!/usr/bin/env python3
"""Published weight transfers beside what weft's plans would take on the same machines: the table of docs/sim.md.

    python3 bench/published.py [--build build] [--only TEXT] [--check | --write]

Each row simulates the plans of all ranks (weft sim) on a machine of bench/published/, which was written down from what was published.
The bound holds for any plan: every host of the destination has to take in, once, all that its ranks need, through its NICs.
--check compares with the table in docs/sim.md, --write replaces it; the simulation gives the same figures on every machine.
"""
import argparse
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
DOC = os.path.join(HERE, "..", "docs", "sim.md")
BEGIN, END = "<!-- bench/published.py begins -->\n", "<!-- bench/published.py ends -->\n"

# hosts: the destination with one rank for each host, by which the bytes are counted that must enter it.
ROWS = [
    dict(what="DeepSeek-V3 in f8, 128 to 128 GPUs", model="deepseek-v3", dtype="f8e4m3", machine="gb200",
         mesh=("pp4.dp2.ep16", "dp16.tp8"), hosts="dp2", nics=64, published="NCCL M2N: 1447 ms, direct 3838 ms (dtype not told)"),
    dict(what="the same in bf16", model="deepseek-v3", dtype="bf16", machine="gb200",
         mesh=("pp4.dp2.ep16", "dp16.tp8"), hosts="dp2", nics=64, published="the same"),
    dict(what="Qwen3-235B-A22B in bf16, 64 to 64 GPUs", model="qwen3-235b-a22b", dtype="bf16", machine="gb200",
         mesh=("pp4.ep8.tp2", "dp8.tp8"), hosts="dp1", nics=64, published="NCCL M2N: 989 ms, direct 2175 ms"),
    dict(what="Kimi-K2, bf16 to f8, 256 to 128 GPUs, one replica", model="kimi-k2", dtype="bf16:f8e4m3", machine="hopper",
         mesh=("fsdp32.ep8", "ep128"), hosts="ep16", nics=8, published="Perplexity: 1300 ms (replicas not told)"),
    dict(what="the same, four replicas", model="kimi-k2", dtype="bf16:f8e4m3", machine="hopper",
         mesh=("fsdp32.ep8", "dp4.ep32"), hosts="dp4.ep4", nics=8, published="the same"),
]
NIC = 50  # bytes a nanosecond, of all machines above


def sim(options, row, mesh, machine):
    command = [os.path.join(options.build, "weft"), "sim", "--model", row["model"], "--from", mesh[0], "--to", mesh[1],
               "--dtype", row["dtype"], "--machine", machine, "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)


def line(options, row):
    ours = sim(options, row, row["mesh"], os.path.join(HERE, "published", row["machine"] + ".machine"))
    entering = sim(options, row, ("tp1", row["hosts"]), "plain")
    bound = entering["moved"] / (entering["ranks"] - 1) / (row["nics"] * NIC)
    return "| %s | `%s` to `%s` | %s | %.0f ms | %.0f ms | %.2f |\n" % (
        row["what"], row["mesh"][0], row["mesh"][1], row["published"], ours["time_ns"] / 1e6, bound / 1e6, ours["time_ns"] / bound)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=os.path.join(HERE, "..", "build"))
    parser.add_argument("--only", default="", help="rows whose first column has this text")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rows = [r for r in ROWS if options.only in r["what"]]
    head = "| what | parallelism | published | weft, foreseen | bound | times the bound |\n| --- | --- | --- | --- | --- | --- |\n"
    lines = [line(options, r) for r in rows]
    with open(DOC, encoding="utf-8") as f:
        doc = f.read()
    if options.write:
        before, rest = doc.split(BEGIN)
        with open(DOC, "w", encoding="utf-8") as f:
            f.write(before + BEGIN + head + "".join(lines) + END + rest.split(END)[1])
    elif not options.check:
        print(head + "".join(lines), end="")
    missing = [x for x in lines if x not in doc] if options.check else []
    for x in missing:
        print("docs/sim.md has no line (python3 bench/published.py --write):\n" + x, end="")
    return 1 if missing or not lines else 0


if __name__ == "__main__":
    sys.exit(main())
