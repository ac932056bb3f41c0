// How a Relay error travels behind a gRPC status.
//
// Code and message have places of their own in gRPC (grpc-status, grpc-message). The retry hint does not, so it is sent
// twice in the trailing metadata: as `grpc-retry-pushback-ms`, which gRPC's own retry policies read, and as a
// google.rpc.RetryInfo in `grpc-status-details-bin`, which the error-model libraries of each language read.
#ifndef RELAY_COMMON_RPC_STATUS_H
#define RELAY_COMMON_RPC_STATUS_H

#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/status.h"

#define RELAY_RPC_STATUS_DETAILS_KEY "grpc-status-details-bin"
#define RELAY_RPC_RETRY_PUSHBACK_KEY "grpc-retry-pushback-ms"

// Appends the error as a serialized google.rpc.Status; its retry hint, if it has one, is the one detail.
void relay_rpc_status_encode(const relay_err *e, relay_buf *out);
// The retry hint in a serialized google.rpc.Status, in milliseconds; 0 when there is none or the bytes are malformed.
uint32_t relay_rpc_status_retry_ms(const uint8_t *data, size_t size);

#endif
