#!/usr/bin/env python3
"""Claims jobs and prints letters until SIGTERM or Ctrl-C, then releases the jobs that it has not started.

Usage: DATABASE_URL=postgres://... consume.py

Needs psycopg2: python3 -m pip install psycopg2-binary, or python3-psycopg2 on Debian. LEASE sets the length of a
lease, such as "10 seconds".

A claim also reclaims jobs of dead consumers. Where no worker of the library runs, let cron call
"select * from leasehold.housekeep()" every minute: it prunes, and buries jobs that expired.

A claim whose reply is lost keeps its jobs until the lease runs out. To continue at once, pass a new UUID as claim_id
to leasehold.claim, and after a reconnect read its jobs with leasehold.recover_claim(worker, claim_id).
"""

import os
import signal
import socket
import sys
import threading
import time

import psycopg2

QUEUE = "letters"
WORKER = f"python/{socket.gethostname()}/{os.getpid()}"
LEASE = os.environ.get("LEASE", "30 seconds")
# The version of the SQL interface that this program was written for.
CONTRACT = 1

# A plain flag: setting an Event in a signal handler can wait forever for the lock of the very wait
# that the signal interrupted.
stopping = False


class LeaseLost(Exception):
    """Another worker owns the job now: roll back and drop the result."""


def connect():
    # A peer that vanished is noticed after 30 seconds, not after hours.
    return psycopg2.connect(
        os.environ["DATABASE_URL"], application_name="consume.py", connect_timeout=10,
        keepalives_idle=10, keepalives_interval=5, keepalives_count=4, tcp_user_timeout=30_000,
    )


def check_contract(connection):
    with connection, connection.cursor() as cursor:
        cursor.execute("select leasehold.contract()")
        found = cursor.fetchone()[0]
    if found != CONTRACT:
        sys.exit(f"the SQL interface of Leasehold has version {found}; consume.py needs {CONTRACT}: use the "
                 "consume.py of the release that the database has")


def print_letter(cursor, kwargs):
    """Prints a letter. Its writes commit together with the completion of the job."""
    cursor.execute("select receiver from letter where number = %s", (kwargs["letter"],))
    row = cursor.fetchone()
    if row is None:
        raise ValueError(f"there is no letter {kwargs['letter']}")
    cursor.execute("insert into printed values (%s, 'python')", (kwargs["letter"],))


HANDLERS = {"letter.print": print_letter}


class Renewal:
    """Renews one lease from a thread and a connection of its own, as long as the work takes.

    Renewing on the connection that works would have to wait for the work.
    """

    def __init__(self, generation, lease_seconds):
        self.generation = generation
        self.pause = lease_seconds / 3
        self.lost = threading.Event()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def run(self):
        connection = None
        while not self.over.wait(self.pause) and not self.lost.is_set():
            try:
                if connection is None:
                    connection = connect()
                    connection.autocommit = True
                with connection.cursor() as cursor:
                    cursor.execute("select state from leasehold.renew(array[%s]::bigint[])", (self.generation,))
                    if cursor.fetchone()[0] == "lost":
                        self.lost.set()  # 'renewed', 'busy' and 'ended' are fine
            except psycopg2.Error:
                # Retry in the next round. If the lease runs out meanwhile, the fence refuses the completion.
                connection = None
        if connection is not None:
            connection.close()


def work(connection, job, renewal):
    """Runs one job: the work and its completion are one transaction."""
    job_id, name, kwargs, generation = job
    try:
        if renewal.lost.is_set():
            raise LeaseLost
        with connection, connection.cursor() as cursor:
            HANDLERS[name](cursor, kwargs)
            cursor.execute("select leasehold.complete(%s, %s)", (job_id, generation))
            if not cursor.fetchone()[0]:
                raise LeaseLost
        print(f"done {job_id}", flush=True)
    except LeaseLost:
        print(f"lost {job_id}", flush=True)
    except Exception as error:  # noqa: BLE001: record every error with the job
        if connection.closed:
            raise  # no database: the supervisor restarts this process, and the job returns after its lease
        with connection, connection.cursor() as cursor:
            cursor.execute("select leasehold.fail(%s, %s, %s)", (job_id, generation, f"{type(error).__name__}: {error}"))
            print(f"{cursor.fetchone()[0]} {job_id}", flush=True)  # retry, buried, cancelled or lost


def claim(connection):
    with connection, connection.cursor() as cursor:
        cursor.execute(
            "select id, name, kwargs, lease_generation, extract(epoch from lease)::float8"
            "  from leasehold.claim(%s, %s, claim_size => 10, lease => %s::interval, names => %s)",
            (WORKER, QUEUE, LEASE, list(HANDLERS)),
        )
        return cursor.fetchall()


def stop(*_):
    global stopping
    stopping = True


def main():
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    connection = connect()
    check_contract(connection)
    print("ready", flush=True)
    while not stopping:
        claimed = claim(connection)
        if not claimed:
            time.sleep(0.5)
            continue
        # The jobs of one claim share one lease.
        generation, lease_seconds = claimed[0][3], claimed[0][4]
        with Renewal(generation, lease_seconds) as renewal:
            while claimed and not stopping:
                work(connection, claimed.pop(0)[:4], renewal)
        if claimed:
            with connection, connection.cursor() as cursor:
                cursor.execute(
                    "select leasehold.release(%s, %s)", ([job[0] for job in claimed], generation)
                )
    connection.close()
    print("stopped", flush=True)


if __name__ == "__main__":
    main()
