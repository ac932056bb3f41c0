"""The keys of a GGUF file, read by the format's description alone."""
import mmap
import struct

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def scalar(self, fmt):
        (value,) = struct.unpack_from(fmt, self.data, self.at)
        self.at += struct.calcsize(fmt)
        return value

    def string(self):
        n = self.scalar("<Q")
        self.at += n
        return self.data[self.at - n:self.at].decode()

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            return self.scalar(SCALARS[kind])
        element, n = self.scalar("<I"), self.scalar("<Q")
        return [self.value(element) for _ in range(n)]


def read_keys(path):
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
        r = Reader(data)
        if data[:4] != b"GGUF" or not 2 <= struct.unpack_from("<I", data, 4)[0] <= 3:
            raise ValueError(f"{path} is no GGUF file of version 2 or 3")
        r.at = 16
        n_keys = r.scalar("<Q")
        keys = {}
        for _ in range(n_keys):
            name = r.string()
            keys[name] = r.value(r.scalar("<I"))
        return keys
