#!/usr/bin/env python3
"""Edits a checkout of llama.cpp so that it allocates its memory from memsaver.

    edit.py CHECKOUT            edit; a checkout that is already edited is unchanged
    edit.py --check CHECKOUT    only report whether every place is found
    edit.py --undo CHECKOUT     remove the edits

The list below has two kinds of edits: adding a line next to an existing one, and renaming calls. Nothing is written
unless every place is found; otherwise each missing place is printed with instructions, and the exit status is 1.
"""
import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path

BASE = "ggml/src/ggml-backend.cpp"
CUDA = "ggml/src/ggml-cuda/"


@dataclass(frozen=True)
class Line:
    """Adds `line` after, or before, the only line that contains `anchor`."""

    file: str
    line: str
    anchor: str
    advice: str
    after: bool = True

    def where(self):
        return f"{self.file}: the line with '{self.anchor}'"

    def done(self, text):
        return self.line in text.split("\n")

    def apply(self, text):
        lines = text.split("\n")
        found = [number for number, line in enumerate(lines) if self.anchor in line]
        if len(found) != 1:
            return None
        lines.insert(found[0] + (1 if self.after else 0), self.line)
        return "\n".join(lines)

    def undo(self, text):
        return "\n".join(line for line in text.split("\n") if line != self.line)


@dataclass(frozen=True)
class Call:
    """Renames calls of `old` in this file to `new`; there must be at least `least` of them."""

    file: str
    old: str
    new: str
    advice: str
    least: int = 1

    def where(self):
        return f"{self.file}: {self.least} or more of '{self.old}'"

    def renamed(self, text):
        return re.subn(r"(?<!\w)" + re.escape(self.old), lambda _: self.new, text)

    def done(self, text):
        return text.count(self.new) >= self.least and self.renamed(text)[1] == 0

    def apply(self, text):
        text, count = self.renamed(text)
        return text if count > 0 and text.count(self.new) >= self.least else None

    def undo(self, text):
        return text.replace(self.new, self.old)


INCLUDE = '#include "ggml_memsaver.h"'
WEIGHTS = "Find where this file allocates its tensors. Without the edit they have the tag 'compute' and are saved at every pause."
CACHE = "Find where this file allocates its state. Without the edit it has the tag 'compute'. If the file no longer exists, remove it from the list."
MEMORY = "Find what allocates and frees GPU memory, and rename both calls. Edit both or none: allocation and deallocation must match."

# Files that not every version has. If one is missing, so is the feature that its edit is for.
SERVER = "tools/server/server"
MAY_BE_MISSING = {CUDA + "allreduce.cu", "src/llama-kv-cache-dsv4.cpp", "src/llama-adapter.cpp", f"{SERVER}.cpp",
                  *(f"{SERVER}-{part}" for part in ("queue.h", "queue.cpp", "context.h", "context.cpp", "models.cpp"))}

EDITS = [
    # The library behind ggml-base; MEMSAVER_LLAMA_CPP is a CMake option.
    Line("ggml/src/CMakeLists.txt", 'include("${MEMSAVER_LLAMA_CPP}/glue.cmake")', "target_include_directories(ggml-base",
         "Add the line after the target ggml-base is defined."),
    # Buffers of the CPU backend: memsaver's with GGML_MEMSAVER=host.
    Line(BASE, INCLUDE, '#include "ggml-impl.h"', "Add the line below the other includes."),
    Call(BASE, "ggml_aligned_malloc(", "ggml_memsaver_host_malloc(", "Find the allocation in ggml_backend_cpu_buffer_type."),
    Call(BASE, "ggml_aligned_free(", "ggml_memsaver_host_free(", "Find the deallocation of buffers of ggml_backend_cpu_buffer_type."),
    # The CUDA backend: buffers, the pool of temporary memory, workspaces of cuBLAS.
    Line(CUDA + "common.cuh", '#include "ggml_memsaver_cuda.h"', "#define STRINGIZE_IMPL(",
         "Add the line after the include of vendors/cuda.h.", after=False),
    Call(CUDA + "common.cuh", "cudaMalloc(", "ggml_memsaver_cuda_malloc(", MEMORY),
    Call(CUDA + "ggml-cuda.cu", "cudaMalloc(", "ggml_memsaver_cuda_malloc(", MEMORY),
    Call(CUDA + "ggml-cuda.cu", "cudaFree(", "ggml_memsaver_cuda_free(", MEMORY, least=4),
    Call(CUDA + "allreduce.cu", "cudaMalloc(", "ggml_memsaver_cuda_malloc(", MEMORY),
    Call(CUDA + "allreduce.cu", "cudaFree(", "ggml_memsaver_cuda_free(", MEMORY),
    # A pool that maps memory itself cannot be paused; the other pool allocates memory as buffers do.
    Call(CUDA + "ggml-cuda.cu", "devices[device].vmm)", "devices[device].vmm && !ggml_memsaver_on_gpu())",
         "Find new_pool_for_device and make it choose ggml_cuda_pool_leg, or configure with -DGGML_CUDA_NO_VMM=ON."),
]
for name, new, advice in (
    ("llama-model", "ggml_memsaver_alloc_weights(", WEIGHTS),
    ("llama-adapter", "ggml_memsaver_alloc_weights(", WEIGHTS),
    ("llama-kv-cache", "ggml_memsaver_alloc_cache(", CACHE),
    ("llama-kv-cache-dsv4", "ggml_memsaver_alloc_cache(", CACHE),
    ("llama-memory-recurrent", "ggml_memsaver_alloc_cache(", CACHE),
):
    file = f"src/{name}.cpp"
    EDITS += [
        Line(file, INCLUDE, f'#include "{name}.h"', "Add the line below the other includes."),
        Call(file, "ggml_backend_alloc_ctx_tensors_from_buft(", new, advice),
    ]

