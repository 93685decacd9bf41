"""The weight sync of examples/: each answer is that of one version, bit by bit, whichever program is killed and started again."""

import concurrent.futures
import importlib.util
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

import weft
from parts import free_port, part

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the weight sync is not run")
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
WEIGHT_SYNC = EXAMPLES / "09_weight_sync"
LIMIT = 240  # seconds; far more than it takes


def example():
    spec = importlib.util.spec_from_file_location("model", WEIGHT_SYNC / "model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def alive(pid):
    """Whether the process runs; one that has ended and was not waited for does not."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Job:
    """One of the programs at work. No process of it may be left when it has ended."""

    def __init__(self, tmp_path, name, ranks, *arguments):
        self.out = tmp_path / f"{name}-{len(list(tmp_path.iterdir()))}.out"
        self.name, self.size = name, ranks
        self.process = subprocess.Popen(
            [sys.executable, str(WEIGHT_SYNC / f"{name}.py"), "--url", f"file:{tmp_path}/bus", *map(str, arguments)],
            stdout=open(self.out, "w"),
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    @property
    def ranks(self):
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        ranks = [int(pid) for pid in children.split()]
        assert len(ranks) == self.size
        return ranks

    @property
    def url(self):
        return self.wait_for(r"serving on (http://127\.0\.0\.1:\d+/)")[0]

    def wait_for(self, words):
        end = time.monotonic() + LIMIT
        while not re.search(words, self.out.read_text()):
            assert self.process.poll() is None, self.process.stderr.read()
            assert time.monotonic() < end, self.out.read_text()
            time.sleep(0.02)
        return re.findall(words, self.out.read_text())

    def ask(self, prompt, letters=12):
        query = urllib.parse.urlencode({"prompt": prompt, "letters": letters})
        with urllib.request.urlopen(f"{self.url}?{query}", timeout=LIMIT) as answer:
            return json.loads(answer.read())

    def lose(self, rank):
        """A rank is killed: the others end, and the program says which one it was."""
        ranks = self.ranks
        os.kill(ranks[rank], signal.SIGKILL)
        _, errors = self.process.communicate(timeout=LIMIT)
        assert self.process.returncode == 1
        assert f"rank {rank} of {self.size}: RuntimeError: the process was killed by signal 9 and gave no result\n" in errors
        assert not [pid for pid in ranks if alive(pid)]

    def stop(self):
        """Ctrl-C, as a terminal does it."""
        ranks = self.ranks
        os.killpg(self.process.pid, signal.SIGINT)
        _, errors = self.process.communicate(timeout=LIMIT)
        assert self.process.returncode == 130 and errors.endswith("stopped\n")
        assert not [pid for pid in ranks if alive(pid)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.communicate()


def ours():
    return {name for name in os.listdir("/dev/shm") if "spawn-" in name}


class Alone:
    """A group of one rank, for the model that is not split."""

    @staticmethod
    def allreduce(x):
        return x


def again(module, weights, prompt, letters):
    """What two ranks answer with these weights, and what an undivided model does."""
    cast = {name: w.to(torch.bfloat16) for name, w in weights.items()}

    def half(rank):
        with weft.open("threads:2/again", rank=rank) as tp:
            mine = {}
            for name, text in module.layouts("bf16", "tp2").items():
                bits = part(weft.layout(text), rank, cast[name].view(torch.int16).numpy())
                mine[name] = torch.from_numpy(bits).view(torch.bfloat16)
            return module.complete(mine, prompt, letters, tp)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        two = list(pool.map(half, range(2)))
    assert two[0] == two[1]
    return two[0], module.complete(cast, prompt, letters, Alone)


PROMPTS = ["Shall I compare", "So long", "", "Rough winds do shake the darling buds of May,\nAnd", "\u2603"]


def ask_until(job, version, answers):
    """Asks until that version, or a newer one, answers; versions only grow."""
    seen = (0, 0)
    while seen < version:
        prompt = PROMPTS[len(answers) % len(PROMPTS)]
        answer = job.ask(prompt)
        assert answer["versions"] == [answer["version"]] * 2
        assert tuple(answer["version"]) >= seen
        seen = tuple(answer["version"])
        answers.append((prompt, answer))


def test_weight_sync(tmp_path):
    """The server is started before the trainer. The trainer loses a rank and is started again, and so does the server; both go on."""
    threads, before = torch.get_num_threads(), ours()
    torch.set_num_threads(1)
    answers, training = [], ["trainer", 4, "--steps", 100_000, "--every", 2, "--record", tmp_path]
    with Job(tmp_path, "server", 2) as server:
        with Job(tmp_path, *training) as trainer:
            ask_until(server, (1, 4), answers)
            trainer.lose(2)
        last = tuple(server.ask("So long")["version"])
        assert last[0] == 1  # without a trainer it goes on with the version that it has
        with Job(tmp_path, *training) as trainer:
            ask_until(server, (2, 2), answers)
            for query in ("", "?prompt=x&letters=many", "?" + "x" * 100_000):
                with pytest.raises(urllib.error.HTTPError) as refused:
                    urllib.request.urlopen(server.url + query, timeout=LIMIT)
                assert refused.value.code == 400
            server.lose(1)
            with Job(tmp_path, "server", 2) as other:
                ask_until(other, (2, 6), answers)
                trainer.stop()
                other.stop()
    assert ours() <= before

    # Every answer is, bit by bit, that of its version, and of no other.
    module, known, weights = example(), {}, {}
    for prompt, answer in answers:
        version = tuple(answer["version"])
        if version not in weights:
            weights[version] = torch.load(tmp_path / f"{version[0]}.{version[1]}.pt")
        if (prompt, version) not in known:
            known[prompt, version] = again(module, weights[version], prompt, 12)
        (text, score), (_, whole) = known[prompt, version]
        assert (answer["text"], answer["score"]) == (text, score)
        assert whole == pytest.approx(score, abs=0.05)
    assert {epoch for epoch, _ in weights} == {1, 2} and len(weights) > 2
    torch.set_num_threads(threads)


def test_weight_sync_learns(tmp_path):
    with Job(tmp_path, "trainer", 4, "--steps", 40, "--every", 20) as trainer:
        _, errors = trainer.process.communicate(timeout=LIMIT)
        assert (trainer.process.returncode, errors) == (0, "")
    loss = [float(x) for x in re.findall(r"loss (\S+)", trainer.out.read_text())]
    assert len(loss) == 3 and loss[0] > 4 and loss[-1] < 3.5 and loss[-1] < loss[0]


# ---- two jobs ----

TWO_JOBS = EXAMPLES / "12_fsdp2_to_server.py"


def torchrun(tmp_path, ranks, *arguments):
    """A job of its own, whose output is in a file beside it."""
    out = open(tmp_path / f"{len(list(tmp_path.iterdir()))}.out", "w+")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port", str(free_port())]
    command += [str(TWO_JOBS), *map(str, arguments)]
    return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"}), out


def ended(job):
    process, out = job
    try:
        code = process.wait(LIMIT)
    finally:
        process.kill()
    out.seek(0)
    return code, out.read()


def test_fsdp2_to_a_server_that_is_restarted(tmp_path):
    """Every version that was served is, bit by bit, what was trained, in bf16; the second server goes on where the first one died."""
    name, record = f"example-12-{os.getpid()}", tmp_path / "record"
    record.mkdir()
    options = ["--name", name, "--record", record]
    trainer = torchrun(tmp_path, 4, "train", "--versions", 4, "--steps", 3, *options)
    first = ended(torchrun(tmp_path, 2, "serve", "--die-at", 1, *options))
    assert first[0] != 0 and "server: version 0" in first[1] and "server: version 1" not in first[1], first[1]
    second = ended(torchrun(tmp_path, 2, "serve", *options))
    code, said = ended(trainer)
    assert (code, second[0]) == (0, 0), said + second[1]
    assert re.search(r"trainer: rank [45] has died.*waiting for another server", said)
    assert re.findall(r"server: version (\d)", second[1]) == ["1", "2", "3"]
    losses = [[float(x) for x in re.findall(r"loss (\S+)", text)] for text in (said, first[1] + second[1])]
    assert losses[0] == pytest.approx(losses[1], abs=0.05) and losses[0][3] < losses[0][0]
    for version in range(4):
        trained = torch.load(record / f"trained-{version}.pt")
        for rank in range(2):
            served = torch.load(record / f"served-{version}-{rank}.pt")
            assert served.pop("version").tolist() == [version, 3] and served.keys() == trained.keys()
            for key, view in served.items():
                whole = trained[key].to(torch.bfloat16)
                dim = 1 if key.endswith(("o.weight", "down.weight")) else 0
                expected = whole if "norm" in key else whole.chunk(2, dim)[rank]
                assert torch.equal(view, expected), (version, rank, key)


def test_served_answers_change():
    """Each version's answers are those of the trainer's own weights: the program checks that itself."""
    done = subprocess.run([sys.executable, str(EXAMPLES / "17_served_answers.py")], capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    right = [int(n) for n in re.findall(r"; (\d+) of 144 answers are right", done.stdout)]
    assert len(right) == 5 and right[0] < right[-1] == 144 and done.stdout.endswith("changed from wrong to right\n")
