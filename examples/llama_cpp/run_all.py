#!/usr/bin/env python3
"""Edits a checkout of llama.cpp, builds it with memsaver, and runs the checks.

    run_all.py --checkout llama.cpp --build build/llama_cpp              on a GPU; the checkout is edited in place
    run_all.py --fetch build/llama_cpp/source --build build/llama_cpp --cpu     no GPU: host memory behind its CPU backend

`--fetch` downloads llama.cpp as part of the source package of llama-cpp-python, by pip, and unpacks it in that folder.
`--library` is an existing libmemsaver.so; otherwise it is built too. `--only build,cycles,ops,bench` runs some steps;
an existing build is reused. `--programs` is a folder with its programs if they were built elsewhere: nothing is built,
and the checkout needs only gguf-py. `--out` is the folder for results, as JSON; without it, none are written. An
interrupt writes those that exist. Needs CMake, a C++20 compiler, a Python with NumPy, and for a GPU the CUDA toolkit.
Exits with 1 if something failed, and with 77 and one line if the source or a tool is not available.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "bench"))
from run import machine, output_of, short  # noqa: E402

PACKAGE = "llama-cpp-python==0.3.36"  # the version that edit.py supports
SMALL = ["--layers", "3", "--width", "256", "--inner", "512", "--vocab", "1024"]
LARGE = ["--layers", "18", "--width", "4096", "--heads", "32", "--kv-heads", "8", "--inner", "14336", "--vocab", "32000"]
MIDDLE = ["--layers", "12", "--width", "2048", "--heads", "16", "--kv-heads", "8", "--inner", "8192", "--vocab", "32000"]
# (name, arguments of random_model.py): the first is measured, the second takes turns with it.
CPU_MODELS = [("f16", ["--type", "f16", *SMALL]), ("q8_0", ["--type", "q8_0", *SMALL, "--seed", "2"])]
GPU_MODELS = [("8g-bf16", ["--type", "bf16", *LARGE]), ("1g-q8_0", ["--type", "q8_0", *MIDDLE, "--seed", "2"])]


class LeftOut(Exception):
    """A resource that this machine does not have."""


def python_with(*modules):
    """Returns this Python or the system's, whichever has the modules."""
    for candidate in (sys.executable, "python3", "/usr/bin/python3"):
        test = [candidate, "-c", "import " + ",".join(modules)]
        if shutil.which(candidate) and subprocess.run(test, capture_output=True, check=False).returncode == 0:
            return candidate
    raise LeftOut(f"no Python installation has {' and '.join(modules)}")


