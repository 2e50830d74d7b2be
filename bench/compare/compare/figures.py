"""Medians and ranges of a result, and how they are printed."""
from statistics import median

from .works import WORKS

# A run of fewer jobs checks that the drivers work. Its figures mean nothing.
ENOUGH_JOBS = 50_000


def ordered_peers(data):
    return list(data["peers"])


def works_of(data):
    return [work for work in WORKS if any(result["work"] == work.name for result in data["results"])]


def results(data, peer, work):
    return [result for result in data["results"] if result["peer"] == peer and result["work"] == work]


def cell(data, peer, work, key):
    """Returns {median, low, high, rounds, jobs} of a figure, or {note} if there is none."""
    found = results(data, peer, work)
    for result in found:
        if "same_as" in result:
            return cell(data, peer, result["same_as"], key)
        if "lacks" in result:
            return {"note": result["lacks"], "kind": "lacks"}
    values = [result["figures"][key] for result in found if key in result.get("figures", {})]
    if values:
        jobs = [result["jobs"] for result in found if "figures" in result]
        return {
            "median": median(values), "low": min(values), "high": max(values), "rounds": len(values), "jobs": min(jobs),
        }
    failed = [result["failed"] for result in found if "failed" in result]
    if failed:
        return {"note": failed[0], "kind": "failed"}
    if any("figures" in result for result in found):
        return {"note": "the peer has no such call", "kind": "lacks"}
    return {"note": "not measured", "kind": "absent"}


def number(value):
    """123456.7 → "123,457", 12.34 → "12.3", 0.5678 → "0.568"."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def spread(found):
    if found["rounds"] == 1 or found["low"] == found["high"]:
        return ""
    return f" ({number(found['low'])}–{number(found['high'])})"


def problems(data):
    """Returns (peer, work, text) of measurements in which jobs were lost, ran twice, or failed."""
    found = []
    for result in data["results"]:
        texts = []
        if "failed" in result:
            texts.append(f"failed: {result['failed']}")
        if result.get("never"):
            texts.append(f"{result['never']} of {result['jobs']} jobs never ran")
        if result.get("twice"):
            texts.append(f"{result['twice']} of {result['jobs']} jobs ran more than once")
        if result.get("rows_too_many"):
            texts.append(f"handlers wrote {result['rows_too_many']} rows more than jobs")
        for text in texts:
            found.append((result["peer"], result["work"], f"round {result['round']}: {text}"))
    return found


def title(data, peer):
    return data["peers"][peer]["title"]


def table(data):
    """The text that a run prints."""
    lines = []
    width = max(len(title(data, peer)) for peer in ordered_peers(data)) + 2
    for work in works_of(data):
        lines.append("")
        lines.append(f"{work.title} ({work.name})")
        for peer in ordered_peers(data):
            parts = []
            for figure in work.figures:
                found = cell(data, peer, work.name, figure.key)
                if "note" in found:
                    if found["kind"] == "failed":
                        parts = [f"FAILED: {found['note']}"]
                        break
                    parts.append(f"{figure.label} –")
                    continue
                parts.append(f"{figure.label} {number(found['median'])}{spread(found)} {figure.unit}")
            if all(part.endswith("–") for part in parts):
                parts = [cell(data, peer, work.name, work.figures[0].key)["note"]]
            lines.append(f"  {title(data, peer):{width}}{'  '.join(parts)}")
    for peer in ordered_peers(data):
        if "failed" in data["peers"][peer]:
            lines.append(f"\n{title(data, peer)} was not measured: {data['peers'][peer]['failed']}")
    found = problems(data)
    if found:
        lines.append("\nWhat went wrong:")
        lines += [f"  {title(data, peer)}, {work}, {text}" for peer, work, text in found]
    if data["jobs"] < ENOUGH_JOBS:
        lines.append(f"\n{data['jobs']:,} jobs check that the drivers work; they are too few for figures.")
    return "\n".join(lines[1:])
