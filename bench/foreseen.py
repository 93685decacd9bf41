#!/usr/bin/env python3
"""Moves that weft sim has foreseen, beside the same moves measured: on this machine, and on hosts that weft run plays on it.

    python3 bench/foreseen.py [--build build] [--cases 40] [--seed 1] [--limit-seconds S] [--json FILE] [--one-host]

The machine is measured in each of the first rounds, and of each figure the median counts: weft sim --calibrate, alone and between
played hosts whose links are limited, an exchange of eight bytes between two of these, and messages of 64 KiB and of 1 MiB that eight of
them all give each other on slow links. Cases are drawn by the seed and the number of cores alone, whatever else was measured: reshards,
collectives, halos, many tensors and fan-outs, a quarter of them on one host, the others on 2 to 8 played hosts. tc limits the links of
these, each direction, to a rate that is drawn, too; weft sim is told what such a link carries of data.

All ranks begin a run at the same time, and it lasts until the last one is done. A case is measured in five repeats of several runs; the
run that a quarter of them does not exceed is the repeat's time. Repeats go in rounds: each is a job of its own, and all other cases are
measured before the next repeat of one. So repeats differ by all that jobs differ by: which pages and which cores they got, and what the
neighbours of a virtual machine do at the time. If the repeats of a case differ by more than 10 %, another one of the same kind takes its
place, before either is compared. It needs the right to make network namespaces, and a machine that does little else.

--json FILE keeps the machine and each repeat as soon as it is done. Another call with the same file, seed and build goes on behind them, on
the machine as it was measured then: 40 cases can be measured in several turns. The file of another build is refused. With --one-host all
cases are on one host, which takes neither that right nor tc.
"""
import argparse
import hashlib
import itertools
import json
import math
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time

KINDS = ["reshard", "collective", "halo", "many", "fan-out"]
CALIBRATIONS = 3
REPEATS = 5
SPREAD = 0.10
MEASURED_S = 0.15  # that a repeat lasts, but for at least 5 runs and at most 40
# Of an Ethernet frame of 1514 bytes, TCP with time stamps leaves this to the data.
CARRIED = 1448 / 1514
# Bytes that a link lets pass at once. tc cuts what is larger into frames, and a frame that waits needs a timer: both cost the cores several
# times as much as the message itself. So what cores can move is measured on links that are limited like all others, to the highest of the
# rates: there the cores are the bound.
BURST = 16384
RATES = [300, 500, 800, 1200]  # Mbit/s
SLOW = 100  # Mbit/s: links are the bound then, and not the cores
CROWDED = ["nic_crowd", "nic_crowd_long"]
CROWD = 8  # played hosts that are measured together
# ms that a case may be foreseen to take on the machine below: a link lets a first burst pass at once, which must not matter.
SHORTEST = {True: 10, False: 0.5}
LONGEST = 150
# A machine on which cases are tried for size, so that they are the same whatever was measured. If they are on one host, it has as many
# cores as that, and a case as many bytes as these need to be busy for as long.
TRIED_ON = {"cores": "2", "copy": "12 GB/s", "copy_host": "20 GB/s", "inside_latency": "2000 ns", "message": "1000 ns", "nic": "0 GB/s",
            "nic_latency": "300000 ns", "nic_core": "0.6 GB/s"}


def tried_on(case, cores):
    return TRIED_ON if case["hosts"] > 1 else dict(TRIED_ON, cores=str(cores), copy_host="%d GB/s" % (10 * cores))


class Failed(Exception):
    pass


# ---- the machine ----

def text_of(machine):
    return "".join("%s %s\n" % x for x in machine.items())


def keys_of(text):
    lines = [line for line in text.splitlines() if line and line[0] != "#"]
    machine = dict(line.split(None, 1) for line in lines)
    machine = {key: value for key, value in machine.items() if not key.startswith("cached")}
    # These come several times: each size counts as a part of the name.
    return dict(machine, **dict((" ".join(x[:3]), " ".join(x[3:])) for x in map(str.split, lines) if x[0].startswith("cached")))


def medians(machines):
    """A machine each of whose numbers is the median of theirs."""
    def median(values):
        return " ".join(same[0] if not same[0][0].isdigit() else "%g" % statistics.median(float(x) for x in same)
                        for same in zip(*(value.split() for value in values)))
    return {key: median([machine[key] for machine in machines]) for key in machines[0] if all(key in x for x in machines)}


