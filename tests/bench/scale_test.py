"""Of scale_test.sh: four times as many ranks cost each rank about as many messages, bytes, files and connections."""
import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE_DIR"], "bench"))
import scale  # noqa: E402

FEW, MANY = 32, 128
FACTOR, MORE = 1.5, 2.0  # as many times, and as many more
BYTES_MORE = 512
options = argparse.Namespace(build=os.environ["WEFT_BUILD_DIR"], processes=16, timeout=120)
failed = 0


def mean(figures, phase, what):
    return sum(one["phases"][phase][what] for one in figures) / len(figures)


def compare(on, what, few, many, more):
    global failed
    print("%s %s: %.2f with %d ranks, %.2f with %d" % (on, what, few, FEW, many, MANY))
    if many > FACTOR * few + more:
        print("FAILED: %s %s grows with the number of ranks" % (on, what))
        failed = 1


for on in sys.argv[1:]:
    runs = {}
    for ranks in (FEW, MANY):
        figures, threads, wrong, _ = scale.measure(options, on, ranks, "neighbours", False)
        if wrong:
            sys.exit("FAILED: %s %d ranks: %s" % (on, ranks, wrong))
        runs[ranks] = (figures, threads)
        dead, _, wrong, _ = scale.measure(options, on, ranks, "neighbours", True)
        if wrong:
            sys.exit("FAILED: %s %d ranks, of which some die: %s" % (on, ranks, wrong))
    for phase in scale.PHASES:
        for what, more in (("sends", MORE), ("bytes", BYTES_MORE)):
            few, many = (mean(runs[r][0], phase, what) for r in (FEW, MANY))
            compare(on, "%s, %s" % (phase, what), few, many, more)
    for what in ("files", "connections"):
        few, many = (sum(one[what] for one in runs[r][0]) / r / runs[r][1] for r in (FEW, MANY))
        compare(on, what, few, many, MORE)
sys.exit(failed)