def fetch(folder):
    """Downloads llama.cpp from the source package of its Python binding."""
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob("*.tar.gz")):
        command = [python_with("pip"), "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "llama-cpp-python",
                   "--retries", "1", "--timeout", "30", "--dest", str(folder), PACKAGE]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        except subprocess.TimeoutExpired:
            raise LeftOut(f"{PACKAGE} could not be downloaded within 180 s") from None
        if done.returncode != 0 or not list(folder.glob("*.tar.gz")):
            raise LeftOut(f"{PACKAGE} could not be downloaded: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    for old in folder.glob("*/vendor"):  # may have the edits of another version of edit.py
        shutil.rmtree(old.parent)
    with tarfile.open(sorted(folder.glob("*.tar.gz"))[0]) as archive:
        wanted = [member for member in archive.getmembers()
                  if "/vendor/llama.cpp/" in member.name and not re.search(r"/llama\.cpp/(docs|models|media)/", member.name)]
        archive.extractall(folder, wanted, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return sorted(folder.glob("*/vendor/llama.cpp/ggml/src"))[0].parents[1]


def build(about, server=False):
    options = {
        "MEMSAVER_LLAMA_CPP": HERE, "GGML_CCACHE": "OFF", "LLAMA_OPENSSL": "OFF", "LLAMA_BUILD_EXAMPLES": "OFF",
        "LLAMA_BUILD_SERVER": "OFF", "LLAMA_BUILD_APP": "OFF",
    }
    if about.library:
        options["MEMSAVER_LIBRARY"] = about.library.resolve()
    if about.cpu:  # for correctness only; compiled as fast as possible
        targets = ["memsaver_cycles"]
        options |= {"CMAKE_BUILD_TYPE": "None", "CMAKE_CXX_FLAGS": "-O0", "CMAKE_C_FLAGS": "-O1", "BUILD_SHARED_LIBS": "OFF"}
        options |= dict.fromkeys(["LLAMA_BUILD_COMMON", "LLAMA_BUILD_TESTS", "LLAMA_BUILD_TOOLS", "GGML_OPENMP",
                                  "GGML_LLAMAFILE", "GGML_CPU_REPACK", "GGML_NATIVE"], "OFF")
    else:
        targets = ["memsaver_cycles", "test-backend-ops", "llama-bench"]
        options |= {"CMAKE_BUILD_TYPE": "Release", "GGML_CUDA": "ON", "GGML_CUDA_NCCL": "OFF", "LLAMA_BUILD_TESTS": "ON", "LLAMA_BUILD_TOOLS": "ON"}
    if server:
        targets = ["llama-server", "memsaver_keeper"]
        options |= dict.fromkeys(["LLAMA_BUILD_SERVER", "LLAMA_BUILD_COMMON", "LLAMA_BUILD_TOOLS"], "ON")
        options |= dict.fromkeys(["LLAMA_BUILD_UI", "LLAMA_USE_PREBUILT_UI", "LLAMA_BUILD_TESTS"], "OFF")
    for step in (
        ["cmake", "-S", about.checkout, "-B", about.build, *(f"-D{name}={value}" for name, value in options.items()),
         *about.cmake.split()],
        ["cmake", "--build", about.build, "--parallel", str(about.jobs), "--target", *targets],
    ):
        log = about.build / "build.log"
        with log.open("w", encoding="utf-8") as out:
            if subprocess.run(step, stdout=out, stderr=subprocess.STDOUT, check=False).returncode != 0:
                print("\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-60:]))
                raise SystemExit("the build failed")


class Runner:
    def __init__(self, about):
        self.about, self.rows, self.failed = about, [], False
        self.programs = about.programs.resolve() if about.programs else about.build / "bin"

    def row(self, name, good, text, **values):
        self.rows.append({"name": name, "good": bool(good), **values})
        self.failed |= not good
        print(f"  {name:<34} {'ok' if good else 'FAILED':<7} {text}", flush=True)

    def output(self, program, *arguments, limit=600, **environment):
        """Returns (exit status, standard output, standard error); the status is None after a timeout."""
        command = [str(self.programs / program), *map(str, arguments)]
        variables = {**os.environ, "GGML_MEMSAVER": "host" if self.about.cpu else "gpu", **environment}
        try:
            done = subprocess.run(command, env=variables, capture_output=True, text=True, errors="replace", timeout=limit, check=False)
            return done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired as late:
            out = late.stdout or b""
            return None, out if isinstance(out, str) else out.decode(errors="replace"), f"timeout after {limit} s"

    def models(self):
        files = []
        for name, arguments in CPU_MODELS if self.about.cpu else GPU_MODELS:
            file = self.about.build / f"random-{name}.gguf"
            if not file.exists():
                command = [python_with("numpy"), str(HERE / "random_model.py"), "--checkout", self.about.checkout, "--out", file]
                subprocess.run([*command, *arguments], stdout=subprocess.DEVNULL, check=True)
            files.append(file)
        return files

    def cycles(self):
        """Compares bits while another allocation fills the device; compares the speed of pause and resume with a
        plain block's."""
        first, second = self.models()
        host = {"GGML_MEMSAVER_HOST_MIB": "20"} if self.about.cpu else {}  # not both models at once
        context = [] if self.about.cpu else ["--context", 8192, "--prompt", 128]
        for name, files, speed, environment in (
            ("cycles/kept", [first, second], 10, {}),
            ("cycles/compute discarded", [first, second], 0, {"GGML_MEMSAVER_COMPUTE": "poison"}),
            ("cycles/weights from the GGUF", [first, second], 0, {"GGML_MEMSAVER_WEIGHTS": "source"}),
            ("cycles/compressed", [second], 0, {"GGML_MEMSAVER_WEIGHTS": "once,compressed", "GGML_MEMSAVER_CACHE": "host,compressed"}),
            ("cycles/cache in a file", [second], 0, {"GGML_MEMSAVER_CACHE": "file"}),
        ):
            if not re.search(self.about.cases, name):
                continue
            status, out, err = self.output(
                "memsaver_cycles", *files, *context, "--cycles", self.about.cycles, "--speed", 0 if self.about.cpu else speed,
                **host, **environment)
            try:
                said = json.loads(out)
            except json.JSONDecodeError:
                if "MEMSAVER_UNAVAILABLE" in err and "compressed" in name:  # nvCOMP, for a GPU
                    print(f"  {name:<34} skipped: no codec")
                    continue
                self.row(name, False, f"exit {status}: {(err.strip().splitlines() or ['no output'])[-1]}")
                continue
            text = "" if said["repeatable"] else "not repeatable without a pause; "
            text += f"{said['identical_cycles']} of {said['cycles']} cycles identical"
            for what in ("turns", "turns_by_use"):
                if what in said:
                    text += f", {said[what]['identical_cycles']} of {said[what]['cycles']} {what.replace('_', ' ')}"
            for what in ("pause", "resume"):
                text += f", {what} {said[what]['bytes'] / 2**30:.2f} GiB in {said[what]['ms']:.1f} ms"
            good = status == 0 and said["identical"] and said["still_mapped_bytes"] == 0
            if environment.get("GGML_MEMSAVER_WEIGHTS") == "source":  # weights are never saved
                good = good and said["weights_kept_bytes"] == 0
            self.row(name, good, text, **said)
            for what in ("pause", "resume"):
                if f"plain_{what}" in said:
                    ratio = said[f"plain_{what}"]["ms"] / said[f"weights_{what}"]["ms"]
                    speed = said[f"weights_{what}"]["bytes"] / said[f"weights_{what}"]["ms"] / 1e6
                    self.row(f"weights/{what}", ratio >= 0.95, f"{speed:.1f} GB/s, {ratio:.3f} of the speed of one block of the same size", speed_ratio=ratio,
                             gb_per_second=speed)

    def ops(self):
        """Runs llama.cpp's own test of every operation, which compares the GPU with the CPU."""
        start = time.monotonic()
        status, out, _ = self.output("test-backend-ops", "test", "-b", "CUDA0", *self.about.ops.split(), limit=self.about.limit)
        out = re.sub(r"\x1b\[[\d;]*m", "", out)  # colors
        counts = re.findall(r"(\d+)/(\d+) tests passed", out)
        bad = len(re.findall(r"\bFAIL\b", out))
        passed = int(counts[-1][0]) if counts else len(re.findall(r"[^a-zA-Z]OK", out))
        tests = int(counts[-1][1]) if counts else passed + bad
        self.row("test-backend-ops", status in (0, None) and bad == 0 and passed > 0,
                 f"{passed} of {tests} passed" + ("" if counts else ", then stopped") + (" (incomplete: time limit reached)" if status is None else ""),
                 passed=passed, tests=tests, all=bool(counts), seconds=round(time.monotonic() - start))

    def bench(self):
        """Runs llama-bench of the same build with GGML_MEMSAVER=off and gpu, alternating."""
        for file in self.models():
            if not re.search(self.about.cases, f"llama-bench/{file.stem}"):
                continue
            best = {}
            for _ in range(3):
                for where in ("off", "gpu"):
                    status, out, err = self.output("llama-bench", "-m", file, "-ngl", "99", "-p", "512", "-n", "128", "-r", "3", "-o", "json",
                                                   GGML_MEMSAVER=where)
                    if status != 0:
                        self.row(f"llama-bench/{where}", False, f"exit {status}: {(err.strip().splitlines() or ['?'])[-1]}")
                        return
                    for test in json.loads(out):
                        key = (where, "generation" if test["n_gen"] else "prompt")
                        best[key] = max(best.get(key, 0.0), test["avg_ts"])
            for kind in ("prompt", "generation"):
                off, on = best["off", kind], best["gpu", kind]
                self.row(f"llama-bench/{file.stem}/{kind}", kind == "prompt" or on >= 0.99 * off,
                         f"{on:.1f} tokens/s, {on / off:.4f} of {off:.1f} without", with_memsaver=on, without=off, speed_ratio=on / off)

    def keep(self, about_machine):
        about_machine["llama_cpp"] = output_of("git", "-C", str(self.about.checkout), "rev-parse", "--short=12", "HEAD") \
            if (self.about.checkout / ".git").exists() else PACKAGE
        toolkit = re.search(r"release ([\d.]+)", output_of("nvcc", "--version"))
        about_machine["toolkit"] = toolkit[1] if toolkit else "unknown"
        several = f"x{about_machine['gpus']}" if int(about_machine["gpus"]) > 1 else ""
        path = self.about.out / f"{about_machine['date']}-{short(about_machine['gpu'])}{several}-llama_cpp.json"
        path.write_text(json.dumps({"context": about_machine, "benchmarks": self.rows}, indent=1) + "\n", encoding="utf-8")
        print(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--checkout", type=Path)
    source.add_argument("--fetch", type=Path)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--library", type=Path)
    parser.add_argument("--programs", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--cycles", type=int, default=20)
    parser.add_argument("--cases", default="", help="run only cycles and models whose name matches this regular expression, such as 'kept|8g'")
    parser.add_argument("--limit", type=int, default=420, help="seconds for test-backend-ops")
    parser.add_argument("--ops", default="", help="further arguments of test-backend-ops, such as --ops='-o MUL_MAT -j 8'")
    parser.add_argument("--cmake", default="", help="further CMake options, such as --cmake='-DCMAKE_CUDA_ARCHITECTURES=90'")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    about = parser.parse_args()
    every = ["build", "cycles"] if about.cpu else ["build", "cycles", "bench", "ops"]
    if about.programs:
        every.remove("build")
    steps = about.only.split(",") if about.only else every
    if set(steps) - set(every):
        parser.error(f"--only must be a comma-separated list of {', '.join(every)}")
    try:
        if "build" in steps and shutil.which("cmake") is None:
            raise LeftOut("CMake not found")
        python_with("numpy")
        about.checkout = (about.checkout or fetch(about.fetch)).resolve()
    except LeftOut as why:
        print(f"skipped: {why}")
        return 77
    about.build = about.build.resolve()
    about.build.mkdir(parents=True, exist_ok=True)
    if "build" in steps:
        start = time.monotonic()
        if subprocess.run([sys.executable, str(HERE / "edit.py"), str(about.checkout)], check=False).returncode != 0:
            return 1
        build(about)
        print(f"built in {time.monotonic() - start:.0f} s", flush=True)
    runner = Runner(about)
    try:
        for step in steps:
            if step != "build":
                getattr(runner, step)()
    finally:
        if about.out and runner.rows:
            runner.keep(machine())
    return 1 if runner.failed else 0


if __name__ == "__main__":
    sys.exit(main())
