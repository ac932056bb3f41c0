// Wrong and hostile GGUF files, and what each must be refused for. Also the seeds of the fuzzer.
#ifndef RELAY_TESTS_COMMON_GGUF_HOSTILE_H
#define RELAY_TESTS_COMMON_GGUF_HOSTILE_H

#include <stddef.h>

#include "tests/common/gguf_writer.h"

typedef struct gguf_hostile {
    const char *name;
    void (*write)(gguf_writer *w);
    const char *says[2]; // in the message: the field, the value, the limit; the second may be NULL
} gguf_hostile;

extern const gguf_hostile gguf_hostile_files[];
extern const size_t gguf_hostile_count;

#endif
