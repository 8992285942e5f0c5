#!/usr/bin/env python3
"""Draws the output of `engine_bench --log FILE`: a device's memory over time, and the phases of the engine.

    plot.py engine.jsonl engine.svg [--from SECONDS] [--to SECONDS] [--title TEXT]
    plot.py --test FOLDER    draw an example log there, and check the drawing

Plain SVG that follows the reader's light or dark theme; no dependencies.
"""
import argparse
import json
import sys
from html import escape
from pathlib import Path

GIB = 1 << 30
STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600; font-size: 15px } .dim { fill: #57606a; font-size: 11px }
.area { fill: #0969da; fill-opacity: 0.25 } .line { stroke: #0969da; fill: none; stroke-width: 1.5 }
.grid { stroke: #d0d7de } .even { fill: #afb8c1; fill-opacity: 0.22 } .odd { fill: none }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .dim { fill: #8d96a0 } .grid { stroke: #30363d }
.area { fill: #4493f8 } .line { stroke: #4493f8 } .even { fill: #6e7681 } }
</style>"""


def read(lines):
    """Returns (the log's context, [(seconds, bytes in use, phase)])."""
    about, *samples = [json.loads(line) for line in lines if line.strip()]
    samples = [(float(s["t"]), int(s["used"]), str(s["phase"]).replace(", not looked at", " (not sampled)")) for s in samples]
    if not samples:
        raise ValueError("the log has no samples")
    return about, samples


def phases_of(samples):
    """Returns [(name, from, to)], one for each stretch of one name."""
    phases = []
    for seconds, _, name in samples:
        if phases and phases[-1][0] == name:
            phases[-1][2] = seconds
        else:
            if phases:
                phases[-1][2] = seconds
            phases.append([name, seconds, seconds])
    return [tuple(phase) for phase in phases]


def step_for(span, wanted):
    """Returns a round step of which at most `wanted` make up `span`."""
    step = 1e-3
    while True:
        for factor in (1, 2, 5):
            if span / (step * factor) <= wanted:
                return step * factor
        step *= 10


def draw(about, samples, title):
    left, top, width, height, bottom = 64, 62, 860, 280, 46
    start, end = samples[0][0], max(samples[-1][0], samples[0][0] + 1e-3)
    most = max(used for _, used, _ in samples) / GIB
    limit = max(most * 1.08, 0.01)

    def x(seconds):
        return left + width * (seconds - start) / (end - start)

    def y(used):
        return top + height * (1 - used / GIB / limit)

    parts = []
    label_end = 0.0
    for i, (name, begin, until) in enumerate(phases_of(samples)):
        a, b = x(begin), x(until)
        kind = "even" if i % 2 == 0 else "odd"
        parts.append(f'<rect class="{kind}" x="{a:.1f}" y="{top}" width="{max(b - a, 0):.1f}" height="{height}">'
                     f"<title>{escape(name)}: {until - begin:.2f} s</title></rect>")
        room = 6.2 * len(name) + 6
        if b - a >= room and a >= label_end:
            middle = f'x="{(a + b) / 2:.1f}" y="{top - 6}" text-anchor="middle"'
            parts.append(f'<text class="dim" {middle}>{escape(name)}</text>')
            label_end = (a + b + room) / 2
    step = step_for(limit, 6)
    for i in range(int(limit / step) + 1):
        at = y(i * step * GIB)
        parts.append(f'<line class="grid" x1="{left}" x2="{left + width}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text class="dim" x="{left - 8}" y="{at + 4:.1f}" text-anchor="end">{i * step:g}</text>')
    step = step_for(end - start, 10)
    for i in range(int((end - start) / step) + 1):
        at = x(start + i * step)
        place = f'x="{at:.1f}" y="{top + height + 18}" text-anchor="middle"'
        parts.append(f'<text class="dim" {place}>{i * step:g} s</text>')
    points = []
    last = None
    for seconds, used, _ in samples:
        if last is not None:
            points.append(f"{x(seconds):.1f},{y(last):.1f}")  # unchanged until the change was observed
        points.append(f"{x(seconds):.1f},{y(used):.1f}")
        last = used
    ground = f"{top + height}"
    parts.append(f'<polygon class="area" points="{left},{ground} {" ".join(points)} {x(end):.1f},{ground}"/>')
    parts.append(f'<polyline class="line" points="{" ".join(points)}"/>')
    total = f", of {about['total'] / GIB:.1f} GiB" if about.get("total") else ""
    head = [f'<text class="title" x="12" y="22">{escape(title)}</text>',
            f'<text class="dim" x="12" y="40">GiB in use on the whole device{total}, measured by a second process '
            f'({escape(str(about.get("meter", "?")))})</text>']
    size = f'width="{left + width + 16}" height="{top + height + bottom}"'
    box = f'viewBox="0 0 {left + width + 16} {top + height + bottom}"'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size} {box}>', STYLE, *head, *parts, "</svg>", ""])


def cut(samples, begin, end):
    """Returns the samples from `begin` to `end`, with the values at both borders."""
    inside = [s for s in samples if begin <= s[0] <= end]
    before = [s for s in samples if s[0] < begin]
    if before:
        inside.insert(0, (begin, *before[-1][1:]))
    if not inside:
        raise ValueError("no samples in the selected time")
    return inside


def test(folder):
    import xml.etree.ElementTree as tree

    log = [{"total": 140 * GIB, "meter": "nvml"}]
    for i in range(200):
        phase = ["load", "generate", "pause <all>", "resume"][i // 50]
        log.append({"t": i * 0.1, "used": (1 if i // 50 == 2 else 40) * GIB, "phase": phase})
    about, samples = read(json.dumps(line) for line in log)
    assert [name for name, _, _ in phases_of(samples)] == ["load", "generate", "pause <all>", "resume"]
    assert phases_of(samples)[1][1:] == (5.0, 10.0)
    assert cut(samples, 4.95, 6)[0] == (4.95, 40 * GIB, "load") and cut(samples, 4.95, 6)[-1][0] <= 6
    svg = draw(about, samples, "A title & more")
    root = tree.fromstring(svg)
    line = root.find("{http://www.w3.org/2000/svg}polyline").get("points").split()
    heights = {point.split(",")[1] for point in line}
    assert len(heights) == 2, heights  # running, and paused
    assert "pause &lt;all&gt;" in svg
    for bad in ([], ['{"total": 1}']):
        try:
            read(bad)
        except ValueError:
            continue
        raise AssertionError("an empty log was read")
    (Path(folder) / "engine-test.svg").write_text(svg, encoding="utf-8")
    print("plot.py: passed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", nargs="?")
    parser.add_argument("svg", nargs="?")
    parser.add_argument("--from", dest="begin", type=float, default=float("-inf"))
    parser.add_argument("--to", dest="end", type=float, default=float("inf"))
    parser.add_argument("--title", default="Device memory of an engine that pauses and resumes")
    parser.add_argument("--test", metavar="FOLDER")
    arguments = parser.parse_args()
    if arguments.test:
        return test(arguments.test)
    if not arguments.log or not arguments.svg:
        parser.error("a log file and an output file are required")
    about, samples = read(Path(arguments.log).read_text(encoding="utf-8").splitlines())
    samples = cut(samples, arguments.begin, arguments.end)
    Path(arguments.svg).write_text(draw(about, samples, arguments.title), encoding="utf-8")
    return None


if __name__ == "__main__":
    sys.exit(main())
