"""docs/benchmarks.md, from the JSON of a run. Equal JSON gives equal text."""
import os

from .figures import ENOUGH_JOBS, cell, number, ordered_peers, problems, results, spread, title, works_of
from .plot import bars, draws

IMAGES = "images/benchmarks"
NOTHING = """\
# Benchmarks

<!-- Written by bench/compare/run --report from bench/compare/results.json; a test compares them. -->

No run is recorded. To measure Leasehold beside other queues on PostgreSQL, and to write this page:

```sh
bench/compare/run --install
bench/compare/run --json bench/compare/results.json
bench/compare/run --report bench/compare/results.json
```

[bench/compare](../bench/compare/README.md) has how it is measured, and what is fair about it.
"""


LABELS = {
    "fence": "Fenced", "finished": "Finished jobs", "recovery": "Jobs of a dead worker", "key": "Idempotency key",
    "transaction": "Row and completion commit together", "limit": "Limit",
}


def image(work):
    return f"{IMAGES}/{work.name}.svg"


def line(cells):
    return f"| {' | '.join(str(one).replace('|', '/') for one in cells)} |"


def rows(head, body):
    return [line(head), line(["---"] * len(head)), *(line(one) for one in body)]


def few_jobs(data, peer, work):
    """The number of jobs, where this peer had fewer than the others."""
    mine = [result["jobs"] for result in results(data, peer, work.name) if "jobs" in result]
    wanted = work.jobs(data["jobs"])
    return f", {min(mine):,} jobs" if mine and min(mine) < wanted else ""


def shown(data, peer, work, figure):
    found = cell(data, peer, work.name, figure.key)
    if "note" in found:
        return "**failed**" if found["kind"] == "failed" else "–"
    return f"{number(found['median'])}{spread(found)}"


def what_is_beside(data, peer, work):
    """What a peer promises where its figure stands."""
    means = data["peers"][peer]["semantics"]
    kinds = {
        "drain": ("fence", "finished"), "history": ("fence", "finished"), "bulk": ("key",), "single": ("key",),
        "latency": ("recovery",),
        "snapshot": ("finished",), "names": ("fence",), "large": ("finished",), "transaction": ("transaction",),
        "processes": ("fence", "recovery"), "limit": ("limit",),
    }[work.name]
    return ". ".join(f"{LABELS[kind]}: {means[kind]}" for kind in kinds)


def of_work(data, work):
    yield f"## {work.title}"
    yield ""
    yield f"{work.what} {work.jobs(data['jobs']):,} jobs."
    yield ""
    if draws(data, work):
        yield f"![{work.title}]({image(work)})"
        yield ""
    heads = ["", *(f"{figure.label}, {figure.unit}" for figure in work.figures), "semantics"]
    body = []
    for peer in ordered_peers(data):
        if "failed" in data["peers"][peer]:
            continue
        notes = {cell(data, peer, work.name, figure.key).get("note") for figure in work.figures}
        figures = [shown(data, peer, work, figure) for figure in work.figures]
        if None not in notes:
            behind = cell(data, peer, work.name, work.figures[0].key)["note"]
        else:
            behind = what_is_beside(data, peer, work)
        body.append([title(data, peer) + few_jobs(data, peer, work), *figures, behind])
    yield from rows(heads, body)
    yield ""


def report(data):
    yield "# Benchmarks"
    yield ""
    yield "<!-- Written by bench/compare/run --report from bench/compare/results.json; a test compares them. -->"
    yield ""
    yield ("Leasehold beside other queues on PostgreSQL: the same work, each peer with its own fast settings, peer after "
           "peer in each round, on one machine. Cells are the median of the rounds, with the lowest and the highest. "
           "Machines differ and are noisy: compare the peers of this page with each other, and take differences under "
           "30 % for noise. [bench/compare](../bench/compare/README.md) has how it is measured, and what is fair about it.")
    yield ""
    if data["jobs"] < ENOUGH_JOBS:
        yield (f"> This run had {data['jobs']:,} jobs, which shows that the drivers work. Its figures are no measurement: "
               f"that takes {ENOUGH_JOBS:,} jobs or more, on a machine that does nothing else.")
        yield ""
    yield from of_run(data)
    for work in works_of(data):
        yield from of_work(data, work)
    yield from of_peers(data)
    found = problems(data)
    if found:
        yield "## What went wrong"
        yield ""
        for peer, work, text in found:
            yield f"- {title(data, peer)}, {work}, {text}"
        yield ""


def of_run(data):
    machine, settings = data["machine"], data["postgres"]
    yield "## The run"
    yield ""
    yield from rows(["", ""], [
        ["command", f"`{data['command']}`"],
        ["when", data["when"]],
        ["machine", f"{machine['cpus']} cores, {machine['cpu']}, {machine['memory_gib']} GiB, {machine['system']}; "
                    "clients and server share it"],
        ["PostgreSQL", f"{settings['server_version']}: " + ", ".join(
            f"{name} {value}" for name, value in settings.items() if name != "server_version")],
        ["rounds", f"{data['rounds']}, {data['jobs']:,} jobs"],
        ["each job once", once(data)],
        *([["note", machine["note"]]] if "note" in machine else []),
    ])
    yield ""


def once(data):
    """How many jobs are known to have run once, and in how many measurements."""
    counted = [result for result in data["results"] if "once" in result]
    exact = [result for result in counted if not result["never"] and not result["twice"]]
    return (f"in {len(exact):,} of {len(counted):,} measurements with workers; together "
            f"{sum(result['once'] for result in counted):,} jobs ran once, "
            f"{sum(result['never'] for result in counted):,} never, {sum(result['twice'] for result in counted):,} more often")


def unlogged(data, peer):
    """Tables of a peer that a crash of the server empties."""
    found = {result["unlogged"] for result in data["results"] if result["peer"] == peer and "unlogged" in result}
    return "; ".join(sorted(found)) or "none"


def of_peers(data):
    yield "## The peers"
    yield ""
    yield from rows(["", "version", "settings", "unlogged tables"], [
        [title(data, peer), f"{data['peers'][peer]['package']} {data['peers'][peer]['version']}"
         + (f"; not measured: {data['peers'][peer]['failed']}" if "failed" in data["peers"][peer] else ""),
         data["peers"][peer]["settings"], unlogged(data, peer)]
        for peer in ordered_peers(data)
    ])
    yield ""
    yield ("All commits are durable: fsync, synchronous_commit and full_page_writes are on, and no role or database of a "
           "peer turns them off. A crash of the server empties unlogged tables.")
    yield ""
    yield ("A completion is fenced when a worker that lost its job cannot complete a later attempt of it. The others "
           "describe what the peer does with the settings above.")
    yield ""
    yield from rows(["", *LABELS.values()], [
        [title(data, peer), *(data["peers"][peer]["semantics"][kind] for kind in LABELS)]
        for peer in ordered_peers(data)
    ])
    yield ""


def files(data):
    """Returns {path below the folder: text} of the report and its plots. Without data: a report without figures."""
    if data is None:
        return {"benchmarks.md": NOTHING}
    made = {"benchmarks.md": "\n".join(report(data))}
    for work in works_of(data):
        if draws(data, work):
            made[image(work)] = bars(data, work)
    return made


def write(data, folder):
    made = files(data)
    plots = os.path.join(folder, IMAGES)
    for name in os.listdir(plots) if os.path.isdir(plots) else ():
        if name.endswith(".svg") and f"{IMAGES}/{name}" not in made:
            os.remove(os.path.join(plots, name))
    for path, text in made.items():
        target = os.path.join(folder, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w", encoding="utf-8") as file:
            file.write(text)
