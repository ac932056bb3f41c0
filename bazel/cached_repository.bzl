"""A repository whose files lie in Relay's cache folder, outside the source tree."""

def _cached_repository_impl(ctx):
    cache = ctx.os.environ.get("RELAY_CACHE")
    if not cache:
        cache = ctx.os.environ.get("HOME", "/root") + "/.cache/relay"
    folder = ctx.path(cache + "/" + ctx.attr.path)
    if not folder.exists:
        fail("%s is missing: run `python3 scripts/fetch.py library %s`, which lays it there" % (folder, ctx.name))
    for entry in folder.readdir():
        ctx.symlink(entry, entry.basename)
    ctx.symlink(ctx.attr.build_file, "BUILD.bazel")

cached_repository = repository_rule(
    implementation = _cached_repository_impl,
    attrs = {
        "build_file": attr.label(mandatory = True, allow_single_file = True),
        "path": attr.string(mandatory = True, doc = "Folder below the cache."),
    },
    environ = ["RELAY_CACHE", "HOME"],
    local = True,
)
