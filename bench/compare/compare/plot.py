"""Bar charts in SVG, readable on light and on dark pages."""
from xml.sax.saxutils import escape

from .figures import cell, number, ordered_peers, title

WIDTH, LEFT, RIGHT, ROW, TOP = 760, 190, 150, 22, 58
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
# Leasehold, and the others.
STYLE = f"""
  text {{ font-family: {FONT}; font-size: 12px; fill: #1f2328; }}
  .page {{ fill: #ffffff; }} .title {{ font-size: 15px; font-weight: 600; }} .note {{ fill: #59636e; }}
  .ours {{ fill: #0969da; }} .peer {{ fill: #8c959f; }} .range {{ stroke: #1f2328; stroke-width: 1.5; }}
  .line {{ stroke: #d1d9e0; stroke-width: 1; }}
  @media (prefers-color-scheme: dark) {{
    text {{ fill: #e6edf3; }} .page {{ fill: #0d1117; }} .note {{ fill: #9198a1; }}
    .ours {{ fill: #4493f8; }} .peer {{ fill: #656c76; }} .range {{ stroke: #e6edf3; }} .line {{ stroke: #3d444d; }}
  }}
"""


def text(x, y, words, kind="", anchor="start"):
    kind = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{kind} text-anchor="{anchor}">{escape(words)}</text>'


def cut(words, most):
    return words if len(words) <= most else words[: most - 1].rstrip() + "…"


def bars(data, work):
    """Returns the chart of a work: a group of bars for each figure, the best peer first."""
    figures = [figure for figure in work.figures if is_drawn(data, work, figure)]
    body, y = [], TOP
    for figure in figures:
        better = "more" if figure.higher_is_better else "less"
        body.append(text(LEFT, y, f"{figure.label}, {figure.unit}; {better} is better", "note"))
        y += 10
        rows = [(peer, cell(data, peer, work.name, figure.key)) for peer in ordered_peers(data)]
        measured = sorted(
            (row for row in rows if "median" in row[1]),
            key=lambda row: row[1]["median"] * (-1 if figure.higher_is_better else 1),
        )
        most = max(found["high"] for _, found in measured) or 1
        scale = (WIDTH - LEFT - RIGHT) / most
        body.append(f'<line class="line" x1="{LEFT}" y1="{y}" x2="{LEFT}" y2="{y + ROW * len(rows)}"/>')
        for peer, found in measured + [row for row in rows if "median" not in row[1]]:
            middle = y + ROW / 2
            body.append(text(LEFT - 8, middle + 4, title(data, peer), anchor="end"))
            if "median" in found:
                body += bar(peer, found, middle, scale, work.jobs(data["jobs"]))
            else:
                words = f"failed: {found['note']}" if found["kind"] == "failed" else found["note"]
                body.append(text(LEFT + 8, middle + 4, cut(words, 78), "note"))
            y += ROW
        y += 26
    height = y - 12
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-labelledby="t"><title id="t">{escape(work.title)}</title>',
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}" rx="6"/>',
        text(16, 28, work.title, "title"),
        *body,
        "</svg>",
        "",
    ])


def is_drawn(data, work, figure):
    measured = any("median" in cell(data, peer, work.name, figure.key) for peer in ordered_peers(data))
    return measured and not figure.is_count


def bar(peer, found, middle, scale, wanted):
    length = max(found["median"] * scale, 1)
    kind = "ours" if peer == "leasehold" else "peer"
    drawn = [f'<rect class="{kind}" x="{LEFT}" y="{middle - 7:.1f}" width="{length:.1f}" height="14" rx="2"/>']
    end = length
    if found["high"] > found["low"]:
        low, high = LEFT + found["low"] * scale, LEFT + found["high"] * scale
        end = max(length, found["high"] * scale)
        drawn.append(
            f'<path class="range" fill="none" d="M{low:.1f} {middle:.1f}H{high:.1f}M{low:.1f} {middle - 4:.1f}v8'
            f'M{high:.1f} {middle - 4:.1f}v8"/>'
        )
    few = f" ({found['jobs']:,} jobs)" if found["jobs"] < wanted else ""
    drawn.append(text(LEFT + end + 8, middle + 4, number(found["median"]) + few))
    return drawn


def draws(data, work):
    return any(is_drawn(data, work, figure) for figure in work.figures)
