// A piece of plain data that one thread writes and any other reads, whole and of one moment, without making the writer
// wait: a sequence lock (as in the Linux kernel). For data that is small and written seldom compared to what a reader
// takes to copy it.
#ifndef RELAY_MODEL_SVC_SNAPSHOT_H
#define RELAY_MODEL_SVC_SNAPSHOT_H

#include <stdint.h>

typedef struct relay_snapshot relay_snapshot;

// Of `n_bytes`, all zero. Nobody writes or reads it any more when it is destroyed; NULL is fine.
relay_snapshot *relay_snapshot_create(uint32_t n_bytes);
void relay_snapshot_destroy(relay_snapshot *s);
// One thread.
void relay_snapshot_write(relay_snapshot *s, const void *data);
// Any thread. Starts over when a write came in between.
void relay_snapshot_read(const relay_snapshot *s, void *data);

#endif
