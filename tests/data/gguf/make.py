"""Makes the GGUF files of this folder with gguf-py 0.19.0 (`pip install gguf==0.19.0`), another implementation.

Run in this folder. The same input gives the same bytes.
"""
import numpy as np
from gguf import GGMLQuantizationType as Q, GGUFValueType as T, GGUFWriter


def fill(w):
    for key, value, ty in [
        ("t.u8", 200, T.UINT8), ("t.i8", -100, T.INT8), ("t.u16", 60000, T.UINT16), ("t.i16", -30000, T.INT16),
        ("t.u32", 4000000000, T.UINT32), ("t.i32", -2000000000, T.INT32), ("t.f32", 0.1, T.FLOAT32),
        ("t.bool", True, T.BOOL), ("t.string", "grüße 🌍\n", T.STRING), ("t.u64", 2**64 - 1, T.UINT64),
        ("t.i64", -(2**63), T.INT64), ("t.f64", 0.1, T.FLOAT64),
    ]:
        w.add_key_value(key, value, ty)
    for key, value, ty in [
        ("a.u8", [1, 255], T.UINT8), ("a.i8", [-1, 1], T.INT8), ("a.u16", [65535], T.UINT16), ("a.i16", [-2, 3], T.INT16),
        ("a.u32", [7, 4000000000], T.UINT32), ("a.i32", [-7, 7, 0], T.INT32), ("a.f32", [0.5, -1.5], T.FLOAT32),
        ("a.bool", [True, False, True], T.BOOL), ("a.string", ["", "a", "▁the"], T.STRING),
        ("a.u64", [2**63], T.UINT64), ("a.i64", [-1], T.INT64), ("a.f64", [1e300], T.FLOAT64),
        ("a.array", [["x", "y"], ["z"]], T.ARRAY),
    ]:
        w.add_key_value(key, value, T.ARRAY, sub_type=ty)
    w.add_custom_alignment(64)
    w.add_tensor("f32", np.arange(6, dtype=np.float32).reshape(2, 3))
    w.add_tensor("f16", np.arange(4, dtype=np.float16))
    w.add_tensor("q8_0", np.arange(2 * 68, dtype=np.uint8).reshape(2, 68), raw_dtype=Q.Q8_0)
    w.add_tensor("q4_k", np.arange(144, dtype=np.uint8).reshape(1, 144), raw_dtype=Q.Q4_K)


def write(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


single = GGUFWriter("all-types.gguf", "test")
fill(single)
write(single)

split = GGUFWriter("split.gguf", "test", split_max_tensors=2)
for i in range(5):
    split.add_tensor(f"t{i}", np.full((4,), i, dtype=np.float32))
write(split)
