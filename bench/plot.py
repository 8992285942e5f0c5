#!/usr/bin/env python3
"""Draws the figures and writes the numbers of docs/benchmarks.md and of the README, from bench/results alone.

    bench/plot.py              writes docs/figures/*.svg, and the pages between their marks
    bench/plot.py --check      reports what is out of date, and exits with 1

Uses the newest results of each benchmark (see bench/run.py). The pages, most of them docs/benchmarks.md, have a pair of
marks for each benchmark, <!-- pause_resume:begin --> and <!-- pause_resume:end --> and so on; the README has one pair
for its numbers: <!-- numbers:begin --> and <!-- numbers:end -->. The figures are plain SVG that follows the reader's light or
dark theme.
"""
import argparse
import json
import math
import re
import statistics
import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600; font-size: 15px } .panel { font-weight: 600 } .dim { fill: #57606a }
.c0 { fill: #0969da } .c1 { fill: #afb8c1 } .c2 { fill: #d4a72c } .c3 { fill: #8250df } .line { stroke: #cf222e }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .dim { fill: #8d96a0 }
.c0 { fill: #4493f8 } .c1 { fill: #6e7681 } .c2 { fill: #d29922 } .c3 { fill: #ab7df8 } }
</style>"""


# --- Results ---


def load(folder, host):
    """Returns the newest result of each row of each benchmark: {name: ({file's name: context}, newest context,
    {row's name: row}, all of the newest file)}. The files are those that still provide a row, the newest first. If
    only a run's console output was kept, reads that."""
    paths = {}
    for path in sorted([*folder.glob("*.json"), *folder.glob("*.txt")]):
        match = re.fullmatch(r"(\d{4}-\d{2}-\d{2})-(.+)-([a-z_]+)\.(json|txt)", path.name)
        if path.suffix == ".txt" and not path.read_text(encoding="utf-8").startswith("# console output of bench/"):
            continue
        if match and (match[2] == "host") == host and not re.search("compile_time|-weight", path.name):
            paths.setdefault(match[3], []).append(path)  # sorted by date
    results = {}
    for name, files in paths.items():
        rows, giver, contexts, content = {}, {}, {}, {}
        for path in files:
            text = path.read_text(encoding="utf-8")
            content = json.loads(text) if path.suffix == ".json" else console(text)
            contexts[path.name] = content["context"]
            for row in content["benchmarks"]:
                if not row.get("error_occurred"):
                    key = re.sub(r"/iterations:\d+|/manual_time", "", row["name"])
                    gpus = content["context"].get("gpus", "1")
                    key += f"@{gpus}" if name == "llama_cpp" else ""  # the GPUs over which it distributes a model
                    rows[key], giver[key] = {**row, "gpus": gpus}, path.name
        used = {file: contexts[file] for file in reversed(contexts) if file in giver.values() or file == files[-1].name}
        results[name] = (used, content["context"], rows, content)
    return results


def console(text):
    """Converts the console output of Google Benchmark, bench/run.py or bench/peers/compare.py to the form of their
    JSON. The second line is "# " and the context."""
    scale = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "m": 1e-3, "u": 1e-6, "n": 1e-9}
    lines, rows = text.splitlines(), []
    for line in lines[2:]:
        if match := re.match(r"\s*([^#\s].*?)\s{2,}(?:[\d.]+ [mun]?s\s|\w+=)", line):
            counters = re.findall(r"(\w+)=(-?[\d.]+(?:e[+-]?\d+)?)([kMGTmun]?)(?!\w)", line)
            rows.append({"name": match[1], **{key: float(value) * scale[unit] for key, value, unit in counters}})
    return {"context": json.loads(lines[1].removeprefix("# ")), "benchmarks": rows}


def number(value):
    """Formats with three significant digits."""
    if value < 0:
        return "-" + number(-value)
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def mib(value):
    return f"{number(value / 1024)} GiB" if value >= 1024 else f"{number(value)} MiB"


# --- Drawing ---


def chart(title, unit, series, panels, limit=None):
    """Draws horizontal bars. `panels`: [(name, [(label, [value, ...])])], each panel with its own scale; a bar is
    one value for each of `series`. `limit`: a value marked by a line."""
    left, width, right, bar = 190, 430, 110, 13
    y, parts = 54, []
    x = 12
    for i, name in enumerate(series):
        parts.append(f'<rect class="c{i}" x="{x}" y="34" width="11" height="11" rx="2"/>')
        parts.append(f'<text class="dim" x="{x + 16}" y="44">{escape(name)}</text>')
        x += 34 + 7.2 * len(name)
    for name, rows in panels:
        if name:
            parts.append(f'<text class="panel" x="12" y="{y + 18}">{escape(name)}</text>')
            y += 26
        most = max([value for _, values in rows for value in values if value is not None] + [limit or 0])
        top = y
        for label, values in rows:
            parts.append(f'<text x="{left - 10}" y="{y + bar * len(values) / 2 + 5:.0f}" text-anchor="end">{escape(label)}</text>')
            for i, value in enumerate(values):
                if value is not None:
                    length = max(1.0, width * value / most)
                    parts.append(f'<rect class="c{i}" x="{left}" y="{y}" width="{length:.1f}" height="{bar - 2}" rx="2"/>')
                    parts.append(f'<text class="dim" x="{left + length + 6:.1f}" y="{y + 10}">{number(value)} {unit}</text>')
                y += bar
            y += 8
        if limit is not None:
            at = left + width * limit / most
            parts.append(f'<path class="line" d="M{at:.1f} {top - 4}V{y - 4}" stroke-dasharray="4 3"/>')
        y += 6
    size = f'width="{left + width + right}" height="{y + 4}" viewBox="0 0 {left + width + right} {y + 4}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><title>{escape(title)}</title>'
    return "\n".join([head, STYLE, f'<text class="title" x="12" y="22">{escape(title)}</text>', *parts, "</svg>", ""])


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" + " ---: |" * (len(header) - 1)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows] + [""]


def folded(name, lines, tables):
    """Moves tables of more than four rows to `tables`, the lines of a page of their own, and leaves a link."""
    text, rows = [], []
    for line in [*lines, ""]:
        if line.startswith("|"):
            rows.append(line)
            continue
        if len(rows) > 6:
            if f"## {name}" not in tables:
                tables += [f"## {name}", ""]
                text += [f"[Table](../bench/results/README.md#{name}).", ""]
            tables += [*rows, ""]
        else:
            text += [*rows, line]
        rows = []
    return text[:-1]


# --- Contents ---


# Texts in results of examples/engine that were recorded before it printed plainer ones.
RECORDED = {
    "graphs, in the driver": "graphs (driver memory)",
    "making it": "creating it",
    "running each kernel once, less memory taken": "running each kernel once, minus memory allocated meanwhile",
    "capturing and launching them, less memory taken": "capturing and launching them, minus memory allocated meanwhile",
    "pausing it, from outside": "pausing it",
    "what they say they reserve": "the reserved bytes that they report",
    "the tokens are identical after the pause, graphs on": "the tokens are identical after the pause, with graphs",
    "released of what was held above the bare context": "share of memory released, excluding the bare context",
    "left beyond context, modules and the graphs in the driver": "memory left in use, excluding context, modules and the driver's graph memory",
    "first replay by a later one": "first replay / later replay",
    "the tokens are identical while the weights come back, graphs on": "the tokens are identical during a streamed resume, with graphs",
    "first token after a streamed resume by the larger of copy and prefill": "first token after a streamed resume / the larger of copy and prefill",
    "a step while the weights are saved by one otherwise": "step while the weights are saved / other step",
    "device memory after each resume, away from the first": "device memory after each resume, difference from the first",
}


def plain(text):
    """Replaces a text in RECORDED; what follows it, such as a batch size, is kept."""
    what, comma, batch = text.partition(", batch of ")
    return RECORDED.get(what, what) + comma + batch


def pause_resume(rows):
    shown, panels, numbers = {}, [], []
    for name, row in rows.items():
        _, size, count = name.split("/")
        shown.setdefault(size, []).append((count, row))
    for size, members in shown.items():
        panel = []
        for count, row in members:
            ours = row["ours_pause_ms"] + row["ours_resume_ms"]
            floor = row["floor_pause_ms"] + row["floor_resume_ms"]
            label = "1 tensor" if row["tensors"] == 1 else f"{int(row['tensors']):,} tensors"
            panel.append((label, [ours, floor]))
            numbers.append([f"{size}, {label}", *(number(row[key]) for key in (
                "ours_first_pause_ms", "ours_pause_ms", "ours_resume_ms", "floor_pause_ms", "floor_resume_ms")), f"{row['ratio']:.2f}"])
        panels.append((size, panel))
    figures = {
        "pause_resume": chart("Pause and resume, compared with the driver's calls on the same bytes", "ms",
                              ["memsaver, pause + resume", "driver's calls"], panels),
    }
    text = ["![Pause and resume](figures/pause_resume.svg)", ""]
    text += table(["pause and resume of", "first pause, ms", "later pause", "resume", "driver's calls: pause", "driver's calls: resume",
                   "memsaver / driver"], numbers)
    return figures, text


def allocate(rows):
    kinds = [("memsaver/idle", "already_idle"), ("memsaver/plain", "no stream"), ("memsaver/stream", "with a stream"),
             ("memsaver/ordered", "in stream order"), ("cudaMallocAsync", "cudaMallocAsync"), ("cudaMalloc", "cudaMalloc"), ("memsaver switched off", "switched off")]
    shapes, numbers, panels = [], [], []
    for name in rows:
        shape = next((name[len(kind) + 1:] for kind, _ in kinds if name.startswith(kind + "/")), None)
        if shape and shape not in shapes:
            shapes.append(shape)
    kinds = [(kind, who) for kind, who in kinds if any(name.startswith(kind + "/") for name in rows)]
    for shape in shapes:
        size, threads, live = re.fullmatch(r"(.+)/threads:(\d+)/live:(\d+)", shape).groups()
        found = [rows.get(f"{kind}/{shape}") for kind, _ in kinds]
        who = f"{size}, {threads} thread{'s' if threads != '1' else ''}, {int(live):,} live"
        numbers.append([who, *(f"{number(row['median_ns'])} ({number(row['p99_ns'])})" if row else "" for row in found)])
        if size.startswith("64"):
            panels.append((f"{threads} threads, {int(live):,} live blocks" if threads != "1" else f"1 thread, {int(live):,} live blocks",
                           [(kind, [row["median_ns"]]) for (_, kind), row in zip(kinds, found) if row]))
    figure = chart("Allocate and deallocate 64 KiB: median time of a pair of calls", "ns", ["one pair"], panels)
    text = ["![Allocate and deallocate](figures/allocate.svg)", ""]
    text += table(["allocate and deallocate, ns: median (p99)", *(f"memsaver, {kind}" if not kind.startswith("cuda") else f"`{kind}`"
                                                            for _, kind in kinds)], numbers)
    return {"allocate": figure}, text


def fragmentation(rows):
    text = []
    if row := rows.get("fragmentation/4096 x 64 KiB"):
        text.append(f"- 4096 tensors of 64 KiB, {mib(row['asked_mib'])} in total, use {mib(row['taken_mib'])} of device memory; "
                    f"{mib(row['taken_paused_mib'])} while paused.")
    if row := rows.get("fragmentation/random cycles"):
        text.append(f"- {int(row['cycles']):,} cycles of pause and resume with random allocations and deallocations, also while paused: "
                    f"device memory in use while paused is {mib(row['device_paused_first_mib'])} at the start and "
                    f"{mib(row['device_paused_last_mib'])} at the end, the process' resident host memory "
                    f"{mib(row['resident_first_mib'])} and {mib(row['resident_last_mib'])}; mapped memory is at most "
                    f"{row['mapped_over_used_worst']:.2f} times the memory of live blocks (median {row['mapped_over_used_median']:.2f}).")
    return {}, text + [""]


def devices(rows):
    rows = {name.removeprefix("devices/"): row for name, row in rows.items()}
    words = {"discard": "discarded memory", "driver alone": "the driver's calls, from two threads", "HostBackup": "memory kept by `HostBackup`"}
    numbers = [[f"{words[name]}, {mib(row['bytes_each'] / 2**20)} on each", number(row["one_ms"]), number(row["two_ms"]), f"{row['ratio']:.2f}"]
               for name, row in rows.items() if name in words]
    text = table(["pause and resume of", "one device, ms", "two concurrently, ms", "ratio"], numbers)
    if row := rows.get("PeerBackup"):
        text += table(["`PeerBackup` on another device", "pause, ms", "resume", "plain copy to it", "plain copy back", "driver's calls for pause and resume",
                       "speed relative to copies and calls"],
                      [[gib(row["bytes"]), *(number(row[key]) for key in ("pause_ms", "resume_ms", "plain_out_ms", "plain_in_ms", "pages_ms")),
                        verdict(row["speed_ratio"], 0.90)]])
    return {}, text


def backup(rows):
    rows = {name.removeprefix("backup/"): row for name, row in rows.items()}
    out, back, numbers, text = [], [], [], []

    def add(label, panel, ours, other=None):
        panel.append((label, [ours, other]))

    slow = next((row for name, row in rows.items() if name.startswith("cudaMallocHost")), {})
    first = [(re.fullmatch(r"first pause of (.+), (\d+) threads", name), row) for name, row in rows.items()]
    for match, row in ((match, row) for match, row in first if match):
        other = slow.get("out_gbps") if slow.get("bytes") == row["bytes"] else None
        add(f"first, {int(row['bytes']) >> 30} GiB, {match[2]} threads", out, row["out_gbps"], other)
        numbers.append([f"`HostBackup`, first pause of {match[1]}, {match[2]} threads",
                        number(row["out_gbps"]), "", f"{number(other)} (`cudaMallocHost` and a copy)" if other else "", ""])
    link = {}
    for kind in ("prepared", "retained"):
        for name, row in rows.items():
            if not name.startswith(kind + "/"):
                continue
            tensors = f"{int(row['tensors']):,} tensor{'s' if row['tensors'] != 1 else ''}"
            link = link or row
            add(f"{kind}, {tensors}", out, row["out_gbps"], row["baseline_out_gbps"])
            add(f"{kind}, {tensors}", back, row["in_gbps"], row["baseline_in_gbps"])
            numbers.append([f"`HostBackup`, {kind}, {tensors}", *(number(row[key]) for key in (
                "out_gbps", "in_gbps", "baseline_out_gbps", "baseline_in_gbps"))])
    if row := rows.get("ring"):
        add("pageable, first", out, row["out_cold_gbps"])
        add("pageable, later", out, row["out_warm_gbps"])
        add("pageable", back, row["in_gbps"])
        numbers.append(["`HostBackup{.storage = Storage::pageable}`, first", number(row["out_cold_gbps"]), number(row["in_gbps"]), "", ""])
        numbers.append(["`HostBackup{.storage = Storage::pageable}`, later", number(row["out_warm_gbps"]), number(row["in_gbps"]), "", ""])
    if row := rows.get("file"):
        add("file", out, row["out_gbps"], row["raw_out_gbps"])
        add("file", back, row["in_gbps"], row["raw_in_gbps"])
        numbers.append(["`FileBackup`, compared with direct I/O", *(number(row[key]) for key in (
            "out_gbps", "in_gbps", "raw_out_gbps", "raw_in_gbps"))])
    text += ["![Backups: bandwidth of pause and resume](figures/backup.svg)", ""]
    text += table(["backup", "pause, GB/s", "resume, GB/s", "without memsaver: save", "without memsaver: restore"], numbers)
    for name, row in rows.items():
        if name.startswith("once/"):
            tensors = f"{int(row['tensors']):,} tensor{'s' if row['tensors'] != 1 else ''}"
            text.append(f"- `Refresh::once`, {mib(row['bytes'] / 2**20)} in {tensors}: a later pause takes "
                        f"{number(row['later_ms'])} ms, one that discards the bytes {number(row['discard_ms'])} ms.")
    if row := rows.get("given back"):
        text.append(f"- `.retain = false`, {mib(row['bytes'] / 2**20)}: after a resume the process' resident memory is "
                    f"{number(max(0.0, row['resident_grown_mib']))} MiB more than before the pause; freeing the host memory takes "
                    f"{number(row['give_back_ms'])} ms of the resume.")
    limit = link.get("link_out_gbps")
    title = "Bandwidth of pause and resume with a backup" + (f" (dashed: the link, {number(limit)} GB/s)" if limit else "")
    figure = chart(title, "GB/s", ["memsaver, entire pause or resume", "the same bytes without memsaver"],
                   [("pause", out), ("resume", back)], limit)
    return {"backup": figure}, text + [""]


def peers(rows):
    """memsaver compared with torch_memory_saver's own library, by the same calls, and with a checkpoint of the whole
    process."""
    ours, theirs = "memsaver", "torch_memory_saver"
    shapes = list(dict.fromkeys(name.split("/")[1] for name in rows))
    kinds = [("discarded", "discard", "", "bytes discarded"), ("kept, first cycle", "backup", "first_", "bytes kept in host memory, first cycle"),
             ("kept, later cycles", "backup", "", "bytes kept in host memory, later cycles")]
    panels, numbers, processes = [], [], []
    for label, kind, prefix, title in kinds:
        panel = []
        for shape in shapes:
            pair = [rows.get(f"{kind}/{shape}/{who}") for who in (ours, theirs)]
            if None in pair:
                continue
            times = [[row[f"{prefix}{what}_ms"] for what in ("pause", "resume")] for row in pair]
            whole = rows.get(f"checkpoint/{shape}/driver") if prefix else None
            panel.append((shape, [sum(times[0]), sum(times[1]), whole and whole["pause_ms"] + whole["resume_ms"]]))
            numbers.append([f"{shape}, {label}", *(number(value) for value in times[1] + times[0]),
                            *(number(theirs_ms / ours_ms) for ours_ms, theirs_ms in zip(*times))])
        if panel:
            panels.append((title, panel))
    for shape in shapes:
        if row := rows.get(f"checkpoint/{shape}/driver"):
            processes.append([shape, number(row["pause_ms"]), number(row["resume_ms"]), mib(row["given_back_mib"])])
    figure = chart("The same program with either library: pause + resume", "ms",
                   [ours, theirs, "checkpoint of the process"], panels)
    text = ["![Comparison with torch_memory_saver](figures/peers.svg)", ""]
    text += table(["the same calls, in ms", f"{theirs}: pause", "resume", f"{ours}: pause", "resume", "speedup: pause", "resume"], numbers)
    ratios = [rows[name]["ratio"] for name in (f"neighbour/1 x 16 GiB/{who}" for who in (theirs, ours)) if name in rows]
    if len(ratios) == 2:
        text += table(["resume of 16 GiB right after another process released the rest, relative to a plain copy on an idle device", theirs, ours],
                      [["ratio", *(f"{ratio:.2f}" for ratio in ratios)]])
    if small := rows.get(f"discard/4096 x 64 KiB/{theirs}"):
        text += [f"4,096 tensors of 64 KiB take {mib(small['device_mib'])} of device memory with {theirs}, "
                 f"{mib(rows[f'discard/4096 x 64 KiB/{ours}']['device_mib'])} with {ours}.", ""]
    if processes:
        text += table(["`cuCheckpointProcess*` of a process that holds", "checkpoint, ms", "restore, ms", "released"], processes)
    return {"peers": figure}, text


def large(rows):
    """One large block that is discarded, compared with torch_memory_saver: medians of processes that alternated."""
    words, numbers = {"discard": "", "used": ", all pages used before"}, []
    for name, ours in rows.items():
        kind, shape, who = name.split("/")
        if who == "memsaver":
            theirs = rows[f"{kind}/{shape}/torch_memory_saver"]
            numbers.append([shape + words[kind], *(number(row[key]) for row in (theirs, ours) for key in ("pause_ms", "resume_ms", "cycle_ms")),
                            verdict(ours["cycle_ms"] / theirs["cycle_ms"], 1.0, less=True)])
    processes = int(next(iter(rows.values()))["processes"])
    return {}, table([f"one block, medians of {processes} processes each, ms", "torch_memory_saver: pause", "resume", "pause and resume, mean of six",
                      "memsaver: pause", "resume", "pause and resume, mean of six", "memsaver / torch_memory_saver"], numbers)


def engine(content):
    """The engine of examples/engine: the memory it holds, the memory left by a pause, and whether it reached its
    goals."""
    release, config = content["results"]["release_table"], content["config"]
    rows = [[plain(row["holder"]), mib(row["running"] / (1 << 20)), mib(row["paused"] / (1 << 20)), plain(row["measured_by"])] for row in release["rows"]]
    text = ["![An engine's device memory over time](figures/engine.svg)", ""]
    text += [f"[examples/engine](../examples/engine/) is a transformer of {config['parameters'] / 1e9:.1f} billion parameters, with CUDA graphs for "
             f"{len(config['batches'])} batch sizes and a cache of {config['cache_bytes'] / (1 << 30):.0f} GiB. The device memory by owner, while it "
             "runs and while it is paused, measured from another process:", ""]
    text += table(["owner", "running", "paused", "measured by"], rows)
    for goal in content["goals"]:
        result = "yes" if goal["reached"] else "NO"
        if "value" in goal:
            result = f"{goal['value']:.4g} {goal.get('unit', '')}".rstrip() + f" (goal {goal['limit']:.4g}: {'met' if goal['reached'] else 'MISSED'})"
        text.append(f"- {plain(goal['goal'])}: {result}")
    return {}, text + [""]


def gib(value):
    return mib(value / 2**20)


def exchange(rows):
    words = {"kept": "both kept by `HostBackup`", "dropped": "both discarded"}
    panel, numbers = [], []
    for name, row in rows.items():
        _, kind, _ = name.split("/")
        floor, ratio = ("both_copies_ms", "over_copies") if kind == "kept" else ("driver_ms", "over_driver")
        size = gib(row["bytes"])
        panel.append((f"{size}, {'kept' if kind == 'kept' else 'discarded'}", [row["exchange_ms"], row[floor], row["pause_then_resume_ms"]]))
        numbers.append([f"{size} for {size}, {words[kind]}", number(row["exchange_ms"]), number(row[floor]), f"{row[ratio]:.2f}",
                        number(row["pause_then_resume_ms"])])
    figures = {"exchange": chart("Exchange of two tags when only one fits", "ms",
                                 ["exchange", "floor", "pause, then resume"], [(name, [(name, values)]) for name, values in panel])}
    text = ["![Exchange](figures/exchange.svg)", ""]
    return figures, text + table(["exchange of", "ms", "floor, ms", "exchange / floor", "pause, then resume, ms"], numbers)


def arrival(rows):
    streamed, saved, gates, panels = [], [], [], []
    for name, row in rows.items():
        kind = name.split("/")[1]
        if kind == "streamed_resume":
            panels.append((f"{gib(row['bytes'])} in {int(row['layers'])} layers", [
                ("first layer's kernel", [row["first_layer_ms"], row["floor_ms"] + row["plain_layer_ms"]]),
                ("last layer's kernel", [row["all_layers_ms"], row["floor_ms"] + row["plain_all_ms"]])]))
            streamed.append([f"{gib(row['bytes'])} in {int(row['layers'])} layers", *(number(row[key]) for key in (
                "returned_ms", "first_layer_ms", "floor_ms", "plain_layer_ms", "first_layer_over_ms", "all_layers_ms", "plain_all_ms"))])
        elif kind == "saved_ahead":
            saved.append([gib(row["bytes"]), *(number(row[key]) for key in ("save_returned_ms", "save_ms", "pause_ms", "discard_pause_ms")),
                          f"{row['ratio_paired']:.2f}"])
        elif kind == "gates":
            gates.append([f"{int(row['gates'])} gates", *(number(row[key]) for key in (
                "plain_us", "gated_us", "gated_us_after_1000_resumes", "per_gate_us", "per_gate_us_after_1000_resumes"))])
    figures = {"arrival": chart("Streamed resume: time until a layer's kernel completes", "ms", ["memsaver", "driver's calls and a plain copy"], panels)} if panels else {}
    text = (["![Streamed resume](figures/arrival.svg)", ""] if panels else []) + table(["streamed resume of", "`resume_async` returns, ms", "first layer's kernel completes", "driver's calls", "plain copy of a layer",
                  "in excess of both", "last layer's kernel completes", "plain copy of all"], streamed)
    text += table(["saved ahead", "`save` returns, ms", "all bytes saved", "pause", "pause that discards them", "ratio"], saved)
    if gates:
        text += table(["replay of a graph, no transfer in progress", "without gates, us", "with gates, us", "after 1,000 resumes, us", "per gate, us", "after 1,000 resumes, us"], gates)
    return figures, text


def elastic(rows):
    words = {"": "one call for all steps", "each": "one call per step"}
    numbers = []
    for name, row in rows.items():
        step, each = (name.split("/") + [""])[1:3]
        numbers.append([f"steps of {gib(row['step_bytes'])}, {words[each]}", *(number(row[key]) for key in (
            "commit_ms", "release_ms", "driver_commit_ms", "driver_release_ms")), f"{row['over_driver']:.2f}"])
    return {}, table(["8 GiB of elastic memory", "commit, ms", "release", "driver's calls: commit", "release", "memsaver / driver"], numbers)


def residency(rows):
    hits = [[f"{name.split('/')[1]} tag{'s' if not name.endswith('/1') else ''}", number(row["use_ns"]), number(row["use_ns_p99"])]
            for name, row in rows.items() if name.startswith("use_hit/")]
    many = [[f"8 models of {gib(row['bytes_each'])} sharing memory for three, {int(row['requests'])} requests (seed {int(row['seed'])})"
             + (", bf16 weights kept by `Compressed<HostBackup>`" if row.get("coded") else ""),
             f"{int(row['hits'])} / {int(row['misses'])}", number(row["ours_ms"]), number(row["floor_ms"]), f"{row['ratio']:.2f}"]
            for row in rows.values() if "ratio" in row]
    taken = [[gib(row["bytes"]), number(row["reclaim_ms"]), number(row["driver_ms"]), f"{row['over_driver']:.2f}"]
             for name, row in rows.items() if name.startswith("reclaim/")]
    text = table(["begin and end a use of resident tags", "median, ns", "99th percentile"], hits)
    if taken:
        text += table(["`reclaim` of an idle tag, discarded", "ms", "driver's calls, ms", "ratio"], taken)
    text += table(["four threads, no computation", "hits / misses", "ms", "plain copy of the restored bytes, ms", "ratio"], many)
    figures = {"residency": chart(f"Eight models of {gib(next(row['bytes_each'] for row in rows.values() if 'ratio' in row))} sharing memory for three", "s", ["memsaver", "plain copy of the restored bytes"], [
        ("", [(f"{int(row['requests'])} requests{', compressed' if row.get('coded') else ''}", [row["ours_ms"] / 1000, row["floor_ms"] / 1000]) for row in rows.values() if "ratio" in row])])}
    text = ["![More models than memory](figures/residency.svg)", ""] + text
    compared = [row for name, row in rows.items() if "compared" in name]
    return figures, text + [f"- Another run, of {int(row['requests'])} requests for models of {gib(row['bytes_each'])}{', compressed' if row.get('coded') else ''}, "
                            "compares every byte at every use: no byte was wrong." for row in compared] + ([""] if compared else [])


def verdict(value, goal, less=False):
    """"1.380 (goal 1.40: MISSED)"."""
    met = value <= goal if less else value >= goal
    return f"{value:.3f} (goal {goal:.2f}: {'met' if met else 'MISSED'})"


def compressed(rows):
    numbers, panels = [], []
    for row in rows.values():
        panels.append((gib(row["bytes"]), [
            ("prepared pause", [row["pause_ms"], row["plain_pause_ms"], row["copy_out_ms"]]),
            ("resume", [row["resume_ms"], row["plain_resume_ms"], row["copy_in_ms"]]),
            ("first pause", [row["first_pause_ms"], row["plain_first_pause_ms"], None])]))
        numbers.append([gib(row["bytes"]), verdict(row["kept_over_plain"], 0.68, less=True), verdict(row["pause_speed_over_copy"], 1.40),
                        verdict(row["resume_speed_over_copy"], 1.40), verdict(row["plain_first_pause_ms"] / row["first_pause_ms"], 1.25)])
    figure = chart("bf16 weights kept in host memory", "ms", ["Compressed<HostBackup>", "HostBackup", "one plain copy"], panels)
    return {"compressed": figure}, ["![Compressed backups](figures/compressed.svg)", ""] + table(["bf16 weights", "host memory / uncompressed size", "prepared pause, speed / plain copy", "resume, speed / plain copy",
                      "first pause, speed / uncompressed"], numbers)


def neighbour(rows):
    numbers = []
    for name, row in rows.items():
        way = name.split("/")[1]
        ratio = verdict(row["ratio"], 1.20, less=True) if way == "by kernel" else f"{row['ratio']:.2f}"
        numbers.append([f"copies {'as chosen by memsaver' if way == 'by kernel' else 'by copy engine only'}", gib(row["given_back_bytes"]),
                        number(row["resume_ms"]), number(row["quiet_copy_ms"]), ratio])
    size = gib(next(iter(rows.values()))["bytes"])
    figure = chart(f"Resume of {size} right after another process released memory", "ms", ["resume", "plain copy, idle device"],
                   [("", [(row[0].removeprefix("copies "), [rows[name]["resume_ms"], rows[name]["quiet_copy_ms"]]) for row, name in zip(numbers, rows)])])
    return {"neighbour": figure}, ["![Resume right after another process released memory](figures/neighbour.svg)", ""] + table([f"resume of {size} right after", "released by the other process", "ms", "plain copy, idle device, ms", "ratio"], numbers)


def file_source(rows):
    numbers = []
    for name, row in rows.items():
        _, state, threads, size = name.split("/")
        warm = state == "warm"
        goal = 0.92 if not warm else 0.55 if threads.startswith("8") else 0.70
        floor = "raw_direct_ms" if not warm else "plain_copy_ms"
        cells = [verdict(row[f"{what}_of_{'copy' if warm else 'raw'}"], goal) for what in ("load", "resume")]
        numbers.append([f"{size}, page cache {state}, {threads}", number(row["load_ms"]), number(row["resume_ms"]),
                        f"{number(row[floor])} ({'plain copy' if warm else 'raw direct reads'})", *cells])
    return {}, table(["file", "load, ms", "resume, ms", "floor, ms", "load, speed / floor", "resume, speed / floor"], numbers)


def llama_cpp(rows):
    numbers = []
    for name, row in sorted(rows.items(), key=lambda item: item[1]["gpus"]):
        name = name.partition("@")[0]
        on = " (on two GPUs)" if row["gpus"] == "2" else ""
        if name.startswith("cycles/"):
            told = f"{row['identical_cycles']} of {row['cycles']} cycles identical"
            for what in ("turns", "turns_by_use"):
                told += f", {row[what]['identical_cycles']} of {row[what]['cycles']} {what.replace('_', ' ')}" if what in row else ""
            numbers.append([name.split("/")[1] + on, told, "yes" if row["good"] else "NO"])
        elif name.startswith("weights/") and not on:  # on two there are two links
            numbers.append([f"{name.split('/')[1]} of the weights, speed / that of one block of the same size{on}", verdict(row["speed_ratio"], 0.95), ""])
        elif name.startswith("llama-bench/"):
            _, model, kind = name.split("/")
            ratio = verdict(row["speed_ratio"], 0.99) if kind == "generation" else f"{row['speed_ratio']:.3f}"
            numbers.append([f"llama-bench, {model}, {kind}{on}", f"{ratio}: {row['with_memsaver']:.1f} and {row['without']:.1f} tokens/s", ""])
        elif name == "test-backend-ops" and "tests" in row:
            told = f"{row['passed']:,} of {row['tests']:,} passed" + ("" if row["all"] else ", then the time limit was reached")
            numbers.append([f"test-backend-ops of CUDA0, compared with the CPU's results{on}", told, "yes" if row["good"] else "NO"])
    return {}, table(["llama.cpp on memsaver", "result, or with memsaver / without", "passed"], numbers)


def llama_server(rows):
    """The two routers, side by side."""
    names = ("memsaver", "reload")
    numbers = []

    def cells(name, key):
        return [rows.get(f"{side}/{name}", {}).get(key) for side in names]

    def line(what, name, *keys, show=lambda value: f"{value:,}" if isinstance(value, int) else number(value)):
        columns = [cells(name, key) for key in keys]
        told = ["" if None in of else " / ".join(show(value) for value in of) for of in zip(*columns)]
        if any(told):
            numbers.append([what, *told])

    times = ("p50_ms", "p99_ms")
    line("first token, awake: p50 / p99, ms", "awake", *times)
    line("first token, asleep or not loaded: p50 / p99, ms", "asleep", *times)
    line("the same, of several clients at once: p50 / p99, ms", "clients", *times)
    line("giving memory back: p50 / p99, ms", "asleep", "sleep_p50_ms", "sleep_p99_ms")
    line("prompt tokens still cached afterwards", "asleep", "prompt_tokens_kept")
    generation = rows.get("generation")
    if generation:
        numbers.append(["generation, tokens/s: median of answers in turn", number(generation["memsaver"]), number(generation["unmodified"])])
    line("all models in turn: requests/s", "turns", "requests_per_second")
    line("first token: p50 / p99, ms", "turns", *times)
    line("first token if the model was there when asked: p50 / p99, ms", "turns", "hit_p50_ms", "hit_p99_ms")
    line("first token if it was not", "turns", "miss_p50_ms", "miss_p99_ms")
    line("requests / failed / with other tokens", "turns", "requests", "failed", "different")
    line("first token after a worker was killed, ms", "killed", "first_token_ms")
    for where in ("device", "host"):
        line(f"{where} memory, all models loaded", "all loaded", f"{where}_bytes", show=gib)
        line(f"{where} memory, in turn, the most", "turns", f"{where}_bytes", show=gib)
    lines = table(["", *names], numbers)
    copy, asleep, awake = rows.get("plain copy"), rows.get("memsaver/asleep"), rows.get("memsaver/awake")
    if copy and asleep and awake:
        most = 1.15 * asleep["bytes"] / copy["gb_per_second"] / 1e6 + awake["p50_ms"] + 10
        lines.append(f"First token of a sleeping model of {gib(asleep['bytes'])}, p50, relative to 1.15 times a plain copy of its bytes, an awake "
                     f"model's first token and 10 ms: {verdict(asleep['p50_ms'] / most, 1.0, less=True)}.")
    if ratio := rows.get("memsaver/of reload"):
        lines.append(f"Requests/s relative to reloading: {verdict(ratio['requests_ratio'], 5)}.")
    if generation:
        lines.append(f"Generation relative to that with `GGML_MEMSAVER=off`, by two servers that take turns: {verdict(generation['ratio'], 0.99)}.")
    panels = [("one model", [("awake, p50", cells("awake", "p50_ms")), ("asleep, p50", cells("asleep", "p50_ms")),
                             ("asleep, several clients, p99", cells("clients", "p99_ms"))]),
              ("more models than room", [("p50", cells("turns", "p50_ms")), ("p99", cells("turns", "p99_ms"))]),
              ("after a worker was killed", [("", cells("killed", "first_token_ms"))])]
    return {"llama_server": chart("llama-server: time to first token", "ms", names, panels)}, lines


def cluster(rows):
    numbers = [[f"{int(row['ranks'])} over {row['link']}, {gib(row['bytes'])} each", number(row["update_ms"]), number(row["plain_copy_ms"]),
                number(row["broadcast_ms"]), verdict(row["ratio"], 1.15, less=True), number(row["update_in_turn_ms"]),
                number(row["update_without_old_bytes_ms"])] for row in rows.values()]
    links = [[f"{int(row['ranks'])} over {row['link']}", number(row["link_sleeps_ms"]), number(row["link_wakes_ms"]),
              mib(row["link_given_back_bytes"] / 2**20)] for row in rows.values()]
    return {}, [*table(["ranks", "resume, update, replay, ms", "plain copy", "broadcast", "relative to both", "one after the other, ms", "without the old bytes, ms"], numbers),
                *table(["communicator and its registered memory", "pause, ms", "resume, ms", "released on each device"], links)]


PARTS = {"pause_resume": pause_resume, "backup": backup, "exchange": exchange, "arrival": arrival, "residency": residency, "elastic": elastic,
         "allocate": allocate, "fragmentation": fragmentation, "devices": devices, "peers": peers, "large": large, "engine": engine, 
         "compressed": compressed, "neighbour": neighbour, "file_source": file_source, "llama_cpp": llama_cpp,
         "llama_server": llama_server, "cluster": cluster}


def weight(folder):
    """The latest result of bench/weight.py with a baseline: seconds and bytes of both trees, goals, and the bytes that a
    feature adds."""
    paths = [path for path in sorted(folder.glob("*-weight.json"))
             if "baseline" in json.loads(path.read_text(encoding="utf-8"))["context"]["commits"]]
    if not paths:
        return ["No results yet."]
    content = json.loads(paths[-1].read_text(encoding="utf-8"))
    context, runs = content["context"], {}
    for row in content["rows"]:
        runs[row["compiler"], row["form"], row["program"], row["tree"]] = row
    words = {"including": "`#include <memsaver/memsaver.hpp>` alone", "plain": "the plain program", "library": "the library"}
    lines, features = [], {}

    def bytes_of(row):
        return row["text"] + row["tables"]

    for (compiler, form, program, tree), now in runs.items():
        if tree != "now":
            continue
        before = runs.get((compiler, form, program, "baseline"))
        if program in words:
            seconds = [f"{before['cpu_seconds']:.1f}" if before else "", f"{now['cpu_seconds']:.1f}",
                       f"{now['cpu_seconds'] / before['cpu_seconds']:.2f}" if before else ""]
            kib = [f"{bytes_of(before) / 1024:,.0f}" if before else "", f"{bytes_of(now) / 1024:,.0f}",
                   f"{bytes_of(now) / bytes_of(before):.2f}" if before and bytes_of(before) else ""]
            lines.append([f"{compiler}, {form}: {words[program]}", *seconds, *kib])
        elif form == "header-only":
            features.setdefault(program, {})[compiler] = now["text"] - runs[compiler, form, "plain", "now"]["text"]
    told = []
    for compiler, program, what, goal in (("g++", "plain", "seconds", 0.60), ("g++", "plain", "bytes", 0.56),
                                          ("clang++", "plain", "seconds", 0.65), ("g++", "including", "seconds", 0.55),
                                          ("clang++", "including", "seconds", 0.55)):
        pair = [runs.get((compiler, "header-only", program, tree)) for tree in ("now", "baseline")]
        if all(pair):
            ratio = pair[0]["cpu_seconds"] / pair[1]["cpu_seconds"] if what == "seconds" else bytes_of(pair[0]) / bytes_of(pair[1])
            told.append(f"{compiler}, {words[program]}, {what}: {ratio:.2f} of at most {goal:.2f}, {'met' if ratio <= goal else 'MISSED'}")
    if features:
        compilers = list(context["compilers"])
        rows = [[f"`{name}`", *(f"{of[each] / 1024:+,.0f}" if each in of else "" for each in compilers)]
                for name, of in sorted(features.items(), key=lambda item: -max(item[1].values()))]
        most = max((max(of.values()), name) for name, of in features.items())
        extra = ["", "Text that a program has beyond the plain one, header-only, in KiB, when it uses a feature:",
                 *table(["feature", *compilers], rows), f"The largest is `{most[1]}`. Goal: at most 60 KB for each but `Compressed` and `FileSource`."]
    else:
        extra = []
    load = f"; load {context['load']}" if context["load"] > context["cores"] else ""
    return [*table(["compiled", "CPU s before", "now", "ratio", "KiB before", "now", "ratio"], lines),
            "Goals, as ratios: " + "; ".join(told) + ".", *extra, "",
            f"Before: {context['commits']['baseline']}; now: {context['commits']['now']}. From "
            f"[{paths[-1].name}](../bench/results/{paths[-1].name}): {', '.join(context['compilers'].values())}; {context['flags']}; "
            f"{context['cores']} cores of {context['cpu']}{load}."]


def headline(results):
    """Returns the README's table: torch_memory_saver, CUDA's checkpoint and a plain copy beside memsaver, from one run."""
    _, context, rows, _ = results.get("peers", ({}, {}, {}, {}))
    copy = rows.get("copy/8 GiB/driver", {})
    last = [rows.get(f"{kind}/{shape}/{who}") for kind, shape in (("backup", "1 x 8 GiB"), ("discard", "4096 x 2 MiB"), ("discard", "1 x 8 GiB"))
            for who in ("torch_memory_saver", "memsaver")]
    driver = rows.get("checkpoint/1 x 8 GiB/driver")
    if not copy or None in last or driver is None:
        return []
    kept, ours, many, many_ours, one, one_ours = last
    both = "{} + {}".format
    pair = lambda row, *keys: both(*(number(row[key]) for key in keys))  # noqa: E731
    lines = table(
        ["ms, lower is better", "torch_memory_saver", "CUDA checkpoint", "one plain copy", "memsaver"],
        [["First sleep of 8 GiB, kept in host memory", number(kept["first_pause_ms"]), number(driver["pause_ms"]), number(copy["out_ms"]),
          number(ours["first_pause_ms"])],
         ["Later sleep + wake of it", pair(kept, "pause_ms", "resume_ms"), "", pair(copy, "out_ms", "in_ms"), pair(ours, "pause_ms", "resume_ms")],
         ["Sleep + wake of 4,096 tensors of 2 MiB, discarded", pair(many, "pause_ms", "resume_ms"), "", "", pair(many_ours, "pause_ms", "resume_ms")],
         ["Sleep + wake of one tensor of 8 GiB, discarded", pair(one, "pause_ms", "resume_ms"), "", "", pair(one_ours, "pause_ms", "resume_ms")]])
    file = next(iter(results["peers"][0]))
    return [*lines, f"One {context['gpu']}, driver {context['driver']}, {context['date']}, torch_memory_saver {context['peer_version']}, commit "
            f"{context['commit'][:7]}: [all of it](bench/results/{file}).", "", served(results)]


def served(results):
    """The README's sentence about llama-server."""
    rows = results["llama_server"][2]
    asleep, reload, ratio = rows["memsaver/asleep"], rows["reload/asleep"], rows["memsaver/of reload"]["requests_ratio"]
    return (f"[llama-server](examples/llama_cpp/SERVER.md) sleeps by a pause: the first token of a sleeping model of {gib(asleep['bytes'])} comes after "
            f"{number(asleep['p50_ms'])} ms, and after {number(reload['p50_ms'])} by reloading; {rows['alone']['models']} models in the room of three "
            f"answer {number(ratio)} times as many requests a second.")


TABLES = """# Tables

Written by `bench/plot.py` from the files beside it, which [the benchmarks' page](../../docs/benchmarks.md) names and
explains.
"""

# What is shown where the program is described; all else is in docs/benchmarks.md.
ELSEWHERE = {"engine": "docs/engine.md", "cluster": "docs/distributed.md", "llama_cpp": "examples/llama_cpp/README.md",
             "llama_server": "examples/llama_cpp/SERVER.md"}


def compose(results):
    """Returns the figures by name, the contents between the marks of the pages, by name, and the page of tables."""
    figures, blocks, tables = {}, {}, []
    for name, part in PARTS.items():
        blocks[name] = ["No results yet."]
        if name not in results:
            continue
        files, _, rows, content = results[name]
        if not rows and name != "engine":
            continue
        drawn, lines = part(content if name == "engine" else rows)
        figures.update(drawn)
        origins = []
        for file, context in files.items():
            commit = re.sub(r"^([0-9a-f]{12})[0-9a-f]*", r"\1", context["commit"])
            up = "../" * ELSEWHERE.get(name, "docs/").count("/")
            origins.append(f"[{file}]({up}bench/results/{file}) ({context['gpu']}, driver {context['driver']}, "
                           f"CUDA {context.get('toolkit', 'unknown')}, commit {commit}, {context['date']})")
        blocks[name] = [*(lines if name in ELSEWHERE else folded(name, lines, tables)), "From " + ", ".join(origins) + "."]
    return figures, blocks, tables


def replaced(page, blocks):
    """Returns the page's text with these lines between its marks."""
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    for name, lines in blocks.items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise SystemExit(f"{page} lacks the markers {begin} and {end}")
        text = before + "\n".join([begin, "", *lines, "", end]) + after
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "benchmarks.md")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    parser.add_argument("--figures", type=Path, default=ROOT / "docs" / "figures")
    parser.add_argument("--host", action="store_true", help="use results of a machine without a GPU, to test this script")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if anything is out of date")
    arguments = parser.parse_args()
    results = load(arguments.results, arguments.host)
    if not results:
        raise SystemExit(f"no results in {arguments.results}; run bench/run.py first")
    figures, blocks, tables = compose(results)
    blocks["weight"] = weight(arguments.results)
    written = {arguments.results / "README.md": "\n".join([TABLES, *tables[:-1], ""]),
               **{arguments.figures / f"{name}.svg": content for name, content in figures.items()}}
    for page in dict.fromkeys(ELSEWHERE.values()):
        there = {name: blocks.pop(name) for name in list(blocks) if ELSEWHERE.get(name) == page}
        written[arguments.page.parents[1] / page] = replaced(arguments.page.parents[1] / page, there)
    written[arguments.page] = replaced(arguments.page, blocks)
    written[arguments.readme] = replaced(arguments.readme, {"numbers": headline(results)})

    stale = [path for path, content in written.items() if not path.exists() or path.read_text(encoding="utf-8") != content]
    for path in stale:
        print(("out of date: " if arguments.check else "wrote ") + str(path))
        if not arguments.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(written[path], encoding="utf-8")
    return 1 if arguments.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