# With `source`, memsaver reads a weight from the GGUF file. The line is at a place where `cur`, `weight` and the open
# files are known, and nothing has been read.
LOADER = "src/llama-model-loader.cpp"
EDITS += [
    Line(LOADER, INCLUDE, '#include "llama-model-loader.h"', "Add the line below the other includes."),
    Line(LOADER, "        if (ggml_memsaver_load(cur, files.at(weight->idx)->file_id(), weight->offs)) { size_done += n_size; continue; }",
         "size_t n_size = ggml_nbytes(cur);",
         "Find where load_all_data reads a tensor. Without the edit, only GGML_MEMSAVER_WEIGHTS=source does not work."),
]

# llama-server: a model that sleeps is paused and not freed, and /sleep, /wake and /memory. SERVER.md says more.
SLEEP = "Find where the server frees the model in order to sleep, and loads it again. Without the edit it still does."
ASKED = "Find the loop that decides to sleep, and waits. Without the edit, /sleep has no effect."
LENT = "Find the loop that waits for requests. Edit both places or none. Without them, a worker keeps its memory."
EDITS += [
    Line(f"{SERVER}-context.cpp", INCLUDE, '#include "server-context.h"', "Add the line below the other includes."),
    Line(f"{SERVER}-context.cpp", "            if (ggml_memsaver_sleep()) { sleeping = true; return; }",
         '"server is entering sleeping state\\n"', SLEEP),
    Line(f"{SERVER}-context.cpp",
         "            if (ggml_memsaver_wake()) { sleeping = false; if (callback_state) { callback_state(SERVER_STATE_READY, {}); } return; }",
         '"server is exiting sleeping state\\n"', SLEEP),
    # A server that only sleeps when asked has no --sleep-idle-seconds, and is woken by requests all the same.
    Call(f"{SERVER}-context.cpp", "bypass_sleep |= sleep_idle_seconds < 0;", "(void) sleep_idle_seconds;", ASKED),
    Line(f"{SERVER}-queue.h",
         "    bool want_sleep = false; bool ask_to_sleep(bool ask) { std::lock_guard<std::mutex> lock(mutex_tasks);"
         " if (ask) { want_sleep = !sleeping; condition_tasks.notify_all(); } return want_sleep; }",
         "    bool is_sleeping() {", ASKED, after=False),
    Line(f"{SERVER}-queue.cpp", "        if (want_sleep) { return true; }", "// caller must hold mutex_tasks", ASKED),
    Line(f"{SERVER}-queue.cpp", "                want_sleep = false;", '"entering sleeping state\\n"', ASKED),
    Call(f"{SERVER}-queue.cpp", "return (!queue_tasks.empty() || !running);", "return (!queue_tasks.empty() || !running || want_sleep);", ASKED),
    # A request that arrives just before the server sleeps wakes it.
    Call(f"{SERVER}-queue.cpp", "return (!running || req_stop_sleeping);", "return (!running || req_stop_sleeping || !queue_tasks.empty());", ASKED),
    Line(f"{SERVER}-context.h", "    struct server_queue & memsaver_queue();", "    void start_loop();", ASKED),
    Line(f"{SERVER}-context.cpp", "server_queue & server_context::memsaver_queue() { return impl->queue_tasks; }",
         "void server_context::start_loop() {", ASKED, after=False),
    Line(f"{SERVER}.cpp", '#include "ggml_memsaver_server.h"', '#include "server-tools.h"', "Add the line below the other includes."),
    Line(f"{SERVER}.cpp",
         "    if (is_router_server) { ggml_memsaver_router_routes(ctx_http, ex_wrapper(models_routes->proxy_get), ex_wrapper(models_routes->proxy_post)); }"
         " else { ggml_memsaver_routes<server_http_res>(ctx_http, ctx_server.memsaver_queue(), params.model_alias); }",
         'ctx_http.get ("/metrics",', "Find where the server adds its routes. Without the edit, it has no /sleep, /wake and /memory."),
    # Workers of a router that share a device: a busy one keeps its memory, an idle one lends it.
    Line(f"{SERVER}-queue.cpp", '#include "ggml_memsaver.h"', '#include "server-queue.h"', "Add the line below the other includes."),
    Line(f"{SERVER}-queue.cpp", "        ggml_memsaver_busy();", 'QUE_DBG("%s", "processing new tasks\\n");', LENT, after=False),
    Line(f"{SERVER}-queue.cpp", "            ggml_memsaver_idle();", "// no tasks, check for sleeping state", LENT),
    # A request to a worker that was killed goes to its successor.
    Line(f"{SERVER}-models.cpp", '#include "ggml_memsaver_server.h"', '#include "server-models.h"', "Add the line below the other includes."),
    Line(f"{SERVER}-models.cpp",
         "    if (ggml_memsaver_worker_died(*this, name, meta->port, *proxy, req.should_stop())) { proxy.reset();"
         " ensure_model_ready(name, req.should_stop); return proxy_request(req, method, name, update_last_used, detached); }",
         "    return proxy;", "Find where the router forwards a request. Without the edit, requests fail that come just after a worker was killed.",
         after=False),
    # The first tokens after a resume are computed while the weights arrive.
    Line("src/llama-context.cpp", INCLUDE, '#include "llama-context.h"', "Add the line below the other includes."),
    Line("src/llama-context.cpp",
         "    ggml_backend_sched_set_eval_callback(sched.get(), ggml_memsaver_eval(cparams.cb_eval), cparams.cb_eval_user_data);",
         "ggml_backend_sched_graph_compute_async(sched.get(), gf)",
         "Find where a context computes a graph: without the edit, it computes with weights that have not arrived.", after=False),
]

