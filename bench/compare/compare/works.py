"""The works: what a driver is asked to do, and what is measured meanwhile.

The measuring is here, once, and the drivers only do the work. Each measurement has a database of its own,
which is dropped afterwards.
"""
import os
import shutil
import tempfile
import time
from dataclasses import dataclass

from .peers import PeerError
from .server import ServerError

NAMES, PRIORITIES = 100, 5
LARGE_BYTES = 2048
PROCESSES = 8
KEYS = 1000
CONNECTIONS = 20
# Eight processes share the 100 connections of PostgreSQL's default, and listen on some more.
CONNECTIONS_OF_MANY = 8
# Jobs that a latency driver runs before the ones that count.
WARM_UP = 10
# What a batch of jobs is, for every peer that takes one.
BULK = 5000


@dataclass(frozen=True)
class Figure:
    key: str
    label: str
    unit: str
    higher_is_better: bool = True

    @property
    def is_count(self):
        """A count of jobs checks the peer and measures nothing: tables show it, plots do not."""
        return self.unit == "jobs"


@dataclass(frozen=True)
class Work:
    name: str
    title: str
    what: str
    figures: tuple
    # How many of --jobs it takes: jobs × share, and no more than `most`.
    share: float = 1.0
    most: int = 10_000_000

    def jobs(self, jobs):
        # Twentieths are whole, because a driver marks the time of each.
        return max(20, min(int(jobs * self.share), self.most) // 20 * 20)


RATE = Figure("rate", "drain", "jobs/s")
WAL = Figure("wal", "WAL per job", "bytes", False)

WORKS = (
    Work("drain", "Drain a full queue",
         "One worker process drains jobs whose handler does nothing.",
         (RATE, WAL)),
    Work("history", "Drain and keep finished jobs",
         "The same, with every finished job kept in the database. Peers that always keep them show the figure of the "
         "first work.",
         (RATE, WAL)),
    Work("bulk", "Bulk enqueue",
         f"One connection stores jobs in batches of {BULK:,}, or as the peer's own bulk call divides them.",
         (Figure("rate", "enqueue", "jobs/s"), WAL)),
    Work("single", "Single enqueue",
         "One connection stores job after job and waits for each: by the peer's plain call, with an idempotency key "
         "where the peer has one, and in a transaction that also inserts a row of the application.",
         (Figure("plain", "plain", "jobs/s"), Figure("key", "with a key", "jobs/s"),
          Figure("transaction", "in a transaction", "jobs/s")),
         share=0.01),
    Work("latency", "Pickup latency",
         "The time from just before the COMMIT of a job to the start of its handler, on an idle worker in the same "
         "process, with 20 ms between jobs.",
         (Figure("p50", "p50", "ms", False), Figure("p99", "p99", "ms", False)),
         share=0.01, most=200),
    Work("snapshot", "Old snapshot",
         "Enqueue and drain at the same time, at most 5,000 jobs waiting, while another session holds a REPEATABLE "
         "READ transaction open, so that vacuum can remove nothing. First and last are the rates of the first and "
         "last fifth of the jobs.",
         (Figure("first", "first fifth", "jobs/s"), Figure("last", "last fifth", "jobs/s"),
          Figure("rate", "all", "jobs/s"))),
    Work("names", "100 names, 5 priorities",
         "Drain jobs of 100 names and 5 priorities, all with handlers in the same process.",
         (RATE,), share=0.5),
    Work("large", "2 KiB per job",
         "Drain jobs that carry 2 KiB of text.",
         (RATE, WAL), share=0.5),
    Work("transaction", "Handler that writes a row",
         "Each handler inserts a row into a table of the application; where the peer can, the job completes in the "
         "same transaction.",
         (RATE,), share=0.1),
    Work("processes", "Eight processes",
         "Eight worker processes drain one queue. Every process records which jobs it ran.",
         (RATE, Figure("twice", "run twice", "jobs", False)), share=0.5),
    Work("limit", "Limit per key",
         f"Drain jobs of {KEYS:,} keys, at most one of each key at a time.",
         (RATE, Figure("together", "most of a key at once", "jobs", False)), share=0.2),
)
BY_NAME = {work.name: work for work in WORKS}


class Lacking(Exception):
    """The peer does not have what the work needs."""


class Bench:
    """Runs works of peers on one server."""

    def __init__(self, server, logs, limit):
        self.server, self.logs, self.limit = server, logs, limit
        self.count = 0
        # Databases that a setup has filled, by what the setup depends on. A measurement works in a copy.
        self.templates = {}

    def measure(self, peer, work, jobs, with_bulk=False):
        """Returns the results of one measurement; a failure is a result too.

        A drain begins with the bulk enqueue of its jobs: `with_bulk` makes a second result of that.
        """
        result = {"peer": peer.name, "work": work.name}
        if work.name in peer.lacks:
            return [{**result, "lacks": peer.lacks[work.name]}]
        if work.name == "history" and peer.manifest["keeps"] == "always":
            return [{**result, "same_as": "drain"}]
        jobs = peer.jobs(work.name, work.jobs(jobs))
        result["jobs"] = jobs
        bulk = {"peer": peer.name, "work": "bulk", "jobs": jobs, "seconds": 0.0}
        started = time.monotonic()
        measurement = Measurement(self, peer, work, jobs)
        try:
            with measurement:
                result["figures"] = getattr(measurement, f"work_{work.name}")()
                result.update(measurement.checked)
        except Lacking as error:
            return [{"peer": peer.name, "work": work.name, "lacks": str(error)}]
        except (PeerError, ServerError) as error:
            result["failed"] = bulk["failed"] = str(error)
        result["seconds"] = round(time.monotonic() - started, 1)
        if not with_bulk:
            return [result]
        if measurement.filled:
            bulk.pop("failed", None)
            bulk |= {"figures": measurement.filled, "stored": measurement.checked["stored"]}
        return [result, bulk]


class Measurement:
    """One work of one peer in a database of its own."""

    def __init__(self, bench, peer, work, jobs):
        self.bench, self.peer, self.work, self.jobs = bench, peer, work, jobs
        bench.count += 1
        self.name = f"compare_{bench.count}"
        self.log = os.path.join(bench.logs, f"{peer.name}.log")
        self.drivers, self.sessions = [], []
        # What shows that each job was stored and ran once.
        self.checked = {}
        self.filled = None
        self.folder = tempfile.mkdtemp(prefix="compare-")

    def __enter__(self):
        self.admin = self._session("postgres")
        try:
            self.admin.run(f"create database {self.name} template {self._template()}")
            self.database = self._session(self.name)
            self._check_durability()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _template(self):
        """Returns a database with the schema of the peer. The first measurement that needs it runs the setup."""
        options = self._options()
        wanted = (self.peer.name, *(options.get(name) for name in ("names", "keys", "history")))
        if wanted not in self.bench.templates:
            name = f"{self.name}_template"
            self.admin.run(f"create database {name} template template0")
            try:
                self._do("setup", database=self.bench.server.url(name), jobs=self.jobs, **options)
                session = self.bench.server.session(name)
                session.run("create table public.effect (n bigint not null)")
                session.close()
                self._disconnect(name)
            except BaseException:
                self.admin.run(f"drop database {name} with (force)")
                raise
            self.bench.templates[wanted] = name
        return self.bench.templates[wanted]

    def _disconnect(self, name):
        """Ends the sessions of a database: one that is connected to cannot be copied."""
        self.admin.run(f"alter database {name} with allow_connections false")
        of_it = f"from pg_stat_activity where datname = '{name}'"
        self.admin.run(f"select pg_terminate_backend(pid) {of_it}")
        for _ in range(1000):
            if self.admin.value(f"select count(*) {of_it}") == "0":
                return
            time.sleep(0.01)
        raise PeerError(f"sessions of {name} did not end within 10 s")

    def __exit__(self, *_):
        for driver in self.drivers:
            driver.kill()
        self.drivers.clear()
        try:
            self.admin.run(f"drop database if exists {self.name} with (force)")
        except ServerError:
            pass
        for session in self.sessions:
            session.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- What works are made of -----------------------------------------------------------------
    def _options(self):
        return {
            "history": {"history": True},
            "names": {"names": NAMES, "priorities": PRIORITIES},
            "large": {"bytes": LARGE_BYTES},
            "limit": {"keys": KEYS},
            "transaction": {"handler": "row"},
        }.get(self.work.name, {})

    def _session(self, name):
        session = self.bench.server.session(name)
        self.sessions.append(session)
        return session

    def _start(self, what, **options):
        options = {"database": self.bench.server.url(self.name), "connections": CONNECTIONS, **options}
        driver = self.peer.start(what, self.log, **options)
        self.drivers.append(driver)
        return driver

    def _do(self, what, **options):
        driver = self._start(what, **options)
        result = driver.finish(self.bench.limit)
        if "lacks" in result:
            raise Lacking(result["lacks"])
        return result

    def _wal(self):
        return self.database.value("select pg_current_wal_insert_lsn()")

    def _wal_since(self, start):
        return float(self.database.value(f"select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '{start}')"))

    def _check_durability(self):
        """Refuses a role or a database that turns durable commits off, and records tables that a crash empties."""
        weaker = self.database.value(
            "select string_agg(setting, ', ') from (select unnest(setconfig) as setting from pg_db_role_setting) s "
            "where setting ~ '^(fsync|synchronous_commit|full_page_writes)='")
        if weaker:
            raise PeerError(f"its setup changed {weaker} for a role or a database; the comparison needs durable commits")
        unlogged = self.database.value(
            "select string_agg(oid::regclass::text, ', ' order by oid::regclass::text) from pg_class "
            "where relpersistence = 'u' and relkind in ('r', 'p')")
        if unlogged:
            self.checked["unlogged"] = unlogged

    def _stored(self):
        return int(self.database.value(self.peer.manifest["stored"]))

    def _unfinished(self):
        statement = self.peer.manifest["unfinished"].replace("{jobs}", str(self.jobs))
        return self.database.value(f"select exists ({statement})") == "t"

    def _fill(self):
        """Stores all jobs in bulk. Returns the rate and the WAL per job."""
        self.database.run("checkpoint")
        wal = self._wal()
        done = self._do("enqueue", jobs=self.jobs, **self._options())
        written = self._wal_since(wal)
        self.database.run("analyze")
        self.checked["stored"] = self._stored()
        if self.checked["stored"] != self.jobs:
            raise PeerError(f"{self.jobs} jobs were enqueued, and the database has {self.checked['stored']}")
        self.filled = {"rate": self.jobs / done["seconds"], "wal": written / self.jobs}
        return self.filled

    def _work(self, processes=1, **options):
        """Runs workers until the database shows no unfinished job. Returns what they saw."""
        wal = self._wal()
        ledgers = [os.path.join(self.folder, f"ledger-{number}") for number in range(processes)]
        connections = CONNECTIONS if processes == 1 else CONNECTIONS_OF_MANY
        workers = [
            self._start("work", jobs=self.jobs, ledger=ledger, connections=connections, **self._options(), **options)
            for ledger in ledgers
        ]
        deadline = time.monotonic() + self.bench.limit
        ended = self._drained(workers, deadline, may_end_early=not options.get("feed"))
        written = self._wal_since(wal)
        for worker in workers:
            worker.stop()
        seen = [worker.finish(60) for worker in workers]
        self._check(ledgers)
        starts = [one["first"] for one in seen if one.get("first")]
        return {"seconds": ended - min(starts), "wal": written / self.jobs, "seen": seen}

    def _drained(self, workers, deadline, may_end_early):
        """Returns when the database first showed no unfinished job, after all handlers had started."""
        checked = time.monotonic()
        while True:
            for worker in workers:
                worker.poll()
                if worker.result is not None:
                    raise PeerError("the worker stopped before its stdin was closed")
            ran = sum(worker.ran for worker in workers)
            now = time.monotonic()
            # A count that is short of the jobs for seconds may mean that jobs were lost: the database decides.
            if ran >= self.jobs or may_end_early and now - checked > 5:
                checked = now
                if not self._unfinished():
                    return time.time()
            if now > deadline:
                raise PeerError(f"not drained within {self.bench.limit} s: {ran} of {self.jobs} handlers had started")
            time.sleep(0.002 if ran >= self.jobs else 0.01)

    def _check(self, ledgers, jobs=None):
        """Counts jobs that ran once, that never ran, and that ran more than once."""
        jobs = jobs or self.jobs
        runs = bytearray(jobs)
        for path in ledgers:
            try:
                with open(path, "rb") as file:
                    written = file.read()
            except FileNotFoundError:
                raise PeerError("the driver wrote no ledger") from None
            runs = bytearray(min(one + other, 255) for one, other in zip(runs, written.ljust(jobs, b"\0")))
        self.checked |= {"once": runs.count(1), "never": runs.count(0), "twice": sum(count > 1 for count in runs)}

    def _drain(self, **options):
        self._fill()
        done = self._work(**options)
        return {"rate": self.jobs / done["seconds"], "wal": done["wal"]}, done["seen"]

    # ---- The works ------------------------------------------------------------------------------
    def work_drain(self):
        return self._drain()[0]

    work_history = work_names = work_large = work_drain

    def work_bulk(self):
        return self._fill()

    def work_single(self):
        figures = {}
        for how in ("plain", "key", "transaction"):
            self.database.run("checkpoint")
            before = self._stored()
            try:
                done = self._do("single", jobs=self.jobs, how=how)
            except Lacking:
                continue
            stored = self._stored() - before
            if stored != self.jobs:
                raise PeerError(f"{self.jobs} jobs were enqueued ({how}), and the database has {stored} more")
            self.checked["stored"] = self.checked.get("stored", 0) + stored
            figures[how] = self.jobs / done["seconds"]
        return figures

    def work_latency(self):
        self.database.run("analyze")
        ledger = os.path.join(self.folder, "ledger")
        waits = sorted(self._do("latency", jobs=self.jobs, ledger=ledger)["latency_ms"])
        self._check([ledger], self.jobs + WARM_UP)
        if len(waits) != self.jobs:
            raise PeerError(f"{len(waits)} handlers started for {self.jobs} jobs")
        return {"p50": percentile(waits, 50), "p99": percentile(waits, 99)}

    def work_snapshot(self):
        self.database.run("checkpoint")
        holder = self._session(self.name)
        holder.run("begin isolation level repeatable read")
        holder.run("select count(*) from pg_class")
        done = self._work(feed=True)
        holder.run("rollback")
        seen = done["seen"][0]
        return {**fifths(seen["first"], seen["marks"], self.jobs), "rate": self.jobs / done["seconds"]}

    def work_transaction(self):
        figures = self._drain()[0]
        rows, jobs = self.database.value("select count(*) || ' ' || count(distinct n) from public.effect").split()
        if int(jobs) != self.jobs:
            raise PeerError(f"the handlers wrote rows for {jobs} of {self.jobs} jobs")
        self.checked["rows_too_many"] = int(rows) - int(jobs)
        return figures

    def work_processes(self):
        figures = self._drain(processes=PROCESSES)[0]
        return {**figures, "twice": self.checked["twice"]}

    def work_limit(self):
        figures, seen = self._drain()
        return {**figures, "together": max(one.get("together", 0) for one in seen)}


def percentile(ordered, percent):
    """The value that `percent` of the values do not exceed."""
    place = -(-len(ordered) * percent // 100)
    return ordered[max(int(place), 1) - 1]


def fifths(first, marks, jobs):
    """Rates of the first and last fifth. A mark is the number of started handlers and the time of the last."""
    fifth = jobs // 5
    times = {0: first, **{number: at for number, at in marks}}
    ends = [number for number in times if number >= jobs]
    try:
        return {
            "first": fifth / (times[fifth] - first),
            "last": fifth / (times[min(ends)] - times[jobs - fifth]),
        }
    except (KeyError, ValueError, ZeroDivisionError):
        raise PeerError("the driver reported no times for the first and last fifth") from None
