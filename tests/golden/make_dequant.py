#!/usr/bin/env python3
"""Makes dequant.bin: blocks of random bits in every ggml type that Relay reads, and what they mean.

    pip install gguf==0.19.0 && python3 make_dequant.py

The meaning is that of llama.cpp's own Python package, whose numpy code is written apart from ours. A record is: type
(u32), values (u32), bytes (u32), the bytes, the values as float32; little endian, until the end of the file.
"""
import pathlib
import struct

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize

BLOCKS = {  # type: (values of a block, bytes of a block, where its f16 numbers lie)
    Type.Q4_0: (32, 18, [0]),
    Type.Q4_1: (32, 20, [0, 2]),
    Type.Q5_0: (32, 22, [0]),
    Type.Q8_0: (32, 34, [0]),
    Type.Q4_K: (256, 144, [0, 2]),
    Type.Q6_K: (256, 210, [208]),
}
N_BLOCKS = 5

rng = np.random.default_rng(1)
out = bytearray()


def record(ggml_type, data, values):
    out.extend(struct.pack("<III", int(ggml_type), values.size, len(data)))
    out.extend(data)
    out.extend(values.astype("<f4").tobytes())


for ggml_type, (n_values, n_bytes, halves) in BLOCKS.items():
    blocks = rng.integers(0, 256, (N_BLOCKS, n_bytes), dtype=np.uint8)
    for at in halves:  # random bits would be NaN or infinity at times; the last block has a subnormal scale
        scale = rng.normal(0, 0.05, N_BLOCKS).astype(np.float16)
        scale[-1] = np.float16(3e-6)
        blocks[:, at : at + 2] = scale.view(np.uint8).reshape(N_BLOCKS, 2)
    row = blocks.reshape(1, -1)
    record(ggml_type, row.tobytes(), dequantize(row, ggml_type).reshape(-1))

floats = rng.normal(0, 1, 64).astype(np.float32)
record(Type.F32, floats.tobytes(), floats)
halves = floats.astype(np.float16)
record(Type.F16, halves.tobytes(), halves.astype(np.float32))
bits = (floats.view(np.uint32) >> 16).astype(np.uint16)
record(Type.BF16, bits.tobytes(), (bits.astype(np.uint32) << 16).view(np.float32))

pathlib.Path(__file__).with_name("dequant.bin").write_bytes(out)
