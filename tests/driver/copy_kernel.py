#!/usr/bin/env python3
"""Tests the kernel that copies over the link (include/memsaver/driver/cuda_copy_kernel.hpp), without a GPU.

    copy_kernel.py HEADER [--ptxas PTXAS]

Interprets its PTX thread by thread, for byte counts around each of its boundaries, and compares all of memory. Supports
only the instructions in the kernel: any other one is an error. Then assembles it, if an assembler is available.
"""
import argparse
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

WORD = (1 << 64) - 1
COMPUTES = {
    **dict.fromkeys(("mov.u32", "mov.u64", "cvt.u64.u32", "cvta.to.global.u64"), lambda a: a),
    "add.u64": lambda a, b: (a + b) & WORD,
    "mul.wide.u32": lambda a, b: a * b,
    "mad.lo.u64": lambda a, b, c: (a * b + c) & WORD,
    "shl.b64": lambda a, by: (a << by) & WORD,
    "setp.ge.u64": lambda a, b: a >= b,
}


def parse(ptx):
    """Returns the instructions of the only function, and the instruction that follows each label."""
    program, labels = [], {}
    for line in ptx[ptx.index("{\n") + 1:ptx.rindex("}")].split("\n"):
        line = line.strip()
        if line.endswith(":"):
            labels[line[:-1]] = len(program)
        elif line and not line.startswith(".reg"):
            program.append(line.removesuffix(";"))
    return program, labels


class Thread:
    """One thread: its registers, and the memory shared by all threads."""

    def __init__(self, code, memory, parameters, place):
        self.program, self.labels = code
        self.memory, self.parameters, self.registers = memory, parameters, dict(place)

    def value(self, text):
        return self.registers[text] if text.startswith("%") else int(text)

    def address(self, text, alignment):
        at = self.registers[text.strip("[]")]
        if at % alignment != 0:
            raise ValueError(f"an access at {at} is not at a multiple of {alignment}")
        return at

    def run(self):
        at = 0
        while True:
            line = self.program[at]
            at += 1
            if guarded := re.match(r"@(%\w+) (.*)", line):
                if not self.registers[guarded[1]]:
                    continue
                line = guarded[2]
            operation, _, rest = line.partition(" ")
            if operation == "ret":
                return
            if operation == "bra":
                at = self.labels[rest]
            else:
                self.step(operation, rest)

    def step(self, operation, rest):
        operands = [each.strip() for each in re.sub(r"\{[^}]*\}", "VECTOR", rest).split(",")]
        vector = re.search(r"\{(.*)\}", rest)
        names = vector[1].split(", ") if vector else []
        registers = self.registers
        if operation.startswith("ld.param"):
            registers[operands[0]] = self.parameters[operands[1].strip("[]")]
        elif operation == "ld.global.v4.u32":
            start = self.address(operands[1], 16)
            for i, name in enumerate(names):
                registers[name] = bytes(self.memory[start + 4 * i:start + 4 * i + 4])
        elif operation == "st.global.v4.u32":
            start = self.address(operands[0], 16)
            for i, name in enumerate(names):
                self.memory[start + 4 * i:start + 4 * i + 4] = registers[name]
        elif operation == "ld.global.u8":
            registers[operands[0]] = self.memory[self.address(operands[1], 1)]
        elif operation == "st.global.u8":
            self.memory[self.address(operands[0], 1)] = registers[operands[1]]
        else:
            registers[operands[0]] = COMPUTES[operation](*(self.value(each) for each in operands[1:]))


def copies_right(code, count, blocks=2, threads=16, size=1 << 14, to=1 << 13, start=1 << 10):
    source = random.Random(count)
    memory = bytearray(source.randbytes(size))
    before = bytes(memory)
    parameters = {"to": to, "from": start, "vectors": count // 16, "tail": count % 16}
    for block in range(blocks):
        for thread in range(threads):
            place = {"%ctaid.x": block, "%ntid.x": threads, "%tid.x": thread, "%nctaid.x": blocks}
            Thread(code, memory, parameters, place).run()
    return bytes(memory) == before[:to] + before[start:start + count] + before[to + count:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("header", type=Path)
    parser.add_argument("--ptxas", default="")
    options = parser.parse_args()
    ptx = re.search(r'copy_kernel_ptx = R"\(\n(.*?)\)"', options.header.read_text(), re.S)[1]
    code = parse(ptx)
    step = 16 * 2 * 16  # bytes of one round of all threads
    counts = sorted({base + more for base in (0, 16, 7 * 16, step, 3 * step, 4 * step, 8 * step) for more in (0, 1, 15, 16, 17)})
    wrong = [count for count in counts if not copies_right(code, count)]
    if wrong:
        sys.exit(f"copied wrongly: {wrong} bytes")
    print(f"{len(counts)} counts of bytes copied")
    if not options.ptxas:
        return
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "copy.ptx").write_text(ptx)
        for architecture in ("sm_75", "sm_80", "sm_90", "sm_100"):
            subprocess.run([options.ptxas, f"-arch={architecture}", "-o", f"{folder}/copy.cubin", f"{folder}/copy.ptx"], check=True)
    print("assembled")


if __name__ == "__main__":
    main()
