#!/usr/bin/env python3
"""Writes a llama model with random weights, using llama.cpp's own `gguf` package. Needs NumPy.

    random_model.py --checkout llama.cpp --out tiny.gguf [--type f32|f16|bf16|q8_0] [--layers 4] [--width 256] ...

The model has no vocabulary: programs pass token numbers. llama-server needs one, so --words makes up words for all
tokens; the first ones, bytes and control tokens, are never the likeliest. Output is meaningless, but deterministic.
"""
import argparse
import sys
import types
from pathlib import Path


def import_gguf(checkout):
    """Imports the package's writing modules, without its other imports, which need more than NumPy."""
    folder = checkout / "gguf-py" / "gguf"
    if not (folder / "gguf_writer.py").is_file():
        raise SystemExit(f"{folder} does not exist; --checkout must name a checkout of llama.cpp")
    package = types.ModuleType("gguf")
    package.__path__ = [str(folder)]
    sys.modules["gguf"] = package
    from gguf import constants, gguf_writer, quants

    return constants, gguf_writer, quants


def tensors_of(about):
    """Yields (name, shape, whether it is quantized), following the architecture `llama`."""
    width, inner, keys = about.width, about.inner, about.width // about.heads * about.kv_heads
    yield "token_embd.weight", (about.vocab, width), True
    yield "output_norm.weight", (width,), False
    yield "output.weight", (about.vocab, width), True
    for layer in range(about.layers):
        yield f"blk.{layer}.attn_norm.weight", (width,), False
        yield f"blk.{layer}.attn_q.weight", (width, width), True
        yield f"blk.{layer}.attn_k.weight", (keys, width), True
        yield f"blk.{layer}.attn_v.weight", (keys, width), True
        yield f"blk.{layer}.attn_output.weight", (width, width), True
        yield f"blk.{layer}.ffn_norm.weight", (width,), False
        yield f"blk.{layer}.ffn_gate.weight", (inner, width), True
        yield f"blk.{layer}.ffn_up.weight", (inner, width), True
        yield f"blk.{layer}.ffn_down.weight", (width, inner), True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--type", choices=["f32", "f16", "bf16", "q8_0"], default="f16")
    for name, default in (("layers", 4), ("width", 256), ("heads", 8), ("kv-heads", 4), ("inner", 512), ("vocab", 1024), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--words", action="store_true", help="add a vocabulary; needs --vocab of more than 259")
    about = parser.parse_args()
    constants, gguf_writer, quants = import_gguf(about.checkout)
    import numpy

    kind = getattr(constants.GGMLQuantizationType, about.type.upper())
    writer = gguf_writer.GGUFWriter(about.out, "llama")
    writer.add_context_length(8192)
    writer.add_embedding_length(about.width)
    writer.add_block_count(about.layers)
    writer.add_feed_forward_length(about.inner)
    writer.add_head_count(about.heads)
    writer.add_head_count_kv(about.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(about.width // about.heads)
    writer.add_vocab_size(about.vocab)
    reserved = 3 + 256 if about.words else 0
    if about.words:
        kinds = constants.TokenType
        writer.add_tokenizer_model("llama")
        writer.add_token_list(["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)),
                               *(f"\u2581w{number}" for number in range(reserved, about.vocab))])
        writer.add_token_scores([0.0] * about.vocab)
        writer.add_token_types([kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, *[kinds.BYTE] * 256, *[kinds.NORMAL] * (about.vocab - reserved)])
    else:
        writer.add_tokenizer_model("none")

    # Rows are slices of a limited number of random ones, so that a model of many GiB is written at the disk's speed.
    random = numpy.random.default_rng(about.seed)
    rows = {}

    def data_of(shape, quantized):
        if not quantized:
            return numpy.ones(shape, numpy.float32), constants.GGMLQuantizationType.F32
        if shape[1] not in rows:
            scale = numpy.float32(shape[1] ** -0.5)
            some = random.standard_normal((1031, shape[1]), numpy.float32) * scale
            rows[shape[1]] = quants.quantize(some, kind)
        order = random.integers(0, len(rows[shape[1]]), shape[0])
        return rows[shape[1]][order], kind

    listed = list(tensors_of(about))
    for name, shape, quantized in listed:
        bits, written = data_of((1, *shape[1:]) if quantized else shape, quantized)
        one = bits.nbytes * (shape[0] if quantized else 1)
        packed = (shape[0], bits.shape[1]) if quantized else bits.shape
        writer.add_tensor_info(name, packed, bits.dtype, one, raw_dtype=written)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, shape, quantized in listed:
        bits = data_of(shape, quantized)[0]
        if name == "output.weight":
            bits[:reserved] = 0
        writer.write_tensor_data(bits)
    writer.close()
    print(f"{about.out}: {about.out.stat().st_size >> 20} MiB")


if __name__ == "__main__":
    main()
