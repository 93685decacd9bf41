#!/usr/bin/env python3
"""Resharding a checkpoint against the disk's own copy rate: a set of safetensors files from TP 8 to TP 4 x PP 2.

    bench/checkpoint.py --weft build/weft --gigabytes 6 --folder /somewhere/on/the/disk

It makes a Llama-like set (bf16, names as Hugging Face's) of random bytes, sharded over 8 ranks; then, in turns, has
`cp` copy the set and sync, and `weft checkpoint` reshard it; and in the end loads the whole of each tensor by itself, splits
it, and compares the checksum of every array in the output with that. Both start with cold caches where that is permitted.
Needs numpy alone; reads and writes the format by itself. Removes what it made.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import time
import zlib

import numpy as np


def model(gigabytes):
    """Names, global shapes and the dim that tensor parallelism splits (None: whole), for about that many gigabytes of bf16."""
    big = gigabytes >= 1
    hidden, inner, vocab = (4096, 14336, 32000) if big else (64, 192, 512)
    heads, kv, head = (32, 8, 128) if big else (8, 8, 8)
    rows = [("model.embed_tokens.weight", (vocab, hidden), 0)]
    layer = [
        ("input_layernorm.weight", (hidden,), None),
        ("self_attn.q_proj.weight", (heads * head, hidden), 0),
        ("self_attn.k_proj.weight", (kv * head, hidden), 0),
        ("self_attn.v_proj.weight", (kv * head, hidden), 0),
        ("self_attn.o_proj.weight", (hidden, heads * head), 1),
        ("post_attention_layernorm.weight", (hidden,), None),
        ("mlp.gate_proj.weight", (inner, hidden), 0),
        ("mlp.up_proj.weight", (inner, hidden), 0),
        ("mlp.down_proj.weight", (hidden, inner), 1),
    ]
    ends = 2 * 2 * vocab * hidden
    each = sum(2 * int(np.prod(shape)) for _, shape, _ in layer)
    layers = max(2, round((gigabytes * 1e9 - ends) / each))
    layers += layers % 2
    rows += [(f"model.layers.{i}.{name}", shape, dim) for i in range(layers) for name, shape, dim in layer]
    rows += [("model.norm.weight", (hidden,), None), ("lm_head.weight", (vocab, hidden), 0)]
    return rows, {"num_attention_heads": heads, "num_key_value_heads": kv}, layers


def local_shape(shape, dim, parts):
    return tuple(n // parts if d == dim else n for d, n in enumerate(shape))


def write_header(f, arrays):
    at, header = 0, {"__metadata__": {"format": "pt"}}
    for name, shape in arrays:
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    f.write(struct.pack("<Q", len(text)) + text)


def generate(folder, rows, config, ranks):
    """One file a rank; every array has random bytes of its own, and copies are equal."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    for rank in range(ranks):
        with open(folder / f"rank{rank}.safetensors", "wb") as f:
            write_header(f, [(name, local_shape(shape, dim, ranks)) for name, shape, dim in rows])
            for i, (name, shape, dim) in enumerate(rows):
                rng = np.random.default_rng([i, 0 if dim is None else rank])
                left = 2 * int(np.prod(local_shape(shape, dim, ranks)))
                while left:
                    n = min(left, 1 << 24)
                    f.write(rng.bytes(n))
                    left -= n
            f.flush()
            os.fsync(f.fileno())


class File:
    """A safetensors file, one array at a time."""

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as f:
            (n,) = struct.unpack("<Q", f.read(8))
            self.header = json.loads(f.read(n))
            self.data = 8 + n

    def load(self, name):
        a, b = self.header[name]["data_offsets"]
        with open(self.path, "rb") as f:
            f.seek(self.data + a)
            return np.frombuffer(f.read(b - a), np.uint16).reshape(self.header[name]["shape"])


