"""Of scale_test.sh: four times as many ranks cost each rank about as many messages, bytes, files and connections.

With WEFT_TEST_SHARE=full 1,024 processes beside 64: their CPU time and private memory, too, how soon all know of a death, and sums over all.
"""
import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE_DIR"], "bench"))
import scale  # noqa: E402

FULL = os.environ.get("WEFT_TEST_SHARE") == "full"
FEW, MANY = (64, 1024) if FULL else (32, 128)
FACTOR, MORE = 1.5, 2.0  # as many times, and as many more
BYTES_MORE = 512
MOST_MORE = 16  # of the rank that sends most: repeated messages on a busy machine
TWICE = 2.0  # of CPU time and private memory
KNOWN = {"shm:": 2, "tcp:": 5, "auto:": 5}  # seconds from a death until all know of it
options = argparse.Namespace(build=os.environ["WEFT_BUILD_DIR"], processes=1024 if FULL else 16, timeout=600 if FULL else 120)
failed = 0


def mean(figures, phase, what):
    return sum(one["phases"][phase][what] for one in figures) / len(figures)


def most(figures, phase, what):
    return max(one["phases"][phase][what] for one in figures)


def measure(on, ranks, work, dies):
    figures, threads, wrong, _ = scale.measure(options, on, ranks, work, dies)
    if wrong:
        sys.exit("FAILED: %s %d ranks, %s%s: %s" % (on, ranks, work, ", of which some die" if dies else "", wrong))
    return figures


def compare(on, what, few, many, more, factor=FACTOR):
    global failed
    print("%s %s: %.2f with %d ranks, %.2f with %d" % (on, what, few, FEW, many, MANY))
    if many > factor * few + more:
        print("FAILED: %s %s grows with the number of ranks" % (on, what))
        failed = 1


for on in sys.argv[1:]:
    closed, died = {}, {}
    for ranks in (FEW, MANY):
        for runs, dies in ((closed, False), (died, True)):
            runs[ranks] = measure(on, ranks, "neighbours", dies)
    for runs, phases in ((closed, [p for p in scale.PHASES if p not in ("death", "agree")]), (died, ["death", "agree", "close"])):
        for phase in phases:
            name = phase + (" after a death" if runs is died and phase == "close" else "")
            for what, more in (("sends", MORE), ("bytes", BYTES_MORE)):
                few, many = (mean(runs[r], phase, what) for r in (FEW, MANY))
                compare(on, "%s, %s" % (name, what), few, many, more)
    if on == "tcp:":  # every rank is a host of its own: what one rank does for its host does not count
        for runs, phase in ((closed, "open"), (died, "agree")):
            few, many = (most(runs[r], phase, "sends") for r in (FEW, MANY))
            compare(on, "%s, most sends of a rank" % phase, few, many, MOST_MORE)
    for what in ("files", "connections"):
        few, many = (sum(one[what] for one in closed[r]) / r / max(1, r // options.processes) for r in (FEW, MANY))
        compare(on, what, few, many, MORE)
    if not FULL:
        continue
    few, many = (sum(mean(closed[r], p, "cpu") for p in ("open", "bind", "run", "close")) * 1e3 for r in (FEW, MANY))
    compare(on, "CPU ms", few, many, 0, TWICE)
    few, many = (sum(one["private"] for one in closed[r]) / r / 1024 for r in (FEW, MANY))
    compare(on, "private KiB", few, many, 0, TWICE)
    knew = max(one["knew"] for one in died[MANY])
    print("%s a death among %d ranks is known to all after %.2f s" % (on, MANY, knew))
    failed |= knew > KNOWN[on]
    measure(on, MANY, "all", False)
sys.exit(failed)