def calibrate_crowd(options):
    """The same, measured between played hosts. Rank 0 waits until their links are limited."""
    waits = 'if [ "$WEFT_RANK" = 0 ]; then echo ready; read -r go; fi; exec "$0" sim --calibrate'
    with subprocess.Popen([options.weft, "run", "-n", str(CROWD), "--hosts", str(CROWD), "--", "sh", "-c", waits, options.weft],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        try:
            if job.stdout.readline() != "ready\n":
                raise Failed("no ranks on played hosts: " + job.stderr.read()[-400:])
            limit(job.pid, CROWD, max(RATES))
            out, said = job.communicate("go\n", timeout=options.timeout)
        except BaseException:
            job.terminate()
            raise
    if job.returncode:
        raise Failed("calibration: " + said[-400:])
    return keys_of(out)


def calibrate(options, folder):
    """The keys of the machine file, with their units: GB/s and ns."""
    machine = keys_of(subprocess.run([options.weft, "sim", "--calibrate"], check=True, capture_output=True, text=True).stdout)
    machine["nic"] = "0 GB/s"
    if options.one_host:
        return machine
    played = calibrate_crowd(options)
    machine.update((key, played[key]) for key in ("nic_core", "nic_path", "nic_message"))

    def best(case):  # of several rounds, as weft sim --calibrate does
        took = measure(options, folder, case, machine, 80)
        return min(statistics.median(took[i:i + 8]) for i in range(0, 80, 8))

    small = dict(hosts=2, ranks=2, mbit=0, table=["t: u8[16/x] @x2 -> u8[16] @x2"])
    message = float(machine["nic_message"].split()[0])
    machine["nic_latency"] = "%.0f ns" % max(0, best(small) - 2 * message)  # a rank sends one message, and gets one
    for key, size, runs in (("nic_crowd", 1 << 16, 15), ("nic_crowd_long", 1 << 20, 5)):
        shape = (CROWD, CROWD * size, CROWD)
        pair = "t: u8[%d/x,%d] @x%d -> u8[%d,%d/x] @x%d" % (2 * shape)
        crowd = dict(hosts=CROWD, ranks=CROWD, mbit=SLOW, table=[pair])
        slow = machine_for({k: x for k, x in machine.items() if k not in CROWDED}, crowd)
        took = statistics.median(measure(options, folder, crowd, slow, runs))
        # A share of nic, which cases differ in.
        machine[key] = "%.3f" % min(1, foresee(options, folder, crowd, slow)["time_ns"] / took)
    return machine


def machine_for(machine, case):
    m = dict(machine, ranks_per_host=str(case["ranks"] // case["hosts"] if case["hosts"] > 1 else 0))
    m["hosts_on_cores"] = str(case["hosts"])
    if case["mbit"]:
        m["nic"] = "%.6f GB/s" % (case["mbit"] / 8e3 * CARRIED)
    for key in CROWDED:
        share = float(m.pop(key, "0").split()[0])
        if case["mbit"]:
            m[key] = "%.6f GB/s" % (case["mbit"] / 8e3 * CARRIED * share)
    return m


# ---- one case, measured and foreseen ----

def limit(pid, hosts, mbit):
    """Limits the links of the played hosts of `weft run` with this pid: what leaves a host, and what the hub gives it."""
    for h in range(hosts):
        for where, link in (("weft-%d-%d" % (pid, h), "eth0"), ("weft-%d-hub" % pid, "p%d" % h)):
            subprocess.run(["tc", "-n", where, "qdisc", "add", "dev", link, "root", "tbf", "rate", "%dmbit" % mbit, "burst", str(BURST),
                            "limit", "67108864"], check=True)


def figures(case, machine):
    """What bench/foreseen.c lowers for: as weft sim does, in ns and bytes a microsecond."""
    def number(key):
        return float(machine[key].split()[0]) if key in machine else 0

    def rate(key, without):
        return int(number(key) * 1e3) or without

    def core():  # each end has half of the path
        each = sum(part / number(key) for key, part in (("nic_core", 1), ("nic_path", 0.5)) if number(key))
        return int(1e3 / each) if each else 0

    def ns(key):
        return max(1, int(number(key)))

    cores = -(-int(machine["cores"]) // case["hosts"])
    return [case["ranks"] // case["hosts"] if case["hosts"] > 1 else 0, ns("nic_latency"), rate("nic", 1 << 40), ns("inside_latency"),
            rate("copy", 1 << 40), rate("copy_host", 0), core(), ns("message"), cores]


def measure(options, folder, case, machine, runs):
    """The nanoseconds of each run; the first two are left out."""
    runs, ranks = runs + 2, case["ranks"]
    times, table = os.path.join(folder, "times"), os.path.join(folder, "table")
    with open(times, "wb") as f:
        f.truncate(runs * (1 + ranks) * 8)
    with open(table, "w", encoding="utf-8") as f:
        f.write("\n".join(case["table"]) + "\n")
    command = [options.weft, "run", "-n", str(ranks)] + (["--hosts", str(case["hosts"])] if case["hosts"] > 1 else [])
    command += ["--", os.path.join(options.build, "bench", "foreseen"), times, table, str(runs)] + [str(x) for x in figures(case, machine)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        try:
            if job.stdout.readline() != "ready\n":
                raise Failed("no ranks: " + job.stderr.read()[-400:])
            if case["mbit"]:
                limit(job.pid, case["hosts"], case["mbit"])
            said = job.communicate("go\n", timeout=options.timeout)[1]
        except BaseException:
            job.terminate()
            raise
    if job.returncode:
        raise Failed("%s: %s" % (case["name"] if "name" in case else "calibration", said[-400:]))
    with open(times, "rb") as f:
        all_times = struct.unpack("<%dq" % (runs * (1 + ranks)), f.read())
    rows = [all_times[i * (1 + ranks):(i + 1) * (1 + ranks)] for i in range(runs)]
    return [max(row[1:]) - row[0] for row in rows[2:]]


def foresee(options, folder, case, machine):
    file, table = os.path.join(folder, "machine"), os.path.join(folder, "table")
    with open(file, "w", encoding="utf-8") as f:
        f.write(text_of(machine_for(machine, case)))
    with open(table, "w", encoding="utf-8") as f:
        f.write("\n".join(case["table"]) + "\n")
    return json.loads(subprocess.run([options.weft, "sim", "--table", table, "--apart", "--machine", file, "--json"], check=True,
                                     stdout=subprocess.PIPE).stdout)


# ---- cases ----

def one_tensor(rnd, kind, ranks, size):
    """A pair of layouts for about `size` bytes in all."""
    n, dtype, width = ranks, *rnd.choice([("f32", 4), ("bf16", 2)])
    columns = n * rnd.choice([64, 128, 192, 256])
    rows = max(1, size // (columns * width * n)) * n
    shape = dict(r=rows, c=columns, n=n, t=dtype, e=rows * columns)
    if kind == "collective":
        pair = rnd.choice(["%(t)s[%(e)d/x] @x%(n)d -> %(t)s[%(e)d] @x%(n)d", "%(t)s[%(e)d] @x%(n)d +sum(x) -> %(t)s[%(e)d] @x%(n)d",
                           "%(t)s[%(e)d] @x%(n)d +sum(x) -> %(t)s[%(e)d/x] @x%(n)d", "%(t)s[%(r)d/x,%(c)d] @x%(n)d -> %(t)s[%(r)d,%(c)d/x] @x%(n)d"])
        shape["e"] = shape["e"] // n // n * n if "%(e)d] " in pair else shape["e"]
    elif kind == "halo":
        shape["w"] = rnd.randint(1, max(1, rows // n // 3))
        pair = rnd.choice(["%(t)s[%(r)d/x,%(c)d] @x%(n)d -> %(t)s[%(r)d/x~%(w)d,%(c)d] @x%(n)d",
                           "%(t)s[%(r)d/x,%(c)d] @x%(n)d -> %(t)s[%(r)d/x~%(w)do,%(c)d] @x%(n)d"])
    elif kind == "fan-out":
        shape["e"] //= n
        pair = rnd.choice(["%(t)s[%(e)d] @x1 -> %(t)s[%(e)d] @x%(n)d", "%(t)s[%(r)d,%(c)d] @x1 -> %(t)s[%(r)d/x,%(c)d] @x%(n)d",
                           "%(t)s[%(r)d,%(c)d] @x1 -> %(t)s[%(r)d,%(c)d/x] @x%(n)d"])
    else:
        half = n // 2
        shape.update(h=half, k=n - half, last=n - 1, other=rnd.choice(["f32", "bf16", dtype]))
        pair = rnd.choice(["%(t)s[%(r)d/x,%(c)d] @x%(h)d -> %(t)s[%(r)d,%(c)d/x] @x%(k)d=%(h)d..%(last)d",
                           "%(t)s[%(r)d/x,%(c)d] @x%(n)d -> %(t)s[%(r)d,%(c)d/x] @x%(n)d",
                           "%(t)s[%(r)d/x,%(c)d] @x%(n)d -> %(other)s[%(r)d,%(c)d/x] @x%(n)d",
                           "%(t)s[%(r)d/x,%(c)d] @x%(h)d -> %(t)s[%(r)d/x,%(c)d] @x%(k)d=%(h)d..%(last)d"])
    return pair % shape


def draw(rnd, kind, played, cores):
    if played:
        hosts = rnd.randint(2, 8)
        ranks = hosts * (rnd.randint(1, 2) if hosts <= 4 else 1)
        mbit = rnd.choice(RATES)
    else:
        hosts, ranks, mbit = 1, rnd.randint(2, 2 * cores), 0
    size = int(math.exp(rnd.uniform(math.log(1 << 20), math.log(64 << 20))) * (1 if played else max(1, cores / 2)))
    many = rnd.randint(10, 200) if kind == "many" else 1
    pairs = [one_tensor(rnd, "reshard" if kind == "many" else kind, ranks, max(4096, int(size / many * rnd.uniform(0.3, 1.7))))
             for _ in range(many)]
    if many > 1:  # a model's tensors have few layouts
        pairs = [rnd.choice(pairs[:7]) for _ in pairs]
    name = "%s, %s on %s%s" % (kind, pairs[0] if many == 1 else "%d tensors" % many,
                               "one host" if hosts == 1 else "%d ranks of %d hosts" % (ranks, hosts), ", %d Mbit/s" % mbit if mbit else "")
    return dict(kind=kind, hosts=hosts, ranks=ranks, mbit=mbit, name=name, table=["t%d: %s" % x for x in enumerate(pairs)])


def fits(case, tried, played):
    """Does it take neither too short nor too long, and use as many ranks as it has? tried: what is foreseen on tried_on."""
    return tried["ranks"] == case["ranks"] and SHORTEST[played] <= tried["time_ns"] / 1e6 <= LONGEST


def drawn(seed, number, cores, foreseen_on, one_host=False):
    """The cases for place `number`, one after the other: the next one replaces one whose repeats differ. foreseen_on(case): the
    simulation on tried_on."""
    rnd, kind = random.Random("%d/%d" % (seed, number)), KINDS[number % len(KINDS)]
    played = number % 4 != 3 and not one_host
    for _ in range(1000):
        case = draw(rnd, kind, played, cores)
        if fits(case, foreseen_on(case), played):
            yield case
    raise Failed("no %s of a fitting size was found" % kind)


def repeat(options, folder, case, machine):
    """The time of a repeat: runs of one job, in a row."""
    runs = max(5, min(40, int(MEASURED_S / (case["foreseen"]["time_ns"] / 1e9))))
    return sorted(measure(options, folder, case, machine_for(machine, case), runs))[runs // 4]


def keep(options, kept):
    """Writes all that is known so far, so that the file is always whole."""
    if not options.json:
        return
    with open(options.json + ".new", "w", encoding="utf-8") as f:
        json.dump(kept, f, indent=1)
    os.replace(options.json + ".new", options.json)


def build_of(options):
    """Which build this is: a digest of what foresees and measures. The library is a part of each program."""
    digest = hashlib.sha256()
    for name in options.weft, *(os.path.join(options.build, x) for x in ("weft_sim.so", "bench/foreseen")):
        if os.path.exists(name):  # tests have no bench
            with open(name, "rb") as f:
                digest.update(f.read())
    return digest.hexdigest()


def begin(options, folder):
    """What earlier calls have kept, or the machine, measured, and no cases."""
    if options.json and os.path.exists(options.json):
        with open(options.json, encoding="utf-8") as f:
            kept = json.load(f)
        if kept["seed"] != options.seed:
            raise Failed("%s has the cases of seed %d: name another file" % (options.json, kept["seed"]))
        if kept.get("build") != build_of(options):
            raise Failed("%s has the cases of another build: name another file" % options.json)
        if kept.get("one_host", False) != options.one_host:
            raise Failed("%s has cases of %s: name another file" % (options.json, "played hosts, too" if options.one_host else "one host alone"))
        return kept
    kept = dict(seed=options.seed, one_host=options.one_host, build=build_of(options), machines=[calibrate(options, folder)], cases=[], replaced=[],
                tried=[])
    keep(options, kept)
    return kept


def next_case(options, folder, kept, place):
    """The first case of a place behind those that were tried."""
    machine = kept["machines"][0]
    cores = max(1, int(machine["cores"]))
    candidates = drawn(options.seed, place, cores, lambda case: foresee(options, folder, case, tried_on(case, cores)), options.one_host)
    case = next(itertools.islice(candidates, kept["tried"][place], None))
    kept["tried"][place] += 1
    return dict(case, foreseen=foresee(options, folder, case, machine), repeats_ns=[])


def measure_place(options, folder, kept, place):
    """Another repeat of the case of a place. If its repeats differ, the case is dropped, and the next round begins another one."""
    case = kept["cases"][place] or next_case(options, folder, kept, place)
    case["repeats_ns"].append(repeat(options, folder, case, kept["machines"][0]))
    spread = max(case["repeats_ns"]) / min(case["repeats_ns"]) - 1
    kept["cases"][place] = case if spread <= SPREAD else None
    if spread > SPREAD:
        kept["replaced"].append(case["name"])
        print("replaced: its repeats differ by %.0f %%: %s" % (spread * 100, case["name"]), flush=True)
    keep(options, kept)


def measured(kept, place):
    case = kept["cases"][place]
    return case and len(case["repeats_ns"]) >= REPEATS


def measure_all(options, folder, kept):
    """The rounds. The first calibration says how plans are lowered."""
    end = time.time() + options.limit_seconds
    kept["cases"] += [None] * (options.cases - len(kept["cases"]))
    kept["tried"] += [0] * (options.cases - len(kept["tried"]))
    places = range(options.cases)
    while time.time() < end and not all(measured(kept, place) for place in places):
        for place in places:
            if time.time() < end and not measured(kept, place):
                measure_place(options, folder, kept, place)
        if len(kept["machines"]) < CALIBRATIONS:
            kept["machines"].append(calibrate(options, folder))
            keep(options, kept)
    return [kept["cases"][place] for place in places if measured(kept, place)]


def compare(options, folder):
    kept = begin(options, folder)
    cases = measure_all(options, folder, kept)
    machine = medians(kept["machines"])
    print("# measured in %d rounds, for all cases:\n" % len(kept["machines"]), end="")
    print("".join("# " + x + "\n" for x in text_of(machine).splitlines()), end="", flush=True)
    for case in cases:
        case["foreseen"] = foresee(options, folder, case, machine)
        case["measured_ns"] = statistics.median(case["repeats_ns"])
        case["error"] = case["foreseen"]["time_ns"] / case["measured_ns"] - 1
        print("%+6.1f %%  measured %8.3f ms  foreseen %8.3f ms  %s (%s)" % (
            case["error"] * 100, case["measured_ns"] / 1e6, case["foreseen"]["time_ns"] / 1e6, case["name"],
            case["foreseen"]["algorithm"]), flush=True)
    keep(options, kept)
    return cases, kept["replaced"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build"))
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit-seconds", type=float, default=1e9, help="no further repeat is begun after this")
    parser.add_argument("--timeout", type=float, default=120, help="seconds that one case may take")
    parser.add_argument("--json", metavar="FILE", help="keep everything in FILE, and go on behind what is there")
    parser.add_argument("--one-host", action="store_true", help="all cases on one host; this needs no network namespaces")
    options = parser.parse_args()
    options.weft = os.path.join(options.build, "weft")
    try:
        with tempfile.TemporaryDirectory(prefix="foreseen-") as folder:
            cases, replaced = compare(options, folder)
    except (Failed, OSError, subprocess.SubprocessError) as e:
        print("foreseen: %s%s" % (e, "" if options.one_host else " (--one-host needs neither namespaces nor tc)"), file=sys.stderr)
        return 1
    errors = sorted(abs(c["error"]) for c in cases)
    if errors:
        print("%d cases%s, %d replaced: median error %.1f %%, worst %.1f %%" % (
            len(errors), ", all on one host" if options.one_host else "", len(replaced), statistics.median(errors) * 100, errors[-1] * 100))
    return 0 if errors else 1


if __name__ == "__main__":
    sys.exit(main())
