"""The heat equation in a plane, on ranks that share a GPU; the halo is exchanged in place, on the stream that computes.

    python examples/14_gpu_heat.py

Each rank has some rows of the plane, with one ghost row above and below, twice: a step reads one buffer and writes the other. A run
fills the ghosts of a buffer from the rows that stand in it. It is started on the stream between two steps, and nobody waits for
the GPU before the end. Then rank 0 has the plane, and finds the same bits as one rank alone.

It needs PyTorch and a GPU. Without a GPU it can be tried on the simulated device, which needs neither:

    WEFT_DEVICE=sim python examples/14_gpu_heat.py
"""

import os
import sys

import numpy as np

import weft

ROWS, COLUMNS, RANKS = 150, 211, 3


def at_first():
    """Hot above, and a hot disc."""
    y, x = np.mgrid[0:ROWS, 0:COLUMNS]
    return ((y - 40) ** 2 + (x - 60) ** 2 < 800).astype(np.float32)


def step(old, new, both):
    """One step, of NumPy's or PyTorch's arrays: the rows between the ghosts; left and right wrap round. The products are with powers
    of two, and so are exact: the bits are the same wherever it is computed."""
    middle = old[1:-1]
    new[1:-1] = (4 * middle + ((old[:-2] + old[2:]) + (both(middle, 1) + both(middle, -1)))) / 8


def alone(steps):
    old = np.zeros((ROWS + 2, COLUMNS), np.float32)
    old[0], old[1:-1] = 1, at_first()
    new = old.copy()
    for _ in range(steps):
        step(old, new, lambda a, by: np.roll(a, by, 1))
        old, new = new, old
    return old[1:-1]


def layouts(ranks):
    own = weft.layout(f"f32[{ROWS}/x,{COLUMNS}] @x{ranks}")
    return own, weft.layout(f"f32[{ROWS}/x~1,{COLUMNS}] @x{ranks}"), f"f32[{ROWS},{COLUMNS}] @r1=0"


def edges(comm, cells):
    """The rows beyond the plane, which no run writes."""
    if comm.rank == 0:
        cells[0] = 1


def on_gpu(comm, steps):
    import torch

    torch.cuda.set_device(0)
    own, ghosts, whole = layouts(comm.size)
    first = own.boxes(comm.rank)[0].at[0]
    start = torch.from_numpy(at_first()[first : first + own.local(comm.rank).shape[0]])
    with torch.cuda.stream(torch.cuda.Stream()):
        cells = [comm.empty(ghosts, torch=True, device="cuda") for _ in range(2)]
        for c in cells:
            edges(comm, c)
        cells[0][1:-1] = start.cuda()
        plan = weft.lower(own, ghosts)
        fill = [plan.bind(comm, c[1:-1], c) for c in cells]  # the source is the rows where they stand
        for i in range(steps):
            fill[i % 2].start()  # on the current stream
            step(cells[i % 2], cells[1 - i % 2], lambda a, by: torch.roll(a, by, 1))
        field = np.zeros((ROWS, COLUMNS), np.float32) if comm.rank == 0 else None
        weft.lower(own, whole, world=comm.size).bind(comm, cells[steps % 2][1:-1], field).run()
        for bound in fill:
            bound.close()
    return field


class Rows:
    """Some rows of a DeviceArray, by CUDA's array interface."""

    def __init__(self, array, begin, end):
        self.array = array
        self.__cuda_array_interface__ = dict(array.__cuda_array_interface__)
        address = self.__cuda_array_interface__["data"][0]
        self.__cuda_array_interface__["data"] = (address + begin * array.shape[1] * array.itemsize, False)
        self.__cuda_array_interface__["shape"] = (end - begin, array.shape[1])

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def on_simulation(comm, steps):
    """The simulated device computes nothing for us: a step moves the cells to the host and back. The halo is on the device."""
    own, ghosts, whole = layouts(comm.size)
    first, mine = own.boxes(comm.rank)[0].at[0], own.local(comm.rank).shape[0]
    here = [np.zeros((mine + 2, COLUMNS), np.float32) for _ in range(2)]
    for h in here:
        edges(comm, h)
    here[0][1:-1] = at_first()[first : first + mine]
    cells = comm.empty(ghosts, device="cuda")
    rows = Rows(cells, 1, mine + 1)
    solo = comm.split([comm.rank])
    same = weft.lower(*2 * [f"f32[{mine + 2},{COLUMNS}] @x1"])
    up, down = same.bind(solo, here[0], cells), same.bind(solo, cells, here[0])
    fill = weft.lower(own, ghosts).bind(comm, rows, cells)
    for _ in range(steps):
        up.run()
        fill.run()
        down.run()
        step(here[0], here[1], lambda a, by: np.roll(a, by, 1))
        here[0][1:-1] = here[1][1:-1]
    up.run()
    field = np.zeros((ROWS, COLUMNS), np.float32) if comm.rank == 0 else None
    weft.lower(own, whole, world=comm.size).bind(comm, rows, field).run()
    for bound in (up, down, fill):
        bound.close()
    solo.close()
    return field


def main():
    if os.environ.get("WEFT_DEVICE") == "sim":
        steps, where = 40, "the simulated device"
        field = weft.spawn(on_simulation, RANKS, steps)[0]
    else:
        try:
            import torch
        except ImportError:
            sys.exit("PyTorch is not installed; WEFT_DEVICE=sim tries this example without it")
        if not torch.cuda.is_available():
            sys.exit("PyTorch sees no GPU; WEFT_DEVICE=sim tries this example without one")
        steps, where = 1000, torch.cuda.get_device_name(0)
        field = weft.spawn(on_gpu, RANKS, steps, method="spawn")[0]  # CUDA and fork do not go together
    if not np.array_equal(field, alone(steps)):
        sys.exit(f"the field is not what one rank computes: it differs by {np.abs(field - alone(steps)).max()}")
    print(f"{steps} steps of heat on {RANKS} ranks of {where}: the same bits as on one")


if __name__ == "__main__":
    main()
