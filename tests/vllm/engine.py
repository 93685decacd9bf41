"""A process that serves a model with vLLM, and does what it is told on a socket, a line of JSON at a time. engine.py SOCKET OPTIONS

OPTIONS is JSON for vLLM's class LLM. It stands in for vLLM's HTTP server, which has the same four calls.
"""

import gc
import getpass
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent


class Client:
    """What the process answers. Its first four methods are those of vLLM's VLLMWeightSyncClient."""

    def __init__(self, path, timeout=180.0):
        self.path, self.timeout = str(path), timeout

    def ask(self, what, *args):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(self.timeout)
            s.connect(self.path)
            s.sendall(json.dumps([what, *args]).encode() + b"\n")
            with s.makefile() as lines:
                line = lines.readline()
        if not line:
            raise RuntimeError("the engine has gone")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["result"]

    def init_weight_transfer_engine(self, init_info):
        self.ask("init_weight_transfer_engine", {"init_info": init_info})

    def start_weight_update(self):
        self.ask("start_weight_update")

    def update_weights(self, update_info):
        self.ask("update_weights", {"update_info": update_info})

    def finish_weight_update(self, weight_version=None):
        self.ask("finish_weight_update", weight_version)

    def weight_version(self):
        return self.ask("get_weight_version")

    def generate(self):
        """Tokens and log-probabilities for fixed prompts."""
        return self.ask("generate")


class Process(Client):
    """Starts it. Its processes are a group, which close() kills."""

    def __init__(self, path, ranks, **options):
        super().__init__(path)
        self.ranks, self.closed = ranks, False
        given = dict(tensor_parallel_size=ranks, **options)
        self.scratch = tempfile.TemporaryDirectory(prefix="weft-vllm-", ignore_cleanup_errors=True)  # what vLLM leaves when it is killed
        env = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "TMPDIR": self.scratch.name}
        env.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{tempfile.gettempdir()}/torchinductor_{getpass.getuser()}")  # PyTorch's own, which is kept
        workers = ranks * options.get("pipeline_parallel_size", 1)
        if workers > 1:
            cores = sorted(os.sched_getaffinity(0))
            env["VLLM_CPU_OMP_THREADS_BIND"] = "|".join(str(cores[r % len(cores)]) for r in range(workers))
        log = open(f"{path}.log", "wb")
        self.child = subprocess.Popen([sys.executable, str(HERE / "engine.py"), self.path, json.dumps(given)], env=env, stdout=log, stderr=log, start_new_session=True)
        log.close()

    def ready(self, timeout=240.0):
        until = time.monotonic() + timeout
        while not os.path.exists(self.path):
            assert self.child.poll() is None or os.path.exists(self.path), self.log()
            assert time.monotonic() < until, self.log()
            time.sleep(0.2)
        return self

    def log(self):
        return pathlib.Path(f"{self.path}.log").read_text(errors="replace")[-6000:]

    def close(self):
        """kill -9, once: later the number may be another group's."""
        if self.closed:
            return
        self.closed = True
        try:
            os.killpg(self.child.pid, 9)
        except ProcessLookupError:
            pass
        self.child.wait()
        if os.path.exists(self.path):
            os.unlink(self.path)
        self.scratch.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


PROMPTS = [[5, 6, 7, 8], list(range(20, 50)), [999, 1, 500]]


def answers(llm):
    from vllm import SamplingParams

    how = SamplingParams(temperature=0, max_tokens=8, min_tokens=8, logprobs=3, detokenize=False)
    out = llm.generate([{"prompt_token_ids": p} for p in PROMPTS], how, use_tqdm=False)
    found = [[list(o.outputs[0].token_ids), [sorted((t, x.logprob) for t, x in lp.items()) for lp in o.outputs[0].logprobs]] for o in out]
    return json.loads(json.dumps(found))


def dtype():
    """Kernels of vLLM for AArch64 in bf16 end with an illegal instruction on processors without instructions for bf16."""
    lines = [line for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("Features")]
    return "float32" if lines and "bf16" not in lines[0].split() else "bfloat16"


def start(options):
    from vllm import LLM
    from vllm.config import WeightTransferConfig

    backend = options.pop("backend", None)
    if backend:
        options["weight_transfer_config"] = WeightTransferConfig(backend=backend)
    return LLM(
        skip_tokenizer_init=True, enforce_eager=True, max_model_len=64, max_num_seqs=4, seed=1, dtype=dtype(), enable_prefix_caching=False, **options
    )  # fmt: skip


def loaded(models, options):
    """What vLLM answers with each of the models, loaded from its files: one rank by a vLLM of its own; several ranks, whose start takes long, by a
    vLLM for the first and by its own reload for the others."""
    llm = None
    for model in models:
        if llm is None or options["tensor_parallel_size"] == 1:
            llm = None
            gc.collect()
            llm = start({**options, "model": model})
        else:
            llm.collective_rpc("reload_weights", kwargs={"weights_path": model})
        yield answers(llm)


def main(path, options):
    options = json.loads(options)
    models = options.pop("models", None)
    if models:
        found = list(loaded(models, options))
        pathlib.Path(path + ".new").write_text(json.dumps(found))
        os.rename(path + ".new", path)
        os._exit(0)
    llm = start(options)
    server = socket.socket(socket.AF_UNIX)
    server.bind(path + ".new")
    server.listen()
    os.rename(path + ".new", path)
    while True:
        connection, _ = server.accept()
        with connection, connection.makefile() as lines:
            for line in lines:
                what, *args = json.loads(line)
                try:
                    answer = {"result": answers(llm) if what == "generate" else getattr(llm, what)(*args)}
                except Exception as error:
                    answer = {"error": f"{type(error).__name__}: {error}"}
                connection.sendall(json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
