"""How long a sync takes from a trainer of four ranks (f32, FSDP x TP) to vLLM on the CPU: by weft, by files (safetensors and vLLM's own reload), and by
gloo (gather, broadcast, load_weights within vLLM's layerwise reload). One run, by turns. speed.py [ROUNDS [RANKS]]

Each way begins with the trainer's shards and ends when the engine would serve the new weights. All of them go in bf16.
"""

import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

import tiny
from engine import Process
from trainer import Trainer

MODEL = dict(
    vocab_size=16384, hidden_size=1024, num_hidden_layers=8, max_position_embeddings=256, num_attention_heads=16, num_key_value_heads=8, head_dim=64,
    intermediate_size=4096, tie_word_embeddings=False,
)  # fmt: skip


def main(rounds, ranks):
    tiny.CONFIGS["speed"] = ("LlamaConfig", MODEL)
    with tempfile.TemporaryDirectory() as where:
        folder = pathlib.Path(where)
        for seed in (1, 2):
            tensors = tiny.save("speed", folder / f"v{seed}", seed)
        size = sum(t.numel() for t in tensors.values()) * 2
        file = str(folder / "v1" / "model.safetensors")
        path = folder / "engine"
        os.environ["PYTHONPATH"] = os.pathsep.join([str(pathlib.Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        served = dict(model=str(folder / "v1"), backend="weft", worker_extension_cls="trainer.Gloo")
        with Process(path, ranks, **served) as engine, Trainer(folder / "t", bus=f"file:{folder}/bus", set="policy", dtype="bf16") as trainer:
            trainer.do("load", file)
            engine.ready()
            trainer.do("init", str(path), {})
            (folder / "new").mkdir()
            (folder / "new" / "config.json").write_text((folder / "v1" / "config.json").read_text())
            trainer.do("meet", str(path), str(folder / "gloo"), ranks)
            ways = {"weft": ["send"], "files": ["save", str(path), str(folder / "new")], "gloo": ["broadcast", str(path)]}
            times = {way: [] for way in ways}
            answers = set()
            trainer.do("load", str(folder / "v2" / "model.safetensors"))
            for command in ways.values():  # all three give the same
                trainer.do(*command)
                answers.add(json.dumps(engine.generate()))
            assert len(answers) == 1
            for _ in range(rounds):
                for way, command in ways.items():
                    begin = time.perf_counter()
                    trainer.do(*command)
                    times[way].append(time.perf_counter() - begin)
    best = {way: statistics.median(t) for way, t in times.items()}
    print(f"{size / 1e6:.0f} MB in bf16, {len(tensors)} tensors, trainer of 4, engine of {ranks}, medians of {rounds}")
    for way, t in best.items():
        print(f"{way:6} {t:.3f} s  {t / best['weft']:.1f} times weft  {[round(x, 3) for x in times[way]]}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5, int(sys.argv[2]) if len(sys.argv) > 2 else 1)