# Remaining calls of these functions elsewhere are not edited but reported, because they may be new.
LEFT = (
    (CUDA, re.compile(r"\b(cudaMalloc|cudaMallocAsync|cudaFree|cudaFreeAsync|cuMemAlloc|cuMemCreate)\("), "is not paused"),
    ("src/", re.compile(r"\bggml_backend_alloc_ctx_tensors_from_buft\("), "has the tag 'compute'"),
)
KNOWN = re.compile(r"ggml-cuda\.cu:\d+: CU_CHECK\(cuMemCreate")  # in the pool that is not used


def apply(root, undo=False, write=True):
    """Returns the changed files and the edits whose place was not found. Writes all files, or none."""
    texts, missing = {}, []
    for edit in EDITS:
        path = root / edit.file
        if edit.file not in texts:
            if not path.is_file():
                if edit.file not in MAY_BE_MISSING:
                    missing.append(edit)
                continue
            texts[edit.file] = path.read_text(encoding="utf-8")
        text = texts[edit.file]
        if undo:
            texts[edit.file] = edit.undo(text)
        elif not edit.done(text):
            changed = edit.apply(text)
            if changed is None:
                missing.append(edit)
            else:
                texts[edit.file] = changed
    changed = [file for file, text in texts.items() if text != (root / file).read_text(encoding="utf-8")]
    if write and (undo or not missing):
        for file in changed:
            (root / file).write_text(texts[file], encoding="utf-8")
    return changed, missing


def left_over(root):
    """Yields calls that allocate memory and are not on the list."""
    for folder, pattern, what in LEFT:
        for path in sorted((root / folder).glob("*.c*")):
            for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
                said = f"{path.relative_to(root)}:{number}: {line.strip()}"
                if pattern.search(line) and not KNOWN.search(said):
                    yield f"{said}  ({what})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--undo", action="store_true")
    about = parser.parse_args()
    if not (about.checkout / "ggml" / "src").is_dir():
        raise SystemExit(f"{about.checkout} is not a checkout of llama.cpp: it has no ggml/src")
    changed, missing = apply(about.checkout, about.undo, not about.check)
    if missing and not about.undo:
        print("Nothing was changed. These places were not found, or found more than once:")
        for edit in missing:
            print(f"  {edit.where()}\n    {edit.advice}")
        print("edit.py does not support this version of llama.cpp; update its list of edits.")
        return 1
    verb = "would change" if about.check else "changed"
    nothing = "nothing to undo: no edits found" if about.undo else "nothing to change: all edits are already made"
    print(f"{len(changed)} files {verb}" if changed else nothing)
    if not about.undo and not about.check:
        for line in left_over(about.checkout):
            print(f"not edited: {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
