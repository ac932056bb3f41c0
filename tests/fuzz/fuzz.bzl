"""Fuzz targets: a test that replays seeds and mutates them, and a libFuzzer program under --config=fuzz."""

load("//bazel:relay.bzl", "COPTS")

def relay_fuzz_test(name, deps, srcs = None, args = [], mutations = 20000, **kwargs):
    """NAME.c defines what tests/fuzz/fuzz.h declares.

    Without --config=fuzz, `bazel test` runs the seeds and `mutations` mutations of them, always the same ones. With it
    (clang 14), `bazel run --config=fuzz //tests/fuzz:NAME -- CORPUS_DIR` is libFuzzer.
    """
    native.cc_test(
        name = name,
        size = "small",
        srcs = (srcs or [name + ".c"]) + ["fuzz.h"] + select({
            "//tests/fuzz:libfuzzer": [],
            "//conditions:default": ["//tests/fuzz:standalone.c"],
        }),
        args = select({
            "//tests/fuzz:libfuzzer": [],
            "//conditions:default": ["-n", str(mutations)] + args,
        }),
        copts = COPTS,
        linkopts = select({
            "//tests/fuzz:libfuzzer": ["-fsanitize=fuzzer"],
            "//conditions:default": [],
        }),
        deps = deps + ["//common:base"],
        **kwargs
    )