def check(source, target, rows, layers, ranks, tp, pp):
    """A straight load, split and save would give the same arrays: checksums of all of them."""
    ins = [File(source / f"rank{r}.safetensors") for r in range(ranks)]
    outs = [File(target / f"rank-{r:05d}-of-{tp * pp:05d}.safetensors") for r in range(tp * pp)]
    compared, expected = 0, [set() for _ in outs]
    for name, shape, dim in rows:
        whole = ins[0].load(name) if dim is None else np.concatenate([f.load(name) for f in ins], axis=dim)
        assert whole.shape == shape
        words = name.split(".")
        stage = int(words[2]) * pp // layers if words[1] == "layers" else 0 if "embed" in name else pp - 1
        for t in range(tp):
            piece = whole if dim is None else np.split(whole, tp, axis=dim)[t]
            rank = t * pp + stage
            expected[rank].add(name)
            got = outs[rank].load(name)
            want = zlib.crc32(np.ascontiguousarray(piece).tobytes())
            if got.shape != piece.shape or zlib.crc32(got.tobytes()) != want:
                sys.exit(f"rank {rank}: {name} is wrong")
            compared += 1
    for rank, f in enumerate(outs):
        if set(f.header) - {"__metadata__"} != expected[rank]:
            sys.exit(f"rank {rank}: other tensors than expected: {set(f.header) ^ expected[rank]}")
    return compared


def cold(wanted):
    """Empties the caches of files; False where that is not wanted or not permitted."""
    if not wanted:
        return False
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w") as f:
            f.write("3")
        return True
    except OSError:
        return False


def run(*command):
    """Seconds, and the most memory that the command had, in bytes."""
    begin = time.monotonic()
    child = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{command[0]} ended with {child.returncode}")
    return time.monotonic() - begin, usage.ru_maxrss * 1024


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--weft", default="build/weft", help="the command")
    p.add_argument("--folder", default=".", help="where to work: a disk with three times the room")
    p.add_argument("--gigabytes", type=float, default=6)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--cached", action="store_true", help="leave the system's caches alone")
    p.add_argument("--json", action="store_true")
    p.add_argument("--options", default="", help="more options for weft checkpoint")
    args = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that what was made is removed
    rows, config, layers = model(args.gigabytes)
    work = pathlib.Path(args.folder) / f"weft-bench-checkpoint.{os.getpid()}"
    work.mkdir()
    try:
        source, target, copied = work / "tp8", work / "tp4.pp2", work / "copy"
        generate(source, rows, config, 8)
        size = sum(f.stat().st_size for f in source.iterdir())
        copies, moves, peak, is_cold = [], [], 0, True
        for _ in range(args.rounds):
            shutil.rmtree(copied, ignore_errors=True)
            is_cold &= cold(not args.cached)
            copies.append(run("sh", "-c", f'cp -r "{source}" "{copied}" && sync "{copied}"/*')[0])
            shutil.rmtree(copied)
            shutil.rmtree(target, ignore_errors=True)
            is_cold &= cold(not args.cached)
            seconds, memory = run(args.weft, "checkpoint", source / "rank%r.safetensors", target, "--from", "tp8", "--to",
                                  "tp4.pp2", "--rules", "llama", *args.options.split())
            moves.append(seconds)
            peak = max(peak, memory)
        compared = check(source, target, rows, layers, 8, 4, 2)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    copy, move = statistics.median(copies), statistics.median(moves)
    result = {
        "bytes": size, "tensors": len(rows), "arrays_compared": compared, "cold": is_cold,
        "copy_s": copies, "reshard_s": moves, "copy_mbs": size / copy / 1e6, "reshard_mbs": size / move / 1e6,
        "ratio": copy / move, "peak_bytes": peak,
    }
    if args.json:
        print(json.dumps(result))
        return
    print(f"{size / 1e9:.2f} GB, {len(rows)} tensors, TP 8 to TP 4 x PP 2, {'cold' if is_cold else 'warm'} caches, medians of {args.rounds}")
    print(f"cp and sync      {copy:7.2f} s  {size / copy / 1e6:7.0f} MB/s   ({', '.join(f'{s:.2f}' for s in copies)})")
    print(f"weft checkpoint  {move:7.2f} s  {size / move / 1e6:7.0f} MB/s   ({', '.join(f'{s:.2f}' for s in moves)})")
    print(f"ratio            {copy / move:7.2f}")
    print(f"peak memory      {peak / 2**20:7.0f} MiB")
    print(f"{compared} arrays equal to a straight load, split and save")


if __name__ == "__main__":
    main()
