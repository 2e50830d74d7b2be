"""pgqueuer."""
import asyncio
import json
import pathlib
import sys
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

sys.path.append(str(pathlib.Path(__file__).parents[2] / "drivers"))
import compare_driver as driver  # noqa: E402

EFFECT = "insert into public.effect (n) values ($1)"


class PgQueuerPeer(driver.Peer):
    async def setup(self):
        connection = await asyncpg.connect(self.options.database)
        await Queries(AsyncpgDriver(connection)).install()
        await connection.close()

    async def open(self):
        self.connection = await asyncpg.connect(self.options.database)
        self.queries = Queries(AsyncpgDriver(self.connection))
        self.pool = None
        if self.options.handler == "row":
            self.pool = await asyncpg.create_pool(self.options.database, min_size=1, max_size=self.options.connections)

    def encoded(self, n):
        return json.dumps(self.data(n)).encode()

    async def bulk(self, first, end):
        jobs = range(first, end)
        await self.queries.enqueue(
            [self.name(n) for n in jobs], [self.encoded(n) for n in jobs], [self.priority(n) for n in jobs]
        )

    async def plain(self, n):
        await self.queries.enqueue(self.name(n), self.encoded(n))

    async def keyed(self, n):
        await self.queries.enqueue(self.name(n), self.encoded(n), dedupe_key=f"once_{n}")

    async def transaction(self, n, before):
        transaction = self.connection.transaction()
        await transaction.start()
        await self.connection.execute(EFFECT, n)
        await self.plain(n)
        before()
        await transaction.commit()

    async def work(self):
        connection = await asyncpg.connect(self.options.database)
        pgq = PgQueuer.from_asyncpg_connection(connection)

        async def handle(job):
            n = json.loads(job.payload)["n"]
            self.ledger.started(n)
            if self.pool is not None:
                await self.pool.execute(EFFECT, n)
            self.ledger.ended(n)

        for name in self.names():
            pgq.entrypoint(name)(handle)
        try:
            await pgq.run(dequeue_timeout=timedelta(seconds=1), batch_size=1000)
        except asyncio.CancelledError:
            pgq.shutdown.set()
            raise


driver.main(PgQueuerPeer, uvloop.run)
