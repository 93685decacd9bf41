"""What an installed wheel must do without anything beside it: `python wheel_check.py`. For cibuildwheel and test_wheel.py."""

import importlib.metadata
import os
import subprocess
import sys
import sysconfig

import numpy as np

import weft


def rank_main(comm):
    rows, columns = weft.layout("f32[64/x,16] @x2"), weft.layout("f32[64,16/x] @x2")
    src, dst = comm.empty(rows), comm.empty(columns)
    src[...] = comm.rank
    with weft.lower(rows, columns).bind(comm, src, dst) as bound:
        bound.run()
    return dst[::32, 0].tolist(), float(comm.allreduce(np.full(3, comm.rank + 1.0))[0])


if __name__ == "__main__":
    assert importlib.metadata.version("libweft") == weft.__version__
    assert weft.spawn(rank_main, 2) == [([0.0, 1.0], 3.0)] * 2
    assert weft.info()["modules"] == [], "the modules for UCX and MPI are not in the wheel"
    cuda = os.path.exists(os.path.join(os.path.dirname(weft.__file__), "weft_cuda.so"))
    why = weft.info()["devices"].get("why") or ""
    assert ("weft_cuda.so" in why) != cuda, why  # where it is missing the text says so; otherwise it speaks of the driver, if there is none
    command = sysconfig.get_path("scripts") + "/weft"
    checked = subprocess.run([command, "check", "f32[64/x] @x4", "f32[64] @x4"], capture_output=True, text=True, check=True)
    print(f"libweft {weft.__version__} on Python {sys.version.split()[0]}: right; {checked.stdout.strip()}{'' if cuda else '; no CUDA module'}")
