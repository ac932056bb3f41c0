"""Rules that derive the C side of the contract.

The public files are proto3 with `optional`, which protobuf-c 1.4.1 cannot read, and use `string` for text, which it cuts at
a NUL byte. The C copy differs in two ways only: its syntax line says proto2, and every string field is held as bytes.
The wire format is the same.
"""

_C_COPY = " && ".join([
    "set -e",
    "out=$(RULEDIR)/c",
    "mkdir -p $$out",
    # A string field that the pattern misses (one with options, say) would be cut at a NUL byte: refused here.
    "for f in $(SRCS); do " +
    "  rel=$${f#proto/};" +
    "  mkdir -p $$out/$$(dirname $$rel);" +
    "  sed -E" +
    "    -e 's/^syntax = \"proto3\";/syntax = \"proto2\"; import \"protobuf-c\\/protobuf-c.proto\";/'" +
    "    -e 's/\\bstring +([a-z0-9_]+) *= *([0-9]+) *;/string \\1 = \\2 [(pb_c_field).string_as_bytes = true];/g'" +
    "    $$f > $$out/$$rel;" +
    "  if grep -nE '^[^/]*\\bstring +[a-z]' $$out/$$rel | grep -v string_as_bytes; then" +
    "    echo $$f: a string field that the C copy would hold as text >&2; exit 1;" +
    "  fi;" +
    "done",
    "protoc-c -I$$out -I/usr/include --c_out=$$out $$(cd $$out && find relay grpc -name '*.proto')",
])

def relay_c_proto(name, srcs):
    """C messages of all `srcs`, included as "relay/v1/model.pb-c.h" and so on."""
    outs = []
    for src in srcs:
        base = "c/" + src[:-len(".proto")]
        outs += [base + ".pb-c.c", base + ".pb-c.h"]
    native.genrule(
        name = name + "_generate",
        srcs = srcs,
        outs = outs,
        cmd = _C_COPY,
        visibility = ["//visibility:public"],
    )
    native.cc_library(
        name = name,
        srcs = [o for o in outs if o.endswith(".c")],
        hdrs = [o for o in outs if o.endswith(".h")],
        copts = ["-w"],
        includes = ["c"],
        visibility = ["//visibility:public"],
        deps = ["@system//:protobuf_c"],
    )

def relay_descriptor_set(name, srcs):
    """The files as one FileDescriptorSet, imports included: what reflection serves. A C array of its bytes."""
    native.genrule(
        name = name + "_set",
        srcs = srcs,
        outs = [name + ".pb"],
        cmd = "protoc -Iproto --experimental_allow_proto3_optional --include_imports --descriptor_set_out=$@ $(SRCS)",
        visibility = ["//visibility:public"],
    )
    native.genrule(
        name = name + "_source",
        srcs = [name + ".pb"],
        outs = [name + ".c"],
        cmd = "(echo '#include \"proto/%s.h\"'; echo 'const unsigned char relay_%s_data[] = {'; od -An -v -tu1 $< | sed -E 's/ +([0-9]+)/\\1,/g'; echo '};'; echo 'const unsigned long relay_%s_size = sizeof relay_%s_data;') > $@" % (name, name, name, name),
    )
    native.genrule(
        name = name + "_header",
        outs = [name + ".h"],
        cmd = "(echo '#ifndef RELAY_PROTO_%s_H'; echo '#define RELAY_PROTO_%s_H'; echo '/* Serialized google.protobuf.FileDescriptorSet. */'; echo 'extern const unsigned char relay_%s_data[];'; echo 'extern const unsigned long relay_%s_size;'; echo '#endif') > $@" % (name.upper(), name.upper(), name, name),
    )
    native.cc_library(
        name = name,
        srcs = [name + ".c"],
        hdrs = [name + ".h"],
        visibility = ["//visibility:public"],
    )
