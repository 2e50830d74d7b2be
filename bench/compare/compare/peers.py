"""The peers: their manifests, their installation, and their driver programs."""
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

from .server import ends_with_parent

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER = os.path.join(HERE, "peers")
# The order of tables and plots.
ORDER = (
    "leasehold", "graphile-worker-rs", "awa", "apalis-postgres", "graphile-worker", "pg-boss", "river", "pgqueuer",
    "procrastinate",
)
# A cold build of a peer takes minutes on two cores.
INSTALL_TIMEOUT = 3600
FIELDS = {"title", "language", "package", "lock", "unfinished", "stored", "keeps", "settings", "semantics", "lacks"}


class PeerError(Exception):
    """A peer could not be installed, or its driver failed."""


class Peer:
    def __init__(self, name, cache):
        self.name = name
        self.folder = os.path.join(FOLDER, name)
        self.cache = cache
        with open(os.path.join(self.folder, "peer.json"), encoding="utf-8") as file:
            self.manifest = json.load(file)
        missing = FIELDS - set(self.manifest)
        if missing:
            raise PeerError(f"{self.folder}/peer.json lacks {', '.join(sorted(missing))}")

    @property
    def lacks(self):
        return self.manifest["lacks"]

    def jobs(self, work, jobs):
        """Returns how many jobs this peer gets: fewer, where all of them would not end in time."""
        most = self.manifest.get("most_jobs", {})
        return min(jobs, most.get(work, most.get("*", jobs)))

    def _kind(self):
        manifests = {"Cargo.toml": "rust", "package.json": "node", "go.mod": "go", "requirements.txt": "python"}
        for file, kind in manifests.items():
            if os.path.exists(os.path.join(self.folder, file)):
                return kind
        raise PeerError(f"{self.folder} has no Cargo.toml, package.json, go.mod or requirements.txt")

    def version(self):
        """Returns the version in the lock file, or the commit for a peer of this repository."""
        file, package = self.manifest["lock"]["file"], self.manifest["package"]
        with open(os.path.join(self.folder, file), encoding="utf-8") as opened:
            text = opened.read()
        if file == "Cargo.lock":
            found = re.search(rf'name = "{re.escape(package)}"\nversion = "([^"]+)"', text)
        elif file == "package-lock.json":
            return json.loads(text)["packages"][f"node_modules/{package}"]["version"]
        elif file == "go.mod":
            found = re.search(rf"^\s*{re.escape(package)} v(\S+)", text, re.MULTILINE)
        else:
            found = re.search(rf"^{re.escape(package)}==(\S+)", text, re.MULTILINE | re.IGNORECASE)
        if not found:
            raise PeerError(f"{file} of {self.name} does not name {package}")
        version = found.group(1)
        if self.manifest["lock"].get("commit"):
            described = subprocess.run(
                ["git", "-C", HERE, "describe", "--always", "--dirty", "--abbrev=8"], capture_output=True, text=True
            )
            version = f"{version} ({described.stdout.strip() or 'no commit'})"
        return version

    # ---- Installing -----------------------------------------------------------------------------
    def install(self, log):
        """Installs what the lock file names, or fails with the last lines of the tool."""
        kind = self._kind()
        environment = dict(os.environ)
        if kind == "rust":
            environment["CARGO_TARGET_DIR"] = os.path.join(self.cache, "cargo")
            commands = [["cargo", "build", "--release", "--locked"]]
        elif kind == "node":
            commands = [["npm", "ci", "--no-audit", "--no-fund", "--silent", "--foreground-scripts"]]
        elif kind == "go":
            commands = [["go", "build", "-trimpath", "-o", os.path.join(self.cache, "bin", self.name), "."]]
        else:
            venv = os.path.join(self.cache, f"python-{self.name}")
            commands = [
                [sys.executable, "-m", "venv", venv],
                [os.path.join(venv, "bin", "pip"), "install", "--quiet", "--disable-pip-version-check",
                 "-r", "requirements.txt"],
            ]
        if shutil.which(commands[0][0]) is None:
            raise PeerError(f"{commands[0][0]} is not on this machine")
        os.makedirs(os.path.join(self.cache, "bin"), exist_ok=True)
        for command in commands:
            with open(log, "ab") as out:
                try:
                    done = subprocess.run(
                        command, cwd=self.folder, env=environment, stdout=out, stderr=out, timeout=INSTALL_TIMEOUT)
                except subprocess.TimeoutExpired:
                    raise PeerError(f"{' '.join(command[:3])} did not end within {INSTALL_TIMEOUT} s") from None
            if done.returncode != 0:
                raise PeerError(f"{' '.join(command[:3])} failed: {last_lines(log)}")

    def _program(self):
        kind = self._kind()
        if kind == "rust":
            return [os.path.join(self.cache, "cargo", "release", f"driver-{self.name}")]
        if kind == "node":
            return [os.path.join(self.folder, "node_modules", ".bin", "node"), os.path.join(self.folder, "driver.mjs")]
        if kind == "go":
            return [os.path.join(self.cache, "bin", self.name)]
        python = os.path.join(self.cache, f"python-{self.name}", "bin", "python")
        return [python, os.path.join(self.folder, "driver.py")]

    def start(self, work, log, **options):
        command = [*self._program(), work]
        for name, value in options.items():
            if value is not None and value is not False:
                command += [f"--{name.replace('_', '-')}", str(value) if value is not True else "1"]
        return Driver(self, command, log)


def last_lines(path, count=4):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file.read().splitlines() if line.strip()]
    except FileNotFoundError:
        lines = []
    # A path of this machine says nothing to a reader of the report.
    return " / ".join(lines[-count:])[-300:].replace(HERE, "bench/compare") or "no output"


class Driver:
    """A driver program at work. It prints one JSON object per line and stops when its stdin closes."""

    def __init__(self, peer, command, log):
        self.peer, self.log = peer, log
        self.said = queue.Queue()
        self.ran = 0
        self.result = None
        with open(log, "ab") as errors:
            errors.write(f"$ {' '.join(command)}\n".encode())
            errors.flush()
            try:
                self.process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                    cwd=peer.folder, preexec_fn=ends_with_parent(signal.SIGKILL),
                )
            except OSError as error:
                raise PeerError(f"the driver could not be started: {error}") from None
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            # A library may print lines of its own.
            if line.startswith("{"):
                try:
                    self.said.put(json.loads(line))
                except ValueError:
                    continue
        self.said.put(None)

    def _take(self, message):
        if message is None:
            self.process.wait()
            raise PeerError(f"the driver ended with {self.process.returncode}: {last_lines(self.log)}")
        if "error" in message:
            raise PeerError(message["error"])
        if "ran" in message:
            self.ran = message["ran"]
        if message.get("done"):
            self.result = message

    def poll(self):
        """Takes what the driver has printed, without waiting."""
        while self.result is None:
            try:
                self._take(self.said.get_nowait())
            except queue.Empty:
                return

    def stop(self):
        """Closes stdin: the driver stops its worker and prints its result."""
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass

    def finish(self, limit):
        """Waits for the result."""
        deadline = time.monotonic() + limit
        while self.result is None:
            try:
                self._take(self.said.get(timeout=max(deadline - time.monotonic(), 0)))
            except queue.Empty:
                raise PeerError(f"the driver did not end within {limit:.0f} s; {self.ran} jobs had run") from None
        # The result is complete, and the database is dropped next: how a worker stops is not measured.
        self.kill()
        return self.result

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
