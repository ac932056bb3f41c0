"""The one place that says how Relay's C code is compiled."""

COPTS = [
    "-std=gnu11",
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Wstrict-prototypes",
    "-Wmissing-prototypes",
    "-Wvla",
    "-Wno-unused-parameter",
    # protobuf-c's INIT macros leave inner braces out.
    "-Wno-missing-braces",
    # A log line without fields has the format "".
    "-Wno-format-zero-length",
    # A product and a sum stay two roundings unless the code says fma: results must not depend on the compiler's mood.
    "-ffp-contract=off",
    "-fno-math-errno",
]

def relay_cc_library(name, copts = [], **kwargs):
    native.cc_library(name = name, copts = COPTS + copts, **kwargs)

def relay_cc_binary(name, copts = [], deps = [], malloc = "//bazel:malloc", **kwargs):
    native.cc_binary(
        name = name,
        copts = COPTS + copts,
        deps = deps + ["//bazel:sanitizers"],
        malloc = malloc,
        **kwargs
    )

def relay_cc_test(name, copts = [], deps = [], size = "small", **kwargs):
    """A cmocka test program."""
    native.cc_test(
        name = name,
        size = size,
        copts = COPTS + copts,
        deps = deps + [
            "//bazel:sanitizers",
            "@system//:cmocka",
        ],
        **kwargs
    )
