#!/usr/bin/env python3
"""Stores letters and enqueues a job for each, in one transaction.

Usage: DATABASE_URL=postgres://... produce.py FIRST COUNT

Needs psycopg2 (python3 -m pip install psycopg2-binary, or python3-psycopg2 on Debian) and a migrated database
(leasehold migrate up).
"""

import json
import os
import sys

import psycopg2

TABLES = """
    create table if not exists letter (number bigint primary key, receiver text not null);
    create table if not exists printed (letter bigint not null, by text not null);
"""


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    first, count = int(sys.argv[1]), int(sys.argv[2])
    connection = psycopg2.connect(os.environ["DATABASE_URL"], connect_timeout=10)
    # `with connection` is one transaction: committed at its end, rolled back by an exception.
    with connection, connection.cursor() as cursor:
        # Two producers that start together must not both create the tables.
        cursor.execute("select pg_advisory_xact_lock(hashtext('letter'))")
        cursor.execute(TABLES)
    new = 0
    for number in range(first, first + count):
        with connection, connection.cursor() as cursor:
            cursor.execute(
                "insert into letter values (%s, %s) on conflict do nothing", (number, f"reader {number}")
            )
            # The key makes a repeated run harmless: the second call returns the first job.
            cursor.execute(
                "select job_id, inserted from leasehold.enqueue("
                " 'letter.print', %s::jsonb, queue => 'letters', key => %s)",
                (json.dumps({"letter": number}), f"letter:{number}"),
            )
            _job_id, inserted = cursor.fetchone()
            new += inserted
    connection.close()
    print(f"{new} new jobs, {count - new} known")


if __name__ == "__main__":
    main()
