"""Weight sync, the server: two ranks serve over HTTP the newest version that a trainer has put on the bus (see trainer.py).

    python examples/09_weight_sync/server.py        # curl 'http://127.0.0.1:PORT/?prompt=Shall+I&letters=32'

The ranks hold the weights as tensor parallelism leaves them. On each of them a thread fetches the next version, while the version before it
answers; the thread is all that the ranks' answers have to do with the trainer, which may die, or not be there yet. Between two
requests rank 0 says that both ranks swap. All of them do or none does, so an answer never sees two versions. Any number of such servers may be started.
"""

import argparse
import asyncio
import json
import os
import queue
import signal
import sys
import threading
import urllib.parse

import numpy as np
import torch

import weft
from model import SERVED, SET, URL, complete


class Server:
    def __init__(self, comm, options):
        self.comm, self.options = comm, options
        self.bus = weft.bus(options.url)
        # The thread that fetches has a comm of its own. (Those of comm.split belong to the thread that uses the comm.)
        self.fetching = weft.open(f"shm:weight-sync-{os.getppid()}", rank=comm.rank, ranks=2)
        self.sub = self.bus.subscribe(SET, SERVED, comm=self.fetching, torch=True)
        self.orders = comm.exchange([0], []) if comm.rank else comm.exchange([], [1])
        self.staged, self.swapped = queue.Queue(), queue.Queue()

    # ---- versions ----

    def fetch(self, tell):
        """The thread: stages each newer version, tells so, and waits until it was swapped."""
        while True:
            try:
                version = self.sub.fetch("newer", timeout=5)
            except weft.TimeoutError:
                continue  # no trainer has committed one
            except weft.Error as error:
                try:
                    self.fetching.barrier()  # are both ranks here still? Then the trainer has died, or the directory is away
                except weft.Error:
                    tell(error)
                    return
                print(f"rank {self.comm.rank}: {error}", file=sys.stderr, flush=True)
                continue
            self.staged.put(version)
            tell(version)
            self.swapped.get()

    def swap(self):
        """By both ranks: the version that both have staged becomes the one that answers."""
        version = self.staged.get()
        try:
            self.sub.swap(version, timeout=30)
        finally:
            self.swapped.put(version)
        if self.comm.rank == 0:
            with self.sub.use() as w:
                print(f"version {version.epoch}.{version.step} serves, its loss was {w.meta['loss']:.4f}", flush=True)

    # ---- requests ----

    def answer(self, prompt, letters):
        """By both ranks together, with the version that is live on both."""
        with self.sub.use() as w:
            text, score = complete(w, prompt, letters, self.comm)
            versions = self.comm.allgather(np.array([w.version])).tolist()
            return {"version": list(w.version), "versions": versions, "text": text, "score": score}

    async def follow(self):
        """Rank 1: what rank 0 orders, in that order."""
        while True:
            order = json.loads((await self.orders.finish())[0].meta)
            if "swap" in order:
                self.swap()
            else:
                self.answer(order["prompt"], order["letters"])

    async def order(self, **what):
        self.orders.put(1, meta=json.dumps(what).encode())
        await self.orders.finish()

    async def lead(self, staged):
        """Rank 0: requests in the order in which they come, and new versions between them."""
        requests = asyncio.Queue()
        await self.next_version(staged)
        await self.order(swap=True)
        self.swap()
        server = await asyncio.start_server(lambda *both: self.http(requests, *both), "127.0.0.1", self.options.port)
        print(f"serving on http://127.0.0.1:{server.sockets[0].getsockname()[1]}/?prompt=Shall+I&letters=32", flush=True)
        coming, request = asyncio.ensure_future(self.next_version(staged)), asyncio.ensure_future(requests.get())
        while True:
            await asyncio.wait({coming, request}, return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                coming.result()
                await self.order(swap=True)
                self.swap()
                coming = asyncio.ensure_future(self.next_version(staged))
            if request.done():
                prompt, letters, answer = request.result()
                await self.order(prompt=prompt, letters=letters)
                answer.set_result(self.answer(prompt, letters))
                request = asyncio.ensure_future(requests.get())

    @staticmethod
    async def next_version(staged):
        """Until it is staged here. Raises what has ended the thread."""
        version = await staged.get()
        if isinstance(version, Exception):
            raise version

    async def http(self, requests, reader, writer):
        """One connection, one request."""
        try:
            line = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).split(b"\r\n")[0].decode("ascii").split()
            query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(line[1]).query, keep_blank_values=True))
            prompt, letters = query["prompt"][:1000], min(max(int(query.get("letters", 32)), 1), 200)
            if line[0] != "GET":
                raise ValueError
        except (ValueError, KeyError, IndexError, asyncio.TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            status, body = "400 Bad Request", {"error": "GET /?prompt=TEXT&letters=NUMBER"}
        else:
            answer = asyncio.get_running_loop().create_future()
            await requests.put((prompt, letters, answer))
            status, body = "200 OK", await answer
        data = json.dumps(body).encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
        try:
            writer.write(head.encode() + data)
            await writer.drain()
        except ConnectionError:
            pass  # the client has gone
        writer.close()

    async def serve(self):
        loop, staged = asyncio.get_running_loop(), asyncio.Queue()

        def tell(version):
            loop.call_soon_threadsafe(staged.put_nowait, version)

        threading.Thread(target=self.fetch, args=[tell], daemon=True).start()
        await (self.follow() if self.comm.rank else self.lead(staged))


def rank_main(comm, options):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the process that has started the ranks, and that ends them
    torch.set_num_threads(1)
    asyncio.run(Server(comm, options).serve())


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", default=URL, help=f"of the bus ({URL})")
    parser.add_argument("--port", type=int, default=0, help="of 127.0.0.1 (one that is free)")
    options = parser.parse_args()
    try:
        weft.spawn(rank_main, 2, options)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except weft.RankError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
