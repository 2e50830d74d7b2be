"""The private PostgreSQL of a comparison, and sessions to it through psql."""
import ctypes
import os
import pwd
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
from glob import glob

# Everything else has PostgreSQL's default.
SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
}
# Shown with the figures: those, and what decides whether figures are durable.
SHOWN = (*SETTINGS, "full_page_writes", "autovacuum", "max_connections", "wal_level")


class ServerError(Exception):
    """The server or a statement failed; the text says what to do."""


def binaries():
    """Returns the folder of initdb and postgres, looked for where scripts/lib/machine.sh does."""
    named = os.environ.get("LEASEHOLD_PG_BIN")
    if named:
        if os.access(os.path.join(named, "initdb"), os.X_OK):
            return named
        raise ServerError(f"LEASEHOLD_PG_BIN is {named}, and there is no initdb in it; "
                          "name the folder of initdb and postgres, or unset it")
    on_path = shutil.which("initdb")
    if on_path and os.access(os.path.join(os.path.dirname(on_path), "postgres"), os.X_OK):
        return os.path.dirname(on_path)
    found = sorted(glob("/usr/lib/postgresql/*/bin/initdb"), key=lambda path: int(path.split("/")[4].split(".")[0]))
    if found:
        return os.path.dirname(found[-1])
    raise ServerError("PostgreSQL's initdb was not found; run scripts/test --prepare, or set LEASEHOLD_PG_BIN")


def ends_with_parent(number):
    """Returns a preexec_fn that has Linux send a signal to the child when this process dies."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl

    def arm():
        prctl(1, number)

    return arm


class Session:
    """A psql process that runs one statement after the other."""

    MARK = "leasehold-end-of-reply"

    def __init__(self, url):
        self.process = subprocess.Popen(
            ["psql", "--no-psqlrc", "--quiet", "--no-align", "--tuples-only", url],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            preexec_fn=ends_with_parent(signal.SIGKILL),
        )
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def run(self, statement, timeout=600):
        """Runs a statement and returns its lines."""
        try:
            self.process.stdin.write(f"{statement.rstrip().rstrip(';')};\n\\echo {self.MARK}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise ServerError(f"the session of psql has ended; its statement was: {statement}") from None
        lines = []
        while True:
            try:
                line = self.lines.get(timeout=timeout)
            except queue.Empty:
                raise ServerError(f"no reply within {timeout} s to: {statement}") from None
            if line is None:
                raise ServerError(f"psql has ended: {' '.join(lines)}")
            if line == self.MARK:
                break
            lines.append(line)
        for line in lines:
            if line.startswith(("ERROR:", "FATAL:", "psql:")):
                raise ServerError(f"{' '.join(lines)}; the statement was: {statement}")
        return lines

    def value(self, statement):
        lines = self.run(statement)
        return lines[0] if lines else None

    def close(self):
        if self.process.poll() is None:
            try:
                self.process.stdin.close()
                self.process.wait(timeout=5)
            except (BrokenPipeError, subprocess.TimeoutExpired):
                self.process.kill()
                self.process.wait()


class Server:
    """A PostgreSQL server in a folder of its own, which ends with this process."""

    def __init__(self, folder):
        self.folder = folder
        self.data = os.path.join(folder, "data")
        self.bin = binaries()
        self.owner = self._owner()
        self.port = self._free_port()
        self.process = None

    @staticmethod
    def _owner():
        # PostgreSQL refuses to run as root.
        if os.getuid() != 0:
            return None
        try:
            return pwd.getpwnam("postgres")
        except KeyError:
            raise ServerError("PostgreSQL does not run as root, and there is no user named postgres; "
                              "run this as another user") from None

    @staticmethod
    def _free_port():
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            return listener.getsockname()[1]

    def _as_owner(self):
        if self.owner is None:
            return {}
        return {"user": self.owner.pw_uid, "group": self.owner.pw_gid, "extra_groups": [self.owner.pw_gid]}

    def start(self):
        os.makedirs(self.folder, exist_ok=True)
        if self.owner is not None:
            os.chown(self.folder, self.owner.pw_uid, self.owner.pw_gid)
        made = subprocess.run(
            [os.path.join(self.bin, "initdb"), "--pgdata", self.data, "--username", "bench", "--auth", "trust",
             "--encoding", "UTF8", "--locale", "C"],
            capture_output=True, text=True, cwd=self.folder, **self._as_owner(),
        )
        if made.returncode != 0:
            raise ServerError(f"initdb failed: {made.stderr.strip()}")
        arguments = {
            **SETTINGS, "listen_addresses": "127.0.0.1", "port": str(self.port), "unix_socket_directories": "",
        }
        command = [os.path.join(self.bin, "postgres"), "-D", self.data]
        for name, value in arguments.items():
            command += ["-c", f"{name}={value}"]
        with open(os.path.join(self.folder, "postgres.log"), "wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                preexec_fn=ends_with_parent(signal.SIGQUIT), **self._as_owner(),
            )
        ready = ["psql", "--no-psqlrc", "--quiet", "--command", "select", self.url("postgres")]
        for _ in range(300):
            if self.process.poll() is not None:
                raise ServerError(f"PostgreSQL did not start: {self._end_of_log()}")
            if subprocess.run(ready, capture_output=True).returncode == 0:
                return self
            threading.Event().wait(0.1)
        raise ServerError("PostgreSQL did not accept connections within 30 s")

    def _end_of_log(self):
        with open(os.path.join(self.folder, "postgres.log"), encoding="utf-8", errors="replace") as log:
            return " ".join(log.read().splitlines()[-3:])

    def url(self, database):
        return f"postgres://bench@127.0.0.1:{self.port}/{database}"

    def session(self, database):
        return Session(self.url(database))

    def settings(self):
        session = self.session("postgres")
        try:
            shown = {name: session.value(f"show {name}") for name in SHOWN}
            shown["server_version"] = session.value("show server_version").split()[0]
            return shown
        finally:
            session.close()

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.process.send_signal(signal.SIGQUIT)
                self.process.wait()
        self.process = None
        shutil.rmtree(self.folder, ignore_errors=True)
