#!/usr/bin/env python3
"""Serves random models by an edited llama-server: more models than may be awake at once.

    serve.py --checkout llama.cpp --build build/llama_cpp --out bench/results            on a GPU; edits and builds first
    serve.py --fetch build/llama_cpp/source --build build/llama_cpp --cpu                host memory, tiny models
    serve.py --checkout llama.cpp --server build/bin/llama-server ...                    an existing build

There is one server process for each model, and this script stands in for a router: at most `--room` models are awake.
For a request to another one it sends /sleep to the model that has been idle longest, then the request, which wakes its
server. Two sides do so in turn, with the same binary, flags and requests:

    reload     GGML_MEMSAVER=off: a server that sleeps frees model, context and cache, and loads them again (llama.cpp's
               own --sleep-idle-seconds; only /sleep and the wake by a queued request are edits)
    memsaver   a server that sleeps is paused

The first side also answers each prompt once for each model, alone and awake; all later answers must be the same tokens.
Time to first token is what a client measures, waiting for room included. `--out` is a folder for the results, written
after each step. Exits with 1 if an answer differed or failed, and with 77 if the source or a tool is not available.
"""
import argparse
import collections
import concurrent.futures
import ctypes
import http.client
import json
import math
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import run_all  # noqa: E402
from run_all import LeftOut, machine, output_of, python_with, short  # noqa: E402

SIDES = {"reload": "off", "memsaver": "gpu"}  # and GGML_MEMSAVER
PROMPTS = 4  # different ones for each model


# --- Servers ---


