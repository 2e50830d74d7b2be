"""procrastinate."""
import pathlib
import sys

import procrastinate
import psycopg
import uvloop
from procrastinate.exceptions import AlreadyEnqueued
from procrastinate.jobs import Job

sys.path.append(str(pathlib.Path(__file__).parents[2] / "drivers"))
import compare_driver as driver  # noqa: E402

EFFECT = "insert into public.effect (n) values (%s)"
CONCURRENCY = 50


class ProcrastinatePeer(driver.Peer):
    def app_of(self):
        connector = procrastinate.PsycopgConnector(
            conninfo=self.options.database, min_size=1, max_size=self.options.connections
        )
        app = procrastinate.App(connector=connector)

        async def handle(n, filler=""):
            self.ledger.started(n)
            if self.options.handler == "row":
                await connector.execute_query_async(EFFECT.replace("%s", "%(n)s"), n=n)
            self.ledger.ended(n)

        for name in self.names():
            app.task(name=name, queue="bench")(handle)
        return app

    async def setup(self):
        async with self.app_of().open_async() as app:
            await app.schema_manager.apply_schema_async()

    async def open(self):
        self.app = self.app_of()
        await self.app.open_async()
        self.connection = await psycopg.AsyncConnection.connect(self.options.database)

    def job(self, n):
        return Job(
            id=None, queue="bench", lock=self.key(n) if self.options.keys else None, queueing_lock=None,
            task_name=self.name(n), task_kwargs=self.data(n), priority=self.priority(n),
        )

    async def bulk(self, first, end):
        # What batch_defer_async of a task calls, with jobs of several names, priorities and locks.
        await self.app.job_manager.batch_defer_jobs_async(jobs=[self.job(n) for n in range(first, end)])

    async def plain(self, n):
        await self.app.configure_task(self.name(n)).defer_async(**self.data(n))

    async def keyed(self, n):
        try:
            await self.app.configure_task(self.name(n), queueing_lock=f"once_{n}").defer_async(**self.data(n))
        except AlreadyEnqueued:
            pass

    async def transaction(self, n, before):
        async with self.connection.cursor() as cursor:
            await cursor.execute(EFFECT, (n,))
        await self.app.configure_task(self.name(n), connection=self.connection).defer_async(**self.data(n))
        before()
        await self.connection.commit()

    async def work(self):
        await self.app.run_worker_async(
            queues=["bench"], concurrency=CONCURRENCY, install_signal_handlers=False,
            delete_jobs="never" if self.options.history else "successful",
        )


driver.main(ProcrastinatePeer, uvloop.run)
