"""A rank of a trainer: weights in f32, cut by FSDP and tensor parallelism, to an engine by weft.vllm.Trainer. It does what it is told on its
standard input, a line of JSON at a time. trainer.py RANK RANKS FOLDER OPTIONS; OPTIONS is JSON for weft.vllm.TrainerInitInfo."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent


class Trainer:
    """Starts the ranks."""

    def __init__(self, folder, ranks=4, **options):
        folder.mkdir()
        options["run"] = folder.name
        self.ranks = []
        for rank in range(ranks):
            command = [sys.executable, str(HERE / "trainer.py"), str(rank), str(ranks), str(folder), json.dumps(options)]
            self.ranks.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))

    def do(self, what, *args):
        """On all ranks; the answer of each, None of one that has died."""
        for rank in self.ranks:
            rank.stdin.write(json.dumps([what, *args]) + "\n")
            rank.stdin.flush()
        lines = [rank.stdout.readline() for rank in self.ranks]
        answers = [json.loads(line) if line else None for line in lines]
        for a in answers:
            if a is not None and "error" in a:
                raise RuntimeError(a["error"])
        return [a and a["result"] for a in answers]

    def close(self):
        for rank in self.ranks:
            rank.kill()
        for rank in self.ranks:
            rank.wait()
            rank.stdin.close()
            rank.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Gloo:
    """Methods for vLLM's workers (worker_extension_cls): whole tensors by gloo from rank 0 of the trainer, into load_weights."""

    def gloo_meet(self, store, ranks):
        import torch.distributed as dist

        held = dist.FileStore(store, ranks + 1)
        self.gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo", held), self.rank + 1, ranks + 1)

    def gloo_receive(self, names, shapes):
        import torch
        from vllm.config import set_current_vllm_config
        from vllm.model_executor.model_loader.reload import layerwise

        def tensors():
            for name, shape in zip(names, shapes):
                t = torch.empty(shape, dtype=torch.bfloat16)
                self.gloo.broadcast([t], _from(0)).wait()
                yield name, t

        model = self.model_runner.get_model()
        with set_current_vllm_config(self.vllm_config), torch.no_grad():
            layerwise.initialize_layerwise_reload(model)
            model.load_weights(tensors())
            layerwise.finalize_layerwise_reload(model, self.vllm_config.model_config)


def _from(rank):
    import torch.distributed as dist

    opts = dist.BroadcastOptions()
    opts.rootRank, opts.rootTensor = rank, 0
    return opts


def main(rank, ranks, folder, options):
    import torch
    import torch.distributed as dist
    import weft.vllm
    from engine import Client
    from safetensors import safe_open
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    rank, ranks, options = int(rank), int(ranks), json.loads(options)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("fsdp", "tp"))
    state = {}
    trainer = group = None

    def load(path):
        """Each rank keeps its part."""
        state.clear()
        with safe_open(path, "pt") as file:
            for name in file.keys():
                whole = file.get_tensor(name)
                rows = any(part in name for part in ("o_proj", "down_proj"))
                tp = Replicate() if whole.dim() < 2 else Shard(1 if rows else 0)
                state[name] = distribute_tensor(whole, mesh, [Shard(0), tp], src_data_rank=None)

    def init(engine, **told):
        nonlocal trainer
        info = weft.vllm.TrainerInitInfo(rank=rank, ranks=ranks, engine=told, **options)
        trainer = weft.vllm.Trainer.trainer_init(info, client=Client(engine), source=weft.vllm.Shards(lambda: state))

    def whole():
        """Gathered by all ranks, cast by rank 0."""
        for name, t in state.items():
            full = t.full_tensor()
            yield name, full.to(torch.bfloat16) if rank == 0 else None

    def save(engine, where):
        tensors = dict(whole())
        if rank == 0:
            from safetensors.torch import save_file

            save_file(tensors, f"{where}/model.safetensors")
            Client(engine).ask("collective_rpc", "reload_weights", None, [], {"weights_path": where})

    def meet(engine, store, workers):
        nonlocal group
        if rank == 0:
            asked = threading.Thread(target=Client(engine).ask, args=("collective_rpc", "gloo_meet", None, [store, workers]))
            asked.start()
            group = dist.ProcessGroupGloo(dist.PrefixStore("gloo", dist.FileStore(store, workers + 1)), 0, workers + 1)
            asked.join()

    def broadcast(engine):
        if rank == 0:
            names, shapes = list(state), [list(t.shape) for t in state.values()]
            asked = threading.Thread(target=Client(engine).ask, args=("collective_rpc", "gloo_receive", None, [names, shapes]))
            asked.start()
        for _, t in whole():
            if rank == 0:
                group.broadcast([t], _from(0)).wait()
        if rank == 0:
            asked.join()

    def die_in_commit():
        """The last rank is killed between its put and its commit. The others have committed their parts."""
        step = trainer.step + 1
        trainer._publisher.put(step, state)
        if rank == ranks - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        trainer._publisher.commit(step)
        return [trainer._publisher.epoch, step]

    for line in sys.stdin:
        what, *args = json.loads(line)
        try:
            if what == "load":
                result = load(*args)
            elif what == "init":
                result = init(args[0], **args[1])
            elif what == "send":
                result = trainer.send_weights()
            elif what == "version":
                result = list(trainer.version)
            else:
                result = {"save": save, "meet": meet, "broadcast": broadcast, "die_in_commit": die_in_commit}[what](*args)
            answer = {"result": result}
        except Exception as error:
            answer = {"error": f"rank {rank}: {type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