class Server:
    """One llama-server with one model. Depends on nothing else here."""

    def __init__(self, name, command, environment, log):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.name, self.log = name, log
        with log.open("w", encoding="utf-8") as out:
            self.process = subprocess.Popen([*command, "--host", "127.0.0.1", "--port", str(self.port)], stdout=out, stderr=out,
                                            env={**os.environ, **environment})

    def call(self, method, path, body=None, limit=300):
        """Returns the open response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=limit)
        connection.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json"})
        return connection, connection.getresponse()

    def say(self, method, path):
        connection, response = self.call(method, path)
        text = response.read()
        connection.close()
        if response.status != 200:
            raise RuntimeError(f"{self.name}: {path}: {response.status}: {text[:200]}")
        return json.loads(text)

    def await_ready(self, limit=180):
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            try:
                self.say("GET", "/health")
                return
            except (OSError, RuntimeError, http.client.HTTPException):
                time.sleep(0.1)
        tail = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-50:]
        raise RuntimeError("\n".join([f"{self.name}: did not start: exit {self.process.poll()}", *tail]))

    def ask(self, prompt, tokens, start=None, cache=False):
        """Returns (seconds to the first token, all tokens, the server's timings)."""
        start = start or time.monotonic()
        body = {"prompt": prompt, "n_predict": tokens, "temperature": 0, "top_k": 1, "seed": 1, "stream": True, "ignore_eos": True,
                "return_tokens": True, "cache_prompt": cache}
        connection, response = self.call("POST", "/completion", body)
        if response.status != 200:
            raise RuntimeError(f"{self.name}: {response.status}: {response.read()[:200]}")
        first, answer, timings = None, [], {}
        for line in response:
            if line.startswith(b"error"):
                raise RuntimeError(f"{self.name}: {line[:200]}")
            if line.startswith(b"data: {"):
                said = json.loads(line[6:])
                if "error" in said:
                    raise RuntimeError(f"{self.name}: {said['error']}")
                timings = said.get("timings", timings)
                if said.get("tokens") and not said.get("stop"):
                    first = first or time.monotonic() - start
                    answer += said["tokens"]
        connection.close()
        if len(answer) != tokens:
            raise RuntimeError(f"{self.name}: {len(answer)} tokens and not {tokens}")
        return first, answer, timings

    def sleep(self):
        start = time.monotonic()
        if not self.say("POST", "/sleep")["sleeping"]:
            raise RuntimeError(f"{self.name}: is awake after /sleep")
        return time.monotonic() - start

    def close(self):
        """Waits until the process, which was asked to terminate, has ended."""
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Room:
    """Decides which servers are awake: at most `limit`. Instead of a router, in the threads of those who ask."""

    def __init__(self, limit):
        self.limit, self.changed = limit, threading.Condition()
        self.awake = collections.OrderedDict()  # server: number of requests; the least recently used first
        self.ready, self.leaving = set(), set()
        self.most = 0

    def enter(self, server):
        """Makes room for a request. Returns whether the server was awake."""
        victim = None
        with self.changed:
            while True:
                if server in self.awake:
                    self.awake[server] += 1
                    self.awake.move_to_end(server)
                    return server in self.ready
                if server not in self.leaving:
                    if len(self.awake) < self.limit:
                        break
                    victim = next((each for each, users in self.awake.items() if users == 0), None)
                    if victim is not None:
                        del self.awake[victim]
                        self.ready.discard(victim)
                        self.leaving.add(victim)
                        break
                self.changed.wait()
            self.awake[server] = 1
            self.most = max(self.most, len(self.awake))
        if victim is not None:
            try:
                victim.sleep()
            except BaseException:
                self.leave(server)
                raise
            finally:
                with self.changed:
                    self.leaving.discard(victim)
                    self.changed.notify_all()
        return False

    def leave(self, server):
        with self.changed:
            self.awake[server] -= 1
            self.ready.add(server)
            self.changed.notify_all()

    def clear(self):
        """Puts all to sleep; nobody may be asking."""
        for server in list(self.awake):
            server.sleep()
        self.awake.clear()
        self.ready.clear()


# --- Numbers ---


def percentile(values, share):
    """The smallest value that at least this share of the values does not exceed; None if there are none."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else None


def told(values, name=""):
    """Returns p50 and p99 in ms of seconds."""
    return {f"{name}{key}_ms": 1000 * percentile(values, share) for key, share in (("p50", 0.5), ("p99", 0.99)) if values}


def host_available():
    """Bytes of host memory that programs could still get, within the limit of the control group."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines())
    free = int(lines["MemAvailable"].split()[0]) << 10
    try:
        group = Path("/sys/fs/cgroup")
        stat = dict(line.split() for line in (group / "memory.stat").read_text(encoding="utf-8").splitlines())
        used = int((group / "memory.current").read_text(encoding="utf-8")) - int(stat["file"])
        return min(free, int((group / "memory.max").read_text(encoding="utf-8")) - used)
    except (OSError, ValueError, KeyError):
        return free


def device_used():
    """Bytes of the first GPU's memory in use by all programs; None without a GPU."""
    said = output_of("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits").splitlines()
    return int(said[0]) << 20 if said and said[0].isdigit() else None


class Watch(threading.Thread):
    """Notes the most memory in use from now until it is asked."""

    def __init__(self, device, host_before):
        super().__init__(daemon=True)
        self.device, self.host_before, self.over = device, host_before, threading.Event()
        self.most = {}
        self.start()

    def look(self):
        now = {"host_bytes": self.host_before - host_available()}
        if self.device and (used := device_used()) is not None:
            now["device_bytes"] = used
        self.most = {key: max(value, self.most.get(key, 0)) for key, value in now.items()}

    def run(self):
        while not self.over.wait(0.5):
            self.look()

    def end(self):
        self.over.set()
        self.join()
        self.look()
        return self.most


def plain_copy_gb_per_second(bytes_=1 << 30):
    """Returns the speed of cudaMemcpy from pinned memory to the device, the best of five; None without a CUDA runtime."""
    try:
        cuda = ctypes.CDLL("libcudart.so")
    except OSError:
        return None
    host, device, best = ctypes.c_void_p(), ctypes.c_void_p(), None
    size = ctypes.c_size_t(bytes_)
    if cuda.cudaMallocHost(ctypes.byref(host), size) == 0 and cuda.cudaMalloc(ctypes.byref(device), size) == 0:
        for _ in range(5):
            start = time.monotonic()
            if cuda.cudaMemcpy(device, host, size, 1) == 0:
                best = max(best or 0, bytes_ / (time.monotonic() - start) / 1e9)
    cuda.cudaDeviceReset()
    return best


# --- The run ---


class Run:
    def __init__(self, about):
        self.about, self.rows, self.failed = about, [], False
        self.context, self.expected, self.servers = machine(), {}, []
        self.folder = about.work or about.build
        self.end = time.monotonic() + about.deadline
        self.host_before = host_available()
        self.files = self.make_files()
        self.bytes = self.files[0].stat().st_size
        self.count = self.fitting()
        order = random.Random(7)
        self.prompts = [[[order.randrange(300, about.vocab) for _ in range(about.prompt)] for _ in range(PROMPTS)] for _ in range(self.count)]
        weights = [1 / (rank + 1) ** about.zipf for rank in range(self.count)]
        models = order.choices(range(self.count), weights, k=about.requests)
        self.requests = [(model, order.randrange(PROMPTS)) for model in models]

    def row(self, name, good=True, **values):
        self.rows.append({"name": name, "good": bool(good), **values})
        self.failed |= not good
        shown = " ".join(f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in values.items())
        print(f"{self.about.deadline - (self.end - time.monotonic()):6.1f} s  {name:<22} {'' if good else 'FAILED '}{shown}", flush=True)
        if self.about.out:
            path = self.about.out / f"{self.context['date']}-{short(self.context['gpu'])}-llama_server.json"
            path.write_text(json.dumps({"context": self.context, "benchmarks": self.rows}, indent=1) + "\n", encoding="utf-8")

    def make_files(self):
        """Writes the models' files. Further models are these files with another base of rotary embeddings: they give
        other tokens, and take no disk."""
        files = []
        for number in range(min(self.about.files, self.about.models)):
            file = self.folder / f"served-{number}-{'cpu' if self.about.cpu else 'gpu'}.gguf"
            if not file.exists():
                command = [python_with("numpy"), str(HERE / "random_model.py"), "--checkout", self.about.checkout, "--out", file, "--words",
                           "--seed", str(number + 1), *self.about.shape.split()]
                subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            files.append(file)
        return files

    def fitting(self):
        """Returns how many of the models have room for their backups in host memory."""
        fit = int((host_available() - (1 << 30 if self.about.cpu else 10 << 30)) / (1.05 * self.bytes + (512 << 20)))
        if fit < self.about.models:
            print(f"host memory suffices for {fit} of {self.about.models} models")
        return max(1, min(fit, self.about.models))

    def command(self, model, slots):
        command = [str(self.about.server), "-t", "1", "-m", self.files[model % len(self.files)], "-c", str(512 * slots), "-np", str(slots), "-fit", "off",
                   "--cache-ram", "0", "--rope-freq-base", str(10000 + 1000 * (model // len(self.files))), *self.about.flags.split()]
        return command + (["-lm", "none"] if self.about.cpu else ["-ngl", "99"])

    def start(self, side, model, slots=1):
        where = "host" if self.about.cpu and side == "memsaver" else SIDES[side]
        server = Server(f"{side}-{model}-{slots}", self.command(model, slots), {"GGML_MEMSAVER": where}, self.folder / f"{side}-{model}-{slots}.log")
        self.servers.append(server)
        server.await_ready()
        return server

    def close(self):
        for server in self.servers:
            server.process.terminate()
        for server in self.servers:
            server.close()
        self.servers = []

    def left(self):
        return self.end - time.monotonic()

    def ask(self, server, model, number, start=None):
        """Returns seconds to the first token, and whether the tokens are the expected ones."""
        first, answer, _ = server.ask(self.prompts[model][number], self.about.tokens, start)
        return first, self.expected.setdefault((model, number), answer) == answer

    def start_all(self, side):
        """Starts a server for each model; each answers all its prompts, then sleeps."""
        begin = time.monotonic()

        def one(model):
            server = self.start(side, model)
            same = [self.ask(server, model, number)[1] for number in range(PROMPTS)]
            server.sleep()
            return server, same

        with concurrent.futures.ThreadPoolExecutor(self.about.room) as pool:
            started = list(pool.map(one, range(self.count)))
        servers = [server for server, _ in started]
        same = sum(map(sum, (same for _, same in started)))
        watch = Watch(not self.about.cpu, self.host_before)
        memory = watch.end()
        backed_up = [sum(arena["backed_up_bytes"] for arena in (server.say("GET", "/memory")["memory"] or {"arenas": []})["arenas"]) for server in servers]
        self.row(f"{side}/all asleep", same == self.count * PROMPTS, models=self.count, identical=same, answers=self.count * PROMPTS,
                 seconds=time.monotonic() - begin, backed_up_bytes=sum(backed_up), **memory)
        return servers

    def one_model(self, side, server):
        """Time to first token of model 0, awake and asleep; generation."""
        awake, asleep, sleeping, same = [], [], [], 0
        self.ask(server, 0, 0)
        for turn in range(self.about.cycles):
            first, good = self.ask(server, 0, turn % PROMPTS)
            awake.append(first)
            same += good
        self.row(f"{side}/awake", same == len(awake), count=len(awake), identical=same, **told(awake))
        speeds = [server.ask(self.prompts[0][0], 128)[2].get("predicted_per_second", 0.0) for _ in range(3)]
        self.row(f"{side}/generation", tokens_per_second=max(speeds))
        end, same = time.monotonic() + self.about.seconds / 2, 0
        while len(asleep) < self.about.cycles and (time.monotonic() < end or len(asleep) < 3):
            sleeping.append(server.sleep())
            first, good = self.ask(server, 0, len(asleep) % PROMPTS)
            asleep.append(first)
            same += good
        server.ask(self.prompts[0][0], self.about.tokens, cache=True)
        server.sleep()
        kept = server.ask(self.prompts[0][0], self.about.tokens, cache=True)[2].get("cache_n", 0)
        sleeping.append(server.sleep())
        self.row(f"{side}/asleep", same == len(asleep), count=len(asleep), identical=same, bytes=self.bytes, prompt_tokens_kept=kept, **told(asleep),
                 **told(sleeping, "sleep_"))

    def clients(self, side):
        """Time to first token of each of several clients of one sleeping model, whose server has a slot for each."""
        server, times, same, answers = self.start(side, 0, self.about.clients), [], 0, 0
        end = time.monotonic() + self.about.seconds / 4
        with concurrent.futures.ThreadPoolExecutor(self.about.clients) as pool:
            for turn in range(1 + max(2, self.about.cycles // 4)):
                if turn > 2 and time.monotonic() > end:
                    break
                server.sleep()
                for first, good in pool.map(lambda number: self.ask(server, 0, number % PROMPTS), range(self.about.clients)):
                    times += [first] * (turn > 0)
                    same, answers = same + good, answers + 1
        server.process.terminate()
        server.close()
        self.servers.remove(server)
        # Requests that are computed together may round otherwise: not a failure.
        self.row(f"{side}/clients", count=len(times), clients=self.about.clients, identical=same, answers=answers, **told(times))

    def turns(self, side, servers):
        """Concurrent requests to all models, by a Zipf law."""
        room, waiting, lock = Room(self.about.room), collections.deque(self.requests), threading.Lock()
        hits, misses, errors, different = [], [], [], 0
        begin = time.monotonic()
        end = begin + min(self.about.seconds, max(5.0, self.left()))

        def client():
            nonlocal different
            while time.monotonic() < end:
                with lock:
                    if not waiting:
                        return
                    model, number = waiting.popleft()
                start, server, entered = time.monotonic(), servers[model], False
                try:
                    hit = room.enter(server)
                    entered = True
                    first, good = self.ask(server, model, number, start)
                    with lock:
                        (hits if hit else misses).append(first)
                        different += not good
                except (OSError, RuntimeError, ValueError, http.client.HTTPException) as error:
                    with lock:
                        errors.append(str(error))
                finally:
                    if entered:
                        room.leave(server)

        watch = Watch(not self.about.cpu, self.host_before)
        threads = [threading.Thread(target=client) for _ in range(self.about.clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds, done = time.monotonic() - begin, len(hits) + len(misses)
        for error in errors[:3]:
            print(error)
        self.row(f"{side}/turns", not errors and different == 0 and done > 0, models=self.count, room=self.about.room, most_awake=room.most,
                 clients=self.about.clients, requests=done, asked=len(self.requests), failed=len(errors), different=different, seconds=seconds,
                 requests_per_second=done / seconds, hits=len(hits), misses=len(misses), **told(hits, "hit_"), **told(misses, "miss_"), **watch.end())
        if not errors:
            room.clear()

    def side(self, side):
        servers = self.start_all(side)
        for step in (lambda: self.one_model(side, servers[0]), lambda: self.turns(side, servers), lambda: self.clients(side)):
            if self.left() < 5:
                self.context["cut"] = "the deadline was reached"
                return
            step()

    def all(self):
        self.context |= {"llama_cpp": run_all.PACKAGE, "workload": {
            "file_bytes": self.bytes, "files": len(self.files), "models": self.count, "room": self.about.room, "zipf": self.about.zipf,
            "prompt": self.about.prompt, "tokens": self.about.tokens, "clients": self.about.clients, "flags": self.about.flags,
            "command": " ".join(Path(str(part)).name if "/" in str(part) else str(part) for part in self.command(0, 1))}}
        if not self.about.cpu and (speed := plain_copy_gb_per_second()):
            self.row("plain copy", gb_per_second=speed)
        for side in self.about.sides.split(","):
            try:
                self.side(side)
            except (OSError, RuntimeError, http.client.HTTPException) as error:
                print(error)
                self.row(f"{side}/failed", False, error=str(error).splitlines()[0])
            finally:
                self.close()
        rates = [next((row["requests_per_second"] for row in self.rows if row["name"] == f"{side}/turns"), None) for side in SIDES]
        if all(rates):
            self.row("memsaver/of reload", requests_ratio=rates[1] / rates[0])
        return 1 if self.failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--checkout", type=Path)
    source.add_argument("--fetch", type=Path)
    parser.add_argument("--build", type=Path, default=Path("build/llama_cpp"))
    parser.add_argument("--server", type=Path, help="an existing llama-server of an edited checkout; nothing is edited or built")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--library", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--work", type=Path, help="folder for models and logs; default: the build's")
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--models", type=int, default=12)
    parser.add_argument("--room", type=int, default=3, help="models that may be awake")
    parser.add_argument("--files", type=int, help="different files among the models; default: one each on a CPU, else 1")
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--zipf", type=float, default=1.0)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--cycles", type=int, default=40, help="sleeps of one model")
    parser.add_argument("--seconds", type=float, default=120, help="limit for the turns of each side")
    parser.add_argument("--deadline", type=float, default=3600, help="seconds after which no step begins")
    parser.add_argument("--shape", help="arguments of random_model.py")
    parser.add_argument("--flags", default="", help="further flags of both sides' servers")
    parser.add_argument("--cmake", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    about = parser.parse_args()
    about.files = about.files or (about.models if about.cpu else 1)
    about.shape = about.shape or " ".join((run_all.CPU_MODELS if about.cpu else run_all.GPU_MODELS)[0][1])
    about.vocab = int(about.shape.split("--vocab ")[1].split()[0])
    if set(about.sides.split(",")) - set(SIDES):
        parser.error(f"--sides must be a comma-separated list of {', '.join(SIDES)}")
    try:
        python_with("numpy")
        about.checkout = (about.checkout or run_all.fetch(about.fetch)).resolve()
    except LeftOut as why:
        print(f"skipped: {why}")
        return 77
    about.build = about.build.resolve()
    about.build.mkdir(parents=True, exist_ok=True)
    if about.server is None:
        if subprocess.run([sys.executable, str(HERE / "edit.py"), str(about.checkout)], check=False).returncode != 0:
            return 1
        run_all.build(about, server=True)
        about.server = about.build / "bin" / "llama-server"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    run = Run(about)
    try:
        return run.all()
    finally:
        run.close()


if __name__ == "__main__":
    sys.exit(main())
