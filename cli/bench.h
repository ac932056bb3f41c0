// The benchmarks of `relay bench`, one a name: `relay bench tokenize`.
#ifndef RELAY_CLI_BENCH_H
#define RELAY_CLI_BENCH_H

int relay_bench_serve(int argc, char **argv);
int relay_bench_tokenize(int argc, char **argv);
int relay_bench_tokenizer(int argc, char **argv);

#endif
