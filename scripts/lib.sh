# Shared by ./run and ./test: steps that say what they do, packages, downloads. Sourced, not run.

set -u -o pipefail

RELAY_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
RELAY_CACHE=${RELAY_CACHE:-${HOME:-/root}/.cache/relay}
export RELAY_CACHE

STEP_NUMBER=0
STEP_TOTAL=${STEP_TOTAL:-0}
STEP_NAME=

# step NAME: a new step begins.
step() {
    STEP_NUMBER=$((STEP_NUMBER + 1))
    STEP_NAME=$1
    echo "[$STEP_NUMBER/$STEP_TOTAL] $1" >&2
}

# note TEXT: what the step found or how far it is.
note() {
    echo "      $1" >&2
}

# die WHY [WHAT TO DO]: the step failed.
die() {
    echo "error: ${STEP_NAME:-set-up}: $1" >&2
    if [ $# -gt 1 ]; then echo "       $2" >&2; fi
    exit 1
}

# run_logged LOG WHAT COMMAND...: runs it with its output in LOG, and a line every few seconds with the last line of it.
run_logged() {
    local log=$1 what=$2 started=$SECONDS pid last
    shift 2
    : >"$log"
    "$@" >>"$log" 2>&1 </dev/null &
    pid=$!
    local shown=0
    while kill -0 "$pid" 2>/dev/null; do
        sleep 0.2
        # Often at first, less often for what takes minutes.
        if [ $((SECONDS - started)) -ge $((shown + 5 + shown / 4)) ]; then
            shown=$((SECONDS - started))
            last=$(tail -n 1 "$log" | tr -d '\r' | cut -c1-100)
            note "$what, ${shown} s: $last"
        fi
    done
    wait "$pid"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "needs root for: $*" "Run as root, or install sudo."
    fi
}

missing_packages() {
    local p
    for p in "$@"; do
        [ "$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || echo "$p"
    done
}

# ensure_packages NAME...: Debian packages; asks the network only for what is missing.
ensure_packages() {
    local missing log
    command -v dpkg-query >/dev/null || die "this is no Debian system (dpkg-query is missing)" "Relay is set up on Debian 12."
    missing=$(missing_packages "$@")
    if [ -z "$missing" ]; then
        note "all $# packages are installed"
        return
    fi
    # shellcheck disable=SC2086
    set -- $missing
    note "installing $#: $*"
    log=$(mktemp)
    run_logged "$log" "apt-get update" as_root env DEBIAN_FRONTEND=noninteractive apt-get update ||
        { tail -n 5 "$log" >&2; die "apt-get update failed (log: $log)" "Check the network and the package sources."; }
    run_logged "$log" "apt-get install" as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" ||
        { tail -n 5 "$log" >&2; die "apt-get install failed (log: $log)" "Run: apt-get install $*"; }
    rm -f "$log"
}

# What building and running needs.
BUILD_PACKAGES="bazel-bootstrap bazel-platforms bazel-skylib bazel-rules-proto bazel-rules-java gcc g++ libc6-dev
    libgrpc-dev libprotobuf-c-dev protobuf-c-compiler protobuf-compiler libprotobuf-dev libssl-dev libjemalloc-dev libpcre2-dev
    libutf8proc-dev libmicrohttpd-dev libxxhash-dev ca-certificates python3 python3-pip python3-setuptools python3-wheel"

# ensure_build_tools: packages and the libraries that Debian does not have.
ensure_build_tools() {
    # shellcheck disable=SC2086
    ensure_packages $BUILD_PACKAGES
    python3 "$RELAY_ROOT/scripts/fetch.py" library yyjson >/dev/null || die "could not get yyjson" "Check the network, then run again."
}

# newer_than STAMP: true when a source of the build changed after STAMP was written.
newer_than() {
    [ ! -e "$1" ] || [ -n "$(cd "$RELAY_ROOT" && find WORKSPACE .bazelrc BUILD.bazel bazel proto common kernels model_svc tokenizer_svc cli \
        -newer "$1" -print -quit)" ]
}

# build_services: the three programs, optimised. Bazel is asked only when a source changed.
build_services() {
    local stamp="$RELAY_ROOT/bazel-bin/.relay-built" log
    if ! newer_than "$stamp" && [ -x "$RELAY_ROOT/bazel-bin/cli/relay" ]; then
        note "up to date"
        return
    fi
    log=$(mktemp)
    (cd "$RELAY_ROOT" && run_logged "$log" "bazel build" bazel build --show_progress --curses=no \
        //model_svc:relay-model //tokenizer_svc:relay-tokenizer //cli:relay) ||
        { grep -E "ERROR|error:" "$log" | head -n 10 >&2; die "the build failed (log: $log)" "See the log; bazel build //... shows the same."; }
    rm -f "$log"
    (cd "$RELAY_ROOT" && bazel shutdown >/dev/null 2>&1)
    touch "$stamp"
}
