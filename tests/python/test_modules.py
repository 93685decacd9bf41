"""Transports between machines from Python, by the modules that come with the package: UCX, and both MPIs under their launchers."""

import importlib.util
import os
import shutil
import subprocess
import sys

import pytest

import weft

RANK = """
import sys
import numpy as np
import weft
from numpy.testing import assert_array_equal

url, options = sys.argv[1], {}
if len(sys.argv) > 2 and sys.argv[2] == "mpi4py":
    from mpi4py import MPI
    options["communicator"] = MPI.COMM_WORLD.Split(0, -MPI.COMM_WORLD.rank)  # backwards
elif len(sys.argv) > 2:
    options["rank"], options["ranks"] = map(int, sys.argv[2:])
with weft.open(url or None, **options) as comm:
    n, me = comm.size, comm.rank
    if "communicator" in options:
        assert me == options["communicator"].rank == n - 1 - MPI.COMM_WORLD.rank
    assert_array_equal(comm.allreduce(np.full(1000, me + 1.0)), n * (n + 1) / 2)
    assert_array_equal(comm.allreduce(np.full(300_000, me + 1.0)), n * (n + 1) / 2)
    plan = weft.lower(f"i32[{4 * n}/x,512] @x{n}", f"i32[{4 * n},512/x] @x{n}")
    src, dst = (comm.empty(which) for which in plan.moves[0][1:])
    src[...] = me
    plan.bind(comm, src, dst).run()
    assert_array_equal(dst[:, 0], np.repeat(np.arange(n), 4))
    comm.barrier()
print("right")
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "rank.py"
    path.write_text(RANK)
    return str(path)


def need(module):
    if module not in weft.info()["modules"]:
        pytest.skip(f"this build has no module {module}: its library was not there when the package was built")


def two(tmp_path, url, hosts, *command, **env):
    """Two processes, as if each were started on its machine: their exit codes, and what they said."""
    os.mkdir(tmp_path / "meet")
    base = {**os.environ, "WEFT_AT": f"file:{tmp_path}/meet", **env}
    base.pop("WEFT_MODULES", None)
    ranks = [
        subprocess.Popen(
            [sys.executable, *command, url, str(r), "2"],
            env={**base, "WEFT_HOST": hosts[r]},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for r in range(2)
    ]
    said = [rank.communicate(timeout=120)[0] for rank in ranks]
    return [rank.returncode for rank in ranks], said


def test_ucx(script, tmp_path):
    need("ucx:")
    assert two(tmp_path, "ucx:python", "aa", script) == ([0, 0], ["right\n"] * 2)


@pytest.mark.parametrize("hosts", ["aa", "ab"])
def test_auto(script, tmp_path, hosts):
    need("ucx:")
    assert two(tmp_path, "auto:python", hosts, script) == ([0, 0], ["right\n"] * 2)


def mpirun(name, n, *command):
    launcher = shutil.which({"openmpi": "mpirun.openmpi", "mpich": "mpiexec.hydra"}[name])
    if launcher is None:
        pytest.skip(f"there is no launcher of {name}")
    env = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
    env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1")
    env.update(OMPI_MCA_mpi_yield_when_idle="1", OMPI_MCA_btl="self,vader", OMPI_MCA_oob_tcp_if_include="lo")
    done = subprocess.run([launcher, "-n", str(n), *command], env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and done.stdout.count("right") == n, done.stdout + done.stderr


@pytest.mark.parametrize("url", ["mpi:", ""], ids=["mpi", "the job"])
@pytest.mark.parametrize("name", ["openmpi", "mpich"])
def test_mpi(script, name, url):
    need(f"mpi:{name}")
    mpirun(name, 3, sys.executable, script, url)


def test_communicator_of_mpi4py(script):
    need("mpi:openmpi")
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed: no communicator of its is tried")
    mpirun("openmpi", 2, sys.executable, script, "mpi:", "mpi4py")


def test_module_that_is_not_there(tmp_path):
    """The text says what is missing, where it was looked for, and what to do."""
    need("ucx:")
    package = tmp_path / "weft"
    shutil.copytree(os.path.dirname(weft.__file__), package, ignore=shutil.ignore_patterns("weft_*.so", "__pycache__"))
    code = "import sys, weft; assert not weft.info()['modules']; weft.open(sys.argv[1], rank=int(sys.argv[2]), ranks=2)"
    codes, said = two(tmp_path, "ucx:python", "aa", "-c", code, PYTHONPATH=str(tmp_path))
    assert codes == [1, 1]
    for text in said:
        assert "UnsupportedError" in text and f"weft_ucx.so is not in {package}" in text and "libucx-dev" in text
