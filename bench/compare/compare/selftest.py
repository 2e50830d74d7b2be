"""Checks of the tool on recorded results: no peer is installed, and no server is started."""
import os
import re
import xml.etree.ElementTree as Tree

from . import figures, plot, report
from .peers import FOLDER, ORDER, Peer
from .works import WORKS, fifths, percentile

# Two peers and every kind of result: several rounds, one round, lacking, failed, the figure of another work.
SMALL = {
    "v": 1, "when": "2026-01-01 00:00 UTC", "command": "bench/compare/run", "rounds": 2, "jobs": 100_000,
    "machine": {"cpus": 2, "cpu": "a <test> & more", "memory_gib": 8, "system": "Linux"},
    "postgres": {"server_version": "15.18", "fsync": "on"},
    "peers": {
        name: {
            "title": title, "package": name, "version": "1.0", "settings": "10 | 20", "language": "Rust",
            "semantics": {kind: "yes" for kind in ("fence", "finished", "recovery", "transaction", "key", "limit")},
        }
        for name, title in (("leasehold", "Leasehold"), ("awa", "awa"))
    },
    "results": [
        {"peer": "leasehold", "work": "drain", "round": 1, "jobs": 100_000, "figures": {"rate": 50_000.0, "wal": 480.4}},
        {"peer": "leasehold", "work": "drain", "round": 2, "jobs": 100_000, "figures": {"rate": 60_000.0, "wal": 481.0}},
        {"peer": "awa", "work": "drain", "round": 1, "jobs": 100_000, "figures": {"rate": 12_345.6, "wal": 90.0},
         "twice": 3},
        {"peer": "awa", "work": "drain", "round": 2, "jobs": 100_000, "failed": "not drained within 300 s"},
        {"peer": "leasehold", "work": "limit", "round": 1, "lacks": "not in this build"},
        {"peer": "awa", "work": "history", "round": 1, "same_as": "drain"},
        {"peer": "leasehold", "work": "history", "round": 1, "jobs": 100_000, "figures": {"rate": 40_000.0, "wal": 600.0}},
    ],
}


def check_figures():
    rate = figures.cell(SMALL, "leasehold", "drain", "rate")
    assert (rate["median"], rate["low"], rate["high"]) == (55_000.0, 50_000.0, 60_000.0), rate
    assert figures.cell(SMALL, "awa", "history", "rate")["median"] == 12_345.6
    assert figures.cell(SMALL, "leasehold", "limit", "rate")["note"] == "not in this build"
    assert figures.cell(SMALL, "awa", "limit", "rate")["kind"] == "absent"
    shown = [figures.number(value) for value in (123_456.7, 12.34, 1.5, 0.5678, 0.0)]
    assert shown == ["123,457", "12.3", "1.50", "0.568", "0"], shown
    assert [percentile(list(range(1, 201)), percent) for percent in (50, 99)] == [100, 198]
    rates = fifths(0.0, [[number, number / 50.0] for number in range(50, 1001, 50)], 1000)
    assert (round(rates["first"]), round(rates["last"])) == (50, 50), rates


def check_table():
    text = figures.table(SMALL)
    for words in ("55,000 (50,000–60,000) jobs/s", "not in this build", "3 of 100000 jobs ran more than once",
                  "failed: not drained within 300 s"):
        assert words in text, f"{words!r} is missing in:\n{text}"


def check_plots(data):
    for work in figures.works_of(data):
        if plot.draws(data, work):
            text = plot.bars(data, work)
            root = Tree.fromstring(text)
            assert root.tag == "{http://www.w3.org/2000/svg}svg", root.tag
            assert "prefers-color-scheme: dark" in text
            height = float(root.get("height"))
            below = [one for one in root.iter() if float(one.get("y", 0)) > height]
            assert not below, f"{work.name}: {len(below)} elements are below the page"


def check_report(data):
    first, second = report.files(data), report.files(data)
    assert first == second, "two reports of the same results differ"
    for path, text in first.items():
        assert text.endswith("\n"), f"{path} does not end with a newline"
    columns = 0
    for number, line in enumerate(first["benchmarks.md"].splitlines(), 1):
        before, columns = columns, line.count("|") if line.startswith("|") else 0
        assert 0 in (before, columns) or before == columns, f"line {number} of the report has another number of columns"
    return first


def check_peers():
    """Every manifest is complete, and the lock file of our own driver names the engine's dependencies of today."""
    for name in ORDER:
        peer = Peer(name, "/nowhere")
        assert peer.version().strip(), f"{name} has no version"
        unknown = (set(peer.lacks) | set(peer.manifest.get("most_jobs", {}))) - {work.name for work in WORKS} - {"*"}
        assert not unknown, f"peer.json of {name} names works that do not exist: {', '.join(sorted(unknown))}"
    folder = os.path.join(FOLDER, "leasehold")
    with open(os.path.join(folder, "Cargo.lock"), encoding="utf-8") as file:
        lock = file.read()
    for crate in ("leasehold", "leasehold-macros"):
        with open(os.path.join(folder, "../../../../crates", crate, "Cargo.toml"), encoding="utf-8") as file:
            section = file.read().split("\n[dependencies]\n", 1)[1].split("\n[", 1)[0]
        wanted = {re.split(r"[.\s=]", line)[0] for line in section.splitlines()
                  if line and not line.startswith("#") and "optional = true" not in line}
        entry = lock.split(f'name = "{crate}"\n', 1)[1].split("[[package]]", 1)[0]
        # A dependency with several versions in the lock file has its version behind its name.
        locked = set(re.findall(r'^ "([^" ]+)', entry, re.MULTILINE))
        assert wanted == locked, (f"{folder}/Cargo.lock does not have the dependencies of {crate}: "
                                  f"{', '.join(sorted(wanted ^ locked))}; run cargo update --workspace there")


def check_recorded(load, recorded, docs):
    """docs/benchmarks.md and its plots are those of the recorded results, or say that there are none."""
    data = load(recorded) if os.path.exists(recorded) else None
    if data is None:
        made = report.files(None)
    else:
        assert data["jobs"] >= figures.ENOUGH_JOBS, f"{recorded} is a run of {data['jobs']:,} jobs, which has no figures"
        check_plots(data)
        made = check_report(data)
    for path, text in made.items():
        with open(os.path.join(docs, path), encoding="utf-8") as file:
            same = file.read() == text
        assert same, (f"docs/{path} is not the report of bench/compare/results.json; run: bench/compare/run --report "
                      "bench/compare/results.json" if data else
                      f"docs/{path} is not the page for no results, and there is no bench/compare/results.json")
    folder = os.path.join(docs, report.IMAGES)
    kept = {f"{report.IMAGES}/{name}" for name in os.listdir(folder)} if os.path.isdir(folder) else set()
    assert kept <= set(made), f"docs has plots that the report does not show: {', '.join(sorted(kept - set(made)))}"


def run(load, recorded, docs):
    check_figures()
    check_table()
    check_plots(SMALL)
    check_report(SMALL)
    assert len({work.name for work in WORKS}) == len(WORKS)
    check_peers()
    check_recorded(load, recorded, docs)
    print("bench/compare: figures, table, plots, report and the recorded results are in order")
    return 0
