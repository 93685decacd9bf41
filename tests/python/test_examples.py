"""The weight sync of examples/: the loss falls, each answer is that of one version, and it ends well whatever happens."""

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
EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "09_weight_sync.py"
LIMIT = 240  # seconds; far more than it takes


def example():
    spec = importlib.util.spec_from_file_location("weight_sync", EXAMPLE)
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
    """The example at work, in a folder of its own. Nothing of it may be left when it has ended."""

    def __init__(self, tmp_path, *arguments):
        self.out = tmp_path / "out"
        self.process = subprocess.Popen(
            [sys.executable, str(EXAMPLE), "--keep", *map(str, arguments)],
            stdout=open(self.out, "w"),
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        self.url = self.wait_for(r"serving on (http://127\.0\.0\.1:\d+/)")[0]
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        self.ranks = [int(pid) for pid in children.split()]
        assert len(self.ranks) == 6

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

    def end(self):
        """Its exit code and what it said to stderr, when all of its processes have ended."""
        _, errors = self.process.communicate(timeout=LIMIT)
        assert not [pid for pid in self.ranks if alive(pid)]
        return self.process.returncode, errors

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


def test_weight_sync(tmp_path):
    threads, before = torch.get_num_threads(), ours()
    torch.set_num_threads(1)
    answers = []

    def client(job, number, last):
        """Asks until the last version answers; versions only grow."""
        mine, seen = [], -1
        while seen < last:
            prompt = PROMPTS[(number + len(mine)) % len(PROMPTS)]
            answer = job.ask(prompt)
            assert answer["versions"] == [answer["version"]] * 2
            assert answer["version"] >= seen
            seen = answer["version"]
            mine.append((prompt, answer))
        return mine

    last = 8
    with Job(tmp_path, "--steps", 10 * last, "--every", 10, "--record", tmp_path) as job:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for mine in [pool.submit(client, job, i, last) for i in range(4)]:
                answers += mine.result()
        for query in ("", "?prompt=x&letters=many", "?" + "x" * 100_000):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(job.url + query, timeout=LIMIT)
            assert refused.value.code == 400
        assert job.ask("\u2603" * 5000)["version"] == last  # a long one, after those
        job.wait_for(rf"version {last} is under way")
        loss = [float(x) for x in re.findall(r"loss (\S+)", job.out.read_text())]
        os.killpg(job.process.pid, signal.SIGINT)  # as a terminal does
        assert job.end() == (130, "stopped\n")
    assert len(loss) == last + 1 and loss[0] > 4 and loss[-1] < 3 and loss[-1] < loss[len(loss) // 2] < loss[0]
    assert ours() <= before

    # Every answer is, bit by bit, that of its version, and of no other.
    module, known = example(), {}
    weights = [torch.load(tmp_path / f"{v}.pt") for v in range(last + 1)]
    for prompt, answer in answers:
        version = answer["version"]
        if (prompt, version) not in known:
            known[prompt, version] = again(module, weights[version], prompt, 12)
        (text, score), (_, whole) = known[prompt, version]
        assert (answer["text"], answer["score"]) == (text, score)
        assert whole == pytest.approx(score, abs=0.05)
    versions = {answer["version"] for _, answer in answers}
    assert len(versions) > 1, "only one version has answered"
    scores = [score for (_, score), _ in known.values()]
    assert len(set(scores)) == len(scores)
    torch.set_num_threads(threads)


@pytest.mark.parametrize("rank", [2, 4, 5])
def test_weight_sync_when_a_rank_dies(tmp_path, rank):
    before = ours()
    with Job(tmp_path, "--steps", 100_000, "--every", 2) as job:
        job.wait_for("version 2 is under way")
        os.kill(job.ranks[rank], signal.SIGKILL)
        code, errors = job.end()
    assert code == 1
    assert errors == f"rank {rank} of 6: RuntimeError: the process was killed by signal 9 and gave no result\n"
    assert ours() <= before


def test_weight_sync_ends_by_itself(tmp_path):
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--steps", "12", "--every", "6"], capture_output=True, text=True, timeout=LIMIT, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [int(v) for v in re.findall(r"version +(\d+) says", done.stdout)][-1] == 2


# ---- two jobs ----

TWO_JOBS = EXAMPLE.with_name("12_fsdp2_to_server.py")


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
