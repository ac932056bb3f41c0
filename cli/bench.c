// `relay bench NAME`: finds the benchmark.
#include "cli/bench.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static const relay_command benches[] = {
    {"serve", "a model server's tokens a second, and how long they are waited for", relay_bench_serve},
    {"tokenize", "a server's latencies at a rate of calls", relay_bench_tokenize},
    {"tokenizer", "a tokenizer's speed in this process", relay_bench_tokenizer},
};

enum { N_BENCHES = sizeof benches / sizeof benches[0] };

static void print_help(FILE *f) {
    fputs("usage: relay bench NAME [flags]\n\n", f);
    for (int i = 0; i < N_BENCHES; i++)
        fprintf(f, "  %-12s %s\n", benches[i].name, benches[i].summary);
    fputs("\nrelay bench NAME --help tells a benchmark's flags.\n", f);
}

int relay_cli_bench(int argc, char **argv) {
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        print_help(stdout);
        return RELAY_EXIT_OK;
    }
    for (int i = 0; argc > 1 && i < N_BENCHES; i++)
        if (strcmp(argv[1], benches[i].name) == 0) return benches[i].run(argc - 1, argv + 1);
    if (argc > 1) fprintf(stderr, "relay: there is no benchmark %s\n\n", argv[1]);
    print_help(stderr);
    return RELAY_EXIT_USAGE;
}
