"""Answers that change while a model trains: a trainer and a server that share a URL and a key, and nothing else.

    python examples/17_served_answers.py

The trainer is a process of its own. It teaches a small network to add hours on a clock of twelve, and puts its state dict under a key now and then.
The server has a network of the same kind. It takes each newer version into its parameters in place, between two questions, and answers:
wrong at first, and right in the end. The weights travel in bf16. With each version comes what the trainer itself answers with weights that are rounded so, and
the server checks that it says the same. Both are in one file here to be started at once; each could be on another machine.
"""

import multiprocessing
import tempfile

import torch

import weft.store

HOURS, VERSIONS, STEPS = 12, 5, 12
QUESTIONS = torch.cartesian_prod(torch.arange(HOURS), torch.arange(HOURS))
ASKED = (9, 5)  # nine o'clock and five hours


class Clock(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(2 * HOURS, 32)
        self.hidden = torch.nn.Linear(64, 128)
        self.answer = torch.nn.Linear(128, HOURS)

    def forward(self, questions):
        x = self.embed(questions + torch.tensor([0, HOURS])).flatten(1)
        return self.answer(torch.relu(self.hidden(x)))


def answers(model):
    with torch.no_grad():
        return model(QUESTIONS).argmax(1).tolist()


def train(url, taken):
    torch.manual_seed(1)
    model, served = Clock(), Clock()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with weft.store.Store(url) as store:
        for version in range(VERSIONS):
            served.load_state_dict({name: t.bfloat16() for name, t in model.state_dict().items()})
            store.put_state_dict({"model": model.state_dict(), "says": answers(served)}, "clock", version=version, transfer_dtype="bf16")
            for _ in range(STEPS):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(QUESTIONS), QUESTIONS.sum(1) % HOURS).backward()
                optimizer.step()
            taken.acquire()  # only so that this server shows every version: a trainer need not wait for anybody


def serve(url, taken):
    model = Clock()
    mine = {"model": dict(model.named_parameters()), "says": None}
    right = []
    with weft.store.Store(url) as store:
        for version in range(VERSIONS):
            told = store.get_state_dict("clock", mine, version="newer", timeout=120)
            said = answers(model)
            assert said == told["says"], f"version {version}: the server does not say what the trainer says"
            right.append(sum(a == int(q.sum()) % HOURS for a, q in zip(said, QUESTIONS)))
            now = said[ASKED[0] * HOURS + ASKED[1]]
            print(f"version {version}: {ASKED[0]} o'clock and {ASKED[1]} hours is {now} o'clock; {right[-1]} of {len(QUESTIONS)} answers are right", flush=True)
            taken.release()
    return right


def main():
    torch.set_num_threads(1)
    start = multiprocessing.get_context("fork")  # before any thread has started
    with tempfile.TemporaryDirectory() as folder:
        url, taken = f"file:{folder}/bus", start.Semaphore(0)
        trainer = start.Process(target=train, args=(url, taken), daemon=True)
        trainer.start()
        right = serve(url, taken)
        trainer.join()
    assert trainer.exitcode == 0 and right[0] < len(QUESTIONS) // 2 and right[-1] == len(QUESTIONS), right
    print("the served answers changed from wrong to right")


if __name__ == "__main__":
    main()
