"""Of foreseen_test.sh."""
import argparse
import contextlib
import itertools
import os
import random
import sys
import unittest.mock

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE_DIR"], "bench"))
import foreseen  # noqa: E402

folder = sys.argv[1]
options = argparse.Namespace(weft=os.environ["WEFT_BIN"])


def check(good, text):
    if not good:
        sys.exit("FAILED: " + text)


def names(seed, number, n, cores=2):
    every = foreseen.drawn(seed, number, cores, lambda case: dict(ranks=case["ranks"], time_ns=20e6))
    return [case["name"] + case["table"][-1] for case in itertools.islice(every, n)]


# The seed and the place say which case it is and which one replaces it; other seeds and places have others.
for number in range(10):
    check(names(1, number, 4) == names(1, number, 4), "the same seed draws other cases")
    check(names(1, number, 4)[0] == names(1, number, 1)[0], "a case depends on how many are drawn")
    check(names(1, number, 2) != names(2, number, 2), "two seeds draw the same")
    check(len(set(names(1, number, 4))) > 1, "a case is replaced by itself")
check(names(1, 0, 1) != names(1, 5, 1), "two places of one kind have the same case")

# Kinds, hosts and ranks are those that are asked for.
rnd = random.Random(7)
for number in range(200):
    kind, played = foreseen.KINDS[number % 5], number % 4 != 3
    case = foreseen.draw(rnd, kind, played, 2)
    check(case["kind"] == kind and (case["hosts"] > 1) == played and case["ranks"] % case["hosts"] == 0, str(case))
    check((case["mbit"] > 0) == played and len(case["table"]) >= (10 if kind == "many" else 1), str(case))

# A case that is too short, too long, or has ranks with nothing to do is not taken.
case = dict(ranks=4)
for ranks, ms, played, good in ((4, 20, True, True), (3, 20, True, False), (4, 5, True, False), (4, 5, False, True), (4, 0.1, False, False),
                                (4, 200, True, False), (4, 200, False, False)):
    check(foreseen.fits(case, dict(ranks=ranks, time_ns=ms * 1e6), played) == good, "fits: %d ranks, %g ms" % (ranks, ms))

# The machine of a case.
machine = dict(foreseen.TRIED_ON)
one = foreseen.machine_for(machine, dict(hosts=1, ranks=4, mbit=0))
two = foreseen.machine_for(machine, dict(hosts=2, ranks=4, mbit=800))
check(one["ranks_per_host"] == "0" and one["hosts_on_cores"] == "1" and one["nic"] == "0 GB/s", str(one))
check(two["ranks_per_host"] == "2" and two["hosts_on_cores"] == "2", str(two))
check(abs(float(two["nic"].split()[0]) - 0.1 * 1448 / 1514) < 1e-6, str(two))
check(machine == foreseen.TRIED_ON, "the machine was changed")

# Of several calibrations each number's median counts.
several = [dict(copy="%d GB/s" % x, inside="memory") | {"cached 4096 B": "%d GB/s %d GB/s" % (x, 9 - x)} for x in (3, 1, 2)]
check(foreseen.medians(several) == {"copy": "2 GB/s", "inside": "memory", "cached 4096 B": "2 GB/s 7 GB/s"}, str(foreseen.medians(several)))

# Repeats go in rounds: the cases take turns. One whose repeats differ gives its place to the next one, and has all repeats anew.
turns = []


def measured_time(_options, _folder, case, _machine):
    turns.append(case["name"])
    return 1e6 * (1.2 if case["name"] == "0/0" and turns.count("0/0") == 3 else 1)


bench = argparse.Namespace(weft=options.weft, json=None, seed=3, one_host=False, cases=2, limit_seconds=1e9)
with unittest.mock.patch.multiple(
        foreseen, repeat=measured_time, foresee=lambda *_: dict(ranks=2, time_ns=1.5e6, algorithm="direct"),
        drawn=lambda _seed, place, *_: (dict(name="%d/%d" % (place, i), hosts=1) for i in itertools.count()),
        calibrate=lambda *_: turns.append("calibrated") or dict(cores="2"),
        begin=lambda *_: dict(machines=[dict(cores="2")], cases=[], replaced=[], tried=[])):
    with contextlib.redirect_stdout(None):
        cases, replaced = foreseen.compare(bench, folder)
check(turns == ["0/0", "1/0", "calibrated"] * 2 + ["0/0", "1/0"] + ["0/1", "1/0"] * 2 + ["0/1"] * 3, str(turns))
check(replaced == ["0/0"] and [case["name"] for case in cases] == ["0/1", "1/0"] and cases[0]["error"] == 0.5, str(cases))

# A file of another seed or build is refused; one of the same is gone on with.
file = os.path.join(folder, "kept.json")
bench = argparse.Namespace(weft=options.weft, build=os.path.dirname(options.weft), json=file, seed=3, one_host=False)
whole = dict(seed=3, build=foreseen.build_of(bench), machines=[machine], cases=[None], replaced=[], tried=[2])
for change, good in (dict(), True), (dict(seed=4), False), (dict(build="0" * 64), False):
    foreseen.keep(bench, dict(whole, **change))
    try:
        check(foreseen.begin(bench, folder) == whole and good, "a file with %s is gone on with" % change)
    except foreseen.Failed as e:
        check(not good and file in str(e), str(e))

# weft lowers and foresees what is drawn, of each kind.
for number in range(5):
    case = next(foreseen.drawn(3, number, 2, lambda c: foreseen.foresee(options, folder, c, foreseen.TRIED_ON)))
    said = foreseen.foresee(options, folder, case, machine)
    check(said["ranks"] == case["ranks"] and said["tensors"] == len(case["table"]) and said["time_ns"] > 0, str(said))
    check(said["hosts"] == (case["hosts"] if case["hosts"] > 1 else 1), str(said))
