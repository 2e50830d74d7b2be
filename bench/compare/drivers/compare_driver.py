"""What the drivers in Python share: the command line, the ledger, and the loops that every peer goes through.

A driver passes a class to `main`. Its methods:
  setup()                  install the schema in an empty database
  open(), close()          connect, disconnect
  bulk(first, end)         store the jobs from first to end
  plain(n), keyed(n)       store one job; a method that is None means that the peer lacks it
  transaction(n, before)   store one in a transaction, and call before() just before its COMMIT
  work()                   run a worker until the task is cancelled
"""
import argparse
import asyncio
import json
import sys
import threading
import time

BULK = 5000
FEED = 1000
WAITING = 5000
WARM = 10


def show(**message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


class Ledger:
    """Which jobs ran, how often, and when."""

    def __init__(self, jobs, keys):
        self.jobs, self.keys = jobs, keys
        self.runs = bytearray(jobs)
        self.ran, self.first, self.together = 0, 0.0, 0
        self.marks, self.step = [], max(jobs // 20, 1)
        self.running = [0] * keys
        self.on_start = None

    def started(self, n):
        at = time.time()
        if self.ran == 0:
            self.first = at
        self.ran += 1
        if self.runs[n] < 255:
            self.runs[n] += 1
        if self.ran % self.step == 0:
            self.marks.append([self.ran, at])
        if self.keys:
            self.running[n % self.keys] += 1
            self.together = max(self.together, self.running[n % self.keys])
        if self.on_start:
            self.on_start(n, at)
        if self.ran == self.jobs:
            show(ran=self.ran)

    def write(self, path):
        """Writes how often each job ran, one byte per job."""
        with open(path, "wb") as file:
            file.write(self.runs)

    def ended(self, n):
        if self.keys:
            self.running[n % self.keys] -= 1


def text(count):
    """Incompressible text, the same in every driver."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    x, made = 1, []
    for _ in range(count):
        x = (x * 1103515245 + 12345) % 2147483648
        made.append(letters[(x >> 16) % 62])
    return "".join(made)


def read():
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["setup", "enqueue", "single", "work", "latency"])
    parser.add_argument("--database", required=True)
    numbers = {"jobs": 1000, "connections": 20, "names": 1, "priorities": 1, "bytes": 0, "keys": 0}
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, default in (("ledger", None), ("handler", "noop"), ("how", "plain"), ("history", ""), ("feed", "")):
        parser.add_argument(f"--{name}", default=default)
    options = parser.parse_args()
    options.filler = text(options.bytes)
    return options


class Peer:
    """What a peer begins with."""

    def __init__(self, options, ledger):
        self.options, self.ledger = options, ledger

    def name(self, n):
        return f"job_{n % self.options.names}"

    def names(self):
        return [f"job_{number}" for number in range(self.options.names)]

    def priority(self, n):
        return n // self.options.names % self.options.priorities

    def key(self, n):
        return f"key_{n % self.options.keys}"

    def data(self, n):
        return {"n": n, "filler": self.options.filler} if self.options.filler else {"n": n}


async def feed(peer, jobs):
    for first in range(0, jobs, FEED):
        while first - peer.ledger.ran > WAITING - FEED:
            await asyncio.sleep(0.001)
        await peer.bulk(first, min(first + FEED, jobs))


async def stdin_closed():
    loop, closed = asyncio.get_running_loop(), asyncio.Event()

    def wait():
        sys.stdin.read()
        loop.call_soon_threadsafe(closed.set)

    threading.Thread(target=wait, daemon=True).start()
    await closed.wait()


async def report(ledger):
    shown = 0
    while True:
        if ledger.ran != shown:
            shown = ledger.ran
            show(ran=shown)
        await asyncio.sleep(0.005)


async def first_to_end(*tasks):
    """Waits for the first task, raises its error, and cancels the others."""
    done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    return others


async def work(peer, options):
    closed = asyncio.create_task(stdin_closed())
    tasks = {closed, asyncio.create_task(peer.work()), asyncio.create_task(report(peer.ledger))}
    if options.feed:
        tasks.add(asyncio.create_task(feed(peer, options.jobs)))
    while not closed.done():
        tasks = set(await first_to_end(*tasks)) | ({closed} if not closed.done() else set())
    ledger = peer.ledger
    ledger.write(options.ledger)
    show(done=True, ran=ledger.ran, first=ledger.first, marks=ledger.marks, together=ledger.together)


async def latency(peer, options):
    before, waits = {}, []

    def on_start(n, at):
        if n >= WARM:
            waits.append((at - before[n]) * 1000)

    peer.ledger.on_start = on_start
    worker = asyncio.create_task(peer.work())
    await asyncio.sleep(1)
    for n in range(WARM + options.jobs):
        await peer.transaction(n, lambda: before.__setitem__(n, time.time()))
        await asyncio.sleep(0.02)
    for _ in range(500):
        if len(waits) >= options.jobs or worker.done():
            break
        await asyncio.sleep(0.02)
    if worker.done():
        worker.result()
    peer.ledger.write(options.ledger)
    show(done=True, latency_ms=waits)


async def run(kind, options):
    warm = WARM if options.command == "latency" else 0
    peer = kind(options, Ledger(options.jobs + warm, options.keys))
    if options.command == "setup":
        await peer.setup()
        show(done=True)
        return
    await peer.open()
    if options.command == "enqueue":
        started = time.time()
        for first in range(0, options.jobs, BULK):
            await peer.bulk(first, min(first + BULK, options.jobs))
        show(done=True, seconds=time.time() - started)
    elif options.command == "single":
        one = {"plain": peer.plain, "key": peer.keyed, "transaction": peer.transaction}[options.how]
        if one is None:
            show(done=True, lacks=f"no {options.how} enqueue")
            return
        extra = (lambda: None,) if options.how == "transaction" else ()
        started = time.time()
        for n in range(options.jobs):
            await one(n, *extra)
        show(done=True, seconds=time.time() - started)
    elif options.command == "work":
        await work(peer, options)
    else:
        await latency(peer, options)


def main(kind, runner=asyncio.run):
    options = read()
    try:
        runner(run(kind, options))
    except Exception as error:  # the driver's report of any failure
        show(error=f"{type(error).__name__}: {error}")
        raise
    finally:
        sys.stdout.flush()
