#!/usr/bin/env python3
"""Times examples/11_jacobi.c beside examples/jacobi_mpi.c on each MPI that is there, in turns, and prints medians in
microseconds a step. bench/jacobi.py [--build DIR] [--ranks 2,4] [--sizes 64,256,1024] [--turns 9]"""

import argparse
import os
import re
import shutil
import statistics
import subprocess


def run(command):
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    found = re.search(r"sum (\S+), (\S+) us a step", done.stdout)
    if done.returncode or not found:
        raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return found[1], float(found[2])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--sizes", default="64,256,1024")
    parser.add_argument("--turns", type=int, default=9)
    args = parser.parse_args()
    build = args.build
    print("| points | ranks | weft, us a step | Open MPI | MPICH | the better MPI over weft |\n| --- | --- | --- | --- | --- | --- |")
    for size in args.sizes.split(","):
        for ranks in args.ranks.split(","):
            steps = str(max(100, 20_000_000 // int(size) ** 2 // 10))
            programs = {"weft": [f"{build}/weft", "run", "--bind", "-n", ranks, f"{build}/examples/11_jacobi"]}
            for name, launcher in (("openmpi", ["mpirun.openmpi", "--oversubscribe"]), ("mpich", ["mpiexec.hydra"])):
                program = f"{build}/examples/jacobi_{name}"
                if shutil.which(launcher[0]) and os.path.exists(program):
                    programs[name] = [*launcher, "-n", ranks, program]
            times, sums = {name: [] for name in programs}, set()
            for _ in range(args.turns):
                for name, command in programs.items():
                    total, us = run([*command, size, steps])
                    sums.add(f"{float(total):.6e}")  # ranks add their parts in another order
                    times[name].append(us)
            if len(sums) != 1:
                raise SystemExit(f"the sums differ: {sums}")
            median = {name: statistics.median(t) for name, t in times.items()}
            peers = [f"{median[p]:.2f}" if p in median else "" for p in ("openmpi", "mpich")]
            best = min((t for p, t in median.items() if p != "weft"), default=float("nan"))
            print(f"| {size} x {size} | {ranks} | {median['weft']:.2f} | {peers[0]} | {peers[1]} | {best / median['weft']:.2f} |", flush=True)


if __name__ == "__main__":
    main()
